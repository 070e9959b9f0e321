"""Philox and the Box-Muller transform as loops: eight blocks of four words at a time.

The steps and the precision of each are those of `penstock.ops.philox` and `kernels.libm32`, so that the numbers are the same bit for bit. (Float64
normals may differ in the last place, as NumPy's logarithm and sine do from the C library's.)

    fill("uniform32", key, counter, stride, out)        # out: (n, 4) float32, row i from the block counter + i * stride
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.kernels import libm32
from penstock.ops.native.maths import absolute, cos, log, sin
from penstock.ops.native.vectors import Trace, Vec, repeat, select

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW32, _LOW64 = (1 << 32) - 1, (1 << 64) - 1

LANES = 8
_WORDS = 22
"""What a loop is told: ten pairs of round keys, the counter's two upper words, then, from byte `_COUNTERS` on, the lower halves of eight counters and
what the next eight are further on. The loop moves the counters on itself."""
_COUNTERS, _STEP = 192, 256
_PARAMETERS = 33
_NUMBERS = np.arange(LANES, dtype=np.uint64)


def _blocks(trace: Trace, counters: Vec) -> tuple[Vec, Vec, Vec, Vec]:
    """The words of each lane's block, in the lower halves; the upper ones hold anything."""

    def parameter(i: int) -> Vec:
        return trace.memory(0, 8 * i, "i64", broadcast=True)

    c0, c1, c2, c3 = counters, counters >> 32, parameter(20), parameter(21)
    m0, m1 = trace.constant(_M0, "i64"), trace.constant(_M1, "i64")
    for i in range(10):
        p0, p1 = (trace.add("mul_low_halves", [word, m], "i64") for word, m in ((c0, m0), (c2, m1)))
        c0, c1, c2, c3 = _xor3(p1 >> 32, c1, parameter(2 * i)), p1, _xor3(p0 >> 32, c3, parameter(2 * i + 1)), p0
    return c0, c1, c2, c3


def _xor3(a: Vec, b: Vec, c: Vec) -> Vec:
    return a.op("ternary", b, c, data=0x96)


def _pair(low: Vec, high: Vec) -> Vec:
    """Lower halves of two vectors as the two halves of one."""
    return (low & _LOW32) | (high << 32)


def _store_rows(trace: Trace, first: Vec, second: Vec, index: int) -> None:
    """Rows of two: first[0], second[0], first[1], ..."""
    for half in range(2):
        order = np.array([[4 * half + i, 8 + 4 * half + i] for i in range(4)]).ravel()
        chosen = trace.add("lookup.i64", [trace.table(order, "i64"), first.bits(), second.bits()], "i64")
        trace.store(chosen, index, 64 * half)


# -- from words to numbers --------------------------------------------------------------------------------------------------------


def _words(trace: Trace, words: Sequence[Vec]) -> tuple[Vec, Vec]:
    return _pair(*words[:2]), _pair(*words[2:])


def _uniform32(trace: Trace, words: Sequence[Vec]) -> tuple[Vec, Vec]:
    def number(pair: Vec) -> Vec:
        bits = pair & 0x007FFFFF007FFFFF | 0x3F8000003F800000
        return bits.as_type("f32") - 1

    first, second = (number(pair) for pair in _words(trace, words))
    return first.as_type("i64"), second.as_type("i64")


def _uniform_of_few_bits(mantissa: int) -> Callable[..., tuple[Vec, Vec]]:
    """Single-precision numbers of which the lowest `mantissa` bits of a word decide."""
    mask = (1 << mantissa) - 1

    def make(trace: Trace, words: Sequence[Vec]) -> tuple[Vec, Vec]:
        first, second = (((pair & (mask << 32 | mask)) << 23 - mantissa | 0x3F8000003F800000).as_type("f32") - 1 for pair in _words(trace, words))
        return first.as_type("i64"), second.as_type("i64")

    return make


def _uniform64(trace: Trace, words: Sequence[Vec]) -> tuple[Vec, Vec]:
    return _double(*words[:2]), _double(*words[2:])


def _double(x: Vec, y: Vec) -> Vec:
    bits = (x & 0xFFFFF) << 32 | (y & _LOW32) | 1023 << 52
    return bits.as_type("f64") - 1


def _normal32(trace: Trace, words: Sequence[Vec]) -> tuple[Vec, Vec]:
    return _packed(trace, (*_box_muller32(trace, *words[:2]), *_box_muller32(trace, *words[2:])))


