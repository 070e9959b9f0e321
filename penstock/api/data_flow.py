"""Queues as TF1 programs use them: `tf.FIFOQueue` and its relatives (also under `tf.queue`)."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any

from penstock import dtypes as _dtypes
from penstock.api.export import export
from penstock.api.framework import init_scope, name_scope
from penstock.api.random_ops import get_seed
from penstock.dtypes import DType
from penstock.graph.constant import constant_value
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape, unknown_shape


def as_type_list(types: Any) -> list[DType]:
    """One dtype, or a list of them, as a list."""
    if isinstance(types, (list, tuple)):
        return [_dtypes.as_dtype(t).base_dtype for t in types]
    return [_dtypes.as_dtype(types).base_dtype]


def as_shape_list(
    shapes: Any, types: Sequence[DType], unknown_dim_allowed: bool = False, unknown_rank_allowed: bool = False
) -> list[TensorShape] | None:
    """One shape, or a list of them, as a list with one shape per type; None stays None."""
    if shapes is None:
        return None
    if isinstance(shapes, TensorShape):
        shapes = [shapes]
    if not isinstance(shapes, (list, tuple)):
        raise TypeError(f"Shapes must be a TensorShape or a list or tuple of TensorShapes, got {type(shapes)} instead.")
    if all(s is None or isinstance(s, int) for s in shapes) and not (len(shapes) == len(types) == 0):
        # The shape of a single component.
        shapes = [shapes]
    shapes = [TensorShape(s) for s in shapes]
    if not unknown_dim_allowed and any(not shape.is_fully_defined() for shape in shapes):
        raise ValueError(f"All shapes must be fully defined: {shapes}")
    if not unknown_rank_allowed and any(shape.dims is None for shape in shapes):
        raise ValueError(f"All shapes must have a defined rank: {shapes}")
    return shapes


def as_name_list(names: Any, types: Sequence[DType]) -> list[str] | None:
    """One name, or a list with one name per type; None stays None."""
    if names is None:
        return None
    names = list(names) if isinstance(names, (list, tuple)) else [names]
    if len(names) != len(types):
        raise ValueError(
            f"List of names must have the same length as the list of dtypes, received len(names)={len(names)},len(dtypes)={len(types)}"
        )
    return names


@export("QueueBase", "queue.QueueBase", "io.QueueBase")
class QueueBase:
    """What all queues can do. An element of a queue is a tuple of tensors, its components.

    Enqueue and dequeue operations wait, when the step runs, until the queue has room or elements. `names` lets elements be dictionaries.
    """

    def __init__(self, dtypes: Any, shapes: Any, names: Any, queue_ref: Tensor) -> None:
        self._dtypes = list(dtypes)
        if shapes is not None:
            if len(shapes) != len(self._dtypes):
                raise ValueError(
                    f"Queue shapes must have the same length as dtypes, received len(shapes)={len(shapes)}, len(dtypes)={len(self._dtypes)}"
                )
            self._shapes = [TensorShape(s) for s in shapes]
        else:
            self._shapes = [unknown_shape() for _ in self._dtypes]
        if names is not None and len(names) != len(self._dtypes):
            raise ValueError(
                f"Queue names must have the same length as dtypes,received len(names)={len(names)},len {len(self._dtypes)}"
            )
        self._names = names
        self._queue_ref = queue_ref
        self._name = queue_ref.op.name.split("/")[-1]

    @staticmethod
    def from_list(index: Any, queues: Any) -> QueueBase:
        """The queue number `index` (a scalar int32 tensor) of a list of queues with the same types and names."""
        if not queues or not isinstance(queues, list) or not all(isinstance(q, QueueBase) for q in queues):
            raise TypeError("A list of queues expected")
        first = queues[0]
        if not all(q.dtypes == first.dtypes for q in queues[1:]):
            raise TypeError("Queues do not have matching component dtypes.")
        if not all(q.names == first.names for q in queues[1:]):
            raise TypeError("Queues do not have matching component names.")
        shapes = [functools.reduce(_common_shape, column) for column in zip(*[q.shapes for q in queues], strict=True)]
        handles = convert_to_tensor([q.queue_ref for q in queues])
        chosen = raw.GatherV2(handles, index, 0)
        return QueueBase(dtypes=first.dtypes, shapes=shapes, names=first.names, queue_ref=chosen)

    @property
    def queue_ref(self) -> Tensor:
        """The queue's handle."""
        return self._queue_ref

    @property
    def name(self) -> str:
        return self._queue_ref.op.name

    @property
    def dtypes(self) -> list[DType]:
        """The types of the components."""
        return self._dtypes

    @property
    def shapes(self) -> list[TensorShape]:
        """The shapes of the components."""
        return self._shapes

    @property
    def names(self) -> list[str] | None:
        """The names of the components, or None."""
        return self._names

    def _component_list(self, vals: Any) -> list[Any]:
        if isinstance(vals, dict):
            if not self._names:
                raise ValueError("Queue must have names to enqueue a dictionary")
            if sorted(self._names, key=str) != sorted(vals, key=str):
                raise ValueError(
                    "Keys in dictionary to enqueue do not match names of Queue.  "
                    f"Dictionary: {sorted(vals, key=str)},Queue: {sorted(self._names, key=str)}"
                )
            return [vals[name] for name in self._names]
        if self._names:
            raise ValueError("You must enqueue a dictionary in a Queue with names")
        return list(vals) if isinstance(vals, (list, tuple)) else [vals]

    def _components(self, vals: Any) -> list[Tensor]:
        """The values to enqueue as tensors, in the order of the queue's types."""
        return [
            convert_to_tensor(value, dtype, name=f"component_{i}")
            for i, (value, dtype) in enumerate(zip(self._component_list(vals), self._dtypes, strict=False))
        ]

    @staticmethod
    def _scope_vals(vals: Any) -> Any:
        return vals if isinstance(vals, (list, tuple)) else vals.values() if isinstance(vals, dict) else [vals]

    def enqueue(self, vals: Any, name: str | None = None) -> Operation:
        """Adds one element: a tensor, a list or tuple of tensors, or a dict if the queue has names.

        Waits while the queue is full; on a closed queue the step fails with CancelledError.
        """
        with name_scope(name, f"{self._name}_enqueue", self._scope_vals(vals)) as scope:
            tensors = self._components(vals)
            for tensor, shape in zip(tensors, self._shapes, strict=False):
                tensor.shape.assert_is_compatible_with(shape)
            return raw.QueueEnqueueV2(self._queue_ref, tensors, name=scope)

    def enqueue_many(self, vals: Any, name: str | None = None) -> Operation:
        """Adds the elements that lie along dimension 0 of the given tensors."""
        with name_scope(name, f"{self._name}_EnqueueMany", self._scope_vals(vals)) as scope:
            tensors = self._components(vals)
            batch = tensors[0].shape.with_rank_at_least(1)[0]
            for tensor, shape in zip(tensors, self._shapes, strict=False):
                tensor_shape = tensor.shape.with_rank_at_least(1)
                batch = batch.merge_with(tensor_shape[0])
                tensor_shape[1:].assert_is_compatible_with(shape)
            return raw.QueueEnqueueManyV2(self._queue_ref, tensors, name=scope)

    def _dequeued(self, tensors: list[Tensor]) -> Any:
        if self._names:
            return dict(zip(self._names, tensors, strict=True))
        return tensors[0] if len(tensors) == 1 else tensors

    def dequeue(self, name: str | None = None) -> Any:
        """Takes one element: a tensor, a list of tensors, or a dict if the queue has names.

        Waits for an element; on a closed queue without one the step fails with OutOfRangeError.
        """
        tensors = raw.QueueDequeueV2(self._queue_ref, component_types=self._dtypes, name=name or f"{self._name}_Dequeue")
        for tensor, shape in zip(tensors, self._shapes, strict=True):
            tensor.set_shape(shape)
        return self._dequeued(tensors)

    def dequeue_many(self, n: Any, name: str | None = None) -> Any:
        """Takes `n` elements, stacked along a new dimension 0. The components' shapes must be known.

        Waits until there are `n`; on a closed queue with fewer the step fails with OutOfRangeError and they stay.
        """
        tensors = raw.QueueDequeueManyV2(self._queue_ref, n, component_types=self._dtypes, name=name or f"{self._name}_DequeueMany")
        size = constant_value(tensors[0].op.inputs[1])
        batch = TensorShape([None if size is None else int(size)])
        for tensor, shape in zip(tensors, self._shapes, strict=True):
            tensor.set_shape(batch.concatenate(shape))
        return self._dequeued(tensors)

    def dequeue_up_to(self, n: Any, name: str | None = None) -> Any:
        """As `dequeue_many`, but a closed queue gives the elements it has left, if any."""
        tensors = raw.QueueDequeueUpToV2(self._queue_ref, n, component_types=self._dtypes, name=name or f"{self._name}_DequeueUpTo")
        for tensor, shape in zip(tensors, self._shapes, strict=True):
            tensor.set_shape(TensorShape([None]).concatenate(shape))
        return self._dequeued(tensors)

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Operation:
        """No more elements will come. Enqueues that wait still take place, unless `cancel_pending_enqueues`."""
        return raw.QueueCloseV2(self._queue_ref, cancel_pending_enqueues=cancel_pending_enqueues, name=name or f"{self._name}_Close")

    def is_closed(self, name: str | None = None) -> Tensor:
        """Whether the queue is closed."""
        return raw.QueueIsClosedV2(self._queue_ref, name=name or f"{self._name}_Is_Closed")

    def size(self, name: str | None = None) -> Tensor:
        """How many elements the queue holds."""
        return raw.QueueSizeV2(self._queue_ref, name=name or f"{self._name}_Size")


