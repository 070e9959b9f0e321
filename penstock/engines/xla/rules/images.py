"""Resizing of images and their colours. Which pixels meet which is tabulated when the program is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engines.xla.checks import need, refusals
from penstock.engines.xla.rule import jnp, rule, static_ints
from penstock.ops.kernels import resize as tables
from penstock.ops.kernels.numeric import narrow, widen

_F = np.float32

# -- resizing ---------------------------------------------------------------------------------------------------------


def _axis_shape(axis: int) -> list[int]:
    return [-1 if i == axis else 1 for i in range(4)]


def _out_size(images: Any, size: Any, align_corners: bool, half_pixel_centers: bool) -> tuple[int, int]:
    sizes = static_ints(size)
    need(len(sizes) == 2 and min(sizes) > 0, "an empty size")
    need(images.ndim == 4 and 0 not in images.shape[1:] and not (align_corners and half_pixel_centers), "no stack of images")
    return sizes[0], sizes[1]


def _gather(images: Any, taps: tuple[Any, Any]) -> Any:
    """Weighted sums of columns, then of rows; `taps` are the tables of rows and columns."""
    x = images.astype(_F)
    for axis, (index, weight) in ((2, taps[1]), (1, taps[0])):
        x = sum(
            jnp.take(x, index[:, t], axis) * weight[:, t].reshape(_axis_shape(axis)) for t in range(index.shape[1]) if weight[:, t].any()
        )
    return x


@rule("ResizeBilinear")
def resize_bilinear(images: Any, size: Any, *, align_corners: bool, half_pixel_centers: bool) -> Any:
    sizes = _out_size(images, size, align_corners, half_pixel_centers)
    x = images.astype(_F)
    for axis in (2, 1):  # as a + (b - a) * part, which is exact where both pixels are equal
        index, weight = tables._linear_taps(x.shape[axis], sizes[axis - 1], align_corners, half_pixel_centers)
        lower, upper = (jnp.take(x, index[:, t], axis) for t in (0, 1))
        x = lower + (upper - lower) * weight[:, 1].reshape(_axis_shape(axis))
    return x


@rule("ResizeBicubic")
def resize_bicubic(images: Any, size: Any, *, align_corners: bool, half_pixel_centers: bool) -> Any:
    sizes = _out_size(images, size, align_corners, half_pixel_centers)
    rows, columns = (
        tables._cubic_taps(images.shape[i + 1], sizes[i], align_corners, half_pixel_centers) for i in (0, 1)
    )
    return _gather(images, (rows, columns))


@rule("ResizeArea")
def resize_area(images: Any, size: Any, *, align_corners: bool) -> Any:
    sizes = _out_size(images, size, align_corners, False)
    rows, columns = (tables._area_taps(images.shape[i + 1], sizes[i], align_corners) for i in (0, 1))
    return _gather(images, (rows, columns))


def _spread(grads: Any, images: Any, taps: Any, align_corners: bool, half_pixel_centers: bool) -> Any:
    """The transpose of a gather: a product with the tables, written out as matrices."""
    with refusals():
        tables._check_grad(grads, images, align_corners, half_pixel_centers)
    dtype = np.float64 if images.dtype == np.float64 else np.float32
    rows, columns = (
        taps(images.shape[i], grads.shape[i], align_corners, half_pixel_centers).matrix.astype(dtype) for i in (1, 2)
    )
    return narrow(jnp.einsum("nhwc,hy,wx->nyxc", grads.astype(dtype), rows, columns, precision="highest"), images.dtype)


@rule("ResizeBilinearGrad")
def resize_bilinear_grad(grads: Any, images: Any, *, align_corners: bool, half_pixel_centers: bool) -> Any:
    return _spread(grads, images, tables._linear_taps, align_corners, half_pixel_centers)


@rule("ResizeBicubicGrad")
def resize_bicubic_grad(grads: Any, images: Any, *, align_corners: bool, half_pixel_centers: bool) -> Any:
    return _spread(grads, images, tables._cubic_taps, align_corners, half_pixel_centers)


@rule("ResizeNearestNeighbor")
def resize_nearest(images: Any, size: Any, *, align_corners: bool, half_pixel_centers: bool) -> Any:
    sizes = _out_size(images, size, align_corners, half_pixel_centers)
    for axis in (1, 2):
        index = tables._nearest_index(images.shape[axis], sizes[axis - 1], align_corners, half_pixel_centers)
        images = jnp.take(images, index, axis)
    return images


@rule("ResizeNearestNeighborGrad")
def resize_nearest_grad(grads: Any, size: Any, *, align_corners: bool, half_pixel_centers: bool) -> Any:
    """Every gradient is added to the pixel that it came from."""
    height, width = _out_size(grads, size, align_corners, half_pixel_centers)
    rows = tables._nearest_index(height, grads.shape[1], align_corners, half_pixel_centers)
    columns = tables._nearest_index(width, grads.shape[2], align_corners, half_pixel_centers)
    wide = widen(grads)
    summed = jnp.zeros((grads.shape[0], height, *grads.shape[2:]), wide.dtype).at[:, rows].add(wide)
    result = jnp.zeros((grads.shape[0], height, width, grads.shape[3]), wide.dtype).at[:, :, columns].add(summed)
    return narrow(result, grads.dtype)


# -- colours ----------------------------------------------------------------------------------------------------------


def _channels(images: Any) -> tuple[Any, Any, Any]:
    need(images.ndim >= 1 and images.shape[-1] == 3, "images of other than three channels")
    return images[..., 0], images[..., 1], images[..., 2]


def _need_images(images: Any, scalar: Any) -> None:
    need(images.ndim >= 3 and np.ndim(scalar) == 0, "no images")


def _hue(r: Any, g: Any, b: Any, top: Any, spread: Any) -> Any:
    """The hue in [0, 1); 0 for greys."""
    norm = 1 / (spread * 6)
    two, four = spread.dtype.type(2) / 6, spread.dtype.type(4) / 6
    hue = jnp.where(r == top, norm * (g - b), jnp.where(g == top, norm * (b - r) + two, norm * (r - g) + four))
    hue = jnp.where(spread > 0, hue, spread.dtype.type(0))
    return jnp.where(hue < 0, hue + 1, hue)


def _hsv(wide: Any) -> tuple[Any, Any, Any]:
    r, g, b = _channels(wide)
    top = jnp.maximum(jnp.maximum(r, g), b)
    spread = top - jnp.minimum(jnp.minimum(r, g), b)
    return _hue(r, g, b, top, spread), jnp.where(top > 0, spread / top, top.dtype.type(0)), top


def _shares(hue: Any) -> tuple[Any, Any, Any]:
    """How much of each channel there is in a pure colour."""
    angle = hue * 6
    shares = jnp.abs(angle - 3) - 1, 2 - jnp.abs(angle - 2), 2 - jnp.abs(angle - 4)
    return tuple(jnp.clip(share, 0, 1) for share in shares)  # type: ignore[return-value]


def _rgb(h: Any, s: Any, v: Any) -> Any:
    rest = 1 - s
    return jnp.stack([(rest + s * share) * v for share in _shares(h)], -1)


@rule("RGBToHSV")
def rgb_to_hsv(images: Any) -> Any:
    return narrow(jnp.stack(_hsv(widen(images)), -1), images.dtype)


@rule("HSVToRGB")
def hsv_to_rgb(images: Any) -> Any:
    return narrow(_rgb(*_channels(widen(images))), images.dtype)


@rule("AdjustHue")
def adjust_hue(images: Any, delta: Any) -> Any:
    _need_images(images, delta)
    wide = widen(images)
    r, g, b = _channels(wide)
    top, bottom = jnp.maximum(jnp.maximum(r, g), b), jnp.minimum(jnp.minimum(r, g), b)
    hue = (_hue(r, g, b, top, top - bottom) + delta) % 1
    return narrow(jnp.stack([bottom + (top - bottom) * share for share in _shares(hue)], -1), images.dtype)


@rule("AdjustSaturation")
def adjust_saturation(images: Any, scale: Any) -> Any:
    _need_images(images, scale)
    h, s, v = _hsv(widen(images))
    return narrow(_rgb(h, jnp.clip(s * scale, 0, 1), v), images.dtype)


@rule("AdjustContrastv2")
def adjust_contrast(images: Any, factor: Any) -> Any:
    """Moves each channel away from its mean over height and width."""
    _need_images(images, factor)
    wide = widen(images)
    mean = narrow(jnp.mean(wide, (-3, -2), dtype=np.float64, keepdims=True), wide.dtype)
    return narrow((wide - mean) * factor + mean, images.dtype)
