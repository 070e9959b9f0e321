"""Gathering rows and elements by index, scattering them, and partitions of both kinds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError, UnimplementedError
from penstock.graph.composite import IndexedSlices
from penstock.graph.constant import known_value
from penstock.graph.ir import Dims, Operation
from penstock.ops.constant import blank
from penstock.ops.declare import op, with_rank_at_least
from penstock.ops.kernels.rows import check_indices, nd_rows, scatter_nd
from penstock.ops.native.choosing import partitioned
from penstock.ops.native.rows import can_fold, fold_until
from penstock.ops.samples import arr, empty, ints, normal, program, strings
from penstock.shapes import format_dims, merge_dims

# -- Gather -----------------------------------------------------------------------------------------------------------


FEW = 64
"""Indices up to which Python finds the smallest and the largest sooner than NumPy."""


def take(params: Any, indices: Any, axis: int) -> np.ndarray:
    """params[..., indices, ...] along `axis`; InvalidArgumentError for the first index that names nothing."""
    limit = params.shape[axis]
    if indices.dtype == np.int32 and indices.__class__ is np.ndarray and limit and params.dtype != object:
        try:  # read without a sign, negative ones are too large as well, and NumPy looks at them anyway
            return np.asarray(params.take(indices.view(np.uint32), axis))
        except IndexError:  # which the rest words
            pass
    if indices.size > FEW:
        lowest, highest = indices.min(), indices.max()
    else:
        numbers = indices.ravel().tolist() or [0]
        lowest, highest = min(numbers), max(numbers)
    if indices.size and (lowest < 0 or highest >= limit):
        check_indices(indices, limit)
    if limit == 0:  # NumPy refuses to take from an empty axis even where nothing is taken
        return np.empty(params.shape[:axis] + indices.shape + params.shape[axis + 1 :], params.dtype)
    return np.asarray(params.take(indices, axis)) if params.dtype != object else _take_objects(params, indices, axis)


def _take_objects(params: np.ndarray, indices: Any, axis: int) -> np.ndarray:
    return params[(*(slice(None),) * axis, np.asarray(indices), ...)]


def gather_kernel(params: Any, indices: Any) -> np.ndarray:
    if params.ndim == 0:
        raise InvalidArgumentError("params must be at least 1 dimensional")
    return take(params, indices, 0)


def gather_v2_kernel(params: Any, indices: Any, axis: Any, *, batch_dims: int) -> np.ndarray:
    if axis.ndim:
        raise InvalidArgumentError("axis must be scalar")
    if params.ndim == 0:
        raise InvalidArgumentError("params must be at least 1 dimensional")
    a, rank = int(axis), params.ndim
    least = -a if a < 0 else a + 1
    if rank < least:
        raise InvalidArgumentError(f"Shape must be at least rank {least} but is rank {rank}")
    a %= rank
    if not batch_dims:
        return take(params, indices, a)
    if not -indices.ndim <= batch_dims <= indices.ndim:
        raise InvalidArgumentError(f"Expected batch_dims in the range [{-indices.ndim}, {indices.ndim}], but got {batch_dims}")
    b = batch_dims + indices.ndim if batch_dims < 0 else batch_dims
    if b >= rank:
        raise InvalidArgumentError(f"batch_dims ({b}) must be less than rank(params) ({rank}).")
    if a < b:
        raise InvalidArgumentError(f"batch_dims ({b}) must be less than or equal to axis ({a}).")
    for i in range(b):
        if params.shape[i] != indices.shape[i]:
            raise InvalidArgumentError(
                f"params.shape[{i}]: {params.shape[i]} should be equal to indices.shape[{i}]: {indices.shape[i]}"
            )
    check_indices(indices, params.shape[a])
    # One index array per batch dimension, and the axis itself moved behind them.
    moved = np.moveaxis(params, a, b)
    inner = indices.ndim - b
    batch = [
        np.arange(n).reshape((n,) + (1,) * (indices.ndim - 1 - i)) for i, n in enumerate(indices.shape[:b])
    ]
    picked = moved[(*batch, indices, ...)]
    # picked: batch + inner indices + params[b:a] + params[a+1:]; the middle part belongs in front of the indices.
    middle = list(range(indices.ndim, indices.ndim + a - b))
    order = [*range(b), *middle, *range(b, b + inner), *range(indices.ndim + a - b, picked.ndim)]
    return picked.transpose(order)


def gather_shape(c: Any) -> Dims:
    params, indices = with_rank_at_least(c, 0, 1), c.dims(1)
    return None if params is None or indices is None else indices + params[1:]


def gather_v2_shape(c: Any) -> Dims:
    params, indices, axis, batch = with_rank_at_least(c, 0, 1), c.dims(1), c.const(2), c.attrs["batch_dims"]
    if c.dims(2) not in (None, ()):
        raise ValueError(f"Shape must be rank 0 but is rank {len(c.dims(2))}")
    if axis is None:
        if params is None or indices is None:
            return None
        return (None,) * (len(params) + len(indices) - 1 - (batch % len(indices) if batch < 0 else batch))
    axis = int(axis)
    least = -axis if axis < 0 else axis + 1
    if params is not None and len(params) < least:
        raise ValueError(f"Shape must be at least rank {least} but is rank {len(params)}")
    if indices is not None and len(indices) < abs(batch):
        raise ValueError(f"Shape must be at least rank {abs(batch)} but is rank {len(indices)}")
    if params is None or indices is None:
        return None
    axis %= len(params)
    if batch < 0:
        batch += len(indices)
    if axis < batch:
        raise ValueError(f"batch_dims ({batch}) must be less than or equal to axis ({axis}).")
    return params[:axis] + indices[batch:] + params[axis + 1 :]


def gather_grad(g: Any, op: Any, dy: Any) -> list:
    return [_row_slices(g, op.params, op.indices, dy), None]


def _row_slices(g: Any, params: Any, indices: Any, dy: Any) -> IndexedSlices:
    """The gradient of gathering rows: slices of the rows that were taken."""
    shape = g.Shape(params)
    size = g.ExpandDims(g.Size(indices), 0)
    rest = g.StridedSlice(shape, [1], [0], [1], end_mask=1)
    values = g.Reshape(dy, g.ConcatV2([size, rest], 0))
    return IndexedSlices(values, g.Reshape(indices, size), shape)


def gather_v2_grad(g: Any, op: Any, dy: Any) -> list:
    axis = known_value(op.axis)
    if axis is not None and int(axis) == 0 and op.attr("batch_dims") == 0:
        return [_row_slices(g, op.params, op.indices, dy), None, None]
    return [_dense_gather_grad(g, op, dy), None, None]


def _dense_gather_grad(g: Any, op: Any, dy: Any) -> Any:
    """Sums the gradient's slices over equal indices.

    The dimension of the indices goes to the front, behind the batch dimensions, which become part of the segment's number;
    afterwards everything goes back to its place.
    """
    rank, index_rank, shape = g.Rank(op.params), g.Rank(op.indices), g.Shape(op.params)
    batch = op.attr("batch_dims")
    batch = g.AddV2(index_rank, batch) if batch < 0 else g.const(batch, "int32")
    axis = g.FloorMod(g.Cast(op.axis, DstT="int32"), rank)
    # dy has the dimensions batch, params[batch:axis], indices[batch:], params[axis + 1:].
    inner = g.Sub(index_rank, batch)
    tail = g.AddV2(axis, inner)
    end = g.Sub(g.AddV2(rank, inner), 1)
    front = g.Transpose(
        dy, g.ConcatV2([g.Range(0, batch, 1), g.Range(axis, tail, 1), g.Range(batch, axis, 1), g.Range(tail, end, 1)], 0)
    )
    length = g.GatherV2(shape, axis, 0)
    segments, count = op.indices, length
    if op.attr("batch_dims"):
        batch_shape = g.Slice(shape, [0], g.ExpandDims(batch, 0))
        number = g.Prod(batch_shape, [0])
        offsets = g.Reshape(g.Mul(g.Range(0, number, 1), length), g.ConcatV2([batch_shape, g.Fill(g.ExpandDims(inner, 0), 1)], 0))
        segments = g.AddV2(op.indices, g.Cast(offsets, DstT=op.indices.dtype.base_dtype))
        count = g.Mul(number, length)
    summed = g.UnsortedSegmentSum(front, segments, count)
    after = g.Range(g.AddV2(axis, 1), rank, 1)
    order = g.ConcatV2([g.Range(0, batch, 1), g.ExpandDims(axis, 0), g.Range(batch, axis, 1), after], 0)
    return g.Transpose(g.Reshape(summed, g.GatherV2(shape, order, 0)), g.InvertPermutation(order))


op("Gather(params: Tparams, indices: Tindices) -> (output: Tparams)"
   " [validate_indices: bool = true; Tparams: type; Tindices: type in {int32, int64}]",
   shape=gather_shape, numpy=gather_kernel, grad=gather_grad,
   samples=[
       dict(params=normal(4, 3), indices=arr([0, 3, 0])),
       dict(params=normal(4), indices=arr([[1], [2]])),
       dict(params=normal(4, 2), indices=arr(2)),
       dict(params=empty(0, 2), indices=arr([])),
   ],
   errors=[(dict(params=[1.0, 2.0, 3.0], indices=[5]), InvalidArgumentError, "indices\\[0\\] = 5 is not in \\[0, 3\\)")])  # fmt: skip
op("GatherV2(params: Tparams, indices: Tindices, axis: Taxis) -> (output: Tparams)"
   " [batch_dims: int = 0; Tparams: type; Tindices: type in {int16, int32, int64}; Taxis: type in {int32, int64}]",
   shape=gather_v2_shape, numpy=gather_v2_kernel, grad=gather_v2_grad, host_memory=["axis"],
   samples=[
       dict(params=normal(4, 3), indices=arr([0, 3, 0]), axis=arr(0)),
       dict(params=normal(2, 3, 4), indices=arr([[1], [2]]), axis=arr(1)),
       dict(params=normal(2, 3), indices=arr(2), axis=arr(-1)),
       dict(params=normal(2, 3, 4), indices=arr([[1, 0], [2, 2]]), axis=arr(1), batch_dims=1),
       dict(params=normal(2, 3, 4), indices=arr([[1, 0, 3], [2, 2, 1]]), axis=arr(2), batch_dims=1),
       dict(params=empty(0, 2), indices=arr([]), axis=arr(0)),
       dict(params=strings(["a", "b"]), indices=arr([1, 1, 0]), axis=arr(0)),
   ],
   errors=[
       (dict(params=[1.0, 2.0, 3.0], indices=[0, 5], axis=0), InvalidArgumentError, "indices\\[1\\] = 5 is not in \\[0, 3\\)"),
       (dict(params=[1.0, 2.0, 3.0], indices=-1, axis=0), InvalidArgumentError, "indices = -1 is not in \\[0, 3\\)"),
   ])  # fmt: skip

# -- GatherNd ---------------------------------------------------------------------------------------------------------

_POLICIES = (b"", b"DEFAULT", b"ERROR", b"IGNORE")


def _check_policy(policy: bytes) -> None:
    if policy not in _POLICIES:
        raise UnimplementedError(f"bad_indices_policy {policy.decode(errors='replace')!r} is not one of DEFAULT, ERROR, IGNORE")


def gather_nd_kernel(params: Any, indices: Any, *, bad_indices_policy: bytes, node: Operation) -> np.ndarray:
    _check_policy(bad_indices_policy)
    if params.ndim == 0:
        raise InvalidArgumentError("params must be at least a vector")
    if indices.ndim == 2 and indices.shape[1] == 1 and params.size:  # rows, the usual case
        try:
            return take(params, indices[:, 0], 0)
        except InvalidArgumentError:  # which the rest words, or forgives
            pass
    if indices.ndim == 0:
        raise InvalidArgumentError("indices must be at least a vector")
    depth = indices.shape[-1]
    if depth > params.ndim:
        raise InvalidArgumentError(f"index innermost dimension length must be <= params rank; saw: {depth} vs. {params.ndim}")
    shape = indices.shape[:-1] + params.shape[depth:]
    if params.size == 0 and math.prod(indices.shape[:-1]):
        raise InvalidArgumentError(f"Requested more than 0 entries, but params is empty.  Params shape: {format_dims(params.shape)}")
    try:
        rows, good = nd_rows(params.shape, indices, bad_indices_policy, "param shape")
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{error.message}, node name: {node.name}") from None
    flat = params.reshape((-1, *params.shape[depth:])) if params.size else np.empty((1, *params.shape[depth:]), params.dtype)
    result = flat[rows] if flat.dtype == object else flat.take(rows, 0)
    if good is not None:
        result[~good] = b"" if result.dtype == object else 0
    return result.reshape(shape)


def gather_nd_shape(c: Any) -> Dims:
    params, indices = c.dims(0), with_rank_at_least(c, 1, 1)
    if params is None or indices is None or indices[-1] is None:
        return None
    if indices[-1] > len(params):
        raise ValueError(
            f"indices.shape[-1] must be <= params.rank, but saw indices shape: {format_dims(indices)} and params shape: {format_dims(params)}"
        )
    return indices[:-1] + params[indices[-1] :]


def gather_nd_grad(g: Any, op: Any, dy: Any) -> list:
    indices = op.indices
    shape = g.Shape(op.params, out_type=indices.dtype.base_dtype)
    if indices.dims is not None and len(indices.dims) == 2 and indices.dims[-1] == 1:
        return [IndexedSlices(dy, g.Squeeze(indices, squeeze_dims=[-1]), shape), None]
    return [g.ScatterNd(indices, dy, shape, bad_indices_policy=op.attr("bad_indices_policy")), None]


op("GatherNd(params: Tparams, indices: Tindices) -> (output: Tparams)"
   " [Tparams: type; Tindices: type in {int16, int32, int64}; bad_indices_policy: string = '']",
   shape=gather_nd_shape, numpy=gather_nd_kernel, grad=gather_nd_grad,
   samples=[
       dict(params=normal(3, 4), indices=arr([[0, 1], [2, 3]])),
       dict(params=normal(3, 4), indices=arr([[2], [0]])),
       dict(params=normal(2, 3, 4), indices=arr([[[0, 1]], [[1, 2]]])),
       dict(params=normal(3), indices=arr([1])),
       dict(params=normal(2, 3), indices=empty(2, 0)),
       dict(params=normal(3), indices=empty(0, 1)),
       dict(params=normal(2, 3), indices=arr([[0, 5], [1, 1]]), bad_indices_policy="IGNORE"),
       dict(params=strings(["a", "b"]), indices=arr([[1]])),
   ],
   errors=[
       (dict(params=[[1.0, 2.0]], indices=[[0, 5]]), InvalidArgumentError, "indices\\[0\\] = \\[0, 5\\] does not index into param shape \\[1,2\\]"),
       (dict(params=empty(0, 2), indices=np.zeros((3, 0), np.int32)), InvalidArgumentError, "Requested more than 0 entries, but params is empty"),
   ])  # fmt: skip

# -- Scatter ----------------------------------------------------------------------------------------------------------


def _gathered(g: Any, op: Any, dy: Any) -> Any:
    """What a scatter's updates get of the gradient."""
    return g.GatherNd(dy, op.indices, bad_indices_policy=op.attr("bad_indices_policy"))


