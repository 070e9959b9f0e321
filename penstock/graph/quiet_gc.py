"""Pauses the cyclic garbage collector while many long-lived nodes are made.

Nodes and tensors refer to each other, so every one of them counts as a candidate; collecting while thousands are being made only walks over them
again and again. Reference counting goes on as always.
"""

from __future__ import annotations

import gc
import os
import threading

from penstock.forks import renewed

_lock = renewed(threading.Lock())
_depth = 0
_was_enabled = False
MANY = 50_000
"""New objects at the end of a pause that are not looked at at once: whoever makes the next one would wait for that, a step for a third of a second after JAX has been imported."""


def settle() -> None:
    """Counts everything that is alive now as old, without looking at it: the next quick collections leave it alone."""
    if hasattr(gc, "freeze") and not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()  # to the oldest generation: full collections do look at it


class paused:
    """`with paused():` no cyclic collection inside. May be nested, and used by several threads at once."""

    def __enter__(self) -> None:
        global _depth, _was_enabled
        with _lock:
            if _depth == 0:
                _was_enabled = gc.isenabled()
                gc.disable()
            _depth += 1

    def __exit__(self, *exc_info: object) -> None:
        global _depth
        with _lock:
            _depth = max(0, _depth - 1)  # 0 already where the thread forked inside
            if _depth == 0 and _was_enabled:
                if gc.get_count()[0] > MANY:
                    settle()
                gc.enable()


def collect_young() -> None:
    """In a long pause, from time to time: what others have thrown away meanwhile, and what was made since is looked at once and counts as old."""
    if _depth and _was_enabled:
        gc.collect(0)


def _after_fork() -> None:
    """Nobody else is at it here."""
    global _depth
    if _depth and _was_enabled:
        gc.enable()
    _depth = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
