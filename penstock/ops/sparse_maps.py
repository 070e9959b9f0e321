"""Sparse tensors behind int64 handles, so that queues can hold them: AddSparseToTensorsMap and its relatives."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.forks import renewed
from penstock.graph.ir import Dims, Operation
from penstock.ops.declare import op, scalar, vector, with_rank
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.resources import DEFAULT_CONTAINER
from penstock.ops.samples import program
from penstock.shapes import format_dims


class SparseMap:
    """Sparse tensors by handle; each can be taken once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = renewed(threading.Lock())
        self.next = 0
        self.tensors: dict[int, tuple[Any, Any, Any]] = {}

    def add(self, tensors: list[tuple[Any, Any, Any]]) -> np.ndarray:
        with self.lock:
            first = self.next
            self.next += len(tensors)
            self.tensors.update(enumerate(tensors, first))
        return np.arange(first, first + len(tensors), dtype=np.int64)

    def take(self, handles: list[int]) -> list[tuple[Any, Any, Any]]:
        with self.lock:
            for handle in handles:
                if handle not in self.tensors:
                    raise InvalidArgumentError(f"Unable to find SparseTensor: {handle} in map: {self.name}")
            return [self.tensors.pop(handle) for handle in handles]


def _map(ctx: Any, node: Operation) -> SparseMap:
    container = node.attrs["container"].decode() or DEFAULT_CONTAINER
    name = node.attrs["shared_name"].decode() or node.name
    return ctx.resources.lookup_or_create(container, name, SparseMap, lambda: SparseMap(name))


def _check(indices: Any, values: Any, shape: Any) -> None:
    for what, array, rank in (("indices", indices, 2), ("values", values, 1), ("shape", shape, 1)):
        if np.ndim(array) != rank:
            kind = "matrix" if rank == 2 else "vector"
            raise InvalidArgumentError(f"Input {what} should be a {kind} but received shape {format_dims(np.shape(array))}")
    if len(indices) != len(values):
        raise InvalidArgumentError(f"Number of values must match first dimension of indices. Got {len(values)} values, indices shape: {format_dims(indices.shape)}")
    if indices.shape[1] != len(shape):
        raise InvalidArgumentError(f"Number of dimensions must match second dimension of indices. Got {len(shape)} dimensions, indices shape: {format_dims(indices.shape)}")


def add_kernel(ctx: Any, indices: Any, values: Any, shape: Any, *, node: Operation) -> Any:
    _check(indices, values, shape)
    return _map(ctx, node).add([(indices, values, shape)])[0]


def add_many_kernel(ctx: Any, indices: Any, values: Any, shape: Any, *, node: Operation) -> Any:
    _check(indices, values, shape)
    if len(shape) < 2:
        raise InvalidArgumentError(f"Rank of input SparseTensor should be > 1, but saw rank: {len(shape)}")
    rows = indices[:, 0]
    if len(rows) and (rows.min() < 0 or rows.max() >= shape[0] or (np.diff(rows) < 0).any()):
        raise InvalidArgumentError("indices must be sorted by row, and rows must be within the shape")
    cuts = np.searchsorted(rows, np.arange(int(shape[0]) + 1))
    parts = [(indices[a:b, 1:], values[a:b], shape[1:]) for a, b in itertools.pairwise(cuts)]
    return _map(ctx, node).add(parts)


def take_kernel(ctx: Any, handles: Any, *, dtype: DType, node: Operation) -> list[Any]:
    if np.ndim(handles) != 1:
        raise InvalidArgumentError(f"sparse_handles must be a vector, got shape {format_dims(np.shape(handles))}")
    tensors = _map(ctx, node).take(handles.tolist())
    if not tensors:
        raise InvalidArgumentError("Must have at least 1 element in sparse_handles")
    rank = len(tensors[0][2])
    sizes = np.zeros(rank, np.int64)
    for i, (_, values, shape) in enumerate(tensors):
        if len(shape) != rank:
            raise InvalidArgumentError(
                f"Inconsistent rank across SparseTensors: rank prior to SparseTensor[{i}] was: {rank + 1} but rank of SparseTensor[{i}] is: {len(shape) + 1}"
            )
        if values.dtype != dtype.np:
            raise InvalidArgumentError(f"Requested SparseTensor of type {dtype_text(dtype)} but SparseTensor[{i}].values.dtype() == {values.dtype}")
        np.maximum(sizes, shape, out=sizes)
    rows = np.repeat(np.arange(len(tensors)), [len(v) for _, v, _ in tensors])
    inner = np.concatenate([indices for indices, _, _ in tensors])
    indices = np.concatenate([rows[:, None], inner], axis=1).astype(np.int64)
    return [indices, np.concatenate([v for _, v, _ in tensors]), np.concatenate([[len(tensors)], sizes]).astype(np.int64)]


def take_shape(c: Any) -> list[Dims]:
    with_rank(c, 0, 1)
    return [(None, None), (None,), (None,)]


def _program(tf: Any) -> Any:
    x = tf.SparseTensor([[0, 1], [1, 0], [1, 2]], [1.0, 2.0, 3.0], [3, 4])
    handles = tf.raw_ops.AddManySparseToTensorsMap(sparse_indices=x.indices, sparse_values=x.values, sparse_shape=x.dense_shape, shared_name="m")
    return tf.raw_ops.TakeManySparseFromTensorsMap(sparse_handles=handles, dtype=tf.float32, shared_name="m")


_NAMES = "container: string = ''; shared_name: string = ''"
op(f"AddSparseToTensorsMap(sparse_indices: int64, sparse_values: T, sparse_shape: int64) -> (sparse_handle: int64) [T: type; {_NAMES}] stateful",
   shape=scalar, numpy=add_kernel)  # fmt: skip
op(f"AddManySparseToTensorsMap(sparse_indices: int64, sparse_values: T, sparse_shape: int64) -> (sparse_handles: int64) [T: type; {_NAMES}] stateful",
   shape=vector(), numpy=add_many_kernel)  # fmt: skip
op("TakeManySparseFromTensorsMap(sparse_handles: int64) -> (sparse_indices: int64, sparse_values: dtype, sparse_shape: int64)"
   f" [dtype: type; {_NAMES}] stateful",
   shape=take_shape, numpy=take_kernel, samples=[program(_program)])  # fmt: skip
