"""Numbers to whole-number steps of a range and back, and the elementwise quantised kernels.

A quantised tensor is whole numbers with the two real numbers that its lowest and highest values stand for. TensorFlow
computes these conversions in two ways whose last bits differ, and both are here:

- `to_real`, `to_steps`: in double precision, value by value (its reference formula);
- `dequantised`, `quantised`: in float32 with a precomputed step, over whole arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError, UnimplementedError
from penstock.ops.native.numbered import NumberedLoop
from penstock.shapes import format_dims

_F = np.float32
_D = np.float64
_HUGE = np.finfo(_F).max


# ---------------------------------------------------------------------------------------------------------------------
# Conversions


def bounds(dtype: Any) -> tuple[int, int]:
    """The lowest and highest value of a storage type."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def steps_of(dtype: Any) -> int:
    return 1 << 8 * np.dtype(dtype).itemsize


def away(x: Any) -> Any:
    """Rounded, halves away from zero."""
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(x.dtype.type(1), x), x.dtype.type(0))


def step_unclamped(value: Any, low: Any, high: Any, dtype: Any) -> Any:
    """The step (int64, perhaps outside of `dtype`) nearest to each float32 `value` where `low`..`high` are the ends."""
    value = np.asarray(value, _F)
    if low == high:
        return np.zeros(value.shape, np.int64)
    steps = steps_of(dtype)
    reach = _D(_F(high) - _F(low)) * (steps / (steps - 1.0))
    scale = _D(steps) / reach
    found = away(value.astype(_D) * scale) - away(_D(low) * scale) + bounds(dtype)[0]
    return found.astype(np.int64)


def to_steps(value: Any, low: Any, high: Any, dtype: Any) -> Any:
    """`step_unclamped` kept inside of `dtype`."""
    return np.clip(step_unclamped(value, low, high, dtype), *bounds(dtype)).astype(dtype)


def to_real(x: Any, low: Any, high: Any) -> Any:
    """What steps `x` stand for, float32."""
    if low == high:
        return np.full(np.shape(x), low, _F)
    steps = steps_of(x.dtype)
    scale = _D(_F(high) - _F(low)) * (steps / (steps - 1.0)) / _D(steps)
    # The start of the range moves to a whole step so that zero is one.
    start = away(_F(low) / _F(scale)) * _F(scale)
    # TF reads a step as a float32 before it widens it, which rounds large int32 steps.
    return (_D(start) + (x.astype(_F).astype(_D) - bounds(x.dtype)[0]) * scale).astype(_F)


def zero_step(low: Any, high: Any, dtype: Any) -> int:
    """The step that stands for 0, which may lie outside of `dtype`; an int32, as TF stores it."""
    return int(step_unclamped(_F(0), low, high, dtype).astype(np.int32))


def dequantised(x: Any, low: Any, high: Any) -> np.ndarray:
    """`to_real` in float32 arithmetic."""
    low, high = _F(low), _F(high)
    scale = _F(0) if low == high else _F(_D(high - low) / (steps_of(x.dtype) - 1.0))
    start = (low if low == high else away(low / scale) * scale) - _F(bounds(x.dtype)[0]) * scale
    found = _FROM_FIRST.run(x, (start, scale))
    return start + x.astype(_F) * scale if found is None else found


def quantised(x: Any, low: Any, high: Any, dtype: Any) -> np.ndarray:
    """`to_steps` in float32 arithmetic."""
    low, high = _F(low), _F(high)
    scale = _F(0) if low == high else _F((steps_of(dtype) - 1.0) / _D(high - low))
    first, last = bounds(dtype)
    start = away(low * scale) - _F(first)
    # 2**31 is no int32; the nearest float32 below it is.
    top = _F(last) if last < 1 << 24 else np.nextafter(_F(last), _F(0))
    found = _run(_TO_FIRST, x, (scale, start, first, top), dtype)
    if found is not None:
        return found
    moved = away(np.asarray(x * scale)) - start
    return np.minimum(np.maximum(moved, _F(first)), top).astype(np.int32).astype(dtype)


def requantised(x: Any, low: Any, high: Any, new_low: Any, new_high: Any, dtype: Any) -> np.ndarray:
    return quantised(dequantised(x, low, high), new_low, new_high, dtype)