def scatter_nd_kernel(indices: Any, updates: Any, shape: np.ndarray, *, T: DType, bad_indices_policy: bytes) -> np.ndarray:
    _check_policy(bad_indices_policy)
    if shape.ndim != 1:
        raise InvalidArgumentError("Shape must be a vector")
    sizes = shape.tolist()
    for size in sizes:
        if size < 0:
            raise InvalidArgumentError(f"Dimension {size} must be >= 0")
    result = blank(sizes, T)
    if not result.size and (indices.size or updates.size):
        raise InvalidArgumentError(f"Indices and updates specified for empty output.  indices shape: {format_dims(indices.shape)}")
    if _are_whole_rows(result, indices, updates):  # the usual case in few steps
        if fold_until(np.add, result, indices, updates) == len(indices):
            return result
        result = blank(sizes, T)  # an index is out of range
    scatter_nd(result, indices, updates, "add", bad_indices_policy)
    return result


def _are_whole_rows(result: np.ndarray, indices: Any, updates: Any) -> bool:
    """Whether the updates are rows of the result, one for each index, for a loop in machine code."""
    if indices.ndim != 2 or indices.shape[1] != 1 or result.ndim < 2 or not updates.size:
        return False
    return updates.shape == (len(indices), *result.shape[1:]) and updates.flags.c_contiguous and can_fold(np.add, result.dtype)


