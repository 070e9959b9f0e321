"""Sets in the last dimension of dense and sparse tensors: union, intersection, difference, size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, unknown
from penstock.ops.kernels.sparse import check_in_order, check_sparse, coordinates, keys_of
from penstock.ops.samples import arr, ints, strings
from penstock.ops.sorting import first_occurrences
from penstock.shapes import format_dims, merge_dims

Groups = dict[int, set]
"""Sets by the number of their row, in row-major order."""


class Members(NamedTuple):
    """The members of sets, the number of the row that each belongs to, and the shape of the rows' coordinates."""

    rows: np.ndarray
    values: np.ndarray
    shape: tuple[int, ...]
    width: int | None = None
    """How many members every row has, in order; None if that is not known."""


FEW = 64
"""Members up to which Python is as quick as arrays."""

_OPERATIONS = {
    b"a-b": lambda a, b: a - b,
    b"b-a": lambda a, b: b - a,
    b"intersection": lambda a, b: a & b,
    b"union": lambda a, b: a | b,
}


def dense_members(x: np.ndarray) -> Members:
    if x.ndim < 2:
        raise InvalidArgumentError(f"Shape {format_dims(x.shape)} has rank {x.ndim} < 2")
    return Members(np.arange(math.prod(x.shape[:-1])).repeat(x.shape[-1]), x.reshape(-1), x.shape[:-1], x.shape[-1])


def sparse_members(indices: Any, values: Any, shape: Any, validate: bool) -> Members:
    check_sparse(indices, values, shape)
    if shape.size < 2:
        raise InvalidArgumentError(f"Shape {format_dims(tuple(shape.tolist()))} has rank {shape.size} < 2")
    sizes = shape.tolist()
    if validate:
        check_in_order(indices, sizes)
    return Members(keys_of(indices, sizes[:-1]), values, tuple(sizes[:-1]))


def groups_of(members: Members) -> Groups:
    rows, values = members.rows, members.values
    if len(rows) <= FEW:
        few: Groups = {}
        for row, value in zip(rows.tolist(), values.tolist(), strict=True):
            few.setdefault(row, set()).add(value)
        return few
    if (rows[1:] < rows[:-1]).any():
        order = np.argsort(rows, kind="stable")
        rows, values = rows[order], values[order]
    starts = _starts(rows).tolist()
    each = values.tolist()
    return {row: set(each[a:b]) for row, a, b in zip(rows[starts].tolist(), starts, [*starts, len(each)][1:], strict=True)}


def _starts(rows: np.ndarray) -> np.ndarray:
    """Where rows begin, in numbers of rows that do not decrease."""
    return np.flatnonzero(np.append(True, rows[1:] != rows[:-1])) if len(rows) else np.zeros(0, np.int64)


def _combine(a: Members, b: Members, operation: bytes, dtype: np.dtype) -> list:
    function = _OPERATIONS.get(operation.lower())
    if function is None:
        raise InvalidArgumentError(f"Invalid set_operation {operation.decode(errors='replace')}.")
    if a.shape != b.shape:
        raise InvalidArgumentError(f"Mismatched shapes {format_dims(a.shape)} vs {format_dims(b.shape)}")
    if len(a.rows) + len(b.rows) <= FEW:
        return _combine_few(a, b, function, dtype)
    found = _combine_integers(a, b, operation.lower()) if dtype.kind != "O" else None
    if found is not None:
        return _sparse(*found, a.shape, dtype)
    nothing: set = set()
    first, second = groups_of(a), groups_of(b)
    rows = sorted({*first, *second})
    results = [sorted(function(first.get(row, nothing), second.get(row, nothing))) for row in rows]
    lengths = np.fromiter(map(len, results), np.int64, len(results))
    return _sparse(np.repeat(np.array(rows, np.int64), lengths), list(itertools.chain.from_iterable(results)), a.shape, dtype)


