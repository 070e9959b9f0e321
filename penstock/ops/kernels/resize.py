"""Resizing of images (batch, height, width, channels): bilinear, nearest, bicubic, area, and gradients.

Each method is linear and separable: an output row is a weighted sum of input rows, and likewise for columns. A method
is therefore a table per axis, `_Taps(at, weight)`: output i is the sum over t of weight[i, t] * input[at[i, t]].
Forward passes gather with it; gradients gather with it turned round, or multiply with it, written out as a matrix.
Loops in machine code do that where they can be made (`native.pixels`), NumPy elsewhere.

Positions are computed in float32, as TensorFlow does, because rounding decides which pixel is the nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache

import numpy as np

from penstock import errors
from penstock.ops.kernels.numeric import narrow, widen
from penstock.ops.kernels.threads import parallel_for, serial
from penstock.ops.kernels.window import show
from penstock.ops.native import pixels

_F = np.float32
# Bicubic weights come from a table with this many steps between two pixels.
_CUBIC_STEPS = 1024
# Fewer numbers than this are not worth a loop in machine code.
_NATIVE_FROM = 1 << 11
# Numbers that are mixed at a time, and how many there must be for threads to gain anything.
_PART, _THREADS_FROM = 1 << 18, 1 << 19


class _Taps:
    """Output i is the sum over t of weight[i, t] * input[at[i, t]]; the input has `size` rows (columns). Never changes once it is made."""

    def __init__(self, at: np.ndarray, weight: np.ndarray, size: int) -> None:
        self.at, self.weight, self.size = at, weight, size
        self._mixes: dict[tuple[bool, int], np.ndarray] = {}

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.at, self.weight))

    @property
    def matrix(self) -> np.ndarray:
        """The table as a matrix (out, in)."""
        dense = np.zeros((len(self.at), self.size), self.weight.dtype)
        np.add.at(dense, (np.arange(len(self.at))[:, None], self.at), self.weight)
        return dense

    @cached_property
    def sums(self) -> pixels.Sums:
        """The table for a loop in machine code; taps that nobody uses are left out."""
        used = self.weight.any(0)
        at, weight = self.at[:, used], self.weight[:, used]
        return pixels.Sums(np.arange(len(at) + 1) * at.shape[1], at.ravel(), weight.ravel())

    def mixes(self, step: int, of_rows: bool) -> np.ndarray:
        """The table of linear taps for another loop, whose pixels, or rows, are so many bytes apart."""
        found = self._mixes.get((of_rows, step))
        if found is None:
            offsets, share = self.at * step, self.weight[:, 1]
            found = pixels.mix_rows(offsets, share, 0) if of_rows else pixels.mix_columns(offsets, share)
            if len(self._mixes) >= _MOST_MIXES:
                self._mixes.clear()
            self._mixes[of_rows, step] = found
        return found

    @cached_property
    def sums_back(self) -> pixels.Sums:
        """The transpose: which of the outputs each input is part of."""
        at, weight = self.at.ravel(), self.weight.ravel()
        counted = np.flatnonzero(weight)
        order = counted[np.argsort(at[counted], kind="stable")]
        starts = np.concatenate([[0], np.cumsum(np.bincount(at[counted], minlength=self.size))])
        return pixels.Sums(starts, order // self.at.shape[1], weight[order])


_MOST_MIXES = 8
_kept = lru_cache(maxsize=32)
"""Tables are kept: a program resizes to few sizes, again and again."""


def _scale(size: int, out: int, align_corners: bool) -> np.float32:
    # A single pixel has no corners to align, and a scale of zero would cover no area.
    return _F(size - 1) / _F(out - 1) if align_corners and out > 1 and size > 1 else _F(size) / _F(out)


def _positions(size: int, out: int, align_corners: bool, half_pixel_centers: bool) -> np.ndarray:
    """Where each output pixel's centre falls in the input."""
    scale, at = _scale(size, out, align_corners), np.arange(out, dtype=_F)
    return (at + _F(0.5)) * scale - _F(0.5) if half_pixel_centers else at * scale