def check_scatter_dims(indices: Dims, updates: Dims, out: Dims) -> None:
    """ValueError, in TF's words, if the shapes of a scatter do not fit each other."""
    if indices is None or updates is None or out is None or indices[-1] is None:
        return
    depth, outer = indices[-1], len(indices) - 1
    head = f"Dimensions [0,{outer}) of indices[shape={format_dims(indices)}] = {format_dims(indices[:-1])}"
    try:
        merge_dims(indices[:-1], updates[:outer])
    except ValueError as error:
        raise ValueError(
            f"{head} must match dimensions [0,{outer}) of updates[shape={format_dims(updates)}] = {format_dims(updates[:outer])}: {error}"
        ) from None
    try:
        merge_dims(out[depth:], updates[outer:])
    except ValueError as error:
        raise ValueError(
            f"Dimensions [{depth},{len(out)}) of input[shape={format_dims(out)}] = {format_dims(out[depth:])} must match dimensions "
            f"[{outer},{len(updates)}) of updates[shape={format_dims(updates)}] = {format_dims(updates[outer:])}: {error}"
        ) from None


def scatter_nd_shape(c: Any) -> Dims:
    out = c.const_dims(2)
    check_scatter_dims(with_rank_at_least(c, 0, 1), c.dims(1), out)
    return out


