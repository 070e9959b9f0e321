"""Runs of elementwise nodes on big arrays, computed tile by tile.

A chain of ufuncs over a million numbers spends its time waiting for memory. Cut into tiles that stay in a core's cache, every
intermediate value lives in a small buffer that is used again, only what others need is written out, and tiles go to as many
threads as there are (ufuncs let go of the interpreter while they compute).

`find_runs` replaces runs of calls by `Fused` statements; `Fused.write` gives the source of the function for one tile; a `Runner`
is what the generated code calls. Sums over all elements may end a run: each tile is summed as NumPy does (pairwise), then the
tiles' sums are. Tiles depend on the size alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.memory import keep_freed_memory
from penstock.engines.python.expressions import original, ufunc_of, variables_read
from penstock.engines.python.structure import Assign, Branch, Call, Loop, Offloaded
from penstock.graph.ir import Operation, Tensor

MIN_SIZE = 1 << 16
"""Elements from which on a run is worth tiles."""
PARALLEL = 1 << 19
"""Elements times operations from which on a second thread is worth waking."""
CACHE = 1 << 20
"""Bytes of all buffers of a tile together: what stays in a core's second-level cache."""
LONGEST = 96
"""Nodes of one run."""

_FLOATS = (np.float32, np.float64)
_REDUCTIONS = {"Sum": np.add, "Mean": np.add, "Max": np.maximum, "Min": np.minimum}


def _serial(count: int, work: Callable[[int], Any]) -> None:
    for i in range(count):
        work(i)


parallel_for: Callable[[int, Callable[[int], Any]], None] = _serial
"""`parallel_for(n, work)` calls work(0) ... work(n - 1), in any order, on several threads. The runtime sets it."""

# -- nodes as steps ------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """One ufunc. Operands: a Tensor, the number of an earlier step of the same node, or a NumPy scalar."""

    ufunc: np.ufunc
    operands: tuple[Any, ...]
    dtype: np.dtype


def steps_of(node: Any) -> list[Step] | None:
    """The ufuncs that compute a node bit for bit as its kernel does; None if there are none."""
    op: Operation = node.op
    if len(op.outputs) != 1 or not op.inputs or variables_read(node):
        return None
    dtype = op.outputs[0].dtype.np
    ufunc = ufunc_of(node)
    if ufunc is not None:
        kinds = {t.dtype.np.type for t in op.inputs}
        if ufunc.nin != len(op.inputs) or ufunc.nout != 1 or len(kinds) != 1 or not kinds <= {*_FLOATS, np.bool_}:
            return None
        return [Step(ufunc, tuple(op.inputs), dtype)]
    make = _RECIPES.get(op.type)
    if make is None or dtype.type not in _FLOATS or not original(node):
        return None
    return make(op, dtype)


def _relu(op: Operation, dtype: np.dtype) -> list[Step]:
    return [Step(np.maximum, (op.inputs[0], dtype.type(0)), dtype)]


def _relu6(op: Operation, dtype: np.dtype) -> list[Step]:
    return [*_relu(op, dtype), Step(np.minimum, (0, dtype.type(6)), dtype)]


def _sigmoid(op: Operation, dtype: np.dtype) -> list[Step]:
    return [
        Step(np.negative, (op.inputs[0],), dtype),
        Step(np.exp, (0,), dtype),
        Step(np.add, (1, dtype.type(1)), dtype),
        Step(np.reciprocal, (2,), dtype),
    ]


def _squared_difference(op: Operation, dtype: np.dtype) -> list[Step]:
    return [Step(np.subtract, tuple(op.inputs), dtype), Step(np.square, (0,), dtype)]


def _add_n(op: Operation, dtype: np.dtype) -> list[Step] | None:
    if len(op.inputs) < 2:
        return None
    steps = [Step(np.add, (op.inputs[0], op.inputs[1]), dtype)]
    return steps + [Step(np.add, (i, t), dtype) for i, t in enumerate(op.inputs[2:])]


def _relu_grad(op: Operation, dtype: np.dtype) -> list[Step]:
    return [
        Step(np.greater, (op.inputs[1], dtype.type(0)), np.dtype(bool)),
        Step(np.multiply, (op.inputs[0], 0), dtype),
    ]


def _tanh_grad(op: Operation, dtype: np.dtype) -> list[Step]:
    y, dy = op.inputs
    return [
        Step(np.multiply, (y, y), dtype),
        Step(np.subtract, (dtype.type(1), 0), dtype),
        Step(np.multiply, (dy, 1), dtype),
    ]


