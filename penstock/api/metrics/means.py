"""Metrics that are means: of values, of errors, of hits; per class; over thresholds of one number."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api import array_ops, math_ops, math_reduce
from penstock.api.array_indexing import where
from penstock.api.broadcast_weights import broadcast_weights
from penstock.api.confusion import confusion_matrix
from penstock.api.metrics.parts import collect, metric_variable, ratio
from penstock.api.squeezable import remove_for_metric
from penstock.api.state_ops import assign_add, scatter_add
from penstock.api.variable_scope import variable_scope
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def mean(
    values: Any, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The (weighted) mean of all values seen. The variables `total` and `count` hold sum and number (or sum of weights)."""
    with variable_scope(name, "mean", (values, weights)):
        values = math_ops.cast(values, dtypes.float32)
        total = metric_variable([], dtypes.float32, name="total")
        count = metric_variable([], dtypes.float32, name="count")
        if weights is None:
            number = math_ops.cast(array_ops.size(values), dtypes.float32)
        else:
            values, _, weights = remove_for_metric(values, None, weights)
            weights = broadcast_weights(math_ops.cast(weights, dtypes.float32), values)
            values = raw.Mul(values, weights)
            number = math_reduce.reduce_sum(weights)
        update_total = assign_add(total, math_reduce.reduce_sum(values))
        with get_default_graph().control_dependencies([values]):
            update_count = assign_add(count, number)
        value = ratio(total, count, "value")
        update_op = ratio(update_total, update_count, "update_op")
        return collect(value, update_op, metrics_collections, updates_collections)


