"""Operations that may have to wait, without a thread each: what queues, barriers, accumulators and staging areas share.

State of a WaitingRoom
    lock     guards everything the subclass keeps
    lines    the lines of waiting Attempts. Those of a line are served first come, first served; in a Crowd, whoever can go first goes.
             The lines are tried in order, again and again until none moves

State of an Attempt
    run      `run(attempt)` with the lock held: STUCK, MOVED (part of it is done; it stays first in its line) or DONE
    undo     called with the lock held if the attempt is given up half-way, or None
    finish   `finish(attempt)` without the lock: makes the result from what `run` gathered, or None: `result` is it
    over     it has left its line; nobody may touch it any more
    data, left, taken     what `run` needs: the values to store, how many are wanted yet, what was gathered

All callbacks (`done`) are made outside of the lock.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock import errors
from penstock.forks import renewed

STUCK, MOVED, DONE = 0, 1, 2


class Attempt:
    """See the module's docstring."""

    __slots__ = ("data", "done", "error", "finish", "left", "manager", "over", "result", "run", "taken", "token", "undo", "what")

    def __init__(self, run: Callable[[Attempt], int], done: Callable[..., Any], what: str, data: Any = None, left: int = 0) -> None:
        self.run = run
        self.done = done
        self.what = what  # "Enqueue", "Dequeue", ...: who was cancelled
        self.data = data
        self.left = left
        self.taken: Any = None
        self.undo: Callable[[Attempt], Any] | None = None
        self.finish: Callable[[Attempt], Any] | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.over = False
        self.manager: Any = None
        self.token: int | None = None


class Crowd(deque):
    """Attempts that wait for different things."""


class WaitingRoom:
    """See the module's docstring."""

    def __init__(self, *lines: deque[Attempt]) -> None:
        self.lock = renewed(threading.Lock())
        self.lines = lines
        _rooms.add(self)

    def submit(self, ctx: Any, attempt: Attempt, line: deque[Attempt]) -> None:
        """Runs `attempt` now if nobody waits before it and it can, else lets it wait in `line`."""
        finished: list[Attempt] = []
        with self.lock:
            while line and line[0].over:
                line.popleft()
            outcome = STUCK if line and line.__class__ is not Crowd else self._try(attempt)
            if outcome == DONE:
                finished.append(attempt)
            else:
                attempt.manager = ctx.cancellation
                # The callback needs the lock, so that it cannot come too early.
                attempt.token = attempt.manager.register(lambda: self._cancel(attempt, line))
                if attempt.token is None:
                    self._give_up(attempt)
                    finished.append(attempt)
                    outcome = MOVED
                else:
                    line.append(attempt)
            if outcome != STUCK:
                self._flush(finished)
        _report(finished)

    def settle(self) -> None:
        """Lets the lines move after the state was changed by somebody without an attempt. Call without the lock."""
        finished: list[Attempt] = []
        with self.lock:
            self._flush(finished)
        _report(finished)

    def give_up_line(self, line: deque[Attempt]) -> list[Attempt]:
        """Ends everyone in `line` as cancelled. Call with the lock; hand the result to `report` without it."""
        finished = [attempt for attempt in line if not attempt.over]
        for attempt in finished:
            self._give_up(attempt)
        line.clear()
        return finished

    def report(self, finished: list[Attempt]) -> None:
        _report(finished)

    # -- with the lock held -----------------------------------------------------------------------------------------------

    def _try(self, attempt: Attempt) -> int:
        try:
            outcome = attempt.run(attempt)
        except Exception as error:
            attempt.error = error
            outcome = DONE
        if outcome == DONE:
            attempt.over = True
        return outcome

    def _flush(self, finished: list[Attempt]) -> None:
        moved = True
        while moved:
            moved = False
            for line in self.lines:
                if line.__class__ is Crowd:
                    moved = self._flush_crowd(line, finished) or moved
                    continue
                while line:
                    attempt = line[0]
                    if not attempt.over:
                        outcome = self._try(attempt)
                        if outcome != DONE:
                            moved = moved or outcome == MOVED
                            break
                        finished.append(attempt)
                        moved = True
                    # What `run` did may have emptied the line.
                    if line and line[0] is attempt:
                        line.popleft()

    def _flush_crowd(self, crowd: deque[Attempt], finished: list[Attempt]) -> bool:
        moved = False
        for _ in range(len(crowd)):
            attempt = crowd.popleft()
            if attempt.over:
                continue
            outcome = self._try(attempt)
            moved = moved or outcome != STUCK
            if outcome == DONE:
                finished.append(attempt)
            else:
                crowd.append(attempt)
        return moved

    def _give_up(self, attempt: Attempt) -> None:
        attempt.over = True
        attempt.error = errors.CancelledError(f"{attempt.what} operation was cancelled")
        if attempt.undo is not None and attempt.taken:
            attempt.undo(attempt)

    # -- cancellation -----------------------------------------------------------------------------------------------------

    def _cancel(self, attempt: Attempt, line: deque[Attempt]) -> None:
        with self.lock:
            if attempt.over:
                return
            line.remove(attempt)  # it may stand behind one that waits for ever
            self._give_up(attempt)
            finished = [attempt]
            self._flush(finished)
        _report(finished)


def _report(finished: list[Attempt]) -> None:
    for attempt in finished:
        if attempt.token is not None:
            attempt.manager.try_deregister(attempt.token)
        if attempt.error is None and attempt.finish is not None:
            try:
                attempt.result = attempt.finish(attempt)
            except Exception as error:
                attempt.error = error
        if attempt.error is None:
            attempt.done(attempt.result)
        else:
            attempt.done(None, attempt.error)


# -- forks ------------------------------------------------------------------------------------------------------------

_rooms: weakref.WeakSet[WaitingRoom] = weakref.WeakSet()


def _after_fork() -> None:
    """Who waited was a thread of the parent's: what comes now is not for it."""
    for room in list(_rooms):
        for line in room.lines:
            room.give_up_line(line)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
