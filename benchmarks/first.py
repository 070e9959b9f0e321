"""The first result of a fresh process: interpreter, import, building, first run; and whether compiling holds up the steps after it.

`python -m benchmarks.first penstock "run of one add"` prints two lines of JSON: one at the first result, one after some more steps.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

from benchmarks.table import OURS, THEIRS
from benchmarks.workers import SETTINGS

NAMES = ("run of one add", "MLP training, batch 128, Adam", "CNN training, batch 32, SGD", "MobileNet v1, frozen, batch 1")
STEPS = 50


@dataclass
class First:
    """Medians of the fresh processes of one workload, by package: total, import, build, run, and the steps after."""

    name: str
    times: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure(name: str, rounds: int = 3, packages: tuple[str, ...] = (OURS, THEIRS), timeout: float = 60.0) -> First:
    """Fresh processes in alternation. The first round only warms the disk's cache, unless it is the only one."""
    result = First(name)
    seen: dict[str, list[dict[str, float]]] = {p: [] for p in packages}
    for _ in range(rounds):
        for package in packages:
            try:
                seen[package].append(_fresh(package, name, timeout))
            except (subprocess.SubprocessError, ValueError, OSError) as error:
                result.notes.append(f"{package}: {type(error).__name__}")
    for package, all_times in seen.items():
        counted = all_times[1:] or all_times
        if counted:
            result.times[package] = {key: statistics.median(t[key] for t in counted) for key in counted[0]}
    return result


def _fresh(package: str, name: str, timeout: float) -> dict[str, float]:
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.first", package, name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, **SETTINGS},
    )  # fmt: skip
    watchdog = threading.Timer(timeout, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        times = json.loads(process.stdout.readline())
        times["total"] = time.perf_counter() - start
        rest, _ = process.communicate()
        return {**times, **json.loads(rest.strip().splitlines()[-1])}
    except IndexError:
        raise ValueError("died after the first result") from None
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()


def main() -> None:
    package, name = sys.argv[1:3]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    clock = time.perf_counter
    start = clock()
    from benchmarks import timing

    tf = timing.load(package)
    imported = clock()
    from benchmarks import workloads

    begun = clock()
    with tf.Graph().as_default():
        step = workloads.WORKLOADS[name](tf)
    built = clock()
    step()
    answers.write(json.dumps({"import": imported - start, "build": built - begun, "run": clock() - built}) + "\n")
    times = []
    for _ in range(STEPS):
        before = clock()
        step()
        times.append(clock() - before)
    answers.write(json.dumps({"slowest": max(times), "median": statistics.median(times)}) + "\n")
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
