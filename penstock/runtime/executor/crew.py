"""How many threads the kernels of a program get: as many as make its steps quickest.

What a second thread brings is not known in advance. Two cores that share a cache hand a matrix over in a microsecond or two. Where a virtual machine's CPUs are on two chiplets, 350 ns for a
word and its answer, a training step of small layers took 1.2 to 1.6 times as long on two threads as on one, and a copy of 4 MB 84 us instead of 60. So programs of short steps whose kernels
run on several threads are run with fewer now and then, in real steps, and stay with what was quicker (`engines.xla.match`). Whether others compute at the same time is another question,
which `engines.onednn.crowd` asks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

from penstock.engines import turns
from penstock.engines.onednn import crowd
from penstock.engines.onednn import library as lib
from penstock.engines.python.expressions import by_engine
from penstock.engines.xla.match import RESTS, Match
from penstock.ops.kernels import threads
from penstock.ops.kernels.threads import wish
from penstock.shapes import num_elements

_log = logging.getLogger("penstock.threads")

FIRST = 12
"""Steps before the first look: plans are made, and memory is there."""
LARGE = 1 << 16
"""Elements of arrays that are gone over by several threads."""
LONG_NS = 3_000_000
"""Steps that take longer have kernels that are worth their threads."""
GROWN = 2
"""Steps that take so many times as long as they did have become others: larger batches are fed."""
TRIALS, BLOCK = 8, 4
"""Steps of either number that count in a look, and steps of one number in a row."""
AS_QUICK = 1.1
"""Fewer threads may take so many times as long: they leave cores to others, and do not depend on how far apart the cores are at the moment."""


class Crew:
    """The number of threads of a program's kernels, and the search for a better one. Around each step:

        before = crew.enter()
        try: ...
        finally: crew.leave(before)
        crew.after(ns)

    levels     numbers of threads to choose from, the largest first
    level      the one that holds, by its place
    pair       the look compares levels[pair] and levels[pair + 1]
    matches    one for each pair
    rest       steps until the next look; 0 while one is under way
    usual      what a step took when fewer threads won, in nanoseconds, and `grown`, how many in a row have taken much longer: then it is another program now
    contests   of parts of the program that XLA may take over: while one is open there is no look
    is_over    there is nothing to find out
    """

    __slots__ = ("_calls", "_lock", "contests", "grown", "is_over", "level", "levels", "matches", "pair", "rest", "usual")

    def __init__(self, budget: int) -> None:
        self.levels = [budget]
        while self.levels[-1] > 1:
            self.levels.append(self.levels[-1] // 2)
        self.is_over = budget < 2
        self.contests: Sequence[Any] = ()
        self._lock = threading.Lock()
        self._calls = 0
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.level = self.pair = self.grown = self.usual = 0
        self.matches = [Match(BLOCK, AS_QUICK) for _ in self.levels[1:]]
        self.rest = FIRST

    def enter(self) -> int:
        """A step begins in this thread. Gives what `leave` wants back."""
        level = self.level if self.rest else self.pair + self.matches[self.pair].is_xlas_turn
        self._calls = crowd.calls + threads.loops
        before = wish.number
        if level:
            wish.number = self.levels[level]
        return before

    def leave(self, before: int) -> None:
        """It has ended."""
        wish.number = before

    def after(self, ns: int) -> None:
        """It has ended well, and took so long."""
        if self._lock.acquire(blocking=False):  # a step that ends at the same moment as another one need not count
            try:
                self._count(ns)
            finally:
                self._lock.release()

    def _count(self, ns: int) -> None:
        if self.rest:
            self.rest -= 1
            if self.level and ns > GROWN * self.usual:
                self.grown += 1
                if self.grown == FIRST:
                    self._begin_anew()
                return
            self.grown = 0
            if not self.rest:
                self._begin(ns)
            return
        match = self.matches[self.pair]
        match.note(match.is_xlas_turn, ns, 0)
        if match.is_over(TRIALS):
            self._decide(match)

    def _begin(self, ns: int) -> None:
        if not self.level and (ns > LONG_NS or crowd.calls + threads.loops == self._calls):  # that step had no kernel on several threads
            self.is_over = True
        elif not turns.is_idle() or any(contest.is_open for contest in self.contests):
            self.rest = FIRST
        else:
            self.matches[self.pair].begin_look()

    def _decide(self, match: Match) -> None:
        many, few = match.times(TRIALS)
        fewer = match.is_won(TRIALS)
        _log.debug("%d threads %.0f us, %d threads %.0f us; %d", self.levels[self.pair], many / 1e3, self.levels[self.pair + 1], few / 1e3, self.levels[self.pair + fewer])
        self.level, self.usual = self.pair + fewer, few
        self.rest = FIRST if fewer and match.count == 1 else match.rest or RESTS[-1]
        last = len(self.matches) - 1
        others = [p for p in (self.level, self.level - 1) if 0 <= p <= last and p != self.pair]
        self.pair = others[0] if others else self.pair


def crew_for(nodes: Sequence[Any]) -> Crew | None:
    """The crew of a program of these nodes; None if it can have no kernels on several threads, or has ones that deserve them: convolutions do much with what they read,
    and plans for another number of threads take long to make."""
    by_engines = [node.op.type for node in nodes if by_engine(node)]
    if any("Conv" in name for name in by_engines) or not crowd.is_on():
        return None
    if not by_engines and not any((num_elements(t.dims) or 0) >= LARGE for node in nodes for t in (*node.op.inputs, *node.op.outputs)):
        return None
    crew = Crew(lib.budget())
    return None if crew.is_over else crew
