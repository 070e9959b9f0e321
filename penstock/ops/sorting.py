"""Finding equal elements and places in sorted rows: unique, set difference, bounds, edit distance."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, with_rank
from penstock.ops.kernels.distances import Sequences, distances
from penstock.ops.kernels.numeric import widen
from penstock.ops.kernels.rows import stable_order
from penstock.ops.native import occurrences, searching, texts
from penstock.ops.native.text_index import TextIndex
from penstock.ops.samples import arr, empty, ints, strings
from penstock.shapes import format_dims

# -- unique -----------------------------------------------------------------------------------------------------------


BITS = {np.dtype(np.float64): np.uint64, np.dtype(np.float32): np.uint32, np.dtype(np.float16): np.uint16, dtypes.bfloat16.np: np.uint16}
"""Numbers whose bits tell them apart, once there is one zero only and no NaN."""


FEW = 48
"""Integers and strings up to which a dictionary is quicker than arrays."""


VERY_FEW = 8
"""Integers up to which it is quicker than a call of machine code."""


def first_occurrences(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the first occurrence of each distinct row, in order, and for every row the number of its value."""
    found_so = occurrences.first_occurrences(x) if x.size > VERY_FEW else None
    if found_so is not None:
        return found_so
    if x.ndim == 1 and (x.dtype == object or (x.dtype.kind in "iu" and x.size <= FEW)):
        found_so = _first_strings(x) if x.dtype == object and x.size > FEW else None
        return found_so or _numbered(np.fromiter(map({}.setdefault, x.tolist(), itertools.count()), np.int64, x.size))
    if x.ndim == 1 and x.dtype.kind in "iu":
        lowest = int(x.min())
        span = int(x.max()) - lowest + 1
        if span <= 8 * x.size + SMALL_TABLE:
            return _first_by_table((x.astype(np.uint64) - np.uint64(lowest % (1 << 64))).view(np.int64), span)
        first_of = _first_marks(x.astype(np.uint64) * MIXER)
        return _first_by_order(x, stable_order(x)) if first_of is None else _numbered(first_of)
    if x.ndim == 1 and x.itemsize == 2 and x.dtype in BITS:
        # TF hashes the bits of the narrow types, and so tells their two zeros apart. No NaN is like another.
        codes, are_nan = x.view(BITS[x.dtype]).astype(np.int64), x != x
        codes[are_nan] = np.arange(1 << 16, (1 << 16) + np.count_nonzero(are_nan))
        return first_occurrences(codes)
    if x.ndim == 1 and x.dtype in BITS and not (x != x).any():
        return first_occurrences((x + x.dtype.type(0)).view(BITS[x.dtype]))  # adding 0 makes -0.0 equal to 0.0
    if x.ndim == 1:
        _, first, inverse = np.unique(widen(x), return_index=True, return_inverse=True, equal_nan=False)
        order = np.argsort(first, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return first[order], rank[inverse.reshape(-1)]
    found = _first_rows(x.reshape(len(x), -1)) if x.size else None
    if found is not None:
        return found
    # Python's own equality: NaNs differ from each other, 0.0 and -0.0 do not.
    keys: list[Any] = [tuple(np.ravel(row).tolist()) for row in x]
    numbers: dict[Any, int] = {}
    first_at: list[int] = []
    inverse_list = []
    for i, key in enumerate(keys):
        number = numbers.setdefault(key, len(numbers))
        if number == len(first_at):
            first_at.append(i)
        inverse_list.append(number)
    return np.array(first_at, np.int64), np.array(inverse_list, np.int64)


MOST_COLUMNS = 8
"""Columns of rows up to which these are told apart column by column."""


def _first_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """`first_occurrences` of a matrix: the numbers of the columns' values, one column after the other, make one number for each row. None if that would
    not be quicker, or not the same."""
    if len(rows) <= FEW or rows.shape[1] > MOST_COLUMNS or (rows.itemsize == 2 and rows.dtype in BITS) or rows.dtype.kind == "c":
        return None
    first, codes = first_occurrences(rows[:, 0])
    for column in rows.T[1:]:
        different, numbers = first_occurrences(column)
        first, codes = first_occurrences(codes * len(different) + numbers)
    return first, codes


def _first_strings(x: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """`first_occurrences` of strings; None if machine code cannot read them."""
    which = TextIndex().insert(np.ascontiguousarray(x)) if texts.can_read() else None
    if which is None:
        return None
    is_first = np.ones(which.size, bool)
    highest = np.maximum.accumulate(which)
    np.not_equal(highest[1:], highest[:-1], out=is_first[1:])
    return np.flatnonzero(is_first), which


def _first_marks(marks: np.ndarray) -> np.ndarray | None:
    """For each of a vector of well mixed numbers of 64 bits where the first one like it is: by some of their bits after the other, until those of different
    ones differ. None if machine code cannot tell."""
    first_of, rest = np.empty(marks.size, np.int64), np.arange(marks.size)
    for shift in (43, 22, 1):
        mine = marks.take(rest)
        found = occurrences.first_occurrences((mine >> np.uint64(shift) & np.uint64(occurrences.LARGEST - 1)).view(np.int64))
        if found is None:
            return None
        first, which = found
        where = rest.take(first).take(which)
        is_like = marks.take(where) == mine
        first_of[rest[is_like]] = where[is_like]
        rest = rest[~is_like]
        if not rest.size:
            return first_of
    return None


MIXER = np.uint64(0x9E3779B97F4A7C15)
"""An odd number: products with it are different for different numbers, and their upper bits depend on all."""

SMALL_TABLE = 1 << 16
"""Entries of a table that are worth having whatever the number of elements."""


def _first_by_table(x: np.ndarray, span: int) -> tuple[np.ndarray, np.ndarray]:
    """`first_occurrences` of integers in [0, span), without sorting: a table knows where each one came first."""
    n = x.size
    positions = np.arange(n)
    table = np.empty(span, np.int64)
    table[x[::-1]] = positions[::-1]  # NumPy writes in order, so the first occurrence stays
    first_of = table.take(x)
    first = np.flatnonzero(first_of == positions)
    table[x[first]] = np.arange(first.size)
    return first, table.take(x)


def _first_by_order(x: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`first_occurrences` of the integers that `order` sorts, equal ones in their own order."""
    ranked = x.take(order)
    begins = np.empty(x.size, bool)
    begins[0] = True
    np.not_equal(ranked[1:], ranked[:-1], out=begins[1:])
    first_of = np.empty(x.size, np.int64)
    first_of[order] = order[begins].take(np.cumsum(begins) - 1)
    return _numbered(first_of)


def _numbered(first_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The result of `first_occurrences`, by where the first one like each is."""
    is_first = first_of == np.arange(first_of.size)
    return np.flatnonzero(is_first), (np.cumsum(is_first) - 1).take(first_of)


def unique_kernel(x: Any, *, out_idx: DType) -> list[np.ndarray]:
    if x.ndim != 1:
        raise InvalidArgumentError("unique expects a 1D vector.")
    first, inverse = first_occurrences(x)
    return [x.take(first), inverse.astype(out_idx.np)]


def unique_with_counts_kernel(x: Any, *, out_idx: DType) -> list[np.ndarray]:
    y, idx = unique_kernel(x, out_idx=out_idx)
    return [y, idx, np.bincount(idx, minlength=len(y)).astype(out_idx.np)]


def unique_v2_kernel(x: Any, axis: np.ndarray, *, out_idx: DType) -> list[np.ndarray]:
    if axis.ndim != 1:
        raise InvalidArgumentError("axis expects a 1D vector.")
    if axis.size > 1:
        raise InvalidArgumentError("axis does not support input tensors larger than 1 elements")
    if axis.size == 0:
        if x.ndim != 1:
            raise InvalidArgumentError("unique expects a 1D vector.")
        a = 0
    else:
        a = int(axis[0]) + (x.ndim if axis[0] < 0 else 0)
        if not 0 <= a < x.ndim:
            raise InvalidArgumentError(f"axis has to be between [0, {x.ndim})")
    first, inverse = first_occurrences(np.moveaxis(x, a, 0))
    return [x[(*(slice(None),) * a, first)], inverse.astype(out_idx.np)]


def unique_with_counts_v2_kernel(x: Any, axis: np.ndarray, *, out_idx: DType) -> list[np.ndarray]:
    y, idx = unique_v2_kernel(x, axis, out_idx=out_idx)
    count = int(idx.max()) + 1 if idx.size else 0
    return [y, idx, np.bincount(idx, minlength=count).astype(out_idx.np)]


def unique_shape(c: Any) -> list[Dims]:
    dims = with_rank(c, 0, 1)
    return [(None,), dims, (None,)][: len(c.op.outputs)]


def unique_v2_shape(c: Any) -> list[Dims]:
    dims, axis, given = c.dims(0), c.const(1), c.dims(1)
    if given is not None and len(given) != 1:
        raise ValueError("axis expects a 1D vector.")
    y: Dims = None
    idx: Dims = (None,)
    if axis is not None and dims is not None:
        if axis.size > 1:
            raise ValueError("axis does not support input tensors larger than 1 elements.")
        if axis.size == 0:
            if len(dims) != 1:
                raise ValueError("x expects a 1D vector.")
            a = 0
        else:
            a = int(axis[0])
            if not -len(dims) <= a < len(dims):
                raise ValueError(f"axis expects to be in the range [{-len(dims)}, {len(dims)})")
            a %= len(dims)
        y, idx = (*dims[:a], None, *dims[a + 1 :]), (dims[a],)
    return [y, idx, (None,)][: len(c.op.outputs)]


_VECTORS = [
    dict(x=ints(8, lo=0, hi=4)),
    dict(x=ints(8, lo=0, hi=4), out_idx="int64"),
    dict(x=arr([np.nan, 1.0, np.nan, 0.0, -0.0], np.float64)),
    dict(x=empty(0)),
    dict(x=strings(["b", "a", "b"])),
]
_TABLES = [
    dict(x=arr([[1, 2], [3, 4], [1, 2]]), axis=arr([0])),
    dict(x=arr([[1, 2, 1], [3, 4, 3]]), axis=arr([-1])),
    dict(x=ints(5, hi=3), axis=arr([])),
    dict(x=empty(0, 2), axis=arr([0])),
    dict(x=strings([["a", "b"], ["a", "b"]]), axis=arr([0])),
]

op("Unique(x: T) -> (y: T, idx: out_idx) [T: type; out_idx: type in {int32, int64} = int32]",
   shape=unique_shape, numpy=unique_kernel, samples=_VECTORS,
   errors=[(dict(x=[[1, 2]]), InvalidArgumentError, "unique expects a 1D vector|Shape must be rank 1 but is rank 2")])  # fmt: skip
op("UniqueWithCounts(x: T) -> (y: T, idx: out_idx, count: out_idx) [T: type; out_idx: type in {int32, int64} = int32]",
   shape=unique_shape, numpy=unique_with_counts_kernel, samples=_VECTORS)  # fmt: skip
op("UniqueV2(x: T, axis: Taxis) -> (y: T, idx: out_idx) [T: type; Taxis: type in {int32, int64} = int64; out_idx: type in {int32, int64} = int32]",
   shape=unique_v2_shape, numpy=unique_v2_kernel, samples=_TABLES)  # fmt: skip
op("UniqueWithCountsV2(x: T, axis: Taxis) -> (y: T, idx: out_idx, count: out_idx)"
   " [T: type; Taxis: type in {int32, int64} = int64; out_idx: type in {int32, int64} = int32]",
   shape=unique_v2_shape, numpy=unique_with_counts_v2_kernel, samples=_TABLES)  # fmt: skip


def list_diff_kernel(x: Any, y: Any, *, out_idx: DType) -> list[np.ndarray]:
    for name, value in (("x", x), ("y", y)):
        if value.ndim != 1:
            raise InvalidArgumentError(f"{name} should be a 1D vector.")
    if x.dtype == object:
        known = set(y.tolist())
        keep = np.array([v not in known for v in x.tolist()], bool)
    else:
        keep = ~np.isin(x, y)
    return [x[keep], np.flatnonzero(keep).astype(out_idx.np)]


def list_diff_shape(c: Any) -> list[Dims]:
    with_rank(c, 0, 1)
    with_rank(c, 1, 1)
    return [(None,), (None,)]


op("ListDiff(x: T, y: T) -> (out: T, idx: out_idx) [T: type; out_idx: type in {int32, int64} = int32]",
   shape=list_diff_shape, numpy=list_diff_kernel,
   samples=[
       dict(x=arr([3, 1, 3, 2]), y=arr([1])),
       dict(x=arr([3, 1]), y=empty(0), out_idx="int64"),
       dict(x=arr([np.nan, 1.0], np.float32), y=arr([np.nan], np.float32)),
       dict(x=strings(["a", "b"]), y=strings(["a"])),
   ])  # fmt: skip

# -- places in sorted rows --------------------------------------------------------------------------------------------


def _bound(side: Any) -> Any:
    def kernel(rows: Any, values: Any, *, out_type: DType) -> np.ndarray:
        for name, value in (("sorted_inputs", rows), ("values", values)):
            if value.ndim != 2:
                raise InvalidArgumentError(f"Shape must be rank 2 but is rank {value.ndim} for `{name}` argument")
        if rows.shape[0] != values.shape[0]:
            raise InvalidArgumentError("Leading dim_size of both tensors must match.")
        found = searching.places(rows, values, side)
        if found is not None:
            return found.astype(out_type.np, copy=False)
        result = np.empty(values.shape, out_type.np)
        for i in range(rows.shape[0]):
            result[i] = np.searchsorted(rows[i], values[i], side)
        if values.dtype.kind not in "biu":
            # A NaN is smaller than nothing and nothing is smaller than a NaN.
            result[values != values] = 0 if side == "left" else rows.shape[1]
        return result

    return kernel


def bound_shape(c: Any) -> Dims:
    with_rank(c, 0, 2)
    return with_rank(c, 1, 2)


for _name, _side in (("LowerBound", "left"), ("UpperBound", "right")):
    op(f"{_name}(sorted_inputs: T, values: T) -> (output: out_type) [T: type; out_type: type in {{int32, int64}} = int32]",
       shape=bound_shape, numpy=_bound(_side),
       samples=[
           dict(sorted_inputs=arr([[1, 2, 2, 5], [0, 0, 1, 9]]), values=arr([[2, 0, 9], [0, 1, 3]])),
           dict(sorted_inputs=arr([[1, 2]]), values=arr([[1]]), out_type="int64"),
           dict(sorted_inputs=arr([[1.0, 2.0]], np.float32), values=arr([[np.nan, 1.5]], np.float32)),
           dict(sorted_inputs=empty(2, 0), values=arr([[1], [2]])),
       ],
       errors=[(dict(sorted_inputs=[[1.0, 2.0]], values=[[1.0], [2.0]]), InvalidArgumentError, "Leading dim_size of both tensors must match.")])  # fmt: skip

# -- edit distance ----------------------------------------------------------------------------------------------------


TOO_FLAT = "Input Hypothesis SparseTensors must have rank at least 2, but hypothesis_shape rank is: {}"


def _places(indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The number of each element's group: all coordinates but the last one name it."""
    places = np.zeros(len(indices), np.int64)
    for k, size in enumerate(shape):
        column = indices[:, k]
        bad = np.flatnonzero((column < 0) | (column >= size))
        if bad.size:
            raise InvalidArgumentError(f"Got end of group {indices[bad[0], :-1].tolist()} outside of the output's shape {format_dims(shape)}")
        places = places * size + column
    return places


def edit_distance_kernel(h_indices: Any, h_values: Any, h_shape: Any, t_indices: Any, t_values: Any, t_shape: Any, *,
                         normalize: bool) -> np.ndarray:  # fmt: skip
    for name, indices, values, shape in (("hypothesis", h_indices, h_values, h_shape), ("truth", t_indices, t_values, t_shape)):
        if indices.ndim != 2:
            raise InvalidArgumentError(f"{name}_indices should be a matrix, but got shape: {format_dims(indices.shape)}")
        if values.ndim != 1 or len(values) != len(indices):
            raise InvalidArgumentError(f"{name}_values should be a vector of length {len(indices)}, but got shape: {format_dims(values.shape)}")
        if shape.ndim != 1 or shape.size != indices.shape[1]:
            raise InvalidArgumentError(f"{name}_shape should be a vector of length {indices.shape[1]}, but got shape: {format_dims(shape.shape)}")
    if h_shape.size != t_shape.size:
        raise InvalidArgumentError(f"truth_shape.NumElements() = {t_shape.size} differs from hypothesis_shape.NumElements() = {h_shape.size}")
    if h_shape.size < 2:
        raise InvalidArgumentError(TOO_FLAT.format(h_shape.size))
    result = np.zeros([max(a, b) for a, b in zip(h_shape[:-1].tolist(), t_shape[:-1].tolist(), strict=True)], np.float32)
    codes = np.concatenate([h_values, t_values])
    if codes.dtype.kind not in "iu" and codes.size:
        codes = first_occurrences(codes)[1]
    codes = codes.astype(np.int64, copy=False)
    hypotheses = Sequences(_places(h_indices, result.shape), codes[: len(h_values)], result.size)
    truths = Sequences(_places(t_indices, result.shape), codes[len(h_values) :], result.size)
    if not result.size:
        raise InvalidArgumentError(f"Got output shape {format_dims(result.shape)} which has 0 elements")
    found = distances(hypotheses, truths).astype(np.float64)
    if normalize:
        # Without a truth, any hypothesis is infinitely far away; nothing is no distance from nothing.
        found = np.where(truths.lengths > 0, found / np.maximum(truths.lengths, 1), np.where(hypotheses.lengths > 0, np.inf, 0.0))
    return found.astype(np.float32).reshape(result.shape)


def edit_distance_shape(c: Any) -> Dims:
    for i, shape in ((0, 2), (3, 5)):
        indices, given = c.dims(i), c.dims(shape)
        if indices is not None and given is not None and len(given) == 1 and None not in (indices[-1], given[0]) and indices[-1] != given[0]:
            raise ValueError(f"Index rank ({indices[-1]}) and shape rank ({given[0]}) do not match.")
    a, b = c.const(2), c.const(5)
    if a is None or b is None:
        return None
    if a.size != b.size:
        raise ValueError(f"Num elements of hypothesis_shape does not match truth_shape: {a.size} vs. {b.size}")
    if a.size < 2:
        raise ValueError(TOO_FLAT.format(a.size))
    return tuple(max(x, y) for x, y in zip(a[:-1].tolist(), b[:-1].tolist(), strict=True))


op("EditDistance(hypothesis_indices: int64, hypothesis_values: T, hypothesis_shape: int64, truth_indices: int64, truth_values: T,"
   " truth_shape: int64) -> (output: float) [normalize: bool = true; T: type]",
   shape=edit_distance_shape, numpy=edit_distance_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[
       dict(hypothesis_indices=arr([[0, 0], [0, 1], [1, 0]]), hypothesis_values=arr([1, 2, 3]), hypothesis_shape=arr([2, 2]),
            truth_indices=arr([[0, 0], [2, 0]]), truth_values=arr([1, 3]), truth_shape=arr([3, 1]), normalize=normalize)
       for normalize in (True, False)
   ] + [
       dict(hypothesis_indices=arr([[0, 0, 0], [1, 0, 1]]), hypothesis_values=strings(["a", "b"]), hypothesis_shape=arr([2, 1, 2]),
            truth_indices=arr([[0, 0, 0], [0, 0, 1]]), truth_values=strings(["b", "a"]), truth_shape=arr([2, 1, 2])),
   ])  # fmt: skip
