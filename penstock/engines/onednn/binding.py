"""What makers of kernels share: from which sizes on oneDNN is worth it, and how a kernel remembers the plan for the shapes it met last.

A maker looks at a node's attributes and gives a kernel with the inputs of NumPy's one, or None if oneDNN has nothing for such a node.
For new shapes the kernel asks for another plan, and where there is none (sizes too small to be worth it, empty arrays, shapes that do not
fit) it calls NumPy's kernel, which also words every error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.engines.onednn import crowd
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.library import Library, OneDnnError
from penstock.engines.onednn.primitives import BFLOAT16
from penstock.graph.ir import Operation, Tensor

Kernel = Callable[..., Any]

# Products of more multiplications than this (matrices), or more elements of the matrix (vectors), NumPy's OpenBLAS shares out among
# threads of its own, which then spin for 20 ms and take a core from everything else. So larger products never get there.
BLAS_ALONE, BLAS_ALONE_VECTOR = 262144, 9216

# Vectors times matrices up to this size are quicker with BLAS on one thread than with oneDNN on two: all of it waits for memory.
LARGE_VECTOR_PRODUCT = 262144

# Below these sizes NumPy is as quick, or the time matters less than that of loading the library and compiling a primitive.
MIN_CONV_FLOPS = 2e4
MIN_DEPTHWISE_FLOPS = 5e3
MIN_BATCH_FLOPS = 3e6
MIN_NARROW_FLOPS = 1e5
MIN_FUSED_FLOPS = 1e5
MIN_POOL_SIZE = 512
MIN_NORM_SIZE = 1024
MIN_SOFTMAX_SIZE = 2048


def library_for(dtype: np.dtype) -> Library | None:
    """The library, if it computes with that type on this CPU."""
    library = lib.get()
    return None if library is None or (dtype == BFLOAT16 and not library.has_bf16) else library


def is_constant(tensor: Tensor) -> bool:
    """True if the tensor is the same array in every step."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor.op.type == "Const"


def remembering(op: Operation, fallback: Kernel, key_of: Kernel, prepare: Kernel) -> Kernel:
    """A kernel that asks `prepare(*inputs)` for a function of the inputs whenever `key_of(*inputs)` changes; None means `fallback`."""
    last: tuple[Any, Kernel, int] = (None, fallback, 0)

    def kernel(*inputs: Any) -> Any:
        nonlocal last
        key = key_of(*inputs)
        known, run, limit = last
        if known != key or limit != crowd.limit:
            limit = crowd.limit
            run = prepare(*inputs) or fallback
            last = (key, run, limit)
        try:
            return run(*inputs)
        except OneDnnError as error:
            last = (key, fallback, limit)
            if error.status != lib.FORKED:  # that one has been told already
                lib.log.warning("%s in '%s' (%s); NumPy computes it", error, op.name, op.type)
            return fallback(*inputs)

    return kernel


def shape_1(x: Any) -> Any:
    return x.shape


def shapes_2(x: Any, y: Any) -> Any:
    return x.shape, y.shape


def layouts_2(x: Any, y: Any) -> Any:
    return x.shape, y.shape, x.strides, y.strides


def shapes(*inputs: Any) -> Any:
    return [x.shape for x in inputs]
