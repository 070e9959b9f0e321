"""Convolutions in two and three dimensions, depthwise convolution, greyscale dilation, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError, UnimplementedError
from penstock.graph.ir import Dims
from penstock.ops.declare import op, with_rank
from penstock.ops.kernels import conv, depthwise, morphology
from penstock.ops.kernels.window import Layout, check_explicit_paddings, layout, static_size
from penstock.ops.samples import arr, empty, ints, normal
from penstock.shapes import merge_dim

# -- shapes -----------------------------------------------------------------------------------------------------------


def window_sizes(lay: Layout, attrs: dict[str, Any], spatial: Any, window: Any, rates: str = "dilations") -> tuple:
    """Static sizes of the spatial dimensions of an output."""
    return tuple(
        static_size(size, k, stride, attrs["padding"], rate, pads)
        for size, k, stride, rate, pads in zip(
            spatial,
            window,
            lay.of_spatial(attrs["strides"]),
            lay.of_spatial(attrs[rates]),
            lay.pairs(attrs.get("explicit_paddings", ())),
            strict=True,
        )
    )


def check_lengths(c: Any, lay: Layout, stride_text: str, dilation_text: str) -> None:
    """Strides, dilations and paddings must have one entry (or pair) for each dimension."""
    for name, text in (("strides", stride_text), ("dilations", dilation_text)):
        values = c.attrs[name]
        if len(values) != lay.rank:
            raise ValueError(f"{text} attribute to contain {lay.rank} values, but got: {len(values)}")
    check_explicit_paddings(c.attrs["padding"], c.attrs.get("explicit_paddings", ()), lay)


def conv_shape(c: Any) -> Dims:
    lay = layout(c.attrs["data_format"])
    kind = c.op.type
    on = f" on data format {lay.format}" if kind == "Conv2D" else ""
    check_lengths(c, lay, f"{kind}{on} requires the stride", f"{kind} requires the dilation")
    dims, filters = with_rank(c, 0, lay.rank), with_rank(c, 1, lay.rank)
    assert dims is not None and filters is not None
    *window, in_depth, out_depth = filters
    depth = dims[lay.channel]
    if in_depth == 0:
        raise ValueError("Depth of filter must not be 0")
    if depth is not None and in_depth is not None:
        if depth % in_depth:
            raise ValueError(f"Depth of input ({depth}) is not a multiple of input depth of filter ({in_depth})")
        groups = depth // in_depth
        if groups and out_depth is not None and out_depth % groups:
            raise ValueError(f"Depth of output ({out_depth}) is not a multiple of the number of groups ({groups})")
    return lay.build(dims[0], window_sizes(lay, c.attrs, lay.of_spatial(dims), window), out_depth)


def depthwise_shape(c: Any) -> Dims:
    lay = layout(c.attrs["data_format"])
    check_lengths(c, lay, "DepthwiseConv2D requires the stride", "DepthwiseConv2D requires the dilation")
    dims, filters = with_rank(c, 0, 4), with_rank(c, 1, 4)
    assert dims is not None and filters is not None
    depth = merge_dim(dims[lay.channel], filters[2])
    out_depth = None if depth is None or filters[3] is None else depth * filters[3]
    return lay.build(dims[0], window_sizes(lay, c.attrs, lay.of_spatial(dims), filters[:2]), out_depth)


def sizes_shape(i: int, rank: int) -> Any:
    """The output's shape is the value of input `i`."""

    def rule(c: Any) -> Dims:
        with_rank(c, i, 1)
        dims = c.const_dims(i)
        if dims is not None and len(dims) != rank:
            raise ValueError(f"Shape must be rank {rank} but is rank {len(dims)}")
        return (None,) * rank if dims is None else dims

    return rule


