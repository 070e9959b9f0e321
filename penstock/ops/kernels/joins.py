"""Concat, Pack, Split and Unpack: kernels, shape rules and the gradient of concatenation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.graph.composite import IndexedSlices
from penstock.graph.ir import Dims
from penstock.ops.native import lines
from penstock.shapes import format_dims, merge_dims

# -- concatenation ----------------------------------------------------------------------------------------------------


def concat_kernel(axis: Any, values: list[np.ndarray]) -> np.ndarray:
    return concat_v2_kernel(values, axis)


def concat_v2_kernel(values: list[np.ndarray], axis: Any) -> np.ndarray:
    if axis.size != 1:
        raise InvalidArgumentError(f"ConcatOp : Concat dim tensor should be a scalar, but got shape {format_dims(axis.shape)}")
    try:
        return _joined(values, axis.item())
    except (ValueError, TypeError):
        _explain_concat(values, axis.item())
        raise


_LARGE, _THIN = 1 << 16, 1 << 8
"""Bytes of a piece from which on, and bytes of a piece's lines up to which, `lines` copies it quicker."""


def _joined(values: list[np.ndarray], axis: int) -> np.ndarray:
    """np.concatenate, quicker for large and thin pieces."""
    first = values[0]
    axis += first.ndim if axis < 0 else 0
    if first.nbytes < _LARGE or not 0 < axis < first.ndim or first.nbytes > _THIN * math.prod(first.shape[:axis]) or first.dtype.hasobject:
        return np.concatenate(values, axis)
    before, after = first.shape[:axis], first.shape[axis + 1 :]
    for x in values:
        if x.dtype != first.dtype or x.ndim != first.ndim or x.shape[:axis] != before or x.shape[axis + 1 :] != after or x.nbytes < _LARGE:
            return np.concatenate(values, axis)
    result = np.empty((*before, sum(x.shape[axis] for x in values), *after), first.dtype)
    start, head = 0, (slice(None),) * axis
    for x in values:
        lines.copy(result[(*head, slice(start, start := start + x.shape[axis]))], x)
    return result


def _explain_concat(values: list[np.ndarray], axis: int) -> None:
    first = values[0].shape
    rank = len(first)
    if rank == 0:
        raise InvalidArgumentError("ConcatOp : Can't concatenate scalars (use tf.stack instead)")
    if not -rank <= axis < rank:
        raise InvalidArgumentError(f"ConcatOp : Expected concatenating dimensions in the range [{-rank}, {rank}), but got {axis}")
    axis %= rank
    for i, value in enumerate(values):
        versus = f"shape[0] = {format_dims(first)} vs. shape[{i}] = {format_dims(value.shape)}"
        if value.ndim != rank:
            raise InvalidArgumentError(f"ConcatOp : Ranks of all input tensors should match: {versus}")
        for d in range(rank):
            if d != axis and value.shape[d] != first[d]:
                raise InvalidArgumentError(f"ConcatOp : Dimension {d} in both shapes must be equal: {versus}")


def concat_shape(c: Any, axis_input: int, value_inputs: Iterable[int]) -> Dims:
    shapes = [c.dims(i) for i in value_inputs]
    axis = c.const(axis_input)
    if axis is None:
        rank = next((len(s) for s in shapes if s is not None), None)
        _check_ranks(shapes, rank)
        return None if rank is None else (None,) * rank
    axis = axis.item()
    least = -axis if axis < 0 else axis + 1
    known = next((s for s in shapes if s is not None), None)
    if known is None:
        return None
    rank = len(known)
    if rank == 0:
        raise ValueError("Can't concatenate scalars (use tf.stack instead)")
    if rank < least:
        raise ValueError(f"Shape must be at least rank {least} but is rank {rank}")
    _check_ranks(shapes, rank)
    axis %= rank
    before: Dims = known[:axis]
    after: Dims = known[axis + 1 :]
    total: int | None = 0
    for dims in shapes:
        if dims is None:
            total = None
            continue
        before = merge_dims(before, dims[:axis])
        after = merge_dims(after, dims[axis + 1 :])
        total = None if total is None or dims[axis] is None else total + dims[axis]  # type: ignore[operator]
    return (*before, total, *after)  # type: ignore[misc]


