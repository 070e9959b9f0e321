"""Float32 logarithm, sine and cosine that round like the C library's.

TensorFlow's Box-Muller transform calls `logf` and `sincosf`. NumPy's own float32 versions round differently in about
one case out of five, so the functions here follow glibc's method instead: a short polynomial in float64, rounded once
to float32. For all 2**23 arguments that a random float32 can produce they give glibc's bits.
"""

from __future__ import annotations

import numpy as np

_hex = float.fromhex

# log(x) = k ln2 + log(c) + log1p(z/c - 1), with c near the middle of one of 16 intervals of the significand.
_INV_C = np.array(
    [
        _hex(s)
        for s in (
            "0x1.661ec79f8f3bep+0",
            "0x1.571ed4aaf883dp+0",
            "0x1.49539f0f010bp+0",
            "0x1.3c995b0b80385p+0",
            "0x1.30d190c8864a5p+0",
            "0x1.25e227b0b8eap+0",
            "0x1.1bb4a4a1a343fp+0",
            "0x1.12358f08ae5bap+0",
            "0x1.0953f419900a7p+0",
            "0x1p+0",
            "0x1.e608cfd9a47acp-1",
            "0x1.ca4b31f026aap-1",
            "0x1.b2036576afce6p-1",
            "0x1.9c2d163a1aa2dp-1",
            "0x1.886e6037841edp-1",
            "0x1.767dcf5534862p-1",
        )
    ]
)
_LOG_C = np.array(
    [
        _hex(s)
        for s in (
            "-0x1.57bf7808caadep-2",
            "-0x1.2bef0a7c06ddbp-2",
            "-0x1.01eae7f513a67p-2",
            "-0x1.b31d8a68224e9p-3",
            "-0x1.6574f0ac07758p-3",
            "-0x1.1aa2bc79c81p-3",
            "-0x1.a4e76ce8c0e5ep-4",
            "-0x1.1973c5a611cccp-4",
            "-0x1.252f438e10c1ep-5",
            "0x0p+0",
            "0x1.aa5aa5df25984p-5",
            "0x1.c5e53aa362eb4p-4",
            "0x1.526e57720db08p-3",
            "0x1.bc2860d22477p-3",
            "0x1.1058bc8a07ee1p-2",
            "0x1.4043057b6ee09p-2",
        )
    ]
)
_LN2 = _hex("0x1.62e42fefa39efp-1")
_L2, _L3, _L4 = _hex("-0x1.ffffef20a4123p-2"), _hex("0x1.5575b0be00b6ap-2"), _hex("-0x1.00ea348b88334p-2")
_LOG_OFFSET = np.int32(0x3F330000)  # the intervals start here, so that x near 1 has k = 0 and c = 1

_HALF_PI = _hex("0x1.921fb54442d18p+0")
_TWO_OVER_PI = _hex("0x1.45f306dc9c883p-1")
_C1, _C2, _C3, _C4 = (
    _hex("-0x1.ffffffd0c621cp-2"),
    _hex("0x1.55553e1068f19p-5"),
    _hex("-0x1.6c087e89a359dp-10"),
    _hex("0x1.99343027bf8c3p-16"),
)
_S1, _S2, _S3 = _hex("-0x1.555545995a603p-3"), _hex("0x1.1107605230bc4p-7"), _hex("-0x1.994eb3774cf24p-13")


def logf(x: np.ndarray) -> np.ndarray:
    """Natural logarithm of positive, normal float32 numbers."""
    bits = x.view(np.int32)
    shifted = bits - _LOG_OFFSET
    interval = (shifted >> 19).astype(np.intp)
    interval &= 15
    exponent = (shifted >> 23).astype(np.float64)
    shifted &= np.int32(-0x800000)
    np.subtract(bits, shifted, out=shifted)
    r = shifted.view(np.float32).astype(np.float64)
    r *= _INV_C.take(interval)
    r -= 1.0
    exponent *= _LN2
    exponent += _LOG_C.take(interval)
    exponent += r
    square = r * r
    y = r
    y *= _L3
    y += _L2
    y += _L4 * square
    y *= square
    y += exponent
    return y.astype(np.float32)


def sincosf(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sine and cosine of float32 numbers in [0, 2 pi]."""
    r = x.astype(np.float64)
    quadrant = r * _TWO_OVER_PI
    quadrant += 0.5
    np.floor(quadrant, out=quadrant)
    work = quadrant * _HALF_PI
    r -= work
    square = r * r
    cube = square * r
    sine = np.multiply(cube, _S1, out=work)
    sine += r
    odd = np.multiply(square, _S3, out=r)
    odd += _S2
    cube *= square
    odd *= cube
    sine += odd
    fourth = np.multiply(square, square, out=odd)
    cosine = np.multiply(square, _C1, out=cube)
    cosine += 1.0
    even = square * _C4
    even += _C3
    square *= fourth
    even *= square
    fourth *= _C2
    cosine += fourth
    cosine += even
    sine, cosine = sine.astype(np.float32), cosine.astype(np.float32)
    # Odd quadrants exchange the two; signs follow from the quadrant's second bit. All on the bits: no branches.
    s, c, quarter = sine.view(np.int32), cosine.view(np.int32), quadrant.astype(np.int32)
    swap = quarter & 1
    np.negative(swap, out=swap)
    both = s ^ c
    both &= swap
    s ^= both
    c ^= both
    np.bitwise_and(quarter, 2, out=swap)
    swap <<= 30
    s ^= swap
    quarter += 1
    quarter &= 2
    quarter <<= 30
    c ^= quarter
    return sine, cosine