def conv2d_input_shape(c: Any) -> Dims:
    lay = layout(c.attrs["data_format"])
    filters, grads = with_rank(c, 1, 4), with_rank(c, 2, 4)
    assert filters is not None and grads is not None
    merge_dim(grads[lay.channel], filters[3])
    with_rank(c, 0, 1)
    sizes = c.const_dims(0)
    if sizes is None:
        return lay.build(grads[0], (None, None), None)
    if len(sizes) == 2:
        return lay.build(grads[0], sizes, filters[2])
    if len(sizes) != 4:
        raise ValueError(f"Conv2DBackpropInput requires input_sizes to contain 4 values or 2 values, but got: {len(sizes)}")
    batch = sizes[0] if grads[0] is None else grads[0]
    return (batch, *sizes[1:])


# -- gradients --------------------------------------------------------------------------------------------------------

CONV2D_ATTRS = ("strides", "padding", "explicit_paddings", "use_cudnn_on_gpu", "data_format", "dilations")
CONV3D_ATTRS = ("strides", "padding", "data_format", "dilations")
DEPTHWISE_ATTRS = ("strides", "padding", "explicit_paddings", "data_format", "dilations")


def attrs_of(op: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: op.attr(name) for name in names}


def conv_grads(forward: str, to_input: str, to_filter: str, names: tuple[str, ...]) -> tuple[Any, Any, Any]:
    """Gradient rules of a convolution and of its two gradients: each is bilinear in the other two."""

    def of_forward(g: Any, op: Any, dy: Any) -> list[Any]:
        attrs = attrs_of(op, names)
        x, w = op.inputs
        shapes = g.ShapeN([x, w])
        return [getattr(g, to_input)(shapes[0], w, dy, **attrs), getattr(g, to_filter)(x, shapes[1], dy, **attrs)]

    def of_input(g: Any, op: Any, dx: Any) -> list[Any]:
        attrs = attrs_of(op, names)
        _, w, dy = op.inputs
        return [None, getattr(g, to_filter)(dx, g.Shape(w), dy, **attrs), getattr(g, forward)(dx, w, **attrs)]

    def of_filter(g: Any, op: Any, dw: Any) -> list[Any]:
        attrs = attrs_of(op, names)
        x, _, dy = op.inputs
        return [getattr(g, to_input)(g.Shape(x), dw, dy, **attrs), None, getattr(g, forward)(x, dw, **attrs)]

    return of_forward, of_input, of_filter


# -- two dimensions ---------------------------------------------------------------------------------------------------

conv2d_grad, conv2d_input_grad, conv2d_filter_grad = conv_grads("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", CONV2D_ATTRS)

# (input, filter, output positions, attributes) that forward and backward samples share.
CONV2D_CASES: list[tuple[tuple, tuple, tuple, dict[str, Any]]] = [
    ((2, 5, 6, 3), (3, 3, 3, 4), (2, 5, 6, 4), dict(strides=[1, 1, 1, 1], padding="SAME")),
    ((2, 5, 6, 3), (3, 2, 3, 4), (2, 2, 3, 4), dict(strides=[1, 2, 2, 1], padding="VALID")),
    ((1, 5, 6, 2), (1, 1, 2, 3), (1, 5, 6, 3), dict(strides=[1, 1, 1, 1], padding="SAME")),
    ((1, 6, 6, 2), (2, 2, 2, 3), (1, 2, 2, 3), dict(strides=[1, 3, 3, 1], padding="SAME")),
    ((1, 4, 5, 2), (2, 3, 2, 3), (1, 6, 6, 3), dict(strides=[1, 1, 1, 1], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0])),
]  # fmt: skip


def whole(*shape: int) -> Any:
    """Small whole numbers: sums of their products are exact in every type, whatever the order."""
    return ints(*shape, lo=-2, hi=3)


def conv2d_samples() -> list[dict[str, Any]]:
    found = [dict(input=whole(*x), filter=whole(*w), **attrs) for x, w, _, attrs in CONV2D_CASES]
    found.append(dict(input=whole(1, 7, 7, 2), filter=whole(3, 3, 2, 3), strides=[1, 1, 1, 1], dilations=[1, 2, 2, 1], padding="VALID"))
    found.append(dict(input=whole(1, 4, 4, 4), filter=whole(3, 3, 2, 6), strides=[1, 1, 1, 1], padding="SAME"))
    found.append(dict(input=empty(0, 4, 4, 2), filter=whole(3, 3, 2, 3), strides=[1, 1, 1, 1], padding="SAME"))
    return found


