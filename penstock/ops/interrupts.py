"""Ctrl-C while variables are being updated: a value that is taken out of its variable, to be written into, must come back.

Python raises KeyboardInterrupt between any two instructions of the main thread. Around what must not end like that, the signal is only noted
(`Uninterrupted`), and takes effect when the block is left, or at a place inside where an error may be raised as well (`deliver`): a round of a loop.
Who presses Ctrl-C again, `PATIENCE` seconds later, does not want to wait for that.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

try:
    # What `signal` itself calls, and then searches the names of handlers, which takes ten times as long.
    _signal: Any = importlib.import_module("_signal")
except ImportError:
    _signal = signal
_get_handler, _set_handler = _signal.getsignal, _signal.signal
_SIGINT = int(signal.SIGINT)
_ident = threading.get_ident

came: list[tuple[int, FrameType | None]] = []
"""Signals that wait. Loops look whether there are any."""
PATIENCE = 1.0
_since = 0.0  # when the first of them came
_listeners: list[Callable[[], Any]] = []
_handler: Any = None  # what the signal was for before the outermost block
_main = threading.main_thread().ident


def _after_fork() -> None:
    global _main
    _main = _ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _note(number: int, frame: FrameType | None) -> None:
    global _since
    now = time.monotonic()
    if came and now - _since > PATIENCE:
        came.clear()
        _handler(number, frame)
        return
    if not came:
        _since = now
    came.append((number, frame))
    for listener in _listeners:
        listener()


class Uninterrupted:
    """Around what must not end halfway: Ctrl-C takes effect when the block is left, or at `deliver` inside of it. `listener` is called, in the main
    thread, when it comes."""

    __slots__ = ("_is_outermost", "_listener")

    def __init__(self, listener: Callable[[], Any] | None = None) -> None:
        self._is_outermost = False
        self._listener = listener

    def __enter__(self) -> None:
        global _handler
        if _ident() != _main:
            self._listener = None
            return  # Python interrupts only the main thread
        before = _get_handler(_SIGINT)
        if before is not _note and callable(before):
            _handler = before
            self._is_outermost = True
            _set_handler(_SIGINT, _note)
        if self._listener is not None:
            _listeners.append(self._listener)

    def __exit__(self, *error: object) -> None:
        if self._listener is not None:
            _listeners.remove(self._listener)
        if self._is_outermost:
            found = _set_handler(_SIGINT, _handler)
            if found is not _note and found is not None:
                _set_handler(_SIGINT, found)  # something inside wants it otherwise from now on
            if came:
                deliver()


def deliver() -> None:
    """Ctrl-C takes effect now, if it came and this is the main thread. Only where an error may be raised."""
    if came and _ident() == _main:
        first = came[0]
        came.clear()
        _handler(*first)


class Interruptible:
    """Inside of an uninterrupted block, around code of the user's: there Ctrl-C is what it always is."""

    __slots__ = ("_was",)

    def __init__(self) -> None:
        self._was = False

    def __enter__(self) -> None:
        if _ident() == _main and _get_handler(_SIGINT) is _note:
            deliver()
            self._was = True
            _set_handler(_SIGINT, _handler)

    def __exit__(self, *error: object) -> None:
        if self._was and _get_handler(_SIGINT) is _handler:
            _set_handler(_SIGINT, _note)
