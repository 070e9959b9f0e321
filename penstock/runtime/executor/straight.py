"""The fast path: a partition without control flow and asynchronous kernels is a list of calls.

The program is laid out once. Every value has a register; constants stand in the registers' template, arguments are put there
first, and a register is cleared, or taken over by a kernel's result, as soon as nobody needs its value any more. Running it is
one loop over tuples `(shape of the call, kernel, input, second input, outputs, registers to clear)`. The nodes are in a list of their own: to take one
out of a tuple touches its memory, which costs a sixth of the time of a long program, and only who reports an error needs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from operator import length_hint
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.graph.tensor import Tensor
from penstock.ops.context import OpContext
from penstock.ops.interrupts import Uninterrupted, is_from_handler
from penstock.runtime.executor import pieces
from penstock.runtime.kernels import changes_state, ref_inputs
from penstock.runtime.quiet import enter, leave
from penstock.runtime.story import explain

if TYPE_CHECKING:
    from penstock.runtime.devices import Device
    from penstock.runtime.executor.plan import NodePlan

# Shapes of calls. The first three write one register.
NULLARY, UNARY, BINARY, ANY, ANY_CTX = 0, 1, 2, 3, 4
LIST, LIST_CTX = 5, 6  # any number of outputs

_TRASH = 0  # the register of outputs that nobody reads

_ARGS = ("_Arg", "_DeviceArg")
_RETVALS = ("_Retval", "_DeviceRetval")
_CONSTANTS = ("Const", "HostConst")


class StraightProgram:
    """A partition as a list of calls."""

    __slots__ = ("args", "n_args", "needs_ctx", "nodes", "pieces", "program", "retvals", "silent", "template", "writes")

    def __init__(self) -> None:
        self.program: list[tuple] = []
        self.nodes: list[NodePlan] = []  # whose calls these are
        self.pieces: list[Callable[[list[Any], Any], None]] | None = None  # the calls as functions, if there are very many
        self.template: list[Any] = [None]
        self.args: list[tuple[int, int]] = []  # (index of the argument, register)
        self.retvals: list[tuple[int, int]] = []
        self.silent: list[NodePlan] = []  # nodes without a call: constants, arguments, results, NoOps
        self.needs_ctx = False
        self.writes = False  # Ctrl-C waits for the end of the step
        self.n_args = 0

    def run(self, step: Any, device: Device) -> None:
        """Runs the step: arguments out of its call frame, results into it. Raises the first error."""
        if self.writes:
            with Uninterrupted():
                self._run(step, device)
        else:
            self._run(step, device)

    def _run(self, step: Any, device: Device) -> None:
        values = self.template.copy()
        frame = step.call_frame
        if self.args:
            args = frame.args
            if len(args) < self.n_args:
                frame.get_arg(self.n_args - 1)
            for i, register in self.args:
                values[register] = args[i]
        ctx = OpContext(step, device) if self.needs_ctx else None
        if self.pieces is None:
            self._run_calls(values, ctx, step, device)
        else:
            self._run_pieces(values, ctx, step, device)
        retvals = frame.retvals
        for i, register in self.retvals:
            retvals[i] = values[register]

    def _run_calls(self, values: list[Any], ctx: Any, step: Any, device: Device) -> None:
        ins: Any = ()
        kind = more = 0
        calls = iter(self.program)
        token = enter()
        try:
            for kind, fn, ins, more, out, free in calls:
                if kind == 2:
                    values[out] = fn(values[ins], values[more])
                elif kind == 1:
                    values[out] = fn(values[ins])
                elif kind == 3:
                    values[out] = fn(*[values[i] for i in ins])
                elif kind == 4:
                    values[out] = fn(ctx, *[values[i] for i in ins])
                elif kind == 0:
                    values[out] = fn()
                else:
                    if kind == 5:
                        results = fn(*[values[i] for i in ins])
                    else:
                        results = fn(ctx, *[values[i] for i in ins])
                    if out:
                        if len(results) != len(out):
                            raise wrong_number(self._last(calls), results)
                        for register, value in zip(out, results):
                            values[register] = value
                        results = None
                if free is not None:
                    for register in free:
                        values[register] = None
        except Exception as error:
            if is_from_handler(error):
                raise
            inputs = [values[i] for i in _registers(kind, ins, more)]
            told = _explained(error, step, device, self._last(calls), inputs)
            raise told from told.__cause__
        finally:
            leave(token)

    def _run_pieces(self, values: list[Any], ctx: Any, step: Any, device: Device) -> None:
        start = -pieces.PART
        token = enter()
        try:
            for piece in self.pieces or ():
                start += pieces.PART
                piece(values, ctx)
        except Exception as error:
            found = None if is_from_handler(error) else pieces.place(error.__traceback__)
            if found is None:
                raise
            number, names = start + found[0], found[1]
            kind, _, ins, more, _, _ = self.program[number]
            node = self.nodes[number]
            inputs = [names[f"r{i}"] for i in _registers(kind, ins, more)]
            told = _explained(wrong_number(node, error.results) if isinstance(error, pieces.WrongNumber) else error, step, device, node, inputs)
            raise told from told.__cause__
        finally:
            leave(token)

    def _last(self, calls: Iterator[tuple]) -> NodePlan:
        """The node whose call was taken out of the program last."""
        return self.nodes[-1 - length_hint(calls)]

    def run_traced(self, step: Any, device: Device, collector: Any) -> None:
        """As `run`, with a row of the collector per node. A loop of its own, so that `run` pays nothing for it."""
        with Uninterrupted():
            self._run_traced(step, device, collector)

    def _run_traced(self, step: Any, device: Device, collector: Any) -> None:
        values = self.template.copy()
        frame = step.call_frame
        if len(frame.args) < self.n_args:
            frame.get_arg(self.n_args - 1)
        for i, register in self.args:
            values[register] = frame.args[i]
        ctx = OpContext(step, device)
        clock = time.perf_counter_ns
        record = collector.recorder(device.name)
        for silent in self.silent:
            now = clock()
            record(silent, now, now, now, now, ())
        node: Any = None
        ins: Any = ()
        kind = more = 0
        token = enter()
        try:
            for (kind, fn, ins, more, out, free), node in zip(self.program, self.nodes):
                all_start = clock()
                inputs = [values[i] for i in _registers(kind, ins, more)]
                op_start = clock()
                results = fn(ctx, *inputs) if kind in (ANY_CTX, LIST_CTX) else fn(*inputs)
                op_end = clock()
                if kind < LIST:
                    values[out] = results
                    results = (results,)
                elif out:
                    if len(results) != len(out):
                        raise wrong_number(node, results)
                    for register, value in zip(out, results):
                        values[register] = value
                if free is not None:
                    for register in free:
                        values[register] = None
                record(node, all_start, op_start, op_end, clock(), results or ())
        except Exception as error:
            if is_from_handler(error):
                raise
            told = _explained(error, step, device, node, [values[i] for i in _registers(kind, ins, more)])
            raise told from told.__cause__
        finally:
            leave(token)
        for i, register in self.retvals:
            frame.retvals[i] = values[register]


def wrong_number(node: NodePlan, results: Any) -> errors.InternalError:
    """The error for a kernel that gave another number of outputs than its signature has."""
    return errors.InternalError(
        f"The kernel of {node.op.type} gave {len(results)} outputs; {len(node.op.outputs)} were expected"
    )


def _registers(kind: int, ins: Any, more: int) -> tuple[int, ...]:
    return () if kind == NULLARY else (ins,) if kind == UNARY else (ins, more) if kind == BINARY else ins


def _explained(error: Exception, step: Any, device: Device, node: NodePlan, inputs: list[Any]) -> errors.OpError:
    return explain(error, node.op, device.name, inputs, f"running step {step.step_id}", step.depth == 0)


def straight_program(nodes: list[NodePlan], n_args: int, may_write: bool = False) -> StraightProgram:
    """Lays out the program of a partition whose nodes are all synchronous. `may_write`: as functions, if it is very long."""
    program = StraightProgram()
    program.n_args = n_args
    program.writes = any(changes_state(op) for op in {node.op.type: node.op for node in nodes}.values())
    template = program.template
    register_of: dict[Tensor, int] = {}
    free_registers: list[int] = []
    last_reader = _last_readers(nodes)
    kept: set[int] = set()  # registers that must stay: constants (they belong to the template) and results
    results_seen: set[int] = set()

    def new_register() -> int:
        if free_registers:
            return free_registers.pop()
        template.append(None)
        return len(template) - 1

    for node in nodes:
        op = node.op
        kind = op.type
        if kind in _ARGS:
            register = register_of[op.outputs[0]] = new_fixed(template)
            program.args.append((op.attrs["index"], register))
            program.silent.append(node)
            continue
        if kind in _CONSTANTS:
            register = register_of[op.outputs[0]] = new_fixed(template)
            template[register] = node.fn()
            kept.add(register)
            program.silent.append(node)
            continue
        if kind == "NoOp" or kind == "ControlTrigger":
            program.silent.append(node)
            continue
        inputs = tuple([register_of[t] for t in op.inputs])
        if kind in _RETVALS and not ref_inputs(op):
            index = op.attrs["index"]
            if index in results_seen:
                raise errors.InternalError(f"Retval[{index}] has already been set.")
            results_seen.add(index)
            program.retvals.append((index, inputs[0]))
            kept.add(inputs[0])
            program.silent.append(node)
            continue
        dying = {r for t, r in zip(op.inputs, inputs) if last_reader[t] is node and r not in kept}
        program.needs_ctx |= node.needs_ctx
        program.nodes.append(node)
        if node.plain:
            if op.outputs[0] in last_reader:
                # The result takes a dying input's register: no clearing is needed.
                out = register_of[op.outputs[0]] = dying.pop() if dying else new_register()
                clear = tuple(dying)
            else:
                out, clear = _TRASH, (_TRASH, *dying)
            shape, ins, more = _call_shape(node, inputs)
            program.program.append((shape, node.fn, ins, more, out, clear or None))
        else:
            outs = []
            for tensor in op.outputs:
                if tensor in last_reader:
                    register_of[tensor] = new_register()
                    outs.append(register_of[tensor])
                else:
                    outs.append(_TRASH)
                    dying.add(_TRASH)
            shape = LIST_CTX if node.needs_ctx else LIST
            program.program.append((shape, node.fn, inputs, 0, tuple(outs), tuple(dying) or None))
        if dying:
            free_registers += [r for r in dying if r != _TRASH]
    if may_write and len(program.program) >= pieces.LEAST:
        constants = {register_of[node.op.outputs[0]] for node in program.silent if node.op.type in _CONSTANTS}
        program.pieces = pieces.pieces_of(program.program, constants)
    return program


def new_fixed(template: list[Any]) -> int:
    """A register that no value had before: arguments and constants are there before the first call."""
    template.append(None)
    return len(template) - 1


def _call_shape(node: NodePlan, inputs: tuple[int, ...]) -> tuple[int, Any, int]:
    if node.needs_ctx:
        return ANY_CTX, inputs, 0
    if len(inputs) == 2:
        return BINARY, inputs[0], inputs[1]
    if len(inputs) == 1:
        return UNARY, inputs[0], 0
    return (NULLARY, 0, 0) if not inputs else (ANY, inputs, 0)


def _last_readers(nodes: list[NodePlan]) -> dict[Tensor, NodePlan]:
    """Who reads each output last. A result is read at the end, after everything."""
    last: dict[Tensor, NodePlan] = {}
    results: dict[Tensor, NodePlan] = {}
    for node in nodes:
        is_result = node.op.type in _RETVALS and not ref_inputs(node.op)
        for tensor in node.op.inputs:
            (results if is_result else last)[tensor] = node
    last.update(results)
    return last
