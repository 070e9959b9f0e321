"""Generated code in the executor's place: a partition that is warm and whose control flow has structure runs as one function.

A partition runs its first steps as it is: most signatures run once (initialisers, checks), and source code takes time to write
and compile. After `WARM` steps (at once, if there are loops) it is compiled: here and now if it is short, else on a thread of
its own while steps go on as before. What cannot be compiled stays with the interpreter or the dataflow executor.

`PENSTOCK_REGIONS` in the environment: 0 never, 1 when warm (the default), eager before the first step.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import weakref
from collections.abc import Callable, Sequence
from time import perf_counter_ns as clock
from time import process_time_ns
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.engines import turns
from penstock.engines.python import parallel
from penstock.engines.python.code import Blame, Cancelled, Code
from penstock.engines.python.codegen import generate
from penstock.engines.python.structure import PASSES_ON, Unstructured, structure
from penstock.engines.turns import beside, resting
from penstock.engines.xla.backend import is_deterministic, to_host
from penstock.engines.xla.match import Match
from penstock.graph import spec
from penstock.graph.ir import Operation
from penstock.graph.quiet_gc import paused
from penstock.ops import philox
from penstock.ops.context import DEAD, OpContext
from penstock.ops.interrupts import Uninterrupted, is_from_handler
from penstock.ops.kernels.threads import set_parallel_for
from penstock.runtime.executor import pieces
from penstock.runtime.executor.crew import Crew, crew_for
from penstock.runtime.kernels import changes_state, read_ref, ref_inputs
from penstock.runtime.quiet import enter, leave
from penstock.runtime.story import as_op_error, explain
from penstock.runtime.threads import parallel_for, run_blocking
from penstock.shapes import num_elements

if TYPE_CHECKING:
    from penstock.runtime.devices import Device
    from penstock.runtime.executor.plan import NodePlan

WARM = 3
"""Steps before a partition without loops is compiled."""
AT_ONCE, AT_ONCE_LOOPS = 60, 400
"""Up to so many nodes are compiled in the step that finds them warm; more of them where loops would take longer than that."""
LARGE = 1 << 20
"""Elements of an array from which on even the first step is worth code."""
HOT_NS = 300_000_000
"""Time that steps have spent in a program before XLA is tried on it: compiling takes about as long."""
MANY_SHAPES, LONG_NS = 8, 3_000
"""Shapes of its arguments with which a program is one of many sizes, and the time that its nodes take on average if they are large, not many."""
OFF, ON, EAGER = 0, 1, 2
_OFF_TEXT = "generated code is switched off"

parallel.parallel_for = parallel_for
philox.parallel_for = parallel_for
set_parallel_for(parallel_for)

_log = logging.getLogger("penstock.regions")


def mode() -> int:
    """What PENSTOCK_REGIONS says."""
    text = os.environ.get("PENSTOCK_REGIONS", "1").strip().lower()
    if text in ("0", "off", "false"):
        return OFF
    # When code takes over must not depend on how busy the machine is, if results are to repeat.
    return EAGER if text == "eager" or is_deterministic() else ON


class _Never:
    """Stands for a cancellation manager where there is none."""

    is_cancelled = False


_NEVER = _Never()


class CompiledProgram:
    """A partition as one generated function, or several joined ones: then `devices` are theirs."""

    __slots__ = ("_is_for_kernels", "code", "crew", "devices", "final", "n_args", "stale", "watch", "writes")

    def __init__(self, code: Code, n_args: int, devices: Sequence[Device] | None = None, nodes: Sequence[Any] = ()) -> None:
        self.code = code
        self.writes = any(changes_state(node.op) for node in nodes)  # Ctrl-C waits for the end of the step, or of a round of its loops
        self.n_args = n_args
        self.devices = devices
        self.watch: HotWatch | None = None
        self.stale: Compiler | None = None
        self.final: Final | None = None
        self.crew: Crew | None = None
        self._is_for_kernels = False

    @property
    def is_for_kernels(self) -> bool:
        """Whether XLA is not tried on it (see HotWatch), as far as is known by now."""
        watch = self.watch
        return self._is_for_kernels if watch is None else watch.is_for_kernels

    def run(self, step: Any, device: Device) -> None:
        """Runs the step: arguments out of its call frame, results into it. Raises the first error."""
        frame = step.call_frame
        args = frame.args
        if len(args) < self.n_args:
            frame.get_arg(self.n_args - 1)
        code = self.code
        ctx: Any = None
        if code.needs_ctx:
            ctx = OpContext(step, device) if self.devices is None else [OpContext(step, d) for d in self.devices]
        watch, final, crew = self.watch, self.final, self.crew
        before = 0 if crew is None else crew.enter()
        start = 0 if watch is None and final is None and crew is None and not turns.hungry else clock()
        token = enter()
        try:
            if self.writes:
                with Uninterrupted():
                    results = code.run(ctx, args, step._cancellation or step._outer_cancellation or _NEVER)
            else:
                results = code.run(ctx, args, step._cancellation or step._outer_cancellation or _NEVER)
        except Exception as error:
            if is_from_handler(error):
                raise
            told = self._explained(error, step, device)
            raise told from told.__cause__
        finally:
            leave(token)
            if crew is not None:
                crew.leave(before)
        if crew is not None and (final is None or not final.is_on):
            crew.after(clock() - start)
            if crew.is_over:
                self.crew = None
        if final is not None:
            final.after(self, clock() - start)
        if turns.hungry and start:
            turns.make_way(clock() - start)
        if watch is not None:
            if watch.is_hot(clock() - start, args):
                self._is_for_kernels = watch.is_for_kernels
                self.watch = None
                watch.begin()
        elif self.stale is not None and self.stale._offload.is_stale:
            self.stale.again()
        retvals = frame.retvals
        if self.stale is not None and step.depth:
            results = [to_host(value) for value in results]  # the caller may be on another device
        if not code.may_die:
            for i, value in zip(code.results, results):
                retvals[i] = value
        else:
            for i, value in zip(code.results, results):
                if value is not DEAD:
                    retvals[i] = value

    def _explained(self, error: Exception, step: Any, device: Device) -> errors.OpError:
        if isinstance(error, Cancelled):
            reason = (step._cancellation or step._outer_cancellation).reason
            return errors.CancelledError("Step was cancelled") if reason is None else as_op_error(reason)
        blame = self.code.blame(error.__traceback__)
        if blame is None:
            return as_op_error(error)
        node, inputs, loop = blame
        op, where = (node.op, device.name) if self.devices is None else (node.told, node.device)
        told = own_words(error, blame, self.code)
        doing = f"running step {step.step_id}"
        if loop is not None:
            doing += f", iteration {loop[1]} of loop '{loop[0]}'"
        return explain(told, op, where, inputs, doing, step.depth == 0)


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


class Final:
    """Which of two programs stays: `first`, or `second`, which hands parts to XLA. Each part has been tried against its own generated code by then, but a part that
    is quick itself may cost the rest of the step more than it gains: its results lie in the caches of another core, code that is cut into parts has calls between them and
    writes into less of what is not needed any more. So whole steps decide, some of each program in turn, as parts are compared (`engines.xla.match`).

    Where sizes differ from step to step, parts may be on trial for ever. If nothing comes of it for long, the first program stays without a final.

    match     steps of the final, once parts are no longer on trial (`is_on`), and when it is repeated: a close result is, up to `LOOKS` times
    waits     steps for which parts have been on trial since `standing`, what had come of it by then
    """

    __slots__ = ("_compiler", "_cpu", "_first", "_parts", "_second", "is_on", "match", "standing", "waits")
    TRIALS = 8
    LOOKS = 4
    LONG = 2000

    def __init__(self, compiler: Compiler, first: CompiledProgram, second: CompiledProgram, parts: Sequence[Any]) -> None:
        self._compiler, self._first, self._second, self._parts = compiler, first, second, parts
        self.match = Match(8)
        self.is_on = False
        self.waits = self._cpu = 0
        self.standing: list[Any] = []

    def after(self, program: CompiledProgram, ns: int) -> None:
        """A step of one of the two took so long."""
        match = self.match  # steps of other threads may end meanwhile; one more or less does no harm
        if match.rest > 0:
            match.rest -= 1
            if match.rest <= 0:
                match.begin_look()
            return
        if not self.is_on:
            if program is self._first or all(part.is_settled for part in self._parts):
                self._begin()
            else:
                self._wait()
            return
        before, self._cpu = self._cpu, process_time_ns()
        match.note(program is self._second, ns, self._cpu - before)
        if match.is_over(self.TRIALS):
            self._decide()
        else:
            self._compiler.program = self._second if match.is_xlas_turn else self._first

    def _begin(self) -> None:
        self.is_on = True
        self._first.final = self._second.final = self
        self._compiler.program = self._first
        self._cpu = process_time_ns()

    def _decide(self) -> None:
        match = self.match
        times = match.times(self.TRIALS)
        is_won = match.is_won(self.TRIALS)
        self.is_on = False
        self._compiler.program = self._second if is_won else self._first
        match.rest *= 3  # not when parts are looked at again
        if match.count == self.LOOKS or match.rest <= 0:
            match.rest = 0
            self._first.final = self._second.final = None
        _log.debug("Whole steps: %.0f us, with parts by XLA %.0f us; %s stay", *(ns / 1e3 for ns in times), "the latter" if is_won else "the former")

    def _wait(self) -> None:
        self.waits += 1
        if self.waits >= self.LONG:
            self.waits = 0
            before, self.standing = self.standing, [part.standing for part in self._parts]
            if before == self.standing and None not in before:
                self._second.final = None
                self._compiler.program = self._first
                _log.debug("Nothing came of parts by XLA; the program stays as it was")


class Compiler:
    """Watches a partition warm up and compiles it once. `program` is there when it is done.

    On a device that computes through another engine (`kind.offload`), code is there before the first step, and is written anew when a node
    turns out to have no place in that engine. On a CPU, what is hot gets a second program, parts of which XLA may take over.
    """

    __slots__ = ("__weakref__", "_begun", "_limit", "_n_args", "_nodes", "_offload", "_runs", "_xla", "is_hot", "program", "reason")

    def __init__(
        self, nodes: Sequence[NodePlan], n_args: int, has_loops: bool, offload: Any = None, xla: str | None = None
    ) -> None:
        self.program: CompiledProgram | None = None
        self.reason = _OFF_TEXT
        self.is_hot = False
        self._nodes = nodes
        self._n_args = n_args
        self._runs = 0
        self._begun = False
        self._offload = offload
        self._xla = xla
        chosen = EAGER if offload is not None else mode()
        self._limit = 0 if chosen == EAGER or (chosen and (has_loops or _is_large(nodes))) else WARM
        if chosen == OFF:
            self._begun = True
            self._limit = -1

    @property
    def is_waiting(self) -> bool:
        """Whether a program may still come."""
        return self.program is None and self._limit >= 0 and self.reason == _OFF_TEXT

    def tick(self) -> CompiledProgram | None:
        """One more step is about to run. The program, if there is one now."""
        if self.program is not None or self._begun:
            return self.program
        self._runs += 1
        if self._runs > self._limit:
            self._begun = True
            eager = self._offload is not None or mode() == EAGER
            if eager or len(self._nodes) <= (AT_ONCE_LOOPS if self._limit == 0 else AT_ONCE):
                self.compile()
            else:
                run_blocking(self._compile_beside)
        return self.program

    def _compile_beside(self) -> None:
        is_long = len(self._nodes) >= pieces.LEAST  # and steps are quick meanwhile
        with beside(), resting() if is_long else contextlib.nullcontext():
            self.compile()

    def _second(self, offload: Any) -> None:
        """Puts a program in the first one's place that hands parts to `offload`, if that takes any."""
        program = self._written(offload)
        if offload.programs:
            if self.program is not None and not offload.eager:
                program.final = Final(self, self.program, program, offload.programs)
                program.crew = self.program.crew
                if program.crew is not None:
                    program.crew.contests = [part.contests for part in offload.programs]
            self.program = program
            self.is_hot = True

    def _written(self, offload: Any) -> CompiledProgram:
        return compiled(self._nodes, self._n_args, offload)

    def again(self) -> None:
        """Writes the code anew, for the next step: a node has to leave the engine that the code handed it to."""
        self._offload.is_stale = False
        self.compile()

    def find(self) -> CompiledProgram | None:
        """The program, compiled now if need be."""
        if self.program is None and (mode() != OFF or self._offload is not None) and self.reason == _OFF_TEXT:
            self.compile()
        return self.program

    def source(self) -> str:
        """The source of the program, if there is one."""
        return "" if self.program is None else self.program.code.source

    def compile(self) -> None:
        """Compiles now. A signal waits meanwhile: what its handler raises would pass for a program that cannot be written."""
        with Uninterrupted():
            self._compile()

    def _compile(self) -> None:
        self._begun = True
        try:
            program = self._written(self._offload)
            if self._offload is not None:
                program.stale = self
            else:
                program.watch = watch_for(self._second, self._xla, len(self._nodes), program.code.has_loops)
                program.crew = crew_for(self._nodes)
            self.program = program
        except Unstructured as reason:
            self.reason = str(reason)
            _log.debug("Left to the dataflow executor: %s", reason)
        except Exception as error:
            if spec.enabled:
                raise
            # A program that cannot be written must not stop a step that can run without it.
            self.reason = f"its code could not be generated ({type(error).__name__}: {error}); please report this"
            _log.exception("No code was generated for a partition; it runs node by node")


