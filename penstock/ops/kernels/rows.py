"""Writing rows into an array, in the order of the indices: what scatters and sparse training ops have in common.

TF's kernels walk the indices one after the other, so that a row named twice is written twice, and rounding depends on
the order. Here one pass handles all rows that are named once; a second pass their second occurrences, and so on: the
same result with a few array operations.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.native import rows as row_loops
from penstock.shapes import format_dims


def are_in_range(indices: np.ndarray, limit: int) -> bool:
    """Whether every index names one of `limit` rows."""
    if 0 < indices.size <= 64 and indices.ndim == 1:  # Python is quicker then
        numbers = indices.tolist()
        return 0 <= min(numbers) and max(numbers) < limit
    unsigned = _UNSIGNED.get(indices.itemsize)
    if unsigned is not None and indices.dtype.kind == "i" and limit <= 1 << 31 and indices.flags.c_contiguous:  # negative numbers are large ones then
        return not indices.size or bool(np.maximum.reduce(indices.reshape(-1).view(unsigned)) < limit)
    return not indices.size or bool(0 <= indices.min() and indices.max() < limit)


_UNSIGNED = {4: np.uint32, 8: np.uint64}


def check_indices(indices: np.ndarray, limit: int) -> None:
    """Every index must name a row; InvalidArgumentError for the first that does not."""
    if are_in_range(indices, limit):
        return
    where = np.argwhere((indices < 0) | (indices >= limit))[0]
    place = f"[{','.join(map(str, where))}]" if indices.ndim else ""
    raise InvalidArgumentError(f"indices{place} = {indices[tuple(where)]} is not in [0, {limit})")


FEW = 256
"""Up to so many indices, Python's own set is the quickest way to see whether one comes twice."""


def stable_order(numbers: np.ndarray) -> np.ndarray:
    """As `np.argsort(numbers, kind="stable")` for a vector of integers.

    NumPy sorts 16 bits by counting, ten times as fast as wider numbers, so that two or three rounds of it do for most indices.
    """
    n = numbers.size
    if n <= 64 or numbers.itemsize <= 2:
        return np.argsort(numbers, kind="stable")
    lowest, highest = int(numbers.min()), int(numbers.max())
    if lowest < 0 or highest >= (1 << 32 if n < MANY else 1 << 48):
        return np.argsort(numbers, kind="stable")
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    for shift in range(16, highest.bit_length(), 16):
        order = order.take(np.argsort((numbers >> shift).astype(np.uint16).take(order), kind="stable"))
    return order


MANY = 8192
"""Numbers from which on three rounds by counting beat one sort of all bits."""


def _begins(ranked: np.ndarray) -> np.ndarray:
    """Where a number differs from the one before it."""
    first = np.empty(ranked.size, dtype=bool)
    first[0] = True
    np.not_equal(ranked[1:], ranked[:-1], out=first[1:])
    return first


ROUNDS = 3
"""Occurrences that are looked for one after the other; those of rows that come yet more often are numbered all at once."""


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
    ranked = indices.take(order)
    first = _begins(ranked)
    if first.all():
        yield slice(None)
    else:
        yield from _sorted_passes(order, ranked, first)


def _sorted_passes(order: np.ndarray, ranked: np.ndarray, first: np.ndarray) -> Iterator[np.ndarray]:
    """`passes` for indices that `order` sorts to `ranked`; `first` says where the same index has not just been."""
    for _ in range(ROUNDS):
        yield order[first]
        again = ~first
        order, ranked = order[again], ranked[again]
        if not order.size:
            return
        first = _begins(ranked)
    n = order.size
    starts = np.flatnonzero(first)
    occurrence = np.arange(n) - np.repeat(starts, np.diff(np.append(starts, n)))
    by_pass = stable_order(occurrence)
    bounds = np.cumsum(np.bincount(occurrence))
    begin = 0
    for end in bounds.tolist():
        yield order[by_pass[begin:end]]
        begin = end


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


@functools.lru_cache(64)
def _record(size: int) -> np.dtype:
    return np.dtype((np.void, size))


