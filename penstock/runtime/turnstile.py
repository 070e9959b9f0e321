"""Client threads with short steps take turns, where more gets done that way.

Kernels let go of the interpreter's lock, and each time another thread's step may take it. Two threads whose steps take 50 us then spend most of their time
in waking each other, and get less done together than one of them alone. So a short step that begins while another one runs waits for its
end first. It waits for `PATIENCE` at most, and then runs all the same, so that nobody depends on what others do. Steps that take `LONG` neither wait nor are waited for.

What is better for steps in between depends on what they consist of: a few long kernels, or many short ones. So where steps meet, both ways are tried for some hundredths
of a second, and the one in which more steps came to an end stays, until it is tried again (`Turns`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from time import perf_counter_ns as clock
from typing import Any

from penstock.engines.onednn import crowd

PATIENCE, MOST_WAITS = 0.005, 10
"""Seconds to wait for one and the same step, and how often others may be quicker."""
LONG = 2_000_000
"""Nanoseconds."""
SURE = 50
"""Steps in a row that must have been long: the first ones are, while code is written and memory is new."""
SETTLE, WINDOW = 10_000_000, 30_000_000
"""Nanoseconds that a way is tried for: until everybody has changed to it, and then until it is judged."""
FIRST_PAUSE, LONGEST_PAUSE = 300_000_000, 10_000_000_000
"""Between two trials: longer and longer, as long as there is more than one client."""
CLEARLY = 1.2
"""By how much more must get done side by side. The same steps differ by a tenth from one moment to the next, and who changes to and fro pays for both."""

_lock = threading.Lock()
_inside: Any = None  # who is in it, and their step
_free = threading.Lock()  # held by one of those who do not wait


class Turns:
    """How steps of one signature get along with others.

    is_free     they do not wait
    is_over     they are long: nobody asks any more
    """

    __slots__ = ("_course", "_judging", "_long", "_met", "_since", "_steps", "_until", "is_free", "is_over")

    def __init__(self) -> None:
        self.is_free = self.is_over = False
        self._long = SURE
        self._judging = threading.Lock()
        self._course = self._go()
        self._begin(next(self._course))

    def took(self, ns: int) -> None:
        """A step took so long, alone."""
        self._long = SURE if ns < LONG else self._long - 1
        if not self._long:
            self.is_over = True

    def after(self, has_met: bool) -> None:
        """A step has ended; another one was under way when it began."""
        # Threads may come between these lines: a count that is a little wrong does no harm.
        self._steps += 1
        self._met += has_met
        if clock() >= self._until and self._judging.acquire(False):
            try:
                self._begin(next(self._course))
            finally:
                self._judging.release()

    def _begin(self, duration: int) -> None:
        self._steps = self._met = 0
        self._since = clock()
        self._until = self._since + duration

    def _go(self) -> Iterator[int]:
        """Gives the durations for which things stay as they are."""
        pause, is_crowd = FIRST_PAUSE, False
        while True:
            yield pause
            if 2 * self._met < self._steps:  # one client, most of the time
                if is_crowd:
                    crowd.reset()
                is_crowd, self.is_free, pause = False, False, FIRST_PAUSE
                continue
            is_crowd = True
            crowd.meet(2 * LONGEST_PAUSE)
            rates = [0.0, 0.0]
            for self.is_free in (False, True):
                yield SETTLE
                yield WINDOW
                rates[self.is_free] = self._steps / (clock() - self._since)
            self.is_free = rates[True] > CLEARLY * rates[False]
            pause = min(2 * pause, LONGEST_PAUSE)


def run(turns: Turns, function: Callable[[Any, Any], Any], executors: Any, step: Any) -> None:
    """`function(executors, step)`, in turn if that is better."""
    global _inside
    is_free = turns.is_free
    lock = _free if is_free else _lock
    has_met = not lock.acquire(False)
    if is_free:
        try:
            function(executors, step)
        finally:
            if not has_met:
                lock.release()
            turns.after(has_met)
        return
    if has_met:
        for _ in range(MOST_WAITS):
            other = _inside
            if lock.acquire(timeout=PATIENCE):
                break
            if other is not None and _inside is other:
                other[0].is_over = True
                function(executors, step)
                return
        else:
            function(executors, step)
            return
    _inside = (turns, step)
    start = clock()
    try:
        function(executors, step)
    finally:
        turns.took(clock() - start)
        _inside = None
        lock.release()
        turns.after(has_met)


def _after_fork() -> None:
    """Whoever was in it is not here."""
    global _lock, _free, _inside
    _lock, _free = threading.Lock(), threading.Lock()
    _inside = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
