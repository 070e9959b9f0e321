"""TF's strided slices (begin, end, strides and five masks) as NumPy indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.shapes import format_dims


def slice_index(
    shape: tuple[int, ...], begin: Any, end: Any, strides: Any, begin_mask: int, end_mask: int, ellipsis_mask: int, new_axis_mask: int,
    shrink_axis_mask: int,
) -> tuple[Any, ...]:  # fmt: skip
    """The NumPy index that picks what a strided slice picks from an array of `shape`."""
    if not (begin.ndim == 1 and begin.shape == end.shape == strides.shape):
        raise InvalidArgumentError(
            "Expected begin, end, and strides to be 1D equal size tensors, but got shapes "
            f"{format_dims(begin.shape)}, {format_dims(end.shape)}, and {format_dims(strides.shape)} instead."
        )
    starts, stops, steps = begin.tolist(), end.tolist(), strides.tolist()
    n = len(starts)
    if ellipsis_mask & (ellipsis_mask - 1):
        raise InvalidArgumentError("Multiple ellipses in slice spec not allowed")
    index: list[Any] = []
    axis = 0
    for i in range(n):
        bit = 1 << i
        if ellipsis_mask & bit:
            used = sum(1 for j in range(n) if not (new_axis_mask | ellipsis_mask) >> j & 1)
            hidden = max(0, len(shape) - used)
            index.extend([slice(None)] * hidden)
            axis += hidden
            continue
        if new_axis_mask & bit:
            index.append(None)
            continue
        if axis >= len(shape):
            raise InvalidArgumentError(f"Index out of range using input dim {axis}; input has only {len(shape)} dims")
        size, step = shape[axis], steps[i]
        if step == 0:
            raise InvalidArgumentError(f"strides[{axis}] must be non-zero")
        if shrink_axis_mask & bit:
            if step < 0:
                raise InvalidArgumentError("only stride 1 allowed on non-range indexing.")
            at = starts[i]  # begin_mask does not count here
            if not -size <= at < size:
                raise InvalidArgumentError(f"slice index {at} of dimension {axis} out of bounds.")
            index.append(at)
        else:
            index.append(slice(None if begin_mask & bit else starts[i], None if end_mask & bit else stops[i], step))
        axis += 1
    return tuple(index)


def assign_slice(array: np.ndarray, begin: Any, end: Any, strides: Any, value: Any, *masks: int) -> None:
    """array[slice] = value, with `value` broadcast to the slice."""
    index = (*slice_index(array.shape, begin, end, strides, *masks), ...)  # an array even where one string is picked
    target = array[index].shape
    shape = np.shape(value)
    try:
        fits = np.broadcast_shapes(shape, target) == target
    except ValueError:
        fits = False
    if not fits:
        raise InvalidArgumentError(
            f"Cannot broadcast input shape {format_dims(shape)} into final shape {format_dims(target)}"
        )
    array[index] = value


def assign_slice_shape(c: Any) -> Any:
    """Shape rule of slice assignment to a ref: the variable's own shape."""
    return c.dims(0)
