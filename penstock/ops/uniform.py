"""Ops on uniformly quantised tensors: whole numbers with a scale and a zero point, for all of a tensor or along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, same_as, with_rank
from penstock.ops.kernels import uniform, uniform_conv
from penstock.ops.samples import arr, ints, normal
from penstock.ops.samples import uniform as uniform_numbers
from penstock.shapes import broadcast_dims, is_fully_defined, merge_dim

_I32 = np.int32


def _attrs(*names: str) -> str:
    return "; ".join(f"{name}quantization_axis: int = -1; {name}quantization_min_val: int; {name}quantization_max_val: int" for name in names)


def _limits(low: int, high: int, *names: str) -> dict[str, int]:
    return {f"{name}quantization_{end}_val": value for name in names for end, value in (("min", low), ("max", high))}


def dot_shape(c: Any) -> Dims:
    (rows, inner), (other, columns) = with_rank(c, 0, 2), with_rank(c, 1, 2)
    merge_dim(inner, other)
    return rows, columns


def convolution_shape(c: Any) -> Dims:
    """As in TF, no size is known before all of them are."""
    pairs = [(i, i + 1) for i in range(2, c.n, 2)]  # scales and zero points of lhs, rhs, output; a hybrid has those of rhs
    for first, last in pairs:
        most = 0 if len(pairs) > 1 and first == 2 else 1
        for dims in (c.dims(first), c.dims(last)):
            if dims is not None and len(dims) > most:
                raise ValueError(f"Shape must be at most rank {most} but is rank {len(dims)}")
    lhs, rhs = c.dims(0), c.dims(1)
    if lhs is not None and rhs is not None and len(lhs) != len(rhs):
        raise ValueError("lhs and rhs must have same rank.")
    if not is_fully_defined(lhs) or not is_fully_defined(rhs):
        known = rhs if lhs is None else lhs
        return None if known is None else (None,) * len(known)
    plan = uniform_conv.plan(lhs, rhs, c.attrs)
    per_channel = True
    for first, last in pairs[-2:] if len(pairs) > 1 else pairs:
        scales, zeros = c.dims(first), c.dims(last)
        if scales is None or zeros is None:
            continue
        if len(scales) != len(zeros):
            raise ValueError("scales and zero_points must have same rank.")
        if scales and not per_channel:
            raise ValueError(f"If rhs is per-tensor quantized, output must be also per-tensor quantized. Given output scales/zero_points of rank {len(scales)}")
        if scales:
            merge_dim(merge_dim(scales[0], zeros[0]), plan.out_features)
        per_channel = bool(scales)
    return plan.shape


_BYTE = _limits(-128, 127, "")
_X = dict(input=normal(4, 5, scale=9.0, dtype=np.float32), scales=0.3, zero_points=arr(3, _I32))
_ALONG = dict(scales=[0.3, 0.7, 1.1, 0.05], zero_points=arr([3, -1, 0, 9], _I32), quantization_axis=0)

op("UniformQuantize(input: Tin, scales: float, zero_points: int32) -> (output: Tout)"
   f" [Tin: type in {{float}}; Tout: type in {{qint8, quint8, qint32}}; {_attrs('')}]",
   shape=same_as("input"), numpy=uniform.quantize, grad=NOT_DIFFERENTIABLE,
   samples=[dict(_X, Tout="qint8", **_BYTE), dict(_X, Tout="quint8", **_limits(0, 255, "")), dict(_X, Tout="qint32", **_limits(-(2**31), 2**31 - 1, "")),
            dict(_X, **_ALONG, Tout="qint8", **_limits(-127, 127, ""))],
   errors=[(dict(_X, Tout="qint8", **_BYTE, scales=[1.0, 2.0]), InvalidArgumentError, "shape must be same")])  # fmt: skip

_WHOLE = dict(_X, input=ints(4, 5, lo=-128, hi=128, dtype=np.int8), Tin="qint8", **_BYTE)

op("UniformDequantize(input: Tin, scales: float, zero_points: int32) -> (output: Tout)"
   f" [Tin: type in {{qint8, quint8, qint32}}; Tout: type in {{float}}; {_attrs('')}]",
   shape=same_as("input"), numpy=uniform.dequantize, grad=NOT_DIFFERENTIABLE,
   samples=[dict(_WHOLE, Tout="float"), dict(_WHOLE, **_ALONG, Tout="float"), dict(_WHOLE, input=ints(4, 5, lo=-9999, hi=9999, dtype=_I32), Tin="qint32", Tout="float")],
   errors=[(dict(_WHOLE, Tout="float", scales=0.0), InvalidArgumentError, "must be all positive")])  # fmt: skip

_MOVE = dict(
    input=ints(4, 5, lo=-128, hi=128, dtype=np.int8), input_scales=0.3, input_zero_points=arr(3, _I32), output_scales=0.45, output_zero_points=arr(-2, _I32), Tin="qint8",
    Tout="qint8", **_limits(-128, 127, "input_", "output_"),
)  # fmt: skip
_WIDE = dict(_MOVE, input=ints(4, 5, lo=-99999, hi=99999, dtype=_I32), Tin="qint32", output_scales=517.3)

op("UniformRequantize(input: Tin, input_scales: float, input_zero_points: int32, output_scales: float, output_zero_points: int32) -> (output: Tout)"
   f" [Tin: type in {{qint8, qint32}}; Tout: type in {{qint8, qint32}}; {_attrs('input_', 'output_')}]",
   shape=same_as("input"), numpy=uniform.requantize, grad=NOT_DIFFERENTIABLE,
   samples=[_MOVE, _WIDE, dict(_WIDE, input_scales=[0.3, 0.7, 1.1, 0.05], input_zero_points=arr([3, -1, 0, 9], _I32), input_quantization_axis=0),
            dict(_WIDE, output_scales=[100.0, 77.0, 300.0, 1.5], output_zero_points=arr([3, -1, 0, 9], _I32), output_quantization_axis=0)],
   errors=[(dict(_MOVE, output_scales=-1.0), InvalidArgumentError, "must be all positive")])  # fmt: skip

_THREE = dict(
    lhs_scales=0.3, lhs_zero_points=arr(3, _I32), rhs_scales=0.7, rhs_zero_points=arr(-2, _I32), output_scales=0.9, output_zero_points=arr(5, _I32),
)  # fmt: skip
_SUM = dict(_THREE, lhs=ints(4, 5, lo=-999, hi=999, dtype=_I32), rhs=ints(4, 5, lo=-999, hi=999, dtype=_I32), T="qint32", **_limits(-(2**31), 2**31 - 1, "lhs_", "rhs_", "output_"))

op("UniformQuantizedAdd(lhs: T, rhs: T, lhs_scales: float, lhs_zero_points: int32, rhs_scales: float, rhs_zero_points: int32, output_scales: float,"
   f" output_zero_points: int32) -> (output: T) [{_attrs('lhs_', 'rhs_', 'output_')}; T: type in {{qint32}}]",
   shape=lambda c: broadcast_dims(c.dims(0), c.dims(1)), numpy=uniform.add, grad=NOT_DIFFERENTIABLE,
   samples=[_SUM, dict(_SUM, rhs=ints(5, lo=-999, hi=999, dtype=_I32)), dict(_SUM, **_limits(-100, 100, "output_"))],
   errors=[(dict(_SUM, rhs=ints(3, dtype=_I32)), InvalidArgumentError, "broadcast|must be equal")])  # fmt: skip

_CLIP = dict(operand=ints(4, 5, lo=-9, hi=9, dtype=_I32), min=arr(-3, _I32), max=arr(4, _I32), scales=0.3, zero_points=arr(3, _I32), T="qint32", **_limits(-(2**31), 2**31 - 1, ""))

op(f"UniformQuantizedClipByValue(operand: T, min: T, max: T, scales: float, zero_points: int32) -> (output: T) [T: type in {{qint32}}; {_attrs('')}]",
   shape=same_as("operand"), numpy=uniform.clip, grad=NOT_DIFFERENTIABLE,
   samples=[_CLIP, dict(_CLIP, **_ALONG, min=arr([-3, -1, 0, -9], _I32), max=arr([3, 1, 1, -8], _I32))],
   errors=[(dict(_CLIP, min=arr([1, 2], _I32)), InvalidArgumentError, "min and max shapes")])  # fmt: skip

_DOT = dict(
    _THREE, lhs=ints(4, 6, lo=-128, hi=128, dtype=np.int8), rhs=ints(6, 3, lo=-127, hi=128, dtype=np.int8), Tin="qint8", Tout="qint32",
    **_limits(-128, 127, "lhs_", "rhs_"), **_limits(-(2**31), 2**31 - 1, "output_"),
)  # fmt: skip

op("UniformQuantizedDot(lhs: Tin, rhs: Tin, lhs_scales: float, lhs_zero_points: int32, rhs_scales: float, rhs_zero_points: int32, output_scales: float,"
   f" output_zero_points: int32) -> (output: Tout) [Tin: type in {{qint8}}; Tout: type in {{qint32}}; {_attrs('lhs_', 'rhs_', 'output_')}]",
   shape=dot_shape, numpy=uniform.dot, grad=NOT_DIFFERENTIABLE, expensive=True,
   samples=[_DOT, dict(_DOT, rhs_scales=[0.7, 0.2, 1.0], rhs_zero_points=arr([0, 2, -2], _I32), rhs_quantization_axis=1),
            dict(_DOT, rhs_scales=[0.7, 0.2, 1.0], rhs_zero_points=arr([0, 2, -2], _I32), rhs_quantization_axis=1, output_scales=[1.0, 2.0, 0.5],
                 output_zero_points=arr([0, 1, 2], _I32), output_quantization_axis=1)],
   errors=[(dict(_DOT, rhs=ints(5, 3, dtype=np.int8)), InvalidArgumentError, "must be equal")])  # fmt: skip

_HYBRID = dict(
    lhs=normal(4, 6, dtype=np.float32), rhs=ints(6, 3, lo=-127, hi=128, dtype=np.int8), rhs_scales=0.01, rhs_zero_points=arr(2, _I32), Tlhs="float", Trhs="qint8",
    Tout="float", **_limits(-128, 127, "rhs_"),
)  # fmt: skip

op("UniformQuantizedDotHybrid(lhs: Tlhs, rhs: Trhs, rhs_scales: float, rhs_zero_points: int32) -> (output: Tout)"
   f" [Tlhs: type in {{float}}; Trhs: type in {{qint8}}; Tout: type in {{float}}; {_attrs('rhs_')}]",
   shape=dot_shape, numpy=uniform.dot_hybrid, grad=NOT_DIFFERENTIABLE, expensive=True,
   samples=[_HYBRID, dict(_HYBRID, lhs=uniform_numbers(4, 6, lo=2.0, hi=3.0, dtype=np.float32)),
            dict(_HYBRID, rhs_scales=[0.7, 0.2, 1.0], rhs_zero_points=arr([0, 2, -2], _I32), rhs_quantization_axis=1)],
   errors=[(dict(_HYBRID, rhs=ints(5, 3, dtype=np.int8)), InvalidArgumentError, "must be equal")])  # fmt: skip


def _numbers(lhs: str, rhs: str, output: str) -> bytes:
    """A serialised UniformQuantizedConvolutionDimensionNumbersAttr of layouts such as NHWC, HWIO and NHWC."""
    spatial = [axis for axis in "DHW" if axis in lhs]
    data = b""
    for i, (layout, single) in enumerate(((lhs, "NC"), (rhs, "IO"), (output, "NC"))):
        places = [layout.index(axis) for axis in spatial]
        for key, value in enumerate(layout.index(axis) for axis in single):
            data += bytes([(3 * i + key + 1) << 3, value])
        data += bytes([(3 * i + 3) << 3 | 2, len(places), *places])
    return data


def _bytes(*shape: int) -> Any:
    return ints(*shape, lo=-128, hi=128, dtype=np.int8)


_WINDOWS = "window_strides: list(int) = []; padding: string; explicit_padding: list(int) = []; lhs_dilation: list(int) = []; rhs_dilation: list(int) = [];"
_WINDOWS += " batch_group_count: int = 1; feature_group_count: int = 1; dimension_numbers: string = ''"
_LAST = _numbers("NHWC", "HWIO", "NHWC")
_PER_CHANNEL = dict(rhs_scales=[0.7, 0.2, 1.0, 0.03, 0.4, 2.0], rhs_zero_points=arr([0, 2, -2, 9, -128, 1], _I32))
_OUT_CHANNEL = dict(output_scales=[1.0, 2.0, 0.5, 0.01, 3.0, 70.0], output_zero_points=arr([0, 1, 2, -3, -500, 1000], _I32))
# What both ops are tried with: shapes of lhs and rhs, and attributes. Six output features.
_PLACES: list[tuple[Any, Any, dict[str, Any]]] = [
    ((2, 4, 6, 7), (6, 4, 3, 2), dict(padding="VALID")),
    ((2, 4, 6, 7), (6, 4, 3, 2), dict(padding="SAME", window_strides=[2, 3])),
    ((2, 4, 6, 7), (6, 4, 3, 2), dict(padding="EXPLICIT", explicit_padding=[1, 0, 2, 5], lhs_dilation=[2, 1], rhs_dilation=[1, 2])),
    ((2, 6, 7, 4), (3, 2, 4, 6), dict(padding="SAME", dimension_numbers=_LAST)),
    ((2, 6, 7, 4), (1, 1, 4, 6), dict(padding="VALID", dimension_numbers=_LAST, window_strides=[2, 1])),
    ((2, 6, 7, 4), (3, 2, 2, 6), dict(padding="SAME", dimension_numbers=_LAST, feature_group_count=2, window_strides=[1, 2])),
    ((2, 6, 7, 3), (3, 2, 1, 6), dict(padding="SAME", dimension_numbers=_LAST, feature_group_count=3, rhs_dilation=[2, 1])),
    ((4, 4, 6, 7), (6, 4, 3, 2), dict(padding="VALID", batch_group_count=2)),
    ((6, 4, 6, 7), (6, 2, 3, 2), dict(padding="VALID", batch_group_count=3, feature_group_count=2)),
    ((2, 4, 9), (6, 4, 3), dict(padding="SAME", window_strides=[2], lhs_dilation=[3])),
    ((9, 2, 3), (6, 2, 3), dict(padding="VALID", dimension_numbers=_numbers("WNC", "OWI", "CNW"))),
    ((1, 3, 4, 5, 2), (6, 2, 2, 3, 2), dict(padding="SAME", dimension_numbers=_numbers("NDHWC", "ODHWI", "NCDHW"), window_strides=[1, 2, 2])),
    ((2, 2, 3, 4, 5), (6, 2, 2, 3, 2), dict(padding="EXPLICIT", explicit_padding=[1, 1, 0, 2, 0, 0], rhs_dilation=[1, 1, 2])),
    ((2, 4, 6, 7), (6, 4, 9, 2), dict(padding="VALID", window_strides=[3, 1])),  # a window a little too large: no rows
    ((2, 4, 6, 7), (6, 4, 0, 2), dict(padding="VALID")),
    ((0, 4, 6, 7), (6, 4, 3, 2), dict(padding="VALID")),
]
_CONV = dict(_THREE, Tin="qint8", Tout="qint32", **_limits(-128, 127, "lhs_", "rhs_"), **_limits(-(2**31), 2**31 - 1, "output_"))
_CONVS = [dict(_CONV, lhs=_bytes(*lhs), rhs=_bytes(*rhs), **attrs) for lhs, rhs, attrs in _PLACES]

op("UniformQuantizedConvolution(lhs: Tin, rhs: Tin, lhs_scales: float, lhs_zero_points: int32, rhs_scales: float, rhs_zero_points: int32, output_scales: float,"
   f" output_zero_points: int32) -> (output: Tout) [Tin: type in {{qint8}}; Tout: type in {{qint32}}; {_WINDOWS}; {_attrs('lhs_', 'rhs_', 'output_')}]",
   shape=convolution_shape, numpy=uniform_conv.convolution, grad=NOT_DIFFERENTIABLE, expensive=True,
   samples=[*_CONVS, dict(_CONVS[1], **_PER_CHANNEL, rhs_quantization_axis=0), dict(_CONVS[5], **_PER_CHANNEL, rhs_quantization_axis=3),
            dict(_CONVS[0], **_PER_CHANNEL, **_OUT_CHANNEL, rhs_quantization_axis=0, output_quantization_axis=1),
            dict(_CONVS[6], **_PER_CHANNEL, **_OUT_CHANNEL, rhs_quantization_axis=3, output_quantization_axis=3),
            dict(_CONVS[0], **_limits(-300, 500, "output_")), dict(_CONVS[0], rhs_scales=1e9), dict(_CONVS[0], rhs_scales=1e-12),
            dict(_CONVS[1], lhs_zero_points=arr(2**24, _I32)), dict(_CONVS[0], output_zero_points=arr(2**31 - 1, _I32))],
   errors=[(dict(_CONVS[0], rhs=_bytes(6, 3, 3, 2)), InvalidArgumentError, "rhs input feature dimension must divide lhs feature dimension size, but 3 does not divide 4"),
           (dict(_CONVS[0], rhs=_bytes(6, 2, 3, 2)), InvalidArgumentError, "must equal the rhs input feature dimension size, but 4 / 1 != 2"),
           (dict(_CONVS[0], rhs=_bytes(6, 4, 9, 2)), InvalidArgumentError, "Expected shape dimensions to be non-negative, got -2"),
           (dict(_CONVS[0], window_strides=[1]), InvalidArgumentError, "Size of window_strides Attr must be dims - 2"),
           (dict(_CONVS[0], lhs_dilation=[0, 1]), InvalidArgumentError, "All elements of lhs_dilation must be >= 1. Given 0, 1"),
           (dict(_CONVS[0], padding="FULL"), InvalidArgumentError, "padding Attr must be one of"),
           (dict(_CONVS[0], explicit_padding=[1, 1, 1, 1]), InvalidArgumentError, "explicit_padding Attr must be empty"),
           (dict(_CONVS[2], explicit_padding=[1, 1]), InvalidArgumentError, "Size of explicit_padding Attr must be 2"),
           (dict(_CONVS[2], explicit_padding=[1, 1, -1, 0]), InvalidArgumentError, "All explicit_padding elems must be >= 0"),
           (dict(_CONVS[0], dimension_numbers=b"\xff\xff"), InvalidArgumentError, "Error parsing convolution dimension numbers"),
           (dict(_CONVS[0], dimension_numbers=_numbers("NCW", "OIW", "NCW")), InvalidArgumentError, "Spatial dimensions size must be rank - 2"),
           (dict(_CONVS[0], feature_group_count=3), InvalidArgumentError, "feature_group_count must divide lhs feature dimension size"),
           (dict(_CONVS[0], feature_group_count=0), InvalidArgumentError, "feature_group_count must be a positive integer"),
           (dict(_CONVS[0], batch_group_count=3), InvalidArgumentError, "batch_group_count must divide lhs batch dimension size"),
           (dict(_CONVS[7], rhs=_bytes(3, 4, 3, 2)), InvalidArgumentError, "must be a multiple of batch_group_count, but 3 is not a multiple of 2"),
           (dict(_CONVS[0], lhs_scales=-1.0), InvalidArgumentError, "lhs scales elements must be all positive"),
           (dict(_CONVS[0], rhs_scales=float("inf")), InvalidArgumentError, "finite number. Given inf"),
           (dict(_CONVS[0], lhs_quantization_axis=0), InvalidArgumentError, "lhs_quantization_axis Attr must be -1"),
           (dict(_CONVS[0], rhs_quantization_axis=9), InvalidArgumentError, "kernel_output_feature_dimension"),
           (dict(_CONVS[0], **_PER_CHANNEL), InvalidArgumentError, "must be scalar tensors, but given scales shape"),
           (dict(_CONVS[0], output_quantization_axis=1), InvalidArgumentError, "must be a tensor of rank 1 and the size must be equal")])  # fmt: skip

_HYBRID_CONV = dict(rhs_scales=0.01, rhs_zero_points=arr(2, _I32), Tlhs="float", Trhs="qint8", Tout="float", **_limits(-128, 127, "rhs_"))
_HYBRID_CONVS = [dict(_HYBRID_CONV, lhs=normal(*lhs, dtype=np.float32), rhs=_bytes(*rhs), **attrs) for lhs, rhs, attrs in _PLACES]

op("UniformQuantizedConvolutionHybrid(lhs: Tlhs, rhs: Trhs, rhs_scales: float, rhs_zero_points: int32) -> (output: Tout)"
   f" [Tlhs: type in {{float}}; Trhs: type in {{qint8}}; Tout: type in {{float}}; {_WINDOWS}; {_attrs('rhs_')}]",
   shape=convolution_shape, numpy=uniform_conv.convolution_hybrid, grad=NOT_DIFFERENTIABLE, expensive=True,
   samples=[*_HYBRID_CONVS, dict(_HYBRID_CONVS[1], **_PER_CHANNEL, rhs_quantization_axis=0), dict(_HYBRID_CONVS[5], **_PER_CHANNEL, rhs_quantization_axis=3),
            dict(_HYBRID_CONVS[1], lhs=uniform_numbers(2, 4, 6, 7, lo=2.0, hi=3.0, dtype=np.float32))],
   errors=[(dict(_HYBRID_CONVS[0], rhs=_bytes(6, 3, 3, 2)), InvalidArgumentError, "rhs input feature dimension must divide lhs feature dimension size"),
           (dict(_HYBRID_CONVS[0], window_strides=[1, 0]), InvalidArgumentError, "All elements of window_strides must be >= 1. Given 1, 0"),
           (dict(_HYBRID_CONVS[0], rhs_scales=0.0), InvalidArgumentError, "rhs scales elements must be all positive"),
           (dict(_HYBRID_CONVS[0], rhs_quantization_axis=1), InvalidArgumentError, "kernel_output_feature_dimension")])  # fmt: skip
