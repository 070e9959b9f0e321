"""Comparisons, truth values, bits, and choosing by a condition."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import jnp, rule
from penstock.engines.xla.values import array, const

# -- comparisons ------------------------------------------------------------------------------------------------------


def _fits(x: Any, y: Any) -> bool:
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    return True


@rule("Equal")
def equal(x: Any, y: Any, *, incompatible_shape_error: bool) -> Any:
    if not incompatible_shape_error and not _fits(x, y):
        return np.bool_(False)
    return jnp.equal(array(x), array(y))


@rule("NotEqual")
def not_equal(x: Any, y: Any, *, incompatible_shape_error: bool) -> Any:
    if not incompatible_shape_error and not _fits(x, y):
        return np.bool_(True)
    return jnp.not_equal(array(x), array(y))


@rule("Less")
def less(x: Any, y: Any) -> Any:
    return jnp.less(x, y)


@rule("LessEqual")
def less_equal(x: Any, y: Any) -> Any:
    return jnp.less_equal(x, y)


@rule("Greater")
def greater(x: Any, y: Any) -> Any:
    return jnp.greater(x, y)


@rule("GreaterEqual")
def greater_equal(x: Any, y: Any) -> Any:
    return jnp.greater_equal(x, y)


# -- truth values and bits --------------------------------------------------------------------------------------------


@rule("LogicalAnd")
def logical_and(x: Any, y: Any) -> Any:
    return jnp.logical_and(x, y)


@rule("LogicalOr")
def logical_or(x: Any, y: Any) -> Any:
    return jnp.logical_or(x, y)


@rule("LogicalNot")
def logical_not(x: Any) -> Any:
    return jnp.logical_not(x)


@rule("BitwiseAnd")
def bitwise_and(x: Any, y: Any) -> Any:
    return jnp.bitwise_and(x, y)


@rule("BitwiseOr")
def bitwise_or(x: Any, y: Any) -> Any:
    return jnp.bitwise_or(x, y)


@rule("BitwiseXor")
def bitwise_xor(x: Any, y: Any) -> Any:
    return jnp.bitwise_xor(x, y)


def _shift_count(y: Any) -> Any:
    return jnp.clip(y, const(0, y), const(y.dtype.itemsize * 8 - 1, y))


@rule("LeftShift")
def left_shift(x: Any, y: Any) -> Any:
    return jnp.left_shift(x, _shift_count(y))


@rule("RightShift")
def right_shift(x: Any, y: Any) -> Any:
    return jnp.right_shift(x, _shift_count(y))


# -- choosing ---------------------------------------------------------------------------------------------------------


@rule("SelectV2")
def select_v2(condition: Any, t: Any, e: Any) -> Any:
    return jnp.where(condition, array(t), array(e))


@rule("Select")
def select(condition: Any, t: Any, e: Any) -> Any:
    need(t.shape == e.shape, "different shapes")
    if condition.ndim == 1 and t.ndim > 1:
        need(condition.shape[0] == t.shape[0], "different numbers of rows")
        condition = jnp.reshape(condition, (-1, *[1] * (t.ndim - 1)))
    else:
        need(condition.shape in ((), t.shape), "different shapes")
    return jnp.where(condition, array(t), array(e))
