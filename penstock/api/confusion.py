"""`tf.confusion_matrix`: how often each class was predicted for each true class."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api import array_ops, math_ops, math_reduce
from penstock.api.array_indexing import scatter_nd
from penstock.api.check_ops import assert_less, assert_non_negative
from penstock.api.framework import name_scope
from penstock.api.squeezable import remove_squeezable_dimensions
from penstock.graph.control_flow import with_dependencies
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def confusion_matrix(
    labels: Any, predictions: Any, num_classes: Any = None, dtype: Any = dtypes.int32, name: str | None = None, weights: Any = None
) -> Tensor:
    """A matrix whose element [i, j] counts (or adds the `weights` of) examples of class i that were predicted as class j.

    Both arguments are vectors of class numbers. `num_classes` defaults to the largest number that occurs, plus one; a larger
    number than it allows is an InvalidArgumentError.

    >>> tf.confusion_matrix([1, 2, 2], [1, 1, 2])       # [[0, 0, 0], [0, 1, 0], [0, 1, 1]]   # doctest: +SKIP
    """
    with name_scope(name, "confusion_matrix", (predictions, labels, num_classes, weights)):
        labels, predictions = remove_squeezable_dimensions(
            convert_to_tensor(labels, name="labels"), convert_to_tensor(predictions, name="predictions")
        )
        predictions, labels = math_ops.cast(predictions, dtypes.int64), math_ops.cast(labels, dtypes.int64)
        labels = with_dependencies([assert_non_negative(labels, message="`labels` contains negative values")], labels)
        predictions = with_dependencies(
            [assert_non_negative(predictions, message="`predictions` contains negative values")], predictions
        )
        if num_classes is None:
            num_classes = raw.Maximum(math_reduce.reduce_max(predictions), math_reduce.reduce_max(labels)) + 1
        else:
            limit = math_ops.cast(num_classes, dtypes.int64)
            labels = with_dependencies([assert_less(labels, limit, message="`labels` out of bound")], labels)
            predictions = with_dependencies([assert_less(predictions, limit, message="`predictions` out of bound")], predictions)
        if weights is not None:
            weights = convert_to_tensor(weights, name="weights")
            predictions.shape.assert_is_compatible_with(weights.shape)
            weights = math_ops.cast(weights, dtype)
        shape = array_ops.stack([num_classes, num_classes])
        indices = array_ops.stack([labels, predictions], axis=1)
        values = array_ops.ones_like(predictions, dtype) if weights is None else weights
        return scatter_nd(indices, values, math_ops.cast(shape, dtypes.int64))
