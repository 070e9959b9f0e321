"""Batch normalisation with its gradient, layer normalisation, softmax and log-softmax."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.engines.memory import address, aligned_empty
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.library import Library
from penstock.engines.onednn.plan import BYTES_PER_US, channels_last_strides, contiguous, planned, strides_of
from penstock.engines.onednn.primitives import FLOAT32, Maker

_AFFINE = lib.USE_SCALE | lib.USE_SHIFT

# -- batches ------------------------------------------------------------------------------------------------------------


class BatchSpec(NamedTuple):
    """A batch normalisation of an array of logical dims (N, C, *spatial)."""

    dims: tuple[int, ...]
    channels_last: bool
    dtype: np.dtype
    epsilon: float
    is_training: bool


class _Batch:
    def __init__(self, m: Maker, spec: BatchSpec) -> None:
        lay_out = channels_last_strides if spec.channels_last else strides_of
        self.x = m.md(spec.dims, lay_out(spec.dims), spec.dtype)
        self.vector = m.md((spec.dims[1],), (1,))
        self.flags = _AFFINE if spec.is_training else _AFFINE | lib.USE_GLOBAL_STATS
        self.dtype, self.depth = spec.dtype, spec.dims[1]
        self.spec = spec

    def forward_pd(self, m: Maker, prop: int) -> int:
        return m.pd("batch_normalization_forward", prop, self.x, self.x, self.spec.epsilon, self.flags, m.attr())


class BatchInference(_Batch):
    """y = (x - mean) / sqrt(variance + epsilon) * scale + shift, with given statistics."""

    def __init__(self, m: Maker, spec: BatchSpec) -> None:
        super().__init__(m, spec)
        vectors = (lib.ARG_SCALE, lib.ARG_SHIFT, lib.ARG_MEAN, lib.ARG_VARIANCE)
        args = [(lib.ARG_SRC, self.x), *((arg, self.vector) for arg in vectors), (lib.ARG_DST, self.x)]
        self.main = m.primitive(self.forward_pd(m, lib.FORWARD_INFERENCE), args)

    def run(self, x: np.ndarray, scale: np.ndarray, shift: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        x, scale, shift, mean, variance = map(contiguous, (x, scale, shift, mean, variance))
        y = aligned_empty(x.shape, self.dtype)
        self.main.run(address(x), address(scale), address(shift), address(mean), address(variance), address(y))
        return y


class BatchTraining(_Batch):
    """As above, with the statistics of the batch itself, which are results too (the variance uncorrected)."""

    def __init__(self, m: Maker, spec: BatchSpec) -> None:
        super().__init__(m, spec)
        vectors = (lib.ARG_SCALE, lib.ARG_SHIFT, lib.ARG_MEAN, lib.ARG_VARIANCE)
        args = [(lib.ARG_SRC, self.x), *((arg, self.vector) for arg in vectors), (lib.ARG_DST, self.x)]
        self.main = m.primitive(self.forward_pd(m, lib.FORWARD_TRAINING), args)

    def run(self, x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x, scale, shift = map(contiguous, (x, scale, shift))
        y, mean, variance = aligned_empty(x.shape, self.dtype), np.empty(self.depth, np.float32), np.empty(self.depth, np.float32)
        self.main.run(address(x), address(scale), address(shift), address(mean), address(variance), address(y))
        return y, mean, variance


class BatchBackward(_Batch):
    """Gradients of x, scale and shift."""

    def __init__(self, m: Maker, spec: BatchSpec) -> None:
        super().__init__(m, spec)
        hint = self.forward_pd(m, lib.FORWARD_TRAINING)
        pd = m.pd("batch_normalization_backward", lib.BACKWARD, self.x, self.x, self.x, spec.epsilon, self.flags, hint, m.attr())
        vectors = (lib.ARG_MEAN, lib.ARG_VARIANCE, lib.ARG_SCALE, lib.ARG_DIFF_SCALE, lib.ARG_DIFF_SHIFT)
        args = [(lib.ARG_SRC, self.x), (lib.ARG_DIFF_DST, self.x), (lib.ARG_DIFF_SRC, self.x), *((arg, self.vector) for arg in vectors)]
        self.main = m.primitive(pd, args)

    def run(
        self, dy: np.ndarray, x: np.ndarray, scale: np.ndarray, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        dy, x, scale, mean, variance = map(contiguous, (dy, x, scale, mean, variance))
        dx, d_scale, d_shift = aligned_empty(x.shape, self.dtype), np.empty(self.depth, np.float32), np.empty(self.depth, np.float32)
        self.main.run(
            address(x), address(dy), address(dx), address(mean), address(variance), address(scale), address(d_scale), address(d_shift)
        )
        return dx, d_scale, d_shift


# -- layers -------------------------------------------------------------------------------------------------------------


class LayerSpec(NamedTuple):
    """A normalisation of each row of a matrix."""

    rows: int
    depth: int
    dtype: np.dtype
    epsilon: float


class _Layer:
    def __init__(self, m: Maker, spec: LayerSpec) -> None:
        self.x = m.md((spec.rows, spec.depth), (spec.depth, 1), spec.dtype)
        self.stats = m.md((spec.rows,), (1,))
        self.vector = m.md((spec.depth,), (1,))
        self.spec = spec
        self.dtype = spec.dtype

    def forward_pd(self, m: Maker) -> int:
        return m.pd("layer_normalization_forward", lib.FORWARD_TRAINING, self.x, self.x, self.stats, self.spec.epsilon, _AFFINE, m.attr())


class LayerForward(_Layer):
    """y, and the mean and variance of each row."""

    def __init__(self, m: Maker, spec: LayerSpec) -> None:
        super().__init__(m, spec)
        args = [
            (lib.ARG_SRC, self.x), (lib.ARG_SCALE, self.vector), (lib.ARG_SHIFT, self.vector), (lib.ARG_MEAN, self.stats),
            (lib.ARG_VARIANCE, self.stats), (lib.ARG_DST, self.x),
        ]  # fmt: skip
        self.main = m.primitive(self.forward_pd(m), args)

    def run(self, x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x, scale, shift = map(contiguous, (x, scale, shift))
        y = aligned_empty(x.shape, self.dtype)
        mean, variance = np.empty(self.spec.rows, np.float32), np.empty(self.spec.rows, np.float32)
        self.main.run(address(x), address(scale), address(shift), address(mean), address(variance), address(y))
        return y, mean, variance


class LayerBackward(_Layer):
    """Gradients of x, scale and shift."""

    def __init__(self, m: Maker, spec: LayerSpec) -> None:
        super().__init__(m, spec)
        pd = m.pd(
            "layer_normalization_backward", lib.BACKWARD, self.x, self.x, self.x, self.stats, spec.epsilon, _AFFINE, self.forward_pd(m), m.attr()
        )
        args = [
            (lib.ARG_SRC, self.x), (lib.ARG_DIFF_DST, self.x), (lib.ARG_DIFF_SRC, self.x), (lib.ARG_MEAN, self.stats),
            (lib.ARG_VARIANCE, self.stats), (lib.ARG_SCALE, self.vector), (lib.ARG_DIFF_SCALE, self.vector), (lib.ARG_DIFF_SHIFT, self.vector),
            (lib.ARG_SHIFT, self.vector),  # asked for, although no gradient depends on it
        ]  # fmt: skip
        self.main = m.primitive(pd, args)

    def run(
        self, dy: np.ndarray, x: np.ndarray, scale: np.ndarray, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        dy, x, scale, mean, variance = map(contiguous, (dy, x, scale, mean, variance))
        dx, d_scale, d_shift = aligned_empty(x.shape, self.dtype), np.empty(self.spec.depth, np.float32), np.empty(self.spec.depth, np.float32)
        vectors = (mean, variance, scale, d_scale, d_shift, scale)
        self.main.run(address(x), address(dy), address(dx), *map(address, vectors))
        return dx, d_scale, d_shift


# -- softmax ------------------------------------------------------------------------------------------------------------


class SoftmaxSpec(NamedTuple):
    """Softmax of each row; `alg` is SOFTMAX_ACCURATE or SOFTMAX_LOG."""

    alg: int
    rows: int
    classes: int
    dtype: np.dtype


class Softmax:
    def __init__(self, m: Maker, spec: SoftmaxSpec) -> None:
        x = m.md((spec.rows, spec.classes), (spec.classes, 1), spec.dtype)
        pd = m.pd("softmax_forward", lib.FORWARD_INFERENCE, spec.alg, x, x, 1, m.attr())
        self.main = m.primitive(pd, [(lib.ARG_SRC, x), (lib.ARG_DST, x)])
        self.dtype = spec.dtype

    def run(self, x: np.ndarray) -> np.ndarray:
        x = contiguous(x)
        y = aligned_empty(x.shape, self.dtype)
        self.main.run(address(x), address(y))
        return y


class SoftmaxBackward:
    """dx = (dy - sum(dy * y)) * y, row by row."""

    def __init__(self, m: Maker, spec: SoftmaxSpec) -> None:
        x = m.md((spec.rows, spec.classes), (spec.classes, 1), spec.dtype)
        hint = m.pd("softmax_forward", lib.FORWARD_TRAINING, spec.alg, x, x, 1, m.attr())
        pd = m.pd("softmax_backward", spec.alg, x, x, x, 1, hint, m.attr())
        self.main = m.primitive(pd, [(lib.ARG_DST, x), (lib.ARG_DIFF_DST, x), (lib.ARG_DIFF_SRC, x)])
        self.dtype = spec.dtype

    def run(self, dy: np.ndarray, y: np.ndarray) -> np.ndarray:
        dy, y = contiguous(dy), contiguous(y)
        dx = aligned_empty(y.shape, self.dtype)
        self.main.run(address(y), address(dy), address(dx))
        return dx


# -- plans by key -------------------------------------------------------------------------------------------------------


def _passes(dims: tuple[int, ...], dtype: np.dtype, passes: int) -> float:
    return float(np.prod(dims)) * dtype.itemsize * passes / BYTES_PER_US


def batch_forward(library: Library, spec: BatchSpec) -> Any:
    """BatchTraining or BatchInference, or None."""
    return planned(BatchTraining if spec.is_training else BatchInference, library, _passes(spec.dims, spec.dtype, 3), spec)


def batch_backward(library: Library, spec: BatchSpec) -> BatchBackward | None:
    return planned(BatchBackward, library, _passes(spec.dims, spec.dtype, 5), spec)


def layer_forward(library: Library, rows: int, depth: int, dtype: np.dtype = FLOAT32, epsilon: float = 1e-3) -> LayerForward | None:
    return planned(LayerForward, library, _passes((rows, depth), dtype, 3), LayerSpec(rows, depth, dtype, epsilon))


def layer_backward(library: Library, rows: int, depth: int, dtype: np.dtype = FLOAT32, epsilon: float = 1e-3) -> LayerBackward | None:
    return planned(LayerBackward, library, _passes((rows, depth), dtype, 5), LayerSpec(rows, depth, dtype, epsilon))


def softmax(library: Library, spec: SoftmaxSpec) -> Softmax | None:
    return planned(Softmax, library, _passes((spec.rows, spec.classes), spec.dtype, 2), spec)


def softmax_backward(library: Library, spec: SoftmaxSpec) -> SoftmaxBackward | None:
    return planned(SoftmaxBackward, library, _passes((spec.rows, spec.classes), spec.dtype, 3), spec)
