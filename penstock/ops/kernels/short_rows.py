"""Sums and extremes along a short last axis, where NumPy's reductions spend their time between the rows."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

LEAST = 4096
"""Elements from which on it is worth a look."""
LEAST_ROWS = 64
SHORT_SUM = 256
SHORT_EXTREME = 32


def reduce_short_rows(ufunc: Any, x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray | None:
    """As `ufunc.reduce(x, axis, keepdims=keepdims)` for a sum, maximum or minimum of many short rows; None for anything else.

    A sum is a product with ones, which BLAS takes a tenth of the time for. Extremes are those of the columns of the transpose.
    """
    if x.size < LEAST or not x.flags.c_contiguous:
        return None
    axes = (axis,) if axis.__class__ is int else axis
    if axes is None or not axes:
        return None
    kept = x.ndim - len(axes)
    inner = 1
    for a in axes:
        a = a + x.ndim if a < 0 else a
        if a < kept:
            return None
        inner *= x.shape[a]
    rows = x.size // inner
    if rows < LEAST_ROWS or inner < 2:
        return None
    if ufunc is np.add:
        if inner > SHORT_SUM or x.dtype not in _BLAS_TYPES:
            return None
        result = np.matmul(x.reshape(rows, inner), _ones(inner, x.dtype))
    elif ufunc is np.maximum or ufunc is np.minimum:
        if inner > SHORT_EXTREME or not x.dtype.isbuiltin:
            return None
        result = ufunc.reduce(np.ascontiguousarray(x.reshape(rows, inner).T), 0)
    else:
        return None
    return result.reshape(x.shape[:kept] + (1,) * len(axes) if keepdims else x.shape[:kept])


def are_short_rows(dims: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether `reduce_short_rows` may do something for a contiguous array of these dimensions."""
    kept = len(dims) - len(axes)
    inner = math.prod(dims[kept:])
    return bool(axes) and min(axes) >= kept and 2 <= inner <= SHORT_SUM and math.prod(dims) >= max(LEAST, inner * LEAST_ROWS)


_BLAS_TYPES = (np.dtype(np.float32), np.dtype(np.float64))


@functools.cache
def _ones(count: int, dtype: np.dtype) -> np.ndarray:
    return np.ones(count, dtype)
