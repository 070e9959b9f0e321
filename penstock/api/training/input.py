"""TF1's input pipelines of queues: producers of file names and slices, and functions that make batches.

Every function here adds a QueueRunner to the graph; `tf.train.start_queue_runners` starts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock import dtypes as _dtypes
from penstock.api.array_indexing import gather
from penstock.api.array_ops import identity, shape, size
from penstock.api.control_flow import cond, no_op
from penstock.api.data_flow import FIFOQueue, PaddingFIFOQueue, QueueBase, RandomShuffleQueue
from penstock.api.export import export, resolve, table
from penstock.api.framework import control_dependencies, name_scope
from penstock.api.logging_ops import Assert
from penstock.api.math_ops import cast
from penstock.api.math_reduce import range_
from penstock.api.random_ops import random_shuffle
from penstock.api.training.queue_runner import QueueRunner, add_queue_runner
from penstock.graph.composite import SparseTensor
from penstock.graph.constant import constant, constant_value
from penstock.graph.convert import convert_to_tensor, convert_to_tensor_or_indexed_slices
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.keys import GraphKeys
from penstock.graph.raw import raw
from penstock.shapes import TensorShape

# -- producers --------------------------------------------------------------------------------------------------------


@export("train.match_filenames_once", "io.match_filenames_once")
def match_filenames_once(pattern: Any, name: str | None = None) -> Any:
    """A local variable with the names of the files that match `pattern`, looked up when it is initialised."""
    with name_scope(name, "matching_filenames", [pattern]) as scope:
        return resolve("Variable")(
            name=scope[:-1], initial_value=raw.MatchingFiles(pattern), trainable=False, validate_shape=False,
            collections=[GraphKeys.LOCAL_VARIABLES], use_resource=False,
        )  # fmt: skip


@export("train.limit_epochs")
def limit_epochs(tensor: Any, num_epochs: int | None = None, name: str | None = None) -> Tensor:
    """`tensor`, `num_epochs` times; then OutOfRangeError. Counts in a local variable, which must be initialised."""
    if num_epochs is None:
        return tensor
    if num_epochs <= 0:
        raise ValueError(f"num_epochs must be > 0 not {num_epochs}.")
    with name_scope(name, "limit_epochs", [tensor]) as scope:
        zero = constant(0, _dtypes.int64)
        epochs = resolve("Variable")(zero, name="epochs", trainable=False, collections=[GraphKeys.LOCAL_VARIABLES])
        counter = epochs.count_up_to(num_epochs)
        with control_dependencies([counter]):
            return identity(tensor, name=scope)


def _fullness(name: str, make: Callable[[], Tensor]) -> None:
    """A summary of how full a queue is, where summaries exist."""
    if "summary.scalar" in table():
        resolve("summary.scalar")(name, make())


def _fraction(queue: QueueBase, capacity: int) -> Tensor:
    return raw.Mul(cast(queue.size(), _dtypes.float32), constant(1.0 / capacity, _dtypes.float32, name="mul/y"), name="mul")


@export("train.input_producer")
def input_producer(input_tensor: Any, element_shape: Any = None, num_epochs: int | None = None, shuffle: bool = True, seed: int | None = None,
                   capacity: int = 32, shared_name: str | None = None, summary_name: str | None = None, name: str | None = None,
                   cancel_op: Any = None) -> FIFOQueue:  # fmt: skip
    """A queue of the rows of `input_tensor`, over and over, or `num_epochs` times; shuffled within each epoch."""
    with name_scope(name, "input_producer", [input_tensor]) as scope:
        rows = convert_to_tensor(input_tensor, name="input_tensor")
        row_shape = rows.shape[1:].merge_with(element_shape)
        if not row_shape.is_fully_defined():
            raise ValueError("Either `input_tensor` must have a fully defined shape or `element_shape` must be specified")
        if shuffle:
            rows = random_shuffle(rows, seed=seed)
        rows = limit_epochs(rows, num_epochs)
        queue = FIFOQueue(capacity=capacity, dtypes=[rows.dtype.base_dtype], shapes=[row_shape], shared_name=shared_name, name=scope)
        fill = queue.enqueue_many([rows])
        add_queue_runner(QueueRunner(queue, [fill], cancel_op=cancel_op))
        if summary_name is not None:
            _fullness(summary_name, lambda: _fraction(queue, capacity))
        return queue


@export("train.string_input_producer")
def string_input_producer(string_tensor: Any, num_epochs: int | None = None, shuffle: bool = True, seed: int | None = None,
                          capacity: int = 32, shared_name: str | None = None, name: str | None = None,
                          cancel_op: Any = None) -> FIFOQueue:  # fmt: skip
    """A queue of strings, for instance file names for a reader."""
    complaint = "string_input_producer requires a non-null input tensor"
    if not isinstance(string_tensor, Tensor) and not hasattr(string_tensor, "_as_graph_element") and not len(string_tensor):
        raise ValueError(complaint)
    with name_scope(name, "input_producer", [string_tensor]) as scope:
        strings = convert_to_tensor(string_tensor, dtype=_dtypes.string)
        with control_dependencies([Assert(raw.Greater(size(strings), 0), [complaint])]):
            strings = identity(strings)
        return input_producer(
            strings, element_shape=[], num_epochs=num_epochs, shuffle=shuffle, seed=seed, capacity=capacity, shared_name=shared_name,
            name=scope, summary_name=f"fraction_of_{capacity}_full", cancel_op=cancel_op,
        )  # fmt: skip


@export("train.range_input_producer")
def range_input_producer(limit: Any, num_epochs: int | None = None, shuffle: bool = True, seed: int | None = None, capacity: int = 32,
                         shared_name: str | None = None, name: str | None = None) -> FIFOQueue:  # fmt: skip
    """A queue of the integers from 0 to limit - 1."""
    with name_scope(name, "input_producer", [limit]) as scope:
        return input_producer(range_(limit), [], num_epochs, shuffle, seed, capacity, shared_name, f"fraction_of_{capacity}_full", scope)


@export("train.slice_input_producer")
def slice_input_producer(tensor_list: Any, num_epochs: int | None = None, shuffle: bool = True, seed: int | None = None, capacity: int = 32,
                         shared_name: str | None = None, name: str | None = None) -> list[Tensor]:  # fmt: skip
    """One slice of each tensor, along dimension 0, with the same index in all of them."""
    with name_scope(name, "input_producer", tensor_list):
        tensors = [convert_to_tensor_or_indexed_slices(t) for t in tensor_list]
        if not tensors:
            raise ValueError("Expected at least one tensor in slice_input_producer().")
        queue = range_input_producer(
            shape(tensors[0])[0], num_epochs=num_epochs, shuffle=shuffle, seed=seed, capacity=capacity, shared_name=shared_name
        )
        index = queue.dequeue()
        return [gather(t, index) for t in tensors]


# -- what the batching functions share ----------------------------------------------------------------------------------


class _SparseInfo(NamedTuple):
    """How a component was stored: `map_op` is None for dense ones."""

    map_op: Operation | None
    rank: int | None


def _tensor_list(tensors: Any) -> list[Any]:
    return [tensors[k] for k in sorted(tensors)] if isinstance(tensors, dict) else list(tensors)


def _like_original(tensors: Any, values: Any) -> Any:
    """`values` as a dict if `tensors` is one."""
    if isinstance(tensors, dict):
        if len(tensors) == 1:
            values = [values]
        return dict(zip(sorted(tensors), values, strict=True))
    return values


def _validated(tensor_list: Any) -> list[Any]:
    tensors = [t if isinstance(t, SparseTensor) else convert_to_tensor_or_indexed_slices(t) for t in tensor_list]
    if not tensors:
        raise ValueError("Expected at least one tensor in batch().")
    return tensors


def _validated_join(tensor_list_list: Any) -> list[list[Any]]:
    lists = [_validated(tensors) for tensors in tensor_list_list]
    if not lists:
        raise ValueError("Expected at least one input in batch_join().")
    return lists


def _keep_tensor(keep_input: Any, enqueue_many: bool) -> Tensor:
    keep = convert_to_tensor(keep_input)
    if keep.shape.ndims is None:
        raise ValueError("`keep_input` dimensions must be known at graph construction.")
    if not enqueue_many and keep.shape.ndims == 1:
        raise ValueError("`keep_input` cannot be a vector when `enqueue_many=False`.")
    if keep.shape.ndims > 1:
        raise ValueError("`keep_input` must be 0 or 1 dimensions.")
    return keep


def _types_of(lists: Sequence[Sequence[Tensor]]) -> list[Any]:
    types = [t.dtype for t in lists[0]]
    for other in lists[1:]:
        if [t.dtype for t in other] != types:
            raise TypeError(f"Expected types to be consistent: {types} vs. {[t.dtype for t in other]}.")
    return types


def _shapes_of(lists: Sequence[Sequence[Tensor]], shapes: Any, enqueue_many: bool) -> Any:
    """The components' shapes as far as all lists agree on them, without the batch dimension."""
    if shapes is not None:
        return shapes
    n = len(lists[0])
    for other in lists:
        if len(other) != n:
            raise ValueError("All lists of tensors must have the same length")

    def merged(i: int) -> TensorShape:
        columns = [row[i].shape.with_rank_at_least(1)[1:] if enqueue_many else row[i].shape for row in lists]
        result = columns[0]
        for other in columns[1:]:
            result = result.most_specific_compatible_shape(other)
        return result

    return [merged(i) for i in range(n)]


