"""Convolutions and products with what follows them in one call: kernels of TF's fused nodes, which the pass `remapping` makes.

    y = activation(batch_norm(conv(x, filter) + bias) + addend)
    y = activation(a @ b + bias)

A batch normalisation whose parameters are constants, like the filter, is folded into filter and bias when these are laid out: once, and
only the laid-out copy is kept. With parameters that may change it is a factor and a summand per channel behind the convolution.
`layer_norm` is the normalisation of rows that TF1 programs write out of a dozen ops.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock import errors
from penstock.engines.memory import address
from penstock.engines.onednn import binding, elementwise, norm
from penstock.engines.onednn import conv as convolutions
from penstock.engines.onednn import matmul as products
from penstock.engines.onednn.binding import Kernel, is_constant, library_for, remembering, shapes
from penstock.engines.onednn.plan import BYTES_PER_US, channels_last_strides, contiguous, planned
from penstock.engines.onednn.primitives import CODES, FLOAT32, Add, Buffer, Eltwise, Multiply, PostOps
from penstock.engines.onednn.product_kernels import is_vector_product, wakes_blas
from penstock.engines.onednn.window_kernels import Window
from penstock.engines.onednn.winograd import Winograd
from penstock.graph.ir import Operation
from penstock.ops import nn
from penstock.ops.fused import split_arguments
from penstock.ops.kernels import blas
from penstock.ops.kernels.numeric import narrow, widen

KEPT_LAYOUTS = 4
"""In how many layouts a node keeps its filter."""


class Steps(NamedTuple):
    """What follows: where each argument stands among the node's inputs, and the activation."""

    bias: int | None
    norm: slice | None
    addend: int | None
    activation: bytes | None
    alpha: float
    epsilon: float

    @classmethod
    def of(cls, op: Operation) -> Steps | None:
        """The steps of a fused node; None if they come in another order than this engine computes them in."""
        attrs = op.attrs
        found: dict[str, Any] = dict.fromkeys(("bias", "norm", "addend", "activation"))
        order = 0
        try:
            steps = split_arguments(attrs["fused_ops"], len(op.inputs) - 2)
        except errors.OpError:  # the declared kernel will say so
            return None
        for name, where in steps:
            first = where.start + 2
            place, key, value = {
                b"BiasAdd": (1, "bias", first), b"FusedBatchNorm": (2, "norm", slice(first, first + 4)), b"Add": (3, "addend", first),
            }.get(name, (4, "activation", name))  # fmt: skip
            if place <= order:
                return None
            order, found[key] = place, value
        return cls(**found, alpha=attrs["leakyrelu_alpha"], epsilon=attrs["epsilon"])

    def eltwise(self) -> PostOps:
        """The activation as a post-op."""
        return {
            None: (), b"Relu": (Eltwise("relu"),), b"Relu6": (Eltwise("clip", 0.0, 6.0),), b"Elu": (Eltwise("elu", 1.0),),
            b"LeakyRelu": (Eltwise("relu", self.alpha),), b"Tanh": (Eltwise("tanh"),), b"Sigmoid": (Eltwise("sigmoid"),),
        }[self.activation]  # fmt: skip

    @property
    def is_apart(self) -> bool:
        """Whether the activation needs a pass of its own behind a convolution: oneDNN's ReLU makes 0 of NaN, which TensorFlow does not behind a sum."""
        return self.addend is not None and self.activation in (b"Relu", b"Relu6")

    def in_place(self) -> Callable[[np.ndarray], Any]:
        """The activation as a function that overwrites a float32 array."""
        zero, six, alpha = np.float32(0), np.float32(6), self.alpha
        return {
            None: lambda y: y,
            b"Relu": lambda y: np.maximum(y, zero, out=y),
            b"Relu6": lambda y: np.minimum(np.maximum(y, zero, out=y), six, out=y),
            b"Elu": lambda y: np.copyto(y, nn.elu(y)),
            b"LeakyRelu": lambda y: np.copyto(y, nn.leaky_relu(y, alpha=alpha)),
            b"Tanh": lambda y: np.tanh(y, out=y),
            b"Sigmoid": _sigmoid_in_place,
        }[self.activation]


def _sigmoid_in_place(y: np.ndarray) -> None:
    np.negative(y, out=y)
    np.exp(y, out=y)
    y += np.float32(1)
    np.reciprocal(y, out=y)


def _first_shape(x: np.ndarray, *rest: Any) -> Any:
    return x.shape


# -- convolutions -------------------------------------------------------------------------------------------------------


