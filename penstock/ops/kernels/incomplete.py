"""Special functions of several arguments in double precision: incomplete gamma and beta, Hurwitz' zeta, polygamma.

All arguments are float64 vectors of one length, NumPy's or those of `penstock.ops.native`. Iterations run on the elements that still change, so
that a few hard ones do not slow the others down.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.ops.kernels.special import Array, digamma, lgamma, piecewise, repeat, stirling_rest

EPS = float(np.finfo(np.float64).eps)
SINGLE = 2.0**-31
"""Enough for results that are rounded to float32."""
_MOST = 100_000  # iterations; a series at its turning point needs about 10 sqrt(a)

# -- incomplete gamma -------------------------------------------------------------------------------------------------


def _log1p_minus(x: Array) -> Array:
    """log(1 + x) - x without cancellation for small x."""
    small = np.abs(x) < 0.4
    y = np.where(small, x, 0.0)
    # With z = x / (2 + x): log(1 + x) = 2 (z + z^3/3 + z^5/5 + ...), and x - 2z = x z.
    z = y / (2 + y)
    w = z * z
    total = np.zeros_like(x)
    for k in range(25, 0, -1):
        total = total * w + 1 / (2 * k + 1)
    series = -y * z + 2 * z * w * total
    return np.where(small, series, np.log1p(np.where(small, 0.0, x)) - x)


def _density(a: Array, x: Array) -> Array:
    """x^a exp(-x) / gamma(a + 1)."""
    large = a >= 10
    b = np.where(large, a, 10.0)
    centred = np.exp(b * _log1p_minus((x - b) / b) - stirling_rest(b)) / np.sqrt(2 * np.pi * b)
    c = np.where(large, 1.0, a)
    plain = np.exp(c * np.log(x) - x - lgamma(c + 1))
    return np.where(large, centred, plain)


def _series(a: Array, x: Array, eps: float) -> Array:
    """1 + x/(a+1) + x^2/((a+1)(a+2)) + ..."""
    one = np.ones_like(a)

    def step(x: Array, r: Array, left: Array, term: Array, total: Array) -> Any:
        r = r + 1
        term = term * (x / r)
        return x, r, left - 1, term, total + term

    def going(x: Array, r: Array, left: Array, term: Array, total: Array) -> Any:
        return (term > eps / 8 * total) & (left > 0)

    return repeat(going, step, x, a, np.full_like(a, _MOST), one, one)[4]


def _series_with_slope(a: Array, x: Array) -> tuple[Array, Array]:
    """(`_series`, its derivative by a)."""
    one, zero = np.ones_like(a), np.zeros_like(a)

    def step(x: Array, r: Array, term: Array, harmonic: Array, total: Array, slope: Array, left: Array) -> Any:
        r = r + 1
        term = term * (x / r)
        harmonic = harmonic + 1 / r
        return x, r, term, harmonic, total + term, slope - term * harmonic, left - 1

    def going(x: Array, r: Array, term: Array, harmonic: Array, total: Array, slope: Array, left: Array) -> Any:
        return ((term > EPS / 8 * total) | (term * harmonic > EPS / 8 * np.abs(slope))) & (left > 0)

    return repeat(going, step, x, a, one, zero, one, zero, np.full_like(a, _MOST))[4:6]  # type: ignore[return-value]


def _fraction(a: Array, x: Array, eps: float) -> Array:
    """Legendre's continued fraction f with Q = x^a exp(-x)/gamma(a) f."""
    one, z = np.ones_like(a), x + 2 - a

    def step(y: Array, z: Array, n: Array, p2: Array, q2: Array, p1: Array, q1: Array, value: Array, change: Array) -> Any:
        y, z, n = y + 1, z + 2, n + 1
        yn = y * n
        p, q = p1 * z - p2 * yn, q1 * z - q2 * yn
        new = p / q
        scale = np.where(np.abs(p) > 4.5e15, 2.0**-52, 1.0)
        return y, z, n, p1 * scale, q1 * scale, p * scale, q * scale, new, np.abs(new - value)

    def going(y: Array, z: Array, n: Array, p2: Array, q2: Array, p1: Array, q1: Array, value: Array, change: Array) -> Any:
        return (change > eps * np.abs(value)) & (n < _MOST)

    start = 1 - a, z, np.zeros_like(a), one, x, x + 1, z * x, (x + 1) / (z * x), np.full_like(a, np.inf)
    return repeat(going, step, *start)[7]


