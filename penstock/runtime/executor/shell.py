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
from penstock.runtime.cancellation import at_deadline
from penstock.runtime.devices import Device
from penstock.runtime.executor.chooser import Chooser
from penstock.runtime.executor.compiled import AT_ONCE, EAGER, OFF, WARM, RegionKernel, mode
from penstock.runtime.executor.completion import Completion
from penstock.runtime.executor.driver import Driver
from penstock.runtime.executor.joined import JoinedStep, together
from penstock.runtime.executor.plan import ExecutorPlan, Regions
from penstock.runtime.executor.step import Step
from penstock.runtime.resources import OpSegment
from penstock.runtime.story import as_op_error
from penstock.runtime.threads import run_blocking

__all__ = ["Completion", "Driver", "Executor", "Step", "run_step", "run_step_async"]


class Executor:
    """One partition graph, ready to run any number of times, also at the same time.

    `segment` keeps the kernels' state across signatures of a session; `library` is the FunctionRuntime for nodes that call
    functions; `regions` groups nodes of a partition that the dataflow executor runs, once it is warm; `xla` is what the session
    wants of XLA (see `compiled.watch_for`).
    """

    __slots__ = (
        "_chooser", "_eager", "_launches", "_offloads", "_regional", "_regions", "compiler", "device", "graph", "joined", "library", "plan", "segment",
        "straight", "xla",
    )  # fmt: skip

    def __init__(
        self,
        graph: Graph,
        device: Device,
        segment: OpSegment | None = None,
        library: Any = None,
        regions: Regions | None = None,
        xla: str | None = None,
    ) -> None:
        self.graph = graph
        self.device = device
        self.library = library
        self.xla = xla
        self.plan = ExecutorPlan(graph, device, segment, xla)
        self.straight = self.plan.straight
        self.compiler = self.plan.compiler
        self.segment = segment
        self._offloads = device.kind.offload(device) is not None
        self._chooser = Chooser() if self.plan.wide and not self._offloads else None
        self._eager = mode() == EAGER or self._offloads
        self._regions = None if mode() == OFF and not self._eager else regions
        self._regional: ExecutorPlan | None = None
        self._launches = 0
        self.joined: JoinedStep | None = None  # of a signature's first executor: all of them together

    def plan_for(self, step: Step) -> ExecutorPlan:
        """The plan by which the dataflow executor runs `step`: node by node where every node is to be traced."""
        if step.collector is not None or (self.plan.wide and not self._offloads):
            return self.plan
        if self._regional is not None or self._regions is None:
            return self._regional or self.plan
        self._launches += 1
        if self._launches > (0 if self._eager else WARM):
            regions, self._regions = self._regions, None
            if len(self.plan.nodes) <= AT_ONCE or self._eager:
                self._group(regions)
            else:
                run_blocking(lambda: self._group(regions))
        return self._regional or self.plan

    def _group(self, regions: Regions) -> None:
        try:
            self._regional = self.plan.with_regions(regions, self.device, self.segment, self.xla)
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
            regional = self.plan.with_regions(self._regions, self.device, self.segment, self.xla)
        codes = [n.fn.code.source for n in regional.nodes if isinstance(n.fn, RegionKernel)] if regional is not None else []
        return "\n".join([f"# on the dataflow executor: {reason}; {len(codes)} regions", *codes])


def sources(executors: Sequence[Executor]) -> dict[str, Callable[[], str]]:
    """By device, what gives the source that its partition runs as when it is warm."""
    found: dict[str, Callable[[], str]] = {executor.device.name: executor.source for executor in executors}
    compiler = together(executors).compiler if len(executors) > 1 else None
    if compiler is not None and compiler.find() is not None:
        first = executors[0].device.name
        found = dict.fromkeys(found, lambda: f"# joined with {first}")
        found[first] = compiler.source
    return found


