"""Special functions of one argument in double precision: error functions, gamma, Bessel, Dawson, Fresnel, Spence, Ei.

Every function takes and gives float64 arrays, or vectors of `penstock.ops.native`, for which it becomes a loop in machine code. Polynomials come
from `special_tables`; each use names its interval. `piecewise` evaluates each formula only where it holds, `repeat` iterates only what still changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.ops.kernels import special_tables as T
from penstock.ops.native import vectors
from penstock.ops.native.vectors import Vec

Array = Any
"""float64: `np.ndarray` or `Vec`."""
TWO_OVER_PI = 2 / np.pi
SQRT2 = np.sqrt(2.0)


def poly(coefficients: Sequence[float], x: Array, low: float, high: float) -> Array:
    """A table's polynomial at x in [low, high]."""
    if isinstance(x, Vec):
        t = x * (2 / (high - low)) - (low + high) / (high - low)
    else:
        t = (2 * x - (low + high)) / (high - low)
    result = np.full_like(t, coefficients[0])
    for c in coefficients[1:]:
        result *= t
        result += c
    return result


def piecewise(x: Array | tuple[Array, ...], *pieces: tuple[Any, Callable[..., Array]]) -> Array:
    """Each function on the elements of its mask; NaN where no mask holds. `x`: the functions' argument or arguments."""
    values = x if isinstance(x, tuple) else (x,)
    if isinstance(values[0], Vec):
        result = values[0].like(np.nan)
        for mask, function in pieces:
            result = vectors.only_if(mask, lambda function=function: values[0].like(function(*values)), result)
        return result
    result = np.full(values[0].shape, np.nan)
    for mask, function in pieces:
        if mask.all():
            return function(*values)
        if mask.any():
            result[mask] = function(*(v[mask] for v in values))
    return result


def repeat(condition: Callable[..., Any], body: Callable[..., Sequence[Array]], *values: Array) -> Sequence[Array]:
    """values = body(*values), again and again, for the elements whose condition(*values) still holds."""
    if isinstance(values[0], Vec):
        return vectors.repeat(condition, body, *values)
    results = [np.array(v) for v in values]
    current, where = results, np.arange(values[0].size)
    while where.size:
        going = condition(*current)
        if not going.all():
            for result, value in zip(results, current, strict=True):
                result[where[~going]] = value[~going]
            current, where = [value[going] for value in current], where[going]
        current = body(*current)
    return results


# -- error functions --------------------------------------------------------------------------------------------------


def _exp_minus_square(x: Array) -> Array:
    """exp(-x^2) with x split in two, so that the square's rounding error does not grow with it."""
    high = np.round(x * 16) / 16
    return np.exp(-high * high) * np.exp(-(x - high) * (x + high))


def _erfc_positive(x: Array) -> Array:
    t = (x - 3.75) / (x + 3.75)
    return _exp_minus_square(x) * poly(T.ERFCX, t, -1, 1) / (1 + 2 * x)


def _erf_small(x: Array) -> Array:
    return x * poly(T.ERF, x * x, 0, 1)


def erf(x: Array) -> Array:
    a = np.abs(x)
    return piecewise(x, (a < 1, _erf_small), ((a >= 1) & (a < 6), lambda v: np.sign(v) * (1 - _erfc_positive(np.abs(v)))), (a >= 6, np.sign))


def erfc(x: Array) -> Array:
    a = np.abs(x)

    def outside(v: Array) -> Array:
        tail = _erfc_positive(np.abs(v))
        return np.where(v > 0, tail, 2 - tail)

    return piecewise(
        x, (a < 0.5, lambda v: 1 - _erf_small(v)), ((x >= 0.5) & (x < 28) | (x <= -0.5) & (x > -6), outside), (x >= 28, np.zeros_like),
        (x <= -6, lambda v: np.full_like(v, 2.0)),
    )  # fmt: skip