def _smart_cond(pred: Any, if_true: Callable[[], Any], if_false: Callable[[], Any]) -> Any:
    """As `cond`, decided now if the predicate is known."""
    known = constant_value(convert_to_tensor(pred))
    if known is None:
        return cond(pred, if_true, if_false)
    return if_true() if known else if_false()


def _selected(tensors: Sequence[Tensor], keep: Tensor) -> list[Tensor]:
    """The rows where `keep` is true."""
    side = cast(keep, _dtypes.int32)
    return [raw.DynamicPartition(t, side, num_partitions=2)[1] for t in tensors]


def _enqueue(queue: QueueBase, tensors: list[Tensor], threads: int, enqueue_many: bool, keep: Tensor) -> None:
    enqueue = queue.enqueue_many if enqueue_many else queue.enqueue
    if keep.shape.ndims == 1:
        op = enqueue(_selected(tensors, keep))
    else:
        op = _smart_cond(keep, lambda: enqueue(tensors), no_op)
    add_queue_runner(QueueRunner(queue, [op] * threads))


def _enqueue_join(queue: QueueBase, lists: list[list[Tensor]], enqueue_many: bool, keep: Tensor) -> None:
    enqueue = queue.enqueue_many if enqueue_many else queue.enqueue
    if keep.shape.ndims == 1:
        ops = [enqueue(_selected(tensors, keep)) for tensors in lists]
    else:
        ops = [_smart_cond(keep, lambda x=tensors: enqueue(x), no_op) for tensors in lists]
    add_queue_runner(QueueRunner(queue, ops))


