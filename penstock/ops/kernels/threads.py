"""How kernels get at the threads of the runtime, which they must not import."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

_required = False


def require_determinism() -> None:
    """From now on, results repeat bit for bit."""
    global _required
    _required = True


def is_deterministic() -> bool:
    """Whether results must repeat bit for bit: TF's own switches. Then neither the number of threads nor what a process has done before may matter."""
    return _required or os.environ.get("TF_DETERMINISTIC_OPS", "").strip().lower() in ("1", "true")


def serial(count: int, work: Callable[[int], Any]) -> None:
    """Calls work(0) ... work(count - 1) in this thread."""
    for i in range(count):
        work(i)



class _Wish(threading.local):
    number = 0


wish = _Wish()
"""Its `number` says how many threads the program that this thread runs wants for a kernel or a loop at most; 0: as many as there are."""
loops = 0
"""How many have run on several threads."""

_parallel_for: Callable[[int, Callable[[int], Any]], None] = serial


def set_parallel_for(function: Callable[[int, Callable[[int], Any]], None]) -> None:
    """The runtime says what `parallel_for` calls."""
    global _parallel_for
    _parallel_for = function


def parallel_for(count: int, work: Callable[[int], Any]) -> None:
    """Calls work(0) ... work(count - 1), in any order, on several threads if there is more than one call."""
    if count > 1:
        _parallel_for(count, work)
    elif count:
        work(0)
