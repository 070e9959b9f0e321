"""Losses that weigh, reduce and collect: `tf.losses.mean_squared_error` and relatives.

Each computes a loss per element and hands it to `compute_weighted_loss`, which multiplies it with `weights`, reduces it
and adds the result to the collection of losses. What reads that collection is in `regularizers`.
"""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api import array_ops, math_ops, math_reduce
from penstock.api.array_indexing import where
from penstock.api.array_ops import one_of
from penstock.api.broadcast_weights import assert_broadcastable, broadcast_weights
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.api.nn import losses as nn_losses
from penstock.api.regularizers import add_loss
from penstock.api.squeezable import remove_squeezable_dimensions, squeeze_weights
from penstock.graph.constant import constant
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.keys import GraphKeys
from penstock.graph.raw import raw


@export("losses.Reduction")
class Reduction:
    """How a loss per element becomes one loss.

    NONE keeps the elements; SUM adds the weighted losses; the others divide that sum: SUM_OVER_BATCH_SIZE by the number of
    elements, MEAN by the sum of weights, SUM_BY_NONZERO_WEIGHTS (the default) by the number of weights that are not 0.
    """

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = "weighted_mean"
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        return (cls.NONE, cls.SUM, cls.MEAN, cls.SUM_OVER_BATCH_SIZE, cls.SUM_OVER_NONZERO_WEIGHTS, cls.SUM_BY_NONZERO_WEIGHTS)

    @classmethod
    def validate(cls, key: str) -> None:
        if key not in cls.all():
            raise ValueError(f"Invalid Reduction Key {key}. Key should be one of {cls.all()}.")


def _num_present(losses: Tensor, weights: Tensor, per_batch: bool = False) -> Tensor:
    """How many losses have a weight that is not 0: in all, or for each first index."""
    with name_scope(None, "num_present", [losses, weights]) as scope:
        weights = math_ops.cast(weights, dtypes.float32)
        present = where(raw.Equal(weights, 0.0), array_ops.zeros_like(weights), array_ops.ones_like(weights))
        present = broadcast_weights(present, losses)
        if per_batch:
            return math_reduce.reduce_sum(present, axis=raw.Range(1, array_ops.rank(present), 1, name="range"), keepdims=True, name=scope)
        return math_reduce.reduce_sum(present, name=scope)


def _mean(losses: Tensor, divisor: Tensor) -> Tensor:
    return math_ops.div_no_nan(math_reduce.reduce_sum(losses), divisor, name="value")


