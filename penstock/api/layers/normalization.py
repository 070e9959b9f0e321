"""Batch normalisation as a layer, with moving averages for use after training."""

from __future__ import annotations

from typing import Any

from penstock import dtypes, errors
from penstock.api import array_ops, math_ops
from penstock.api.control_flow import smart_cond, smart_constant_value
from penstock.api.framework import colocate_with, name_scope
from penstock.api.initializers import Ones, Zeros
from penstock.api.layers.base import InputSpec, Layer
from penstock.api.nn import normalization as nn
from penstock.api.state_ops import assign_sub
from penstock.graph.constant import constant
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.shapes import TensorShape, as_shape


class BatchNormalization(Layer):
    """gamma * (x - mean) / sqrt(variance + epsilon) + beta over all axes but `axis`.

    With `training=True`, mean and variance are those of the batch, and ops that move `moving_mean` and `moving_variance` towards
    them are added to `tf.GraphKeys.UPDATE_OPS`: training must run them. Otherwise the moving averages are used.
    """

    def __init__(
        self, axis: Any = -1, momentum: float = 0.99, epsilon: float = 1e-3, center: bool = True, scale: bool = True, beta_initializer: Any = None,
        gamma_initializer: Any = None, moving_mean_initializer: Any = None, moving_variance_initializer: Any = None, beta_regularizer: Any = None,
        gamma_regularizer: Any = None, beta_constraint: Any = None, gamma_constraint: Any = None, renorm: bool = False,
        renorm_clipping: Any = None, renorm_momentum: float = 0.99, fused: bool | None = None, trainable: bool = True,
        virtual_batch_size: int | None = None, adjustment: Any = None, name: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(trainable=trainable, name=name, **kwargs)
        for option, value in (("renorm", renorm), ("virtual_batch_size", virtual_batch_size), ("adjustment", adjustment)):
            if value:
                raise errors.UnimplementedError(f"Batch normalisation with `{option}` is not part of Penstock.")
        self.axis = list(axis) if isinstance(axis, (list, tuple)) else axis
        self.momentum = momentum
        self.epsilon = epsilon
        self.center = center
        self.scale = scale
        self.beta_initializer = Zeros() if beta_initializer is None else beta_initializer
        self.gamma_initializer = Ones() if gamma_initializer is None else gamma_initializer
        self.moving_mean_initializer = Zeros() if moving_mean_initializer is None else moving_mean_initializer
        self.moving_variance_initializer = Ones() if moving_variance_initializer is None else moving_variance_initializer
        self.beta_regularizer, self.gamma_regularizer = beta_regularizer, gamma_regularizer
        self.beta_constraint, self.gamma_constraint = beta_constraint, gamma_constraint
        self.fused = fused
        self.gamma: Any = None
        self.beta: Any = None
        self.moving_mean: Any = None
        self.moving_variance: Any = None

    def build(self, input_shape: Any) -> None:
        shape = as_shape(input_shape)
        if shape.rank is None:
            raise ValueError(f"Input has undefined rank: {shape}")
        rank = shape.rank
        axes = [self.axis] if isinstance(self.axis, int) else list(self.axis)
        axes = [a + rank if a < 0 else a for a in axes]
        if any(a < 0 or a >= rank for a in axes):
            raise ValueError(f"Invalid axis: {self.axis}")
        if len(axes) != len(set(axes)):
            raise ValueError(f"Duplicate axis: {self.axis}")
        self.axis = axes
        can_fuse = rank == 4 and axes in ([1], [3])
        if self.fused and not can_fuse:
            raise ValueError("Batch normalization layers with fused=True only support 4D input tensors with axis [1] or [3].")
        if self.fused is None:
            self.fused = can_fuse
        sizes = {a: shape.as_list()[a] for a in axes}
        for a, size in sizes.items():
            if size is None:
                raise ValueError(f"Input has undefined `axis` dimension. Input shape: {shape}; axis {a}")
        self.input_spec = InputSpec(ndim=rank, axes=sizes)
        if len(axes) == 1:
            param_shape: Any = (sizes[axes[0]],)
        else:
            param_shape = [sizes.get(i, 1) for i in range(rank)]
        # Half precision is too coarse for statistics.
        kind = dtypes.float32 if self._dtype in ("float16", "bfloat16") else dtypes.as_dtype(self._dtype or "float32")
        if self.scale:
            self.gamma = self.add_weight(
                "gamma", param_shape, kind, self.gamma_initializer, self.gamma_regularizer, True, self.gamma_constraint
            )
        if self.center:
            self.beta = self.add_weight("beta", param_shape, kind, self.beta_initializer, self.beta_regularizer, True, self.beta_constraint)
        if self.fused:
            # The fused op takes both.
            self._ones = None if self.scale else constant(1.0, dtype=kind, shape=param_shape)
            self._zeros = None if self.center else constant(0.0, dtype=kind, shape=param_shape)
        self.moving_mean = self.add_weight("moving_mean", param_shape, kind, self.moving_mean_initializer, trainable=False)
        self.moving_variance = self.add_weight("moving_variance", param_shape, kind, self.moving_variance_initializer, trainable=False)
        self.built = True

    def _moved(self, variable: Any, value: Any, momentum: Any) -> Any:
        with name_scope(None, "AssignMovingAvg", [variable, value, momentum]) as scope, colocate_with(variable):
            decay = convert_to_tensor(1.0 - momentum, name="decay")
            if decay.dtype != variable.dtype.base_dtype:
                decay = math_ops.cast(decay, variable.dtype.base_dtype)
            return assign_sub(variable, (variable - math_ops.cast(value, variable.dtype)) * decay, name=scope)

    def _fused_call(self, inputs: Any, training: Any) -> Tensor:
        data_format = "NCHW" if self.axis == [1] else "NHWC"
        gamma = self.gamma if self.scale else self._ones
        beta = self.beta if self.center else self._zeros

        def trained() -> tuple[Tensor, ...]:
            return nn.fused_batch_norm(inputs, gamma, beta, epsilon=self.epsilon, data_format=data_format)

        def inferred() -> tuple[Tensor, ...]:
            return nn.fused_batch_norm(
                inputs, gamma, beta, mean=self.moving_mean, variance=self.moving_variance, epsilon=self.epsilon, is_training=False,
                data_format=data_format,
            )  # fmt: skip

        output, mean, variance = smart_cond(training, trained, inferred)
        known = smart_constant_value(training)
        if known is None:
            momentum: Any = smart_cond(training, lambda: self.momentum, lambda: 1.0)
        else:
            momentum = convert_to_tensor(self.momentum)
        if known or known is None:
            self.add_update(self._moved(self.moving_mean, mean, momentum))
            self.add_update(self._moved(self.moving_variance, variance, momentum))
        return output

    def call(self, inputs: Any, training: Any = False) -> Tensor:
        if self.fused:
            return self._fused_call(inputs, training)
        dims = inputs.shape.as_list()
        rank = len(dims)
        axes = [i for i in range(rank) if i not in self.axis]
        spread = [dims[i] if i in self.axis and len(self.axis) == 1 else 1 for i in range(rank)]

        def broadcast(value: Any) -> Any:
            # A vector along the last axis broadcasts by itself.
            if value is not None and value.shape.rank != rank and axes != list(range(rank - 1)):
                return array_ops.reshape(value, spread)
            return value

        known = smart_constant_value(training)
        scale, offset = broadcast(self.gamma), broadcast(self.beta)
        if known is not False:
            mean, variance = nn.moments(inputs, axes, keep_dims=len(self.axis) > 1)
            mean = smart_cond(training, lambda: mean, lambda: convert_to_tensor(self.moving_mean))
            variance = smart_cond(training, lambda: variance, lambda: convert_to_tensor(self.moving_variance))
            self._update(self.moving_mean, mean, training)
            self._update(self.moving_variance, variance, training)
        else:
            mean, variance = self.moving_mean, self.moving_variance
        mean, variance = math_ops.cast(mean, inputs.dtype), math_ops.cast(variance, inputs.dtype)
        offset = None if offset is None else math_ops.cast(offset, inputs.dtype)
        scale = None if scale is None else math_ops.cast(scale, inputs.dtype)
        outputs = nn.batch_normalization(inputs, broadcast(mean), broadcast(variance), offset, scale, self.epsilon)
        outputs.set_shape(inputs.shape)
        return outputs

    def _update(self, variable: Any, value: Any, training: Any) -> None:
        """At inference the update op exists, where `training` is a tensor, but changes nothing."""
        if smart_constant_value(training) is None:
            target = smart_cond(training, lambda: value, lambda: convert_to_tensor(variable))
        else:
            target = value
        self.add_update(self._moved(variable, target, self.momentum))

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        return as_shape(input_shape)


def batch_normalization(
    inputs: Any, axis: Any = -1, momentum: float = 0.99, epsilon: float = 1e-3, center: bool = True, scale: bool = True,
    beta_initializer: Any = None, gamma_initializer: Any = None, moving_mean_initializer: Any = None, moving_variance_initializer: Any = None,
    beta_regularizer: Any = None, gamma_regularizer: Any = None, beta_constraint: Any = None, gamma_constraint: Any = None,
    training: Any = False, trainable: bool = True, name: str | None = None, reuse: Any = None, renorm: bool = False,
    renorm_clipping: Any = None, renorm_momentum: float = 0.99, fused: bool | None = None, virtual_batch_size: int | None = None,
    adjustment: Any = None,
) -> Tensor:  # fmt: skip
    """Batch normalisation. Training must run the ops of `tf.get_collection(tf.GraphKeys.UPDATE_OPS)`:

    >>> with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):     # doctest: +SKIP
    ...     train_op = optimizer.minimize(loss)
    """
    layer = BatchNormalization(
        axis, momentum, epsilon, center, scale, beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer,
        beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint, renorm, renorm_clipping, renorm_momentum, fused, trainable,
        virtual_batch_size, adjustment, name, _reuse=reuse, _scope=name,
    )  # fmt: skip
    return layer(inputs, training=training)
