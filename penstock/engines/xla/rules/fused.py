"""Products with what the optimiser has put behind them."""

from __future__ import annotations

from typing import Any

from penstock.engines.xla.rule import Unsupported, jax, jnp, rule
from penstock.engines.xla.rules.matmul import batch_matmul_v2, matmul
from penstock.ops.fused import split_arguments


def _activate(name: bytes, y: Any, alpha: float) -> Any:
    zero = jnp.zeros((), y.dtype)
    if name == b"Relu":
        return jnp.maximum(y, zero)
    if name == b"Relu6":
        return jnp.clip(y, zero, jnp.asarray(6, y.dtype))
    if name == b"Tanh":
        return jnp.tanh(y)
    if name == b"Sigmoid":
        return jax.nn.sigmoid(y)
    if name == b"Elu":
        return jnp.where(y < 0, jnp.expm1(y), y)
    if name == b"LeakyRelu":
        return jnp.where(y > 0, y, y * jnp.asarray(alpha, y.dtype))
    raise Unsupported(f"{name.decode()} behind a product")


@rule("_FusedMatMul", heavy=True)
def fused_matmul(a: Any, b: Any, args: list[Any], *, transpose_a: bool, transpose_b: bool, fused_ops: list[bytes], leakyrelu_alpha: float) -> Any:
    y = matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    for name, where in split_arguments(fused_ops, len(args)):
        more = args[where]
        y = y + more[0] if name in (b"BiasAdd", b"Add") else _activate(name, y, leakyrelu_alpha)
    return y


@rule("_SumOfProducts", heavy=True)
def sum_of_products(a: list[Any], b: list[Any]) -> Any:
    total = matmul(a[0], b[0], transpose_a=True, transpose_b=False)
    for x, y in zip(a[1:], b[1:], strict=True):
        total = total + matmul(x, y, transpose_a=True, transpose_b=False)
    return total


@rule("_SumOfProductsAndRows", heavy=True)
def sum_of_products_and_rows(a: list[Any], b: list[Any]) -> list[Any]:
    return [sum_of_products(a, b), sum(jnp.sum(y, 0) for y in b)]


@rule("_MatMulColumns", heavy=True)
def matmul_columns(a: Any, b: Any, *, start: int, count: int) -> Any:
    return matmul(a, b[start : start + count], transpose_a=False, transpose_b=True)


@rule("_ScaledBatchMatMul", heavy=True)
def scaled_batch_matmul(x: Any, y: Any, *, adj_x: bool, adj_y: bool, scale: float) -> Any:
    return batch_matmul_v2(x, y, adj_x=adj_x, adj_y=adj_y) * jnp.asarray(scale, x.dtype)


@rule("_LSTMSteps", heavy=True)
def lstm_steps(x: list[Any], c: Any, h: Any, w: Any, b: Any, *, order: list[int], forget_bias: float) -> list[Any]:
    outputs = []
    for one in x:
        gates = jnp.split(matmul(jnp.concatenate([one, h], 1), w, transpose_a=False, transpose_b=False) + b, 4, 1)
        i, j, f, o = (gates[k] for k in order)
        c = c * jax.nn.sigmoid(f + jnp.asarray(forget_bias, f.dtype)) + jax.nn.sigmoid(i) * jnp.tanh(j)
        h = jnp.tanh(c) * jax.nn.sigmoid(o)
        outputs.append(h)
    return [*outputs[::-1], c]


@rule("_LSTMTraining", heavy=True)
def lstm_training(x: list[Any], c: Any, h: Any, w: Any, b: Any, *, order: list[int], forget_bias: float) -> list[Any]:
    *outputs, state = lstm_steps(x, c, h, w, b, order=order, forget_bias=forget_bias)
    return [*outputs, state, jnp.stack(outputs[::-1]), jnp.zeros((0,), jnp.uint8)]


@rule("_LSTMTrainingGrad", heavy=True)
def lstm_training_grad(
    x: list[Any], c: Any, h: Any, w: Any, b: Any, h_all: Any, c_out: Any, workspace: Any, dh: list[Any], dc: list[Any],
    *, order: list[int], forget_bias: float, dh_steps: list[int],
) -> list[Any]:  # fmt: skip
    def forward(x: list[Any], c: Any, h: Any, w: Any, b: Any) -> list[Any]:
        return lstm_steps(x, c, h, w, b, order=order, forget_bias=forget_bias)

    outputs, back = jax.vjp(forward, list(x), c, h, w, b)
    slopes = [jnp.zeros_like(one) for one in outputs]
    for step, slope in zip(dh_steps, dh, strict=True):  # the last output comes first
        slopes[len(x) - 1 - step] = slopes[len(x) - 1 - step] + slope
    slopes[-1] = sum(dc, slopes[-1])
    d_x, d_c, d_h, d_w, d_b = back(slopes)
    return [d_w, d_b, *d_x, d_h, d_c]


@rule("_LayerNorm")
def layer_norm(x: Any, scale: Any, offset: Any, *, epsilon: float) -> list[Any]:
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), -1, keepdims=True)
    factor = jax.lax.rsqrt(variance + jnp.asarray(epsilon, x.dtype)) * scale
    return [x * factor + (offset - mean * factor), mean, variance]


@rule("_LayerNormGrad")
def layer_norm_grad(dy: Any, x: Any, scale: Any, mean: Any, variance: Any, *, epsilon: float) -> list[Any]:
    root = jax.lax.rsqrt(variance + jnp.asarray(epsilon, x.dtype))
    normal, slope = (x - mean) * root, dy * scale
    dx = root * (slope - jnp.mean(slope, -1, keepdims=True) - normal * jnp.mean(slope * normal, -1, keepdims=True))
    others = tuple(range(x.ndim - 1))
    return [dx, jnp.sum(dy * normal, others), jnp.sum(dy, others)]


@rule("_SoftmaxGrad")
def softmax_grad(dy: Any, softmax: Any) -> Any:
    return (dy - jnp.sum(dy * softmax, -1, keepdims=True)) * softmax
