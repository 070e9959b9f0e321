"""Convolutions and products with what follows them in one node, as TensorFlow's remapper makes them.

    _FusedConv2D(x, filter, [bias], fused_ops=["BiasAdd", "Relu"])

`fused_ops` names the steps in order; each takes its arguments from `args` in turn: BiasAdd one, FusedBatchNorm four (scale, offset, mean,
variance, in inference mode), Add one, activations none. The pass `remapping` makes such nodes; graphs that TensorFlow has optimised bring
their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock import errors
from penstock.graph.ir import Dims
from penstock.ops import nn
from penstock.ops.conv import conv_shape, depthwise_shape, sizes_shape
from penstock.ops.declare import op, with_rank
from penstock.ops.kernels import conv, depthwise, norm
from penstock.ops.kernels.numeric import narrow, widen
from penstock.ops.kernels.window import layout
from penstock.ops.matmul import matmul_kernel, matmul_shape

ARGUMENTS = {b"BiasAdd": 1, b"FusedBatchNorm": 4, b"Add": 1}
"""How many arguments a step takes; activations take none."""


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


ACTIVATIONS: dict[bytes, Callable[..., np.ndarray]] = {
    b"Relu": nn.relu,
    b"Relu6": nn.relu6,
    b"Elu": nn.elu,
    b"LeakyRelu": nn.leaky_relu,
    b"Tanh": np.tanh,
    b"Sigmoid": _sigmoid,
}


def split_arguments(fused_ops: Sequence[bytes], count: int) -> list[tuple[bytes, slice]]:
    """Each step with the range of its arguments."""
    steps, start = [], 0
    for name in fused_ops:
        if name not in ARGUMENTS and name not in ACTIVATIONS:
            raise errors.UnimplementedError(f"Fusion is not implemented: [{','.join(n.decode() for n in fused_ops)}]")
        stop = start + ARGUMENTS.get(name, 0)
        steps.append((name, slice(start, stop)))
        start = stop
    if start != count:
        raise errors.InvalidArgumentError(f"Fused [{','.join(n.decode() for n in fused_ops)}] needs {start} arguments, but got {count}")
    return steps


def compose(first: Callable[[], np.ndarray], dtype: np.dtype, args: Sequence[np.ndarray], node: Any, fused_ops: Any, epsilon: float, alpha: float) -> np.ndarray:
    """The steps one by one; types narrower than float32 are rounded once, at the end."""
    data_format = node.attrs.get("data_format", b"NHWC")
    y = first()
    for name, where in split_arguments(fused_ops, len(args)):
        more = [widen(a) for a in args[where]]
        if name == b"BiasAdd":
            y = nn.bias_add(y, *more, data_format=data_format)
        elif name == b"Add":
            y = y + more[0]
        elif name == b"FusedBatchNorm":
            y = norm.fused_batch_norm(y, *more, epsilon=epsilon, exponential_avg_factor=1.0, data_format=data_format, is_training=False)[0]
        elif name == b"LeakyRelu":
            y = nn.leaky_relu(y, alpha=alpha)
        else:
            y = ACTIVATIONS[name](y)
    return narrow(y, dtype)


def fused_conv2d(
    x, filter, args, host_args, *, strides, padding, explicit_paddings, data_format, filter_format, dilations, fused_ops, epsilon,
    leakyrelu_alpha, node,
):  # fmt: skip
    if filter_format != b"HWIO":
        raise errors.UnimplementedError("Filters on CPUs must be in format HWIO")

    def first() -> np.ndarray:
        return conv.conv2d(
            widen(x), widen(filter), strides=strides, padding=padding, explicit_paddings=explicit_paddings, data_format=data_format, dilations=dilations
        )

    return compose(first, x.dtype, args, node, fused_ops, epsilon, leakyrelu_alpha)


def fused_depthwise_conv2d(x, filter, args, *, strides, padding, data_format, dilations, fused_ops, epsilon, leakyrelu_alpha, node):
    def first() -> np.ndarray:
        return depthwise.depthwise_conv2d(widen(x), widen(filter), strides=strides, padding=padding, data_format=data_format, dilations=dilations)

    return compose(first, x.dtype, args, node, fused_ops, epsilon, leakyrelu_alpha)


def fused_mat_mul(a, b, args, *, transpose_a, transpose_b, fused_ops, epsilon, leakyrelu_alpha, node):
    def first() -> np.ndarray:
        return matmul_kernel(widen(a), widen(b), transpose_a=transpose_a, transpose_b=transpose_b)

    return compose(first, a.dtype, args, node, fused_ops, epsilon, leakyrelu_alpha)


def filter_and_bias_shapes(c: Any) -> list[Dims]:
    dims = with_rank(c, 2, 4)
    return [sizes_shape(1, 4)(c), (dims[layout(c.attrs["data_format"]).channel],)]


def filter_and_bias_gradients(x, filter_sizes, dy, *, strides, padding, data_format, dilations):
    """The gradients of a convolution's filter and of the bias behind it."""
    filter = conv.conv2d_backprop_filter(x, filter_sizes, dy, strides=strides, padding=padding, data_format=data_format, dilations=dilations)
    return [filter, nn.bias_add_grad(dy, data_format=data_format)]


op("_MklNativeConv2DBackpropFilterWithBias(input: T, filter_sizes: int32, out_backprop: T) -> (output: T, bias_grad: T)"
   " [T: type in {bfloat16, float, half}; strides: list(int); use_cudnn_on_gpu: bool = true; padding: string in {'SAME', 'VALID'};"
   " data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]]",
   shape=filter_and_bias_shapes, numpy=filter_and_bias_gradients, expensive=True, host_memory=["filter_sizes"])  # fmt: skip

op("_FusedConv2D(input: T, filter: T, args: list TArgs, host_args: num_host_args*float) -> (output: T) [T: type in {half, float, double, int8, qint8};"
   " TArgs: list(type) >= 1; num_args: int >= 0; num_host_args: int >= 0 = 0; strides: list(int); padding: string in {'SAME', 'VALID', 'EXPLICIT'};"
   " explicit_paddings: list(int) = []; data_format: string in {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC';"
   " filter_format: string in {'HWIO', 'OIHW', 'OIHW_VECT_I'} = 'HWIO'; dilations: list(int) = [1, 1, 1, 1]; use_cudnn_on_gpu: bool = true;"
   " fused_ops: list(string) = []; epsilon: float = 9.99999975e-05; leakyrelu_alpha: float = 0.200000003]",
   shape=conv_shape, numpy=fused_conv2d, expensive=True)  # fmt: skip

op("_FusedDepthwiseConv2dNative(input: T, filter: T, args: num_args*T) -> (output: T) [T: type in {half, bfloat16, float, double}; num_args: int >= 0;"
   " strides: list(int); padding: string in {'SAME', 'VALID'}; data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1];"
   " fused_ops: list(string) = []; epsilon: float = 9.99999975e-05; leakyrelu_alpha: float = 0.200000003]",
   shape=depthwise_shape, numpy=fused_depthwise_conv2d, expensive=True)  # fmt: skip

op("_FusedMatMul(a: T, b: T, args: num_args*T) -> (product: T) [transpose_a: bool = false; transpose_b: bool = false;"
   " T: type in {bfloat16, half, float}; num_args: int >= 0; fused_ops: list(string) = []; epsilon: float = 9.99999975e-05;"
   " leakyrelu_alpha: float = 0.200000003]",
   shape=matmul_shape, numpy=fused_mat_mul, expensive=True)  # fmt: skip
