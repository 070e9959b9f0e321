"""Philox4x32-10 and the distributions drawn from it, for JAX: the numbers of `penstock.ops.philox`.

    stream = Stream.from_key_counter(key, counter)        # uint64[1] and uint64[2], low half first; known or traced
    uniform(stream, (3, 5), np.float32)

Numbers depend on their position only. Integers and uniform numbers are those of the CPU bit for bit; normals follow the same steps in the
same precision, so that they agree but for a rare last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.xla.rule import Unsupported, jnp, lax
from penstock.engines.xla.values import size_of
from penstock.ops.kernels import libm32
from penstock.ops.philox import BFLOAT16, RESERVED_PER_OUTPUT

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_SCRAMBLE = np.uint64(0x02461E293EC8F720)
_SHIFT = np.uint64(32)
_U32, _U64 = np.uint32, np.uint64

Words = tuple[Any, Any, Any, Any]
"""The four words (uint32) of each block."""


class Stream(NamedTuple):
    """A place in a Philox stream: the key and the two halves of the counter, all uint64 scalars."""

    key: Any
    low: Any
    high: Any

    @classmethod
    def from_key_counter(cls, key: Any, counter: Any) -> Stream:
        """As the Stateless*V2 ops take them: key as uint64[1], counter as uint64[2]."""
        key, counter = jnp.asarray(key).astype(_U64), jnp.asarray(counter).astype(_U64)
        return cls(key.reshape(-1)[0], counter[0], counter[1])

    @classmethod
    def from_stateless_seed(cls, seed: Any) -> Stream:
        """The generator of a Stateless* op with the given pair of seeds: the pair is scrambled by Philox itself."""
        seed = jnp.asarray(seed).astype(np.int64).astype(_U64)
        x0, x1, x2, x3 = (w[0].astype(_U64) for w in cls(jnp.asarray(_SCRAMBLE), seed[0], seed[1]).blocks(np.zeros(1, _U64)))
        return cls(x0 | x1 << _SHIFT, jnp.zeros((), _U64), x2 | x3 << _SHIFT)

    def skip(self, blocks: Any) -> Stream:
        """The same stream, `blocks` (uint64) blocks further on."""
        low = self.low + blocks
        return Stream(self.key, low, self.high + (low < self.low).astype(_U64))

    def blocks(self, offsets: Any) -> Words:
        """The blocks at the given offsets (uint64)."""
        low = self.low + offsets
        high = self.high + (low < self.low).astype(_U64)
        c0, c1, c2, c3 = _low(low), _high(low), _low(high), _high(high)
        k0, k1 = _low(self.key), _high(self.key)
        for _ in range(10):
            p0, p1 = _M0 * c0.astype(_U64), _M1 * c2.astype(_U64)
            c0, c1, c2, c3 = _high(p1) ^ c1 ^ k0, _low(p1), _high(p0) ^ c3 ^ k1, _low(p0)
            k0, k1 = k0 + _W0, k1 + _W1
        return c0, c1, c2, c3


def _low(x: Any) -> Any:
    return x.astype(_U32)


def _high(x: Any) -> Any:
    return (x >> _SHIFT).astype(_U32)


# -- from blocks to numbers -------------------------------------------------------------------------------------------


def _fill(stream: Stream, shape: Sequence[int], per_block: int, make: Callable[[Words], Sequence[Any]]) -> Any:
    """An array of `shape`: make(words) gives the `per_block` numbers of each block."""
    size = size_of(shape)
    offsets = jnp.arange(-(-size // per_block), dtype=_U64)
    return jnp.stack(make(stream.blocks(offsets)), -1).reshape(-1)[:size].reshape(tuple(shape))


def _float32_of(words: Any) -> Any:
    bits = (words & _U32(0x7FFFFF)) | _U32(0x3F800000)
    return lax.bitcast_convert_type(bits, np.float32) - np.float32(1)


def _float64_of(x: Any, y: Any) -> Any:
    bits = (x.astype(_U64) & _U64(0xFFFFF)) << _SHIFT | y.astype(_U64) | _U64(1023 << 52)
    return lax.bitcast_convert_type(bits, np.float64) - 1.0


def _small_float_of(dtype: Any, mantissa_bits: int) -> Callable[[Words], list[Any]]:
    mask, scale = _U32((1 << mantissa_bits) - 1), np.float32(0.5**mantissa_bits)
    return lambda words: [((w & mask).astype(np.float32) * scale).astype(dtype) for w in words]


def _longs_of(words: Words) -> list[Any]:
    x0, y0, x1, y1 = (w.astype(_U64) for w in words)
    return [y0 << _SHIFT | x0, y1 << _SHIFT | x1]


def uniform(stream: Stream, shape: Sequence[int], dtype: Any = np.float32) -> Any:
    """Numbers in [0, 1), multiples of the type's 2**-mantissa_bits."""
    dtype = np.dtype(dtype)
    if dtype == np.float64:
        return _fill(stream, shape, 2, lambda w: [_float64_of(w[0], w[1]), _float64_of(w[2], w[3])])
    if dtype == np.float32:
        return _fill(stream, shape, 4, lambda w: [_float32_of(word) for word in w])
    if dtype in (np.float16, BFLOAT16):
        return _fill(stream, shape, 4, _small_float_of(dtype, 10 if dtype == np.float16 else 7))
    raise Unsupported(f"random numbers of type {dtype.name}")


