"""Barriers: ops that collect the components of keyed elements and hand out complete ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims, Operation
from penstock.ops.declare import checked_scalar, no_outputs, op, scalar, vector, with_rank, with_rank_at_least
from penstock.ops.kernels.barriers import Barrier
from penstock.ops.kernels.handles import find, make_handle
from penstock.ops.kernels.queues import types_text
from penstock.shapes import TensorShape, dims_of, format_dims, is_fully_defined, merge_dim


def barrier_kernel(ctx: Any, *, component_types: list[DType], shapes: list[TensorShape], capacity: int, container: bytes, shared_name: bytes,
                   node: Operation, state: Any) -> Any:  # fmt: skip
    if len(shapes) != len(component_types):
        raise InvalidArgumentError("All of the component shapes must be specified")
    if capacity != -1:
        raise InvalidArgumentError("Barrier only accepts capacity=-1.  Feed the inputs to your Barrier through a queue to enforce a limited capacity.")
    dims = [() if d is None else d for d in map(dims_of, shapes)]
    for i, d in enumerate(dims):
        if not is_fully_defined(d):
            raise InvalidArgumentError(f"Shape {format_dims(d)} is not fully defined")
        if 0 in d:
            raise InvalidArgumentError(f"Empty tensors are not supported, but received shape '{format_dims(d)}' at index {i}")
    return make_handle(ctx, Barrier, lambda name: Barrier(name, component_types, dims), node, state, container, shared_name,
                       check=lambda barrier: barrier.check_shared(component_types, dims), as_ref=True)  # fmt: skip


def insert_kernel(ctx: Any, handle: Any, keys: Any, values: Any, *, T: DType, component_index: int) -> None:
    barrier = find(ctx, handle, Barrier)
    n = len(barrier.types)
    if not 0 <= component_index < n:
        raise InvalidArgumentError(f"The component ID is out of range {component_index} > num_components (= {n})")
    if barrier.types[component_index] is not T:
        have, want = (f"string_ref, string, {types_text([t])}->" for t in (T, barrier.types[component_index]))
        raise InvalidArgumentError(f"Signature mismatch, have: {have} expected: {want}")
    barrier.insert(keys, values, component_index)


def take_kernel(ctx: Any, done: Callable[..., Any], handle: Any, num_elements: Any, *, component_types: list[DType], allow_small_batch: bool,
                wait_for_incomplete: bool, timeout_ms: int) -> None:  # fmt: skip
    if timeout_ms != -1:
        raise InvalidArgumentError("Timeout not supported yet.")
    barrier = find(ctx, handle, Barrier)
    if component_types != barrier.types:
        have, want = (f"string_ref, int32->int64, string, {types_text(t)}" for t in (component_types, barrier.types))
        raise InvalidArgumentError(f"Signature mismatch, have: {have} expected: {want}")
    n = int(num_elements)
    if n < 0:
        raise InvalidArgumentError(f"num_elements must be >= 0, but was {n}")
    barrier.take(ctx, done, n, allow_small_batch, wait_for_incomplete)


def close_kernel(ctx: Any, handle: Any, *, cancel_pending_enqueues: bool) -> None:
    find(ctx, handle, Barrier).close(cancel_pending_enqueues)


def insert_shape(c: Any) -> list[Dims]:
    handle, keys = with_rank(c, 0, 1), with_rank(c, 1, 1)
    values = with_rank_at_least(c, 2, 1)
    merge_dim(handle[0], 2)  # type: ignore[index]
    if values is not None:
        merge_dim(keys[0], values[0])  # type: ignore[index]
    return []


def take_shape(c: Any) -> list[Dims]:
    checked_scalar(c, 1)
    n = c.const(1)
    # How many come is only certain where small batches are not allowed.
    size = None if n is None or c.attrs["allow_small_batch"] else int(n)
    return [(size,), (size,), *[None for _ in c.attrs["component_types"]]]


op("Barrier() -> (handle: ref string) [component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1;"
   " container: string = ''; shared_name: string = ''] stateful",
   shape=vector(2), numpy=barrier_kernel)  # fmt: skip
op("BarrierInsertMany(handle: ref string, keys: string, values: T) -> () [T: type; component_index: int]",
   shape=insert_shape, numpy=insert_kernel)  # fmt: skip
op("BarrierTakeMany(handle: ref string, num_elements: int32) -> (indices: int64, keys: string, values: list component_types)"
   " [component_types: list(type) >= 1; allow_small_batch: bool = false; wait_for_incomplete: bool = false; timeout_ms: int = -1]",
   shape=take_shape, async_kernel=take_kernel)  # fmt: skip
op("BarrierClose(handle: ref string) -> () [cancel_pending_enqueues: bool = false]", shape=no_outputs, numpy=close_kernel)
op("BarrierReadySize(handle: ref string) -> (size: int32)",
   shape=scalar, numpy=lambda ctx, handle: np.int32(find(ctx, handle, Barrier).ready.size))  # fmt: skip
op("BarrierIncompleteSize(handle: ref string) -> (size: int32)",
   shape=scalar, numpy=lambda ctx, handle: np.int32(len(find(ctx, handle, Barrier).incomplete)))  # fmt: skip
