"""Locks in forked children: who held one of them in the parent is not there to open it."""

from __future__ import annotations

import os
import weakref
from typing import Any, TypeVar

Lock = TypeVar("Lock")

_locks: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def renewed(lock: Lock) -> Lock:
    """The lock, which is open in forked children. For what lives longer than a step: other steps of the parent are none of a child's."""
    _locks[id(lock)] = lock
    return lock


def renew(lock: Any) -> None:
    """Opens the lock, in the child, unless the thread that forked holds it, which goes on to do so."""
    is_mine = getattr(lock, "_is_owned", None)  # only an RLock knows
    if is_mine is None or not is_mine():
        lock._at_fork_reinit()


def _after_fork() -> None:
    for reference in _locks.valuerefs():
        lock = reference()
        if lock is not None:
            renew(lock)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
