"""The queues behind FIFOQueue, PaddingFIFOQueue, RandomShuffleQueue and PriorityQueue.

State of a Queue
    name, capacity         as given; a negative capacity is none
    types, shapes          of the components of an element; `shapes` is empty if any shape may come
    size                   number of elements
    closed                 no element will come any more
    enqueues, dequeues     lines of waiting attempts (see waiting.py); a close waits in `enqueues` too

How elements are kept is the subclass's: `put`, `put_rows`, `take`, `put_back`. A piece is what `take` gives: one element (a tuple of its
components), or `Rows`, several elements that lie in one batch. A batch that was enqueued as a whole need not be cut up when it is
dequeued in batches.
"""

from __future__ import annotations

import heapq
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from penstock.graph.ir import Dims
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.kernels.views import compact
from penstock.ops.kernels.waiting import DONE, MOVED, STUCK, Attempt, WaitingRoom
from penstock.ops.philox import Philox
from penstock.shapes import compatible_dims, format_dims


class Rows(NamedTuple):
    """Elements [start, stop) of batched components."""

    components: Sequence[Any]
    start: int
    stop: int


def row_of(array: Any, i: int) -> Any:
    """Row `i` as a value of its own."""
    if array.dtype == object and array.ndim == 1:
        value = np.empty((), dtype=object)
        value[()] = array[i]
        return value
    return array[i]


