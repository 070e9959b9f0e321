"""How long a step takes: packages loaded by name, warm-up until nothing more is compiled, rounds of calls, ratios of rounds."""

from __future__ import annotations

import gc
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

Step = Callable[[], Any]

BATCH = 1e-3
"""Calls are timed in batches of at least this many seconds, so that reading the clock costs nothing."""


def load(name: str) -> Any:
    """The package under test: penstock, or TensorFlow's compat.v1 with TF2 behaviour off."""
    if name == "penstock":
        import penstock

        return penstock
    tf = importlib.import_module("tensorflow")
    tf.compat.v1.disable_v2_behavior()
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    return tf.compat.v1


def calls(step: Step, seconds: float, least: int = 3) -> list[float]:
    """Seconds a call, for each of the batches that fit into `seconds` (at least `least` of them)."""
    clock = time.perf_counter
    start = clock()
    step()
    one = clock() - start
    size = max(1, min(10_000, int(BATCH / max(one, 1e-9)) + 1)) if one < BATCH else 1
    times: list[float] = [one] if size == 1 else []
    end = start + seconds
    while True:
        begin = clock()
        for _ in range(size):
            step()
        now = clock()
        times.append((now - begin) / size)
        if now > end and len(times) >= least:
            return times


def round_of(step: Step, seconds: float) -> float:
    """Seconds a call: the median of a round's batches. What was garbage before is gone, and what lives is not looked at again:
    a collection within the round costs what the round's own objects cost."""
    gc.collect()
    gc.freeze()
    try:
        return statistics.median(calls(step, seconds))
    finally:
        gc.unfreeze()


def settle(package: Any, step: Step, seconds: float = 1.0, limit: float = 20.0) -> float:
    """Runs steps until a step costs what it will cost from now on; returns how long that took.

    At least `seconds`; then until the last windows were not faster than those before them, and two of them have passed in which Penstock neither compiled
    anything nor used what it may compile yet: between two jobs of the compiler there are steps in which it has nothing to do. `limit` ends it in any case."""
    start = time.perf_counter()
    best, stale, quiet = float("inf"), 0, 0
    before = preparations(package)
    while True:
        window = statistics.median(calls(step, seconds / 4, least=2))
        is_better = window < 0.97 * best
        best, stale = min(best, window), 0 if is_better else stale + 1
        now = preparations(package)
        quiet, before = 0 if compiling(package) or now != before else quiet + 1, now
        spent = time.perf_counter() - start
        if spent > limit or (spent >= seconds and stale >= 2 and quiet >= 2):
            return spent


def compiling(package: Any) -> bool:
    """Whether Penstock still writes or compiles code in the background."""
    if getattr(package, "__name__", "") != "penstock":
        return False
    found = (sys.modules.get(name) for name in ("penstock.engines.xla.backend", "penstock.engines.turns"))
    return any(module is not None and not module.is_idle() for module in found)


def preparations(package: Any) -> tuple[int, ...]:
    """Numbers that grow while Penstock finds more to write or to compile: jobs begun, and time in programs that may get hot."""
    if getattr(package, "__name__", "") != "penstock":
        return ()
    turns, compiled = (sys.modules.get(name) for name in ("penstock.engines.turns", "penstock.runtime.executor.compiled"))
    return getattr(turns, "count", 0), compiled.watched_ns() if compiled is not None else 0


# -- what rounds say ----------------------------------------------------------------------------------------------------


def median(times: list[float]) -> float:
    return statistics.median(times)


def ratio(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """Their time over ours: of the medians, and the smallest and largest of the single rounds."""
    rounds = sorted(t / o for o, t in zip(ours, theirs))
    return median(theirs) / median(ours), rounds[0], rounds[-1]


def show(seconds: float | None) -> str:
    """Three digits and a unit."""
    if seconds is None:
        return "-"
    for unit, scale in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
        value = seconds * scale
        if value < 999.5:
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    return f"{seconds:.{2 if seconds < 9.995 else 1}f} s"
