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
from collections.abc import Callable, Sequence
from types import CodeType, TracebackType
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.python import elementwise
from penstock.engines.python.elementwise import Fused, find_runs, write_tile
from penstock.engines.python.expressions import expression, is_pure, makes_new, needed_inputs, original, ufunc_of
from penstock.engines.python.structure import Assign, Branch, Call, Loop, Structured, Unstructured, structure
from penstock.graph.ir import Operation, Tensor
from penstock.ops.context import DEAD
from penstock.ops.control_flow import predicate

PART = 400
"""Statements of one generated function."""

_ARGS = ("_Arg", "_DeviceArg")
_RETVALS = ("_Retval", "_DeviceRetval")
_CONSTANTS = ("Const", "HostConst")
_numbers = itertools.count(1)


class Cancelled(Exception):
    """Raised by a loop whose step was cancelled."""


class Blame(NamedTuple):
    """A node, the inputs it was called with, and the innermost loop around it: its name and the number of the round."""

    node: Any
    inputs: list[Any]
    loop: tuple[str, int] | None


class Code:
    """A compiled region. `results` are the indexes of its _Retvals; `source` is for people."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.source = ""
        self.results: list[int] = []
        self.may_die = False
        self.needs_ctx = False
        self.has_loops = False
        self.run: Callable[..., tuple] = _not_compiled
        self.shortened: set[Operation] = set()  # nodes whose line is not a call of their kernel
        self._lines: dict[int, tuple[Any, list[str], tuple[str, str] | None]] = {}
        self._globals: dict[str, Any] = {}
        self._filename = ""

    def blame(self, traceback: TracebackType | None) -> Blame | None:
        """The node whose line was running when an exception with this traceback was raised; None if it was none."""
        found = None
        while traceback is not None:
            frame = traceback.tb_frame
            if frame.f_code.co_filename == self._filename:
                found = (traceback.tb_lineno, frame)
            traceback = traceback.tb_next
        if found is None or found[0] not in self._lines:
            return None
        node, names, loop = self._lines[found[0]]
        known = found[1].f_locals
        inputs = [known[name] if name in known else self._globals.get(name) for name in names]
        return Blame(node, inputs, None if loop is None else (loop[0], known.get(loop[1], 0)))

    def __del__(self) -> None:
        # The generated functions and their globals hold each other, and with them constants that may be big.
        self._globals.clear()
        cache = getattr(linecache, "cache", None)  # nothing is left of it when the interpreter ends
        if cache is not None:
            cache.pop(self._filename, None)


def _not_compiled(*args: Any) -> tuple:
    raise AssertionError("the code is not compiled")


def generate(
    nodes: Sequence[Any],
    name: str,
    read_ref: Callable[..., Any] | None = None,
    inputs: Sequence[Tensor] = (),
    outputs: Sequence[Tensor] = (),
) -> Code:
    """The code for `nodes`, in topological order. Raises structure.Unstructured.

    Arguments are the region's `inputs` first, then its _Args by index; results are `outputs` first, then its _Retvals.
    `read_ref(ref, deref, name)` reads a reference variable for nodes that have no kernel.
    """
    code = Code(name)
    _Writer(nodes, structure(nodes), code, read_ref, inputs, outputs).write()
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
    ) -> None:
        self.nodes = nodes
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
        self.globals: dict[str, Any] = {
            "DEAD": DEAD,
            "predicate": predicate,
            "Cancelled": Cancelled,
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
        args = self._frame_nodes()
        code.may_die = any(self.guards.get(t) for t in self.result_tensors)
        self._leave_out_unread()
        self._leave_out_broadcasts()
        self.block = find_runs(self.block, self._root, self._read_at_end())
        self._find_kills()
        self._find_owned()
        n = len(self.block)
        if n <= PART + PART // 2:
            self.lines.append("def region(ctx, args, stop):")
            self._load_args(args)
            self._statements(self.block, (), 0, n, 1)
            self._return(self._value)
        else:
            self._in_parts(args, n)
        self._compile()

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
        self.block = _without(self.block, silent)
        for node in results:
            if node.op.control_inputs and self.guards:
                raise Unstructured(f"{node.op.name}: a result with control inputs among branches")
        return args

    def _leave_out_unread(self) -> None:
        """Pure nodes whose values nobody reads: gradients of feeds, shapes that turned out to be known."""
        kept = {self._root(t) for t in self._read_at_end()}
        while True:
            readers: dict[Tensor, int] = {}
            for _, statement in _paths(self.block, ()):
                for tensor in self._reads(statement):
                    root = self._root(tensor)
                    readers[root] = readers.get(root, 0) + 1
            gone = set()
            for _, statement in _paths(self.block, ()):
                if isinstance(statement, Call) and not any(
                    t in kept or readers.get(t) for t in statement.node.op.outputs
                ):
                    # A kernel that reads a variable may find it without a value; somebody else must notice that, then.
                    others = all(readers[self._root(t)] > 1 for t in self._reads(statement))
                    if is_pure(statement.node, others):
                        gone.add(statement.node.op)
            if not gone:
                return
            self.block = _without(self.block, gone)

    def _leave_out_broadcasts(self) -> None:
        """BroadcastTo whose readers would broadcast by themselves: the value as it was before does as well."""
        readers: dict[Tensor, list[Any]] = {}
        for _, statement in _paths(self.block, ()):
            for tensor in self._reads(statement):
                readers.setdefault(self._root(tensor), []).append(statement)
        kept = {self._root(t) for t in self._read_at_end()}
        gone: set[Operation] = set()
        for _, statement in _paths(self.block, ()):
            if isinstance(statement, Call) and statement.node.op.type == "BroadcastTo" and original(statement.node):
                op = statement.node.op
                out = op.outputs[0]
                if out not in kept and all(
                    _broadcasts(reader, out, op.inputs[0], self._root) for reader in readers.get(out, ())
                ):
                    self.alias[out] = op.inputs[0]
                    gone.add(op)
        if gone:
            self.block = _without(self.block, gone)

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
        inputs = [names(t) for t in switch.op.inputs] if switch is not None else ()
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
        read_in: dict[str, list[int]] = {}
        made_in: dict[str, int] = {}
        made_by: list[dict[str, None]] = []
        for p, (a, b) in enumerate(parts):
            reads, makes = self._names_in(self.block[a:b])
            made_by.append(makes)
            for name in reads:
                read_in.setdefault(name, []).append(p)
            for name in makes:
                if made_in.setdefault(name, p) != p:
                    read_in.setdefault(name, []).append(p)
        arg_names = [(index, t, self._name(t)) for index, t in args if t in self.used]
        for _, _, name in arg_names:
            made_in[name] = -1
        for tensor in self._read_at_end():
            name = self._value(tensor)
            if name in made_in:
                read_in.setdefault(name, []).append(last)
        slots: dict[str, int] = {}
        for name, made in made_in.items():
            if any(p > made for p in read_in.get(name, ())):
                slots[name] = len(slots)
        # A Merge may get its value in one of two parts: each hands on what there is.
        conditional = self._conditional_names()
        for p, (a, b) in enumerate(parts):
            self.lines.append(f"def part_{p}(ctx, stop, shared):")
            for name, slot in slots.items():
                if made_in[name] < p and p in read_in[name]:
                    self.lines.append(f"    {name} = shared[{slot}]")
                    if max(read_in[name]) == p:
                        self.lines.append(f"    shared[{slot}] = None")
                elif name in conditional and name in made_by[p]:
                    self.lines.append(f"    {name} = None")
            self._statements(self.block, (), a, b, 1)
            for name, slot in slots.items():
                if name in made_by[p] and max(read_in[name]) > p:
                    self.lines.append(f"    shared[{slot}] = {name}")
            self.lines.append("    return None")
            self.lines.append("")
        self.lines.append("def region(ctx, args, stop):")
        self.lines.append(f"    shared = [None] * {len(slots)}")
        for index, tensor, name in arg_names:
            if name in slots:
                self.lines.append(f"    shared[{slots[name]}] = {self._load(index, tensor)}  # {tensor.op.name}")
        for p in range(last):
            self.lines.append(f"    part_{p}(ctx, stop, shared)")
        self._return(lambda t: f"shared[{slots[self._value(t)]}]" if self._value(t) in slots else self._value(t))

    def _conditional_names(self) -> set[str]:
        """Names that only some way through the program gives a value to."""
        certain = {t for s in self.block for t in _makes(s)}
        every = {t for s in self.block for sub in _walk(s) for t in _makes(sub)}
        return {self._name(t) for t in every - certain if t in self.used}

    def _names_in(self, statements: list) -> tuple[dict[str, None], dict[str, None]]:
        """Names that statements read, and names that they make."""
        reads: dict[str, None] = {}
        makes: dict[str, None] = {}
        for statement in statements:
            for sub in _walk(statement):
                for tensor in self._reads(sub):
                    root = self._root(tensor)
                    if root not in self.constants_of:
                        reads[self._name(root)] = None
                for tensor in _makes(sub):
                    if tensor in self.used:
                        makes[self._name(tensor)] = None
        return reads, makes

    def _compile(self) -> None:
        code = self.code
        for lines, _, _ in self.tiles:
            self.lines += ["", *lines]
        code.source = "\n".join(self.lines) + "\n"
        code._filename = f"<penstock {code.name} #{next(_numbers)}>"
        code._lines = self.mapping
        code._globals = self.globals
        compiled: list[CodeType] = _pieces(self.lines, code._filename)
        for piece in compiled:
            exec(piece, self.globals)
        for _, runner, name in self.tiles:
            runner.function = self.globals[name]
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
            name = self.names[root] = f"v{len(self.names)}"
        return name

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
        for path, statement in _paths(self.block, ()):
            for tensor in self._reads(statement):
                root = self._root(tensor)
                self.used.add(root)
                places.setdefault(root, []).append(path)
            for tensor in _makes(statement):
                made.add(tensor)
                places.setdefault(tensor, []).append(path)
            if isinstance(statement, Fused):
                self.used.update(node.op.outputs[0] for node in statement.nodes)
        kept = {self._root(t) for t in self._read_at_end()}
        self.used |= kept
        for tensor, paths in places.items():
            if tensor in kept or tensor in self.constants_of or _is_number(tensor):
                continue
            if tensor in made and tensor not in self.used:
                continue
            if tensor not in made:
                paths = [*paths, (0,)]  # arguments are there from the start
            depth = 0
            first = paths[0]
            while all(len(p) > depth + 2 and p[: depth + 2] == first[: depth + 2] for p in paths):
                depth += 2
            last = max(p[depth] for p in paths)
            self.kills.setdefault((*first[:depth], last), []).append(tensor)

    def _reads(self, statement: Any) -> list[Tensor]:
        if isinstance(statement, Call):
            return needed_inputs(statement.node)
        if isinstance(statement, Assign):
            return [statement.node.op.inputs[statement.index]]
        if isinstance(statement, Fused):
            return [*statement.arrays, *statement.numbers]
        if isinstance(statement, Branch):
            return [statement.pred]
        if isinstance(statement, Loop):
            return [statement.again, *(t for _, first, next_ in statement.carried for t in (first, next_))]
        return []

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
                self._fused(statement, indent)
            else:
                self._loop(statement, here, indent)
            dying = self.kills.get(here)
            if dying:
                self._line(indent, " = ".join(self._name(t) for t in dying) + " = None")
        if start == stop:
            self._line(indent, "pass")

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
        text = expression(node, inputs, self._global, self.globals, self._reusable(node, path))
        if text is not None:
            self.code.shortened.add(op)
        else:
            ctx = ["ctx"] if node.needs_ctx else []
            self.code.needs_ctx |= node.needs_ctx
            text = f"{self._global(node.fn, 'f')}({', '.join(ctx + inputs)})"
        outputs = op.outputs
        if node.plain:
            text = f"{self._name(outputs[0])} = {text}" if outputs[0] in self.used else text
        elif outputs:
            names = [self._name(t) if t in self.used else "_" for t in outputs]
            text = f"{', '.join(names)}{',' if len(names) == 1 else ''} = {text}"
        self._line(indent, text + comment, node, inputs)

    def _reusable(self, node: Any, path: tuple[int, ...]) -> str | None:
        """An input whose array the node may write its result into: it dies here, it is an array that this function made, nobody
        can have kept it or a view of it, and its size is right."""
        out = node.op.outputs[0] if node.op.outputs else None
        if out is None or not out.dims or None in out.dims:
            return None
        inputs = {self._root(t) for t in node.op.inputs}
        for tensor in self.kills.get(path, ()):
            if (
                tensor in inputs
                and tensor.dims == out.dims
                and tensor.dtype is out.dtype
                and self.owned.get(tensor) == path[:-1]
            ):
                return self._name(tensor)
        return None

    def _find_owned(self) -> None:
        """Arrays that are new when their node has run, and whose readers all make new arrays: nobody else ever holds them."""
        shared: set[Tensor] = set()
        fresh: dict[Tensor, tuple[int, ...]] = {}
        for path, statement in _paths(self.block, ()):
            if isinstance(statement, Call):
                new = makes_new(statement.node)
                if new and statement.node.plain:
                    fresh[statement.node.op.outputs[0]] = path[:-1]
            else:
                new = isinstance(statement, Fused)
            if not new:
                shared.update(self._root(t) for t in self._reads(statement))
        self.owned = {tensor: path for tensor, path in fresh.items() if tensor not in shared}

    def _fused(self, run: Fused, indent: int) -> None:
        """Tiles if the arrays are as big and as equal as they should be, else the calls one by one."""
        name = f"tile_{len(self.tiles)}"
        lines, runner = write_tile(run, name, self._root, self._global)
        self.tiles.append((lines, runner, name))
        arrays, numbers = [self._value(t) for t in run.arrays], [self._value(t) for t in run.numbers]
        tests = [
            f"{arrays[0]}.size >= {elementwise.MIN_SIZE}",
            *(f"{arrays[0]}.shape == {other}.shape" for other in arrays[1:]),
        ]
        tests += [f"not {number}.ndim" for t, number in zip(run.numbers, numbers) if t not in self.constants_of]
        last = run.nodes[-1]
        inputs = [self._value(t) for t in last.op.inputs]
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

    def _assign(self, statement: Assign, indent: int) -> None:
        node, index = statement
        op: Operation = node.op
        source = self._value(op.inputs[index])
        comment = f"  # {op.name} = Merge"
        row = next((row for row in node.refs if row[0] == index), None)
        value = source if row is None else f"read_ref({source}, {row[1]}, {row[2]!r})"
        inputs = [self._value(t) for t in op.inputs]
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
        inputs = [self._value(t) for t in statement.switch.op.inputs]
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
            self._line(indent, self._together([op.outputs[0] for op, _, _ in live], [first for _, first, _ in live]))
            inside = {
                self._root(t) for k in (loop.cond, loop.body) for s in k for sub in _walk(s) for t in self._reads(sub)
            }
            firsts = {self._root(first) for _, first, _ in live} - inside
            over = [self._name(t) for t in self.kills.get(path, ()) if t in firsts]
            if over:
                self._line(indent, " = ".join(over) + " = None")
        indexes = [op.outputs[1] for op, _, _ in carried if op.outputs[1] in self.used]
        for tensor in indexes:
            self._line(indent, f"{self._name(tensor)} = {self._global(np.int32(0), 'c')}")
        again = self._value(loop.again)
        if self._root(loop.again).dims != ():
            again = f"predicate({again})"
        inputs = [self._value(loop.again)]
        counter = f"n{len(self.loops)}"
        self._line(indent, f"for {counter} in count():  # so that an error can tell the round")
        inner = indent + 1
        self.loops.append((loop.name, counter))
        if loop.cond:
            self._statements(loop.cond, (*path, 0), 0, len(loop.cond), inner)
        self._line(inner, f"if not {again}: break", loop.loop_cond, inputs)
        self._line(inner, "if stop.is_cancelled: raise Cancelled")
        if loop.body:
            self._statements(loop.body, (*path, 1), 0, len(loop.body), inner)
        moved = [(op.outputs[0], next_) for op, _, next_ in live if self._root(next_) is not self._root(op.outputs[0])]
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
        made = {t for s in loop.body for sub in _walk(s) for t in _makes(sub)}
        roots = dict.fromkeys(self._root(t) for t in sources)
        return [self._name(t) for t in roots if t in made and not _is_number(t) and t not in self.constants_of]

    def _together(self, targets: list[Tensor], sources: list[Tensor]) -> str:
        return f"{', '.join(self._name(t) for t in targets)} = {', '.join(self._value(t) for t in sources)}"


def _broadcasts(statement: Any, wide: Tensor, narrow: Tensor, root: Callable[[Tensor], Tensor]) -> bool:
    """Whether `statement` is a ufunc that gives the same with `narrow` as with `wide`, by static shapes."""
    if not isinstance(statement, Call) or ufunc_of(statement.node) is None or len(statement.node.op.inputs) != 2:
        return False
    dims = [narrow.dims if root(t) is wide else t.dims for t in statement.node.op.inputs]
    out = statement.node.op.outputs[0].dims
    if any(d is None or None in d for d in (*dims, out, wide.dims)):
        return False
    try:
        return np.broadcast_shapes(*dims) == out  # type: ignore[arg-type]
    except ValueError:
        return False


def _makes(statement: Any) -> list[Tensor]:
    """Tensors that get their value in `statement` itself."""
    if isinstance(statement, (Call, Assign)):
        return statement.node.op.outputs
    if isinstance(statement, Loop):
        return [t for merge, _, _ in statement.carried for t in merge.op.outputs]
    if isinstance(statement, Fused):
        return statement.outputs
    return []


def _subblocks(statement: Any) -> tuple[list, ...]:
    if isinstance(statement, Branch):
        return (statement.yes, statement.no)
    if isinstance(statement, Loop):
        return (statement.cond, statement.body)
    return ()


def _walk(statement: Any) -> Any:
    yield statement
    for block in _subblocks(statement):
        for inner in block:
            yield from _walk(inner)


def _paths(block: list, path: tuple[int, ...]) -> Any:
    """(path, statement) of all statements: a path is index, block, index, block, ..., index."""
    for i, statement in enumerate(block):
        here = (*path, i)
        yield here, statement
        for k, sub in enumerate(_subblocks(statement)):
            yield from _paths(sub, (*here, k))


def _without(block: list, silent: set[Operation]) -> list:
    """The block without calls of `silent` nodes, and without branches that are empty then."""
    result = []
    for statement in block:
        if isinstance(statement, Branch):
            statement = statement._replace(yes=_without(statement.yes, silent), no=_without(statement.no, silent))
            if not statement.yes and not statement.no:
                continue
        elif isinstance(statement, Loop):
            statement = statement._replace(cond=_without(statement.cond, silent), body=_without(statement.body, silent))
        elif isinstance(statement, Call) and statement.node.op in silent:
            continue
        result.append(statement)
    return result


def _is_number(tensor: Tensor) -> bool:
    return (
        tensor.dims == ()
        and tensor.dtype.is_numpy_compatible
        and tensor.dtype.np is not None
        and tensor.dtype.np.kind in "biufc"
    )


def _pieces(lines: list[str], filename: str) -> list[CodeType]:
    """Compiles function by function, each at its own line: one big compilation would hold the interpreter for long."""
    starts = [i for i, line in enumerate(lines) if line.startswith("def ")]
    pieces = []
    for a, b in itertools.pairwise([*starts, len(lines)]):
        # Empty lines in front keep the line numbers of the whole source.
        pieces.append(compile("\n" * a + "\n".join(lines[a:b]) + "\n", filename, "exec"))
    return pieces
