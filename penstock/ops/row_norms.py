"""Normalisation of rows in one node, as the optimiser makes it of the ops that `tf.nn.moments` and `tf.nn.batch_normalization` write down.

    _LayerNorm(x, scale, offset)                     y = x * k + (offset - mean * k), k = scale / sqrt(variance + epsilon)
    _LayerNormGrad(dy, x, scale, mean, variance)     gradients of x, scale and offset
    _SoftmaxGrad(dy, softmax)                        the gradient of a softmax: (dy - sum(dy * softmax)) * softmax

Rows are the last dimension. Mean and variance keep it, with one element.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.graph.ir import Dims
from penstock.ops.declare import merge_same, op, with_rank_at_least


def layer_norm_kernel(x: Any, scale: Any, offset: Any, *, epsilon: float) -> list[Any]:
    mean = np.mean(x, -1, keepdims=True)
    variance = np.mean(np.square(x - mean), -1, keepdims=True)
    k = 1 / np.sqrt(variance + np.float32(epsilon)) * scale
    return [x * k + (offset - mean * k), mean, variance]


def layer_norm_shape(c: Any) -> list[Dims]:
    dims = with_rank_at_least(c, 0, 1)
    rows = None if dims is None else (*dims[:-1], 1)
    return [dims, rows, rows]


def layer_norm_grad_kernel(dy: Any, x: Any, scale: Any, mean: Any, variance: Any, *, epsilon: float) -> list[Any]:
    r = 1 / np.sqrt(variance + np.float32(epsilon))
    normal = (x - mean) * r
    slope = dy * scale
    dx = r * (slope - np.mean(slope, -1, keepdims=True) - normal * np.mean(slope * normal, -1, keepdims=True))
    others = tuple(range(x.ndim - 1))
    return [dx, np.sum(dy * normal, others), np.sum(dy, others)]


def layer_norm_grad_shape(c: Any) -> list[Dims]:
    dims = with_rank_at_least(c, 1, 1)
    depth = None if dims is None else dims[-1:]
    return [dims, depth, depth]


def softmax_grad_kernel(dy: Any, softmax: Any) -> Any:
    return (dy - np.sum(dy * softmax, -1, keepdims=True)) * softmax


op("_LayerNorm(x: T, scale: T, offset: T) -> (y: T, mean: T, variance: T) [T: type in {float}; epsilon: float = 0.001]",
   shape=layer_norm_shape, numpy=layer_norm_kernel, expensive=True)  # fmt: skip

op("_LayerNormGrad(dy: T, x: T, scale: T, mean: T, variance: T) -> (dx: T, dscale: T, doffset: T) [T: type in {float}; epsilon: float = 0.001]",
   shape=layer_norm_grad_shape, numpy=layer_norm_grad_kernel, expensive=True)  # fmt: skip

op("_SoftmaxGrad(dy: T, softmax: T) -> (dx: T) [T: type in {float}]", shape=merge_same, numpy=softmax_grad_kernel, expensive=True)
