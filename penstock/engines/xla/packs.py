"""Small variables of a device's program, in one array.

A call of a compiled program costs the host time for every array that goes in and comes out: 2 to 3 us on a machine with an H200, where all
the kernels of a step are submitted as one graph within 20. Most variables of a network are biases, scales and their slots, a few kilobytes each. So those
that a program reads and writes are joined into one array, which it takes apart and puts together itself, where that is part of other kernels. Outside
of the program they are apart: `split` when somebody else wants one of them, `join` when the program takes them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

SMALL = 1 << 14
"""Elements up to which a variable counts as small."""
FEWEST = 4
"""Variables that are worth it."""


class Pack:
    """Which of a program's variables (by their places among those it updates) are joined, and their shapes."""

    def __init__(self, jax: Any, shapes: Sequence[tuple[int, ...]], inside: Sequence[int]) -> None:
        self.shapes = [shapes[i] for i in inside]
        self.inside = list(inside)
        self.others = [i for i in range(len(shapes)) if i not in set(inside)]
        self.ends = list(accumulate(int(np.prod(s)) for s in self.shapes))
        self._jax = jax
        self._join_now = jax.jit(self._join)
        self._split_now = jax.jit(self._split)

    @classmethod
    def of(cls, jax: Any, shapes: Sequence[tuple[int, ...]], types: Sequence[Any]) -> Pack | None:
        """The pack for variables of these shapes and types; None if too few of them are small."""
        inside = [i for i, (s, t) in enumerate(zip(shapes, types)) if t == np.float32 and int(np.prod(s)) <= SMALL]
        return cls(jax, shapes, inside) if len(inside) >= FEWEST else None

    def _join(self, pieces: Sequence[Any]) -> Any:
        return self._jax.numpy.concatenate([piece.ravel() for piece in pieces])

    def _split(self, joined: Any) -> list[Any]:
        starts = [0, *self.ends[:-1]]
        return [joined[a:b].reshape(s) for a, b, s in zip(starts, self.ends, self.shapes)]

    # Inside of a program.

    def opened(self, given: Sequence[Any]) -> list[Any]:
        """All variables, out of what the program gets: the joined ones first."""
        return self._in_order(self._split(given[0]), given[1:])

    def closed(self, values: Sequence[Any]) -> list[Any]:
        """What the program gives."""
        return [self._join([values[i] for i in self.inside]), *(values[i] for i in self.others)]

    def specs(self, specs: Sequence[Any]) -> list[Any]:
        """As `closed`, of shapes and types."""
        return [self._jax.ShapeDtypeStruct((self.ends[-1],), np.float32), *(specs[i] for i in self.others)]

    # Outside of it.

    def join(self, values: Sequence[Any]) -> list[Any]:
        """What the program gets, out of all variables' values."""
        return [self._join_now([values[i] for i in self.inside]), *(values[i] for i in self.others)]

    def split(self, given: Sequence[Any]) -> list[Any]:
        """All variables' values, out of what the program gave. What is not there any more (None) stays away."""
        pieces = [None] * len(self.inside) if given[0] is None else self._split_now(given[0])
        return self._in_order(pieces, given[1:])

    def _in_order(self, pieces: Sequence[Any], rest: Sequence[Any]) -> list[Any]:
        values: list[Any] = [None] * (len(self.inside) + len(self.others))
        for i, value in zip(self.inside, pieces):
            values[i] = value
        for i, value in zip(self.others, rest):
            values[i] = value
        return values
