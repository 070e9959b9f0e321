"""Dense, Dropout and Flatten."""

from __future__ import annotations

from typing import Any

from penstock.api import array_ops, sparse_ops
from penstock.api.control_flow import smart_cond
from penstock.api.initializers import Zeros
from penstock.api.layers.base import InputSpec, Layer
from penstock.api.linalg_ops import tensordot
from penstock.api.nn.activations import bias_add
from penstock.api.nn.activations import dropout as nn_dropout
from penstock.graph.composite import SparseTensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape, as_shape


class Dense(Layer):
    """activation(inputs x kernel + bias) over the last dimension."""

    def __init__(
        self, units: int, activation: Any = None, use_bias: bool = True, kernel_initializer: Any = None, bias_initializer: Any = None,
        kernel_regularizer: Any = None, bias_regularizer: Any = None, activity_regularizer: Any = None, kernel_constraint: Any = None,
        bias_constraint: Any = None, trainable: bool = True, name: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(trainable=trainable, name=name, activity_regularizer=activity_regularizer, **kwargs)
        self.units = int(units)
        self.activation = activation
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = Zeros() if bias_initializer is None else bias_initializer
        self.kernel_regularizer, self.bias_regularizer = kernel_regularizer, bias_regularizer
        self.kernel_constraint, self.bias_constraint = kernel_constraint, bias_constraint
        self.input_spec = InputSpec(min_ndim=2)
        self.kernel: Any = None
        self.bias: Any = None

    def build(self, input_shape: Any) -> None:
        size = as_shape(input_shape).as_list()[-1]
        if size is None:
            raise ValueError("The last dimension of the inputs to `Dense` should be defined. Found `None`.")
        self.input_spec = InputSpec(min_ndim=2, axes={-1: size})
        self.kernel = self.add_weight(
            "kernel", [size, self.units], initializer=self.kernel_initializer, regularizer=self.kernel_regularizer, constraint=self.kernel_constraint
        )
        if self.use_bias:
            self.bias = self.add_weight(
                "bias", [self.units], initializer=self.bias_initializer, regularizer=self.bias_regularizer, constraint=self.bias_constraint
            )
        self.built = True

    def call(self, inputs: Any) -> Tensor:
        rank = inputs.shape.rank
        if rank > 2:
            outputs = tensordot(inputs, self.kernel, [[rank - 1], [0]])
            outputs.set_shape([*inputs.shape.as_list()[:-1], self.units])
        elif isinstance(inputs, SparseTensor):
            outputs = sparse_ops.sparse_tensor_dense_matmul(inputs, self.kernel)
        else:
            outputs = raw.MatMul(inputs, self.kernel)
        if self.use_bias:
            outputs = bias_add(outputs, self.bias)
        return outputs if self.activation is None else self.activation(outputs)

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        dims = as_shape(input_shape).with_rank_at_least(2).as_list()
        if dims[-1] is None:
            raise ValueError(f"The innermost dimension of input_shape must be defined, but saw: {input_shape}")
        return TensorShape([*dims[:-1], self.units])


def dense(
    inputs: Any, units: int, activation: Any = None, use_bias: bool = True, kernel_initializer: Any = None, bias_initializer: Any = None,
    kernel_regularizer: Any = None, bias_regularizer: Any = None, activity_regularizer: Any = None, kernel_constraint: Any = None,
    bias_constraint: Any = None, trainable: bool = True, name: str | None = None, reuse: Any = None,
) -> Tensor:  # fmt: skip
    """activation(inputs x kernel + bias) over the last dimension; variables "<name>/kernel" and "<name>/bias"."""
    layer = Dense(
        units, activation, use_bias, kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer, activity_regularizer,
        kernel_constraint, bias_constraint, trainable, name, _scope=name, _reuse=reuse,
    )  # fmt: skip
    return layer(inputs)


class Dropout(Layer):
    """Sets a share `rate` of the inputs to 0 and scales the rest by 1 / (1 - rate), in training only."""

    def __init__(self, rate: Any = 0.5, noise_shape: Any = None, seed: int | None = None, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.rate = rate
        self.noise_shape = noise_shape
        self.seed = seed

    def _noise_shape(self, inputs: Tensor) -> Any:
        """Sizes that are None are those of the inputs."""
        if self.noise_shape is None:
            return None
        sizes = array_ops.shape(inputs)
        return [sizes[i] if size is None else size for i, size in enumerate(self.noise_shape)]

    def call(self, inputs: Any, training: Any = False) -> Tensor:
        def dropped() -> Tensor:
            return nn_dropout(inputs, noise_shape=self._noise_shape(inputs), seed=self.seed, rate=self.rate)

        return smart_cond(training, dropped, lambda: array_ops.identity(inputs))

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        return as_shape(input_shape)


def dropout(
    inputs: Any, rate: Any = 0.5, noise_shape: Any = None, seed: int | None = None, training: Any = False, name: str | None = None
) -> Tensor:
    """Drops a share `rate` of the inputs if `training` (a bool or a boolean tensor) is true."""
    return Dropout(rate, noise_shape=noise_shape, seed=seed, name=name)(inputs, training=training)


class Flatten(Layer):
    """Every example as one vector: [batch, ...] -> [batch, size]."""

    def __init__(self, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = normalize_data_format(data_format or "channels_last")
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Any) -> Tensor:
        rank = inputs.shape.rank
        if self.data_format == "channels_first" and rank is not None and rank > 1:
            inputs = array_ops.transpose(inputs, [0, *range(2, rank), 1])
        batch = inputs.shape.as_list()[0]
        outputs = array_ops.reshape(inputs, (array_ops.shape(inputs)[0] if batch is None else batch, -1))
        outputs.set_shape(self.compute_output_shape(inputs.shape))
        return outputs

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        dims = as_shape(input_shape).as_list()
        if not dims:
            return TensorShape([1])
        size: int | None = 1
        for d in dims[1:]:
            size = None if d is None or size is None else size * d
        return TensorShape([dims[0], size])


def flatten(inputs: Any, name: str | None = None, data_format: str = "channels_last") -> Tensor:
    """Every example as one vector: [batch, ...] -> [batch, size]."""
    return Flatten(name=name, data_format=data_format)(inputs)


def normalize_data_format(value: str) -> str:
    """channels_first or channels_last, in lower case."""
    found = value.lower()
    if found not in ("channels_first", "channels_last"):
        raise ValueError(f'The `data_format` argument must be one of "channels_first", "channels_last". Received: {value}')
    return found
