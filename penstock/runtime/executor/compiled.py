"""Generated code in the executor's place: a partition that is warm and whose control flow has structure runs as one function.

A partition runs its first steps as it is: most signatures run once (initialisers, checks), and source code takes time to write
and compile. After `WARM` steps (at once, if there are loops) it is compiled: here and now if it is short, else on a thread of
its own while steps go on as before. What cannot be compiled stays with the interpreter or the dataflow executor.

`PENSTOCK_REGIONS` in the environment: 0 never, 1 when warm (the default), eager before the first step.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.engines.python import elementwise
from penstock.engines.python.codegen import Blame, Cancelled, Code, generate
from penstock.engines.python.structure import PASSES_ON, Unstructured
from penstock.graph import spec
from penstock.graph.ir import Operation
from penstock.ops.context import DEAD, OpContext
from penstock.runtime.kernels import read_ref, ref_inputs
from penstock.runtime.quiet import enter, leave
from penstock.runtime.story import as_op_error, explain
from penstock.runtime.threads import parallel_for, run_blocking

if TYPE_CHECKING:
    from penstock.runtime.devices import Device
    from penstock.runtime.executor.plan import NodePlan

WARM = 3
"""Steps before a partition without loops is compiled."""
AT_ONCE, AT_ONCE_LOOPS = 60, 400
"""Up to so many nodes are compiled in the step that finds them warm; more of them where loops would take longer than that."""
OFF, ON, EAGER = 0, 1, 2
_OFF_TEXT = "generated code is switched off"

elementwise.parallel_for = parallel_for

_log = logging.getLogger("penstock.regions")


def mode() -> int:
    """What PENSTOCK_REGIONS says."""
    text = os.environ.get("PENSTOCK_REGIONS", "1").strip().lower()
    return OFF if text in ("0", "off", "false") else EAGER if text == "eager" else ON


class _Never:
    """Stands for a cancellation manager where there is none."""

    is_cancelled = False


_NEVER = _Never()


class CompiledProgram:
    """A partition as one generated function."""

    __slots__ = ("code", "n_args")

    def __init__(self, code: Code, n_args: int) -> None:
        self.code = code
        self.n_args = n_args

    def run(self, step: Any, device: Device) -> None:
        """Runs the step: arguments out of its call frame, results into it. Raises the first error."""
        frame = step.call_frame
        args = frame.args
        if len(args) < self.n_args:
            frame.get_arg(self.n_args - 1)
        code = self.code
        ctx = OpContext(step, device) if code.needs_ctx else None
        token = enter()
        try:
            results = code.run(ctx, args, step._outer_cancellation or _NEVER)
        except Exception as error:
            told = self._explained(error, step, device)
            raise told from told.__cause__
        finally:
            leave(token)
        retvals = frame.retvals
        if not code.may_die:
            for i, value in zip(code.results, results):
                retvals[i] = value
        else:
            for i, value in zip(code.results, results):
                if value is not DEAD:
                    retvals[i] = value

    def _explained(self, error: Exception, step: Any, device: Device) -> errors.OpError:
        if isinstance(error, Cancelled):
            reason = step._outer_cancellation.reason
            return errors.CancelledError("Step was cancelled") if reason is None else as_op_error(reason)
        blame = self.code.blame(error.__traceback__)
        if blame is None:
            return as_op_error(error)
        node, inputs, loop = blame
        op = node.op
        told = own_words(error, blame, self.code)
        doing = f"running step {step.step_id}"
        if loop is not None:
            doing += f", iteration {loop[1]} of loop '{loop[0]}'"
        return explain(told, op, device.name, inputs, doing, step.depth == 0)


def _kernels_own(node: Any, inputs: list[Any]) -> Exception | None:
    """What the kernel itself says to these inputs."""
    try:
        node.fn(*inputs)
    except Exception as error:
        return error
    return None


def _wrong_number(error: ValueError, op: Operation) -> errors.InternalError | None:
    """The error for a kernel that gave another number of outputs than its signature has; None if it is not that."""
    found = re.search(r"values to unpack \(expected \d+(?:, got (\d+))?\)", str(error))
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if found is None or traceback is None or not traceback.tb_frame.f_code.co_filename.startswith("<penstock "):
        return None
    number = found[1] or f"more than {len(op.outputs)}"
    return errors.InternalError(f"The kernel of {op.type} gave {number} outputs; {len(op.outputs)} were expected")


class Compiler:
    """Watches a partition warm up and compiles it once. `program` is there when it is done."""

    __slots__ = ("_begun", "_limit", "_n_args", "_nodes", "_runs", "program", "reason")

    def __init__(self, nodes: Sequence[NodePlan], n_args: int, has_loops: bool) -> None:
        self.program: CompiledProgram | None = None
        self.reason = _OFF_TEXT
        self._nodes = nodes
        self._n_args = n_args
        self._runs = 0
        self._begun = False
        chosen = mode()
        self._limit = 0 if chosen == EAGER or (has_loops and chosen) else WARM
        if chosen == OFF:
            self._begun = True

    def tick(self) -> CompiledProgram | None:
        """One more step is about to run. The program, if there is one now."""
        if self.program is not None or self._begun:
            return self.program
        self._runs += 1
        if self._runs > self._limit:
            self._begun = True
            if mode() == EAGER or len(self._nodes) <= (AT_ONCE_LOOPS if self._limit == 0 else AT_ONCE):
                self.compile()
            else:
                run_blocking(self.compile)
        return self.program

    def find(self) -> CompiledProgram | None:
        """The program, compiled now if need be."""
        if self.program is None and mode() != OFF and self.reason == _OFF_TEXT:
            self.compile()
        return self.program

    def source(self) -> str:
        """The source of the program, if there is one."""
        return "" if self.program is None else self.program.code.source

    def compile(self) -> None:
        """Compiles now."""
        self._begun = True
        try:
            self.program = compiled(self._nodes, self._n_args)
        except Unstructured as reason:
            self.reason = str(reason)
            _log.debug("Left to the dataflow executor: %s", reason)
        except Exception as error:
            if spec.enabled:
                raise
            # A program that cannot be written must not stop a step that can run without it.
            self.reason = f"its code could not be generated ({type(error).__name__}: {error}); please report this"
            _log.exception("No code was generated for a partition; it runs node by node")


def compiled(nodes: Sequence[NodePlan], n_args: int) -> CompiledProgram:
    """The program of a partition whose nodes are all synchronous. Raises Unstructured."""
    prepare(nodes)
    try:
        return CompiledProgram(generate(nodes, "partition", read_ref), n_args)
    except RecursionError:
        raise Unstructured("control flow is nested too deeply") from None


class RegionKernel:
    """The kernel of a `_Region` node: `kernel(ctx, *inputs)` gives the list of its outputs."""

    __slots__ = ("code",)

    def __init__(self, nodes: Sequence[NodePlan], body: Any) -> None:
        prepare(nodes)
        self.code = generate(nodes, "region", read_ref, body.inputs, body.outputs)

    def __call__(self, ctx: OpContext, *inputs: Any) -> tuple:
        return self.code.run(ctx, inputs, _NEVER)

    def blame(self, error: BaseException) -> tuple[BaseException, Operation, list[Any]] | None:
        """What really failed: the error as its kernel tells it, the node, and the node's inputs."""
        blame = self.code.blame(error.__traceback__)
        return None if blame is None else (own_words(error, blame, self.code), blame.node.op, blame.inputs)


def own_words(error: BaseException, blame: Blame, code: Code) -> BaseException:
    """The error as the node's kernel tells it, where the generated line says it differently."""
    node = blame.node
    if node.op in code.shortened:
        return _kernels_own(node, blame.inputs) or error
    if isinstance(error, ValueError) and not node.plain:
        return _wrong_number(error, node.op) or error
    return error


def prepare(nodes: Sequence[NodePlan]) -> None:
    """Looks up which nodes that just pass values on have to do with reference variables."""
    for node in nodes:
        kind = node.op.type
        if not node.refs and (kind in PASSES_ON or kind in ("_Retval", "_DeviceRetval")):
            node.refs = ref_inputs(node.op)
