"""Biases, activations, softmax and its losses, the largest entries, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import merge_same, op, same_as, scalar, with_rank, with_rank_at_least
from penstock.ops.kernels import softmax, topk
from penstock.ops.kernels.norm import l2_loss
from penstock.ops.kernels.numeric import NARROW, column_sums, narrow, widen
from penstock.ops.native import looped
from penstock.ops.samples import arr, empty, ints, normal, uniform
from penstock.shapes import broadcast_dims, format_dims, merge_dim

# -- bias -------------------------------------------------------------------------------------------------------------


def channel_axis(data_format: bytes, rank: int) -> int:
    return 1 if data_format == b"NCHW" and rank > 1 else rank - 1


def bias_shape(c: Any) -> Dims:
    data_format = c.attrs.get("data_format", b"NHWC")
    dims = with_rank_at_least(c, 0, 3 if data_format == b"NCHW" else 2)
    (length,) = with_rank(c, 1, 1)
    if dims is None:
        return None
    axis = channel_axis(data_format, len(dims))
    return (*dims[:axis], merge_dim(dims[axis], length), *dims[axis + 1 :])


def bias_add(value: Any, bias: Any, *, data_format: bytes) -> Any:
    if np.ndim(value) < 2:
        raise InvalidArgumentError(f"Input tensor must be at least 2D: {format_dims(np.shape(value))}")
    if np.ndim(bias) != 1:
        raise InvalidArgumentError(f"Biases must be 1D: {format_dims(np.shape(bias))}")
    axis = channel_axis(data_format, value.ndim)
    if bias.shape[0] != value.shape[axis]:
        raise InvalidArgumentError(
            "Must provide as many biases as the last dimension of the input tensor: "
            f"{format_dims(bias.shape)} vs. {format_dims(value.shape)}"
        )
    return value + (bias if axis == value.ndim - 1 else bias.reshape(-1, *(1,) * (value.ndim - 1 - axis)))


def bias_add_v1(value: Any, bias: Any) -> Any:
    return bias_add(value, bias, data_format=b"NHWC")


def bias_add_grad(dy: Any, *, data_format: bytes) -> Any:
    if np.ndim(dy) < 2:
        raise InvalidArgumentError(f"Input tensor must be at least 2D: {format_dims(np.shape(dy))}")
    axis = channel_axis(data_format, dy.ndim)
    wide = widen(dy)
    if axis == dy.ndim - 1:
        return narrow(column_sums(wide.reshape(-1, dy.shape[-1])) if dy.size else np.zeros(dy.shape[-1], wide.dtype), dy.dtype)
    rest = tuple(i for i in range(dy.ndim) if i != axis)
    return narrow(np.add.reduce(wide, rest, dtype=wide.dtype), dy.dtype)


def bias_add_grad_shape(c: Any) -> Dims:
    data_format = c.attrs["data_format"]
    dims = with_rank_at_least(c, 0, 3 if data_format == b"NCHW" else 2)
    return (None,) if dims is None else (dims[channel_axis(data_format, len(dims))],)


def bias_add_grad_grad(g: Any, op: Any, dy: Any) -> Any:
    """A bias gradient is a sum over everything but channels, so its own gradient is spread over them."""
    if op.attr("data_format") == b"NCHW":
        rank = g.Rank(op.out_backprop)
        tail = g.Fill(g.ExpandDims(g.Sub(rank, 2), 0), g.const(1, np.int32))
        dy = g.Reshape(dy, g.ConcatV2([[-1], tail], 0))
    return g.BroadcastTo(dy, g.Shape(op.out_backprop))


op("BiasAdd(value: T, bias: T) -> (output: T) [T: type in NUMBERS; data_format: string in {'NHWC', 'NCHW'} = 'NHWC']",
   shape=bias_shape, numpy=bias_add,
   grad=lambda g, op, dy: [dy, g.BiasAddGrad(dy, data_format=op.attr("data_format"))],
   samples=[
       dict(value=normal(4, 3), bias=normal(3)),
       dict(value=normal(2, 3, 4, 5), bias=normal(5)),
       dict(value=normal(2, 3, 4, 5), bias=normal(3), data_format="NCHW"),
       dict(value=normal(2, 3, 4), bias=normal(3), data_format="NCHW"),
       dict(value=empty(0, 3), bias=normal(3)),
   ],
   errors=[
       (dict(value=arr([1.0, 2.0]), bias=arr([1.0, 2.0])), InvalidArgumentError, "at least 2D"),
       (dict(value=normal(2, 3), bias=normal(1, 3)), InvalidArgumentError, "Biases must be 1D"),
       (dict(value=normal(2, 3), bias=normal(2)), InvalidArgumentError, r"as many biases as the last dimension .*: \[2\] vs. \[2,3\]"),
   ])  # fmt: skip

op("BiasAddV1(value: T, bias: T) -> (output: T) [T: type in NUMBERS]",
   shape=bias_shape, numpy=bias_add_v1,
   grad=lambda g, op, dy: [dy, g.Sum(dy, g.Range(0, g.Sub(g.Rank(dy), 1), 1))],
   samples=[dict(value=normal(4, 3), bias=normal(3)), dict(value=normal(2, 3, 4), bias=normal(4))])  # fmt: skip

op("BiasAddGrad(out_backprop: T) -> (output: T) [T: type in NUMBERS; data_format: string in {'NHWC', 'NCHW'} = 'NHWC']",
   shape=bias_add_grad_shape, numpy=bias_add_grad, grad=bias_add_grad_grad,
   samples=[
       dict(out_backprop=normal(4, 3)),
       dict(out_backprop=normal(2, 3, 4, 5)),
       dict(out_backprop=normal(2, 3, 4, 5), data_format="NCHW"),
       dict(out_backprop=empty(0, 3)),
   ],
   errors=[(dict(out_backprop=arr([1.0])), InvalidArgumentError, "at least 2D")])  # fmt: skip


# -- activations ------------------------------------------------------------------------------------------------------

SELU_SCALE = 1.0507009873554805
SELU_SCALE_ALPHA = 1.7580993408473768

FEATURES = [dict(features=normal(2, 3, scale=3.0)), dict(features=empty(0, 3)), dict(features=normal())]
FEATURE_EDGES = dict(features=arr([float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 6.0, 30.0, -30.0, 100.0, -100.0], np.float32))
GRADIENTS = [
    dict(gradients=normal(2, 3), features=uniform(2, 3, lo=-8, hi=8)),
    dict(gradients=empty(0, 3), features=empty(0, 3)),
    dict(gradients=normal(), features=normal()),
]
OUTPUT_GRADIENTS = [
    dict(gradients=normal(2, 3), outputs=uniform(2, 3, lo=-0.9, hi=2)),
    dict(gradients=empty(0, 3), outputs=empty(0, 3)),
]


def paired(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A kernel over two inputs of one shape, computed in float32 for half and bfloat16."""

    def kernel(gradients: Any, x: Any, *, node: Any) -> Any:
        check_same_shape(node, gradients, x)
        if x.dtype in NARROW:
            return narrow(function(widen(gradients), widen(x)), x.dtype)
        return function(gradients, x)

    kernel.__name__ = function.__name__
    return kernel