@_kept
def _linear_taps(size: int, out: int, align_corners: bool, half_pixel_centers: bool) -> _Taps:
    at = _positions(size, out, align_corners, half_pixel_centers)
    floor = np.floor(at)
    lower = np.maximum(floor.astype(np.int64), 0)
    upper = np.minimum(np.ceil(at).astype(np.int64), size - 1)
    part = at - floor
    return _Taps(np.stack([lower, upper], 1), np.stack([1 - part, part], 1), size)


def _nearest_index(size: int, out: int, align_corners: bool, half_pixel_centers: bool) -> np.ndarray:
    scale, at = _scale(size, out, align_corners), np.arange(out, dtype=_F)
    at = (at + _F(0.5)) * scale if half_pixel_centers else at * scale
    # Halves are rounded away from zero.
    index = np.floor(at + _F(0.5)) if align_corners else np.floor(at)
    return np.clip(index.astype(np.int64), 0, size - 1)


@_kept
def _nearest_taps(size: int, out: int, align_corners: bool, half_pixel_centers: bool) -> _Taps:
    return _Taps(_nearest_index(size, out, align_corners, half_pixel_centers)[:, None], np.ones((out, 1), _F), size)


@_kept
def _cubic_taps(size: int, out: int, align_corners: bool, half_pixel_centers: bool) -> _Taps:
    a = -0.5 if half_pixel_centers else -0.75
    at = _positions(size, out, align_corners, half_pixel_centers)
    floor = np.floor(at)
    step = np.rint((at - floor) * _F(_CUBIC_STEPS))
    near, far = step / _F(_CUBIC_STEPS), (_CUBIC_STEPS - step) / _F(_CUBIC_STEPS)

    def inner(x: np.ndarray) -> np.ndarray:
        x = x.astype(np.float64)
        return (((a + 2) * x - (a + 3)) * x * x + 1).astype(_F)

    def outer(x: np.ndarray) -> np.ndarray:
        x = x.astype(np.float64) + 1
        return (((a * x - 5 * a) * x + 8 * a) * x - 4 * a).astype(_F)

    weight = np.stack([outer(near), inner(near), inner(far), outer(far)], 1)
    index = floor.astype(np.int64)[:, None] + np.arange(-1, 3)
    inside = np.clip(index, 0, size - 1)
    if half_pixel_centers:
        # Pixels outside the image count nothing; the rest is scaled up to a sum of one.
        weight = np.where(inside == index, weight, _F(0))
        total = weight.sum(1, keepdims=True)
        small = np.abs(total) < 1000 * np.finfo(_F).tiny
        weight = weight / np.where(small, _F(1), total)
    return _Taps(inside, weight, size)


@_kept
def _area_taps(size: int, out: int, align_corners: bool) -> _Taps:
    scale = _scale(size, out, align_corners)
    start = np.arange(out, dtype=_F) * scale
    end = np.arange(1, out + 1, dtype=_F) * scale
    first = np.floor(start).astype(np.int64)
    last = np.ceil(end).astype(np.int64)
    index = first[:, None] + np.arange(max(1, int((last - first).max())))
    cover = np.minimum(index + _F(1), end[:, None]) - np.maximum(index.astype(_F), start[:, None])
    weight = np.where(index < last[:, None], cover, _F(0)).astype(_F) / scale
    return _Taps(np.clip(index, 0, size - 1), weight, size)


# ---------------------------------------------------------------------------------------------------------------------
# Checks


def _out_size(images: np.ndarray, size: np.ndarray, align_corners: bool, half_pixel_centers: bool) -> tuple[int, int]:
    _check_corners(align_corners, half_pixel_centers)
    if images.ndim != 4:
        raise errors.InvalidArgumentError(f"input must be 4-dimensional{show(images.shape)}")
    if size.ndim != 1:
        raise errors.InvalidArgumentError(f"shape_t must be 1-dimensional{show(size.shape)}")
    if size.size != 2:
        raise errors.InvalidArgumentError(f"shape_t must have two elements{show(size.shape)}")
    height, width = int(size[0]), int(size[1])
    if height <= 0 or width <= 0:
        raise errors.InvalidArgumentError("output dimensions must be positive")
    if not images.shape[3]:
        raise errors.InvalidArgumentError("image must have at least one channel")
    if not images.shape[1] or not images.shape[2]:
        raise errors.InvalidArgumentError("input image must be of non-zero size")
    return height, width


