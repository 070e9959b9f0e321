"""What makers of kernels share: from which sizes on oneDNN is worth it, and how a kernel remembers the plans for the shapes it has met.

A maker looks at a node's attributes and gives a kernel with the inputs of NumPy's one, or None if oneDNN has nothing for such a node.
For new shapes the kernel asks for another plan, and where there is none (sizes too small to be worth it, empty arrays, shapes that do not
fit) it calls NumPy's kernel, which also words every error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.engines.onednn import crowd, primitives
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.library import Library, OneDnnError
from penstock.engines.onednn.primitives import BFLOAT16
from penstock.engines.xla.backend import is_deterministic
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


FEW_SHAPES = 4
"""Shapes of its inputs for which a kernel makes plans at once. Where more come, sizes are data (a sequence's length, what is left of a batch), and the next may not come again."""
OFTEN = 16
"""Times that such a shape has to come before it is worth a plan, which takes as long to make as some tens of small products."""
MOST_PLANNED = 16
"""Shapes with a plan, where there is another way: a primitive is 100 to 300 KB of code."""
MOST_KEPT = 256
"""Shapes that a kernel remembers at all."""


class _Remembered:
    """What computes which shapes of a kernel's inputs.

    planned   shapes -> the function that a plan gave, None if it has to be asked for again
    rare      shapes that came when there were plans enough -> the function that computes them without one, and how often they came
    stamp     the limits of threads, and how often the cache of plans has been filled anew, for which all that holds
    """

    def __init__(self, fallback: Kernel, prepare: Kernel, meanwhile: Kernel | None) -> None:
        self._fallback, self._prepare = fallback, prepare
        self._meanwhile = None if meanwhile is None or is_deterministic() else meanwhile  # bits would depend on what has come before
        self.planned: dict[Any, Kernel | None] = {}
        self.rare: dict[Any, tuple[Kernel, int]] = {}
        self._stamp = (0, 0)

    def find(self, key: Any, inputs: tuple[Any, ...]) -> tuple[Kernel, bool]:
        """The function for these inputs, and whether it is the last word."""
        stamp = (crowd.stamp(), primitives.dropped // primitives.CAPACITY)
        if stamp != self._stamp:  # nothing is held for long that the cache of plans has let go
            self.planned, self.rare, self._stamp = dict.fromkeys(self.planned), {} if stamp[0] != self._stamp[0] else self.rare, stamp
        run = self.planned.get(key)
        if run is not None:
            return run, True
        if self._meanwhile is not None and key not in self.planned and len(self.planned) >= FEW_SHAPES:
            run, times = self.rare.get(key) or (self._meanwhile(*inputs) or self._fallback, 0)
            if times + 1 < OFTEN or len(self.planned) >= MOST_PLANNED:
                if len(self.rare) >= MOST_KEPT:
                    self.rare.clear()
                self.rare[key] = (run, times + 1)
                return run, False
            self.rare.pop(key, None)
        run = self._prepare(*inputs) or self._fallback
        self.keep(key, run)
        return run, True

    def keep(self, key: Any, run: Kernel) -> None:
        if len(self.planned) >= MOST_KEPT:
            self.planned.clear()
        self.planned[key] = run


def remembering(op: Operation, fallback: Kernel, key_of: Kernel, prepare: Kernel, meanwhile: Kernel | None = None) -> Kernel:
    """A kernel that asks `prepare(*inputs)` for a function of the inputs for each new `key_of(*inputs)`; None means `fallback`.

    `meanwhile(*inputs)` gives one for which nothing has to be compiled, for shapes that may not come again."""
    last: tuple[Any, Kernel, int] = (None, fallback, 0)
    remembered = _Remembered(fallback, prepare, meanwhile)

    def kernel(*inputs: Any) -> Any:
        nonlocal last
        key = key_of(*inputs)
        known, run, stamp = last
        if known != key or stamp != crowd.stamp():
            stamp = crowd.stamp()
            run, stays = remembered.find(key, inputs)
            if stays:
                last = (key, run, stamp)
        try:
            return run(*inputs)
        except OneDnnError as error:
            last = (key, fallback, stamp)
            remembered.keep(key, fallback)
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
    return tuple([x.shape for x in inputs])
