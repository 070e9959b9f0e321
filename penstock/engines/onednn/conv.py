"""Convolutions: forward with bias and post-ops, gradients of input and filter, plain, grouped and depthwise, two or three dimensions.

Activations stay in NumPy's plain layout, channels last; channels-first ones are brought there and back by oneDNN's own reorders.
Filters are laid out as the primitive likes best, for every call anew unless they are constant. The depthwise filter (*window, C, M)
and the grouped one (*window, C / groups, O) are descriptors with strides over TF's own layout; nothing is transposed by NumPy.

To lay a filter out for a call costs time that few positions do not win back. There it stays as it is, in the forward pass and,
with the gradients as products of matrices (`Product`), also in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.memory import address, aligned_empty
from penstock.engines.onednn import library as lib
from penstock.engines.onednn import matmul, winograd
from penstock.engines.onednn.library import Dims, Library
from penstock.engines.onednn.plan import FLOPS_PER_US, Reordered, channels_last_strides, contiguous, planned, strides_of
from penstock.engines.onednn.primitives import FLOAT32, Maker, PostOps, Primitive, scratch
from penstock.ops.kernels.patches import pad, patch_view
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
    def positions(self) -> int:
        """Of windows, in the whole batch."""
        return self.batch * int(np.prod([s.out for s in self.slides]))

    @property
    def is_pointwise(self) -> bool:
        """Each position sees exactly one cell, and each cell is seen."""
        return all(s.is_plain and s.stride == 1 for s in self.slides)

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

    @property
    def filter_bytes(self) -> int:
        return int(np.prod(self.filter_shape)) * self.dtype.itemsize

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


class _Plan:
    """What the three products share: activations in and out of channels-last order."""

    def __init__(self, m: Maker, spec: Spec) -> None:
        self.spec = spec
        self.dtype = spec.dtype
        self._src = m.md(spec.src_dims, channels_last_strides(spec.src_dims), spec.dtype)
        self._dst = m.md(spec.dst_dims, channels_last_strides(spec.dst_dims), spec.dtype)
        dims, strides = spec.weight_dims()
        self._filter = m.md(dims, strides, spec.dtype)

    def _hint(self, m: Maker) -> int:
        """The forward pass, as the gradients' descriptors want to know it."""
        weights = m.md(self.spec.weight_dims()[0], None, self.dtype)
        geometry = self.spec.geometry()
        return m.pd("convolution_forward", lib.FORWARD_TRAINING, lib.CONVOLUTION_DIRECT, self._src, weights, None, self._dst, *geometry, None)

    def _to_last(self, m: Maker, dims: Sequence[int], last: int) -> Reordered | None:
        return None if self.spec.channels_last else Reordered(m, m.md(dims, strides_of(dims), self.dtype), last)

    def _from_last(self, m: Maker, dims: Sequence[int], last: int) -> Primitive | None:
        return None if self.spec.channels_last else m.reorder(last, m.md(dims, strides_of(dims), self.dtype))