class Queue(WaitingRoom):
    """What all queues have in common."""

    type_name = "N10tensorflow14QueueInterfaceE"
    kind = "Queue"  # in messages
    one_kind = ""  # how TF's messages about single elements call it, where that differs
    gradual = True  # whether a batch is gathered as elements come, or taken when there are enough

    def __init__(self, name: str, capacity: int, types: Sequence[DType], shapes: Sequence[Dims]) -> None:
        self.enqueues: deque[Attempt] = deque()
        self.dequeues: deque[Attempt] = deque()
        super().__init__(self.enqueues, self.dequeues)
        self.name = name
        self.capacity = sys.maxsize if capacity < 0 else capacity
        self.types = list(types)
        self.shapes = list(shapes)
        self.size = 0
        self.closed = False
        if self.shapes and len(self.shapes) != len(self.types):
            raise InvalidArgumentError(
                f"Different number of component types.  Types: {types_text(types)}, Shapes: {shapes_text(shapes)}"
            )

    # -- how elements are kept --------------------------------------------------------------------------------------------

    def put(self, element: Sequence[Any]) -> None:
        raise NotImplementedError

    def put_rows(self, components: Sequence[Any], start: int, stop: int) -> None:
        raise NotImplementedError

    def take(self, most: int) -> tuple[Any, int]:
        """A piece of at most `most` elements, and how many they are."""
        raise NotImplementedError

    def put_back(self, pieces: list[Any]) -> None:
        """Returns what was taken, in the order it was taken."""
        raise NotImplementedError

    def reserve(self) -> int:
        """How many elements must stay as long as the queue is open."""
        return 0

    # -- checks -----------------------------------------------------------------------------------------------------------

    def check_element(self, values: Sequence[Any]) -> None:
        """The components must have the declared shapes."""
        for i, (value, dims) in enumerate(zip(values, self.shapes)):  # no shapes, no check
            if value.shape != dims:
                _shape_mismatch(i, dims, value.shape)

    def check_batch(self, values: Sequence[Any]) -> int:
        """As `check_element`, for components with a batch dimension in front. The size of the batch."""
        first = np.shape(values[0])
        n = first[0] if first else 0
        if self.shapes:
            for i, (value, dims) in enumerate(zip(values, self.shapes, strict=True)):
                self._check_rows(i, value, n, dims)
            return n
        for i, value in enumerate(values):
            shape = np.shape(value)
            if not shape:
                raise InvalidArgumentError(f"Component {i} of an EnqueueMany must have a 0th dimension to take elements from, got a scalar")
            if shape[0] != n:
                raise InvalidArgumentError(
                    f"All input tensors must have the same size in the 0th dimension. Component {i} has {shape[0]}, and should have {n}"
                )
        return n

    def _check_rows(self, i: int, value: Any, n: int, dims: Dims) -> None:
        if not value.shape or value.shape != (n, *dims):  # type: ignore[misc]
            _shape_mismatch(i, (n, *dims), value.shape)  # type: ignore[misc]

    # -- enqueue ----------------------------------------------------------------------------------------------------------

    def enqueue(self, ctx: Any, done: Callable[..., Any], values: Sequence[Any]) -> None:
        self.check_element(values)
        values = [compact(value) for value in values]
        self.submit(ctx, Attempt(self._enqueue, done, "Enqueue", values), self.enqueues)

    def _enqueue(self, attempt: Attempt) -> int:
        if self.closed:
            raise CancelledError(f"{self.one_kind or self.kind} '{self.name}' is closed.")
        if self.size >= self.capacity:
            return STUCK
        self.put(attempt.data)
        self.size += 1
        return DONE

    def enqueue_many(self, ctx: Any, done: Callable[..., Any], values: Sequence[Any]) -> None:
        n = self.check_batch(values)
        if n == 0:
            done(None)
            return
        values = [compact(value) for value in values]
        self.submit(ctx, Attempt(self._enqueue_many, done, "Enqueue", values, n), self.enqueues)

    def _enqueue_many(self, attempt: Attempt) -> int:
        if self.closed:
            raise CancelledError(f"{self.one_kind or self.kind} '{self.name}' is closed.")
        room = min(self.capacity - self.size, attempt.left)
        if room <= 0:
            return STUCK
        start = attempt.data[0].shape[0] - attempt.left
        self.put_rows(attempt.data, start, start + room)
        self.size += room
        attempt.left -= room
        return MOVED if attempt.left else DONE

    # -- dequeue ----------------------------------------------------------------------------------------------------------

    def dequeue(self, ctx: Any, done: Callable[..., Any]) -> None:
        attempt = Attempt(self._dequeue, done, "Dequeue", left=1)
        attempt.finish = _element
        self.submit(ctx, attempt, self.dequeues)

    def _dequeue(self, attempt: Attempt) -> int:
        size = self.size
        if self.closed:
            if not size:
                raise self._exhausted(1, 0, self.one_kind or self.kind)
        else:
            size -= self.reserve()
        if size <= 0:
            return STUCK
        attempt.taken = self.take(1)[0]
        self.size -= 1
        return DONE

    def dequeue_many(self, ctx: Any, done: Callable[..., Any], n: int, small_ok: bool = False) -> None:
        """Dequeues `n` elements as a batch; with `small_ok` fewer, but at least one, once the queue is closed."""
        if not self.shapes:
            raise InvalidArgumentError(f"{self.kind}'s DequeueMany and DequeueUpTo require the components to have specified shapes.")
        if n == 0:
            done(self.batch([], 0))
            return
        attempt = Attempt(self._dequeue_many, done, "Dequeue", data=small_ok, left=n)
        attempt.taken = []
        attempt.undo = self._undo_dequeue
        attempt.finish = self._finish_batch
        self.submit(ctx, attempt, self.dequeues)

    def _dequeue_many(self, attempt: Attempt) -> int:
        size = self.size
        if self.closed and size < attempt.left:
            wanted = attempt.left
            if attempt.taken:
                self._undo_dequeue(attempt)
            if not attempt.data or not self.size:
                raise self._exhausted(wanted, size, self.kind)
            size = attempt.left = self.size
        elif not self.closed:
            size -= self.reserve()
        count = min(size, attempt.left)
        if count <= 0 or (count < attempt.left and not self.gradual):
            return STUCK
        attempt.left -= count
        self.size -= count
        while count:
            piece, n = self.take(count)
            attempt.taken.append(piece)
            count -= n
        return MOVED if attempt.left else DONE

    def _undo_dequeue(self, attempt: Attempt) -> None:
        pieces, attempt.taken = attempt.taken, []
        self.size += _count(pieces)
        self.put_back(pieces)

    def _exhausted(self, wanted: int, size: int, kind: str) -> OutOfRangeError:
        return OutOfRangeError(
            f"{kind} '{self.name}' is closed and has insufficient elements (requested {wanted}, current size {size})"
        )

    def _finish_batch(self, attempt: Attempt) -> list[Any]:
        return self.batch(attempt.taken, _count(attempt.taken))

    def batch(self, pieces: list[Any], n: int) -> list[Any]:
        """The pieces' elements, stacked component by component."""
        result = []
        for i, (dtype, dims) in enumerate(zip(self.types, self.shapes, strict=True)):
            if len(pieces) == 1 and pieces[0].__class__ is Rows:
                _, start, stop = pieces[0]
                result.append(pieces[0].components[i][start:stop])
                continue
            out = np.empty((n, *dims), dtype=dtype.np)  # type: ignore[misc]
            at = 0
            for piece in pieces:
                if piece.__class__ is Rows:
                    _, start, stop = piece
                    out[at : at + stop - start] = piece.components[i][start:stop]
                    at += stop - start
                else:
                    # A 0-d array of objects would be stored as it is, not its one object.
                    out[at] = piece[i] if dims else piece[i][()]
                    at += 1
            result.append(out)
        return result

    # -- close ------------------------------------------------------------------------------------------------------------

    def close(self, ctx: Any, done: Callable[..., Any], cancel_pending: bool) -> None:
        """Ends the queue: after the enqueues that wait now, or instead of them."""
        if not cancel_pending:
            self.submit(ctx, Attempt(self._close, done, "Enqueue"), self.enqueues)
            return
        self.close_now()
        done(None)

    def _close(self, attempt: Attempt) -> int:
        if self.closed:
            raise CancelledError(f"Queue '{self.name}' is already closed.")
        self.closed = True
        return DONE

    def close_now(self) -> None:
        self.report(self.close_quietly())

    def close_quietly(self) -> list[Attempt]:
        """Closes at once. The caller, who may hold locks of its own, reports what came of it later."""
        with self.lock:
            self.closed = True
            finished = self.give_up_line(self.enqueues)
            self._flush(finished)
        return finished

    def add_quietly(self, elements: Sequence[Any]) -> list[Attempt]:
        """Adds elements regardless of capacity. The caller reports what came of it."""
        finished: list[Attempt] = []
        with self.lock:
            for element in elements:
                self.put(element)
            self.size += len(elements)
            self._flush(finished)
        return finished

    # -- sharing ----------------------------------------------------------------------------------------------------------

    def check_shared(self, op_type: str, attrs: dict[str, Any], types: Sequence[DType], shapes: Sequence[Dims]) -> None:
        """Whether a node of type `op_type` with these attributes may use this queue too."""
        if op_type not in (self.kind, self.kind + "V2"):
            raise InvalidArgumentError(f"Expected {self.kind}, found {op_type}")
        capacity = attrs["capacity"]
        capacity = sys.maxsize if capacity < 0 else capacity
        if capacity != self.capacity:
            raise InvalidArgumentError(f"Shared queue '{self.name}' has capacity {self.capacity} but requested capacity was {capacity}")
        if list(types) != self.types:
            raise InvalidArgumentError(
                f"Shared queue '{self.name}' has component types {types_text(self.types)} but requested component types were {types_text(types)}"
            )
        if not self._same_shapes(shapes):
            raise InvalidArgumentError(
                f"Shared queue '{self.name}' has component shapes {shapes_text(self.shapes)} but requested component shapes were {shapes_text(shapes)}"
            )

    def _same_shapes(self, shapes: Sequence[Dims]) -> bool:
        return list(shapes) == self.shapes

    def dispose(self) -> None:
        """The resource manager lets go of the queue: nobody waits for it any longer."""
        with self.lock:
            self.closed = True
            finished = self.give_up_line(self.enqueues) + self.give_up_line(self.dequeues)
        self.report(finished)


