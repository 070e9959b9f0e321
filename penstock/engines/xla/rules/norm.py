"""Batch normalisation, local response normalisation, and their gradients. Statistics are kept in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import jnp, lax, rule
from penstock.ops.kernels.numeric import narrow, widen
from penstock.ops.kernels.window import layout

_F = np.float32

# -- fused batch normalisation ----------------------------------------------------------------------------------------


class _Channels:
    """A tensor seen channel by channel: how to sum over everything else, and how to spread a value per channel."""

    def __init__(self, x: Any, data_format: bytes) -> None:
        need(x.ndim in (4, 5), "normalisation of another rank")
        fmt = data_format if x.ndim == 4 else {b"NHWC": b"NDHWC", b"NCHW": b"NCDHW"}.get(data_format, data_format)
        need(len(fmt) == x.ndim, "normalisation of another rank")
        axis = layout(fmt).channel
        self.depth = x.shape[axis]
        self.rest = tuple(i for i in range(x.ndim) if i != axis)
        self.count = int(np.prod([x.shape[i] for i in self.rest]))
        self.spread_shape = tuple(-1 if i == axis else 1 for i in range(x.ndim))

    def sums(self, x: Any) -> Any:
        return jnp.sum(x, self.rest)

    def spread(self, v: Any) -> Any:
        return jnp.reshape(v, self.spread_shape)

    def need_vectors(self, *vectors: Any) -> None:
        need(all(v.shape == (self.depth,) for v in vectors), "a vector that does not fit the channels")


def _scaled(ch: _Channels, centred: Any, variance: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    return centred * ch.spread(gamma / jnp.sqrt(variance + _F(epsilon))) + ch.spread(beta)


@rule("FusedBatchNorm", "FusedBatchNormV2")
def fused_batch_norm(
    x: Any, scale: Any, offset: Any, mean: Any, variance: Any, *, epsilon: float, exponential_avg_factor: float, data_format: bytes,
    is_training: bool,
) -> list[Any]:  # fmt: skip
    ch = _Channels(x, data_format)
    ch.need_vectors(scale, offset)
    averages = is_training and exponential_avg_factor != 1.0
    if averages or not is_training:
        ch.need_vectors(mean, variance)
    kept = scale.dtype
    if 0 in x.shape:
        unknown, zero = jnp.full(ch.depth, np.nan, kept), jnp.zeros(ch.depth, kept)
        return [jnp.zeros(x.shape, x.dtype), unknown, unknown, zero, zero]
    wide, gamma, beta = widen(x), widen(scale), widen(offset)
    if not is_training:
        y = _scaled(ch, wide - ch.spread(widen(mean)), widen(variance), gamma, beta, epsilon)
        return [narrow(y, x.dtype), mean, variance, mean, variance]
    batch_mean = ch.sums(wide) / _F(ch.count)
    centred = wide - ch.spread(batch_mean)
    batch_variance = ch.sums(centred * centred) / _F(ch.count)
    y = _scaled(ch, centred, batch_variance, gamma, beta, epsilon)
    # The variance handed on for moving averages is the unbiased one.
    new_mean, new_variance = batch_mean, batch_variance * _F(ch.count / max(ch.count - 1, 1))
    if averages:
        rate = _F(exponential_avg_factor)
        new_mean = (1 - rate) * widen(mean) + rate * new_mean
        new_variance = (1 - rate) * widen(variance) + rate * new_variance
    return [narrow(y, x.dtype), *(narrow(v, kept) for v in (new_mean, new_variance, batch_mean, batch_variance))]


@rule("FusedBatchNormV3")
def fused_batch_norm_v3(
    x: Any, scale: Any, offset: Any, mean: Any, variance: Any, *, epsilon: float, exponential_avg_factor: float, data_format: bytes,
    is_training: bool,
) -> list[Any]:  # fmt: skip
    results = fused_batch_norm(
        x, scale, offset, mean, variance, epsilon=epsilon, exponential_avg_factor=exponential_avg_factor, data_format=data_format,
        is_training=is_training,
    )  # fmt: skip
    return [*results, jnp.zeros((), scale.dtype)]


@rule("FusedBatchNormGrad", "FusedBatchNormGradV2")
def fused_batch_norm_grad(
    dy: Any, x: Any, scale: Any, reserve_1: Any, reserve_2: Any, *, epsilon: float, data_format: bytes, is_training: bool
) -> list[Any]:
    ch = _Channels(x, data_format)
    ch.need_vectors(scale, reserve_1, reserve_2)
    need(x.shape == dy.shape, "a gradient of another shape")
    kept = reserve_1.dtype
    nothing = jnp.zeros(0, kept)
    if 0 in x.shape:
        zero = jnp.zeros(ch.depth, kept)
        return [jnp.zeros(x.shape, x.dtype), zero, zero, nothing, nothing]
    grad, gamma = widen(dy), widen(scale)
    inverse = _F(1) / jnp.sqrt(widen(reserve_2) + _F(epsilon))
    centred = widen(x) - ch.spread(widen(reserve_1))
    d_offset = ch.sums(grad)
    projection = ch.sums(grad * centred)
    dx = grad
    if is_training:
        count = _F(ch.count)
        dx = dx - ch.spread(d_offset / count) - centred * ch.spread(projection * inverse * inverse / count)
    dx = dx * ch.spread(gamma * inverse)
    return [narrow(dx, x.dtype), narrow(projection * inverse, kept), narrow(d_offset, kept), nothing, nothing]


@rule("FusedBatchNormGradV3")
def fused_batch_norm_grad_v3(
    dy: Any, x: Any, scale: Any, reserve_1: Any, reserve_2: Any, reserve_3: Any, *, epsilon: float, data_format: bytes, is_training: bool
) -> list[Any]:
    return fused_batch_norm_grad(
        dy, x, scale, reserve_1, reserve_2, epsilon=epsilon, data_format=data_format, is_training=is_training
    )


# -- the old op -------------------------------------------------------------------------------------------------------


def _need_global(t: Any, *vectors: Any) -> None:
    need(t.ndim == 4 and all(v.shape == t.shape[3:] for v in vectors), "a vector that does not fit the channels")
    # Integers would be divided in float64 and cut off: the kernel does that.
    need(t.dtype.kind not in "iu", "normalisation of integers")


@rule("BatchNormWithGlobalNormalization")
def batch_norm_global(
    t: Any, m: Any, v: Any, beta: Any, gamma: Any, *, variance_epsilon: float, scale_after_normalization: bool
) -> Any:
    _need_global(t, m, v, beta, gamma)
    factor = 1 / jnp.sqrt(widen(v) + variance_epsilon)
    if scale_after_normalization:
        factor = factor * widen(gamma)
    return narrow((widen(t) - widen(m)) * factor + widen(beta), t.dtype)


@rule("BatchNormWithGlobalNormalizationGrad")
def batch_norm_global_grad(
    t: Any, m: Any, v: Any, gamma: Any, backprop: Any, *, variance_epsilon: float, scale_after_normalization: bool
) -> list[Any]:
    _need_global(t, m, v, gamma)
    need(backprop.shape == t.shape, "a gradient of another shape")
    dy, weight = widen(backprop), widen(gamma)
    inverse = 1 / jnp.sqrt(widen(v) + variance_epsilon)
    d_beta = jnp.sum(dy, (0, 1, 2))
    projection = jnp.sum(dy * (widen(t) - widen(m)), (0, 1, 2))
    factor = inverse * weight if scale_after_normalization else inverse
    d_variance = projection * factor * inverse * inverse * -0.5
    d_gamma = projection * inverse if scale_after_normalization else jnp.zeros(d_beta.shape, dy.dtype)
    return [narrow(g, t.dtype) for g in (dy * factor, -d_beta * factor, d_variance, d_beta, d_gamma)]


# -- local response normalisation -------------------------------------------------------------------------------------


def _depth_window_sum(x: Any, radius: int) -> Any:
    """Sums over the channels within `radius` of each channel."""
    radius = min(radius, x.shape[-1] - 1)
    window, pads = (1, 1, 1, 2 * radius + 1), ((0, 0), (0, 0), (0, 0), (radius, radius))
    return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, window, (1, 1, 1, 1), pads)


def _power(norm: Any, exponent: float) -> Any:
    if exponent == -1.0:
        return 1 / norm
    return lax.rsqrt(norm) if exponent == -0.5 else norm ** _F(exponent)


def _need_image(x: Any, depth_radius: int) -> None:
    need(x.ndim == 4 and 0 not in x.shape and 0 <= depth_radius < 1 << 31, "no stack of images")


@rule("LRN")
def lrn(x: Any, *, depth_radius: int, bias: float, alpha: float, beta: float) -> Any:
    if 0 in x.shape and x.ndim == 4:
        return jnp.zeros(x.shape, x.dtype)
    _need_image(x, depth_radius)
    wide = widen(x)
    norm = _depth_window_sum(wide * wide, depth_radius) * _F(alpha) + _F(bias)
    return narrow(wide * _power(norm, -beta), x.dtype)


@rule("LRNGrad")
def lrn_grad(dy: Any, x: Any, y: Any, *, depth_radius: int, bias: float, alpha: float, beta: float) -> Any:
    _need_image(x, depth_radius)
    need(dy.shape == x.shape == y.shape, "a gradient of another shape")
    grad, image, out = widen(dy), widen(x), widen(y)
    norm = _depth_window_sum(image * image, depth_radius) * _F(alpha) + _F(bias)
    shared = _depth_window_sum(grad * out / norm, depth_radius) * image * _F(-2 * alpha * beta)
    return narrow(grad * _power(norm, -beta) + shared, dy.dtype)


@rule("L2Loss")
def l2_loss(t: Any) -> Any:
    wide = widen(t)
    return narrow(jnp.sum(wide * wide) / 2, t.dtype)
