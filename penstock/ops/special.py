"""Special functions: error functions, gamma, Bessel and their relatives. The formulas are in `kernels.special` and
`kernels.incomplete`; nearly everything is computed in double precision and rounded once. Arrays take loops in machine code where the CPU has them."""

from __future__ import annotations

import math
from inspect import signature
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.broadcasting import broadcast_shape, conj, reduce_to
from penstock.ops.declare import broadcast as broadcast_rule
from penstock.ops.declare import op, same_as
from penstock.ops.elementwise import PLAIN, POSITIVE, UNIT
from penstock.ops.kernels import incomplete, special
from penstock.ops.kernels.numeric import BFLOAT16, narrow, widen
from penstock.ops.native.vectors import rounding_of
from penstock.ops.samples import arr, empty, ints, uniform
from penstock.shapes import Dims, broadcast_dims

NAN, INF = float("nan"), float("inf")


def unary(function: Any, single: Any = None, limit: float = math.inf) -> Any:
    """A kernel that computes in float64 and gives back the type it got. `single`: a formula for float32 that needs no more than its precision.
    NumPy takes arrays with larger numbers than `limit`."""
    double = native.Loop(function)
    quick = native.Loop(single, "f32") if single else None

    def kernel(x: Any) -> Any:
        if x.size >= native.SMALL and (limit == math.inf or not np.abs(x).max() > limit):
            found = double.run(x if x.dtype != BFLOAT16 else widen(x)) if quick is None or x.itemsize == 8 else quick.run(x)
            if found is not None:
                return narrow(found, x.dtype)
        return incomplete.flattened(function, x).astype(x.dtype)

    kernel.__name__ = function.__name__
    return kernel


def joint(function: Any) -> Any:
    """The same for functions of several arguments, which broadcast, and which may stop earlier for single precision."""
    double = native.Loop(function)
    single = native.Loop(lambda *values: function(*values, eps=incomplete.SINGLE)) if "eps" in signature(function).parameters else double

    def kernel(*values: Any) -> Any:
        broadcast_shape(values[0], values[1])
        if max(v.size for v in values) >= native.SMALL:
            loop = double if values[0].itemsize == 8 else single
            found = loop.run(*map(widen, values))
            if found is not None:
                return narrow(found, values[0].dtype)
        return incomplete.flattened(function, *values).astype(values[0].dtype)

    return kernel


def like(g: Any, x: Any, number: float) -> Any:
    """A constant of x's type in a gradient."""
    return g.const(number, x.dtype)


# -- error functions --------------------------------------------------------------------------------------------------

# Rational fit of erf(x)/x in x^2 on |x| <= 3.92, where float32 reaches 1: one pass without branches, highest power first.
_TOP = (2.0500962753856247e-06, 0.00028488247213427664, 0.0037655906546548404, 0.052748640190473824, 0.19040580949217895, 1.128379146138593)
_BOTTOM = (3.80917959967723e-05, 0.001162529827635613, 0.014969162563676646, 0.11410884400543804, 0.5020754960508083, 1.0)


def _float_poly(coefficients: tuple[float, ...], u: np.ndarray) -> np.ndarray:
    result = np.full_like(u, coefficients[0])
    for c in coefficients[1:]:
        result *= u
        result += np.float32(c)
    return result


def _erf_single(x: Any) -> Any:
    """In float32."""
    y = np.clip(x, np.float32(-3.92), np.float32(3.92))
    u = y * y
    ratio = _float_poly(_TOP, u) / _float_poly(_BOTTOM, u)
    # At the end of the fit the true value rounds to 1, whatever the polynomials' own rounding says.
    return np.where(np.abs(y) >= np.float32(3.9), np.sign(y), np.clip(y * ratio, np.float32(-1), np.float32(1)))


_erf_loop = native.Loop(_erf_single, "f32")


