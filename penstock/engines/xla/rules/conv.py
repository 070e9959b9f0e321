"""Convolutions in two and three dimensions, depthwise convolution, and their gradients.

The gradients are the transposes of the convolution, as JAX writes them: XLA turns those into the backward convolutions of its libraries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.xla.checks import need, refusals
from penstock.engines.xla.rule import jax, jnp, lax, rule, static_ints
from penstock.ops.kernels.window import Layout, Slide, layout, slides_of


class _Convolution(NamedTuple):
    """A convolution of which everything but its two operands is known."""

    lay: Layout
    slides: list[Slide]
    groups: int

    def __call__(self, x: Any, w: Any) -> Any:
        data = self.lay.format
        spatial = data.replace("N", "").replace("C", "")
        return lax.conv_general_dilated(
            x,
            w,
            window_strides=[s.stride for s in self.slides],
            padding=[(s.before, s.after) for s in self.slides],
            rhs_dilation=[s.dilation for s in self.slides],
            dimension_numbers=(data, spatial + "IO", data),
            feature_group_count=self.groups,
        )

    def out_shape(self, batch: int, depth: int) -> tuple[int, ...]:
        return self.lay.build(batch, [s.out for s in self.slides], depth)


def _convolution(
    in_shape: Sequence[int], filter_shape: Sequence[int], strides: Sequence[int], padding: bytes, explicit_paddings: Sequence[int],
    data_format: bytes, dilations: Sequence[int],
) -> _Convolution:  # fmt: skip
    """Checks the shapes; the filter's are (*window, in depth / groups, out depth)."""
    with refusals():
        lay = layout(data_format)
        need(len(in_shape) == len(filter_shape) == lay.rank, "a convolution of another rank")
        for values in (strides, dilations):
            need(values[0] == values[lay.channel] == 1, "strides or dilations over the batch or the depth")
        slides = slides_of(
            lay, lay.of_spatial(in_shape), filter_shape[:-2], strides, padding, dilations, explicit_paddings
        )
    depth, (in_depth, out_depth) = in_shape[lay.channel], filter_shape[-2:]
    need(in_depth > 0 and depth % in_depth == 0, "depths that do not fit")
    groups = max(1, depth // in_depth)
    need(out_depth % groups == 0, "depths that do not fit")
    need(0 not in filter_shape, "an empty filter")
    return _Convolution(lay, slides, groups)


def _forward(conv: _Convolution, x: Any, w: Any) -> Any:
    shape = conv.out_shape(x.shape[0], w.shape[-1])
    if 0 in shape or 0 in x.shape:
        return jnp.zeros(shape, x.dtype)
    return conv(x, w)


def _need_gradient(conv: _Convolution, in_shape: Sequence[int], dy: Any, out_depth: int) -> None:
    need(dy.shape == conv.out_shape(in_shape[0], out_depth), "a gradient that does not fit the convolution")


def _input_gradient(conv: _Convolution, shape: tuple[int, ...], w: Any, dy: Any) -> Any:
    if 0 in dy.shape or 0 in shape:
        return jnp.zeros(shape, dy.dtype)
    like = jax.ShapeDtypeStruct(shape, dy.dtype)
    return jax.linear_transpose(lambda x: conv(x, w), like)(dy)[0]


def _filter_gradient(conv: _Convolution, x: Any, shape: tuple[int, ...], dy: Any) -> Any:
    if 0 in dy.shape or 0 in x.shape:
        return jnp.zeros(shape, dy.dtype)
    like = jax.ShapeDtypeStruct(shape, dy.dtype)
    return jax.linear_transpose(lambda w: conv(x, w), like)(dy)[0]


# -- two dimensions ---------------------------------------------------------------------------------------------------


def _need_floats(x: Any) -> None:
    """XLA's libraries convolve no integers on GPUs, and JAX has no gradients for them."""
    need(x.dtype.kind not in "iu", "a convolution of integers")


@rule("Conv2D", heavy=True)
def conv2d(x: Any, w: Any, *, strides: Any, padding: bytes, explicit_paddings: Any, data_format: bytes, dilations: Any) -> Any:
    _need_floats(x)
    return _forward(_convolution(x.shape, w.shape, strides, padding, explicit_paddings, data_format, dilations), x, w)


@rule("Conv2DBackpropInput", heavy=True)
def conv2d_input(
    sizes: Any, w: Any, dy: Any, *, strides: Any, padding: bytes, explicit_paddings: Any, data_format: bytes, dilations: Any
) -> Any:
    shape = static_ints(sizes)
    if len(shape) == 2 and w.ndim == dy.ndim == 4:  # rows and columns only
        with refusals():
            shape = layout(data_format).build(dy.shape[0], shape, w.shape[2])
    _need_floats(dy)
    conv = _convolution(shape, w.shape, strides, padding, explicit_paddings, data_format, dilations)
    _need_gradient(conv, shape, dy, w.shape[-1])
    return _input_gradient(conv, shape, w, dy)


@rule("Conv2DBackpropInputV2", heavy=True)
def conv2d_input_v2(
    x: Any, w: Any, dy: Any, *, strides: Any, padding: bytes, explicit_paddings: Any, data_format: bytes, dilations: Any
) -> Any:
    return conv2d_input(
        np.array(x.shape), w, dy, strides=strides, padding=padding, explicit_paddings=explicit_paddings, data_format=data_format,
        dilations=dilations,
    )  # fmt: skip


@rule("Conv2DBackpropFilter", heavy=True)
def conv2d_filter(
    x: Any, sizes: Any, dy: Any, *, strides: Any, padding: bytes, explicit_paddings: Any, data_format: bytes, dilations: Any
) -> Any:
    shape = static_ints(sizes)
    conv = _convolution(x.shape, shape, strides, padding, explicit_paddings, data_format, dilations)
    _need_gradient(conv, x.shape, dy, shape[-1])
    return _filter_gradient(conv, x, shape, dy)


@rule("Conv2DBackpropFilterV2", heavy=True)
def conv2d_filter_v2(
    x: Any, w: Any, dy: Any, *, strides: Any, padding: bytes, explicit_paddings: Any, data_format: bytes, dilations: Any
) -> Any:
    return conv2d_filter(
        x, np.array(w.shape), dy, strides=strides, padding=padding, explicit_paddings=explicit_paddings, data_format=data_format,
        dilations=dilations,
    )  # fmt: skip


# -- depthwise --------------------------------------------------------------------------------------------------------


def _depthwise(in_shape: Any, filter_shape: Any, *attrs: Any) -> tuple[_Convolution, tuple[int, ...]]:
    """The grouped convolution that a depthwise one is, and its filter's shape: one group for each channel."""
    need(len(in_shape) == len(filter_shape) == 4, "a convolution of another rank")
    rows, columns, depth, multiplier = filter_shape
    strides, padding, explicit_paddings, data_format, dilations = attrs
    with refusals():
        need(in_shape[layout(data_format).channel] == depth, "depths that do not fit")
    grouped = (rows, columns, 1, depth * multiplier)
    # Dilations of batch and depth are not looked at.
    lay = layout(data_format)
    dilations = [1 if i in (0, lay.channel) else d for i, d in enumerate(dilations)]
    return _convolution(in_shape, grouped, strides, padding, explicit_paddings, data_format, dilations), grouped


@rule("DepthwiseConv2dNative", heavy=True)
def depthwise(x: Any, w: Any, *, strides: Any, padding: bytes, explicit_paddings: Any, data_format: bytes, dilations: Any) -> Any:
    conv, shape = _depthwise(x.shape, w.shape, strides, padding, explicit_paddings, data_format, dilations)
    return _forward(conv, x, w.reshape(shape))


@rule("DepthwiseConv2dNativeBackpropInput", heavy=True)
def depthwise_input(
    sizes: Any, w: Any, dy: Any, *, strides: Any, padding: bytes, explicit_paddings: Any, data_format: bytes, dilations: Any
) -> Any:
    in_shape = static_ints(sizes)
    conv, shape = _depthwise(in_shape, w.shape, strides, padding, explicit_paddings, data_format, dilations)
    _need_gradient(conv, in_shape, dy, shape[-1])
    return _input_gradient(conv, in_shape, w.reshape(shape), dy)


@rule("DepthwiseConv2dNativeBackpropFilter", heavy=True)
def depthwise_filter(
    x: Any, sizes: Any, dy: Any, *, strides: Any, padding: bytes, explicit_paddings: Any, data_format: bytes, dilations: Any
) -> Any:
    filter_shape = static_ints(sizes)
    conv, shape = _depthwise(x.shape, filter_shape, strides, padding, explicit_paddings, data_format, dilations)
    _need_gradient(conv, x.shape, dy, shape[-1])
    return _filter_gradient(conv, x, shape, dy).reshape(filter_shape)


# -- three dimensions -------------------------------------------------------------------------------------------------


@rule("Conv3D", heavy=True)
def conv3d(x: Any, w: Any, *, strides: Any, padding: bytes, data_format: bytes, dilations: Any) -> Any:
    return _forward(_convolution(x.shape, w.shape, strides, padding, (), data_format, dilations), x, w)


@rule("Conv3DBackpropInputV2", heavy=True)
def conv3d_input(
    sizes: Any, w: Any, dy: Any, *, strides: Any, padding: bytes, data_format: bytes, dilations: Any
) -> Any:
    shape = static_ints(sizes)
    conv = _convolution(shape, w.shape, strides, padding, (), data_format, dilations)
    _need_gradient(conv, shape, dy, w.shape[-1])
    return _input_gradient(conv, shape, w, dy)


@rule("Conv3DBackpropFilterV2", heavy=True)
def conv3d_filter(
    x: Any, sizes: Any, dy: Any, *, strides: Any, padding: bytes, data_format: bytes, dilations: Any
) -> Any:
    shape = static_ints(sizes)
    conv = _convolution(x.shape, shape, strides, padding, (), data_format, dilations)
    _need_gradient(conv, x.shape, dy, shape[-1])
    return _filter_gradient(conv, x, shape, dy)


@rule("Conv3DBackpropInput", heavy=True)
def conv3d_input_v1(x: Any, w: Any, dy: Any, *, strides: Any, padding: bytes, dilations: Any) -> Any:
    return conv3d_input(np.array(x.shape), w, dy, strides=strides, padding=padding, data_format=b"NDHWC", dilations=dilations)


@rule("Conv3DBackpropFilter", heavy=True)
def conv3d_filter_v1(x: Any, w: Any, dy: Any, *, strides: Any, padding: bytes, dilations: Any) -> Any:
    return conv3d_filter(x, np.array(w.shape), dy, strides=strides, padding=padding, data_format=b"NDHWC", dilations=dilations)