op("ScatterNd(indices: Tindices, updates: T, shape: Tindices) -> (output: T)"
   " [T: type; Tindices: type in {int16, int32, int64}; bad_indices_policy: string = '']",
   shape=scatter_nd_shape, numpy=scatter_nd_kernel, host_memory=["shape"],
   grad=lambda g, op, dy: [None, _gathered(g, op, dy), None],
   samples=[
       dict(indices=arr([[1], [1], [0]]), updates=normal(3), shape=arr([4])),
       dict(indices=arr([[1], [2]]), updates=normal(2, 3), shape=arr([4, 3])),
       dict(indices=arr([[0, 1], [1, 2]]), updates=normal(2), shape=arr([2, 3])),
       dict(indices=empty(0, 1), updates=empty(0), shape=arr([2])),
       dict(indices=arr([[0], [0]]), updates=strings(["a", "b"]), shape=arr([2])),
   ],
   errors=[
       (dict(indices=[[1], [5]], updates=[1.0, 2.0], shape=[3]), InvalidArgumentError, "indices\\[1\\] = \\[5\\] does not index into shape \\[3\\]"),
   ])  # fmt: skip


def _tensor_scatter(how: str) -> Any:
    def kernel(x: Any, indices: Any, updates: Any, *, bad_indices_policy: bytes) -> np.ndarray:
        _check_policy(bad_indices_policy)
        depth = indices.shape[-1] if indices.ndim else 0
        inner = x.ndim - depth
        if inner < 0 or updates.ndim < inner:
            raise InvalidArgumentError(
                f"Inner dimensions of output shape must match inner dimensions of updates shape. Output: {format_dims(x.shape)} "
                f"updates: {format_dims(updates.shape)}"
            )
        if updates.shape[updates.ndim - inner :] != x.shape[depth:]:
            raise InvalidArgumentError(
                f"The inner {inner} dimensions of output.shape={format_dims(x.shape)} must match the inner {inner} dimensions of "
                f"updates.shape={format_dims(updates.shape)}"
            )
        result = np.array(x, order="C")  # written through flat views
        scatter_nd(result, indices, updates, how, bad_indices_policy)
        return result

    return kernel


