"""Quantised products with bias, Relu and requantisation in one op, as TF's oneDNN kernels have them.

These take unsigned (some also signed) bytes for the input and signed bytes for the weights, both SCALED: the whole
number 0 stands for zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.conv import window_sizes
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, with_rank
from penstock.ops.kernels.quantized_products import fused_conv, fused_matmul
from penstock.ops.kernels.window import layout
from penstock.ops.matmul import matmul_shape
from penstock.ops.quantized import conv_shape, ranged
from penstock.ops.samples import ints, normal
from penstock.shapes import merge_dim

_Q = "type in {qint8, quint8, qint32, qint16, quint16}"


def depthwise_shape(c: Any) -> Dims:
    dims, filters = with_rank(c, 0, 4), with_rank(c, 1, 4)
    depth = merge_dim(dims[3], filters[2])
    lay = layout(b"NHWC")
    out = None if depth is None or filters[3] is None else depth * filters[3]
    return lay.build(dims[0], window_sizes(lay, c.attrs, dims[1:3], filters[:2]), out)


def scaled_shape(shape: Any, channels: bool) -> Any:
    """`shape` and a range, one for each channel of the filter if `channels` and the filter's range has them."""

    def rule(c: Any) -> list[Dims]:
        first = c.arg("min_input")[0]
        with_rank(c, first, 0)
        with_rank(c, first + 1, 0)
        ends = c.dims(first + 2) if channels else ()
        return [shape(c), ends, ends]

    return rule


_SUMMANDS: dict[str, Any] = {
    "float": lambda *shape: normal(*shape, dtype=np.float32),
    "quint8": lambda *shape: ints(*shape, lo=0, hi=256, dtype=np.uint8),
    "qint8": lambda *shape: ints(*shape, lo=-128, hi=128, dtype=np.int8),
}


def conv_samples(has_bias: bool, requantize: bool, is_depthwise: bool, summand: str = "") -> list[dict[str, Any]]:
    sample: dict[str, Any] = dict(
        input=ints(2, 5, 6, 3, lo=0, hi=256, dtype=np.uint8), filter=ints(3, 3, 3, 1 if is_depthwise else 4, lo=-127, hi=128, dtype=np.int8),
        min_input=0.0, max_input=6.0, min_filter=-0.7, max_filter=0.9, Tinput="quint8", Tfilter="qint8", strides=[1, 1, 1, 1], padding="SAME",
    )  # fmt: skip
    if has_bias:
        sample["bias"] = normal(3 if is_depthwise else 4, dtype=np.float32)
    if requantize:
        sample.update(min_freezed_output=-3.0, max_freezed_output=50.0)
        if has_bias:
            sample["Tbias"] = "float"
    strided = dict(sample, strides=[1, 2, 2, 1], padding="VALID")
    if summand:
        made = _SUMMANDS[summand]
        sample.update(summand=made(2, 5, 6, 4))
        strided.update(summand=made(2, 2, 2, 4))
    if summand and requantize:
        for each in (sample, strided):
            each.update(min_summand=-10.0, max_summand=20.0, Tsummand=summand)
    return [sample, strided]


def conv_errors(has_bias: bool, requantize: bool, is_depthwise: bool, summand: str) -> list[Any]:
    sample = conv_samples(has_bias, requantize, is_depthwise, summand)[0]
    found: list[Any] = [(dict(sample, strides=[1, 1, 2, 1]), InvalidArgumentError, "equal length strides|summand")]
    if summand:
        found.append((dict(sample, summand=_SUMMANDS[summand](2, 5, 5, 4)), InvalidArgumentError, "summand must have the output's shape"))
    return found


