"""Sparse tensors in coordinate form: checks, flat keys, merging and reducing groups of equal keys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.kernels.rows import by_falling_size, fold_in_passes, put_rows, scatter_rows, stable_order
from penstock.shapes import format_dims


def check_sparse(indices: Any, values: Any, shape: Any, what: str = "") -> None:
    """indices [n, rank], values [n], shape [rank]; InvalidArgumentError if they do not fit."""
    if indices.ndim != 2:
        raise InvalidArgumentError(f"Input {what}indices should be a matrix but received shape {format_dims(indices.shape)}")
    if values.ndim != 1:
        raise InvalidArgumentError(f"Input {what}values should be a vector but received shape {format_dims(values.shape)}")
    if shape.ndim != 1:
        raise InvalidArgumentError(f"Input {what}shape should be a vector but received shape {format_dims(shape.shape)}")
    if len(values) != len(indices):
        raise InvalidArgumentError(f"Number of elements in indices ({len(indices)}) and values ({len(values)}) do not match")
    if indices.shape[1] != shape.size:
        raise InvalidArgumentError(f"Index rank ({indices.shape[1]}) and shape rank ({shape.size}) do not match")


def keys_of(indices: np.ndarray, sizes: Any) -> np.ndarray:
    """Each row of coordinates as one number, in row-major order."""
    keys = np.zeros(len(indices), np.int64)
    for k, size in enumerate(sizes):
        if k:
            keys *= int(size)
        keys += indices[:, k]
    return keys


def coordinates(keys: np.ndarray, sizes: Any) -> np.ndarray:
    """The other way round: [n, rank] int64."""
    result = np.empty((len(keys), len(sizes)), np.int64)
    for k in range(len(sizes) - 1, -1, -1):
        size = max(int(sizes[k]), 1)
        result[:, k] = keys % size
        keys = keys // size
    return result


def are_below(places: np.ndarray, size: int) -> bool:
    """Whether all of these numbers, int32 or int64, are from 0 on and below `size`."""
    return not places.size or bool(np.maximum.reduce(places.view(f"u{places.itemsize}")) < size)  # what is negative is very large without its sign


def are_inside(indices: np.ndarray, sizes: Any) -> bool:
    """Whether all coordinates are."""
    return all(are_below(indices[:, k], int(size)) for k, size in enumerate(sizes))


def check_in_order(indices: np.ndarray, sizes: Any) -> np.ndarray:
    """Coordinates must be inside, in row-major order, and all different; the messages are TF's. Gives `keys_of` them."""
    keys = keys_of(indices, sizes)
    if (keys[1:] > keys[:-1]).all() and are_inside(indices, sizes):
        return keys
    bad = np.asarray(((indices < 0) | (indices >= np.asarray(sizes))).any(axis=1))
    later = np.zeros(len(keys), bool)
    later[1:] = keys[1:] <= keys[:-1]
    i = int(np.flatnonzero(bad | later)[0])
    place = f"indices[{i}] = {format_dims(tuple(indices[i].tolist()))} is "
    if bad[i]:
        raise InvalidArgumentError(place + f"out of bounds: need 0 <= index < {format_dims(tuple(int(s) for s in sizes))}")
    if keys[i] == keys[i - 1]:
        raise InvalidArgumentError(place + "repeated")
    raise InvalidArgumentError(
        place + "out of order. Many sparse ops require sorted indices.\n    Use `tf.sparse.reorder` to create a correctly ordered copy.\n\n"
    )


