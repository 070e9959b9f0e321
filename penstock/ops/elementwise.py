"""Elementwise functions of one argument: arithmetic, exponentials, trigonometry, rounding, tests.

Half and bfloat16 are computed in float32 and rounded once, as TF does. Special functions (erf, gamma, Bessel) are in
`special`, conversions and complex parts in `casting`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops import native
from penstock.ops.broadcasting import conj
from penstock.ops.declare import NOT_DIFFERENTIABLE, merge_same, op, same_as
from penstock.ops.kernels.numeric import NARROW, narrow, widen
from penstock.ops.samples import arr, bools, empty, ints, normal, uniform
from penstock.shapes import format_dims

# Samples that many ops share: ordinary numbers, no elements, a scalar, and the values where formulas break.
PLAIN = [dict(x=normal(2, 3)), dict(x=empty(0, 3)), dict(x=normal())]
EDGES = dict(x=arr([float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.0, -1.0, 30.0, -30.0], dtype=np.float32))
POSITIVE = [dict(x=uniform(2, 3, lo=0.1, hi=4)), dict(x=empty(0, 3)), dict(x=uniform(lo=0.1, hi=4))]
UNIT = [dict(x=uniform(2, 3, lo=-0.9, hi=0.9)), dict(x=empty(0, 3)), dict(x=uniform(lo=-0.9, hi=0.9))]


def widened(function: Any) -> Any:
    """A kernel that lifts half and bfloat16 to float32 for `function` and rounds its result back."""

    def kernel(x: Any) -> Any:
        if x.dtype in NARROW:
            return narrow(function(widen(x)), x.dtype)
        return function(x)

    kernel.__name__ = function.__name__
    return kernel


def no_gradient(g: Any, op: Any, dy: Any) -> None:
    """Steps are flat: their gradient is zero almost everywhere, and TF gives none at all."""


# -- arithmetic -------------------------------------------------------------------------------------------------------

op("Abs(x: T) -> (y: T) [T: type in FLOATS|SIGNED_INTS]",
   shape=same_as("x"), numpy=np.absolute,
   grad=lambda g, op, dy: g.Mul(dy, g.Sign(op.x)),
   samples=[*PLAIN, EDGES, dict(x=ints(4, lo=-5, hi=5))])  # fmt: skip

op("Neg(x: T) -> (y: T) [T: type in FLOATS|SIGNED_INTS|COMPLEX]",
   shape=same_as("x"), numpy=np.negative,
   grad=lambda g, op, dy: g.Neg(dy),
   samples=[*PLAIN, EDGES])  # fmt: skip

op("Sign(x: T) -> (y: T) [T: type in FLOATS|SIGNED_INTS|COMPLEX]",
   shape=same_as("x"), numpy=np.sign,
   grad=lambda g, op, dy: g.ZerosLike(op.x),
   samples=[*PLAIN, EDGES, dict(x=ints(5, lo=-2, hi=3))])  # fmt: skip

op("Square(x: T) -> (y: T) [T: type in FLOATS|INTS|COMPLEX]",
   shape=same_as("x"), numpy=np.square,
   grad=lambda g, op, dy: g.Mul(dy, g.Mul(conj(g, op.x), 2)),
   samples=[*PLAIN, EDGES, dict(x=ints(5, lo=-20, hi=20))])  # fmt: skip


def reciprocal(x: Any) -> Any:
    if x.dtype.kind in "iu":
        # 1/x in whole numbers; NumPy's own reciprocal is undefined at 0.
        if not np.all(x):
            raise InvalidArgumentError("Integer division by zero")
        return np.trunc(1 / x).astype(x.dtype)
    return np.reciprocal(x)


def reciprocal_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.ReciprocalGrad(op.y, dy)


op("Reciprocal(x: T) -> (y: T) [T: type in FLOATS|SIGNED_INTS|COMPLEX]",
   shape=same_as("x"), numpy=reciprocal, grad=reciprocal_grad, samples=[*POSITIVE, dict(x=arr([-2.0, 0.0, -0.0, 0.5], dtype=np.float32))])
op("Inv(x: T) -> (y: T) [T: type in FLOATS|SIGNED_INTS|COMPLEX]",
   shape=same_as("x"), numpy=reciprocal, grad=reciprocal_grad, samples=POSITIVE)  # fmt: skip

# -- roots and exponentials -------------------------------------------------------------------------------------------

op("Sqrt(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.sqrt,
   grad=lambda g, op, dy: g.SqrtGrad(op.y, dy),
   samples=[*POSITIVE, EDGES])  # fmt: skip


@widened
@native.looped
def rsqrt(x: Any) -> Any:
    return 1 / np.sqrt(x)


op("Rsqrt(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=rsqrt,
   grad=lambda g, op, dy: g.RsqrtGrad(op.y, dy),
   samples=[*POSITIVE, EDGES])  # fmt: skip

op("Exp(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.exp,
   grad=lambda g, op, dy: g.Mul(dy, conj(g, op.y)),
   samples=[*PLAIN, EDGES])  # fmt: skip

op("Expm1(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.expm1,
   grad=lambda g, op, dy: g.Mul(dy, g.Exp(conj(g, op.x))),
   samples=[*PLAIN, EDGES, dict(x=uniform(3, lo=-1e-4, hi=1e-4))])  # fmt: skip

op("Log(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.log,
   grad=lambda g, op, dy: g.Mul(dy, g.Reciprocal(conj(g, op.x))),
   samples=[*POSITIVE, EDGES])  # fmt: skip



def log1p(x: Any) -> Any:
    """log(1 + x). NumPy's own for complex numbers forgets what is small."""
    if x.dtype.kind != "c":
        return np.log1p(x)
    a, b = np.real(x), np.imag(x)
    near = np.log1p(a * (2 + a) + b * b) / 2 + 1j * np.arctan2(b, 1 + a)
    return np.where(np.abs(x) < 0.5, near, np.log(1 + x)).astype(x.dtype)