def level(low: Any, high: Any, dtype: Any) -> Any:
    """What one step stands for, float32."""
    first, last = bounds(dtype)
    return (_F(high) - _F(low)) / _F(last - first)


def product_range(a: tuple[Any, Any, Any], b: tuple[Any, Any, Any], dtype: Any = np.int32) -> tuple[Any, Any]:
    """The range of products of (low, high, dtype) `a` and `b` when their steps are multiplied as they are."""
    step = level(*a) * level(*b)
    first, last = bounds(dtype)
    return step * _F(first), step * _F(last)


def scalar(name: str, value: Any, text: str = "`{name}` must be rank 0 but is rank {rank}") -> Any:
    """The one number in a range input; InvalidArgumentError in TF's words, which differ by op, if it has dimensions."""
    if np.ndim(value):
        raise InvalidArgumentError(text.format(name=name, rank=np.ndim(value), shape=format_dims(np.shape(value))))
    return _F(value)


# ---------------------------------------------------------------------------------------------------------------------
# QuantizeV2, Dequantize


def _along(values: Any, axis: int, rank: int) -> Any:
    """A vector shaped so that it broadcasts along dimension `axis`."""
    return values if axis < 0 else np.reshape(values, [-1 if i == axis else 1 for i in range(rank)])


def _check_ranges(x: Any, min_range: Any, max_range: Any, axis: int) -> None:
    if axis >= np.ndim(x):
        raise InvalidArgumentError(
            "Axis is on a zero-based index, so its value must always be less than number of input's dims,"
            f" but given axis value was {axis} and input's dims was {np.ndim(x)}"
        )
    for name, value in (("min_range", min_range), ("max_range", max_range)):
        if axis == -1:
            if np.size(value) != 1:
                raise InvalidArgumentError(
                    f"If axis is not specified, {name} must contain a single float element, but it contains {np.size(value)} elements"
                )
        elif np.shape(value) != (x.shape[axis],):
            found = f"dims are {np.ndim(value)}" if np.ndim(value) != 1 else (
                f"is a 1-D tensor of size {np.size(value)} and input's axis dimension is of size {x.shape[axis]}"
            )  # fmt: skip
            raise InvalidArgumentError(
                f"If axis is specified, {name} must be a 1-D tensor whose size matches the axis dimension of the input"
                f" and output tensors, but {name} {found}"
            )


def quantize_v2(x: Any, min_range: Any, max_range: Any, *, T: DType, mode: bytes, round_mode: bytes, narrow_range: bool,
                axis: int, ensure_minimum_range: float) -> list[Any]:  # fmt: skip
    if round_mode == b"HALF_TO_EVEN" and mode != b"SCALED":
        raise InvalidArgumentError(f"Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED', but mode is '{mode.decode()}'.")
    _check_ranges(x, min_range, max_range, axis)
    if axis != -1 and mode == b"MIN_FIRST":
        raise UnimplementedError("MIN_FIRST mode is not implemented for Quantize with axis != -1.")
    shape = () if axis == -1 else np.shape(min_range)
    given_low, given_high = np.asarray(min_range, _F).ravel(), np.asarray(max_range, _F).ravel()
    if (given_low > given_high).any():
        raise InvalidArgumentError("input_max_range must be larger than input_min_range.")
    zero = _F(0)
    low = np.minimum(zero, given_low)
    # A range must not be so short that its step is lost beside its ends.
    least = np.maximum(_F(1), np.maximum(np.abs(given_low), np.abs(given_high))) * _F(ensure_minimum_range)
    high = np.maximum(zero, np.maximum(given_high, low + least))
    first, last = bounds(T.np)
    if mode == b"SCALED":
        bottom, top = _F(first + narrow_range), _F(last)
        by_low = np.where(bottom * low > 0, bottom / low, _HUGE).astype(_F)
        by_high = np.where(top * high > 0, top / high, _HUGE).astype(_F)
        scale = np.minimum(by_low, by_high)
        low, high = _flushed(bottom / scale), top / scale
        output = _run(_SCALED[round_mode], x, (low[0], high[0], scale[0]), T.np) if axis == -1 else None
        if output is None:
            lo, hi, by = (_along(v, axis, x.ndim) for v in (low, high, scale))
            scaled = np.maximum(np.minimum(x, hi), lo) * by
            output = _to_whole(np.rint(scaled) if round_mode == b"HALF_TO_EVEN" else away(np.asarray(scaled)), T.np)
    elif mode == b"MIN_COMBINED":
        scale = (_D(last) - _D(first)) / (high - low).astype(_D)
        scale = scale.astype(_F)
        half = _F((last - first + 1) / 2) if first < 0 else _F(-0.5)
        output = _run(_COMBINED[first < 0], x, (low[0], high[0], scale[0], half), T.np) if axis == -1 else None
        if output is None:
            lo, hi, by = (_along(v, axis, x.ndim) for v in (low, high, scale))
            steps = (np.maximum(np.minimum(x, hi), lo) - lo) * by - half
            output = _to_whole(away(steps) if first < 0 else steps, T.np)
    else:
        output = quantised(x, low[0], high[0], T.np)
    return [np.reshape(output, x.shape), low.reshape(shape), high.reshape(shape)]


