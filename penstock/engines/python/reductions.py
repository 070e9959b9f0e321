"""Reductions of big arrays on several threads.

    total = reducer(np.add)(x, axis, dtype, None, keepdims)       # as np.add.reduce, for what generated code writes down

An array of millions of numbers is cut where the result does not depend on it: into groups of results where there are many (rows for a
reduction along the last axes, columns for one along the first axes), which gives bit for bit what NumPy gives. Only a sum over everything is a
sum of sums. Cuts depend on the size alone, never on the number of threads. Anything else is left to NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.engines.python import parallel
from penstock.ops.kernels.short_rows import LEAST, reduce_short_rows
from penstock.ops.native.rowwise import reduce_rows

LARGE = 1 << 21
"""Elements from which on a second thread is worth it: below, arrays are in the caches and NumPy takes 0.2 ms."""
PIECE = 1 << 20
"""Elements of one piece."""
NARROWEST = 512
"""Columns of one piece: fewer would read a cache line more than once, or none in a row."""


@functools.cache
def reducer(ufunc: np.ufunc) -> Callable[..., Any]:
    """`ufunc.reduce`, on several threads where that pays."""
    plain: Callable[..., Any] = ufunc.reduce

    def reduce(x: Any, axis: Any, dtype: Any = None, out: None = None, keepdims: bool = False) -> Any:
        if x.size >= LEAST and (dtype is None or dtype == x.dtype):
            found = reduce_short_rows(ufunc, x, axis, keepdims)
            if found is not None:
                return found
            if ufunc is np.multiply:
                found = reduce_rows(ufunc, x, (axis,) if axis.__class__ is int else axis, keepdims)
                if found is not None:
                    return found
        if x.size < LARGE or x.dtype.kind != "f" or not x.flags.c_contiguous:
            return plain(x, axis, dtype, None, keepdims)
        axes = (axis,) if axis.__class__ is int else axis
        kept = [a for a in range(x.ndim) if a not in axes]
        if not kept:
            return _everything(plain, x, keepdims)
        if kept == list(range(len(kept))):
            found = _rows(plain, x.reshape(*x.shape[: len(kept)], -1), len(kept))
        elif kept[-1] == x.ndim - 1 and len(kept) == x.ndim - kept[0] and len(axes) == kept[0]:
            found = _columns(plain, x, axes)
        else:
            found = None
        if found is None:
            return plain(x, axis, dtype, None, keepdims)
        return found.reshape([1 if a in axes else n for a, n in enumerate(x.shape)]) if keepdims else found

    return reduce


def _everything(plain: Callable[..., Any], x: np.ndarray, keepdims: bool) -> Any:
    flat = x.reshape(-1)
    parts = np.empty(-(-flat.size // PIECE), x.dtype)

    def work(number: int) -> None:
        parts[number] = plain(flat[number * PIECE : (number + 1) * PIECE])

    parallel.parallel_for(len(parts), work)
    total = plain(parts)
    return total.reshape((1,) * x.ndim) if keepdims else total


def _rows(plain: Callable[..., Any], x: np.ndarray, n_kept: int) -> np.ndarray | None:
    shape, rows = x.shape[:n_kept], x.reshape(-1, x.shape[-1])
    step = -(-PIECE // rows.shape[1])
    if len(rows) < 2 * step:
        step = -(-len(rows) // 2)
    if len(rows) < 2:
        return None
    result = np.empty(len(rows), x.dtype)

    def work(number: int) -> None:
        part = slice(number * step, (number + 1) * step)
        plain(rows[part], 1, None, result[part])

    parallel.parallel_for(-(-len(rows) // step), work)
    return result.reshape(shape)


def _columns(plain: Callable[..., Any], x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray | None:
    shape = x.shape[len(axes) :]
    columns = x.reshape(*x.shape[: len(axes)], -1)
    n = columns.shape[-1]
    if n < 2 * NARROWEST:
        return None
    step = -(-n // min(n // NARROWEST, 8))
    result = np.empty(n, x.dtype)

    def work(number: int) -> None:
        part = slice(number * step, (number + 1) * step)
        plain(columns[..., part], axes, None, result[part])

    parallel.parallel_for(-(-n // step), work)
    return result.reshape(shape)
