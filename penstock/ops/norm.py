"""Normalisation: fused batch normalisation, the old global one, local response normalisation, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import float32
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import op, with_rank
from penstock.ops.kernels import norm
from penstock.ops.kernels.window import layout
from penstock.ops.samples import arr, empty, normal, program, uniform
from penstock.shapes import merge_dim, merge_dims

# -- fused batch normalisation ----------------------------------------------------------------------------------------


def with_channels(dims: Dims, axis: int, channels: int | None) -> Dims:
    return (*dims[:axis], channels, *dims[axis + 1 :])  # type: ignore[index]


def batch_norm_shape(c: Any) -> list[Dims]:
    lay = layout(c.attrs["data_format"])
    dims = with_rank(c, 0, lay.rank)
    channels = dims[lay.channel]  # type: ignore[index]
    # While training on fresh averages, mean and variance may be empty.
    used = 3 if c.attrs["is_training"] and c.attrs["exponential_avg_factor"] == 1.0 else 5
    for i in range(1, used):
        channels = merge_dim(channels, with_rank(c, i, 1)[0])  # type: ignore[index]
    vectors: list[Dims] = [(channels,)] * 4
    rest: list[Dims] = [None] * (len(c.op.outputs) - 5)
    return [with_channels(dims, lay.channel, channels), *vectors, *rest]


def batch_norm_grad_shape(c: Any) -> list[Dims]:
    lay = layout(c.attrs["data_format"])
    dims = with_rank(c, 0, lay.rank)
    channels = merge_dim(dims[lay.channel], with_rank(c, 1, lay.rank)[lay.channel])  # type: ignore[index]
    for i in (2, 3, 4):
        channels = merge_dim(channels, with_rank(c, i, 1)[0])  # type: ignore[index]
    return [with_channels(dims, lay.channel, channels), (channels,), (channels,), (0,), (0,)]


CHANNELS_FIRST = {b"NCHW": (b"NHWC", [0, 2, 3, 1], [0, 3, 1, 2]), b"NCDHW": (b"NDHWC", [0, 2, 3, 4, 1], [0, 4, 1, 2, 3])}


def batch_norm_grad(grad_op: str) -> Any:
    """The gradient of a FusedBatchNorm, through op `grad_op`. With fixed statistics it computes channels last, as TF does."""

    def rule(g: Any, op: Any, dy: Any, *more: Any) -> list[Any]:
        build, x, data_format = getattr(g, grad_op), op.x, op.attr("data_format")
        training = op.attr("is_training")
        attrs = dict(epsilon=op.attr("epsilon"), is_training=training)
        third = op.outputs[5:6]
        if training:
            saved = [op.reserve_space_1, op.reserve_space_2, *third]
            dx, d_scale, d_offset, *_ = build(dy, x, op.scale, *saved, data_format=data_format, **attrs)
            return [dx, d_scale, d_offset, None, None]
        saved = [op.mean, op.variance, *third]
        if data_format not in CHANNELS_FIRST:
            dx, d_scale, d_offset, *_ = build(dy, x, op.scale, *saved, data_format=data_format, **attrs)
            return [dx, d_scale, d_offset, None, None]
        last, there, back = CHANNELS_FIRST[data_format]
        dx, d_scale, d_offset, *_ = build(
            g.Transpose(dy, there), g.Transpose(x, there), op.scale, *saved, data_format=last, **attrs
        )
        return [g.Transpose(dx, back), d_scale, d_offset, None, None]

    return rule


def batch_norm_grad_grad(g: Any, op: Any, a: Any, b: Any, d: Any, *_: Any) -> list[Any]:
    """Second order, written out: a, b, d are the gradients that reach dx, d_scale and d_offset.

    With c = x - mean, r = 1 / sqrt(variance + epsilon), p = mean(dy c), q = mean(a c) and P(t) = t - mean(t) - r^2 c mean(t c):
    dx = scale r P(dy), d_scale = r sum(dy c), d_offset = sum(dy).
    """
    lay = layout(op.attr("data_format"))
    axes = [0, *lay.spatial]
    dtype = op.attr("T")

    def wide(t: Any) -> Any:
        return t if dtype is float32 else g.Cast(t, DstT=float32)

    def mean(t: Any) -> Any:
        return g.Mean(t, axes, keep_dims=True)

    def total(t: Any) -> Any:
        return g.Sum(t, axes, keep_dims=True)

    def mul(first: Any, *rest: Any) -> Any:
        for t in rest:
            first = g.Mul(first, t)
        return first

    spread = [-1 if i == lay.channel else 1 for i in range(lay.rank)]
    x, dy, a = wide(op.x), wide(op.y_backprop), wide(a)
    scale, b, d = (g.Reshape(t, spread) for t in (op.scale, b, d))
    if not op.attr("is_training"):
        centre, variance = (g.Reshape(t, spread) for t in (op.reserve_space_1, op.reserve_space_2))
        r = g.Rsqrt(g.AddV2(variance, op.attr("epsilon")))
        c = g.Sub(x, centre)
        d_dy = g.AddV2(g.AddV2(mul(a, scale, r), mul(c, b, r)), d)
        d_x = mul(dy, b, r)
        d_scale = mul(r, total(g.Mul(a, dy)))
    else:
        c = g.Sub(x, mean(x))
        r = g.Rsqrt(g.AddV2(mean(g.Square(c)), op.attr("epsilon")))
        r2 = g.Square(r)
        r3 = g.Mul(r2, r)
        dy0, a0 = g.Sub(dy, mean(dy)), g.Sub(a, mean(a))
        p, q = mean(g.Mul(dy, c)), mean(g.Mul(a, c))
        # k / n and p q: what the chain through r sees.
        k = mean(g.Mul(a, dy0))
        d_scale = mul(r, total(g.Mul(a, g.Sub(dy0, mul(r2, p, c)))))
        d_dy = g.AddV2(g.AddV2(mul(scale, r, g.Sub(a0, mul(r2, q, c))), mul(b, r, c)), d)
        through_r = g.Mul(c, g.Sub(mul(r2, p, q, g.const(3.0, float32)), k))
        from_dx = mul(scale, r3, g.Sub(through_r, g.AddV2(g.Mul(q, dy0), g.Mul(p, a0))))
        from_scale = mul(b, r, g.Sub(dy0, mul(r2, p, c)))
        d_x = g.AddV2(from_dx, from_scale)
    d_scale = g.Reshape(d_scale, [-1])
    if dtype is not float32:
        d_dy, d_x = g.Cast(d_dy, DstT=dtype), g.Cast(d_x, DstT=dtype)
    return [d_dy, d_x, d_scale, *[None] * (len(op.inputs) - 3)]


SHAPES = {"NHWC": (2, 3, 4, 5), "NCHW": (2, 5, 3, 4), "NDHWC": (2, 3, 2, 2, 5), "NCDHW": (2, 5, 3, 2, 2)}


def batch_norm_samples(name: str, *formats: str) -> list[Any]:
    base = dict(scale=normal(5), offset=normal(5), epsilon=0.01)
    given = dict(mean=normal(5), variance=uniform(5, lo=0.5, hi=2))
    found: list[Any] = []
    for fmt in formats:
        x = dict(x=normal(*SHAPES[fmt]), data_format=fmt)
        found.append({**x, **base, "mean": empty(0), "variance": empty(0)})
        found.append({**x, **base, **given, "exponential_avg_factor": 0.25})
        found.append(program(fixed_statistics(name, fmt)))
    return found


def fixed_statistics(name: str, fmt: str) -> Any:
    """Inference as a program: TensorFlow leaves the reserve spaces undefined then, so they are not compared."""

    def fn(tf: Any) -> Any:
        r = np.random.default_rng(1)

        def given(array: np.ndarray) -> Any:
            # Not a constant: TensorFlow's optimizer would rewrite the op and lose its other outputs.
            return tf.placeholder_with_default(array.astype(np.float32), array.shape)

        x, scale, offset, mean = (given(r.standard_normal(shape)) for shape in (SHAPES[fmt], 5, 5, 5))
        variance = given(r.uniform(0.5, 2, 5))
        build = getattr(tf.raw_ops, name)
        result = build(x=x, scale=scale, offset=offset, mean=mean, variance=variance, data_format=fmt, is_training=False)
        return list(result[:3])

    return fn


def batch_norm_grad_samples(third: bool, *formats: str) -> list[dict[str, Any]]:
    vectors = dict(scale=normal(5), reserve_space_1=normal(5, scale=0.1), reserve_space_2=uniform(5, lo=0.5, hi=2))
    if third:
        vectors["reserve_space_3"] = arr(0.0)
    found: list[dict[str, Any]] = []
    for fmt in formats:
        pair = dict(y_backprop=normal(*SHAPES[fmt]), x=normal(*SHAPES[fmt]), data_format=fmt)
        found.append({**pair, **vectors})
        if fmt.endswith("C"):
            found.append({**pair, **vectors, "is_training": False})
    return found


BATCH_NORM_ERRORS = [
    (dict(x=normal(2, 3), scale=normal(3), offset=normal(3), mean=empty(0), variance=empty(0)), InvalidArgumentError, "input must be 4 or 5-dimensional"),
    (dict(x=normal(2, 2, 2, 3), scale=normal(2), offset=normal(3), mean=empty(0), variance=empty(0)), InvalidArgumentError, "scale must have the same number of elements as the channels of x, got 2 and 3"),
    (dict(x=normal(2, 2, 2, 3), scale=normal(3), offset=normal(3), mean=empty(0), variance=empty(0), is_training=False), InvalidArgumentError, "When is_training=false, mean must have the same number"),
]  # fmt: skip

op("FusedBatchNorm(x: T, scale: T, offset: T, mean: T, variance: T)"
   " -> (y: T, batch_mean: T, batch_variance: T, reserve_space_1: T, reserve_space_2: T)"
   " [T: type in {float}; epsilon: float = 9.99999975e-05; exponential_avg_factor: float = 1;"
   " data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; is_training: bool = true]",
   shape=batch_norm_shape, numpy=norm.fused_batch_norm, grad=batch_norm_grad("FusedBatchNormGrad"),
   samples=batch_norm_samples("FusedBatchNorm", "NHWC", "NCHW"), errors=BATCH_NORM_ERRORS)  # fmt: skip

op("FusedBatchNormV2(x: T, scale: U, offset: U, mean: U, variance: U)"
   " -> (y: T, batch_mean: U, batch_variance: U, reserve_space_1: U, reserve_space_2: U)"
   " [T: type in {half, bfloat16, float}; U: type in {float}; epsilon: float = 9.99999975e-05; exponential_avg_factor: float = 1;"
   " data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; is_training: bool = true]",
   shape=batch_norm_shape, numpy=norm.fused_batch_norm, grad=batch_norm_grad("FusedBatchNormGradV2"),
   samples=batch_norm_samples("FusedBatchNormV2", "NHWC", "NCHW"), errors=BATCH_NORM_ERRORS)  # fmt: skip

op("FusedBatchNormV3(x: T, scale: U, offset: U, mean: U, variance: U)"
   " -> (y: T, batch_mean: U, batch_variance: U, reserve_space_1: U, reserve_space_2: U, reserve_space_3: U)"
   " [T: type in {half, bfloat16, float}; U: type in {bfloat16, float}; epsilon: float = 9.99999975e-05; exponential_avg_factor: float = 1;"
   " data_format: string in {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'; is_training: bool = true]",
   shape=batch_norm_shape, numpy=norm.fused_batch_norm_v3, grad=batch_norm_grad("FusedBatchNormGradV3"),
   samples=batch_norm_samples("FusedBatchNormV3", "NHWC", "NCHW", "NDHWC", "NCDHW"), errors=BATCH_NORM_ERRORS)  # fmt: skip

op("FusedBatchNormGrad(y_backprop: T, x: T, scale: T, reserve_space_1: T, reserve_space_2: T)"
   " -> (x_backprop: T, scale_backprop: T, offset_backprop: T, reserve_space_3: T, reserve_space_4: T)"
   " [T: type in {float}; epsilon: float = 9.99999975e-05; data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; is_training: bool = true]",
   shape=batch_norm_grad_shape, numpy=norm.fused_batch_norm_grad, grad=batch_norm_grad_grad,
   samples=batch_norm_grad_samples(False, "NHWC", "NCHW"))  # fmt: skip

op("FusedBatchNormGradV2(y_backprop: T, x: T, scale: float, reserve_space_1: U, reserve_space_2: U)"
   " -> (x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_3: U, reserve_space_4: U)"
   " [T: type in {half, bfloat16, float}; U: type in {float}; epsilon: float = 9.99999975e-05;"
   " data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; is_training: bool = true]",
   shape=batch_norm_grad_shape, numpy=norm.fused_batch_norm_grad, grad=batch_norm_grad_grad,
   samples=batch_norm_grad_samples(False, "NHWC", "NCHW"))  # fmt: skip

op("FusedBatchNormGradV3(y_backprop: T, x: T, scale: float, reserve_space_1: U, reserve_space_2: U, reserve_space_3: U)"
   " -> (x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_4: U, reserve_space_5: U)"
   " [T: type in {half, bfloat16, float}; U: type in {float}; epsilon: float = 9.99999975e-05;"
   " data_format: string in {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'; is_training: bool = true]",
   shape=batch_norm_grad_shape, numpy=norm.fused_batch_norm_grad_v3, grad=batch_norm_grad_grad,
   samples=batch_norm_grad_samples(True, "NHWC", "NCHW", "NDHWC", "NCDHW"),
   errors=[(dict(y_backprop=normal(1, 2, 2, 3), x=normal(2, 2, 2, 3), scale=normal(3), reserve_space_1=normal(3), reserve_space_2=uniform(3), reserve_space_3=arr(0.0)),
            InvalidArgumentError, "x and y_backprop must have same shape")])  # fmt: skip


# -- the old op -------------------------------------------------------------------------------------------------------


def global_norm_shape(c: Any) -> Dims:
    dims = with_rank(c, 0, 4)
    channels = dims[3]  # type: ignore[index]
    for i in range(1, 5):
        channels = merge_dim(channels, with_rank(c, i, 1)[0])  # type: ignore[index]
    return with_channels(dims, 3, channels)


def global_norm_grad_shape(c: Any) -> list[Dims]:
    dims = merge_dims(with_rank(c, 0, 4), with_rank(c, 4, 4))
    channels = dims[3]  # type: ignore[index]
    for i in range(1, 4):
        channels = merge_dim(channels, with_rank(c, i, 1)[0])  # type: ignore[index]
    vector = (channels,)
    return [with_channels(dims, 3, channels), vector, vector, vector, vector]


def global_norm_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    attrs = {name: op.attr(name) for name in ("variance_epsilon", "scale_after_normalization")}
    return list(g.BatchNormWithGlobalNormalizationGrad(op.t, op.m, op.v, op.gamma, dy, **attrs))


op("BatchNormWithGlobalNormalization(t: T, m: T, v: T, beta: T, gamma: T) -> (result: T)"
   " [T: type in NUMBERS; variance_epsilon: float; scale_after_normalization: bool] deprecated@9",
   shape=global_norm_shape, numpy=norm.batch_norm_global, grad=global_norm_grad,
   samples=[dict(t=normal(2, 3, 4, 5), m=normal(5), v=uniform(5, lo=0.5, hi=2), beta=normal(5), gamma=normal(5), variance_epsilon=0.01, scale_after_normalization=after)
            for after in (False, True)])  # fmt: skip

op("BatchNormWithGlobalNormalizationGrad(t: T, m: T, v: T, gamma: T, backprop: T) -> (dx: T, dm: T, dv: T, db: T, dg: T)"
   " [T: type in NUMBERS; variance_epsilon: float; scale_after_normalization: bool] deprecated@9",
   shape=global_norm_grad_shape, numpy=norm.batch_norm_global_grad,
   samples=[dict(t=normal(2, 3, 4, 5), m=normal(5), v=uniform(5, lo=0.5, hi=2), gamma=normal(5), backprop=normal(2, 3, 4, 5), variance_epsilon=0.01, scale_after_normalization=after)
            for after in (False, True)])  # fmt: skip


# -- local response normalisation -------------------------------------------------------------------------------------


def lrn_grad(g: Any, op: Any, dy: Any) -> Any:
    attrs = {name: op.attr(name) for name in ("depth_radius", "bias", "alpha", "beta")}
    return g.LRNGrad(dy, op.input, op.output, **attrs)


def lrn_grad_shape(c: Any) -> Dims:
    return merge_dims(merge_dims(with_rank(c, 0, 4), with_rank(c, 1, 4)), with_rank(c, 2, 4))


op("LRN(input: T) -> (output: T) [depth_radius: int = 5; bias: float = 1; alpha: float = 1; beta: float = 0.5;"
   " T: type in {half, bfloat16, float} = float]",
   shape=lambda c: with_rank(c, 0, 4), numpy=norm.lrn, grad=lrn_grad,
   samples=[dict(input=normal(2, 2, 3, 7)), dict(input=normal(1, 2, 2, 9), depth_radius=2, bias=1.5, alpha=0.3, beta=0.75), dict(input=empty(0, 2, 2, 3))],
   errors=[(dict(input=normal(2, 3)), InvalidArgumentError, "in must be 4-dimensional")])  # fmt: skip

op("LRNGrad(input_grads: T, input_image: T, output_image: T) -> (output: T) [depth_radius: int = 5; bias: float = 1; alpha: float = 1;"
   " beta: float = 0.5; T: type in {half, bfloat16, float} = float]",
   shape=lrn_grad_shape, numpy=norm.lrn_grad,
   samples=[dict(input_grads=normal(2, 2, 3, 7), input_image=normal(2, 2, 3, 7), output_image=normal(2, 2, 3, 7)),
            dict(input_grads=normal(1, 1, 2, 9), input_image=normal(1, 1, 2, 9), output_image=normal(1, 1, 2, 9), depth_radius=2, bias=1.5, alpha=0.3, beta=0.75)])  # fmt: skip