class Forward(_Plan):
    """y = conv(x, w) [+ bias] [post-ops]."""

    def __init__(self, m: Maker, spec: Spec, bias_type: np.dtype | None, post_ops: PostOps, as_it_is: bool) -> None:
        super().__init__(m, spec)
        bias = None if bias_type is None else m.md((spec.out_depth,), (1,), bias_type)
        weights = self._filter if as_it_is else m.md(spec.weight_dims()[0], None, spec.dtype)
        attr = m.attr(post_ops, spec.dtype)
        pd = m.pd(
            "convolution_forward", lib.FORWARD_INFERENCE, lib.CONVOLUTION_DIRECT, self._src, weights, bias, self._dst, *spec.geometry(), attr
        )
        weights = m.query(pd, lib.QUERY_WEIGHTS)
        args = [(lib.ARG_SRC, self._src), (lib.ARG_WEIGHTS, weights), (lib.ARG_DST, self._dst)]
        if bias is not None:
            args.append((lib.ARG_BIAS, bias))
        self.main = m.primitive(pd, [*args, *m.post_op_args(post_ops, spec.dtype)])
        self.weights = Reordered(m, self._filter, weights)
        self.x_in = self._to_last(m, spec.src_dims, self._src)
        self.y_out = self._from_last(m, spec.dst_dims, self._dst)
        self.y_bytes = m.size(self._dst)
        self.shape = spec.shape(spec.dst_dims)
        if self.x_in is not None:
            self.run, run_constant, self.run_at = self.run_first, self.run_first_constant, self.run_first_at
        else:
            self.run, run_constant = self.run_as_it_is if self.weights.primitive is None else self.run_laid_out, self.run_last_constant
            self.run_at = self.run_last_at
        self.constant = SimpleNamespace(run=run_constant, shape=self.shape, main=self.main)

    def vector(self, bias: np.ndarray) -> np.ndarray:
        """A constant bias as `run_at` reads it."""
        return bias

    def has_layout_of(self, other: Any) -> bool:
        """Whether another plan's constant filter would do."""
        return isinstance(other, Forward) and bool(self.main.library.md_equal(self.main.descriptor(1), other.main.descriptor(1)))

    # Channels last.

    def run_as_it_is(self, x: np.ndarray, w: np.ndarray, *more: np.ndarray) -> np.ndarray:
        x, w = contiguous(x), contiguous(w)
        y = aligned_empty(self.shape, self.dtype)
        self.main.run(address(x), address(w), address(y), *map(address, more))
        return y

    def run_laid_out(self, x: np.ndarray, w: np.ndarray, *more: np.ndarray) -> np.ndarray:
        x, w = contiguous(x), contiguous(w)
        y = aligned_empty(self.shape, self.dtype)
        weights = self.weights
        laid_out = scratch.take(weights.size)
        weights.primitive.run(address(w), laid_out.address)  # type: ignore[union-attr]
        self.main.run(address(x), laid_out.address, address(y), *map(address, more))
        scratch.give(laid_out)
        return y

    def run_last_constant(self, x: np.ndarray, w: np.ndarray, *more: np.ndarray) -> np.ndarray:
        x = contiguous(x)
        y = aligned_empty(self.shape, self.dtype)
        self.main.run(address(x), self.weights.constant(w), address(y), *map(address, more))
        return y

    def run_last_at(self, x: np.ndarray, weights: int, more: Sequence[int]) -> np.ndarray:
        """With weights laid out before, and further operands, by their addresses."""
        if not x.flags.c_contiguous:
            x = np.ascontiguousarray(x)
        y = aligned_empty(self.shape, self.dtype)
        self.main.run(address(x), weights, address(y), *more)
        return y

    # Channels first.

    def run_first(self, x: np.ndarray, w: np.ndarray, *more: np.ndarray) -> np.ndarray:
        w = contiguous(w)
        if self.weights.primitive is None:
            return self.run_first_at(x, address(w), [*map(address, more)])
        laid_out = scratch.take(self.weights.size)
        self.weights.primitive.run(address(w), laid_out.address)
        y = self.run_first_at(x, laid_out.address, [*map(address, more)])
        scratch.give(laid_out)
        return y

    def run_first_constant(self, x: np.ndarray, w: np.ndarray, *more: np.ndarray) -> np.ndarray:
        return self.run_first_at(x, self.weights.constant(w), [*map(address, more)])

    def run_first_at(self, x: np.ndarray, weights: int, more: Sequence[int]) -> np.ndarray:
        x = contiguous(x)
        y = aligned_empty(self.shape, self.dtype)
        from_x, to_y, taken = address(x), address(y), []
        if self.x_in is not None and self.x_in.primitive is not None:
            taken.append(scratch.take(self.x_in.size))
            self.x_in.primitive.run(from_x, taken[-1].address)
            from_x = taken[-1].address
        if self.y_out is not None:
            taken.append(scratch.take(self.y_bytes))
            to_y = taken[-1].address
        self.main.run(from_x, weights, to_y, *more)
        if self.y_out is not None:
            self.y_out.run(to_y, address(y))
        for used in taken:
            scratch.give(used)
        return y


