"""Broadcasting where NumPy's inner loops would be short: they are made long by writing an operand out.

    x (16, 32, 32, 4, 4) - y (16, 1, 1, 4, 1)    loops of 4 elements
    x (16, 128, 128)     - y (16, 1, 128)        the same, with eight copies of what y is for 16 elements: a quarter of the time

So are group norms computed, and what has few channels. Other operands are written out as a whole:

    x (1, 128, 3)        - y (128, 1, 3)         loops of 3 elements
    x (1, 384)           - y (128, 384)          the same: an eighth of the time
    x (128, 128, 3)      * y (128, 128, 1)       likewise, each element of y three times in a row: half of the time

So are differences of all pairs of points computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from penstock.ops import native
from penstock.ops.native import lines
from penstock.shapes import Dims, is_fully_defined

LEAST = 1 << 13
"""Elements from which on it pays."""
LONG = 48
"""An inner loop of so many elements is long enough."""
WIDTH = 128
MOST_REPEATED, MOST_WRITTEN_OUT = 32, 1 << 22
"""An operand is written out as a whole if its elements stand so many times in a row, and if there are so many elements in all, at the most."""
_CALCULATIONS = frozenset((np.add, np.subtract, np.multiply, np.true_divide, np.maximum, np.minimum))
"""Ufuncs that give two floats' own type."""


class Period(NamedTuple):
    """How an operand repeats in an array."""

    full: tuple[int, int, int]
    """The array's shape with all that repeats in the middle."""
    pattern: tuple[int, ...]
    """What is written out: the last dimension of `full` as (copies, ...)."""
    small: tuple[int, ...]
    """The operand's shape beside `pattern`."""

    def written_out(self, operand: np.ndarray) -> np.ndarray:
        """The operand, ready to be broadcast over an array of shape `full`."""
        wide = np.empty(self.pattern, operand.dtype)
        np.copyto(wide, operand.reshape(self.small))
        return wide.reshape(self.full[0], 1, self.full[2])


@lru_cache(1024)
def period_of(small: tuple[int, ...], full: tuple[int, ...]) -> Period | None:
    """How an operand of shape `small` repeats in an array of shape `full`; None if it does not, or if there is nothing to gain."""
    rank = len(full)
    if len(small) > rank or math.prod(full) < LEAST:
        return None
    small = (1,) * (rank - len(small)) + small
    if any(n != m and n != 1 for n, m in zip(small, full)):
        return None
    begin = next((i for i in range(rank) if small[i] != full[i]), rank)
    end = next((i for i in range(begin, rank) if small[i] != 1), rank)
    if end == rank:
        return None
    times, inner = math.prod(full[begin:end]), full[end:]
    block = math.prod(inner)
    copies = next((n for n in range(1, min(times, 4 * WIDTH) + 1) if times % n == 0 and n * block >= WIDTH), 1)
    if _inner_loop(small, full) >= min(LONG, copies * block // 4) or times < 4 * copies:
        return None
    lead = math.prod(full[:begin])
    return Period((lead, times // copies, copies * block), (lead, copies, *inner), (lead, 1, *small[end:]))


def _inner_loop(small: tuple[int, ...], full: tuple[int, ...]) -> int:
    """Over how many elements NumPy loops at a time where one operand has all: the last dimensions of which the other one has all, or none."""
    return _common_loop(small, full, full)


def _common_loop(x: tuple[int, ...], y: tuple[int, ...], full: tuple[int, ...]) -> int:
    length, before = 1, None
    for n, k, m in zip(reversed(x), reversed(y), reversed(full)):
        if m != 1:
            has_all = n == m, k == m
            if before not in (None, has_all):
                break
            before = has_all
            length *= m
    return length


class Whole(NamedTuple):
    """An operand that is written out as a whole."""

    is_second: bool
    full: tuple[int, ...]
    times: int
    """How often each of its elements stands in a row; 1 where lines of several elements are repeated."""

    def written_out(self, operand: np.ndarray) -> np.ndarray:
        if self.times > 1:
            return np.repeat(operand.reshape(-1), self.times).reshape(self.full)
        return lines.in_order(np.broadcast_to(operand, self.full))


@lru_cache(1024)
def whole_of(x: tuple[int, ...], y: tuple[int, ...]) -> Whole | None:
    """Which of two operands of these shapes is to be written out as a whole; None if there is nothing to gain."""
    rank = max(len(x), len(y))
    x, y = (1,) * (rank - len(x)) + x, (1,) * (rank - len(y)) + y
    if any(n != m and 1 not in (n, m) for n, m in zip(x, y)):
        return None
    full = tuple([m if n == 1 else n for n, m in zip(x, y)])
    if not LEAST <= math.prod(full) <= MOST_WRITTEN_OUT or _common_loop(x, y, full) >= LONG:
        return None
    for is_second, (operand, other) in enumerate(((x, y), (y, x))):
        times = _times(operand, full)
        if times and _inner_loop(other, full) >= LONG:
            return Whole(bool(is_second), full, times)
    return None


def _times(shape: tuple[int, ...], full: tuple[int, ...]) -> int:
    """How often each element of an operand stands in a row, 1 if several others follow it; 0 if it is not worth writing out."""
    end = next((i for i in range(len(full), 0, -1) if shape[i - 1] != 1), 0)
    times = math.prod(full[end:])
    if times > 1:
        return times if shape[:end] == full[:end] and times <= MOST_REPEATED else 0
    return int(shape != full and native.available())


def pays(x: Dims, y: Dims, full: tuple[int, ...]) -> bool:
    """Whether `spread` may do something for operands of these shapes."""
    if is_fully_defined(x) and is_fully_defined(y) and whole_of(x, y) is not None:
        return True
    return any(is_fully_defined(dims) and period_of(dims, full) is not None for dims in (x, y))


@lru_cache(64)
def spread(ufunc: Any) -> Callable[..., Any]:
    """The ufunc of two operands that are broadcast: `(x, y, out=None)`."""

    def run(x: Any, y: Any, out: Any = None) -> Any:
        is_second = x.size >= y.size
        full, small = (x, y) if is_second else (y, x)
        if full.size >= LEAST and full.flags.c_contiguous and (out is None or out.flags.c_contiguous):
            period = period_of(small.shape, full.shape)
            if period is not None:
                parts = full.reshape(period.full), period.written_out(small)
                into = None if out is None else out.reshape(period.full)
                found = ufunc(*(parts if is_second else parts[::-1]), out=into)
                return found.reshape(full.shape) if out is None else out
        whole = whole_of(x.shape, y.shape)
        if whole is not None:
            written = whole.written_out(y if whole.is_second else x)
            if out is None and ufunc in _CALCULATIONS and x.dtype == y.dtype and x.dtype.kind == "f":
                out = written
            return ufunc(x, written, out=out) if whole.is_second else ufunc(written, y, out=out)
        return ufunc(x, y, out=out)

    run.__name__ = ufunc.__name__
    return run


def contiguous(array: np.ndarray) -> np.ndarray:
    """As np.ascontiguousarray, for what has been broadcast."""
    if 0 in array.strides and array.size >= LEAST:
        operand = array[tuple(slice(1) if step == 0 else slice(None) for step in array.strides)]
        period = period_of(operand.shape, array.shape)
        if period is not None:
            found = np.empty(array.shape, array.dtype)
            np.copyto(found.reshape(period.full), period.written_out(operand))
            return found
    return np.ascontiguousarray(array)