def tensor_scatter_shape(c: Any) -> Dims:
    out = with_rank_at_least(c, 0, 1)
    check_scatter_dims(with_rank_at_least(c, 1, 1), c.dims(2), out)
    return out


def update_grad(g: Any, op: Any, dy: Any) -> list:
    picked = _gathered(g, op, dy)
    return [g.TensorScatterUpdate(dy, op.indices, g.ZerosLike(op.updates)), None, picked]


def extreme_grad(g: Any, op: Any, dy: Any) -> list:
    """Min and Max: the gradient goes to whoever gave the value, in equal shares where several did."""
    chosen = g.Equal(op.updates, g.GatherNd(op.output, op.indices))
    kept = g.Equal(op.output, op.tensor)
    chosen = g.Cast(chosen, DstT=dy.dtype.base_dtype)
    kept = g.Cast(kept, DstT=dy.dtype.base_dtype)
    shares = g.AddV2(kept, g.ScatterNd(op.indices, chosen, g.Shape(op.output, out_type=op.indices.dtype.base_dtype)))
    given = g.Mul(g.GatherNd(g.RealDiv(dy, shares), op.indices), chosen)
    return [g.RealDiv(g.Mul(dy, kept), shares), None, given]


_SCATTER_SAMPLES = [
    dict(tensor=normal(4, 3), indices=arr([[1], [3]]), updates=normal(2, 3)),
    dict(tensor=normal(4), indices=arr([[2], [0]]), updates=normal(2)),
    dict(tensor=normal(2, 3), indices=arr([[0, 1], [1, 2]]), updates=normal(2)),
    dict(tensor=normal(2), indices=empty(0, 1), updates=empty(0)),
]
_REPEATED = dict(tensor=ints(4, 3), indices=arr([[1], [3], [1]]), updates=ints(3, 3))
_SCATTER_ERRORS = [
    (dict(tensor=[1.0, 2.0], indices=[[5]], updates=[1.0]), InvalidArgumentError, "indices\\[0\\] = \\[5\\] does not index into shape \\[2\\]"),
]

