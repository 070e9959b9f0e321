"""Work beside the steps that is Python itself: writing code, tracing programs.

A thread that computes in Python gives the interpreter's lock away only every 5 ms, so that a step of 100 us whose kernels let go of the lock
would wait 5 ms for each. While such work is under way (`beside`), turns are short.

They are also shorter than most steps: who waits for the lock asks for it only when it has not been let go of for a turn's length. A step that lets go once every 190 us, for a moment in
which nobody else wakes up in time, would never be asked with turns of 200 us, and the work beside it came to 7 % of a core.

Even so steps and such work have half of the time each while both want it. Work of many seconds that steps can wait for, as code for 100,000 nodes is, rests most of the time
(`resting`), unless it finds the interpreter free.

A step that lets go of the lock every few microseconds takes it back before anybody else has woken up, and who waits is never heard: the import of JAX took 17 s beside a loop of small
products instead of half a second. So steps leave the interpreter alone for a part of the time that they took (`make_way`), while somebody is `hungry`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from threading import get_ident
from time import perf_counter, sleep, thread_time
from typing import Any

from penstock.graph.quiet_gc import collect_young

SHORT = 0.00005
WORK, REST = 0.004, 9
"""Such work rests after so many seconds in which others wanted to go on too, for so many times as long as it worked itself."""
PART, SLICE = 3, 1_500_000
"""Steps stand aside for the third part of the time that they took, once that is so many nanoseconds, ..."""
LONGEST = 10_000_000
"""... but for no longer than this."""
SOON = 0.0005
"""Of work that steps make way for: after so many seconds it may be over."""
_lock = threading.Lock()
_active = 0
hungry = 0
"""Threads at such work that neither rest nor wait for somebody else."""
_owed = 0
_way = threading.Event()
"""Set while steps make way."""
_before = 0.0
_workers: list[int] = []  # the threads that are at it
count = 0
"""How often such work has begun."""


@contextlib.contextmanager
def beside() -> Iterator[None]:
    """Around work on a thread of its own that steps should not wait for."""
    global _active, _before, count, hungry
    with _lock:
        _active += 1
        hungry += 1
        _workers.append(get_ident())
        count += 1
        if _active == 1:
            _before = sys.getswitchinterval()
            if _before > SHORT:
                sys.setswitchinterval(SHORT)
    try:
        yield
    finally:
        with _lock:
            if get_ident() in _workers:  # not in a child that was forked in here
                _workers.remove(get_ident())
                _active -= 1
                hungry -= 1
                if not _active and _before > SHORT:
                    sys.setswitchinterval(_before)


def expect(count: int) -> None:
    """So many more threads (or fewer) are about to begin such work: one that has only just been woken up would not be heard either."""
    global hungry
    with _lock:
        hungry += count


@contextlib.contextmanager
def away() -> Iterator[None]:
    """Around what such work waits for without needing the interpreter."""
    global hungry
    is_mine = get_ident() in _workers
    with _lock:
        hungry -= is_mine
    try:
        yield
    finally:
        with _lock:
            hungry += is_mine and get_ident() in _workers  # not in a child that was forked in here


def make_way(ns: int) -> None:
    """After a step of so many nanoseconds, while somebody is hungry."""
    global _owed
    _owed += ns  # of several clients, one or the other may be forgotten
    if _owed >= SLICE:
        pause, _owed = min(_owed // PART, LONGEST), 0
        _way.set()
        try:
            sleep(pause / 1e9)
        finally:
            _way.clear()


class _Pace:
    """How a thread's work goes. `now` and `used`: when it last rested, on the clock and in its own time; `due`: when to look again; `waits`: whether its rest ends as soon as a step
    makes way."""

    __slots__ = ("due", "now", "rest", "used", "waits")

    def __init__(self, rest: int, waits: bool) -> None:
        self.rest, self.waits = rest, waits
        self.now, self.used = perf_counter(), thread_time()
        self.due = self.now + WORK

    def look(self, now: float) -> None:
        if self.waits and _way.is_set():
            return
        used = thread_time()
        worked = used - self.used
        if worked < 0.7 * (now - self.now):
            pause = min(1.0, self.rest * worked)
            if self.waits:
                _way.wait(pause)
            else:
                with away():
                    sleep(pause)
            collect_young()  # collections may be switched off for as long as the work takes
            now = perf_counter()
        self.now, self.used = now, used
        self.due = now + (SOON if self.waits else WORK)


_paces: dict[int, _Pace] = {}
"""Of threads that rest; a thread's own place is nobody else's."""


@contextlib.contextmanager
def resting(waits: bool = False) -> Iterator[None]:
    """Around work beside steps that takes long and calls `breathe` often; with `waits`, as much of it as possible is done while steps make way for it."""
    _paces[get_ident()] = _Pace(REST, waits)
    try:
        yield
    finally:
        _paces.pop(get_ident(), None)


def breathe() -> None:
    """Called after every bit of work: rests if it is time to."""
    if _paces:
        pace = _paces.get(get_ident())
        if pace is not None:
            now = perf_counter()
            if now >= pace.due:
                pace.look(now)


class _Breath:
    """Among the finders of modules: who imports a large package rests between its modules."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        breathe()


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Around an import that may take long: within `beside`, it rests between modules."""
    if get_ident() not in _workers:
        yield
        return
    finder: Any = _Breath()
    sys.meta_path.insert(0, finder)
    try:
        with resting(waits=True):
            yield
    finally:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(finder)


def is_idle() -> bool:
    """Whether no such work is under way."""
    return _active == 0


def _after_fork() -> None:
    """The threads that were at work are not here."""
    global _lock, _active, _way, hungry
    _lock = threading.Lock()
    _way = threading.Event()
    _paces.clear()
    _workers.clear()
    if _active and _before > SHORT:
        sys.setswitchinterval(_before)
    _active = hungry = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