def _normal_quantile_tail(p: Array) -> Array:
    """z > 0 with P(N > z) = p, for p <= 0.2."""
    s = np.sqrt(-2 * np.log(p))
    z = piecewise(
        s, (s < 3, lambda v: poly(T.NDTRI_TAIL_0, v, 1.79, 3)), ((s >= 3) & (s < 6), lambda v: poly(T.NDTRI_TAIL_1, v, 3, 6)),
        ((s >= 6) & (s < 14), lambda v: poly(T.NDTRI_TAIL_2, v, 6, 14)), (s >= 14, lambda v: poly(T.NDTRI_TAIL_3, v, 14, 39)),
    )  # fmt: skip
    return s * z


def _normal_quantile_centre(q: Array) -> Array:
    """z with P(0 < N < z) = q, for |q| <= 0.3."""
    return q * poly(T.NDTRI_CENTRE, q * q, 0, 0.09)


def ndtri(p: Array) -> Array:
    """The quantile function of the normal distribution."""

    def outside(v: Array) -> Array:
        low = v < 0.5
        tail = _normal_quantile_tail(np.where(low, v, 1 - v))
        return np.where(low, -tail, tail)

    return piecewise(
        p, ((p >= 0.2) & (p <= 0.8), lambda v: _normal_quantile_centre(v - 0.5)), ((p > 0) & (p < 0.2) | (p > 0.8) & (p < 1), outside),
        (p == 0, lambda v: np.full_like(v, -np.inf)), (p == 1, lambda v: np.full_like(v, np.inf)),
    )  # fmt: skip


def erfinv(x: Array) -> Array:
    a = np.abs(x)
    return piecewise(
        x, (a <= 0.6, lambda v: _normal_quantile_centre(v / 2) / SQRT2), ((a > 0.6) & (a < 1), lambda v: np.sign(v) * _normal_quantile_tail((1 - np.abs(v)) / 2) / SQRT2),
        (a == 1, lambda v: v * np.inf),
    )  # fmt: skip


# -- gamma ------------------------------------------------------------------------------------------------------------

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
_HALF_LOG_2PI = 0.9189385332046727418


def stirling_rest(x: Array) -> Array:
    """lgamma(x) - ((x - 1/2) log x - x + log(2 pi)/2), for x >= 10."""
    v = 1 / x
    w = v * v
    result = np.full_like(x, _STIRLING[-1])
    for c in reversed(_STIRLING[:-1]):
        result *= w
        result += c
    return result * v


def _lgamma_positive(x: Array) -> Array:
    return piecewise(
        x, (x < 1, lambda v: _lgamma_core(v + 1) - np.log(v)), ((x >= 1) & (x <= 3), _lgamma_core), ((x > 3) & (x < 13), _lgamma_shifted),
        (x >= 13, lambda v: np.where(np.isinf(v), v, (v - 0.5) * np.log(v) - v + (_HALF_LOG_2PI + stirling_rest(v)))),
    )  # fmt: skip


def _lgamma_core(x: Array) -> Array:
    return (x - 1) * (x - 2) * poly(T.LGAMMA, x, 1, 3)


def _lgamma_shifted(x: Array) -> Array:
    """Steps down to (2, 3] and takes the product of the steps along."""
    x, product = repeat(lambda x, product: (x > 3) & (x < 14), lambda x, product: (x - 1, product * (x - 1)), x, np.ones_like(x))
    return _lgamma_core(x) + np.log(product)


def lgamma(x: Array) -> Array:
    """log |gamma(x)|; infinite at 0, -1, -2, ..."""

    def reflected(v: Array) -> Array:
        a = -v
        whole = a == np.floor(a)
        sine = np.abs(np.sin(np.pi * (a - 2 * np.floor(a / 2))))
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.log(np.pi / (a * sine)) - _lgamma_positive(np.where(whole, 1.0, a))
        return np.where(whole, np.inf, value)

    return piecewise(x, (x > 0, _lgamma_positive), (x == 0, lambda v: np.full_like(v, np.inf)), (x < 0, reflected))