def _is_large(nodes: Sequence[NodePlan]) -> bool:
    """Whether a short partition works on arrays so large that their number matters: generated code gets along with fewer of them."""
    return len(nodes) <= AT_ONCE_LOOPS and any((num_elements(t.dims) or 0) >= LARGE for node in nodes for t in node.op.outputs)


def compiled(nodes: Sequence[NodePlan], n_args: int, offload: Any = None) -> CompiledProgram:
    """The program of a partition whose nodes are all synchronous. Raises Unstructured."""
    prepare(nodes)
    try:
        with paused():
            return CompiledProgram(generate(nodes, "partition", read_ref, offload=offload), n_args, nodes=nodes)
    except RecursionError:
        raise Unstructured("control flow is nested too deeply") from None


_watches: weakref.WeakSet[HotWatch] = weakref.WeakSet()


def watched_ns() -> int:
    """Time that steps have spent in programs that are not hot yet. While it grows, there may be more to compile."""
    return sum(watch.spent for watch in list(_watches))


class HotWatch:
    """Counts the time that steps spend in a program. When it is hot, a second one is written in the background, of which XLA computes the
    parts that it computes faster; steps go on meanwhile. `write(offload)` writes and installs it.

    Where arguments come in many shapes, XLA has to be compiled for many sizes, and computes with room to spare. Loops and tangles of small nodes are worth that. Large
    kernels are not: they are as quick without it, and to import, trace and try takes seconds in which steps have half of the interpreter's time.

    spent, steps   time, and in how many steps
    shapes         of the arguments of the first steps, and of every sixteenth
    """

    __slots__ = ("__weakref__", "_eager", "_n_nodes", "_write", "shapes", "spent", "steps")

    def __init__(self, write: Callable[[Any], None], eager: bool, n_nodes: int = 0) -> None:
        self.spent = HOT_NS if eager else 0
        self.steps = 0
        self.shapes: set[Any] = set()
        self._write = weakref.WeakMethod(write)  # whose object holds the watch, and may go before it is hot
        self._eager = eager
        self._n_nodes = n_nodes
        _watches.add(self)

    def is_hot(self, ns: int, args: Sequence[Any]) -> bool:
        """A step with these arguments took so long: whether that was enough."""
        self.spent += ns
        self.steps += 1
        if self.steps <= 2 * MANY_SHAPES or not self.steps % 16:
            self.shapes.add(tuple([getattr(value, "shape", None) for value in args]))
        return self.spent > HOT_NS

    @property
    def is_for_kernels(self) -> bool:
        """Whether it is a program of many sizes whose nodes are large. `_n_nodes` is 0 if it has loops."""
        return bool(self._n_nodes) and len(self.shapes) > MANY_SHAPES and self.spent > LONG_NS * self.steps * self._n_nodes

    def begin(self) -> None:
        from penstock.engines.xla import backend

        if not self._eager and self.is_for_kernels:
            _log.debug("Left to generated code: arguments come in many shapes, and nodes take long")
            return
        if self._eager:
            self._replace()
        else:
            backend.in_background(self._replace)

    def _replace(self) -> None:
        from penstock.engines.xla.offload import CpuOffload

        write = self._write()
        if write is None:
            return
        try:
            write(CpuOffload(self._eager))
        except Exception:
            if spec.enabled:
                raise
            _log.exception("No second program was made for a hot partition; the first one goes on")