def _run(loop: NumberedLoop, x: Any, numbers: tuple[Any, ...], dtype: Any) -> np.ndarray | None:
    """Machine code takes what is NaN for the end of a range for none."""
    return None if any(n != n for n in numbers) else loop.run(x, numbers, dtype)


def _kept(x: Any, low: Any, high: Any) -> Any:
    return low.op("max", high.op("min", x))  # in this order what is NaN stays so


_SCALED = {
    b"HALF_TO_EVEN": NumberedLoop(lambda x, low, high, scale: np.rint(_kept(x, low, high) * scale), 3),
    b"HALF_AWAY_FROM_ZERO": NumberedLoop(lambda x, low, high, scale: away(_kept(x, low, high) * scale), 3),
}
_COMBINED = (
    NumberedLoop(lambda x, low, high, scale, half: (_kept(x, low, high) - low) * scale - half, 4),
    NumberedLoop(lambda x, low, high, scale, half: away((_kept(x, low, high) - low) * scale - half), 4),
)
_TO_FIRST = NumberedLoop(lambda x, scale, start, first, top: top.op("min", first.op("max", away(x * scale) - start)), 4)
_FROM_FIRST = NumberedLoop(lambda x, start, scale: start + x * scale, 2)
_FROM_COMBINED = NumberedLoop(lambda x, half, scale, low: (x + half) * scale + low, 3)
_FROM_SCALED = NumberedLoop(lambda x, scale: x * scale, 1)


def _flushed(x: Any) -> Any:
    """Numbers too small for full precision become 0, as in TF's kernels."""
    return np.where(np.abs(x) < np.finfo(_F).tiny, _F(0), x)


def _to_whole(x: Any, dtype: Any) -> np.ndarray:
    """float32 to whole numbers, cut towards zero; what does not fit an int32 becomes its lowest value, as on x86."""
    x = np.asarray(x)
    if np.dtype(dtype).itemsize == 4:
        return np.where(np.abs(x) < _F(2**31), x, _F(-(2**31))).astype(np.int32)
    return x.astype(np.int32).astype(dtype)


def dequantize(x: Any, min_range: Any, max_range: Any, *, mode: bytes, narrow_range: bool, axis: int, dtype: DType) -> Any:
    if dtype is dtypes.bfloat16 and mode != b"MIN_COMBINED":
        raise InvalidArgumentError(f"When output type is bfloat16, Mode string must be 'MIN_COMBINED', is '{mode.decode()}'")
    if axis >= np.ndim(x):
        raise InvalidArgumentError(f"Axis must be less than input dimension({np.ndim(x)}), got {axis}")
    count = 1 if axis == -1 else x.shape[axis]
    for name, value in (("input_min_tensor", min_range), ("input_max_tensor", max_range)):
        if np.size(value) != count:
            raise InvalidArgumentError(
                f"{name} must have as many elements as input on the dequantization axis ({axis}), got {np.size(value)}, expected {count}"
            )
    if axis != -1 and mode == b"MIN_FIRST":
        raise UnimplementedError("MIN_FIRST mode is not implemented for Dequantize with axis != -1.")
    low, high = np.asarray(min_range, _F).ravel(), np.asarray(max_range, _F).ravel()
    first, last = bounds(x.dtype)
    if mode == b"MIN_COMBINED":
        scale = (high - low) / (_F(last) - _F(first))
        half = _F(0) if first == 0 else (_F(last) - _F(first) + _F(1)) / _F(2)
        output = _FROM_COMBINED.run(x, (half, scale[0], low[0])) if axis == -1 else None
        if output is None:
            output = (x.astype(_F) + half) * _along(scale, axis, x.ndim) + _along(low, axis, x.ndim)
    elif mode == b"SCALED":
        bottom, top = _F(first + narrow_range), _F(last)
        scale = high / top if first == 0 else np.maximum(low / bottom, high / top)
        output = _FROM_SCALED.run(x, (scale[0],)) if axis == -1 else None
        if output is None:
            output = x.astype(_F) * _along(scale, axis, x.ndim)
    else:
        output = dequantised(x, low[0], high[0])
    return np.reshape(output, x.shape).astype(dtype.np, copy=False)


