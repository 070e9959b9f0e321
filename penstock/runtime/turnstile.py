"""Client threads with short steps take turns.

Kernels let go of the interpreter's lock, and each time another thread's step may take it. Two threads whose steps take 50 us then spend most of their time
in waking each other, and get less done together than one of them alone. So a short step that begins while another one runs waits for its
end first. It waits for `PATIENCE` at most, and then runs all the same, so that nobody depends on what others do. Steps that take `LONG` have kernels
worth sharing the cores for: they neither wait nor are waited for. That is looked at again: a program gets quicker when XLA takes it over, and a machine that was busy makes every step long. Steps during which the system gave
the core to somebody else say nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from time import perf_counter_ns as clock
from typing import Any

PATIENCE = 0.005
LONG = 150_000
"""Nanoseconds."""
SURE, FEW = 50, 5
"""Steps in a row that must have been long: the first ones are, while code is written and memory is new; and fewer when it is looked at again."""
AGAIN = 2000
"""Steps until then."""
try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # not on Linux

    def _taken_away() -> int:
        return 0

else:

    def _taken_away() -> int:
        """How often the system has taken the core away from this thread."""
        return getrusage(RUSAGE_THREAD).ru_nivcsw


_lock = threading.Lock()
_inside: Any = None  # who is in it, and their step


def run(prepared: Any, function: Callable[[Any, Any], Any], executors: Any, step: Any) -> None:
    """`function(executors, step)`, in turn. `prepared.turns` counts long steps in a row, down from SURE; below 0 it counts those that take no turns, up to the next look."""
    global _inside
    turns = prepared.turns
    if turns < 0:
        prepared.turns = turns + 1 if turns < -1 else FEW
        function(executors, step)
        return
    if not _lock.acquire(False):
        met = _inside
        if not _lock.acquire(timeout=PATIENCE):
            if met is not None and _inside is met:
                met[0].turns = -AGAIN
            function(executors, step)
            return
    _inside = (prepared, step)
    before = 0 if turns >= SURE else _taken_away()
    start = clock()
    try:
        function(executors, step)
    finally:
        if clock() - start < LONG:
            if prepared.turns > 0:
                prepared.turns = SURE
        elif prepared.turns > 0 and (turns >= SURE or _taken_away() == before):
            prepared.turns = prepared.turns - 1 or -AGAIN
        _inside = None
        _lock.release()


def _after_fork() -> None:
    """Whoever was in it is not here."""
    global _lock, _inside
    _lock = threading.Lock()
    _inside = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