def _element(attempt: Attempt) -> Sequence[Any]:
    piece = attempt.taken
    return [row_of(c, piece.start) for c in piece.components] if piece.__class__ is Rows else piece


def _count(pieces: list[Any]) -> int:
    return sum(piece.stop - piece.start if piece.__class__ is Rows else 1 for piece in pieces)


def _shape_mismatch(i: int, want: Dims, got: Dims) -> None:
    raise InvalidArgumentError(f"Shape mismatch in tuple component {i}. Expected {format_dims(want)}, got {format_dims(got)}")


def types_text(types: Sequence[DType]) -> str:
    return ", ".join(dtype_text(t) for t in types)


def shapes_text(shapes: Sequence[Dims]) -> str:
    return "[" + ", ".join(format_dims(s) for s in shapes) + "]"


class FIFOQueue(Queue):
    """First in, first out."""

    kind = "FIFOQueue"

    def __init__(self, name: str, capacity: int, types: Sequence[DType], shapes: Sequence[Dims]) -> None:
        super().__init__(name, capacity, types, shapes)
        self.pieces: deque[Any] = deque()

    def put(self, element: Sequence[Any]) -> None:
        self.pieces.append(element)

    def put_rows(self, components: Sequence[Any], start: int, stop: int) -> None:
        self.pieces.append(Rows(components, start, stop))

    def take(self, most: int) -> tuple[Any, int]:
        piece = self.pieces.popleft()
        if piece.__class__ is not Rows:
            return piece, 1
        components, start, stop = piece
        if stop - start > most:
            self.pieces.appendleft(Rows(components, start + most, stop))
            stop = start + most
        return Rows(components, start, stop), stop - start

    def put_back(self, pieces: list[Any]) -> None:
        self.pieces.extendleft(reversed(pieces))


