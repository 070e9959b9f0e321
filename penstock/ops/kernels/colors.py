"""Colours of images whose last axis is (red, green, blue) or (hue, saturation, value); all in [0, 1] but the values themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops import native
from penstock.ops.kernels.threads import parallel_for
from penstock.ops.native import planes
from penstock.ops.native import rows as folds


def _channels(images: Any, what: str = "input") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if images.ndim < 1:
        raise InvalidArgumentError(f"input must be at least 1D {images.shape}")
    if images.shape[-1] != 3:
        raise InvalidArgumentError(f"input must have 3 channels but instead has {images.shape[-1]} channels.")
    return images[..., 0], images[..., 1], images[..., 2]


def _wide(images: np.ndarray) -> np.ndarray:
    """Half precision is computed in float32."""
    return images if images.dtype in (np.float32, np.float64) else images.astype(np.float32)


Formula = Callable[..., tuple[Any, Any, Any]]
"""Three channels out of three channels, and a number if the op has one; arrays, or vectors of `penstock.ops.native`."""


def _by_pixel(formula: Formula, images: np.ndarray, *amount: Any) -> np.ndarray:
    """The images whose channels are formula(red, green, blue, *amount): some pixels at a time, taken apart into channels and put together again."""
    _channels(images)
    wide = np.ascontiguousarray(_wide(images))
    source = wide.reshape(-1, 3)
    result = np.empty(images.shape, images.dtype)
    target = result.reshape(-1, 3)
    number = [np.asarray(a, wide.dtype) for a in amount]
    count = len(source)
    run = planes.by_pixel(formula, len(amount)) if wide.dtype == np.float32 and wide.size >= native.SMALL else None

    def work(block: int) -> None:
        part = slice(block * _PIXELS, min((block + 1) * _PIXELS, count))
        if run is not None:
            made = target[part] if result.dtype == wide.dtype else np.empty(source[part].shape, wide.dtype)
            run(source[part], made, *number)
            if made.dtype != result.dtype:
                target[part] = made
            return
        channels = np.ascontiguousarray(source[part].T)
        for i, plane in enumerate(formula(*channels, *number)):  # quicker than all at once
            target[part, i] = plane

    parallel_for(-(-count // _PIXELS), work)
    return result


_PIXELS = 1 << 14
"""Pixels that are taken at a time: their channels stay in the second cache of a core."""


def _hue(r: Any, g: Any, b: Any, top: Any, spread: Any) -> Any:
    """The hue in [0, 1); 0 for greys."""
    kind = spread.dtype.type
    norm = kind(1) / (spread * kind(6))
    hue = np.where(r == top, (g - b) * norm, np.where(g == top, (b - r) * norm + kind(2) / kind(6), (r - g) * norm + kind(4) / kind(6)))
    hue = np.where(spread > 0, hue, kind(0))
    return np.where(hue < 0, hue + kind(1), hue)


def _to_hsv(r: Any, g: Any, b: Any) -> tuple[Any, Any, Any]:
    top, bottom = np.maximum(np.maximum(r, g), b), np.minimum(np.minimum(r, g), b)
    spread = top - bottom
    return _hue(r, g, b, top, spread), np.where(top > 0, spread / top, top.dtype.type(0)), top


def _shares(hue: Any) -> tuple[Any, Any, Any]:
    """How much of red, of green and of blue there is in a pure colour."""
    kind = hue.dtype.type
    zero, one, two = kind(0), kind(1), kind(2)
    angle = hue * kind(6)
    return (
        np.clip(np.abs(angle - kind(3)) - one, zero, one),
        np.clip(two - np.abs(angle - two), zero, one),
        np.clip(two - np.abs(angle - kind(4)), zero, one),
    )


def _to_rgb(h: Any, s: Any, v: Any) -> tuple[Any, Any, Any]:
    rest = s.dtype.type(1) - s
    red, green, blue = _shares(h)
    return (rest + s * red) * v, (rest + s * green) * v, (rest + s * blue) * v


def _turned(r: Any, g: Any, b: Any, delta: Any) -> tuple[Any, Any, Any]:
    """The hue moved by `delta` turns."""
    top, bottom = np.maximum(np.maximum(r, g), b), np.minimum(np.minimum(r, g), b)
    spread = top - bottom
    red, green, blue = _shares((_hue(r, g, b, top, spread) + delta) % 1)
    return bottom + spread * red, bottom + spread * green, bottom + spread * blue


def _saturated(r: Any, g: Any, b: Any, scale: Any) -> tuple[Any, Any, Any]:
    h, s, v = _to_hsv(r, g, b)
    kind = s.dtype.type
    return _to_rgb(h, np.clip(s * scale, kind(0), kind(1)), v)


def rgb_to_hsv(images: Any) -> np.ndarray:
    return _by_pixel(_to_hsv, images)


def hsv_to_rgb(images: Any) -> np.ndarray:
    return _by_pixel(_to_rgb, images)


def _image_and_scalar(images: Any, scalar: Any, name: str) -> None:
    if images.ndim < 3:
        raise InvalidArgumentError(f"input must be at least 3-D, got shape{_text(images)}")
    if np.ndim(scalar) != 0:
        raise InvalidArgumentError(f"{name} must be scalar: {_text(scalar)}")


def _text(array: Any) -> str:
    return "[" + ",".join(str(d) for d in np.shape(array)) + "]"


def adjust_hue(images: Any, delta: Any) -> np.ndarray:
    _image_and_scalar(images, delta, "delta")
    return _by_pixel(_turned, images, delta)


def adjust_saturation(images: Any, scale: Any) -> np.ndarray:
    _image_and_scalar(images, scale, "scale")
    return _by_pixel(_saturated, images, scale)


def adjust_contrast(images: Any, factor: Any) -> np.ndarray:
    """Moves each channel away from its mean over height and width."""
    _image_and_scalar(images, factor, "contrast_factor")
    wide = _wide(images)
    if not wide.size:
        return images
    *_, height, width, depth = wide.shape
    rows = np.ascontiguousarray(wide).reshape(-1, height, width * depth)
    result = np.empty(rows.shape, wide.dtype)
    scale, period = np.asarray(factor, wide.dtype), depth // math.gcd(depth, 16)
    run = planes.by_row(_apart, period, 1) if wide.dtype == np.float32 and period <= _LONGEST_PERIOD else None

    folds_columns = 1 < depth <= 8 and len(rows) * width >= _COLUMNS and folds.can_fold(np.add, _DOUBLE)
    image_of = np.repeat(np.arange(len(rows)), width) if folds_columns else None
    channels = np.arange(16 * period if run is not None else width * depth) % depth

    def work(first: int, end: int) -> None:
        # Rows are long and quick to compute with; only their sums are taken apart into channels.
        columns = np.add.reduce(rows[first:end, :_ROWS], 1).astype(np.float64)
        for start in range(_ROWS, height, _ROWS):
            columns += np.add.reduce(rows[first:end, start : start + _ROWS], 1)
        if image_of is None:
            sums = np.add.reduce(columns.reshape(-1, width, depth), 1)
        else:  # in the same order, if there are several channels
            sums = np.full((end - first, depth), -0.0)
            folds.fold(np.add, sums, image_of[: len(sums) * width], columns.reshape(-1, depth), in_groups=True)
        means = (sums / (height * width)).astype(wide.dtype)
        patterns = means.take(channels, 1)
        for i, pattern in zip(range(first, end), patterns):
            if run is not None:
                run(rows[i].reshape(-1), pattern, result[i].reshape(-1), scale)
            else:
                result[i] = _apart(rows[i], pattern, scale)

    pieces = min(len(rows), max(1, rows.size // _PIECE), 4)
    parallel_for(pieces, lambda i: work(len(rows) * i // pieces, len(rows) * (i + 1) // pieces))
    return result.reshape(wide.shape).astype(images.dtype, copy=False)


def _apart(x: Any, mean: Any, factor: Any) -> Any:
    return (x - mean) * factor + mean


_DOUBLE = np.dtype(np.float64)
_PIECE = 1 << 18
"""Numbers that are worth a thread: about 70 us."""
_COLUMNS = 1 << 9
"""Columns of pixels of all images from which on NumPy's sums take longer than a loop for few channels."""
_ROWS = 1 << 8
"""Rows of an image that are summed in their own precision."""
_LONGEST_PERIOD = 7
"""Vectors after which the channels begin again, up to which a loop in machine code is written for them."""
