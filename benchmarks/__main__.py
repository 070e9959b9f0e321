"""Times every workload on both packages in alternation and prints a table of ratios (TensorFlow's time / Penstock's)."""

from __future__ import annotations

import argparse
import gc
import os
import platform
import statistics
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def load(name: str) -> Any:
    """The package under test: penstock, or TensorFlow's compat.v1 with TF2 behaviour off."""
    if name == "penstock":
        import penstock

        return penstock
    import tensorflow as tf

    tf.compat.v1.disable_v2_behavior()
    return tf.compat.v1


def time_steps(step: Any, seconds: float) -> float:
    """Seconds a call, over at least `seconds` of calls."""
    count, start = 0, time.perf_counter()
    while True:
        for _ in range(8):
            step()
        count += 8
        spent = time.perf_counter() - start
        if spent > seconds:
            return spent / count


def main() -> int:
    from benchmarks.workloads import ONCE, WORKLOADS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run workloads whose name contains this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.15, help="time per package and round")
    options = parser.parse_args()
    packages = {name: load(name) for name in ("penstock", "tensorflow")}
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}; median of {options.rounds} alternating rounds")
    print(f"{'workload':<40}{'Penstock':>14}{'TensorFlow':>14}{'ratio':>9}")
    for name, setup in WORKLOADS.items():
        if options.only in name:
            _row(name, _alternate(packages, setup, options))
    for name, run in ONCE.items():
        if options.only in name:
            times: dict[str, list[float]] = {p: [] for p in packages}
            for _ in range(options.rounds):
                for package, tf in packages.items():
                    gc.collect()
                    times[package].append(run(tf))
            _row(name, times)
    return 0


def _alternate(packages: dict[str, Any], setup: Any, options: Any) -> dict[str, list[float]]:
    steps = {}
    for package, tf in packages.items():
        with tf.Graph().as_default():
            steps[package] = setup(tf)
        for _ in range(5):
            steps[package]()
    times: dict[str, list[float]] = {p: [] for p in packages}
    for _ in range(options.rounds):
        for package, step in steps.items():
            times[package].append(time_steps(step, options.seconds))
    return times


def _row(name: str, times: dict[str, list[float]]) -> None:
    ours, theirs = statistics.median(times["penstock"]), statistics.median(times["tensorflow"])
    print(f"{name:<40}{_show(ours):>14}{_show(theirs):>14}{theirs / ours:>8.1f}x", flush=True)


def _show(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


if __name__ == "__main__":
    sys.exit(main())
