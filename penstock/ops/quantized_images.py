"""Ops on quantised images that are no products: batch and instance normalisation, resizing."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, with_rank
from penstock.ops.kernels import quantized_images
from penstock.ops.quantized import ranged
from penstock.ops.resize import resize_shape
from penstock.ops.samples import arr, ints, normal
from penstock.shapes import merge_dim

_Q = "type in {qint8, quint8, qint32, qint16, quint16}"


def _bytes(*shape: int) -> Any:
    return ints(*shape, lo=0, hi=256, dtype=np.uint8)


def batch_norm_shape(c: Any) -> list[Dims]:
    dims = with_rank(c, 0, 4)
    depth = dims[3]
    for i in (3, 6, 9, 12):
        depth = merge_dim(depth, with_rank(c, i, 1)[0])
    for i in (1, 2, 4, 5, 7, 8, 10, 11, 13, 14):
        with_rank(c, i, 0)
    return [(*dims[:3], depth), (), ()]


_NORM = dict(
    t=_bytes(2, 3, 4, 3), t_min=-1.0, t_max=2.0, m=_bytes(3), m_min=-1.0, m_max=1.0, v=_bytes(3), v_min=0.0, v_max=1.0, beta=_bytes(3), beta_min=-1.0,
    beta_max=1.0, gamma=_bytes(3), gamma_min=0.0, gamma_max=2.0, Tinput="quint8", out_type="qint32", variance_epsilon=0.001, scale_after_normalization=True,
)  # fmt: skip

op("QuantizedBatchNormWithGlobalNormalization(t: Tinput, t_min: float, t_max: float, m: Tinput, m_min: float, m_max: float, v: Tinput, v_min: float,"
   " v_max: float, beta: Tinput, beta_min: float, beta_max: float, gamma: Tinput, gamma_min: float, gamma_max: float)"
   f" -> (result: out_type, result_min: float, result_max: float) [Tinput: {_Q}; out_type: {_Q}; variance_epsilon: float; scale_after_normalization: bool]",
   shape=batch_norm_shape, numpy=quantized_images.batch_norm, grad=NOT_DIFFERENTIABLE,
   samples=[_NORM, dict(_NORM, scale_after_normalization=False), dict(_NORM, t_min=-300.0, t_max=100.0, variance_epsilon=1.0)],
   errors=[(dict(_NORM, m=_bytes(2)), InvalidArgumentError, "Dimensions must be equal|Must provide as many")])  # fmt: skip

def image_shape(c: Any) -> Dims:
    return with_rank(c, 0, 4)


_INSTANCE = dict(x=_bytes(2, 5, 6, 3), x_min=-1.0, x_max=2.0, T="quint8")

op(f"QuantizedInstanceNorm(x: T, x_min: float, x_max: float) -> (y: T, y_min: float, y_max: float) [T: {_Q}; output_range_given: bool = false;"
   " given_y_min: float = 0; given_y_max: float = 0; variance_epsilon: float = 9.99999975e-06; min_separation: float = 0.00100000005]",
   shape=ranged(image_shape, 1, 2), numpy=quantized_images.instance_norm, grad=NOT_DIFFERENTIABLE,
   samples=[_INSTANCE, dict(_INSTANCE, output_range_given=True, given_y_min=-1.0, given_y_max=1.5), dict(_INSTANCE, min_separation=9.0, variance_epsilon=0.5)],
   errors=[(dict(_INSTANCE, x_max=-1.0), InvalidArgumentError, "input_min must be less than input_max"), (dict(_INSTANCE, x=_bytes(3, 4)), InvalidArgumentError, "must be rank 4 but is rank 2")])  # fmt: skip

_RESIZE = dict(images=_bytes(2, 5, 6, 3), size=arr([3, 9]), min=-1.0, max=2.0, T="quint8")

op("QuantizedResizeBilinear(images: T, size: int32, min: float, max: float) -> (resized_images: T, out_min: float, out_max: float)"
   " [T: type in {quint8, qint32, float}; align_corners: bool = false; half_pixel_centers: bool = false]",
   shape=ranged(resize_shape, 2, 3), numpy=quantized_images.resize_bilinear, host_memory=["size"], grad=NOT_DIFFERENTIABLE,
   samples=[_RESIZE, dict(_RESIZE, align_corners=True, size=arr([10, 4])), dict(_RESIZE, half_pixel_centers=True), dict(_RESIZE, images=normal(1, 4, 4, 2, dtype=np.float32), T="float"),
            dict(_RESIZE, images=ints(1, 4, 4, 2, lo=-(2**31), hi=2**31, dtype=np.int32), T="qint32")],
   errors=[(dict(_RESIZE, size=arr([0, 4])), InvalidArgumentError, "output dimensions must be positive")])  # fmt: skip