def _combine_few(a: Members, b: Members, function: Callable[[set, set], set], dtype: np.dtype) -> list:
    nothing: set = set()
    first, second = groups_of(a), groups_of(b)
    rows: list[int] = []
    places: list[int] = []
    values: list[Any] = []
    most = 0
    for row in sorted({*first, *second}):
        found = sorted(function(first.get(row, nothing), second.get(row, nothing)))
        rows += [row] * len(found)
        places += range(len(found))
        values += found
        most = max(most, len(found))
    indices = np.empty((len(rows), len(a.shape) + 1), np.int64)
    indices[:, :-1] = coordinates(np.array(rows, np.int64), a.shape) if len(a.shape) > 1 else np.array(rows, np.int64)[:, np.newaxis]
    indices[:, -1] = places
    result = np.empty(len(rows), dtype)
    result[:] = values
    return [indices, result, np.array([*a.shape, most], np.int64)]


def _combine_integers(a: Members, b: Members, operation: bytes) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows and members of the result, by sorting one number for each member: its row, its value, and whose it is. None if that takes more than 64 bits."""
    rows = np.concatenate([a.rows, b.rows])
    values = np.concatenate([a.values, b.values]).astype(np.int64)
    count = math.prod(a.shape)
    if not rows.size:
        return rows, values
    low, high = int(values.min()), int(values.max())
    bits = (high - low).bit_length()
    if 2 * count << bits >= 1 << 63 or int(rows.min()) < 0 or int(rows.max()) >= count:
        return None
    keys = ((rows << bits) + (values - low)) << 1
    keys[len(a.rows) :] += 1
    if a.width is not None and b.width is not None:  # many short rows
        table = np.concatenate([keys[: len(a.rows)].reshape(count, a.width), keys[len(a.rows) :].reshape(count, b.width)], 1)
        table.sort(1)
        keys = table.reshape(-1)
    else:
        in_order = all((part[1:] >= part[:-1]).all() for part in (keys[: len(a.rows)], keys[len(a.rows) :]))
        keys.sort(kind="stable" if in_order else None)  # which then only merges them
    keys = keys[np.append(True, keys[1:] != keys[:-1])]
    member, of_b = keys >> 1, (keys & 1).astype(bool)
    in_both = member[1:] == member[:-1]  # where that of `a` stands; that of `b` follows
    first, second = np.append(in_both, False), np.append(False, in_both)
    keep = {b"union": ~second, b"intersection": first, b"a-b": ~(of_b | first), b"b-a": of_b & ~second}[operation]
    kept = member[keep]
    return kept >> bits, (kept & (1 << bits) - 1) + low


def _sparse(rows: np.ndarray, values: Any, shape: tuple[int, ...], dtype: np.dtype) -> list:
    """indices, values and shape of members in the order of their rows."""
    starts = _starts(rows)
    lengths = np.diff(np.append(starts, len(rows)))
    indices = np.empty((len(rows), len(shape) + 1), np.int64)
    indices[:, :-1] = coordinates(rows, shape) if len(shape) > 1 else rows[:, np.newaxis]
    indices[:, -1] = np.arange(len(rows)) - np.repeat(starts, lengths)
    result = np.empty(len(rows), dtype)
    result[:] = values
    return [indices, result, np.array([*shape, lengths.max(initial=0)], np.int64)]


def dense_dense_kernel(a: Any, b: Any, *, set_operation: bytes) -> list:
    return _combine(dense_members(a), dense_members(b), set_operation, a.dtype)


def dense_sparse_kernel(a: Any, bi: Any, bv: Any, bs: Any, *, set_operation: bytes, validate_indices: bool) -> list:
    return _combine(dense_members(a), sparse_members(bi, bv, bs, validate_indices), set_operation, a.dtype)


def sparse_sparse_kernel(ai: Any, av: Any, ash: Any, bi: Any, bv: Any, bs: Any, *, set_operation: bytes, validate_indices: bool) -> list:
    return _combine(
        sparse_members(ai, av, ash, validate_indices), sparse_members(bi, bv, bs, validate_indices), set_operation, av.dtype
    )


def _result(rank: int | None) -> list[Dims]:
    return [(None, rank), (None,), (rank,)]


def dense_dense_shape(c: Any) -> list[Dims]:
    a, b = c.dims(0), c.dims(1)
    for dims in (a, b):
        if dims is not None and len(dims) < 2:
            raise ValueError(f"Input rank must be at least 2, got {len(dims)}")
    if a is not None and b is not None:
        merge_dims(a[:-1], b[:-1])
    known = a if a is not None else b
    return _result(None if known is None else len(known))


def dense_sparse_shape(c: Any) -> list[Dims]:
    return _result(None if c.dims(0) is None else len(c.dims(0)))


def sparse_sparse_shape(c: Any) -> list[Dims]:
    for i in (2, 5):
        if c.dims(i) and c.dims(i)[0] is not None:
            return _result(c.dims(i)[0])
    return _result(None)


def size_kernel(indices: Any, values: Any, shape: Any, *, validate_indices: bool) -> np.ndarray:
    members = sparse_members(indices, values, shape, validate_indices)
    if values.dtype.kind != "O" and values.size > FEW and (members.rows >= 0).all():
        numbers = members.values.astype(np.int64)
        low, count = int(numbers.min()), math.prod(members.shape)
        bits = (int(numbers.max()) - low).bit_length()
        if count << bits < 1 << 63 and int(members.rows.max()) < count:
            first, _ = first_occurrences((members.rows << bits) + (numbers - low))
            return np.bincount(members.rows[first], minlength=count).astype(np.int32).reshape(members.shape)
    groups = groups_of(members)
    result = np.zeros(members.shape, np.int32)
    if groups:
        result.reshape(-1)[list(groups)] = list(map(len, groups.values()))
    return result


_TYPES = "T: type in {int8, int16, int32, int64, uint8, uint16, string}]"
_HEAD = " -> (result_indices: int64, result_values: T, result_shape: int64) [set_operation: string; validate_indices: bool = true; " + _TYPES
_NAMES = ("a-b", "b-a", "intersection", "union")
_SPARSE_A = dict(set1_indices=arr([[0, 0], [0, 1], [2, 0]]), set1_values=arr([1, 3, 2]), set1_shape=arr([3, 2]))
_SPARSE_B = dict(set2_indices=arr([[0, 0], [0, 1], [1, 0]]), set2_values=arr([1, 9, 5]), set2_shape=arr([3, 2]))

op("DenseToDenseSetOperation(set1: T, set2: T)" + _HEAD,
   shape=dense_dense_shape, numpy=dense_dense_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(set1=ints(2, 2, 4, hi=6), set2=ints(2, 2, 3, hi=6), set_operation=name) for name in _NAMES]
   + [dict(set1=strings([["b", "a"]]), set2=strings([["c", "a"]]), set_operation="union")],
   errors=[
       (dict(set1=[[1, 2]], set2=[[1], [2]], set_operation="union"), InvalidArgumentError, "Mismatched shapes \\[1\\] vs \\[2\\]|must be equal"),
       (dict(set1=[[1, 2]], set2=[[1]], set_operation="x"), InvalidArgumentError, "Invalid set_operation x."),
   ])  # fmt: skip
op("DenseToSparseSetOperation(set1: T, set2_indices: int64, set2_values: T, set2_shape: int64)" + _HEAD,
   shape=dense_sparse_shape, numpy=dense_sparse_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(set1=ints(3, 4, hi=6), set_operation=name, **_SPARSE_B) for name in _NAMES])  # fmt: skip
op("SparseToSparseSetOperation(set1_indices: int64, set1_values: T, set1_shape: int64, set2_indices: int64, set2_values: T, set2_shape: int64)"
   + _HEAD,
   shape=sparse_sparse_shape, numpy=sparse_sparse_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(set_operation=name, **_SPARSE_A, **_SPARSE_B) for name in _NAMES]
   + [dict(set_operation="union", set1_indices=arr(np.zeros((0, 2), np.int64)), set1_values=arr(np.zeros(0, np.int64)), set1_shape=arr([3, 4]), **_SPARSE_B)])  # fmt: skip
op("SetSize(set_indices: int64, set_values: T, set_shape: int64) -> (size: int32) [validate_indices: bool = true; " + _TYPES,
   shape=unknown, numpy=size_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(set_indices=arr([[0, 0], [0, 1], [2, 0]]), set_values=arr([1, 1, 2]), set_shape=arr([3, 2]))],
   errors=[
       (dict(set_indices=[[2, 0], [0, 0]], set_values=[1, 2], set_shape=[3, 1]), InvalidArgumentError, "indices\\[1\\] = \\[0,0\\] is out of order"),
   ])  # fmt: skip