class Ready(NamedTuple):
    """A convolution whose filter and vectors never change: the addresses at which they lie, laid out, what must live as long, and whether a ReLU is
    left to be done."""

    plan: Any
    weights: int
    vectors: tuple[int, ...]
    kept: Any
    has_relu_apart: bool = False


class _Conv:
    """One fused convolution: finds what to do for shapes."""

    def __init__(self, op: Operation, window: Window, steps: Steps) -> None:
        self.window, self.steps = window, steps
        self.n_inputs = len(op.inputs)
        affine = [1, *([steps.bias] if steps.bias else []), *range(*(steps.norm.indices(self.n_inputs) if steps.norm else (0,)))]
        self.is_constant = all(is_constant(op.inputs[i]) for i in affine)
        self._laid_out: list[tuple[Any, Buffer]] = []  # (plan, the filter in the layout that it wants)

    def prepare(self, *inputs: np.ndarray) -> Kernel | None:
        x, filter = inputs[:2]
        spec = self.window.spec(x.shape, filter.shape)
        library = library_for(self.window.dtype) if spec else None
        if library is None or spec is None or not self._fits(spec, inputs):
            return None
        steps, channel = self.steps, (1, spec.out_depth, *(1,) * len(spec.slides))
        ones = (spec.out_depth, 1, *(1,) * len(spec.slides))
        full = (Add(spec.dst_dims, channels_last_strides(spec.dst_dims)),) if steps.addend else ()
        if self.is_constant:
            scaled: PostOps = ()
            bias_type, finished = FLOAT32 if steps.bias or steps.norm else None, self._constant
        else:
            scaled = (Multiply(channel, ones, FLOAT32), Add(channel, ones, FLOAT32)) if steps.norm else ()
            bias_type, finished = self.window.dtype if steps.bias and not steps.norm else None, self._changing
        told = library, spec, bias_type, (*scaled, *full), self.is_constant
        plan = self._plan(*told)
        if plan is None:
            return None
        kernel = finished(plan, inputs)
        if not isinstance(plan, Winograd):
            return self._activated(kernel, library, spec) if steps.is_apart else kernel

        def checked(*inputs: np.ndarray) -> np.ndarray:
            """As `conv.Checked`."""
            y = kernel(*inputs)
            if y is not None:
                return y
            by_definition = finished(self._plan(*told, by_definition=True), inputs)
            return (self._activated(by_definition, library, spec) if steps.is_apart else by_definition)(*inputs)

        return checked

    def _plan(self, library: Any, spec: convolutions.Spec, bias_type: np.dtype | None, post_ops: PostOps, is_constant: bool, by_definition: bool = False) -> Any:
        """The convolution with what follows it; without an activation that is apart, unless it is computed the Winograd way, which sees NaN."""
        told, whole = (library, spec, bias_type), (*post_ops, *self.steps.eltwise())
        if not self.steps.is_apart:
            return (convolutions.plan_by_definition if by_definition else convolutions.forward_plan)(*told, whole, is_constant)
        plan = convolutions.winograd_plan(*told, whole, is_constant) if not by_definition else None
        return plan or convolutions.plan_by_definition(*told, post_ops, is_constant)

    def _activated(self, kernel: Kernel, library: Any, spec: convolutions.Spec) -> Kernel:
        """With an activation that is a pass of its own."""
        in_place, size = self.steps.in_place(), math.prod(spec.dst_dims)
        if self.steps.activation == b"Relu" and spec.dtype == FLOAT32 and size >= elementwise.MIN_SIZE:
            plan = planned(elementwise.Relu, library, size * 8 / BYTES_PER_US, elementwise.Spec(size))
            in_place = functools.partial(plan.run, over=0) if plan is not None else in_place

        def activated(*inputs: np.ndarray) -> np.ndarray:
            y = kernel(*inputs)
            in_place(y)
            return y

        return activated

    def _changing(self, plan: Any, inputs: Sequence[np.ndarray]) -> Kernel:
        """With filter and vectors that may change."""
        run, addend = plan.run, self.steps.addend
        if self.steps.norm is None:
            return lambda x, w, *more: run(x, w, *map(contiguous, more))

        def normalised(*inputs: np.ndarray) -> np.ndarray:
            factor, summand = self._affine(inputs)
            more = [] if addend is None else [contiguous(inputs[addend])]
            return run(inputs[0], inputs[1], factor, summand, *more)

        return normalised

    def _fits(self, spec: convolutions.Spec, inputs: Sequence[np.ndarray]) -> bool:
        steps = self.steps
        vectors = [inputs[steps.bias]] if steps.bias else []
        vectors += inputs[steps.norm] if steps.norm else []
        if any(v.shape != (spec.out_depth,) for v in vectors):
            return False
        return not steps.addend or (spec.channels_last and inputs[steps.addend].shape == spec.shape(spec.dst_dims))

    def _affine(self, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Factor and summand per channel that bias and batch normalisation come to."""
        scale, offset, mean, variance = (np.asarray(v, np.float64) for v in inputs[self.steps.norm])  # type: ignore[index]
        bias = np.asarray(inputs[self.steps.bias], np.float64) if self.steps.bias else 0.0
        factor = scale / np.sqrt(variance + self.steps.epsilon)
        return factor.astype(np.float32), (offset - (mean - bias) * factor).astype(np.float32)

    def ready(self, *inputs: np.ndarray) -> Ready | None:
        """For whoever runs the primitives himself, on arrays with channels last. Of input and addend only the shapes matter."""
        steps, (x, filter) = self.steps, inputs[:2]
        spec = self.window.spec(x.shape, filter.shape)
        library = library_for(self.window.dtype) if spec else None
        if library is None or spec is None or not (self.is_constant and spec.channels_last and self._fits(spec, inputs)):
            return None
        full = (Add(spec.dst_dims, channels_last_strides(spec.dst_dims)),) if steps.addend else ()
        plan = self._plan(library, spec, FLOAT32 if steps.bias or steps.norm else None, full, True)
        if plan is None or not steps.is_apart or isinstance(plan, Winograd):
            return plan and self._ready(plan, inputs)
        return self._ready(plan, inputs)._replace(has_relu_apart=True) if steps.activation == b"Relu" else None

    def _ready(self, plan: Any, inputs: Sequence[np.ndarray]) -> Ready:
        filter, bias, steps = inputs[1], None, self.steps
        if steps.norm:
            scale, offset, mean, variance = inputs[steps.norm]
            before = inputs[steps.bias] if steps.bias else None
            filter, bias = fold_batch_norm(filter, before, scale, offset, mean, variance, steps.epsilon, self.window.is_depthwise)
        elif steps.bias:
            bias = inputs[steps.bias]
        if bias is not None:
            bias = plan.vector(np.ascontiguousarray(bias, np.float32))
        kept: Any = None
        if plan.weights.primitive is None and filter is inputs[1] and filter.flags.c_contiguous:
            kept, weights = filter, address(filter)
        else:
            kept = self._weights(plan, filter)
            weights = kept.address
        return Ready(plan, weights, () if bias is None else (address(bias),), (kept, bias))

    def _constant(self, plan: Any, inputs: Sequence[np.ndarray]) -> Kernel:
        """With filter and vectors laid out once and for all."""
        _, weights, vectors, kept, _ = self._ready(plan, inputs)
        run, addend = plan.run_at, self.steps.addend
        if not addend:
            # `kept` is named so that it lives as long as the function.
            return lambda x, w, *_, kept=kept: run(x, weights, vectors)

        def with_addend(*inputs: np.ndarray, kept: Any = kept) -> np.ndarray:
            other = contiguous(inputs[addend])
            return run(inputs[0], weights, (*vectors, address(other)))

        return with_addend

    def _weights(self, plan: convolutions.Forward | Winograd, filter: np.ndarray) -> Buffer:
        """The filter laid out; plans for other shapes that want the same layout share it."""
        for other, made in self._laid_out:
            if plan.has_layout_of(other):
                return made
        made = plan.weights.laid_out(filter)
        self._laid_out.append((plan, made))
        if len(self._laid_out) > KEPT_LAYOUTS:
            del self._laid_out[0]
        return made


def fused_conv(is_depthwise: bool) -> Kernel:
    """_FusedConv2D and _FusedDepthwiseConv2dNative."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        steps = Steps.of(op)
        if steps is None or op.attrs["data_format"] not in (b"NHWC", b"NCHW") or op.attrs.get("filter_format", b"HWIO") != b"HWIO":
            return None
        window = Window(op.attrs, is_depthwise)
        if not window.is_supported:
            return None
        one = _Conv(op, window, steps)
        kernel = remembering(op, fallback, _first_shape if one.is_constant and not steps.addend else shapes, one.prepare)
        kernel.convolution = one  # type: ignore[attr-defined]
        return kernel

    return maker


def fold_batch_norm(
    filter: np.ndarray, bias: np.ndarray | None, scale: np.ndarray, offset: np.ndarray, mean: np.ndarray, variance: np.ndarray,
    epsilon: float, is_depthwise: bool = False,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Filter and bias (float32) of the one convolution that equals convolution (plus bias) followed by batch normalisation in inference mode.

    The factors are taken in float64 and rounded once, so that folding costs no accuracy worth naming.
    """
    factor = np.asarray(scale, np.float64) / np.sqrt(np.asarray(variance, np.float64) + epsilon)
    shape = filter.shape[-2:] if is_depthwise else filter.shape[-1:]
    folded = widen(filter) * factor.astype(np.float32).reshape(shape)
    shift = np.asarray(mean, np.float64) - (0.0 if bias is None else np.asarray(bias, np.float64))
    return folded.astype(filter.dtype, copy=False), (np.asarray(offset, np.float64) - shift * factor).astype(np.float32)


# -- products -----------------------------------------------------------------------------------------------------------


def fused_matmul(op: Operation, fallback: Kernel) -> Kernel | None:
    """_FusedMatMul."""
    steps = Steps.of(op)
    if steps is None or steps.norm or steps.addend or op.attrs["T"].np not in CODES:
        return None
    dtype, across_a, across_b = op.attrs["T"].np, op.attrs["transpose_a"], op.attrs["transpose_b"]
    constant = is_constant(op.inputs[1])
    activate = steps.in_place()

    def by_parts(product: Kernel) -> Kernel:
        """A product, then the rest in place."""
        if steps.bias is None:

            def without_bias(a: np.ndarray, b: np.ndarray) -> np.ndarray:
                y = product(a, b)
                activate(y)
                return y

            return without_bias

        def with_bias(a: np.ndarray, b: np.ndarray, bias: np.ndarray) -> np.ndarray:
            y = product(a, b)
            y += bias
            activate(y)
            return y

        return with_bias

    def by_numpy(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.matmul(a.T if across_a else a, b.T if across_b else b)

    def prepare(a: np.ndarray, b: np.ndarray, *more: np.ndarray, at_once: bool = False) -> Kernel | None:
        if a.ndim != 2 or b.ndim != 2 or not a.size or not b.size or a.shape[not across_a] != b.shape[across_b]:
            return None
        spec = products.Spec(a.shape, b.shape, across_a, across_b, dtype)
        if more and more[0].shape != spec.shape[-1:]:
            return None
        is_wide = dtype == FLOAT32
        if is_wide and not wakes_blas(spec) and spec.flops < binding.MIN_FUSED_FLOPS:
            return by_parts(by_numpy)
        library = library_for(dtype)
        if is_wide and library is not None and is_vector_product(spec):
            alone = blas.alone(by_numpy)
            if alone is not None:
                return by_parts(alone)
        if library is None or spec.flops < binding.MIN_FUSED_FLOPS:
            return None
        if is_wide and (at_once or (spec.sizes[0] <= products.FEW_ROWS and not constant)):
            return by_parts(products.Gemm(library, spec).run)
        plan = products.matmul(library, spec, steps.bias is not None, steps.eltwise(), constant)
        if plan is None:
            return None
        run = plan.run
        return lambda a, b, *more: run(a, b, *map(contiguous, more))

    return remembering(op, fallback, shapes, prepare, functools.partial(prepare, at_once=True))


MAKERS: dict[str, Callable[[Operation, Kernel], Kernel | None]] = {
    "_FusedConv2D": fused_conv(False),
    "_FusedDepthwiseConv2dNative": fused_conv(True),
    "_FusedMatMul": fused_matmul,
}

# -- layers -------------------------------------------------------------------------------------------------------------


def layer_norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray, epsilon: float) -> np.ndarray:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift over the last dimension."""
    depth = x.shape[-1] if x.ndim else 0
    if x.dtype in CODES and scale.shape == shift.shape == (depth,) and scale.dtype == shift.dtype == FLOAT32 and x.size >= max(binding.MIN_NORM_SIZE, 1):
        library = library_for(x.dtype)
        plan = norm.layer_forward(library, x.size // depth, depth, x.dtype, epsilon) if library else None
        if plan is not None:
            return plan.run(x, scale, shift)[0]
    wide = widen(x)
    centred = wide - wide.mean(-1, keepdims=True)
    factor = 1 / np.sqrt(np.mean(centred * centred, -1, keepdims=True) + np.float32(epsilon))
    return narrow(centred * factor * scale + shift, x.dtype)