op("TensorScatterUpdate(tensor: T, indices: Tindices, updates: T) -> (output: T)"
   " [T: type; Tindices: type in {int16, int32, int64, uint16}; bad_indices_policy: string = '']",
   shape=tensor_scatter_shape, numpy=_tensor_scatter("update"), grad=update_grad,
   samples=[*_SCATTER_SAMPLES, dict(tensor=strings(["a", "b"]), indices=arr([[0]]), updates=strings(["x"]))], errors=_SCATTER_ERRORS)  # fmt: skip
op("TensorScatterAdd(tensor: T, indices: Tindices, updates: T) -> (output: T)"
   " [T: type; Tindices: type in {int32, int64}; bad_indices_policy: string = '']",
   shape=tensor_scatter_shape, numpy=_tensor_scatter("add"), grad=lambda g, op, dy: [dy, None, _gathered(g, op, dy)],
   samples=[*_SCATTER_SAMPLES, _REPEATED], errors=_SCATTER_ERRORS)  # fmt: skip
op("TensorScatterSub(tensor: T, indices: Tindices, updates: T) -> (output: T)"
   " [T: type; Tindices: type in {int32, int64}; bad_indices_policy: string = '']",
   shape=tensor_scatter_shape, numpy=_tensor_scatter("sub"), grad=lambda g, op, dy: [dy, None, g.Neg(_gathered(g, op, dy))],
   samples=[*_SCATTER_SAMPLES, _REPEATED], errors=_SCATTER_ERRORS)  # fmt: skip
for _how in ("Min", "Max"):
    op(f"TensorScatter{_how}(tensor: T, indices: Tindices, updates: T) -> (output: T)"
       " [T: type; Tindices: type in {int32, int64}; bad_indices_policy: string = '']",
       shape=tensor_scatter_shape, numpy=_tensor_scatter(_how.lower()), grad=extreme_grad,
       samples=[*_SCATTER_SAMPLES, _REPEATED], errors=_SCATTER_ERRORS)  # fmt: skip
op("ScatterNdNonAliasingAdd(input: T, indices: Tindices, updates: T) -> (output: T) [T: type in {float, double, int32, uint8, int16, int8,"
   " complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, bool};"
   " Tindices: type in {int32, int64}; bad_indices_policy: string = '']",
   shape=tensor_scatter_shape, numpy=_tensor_scatter("add"), grad=lambda g, op, dy: [dy, None, _gathered(g, op, dy)],
   samples=[dict(input=normal(4, 3), indices=arr([[1], [3]]), updates=normal(2, 3))])  # fmt: skip


# -- partitions -------------------------------------------------------------------------------------------------------


def dynamic_partition_kernel(data: Any, partitions: Any, *, num_partitions: int) -> list[np.ndarray]:
    if data.shape[: partitions.ndim] != partitions.shape:
        raise InvalidArgumentError(
            f"data.shape must start with partitions.shape, got data.shape = {format_dims(data.shape)}, "
            f"partitions.shape = {format_dims(partitions.shape)}"
        )
    numbers = np.ascontiguousarray(partitions).reshape(-1)
    if numbers.size and int(numbers.view(np.uint32).max()) >= num_partitions:
        bad = (partitions < 0) | (partitions >= num_partitions)
        where = np.argwhere(bad)[0]
        place = f"[{','.join(map(str, where))}]" if partitions.ndim else ""
        raise InvalidArgumentError(f"partitions{place} = {np.asarray(partitions)[tuple(where)]} is not in [0, {num_partitions})")
    found = partitioned(data, numbers, num_partitions) if data.ndim == partitions.ndim else None
    rows = data.reshape((partitions.size, *data.shape[partitions.ndim :]))
    return [rows.take(np.flatnonzero(numbers == i), 0) for i in range(num_partitions)] if found is None else found  # a mask with no pattern takes longer