def run_step(executors: Sequence[Executor], step: Step) -> None:
    """Runs a step's partitions to the end in this thread; raises the step's first error. Results are in its call frame."""
    if step.functions is None and executors:
        step.functions = executors[0].library
    if len(executors) == 1 or (executors and step._rendezvous is None):  # who brings a rendezvous wants to see what crosses
        executor = together(executors)
        straight = executor.straight
        if step.timeout is not None:
            compiler = executor.compiler
            if step.collector is None and (straight is not None or (compiler is not None and (compiler.program or compiler.tick()) is not None)):
                _run_in_time(executor, step)
            else:
                Driver(executors, step).run()
            return
        if straight is not None:
            chooser = executor._chooser
            if chooser is not None and executor.compiler is not None and executor.compiler.is_hot:
                chooser = executor._chooser = None  # XLA has a part in it now; its programs decide for themselves
            if chooser is not None and step.pool is not None and step.pool.num_threads > 1 and step.collector is None:
                _run_wide(executors, step, chooser)
                return
            _run_straight(executor, step)
            return
        compiler = executor.compiler
        if compiler is not None and step.collector is None and (compiler.program or compiler.tick()) is not None:
            if executor._chooser is not None and step.pool is not None and step.pool.num_threads > 1:
                _run_wide(executors, step, executor._chooser)
            else:
                _run_straight(executor, step)
            return
    Driver(executors, step).run()


def _run_straight(executor: Executor | JoinedStep, step: Step) -> None:
    outer = step._outer_cancellation
    if outer is not None and outer.is_cancelled:
        raise (
            errors.CancelledError("Step was cancelled before it started")
            if outer.reason is None
            else as_op_error(outer.reason)
        )
    try:
        if step.collector is None or executor._offloads:
            compiler = executor.compiler
            program = (compiler.program or compiler.tick()) if compiler is not None else None
            start = 0 if step.collector is None else time.perf_counter_ns()
            (program or executor.straight).run(step, executor.device)  # type: ignore[union-attr]
            if step.collector is not None:
                # Compiled programs are one piece: so is their row.
                end = time.perf_counter_ns()
                step.collector.recorder(executor.device.name)(executor.plan.nodes[-1], start, start, end, end, ())  # type: ignore[union-attr]
        else:
            executor.straight.run_traced(step, executor.device, step.collector)  # type: ignore[union-attr]
    finally:
        if step._cancellation is not None or step.step_resources:
            step.close()


def _run_in_time(executor: Executor | JoinedStep, step: Step) -> None:
    """A step with a deadline. Loops look at its cancellation in every round; a kernel cannot be interrupted, but whatever is not done in
    time is an error."""
    manager = step.cancellation
    too_late = errors.DeadlineExceededError("Timed out waiting for notification")
    too_late.story.append(f"The step had {step.timeout:g} seconds")
    deadline = at_deadline(step.timeout, lambda: manager.start_cancel(too_late))  # type: ignore[arg-type]
    try:
        _run_straight(executor, step)
    finally:
        deadline.cancel()
    if manager.reason is too_late:
        raise too_late


def _run_wide(executors: Sequence[Executor], step: Step, chooser: Chooser) -> None:
    executor = together(executors)
    if executor.compiler is not None and executor.compiler.is_waiting:
        _run_straight(executor, step)  # what is to be compared is not there yet
        return
    on_pool = chooser.on_pool()
    start = time.perf_counter_ns()
    if on_pool:
        Driver(executors, step).run()
    else:
        _run_straight(executor, step)
    if chooser.choice is None:
        chooser.record(on_pool, time.perf_counter_ns() - start, [getattr(value, "shape", None) for value in step.call_frame.args])


def run_step_async(executors: Sequence[Executor], step: Step, done: Callable[[errors.OpError | None], Any]) -> Driver:
    """Starts a step: runs what can run now in this thread, and the rest, as values arrive, on the step's pool. When it is over,
    `done(error or None)` is called, perhaps before this returns."""
    if step.functions is None and executors:
        step.functions = executors[0].library
    driver = Driver(executors, step, done)
    driver.run_async()
    return driver