_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def digamma(x: Array) -> Array:
    """The derivative of lgamma; NaN at 0, -1, -2, ..."""

    def positive(v: Array) -> Array:
        v, shift = repeat(lambda v, shift: (v > 0) & (v < 10), lambda v, shift: (v + 1, shift - 1 / v), v, np.zeros_like(v))
        w = 1 / (v * v)
        series = np.zeros_like(v)
        for c in reversed(_DIGAMMA):
            series = (series + c) * w
        return np.where(np.isinf(v), v, np.log(v) - 0.5 / v - series) + shift

    def reflected(v: Array) -> Array:
        fraction = v - np.floor(v)
        tangent = np.tan(np.pi * np.where(fraction == 0, 0.25, fraction))
        return np.where(fraction == 0, np.nan, positive(1 - v) - np.pi / tangent)

    return piecewise(x, (x > 0, positive), ((x < 0) & np.isfinite(x), reflected))


# -- Bessel -----------------------------------------------------------------------------------------------------------


def i0e(x: Array) -> Array:
    a = np.abs(x)
    return piecewise(a, (a <= 8, lambda v: poly(T.I0E_SMALL, v, 0, 8)), (a > 8, lambda v: poly(T.I0E_LARGE, 1 / v, 0, 0.125) / np.sqrt(v)))


def i1e(x: Array) -> Array:
    a = np.abs(x)
    return np.sign(x) * piecewise(a, (a <= 8, lambda v: v * poly(T.I1E_SMALL, v, 0, 8)), (a > 8, lambda v: poly(T.I1E_LARGE, 1 / v, 0, 0.125) / np.sqrt(v)))


def i0(x: Array) -> Array:
    return np.exp(np.abs(x)) * i0e(x)


def i1(x: Array) -> Array:
    return np.exp(np.abs(x)) * i1e(x)


def _k_small(order: int, x: Array) -> Array:
    u = x * x
    log = np.log(x / 2)
    if order == 0:
        return poly(T.K0_SMALL, u, 0, 4) - log * poly(T.I0_SERIES, u, 0, 4)
    return poly(T.K1_SMALL, u, 0, 4) / x + log * poly(T.I1_SERIES, u, 0, 4) * x / 2


def _k(order: int, scaled: bool) -> Callable[[Array], Array]:
    table = T.K1E_LARGE if order else T.K0E_LARGE

    def small(v: Array) -> Array:
        return _k_small(order, v) * (np.exp(v) if scaled else 1)

    def large(v: Array) -> Array:
        return poly(table, 1 / v, 0, 0.5) / np.sqrt(v) * (1 if scaled else np.exp(-v))

    return lambda x: piecewise(x, (x <= 0, lambda v: np.full_like(v, np.inf)), ((x > 0) & (x <= 2), small), (x > 2, large))


k0, k0e, k1, k1e = _k(0, False), _k(0, True), _k(1, False), _k(1, True)


def _oscillating(order: int, x: Array) -> tuple[Array, Array]:
    """(J, Y) for x > 8 by modulus and phase."""
    u = (8 / x) ** 2
    p = poly(T.HANKEL1_P if order else T.HANKEL0_P, u, 0, 1)
    q = poly(T.HANKEL1_Q if order else T.HANKEL0_Q, u, 0, 1) * 8 / x
    # cos and sin of x - pi/4 - order pi/2 by the addition theorem, which keeps their accuracy for large x.
    c, s = np.cos(x), np.sin(x)
    cosine, sine = ((c + s), (s - c)) if order == 0 else ((s - c), -(c + s))
    factor = np.sqrt(1 / (np.pi * x))
    return factor * (p * cosine - q * sine), factor * (p * sine + q * cosine)


def j0(x: Array) -> Array:
    a = np.abs(x)
    return piecewise(a, (a <= 8, lambda v: poly(T.J0_SMALL, v * v, 0, 64)), ((a > 8) & np.isfinite(a), lambda v: _oscillating(0, v)[0]))


def j1(x: Array) -> Array:
    a = np.abs(x)
    value = piecewise(a, (a <= 8, lambda v: v * poly(T.J1_SMALL, v * v, 0, 64)), ((a > 8) & np.isfinite(a), lambda v: _oscillating(1, v)[0]))
    return np.copysign(1, x) * value


def _y0_small(x: Array) -> Array:
    return poly(T.Y0_SMALL, x * x, 0, 64) + TWO_OVER_PI * np.log(x) * j0(x)


