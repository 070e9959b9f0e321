"""Special functions. XLA has the error functions and the gamma family; the others come from the tables of the kernels, in double
precision and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from penstock.engines.xla.rule import jnp, lax, rule
from penstock.engines.xla.values import const, narrow, wide
from penstock.ops.kernels import special_tables as T

# -- error functions and gamma: XLA's own -----------------------------------------------------------------------------


@rule("Erf")
@wide
def erf(x: Any) -> Any:
    return lax.erf(x)


@rule("Erfc")
@wide
def erfc(x: Any) -> Any:
    return lax.erfc(x)


@rule("Erfinv")
@wide
def erfinv(x: Any) -> Any:
    return lax.erf_inv(x)


@rule("Lgamma")
@wide
def lgamma(x: Any) -> Any:
    return lax.lgamma(x)


@rule("Digamma")
@wide
def digamma(x: Any) -> Any:
    return lax.digamma(x)


def _joint(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for arguments that broadcast, computed wide."""

    @wraps(fn)
    def joint(*values: Any) -> Any:
        return wide(fn)(*jnp.broadcast_arrays(*values))

    return joint


@rule("Polygamma")
@_joint
def polygamma(a: Any, x: Any) -> Any:
    return lax.polygamma(a, x)


@rule("Zeta")
@_joint
def zeta(x: Any, q: Any) -> Any:
    return lax.zeta(x, q)


@rule("Igamma")
@_joint
def igamma(a: Any, x: Any) -> Any:
    return lax.igamma(a, x)


@rule("Igammac")
@_joint
def igammac(a: Any, x: Any) -> Any:
    return lax.igammac(a, x)


@rule("IgammaGradA")
@_joint
def igamma_grad_a(a: Any, x: Any) -> Any:
    return lax.igamma_grad_a(a, x)


@rule("Betainc")
@_joint
def betainc(a: Any, b: Any, x: Any) -> Any:
    return jnp.where((a > 0) & (b > 0), lax.betainc(a, b, x), const(np.nan, x))


# -- tables -----------------------------------------------------------------------------------------------------------


