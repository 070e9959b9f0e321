"""Kernel calls that end elsewhere: the `done` of an asynchronous kernel, and calls on the pool."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.ops.context import OpContext
from penstock.runtime.executor.plan import NodePlan
from penstock.runtime.executor.state import Iteration
from penstock.runtime.executor.step import Step
from penstock.runtime.story import as_op_error

if TYPE_CHECKING:
    from penstock.runtime.executor.driver import Driver

_clock = time.perf_counter_ns


class Completion:
    """The `done` of one asynchronous kernel call: `done(result)` or `done(None, error)`, once, from any thread."""

    __slots__ = ("called", "calls", "driver", "inputs", "it", "node", "start")

    def __init__(self, driver: Driver, node: NodePlan, it: Iteration, inputs: Sequence[Any]) -> None:
        self.driver = driver
        self.node = node
        self.it = it
        self.inputs = inputs
        self.called = False
        self.calls = 0  # functions that this kernel has called and that have not ended
        self.start = 0

    def __call__(self, result: Any = None, error: BaseException | None = None) -> None:
        if self.called:
            raise errors.InternalError(f"The kernel of node {self.node.name} ({self.node.op.type}) called done twice")
        self.called = True
        self.driver.post((self, result, error))


def reason_of(step: Step, otherwise: str) -> errors.OpError:
    """Why the step was cancelled: an error of its own, because the manager's may be given to many steps."""
    reason = step.cancellation.reason
    return errors.CancelledError(otherwise) if reason is None else as_op_error(reason)


def call_on_pool(completion: Completion, ctx: OpContext | None) -> None:
    node = completion.node
    start = _clock()
    try:
        result = node.fn(*completion.inputs) if ctx is None else node.fn(ctx, *completion.inputs)
    except BaseException as error:
        completion(None, error)
        return
    account(node, _clock() - start)
    completion(result)


def account(node: NodePlan, ns: int) -> None:
    node.cost = ns if not node.cost else node.cost + (ns - node.cost) * 0.25


def doing(step: Step, it: Iteration, loop: tuple[str, int] | None = None) -> str:
    """`loop` is the innermost one inside of a region: its name and the number of the round."""
    frame = it.frame
    where = f"running step {step.step_id}"
    if loop is not None:
        where += f", iteration {loop[1]} of loop '{loop[0]}'"
    elif frame.parent is not None:
        where += f", iteration {it.number} of loop '{frame.plan.name}'"
    if step.depth:
        where += f", function call {step.depth} deep"
    return where
