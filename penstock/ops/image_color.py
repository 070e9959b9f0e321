"""Colours of images: RGB and HSV, hue, saturation, contrast."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import op, with_rank_at_least
from penstock.ops.kernels import colors
from penstock.ops.samples import arr, empty, normal, uniform


def three_channels(c: Any) -> Dims:
    """The shape of the input, whose last dimension is 3."""
    dims = with_rank_at_least(c, 0, 1)
    if dims is None:
        return None
    if dims[-1] not in (None, 3):
        raise ValueError(f"Dimension must be 3 but is {dims[-1]}")
    return (*dims[:-1], 3)


def image_like(c: Any) -> Dims:
    return with_rank_at_least(c, 0, 3)


COLOURS = [dict(images=uniform(2, 4, 5, 3)), dict(images=uniform(3)), dict(images=arr([[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 1]])), dict(images=empty(0, 3))]
WRONG = [(dict(images=normal(2, 4)), InvalidArgumentError, "input must have 3 channels")]

op("RGBToHSV(images: T) -> (output: T) [T: type in {half, bfloat16, float, double} = float]",
   shape=three_channels, numpy=colors.rgb_to_hsv, samples=COLOURS, errors=WRONG)  # fmt: skip
op("HSVToRGB(images: T) -> (output: T) [T: type in {half, bfloat16, float, double} = float]",
   shape=three_channels, numpy=colors.hsv_to_rgb, samples=COLOURS, errors=WRONG)  # fmt: skip
op("AdjustHue(images: T, delta: float) -> (output: T) [T: type in {half, float} = float]",
   shape=image_like, numpy=colors.adjust_hue,
   samples=[dict(images=uniform(2, 4, 5, 3), delta=arr(d)) for d in (0.0, 0.3, -0.7, 1.0)] + [dict(images=normal(4, 5, 3), delta=arr(0.2))],
   errors=[(dict(images=normal(2, 3), delta=0.5), InvalidArgumentError, "input must be at least 3-D"),
           (dict(images=normal(2, 2, 3), delta=[0.5]), InvalidArgumentError, "delta must be scalar")])  # fmt: skip
op("AdjustSaturation(images: T, scale: float) -> (output: T) [T: type in {half, float} = float]",
   shape=image_like, numpy=colors.adjust_saturation,
   samples=[dict(images=uniform(2, 4, 5, 3), scale=arr(s)) for s in (0.0, 0.5, 2.0)],
   errors=[(dict(images=normal(2, 3), scale=0.5), InvalidArgumentError, "input must be at least 3-D")])  # fmt: skip
op("AdjustContrastv2(images: T, contrast_factor: float) -> (output: T) [T: type in {half, float} = float]",
   shape=image_like, numpy=colors.adjust_contrast,
   samples=[dict(images=uniform(2, 4, 5, 3), contrast_factor=arr(f)) for f in (0.0, 0.5, 2.0)] + [dict(images=normal(4, 5, 2), contrast_factor=arr(1.5))],
   errors=[(dict(images=normal(2, 3), contrast_factor=0.5), InvalidArgumentError, "input must be at least 3-D")])  # fmt: skip