class PaddingFIFOQueue(FIFOQueue):
    """First in, first out; elements may differ in dimensions declared as None, and batches are padded with zeros."""

    kind = "PaddingFIFOQueue"
    one_kind = "FIFOQueue"

    def __init__(self, name: str, capacity: int, types: Sequence[DType], shapes: Sequence[Dims]) -> None:
        if len(shapes) != len(types):
            raise InvalidArgumentError(
                f"Shapes must be provided for all components, but received {len(types)} dtypes and {len(shapes)} shapes."
            )
        super().__init__(name, capacity, types, shapes)

    def check_element(self, values: Sequence[Any]) -> None:
        for i, (value, dims) in enumerate(zip(values, self.shapes, strict=True)):
            if not compatible_dims(np.shape(value), dims):
                _shape_mismatch(i, dims, np.shape(value))

    def _check_rows(self, i: int, value: Any, n: int, dims: Dims) -> None:
        want = (n, *dims)  # type: ignore[misc]
        if not np.ndim(value) or not compatible_dims(value.shape, want):
            _shape_mismatch(i, want, np.shape(value))

    def batch(self, pieces: list[Any], n: int) -> list[Any]:
        result = []
        for i, (dtype, dims) in enumerate(zip(self.types, self.shapes, strict=True)):
            parts = [p.components[i][p.start : p.stop] if p.__class__ is Rows else p[i] for p in pieces]
            inner = [part.shape[1:] if p.__class__ is Rows else part.shape for p, part in zip(pieces, parts, strict=True)]
            assert dims is not None
            full = tuple(d if d is not None else max((s[k] for s in inner), default=0) for k, d in enumerate(dims))
            out = np.full((n, *full), b"", dtype=object) if dtype is dtypes.string else np.zeros((n, *full), dtype.np)
            at = 0
            for piece, part, shape in zip(pieces, parts, inner, strict=True):
                region = tuple(slice(s) for s in shape)
                if piece.__class__ is Rows:
                    out[(slice(at, at + len(part)), *region)] = part
                    at += len(part)
                else:
                    out[(at, *region)] = part if region else part[()]
                    at += 1
            result.append(out)
        return result

    def _same_shapes(self, shapes: Sequence[Dims]) -> bool:
        return len(shapes) == len(self.shapes) and all(compatible_dims(a, b) for a, b in zip(shapes, self.shapes, strict=True))


