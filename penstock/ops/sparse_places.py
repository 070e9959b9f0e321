"""Sparse tensors in coordinate form: new places for the entries, empty rows, and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.graph.opdef import MISSING
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, unknown
from penstock.ops.kernels.rows import put_rows
from penstock.ops.kernels.sparse import (
    add_at,
    are_inside,
    check_sparse,
    coordinates,
    group_max,
    group_sum,
    keys_of,
    reduction,
    row_major,
)
from penstock.ops.samples import arr, empty, normal, strings
from penstock.ops.sparse import ROWS, length, sparse_result
from penstock.shapes import format_dims

# -- places -----------------------------------------------------------------------------------------------------------


def reorder_kernel(indices: Any, values: Any, shape: Any) -> list:
    check_sparse(indices, values, shape)
    order = row_major(indices, shape)
    return [indices, values] if order is None else [indices.take(order, 0), values.take(order)]


def reorder_grad(g: Any, op: Any, _: Any, dvalues: Any) -> list:
    numbers = g.Range(0, g.Size(op.input_values), 1)
    order = g.SparseReorder(op.input_indices, numbers, op.input_shape)[1]
    return [None, g.GatherV2(dvalues, g.InvertPermutation(order), 0), None]


op("SparseReorder(input_indices: int64, input_values: T, input_shape: int64) -> (output_indices: int64, output_values: T) [T: type]",
   shape=lambda c: [c.dims(0), c.dims(1)], numpy=reorder_kernel, grad=reorder_grad,
   samples=[
       dict(input_indices=arr([[1, 2], [0, 1], [1, 0]]), input_values=normal(3), input_shape=arr([2, 3])),
       dict(input_indices=empty(0, 2), input_values=empty(0), input_shape=arr([2, 3])),
       dict(input_indices=arr([[1], [0]]), input_values=strings(["a", "b"]), input_shape=arr([2])),
   ],
   errors=[
       (dict(input_indices=[[1, 0], [0, 1]], input_values=[1.0], input_shape=[2, 3]), InvalidArgumentError,
        "Number of elements in indices \\(2\\) and values \\(1\\) do not match"),
   ])  # fmt: skip


def reshape_kernel(indices: Any, shape: np.ndarray, new_shape: np.ndarray) -> list:
    if indices.ndim != 2:
        raise InvalidArgumentError(f"Input indices should be a matrix but received shape {format_dims(indices.shape)}")
    for name, value in (("Input", shape), ("Target", new_shape)):
        if value.ndim != 1:
            raise InvalidArgumentError(f"{name} shape should be a vector but received shape {format_dims(value.shape)}")
    sizes, wanted = shape.tolist(), new_shape.tolist()
    total = int(np.prod(shape)) if sizes else 1
    missing = [i for i, d in enumerate(wanted) if d == -1]
    if len(missing) > 1:
        raise InvalidArgumentError(f"only one output dimension may be -1, not both {missing[0]} and {missing[1]}")
    for i, d in enumerate(wanted):
        if d < -1:
            raise InvalidArgumentError(f"size {i} must be non-negative, not {d}")
    known = int(np.prod([d for d in wanted if d != -1]))
    given = format_dims(tuple(sizes))
    if missing:
        if known == 0:
            raise InvalidArgumentError(
                "reshape cannot infer the missing input size for an empty tensor unless all specified input sizes are non-zero"
            )
        shown = format_dims(tuple(total // known if d == -1 else d for d in wanted))
        if total % known:
            raise InvalidArgumentError(
                f"Input to reshape is a SparseTensor with {total} dense values, but the requested shape requires a multiple of {known}. "
                f"input_shape={given} output_shape={shown}"
            )
        wanted[missing[0]] = total // known
        known = total
    if known != total:
        raise InvalidArgumentError(
            f"Input to reshape is a tensor with {total} dense values, but the requested shape has {known}. "
            f"input_shape={given} output_shape={format_dims(tuple(wanted))}"
        )
    return [coordinates(keys_of(indices, sizes), wanted), np.array(wanted, np.int64)]


op("SparseReshape(input_indices: int64, input_shape: int64, new_shape: int64) -> (output_indices: int64, output_shape: int64)",
   shape=lambda c: [(length(c, 0), length(c, 2)), (length(c, 2),)], numpy=reshape_kernel,
   samples=[
       dict(input_indices=ROWS, input_shape=arr([2, 3]), new_shape=arr([3, -1])),
       dict(input_indices=ROWS, input_shape=arr([2, 3]), new_shape=arr([6])),
       dict(input_indices=empty(0, 2), input_shape=arr([2, 3]), new_shape=arr([1, 6])),
   ],
   errors=[
       (dict(input_indices=[[0, 0]], input_shape=[2, 3], new_shape=[4, 2]), InvalidArgumentError,
        "Input to reshape is a tensor with 6 dense values, but the requested shape has 8"),
   ])  # fmt: skip


def concat_kernel(indices: list, values: list, shapes: list, *, concat_dim: int) -> list:
    for i, v, s in zip(indices, values, shapes, strict=True):
        check_sparse(i, v, s)
    first = shapes[0].tolist()
    rank = len(first)
    if not -rank <= concat_dim < rank:
        raise InvalidArgumentError(f"Concat dimension must be in range [{-rank}, {rank}), got {concat_dim}")
    axis = concat_dim % rank
    offset, moved = 0, []
    for n, (part, shape) in enumerate(zip(indices, shapes, strict=True)):
        if shape.size != rank:
            raise InvalidArgumentError(f"Ranks of all input tensors must match: expected {rank} but got {shape.size} at position {n}")
        for d in range(rank):
            if d != axis and shape[d] != first[d]:
                raise InvalidArgumentError(f"Input shapes must match: expected {first[d]} for dimension {d} but got {shape[d]} at position {n}")
        shifted = np.array(part)
        shifted[:, axis] += offset
        moved.append(shifted)
        offset += int(shape[axis])
    result = np.array(first, np.int64)
    result[axis] = offset
    joined, all_values = np.concatenate(moved), np.concatenate(values)
    order = row_major(joined, result)
    return [joined, all_values, result] if order is None else [joined.take(order, 0), all_values.take(order), result]


def concat_shape(c: Any) -> list[Dims]:
    n = c.attrs["N"]
    counts = [length(c, i) for i in range(n)]
    total = None if None in counts else sum(counts)  # type: ignore[arg-type]
    rank = length(c, 2 * n)
    return [(total, rank), (total,), (rank,)]


op("SparseConcat(indices: N*int64, values: N*T, shapes: N*int64) -> (output_indices: int64, output_values: T, output_shape: int64)"
   " [concat_dim: int; N: int >= 2; T: type]",
   shape=concat_shape, numpy=concat_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[
       dict(indices=[ROWS, arr([[0, 0]])], values=[normal(3), normal(1)], shapes=[arr([2, 3]), arr([2, 1])], concat_dim=1),
       dict(indices=[ROWS, arr([[0, 0]])], values=[normal(3), normal(1)], shapes=[arr([2, 3]), arr([1, 3])], concat_dim=-2),
   ],
   errors=[
       (dict(indices=[[[0, 0]], [[0, 0]]], values=[[1.0], [2.0]], shapes=[[2, 3], [1, 4]], concat_dim=0), InvalidArgumentError,
        "Input shapes must match: expected 3 for dimension 1 but got 4 at position 1"),
   ])  # fmt: skip


def cut(indices: np.ndarray, values: np.ndarray, shape: Any, start: Any, size: Any) -> list:
    """The entries inside the box [start, start + size), in its own coordinates."""
    start, size = np.asarray(start, np.int64), np.asarray(size, np.int64)
    inside = np.ones(len(indices), bool)
    for k, (low, count) in enumerate(zip(start.tolist(), size.tolist(), strict=True)):
        column = indices[:, k]
        inside &= column >= low
        inside &= column < low + count
    keep = np.flatnonzero(inside)
    result = np.clip(np.minimum(np.asarray(shape) - start, size), 0, None)
    return [indices.take(keep, 0) - start, values.take(keep), result.astype(np.int64)]


def slice_kernel(indices: Any, values: Any, shape: Any, start: Any, size: Any) -> list:
    check_sparse(indices, values, shape)
    for name, value in (("start", start), ("size", size)):
        if value.shape != shape.shape:
            raise InvalidArgumentError(f"Expected {name} to be a vector of length {shape.size} but got length {value.size}")
    return cut(indices, values, shape, start, size)


def slice_grad(g: Any, op: Any, _: Any, dvalues: Any, __: Any) -> list:
    return [None, g.SparseSliceGrad(dvalues, op.indices, op.start, op.output_indices), None, None, None]


op("SparseSlice(indices: int64, values: T, shape: int64, start: int64, size: int64) ->"
   " (output_indices: int64, output_values: T, output_shape: int64) [T: type]",
   shape=sparse_result(2), numpy=slice_kernel, grad=slice_grad,
   samples=[
       dict(indices=ROWS, values=normal(3), shape=arr([2, 3]), start=arr([0, 1]), size=arr([2, 5])),
       dict(indices=ROWS, values=normal(3), shape=arr([2, 3]), start=arr([5, 0]), size=arr([1, 2])),
       dict(indices=arr([[1]]), values=strings(["a"]), shape=arr([3]), start=arr([1]), size=arr([1])),
   ])  # fmt: skip


def slice_grad_kernel(dy: Any, indices: Any, start: Any, output: Any) -> np.ndarray:
    result = np.zeros(len(indices), dy.dtype)
    at = {tuple(row): i for i, row in enumerate((output + start).tolist())}
    for i, row in enumerate(indices.tolist()):
        found = at.get(tuple(row))
        if found is not None:
            result[i] = dy[found]
    return result


op("SparseSliceGrad(backprop_val_grad: T, input_indices: int64, input_start: int64, output_indices: int64) -> (val_grad: T)"
   " [T: type in NUMBERS]",
   shape=lambda c: (length(c, 1),), numpy=slice_grad_kernel,
   samples=[dict(backprop_val_grad=normal(2), input_indices=ROWS, input_start=arr([0, 1]), output_indices=arr([[0, 0], [1, 1]]))])  # fmt: skip


def split_kernel(axis: Any, indices: Any, values: Any, shape: Any, *, num_split: int) -> list:
    check_sparse(indices, values, shape)
    rank, d = shape.size, int(axis)
    if not -rank <= d < rank:
        raise InvalidArgumentError(f"Input axis should be in range [{-rank}, {rank}), got {d}")
    d %= rank
    size = int(shape[d])
    if not 1 <= num_split <= size:
        raise InvalidArgumentError(f"Input num_split should be between 1 and the splitting dimension size ({size}), got {num_split}")
    # The first pieces are one longer where the size does not divide evenly.
    lengths = [size // num_split + (i < size % num_split) for i in range(num_split)]
    others = [k for k in range(rank) if k != d]
    if not all(are_inside(indices[:, k : k + 1], [int(shape[k])]) for k in others):
        inside = np.logical_and.reduce([(indices[:, k] >= 0) & (indices[:, k] < shape[k]) for k in others])
        indices, values = indices[inside], values[inside]
    column = np.ascontiguousarray(indices[:, d])
    all_indices, all_values, shapes, start = [], [], [], 0
    for extent in lengths:
        keep = np.flatnonzero((column - start).view(np.uint64) < np.uint64(extent))
        piece = indices.take(keep, 0)
        if start:
            piece[:, d] -= start
        all_indices.append(piece)
        all_values.append(values.take(keep))
        shapes.append(np.maximum(shape, 0))
        shapes[-1][d] = extent
        start += extent
    return [*all_indices, *all_values, *shapes]


def split_shape(c: Any) -> list[Dims]:
    n, rank = c.attrs["num_split"], length(c, 3)
    return [(None, rank)] * n + [(None,)] * n + [(rank,)] * n


op("SparseSplit(split_dim: int64, indices: int64, values: T, shape: int64) -> (output_indices: num_split*int64, output_values: num_split*T,"
   " output_shape: num_split*int64) [num_split: int >= 1; T: type]",
   shape=split_shape, numpy=split_kernel,
   samples=[
       dict(split_dim=arr(1), indices=ROWS, values=normal(3), shape=arr([2, 3]), num_split=2),
       dict(split_dim=arr(0), indices=ROWS, values=normal(3), shape=arr([2, 3]), num_split=2),
   ],
   errors=[
       (dict(split_dim=4, indices=[[0, 0]], values=[1.0], shape=[2, 3], num_split=1), InvalidArgumentError, "Input axis should be in range \\[-2, 2\\), got 4"),
   ])  # fmt: skip


def fill_empty_rows_kernel(indices: Any, values: Any, shape: Any, default: Any, *, T: DType) -> list:
    check_sparse(indices, values, shape)
    if default.ndim:
        raise InvalidArgumentError(f"default_value must be a scalar, saw: {format_dims(default.shape)}")
    rows, n = int(shape[0]), len(indices)
    if rows == 0 and n:
        raise InvalidArgumentError(f"Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = {n}")
    row = np.ascontiguousarray(indices[:, 0])
    if n and (int(row.min()) < 0 or int(row.max()) >= rows):
        i = int(np.flatnonzero((row < 0) | (row >= rows))[0])
        raise InvalidArgumentError(f"indices({i}, 0) is invalid: {row[i]} " + ("< 0" if row[i] < 0 else f">= {rows}"))
    counts = np.bincount(row, minlength=rows)
    is_empty = counts == 0
    in_order = not (row[1:] < row[:-1]).any()
    if in_order and not is_empty.any():
        return [indices.copy(), values.copy(), is_empty, np.arange(n)]
    # Every entry moves behind the empty rows before its own; if they are not in the order of their rows, behind the entries of those, too.
    before = np.cumsum(is_empty)
    missing = np.flatnonzero(is_empty)
    back = np.arange(n)
    if not in_order:
        back[np.argsort(row, kind="stable")] = np.arange(n)
    back += before.take(row)
    new = np.cumsum(counts).take(missing) + before.take(missing) - 1
    places, all_values = np.zeros((n + len(missing), indices.shape[1]), np.int64), np.empty(n + len(missing), values.dtype)
    put_rows(places, back, indices)
    all_values[back] = values
    places[new, 0], all_values[new] = missing, np.asarray(default)[()]
    return [places, all_values, is_empty, back]


def fill_empty_rows_grad(g: Any, op: Any, _: Any, dvalues: Any, *rest: Any) -> list:
    values, default = g.SparseFillEmptyRowsGrad(op.reverse_index_map, dvalues)
    return [None, values, None, default]


def fill_empty_rows_shape(c: Any) -> list[Dims]:
    sizes = c.const_dims(2)
    return [(None, length(c, 2)), (None,), (sizes[0] if sizes else None,), (length(c, 0),)]


op("SparseFillEmptyRows(indices: int64, values: T, dense_shape: int64, default_value: T) -> (output_indices: int64, output_values: T,"
   " empty_row_indicator: bool, reverse_index_map: int64) [T: type]",
   shape=fill_empty_rows_shape, numpy=fill_empty_rows_kernel, grad=fill_empty_rows_grad,
   samples=[
       dict(indices=arr([[2, 0], [0, 1], [2, 1]]), values=normal(3), dense_shape=arr([4, 3]), default_value=arr(1)),
       dict(indices=empty(0, 2), values=empty(0), dense_shape=arr([2, 3]), default_value=arr(1)),
       dict(indices=empty(0, 2), values=empty(0), dense_shape=arr([0, 3]), default_value=arr(1)),
       dict(indices=arr([[1, 0]]), values=strings(["a"]), dense_shape=arr([2, 1]), default_value=strings("z")),
   ],
   errors=[
       (dict(indices=[[5, 0]], values=[1.0], dense_shape=[2, 3], default_value=1.0), InvalidArgumentError, "indices\\(0, 0\\) is invalid: 5 >= 2"),
   ])  # fmt: skip


def fill_empty_rows_grad_kernel(back: Any, dy: Any) -> list:
    if back.size and (back.min() < 0 or back.max() >= len(dy)):
        raise InvalidArgumentError(f"Elements in reverse index must be in [0, {len(dy)})")
    rest = np.ones(len(dy), bool)
    rest[back] = False
    return [dy[back], dy.dtype.type(np.sum(dy[rest], dtype=dy.dtype))]


op("SparseFillEmptyRowsGrad(reverse_index_map: int64, grad_values: T) -> (d_values: T, d_default_value: T) [T: type]",
   shape=lambda c: [(length(c, 0),), ()], numpy=fill_empty_rows_grad_kernel,
   samples=[dict(reverse_index_map=arr([0, 2]), grad_values=normal(4))])  # fmt: skip

# -- reductions -------------------------------------------------------------------------------------------------------


def _reduce(largest: bool) -> Any:
    def kernel(indices: Any, values: Any, shape: Any, axes: Any, *, keep_dims: bool) -> np.ndarray:
        check_sparse(indices, values, shape)
        sizes = shape.tolist()
        gone, stay = reduction(axes, sizes)
        kept = [sizes[i] for i in stay]
        keys = keys_of(indices[:, stay], kept)
        result = np.zeros(int(np.prod(kept)), values.dtype)
        if largest:
            found, top = group_max(keys, values)
            result[found] = top
        else:
            add_at(result, keys, values)
        return result.reshape([1 if i in gone else d for i, d in enumerate(sizes)] if keep_dims else kept)

    return kernel


def _reduce_sparse(largest: bool) -> Any:
    def kernel(indices: Any, values: Any, shape: Any, axes: Any, *, keep_dims: bool) -> list:
        check_sparse(indices, values, shape)
        sizes = shape.tolist()
        gone, stay = reduction(axes, sizes)
        kept = [sizes[i] for i in stay]
        found, totals = (group_max if largest else group_sum)(keys_of(indices[:, stay], kept), values)
        out = [1 if i in gone else d for i, d in enumerate(sizes)] if keep_dims else kept
        return [coordinates(found, out), totals, np.array(out, np.int64)]

    return kernel


def reduce_shape(c: Any) -> Dims:
    sizes, axes = c.const_dims(2), c.const(3)
    if sizes is None or axes is None:
        return None
    gone = [a % len(sizes) for a in np.ravel(axes).tolist() if -len(sizes) <= a < len(sizes)]
    if c.attrs["keep_dims"]:
        return tuple(1 if i in gone else d for i, d in enumerate(sizes))
    return tuple(d for i, d in enumerate(sizes) if i not in gone)


def reduce_sum_grad(g: Any, op: Any, dy: Any) -> list:
    shape = op.input_shape
    rank = g.Size(shape)
    axes = g.FloorMod(g.AddV2(op.reduction_axes, rank), rank)
    axes = g.Reshape(axes, [-1])
    ones = g.Fill(g.Shape(axes), g.const(1, "int64"))
    kept = g.DynamicStitch([g.Range(0, rank, 1), axes], [shape, ones])
    return [None, g.GatherNd(g.Reshape(dy, kept), g.FloorDiv(op.input_indices, g.FloorDiv(shape, kept))), None, None]


_REDUCE_SAMPLES = [
    dict(input_indices=ROWS, input_values=normal(3), input_shape=arr([2, 3]), reduction_axes=arr([1])),
    dict(input_indices=ROWS, input_values=normal(3), input_shape=arr([2, 3]), reduction_axes=arr([0]), keep_dims=True),
    dict(input_indices=ROWS, input_values=normal(3), input_shape=arr([2, 3]), reduction_axes=arr([-1, 0])),
]
_REDUCE_INPUTS = "(input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32)"

for _name, _types in (("Sum", "NUMBERS"), ("Max", "REALS")):
    op(f"SparseReduce{_name}{_REDUCE_INPUTS} -> (output: T) [keep_dims: bool = false; T: type in {_types}]",
       shape=reduce_shape, numpy=_reduce(_name == "Max"), samples=_REDUCE_SAMPLES,
       grad=reduce_sum_grad if _name == "Sum" else MISSING,
       errors=[
           (dict(input_indices=[[0, 0]], input_values=[1.0], input_shape=[2, 3], reduction_axes=[5]), InvalidArgumentError,
            "Invalid reduction dimension 5, for input with 2 dimensions."),
       ])  # fmt: skip
    op(f"SparseReduce{_name}Sparse{_REDUCE_INPUTS} -> (output_indices: int64, output_values: T, output_shape: int64)"
       f" [keep_dims: bool = false; T: type in {_types}]",
       shape=unknown, numpy=_reduce_sparse(_name == "Max"), samples=_REDUCE_SAMPLES)  # fmt: skip
