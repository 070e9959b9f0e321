"""Heavy CPU kernels through oneDNN, called by ctypes: convolutions, products, pooling, normalisation, softmax.

library      the shared library: found, loaded, checked; threads, forks
primitives   compiled code for fixed shapes, cached; memory objects, scratchpads, constant weights
plan         layouts and thresholds that all plans share
conv, matmul, pool, norm, elementwise   plans: a primitive and the reorders around it, run with arrays
winograd     plans for 3 x 3 windows with fewer multiplications
kernels      TF's ops: which nodes and sizes go to oneDNN, and which stay with NumPy; by kind in window_kernels, product_kernels, norm_kernels
binding      what these share: thresholds, and how a kernel remembers the plan for its shapes
updates      training ops on large variables, in place
narrow       elementwise ops on bfloat16
rnn          layers of LSTM and GRU cells, all steps in one call
rnn_training   LSTM layers with their gradients
fused        TF's fused nodes: convolutions and products with bias, batch norm, sum and activation in one call

`install()` offers the kernels to `graph.bind`. Nothing is loaded before a node of such an op is bound, and the library not before a
call is large enough for it. PENSTOCK_ENGINES=numpy switches it off. Where there is no library, NumPy computes, which the log says once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from penstock.dtypes import bfloat16
from penstock.graph.bind import offer
from penstock.ops import training

COVERED = (
    "AvgPool", "AvgPool3D", "AvgPool3DGrad", "AvgPoolGrad", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D",
    "Conv2DBackpropFilter", "Conv2DBackpropFilterV2", "Conv2DBackpropInput", "Conv2DBackpropInputV2", "Conv3D",
    "Conv3DBackpropFilterV2", "Conv3DBackpropInputV2", "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropFilter",
    "DepthwiseConv2dNativeBackpropInput", "FusedBatchNorm", "FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3",
    "FusedBatchNormV2", "FusedBatchNormV3", "LogSoftmax", "MatMul", "MaxPool", "MaxPool3D", "MaxPoolGrad", "Softmax",
    "_LayerNorm", "_LayerNormGrad", "_MatMulColumns", "_MklNativeConv2DBackpropFilterWithBias", "_ScaledBatchMatMul", "_SoftmaxGrad",
    "_SumOfProducts", "_SumOfProductsAndRows",
)  # fmt: skip

BETWEEN = ("AddN", "AddV2", "LeakyRelu", "LeakyReluGrad", "Relu", "ReluGrad")
"""Taken only where they stand behind one of the others."""

FUSED = ("_FusedConv2D", "_FusedDepthwiseConv2dNative", "_FusedMatMul")

BYTES = (
    "QuantizedConv2D", "QuantizedConv2DAndRelu", "QuantizedConv2DAndReluAndRequantize", "QuantizedConv2DAndRequantize",
    "QuantizedConv2DWithBias", "QuantizedConv2DWithBiasAndRelu", "QuantizedConv2DWithBiasAndReluAndRequantize",
    "QuantizedConv2DPerChannel", "QuantizedConv2DWithBiasSignedSumAndReluAndRequantize", "QuantizedConv2DWithBiasSumAndRelu",
    "QuantizedConv2DWithBiasSumAndReluAndRequantize", "QuantizedMatMulWithBiasAndDequantize",
    "QuantizedConv2DWithBiasAndRequantize", "QuantizedDepthwiseConv2D", "QuantizedDepthwiseConv2DWithBias",
    "QuantizedDepthwiseConv2DWithBiasAndRelu", "QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize", "QuantizedMatMul",
    "QuantizedMatMulWithBias", "QuantizedMatMulWithBiasAndRelu", "QuantizedMatMulWithBiasAndReluAndRequantize",
    "QuantizedMatMulWithBiasAndRequantize",
)  # fmt: skip

RECURRENT = ("BlockLSTM", "BlockLSTMV2", "GRUBlockCell", "LSTMBlockCell", "_LSTMSteps")
TRAINED = ("_LSTMTraining", "_LSTMTrainingGrad")

NARROW = (
    "Abs", "Add", "AddV2", "BiasAdd", "Cast", "Mul", "Neg", "RealDiv", "Relu", "ReluGrad", "Sigmoid", "SigmoidGrad", "Sqrt", "Square", "Sub", "Tanh", "TanhGrad",
)  # fmt: skip
"""Taken only on bfloat16."""

budget: Callable[[], int] | None = None
"""How many threads the process has, as the runtime counts them."""


def install(threads: Callable[[], int] | None = None) -> None:
    """Offers oneDNN's kernels; `threads()` tells how many threads they may use unless `set_threads` says otherwise."""
    global budget
    budget = threads
    for name in (*COVERED, *BETWEEN, *FUSED, *BYTES, *RECURRENT, *TRAINED):
        offer(name, "onednn", _lazily(name))
    for name in NARROW:
        offer(name, "onednn", _narrow(_lazily(name) if name in BETWEEN else None), only=None if name in BETWEEN else frozenset((bfloat16,)))
    training.engine = _update


def _update(*args: Any) -> bool:
    """A training op's update of a large variable."""
    from penstock.engines.onednn.updates import update

    training.engine = update
    return update(*args)


def _narrow(otherwise: Callable[..., Any] | None) -> Callable[..., Any]:
    """The maker for bfloat16, and `otherwise` for other types."""

    def maker(op: Any, kernel: Callable[..., Any]) -> Callable[..., Any] | None:
        attrs = op.attrs
        if attrs.get("T") is bfloat16 or attrs.get("SrcT") is bfloat16 or attrs.get("DstT") is bfloat16:
            from penstock.engines.halves import for_other_shapes
            from penstock.engines.onednn.narrow import maker as narrow_maker

            return narrow_maker(op, for_other_shapes(op, kernel))
        return None if otherwise is None else otherwise(op, kernel)

    return maker


def _lazily(name: str) -> Callable[..., Any]:
    return lambda op, kernel: _maker(name)(op, kernel)


@functools.cache
def _maker(name: str) -> Callable[..., Any]:
    if name in BYTES:
        from penstock.engines.onednn.int8 import maker

        return maker
    if name in FUSED:
        from penstock.engines.onednn.fused import MAKERS
    elif name in RECURRENT:
        from penstock.engines.onednn.rnn import MAKERS
    elif name in TRAINED:
        from penstock.engines.onednn.rnn_training import MAKERS
    elif name in BETWEEN:
        from penstock.engines.onednn.kernels import BETWEEN as MAKERS
    else:
        from penstock.engines.onednn.kernels import MAKERS

    return MAKERS[name]


def set_threads(number: int) -> None:
    """Sets how many threads one kernel may use (`intra_op_parallelism_threads`)."""
    from penstock.engines.onednn import library

    library.set_threads(number)