def _check_corners(align_corners: bool, half_pixel_centers: bool) -> None:
    if align_corners and half_pixel_centers:
        raise errors.InvalidArgumentError("If half_pixel_centers is True, align_corners must be False.")


def _check_grad(grads: np.ndarray, original_image: np.ndarray, align_corners: bool, half_pixel_centers: bool) -> None:
    _check_corners(align_corners, half_pixel_centers)
    if grads.ndim != 4:
        raise errors.InvalidArgumentError(f"input_grad must be 4-dimensional{show(grads.shape)}")
    if original_image.ndim != 4:
        raise errors.InvalidArgumentError(f"original_image must be 4-dimensional{show(original_image.shape)}")
    if not grads.shape[1] or not grads.shape[2]:
        raise errors.InvalidArgumentError("resized dimensions must be positive")


# ---------------------------------------------------------------------------------------------------------------------
# Kernels


def _gather(images: np.ndarray, rows: _Taps, columns: _Taps) -> np.ndarray:
    """Columns first, then rows; taps that nobody uses are skipped."""
    x = widen(images)
    x = x if x.dtype == _F else x.astype(_F)
    if _is_native(len(x) * len(rows.at) * len(columns.at) * x.shape[3]):
        return _weighted(x, rows.sums, columns.sums)
    for axis, (index, weight) in ((2, columns), (1, rows)):
        shape = [1, 1, 1, 1]
        shape[axis] = len(index)
        total = None
        for t in range(index.shape[1]):
            if not weight[:, t].any():
                continue
            part = np.take(x, index[:, t], axis)
            part *= weight[:, t].reshape(shape)
            total = part if total is None else np.add(total, part, out=total)
        assert total is not None  # the weights of an output never all vanish
        x = total
    return x


def _is_native(size: int) -> bool:
    """Whether a result of so many numbers is left to a loop in machine code."""
    return size >= _NATIVE_FROM and pixels.available()


def _weighted(x: np.ndarray, rows: pixels.Sums, columns: pixels.Sums) -> np.ndarray:
    """float32 images whose rows and columns are weighted sums of those of `x`. What makes images smaller comes first."""

    def along_rows(x: np.ndarray) -> np.ndarray:
        out = np.empty((len(x), rows.count, *x.shape[2:]), _F)
        rows.run(x.reshape(len(x), x.shape[1], -1), out.reshape(len(x), rows.count, -1))
        return out

    def along_columns(x: np.ndarray) -> np.ndarray:
        out = np.empty((*x.shape[:2], columns.count, x.shape[3]), _F)
        columns.run(x.reshape(-1, *x.shape[2:]), out.reshape(-1, *out.shape[2:]))
        return out

    x = np.ascontiguousarray(x)
    return along_columns(along_rows(x)) if rows.count < x.shape[1] else along_rows(along_columns(x))


def _mixed_linear(images: np.ndarray, rows: _Taps, columns: _Taps) -> np.ndarray:
    """`_gather_linear` by a loop in machine code."""
    x = np.ascontiguousarray(images, _F)
    batch, in_height, in_width, depth = x.shape
    out = np.empty((batch, len(rows.at), len(columns.at), depth), _F)
    row = in_width * depth * x.itemsize
    of_columns = columns.mixes(depth * x.itemsize, False)
    of_rows = pixels.mix_images(x.ctypes.data, batch, in_height * row, rows.mixes(row, True), of_columns)
    pixels.mix(of_rows, out.reshape(-1, len(columns.at), depth))
    return out


