"""Metrics of a yes-or-no prediction: true and false positives and negatives, precision, recall."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api import array_ops, math_ops, math_reduce
from penstock.api.array_indexing import where
from penstock.api.check_ops import assert_type
from penstock.api.metrics.parts import collect, metric_variable, times_weights
from penstock.api.squeezable import remove_for_metric
from penstock.api.state_ops import assign_add
from penstock.api.variable_scope import variable_scope
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def _count(condition: Tensor, weights: Any, metrics_collections: Any, updates_collections: Any) -> tuple[Tensor, Tensor]:
    """How often `condition` held, in a variable called "count"."""
    assert_type(condition, dtypes.bool)
    count = metric_variable([], dtypes.float32, name="count")
    values = math_ops.cast(condition, dtypes.float32)
    if weights is not None:
        values = times_weights(values, weights)
    value = array_ops.identity(count)
    update_op = assign_add(count, math_reduce.reduce_sum(values))
    return collect(value, update_op, metrics_collections, updates_collections)


def _cell(label: bool, prediction: bool, default: str, doc: str) -> Any:
    """The metric that counts one cell of the two-by-two confusion matrix."""

    def function(
        labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
        name: str | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        with variable_scope(name, default, (predictions, labels, weights)):
            predictions, labels, weights = remove_for_metric(
                math_ops.cast(predictions, dtypes.bool), math_ops.cast(labels, dtypes.bool), weights
            )
            condition = raw.LogicalAnd(raw.Equal(labels, label), raw.Equal(predictions, prediction))
            return _count(condition, weights, metrics_collections, updates_collections)

    function.__name__ = function.__qualname__ = default
    function.__doc__ = f"{doc} Labels and predictions are cast to bool."
    return function


true_positives = _cell(True, True, "true_positives", "How often label and prediction are both true.")
true_negatives = _cell(False, False, "true_negatives", "How often label and prediction are both false.")
false_positives = _cell(False, True, "false_positives", "How often the prediction is true, but the label false.")
false_negatives = _cell(True, False, "false_negatives", "How often the prediction is false, but the label true.")


def _share(hits: Any, misses: Any, name: str) -> Tensor:
    return where(raw.Greater(hits + misses, 0), math_ops.divide(hits, hits + misses), 0, name)


def precision(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """True positives / (true positives + false positives), 0 where nothing was predicted."""
    with variable_scope(name, "precision", (predictions, labels, weights)):
        predictions, labels, weights = remove_for_metric(
            math_ops.cast(predictions, dtypes.bool), math_ops.cast(labels, dtypes.bool), weights
        )
        hits, hits_update = true_positives(labels, predictions, weights)
        misses, misses_update = false_positives(labels, predictions, weights)
        value, update_op = _share(hits, misses, "value"), _share(hits_update, misses_update, "update_op")
        return collect(value, update_op, metrics_collections, updates_collections)


def recall(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """True positives / (true positives + false negatives), 0 where no label was true."""
    with variable_scope(name, "recall", (predictions, labels, weights)):
        predictions, labels, weights = remove_for_metric(
            math_ops.cast(predictions, dtypes.bool), math_ops.cast(labels, dtypes.bool), weights
        )
        hits, hits_update = true_positives(labels, predictions, weights)
        misses, misses_update = false_negatives(labels, predictions, weights)
        value, update_op = _share(hits, misses, "value"), _share(hits_update, misses_update, "update_op")
        return collect(value, update_op, metrics_collections, updates_collections)
