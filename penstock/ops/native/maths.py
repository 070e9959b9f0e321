"""Elementary functions of vectors, and which of NumPy's functions they answer to.

Argument reduction and short polynomials, without branches. In double precision results are within about one unit in the last place; sine and cosine as long
as the argument is below 1e9. Infinities, NaN and zero give what the C library gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.ops.native.vectors import FLOATS, Vec, rounding_of, select

_NEAREST, _FLOOR, _CEIL, _TRUNCATE = 8, 9, 10, 11
_LN2 = {
    "f64": (float.fromhex("0x1.62e42fee00000p-1"), float.fromhex("0x1.a39ef35793c76p-33")),
    "f32": (float.fromhex("0x1.62e400p-1"), float.fromhex("0x1.7f7d1cf79abcap-20")),
}
"""The logarithm of 2 in two parts; a whole number times the first is exact."""
_HALF_PI = (float.fromhex("0x1.921fb54442d18p+0"), float.fromhex("0x1.1a62633145c07p-54"), float.fromhex("-0x1.f1976b7ed8fbcp-110"))
"""pi/2 in three parts; each product with a whole number is subtracted without rounding it first."""
_FACTORIALS = [1 / math.factorial(n) for n in range(18)]


def horner(x: Vec, coefficients: list[float]) -> Vec:
    """The polynomial with these coefficients, highest power first."""
    result = x.like(coefficients[0])
    for c in coefficients[1:]:
        result = result * x + c
    return result


# -- plain -------------------------------------------------------------------------------------------------------------------


def round_to(mode: int) -> Callable[[Vec], Vec]:
    return lambda x: x.op("round", data=mode)


def absolute(x: Vec) -> Vec:
    bits = int(x.type[1:])
    return (x.bits() & (1 << bits - 1) - 1).as_type(x.type)


def copysign(x: Vec, y: Vec) -> Vec:
    bits = int(x.type[1:])
    return (absolute(x).bits() | (y.bits() & 1 << bits - 1)).as_type(x.type)


def sign(x: Vec) -> Vec:
    return select((x > 0) | (x < 0), copysign(x.like(1), x), x)


def isfinite(x: Vec) -> Vec:
    return absolute(x) < math.inf


def isinf(x: Vec) -> Vec:
    return absolute(x) == math.inf


def maximum(x: Vec, y: Vec) -> Vec:
    """NumPy's: NaN if either is; the second of equal zeros."""
    return _extreme("max", x, y)


def minimum(x: Vec, y: Vec) -> Vec:
    return _extreme("min", x, y)


def _extreme(name: str, x: Vec, y: Vec) -> Vec:
    if x.type not in FLOATS:
        return x.op(name, y)
    if y.node.name == "constant" and y.node.data and y.node.data == y.node.data:  # the instruction gives its second operand where there is a NaN
        return y.op(name, x)
    return _x_where(_NAN, x, x.op(name, y))


_NAN, _ZERO = 0x22, 0x100
"""Classes of numbers, as `fixup` takes them."""


def _x_where(classes: int, x: Vec, otherwise: Vec) -> Vec:
    """x itself in the lanes where it is of that class."""
    return x.trace.add(f"fixup.{x.type}", [otherwise, x, x.trace.constant(classes, "i" + x.type[1:])], x.type, 0)


def clamp(x: Vec, low: float, high: float) -> Vec:
    """NaN stays."""
    return x.like(low).op("max", x.like(high).op("min", x))


def to_bfloat16(x: Vec) -> Vec:
    """The bits of singles rounded to bfloat16, as whole numbers."""
    bits = x.bits()
    upper = bits >> 16
    return select(x != x, upper | 0x40, (bits + ((upper & 1) + 0x7FFF)) >> 16)


def rounded(x: Vec, type: str) -> Vec:
    """Singles rounded to f16 or bf16."""
    return x.trace.add("round_f16", [x], x.type) if type == "f16" else (to_bfloat16(x) << 16).as_type(x.type)


