"""XLA as an engine that takes statements over from generated code (`codegen.Offload`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.engines.python.arrays import ARRAY_OPS
from penstock.engines.python.expressions import variables_read
from penstock.engines.python.structure import Branch, Call, Loop, Offloaded
from penstock.engines.python.walk import everything, reads
from penstock.engines.xla import backend
from penstock.engines.xla.device import DeviceProgram
from penstock.engines.xla.hot import HotProgram, HotStateProgram
from penstock.engines.xla.loops import STACK_OPS
from penstock.engines.xla.program import Program
from penstock.engines.xla.segments import (
    HANDLES,
    CpuPolicy,
    Policy,
    Segment,
    StatePolicy,
    find_segments,
    may_be_worth_it,
    touches_variable,
)
from penstock.graph.ir import Tensor


class _XlaOffload:
    keeps_values = False

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.programs: list[Program] = []

    def split(self, block: list, root: Callable[[Tensor], Tensor], constants: dict[Tensor, Any], results: list[Tensor]) -> list:
        backend.start()
        found = find_segments(block, root, constants, results, self.policy)
        return self._replaced(found, root, constants)

    def _replaced(self, block: list, root: Callable[[Tensor], Tensor], constants: dict[Tensor, Any]) -> list:
        result = []
        for statement in block:
            if isinstance(statement, Segment):
                needed = {root(t) for s in everything(statement.statements) for t in reads(s)}
                mine = {t: constants[t] for t in needed if t in constants}
                program = self.program(statement, root, mine)
                self.programs.append(program)
                statement = Offloaded(program, statement.statements, statement.inputs, statement.outputs)
            elif isinstance(statement, Branch):
                statement = statement._replace(
                    yes=self._replaced(statement.yes, root, constants), no=self._replaced(statement.no, root, constants)
                )
            elif isinstance(statement, Loop):
                statement = statement._replace(
                    cond=self._replaced(statement.cond, root, constants), body=self._replaced(statement.body, root, constants)
                )
            result.append(statement)
        return result

    def program(self, segment: Segment, root: Callable[[Tensor], Tensor], constants: dict[Tensor, Any]) -> Program:
        raise NotImplementedError


class CpuOffload(_XlaOffload):
    """Hot regions of a CPU."""

    def __init__(self, eager: bool = False) -> None:
        self._cpu = CpuPolicy()
        super().__init__(self._cpu)
        self.eager = eager
        if eager:
            self.policy.smallest = 1

    def split(self, block: list, root: Callable[[Tensor], Tensor], constants: dict[Tensor, Any], results: list[Tensor]) -> list:
        if not self.eager and not may_be_worth_it(block, self._cpu):
            return block
        backend.start()
        if any(_uses_variable(s) for s in block) and not any(_is_joined(s) for s in block):
            policy = StatePolicy()
            found = find_segments(block, root, constants, results, policy)
            if policy.is_whole(found):
                return with_handles(self._replaced(found, root, constants), root, results)
        return super().split(block, root, constants, results)

    def program(self, segment: Segment, root: Callable[[Tensor], Tensor], constants: dict[Tensor, Any]) -> Program:
        if isinstance(segment.policy, StatePolicy):
            return HotStateProgram(segment, root, constants, eager=self.eager)
        return HotProgram(segment, root, constants, eager=self.eager)


class DeviceOffload(_XlaOffload):
    """Everything that an accelerator has rules for."""

    keeps_values = True

    def __init__(self, device: Any) -> None:
        super().__init__(Policy())
        self.device = device
        self.is_stale = False

    def split(self, block: list, root: Callable[[Tensor], Tensor], constants: dict[Tensor, Any], results: list[Tensor]) -> list:
        return with_handles(super().split(block, root, constants, results), root, results)

    def program(self, segment: Segment, root: Callable[[Tensor], Tensor], constants: dict[Tensor, Any]) -> Program:
        program = DeviceProgram(segment, root, constants, self.device)
        program.regenerate = self._regenerate
        return program

    def _regenerate(self) -> None:
        self.is_stale = True


def with_handles(block: list, root: Callable[[Tensor], Tensor], results: list[Tensor]) -> list:
    """Handles of variables that only programs read are looked up by these, once, and not by every step."""
    readers: dict[Tensor, int] = {root(t): 1 for t in results}
    for statement in block:
        if not isinstance(statement, Offloaded):
            for part in everything([statement]):
                for tensor in reads(part):
                    readers[root(tensor)] = 1
    hidden = {
        s.node.op.outputs[0]: s.node
        for s in block
        if isinstance(s, Call) and s.node.op.type in HANDLES and s.node.needs_ctx and s.node.op.outputs[0] not in readers
    }
    result = []
    for statement in block:
        if isinstance(statement, Call) and statement.node.op.outputs and statement.node.op.outputs[0] in hidden:
            continue
        if isinstance(statement, Offloaded) and any(t in hidden for t in statement.inputs):
            mine = [t for t in statement.inputs if t in hidden]
            shown = [t for t in statement.inputs if t not in hidden]
            statement.program.inputs = [*shown, *mine]
            statement.program.handles = [hidden[t] for t in mine]
            # The host's form asks for them itself.
            statement = statement._replace(inputs=shown, host=[*(Call(hidden[t]) for t in mine), *statement.host])
        result.append(statement)
    return result


def _uses_variable(statement: Any) -> bool:
    if isinstance(statement, Loop):
        return any(isinstance(s, Call) and (variables_read(s.node) or _uses_variable(s)) for s in everything([statement]))
    return isinstance(statement, Call) and statement.node.op.type not in (STACK_OPS | ARRAY_OPS) and touches_variable(statement.node.op)


def _is_joined(statement: Any) -> bool:
    """Whether it comes from one of several devices' partitions: then there is no one device whose variables a program could hold."""
    return isinstance(statement, Call) and getattr(statement.node, "context", "ctx") != "ctx"
