"""Simulated quantisation: values rounded to what few bits can hold, with gradients for training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, same_as, with_rank
from penstock.ops.native.numbered import ChanneledLoop, NumberedLoop
from penstock.ops.native.vectors import Vec
from penstock.ops.samples import arr, empty, normal
from penstock.shapes import format_dims, merge_dim

# -- FakeQuant --------------------------------------------------------------------------------------------------------

_F = np.float32


def _check_bits(num_bits: int) -> None:
    if not 2 <= num_bits <= 16:
        raise InvalidArgumentError("num_bits must be between 2 and 16, inclusive")


def nudged(low: Any, high: Any, num_bits: int, narrow_range: bool) -> tuple[Any, Any, Any]:
    """The range moved so that zero is one of the steps, and the step: (low, high, step), all float32."""
    first, last = _F(1 if narrow_range else 0), _F((1 << num_bits) - 1)
    step = (high - low) / (last - first)
    zero = first - low / step
    # Rounded half away from zero, as C's round does.
    zero = np.where(zero < first, first, np.where(zero > last, last, np.floor(zero + _F(0.5)))).astype(_F)
    return (first - zero) * step, (last - zero) * step, step


def fake_quantised(x: Any, low: Any, high: Any, num_bits: int, narrow_range: bool, divides: bool = False) -> np.ndarray:
    """`low` and `high` are float32 scalars, or vectors over the last dimension. TensorFlow multiplies by the number of steps in the range, or divides by the
    step (`divides`), which is not the same for numbers half way between two steps."""
    nothing = _is_empty(low, high)
    if nothing.all():
        return np.zeros(np.shape(x), _F)
    start, stop, step = nudged(low, high, num_bits, narrow_range)
    inverse = _F((1 << num_bits) - 1 - narrow_range) / (high - low)
    zero = np.floor(-start * inverse + _F(0.5))
    by = step if divides else inverse
    if np.ndim(start):
        result = None if nothing.any() or divides else _FAKE_CHANNELS.run(x, (start, stop, by, zero, step))
    else:
        result = (_FAKE_DIVIDED if divides else _FAKE).run(x, (start, stop, by, zero, step))
    if result is not None:
        return result
    away = np.maximum(np.minimum(x, stop), start) - start
    result = np.floor((away / by if divides else away * by) - zero + _F(0.5)) * step
    return np.where(nothing, _F(0), result).astype(_F)


def _is_empty(low: Any, high: Any) -> Any:
    """Whether there is nothing but 0 between them; what is too small to be normal is 0 to TensorFlow."""
    return np.asarray((np.abs(low) < _TINY) & (np.abs(high) < _TINY))


_TINY = np.finfo(np.float32).tiny


def _fake(x: Vec, start: Vec, stop: Vec, inverse: Vec, zero: Vec, step: Vec) -> Vec:
    clamped = start.op("max", stop.op("min", x))  # in this order what is NaN stays so
    return np.floor((clamped - start) * inverse - zero + 0.5) * step


def _fake_divided(x: Vec, start: Vec, stop: Vec, by: Vec, zero: Vec, step: Vec) -> Vec:
    clamped = start.op("max", stop.op("min", x))
    return np.floor((clamped - start) / by - zero + 0.5) * step


_FAKE, _FAKE_DIVIDED, _FAKE_CHANNELS = NumberedLoop(_fake, 5), NumberedLoop(_fake_divided, 5), ChanneledLoop(_fake, 5)


def _gradient(dy: Any, x: Any, low: Any, high: Any, num_bits: int, narrow_range: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dy inside the range, below it and above it; everything is inside of an empty range."""
    start, stop, _ = nudged(low, high, num_bits, narrow_range)
    nothing = _is_empty(low, high)
    below, above = (x < start) & ~nothing, (x > stop) & ~nothing
    inside = nothing | ((x >= start) & (x <= stop))  # NaN is nowhere
    return dy * inside, dy * below, dy * above  # what is not finite is NaN elsewhere


def _check_args(low: float, high: float, num_bits: int) -> tuple[Any, Any]:
    if not low < high:
        raise InvalidArgumentError(f"min has to be smaller than max, was: {low:g} >= {high:g}")
    _check_bits(num_bits)
    return _F(low), _F(high)


