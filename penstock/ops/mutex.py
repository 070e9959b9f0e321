"""Mutexes between ops: MutexLock waits, without holding a thread, until the lock is free, and hands out the lock itself."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.errors import CancelledError, InvalidArgumentError
from penstock.forks import renewed
from penstock.graph.ir import Operation
from penstock.ops.declare import no_outputs, op, scalar
from penstock.ops.resources import ResourceHandle, carried
from penstock.ops.state import resource_key


class Mutex:
    """First come, first served. `waiting` holds the callbacks of those who want the lock next."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.held = False
        self.waiting: deque[_Waiter] = deque()
        self.guard = renewed(threading.Lock())

    def acquire(self, waiter: _Waiter) -> None:
        with self.guard:
            if self.held:
                self.waiting.append(waiter)
                return
            self.held = True
        waiter.grant(self)

    def release(self) -> None:
        while True:
            with self.guard:
                if not self.waiting:
                    self.held = False
                    return
                waiter = self.waiting.popleft()
            if waiter.grant(self):
                return


class _Waiter:
    """One MutexLock that waits; it is answered once, by the mutex or by a cancellation."""

    def __init__(self, done: Callable[..., Any]) -> None:
        self._done: Callable[..., Any] | None = done
        self._guard = threading.Lock()
        self.forget: Callable[[], Any] = lambda: None

    def _take(self) -> Callable[..., Any] | None:
        with self._guard:
            done, self._done = self._done, None
        return done

    def grant(self, mutex: Mutex) -> bool:
        done = self._take()
        if done is None:
            return False
        self.forget()
        done(MutexHold(mutex))
        return True

    def cancel(self) -> None:
        done = self._take()
        if done is not None:
            done(None, CancelledError("Lock acquisition cancelled."))


class MutexHold:
    """The lock, held. Letting go of the last reference frees it too, so that a failed step blocks nobody."""

    def __init__(self, mutex: Mutex) -> None:
        self._mutex: Mutex | None = mutex

    def release(self) -> None:
        mutex, self._mutex = self._mutex, None
        if mutex is not None:
            mutex.release()

    def __del__(self) -> None:
        self.release()


def mutex_kernel(ctx: Any, *, container: bytes, shared_name: bytes, node: Operation) -> ResourceHandle:
    where, name = resource_key(container, shared_name, node)
    ctx.resources.lookup_or_create(where, name, Mutex, lambda: Mutex(name))
    return ResourceHandle(ctx.device.name, where, name, "Mutex")


def lock_kernel(ctx: Any, done: Callable[..., Any], handle: ResourceHandle) -> None:
    carried(handle, Mutex)
    mutex = ctx.resources.lookup(handle.container, handle.name, Mutex)
    waiter = _Waiter(done)
    token = ctx.cancellation.register(waiter.cancel)
    if token is None:
        waiter.cancel()
        return
    waiter.forget = lambda: ctx.cancellation.deregister(token)
    mutex.acquire(waiter)


def consume_kernel(lock: MutexHold) -> None:
    if not isinstance(lock, MutexHold):
        raise InvalidArgumentError("Expected input to be a mutex lock.")
    lock.release()


op(
    "MutexV2() -> (resource: resource) [container: string = ''; shared_name: string = ''] stateful",
    shape=scalar,
    numpy=mutex_kernel,
)
op("MutexLock(mutex: resource) -> (mutex_lock: variant) stateful", shape=scalar, async_kernel=lock_kernel)
op("ConsumeMutexLock(mutex_lock: variant) -> () stateful", shape=no_outputs, numpy=consume_kernel)
