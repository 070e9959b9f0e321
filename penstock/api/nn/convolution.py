"""Convolutions of one to three dimensions, dilated, depthwise, separable and transposed, and greyscale morphology."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.api import array_ops, math_ops
from penstock.api.array_ops import one_of
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.api.nn.layout import channel_index, explicit_paddings, per_dimension
from penstock.api.nn.space_to_batch import NOT_BOTH, with_space_to_batch
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

_ONES4 = (1, 1, 1, 1)
_ONES5 = (1, 1, 1, 1, 1)


def _filters(filter: Any, filters: Any) -> Any:
    if filter is not None and filters is not None:
        raise ValueError("Cannot specify both 'filter' and 'filters'.")
    return filter if filters is None else filters


def _flat_batch(x: Tensor, op: Callable[[Tensor], Tensor], inner_rank: int, name: str | None) -> Tensor:
    """Applies `op` to a tensor with more than one batch dimension."""
    with name_scope(name, "squeeze_batch_dims", [x]):
        inner = x.dims[-inner_rank:] if x.dims is not None else (None,) * inner_rank
        known = None not in inner
        tail: Any = list(inner) if known else array_ops.shape(x)[-inner_rank:]
        flat = array_ops.reshape(x, [-1, *inner] if known else array_ops.concat([[-1], tail], 0))
        result = op(flat)
        head = array_ops.shape(x)[:-inner_rank]
        full = array_ops.concat([head, array_ops.shape(result)[1:]], -1)
        unflat = array_ops.reshape(result, full)
        if x.dims is not None and result.dims is not None:
            unflat.set_shape(x.dims[:-inner_rank] + result.dims[1:])
        return unflat


# -- two dimensions ---------------------------------------------------------------------------------------------------


@export("nn.conv2d")
def conv2d(
    input: Any, filter: Any = None, strides: Any = None, padding: Any = None, use_cudnn_on_gpu: bool = True,
    data_format: str = "NHWC", dilations: Any = _ONES4, name: str | None = None, filters: Any = None,
) -> Tensor:  # fmt: skip
    """`input` correlated with `filter` of shape (rows, columns, in channels, out channels).

    `strides` and `dilations` are one number, two (rows, columns) or four. `padding` is "SAME", "VALID" or a list of four
    (before, after) pairs. If the filter has fewer input channels than `input`, channels are convolved in groups.
    """
    filter = _filters(filter, filters)
    padding, pads = explicit_paddings(padding)
    data_format = data_format or "NHWC"
    channel = channel_index(data_format, 2)
    attrs: dict[str, Any] = dict(
        strides=per_dimension(strides, 2, channel, "strides"), padding=padding, explicit_paddings=pads,
        use_cudnn_on_gpu=use_cudnn_on_gpu, data_format=data_format, dilations=per_dimension(dilations, 2, channel, "dilations"),
    )  # fmt: skip
    input = convert_to_tensor(input)
    if input.dims is not None and len(input.dims) > 4:
        return _flat_batch(input, lambda x: raw.Conv2D(x, filter, **attrs), 3, name)
    return raw.Conv2D(input, filter, name=name, **attrs)


@export("nn.conv2d_backprop_filter")
def conv2d_backprop_filter(
    input: Any, filter_sizes: Any, out_backprop: Any, strides: Any, padding: Any, use_cudnn_on_gpu: bool = True,
    data_format: str = "NHWC", dilations: Any = _ONES4, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `conv2d` with respect to its filter."""
    padding, pads = explicit_paddings(padding)
    return raw.Conv2DBackpropFilter(
        input, filter_sizes, out_backprop, strides=list(strides), padding=padding, use_cudnn_on_gpu=use_cudnn_on_gpu,
        explicit_paddings=pads, data_format=data_format, dilations=list(dilations), name=name,
    )  # fmt: skip


@export("nn.conv2d_backprop_input")
def conv2d_backprop_input(
    input_sizes: Any, filter: Any = None, out_backprop: Any = None, strides: Any = None, padding: Any = None,
    use_cudnn_on_gpu: bool = True, data_format: str = "NHWC", dilations: Any = _ONES4, name: str | None = None, filters: Any = None,
) -> Tensor:  # fmt: skip
    """The gradient of `conv2d` with respect to its input."""
    padding, pads = explicit_paddings(padding)
    return raw.Conv2DBackpropInput(
        input_sizes, _filters(filter, filters), out_backprop, strides=list(strides), padding=padding, use_cudnn_on_gpu=use_cudnn_on_gpu,
        explicit_paddings=pads, data_format=data_format, dilations=list(dilations), name=name,
    )  # fmt: skip