def backward_samples(cases: Any, of: str) -> list[dict[str, Any]]:
    """Samples of the gradient with respect to `of`, "input" or "filter"."""
    found = []
    for x, w, y, attrs in cases:
        pair = dict(input_sizes=arr(x, np.int32), filter=whole(*w)) if of == "input" else dict(input=whole(*x), filter_sizes=arr(w, np.int32))
        found.append(dict(**pair, out_backprop=whole(*y), **attrs))
    return found


CONV2D_ERRORS = [
    (dict(input=normal(4, 4, 2), filter=normal(3, 3, 2, 3), strides=[1, 1, 1, 1], padding="SAME"), InvalidArgumentError, "convolution input must be 4-dimensional"),
    (dict(input=normal(1, 4, 4, 2), filter=normal(3, 3, 5, 3), strides=[1, 1, 1, 1], padding="SAME"), InvalidArgumentError, "input depth must be evenly divisible by filter depth: 2 vs 5"),
    (dict(input=normal(1, 4, 4, 2), filter=normal(6, 6, 2, 3), strides=[1, 1, 1, 1], padding="VALID"), InvalidArgumentError, r"Computed output size would be negative: -1 \[input_size: 4, effective_filter_size: 6, stride: 1\]"),
    (dict(input=normal(1, 4, 4, 2), filter=normal(3, 3, 2, 3), strides=[2, 1, 1, 1], padding="SAME"), UnimplementedError, "strides in the batch and depth dimensions"),
]  # fmt: skip

op("Conv2D(input: T, filter: T) -> (output: T) [T: type in {half, bfloat16, float, double, int32}; strides: list(int);"
   " use_cudnn_on_gpu: bool = true; padding: string in {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = [];"
   " data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]]",
   shape=conv_shape, numpy=conv.conv2d, grad=conv2d_grad, expensive=True, samples=conv2d_samples, errors=CONV2D_ERRORS)  # fmt: skip

op("Conv2DBackpropInput(input_sizes: int32, filter: T, out_backprop: T) -> (output: T) [T: type in {half, bfloat16, float, double, int32};"
   " strides: list(int); use_cudnn_on_gpu: bool = true; padding: string in {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = [];"
   " data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]]",
   shape=conv2d_input_shape, numpy=conv.conv2d_backprop_input, grad=conv2d_input_grad, expensive=True, host_memory=["input_sizes"],
   samples=lambda: backward_samples(CONV2D_CASES, "input"),
   errors=[(dict(input_sizes=[1, 5, 4, 2], filter=normal(3, 3, 2, 3), out_backprop=normal(1, 2, 2, 3), strides=[1, 1, 1, 1], padding="VALID"),
            InvalidArgumentError, "Size of out_backprop doesn't match computed: actual = 2, computed = 3"),
           (dict(input_sizes=[2, 4, 4, 2], filter=normal(3, 3, 2, 3), out_backprop=normal(1, 2, 2, 3), strides=[1, 1, 1, 1], padding="VALID"),
            InvalidArgumentError, "must have the same batch size")])  # fmt: skip

op("Conv2DBackpropFilter(input: T, filter_sizes: int32, out_backprop: T) -> (output: T) [T: type in {half, bfloat16, float, double};"
   " strides: list(int); use_cudnn_on_gpu: bool = true; padding: string in {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = [];"
   " data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]]",
   shape=sizes_shape(1, 4), numpy=conv.conv2d_backprop_filter, grad=conv2d_filter_grad, expensive=True, host_memory=["filter_sizes"],
   samples=lambda: backward_samples(CONV2D_CASES, "filter"),
   errors=[(dict(input=normal(1, 4, 4, 2), filter_sizes=[2, 3, 2, 3], out_backprop=normal(1, 2, 2, 3), strides=[1, 1, 1, 1], padding="VALID"),
            InvalidArgumentError, "Size of out_backprop doesn't match computed")])  # fmt: skip