# -- exponential, logarithm ------------------------------------------------------------------------------------------------------


def exp(x: Vec) -> Vec:
    """2**k times the Taylor series on |r| <= ln(2)/2."""
    double = x.type == "f64"
    x = clamp(x, -746.0, 711.0) if double else clamp(x, -104.0, 90.0)
    k = (x * math.log2(math.e)).op("round", data=_NEAREST)
    high, low = _LN2[x.type]
    r = (x - k * high) - k * low
    return horner(r, _FACTORIALS[13 if double else 7 :: -1]).op("scale", k)


def expm1(x: Vec) -> Vec:
    """2**k (exp(r) - 1) + (2**k - 1); see `exp`."""
    double, given = x.type == "f64", x
    x = clamp(x, -746.0, 711.0) if double else clamp(x, -104.0, 90.0)
    k = (x * math.log2(math.e)).op("round", data=_NEAREST)
    high, low = _LN2[x.type]
    r = (x - k * high) - k * low
    rest = horner(r, _FACTORIALS[14 if double else 8 : 1 : -1]) * (r * r) + r
    half = k - 1  # 2**k itself may be too large
    return _x_where(_ZERO, given, (rest.op("scale", half) + (x.like(1).op("scale", half) - 0.5)) * 2)


def _parts(x: Vec) -> tuple[Vec, Vec]:
    """k and m with x = m 2**k and m in [3/4, 3/2), NaN for negative x."""
    m = x.op("mantissa", data=0b1011)
    k = x.op("exponent")
    return select(m < 1, k + 1, k), m


def log(x: Vec) -> Vec:
    """k ln(2) + log(m), by the series of atanh in s = (m - 1)/(m + 1)."""
    k, m = _parts(x)
    f = m - 1
    s = f / (f + 2)
    z = s * s
    rest = horner(z, [2 / n for n in range(25 if x.type == "f64" else 11, 1, -2)]) * z
    half_square = f * f * 0.5
    high, low = _LN2[x.type]
    return k * high - ((half_square - (s * (half_square + rest) + k * low)) - f)


def power(x: Vec, y: Vec) -> Vec:
    """x**y. The logarithm is carried in two parts, so that large exponents lose nothing. A negative x takes its sign from y, which must be whole then."""
    a = absolute(x)
    k, m = _parts(a)
    f = m - 1
    d = f + 2
    s = f / d
    s_rest = (f - s * d - s * (f - (d - 2))) / d
    z = s * s
    high, low = s * 2, s_rest * 2 + s * (z * horner(z, [2 / n for n in range(25, 1, -2)]))
    ln2, ln2_rest = _LN2[x.type]
    base = k * ln2
    total = base + high
    rest = (base - total + high) + (low + k * ln2_rest)  # base is 0 or the larger one
    high = total + rest
    low = (total - high) + rest
    product = y * high
    error = rounding_of(product) + y * low
    grown = exp(product)
    value = select(isfinite(grown) & (grown > 0), grown * error + grown, grown)
    value = select(a == 0, select(y < 0, value.like(math.inf), value.like(0.0)), value)
    value = select((a == 1) | (y == 0), 1.0, value)
    return select((x < 0) & (y % 2 == 1), -value, value)


def power_of_single(x: Vec, y: Vec | float) -> Vec:
    """x**y in double precision, as exactly as single precision can tell, for positive x, and 0 or infinity; otherwise NaN."""
    k, m = _parts(x)
    f = m - 1
    s = f / (f + 2)
    exponent = (k + s * horner(s * s, [2 / n * math.log2(math.e) for n in range(11, 0, -2)])) * y
    exponent = clamp(exponent, -1100.0, 1100.0)
    whole = exponent.op("round", data=_NEAREST)
    return horner(exponent - whole, [math.log(2) ** n * _FACTORIALS[n] for n in range(7, -1, -1)]).op("scale", whole)


