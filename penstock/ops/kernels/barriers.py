"""The barrier behind the Barrier ops: collects the components of keyed elements, and hands out those that are complete.

State of a Barrier
    incomplete     key -> Incomplete: elements of which some component is missing
    ready          PriorityQueue of complete elements: (index of the insertion that brought the key, key, components...)
    closed         no new keys; `cancelled`: and no more components for the old ones
    insertions     number of insertions so far
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from penstock.forks import renewed
from penstock.graph.ir import Dims
from penstock.ops.kernels.queues import PriorityQueue, row_of, shapes_text, types_text
from penstock.ops.kernels.waiting import Attempt
from penstock.shapes import format_dims

_FIRST_INDEX = -(2**63)
_EMPTY = object()


class Incomplete:
    """An element that waits for components."""

    __slots__ = ("components", "index", "missing")

    def __init__(self, index: int, n: int) -> None:
        self.index = index
        self.components: list[Any] = [_EMPTY] * n
        self.missing = n


class Barrier:
    """See the module's docstring."""

    type_name = "N10tensorflow7barrier7BarrierE"

    def __init__(self, name: str, types: Sequence[DType], shapes: Sequence[Dims]) -> None:
        self.name = name
        self.types = list(types)
        self.shapes = list(shapes)
        self.lock = renewed(threading.Lock())
        self.incomplete: dict[bytes, Incomplete] = {}
        self.ready = PriorityQueue(name + "_queue", -1, [dtypes.int64, dtypes.string, *types], [(), (), *shapes])
        self.closed = False
        self.cancelled = False
        self.insertions = 0

    def insert(self, keys: Any, values: Any, component: int) -> None:
        """Gives the elements called `keys` their component number `component`."""
        dims = self.shapes[component]
        if np.ndim(keys) != 1:
            raise InvalidArgumentError(f"keys must be a vector, but received shape {format_dims(np.shape(keys))}")
        if values.shape != (len(keys), *dims):  # type: ignore[misc]
            raise InvalidArgumentError(
                f"Shape mismatch in values of component {component}. Expected {format_dims((len(keys), *dims))}, got {format_dims(values.shape)}"  # type: ignore[misc]
            )
        finished: list[Attempt] = []
        try:
            with self.lock:
                self._insert(keys, values, component, finished)
        finally:
            self.ready.report(finished)

    def _insert(self, keys: Any, values: Any, component: int, finished: list[Attempt]) -> None:
        if self.closed and self.cancelled:
            raise CancelledError(
                f"Barrier {self.name} is closed.  Pending enqueues cancelled: 1.  Number of new insertions: {len(keys)}.  "
                f"Number of incomplete keys: {len(self.incomplete)}."
            )
        complete: list[Any] = []
        try:
            for i, key in enumerate(keys):
                self._insert_one(key, row_of(values, i), component, i, complete)
        finally:
            # What was complete before an error stays complete.
            self.insertions += 1
            finished += self.ready.add_quietly(complete)
            if self.closed and not self.incomplete:
                finished += self.ready.close_quietly()

    def _insert_one(self, key: bytes, value: Any, component: int, i: int, complete: list[Any]) -> None:
        element = self.incomplete.get(key)
        if element is None:
            if self.closed:
                raise CancelledError(
                    f"Barrier {self.name} is closed, but attempted to insert a brand new key: {key.decode(errors='replace')}.  "
                    f"Pending enqueues cancelled: {int(self.cancelled)}.  Insertion index: {i}.  Number of incomplete keys: {len(self.incomplete)}."
                )
            element = self.incomplete[key] = Incomplete(_FIRST_INDEX + self.insertions, len(self.types))
        elif element.components[component] is not _EMPTY:
            raise InvalidArgumentError(
                f"Key {key.decode(errors='replace')} already has a value for component {component} in barrier {self.name}"
            )
        element.components[component] = value
        element.missing -= 1
        if not element.missing:
            del self.incomplete[key]
            name = np.empty((), dtype=object)
            name[()] = key
            complete.append([np.int64(element.index), name, *element.components])

    def take(self, ctx: Any, done: Callable[..., Any], n: int, small_ok: bool, wait_for_incomplete: bool) -> None:
        """Hands out `n` complete elements, as soon as there are so many."""
        with self.lock:
            if self.closed:
                available = self.ready.size
                if not small_ok or wait_for_incomplete:
                    available += len(self.incomplete)
                if small_ok:
                    n = min(n, available)
                if available < max(n, 1):
                    raise OutOfRangeError(
                        f"Barrier '{self.name}' is closed and has insufficient elements (requested {n}, total size {available})"
                    )
        self.ready.dequeue_many(ctx, done, n, small_ok)

    def close(self, cancel_pending: bool) -> None:
        with self.lock:
            if self.closed and (self.cancelled or not cancel_pending):
                raise CancelledError(f"Barrier '{self.name}' is already closed.")
            self.closed = True
            if cancel_pending:
                self.cancelled = True
                self.incomplete.clear()
            finished = [] if self.incomplete else self.ready.close_quietly()
        self.ready.report(finished)

    def check_shared(self, types: Sequence[DType], shapes: Sequence[Dims]) -> None:
        """Whether a node with these attributes may use this barrier too."""
        if list(types) != self.types:
            raise InvalidArgumentError(
                f"Shared barrier '{self.name}' has component types {types_text(self.types)} but requested component types were {types_text(types)}"
            )
        if list(shapes) != self.shapes:
            raise InvalidArgumentError(
                f"Shared barrier '{self.name}' has component shapes {shapes_text(self.shapes)} but requested component shapes were {shapes_text(shapes)}"
            )

    def dispose(self) -> None:
        self.ready.dispose()