def conv2d_backprop_input_v2(x: Any, filter: Any, out_backprop: Any, *, strides, padding, explicit_paddings, data_format, dilations) -> Any:
    return conv.conv2d_backprop_input(
        np.array(x.shape), filter, out_backprop, strides=strides, padding=padding,
        explicit_paddings=explicit_paddings, data_format=data_format, dilations=dilations,
    )  # fmt: skip


def conv2d_backprop_filter_v2(x: Any, filter: Any, out_backprop: Any, *, strides, padding, explicit_paddings, data_format, dilations) -> Any:
    return conv.conv2d_backprop_filter(
        x, np.array(filter.shape), out_backprop, strides=strides, padding=padding,
        explicit_paddings=explicit_paddings, data_format=data_format, dilations=dilations,
    )  # fmt: skip


op("Conv2DBackpropInputV2(input: T, filter: T, out_backprop: T) -> (output: T) [T: type in {half, bfloat16, float, double, int32};"
   " strides: list(int); use_cudnn_on_gpu: bool = true; padding: string in {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = [];"
   " data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]]",
   shape=lambda c: with_rank(c, 0, 4), numpy=conv2d_backprop_input_v2, expensive=True)  # fmt: skip

op("Conv2DBackpropFilterV2(input: T, filter: T, out_backprop: T) -> (output: T) [T: type in {half, bfloat16, float, double};"
   " strides: list(int); use_cudnn_on_gpu: bool = true; padding: string in {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = [];"
   " data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]]",
   shape=lambda c: with_rank(c, 1, 4), numpy=conv2d_backprop_filter_v2, expensive=True)  # fmt: skip


# -- depthwise --------------------------------------------------------------------------------------------------------

depthwise_grad, depthwise_input_grad, depthwise_filter_grad = conv_grads(
    "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter", DEPTHWISE_ATTRS
)

DEPTHWISE_CASES: list[tuple[tuple, tuple, tuple, dict[str, Any]]] = [
    ((2, 5, 6, 3), (3, 3, 3, 1), (2, 5, 6, 3), dict(strides=[1, 1, 1, 1], padding="SAME")),
    ((2, 5, 6, 3), (3, 2, 3, 2), (2, 2, 3, 6), dict(strides=[1, 2, 2, 1], padding="VALID")),
    ((1, 4, 5, 2), (2, 3, 2, 2), (1, 6, 6, 4), dict(strides=[1, 1, 1, 1], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0])),
]  # fmt: skip

op("DepthwiseConv2dNative(input: T, filter: T) -> (output: T) [T: type in FLOATS; strides: list(int);"
   " padding: string in {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = []; data_format: string in {'NHWC', 'NCHW'} = 'NHWC';"
   " dilations: list(int) = [1, 1, 1, 1]]",
   shape=depthwise_shape, numpy=depthwise.depthwise_conv2d, grad=depthwise_grad, expensive=True,
   samples=lambda: [*(dict(input=whole(*x), filter=whole(*w), **attrs) for x, w, _, attrs in DEPTHWISE_CASES),
                    dict(input=empty(0, 4, 4, 2), filter=normal(3, 3, 2, 2), strides=[1, 1, 1, 1], padding="SAME")],
   errors=[(dict(input=normal(1, 4, 4, 2), filter=normal(2, 2, 3, 1), strides=[1, 1, 1, 1], padding="SAME"), InvalidArgumentError, "input and filter must have the same depth: 2 vs 3")])  # fmt: skip

op("DepthwiseConv2dNativeBackpropInput(input_sizes: int32, filter: T, out_backprop: T) -> (output: T) [T: type in FLOATS; strides: list(int);"
   " padding: string in {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = []; data_format: string in {'NHWC', 'NCHW'} = 'NHWC';"
   " dilations: list(int) = [1, 1, 1, 1]]",
   shape=sizes_shape(0, 4), numpy=depthwise.depthwise_conv2d_backprop_input, grad=depthwise_input_grad, expensive=True, host_memory=["input_sizes"],
   samples=lambda: backward_samples(DEPTHWISE_CASES, "input"))  # fmt: skip

