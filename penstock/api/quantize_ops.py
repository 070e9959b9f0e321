"""tf.quantization: simulated quantisation for training."""

from __future__ import annotations

from typing import Any

from penstock.api.export import export
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


@export("fake_quant_with_min_max_args", "quantization.fake_quant_with_min_max_args")
def fake_quant_with_min_max_args(
    inputs: Any, min: float = -6, max: float = 6, num_bits: int = 8, narrow_range: bool = False, name: str | None = None
) -> Tensor:
    """`inputs` rounded to the steps that `num_bits` bits give between `min` and `max`."""
    return raw.FakeQuantWithMinMaxArgs(inputs, min=min, max=max, num_bits=num_bits, narrow_range=narrow_range, name=name)


@export("fake_quant_with_min_max_args_gradient", "quantization.fake_quant_with_min_max_args_gradient")
def fake_quant_with_min_max_args_gradient(
    gradients: Any, inputs: Any, min: float = -6, max: float = 6, num_bits: int = 8, narrow_range: bool = False, name: str | None = None
) -> Tensor:
    """The gradient where `inputs` lie between `min` and `max`, 0 elsewhere."""
    return raw.FakeQuantWithMinMaxArgsGradient(
        gradients, inputs, min=min, max=max, num_bits=num_bits, narrow_range=narrow_range, name=name
    )


@export("fake_quant_with_min_max_vars", "quantization.fake_quant_with_min_max_vars")
def fake_quant_with_min_max_vars(
    inputs: Any, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False, name: str | None = None
) -> Tensor:
    """`fake_quant_with_min_max_args` with a range that can be learnt."""
    return raw.FakeQuantWithMinMaxVars(inputs, min, max, num_bits=num_bits, narrow_range=narrow_range, name=name)


@export("fake_quant_with_min_max_vars_gradient", "quantization.fake_quant_with_min_max_vars_gradient")
def fake_quant_with_min_max_vars_gradient(
    gradients: Any, inputs: Any, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False, name: str | None = None
) -> Any:
    """Gradients of `inputs`, `min` and `max`."""
    return raw.FakeQuantWithMinMaxVarsGradient(
        gradients, inputs, min, max, num_bits=num_bits, narrow_range=narrow_range, name=name
    )


@export("fake_quant_with_min_max_vars_per_channel", "quantization.fake_quant_with_min_max_vars_per_channel")
def fake_quant_with_min_max_vars_per_channel(
    inputs: Any, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False, name: str | None = None
) -> Tensor:
    """`fake_quant_with_min_max_vars` with one range for each element of the last dimension."""
    return raw.FakeQuantWithMinMaxVarsPerChannel(inputs, min, max, num_bits=num_bits, narrow_range=narrow_range, name=name)


@export("fake_quant_with_min_max_vars_per_channel_gradient", "quantization.fake_quant_with_min_max_vars_per_channel_gradient")
def fake_quant_with_min_max_vars_per_channel_gradient(
    gradients: Any, inputs: Any, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False, name: str | None = None
) -> Any:
    """Gradients of `inputs`, and of `min` and `max` for each channel."""
    return raw.FakeQuantWithMinMaxVarsPerChannelGradient(
        gradients, inputs, min, max, num_bits=num_bits, narrow_range=narrow_range, name=name
    )


@export("quantization.quantize_and_dequantize")
def quantize_and_dequantize(
    input: Any, input_min: Any, input_max: Any, signed_input: bool = True, num_bits: int = 8, range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN", name: str | None = None, narrow_range: bool = False, axis: int | None = None,
) -> Tensor:  # fmt: skip
    """`input` rounded to what `num_bits` bits can hold, in the given range or in that of its own values."""
    axis = _axis(input, axis)
    return raw.QuantizeAndDequantizeV2(
        input, input_min, input_max, signed_input=signed_input, num_bits=num_bits, range_given=range_given, round_mode=round_mode,
        narrow_range=narrow_range, axis=axis, name=name,
    )  # fmt: skip


@export("quantization.quantize_and_dequantize_v2")
def quantize_and_dequantize_v2(
    input: Any, input_min: Any, input_max: Any, signed_input: bool = True, num_bits: int = 8, range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN", name: str | None = None, narrow_range: bool = False, axis: int | None = None,
) -> Tensor:  # fmt: skip
    """`quantize_and_dequantize` whose gradient is 0 outside of the range."""
    axis = _axis(input, axis)
    return raw.QuantizeAndDequantizeV4(
        input, input_min, input_max, signed_input=signed_input, num_bits=num_bits, range_given=range_given, round_mode=round_mode,
        narrow_range=narrow_range, axis=axis, name=name,
    )  # fmt: skip


def _axis(x: Any, axis: int | None) -> int:
    if axis is None:
        return -1
    if axis < 0:
        rank = x.shape.ndims if hasattr(x, "shape") else None
        if rank is None:
            raise ValueError("input should have known rank to use negative axis.")
        return axis % rank
    return axis