_RECIPES: dict[str, Callable[[Operation, np.dtype], list[Step] | None]] = {
    "Relu": _relu,
    "Relu6": _relu6,
    "Sigmoid": _sigmoid,
    "SquaredDifference": _squared_difference,
    "AddN": _add_n,
    "ReluGrad": _relu_grad,
    "TanhGrad": _tanh_grad,
}

# -- finding runs ----------------------------------------------------------------------------------------------------------


class Fused(NamedTuple):
    """A run: its nodes in order, the reductions that end it, the arrays and numbers it reads, and what others need of it."""

    nodes: list[Any]
    reductions: list[Any]
    arrays: list[Tensor]
    numbers: list[Tensor]
    outputs: list[Tensor]


def find_runs(block: list, root: Callable[[Tensor], Tensor], results: Iterable[Tensor]) -> list:
    """The block with runs of elementwise calls made into Fused statements; blocks inside of it likewise."""
    readers: dict[Tensor, set[int]] = {}
    for statement in _everything(block):
        for tensor in _inputs(statement):
            readers.setdefault(root(tensor), set()).add(id(statement))
    for tensor in results:
        readers.setdefault(root(tensor), set()).add(0)
    return _in_block(block, root, readers)


def _in_block(block: list, root: Callable[[Tensor], Tensor], readers: dict[Tensor, set[int]]) -> list:
    result: list = []
    waiting = list(block)
    steps = {id(s): steps_of(s.node) for s in block if isinstance(s, Call)}
    while waiting:
        first = waiting[0]
        if isinstance(first, Branch):
            first = first._replace(yes=_in_block(first.yes, root, readers), no=_in_block(first.no, root, readers))
        elif isinstance(first, Loop):
            first = first._replace(cond=_in_block(first.cond, root, readers), body=_in_block(first.body, root, readers))
        elif isinstance(first, Call) and steps[id(first)] is not None:
            dims = first.node.op.outputs[0].dims
            if _worth_it(dims) and _fits(first.node, dims, set(), root):
                batch, sums, rest = _collect(waiting, dims, steps, root)
                run = _run(batch, sums, root, readers)
                if run is not None:
                    result.append(run)
                    waiting = rest
                    continue
        result.append(first)
        del waiting[0]
    return result


def _worth_it(dims: Any) -> bool:
    if not dims:
        return False
    return None in dims or int(np.prod(dims)) >= MIN_SIZE


def _fits(node: Any, dims: Any, made: set[Tensor], root: Callable[[Tensor], Tensor]) -> bool:
    """Every input is an array of the run's shape, or a number."""
    op: Operation = node.op
    if op.outputs[0].dims != dims:
        return False
    shapes = [dims if root(t) in made else root(t).dims for t in op.inputs]
    return all(s in (dims, ()) for s in shapes) and dims in shapes


def _collect(waiting: list, dims: Any, steps: dict, root: Callable[[Tensor], Tensor]) -> tuple[list, list, list]:
    """The calls that can run together with the first one, reductions of what they give, and all other statements."""
    batch, sums, rest = [waiting[0]], [], []
    made = {waiting[0].node.op.outputs[0]}
    blocked: set[Tensor] = set()
    for statement in waiting[1:]:
        if isinstance(statement, Call) and len(batch) < LONGEST:
            op = statement.node.op
            inputs = [root(t) for t in op.inputs]
            if any(t in made for t in inputs) and not any(t in blocked for t in inputs):
                if steps.get(id(statement)) is not None and _fits(statement.node, dims, made, root):
                    batch.append(statement)
                    made.add(op.outputs[0])
                    continue
                if inputs[0] in made and _reduces_all(statement.node, root):
                    sums.append(statement)
                    blocked.add(op.outputs[0])
                    continue
        rest.append(statement)
        blocked.update(outputs_of(statement))
    return batch, sums, rest


def _reduces_all(node: Any, root: Callable[[Tensor], Tensor]) -> bool:
    op: Operation = node.op
    if op.type not in _REDUCTIONS or op.attrs["keep_dims"] or not original(node):
        return False
    dims, axes = op.inputs[0].dims, root(op.inputs[1])
    if axes.op.type not in ("Const", "HostConst") or op.outputs[0].dtype.np.type not in _FLOATS or dims is None:
        return False
    chosen = {int(a) % len(dims) for a in np.ravel(axes.op.attrs["value"].array)}
    return len(chosen) == len(dims)