op("Log1p(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=log1p,
   grad=lambda g, op, dy: g.Mul(dy, g.Reciprocal(g.AddV2(conj(g, op.x), 1))),
   samples=[*POSITIVE, EDGES, dict(x=uniform(3, lo=-1e-4, hi=1e-4)), dict(x=arr([1e-5 + 1e-5j, 2 + 1j, -0.25j, -3 + 0.5j], dtype=np.complex64)),
            dict(x=arr([1e-12 + 1e-12j, 1e-20 - 3e-9j], dtype=np.complex128))])  # fmt: skip


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), with one temporary array."""
    if x.dtype in NARROW:
        return narrow(sigmoid(widen(x)), x.dtype)
    if x.dtype.kind == "c":  # an infinite exponential has no reciprocal here
        falls = np.real(x) < 0
        y = np.exp(np.where(falls, x, -x))
        return np.where(falls, y, x.dtype.type(1)) / (y + x.dtype.type(1))
    y = np.exp(np.negative(x))
    if y.__class__ is not np.ndarray:
        return np.reciprocal(y + x.dtype.type(1))
    y += 1
    return np.reciprocal(y, out=y)


op("Sigmoid(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=sigmoid,
   grad=lambda g, op, dy: g.SigmoidGrad(conj(g, op.y), dy),
   samples=[*PLAIN, EDGES, dict(x=arr([-100 + 1j, 3 - 2j, 100 - 3j, -0.5j], dtype=np.complex64))])  # fmt: skip

# -- trigonometry -----------------------------------------------------------------------------------------------------

op("Sin(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.sin,
   grad=lambda g, op, dy: g.Mul(dy, g.Cos(conj(g, op.x))),
   samples=[*PLAIN, EDGES])  # fmt: skip

op("Cos(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.cos,
   grad=lambda g, op, dy: g.Mul(g.Neg(dy), g.Sin(conj(g, op.x))),
   samples=[*PLAIN, EDGES])  # fmt: skip

op("Tan(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.tan,
   grad=lambda g, op, dy: g.Mul(dy, g.Square(g.Reciprocal(g.Cos(conj(g, op.x))))),
   samples=PLAIN)  # fmt: skip


def _slope_of_asin(g: Any, op: Any) -> Any:
    return g.Reciprocal(g.Sqrt(g.Sub(g.OnesLike(op.x), g.Square(conj(g, op.x)))))


op("Asin(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.arcsin,
   grad=lambda g, op, dy: g.Mul(dy, _slope_of_asin(g, op)),
   samples=UNIT)  # fmt: skip

op("Acos(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.arccos,
   grad=lambda g, op, dy: g.Mul(g.Neg(dy), _slope_of_asin(g, op)),
   samples=UNIT)  # fmt: skip

op("Atan(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.arctan,
   grad=lambda g, op, dy: g.Mul(dy, g.Reciprocal(g.AddV2(g.Square(conj(g, op.x)), 1))),
   samples=[*PLAIN, EDGES])  # fmt: skip

op("Sinh(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.sinh,
   grad=lambda g, op, dy: g.Mul(dy, g.Cosh(conj(g, op.x))),
   samples=[*PLAIN, EDGES])  # fmt: skip

op("Cosh(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.cosh,
   grad=lambda g, op, dy: g.Mul(dy, g.Sinh(conj(g, op.x))),
   samples=[*PLAIN, EDGES])  # fmt: skip

op("Tanh(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.tanh,
   grad=lambda g, op, dy: g.TanhGrad(conj(g, op.y), dy),
   samples=[*PLAIN, EDGES])  # fmt: skip

op("Asinh(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.arcsinh,
   grad=lambda g, op, dy: g.Div(dy, g.Cosh(conj(g, op.y))),
   samples=PLAIN)  # fmt: skip

op("Acosh(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.arccosh,
   grad=lambda g, op, dy: g.Div(dy, g.Sinh(conj(g, op.y))),
   samples=[dict(x=uniform(2, 3, lo=1.1, hi=5)), dict(x=empty(0, 3)), dict(x=arr([0.5, 1.0, -1.0], dtype=np.float32))])  # fmt: skip

op("Atanh(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
   shape=same_as("x"), numpy=np.arctanh,
   grad=lambda g, op, dy: g.Mul(dy, g.Reciprocal(g.Sub(g.OnesLike(op.x), g.Square(conj(g, op.x))))),
   samples=[*UNIT, dict(x=arr([1.0, -1.0, 2.0], dtype=np.float32))])  # fmt: skip

# -- the functions that gradients use ---------------------------------------------------------------------------------


def from_output(function: Any) -> Any:
    """A kernel `function(y, dy)`, wide inside; both inputs have one shape."""

    def kernel(y: Any, dy: Any) -> Any:
        if y.shape != dy.shape:
            raise InvalidArgumentError(f"Inputs to this operation must have the same shape: {format_dims(y.shape)} vs. {format_dims(dy.shape)}")
        return narrow(function(widen(y), widen(dy)), y.dtype)

    return kernel


def from_output_unless_zero(function: Any) -> Any:
    """As `from_output`, but where dy is 0 the result is 0, whatever y is: an infinite slope that nobody asks for does no harm.
    `function` gets the conjugate of y."""

    def unless_zero(y: Any, dy: Any) -> Any:
        slope = function(_conjugate(y), dy)
        return slope if np.count_nonzero(dy) == dy.size else np.where(dy == 0, dy.dtype.type(0), slope)

    return from_output(unless_zero)


def _conjugate(x: Any) -> Any:
    return np.conj(x) if x.dtype.kind == "c" else x  # NumPy would copy it


PAIR = [dict(y=uniform(2, 3, lo=0.1, hi=0.9), dy=normal(2, 3)), dict(y=empty(0), dy=empty(0)), dict(y=uniform(lo=0.1), dy=normal())]


def _reciprocal_grad_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    y = conj(g, op.y)
    return [g.Mul(g.Mul(g.Mul(conj(g, dz), -2), op.dy), y), g.ReciprocalGrad(y, dz)]


def _reciprocal_slope(y: Any, dy: Any) -> Any:
    return -dy * np.square(y)


op("ReciprocalGrad(y: T, dy: T) -> (z: T) [T: type in FLOATS|COMPLEX]",
   shape=merge_same, numpy=from_output_unless_zero(_reciprocal_slope), grad=_reciprocal_grad_grad, samples=PAIR)
op("InvGrad(y: T, dy: T) -> (z: T) [T: type in FLOATS|COMPLEX]",
   shape=merge_same, numpy=from_output_unless_zero(_reciprocal_slope), grad=_reciprocal_grad_grad, samples=PAIR)  # fmt: skip


def _sqrt_grad_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    ga = g.RealDiv(dz, op.y)
    return [g.Mul(g.Neg(conj(g, ga)), op.z), g.Mul(ga, 0.5)]


op("SqrtGrad(y: T, dy: T) -> (z: T) [T: type in FLOATS|COMPLEX]",
   shape=merge_same, numpy=from_output_unless_zero(lambda y, dy: dy * dy.dtype.type(0.5) / y), grad=_sqrt_grad_grad, samples=PAIR)  # fmt: skip


def _rsqrt_grad_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    y = conj(g, op.y)
    return [g.Mul(g.Mul(g.Mul(conj(g, dz), -1.5), op.dy), g.Square(y)), g.RsqrtGrad(y, dz)]


op("RsqrtGrad(y: T, dy: T) -> (z: T) [T: type in FLOATS|COMPLEX]",
   shape=merge_same,
   numpy=from_output_unless_zero(lambda y, dy: dy * dy.dtype.type(-0.5) * y * np.square(y)),
   grad=_rsqrt_grad_grad, samples=PAIR)  # fmt: skip


def _sigmoid_grad_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    y, dy = conj(g, op.y), conj(g, op.dy)
    gb = g.Mul(dz, dy)
    return [g.Sub(gb, g.Mul(g.Mul(gb, 2), y)), g.SigmoidGrad(y, dz)]


op("SigmoidGrad(y: T, dy: T) -> (z: T) [T: type in FLOATS|COMPLEX]",
   shape=merge_same, numpy=from_output(lambda y, dy: dy * y * (y.dtype.type(1) - y)), grad=_sigmoid_grad_grad, samples=PAIR)  # fmt: skip


def _tanh_grad_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    y, dy = conj(g, op.y), conj(g, op.dy)
    return [g.Mul(g.Mul(g.Mul(dz, -2), dy), y), g.TanhGrad(y, dz)]


op("TanhGrad(y: T, dy: T) -> (z: T) [T: type in FLOATS|COMPLEX]",
   shape=merge_same, numpy=from_output(lambda y, dy: dy * (y.dtype.type(1) - y * y)), grad=_tanh_grad_grad, samples=PAIR)  # fmt: skip

# -- rounding and tests -----------------------------------------------------------------------------------------------

HALVES = dict(x=arr([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, -0.2]))

op("Ceil(x: T) -> (y: T) [T: type in FLOATS]", shape=same_as("x"), numpy=np.ceil, grad=no_gradient, samples=[*PLAIN, HALVES, EDGES])
op("Floor(x: T) -> (y: T) [T: type in FLOATS]", shape=same_as("x"), numpy=np.floor, grad=no_gradient, samples=[*PLAIN, HALVES, EDGES])
op("Rint(x: T) -> (y: T) [T: type in FLOATS]", shape=same_as("x"), numpy=np.rint, grad=no_gradient, samples=[*PLAIN, HALVES, EDGES])


def round_half_even(x: Any) -> Any:
    return x if x.dtype.kind in "iu" else np.rint(x)


op("Round(x: T) -> (y: T) [T: type in FLOATS|SIGNED_INTS|COMPLEX]",
   shape=same_as("x"), numpy=round_half_even, grad=no_gradient,
   # TF 2.21 itself gets whole numbers wrong (it gives zeros), so samples name the types where it is right.
   samples=[EDGES, dict(x=normal(2, 3, scale=4, dtype=np.float32)), dict(x=arr([-2.5, -0.5, 0.5, 1.5], dtype=np.float64)),
            dict(x=normal(3, scale=4, dtype=np.complex64)), dict(x=empty(0, dtype=np.float16))])  # fmt: skip

op("IsNan(x: T) -> (y: bool) [T: type in FLOATS]", shape=same_as("x"), numpy=np.isnan, grad=NOT_DIFFERENTIABLE, samples=[*PLAIN, EDGES])
op("IsInf(x: T) -> (y: bool) [T: type in FLOATS]", shape=same_as("x"), numpy=np.isinf, grad=NOT_DIFFERENTIABLE, samples=[*PLAIN, EDGES])
op("IsFinite(x: T) -> (y: bool) [T: type in FLOATS]", shape=same_as("x"), numpy=np.isfinite, grad=NOT_DIFFERENTIABLE, samples=[*PLAIN, EDGES])

# -- bits and truth values --------------------------------------------------------------------------------------------

op("LogicalNot(x: bool) -> (y: bool)",
   shape=same_as("x"), numpy=np.logical_not, grad=NOT_DIFFERENTIABLE, samples=[dict(x=bools(2, 3)), dict(x=bools()), dict(x=bools(0))])

op("Invert(x: T) -> (y: T) [T: type in INTS]",
   shape=same_as("x"), numpy=np.invert, grad=NOT_DIFFERENTIABLE, samples=[dict(x=ints(2, 3, lo=-99, hi=99)), dict(x=empty(0))])  # fmt: skip


def population_count(x: Any) -> Any:
    # NumPy counts the bits of |x|; TF those of the two's complement.
    return np.bitwise_count(x.view(f"u{x.dtype.itemsize}"))


op("PopulationCount(x: T) -> (y: uint8) [T: type in INTS]",
   shape=same_as("x"), numpy=population_count, grad=NOT_DIFFERENTIABLE,
   samples=[dict(x=ints(2, 3, lo=-99, hi=99)), dict(x=arr([-1, 0, 1, 127])), dict(x=empty(0))])  # fmt: skip
