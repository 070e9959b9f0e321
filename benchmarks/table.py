"""The table of workloads: every package takes its turn on every workload, round by round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from benchmarks import timing
from benchmarks.workers import Absent, Failed, Pool

MODULE = "benchmarks.workloads"
OURS, THEIRS, PLAIN = "penstock", "tensorflow", "penstock:plain"
"""`PLAIN` is Penstock as it is without the `xla` extra."""
ENVIRONMENTS = {PLAIN: {"PENSTOCK_XLA": "0"}}
GROUPS = ("Calls", "Small ops", "Big ops", "Training", "Convolutions", "Frozen networks", "Loops", "Runtime", "Building")
"""The parts of the table in order; others follow."""
PEERS = ("jax", "torch", "openvino", "onnxruntime")
TITLES = {
    OURS: "Penstock", PLAIN: "without XLA", THEIRS: "TensorFlow", "jax": "JAX", "torch": "PyTorch", "openvino": "OpenVINO",
    "onnxruntime": "ONNX Runtime",
}  # fmt: skip


@dataclass
class Effort:
    """How long to look."""

    rounds: int = 5
    seconds: float = 0.15
    settle: float = 1.0
    limit: float = 20.0
    timeout: float = 120.0

    @classmethod
    def quick(cls) -> Effort:
        return cls(rounds=2, seconds=0.02, settle=0.05, limit=0.5, timeout=60.0)


@dataclass
class Row:
    """One workload: seconds a step by package, a value for every round."""

    name: str
    group: str = "More"
    bar: float = 1.0
    times: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    disturbed: float = 0.0
    """The share of the machine that other processes had during the rounds."""

    def median(self, package: str) -> float | None:
        return timing.median(self.times[package]) if self.times.get(package) else None

    def ratio(self, ours: str = OURS, theirs: str = THEIRS) -> tuple[float, float, float] | None:
        """Their time over ours: of the medians, smallest and largest of a round."""
        if not self.times.get(ours) or not self.times.get(theirs):
            return None
        return timing.ratio(self.times[ours], self.times[theirs])


def measure(pool: Pool, row: Row, packages: list[str], effort: Effort, repeats: bool = True, module: str = MODULE) -> Row:
    """Fills a row. What fails is left out and said in the row's notes; the others are measured all the same."""
    (_repeated if repeats else _once)(pool, row, packages, effort, module)
    return row


def _repeated(pool: Pool, row: Row, packages: list[str], effort: Effort, module: str) -> None:
    values: dict[str, list[float]] = {}
    turns = []
    for package in packages:

        def prepare(package: str = package) -> None:
            values[package] = pool.ask(package, "setup", effort.timeout, module=module, name=row.name).get("values", [])
            seconds = effort.settle if package.split(":")[0] in (OURS, THEIRS) else effort.settle / 2
            if pool.ask(package, "settle", effort.timeout, seconds=seconds, limit=effort.limit).get("compiling"):
                row.notes.append(f"{package}: still compiling after a warm-up of {effort.limit:g} s")

        if _attempt(row, prepare):
            turns.append(package)
    before = pool.clock()
    turns = _rounds(row, turns, effort, lambda p: pool.ask(p, "round", effort.timeout, seconds=effort.seconds))
    row.disturbed = share(before, pool.clock())
    for package in turns:
        _attempt(row, lambda: pool.drop(package, effort.timeout))
    if not _agree(values.get(OURS), values.get(THEIRS)):
        row.notes.append("results differ between Penstock and TensorFlow")


def _once(pool: Pool, row: Row, packages: list[str], effort: Effort, module: str) -> None:
    turns = [p for p in packages if p.split(":")[0] in (OURS, THEIRS)]
    _rounds(row, turns, effort, lambda p: pool.ask(p, "once", effort.timeout, module=module, name=row.name))


def _rounds(row: Row, turns: list[str], effort: Effort, ask: Callable[[str], dict]) -> list[str]:
    """All rounds, every other one in reverse order; returns who is still there."""
    for i in range(effort.rounds):
        for package in turns if i % 2 == 0 else reversed(turns):
            if not _attempt(row, lambda: row.times.setdefault(package, []).append(ask(package)["seconds"])):
                row.times.pop(package, None)
                turns = [p for p in turns if p != package]
    return turns


def share(before: tuple[float, float] | None, after: tuple[float, float] | None) -> float:
    """Of two readings of `Pool.clock`. A worker that was replaced between them takes its own time along: never below none."""
    if before is None or after is None or after[1] <= before[1]:
        return 0.0
    return min(1.0, max(0.0, (after[0] - before[0]) / (after[1] - before[1])))


def _attempt(row: Row, action: Callable[[], object]) -> bool:
    try:
        action()
    except Absent:
        return False
    except Failed as error:
        row.notes.append(str(error))
        return False
    return True


def _agree(ours: list[float] | None, theirs: list[float] | None) -> bool:
    """Whether the digests of two packages' first results are the same up to rounding."""
    if ours is None or theirs is None:
        return True
    return len(ours) == len(theirs) and np.allclose(ours, theirs, rtol=1e-2, atol=1e-5, equal_nan=True)