def _run(batch: list, sums: list, root: Callable[[Tensor], Tensor], readers: dict[Tensor, set[int]]) -> Fused | None:
    nodes = [s.node for s in batch]
    dims = nodes[0].op.outputs[0].dims
    if len(nodes) + len(sums) < (2 if None in dims else 1):
        return None
    own = {id(s) for s in (*batch, *sums)}
    made = {n.op.outputs[0] for n in nodes}
    arrays: dict[Tensor, None] = {}
    numbers: dict[Tensor, None] = {}
    for node in nodes:
        for tensor in node.op.inputs:
            base = root(tensor)
            if base not in made:
                (numbers if base.dims == () else arrays)[base] = None
    outputs = [t for n in nodes for t in n.op.outputs if readers.get(t, set()) - own]
    outputs += [s.node.op.outputs[0] for s in sums]
    if not arrays or not outputs:
        return None
    return Fused(nodes, [s.node for s in sums], list(arrays), list(numbers), outputs)


def _everything(block: list) -> Iterable[Any]:
    for statement in block:
        yield statement
        if isinstance(statement, Branch):
            yield from _everything(statement.yes)
            yield from _everything(statement.no)
        elif isinstance(statement, Loop):
            yield from _everything(statement.cond)
            yield from _everything(statement.body)


def _inputs(statement: Any) -> Sequence[Tensor]:
    if isinstance(statement, Branch):
        return [statement.pred]
    if isinstance(statement, Loop):
        return [statement.again, *(t for _, first, again in statement.carried for t in (first, again))]
    if isinstance(statement, Offloaded):
        return statement.inputs
    return statement.node.op.inputs


def outputs_of(statement: Any) -> list[Tensor]:
    made: list[Tensor] = []
    for inner in _everything([statement]):
        if isinstance(inner, Loop):
            made += [t for merge, _, _ in inner.carried for t in merge.op.outputs]
        elif isinstance(inner, (Call, Assign)):
            made += inner.node.op.outputs
        elif not isinstance(inner, Branch):
            made += inner.outputs
    return made


# -- source and running ------------------------------------------------------------------------------------------------------


def write_tile(
    run: Fused, name: str, root: Callable[[Tensor], Tensor], name_of: Callable[[Any, str], str], dying: Container[Tensor] = ()
) -> tuple[list[str], Runner]:
    """The source of the function that computes one tile, and the Runner that will call it (its `function` is still to be set). Arrays that
    are `dying` may be written into."""
    lines = [f"def {name}(a, b, arrays, numbers, outputs, buffers, sums, number):"]
    where: dict[Any, str] = {}
    for i, tensor in enumerate(run.arrays):
        where[tensor] = f"x{i}"
        lines.append(f"    x{i} = arrays[{i}][a:b]")
    for i, tensor in enumerate(run.numbers):
        where[tensor] = f"s{i}"
        lines.append(f"    s{i} = numbers[{i}]")
    kept = [t for t in run.outputs if t.op.type not in _REDUCTIONS or t.op not in {n.op for n in run.reductions}]
    for i, tensor in enumerate(kept):
        where[tensor] = f"y{i}"
        lines.append(f"    y{i} = outputs[{i}][a:b]")
    # Every step has a key; the last step of a node has the node's output as its key.
    rows: list[tuple[Any, Step, list[Any], Any]] = []
    for node in run.nodes:
        steps = steps_of(node)
        assert steps is not None
        out = node.op.outputs[0]
        keys: list[Any] = [(out, i) for i in range(len(steps) - 1)] + [out]
        for key, step in zip(keys, steps):
            operands = [
                root(o) if isinstance(o, Tensor) else keys[o] if o.__class__ is int else o for o in step.operands
            ]
            rows.append((key, step, operands, node))
    last: dict[Any, int] = {}
    for i, (_, _, operands, _) in enumerate(rows):
        for operand in operands:
            if not isinstance(operand, np.generic):
                last[operand] = i
    for node in run.reductions:
        last[root(node.op.inputs[0])] = len(rows)
    free: dict[np.dtype, list[int]] = {}
    buffers: list[np.dtype] = []
    held: dict[Any, int] = {}
    body: list[str] = []
    for i, (key, step, operands, node) in enumerate(rows):
        names = [name_of(o, "c") if isinstance(o, np.generic) else where[o] for o in operands]
        for operand in operands:
            if not isinstance(operand, np.generic) and operand in held and last[operand] == i:
                number = held.pop(operand)
                free.setdefault(buffers[number], []).append(number)
        if key not in where:
            spare = free.get(step.dtype)
            if spare:
                number = spare.pop()
            else:
                number = len(buffers)
                buffers.append(step.dtype)
            held[key] = number
            where[key] = f"t{number}"
        function = name_of(step.ufunc, step.ufunc.__name__ + "_")
        body.append(f"    {function}({', '.join(names)}, out={where[key]})  # {node.op.name} = {node.op.type}")
    for i in range(len(buffers)):
        lines.append(f"    t{i} = buffers[{i}][:b - a]")
    lines += body
    for i, node in enumerate(run.reductions):
        reduce = name_of(_REDUCTIONS[node.op.type].reduce, "reduce_")
        lines.append(
            f"    sums[{i}][number] = {reduce}({where[root(node.op.inputs[0])]})  # {node.op.name} = {node.op.type}"
        )
    ends = [(_REDUCTIONS[n.op.type], n.op.outputs[0].dtype.np, n.op.type == "Mean") for n in run.reductions]
    runner = Runner([t.dtype.np for t in kept], buffers, ends, len(rows), len(run.arrays))
    # An input that nobody reads after an output is written may be that output, if nobody else needs it.
    made_at = {key: i for i, (key, _, _, _) in enumerate(rows)}
    for i, tensor in enumerate(kept):
        for j, array in enumerate(run.arrays):
            if array in dying and array.dtype.np == tensor.dtype.np and last[array] <= made_at[tensor] and j not in runner.into.values():
                runner.into[i] = j
                break
    return lines, runner