# ---------------------------------------------------------------------------------------------------------------------
# Ranges


def requantize(x: Any, low: Any, high: Any, new_low: Any, new_high: Any, *, out_type: DType) -> list[Any]:
    low, high = scalar("input_min", low), scalar("input_max", high)
    new_low, new_high = scalar("requested_output_min", new_low), scalar("requested_output_max", new_high)
    if new_low > 0:
        raise InvalidArgumentError(f"requested_output_min must be <= 0, but got {new_low:g}")
    if new_high < new_low:
        raise InvalidArgumentError(f"requested_output_max must be >= requested_output_min, but got {new_high:g} and {new_low:g}")
    return [_requantised_int32(x, low, high, new_low, new_high, out_type.np), new_low, new_high]


def _requantised_int32(x: Any, low: Any, high: Any, new_low: Any, new_high: Any, dtype: Any) -> np.ndarray:
    """`requantised`; TF takes int32 to unsigned bytes in fixed-point arithmetic with 16 binary places."""
    if dtype != np.uint8:
        return requantised(x, low, high, new_low, new_high, dtype)
    reach, new_reach = _F(high) - _F(low), _F(new_high) - _F(new_low)
    if new_reach == 0:
        scale = middle = start = 0
    else:
        scale = int(255.0 * (1 << 16) * _D(reach) / _D(new_reach))
        middle = int(_F(_D(_F(low) + _F(high)) / 2.0) * _F(255.0 / _D(new_reach)) * _F(1 << 16))
        start = int((1 << 16) * (_D(new_low) * 255.0) / _D(new_reach))
    moved = (x.astype(np.int64) * scale >> 32) + (middle - start + (1 << 15))
    return np.clip(moved >> 16, 0, 255).astype(dtype)


def requantization_range(x: Any, low: Any, high: Any) -> list[Any]:
    for name, value in (("min", low), ("max", high)):
        if not np.size(value):
            raise InvalidArgumentError(f"Input {name} must not be empty.")
    return list(_used_range(x, np.ravel(low)[0], np.ravel(high)[0]))


