"""Ctrl-C while variables are being updated: a value that is taken out of its variable, to be written into, must come back."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Uninterrupted:
    """Around what must not end halfway: Ctrl-C takes effect when the block is left. Python interrupts only the main thread."""

    __slots__ = ("_before", "_came")

    def __init__(self) -> None:
        self._before: Any = None
        self._came: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):
                self._before = before
                signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = (number, frame)

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            if self._came is not None:
                self._before(*self._came)
