"""Convolutions and products with what follows them in one call, for passes that find such patterns.

    y = activation(conv(x, filter) + bias + addend)
    y = activation(a @ b + bias + addend)

`conv` and `matmul` give functions of the arrays; they compute through oneDNN where it can, and step by step with NumPy where not.
`fold_batch_norm` puts a batch normalisation with known statistics into the filter and the bias of the convolution before it.
`layer_norm` is the normalisation of rows that TF1 programs write out of a dozen ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.engines.onednn import conv as convolutions
from penstock.engines.onednn import kernels, norm
from penstock.engines.onednn import library as lib
from penstock.engines.onednn import matmul as products
from penstock.engines.onednn.library import OneDnnError
from penstock.engines.onednn.plan import channels_last_strides, contiguous, strides_of
from penstock.engines.onednn.primitives import CODES, FLOAT32, Add, Eltwise, PostOps
from penstock.ops.kernels import conv as numpy_conv
from penstock.ops.kernels import depthwise as numpy_depthwise
from penstock.ops.kernels.numeric import narrow, widen
from penstock.ops.kernels.window import layout

Function = Callable[..., np.ndarray]


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.float32(0.7978845608028654) * (x + np.float32(0.044715) * x * x * x)))


def _gelu_erf(x: np.ndarray) -> np.ndarray:
    from penstock.ops.kernels.special import erf

    return 0.5 * x * (1 + erf(x * np.float32(0.7071067811865476)))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


ACTIVATIONS: dict[str, tuple[Eltwise, Callable[[np.ndarray], np.ndarray]]] = {
    "relu": (Eltwise("relu"), lambda x: np.maximum(x, np.float32(0))),
    "relu6": (Eltwise("clip", 0.0, 6.0), lambda x: np.clip(x, np.float32(0), np.float32(6))),
    "leaky_relu": (Eltwise("relu", 0.2), lambda x: np.where(x > 0, x, np.float32(0.2) * x)),
    "elu": (Eltwise("elu", 1.0), lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, np.float32(0))))),
    "tanh": (Eltwise("tanh"), np.tanh),
    "sigmoid": (Eltwise("sigmoid"), _sigmoid),
    "softplus": (Eltwise("softplus", 1.0), lambda x: np.logaddexp(x, np.float32(0))),
    "swish": (Eltwise("swish", 1.0), lambda x: x * _sigmoid(x)),
    "gelu": (Eltwise("gelu_erf"), _gelu_erf),
    "gelu_tanh": (Eltwise("gelu_tanh"), _gelu_tanh),
}
"""What may follow: oneDNN's function, and NumPy's. `leaky_relu` has TF's default slope."""


def _finish(y: np.ndarray, bias: np.ndarray | None, addend: np.ndarray | None, activation: str | None, channel: int = -1) -> np.ndarray:
    """Bias, addend and activation with NumPy, rounded once at the end."""
    wide = widen(y)
    if bias is not None:
        shape = [1] * y.ndim
        shape[channel] = -1
        wide = wide + widen(bias).reshape(shape)
    if addend is not None:
        wide = wide + widen(addend)
    if activation is not None:
        wide = ACTIVATIONS[activation][1](wide)
    return narrow(wide, y.dtype)


def _check(activation: str | None) -> None:
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(f"no such activation: {activation!r}; there are {', '.join(ACTIVATIONS)}")


def _post_ops(activation: str | None, addend: Add | None) -> PostOps:
    ops: PostOps = () if addend is None else (addend,)
    return ops if activation is None else (*ops, ACTIVATIONS[activation][0])


def _split(more: Sequence[Any], has_bias: bool) -> tuple[Any, Any]:
    """(bias, addend) out of the further arguments."""
    return (more[0], more[1] if len(more) > 1 else None) if has_bias else (None, more[0] if more else None)


def _remembering(fallback: Function, prepare: Callable[..., Function | None]) -> Function:
    last: tuple[Any, Function] = (None, fallback)

    def call(*inputs: np.ndarray) -> np.ndarray:
        nonlocal last
        key = tuple([x.shape for x in inputs])
        known, run = last
        if known != key:
            run = prepare(*inputs) or fallback
            last = (key, run)
        try:
            return run(*inputs)
        except OneDnnError as error:
            last = (key, fallback)
            if error.status != lib.FORKED:
                lib.log.warning("%s; NumPy computes it", error)
            return fallback(*inputs)

    return call