def log1p(x: Vec) -> Vec:
    u = x + 1
    return _x_where(_ZERO, x, select((u == 0) | isinf(u), log(u), log(u) + (x - (u - 1)) / u))


def tanh(x: Vec) -> Vec:
    """e / (e + 2) with e = exp(2 |x|) - 1."""
    e = expm1(clamp(absolute(x) * 2, 0.0, 45.0 if x.type == "f64" else 30.0))
    return copysign(e.op("div", e + 2), x)


# -- sine, cosine ---------------------------------------------------------------------------------------------------------------


def _quadrant(x: Vec) -> tuple[Vec, Vec, Vec]:
    """Which quarter turn (whole numbers), and sine and cosine of what is left of x."""
    k = (x * (2 / math.pi)).op("round", data=_NEAREST)
    r = x
    for part in _HALF_PI:
        r = r - k * part
    z = r * r
    sine = r + r * (z * horner(z, [(-1) ** (n // 2) * _FACTORIALS[n] for n in range(15, 1, -2)]))
    cosine = 1 - (z * 0.5 - z * (z * horner(z, [(-1) ** (n // 2) * _FACTORIALS[n] for n in range(16, 2, -2)])))
    return k, sine, cosine


def _turned(k: Vec, even: Vec, odd: Vec) -> Vec:
    """`even` or `odd` by the quadrant's lowest bit, and its sign by the next."""
    quarter = k.trace.add("f64_to_i64", [k], "i64")
    chosen = select((quarter & 1) == 0, even, odd)
    return (chosen.bits() ^ (quarter & 2) << 62).as_type("f64")


def sin(x: Vec) -> Vec:
    k, sine, cosine = _quadrant(x)
    return _turned(k, sine, cosine)


def cos(x: Vec) -> Vec:
    k, sine, cosine = _quadrant(x)
    return _turned(k + 1, sine, cosine)


def sine_and_cosine(x: Vec) -> tuple[Vec, Vec]:
    k, sine, cosine = _quadrant(x)
    return select(x == 0, x, _turned(k, sine, cosine)), _turned(k + 1, sine, cosine)


def tan(x: Vec) -> Vec:
    return sin(x) / cos(x)


# -- NumPy's names --------------------------------------------------------------------------------------------------------------

UFUNCS: dict[Any, Callable[..., Vec]] = {
    np.add: Vec.__add__, np.subtract: Vec.__sub__, np.multiply: Vec.__mul__, np.divide: Vec.__truediv__, np.negative: Vec.__neg__,
    np.absolute: absolute, np.sign: sign, np.copysign: copysign, np.isfinite: isfinite, np.isinf: isinf, np.isnan: lambda x: x != x,
    np.maximum: maximum, np.minimum: minimum, np.floor: round_to(_FLOOR), np.ceil: round_to(_CEIL), np.trunc: round_to(_TRUNCATE), np.rint: round_to(_NEAREST),
    np.sqrt: lambda x: x.op("sqrt"), np.exp: exp, np.expm1: expm1, np.square: lambda x: x * x, np.power: power, np.log: log, np.log1p: log1p, np.tanh: tanh, np.sin: sin, np.cos: cos, np.tan: tan,
    np.less: Vec.__lt__, np.less_equal: Vec.__le__, np.greater: Vec.__gt__, np.greater_equal: Vec.__ge__, np.equal: Vec.__eq__, np.not_equal: Vec.__ne__,
    np.logical_and: Vec.__and__, np.logical_or: Vec.__or__, np.logical_not: Vec.__invert__, np.bitwise_and: Vec.__and__, np.bitwise_or: Vec.__or__,
}  # fmt: skip

FUNCTIONS: dict[Any, Callable[..., Vec]] = {
    np.where: select,
    np.round: lambda x: round_to(_NEAREST)(x),
    np.full_like: lambda x, value: x.like(value),
    np.zeros_like: lambda x: x.like(0),
    np.ones_like: lambda x: x.like(1),
    np.clip: clamp,
    np.isposinf: lambda x: x == math.inf,
}
