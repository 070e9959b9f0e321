"""Segment ops on selected rows: gather rows by `indices`, then sum, average or scale them by segment."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.graph.composite import IndexedSlices
from penstock.ops.declare import op, with_rank, with_rank_at_least
from penstock.ops.kernels.numeric import narrow, widen
from penstock.ops.kernels.segments import (
    group_sizes,
    per_row,
    reduce_rows,
    reduce_sorted,
    sorted_group_sizes,
    sum_sorted,
)
from penstock.ops.native.segments import ROOT, SHARE, reduce_groups
from penstock.ops.samples import arr, empty, ints, normal
from penstock.ops.segment import sorted_count
from penstock.shapes import Dims, merge_dims

# -- forward ----------------------------------------------------------------------------------------------------------


def _factors(scale: str, sizes: np.ndarray) -> np.ndarray | None:
    """What the sums of groups of such sizes are multiplied by."""
    if not scale:
        return None
    return 1.0 / (np.sqrt(np.maximum(sizes, 1)) if scale == ROOT else np.maximum(sizes, 1))


def _selected(data: Any, indices: Any, ids: Any, count: int | None, scale: str) -> Any:
    if data.ndim > 1 and ids.ndim == 1 and ids.size and data.dtype == widen(data[:0]).dtype:
        segments = int(ids[-1]) + 1 if count is None else count
        found = None if segments < 1 else reduce_groups(np.add, data, ids, segments, 0, indices, scale)
        if found is not None:
            return found
    if indices.ndim != 1:
        raise InvalidArgumentError("indices should be a vector.")
    if ids.ndim != 1:
        raise InvalidArgumentError("segment_ids should be a vector.")
    if indices.size != ids.size:
        raise InvalidArgumentError("segment_ids and indices should have same size.")
    found = sorted_count(ids)
    if count is not None and ids.size and found > count:
        raise InvalidArgumentError("segment ids must be < num_segments")
    if indices.size and not (0 <= indices.min() and indices.max() < data.shape[0]):
        bad = (indices < 0) | (indices >= data.shape[0])
        at = int(np.argmax(bad))
        raise InvalidArgumentError(f"Bad: indices[{at}] == {indices[at]} out of range [0, {data.shape[0]})")
    segments = found if count is None else count
    if data.ndim > 1 and data.dtype == widen(data[:0]).dtype:
        total = sum_sorted(data, indices, ids, segments)
    else:
        total = reduce_sorted(np.add, widen(data.take(indices, 0)), ids, segments, 0)
    factors = _factors(scale, sorted_group_sizes(ids, segments))
    if factors is not None:
        total = total * per_row(factors, total).astype(total.dtype)
    return narrow(total, data.dtype)


def _forward(scale: str) -> Any:
    return lambda data, indices, segment_ids: _selected(data, indices, segment_ids, None, scale)


def _forward_counted(scale: str) -> Any:
    def kernel(data: Any, indices: Any, segment_ids: Any, num_segments: Any) -> Any:
        if num_segments.ndim:
            raise InvalidArgumentError("num_segments should be a scalar.")
        count = int(num_segments)
        if count < 0:
            raise InvalidArgumentError("segment ids must be >= 0")
        return _selected(data, indices, segment_ids, count, scale)

    return kernel


def _check_vectors(c: Any) -> None:
    merge_dims(with_rank(c, 1, 1), with_rank(c, 2, 1))


def forward_shape(c: Any) -> Dims:
    data = with_rank_at_least(c, 0, 1)
    _check_vectors(c)
    return None if data is None else (None, *data[1:])


def counted_shape(c: Any) -> Dims:
    data = with_rank_at_least(c, 0, 1)
    _check_vectors(c)
    count = c.const(3)
    if c.dims(3) not in (None, ()):
        raise ValueError(f"Shape must be rank 0 but is rank {len(c.dims(3))}")
    if count is not None and int(count) < 0:
        raise ValueError("Cannot specify a negative value for num_segments")
    return None if data is None else (None if count is None else int(count), *data[1:])


def _gradient(kind: str, inputs: int) -> Any:
    """dy spread over the rows it came from; IndexedSlices if the op asks for sparse gradients."""

    def rule(g: Any, op: Any, dy: Any) -> list[Any]:
        shape = g.Shape(op.data)
        rows = g.StridedSlice(shape, *(np.array([n], np.int32) for n in (0, 1, 1)), shrink_axis_mask=1)
        rest = [None] * (inputs - 1)
        if op.attr("sparse_gradient"):
            values, unique = getattr(g, f"SparseSegment{kind}GradV2")(dy, op.indices, op.segment_ids, rows)
            return [IndexedSlices(values, unique, shape), *rest]
        return [getattr(g, f"SparseSegment{kind}Grad")(dy, op.indices, op.segment_ids, rows), *rest]

    return rule


def sum_grad(inputs: int) -> Any:
    sparse = _gradient("Sum", inputs)

    def rule(g: Any, op: Any, dy: Any) -> list[Any]:
        if op.attr("sparse_gradient"):
            return sparse(g, op, dy)
        rows = g.StridedSlice(g.Shape(op.data), *(np.array([n], np.int32) for n in (0, 1, 1)), shrink_axis_mask=1)
        return [g.UnsortedSegmentSum(g.GatherV2(dy, op.segment_ids, np.int32(0)), op.indices, rows)] + [None] * (inputs - 1)

    return rule


def _some_indices(**more: Any) -> list[dict[str, Any]]:
    return [
        dict(data=normal(4, 2), indices=arr([0, 2, 3], np.int32), segment_ids=arr([0, 0, 2], np.int32), **more),
        dict(data=ints(4, 2, 2, lo=1, hi=9), indices=arr([3, 3, 0], np.int64), segment_ids=arr([0, 1, 1], np.int64), **more),
        dict(data=normal(4, 2), indices=empty(0, dtype=np.int32), segment_ids=empty(0, dtype=np.int32), **more),
    ]


def _bad_indices(**more: Any) -> list[Any]:
    ids = arr([0, 0, 2], np.int32)
    return [
        (dict(data=normal(4, 2), indices=arr([0, 2, 4], np.int32), segment_ids=ids, **more), InvalidArgumentError, r"indices\[2\] == 4 out of range \[0, 4\)"),
        (dict(data=normal(4, 2), indices=ids, segment_ids=arr([0, 2, 0], np.int32), **more), InvalidArgumentError, "segment ids are not increasing"),
        (dict(data=normal(4, 2), indices=arr([0, 2], np.int32), segment_ids=ids, **more), InvalidArgumentError, "segment_ids and indices should have same size."),
    ]  # fmt: skip


_TYPES = "Tidx: type in INDEX = int32;{} Tsegmentids: type in INDEX = int32; sparse_gradient: bool = false]"
for _kind, _scale, _of in (("Sum", "", "REALS"), ("Mean", SHARE, "FLOATS"), ("SqrtN", ROOT, "FLOATS")):
    op(f"SparseSegment{_kind}(data: T, indices: Tidx, segment_ids: Tsegmentids) -> (output: T) [T: type in {_of}; {_TYPES.format('')}",
       shape=forward_shape, numpy=_forward(_scale), grad=sum_grad(3) if _kind == "Sum" else _gradient(_kind, 3), samples=_some_indices(), errors=_bad_indices())
    op(f"SparseSegment{_kind}WithNumSegments(data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: Tnumsegments) -> (output: T)"
       f" [T: type in {_of}; {_TYPES.format(' Tnumsegments: type in INDEX = int32;')}",
       shape=counted_shape, numpy=_forward_counted(_scale), grad=sum_grad(4) if _kind == "Sum" else _gradient(_kind, 4), samples=_some_indices(num_segments=4),
       errors=[*_bad_indices(num_segments=4), (dict(data=normal(4, 2), indices=arr([0], np.int32), segment_ids=arr([2], np.int32), num_segments=2), InvalidArgumentError,
                                               "segment ids must be < num_segments")])  # fmt: skip

# -- backward ---------------------------------------------------------------------------------------------------------


def _scattered(grad: Any, indices: Any, ids: Any, rows: Any, scale: str) -> tuple[np.ndarray, np.ndarray, int]:
    """(scaled gradient rows, their target rows, number of target rows), checked."""
    if np.ndim(rows):
        raise InvalidArgumentError("output_dim0 should be a scalar.")
    count = int(rows)
    if indices.size != ids.size:
        raise InvalidArgumentError("segment_ids and indices should have same size.")
    if ids.size and (int(ids.max()) >= grad.shape[0] or int(ids.min()) < 0):
        raise InvalidArgumentError("Invalid number of segments" if int(ids.min()) >= 0 else f"Segment id {ids.min()} out of range [0, {grad.shape[0]}).")
    if indices.size and not (0 <= indices.min() and indices.max() < count):
        bad = (indices < 0) | (indices >= count)
        raise InvalidArgumentError(f"Index {indices[bad][0]} out of range [0, {count}).")
    wide = widen(grad)
    factors = _factors(scale, group_sizes(ids, grad.shape[0]))
    if factors is not None:
        wide = wide * per_row(factors, wide).astype(wide.dtype)
    return wide.take(ids, 0), indices, count


def _backward(scale: str) -> Any:
    def kernel(grad: Any, indices: Any, segment_ids: Any, output_dim0: Any) -> Any:
        rows, targets, count = _scattered(grad, indices, segment_ids, output_dim0, scale)
        return narrow(reduce_rows(np.add, rows, targets, count, 0), grad.dtype)

    return kernel


def _backward_unique(scale: str) -> Any:
    def kernel(grad: Any, indices: Any, segment_ids: Any, dense_output_dim0: Any) -> list[Any]:
        rows, targets, _ = _scattered(grad, indices, segment_ids, dense_output_dim0, scale)
        unique, position = np.unique(targets, return_inverse=True)
        return [narrow(reduce_rows(np.add, rows, position, unique.size, 0), grad.dtype), unique]

    return kernel


def backward_shape(c: Any) -> Dims:
    grad = with_rank_at_least(c, 0, 1)
    _check_vectors(c)
    rows = c.const(3)
    return None if grad is None else (None if rows is None else int(rows), *grad[1:])


def backward_unique_shape(c: Any) -> list[Dims]:
    grad = with_rank_at_least(c, 0, 1)
    _check_vectors(c)
    return [None if grad is None else (None, *grad[1:]), (None,)]


_GRADS = [
    dict(grad=normal(2, 2), indices=arr([0, 2, 2], np.int32), segment_ids=arr([0, 0, 1], np.int32)),
    dict(grad=normal(2, 2), indices=empty(0, dtype=np.int32), segment_ids=empty(0, dtype=np.int32)),
]
_GRAD_ERRORS = [
    (dict(grad=normal(2, 2), indices=arr([0, 2, 5], np.int32), segment_ids=arr([0, 0, 1], np.int32), output_dim0=4), InvalidArgumentError, r"Index 5 out of range \[0, 4\)"),
    (dict(grad=normal(2, 2), indices=arr([0, 2, 2], np.int32), segment_ids=arr([0, 0, 2], np.int32), output_dim0=4), InvalidArgumentError, "Invalid number of segments"),
]  # fmt: skip
_GRAD_TYPES = "[T: type in FLOATS; Tidx: type in INDEX = int32; Tsegmentids: type in INDEX = int32]"
for _kind, _scale in (("Sum", ""), ("Mean", SHARE), ("SqrtN", ROOT)):
    op(f"SparseSegment{_kind}Grad(grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32) -> (output: T) {_GRAD_TYPES}",
       shape=backward_shape, numpy=_backward(_scale), samples=[{**_GRADS[0], "output_dim0": 4}], errors=_GRAD_ERRORS)
    op(f"SparseSegment{_kind}GradV2(grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: int32)"
       f" -> (output: T, sorted_unique_indices: Tidx) {_GRAD_TYPES}",
       shape=backward_unique_shape, numpy=_backward_unique(_scale), samples=[{**s, "dense_output_dim0": 4} for s in _GRADS])  # fmt: skip
