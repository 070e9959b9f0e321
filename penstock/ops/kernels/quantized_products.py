"""Products of quantised matrices and images, with int32 sums, and quantised pooling.

Steps are multiplied after taking away the step that stands for zero, so that sums need no correction. NumPy has no
fast product of whole numbers; BLAS products of floats are exact as long as every partial sum is, so each product uses
float32 if no sum can pass 2**24, float64 up to 2**53, and NumPy's own int64 product beyond.

Unsigned times signed bytes follow TF's oneDNN kernels: both are SCALED, the zero of each is the whole number 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError, UnimplementedError
from penstock.ops.kernels import conv, depthwise, pool
from penstock.ops.kernels.quantized import bounds, product_range, scalar, zero_step
from penstock.ops.kernels.window import layout, slides_of
from penstock.shapes import format_dims

_F = np.float32
_RANK_TEXT = "{name} must be rank 0 but is rank {rank}"


def exact_type(terms: int, a: tuple[Any, int], b: tuple[Any, int]) -> Any:
    """The fastest type in which a sum of `terms` products is exact; `a` and `b` are (storage type, zero step)."""
    largest = max(1, terms)
    for dtype, zero in (a, b):
        first, last = bounds(dtype)
        largest *= max(abs(first - zero), abs(last - zero))
    return _F if largest <= 1 << 24 else np.float64 if largest <= 1 << 53 else np.int64


def shifted(x: Any, zero: int, dtype: Any) -> np.ndarray:
    """`x - zero` as `dtype`."""
    wide = x.astype(dtype)
    if zero:
        np.subtract(wide, dtype(zero), out=wide)
    return wide


def wrapped(x: Any) -> np.ndarray:
    """Exact sums as int32, which wrap around as sums of int32 do."""
    return x.astype(np.int32) if x.dtype == _F else x.astype(np.int64).astype(np.int32)


def mixed_range(a: tuple[Any, Any, Any], b: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """`product_range` of SCALED steps: a signed byte has 254 of them, -127 to 127. `b` may have a range per channel."""
    step = _F(1)
    for low, high, dtype in (a, b):
        first, last = bounds(dtype)
        step = step * ((high - low) / _F(last - max(first, -last)))
    return step * _F(-(2**31)), step * _F(2**31)


# ---------------------------------------------------------------------------------------------------------------------
# Matrices


def checked_matmul(a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> tuple[Any, Any]:
    for i, x in enumerate((a, b)):
        if np.ndim(x) != 2:
            raise InvalidArgumentError(f"In[{i}] is not a matrix")
    x, y = a.T if transpose_a else a, b.T if transpose_b else b
    if x.shape[1] != y.shape[0]:
        raise InvalidArgumentError(f"Matrix size-incompatible: In[0]: {format_dims(a.shape)}, In[1]: {format_dims(b.shape)}")
    return x, y


def matmul_ranges(min_a: Any, max_a: Any, min_b: Any, max_b: Any) -> tuple[Any, Any, Any, Any]:
    given = []
    for name, value in (("min_a", min_a), ("max_a", max_a), ("min_b", min_b), ("max_b", max_b)):
        if np.size(value) != 1:
            raise InvalidArgumentError(f"{name} must be a scalar, but got shape{format_dims(np.shape(value))}")
        given.append(_F(np.ravel(value)[0]))
    for name, low, high in (("a", *given[:2]), ("b", *given[2:])):
        if not low < high:
            raise InvalidArgumentError(f"max_{name} must be larger than min_{name}.")
    return tuple(given)  # type: ignore[return-value]


def int_matmul(x: Any, y: Any, zero_x: int, zero_y: int) -> np.ndarray:
    dtype = exact_type(x.shape[1], (x.dtype, zero_x), (y.dtype, zero_y))
    return wrapped(np.matmul(shifted(x, zero_x, dtype), shifted(y, zero_y, dtype)))


def matmul_with(product: Any) -> Any:
    """QuantizedMatMul's kernel over `product`, a function like `int_matmul`."""

    def kernel(a: Any, b: Any, *ranges: Any, transpose_a: bool, transpose_b: bool, Toutput: DType) -> list[Any]:
        x, y = checked_matmul(a, b, transpose_a, transpose_b)
        min_a, max_a, min_b, max_b = matmul_ranges(*ranges)
        total = product(x, y, zero_step(min_a, max_a, a.dtype), zero_step(min_b, max_b, b.dtype))
        return [total, *product_range((min_a, max_a, a.dtype), (min_b, max_b, b.dtype), Toutput.np)]

    return kernel


matmul = matmul_with(int_matmul)


# ---------------------------------------------------------------------------------------------------------------------
# Images


