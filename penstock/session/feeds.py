"""Feeds: Python values -> run-time values of the fed tensors, checked against dtype and shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.formats.values import convert_typed
from penstock.graph.ir import Graph, Tensor
from penstock.ops.resources import ResourceHandle
from penstock.session.fetches import feed_conversion
from penstock.shapes import compatible_dims


class FeedSlot:
    """One fed tensor, with what a value for it must be like."""

    __slots__ = ("dims", "dtype", "exact", "floats", "np", "rank", "scalar", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.dtype = tensor.dtype.base_dtype
        self.np = self.dtype.np
        self.dims = tensor.dims
        self.exact = None if tensor.dims is None or None in tensor.dims else tensor.dims
        self.rank = None if tensor.dims is None else len(tensor.dims)
        self.scalar = self.np.type if tensor.dims == () and self.np.kind in "biufc" else None  # what one number of this type is to NumPy
        self.floats = self.scalar in (np.float32, np.float64)

    def convert(self, value: Any) -> Any:
        """`value` as a run-time value; an array, or a number, of the right type is taken as it is."""
        if value.__class__ is self.scalar:
            return value
        if value.__class__ is float and self.floats:
            return self.np.type(value)
        if value.__class__ is not np.ndarray or value.dtype != self.np or self.np.hasobject:
            value = self._converted(value)
        shape = np.shape(value)
        if self.exact is not None:
            if shape != self.exact:
                self._refuse_shape(shape)
        elif self.dims is not None and not compatible_dims(shape, self.dims):
            self._refuse_shape(shape)
        return value

    def _refuse_shape(self, shape: tuple[int, ...]) -> None:
        raise ValueError(f"Cannot feed value of shape {shape!r} for Tensor {self.tensor.name}, which has shape {self.tensor.shape!s}")

    def _converted(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            raise TypeError(
                "The value of a feed cannot be a tf.Tensor object. Acceptable feed values include Python scalars, strings, lists, numpy "
                f"ndarrays, or TensorHandles. For reference, the tensor object was {value!r} which was passed to the argument `feed_dict` with "
                f"key {self.tensor!r}."
            )
        if self.dtype is dtypes.resource or self.dtype is dtypes.variant:
            if isinstance(value, ResourceHandle) or self.dtype is dtypes.variant:
                return value
            if isinstance(value, np.ndarray) and value.size == 1:
                return value.item()
        if isinstance(value, int) and not isinstance(value, bool) and not self._holds(value):
            raise TypeError(f"Type of feed value {value} with type {type(value)} is not compatible with Tensor type {self.np.type}. Try explicitly setting the type of the feed tensor to a larger type (e.g. int64).")
        if isinstance(value, (np.ndarray, np.generic)):
            return self._from_numpy(np.asarray(value))
        if self.dtype is dtypes.string:
            return convert_typed(value, dtypes.string)[1]
        # Python values follow NumPy's rules here (1.7 may be fed to an int32), as in TF1.
        try:
            return np.asarray(value, dtype=self.np)
        except (TypeError, ValueError) as error:
            raise type(error)(f"Cannot feed {value!r} for Tensor {self.tensor.name} of type {self.dtype.name}: {error}") from error

    def _holds(self, value: int) -> bool:
        """Whether the placeholder's type has this number."""
        if self.dtype.is_integer:
            return self.dtype.min <= value <= self.dtype.max
        return self.dtype is not dtypes.bool or value in (0, 1)

    def _from_numpy(self, value: np.ndarray) -> np.ndarray:
        if self.dtype is dtypes.string:
            return convert_typed(value, dtypes.string)[1]
        if value.dtype.fields and self.dtype.is_quantized:
            return value.view(self.np)
        try:
            return value.astype(self.np)
        except (TypeError, ValueError) as error:
            raise type(error)(f"Cannot feed an array of {value.dtype} for Tensor {self.tensor.name} of type {self.dtype.name}: {error}") from error


def flatten_feeds(graph: Graph, feed_dict: Any) -> dict[Tensor, Any]:
    """A feed dict as {tensor: value}; checks keys as TF does."""
    result: dict[Tensor, Any] = {}
    if not hasattr(feed_dict, "items"):
        raise TypeError(f"The feed_dict must be a dictionary, got {type(feed_dict).__name__}.")
    for key, value in _flat_items(feed_dict):
        for element, part in feed_conversion(key, value):
            try:
                tensor = graph.as_graph_element(element, allow_tensor=True, allow_operation=False)
            except Exception as error:
                raise TypeError(f"Cannot interpret feed_dict key as Tensor: {error.args[0] if error.args else error}") from error
            if not graph.is_feedable(tensor):
                raise ValueError(f"Tensor {tensor.name} may not be fed.")
            result[tensor] = part
    return result


def _flat_items(feed_dict: Any) -> Any:
    """Keys may be (nested) tuples of tensors, fed with values of the same structure."""
    for key, value in feed_dict.items():
        if isinstance(key, tuple) and not hasattr(key, "_as_graph_element"):
            if len(key) != len(value):
                raise ValueError(f"The feed_dict key {key} and its value have different lengths: {len(key)} and {len(value)}")
            if hasattr(value, "keys"):
                raise TypeError(f"The value of a tuple key of feed_dict must be a sequence, got {type(value).__name__}")
            yield from _flat_items(dict(zip(key, value, strict=True)))
        else:
            yield key, value
