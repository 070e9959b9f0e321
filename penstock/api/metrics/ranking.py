"""Metrics of rankings: precision, recall and average precision among the k highest predictions.

Labels are class numbers, int64 `[D1, ... DN, num_labels]` (dense or sparse), or `[D1, ... DN]` with one label each; predictions
are scores `[D1, ... DN, num_classes]`, or for the `_at_top_k` functions the class numbers themselves.
"""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api import array_ops, math_ops, math_reduce, sets_ops, sparse_ops
from penstock.api.array_indexing import where_v2
from penstock.api.broadcast_weights import assert_broadcastable, broadcast_weights
from penstock.api.control_flow import cond
from penstock.api.framework import convert_to_tensor_or_sparse_tensor, name_scope
from penstock.api.metrics.parts import collect, metric_variable
from penstock.api.nn.activations import top_k
from penstock.api.state_ops import assign_add
from penstock.graph.composite import SparseTensor
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def _at_k(name: str, k: int | None = None, class_id: int | None = None) -> str:
    name = f"{name}_at_{k}" if k is not None else f"{name}_at_k"
    return f"{name}_class{class_id}" if class_id is not None else name


def _with_label_dim(labels: Any, predictions: Tensor) -> Any:
    """Labels with a last dimension for several labels of one example, added if missing."""
    with name_scope(None, "expand_labels", (labels, predictions)) as scope:
        labels = convert_to_tensor_or_sparse_tensor(labels)
        sparse = isinstance(labels, SparseTensor)

        def expanded() -> Any:
            if not sparse:
                return array_ops.expand_dims(labels, -1, name=scope)
            shape = array_ops.concat((array_ops.shape(labels, out_type=dtypes.int64), (1,)), 0, name="expanded_shape")
            return sparse_ops.sparse_reshape(labels, shape=shape, name=scope)

        rank, other = labels.get_shape().rank if sparse else labels.shape.rank, predictions.shape.rank
        if rank is not None and other is not None:
            if rank == other - 1:
                return expanded()
            if rank == other:
                return labels
            raise ValueError(f"Unexpected labels shape {labels.get_shape()} for predictions shape {predictions.shape}.")
        missing = raw.Equal(array_ops.rank(predictions) - 1, array_ops.rank(labels))
        return cond(missing, expanded, lambda: labels)


def _only_class(ids: Any, class_id: int) -> SparseTensor:
    """The elements of `ids` that equal `class_id`."""
    ids = convert_to_tensor_or_sparse_tensor(ids)
    if isinstance(ids, SparseTensor):
        return sparse_ops.sparse_retain(ids, raw.Equal(ids.values, class_id))
    shape = array_ops.shape(ids, out_type=dtypes.int64)
    wanted = array_ops.fill(array_ops.concat([shape[:-1], [1]], 0), math_ops.cast(class_id, dtypes.int64))
    found = sets_ops.set_intersection(wanted, ids)
    return SparseTensor(found.indices, found.values, shape)


def _selected(labels: Any, predictions: Any, class_id: int | None) -> tuple[Any, Any]:
    if class_id is None:
        return labels, predictions
    return _only_class(labels, class_id), _only_class(predictions, class_id)


def _weighted(count: Tensor, weights: Any) -> Tensor:
    count = math_ops.cast(count, dtypes.float64)
    if weights is None:
        return count
    with get_default_graph().control_dependencies((assert_broadcastable(weights, count),)):
        return raw.Mul(count, math_ops.cast(weights, dtypes.float64))


def _true_positives(labels: Any, predictions: Any, class_id: int | None, weights: Any) -> Tensor:
    """How many of the predicted classes of each example are among its labels."""
    with name_scope(None, "true_positives", (predictions, labels, weights)):
        labels, predictions = _selected(labels, predictions, class_id)
        return _weighted(sets_ops.set_size(sets_ops.set_intersection(predictions, labels)), weights)


def _false_positives(labels: Any, predictions: Any, class_id: int | None, weights: Any) -> Tensor:
    with name_scope(None, "false_positives", (predictions, labels, weights)):
        labels, predictions = _selected(labels, predictions, class_id)
        return _weighted(sets_ops.set_size(sets_ops.set_difference(predictions, labels, aminusb=True)), weights)