def check_conv(x: Any, w: Any, strides: list[int], dilations: list[int]) -> None:
    if strides[0] != 1 or strides[3] != 1:
        raise InvalidArgumentError("Current implementation does not yet support strides in the batch and depth dimensions.")
    if strides[1] != strides[2]:
        raise InvalidArgumentError("Current implementation only supports equal length strides in the row and column dimensions.")
    if w.dtype == np.uint8 and (dilations[1] != 1 or dilations[2] != 1):
        raise InvalidArgumentError("Current implementation only supports dilated rate as 1 in the row and column dimensions.")
    if dilations[0] != 1 or dilations[3] != 1:
        raise InvalidArgumentError("Current implementation does not yet support dilations in the batch and depth dimensions.")
    for name, value in (("input", x), ("filter", w)):
        if np.ndim(value) != 4:
            raise InvalidArgumentError(f"{name} must be rank 4 but is rank {np.ndim(value)}")
    if x.shape[3] != w.shape[2]:
        raise InvalidArgumentError(f"input and filter must have the same depth: {x.shape[3]} vs {w.shape[2]}")
    if not x.size or not w.size:
        raise InvalidArgumentError("Invalid input: Shapes dimension cannot be 0.")


def int_conv2d(x: Any, w: Any, zero_x: int, zero_w: int, *, strides: Any, padding: bytes, dilations: Any, depthwise_: bool = False) -> np.ndarray:
    """Cells beyond the border count as the byte that stands for zero."""
    if zero_x > bounds(x.dtype)[1] and padding == b"SAME":
        # Zero lies beyond the range: TF fills the border with the low bits of its step.
        slides = slides_of(layout(b"NHWC"), x.shape[1:3], w.shape[:2], strides, padding, dilations)
        x = np.pad(x, [(0, 0), *((s.before, s.after) for s in slides), (0, 0)], constant_values=np.array(zero_x).astype(x.dtype))
        padding = b"VALID"
    terms = w.shape[0] * w.shape[1] * (1 if depthwise_ else w.shape[2])
    dtype = exact_type(terms, (x.dtype, zero_x), (w.dtype, zero_w))
    function = depthwise.depthwise_conv2d if depthwise_ else conv.conv2d
    return wrapped(function(shifted(x, zero_x, dtype), shifted(w, zero_w, dtype), strides=strides, padding=padding, dilations=dilations))


def conv2d_with(product: Any) -> Any:
    """QuantizedConv2D's kernel over `product`, a function like `int_conv2d`."""

    def kernel(x: Any, w: Any, *ranges: Any, out_type: DType, strides: list[int], padding: bytes, dilations: list[int]) -> list[Any]:
        check_conv(x, w, strides, dilations)
        low, high = scalar("min_input", ranges[0], _RANK_TEXT), scalar("max_input", ranges[1], _RANK_TEXT)
        if w.dtype == np.int8:
            total = product(x, w, 0, 0, strides=strides, padding=padding, dilations=dilations)
            return finished(total, None, (low, high, x.dtype), (ranges[2], ranges[3], w.dtype), None, False, out_type.np)
        filter_low, filter_high = scalar("min_filter", ranges[2], _RANK_TEXT), scalar("max_filter", ranges[3], _RANK_TEXT)
        zero_x, zero_w = zero_step(low, high, x.dtype), zero_step(filter_low, filter_high, w.dtype)
        total = product(x, w, zero_x, zero_w, strides=strides, padding=padding, dilations=dilations)
        return [total, *product_range((low, high, x.dtype), (filter_low, filter_high, w.dtype), out_type.np)]

    return kernel


conv2d = conv2d_with(int_conv2d)


def max_pool(x: Any, low: Any, high: Any, *, ksize: list[int], strides: list[int], padding: bytes) -> list[Any]:
    pooled = pool.max_pool(x, ksize=ksize, strides=strides, padding=padding)
    return [pooled, *_pool_range(low, high)]


def avg_pool(x: Any, low: Any, high: Any, *, ksize: list[int], strides: list[int], padding: bytes) -> list[Any]:
    mean = pool.avg_pool(x.astype(np.float64), ksize=ksize, strides=strides, padding=padding)
    return [np.trunc(mean).astype(x.dtype), *_pool_range(low, high)]


def _pool_range(low: Any, high: Any) -> list[Any]:
    text = "{name} shape must be rank 0 but is rank {rank}, received shape: {shape}"
    return [scalar("min_input", low, text), scalar("max_input", high, text)]


# ---------------------------------------------------------------------------------------------------------------------
# Unsigned times signed bytes, with bias, Relu and requantisation in one op (TF's oneDNN kernels)


def _reach(low: Any, high: Any) -> Any:
    return np.maximum(np.abs(low), np.abs(high))


def step_of(low: Any, high: Any, dtype: Any) -> Any:
    """What one SCALED step stands for, float32; one for each channel if the range has them."""
    return _reach(low, high) / _F(bounds(dtype)[1])


