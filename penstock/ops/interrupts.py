"""Ctrl-C, and other signals, while variables are being updated: a value that is taken out of its variable, to be written into, must come back.

Python calls the handler of a signal between any two instructions of the main thread, and it may raise: KeyboardInterrupt, a timeout, SystemExit.
Around what must not end like that, signals are only noted (`Uninterrupted`), and take effect when the block is left, or at a place inside where an error
may be raised as well (`deliver`): a round of a loop. Who presses Ctrl-C again, `PATIENCE` seconds later, does not want to wait for that.
"""

from __future__ import annotations

import _thread
import importlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

try:
    # What `signal` itself calls, and then searches the names of handlers, which takes ten times as long.
    _signal: Any = importlib.import_module("_signal")
except ImportError:
    _signal = signal
_get_handler, _set_handler = _signal.getsignal, _signal.signal
_NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF")
_NUMBERS = tuple(int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name))
_AT_ONCE = {getattr(signal, name) for name in ("SIGKILL", "SIGSTOP", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT") if hasattr(signal, name)}
_ident = threading.get_ident

came: list[tuple[int, FrameType | None]] = []
"""Signals that wait. Loops look whether there are any."""
PATIENCE = 1.0
_since = 0.0  # when the first of them came
_listeners: list[Callable[[], Any]] = []
_handlers: dict[int, Any] = {}
"""What the signals were for before the outermost block; empty outside of one."""
_main = threading.main_thread().ident or 0


def _after_fork() -> None:
    """In the child: signals that came to the parent are none of its own, and what the parent's main thread was in the middle of does not go on here."""
    global _main
    came.clear()
    if _ident() != _main:
        _main = _ident()
        _listeners.clear()
        _open()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _note(number: int, frame: FrameType | None) -> None:
    global _since
    now = time.monotonic()
    if came and now - _since > PATIENCE:
        came.clear()
        _handlers[number](number, frame)
        return
    if not came:
        _since = now
    came.append((number, frame))
    for listener in _listeners:
        listener()


def _keep(number: int, frame: FrameType | None) -> None:
    came.append((number, frame))


class Uninterrupted:
    """Around what must not end halfway: signals take effect when the block is left, or at `deliver` inside of it. `listener` is called, in the main
    thread, when one comes."""

    __slots__ = ("_is_outermost", "_listener")
    _numbers = _NUMBERS
    _handler: Callable[[int, FrameType | None], None] = staticmethod(_note)

    def __init__(self, listener: Callable[[], Any] | None = None) -> None:
        self._is_outermost = False
        self._listener = listener

    def __enter__(self) -> None:
        if _ident() != _main:
            self._listener = None
            return  # Python interrupts only the main thread
        if not _handlers:
            self._is_outermost = True
            _shut(self._numbers, self._handler)
        if self._listener is not None:
            _listeners.append(self._listener)

    def __exit__(self, *error: object) -> None:
        if self._listener is not None:
            _listeners.remove(self._listener)
        if self._is_outermost:
            kept = _handlers.copy()
            _open()
            if came:
                _deliver(kept)


def _shut(numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> None:
    """From now on these signals are noted."""
    try:
        for number in numbers:
            before = _get_handler(number)
            if before is not None and before.__class__ is not int and callable(before):
                _handlers[number] = before
                _set_handler(number, handler)
    except BaseException:
        _open()
        raise


def _open() -> None:
    """Signals are what they were, whatever their handlers raise meanwhile."""
    try:
        while _handlers:
            number, before = next(iter(_handlers.items()))
            found = _set_handler(number, before)
            del _handlers[number]
            if found is not _note and found is not _keep and found is not None:
                _set_handler(number, found)  # something inside wants it otherwise from now on
    finally:
        if _handlers:
            _open()


def deliver() -> None:
    """Signals take effect now, if any came and this is the main thread. Only where an error may be raised."""
    if came and _ident() == _main:
        _deliver(_handlers)


def _deliver(handlers: dict[int, Any]) -> None:
    waiting = dict(reversed(came))  # each of them once, the first time it came
    came.clear()
    for number in sorted(waiting, key=_NUMBERS.index):
        handler = handlers.get(number)
        if handler is not None:
            handler(number, waiting[number])


class Postponed(Uninterrupted):
    """Around a fork, from a hook before it to one behind it. In hooks Python ignores errors, and a handler that forks itself would wait for ever for what hooks
    of others have taken; so signals, of any kind and however often they come, take effect some time after the block, as if they had come then."""

    __slots__ = ()
    _numbers = tuple(map(int, signal.valid_signals() - _AT_ONCE))
    _handler = staticmethod(_keep)

    def __exit__(self, *error: object) -> None:
        numbers: list[int] = []
        if self._is_outermost:
            numbers = list(dict(came))
            came.clear()
        super().__exit__(*error)
        if numbers:
            # The last thing that happens here, and in C: a thread that begins, as `Timer.start` waits for, may send the signals before the hook is over.
            _thread.start_new_thread(_send, (numbers,))


LATER = 0.05
"""Seconds: by then the hooks of others, as far as they are written in Python, are over."""


def _send(numbers: list[int]) -> None:
    time.sleep(LATER)
    for number in numbers:
        signal.pthread_kill(_main, number)


class Interruptible:
    """Inside of an uninterrupted block, around code of the user's: there signals are what they always are."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[int, Any] = {}

    def __enter__(self) -> None:
        if _handlers and _ident() == _main:
            deliver()
            self._kept = _handlers.copy()
            _open()

    def __exit__(self, *error: object) -> None:
        for number, before in self._kept.items():
            if _get_handler(number) is before:
                _handlers[number] = before
                _set_handler(number, _note)


def is_from_handler(error: BaseException) -> bool:
    """Whether a signal's handler raised the error: it belongs to whoever installed the handler, not to the kernel that was running."""
    codes = {_code(handler) for handler in (*_handlers.values(), *map(_get_handler, _NUMBERS))} - {None}
    place = error.__traceback__
    while place is not None:
        if place.tb_frame.f_code in codes:
            return True
        place = place.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    function = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__"):
        function = vars(type(handler)).get("__call__")
    return getattr(function, "__code__", None)
