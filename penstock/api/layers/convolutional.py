"""Convolutions: Conv1D, Conv2D, Conv3D, their separable and transposed forms."""

from __future__ import annotations

from typing import Any

from penstock.api import array_ops
from penstock.api.initializers import Zeros
from penstock.api.layers.base import InputSpec, Layer
from penstock.api.layers.core import normalize_data_format
from penstock.api.nn import convolution as nn
from penstock.api.nn.activations import bias_add
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape, as_shape

_FORMATS = {1: ("NWC", "NCW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}


def normalize_tuple(value: Any, n: int, name: str) -> tuple[int, ...]:
    """An int for all of `n` dimensions, or one for each."""
    if isinstance(value, int):
        return (value,) * n
    try:
        found = tuple(int(v) for v in value)
    except (TypeError, ValueError):
        raise ValueError(f"The `{name}` argument must be a tuple of {n} integers. Received: {value}") from None
    if len(found) != n:
        raise ValueError(f"The `{name}` argument must be a tuple of {n} integers. Received: {value}")
    return found


def normalize_padding(value: Any) -> str:
    found = value.lower() if isinstance(value, str) else value
    if found not in ("valid", "same"):
        raise ValueError(f'The `padding` argument must be a list/tuple or one of "valid", "same". Received: {value}')
    return found


def output_length(size: int | None, window: int, padding: str, stride: int, dilation: int = 1) -> int | None:
    """How many steps a window makes."""
    if size is None:
        return None
    reach = window + (window - 1) * (dilation - 1)
    length = size if padding == "same" else size - reach + 1
    return (length + stride - 1) // stride


class _Conv(Layer):
    """A convolution over `rank` dimensions."""

    def __init__(
        self, rank: int, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid", data_format: str = "channels_last",
        dilation_rate: Any = 1, activation: Any = None, use_bias: bool = True, kernel_initializer: Any = None, bias_initializer: Any = None,
        kernel_regularizer: Any = None, bias_regularizer: Any = None, activity_regularizer: Any = None, kernel_constraint: Any = None,
        bias_constraint: Any = None, trainable: bool = True, name: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(trainable=trainable, name=name, activity_regularizer=activity_regularizer, **kwargs)
        self.rank = rank
        self.filters = int(filters) if filters is not None else None
        self.kernel_size = normalize_tuple(kernel_size, rank, "kernel_size")
        self.strides = normalize_tuple(strides, rank, "strides")
        self.padding = normalize_padding(padding)
        self.data_format = normalize_data_format(data_format)
        self.dilation_rate = normalize_tuple(dilation_rate, rank, "dilation_rate")
        self.activation = activation
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = Zeros() if bias_initializer is None else bias_initializer
        self.kernel_regularizer, self.bias_regularizer = kernel_regularizer, bias_regularizer
        self.kernel_constraint, self.bias_constraint = kernel_constraint, bias_constraint
        self.input_spec = InputSpec(ndim=rank + 2)
        self.kernel: Any = None
        self.bias: Any = None

    @property
    def _first(self) -> bool:
        return self.data_format == "channels_first"

    @property
    def _tf_format(self) -> str:
        return _FORMATS[self.rank][self._first]

    def _channels(self, input_shape: Any) -> int:
        axis = 1 if self._first else -1
        size = as_shape(input_shape).as_list()[axis]
        if size is None:
            raise ValueError("The channel dimension of the inputs should be defined. Found `None`.")
        self.input_spec = InputSpec(ndim=self.rank + 2, axes={axis: size})
        return size

    def _full(self, sizes: tuple[int, ...]) -> list[int]:
        """Sizes of all dimensions, with 1 for batch and channels."""
        return [1, 1, *sizes] if self._first else [1, *sizes, 1]

    def _add_bias(self) -> None:
        if self.use_bias:
            self.bias = self.add_weight(
                "bias", (self.filters,), initializer=self.bias_initializer, regularizer=self.bias_regularizer, constraint=self.bias_constraint
            )

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        self.kernel = self.add_weight(
            "kernel", (*self.kernel_size, channels, self.filters), initializer=self.kernel_initializer, regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )  # fmt: skip
        self._add_bias()
        self.built = True

    def _convolve(self, inputs: Any) -> Tensor:
        padding = self.padding.upper()
        if self.rank == 1:
            return nn.conv1d(
                inputs, self.kernel, stride=self.strides[0], padding=padding, data_format=self._tf_format, dilations=self.dilation_rate[0],
                name="conv1d",
            )  # fmt: skip
        options = dict(strides=self._full(self.strides), padding=padding, data_format=self._tf_format, dilations=self._full(self.dilation_rate))
        return raw.Conv2D(inputs, self.kernel, **options) if self.rank == 2 else raw.Conv3D(inputs, self.kernel, **options)

    def _finish(self, outputs: Tensor) -> Tensor:
        if self.use_bias:
            first = self._first
            if first and self.rank == 1:
                outputs = outputs + array_ops.reshape(self.bias, (1, self.filters, 1))
            else:
                outputs = bias_add(outputs, self.bias, data_format="NCHW" if first else "NHWC")
        return outputs if self.activation is None else self.activation(outputs)

    def call(self, inputs: Any) -> Tensor:
        return self._finish(self._convolve(inputs))

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        dims = as_shape(input_shape).as_list()
        space = dims[2:] if self._first else dims[1:-1]
        window = zip(space, self.kernel_size, self.strides, self.dilation_rate, strict=True)
        lengths = [output_length(size, k, self.padding, s, d) for size, k, s, d in window]
        return TensorShape([dims[0], self.filters, *lengths] if self._first else [dims[0], *lengths, self.filters])


class Conv1D(_Conv):
    """A convolution of sequences [batch, steps, channels]."""

    def __init__(self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid", data_format: str = "channels_last", dilation_rate: Any = 1, **kwargs: Any) -> None:
        super().__init__(1, filters, kernel_size, strides, padding, data_format, dilation_rate, **kwargs)


class Conv2D(_Conv):
    """A convolution of images [batch, height, width, channels]."""

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = (1, 1), padding: str = "valid", data_format: str = "channels_last",
        dilation_rate: Any = (1, 1), activation: Any = None, use_bias: bool = True, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(2, filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias, **kwargs)


class Conv3D(_Conv):
    """A convolution of volumes [batch, depth, height, width, channels]."""

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = (1, 1, 1), padding: str = "valid", data_format: str = "channels_last",
        dilation_rate: Any = (1, 1, 1), activation: Any = None, use_bias: bool = True, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(3, filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias, **kwargs)


# -- separable --------------------------------------------------------------------------------------------------------


class _SeparableConv(_Conv):
    """A convolution of each channel on its own, then one across channels of each point."""

    def __init__(
        self, rank: int, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid", data_format: str = "channels_last",
        dilation_rate: Any = 1, depth_multiplier: int = 1, activation: Any = None, use_bias: bool = True, depthwise_initializer: Any = None,
        pointwise_initializer: Any = None, bias_initializer: Any = None, depthwise_regularizer: Any = None, pointwise_regularizer: Any = None,
        bias_regularizer: Any = None, activity_regularizer: Any = None, depthwise_constraint: Any = None, pointwise_constraint: Any = None,
        bias_constraint: Any = None, trainable: bool = True, name: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            rank, filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias, bias_initializer=bias_initializer,
            bias_regularizer=bias_regularizer, activity_regularizer=activity_regularizer, bias_constraint=bias_constraint, trainable=trainable,
            name=name, **kwargs,
        )  # fmt: skip
        self.depth_multiplier = depth_multiplier
        self.depthwise_initializer, self.pointwise_initializer = depthwise_initializer, pointwise_initializer
        self.depthwise_regularizer, self.pointwise_regularizer = depthwise_regularizer, pointwise_regularizer
        self.depthwise_constraint, self.pointwise_constraint = depthwise_constraint, pointwise_constraint
        self.depthwise_kernel: Any = None
        self.pointwise_kernel: Any = None

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        self.depthwise_kernel = self.add_weight(
            "depthwise_kernel", (*self.kernel_size, channels, self.depth_multiplier), initializer=self.depthwise_initializer,
            regularizer=self.depthwise_regularizer, constraint=self.depthwise_constraint,
        )  # fmt: skip
        self.pointwise_kernel = self.add_weight(
            "pointwise_kernel", (1,) * self.rank + (self.depth_multiplier * channels, self.filters), initializer=self.pointwise_initializer,
            regularizer=self.pointwise_regularizer, constraint=self.pointwise_constraint,
        )  # fmt: skip
        self._add_bias()
        self.built = True


class SeparableConv1D(_SeparableConv):
    """A depthwise separable convolution of sequences."""

    def __init__(self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid", data_format: str = "channels_last", dilation_rate: Any = 1, **kwargs: Any) -> None:
        super().__init__(1, filters, kernel_size, strides, padding, data_format, dilation_rate, **kwargs)

    def call(self, inputs: Any) -> Tensor:
        # A sequence is an image of height 1; strides must be equal in both directions.
        axis = 2 if self._first else 1
        step = self.strides * 2
        outputs = nn.separable_conv2d(
            array_ops.expand_dims(inputs, axis), array_ops.expand_dims(self.depthwise_kernel, 0),
            array_ops.expand_dims(self.pointwise_kernel, 0), strides=[1, 1, *step] if self._first else [1, *step, 1],
            padding=self.padding.upper(), rate=(1, *self.dilation_rate), data_format="NCHW" if self._first else "NHWC",
        )  # fmt: skip
        if self.use_bias:
            outputs = bias_add(outputs, self.bias, data_format="NCHW" if self._first else "NHWC")
        outputs = array_ops.squeeze(outputs, [axis])
        return outputs if self.activation is None else self.activation(outputs)


class SeparableConv2D(_SeparableConv):
    """A depthwise separable convolution of images."""

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = (1, 1), padding: str = "valid", data_format: str = "channels_last",
        dilation_rate: Any = (1, 1), **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(2, filters, kernel_size, strides, padding, data_format, dilation_rate, **kwargs)

    def call(self, inputs: Any) -> Tensor:
        outputs = nn.separable_conv2d(
            inputs, self.depthwise_kernel, self.pointwise_kernel, strides=self._full(self.strides), padding=self.padding.upper(),
            rate=self.dilation_rate, data_format=self._tf_format,
        )  # fmt: skip
        return self._finish(outputs)


# -- transposed -------------------------------------------------------------------------------------------------------


class _ConvTranspose(_Conv):
    """The gradient of a convolution with respect to its input, used as a layer: it enlarges."""

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        self.kernel = self.add_weight(
            "kernel", (*self.kernel_size, self.filters, channels), initializer=self.kernel_initializer, regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )  # fmt: skip
        self._add_bias()
        self.built = True

    def _lengths(self, space: list[Any]) -> list[Any]:
        lengths = []
        for size, k, s in zip(space, self.kernel_size, self.strides, strict=True):
            if size is None:
                lengths.append(None)
            else:
                lengths.append(size * s + (max(k - s, 0) if self.padding == "valid" else 0))
        return lengths

    def call(self, inputs: Any) -> Tensor:
        shape = array_ops.shape(inputs)
        static = inputs.shape.as_list()
        offset = 2 if self._first else 1
        space = [static[i + offset] if static[i + offset] is not None else shape[i + offset] for i in range(self.rank)]
        lengths = self._lengths(space)
        sizes = [shape[0], self.filters, *lengths] if self._first else [shape[0], *lengths, self.filters]
        function = nn.conv2d_transpose if self.rank == 2 else nn.conv3d_transpose
        outputs = function(
            inputs, self.kernel, output_shape=array_ops.stack(sizes), strides=self._full(self.strides), padding=self.padding.upper(),
            data_format=self._tf_format,
        )  # fmt: skip
        outputs.set_shape(self.compute_output_shape(inputs.shape))
        return self._finish(outputs)

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        dims = as_shape(input_shape).as_list()
        lengths = self._lengths(dims[2:] if self._first else dims[1:-1])
        return TensorShape([dims[0], self.filters, *lengths] if self._first else [dims[0], *lengths, self.filters])


class Conv2DTranspose(_ConvTranspose):
    """A transposed convolution of images."""

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = (1, 1), padding: str = "valid", data_format: str = "channels_last",
        activation: Any = None, use_bias: bool = True, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(2, filters, kernel_size, strides, padding, data_format, 1, activation, use_bias, **kwargs)


class Conv3DTranspose(_ConvTranspose):
    """A transposed convolution of volumes."""

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = (1, 1, 1), padding: str = "valid", data_format: str = "channels_last",
        activation: Any = None, use_bias: bool = True, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(3, filters, kernel_size, strides, padding, data_format, 1, activation, use_bias, **kwargs)


# -- functions --------------------------------------------------------------------------------------------------------


def conv1d(
    inputs: Any, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid", data_format: str = "channels_last",
    dilation_rate: Any = 1, activation: Any = None, use_bias: bool = True, kernel_initializer: Any = None, bias_initializer: Any = None,
    kernel_regularizer: Any = None, bias_regularizer: Any = None, activity_regularizer: Any = None, kernel_constraint: Any = None,
    bias_constraint: Any = None, trainable: bool = True, name: str | None = None, reuse: Any = None,
) -> Tensor:  # fmt: skip
    """A convolution of sequences [batch, steps, channels]; variables "<name>/kernel" and "<name>/bias"."""
    layer = Conv1D(
        filters, kernel_size, strides, padding, data_format, dilation_rate, activation=activation, use_bias=use_bias,
        kernel_initializer=kernel_initializer, bias_initializer=bias_initializer, kernel_regularizer=kernel_regularizer,
        bias_regularizer=bias_regularizer, activity_regularizer=activity_regularizer, kernel_constraint=kernel_constraint,
        bias_constraint=bias_constraint, trainable=trainable, name=name, _scope=name, _reuse=reuse,
    )  # fmt: skip
    return layer(inputs)


def conv2d(
    inputs: Any, filters: int, kernel_size: Any, strides: Any = (1, 1), padding: str = "valid", data_format: str = "channels_last",
    dilation_rate: Any = (1, 1), activation: Any = None, use_bias: bool = True, kernel_initializer: Any = None, bias_initializer: Any = None,
    kernel_regularizer: Any = None, bias_regularizer: Any = None, activity_regularizer: Any = None, kernel_constraint: Any = None,
    bias_constraint: Any = None, trainable: bool = True, name: str | None = None, reuse: Any = None,
) -> Tensor:  # fmt: skip
    """A convolution of images [batch, height, width, channels]; variables "<name>/kernel" and "<name>/bias"."""
    layer = Conv2D(
        filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias, kernel_initializer=kernel_initializer,
        bias_initializer=bias_initializer, kernel_regularizer=kernel_regularizer, bias_regularizer=bias_regularizer,
        activity_regularizer=activity_regularizer, kernel_constraint=kernel_constraint, bias_constraint=bias_constraint, trainable=trainable,
        name=name, _scope=name, _reuse=reuse,
    )  # fmt: skip
    return layer(inputs)


def conv3d(
    inputs: Any, filters: int, kernel_size: Any, strides: Any = (1, 1, 1), padding: str = "valid", data_format: str = "channels_last",
    dilation_rate: Any = (1, 1, 1), activation: Any = None, use_bias: bool = True, kernel_initializer: Any = None, bias_initializer: Any = None,
    kernel_regularizer: Any = None, bias_regularizer: Any = None, activity_regularizer: Any = None, kernel_constraint: Any = None,
    bias_constraint: Any = None, trainable: bool = True, name: str | None = None, reuse: Any = None,
) -> Tensor:  # fmt: skip
    """A convolution of volumes [batch, depth, height, width, channels]; variables "<name>/kernel" and "<name>/bias"."""
    layer = Conv3D(
        filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias, kernel_initializer=kernel_initializer,
        bias_initializer=bias_initializer, kernel_regularizer=kernel_regularizer, bias_regularizer=bias_regularizer,
        activity_regularizer=activity_regularizer, kernel_constraint=kernel_constraint, bias_constraint=bias_constraint, trainable=trainable,
        name=name, _scope=name, _reuse=reuse,
    )  # fmt: skip
    return layer(inputs)


def _call(kind: Any, inputs: Any, filters: int, kernel_size: Any, name: str | None, reuse: Any, **options: Any) -> Tensor:
    return kind(filters, kernel_size, name=name, _scope=name, _reuse=reuse, **options)(inputs)


def separable_conv1d(
    inputs: Any, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid", data_format: str = "channels_last",
    dilation_rate: Any = 1, depth_multiplier: int = 1, activation: Any = None, use_bias: bool = True, depthwise_initializer: Any = None,
    pointwise_initializer: Any = None, bias_initializer: Any = None, depthwise_regularizer: Any = None, pointwise_regularizer: Any = None,
    bias_regularizer: Any = None, activity_regularizer: Any = None, depthwise_constraint: Any = None, pointwise_constraint: Any = None,
    bias_constraint: Any = None, trainable: bool = True, name: str | None = None, reuse: Any = None,
) -> Tensor:  # fmt: skip
    """A depthwise separable convolution of sequences; variables depthwise_kernel, pointwise_kernel and bias."""
    return _call(SeparableConv1D, **locals())


def separable_conv2d(
    inputs: Any, filters: int, kernel_size: Any, strides: Any = (1, 1), padding: str = "valid", data_format: str = "channels_last",
    dilation_rate: Any = (1, 1), depth_multiplier: int = 1, activation: Any = None, use_bias: bool = True, depthwise_initializer: Any = None,
    pointwise_initializer: Any = None, bias_initializer: Any = None, depthwise_regularizer: Any = None, pointwise_regularizer: Any = None,
    bias_regularizer: Any = None, activity_regularizer: Any = None, depthwise_constraint: Any = None, pointwise_constraint: Any = None,
    bias_constraint: Any = None, trainable: bool = True, name: str | None = None, reuse: Any = None,
) -> Tensor:  # fmt: skip
    """A depthwise separable convolution of images; variables depthwise_kernel, pointwise_kernel and bias."""
    return _call(SeparableConv2D, **locals())


def conv2d_transpose(
    inputs: Any, filters: int, kernel_size: Any, strides: Any = (1, 1), padding: str = "valid", data_format: str = "channels_last",
    activation: Any = None, use_bias: bool = True, kernel_initializer: Any = None, bias_initializer: Any = None, kernel_regularizer: Any = None,
    bias_regularizer: Any = None, activity_regularizer: Any = None, kernel_constraint: Any = None, bias_constraint: Any = None,
    trainable: bool = True, name: str | None = None, reuse: Any = None,
) -> Tensor:  # fmt: skip
    """A transposed convolution of images; variables "<name>/kernel" and "<name>/bias"."""
    return _call(Conv2DTranspose, **locals())


def conv3d_transpose(
    inputs: Any, filters: int, kernel_size: Any, strides: Any = (1, 1, 1), padding: str = "valid", data_format: str = "channels_last",
    activation: Any = None, use_bias: bool = True, kernel_initializer: Any = None, bias_initializer: Any = None, kernel_regularizer: Any = None,
    bias_regularizer: Any = None, activity_regularizer: Any = None, kernel_constraint: Any = None, bias_constraint: Any = None,
    trainable: bool = True, name: str | None = None, reuse: Any = None,
) -> Tensor:  # fmt: skip
    """A transposed convolution of volumes; variables "<name>/kernel" and "<name>/bias"."""
    return _call(Conv3DTranspose, **locals())
