"""Pooling layers: the largest or the mean of each window."""

from __future__ import annotations

from typing import Any

from penstock.api import array_ops
from penstock.api.layers.base import InputSpec, Layer
from penstock.api.layers.convolutional import normalize_padding, normalize_tuple, output_length
from penstock.api.layers.core import normalize_data_format
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape, as_shape

_FORMATS = {2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}


class _Pooling(Layer):
    """Pooling over `rank` dimensions, by one of the raw ops."""

    def __init__(self, rank: int, op: str, pool_size: Any, strides: Any, padding: str, data_format: str, name: str | None, **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.rank = rank
        self._op = op
        self.pool_size = normalize_tuple(pool_size, rank, "pool_size")
        self.strides = normalize_tuple(pool_size if strides is None else strides, rank, "strides")
        self.padding = normalize_padding(padding)
        self.data_format = normalize_data_format(data_format)
        self.input_spec = InputSpec(ndim=rank + 2)

    @property
    def _first(self) -> bool:
        return self.data_format == "channels_first"

    def call(self, inputs: Any) -> Tensor:
        if self.rank == 1:
            # A sequence is an image of width 1.
            axis = 3 if self._first else 2
            wide = array_ops.expand_dims(inputs, axis)
            return array_ops.squeeze(self._pool(wide, (*self.pool_size, 1), (*self.strides, 1)), [axis])
        return self._pool(inputs, self.pool_size, self.strides)

    def _pool(self, x: Tensor, window: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
        full = [[1, 1, *sizes] if self._first else [1, *sizes, 1] for sizes in (window, strides)]
        return getattr(raw, self._op)(
            x, ksize=full[0], strides=full[1], padding=self.padding.upper(), data_format=_FORMATS[len(window)][self._first]
        )

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        dims = as_shape(input_shape).as_list()
        space, channels = (dims[2:], dims[1]) if self._first else (dims[1:-1], dims[-1])
        lengths = [output_length(size, k, self.padding, s) for size, k, s in zip(space, self.pool_size, self.strides, strict=True)]
        return TensorShape([dims[0], channels, *lengths] if self._first else [dims[0], *lengths, channels])


class MaxPooling1D(_Pooling):
    """The largest of each window of a sequence."""

    def __init__(self, pool_size: Any, strides: Any, padding: str = "valid", data_format: str = "channels_last", name: str | None = None, **kwargs: Any) -> None:
        super().__init__(1, "MaxPool", pool_size, strides, padding, data_format, name, **kwargs)


class MaxPooling2D(_Pooling):
    """The largest of each window of an image."""

    def __init__(self, pool_size: Any, strides: Any, padding: str = "valid", data_format: str = "channels_last", name: str | None = None, **kwargs: Any) -> None:
        super().__init__(2, "MaxPool", pool_size, strides, padding, data_format, name, **kwargs)


class MaxPooling3D(_Pooling):
    """The largest of each window of a volume."""

    def __init__(self, pool_size: Any, strides: Any, padding: str = "valid", data_format: str = "channels_last", name: str | None = None, **kwargs: Any) -> None:
        super().__init__(3, "MaxPool3D", pool_size, strides, padding, data_format, name, **kwargs)


class AveragePooling1D(_Pooling):
    """The mean of each window of a sequence."""

    def __init__(self, pool_size: Any, strides: Any, padding: str = "valid", data_format: str = "channels_last", name: str | None = None, **kwargs: Any) -> None:
        super().__init__(1, "AvgPool", pool_size, strides, padding, data_format, name, **kwargs)


class AveragePooling2D(_Pooling):
    """The mean of each window of an image."""

    def __init__(self, pool_size: Any, strides: Any, padding: str = "valid", data_format: str = "channels_last", name: str | None = None, **kwargs: Any) -> None:
        super().__init__(2, "AvgPool", pool_size, strides, padding, data_format, name, **kwargs)


class AveragePooling3D(_Pooling):
    """The mean of each window of a volume."""

    def __init__(self, pool_size: Any, strides: Any, padding: str = "valid", data_format: str = "channels_last", name: str | None = None, **kwargs: Any) -> None:
        super().__init__(3, "AvgPool3D", pool_size, strides, padding, data_format, name, **kwargs)


def _function(kind: Any, name: str) -> Any:
    def function(
        inputs: Any, pool_size: Any, strides: Any, padding: str = "valid", data_format: str = "channels_last", name: str | None = None
    ) -> Tensor:
        return kind(pool_size, strides, padding, data_format, name)(inputs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = kind.__doc__
    return function


max_pooling1d = _function(MaxPooling1D, "max_pooling1d")
max_pooling2d = _function(MaxPooling2D, "max_pooling2d")
max_pooling3d = _function(MaxPooling3D, "max_pooling3d")
average_pooling1d = _function(AveragePooling1D, "average_pooling1d")
average_pooling2d = _function(AveragePooling2D, "average_pooling2d")
average_pooling3d = _function(AveragePooling3D, "average_pooling3d")
