"""Views of arrays, and what they keep in memory: as long as a view of a part is there, so is the whole array.

Where that matters, the part becomes an array of its own. Who cuts does not know whether the whole stays anyway, as a variable's does: copies are kept small.
"""

from __future__ import annotations

from typing import Any

LARGE = 1 << 20
"""Bytes from which on an array is not kept for a small piece of it within a step."""
SMALL, MOST = 8, 1 << 18
"""A piece is small if the whole has more than so many times its bytes, and if it has no more than so many: larger copies cost more than a kernel does."""
_LITTLE = 1 << 10


def piece(view: Any) -> Any:
    """What a kernel cut out of an array: as a view, or as a copy where it is a small piece of a large array, which may then go."""
    base = getattr(view, "base", None)
    if base is not None and is_small(view.nbytes, getattr(base, "nbytes", 0)):
        return view.copy()
    return view


def is_small(part: int, whole: int) -> bool:
    """Whether a part of so many bytes shall not keep the whole."""
    return whole >= LARGE and whole > part * SMALL and part <= MOST


def is_wasteful(value: Any) -> bool:
    """Whether an array keeps more than twice its own memory: too much where it stays beyond its step."""
    base = getattr(value, "base", None)
    return base is not None and getattr(base, "nbytes", 0) > 2 * value.nbytes + _LITTLE


def compact(value: Any) -> Any:
    """A value that is kept beyond its step, in a queue for instance."""
    return value.copy() if is_wasteful(value) else value