def merge_keys(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sorted union of two lists of keys, and where each element of `a` and of `b` stands in it."""
    first_of, at_a, at_b = merge_places(a, b)
    return np.concatenate([a, b]).take(first_of), at_a, at_b


def merge_places(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same, with the place of each key of the union in `a` and `b` behind one another in its stead."""
    both = np.concatenate([a, b])
    order = np.argsort(both, kind="stable")  # which makes use of what is in order already
    ranked = both.take(order)
    first = np.ones(len(both), bool)
    np.not_equal(ranked[1:], ranked[:-1], out=first[1:])
    inverse = np.empty(len(both), np.int64)
    inverse[order] = np.cumsum(first) - 1
    return order[first], inverse[: len(a)], inverse[len(a) :]


def row_major(indices: np.ndarray, sizes: Any) -> np.ndarray | None:
    """The order that puts coordinates into row-major order, equal ones as they are; None if they are in it."""
    dims = [int(s) for s in sizes]
    fits = len(indices) and math.prod(dims) < 1 << 62 and indices.min() >= 0 and all(indices[:, k].max() < d for k, d in enumerate(dims))
    if not fits:
        return np.lexsort(indices.T[::-1])
    keys = keys_of(indices, dims)
    if (keys[1:] >= keys[:-1]).all():
        return None
    return np.argsort(keys, kind="stable")


def add_at(result: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    """result[places[i]] += values[i], in order, in place."""
    scatter_rows(result, places, values, "add")


def group_max(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys, sorted, and the largest value of each."""
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1])) if len(ranked) else np.empty(0, np.int64)
    return ranked[starts], np.maximum.reduceat(values[order], starts) if len(starts) else values[:0]


def group_sum(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys, sorted, and the sum of each one's values."""
    union, inverse = np.unique(keys, return_inverse=True)
    result = np.zeros(len(union), values.dtype)
    add_at(result, inverse.reshape(-1), values)
    return union, result


def reduction(axes: Any, sizes: list[int]) -> tuple[list[int], list[int]]:
    """Axes that go and axes that stay."""
    rank = len(sizes)
    gone = []
    for axis in np.ravel(axes).tolist():
        if not -rank <= axis < rank:
            raise InvalidArgumentError(f"Invalid reduction dimension {axis}, for input with {rank} dimensions.")
        gone.append(axis % rank)
    return sorted(set(gone)), [i for i in range(rank) if i not in gone]


def dense_operand(indices: np.ndarray, shape: Any, dense: np.ndarray) -> np.ndarray:
    """The elements of `dense`, broadcast to the sparse shape, that stand at `indices`."""
    sizes = tuple(int(s) for s in shape)
    try:
        wide = np.broadcast_to(dense, sizes)
    except ValueError:
        raise InvalidArgumentError(
            f"SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes: {format_dims(sizes)} vs. {format_dims(dense.shape)}"
        ) from None
    return wide[tuple(indices.T)]


# -- products ---------------------------------------------------------------------------------------------------------


class RowPlan:
    """In which order a sparse matrix is multiplied: what its `rows` and `columns` say, and no more.

    order            its entries row by row (None: as they are)
    starts, sizes    where each row's entries begin in this order, and how many there are; rows with many entries come first
    groups, left     the rows in this order; how many of them have one entry, two entries, ... (see rows.fold_in_passes)
    """

    def __init__(self, rows: np.ndarray, columns: np.ndarray, m: int) -> None:
        self.order = None if (rows[1:] >= rows[:-1]).all() else stable_order(rows)
        self.columns = columns if self.order is None else columns.take(self.order)
        sizes = np.bincount(rows, minlength=m)
        self.groups, self.left = by_falling_size(sizes)
        self.starts = (np.cumsum(sizes) - sizes).take(self.groups)
        self.sizes = sizes.take(self.groups)

    def multiply(self, values: np.ndarray, right: np.ndarray, result: np.ndarray) -> None:
        """result[row] += value * right[column] for all entries, those of a row in their order; `result` is zero."""
        if not self.left:
            return
        ordered = (values if self.order is None else values.take(self.order))[:, None]

        def take(at: np.ndarray) -> np.ndarray:
            part = right.take(self.columns.take(at), 0)
            part *= ordered.take(at, 0)
            return part

        total = take(self.starts)
        total += total.dtype.type(0)  # a sum that begins with 0 is never -0.0
        fold_in_passes(np.add, total, take, self.starts, self.sizes, self.left, first=1)
        put_rows(result, self.groups, total)

    def is_quick(self, width: int) -> bool:
        """Whether to go through all rows at once, in as many passes as the longest one has entries, is quicker than entry by entry."""
        return 8e-3 * len(self.left) < 1e-6 * self.columns.size * width + 0.1
