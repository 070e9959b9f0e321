"""Convolutions: forward with bias and post-ops, gradients of input and filter, plain, grouped and depthwise, two or three dimensions.

Activations stay in NumPy's plain layout, channels last; channels-first ones are brought there and back by oneDNN's own reorders.
Filters are laid out as the primitive likes best, for every call anew unless they are constant. The depthwise filter (*window, C, M)
and the grouped one (*window, C / groups, O) are descriptors with strides over TF's own layout; nothing is transposed by NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.onednn import library as lib
from penstock.engines.onednn.library import Dims, Library
from penstock.engines.onednn.plan import FLOPS_PER_US, Reordered, channels_last_strides, contiguous, planned, strides_of
from penstock.engines.onednn.primitives import Add, Maker, PostOps, Primitive, address, empty, scratch
from penstock.ops.kernels.window import Slide


class Spec(NamedTuple):
    """A convolution on fixed shapes. `slides` describe the window along each spatial dimension."""

    batch: int
    depth: int
    out_depth: int
    groups: int
    slides: tuple[Slide, ...]
    channels_last: bool
    dtype: np.dtype
    is_depthwise: bool = False  # the filter is (*window, C, M) instead of (*window, C / groups, O)

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        total = 2.0 * self.batch * self.depth * self.out_depth / self.groups
        for s in self.slides:
            total *= s.out * s.window
        return total

    @property
    def microseconds(self) -> float:
        """What one thread takes, roughly. Depthwise convolutions wait for memory."""
        return self.flops / (FLOPS_PER_US / 4 if self.groups == self.depth > 1 else FLOPS_PER_US)

    @property
    def src_dims(self) -> tuple[int, ...]:
        return (self.batch, self.depth, *(s.size for s in self.slides))

    @property
    def dst_dims(self) -> tuple[int, ...]:
        return (self.batch, self.out_depth, *(s.out for s in self.slides))

    @property
    def window(self) -> tuple[int, ...]:
        return tuple(s.window for s in self.slides)

    @property
    def filter_shape(self) -> tuple[int, ...]:
        """The filter as TF has it."""
        if self.is_depthwise:
            return (*self.window, self.depth, self.out_depth // self.depth)
        return (*self.window, self.depth // self.groups, self.out_depth)

    def shape(self, dims: Sequence[int]) -> tuple[int, ...]:
        """The shape of an array with logical dims (N, C, *spatial)."""
        return (dims[0], *dims[2:], dims[1]) if self.channels_last else tuple(dims)

    def weight_dims(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """oneDNN's dims (groups, O / groups, C / groups, *window) of the filter, and strides over TF's layout."""
        g, o, i = self.groups, self.out_depth // self.groups, self.depth // self.groups
        *window, in_stride, out_stride = strides_of(self.filter_shape)
        if self.is_depthwise:
            # One channel a group: the filter's channel is the group.
            return (g, o, 1, *self.window), (in_stride, out_stride, in_stride * g, *window)
        if g == 1:
            return (o, i, *self.window), (out_stride, in_stride, *window)
        return (g, o, i, *self.window), (o, out_stride, in_stride, *window)

    def geometry(self) -> tuple[Any, Any, Any, Any]:
        """Strides, dilations (0 is none) and paddings, as the C API takes them."""
        s = self.slides
        return (
            Dims(*(d.stride for d in s)),
            Dims(*(d.dilation - 1 for d in s)),
            Dims(*(d.before for d in s)),
            Dims(*(d.after for d in s)),
        )


def _forward_pd(m: Maker, spec: Spec, bias: int | None = None, attr: int | None = None, prop: int = lib.FORWARD_TRAINING) -> int:
    src = m.md(spec.src_dims, channels_last_strides(spec.src_dims), spec.dtype)
    dst = m.md(spec.dst_dims, channels_last_strides(spec.dst_dims), spec.dtype)
    weights = m.md(spec.weight_dims()[0], None, spec.dtype)
    return m.pd("convolution_forward", prop, lib.CONVOLUTION_DIRECT, src, weights, bias, dst, *spec.geometry(), attr)


class _Plan:
    """What the three products share: activations in and out of channels-last order."""

    def __init__(self, m: Maker, spec: Spec) -> None:
        self.spec = spec
        self.dtype = spec.dtype
        self._src = m.md(spec.src_dims, channels_last_strides(spec.src_dims), spec.dtype)
        self._dst = m.md(spec.dst_dims, channels_last_strides(spec.dst_dims), spec.dtype)
        dims, strides = spec.weight_dims()
        self._filter = m.md(dims, strides, spec.dtype)

    def _to_last(self, m: Maker, dims: Sequence[int], last: int) -> Reordered | None:
        return None if self.spec.channels_last else Reordered(m, m.md(dims, strides_of(dims), self.dtype), last)

    def _from_last(self, m: Maker, dims: Sequence[int], last: int) -> Primitive | None:
        return None if self.spec.channels_last else m.reorder(last, m.md(dims, strides_of(dims), self.dtype))


class Forward(_Plan):
    """y = conv(x, w) [+ bias] [post-ops]."""

    def __init__(self, m: Maker, spec: Spec, has_bias: bool, post_ops: PostOps) -> None:
        super().__init__(m, spec)
        bias = m.md((spec.out_depth,), (1,), spec.dtype) if has_bias else None
        pd = _forward_pd(m, spec, bias, m.attr(post_ops, spec.dtype), lib.FORWARD_INFERENCE)
        weights = m.query(pd, lib.QUERY_WEIGHTS)
        args = [(lib.ARG_SRC, self._src), (lib.ARG_WEIGHTS, weights), (lib.ARG_DST, self._dst)]
        if bias is not None:
            args.append((lib.ARG_BIAS, bias))
        for i, op in enumerate(post_ops):
            if isinstance(op, Add):
                args.append((lib.ARG_POST_OP * (i + 1) | lib.ARG_SRC_1, m.md(op.dims, op.strides, spec.dtype)))
        self.main = m.primitive(pd, args)
        self.weights = Reordered(m, self._filter, weights)
        self.x_in = self._to_last(m, spec.src_dims, self._src)
        self.y_out = self._from_last(m, spec.dst_dims, self._dst)
        self.y_bytes = m.size(self._dst)
        self.shape = spec.shape(spec.dst_dims)
        # The one common case runs without the questions of the general one.
        self.run = self.run_plain if self.x_in is None and self.weights.primitive is not None else self.run_any
        self.run_constant = self.run_plain_constant if self.x_in is None else self.run_any_constant

    def run_plain(self, x: np.ndarray, w: np.ndarray, *more: np.ndarray) -> np.ndarray:
        x, w = contiguous(x), contiguous(w)
        y = empty(self.shape, self.dtype)
        weights = self.weights
        laid_out = scratch.take(weights.size)
        weights.primitive.run(address(w), laid_out.address)  # type: ignore[union-attr]
        self.main.run(address(x), laid_out.address, address(y), *map(address, more))
        scratch.give(laid_out)
        return y

    def run_plain_constant(self, x: np.ndarray, w: np.ndarray, *more: np.ndarray) -> np.ndarray:
        x = contiguous(x)
        y = empty(self.shape, self.dtype)
        self.main.run(address(x), self.weights.constant(w), address(y), *map(address, more))
        return y

    def run_any(self, x: np.ndarray, w: np.ndarray, *more: np.ndarray) -> np.ndarray:
        w = contiguous(w)
        if self.weights.primitive is None:
            return self._run_laid_out(x, address(w), more)
        laid_out = scratch.take(self.weights.size)
        self.weights.primitive.run(address(w), laid_out.address)
        y = self._run_laid_out(x, laid_out.address, more)
        scratch.give(laid_out)
        return y

    def run_any_constant(self, x: np.ndarray, w: np.ndarray, *more: np.ndarray) -> np.ndarray:
        return self._run_laid_out(x, self.weights.constant(w), more)

    def _run_laid_out(self, x: np.ndarray, weights: int, more: Sequence[np.ndarray]) -> np.ndarray:
        x = contiguous(x)
        y = empty(self.shape, self.dtype)
        rest = [address(array) for array in more]
        if self.x_in is None:
            self.main.run(address(x), weights, address(y), *rest)
            return y
        x_last, y_last = scratch.take(self.x_in.size), scratch.take(self.y_bytes)
        _reorder(self.x_in.primitive, address(x), x_last.address)
        self.main.run(x_last.address if self.x_in.primitive else address(x), weights, y_last.address if self.y_out else address(y), *rest)
        _reorder(self.y_out, y_last.address, address(y))
        scratch.give(x_last)
        scratch.give(y_last)
        return y


def _reorder(primitive: Primitive | None, source: int, target: int) -> None:
    if primitive is not None:
        primitive.run(source, target)


class BackwardInput(_Plan):
    """dx = the gradient of the input, out of filter and dy."""

    def __init__(self, m: Maker, spec: Spec) -> None:
        super().__init__(m, spec)
        hint = _forward_pd(m, spec)
        weights = m.md(spec.weight_dims()[0], None, spec.dtype)
        pd = m.pd("convolution_backward_data", lib.CONVOLUTION_DIRECT, self._src, weights, self._dst, *spec.geometry(), hint, m.attr())
        weights = m.query(pd, lib.QUERY_WEIGHTS)
        self.main = m.primitive(pd, [(lib.ARG_DIFF_DST, self._dst), (lib.ARG_WEIGHTS, weights), (lib.ARG_DIFF_SRC, self._src)])
        self.weights = Reordered(m, self._filter, weights)
        self.dy_in = self._to_last(m, spec.dst_dims, self._dst)
        self.dx_out = self._from_last(m, spec.src_dims, self._src)
        self.dx_bytes = m.size(self._src)
        self.shape = spec.shape(spec.src_dims)

    def run(self, w: np.ndarray, dy: np.ndarray) -> np.ndarray:
        w, dy = contiguous(w), contiguous(dy)
        dx = empty(self.shape, self.dtype)
        weights, from_dy, to_dx, taken = address(w), address(dy), address(dx), []
        if self.weights.primitive is not None:
            taken.append(scratch.take(self.weights.size))
            self.weights.primitive.run(weights, taken[-1].address)
            weights = taken[-1].address
        if self.dy_in is not None and self.dy_in.primitive is not None:
            taken.append(scratch.take(self.dy_in.size))
            self.dy_in.primitive.run(from_dy, taken[-1].address)
            from_dy = taken[-1].address
        if self.dx_out is not None:
            taken.append(scratch.take(self.dx_bytes))
            self.main.run(from_dy, weights, taken[-1].address)
            self.dx_out.run(taken[-1].address, to_dx)
        else:
            self.main.run(from_dy, weights, to_dx)
        for used in taken:
            scratch.give(used)
        return dx


class BackwardFilter(_Plan):
    """dw = the gradient of the filter, out of x and dy; with `has_bias` also the sums of dy, the gradient of a bias."""

    def __init__(self, m: Maker, spec: Spec, has_bias: bool = False) -> None:
        super().__init__(m, spec)
        hint = _forward_pd(m, spec)
        weights = m.md(spec.weight_dims()[0], None, spec.dtype)
        bias = m.md((spec.out_depth,), (1,), spec.dtype) if has_bias else None
        pd = m.pd(
            "convolution_backward_weights", lib.CONVOLUTION_DIRECT, self._src, weights, bias, self._dst, *spec.geometry(), hint, m.attr()
        )
        weights = m.query(pd, lib.QUERY_DIFF_WEIGHTS)
        args = [(lib.ARG_SRC, self._src), (lib.ARG_DIFF_DST, self._dst), (lib.ARG_DIFF_WEIGHTS, weights)]
        if bias is not None:
            args.append((lib.ARG_DIFF_BIAS, bias))
        self.has_bias = has_bias
        self.main = m.primitive(pd, args)
        self.dw_out = m.reorder(weights, self._filter)
        self.dw_bytes = m.size(weights)
        self.x_in = self._to_last(m, spec.src_dims, self._src)
        self.dy_in = self._to_last(m, spec.dst_dims, self._dst)
        self.shape = spec.filter_shape

    def run(self, x: np.ndarray, dy: np.ndarray) -> Any:
        x, dy = contiguous(x), contiguous(dy)
        dw = empty(self.shape, self.dtype)
        from_x, from_dy, to_dw, taken = address(x), address(dy), address(dw), []
        if self.x_in is not None and self.x_in.primitive is not None:
            taken.append(scratch.take(self.x_in.size))
            self.x_in.primitive.run(from_x, taken[-1].address)
            from_x = taken[-1].address
        if self.dy_in is not None and self.dy_in.primitive is not None:
            taken.append(scratch.take(self.dy_in.size))
            self.dy_in.primitive.run(from_dy, taken[-1].address)
            from_dy = taken[-1].address
        if self.dw_out is not None:
            taken.append(scratch.take(self.dw_bytes))
            to_dw = taken[-1].address
        if self.has_bias:
            db = np.empty(self.spec.out_depth, self.dtype)
            self.main.run(from_x, from_dy, to_dw, address(db))
        else:
            db = None
            self.main.run(from_x, from_dy, to_dw)
        if self.dw_out is not None:
            self.dw_out.run(to_dw, address(dw))
        for used in taken:
            scratch.give(used)
        return dw if db is None else (dw, db)


# -- plans by key --------------------------------------------------------------------------------------------------------


def forward(library: Library, spec: Spec, has_bias: bool = False, post_ops: PostOps = ()) -> Forward | None:
    return planned(Forward, library, spec.microseconds, spec, has_bias, post_ops)


def backward_input(library: Library, spec: Spec) -> BackwardInput | None:
    return planned(BackwardInput, library, spec.microseconds, spec)


def backward_filter(library: Library, spec: Spec, has_bias: bool = False) -> BackwardFilter | None:
    return planned(BackwardFilter, library, spec.microseconds, spec, has_bias)
