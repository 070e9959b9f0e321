"""Segment ops: reductions over groups of rows that a vector of segment ids names."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.errors import InvalidArgumentError
from penstock.ops.declare import op, with_rank_at_least
from penstock.ops.kernels.numeric import lowest, narrow, widen
from penstock.ops.kernels.rows import scatter_rows
from penstock.ops.kernels.segments import (
    EXTREMES,
    PACKET_BYTES,
    extremes_among_nans,
    fold_rows,
    per_row,
    reduce_rows,
    reduce_sorted,
    sorted_group_sizes,
)
from penstock.ops.native import occurrences
from penstock.ops.native.duplicates import sums_by_number
from penstock.ops.native.segments import QUOTIENT, reduce_groups
from penstock.ops.samples import arr, empty, ints, normal
from penstock.ops.sorting import first_occurrences
from penstock.shapes import Dims, format_dims, merge_dim

# -- sorted segments --------------------------------------------------------------------------------------------------


def check_sorted(data: Any, ids: Any) -> int:
    """The number of segments that sorted ids describe; InvalidArgumentError in TF's words if they are no such ids."""
    if data.ndim < 1:
        raise InvalidArgumentError("input must be at least rank 1")
    if ids.ndim != 1:
        raise InvalidArgumentError("segment_ids should be a vector.")
    if ids.shape[0] != data.shape[0]:
        raise InvalidArgumentError("segment_ids should be the same size as dimension 0 of input.")
    return sorted_count(ids)


def sorted_count(ids: Any) -> int:
    if not ids.size:
        return 0
    count = int(ids[-1]) + 1
    if (ids[1:] < ids[:-1]).any():
        raise InvalidArgumentError("segment ids are not increasing")
    if ids[0] < 0:
        raise InvalidArgumentError(f"Segment id {ids[0]} out of range [0, {count}), possibly because 'segment_ids' input is not sorted.")
    return count


