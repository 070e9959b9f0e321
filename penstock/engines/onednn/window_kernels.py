"""Kernels of windows that slide over images: convolutions and pooling, with their gradients."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock import errors
from penstock.engines.onednn import binding, conv, pool
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.binding import Kernel, is_constant, library_for, remembering, shape_1, shapes_2
from penstock.engines.onednn.primitives import CODES
from penstock.graph.ir import Operation
from penstock.ops.kernels import channelwise
from penstock.ops.kernels.window import Layout, layout, slides_of

# -- convolutions -------------------------------------------------------------------------------------------------------


class Window:
    """The attributes of a convolution: geometry for shapes."""

    def __init__(self, attrs: dict[str, Any], is_depthwise: bool) -> None:
        a = attrs
        self.lay: Layout = layout(a["data_format"])
        self.strides, self.padding = a["strides"], a["padding"]
        self.dilations = a.get("dilations") or (1,) * self.lay.rank
        self.explicit = a.get("explicit_paddings", ())
        self.dtype: np.dtype = a["T"].np
        self.is_depthwise = is_depthwise

    @property
    def is_supported(self) -> bool:
        rank = self.lay.rank
        return (
            self.dtype in CODES
            and len(self.strides) == len(self.dilations) == rank
            and all(v[0] == v[self.lay.channel] == 1 for v in (self.strides, self.dilations))
        )

    def spec(self, x: Sequence[int], filter: Sequence[int], dy: Sequence[int] | None = None) -> conv.Spec | None:
        """The convolution of these shapes; None if they do not fit, are empty, or too small."""
        lay = self.lay
        if len(x) != lay.rank or len(filter) != lay.rank or 0 in x or 0 in filter:
            return None
        depth = x[lay.channel]
        if self.is_depthwise:
            if filter[-2] != depth:
                return None
            groups, out_depth = depth, depth * filter[-1]
        else:
            groups, out_depth = depth // filter[-2], filter[-1]
            if not groups or depth % filter[-2] or out_depth % groups:
                return None
        try:
            slides = slides_of(lay, lay.of_spatial(x), filter[:-2], self.strides, self.padding, self.dilations, self.explicit)
        except errors.InvalidArgumentError:
            return None
        spec = conv.Spec(x[0], depth, out_depth, groups, tuple(slides), lay.channels_last, self.dtype, self.is_depthwise)
        least = binding.MIN_DEPTHWISE_FLOPS if self.is_depthwise else binding.MIN_CONV_FLOPS
        if any(s.out <= 0 for s in slides) or spec.flops < least:
            return None
        if groups == depth and channelwise.suits(self.dtype, depth, out_depth, slides):  # the declared kernel is quicker
            return None
        return spec if dy is None or tuple(dy) == spec.shape(spec.dst_dims) else None


def conv_forward(is_depthwise: bool) -> Kernel:
    """Conv2D, Conv3D, DepthwiseConv2dNative."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        window = Window(op.attrs, is_depthwise)
        if not window.is_supported:
            return None
        constant = is_constant(op.inputs[1])

        def prepare(x: np.ndarray, filter: np.ndarray) -> Kernel | None:
            spec = window.spec(x.shape, filter.shape)
            library = library_for(window.dtype) if spec else None
            plan = conv.forward(library, spec, is_constant=constant) if library and spec else None
            return plan and plan.run

        return remembering(op, fallback, shapes_2, prepare)

    return maker


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple(np.asarray(value).ravel().tolist())


def conv_backward_input(is_depthwise: bool, from_sizes: bool = True) -> Kernel:
    """...BackpropInput(input_sizes or input, filter, out_backprop)."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        window = Window(op.attrs, is_depthwise)
        if not window.is_supported:
            return None
        lay = window.lay

        def key_of(x: Any, filter: np.ndarray, dy: np.ndarray) -> Any:
            return x.tobytes() if from_sizes else x.shape, filter.shape, dy.shape

        def prepare(x: Any, filter: np.ndarray, dy: np.ndarray) -> Kernel | None:
            sizes = _sizes(x) if from_sizes else x.shape
            if len(sizes) == lay.rank - 2 and filter.ndim == dy.ndim == lay.rank:
                sizes = lay.build(dy.shape[0], sizes, filter.shape[-2])
            spec = window.spec(sizes, filter.shape, dy.shape)
            library = library_for(window.dtype) if spec else None
            plan = conv.backward_input(library, spec) if library and spec else None
            if plan is None:
                return None
            run = plan.run
            return lambda _, filter, dy: run(filter, dy)

        return remembering(op, fallback, key_of, prepare)

    return maker


def conv_backward_filter(is_depthwise: bool, from_sizes: bool = True, has_bias: bool = False) -> Kernel:
    """...BackpropFilter(input, filter_sizes or filter, out_backprop), which may give the gradient of a bias too."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        window = Window(op.attrs, is_depthwise)
        if not window.is_supported:
            return None

        def key_of(x: np.ndarray, filter: Any, dy: np.ndarray) -> Any:
            return x.shape, filter.tobytes() if from_sizes else filter.shape, dy.shape

        def prepare(x: np.ndarray, filter: Any, dy: np.ndarray) -> Kernel | None:
            spec = window.spec(x.shape, _sizes(filter) if from_sizes else filter.shape, dy.shape)
            library = library_for(window.dtype) if spec else None
            plan = conv.backward_filter(library, spec, has_bias) if library and spec else None
            if plan is None:
                return None
            run = plan.run
            return lambda x, _, dy: run(x, dy)

        return remembering(op, fallback, key_of, prepare)

    return maker


