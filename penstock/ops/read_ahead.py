"""Random numbers drawn ahead: for ops that draw a few at a time, over and over, as in loops over examples.

Where in its generator's stream a draw begins is known beforehand, so once a node has drawn the same way several times, a
table of its next draws is computed at once. A draw finds its row by its own place in the stream; no number depends on
whether there is a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.ops import philox
from penstock.ops.philox import RESERVED_PER_OUTPUT, Philox

ROWS = 64
"""Draws in a table."""
PATIENCE = 4
"""Draws of one kind before there is a table."""

Make = Callable[[Philox, int, int], np.ndarray]
"""make(gen, rows, stride): what draws that begin at every stride-th block of `gen` yield, a row for each."""


class _Table(NamedTuple):
    kind: tuple[Any, ...]
    start: int
    numbers: np.ndarray


class Ahead:
    """The draws of one node. Threads may share it: a table never changes, and a count lost is only a table made later."""

    __slots__ = ("_count", "_kind", "_table")

    def __init__(self) -> None:
        self._kind: tuple[Any, ...] = ()
        self._count = 0
        self._table = _Table((), 0, np.empty((0, 0)))

    def draw(self, gen: Philox, kind: tuple[Any, ...], n: int, make: Make, stride: int = 0) -> np.ndarray | None:
        """The `n` numbers that a draw of this kind takes from `gen`; None where it is to be computed by itself.

        `stride` is how many blocks further on the next draw begins, where that is not what TF sets aside for n outputs.
        """
        table, stride = self._table, stride or n * RESERVED_PER_OUTPUT
        if table.kind == kind:
            row, off = divmod(gen.counter - table.start, stride)
            if not off and 0 <= row < len(table.numbers):
                return table.numbers[row, :n].copy()
        if kind != self._kind:
            self._kind, self._count = kind, 0
        self._count += 1
        if self._count <= PATIENCE:
            return None
        numbers = make(gen, ROWS, stride)
        self._table = _Table(kind, gen.counter, numbers)
        return numbers[0, :n].copy()


def _of(state: Any) -> Ahead:
    found = state.__dict__.get("ahead")
    return found if found is not None else state.__dict__.setdefault("ahead", Ahead())


def floats(state: Any, gen: Philox, sizes: tuple[int, ...], n: int, dtype: np.dtype, stores: dict[np.dtype, Any]) -> np.ndarray | None:
    """What philox.uniform or philox.normal, whose tables `stores` are, take from `gen`; None where they are to be asked."""
    per_block, store = stores[dtype]
    if not 0 < n <= per_block:
        return None

    def make(gen: Philox, rows: int, stride: int) -> np.ndarray:
        out = np.empty((rows, per_block), dtype)
        store(*gen.blocks(0, rows, stride), out)
        return out

    found = _of(state).draw(gen, (dtype, n), n, make)
    return found if found is None else found.reshape(sizes)


def ints(state: Any, gen: Philox, sizes: tuple[int, ...], n: int, low: int, high: int, dtype: np.dtype) -> np.ndarray | None:
    """What philox.uniform_int takes from `gen`; None where it is to be asked."""
    width = dtype.itemsize
    per_block = 16 // width
    if not 0 < n <= per_block:
        return None
    unsigned, store = (np.uint32, philox._store_words) if width == 4 else (np.uint64, philox._store_longs)

    def make(gen: Philox, rows: int, stride: int) -> np.ndarray:
        out = np.empty((rows, per_block), unsigned)
        store(*gen.blocks(0, rows, stride), out)
        out %= unsigned(high - low)
        out += unsigned(low % (1 << 8 * width))
        return out.view(dtype)

    found = _of(state).draw(gen, (dtype, n, low, high), n, make)
    return found if found is None else found.reshape(sizes)


MOST_BLOCKS = 256
"""Stretches that are longer are worth a computation of their own."""


class Begun:
    """A stream of which the first words are there already, or what the reader makes of them."""

    __slots__ = ("_gen", "first")

    def __init__(self, gen: Philox, first: np.ndarray) -> None:
        self._gen = gen
        self.first = first

    def words(self, n: int) -> np.ndarray:
        return self.first if n == self.first.size else self._gen.words(n)

    def skip(self, blocks: int) -> Philox:
        return self._gen.skip(blocks)


def stream(state: Any, gen: Philox, blocks: int, stride: int, of_words: Callable[[np.ndarray], np.ndarray] | None = None) -> Philox | Begun:
    """`gen` for a reader who begins with so many blocks, and with as many `stride` blocks further on when it comes again; if it makes the same number of numbers of
    any words, one by one, those numbers are kept instead (`of_words` takes them in rows)."""
    if blocks > MOST_BLOCKS:
        return gen

    def make(gen: Philox, rows: int, stride: int) -> np.ndarray:
        offsets = np.arange(rows, dtype=np.uint64)[:, None] * np.uint64(stride) + np.arange(blocks, dtype=np.uint64)
        out = np.empty((rows, 4 * blocks), np.uint32)
        philox._store_words(*gen.at(offsets.ravel()), out.reshape(-1, 4))
        return out if of_words is None else of_words(out)

    found = _of(state).draw(gen, ("words", blocks), 4 * blocks, make, stride)
    return gen if found is None else Begun(gen, found)