def sorted_segments(ufunc: Any, gap: int) -> Any:
    def kernel(data: Any, ids: Any) -> Any:
        rows = widen(data)
        result = in_one_pass(ufunc, rows, ids, gap)
        if result is None:
            result = reduce_sorted(ufunc, rows, ids, check_sorted(data, ids), gap)
        if ufunc in EXTREMES and result.dtype.kind == "f" and np.isnan(result).any():
            result = extremes_among_nans(ufunc, rows, ids, result, PACKET_BYTES // rows.itemsize)
        return narrow(result, data.dtype)

    return kernel


def in_one_pass(ufunc: Any, rows: Any, ids: Any, gap: int, scale: str = "") -> np.ndarray | None:
    """`reduce_groups` with as many groups as sorted ids describe; None also if they are no such ids."""
    if rows.ndim < 2 or ids.ndim != 1 or not ids.size:
        return None
    count = int(ids[-1]) + 1
    return None if count < 1 else reduce_groups(ufunc, rows, ids, count, gap, scale=scale)


def segment_mean_kernel(data: Any, ids: Any) -> Any:
    rows = widen(data)
    found = in_one_pass(np.add, rows, ids, 0, QUOTIENT)
    if found is not None:
        return narrow(found, data.dtype)
    count = check_sorted(data, ids)
    total, sizes = reduce_sorted(np.add, rows, ids, count, 0), sorted_group_sizes(ids, count)
    if data.dtype.kind in "iu":  # TF counts in the type of the data, which may be too narrow for that
        sizes = sizes.astype(data.dtype)
    return narrow(_divided(total, sizes), data.dtype)


def _divided(total: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Sums over sizes, 0 for empty segments; whole numbers round towards zero."""
    divisor = per_row(np.maximum(sizes, 1), total)
    if total.dtype.kind in "iu":
        return np.trunc(total / divisor).astype(total.dtype)
    return total / divisor.astype(np.abs(total[:0]).dtype)


def segment_shape(c: Any) -> Dims:
    data = with_rank_at_least(c, 0, 1)
    ids = c.dims(1)
    if ids is not None and len(ids) != 1:
        raise ValueError(f"Shape must be rank 1 but is rank {len(ids)}")
    if data is None:
        return None
    return None, *data[1:]


def segment_sum_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    return [g.GatherV2(dy, op.segment_ids, np.int32(0)), None]


def _ones_per_row(g: Any, x: Any, like: Any) -> Any:
    """A tensor of ones that counts rows: [rows, 1, 1, ...] of the rank of `x`."""
    shape = g.ConcatV2([g.Shape(like), g.Fill(g.Reshape(g.Sub(g.Rank(x), np.int32(1)), np.array([1], np.int32)), np.int32(1))], np.int32(0))
    return g.Fill(shape, g.const(1, x.dtype))


def segment_mean_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    sizes = g.SegmentSum(_ones_per_row(g, dy, op.segment_ids), op.segment_ids)
    return [g.GatherV2(g.RealDiv(dy, sizes), op.segment_ids, np.int32(0)), None]


def segment_extreme_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    """Equal shares for all elements that hold the extreme."""
    zeros = g.ZerosLike(op.data)
    winners = g.Equal(op.data, g.GatherV2(op.output, op.segment_ids, np.int32(0)))
    count = g.SegmentSum(g.Cast(winners, DstT=dy.dtype.base_dtype), op.segment_ids)
    return [g.SelectV2(winners, g.GatherV2(g.RealDiv(dy, count), op.segment_ids, np.int32(0)), zeros), None]


def segment_prod_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    """dy times the product of the others. A segment's zeros are counted: with one zero only its own element has a slope."""
    return [_prod_slope(g, op, dy, lambda x: g.SegmentProd(x, op.segment_ids), lambda x: g.SegmentSum(x, op.segment_ids),
                        lambda x: g.GatherV2(x, op.segment_ids, np.int32(0))), None]  # fmt: skip


def _prod_slope(g: Any, op: Any, dy: Any, prod: Any, total: Any, gather: Any) -> Any:
    data = op.data
    zero = g.const(0, data.dtype)
    is_zero = g.Equal(data, zero)
    zeros_in_segment = total(g.Cast(is_zero, DstT=dtypes.int32))
    dy = g.SelectV2(g.Greater(zeros_in_segment, np.int32(1)), g.ZerosLike(dy), dy)
    without_zeros = g.SelectV2(is_zero, g.OnesLike(data), data)
    others = g.RealDiv(gather(op.output), without_zeros)
    slope = g.SelectV2(is_zero, gather(prod(without_zeros)), others)
    return g.Mul(gather(dy), slope)


SORTED = [
    dict(data=normal(4, 2), segment_ids=arr([0, 0, 1, 3], np.int32)), dict(data=ints(3, lo=1, hi=5), segment_ids=arr([0, 2, 2], np.int64)),
    dict(data=empty(0, 2), segment_ids=empty(0, dtype=np.int32)), dict(data=normal(3, 2, 2), segment_ids=arr([1, 1, 1], np.int32)),
]  # fmt: skip
SORTED_ERRORS = [
    (dict(data=normal(3, 2), segment_ids=arr([1, 0, 1], np.int32)), InvalidArgumentError, "segment ids are not increasing"),
    (dict(data=normal(3, 2), segment_ids=arr([0, 1], np.int32)), InvalidArgumentError, "segment_ids should be the same size as dimension 0 of input."),
    (dict(data=normal(3, 2), segment_ids=arr([-1, 0, 1], np.int32)), InvalidArgumentError, r"Segment id -1 out of range \[0, 2\)"),
]  # fmt: skip
IDS = "Tindices: type in INDEX]"

op(f"SegmentSum(data: T, segment_ids: Tindices) -> (output: T) [T: type in NUMBERS; {IDS}",
   shape=segment_shape, numpy=sorted_segments(np.add, 0), grad=segment_sum_grad, samples=SORTED, errors=SORTED_ERRORS)
op(f"SegmentMean(data: T, segment_ids: Tindices) -> (output: T) [T: type in NUMBERS; {IDS}",
   shape=segment_shape, numpy=segment_mean_kernel, grad=segment_mean_grad, samples=SORTED, errors=SORTED_ERRORS)
op(f"SegmentProd(data: T, segment_ids: Tindices) -> (output: T) [T: type in NUMBERS; {IDS}",
   shape=segment_shape, numpy=sorted_segments(np.multiply, 1), grad=segment_prod_grad, samples=SORTED, errors=SORTED_ERRORS)
op(f"SegmentMin(data: T, segment_ids: Tindices) -> (output: T) [T: type in REALS; {IDS}",
   shape=segment_shape, numpy=sorted_segments(np.minimum, 0), grad=segment_extreme_grad, samples=SORTED, errors=SORTED_ERRORS)
op(f"SegmentMax(data: T, segment_ids: Tindices) -> (output: T) [T: type in REALS; {IDS}",
   shape=segment_shape, numpy=sorted_segments(np.maximum, 0), grad=segment_extreme_grad, samples=SORTED, errors=SORTED_ERRORS)

# -- unsorted segments ------------------------------------------------------------------------------------------------


FEW_ROWS = 40
"""Rows that are told apart by a dictionary in less time than by sorting."""


def _first_and_later(keys: list[int]) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """Where each key comes first; and (key, place) where one comes again."""
    first: dict[int, int] = {}
    again = []
    for i, key in enumerate(keys):
        if first.setdefault(key, i) != i:
            again.append((key, i))
    return first, again


def _few_sums(data: np.ndarray, numbers: list[int], count: int) -> np.ndarray:
    """The sums of a few rows by their numbers, from 0 on and in order."""
    rows = widen(data)
    first, again = _first_and_later(numbers)
    total = rows.take(list(first.values()), 0) if again else rows
    if len(first) == count and list(first) == list(range(count)):
        total = total + total.dtype.type(0)  # a sum that begins with 0 is never -0.0
    else:
        some, total = total, np.zeros((count, rows.shape[1]), rows.dtype)
        total[list(first)] += some
    if len(again) <= 8:
        for number, i in again:
            total[number] += rows[i]
    else:
        at, which = np.array(again).T
        scatter_rows(total, at, rows.take(which, 0), "add")
    return narrow(total, data.dtype)


def unsorted_segments(ufunc: Any, initial: Any) -> Any:
    def settled(result: np.ndarray, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        if ufunc in EXTREMES and result.dtype.kind == "f" and np.isnan(result).any():
            keep = ids >= 0
            return extremes_among_nans(ufunc, rows[keep], ids[keep], result)
        return result

    def kernel(data: Any, ids: Any, num_segments: Any) -> Any:
        if num_segments.ndim:
            raise InvalidArgumentError(f"num_segments should be a scalar, not shape {format_dims(num_segments.shape)}")
        count = int(num_segments)
        if count < 0:
            raise InvalidArgumentError(f"Input num_segments == {count} must not be negative.")
        if data.shape[: ids.ndim] != ids.shape:
            raise InvalidArgumentError(f"data.shape = {format_dims(data.shape)} does not start with segment_ids.shape = {format_dims(ids.shape)}")
        fill = initial(data.dtype) if callable(initial) else initial
        if ids.ndim == 1:
            found = fold_rows(ufunc, data, ids, count, fill)
            if found is not None:
                return settled(found, data, ids)
        if ufunc is np.add and 0 < ids.size <= FEW_ROWS and ids.ndim == 1 and data.ndim == 2:
            numbers = ids.tolist()
            if 0 <= min(numbers) and max(numbers) < count:
                return _few_sums(data, numbers, count)
        flat = np.ravel(ids)
        if flat.size and int(flat.max()) >= count:
            where = np.unravel_index(int(np.argmax(flat >= count)), ids.shape) if ids.ndim else ()
            place = "[" + ",".join(str(int(i)) for i in where) + "]" if ids.ndim else ""
            raise InvalidArgumentError(f"segment_ids{place} = {flat[flat >= count][0]} is out of range [0, {count})")
        # No minus one here: an empty `data` still knows the shape of its rows.
        rows = widen(np.asarray(data)).reshape(flat.size, *data.shape[ids.ndim :])
        result = reduce_rows(ufunc, rows, flat, count, fill)
        if ufunc in EXTREMES:
            ufunc(result, result.dtype.type(fill), out=result)  # TF begins with a finite number
        return narrow(settled(result, rows, flat), data.dtype)

    return kernel


def _lowest(dtype: Any) -> Any:
    return lowest(dtype)


def _highest(dtype: Any) -> Any:
    return np.iinfo(dtype).max if dtype.kind in "iu" else -float(lowest(dtype)) if dtype.kind != "f" else np.finfo(dtype).max


def unsorted_shape(c: Any) -> Dims:
    data, ids = c.dims(0), c.dims(1)
    count = c.const(2)
    if c.dims(2) not in (None, ()):
        raise ValueError(f"Shape must be rank 0 but is rank {len(c.dims(2))}")
    if data is None or ids is None:
        return None
    if len(data) < len(ids):
        raise ValueError(f"Shape must be at least rank {len(ids)} but is rank {len(data)}")
    for x, y in zip(data, ids):
        merge_dim(x, y)
    if count is not None and int(count) < 0:
        raise ValueError(f"Dimension size, given by scalar input 2 must be in range [0, inf) but is {int(count)}")
    return None if count is None else int(count), *data[len(ids) :]


def _gather_kept(g: Any, params: Any, ids: Any, fill: Any) -> tuple[Any, Any]:
    """(rows of `params` at ids, where negative ids give `fill`; a mask of the rows that count)."""
    valid = g.GreaterEqual(ids, g.const(0, ids.dtype))
    gathered = g.GatherV2(params, g.Maximum(ids, g.const(0, ids.dtype)), np.int32(0))
    extra = g.Fill(g.Reshape(g.Sub(g.Rank(gathered), g.Rank(ids)), np.array([1], np.int32)), np.int32(1))
    mask = g.Reshape(valid, g.ConcatV2([g.Shape(ids), extra], np.int32(0)))
    mask = g.LogicalAnd(mask, g.Fill(g.Shape(gathered), np.bool_(True)))
    return g.SelectV2(mask, gathered, g.Fill(g.Shape(gathered), g.const(fill, gathered.dtype))), mask


def unsorted_sum_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    return [_gather_kept(g, dy, op.segment_ids, 0)[0], None, None]


def unsorted_extreme_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    held, valid = _gather_kept(g, op.output, op.segment_ids, 0)
    winners = g.LogicalAnd(g.Equal(op.data, held), valid)
    count = g.UnsortedSegmentSum(g.Cast(winners, DstT=dy.dtype.base_dtype), op.segment_ids, op.num_segments)
    share = _gather_kept(g, g.RealDiv(dy, count), op.segment_ids, 0)[0]
    return [g.SelectV2(winners, share, g.ZerosLike(share)), None, None]


def unsorted_prod_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    ids, count = op.segment_ids, op.num_segments
    return [_prod_slope(g, op, dy, lambda x: g.UnsortedSegmentProd(x, ids, count), lambda x: g.UnsortedSegmentSum(x, ids, count),
                        lambda x: _gather_kept(g, x, ids, 0)[0]), None, None]  # fmt: skip


UNSORTED = [
    dict(data=normal(3, 2), segment_ids=arr([2, 0, 0], np.int32), num_segments=4), dict(data=ints(3, lo=1, hi=5), segment_ids=arr([0, -1, 2], np.int64), num_segments=4),
    dict(data=normal(3, 2), segment_ids=arr([[0, 1], [1, 0], [0, 0]], np.int32), num_segments=2), dict(data=empty(0, 2), segment_ids=empty(0, dtype=np.int32), num_segments=2),
    dict(data=normal(2), segment_ids=arr(1, np.int32), num_segments=2), dict(data=normal(2, 2), segment_ids=arr([0, 0], np.int32), num_segments=arr(1, np.int64)),
]  # fmt: skip
UNSORTED_ERRORS = [
    (dict(data=normal(3, 2), segment_ids=arr([0, 1, 2], np.int32), num_segments=2), InvalidArgumentError, r"segment_ids\[2\] = 2 is out of range \[0, 2\)"),
    (dict(data=normal(3, 2), segment_ids=arr([0, 1], np.int32), num_segments=2), InvalidArgumentError, r"data.shape = \[3,2\] does not start with segment_ids.shape = \[2\]"),
    (dict(data=normal(3, 2), segment_ids=arr([0, 1, 2], np.int32), num_segments=-2), InvalidArgumentError, "num_segments == -2 must not be negative"),
]  # fmt: skip
MORE = "Tindices: type in INDEX; Tnumsegments: type in INDEX = int32]"

op("UnsortedSegmentSum(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> (output: T) [T: type in NUMBERS;"
   " Tindices: type in {int16, int32, int64}; Tnumsegments: type in INDEX = int32]",
   shape=unsorted_shape, numpy=unsorted_segments(np.add, 0), grad=unsorted_sum_grad, samples=UNSORTED, errors=UNSORTED_ERRORS)
op(f"UnsortedSegmentProd(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> (output: T) [T: type in NUMBERS; {MORE}",
   shape=unsorted_shape, numpy=unsorted_segments(np.multiply, 1), grad=unsorted_prod_grad, samples=UNSORTED, errors=UNSORTED_ERRORS)
op(f"UnsortedSegmentMax(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> (output: T) [T: type in REALS; {MORE}",
   shape=unsorted_shape, numpy=unsorted_segments(np.maximum, _lowest), grad=unsorted_extreme_grad, samples=UNSORTED, errors=UNSORTED_ERRORS)
op(f"UnsortedSegmentMin(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> (output: T) [T: type in REALS; {MORE}",
   shape=unsorted_shape, numpy=unsorted_segments(np.minimum, _highest), grad=unsorted_extreme_grad, samples=UNSORTED, errors=UNSORTED_ERRORS)


# -- rows that come several times -------------------------------------------------------------------------------------

def sum_of_duplicates_kernel(values: Any, indices: Any) -> tuple[np.ndarray, np.ndarray]:
    """The rows of `values` summed by their index, from 0 on and in order; and each index once, in the order in which they come first."""
    if indices.ndim != 1:
        raise InvalidArgumentError("unique expects a 1D vector.")
    if values.shape[:1] != indices.shape:
        raise InvalidArgumentError(f"data.shape = {format_dims(values.shape)} does not start with segment_ids.shape = {format_dims(indices.shape)}")
    summed = sums_by_number(values, indices)
    if summed is not None:
        return summed[0], summed[1].astype(indices.dtype, copy=False)
    rows = widen(values)
    found = occurrences.first_occurrences(indices)
    if indices.size > FEW_ROWS or found is not None:
        first, numbers = found or first_occurrences(indices)
        named = indices if first.size == indices.size else indices.take(first)
        return narrow(reduce_rows(np.add, rows, numbers, first.size, 0, are_known=True), values.dtype), named
    keys = indices.tolist()
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    if values.ndim == 2 and keys:
        total = _few_sums(values, [numbers[key] for key in keys], len(numbers))
    else:
        total = narrow(reduce_rows(np.add, rows, np.array([numbers[key] for key in keys], np.int64), len(numbers), 0), values.dtype)
    return total, indices if len(numbers) == len(keys) else np.fromiter(numbers, indices.dtype, len(numbers))


def sum_of_duplicates_shape(c: Any) -> list[Dims]:
    rows = c.dims(0)
    return [None if rows is None else (None, *rows[1:]), (None,)]


op("_SumOfDuplicates(values: T, indices: Tindices) -> (sum: T, unique: Tindices) [T: type in NUMBERS; Tindices: type in {int32, int64}]",
   shape=sum_of_duplicates_shape, numpy=sum_of_duplicates_kernel)  # fmt: skip