# -- sparse components travel as handles --------------------------------------------------------------------------------


def _store_sparse(tensors: list[Any], enqueue_many: bool, keep: Tensor, infos: list[_SparseInfo] | None = None) -> tuple[list[Tensor], list[_SparseInfo]]:
    """Puts sparse tensors into a map, and their int64 handles into the list instead. `infos` of another list shares its maps."""
    stored: list[Tensor] = []
    result: list[_SparseInfo] = []
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, SparseTensor):
            stored.append(tensor)
            result.append(_SparseInfo(None, None))
            continue
        shared = infos[i].map_op if infos is not None else None
        handle, map_op = _store_one(tensor, enqueue_many, keep, shared)
        rank = tensor.dense_shape.shape.with_rank(1).as_list()[0]
        stored.append(handle)
        result.append(_SparseInfo(shared or map_op, rank - 1 if enqueue_many and rank is not None else rank))
    return stored, result


def _store_one(tensor: SparseTensor, enqueue_many: bool, keep: Tensor, shared: Operation | None) -> tuple[Tensor, Operation]:
    add = raw.AddManySparseToTensorsMap if enqueue_many else raw.AddSparseToTensorsMap
    made: list[Operation] = []

    def store() -> Tensor:
        name = None if shared is None else shared.get_attr("shared_name") or shared.name.encode()
        handle = add(tensor.indices, tensor.values, tensor.dense_shape, shared_name=name)
        made.append(handle.op)
        return handle

    if keep.shape.ndims == 1:
        handle = store()
    else:
        nothing = (lambda: raw.Fill([tensor.dense_shape[0]], constant(-1, _dtypes.int64))) if enqueue_many else (lambda: constant(-1, _dtypes.int64))
        handle = _smart_cond(keep, store, nothing)
    handle.set_shape([None] if enqueue_many else [])
    return handle, made[0]


