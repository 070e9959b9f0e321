"""The numbers by which rendezvous keys name loop frames.

Workers of one cluster must agree on them without talking, so they are hashes, and TensorFlow's own, so that its workers agree as
well: a child frame's id combines the parent's id, the parent's iteration, and TF's 64-bit hash of the frame's name.
"""

from __future__ import annotations

from functools import lru_cache

_MASK = (1 << 64) - 1
_M = 0xC6A4A7935BD1E995
_SEED = 0xDECAFCAFFE


@lru_cache(maxsize=4096)
def hash64(data: bytes, seed: int = _SEED) -> int:
    """TF's Hash64: MurmurHash64A with TF's seed."""
    n = len(data)
    h = seed ^ (n * _M & _MASK)
    whole = n - n % 8
    for i in range(0, whole, 8):
        k = int.from_bytes(data[i : i + 8], "little") * _M & _MASK
        k = (k ^ (k >> 47)) * _M & _MASK
        h = (h ^ k) * _M & _MASK
    if whole < n:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 47)) * _M & _MASK
    return h ^ (h >> 47)


def combine(a: int, b: int) -> int:
    """TF's Hash64Combine."""
    return a ^ ((b + 0x9E3779B97F4A7800 + (a << 10) + (a >> 4)) & _MASK)


def child_frame_id(parent_id: int, parent_iteration: int, frame_name: str) -> int:
    """The id of the frame that an Enter opens. The root frame's id is 0."""
    return combine(parent_id, combine(parent_iteration, hash64(frame_name.encode())))
