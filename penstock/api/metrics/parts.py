"""What all metrics are made of: their variables, their collections, safe division."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api import array_ops, math_ops
from penstock.api.check_ops import assert_rank_in
from penstock.api.variables import Variable, VariableAggregation, VariableSynchronization
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.keys import GraphKeys
from penstock.graph.raw import raw

#: Keeps divisions finite where a count may be 0.
EPSILON = 1e-7


def metric_variable(shape: Any, dtype: Any, name: str, validate_shape: bool = True) -> Any:
    """A local variable of zeros in the collections of metrics."""
    return Variable(
        lambda: array_ops.zeros(shape, dtype), trainable=False, collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES],
        validate_shape=validate_shape, synchronization=VariableSynchronization.ON_READ, aggregation=VariableAggregation.SUM, name=name,
    )  # fmt: skip


def collect(value: Any, update_op: Any, metrics_collections: Any, updates_collections: Any) -> tuple[Any, Any]:
    """`(value, update_op)`, each added to its collections."""
    graph = get_default_graph()
    if metrics_collections:
        graph.add_to_collections(metrics_collections, value)
    if updates_collections:
        graph.add_to_collections(updates_collections, update_op)
    return value, update_op


def ratio(numerator: Any, denominator: Any, name: str | None = None) -> Tensor:
    """The quotient, 0 where the denominator is not above 0."""
    return math_ops.div_no_nan(numerator, raw.Maximum(denominator, 0), name=name)


def times_weights(values: Tensor, weights: Any) -> Tensor:
    """`values * weights`, for weights that are a scalar or have the rank of the values."""
    with get_default_graph().control_dependencies((assert_rank_in(weights, (0, array_ops.rank(values))),)):
        return raw.Mul(values, math_ops.cast(weights, dtypes.float32))