def _double(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Attaches a function of doubles to the op types; it gives back the type it got."""

    def attach(fn: Callable[..., Any]) -> Callable[..., Any]:
        rule(*names)(lambda x: narrow(fn(jnp.asarray(x).astype(np.float64)), x.dtype))
        return fn

    return attach


def _poly(coefficients: Sequence[float], x: Any, low: float, high: float) -> Any:
    """A table's polynomial at x in [low, high]."""
    t = (2 * x - (low + high)) / (high - low)
    result = jnp.full_like(t, coefficients[0])
    for c in coefficients[1:]:
        result = result * t + c
    return result


def _pieces(x: Any, *pieces: tuple[Any, Any]) -> Any:
    """The value of the last piece whose condition holds; NaN where none does."""
    result = jnp.full_like(x, np.nan)
    for holds, value in pieces:
        result = jnp.where(holds, value, result)
    return result


@_double("Ndtri")
def ndtri(p: Any) -> Any:
    """The quantile function of the normal distribution."""
    q = p - 0.5
    centre = q * _poly(T.NDTRI_CENTRE, q * q, 0, 0.09)
    tail = _normal_quantile_tail(jnp.minimum(p, 1 - p))
    return _pieces(
        p, ((p >= 0.2) & (p <= 0.8), centre), ((p > 0) & (p < 0.2), -tail), ((p > 0.8) & (p < 1), tail), (p == 0, -np.inf), (p == 1, np.inf)
    )


def _normal_quantile_tail(p: Any) -> Any:
    s = jnp.sqrt(-2 * jnp.log(p))
    tables = ((T.NDTRI_TAIL_0, 1.79, 3), (T.NDTRI_TAIL_1, 3, 6), (T.NDTRI_TAIL_2, 6, 14), (T.NDTRI_TAIL_3, 14, 39))
    return s * _pieces(s, *((s >= low, _poly(table, s, low, high)) for table, low, high in tables))


@_double("BesselI0e")
def i0e(x: Any) -> Any:
    a = jnp.abs(x)
    small, large = _poly(T.I0E_SMALL, a, 0, 8), _poly(T.I0E_LARGE, 1 / a, 0, 0.125) / jnp.sqrt(a)
    return jnp.where(a <= 8, small, large)


@_double("BesselI1e")
def i1e(x: Any) -> Any:
    a = jnp.abs(x)
    small, large = a * _poly(T.I1E_SMALL, a, 0, 8), _poly(T.I1E_LARGE, 1 / a, 0, 0.125) / jnp.sqrt(a)
    return jnp.sign(x) * jnp.where(a <= 8, small, large)


@_double("BesselI0")
def i0(x: Any) -> Any:
    return jnp.exp(jnp.abs(x)) * i0e(x)


@_double("BesselI1")
def i1(x: Any) -> Any:
    return jnp.exp(jnp.abs(x)) * i1e(x)


def _k_small(order: int, x: Any) -> Any:
    u, log = x * x, jnp.log(x / 2)
    if order == 0:
        return _poly(T.K0_SMALL, u, 0, 4) - log * _poly(T.I0_SERIES, u, 0, 4)
    return _poly(T.K1_SMALL, u, 0, 4) / x + log * _poly(T.I1_SERIES, u, 0, 4) * x / 2


def _k(order: int, scaled: bool, x: Any) -> Any:
    small = _k_small(order, x) * (jnp.exp(x) if scaled else 1)
    large = _poly(T.K1E_LARGE if order else T.K0E_LARGE, 1 / x, 0, 0.5) / jnp.sqrt(x) * (1 if scaled else jnp.exp(-x))
    return _pieces(x, (x <= 0, np.inf), ((x > 0) & (x <= 2), small), (x > 2, large))


_double("BesselK0")(lambda x: _k(0, False, x))
_double("BesselK0e")(lambda x: _k(0, True, x))
_double("BesselK1")(lambda x: _k(1, False, x))
_double("BesselK1e")(lambda x: _k(1, True, x))


def _oscillating(order: int, x: Any) -> tuple[Any, Any]:
    """(J, Y) for x > 8 by modulus and phase."""
    u = (8 / x) ** 2
    p = _poly(T.HANKEL1_P if order else T.HANKEL0_P, u, 0, 1)
    q = _poly(T.HANKEL1_Q if order else T.HANKEL0_Q, u, 0, 1) * 8 / x
    c, s = jnp.cos(x), jnp.sin(x)
    cosine, sine = ((c + s), (s - c)) if order == 0 else ((s - c), -(c + s))
    factor = jnp.sqrt(1 / (np.pi * x))
    return factor * (p * cosine - q * sine), factor * (p * sine + q * cosine)


@_double("BesselJ0")
def j0(x: Any) -> Any:
    a = jnp.abs(x)
    return _pieces(a, (a <= 8, _poly(T.J0_SMALL, a * a, 0, 64)), ((a > 8) & jnp.isfinite(a), _oscillating(0, a)[0]))


@_double("BesselJ1")
def j1(x: Any) -> Any:
    a = jnp.abs(x)
    value = _pieces(a, (a <= 8, a * _poly(T.J1_SMALL, a * a, 0, 64)), ((a > 8) & jnp.isfinite(a), _oscillating(1, a)[0]))
    return jnp.copysign(const(1, x), x) * value


def _y(order: int, x: Any, small: Any) -> Any:
    return _pieces(x, (x <= 0, -np.inf), ((x > 0) & (x <= 8), small), ((x > 8) & jnp.isfinite(x), _oscillating(order, x)[1]))


@_double("BesselY0")
def y0(x: Any) -> Any:
    return _y(0, x, _poly(T.Y0_SMALL, x * x, 0, 64) + 2 / np.pi * jnp.log(x) * j0(x))


@_double("BesselY1")
def y1(x: Any) -> Any:
    return _y(1, x, x * _poly(T.Y1_SMALL, x * x, 0, 64) + 2 / np.pi * (jnp.log(x) * j1(x) - 1 / x))


# -- integrals --------------------------------------------------------------------------------------------------------


@_double("Dawsn")
def dawsn(x: Any) -> Any:
    """exp(-x^2) times the integral of exp(t^2) from 0 to x."""
    a = jnp.abs(x)
    value = _pieces(
        a, (a <= 2, a * _poly(T.DAWSN_SMALL, a * a, 0, 4)), ((a > 2) & (a <= 5), _poly(T.DAWSN_MIDDLE, a, 2, 5)),
        (a > 5, _poly(T.DAWSN_LARGE, 1 / (a * a), 0, 0.04) / (2 * a)),
    )  # fmt: skip
    return jnp.copysign(const(1, x), x) * value


_EI = ((2, 4, T.EI_0), (4, 7, T.EI_1), (7, 12, T.EI_2), (12, 22, T.EI_3), (22, 50, T.EI_4))


@_double("Expint")
def expint(x: Any) -> Any:
    """Ei(x), the integral of exp(t)/t from -infinity to x; NaN for negative x."""
    front = jnp.exp(x) / x
    return _pieces(
        x, (x == 0, -np.inf), ((x > 0) & (x <= 2), np.euler_gamma + jnp.log(x) + x * _poly(T.EI_SMALL, x, 0, 2)),
        ((x > 50) & jnp.isfinite(x), front * _poly(T.EI_LARGE, 1 / x, 0, 0.02)), (jnp.isposinf(x), x),
        *(((x > low) & (x <= high), front * _poly(table, x, low, high)) for low, high, table in _EI),
    )  # fmt: skip


def _fresnel(x: Any, cosine: bool) -> Any:
    a = jnp.abs(x)
    u = (a * a) ** 2
    small = a * _poly(T.FRESNEL_C, u, 0, 6.5536) if cosine else a * a * a * _poly(T.FRESNEL_S, u, 0, 6.5536)
    w = 1 / (a * a)
    f, g = _poly(T.FRESNEL_F, w, 0, 0.390625) / a, _poly(T.FRESNEL_G, w, 0, 0.390625) / (a * a * a)
    angle = np.pi / 2 * (a * a)
    c, s = jnp.cos(angle), jnp.sin(angle)
    large = 0.5 + (f * s - g * c) if cosine else 0.5 - (f * c + g * s)
    value = _pieces(a, (a <= 1.6, small), ((a > 1.6) & (a < 36974), large), (a >= 36974, 0.5))
    return jnp.copysign(const(1, x), x) * value


_double("FresnelCos")(lambda x: _fresnel(x, True))
_double("FresnelSin")(lambda x: _fresnel(x, False))


@_double("Spence")
def spence(x: Any) -> Any:
    """The integral of log(t)/(1 - t) from 1 to x: Li2(1 - x)."""
    inverse = _spence_inside(1 / x)
    large = -inverse - 0.5 * jnp.log(x) ** 2
    return _pieces(x, ((x >= 0) & (x <= 1.5), _spence_inside(x)), ((x > 1.5) & jnp.isfinite(x), large))


def _spence_inside(x: Any) -> Any:
    """The same on [0, 1.5]."""

    def core(w: Any) -> Any:
        return -w * _poly(T.SPENCE, w, -0.5, 0.5)

    log = jnp.log(jnp.where(x == 0, const(1, x), x))
    small = np.pi**2 / 6 - log * jnp.log1p(-x) - core(-x)
    return jnp.where(x < 0.5, small, core(x - 1))