op("DepthwiseConv2dNativeBackpropFilter(input: T, filter_sizes: int32, out_backprop: T) -> (output: T) [T: type in FLOATS; strides: list(int);"
   " padding: string in {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = []; data_format: string in {'NHWC', 'NCHW'} = 'NHWC';"
   " dilations: list(int) = [1, 1, 1, 1]]",
   shape=sizes_shape(1, 4), numpy=depthwise.depthwise_conv2d_backprop_filter, grad=depthwise_filter_grad, expensive=True, host_memory=["filter_sizes"],
   samples=lambda: backward_samples(DEPTHWISE_CASES, "filter"))  # fmt: skip


# -- three dimensions -------------------------------------------------------------------------------------------------

conv3d_grad, conv3d_input_grad, conv3d_filter_grad = conv_grads("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2", CONV3D_ATTRS)

CONV3D_CASES: list[tuple[tuple, tuple, tuple, dict[str, Any]]] = [
    ((2, 3, 4, 5, 2), (2, 3, 2, 2, 3), (2, 3, 4, 5, 3), dict(strides=[1, 1, 1, 1, 1], padding="SAME")),
    ((1, 4, 5, 6, 2), (2, 2, 3, 2, 3), (1, 2, 2, 2, 3), dict(strides=[1, 2, 2, 2, 1], padding="VALID")),
    ((1, 2, 3, 3, 2), (1, 1, 1, 2, 3), (1, 2, 3, 3, 3), dict(strides=[1, 1, 1, 1, 1], padding="SAME")),
]  # fmt: skip

op("Conv3D(input: T, filter: T) -> (output: T) [T: type in FLOATS; strides: list(int) >= 5; padding: string in {'SAME', 'VALID'};"
   " data_format: string in {'NDHWC', 'NCDHW'} = 'NDHWC'; dilations: list(int) = [1, 1, 1, 1, 1]]",
   shape=conv_shape, numpy=conv.conv3d, grad=conv3d_grad, expensive=True,
   samples=lambda: [dict(input=whole(*x), filter=whole(*w), **attrs) for x, w, _, attrs in CONV3D_CASES],
   errors=[(dict(input=normal(4, 4, 4, 2), filter=normal(2, 2, 2, 2, 3), strides=[1, 1, 1, 1, 1], padding="SAME"), InvalidArgumentError, "input must be 5-dimensional")])  # fmt: skip

op("Conv3DBackpropInputV2(input_sizes: Tshape, filter: T, out_backprop: T) -> (output: T) [T: type in FLOATS; strides: list(int) >= 5;"
   " padding: string in {'SAME', 'VALID'}; data_format: string in {'NDHWC', 'NCDHW'} = 'NDHWC'; dilations: list(int) = [1, 1, 1, 1, 1];"
   " Tshape: type in {int32, int64} = int32]",
   shape=sizes_shape(0, 5), numpy=conv.conv3d_backprop_input, grad=conv3d_input_grad, expensive=True, host_memory=["input_sizes"],
   samples=lambda: backward_samples(CONV3D_CASES, "input"))  # fmt: skip

op("Conv3DBackpropFilterV2(input: T, filter_sizes: int32, out_backprop: T) -> (output: T) [T: type in FLOATS; strides: list(int) >= 5;"
   " padding: string in {'SAME', 'VALID'}; data_format: string in {'NDHWC', 'NCDHW'} = 'NDHWC'; dilations: list(int) = [1, 1, 1, 1, 1]]",
   shape=sizes_shape(1, 5), numpy=conv.conv3d_backprop_filter, grad=conv3d_filter_grad, expensive=True, host_memory=["filter_sizes"],
   samples=lambda: backward_samples(CONV3D_CASES, "filter"))  # fmt: skip

