"""Sums, products and extremes over groups of rows: the work behind segment ops.

`reduce_rows` takes any ids; `reduce_sorted` and `sum_sorted` ids that do not decrease.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.ops.kernels.rows import by_falling_size, element_by_element, fold_in_passes, put_rows, stable_order
from penstock.ops.native import rows as row_loops
from penstock.ops.native.segments import identity, reduce_groups


def reduce_rows(ufunc: Any, rows: np.ndarray, ids: np.ndarray, count: int, initial: Any, are_known: bool = False) -> np.ndarray:
    """result[i] = `initial` combined with all rows whose id is i; negative ids drop their row. `are_known`: all ids are in [0, count)."""
    found = fold_rows(ufunc, rows, ids, count, initial, are_known)
    if found is not None:
        return found
    result_shape = (count, *rows.shape[1:])
    if not are_known and ids.size and ids.min() < 0:
        keep = ids >= 0
        return reduce_rows(ufunc, rows[keep], ids[keep], count, initial)
    if ids.size == 0:
        return np.full(result_shape, initial, dtype=rows.dtype)
    if ufunc is np.add and rows.ndim > 1:
        most = np.bincount(ids).max()
        if most == 1 and ids.size == count:  # every group has its row
            result = np.empty(result_shape, rows.dtype)
            put_rows(result, ids, rows)
            result += rows.dtype.type(0)  # a sum that begins with 0 is never -0.0
            return result
        if most <= FEW_IN_A_GROUP and 0 < rows[0].size <= NARROW_ROWS and rows.dtype.isbuiltin:
            return _add_few(rows, ids, count)
    order = None
    if ids.size > 1 and (ids[1:] < ids[:-1]).any():
        order = stable_order(ids)
        ids = ids.take(order)
    if ufunc is np.add and rows.ndim > 1:
        return sum_sorted(rows, order, ids, count)
    return reduce_sorted(ufunc, rows if order is None else rows.take(order, 0), ids, count, initial)


def fold_rows(ufunc: Any, rows: np.ndarray, ids: np.ndarray, count: int, initial: Any, are_known: bool = False) -> np.ndarray | None:
    """`reduce_rows` by taking the rows one after the other; None if an id is out of range, or that would be slow here."""
    by_loop = rows.ndim > 1
    if not (row_loops.can_fold(ufunc, rows.dtype) if by_loop else rows.dtype in AT_ONCE):
        return None
    shape = (count, *rows.shape[1:])
    result = np.zeros(shape, rows.dtype) if initial.__class__ is int and not initial else np.full(shape, initial, rows.dtype)
    if not ids.size:
        return result
    if by_loop:
        return result if row_loops.fold_until(ufunc, result, ids, np.ascontiguousarray(rows)) == ids.size else None
    if not are_known and (ids.min() < 0 or ids.max() >= count):
        return None
    ufunc.at(result, ids, rows)
    return result


AT_ONCE = frozenset(map(np.dtype, (np.float32, np.float64, np.int32, np.int64)))
"""Types of vectors that NumPy's `ufunc.at` takes without a detour for each element."""


def _can_fold(ufunc: Any, rows: np.ndarray, ids: np.ndarray, count: int) -> bool:
    """Whether the rows can be taken one after the other by a loop in machine code. For vectors NumPy is quick enough."""
    return rows.ndim > 1 and row_loops.can_fold(ufunc, rows.dtype) and int(ids.max()) < count and int(ids.min()) >= 0


FEW_IN_A_GROUP = 8
NARROW_ROWS = 48
"""For rows of so many elements, of which so few come together, one addition after the other is quicker than passes over arrays."""


