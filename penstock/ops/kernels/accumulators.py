"""Conditional accumulators: gradients are summed up until enough have come, then taken as a sum or a mean.

State of an Accumulator
    step       the global step; a gradient with a smaller local step is out of date and dropped
    count      how many gradients were applied since the last take
    total      their sum, or None
    takes      attempts that wait for gradients
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.kernels.waiting import DONE, STUCK, Attempt, WaitingRoom
from penstock.shapes import compatible_dims, format_dims


class Accumulator(WaitingRoom):
    """What dense and sparse accumulators have in common."""

    type_name = "N10tensorflow26ConditionalAccumulatorBaseE"

    def __init__(self, name: str, dtype: DType, dims: Dims, mean: bool) -> None:
        self.takes: deque[Attempt] = deque()
        super().__init__(self.takes)
        self.name = name
        self.dtype = dtype
        self.dims = dims
        self.mean = mean
        self.step = 0
        self.count = 0
        self.total: Any = None

    def set_step(self, step: int) -> None:
        with self.lock:
            self.step = step

    def apply(self, local_step: int, gradient: Any) -> None:
        """Adds a gradient, unless it is out of date. `gradient` is what `check` accepts."""
        with self.lock:
            if local_step < self.step:
                return
            self.check(gradient)
            self.total = self.first(gradient) if not self.count else self.add(gradient)
            self.count += 1
        self.settle()

    def take(self, ctx: Any, done: Callable[..., Any], required: int) -> None:
        """Gives the sum or mean once at least `required` gradients have come, and begins anew."""
        if required <= 0:
            raise InvalidArgumentError(f"Argument num_required must be positive, but was {required}")
        attempt = Attempt(self._take, done, "TakeGrad", left=required)
        attempt.finish = lambda a: self.result(*a.taken)
        self.submit(ctx, attempt, self.takes)

    def _take(self, attempt: Attempt) -> int:
        if self.count < attempt.left:
            return STUCK
        attempt.taken = (self.total, self.count)
        self.total, self.count = None, 0
        self.step += 1
        return DONE

    def check(self, gradient: Any) -> None:
        raise NotImplementedError

    def first(self, gradient: Any) -> Any:
        raise NotImplementedError

    def add(self, gradient: Any) -> Any:
        raise NotImplementedError

    def result(self, total: Any, count: int) -> Any:
        raise NotImplementedError

    def dispose(self) -> None:
        with self.lock:
            finished = self.give_up_line(self.takes)
        self.report(finished)


class DenseAccumulator(Accumulator):
    """Sums tensors of one shape. `total` is an array that nobody else holds once two gradients were added."""

    def check(self, gradient: Any) -> None:
        want = self.dims if not self.count else np.shape(self.total)
        if not compatible_dims(want, np.shape(gradient)):
            raise InvalidArgumentError(f"Shape mismatch: expected {format_dims(want)}, got {format_dims(np.shape(gradient))}")

    def first(self, gradient: Any) -> Any:
        return gradient

    def add(self, gradient: Any) -> Any:
        if self.count == 1 or not isinstance(self.total, np.ndarray):
            return self.total + gradient
        return np.add(self.total, gradient, out=self.total)

    def result(self, total: Any, count: int) -> Any:
        if not self.mean or count == 1:
            return total
        divisor = total.dtype.type(count)
        return total // divisor if total.dtype.kind in "iu" else total / divisor


class SparseAccumulator(Accumulator):
    """Sums rows by index. `total` is (indices, values, how many gradients each row got)."""

    def check(self, gradient: Any) -> None:
        indices, values, shape = gradient
        if np.ndim(indices) != 1:
            raise InvalidArgumentError(f"Input indices should be vector but received shape: {format_dims(np.shape(indices))}")
        if np.ndim(values) == 0:
            raise InvalidArgumentError("Values cannot be 0-dimensional.")
        if len(values) != len(indices):
            raise InvalidArgumentError(f"Expected {len(indices)} non-empty input values, got {len(values)}")
        if shape is not None:
            self._check_declared(indices, values, [int(s) for s in shape])
        want: Any = (None, *self.total[1].shape[1:]) if self.count else self.dims
        if want is not None:
            if len(want) != values.ndim:
                raise InvalidArgumentError(f"Shape mismatch: expected values rank {len(want)}, got {values.ndim}")
            for i in range(1, len(want)):
                if want[i] is not None and want[i] != values.shape[i]:
                    raise InvalidArgumentError(f"Shape mismatch: expected values dim {i} to be {want[i]}, got {values.shape[i]}")

    def _check_declared(self, indices: Any, values: Any, shape: list[int]) -> None:
        if self.dims is not None:
            if len(shape) != len(self.dims):
                raise InvalidArgumentError(f"Shape mismatch: expected shape rank {len(self.dims)}, got {len(shape)}")
            for i, (want, got) in enumerate(zip(self.dims, shape, strict=True)):
                if want is not None and want != got:
                    raise InvalidArgumentError(f"Shape mismatch: expected shape dim {i} to be {want}, got {got}")
        if len(shape) != values.ndim:
            raise InvalidArgumentError(f"Shape mismatch: expected values rank {len(shape)}, got {values.ndim}")
        for i in range(1, len(shape)):
            if shape[i] != values.shape[i]:
                raise InvalidArgumentError(f"Shape mismatch: expected values dim {i} to be {shape[i]}, got {values.shape[i]}")
        # As in TF, it is the accumulator's own number of rows that counts.
        rows = self.dims[0] if self.dims else None
        beyond = np.flatnonzero(indices >= rows) if rows is not None else np.empty(0, np.intp)
        if beyond.size:
            at = int(beyond[0])
            raise InvalidArgumentError(
                f"Shape mismatch: index of slice {at} exceeded limits of shape; index is {int(indices[at])} exceeded {rows}"
            )

    def first(self, gradient: Any) -> Any:
        indices, values, _ = gradient
        return indices, values, np.ones(len(indices), np.int64)

    def add(self, gradient: Any) -> Any:
        old_indices, old_values, old_counts = self.total
        indices, values, _ = gradient
        if not (_rising(old_indices) and _rising(indices)):
            return _merge_unsorted(self.total, indices, values)
        merged = np.union1d(old_indices, indices)
        sums = np.zeros((len(merged), *values.shape[1:]), values.dtype)
        counts = np.zeros(len(merged), np.int64)
        at = np.searchsorted(merged, old_indices)
        sums[at], counts[at] = old_values, old_counts
        at = np.searchsorted(merged, indices)
        sums[at] += values
        counts[at] += 1
        return merged, sums, counts

    def result(self, total: Any, count: int) -> Any:
        indices, values, counts = total
        if self.mean and counts.size and counts.max() > 1:
            divisor = counts.astype(values.dtype).reshape((-1,) + (1,) * (values.ndim - 1))
            values = values // divisor if values.dtype.kind in "iu" else values / divisor
        rows = self.dims[0] if self.dims else None
        shape = [-1 if rows is None else rows, *values.shape[1:]]
        return [indices, values, np.array(shape, np.int64)]


def _rising(indices: Any) -> bool:
    return bool((np.diff(indices) > 0).all())


def _merge_unsorted(total: Any, indices: Any, values: Any) -> Any:
    """One walk along both lists, as if they were sorted: what TF does with lists that are not."""
    old_indices, old_values, old_counts = total
    i = j = 0
    out: list[tuple[int, Any, int]] = []
    while i < len(old_indices) or j < len(indices):
        if j == len(indices) or (i < len(old_indices) and old_indices[i] < indices[j]):
            out.append((old_indices[i], old_values[i], old_counts[i]))
            i += 1
        elif i == len(old_indices) or old_indices[i] > indices[j]:
            out.append((indices[j], values[j], 1))
            j += 1
        else:
            out.append((indices[j], old_values[i] + values[j], old_counts[i] + 1))
            i, j = i + 1, j + 1
    sums = np.empty((len(out), *values.shape[1:]), values.dtype)
    for k, row in enumerate(out):
        sums[k] = row[1]
    return np.array([row[0] for row in out], np.int64), sums, np.array([row[2] for row in out], np.int64)
