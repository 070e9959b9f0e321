"""Products with what the optimiser has put behind them."""

from __future__ import annotations

from typing import Any

from penstock.engines.xla.rule import Unsupported, jax, jnp, rule
from penstock.engines.xla.rules.matmul import matmul
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


@rule("_MatMulColumns", heavy=True)
def matmul_columns(a: Any, b: Any, *, start: int, count: int) -> Any:
    return matmul(a, b[start : start + count], transpose_a=False, transpose_b=True)
