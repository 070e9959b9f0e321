"""Partitioned variables: one logical variable kept as several along one dimension, and how to split."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from penstock import dtypes
from penstock.api.export import export
from penstock.graph.convert import register_tensor_conversion_function
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape, dimension_value


class PartitionedVariable:
    """A list of variables that are the parts of one. Used as a tensor, it is their concatenation."""

    def __init__(self, name: str, shape: Any, dtype: Any, variable_list: list[Any], partitions: Any) -> None:
        if not isinstance(variable_list, (list, tuple)):
            raise TypeError(f"variable_list is not a list or tuple: {variable_list}")
        if not isinstance(partitions, (list, tuple)):
            raise TypeError(f"partitions is not a list or tuple: {partitions}")
        if not all(p >= 1 for p in partitions):
            raise ValueError(f"partition values must be positive: {partitions}")
        if not variable_list:
            raise ValueError("variable_list may not be empty")
        self._variable_list = sorted(variable_list, key=lambda v: v._get_save_slice_info().var_offset)
        self._name = name
        self._shape = TensorShape(shape)
        self._dtype = dtypes.as_dtype(dtype)
        self._partitions = list(partitions)
        self._as_tensor_cache: Tensor | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._variable_list)

    def __len__(self) -> int:
        return len(self._variable_list)

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> dtypes.DType:
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        return self._shape

    def get_shape(self) -> TensorShape:
        return self._shape

    def _get_variable_list(self) -> list[Any]:
        return self._variable_list

    def _get_partitions(self) -> list[int]:
        return self._partitions

    def _partition_axes(self) -> list[int]:
        return [i for i, p in enumerate(self._partitions) if p > 1] or [0]

    def as_tensor(self) -> Tensor:
        """The whole variable as one tensor."""
        graph = self._variable_list[0].graph
        with graph.name_scope(None):
            return self._concat()

    def _concat(self) -> Tensor:
        graph = self._variable_list[0].graph
        if len(self._variable_list) == 1:
            with graph.name_scope(None):
                return raw.Identity(self._variable_list[0], name=self._name)
        axes = self._partition_axes()
        if len(axes) > 1:
            raise NotImplementedError(
                f"Cannot concatenate along more than one dimension: {axes}. Multi-axis partition concat is not supported"
            )
        with graph.name_scope(self._name + "/ConcatPartitions/"):
            joined = raw.ConcatV2(list(self._variable_list), axes[0], name="concat")
        with graph.name_scope(None):
            return raw.Identity(joined, name=self._name)

    def _as_graph_element(self) -> Tensor:
        return self.as_tensor()

    @property
    def graph(self) -> Any:
        return self._variable_list[0].graph

    def _each(self, function: Callable[[Any, Any], Any], value: Any) -> list[Any]:
        if isinstance(value, PartitionedVariable):
            return [function(v, part) for v, part in zip(self, value, strict=True)]
        if isinstance(value, (list, tuple)) and len(value) == len(self):
            return [function(v, part) for v, part in zip(self, value, strict=True)]
        axis = self._partition_axes()[0]
        sizes = [v.shape.as_list()[axis] for v in self]
        parts = raw.SplitV(value, sizes, axis, num_split=len(sizes)) if len(sizes) > 1 else [value]
        return [function(v, part) for v, part in zip(self, parts, strict=True)]

    def assign(self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        """Assigns to every part; the list of results."""
        done = self._each(
            lambda v, part: v.assign(part, use_locking=use_locking, name=name, read_value=read_value), value
        )
        return list(done)

    def assign_add(
        self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Adds to every part; the list of results."""
        return self._each(
            lambda v, part: v.assign_add(part, use_locking=use_locking, name=name, read_value=read_value), value
        )

    def assign_sub(
        self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtracts from every part; the list of results."""
        return self._each(
            lambda v, part: v.assign_sub(part, use_locking=use_locking, name=name, read_value=read_value), value
        )


def _to_tensor(value: PartitionedVariable, dtype: Any = None, name: str | None = None, as_ref: bool = False) -> Any:
    if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
        raise ValueError(
            f"Incompatible type conversion requested to type '{dtypes.as_dtype(dtype).name}' for variable of type '{value.dtype.name}'"
        )
    if as_ref:
        raise NotImplementedError("PartitionedVariable doesn't support being used as a reference.")
    return value.as_tensor()


register_tensor_conversion_function(PartitionedVariable, _to_tensor)


# -- partitioners: functions from (shape, dtype) to the number of parts per dimension -----------------------------------


def _bytes_per_element(dtype: dtypes.DType, bytes_per_string_element: int) -> int:
    return bytes_per_string_element if dtype.base_dtype == dtypes.string else dtype.size


def _checked(shape: Any, dtype: Any) -> tuple[TensorShape, dtypes.DType]:
    if not isinstance(shape, TensorShape):
        raise ValueError(f"shape is not a TensorShape: {shape}")
    if not shape.is_fully_defined():
        raise ValueError(f"shape is not fully defined: {shape}")
    return shape, dtypes.as_dtype(dtype)


@export("variable_axis_size_partitioner")
def variable_axis_size_partitioner(
    max_shard_bytes: int, axis: int = 0, bytes_per_string_element: int = 16, max_shards: int | None = None
) -> Callable[..., list[int]]:
    """Splits along `axis` so that no part takes more than `max_shard_bytes`, into at most `max_shards` parts."""
    if max_shard_bytes < 1 or bytes_per_string_element < 1:
        raise ValueError(
            "Both max_shard_bytes and bytes_per_string_element must be positive. Currently, max_shard_bytes is "
            f"{max_shard_bytes} and bytes_per_string_element is {bytes_per_string_element}"
        )
    if max_shards and max_shards < 1:
        raise ValueError("max_shards must be positive.")

    def partitioner(shape: Any, dtype: Any) -> list[int]:
        shape, dtype = _checked(shape, dtype)
        element = _bytes_per_element(dtype, bytes_per_string_element)
        sizes = shape.as_list()
        partitions = [1] * len(sizes)
        row_bytes = math.prod(sizes) // sizes[axis] * element
        if row_bytes > max_shard_bytes:
            shards = sizes[axis]
        else:
            shards = -(-sizes[axis] // max(1, max_shard_bytes // row_bytes))
        if max_shards:
            shards = min(max_shards, shards)
        partitions[axis] = shards
        return partitions

    return partitioner


@export("min_max_variable_partitioner")
def min_max_variable_partitioner(
    max_partitions: int = 1, axis: int = 0, min_slice_size: int = 256 << 10, bytes_per_string_element: int = 16
) -> Callable[..., list[int]]:
    """Splits along `axis` into at most `max_partitions` parts of at least `min_slice_size` bytes."""

    def partitioner(shape: Any, dtype: Any) -> list[int]:
        if axis >= len(shape):
            raise ValueError(f"Cannot partition variable along axis {axis} when shape is only {shape}")
        shape, dtype = _checked(shape, dtype)
        sizes = shape.as_list()
        total = math.prod(sizes) * _bytes_per_element(dtype, bytes_per_string_element)
        partitions = [1] * len(sizes)
        partitions[axis] = max(1, min(sizes[axis], max_partitions, -(-total // min_slice_size)))
        return partitions

    return partitioner


@export("fixed_size_partitioner")
def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Callable[..., list[int]]:
    """Splits along `axis` into `num_shards` parts."""

    def partitioner(shape: Any, **unused: Any) -> list[int]:
        partitions = [1] * len(shape)
        partitions[axis] = min(num_shards, dimension_value(TensorShape(shape)[axis]))
        return partitions

    return partitioner
