"""Tables of words for machine code, in which the addresses of arrays are filled in later.

    tables = Tables({1: 0x7f00}, [0, 2])        # value 1 lies there; 0 and 2 are told for each call
    start = tables.table([5, Value(0), Value(1, 64), [7, Value(2)]])        # a list inside of a table is the address of another one
    tables.move([a, c])
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.memory import address


class Value(NamedTuple):
    """A word that is a value's address, or so many bytes behind it."""

    number: int
    offset: int = 0

    def moved(self, offset: int) -> Value:
        return self._replace(offset=self.offset + offset)


def values_in(words: Iterable[Any]) -> Iterator[Value]:
    """The values among words, in tables inside of them too."""
    for word in words:
        if isinstance(word, Value):
            yield word
        elif isinstance(word, list):
            yield from values_in(word)


class Tables:
    """See the module. `at`: addresses that are known, by the numbers of values; `external`: numbers of the others."""

    def __init__(self, at: dict[int, int], external: Sequence[int]) -> None:
        self._at = at
        self._places: dict[int, list[tuple[Callable[[Any, int], Any], Any, int]]] = {number: [] for number in external}
        self._tables: list[Any] = []
        self._moves = [self._places[number] for number in external]
        self._known = [0] * len(self._moves)

    def table(self, words: Sequence[Any]) -> int:
        """The address of a table of words, values and tables."""
        return ctypes.addressof(self.array(words))

    def array(self, words: Sequence[Any]) -> Any:
        """The table itself."""
        table = (ctypes.c_int64 * len(words))()
        for i, word in enumerate(words):
            self.put(word, table.__setitem__, i)
        self._tables.append(table)
        return table

    def put(self, word: Any, setter: Callable[[Any, int], Any], place: Any) -> None:
        """setter(place, the word), now or whenever it changes."""
        if isinstance(word, list):
            setter(place, self.table(word))
        elif not isinstance(word, Value):
            setter(place, address(word) if isinstance(word, np.ndarray) else word)
        elif word.number in self._at:
            setter(place, self._at[word.number] + word.offset)
        else:
            self._places[word.number].append((setter, place, word.offset))

    def move(self, addresses: Sequence[int]) -> None:
        """The external values are at these addresses."""
        known = self._known
        for i, new in enumerate(addresses):
            if known[i] != new:
                for setter, place, offset in self._moves[i]:
                    setter(place, new + offset)
                known[i] = new
