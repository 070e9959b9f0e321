"""Work beside the steps that is Python itself: writing code, tracing programs.

A thread that computes in Python gives the interpreter's lock away only every 5 ms, so that a step of 100 us whose kernels let go of the lock
would wait 5 ms for each. While such work is under way (`beside`), turns are short.

They are also shorter than most steps: who waits for the lock asks for it only when it has not been let go of for a turn's length. A step that lets go once every 190 us, for a moment in
which nobody else wakes up in time, would never be asked with turns of 200 us, and the work beside it came to 7 % of a core.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

SHORT = 0.00005
_lock = threading.Lock()
_active = 0
_before = 0.0


@contextlib.contextmanager
def beside() -> Iterator[None]:
    """Around work on a thread of its own that steps should not wait for."""
    global _active, _before
    with _lock:
        _active += 1
        if _active == 1:
            _before = sys.getswitchinterval()
            if _before > SHORT:
                sys.setswitchinterval(SHORT)
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            if not _active and _before > SHORT:
                sys.setswitchinterval(_before)


def is_idle() -> bool:
    """Whether no such work is under way."""
    return _active == 0


def _after_fork() -> None:
    """The threads that were at work are not here."""
    global _lock, _active
    _lock = threading.Lock()
    if _active and _before > SHORT:
        sys.setswitchinterval(_before)
    _active = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
