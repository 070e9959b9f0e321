"""Moments, batch normalisation and local response normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api import array_ops, math_ops, math_reduce
from penstock.api.array_indexing import gather
from penstock.api.array_ops import one_of
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.graph.constant import constant
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

# -- moments ----------------------------------------------------------------------------------------------------------


@export("nn.sufficient_statistics")
def sufficient_statistics(
    x: Any, axes: Any, shift: Any = None, keep_dims: bool | None = None, name: str | None = None, keepdims: bool | None = None
) -> tuple[Tensor, Tensor, Tensor, Any]:
    """(count, sum, sum of squares, shift) over `axes`, of x or of x - shift: what `normalize_moments` needs."""
    keep = bool(one_of(keepdims, keep_dims, "keepdims", "keep_dims"))
    axes = sorted(set(axes))
    with name_scope(name, "sufficient_statistics", [x, shift]):
        x = convert_to_tensor(x, name="x")
        if x.dims is not None and all(x.dims[d] is not None for d in axes):
            total = 1
            for d in axes:
                total *= x.dims[d]
            count: Tensor = constant(total, dtype=x.dtype)
        else:
            positive = [d % array_ops.rank(x) if d < 0 and x.dims is None else d % len(x.dims) if d < 0 else d for d in axes]  # type: ignore[arg-type]
            sizes = gather(math_ops.cast(array_ops.shape(x), x.dtype), positive)
            count = math_reduce.reduce_prod(sizes, name="count")
        if shift is not None:
            shift = convert_to_tensor(shift, name="shift")
            first, second = raw.Sub(x, shift), raw.SquaredDifference(x, shift)
        else:
            first, second = x, raw.Square(x)
        mean_ss = math_reduce.reduce_sum(first, axes, keepdims=keep, name="mean_ss")
        var_ss = math_reduce.reduce_sum(second, axes, keepdims=keep, name="var_ss")
    return count, mean_ss, var_ss, shift


@export("nn.normalize_moments")
def normalize_moments(counts: Any, mean_ss: Any, variance_ss: Any, shift: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """(mean, variance) from the results of `sufficient_statistics`."""
    with name_scope(name, "normalize", [counts, mean_ss, variance_ss, shift]):
        divisor = raw.Reciprocal(counts, name="divisor")
        if shift is not None:
            shifted = raw.Mul(mean_ss, divisor, name="shifted_mean")
            mean = raw.AddV2(shifted, shift, name="mean")
        else:
            shifted = mean = raw.Mul(mean_ss, divisor, name="mean")
        variance = raw.Sub(raw.Mul(variance_ss, divisor), raw.Square(shifted), name="variance")
    return mean, variance


@export("nn.moments")
def moments(
    x: Any, axes: Any, shift: Any = None, name: str | None = None, keep_dims: bool | None = None, keepdims: bool | None = None
) -> tuple[Tensor, Tensor]:
    """(mean, variance) of `x` over `axes`; half precision is computed in float32. `shift` is not used."""
    keep = bool(one_of(keepdims, keep_dims, "keepdims", "keep_dims"))
    with name_scope(name, "moments", [x, axes]):
        x = convert_to_tensor(x) if not isinstance(x, Tensor) else x
        narrow = x.dtype.base_dtype in (dtypes.float16, dtypes.bfloat16)
        y = math_ops.cast(x, dtypes.float32) if narrow else x
        mean = math_reduce.reduce_mean(y, axes, keepdims=True, name="mean")
        # The mean's own gradient through the variance vanishes; stopping it saves the work.
        spread = raw.SquaredDifference(y, array_ops.stop_gradient(mean))
        variance = math_reduce.reduce_mean(spread, axes, keepdims=True, name="variance")
        if not keep:
            mean, variance = array_ops.squeeze(mean, axes), array_ops.squeeze(variance, axes)
        if narrow:
            return math_ops.cast(mean, x.dtype), math_ops.cast(variance, x.dtype)
        return mean, variance


@export("nn.weighted_moments")
def weighted_moments(
    x: Any, axes: Any, frequency_weights: Any, name: str | None = None, keep_dims: bool | None = None, keepdims: bool | None = None
) -> tuple[Tensor, Tensor]:
    """(mean, variance) over `axes`, in which elements count as often as `frequency_weights` says."""
    keep = bool(one_of(keepdims, keep_dims, "keepdims", "keep_dims"))
    with name_scope(name, "weighted_moments", [x, frequency_weights, axes]):
        x = convert_to_tensor(x, name="x")
        weights = convert_to_tensor(frequency_weights, name="frequency_weights")
        narrow = x.dtype.base_dtype in (dtypes.float16, dtypes.bfloat16)
        wanted = x.dtype
        if narrow:
            x = math_ops.cast(x, dtypes.float32)
        if weights.dtype != x.dtype:
            weights = math_ops.cast(weights, x.dtype)
        weighted_sum = math_reduce.reduce_sum(weights * x, axes, name="weighted_input_sum", keepdims=True)
        # Weights of fewer elements than x count once for each element that they stand for.
        spread_weights = weights + array_ops.zeros_like(x)
        total = math_reduce.reduce_sum(spread_weights, axes, name="sum_of_weights", keepdims=True)
        mean = raw.DivNoNan(weighted_sum, total, name="div_no_nan")
        squares = math_reduce.reduce_sum(weights * raw.SquaredDifference(x, mean), axes, name="weighted_distsq", keepdims=True)
        variance = raw.DivNoNan(squares, total, name="div_no_nan")
        if not keep:
            mean, variance = array_ops.squeeze(mean, axes), array_ops.squeeze(variance, axes)
        if narrow:
            mean, variance = math_ops.cast(mean, wanted), math_ops.cast(variance, wanted)
        return mean, variance


# -- batch normalisation ----------------------------------------------------------------------------------------------


@export("nn.batch_normalization")
def batch_normalization(
    x: Any, mean: Any, variance: Any, offset: Any, scale: Any, variance_epsilon: Any, name: str | None = None
) -> Tensor:
    """scale * (x - mean) / sqrt(variance + variance_epsilon) + offset; `offset` and `scale` may be None."""
    with name_scope(name, "batchnorm", [x, mean, variance, scale, offset]):
        inverse = raw.Rsqrt(variance + variance_epsilon)
        if scale is not None:
            inverse = inverse * scale
        # x * inverse + constant: two passes over x instead of four.
        shift = offset - mean * inverse if offset is not None else -mean * inverse
        x = convert_to_tensor(x)
        return x * math_ops.cast(inverse, x.dtype) + math_ops.cast(shift, x.dtype)


@export("nn.batch_norm_with_global_normalization")
def batch_norm_with_global_normalization(
    t: Any = None, m: Any = None, v: Any = None, beta: Any = None, gamma: Any = None, variance_epsilon: Any = None,
    scale_after_normalization: bool | None = None, name: str | None = None, input: Any = None, mean: Any = None, variance: Any = None,
) -> Tensor:  # fmt: skip
    """Deprecated: `tf.nn.batch_normalization`. `gamma` counts only with `scale_after_normalization`."""
    t, m, v = one_of(t, input, "t", "input"), one_of(m, mean, "m", "mean"), one_of(v, variance, "v", "variance")
    return batch_normalization(t, m, v, beta, gamma if scale_after_normalization else None, variance_epsilon, name)


@export("nn.fused_batch_norm")
def fused_batch_norm(
    x: Any, scale: Any, offset: Any, mean: Any = None, variance: Any = None, epsilon: float = 0.001, data_format: str = "NHWC",
    is_training: bool = True, name: str | None = None, exponential_avg_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(y, batch mean, batch variance) of batch normalisation over everything but channels.

    In training, statistics come from the batch, and the returned ones are averaged into `mean` and `variance` if
    `exponential_avg_factor` is not 1. Otherwise `mean` and `variance` are used and returned.
    """
    if (not is_training or exponential_avg_factor != 1.0) and (mean is None or variance is None):
        raise ValueError(
            "Both `mean` and `variance` must be a 1D tensor when `is_training` is False or `exponential_avg_factor` != 1.0. "
            f"Received: `mean` {mean!r} and `variance` {variance!r}"
        )
    x = convert_to_tensor(x, name="input")
    scale, offset = convert_to_tensor(scale, name="scale"), convert_to_tensor(offset, name="offset")
    mean = constant(np.zeros(0, np.float32)) if mean is None else mean
    variance = constant(np.zeros(0, np.float32)) if variance is None else variance
    # cuDNN's smallest epsilon; used everywhere, so that devices agree.
    epsilon = max(epsilon, 1.001e-5)
    result = raw.FusedBatchNormV3(
        x, scale, offset, mean, variance, epsilon=epsilon, data_format=data_format, is_training=is_training,
        exponential_avg_factor=exponential_avg_factor, name=name,
    )  # fmt: skip
    return result[0], result[1], result[2]


@export("nn.lrn", "nn.local_response_normalization")
def lrn(
    input: Any, depth_radius: int = 5, bias: float = 1, alpha: float = 1, beta: float = 0.5, name: str | None = None
) -> Tensor:
    """input / (bias + alpha * sum of squares over channels within `depth_radius`) ** beta."""
    return raw.LRN(input, depth_radius=depth_radius, bias=bias, alpha=alpha, beta=beta, name=name)
