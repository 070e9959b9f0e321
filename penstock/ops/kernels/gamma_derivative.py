"""How a gamma sample moves with its parameter: the kernel of RandomGammaGrad.

A sample x of Gamma(a, 1) is x = P(a, .)^-1 (u) for a fixed uniform u, P being the regularised lower incomplete gamma
function. Implicit differentiation gives dx/da = -(dP/da) / (dP/dx), and both factors share most of their terms.
"""

from __future__ import annotations

import numpy as np

_MAX_TERMS = 2000
_EPSILON = 2.0**-53


def digamma(x: np.ndarray) -> np.ndarray:
    """The logarithmic derivative of the gamma function, for positive x."""
    x = np.array(x, np.float64)
    result = np.zeros_like(x)
    for _ in range(10):  # psi(x) = psi(x + 1) - 1/x, up to where the asymptotic series holds
        result -= 1 / x
        x += 1
    square = 1 / (x * x)
    tail = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square * (
        1 / 132 - square * (691 / 32760 - square / 12))))))
    return result + np.log(x) - 0.5 / x - tail


def gamma_sample_derivative(alpha: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """dx/da of samples x of Gamma(a, 1), in float64; NaN where a <= 0 or x < 0."""
    a, x = np.broadcast_arrays(np.asarray(alpha, np.float64), np.asarray(sample, np.float64))
    shape = a.shape
    a, x = a.reshape(-1), x.reshape(-1)
    out = np.full(a.shape, np.nan)
    out[(x == 0) & (a > 0)] = 0.0
    good = (a > 0) & (x > 0) & np.isfinite(x) & np.isfinite(a)
    tail = good & (x > 1) & (x > a)
    out[tail] = _by_fraction(a[tail], x[tail])
    body = good & ~tail
    out[body] = _by_series(a[body], x[body])
    return out.reshape(shape)


def _by_series(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """P(a, x) = x^a e^-x / gamma(a + 1) * sum of x^n / ((a + 1) ... (a + n))."""
    total, dtotal = np.ones_like(a), np.zeros_like(a)
    term, dterm, r = np.ones_like(a), np.zeros_like(a), a.copy()
    for _ in range(_MAX_TERMS):
        r += 1
        factor = x / r
        dterm = factor * (dterm - term / r)
        term = term * factor
        total += term
        dtotal += dterm
        if (np.abs(dterm) <= _EPSILON * np.abs(dtotal)).all():
            break
    return -(x / a) * (dtotal + total * (np.log(x) - digamma(a + 1)))


def _by_fraction(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """1 - P(a, x) = x^a e^-x / gamma(a) * a continued fraction, of which the derivative is carried along."""
    n = 0.0
    y = 1 - a
    z = x + y + 1
    p0, q0 = np.ones_like(a), x.copy()
    p1, q1 = x + 1, z * x
    dp0, dq0 = np.zeros_like(a), np.zeros_like(a)
    dp1, dq1 = np.zeros_like(a), -x
    value = p1 / q1
    slope = (dp1 - value * dq1) / q1
    for _ in range(_MAX_TERMS):
        n += 1
        y = y + 1
        z = z + 2
        yn = y * n
        p2, q2 = p1 * z - p0 * yn, q1 * z - q0 * yn
        dp2 = dp1 * z - p1 - dp0 * yn + p0 * n
        dq2 = dq1 * z - q1 - dq0 * yn + q0 * n
        value = p2 / q2
        before, slope = slope, (dp2 - value * dq2) / q2
        p0, p1, q0, q1, dp0, dp1, dq0, dq1 = p1, p2, q1, q2, dp1, dp2, dq1, dq2
        if (np.abs(slope - before) <= _EPSILON * np.abs(slope)).all():
            break
        # All eight grow alike; only ratios count.
        scale = np.where(np.abs(p1) > 2.0**52, 2.0**-52, 1.0)
        p0, p1, q0, q1, dp0, dp1, dq0, dq1 = (v * scale for v in (p0, p1, q0, q1, dp0, dp1, dq0, dq1))
    return x * (slope + value * (np.log(x) - digamma(a)))
