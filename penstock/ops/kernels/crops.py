"""Crops of images, of one size, and their gradients. A box is (y1, x1, y2, x2), relative to height - 1 and width - 1 of an image."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError, OutOfRangeError
from penstock.ops.kernels.rows import scatter_rows
from penstock.ops.kernels.threads import parallel_for, serial
from penstock.ops.native import pixels
from penstock.ops.native.frames import share_out

_BLOCK = 1 << 17  # numbers that crops are mixed from at a time
_THREADS_FROM = 1 << 20  # as many as this are shared out to threads, which otherwise only wait for each other
_NATIVE_FROM = 1 << 11  # fewer numbers are not worth a loop in machine code


def _positions(first: Any, last: Any, count: int, size: int) -> np.ndarray:
    """Where the samples of one side of a crop lie, in pixels; for vectors of ends, a row for each."""
    f = np.float32
    first, last = np.asarray(first, f)[..., None], np.asarray(last, f)[..., None]
    if count > 1:
        step = (last - first) * f(size - 1) / f(count - 1)
        return first * f(size - 1) + np.arange(count, dtype=f) * step
    return f(0.5) * (first + last) * f(size - 1)


def _check_boxes(boxes: Any, box_ind: Any, batch: int) -> None:
    if boxes.ndim != 2:
        raise InvalidArgumentError("boxes must be 2-D")
    if boxes.shape[1] != 4:
        raise InvalidArgumentError("boxes must have 4 columns")
    if box_ind.ndim != 1:
        raise InvalidArgumentError("box_index must be 1-D")
    if len(box_ind) != len(boxes):
        raise InvalidArgumentError("box_index has incompatible shape")
    if len(box_ind) and (box_ind.min() < 0 or box_ind.max() >= batch):
        raise OutOfRangeError("box_index has values outside [0, batch_size)")


def _check_grads(grads: Any, boxes: Any) -> None:
    if len(grads) != len(boxes):
        raise InvalidArgumentError("boxes and grads have incompatible shape")


def _neighbours(at: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(inside, pixel before, pixel after, share of the one after)."""
    inside = (at >= 0) & (at <= size - 1)
    return inside, *_sides(np.where(inside, at, 0))


