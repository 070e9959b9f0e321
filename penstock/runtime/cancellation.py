"""Cancelling steps: a tree of cancellation managers, and deadlines.

State of a CancellationManager
    _callbacks    token -> callback, in order of registration; None once cancelling has begun
    _children     managers that are cancelled with this one
    _runner       id of the thread that runs the callbacks, while it does
    _finished     set when all callbacks have returned
    is_cancelled  True from the moment that cancelling has begun; loops look at it in every round
    reason        the error given to `start_cancel`, or None

A callback runs at most once, outside of all locks, in the thread that cancels. Whoever deregisters a callback while it may be
running waits for it (unless it is the callback's own thread), so that what the callback uses can be dropped afterwards.
"""

from __future__ import annotations

import heapq
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock import errors
from penstock.forks import renewed

_tokens = itertools.count(1)


class CancellationManager:
    """Tells everything that registered with it, and its children, to stop."""

    __slots__ = ("_callbacks", "_children", "_finished", "_lock", "_parent", "_runner", "is_cancelled", "reason")

    def __init__(self, parent: CancellationManager | None = None) -> None:
        self._lock = threading.Lock() if parent is not None else renewed(threading.Lock())  # steps have a parent
        self.is_cancelled = False
        self._callbacks: dict[int, Callable[[], Any]] | None = {}
        self._children: dict[CancellationManager, None] | None = None
        self._finished: threading.Event | None = None
        self._runner: int | None = None
        self._parent = parent
        self.reason: errors.OpError | None = None
        if parent is not None and not parent._adopt(self):
            self.start_cancel(parent.reason)

    def register(self, callback: Callable[[], Any]) -> int | None:
        """Asks for `callback()` on cancellation. The token for `deregister`, or None if cancelling has begun already: then
        the callback will not be called, and the caller must stop by itself."""
        with self._lock:
            if self._callbacks is None:
                return None
            token = next(_tokens)
            self._callbacks[token] = callback
            return token

    def deregister(self, token: int | None) -> bool:
        """Takes a callback back. True: it has not run and never will. False: cancelling has begun; the callback has
        returned by now, unless this is called from a callback itself."""
        callbacks = self._callbacks
        if callbacks is not None:
            with self._lock:
                if self._callbacks is not None:
                    return token is not None and self._callbacks.pop(token, None) is not None
        finished = self._finished
        if finished is not None and self._runner != threading.get_ident():
            finished.wait()
        return False

    def try_deregister(self, token: int | None) -> bool:
        """As `deregister`, but never waits: False says only that the callback has run, is running or will run."""
        with self._lock:
            return self._callbacks is not None and token is not None and self._callbacks.pop(token, None) is not None

    def start_cancel(self, reason: errors.OpError | None = None) -> None:
        """Cancels this manager and all below it: each callback runs once, parents' before children's, and all have
        returned when this returns. Only the first call does anything."""
        # A list rather than recursion: a chain of function calls may be thousands of managers long.
        todo: list[CancellationManager] = [self]
        first_error: BaseException | None = None
        while todo:
            manager = todo.pop()
            with manager._lock:
                callbacks, manager._callbacks = manager._callbacks, None
                if callbacks is None:
                    continue
                children, manager._children = manager._children, None
                manager.reason = reason
                manager.is_cancelled = True
                manager._runner = threading.get_ident()
                finished = manager._finished = threading.Event()
            try:
                for callback in callbacks.values():
                    try:
                        callback()
                    except BaseException as error:  # the others must still be told
                        first_error = first_error or error
            finally:
                manager._runner = None
                finished.set()
            todo.extend(children or ())
        if first_error is not None:
            raise first_error

    def detach(self) -> None:
        """Leaves the parent: a step that is over need not hear of its session's end."""
        parent, self._parent = self._parent, None
        if parent is not None:
            with parent._lock:
                if parent._children is not None:
                    parent._children.pop(self, None)

    def _adopt(self, child: CancellationManager) -> bool:
        with self._lock:
            if self._callbacks is None:
                return False
            if self._children is None:
                self._children = {}
            self._children[child] = None
            return True


# ---------------------------------------------------------------------------------------------------------------------
# Deadlines


class Deadline:
    """A callback that runs at a given time unless cancelled before."""

    __slots__ = ("_callback", "when")

    def __init__(self, when: float, callback: Callable[[], Any]) -> None:
        self.when = when
        self._callback: Callable[[], Any] | None = callback

    def cancel(self) -> None:
        if self._callback is not None:
            self._callback = None
            _clock.cancelled += 1

    def _fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            try:
                callback()
            except Exception as error:  # the clock must go on for the others
                sys.excepthook(type(error), error, error.__traceback__)


class _Clock:
    """One daemon thread that fires deadlines in order. It starts with the first deadline and ends when none is left for a
    while; a forked child starts with an empty clock."""

    IDLE_SECONDS = 2.0

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._condition = threading.Condition()
        self._heap: list[tuple[float, int, Deadline]] = []
        self._running = False
        self.cancelled = 0  # about how many entries of the heap are void

    def add(self, deadline: Deadline) -> None:
        with self._condition:
            if self.cancelled > 100 and self.cancelled * 2 > len(self._heap):
                # Steps with a long timeout that end early must not pile up until it has passed.
                self._heap = [entry for entry in self._heap if entry[2]._callback is not None]
                heapq.heapify(self._heap)
                self.cancelled = 0
            heapq.heappush(self._heap, (deadline.when, next(_tokens), deadline))
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="penstock-deadlines", daemon=True).start()
            elif self._heap[0][2] is deadline:
                self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                while self._heap and self._heap[0][2]._callback is None:
                    heapq.heappop(self._heap)
                if not self._heap:
                    if not self._condition.wait(self.IDLE_SECONDS) and not self._heap:
                        self._running = False
                        return
                    continue
                wait = self._heap[0][0] - time.monotonic()
                if wait > 0:
                    self._condition.wait(wait)
                    continue
                deadline = heapq.heappop(self._heap)[2]
            deadline._fire()


_clock = _Clock()
os.register_at_fork(after_in_child=_clock.reset)


def at_deadline(seconds: float, callback: Callable[[], Any]) -> Deadline:
    """Calls `callback()` from the clock's thread in `seconds`, unless `cancel()` is called on the result before. The callback
    must be quick and must not raise."""
    deadline = Deadline(time.monotonic() + seconds, callback)
    _clock.add(deadline)
    return deadline
