"""Kernels of batch and layer normalisation and of softmax, with their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.engines.onednn import binding, norm
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.binding import Kernel, library_for, remembering, shape_1, shapes, shapes_2
from penstock.engines.onednn.primitives import CODES, FLOAT32
from penstock.graph.ir import Operation

_LAST = {b"NHWC": True, b"NDHWC": True, b"NCHW": False, b"NCDHW": False}


def _batch_spec(op: Operation, x: np.ndarray, vectors: Sequence[np.ndarray]) -> norm.BatchSpec | None:
    last = _LAST[op.attrs["data_format"]]
    if x.ndim not in (4, 5) or x.size < max(binding.MIN_NORM_SIZE, 1):
        return None
    dims = (x.shape[0], x.shape[-1], *x.shape[1:-1]) if last else x.shape
    if any(v.shape != (dims[1],) for v in vectors):
        return None
    return norm.BatchSpec(dims, last, x.dtype, op.attrs["epsilon"], op.attrs["is_training"])


def _is_batch_type(op: Operation) -> bool:
    statistics = op.attrs.get("U", op.attrs["T"]).np
    return op.attrs["T"].np in CODES and statistics == FLOAT32 and op.attrs["data_format"] in _LAST


def batch_norm(results: int) -> Kernel:
    """FusedBatchNorm, V2, V3 with that many outputs."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        if not _is_batch_type(op):
            return None
        factor, is_training = op.attrs["exponential_avg_factor"], op.attrs["is_training"]
        given = not is_training or factor != 1.0  # whether mean and variance take part
        more = [np.zeros((), np.float32)] * (results - 5)

        def key_of(x: np.ndarray, scale: np.ndarray, offset: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Any:
            return x.shape, scale.shape, offset.shape, mean.shape, variance.shape

        def prepare(x: np.ndarray, scale: np.ndarray, offset: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Kernel | None:
            spec = _batch_spec(op, x, (scale, offset, mean, variance) if given else (scale, offset))
            library = library_for(x.dtype) if spec else None
            plan = norm.batch_forward(library, spec) if library and spec else None
            if plan is None:
                return None
            run = plan.run
            if not is_training:
                return lambda x, scale, offset, mean, variance: [run(x, scale, offset, mean, variance), mean, variance, mean, variance, *more]
            count = x.size // scale.shape[0]
            unbiased, rate = np.float32(count / max(count - 1, 1)), np.float32(factor)

            def train(x: np.ndarray, scale: np.ndarray, offset: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> list[np.ndarray]:
                y, batch_mean, batch_variance = run(x, scale, offset)
                # The variance handed on for moving averages is the unbiased one.
                new_mean, new_variance = batch_mean, batch_variance * unbiased
                if given:
                    new_mean = (1 - rate) * mean + rate * new_mean
                    new_variance = (1 - rate) * variance + rate * new_variance
                return [y, new_mean, new_variance, batch_mean, batch_variance, *more]

            return train

        return remembering(op, fallback, key_of, prepare)

    return maker


def batch_norm_backward(op: Operation, fallback: Kernel) -> Kernel | None:
    """FusedBatchNormGrad, V2 and V3 (whose last input is not used)."""
    if not _is_batch_type(op):
        return None
    nothing = np.zeros(0, np.float32)

    def key_of(dy: np.ndarray, x: np.ndarray, scale: np.ndarray, mean: np.ndarray, variance: np.ndarray, *_: Any) -> Any:
        return dy.shape, x.shape, scale.shape, mean.shape, variance.shape

    def prepare(dy: np.ndarray, x: np.ndarray, scale: np.ndarray, mean: np.ndarray, variance: np.ndarray, *_: Any) -> Kernel | None:
        spec = _batch_spec(op, x, (scale, mean, variance)) if dy.shape == x.shape else None
        library = library_for(x.dtype) if spec else None
        plan = norm.batch_backward(library, spec) if library and spec else None
        if plan is None:
            return None
        run = plan.run
        return lambda dy, x, scale, mean, variance, *_: [*run(dy, x, scale, mean, variance), nothing, nothing]

    return remembering(op, fallback, key_of, prepare)


def softmax(alg: int) -> Kernel:
    """Softmax and LogSoftmax, over the last dimension."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        dtype = op.attrs["T"].np
        if dtype not in CODES:
            return None

        def prepare(x: np.ndarray) -> Kernel | None:
            if x.ndim < 1 or x.size < max(binding.MIN_SOFTMAX_SIZE, 1):
                return None
            library = library_for(dtype)
            classes = x.shape[-1]
            plan = norm.softmax(library, norm.SoftmaxSpec(alg, x.size // classes, classes, dtype)) if library else None
            return plan and (_checked if alg != lib.SOFTMAX_LOG else _checked_logarithms)(plan.run, fallback)

        return remembering(op, fallback, shape_1, prepare)

    return maker


def _checked(softmax: Kernel, fallback: Kernel) -> Kernel:
    """In a row with NaN or infinity oneDNN gives NaN there and 0 elsewhere; all of it shall be NaN, whose bits are above those of all numbers that there can be."""

    def run(x: np.ndarray) -> Any:
        y = softmax(x)
        return y if y.view(_BITS[y.itemsize]).max() < _INFINITY[y.dtype] else fallback(x)

    return run


_BITS = {4: np.uint32, 2: np.uint16}
_INFINITY = {dtype: int(np.array(np.inf, dtype).view(_BITS[dtype.itemsize])) for dtype in CODES}


def _checked_logarithms(log_softmax: Kernel, fallback: Kernel) -> Kernel:
    """oneDNN's exponential makes infinity of NaN, so that all the logarithms of a row with a NaN are -infinity: the first of each row tells."""

    def run(x: np.ndarray) -> Any:
        y = log_softmax(x)
        return y if np.isfinite(y[..., 0]).all() else fallback(x)

    return run


def softmax_backward(op: Operation, fallback: Kernel) -> Kernel | None:
    """_SoftmaxGrad, over the last dimension."""
    if op.attrs["T"].np != FLOAT32:
        return None

    def prepare(dy: np.ndarray, y: np.ndarray) -> Kernel | None:
        if y.ndim < 1 or dy.shape != y.shape or y.size < max(binding.MIN_SOFTMAX_SIZE, 1):
            return None
        library = library_for(FLOAT32)
        classes = y.shape[-1]
        plan = norm.softmax_backward(library, norm.SoftmaxSpec(lib.SOFTMAX_ACCURATE, y.size // classes, classes, FLOAT32)) if library else None
        return plan and plan.run

    return remembering(op, fallback, shapes_2, prepare)


def layer_norm(op: Operation, fallback: Kernel) -> Kernel | None:
    """_LayerNorm."""
    if op.attrs["T"].np != FLOAT32:
        return None

    def prepare(x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> Kernel | None:
        if x.ndim < 1 or x.size < max(binding.MIN_NORM_SIZE, 1) or not scale.shape == offset.shape == x.shape[-1:]:
            return None
        library, depth = library_for(FLOAT32), x.shape[-1]
        plan = norm.layer_forward(library, x.size // depth, depth, FLOAT32, op.attrs["epsilon"]) if library else None
        if plan is None:
            return None
        run, rows = plan.run, (*x.shape[:-1], 1)

        def forward(x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> list[np.ndarray]:
            y, mean, variance = run(x, scale, offset)
            return [y, mean.reshape(rows), variance.reshape(rows)]

        return forward

    return remembering(op, fallback, shapes, prepare)


def layer_norm_backward(op: Operation, fallback: Kernel) -> Kernel | None:
    """_LayerNormGrad."""
    if op.attrs["T"].np != FLOAT32:
        return None

    def prepare(dy: np.ndarray, x: np.ndarray, scale: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Kernel | None:
        rows = (*x.shape[:-1], 1)
        if x.ndim < 1 or x.size < max(binding.MIN_NORM_SIZE, 1) or dy.shape != x.shape or scale.shape != x.shape[-1:] or not mean.shape == variance.shape == rows:
            return None
        library, depth = library_for(FLOAT32), x.shape[-1]
        plan = norm.layer_backward(library, x.size // depth, depth, FLOAT32, op.attrs["epsilon"]) if library else None
        return plan and plan.run

    return remembering(op, fallback, shapes, prepare)
