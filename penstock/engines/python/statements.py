"""The lines of statements: calls, assignments, branches, loops, and what stands for several nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.engines.python import products
from penstock.engines.python.arrays import array_line
from penstock.engines.python.chains import Chained
from penstock.engines.python.elementwise import FULL, ROW, Fused, is_chain, kind_of, steps_of
from penstock.engines.python.expressions import (
    OUT_BY_NAME,
    expression,
    from_engine,
    original,
    ufunc_of,
    variables_read,
    without_dimensions,
)
from penstock.engines.python.handles import Handles, Remembered
from penstock.engines.python.pieces import piece, piece_of_any_shape
from penstock.engines.python.scope import Scope, is_number
from penstock.engines.python.stacks import stack_line
from penstock.engines.python.structure import Assign, Branch, Call, Loop, Offloaded
from penstock.engines.python.tiles import write_tile
from penstock.engines.python.updating import Updating, numbers_of
from penstock.engines.python.walk import everything, makes, reads
from penstock.engines.turns import breathe
from penstock.graph.ir import Operation, Tensor
from penstock.ops.training import together


class Statements(Scope):
    """Writes one statement after the other."""

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
            elif isinstance(statement, Handles):
                self._handles(statement, indent)
            elif isinstance(statement, Chained):
                self._chained(statement, indent)
            elif isinstance(statement, Updating):
                self._update(statement.nodes, indent)
            else:
                self._loop(statement, here, indent)
            self._drop(self._let_go(here), indent)
            breathe()
        if start == stop:
            self._line(indent, "pass")
        for key in [key for key in self.spares if key[2] == path]:
            self.free += self.spares.pop(key)

    # -- nodes ------------------------------------------------------------------------------------------------------------

    def _call(self, node: Any, indent: int, path: tuple[int, ...] = ()) -> None:
        op: Operation = node.op
        inputs = [self._value(t) for t in op.inputs]
        comment = f"  # {op.name} = {op.type}" if op.outputs else f"  # {op.name}: {op.type}"
        if op.type in ("Switch", "RefSwitch", "Enter", "RefEnter"):
            # Only for reference variables: the variable is looked at here, its value is read by those who need it. A loop that starts with it needs it now.
            row = next((row for row in node.refs if row[0] == 0), None)
            is_read = op.type == "Enter" and not op.attrs["is_constant"]
            value = inputs[0] if row is None else f"read_ref({inputs[0]}, {row[1] or is_read}, {row[2]!r})"
            for tensor in op.outputs:
                if tensor in self.used:
                    self._line(indent, f"{self._name(tensor)} = {value}{comment}", node, inputs)
            return
        outputs = op.outputs
        into = None
        overwritten: Tensor | None = None  # an input whose memory has the result
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
            if op.type != "Mean" or self._root(op.inputs[0]) in self.sure:  # how many numbers there are is written down
                text = expression(node, inputs, self._global, self.globals, into)
            if text is None and (original(node) or from_engine(node)):
                if all(self._root(t) in self.sure for t in op.inputs):
                    text = piece(op, inputs, self._global, self.globals)
                text = text or piece_of_any_shape(op, inputs, self._global, self.globals)
        if text is not None:
            if op not in self.arrays:  # which know themselves what is wrong
                self.code.shortened.add(op)
        else:
            ctx = [getattr(node, "context", "ctx")] if node.needs_ctx else []
            self.code.needs_ctx |= node.needs_ctx
            kernel: Any = self.late.get(op)
            if kernel is None:
                kernel, overwritten = self._kernel(node, path)
            text = f"{self._global(kernel, 'f')}({', '.join(ctx + inputs)})"
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
                    held = self._spare(held, path, overwritten)
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

    def _kernel(self, node: Any, path: tuple[int, ...]) -> tuple[Callable[..., Any], Tensor | None]:
        """The node's kernel, or one that writes its result into an input that nobody needs any more, if it has such a form, and that input."""
        over = getattr(node.fn, "over", None)
        if over is None or not self.on_host:
            return node.fn, None
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
                return over(i), tensor
        return node.fn, None

    # -- several nodes as one ---------------------------------------------------------------------------------------------

    def _handles(self, statement: Handles, indent: int) -> None:
        self.code.needs_ctx = True
        handles = self._global(Remembered(), "handles")
        names = [self._name(t) for t in statement.outputs]
        self._line(indent, f"if (known := {handles}(ctx)) is None:")
        self._line(indent + 1, "version = ctx.resources.version")
        for node, name in zip(statement.nodes, names):
            self._line(indent + 1, f"{name} = {self._global(node.fn, 'f')}(ctx)  # {node.op.name} = {node.op.type}", node, [])
        self._line(indent + 1, f"{handles}.keep(ctx, version, ({', '.join(names)}))")
        self._line(indent, "else:")
        self._line(indent + 1, f"{', '.join(names)} = known")

    def _update(self, group: list[Any], indent: int) -> None:
        first = group[0]
        at_once, slots, at = together(first.op.type, first.op.attrs)  # type: ignore[misc]
        read = {i: (deref, name) for i, deref, name in variables_read(first)}
        numbers = [f"read_ref({self._value(t)}, {read[i][0]}, {read[i][1]!r})" if i in read else self._value(t) for i, t in numbers_of(first)]
        rows = [f"({', '.join(self._value(t) for i, t in enumerate(node.op.inputs) if i < slots or i in at)})" for node in group]
        call = f"{self._global(at_once, 'together')}(({', '.join(rows)}), [{', '.join(numbers)}]"
        told = [self._value(t) for t in first.op.inputs]
        self._line(indent, f"done = {call})  # {first.op.name} to {group[-1].op.name} = {first.op.type}", first, told)
        self._line(indent, f"while done < {len(group)}:")
        for i, node in enumerate(group):
            inputs = [self._value(t) for t in node.op.inputs]
            own = f"{self._global(self._kernel(node, ())[0], 'f')}({', '.join(inputs)})"
            self._line(indent + 1, f"{'elif' if i else 'if'} done == {i}: {own}  # {node.op.name} = {node.op.type}", node, inputs)
        self._line(indent + 1, f"done = {call}, done + 1)", first, told)

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

    def _fused(self, run: Fused, path: tuple[int, ...], indent: int) -> None:
        """Tiles if the arrays are as big and as equal as they should be, else the calls one by one."""
        name = f"tile_{len(self.tiles)}"
        dying = {t for t in self.kills.get(path, ()) if t in self.sure and self.owned.get(t) == path[:-1]}
        lines, runner = write_tile(run, name, self._root, self._global, dying)
        self.tiles.append((lines, runner, name))
        read = self._read_variables(run, indent)
        arrays, numbers = ([read.get(t) or self._value(t) for t in tensors] for tensors in (run.arrays, run.numbers))
        tests = [f"{arrays[0]}.size >= {runner.least}"]
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
        self._one_by_one([*run.nodes, *run.reductions], {node.op.outputs[0] for node in run.nodes} - set(run.outputs), indent + 1)
        if read:
            self._line(indent, " = ".join(read.values()) + " = None")

    def _one_by_one(self, order: list[Any], own: set[Tensor], indent: int) -> None:
        """The calls of nodes that are one statement; nobody else reads their `own` values."""
        dies: dict[int, list[str]] = {}
        last = {self._root(t): i for i, node in enumerate(order) for t in node.op.inputs}
        for tensor in own:
            dies.setdefault(last.get(tensor, 0), []).append(self._name(tensor))
        for i, node in enumerate(order):
            self._call(node, indent)
            if i in dies:
                self._line(indent, " = ".join(sorted(dies[i])) + " = None")
        for tensor in own:
            self.free.append(self.names.pop(tensor))

    def _chained(self, statement: Chained, indent: int) -> None:
        """One call, or the nodes' own if that cannot be."""
        first, last = statement.nodes[0], statement.nodes[-1]
        read = self._read_variables(statement, indent)
        inputs, outputs = [read.get(t) or self._value(t) for t in statement.inputs], [self._name(t) for t in statement.outputs]
        call = f"{self._global(statement.chain, 'chain')}({', '.join(inputs)})"
        what = f"  # {len(statement.nodes)} nodes, {first.op.name} to {last.op.name}"
        self._line(indent, f"if (made := {call}) is not None:{what}", last, self._told(last.op.inputs))
        self._line(indent + 1, f"{', '.join(outputs)}{',' if len(outputs) == 1 else ''} = made; made = None")
        self._line(indent, "else:")
        made = {t for node in statement.nodes for t in node.op.outputs if t in self.used}
        self._one_by_one(statement.nodes, made - set(statement.outputs), indent + 1)
        if read:  # who writes a variable looks whether somebody holds its array
            self._line(indent, " = ".join(read.values()) + " = None")

    def _read_variables(self, run: Fused | Chained, indent: int) -> dict[Tensor, str]:
        """Lines that read the run's variables at its place, and the names of their values."""
        names = {}
        for i, (tensor, told) in enumerate(run.variables.items()):
            ref, name = self._value(tensor), f"w{i}"
            reader = next(n for n in run.nodes if any(self._root(t) is tensor for t in n.op.inputs))
            text = f"{name} = {name} if ({name} := {ref}.value) is not None else read_ref({ref}, True, {told!r})"
            self._line(indent, text, reader, self._told(reader.op.inputs))
            names[tensor] = name
        return names

    # -- control flow -----------------------------------------------------------------------------------------------------

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
            over = [self._name(t) for t in self.kills.get(path, ()) if t in firsts and not is_number(t)]
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
        return [self._name(t) for t in roots if t in made and not is_number(t) and t not in self.constants_of]

    def _together(self, targets: list[Tensor], sources: list[Tensor]) -> str:
        return f"{', '.join(self._name(t) for t in targets)} = {', '.join(self._value(t) for t in sources)}"
