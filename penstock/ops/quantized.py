"""Ops on quantised tensors: whole numbers together with the range of real numbers that they stand for.

Every op takes the ends of its inputs' ranges as float32 scalars and returns the ends of its output's range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError, UnimplementedError
from penstock.graph.ir import Dims
from penstock.ops.array import concat_shape, reshape_kernel, reshape_shape
from penstock.ops.conv import window_sizes
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, with_rank
from penstock.ops.kernels import quantized, quantized_products
from penstock.ops.kernels.window import layout
from penstock.ops.matmul import matmul_shape
from penstock.ops.pool import pool_shape
from penstock.ops.samples import arr, empty, ints, normal
from penstock.shapes import broadcast_dims, merge_dim

_Q = "type in {qint8, quint8, qint32, qint16, quint16}"
_RANGE = "min_output: float, max_output: float"

# -- shapes -----------------------------------------------------------------------------------------------------------


def ranged(shape: Any, *ranges: int) -> Any:
    """A rule for ops that also return a range: `shape` for the first output; the inputs `ranges` must be scalars."""

    def rule(c: Any) -> list[Dims]:
        for i in ranges:
            with_rank(c, i, 0)
        return [shape(c), (), ()]

    return rule


def like_first(c: Any) -> Dims:
    return c.dims(0)


def check_axis(c: Any) -> None:
    axis, dims = c.attrs["axis"], c.dims(0)
    if axis < -1:
        raise ValueError(f"axis should be at least -1, got {axis}")
    if dims is not None and axis >= len(dims):
        raise ValueError(f"Axis must be less than input dimension({len(dims)}), got {axis}")


def quantize_shape(c: Any) -> list[Dims]:
    axis, dims = c.attrs["axis"], c.dims(0)
    check_axis(c)
    if axis == -1:
        for i in (1, 2):
            with_rank(c, i, 0)
        return [dims, (), ()]
    length = None if dims is None else dims[axis]
    for i in (1, 2):
        length = merge_dim(length, with_rank(c, i, 1)[0])
    return [dims, (length,), (length,)]


def dequantize_shape(c: Any) -> Dims:
    check_axis(c)
    axis, dims = c.attrs["axis"], c.dims(0)
    length = None if dims is None or axis == -1 else dims[axis]
    for i in (1, 2):
        given = with_rank(c, i, 0 if axis == -1 else 1)
        length = merge_dim(length, given[0]) if given else length
    return dims


def conv_shape(c: Any) -> Dims:
    for name, text in (("strides", "Conv2D on data format NHWC requires the stride"), ("dilations", "Conv2D requires the dilation")):
        if len(c.attrs[name]) != 4:
            raise ValueError(f"{text} attribute to contain 4 values, but got: {len(c.attrs[name])}")
    dims, filters = with_rank(c, 0, 4), with_rank(c, 1, 4)
    merge_dim(dims[3], filters[2])
    lay = layout(b"NHWC")
    return lay.build(dims[0], window_sizes(lay, c.attrs, dims[1:3], filters[:2]), filters[3])


def quantized_pool_shape(c: Any) -> Dims:
    kind = c.op.type.removeprefix("Quantized")
    for name, text in (("strides", "stride"), ("ksize", "ksize")):
        if len(c.attrs[name]) != 4:
            raise ValueError(f"{kind} requires the {text} attribute to contain 4 values, but got: {len(c.attrs[name])}")
    return pool_shape(c)


def quantized_concat_shape(axis: int, first: int) -> Any:
    """The axis is flat input `axis`; the values start at `first`; then come their lows and highs."""

    def rule(c: Any) -> list[Dims]:
        count = (c.n - 1) // 3
        at = axis if axis >= 0 else count
        for i in range(first + count + (axis < 0), c.n):
            with_rank(c, i, 0)
        return [concat_shape(c, at, range(first, first + count)), (), ()]

    return rule


# -- to and from real numbers -----------------------------------------------------------------------------------------

_U8, _I8, _I32 = np.uint8, np.int8, np.int32


def _bytes(*shape: int) -> Any:
    return ints(*shape, lo=0, hi=256, dtype=_U8)


def _signed(*shape: int) -> Any:
    return ints(*shape, lo=-128, hi=128, dtype=_I8)


def _wide(*shape: int) -> Any:
    return ints(*shape, lo=-(2**31), hi=2**31, dtype=_I32)


def quantize_samples() -> list[dict[str, Any]]:
    x: dict[str, Any] = dict(input=normal(5, 7, scale=3.0, dtype=np.float32), min_range=-3.0, max_range=5.0)
    found = [dict(x, T=kind, mode=mode) for kind in ("quint8", "qint8", "qint32", "qint16", "quint16") for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED")]
    found += [dict(x, T=kind, mode="SCALED", round_mode="HALF_TO_EVEN", narrow_range=True) for kind in ("quint8", "qint8")]
    found.append(dict(x, min_range=[-1.0, -2.0, 0.0, 0.5, -3.0], max_range=[1.0, 0.0, 2.0, 0.6, 3.0], axis=0, T="qint8", mode="SCALED"))
    found.append(dict(x, min_range=[-1.0, -2.0, 0.0, 0.5, -3.0], max_range=[1.0, 0.0, 2.0, 0.6, 3.0], axis=0, T="quint8"))
    found.append(dict(x, min_range=1.0, max_range=1.0, T="quint8", ensure_minimum_range=0.5))
    found.append(dict(input=empty(0, dtype=np.float32), min_range=-1.0, max_range=1.0, T="quint8"))
    return found


def dequantize_samples() -> list[dict[str, Any]]:
    found = []
    for make, kind in ((_bytes, "quint8"), (_signed, "qint8"), (_wide, "qint32")):
        for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):
            found.append(dict(input=make(5, 7), min_range=-3.0, max_range=5.0, T=kind, mode=mode))
        found.append(dict(input=make(2, 3), min_range=[-1.0, 0.0], max_range=[1.0, 3.0], axis=0, T=kind, mode="SCALED", narrow_range=True))
    found.append(dict(input=_bytes(4), min_range=0.0, max_range=6.0, T="quint8", dtype="bfloat16"))
    return found


op("QuantizeV2(input: float, min_range: float, max_range: float) -> (output: T, output_min: float, output_max: float)"
   f" [T: {_Q}; mode: string in {{'MIN_COMBINED', 'MIN_FIRST', 'SCALED'}} = 'MIN_COMBINED';"
   " round_mode: string in {'HALF_AWAY_FROM_ZERO', 'HALF_TO_EVEN'} = 'HALF_AWAY_FROM_ZERO'; narrow_range: bool = false; axis: int = -1;"
   " ensure_minimum_range: float = 0.00999999978]",
   shape=quantize_shape, numpy=quantized.quantize_v2, samples=quantize_samples,
   errors=[
       (dict(input=normal(3), min_range=1.0, max_range=0.0, T="quint8"), InvalidArgumentError, "input_max_range must be larger than input_min_range."),
       (dict(input=normal(3), min_range=0.0, max_range=1.0, T="quint8", round_mode="HALF_TO_EVEN"), InvalidArgumentError, "only supported for mode 'SCALED', but mode is 'MIN_COMBINED'"),
       (dict(input=normal(2), min_range=[0.0, 0.0], max_range=[1.0, 1.0], T="quint8", axis=0, mode="MIN_FIRST"), UnimplementedError, "MIN_FIRST mode is not implemented for Quantize with axis != -1."),
   ])  # fmt: skip

op(f"Dequantize(input: T, min_range: float, max_range: float) -> (output: dtype) [T: {_Q};"
   " mode: string in {'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'; narrow_range: bool = false; axis: int = -1;"
   " dtype: type in {bfloat16, float} = float]",
   shape=dequantize_shape, numpy=quantized.dequantize, samples=dequantize_samples,
   errors=[
       (dict(input=_bytes(3), min_range=0.0, max_range=1.0, T="quint8", mode="SCALED", dtype="bfloat16"), InvalidArgumentError, "Mode string must be 'MIN_COMBINED', is 'SCALED'"),
       (dict(input=_bytes(3), min_range=[0.0, 0.0], max_range=[1.0, 1.0], T="quint8"), InvalidArgumentError, "must have as many elements as input on the dequantization axis"),
   ])  # fmt: skip

# -- ranges -----------------------------------------------------------------------------------------------------------

_REQUANTIZE = dict(input=_wide(5, 7), input_min=-3.0, input_max=5.0, requested_output_min=-1.0, requested_output_max=2.0, Tinput="qint32")

op(f"Requantize(input: Tinput, input_min: float, input_max: float, requested_output_min: float, requested_output_max: float)"
   f" -> (output: out_type, output_min: float, output_max: float) [Tinput: {_Q}; out_type: {_Q}]",
   shape=ranged(like_first, 1, 2, 3, 4), numpy=quantized.requantize, grad=NOT_DIFFERENTIABLE,
   samples=[dict(_REQUANTIZE, out_type="quint8"), dict(_REQUANTIZE, out_type="qint8"), dict(_REQUANTIZE, out_type="quint8", requested_output_max=-1.0)],
   errors=[
       (dict(_REQUANTIZE, out_type="quint8", requested_output_min=1.0), InvalidArgumentError, "requested_output_min must be <= 0, but got 1"),
       (dict(_REQUANTIZE, out_type="quint8", requested_output_max=-2.0), InvalidArgumentError, "requested_output_max must be >= requested_output_min, but got -2 and -1"),
   ])  # fmt: skip

op(f"RequantizationRange(input: Tinput, input_min: float, input_max: float) -> (output_min: float, output_max: float) [Tinput: {_Q}]",
   shape=lambda c: (with_rank(c, 1, 0), with_rank(c, 2, 0), ())[2], numpy=quantized.requantization_range, grad=NOT_DIFFERENTIABLE,
   samples=[dict(input=_wide(5, 7), input_min=-3.0, input_max=5.0, Tinput="qint32"), dict(input=empty(0), input_min=-3.0, input_max=5.0, Tinput="qint32")])  # fmt: skip

op("QuantizeDownAndShrinkRange(input: Tinput, input_min: float, input_max: float) -> (output: out_type, output_min: float, output_max: float)"
   f" [Tinput: {_Q}; out_type: {_Q}]",
   shape=ranged(like_first, 1, 2), numpy=quantized.quantize_down, grad=NOT_DIFFERENTIABLE,
   samples=[dict(input=_wide(5, 7), input_min=-3.0, input_max=5.0, Tinput="qint32", out_type="quint8"),
            dict(input=ints(9, lo=-99, hi=999, dtype=_I32), input_min=-3e5, input_max=3e5, Tinput="qint32", out_type="quint8"),
            dict(input=empty(0), input_min=-3.0, input_max=5.0, Tinput="qint32", out_type="quint8")])  # fmt: skip

_PER_CHANNEL = dict(input=_wide(1, 2, 3, 4), input_min=[-1.0, -2.0, -0.5, 0.0], input_max=[1.0, 0.5, 3.0, 1.0], T="qint32")

op("RequantizePerChannel(input: T, input_min: float, input_max: float, requested_output_min: float, requested_output_max: float)"
   f" -> (output: out_type, output_min: float, output_max: float) [T: {_Q} = qint32; out_type: {_Q} = quint8]",
   shape=ranged(like_first, 3, 4), numpy=quantized.requantize_per_channel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(_PER_CHANNEL, requested_output_min=0.0, requested_output_max=2.0), dict(_PER_CHANNEL, requested_output_min=-2.0, requested_output_max=1.0, out_type="qint8")],
   errors=[(dict(_PER_CHANNEL, requested_output_min=0.0, requested_output_max=2.0, out_type="qint8"), InvalidArgumentError, "If out_type is QINT8"),
           (dict(_PER_CHANNEL, input=_wide(3, 4), requested_output_min=0.0, requested_output_max=2.0), InvalidArgumentError, "supports 4D tensors only")])  # fmt: skip

op("RequantizationRangePerChannel(input: T, input_min: float, input_max: float) -> (output_min: float, output_max: float)"
   f" [T: {_Q} = qint32; clip_value_max: float]",
   shape=lambda c: (), numpy=quantized.range_per_channel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(_PER_CHANNEL, clip_value_max=6.0), dict(_PER_CHANNEL, clip_value_max=0.25), dict(_PER_CHANNEL, input=ints(1, 2, 2, 4, lo=0, hi=2**31, dtype=_I32), clip_value_max=6.0)],
   errors=[(dict(_PER_CHANNEL, input=_wide(1, 2, 2, 3), clip_value_max=6.0), InvalidArgumentError, "input must have same number of channels as length of input_min: 3 vs 4")])  # fmt: skip

# -- elementwise ------------------------------------------------------------------------------------------------------


def _pair(x: Any, y: Any, **more: Any) -> dict[str, Any]:
    return dict(x=x, y=y, min_x=-3.0, max_x=5.0, min_y=0.0, max_y=6.0, T1="quint8", T2="quint8") | more


_PAIRS = [_pair(_bytes(3, 4), _bytes(3, 4)), _pair(_bytes(3, 4), _bytes(4)), _pair(_bytes(1), _bytes(2, 3)), _pair(_bytes(2, 3), _bytes(), min_x=1.0)]
_PAIR_SHAPE = ranged(lambda c: broadcast_dims(c.dims(0), c.dims(1)), 2, 3, 4, 5)
_PAIR_SIGNATURE = f"(x: T1, y: T2, min_x: float, max_x: float, min_y: float, max_y: float) -> (z: Toutput, min_z: float, max_z: float) [T1: {_Q}; T2: {_Q}; Toutput: {_Q} = qint32]"

op("QuantizedAdd" + _PAIR_SIGNATURE, shape=_PAIR_SHAPE, numpy=quantized.add, samples=_PAIRS, grad=NOT_DIFFERENTIABLE,
   errors=[(_pair(_bytes(3), _bytes(3), max_x=-3.0), InvalidArgumentError, "max_x must be larger than min_x.")])  # fmt: skip
op("QuantizedMul" + _PAIR_SIGNATURE, shape=_PAIR_SHAPE, numpy=quantized.mul, samples=_PAIRS, grad=NOT_DIFFERENTIABLE,
   errors=[(_pair(_bytes(3), _bytes(3), max_y=-3.0), InvalidArgumentError, "max_x must be larger than min_b.")])  # fmt: skip


def bias_add_shape(c: Any) -> Dims:
    (length,) = with_rank(c, 1, 1)
    dims = c.dims(0)
    if not dims:
        return dims
    if len(dims) < 2:
        raise ValueError(f"Shape must be at least rank 2 but is rank {len(dims)}")
    return (*dims[:-1], merge_dim(dims[-1], length))


_BIAS = dict(input=_bytes(2, 3, 4), bias=_bytes(4), min_input=-0.7, max_input=0.9, min_bias=-2.2, max_bias=-0.3, T1="quint8", T2="quint8", out_type="qint32")

op("QuantizedBiasAdd(input: T1, bias: T2, min_input: float, max_input: float, min_bias: float, max_bias: float)"
   f" -> (output: out_type, min_out: float, max_out: float) [T1: {_Q}; T2: {_Q}; out_type: {_Q}]",
   shape=ranged(bias_add_shape, 2, 3, 4, 5), numpy=quantized.bias_add, grad=NOT_DIFFERENTIABLE,
   samples=[_BIAS, dict(_BIAS, min_bias=0.0, max_bias=6.0), dict(_BIAS, input=_signed(3, 4), bias=_signed(4), T1="qint8", T2="qint8")],
   errors=[(dict(_BIAS, bias=_bytes(3)), InvalidArgumentError, "Must provide as many biases|Dimensions must be equal")])  # fmt: skip

_RELU_SIGNATURE = f"(features: Tinput, min_features: float, max_features: float) -> (activations: out_type, min_activations: float, max_activations: float) [Tinput: {_Q}; out_type: {_Q} = quint8]"


def _relu_samples(top: float) -> list[dict[str, Any]]:
    return [
        dict(features=_bytes(3, 4), min_features=-top, max_features=top, Tinput="quint8"),
        dict(features=_wide(3, 4), min_features=-top, max_features=top, Tinput="qint32", out_type="qint32"),
        dict(features=_bytes(3, 4), min_features=1.0, max_features=top, Tinput="quint8"),
    ]


op("QuantizedRelu" + _RELU_SIGNATURE, shape=ranged(like_first, 1, 2), numpy=quantized.relu, samples=_relu_samples(3.0), grad=NOT_DIFFERENTIABLE)
op("QuantizedRelu6" + _RELU_SIGNATURE, shape=ranged(like_first, 1, 2), numpy=quantized.relu6, samples=_relu_samples(9.0), grad=NOT_DIFFERENTIABLE)
op("QuantizedReluX(features: Tinput, max_value: float, min_features: float, max_features: float)"
   f" -> (activations: out_type, min_activations: float, max_activations: float) [Tinput: {_Q}; out_type: {_Q} = quint8]",
   shape=ranged(like_first, 2, 3), numpy=quantized.relu_x, grad=NOT_DIFFERENTIABLE,
   samples=[dict(sample, max_value=2.0) for sample in _relu_samples(3.0)])  # fmt: skip

# -- arrangement ------------------------------------------------------------------------------------------------------


def reshape(x: Any, shape: Any, low: Any, high: Any) -> list[Any]:
    for name, value in (("input_min", low), ("input_max", high)):
        if np.size(value) != 1 or np.ndim(value) > 1:
            raise InvalidArgumentError(f"{name} must be a scalar or a vector of 1 element")
    return [reshape_kernel(x, shape), low, high]


op("QuantizedReshape(tensor: T, shape: Tshape, input_min: float, input_max: float) -> (output: T, output_min: float, output_max: float)"
   " [T: type; Tshape: type in {int32, int64} = int32]",
   shape=ranged(reshape_shape, 2, 3), numpy=reshape, host_memory=["shape"], grad=NOT_DIFFERENTIABLE,
   samples=[dict(tensor=_bytes(2, 3), shape=arr([3, -1]), input_min=0.0, input_max=1.0, T="quint8")])  # fmt: skip


def concat_v2(values: list[Any], axis: Any, lows: list[Any], highs: list[Any]) -> list[Any]:
    at = int(axis)
    return quantized.concat(at + values[0].ndim if at < 0 else at, values, lows, highs)


def _concat(make: Any, kind: str, **more: Any) -> dict[str, Any]:
    return dict(values=[make(2, 3), make(2, 2)], input_mins=[-3.0, 0.0], input_maxes=[5.0, 6.0], T=kind) | more


op("QuantizedConcat(concat_dim: int32, values: N*T, input_mins: N*float, input_maxes: N*float) -> (output: T, output_min: float, output_max: float)"
   " [N: int >= 2; T: type]",
   shape=quantized_concat_shape(0, 1), numpy=quantized.concat, host_memory=["concat_dim"], grad=NOT_DIFFERENTIABLE,
   samples=[_concat(_bytes, "quint8", concat_dim=arr(1)), _concat(_wide, "qint32", concat_dim=arr(1)), _concat(_bytes, "quint8", concat_dim=arr(1), input_mins=[1.0, 1.0])],
   errors=[(_concat(_bytes, "quint8", concat_dim=arr(0)), InvalidArgumentError, "Dimensions of inputs should match|must be equal")])  # fmt: skip
op("QuantizedConcatV2(values: N*T, axis: Tidx, input_mins: N*float, input_maxes: N*float) -> (output: T, output_min: float, output_max: float)"
   " [N: int >= 2; T: type; Tidx: type in {int32, int64} = int32]",
   shape=quantized_concat_shape(-1, 0), numpy=concat_v2, host_memory=["axis"], grad=NOT_DIFFERENTIABLE,
   samples=[_concat(_bytes, "quint8", axis=arr(-1))])  # fmt: skip

# -- products ---------------------------------------------------------------------------------------------------------

_FACTORS = dict(min_a=-3.0, max_a=5.0, min_b=0.0, max_b=6.0, T1="quint8", T2="quint8")

op("QuantizedMatMul(a: T1, b: T2, min_a: float, max_a: float, min_b: float, max_b: float) -> (out: Toutput, min_out: float, max_out: float)"
   f" [T1: {_Q}; T2: {_Q}; Toutput: {_Q} = qint32; transpose_a: bool = false; transpose_b: bool = false; Tactivation: {_Q} = quint8]",
   shape=ranged(matmul_shape, 2, 3, 4, 5), numpy=quantized_products.matmul, grad=NOT_DIFFERENTIABLE, expensive=True,
   samples=[dict(_FACTORS, a=_bytes(3, 5), b=_bytes(5, 4)), dict(_FACTORS, a=_bytes(5, 3), b=_bytes(4, 5), transpose_a=True, transpose_b=True),
            dict(_FACTORS, a=_bytes(2, 400), b=_bytes(400, 3), min_a=1.0), dict(_FACTORS, a=empty(0, 5), b=_bytes(5, 4))],
   errors=[(dict(_FACTORS, a=_bytes(3, 5), b=_bytes(5, 4), max_b=0.0), InvalidArgumentError, "max_b must be larger than min_b."),
           (dict(_FACTORS, a=_bytes(3, 5), b=_bytes(4, 4)), InvalidArgumentError, "Matrix size-incompatible|Dimensions must be equal")])  # fmt: skip

_IMAGE = dict(min_input=-3.0, max_input=5.0, min_filter=-1.0, max_filter=1.0, Tinput="quint8", Tfilter="quint8", strides=[1, 1, 1, 1], padding="SAME")

op("QuantizedConv2D(input: Tinput, filter: Tfilter, min_input: float, max_input: float, min_filter: float, max_filter: float)"
   f" -> (output: out_type, {_RANGE}) [Tinput: {_Q}; Tfilter: {_Q}; out_type: {_Q} = qint32; strides: list(int);"
   " padding: string in {'SAME', 'VALID'}; dilations: list(int) = [1, 1, 1, 1]]",
   shape=ranged(conv_shape, 2, 3), numpy=quantized_products.conv2d, grad=NOT_DIFFERENTIABLE, expensive=True,
   samples=[dict(_IMAGE, input=_bytes(2, 5, 6, 3), filter=_bytes(3, 3, 3, 4)), dict(_IMAGE, input=_bytes(2, 5, 6, 3), filter=_bytes(3, 2, 3, 4), padding="VALID", strides=[1, 2, 2, 1]),
            dict(_IMAGE, input=_bytes(1, 4, 4, 2), filter=_bytes(3, 3, 2, 2), min_input=1.0), dict(_IMAGE, input=_bytes(1, 4, 4, 2), filter=_bytes(3, 3, 2, 2), max_input=-1.0),
            dict(_IMAGE, input=_bytes(1, 4, 4, 40), filter=_bytes(3, 3, 40, 2))],
   errors=[(dict(_IMAGE, input=_bytes(1, 4, 4, 2), filter=_bytes(3, 3, 2, 2), strides=[1, 1, 2, 1]), InvalidArgumentError, "only supports equal length strides"),
           (dict(_IMAGE, input=_bytes(1, 4, 4, 2), filter=_bytes(3, 3, 2, 2), dilations=[1, 2, 2, 1]), InvalidArgumentError, "only supports dilated rate as 1"),
           (dict(_IMAGE, input=_bytes(0, 4, 4, 2), filter=_bytes(3, 3, 2, 2)), InvalidArgumentError, "Shapes dimension cannot be 0")])  # fmt: skip

# -- pools ------------------------------------------------------------------------------------------------------------

_POOL_SIGNATURE = f"(input: T, min_input: float, max_input: float) -> (output: T, {_RANGE}) [T: {_Q}; ksize: list(int); strides: list(int); padding: string in {{'SAME', 'VALID'}}]"


def _pool_samples() -> list[dict[str, Any]]:
    windows = [([1, 2, 2, 1], [1, 2, 2, 1], "VALID"), ([1, 3, 3, 1], [1, 2, 2, 1], "SAME"), ([1, 2, 3, 1], [1, 1, 1, 1], "SAME")]
    return [
        dict(input=make(2, 5, 6, 3), min_input=-1.0, max_input=2.0, T=kind, ksize=ksize, strides=strides, padding=padding)
        for make, kind in ((_bytes, "quint8"), (_signed, "qint8")) for ksize, strides, padding in windows
    ]  # fmt: skip


op("QuantizedMaxPool" + _POOL_SIGNATURE, shape=ranged(quantized_pool_shape, 1, 2), numpy=quantized_products.max_pool, samples=_pool_samples, grad=NOT_DIFFERENTIABLE)
op("QuantizedAvgPool" + _POOL_SIGNATURE, shape=ranged(quantized_pool_shape, 1, 2), numpy=quantized_products.avg_pool, samples=_pool_samples, grad=NOT_DIFFERENTIABLE)