def check_same_shape(node: Any, a: Any, b: Any) -> None:
    if a.shape != b.shape:
        raise InvalidArgumentError(
            f"Inputs to operation {node.name} of type {node.type} must have the same size and shape.  "
            f"Input 0: {format_dims(a.shape)} != input 1: {format_dims(b.shape)}"
        )


def widened(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A kernel that lifts half and bfloat16 to float32 and rounds the result back."""

    def kernel(x: Any) -> Any:
        return narrow(function(widen(x)), x.dtype) if x.dtype in NARROW else function(x)

    kernel.__name__ = function.__name__
    return kernel


def relu(x: Any) -> Any:
    return np.maximum(x, x.dtype.type(0))


@looped
def relu6(x: Any) -> Any:
    return np.minimum(np.maximum(x, x.dtype.type(0)), x.dtype.type(6))


def leaky_relu(x: Any, *, alpha: float) -> Any:
    wide = widen(x)
    slope = wide.dtype.type(np.float32(alpha))
    if 0 < slope <= 1:  # a choice by signs that nobody can foresee takes six times as long; with 0, infinity would become NaN
        return narrow(np.maximum(wide, wide * slope), x.dtype)
    return narrow(np.where(wide > 0, wide, wide * slope), x.dtype)


@looped
def elu(x: Any) -> Any:
    return np.where(x < 0, np.expm1(x), x)


@looped
def selu(x: Any) -> Any:
    scale, alpha = x.dtype.type(SELU_SCALE), x.dtype.type(SELU_SCALE_ALPHA)
    return np.where(x < 0, alpha * np.expm1(x), scale * x)


@looped
def softplus(x: Any) -> Any:
    """log(1 + exp(x)): x itself where exp(-x) would vanish against 1, exp(x) where it would itself."""
    limit = x.dtype.type(np.log(np.finfo(x.dtype).eps) + 2)
    y = np.exp(x)
    y = np.where(x < limit, y, np.log1p(y))
    return np.where(x > -limit, x, y)


@looped
def softsign(x: Any) -> Any:
    return x / (1 + np.abs(x))


# A gradient of zero where the activation is flat comes from a product, so that a NaN in `gradients` shows.
def relu_grad(gradients: Any, x: Any) -> Any:
    return gradients * (x > 0)


def relu6_grad(gradients: Any, x: Any) -> Any:
    return gradients * ((x > 0) & (x < 6))


def leaky_relu_grad(gradients: Any, x: Any, *, alpha: float, node: Any) -> Any:
    check_same_shape(node, gradients, x)
    dy, wide = widen(gradients), widen(x)
    slope = dy.dtype.type(np.float32(alpha))
    if 0 <= slope <= 1:  # times 1 or the slope
        return narrow(dy * np.maximum(wide > 0, slope), gradients.dtype)
    return narrow(np.where(wide > 0, dy, dy * slope), gradients.dtype)


@looped
def elu_grad(gradients: Any, y: Any) -> Any:
    return np.where(y < 0, (y + 1) * gradients, gradients)


@looped
def selu_grad(gradients: Any, y: Any) -> Any:
    return np.where(y < 0, (y + y.dtype.type(SELU_SCALE_ALPHA)) * gradients, gradients * y.dtype.type(SELU_SCALE))


@looped
def softplus_grad(gradients: Any, x: Any) -> Any:
    return gradients / (np.exp(-x) + 1)


@looped
def softsign_grad(gradients: Any, x: Any) -> Any:
    return gradients / np.square(1 + np.abs(x))


op("Relu(features: T) -> (activations: T)"
   " [T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8}]",
   shape=same_as("features"), numpy=relu,
   grad=lambda g, op, dy: g.ReluGrad(dy, op.activations),
   samples=[*FEATURES, FEATURE_EDGES, dict(features=ints(6, lo=-4, hi=9))])  # fmt: skip

op("ReluGrad(gradients: T, features: T) -> (backprops: T) [T: type in REALS]",
   shape=merge_same, numpy=paired(relu_grad),
   grad=lambda g, op, dy: [g.ReluGrad(dy, op.features), g.ZerosLike(op.features)],
   samples=GRADIENTS,
   errors=[(dict(gradients=normal(3), features=normal(2)), InvalidArgumentError, r"must have the same size and shape.  Input 0: \[3\]")])  # fmt: skip

op("Relu6(features: T) -> (activations: T) [T: type in REALS]",
   shape=same_as("features"), numpy=relu6,
   grad=lambda g, op, dy: g.Relu6Grad(dy, op.activations),
   samples=[*FEATURES, FEATURE_EDGES, dict(features=ints(6, lo=-4, hi=9))])  # fmt: skip

op("Relu6Grad(gradients: T, features: T) -> (backprops: T) [T: type in REALS]",
   shape=merge_same, numpy=paired(relu6_grad),
   grad=lambda g, op, dy: [g.Relu6Grad(dy, op.features), g.ZerosLike(op.features)],
   samples=GRADIENTS)  # fmt: skip

op("LeakyRelu(features: T) -> (activations: T) [alpha: float = 0.200000003; T: type in FLOATS = float]",
   shape=same_as("features"), numpy=leaky_relu,
   grad=lambda g, op, dy: g.LeakyReluGrad(dy, op.features, alpha=op.attr("alpha")),
   samples=[*FEATURES, FEATURE_EDGES, dict(features=normal(5), alpha=1.5), dict(features=normal(5), alpha=-0.5),
            dict(features=arr([-1.0, 2.0]))])  # fmt: skip

op("LeakyReluGrad(gradients: T, features: T) -> (backprops: T) [alpha: float = 0.200000003; T: type in FLOATS = float]",
   shape=merge_same, numpy=leaky_relu_grad,
   grad=lambda g, op, dy: [g.LeakyReluGrad(dy, op.features, alpha=op.attr("alpha")), g.ZerosLike(op.features)],
   samples=[*GRADIENTS, dict(gradients=normal(5), features=normal(5), alpha=1.5)])  # fmt: skip

op("Elu(features: T) -> (activations: T) [T: type in FLOATS]",
   shape=same_as("features"), numpy=widened(elu),
   grad=lambda g, op, dy: g.EluGrad(dy, op.activations),
   samples=[*FEATURES, FEATURE_EDGES])  # fmt: skip


def through_negative(name: str) -> Callable[..., Any]:
    """Second derivative of activations that are exponential below zero and linear above."""

    def grad(g: Any, op: Any, dy: Any) -> list[Any]:
        slope, y = op.inputs
        return [getattr(g, name)(dy, y), g.SelectV2(g.Less(y, 0), g.Mul(dy, slope), g.ZerosLike(slope))]

    return grad


op("EluGrad(gradients: T, outputs: T) -> (backprops: T) [T: type in FLOATS]",
   shape=merge_same, numpy=paired(elu_grad), grad=through_negative("EluGrad"), samples=OUTPUT_GRADIENTS)

op("Selu(features: T) -> (activations: T) [T: type in FLOATS]",
   shape=same_as("features"), numpy=widened(selu),
   grad=lambda g, op, dy: g.SeluGrad(dy, op.activations),
   samples=[*FEATURES, FEATURE_EDGES])  # fmt: skip

op("SeluGrad(gradients: T, outputs: T) -> (backprops: T) [T: type in FLOATS]",
   shape=merge_same, numpy=paired(selu_grad), grad=through_negative("SeluGrad"), samples=OUTPUT_GRADIENTS)

op("Softplus(features: T) -> (activations: T) [T: type in FLOATS]",
   shape=same_as("features"), numpy=widened(softplus),
   grad=lambda g, op, dy: g.SoftplusGrad(dy, op.features),
   samples=[*FEATURES, FEATURE_EDGES])  # fmt: skip


def softplus_grad_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    x = op.features
    bell = g.AddV2(g.AddV2(g.Exp(g.Neg(x)), 2), g.Exp(x))
    return [g.SoftplusGrad(dy, x), g.RealDiv(g.Mul(dy, op.gradients), bell)]


op("SoftplusGrad(gradients: T, features: T) -> (backprops: T) [T: type in FLOATS]",
   shape=merge_same, numpy=paired(softplus_grad), grad=softplus_grad_grad, samples=GRADIENTS)

op("Softsign(features: T) -> (activations: T) [T: type in FLOATS]",
   shape=same_as("features"), numpy=widened(softsign),
   grad=lambda g, op, dy: g.SoftsignGrad(dy, op.features),
   samples=[*FEATURES, FEATURE_EDGES])  # fmt: skip

op("SoftsignGrad(gradients: T, features: T) -> (backprops: T) [T: type in FLOATS]",
   shape=merge_same, numpy=paired(softsign_grad), samples=GRADIENTS)


# -- softmax and cross entropies --------------------------------------------------------------------------------------


def softmax_shape(c: Any) -> Dims:
    return with_rank_at_least(c, 0, 1)


def softmax_grad(g: Any, op: Any, dy: Any) -> Any:
    """dx = (dy - sum(dy * y)) * y, row by row."""
    y = op.softmax
    return g.Mul(g.Sub(dy, g.Sum(g.Mul(dy, y), [-1], keep_dims=True)), y)


op("Softmax(logits: T) -> (softmax: T) [T: type in FLOATS]",
   shape=softmax_shape, numpy=softmax.softmax, grad=softmax_grad,
   samples=[dict(logits=normal(3, 4)), dict(logits=normal(5)), dict(logits=normal(2, 3, 4)), dict(logits=empty(0, 3)), dict(logits=empty(3, 0)),
            dict(logits=arr([[1.0, float("-inf")], [1000.0, -1000.0]], np.float32))],
   errors=[(dict(logits=arr(1.0)), InvalidArgumentError, "logits must have >= 1 dimension")])  # fmt: skip

op("LogSoftmax(logits: T) -> (logsoftmax: T) [T: type in FLOATS]",
   shape=softmax_shape, numpy=softmax.log_softmax,
   grad=lambda g, op, dy: g.Sub(dy, g.Mul(g.Sum(dy, [-1], keep_dims=True), g.Exp(op.logsoftmax))),
   samples=[dict(logits=normal(3, 4)), dict(logits=normal(5)), dict(logits=empty(0, 3)), dict(logits=arr([[1.0, float("-inf")], [1000.0, -1000.0]], np.float32))])  # fmt: skip


def cross_entropy_shape(c: Any) -> list[Dims]:
    a, b = c.dims(0), c.dims(1)
    joint = broadcast_dims((None, None) if a is None else a, (None, None) if b is None else b)
    assert joint is not None
    if len(joint) != 2:
        raise ValueError(f"Shape must be broadcasted with rank 2, but is rank {len(joint)}")
    return [joint[:1], joint]


def is_zeros(tensor: Any) -> bool:
    """True if a gradient is known to be zero, so that second-order terms need not be built."""
    if tensor is None or tensor.op.type == "ZerosLike":
        return True
    from penstock.graph.constant import constant_value

    producer = tensor.op.inputs[1] if tensor.op.type == "Fill" else tensor
    value = constant_value(producer) if producer.op.type == "Const" else None
    return value is not None and not np.any(value)


def cross_entropy_grads(g: Any, op: Any, d_loss: Any, d_backprop: Any) -> tuple[Any, Any]:
    """(gradient of the logits, d_loss as a column)."""
    column = g.ExpandDims(d_loss, -1)
    grad = g.Mul(column, op.backprop)
    if not is_zeros(d_backprop):
        y = g.Softmax(op.features)
        grad = g.AddV2(grad, g.Mul(g.Sub(d_backprop, g.Sum(g.Mul(d_backprop, y), [1], keep_dims=True)), y))
    return grad, column


def softmax_cross_entropy_grad(g: Any, op: Any, d_loss: Any, d_backprop: Any) -> list[Any]:
    grad, column = cross_entropy_grads(g, op, d_loss, d_backprop)
    return [grad, g.Mul(column, g.Neg(g.LogSoftmax(op.features)))]


op("SoftmaxCrossEntropyWithLogits(features: T, labels: T) -> (loss: T, backprop: T) [T: type in FLOATS]",
   shape=cross_entropy_shape, numpy=softmax.softmax_cross_entropy, grad=softmax_cross_entropy_grad,
   samples=[
       dict(features=normal(3, 4), labels=uniform(3, 4)),
       dict(features=normal(3, 4), labels=uniform(1, 4)),
       dict(features=normal(1, 4), labels=uniform(3, 4)),
       dict(features=normal(3, 4), labels=uniform(4)),
       dict(features=empty(0, 4), labels=empty(0, 4)),
   ],
   errors=[
       (dict(features=normal(3, 4), labels=normal(3, 5)), InvalidArgumentError, "logits and labels must be broadcastable"),
       (dict(features=normal(2, 3, 4), labels=normal(2, 3, 4)), InvalidArgumentError, "broadcasted to be 2-dimensional"),
   ])  # fmt: skip


def sparse_cross_entropy_shape(c: Any) -> list[Dims]:
    rows, classes = with_rank(c, 0, 2)  # type: ignore[misc]
    (labels,) = with_rank(c, 1, 1)  # type: ignore[misc]
    rows = merge_dim(rows, labels)
    return [(rows,), (rows, classes)]


op("SparseSoftmaxCrossEntropyWithLogits(features: T, labels: Tlabels) -> (loss: T, backprop: T)"
   " [T: type in FLOATS; Tlabels: type in {int32, int64} = int64]",
   shape=sparse_cross_entropy_shape, numpy=softmax.sparse_softmax_cross_entropy,
   grad=lambda g, op, d_loss, d_backprop: [cross_entropy_grads(g, op, d_loss, d_backprop)[0], None],
   samples=[
       dict(features=normal(3, 4), labels=arr([0, 3, 1])),
       dict(features=empty(0, 4), labels=empty(0)),
   ],
   errors=[
       (dict(features=normal(2, 3), labels=arr([0, 3])), InvalidArgumentError, r"label value of 3 which is outside the valid range of \[0, 3\)"),
       (dict(features=normal(2, 3), labels=arr([-1, 0])), InvalidArgumentError, "label value of -1"),
       (dict(features=normal(2, 3), labels=arr([0])), InvalidArgumentError, "same first dimension"),
       (dict(features=normal(3), labels=arr([0])), InvalidArgumentError, "logits must be 2-D"),
   ])  # fmt: skip

op("L2Loss(t: T) -> (output: T) [T: type in FLOATS]",
   shape=scalar, numpy=l2_loss,
   grad=lambda g, op, dy: g.Mul(op.t, dy),
   samples=[dict(t=normal(3, 4)), dict(t=empty(0)), dict(t=normal())])  # fmt: skip


# -- the largest entries ----------------------------------------------------------------------------------------------


def in_top_k_v1(predictions: Any, targets: Any, *, k: int) -> Any:
    return topk.in_top_k(predictions, targets, np.int64(k))


def in_top_k_shape(c: Any) -> Dims:
    (rows, _) = with_rank(c, 0, 2)  # type: ignore[misc]
    (targets,) = with_rank(c, 1, 1)  # type: ignore[misc]
    return (merge_dim(rows, targets),)


IN_TOP_K_ERRORS = [
    (dict(predictions=normal(4), targets=arr([0]), k=1), InvalidArgumentError, "predictions must be 2-dimensional"),
    (dict(predictions=normal(2, 3), targets=arr([0]), k=1), InvalidArgumentError, "First dimension of predictions 2 must match length of targets 1"),
]  # fmt: skip

op("InTopK(predictions: float, targets: T) -> (precision: bool) [k: int; T: type in {int32, int64} = int32]",
   shape=in_top_k_shape, numpy=in_top_k_v1, errors=IN_TOP_K_ERRORS,
   samples=[dict(predictions=normal(5, 4), targets=arr([0, 1, 2, 3, 7]), k=2), dict(predictions=empty(0, 4), targets=empty(0), k=2)])  # fmt: skip

op("InTopKV2(predictions: float, targets: T, k: T) -> (precision: bool) [T: type in {int32, int64} = int32]",
   shape=in_top_k_shape, numpy=topk.in_top_k, errors=IN_TOP_K_ERRORS,
   samples=[dict(predictions=normal(5, 4), targets=arr([0, 1, 2, 3, -1]), k=arr(2)), dict(predictions=arr([[1.0, 1.0], [float("inf"), 0.0]]), targets=arr([0, 0]), k=arr(1))])  # fmt: skip


def top_k_v1(x: Any, *, k: int) -> Any:
    return topk.top_k(x, np.int64(k))


def top_k_v2(x: Any, k: Any, *, index_type: DType) -> Any:
    return topk.top_k(x, k, index_type.np)


def top_k_shape(c: Any) -> Dims:
    dims = with_rank_at_least(c, 0, 1)
    k = c.attrs.get("k")
    if k is None:
        value = c.const(1)
        k = int(value) if value is not None and np.ndim(value) == 0 else None
        if k is not None and k < 0:
            raise ValueError(f"Dimension size, given by scalar input 1, must be non-negative but is {k}")
    if dims is None:
        return None
    if k is not None and dims[-1] is not None and dims[-1] < k:
        raise ValueError(f"input must have last dimension >= k = {k} but is {dims[-1]}")
    return (*dims[:-1], k)


def last(g: Any, vector: Any) -> Any:
    return g.StridedSlice(vector, [-1], [0], [1], shrink_axis_mask=1)


def top_k_grad(g: Any, op: Any, d_values: Any, _: Any) -> list[Any]:
    """Each gradient goes back to the place its value came from."""
    x, index = op.input, g.Cast(op.indices, DstT="int64")
    shape = g.Shape(x, out_type="int64")
    columns = last(g, shape)
    size = g.Prod(shape, [0])
    # Row starts, shaped to stand next to the indices of each row.
    rows = g.Range(g.const(0, np.int64), size, columns)
    k = last(g, g.Shape(op.indices, out_type="int64"))
    flat = g.AddV2(g.Reshape(index, g.Pack([g.Size(rows, out_type="int64"), k])), g.ExpandDims(rows, -1))
    positions = g.Reshape(flat, [-1, 1])
    grad = g.ScatterNd(positions, g.Reshape(d_values, [-1]), g.ExpandDims(size, 0))
    result = [g.Reshape(grad, shape)]
    return result if len(op.inputs) == 1 else [*result, None]


TOP_K_ERRORS = [
    (dict(input=normal(2, 3), k=4), InvalidArgumentError, "input must have at least k columns. Had 3, needed 4"),
]
VARIOUS_ROWS = [normal(3, 5), ints(3, 6, lo=0, hi=4), ints(2, 30, lo=0, hi=9), normal(7), arr([[-0.0, 0.0, -1.0, 0.0, -0.0], [0.0, -0.0, 0.0, -0.0, 2.0]], dtype=np.float32)]

op("TopK(input: T) -> (values: T, indices: int32) [k: int >= 0; sorted: bool = true; T: type in REALS] deprecated@7",
   shape=top_k_shape, numpy=top_k_v1, grad=top_k_grad, errors=TOP_K_ERRORS,
   samples=[dict(input=rows, k=2) for rows in VARIOUS_ROWS])  # fmt: skip

op("TopKV2(input: T, k: Tk) -> (values: T, indices: index_type) [sorted: bool = true; T: type in REALS;"
   " Tk: type in {int16, int32, int64} = int32; index_type: type in {int16, int32, int64} = int32]",
   shape=top_k_shape, numpy=top_k_v2, grad=top_k_grad, errors=TOP_K_ERRORS,
   samples=[*(dict(input=rows, k=arr(k)) for rows in VARIOUS_ROWS for k in (1, 2, 5)), dict(input=normal(3, 4), k=arr(0)), dict(input=empty(0, 4), k=arr(2)),
            dict(input=normal(2, 3), k=arr(2), index_type="int64")])  # fmt: skip


def nth_element_shape(c: Any) -> Dims:
    dims = with_rank_at_least(c, 0, 1)
    n = c.const(1)
    if dims is not None and n is not None and dims[-1] is not None and dims[-1] <= int(n):
        raise ValueError(f"Input must have last dimension > n = {int(n)} but is {dims[-1]}")
    return None if dims is None else dims[:-1]


def nth_element_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    """Entries equal to the n-th one share its gradient."""
    x = op.input
    hit = g.Cast(g.Equal(g.ExpandDims(op.values, -1), x), DstT=op.attr("T"))
    count = g.ExpandDims(g.Sum(hit, [-1]), -1)
    return [g.Mul(g.RealDiv(hit, count), g.ExpandDims(dy, -1)), None]


op("NthElement(input: T, n: int32) -> (values: T) [reverse: bool = false; T: type in REALS]",
   shape=nth_element_shape, numpy=topk.nth_element, grad=nth_element_grad,
   samples=[dict(input=normal(3, 5), n=arr(2)), dict(input=ints(2, 7, lo=0, hi=4), n=arr(0), reverse=True), dict(input=normal(4), n=arr(3))],
   errors=[(dict(input=normal(2, 3), n=3), InvalidArgumentError, "Input must have last dimension > n = 3"),
           (dict(input=normal(2, 3), n=-1), InvalidArgumentError, "n must be non-negative")])  # fmt: skip