def _y1_small(x: Array) -> Array:
    return x * poly(T.Y1_SMALL, x * x, 0, 64) + TWO_OVER_PI * (np.log(x) * j1(x) - 1 / x)


def _y(order: int, small: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: piecewise(
        x, (x <= 0, lambda v: np.full_like(v, -np.inf)), ((x > 0) & (x <= 8), small), ((x > 8) & np.isfinite(x), lambda v: _oscillating(order, v)[1])
    )


y0, y1 = _y(0, _y0_small), _y(1, _y1_small)

# -- integrals --------------------------------------------------------------------------------------------------------


def dawsn(x: Array) -> Array:
    """exp(-x^2) times the integral of exp(t^2) from 0 to x."""
    a = np.abs(x)
    value = piecewise(
        a, (a <= 2, lambda v: v * poly(T.DAWSN_SMALL, v * v, 0, 4)), ((a > 2) & (a <= 5), lambda v: poly(T.DAWSN_MIDDLE, v, 2, 5)),
        (a > 5, lambda v: poly(T.DAWSN_LARGE, 1 / (v * v), 0, 0.04) / (2 * v)),
    )  # fmt: skip
    return np.copysign(1, x) * value


_EI = ((2, 4, T.EI_0), (4, 7, T.EI_1), (7, 12, T.EI_2), (12, 22, T.EI_3), (22, 50, T.EI_4))


def expint(x: Array) -> Array:
    """Ei(x), the integral of exp(t)/t from -infinity to x; NaN for negative x."""
    pieces: list[Any] = [
        (x == 0, lambda v: np.full_like(v, -np.inf)),
        ((x > 0) & (x <= 2), lambda v: np.euler_gamma + np.log(v) + v * poly(T.EI_SMALL, v, 0, 2)),
        ((x > 50) & np.isfinite(x), lambda v: np.exp(v) / v * poly(T.EI_LARGE, 1 / v, 0, 0.02)),
        (np.isposinf(x), lambda v: v),
    ]
    for low, high, table in _EI:
        pieces.append(((x > low) & (x <= high), lambda v, low=low, high=high, table=table: np.exp(v) / v * poly(table, v, low, high)))
    return piecewise(x, *pieces)


def _fresnel(x: Array, cosine: bool) -> Array:
    a = np.abs(x)

    def small(v: Array) -> Array:
        u = (v * v) ** 2
        return v * poly(T.FRESNEL_C, u, 0, 6.5536) if cosine else v**3 * poly(T.FRESNEL_S, u, 0, 6.5536)

    def large(v: Array) -> Array:
        u = 1 / (v * v)
        f = poly(T.FRESNEL_F, u, 0, 0.390625) / v
        g = poly(T.FRESNEL_G, u, 0, 0.390625) / v**3
        angle = np.pi / 2 * (v * v)
        c, s = np.cos(angle), np.sin(angle)
        return 0.5 + (f * s - g * c) if cosine else 0.5 - (f * c + g * s)

    value = piecewise(a, (a <= 1.6, small), ((a > 1.6) & (a < 36974), large), (a >= 36974, lambda v: np.full_like(v, 0.5)))
    return np.copysign(1, x) * value


def fresnel_cos(x: Array) -> Array:
    return _fresnel(x, True)


def fresnel_sin(x: Array) -> Array:
    return _fresnel(x, False)


def spence(x: Array) -> Array:
    """The integral of log(t)/(1 - t) from 1 to x: Li2(1 - x)."""

    def core(w: Array) -> Array:
        return -w * poly(T.SPENCE, w, -0.5, 0.5)

    def small(v: Array) -> Array:
        log = np.log(np.where(v == 0, 1.0, v))
        return np.pi**2 / 6 - log * np.log1p(-v) - core(-v)

    def up_to_one(v: Array) -> Array:
        return piecewise(v, ((v >= 0) & (v < 0.5), small), (v >= 0.5, lambda v: core(v - 1)))

    def large(v: Array) -> Array:
        return -up_to_one(1 / v) - 0.5 * np.log(v) ** 2

    return piecewise(x, ((x >= 0) & (x <= 1.5), up_to_one), ((x > 1.5) & np.isfinite(x), large))