def _check_ranks(shapes: list[Dims], rank: int | None) -> None:
    if rank == 0:
        raise ValueError("Can't concatenate scalars (use tf.stack instead)")
    for dims in shapes:
        if dims is not None and len(dims) != rank:
            raise ValueError(f"Shape must be rank {rank} but is rank {len(dims)}")


def concat_grad(g: Any, axis: Any, values: list, dy: Any) -> list:
    """The slices of `dy` that belong to each of `values`."""
    if len(values) == 1:
        return [dy]
    if isinstance(dy, IndexedSlices):
        return _concat_grad_sparse(g, axis, values, dy)
    axis = g.FloorMod(axis, g.Rank(values[0]))
    if axis.dtype.name != "int32":
        axis = g.Cast(axis, DstT="int32")
    shapes = g.ShapeN(list(values))
    offsets = g.ConcatOffset(axis, shapes)
    return [g.Slice(dy, begin, size) for begin, size in zip(offsets, shapes, strict=True)]


def _concat_grad_sparse(g: Any, axis: Any, values: list, dy: IndexedSlices) -> list:
    from penstock.graph.constant import known_value

    found = known_value(axis)
    if found is None:
        raise ValueError("Can only compute IndexedSlices gradient with statically-known concat_dim")
    rank = next((len(v.dims) for v in values if v.dims is not None), None)
    axis = int(found)
    if axis < 0:
        if rank is None:
            raise ValueError("Can only compute IndexedSlices gradient with statically-known concat_dim")
        axis += rank
    index_type = dy.indices.dtype.base_dtype
    results = []
    if axis > 0:
        # Every row is cut along a later axis; the rows stay the same.
        shapes = g.ShapeN(list(values))
        sizes = [g.Slice(shape, [axis], [1]) for shape in shapes]
        start: Any = g.const([0], sizes[0].dtype.base_dtype)
        for shape, size in zip(shapes, sizes, strict=True):
            begin = g.ConcatV2([g.const([0] * axis, start.dtype.base_dtype), start], 0)
            length = g.ConcatV2([g.const([-1] * axis, start.dtype.base_dtype), size], 0)
            trailing = g.Sub(g.Rank(dy.values), axis + 1)
            begin = g.Pad(begin, g.Pack([g.Pack([0, trailing])]))
            length = g.ConcatV2([length, g.Fill(g.Pack([trailing]), -1)], 0)
            results.append(IndexedSlices(g.Slice(dy.values, begin, length), dy.indices, shape))
            start = g.AddV2(start, size)
        return results
    # Along the rows each input gets the slices whose indices fall into its range.
    start = g.const(0, index_type)
    for value in values:
        shape = g.Shape(value, out_type=index_type)
        end = g.AddV2(start, g.StridedSlice(shape, [0], [1], [1], shrink_axis_mask=1))
        inside = g.Where(g.LogicalAnd(g.GreaterEqual(dy.indices, start), g.Less(dy.indices, end)))
        rows = g.Squeeze(inside, squeeze_dims=[1])
        indices = g.Sub(g.GatherV2(dy.indices, rows, 0), start)
        results.append(IndexedSlices(g.GatherV2(dy.values, rows, 0), indices, shape))
        start = end
    return results


def concat_offset_kernel(axis: Any, shapes: list[np.ndarray]) -> list[np.ndarray]:
    if axis.ndim:
        raise InvalidArgumentError(f"Concat dim tensor should be a scalar integer, but got shape {format_dims(axis.shape)}")
    first = shapes[0]
    rank = first.size
    d = int(axis) + (rank if axis < 0 else 0)
    if not 0 <= d < rank:
        raise InvalidArgumentError(f"Concat dim is out of range: {int(axis)} vs. {rank}")
    offset, results = 0, []
    expected = first.tolist()
    for i, shape in enumerate(shapes):
        if shape.ndim != 1:
            raise InvalidArgumentError(f"input {i} should be a vector, but got shape {format_dims(shape.shape)}")
        if shape.size != rank:
            raise InvalidArgumentError(f"input {i} should contain {rank} elements, but got {shape.size}")
        sizes = shape.tolist()
        extent, sizes[d] = sizes[d], expected[d]
        if sizes != expected:
            raise InvalidArgumentError(
                f"All dimensions except {d} must match. Input {i} has shape [{' '.join(map(str, shape.tolist()))}] "
                f"and doesn't match input 0 with shape [{' '.join(map(str, first.tolist()))}]."
            )
        result = np.zeros(rank, first.dtype)
        result[d] = offset
        offset += extent
        results.append(result)
    return results


