"""Broadcasting an operand that repeats every few elements: written out for some hundred of them, so that NumPy's inner loops are long.

    x (16, 32, 32, 4, 4) - y (16, 1, 1, 4, 1)    loops of 4 elements
    x (16, 128, 128)     - y (16, 1, 128)        the same, with eight copies of what y is for 16 elements: a quarter of the time

So are group norms computed, and what has few channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

LEAST = 1 << 13
"""Elements from which on it pays."""
LONG = 48
"""An inner loop of so many elements is long enough."""
WIDTH = 128


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
    """Over how many elements NumPy loops at a time: the last dimensions of which the operand has all, or none."""
    length, has_all = 1, None
    for n, m in zip(reversed(small), reversed(full)):
        if m != 1:
            if has_all not in (None, n == m):
                break
            has_all = n == m
            length *= m
    return length


@lru_cache(64)
def spread(ufunc: Any) -> Callable[..., Any]:
    """The ufunc of two operands, one of which may repeat in the other one: `(x, y, out=None)`."""

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
