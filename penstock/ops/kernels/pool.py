"""Max and average pooling over two or three spatial dimensions, with their gradients.

A maximum or a sum over a box is taken axis by axis. The gradients of the maximum need to know where it was: the first
of equal values in row-major order, as in TensorFlow's CPU kernels. An average counts only cells inside the input.
Every op accepts both layouts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from penstock import errors
from penstock.ops import native
from penstock.ops.kernels.numeric import lowest, narrow, widen
from penstock.ops.kernels.patches import from_last, pad, pixels_of_windows, taps, to_last, windows_of_pixels
from penstock.ops.kernels.threads import parallel_for
from penstock.ops.kernels.window import Layout, Slide, layout, show, slides_of
from penstock.ops.native import regions, rows
from penstock.ops.native.regions import Axis

# ---------------------------------------------------------------------------------------------------------------------
# Boxes, channels last


def _along(axis: int, index: slice) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, index)


def _steps(s: Slide) -> list[slice]:
    """For each cell of the window, where it meets the padded input along one axis."""
    return [slice(k, k + (s.out - 1) * s.stride + 1, s.stride) for k in range(s.window)]


def _box_max(x: np.ndarray, slides: Sequence[Slide], floor, maximum=np.fmax) -> np.ndarray:
    """The largest value in each box, at least `floor` (None: no floor). With fmax, NaNs lose against numbers."""
    y = x
    for axis, s in enumerate(slides, 1):
        first, *rest = _steps(s)
        part = y[_along(axis, first)]
        acc = part.copy() if axis > 1 or floor is None else maximum(part, floor)
        for index in rest:
            maximum(acc, y[_along(axis, index)], out=acc)
        y = acc
    return y


def _box_sum(x: np.ndarray, slides: Sequence[Slide]) -> np.ndarray:
    y = x
    for axis, s in enumerate(slides, 1):
        first, *rest = _steps(s)
        acc = y[_along(axis, first)].copy()
        for index in rest:
            acc += y[_along(axis, index)]
        y = acc
    return y


def _box_spread(dy: np.ndarray, slides: Sequence[Slide]) -> np.ndarray:
    """The transpose of `_box_sum`: every value is added to all cells of its box; padding is cut off."""
    for axis, s in enumerate(slides, 1):
        shape = list(dy.shape)
        shape[axis] = max(s.reach, s.before + s.size)
        dx = np.zeros(shape, dy.dtype)
        for index in _steps(s) if s.out else ():
            dx[_along(axis, index)] += dy
        dy = dx[_along(axis, slice(s.before, s.before + s.size))]
    return dy


def _cells(slides: Sequence[Slide], dtype: np.dtype) -> np.ndarray:
    """How many cells of each box lie inside the input, shaped (*out, 1)."""
    total = np.ones((1,) * (len(slides) + 1), dtype)
    for axis, s in enumerate(slides):
        start = np.arange(s.out) * s.stride - s.before
        inside = np.minimum(start + s.window, s.size) - np.maximum(start, 0)
        shape = [1] * (len(slides) + 1)
        shape[axis] = s.out
        total = total * inside.reshape(shape).astype(dtype)
    return total


def _rectangles(slides: Sequence[Slide]) -> tuple[Axis, Axis]:
    """The part of each box that lies inside the input, in two dimensions."""
    axes = []
    for s in slides:
        start = np.arange(s.out) * s.stride - s.before
        first = np.maximum(start, 0)
        axes.append(Axis(first, np.minimum(start + s.window, s.size) - first))
    return axes[0], axes[1]


def _can_fold(x: np.ndarray, slides: Sequence[Slide]) -> bool:
    return len(slides) == 2 and regions.can_fold(x.dtype)


def _positions(slides: Sequence[Slide]) -> tuple[list[np.ndarray], list[int]]:
    """First cell inside the input of every box along each axis, and the axes' strides in a flat spatial index."""
    first = [np.arange(s.out) * s.stride - s.before for s in slides]
    strides = [1] * len(slides)
    for axis in range(len(slides) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * slides[axis + 1].size
    return first, strides


def _box_argmax(x: np.ndarray, slides: Sequence[Slide]) -> tuple[np.ndarray, np.ndarray]:
    """The first largest value of each box and its flat spatial index in `x`; comparisons with NaN are false."""
    starts, strides = _positions(slides)
    floor = lowest(x.dtype) if x.dtype.kind in "iu" else -np.inf
    padded = pad(x, slides, floor)
    corner = _outer([start * step for start, step in zip(starts, strides, strict=True)])
    if math.prod(s.window for s in slides) <= _TAPS_IN_A_BYTE:
        top = _box_max(padded, slides, None, np.maximum)
        if not (np.any(top != top) or np.any(top == floor)):  # neither NaN nor the border is anybody's maximum
            tap = np.empty(top.shape, np.uint8)
            hit = np.empty(top.shape, bool)
            offsets = []
            for number, (cell, index) in reversed(list(enumerate(taps(slides)))):  # the first of equal ones stays
                np.equal(padded[index], top, out=hit)
                np.copyto(tap, number, where=hit)
                offsets.append(sum(k * step for k, step in zip(cell, strides, strict=True)))
            where = np.take(np.array(offsets[::-1], np.int64), tap)
            where += corner
            return top, where
    clipped = [np.maximum(start, 0) for start in starts]
    best = x[(slice(None), *np.ix_(*clipped))]
    # Relative to the box's own corner; boxes that begin in the padding start at their first inside cell.
    where = np.zeros(best.shape, np.int32)
    where += _outer([(c - s) * step for c, s, step in zip(clipped, starts, strides, strict=True)])
    for offsets, index in taps(slides):
        larger = padded[index] > best
        np.copyto(best, padded[index], where=larger)
        np.copyto(where, sum(k * step for k, step in zip(offsets, strides, strict=True)), where=larger)
    return best, where + corner


_TAPS_IN_A_BYTE = 256
_PARTS = 4
"""Parts of a batch that threads take. With many short passes they would mostly wait for each other."""


def _max_grad(x: np.ndarray, dy: np.ndarray, slides: Sequence[Slide]) -> np.ndarray:
    """`dy` at the first maximum of each box: tap by tap, to the boxes whose maximum has not been met yet."""
    floor = lowest(x.dtype) if x.dtype.kind in "iu" else -np.inf
    padded = pad(x, slides, floor)
    top = _box_max(padded, slides, None, np.maximum)
    if np.any(top != top) or np.any(top == floor):
        # NaNs never equal their maximum, and the border may equal a maximum that is the lowest value itself.
        _, where = _box_argmax(x, slides)
        return _scatter(_flat_index(where, x[0].size // x.shape[-1], True), dy, x.shape, _disjoint(slides))
    dx = np.zeros((x.shape[0], *(max(s.reach, s.before + s.size) for s in slides), x.shape[-1]), dy.dtype)
    open_boxes = np.ones(top.shape, bool)
    hit = np.empty(top.shape, bool)
    zero = dy.dtype.type(0)
    for _, index in taps(slides):
        np.equal(padded[index], top, out=hit)
        hit &= open_boxes
        open_boxes ^= hit
        dx[index] += np.where(hit, dy, zero)
    return dx[(slice(None), *(slice(s.before, s.before + s.size) for s in slides))]


def _outer(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Sums of one entry from each part, shaped (*lengths, 1)."""
    total = np.zeros((1,) * (len(parts) + 1), np.int64)
    for axis, part in enumerate(parts):
        shape = [1] * (len(parts) + 1)
        shape[axis] = len(part)
        total = total + part.reshape(shape)
    return total


def _flat_index(where: np.ndarray, cells: int, with_batch: bool) -> np.ndarray:
    """Turns flat spatial indices (N, *out, C) into indices of the flattened (channels-last) tensor or image."""
    batch, channels = where.shape[0], where.shape[-1]
    index = where * channels
    index += np.arange(channels)
    if with_batch:
        index += (np.arange(batch) * (cells * channels)).reshape(-1, *(1,) * (where.ndim - 1))
    return index


def _scatter(index: np.ndarray, values: np.ndarray, shape: Sequence[int], disjoint: bool) -> np.ndarray:
    """Adds `values` at flat `index` positions of zeros; `disjoint` promises that no index comes twice."""
    size = int(np.prod(shape))
    if disjoint:
        flat = np.zeros(size, values.dtype)
        flat[index.ravel()] = values.ravel()
    elif values.dtype.kind == "f":
        flat = np.bincount(index.ravel(), values.ravel(), minlength=size).astype(values.dtype)
    else:
        flat = np.zeros(size, values.dtype)
        np.add.at(flat, index.ravel(), values.ravel())
    return flat.reshape(shape)


# ---------------------------------------------------------------------------------------------------------------------
# Checks


def _window_attrs(ksize, strides, rank: int) -> tuple[list[int], list[int]]:
    ksize, strides = np.asarray(ksize), np.asarray(strides)
    if ksize.shape != (rank,):
        raise errors.InvalidArgumentError(f"Sliding window ksize field must specify {rank} dimensions")
    if strides.shape != (rank,):
        raise errors.InvalidArgumentError(f"Sliding window stride field must specify {rank} dimensions")
    ksize, strides = ksize.tolist(), strides.tolist()
    if min(ksize) <= 0:
        if rank == 5:
            raise errors.InvalidArgumentError("Sliding window ksize field must have non-negative dimensions")
        shown = ",".join(map(str, ksize))
        raise errors.InvalidArgumentError(
            f"Sliding window ksize must be positive. The specified or inferred ksize is: {shown}"
        )
    if min(strides) <= 0:
        raise errors.InvalidArgumentError(f"Stride must be > 0, but got {min(strides)}")
    if ksize[0] != 1 or strides[0] != 1:
        raise errors.UnimplementedError("Pooling is not yet supported on the batch dimension.")
    return ksize, strides


def _slides(shape: Sequence[int], lay: Layout, ksize, strides, padding: bytes, explicit_paddings=()) -> list[Slide]:
    slides = slides_of(
        lay, lay.of_spatial(shape), lay.of_spatial(ksize), strides, padding, explicit_paddings=explicit_paddings
    )
    if padding == b"EXPLICIT":
        for s, names in zip(slides, (("Top", "Bottom"), ("Left", "Right")), strict=True):
            for amount, name in zip((s.before, s.after), names, strict=True):
                if amount >= s.window:
                    raise errors.InvalidArgumentError(
                        f"{name} padding {amount} needs to be smaller than the window size {s.window}"
                    )
    return slides


def _check_rank(x: np.ndarray, rank: int, name: str = "") -> None:
    if x.ndim != rank:
        if not name:
            raise errors.InvalidArgumentError(f"tensor_in_shape must have 2 spatial dimensions. {x.ndim} 0")
        raise errors.InvalidArgumentError(f"{name} must be {rank}-dimensional")


def _expect(what: str, shape: Sequence[int], wanted: Sequence[int]) -> None:
    if tuple(shape) != tuple(wanted):
        raise errors.InvalidArgumentError(f"Expected {what} shape to be {show(wanted)}, but got {show(shape)}")


def _check_depth_window(ksize, strides, lay: Layout) -> None:
    if ksize[lay.channel] != 1 or strides[lay.channel] != 1:
        raise errors.UnimplementedError("Pooling is not yet supported on the depth dimension.")


def _disjoint(slides: Sequence[Slide]) -> bool:
    return all(s.stride >= s.window for s in slides)


# ---------------------------------------------------------------------------------------------------------------------
# Maximum


def max_pool(x, *, ksize, strides, padding, explicit_paddings=(), data_format=b"NHWC"):
    """MaxPool. The window may also cover channels, if it covers nothing else and steps by its own length."""
    lay = layout(data_format)
    ksize, strides = _window_attrs(ksize, strides, 4)
    _check_rank(x, 4)
    if ksize[lay.channel] != 1:
        return _depth_max_pool(x, lay, ksize, strides)
    slides = _slides(x.shape, lay, ksize, strides, padding, explicit_paddings)
    return _max_pool(x, slides, lay, lowest(x.dtype))


def _max_pool(x: np.ndarray, slides: Sequence[Slide], lay: Layout, floor) -> np.ndarray:
    wide = to_last(x, lay)
    shape = (x.shape[0], *(s.out for s in slides), wide.shape[-1])
    if 0 in shape:
        return np.zeros(lay.build(shape[0], shape[1:-1], shape[-1]), x.dtype)
    if floor is not None and _can_fold(wide, slides):
        return from_last(regions.fold("fmax", np.ascontiguousarray(wide), *_rectangles(slides), floor), lay, x.dtype)
    border = floor if floor is not None else -np.inf
    return from_last(_box_max(pad(wide, slides, border), slides, floor), lay, x.dtype)


def _depth_max_pool(x: np.ndarray, lay: Layout, ksize: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    window, depth = ksize[lay.channel], x.shape[lay.channel]
    if any(k != 1 for k in lay.of_spatial(ksize)):
        raise errors.UnimplementedError(
            "MaxPooling supports exactly one of pooling across depth or pooling across width/height."
        )
    if window != strides[lay.channel]:
        raise errors.UnimplementedError("Depthwise max pooling requires the depth window to equal the depth stride")
    if depth % window:
        raise errors.UnimplementedError(
            "Depthwise max pooling requires the depth window to evenly divide the input depth"
        )
    wide = to_last(x, lay)
    return from_last(np.fmax.reduce(wide.reshape(*wide.shape[:-1], depth // window, window), -1), lay, x.dtype)


def max_pool_v2(x, ksize, strides, *, padding, data_format=b"NHWC"):
    """MaxPoolV2: window and strides come as tensors."""
    return max_pool(x, ksize=ksize, strides=strides, padding=padding, data_format=data_format)


def _grad_slides(x, y, ksize, strides, padding, explicit_paddings, lay) -> list[Slide]:
    ksize, strides = _window_attrs(ksize, strides, 4)
    _check_rank(x, 4, "tensor_in")
    _check_rank(y, 4, "tensor_out")
    if ksize[lay.channel] != 1 or strides[lay.channel] != 1:
        raise errors.UnimplementedError("MaxPoolingGrad is not yet supported on the depth dimension.")
    slides = _slides(x.shape, lay, ksize, strides, padding, explicit_paddings)
    _expect("orig_output", y.shape, lay.build(x.shape[0], [s.out for s in slides], x.shape[lay.channel]))
    return slides


def max_pool_grad(x, y, grad, *, ksize, strides, padding, explicit_paddings=(), data_format=b"NHWC"):
    """MaxPoolGrad: `grad` goes to the first maximum of each window."""
    lay = layout(data_format)
    slides = _grad_slides(x, y, ksize, strides, padding, explicit_paddings, lay)
    _check_rank(grad, 4, "out_backprop")
    _expect("grad", grad.shape, y.shape)
    if not grad.size:
        return np.zeros(x.shape, grad.dtype)
    wide, dy = to_last(x, lay), to_last(grad, lay)
    if wide.dtype == dy.dtype and _can_fold(wide, slides):
        parts = np.ascontiguousarray(wide), None, np.ascontiguousarray(dy)
        return from_last(regions.spread(*parts, *_rectangles(slides)), lay, grad.dtype)
    dx = np.empty(wide.shape, dy.dtype)
    for image in range(len(wide)):  # one at a time: the window's passes then run in cache
        one = slice(image, image + 1)
        dx[one] = _max_grad(wide[one], dy[one], slides)
    return from_last(dx, lay, grad.dtype)


def max_pool_grad_v2(x, y, grad, ksize, strides, *, padding, data_format=b"NHWC"):
    """MaxPoolGradV2: window and strides come as tensors."""
    return max_pool_grad(x, y, grad, ksize=ksize, strides=strides, padding=padding, data_format=data_format)


def max_pool_grad_grad(x, y, grad, *, ksize, strides, padding, data_format=b"NHWC"):
    """MaxPoolGradGrad: picks `grad`, shaped like `x`, where each window's first maximum is."""
    lay = layout(data_format)
    slides = _grad_slides(x, y, ksize, strides, padding, (), lay)
    _check_rank(grad, 4, "out_grad_backprop")
    _expect("grad", grad.shape, x.shape)
    return _pick(x, y, grad, slides, lay)


def _pick(x: np.ndarray, y: np.ndarray, grad: np.ndarray, slides: Sequence[Slide], lay: Layout) -> np.ndarray:
    if not y.size:
        return np.zeros(y.shape, grad.dtype)
    wide = to_last(x, lay)
    if wide.dtype == np.float32 and wide[0].size < 1 << 31 and native.available():
        images = np.ascontiguousarray(wide).reshape(len(wide), -1, wide.shape[-1])
        _, where = pixels_of_windows(tuple(slides)).find(images)
        picked = np.take_along_axis(to_last(grad, lay).reshape(len(wide), -1), where.reshape(len(wide), -1), 1)
        return from_last(picked.reshape(len(wide), *(s.out for s in slides), -1), lay, grad.dtype)
    _, where = _box_argmax(wide, slides)
    index = _flat_index(where, wide[0].size // wide.shape[-1], True)
    return from_last(to_last(grad, lay).ravel()[index], lay, grad.dtype)


def max_pool_grad_grad_v2(x, y, grad, ksize, strides, *, padding, data_format=b"NHWC"):
    """MaxPoolGradGradV2: window and strides come as tensors."""
    return max_pool_grad_grad(x, y, grad, ksize=ksize, strides=strides, padding=padding, data_format=data_format)


def max_pool_with_argmax(x, *, ksize, strides, padding, Targmax, include_batch_in_index=False):
    """MaxPoolWithArgmax: the maxima and their flat indices, (y * width + x) * channels + c, plus the image's start."""
    lay = layout(b"NHWC")
    ksize, strides = _window_attrs(ksize, strides, 4)
    if x.ndim != 4:
        raise errors.InvalidArgumentError("tensor_in must be 4-dimensional (2)")
    if not x.size:
        raise errors.InvalidArgumentError("tensor_in must not be empty (2)")
    slides = _slides(x.shape, lay, ksize, strides, padding)
    dtype = Targmax.np
    shape = (x.shape[0], *(s.out for s in slides), x.shape[3])
    if 0 in shape:
        return [np.zeros(shape, x.dtype), np.zeros(shape, dtype)]
    wide = widen(x)
    image = wide[0].size
    if wide.dtype == np.float32 and image < 1 << 31 and native.available():
        best, where = pixels_of_windows(tuple(slides)).find(np.ascontiguousarray(wide).reshape(len(x), -1, x.shape[3]))
        index = where.reshape(shape).astype(dtype, copy=False)
        if include_batch_in_index:
            index = index + (np.arange(len(x), dtype=dtype) * dtype.type(image)).reshape(-1, 1, 1, 1)
        return [narrow(best.reshape(shape), x.dtype), index]
    best, where = np.empty(shape, wide.dtype), np.empty(shape, np.int64)

    some = -(-len(x) // _PARTS)

    def work(part: int) -> None:
        images = slice(part * some, (part + 1) * some)
        best[images], where[images] = _box_argmax(wide[images], slides)

    parallel_for(-(-len(x) // some), work)
    index = _flat_index(where, x.shape[1] * x.shape[2], include_batch_in_index)
    return [narrow(best, x.dtype), index.astype(dtype, copy=False)]


def _are_inside(x: np.ndarray, argmax: np.ndarray, include_batch_in_index: bool) -> bool:
    """Whether all indices lie within their images."""
    places = argmax.reshape(len(x), -1)
    starts = np.arange(len(x)) * x[0].size if include_batch_in_index else 0
    return bool((places.min(1) >= starts).all() and (places.max(1) < starts + x[0].size).all())


def _argmax_index(x: np.ndarray, argmax: np.ndarray, include_batch_in_index: bool) -> np.ndarray:
    """Checked indices into the flattened `x`."""
    image = x[0].size if x.shape[0] else 0
    index = argmax.astype(np.int64)
    starts = (np.arange(x.shape[0]) * image).reshape(-1, 1, 1, 1)
    if not include_batch_in_index:
        index = index + starts
    wrong = (index < starts) | (index >= starts + image)
    if wrong.any():
        at = np.argwhere(wrong)[0]
        start = int(at[0]) * image
        raise errors.InvalidArgumentError(
            f"Invalid output gradient index: {int(index[tuple(at)])}, {start}, {start + image}"
        )
    return index


def _argmax_slides(x, ksize, strides, padding) -> tuple[int, ...]:
    ksize, strides = _window_attrs(ksize, strides, 4)
    _check_rank(x, 4)
    slides = _slides(x.shape, layout(b"NHWC"), ksize, strides, padding)
    return (x.shape[0], *(s.out for s in slides), x.shape[3])


def max_pool_grad_with_argmax(x, grad, argmax, *, ksize, strides, padding, include_batch_in_index=False):
    """MaxPoolGradWithArgmax: adds `grad` where `argmax` points."""
    shape = _argmax_slides(x, ksize, strides, padding)
    _expect("grad", grad.shape, shape)
    _expect("argmax", argmax.shape, shape)
    dy = widen(grad)
    if dy.size and rows.can_fold(np.add, dy.dtype) and _are_inside(x, argmax, include_batch_in_index):
        dx, places = np.zeros((len(x), x[0].size), dy.dtype), np.ascontiguousarray(argmax).reshape(len(x), -1)
        dy = np.ascontiguousarray(dy).reshape(*places.shape, 1)

        def work(i: int) -> None:
            rows.fold(np.add, dx.reshape(-1, 1) if include_batch_in_index else dx[i, :, None], places[i], dy[i])

        parallel_for(len(x), work)
        return narrow(dx.reshape(x.shape), grad.dtype)
    index = _argmax_index(x, argmax, include_batch_in_index)
    return narrow(_scatter(index, dy, x.shape, False), grad.dtype)


def max_pool_grad_grad_with_argmax(x, grad, argmax, *, ksize, strides, padding, include_batch_in_index=False):
    """MaxPoolGradGradWithArgmax: picks `grad`, shaped like `x`, where `argmax` points."""
    shape = _argmax_slides(x, ksize, strides, padding)
    _expect("grad", grad.shape, x.shape)
    _expect("argmax", argmax.shape, shape)
    return np.ascontiguousarray(grad).ravel()[_argmax_index(x, argmax, include_batch_in_index)]


# ---------------------------------------------------------------------------------------------------------------------
# Average


def avg_pool(x, *, ksize, strides, padding, data_format=b"NHWC"):
    """AvgPool: means over the cells of each window that lie inside the input."""
    lay = layout(data_format)
    ksize, strides = _window_attrs(ksize, strides, 4)
    _check_rank(x, 4)
    if ksize[lay.channel] != 1:
        raise errors.UnimplementedError("Non-spatial pooling is not yet supported. Volunteers? :)")
    return _avg_pool(x, _slides(x.shape, lay, ksize, strides, padding), lay)


def _avg_pool(x: np.ndarray, slides: Sequence[Slide], lay: Layout) -> np.ndarray:
    wide = to_last(x, lay)
    shape = (x.shape[0], *(s.out for s in slides), wide.shape[-1])
    if 0 in shape:
        return np.zeros(lay.build(shape[0], shape[1:-1], shape[-1]), x.dtype)
    if wide.dtype.kind == "f" and _can_fold(wide, slides):
        cells = _cells(slides, wide.dtype)[..., 0]
        return from_last(regions.fold("add", np.ascontiguousarray(wide), *_rectangles(slides), 0, cells), lay, x.dtype)
    y = _box_sum(pad(wide, slides), slides)
    y /= _cells(slides, y.dtype)
    return from_last(y, lay, x.dtype)


def avg_pool_grad(orig_input_shape, grad, *, ksize, strides, padding, data_format=b"NHWC"):
    """AvgPoolGrad: every gradient is shared out evenly over its window."""
    lay = layout(data_format)
    if orig_input_shape.ndim != 1 or orig_input_shape.size != 4:
        raise errors.InvalidArgumentError("out_backprop must be 1-dimensional and 4 elements")
    _check_rank(grad, 4, "out_backprop")
    ksize, strides = _window_attrs(ksize, strides, 4)
    if ksize[lay.channel] != 1:
        raise errors.UnimplementedError("Non-spatial pooling is not yet supported. Volunteers? :)")
    return _avg_pool_grad(orig_input_shape, grad, ksize, strides, padding, lay)


def _avg_pool_grad(orig_input_shape, grad, ksize, strides, padding, lay: Layout) -> np.ndarray:
    shape = tuple(int(size) for size in orig_input_shape)
    for size in shape:
        if size < 0:
            raise errors.InvalidArgumentError(f"Expected a non-negative size, got {size}")
    slides = _slides(shape, lay, ksize, strides, padding)
    _expect("grad", grad.shape, lay.build(shape[0], [s.out for s in slides], shape[lay.channel]))
    if not grad.size:
        return np.zeros(shape, grad.dtype)
    wide = to_last(grad, lay)
    return from_last(_box_spread(wide / _cells(slides, wide.dtype), slides), lay, grad.dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Three dimensions


def _slides_3d(x_shape, ksize, strides, padding, lay: Layout) -> list[Slide]:
    ksize, strides = _window_attrs(ksize, strides, 5)
    _check_depth_window(ksize, strides, lay)
    return _slides(x_shape, lay, ksize, strides, padding)


def max_pool3d(x, *, ksize, strides, padding, data_format=b"NDHWC"):
    """MaxPool3D."""
    lay = layout(data_format)
    _check_rank(x, 5, "tensor_in")
    return _max_pool(x, _slides_3d(x.shape, ksize, strides, padding, lay), lay, None)


def avg_pool3d(x, *, ksize, strides, padding, data_format=b"NDHWC"):
    """AvgPool3D."""
    lay = layout(data_format)
    _check_rank(x, 5, "tensor_in")
    return _avg_pool(x, _slides_3d(x.shape, ksize, strides, padding, lay), lay)


def avg_pool3d_grad(orig_input_shape, grad, *, ksize, strides, padding, data_format=b"NDHWC"):
    """AvgPool3DGrad."""
    lay = layout(data_format)
    if orig_input_shape.ndim != 1 or orig_input_shape.size != 5:
        raise errors.InvalidArgumentError("tensor_in must be 1-dimensional and 5 elements")
    _check_rank(grad, 5, "out_backprop")
    ksize, strides = _window_attrs(ksize, strides, 5)
    _check_depth_window(ksize, strides, lay)
    return _avg_pool_grad(orig_input_shape, grad, ksize, strides, padding, lay)


def _checked_3d(x, y, grad, grad_like, ksize, strides, padding, lay: Layout) -> list[Slide]:
    _check_rank(x, 5, "tensor_in")
    _check_rank(y, 5, "tensor_out")
    _check_rank(grad, 5, "out_backprop")
    slides = _slides_3d(x.shape, ksize, strides, padding, lay)
    _expect("orig_output", y.shape, lay.build(x.shape[0], [s.out for s in slides], x.shape[lay.channel]))
    _expect("grad", grad.shape, grad_like.shape)
    return slides


def max_pool3d_grad(x, y, grad, *, ksize, strides, padding, data_format=b"NDHWC"):
    """MaxPool3DGrad: unlike in two dimensions, every cell within 1e-5 of the maximum gets the gradient."""
    lay = layout(data_format)
    slides = _checked_3d(x, y, grad, y, ksize, strides, padding, lay)
    if not grad.size:
        return np.zeros(x.shape, grad.dtype)
    wide, top, dy = to_last(x, lay), to_last(y, lay), to_last(grad, lay)
    if dy.dtype == wide.dtype == np.float32 and native.available():
        return from_last(windows_of_pixels(tuple(slides)).spread(wide, top, dy, 1e-5), lay, grad.dtype)
    dx = np.empty(wide.shape, dy.dtype)
    covers = _disjoint(slides)
    inner = (slice(None), *(slice(s.before, s.before + s.size) for s in slides))

    def work(image: int) -> None:  # one at a time: the window's passes then run in cache
        one = slice(image, image + 1)
        padded = pad(wide[one], slides, -np.inf)
        mine = np.zeros((1, *(max(s.reach, s.before + s.size) for s in slides), wide.shape[-1]), dy.dtype)
        for _, index in taps(slides):
            distance = padded[index] - top[one]
            np.abs(distance, out=distance)
            near = distance < 1e-5
            if covers:  # no cell is part of two windows
                np.copyto(mine[index], dy[one], where=near)
            else:
                mine[index] += np.where(near, dy[one], dy.dtype.type(0))
        dx[one] = mine[inner]

    parallel_for(len(wide), work)
    return from_last(dx, lay, grad.dtype)


def max_pool3d_grad_grad(x, y, grad, *, ksize, strides, padding, data_format=b"NDHWC"):
    """MaxPool3DGradGrad: picks `grad`, shaped like `x`, where each window's first maximum is."""
    lay = layout(data_format)
    return _pick(x, y, grad, _checked_3d(x, y, grad, x, ksize, strides, padding, lay), lay)
