"""Writing rows into an array, in the order of the indices: what scatters and sparse training ops have in common.

TF's kernels walk the indices one after the other, so that a row named twice is written twice, and rounding depends on
the order. Here one pass handles all rows that are named once; a second pass their second occurrences, and so on: the
same result with a few array operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.shapes import format_dims


def check_indices(indices: np.ndarray, limit: int) -> None:
    """Every index must name a row; InvalidArgumentError for the first that does not."""
    if not indices.size:
        return
    bad = (indices < 0) | (indices >= limit)
    if bad.any():
        where = np.argwhere(bad)[0]
        place = f"[{','.join(map(str, where))}]" if indices.ndim else ""
        raise InvalidArgumentError(f"indices{place} = {indices[tuple(where)]} is not in [0, {limit})")


FEW = 1000
"""Up to so many indices, Python's own set is the quickest way to see whether one comes twice."""


def stable_order(numbers: np.ndarray) -> np.ndarray:
    """As `np.argsort(numbers, kind="stable")` for a vector of integers.

    NumPy sorts 16 bits by counting, ten times as fast as wider numbers, so that two rounds of it do for most indices.
    """
    n = numbers.size
    if n <= 64 or numbers.itemsize <= 2:
        return np.argsort(numbers, kind="stable")
    lowest, highest = numbers.min(), numbers.max()
    if lowest < 0 or highest >= 1 << 32:
        return np.argsort(numbers, kind="stable")
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    if highest < 1 << 16:
        return order
    return order[np.argsort((numbers >> 16).astype(np.uint16)[order], kind="stable")]


def passes(indices: np.ndarray) -> Iterator[Any]:
    """Positions in `indices` (a vector), in passes that name no row twice and keep the order of each row's occurrences."""
    n = indices.size
    if n <= 1:
        if n:
            yield slice(None)
        return
    if n <= FEW and len(set(indices.tolist())) == n:
        yield slice(None)
        return
    order = stable_order(indices)
    ranked = indices[order]
    first = np.empty(n, dtype=bool)
    first[0] = True
    np.not_equal(ranked[1:], ranked[:-1], out=first[1:])
    if first.all():
        yield slice(None)
        return
    starts = np.flatnonzero(first)
    occurrence = np.arange(n) - np.repeat(starts, np.diff(np.append(starts, n)))
    by_pass = stable_order(occurrence)
    bounds = np.cumsum(np.bincount(occurrence))
    begin = 0
    for end in bounds.tolist():
        yield order[by_pass[begin:end]]
        begin = end


NARROW_ROWS = 64
MANY_PASSES = 8
"""Where rows of up to NARROW_ROWS elements come more often than MANY_PASSES times, element by element is quicker than pass by pass."""

_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def divide(x: Any, y: Any) -> Any:
    """C++'s division: integers are cut off towards zero."""
    if np.result_type(x, y).kind in "iu":
        if not np.all(y):
            raise InvalidArgumentError("Integer division by zero")
        quotient = np.floor_divide(x, y)
        return quotient + ((np.remainder(x, y) != 0) & ((np.asarray(x) < 0) != (np.asarray(y) < 0))).astype(
            quotient.dtype
        )
    return np.divide(x, y)


def element_by_element(ufunc: np.ufunc, array: np.ndarray, rows: np.ndarray, updates: Any) -> None:
    """As `ufunc.at(array, rows, updates)` for a contiguous array: NumPy is quick for vectors only."""
    width = array[0].size
    places = (rows[:, None] * np.int64(width) + np.arange(width)).ravel()
    ufunc.at(array.reshape(-1), places, np.ravel(updates) if np.ndim(updates) else updates)


def scatter_rows(array: np.ndarray, rows: np.ndarray, updates: Any, how: str) -> None:
    """array[rows[i]] = how(array[rows[i]], updates[i]) for i in order, in place; `updates` may be one scalar for all."""
    if not rows.size:
        return
    one_for_all = np.ndim(updates) == 0
    if how == "update":
        # NumPy writes in order, so the last occurrence stays.
        array[rows] = updates
        return
    if how != "div" and array.dtype.kind in "iufc" and array.dtype.isbuiltin:
        if array.ndim == 1:
            _UFUNCS[how].at(array, rows, updates)  # in order, and quick for vectors
            return
        width = array[0].size
        narrow = 0 < width <= NARROW_ROWS and array.flags.c_contiguous
        if narrow and rows.size > FEW and rows.size * 4 > len(array) and np.bincount(rows).max() > MANY_PASSES:
            element_by_element(_UFUNCS[how], array, rows, updates)
            return
    function = divide if how == "div" else _UFUNCS[how]
    for positions in passes(rows):
        chosen = rows[positions]
        array[chosen] = function(array[chosen], updates if one_for_all else updates[positions])