def conv_op(name: str, is_depthwise: bool = False) -> None:
    """Declares one of the forms; its name says what it does."""
    has_bias, relu, requantize, has_sum = "WithBias" in name, "Relu" in name, "Requantize" in name, "Sum" in name
    kind = ("qint8" if "Signed" in name else "quint8" if requantize else "float") if has_sum else ""
    bias = f", bias: {'Tbias' if requantize else 'float'}" if has_bias else ""
    frozen = ", min_freezed_output: float, max_freezed_output: float" if requantize else ""
    if has_sum:
        frozen += ", summand: Tsummand, min_summand: float, max_summand: float" if requantize else ", summand: float"
    kinds = "; Tbias: type in {float, qint32}" if has_bias and requantize else ""
    kinds += f"; Tsummand: {_Q}" if has_sum and requantize else ""
    default = ("quint8" if relu else "qint8") if requantize else "qint32"
    paddings = "" if (is_depthwise and not relu) or name.endswith("PerChannel") else "; padding_list: list(int) = []"
    op(f"{name}(input: Tinput, filter: Tfilter{bias}, min_input: float, max_input: float, min_filter: float, max_filter: float{frozen})"
       f" -> (output: out_type, min_output: float, max_output: float) [Tinput: {_Q}; Tfilter: {_Q}{kinds}; out_type: {_Q} = {default};"
       f" strides: list(int); padding: string in {{'SAME', 'VALID'}}; dilations: list(int) = [1, 1, 1, 1]{paddings}]",
       shape=scaled_shape(depthwise_shape if is_depthwise else conv_shape, channels=not requantize),
       numpy=fused_conv(has_bias, relu, requantize, is_depthwise, has_sum=has_sum), grad=NOT_DIFFERENTIABLE, expensive=True,
       samples=conv_samples(has_bias, requantize, is_depthwise, kind), errors=conv_errors(has_bias, requantize, is_depthwise, kind))  # fmt: skip


for _form in ("AndRelu", "AndRequantize", "AndReluAndRequantize", "PerChannel", "WithBias", "WithBiasAndRelu", "WithBiasAndRequantize", "WithBiasAndReluAndRequantize",
              "WithBiasSumAndRelu", "WithBiasSumAndReluAndRequantize", "WithBiasSignedSumAndReluAndRequantize"):  # fmt: skip
    conv_op("QuantizedConv2D" + _form)
for _form in ("", "WithBias", "WithBiasAndRelu", "WithBiasAndReluAndRequantize"):
    conv_op("QuantizedDepthwiseConv2D" + _form, is_depthwise=True)


def matmul_alone(c: Any) -> list[Dims]:
    return ranged(matmul_shape, 3, 4, 5, 6)(c)[:1]


def matmul_op(name: str) -> None:
    relu, requantize, dequantize = "Relu" in name, "Requantize" in name, "Dequantize" in name
    has_choice = not relu or requantize
    frozen = ", min_freezed_output: float, max_freezed_output: float" if requantize or dequantize else ""
    sample: dict[str, Any] = dict(
        a=ints(3, 9, lo=0, hi=256, dtype=np.uint8), b=ints(9, 4, lo=-127, hi=128, dtype=np.int8), bias=normal(4, dtype=np.float32),
        min_a=0.0, max_a=6.0, min_b=-0.7, max_b=0.9, T1="quint8", T2="qint8",
    )  # fmt: skip
    if has_choice:
        sample["Tbias"] = "float"
    if requantize or dequantize:
        sample.update(min_freezed_output=-3.0, max_freezed_output=50.0)
    if dequantize:
        sample["Toutput"] = "float"
    op(f"{name}(a: T1, b: T2, bias: {'Tbias' if has_choice else 'float'}, min_a: float, max_a: float, min_b: float, max_b: float{frozen})"
       f" -> (out: Toutput{'' if dequantize else ', min_out: float, max_out: float'}) [T1: {_Q}; T2: {_Q}{'; Tbias: type in {float, qint32}' if has_choice else ''};"
       f" Toutput: {'type in {float}' if dequantize else _Q + ' = quint8' if requantize else _Q + ' = qint32'}; transpose_a: bool = false; transpose_b: bool = false;"
       " input_quant_mode: string in {'MIN_FIRST', 'SCALED'} = 'MIN_FIRST']",
       shape=matmul_alone if dequantize else ranged(matmul_shape, 3, 4, 5, 6), numpy=fused_matmul(relu, requantize, dequantize=dequantize), grad=NOT_DIFFERENTIABLE, expensive=True, samples=[sample])  # fmt: skip


for _form in ("", "AndDequantize", "AndRelu", "AndRequantize", "AndReluAndRequantize"):
    matmul_op("QuantizedMatMulWithBias" + _form)
