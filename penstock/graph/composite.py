"""Values made of several tensors: IndexedSlices (sparse gradients) and SparseTensor."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.graph.ir import Graph, Operation, Tensor
from penstock.shapes import TensorShape


class IndexedSlices:
    """Rows `values[i]` that belong to rows `indices[i]` of a larger tensor; what a gather's gradient is."""

    def __init__(self, values: Tensor, indices: Tensor, dense_shape: Tensor | None = None) -> None:
        self._values = values
        self._indices = indices
        self._dense_shape = dense_shape

    @property
    def values(self) -> Tensor:
        return self._values

    @property
    def indices(self) -> Tensor:
        return self._indices

    @property
    def dense_shape(self) -> Tensor | None:
        return self._dense_shape

    @property
    def shape(self) -> TensorShape:
        if self._dense_shape is None:
            return TensorShape(None)
        from penstock.graph.constant import constant_dims

        return TensorShape.from_dims(constant_dims(self._dense_shape))

    @property
    def name(self) -> str:
        return self._values.name

    @property
    def device(self) -> str:
        return self._values.device

    @property
    def op(self) -> Operation:
        return self._values.op

    @property
    def dtype(self) -> Any:
        return self._values.dtype

    @property
    def graph(self) -> Graph:
        return self._values.graph

    def consumers(self) -> list[Operation]:
        return self._values.consumers()

    def __repr__(self) -> str:
        shape = "" if self._dense_shape is None else f", dense_shape={self._dense_shape}"
        return f"IndexedSlices(indices={self._indices}, values={self._values}{shape})"


class IndexedSlicesValue(NamedTuple):
    """What fetching an IndexedSlices gives."""

    values: Any
    indices: Any
    dense_shape: Any


class SparseTensorValue(NamedTuple):
    """What fetching a SparseTensor gives, and what one may feed for it."""

    indices: Any
    values: Any
    dense_shape: Any


class SparseTensor:
    """A sparse tensor in coordinate form: `indices` [n, rank] int64, `values` [n], `dense_shape` [rank] int64."""

    @classmethod
    def from_value(cls, sparse_tensor_value: Any) -> SparseTensor:
        if isinstance(sparse_tensor_value, SparseTensor):
            return sparse_tensor_value
        if not isinstance(sparse_tensor_value, SparseTensorValue):
            raise TypeError(f"Argument `sparse_tensor_value` must be either a SparseTensor or SparseTensorValue. Received {sparse_tensor_value}.")
        return cls(sparse_tensor_value.indices, sparse_tensor_value.values, sparse_tensor_value.dense_shape)

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        from penstock import dtypes
        from penstock.graph.convert import convert_to_tensor
        from penstock.graph.defaults import get_default_graph, graph_scope

        self._static_shape: TensorShape | None = None
        graph = next((v.graph for v in (indices, values, dense_shape) if isinstance(v, Tensor)), None) or get_default_graph()
        with graph_scope(graph), graph.name_scope("SparseTensor"):
            self._indices = convert_to_tensor(indices, dtype=dtypes.int64, name="indices")
            self._values = convert_to_tensor(values, name="values")
            self._dense_shape = convert_to_tensor(dense_shape, dtype=dtypes.int64, name="dense_shape")
        for tensor, rank, what in ((self._indices, 2, "indices"), (self._values, 1, "values"), (self._dense_shape, 1, "dense_shape")):
            if tensor.dims is not None and len(tensor.dims) != rank:
                raise ValueError(f"Shape {tensor.shape} must have rank {rank} ({what} of a SparseTensor)")

    @property
    def indices(self) -> Tensor:
        return self._indices

    @property
    def values(self) -> Tensor:
        return self._values

    @property
    def dense_shape(self) -> Tensor:
        return self._dense_shape

    @property
    def shape(self) -> TensorShape:
        from penstock.graph.constant import constant_dims

        known = TensorShape.from_dims(constant_dims(self._dense_shape))
        return known if self._static_shape is None else known.merge_with(self._static_shape)

    def set_shape(self, shape: Any) -> None:
        """Merges `shape` into what is known statically of the dense shape."""
        self._static_shape = self.shape.merge_with(shape)

    def get_shape(self) -> TensorShape:
        return self.shape

    @property
    def dtype(self) -> Any:
        return self._values.dtype

    @property
    def op(self) -> Operation:
        return self._values.op

    @property
    def graph(self) -> Graph:
        return self._indices.graph

    @property
    def name(self) -> str:
        return self._values.name

    def eval(self, feed_dict: dict | None = None, session: Any = None) -> SparseTensorValue:
        from penstock.graph.defaults import eval_using_default_session

        return eval_using_default_session(self, feed_dict, self.graph, session)

    def with_values(self, new_values: Any) -> SparseTensor:
        return SparseTensor(self._indices, new_values, self._dense_shape)

    def consumers(self) -> list[Operation]:
        return list(dict.fromkeys(self._values.consumers() + self._indices.consumers() + self._dense_shape.consumers()))

    def __str__(self) -> str:
        return f"SparseTensor(indices={self._indices}, values={self._values}, dense_shape={self._dense_shape})"

    __repr__ = __str__