def put_rows(array: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """array[rows] = values. NumPy moves records of bytes in half the time that it takes for rows of numbers."""
    if (
        array.ndim == 2
        and array.dtype == values.dtype
        and not array.dtype.hasobject
        and values.ndim == 2
        and array.flags.c_contiguous
        and values.flags.c_contiguous
        and array.shape[1] == values.shape[1] != 0
    ):
        record = _record(array.itemsize * array.shape[1])
        array.view(record)[:, 0][rows] = values.view(record)[:, 0]
    else:
        array[rows] = values


def scatter_rows(array: np.ndarray, rows: np.ndarray, updates: Any, how: str) -> None:
    """array[rows[i]] = how(array[rows[i]], updates[i]) for i in order, in place; `updates` may be one scalar for all."""
    if not rows.size:
        return
    one_for_all = np.ndim(updates) == 0
    if how == "update":
        # NumPy writes in order, so the last occurrence stays.
        if one_for_all:
            array[rows] = updates
        else:
            put_rows(array, rows, updates)
        return
    if how == "div":
        for positions in passes(rows):
            chosen = rows[positions]
            array[chosen] = divide(array[chosen], updates if one_for_all else updates[positions])
        return
    ufunc = _UFUNCS[how]
    if array.ndim == 1 and array.dtype.kind in "iufc" and array.dtype.isbuiltin:
        ufunc.at(array, rows, updates)  # in order, and quick for vectors
    elif not one_for_all and array.flags.c_contiguous and updates.dtype == array.dtype and row_loops.can_fold(ufunc, array.dtype):
        row_loops.fold(ufunc, array, rows, np.ascontiguousarray(updates))
    elif rows.size <= FEW and len(set(rows.tolist())) == rows.size:
        put_rows(array, rows, ufunc(array.take(rows, 0), updates))
    elif array.ndim == 2 and 0 < array.shape[1] <= NARROW and array.flags.c_contiguous and array.dtype.kind in "iufc" and array.dtype.isbuiltin:
        element_by_element(ufunc, array, rows, updates)
    else:
        _fold_rows(ufunc, array, rows, updates)


NARROW = 8
"""Rows of so few elements are combined element by element."""
MOSTLY_ONCE = 0.8
"""If more than this part of the rows are different ones, pass by pass is the shorter way."""


def _fold_rows(ufunc: np.ufunc, array: np.ndarray, rows: np.ndarray, updates: Any) -> None:
    """`scatter_rows` for rows that may come several times; where many do, each is read and written once."""
    order = stable_order(rows)
    ranked = rows.take(order)
    first = _begins(ranked)
    distinct = np.count_nonzero(first)
    one_for_all = np.ndim(updates) == 0
    if distinct == rows.size:
        put_rows(array, rows, ufunc(array.take(rows, 0), updates))
        return
    if distinct > rows.size * MOSTLY_ONCE:
        for positions in _sorted_passes(order, ranked, first):
            chosen = rows.take(positions)
            put_rows(array, chosen, ufunc(array.take(chosen, 0), updates if one_for_all else updates.take(positions, 0)))
        return
    starts = np.flatnonzero(first)
    sizes = np.diff(starts, append=rows.size)
    groups, left = by_falling_size(sizes)
    starts = starts.take(groups)
    targets = ranked.take(starts)
    total = array.take(targets, 0)
    if one_for_all:
        for n in left:
            ufunc(total[:n], updates, out=total[:n])
    else:
        fold_in_passes(ufunc, total, lambda at: updates.take(order.take(at), 0), starts, sizes.take(groups), left)
    put_rows(array, targets, total)


def by_falling_size(sizes: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Which groups there are, large ones first, and how many of them have one element, two elements, ..."""
    groups = np.argsort(-sizes, kind="stable")
    left = np.cumsum(np.bincount(sizes)[::-1])[::-1].tolist()[1:]
    return (groups if left and left[0] == groups.size else groups[: left[0] if left else 0]), left


LONG_GROUPS = 4
"""When no more than so many groups are left, each is finished by itself."""


def fold_in_passes(
    ufunc: np.ufunc, total: np.ndarray, take: Callable[[np.ndarray], np.ndarray], starts: np.ndarray, sizes: np.ndarray, left: list[int], first: int = 0
) -> None:
    """total[i] = ufunc(...ufunc(total[i], row)...) for the rows of group i, take(starts[i] + first) and those behind it, in order.

    One pass combines all groups with their next row. They are sorted (`by_falling_size`), so that those that still have one stand together.
    """
    for k in range(first, len(left)):
        n = left[k]
        if n <= LONG_GROUPS:
            for i in range(n):
                rows = take(np.arange(starts[i] + k, starts[i] + sizes[i]))
                total[i] = ufunc.reduce(np.concatenate((total[i : i + 1], rows)), axis=0)
            return
        some = total[:n]
        ufunc(some, take(starts[:n] + k), out=some)


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
    if depth == 1 and indices.size:
        rows = np.ascontiguousarray(indices.reshape(-1), np.int64)
        if are_in_range(rows, shape[0]):
            return rows, None
    flat = indices.reshape(-1, depth) if depth else np.zeros((math.prod(indices.shape[:-1]), 0), dtype=np.int64)
    good = None
    columns = [np.ascontiguousarray(flat[:, k], np.int64) for k in range(depth)] if len(flat) else []
    if not all(are_in_range(c, shape[k]) for k, c in enumerate(columns)):
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
    if updates.shape == indices.shape[:outer] + shape[depth:] and depth <= len(shape):
        return
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
    flat = array.reshape((math.prod(array.shape[:depth]), *array.shape[depth:]))
    rest = updates.reshape((rows.size, *array.shape[depth:]))
    if good is not None:
        rows, rest = rows[good], rest[good]
    scatter_rows(flat, rows, rest, how)
