"""Slices: Slice, StridedSlice with its five masks, their gradients, and writing into a slice."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.constant import blank
from penstock.ops.declare import op
from penstock.ops.kernels.slices import assign_slice, slice_index
from penstock.ops.kernels.views import piece
from penstock.ops.samples import arr, empty, normal, strings
from penstock.shapes import format_dims, merge_dims

# -- Slice ------------------------------------------------------------------------------------------------------------


def slice_kernel(x: Any, begin: np.ndarray, size: np.ndarray) -> np.ndarray:
    index = part_index(x.shape, begin, size)
    return piece(x[index]) if index else x


def part_index(shape: tuple[int, ...], begin: np.ndarray, size: np.ndarray) -> tuple[slice, ...]:
    """The NumPy index that picks what a Slice picks from an array of `shape`."""
    if begin.shape != (len(shape),) or size.shape != begin.shape:
        raise InvalidArgumentError(
            f"Expected begin and size arguments to be 1-D tensors of size {len(shape)}, but got shapes "
            f"{format_dims(begin.shape)} and {format_dims(size.shape)} instead."
        )
    index = []
    for i, (start, length, limit) in enumerate(zip(begin.tolist(), size.tolist(), shape, strict=True)):
        if length == -1:
            length = limit - start
        if not 0 <= start <= limit:
            raise InvalidArgumentError(f"Expected begin[{i}] in [0, {limit}], but got {start}")
        if not 0 <= length <= limit - start:
            raise InvalidArgumentError(f"Expected size[{i}] in [0, {limit - start}], but got {length}")
        index.append(slice(start, start + length))
    return tuple(index)


def slice_shape(c: Any) -> Dims:
    dims, begin_dims, size_dims = c.dims(0), c.dims(1), c.dims(2)
    for given in (begin_dims, size_dims):
        if given is not None and len(given) != 1:
            raise ValueError(f"Shape must be rank 1 but is rank {len(given)}")
    (count,) = merge_dims(begin_dims, size_dims) or (None,)
    if dims is not None and count is not None and len(dims) != count:
        raise ValueError(f"Shape must be rank {count} but is rank {len(dims)}")
    if dims is None:
        return c.const_dims(2)
    begin, sizes, given = c.const(1), c.const_dims(2), c.const(2)
    if sizes is None:
        return (None,) * len(dims)
    result = list(sizes)
    if begin is not None and given is not None:
        for i, (start, length) in enumerate(zip(begin.tolist(), given.tolist(), strict=True)):
            if length == -1 and dims[i] is not None:
                result[i] = max(dims[i] - start, 0)
    return tuple(result)


def slice_grad(g: Any, op: Any, dy: Any) -> list:
    """Zeros around `dy`."""
    index_type = op.begin.dtype.base_dtype
    after = g.Sub(g.Sub(g.Shape(op.input, out_type=index_type), g.Shape(op.output, out_type=index_type)), op.begin)
    return [g.Pad(dy, g.Pack([op.begin, after], axis=1)), None, None]


op("Slice(input: T, begin: Index, size: Index) -> (output: T) [T: type; Index: type in {int32, int64}]",
   shape=slice_shape, numpy=slice_kernel, grad=slice_grad, host_memory=["begin", "size"],
   samples=[
       dict(input=normal(3, 4), begin=arr([1, 0]), size=arr([2, 3])),
       dict(input=normal(3, 4), begin=arr([1, 2]), size=arr([-1, -1])),
       dict(input=normal(3), begin=arr([3]), size=arr([0])),
       dict(input=normal(), begin=arr([]), size=arr([])),
       dict(input=empty(0, 2), begin=arr([0, 0]), size=arr([0, 1])),
       dict(input=strings(["a", "b"]), begin=arr([1]), size=arr([1])),
   ],
   errors=[
       (dict(input=[1.0, 2.0, 3.0], begin=[5], size=[1]), InvalidArgumentError, "Expected begin\\[0\\] in \\[0, 3\\], but got 5"),
       (dict(input=[1.0, 2.0, 3.0], begin=[1], size=[4]), InvalidArgumentError, "Expected size\\[0\\] in \\[0, 2\\], but got 4"),
   ])  # fmt: skip


# -- StridedSlice -----------------------------------------------------------------------------------------------------

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_MASK_ATTRS = " begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = 0; new_axis_mask: int = 0; shrink_axis_mask: int = 0]"


def strided_slice_kernel(x: Any, begin: np.ndarray, end: np.ndarray, strides: np.ndarray, *, begin_mask: int, end_mask: int,
                         ellipsis_mask: int, new_axis_mask: int, shrink_axis_mask: int) -> Any:  # fmt: skip
    index = slice_index(x.shape, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    # The ellipsis keeps a single string an array.
    return piece(x[(*index, ...)])


def sliced_dims(dims: Dims, begin: Any, end: Any, strides: Any, count: int | None, masks: dict[str, int]) -> Dims:
    """The static shape of a strided slice; `begin`, `end` are None where unknown."""
    if dims is None or strides is None or count is None:
        return None
    begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_mask = (masks[m] for m in _MASKS)
    if ellipsis_mask & (ellipsis_mask - 1):
        raise ValueError("Multiple ellipses in slice spec not allowed")
    ellipsis_mask &= (1 << count) - 1
    if not ellipsis_mask:
        ellipsis_mask = 1 << count  # the rest is taken whole
        count += 1
    used = sum(1 for i in range(count) if not (new_axis_mask | ellipsis_mask) >> i & 1)
    result: list[int | None] = []
    axis = 0
    for i in range(count):
        bit = 1 << i
        if ellipsis_mask & bit:
            hidden = max(0, len(dims) - used)
            result.extend(dims[axis : axis + hidden])
            axis += hidden
            continue
        if new_axis_mask & bit:
            result.append(1)
            continue
        if axis >= len(dims):
            raise ValueError(f"Index out of range using input dim {axis}; input has only {len(dims)} dims")
        size, step = dims[axis], int(strides[i])
        if step == 0:
            raise ValueError(f"strides[{axis}] must be non-zero")
        if shrink_mask & bit:
            if step < 0:
                raise ValueError("only stride 1 allowed on non-range indexing.")
            if size is not None and begin is not None and not -size <= int(begin[i]) < size:
                raise ValueError(f"slice index {int(begin[i])} of dimension {axis} out of bounds.")
        else:
            whole = begin_mask & bit and end_mask & bit
            if size is not None and whole:
                result.append(len(range(0, size, abs(step))))
            elif size is None or begin is None or end is None:
                result.append(None)
            else:
                start = None if begin_mask & bit else int(begin[i])
                stop = None if end_mask & bit else int(end[i])
                result.append(len(range(*slice(start, stop, step).indices(size))))
        axis += 1
    return tuple(result)


def strided_slice_shape(c: Any) -> Dims:
    count = None
    for i in (1, 2, 3):
        given = c.dims(i)
        if given is None:
            continue
        if len(given) != 1:
            raise ValueError(f"Shape must be rank 1 but is rank {len(given)}")
        if given[0] is not None:
            if count is not None and count != given[0]:
                raise ValueError(f"Dimension 0 in both shapes must be equal, but are {count} and {given[0]}. Shapes are [{count}] and [{given[0]}].")
            count = given[0]
    return sliced_dims(c.dims(0), c.const(1), c.const(2), c.const(3), count, c.attrs)


def _masks(op: Any) -> dict[str, int]:
    return {m: op.attr(m) for m in _MASKS}


def strided_slice_grad(g: Any, op: Any, dy: Any) -> list:
    shape = g.Shape(op.input, out_type=op.begin.dtype.base_dtype)
    return [g.StridedSliceGrad(shape, op.begin, op.end, op.strides, dy, **_masks(op)), None, None, None]


op("StridedSlice(input: T, begin: Index, end: Index, strides: Index) -> (output: T) [T: type; Index: type in {int16, int32, int64};"
   + _MASK_ATTRS,
   shape=strided_slice_shape, numpy=strided_slice_kernel, grad=strided_slice_grad, host_memory=["begin", "end", "strides"],
   samples=[
       dict(input=normal(4, 5), begin=arr([1, 0]), end=arr([3, 5]), strides=arr([1, 2])),
       dict(input=normal(4, 5), begin=arr([-1, 0]), end=arr([-5, 3]), strides=arr([-2, 1]), begin_mask=1, end_mask=1),
       dict(input=normal(4, 5), begin=arr([2]), end=arr([3]), strides=arr([1]), shrink_axis_mask=1),
       dict(input=normal(2, 3, 4), begin=arr([0, 0, 1]), end=arr([0, 0, 2]), strides=arr([1, 1, 1]), ellipsis_mask=1, new_axis_mask=2,
            shrink_axis_mask=4),
       dict(input=normal(3), begin=arr([2]), end=arr([1]), strides=arr([1])),
       dict(input=normal(), begin=arr([0]), end=arr([1]), strides=arr([1]), new_axis_mask=1),
       dict(input=empty(0, 2), begin=arr([0]), end=arr([1]), strides=arr([1])),
       dict(input=strings(["a", "b"]), begin=arr([1]), end=arr([2]), strides=arr([1]), shrink_axis_mask=1),
   ],
   errors=[
       (dict(input=[1.0], begin=[5], end=[6], strides=[1], shrink_axis_mask=1), InvalidArgumentError, "slice index 5 of dimension 0 out of bounds."),
       (dict(input=[1.0], begin=[0, 0], end=[1, 1], strides=[1, 1]), InvalidArgumentError, "Index out of range using input dim 1; input has only 1 dims"),
       (dict(input=[1.0], begin=[0], end=[1], strides=[0]), InvalidArgumentError, "strides\\[0\\] must be non-zero"),
   ])  # fmt: skip


def strided_slice_grad_kernel(shape: np.ndarray, begin: np.ndarray, end: np.ndarray, strides: np.ndarray, dy: Any, *, T: DType,
                              begin_mask: int, end_mask: int, ellipsis_mask: int, new_axis_mask: int,
                              shrink_axis_mask: int) -> np.ndarray:  # fmt: skip
    if shape.ndim != 1:
        raise InvalidArgumentError(f"shape must be 1-D, got shape.shape = {format_dims(shape.shape)}")
    result = blank(shape.tolist(), T)
    index = slice_index(result.shape, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    target = result[(*index, ...)]
    if target.shape != dy.shape:
        raise InvalidArgumentError(f"shape of dy was {format_dims(dy.shape)} instead of {format_dims(target.shape)}")
    target[...] = dy
    return result


def strided_slice_grad_grad(g: Any, op: Any, dy: Any) -> list:
    return [None, None, None, None, g.StridedSlice(dy, op.begin, op.end, op.strides, **_masks(op))]


op("StridedSliceGrad(shape: Index, begin: Index, end: Index, strides: Index, dy: T) -> (output: T) [T: type; Index: type in {int32, int64};"
   + _MASK_ATTRS,
   shape=lambda c: c.const_dims(0), numpy=strided_slice_grad_kernel, grad=strided_slice_grad_grad,
   host_memory=["shape", "begin", "end", "strides"],
   samples=[
       dict(shape=arr([4, 5]), begin=arr([1, 0]), end=arr([3, 5]), strides=arr([1, 2]), dy=normal(2, 3)),
       dict(shape=arr([4, 5]), begin=arr([2]), end=arr([3]), strides=arr([1]), dy=normal(5), shrink_axis_mask=1),
       dict(shape=arr([3]), begin=arr([0]), end=arr([0]), strides=arr([1]), dy=empty(0)),
   ],
   errors=[(dict(shape=[3], begin=[0], end=[2], strides=[1], dy=[1.0]), InvalidArgumentError, "shape of dy was \\[1\\] instead of \\[2\\]")])  # fmt: skip


def slice_update_kernel(x: Any, begin: np.ndarray, end: np.ndarray, strides: np.ndarray, value: Any, *, begin_mask: int, end_mask: int,
                        ellipsis_mask: int, new_axis_mask: int, shrink_axis_mask: int) -> np.ndarray:  # fmt: skip
    result = np.array(x)
    assign_slice(result, begin, end, strides, value, begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    return result


def slice_update_grad(g: Any, op: Any, dy: Any) -> list:
    """What was overwritten gets nothing; the value gets what it was written over, summed where it was broadcast."""
    place = (op.begin, op.end, op.strides)
    outside = g.TensorStridedSliceUpdate(dy, *place, g.ZerosLike(op.value), **_masks(op))
    inside = g.StridedSlice(dy, *place, **_masks(op))
    wanted = g.Shape(op.value)
    axes = g.BroadcastGradientArgs(wanted, g.Shape(inside))[0]
    return [outside, None, None, None, g.Reshape(g.Sum(inside, axes), wanted)]


op("TensorStridedSliceUpdate(input: T, begin: Index, end: Index, strides: Index, value: T) -> (output: T)"
   " [T: type; Index: type in {int32, int64};" + _MASK_ATTRS,
   shape=lambda c: c.dims(0), numpy=slice_update_kernel, grad=slice_update_grad, host_memory=["begin", "end", "strides"],
   samples=[
       dict(input=normal(4, 5), begin=arr([1, 0]), end=arr([3, 5]), strides=arr([1, 2]), value=normal(2, 3)),
       dict(input=normal(4, 5), begin=arr([2]), end=arr([3]), strides=arr([1]), value=normal(), shrink_axis_mask=1),
       dict(input=normal(4, 5), begin=arr([0, 1]), end=arr([0, 3]), strides=arr([1, 1]), value=normal(4, 1), begin_mask=1, end_mask=1),
   ],
   errors=[
       (dict(input=[1.0, 2.0, 3.0], begin=[0], end=[1], strides=[1], value=[1.0, 2.0]), InvalidArgumentError,
        "Cannot broadcast input shape \\[2\\] into final shape \\[1\\]"),
   ])  # fmt: skip