def args_kernel(x: Any, *, min: float, max: float, num_bits: int, narrow_range: bool) -> np.ndarray:
    return fake_quantised(x, *_check_args(min, max, num_bits), num_bits, narrow_range)


def args_gradient_kernel(dy: Any, x: Any, *, min: float, max: float, num_bits: int, narrow_range: bool) -> np.ndarray:
    if np.shape(dy) != np.shape(x):
        raise InvalidArgumentError("gradient and input must be the same size")
    return _gradient(dy, x, *_check_args(min, max, num_bits), num_bits, narrow_range)[0]


def args_grad(g: Any, op: Any, dy: Any) -> Any:
    attrs = {name: op.attr(name) for name in ("min", "max", "num_bits", "narrow_range")}
    return g.FakeQuantWithMinMaxArgsGradient(dy, op.inputs[0], **attrs)


_ODD = dict(gradients=arr([np.inf, 1.0, np.nan, 2.0, -np.inf, np.nan], np.float32), inputs=arr([7.0, np.inf, -np.inf, 1.0, np.nan, 2.0], np.float32))
_BITS = "num_bits: int = 8; narrow_range: bool = false]"

op("FakeQuantWithMinMaxArgs(inputs: float) -> (outputs: float) [min: float = -6; max: float = 6; " + _BITS,
   shape=same_as("inputs"), numpy=args_kernel, grad=args_grad,
   samples=[
       dict(inputs=normal(3, 4, scale=5.0)),
       dict(inputs=normal(8, scale=4.0), min=-1.0, max=6.0, num_bits=4, narrow_range=True),
       dict(inputs=empty(0)),
   ],
   errors=[
       (dict(inputs=np.zeros(1, np.float32), min=6.0, max=6.0), InvalidArgumentError, "min has to be smaller than max, was: 6 >= 6"),
       (dict(inputs=np.zeros(1, np.float32), num_bits=1), InvalidArgumentError, "num_bits must be between 2 and 16, inclusive"),
   ])  # fmt: skip
op("FakeQuantWithMinMaxArgsGradient(gradients: float, inputs: float) -> (backprops: float) [min: float = -6; max: float = 6; " + _BITS,
   shape=same_as("inputs"), numpy=args_gradient_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(gradients=normal(3, 4), inputs=normal(3, 4, scale=8.0)), dict(**_ODD)])  # fmt: skip


def _check_scalar(name: str, value: Any) -> Any:
    if value.ndim:
        raise InvalidArgumentError(f"`{name}` must be rank 0 but is rank {value.ndim}")
    return value


def vars_kernel(x: Any, low: Any, high: Any, *, num_bits: int, narrow_range: bool) -> np.ndarray:
    _check_bits(num_bits)
    return fake_quantised(x, _check_scalar("min", low), _check_scalar("max", high), num_bits, narrow_range, divides=True)


def vars_gradient_kernel(dy: Any, x: Any, low: Any, high: Any, *, num_bits: int, narrow_range: bool) -> list:
    _check_bits(num_bits)
    inside, below, above = _gradient(dy, x, _check_scalar("min", low), _check_scalar("max", high), num_bits, narrow_range)
    return [inside, _F(below.sum(dtype=_F)), _F(above.sum(dtype=_F))]


def _check_channels(x: Any, low: Any, high: Any) -> None:
    depth = x.shape[-1]
    for name, value in (("min", low), ("max", high)):
        if value.shape != (depth,):
            raise InvalidArgumentError(f"{name} has incorrect size, expected {depth} was {value.size}")


def channel_kernel(x: Any, low: Any, high: Any, *, num_bits: int, narrow_range: bool) -> np.ndarray:
    _check_bits(num_bits)
    _check_channels(x, low, high)
    return fake_quantised(x, low, high, num_bits, narrow_range)


def channel_gradient_kernel(dy: Any, x: Any, low: Any, high: Any, *, num_bits: int, narrow_range: bool) -> list:
    _check_bits(num_bits)
    _check_channels(x, low, high)
    inside, below, above = _gradient(dy, x, low, high, num_bits, narrow_range)
    axes = tuple(range(x.ndim - 1))
    return [inside, below.sum(axes, dtype=_F), above.sum(axes, dtype=_F)]


def vars_shape(c: Any) -> Dims:
    with_rank(c, 1, 0)
    with_rank(c, 2, 0)
    return c.dims(0)


