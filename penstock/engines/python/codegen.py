"""Structured statements -> Python source of one function, compiled once.

    code = generate(nodes, name="region 7")
    results = code.run(ctx, args, stop)            # the values of the region's _Retvals, in the order of `code.results`

Every value is a local name, every node one line with its name and type behind it; constants and kernels are globals of the
generated module. A value is let go of after its last reader. `stop.is_cancelled` is looked at in every round of a loop.
Long programs are cut into functions of `PART` statements that hand values on in a list, so that compiling one stays quick.

`Code.blame(traceback)` finds the node that was running: line -> node, and the node's inputs out of the frame's locals.
"""

from __future__ import annotations

import itertools
import linecache
import math
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, Protocol

import numpy as np

from penstock.engines.memory import keep_freed_memory
from penstock.engines.python import elementwise, products
from penstock.engines.python.arrays import NEW, NO_FLOW, array_line, find_arrays, flows
from penstock.engines.python.code import Code, compile_pieces, halt
from penstock.engines.python.counters import Counters, find_counters
from penstock.engines.python.elementwise import FULL, ROW, Fused, find_runs, is_chain, kind_of, steps_of
from penstock.engines.python.expressions import (
    OUT_BY_NAME,
    expression,
    from_engine,
    original,
    ufunc_of,
    variables_read,
    without_dimensions,
)
from penstock.engines.python.facts import find_owned, find_sure
from penstock.engines.python.gradients import find_late
from penstock.engines.python.pieces import piece
from penstock.engines.python.stacks import find_stacks, stack_line
from penstock.engines.python.structure import Assign, Branch, Call, Loop, Offloaded, Structured, Unstructured, structure
from penstock.engines.python.tiles import write_tile
from penstock.engines.python.trim import without_broadcasts, without_unread
from penstock.engines.python.walk import everything, makes, paths, reads, without
from penstock.graph.ir import Operation, Tensor
from penstock.ops import interrupts
from penstock.ops.context import DEAD
from penstock.ops.control_flow import predicate
from penstock.shapes import is_fully_defined, num_elements

SMALL, MOST_SPARES = 16384, 32
"""Arrays of up to so many bytes are kept, so many of a kind, for later results."""
PART = 400
"""Statements of one generated function."""

_ARGS = ("_Arg", "_DeviceArg")
_RETVALS = ("_Retval", "_DeviceRetval")
_CONSTANTS = ("Const", "HostConst")
SHAPES = frozenset(("Shape", "ShapeN", "Size", "Rank"))
FOLLOWS = frozenset(("ConcatOffset",))
"""What is computed of shapes, and known if they are."""
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