# -- stacking ---------------------------------------------------------------------------------------------------------


_OBJECT = np.dtype(object)


def pack_kernel(values: list[Any], *, axis: int) -> np.ndarray:
    first = values[0]
    if not isinstance(first, (np.ndarray, np.generic)):
        return _pack_variants(values)
    try:
        if first.ndim == 0 and axis in (0, -1) and first.dtype is not _OBJECT:  # of strings, NumPy would make an array of arrays
            result = np.array(values, first.dtype)
            if result.ndim == 1:
                return result
        return np.stack(values, axis)
    except ValueError:
        for i, value in enumerate(values):
            if value.shape != first.shape:
                raise InvalidArgumentError(
                    f"Shapes of all inputs must match: values[0].shape = {format_dims(first.shape)} "
                    f"!= values[{i}].shape = {format_dims(value.shape)}"
                ) from None
        rank = first.ndim + 1
        raise InvalidArgumentError(f"axis = {axis} not in [{-rank}, {rank})") from None


def _pack_variants(values: list[Any]) -> np.ndarray:
    """A vector of objects that stand for themselves, be they like arrays or not."""
    result = np.empty(len(values), object)
    for i, value in enumerate(values):
        result[i] = value
    return result


def pack_shape(c: Any) -> Dims:
    dims = c.dims(0)
    for i in range(1, c.n):
        try:
            dims = merge_dims(dims, c.dims(i))
        except ValueError as error:
            raise ValueError(f"{error}\n\tFrom merging shape {i - 1} with other shapes.") from None
    if dims is None:
        return None
    axis, rank = c.attrs["axis"], len(dims) + 1
    if not -rank <= axis < rank:
        raise ValueError(f"Invalid axis: {axis}; must be in [{-rank},{rank})")
    axis %= rank
    return (*dims[:axis], c.n, *dims[axis:])


def unpack_kernel(x: Any, *, num: int, axis: int) -> list[Any]:
    rank = x.ndim
    if not -rank <= axis < rank:
        raise InvalidArgumentError(f"axis = {axis} not in [{-rank}, {rank})")
    axis %= rank
    if x.shape[axis] != num:
        raise InvalidArgumentError(f"Input shape axis {axis} must equal {num}, got shape {format_dims(x.shape)}")
    if axis == 0:
        if x.dtype != object or (rank == 1 and num and not isinstance(x[0], bytes)):  # a variant is no array
            return list(x)
        return [x[i, ...] for i in range(num)]
    head = (slice(None),) * axis
    return [x[(*head, i, ...)] for i in range(num)]


def unpack_shape(c: Any) -> list[Dims]:
    num, axis, dims = c.attrs["num"], c.attrs["axis"], c.dims(0)
    if dims is None:
        return [None] * num
    rank = len(dims)
    if not -rank <= axis < rank:
        raise ValueError(f"Invalid axis: {axis}; must be in [{-rank},{rank})")
    axis %= rank
    if dims[axis] not in (None, num):
        raise ValueError(f"Dimension must be {num} but is {dims[axis]}")
    return [dims[:axis] + dims[axis + 1 :]] * num


# -- splitting --------------------------------------------------------------------------------------------------------


def _split_axis(x: Any, axis: Any) -> int:
    if axis.ndim and axis.size != 1:
        raise InvalidArgumentError(f"split_dim must be a scalar but has rank {axis.ndim}")
    rank, d = x.ndim, axis.item()
    if not -rank <= d < rank:
        raise InvalidArgumentError(f"-input rank(-{rank}) <= split_dim < input rank ({rank}), but got {d}")
    return d % rank