MOST_NODES = 20_000
"""Of a partition that XLA is tried on: writing down and compiling more would take a core for a long time."""


def watch_for(write: Callable[[Any], None], wish: str | None, n_nodes: int, has_loops: bool) -> HotWatch | None:
    """A watch on a program, if XLA could take something over. `wish` is the session's (backend.OFF, AUTO, EAGER), None if it leaves it to the environment."""
    from penstock.engines.xla import backend

    chosen = backend.mode() if wish is None else wish
    if n_nodes > MOST_NODES:
        return None
    if chosen == backend.OFF or not backend.is_available() or not backend.fits() or (backend.is_deterministic() and chosen != backend.EAGER):
        return None
    return HotWatch(write, chosen == backend.EAGER, 0 if has_loops else n_nodes)


class RegionKernel:
    """The kernel of a `_Region` node: `kernel(ctx, *inputs)` gives the list of its outputs."""

    __slots__ = ("__weakref__", "_body", "_crew", "_nodes", "_offload", "_watch", "code")

    def __init__(self, nodes: Sequence[NodePlan], body: Any, offload: Any = None, xla: str | None = None) -> None:
        prepare(nodes)
        self._nodes = nodes
        self._body = body
        self._offload = offload
        self.code = self._generated(offload)
        self._watch = None if offload is not None else watch_for(self._second, xla, len(nodes), self.code.has_loops)
        self._crew = None if offload is not None else crew_for(nodes)

    def _generated(self, offload: Any) -> Code:
        return generate(self._nodes, "region", read_ref, self._body.inputs, self._body.outputs, offload)

    def _second(self, offload: Any) -> None:
        code = self._generated(offload)
        if offload.programs:
            self.code = code
            if self._crew is not None:
                self._crew.contests = [part.contests for part in offload.programs]

    def __call__(self, ctx: OpContext, *inputs: Any) -> tuple:
        watch, crew = self._watch, self._crew
        code = self.code
        stop = ctx.cancellation if code.has_loops else _NEVER
        if watch is None and crew is None:
            results = code.run(ctx, inputs, stop)
            if self._offload is not None and self._offload.is_stale:
                self._offload.is_stale = False
                self.code = self._generated(self._offload)
            return results
        start = clock()
        if crew is None:
            results = code.run(ctx, inputs, stop)
        else:
            before = crew.enter()
            try:
                results = code.run(ctx, inputs, stop)
            finally:
                crew.leave(before)
            crew.after(clock() - start)
            if crew.is_over:
                self._crew = None
        if watch is not None and watch.is_hot(clock() - start, inputs):
            self._watch = None
            watch.begin()
        return results

    def blame(self, error: BaseException) -> tuple[BaseException, Operation, list[Any], tuple[str, int] | None] | None:
        """What really failed: the error as its kernel tells it, the node, the node's inputs, and the loop of the region it is in."""
        blame = self.code.blame(error.__traceback__)
        return None if blame is None else (own_words(error, blame, self.code), blame.node.op, blame.inputs, blame.loop)


def has_structure(nodes: Sequence[NodePlan]) -> bool:
    """Whether the control flow of some nodes of a partition can be written as statements."""
    prepare(nodes)
    try:
        structure(nodes)
    except (Unstructured, RecursionError):
        return False
    return True


def own_words(error: BaseException, blame: Blame, code: Code) -> BaseException:
    """The error as the node's kernel tells it, where the generated line says it differently."""
    node = blame.node
    if node.op in code.words:
        return errors.InvalidArgumentError(code.words[node.op])
    if node.op in code.shortened and len(blame.inputs) == len(node.op.inputs):
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