def _fraction_with_slope(a: Array, x: Array) -> tuple[Array, Array]:
    """(`_fraction`, its derivative by a)."""
    one, zero, z = np.ones_like(a), np.zeros_like(a), x + 2 - a

    def step(y: Array, z: Array, n: Array, value: Array, slope: Array, changing: Array, *parts: Array) -> Any:
        p2, q2, p1, q1, dp2, dq2, dp1, dq1 = parts
        y, z, n = y + 1, z + 2, n + 1
        yn = y * n
        p, q = p1 * z - p2 * yn, q1 * z - q2 * yn
        # y and z both fall by 1 when a grows by 1.
        dp, dq = dp1 * z - p1 - dp2 * yn + p2 * n, dq1 * z - q1 - dq2 * yn + q2 * n
        new = p / q
        new_slope = (dp - new * dq) / q
        still = (np.abs(new - value) > EPS * np.abs(new)) | (np.abs(new_slope - slope) > EPS * np.abs(new_slope) + 1e-300)
        scale = np.where(np.abs(p) > 4.5e15, 2.0**-52, 1.0)
        return y, z, n, new, new_slope, np.where(still, 1.0, 0.0), *(v * scale for v in (p1, q1, p, q, dp1, dq1, dp, dq))

    def going(y: Array, z: Array, n: Array, value: Array, slope: Array, changing: Array, *parts: Array) -> Any:
        return (changing > 0) & (n < _MOST)

    p1, q1, dp1, dq1 = x + 1, z * x, zero, -x
    value = p1 / q1
    return repeat(going, step, 1 - a, z, zero, value, (dp1 - value * dq1) / q1, one, one, x, p1, q1, zero, zero, dp1, dq1)[3:5]  # type: ignore[return-value]


def _regions(a: Array, x: Array, lowest: float) -> tuple[Array, Array]:
    """Where the series and where the continued fraction (x > lowest) is the right tool (both False: a special case)."""
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    fraction = inside & (x > lowest) & (x > a)
    return inside & ~fraction, fraction


def _pieces(a: Array, x: Array, series: Any, fraction: Any, at_zero: Any, at_infinity: float, at_infinite_a: float, lowest: float = 1.0) -> Array:
    by_series, by_fraction = _regions(a, x, lowest)
    return piecewise(
        (a, x), (by_series, series), (by_fraction, fraction), at_zero,
        (np.isposinf(x) & (a > 0) & np.isfinite(a), lambda a, x: np.full_like(a, at_infinity)),
        (np.isposinf(a) & (x >= 0) & np.isfinite(x), lambda a, x: np.full_like(a, at_infinite_a)),
    )  # fmt: skip


def igamma(a: Array, x: Array, eps: float = EPS) -> Array:
    """The lower regularised incomplete gamma function P(a, x)."""
    at_zero = (x == 0) & (a >= 0), lambda a, x: np.zeros_like(a)
    return _pieces(a, x, lambda a, x: _lower(a, x, eps), lambda a, x: 1 - _upper(a, x, eps), at_zero, 1.0, 0.0, lowest=4.0)  # slow for small x, and P loses nothing by the series


def igammac(a: Array, x: Array, eps: float = EPS) -> Array:
    """The upper regularised incomplete gamma function Q(a, x) = 1 - P(a, x)."""
    at_zero = (x == 0) & (a > 0), lambda a, x: np.ones_like(a)
    return _pieces(a, x, lambda a, x: 1 - _lower(a, x, eps), lambda a, x: _upper(a, x, eps), at_zero, 0.0, 1.0)


def _lower(a: Array, x: Array, eps: float) -> Array:
    return _density(a, x) * _series(a, x, eps)


def _upper(a: Array, x: Array, eps: float) -> Array:
    return _density(a, x) * a * _fraction(a, x, eps)


def igamma_grad_a(a: Array, x: Array) -> Array:
    """The derivative of P(a, x) by a."""

    def by_series(a: Array, x: Array) -> Array:
        total, slope = _series_with_slope(a, x)
        return _density(a, x) * (total * (np.log(x) - digamma(a + 1)) + slope)

    def by_fraction(a: Array, x: Array) -> Array:
        value, slope = _fraction_with_slope(a, x)
        return -_density(a, x) * a * (value * (np.log(x) - digamma(a)) + slope)

    at_zero = (x == 0) & (a >= 0), lambda a, x: np.zeros_like(a)
    return _pieces(a, x, by_series, by_fraction, at_zero, 0.0, 0.0)


# -- incomplete beta --------------------------------------------------------------------------------------------------


def _log_beta(a: Array, b: Array) -> Array:
    """log of the beta function; with both arguments large the big terms are cancelled by hand."""
    small, large = np.minimum(a, b), np.maximum(a, b)
    total = a + b
    plain = lgamma(small) + (lgamma(large) - lgamma(total))
    both = small >= 10
    p, q, n = np.where(both, small, 10.0), np.where(both, large, 10.0), np.where(both, total, 20.0)
    rest = stirling_rest(p) + stirling_rest(q) - stirling_rest(n)
    careful = 0.9189385332046727418 - 0.5 * np.log(q) + (p - 0.5) * np.log(p / n) - q * np.log1p(p / q) + rest
    return np.where(both, careful, plain)