op("Conv3DBackpropInput(input: T, filter: T, out_backprop: T) -> (output: T) [T: type in {half, float, double}; strides: list(int) >= 5;"
   " padding: string in {'SAME', 'VALID'}; dilations: list(int) = [1, 1, 1, 1, 1]] deprecated@10",
   shape=lambda c: with_rank(c, 0, 5), numpy=conv.conv3d_backprop_input_v1, expensive=True,
   samples=lambda: [dict(input=whole(*x), filter=whole(*w), out_backprop=whole(*y), **attrs) for x, w, y, attrs in CONV3D_CASES])  # fmt: skip

op("Conv3DBackpropFilter(input: T, filter: T, out_backprop: T) -> (output: T) [T: type in {half, float, double}; strides: list(int) >= 5;"
   " padding: string in {'SAME', 'VALID'}; dilations: list(int) = [1, 1, 1, 1, 1]] deprecated@10",
   shape=lambda c: with_rank(c, 1, 5), numpy=conv.conv3d_backprop_filter_v1, expensive=True,
   samples=lambda: [dict(input=whole(*x), filter=whole(*w), out_backprop=whole(*y), **attrs) for x, w, y, attrs in CONV3D_CASES])  # fmt: skip


# -- greyscale dilation -----------------------------------------------------------------------------------------------


def dilation_shape(c: Any) -> Dims:
    lay = layout(b"NHWC")
    for name, text in (("strides", "stride"), ("rates", "rates")):
        if len(c.attrs[name]) != 4:
            raise ValueError(f"Dilation2D requires the {text} attribute to contain 4 values, but got: {len(c.attrs[name])}")
    dims, filters = with_rank(c, 0, 4), with_rank(c, 1, 3)
    assert dims is not None and filters is not None
    depth = merge_dim(dims[3], filters[2])
    return lay.build(dims[0], window_sizes(lay, c.attrs, dims[1:3], filters[:2], "rates"), depth)


def dilation_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    attrs = attrs_of(op, ("strides", "rates", "padding"))
    return [g.Dilation2DBackpropInput(*op.inputs, dy, **attrs), g.Dilation2DBackpropFilter(*op.inputs, dy, **attrs)]


DILATIONS = [
    (dict(input=normal(2, 5, 6, 3), filter=normal(2, 3, 3), strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="SAME"), (2, 5, 6, 3)),
    (dict(input=normal(1, 6, 7, 2), filter=normal(2, 2, 2), strides=[1, 2, 2, 1], rates=[1, 2, 2, 1], padding="VALID"), (1, 2, 3, 2)),
]  # fmt: skip

op("Dilation2D(input: T, filter: T) -> (output: T) [T: type in REALS; strides: list(int) >= 4; rates: list(int) >= 4; padding: string in {'SAME', 'VALID'}]",
   shape=dilation_shape, numpy=morphology.dilation2d, grad=dilation_grad, expensive=True,
   samples=[case for case, _ in DILATIONS])  # fmt: skip

op("Dilation2DBackpropInput(input: T, filter: T, out_backprop: T) -> (in_backprop: T) [T: type in REALS; strides: list(int) >= 4; rates: list(int) >= 4; padding: string in {'SAME', 'VALID'}]",
   shape=lambda c: c.dims(0), numpy=morphology.dilation2d_backprop_input, expensive=True,
   samples=[dict(case, out_backprop=normal(*y)) for case, y in DILATIONS],
   errors=[(dict(DILATIONS[0][0], out_backprop=normal(1, 1, 1, 1)), InvalidArgumentError, "out_backprop has incompatible size")])  # fmt: skip

op("Dilation2DBackpropFilter(input: T, filter: T, out_backprop: T) -> (filter_backprop: T) [T: type in REALS; strides: list(int) >= 4; rates: list(int) >= 4; padding: string in {'SAME', 'VALID'}]",
   shape=lambda c: c.dims(1), numpy=morphology.dilation2d_backprop_filter, expensive=True,
   samples=[dict(case, out_backprop=normal(*y)) for case, y in DILATIONS])  # fmt: skip