def conv(
    attrs: dict[str, Any], *, has_bias: bool = False, has_addend: bool = False, activation: str | None = None,
    is_depthwise: bool = False, is_constant: bool = False,
) -> Function:  # fmt: skip
    """A function `(x, filter[, bias][, addend])` of a convolution with what follows it.

    `attrs` are those of a Conv2D or DepthwiseConv2dNative node (T, strides, padding, ...); `addend` has the result's shape;
    `is_constant` promises that the filter is the same array in every call, and never changes.
    """
    _check(activation)
    window = kernels.Window(attrs, is_depthwise)
    kernel = numpy_depthwise.depthwise_conv2d if is_depthwise else numpy_conv.conv2d
    names = ("strides", "padding", "explicit_paddings", "data_format", "dilations")
    keywords = {name: attrs[name] for name in names if name in attrs}
    channel = layout(attrs["data_format"]).channel

    def by_numpy(x: np.ndarray, filter: np.ndarray, *more: np.ndarray) -> np.ndarray:
        # Narrow types are rounded once, at the end.
        y = kernel(widen(x), widen(filter), **keywords)
        return narrow(_finish(y, *_split(more, has_bias), activation, channel), x.dtype)

    if not window.is_supported:
        return by_numpy

    def prepare(x: np.ndarray, filter: np.ndarray, *more: np.ndarray) -> Function | None:
        spec = window.spec(x.shape, filter.shape)
        library = kernels.library_for(window.dtype) if spec else None
        if library is None or spec is None:
            return None
        bias, addend = _split(more, has_bias)
        shape = spec.shape(spec.dst_dims)
        if (has_bias and bias.shape != (spec.out_depth,)) or (has_addend and (addend.shape != shape or not spec.channels_last)):
            return None
        added = Add(spec.dst_dims, channels_last_strides(spec.dst_dims)) if has_addend else None
        plan = convolutions.forward(library, spec, has_bias, _post_ops(activation, added), is_constant)
        return plan and _with_contiguous(plan.run)

    return _remembering(by_numpy, prepare)


def _with_contiguous(run: Function) -> Function:
    """Plans see to their first two operands themselves."""
    return lambda x, w, *more: run(x, w, *map(contiguous, more))


def matmul(
    *, transpose_a: bool = False, transpose_b: bool = False, has_bias: bool = False, has_addend: bool = False,
    activation: str | None = None, is_constant: bool = False,
) -> Function:  # fmt: skip
    """A function `(a, b[, bias][, addend])` of a product of (batches of) matrices with what follows it; `is_constant` as in `conv`."""
    _check(activation)

    def by_numpy(a: np.ndarray, b: np.ndarray, *more: np.ndarray) -> np.ndarray:
        x, y = widen(a), widen(b)
        product = np.matmul(np.swapaxes(x, -1, -2) if transpose_a else x, np.swapaxes(y, -1, -2) if transpose_b else y)
        return narrow(_finish(product, *_split(more, has_bias), activation), a.dtype)

    def prepare(a: np.ndarray, b: np.ndarray, *more: np.ndarray) -> Function | None:
        if a.dtype not in CODES or a.dtype != b.dtype or min(a.ndim, b.ndim) < 2 or not a.size or not b.size:
            return None
        spec = products.Spec(a.shape, b.shape, transpose_a, transpose_b, a.dtype)
        if a.shape[-2 if transpose_a else -1] != b.shape[-1 if transpose_b else -2] or spec.flops < kernels.MIN_FUSED_FLOPS:
            return None
        bias, addend = _split(more, has_bias)
        if (has_bias and bias.shape != spec.shape[-1:]) or (has_addend and addend.shape != spec.shape):
            return None
        library = kernels.library_for(a.dtype)
        if library is None:
            return None
        added = Add(spec.shape, strides_of(spec.shape)) if has_addend else None
        plan = products.matmul(library, spec, has_bias, _post_ops(activation, added), is_constant)
        return plan and _with_contiguous(plan.run)

    return _remembering(by_numpy, prepare)


def fold_batch_norm(
    filter: np.ndarray, bias: np.ndarray | None, scale: np.ndarray, offset: np.ndarray, mean: np.ndarray, variance: np.ndarray,
    epsilon: float, is_depthwise: bool = False,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Filter and bias of the one convolution that equals convolution (plus bias) followed by batch normalisation in inference mode.

    The product is taken in float64 and rounded once, so that folding costs no accuracy worth naming.
    """
    factor = np.asarray(scale, np.float64) / np.sqrt(np.asarray(variance, np.float64) + epsilon)
    shape = filter.shape[-2:] if is_depthwise else filter.shape[-1:]
    folded = np.asarray(filter, np.float64) * factor.reshape(shape)
    shift = np.asarray(mean, np.float64) - (0.0 if bias is None else np.asarray(bias, np.float64))
    return folded.astype(filter.dtype), (np.asarray(offset, np.float64) - shift * factor).astype(filter.dtype)


def layer_norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray, epsilon: float) -> np.ndarray:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift over the last dimension."""
    depth = x.shape[-1] if x.ndim else 0
    if x.dtype in CODES and scale.shape == shift.shape == (depth,) and scale.dtype == shift.dtype == FLOAT32 and x.size >= max(kernels.MIN_NORM_SIZE, 1):
        library = kernels.library_for(x.dtype)
        plan = norm.layer_forward(library, x.size // depth, depth, x.dtype, epsilon) if library else None
        if plan is not None:
            return plan.run(x, scale, shift)[0]
    wide = widen(x)
    centred = wide - wide.mean(-1, keepdims=True)
    factor = 1 / np.sqrt(np.mean(centred * centred, -1, keepdims=True) + np.float32(epsilon))
    return narrow(centred * factor * scale + shift, x.dtype)
