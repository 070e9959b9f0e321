"""Losses over logits: softmax and sigmoid cross entropies, and the Poisson loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api import array_ops, math_ops
from penstock.api.array_indexing import where
from penstock.api.array_ops import one_of
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.api.nn.activations import to_last_axis
from penstock.graph.constant import constant
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

_NARROW = (dtypes.float16, dtypes.bfloat16)


def _check_both(name: str, labels: Any, logits: Any) -> None:
    if labels is None or logits is None:
        raise ValueError(f"Both `labels` and `logits` must be provided for {name}. Received: labels={labels} and logits={logits}")


# -- softmax ----------------------------------------------------------------------------------------------------------


def _to_rows(x: Tensor) -> Tensor:
    """`x` as a matrix whose rows are its last dimension."""
    if x.dims is not None and x.dims and x.dims[-1] is not None:
        return array_ops.reshape(x, [-1, x.dims[-1]])
    last = array_ops.shape(x)[-1:]
    return array_ops.reshape(x, array_ops.concat([[-1], last], 0))


def _leading_shape(x: Tensor) -> Any:
    """The shape of `x` without its last dimension, as a target for reshape."""
    if x.dims is not None and sum(d is None for d in x.dims[:-1]) <= 1:
        return np.array([-1 if d is None else d for d in x.dims[:-1]], np.int32)
    return array_ops.shape(x)[:-1]


def _softmax_cross_entropy(labels: Any, logits: Any, axis: int, scope: str) -> Tensor:
    logits = convert_to_tensor(logits, name="logits")
    precise = math_ops.cast(logits, dtypes.float32) if logits.dtype.base_dtype in _NARROW else logits
    if isinstance(labels, Tensor) and labels.dtype != precise.dtype:
        labels = math_ops.cast(labels, precise.dtype)
    labels = convert_to_tensor(labels, dtype=precise.dtype, name="labels")
    precise, _ = to_last_axis(precise, axis)
    labels, _ = to_last_axis(labels, axis)
    shape = _leading_shape(precise)
    loss = raw.SoftmaxCrossEntropyWithLogits(_to_rows(precise), _to_rows(labels), name=scope)[0]
    result = array_ops.reshape(loss, shape)
    if precise.dims is not None:
        result.set_shape(precise.dims[:-1])
    return math_ops.cast(result, logits.dtype) if logits.dtype.base_dtype in _NARROW else result


@export("nn.softmax_cross_entropy_with_logits")
def softmax_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, dim: int = -1, name: str | None = None, axis: Any = None
) -> Tensor:
    """Cross entropy between `labels` (a distribution per row) and softmax(logits); no gradient flows into `labels`."""
    dim = dim if axis is None else axis
    _check_both("softmax_cross_entropy_with_logits", labels, logits)
    with name_scope(name, "softmax_cross_entropy_with_logits_sg", [logits, labels]) as scope:
        labels = array_ops.stop_gradient(labels, name="labels_stop_gradient")
        return _softmax_cross_entropy(labels, logits, dim, scope)


@export("nn.softmax_cross_entropy_with_logits_v2")
def softmax_cross_entropy_with_logits_v2(
    labels: Any, logits: Any, axis: Any = None, name: str | None = None, dim: Any = None
) -> Tensor:
    """Cross entropy between `labels` and softmax(logits); gradients flow into both. `dim` is the old name of `axis`."""
    axis = one_of(axis, dim, "axis", "dim")
    _check_both("softmax_cross_entropy_with_logits_v2", labels, logits)
    with name_scope(name, "softmax_cross_entropy_with_logits", [logits, labels]) as scope:
        return _softmax_cross_entropy(labels, logits, -1 if axis is None else axis, scope)


@export("nn.sparse_softmax_cross_entropy_with_logits")
def sparse_softmax_cross_entropy_with_logits(labels: Any = None, logits: Any = None, name: str | None = None) -> Tensor:
    """Cross entropy between softmax(logits) and the class that `labels` names for each row.

    `labels` has the shape of `logits` without its last dimension; a label outside [0, classes) is an error.
    """
    _check_both("sparse_softmax_cross_entropy_with_logits", labels, logits)
    with name_scope(name, "SparseSoftmaxCrossEntropyWithLogits", [labels, logits]):
        labels, logits = convert_to_tensor(labels), convert_to_tensor(logits)
        precise = math_ops.cast(logits, dtypes.float32) if logits.dtype.base_dtype in _NARROW else logits
        shape = array_ops.shape(labels)
        if logits.dims == ():
            raise ValueError(f"`logits` cannot be a scalar. Received logits={logits}`")
        _check_label_shape(labels, logits)
        if logits.dims is not None and len(logits.dims) == 2:
            loss = raw.SparseSoftmaxCrossEntropyWithLogits(precise, labels, name=name)[0]
        else:
            rows = _to_rows(precise)
            flat = raw.SparseSoftmaxCrossEntropyWithLogits(rows, array_ops.reshape(labels, [-1]), name=name)[0]
            loss = array_ops.reshape(flat, shape)
            loss.set_shape(labels.shape)
        return math_ops.cast(loss, logits.dtype) if logits.dtype.base_dtype in _NARROW else loss


def _check_label_shape(labels: Tensor, logits: Tensor) -> None:
    if labels.dims is None or logits.dims is None:
        return
    if len(labels.dims) != len(logits.dims) - 1:
        raise ValueError(
            "`labels.shape.rank` must equal `logits.shape.rank - 1`. Received: "
            f"labels.shape={labels.shape} of rank {len(labels.dims)} and logits.shape={logits.shape} of rank {len(logits.dims)}"
        )
    for a, b in zip(labels.dims, logits.dims, strict=False):
        if a is not None and b is not None and a != b:
            raise ValueError(
                "`labels.shape` must equal `logits.shape` except for the last dimension. "
                f"Received: labels.shape={labels.shape} and logits.shape={logits.shape}"
            )


# -- sigmoid ----------------------------------------------------------------------------------------------------------


def _check_same(labels: Tensor, logits: Tensor) -> None:
    if not labels.shape.is_compatible_with(logits.shape):
        raise ValueError(f"`logits` and `labels` must have the same shape, received ({logits.shape} vs {labels.shape}).")


@export("nn.sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy_with_logits(labels: Any = None, logits: Any = None, name: str | None = None) -> Tensor:
    """Elementwise cross entropy between probabilities `labels` and sigmoid(logits), safe for large logits."""
    _check_both("sigmoid_cross_entropy_with_logits", labels, logits)
    with name_scope(name, "logistic_loss", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels", dtype=logits.dtype)
        _check_same(labels, logits)
        # max(x, 0) - x z + log(1 + exp(-|x|)), written with Select so that the gradient at 0 is right.
        zeros = array_ops.zeros_like(logits, dtype=logits.dtype)
        positive = logits >= zeros
        relu = where(positive, logits, zeros)
        minus_abs = where(positive, -logits, logits)
        return raw.AddV2(relu - logits * labels, raw.Log1p(raw.Exp(minus_abs)), name=scope)


@export("nn.weighted_cross_entropy_with_logits")
def weighted_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, pos_weight: Any = None, name: str | None = None, targets: Any = None
) -> Tensor:
    """Sigmoid cross entropy in which positive labels count `pos_weight` times. `targets` is the old name of `labels`."""
    labels = one_of(labels, targets, "labels", "targets")
    _check_both("weighted_cross_entropy_with_logits", labels, logits)
    with name_scope(name, "logistic_loss", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels", dtype=logits.dtype)
        _check_same(labels, logits)
        weight = 1 + (pos_weight - 1) * labels
        rest = raw.Log1p(raw.Exp(-raw.Abs(logits))) + raw.Relu(-logits)
        return raw.AddV2((1 - labels) * logits, weight * rest, name=scope)


# -- Poisson ----------------------------------------------------------------------------------------------------------


@export("nn.log_poisson_loss")
def log_poisson_loss(targets: Any, log_input: Any, compute_full_loss: bool = False, name: str | None = None) -> Tensor:
    """exp(log_input) - log_input * targets; the full loss adds Stirling's approximation of log(targets!)."""
    with name_scope(name, "log_poisson_loss", [log_input, targets]):
        log_input = convert_to_tensor(log_input, name="log_input")
        targets = convert_to_tensor(targets, name="targets")
        if not targets.shape.is_compatible_with(log_input.shape):
            raise ValueError(
                "`log_input` and `targets` must have the same shape, received " f"({log_input.shape} vs {targets.shape})."
            )
        result = raw.Exp(log_input) - log_input * targets
        if compute_full_loss:
            half = constant(0.5, targets.dtype)
            two_pi = constant(2 * math.pi, targets.dtype)
            stirling = (targets * raw.Log(targets) - targets) + half * raw.Log(two_pi * targets)
            zeros = array_ops.zeros_like(targets, dtype=targets.dtype)
            ones = array_ops.ones_like(targets, dtype=targets.dtype)
            # For targets of 0 and 1 the factorial is 1 and the approximation is not good.
            small = raw.LogicalAnd(targets >= zeros, targets <= ones)
            result = result + where(small, zeros, stirling)
        return result