def _common_shape(a: TensorShape, b: TensorShape) -> TensorShape:
    """What both shapes agree on."""
    if a.dims is None or b.dims is None or len(a) != len(b):
        return unknown_shape()
    return TensorShape([x if x == y else None for x, y in zip(a.as_list(), b.as_list(), strict=True)])


@export("FIFOQueue", "queue.FIFOQueue")
class FIFOQueue(QueueBase):
    """A queue that gives its elements in the order they came.

    >>> import penstock as tf
    >>> queue = tf.FIFOQueue(capacity=10, dtypes=tf.int32, shapes=[()])
    >>> fill, batch = queue.enqueue_many([[1, 2, 3]]), queue.dequeue_many(2)
    >>> with tf.Session() as sess:
    ...     sess.run(fill)
    ...     sess.run(batch).tolist()
    [1, 2]
    """

    def __init__(self, capacity: int, dtypes: Any, shapes: Any = None, names: Any = None, shared_name: str | None = None,
                 name: str = "fifo_queue") -> None:  # fmt: skip
        types = as_type_list(dtypes)
        shape_list = as_shape_list(shapes, types)
        name_list = as_name_list(names, types)
        with init_scope(), get_default_graph().device("CPU"):
            handle = raw.FIFOQueueV2(component_types=types, shapes=shape_list, capacity=capacity, shared_name=shared_name, name=name)
        super().__init__(types, shape_list, name_list, handle)