def erf_kernel(x: Any) -> Any:
    if x.dtype not in (np.float32, BFLOAT16) or (x.dtype == BFLOAT16 and x.size < native.SMALL):  # halves have a tie that takes more than single precision
        return _erf_double(x)
    found = _erf_loop.run(x) if x.size >= native.SMALL else None
    return _erf_single(np.asarray(x)) if found is None else found


_erf_double = unary(special.erf)

# exp(x^2) erfc(x) (1 + 2x) in (x - 2)/(x + 2) on 0 <= x <= 11, where float32 has reached 0.
_ERFC = (3.432122895410953e-05, -0.00034707598560619894, -0.001249089905399123, 0.0012593480419220034, 0.0086308188854291, -0.00804120669461172,
         -0.05420277869620139, 0.16405290998671984, -0.16603157538573168, -0.09276389387840353, 1.2769783949870062)  # fmt: skip


def _erfc_single(x: Any) -> Any:
    """In float32, for loops only."""
    a = np.clip(np.abs(x), 0.0, 11.0)
    square = a * a
    tail = np.exp(-square) * (1 - rounding_of(square)) * _float_poly(_ERFC, (a - 2) / (a + 2)) / (1 + 2 * a)
    return np.where(x < 0, 2 - tail, tail)


def _gaussian(g: Any, x: Any, factor: float) -> Any:
    """factor * exp(-x^2)."""
    return g.Mul(g.Exp(g.Neg(g.Square(x))), like(g, x, factor))


ERRORS = [*PLAIN, dict(x=uniform(4, lo=-6, hi=6)), dict(x=arr([0.0, 1e-5, 0.5, 1, 2, 3.5, -0.25]))]

op("Erf(x: T) -> (y: T) [T: type in FLOATS]",
   shape=same_as("x"), numpy=erf_kernel, samples=ERRORS,
   grad=lambda g, op, dy: g.Mul(dy, _gaussian(g, conj(g, op.x), 2 / math.sqrt(math.pi))))
op("Erfc(x: T) -> (y: T) [T: type in FLOATS]",
   shape=same_as("x"), numpy=unary(special.erfc, _erfc_single), samples=ERRORS,
   grad=lambda g, op, dy: g.Mul(dy, _gaussian(g, conj(g, op.x), -2 / math.sqrt(math.pi))))
op("Erfinv(x: T) -> (y: T) [T: type in FLOATS]",
   shape=same_as("x"), numpy=unary(special.erfinv), samples=[*UNIT, dict(x=arr([-1.0, 1.0, 0.0, 2.0], dtype=np.float32))],
   grad=lambda g, op, dy: g.Mul(g.Mul(dy, like(g, dy, math.sqrt(math.pi) / 2)), g.Exp(g.Square(op.y))))
op("Ndtri(x: T) -> (y: T) [T: type in FLOATS]",
   shape=same_as("x"), numpy=unary(special.ndtri), samples=[dict(x=uniform(2, 3)), dict(x=empty(0)), dict(x=arr([0.0, 1.0, 0.5, 2.0, 1e-10], dtype=np.float32))],
   grad=lambda g, op, dy: g.Mul(g.Mul(dy, like(g, dy, math.sqrt(2 * math.pi))), g.Exp(g.Mul(g.Square(op.y), like(g, dy, 0.5)))))  # fmt: skip

# -- gamma ------------------------------------------------------------------------------------------------------------

GAMMAS = [dict(x=uniform(2, 3, lo=0.1, hi=20)), dict(x=empty(0)), dict(x=uniform(lo=0.1, hi=3)), dict(x=arr([-1.5, -0.25, 3.0, 100.0], dtype=np.float64))]

op("Lgamma(x: T) -> (y: T) [T: type in FLOATS]",
   shape=same_as("x"), numpy=unary(special.lgamma), samples=[*GAMMAS, dict(x=arr([0.0, -1.0, 1.0, 2.0, INF], dtype=np.float32))],
   grad=lambda g, op, dy: g.Mul(dy, g.Digamma(op.x)))
