"""Streams of random numbers that a program draws from: where it begins in each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.ops.philox import RESERVED_PER_OUTPUT
from penstock.ops.random import generator


def state_of(node: Any) -> Any:
    """What the kernel of a node that draws random numbers keeps from step to step; None if it is not known."""
    found = getattr(node.fn, "state", None)
    return getattr(node.fn, "keywords", {}).get("state") if found is None else found


class Reserved:
    """A stretch of each node's stream, as long as a program's draws. `places` are what the program gets: key and counter."""

    __slots__ = ("_taken", "places")

    def __init__(self, nodes: Sequence[Any], draws: Sequence[int]) -> None:
        self._taken = []
        self.places: list[np.ndarray] = []
        for node, count in zip(nodes, draws):
            attrs = node.op.attrs
            state = generator(state_of(node), attrs["seed"], attrs["seed2"])
            taken = state.reserve_outputs(count)
            counter = taken.counter
            self._taken.append((state, taken, count))
            self.places.append(np.array([taken.key, counter & 0xFFFFFFFFFFFFFFFF, counter >> 64], np.uint64))

    def give_back(self) -> None:
        """Nothing has been drawn: the host does, from the same places."""
        for state, taken, count in self._taken:
            state.give_back(taken, count * RESERVED_PER_OUTPUT)