def _add_few(rows: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    """Sums of groups of few short rows each."""
    result = np.zeros((count, *rows.shape[1:]), rows.dtype)
    element_by_element(np.add, result, ids, rows)
    return result


def reduce_sorted(ufunc: Any, rows: np.ndarray, ids: np.ndarray, count: int, gap: Any) -> np.ndarray:
    """result[i] = the rows whose id is i, combined; `gap` where there is none. `ids` do not decrease."""
    if rows.ndim > 1 and rows.size == len(rows) != 0:  # NumPy is quick for vectors
        return reduce_sorted(ufunc, rows.reshape(-1), ids, count, gap).reshape(count, *rows.shape[1:])
    found = reduce_groups(ufunc, rows, ids, count, gap) if rows.ndim > 1 else None
    if found is not None:
        return found
    if ids.size and _can_fold(ufunc, rows, ids, count):
        return _fold_sorted(ufunc, rows, ids, count, gap)
    if ufunc is np.add and rows.ndim > 1 and gap == 0:
        return sum_sorted(rows, None, ids, count)
    result = np.full((count, *rows.shape[1:]), gap, dtype=rows.dtype)
    if ids.size:
        starts = starts_of_groups(ids)
        result[ids[starts]] = ufunc.reduceat(rows, starts, axis=0, dtype=rows.dtype)
    return result


def _fold_sorted(ufunc: Any, rows: np.ndarray, ids: np.ndarray, count: int, gap: Any) -> np.ndarray:
    start = identity(ufunc, rows.dtype)
    result = np.full((count, *rows.shape[1:]), start, rows.dtype)
    row_loops.fold_sorted(ufunc, result, ids, np.ascontiguousarray(rows))
    if gap != start:
        result[np.bincount(ids, minlength=count) == 0] = gap
    return result


def starts_of_groups(ids: np.ndarray) -> np.ndarray:
    """Where the groups of sorted ids begin."""
    begins = np.empty(ids.size, bool)
    begins[0] = True
    np.not_equal(ids[1:], ids[:-1], out=begins[1:])
    return np.flatnonzero(begins)


def sum_sorted(data: np.ndarray, picks: np.ndarray | None, ids: np.ndarray, count: int) -> np.ndarray:
    """result[i] = the sum of the rows data[picks] whose id is i, from 0 on and in their order. `ids` do not decrease; no `picks`: all rows.

    There are three ways, whose times (here in microseconds, roughly) depend on the shape: NumPy's reduceat, a pass over the first rows of
    all groups, then one over their second rows, and so on, or group by group.
    """
    found = reduce_groups(np.add, data, ids, count, 0, picks)
    if found is not None:
        return found
    shape = (count, *data.shape[1:])
    flat = data.reshape(len(data), -1) if len(data) else data.reshape(0, int(np.prod(data.shape[1:])))
    width = flat.shape[1]
    result = np.zeros((count, width), data.dtype)
    if not ids.size or not width:
        return result.reshape(shape)
    if _can_fold(np.add, flat, ids, count):
        row_loops.fold_sorted(np.add, result, ids, np.ascontiguousarray(flat if picks is None else flat.take(picks, 0)))
        return result.reshape(shape)
    sizes = np.bincount(ids, minlength=count)
    most, elements = int(sizes.max()), ids.size * width
    at_once = 8.5e-4 * elements + 0.05 * count
    in_passes = 20 + 2.3 * most + 3e-4 * elements if width >= 16 else at_once
    one_by_one = 1.4 * count + 2.8e-4 * elements if width >= 48 else at_once
    if in_passes < min(at_once, one_by_one):
        _sum_in_passes(flat, picks, sizes, result)
        return result.reshape(shape)
    rows = flat if picks is None else flat.take(picks, 0)
    starts = starts_of_groups(ids)
    groups = ids.take(starts)
    if one_by_one < at_once:
        for group, start, size in zip(groups.tolist(), starts.tolist(), sizes.take(groups).tolist(), strict=True):
            result[group] = np.add.reduce(rows[start : start + size], 0)
    else:
        put_rows(result, groups, np.add.reduceat(rows, starts, axis=0, dtype=rows.dtype))
    return result.reshape(shape)


def _sum_in_passes(flat: np.ndarray, picks: np.ndarray | None, sizes: np.ndarray, result: np.ndarray) -> None:
    groups, left = by_falling_size(sizes)
    starts = (np.cumsum(sizes) - sizes).take(groups)

    def take(at: np.ndarray) -> np.ndarray:
        return flat.take(at if picks is None else picks.take(at), 0)

    total = take(starts)
    total += flat.dtype.type(0)  # a sum that begins with 0 is never -0.0
    fold_in_passes(np.add, total, take, starts, sizes.take(groups), left, first=1)
    put_rows(result, groups, total)


EXTREMES = frozenset((np.maximum, np.minimum))
PACKET_BYTES = 32


def extremes_among_nans(ufunc: Any, rows: np.ndarray, ids: np.ndarray, result: np.ndarray, packet: int = 0) -> np.ndarray:
    """`result`, the extremes of groups of rows, where they are NaN, as TF has them: each row in turn takes the place of the extreme so far
    unless it is known to be less (or more). So a NaN stays only if it is the last of its group, and what came before it is forgotten.

    `packet`: TF's way with sorted ids. Columns that fill up vectors of so many elements pass over NaNs, in groups of two rows or more.
    """
    nothing = rows.dtype.type(-np.inf if ufunc is np.maximum else np.inf)
    flat, total = rows.reshape(len(rows), -1), result.reshape(len(result), -1)
    is_nan, order = np.isnan(flat), np.arange(1, len(flat) + 1)
    last_nan = np.zeros(total.shape, np.int64)
    np.maximum.at(last_nan, ids, np.where(is_nan, order[:, None], 0))
    last_row = np.zeros(len(total), np.int64)
    np.maximum.at(last_row, ids, order)
    later = np.full_like(total, nothing)
    ufunc.at(later, ids, np.where(order[:, None] > last_nan[ids], flat, nothing))
    settled = np.where(last_nan == 0, total, np.where(last_nan == last_row[:, None], np.nan, later))
    vectors = flat.shape[1] // packet * packet if packet else 0
    if vectors:
        without = np.full_like(total, nothing)
        ufunc.at(without, ids, np.where(is_nan, nothing, flat))
        several = np.bincount(ids, minlength=len(total)) > 1
        settled[several, :vectors] = without[several, :vectors]
    return settled.astype(result.dtype).reshape(result.shape)


def group_sizes(ids: np.ndarray, count: int) -> np.ndarray:
    """How many rows each segment has."""
    return np.bincount(ids, minlength=count)[:count] if ids.size else np.zeros(count, dtype=np.int64)


def sorted_group_sizes(ids: np.ndarray, count: int) -> np.ndarray:
    """The same for ids that do not decrease."""
    if ids.size < 1 << 12:
        return group_sizes(ids, count)
    result, starts = np.zeros(count, np.int64), starts_of_groups(ids)
    result[ids[starts]] = np.diff(starts, append=ids.size)
    return result


def per_row(numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """A vector with one number per row, shaped to multiply `rows`."""
    return numbers.reshape(-1, *(1,) * (rows.ndim - 1))