op("Digamma(x: T) -> (y: T) [T: type in FLOATS]",
   shape=same_as("x"), numpy=unary(special.digamma), samples=[*GAMMAS, dict(x=arr([0.0, -1.0, NAN], dtype=np.float32))],
   grad=lambda g, op, dy: g.Mul(dy, g.Polygamma(like(g, op.x, 1), op.x)))  # fmt: skip


def polygamma_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    return [None, reduce_to(g, op.a, op.x, None, lambda: g.Mul(dz, g.Polygamma(g.AddV2(op.a, 1), op.x)))[1]]


def zeta_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    slope = lambda: g.Mul(dz, g.Mul(g.Neg(op.x), g.Zeta(g.AddV2(op.x, 1), op.q)))  # noqa: E731
    return [None, reduce_to(g, op.x, op.q, None, slope)[1]]


op("Polygamma(a: T, x: T) -> (z: T) [T: type in {float, double}]",
   shape=broadcast_rule, numpy=joint(incomplete.polygamma), grad=polygamma_grad,
   samples=[dict(a=ints(2, 3, lo=0, hi=4), x=uniform(2, 3, lo=0.5, hi=9)), dict(a=arr(1), x=uniform(3, lo=0.5)), dict(a=arr([0.5, -1.0, 1.0]), x=arr([1.0, 1.0, -1.5])), dict(a=empty(0), x=arr(1.0))])
op("Zeta(x: T, q: T) -> (z: T) [T: type in {float, double}]",
   shape=broadcast_rule, numpy=joint(incomplete.zeta), grad=zeta_grad,
   samples=[dict(x=uniform(2, 3, lo=1.5, hi=9), q=uniform(2, 3, lo=0.5, hi=5)), dict(x=arr(2.0), q=uniform(3, lo=0.5)), dict(x=arr([1, 0.5, 2.5, 3]), q=arr([1, 1, -1.5, -1.5]))])


def igamma_grad(sign: int) -> Any:
    """By x: x^(a-1) exp(-x) / gamma(a); by a: IgammaGradA."""

    def rule(g: Any, op: Any, dz: Any) -> list[Any]:
        a, x = op.a, op.x

        def by_a() -> Any:
            slope = g.Mul(dz, g.IgammaGradA(a, x))
            return slope if sign > 0 else g.Neg(slope)

        def by_x() -> Any:
            density = g.Exp(g.Sub(g.Sub(g.Mul(g.Sub(a, like(g, a, 1)), g.Log(x)), x), g.Lgamma(a)))
            slope = g.Mul(dz, density)
            return slope if sign > 0 else g.Neg(slope)

        return reduce_to(g, a, x, by_a, by_x)

    return rule


INCOMPLETE = [dict(a=uniform(2, 3, lo=0.2, hi=6), x=uniform(2, 3, lo=0.2, hi=9)), dict(a=uniform(3, lo=0.5, hi=3), x=arr(2.0)), dict(a=arr([50.0, 50.0, 2.0]), x=arr([40.0, 60.0, 0.0])), dict(a=empty(0), x=arr(1.0))]  # fmt: skip
op("Igamma(a: T, x: T) -> (z: T) [T: type in FLOATS]", shape=broadcast_rule, numpy=joint(incomplete.igamma), grad=igamma_grad(1), samples=INCOMPLETE)
op("Igammac(a: T, x: T) -> (z: T) [T: type in FLOATS]", shape=broadcast_rule, numpy=joint(incomplete.igammac), grad=igamma_grad(-1), samples=INCOMPLETE)
op("IgammaGradA(a: T, x: T) -> (z: T) [T: type in {float, double}]", shape=broadcast_rule, numpy=joint(incomplete.igamma_grad_a), samples=INCOMPLETE)


def betainc_shape(c: Any) -> Dims:
    return broadcast_dims(broadcast_dims(c.dims(0), c.dims(1)), c.dims(2))