def finished(total: np.ndarray, bias: Any, a: tuple[Any, Any, Any], b: tuple[Any, Any, Any], frozen: tuple[Any, Any] | None, relu: bool, dtype: Any,
             summand: tuple[Any, Any, Any] | None = None) -> list[Any]:  # fmt: skip
    """int32 sums with bias and summand added, negative ones cut, and moved to the range `frozen` if there is one.

    As in oneDNN, a float bias is added to the real number that a sum stands for, in float32; the order of the factors matters.
    `summand` is (values, low, high): steps of a range of their own, or real numbers.
    """
    scale = step_of(*a) * step_of(*b)
    if bias is not None and bias.dtype == np.int32:
        total, bias = (total + bias, None) if frozen is None and not np.ndim(scale) else (total, bias.astype(_F) * scale)
    if frozen is None:
        # TF's sums are in steps of the widest channel, although it returns a range for each.
        unit = np.max(scale)
        if bias is not None or np.ndim(scale):
            real = total.astype(_F) * scale
            total = np.rint((real if bias is None else real + bias) * (_F(1) / unit)).astype(np.int32)
        if summand is not None:
            total = total + np.rint(summand[0] * (_F(1) / unit)).astype(np.int32)
        return [np.maximum(total, 0) if relu else total, *mixed_range(a, b)]
    low, high = scalar("min_freezed_output", frozen[0]), scalar("max_freezed_output", frozen[1])
    first, last = bounds(dtype)
    real = total.astype(_F) * scale
    if bias is not None:
        real = real + bias
    unit = step_of(low, high, dtype)
    moved = real * (_F(1) / unit)
    if summand is not None:
        steps, least, most = summand
        moved = moved + steps.astype(_F) * (step_of(scalar("min_summand", least), scalar("max_summand", most), steps.dtype) / unit)
    return [np.clip(np.rint(moved), first, last).astype(dtype), low, high]


def fused_conv(has_bias: bool, relu: bool, requantize: bool, is_depthwise: bool, product: Any = int_conv2d, has_sum: bool = False) -> Any:
    """The kernel of one QuantizedConv2D... or QuantizedDepthwiseConv2D... op."""

    def kernel(x: Any, w: Any, *rest: Any, out_type: DType, strides: list[int], padding: bytes, dilations: list[int], node: Any) -> list[Any]:
        if node.attrs.get("padding_list"):
            raise UnimplementedError("padding_list is not supported; use padding")
        check_conv(x, w, strides, dilations)
        bias, ranges = (rest[0], rest[1:]) if has_bias else (None, rest)
        channels = w.shape[2] * w.shape[3] if is_depthwise else w.shape[3]
        if bias is not None and bias.shape != (channels,):
            raise InvalidArgumentError(f"bias must have one element for each of {channels} channels, got shape {format_dims(bias.shape)}")
        low, high = scalar("min_input", ranges[0], _RANK_TEXT), scalar("max_input", ranges[1], _RANK_TEXT)
        for name, value in (("min_filter", ranges[2]), ("max_filter", ranges[3])):
            if np.ndim(value) and np.shape(value) != (channels,):
                raise InvalidArgumentError(f"{name} must be a scalar or have one element for each of {channels} channels, got shape {format_dims(np.shape(value))}")
        total = product(x, w, 0, 0, strides=strides, padding=padding, dilations=dilations, depthwise_=is_depthwise)
        frozen = (ranges[4], ranges[5]) if requantize else None
        summand = (ranges[6:] if requantize else (ranges[4], None, None)) if has_sum else None
        if summand is not None and summand[0].shape != total.shape:
            raise InvalidArgumentError(f"summand must have the output's shape {format_dims(total.shape)}, got {format_dims(summand[0].shape)}")
        return finished(total, bias, (low, high, x.dtype), (ranges[2], ranges[3], w.dtype), frozen, relu, out_type.np, summand)

    return kernel


def fused_matmul(relu: bool, requantize: bool, product: Any = int_matmul, dequantize: bool = False) -> Any:
    """The kernel of one QuantizedMatMulWithBias... op."""

    def kernel(a: Any, b: Any, bias: Any, *ranges: Any, transpose_a: bool, transpose_b: bool, Toutput: DType) -> list[Any]:
        x, y = checked_matmul(a, b, transpose_a, transpose_b)
        min_a, max_a, min_b, max_b = matmul_ranges(*ranges[:4])
        if min_a != 0:
            raise UnimplementedError(f"The range of `a` must start at 0 in products with bias, but min_a is {min_a:g}")
        if bias.shape != (y.shape[1],):
            raise InvalidArgumentError(f"Must provide as many biases as the last dimension of the input tensor: {format_dims(bias.shape)} vs. {format_dims(b.shape)}")
        if dequantize:
            scale = step_of(min_a, max_a, a.dtype) * step_of(min_b, max_b, b.dtype)
            return product(x, y, 0, 0).astype(_F) * scale + (bias.astype(_F) * scale if bias.dtype == np.int32 else bias)
        frozen = (ranges[4], ranges[5]) if requantize else None
        return finished(product(x, y, 0, 0), bias, (min_a, max_a, a.dtype), (min_b, max_b, b.dtype), frozen, relu, Toutput.np)

    return kernel
