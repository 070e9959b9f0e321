"""Sums, products and extremes over groups of rows: the work behind segment ops.

`reduce_rows` takes any ids; `reduce_sorted` uses `ufunc.reduceat` on ids that do not decrease, which is the fast way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.ops.kernels.rows import element_by_element, passes, stable_order


def reduce_rows(ufunc: Any, rows: np.ndarray, ids: np.ndarray, count: int, initial: Any) -> np.ndarray:
    """result[i] = `initial` combined with all rows whose id is i; negative ids drop their row."""
    result_shape = (count, *rows.shape[1:])
    if ids.size and ids.min() < 0:
        keep = ids >= 0
        rows, ids = rows[keep], ids[keep]
    if ids.size == 0:
        return np.full(result_shape, initial, dtype=rows.dtype)
    if ufunc is np.add and rows.ndim > 1:
        most = np.bincount(ids).max()
        if most == 1 and ids.size == count:  # every group has its row
            result = np.empty(result_shape, rows.dtype)
            result[ids] = rows
            result += rows.dtype.type(0)  # a sum that begins with 0 is never -0.0
            return result
        if most <= FEW_IN_A_GROUP:
            return _add_few(rows, ids, count)
    if ids.size > 1 and (ids[1:] < ids[:-1]).any():
        order = stable_order(ids)
        rows, ids = rows.take(order, 0), ids.take(order)
    return reduce_sorted(ufunc, rows, ids, count, initial)


FEW_IN_A_GROUP = 8
"""So many passes over rows are quicker than NumPy's reduceat, which takes a microsecond a group."""


NARROW_ROWS = 48
"""For rows of so many elements, one addition after the other is quicker than passes over arrays."""


def _add_few(rows: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    """Sums of groups of few rows each, pass by pass."""
    result = np.zeros((count, *rows.shape[1:]), rows.dtype)
    if 0 < rows[0].size <= NARROW_ROWS and rows.dtype.isbuiltin:
        element_by_element(np.add, result, ids, rows)
        return result
    for positions in passes(ids):
        chosen = ids[positions]
        result[chosen] += rows[positions]
    return result


def reduce_sorted(ufunc: Any, rows: np.ndarray, ids: np.ndarray, count: int, gap: Any) -> np.ndarray:
    """result[i] = the rows whose id is i, combined; `gap` where there is none. `ids` do not decrease."""
    result = np.full((count, *rows.shape[1:]), gap, dtype=rows.dtype)
    if ids.size:
        starts = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1])))
        result[ids[starts]] = ufunc.reduceat(rows, starts, axis=0, dtype=rows.dtype)
    return result


def group_sizes(ids: np.ndarray, count: int) -> np.ndarray:
    """How many rows each segment has."""
    return np.bincount(ids, minlength=count)[:count] if ids.size else np.zeros(count, dtype=np.int64)


def per_row(numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """A vector with one number per row, shaped to multiply `rows`."""
    return numbers.reshape(-1, *(1,) * (rows.ndim - 1))
