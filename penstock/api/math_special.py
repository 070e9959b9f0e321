"""Special functions of the public API (tf.erf, tf.lgamma, tf.igamma, tf.math.special.*, ...)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.api.math_ops import map_values
from penstock.api.math_reduce import reduce_node
from penstock.graph.composite import SparseTensor
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def _plain(op_type: str, *names: str, doc: str) -> Callable[..., Any]:
    """A function whose node is named after the op."""

    def function(x: Any, name: str | None = None) -> Any:
        if x.__class__ is SparseTensor:
            return map_values(function, x, name)
        return getattr(raw, op_type)(x, name=name)

    function.__name__ = function.__qualname__ = names[0].rpartition(".")[2]
    function.__doc__ = doc
    return export(*names)(function)


def _scoped(op_type: str, *names: str, doc: str) -> Callable[..., Any]:
    """A function whose node stands in a scope of its own, as newer TF functions do."""
    scope = names[0].rpartition(".")[2]

    def function(x: Any, name: str | None = None) -> Any:
        with name_scope(name, scope, [x]):
            return getattr(raw, op_type)(x)

    function.__name__ = function.__qualname__ = scope
    function.__doc__ = doc
    return export(*names)(function)


erf = _plain("Erf", "erf", "math.erf", doc="The error function, elementwise.")
erfc = _plain("Erfc", "erfc", "math.erfc", doc="1 - erf(x), accurate for large x.")
lgamma = _plain("Lgamma", "lgamma", "math.lgamma", doc="The logarithm of |gamma(x)|.")
digamma = _plain("Digamma", "digamma", "math.digamma", doc="The derivative of lgamma.")
ndtri = _scoped("Ndtri", "math.ndtri", doc="The quantile function of the normal distribution.")
erfinv = _scoped("Erfinv", "math.erfinv", doc="The inverse of erf.")

for _name, _op in (("bessel_i0", "BesselI0"), ("bessel_i0e", "BesselI0e"), ("bessel_i1", "BesselI1"), ("bessel_i1e", "BesselI1e")):
    _scoped(_op, f"math.{_name}", f"math.special.{_name}", doc=f"The modified Bessel function {_op[6:]}; an e means times exp(-|x|).")
for _name, _op in (("k0", "BesselK0"), ("k0e", "BesselK0e"), ("k1", "BesselK1"), ("k1e", "BesselK1e")):
    _scoped(_op, f"math.special.bessel_{_name}", doc=f"The modified Bessel function {_op[6:]} of the second kind; an e means times exp(x).")
for _name, _op in (("j0", "BesselJ0"), ("j1", "BesselJ1"), ("y0", "BesselY0"), ("y1", "BesselY1")):
    _scoped(_op, f"math.special.bessel_{_name}", doc=f"The Bessel function {_op[6:]}.")
dawsn = _scoped("Dawsn", "math.special.dawsn", doc="Dawson's integral: exp(-x^2) times the integral of exp(t^2) from 0 to x.")
expint = _scoped("Expint", "math.special.expint", doc="The exponential integral Ei(x).")
fresnel_cos = _scoped("FresnelCos", "math.special.fresnel_cos", doc="Fresnel's integral of cos(pi t^2 / 2) from 0 to x.")
fresnel_sin = _scoped("FresnelSin", "math.special.fresnel_sin", doc="Fresnel's integral of sin(pi t^2 / 2) from 0 to x.")
spence = _scoped("Spence", "math.special.spence", doc="Spence's integral, Li2(1 - x).")


@export("math.erfcinv")
def erfcinv(x: Any, name: str | None = None) -> Tensor:
    """The inverse of erfc."""
    with name_scope(name, "erfcinv", [x]):
        x = convert_to_tensor(x, name="start")
        return -ndtri(0.5 * x) * np.sqrt(0.5)  # type: ignore[operator]


@export("igamma", "math.igamma")
def igamma(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The lower regularised incomplete gamma function P(a, x)."""
    return raw.Igamma(a, x, name=name)


@export("igammac", "math.igammac")
def igammac(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The upper regularised incomplete gamma function Q(a, x) = 1 - P(a, x)."""
    return raw.Igammac(a, x, name=name)


@export("polygamma", "math.polygamma")
def polygamma(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The a-th derivative of digamma at x."""
    return raw.Polygamma(a, x, name=name)


@export("zeta", "math.zeta")
def zeta(x: Any, q: Any, name: str | None = None) -> Tensor:
    """Hurwitz' zeta function: the sum of (q + k)^-x over k >= 0."""
    return raw.Zeta(x, q, name=name)


@export("betainc", "math.betainc")
def betainc(a: Any, b: Any, x: Any, name: str | None = None) -> Tensor:
    """The regularised incomplete beta function I_x(a, b)."""
    return raw.Betainc(a, b, x, name=name)


@export("lbeta", "math.lbeta")
def lbeta(x: Any, name: str | None = None) -> Tensor:
    """The logarithm of the multivariate beta function over the last axis."""
    with name_scope(name, "lbeta", [x]):
        x = convert_to_tensor(x, name="x")
        logs = reduce_node("Sum", raw.Lgamma(x), -1, False)
        return logs - raw.Lgamma(reduce_node("Sum", x, -1, False))  # type: ignore[operator]
