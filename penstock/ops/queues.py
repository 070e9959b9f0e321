"""Queues: FIFO, padding, random-shuffle and priority queues, and the ops that fill and empty them.

All but the making of a queue are asynchronous kernels: an op that must wait leaves an attempt in the queue and returns. Every op
exists twice, with the older string handle and with a resource handle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims, Operation
from penstock.ops.declare import NOT_DIFFERENTIABLE, no_outputs, op, scalar, unknown, vector
from penstock.ops.kernels import queues
from penstock.ops.kernels.handles import find, make_handle, string_handle
from penstock.ops.kernels.queues import Queue, types_text
from penstock.ops.resources import carried
from penstock.ops.samples import program
from penstock.shapes import TensorShape, dims_of, format_dims, is_fully_defined

# -- making queues ----------------------------------------------------------------------------------------------------


def _queue(ctx: Any, cls: Any, types: list[DType], shapes: list[Dims], extra: tuple, attrs: dict[str, Any], node: Operation, state: Any) -> Any:
    return make_handle(
        ctx, Queue, lambda name: cls(name, attrs["capacity"], types, shapes, *extra), node, state, attrs["container"], attrs["shared_name"],
        check=lambda queue: queue.check_shared(node.type, attrs, types, shapes), as_ref=not node.type.endswith("V2"),
    )  # fmt: skip


def _full_shapes(shapes: list[TensorShape]) -> list[Dims]:
    dims = [dims_of(shape) for shape in shapes]
    for d in dims:
        if not is_fully_defined(d):
            raise InvalidArgumentError(f"Shape {format_dims(d)} is not fully defined")
    return dims


def fifo_kernel(ctx: Any, *, component_types: list[DType], shapes: list[TensorShape], node: Operation, state: Any) -> Any:
    return _queue(ctx, queues.FIFOQueue, component_types, _full_shapes(shapes), (), node.attrs, node, state)


def padding_kernel(ctx: Any, *, component_types: list[DType], shapes: list[TensorShape], node: Operation, state: Any) -> Any:
    dims = [dims_of(shape) for shape in shapes]
    for d in dims:
        if d is None:
            raise InvalidArgumentError(f"shape {format_dims(d)} must have known rank.")
    return _queue(ctx, queues.PaddingFIFOQueue, component_types, dims, (), node.attrs, node, state)


def shuffle_kernel(ctx: Any, *, component_types: list[DType], shapes: list[TensorShape], min_after_dequeue: int, seed: int, seed2: int,
                   node: Operation, state: Any) -> Any:  # fmt: skip
    extra = (min_after_dequeue, seed, seed2)
    return _queue(ctx, queues.RandomShuffleQueue, component_types, _full_shapes(shapes), extra, node.attrs, node, state)


def priority_kernel(ctx: Any, *, component_types: list[DType], shapes: list[TensorShape], node: Operation, state: Any) -> Any:
    # The priority comes first and is not declared.
    return _queue(ctx, queues.PriorityQueue, [dtypes.int64, *component_types], [(), *_full_shapes(shapes)], (), node.attrs, node, state)


_TYPES = "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1"
_PRIORITY_TYPES = "component_types: list(type) >= 0 = []; shapes: list(shape) >= 0; capacity: int = -1"
_NAMES = "container: string = ''; shared_name: string = ''"
for _name, _attrs, _kernel in (
    ("FIFOQueue", _TYPES, fifo_kernel),
    ("PaddingFIFOQueue", _TYPES, padding_kernel),
    ("RandomShuffleQueue", f"{_TYPES}; min_after_dequeue: int = 0; seed: int = 0; seed2: int = 0", shuffle_kernel),
    ("PriorityQueue", _PRIORITY_TYPES, priority_kernel),
):
    op(f"{_name}() -> (handle: ref string) [{_attrs}; {_NAMES}] stateful", shape=vector(2), numpy=_kernel, grad=NOT_DIFFERENTIABLE)
    op(f"{_name}V2() -> (handle: resource) [{_attrs}; {_NAMES}] stateful", shape=scalar, numpy=_kernel, grad=NOT_DIFFERENTIABLE)


def fake_queue_kernel(resource: Any, *, node: Operation) -> Any:
    carried(resource, object)
    return string_handle(resource.container, resource.name, node.name)


op("FakeQueue(resource: resource) -> (handle: ref string) stateful", shape=vector(2), numpy=fake_queue_kernel)


# -- filling and emptying them ----------------------------------------------------------------------------------------


def _no_timeout(timeout_ms: int) -> None:
    if timeout_ms != -1:
        raise InvalidArgumentError("Timeout not supported yet.")


def _check_signature(queue: Queue, types: list[DType], node: Operation, batch: bool, taking: bool) -> None:
    if types == queue.types:
        return
    handle = "resource" if node.type.endswith("V2") else "string_ref"
    head = f"{handle}, int32" if batch and taking else handle
    have, want = ((f"{head}->{t}" if taking else f"{head}, {t}->") for t in (types_text(types), types_text(queue.types)))
    raise InvalidArgumentError(f"Signature mismatch, have: {have} expected: {want}")


def enqueue_kernel(ctx: Any, done: Callable[..., Any], handle: Any, components: list[Any], *, Tcomponents: list[DType], timeout_ms: int,
                   node: Operation) -> None:  # fmt: skip
    _no_timeout(timeout_ms)
    queue = find(ctx, handle, Queue)
    _check_signature(queue, Tcomponents, node, False, False)
    queue.enqueue(ctx, done, components)


def enqueue_many_kernel(ctx: Any, done: Callable[..., Any], handle: Any, components: list[Any], *, Tcomponents: list[DType], timeout_ms: int,
                        node: Operation) -> None:  # fmt: skip
    _no_timeout(timeout_ms)
    queue = find(ctx, handle, Queue)
    _check_signature(queue, Tcomponents, node, True, False)
    queue.enqueue_many(ctx, done, components)


def dequeue_kernel(ctx: Any, done: Callable[..., Any], handle: Any, *, component_types: list[DType], timeout_ms: int, node: Operation) -> None:
    _no_timeout(timeout_ms)
    queue = find(ctx, handle, Queue)
    _check_signature(queue, component_types, node, False, True)
    queue.dequeue(ctx, done)


def _dequeue_batch(small_ok: bool) -> Callable[..., None]:
    name = "DequeueUpToOp" if small_ok else "DequeueManyOp"

    def kernel(ctx: Any, done: Callable[..., Any], handle: Any, n: Any, *, component_types: list[DType], timeout_ms: int,
               node: Operation) -> None:  # fmt: skip
        _no_timeout(timeout_ms)
        if np.size(n) != 1:
            raise InvalidArgumentError(f"n must be a scalar, got shape {format_dims(np.shape(n))}")
        count = int(np.reshape(n, ()))
        if count < 0:
            raise InvalidArgumentError(f"{name} requested {count} < 0 elements")
        queue = find(ctx, handle, Queue)
        _check_signature(queue, component_types, node, True, True)
        queue.dequeue_many(ctx, done, count, small_ok)

    return kernel


def close_kernel(ctx: Any, done: Callable[..., Any], handle: Any, *, cancel_pending_enqueues: bool) -> None:
    find(ctx, handle, Queue).close(ctx, done, cancel_pending_enqueues)


def size_kernel(ctx: Any, handle: Any) -> Any:
    return np.int32(find(ctx, handle, Queue).size)


def is_closed_kernel(ctx: Any, handle: Any) -> Any:
    return np.bool_(find(ctx, handle, Queue).closed)


def batch_shape(c: Any) -> Dims:
    n = c.const(1)
    if n is not None and np.size(n) == 1 and int(np.ravel(n)[0]) < 0:
        raise ValueError(f"Input 'n' must be >= 0, but is {int(np.ravel(n)[0])}")
    return None


def _fifo_program(tf: Any) -> Any:
    q = tf.FIFOQueue(10, [tf.float32, tf.string], shapes=[[2], []])
    with tf.control_dependencies([q.enqueue_many([[[1.0, 2.0], [3.0, 4.0]], ["a", "b"]])]):
        last = q.enqueue([[5.0, 6.0], "c"])
    with tf.control_dependencies([last]):
        first = q.dequeue_many(2)
    with tf.control_dependencies(first):
        return first, q.dequeue()


def _up_to_program(tf: Any) -> Any:
    q = tf.PaddingFIFOQueue(10, [tf.int32], shapes=[[None]])
    with tf.control_dependencies([q.enqueue([[1]])]):
        second = q.enqueue([[2, 3]])
    with tf.control_dependencies([second]):
        close = q.close()
    with tf.control_dependencies([close]):
        return q.dequeue_up_to(5)


def _shuffle_program(tf: Any) -> Any:
    q = tf.RandomShuffleQueue(40, 2, [tf.int32], shapes=[[]], seed=7)
    with tf.control_dependencies([q.enqueue_many([list(range(20))])]):
        batch = q.dequeue_many(8)
        with tf.control_dependencies([batch]):
            return batch, q.size()


def _priority_program(tf: Any) -> Any:
    q = tf.PriorityQueue(40, [tf.string], shapes=[[]])
    with tf.control_dependencies([q.enqueue_many([[3, 1, 2], ["c", "a", "b"]])]):
        return q.dequeue_many(3)


_IN = "Tcomponents: list(type) >= 1; timeout_ms: int = -1"
_OUT = "component_types: list(type) >= 1; timeout_ms: int = -1"
for _v, _handle, _flags in (("", "ref string", ""), ("V2", "resource", " stateful")):
    _samples = bool(_v)  # the public API makes V2 ops
    op(f"QueueEnqueue{_v}(handle: {_handle}, components: list Tcomponents) -> () [{_IN}]{_flags}",
       shape=no_outputs, async_kernel=enqueue_kernel)  # fmt: skip
    op(f"QueueEnqueueMany{_v}(handle: {_handle}, components: list Tcomponents) -> () [{_IN}]{_flags}",
       shape=no_outputs, async_kernel=enqueue_many_kernel)  # fmt: skip
    op(f"QueueDequeue{_v}(handle: {_handle}) -> (components: list component_types) [{_OUT}]{_flags}",
       shape=unknown, async_kernel=dequeue_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
    op(f"QueueDequeueMany{_v}(handle: {_handle}, n: int32) -> (components: list component_types) [{_OUT}]{_flags}",
       shape=batch_shape, async_kernel=_dequeue_batch(False), grad=NOT_DIFFERENTIABLE, host_memory=["n"],
       samples=[program(_fifo_program), program(_shuffle_program), program(_priority_program)] if _samples else [])  # fmt: skip
    op(f"QueueDequeueUpTo{_v}(handle: {_handle}, n: int32) -> (components: list component_types) [{_OUT}]{_flags}",
       shape=batch_shape, async_kernel=_dequeue_batch(True), grad=NOT_DIFFERENTIABLE, host_memory=["n"],
       samples=[program(_up_to_program)] if _samples else [])  # fmt: skip
    op(f"QueueClose{_v}(handle: {_handle}) -> () [cancel_pending_enqueues: bool = false]{_flags}",
       shape=no_outputs, async_kernel=close_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
    op(f"QueueIsClosed{_v}(handle: {_handle}) -> (is_closed: bool){_flags}", shape=scalar, numpy=is_closed_kernel)
    op(f"QueueSize{_v}(handle: {_handle}) -> (size: int32){_flags}", shape=scalar, numpy=size_kernel, grad=NOT_DIFFERENTIABLE)
