"""Quantised normalisation and resizing of images.

Batch normalisation and resizing are done in fixed point, as in TF; batch normalisation has 1,024 steps to one, from -2**20 to 2**20.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.kernels import resize
from penstock.ops.kernels.quantized import dequantised, quantised, scalar, to_real, to_steps
from penstock.shapes import format_dims

_F = np.float32
_REACH = _F(1 << 20)


def batch_norm(x: Any, x_min: Any, x_max: Any, *rest: Any, variance_epsilon: float, scale_after_normalization: bool, out_type: Any) -> list[Any]:
    """QuantizedBatchNormWithGlobalNormalization."""
    low, high = _element("input_min", x_min), _element("input_max", x_max)
    if np.ndim(x) != 4:
        raise InvalidArgumentError(f"input must be 4-dimensional{format_dims(np.shape(x))}")
    real = []
    for name, at in (("mean", 0), ("var", 3), ("beta", 6), ("gamma", 9)):
        value, least, most = rest[at], _element(f"{name}_min", rest[at + 1]), _element(f"{name}_max", rest[at + 2])
        if np.ndim(value) != 1:
            raise InvalidArgumentError(f"{name} must be 1-dimensional{format_dims(np.shape(value))}")
        if value.size != x.shape[3] and x.size:
            raise InvalidArgumentError(f"Must provide as many {name}s as the last dimension of the input tensor: {format_dims(value.shape)} vs. {format_dims(x.shape)}")
        real.append(to_real(value, least, most))
    mean, variance, beta, gamma = real
    dtype = out_type.np
    factor = _F(1) / np.sqrt(variance + _F(variance_epsilon))
    if scale_after_normalization:
        factor = factor * gamma
    scale, offset = to_steps(factor, -_REACH, _REACH, dtype), to_steps(-mean * factor + beta, -_REACH, _REACH, dtype)
    one = to_steps(_F(1), -_REACH, _REACH, dtype)
    moved = to_steps(to_real(x, low, high), -_REACH, _REACH, dtype)
    product = moved * scale  # wraps around, as sums of int32 do
    whole = np.where(product < 0, -(-product.astype(np.int64) // int(one)), product // one).astype(dtype)  # cut towards zero
    return [whole + offset, -_REACH, _REACH]


def _element(name: str, value: Any) -> Any:
    if np.size(value) != 1:
        raise InvalidArgumentError(f"{name} must have 1 element{format_dims(np.shape(value))}")
    return _F(np.ravel(value)[0])


def instance_norm(x: Any, x_min: Any, x_max: Any, *, output_range_given: bool, given_y_min: float, given_y_max: float,
                  variance_epsilon: float, min_separation: float) -> list[Any]:  # fmt: skip
    """QuantizedInstanceNorm: each image and channel by its own mean and variance."""
    low, high = scalar("x_min", x_min), scalar("x_max", x_max)
    if not low < high:
        raise InvalidArgumentError(f"input_min must be less than input_max : {low:g} >= {high:g}")
    if np.ndim(x) != 4:
        raise InvalidArgumentError(f"input must be rank 4 but is rank {np.ndim(x)}")
    real = dequantised(x, low, high)
    mean = real.mean((1, 2), keepdims=True)
    away = real - mean
    variance = (away * away).mean((1, 2), keepdims=True)
    normal = away * (_F(1) / np.sqrt(variance + _F(variance_epsilon)))
    if output_range_given:
        least, most = _F(given_y_min), _F(given_y_max)
    else:
        least, most = normal.min(), normal.max()
        most = np.maximum(most, least + _F(min_separation))
    return [quantised(normal, least, most, x.dtype), least, most]


def resize_bilinear(images: Any, size: Any, low: Any, high: Any, *, align_corners: bool, half_pixel_centers: bool) -> list[Any]:
    """QuantizedResizeBilinear."""
    text = "{name} must be a scalar, but got shape{shape}"
    low, high = scalar("min", low, text), scalar("max", high, text)
    if images.dtype == _F:
        return [resize.resize_bilinear(images, size, align_corners=align_corners, half_pixel_centers=half_pixel_centers), low, high]
    # In fixed point, with one place less than the type has bits; TF reads an int32 as a float32 first.
    places = 7 if images.dtype == np.uint8 else 30
    rows, columns = resize.linear_taps(images, size, align_corners, half_pixel_centers)
    x = images.astype(_F).astype(np.int64)
    down, across = ((taps.weight[:, 1] * _F(1 << places)).astype(np.int64) for taps in (rows, columns))
    down, across = down[None, :, None, None], across[None, None, :, None]

    def line(at: np.ndarray) -> np.ndarray:
        left, right = (x[:, at][:, :, columns.at[:, i]] for i in (0, 1))
        return (left << places) + (right - left) * across

    top, bottom = line(rows.at[:, 0]), line(rows.at[:, 1])
    out = top + _cut(bottom - top, places) * down
    return [_cut(out + (1 << places - 1), places).astype(images.dtype), low, high]


def _cut(x: np.ndarray, places: int) -> np.ndarray:
    """x / 2**places, towards zero."""
    return np.where(x < 0, -(-x >> places), x >> places)
