"""The rendezvous: where a value sent from one partition meets the Recv that waits for it.

State of a LocalRendezvous
    _table    key -> deque of values that nobody has asked for yet, or of receivers that wait; never a mix
    _error    why it was aborted, or None

Values of one key arrive in the order in which they were sent. Callbacks run outside of the lock, in the thread of whoever
completes the meeting. Keys are TF's (`penstock.names.make_key`).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock import errors
from penstock.runtime.cancellation import CancellationManager

Done = Callable[[Any, Any, bool], None]
"""`done(error, value, is_dead)`: error is None if all went well."""


class Rendezvous(ABC):
    """What Send and Recv need of a step."""

    @abstractmethod
    def send(self, key: str, value: Any, is_dead: bool = False) -> None:
        """Hands a value over. Never waits. Raises the abort's error after an abort."""

    @abstractmethod
    def recv_async(self, key: str, done: Done, cancellation: CancellationManager | None = None) -> None:
        """Calls `done(error, value, is_dead)` exactly once: when a value for `key` is there, at once if it is already; or
        with an error after an abort, or when `cancellation` is cancelled while waiting."""

    @abstractmethod
    def abort(self, error: errors.OpError) -> None:
        """Fails all waiting and all later calls with `error`. Only the first abort counts."""

    def recv(self, key: str, timeout: float | None = None) -> tuple[Any, bool]:
        """(value, is_dead), waiting for it; DeadlineExceededError after `timeout` seconds."""
        arrived = threading.Event()
        result: list[Any] = []
        cancellation = CancellationManager()

        def done(error: Any, value: Any, is_dead: bool) -> None:
            result[:] = [error, value, is_dead]
            arrived.set()

        self.recv_async(key, done, cancellation)
        if not arrived.wait(timeout):
            cancellation.start_cancel(errors.DeadlineExceededError(f"Timed out waiting for {key}"))
            arrived.wait()
        error, value, is_dead = result
        if error is not None:
            raise error
        return value, is_dead


class _Waiter:
    __slots__ = ("cancellation", "done", "token")

    def __init__(self, done: Done) -> None:
        self.done: Done = done
        self.cancellation: CancellationManager | None = None
        self.token: int | None = None

    def complete(self, error: Any, value: Any, is_dead: bool) -> None:
        if self.cancellation is not None:
            self.cancellation.try_deregister(self.token)
        self.done(error, value, is_dead)


class LocalRendezvous(Rendezvous):
    """A rendezvous within this process."""

    __slots__ = ("_error", "_lock", "_table")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table: dict[str, deque] = {}
        self._error: errors.OpError | None = None

    def send(self, key: str, value: Any, is_dead: bool = False) -> None:
        with self._lock:
            if self._error is not None:
                raise self._error
            queue = self._table.get(key)
            if queue is None:
                self._table[key] = deque([(value, is_dead)])
                return
            waiter = queue[0]
            if waiter.__class__ is not _Waiter:
                queue.append((value, is_dead))
                return
            queue.popleft()
            if not queue:
                del self._table[key]
        waiter.complete(None, value, is_dead)

    def recv_async(self, key: str, done: Done, cancellation: CancellationManager | None = None) -> None:
        error = value = None
        is_dead = False
        with self._lock:
            queue = self._table.get(key)
            if self._error is not None:
                error = self._error
            elif queue is not None and queue[0].__class__ is not _Waiter:
                value, is_dead = queue.popleft()
                if not queue:
                    del self._table[key]
            else:
                waiter = _Waiter(done)
                if cancellation is not None:
                    waiter.cancellation = cancellation
                    waiter.token = cancellation.register(lambda: self._cancel(key, waiter, cancellation))
                    if waiter.token is None:
                        error = _cancelled(cancellation)
                if error is None:
                    if queue is None:
                        self._table[key] = deque([waiter])
                    else:
                        queue.append(waiter)
                    return
        done(error, value, is_dead)

    def abort(self, error: errors.OpError) -> None:
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            table, self._table = self._table, {}
        for queue in table.values():
            for waiter in queue:
                if waiter.__class__ is _Waiter:
                    waiter.complete(error, None, False)

    def _cancel(self, key: str, waiter: _Waiter, cancellation: CancellationManager) -> None:
        with self._lock:
            queue = self._table.get(key)
            if queue is None or waiter not in queue:
                return  # it got its value, or the abort's error
            queue.remove(waiter)
            if not queue:
                del self._table[key]
        waiter.done(_cancelled(cancellation), None, False)

    def open_keys(self) -> int:
        """How many keys have something left: values not asked for, or receivers that wait."""
        return len(self._table)


def _cancelled(cancellation: CancellationManager) -> errors.OpError:
    return cancellation.reason or errors.CancelledError("RecvAsync is cancelled.")
