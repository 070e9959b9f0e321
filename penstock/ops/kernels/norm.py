"""Batch normalisation and local response normalisation, with their gradients.

Fused batch normalisation views its input as (N, C, S): channels-last tensors as one long N with S = 1. Statistics are
kept in float32. The reserve spaces are those of TensorFlow's CPU kernels: mean and (uncorrected) variance of the batch.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from penstock import errors
from penstock.ops import native
from penstock.ops.kernels.numeric import column_sums, narrow, widen
from penstock.ops.kernels.window import Slide, layout, show
from penstock.ops.native import channels
from penstock.ops.native.maths import power_of_single


class _Channels:
    """A tensor seen channel by channel: how to sum over everything else, and how to spread a value per channel."""

    def __init__(self, x: np.ndarray, data_format: bytes) -> None:
        fmt = data_format if x.ndim == 4 else {b"NHWC": b"NDHWC", b"NCHW": b"NCDHW"}.get(data_format, data_format)
        lay = layout(fmt)
        self.shape = x.shape
        self.depth = x.shape[lay.channel]
        self.last = lay.channels_last
        self.count = x.size // self.depth if self.depth else 0

    def view(self, x: np.ndarray) -> np.ndarray:
        x = widen(x)
        if self.last:
            return x.reshape(-1, self.depth) if x.size else np.zeros((0, self.depth), x.dtype)
        return x.reshape(self.shape[0], self.depth, -1) if x.size else np.zeros((0, self.depth, 1), x.dtype)

    def sums(self, x: np.ndarray) -> np.ndarray:
        return column_sums(x) if self.last else np.add.reduce(np.add.reduce(x, 2), 0)

    def spread(self, v: np.ndarray) -> np.ndarray:
        return v if self.last else v[:, None]


def _check_input(x: np.ndarray) -> None:
    if x.ndim not in (4, 5):
        raise errors.InvalidArgumentError(f"input must be 4 or 5-dimensional{show(x.shape)}")


def _check_vector(v: np.ndarray, name: str, depth: int, when: str = "") -> None:
    if v.ndim != 1:
        raise errors.InvalidArgumentError(f"{name} must be 1-dimensional{show(v.shape)}")
    if v.shape[0] != depth:
        raise errors.InvalidArgumentError(
            f"{when}{name} must have the same number of elements as the channels of x, got {v.shape[0]} and {depth}"
        )


def fused_batch_norm(x, scale, offset, mean, variance, *, epsilon, exponential_avg_factor, data_format, is_training):
    """FusedBatchNorm and V2: y, batch mean, batch variance, and two reserve spaces."""
    _check_input(x)
    ch = _Channels(x, data_format)
    _check_vector(scale, "scale", ch.depth)
    _check_vector(offset, "offset", ch.depth)
    if not is_training or exponential_avg_factor != 1.0:
        when = "When exponential_avg_factor != 1, " if is_training else "When is_training=false, "
        _check_vector(mean, "mean", ch.depth, when)
        _check_vector(variance, "variance", ch.depth, when)
    kept = scale.dtype
    if not x.size:
        unknown, zero = np.full(ch.depth, np.nan, kept), np.zeros(ch.depth, kept)
        return [np.zeros(x.shape, x.dtype), unknown, unknown, zero, zero]
    wide = ch.view(x)
    gamma, beta = widen(scale), widen(offset)
    if not is_training:
        y = _normalise(ch, wide, widen(mean), widen(variance), gamma, beta, epsilon)
        return [narrow(y.reshape(x.shape), x.dtype), mean, variance, mean, variance]
    batch_mean = ch.sums(wide) / np.float32(ch.count)
    centred = wide - ch.spread(batch_mean)
    batch_variance = ch.sums(centred * centred) / np.float32(ch.count)
    centred *= ch.spread(gamma / np.sqrt(batch_variance + np.float32(epsilon)))
    centred += ch.spread(beta)
    # The variance handed on for moving averages is the unbiased one.
    new_mean = batch_mean
    new_variance = batch_variance * np.float32(ch.count / max(ch.count - 1, 1))
    if exponential_avg_factor != 1.0:
        rate = np.float32(exponential_avg_factor)
        new_mean = (1 - rate) * widen(mean) + rate * new_mean
        new_variance = (1 - rate) * widen(variance) + rate * new_variance
    y = narrow(centred.reshape(x.shape), x.dtype)
    return [y, *(narrow(v, kept) for v in (new_mean, new_variance, batch_mean, batch_variance))]


def _normalise(ch: _Channels, x, mean, variance, gamma, beta, epsilon) -> np.ndarray:
    y = x - ch.spread(mean)
    y *= ch.spread(gamma / np.sqrt(variance + np.float32(epsilon)))
    y += ch.spread(beta)
    return y


def fused_batch_norm_v3(x, scale, offset, mean, variance, *, epsilon, exponential_avg_factor, data_format, is_training):
    """FusedBatchNormV3: one more reserve space, a zero on CPUs."""
    results = fused_batch_norm(
        x,
        scale,
        offset,
        mean,
        variance,
        epsilon=epsilon,
        exponential_avg_factor=exponential_avg_factor,
        data_format=data_format,
        is_training=is_training,
    )
    return [*results, np.zeros((), scale.dtype)]


def fused_batch_norm_grad(dy, x, scale, reserve_1, reserve_2, *, epsilon, data_format, is_training):
    """FusedBatchNormGrad V1 and V2: gradients of x, scale and offset, and two empty reserve spaces."""
    _check_input(dy)
    _check_input(x)
    ch = _Channels(x, data_format)
    for v, name in ((scale, "scale"), (reserve_1, "reserve_space_1"), (reserve_2, "reserve_space_2")):
        _check_vector(v, name, ch.depth)
    if x.shape != dy.shape:
        raise errors.InvalidArgumentError(
            "x and y_backprop must have same shape, but x has shape "
            f"{show(x.shape)} and y_backprop has shape {show(dy.shape)}"
        )
    kept = reserve_1.dtype
    nothing = np.zeros(0, kept)
    if not x.size:
        zero = np.zeros(ch.depth, kept)
        return [np.zeros(x.shape, x.dtype), zero, zero, nothing, nothing]
    grad, gamma = ch.view(dy), widen(scale)
    inverse = np.float32(1) / np.sqrt(widen(reserve_2) + np.float32(epsilon))
    centred = ch.view(x) - ch.spread(widen(reserve_1))
    d_offset = ch.sums(grad)
    projection = ch.sums(grad * centred)
    if is_training:
        count = np.float32(ch.count)
        centred *= ch.spread(projection * inverse * inverse / count)
        dx = grad - ch.spread(d_offset / count)
        dx -= centred
        dx *= ch.spread(gamma * inverse)
    else:
        dx = grad * ch.spread(gamma * inverse)
    dx = narrow(dx.reshape(x.shape), x.dtype)
    return [dx, narrow(projection * inverse, kept), narrow(d_offset, kept), nothing, nothing]


def fused_batch_norm_grad_v3(dy, x, scale, reserve_1, reserve_2, reserve_3, *, epsilon, data_format, is_training):
    """FusedBatchNormGradV3: the third reserve space is not used on CPUs."""
    return fused_batch_norm_grad(
        dy, x, scale, reserve_1, reserve_2, epsilon=epsilon, data_format=data_format, is_training=is_training
    )


# ---------------------------------------------------------------------------------------------------------------------
# The old op, over the last of four dimensions


def batch_norm_global(t, m, v, beta, gamma, *, variance_epsilon, scale_after_normalization):
    """BatchNormWithGlobalNormalization."""
    _check_global(t, mean=m, var=v, beta=beta, gamma=gamma)
    factor = 1 / np.sqrt(widen(v) + variance_epsilon)
    if scale_after_normalization:
        factor = factor * widen(gamma)
    return narrow((widen(t) - widen(m)) * factor + widen(beta), t.dtype)


def batch_norm_global_grad(t, m, v, gamma, backprop, *, variance_epsilon, scale_after_normalization):
    """BatchNormWithGlobalNormalizationGrad: gradients of t, m, v, beta and gamma."""
    _check_global(t, mean=m, var=v, gamma=gamma)
    depth = t.shape[-1]
    dy, mean, weight = widen(backprop), widen(m), widen(gamma)
    inverse = 1 / np.sqrt(widen(v) + variance_epsilon)
    d_beta = column_sums(dy.reshape(-1, depth))
    projection = column_sums((dy * (widen(t) - mean)).reshape(-1, depth))
    factor = inverse * weight if scale_after_normalization else inverse
    d_mean = -d_beta * factor
    d_variance = projection * factor * inverse * inverse * widen(np.array(-0.5, t.dtype))
    d_gamma = projection * inverse if scale_after_normalization else np.zeros(depth, dy.dtype)
    return [narrow(g, t.dtype) for g in (dy * factor, d_mean, d_variance, d_beta, d_gamma)]


def _check_global(t: np.ndarray, **vectors: np.ndarray) -> None:
    if t.ndim != 4:
        raise errors.InvalidArgumentError(f"input must be 4-dimensional{show(t.shape)}")
    for name, value in vectors.items():
        if value.ndim != 1:
            raise errors.InvalidArgumentError(f"{name} must be 1-dimensional{show(value.shape)}")


# ---------------------------------------------------------------------------------------------------------------------
# Local response normalisation


def _depth_window_sum(x: np.ndarray, radius: int, of_squares: bool = False) -> np.ndarray:
    """Sums of numbers, or their squares, over the channels within `radius` of each channel."""
    depth = x.shape[-1]
    rows, radius = x.reshape(-1, depth), min(radius, depth - 1)
    if x.dtype == np.float32 and x.size >= native.SMALL and native.available():
        padded = np.zeros((len(rows), depth + 2 * radius, 1), x.dtype)
        inner = padded[:, radius : radius + depth, 0]
        np.multiply(rows, rows if of_squares else 1, out=inner)
        window = 2 * radius + 1
        return channels.correlate(padded, np.ones((window, 1), x.dtype), [Slide(depth + 2 * radius, window, 1, 1, depth, 0, 0)]).reshape(x.shape)
    near = np.abs(np.subtract.outer(np.arange(depth), np.arange(depth))) <= radius
    return np.matmul(rows * rows if of_squares else rows, near.astype(x.dtype)).reshape(x.shape)


def _check_radius(depth_radius: int) -> None:
    if not 0 <= depth_radius < 1 << 31:
        raise errors.InvalidArgumentError(f"depth_radius = {depth_radius} larger than int max")


def lrn(x, *, depth_radius, bias, alpha, beta):
    """LRN: x / (bias + alpha * sum of squares over nearby channels) ** beta."""
    _check_radius(depth_radius)
    if x.ndim != 4:
        raise errors.InvalidArgumentError("in must be 4-dimensional")
    if not x.size:
        return np.zeros(x.shape, x.dtype)
    wide = widen(x)
    sums = _depth_window_sum(wide, depth_radius, of_squares=True)
    found = _native_response(bias, alpha, beta).run(wide, sums) if wide.dtype == np.float32 and wide.size >= native.SMALL else None
    if found is None:
        found = wide * _power(_norm(sums, bias, alpha), -beta)
    return narrow(found, x.dtype)


def _norm(sums: Any, bias: float, alpha: float) -> Any:
    return sums * sums.dtype.type(alpha) + sums.dtype.type(bias)


def _power(norm: Any, exponent: float, is_traced: bool = False) -> Any:
    """Powers of quarters are made of roots. `is_traced`: of a vector of a loop, for singles."""
    if exponent == -1.0:
        return 1 / norm
    if exponent == -0.5:
        return 1 / np.sqrt(norm)
    if exponent == -0.75:
        root = np.sqrt(norm)
        return 1 / (root * np.sqrt(root))
    if is_traced and exponent % 1:
        return power_of_single(norm, exponent)
    return np.power(norm, norm.dtype.type(exponent))


def _in_type(beta: float) -> str:
    """Logarithms are taken in double precision."""
    return "f32" if beta in (0.5, 0.75, 1.0) else "f64"


@functools.lru_cache(64)
def _native_response(bias: float, alpha: float, beta: float) -> native.Loop:
    return native.Loop(lambda x, sums: x * _power(_norm(sums, bias, alpha), -beta, is_traced=True), _in_type(beta))


@functools.lru_cache(64)
def _native_gradient(bias: float, alpha: float, beta: float) -> native.Loop:
    return native.Loop(lambda dy, x, sums, shared: dy * _power(_norm(sums, bias, alpha), -beta, is_traced=True) + shared * x * (-2 * alpha * beta), _in_type(beta))


def lrn_grad(input_grads, input_image, output_image, *, depth_radius, bias, alpha, beta):
    """LRNGrad."""
    _check_radius(depth_radius)
    if input_grads.ndim != 4 or input_image.ndim != 4:
        raise errors.InvalidArgumentError("inputs must be 4-dimensional")
    if not input_grads.shape == input_image.shape == output_image.shape:
        raise errors.InvalidArgumentError("input_grads, input_image, and out_image should have the same shape")
    if not input_image.size:
        return np.zeros(input_image.shape, input_grads.dtype)
    dy, x, y = widen(input_grads), widen(input_image), widen(output_image)
    sums = _depth_window_sum(x, depth_radius, of_squares=True)
    norm = _norm(sums, bias, alpha)
    shared = _depth_window_sum(dy * y / norm, depth_radius)
    found = _native_gradient(bias, alpha, beta).run(dy, x, sums, shared) if dy.dtype == np.float32 and dy.size >= native.SMALL else None
    if found is None:
        shared *= x
        shared *= np.float32(-2 * alpha * beta)
        found = dy * _power(norm, -beta) + shared
    return narrow(found, input_grads.dtype)


def l2_loss(t):
    """L2Loss: half the sum of squares."""
    wide = np.ravel(widen(t))
    # A dot product of stretches: long vectors keep float32 accuracy.
    whole = wide.size // 256 * 256
    total = np.dot(wide[whole:], wide[whole:])
    if whole:
        stretches = wide[:whole].reshape(-1, 256)
        total = total + np.add.reduce(np.vecdot(stretches, stretches))
    return (total / 2).astype(t.dtype)
