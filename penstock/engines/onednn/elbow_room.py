"""Threads of this process that share a core while another core has nothing to do.

Linux puts a thread that wakes up where it was, or next to who woke it. If that core is busy at the moment, with XLA's threads for one, the thread waits there, and whoever waits for it in a loop keeps it
waiting; the other core, it seems, does not fetch it while its pauses are below half a millisecond. A step of 350 us took 1,100 like that, for tens of milliseconds on end.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache
from typing import Any


def make() -> int:
    """Moves threads that want to run away from the core that this thread runs on, to where else they may run. They keep the right to come back. Gives how many."""
    try:
        cpu = _where()
        threads = [] if cpu < 0 else [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:  # whoever calls this wants a kernel computed, not to hear of it
        return 0
    moved, mine = 0, threading.get_native_id()
    for thread in threads:
        if thread == mine:
            continue
        try:
            if not _wants(thread, cpu):
                continue
            allowed = os.sched_getaffinity(thread)
            if allowed - {cpu}:
                os.sched_setaffinity(thread, allowed - {cpu})
                os.sched_setaffinity(thread, allowed)
                moved += 1
        except OSError:  # it has ended, or the system does not let us
            continue
    return moved


def _wants(thread: int, cpu: int) -> bool:
    """Whether it runs, or waits to run, on that core."""
    with open(f"/proc/self/task/{thread}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return fields[0] == "R" and int(fields[36]) == cpu


def _where() -> int:
    """The core that this thread runs on; -1 where that is not known, or there is no other."""
    function = _getcpu()
    return -1 if function is None or len(os.sched_getaffinity(0)) < 2 else function()


@cache
def _getcpu() -> Any:
    if not hasattr(os, "sched_setaffinity") or not os.path.isdir("/proc/self/task"):
        return None
    try:
        return ctypes.CDLL(None).sched_getcpu
    except (OSError, AttributeError):
        return None