@export("nn.conv2d_transpose")
def conv2d_transpose(
    value: Any = None, filter: Any = None, output_shape: Any = None, strides: Any = None, padding: Any = "SAME",
    data_format: str = "NHWC", name: str | None = None, input: Any = None, filters: Any = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """The transpose (gradient) of `conv2d`: `filter` is (rows, columns, out channels, in channels)."""
    value = one_of(value, input, "value", "input")
    filter = _filters(filter, filters)
    with name_scope(name, "conv2d_transpose", [value, filter, output_shape]) as scope:
        data_format = data_format or "NHWC"
        channel = channel_index(data_format, 2)
        padding, pads = explicit_paddings(padding)
        return raw.Conv2DBackpropInput(
            _sizes(output_shape), filter, value, strides=per_dimension(strides, 2, channel, "strides"), padding=padding,
            explicit_paddings=pads, data_format=data_format, dilations=per_dimension(dilations, 2, channel, "dilations"), name=scope,
        )  # fmt: skip


def _sizes(output_shape: Any) -> Any:
    return output_shape if isinstance(output_shape, Tensor) else convert_to_tensor(output_shape, name="input_sizes", dtype="int32")


@export("nn.atrous_conv2d")
def atrous_conv2d(value: Any, filters: Any, rate: int, padding: str, name: str | None = None) -> Tensor:
    """`conv2d` with holes: filter cells are `rate` pixels apart."""
    return convolution(value, filters, padding, dilation_rate=[rate, rate], name=name)


@export("nn.atrous_conv2d_transpose")
def atrous_conv2d_transpose(
    value: Any, filters: Any, output_shape: Any, rate: int, padding: str, name: str | None = None
) -> Tensor:
    """The transpose of `atrous_conv2d`."""
    if padding not in ("SAME", "VALID"):
        raise ValueError(f"`padding` must be either 'VALID' or 'SAME'. Received: padding={padding}")
    if rate < 1:
        raise ValueError(f"`rate` cannot be less than one. Received: rate={rate}")
    with name_scope(name, "atrous_conv2d_transpose", [value, filters, output_shape]) as scope:
        return raw.Conv2DBackpropInput(
            _sizes(output_shape), filters, value, strides=[1, 1, 1, 1], padding=padding, dilations=[1, rate, rate, 1], name=scope
        )


# -- depthwise --------------------------------------------------------------------------------------------------------


def _depthwise_dilated(
    x: Any, filter: Any, strides: Sequence[int], padding: Any, rate: Any, data_format: str | None, name: str | None
) -> Tensor:
    if rate is None:
        rate = [1, 1]
    if isinstance(padding, (list, tuple)):
        if any(r != 1 for r in rate):
            raise ValueError("Explicit padding is not supported with a dilation rate above 1.")
        word, pads = explicit_paddings(padding)
        return raw.DepthwiseConv2dNative(
            x, filter, strides=list(strides), padding=word, explicit_paddings=pads, data_format=data_format or "NHWC", name=name
        )
    window = filter.shape.as_list()[:2] if filter.shape.ndims is not None else None
    if padding == "SAME" and any(r != 1 for r in rate) and (window is None or None in window):
        raise ValueError("the spatial shape of the filter must be known when the graph is built")

    def apply(value: Tensor, _: int, word: str) -> Tensor:
        return raw.DepthwiseConv2dNative(
            value, filter, strides=list(strides), padding=word, data_format=data_format or "NHWC", name=name
        )

    if all(r == 1 for r in rate):
        return apply(x, 2, padding)
    if any(s > 1 for s in strides):
        raise ValueError(NOT_BOTH)
    return with_space_to_batch(x, rate, padding, apply, filter_shape=window, data_format=data_format)


@export("nn.depthwise_conv2d")
def depthwise_conv2d(
    input: Any, filter: Any, strides: Any, padding: Any, rate: Any = None, name: str | None = None,
    data_format: str | None = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """Each input channel with its own filters: `filter` is (rows, columns, in channels, filters per channel)."""
    rate = one_of(rate, dilations, "rate", "dilations")
    with name_scope(name, "depthwise", [input, filter]) as scope:
        input = convert_to_tensor(input, name="tensor_in")
        filter = convert_to_tensor(filter, name="filter_in")
        return _depthwise_dilated(input, filter, strides, padding, rate, data_format, scope)


@export("nn.depthwise_conv2d_native")
def depthwise_conv2d_native(
    input: Any, filter: Any, strides: Any, padding: Any, data_format: str = "NHWC", dilations: Any = _ONES4, name: str | None = None
) -> Tensor:
    """The DepthwiseConv2dNative op itself."""
    padding, pads = explicit_paddings(padding)
    return raw.DepthwiseConv2dNative(
        input, filter, strides=list(strides), padding=padding, explicit_paddings=pads, data_format=data_format,
        dilations=list(dilations), name=name,
    )  # fmt: skip


@export("nn.depthwise_conv2d_backprop_input", "nn.depthwise_conv2d_native_backprop_input")
def depthwise_conv2d_native_backprop_input(
    input_sizes: Any, filter: Any, out_backprop: Any, strides: Any, padding: Any, data_format: str = "NHWC",
    dilations: Any = _ONES4, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `depthwise_conv2d_native` with respect to its input."""
    padding, pads = explicit_paddings(padding)
    return raw.DepthwiseConv2dNativeBackpropInput(
        input_sizes, filter, out_backprop, strides=list(strides), padding=padding, explicit_paddings=pads, data_format=data_format,
        dilations=list(dilations), name=name,
    )  # fmt: skip


@export("nn.depthwise_conv2d_backprop_filter", "nn.depthwise_conv2d_native_backprop_filter")
def depthwise_conv2d_native_backprop_filter(
    input: Any, filter_sizes: Any, out_backprop: Any, strides: Any, padding: Any, data_format: str = "NHWC",
    dilations: Any = _ONES4, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `depthwise_conv2d_native` with respect to its filter."""
    padding, pads = explicit_paddings(padding)
    return raw.DepthwiseConv2dNativeBackpropFilter(
        input, filter_sizes, out_backprop, strides=list(strides), padding=padding, explicit_paddings=pads, data_format=data_format,
        dilations=list(dilations), name=name,
    )  # fmt: skip


@export("nn.separable_conv2d")
def separable_conv2d(
    input: Any, depthwise_filter: Any, pointwise_filter: Any, strides: Any, padding: Any, rate: Any = None, name: str | None = None,
    data_format: str | None = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """A depthwise convolution followed by a pointwise (1 x 1) one that mixes the channels."""
    rate = one_of(rate, dilations, "rate", "dilations")
    with name_scope(name, "separable_conv2d", [input, depthwise_filter, pointwise_filter]) as scope:
        input = convert_to_tensor(input, name="tensor_in")
        depthwise_filter = convert_to_tensor(depthwise_filter, name="depthwise_filter")
        pointwise_filter = convert_to_tensor(pointwise_filter, name="pointwise_filter")
        shape = pointwise_filter.shape.with_rank(4)
        shape.dims[0].assert_is_compatible_with(1)
        shape.dims[1].assert_is_compatible_with(1)
        spread = _depthwise_dilated(input, depthwise_filter, strides, padding, rate, data_format, "depthwise")
        return raw.Conv2D(
            spread, pointwise_filter, strides=[1, 1, 1, 1], padding="VALID", data_format=data_format or "NHWC", name=scope
        )


# -- one dimension: a row of a flat image -----------------------------------------------------------------------------


def _one_number(value: Any, name: str) -> int:
    numbers = list(value) if isinstance(value, (list, tuple, np.ndarray)) else [1 if value is None else value]
    if len(numbers) not in (1, 3):
        raise ValueError(f"{name} should be of length 1 or 3. Received: {name}={value} of length {len(numbers)}")
    return numbers[0] if len(numbers) == 1 else max(numbers)


@export("nn.conv1d")
def conv1d(
    value: Any = None, filters: Any = None, stride: Any = None, padding: Any = None, use_cudnn_on_gpu: bool | None = None,
    data_format: str | None = None, name: str | None = None, input: Any = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """`value` (batch, width, channels) correlated with `filters` (width, in channels, out channels)."""
    value = one_of(value, input, "value", "input")
    with name_scope(name, "conv1d", [value, filters]) as scope:
        first = _channels_first(data_format)
        step, rate = _one_number(stride, "stride"), _one_number(dilations, "dilations")
        strides = [1, 1, 1, step] if first else [1, 1, step, 1]
        rates = [1, 1, 1, rate] if first else [1, 1, rate, 1]
        axis = -2 if first else -3
        value = array_ops.expand_dims(value, axis)
        filters = array_ops.expand_dims(filters, 0)
        attrs = dict(
            strides=strides, padding=padding, data_format="NCHW" if first else "NHWC", dilations=rates,
            use_cudnn_on_gpu=True if use_cudnn_on_gpu is None else use_cudnn_on_gpu,
        )  # fmt: skip
        if value.dims is not None and len(value.dims) > 4:
            result = _flat_batch(value, lambda x: raw.Conv2D(x, filters, **attrs), 3, scope)
        else:
            result = raw.Conv2D(value, filters, name=scope, **attrs)
        return array_ops.squeeze(result, [axis])


def _channels_first(data_format: str | None) -> bool:
    if data_format is None or data_format in ("NHWC", "NWC"):
        return False
    if data_format in ("NCHW", "NCW"):
        return True
    raise ValueError(f"`data_format` must be 'NWC' or 'NCW'. Received: data_format={data_format}")


@export("nn.conv1d_transpose")
def conv1d_transpose(
    input: Any, filters: Any, output_shape: Any, strides: Any, padding: str = "SAME", data_format: str = "NWC",
    dilations: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The transpose of `conv1d`: `filters` is (width, out channels, in channels)."""
    with name_scope(name, "conv1d_transpose", [input, filters, output_shape]) as scope:
        first = _channels_first(data_format)
        step, rate = _one_number(strides, "strides"), _one_number(dilations, "dilations")
        axis = 2 if first else 1
        value = array_ops.expand_dims(input, axis)
        filters = array_ops.expand_dims(filters, 0)
        if isinstance(output_shape, Tensor):
            sizes: Any = array_ops.concat([output_shape[:axis], [1], output_shape[axis:]], 0)
        else:
            shape = [int(d) for d in output_shape]
            sizes = np.array([*shape[:axis], 1, *shape[axis:]], np.int32)
        result = raw.Conv2DBackpropInput(
            sizes, filters, value, strides=[1, 1, 1, step] if first else [1, 1, step, 1], padding=padding,
            data_format="NCHW" if first else "NHWC", dilations=[1, 1, 1, rate] if first else [1, 1, rate, 1], name=scope,
        )  # fmt: skip
        return array_ops.squeeze(result, [axis])


# -- three dimensions -------------------------------------------------------------------------------------------------


@export("nn.conv3d")
def conv3d(
    input: Any, filter: Any = None, strides: Any = None, padding: Any = None, data_format: str = "NDHWC", dilations: Any = _ONES5,
    name: str | None = None, filters: Any = None,
) -> Tensor:  # fmt: skip
    """`input` correlated with `filter` of shape (planes, rows, columns, in channels, out channels)."""
    return raw.Conv3D(
        input, _filters(filter, filters), strides=list(strides), padding=padding, data_format=data_format or "NDHWC",
        dilations=list(dilations), name=name,
    )  # fmt: skip


@export("nn.conv3d_transpose")
def conv3d_transpose(
    value: Any, filter: Any = None, output_shape: Any = None, strides: Any = None, padding: str = "SAME", data_format: str = "NDHWC",
    name: str | None = None, input: Any = None, filters: Any = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """The transpose of `conv3d`: `filter` is (planes, rows, columns, out channels, in channels)."""
    value = one_of(value, input, "value", "input")
    filter = _filters(filter, filters)
    with name_scope(name, "conv3d_transpose", [value, filter, output_shape]) as scope:
        data_format = data_format or "NDHWC"
        channel = channel_index(data_format, 3)
        return raw.Conv3DBackpropInputV2(
            _sizes(output_shape), filter, value, strides=per_dimension(strides, 3, channel, "strides"), padding=padding,
            data_format=data_format, dilations=per_dimension(dilations, 3, channel, "dilations"), name=scope,
        )  # fmt: skip


@export("nn.conv3d_backprop_filter", "nn.conv3d_backprop_filter_v2")
def conv3d_backprop_filter(
    input: Any, filter_sizes: Any, out_backprop: Any, strides: Any, padding: Any, data_format: str = "NDHWC", dilations: Any = _ONES5,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `conv3d` with respect to its filter."""
    return raw.Conv3DBackpropFilterV2(
        input, filter_sizes, out_backprop, strides=list(strides), padding=padding, data_format=data_format, dilations=list(dilations), name=name
    )


# -- any number of dimensions -----------------------------------------------------------------------------------------


def _spatial_rank(x: Tensor, w: Tensor, data_format: str | None) -> int:
    if w.dims is not None:
        count = len(w.dims) - 2
    elif data_format is not None:
        count = len(data_format) - 2
    elif x.dims is not None:
        count = len(x.dims) - 2
    else:
        raise ValueError("rank of input or filter must be known")
    if not 1 <= count <= 3:
        raise ValueError(f"`num_spatial_dims` must be 1, 2, or 3. Received: num_spatial_dims={count}.")
    return count


@export("nn.convolution")
def convolution(
    input: Any, filter: Any, padding: Any, strides: Any = None, dilation_rate: Any = None, name: str | None = None,
    data_format: str | None = None, filters: Any = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """Convolution over 1 to 3 spatial dimensions, with strides or dilations (not both).

    `strides` and `dilation_rate` name the spatial dimensions only. `data_format` is "N...C" by default, "NC..." for
    channels first.
    """
    filter = _filters(filter, filters)
    dilation_rate = one_of(dilation_rate, dilations, "dilation_rate", "dilations")
    with name_scope(name, "convolution", [input, filter]) as scope:
        input = convert_to_tensor(input, name="input")
        filter = convert_to_tensor(filter, name="filter")
        count = _spatial_rank(input, filter, data_format)
        channel = channel_index(data_format, count)
        steps = per_dimension(strides, count, channel, "strides")
        rates = per_dimension(dilation_rate, count, channel, "dilations")
        spatial_rates = rates[2:] if channel == 1 else rates[1:-1]
        dilated = any(rate != 1 for rate in spatial_rates)
        if dilated and any(step != 1 for step in steps):
            raise ValueError(NOT_BOTH)

        def apply(value: Tensor, _: int, word: Any) -> Tensor:
            return _plain_convolution(value, filter, count, steps, word, channel == 1, scope)

        if not dilated:
            return apply(input, count, padding)
        return with_space_to_batch(input, spatial_rates, padding, apply, _window(filter, count), data_format=data_format)


def _window(filter: Tensor, count: int) -> Any:
    if filter.dims is not None and None not in filter.dims[:count]:
        return list(filter.dims[:count])
    return None


def _plain_convolution(x: Tensor, w: Tensor, count: int, steps: list[int], padding: Any, first: bool, scope: str) -> Tensor:
    if count == 1:
        return conv1d(x, w, steps[2] if first else steps[1], padding, data_format="NCW" if first else "NWC", name=scope)
    if count == 2:
        return conv2d(x, w, steps, padding, data_format="NCHW" if first else "NHWC", name=scope)
    return conv3d(x, w, steps, padding, data_format="NCDHW" if first else "NDHWC", name=scope)


@export("nn.conv_transpose")
def conv_transpose(
    input: Any, filters: Any, output_shape: Any, strides: Any, padding: str = "SAME", data_format: str | None = None,
    dilations: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The transpose of `convolution`, for 1 to 3 spatial dimensions."""
    with name_scope(name, "conv_transpose", [input, filters, output_shape]) as scope:
        rank = output_shape.shape.as_list()[0] if isinstance(output_shape, Tensor) else len(output_shape)
        spatial = (rank or 0) - 2
        ops = {1: conv1d_transpose, 2: _conv2d_transpose_v2, 3: _conv3d_transpose_v2}
        if spatial not in ops:
            raise ValueError(f"`output_shape` must be of length 3, 4 or 5. Received: output_shape={output_shape} of length {rank}")
        data_format = data_format or {1: "NWC", 2: "NHWC", 3: "NDHWC"}[spatial]
        return ops[spatial](input, filters, output_shape, strides, padding, data_format, dilations, scope)


def _conv2d_transpose_v2(x: Any, w: Any, shape: Any, strides: Any, padding: Any, data_format: str, dilations: Any, name: str) -> Tensor:
    return conv2d_transpose(x, w, shape, strides, padding, data_format, name, dilations=dilations)


def _conv3d_transpose_v2(x: Any, w: Any, shape: Any, strides: Any, padding: Any, data_format: str, dilations: Any, name: str) -> Tensor:
    return conv3d_transpose(x, w, shape, strides, padding, data_format, name, dilations=dilations)


# -- morphology -------------------------------------------------------------------------------------------------------


@export("nn.dilation2d")
def dilation2d(
    input: Any, filter: Any = None, strides: Any = None, rates: Any = None, padding: Any = None, name: str | None = None,
    filters: Any = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """Greyscale dilation: the largest of input + filter under each window; `filter` is (rows, columns, channels)."""
    rates = one_of(rates, dilations, "rates", "dilations")
    return raw.Dilation2D(input, _filters(filter, filters), strides=list(strides), rates=list(rates), padding=padding, name=name)


@export("nn.erosion2d")
def erosion2d(value: Any, kernel: Any, strides: Any, rates: Any, padding: str, name: str | None = None) -> Tensor:
    """Greyscale erosion: the smallest of input - kernel under each window."""
    with name_scope(name, "erosion2d", [value, kernel]) as scope:
        flipped = raw.ReverseV2(kernel, [0, 1])
        grown = raw.Dilation2D(math_ops.negative(value), flipped, strides=list(strides), rates=list(rates), padding=padding, name=scope)
        return math_ops.negative(grown)
