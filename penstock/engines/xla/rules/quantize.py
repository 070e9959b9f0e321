"""Simulated quantisation: values rounded to what few bits can hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engines.xla.checks import is_known, need
from penstock.engines.xla.rule import jnp, rule, static, unreported
from penstock.ops.kernels.numeric import narrow, widen

_F = np.float32

# -- FakeQuant --------------------------------------------------------------------------------------------------------


def _nudged(low: Any, high: Any, num_bits: int, narrow_range: bool) -> tuple[Any, Any, Any]:
    """The range moved so that zero is one of the steps, and the step: (low, high, step), all float32."""
    need(2 <= num_bits <= 16, "a number of bits out of range")
    first, last = _F(1 if narrow_range else 0), _F((1 << num_bits) - 1)
    step = (high - low) / (last - first)
    zero = first - low / step
    # Rounded half away from zero, as C's round does.
    zero = jnp.where(zero < first, first, jnp.where(zero > last, last, jnp.floor(zero + _F(0.5))))
    return (first - zero) * step, (last - zero) * step, step


def _fake_quantised(x: Any, low: Any, high: Any, num_bits: int, narrow_range: bool, divides: bool = False) -> Any:
    start, stop, step = _nudged(low, high, num_bits, narrow_range)
    inverse = _F((1 << num_bits) - 1 - narrow_range) / (high - low)
    zero = jnp.floor(-start * inverse + _F(0.5))
    away = jnp.maximum(jnp.minimum(x, stop), start) - start
    result = jnp.floor((away / step if divides else away * inverse) - zero + _F(0.5)) * step
    return jnp.where(_is_empty(low, high), _F(0), result)


def _is_empty(low: Any, high: Any) -> Any:
    """Whether there is nothing but 0 between them; what is too small to be normal is 0."""
    tiny = np.finfo(np.float32).tiny
    return (jnp.abs(low) < tiny) & (jnp.abs(high) < tiny)


def _split(dy: Any, x: Any, low: Any, high: Any, num_bits: int, narrow_range: bool) -> tuple[Any, Any, Any]:
    """dy inside the range, below it and above it; everything is inside of an empty range."""
    need(dy.shape == x.shape, "a gradient of another shape")
    start, stop, _ = _nudged(low, high, num_bits, narrow_range)
    nothing = _is_empty(low, high)
    below, above = (x < start) & ~nothing, (x > stop) & ~nothing
    elsewhere = jnp.where(jnp.isfinite(dy), _F(0), _F(np.nan))  # a product with the condition, as XLA would not compute it
    return jnp.where(nothing | ((x >= start) & (x <= stop)), dy, elsewhere), jnp.where(below, dy, elsewhere), jnp.where(above, dy, elsewhere)


@rule("FakeQuantWithMinMaxArgs")
def fake_quant_args(x: Any, *, min: float, max: float, num_bits: int, narrow_range: bool) -> Any:
    need(min < max, "an empty range")
    return _fake_quantised(x, _F(min), _F(max), num_bits, narrow_range)


@rule("FakeQuantWithMinMaxArgsGradient")
def fake_quant_args_gradient(dy: Any, x: Any, *, min: float, max: float, num_bits: int, narrow_range: bool) -> Any:
    need(min < max, "an empty range")
    return _split(dy, x, _F(min), _F(max), num_bits, narrow_range)[0]


@rule("FakeQuantWithMinMaxVars")
def fake_quant_vars(x: Any, low: Any, high: Any, *, num_bits: int, narrow_range: bool) -> Any:
    need(low.ndim == high.ndim == 0, "a range of other than two numbers")
    return _fake_quantised(x, low, high, num_bits, narrow_range, divides=True)


@rule("FakeQuantWithMinMaxVarsGradient")
def fake_quant_vars_gradient(dy: Any, x: Any, low: Any, high: Any, *, num_bits: int, narrow_range: bool) -> list[Any]:
    need(low.ndim == high.ndim == 0, "a range of other than two numbers")
    inside, below, above = _split(dy, x, low, high, num_bits, narrow_range)
    return [inside, jnp.sum(below), jnp.sum(above)]


@rule("FakeQuantWithMinMaxVarsPerChannel")
def fake_quant_channels(x: Any, low: Any, high: Any, *, num_bits: int, narrow_range: bool) -> Any:
    need(low.shape == high.shape == x.shape[-1:] != (), "ranges that do not fit the channels")
    return _fake_quantised(x, low, high, num_bits, narrow_range)


@rule("FakeQuantWithMinMaxVarsPerChannelGradient")
def fake_quant_channels_gradient(dy: Any, x: Any, low: Any, high: Any, *, num_bits: int, narrow_range: bool) -> list[Any]:
    need(low.shape == high.shape == x.shape[-1:] != (), "ranges that do not fit the channels")
    inside, below, above = _split(dy, x, low, high, num_bits, narrow_range)
    axes = tuple(range(x.ndim - 1))
    return [inside, jnp.sum(below, axes), jnp.sum(above, axes)]


# -- QuantizeAndDequantize --------------------------------------------------------------------------------------------


def _quantised(
    x: Any, low: Any, high: Any, *, given: bool, signed: bool, bits: int, narrow_range: bool, mode: bytes, axis: int
) -> Any:
    """Rounds to whole steps; the side of the range that needs the larger step decides."""
    need(1 <= bits <= (62 if signed else 63) and -1 <= axis < x.ndim, "a number of bits or an axis out of range")
    need(given or 0 not in x.shape, "the range of nothing")
    work = widen(x)
    kind = work.dtype.type
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    if given:
        unreported(low, high)
        need(axis >= 0 or not (is_known(low) and is_known(high)) or bool(np.all(low <= high)), "an empty range")
        wanted = () if axis == -1 else (x.shape[axis],)
        need(np.shape(low) == np.shape(high) == wanted, "ranges that do not fit the axis")
        low, high = (jnp.reshape(jnp.asarray(v).astype(work.dtype), () if axis == -1 else shape) for v in (low, high))
    else:
        rest = tuple(i for i in range(x.ndim) if i != axis)
        numbers = work == work  # what is none does not count
        low = jnp.min(jnp.where(numbers, work, kind(np.inf)), rest, keepdims=True)
        high = jnp.max(jnp.where(numbers, work, kind(-np.inf)), rest, keepdims=True)
    limits = np.finfo(kind)
    low, high = (jnp.where(jnp.abs(end) < limits.tiny, kind(0), end) for end in (low, high))
    largest = kind((1 << (bits - 1)) - 1 if signed else (1 << bits) - 1)
    smallest = kind((-(1 << (bits - 1)) + (1 if narrow_range else 0)) if signed else 0)
    top = limits.max
    from_low = jnp.where(smallest * low > 0, smallest / low, top)
    from_high = jnp.where(largest * high > 0, largest / high, top)
    by_low = from_low < from_high
    scale = jnp.where(by_low, from_low, from_high)
    step = jnp.where(by_low, low / (smallest or kind(1)), high / largest)
    if given:
        start, stop = jnp.where(by_low, low, smallest * step), jnp.where(by_low, largest * step, high)
        work = jnp.maximum(jnp.minimum(work, stop), start)  # the lower end is the one that counts where it is above the other
    scaled = work * scale
    return narrow((jnp.rint(scaled) if mode == b"HALF_TO_EVEN" else jnp.floor(scaled + kind(0.5))) * step, x.dtype)


@rule("QuantizeAndDequantize")
def quantize_v1(x: Any, *, signed_input: bool, num_bits: int, range_given: bool, input_min: float, input_max: float) -> Any:
    low, high = (np.asarray(widen(x).dtype.type(v)) for v in (input_min, input_max))
    return _quantised(
        x, low, high, given=range_given, signed=signed_input, bits=num_bits, narrow_range=False, mode=b"HALF_TO_EVEN", axis=-1
    )


@rule("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4")
def quantize_v2(
    x: Any, low: Any, high: Any, *, signed_input: bool, num_bits: int, range_given: bool, round_mode: bytes, narrow_range: bool, axis: int
) -> Any:
    return _quantised(
        x, low, high, given=range_given, signed=signed_input, bits=num_bits, narrow_range=narrow_range, mode=round_mode, axis=axis
    )


@rule("QuantizeAndDequantizeV3")
def quantize_v3(
    x: Any, low: Any, high: Any, num_bits: Any, *, signed_input: bool, range_given: bool, narrow_range: bool, axis: int
) -> Any:
    return _quantised(
        x, low, high, given=range_given, signed=signed_input, bits=int(static(num_bits)), narrow_range=narrow_range, mode=b"HALF_TO_EVEN", axis=axis
    )  # fmt: skip


@rule("QuantizeAndDequantizeV4Grad")
def quantize_v4_grad(dy: Any, x: Any, low: Any, high: Any, *, axis: int) -> list[Any]:
    need(dy.shape == x.shape and -1 <= axis < x.ndim, "a gradient of another shape")
    shape = () if axis == -1 else [-1 if i == axis else 1 for i in range(x.ndim)]
    inside = (x >= jnp.reshape(low, shape)) & (x <= jnp.reshape(high, shape))
    # The range itself gets no gradient.
    return [jnp.where(inside, dy, np.zeros((), dy.dtype)), jnp.zeros(low.shape, dy.dtype), jnp.zeros(high.shape, dy.dtype)]