def _bits(stream: Stream, shape: Sequence[int], width: int) -> Any:
    """Random integers of `width` bytes, unsigned."""
    return _fill(stream, shape, 4, list) if width == 4 else _fill(stream, shape, 2, _longs_of)


def full_int(stream: Stream, shape: Sequence[int], dtype: Any) -> Any:
    """Integers over the whole range of a 32-bit or 64-bit type."""
    dtype = np.dtype(dtype)
    return lax.bitcast_convert_type(_bits(stream, shape, dtype.itemsize), dtype)


def uniform_int(stream: Stream, shape: Sequence[int], minval: Any, maxval: Any, dtype: Any) -> Any:
    """Integers in [minval, maxval): random bits modulo the size of the range, as TensorFlow takes them."""
    dtype = np.dtype(dtype)
    unsigned = _U32 if dtype.itemsize == 4 else _U64
    low, high = (lax.bitcast_convert_type(jnp.asarray(v, dtype), unsigned) for v in (minval, maxval))
    words = _bits(stream, shape, dtype.itemsize)
    return lax.bitcast_convert_type(lax.rem(words, jnp.broadcast_to(high - low, words.shape)) + low, dtype)


# -- normal numbers ---------------------------------------------------------------------------------------------------


def _at(table: np.ndarray, index: Any) -> Any:
    return jnp.asarray(table).at[index].get(mode="promise_in_bounds")


def _logf(x: Any) -> Any:
    """`libm32.logf`: the C library's logarithm of positive, normal float32 numbers."""
    bits = lax.bitcast_convert_type(x, np.int32)
    shifted = bits - libm32._LOG_OFFSET
    interval = (shifted >> 19) & 15
    exponent = (shifted >> 23).astype(np.float64)
    inner = lax.bitcast_convert_type(bits - (shifted & np.int32(-0x800000)), np.float32).astype(np.float64)
    r = inner * _at(libm32._INV_C, interval) - 1.0
    square = r * r
    tail = (r * libm32._L3 + libm32._L2 + libm32._L4 * square) * square
    return (tail + (exponent * libm32._LN2 + _at(libm32._LOG_C, interval) + r)).astype(np.float32)


def _sincosf(x: Any) -> tuple[Any, Any]:
    """`libm32.sincosf`: the C library's sine and cosine of float32 numbers in [0, 2 pi]."""
    wide = x.astype(np.float64)
    quadrant = jnp.floor(wide * libm32._TWO_OVER_PI + 0.5)
    r = wide - quadrant * libm32._HALF_PI
    square = r * r
    cube, fourth = square * r, square * square
    sine = cube * libm32._S1 + r + (square * libm32._S3 + libm32._S2) * (cube * square)
    cosine = square * libm32._C1 + 1.0 + fourth * libm32._C2 + (square * libm32._C4 + libm32._C3) * (square * fourth)
    sine, cosine = sine.astype(np.float32), cosine.astype(np.float32)
    quarter = quadrant.astype(np.int32)
    odd = (quarter & 1) == 1
    sine, cosine = jnp.where(odd, cosine, sine), jnp.where(odd, sine, cosine)
    return jnp.where((quarter & 2) == 2, -sine, sine), jnp.where(((quarter + 1) & 2) == 2, -cosine, cosine)


