"""Functions of one argument, element by element, the formulas of their gradients, and activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import integers, jnp, lax, rule
from penstock.engines.xla.values import const, is_complex, is_int, wide
from penstock.ops.nn import SELU_SCALE, SELU_SCALE_ALPHA

# -- arithmetic -------------------------------------------------------------------------------------------------------


@rule("Abs")
def absolute(x: Any) -> Any:
    return jnp.abs(x)


@rule("Neg")
def negative(x: Any) -> Any:
    return jnp.negative(x)


@rule("Sign")
def sign(x: Any) -> Any:
    return jnp.sign(x)


@rule("Square")
def square(x: Any) -> Any:
    return x * x


@rule("Reciprocal", "Inv", raises=integers)
@wide
def reciprocal(x: Any) -> Any:
    return lax.div(jnp.ones_like(x), x)


# -- roots, exponentials, trigonometry --------------------------------------------------------------------------------


@rule("Sqrt")
def sqrt(x: Any) -> Any:
    return jnp.sqrt(x)


@rule("Rsqrt")
@wide
def rsqrt(x: Any) -> Any:
    return const(1, x) / jnp.sqrt(x) if is_complex(x) else lax.rsqrt(x)


@rule("Exp")
@wide
def exp(x: Any) -> Any:
    return jnp.exp(x)


@rule("Expm1")
@wide
def expm1(x: Any) -> Any:
    return jnp.expm1(x)


@rule("Log")
@wide
def log(x: Any) -> Any:
    return jnp.log(x)


@rule("Log1p")
@wide
def log1p(x: Any) -> Any:
    return jnp.log1p(x)


@rule("Sigmoid")
@wide
def sigmoid(x: Any) -> Any:
    return const(1, x) / (const(1, x) + jnp.exp(-x)) if is_complex(x) else lax.logistic(x)


@rule("Sin")
@wide
def sin(x: Any) -> Any:
    return jnp.sin(x)


@rule("Cos")
@wide
def cos(x: Any) -> Any:
    return jnp.cos(x)


@rule("Tan")
@wide
def tan(x: Any) -> Any:
    return jnp.tan(x)


@rule("Asin")
@wide
def asin(x: Any) -> Any:
    return jnp.arcsin(x)


@rule("Acos")
@wide
def acos(x: Any) -> Any:
    return jnp.arccos(x)


@rule("Atan")
@wide
def atan(x: Any) -> Any:
    return jnp.arctan(x)


@rule("Sinh")
@wide
def sinh(x: Any) -> Any:
    return jnp.sinh(x)


@rule("Cosh")
@wide
def cosh(x: Any) -> Any:
    return jnp.cosh(x)


@rule("Tanh")
@wide
def tanh(x: Any) -> Any:
    return jnp.tanh(x)


@rule("Asinh")
@wide
def asinh(x: Any) -> Any:
    return jnp.arcsinh(x)


@rule("Acosh")
@wide
def acosh(x: Any) -> Any:
    return jnp.arccosh(x)


@rule("Atanh")
@wide
def atanh(x: Any) -> Any:
    return jnp.arctanh(x)


# -- the functions that gradients use ---------------------------------------------------------------------------------


def _unless_zero(dy: Any, slope: Any) -> Any:
    return jnp.where(dy == 0, const(0, dy), slope)


@rule("ReciprocalGrad", "InvGrad")
@wide
def reciprocal_grad(y: Any, dy: Any) -> Any:
    need(y.shape == dy.shape, "different shapes")
    y = jnp.conj(y)
    return _unless_zero(dy, -dy * (y * y))


@rule("SqrtGrad")
@wide
def sqrt_grad(y: Any, dy: Any) -> Any:
    need(y.shape == dy.shape, "different shapes")
    return _unless_zero(dy, dy * const(0.5, dy) / jnp.conj(y))


@rule("RsqrtGrad")
@wide
def rsqrt_grad(y: Any, dy: Any) -> Any:
    need(y.shape == dy.shape, "different shapes")
    y = jnp.conj(y)
    return _unless_zero(dy, dy * const(-0.5, dy) * y * (y * y))


@rule("SigmoidGrad")
@wide
def sigmoid_grad(y: Any, dy: Any) -> Any:
    need(y.shape == dy.shape, "different shapes")
    return dy * y * (const(1, y) - y)


@rule("TanhGrad")
@wide
def tanh_grad(y: Any, dy: Any) -> Any:
    need(y.shape == dy.shape, "different shapes")
    return dy * (const(1, y) - y * y)


# -- rounding and tests -----------------------------------------------------------------------------------------------


@rule("Ceil")
def ceil(x: Any) -> Any:
    return lax.ceil(x)


@rule("Floor")
def floor(x: Any) -> Any:
    return lax.floor(x)


@rule("Rint")
def rint(x: Any) -> Any:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


@rule("Round")
def round_half_even(x: Any) -> Any:
    if is_int(x):
        return x
    return lax.complex(rint(jnp.real(x)), rint(jnp.imag(x))) if is_complex(x) else rint(x)


@rule("IsNan")
def is_nan(x: Any) -> Any:
    return jnp.isnan(x)


@rule("IsInf")
def is_inf(x: Any) -> Any:
    return jnp.isinf(x)


@rule("IsFinite")
def is_finite(x: Any) -> Any:
    return jnp.isfinite(x)


@rule("Invert")
def invert(x: Any) -> Any:
    return jnp.bitwise_not(x)


@rule("PopulationCount")
def population_count(x: Any) -> Any:
    return lax.population_count(x).astype(np.uint8)


# -- activations ------------------------------------------------------------------------------------------------------


@rule("Relu")
def relu(x: Any) -> Any:
    return jnp.maximum(x, const(0, x))


@rule("Relu6")
def relu6(x: Any) -> Any:
    return jnp.minimum(jnp.maximum(x, const(0, x)), const(6, x))


@rule("LeakyRelu")
@wide
def leaky_relu(x: Any, *, alpha: float) -> Any:
    return jnp.where(x > 0, x, x * const(np.float32(alpha), x))


@rule("Elu")
@wide
def elu(x: Any) -> Any:
    return jnp.where(x < 0, jnp.expm1(x), x)


@rule("Selu")
@wide
def selu(x: Any) -> Any:
    return jnp.where(x < 0, const(SELU_SCALE_ALPHA, x) * jnp.expm1(x), const(SELU_SCALE, x) * x)


@rule("Softplus")
@wide
def softplus(x: Any) -> Any:
    limit = const(np.log(np.finfo(x.dtype).eps) + 2, x)
    y = jnp.exp(x)
    return jnp.where(x > -limit, x, jnp.where(x < limit, y, jnp.log1p(y)))


@rule("Softsign")
@wide
def softsign(x: Any) -> Any:
    return x / (const(1, x) + jnp.abs(x))


def _masked(gradients: Any, mask: Any) -> Any:
    """gradients * mask: a NaN or an infinity of the gradients is NaN where the mask is 0. Not as a product with a mask, which XLA takes for a choice: 0 * inf would be 0."""
    return jnp.where(mask, gradients, gradients * const(0, gradients))


@rule("ReluGrad")
def relu_grad(gradients: Any, x: Any) -> Any:
    need(x.shape == gradients.shape, "different shapes")
    return _masked(gradients, x > 0)


@rule("Relu6Grad")
def relu6_grad(gradients: Any, x: Any) -> Any:
    need(x.shape == gradients.shape, "different shapes")
    return _masked(gradients, (x > 0) & (x < const(6, x)))


@rule("LeakyReluGrad")
@wide
def leaky_relu_grad(gradients: Any, x: Any, *, alpha: float) -> Any:
    need(x.shape == gradients.shape, "different shapes")
    return jnp.where(x > 0, gradients, gradients * const(np.float32(alpha), x))


@rule("EluGrad")
@wide
def elu_grad(gradients: Any, y: Any) -> Any:
    need(y.shape == gradients.shape, "different shapes")
    return jnp.where(y < 0, (y + const(1, y)) * gradients, gradients)


@rule("SeluGrad")
@wide
def selu_grad(gradients: Any, y: Any) -> Any:
    need(y.shape == gradients.shape, "different shapes")
    return jnp.where(y < 0, (y + const(SELU_SCALE_ALPHA, y)) * gradients, gradients * const(SELU_SCALE, y))


@rule("SoftplusGrad")
@wide
def softplus_grad(gradients: Any, x: Any) -> Any:
    need(x.shape == gradients.shape, "different shapes")
    return gradients / (jnp.exp(-x) + const(1, x))


@rule("SoftsignGrad")
@wide
def softsign_grad(gradients: Any, x: Any) -> Any:
    need(x.shape == gradients.shape, "different shapes")
    d = const(1, x) + jnp.abs(x)
    return gradients / (d * d)
