"""Ops on uniformly quantised tensors: whole numbers with a scale and a zero point, for all of a tensor or along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, same_as, with_rank
from penstock.ops.kernels import uniform
from penstock.ops.samples import arr, ints, normal
from penstock.ops.samples import uniform as uniform_numbers
from penstock.shapes import broadcast_dims, merge_dim

_I32 = np.int32


def _attrs(*names: str) -> str:
    return "; ".join(f"{name}quantization_axis: int = -1; {name}quantization_min_val: int; {name}quantization_max_val: int" for name in names)


def _limits(low: int, high: int, *names: str) -> dict[str, int]:
    return {f"{name}quantization_{end}_val": value for name in names for end, value in (("min", low), ("max", high))}


def dot_shape(c: Any) -> Dims:
    (rows, inner), (other, columns) = with_rank(c, 0, 2), with_rank(c, 1, 2)
    merge_dim(inner, other)
    return rows, columns


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