def mean_tensor(
    values: Any, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The (weighted) mean of each element over all batches: a tensor of the shape of `values`, which must be static."""
    with variable_scope(name, "mean", (values, weights)):
        values = math_ops.cast(values, dtypes.float32)
        total = metric_variable(values.shape, dtypes.float32, name="total_tensor")
        count = metric_variable(values.shape, dtypes.float32, name="count_tensor")
        number = array_ops.ones_like(values)
        if weights is not None:
            values, _, weights = remove_for_metric(values, None, weights)
            weights = broadcast_weights(math_ops.cast(weights, dtypes.float32), values)
            values = raw.Mul(values, weights)
            number = raw.Mul(number, weights)
        update_total = assign_add(total, values)
        with get_default_graph().control_dependencies([values]):
            update_count = assign_add(count, number)
        value = ratio(total, count, "value")
        update_op = ratio(update_total, update_count, "update_op")
        return collect(value, update_op, metrics_collections, updates_collections)


def accuracy(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """How often `predictions` equal `labels`."""
    predictions, labels, weights = remove_for_metric(predictions, labels, weights)
    predictions.shape.assert_is_compatible_with(labels.shape)
    if labels.dtype != predictions.dtype:
        predictions = math_ops.cast(predictions, labels.dtype)
    hits = math_ops.cast(raw.Equal(predictions, labels), dtypes.float32)
    return mean(hits, weights, metrics_collections, updates_collections, name or "accuracy")


def mean_absolute_error(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean of |predictions - labels|."""
    predictions, labels, weights = remove_for_metric(predictions, labels, weights)
    error = math_ops.abs(predictions - labels)
    return mean(error, weights, metrics_collections, updates_collections, name or "mean_absolute_error")


def mean_squared_error(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean of the squared error."""
    predictions, labels, weights = remove_for_metric(predictions, labels, weights)
    error = raw.SquaredDifference(labels, predictions)
    return mean(error, weights, metrics_collections, updates_collections, name or "mean_squared_error")


def root_mean_squared_error(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The square root of the mean squared error."""
    predictions, labels, weights = remove_for_metric(predictions, labels, weights)
    value, update_op = mean_squared_error(labels, predictions, weights, None, None, name or "root_mean_squared_error")
    return collect(raw.Sqrt(value), raw.Sqrt(update_op), metrics_collections, updates_collections)


def mean_relative_error(
    labels: Any, predictions: Any, normalizer: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean of |labels - predictions| / normalizer, 0 where the normalizer is 0."""
    predictions, labels, weights = remove_for_metric(predictions, labels, weights)
    predictions, normalizer = _same_rank(predictions, normalizer)
    predictions.shape.assert_is_compatible_with(normalizer.shape)
    error = where(
        raw.Equal(normalizer, 0.0), array_ops.zeros_like(labels), math_ops.divide(math_ops.abs(labels - predictions), normalizer)
    )
    return mean(error, weights, metrics_collections, updates_collections, name or "mean_relative_error")


def _same_rank(predictions: Any, normalizer: Any) -> tuple[Tensor, Tensor]:
    from penstock.api.squeezable import remove_squeezable_dimensions

    return remove_squeezable_dimensions(predictions, normalizer)


def mean_cosine_distance(
    labels: Any, predictions: Any, dim: int, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One minus the mean of the sums over `dim` of labels * predictions, which should have length 1 along it."""
    predictions, labels, weights = remove_for_metric(predictions, labels, weights)
    predictions.shape.assert_is_compatible_with(labels.shape)
    products = math_reduce.reduce_sum(raw.Mul(predictions, labels), axis=[dim], keepdims=True)
    value, update_op = mean(products, weights, None, None, name or "mean_cosine_distance")
    return collect(raw.Sub(1.0, value), raw.Sub(1.0, update_op), metrics_collections, updates_collections)


def percentage_below(
    values: Any, threshold: Any, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The share of values below `threshold`, between 0 and 1."""
    below = math_ops.cast(raw.Less(values, threshold), dtypes.float32)
    return mean(below, weights, metrics_collections, updates_collections, name or "percentage_below_threshold")


def _flat_int64(labels: Any, predictions: Any, weights: Any) -> tuple[Tensor, Tensor, Any]:
    """Class numbers as vectors, and their weights as one."""
    predictions, labels = convert_to_tensor(predictions), convert_to_tensor(labels)
    if predictions.dims is None or len(predictions.dims) > 1:
        predictions = array_ops.reshape(predictions, [-1])
    if labels.dims is None or len(labels.dims) > 1:
        labels = array_ops.reshape(labels, [-1])
    if weights is not None:
        weights = convert_to_tensor(weights)
        if weights.dims is None or len(weights.dims) > 1:
            weights = array_ops.reshape(weights, [-1])
    return predictions, labels, weights


def mean_iou(
    labels: Any, predictions: Any, num_classes: int, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Intersection over union of each class, averaged over the classes that occur. The update op gives the confusion matrix."""
    with variable_scope(name, "mean_iou", (predictions, labels, weights)):
        predictions.shape.assert_is_compatible_with(labels.shape)
        matrix = metric_variable([num_classes, num_classes], dtypes.float64, name="total_confusion_matrix")
        predictions, labels = math_ops.cast(predictions, dtypes.int64), math_ops.cast(labels, dtypes.int64)
        classes = math_ops.cast(num_classes, dtypes.int64)
        predictions, labels, weights = _flat_int64(labels, predictions, weights)
        current = confusion_matrix(labels, predictions, classes, weights=weights, dtype=dtypes.float64)
        update_op = assign_add(matrix, current)

        rows = math_ops.cast(math_reduce.reduce_sum(matrix, 0), dtypes.float32)
        columns = math_ops.cast(math_reduce.reduce_sum(matrix, 1), dtypes.float32)
        hits = math_ops.cast(raw.DiagPart(matrix), dtypes.float32)
        union = rows + columns - hits
        valid = math_reduce.reduce_sum(math_ops.cast(raw.NotEqual(union, 0), dtypes.float32))
        union = where(raw.Greater(union, 0), union, array_ops.ones_like(union))
        each = math_ops.divide(hits, union)
        value = where(raw.Greater(valid, 0), math_reduce.reduce_sum(each, name="mean_iou") / valid, 0)
        return collect(value, update_op, metrics_collections, updates_collections)


def mean_per_class_accuracy(
    labels: Any, predictions: Any, num_classes: int, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The accuracy of each class, averaged over classes. The update op gives the accuracies."""
    with variable_scope(name, "mean_accuracy", (predictions, labels, weights)):
        labels = math_ops.cast(labels, dtypes.int64)
        predictions, labels, weights = _flat_int64(labels, predictions, weights)
        predictions.shape.assert_is_compatible_with(labels.shape)
        total = metric_variable([num_classes], dtypes.float32, name="total")
        count = metric_variable([num_classes], dtypes.float32, name="count")
        ones = array_ops.ones([array_ops.size(labels)], dtypes.float32)
        if labels.dtype != predictions.dtype:
            predictions = math_ops.cast(predictions, labels.dtype)
        hits = math_ops.cast(raw.Equal(predictions, labels), dtypes.float32)
        if weights is not None:
            weights = math_ops.cast(weights, dtypes.float32)
            hits, ones = hits * weights, ones * weights
        update_total = scatter_add(total, labels, ones)
        update_count = scatter_add(count, labels, hits)
        value = math_reduce.reduce_mean(ratio(count, total), name="mean_accuracy")
        update_op = ratio(update_count, update_total, "update_op")
        return collect(value, update_op, metrics_collections, updates_collections)
