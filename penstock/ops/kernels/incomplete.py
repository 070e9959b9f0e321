"""Special functions of several arguments in double precision: incomplete gamma and beta, Hurwitz' zeta, polygamma.

All arguments are float64 vectors of one length. Iterations run on the elements that still change, so that a few hard ones
do not slow the others down.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.ops.kernels.special import digamma, lgamma, stirling_rest

Array = np.ndarray
EPS = np.finfo(np.float64).eps
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


def _series(a: Array, x: Array) -> tuple[Array, Array]:
    """(1 + x/(a+1) + x^2/((a+1)(a+2)) + ..., its derivative by a)."""
    total, slope = np.ones_like(a), np.zeros_like(a)
    term, harmonic, r = np.ones_like(a), np.zeros_like(a), a.copy()
    active = np.arange(a.size)
    for _ in range(_MOST):
        r[active] += 1
        term[active] *= x[active] / r[active]
        harmonic[active] += 1 / r[active]
        step = term[active] * harmonic[active]
        total[active] += term[active]
        slope[active] -= step
        active = active[(term[active] > EPS * total[active] / 8) | (step > EPS * np.abs(slope[active]) / 8)]
        if not active.size:
            break
    return total, slope


def _fraction(a: Array, x: Array) -> tuple[Array, Array]:
    """(Legendre's continued fraction f with Q = x^a exp(-x)/gamma(a) f, its derivative by a)."""
    n = a.size
    y, z = 1 - a, x + 2 - a
    p2, q2, p1, q1 = np.ones(n), x.copy(), x + 1, z * x
    dp2, dq2, dp1, dq1 = np.zeros(n), np.zeros(n), np.zeros(n), -x
    value, slope = p1 / q1, np.zeros(n)
    slope = (dp1 - value * dq1) / q1
    active = np.arange(n)
    for count in range(1, _MOST):
        y[active] += 1
        z[active] += 2
        i = active
        yc = y[i] * count
        pk, qk = p1[i] * z[i] - p2[i] * yc, q1[i] * z[i] - q2[i] * yc
        # y and z both fall by 1 when a grows by 1.
        dpk = dp1[i] * z[i] - p1[i] - dp2[i] * yc + p2[i] * count
        dqk = dq1[i] * z[i] - q1[i] - dq2[i] * yc + q2[i] * count
        new = pk / qk
        new_slope = (dpk - new * dqk) / qk
        done = (np.abs(new - value[i]) <= EPS * np.abs(new)) & (np.abs(new_slope - slope[i]) <= EPS * np.abs(new_slope) + 1e-300)
        value[i], slope[i] = new, new_slope
        scale = np.where(np.abs(pk) > 4.5e15, 2.0**-52, 1.0)
        p2[i], p1[i], q2[i], q1[i] = p1[i] * scale, pk * scale, q1[i] * scale, qk * scale
        dp2[i], dp1[i], dq2[i], dq1[i] = dp1[i] * scale, dpk * scale, dq1[i] * scale, dqk * scale
        active = active[~(done | np.isnan(new))]
        if not active.size:
            break
    return value, slope


def _regions(a: Array, x: Array) -> tuple[Array, Array]:
    """Where the series and where the continued fraction is the right tool (both False: a special case)."""
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    fraction = inside & (x > 1) & (x > a)
    return inside & ~fraction, fraction


def igamma(a: Array, x: Array) -> Array:
    """The lower regularised incomplete gamma function P(a, x)."""
    result = np.full(a.shape, np.nan)
    series, fraction = _regions(a, x)
    if series.any():
        result[series] = _density(a[series], x[series]) * _series(a[series], x[series])[0]
    if fraction.any():
        result[fraction] = 1 - _upper(a[fraction], x[fraction])
    result[(x == 0) & (a >= 0)] = 0
    result[np.isposinf(x) & (a > 0) & np.isfinite(a)] = 1
    result[np.isposinf(a) & (x >= 0) & np.isfinite(x)] = 0
    return result


def igammac(a: Array, x: Array) -> Array:
    """The upper regularised incomplete gamma function Q(a, x) = 1 - P(a, x)."""
    result = np.full(a.shape, np.nan)
    series, fraction = _regions(a, x)
    if series.any():
        result[series] = 1 - _density(a[series], x[series]) * _series(a[series], x[series])[0]
    if fraction.any():
        result[fraction] = _upper(a[fraction], x[fraction])
    result[(x == 0) & (a > 0)] = 1
    result[np.isposinf(x) & (a > 0) & np.isfinite(a)] = 0
    result[np.isposinf(a) & (x >= 0) & np.isfinite(x)] = 1
    return result


def _upper(a: Array, x: Array) -> Array:
    return _density(a, x) * a * _fraction(a, x)[0]


def igamma_grad_a(a: Array, x: Array) -> Array:
    """The derivative of P(a, x) by a."""
    result = np.full(a.shape, np.nan)
    series, fraction = _regions(a, x)
    if series.any():
        s, v = a[series], x[series]
        total, slope = _series(s, v)
        result[series] = _density(s, v) * (total * (np.log(v) - digamma(s + 1)) + slope)
    if fraction.any():
        s, v = a[fraction], x[fraction]
        value, slope = _fraction(s, v)
        result[fraction] = -_density(s, v) * s * (value * (np.log(v) - digamma(s)) + slope)
    result[(x == 0) & (a >= 0)] = 0
    result[np.isposinf(x) & (a > 0) & np.isfinite(a)] = 0
    result[np.isposinf(a) & (x >= 0) & np.isfinite(x)] = 0
    return result


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


def _beta_fraction(a: Array, b: Array, x: Array) -> Array:
    """The continued fraction of the incomplete beta function, by Lentz' method; quick for x < (a+1)/(a+b+2)."""
    tiny = 1e-300
    total = a + b
    c = np.ones_like(a)
    d = 1 - total * x / (a + 1)
    d = 1 / np.where(np.abs(d) < tiny, tiny, d)
    h = d.copy()
    active = np.arange(a.size)
    for m in range(1, _MOST):
        i = active
        ai, bi, xi = a[i], b[i], x[i]
        step = np.ones(i.size)
        even = m * (bi - m) * xi / ((ai + 2 * m - 1) * (ai + 2 * m))
        odd = -(ai + m) * (total[i] + m) * xi / ((ai + 2 * m) * (ai + 2 * m + 1))
        for factor in (even, odd):
            di = 1 + factor * d[i]
            ci = 1 + factor / c[i]
            d[i] = 1 / np.where(np.abs(di) < tiny, tiny, di)
            c[i] = np.where(np.abs(ci) < tiny, tiny, ci)
            step = d[i] * c[i]
            h[i] *= step
        active = active[np.abs(step - 1) > EPS]
        if not active.size:
            break
    return h


def betainc(a: Array, b: Array, x: Array) -> Array:
    """The regularised incomplete beta function I_x(a, b)."""
    result = np.full(a.shape, np.nan)
    inside = (a > 0) & (b > 0) & np.isfinite(a) & np.isfinite(b)
    result[inside & (x == 0)] = 0
    result[inside & (x == 1)] = 1
    todo = inside & (x > 0) & (x < 1)
    if todo.any():
        p, q, v = a[todo], b[todo], x[todo]
        flip = v > (p + 1) / (p + q + 2)
        s, t, w = np.where(flip, q, p), np.where(flip, p, q), np.where(flip, 1 - v, v)
        log_w, log_rest = np.where(flip, np.log1p(-v), np.log(v)), np.where(flip, np.log(v), np.log1p(-v))
        front = np.exp(s * log_w + t * log_rest - _log_beta(s, t)) / s
        part = front * _beta_fraction(s, t, w)
        result[todo] = np.where(flip, 1 - part, part)
    return result


# -- zeta -------------------------------------------------------------------------------------------------------------

# (2k)! / B_2k for k = 1, 2, ...: the divisors of Euler's and Maclaurin's correction terms.
_EULER_MACLAURIN = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10, -2.950130727918164224e12,
    1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18,
)  # fmt: skip