class BackwardInput(_Plan):
    """dx = the gradient of the input, out of filter and dy."""

    def __init__(self, m: Maker, spec: Spec, as_it_is: bool) -> None:
        super().__init__(m, spec)
        weights = self._filter if as_it_is else m.md(spec.weight_dims()[0], None, spec.dtype)
        geometry, hint = spec.geometry(), self._hint(m)
        pd = m.pd("convolution_backward_data", lib.CONVOLUTION_DIRECT, self._src, weights, self._dst, *geometry, hint, m.attr())
        weights = m.query(pd, lib.QUERY_WEIGHTS)
        self.main = m.primitive(pd, [(lib.ARG_DIFF_DST, self._dst), (lib.ARG_WEIGHTS, weights), (lib.ARG_DIFF_SRC, self._src)])
        self.weights = Reordered(m, self._filter, weights)
        self.dy_in = self._to_last(m, spec.dst_dims, self._dst)
        self.dx_out = self._from_last(m, spec.src_dims, self._src)
        self.dx_bytes = m.size(self._src)
        self.shape = spec.shape(spec.src_dims)

    def run(self, w: np.ndarray, dy: np.ndarray) -> np.ndarray:
        w, dy = contiguous(w), contiguous(dy)
        dx = aligned_empty(self.shape, self.dtype)
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
        weights = m.md(spec.weight_dims()[0], None, spec.dtype)
        bias = m.md((spec.out_depth,), (1,), spec.dtype) if has_bias else None
        geometry, hint = spec.geometry(), self._hint(m)
        pd = m.pd("convolution_backward_weights", lib.CONVOLUTION_DIRECT, self._src, weights, bias, self._dst, *geometry, hint, m.attr())
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
        dw = aligned_empty(self.shape, self.dtype)
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


# -- as products of matrices ---------------------------------------------------------------------------------------------


