"""Values and colours of images: types, brightness, contrast, grey, hue, saturation, standardization."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api import array_ops, math_ops, math_reduce, random_ops
from penstock.api.framework import name_scope
from penstock.api.image.shapes import at_least_3d, check
from penstock.api.linalg_ops import tensordot
from penstock.graph.control_flow import with_dependencies
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

_FLOATS = (dtypes.float16, dtypes.float32)

# -- types ------------------------------------------------------------------------------------------------------------


def convert_image_dtype(image: Any, dtype: Any, saturate: bool = False, name: str | None = None) -> Tensor:
    """Another type, with values scaled: floats are in [0, 1], integers from 0 to their largest.

    `saturate` clips values that the new type cannot hold.
    """
    image = convert_to_tensor(image, name="image")
    dtype = dtypes.as_dtype(dtype)
    if not dtype.is_floating and not dtype.is_integer:
        raise AttributeError("dtype must be either floating point or integer")
    if not image.dtype.is_floating and not image.dtype.is_integer:
        raise AttributeError("image dtype must be either floating point or integer")
    if dtype == image.dtype:
        return array_ops.identity(image, name=name)
    with name_scope(name, "convert_image", [image]) as scope:
        if image.dtype.is_integer and dtype.is_integer:
            have, want = image.dtype.max, dtype.max
            if have > want:
                # Integers are divided by whole numbers, rounding down.
                scaled = math_ops.floordiv(image, (have + 1) // (want + 1))
                return math_ops.saturate_cast(scaled, dtype, name=scope) if saturate else math_ops.cast(scaled, dtype, name=scope)
            wide = math_ops.saturate_cast(image, dtype) if saturate else math_ops.cast(image, dtype)
            return raw.Mul(wide, (want + 1) // (have + 1), name=scope)
        if image.dtype.is_floating and dtype.is_floating:
            return math_ops.cast(image, dtype, name=scope)
        if image.dtype.is_integer:
            return raw.Mul(math_ops.cast(image, dtype), 1.0 / image.dtype.max, name=scope)
        # Half a step more, so that 1.0 becomes the largest value and the steps are of one width.
        scaled = raw.Mul(image, dtype.max + 0.5)
        return math_ops.saturate_cast(scaled, dtype, name=scope) if saturate else math_ops.cast(scaled, dtype, name=scope)


def _as_float(image: Tensor) -> Tensor:
    return image if image.dtype in _FLOATS else convert_image_dtype(image, dtypes.float32)


# -- brightness, contrast, gamma --------------------------------------------------------------------------------------


def adjust_brightness(image: Any, delta: Any) -> Tensor:
    """Adds `delta`, which is for values in [0, 1], and clips integers."""
    with name_scope(None, "adjust_brightness", [image, delta]) as scope:
        image = convert_to_tensor(image, name="image")
        kind = image.dtype
        value = _as_float(image)
        adjusted = math_ops.add(value, math_ops.cast(delta, value.dtype), name=scope)
        return convert_image_dtype(adjusted, kind, saturate=True)


def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> Tensor:
    """`adjust_brightness` by a random amount in [-max_delta, max_delta)."""
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_brightness(image, random_ops.random_uniform([], -max_delta, max_delta, seed=seed))


def adjust_contrast(images: Any, contrast_factor: Any) -> Tensor:
    """(x - mean) * contrast_factor + mean, with the mean of each channel of each image."""
    with name_scope(None, "adjust_contrast", [images, contrast_factor]) as scope:
        images = convert_to_tensor(images, name="images")
        kind = images.dtype
        adjusted = raw.AdjustContrastv2(_as_float(images), contrast_factor, name=scope)
        return convert_image_dtype(adjusted, kind, saturate=True)


def random_contrast(image: Any, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """`adjust_contrast` by a random factor in [lower, upper)."""
    _check_range(lower, upper)
    return adjust_contrast(image, random_ops.random_uniform([], lower, upper, seed=seed))


def _check_range(lower: float, upper: float) -> None:
    if upper <= lower:
        raise ValueError("upper must be > lower.")
    if lower < 0:
        raise ValueError("lower must be non-negative.")


def adjust_gamma(image: Any, gamma: Any = 1, gain: Any = 1) -> Tensor:
    """gain * x ** gamma, for values in [0, 1]."""
    with name_scope(None, "adjust_gamma", [image, gamma, gain]):
        image = convert_to_tensor(image, name="image")
        kind = image.dtype
        value = _as_float(image)
        checks = check(gamma >= 0, "Gamma should be a non-negative real number.")
        if checks:
            gamma = with_dependencies(checks, gamma)
        return convert_image_dtype(gain * value**gamma, kind, saturate=True)


# -- colours ----------------------------------------------------------------------------------------------------------


def rgb_to_grayscale(images: Any, name: str | None = None) -> Tensor:
    """One channel of brightness, as the eye weighs red, green and blue."""
    with name_scope(name, "rgb_to_grayscale", [images]) as scope:
        images = convert_to_tensor(images, name="images")
        kind = images.dtype
        value = convert_image_dtype(images, dtypes.float32)
        grey = tensordot(value, [0.2989, 0.5870, 0.1140], [-1, -1])
        return convert_image_dtype(array_ops.expand_dims(grey, -1), kind, name=scope)


def grayscale_to_rgb(images: Any, name: str | None = None) -> Tensor:
    """The one channel three times."""
    with name_scope(name, "grayscale_to_rgb", [images]) as scope:
        images = convert_to_tensor(images, name="images")
        if images.dims is not None and images.dims[-1] not in (1, None):
            raise ValueError("Last dimension of a grayscale image should be size 1.")
        rank = array_ops.rank(images)
        ones = array_ops.expand_dims(rank - 1, 0)
        multiples = array_ops.concat([array_ops.ones(ones, dtypes.int32), array_ops.expand_dims(3, 0)], 0)
        rgb = array_ops.tile(images, multiples, name=scope)
        if images.dims is not None:
            rgb.set_shape([*images.dims[:-1], 3])
        return rgb


def rgb_to_hsv(images: Any, name: str | None = None) -> Tensor:
    """Hue, saturation and value, all in [0, 1], of colours in [0, 1]."""
    return raw.RGBToHSV(images, name=name)


def hsv_to_rgb(images: Any, name: str | None = None) -> Tensor:
    """Red, green and blue of hue, saturation and value."""
    return raw.HSVToRGB(images, name=name)


def adjust_hue(image: Any, delta: Any, name: str | None = None) -> Tensor:
    """Turns the hue by `delta`, of which 1 is a whole turn."""
    with name_scope(name, "adjust_hue", [image]):
        image = convert_to_tensor(image, name="image")
        kind = image.dtype
        return convert_image_dtype(raw.AdjustHue(_as_float(image), delta), kind)


def random_hue(image: Any, max_delta: float, seed: int | None = None) -> Tensor:
    """`adjust_hue` by a random amount in [-max_delta, max_delta)."""
    if max_delta > 0.5:
        raise ValueError("max_delta must be <= 0.5.")
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_hue(image, random_ops.random_uniform([], -max_delta, max_delta, seed=seed))


def adjust_saturation(image: Any, saturation_factor: Any, name: str | None = None) -> Tensor:
    """Multiplies the saturation and clips it to [0, 1]."""
    with name_scope(name, "adjust_saturation", [image]):
        image = convert_to_tensor(image, name="image")
        kind = image.dtype
        return convert_image_dtype(raw.AdjustSaturation(_as_float(image), saturation_factor), kind)


def random_saturation(image: Any, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """`adjust_saturation` by a random factor in [lower, upper)."""
    _check_range(lower, upper)
    return adjust_saturation(image, random_ops.random_uniform([], lower, upper, seed=seed))


_TO_YIQ = [[0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617], [0.114, -0.32134392, 0.31119955]]
_FROM_YIQ = [[1, 1, 1], [0.95598634, -0.27201283, -1.10674021], [0.6208248, -0.64720424, 1.70423049]]
_TO_YUV = [[0.299, -0.14714119, 0.61497538], [0.587, -0.28886916, -0.51496512], [0.114, 0.43601035, -0.10001026]]
_FROM_YUV = [[1, 1, 1], [0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0]]


def _linear(images: Any, matrix: list[list[float]]) -> Tensor:
    images = convert_to_tensor(images, name="images")
    kernel = convert_to_tensor(np.array(matrix), dtype=images.dtype, name="kernel")
    rank = len(images.dims) if images.dims is not None else None
    if rank is None:
        raise ValueError("images must have a known rank.")
    return tensordot(images, kernel, axes=[[rank - 1], [0]])


def rgb_to_yiq(images: Any) -> Tensor:
    """The colours of NTSC television."""
    return _linear(images, _TO_YIQ)


def yiq_to_rgb(images: Any) -> Tensor:
    """Red, green and blue from YIQ."""
    return _linear(images, _FROM_YIQ)


def rgb_to_yuv(images: Any) -> Tensor:
    """The colours of PAL television."""
    return _linear(images, _TO_YUV)


def yuv_to_rgb(images: Any) -> Tensor:
    """Red, green and blue from YUV."""
    return _linear(images, _FROM_YUV)


def per_image_standardization(image: Any) -> Tensor:
    """(x - mean) / max(standard deviation, 1 / sqrt(number of values)) of each image."""
    with name_scope(None, "per_image_standardization", [image]) as scope:
        image = at_least_3d(convert_to_tensor(image, name="image"))
        if image.dtype not in _FLOATS:
            image = math_ops.cast(image, dtypes.float32)
        count = math_reduce.reduce_prod(array_ops.shape(image)[-3:])
        mean = math_reduce.reduce_mean(image, axis=[-1, -2, -3], keepdims=True)
        deviation = math_reduce.reduce_std(image, axis=[-1, -2, -3], keepdims=True)
        least = raw.Rsqrt(math_ops.cast(count, image.dtype))
        deviation = raw.Maximum(deviation, least)
        return math_ops.divide(image - mean, deviation, name=scope)