def _false_negatives(labels: Any, predictions: Any, class_id: int | None, weights: Any) -> Tensor:
    with name_scope(None, "false_negatives", (predictions, labels, weights)):
        labels, predictions = _selected(labels, predictions, class_id)
        return _weighted(sets_ops.set_size(sets_ops.set_difference(predictions, labels, aminusb=False)), weights)


_COUNTS = {"true_positive": _true_positives, "false_positive": _false_positives, "false_negative": _false_negatives}


def _streaming(what: str, labels: Any, predictions: Any, k: int | None, class_id: int | None, weights: Any) -> tuple[Any, Tensor]:
    """The variable that counts `what`, and its update op."""
    with name_scope(None, _at_k(what, k, class_id), (predictions, labels, weights)) as scope:
        counts = _COUNTS[what](labels, predictions, class_id, weights)
        total = math_ops.cast(math_reduce.reduce_sum(counts), dtypes.float64)
        variable = metric_variable([], dtypes.float64, name=scope)
        return variable, assign_add(variable, total, name="update")


def _share_at_top_k(
    what: str, misses: str, labels: Any, predictions_idx: Any, k: int | None, class_id: int | None, weights: Any,
    metrics_collections: Any, updates_collections: Any, name: str | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    with name_scope(name, _at_k(what, k, class_id), (predictions_idx, labels, weights)) as scope:
        predictions_idx = convert_to_tensor(predictions_idx)
        labels = _with_label_dim(labels, predictions_idx)
        top = math_ops.cast(predictions_idx, dtypes.int64)
        hits, hits_update = _streaming("true_positive", labels, top, k, class_id, weights)
        missed, missed_update = _streaming(misses, labels, top, k, class_id, weights)
        value = math_ops.divide(hits, math_ops.add(hits, missed), name=scope)
        update_op = math_ops.divide(hits_update, math_ops.add(hits_update, missed_update), name="update")
        return collect(value, update_op, metrics_collections, updates_collections)


def recall_at_top_k(
    labels: Any, predictions_idx: Any, k: int | None = None, class_id: int | None = None, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The share of labels that are among the predicted classes. `k` counts in names only."""
    return _share_at_top_k(
        "recall", "false_negative", labels, predictions_idx, k, class_id, weights, metrics_collections, updates_collections, name
    )


def precision_at_top_k(
    labels: Any, predictions_idx: Any, k: int | None = None, class_id: int | None = None, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The share of predicted classes that are among the labels. `k` counts in names only."""
    return _share_at_top_k(
        "precision", "false_positive", labels, predictions_idx, k, class_id, weights, metrics_collections, updates_collections, name
    )


def recall_at_k(
    labels: Any, predictions: Any, k: int, class_id: int | None = None, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The share of labels that are among the k highest predictions; of labels `class_id` only, if that is given."""
    with name_scope(name, _at_k("recall", k, class_id), (predictions, labels, weights)) as scope:
        _, top = top_k(predictions, k)
        return recall_at_top_k(labels, top, k, class_id, weights, metrics_collections, updates_collections, name=scope)


def precision_at_k(
    labels: Any, predictions: Any, k: int, class_id: int | None = None, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The share of the k highest predictions that are labels; of predictions `class_id` only, if that is given."""
    with name_scope(name, _at_k("precision", k, class_id), (predictions, labels, weights)) as scope:
        _, top = top_k(predictions, k)
        return precision_at_top_k(labels, top, k, class_id, weights, metrics_collections, updates_collections, name=scope)


def sparse_precision_at_k(
    labels: Any, predictions: Any, k: int, class_id: int | None = None, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The old name of `precision_at_k`."""
    return precision_at_k(labels, predictions, k, class_id, weights, metrics_collections, updates_collections, name)


# -- average precision ------------------------------------------------------------------------------------------------


def _num_relevant(labels: Any, k: Any) -> Tensor:
    """How many relevant classes each example can have among k."""
    if isinstance(labels, SparseTensor):
        return raw.Minimum(sets_ops.set_size(labels), k)
    with name_scope(None, "num_relevant", (labels,)) as scope:
        known = where_v2(raw.GreaterEqual(labels, 0), array_ops.ones_like(labels), array_ops.zeros_like(labels))
        return raw.Minimum(math_reduce.reduce_sum(known, axis=-1), k, name=scope)


def _without_unknown(labels: Any, predictions: Any) -> Any:
    """Labels, with -1 for those that are no class of `predictions`: they match nothing."""
    labels = convert_to_tensor_or_sparse_tensor(labels)
    values = labels.values if isinstance(labels, SparseTensor) else labels
    classes = math_ops.cast(array_ops.shape(predictions)[-1], labels.dtype)

    def cleaned() -> Any:
        known = where_v2(raw.GreaterEqual(values, classes), -1 * array_ops.ones_like(values), values)
        return SparseTensor(labels.indices, known, labels.dense_shape) if isinstance(labels, SparseTensor) else known

    return cond(raw.GreaterEqual(math_reduce.reduce_max(values), classes), cleaned, lambda: labels)


def _repeated(labels: Any, times: Any) -> Any:
    """Labels with a new dimension before the last one, repeated along it."""
    if not isinstance(labels, SparseTensor):
        rank = len(labels.dims)
        return array_ops.tile(array_ops.expand_dims(labels, -2), [1] * (rank - 1) + [times, 1])
    shape = labels.dense_shape
    expanded = sparse_ops.sparse_reshape(labels, array_ops.concat([shape[:-1], [1], shape[-1:]], 0))
    return sparse_ops.sparse_concat(-2, [expanded] * times)


def _average_precision(labels: Any, top: Tensor) -> Tensor:
    """The mean, over the relevant classes among the predicted ones, of the precision up to each of them."""
    with name_scope(None, "average_precision", (top, labels)):
        top = math_ops.cast(top, dtypes.int64)
        if not top.dims:
            raise ValueError("The rank of `predictions_idx` must be at least 1.")
        k = top.dims[-1]
        if k is None:
            raise ValueError("The last dimension of `predictions_idx` must be known.")
        labels = _with_label_dim(labels, top)
        hits = _true_positives(_repeated(labels, k), array_ops.expand_dims(top, -1), None, None)
        retrieved = math_reduce.cumsum(array_ops.ones_like(hits), axis=-1, name="retrieved_per_k")
        precision = math_ops.divide(math_reduce.cumsum(hits, axis=-1, name="tp_per_k"), retrieved, name="precision_per_k")
        total = math_reduce.reduce_sum(raw.Mul(precision, hits, name="relevant_precision_per_k"), axis=(-1,), name="precision_sum")
        return math_ops.divide(total, math_ops.cast(_num_relevant(labels, k), dtypes.float64), name="average_precision")


def average_precision_at_k(
    labels: Any, predictions: Any, k: int, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean over examples of the average precision among the k highest predictions."""
    with name_scope(name, _at_k("average_precision", k), (predictions, labels, weights)) as scope:
        _, top = top_k(predictions, k)
        labels = _without_unknown(labels, predictions)
        with name_scope(scope, "average_precision_at_top_k", (top, labels, weights)) as scope:
            each = _average_precision(labels, top)
            if weights is not None:
                weights = broadcast_weights(math_ops.cast(weights, dtypes.float64), each)
                each = raw.Mul(each, weights)
            with name_scope(None, "max", (each,)) as inner:
                most = metric_variable([], dtypes.float64, name=inner)
                batch = math_ops.cast(array_ops.size(each, name="batch_max"), dtypes.float64) if weights is None else None
                if batch is None:
                    batch = math_reduce.reduce_sum(weights, name="batch_max")
                most_update = assign_add(most, batch, name="update")
            with name_scope(None, "total", (each,)) as inner:
                total = metric_variable([], dtypes.float64, name=inner)
                total_update = assign_add(total, math_reduce.reduce_sum(each, name="batch_total"), name="update")
            value = math_ops.div_no_nan(total, most, name="mean")
            update_op = math_ops.div_no_nan(total_update, most_update, name=scope)
            return collect(value, update_op, metrics_collections, updates_collections)


def sparse_average_precision_at_k(
    labels: Any, predictions: Any, k: int, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The old name of `average_precision_at_k`."""
    return average_precision_at_k(labels, predictions, k, weights, metrics_collections, updates_collections, name)
