"""Softmax, the cross entropies, and biases. Half and bfloat16 are computed in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import jnp, rule
from penstock.ops.kernels.numeric import narrow, widen

# -- softmax ----------------------------------------------------------------------------------------------------------


def _shifted(logits: Any) -> Any:
    """`logits` less the largest of each row."""
    wide = widen(logits)
    return wide - jnp.max(wide, -1, keepdims=True)


@rule("Softmax")
def softmax(logits: Any) -> Any:
    need(logits.ndim >= 1, "logits without a dimension")
    if 0 in logits.shape:
        return jnp.zeros(logits.shape, logits.dtype)
    y = jnp.exp(_shifted(logits))
    return narrow(y / jnp.sum(y, -1, keepdims=True), logits.dtype)


@rule("LogSoftmax")
def log_softmax(logits: Any) -> Any:
    need(logits.ndim >= 1, "logits without a dimension")
    if 0 in logits.shape:
        return jnp.zeros(logits.shape, logits.dtype)
    y = _shifted(logits)
    return narrow(y - jnp.log(jnp.sum(jnp.exp(y), -1, keepdims=True)), logits.dtype)


@rule("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(features: Any, labels: Any) -> list[Any]:
    try:
        shape = np.broadcast_shapes(features.shape, labels.shape)
    except ValueError:
        shape = ()
    need(len(shape) == 2, "logits and labels that do not fit")
    if 0 in shape:
        return [jnp.zeros(shape[:1], features.dtype), jnp.zeros(shape, features.dtype)]
    shifted = _shifted(jnp.broadcast_to(features, shape))
    target = widen(labels)
    exp = jnp.exp(shifted)
    total = jnp.sum(exp, -1, keepdims=True)
    loss = jnp.sum(target * (jnp.log(total) - shifted), -1)
    return [narrow(loss, features.dtype), narrow(exp / total - target, features.dtype)]


@rule("SparseSoftmaxCrossEntropyWithLogits", raises=True)
def sparse_softmax_cross_entropy(features: Any, labels: Any) -> list[Any]:
    """A label outside of the classes gives NaNs, as on TF's GPUs."""
    need(features.ndim == 2 and labels.shape == features.shape[:1] and features.shape[1] > 0, "logits and labels that do not fit")
    if not features.shape[0]:
        return [jnp.zeros(0, features.dtype), jnp.zeros(features.shape, features.dtype)]
    classes = features.shape[1]
    shifted = _shifted(features)
    column = labels[:, None]
    chosen = np.arange(classes, dtype=labels.dtype) == column
    exp = jnp.exp(shifted)
    total = jnp.sum(exp, -1, keepdims=True)
    zero = np.zeros((), shifted.dtype)
    loss = jnp.log(total[:, 0]) - jnp.sum(jnp.where(chosen, shifted, zero), -1)
    known = (column >= 0) & (column < classes)
    missing = np.full((), np.nan, shifted.dtype)
    loss = jnp.where(known[:, 0], loss, missing)
    backprop = jnp.where(known, exp / total - chosen, missing)
    return [narrow(loss, features.dtype), narrow(backprop, features.dtype)]


# -- bias -------------------------------------------------------------------------------------------------------------


def _channel_axis(data_format: bytes, rank: int) -> int:
    return 1 if data_format == b"NCHW" and rank > 1 else rank - 1


@rule("BiasAdd")
def bias_add(value: Any, bias: Any, *, data_format: bytes) -> Any:
    need(value.ndim >= 2 and bias.ndim == 1, "a bias that does not fit")
    axis = _channel_axis(data_format, value.ndim)
    need(bias.shape[0] == value.shape[axis], "a bias that does not fit")
    return value + bias.reshape(-1, *(1,) * (value.ndim - 1 - axis))


@rule("BiasAddV1")
def bias_add_v1(value: Any, bias: Any) -> Any:
    return bias_add(value, bias, data_format=b"NHWC")


@rule("BiasAddGrad")
def bias_add_grad(dy: Any, *, data_format: bytes) -> Any:
    need(dy.ndim >= 2, "a gradient that does not fit")
    axis = _channel_axis(data_format, dy.ndim)
    wide = widen(dy)
    return narrow(jnp.sum(wide, tuple(i for i in range(dy.ndim) if i != axis), dtype=wide.dtype), dy.dtype)