class RandomShuffleQueue(Queue):
    """Gives its elements in random order, TF's for the same seeds; keeps `min_after_dequeue` of them while it is open."""

    kind = "RandomShuffleQueue"

    def __init__(
        self, name: str, capacity: int, types: Sequence[DType], shapes: Sequence[Dims], min_after_dequeue: int, seed: int, seed2: int
    ) -> None:
        super().__init__(name, capacity, types, shapes)
        if min_after_dequeue < 0:
            raise InvalidArgumentError(f"min_after_dequeue {min_after_dequeue} must be >= 0")
        if min_after_dequeue >= self.capacity:
            raise InvalidArgumentError(f"min_after_dequeue {min_after_dequeue} must be < capacity {self.capacity}")
        self.min_after_dequeue = min_after_dequeue
        self.seeds = (seed, seed2)
        self.elements: list[Any] = []
        self._philox = Philox.from_seeds(seed, seed2)
        self._words: list[int] = []

    def reserve(self) -> int:
        return self.min_after_dequeue

    def put(self, element: Sequence[Any]) -> None:
        self.elements.append(element)

    def put_rows(self, components: Sequence[Any], start: int, stop: int) -> None:
        # Copies, because a single element that stays behind must not keep a whole batch alive.
        columns = [[row_of(c, i) if c.ndim == 1 else c[i].copy() for i in range(start, stop)] for c in components]
        self.elements.extend(zip(*columns, strict=True))

    def take(self, most: int) -> tuple[Any, int]:
        elements = self.elements
        i = self._next_word() % len(elements)
        element = elements[i]
        last = elements.pop()
        if i < len(elements):
            elements[i] = last
        return element, 1

    def put_back(self, pieces: list[Any]) -> None:
        self.elements.extend(pieces)

    def _next_word(self) -> int:
        if not self._words:
            # The last of the list comes first.
            self._words = self._philox.words(256)[::-1].tolist()
            self._philox = self._philox.skip(64)
        return self._words.pop()

    def check_shared(self, op_type: str, attrs: dict[str, Any], types: Sequence[DType], shapes: Sequence[Dims]) -> None:
        super().check_shared(op_type, attrs, types, shapes)
        least, seeds = attrs["min_after_dequeue"], (attrs["seed"], attrs["seed2"])
        if least != self.min_after_dequeue:
            raise InvalidArgumentError(
                f"Shared queue '{self.name}' has min_after_dequeue {self.min_after_dequeue} but requested min_after_dequeue was {least}."
            )
        if seeds != (0, 0) and seeds != self.seeds:
            raise InvalidArgumentError(f"Shared queue '{self.name}' has random seeds {self.seeds} but requested seeds are {seeds}.")


class _Ranked(NamedTuple):
    """An element in the heap. Only the priority is compared, so that ties come out as TF's heap has them."""

    priority: int
    element: Sequence[Any]

    def __lt__(self, other: _Ranked) -> bool:  # type: ignore[override]
        return self.priority < other.priority


class PriorityQueue(Queue):
    """Gives the element with the smallest first component, an int64 scalar, first."""

    kind = "PriorityQueue"
    gradual = False  # an element that comes later may have to go first

    def __init__(self, name: str, capacity: int, types: Sequence[DType], shapes: Sequence[Dims]) -> None:
        super().__init__(name, capacity, types, shapes)
        self.heap: list[_Ranked] = []

    def put(self, element: Sequence[Any]) -> None:
        if np.shape(element[0]) != ():
            raise InvalidArgumentError(f"Expected the priority element to be a scalar, but received shape: {format_dims(np.shape(element[0]))}")
        heapq.heappush(self.heap, _Ranked(int(element[0]), element))

    def put_rows(self, components: Sequence[Any], start: int, stop: int) -> None:
        for i in range(start, stop):
            self.put([row_of(c, i) if c.ndim == 1 else c[i].copy() for c in components])

    def take(self, most: int) -> tuple[Any, int]:
        return heapq.heappop(self.heap).element, 1

    def put_back(self, pieces: list[Any]) -> None:
        for piece in pieces:
            self.put(piece)
