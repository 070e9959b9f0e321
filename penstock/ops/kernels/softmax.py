"""Softmax over the last dimension, and the two cross entropies with their gradients."""

from __future__ import annotations

import numpy as np

from penstock import errors
from penstock.ops.kernels.numeric import narrow, widen
from penstock.ops.kernels.window import show
from penstock.ops.native.rowwise import rowwise


@rowwise
def _softmax(x):
    e = np.exp(x - np.maximum.reduce(x, -1, keepdims=True))
    return e / np.add.reduce(e, -1, keepdims=True)


@rowwise
def _log_softmax(x):
    y = x - np.maximum.reduce(x, -1, keepdims=True)
    return y - np.log(np.add.reduce(np.exp(y), -1, keepdims=True))


@rowwise
def _cross_entropy(x, target):
    """Loss and gradient."""
    shifted = x - np.maximum.reduce(x, -1, keepdims=True)
    e = np.exp(shifted)
    total = np.add.reduce(e, -1, keepdims=True)
    return np.add.reduce(target * (np.log(total) - shifted), -1, keepdims=True), e / total - target


@rowwise
def _softmax_and_logarithms(x):
    """Softmax, the largest of each row, and the logarithm of what the others are relative to it."""
    largest = np.maximum.reduce(x, -1, keepdims=True)
    e = np.exp(x - largest)
    total = np.add.reduce(e, -1, keepdims=True)
    return e / total, largest, np.log(total)


def _shifted(logits: np.ndarray) -> np.ndarray:
    """`logits` less the largest of each row, in the precision to compute in; a fresh array."""
    wide = widen(logits)
    return wide - np.maximum.reduce(wide, -1, keepdims=True)


def _check_rank(logits: np.ndarray) -> None:
    if np.ndim(logits) < 1:
        raise errors.InvalidArgumentError(f"logits must have >= 1 dimension, got {show(np.shape(logits))}")


def softmax(logits):
    """Softmax."""
    _check_rank(logits)
    if not logits.size:
        return np.zeros(logits.shape, logits.dtype)
    found = _softmax(widen(logits))
    if found is not None:
        return narrow(found[0], logits.dtype)
    y = _shifted(logits)
    np.exp(y, out=y)
    y /= np.add.reduce(y, -1, keepdims=True)
    return narrow(y, logits.dtype)


def log_softmax(logits):
    """LogSoftmax."""
    _check_rank(logits)
    if not logits.size:
        return np.zeros(logits.shape, logits.dtype)
    found = _log_softmax(widen(logits))
    if found is not None:
        return narrow(found[0], logits.dtype)
    y = _shifted(logits)
    y -= np.log(np.add.reduce(np.exp(y), -1, keepdims=True))
    return narrow(y, logits.dtype)


def softmax_cross_entropy(features, labels):
    """SoftmaxCrossEntropyWithLogits: the loss per row, and its gradient with respect to the logits."""
    try:
        shape = np.broadcast_shapes(features.shape, labels.shape)
    except ValueError:
        raise errors.InvalidArgumentError(
            "logits and labels must be broadcastable: "
            f"logits_size={show(features.shape)} labels_size={show(labels.shape)}"
        ) from None
    if len(shape) != 2:
        raise errors.InvalidArgumentError(
            "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional"
        )
    if 0 in shape:
        return [np.zeros(shape[0], features.dtype), np.zeros(shape, features.dtype)]
    target = widen(labels)
    found = _cross_entropy(widen(features), target) if features.shape == shape else None
    if found is not None:
        return [narrow(found[0].reshape(-1), features.dtype), narrow(found[1], features.dtype)]
    shifted = _shifted(np.broadcast_to(features, shape))
    exp = np.exp(shifted)
    total = np.add.reduce(exp, -1, keepdims=True)
    loss = np.add.reduce(target * (np.log(total) - shifted), -1)
    exp /= total
    exp -= target
    return [narrow(loss, features.dtype), narrow(exp, features.dtype)]


def sparse_softmax_cross_entropy(features, labels):
    """SparseSoftmaxCrossEntropyWithLogits: as above, with one class index per row; an index outside is an error."""
    if features.ndim != 2:
        raise errors.InvalidArgumentError(f"logits must be 2-D, but got shape {show(features.shape)}")
    if labels.ndim != 1:
        raise errors.InvalidArgumentError(f"labels must be 1-D, but got shape {show(labels.shape)}")
    if features.shape[0] != labels.shape[0]:
        raise errors.InvalidArgumentError(
            "logits and labels must have the same first dimension, "
            f"got logits shape {show(features.shape)} and labels shape {show(labels.shape)}"
        )
    rows, classes = features.shape
    if not classes:
        raise errors.InvalidArgumentError(
            f"Must have at least one class, but got logits shape {show(features.shape)}"
        )
    if not rows:
        return [np.zeros(0, features.dtype), np.zeros(features.shape, features.dtype)]
    if (not 0 <= labels.item() < classes) if rows == 1 else (np.minimum.reduce(labels) < 0 or np.maximum.reduce(labels) >= classes):
        wrong = (labels < 0) | (labels >= classes)
        raise errors.InvalidArgumentError(
            f"Received a label value of {labels[wrong][0]} which is outside the valid range of [0, {classes}).  "
            f"Label values: {' '.join(map(str, labels.tolist()))}"
        )
    if classes <= FEW_CLASSES and rows > classes:
        return _sparse_across(features, labels)
    at = labels + np.arange(0, rows * classes, classes)
    wide = widen(features)
    found = _softmax_and_logarithms(wide)
    if found is not None:
        gradient, largest, logarithm = found
        gradient.reshape(-1)[at] -= 1
        loss = logarithm.reshape(-1) - (wide[np.arange(rows), labels] - largest.reshape(-1))
        return [narrow(loss, features.dtype), narrow(gradient, features.dtype)]
    shifted = np.ascontiguousarray(_shifted(features))  # or `flat` would be a copy
    flat = shifted.reshape(-1)
    chosen = flat[at]
    exp = np.exp(shifted, out=shifted)
    total = np.add.reduce(exp, -1, keepdims=True)
    exp /= total
    flat[at] -= 1
    loss = np.log(total, out=total).reshape(-1)
    loss -= chosen
    return [narrow(loss, features.dtype), narrow(exp, features.dtype)]


FEW_CLASSES = 32
"""Rows of up to so many numbers are reduced across: NumPy's reductions of short rows take their time for each."""


def _sparse_across(features: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    """The cross entropy of many short rows, computed column by column."""
    columns = widen(features).T.copy()
    columns -= np.maximum.reduce(columns, 0)
    rows = features.shape[0]
    at = labels * np.intp(rows) + np.arange(rows)
    flat = columns.reshape(-1)
    chosen = flat[at]
    np.exp(columns, out=columns)
    total = np.add.reduce(columns, 0)
    columns /= total
    flat[at] -= 1
    loss = np.log(total, out=total)
    loss -= chosen
    return [narrow(loss, features.dtype), narrow(columns.T.copy(), features.dtype)]
