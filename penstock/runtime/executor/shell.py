"""Executors, and the two ways to run them: `run_step`, which returns when the step is over, and `run_step_async`.

executor = Executor(graph, device, segment, library)          # once per partition of a signature
step = Step(CallFrame(args, n_retvals), cancellation=session_manager)
run_step([executor], step)                                      # raises the step's error
results = step.call_frame.take_retvals()
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from penstock import errors
from penstock.graph import spec
from penstock.graph.ir import Graph
from penstock.runtime.devices import Device
from penstock.runtime.executor.compiled import AT_ONCE, EAGER, OFF, WARM, RegionKernel, mode
from penstock.runtime.executor.completion import Completion
from penstock.runtime.executor.driver import Driver
from penstock.runtime.executor.plan import ExecutorPlan, Regions
from penstock.runtime.executor.step import Step
from penstock.runtime.resources import OpSegment
from penstock.runtime.story import as_op_error
from penstock.runtime.threads import run_blocking

__all__ = ["Completion", "Driver", "Executor", "Step", "run_step", "run_step_async"]


class Executor:
    """One partition graph, ready to run any number of times, also at the same time.

    `segment` keeps the kernels' state across signatures of a session; `library` is the FunctionRuntime for nodes that call
    functions; `regions` groups nodes of a partition that the dataflow executor runs, once it is warm.
    """

    __slots__ = ("_chooser", "_launches", "_regional", "_regions", "compiler", "device", "graph", "library", "plan", "segment", "straight")

    def __init__(
        self, graph: Graph, device: Device, segment: OpSegment | None = None, library: Any = None, regions: Regions | None = None
    ) -> None:
        self.graph = graph
        self.device = device
        self.library = library
        self.plan = ExecutorPlan(graph, device, segment)
        self.straight = self.plan.straight
        self.compiler = self.plan.compiler
        self.segment = segment
        self._chooser = _Chooser() if self.plan.wide else None
        self._regions = None if mode() == OFF else regions
        self._regional: ExecutorPlan | None = None
        self._launches = 0

    def plan_for(self, step: Step) -> ExecutorPlan:
        """The plan by which the dataflow executor runs `step`: node by node where every node is to be traced."""
        if step.collector is not None or self.plan.wide:
            return self.plan
        if self._regional is not None or self._regions is None:
            return self._regional or self.plan
        self._launches += 1
        if self._launches > (0 if mode() == EAGER else WARM):
            regions, self._regions = self._regions, None
            if len(self.plan.nodes) <= AT_ONCE or mode() == EAGER:
                self._group(regions)
            else:
                run_blocking(lambda: self._group(regions))
        return self._regional or self.plan

    def _group(self, regions: Regions) -> None:
        try:
            self._regional = self.plan.with_regions(regions, self.device, self.segment)
        except Exception:
            if spec.enabled:
                raise
            logging.getLogger("penstock.regions").exception("A partition could not be grouped into regions; it runs node by node")

    def source(self) -> str:
        """The Python source that this partition runs as when it is warm, or a comment that says why there is none."""
        if self.compiler is not None and self.compiler.find() is not None:
            return self.compiler.source()
        reason = "it has asynchronous kernels or transfers" if self.compiler is None else self.compiler.reason
        regional = self._regional
        if regional is None and self._regions is not None:
            regional = self.plan.with_regions(self._regions, self.device, self.segment)
        codes = [n.fn.code.source for n in regional.nodes if isinstance(n.fn, RegionKernel)] if regional is not None else []
        return "\n".join([f"# on the dataflow executor: {reason}; {len(codes)} regions", *codes])


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