# -- pooling ------------------------------------------------------------------------------------------------------------


class _Pooling:
    """The attributes of a pooling: geometry for shapes."""

    def __init__(self, op: Operation, alg: int) -> None:
        a = op.attrs
        self.alg = alg
        self.dtype: np.dtype = a["T"].np
        self.ksize, self.strides, self.padding = a["ksize"], a["strides"], a["padding"]
        self.explicit = a.get("explicit_paddings", ())
        self.format = a["data_format"]

    @property
    def is_supported(self) -> bool:
        if self.dtype not in CODES or self.format not in (b"NHWC", b"NCHW", b"NDHWC", b"NCDHW"):
            return False
        self.lay = layout(self.format)
        if not len(self.ksize) == len(self.strides) == self.lay.rank:
            return False
        return min(self.ksize) > 0 and all(v[0] == v[self.lay.channel] == 1 for v in (self.ksize, self.strides))

    def spec(self, x: Sequence[int]) -> pool.Spec | None:
        lay = self.lay
        if len(x) != lay.rank or int(np.prod(x)) < max(binding.MIN_POOL_SIZE, 1):
            return None
        try:
            slides = slides_of(
                lay, lay.of_spatial(x), lay.of_spatial(self.ksize), self.strides, self.padding, explicit_paddings=self.explicit
            )
        except errors.InvalidArgumentError:
            return None
        if any(s.out <= 0 or s.before >= s.window or s.after >= s.window for s in slides):
            return None
        return pool.Spec(self.alg, x[0], x[lay.channel], tuple(slides), lay.channels_last, self.dtype)


def pool_forward(alg: int) -> Kernel:
    """MaxPool, AvgPool and their three-dimensional versions."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        pooling = _Pooling(op, alg)
        if not pooling.is_supported:
            return None

        def prepare(x: np.ndarray) -> Kernel | None:
            spec = pooling.spec(x.shape)
            library = library_for(pooling.dtype) if spec else None
            plan = pool.forward(library, spec) if library and spec else None
            return plan and plan.run

        kernel = remembering(op, fallback, shape_1, prepare)
        kernel.pooling = pooling  # type: ignore[attr-defined]
        return kernel

    return maker


def max_pool_backward(op: Operation, fallback: Kernel) -> Kernel | None:
    """MaxPoolGrad(orig_input, orig_output, grad)."""
    pooling = _Pooling(op, lib.POOLING_MAX)
    if not pooling.is_supported:
        return None

    def key_of(x: np.ndarray, y: np.ndarray, dy: np.ndarray) -> Any:
        return x.shape, y.shape, dy.shape

    def prepare(x: np.ndarray, y: np.ndarray, dy: np.ndarray, over: bool = False) -> Kernel | None:
        spec = pooling.spec(x.shape)
        if spec is None or not y.shape == dy.shape == spec.shape(spec.dst_dims):
            return None
        library = library_for(pooling.dtype)
        plan = pool.backward(library, spec) if library else None
        return plan and (functools.partial(plan.run, over=True) if over else plan.run)

    kernel = remembering(op, fallback, key_of, prepare)
    over_input = remembering(op, fallback, key_of, functools.partial(prepare, over=True))
    # The maxima's places, and the gradients there, are read while results are written.
    kernel.over = lambda i: over_input if i == 0 else kernel  # type: ignore[attr-defined]
    return kernel


def avg_pool_backward(op: Operation, fallback: Kernel) -> Kernel | None:
    """AvgPoolGrad(orig_input_shape, grad) and AvgPool3DGrad."""
    pooling = _Pooling(op, lib.POOLING_AVG_EXCLUDE_PADDING)
    if not pooling.is_supported:
        return None

    def key_of(sizes: np.ndarray, dy: np.ndarray) -> Any:
        return sizes.tobytes(), dy.shape

    def prepare(sizes: np.ndarray, dy: np.ndarray) -> Kernel | None:
        spec = pooling.spec(_sizes(sizes))
        if spec is None or dy.shape != spec.shape(spec.dst_dims):
            return None
        library = library_for(pooling.dtype)
        plan = pool.backward(library, spec) if library else None
        if plan is None:
            return None
        run = plan.run
        return lambda _, dy: run(dy)

    return remembering(op, fallback, key_of, prepare)
