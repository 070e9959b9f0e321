"""Shapes that differ by a last dimension of 1 are brought together: `(labels, predictions[, weights])` of losses and metrics."""

from __future__ import annotations

from typing import Any

from penstock.api import array_ops
from penstock.api.control_flow import cond
from penstock.api.framework import name_scope
from penstock.graph.composite import SparseTensor
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def remove_squeezable_dimensions(
    labels: Any, predictions: Any, expected_rank_diff: int = 0, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Drops the last dimension, if it is 1, of whichever rank is one more than `rank(predictions) - rank(labels)` says it should be."""
    with name_scope(name, "remove_squeezable_dimensions", [labels, predictions]):
        predictions, labels = convert_to_tensor(predictions), convert_to_tensor(labels)
        if labels.dims is not None and predictions.dims is not None:
            difference = len(predictions.dims) - len(labels.dims)
            if difference == expected_rank_diff + 1 and predictions.dims[-1] in (1, None):
                predictions = array_ops.squeeze(predictions, [-1])
            elif difference == expected_rank_diff - 1 and labels.dims[-1] in (1, None):
                labels = array_ops.squeeze(labels, [-1])
            return labels, predictions
        difference = array_ops.rank(predictions) - array_ops.rank(labels)
        if predictions.dims is None or (predictions.dims and predictions.dims[-1] in (1, None)):
            predictions = _squeezed_if(expected_rank_diff + 1, difference, predictions)
        if labels.dims is None or (labels.dims and labels.dims[-1] in (1, None)):
            labels = _squeezed_if(expected_rank_diff - 1, difference, labels)
        return labels, predictions


def _squeezed_if(wanted: int, difference: Tensor, x: Tensor) -> Tensor:
    return cond(raw.Equal(wanted, difference), lambda: array_ops.squeeze(x, [-1]), lambda: x)


def squeeze_weights(weights: Tensor, other: Tensor, other_rank: int | None) -> Tensor:
    """`weights` made to have the rank of `other`, where they have one dimension of size 1 more; metrics also add one."""
    rank = None if weights.dims is None else len(weights.dims)
    if rank is not None and other_rank is not None:
        return array_ops.squeeze(weights, [-1]) if rank - other_rank == 1 else weights
    difference = array_ops.rank(weights) - array_ops.rank(other)
    if weights.dims is None or (weights.dims and weights.dims[-1] in (1, None)):
        return _squeezed_if(1, difference, weights)
    return weights


def remove_for_metric(predictions: Any, labels: Any, weights: Any) -> tuple[Tensor, Any, Any]:
    """(predictions, labels, weights) with last dimensions of 1 dropped or added so that all ranks agree."""
    predictions = convert_to_tensor(predictions)
    if labels is not None:
        if isinstance(labels, SparseTensor):
            labels.get_shape().assert_is_compatible_with(predictions.shape)
        else:
            labels, predictions = remove_squeezable_dimensions(labels, predictions)
            predictions.shape.assert_is_compatible_with(labels.shape)
    if weights is None:
        return predictions, labels, None
    weights = convert_to_tensor(weights)
    if weights.dims == ():
        return predictions, labels, weights
    if weights.dims is not None and predictions.dims is not None:
        difference = len(weights.dims) - len(predictions.dims)
        if difference == 1:
            weights = array_ops.squeeze(weights, [-1])
        elif difference == -1:
            weights = array_ops.expand_dims(weights, [-1])
        return predictions, labels, weights
    weights_rank = array_ops.rank(weights)
    difference = weights_rank - array_ops.rank(predictions)

    def adjust() -> Tensor:
        def grow() -> Tensor:
            return array_ops.expand_dims(weights, [-1])

        def grown_or_not() -> Tensor:
            return cond(raw.Equal(difference, -1), grow, lambda: weights)

        if weights.dims is None or (weights.dims and weights.dims[-1] in (1, None)):
            return cond(raw.Equal(difference, 1), lambda: array_ops.squeeze(weights, [-1]), grown_or_not)
        return grown_or_not()

    weights = cond(raw.Equal(weights_rank, 0), lambda: weights, adjust)
    return predictions, labels, weights