def _gather_linear(images: np.ndarray, rows: _Taps, columns: _Taps) -> np.ndarray:
    """As `_gather`, in the form a + (b - a) * part, which is exact where both pixels are equal.

    Some rows at a time, so that what lies between stays in the processor's cache.
    """
    is_native = _is_native(len(images) * len(rows.at) * len(columns.at) * images.shape[3])
    if is_native and images.dtype == _F:
        return _mixed_linear(images, rows, columns)
    used = np.unique(rows.at if rows.weight[:, 1].any() else rows.at[:, 0])
    if len(used) < images.shape[1]:  # images that become smaller: the other rows are not even converted
        images = np.take(images, used, 1)
        rows = _Taps(np.minimum(np.searchsorted(used, rows.at), len(used) - 1), rows.weight, len(used))
    if is_native:
        return _mixed_linear(images, rows, columns)
    x = np.ascontiguousarray(images, _F)
    batch, in_height, in_width, depth = x.shape
    height, width = len(rows.at), len(columns.at)
    across = np.empty((batch, in_height, width * depth), _F)
    if not across.size:
        return np.empty((batch, height, width, depth), _F)
    lines, mixed = x.reshape(batch * in_height, in_width, depth), across.reshape(batch * in_height, width * depth)
    share = np.repeat(columns.weight[:, 1], depth) if columns.weight[:, 1].any() else None

    def mix_columns(part: slice) -> None:
        lower, target = lines[part], mixed[part]
        np.take(lower, columns.at[:, 0], 1, target.reshape(len(target), width, depth), "clip")
        if share is not None:
            _mix(target, np.take(lower, columns.at[:, 1], 1, mode="clip").reshape(target.shape), share, target)

    _in_parts(len(mixed), width * depth, mix_columns)
    part_y = rows.weight[:, 1]
    if np.array_equal(rows.at[:, 0], np.arange(in_height)) and not part_y.any():
        return across.reshape(batch, height, width, depth)
    result = np.empty((batch * height, width * depth), _F)
    first = (np.arange(batch) * in_height)[:, None]
    above, below = ((first + rows.at[:, t]).reshape(-1) for t in (0, 1))
    weight = np.tile(part_y, batch)[:, None]

    def mix_rows(part: slice) -> None:
        target = result[part]
        np.take(mixed, above[part], 0, target, "clip")
        if part_y.any():
            _mix(target, np.take(mixed, below[part], 0, mode="clip"), weight[part], target)

    _in_parts(len(result), width * depth, mix_rows)
    return result.reshape(batch, height, width, depth)


def _mix(lower: np.ndarray, upper: np.ndarray, share: np.ndarray, out: np.ndarray) -> None:
    """lower + (upper - lower) * share; `upper` is spent."""
    upper -= lower
    upper *= share
    np.add(lower, upper, out=out)


