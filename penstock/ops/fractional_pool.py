"""Fractional pooling: max and average pooling over regions of uneven sizes, drawn at random."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.declare import op, with_rank
from penstock.ops.kernels import fractional
from penstock.ops.samples import arr, normal
from penstock.shapes import Dims

_TYPES = "{float, double, int32, int64}"
_ATTRS = (
    "pooling_ratio: list(float) >= 4; pseudo_random: bool = false; overlapping: bool = false; deterministic: bool = false; seed: int = 0;"
    f" seed2: int = 0; T: type in {_TYPES}"
)


def pooled_shape(c: Any) -> list[Dims]:
    dims = with_rank(c, 0, 4)
    ratios = c.attrs["pooling_ratio"]
    if len(ratios) != 4:
        raise ValueError(f"pooling_ratio field must specify 4 dimensions but got {len(ratios)}")
    for ratio in ratios:
        if ratio < 1:
            raise ValueError(f"pooling_ratio cannot be smaller than 1, got: {ratio:g}")
    return [tuple(None if size is None else math.floor(size / ratio) for size, ratio in zip(dims, ratios, strict=True)), (None,), (None,)]


def max_grad(g: Any, op: Any, dy: Any, *_: Any) -> Any:
    return g.FractionalMaxPoolGrad(op.value, op.output, dy, op.row_pooling_sequence, op.col_pooling_sequence, overlapping=op.attr("overlapping"))


def avg_grad(g: Any, op: Any, dy: Any, *_: Any) -> Any:
    shape = g.Shape(op.value, out_type="int64")
    return g.FractionalAvgPoolGrad(shape, dy, op.row_pooling_sequence, op.col_pooling_sequence, overlapping=op.attr("overlapping"))


_CASES = [
    dict(pooling_ratio=[1.0, *ratios, 1.0], pseudo_random=pseudo, overlapping=overlapping, deterministic=True, seed=seed, seed2=seed2)
    for ratios, seed, seed2 in (((1.44, 1.73), 5, 0), ((2.0, 1.5), 3, 7))
    for pseudo in (False, True)
    for overlapping in (False, True)
]
_REGIONS = dict(row_pooling_sequence=arr([0, 2, 5, 7], dtype=np.int64), col_pooling_sequence=arr([0, 4, 8], dtype=np.int64))
_X = np.random.default_rng(0).integers(-9, 10, (2, 7, 8, 3))
_MAX = np.maximum.reduceat(np.maximum.reduceat(_X, [0, 2, 5], 1), [0, 4], 2)

op(f"FractionalMaxPool(value: T) -> (output: T, row_pooling_sequence: int64, col_pooling_sequence: int64) [{_ATTRS}]",
   shape=pooled_shape, numpy=fractional.fractional_max_pool, grad=max_grad, expensive=True,
   samples=[dict(value=normal(2, 10, 12, 3), **case) for case in _CASES],
   errors=[(dict(value=normal(1, 7, 8, 2), pooling_ratio=[1.0, 1.4, 1.4, 1.0], seed=3), InvalidArgumentError, "Both seed and seed2 should be 0"),
           (dict(value=normal(1, 7, 8, 2), pooling_ratio=[1.0, 9.0, 1.4, 1.0]), InvalidArgumentError, "Pooling ratio is higher than input dimension size")])  # fmt: skip
op("FractionalMaxPoolGrad(orig_input: T, orig_output: T, out_backprop: T, row_pooling_sequence: int64, col_pooling_sequence: int64) -> (output: T)"
   f" [overlapping: bool = false; T: type in {_TYPES}]",
   shape=lambda c: with_rank(c, 0, 4), numpy=fractional.fractional_max_pool_grad, expensive=True,
   samples=[dict(orig_input=arr(_X), orig_output=arr(_MAX), out_backprop=normal(2, 3, 2, 3), **_REGIONS)])  # fmt: skip
op(f"FractionalAvgPool(value: T) -> (output: T, row_pooling_sequence: int64, col_pooling_sequence: int64) [{_ATTRS}]",
   shape=pooled_shape, numpy=fractional.fractional_avg_pool, grad=avg_grad, expensive=True,
   samples=[dict(value=normal(2, 10, 12, 3), **case) for case in _CASES],
   errors=[(dict(value=normal(1, 7, 8, 2), pooling_ratio=[1.0, 1.4, 1.4, 1.0], seed2=3), InvalidArgumentError, "Both seed and seed2 should be 0")])  # fmt: skip
op("FractionalAvgPoolGrad(orig_input_tensor_shape: int64, out_backprop: T, row_pooling_sequence: int64, col_pooling_sequence: int64) -> (output: T)"
   f" [overlapping: bool = false; T: type in {_TYPES}]",
   shape=lambda c: c.const_dims(0) if c.const_dims(0) is not None else (None,) * 4, numpy=fractional.fractional_avg_pool_grad, expensive=True,
   host_memory=["orig_input_tensor_shape"],
   samples=[dict(orig_input_tensor_shape=arr([2, 7, 8, 3], dtype=np.int64), out_backprop=normal(2, 3, 2, 3), overlapping=o, **_REGIONS) for o in (False, True)])  # fmt: skip