def _sides(at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(pixel before, pixel after, share of the one after) of places inside an image."""
    low = np.floor(at).astype(np.int64)
    high = np.ceil(at).astype(np.int64)
    return low, high, (at - low).astype(np.float32)


def crop_and_resize(image: Any, boxes: Any, box_ind: Any, crop_size: Any, *, method: bytes, extrapolation_value: float) -> np.ndarray:
    if image.ndim != 4:
        raise InvalidArgumentError(f"input image must be 4-D[{','.join(map(str, image.shape))}]")
    if crop_size.shape != (2,):
        raise InvalidArgumentError("crop_size must be 1-D with two elements" if crop_size.ndim == 1 else "crop_size must be 1-D")
    height, width = int(crop_size[0]), int(crop_size[1])
    if height <= 0 or width <= 0:
        raise InvalidArgumentError("crop dimensions must be positive")
    batch, image_height, image_width, depth = image.shape
    if image_height <= 0 or image_width <= 0:
        raise InvalidArgumentError("image dimensions must be positive")
    _check_boxes(boxes, box_ind, batch)
    if not np.isfinite(boxes).all():
        raise InvalidArgumentError("Boxes contains at least one element that is not finite")
    ys, xs = _positions(boxes[:, 0], boxes[:, 2], height, image_height), _positions(boxes[:, 1], boxes[:, 3], width, image_width)
    in_y, in_x = (ys >= 0) & (ys <= image_height - 1), (xs >= 0) & (xs <= image_width - 1)
    is_inside = in_y.all() and in_x.all()
    if not is_inside:
        ys, xs = np.where(in_y, ys, 0), np.where(in_x, xs, 0)
    crops = np.empty((len(boxes), height, width * depth), np.float32)
    if crops.size:
        image = np.ascontiguousarray(image)
        source = (image if image.dtype == np.float32 else image.astype(np.float32)).reshape(-1, depth)
        first = (box_ind.astype(np.int64) * image_height)[:, None]
        is_native = crops.size >= _NATIVE_FROM and pixels.available()
        if method == b"nearest":
            rows, columns = first + (ys + 0.5).astype(np.int64), (xs + 0.5).astype(np.int64)
            nearest = crops.reshape(len(boxes), height, width, depth)

            def some_boxes(start: int, end: int) -> None:
                np.take(source, _flat(rows[start:end], columns[start:end], image_width), 0, nearest[start:end], "clip")

            share_out(len(boxes), nearest[0].size, some_boxes)
        else:
            mix = _mix if is_native else _blend
            (top, bottom, share_y), (left, right, share_x) = _sides(ys), _sides(xs)
            mix(source, (first + top, first + bottom), (left, right), share_y, share_x, image_width, crops)
    crops = crops.reshape(len(boxes), height, width, depth)
    if not is_inside:
        crops[~(in_y[:, :, None] & in_x[:, None, :])] = extrapolation_value
    return crops


def _flat(rows: np.ndarray, columns: np.ndarray, width: int) -> np.ndarray:
    """The numbers of the pixels where rows (n, ..., h) of images meet columns (n, w): (n, ..., h, w)."""
    return (rows * width)[..., None] + columns.reshape(len(columns), *(1,) * (rows.ndim - 1), columns.shape[1])


Sides = tuple[np.ndarray, np.ndarray]


def _mix(source: np.ndarray, rows: Sides, columns: Sides, share_y: np.ndarray, share_x: np.ndarray, image_width: int, out: np.ndarray) -> None:
    """`_blend` by a loop in machine code."""
    pixel = source[0].nbytes
    of_columns = pixels.mix_columns(np.stack(columns, -1) * pixel, share_x)
    each = of_columns.ctypes.data + np.arange(len(out))[:, None] * of_columns[0].nbytes
    of_rows = pixels.mix_rows(source.ctypes.data + np.stack(rows, -1) * (image_width * pixel), share_y, each)
    pixels.mix(of_rows, out.reshape(-1, columns[0].shape[1], source.shape[1]))


def _blend(source: np.ndarray, sides: Sides, columns: Sides, share_y: np.ndarray, share_x: np.ndarray, image_width: int, out: np.ndarray) -> None:
    """Bilinear mixes of the pixels at (upper, lower) rows (n, h) of all images and (left, right) `columns`, along x and then along y.

    A few crops at a time, so that what lies between stays in the processor's cache.
    """
    count, height, row = out.shape
    depth = source.shape[1]
    rows, share_x = np.stack(sides, 1), np.repeat(share_x, depth, 1)
    block = min(count, max(1, _BLOCK // (2 * height * row)))

    threaded = 2 * out.size >= _THREADS_FROM
    room = None if threaded else np.empty((2, block, 2, height, row), np.float32)

    def work(number: int) -> None:
        part = slice(number * block, min((number + 1) * block, count))
        here = rows[part]
        mine = np.empty((2, block, 2, height, row), np.float32) if room is None else room
        left, right = mine[0, : len(here)], mine[1, : len(here)]
        for target, column in zip((left, right), columns, strict=True):
            np.take(source, _flat(here, column[part], image_width), 0, target.reshape(*here.shape, -1, depth), "clip")
        right -= left
        right *= share_x[part, None, None, :]
        left += right
        upper, lower = left[:, 0], left[:, 1]
        lower -= upper
        lower *= share_y[part, :, None]
        np.add(upper, lower, out=out[part])

    (parallel_for if threaded else serial)(-(-count // block), work)


def crop_and_resize_grad_image(grads: Any, boxes: Any, box_ind: Any, image_size: Any, *, T: Any, method: bytes) -> np.ndarray:
    batch, image_height, image_width, depth = (int(d) for d in image_size)
    if grads.shape[-1] != depth:
        raise InvalidArgumentError("image_size and grads are incompatible")
    _check_boxes(boxes, box_ind, batch)
    _check_grads(grads, boxes)
    _, height, width, _ = grads.shape
    result = np.zeros((batch, image_height, image_width, depth), np.float32 if T.np not in (np.float64,) else np.float64)
    ys, xs = _positions(boxes[:, 0], boxes[:, 2], height, image_height), _positions(boxes[:, 1], boxes[:, 3], width, image_width)
    in_y, top, bottom, share_y = _neighbours(ys, image_height)
    in_x, left, right, share_x = _neighbours(xs, image_width)
    first = (box_ind.astype(np.int64) * image_height)[:, None]
    if method == b"nearest":
        rows, columns = first + np.floor(np.where(in_y, ys, 0) + 0.5).astype(np.int64), np.floor(np.where(in_x, xs, 0) + 0.5).astype(np.int64)
        inside = in_y[:, :, None] & in_x[:, None, :]
        scatter_rows(result.reshape(-1, depth), _flat(rows, columns, image_width)[inside], grads[inside].astype(result.dtype, copy=False), "add")
    elif result.dtype == np.float32 and grads.size >= _NATIVE_FROM and pixels.available():
        _unmix(grads, (in_y, first + top, first + bottom, share_y), (in_x, left, right, share_x), result)
    else:
        wy, wx = share_y[:, :, None, None], share_x[:, None, :, None]
        inside = in_y[:, :, None] & in_x[:, None, :]
        for rows, weight_y in ((top, 1 - wy), (bottom, wy)):
            for columns, weight_x in ((left, 1 - wx), (right, wx)):
                places = _flat(first + rows, columns, image_width)[inside]
                scatter_rows(result.reshape(-1, depth), places, (grads * weight_y * weight_x)[inside].astype(result.dtype, copy=False), "add")
    return result.astype(T.np)


Neighbours = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _unmix(grads: np.ndarray, of_rows: Neighbours, of_columns: Neighbours, result: np.ndarray) -> None:
    """Adds the gradients inside of the images to the pixels that they came from, by a loop in machine code.

    Neighbours are (inside, rows or columns before, those after, shares of the latter), one row of numbers for each box.
    """
    grads = np.ascontiguousarray(grads)
    _, height, width, depth = grads.shape
    pixel, row = depth * 4, result.shape[2] * depth * 4
    in_x, left, right, share_x = of_columns
    box, place = np.nonzero(in_x)
    columns = pixels.unmix_columns(np.stack([left[in_x], right[in_x]], -1) * pixel, share_x[in_x], place * pixel)
    counts = in_x.sum(1)
    starts = columns.ctypes.data + (np.cumsum(counts) - counts) * 32
    in_y, top, bottom, share_y = of_rows
    in_y = in_y & (counts > 0)[:, None]
    box, place = np.nonzero(in_y)
    addresses = result.ctypes.data + np.stack([top[in_y], bottom[in_y]], -1) * row
    gradients = grads.ctypes.data + (box * height + place) * (width * pixel)
    pixels.unmix(pixels.unmix_rows(addresses, share_y[in_y], starts[box], counts[box], gradients), depth)


def crop_and_resize_grad_boxes(grads: Any, image: Any, boxes: Any, box_ind: Any) -> np.ndarray:
    batch, image_height, image_width, depth = image.shape
    _check_boxes(boxes, box_ind, batch)
    _check_grads(grads, boxes)
    count, height, width, _ = grads.shape
    result = np.zeros((len(boxes), 4), np.float32)
    source = np.ascontiguousarray(image, np.float32).reshape(-1, depth)
    ys, xs = _positions(boxes[:, 0], boxes[:, 2], height, image_height), _positions(boxes[:, 1], boxes[:, 3], width, image_width)
    in_y, top, bottom, share_y = _neighbours(ys, image_height)
    in_x, left, right, share_x = _neighbours(xs, image_width)
    inside = (in_y[:, :, None] & in_x[:, None, :])[..., None]
    first = (box_ind.astype(np.int64) * image_height)[:, None]
    block = max(1, _BLOCK // max(1, height * width * depth))
    along_y, along_x = np.empty((count, height), np.float32), np.empty((count, width), np.float32)

    def work(number: int) -> None:
        part = slice(number * block, min((number + 1) * block, count))
        grad = grads[part]
        if not inside[part].all():
            grad = np.where(inside[part], grad, np.float32(0))
        a, b, c, d = (
            np.take(source, _flat((first + rows)[part], columns[part], image_width), 0) for rows in (top, bottom) for columns in (left, right)
        )
        for low, high, other_low, other_high, share, sums, name in (
            (a, c, b, d, share_x[part, None, :, None], along_y, "nhwc,nhwc->nh"),
            (a, b, c, d, share_y[part, :, None, None], along_x, "nhwc,nhwc->nw"),
        ):
            slope, other = high - low, other_high - other_low
            other -= slope
            other *= share
            slope += other
            np.einsum(name, grad, slope, out=sums[part])

    if grads.size:
        (parallel_for if grads.size >= _THREADS_FROM else serial)(-(-count // block), work)
        result[:, 0], result[:, 2] = _ends(along_y, height, image_height)
        result[:, 1], result[:, 3] = _ends(along_x, width, image_width)
    return result


def _ends(along: np.ndarray, count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of boxes' two ends from those of the samples between them."""
    if count > 1:
        towards_last = np.arange(count) * ((size - 1) / (count - 1))
        return (along * (size - 1 - towards_last)).sum(1), (along * towards_last).sum(1)
    half = along.sum(1) * 0.5 * (size - 1)
    return half, half