def _restore_sparse(dequeued: Any, infos: list[_SparseInfo]) -> Any:
    if all(info.map_op is None for info in infos):
        return dequeued
    values = dequeued if isinstance(dequeued, (list, tuple)) else [dequeued]
    restored = [_restore_one(value, info) if info.map_op is not None else value for value, info in zip(values, infos, strict=True)]
    # Whoever runs only the dense part takes the sparse one out of its map all the same, lest it stay there for ever.
    with control_dependencies([value.op for value in restored if isinstance(value, SparseTensor)]):
        restored = [value if isinstance(value, SparseTensor) else identity(value) for value in restored]
    return restored if isinstance(dequeued, (list, tuple)) else restored[0]


def _restore_one(handles: Tensor, info: _SparseInfo) -> SparseTensor:
    map_op = info.map_op
    assert map_op is not None
    name = map_op.get_attr("shared_name") or map_op.name.encode()
    with get_default_graph().colocate_with(map_op):
        indices, values, dense_shape = raw.TakeManySparseFromTensorsMap(
            handles, dtype=map_op.get_attr("T"), container=map_op.get_attr("container"), shared_name=name
        )
    rank = None if info.rank is None else info.rank + 1
    indices.set_shape([None, rank])
    dense_shape.set_shape([rank])
    return SparseTensor(indices, values, dense_shape)


# -- batches ------------------------------------------------------------------------------------------------------------


def _dequeue(queue: QueueBase, batch_size: Any, allow_smaller: bool, scope: str) -> Any:
    return queue.dequeue_up_to(batch_size, name=scope) if allow_smaller else queue.dequeue_many(batch_size, name=scope)


def _batch(tensors: Any, batch_size: Any, keep_input: Any, num_threads: int = 1, capacity: int = 32, enqueue_many: bool = False,
           shapes: Any = None, dynamic_pad: bool = False, allow_smaller_final_batch: bool = False, shared_name: str | None = None,
           name: str | None = None) -> Any:  # fmt: skip
    tensor_list = _tensor_list(tensors)
    with name_scope(name, "batch", [*tensor_list, keep_input]) as scope:
        tensor_list = _validated(tensor_list)
        keep = _keep_tensor(keep_input, enqueue_many)
        stored, infos = _store_sparse(tensor_list, enqueue_many, keep)
        queue_class = PaddingFIFOQueue if dynamic_pad else FIFOQueue
        queue = queue_class(capacity=capacity, dtypes=_types_of([stored]), shapes=_shapes_of([stored], shapes, enqueue_many), shared_name=shared_name)
        _enqueue(queue, stored, num_threads, enqueue_many, keep)
        _fullness(f"fraction_of_{capacity}_full", lambda: _fraction(queue, capacity))
        dequeued = _restore_sparse(_dequeue(queue, batch_size, allow_smaller_final_batch, scope), infos)
        return _like_original(tensors, dequeued)


def _batch_join(tensors_list: Any, batch_size: Any, keep_input: Any, capacity: int = 32, enqueue_many: bool = False, shapes: Any = None,
                dynamic_pad: bool = False, allow_smaller_final_batch: bool = False, shared_name: str | None = None,
                name: str | None = None) -> Any:  # fmt: skip
    lists = [_tensor_list(tensors) for tensors in tensors_list]
    with name_scope(name, "batch_join", [t for row in lists for t in row] + [keep_input]) as scope:
        lists = _validated_join(lists)
        keep = _keep_tensor(keep_input, enqueue_many)
        stored, infos = _store_sparse_join(lists, enqueue_many, keep)
        queue_class = PaddingFIFOQueue if dynamic_pad else FIFOQueue
        queue = queue_class(capacity=capacity, dtypes=_types_of(stored), shapes=_shapes_of(stored, shapes, enqueue_many), shared_name=shared_name)
        _enqueue_join(queue, stored, enqueue_many, keep)
        _fullness(f"fraction_of_{capacity}_full", lambda: _fraction(queue, capacity))
        dequeued = _restore_sparse(_dequeue(queue, batch_size, allow_smaller_final_batch, scope), infos)
        return _like_original(tensors_list[0], dequeued)


def _store_sparse_join(lists: list[list[Any]], enqueue_many: bool, keep: Tensor) -> tuple[list[list[Tensor]], list[_SparseInfo]]:
    first, infos = _store_sparse(lists[0], enqueue_many, keep)
    rest = [_store_sparse(row, enqueue_many, keep, infos)[0] for row in lists[1:]]
    return [first, *rest], infos