def _packed(trace: Trace, numbers: Sequence[Vec]) -> tuple[Vec, Vec]:
    """Four doubles a lane, rounded to single precision, as pairs."""
    bits = [trace.add("single_bits", [number], "i64") for number in numbers]
    return bits[0] | bits[1] << 32, bits[2] | bits[3] << 32


def _normal64(trace: Trace, words: Sequence[Vec]) -> tuple[Vec, Vec]:
    u, turns = _uniform64(trace, words)
    return _sine64(u, turns), _cosine64(u, turns)


def _sine64(u: Vec, turns: Vec) -> Vec:
    return sin(turns * (2 * math.pi)) * _radius64(u)


def _cosine64(u: Vec, turns: Vec) -> Vec:
    return cos(turns * (2 * math.pi)) * _radius64(u)


def _radius64(u: Vec) -> Vec:
    return (log(u.op("max", 1e-7)) * -2.0).op("sqrt")


_sines, _cosines = native.Loop(_sine64), native.Loop(_cosine64)


def box_muller64(u: np.ndarray, turns: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Pairs of float64 normals of pairs of uniform numbers, the same bits as those of `fill`; None where there is no machine code."""
    sine, cosine = _sines.run(u, turns), _cosines.run(u, turns)
    return None if sine is None or cosine is None else (sine, cosine)


def _box_muller32(trace: Trace, x: Vec, y: Vec) -> tuple[Vec, Vec]:
    """Pairs of normals in double precision, to be rounded to single; everything on the way is rounded where `philox` does."""

    def uniform(word: Vec) -> Vec:
        return trace.add("i64_to_f64", [word & 0x7FFFFF], "f64") * 2.0**-23

    u = uniform(x).op("max", float(np.float32(1e-7)))
    radius = _narrow((_narrow(_logf(trace, u)) * -2.0).op("sqrt"))
    sine, cosine = _sincosf(trace, _narrow(uniform(y) * (2 * math.pi)))
    return sine * radius, cosine * radius


def _truncated32(trace: Trace, counters: Vec) -> tuple[Vec, Vec]:
    def normals(words: Sequence[Vec]) -> list[Vec]:
        return [_narrow(z) for z in (*_box_muller32(trace, *words[:2]), *_box_muller32(trace, *words[2:]))]

    return _packed(trace, _within_two(trace, counters, normals, 4))


def _truncated64(trace: Trace, counters: Vec) -> tuple[Vec, Vec]:
    first, second = _within_two(trace, counters, lambda words: _normal64(trace, words), 2)
    return first, second


def _within_two(trace: Trace, counters: Vec, normals: Callable[[Sequence[Vec]], Sequence[Vec]], count: int) -> tuple[Vec, ...]:
    """The first `count` normals of each lane's stream, from its counter on, that are within two standard deviations."""
    zero = trace.constant(0, "f64")

    def step(at: Vec, have: Vec, *kept: Vec) -> tuple[Vec, ...]:
        found = list(kept)
        for z in normals(_blocks(trace, at)):
            good = absolute(z) < 2
            for i in range(count):
                found[i] = select(good & (have == i), z, found[i])
            have = select(good, have + 1, have)
        return at + 1, have, *found

    return repeat(lambda at, have, *kept: have < count, step, counters, zero, *[zero] * count)[2:]


def _narrow(x: Vec) -> Vec:
    return x.trace.add("narrow", [x], "f64")


def _logf(trace: Trace, x: Vec) -> Vec:
    """`libm32.logf` before its last rounding. The numbers are singles; as doubles they have the same leading bits."""
    offset = int(np.float64(np.int32(libm32._LOG_OFFSET).view(np.float32)).view(np.int64))
    bits = x.bits()
    shifted = bits - offset
    interval = shifted >> 48
    exponent = trace.add("i64_to_f64", [shifted.shift_signed(52)], "f64")
    z = (bits - (shifted & (_LOW64 ^ (1 << 52) - 1))).as_type("f64")

    def look_up(table: np.ndarray) -> Vec:
        halves = [trace.table(half, "f64") for half in (table[:8], table[8:])]
        return trace.add("lookup.f64", [interval, *halves], "f64")

    r = z * look_up(libm32._INV_C) - 1.0
    square = r * r
    return ((r * libm32._L3 + libm32._L2) + square * libm32._L4) * square + ((exponent * libm32._LN2 + look_up(libm32._LOG_C)) + r)


def _sincosf(trace: Trace, x: Vec) -> tuple[Vec, Vec]:
    """`libm32.sincosf`."""
    quadrant = (x * libm32._TWO_OVER_PI + 0.5).op("round", data=9)
    r = x - quadrant * libm32._HALF_PI
    square = r * r
    cube = square * r
    sine = (cube * libm32._S1 + r) + (square * libm32._S3 + libm32._S2) * (cube * square)
    fourth = square * square
    cosine = ((square * libm32._C1 + 1.0) + fourth * libm32._C2) + (square * libm32._C4 + libm32._C3) * (square * fourth)
    sine, cosine = _narrow(sine), _narrow(cosine)
    quarter = trace.add("f64_to_i64", [quadrant], "i64")
    even = (quarter & 1) == 0

    def signed(chosen: Vec, turn: Vec) -> Vec:
        return (chosen.bits() ^ (turn & 2) << 62).as_type("f64")

    return signed(select(even, sine, cosine), quarter), signed(select(even, cosine, sine), quarter + 1)


_KINDS: dict[str, tuple[Callable[..., tuple[Vec, Vec]], int]] = {
    "words": (_words, 90), "truncated32": (_truncated32, 700), "truncated64": (_truncated64, 700), "uniform32": (_uniform32, 100), "uniform16": (_uniform_of_few_bits(10), 100), "uniform_b16": (_uniform_of_few_bits(7), 100),
    "uniform64": (_uniform64, 100), "normal32": (_normal32, 220), "normal64": (_normal64, 220),
}  # fmt: skip
"""How words (or, for truncated ones, counters) become the rows of the result, and about how many instructions that takes in all."""


@cache
def _loop(kind: str) -> Any:
    """f(n, parameters, out); n a multiple of eight."""
    from penstock.ops.native import compiler  # not needed before the first number

    trace = Trace(fuse=kind.endswith("64"))
    counters = trace.memory(0, _COUNTERS, "i64")
    trace.store(counters + trace.memory(0, _STEP, "i64", broadcast=True), 0, _COUNTERS)
    make = _KINDS[kind][0]
    first, second = make(trace, counters if kind.startswith("truncated") else _blocks(trace, counters))
    _store_rows(trace, first, second, 1)
    steps = [0, 128]
    return compiler.function_at(compiler.into_memory(compiler.Code(trace, LANES, steps).write()), len(steps))


def _parameters(key: int, high: int) -> np.ndarray:
    """What a loop is told, but for the counters."""
    return _general(key, high).copy()


@lru_cache(64)
def _general(key: int, high: int) -> np.ndarray:
    words = [k for i in range(10) for k in ((key & _LOW32) + _W0 * i & _LOW32, (key >> 32) + _W1 * i & _LOW32)]
    parameters = np.zeros(_PARAMETERS, np.uint64)
    parameters[:_WORDS] = [*words, high & _LOW32, high >> 32]
    return parameters


def can_fill(counter: int, stride: int, rows: int) -> bool:
    """Whether the counters of all rows stay within their lower halves, and there is machine code at all."""
    return (counter & _LOW64) + stride * (rows + LANES) <= _LOW64 and native.available()


def fill(kind: str, key: int, counter: int, stride: int, out: np.ndarray) -> None:
    """Fills the rows of `out` (contiguous, 16 bytes a row), of which `can_fill` approves."""
    function = _loop(kind)
    rows, low = len(out), counter & _LOW64
    general = _parameters(key, counter >> 64)
    general[_STEP // 8] = LANES * stride
    pieces = max(1, min(8, rows * _KINDS[kind][1] // LANES // native.PIECE))
    size = -(-rows // (pieces * LANES)) * LANES

    def work(i: int) -> None:
        start, stop = i * size, min(rows, (i + 1) * size)
        parameters = general.copy() if pieces > 1 else general
        parameters[_COUNTERS // 8:_STEP // 8] = _NUMBERS * np.uint64(stride) + np.uint64(low + start * stride)
        whole = (stop - start) // LANES * LANES
        if whole:
            function(whole, native.address_of(parameters), native.address_of(out) + 16 * start)
        if whole < stop - start:
            last = np.empty((LANES, *out.shape[1:]), out.dtype)
            function(LANES, native.address_of(parameters), native.address_of(last))
            out[start + whole:stop] = last[:stop - start - whole]

    native.threads.parallel_for(-(-rows // size), work)
