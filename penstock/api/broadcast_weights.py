"""Weights that spread over values: what `tf.losses` and `tf.metrics` ask of their `weights` argument.

Weights are a scalar, or have the rank of the values with every dimension 1 or equal to that of the values. That is less than
NumPy's broadcasting allows: a forgotten dimension must not silently mix up the elements of a batch.
"""

from __future__ import annotations

from typing import Any

from penstock.api import array_ops, math_ops
from penstock.api.control_flow import cond, no_op
from penstock.api.framework import name_scope
from penstock.api.logging_ops import Assert
from penstock.graph.constant import constant_value
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.raw import raw

_REFUSED = "weights can not be broadcast to values."


def assert_broadcastable(weights: Any, values: Any) -> Operation:
    """An op that fails if `weights` do not spread over `values`; ValueError at once where that is already clear."""
    with name_scope(None, "assert_broadcastable", [weights, values]) as scope:
        with name_scope(None, "weights", [weights]) as inner:
            weights = convert_to_tensor(weights, name=inner)
            weights_shape = array_ops.shape(weights, name="shape")
            weights_rank = array_ops.rank(weights, name="rank")
        known_weights_rank = constant_value(weights_rank)
        with name_scope(None, "values", [values]) as inner:
            values = convert_to_tensor(values, name=inner)
            values_shape = array_ops.shape(values, name="shape")
            values_rank = array_ops.rank(values, name="rank")
        known_values_rank = constant_value(values_rank)

        if known_weights_rank is not None and known_values_rank is not None:
            if known_weights_rank == 0:
                return no_op(name="static_scalar_check_success")
            if known_weights_rank != known_values_rank:
                raise ValueError(
                    f"{_REFUSED} values.rank={known_values_rank}. weights.rank={known_weights_rank}. values.shape={values.shape}. "
                    f"weights.shape={weights.shape}. Received weights={weights}, values={values}"
                )
            a, b = constant_value(weights_shape), constant_value(values_shape)
            if a is not None and b is not None:
                for i, (x, y) in enumerate(zip(a, b, strict=True)):
                    if x not in (1, y):
                        raise ValueError(
                            f"{_REFUSED} Mismatch at dim {i}. values.shape={b}, weights.shape={a}. Received weights={weights}, values={values}"
                        )
                return no_op(name="static_dims_check_success")

        is_scalar = raw.Equal(0, weights_rank, name="is_scalar")
        data = [_REFUSED, "weights.shape=", weights.name, weights_shape, "values.shape=", values.name, values_shape, "is_scalar=", is_scalar]
        is_valid = cond(
            is_scalar,
            lambda: is_scalar,
            lambda: _same_rank_and_dims(weights_rank, weights_shape, values_rank, values_shape),
            name="is_valid_shape",
        )
        return Assert(is_valid, data, name=scope)


def _same_rank_and_dims(weights_rank: Tensor, weights_shape: Tensor, values_rank: Tensor, values_shape: Tensor) -> Tensor:
    with name_scope(None, "has_valid_nonscalar_shape", [weights_rank, weights_shape, values_rank, values_shape]) as scope:
        same = raw.Equal(values_rank, weights_rank, name="is_same_rank")
        return cond(same, lambda: _valid_dims(weights_shape, values_shape), lambda: same, name=scope)


def _valid_dims(weights_shape: Tensor, values_shape: Tensor) -> Tensor:
    with name_scope(None, "has_invalid_dims", [weights_shape, values_shape]) as scope:
        column = array_ops.expand_dims(values_shape, -1)
        allowed = array_ops.concat((column, array_ops.ones_like(column)), axis=1)
        bad = raw.DenseToDenseSetOperation(array_ops.expand_dims(weights_shape, -1), allowed, set_operation="a-b")
        count = array_ops.size(bad[1], name="num_invalid_dims")
        return raw.Equal(0, count, name=scope)


def broadcast_weights(weights: Any, values: Any) -> Tensor:
    """`weights` with the shape of `values`."""
    with name_scope(None, "broadcast_weights", [weights, values]) as scope:
        values = convert_to_tensor(values, name="values")
        weights = math_ops.cast(weights, values.dtype.base_dtype)
        a, b = weights.dims, values.dims
        if a is not None and b is not None and None not in a and None not in b and a == b:
            return weights
        with get_default_graph().control_dependencies([assert_broadcastable(weights, values)]):
            return raw.Mul(weights, array_ops.ones_like(values), name=scope)
