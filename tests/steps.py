"""Where a step of another thread is: tests wait for that, not for a time, which is never long enough on a machine that has other things to do."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE = 60.0


def wait_until(condition: Callable[[], Any], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.002)


def is_running(thread: threading.Thread) -> bool:
    """Whether the thread is in a step that has begun: from now on, closing the session cancels it."""
    return any(name == "penstock.runtime.executor.shell.run_step" for name in _functions(thread))


def is_waiting(thread: threading.Thread) -> bool:
    """Whether the thread's step waits for its kernels, which do not need the thread."""
    return any(name == "penstock.runtime.executor.driver._wait" for name in _functions(thread))


def _functions(thread: threading.Thread) -> Iterator[str]:
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        yield f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"
        frame = frame.f_back


def once(condition: Callable[[threading.Thread], Any], action: Callable[[], Any]) -> threading.Thread:
    """Starts a thread that does something as soon as `condition` holds for the calling thread."""
    caller = threading.current_thread()

    def act() -> None:
        wait_until(lambda: condition(caller))
        action()

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread
