"""Staging areas: the buffers behind Stage/Unstage, and the keyed ones behind MapStage and OrderedMapStage.

State of a StagingArea
    items          tuples of values, oldest first
State of a StagingMap
    items          key -> values by index (None: taken already), complete ones
    incomplete     key -> values by index (None: not there yet)
Of both
    capacity, memory_limit    0 means no limit; a stage waits until both allow it
    used                      bytes held
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.dtypes import DType, from_np
from penstock.errors import InternalError, InvalidArgumentError, ResourceExhaustedError
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.kernels.views import compact
from penstock.ops.kernels.waiting import DONE, STUCK, Attempt, Crowd, WaitingRoom


def _bytes(values: Sequence[Any]) -> int:
    total = 0
    for value in values:
        if value is None:
            continue
        array = np.asarray(value)
        # Strings count as TF counts them: what they hold, and 24 bytes of administration each.
        total += sum(24 + len(v) for v in array.ravel() if isinstance(v, bytes)) if array.dtype == object else array.nbytes
    return total


class _Area(WaitingRoom):
    """What both kinds of staging area have in common."""

    what = "Stage"

    def __init__(self, name: str, capacity: int, memory_limit: int) -> None:
        self.puts: deque[Attempt] = deque()
        self.gets: deque[Attempt] = Crowd()
        super().__init__(self.puts, self.gets)
        self.name = name
        self.capacity = capacity
        self.memory_limit = memory_limit
        self.used = 0

    def _check_size(self, size: int) -> None:
        if self.memory_limit and size > self.memory_limit:
            raise ResourceExhaustedError(
                f"Attempted to insert tensors with combined size of '{size}' bytes into Staging Area with a memory limit of '{self.memory_limit}'."
            )

    def _full(self, count: int, size: int) -> bool:
        return bool((self.capacity and count >= self.capacity) or (self.memory_limit and self.used + size > self.memory_limit))

    def get(self, ctx: Any, done: Callable[..., Any], run: Callable[[Attempt], int]) -> None:
        self.submit(ctx, Attempt(run, done, "Unstage"), self.gets)

    def dispose(self) -> None:
        with self.lock:
            finished = self.give_up_line(self.puts) + self.give_up_line(self.gets)
        self.report(finished)


class StagingArea(_Area):
    """First in, first out."""

    type_name = "N10tensorflow6BufferE"

    def __init__(self, name: str, capacity: int, memory_limit: int) -> None:
        super().__init__(name, capacity, memory_limit)
        self.items: deque[Sequence[Any]] = deque()

    def put(self, ctx: Any, done: Callable[..., Any], values: Sequence[Any]) -> None:
        size = _bytes(values)
        self._check_size(size)

        def run(attempt: Attempt) -> int:
            if self._full(len(self.items), size):
                return STUCK
            self.items.append([compact(value) for value in values])
            self.used += size
            return DONE

        self.submit(ctx, Attempt(run, done, "Stage"), self.puts)

    def take(self, types: Sequence[DType]) -> Callable[[Attempt], int]:
        """What an unstage of values of these types does."""

        def run(attempt: Attempt) -> int:
            if not self.items:
                return STUCK
            _check_types(self.items[0], types)
            attempt.result = self.items.popleft()
            self.used -= _bytes(attempt.result)
            return DONE

        return run

    def peek(self, index: int, types: Sequence[DType]) -> Callable[[Attempt], int]:
        def run(attempt: Attempt) -> int:
            if index >= len(self.items):
                return STUCK
            _check_types(self.items[index], types)
            attempt.result = self.items[index]
            return DONE

        return run

    def clear(self) -> None:
        with self.lock:
            self.items.clear()
            self.used = 0
        self.settle()


def _check_types(values: Sequence[Any], types: Sequence[DType]) -> None:
    if len(values) != len(types):
        raise InvalidArgumentError(f"Mismatch stage/unstage: {len(values)} vs. {len(types)}")
    for i, (value, dtype) in enumerate(zip(values, types, strict=True)):
        if getattr(value, "dtype", dtype.np) != dtype.np:
            raise InternalError(
                f"Output {i} of type {dtype_text(from_np(value.dtype))} does not match declared output type {dtype_text(dtype)}"
            )


class StagingMap(_Area):
    """By key. `ordered` gives the smallest key to those who do not ask for one, else it is the latest."""

    type_name = "N10tensorflow10StagingMapE"

    def __init__(self, name: str, capacity: int, memory_limit: int, ordered: bool) -> None:
        super().__init__(name, capacity, memory_limit)
        self.width = 0  # values per key, known with the first stage
        self.ordered = ordered
        self.items: dict[int, list[Any]] = {}
        self.incomplete: dict[int, list[Any]] = {}

    def put(self, ctx: Any, done: Callable[..., Any], key: int, indices: Sequence[int], values: Sequence[Any], width: int) -> None:
        self.width = width
        self._check_indices(key, indices)
        if any(b <= a for a, b in itertools.pairwise(indices)):
            raise InvalidArgumentError("Indices are not strictly ordered")
        if len(indices) > len(values):
            raise InvalidArgumentError(f"Expected {len(indices)} values for {len(indices)} indices, got {len(values)}")
        size = _bytes(values)
        self._check_size(size)

        def run(attempt: Attempt) -> int:
            if self._full(len(self.items), size) and not (key in self.incomplete and self.memory_limit == 0):
                return STUCK
            parts = self.incomplete.get(key)
            if parts is None:
                parts = [None] * self.width
            for i, value in zip(indices, values):  # TF takes as many values as there are indices
                if parts[i] is not None:
                    raise InvalidArgumentError(f"The tensor for index '{i}' for key '{key}' was already initialized '{self.width}'.")
                parts[i] = compact(value)
            self.used += size
            if any(p is None for p in parts):
                self.incomplete[key] = parts
            else:
                self.incomplete.pop(key, None)
                self.items.setdefault(key, parts)
            return DONE

        self.submit(ctx, Attempt(run, done, "Stage"), self.puts)

    def _check_indices(self, key: Any, indices: Sequence[int]) -> None:
        for i in indices:
            if not 0 <= i < self.width:
                raise InvalidArgumentError(f"Index '{i}' for key '{key}' was out of bounds '{self.width}'.")

    def take(self, key: int | None, indices: Sequence[int], types: Sequence[DType], remove: bool = True) -> Callable[[Attempt], int]:
        """What an unstage (or, without `remove`, a peek) of `key` does; of any key if that is None."""

        def run(attempt: Attempt) -> int:
            if not self.items or (key is not None and key not in self.items):
                return STUCK
            k = key if key is not None else min(self.items) if self.ordered else next(reversed(self.items))
            parts = self.items[k]
            self._check_indices(k, indices)
            for i in indices:
                if parts[i] is None:
                    raise InvalidArgumentError(f"Tensor at index '{i}' for key '{k}' has already been removed.")
            values = [parts[i] for i in indices]
            _check_types(values, types)
            if remove:
                for i in indices:
                    parts[i] = None
                self.used -= _bytes(values)
                if all(p is None for p in parts):
                    del self.items[k]
            attempt.result = values if key is not None else [np.int64(k), *values]
            return DONE

        return run

    def clear(self) -> None:
        with self.lock:
            self.items.clear()
            self.incomplete.clear()
            self.used = 0
        self.settle()
