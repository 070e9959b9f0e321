"""Uniformly quantised numbers: real = (whole - zero point) * scale, for a whole array or for each slice along an axis.

From one scale to another, whole numbers are multiplied by a fixed-point number of 31 binary places, as in TF; halves go up.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.shapes import format_dims

_F = np.float32


def _parameters(what: str, x: Any, scales: Any, zeros: Any, axis: int, positive: bool = True) -> tuple[Any, Any]:
    """Scales and zero points shaped so that they broadcast along `axis` of `x`. Not every op of TF minds scales that are not positive."""
    if np.shape(scales) != np.shape(zeros):
        raise InvalidArgumentError(f"{what}scales and zero_points shape must be same, but given {format_dims(np.shape(scales))} and {format_dims(np.shape(zeros))}")
    rank = np.ndim(x)
    if axis < -1 or axis >= rank:
        raise InvalidArgumentError(f"quantization_axis must be -1 or within [0, {rank}), given {axis}")
    if axis == -1:
        if np.ndim(scales):
            raise InvalidArgumentError(f"If quantization_axis is -1, {what}scales and zero_points must be scalars, given rank {np.ndim(scales)}")
    elif np.shape(scales) != (x.shape[axis],):
        raise InvalidArgumentError(f"{what}scales must have the input's size {x.shape[axis]} along quantization_axis {axis}, given {format_dims(np.shape(scales))}")
    if positive and not np.all(np.asarray(scales) > 0):
        raise InvalidArgumentError(f"{what}scales elements must be all positive")
    shape = [-1 if i == axis else 1 for i in range(rank)] if axis >= 0 else ()
    return np.reshape(scales, shape), np.reshape(zeros, shape).astype(np.int64)


def _check_bounds(low: int, high: int) -> None:
    if low > high:
        raise InvalidArgumentError(f"quantization_min_val must be at most quantization_max_val, given {low} and {high}")


def quantize(x: Any, scales: Any, zero_points: Any, *, Tout: DType, quantization_axis: int, quantization_min_val: int, quantization_max_val: int) -> Any:
    _check_bounds(quantization_min_val, quantization_max_val)
    scale, zero = _parameters("", x, scales, zero_points, quantization_axis, positive=False)
    whole = np.floor(x * (_F(1) / scale) + _F(0.5)).astype(np.float64)
    whole = np.where(np.abs(whole) < 1 << 31, whole, -(1 << 31)) + zero  # what is no int32 is the least of them in C++, NaN too
    return np.clip(whole, quantization_min_val, quantization_max_val).astype(Tout.np)


def dequantize(x: Any, scales: Any, zero_points: Any, *, quantization_axis: int) -> Any:
    scale, zero = _parameters("", x, scales, zero_points, quantization_axis)
    return (x.astype(np.int64) - zero).astype(_F) * scale


def multiplied(x: Any, factor: Any) -> np.ndarray:
    """Whole numbers times `factor`, a float64 that may broadcast, rounded; what int32 cannot hold is its least or largest."""
    if not np.all(np.isfinite(factor)):
        raise InvalidArgumentError(f"double_multiplier must be a poisitive finite number. Given {np.max(factor):g}")
    part, exponent = np.frexp(factor)
    fixed = np.rint(part * 2.0**31).astype(np.int64)
    over = fixed == 1 << 31
    fixed, exponent = np.where(over, fixed // 2, fixed), exponent + over
    fixed, exponent = np.where(exponent < -31, 0, fixed), np.where(exponent < -31, 0, exponent)
    fixed, exponent = np.where(exponent > 30, (1 << 31) - 1, fixed), np.minimum(exponent, 30)
    places = 31 - exponent.astype(np.int64)
    return np.clip((x * fixed + (np.int64(1) << places - 1)) >> places, -(1 << 31), (1 << 31) - 1)


def limited(x: Any, low: int, high: int) -> np.ndarray:
    """Whole numbers with a zero point added, as int32 within bounds; a zero point far away makes them wrap around, as in TF."""
    least, largest = (np.int32(max(-(1 << 31), min(end, (1 << 31) - 1))) for end in (low, high))
    return np.minimum(np.maximum(x.astype(np.int32), least), largest)


def _moved(x: Any, source: tuple[Any, Any], target: tuple[Any, Any]) -> np.ndarray:
    factor = np.asarray(source[0], np.float64) / np.asarray(target[0], np.float64)
    return multiplied(x.astype(np.int64) - source[1], factor) + target[1]


def requantize(x: Any, input_scales: Any, input_zero_points: Any, output_scales: Any, output_zero_points: Any, *, Tout: DType, input_quantization_axis: int,
               output_quantization_axis: int, output_quantization_min_val: int, output_quantization_max_val: int) -> Any:  # fmt: skip
    if input_quantization_axis != output_quantization_axis and -1 not in (input_quantization_axis, output_quantization_axis):
        raise InvalidArgumentError("If input and output is both per-axis quantized, the quantization axis must be same.")
    source = _parameters("input_", x, input_scales, input_zero_points, input_quantization_axis)
    target = _parameters("output_", x, output_scales, output_zero_points, output_quantization_axis)
    return limited(_moved(x, source, target), output_quantization_min_val, output_quantization_max_val).astype(Tout.np, copy=False)


def add(x: Any, y: Any, x_scales: Any, x_zeros: Any, y_scales: Any, y_zeros: Any, out_scales: Any, out_zeros: Any, *, lhs_quantization_axis: int,
        rhs_quantization_axis: int, output_quantization_axis: int, output_quantization_min_val: int, output_quantization_max_val: int) -> Any:  # fmt: skip
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        raise InvalidArgumentError(f"cannot broadcast shapes {format_dims(x.shape)} and {format_dims(y.shape)}") from None
    wide = x if x.ndim >= y.ndim else y
    target = _parameters("output_", wide, out_scales, out_zeros, output_quantization_axis)
    moved = [
        _moved(v, _parameters(name, v, scales, zeros, axis), target)
        for name, v, scales, zeros, axis in (("lhs_", x, x_scales, x_zeros, lhs_quantization_axis), ("rhs_", y, y_scales, y_zeros, rhs_quantization_axis))
    ]
    return np.clip(moved[0] + moved[1] - target[1], output_quantization_min_val, output_quantization_max_val).astype(x.dtype)


def clip(x: Any, low: Any, high: Any, scales: Any, zero_points: Any, *, quantization_axis: int) -> Any:
    _parameters("", x, scales, zero_points, quantization_axis, positive=False)
    if np.shape(low) != np.shape(scales) or np.shape(high) != np.shape(scales):
        raise InvalidArgumentError(f"Input min and max shapes must be same as scales', given {format_dims(np.shape(low))} and {format_dims(np.shape(high))}")
    shape = [-1 if i == quantization_axis else 1 for i in range(np.ndim(x))] if quantization_axis >= 0 else ()
    return np.minimum(np.maximum(x, np.reshape(low, shape)), np.reshape(high, shape))


def dot(x: Any, y: Any, x_scales: Any, x_zeros: Any, y_scales: Any, y_zeros: Any, out_scales: Any, out_zeros: Any, *, Tout: DType, rhs_quantization_axis: int,
        output_quantization_axis: int, output_quantization_min_val: int, output_quantization_max_val: int) -> Any:  # fmt: skip
    if np.ndim(x) != 2 or np.ndim(y) != 2:
        raise InvalidArgumentError(f"lhs and rhs must have rank 2, given {format_dims(np.shape(x))} and {format_dims(np.shape(y))}")
    if x.shape[1] != y.shape[0]:
        raise InvalidArgumentError(f"lhs.dim_size(1) and rhs.dim_size(0) must be equal, given {x.shape[1]} and {y.shape[0]}")
    x_scale, x_zero = _parameters("lhs_", x, x_scales, x_zeros, -1)
    y_scale, y_zero = _parameters("rhs_", y, y_scales, y_zeros, rhs_quantization_axis)
    total = np.matmul((x - x_zero).astype(np.float64), (y - y_zero).astype(np.float64)).astype(np.int64)
    target = _parameters("output_", total, out_scales, out_zeros, output_quantization_axis)
    factor = (np.asarray(x_scale, np.float64) * np.asarray(y_scale, np.float64)) / np.asarray(target[0], np.float64)
    return limited(multiplied(total, factor) + target[1], output_quantization_min_val, output_quantization_max_val).astype(Tout.np, copy=False)


def dot_hybrid(x: Any, y: Any, scales: Any, zero_points: Any, *, rhs_quantization_axis: int) -> Any:
    """A float matrix times a quantised one: each row of the float one is quantised to bytes by its own range."""
    if np.ndim(x) != 2 or np.ndim(y) != 2:
        raise InvalidArgumentError(f"lhs and rhs must have rank 2, given {format_dims(np.shape(x))} and {format_dims(np.shape(y))}")
    if x.shape[1] != y.shape[0]:
        raise InvalidArgumentError(f"lhs.dim_size(1) and rhs.dim_size(0) must be equal, given {x.shape[1]} and {y.shape[0]}")
    scale, zero = _parameters("rhs_", y, scales, zero_points, rhs_quantization_axis)
    rows, step = byte_rows(x)
    total = np.matmul(rows, (y - zero).astype(np.float64))
    return (total * step[:, None]).astype(_F) * scale


def byte_rows(x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Each row of a float matrix in steps of its own range over 255, as whole numbers in float64; and the steps."""
    low, high = np.minimum(x.min(1, initial=0), 0).astype(np.float64), np.maximum(x.max(1, initial=0), 0).astype(np.float64)
    step = (high - low) / 255.0
    some = np.where(step > 0, step, 1.0)
    at_zero = np.where(step > 0, np.rint(-128 - low / some), 0.0)[:, None]
    rows = np.clip(np.floor(x * (1.0 / some).astype(_F)[:, None] + _F(0.5)) + at_zero, -128, 127) - at_zero
    return rows.astype(np.float64), step
