"""Variables whose values compiled programs hold between their steps.

A program on this CPU keeps a variable's value as an array of its own, which it updates in place (`HeldRef`). To take a training step's variables one by
one (lock, look whether somebody else sees the value, make the variable empty, put the new value, unlock) costs more than the rest of what
Python does for the step. So a program keeps all new values in a `Bundle`, and the variables only say in which. Whoever else writes one of them, or reads a large one,
unties the bundle first: every variable gets its value back, and the next step takes them one by one again. Who reads a small one gets a copy (a target network that takes over the
weights every few steps cost more than XLA gained). Nobody can see an array in a bundle, so that it may always be written over.

Locks: what a variable holds changes under its own lock, but for a bundle that gives values back: that happens under the bundle's. A bundle's lock comes
last: a step on a bundle holds that one alone, whoever unties may hold locks of variables, and to tie, the locks of all its variables are held. A reader
may be halfway through `value` while the variable's class changes, so both classes look again, with the lock, at whatever they find.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.forks import renew
from penstock.ops.interrupts import Postponed
from penstock.ops.resources import Ref, variables

_RAW: Any = Ref.__dict__["value"]
raw_value: Callable[[Ref], Any] = _RAW.__get__
"""What the variable holds, in whatever form."""
put_raw: Callable[[Ref, Any], None] = _RAW.__set__
"""Makes something the variable's value, in whatever form. Call with the lock held; see `hold`."""


SMALL = 1 << 16
"""Bytes that are copied sooner than a bundle is untied and tied again."""


class HeldRef(Ref):
    """A variable whose value a compiled program on this CPU holds. Whoever asks for the value gets it as NumPy's, without a copy, and from then on it is a plain
    variable again; unless it is a small one of a bundle, and not asked for by a writer, who has the lock."""

    __slots__ = ()
    _for_others = staticmethod(np.asarray)

    @property
    def value(self) -> Any:
        raw = raw_value(self)
        if raw is None or raw.__class__ is np.ndarray:
            return raw
        if raw.__class__ is Bundle and self.__class__ is HeldRef and not self.lock._is_owned():  # type: ignore[attr-defined]
            copy = raw.copy_of(self)
            if copy is not None:
                return copy
        with self.lock:
            if not isinstance(self, HeldRef):  # somebody else was quicker
                return self.value
            raw = untied(self)
            if raw is not None and raw.__class__ is not np.ndarray:
                raw = self._for_others(raw)
            put_raw(self, raw)
            self.__class__ = Ref  # type: ignore[assignment]
            return raw

    @value.setter
    def value(self, new: Any) -> None:
        untied(self)
        put_raw(self, new)
        self.__class__ = Ref  # type: ignore[assignment]


class DeviceHeldRef(HeldRef):
    """A variable whose value a program on an accelerator holds. Whoever asks gets the device's array."""

    __slots__ = ()
    _for_others = staticmethod(lambda raw: raw)


def hold(ref: Ref, value: Any) -> None:
    """Makes an array of a compiled program the variable's value. Call with the lock held."""
    ref.__class__ = HeldRef
    put_raw(ref, value)


class Bundle:
    """The values of `refs`, in the same order or as `split` finds them, or None where the variables have them. `kind` is the variables' class
    meanwhile."""

    __slots__ = ("__weakref__", "kind", "lock", "refs", "split", "values")

    def __init__(self, refs: Sequence[Ref], kind: type[HeldRef], split: Callable[[Sequence[Any]], Sequence[Any]] | None = None) -> None:
        self.refs = refs
        self.kind = kind
        self.split = split
        self.lock = threading.RLock()
        self.values: Sequence[Any] | None = None
        _bundles.add(self)

    def tie(self, values: Sequence[Any]) -> None:
        """Takes the values in. Call with the locks of all the variables held, and the variables empty."""
        with self.lock:
            self.values = values
            for ref in self.refs:
                ref.__class__ = self.kind
                put_raw(ref, self)

    def copy_of(self, ref: Ref) -> np.ndarray | None:
        """A variable's value, if it is here and small."""
        with self.lock:
            if self.values is None or self.split is not None:
                return None
            value = np.asarray(self.values[self.refs.index(ref)])
            return value.copy() if value.nbytes <= SMALL else None

    def untie(self) -> None:
        """The variables have their values again."""
        with self.lock:
            values = self.values
            if values is not None:
                if self.split is not None:
                    values = self.split(values)
                self.values = None
                for ref, value in zip(self.refs, values):
                    put_raw(ref, value)


def untied(ref: Ref) -> Any:
    """What the variable itself holds (see `raw_value`), out of its bundle if need be."""
    held = raw_value(ref)
    while held.__class__ is Bundle:
        held.untie()
        held = raw_value(ref)
    return held


# -- forks ------------------------------------------------------------------------------------------------------------

PATIENCE = 5.0
"""Seconds that a fork waits at most for those who write variables."""
_bundles: weakref.WeakSet[Bundle] = weakref.WeakSet()
_forking = threading.RLock()
_forks: list[_Fork] = []
"""Of the thread that forks. There are several if a signal's handler forks in the middle of it."""


class _Fork:
    """What a fork has taken: from before it until it is over."""

    __slots__ = ("missed", "shut", "without_signals")

    def __init__(self) -> None:
        self.shut: list[Any] = []
        self.missed: list[Any] = []  # locks that it could not get
        self.without_signals = Postponed()


def _before_fork() -> None:
    """Who writes variables ends first: in the child nobody would, and the values that they have taken would be lost. Who writes for very long is not waited
    for: the child has the variable without a value."""
    fork = _Fork()
    fork.without_signals.__enter__()
    _forking.acquire()  # of two at once, each would wait for the other
    _forks.append(fork)
    if len(_forks) > 1:
        return  # a handler's, between other hooks: it need not wait for more than the one that it came in the middle of
    end = time.monotonic() + PATIENCE
    refs = sorted(filter(None, (reference() for reference in variables.valuerefs())), key=id)  # the order of all who take several
    for lock in (*(ref.lock for ref in refs), *(bundle.lock for bundle in list(_bundles))):
        (fork.shut if lock.acquire(timeout=max(0.0, end - time.monotonic())) else fork.missed).append(lock)


def _after_fork() -> None:
    fork = _forks.pop()
    while fork.shut:
        fork.shut.pop().release()
    _forking.release()
    fork.without_signals.__exit__()


def _after_fork_in_child() -> None:
    for lock in _forks[-1].missed:
        renew(lock)
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