def dynamic_partition_shape(c: Any) -> list[Dims]:
    data, partitions, num = c.dims(0), c.dims(1), c.attrs["num_partitions"]
    if data is None or partitions is None:
        return [None] * num
    if len(data) < len(partitions):
        raise ValueError(f"Shape must be at least rank {len(partitions)} but is rank {len(data)}")
    merge_dims(data[: len(partitions)], partitions)
    return [(None, *data[len(partitions) :])] * num


def dynamic_partition_grad(g: Any, op: Any, *dys: Any) -> list:
    """Stitches the pieces together where they came from."""
    shape = g.Shape(op.partitions)
    positions = g.Reshape(g.Range(0, g.Size(op.partitions), 1), shape)
    places = g.DynamicPartition(positions, op.partitions, num_partitions=op.attr("num_partitions"))
    places = places if isinstance(places, list) else [places]
    stitched = g.DynamicStitch(places, list(dys))
    return [g.Reshape(stitched, g.Shape(op.data)), None]


op("DynamicPartition(data: T, partitions: int32) -> (outputs: num_partitions*T) [num_partitions: int >= 1; T: type]",
   shape=dynamic_partition_shape, numpy=dynamic_partition_kernel, grad=dynamic_partition_grad,
   samples=[
       dict(data=normal(5, 2), partitions=arr([0, 1, 0, 2, 1]), num_partitions=3),
       dict(data=normal(2, 2), partitions=arr([[0, 1], [1, 1]]), num_partitions=2),
       dict(data=normal(3), partitions=arr(1), num_partitions=2),
       dict(data=empty(0, 2), partitions=arr([]), num_partitions=2),
       dict(data=strings(["a", "b"]), partitions=arr([1, 0]), num_partitions=2),
   ],
   errors=[(dict(data=[1.0, 2.0], partitions=[0, 3], num_partitions=2), InvalidArgumentError, "partitions\\[1\\] = 3 is not in \\[0, 2\\)")])  # fmt: skip


def dynamic_stitch_kernel(indices: list[Any], data: list[Any], *, T: DType) -> np.ndarray:
    first = data[0].shape[indices[0].ndim :]
    top = -1
    for i, (index, values) in enumerate(zip(indices, data, strict=True)):
        if values.shape[: index.ndim] != index.shape:
            raise InvalidArgumentError(
                f"data[{i}].shape = {format_dims(values.shape)} does not start with indices[{i}].shape = {format_dims(index.shape)}"
            )
        if values.shape[index.ndim :] != first:
            raise InvalidArgumentError(
                f"Need data[0].shape[{indices[0].ndim}:] = data[{i}].shape[{index.ndim}:], got data[0].shape = "
                f"{format_dims(data[0].shape)}, data[{i}].shape = {format_dims(values.shape)}, indices[0].shape = "
                f"{format_dims(indices[0].shape)}, indices[{i}].shape = {format_dims(index.shape)}"
            )
        if index.size:
            if index.min() < 0:
                raise InvalidArgumentError(f"indices[{i}] is out of range")
            top = max(top, int(index.max()))
    result = blank((top + 1, *first), T)
    for index, values in zip(indices, data, strict=True):
        result[index.reshape(-1)] = values.reshape((index.size, *first))
    return result


def dynamic_stitch_shape(c: Any) -> Dims:
    n = c.attrs["N"]
    top: int | None = -1
    rest: Dims = None
    for i in range(n):
        index, data, value = c.dims(i), c.dims(n + i), c.const(i)
        if value is None:
            top = None
        elif top is not None and value.size:
            top = max(top, int(value.max()))
        if index is None or data is None:
            continue
        if len(data) < len(index):
            raise ValueError(f"Shape must be at least rank {len(index)} but is rank {len(data)}")
        merge_dims(data[: len(index)], index)
        rest = merge_dims(rest, data[len(index) :])
    return None if rest is None else (None if top is None else top + 1, *rest)


