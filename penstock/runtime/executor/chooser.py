"""Straight or on the pool: a choice by trial."""

from __future__ import annotations


class Chooser:
    """Decides by trial whether a program with independent expensive kernels runs faster straight or on the pool.

    BLAS has threads of its own, so that no rule would be right for all graphs: run both ways a few times, keep the faster.
    """

    __slots__ = ("best", "choice", "runs")

    WORTH_NS = 2_000_000  # below that, handing over costs more than it can win
    TRIAL = (False, False, True, True, False, True)  # on the pool or not; the first of each kind only warms up

    def __init__(self) -> None:
        self.runs = 0
        self.best = {False: float("inf"), True: float("inf")}
        self.choice: bool | None = None

    def on_pool(self) -> bool:
        # Steps at the same time may count past the end; their timings are as good as any.
        return self.TRIAL[min(self.runs, len(self.TRIAL) - 1)] if self.choice is None else self.choice

    def record(self, on_pool: bool, ns: int) -> None:
        if self.choice is not None:
            return
        self.runs += 1
        if self.runs not in (1, 3):
            self.best[on_pool] = min(self.best[on_pool], ns)
        if self.runs == 2 and self.best[False] < self.WORTH_NS:
            self.choice = False
        elif self.runs >= len(self.TRIAL):
            self.choice = self.best[True] < self.best[False] * 0.9