def _shuffle_fullness(queue: QueueBase, capacity: int, min_after_dequeue: int) -> None:
    def make() -> Tensor:
        spare = raw.Maximum(constant(0, name="Maximum/x"), raw.Sub(queue.size(), constant(min_after_dequeue, name="sub/y"), name="sub"))
        return raw.Mul(cast(spare, _dtypes.float32), constant(1.0 / (capacity - min_after_dequeue), _dtypes.float32, name="mul/y"), name="mul")

    _fullness(f"fraction_over_{min_after_dequeue}_of_{capacity - min_after_dequeue}_full", make)


def _shuffle_batch(tensors: Any, batch_size: Any, capacity: int, min_after_dequeue: int, keep_input: Any, num_threads: int = 1,
                   seed: int | None = None, enqueue_many: bool = False, shapes: Any = None, allow_smaller_final_batch: bool = False,
                   shared_name: str | None = None, name: str | None = None) -> Any:  # fmt: skip
    tensor_list = _tensor_list(tensors)
    with name_scope(name, "shuffle_batch", [*tensor_list, keep_input]) as scope:
        if capacity <= min_after_dequeue:
            raise ValueError(f"capacity {capacity} must be bigger than min_after_dequeue {min_after_dequeue}.")
        tensor_list = _validated(tensor_list)
        keep = _keep_tensor(keep_input, enqueue_many)
        stored, infos = _store_sparse(tensor_list, enqueue_many, keep)
        queue = RandomShuffleQueue(
            capacity=capacity, min_after_dequeue=min_after_dequeue, seed=seed, dtypes=_types_of([stored]),
            shapes=_shapes_of([stored], shapes, enqueue_many), shared_name=shared_name,
        )  # fmt: skip
        _enqueue(queue, stored, num_threads, enqueue_many, keep)
        _shuffle_fullness(queue, capacity, min_after_dequeue)
        dequeued = _restore_sparse(_dequeue(queue, batch_size, allow_smaller_final_batch, scope), infos)
        return _like_original(tensors, dequeued)


def _shuffle_batch_join(tensors_list: Any, batch_size: Any, capacity: int, min_after_dequeue: int, keep_input: Any, seed: int | None = None,
                        enqueue_many: bool = False, shapes: Any = None, allow_smaller_final_batch: bool = False,
                        shared_name: str | None = None, name: str | None = None) -> Any:  # fmt: skip
    lists = [_tensor_list(tensors) for tensors in tensors_list]
    with name_scope(name, "shuffle_batch_join", [t for row in lists for t in row] + [keep_input]) as scope:
        lists = _validated_join(lists)
        keep = _keep_tensor(keep_input, enqueue_many)
        stored, infos = _store_sparse_join(lists, enqueue_many, keep)
        queue = RandomShuffleQueue(
            capacity=capacity, min_after_dequeue=min_after_dequeue, seed=seed, dtypes=_types_of(stored),
            shapes=_shapes_of(stored, shapes, enqueue_many), shared_name=shared_name,
        )  # fmt: skip
        _enqueue_join(queue, stored, enqueue_many, keep)
        _shuffle_fullness(queue, capacity, min_after_dequeue)
        dequeued = _restore_sparse(_dequeue(queue, batch_size, allow_smaller_final_batch, scope), infos)
        return _like_original(tensors_list[0], dequeued)


@export("train.batch")
def batch(tensors: Any, batch_size: Any, num_threads: int = 1, capacity: int = 32, enqueue_many: bool = False, shapes: Any = None,
          dynamic_pad: bool = False, allow_smaller_final_batch: bool = False, shared_name: str | None = None,
          name: str | None = None) -> Any:  # fmt: skip
    """Batches of `tensors` (a list or dict), gathered in a queue by `num_threads` threads.

    `enqueue_many`: the tensors are batches themselves, cut up along dimension 0. `dynamic_pad`: components may differ in size and are padded.
    `allow_smaller_final_batch`: when the input ends the rest comes as a smaller batch.
    """
    return _batch(tensors, batch_size, True, num_threads, capacity, enqueue_many, shapes, dynamic_pad, allow_smaller_final_batch, shared_name, name)


