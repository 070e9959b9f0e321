"""Sums and extremes along a short last axis, or of many short rows, where NumPy's reductions spend their time between the rows."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.ops.kernels.lapack import on_one_thread
from penstock.ops.native import folds

LEAST = 4096
"""Elements from which on it is worth a look."""
LEAST_ROWS = 64
FEWEST_ROWS = 8
"""For which there is a loop; other ways need more."""
SHORT_SUM = 256
SHORT_EXTREME = 32
SHORT_ROW, LONG_ROW = 128, 512
"""Of rows that are added up: several short ones are first added as one long one, ..."""
FEWEST_LONG = 8
"""... of which there are to be so many. What is left are few rows: the two halves are added up, and so on."""


def reduce_short_rows(ufunc: Any, x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray | None:
    """As `ufunc.reduce(x, axis, keepdims=keepdims)` for a sum, extreme or product of many short rows, or the product of all; None for anything else.

    A sum is a product with ones, which BLAS takes a tenth of the time for. Other reductions are loops in machine code; without that, extremes are those of
    the columns of the transpose.
    """
    if x.size < LEAST:
        return None
    axes = (axis,) if axis.__class__ is int else axis
    if axes is None or not axes:
        return None
    if not x.flags.c_contiguous:
        return _reduce_as_it_lies(ufunc, x, axes, keepdims)
    kept = x.ndim - len(axes)
    if ufunc is np.multiply and kept == 0:
        return _product_of_all(x, keepdims) if x.dtype in _WHOLE else None
    found = fold_rows(ufunc, x, axes, keepdims)
    if found is not None or ufunc is np.multiply:
        return found
    inner = 1
    for a in axes:
        a = a + x.ndim if a < 0 else a
        if a < kept:
            return _reduce_across(ufunc, x, [a % x.ndim for a in axes], keepdims)
        inner *= x.shape[a]
    rows = x.size // inner
    if rows < LEAST_ROWS or inner < 2:
        return None
    if ufunc is np.add:
        if inner > SHORT_SUM or x.dtype not in _BLAS_TYPES:
            return None
        result = _product(x.reshape(rows, inner), _ones(inner, x.dtype))
    elif ufunc is np.maximum or ufunc is np.minimum:
        if inner > SHORT_EXTREME or not x.dtype.isbuiltin:
            return None
        result = ufunc.reduce(np.ascontiguousarray(x.reshape(rows, inner).T), 0)
    else:
        return None
    return result.reshape(x.shape[:kept] + (1,) * len(axes) if keepdims else x.shape[:kept])


def fold_rows(ufunc: Any, x: np.ndarray, axes: Sequence[int], keepdims: bool, wide: bool = False) -> np.ndarray | None:
    """Of a contiguous array over its last axes, if there is a loop in machine code; see `folds.fold`."""
    kept = x.ndim - len(axes)
    if not kept or not x.flags.c_contiguous or any(a < kept for a in axes if a >= 0) or any(a + len(axes) < 0 for a in axes):
        return None
    found = folds.fold(ufunc, x.reshape(math.prod(x.shape[:kept]), -1), wide) if x.size >= LEAST else None
    return found if found is None else found.reshape(x.shape[:kept] + (1,) * len(axes) if keepdims else x.shape[:kept])


def _reduce_as_it_lies(ufunc: Any, x: np.ndarray, axes: Sequence[int], keepdims: bool) -> np.ndarray | None:
    """A contiguous array whose axes are in another order, as products over batches leave them."""
    order = sorted(range(x.ndim), key=x.strides.__getitem__, reverse=True)
    lies = x.transpose(order)
    if not lies.flags.c_contiguous:
        return None
    result = reduce_short_rows(ufunc, lies, [order.index(a % x.ndim) for a in axes], True)
    if result is None:
        return None
    result = result.transpose([order.index(a) for a in range(x.ndim)])
    return result if keepdims else result.reshape([n for a, n in enumerate(x.shape) if a not in axes and a - x.ndim not in axes])


def are_short_rows(dims: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether `reduce_short_rows` may do something for a contiguous array of these dimensions."""
    if _sections(dims, axes) is not None:
        return True
    kept = len(dims) - len(axes)
    inner = math.prod(dims[kept:])
    return bool(axes) and min(axes) >= kept and 2 <= inner <= folds.LONGEST and math.prod(dims) >= max(LEAST, inner * FEWEST_ROWS)


def _sections(dims: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int, int] | None:
    """(before, count, length, inner): an array as `before` times `count` rows of `length` elements, where rows are reduced to one, and then
    the last `inner` elements of what is left. None if it has no such form, or rows are long."""
    chosen = sorted(axes)
    n = next((i for i, a in enumerate(chosen) if a != chosen[0] + i), len(chosen))
    last = chosen[n:]
    first, after = chosen[0], chosen[0] + n
    if last != list(range(len(dims) - len(last), len(dims))) or after == len(dims) or math.prod(dims) < LEAST:
        return None
    count, length = math.prod(dims[first:after]), math.prod(dims[after:])
    if count < 16 or not 2 <= length <= SHORT_ROW:
        return None
    return math.prod(dims[:first]), count, length, math.prod(dims[len(dims) - len(last) :])


def _reduce_across(ufunc: Any, x: np.ndarray, axes: list[int], keepdims: bool) -> np.ndarray | None:
    """The moments of a group norm, the sums of few channels over an image: axes before some that stay."""
    if ufunc is np.add:
        if x.dtype not in _BLAS_TYPES:
            return None
    elif ufunc not in (np.maximum, np.minimum) or not x.dtype.isbuiltin or x.dtype.kind == "O":
        return None
    found = _sections(x.shape, axes)
    if found is None:
        return None
    before, count, length, inner = found
    blocks, together = x.reshape(before, count, length), 1
    while 2 * together * length <= LONG_ROW and 2 * together * FEWEST_LONG <= count:
        together *= 2
    whole = count // together * together
    rows = ufunc.reduce(blocks[:, :whole].reshape(before, whole // together, together * length), 1).reshape(before, together, length)
    if whole < count:
        first = rows[:, : count - whole]
        ufunc(first, blocks[:, whole:], out=first)
    while together > 1:
        together //= 2
        rows = ufunc(rows[:, :together], rows[:, together : 2 * together])
    if inner > 1:
        rows = ufunc.reduce(rows.reshape(-1, inner), 1)
    return rows.reshape([1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes])


def _product_of_all(x: np.ndarray, keepdims: bool) -> np.ndarray:
    """Of whole numbers, which may be multiplied in any order: NumPy waits for each product before it begins the next."""
    flat = x.reshape(-1)
    whole = x.size // TOGETHER * TOGETHER
    columns = np.multiply.reduce(flat[:whole].reshape(-1, TOGETHER), 0, x.dtype)
    total = np.multiply.reduce(np.concatenate((columns, flat[whole:])), dtype=x.dtype)
    return np.reshape(total, (1,) * x.ndim) if keepdims else total


_product = on_one_thread(np.matmul)
_WHOLE = frozenset(map(np.dtype, (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)))
TOGETHER = 512
"""Products that are computed side by side."""
_BLAS_TYPES = (np.dtype(np.float32), np.dtype(np.float64))


@functools.cache
def _ones(count: int, dtype: np.dtype) -> np.ndarray:
    return np.ones(count, dtype)
