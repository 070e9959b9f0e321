"""Which of TF's ops go to oneDNN: for each op the maker that `graph.bind` asks when a node is bound, and what stands between such nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from penstock.engines.onednn import elementwise
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.binding import Kernel, library_for, remembering, shape_1, shapes, shapes_2
from penstock.engines.onednn.norm_kernels import (
    batch_norm,
    batch_norm_backward,
    layer_norm,
    layer_norm_backward,
    softmax,
    softmax_backward,
)
from penstock.engines.onednn.primitives import FLOAT32
from penstock.engines.onednn.product_kernels import product, product_columns, sum_of_products
from penstock.engines.onednn.window_kernels import (
    avg_pool_backward,
    conv_backward_filter,
    conv_backward_input,
    conv_forward,
    max_pool_backward,
    pool_forward,
)
from penstock.graph.ir import Operation, Tensor

MAKERS: dict[str, Callable[[Operation, Kernel], Kernel | None]] = {
    "_LayerNorm": layer_norm,
    "_LayerNormGrad": layer_norm_backward,
    "_SoftmaxGrad": softmax_backward,
    "Conv2D": conv_forward(False),
    "Conv2DBackpropInput": conv_backward_input(False),
    "Conv2DBackpropFilter": conv_backward_filter(False),
    "_MklNativeConv2DBackpropFilterWithBias": conv_backward_filter(False, has_bias=True),
    "Conv2DBackpropInputV2": conv_backward_input(False, from_sizes=False),
    "Conv2DBackpropFilterV2": conv_backward_filter(False, from_sizes=False),
    "DepthwiseConv2dNative": conv_forward(True),
    "DepthwiseConv2dNativeBackpropInput": conv_backward_input(True),
    "DepthwiseConv2dNativeBackpropFilter": conv_backward_filter(True),
    "Conv3D": conv_forward(False),
    "Conv3DBackpropInputV2": conv_backward_input(False),
    "Conv3DBackpropFilterV2": conv_backward_filter(False),
    "MatMul": product("transpose_a", "transpose_b", ["T"]),
    "BatchMatMul": product("adj_x", "adj_y", ["T"], same_batches=True),
    "BatchMatMulV2": product("adj_x", "adj_y", ["T"]),
    "BatchMatMulV3": product("adj_x", "adj_y", ["Ta", "Tb", "Tout"]),
    "_ScaledBatchMatMul": product("adj_x", "adj_y", ["T"]),
    "_MatMulColumns": product_columns,
    "_SumOfProducts": sum_of_products,
    "_SumOfProductsAndRows": sum_of_products,
    "MaxPool": pool_forward(lib.POOLING_MAX),
    "MaxPool3D": pool_forward(lib.POOLING_MAX),
    "MaxPoolGrad": max_pool_backward,
    "AvgPool": pool_forward(lib.POOLING_AVG_EXCLUDE_PADDING),
    "AvgPool3D": pool_forward(lib.POOLING_AVG_EXCLUDE_PADDING),
    "AvgPoolGrad": avg_pool_backward,
    "AvgPool3DGrad": avg_pool_backward,
    "FusedBatchNorm": batch_norm(5),
    "FusedBatchNormV2": batch_norm(5),
    "FusedBatchNormV3": batch_norm(6),
    "FusedBatchNormGrad": batch_norm_backward,
    "FusedBatchNormGradV2": batch_norm_backward,
    "FusedBatchNormGradV3": batch_norm_backward,
    "Softmax": softmax(lib.SOFTMAX_ACCURATE),
    "LogSoftmax": softmax(lib.SOFTMAX_LOG),
}

# -- between convolutions -----------------------------------------------------------------------------------------------

IMAGE_RANK = 4


def whole_arrays(kind: type, key_of: Kernel) -> Kernel:
    """Relu, LeakyRelu, their gradients and sums behind convolutions and the like; behind products of matrices the gradients, which take NumPy two passes and a
    conversion, and sums that only such nodes read. Others are left to NumPy, whose tiles join such nodes with their neighbours. The kernel's `over(i)` is a kernel that writes the result into input `i`, for callers who know that nobody else needs it."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        if op.attrs["T"].np != FLOAT32 or not 1 < len(op.inputs) + (kind in elementwise.UNARY) <= elementwise.MOST_SUMMANDS:
            return None
        slope = float(op.attrs.get("alpha", 0.0))
        if "alpha" in op.attrs and not 0 < slope <= 1:
            return None
        dims = op.inputs[0].dims
        if dims is None or len(dims) < 2 or any(t.dims != dims for t in op.inputs):
            return None
        if len(dims) < IMAGE_RANK:
            if kind in elementwise.UNARY or not any(_source(t).type in _HEAVY for t in op.inputs) or not (kind in elementwise.GRADIENTS or _only_heavy_read(op)):
                return None
        elif not any(t.op.type in _HEAVY for t in op.inputs):
            return None
        known = [n for n in dims if n is not None]
        if len(known) == len(dims) and int(np.prod(known)) < elementwise.MIN_SIZE:
            return None

        def prepare(*inputs: np.ndarray, over: int | None = None) -> Kernel | None:
            library = library_for(FLOAT32) if inputs[0].size >= elementwise.MIN_SIZE else None
            return elementwise.plan_for(kind, library, inputs, over, slope) if library else None

        def by_numpy(*inputs: np.ndarray) -> None:
            return None

        kernel = remembering(op, fallback, key_of, prepare, by_numpy)
        kernel.over = lambda i: remembering(op, fallback, key_of, functools.partial(prepare, over=i), by_numpy)  # type: ignore[attr-defined]
        return kernel

    return maker


def _source(tensor: Tensor) -> Operation:
    """The node that computes a value, behind names and forms of it."""
    while tensor.op.type in ("Identity", "Reshape"):
        tensor = tensor.op.inputs[0]
    return tensor.op


def _only_heavy_read(op: Operation) -> bool:
    """Whether nobody reads a node whom a tile could join with it."""
    readers = [r for t in op.outputs for r in t._consumers or ()]
    return bool(readers) and all(_only_heavy_read(r) if r.type in ("Identity", "Reshape") else r.type in _HEAVY for r in readers)


BETWEEN: dict[str, Callable[[Operation, Kernel], Kernel | None]] = {
    "AddN": whole_arrays(elementwise.Sum, shapes),
    "AddV2": whole_arrays(elementwise.Sum, shapes_2),
    "Relu": whole_arrays(elementwise.Relu, shape_1),
    "ReluGrad": whole_arrays(elementwise.ReluGrad, shapes_2),
    "LeakyRelu": whole_arrays(elementwise.LeakyRelu, shape_1),
    "LeakyReluGrad": whole_arrays(elementwise.LeakyReluGrad, shapes_2),
}
_HEAVY = frozenset((*MAKERS, *BETWEEN, "_FusedConv2D", "_FusedDepthwiseConv2dNative", "_FusedMatMul", "BiasAddGrad"))
