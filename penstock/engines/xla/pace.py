"""Programs whose loops may run for long, a piece at a time.

Nothing stops a call of XLA's, so that a program with such a loop gets a number of rounds with each call. If they do not do, it gives back how far its loops
are (`lower.Counting`), with all variables as they were, and is called again to go on from there; what comes before a loop is computed anew. In between
the step can be stopped. How many rounds a call gets is learned, so that it takes about `TARGET`.

A loop inside of other control flow can only start again from the last round of the loop outside of all; with more rounds each time, up to `LONGEST`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import starmap
from typing import Any

import numpy as np

from penstock.engines.python.code import halt

TARGET = 50_000_000
"""Nanoseconds that a call should take."""
LONGEST = 1_000_000_000
"""Nanoseconds that a call may take to come on at all."""
FIRST, MOST = 64, 1 << 30
"""Rounds of the first call ever, and of any."""
UNFINISHED, STUCK = -1, -2
"""In the place of the number of rounds left: call again; call again with more."""


class TooLong(Exception):
    """A loop inside of other control flow runs for too long. Nothing has been changed."""


class Pace:
    """How many rounds a program gets with a call. `idle` is the state of loops that have not begun; `back` says which of the new values belong to what was
    donated, for when they are the old ones."""

    __slots__ = ("_array", "_least", "_put", "back", "idle", "rounds")

    def __init__(self, idle: list[Any], back: list[int], put: Callable[[np.ndarray], Any]) -> None:
        self.rounds = FIRST
        self._put = put
        self.idle = idle
        self.back = back
        self._array: tuple[int, Any] = (0, None)
        self._least = 1  # with fewer rounds it did not come on

    def array(self, begun: int) -> tuple[int, Any]:
        """How many rounds, and the program's argument: this number, and how many of its loops have begun."""
        found = self._array
        rounds = self.rounds
        if begun or found[0] != rounds:
            found = (rounds, self._put(np.array([rounds, begun], np.int32)))
            if not begun:
                self._array = found
        return found

    def learn(self, rounds: int, left: int, ns: int) -> None:
        """A call with so many rounds took that long."""
        if left >= 0:
            if ns > 2 * TARGET:
                self.rounds = max(self._least, (rounds - left) * TARGET // ns)
        elif left == STUCK:
            if ns > LONGEST:
                raise TooLong
            self.rounds = self._least = min(MOST, rounds * (2 if ns > TARGET // 4 else 8))
        else:
            self.rounds = max(self._least, min(MOST, rounds * 64, rounds * TARGET // max(ns, 1)))


def run(call: Any, pace: Pace, stop: Any, values: list[Any], constants: list[Any], kept: list[Any], taken: list[Any], more: list[Any], done: list[Any]) -> None:
    """Runs the program to its end; what it gives goes to `done`. Meanwhile `taken` has the values of the variables that were donated."""
    saved = pace.idle
    begun = 0
    while True:
        rounds, array = pace.array(begun)
        start = time.perf_counter_ns()
        piece: list[Any] = []
        try:
            # No signal comes between the end of the call and the place where its results are put.
            piece += starmap(call, ((values, constants, kept, taken, *more, array, saved),))
            left, begun = np.asarray(piece[0][2]).tolist()
        finally:
            if piece and pace.back:
                taken[:] = [piece[0][1][i] for i in pace.back]
        results, new, _, saved = piece[0]
        pace.learn(rounds, left, time.perf_counter_ns() - start)
        if left >= 0:
            done.append((results, new))
            return
        del results, new, piece
        halt(stop)