def channel_shape(c: Any) -> Dims:
    low, high = with_rank(c, 1, 1), with_rank(c, 2, 1)
    dims = c.dims(0)
    if not dims:
        return dims
    channels = merge_dim(merge_dim(dims[-1], low[0]), high[0])
    return (*dims[:-1], channels)


def _vars_grad(kind: str) -> Any:
    def grad(g: Any, op: Any, dy: Any) -> list:
        function = getattr(g, f"FakeQuantWithMinMaxVars{kind}Gradient")
        return list(function(dy, *op.inputs, num_bits=op.attr("num_bits"), narrow_range=op.attr("narrow_range")))

    return grad


_CHANNELS = dict(min=arr([-1.0, 0.0, -3.0]), max=arr([6.0, 3.0, 2.0]))

op("FakeQuantWithMinMaxVars(inputs: float, min: float, max: float) -> (outputs: float) [" + _BITS,
   shape=vars_shape, numpy=vars_kernel, grad=_vars_grad(""),
   samples=[
       dict(inputs=normal(3, 4, scale=5.0), min=arr(-1.0), max=arr(6.0)),
       dict(inputs=normal(8, scale=4.0), min=arr(2.0), max=arr(6.0), num_bits=5),
       dict(inputs=normal(3), min=arr(0.0), max=arr(0.0)),
   ])  # fmt: skip
op("FakeQuantWithMinMaxVarsGradient(gradients: float, inputs: float, min: float, max: float) ->"
   " (backprops_wrt_input: float, backprop_wrt_min: float, backprop_wrt_max: float) [" + _BITS,
   shape=lambda c: [c.dims(1), (), ()], numpy=vars_gradient_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(gradients=normal(3, 4), inputs=normal(3, 4, scale=8.0), min=arr(-1.0), max=arr(6.0)), dict(**_ODD, min=arr(-1.0), max=arr(6.0))])  # fmt: skip
op("FakeQuantWithMinMaxVarsPerChannel(inputs: float, min: float, max: float) -> (outputs: float) [" + _BITS,
   shape=channel_shape, numpy=channel_kernel, grad=_vars_grad("PerChannel"),
   samples=[
       dict(inputs=normal(4, 3, scale=5.0), **_CHANNELS),
       dict(inputs=normal(3, scale=5.0), num_bits=4, **_CHANNELS),
       dict(inputs=normal(2, 2, 3, scale=5.0), narrow_range=True, **_CHANNELS),
   ],
   errors=[
       (dict(inputs=np.zeros((2, 2), np.float32), min=arr([0.0]), max=arr([1.0])), InvalidArgumentError, "min has incorrect size, expected 2 was 1"),
   ])  # fmt: skip
op("FakeQuantWithMinMaxVarsPerChannelGradient(gradients: float, inputs: float, min: float, max: float) ->"
   " (backprops_wrt_input: float, backprop_wrt_min: float, backprop_wrt_max: float) [" + _BITS,
   shape=lambda c: [c.dims(1), c.dims(2), c.dims(3)], numpy=channel_gradient_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(gradients=normal(4, 3), inputs=normal(4, 3, scale=8.0), **_CHANNELS)])  # fmt: skip

# -- QuantizeAndDequantize --------------------------------------------------------------------------------------------


def _round(x: np.ndarray, mode: bytes) -> np.ndarray:
    return np.rint(x) if mode == b"HALF_TO_EVEN" else np.floor(x + x.dtype.type(0.5))


def _one_range(x: np.ndarray, low: Any, high: Any, *, given: bool, signed: bool, bits: int, narrow: bool, mode: bytes) -> np.ndarray:
    """Rounds to whole steps; the side of the range that needs the larger step decides."""
    kind = x.dtype.type
    if not given:
        low, high = (x.min(), x.max()) if x.size else (kind(0), kind(0))
        if np.isnan(low):  # numbers that are none do not count
            low, high = np.fmin.reduce(x, None), np.fmax.reduce(x, None)
    limits = np.finfo(kind)
    low, high = (kind(0) if abs(end) < limits.tiny else end for end in (low, high))
    largest = kind((1 << (bits - 1)) - 1 if signed else (1 << bits) - 1)
    smallest = kind((-(1 << (bits - 1)) + (1 if narrow else 0)) if signed else 0)
    top = limits.max
    from_low = smallest / low if smallest * low > 0 else top
    from_high = largest / high if largest * high > 0 else top
    if from_low < from_high:
        scale, step = from_low, low / smallest
        high = largest * step
    else:
        scale, step = from_high, high / largest
        low = smallest * step
    found = _TO_STEPS[mode].run(x, (low, high, scale, step) if given else (-np.inf, np.inf, scale, step))
    if found is not None:
        return found
    if given:
        x = np.maximum(np.minimum(x, high), low)  # the lower end is the one that counts where it is above the other
    return (_round(x * kind(scale), mode) * kind(step)).astype(kind)


