"""Executors, and the two ways to run them: `run_step`, which returns when the step is over, and `run_step_async`.

executor = Executor(graph, device, segment, library)          # once per partition of a signature
step = Step(CallFrame(args, n_retvals), cancellation=session_manager)
run_step([executor], step)                                      # raises the step's error
results = step.call_frame.take_retvals()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from penstock import errors
from penstock.graph.ir import Graph
from penstock.runtime.devices import Device
from penstock.runtime.executor.completion import Completion
from penstock.runtime.executor.driver import Driver
from penstock.runtime.executor.plan import ExecutorPlan
from penstock.runtime.executor.step import Step
from penstock.runtime.resources import OpSegment
from penstock.runtime.story import as_op_error

__all__ = ["Completion", "Driver", "Executor", "Step", "run_step", "run_step_async"]


class Executor:
    """One partition graph, ready to run any number of times, also at the same time.

    `segment` keeps the kernels' state across signatures of a session; `library` is the FunctionRuntime for nodes that call
    functions.
    """

    __slots__ = ("_chooser", "compiler", "device", "graph", "library", "plan", "straight")

    def __init__(self, graph: Graph, device: Device, segment: OpSegment | None = None, library: Any = None) -> None:
        self.graph = graph
        self.device = device
        self.library = library
        self.plan = ExecutorPlan(graph, device, segment)
        self.straight = self.plan.straight
        self.compiler = self.plan.compiler
        self._chooser = _Chooser() if self.plan.wide else None


class _Chooser:
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


def run_step(executors: Sequence[Executor], step: Step) -> None:
    """Runs a step's partitions to the end in this thread; raises the step's first error. Results are in its call frame."""
    if step.functions is None and executors:
        step.functions = executors[0].library
    if len(executors) == 1 and step.timeout is None:
        executor = executors[0]
        straight = executor.straight
        if straight is not None:
            chooser = executor._chooser
            if chooser is not None and step.pool is not None and step.pool.num_threads > 1 and step.collector is None:
                _run_wide(executor, step, chooser)
                return
            _run_straight(executor, step)
            return
        compiler = executor.compiler
        if compiler is not None and step.collector is None and (compiler.program or compiler.tick()) is not None:
            _run_straight(executor, step)
            return
    Driver(executors, step).run()


def _run_straight(executor: Executor, step: Step) -> None:
    outer = step._outer_cancellation
    if outer is not None and outer.is_cancelled:
        raise (
            errors.CancelledError("Step was cancelled before it started")
            if outer.reason is None
            else as_op_error(outer.reason)
        )
    try:
        if step.collector is None:
            compiler = executor.compiler
            program = (compiler.program or compiler.tick()) if compiler is not None else None
            (program or executor.straight).run(step, executor.device)  # type: ignore[union-attr]
        else:
            executor.straight.run_traced(step, executor.device, step.collector)  # type: ignore[union-attr]
    finally:
        if step._cancellation is not None or step.step_resources:
            step.close()


def _run_wide(executor: Executor, step: Step, chooser: _Chooser) -> None:
    on_pool = chooser.on_pool()
    start = time.perf_counter_ns()
    if on_pool:
        Driver([executor], step).run()
    else:
        _run_straight(executor, step)
    chooser.record(on_pool, time.perf_counter_ns() - start)


def run_step_async(executors: Sequence[Executor], step: Step, done: Callable[[errors.OpError | None], Any]) -> Driver:
    """Starts a step: runs what can run now in this thread, and the rest, as values arrive, on the step's pool. When it is over,
    `done(error or None)` is called, perhaps before this returns."""
    if step.functions is None and executors:
        step.functions = executors[0].library
    driver = Driver(executors, step, done)
    driver.run_async()
    return driver