def _beta_fraction(a: Array, b: Array, x: Array, eps: float) -> Array:
    """The continued fraction of the incomplete beta function, by Lentz' method; quick for x < (a+1)/(a+b+2)."""

    def away_from_zero(v: Array) -> Array:
        return np.where(np.abs(v) < 1e-300, 1e-300, v)

    def step(a: Array, b: Array, x: Array, m: Array, c: Array, d: Array, h: Array, factor: Array) -> Any:
        m = m + 1
        two = a + 2 * m
        even = m * (b - m) * x / ((two - 1) * two)
        odd = -(a + m) * (a + b + m) * x / (two * (two + 1))
        for k in (even, odd):
            d = 1 / away_from_zero(1 + k * d)
            c = away_from_zero(1 + k / c)
            factor = d * c
            h = h * factor
        return a, b, x, m, c, d, h, factor

    def going(a: Array, b: Array, x: Array, m: Array, c: Array, d: Array, h: Array, factor: Array) -> Any:
        return (np.abs(factor - 1) > eps) & (m < _MOST)

    d = 1 / away_from_zero(1 - (a + b) * x / (a + 1))
    return repeat(going, step, a, b, x, np.zeros_like(a), np.ones_like(a), d, d, np.zeros_like(a))[6]


def betainc(a: Array, b: Array, x: Array, eps: float = EPS) -> Array:
    """The regularised incomplete beta function I_x(a, b)."""

    def ordinary(a: Array, b: Array, x: Array) -> Array:
        flip = x > (a + 1) / (a + b + 2)
        s, t, w = np.where(flip, b, a), np.where(flip, a, b), np.where(flip, 1 - x, x)
        log, log_rest = np.log(x), np.log1p(-x)
        front = np.exp(s * np.where(flip, log_rest, log) + t * np.where(flip, log, log_rest) - _log_beta(s, t)) / s
        part = front * _beta_fraction(s, t, w, eps)
        return np.where(flip, 1 - part, part)

    inside = (a > 0) & (b > 0) & np.isfinite(a) & np.isfinite(b)
    return piecewise(
        (a, b, x), (inside & (x > 0) & (x < 1), ordinary), (inside & (x == 0), lambda a, b, x: np.zeros_like(x)),
        (inside & (x == 1), lambda a, b, x: np.ones_like(x)),
    )  # fmt: skip


# -- zeta -------------------------------------------------------------------------------------------------------------

# (2k)! / B_2k for k = 1, 2, ...: the divisors of Euler's and Maclaurin's correction terms.
_EULER_MACLAURIN = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10, -2.950130727918164224e12,
    1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18,
)  # fmt: skip


def zeta(x: Array, q: Array, eps: float = EPS) -> Array:
    """Hurwitz' zeta function: the sum of (q + k)^-x over k = 0, 1, 2, ..."""
    known = (x == x) & (q == q)
    pole = known & (x > 1) & (q <= 0) & (q == np.floor(q))
    ordinary = known & (x > 1) & ~pole & ((q > 0) | (x == np.floor(x)))
    return piecewise((x, q), (ordinary, lambda x, q: _zeta_sum(x, q, eps)), (pole | (known & (x == 1)), lambda x, q: np.full_like(x, np.inf)))


def _zeta_sum(x: Array, q: Array, eps: float) -> Array:
    with np.errstate(all="ignore"):

        def step(x: Array, a: Array, total: Array, term: Array, count: Array) -> Any:
            term = np.power(a + 1, -x)
            return x, a + 1, total + term, term, count + 1

        def is_open(total: Array, term: Array) -> Any:
            return np.abs(term) > eps / 8 * np.abs(total)  # the terms have not become negligible yet

        def going(x: Array, a: Array, total: Array, term: Array, count: Array) -> Any:
            return np.isfinite(a) & np.isfinite(x) & ((count == 0) | (is_open(total, term) & ((a <= 9) | (count < 9))))

        first = np.power(q, -x)
        x, a, total, term, count = repeat(going, step, x, q, first, first, np.zeros_like(x))
        # What is left beyond `a`, by Euler and Maclaurin. `a` itself is already in the sum: take half of it back.
        last = np.power(a, -x)
        tail = last * a / (x - 1) - 0.5 * last
        factor = np.ones_like(x)
        power, square = last / a, 1 / (a * a)
        k = 0.0
        for divisor in _EULER_MACLAURIN:
            factor = factor * (x + k)
            tail = tail + factor * power / divisor
            factor = factor * (x + k + 1)
            power = power * square
            k += 2
        total = np.where((count > 0) & is_open(total, term), total + tail, total)
        total = np.where(q == np.inf, 0.0, total)
        return np.where(q == -np.inf, np.inf, total)


def polygamma(n: Array, x: Array, eps: float = EPS) -> Array:
    """The n-th derivative of digamma, for whole n >= 0; NaN for others."""

    def higher(n: Array, x: Array) -> Array:
        sign = np.where(n % 2 == 0, -1.0, 1.0)
        with np.errstate(all="ignore"):
            return sign * np.exp(lgamma(n + 1)) * zeta(n + 1, x, eps)

    return piecewise((n, x), (n == 0, lambda n, x: digamma(x)), ((n > 0) & (n == np.floor(n)) & np.isfinite(n), higher))


def flattened(function: Any, *values: Any) -> Any:
    """Applies `function` to values of any shapes that broadcast, as float64 vectors, and restores the shape."""
    arrays = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in values))
    return function(*(np.ascontiguousarray(a).ravel() for a in arrays)).reshape(arrays[0].shape)