def betainc_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    a, b, x = op.a, op.b, op.x
    log_beta = g.Sub(g.AddV2(g.Lgamma(a), g.Lgamma(b)), g.Lgamma(g.AddV2(a, b)))
    # xlogy keeps the slope finite at the ends of the interval.
    one = like(g, a, 1)
    slope = g.Exp(g.Sub(g.AddV2(g.Xlog1py(g.Sub(b, one), g.Neg(x)), g.Xlogy(g.Sub(a, one), x)), log_beta))
    return [None, None, g.Reshape(g.Mul(slope, dz), g.Shape(x))]


op("Betainc(a: T, b: T, x: T) -> (z: T) [T: type in {float, double}]",
   shape=betainc_shape, numpy=joint(incomplete.betainc), grad=betainc_grad,
   samples=[dict(a=uniform(2, 3, lo=0.2, hi=6), b=uniform(2, 3, lo=0.2, hi=6), x=uniform(2, 3)), dict(a=arr(2.0), b=arr(3.0), x=uniform(4)),
            dict(a=arr([1.0, 1, 1, 0, -1]), b=arr([1.0, 1, 1, 1, 1]), x=arr([0.0, 1, 2, 0.5, 0.5]))])  # fmt: skip

# -- Bessel -----------------------------------------------------------------------------------------------------------


def _safe(g: Any, op: Any, formula: Any) -> Any:
    """The formula, and 1/2 at x = 0, where it would divide by zero."""
    x = op.x
    zero = g.Equal(x, like(g, x, 0))
    away = g.SelectV2(zero, g.OnesLike(x), x)
    return g.SelectV2(zero, g.Cast(g.Mul(g.OnesLike(x), like(g, x, 0.5)), DstT=x.dtype.base_dtype), formula(away))


def i0_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.Mul(dy, g.BesselI1(op.x))


def i0e_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.Mul(dy, g.Sub(g.BesselI1e(op.x), g.Mul(g.Sign(op.x), op.y)))


def i1_grad(g: Any, op: Any, dy: Any) -> Any:
    x = op.x
    zero = g.Equal(x, like(g, x, 0))
    # I1(x)/x goes to 1/2, and so I0(x) - I1(x)/x to 1/2; TF takes the value 1 there.
    slope = g.SelectV2(zero, g.OnesLike(x), g.Sub(g.BesselI0(x), g.RealDiv(op.y, x)))
    return g.Mul(dy, slope)


def i1e_grad(g: Any, op: Any, dy: Any) -> Any:
    y = op.y
    return g.Mul(dy, _safe(g, op, lambda x: g.Sub(g.BesselI0e(x), g.Mul(y, g.AddV2(g.Sign(x), g.Reciprocal(x))))))


def k0_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.Mul(dy, g.Neg(g.BesselK1(op.x)))


def k0e_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.Mul(dy, g.Sub(op.y, g.BesselK1e(op.x)))


def k1_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.Mul(dy, g.Sub(g.Neg(g.BesselK0(op.x)), g.RealDiv(op.y, op.x)))


def k1e_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.Mul(dy, g.Sub(g.Mul(op.y, g.Sub(g.OnesLike(op.x), g.Reciprocal(op.x))), g.BesselK0e(op.x)))


def j0_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.Mul(dy, g.Neg(g.BesselJ1(op.x)))


def j1_grad(g: Any, op: Any, dy: Any) -> Any:
    y = op.y
    return g.Mul(dy, _safe(g, op, lambda x: g.Sub(g.BesselJ0(x), g.RealDiv(y, x))))


def y0_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.Mul(dy, g.Neg(g.BesselY1(op.x)))


def y1_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.Mul(dy, g.Sub(g.BesselY0(op.x), g.RealDiv(op.y, op.x)))


