"""Trials of two forms of a part of a step: a form's time ends with the step.

A form that is quick itself may cost the rest of the step more than it gains: its results lie in the caches of another core, its threads wait for
work on the cores of those who have some. So who begins a trial only notes it (`begin`), and who runs the step says when it is over (`settle`).
One part at a time is on trial: what two of them do to a step cannot be told apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Trial(NamedTuple):
    """`record(ns)` gets the time from `start` to the end of the step. `owner` and `form` are the business of who began it."""

    owner: Any
    form: Any
    start: int
    record: Callable[[int], None]


class _Open(threading.local):
    def __init__(self) -> None:
        self.trials: list[Trial] = []


_open = _Open()


def opened() -> list[Trial]:
    """The trials of the steps that this thread is in the midst of."""
    return _open.trials


def begin(owner: Any, form: Any, record: Callable[[int], None]) -> None:
    _open.trials.append(Trial(owner, form, time.perf_counter_ns(), record))


def settle(trials: list[Trial], first: int, was_whole: bool) -> None:
    """A step is over that began when there were `first` trials; if it has failed, it says nothing about how long it takes."""
    now = time.perf_counter_ns()
    ended = trials[first:]
    del trials[first:]
    if was_whole:
        for trial in ended:
            trial.record(now - trial.start)