def _to_steps(round: Callable[[Vec], Vec]) -> NumberedLoop:
    # In this order of minimum and maximum what is NaN stays so.
    return NumberedLoop(lambda x, low, high, scale, step: round(low.op("max", high.op("min", x)) * scale) * step, 4)


_TO_STEPS = {b"HALF_TO_EVEN": _to_steps(np.rint), b"HALF_UP": _to_steps(lambda x: np.floor(x + 0.5))}


def quantize_and_dequantize(x: Any, low: Any, high: Any, *, given: bool, signed: bool, bits: int, narrow: bool, mode: bytes, axis: int) -> np.ndarray:
    x = np.asarray(x)
    if not 1 <= bits <= (62 if signed else 63):
        raise InvalidArgumentError(f"num_bits is out of range: {bits} with `signed_input_` {int(signed)}")
    options: dict[str, Any] = dict(given=given, signed=signed, bits=bits, narrow=narrow, mode=mode)
    # Half precision computes in single.
    wide = np.float32 if x.dtype.itemsize < 4 else x.dtype.type
    work, low, high = x.astype(wide, copy=False), np.asarray(low).astype(wide), np.asarray(high).astype(wide)
    if axis == -1:
        if given and (low.ndim or high.ndim):
            bad = low if low.ndim else high
            raise InvalidArgumentError(f"If axis is -1, input_min and input_max must be scalars, got shape {format_dims(bad.shape)}")
        if given and low > high:  # TensorFlow does not look at the ranges of slices
            raise InvalidArgumentError(f"Invalid range: input_min {low:g} > input_max {high:g}")
        return _one_range(work, low[()], high[()], **options).astype(x.dtype, copy=False)
    if not -1 <= axis < x.ndim:
        raise InvalidArgumentError(f"Axis requested is larger than input dimensions. Axis: {axis} Input Dimensions: {x.ndim}")
    depth = x.shape[axis]
    if given and (low.shape != (depth,) or high.shape != (depth,)):
        raise InvalidArgumentError(f"input_min and input_max must be vectors of length {depth}")
    slices = np.moveaxis(work, axis, 0)
    parts = [_one_range(s, low[i] if given else None, high[i] if given else None, **options) for i, s in enumerate(slices)]
    return np.moveaxis(np.stack(parts), 0, axis).astype(x.dtype, copy=False)


def v1_kernel(x: Any, *, signed_input: bool, num_bits: int, range_given: bool, input_min: float, input_max: float) -> np.ndarray:
    return quantize_and_dequantize(
        x, input_min, input_max, given=range_given, signed=signed_input, bits=num_bits, narrow=False, mode=b"HALF_TO_EVEN", axis=-1
    )


def v2_kernel(x: Any, low: Any, high: Any, *, signed_input: bool, num_bits: int, range_given: bool, round_mode: bytes, narrow_range: bool,
              axis: int) -> np.ndarray:  # fmt: skip
    return quantize_and_dequantize(
        x, low, high, given=range_given, signed=signed_input, bits=num_bits, narrow=narrow_range, mode=round_mode, axis=axis
    )


def v3_kernel(x: Any, low: Any, high: Any, num_bits: Any, *, signed_input: bool, range_given: bool, narrow_range: bool, axis: int) -> np.ndarray:
    return quantize_and_dequantize(
        x, low, high, given=range_given, signed=signed_input, bits=int(num_bits), narrow=narrow_range, mode=b"HALF_TO_EVEN", axis=axis
    )