def _box_muller32(x: Any, y: Any) -> tuple[Any, Any]:
    """Pairs of float32 normals out of pairs of words."""
    u = jnp.maximum(_float32_of(x), np.float32(1e-7))
    radius = jnp.sqrt(_logf(u) * np.float32(-2))
    sine, cosine = _sincosf((_float32_of(y).astype(np.float64) * (2 * np.pi)).astype(np.float32))
    return sine * radius, cosine * radius


def _normals32(words: Words) -> list[Any]:
    return [*_box_muller32(words[0], words[1]), *_box_muller32(words[2], words[3])]


def _normals64(words: Words) -> list[Any]:
    u, angle = _float64_of(words[0], words[1]), _float64_of(words[2], words[3])
    radius = jnp.sqrt(jnp.log(jnp.maximum(u, 1e-7)) * -2.0)
    angle = angle * (2 * np.pi)
    return [jnp.sin(angle) * radius, jnp.cos(angle) * radius]


def _normals_for(dtype: np.dtype) -> tuple[int, Callable[[Words], list[Any]]]:
    """How many numbers a block gives, and how."""
    if dtype == np.float64:
        return 2, _normals64
    if dtype in (np.float32, np.float16, BFLOAT16):
        return 4, _normals32
    raise Unsupported(f"random numbers of type {dtype.name}")


def normal(stream: Stream, shape: Sequence[int], dtype: Any = np.float32) -> Any:
    """Standard normal numbers by the Box-Muller transform."""
    dtype = np.dtype(dtype)
    return _fill(stream, shape, *_normals_for(dtype)).astype(dtype)


def truncated_normal(stream: Stream, shape: Sequence[int], dtype: Any = np.float32) -> Any:
    """Standard normal numbers, drawn again until they lie within two standard deviations.

    Each group of 4 (float64: 2) outputs owns a stretch of the stream and draws from it until it is full.
    """
    dtype = np.dtype(dtype)
    group, make = _normals_for(dtype)
    size = size_of(shape)
    if size == 0:
        return jnp.zeros(tuple(shape), dtype)
    groups = -(-size // group)
    first = jnp.arange(groups, dtype=_U64) * _U64(group * RESERVED_PER_OUTPUT // 4)
    columns = np.arange(group, dtype=np.int32)

    def draw(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        drawn, have, values = state
        for fresh in make(stream.blocks(first + drawn)):
            keep = jnp.abs(fresh) < 2
            values = jnp.where(keep[:, None] & (have[:, None] == columns), fresh[:, None], values)
            have = have + keep.astype(np.int32)  # beyond the last column it fits nowhere
        return drawn + _U64(1), have, values

    empty = jnp.zeros((groups, group), np.float64 if dtype == np.float64 else np.float32)
    start = (jnp.zeros((), _U64), jnp.zeros(groups, np.int32), empty)
    values = lax.while_loop(lambda state: jnp.any(state[1] < group), draw, start)[2]
    return values.reshape(-1)[:size].reshape(tuple(shape)).astype(dtype)


# -- by key and counter -----------------------------------------------------------------------------------------------


def philox_uniform(key: Any, counter: Any, shape: Sequence[int], dtype: Any = np.float32) -> Any:
    return uniform(Stream.from_key_counter(key, counter), shape, dtype)


def philox_normal(key: Any, counter: Any, shape: Sequence[int], dtype: Any = np.float32) -> Any:
    return normal(Stream.from_key_counter(key, counter), shape, dtype)


def philox_truncated_normal(key: Any, counter: Any, shape: Sequence[int], dtype: Any = np.float32) -> Any:
    return truncated_normal(Stream.from_key_counter(key, counter), shape, dtype)