class Product:
    """The gradient of "input" or "filter" as a product of matrices, in which the filter stays as it is."""

    def __init__(self, m: Maker, spec: Spec, kind: str) -> None:
        self.spec, self.dtype = spec, spec.dtype
        self.has_patches = not spec.is_pointwise
        rows, inner, out = spec.positions, spec.depth * int(np.prod(spec.window)), spec.out_depth
        if kind == "input":
            product = matmul.Spec((rows, out), (inner, out), False, True, spec.dtype)
            self.shape, self.run = spec.shape(spec.src_dims), self.run_input
        else:
            product = matmul.Spec((rows, inner), (rows, out), True, False, spec.dtype)
            self.shape, self.run = spec.filter_shape, self.run_filter
        self.main = matmul.MatMul(m, product, False, (), False).main

    def run_filter(self, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
        """patches(x).T @ dy"""
        x, dy = contiguous(x), contiguous(dy)
        if self.has_patches:
            x = np.ascontiguousarray(patch_view(pad(x, self.spec.slides), self.spec.slides))
        dw = aligned_empty(self.shape, self.dtype)
        self.main.run(address(x), address(dy), address(dw))
        return dw

    def run_input(self, w: np.ndarray, dy: np.ndarray) -> np.ndarray:
        """dy @ w.T, for windows of one cell."""
        w, dy = contiguous(w), contiguous(dy)
        dx = aligned_empty(self.shape, self.dtype)
        self.main.run(address(dy), address(w), address(dx))
        return dx


# -- which plan ----------------------------------------------------------------------------------------------------------

FEW_POSITIONS, SOME_POSITIONS, MANY_POSITIONS = 100, 512, 4096
LARGE_FILTER = 2 << 20
FEW_CHANNELS = 16
"""Up to how many positions, how many bytes of filter, and how many channels it is quicker to leave the filter as it is than to lay it
out anew for every call. Measured on two cores with AVX-512; none of it matters for the result."""
MANY_TIMES = 8
"""From how many results for each channel the gradient of the input is quicker as a product with the filter as it is, whose result is then added up
cell by cell: that takes as long whatever the results, a convolution of theirs as long as there are results."""


class Checked:
    """A plan that gives None where it cannot say what is finite, and the one that computes again then, made when it is needed."""

    def __init__(self, plan: Any, by_definition: Callable[[], Any]) -> None:
        self.main, self._run, self._by_definition = plan.main, plan.run, by_definition

    def run(self, *inputs: np.ndarray) -> Any:
        result = self._run(*inputs)
        return self._by_definition().run(*inputs) if result is None else result


def forward_plan(
    library: Library, spec: Spec, bias_type: np.dtype | None = None, post_ops: PostOps = (), is_constant: bool = False
) -> Forward | winograd.Winograd | None:
    """The plan of a convolution with what follows it, which may give None (`Checked`). `is_constant`: the filter never changes, so that laying it out costs nothing."""
    told = library, spec, bias_type, post_ops, is_constant
    return winograd_plan(*told) or plan_by_definition(*told)


def winograd_plan(
    library: Library, spec: Spec, bias_type: np.dtype | None, post_ops: PostOps, is_constant: bool
) -> winograd.Winograd | None:
    """As `forward_plan`, if Winograd's way pays."""
    if not winograd.pays(spec, is_constant):
        return None
    return planned(winograd.Winograd, library, spec.microseconds, spec, bias_type, post_ops, is_constant)


def plan_by_definition(
    library: Library, spec: Spec, bias_type: np.dtype | None = None, post_ops: PostOps = (), is_constant: bool = False
) -> Forward | None:
    """As `forward_plan`, but always with a result."""
    most = MANY_POSITIONS if spec.filter_bytes <= LARGE_FILTER else SOME_POSITIONS
    if spec.groups == 1 and (spec.depth < FEW_CHANNELS or (spec.positions <= most and not is_constant)):
        plan = planned(Forward, library, spec.microseconds, spec, bias_type, post_ops, True)
        if plan is not None and plan.main.implementation.startswith("brg"):
            return plan
    return planned(Forward, library, spec.microseconds, spec, bias_type, post_ops, False)


def forward(library: Library, spec: Spec, has_bias: bool = False, post_ops: PostOps = (), is_constant: bool = False) -> Any:
    """A plan whose `run(x, filter, [bias], *[addends])` gives the convolution, or None."""
    told = library, spec, spec.dtype if has_bias else None, post_ops, is_constant
    plan = forward_plan(*told)
    ready = plan.constant if plan is not None and is_constant else plan
    return Checked(ready, lambda: plan_by_definition(*told)) if isinstance(plan, winograd.Winograd) else ready


def backward_input(library: Library, spec: Spec) -> Any:
    """A plan whose `run(filter, dy)` gives the gradient of the input, or None."""
    if winograd.pays(winograd.turned(spec), is_constant=False):
        plan = planned(winograd.BackwardInput, library, spec.microseconds, spec)
        if plan is not None:
            return Checked(plan, lambda: planned(BackwardInput, library, spec.microseconds, spec, False))
    as_it_is = spec.depth < FEW_CHANNELS and spec.groups == 1 and (spec.out_depth >= MANY_TIMES * spec.depth or any(s.stride > 1 for s in spec.slides))
    return _product(library, spec, "input") or planned(BackwardInput, library, spec.microseconds, spec, as_it_is)


def backward_filter(library: Library, spec: Spec, has_bias: bool = False) -> Any:
    """A plan whose `run(x, dy)` gives the gradient of the filter (and of a bias), or None."""
    if winograd.pays(spec, is_constant=False):
        plan = planned(winograd.BackwardFilter, library, spec.microseconds, spec, has_bias)
        if plan is not None:
            return Checked(plan, lambda: planned(BackwardFilter, library, spec.microseconds, spec, has_bias))
    product = None if has_bias else _product(library, spec, "filter")
    return product or planned(BackwardFilter, library, spec.microseconds, spec, has_bias)


def _product(library: Library, spec: Spec, kind: str) -> Product | None:
    most = MANY_POSITIONS if spec.is_pointwise else FEW_POSITIONS if kind == "filter" else 0
    if not spec.channels_last or spec.groups != 1 or spec.is_depthwise or spec.positions > most or spec.dtype != FLOAT32:
        return None
    return planned(Product, library, spec.microseconds, spec, kind)