def _pieces(x: Any, axis: int, sizes: Iterable[int]) -> list[np.ndarray]:
    head, start, results = (slice(None),) * axis, 0, []
    for size in sizes:
        results.append(x[(*head, slice(start, start + size))])
        start += size
    return results


def split_kernel(axis: Any, x: Any, *, num_split: int) -> list[np.ndarray]:
    if num_split == 1 and x.ndim == 0:
        return [x]
    d = _split_axis(x, axis)
    size = x.shape[d]
    if size % num_split:
        raise InvalidArgumentError(
            f"Number of ways to split should evenly divide the split dimension, but got split_dim {axis.item()} (size = {size}) "
            f"and num_split {num_split}"
        )
    return _pieces(x, d, [size // num_split] * num_split)


def split_shape(c: Any) -> list[Dims]:
    num, dims, axis = c.attrs["num_split"], c.dims(1), c.const(0)
    if dims is None:
        return [None] * num
    if axis is None:
        return [(None,) * len(dims)] * num
    axis, rank = axis.item(), len(dims)
    if not -rank <= axis < rank:
        raise ValueError(f"Dimension size, given by scalar input {axis} must be in range [{-rank}, {rank})")
    axis %= rank
    size = dims[axis]
    if size is not None:
        if size % num:
            raise ValueError(
                f"Dimension size must be evenly divisible by {num} but is {size}\n"
                "\tNumber of ways to split should evenly divide the split dimension"
            )
        size //= num
    return [(*dims[:axis], size, *dims[axis + 1 :])] * num


def split_v_kernel(x: Any, sizes: np.ndarray, axis: Any, *, num_split: int) -> list[np.ndarray]:
    if sizes.ndim != 1 or sizes.size != num_split:
        raise InvalidArgumentError(
            f"size of the split_tensor must be 1-D and have the same elements as outputs got {sizes.ndim} -D and {sizes.size} elements"
        )
    d = _split_axis(x, axis)
    wanted = sizes.tolist()
    if num_split == 1:
        return [x]
    missing = [i for i, s in enumerate(wanted) if s == -1]
    if len(missing) > 1:
        raise InvalidArgumentError("There can only be one -1 in the input.")
    for i, s in enumerate(wanted):
        if s < -1:
            raise InvalidArgumentError(f"Split size at index {i} must be >= 0. Got: {s}")
    total = sum(s for s in wanted if s >= 0)
    if (not missing and total != x.shape[d]) or total > x.shape[d]:
        raise InvalidArgumentError(
            "Determined shape must either match input shape along split_dim exactly if fully specified, or be less than the size of "
            f"the input along split_dim if not fully specified.  Got: {total}"
        )
    if missing:
        wanted[missing[0]] = x.shape[d] - total
    return _pieces(x, d, wanted)


def split_v_shape(c: Any) -> list[Dims]:
    num, dims, axis, sizes = c.attrs["num_split"], c.dims(0), c.const(2), c.const(1)
    if dims is None:
        return [None] * num
    given = c.dims(1)
    if given is not None and (len(given) != 1 or given[0] not in (None, num)):
        raise ValueError(f"Length of size_splits should be equal to num_outputs, but is {format_dims(given)} for {num} outputs")
    if num == 1:
        return [dims]
    if axis is None:
        return [(None,) * len(dims)] * num
    axis, rank = axis.item(), len(dims)
    if not -rank <= axis < rank:
        raise ValueError(f"Dimension size, given by scalar input {axis} must be in range [{-rank}, {rank})")
    axis %= rank
    pieces: list[int | None] = [None] * num
    if sizes is not None:
        wanted = sizes.tolist()
        if wanted.count(-1) > 1:
            raise ValueError("size_splits can only have one -1")
        pieces = [None if s == -1 else s for s in wanted]
        size = dims[axis]
        if size is not None:
            total = sum(s for s in wanted if s != -1)
            if -1 in wanted:
                i = wanted.index(-1)
                if total > size:
                    raise ValueError(f"Split size at index {i} must be >= 0. Got: {size - total}")
                pieces[i] = size - total
            elif total != size:
                raise ValueError(f"can't split axis of size {size} into pieces of size [{','.join(map(str, wanted))}]")
    return [(*dims[:axis], piece, *dims[axis + 1 :]) for piece in pieces]
