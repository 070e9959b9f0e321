"""Colours of images: RGB and HSV, hue, saturation, contrast."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, with_rank_at_least
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


def hsv_grad(g: Any, op: Any, dy: Any) -> Any:
    """Through hue = (two channels' difference) / (6 range), saturation = range / top and value = top, with top and bottom as they are chosen.

    Of equal channels the first counts as the top one and the last as the bottom one.
    """
    kind = op.images.dtype
    r, green, b = g.Unpack(op.images, num=3, axis=-1)
    d_hue, d_saturation, d_value = g.Unpack(dy, num=3, axis=-1)
    channels = (r, green, b)

    def number(condition: Any) -> Any:
        return g.Cast(condition, DstT=kind)

    top_r = g.LogicalAnd(g.GreaterEqual(r, green), g.GreaterEqual(r, b))
    top_g = g.LogicalAnd(g.LogicalNot(top_r), g.GreaterEqual(green, b))
    tops = (number(top_r), number(top_g), number(g.LogicalNot(g.LogicalOr(top_r, top_g))))
    low_b = g.LogicalAnd(g.LessEqual(b, r), g.LessEqual(b, green))
    low_g = g.LogicalAnd(g.LogicalNot(low_b), g.LessEqual(green, r))
    lows = (number(g.LogicalNot(g.LogicalOr(low_b, low_g))), number(low_g), number(low_b))

    top, bottom = (g.AddN([g.Mul(mask, c) for mask, c in zip(masks, channels, strict=True)]) for masks in (tops, lows))
    one = g.const(1.0, kind)
    # Colours are meant to be above 0; where they are not, TF's gradients stop, and so do these.
    positive = number(g.Greater(top, g.const(0.0, kind)))
    by_top = g.Mul(g.DivNoNan(one, top), positive)
    spread = g.Sub(top, bottom)
    by_spread = g.DivNoNan(one, spread)
    sixth = g.Mul(g.const(1.0 / 6.0, kind), by_spread)
    differences = (g.Sub(green, b), g.Sub(b, r), g.Sub(r, green))
    difference = g.AddN([g.Mul(mask, d) for mask, d in zip(tops, differences, strict=True)])

    straight = g.Mul(g.Mul(d_hue, sixth), positive)
    through_spread = g.Neg(g.Mul(g.Mul(straight, difference), by_spread))
    to_top = g.AddN([d_value, through_spread, g.Mul(d_saturation, g.Mul(bottom, g.Mul(by_top, by_top)))])
    above_zero = number(g.Greater(bottom, g.const(0.0, kind)))
    to_bottom = g.Neg(g.AddV2(through_spread, g.Mul(d_saturation, g.Mul(by_top, above_zero))))
    # Each difference is of the two channels that are not on top.
    signs = (g.Sub(tops[2], tops[1]), g.Sub(tops[0], tops[2]), g.Sub(tops[1], tops[0]))
    parts = [
        g.AddN([g.Mul(to_top, tops[i]), g.Mul(to_bottom, lows[i]), g.Mul(straight, signs[i])]) for i in range(3)
    ]
    return g.Pack(parts, axis=-1)


COLOURS = [dict(images=uniform(2, 4, 5, 3)), dict(images=uniform(3)), dict(images=arr([[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 1]])), dict(images=empty(0, 3))]
WRONG = [(dict(images=normal(2, 4)), InvalidArgumentError, "input must have 3 channels")]

op("RGBToHSV(images: T) -> (output: T) [T: type in {half, bfloat16, float, double} = float]",
   shape=three_channels, numpy=colors.rgb_to_hsv, grad=hsv_grad, samples=COLOURS, errors=WRONG)  # fmt: skip
op("HSVToRGB(images: T) -> (output: T) [T: type in {half, bfloat16, float, double} = float]",
   shape=three_channels, numpy=colors.hsv_to_rgb, grad=NOT_DIFFERENTIABLE, samples=COLOURS, errors=WRONG)  # fmt: skip
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