@export("train.maybe_batch")
def maybe_batch(tensors: Any, keep_input: Any, batch_size: Any, num_threads: int = 1, capacity: int = 32, enqueue_many: bool = False,
                shapes: Any = None, dynamic_pad: bool = False, allow_smaller_final_batch: bool = False, shared_name: str | None = None,
                name: str | None = None) -> Any:  # fmt: skip
    """As `batch`, of those inputs only for which the bool `keep_input` is true."""
    return _batch(tensors, batch_size, keep_input, num_threads, capacity, enqueue_many, shapes, dynamic_pad, allow_smaller_final_batch,
                  shared_name, name)  # fmt: skip


@export("train.batch_join")
def batch_join(tensors_list: Any, batch_size: Any, capacity: int = 32, enqueue_many: bool = False, shapes: Any = None, dynamic_pad: bool = False,
               allow_smaller_final_batch: bool = False, shared_name: str | None = None, name: str | None = None) -> Any:  # fmt: skip
    """As `batch`, from several lists of tensors, each run by a thread of its own."""
    return _batch_join(tensors_list, batch_size, True, capacity, enqueue_many, shapes, dynamic_pad, allow_smaller_final_batch, shared_name, name)


@export("train.maybe_batch_join")
def maybe_batch_join(tensors_list: Any, keep_input: Any, batch_size: Any, capacity: int = 32, enqueue_many: bool = False, shapes: Any = None,
                     dynamic_pad: bool = False, allow_smaller_final_batch: bool = False, shared_name: str | None = None,
                     name: str | None = None) -> Any:  # fmt: skip
    """As `batch_join`, of those inputs only for which `keep_input` is true."""
    return _batch_join(tensors_list, batch_size, keep_input, capacity, enqueue_many, shapes, dynamic_pad, allow_smaller_final_batch,
                       shared_name, name)  # fmt: skip


@export("train.shuffle_batch")
def shuffle_batch(tensors: Any, batch_size: Any, capacity: int, min_after_dequeue: int, num_threads: int = 1, seed: int | None = None,
                  enqueue_many: bool = False, shapes: Any = None, allow_smaller_final_batch: bool = False, shared_name: str | None = None,
                  name: str | None = None) -> Any:  # fmt: skip
    """As `batch`, in random order: elements are drawn from at least `min_after_dequeue` waiting ones."""
    return _shuffle_batch(tensors, batch_size, capacity, min_after_dequeue, True, num_threads, seed, enqueue_many, shapes,
                          allow_smaller_final_batch, shared_name, name)  # fmt: skip


@export("train.maybe_shuffle_batch")
def maybe_shuffle_batch(tensors: Any, batch_size: Any, capacity: int, min_after_dequeue: int, keep_input: Any, num_threads: int = 1,
                        seed: int | None = None, enqueue_many: bool = False, shapes: Any = None, allow_smaller_final_batch: bool = False,
                        shared_name: str | None = None, name: str | None = None) -> Any:  # fmt: skip
    """As `shuffle_batch`, of those inputs only for which `keep_input` is true."""
    return _shuffle_batch(tensors, batch_size, capacity, min_after_dequeue, keep_input, num_threads, seed, enqueue_many, shapes,
                          allow_smaller_final_batch, shared_name, name)  # fmt: skip


@export("train.shuffle_batch_join")
def shuffle_batch_join(tensors_list: Any, batch_size: Any, capacity: int, min_after_dequeue: int, seed: int | None = None,
                       enqueue_many: bool = False, shapes: Any = None, allow_smaller_final_batch: bool = False,
                       shared_name: str | None = None, name: str | None = None) -> Any:  # fmt: skip
    """As `shuffle_batch`, from several lists of tensors, each run by a thread of its own."""
    return _shuffle_batch_join(tensors_list, batch_size, capacity, min_after_dequeue, True, seed, enqueue_many, shapes,
                               allow_smaller_final_batch, shared_name, name)  # fmt: skip


@export("train.maybe_shuffle_batch_join")
def maybe_shuffle_batch_join(tensors_list: Any, batch_size: Any, capacity: int, min_after_dequeue: int, keep_input: Any, seed: int | None = None,
                             enqueue_many: bool = False, shapes: Any = None, allow_smaller_final_batch: bool = False,
                             shared_name: str | None = None, name: str | None = None) -> Any:  # fmt: skip
    """As `shuffle_batch_join`, of those inputs only for which `keep_input` is true."""
    return _shuffle_batch_join(tensors_list, batch_size, capacity, min_after_dequeue, keep_input, seed, enqueue_many, shapes,
                               allow_smaller_final_batch, shared_name, name)  # fmt: skip
