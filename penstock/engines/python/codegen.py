"""Structured statements -> Python source of one function, compiled once.

    code = generate(nodes, name="region 7")
    results = code.run(ctx, args, stop)            # the values of the region's _Retvals, in the order of `code.results`

Every value is a local name, every node one line with its name and type behind it; constants and kernels are globals of the
generated module. A value is let go of after its last reader. `stop.is_cancelled` is looked at in every round of a loop.
Long programs are cut into functions of `PART` statements that hand values on in a list, so that compiling one stays quick.

`Code.blame(traceback)` finds the node that was running: line -> node, and the node's inputs out of the frame's locals.

`scope` keeps names and lines, `statements` writes them; here is the order in which things are found out.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, Protocol

import numpy as np

from penstock.engines.memory import keep_freed_memory
from penstock.engines.python import products
from penstock.engines.python.arrays import NEW, NO_FLOW, find_arrays, flows
from penstock.engines.python.chains import with_chains
from penstock.engines.python.code import Code, compile_pieces
from penstock.engines.python.counters import Counters, find_counters
from penstock.engines.python.elementwise import find_runs
from penstock.engines.python.facts import find_owned, find_sure
from penstock.engines.python.gradients import find_late
from penstock.engines.python.handles import with_handles
from penstock.engines.python.known import SHAPES, Known
from penstock.engines.python.scope import is_number
from penstock.engines.python.stacks import find_stacks
from penstock.engines.python.statements import Statements
from penstock.engines.python.structure import Call, Offloaded, Unstructured, structure
from penstock.engines.python.trim import without_broadcasts, without_unread
from penstock.engines.python.updating import with_updates
from penstock.engines.python.walk import everything, makes, paths, reads, without
from penstock.graph.ir import Operation, Tensor
from penstock.shapes import num_elements

PART = 400
"""Statements of one generated function."""

_ARGS = ("_Arg", "_DeviceArg")
_RETVALS = ("_Retval", "_DeviceRetval")
_CONSTANTS = ("Const", "HostConst")
MOST_LOOKS = 8
"""How often code is gone through for what is known: each time more may be."""
_numbers = itertools.count(1)


class Offload(Protocol):
    """An engine that takes statements over."""

    keeps_values: bool
    """Whether values may be elsewhere than in NumPy's arrays between statements: then every node's line is a call of its kernel."""

    def split(self, block: list, root: Callable[[Tensor], Tensor], constants: dict[Tensor, Any], results: list[Tensor]) -> list:
        """The block with Offloaded statements in it."""
        ...


def generate(
    nodes: Sequence[Any],
    name: str,
    read_ref: Callable[..., Any] | None = None,
    inputs: Sequence[Tensor] = (),
    outputs: Sequence[Tensor] = (),
    offload: Offload | None = None,
) -> Code:
    """The code for `nodes`, in topological order. Raises structure.Unstructured.

    Arguments are the region's `inputs` first, then its _Args by index; results are `outputs` first, then its _Retvals.
    `read_ref(ref, deref, name)` reads a reference variable for nodes that have no kernel. `offload` may take parts over.
    """
    code = Code(name)
    _Writer(nodes, structure(nodes), code, read_ref, inputs, outputs, offload).write()
    return code


class _Writer(Statements):
    """Finds out what there is to know of a region, then writes it."""

    def write(self) -> None:
        code = self.code
        if any(_may_be_big(t) for node in self.nodes for t in node.op.outputs):
            keep_freed_memory()
        args = self._frame_nodes()
        code.may_die = any(self.guards.get(t) for t in self.result_tensors)
        kept = {self._root(t) for t in self._read_at_end()}
        self.block = without_unread(self.block, self._root, kept)
        self.block, narrow = without_broadcasts(self.block, self._root, kept)
        self.alias.update(narrow)
        self.block = without(self.block, {s.node.op for s in everything(self.block) if isinstance(s, Call) and self._is_true(s.node.op)})
        self.stacks = find_stacks(paths(self.block), reads, self._root, self._read_at_end(), self._constant)
        # What a push gives is what was pushed. Runs know values by their names, so this comes before them.
        self.alias.update((op.outputs[0], op.inputs[1]) for op in self.stacks if op.type == "StackPushV2")
        self.arrays = find_arrays(paths(self.block), reads, self._root, self._read_at_end())
        for op in self.arrays:
            if op.type == NEW:
                self.constants_of[op.outputs[1]] = self.names[op.outputs[1]] = self._global(NO_FLOW, "c")
        self.alias.update(flows(self.arrays))
        self._with_known_shapes(args)
        if self.offload is not None:
            known = {t: self.globals[name] for t, name in self.constants_of.items()}
            self.block = self.offload.split(self.block, self._root, known, self._read_at_end())
        self.block = self._with_runs(self.block)
        if self.on_host:
            self._with_products(args)
        self.late = find_late(self.block, self._root, kept) if self.on_host else {}
        if self.on_host:
            self.block = self._in_groups(self.block, kept)
            self.block = [  # what another engine is compared with
                s._replace(host=self._in_groups(s.host, {*kept, *s.outputs})) if isinstance(s, Offloaded) else s for s in self.block
            ]
        self._find_kills()
        statements = list(paths(self.block))
        self.owned = find_owned(statements, reads, self._root, self.late)
        fed = [t for _, t in args if t.op.type in _ARGS]
        self.counters = Counters({}, {})
        if self.on_host:
            self.counters = find_counters(statements, reads, self._root, self._read_at_end(), self._constant)
        self.sure = find_sure(statements, self._root, [*self.constants_of, *fed, *self.cut], self.stacks, self.arrays)
        n = len(self.block)
        if n <= PART + PART // 2:
            self.lines.append("def region(ctx, args, stop):")
            self._load_args(args)
            self._statements(self.block, (), 0, n, 1)
            self._return(self._value)
        else:
            self._in_parts(args, n)
        for statement, path, name in self.programs:
            self._host_form(statement, path, name)
        self._compile()

    # -- before anything is written ---------------------------------------------------------------------------------------

    def _frame_nodes(self) -> list[tuple[int, Tensor]]:
        """Arguments, constants and results: nodes that are no call."""
        args: list[tuple[int, Tensor]] = [(i, t) for i, t in enumerate(self.inputs)]
        results: list[Any] = []
        self.constants_of: dict[Tensor, str] = {}
        for node in self.nodes:
            op = node.op
            if op.type in _ARGS:
                args.append((len(self.inputs) + op.attrs["index"], op.outputs[0]))
            elif op.type in _CONSTANTS:
                value = node.fn()
                if value.__class__ is np.ndarray and value.ndim == 0 and value.dtype.kind in "biufc":
                    value = value[()]
                name = self.constants_of[op.outputs[0]] = self._global(value, "c")
                self.names[op.outputs[0]] = name
            elif op.type in _RETVALS and not node.refs:
                results.append(node)
        self.result_tensors = [*self.outputs, *(node.op.inputs[0] for node in results)]
        self.code.results = [node.op.attrs["index"] for node in results]
        silent = {
            node.op for node in self.nodes if node.op.type in _ARGS or (node.op.type in _RETVALS and not node.refs)
        }
        self.block = without(self.block, silent)
        for node in results:
            if node.op.control_inputs and self.guards:
                raise Unstructured(f"{node.op.name}: a result with control inputs among branches")
        return args

    def _is_true(self, op: Operation) -> bool:
        """Whether it is the Assert of what is known to be true."""
        condition = self._constant(self._root(op.inputs[0])) if op.type == "Assert" else None
        return isinstance(condition, np.generic) and bool(condition)

    def _with_known_shapes(self, args: list[tuple[int, Tensor]]) -> None:
        """Shapes that turn out to be known in the place that they are asked for, and what follows from them, are constants."""
        calls = [s.node for s in everything(self.block) if isinstance(s, Call)]
        self.cut: list[Tensor] = []  # results whose shapes are sure because the bounds are constants now
        if not self.on_host or not any(node.op.type in SHAPES for node in calls):
            return
        fed = [t for _, t in args if t.op.type in _ARGS]
        kept = {self._root(t) for t in self._read_at_end()}
        known = Known(self._root, self._constant, self.stacks, {*kept, *self._read_at_end()})
        slices = [node.op for node in calls if node.op.type == "Slice"]
        for _ in range(MOST_LOOKS):
            sure = find_sure(list(paths(self.block)), self._root, [*self.constants_of, *fed, *self.cut], self.stacks, self.arrays)
            if not known.find(self.block, sure):
                break
            for tensor, value in known.values.items():
                if tensor not in self.constants_of:
                    self.constants_of[tensor] = self.names[tensor] = self._global(value, "c")
            self.alias.update(known.same)
            self.block = without(self.block, known.gone)
            self.cut = [op.outputs[0] for op in slices if self._is_cut_so(op)]
        self.stacks = {op: stack for op, stack in self.stacks.items() if op not in known.gone}
        self.block = without_unread(self.block, self._root, kept)

    def _is_cut_so(self, op: Operation) -> bool:
        """Whether the result of a Slice is sure to have its static shape: its bounds are known."""
        begin, size = (self._constant(self._root(t)) for t in op.inputs[1:])
        return begin is not None and size is not None and op.outputs[0].dims == tuple(size.tolist())

    def _with_runs(self, block: list) -> list:
        """The block with elementwise runs; those of offloaded statements are runs of their host form."""
        if not self.on_host:
            return block
        inside = [sub for sub in everything(block) if isinstance(sub, Offloaded)]
        block = find_runs(block, self._root, [*self._read_at_end(), *(t for s in inside for t in s.inputs)])
        return [
            s._replace(host=find_runs(s.host, self._root, s.outputs)) if isinstance(s, Offloaded) else s for s in block
        ]

    def _in_groups(self, block: list, kept: set[Tensor]) -> list:
        """The block with statements for several nodes each, where they stand side by side: variables, updates, chains of kernels."""
        block = with_updates(with_handles(block), self._root, kept)
        return with_chains(block, self._root, self._constant, kept, self.late)

    def _with_products(self, args: list[tuple[int, Tensor]]) -> None:
        if sum(node.op.type == "MatMul" for node in self.nodes) < products.FEWEST:
            return
        given = [*self.constants_of, *(t for _, t in args if t.op.type in _ARGS)]
        sure = find_sure(list(paths(self.block)), self._root, given)
        known = {t: self.globals[name] for t, name in self.constants_of.items()}
        readers: dict[Tensor, int] = {}
        for tensor in (*self._read_at_end(), *(t for _, s in paths(self.block) for t in reads(s))):
            root = self._root(tensor)
            readers[root] = readers.get(root, 0) + 1
        self.block = products.find_products(self.block, self._root, sure, known, readers)

    # -- functions --------------------------------------------------------------------------------------------------------

    def _load_args(self, args: list[tuple[int, Tensor]]) -> None:
        for index, tensor in args:
            if tensor in self.used:
                self.lines.append(f"    {self._name(tensor)} = {self._load(index, tensor)}  # {tensor.op.name}")

    def _load(self, index: int, tensor: Tensor) -> str:
        """An argument; a number that may come as an array without dimensions becomes a NumPy scalar."""
        return f"args[{index}][()]" if is_number(tensor) and tensor.op.type in _ARGS else f"args[{index}]"

    def _return(self, names: Callable[[Tensor], str]) -> None:
        results = [self._result(t, names) for t in self.result_tensors]
        switch = next((self.switch_of[g[0][0]] for g in map(self.guards.get, self.result_tensors) if g), None)
        inputs = self._told(switch.op.inputs) if switch is not None else ()
        self._line(1, f"return ({', '.join(results)}{',' if len(results) == 1 else ''})", switch, inputs)

    def _result(self, tensor: Tensor, names: Callable[[Tensor], str]) -> str:
        """A result that is dead unless its guard holds says so here."""
        guard = self.guards.get(tensor)
        if not guard:
            return names(tensor)
        tests = []
        for pred, side in guard:
            test = names(pred) if self._root(pred).dims == () else f"predicate({names(pred)})"
            tests.append(test if side else f"not {test}")
        return f"{names(tensor)} if {' and '.join(tests)} else DEAD"

    def _in_parts(self, args: list[tuple[int, Tensor]], n: int) -> None:
        """Several functions over a list of values: each loads what it reads, and puts back what a later one reads."""
        bounds = [*range(0, n, PART), n]
        if bounds[-1] - bounds[-2] < PART // 4:
            del bounds[-2]
        parts = list(itertools.pairwise(bounds))
        last = len(parts)
        read_in: dict[Tensor, list[int]] = {}
        made_in: dict[Tensor, int] = {root: -1 for _, t in args if (root := self._root(t)) in self.used}
        made_by: list[dict[Tensor, None]] = []
        for p, (a, b) in enumerate(parts):
            read, new = self._read_and_made(self.block[a:b])
            made_by.append(new)
            for tensor in read:
                read_in.setdefault(tensor, []).append(p)
            for tensor in new:
                if made_in.setdefault(tensor, p) != p:
                    read_in.setdefault(tensor, []).append(p)
        for tensor in self._read_at_end():
            root = self._root(tensor)
            if root in made_in:
                read_in.setdefault(root, []).append(last)
        slots: dict[Tensor, int] = {}
        for tensor, made in made_in.items():
            if any(p > made for p in read_in.get(tensor, ())):
                slots[tensor] = len(slots)
        # A Merge may get its value in one of two parts: each hands on what there is.
        conditional = self._conditional()
        told: list[dict[Tensor, int]] = [{} for _ in range(last + 1)]  # the values that a part has to do with, by slot
        for tensor, slot in slots.items():
            for p in {made_in[tensor], *read_in[tensor]} - {-1}:
                told[p][tensor] = slot
        for p, (a, b) in enumerate(parts):
            self._new_function()
            self.lines.append(f"def part_{p}(ctx, stop, shared):")
            for tensor, slot in told[p].items():
                if made_in[tensor] < p and p in read_in[tensor]:
                    self.lines.append(f"    {self._name(tensor)} = shared[{slot}]")
                    if max(read_in[tensor]) == p:
                        self.lines.append(f"    shared[{slot}] = None")
                elif tensor in conditional and tensor in made_by[p]:
                    self.lines.append(f"    {self._name(tensor)} = None")
            self._statements(self.block, (), a, b, 1)
            for tensor, slot in told[p].items():
                if tensor in made_by[p] and max(read_in[tensor]) > p:
                    self.lines.append(f"    shared[{slot}] = {self._name(tensor)}")
            self.lines.append("    return None")
            self.lines.append("")
        self._new_function()
        self.lines.append("def region(ctx, args, stop):")
        self.lines.append(f"    shared = [None] * {len(slots)}")
        for index, tensor in args:
            if self._root(tensor) in slots:
                self.lines.append(
                    f"    shared[{slots[self._root(tensor)]}] = {self._load(index, tensor)}  # {tensor.op.name}"
                )
        for p in range(last):
            self.lines.append(f"    part_{p}(ctx, stop, shared)")
        self._return(lambda t: f"shared[{slots[self._root(t)]}]" if self._root(t) in slots else self._value(t))

    def _conditional(self) -> set[Tensor]:
        """Values that only some way through the program makes."""
        certain = {t for s in self.block for t in makes(s)}
        every = {t for sub in everything(self.block) for t in makes(sub)}
        return {t for t in every - certain if t in self.used}

    def _read_and_made(self, statements: list) -> tuple[dict[Tensor, None], dict[Tensor, None]]:
        """Values that statements read, and values that they make."""
        read: dict[Tensor, None] = {}
        made: dict[Tensor, None] = {}
        for statement in everything(statements):
            read.update((t, None) for t in map(self._root, reads(statement)) if t not in self.constants_of)
            made.update((t, None) for t in makes(statement) if t in self.used)
        return read, made

    def _host_form(self, statement: Offloaded, path: tuple[int, ...], name: str) -> None:
        """A function that computes on the host what the program computes elsewhere."""
        self._new_function()
        self.lines += ["", f"def {name}({', '.join(['ctx', 'stop', *(self._name(t) for t in statement.inputs)])}):"]
        before, self.on_host = self.on_host, True
        loops, self.loops = self.loops, []
        self._statements(statement.host, (*path, 0), 0, len(statement.host), 1)
        self.on_host, self.loops = before, loops
        outputs = [self._value(t) for t in statement.outputs]
        self._line(1, f"return ({', '.join(outputs)}{',' if len(outputs) == 1 else ''})")

    def _compile(self) -> None:
        code = self.code
        for lines, _, _ in self.tiles:
            self.lines += ["", *lines]
        code.source = "\n".join(self.lines) + "\n"
        code._filename = f"<penstock {code.name} #{next(_numbers)}>"
        code._lines = self.mapping
        code._globals = self.globals
        compiled: list[CodeType] = compile_pieces(self.lines, code._filename)
        for part in compiled:
            exec(part, self.globals)
        for _, runner, name in self.tiles:
            runner.function = self.globals[name]
        for statement, _, name in self.programs:
            statement.program.host = self.globals[name]
        linecache.cache[code._filename] = (len(code.source), None, code.source.splitlines(True), code._filename)
        code.run = self.globals["region"]


def _may_be_big(tensor: Tensor) -> bool:
    """Whether the C library might ask the kernel for such an array anew in every step."""
    count = num_elements(tensor.dims)
    return count is None or count >= 1 << 16