def dynamic_stitch_grad(g: Any, op: Any, dy: Any) -> list:
    return [None] * len(op.indices) + [g.GatherV2(dy, index, 0) for index in op.indices]


_STITCH_SAMPLES = [
    dict(indices=[arr([0, 2]), arr([1, 3])], data=[normal(2, 3), normal(2, 3)]),
    dict(indices=[arr(6), arr([4, 1]), arr([[5, 2], [0, 3]])], data=[normal(2), normal(2, 2), normal(2, 2, 2)]),
    dict(indices=[arr([])], data=[empty(0, 2)]),
    dict(indices=[arr([1, 0])], data=[strings(["a", "b"])]),
]

op("DynamicStitch(indices: N*int32, data: N*T) -> (merged: T) [N: int >= 1; T: type]",
   shape=dynamic_stitch_shape, numpy=dynamic_stitch_kernel, grad=dynamic_stitch_grad,
   samples=[*_STITCH_SAMPLES, dict(indices=[arr([0, 1]), arr([1, 0])], data=[normal(2), normal(2)])])  # fmt: skip
op("ParallelDynamicStitch(indices: N*int32, data: N*T) -> (merged: T) [N: int >= 1; T: type]",
   shape=dynamic_stitch_shape, numpy=dynamic_stitch_kernel, grad=dynamic_stitch_grad, samples=_STITCH_SAMPLES)  # fmt: skip


# -- rows written in place by old graphs ------------------------------------------------------------------------------


def _inplace(how: str) -> Any:
    def kernel(x: Any, i: Any, v: Any) -> np.ndarray:
        if i.ndim != 1:
            raise InvalidArgumentError(f"i must be a vector. {format_dims(i.shape)}")
        if x.ndim != v.ndim:
            raise InvalidArgumentError(f"x and v shape doesn't match (ranks differ): {format_dims(x.shape)} vs. {format_dims(v.shape)}")
        if x.shape[1:] != v.shape[1:]:
            raise InvalidArgumentError(f"x and v shape doesn't match at index 1 : {format_dims(x.shape)} vs. {format_dims(v.shape)}")
        if i.shape[0] != v.shape[0]:
            raise InvalidArgumentError(f"i and x shape doesn't match at index 0: {i.shape[0]} vs. {v.shape[0]}")
        result = np.array(x)
        for row, value in zip((i % len(result)).tolist() if len(result) else [], v, strict=False):
            if how == "update":
                result[row] = value
            else:
                result[row] = result[row] + value if how == "add" else result[row] - value
        return result

    return kernel


def _inplace_program(how: str) -> Any:
    # TF writes into its input's memory, so that the input must be one that nobody else sees.
    def build(tf: Any) -> Any:
        x = tf.fill([3, 2], tf.constant(1.5))
        return getattr(tf.raw_ops, "Inplace" + how)(x=x, i=[0, 2, 0], v=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    return program(build)


for _how in ("Update", "Add", "Sub"):
    op(f"Inplace{_how}(x: T, i: int32, v: T) -> (y: T) [T: type]",
       shape=lambda c: c.dims(0), numpy=_inplace(_how.lower()), samples=[_inplace_program(_how)])  # fmt: skip


def parallel_concat_kernel(values: list[Any]) -> np.ndarray:
    return np.concatenate(values, 0)


def parallel_concat_shape(c: Any) -> Dims:
    out = c.attrs["shape"].as_list()
    for i in range(c.n):
        dims = c.dims(i)
        if dims is None:
            continue
        if not dims or dims[0] != 1:
            raise ValueError("Size of first dimension must be 1.")
        merge_dims(dims[1:], tuple(out[1:]))
    if out[0] != c.n:
        raise ValueError(f"The first dimension of shape must be the number of values, {c.n}, but is {out[0]}")
    return tuple(out)


op("ParallelConcat(values: N*T) -> (output: T) [N: int >= 1; T: type; shape: shape]",
   shape=parallel_concat_shape, numpy=parallel_concat_kernel,
   samples=[dict(values=[normal(1, 3), normal(1, 3)], shape=[2, 3]), dict(values=[normal(1)], shape=[1])])  # fmt: skip
