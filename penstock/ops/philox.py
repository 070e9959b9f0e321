"""TensorFlow's random numbers: the Philox4x32-10 generator and the distributions drawn from it.

A generator is a 64-bit key and a 128-bit counter. Every counter value gives one *block* of four 32-bit words; numbers
depend on their position only, so they can be made in any order and in tiles.

- `PhiloxState` is what a stateful op keeps between steps: it hands out stretches of the counter, as many as
  TensorFlow's kernels reserve, so that the second and third run of an op continue as they do in TensorFlow.
- `Philox` is one such stretch: an immutable (key, counter) pair.
- `uniform`, `normal`, ... fill arrays from a `Philox`.

Integers, uniform numbers, float32 (also half and bfloat16) normals are TensorFlow's bit for bit. Float64 normals can
differ in the last place or two, because float64 log, sin and cos of NumPy and of `native` may round differently from the C library's.

Where the CPU allows, blocks are made and turned into numbers by loops in machine code (`native.streams`); the NumPy code here is the same, step by step.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

from penstock.forks import renewed
from penstock.ops.kernels.libm32 import logf, sincosf
from penstock.ops.kernels.numeric import narrow
from penstock.ops.native import streams

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW32 = 0xFFFFFFFF
_LOW64 = 0xFFFFFFFFFFFFFFFF
_LOW128 = (1 << 128) - 1

_MULTIPLIERS = np.array([[_M0], [_M1]], np.uint64)
_SHIFT = np.uint64(32)
_MASK = np.uint64(_LOW32)
_IS_LITTLE = sys.byteorder == "little"

# Blocks made at once: the working arrays of a tile stay in the second-level cache.
TILE = 16384

# Threads meet at the interpreter's lock between any two steps of a tile: theirs are wider, and there must be work for two.
WIDE_TILE = 32768
PARALLEL_FROM = 49152

# Up to here, numbers that do not fill their last block are drawn elsewhere and copied: that costs less than a second call.
FEW_BLOCKS = 1024

# TensorFlow's kernels reserve this many blocks for each output element.
RESERVED_PER_OUTPUT = 256

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_FLOAT16, _FLOAT32, _FLOAT64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)

# Set by the runtime to spread tiles over its threads: run(number_of_tiles, call_with_tile_index).
parallel_for: Callable[[int, Callable[[int], None]], None] | None = None


class Philox:
    """A place in a Philox stream: `key` (64 bits) and `counter` (128 bits), never changed."""

    __slots__ = ("counter", "key")

    def __init__(self, key: int, counter: int = 0) -> None:
        self.key = key & _LOW64
        self.counter = counter & _LOW128

    def __repr__(self) -> str:
        return f"Philox(key={self.key:#x}, counter={self.counter:#x})"

    @classmethod
    def from_seeds(cls, seed: int, seed2: int) -> Philox:
        """The generator of an op with attributes `seed` and `seed2`; two zeros ask for an unpredictable one."""
        if seed == 0 and seed2 == 0:
            seed, seed2 = (int.from_bytes(os.urandom(8), "little") for _ in range(2))
        return cls(seed, (seed2 & _LOW64) << 64)

    @classmethod
    def from_stateless_seed(cls, seed: Sequence[int] | np.ndarray) -> Philox:
        """The generator of a Stateless* op with the given pair of seeds: the pair is scrambled by Philox itself."""
        low, high = (int(s) & _LOW64 for s in seed)
        x0, x1, x2, x3 = _one_block(0x02461E293EC8F720, low | high << 64)
        return cls(x0 | x1 << 32, (x2 | x3 << 32) << 64)

    @classmethod
    def from_key_counter(cls, key: Sequence[int] | np.ndarray, counter: Sequence[int] | np.ndarray) -> Philox:
        """The generator of a Stateless*V2 op: key as uint64[1], counter as uint64[2], low word first."""
        return cls(int(key[0]), int(counter[0]) | int(counter[1]) << 64)

    def skip(self, blocks: int) -> Philox:
        """The same stream, `blocks` blocks further on."""
        return Philox(self.key, self.counter + blocks)

    def blocks(self, first: int, n: int, stride: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Blocks first, first + stride, ...: two uint64 arrays (2, n), words 0 and 2, and words 1 and 3."""
        start = (self.counter + first) & _LOW128
        low, high = start & _LOW64, start >> 64
        before_carry = (_LOW64 - low) // stride + 1
        if before_carry < n:
            parts = self.blocks(first, before_carry, stride), self.blocks(first + before_carry * stride,
                                                                          n - before_carry, stride)
            return tuple(np.concatenate(pair, axis=1) for pair in zip(*parts, strict=True))  # type: ignore[return-value]
        if n <= 6:  # plain integers beat fifty calls on tiny arrays
            words = [_one_block(self.key, start + i * stride) for i in range(n)]
            table = np.array(words, np.uint64).reshape(n, 2, 2)
            return table[:, :, 0].T, table[:, :, 1].T
        c0 = np.arange(n, dtype=np.uint64)
        if stride != 1:
            c0 *= np.uint64(stride)
        if (low + stride * (n - 1)) >> 32 == low >> 32:
            c0 += np.uint64(low & _LOW32)
            return _rounds_counting(c0, low >> 32, high & _LOW32, high >> 32, self.key)
        c0 += np.uint64(low)
        c1 = c0 >> _SHIFT
        c0 &= _MASK
        return _rounds(c0, c1, high & _LOW32, high >> 32, self.key)

    def at(self, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The blocks at the given offsets (uint64), in the layout of `blocks`."""
        low, high = self.counter & _LOW64, self.counter >> 64
        c0 = offsets + np.uint64(low)
        c2: int | np.ndarray = high & _LOW32
        c3: int | np.ndarray = high >> 32
        carry = c0 < np.uint64(low)
        if carry.any():
            above = np.uint64(high) + carry.astype(np.uint64)
            c2, c3 = above & _MASK, above >> _SHIFT
        c1 = c0 >> _SHIFT
        c0 &= _MASK
        return _rounds(c0, c1, c2, c3, self.key)

    def words(self, n: int) -> np.ndarray:
        """The first n 32-bit words of the stream."""
        out = np.empty(n, np.uint32)
        _fill(self, out, 4, _store_words)
        return out


class PhiloxState:
    """The generator that a stateful random op keeps from step to step (thread-safe)."""

    __slots__ = ("_lock", "_next")

    def __init__(self, seed: int = 0, seed2: int = 0) -> None:
        self._next = Philox.from_seeds(seed, seed2)
        self._lock = renewed(threading.Lock())

    def reserve(self, blocks: int) -> Philox:
        """A stretch of `blocks` blocks; the next call starts behind it."""
        with self._lock:
            taken = self._next
            self._next = taken.skip(blocks)
        return taken

    def give_back(self, taken: Philox, blocks: int) -> None:
        """Takes back a reservation that nothing was drawn from, unless another one has followed it."""
        with self._lock:
            if self._next.counter == taken.skip(blocks).counter:
                self._next = taken

    def reserve_words(self, words: int) -> Philox:
        """A stretch that holds at least `words` 32-bit words."""
        return self.reserve((words + 3) // 4)

    def reserve_outputs(self, outputs: int) -> Philox:
        """What TensorFlow sets aside for an op with `outputs` output elements."""
        return self.reserve(outputs * RESERVED_PER_OUTPUT)


# ---------------------------------------------------------------------------------------------------------------------
# Ten rounds


def _one_block(key: int, counter: int) -> tuple[int, int, int, int]:
    k0, k1 = key & _LOW32, key >> 32
    c0, c1, c2, c3 = (counter >> shift & _LOW32 for shift in (0, 32, 64, 96))
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _LOW32, (p0 >> 32) ^ c3 ^ k1, p0 & _LOW32
        k0, k1 = k0 + _W0 & _LOW32, k1 + _W1 & _LOW32
    return c0, c1, c2, c3


def _later_rounds(x: np.ndarray, y: np.ndarray, key: int, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Rounds first..9 on x = (word 0, word 2) and y = (word 1, word 3), in place."""
    product = np.empty_like(x)
    for i in range(first, 10):
        keys = np.array([[(key & _LOW32) + _W0 * i & _LOW32], [(key >> 32) + _W1 * i & _LOW32]], np.uint64)
        np.multiply(x, _MULTIPLIERS, out=product)
        swapped = product[::-1]
        np.right_shift(swapped, _SHIFT, out=x)
        x ^= y
        x ^= keys
        np.bitwise_and(swapped, _MASK, out=y)
    return x, y


def _rounds(c0: np.ndarray, c1: np.ndarray | int, c2: np.ndarray | int, c3: np.ndarray | int,
            key: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.empty((2, c0.size), np.uint64), np.empty((2, c0.size), np.uint64)
    x[0], x[1], y[0], y[1] = c0, c2, c1, c3
    return _later_rounds(x, y, key, 0)


def _rounds_counting(c0: np.ndarray, c1: int, c2: int, c3: int, key: int) -> tuple[np.ndarray, np.ndarray]:
    """Like `_rounds`, for counters that differ in the lowest word only: half of the first two rounds is scalar."""
    k0, k1 = key & _LOW32, key >> 32
    x, y = np.empty((2, c0.size), np.uint64), np.empty((2, c0.size), np.uint64)
    p1 = _M1 * c2
    word0, word1 = (p1 >> 32) ^ c1 ^ k0, p1 & _LOW32
    p0 = np.multiply(c0, np.uint64(_M0), out=c0)
    word2 = np.right_shift(p0, _SHIFT, out=y[1])
    word2 ^= np.uint64(c3 ^ k1)
    word3 = np.bitwise_and(p0, _MASK, out=x[1])

    k0, k1 = k0 + _W0 & _LOW32, k1 + _W1 & _LOW32
    q0 = _M0 * word0
    q1 = np.multiply(word2, np.uint64(_M1), out=c0)
    word3 ^= np.uint64((q0 >> 32) ^ k1)  # stands in x[1], the place of the new word 2
    np.right_shift(q1, _SHIFT, out=x[0])
    x[0] ^= np.uint64(word1 ^ k0)
    np.bitwise_and(q1, _MASK, out=y[0])
    y[1] = q0 & _LOW32
    return _later_rounds(x, y, key, 2)


# ---------------------------------------------------------------------------------------------------------------------
# Filling arrays

_Store = Callable[[np.ndarray, np.ndarray, np.ndarray], None]


def _tiles(blocks: int, fill: Callable[[int, int], None]) -> None:
    """Call fill(first, n) for stretches that cover 0..blocks: of at most TILE blocks, or WIDE_TILE where threads share them."""
    if parallel_for is None or blocks < PARALLEL_FROM:
        for first in range(0, blocks, TILE):
            fill(first, min(TILE, blocks - first))
        return
    tiles = 2 * -(-blocks // (2 * WIDE_TILE))  # an even number, so that two threads end together
    size = -(-blocks // tiles)
    parallel_for(-(-blocks // size), lambda i: fill(i * size, min(size, blocks - i * size)))


def _fill(gen: Philox, flat: np.ndarray, per_block: int, store: _Store) -> None:
    """Fill `flat`: store(x, y, out) turns n blocks into out, an (n, per_block) piece of `flat`."""
    whole, rest = divmod(flat.size, per_block)
    if rest and whole < FEW_BLOCKS:
        rows = np.empty((whole + 1, per_block), flat.dtype)
        if _fill_rows(gen, rows, store):
            flat[...] = rows.reshape(-1)[:flat.size]
            return
    body = flat[:whole * per_block].reshape(whole, per_block)
    if not _fill_rows(gen, body, store):
        _tiles(whole, lambda first, n: store(*gen.blocks(first, n), body[first:first + n]))
    if rest:
        last = np.empty((1, per_block), flat.dtype)
        if not _fill_rows(gen.skip(whole), last, store):
            store(*gen.blocks(whole, 1), last)
        flat[-rest:] = last[0, :rest]


def _fill_rows(gen: Philox, rows: np.ndarray, store: _Store) -> bool:
    """Row i from block i, by a loop in machine code if there is one."""
    kind = _LOOPS.get(store)
    if kind is None or not len(rows) or not streams.can_fill(gen.counter, 1, len(rows)):
        return False
    if rows[0].nbytes == 16 and rows.flags.c_contiguous:
        streams.fill(kind, gen.key, gen.counter, 1, rows)
    else:  # numbers of half the width: rounded once more
        wide = np.empty(rows.shape, np.float32)
        streams.fill(kind, gen.key, gen.counter, 1, wide)
        rows[...] = narrow(wide, rows.dtype)
    return True


def _store_words(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    if _IS_LITTLE and out.flags.c_contiguous:
        _store_longs(x, y, out.view(np.uint64))  # two neighbours at a time
        return
    pairs = out.reshape(-1, 2, 2)
    np.copyto(pairs[:, :, 0].T, x, casting="unsafe")
    np.copyto(pairs[:, :, 1].T, y, casting="unsafe")


def _store_longs(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    y <<= _SHIFT  # the caller's, and of no further use to it
    np.bitwise_or(x, y, out=out.T)


def _store_float32(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    bits = out.view(np.uint32)
    _store_words(x, y, bits)
    bits &= np.uint32(0x7FFFFF)
    bits |= np.uint32(0x3F800000)
    out -= np.float32(1)


def _store_float64(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    np.copyto(out.T, float64_of(x, y))


def _store_small_float(mantissa_bits: int) -> _Store:
    mask, scale = np.uint32((1 << mantissa_bits) - 1), np.float32(0.5 ** mantissa_bits)

    def store(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
        bits = np.empty(out.shape, np.uint32)
        _store_words(x, y, bits)
        bits &= mask
        out[...] = bits.astype(np.float32) * scale  # exact: the product has as many bits as the type

    return store


_store_half, _store_bfloat = _store_small_float(10), _store_small_float(7)


def float32_of(words: np.ndarray) -> np.ndarray:
    bits = words.astype(np.uint32)
    bits &= np.uint32(0x7FFFFF)
    bits |= np.uint32(0x3F800000)
    value = bits.view(np.float32)
    value -= np.float32(1)
    return value


def float64_of(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    bits = x & np.uint64(0xFFFFF)
    bits <<= _SHIFT
    bits |= y
    bits |= np.uint64(1023 << 52)
    value = bits.view(np.float64)
    value -= 1.0
    return value


def _polar32(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Radius, sine and cosine of pairs of float32 normals out of pairs of 32-bit words."""
    u = float32_of(x)
    np.maximum(u, np.float32(1e-7), out=u)
    radius = logf(u)
    radius *= np.float32(-2)
    np.sqrt(radius, out=radius)
    angle = float32_of(y).astype(np.float64)
    angle *= 2 * np.pi
    return radius, *sincosf(angle.astype(np.float32))


def box_muller32(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of float32 normals out of pairs of 32-bit words."""
    radius, sine, cosine = _polar32(x, y)
    sine *= radius
    cosine *= radius
    return sine, cosine


def box_muller64(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A pair of float64 normals out of each block of four words."""
    u, angle = float64_of(x, y)
    found = streams.box_muller64(u, angle)
    if found is not None:
        return found
    np.maximum(u, 1e-7, out=u)
    radius = np.log(u, out=u)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    angle *= 2 * np.pi
    sine, cosine = np.sin(angle), np.cos(angle)
    sine *= radius
    cosine *= radius
    return sine, cosine


def _store_normal32(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    radius, sine, cosine = _polar32(x, y)
    pairs = out.reshape(-1, 2, 2)
    if out.dtype == _FLOAT32:
        np.multiply(sine, radius, out=pairs[:, :, 0].T)
        np.multiply(cosine, radius, out=pairs[:, :, 1].T)
    else:  # rounded once more
        pairs[:, :, 0].T[...] = sine * radius
        pairs[:, :, 1].T[...] = cosine * radius


def _store_normal64(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    out[:, 0], out[:, 1] = box_muller64(x, y)


_LOOPS: dict[_Store, str] = {
    _store_words: "words", _store_longs: "words", _store_float32: "uniform32", _store_float64: "uniform64",
    _store_half: "uniform16", _store_bfloat: "uniform_b16", _store_normal32: "normal32", _store_normal64: "normal64",
}  # fmt: skip

_UNIFORM: dict[np.dtype, tuple[int, _Store]] = {
    _FLOAT16: (4, _store_half),
    BFLOAT16: (4, _store_bfloat),
    _FLOAT32: (4, _store_float32),
    _FLOAT64: (2, _store_float64),
}
_NORMAL: dict[np.dtype, tuple[int, _Store]] = {
    _FLOAT16: (4, _store_normal32),
    BFLOAT16: (4, _store_normal32),
    _FLOAT32: (4, _store_normal32),
    _FLOAT64: (2, _store_normal64),
}


def uniform(gen: Philox, shape: Sequence[int], dtype: np.dtype = _FLOAT32) -> np.ndarray:
    """Numbers in [0, 1), multiples of the type's 2**-mantissa_bits."""
    out = np.empty(shape, dtype)
    _fill(gen, out.reshape(-1), *_UNIFORM[out.dtype])
    return out


def full_int(gen: Philox, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Integers over the whole range of a 32-bit or 64-bit type."""
    out = np.empty(shape, dtype)
    if out.itemsize == 4:
        _fill(gen, out.view(np.uint32).reshape(-1), 4, _store_words)
    else:
        _fill(gen, out.view(np.uint64).reshape(-1), 2, _store_longs)
    return out


def uniform_int(gen: Philox, shape: Sequence[int], minval: int, maxval: int, dtype: np.dtype) -> np.ndarray:
    """Integers in [minval, maxval): random bits modulo the size of the range, as TensorFlow takes them."""
    out = np.empty(shape, dtype)
    width = out.itemsize
    unsigned = np.uint32 if width == 4 else np.uint64
    size, low = unsigned(int(maxval) - int(minval)), unsigned(int(minval) % (1 << 8 * width))
    flat = out.view(unsigned).reshape(-1)
    _fill(gen, flat, 16 // width, _store_words if width == 4 else _store_longs)

    def bound(first: int, n: int) -> None:
        piece = flat[first:first + n]
        multiple = piece // size  # NumPy divides by one number much faster than it takes remainders
        multiple *= size
        piece -= multiple
        piece += low

    _tiles(flat.size, bound)
    return out


def normal(gen: Philox, shape: Sequence[int], dtype: np.dtype = _FLOAT32) -> np.ndarray:
    """Standard normal numbers by the Box-Muller transform."""
    out = np.empty(shape, dtype)
    _fill(gen, out.reshape(-1), *_NORMAL[out.dtype])
    return out


def truncated_normal(gen: Philox, shape: Sequence[int], dtype: np.dtype = _FLOAT32) -> np.ndarray:
    """Standard normal numbers, drawn again until they lie within two standard deviations."""
    out = np.empty(shape, dtype)
    # Each group of 4 (float64: 2) outputs owns a stretch of the stream and draws from it until it is full.
    if out.dtype == _FLOAT64:
        group, draw, wide = 2, _store_normal64, _FLOAT64
    else:
        group, draw, wide = 4, _store_normal32, _FLOAT32
    stretch = group * RESERVED_PER_OUTPUT // 4
    groups = -(-out.size // group)
    values = np.empty((groups, group), wide)
    whole = groups * group == out.size
    found: list[np.ndarray] = []

    def fill(first: int, n: int) -> None:
        rows = values[first:first + n]
        draw(*gen.blocks(first * stretch, n, stretch), rows)
        outside = np.abs(rows) >= 2
        unfinished = np.flatnonzero(outside.view(f"u{group}"))  # a row of flags read as one integer
        unfinished += first
        found.append(unfinished)

    if groups and streams.can_fill(gen.counter, stretch, groups):
        streams.fill("truncated64" if wide == _FLOAT64 else "truncated32", gen.key, gen.counter, stretch, values)
    else:
        _tiles(groups, fill)
        # Few rows are left after each round, and a round of few takes almost as long as one of many: those of all tiles together.
        unfinished = np.concatenate(found) if found else np.empty(0, np.intp)
        _tiles(unfinished.size, lambda first, n: _refill(gen, values, unfinished[first:first + n], stretch, draw))
    if whole and out.dtype == wide:
        return values.reshape(out.shape)
    out[...] = narrow(values, out.dtype).reshape(-1)[:out.size].reshape(out.shape)
    return out


def _refill(gen: Philox, rows: np.ndarray, unfinished: np.ndarray, stretch: int, draw: _Store) -> None:
    """Drop what lies outside from the unfinished rows, close the gaps and draw on until the rows are full."""
    group = rows.shape[1]
    flat = rows.reshape(-1)
    have = np.zeros(unfinished.size, np.intp)
    fresh = rows[unfinished]
    drawn = 0
    while True:
        place = np.empty((group, have.size), np.intp)
        fresh = np.ascontiguousarray(fresh.T)
        keep = np.abs(fresh) < 2
        for i in range(group):
            place[i] = have
            have += keep[i]
        keep &= place < group
        place += unfinished * group
        flat[place[keep]] = fresh[keep]
        left = np.flatnonzero(have < group)
        if not left.size:
            return
        unfinished, have = unfinished[left], have[left]
        drawn += 1
        fresh = np.empty((left.size, group), rows.dtype)
        draw(*gen.at(unfinished.astype(np.uint64) * np.uint64(stretch) + np.uint64(drawn)), fresh)
