"""Client threads with short steps take turns.

Kernels let go of the interpreter's lock, and each time another thread's step may take it. Two threads whose steps take 50 us then spend most of their time
in waking each other, and get less done together than one of them alone. So a short step that begins while another one runs waits for its
end first. It waits for `PATIENCE` at most, and then runs all the same, so that nobody depends on what others do. Steps that take `LONG` have kernels
worth sharing the cores for: they neither wait nor are waited for.
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
SURE = 50
"""Steps in a row that must have been long: the first ones are, while code is written and memory is new."""

_lock = threading.Lock()
_inside: Any = None  # who is in it, and their step


def run(prepared: Any, function: Callable[[Any, Any], Any], executors: Any, step: Any) -> None:
    """`function(executors, step)`, in turn. `prepared.turns` counts down to 0, for steps that take no turns any more."""
    global _inside
    if not _lock.acquire(False):
        met = _inside
        if not _lock.acquire(timeout=PATIENCE):
            if met is not None and _inside is met:
                met[0].turns = 0
            function(executors, step)
            return
    _inside = (prepared, step)
    start = clock()
    try:
        function(executors, step)
    finally:
        if clock() - start < LONG:
            if prepared.turns:
                prepared.turns = SURE
        elif prepared.turns:
            prepared.turns -= 1
        _inside = None
        _lock.release()


def _after_fork() -> None:
    """Whoever was in it is not here."""
    global _lock, _inside
    _lock = threading.Lock()
    _inside = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