class _Writer:
    def __init__(
        self,
        nodes: Sequence[Any],
        structured: Structured,
        code: Code,
        read_ref: Any,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        offload: Offload | None,
    ) -> None:
        self.nodes = nodes
        self.offload = offload
        self.on_host = offload is None or not offload.keeps_values
        self.programs: list[tuple[Offloaded, tuple[int, ...], str]] = []
        self.block = structured.block
        self.alias = structured.alias
        self.guards = structured.guards
        self.switch_of = structured.switch_of
        self.loops: list[tuple[str, str]] = []  # (name, name of its counter) of the loops around what is being written
        self.code = code
        self.read_ref = read_ref
        self.inputs = inputs
        self.outputs = outputs
        self.names: dict[Tensor, str] = {}
        self.free: list[str] = []  # names whose value nobody needs any more; see `_let_go`
        self.n_names = 0
        self.spares: dict[Any, list[str]] = {}  # small arrays that nobody needs any more: results are written into them
        self.globals: dict[str, Any] = {
            "DEAD": DEAD,
            "predicate": predicate,
            "halt": halt,
            "interrupts": interrupts.came,
            "read_ref": read_ref,
            "count": itertools.count,
        }
        self.global_of: dict[int, str] = {}
        self.lines: list[str] = []
        self.mapping: dict[int, tuple[Any, list[str], tuple[str, str] | None]] = {}
        self.kills: dict[tuple[int, ...], list[Tensor]] = {}
        self.tiles: list[tuple[list[str], Any, str]] = []

    # -- the whole --------------------------------------------------------------------------------------------------------

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
        self._find_kills()
        statements = list(paths(self.block))
        self.late = find_late(self.block, self._root, kept) if self.on_host else {}
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

    def _with_runs(self, block: list) -> list:
        """The block with elementwise runs; those of offloaded statements are runs of their host form."""
        if not self.on_host:
            return block
        inside = [sub for sub in everything(block) if isinstance(sub, Offloaded)]
        block = find_runs(block, self._root, [*self._read_at_end(), *(t for s in inside for t in s.inputs)])
        return [
            s._replace(host=find_runs(s.host, self._root, s.outputs)) if isinstance(s, Offloaded) else s for s in block
        ]

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
        sure = find_sure(list(paths(self.block)), self._root, [*self.constants_of, *fed], self.stacks, self.arrays)
        gone: set[Operation] = set()
        for node in calls:
            op = node.op
            known = [self._constant(self._root(t)) for t in op.inputs]
            values: Any = None
            if op.type in SHAPES and original(node) and all(self._root(t) in sure and is_fully_defined(t.dims) and self._root(t).dims == t.dims for t in op.inputs):
                values = node.fn(*[np.broadcast_to(np.zeros((), t.dtype.np), t.dims) for t in op.inputs])
            elif op.type in FOLLOWS and gone and original(node) and all(value is not None for value in known):
                values = node.fn(*known)
            elif op.type == "Slice" and known[1] is not None and known[2] is not None and op.outputs[0].dims == tuple(known[2].tolist()):
                self.cut.append(op.outputs[0])
            if values is not None:
                gone.add(op)
                for tensor, value in zip(op.outputs, [values] if node.plain else values, strict=True):
                    self.constants_of[tensor] = self.names[tensor] = self._global(np.asarray(value)[()], "c")
        self.block = without(self.block, gone)

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

    def _products(self, group: products.Products, indent: int) -> None:
        inputs = [self._value(t) for t in group.inputs]
        names = [self._name(t) if t in self.used else "_" for t in group.outputs]
        call = f"{self._global(products.Runner(group), 'products')}({', '.join(inputs)})"
        last = group.nodes[-1]
        self._line(indent, f"{', '.join(names)}{',' if len(names) == 1 else ''} = {call}  # {products.describe(group)}", last, self._told(last.op.inputs))

    def _offloaded(self, statement: Offloaded, path: tuple[int, ...], indent: int) -> None:
        name = f"host_{len(self.programs)}"
        self.programs.append((statement, path, name))
        self.code.needs_ctx = True
        inputs = [self._value(t) for t in statement.inputs]
        call = f"{self._global(statement.program, 'program')}({', '.join(['ctx', 'stop', *inputs])})"
        outputs = [self._name(t) for t in statement.outputs]
        made = f"{', '.join(outputs)}{',' if len(outputs) == 1 else ''} = " if outputs else ""
        node = statement.program.node
        told = [self._value(t) for t in node.op.inputs if self._root(t) in statement.inputs]
        self._line(indent, f"{made}{call}  # {statement.program.describe()}: see {name}", node, told)

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

    def _load_args(self, args: list[tuple[int, Tensor]]) -> None:
        for index, tensor in args:
            if tensor in self.used:
                self.lines.append(f"    {self._name(tensor)} = {self._load(index, tensor)}  # {tensor.op.name}")

    def _load(self, index: int, tensor: Tensor) -> str:
        """An argument; a number that may come as an array without dimensions becomes a NumPy scalar."""
        return f"args[{index}][()]" if _is_number(tensor) and tensor.op.type in _ARGS else f"args[{index}]"

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

    def _read_at_end(self) -> list[Tensor]:
        preds = [pred for t in self.result_tensors for pred, _ in self.guards.get(t, ())]
        return [*self.result_tensors, *preds]

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
        for p, (a, b) in enumerate(parts):
            self._new_function()
            self.lines.append(f"def part_{p}(ctx, stop, shared):")
            for tensor, slot in slots.items():
                if made_in[tensor] < p and p in read_in[tensor]:
                    self.lines.append(f"    {self._name(tensor)} = shared[{slot}]")
                    if max(read_in[tensor]) == p:
                        self.lines.append(f"    shared[{slot}] = None")
                elif tensor in conditional and tensor in made_by[p]:
                    self.lines.append(f"    {self._name(tensor)} = None")
            self._statements(self.block, (), a, b, 1)
            for tensor, slot in slots.items():
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

    # -- names ------------------------------------------------------------------------------------------------------------

    def _root(self, tensor: Tensor) -> Tensor:
        alias = self.alias
        while tensor in alias:
            tensor = alias[tensor]
        return tensor

    def _name(self, tensor: Tensor) -> str:
        root = self._root(tensor)
        name = self.names.get(root)
        if name is None:
            name = self.names[root] = self._new_name()
        return name

    def _told(self, tensors: Sequence[Tensor]) -> list[str]:
        """The names of values for an error's story; some may be gone already."""
        return [self.names.get(self._root(t), "_") for t in tensors]

    def _new_name(self) -> str:
        if self.free:
            return self.free.pop()
        self.n_names += 1
        return f"v{self.n_names - 1}"

    def _new_function(self) -> None:
        """Another function begins: none of the names so far means anything in it, but for constants."""
        self.names = dict(self.constants_of)
        self.free = []
        self.spares = {}
        self.n_names = 0

    def _counted(self, op: Operation) -> str:
        counter, operator, number = self.counters.lines[op]
        return f"{self._name(counter)} {operator} {number}"

    def _constant(self, tensor: Tensor) -> Any:
        return self.globals.get(self.constants_of.get(tensor, ""))

    def _value(self, tensor: Tensor) -> str:
        return self._name(tensor)

    def _global(self, value: Any, prefix: str) -> str:
        name = self.global_of.get(id(value))
        if name is None:
            name = self.global_of[id(value)] = f"{prefix}{len(self.globals)}"
            self.globals[name] = value
        return name

    # -- when values die --------------------------------------------------------------------------------------------------

    def _find_kills(self) -> None:
        """After which statement each value is let go of: the last one that reads it, in the innermost block that holds its making
        and all its readers. Numbers are not worth a store."""
        places: dict[Tensor, list[tuple[int, ...]]] = {}
        made: set[Tensor] = set()
        self.used: set[Tensor] = set()
        for path, statement in paths(self.block):
            for tensor in reads(statement):
                root = self._root(tensor)
                self.used.add(root)
                places.setdefault(root, []).append(path)
            for tensor in makes(statement):
                made.add(tensor)
                places.setdefault(tensor, []).append(path)
            if isinstance(statement, Fused):
                self.used.update(node.op.outputs[0] for node in statement.nodes)
        kept = {self._root(t) for t in self._read_at_end()}
        self.used |= kept
        for tensor, where in places.items():
            if tensor in kept or tensor in self.constants_of:
                continue
            if tensor in made and tensor not in self.used:
                continue
            if tensor not in made:
                where = [*where, (0,)]  # arguments are there from the start
            depth = 0
            first = where[0]
            while all(len(p) > depth + 2 and p[: depth + 2] == first[: depth + 2] for p in where):
                depth += 2
            last = max(p[depth] for p in where)
            self.kills.setdefault((*first[:depth], last), []).append(tensor)

    # -- statements -------------------------------------------------------------------------------------------------------

    def _statements(self, block: list, path: tuple[int, ...], start: int, stop: int, indent: int) -> None:
        for i in range(start, stop):
            statement = block[i]
            here = (*path, i)
            if isinstance(statement, Call):
                self._call(statement.node, indent, here)
            elif isinstance(statement, Assign):
                self._assign(statement, indent)
            elif isinstance(statement, Branch):
                self._branch(statement, here, indent)
            elif isinstance(statement, Fused):
                self._fused(statement, here, indent)
            elif isinstance(statement, Offloaded):
                self._offloaded(statement, here, indent)
            elif isinstance(statement, products.Products):
                self._products(statement, indent)
            else:
                self._loop(statement, here, indent)
            self._drop(self._let_go(here), indent)
        if start == stop:
            self._line(indent, "pass")
        for key in [key for key in self.spares if key[2] == path]:
            self.free += self.spares.pop(key)

    def _let_go(self, path: tuple[int, ...]) -> list[tuple[str, Tensor]]:
        """The names of values that are read for the last time at `path` are free from now on. Gives those that hold more than a
        number: somebody must write over them."""
        held = []
        for tensor in self.kills.pop(path, ()):
            name = self.names.pop(tensor, None)
            if name is not None:
                self.free.append(name)
                if not _is_number(tensor):
                    held.append((name, tensor))
        return held

    def _drop(self, held: list[tuple[str, Tensor]], indent: int) -> None:
        if held:
            self._line(indent, " = ".join(name for name, _ in held) + " = None")

    def _take(self, name: str, tensor: Tensor) -> str:
        """Makes a free name the tensor's."""
        if name in self.free:
            self.free.remove(name)
        self.names[tensor] = name
        return name

    def _line(self, indent: int, text: str, node: Any = None, inputs: Sequence[str] = ()) -> None:
        self.lines.append("    " * indent + text)
        if node is not None:
            self.mapping[len(self.lines)] = (node, list(inputs), self.loops[-1] if self.loops else None)

    def _call(self, node: Any, indent: int, path: tuple[int, ...] = ()) -> None:
        op: Operation = node.op
        inputs = [self._value(t) for t in op.inputs]
        comment = f"  # {op.name} = {op.type}" if op.outputs else f"  # {op.name}: {op.type}"
        if op.type in ("Switch", "RefSwitch", "Enter", "RefEnter"):
            # Only for reference variables: the variable is looked at here, its value is read by those who need it.
            row = next((row for row in node.refs if row[0] == 0), None)
            value = inputs[0] if row is None else f"read_ref({inputs[0]}, {row[1]}, {row[2]!r})"
            for tensor in op.outputs:
                if tensor in self.used:
                    self._line(indent, f"{self._name(tensor)} = {value}{comment}", node, inputs)
            return
        outputs = op.outputs
        into = None
        text = None
        if op in self.counters.lines:
            text = self._counted(op)
            if outputs[0].dtype.np.kind == "b":
                self._drop(self._let_go(path), indent)
                return  # the loop asks for it itself
        elif op in self.stacks:
            text = stack_line(self.stacks[op], op, inputs, self.code.words)
        elif op in self.arrays and self.on_host:
            text = array_line(op, inputs, self._global)
        elif self.on_host and op not in self.late:
            into = self._reusable(node, path)
            text = expression(node, inputs, self._global, self.globals, into)
            if text is None and (original(node) or from_engine(node)) and all(self._root(t) in self.sure for t in op.inputs):
                text = piece(op, inputs, self._global, self.globals)
        if text is not None:
            if op not in self.arrays:  # which know themselves what is wrong
                self.code.shortened.add(op)
        else:
            ctx = [getattr(node, "context", "ctx")] if node.needs_ctx else []
            self.code.needs_ctx |= node.needs_ctx
            text = f"{self._global(self.late.get(op) or self._kernel(node, path), 'f')}({', '.join(ctx + inputs)})"
        if op not in self.code.shortened and self.on_host and self._steps(node, indent, path, inputs, comment):
            return
        if variables_read(node) and op in self.code.shortened:
            # Who writes a variable looks whether somebody holds its array.
            text += "".join(f"; r{i} = None" for i, _, _ in variables_read(node))
        held = self._let_go(path)
        is_named = any(t in self.names for t in outputs)  # somebody who comes later has asked for its name already
        if node.plain:
            if outputs[0] in self.used:
                if is_named:
                    pass
                elif into is not None:
                    held = [(name, t) for name, t in held if name != into]
                    self._take(into, outputs[0])
                else:
                    held = self._spare(held, path)
                    if held:  # writing over the name of what dies here lets go of it
                        self._take(held.pop()[0], outputs[0])
                text = f"{self._name(outputs[0])} = {text}"
        elif outputs:
            names = [self._name(t) if t in self.used and t not in self.constants_of else "_" for t in outputs]
            held = [(name, t) for name, t in held if name not in names]
            text = f"{', '.join(names)}{',' if len(names) == 1 else ''} = {text}"
        self._line(indent, text + comment, node, inputs)
        self._drop(held if into is None or is_named else self._spare(held, path), indent)

    def _steps(self, node: Any, indent: int, path: tuple[int, ...], inputs: list[str], comment: str) -> bool:
        """A node of few ufuncs on arrays of one shape: they are written down one by one. True if that is done."""
        out = node.op.outputs[0] if node.op.outputs else None
        if out is None or not out.dims or None in out.dims or out not in self.used or ufunc_of(node) is not None:
            return False
        steps = None if variables_read(node) else steps_of(node)
        if steps is None or len(steps) > 4 or not is_chain(steps) or any(self._root(t).dims != out.dims or self._root(t) not in self.sure for t in node.op.inputs):
            return False
        self.code.shortened.add(node.op)
        name = self._name(out)  # before inputs die: their names are needed by later steps
        last = None
        for step in steps:
            names = []
            for operand in step.operands:
                if isinstance(operand, Tensor):
                    names.append(self._value(operand))
                elif operand.__class__ is int:
                    names.append(name)
                else:
                    names.append(without_dimensions(self._global(operand, "c"), self.globals))
            into = [] if last is None or last.dtype != step.dtype or step.ufunc in OUT_BY_NAME else [name]
            call = f"{self._global(step.ufunc, step.ufunc.__name__ + '_')}({', '.join(names + into)})"
            self._line(indent, f"{name} = {call}{comment}", node, inputs)
            last = step
        self._drop(self._spare(self._let_go(path), path), indent)
        return True

    def _kernel(self, node: Any, path: tuple[int, ...]) -> Callable[..., Any]:
        """The node's kernel, or one that writes its result into an input that nobody needs any more, if it has such a form."""
        over = getattr(node.fn, "over", None)
        if over is None or not self.on_host:
            return node.fn
        out, inputs = node.op.outputs[0], [self._root(t) for t in node.op.inputs]
        dying = self.kills.get(path, ())
        for i, tensor in enumerate(inputs):
            if (
                tensor in dying
                and tensor.dims == out.dims
                and tensor.dtype is out.dtype
                and self.owned.get(tensor) == path[:-1]
                and inputs.count(tensor) == 1
            ):
                return over(i)
        return node.fn

    def _reusable(self, node: Any, path: tuple[int, ...]) -> str | None:
        """The name of an array into which the node's ufunc may write its result: one that this function made, that nobody needs any
        more and nobody can have kept, nor a view of it, and whose size is right."""
        ufunc = ufunc_of(node)
        if not path or ufunc is None or ufunc.nin != len(node.op.inputs) or ufunc.nout != 1:
            return None
        out = node.op.outputs[0]
        if not out.dims or out not in self.sure or out not in self.used or None in out.dims:
            return None
        is_small = _n_bytes(out) <= SMALL
        if is_small and ufunc in OUT_BY_NAME:
            return None  # naming an argument costs what it would win
        inputs = {self._root(t) for t in node.op.inputs}
        for tensor in self.kills.get(path, ()):
            if (
                tensor in inputs
                and tensor.dims == out.dims
                and tensor.dtype is out.dtype
                and self.owned.get(tensor) == path[:-1]
            ):
                return self._name(tensor)
        spares = self.spares.get((out.dims, out.dtype, path[:-1])) if is_small else None
        return spares.pop() if spares else None

    def _spare(self, held: list[tuple[str, Tensor]], path: tuple[int, ...]) -> list[tuple[str, Tensor]]:
        """Keeps small arrays for later results; gives what is something else."""
        others = []
        for name, tensor in held:
            if self.owned.get(tensor) == path[:-1] and tensor in self.sure and tensor.dims and None not in tensor.dims:
                spares = self.spares.setdefault((tensor.dims, tensor.dtype, path[:-1]), [])
                if _n_bytes(tensor) <= SMALL and len(spares) < MOST_SPARES:
                    spares.append(name)
                    self.free.remove(name)
                    continue
            others.append((name, tensor))
        return others

    def _fused(self, run: Fused, path: tuple[int, ...], indent: int) -> None:
        """Tiles if the arrays are as big and as equal as they should be, else the calls one by one."""
        name = f"tile_{len(self.tiles)}"
        dying = {t for t in self.kills.get(path, ()) if t in self.sure and self.owned.get(t) == path[:-1]}
        lines, runner = write_tile(run, name, self._root, self._global, dying)
        self.tiles.append((lines, runner, name))
        read = self._read_variables(run, indent)
        arrays, numbers = ([read.get(t) or self._value(t) for t in tensors] for tensors in (run.arrays, run.numbers))
        tests = [f"{arrays[0]}.size >= {elementwise.MIN_SIZE}"]
        if run.dims is not None:
            tests.append(f"{arrays[0]}.shape[-1] == {run.dims[-1]}")
        for tensor, other in zip(run.arrays[1:], arrays[1:]):
            is_full = run.dims is None or kind_of(tensor.dims, run.dims) == FULL
            tests.append(f"{other}.shape == {arrays[0]}.shape" + ("" if is_full else "[:-1] + (1,)"))
        for tensor, number in zip(run.numbers, numbers):
            if tensor not in self.constants_of:
                is_row = run.dims is not None and kind_of(tensor.dims, run.dims) == ROW
                tests.append(f"{number}.shape == {tensor.dims!r}" if is_row else f"not {number}.ndim")
        last = run.nodes[-1]
        inputs = self._told(last.op.inputs)
        self._line(indent, f"if {' and '.join(tests)}:")
        outputs = [self._name(t) for t in run.outputs]
        call = f"{self._global(runner, 'tiled')}({', '.join(arrays + numbers)})"
        what = f"  # {len(run.nodes) + len(run.reductions)} nodes, {run.nodes[0].op.name} to {last.op.name}: see {name}"
        self._line(indent + 1, f"{', '.join(outputs)}{',' if len(outputs) == 1 else ''} = {call}{what}", last, inputs)
        self._line(indent, "else:")
        own = {node.op.outputs[0] for node in run.nodes} - set(run.outputs)
        dies: dict[int, list[str]] = {}
        order = [*run.nodes, *run.reductions]
        for tensor in own:
            readers = [i for i, node in enumerate(order) if any(self._root(t) is tensor for t in node.op.inputs)]
            dies.setdefault(max(readers, default=0), []).append(self._name(tensor))
        for i, node in enumerate(order):
            self._call(node, indent + 1)
            if i in dies:
                self._line(indent + 1, " = ".join(sorted(dies[i])) + " = None")
        for tensor in own:
            self.free.append(self.names.pop(tensor))
        if read:
            self._line(indent, " = ".join(read.values()) + " = None")

    def _read_variables(self, run: Fused, indent: int) -> dict[Tensor, str]:
        """Lines that read the run's variables at its place, and the names of their values."""
        names = {}
        for i, (tensor, told) in enumerate(run.variables.items()):
            ref, name = self._value(tensor), f"w{i}"
            reader = next(n for n in run.nodes if any(self._root(t) is tensor for t in n.op.inputs))
            text = f"{name} = {name} if ({name} := {ref}.value) is not None else read_ref({ref}, True, {told!r})"
            self._line(indent, text, reader, self._told(reader.op.inputs))
            names[tensor] = name
        return names

    def _assign(self, statement: Assign, indent: int) -> None:
        node, index = statement
        op: Operation = node.op
        source = self._value(op.inputs[index])
        comment = f"  # {op.name} = Merge"
        row = next((row for row in node.refs if row[0] == index), None)
        value = source if row is None else f"read_ref({source}, {row[1]}, {row[2]!r})"
        inputs = self._told(op.inputs)
        wrote = False
        if op.outputs[0] in self.used:
            self._line(indent, f"{self._name(op.outputs[0])} = {value}{comment}", node, inputs)
            wrote = True
        if op.outputs[1] in self.used:
            self._line(
                indent, f"{self._name(op.outputs[1])} = {self._global(np.int32(index), 'c')}{comment}", node, inputs
            )
            wrote = True
        if not wrote:
            self._line(indent, f"pass{comment}")

    def _branch(self, statement: Branch, path: tuple[int, ...], indent: int) -> None:
        pred = self._predicate(statement.pred, statement.switch)
        inputs = self._told(statement.switch.op.inputs)
        if statement.yes:
            self._line(indent, f"if {pred}:  # {statement.pred.name}", statement.switch, inputs)
            self._statements(statement.yes, (*path, 0), 0, len(statement.yes), indent + 1)
            if statement.no:
                self._line(indent, "else:")
        else:
            self._line(indent, f"if not {pred}:  # {statement.pred.name}", statement.switch, inputs)
        if statement.no:
            self._statements(statement.no, (*path, 1), 0, len(statement.no), indent + 1)

    def _predicate(self, tensor: Tensor, node: Any) -> str:
        root = self._root(tensor)
        name = self._value(tensor)
        row = next((row for row in node.refs if row[0] == 1), None)
        if row is not None:
            return f"predicate(read_ref({name}, True, {row[2]!r}))"
        return name if root.dims == () else f"predicate({name})"

    def _loop(self, loop: Loop, path: tuple[int, ...], indent: int) -> None:
        self.code.has_loops = True
        carried = [(m.op, first, next_) for m, first, next_ in loop.carried]
        live = [(op, first, next_) for op, first, next_ in carried if op.outputs[0] in self.used]
        self._line(indent, f"# while {loop.name}")
        if live:
            numbers = self.counters.first
            targets = [self._name(op.outputs[0]) for op, _, _ in live]
            sources = [str(numbers[op.outputs[0]]) if op.outputs[0] in numbers else self._value(first) for op, first, _ in live]
            self._line(indent, f"{', '.join(targets)} = {', '.join(sources)}")
            inside = {
                self._root(t) for sub in everything([*loop.cond, *loop.body]) for t in reads(sub)
            }
            firsts = {self._root(first) for _, first, _ in live} - inside
            over = [self._name(t) for t in self.kills.get(path, ()) if t in firsts and not _is_number(t)]
            if over:
                self._line(indent, " = ".join(over) + " = None")
        indexes = [op.outputs[1] for op, _, _ in carried if op.outputs[1] in self.used]
        for tensor in indexes:
            self._line(indent, f"{self._name(tensor)} = {self._global(np.int32(0), 'c')}")
        tested = self._root(loop.again)
        is_counted = tested.op in self.counters.lines
        again = self._counted(tested.op) if is_counted else self._value(loop.again)
        if tested.dims != ():
            again = f"predicate({again})"
        inputs = [] if is_counted else [self._value(loop.again)]
        counter = f"n{len(self.loops)}"
        self._line(indent, f"for {counter} in count():  # so that an error can tell the round")
        inner = indent + 1
        self.loops.append((loop.name, counter))
        if loop.cond:
            self._statements(loop.cond, (*path, 0), 0, len(loop.cond), inner)
        self._line(inner, f"if not {again}: break", loop.loop_cond, inputs)
        self._line(inner, "if stop.is_cancelled or interrupts: halt(stop)")
        # A counter is counted in its place: nobody reads the old number after that.
        counted = [(self._root(next_), op.outputs[0]) for op, _, next_ in live if op.outputs[0] in self.counters.first]
        self.names.update((next_, self._name(counter)) for next_, counter in counted)
        if loop.body:
            self._statements(loop.body, (*path, 1), 0, len(loop.body), inner)
        for next_, _ in counted:
            del self.names[next_]
        moved = [
            (op.outputs[0], next_)
            for op, _, next_ in live
            if self._root(next_) is not self._root(op.outputs[0]) and op.outputs[0] not in self.counters.first
        ]
        if moved:
            self._line(inner, self._together([to for to, _ in moved], [source for _, source in moved]))
            dying = self._only_carried(loop, [source for _, source in moved])
            if dying:
                self._line(inner, " = ".join(dying) + " = None")
        for tensor in indexes:
            self._line(inner, f"{self._name(tensor)} = {self._global(np.int32(1), 'c')}")
        self.loops.pop()

    def _only_carried(self, loop: Loop, sources: list[Tensor]) -> list[str]:
        """Next values made in the body: after the hand-over, only the loop's variable holds them."""
        made = {t for sub in everything(loop.body) for t in makes(sub)}
        roots = dict.fromkeys(self._root(t) for t in sources)
        return [self._name(t) for t in roots if t in made and not _is_number(t) and t not in self.constants_of]

    def _together(self, targets: list[Tensor], sources: list[Tensor]) -> str:
        return f"{', '.join(self._name(t) for t in targets)} = {', '.join(self._value(t) for t in sources)}"


def _may_be_big(tensor: Tensor) -> bool:
    """Whether the C library might ask the kernel for such an array anew in every step."""
    count = num_elements(tensor.dims)
    return count is None or count >= 1 << 16


def _n_bytes(tensor: Tensor) -> int:
    return math.prod(tensor.dims) * tensor.dtype.np.itemsize  # type: ignore[arg-type]


def _is_number(tensor: Tensor) -> bool:
    return (
        tensor.dims == ()
        and tensor.dtype.is_numpy_compatible
        and tensor.dtype.np is not None
        and tensor.dtype.np.kind in "biufc"
    )