class Runner:
    """Computes a run on whole arrays: `runner(array, ..., number, ...)` gives its outputs, arrays first, then reductions."""

    def __init__(
        self, outputs: list[np.dtype], buffers: list[np.dtype], ends: list[tuple], n_steps: int, n_arrays: int
    ) -> None:
        self.outputs = outputs
        self.buffers = buffers
        self.ends = ends
        self.n_steps = n_steps
        self.n_arrays = n_arrays
        self.function: Callable[..., Any] = _serial
        self.into: dict[int, int] = {}  # outputs that are written into an input
        keep_freed_memory()
        bytes_each = sum(d.itemsize for d in (*buffers, *outputs)) + n_arrays * 4
        self.tile = min(max(CACHE // max(bytes_each, 1) // 4096 * 4096, 1 << 15), 1 << 17)

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        arrays, numbers = [v.reshape(-1) for v in values[: self.n_arrays]], values[self.n_arrays :]
        shape, size = values[0].shape, values[0].size
        results = [np.empty(shape, dtype) for dtype in self.outputs] if not self.into else self._results(values)
        flat = [r.reshape(-1) for r in results]
        tile = self.tile
        if size < 2 * tile:
            tile = max(-(-size // 2), MIN_SIZE // 2)
        count = -(-size // tile)
        sums = [np.empty(count, dtype) for _, dtype, _ in self.ends]
        function = self.function

        def work(number: int) -> None:
            start = number * tile
            function(start, min(start + tile, size), arrays, numbers, flat, self._buffers(tile), sums, number)

        (parallel_for if size * self.n_steps >= PARALLEL else _serial)(count, work)
        for (ufunc, dtype, is_mean), parts in zip(self.ends, sums):
            total = ufunc.reduce(parts)
            results.append(np.true_divide(total, dtype.type(size)) if is_mean else total)
        return tuple(results)

    def _results(self, values: tuple[Any, ...]) -> list[np.ndarray]:
        shape = values[0].shape
        found = [values[self.into[i]] if i in self.into else None for i in range(len(self.outputs))]
        return [
            np.empty(shape, dtype) if array is None or not array.flags.c_contiguous else array
            for array, dtype in zip(found, self.outputs)
        ]

    def _buffers(self, tile: int) -> list[np.ndarray]:
        """This thread's buffers, as arrays of the types that are needed."""
        kept = _scratch.__dict__.setdefault("kept", [])
        result = []
        for i, dtype in enumerate(self.buffers):
            size = tile * dtype.itemsize
            if i == len(kept):
                kept.append(np.empty(size, np.uint8))
            elif kept[i].size < size:
                kept[i] = np.empty(size, np.uint8)
            result.append(kept[i][:size].view(dtype))
        return result


_scratch = threading.local()
