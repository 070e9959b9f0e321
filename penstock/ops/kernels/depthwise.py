"""Depthwise convolution and its gradients: one small filter per input channel, added up tap by tap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock import errors
from penstock.ops.kernels import channelwise
from penstock.ops.kernels.numeric import narrow, widen
from penstock.ops.kernels.patches import from_last, pad, taps, to_last
from penstock.ops.kernels.window import Layout, Slide, layout, shape_vector, show, slides_of

# Work goes in blocks of about this many output bytes, so that the running sums stay in cache.
_BLOCK_BYTES = 512 << 10


def _check_strides(lay: Layout, strides: Sequence[int]) -> None:
    if strides[0] != 1 or strides[lay.channel] != 1:
        raise errors.InvalidArgumentError(
            "Current implementation does not yet support strides in the batch and depth dimensions."
        )


def _images(batch: int, image_bytes: int) -> list[slice]:
    """Slices of whole images, each over about _BLOCK_BYTES."""
    step = max(1, _BLOCK_BYTES // max(1, image_bytes))
    return [slice(start, start + step) for start in range(0, batch, step)]


def depthwise_conv2d(x, filter, *, strides, padding, explicit_paddings=(), data_format=b"NHWC", dilations=(1, 1, 1, 1)):
    """DepthwiseConv2dNative: channel c of `x` meets `filter[:, :, c, :]`, giving filter.shape[3] channels each."""
    lay = layout(data_format)
    _check_strides(lay, strides)
    if x.ndim != 4:
        raise errors.InvalidArgumentError(f"input must be 4-dimensional{show(x.shape)}")
    if filter.ndim != 4:
        raise errors.InvalidArgumentError(f"filter must be 4-dimensional: {show(filter.shape)}")
    depth, multiplier = filter.shape[2:]
    if x.shape[lay.channel] != depth:
        raise errors.InvalidArgumentError(
            f"input and filter must have the same depth: {x.shape[lay.channel]} vs {depth}"
        )
    slides = slides_of(lay, lay.of_spatial(x.shape), filter.shape[:2], strides, padding, dilations, explicit_paddings)
    wide, w = to_last(x, lay), widen(filter)
    if channelwise.suits(wide.dtype, depth, depth * multiplier, slides):
        return from_last(channelwise.forward(wide, w, slides), lay, x.dtype)
    wide = pad(wide, slides)
    shape = (x.shape[0], *(s.out for s in slides), depth, multiplier)
    y = np.zeros(shape, w.dtype)
    scratch = None
    for images in _images(shape[0], y[0].nbytes if shape[0] else 0) if y.size else ():
        part, target = wide[images], y[images]
        for offsets, index in taps(slides):
            if scratch is None:
                scratch = np.empty(target.shape, w.dtype)
            product = np.multiply(part[index][..., None], w[offsets], out=scratch[: target.shape[0]])
            target += product
    return from_last(y.reshape(*shape[:3], depth * multiplier), lay, x.dtype)


def _check_backprop(
    label, lay, in_shape, filter_shape, dy, strides, padding, dilations, explicit_paddings
) -> list[Slide]:
    _check_strides(lay, strides)
    for name, shape in (("input", in_shape), ("filter", filter_shape), ("out_backprop", dy.shape)):
        if len(shape) != 4:
            raise errors.InvalidArgumentError(f"{label}: {name} must be 4-dimensional")
    if in_shape[0] != dy.shape[0]:
        raise errors.InvalidArgumentError(f"{label}: input and out_backprop must have the same batch size")
    if in_shape[lay.channel] != filter_shape[2]:
        raise errors.InvalidArgumentError(f"{label}: input and filter must have the same in_depth")
    if filter_shape[2] * filter_shape[3] != dy.shape[lay.channel]:
        raise errors.InvalidArgumentError(f"{label}: depth_multiplier * in_depth not equal to out_depth")
    slides = slides_of(lay, lay.of_spatial(in_shape), filter_shape[:2], strides, padding, dilations, explicit_paddings)
    for what, axis, s in zip(("rows", "cols"), lay.spatial, slides, strict=True):
        if dy.shape[axis] != s.out:
            raise errors.InvalidArgumentError(
                f"{label}: Number of {what} of out_backprop doesn't match computed: "
                f"actual = {dy.shape[axis]}, computed = {s.out}"
            )
    return slides


def depthwise_conv2d_backprop_input(
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
    """DepthwiseConv2dNativeBackpropInput."""
    label, lay = "DepthwiseConv2DBackpropInput", layout(data_format)
    shape = shape_vector(input_sizes, label, "input_sizes")
    slides = _check_backprop(
        label, lay, shape, filter.shape, out_backprop, strides, padding, dilations, explicit_paddings
    )
    dy, w = to_last(out_backprop, lay), widen(filter)
    depth, multiplier = w.shape[2:]
    if channelwise.suits(dy.dtype, depth, depth * multiplier, slides):
        return from_last(channelwise.input_gradient(dy, w, slides), lay, out_backprop.dtype)
    dy = dy.reshape(*dy.shape[:3], depth, multiplier)
    reach = [max(s.reach, s.before + s.size) for s in slides]
    dx = np.zeros((shape[0], *reach, depth), w.dtype)
    for images in _images(shape[0], dy[0].nbytes if shape[0] else 0) if dy.size else ():
        part, target = dy[images], dx[images]
        for offsets, index in taps(slides):
            # With one filter per channel the sum over the multiplier is a plain product.
            if multiplier == 1:
                target[index] += part[..., 0] * w[offsets][:, 0]
            else:
                target[index] += np.einsum("nhwcm,cm->nhwc", part, w[offsets])
    dx = dx[(slice(None), *(slice(s.before, s.before + s.size) for s in slides))]
    return from_last(dx, lay, out_backprop.dtype)


def depthwise_conv2d_backprop_filter(
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
    """DepthwiseConv2dNativeBackpropFilter."""
    label, lay = "DepthwiseConv2DBackpropFilter", layout(data_format)
    shape = shape_vector(filter_sizes, label, "filter_sizes")
    slides = _check_backprop(label, lay, x.shape, shape, out_backprop, strides, padding, dilations, explicit_paddings)
    wide, dy = to_last(x, lay), to_last(out_backprop, lay)
    depth, multiplier = shape[2:]
    if channelwise.suits(wide.dtype, depth, depth * multiplier, slides):
        return narrow(channelwise.filter_gradient(wide, dy, slides), x.dtype)
    wide = pad(wide, slides)
    dy = dy.reshape(*dy.shape[:3], depth, multiplier)
    dw = np.zeros(shape, wide.dtype)
    for images in _images(x.shape[0], dy[0].nbytes if x.shape[0] else 0) if dy.size else ():
        part, grads = wide[images], dy[images]
        for offsets, index in taps(slides):
            product = (part[index][..., None] * grads).reshape(-1, depth * multiplier)
            # A product with ones sums the columns through BLAS.
            dw[offsets] += (np.ones(product.shape[0], wide.dtype) @ product).reshape(depth, multiplier)
    return narrow(dw, x.dtype)
