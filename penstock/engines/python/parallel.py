"""How generated code gets at the threads of the runtime, which it must not import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def serial(count: int, work: Callable[[int], Any]) -> None:
    """Calls work(0) ... work(count - 1) in this thread."""
    for i in range(count):
        work(i)


parallel_for: Callable[[int, Callable[[int], Any]], None] = serial
"""`parallel_for(n, work)` calls work(0) ... work(n - 1), in any order, on several threads. The runtime sets it."""