def _used_range(x: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """What the lowest and highest of `x` stand for; never above zero at the low end."""
    if not np.size(x):
        most, least = np.array(bounds(x.dtype), x.dtype)
    else:
        least, most = x.min(), x.max()
    return np.minimum(_F(0), to_real(least, low, high)), _F(to_real(most, low, high))


def quantize_down(x: Any, low: Any, high: Any, *, out_type: DType) -> list[Any]:
    low, high = scalar("input_min", low), scalar("input_max", high)
    used_low, used_high = _used_range(x, low, high)
    return [_requantised_int32(x, low, high, used_low, used_high, out_type.np), used_low, used_high]


def requantize_per_channel(x: Any, low: Any, high: Any, new_low: Any, new_high: Any, *, out_type: DType) -> list[Any]:
    if np.ndim(x) != 4:
        raise InvalidArgumentError("Current RequantizePerChannel operatorsupports 4D tensors only.")
    text = "{name} must be a scalar"
    new_low, new_high = scalar("requested_output_min", new_low, text), scalar("requested_output_max", new_high, text)
    if out_type is dtypes.qint8 and new_low >= 0:
        raise InvalidArgumentError(f"If out_type is QINT8, requested_output_max must be non negative, got {new_low:g}")
    depth = x.shape[-1]
    for name, value in (("input_min", low), ("input_max", high)):
        if np.size(value) not in (1, depth):
            raise InvalidArgumentError(f"{name} must have one element or one for each of {depth} channels, got {np.size(value)}")
    first, last = bounds(out_type.np)
    steps, reach = _F(255 if first == 0 else 127), np.maximum(np.abs(new_low), np.abs(new_high))
    given = np.maximum(np.abs(low), np.abs(high)).reshape(-1)
    scale = steps * (given / reach / _F(2**31))
    return [np.clip(np.rint(x.astype(_F) * scale), first, last).astype(out_type.np), new_low, new_high]


def range_per_channel(x: Any, low: Any, high: Any, *, clip_value_max: float) -> list[Any]:
    if np.ndim(x) != 4:
        raise InvalidArgumentError("input must be in NHWC format")
    depth = x.shape[-1]
    for name, value in (("input_min", low), ("input_max", high)):
        if np.size(value) != depth:
            raise InvalidArgumentError(f"input must have same number of channels as length of {name}: {depth} vs {np.size(value)}")
    channels = x.reshape(-1, depth)
    scale = np.maximum(np.abs(low), np.abs(high)) / _F(2**31)
    lowest = (channels.min(0).astype(_F) * scale).min()
    highest = np.maximum(np.finfo(_F).tiny, (channels.max(0).astype(_F) * scale).max())
    if lowest >= 0:
        return [_F(0), np.minimum(highest, _F(clip_value_max))]
    reach = np.minimum(np.maximum(np.abs(lowest), np.abs(highest)), _F(clip_value_max))
    return [-reach, reach]


# ---------------------------------------------------------------------------------------------------------------------
# Elementwise


def add(x: Any, y: Any, min_x: Any, max_x: Any, min_y: Any, max_y: Any, *, Toutput: DType) -> list[Any]:
    min_x, max_x = scalar("min_x", min_x), scalar("max_x", max_x)
    min_y, max_y = scalar("min_y", min_y), scalar("max_y", max_y)
    for name, low, high in (("x", min_x, max_x), ("y", min_y, max_y)):
        if not low < high:
            raise InvalidArgumentError(f"max_{name} must be larger than min_{name}.")
    _check_shapes(x, y, "Must have some elements to add")
    # Symmetric, so that zero is a step, with room for the sums.
    reach = np.maximum(np.abs(np.minimum(min_x, min_y)), np.abs(np.maximum(max_x, max_y))) * _F(1 << 14)
    one = 0 if x.size == 1 else 1 if y.size == 1 else None
    a, b = (
        to_steps(to_real(v, low, high), -reach, reach, Toutput.np) if i == one else _in_whole_steps(v, low, high, reach, Toutput.np)
        for i, (v, low, high) in enumerate(((x, min_x, max_x), (y, min_y, max_y)))
    )
    return [a + b, -reach, reach]


def _in_whole_steps(x: Any, low: Any, high: Any, reach: Any, dtype: Any) -> Any:
    """`x` in the range -reach..reach; one step of `x` is taken as a whole number of new steps."""
    first, second = step_unclamped(to_real(np.array([0, 1], x.dtype), low, high), -reach, reach, dtype)
    return np.clip(x.astype(np.int64) * (second - first) + first, *bounds(dtype)).astype(dtype)


def mul(x: Any, y: Any, min_x: Any, max_x: Any, min_y: Any, max_y: Any, *, Toutput: DType) -> list[Any]:
    text = "{name} must be a scalar"
    min_x, max_x = scalar("min_x", min_x, text), scalar("max_x", max_x, text)
    min_y, max_y = scalar("min_y", min_y, text), scalar("max_y", max_y, text)
    for name, low, high in (("a", min_x, max_x), ("b", min_y, max_y)):
        if not low < high:
            raise InvalidArgumentError(f"max_x must be larger than min_{name}.")
    _check_shapes(x, y, "vector must have at least 1 element")
    a = x.astype(np.int32) - np.int32(zero_step(min_x, max_x, x.dtype))
    b = y.astype(np.int32) - np.int32(zero_step(min_y, max_y, y.dtype))
    return [a * b, *product_range((min_x, max_x, x.dtype), (min_y, max_y, y.dtype), Toutput.np)]


def _check_shapes(x: Any, y: Any, empty_text: str) -> None:
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        raise InvalidArgumentError(f"Incompatible shapes: {format_dims(x.shape)} vs. {format_dims(y.shape)}") from None
    if x.shape != y.shape and (not x.size or not y.size):
        raise InvalidArgumentError(empty_text)


def bias_add(x: Any, bias: Any, min_x: Any, max_x: Any, min_b: Any, max_b: Any, *, out_type: DType) -> list[Any]:
    if np.ndim(x) < 2:
        raise InvalidArgumentError(f"Input tensor must be at least 2D: {format_dims(np.shape(x))}")
    if np.ndim(bias) != 1:
        raise InvalidArgumentError(f"Biases must be 1D: {format_dims(np.shape(bias))}")
    if x.shape[-1] != bias.shape[0]:
        raise InvalidArgumentError(
            f"Must provide as many biases as the last dimension of the input tensor: {format_dims(bias.shape)} vs. {format_dims(x.shape)}"
        )
    min_x, max_x = scalar("min_input", min_x), scalar("max_input", max_x)
    min_b, max_b = scalar("min_bias", min_b), scalar("max_bias", max_b)
    reach = np.maximum(max_x, np.maximum(-min_x, np.maximum(-min_b, max_b))) * _F(1 << 17)
    a = requantised(x, min_x, max_x, -reach, reach, out_type.np)
    b = requantised(bias, min_b, max_b, -reach, reach, out_type.np)
    return [a + (b + to_steps(_F(0), -reach, reach, out_type.np)), -reach, reach]


def relu(x: Any, low: Any, high: Any) -> list[Any]:
    low, high = scalar("min_input", low), scalar("max_input", high)
    return [np.maximum(x, to_steps(_F(0), low, high, x.dtype)), low, high]


def relu_x(x: Any, top: Any, low: Any, high: Any) -> list[Any]:
    low, high = scalar("min_input", low), scalar("max_input", high)
    least, most = to_steps(_F(0), low, high, x.dtype), to_steps(scalar("max_value", top), low, high, x.dtype)
    return [np.minimum(np.maximum(x, least), most), low, high]


def relu6(x: Any, low: Any, high: Any) -> list[Any]:
    return relu_x(x, _F(6), low, high)


def concat(axis: Any, values: list[Any], lows: list[Any], highs: list[Any]) -> list[Any]:
    if np.ndim(axis):
        raise InvalidArgumentError(f"Concat dim tensor should be a scalar integer, but got shape {format_dims(np.shape(axis))}")
    for name, given in (("input_mins", lows), ("input_maxes", highs)):
        for i, value in enumerate(given):
            if np.size(value) != 1:
                raise InvalidArgumentError(
                    f"{name} each tensor's num elements must be 1, given num elements {np.size(value)} in index {i}"
                )
    shape, at = values[0].shape, int(axis)
    if not 0 <= at < len(shape):
        raise InvalidArgumentError(f"ConcatOp : Expected concatenating dimensions in the range [0, {len(shape)}), but got {at}")
    for i, value in enumerate(values[1:], 1):
        text = f"shape[0] = {format_dims(shape)} vs. shape[{i}] = {format_dims(value.shape)}"
        if value.ndim != len(shape):
            raise InvalidArgumentError(f"ConcatOp : Ranks of all input tensors should match: {text}")
        if value.shape[:at] != shape[:at] or value.shape[at + 1 :] != shape[at + 1 :]:
            raise InvalidArgumentError(f"ConcatOp : Dimensions of inputs should match: {text}")
    lows, highs = [_F(np.ravel(v)[0]) for v in lows], [_F(np.ravel(v)[0]) for v in highs]
    low, high = np.minimum(_F(0), min(lows)), max(highs)
    dtype = values[0].dtype
    if dtype == np.int32:
        high = np.maximum(high, -low)
        low = -high
    parts = [v if (a, b) == (low, high) else requantised(v, a, b, low, high, dtype) for v, a, b in zip(values, lows, highs, strict=True)]
    return [np.concatenate(parts, at), low, high]