def row_updates(
    params: np.ndarray, indices: np.ndarray, updates: Any, from_resource: bool = False
) -> tuple[np.ndarray, Any]:
    """Checks a scatter's arguments; the indices as a vector and the updates as one row each (or a scalar)."""
    indices, updates = np.asarray(indices), np.asarray(updates)
    if params.ndim == 0:
        raise InvalidArgumentError(f"params must be at least 1-D, got shape {format_dims(params.shape)}")
    if updates.ndim == 0:
        updates = updates[()]
    elif updates.shape != indices.shape + params.shape[1:]:
        if from_resource and updates.shape[: indices.ndim] != indices.shape:
            raise InvalidArgumentError(
                f"The shape of indices ({format_dims(indices.shape)}) must be a prefix of the shape of updates ({format_dims(updates.shape)})"
            )
        raise InvalidArgumentError(
            "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape "
            f"{format_dims(updates.shape)}, indices.shape {format_dims(indices.shape)}, params.shape {format_dims(params.shape)}"
        )
    else:
        updates = updates.reshape((indices.size, *params.shape[1:]))
    check_indices(indices, params.shape[0])
    return indices.ravel(), updates


def nd_rows(
    shape: tuple[int, ...], indices: np.ndarray, policy: bytes = b"", what: str = "shape"
) -> tuple[np.ndarray, np.ndarray | None]:
    """Vectors of indices into the first dimensions of `shape` as numbers of rows, and which of them are good (None: all)."""
    depth = indices.shape[-1] if indices.ndim else 0
    flat = indices.reshape(-1, depth) if depth else np.zeros((int(np.prod(indices.shape[:-1])), 0), dtype=np.int64)
    good = None
    columns = [np.ascontiguousarray(flat[:, k], np.int64) for k in range(depth)] if len(flat) else []
    if any(c.min() < 0 or c.max() >= shape[k] for k, c in enumerate(columns)):
        bad: np.ndarray = np.any((flat < 0) | (flat >= np.array(shape[:depth], dtype=np.int64)), axis=1)
        if policy != b"IGNORE":
            i = int(np.flatnonzero(bad)[0])
            place = ",".join(map(str, np.unravel_index(i, indices.shape[:-1])))
            vector = ", ".join(map(str, flat[i]))
            raise InvalidArgumentError(f"indices[{place}] = [{vector}] does not index into {what} {format_dims(shape)}")
        good = ~bad
        columns = [np.where(bad, 0, c) for c in columns]
    rows = columns[0] if columns else np.zeros(len(flat), dtype=np.int64)
    for k in range(1, len(columns)):
        rows = rows * shape[k] + columns[k]
    return rows, good


def check_nd_shapes(shape: tuple[int, ...], indices: np.ndarray, updates: np.ndarray) -> None:
    """A scatter_nd's shapes must fit each other; the messages are TF's."""
    if indices.ndim == 0:
        raise InvalidArgumentError(f"Indices shape must have rank at least one. Found:{format_dims(indices.shape)}")
    depth = indices.shape[-1]
    outer = indices.ndim - 1
    ishape, ushape = format_dims(indices.shape), format_dims(updates.shape)
    for d in range(outer):
        if d >= updates.ndim or updates.shape[d] != indices.shape[d]:
            got = updates.shape[d] if d < updates.ndim else "none"
            raise InvalidArgumentError(
                f"Dimensions [0,{outer}) of indices[shape={ishape}] = {indices.shape[d]} must match dimensions [0,{outer}) of "
                f"updates[shape={ushape}] = {got}"
            )
    if depth > len(shape) or updates.shape[outer:] != shape[depth:]:
        raise InvalidArgumentError(
            f"Dimensions [{depth},{len(shape)}) of input[shape={format_dims(shape)}] must match dimensions [{depth if depth > len(shape) else outer},"
            f"{updates.ndim}) of updates[shape={ushape}]"
        )


def scatter_nd(array: np.ndarray, indices: Any, updates: Any, how: str, policy: bytes = b"") -> None:
    """Applies `updates` to the slices of `array` that the index vectors name, in place."""
    indices, updates = np.asarray(indices), np.asarray(updates)
    check_nd_shapes(array.shape, indices, updates)
    depth = indices.shape[-1]
    rows, good = nd_rows(array.shape, indices, policy)
    flat = array.reshape((int(np.prod(array.shape[:depth])), *array.shape[depth:]))
    rest = updates.reshape((rows.size, *array.shape[depth:]))
    if good is not None:
        rows, rest = rows[good], rest[good]
    scatter_rows(flat, rows, rest, how)