# Beyond that, sine and cosine need more of pi than the loops have.
WAVES: dict[str, float] = dict.fromkeys(("BesselJ0", "BesselJ1", "BesselY0", "BesselY1"), 1e8)
BOTH_SIDES = [*PLAIN, dict(x=uniform(6, lo=-20, hi=20)), dict(x=arr([0.0, 8.0, -8.5, 2.0]))]
RIGHT_SIDE = [*POSITIVE, dict(x=uniform(6, lo=0.1, hi=20)), dict(x=arr([0.0, -1.0], dtype=np.float64))]
for _name, _function, _gradient, _samples in (
    ("BesselI0", special.i0, i0_grad, PLAIN), ("BesselI0e", special.i0e, i0e_grad, BOTH_SIDES), ("BesselI1", special.i1, i1_grad, PLAIN),
    ("BesselI1e", special.i1e, i1e_grad, BOTH_SIDES), ("BesselJ0", special.j0, j0_grad, BOTH_SIDES), ("BesselJ1", special.j1, j1_grad, BOTH_SIDES),
    ("BesselK0", special.k0, k0_grad, RIGHT_SIDE), ("BesselK0e", special.k0e, k0e_grad, RIGHT_SIDE), ("BesselK1", special.k1, k1_grad, RIGHT_SIDE),
    ("BesselK1e", special.k1e, k1e_grad, RIGHT_SIDE), ("BesselY0", special.y0, y0_grad, RIGHT_SIDE), ("BesselY1", special.y1, y1_grad, RIGHT_SIDE),
):  # fmt: skip
    op(f"{_name}(x: T) -> (y: T) [T: type in FLOATS]", shape=same_as("x"), numpy=unary(_function, limit=WAVES.get(_name, math.inf)), grad=_gradient, samples=_samples)

# -- integrals --------------------------------------------------------------------------------------------------------


def dawsn_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.Mul(dy, g.Sub(g.OnesLike(op.x), g.Mul(g.Mul(op.x, like(g, op.x, 2)), op.y)))


def expint_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.Mul(dy, g.RealDiv(g.Exp(op.x), op.x))


def fresnel_grad(wave: str) -> Any:
    return lambda g, op, dy: g.Mul(dy, getattr(g, wave)(g.Mul(g.Square(op.x), like(g, op.x, math.pi / 2))))


def spence_grad(g: Any, op: Any, dy: Any) -> Any:
    x, one = op.x, g.OnesLike(op.x)
    slope = g.RealDiv(g.Log(x), g.Sub(one, x))
    return g.Mul(dy, g.SelectV2(g.Equal(x, one), g.Neg(one), slope))


op("Dawsn(x: T) -> (y: T) [T: type in FLOATS]", shape=same_as("x"), numpy=unary(special.dawsn), grad=dawsn_grad, samples=BOTH_SIDES)
op("Expint(x: T) -> (y: T) [T: type in FLOATS]", shape=same_as("x"), numpy=unary(special.expint), grad=expint_grad,
   samples=[*POSITIVE, dict(x=uniform(6, lo=0.1, hi=9)), dict(x=arr([0.0, -1.0, 60.0], dtype=np.float32))])
op("FresnelCos(x: T) -> (y: T) [T: type in FLOATS]", shape=same_as("x"), numpy=unary(special.fresnel_cos), grad=fresnel_grad("Cos"), samples=[*PLAIN, dict(x=uniform(6, lo=-6, hi=6))])
op("FresnelSin(x: T) -> (y: T) [T: type in FLOATS]", shape=same_as("x"), numpy=unary(special.fresnel_sin), grad=fresnel_grad("Sin"), samples=[*PLAIN, dict(x=uniform(6, lo=-6, hi=6))])
op("Spence(x: T) -> (y: T) [T: type in FLOATS]", shape=same_as("x"), numpy=unary(special.spence), grad=spence_grad,
   samples=[*POSITIVE, dict(x=uniform(6, lo=0, hi=9)), dict(x=arr([0.0, 1.0, -1.0, 2.0], dtype=np.float32))])