def v4_grad_kernel(dy: Any, x: Any, low: Any, high: Any, *, axis: int) -> list:
    if axis != -1:
        shape = [1] * x.ndim
        shape[axis] = -1
        inside = (x >= np.reshape(low, shape)) & (x <= np.reshape(high, shape))
    else:
        inside = (x >= low) & (x <= high)
    # The range itself gets no gradient.
    return [np.where(inside, dy, np.zeros((), dy.dtype)), np.zeros(np.shape(low), dy.dtype), np.zeros(np.shape(high), dy.dtype)]


def range_shape(c: Any) -> Dims:
    rank = 0 if c.attrs["axis"] == -1 else 1
    with_rank(c, 1, rank)
    with_rank(c, 2, rank)
    return c.dims(0)


_QUANTIZE = "round_mode: string in {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN'; narrow_range: bool = false; axis: int = -1]"
_QUANTIZE_SAMPLES = [
    dict(input=normal(3, 4, scale=5.0), input_min=arr(-1.0), input_max=arr(6.0), range_given=True),
    dict(input=normal(3, 4, scale=5.0), input_min=arr(0.0), input_max=arr(0.0)),
    dict(input=normal(8, scale=5.0), input_min=arr(0.0), input_max=arr(0.0), num_bits=4, narrow_range=True, round_mode="HALF_UP"),
    dict(input=normal(8, scale=5.0), input_min=arr(0.0), input_max=arr(3.0), signed_input=False, range_given=True),
    dict(input=normal(3, 2), input_min=arr([0.0, 0.0, 0.0]), input_max=arr([0.0, 0.0, 0.0]), axis=0),
    dict(input=normal(8, scale=4.0), input_min=arr(-3.0), input_max=arr(-1.0), signed_input=False, range_given=True),
    dict(input=normal(8, scale=4.0), input_min=arr(1.0), input_max=arr(3.0), range_given=True, num_bits=4),
]

op("QuantizeAndDequantize(input: T) -> (output: T) [signed_input: bool = true; num_bits: int = 8; range_given: bool = false;"
   " input_min: float = 0; input_max: float = 0; T: type in FLOATS] deprecated@22",
   shape=same_as("input"), numpy=v1_kernel, grad=lambda g, op, dy: dy)  # fmt: skip
op("QuantizeAndDequantizeV2(input: T, input_min: T, input_max: T) -> (output: T)"
   " [signed_input: bool = true; num_bits: int = 8; range_given: bool = false; T: type in FLOATS; " + _QUANTIZE,
   shape=range_shape, numpy=v2_kernel, grad=lambda g, op, dy: [dy, None, None], samples=_QUANTIZE_SAMPLES,
   errors=[
       (dict(input=np.zeros(1), input_min=6.0, input_max=0.0, range_given=True), InvalidArgumentError, "Invalid range: input_min 6 > input_max 0"),
   ])  # fmt: skip
op("QuantizeAndDequantizeV3(input: T, input_min: T, input_max: T, num_bits: int32) -> (output: T)"
   " [signed_input: bool = true; range_given: bool = true; T: type in FLOATS; narrow_range: bool = false; axis: int = -1]",
   shape=range_shape, numpy=v3_kernel, grad=lambda g, op, dy: [dy, None, None, None],
   samples=[dict(input=normal(3, 4, scale=5.0), input_min=arr(-1.0), input_max=arr(6.0), num_bits=arr(6))])  # fmt: skip


def v4_grad(g: Any, op: Any, dy: Any) -> list:
    return list(g.QuantizeAndDequantizeV4Grad(dy, *op.inputs, axis=op.attr("axis")))


op("QuantizeAndDequantizeV4(input: T, input_min: T, input_max: T) -> (output: T)"
   " [signed_input: bool = true; num_bits: int = 8; range_given: bool = false; T: type in FLOATS; " + _QUANTIZE,
   shape=range_shape, numpy=v2_kernel, grad=v4_grad, samples=_QUANTIZE_SAMPLES)  # fmt: skip
op("QuantizeAndDequantizeV4Grad(gradients: T, input: T, input_min: T, input_max: T) -> (input_backprop: T, input_min_backprop: T,"
   " input_max_backprop: T) [T: type in FLOATS; axis: int = -1]",
   shape=lambda c: [c.dims(1), c.dims(2), c.dims(3)], numpy=v4_grad_kernel,
   samples=[dict(gradients=normal(3, 4), input=normal(3, 4, scale=5.0), input_min=arr(-1.0), input_max=arr(6.0))])  # fmt: skip
