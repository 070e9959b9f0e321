"""tf.quantization: simulated quantisation for training, and ops on whole numbers that stand for a range."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api.export import export
from penstock.graph.convert import convert_to_tensor
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


@export("quantize_v2")
def quantize_v2(
    input: Any, min_range: Any, max_range: Any, T: Any, mode: str = "MIN_COMBINED", name: str | None = None, round_mode: str = "HALF_AWAY_FROM_ZERO",
    narrow_range: bool = False, axis: int | None = None, ensure_minimum_range: float = 0.01,
) -> Any:  # fmt: skip
    """`input` as whole numbers of type `T`: (output, output_min, output_max). `tf.quantize` has the same with another order of arguments."""
    input = convert_to_tensor(input, dtypes.float32)
    return raw.QuantizeV2(
        input, min_range, max_range, T=T, mode=mode, name=name, round_mode=round_mode, narrow_range=narrow_range,
        axis=_axis(input, axis), ensure_minimum_range=ensure_minimum_range,
    )  # fmt: skip


@export("quantize", "quantization.quantize")
def quantize(
    input: Any, min_range: Any, max_range: Any, T: Any, mode: str = "MIN_COMBINED", round_mode: str = "HALF_AWAY_FROM_ZERO", name: str | None = None,
    narrow_range: bool = False, axis: int | None = None, ensure_minimum_range: float = 0.01,
) -> Any:  # fmt: skip
    """`input` as whole numbers of type `T` (quint8, qint8, ...): (output, output_min, output_max).

    `min_range` and `max_range` are what the lowest and highest number of `T` stand for; the range may grow so that it
    contains zero. With `axis`, they are vectors with one range for each slice along that dimension.
    """
    return quantize_v2(input, min_range, max_range, T, mode, name, round_mode, narrow_range, axis, ensure_minimum_range)


@export("dequantize", "quantization.dequantize")
def dequantize(
    input: Any, min_range: Any, max_range: Any, mode: str = "MIN_COMBINED", name: str | None = None, axis: int | None = None,
    narrow_range: bool = False, dtype: Any = dtypes.float32,
) -> Tensor:  # fmt: skip
    """The real numbers that quantised `input` stands for."""
    return raw.Dequantize(
        input, min_range, max_range, mode=mode, name=name, narrow_range=narrow_range, axis=_axis(input, axis), dtype=dtype
    )


@export("quantized_concat", "quantization.quantized_concat")
def quantized_concat(concat_dim: Any, values: Any, input_mins: Any, input_maxes: Any, name: str | None = None) -> Any:
    """Quantised tensors joined along `concat_dim`, in a range that holds them all: (output, output_min, output_max)."""
    return raw.QuantizedConcat(concat_dim, values, input_mins, input_maxes, name=name)


@export("nn.quantized_conv2d")
def quantized_conv2d(
    input: Any, filter: Any, min_input: Any, max_input: Any, min_filter: Any, max_filter: Any, strides: Any, padding: str,
    out_type: Any = dtypes.qint32, dilations: Any = (1, 1, 1, 1), name: str | None = None,
) -> Any:  # fmt: skip
    """Convolution of quantised images with int32 sums: (output, min_output, max_output)."""
    return raw.QuantizedConv2D(
        input, filter, min_input, max_input, min_filter, max_filter, strides=strides, padding=padding, out_type=out_type,
        dilations=list(dilations), name=name,
    )  # fmt: skip


@export("nn.quantized_max_pool")
def quantized_max_pool(input: Any, min_input: Any, max_input: Any, ksize: Any, strides: Any, padding: str, name: str | None = None) -> Any:
    """The largest number of each window of quantised images: (output, min_output, max_output)."""
    return raw.QuantizedMaxPool(input, min_input, max_input, ksize=ksize, strides=strides, padding=padding, name=name)


@export("nn.quantized_avg_pool")
def quantized_avg_pool(input: Any, min_input: Any, max_input: Any, ksize: Any, strides: Any, padding: str, name: str | None = None) -> Any:
    """The mean of each window of quantised images, cut to a whole number: (output, min_output, max_output)."""
    return raw.QuantizedAvgPool(input, min_input, max_input, ksize=ksize, strides=strides, padding=padding, name=name)


@export("nn.quantized_relu_x")
def quantized_relu_x(
    features: Any, max_value: Any, min_features: Any, max_features: Any, out_type: Any = dtypes.quint8, name: str | None = None
) -> Any:
    """Quantised `features` cut to what lies between 0 and `max_value`: (activations, min_activations, max_activations)."""
    return raw.QuantizedReluX(features, max_value, min_features, max_features, out_type=out_type, name=name)


def _axis(x: Any, axis: int | None) -> int:
    if axis is None:
        return -1
    if axis < 0:
        rank = x.shape.ndims if hasattr(x, "shape") else None
        if rank is None:
            raise ValueError("input should have known rank to use negative axis.")
        return axis % rank
    return axis