def _in_parts(count: int, size: int, work: Callable[[slice], None]) -> None:
    """work(part) for stretches of `count` rows of `size` numbers, on several threads if there are many."""
    step = max(1, _PART // size)
    run = parallel_for if count * size >= _THREADS_FROM else serial
    run(-(-count // step), lambda i: work(slice(i * step, min((i + 1) * step, count))))


def _spread(grads: np.ndarray, of_rows: _Taps, of_columns: _Taps, original: np.ndarray) -> np.ndarray:
    """The transpose of a gather out of images like `original`."""
    batch, height, width, depth = grads.shape
    in_height, in_width = original.shape[1:3]
    if original.dtype != np.float64 and grads.dtype == _F and grads.size and _is_native(batch * in_height * in_width * depth):
        return narrow(_weighted(grads, of_rows.sums_back, of_columns.sums_back), original.dtype)
    rows, columns = of_rows.matrix, of_columns.matrix
    dtype = np.float64 if original.dtype == np.float64 else grads.dtype
    x = np.matmul(rows.T.astype(dtype), grads.reshape(batch, height, width * depth))
    x = x.reshape(batch * in_height, width, depth)
    x = np.matmul(columns.T.astype(dtype), x)
    return narrow(x.reshape(batch, in_height, in_width, depth), original.dtype)


def linear_taps(images: np.ndarray, size: np.ndarray, align_corners: bool, half_pixel_centers: bool) -> tuple[_Taps, _Taps]:
    """The tables of rows and columns that take images to `size`; InvalidArgumentError if they do not fit."""
    height, width = _out_size(images, size, align_corners, half_pixel_centers)
    rows = _linear_taps(images.shape[1], height, align_corners, half_pixel_centers)
    return rows, _linear_taps(images.shape[2], width, align_corners, half_pixel_centers)


def resize_bilinear(images, size, *, align_corners=False, half_pixel_centers=False):
    """ResizeBilinear: always float32."""
    return _gather_linear(images, *linear_taps(images, size, align_corners, half_pixel_centers))


def resize_bilinear_grad(grads, original_image, *, align_corners=False, half_pixel_centers=False):
    """ResizeBilinearGrad."""
    _check_grad(grads, original_image, align_corners, half_pixel_centers)
    height, width = original_image.shape[1:3]
    rows = _linear_taps(height, grads.shape[1], align_corners, half_pixel_centers)
    columns = _linear_taps(width, grads.shape[2], align_corners, half_pixel_centers)
    return _spread(grads, rows, columns, original_image)


def resize_bicubic(images, size, *, align_corners=False, half_pixel_centers=False):
    """ResizeBicubic: always float32."""
    height, width = _out_size(images, size, align_corners, half_pixel_centers)
    rows = _cubic_taps(images.shape[1], height, align_corners, half_pixel_centers)
    columns = _cubic_taps(images.shape[2], width, align_corners, half_pixel_centers)
    return _gather(images, rows, columns)


def resize_bicubic_grad(grads, original_image, *, align_corners=False, half_pixel_centers=False):
    """ResizeBicubicGrad."""
    _check_grad(grads, original_image, align_corners, half_pixel_centers)
    height, width = original_image.shape[1:3]
    rows = _cubic_taps(height, grads.shape[1], align_corners, half_pixel_centers)
    columns = _cubic_taps(width, grads.shape[2], align_corners, half_pixel_centers)
    return _spread(grads, rows, columns, original_image)


def resize_area(images, size, *, align_corners=False):
    """ResizeArea: means over the input area that each output pixel covers; always float32."""
    height, width = _out_size(images, size, align_corners, False)
    rows = _area_taps(images.shape[1], height, align_corners)
    columns = _area_taps(images.shape[2], width, align_corners)
    return _gather(images, rows, columns)


def resize_nearest_neighbor(images, size, *, align_corners=False, half_pixel_centers=False):
    """ResizeNearestNeighbor: keeps the dtype."""
    height, width = _out_size(images, size, align_corners, half_pixel_centers)
    rows = _nearest_index(images.shape[1], height, align_corners, half_pixel_centers)
    columns = _nearest_index(images.shape[2], width, align_corners, half_pixel_centers)
    return np.take(np.take(images, rows, 1), columns, 2)


def resize_nearest_neighbor_grad(grads, size, *, align_corners=False, half_pixel_centers=False):
    """ResizeNearestNeighborGrad: every gradient is added to the pixel that it came from."""
    _check_corners(align_corners, half_pixel_centers)
    if grads.ndim != 4:
        raise errors.InvalidArgumentError(f"input must be 4-dimensional{show(grads.shape)}")
    if size.ndim != 1:
        raise errors.InvalidArgumentError(f"shape_t must be 1-dimensional{show(size.shape)}")
    if size.size != 2:
        raise errors.InvalidArgumentError(f"shape_t must have two elements{show(size.shape)}")
    height, width = int(size[0]), int(size[1])
    if height <= 0 or width <= 0:
        raise errors.InvalidArgumentError("shape_t's elements must be positive")
    rows = _nearest_index(height, grads.shape[1], align_corners, half_pixel_centers)
    columns = _nearest_index(width, grads.shape[2], align_corners, half_pixel_centers)
    wide = widen(grads)
    if wide.dtype == _F and wide.size and _is_native(len(wide) * height * width * wide.shape[3]):
        of_rows = _nearest_taps(height, grads.shape[1], align_corners, half_pixel_centers)
        of_columns = _nearest_taps(width, grads.shape[2], align_corners, half_pixel_centers)
        return narrow(_weighted(wide, of_rows.sums_back, of_columns.sums_back), grads.dtype)
    result = np.zeros((grads.shape[0], height, width, grads.shape[3]), wide.dtype)
    summed = np.zeros((grads.shape[0], height, grads.shape[2], grads.shape[3]), wide.dtype)
    for out, source in enumerate(rows):
        summed[:, source] += wide[:, out]
    for out, source in enumerate(columns):
        result[:, :, source] += summed[:, :, out]
    return narrow(result, grads.dtype)
