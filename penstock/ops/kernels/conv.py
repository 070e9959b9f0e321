"""Convolutions and their two gradients, for any number of spatial dimensions, as matrix products over patches.

All kernels compute in channels-last order: input (N, *spatial, C), filter (*window, C / groups, O). Channels-first
tensors are transposed on the way in and out. The three products:

    forward          y  = patches(x) @ w            patches: (N * positions, window * C), gathered block by block
    filter gradient  dw = patches(x).T @ dy
    input gradient   stride 1: dy correlated with the flipped filter; otherwise dy @ w.T is added into dx tap by tap

Every op accepts both layouts, dilations and groups, also where TensorFlow's CPU kernels refuse them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from penstock import errors
from penstock.ops.kernels import channelwise
from penstock.ops.kernels.lapack import on_one_thread
from penstock.ops.kernels.numeric import narrow, widen
from penstock.ops.kernels.patches import from_last, pad, patch_view, reverse, taps, to_last
from penstock.ops.kernels.threads import parallel_for
from penstock.ops.kernels.window import Layout, Slide, layout, shape_vector, show, slides_of

# Patches are gathered in blocks of this many bytes, so that the product reads them from cache.
_BLOCK_BYTES = 1 << 20
_PARTS = 4


# ---------------------------------------------------------------------------------------------------------------------
# Patches as matrices


def _blocks(batch: int, rows: int, row_bytes: int) -> Iterator[tuple[slice, slice]]:
    """(batch, row) slices, each over about _BLOCK_BYTES of patches."""
    if rows * row_bytes <= _BLOCK_BYTES:
        step = max(1, _BLOCK_BYTES // max(1, rows * row_bytes))
        for start in range(0, batch, step):
            yield slice(start, min(start + step, batch)), slice(0, rows)
        return
    step = max(1, _BLOCK_BYTES // row_bytes)
    for image in range(batch):
        for start in range(0, rows, step):
            yield slice(image, image + 1), slice(start, min(start + step, rows))


@on_one_thread
def _over_patches(x: np.ndarray, slides: Sequence[Slide], use: Callable[[int, tuple[slice, slice], np.ndarray], None]) -> None:
    """use(part, block of positions, their patches as a matrix (positions, window * C)), the blocks being shared out among threads in at most `_PARTS` parts.
    The matrix is reused. How many parts there are depends on the sizes alone."""
    view = patch_view(pad(x, slides), slides)
    positions, depth = 1, x.shape[-1]
    for s in slides[1:]:
        positions *= s.out
    for s in slides:
        depth *= s.window
    blocks = list(_blocks(x.shape[0], slides[0].out, positions * depth * x.itemsize))
    parts = min(_PARTS, len(blocks))

    def work(part: int) -> None:
        buffer: np.ndarray | None = None
        for block in blocks[len(blocks) * part // parts : len(blocks) * (part + 1) // parts]:
            source = view[block]
            if buffer is None or any(have < want for have, want in zip(buffer.shape, source.shape, strict=True)):
                buffer = np.empty(source.shape, x.dtype)
            target = buffer[: source.shape[0], : source.shape[1]]
            np.copyto(target, source)
            use(part, block, target.reshape(-1, depth))

    parallel_for(parts, work)


def _plain(x: np.ndarray, slides: Sequence[Slide]) -> np.ndarray:
    """The input cells that windows of one cell meet, as a matrix (positions, C)."""
    cells = x[(slice(None), *(slice(0, (s.out - 1) * s.stride + 1, s.stride) for s in slides))]
    return cells.reshape(-1, x.shape[-1])


# ---------------------------------------------------------------------------------------------------------------------
# The three products, channels last, one group


def correlate(x: np.ndarray, w: np.ndarray, slides: Sequence[Slide]) -> np.ndarray:
    shape = (x.shape[0], *(s.out for s in slides), w.shape[-1])
    flat = w.reshape(-1, w.shape[-1])
    if 0 in shape or not flat.size:
        return np.zeros(shape, x.dtype)
    if all(s.is_plain for s in slides):
        return np.matmul(_plain(x, slides), flat).reshape(shape)
    y = np.empty(shape, x.dtype)
    _over_patches(x, slides, lambda _, block, patches: np.matmul(patches, flat, out=y[block].reshape(-1, shape[-1])))
    return y


def _filter_gradient(x: np.ndarray, dy: np.ndarray, window: Sequence[int], slides: Sequence[Slide]) -> np.ndarray:
    shape = (*window, x.shape[-1], dy.shape[-1])
    if not x.size or not dy.size or 0 in shape:
        return np.zeros(shape, x.dtype)
    if all(s.is_plain for s in slides):
        return np.matmul(_plain(x, slides).T, dy.reshape(-1, dy.shape[-1])).reshape(shape)
    totals: list[np.ndarray | None] = [None] * _PARTS

    def add(part: int, block: tuple[slice, slice], patches: np.ndarray) -> None:
        product, total = np.matmul(patches.T, dy[block].reshape(-1, dy.shape[-1])), totals[part]
        totals[part] = product if total is None else np.add(total, product, out=total)

    _over_patches(x, slides, add)
    first, *others = (total for total in totals if total is not None)
    for other in others:
        first += other
    return first.reshape(shape)


def _input_gradient(dy: np.ndarray, w: np.ndarray, slides: Sequence[Slide]) -> np.ndarray:
    depth = w.shape[-2]
    shape = (dy.shape[0], *(s.size for s in slides), depth)
    if not dy.size or not w.size or 0 in shape:
        return np.zeros(shape, dy.dtype)
    back = reverse(slides)
    if all(s.stride == 1 for s in slides) and all(s.before >= 0 for s in back):
        axes = tuple(range(len(slides)))
        flipped = np.ascontiguousarray(np.flip(w, axes).swapaxes(-1, -2))
        if all(s.is_plain for s in slides):
            return np.matmul(dy.reshape(-1, dy.shape[-1]), flipped.reshape(-1, depth)).reshape(shape)
        return correlate(dy, flipped, back)
    reach = [max(s.reach, s.before + s.size) for s in slides]
    dx = np.zeros((shape[0], *reach, depth), dy.dtype)
    flat = w.reshape(-1, w.shape[-1]).T
    window = w.shape[:-2]
    row_bytes = dy[0, 0].size // dy.shape[-1] * flat.shape[1] * dy.itemsize
    for images, rows in _blocks(dy.shape[0], dy.shape[1], row_bytes):
        part = dy[images, rows]
        spread = np.matmul(part.reshape(-1, dy.shape[-1]), flat).reshape(*part.shape[:-1], *window, depth)
        target = dx[images, rows.start * slides[0].stride :]
        block = [slides[0]._replace(out=rows.stop - rows.start), *slides[1:]]
        for offsets, index in taps(block):
            target[index] += spread[(*(slice(None),) * (dy.ndim - 1), *offsets)]
    return dx[(slice(None), *(slice(s.before, s.before + s.size) for s in slides))]


# ---------------------------------------------------------------------------------------------------------------------
# Groups, layouts and precision around them


def _split(x: np.ndarray, groups: int, index: int) -> np.ndarray:
    size = x.shape[-1] // groups
    return x[..., index * size : (index + 1) * size]


def _of_channels(filters: np.ndarray, groups: int) -> np.ndarray:
    """A filter for groups of one channel as a depthwise one."""
    return filters.reshape(*filters.shape[:-2], groups, -1)


def _forward(x: np.ndarray, w: np.ndarray, slides: Sequence[Slide], lay: Layout, groups: int) -> np.ndarray:
    wide, filters = to_last(x, lay), np.ascontiguousarray(widen(w))
    if groups == wide.shape[-1] and channelwise.suits(wide.dtype, groups, filters.shape[-1], slides):
        return from_last(channelwise.forward(wide, _of_channels(filters, groups), slides), lay, x.dtype)
    if groups == 1:
        return from_last(correlate(wide, filters, slides), lay, x.dtype)
    parts = [
        correlate(_split(wide, groups, i), np.ascontiguousarray(_split(filters, groups, i)), slides)
        for i in range(groups)
    ]
    return from_last(np.concatenate(parts, -1), lay, x.dtype)


def _backward_input(dy: np.ndarray, w: np.ndarray, slides: Sequence[Slide], lay: Layout, groups: int) -> np.ndarray:
    wide, filters = to_last(dy, lay), np.ascontiguousarray(widen(w))
    if filters.shape[-2] == 1 and channelwise.suits(wide.dtype, groups, filters.shape[-1], slides):
        return from_last(channelwise.input_gradient(wide, _of_channels(filters, groups), slides), lay, dy.dtype)
    if groups == 1:
        return from_last(_input_gradient(wide, filters, slides), lay, dy.dtype)
    parts = [
        _input_gradient(np.ascontiguousarray(_split(wide, groups, i)), _split(filters, groups, i), slides)
        for i in range(groups)
    ]
    return from_last(np.concatenate(parts, -1), lay, dy.dtype)


def _backward_filter(
    x: np.ndarray, dy: np.ndarray, window: Sequence[int], slides: Sequence[Slide], lay: Layout, groups: int
) -> np.ndarray:
    wide, grads = to_last(x, lay), to_last(dy, lay)
    if groups == wide.shape[-1] and channelwise.suits(wide.dtype, groups, grads.shape[-1], slides):
        return narrow(channelwise.filter_gradient(wide, grads, slides).reshape(*window, 1, grads.shape[-1]), x.dtype)
    if groups == 1:
        return narrow(_filter_gradient(wide, grads, window, slides), x.dtype)
    parts = [
        _filter_gradient(_split(wide, groups, i), np.ascontiguousarray(_split(grads, groups, i)), window, slides)
        for i in range(groups)
    ]
    return narrow(np.concatenate(parts, -1), x.dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Checks


def _check_unit(values: Sequence[int], lay: Layout, what: str, error: Any = errors.UnimplementedError) -> None:
    if values[0] != 1 or values[lay.channel] != 1:
        raise error(f"Current implementation does not yet support {what} in the batch and depth dimensions.")


def _check_backprop(
    label: str,
    lay: Layout,
    in_shape: Sequence[int],
    filter_shape: Sequence[int],
    dy: np.ndarray,
    slides: Sequence[Slide],
) -> int:
    """The number of groups, once input, filter and gradient agree."""
    rank = lay.rank
    for name, shape in (("input", in_shape), ("filter", filter_shape), ("out_backprop", dy.shape)):
        if len(shape) != rank:
            raise errors.InvalidArgumentError(f"{label}: {name} must be {rank}-dimensional")
    if in_shape[0] != dy.shape[0]:
        raise errors.InvalidArgumentError(
            f"{label}: input and out_backprop must have the same batch size. "
            f"Input batch: {in_shape[0]}, outbackprop batch: {dy.shape[0]}, batch_dim: 0"
        )
    if filter_shape[-1] != dy.shape[lay.channel]:
        raise errors.InvalidArgumentError(f"{label}: filter and out_backprop must have the same out_depth")
    for axis, s in zip(lay.spatial, slides, strict=True):
        if dy.shape[axis] != s.out:
            raise errors.InvalidArgumentError(
                f"{label}: Size of out_backprop doesn't match computed: actual = {dy.shape[axis]}, computed = {s.out} "
                f"spatial_dim: {axis} input: {s.size} filter: {s.window} output: {dy.shape[axis]} "
                f"stride: {s.stride} dilation: {s.dilation}"
            )
    depth = in_shape[lay.channel]
    if filter_shape[-2] == 0:
        return 1
    if depth % filter_shape[-2]:
        raise errors.InvalidArgumentError(f"{label}: input depth must be evenly divisible by filter depth")
    groups = max(1, depth // filter_shape[-2])
    if filter_shape[-1] % groups:
        raise errors.InvalidArgumentError(
            f"{label}: output depth must be evenly divisible by number of groups: {filter_shape[-1]} vs {groups}"
        )
    return groups


def _forward_groups(depth: int, filter_depth: int, out_depth: int) -> int:
    if filter_depth <= 0:
        raise errors.InvalidArgumentError(f"filter depth must be stricly positive, got {filter_depth}")
    if depth % filter_depth:
        raise errors.InvalidArgumentError(
            f"input depth must be evenly divisible by filter depth: {depth} vs {filter_depth}"
        )
    groups = max(1, depth // filter_depth)
    if out_depth % groups:
        raise errors.InvalidArgumentError(
            f"output depth must be evenly divisible by number of groups: {out_depth} vs {groups}"
        )
    return groups


# ---------------------------------------------------------------------------------------------------------------------
# Two dimensions


def conv2d(x, filter, *, strides, padding, explicit_paddings=(), data_format=b"NHWC", dilations=(1, 1, 1, 1)):
    """Conv2D: `x` correlated with `filter` (rows, columns, in depth / groups, out depth)."""
    lay = layout(data_format)
    _check_unit(strides, lay, "strides")
    _check_unit(dilations, lay, "dilations")
    if x.ndim != 4:
        raise errors.InvalidArgumentError(f"convolution input must be 4-dimensional: {show(x.shape)}")
    if filter.ndim != 4:
        raise errors.InvalidArgumentError(f"convolution filter must be 4-dimensional: {show(filter.shape)}")
    groups = _forward_groups(x.shape[lay.channel], filter.shape[2], filter.shape[3])
    slides = slides_of(lay, lay.of_spatial(x.shape), filter.shape[:2], strides, padding, dilations, explicit_paddings)
    if not filter.size and x.shape[0] and filter.shape[3]:
        raise errors.InvalidArgumentError("filter must not have zero elements (i.e. all dimensions must be non-zero)")
    return _forward(x, filter, slides, lay, groups)


def conv2d_backprop_input(
    input_sizes,
    filter,
    out_backprop,
    *,
    strides,
    padding,
    explicit_paddings=(),
    data_format=b"NHWC",
    dilations=(1, 1, 1, 1),
):
    """Conv2DBackpropInput. `input_sizes` may hold all four sizes, or rows and columns only."""
    lay = layout(data_format)
    _check_unit(strides, lay, "strides")
    _check_unit(dilations, lay, "dilations")
    sizes = shape_vector(input_sizes, "Conv2DBackpropInput", "input_sizes")
    if len(sizes) not in (2, 4):
        raise errors.InvalidArgumentError(
            f"Conv2DBackpropInput requires input_sizes to contain 4 values or 2 values, but got: {len(sizes)}"
        )
    label = "Conv2DCustomBackpropInput"
    if filter.ndim != 4 or out_backprop.ndim != 4:
        name = "filter" if filter.ndim != 4 else "out_backprop"
        raise errors.InvalidArgumentError(f"{label}: {name} must be 4-dimensional")
    shape = sizes if len(sizes) == 4 else lay.build(out_backprop.shape[0], sizes, filter.shape[2])
    slides = slides_of(lay, lay.of_spatial(shape), filter.shape[:2], strides, padding, dilations, explicit_paddings)
    groups = _check_backprop(label, lay, shape, filter.shape, out_backprop, slides)
    return _backward_input(out_backprop, filter, slides, lay, groups)


def conv2d_backprop_filter(
    x,
    filter_sizes,
    out_backprop,
    *,
    strides,
    padding,
    explicit_paddings=(),
    data_format=b"NHWC",
    dilations=(1, 1, 1, 1),
):
    """Conv2DBackpropFilter."""
    lay = layout(data_format)
    _check_unit(strides, lay, "strides")
    _check_unit(dilations, lay, "dilations")
    shape = shape_vector(filter_sizes, "Conv2DBackpropFilter", "filter_sizes")
    label = "Conv2DCustomBackpropFilter"
    for name, rank in (("input", x.ndim), ("filter", len(shape)), ("out_backprop", out_backprop.ndim)):
        if rank != 4:
            raise errors.InvalidArgumentError(f"{label}: {name} must be 4-dimensional")
    slides = slides_of(lay, lay.of_spatial(x.shape), shape[:2], strides, padding, dilations, explicit_paddings)
    groups = _check_backprop(label, lay, x.shape, shape, out_backprop, slides)
    return _backward_filter(x, out_backprop, shape[:2], slides, lay, groups)


# ---------------------------------------------------------------------------------------------------------------------
# Three dimensions


def _check_3d(lay: Layout, strides, dilations) -> None:
    _check_unit(strides, lay, "strides", errors.InvalidArgumentError)
    _check_unit(dilations, lay, "dilation rates", errors.InvalidArgumentError)


def conv3d(x, filter, *, strides, padding, data_format=b"NDHWC", dilations=(1, 1, 1, 1, 1)):
    """Conv3D: `filter` is (planes, rows, columns, in depth / groups, out depth)."""
    lay = layout(data_format)
    _check_3d(lay, strides, dilations)
    if x.ndim != 5:
        raise errors.InvalidArgumentError("input must be 5-dimensional")
    if filter.ndim != 5:
        raise errors.InvalidArgumentError("filter must be 5-dimensional")
    depth, filter_depth = x.shape[lay.channel], filter.shape[3]
    if not filter_depth:
        raise errors.InvalidArgumentError("filter_depth must be non-zero")
    if depth % filter_depth:
        raise errors.InvalidArgumentError(
            f"Input depth must be evenly divisible by filter depth: {depth} vs {filter_depth}"
        )
    groups = max(1, depth // filter_depth)
    if filter.shape[4] % groups:
        raise errors.InvalidArgumentError(
            f"output depth must be evenly divisible by number of groups: {filter.shape[4]} vs {groups}"
        )
    if not filter.size:
        raise errors.InvalidArgumentError("filter must not have zero elements (i.e. all dimensions must be non-zero)")
    slides = slides_of(lay, lay.of_spatial(x.shape), filter.shape[:3], strides, padding, dilations)
    return _forward(x, filter, slides, lay, groups)


def _check_backprop_3d(label, lay, in_shape, filter_shape, dy, strides, padding, dilations):
    _check_3d(lay, strides, dilations)
    for name, shape in (("input", in_shape), ("filter_sizes", filter_shape), ("out_backprop", dy.shape)):
        if len(shape) != 5:
            raise errors.InvalidArgumentError(f"{name} tensor must have 5 dimensions")
    depth, out_depth = in_shape[lay.channel], dy.shape[lay.channel]
    if out_depth != filter_shape[4]:
        raise errors.InvalidArgumentError(
            "out_backprop and filter_sizes must have the same number of channels. "
            f"Got {out_depth} for out_backprop and {filter_shape[4]} for filter_sizes"
        )
    if depth != filter_shape[3] and (not filter_shape[3] or depth % filter_shape[3]):
        raise errors.InvalidArgumentError(
            "input and filter_sizes must have the same number of channels. "
            f"Got {depth} for input and {filter_shape[3]} for filter_sizes"
        )
    slides = slides_of(lay, lay.of_spatial(in_shape), filter_shape[:3], strides, padding, dilations)
    return slides, _check_backprop(label, lay, in_shape, filter_shape, dy, slides)


def conv3d_backprop_input(
    input_sizes, filter, out_backprop, *, strides, padding, data_format=b"NDHWC", dilations=(1, 1, 1, 1, 1)
):
    """Conv3DBackpropInputV2."""
    lay = layout(data_format)
    shape = shape_vector(input_sizes, "Conv3DBackpropInputV2", "input_sizes")
    slides, groups = _check_backprop_3d(
        "Conv3DBackpropInputOp", lay, shape, filter.shape, out_backprop, strides, padding, dilations
    )
    return _backward_input(out_backprop, filter, slides, lay, groups)


def conv3d_backprop_filter(
    x, filter_sizes, out_backprop, *, strides, padding, data_format=b"NDHWC", dilations=(1, 1, 1, 1, 1)
):
    """Conv3DBackpropFilterV2."""
    lay = layout(data_format)
    shape = shape_vector(filter_sizes, "Conv3DBackpropFilterV2", "filter_sizes")
    slides, groups = _check_backprop_3d(
        "Conv3DBackpropFilterOp", lay, x.shape, shape, out_backprop, strides, padding, dilations
    )
    return _backward_filter(x, out_backprop, shape[:3], slides, lay, groups)


def conv3d_backprop_input_v1(x, filter, out_backprop, *, strides, padding, dilations=(1, 1, 1, 1, 1)):
    """Conv3DBackpropInput: the original input stands for its sizes."""
    sizes = np.array(x.shape, np.int64)
    return conv3d_backprop_input(sizes, filter, out_backprop, strides=strides, padding=padding, dilations=dilations)


def conv3d_backprop_filter_v1(x, filter, out_backprop, *, strides, padding, dilations=(1, 1, 1, 1, 1)):
    """Conv3DBackpropFilter: the original filter stands for its sizes."""
    sizes = np.array(filter.shape, np.int64)
    return conv3d_backprop_filter(x, sizes, out_backprop, strides=strides, padding=padding, dilations=dilations)
