"""A step: one run of a signature's partitions, or one call of a function inside of it.

State of a Step
    step_id            unique in the process; calls of functions have their caller's
    call_frame         arguments in, results out
    step_resources     objects that kernels keep until the step ends; calls share their caller's dict
    rendezvous         where its partitions meet; made on first use
    cancellation       its CancellationManager, a child of the session's or the caller's; made on first use
    session_state      tensor handles of the session
    functions          the FunctionRuntime for calls out of this step
    collector          StepStats collector, or None
    pool               WorkPool for heavy kernels, or None: all in the driver's thread
    timeout            seconds until the step fails with DeadlineExceededError, or None
    depth              0 in the client's graph, one more per call
    driver             the Driver that runs it, or None on the fast path
    parent, caller, done    of a call: the step it was made in, the Completion of the node that made it, and its callback
    partitions, busy   its PartitionStates, and how many of them are not over
    error              the first error; everything after it is dropped
    cancelling         it was cancelled from outside: what is still running may report why, then it ends
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.runtime.call_frame import CallFrame
from penstock.runtime.cancellation import CancellationManager
from penstock.runtime.rendezvous import LocalRendezvous, Rendezvous
from penstock.runtime.threads import WorkPool, run_blocking

if TYPE_CHECKING:
    from penstock.runtime.executor.completion import Completion
    from penstock.runtime.executor.driver import Driver
    from penstock.runtime.functions import FunctionRuntime

_step_ids = itertools.count(1)


class Step:
    """What the kernels of one run share. A step runs once."""

    # Defaults stand in the class: a step of one add must not pay for what it does not use.
    timeout: float | None = None
    collector: Any = None
    depth = 0
    driver: Driver | None = None
    parent: Step | None = None
    caller: Completion | None = None
    done: Callable[..., Any] | None = None
    busy = 0
    error: errors.OpError | None = None
    cancelling = False
    partitions: Any = None
    _cancellation: CancellationManager | None = None
    _rendezvous: Rendezvous | None = None
    _token: int | None = None

    def __init__(
        self,
        call_frame: CallFrame | None = None,
        cancellation: CancellationManager | None = None,
        session_state: Any = None,
        functions: FunctionRuntime | None = None,
        pool: WorkPool | None = None,
        timeout: float | None = None,
        *,
        rendezvous: Rendezvous | None = None,
        collector: Any = None,
        step_id: int | None = None,
    ) -> None:
        """`cancellation` is the parent (the session's manager): the step makes a child of its own."""
        self.call_frame = call_frame if call_frame is not None else CallFrame((), 0)
        self.step_id = next(_step_ids) if step_id is None else step_id
        self.step_resources: dict[Any, Any] = {}
        self.session_state = session_state
        self.functions = functions
        self.pool = pool
        self._outer_cancellation = cancellation
        if timeout is not None:
            self.timeout = timeout
        if collector is not None:
            self.collector = collector
        if rendezvous is not None:
            self._rendezvous = rendezvous

    @property
    def rendezvous(self) -> Rendezvous:
        if self._rendezvous is None:
            self._rendezvous = LocalRendezvous()
        return self._rendezvous

    @property
    def cancellation(self) -> CancellationManager:
        if self._cancellation is None:
            self._cancellation = CancellationManager(self._outer_cancellation)
        return self._cancellation

    def call_function(self, func: Any, args: list[Any], done: Callable[..., Any], device: Any = None) -> None:
        """See OpContext.call."""
        if self.functions is None or self.driver is None:
            done(
                None, errors.FailedPreconditionError(f"Cannot call function {func}: this step has no function library")
            )
            return
        self.functions.call(self, func, args, done, device)

    def run_blocking(self, function: Callable[[], Any]) -> None:
        run_blocking(function)

    def child(self, call_frame: CallFrame, done: Callable[..., Any]) -> Step:
        """The step of a function that is called from this one: its own rendezvous and frame, the rest shared."""
        step = Step(
            call_frame,
            cancellation=self.cancellation,
            session_state=self.session_state,
            functions=self.functions,
            collector=self.collector,
            pool=self.pool,
            step_id=self.step_id,
        )
        step.step_resources = self.step_resources
        step.depth = self.depth + 1
        step.parent = self
        step.done = done
        return step

    def close(self) -> None:
        """Lets go of everything that lives no longer than the step."""
        manager = self._cancellation
        if manager is not None:
            if self._token is not None:
                manager.deregister(self._token)
                self._token = None
            manager.detach()
        if self.depth == 0 and self.step_resources:
            self.step_resources.clear()
        self.partitions = None
        self.driver = None