def zeta(x: Array, q: Array) -> Array:
    """Hurwitz' zeta function: the sum of (q + k)^-x over k = 0, 1, 2, ..."""
    result = np.full(x.shape, np.nan)
    known = ~(np.isnan(x) | np.isnan(q))
    whole = q == np.floor(q)
    pole = known & (x > 1) & (q <= 0) & whole
    ordinary = known & (x > 1) & ~pole & ((q > 0) | (x == np.floor(x)))
    if ordinary.any():
        result[ordinary] = _zeta_sum(x[ordinary], q[ordinary])
    result[pole | (known & (x == 1))] = np.inf
    return result


def _zeta_sum(x: Array, q: Array) -> Array:
    with np.errstate(all="ignore"):
        total = np.power(q, -x)
        a = q.copy()
        active = np.flatnonzero(np.isfinite(q) & np.isfinite(x))
        open_ended = np.zeros(x.shape, dtype=bool)  # the terms have not become negligible yet
        open_ended[active] = True
        count = 0
        while active.size:
            count += 1
            a[active] += 1
            term = np.power(a[active], -x[active])
            total[active] += term
            still = np.abs(term) > EPS / 8 * np.abs(total[active])
            open_ended[active] = still
            active = active[still & ((a[active] <= 9) | (count < 9))]
        # What is left beyond `a`, by Euler and Maclaurin. `a` itself is already in the sum: take half of it back.
        last = np.power(a, -x)
        tail = last * a / (x - 1) - 0.5 * last
        factor = np.ones_like(x)
        power = last / a
        k = 0.0
        for divisor in _EULER_MACLAURIN:
            factor = factor * (x + k)
            tail = tail + factor * power / divisor
            factor = factor * (x + k + 1)
            power = power / (a * a)
            k += 2
        total = np.where(open_ended, total + tail, total)
        total = np.where(np.isposinf(q), 0.0, total)
        return np.where(np.isneginf(q), np.inf, total)


def polygamma(n: Array, x: Array) -> Array:
    """The n-th derivative of digamma, for whole n >= 0; NaN for others."""
    result = np.full(x.shape, np.nan)
    zero = n == 0
    if zero.any():
        result[zero] = digamma(x[zero])
    higher = (n > 0) & (n == np.floor(n)) & np.isfinite(n)
    if higher.any():
        m = n[higher]
        sign = np.where(m % 2 == 0, -1.0, 1.0)
        with np.errstate(all="ignore"):
            result[higher] = sign * np.exp(lgamma(m + 1)) * zeta(m + 1, x[higher])
    return result


def flattened(function: Any, *values: Any) -> Any:
    """Applies `function` to values of any shapes that broadcast, as float64 vectors, and restores the shape."""
    arrays = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in values))
    return function(*(np.ascontiguousarray(a).ravel() for a in arrays)).reshape(arrays[0].shape)