@export("losses.compute_weighted_loss")
def compute_weighted_loss(
    losses: Any, weights: Any = 1.0, scope: str | None = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """`losses` times `weights`, reduced; the result is added to `loss_collection`.

    `weights` is a scalar or has the rank of `losses`, with dimensions 1 or equal to those of `losses`.
    """
    Reduction.validate(reduction)
    with (
        name_scope(scope, "weighted_loss", (losses, weights)),
        get_default_graph().control_dependencies((assert_broadcastable(weights, losses),)),
    ):
        losses = convert_to_tensor(losses)
        input_dtype = losses.dtype
        losses = math_ops.cast(losses, dtypes.float32)
        weights = math_ops.cast(weights, dtypes.float32)
        loss = raw.Mul(losses, weights)
        if reduction != Reduction.NONE:
            loss = math_reduce.reduce_sum(loss)
            if reduction == Reduction.MEAN:
                loss = _mean(loss, math_reduce.reduce_sum(array_ops.ones_like(losses) * weights))
            elif reduction == Reduction.SUM_BY_NONZERO_WEIGHTS:
                loss = _mean(loss, _num_present(losses, weights))
            elif reduction == Reduction.SUM_OVER_BATCH_SIZE:
                with name_scope(None, "num_elements", [losses]) as inner:
                    count = math_ops.cast(array_ops.size(losses, name=inner), losses.dtype)
                loss = _mean(loss, count)
        loss = math_ops.cast(loss, input_dtype)
        add_loss(loss, loss_collection)
        return loss


def _check(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is None:
            raise ValueError(f"Argument `{name}` must not be None.")


def _pair(predictions: Any, labels: Any) -> tuple[Tensor, Tensor]:
    predictions, labels = math_ops.cast(predictions, dtypes.float32), math_ops.cast(labels, dtypes.float32)
    predictions.shape.assert_is_compatible_with(labels.shape)
    return predictions, labels


@export("losses.absolute_difference")
def absolute_difference(
    labels: Any, predictions: Any, weights: Any = 1.0, scope: str | None = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The loss |predictions - labels|."""
    _check(labels=labels, predictions=predictions)
    with name_scope(scope, "absolute_difference", (predictions, labels, weights)) as scope:
        predictions, labels = _pair(predictions, labels)
        losses = math_ops.abs(raw.Sub(predictions, labels))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("losses.cosine_distance")
def cosine_distance(
    labels: Any, predictions: Any, axis: Any = None, weights: Any = 1.0, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES, reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS, dim: Any = None,
) -> Tensor:  # fmt: skip
    """One minus the sum over `axis` of labels * predictions; both should have length 1 along that axis."""
    axis = one_of(axis, dim, "axis", "dim")
    if axis is None:
        raise ValueError("You must specify argument `axis`.")
    _check(labels=labels, predictions=predictions)
    with name_scope(scope, "cosine_distance_loss", (predictions, labels, weights)) as scope:
        predictions, labels = _pair(predictions, labels)
        losses = 1 - math_reduce.reduce_sum(raw.Mul(predictions, labels), axis=(axis,), keepdims=True)
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("losses.hinge_loss")
def hinge_loss(
    labels: Any, logits: Any, weights: Any = 1.0, scope: str | None = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The loss max(0, 1 - y * logits), where y is -1 for labels 0 and 1 for labels 1."""
    _check(labels=labels, logits=logits)
    with name_scope(scope, "hinge_loss", (logits, labels, weights)) as scope:
        logits, labels = _pair(logits, labels)
        ones = array_ops.ones_like(labels)
        signs = raw.Sub(2 * labels, ones)
        losses = raw.Relu(raw.Sub(ones, raw.Mul(signs, logits)))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("losses.huber_loss")
def huber_loss(
    labels: Any, predictions: Any, weights: Any = 1.0, delta: float = 1.0, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES, reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """Half the squared error up to an error of `delta`, then linear with slope `delta`."""
    _check(labels=labels, predictions=predictions)
    with name_scope(scope, "huber_loss", (predictions, labels, weights)) as scope:
        predictions, labels = _pair(predictions, labels)
        error = math_ops.abs(raw.Sub(predictions, labels))
        quadratic = raw.Minimum(error, delta)
        linear = raw.Sub(error, quadratic)
        half = convert_to_tensor(0.5, dtype=quadratic.dtype)
        losses = math_ops.add(raw.Mul(half, raw.Mul(quadratic, quadratic)), raw.Mul(delta, linear))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("losses.log_loss")
def log_loss(
    labels: Any, predictions: Any, weights: Any = 1.0, epsilon: float = 1e-7, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES, reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The cross entropy of labels and predicted probabilities; `epsilon` keeps the logarithms finite."""
    _check(labels=labels, predictions=predictions)
    with name_scope(scope, "log_loss", (predictions, labels, weights)) as scope:
        predictions, labels = _pair(predictions, labels)
        hits = raw.Neg(raw.Mul(labels, raw.Log(predictions + epsilon)))
        losses = hits - raw.Mul(1 - labels, raw.Log(1 - predictions + epsilon))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("losses.mean_squared_error")
def mean_squared_error(
    labels: Any, predictions: Any, weights: Any = 1.0, scope: str | None = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The loss (predictions - labels) squared."""
    _check(labels=labels, predictions=predictions)
    with name_scope(scope, "mean_squared_error", (predictions, labels, weights)) as scope:
        predictions, labels = _pair(predictions, labels)
        losses = raw.SquaredDifference(predictions, labels)
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("losses.mean_pairwise_squared_error")
def mean_pairwise_squared_error(
    labels: Any, predictions: Any, weights: Any = 1.0, scope: str | None = None, loss_collection: str | None = GraphKeys.LOSSES
) -> Tensor:
    """The squared difference between pairs of errors of one example, averaged over all pairs; summed over examples.

    Adding a number to all predictions of an example does not change this loss.
    """
    _check(labels=labels, predictions=predictions)
    with name_scope(scope, "mean_pairwise_squared_error", (predictions, labels, weights)) as scope:
        weights = math_ops.cast(weights, dtypes.float32)
        labels = math_ops.cast(labels, dtypes.float32)
        with get_default_graph().control_dependencies((assert_broadcastable(weights, labels),)):
            predictions = math_ops.cast(predictions, dtypes.float32)
            predictions.shape.assert_is_compatible_with(labels.shape)
            error = raw.Sub(predictions, labels)
            axes = raw.Range(1, array_ops.rank(error), 1, name="range")
            squares = math_reduce.reduce_sum(raw.Square(error), axis=axes, keepdims=True)
            count = _num_present(error, weights, per_batch=True)
            one = math_ops.div_no_nan(squares, raw.Maximum(count - 1, 0), name="value")
            first = 2.0 * one
            total = math_reduce.reduce_sum(error, axis=axes, keepdims=True)
            two = math_ops.div_no_nan(raw.Square(total), raw.Maximum(raw.Mul(count, count - 1), 0), name="value")
            second = 2.0 * two
            loss = math_reduce.reduce_sum(raw.Mul(first - second, weights))
            result = where(math_reduce.reduce_sum(count) > 0, loss, array_ops.zeros_like(loss), name="value")
            add_loss(result, loss_collection)
            return result


# -- cross entropies --------------------------------------------------------------------------------------------------


@export("losses.sigmoid_cross_entropy")
def sigmoid_cross_entropy(
    multi_class_labels: Any, logits: Any, weights: Any = 1.0, label_smoothing: Any = 0, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES, reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The cross entropy of each label, 0 or 1, with sigmoid(logits). `label_smoothing` moves labels towards 1/2."""
    _check(multi_class_labels=multi_class_labels, logits=logits)
    with name_scope(scope, "sigmoid_cross_entropy_loss", (logits, multi_class_labels, weights)) as scope:
        logits = convert_to_tensor(logits)
        labels = math_ops.cast(multi_class_labels, logits.dtype)
        logits.shape.assert_is_compatible_with(labels.shape)
        if label_smoothing > 0:
            labels = labels * (1 - label_smoothing) + 0.5 * label_smoothing
        losses = nn_losses.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy")
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export("losses.softmax_cross_entropy")
def softmax_cross_entropy(
    onehot_labels: Any, logits: Any, weights: Any = 1.0, label_smoothing: Any = 0, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES, reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The cross entropy of label distributions with softmax(logits). `label_smoothing` moves labels towards 1/classes."""
    _check(onehot_labels=onehot_labels, logits=logits)
    with name_scope(scope, "softmax_cross_entropy_loss", (logits, onehot_labels, weights)) as scope:
        logits = convert_to_tensor(logits)
        labels = math_ops.cast(onehot_labels, logits.dtype)
        logits.shape.assert_is_compatible_with(labels.shape)
        if label_smoothing > 0:
            classes = math_ops.cast(array_ops.shape(labels)[-1], logits.dtype)
            keep = 1.0 - label_smoothing
            spread = label_smoothing / classes
            labels = labels * keep + spread
        labels = array_ops.stop_gradient(labels, name="labels_stop_gradient")
        losses = nn_losses.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits, name="xentropy")
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def _remove_squeezable(labels: Any, predictions: Any, weights: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Labels one rank below predictions, and weights of the labels' rank, where a last dimension of 1 stands in the way."""
    labels, predictions = remove_squeezable_dimensions(labels, predictions, expected_rank_diff=1)
    if weights is None:
        return labels, predictions, constant(1.0)
    weights = convert_to_tensor(weights)
    labels_rank = None if labels.dims is None else len(labels.dims)
    return labels, predictions, squeeze_weights(weights, labels, labels_rank)


@export("losses.sparse_softmax_cross_entropy")
def sparse_softmax_cross_entropy(
    labels: Any, logits: Any, weights: Any = 1.0, scope: str | None = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The cross entropy of softmax(logits) with the class that each label names."""
    _check(labels=labels, logits=logits)
    with name_scope(scope, "sparse_softmax_cross_entropy_loss", (logits, labels, weights)) as scope:
        labels, logits, weights = _remove_squeezable(labels, logits, weights)
        losses = nn_losses.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy")
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)