@export("PaddingFIFOQueue", "queue.PaddingFIFOQueue", "io.PaddingFIFOQueue")
class PaddingFIFOQueue(QueueBase):
    """A FIFOQueue whose elements may differ in size: dimensions declared as None are padded with zeros in batches."""

    def __init__(self, capacity: int, dtypes: Any, shapes: Any, names: Any = None, shared_name: str | None = None,
                 name: str = "padding_fifo_queue") -> None:  # fmt: skip
        types = as_type_list(dtypes)
        shape_list = as_shape_list(shapes, types, unknown_dim_allowed=True)
        name_list = as_name_list(names, types)
        if shape_list is None or len(types) != len(shape_list):
            raise ValueError(
                "Shapes must be provided for all components, but received "
                f"{len(types)} dtypes and {len(shape_list) if shape_list is not None else 0} shapes."
            )
        handle = raw.PaddingFIFOQueueV2(component_types=types, shapes=shape_list, capacity=capacity, shared_name=shared_name, name=name)
        super().__init__(types, shape_list, name_list, handle)


@export("RandomShuffleQueue", "queue.RandomShuffleQueue", "io.RandomShuffleQueue")
class RandomShuffleQueue(QueueBase):
    """A queue that gives its elements in random order, and keeps at least `min_after_dequeue` of them to choose from until it is closed."""

    def __init__(self, capacity: int, min_after_dequeue: int, dtypes: Any, shapes: Any = None, names: Any = None, seed: int | None = None,
                 shared_name: str | None = None, name: str = "random_shuffle_queue") -> None:  # fmt: skip
        types = as_type_list(dtypes)
        shape_list = as_shape_list(shapes, types)
        name_list = as_name_list(names, types)
        seed1, seed2 = get_seed(seed)
        if seed1 is None and seed2 is None:
            seed1, seed2 = 0, 0
        elif seed is None and shared_name is not None:
            # Programs that share the queue must agree on its seeds, whatever else their graphs hold.
            digest = hashlib.md5(f"{seed1}{shared_name}".encode(), usedforsecurity=False).hexdigest()
            seed2 = int(digest[:8], 16) & 0x7FFFFFFF
        handle = raw.RandomShuffleQueueV2(
            component_types=types, shapes=shape_list, capacity=capacity, min_after_dequeue=min_after_dequeue, seed=seed1, seed2=seed2,
            shared_name=shared_name, name=name,
        )  # fmt: skip
        super().__init__(types, shape_list, name_list, handle)


@export("PriorityQueue", "queue.PriorityQueue", "io.PriorityQueue")
class PriorityQueue(QueueBase):
    """A queue that gives the element with the smallest priority first.

    The priority is an int64 scalar that comes first, before the components of the declared `types`, in enqueues and dequeues.
    """

    def __init__(self, capacity: int, types: Any, shapes: Any = None, names: Any = None, shared_name: str | None = None,
                 name: str = "priority_queue") -> None:  # fmt: skip
        type_list = as_type_list(types)
        shape_list = as_shape_list(shapes, type_list)
        if shape_list is None:
            raise TypeError("Expected list for 'shapes' argument to 'priority_queue_v2' Op, not None.")
        handle = raw.PriorityQueueV2(component_types=type_list, shapes=shape_list, capacity=capacity, shared_name=shared_name, name=name)
        super().__init__([_dtypes.int64, *type_list], [TensorShape([]), *shape_list], names, handle)
