"""Straight or on the pool: a choice by trial."""

from __future__ import annotations

from typing import Any

from penstock.ops.kernels.threads import is_deterministic


class Chooser:
    """Decides by trial whether a program with independent expensive kernels runs faster straight or on the pool.

    BLAS has threads of its own, so that no rule would be right for all graphs: run both ways a few times, keep the faster. Where steps bring other shapes, they
    are other work: then means of more steps are compared, and the pool has to win clearly. Where results must repeat, times decide nothing.
    """

    __slots__ = ("_shapes", "_times", "choice", "runs", "varies")

    WORTH_NS = 2_000_000  # below that, handing over costs more than it can win
    TRIAL = (False, False, True, True, False, True)  # on the pool or not; the first of each kind only warms up
    STEPS = 16  # of each kind, where shapes vary

    def __init__(self) -> None:
        self.runs = 0
        self._shapes: Any = None
        self._times: dict[bool, list[int]] = {False: [], True: []}
        self.varies = False
        self.choice: bool | None = False if is_deterministic() else None

    def on_pool(self) -> bool:
        # Steps at the same time may count past the end; their timings are as good as any.
        if self.choice is not None:
            return self.choice
        return bool(self.runs & 1) if self.varies else self.TRIAL[min(self.runs, len(self.TRIAL) - 1)]

    def record(self, on_pool: bool, ns: int, shapes: Any) -> None:
        """A step that was fed these shapes took so long."""
        if self.choice is not None:
            return
        if self._shapes is not None and self._shapes != shapes and not self.varies:
            self.varies, self.runs = True, 0
            self._times = {False: [], True: []}
        self._shapes = shapes
        self.runs += 1
        times = self._times
        times[on_pool].append(ns)
        if self.varies:
            if self.runs == self.STEPS and _mean(times[False]) < self.WORTH_NS:
                self.choice = False
            elif self.runs >= 2 * self.STEPS:
                self.choice = _mean(times[True]) < _mean(times[False]) * 0.75
        elif self.runs == 2 and _best(times[False]) < self.WORTH_NS:
            self.choice = False
        elif self.runs >= len(self.TRIAL):
            self.choice = _best(times[True]) < _best(times[False]) * 0.9


def _best(times: list[int]) -> float:
    return min(times[1:], default=float("inf"))


def _mean(times: list[int]) -> float:
    return sum(times) / len(times) if times else float("inf")
