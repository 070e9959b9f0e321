"""Runs of elementwise nodes: the source of the function that computes one tile, and what calls it.

A tile is a piece of the flattened arrays; in a run with rows and columns (see `elementwise`), some rows of them. Sums over all elements are
summed within each tile as NumPy does (pairwise), then over the tiles. Tiles depend on the size alone, so results do not depend on the
number of threads.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Container
from typing import Any

import numpy as np

from penstock.engines.memory import keep_freed_memory
from penstock.engines.python import elementwise, parallel
from penstock.engines.python.elementwise import COLUMN, REDUCTIONS, ROW, Fused, Step, kind_of, steps_in_run
from penstock.engines.python.sweeping import Swept
from penstock.graph.ir import Tensor

SMALLEST, LARGEST = 1 << 16, 1 << 17
"""Elements of a tile: the more there are, the less often threads meet at the interpreter's lock, and the fewer calls are made."""

_SLOW_WITH_NUMBERS = frozenset((np.maximum, np.minimum))
"""Ufuncs for which NumPy has quick code only if both operands are arrays: with a number, they take three times as long."""

# -- source --------------------------------------------------------------------------------------------------------------------


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
    kept = [t for t in run.outputs if t.op.type not in REDUCTIONS or t.op not in {n.op for n in run.reductions}]
    for i, tensor in enumerate(kept):
        where[tensor] = f"y{i}"
        lines.append(f"    y{i} = outputs[{i}][a:b]")
    rows, alias = rows_of(run, root, kept)
    last: dict[Any, int] = {}
    for i, (_, _, operands, _) in enumerate(rows):
        for operand in operands:
            if not isinstance(operand, np.generic):
                last[operand] = i
    ended = [alias.get(t, t) for t in (root(node.op.inputs[0]) for node in run.reductions)]
    last.update((tensor, len(rows)) for tensor in ended)
    free: dict[Any, list[int]] = {}
    buffers: list[tuple[np.dtype, bool]] = []  # type, and whether it is a column
    held: dict[Any, int] = {}
    body: list[str] = []
    spread: list[Any] = []  # numbers that are needed as arrays: constants, or their places among the run's numbers
    for i, (key, step, operands, node) in enumerate(rows):
        names = [name_of(o, "c") if isinstance(o, np.generic) else where[o] for o in operands]
        if step.ufunc in _SLOW_WITH_NUMBERS and not step.reduces and not _is_column(node.op.outputs[0], run):
            for j, operand in enumerate(operands):
                place = operand if isinstance(operand, np.generic) else _place(operand, run)
                if place is not None:
                    names[j] = f"m{len(spread)}"
                    lines.append(f"    {names[j]} = numbers[{len(run.numbers) + len(spread)}][:b - a]")
                    spread.append(place)
        for operand in operands:
            if not isinstance(operand, np.generic) and operand in held and last[operand] == i:
                number = held.pop(operand)
                free.setdefault(buffers[number], []).append(number)
        if key not in where:
            form = (step.dtype, _is_column(node.op.outputs[0], run))
            spare = free.get(form)
            if spare:
                number = spare.pop()
            else:
                number = len(buffers)
                buffers.append(form)
            held[key] = number
            where[key] = f"t{number}"
        comment = f"  # {node.op.name} = {node.op.type}"
        if step.reduces:
            function = name_of(_reduce(step.ufunc), step.ufunc.__name__ + "_rows_")
            body.append(f"    {function}({names[0]}, 1, None, {where[key]}, True){comment}")
        else:
            function = name_of(step.ufunc, step.ufunc.__name__ + "_")
            body.append(f"    {function}({', '.join(names)}, out={where[key]}){comment}")
    for i in range(len(buffers)):
        lines.append(f"    t{i} = buffers[{i}][:b - a]")
    lines += body
    for i, (node, tensor) in enumerate(zip(run.reductions, ended)):
        reduce = name_of(_reduce(REDUCTIONS[node.op.type]), "reduce_")
        flat = where[tensor] if run.dims is None else f"{where[tensor]}.reshape(-1)"
        lines.append(f"    sums[{i}][number] = {reduce}({flat})  # {node.op.name} = {node.op.type}")
    runner = Runner(run, [(t.dtype.np, _is_column(t, run)) for t in kept], buffers, [step for _, step, _, _ in rows])
    runner.spread = spread
    runner.swept = Swept(run, rows, kept, ended)
    if runner.swept.formula is not None:
        lines.insert(1, "    # As one loop in machine code, wherever that knows all of it:")
    if runner.swept.formula is not None and len(run.nodes) + len(run.reductions) >= elementwise.FEWEST_SWEPT:
        runner.least = min(runner.least, elementwise.MIN_SWEPT)
    # An input that nobody reads after an output is written may be that output, if nobody else needs it.
    made_at = {key: i for i, (key, _, _, _) in enumerate(rows)}
    for i, tensor in enumerate(kept):
        for j, array in enumerate(run.arrays):
            fits = array in dying and array.dtype.np == tensor.dtype.np and _is_column(array, run) == _is_column(tensor, run)
            if fits and last[array] <= made_at[tensor] and j not in runner.into.values():
                runner.into[i] = j
                break
    return lines, runner


def _place(operand: Any, run: Fused) -> int | None:
    """Where a number stands among the run's numbers; None for anything else."""
    return run.numbers.index(operand) if operand in run.numbers and operand.dims == () else None


@functools.lru_cache(maxsize=8)
def _filled(data: bytes, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(shape, dtype)
    array.fill(np.frombuffer(data, dtype)[0])
    return array


@functools.cache
def _reduce(ufunc: np.ufunc) -> Callable[..., Any]:
    return ufunc.reduce  # a new object whenever it is asked for


def _is_column(tensor: Tensor, run: Fused) -> bool:
    return run.dims is not None and kind_of(tensor.dims, run.dims) == COLUMN


def rows_of(run: Fused, root: Callable[[Tensor], Tensor], kept: Container[Tensor]) -> tuple[list[tuple[Any, Step, list[Any], Any]], dict[Tensor, Tensor]]:
    """The steps of all nodes: (key, step, keys of its operands, node). The last step of a node has the node's output as its key. Values that
    are only broadcast inside of the run are other names for what they come from."""
    rows: list[tuple[Any, Step, list[Any], Any]] = []
    alias: dict[Tensor, Tensor] = {}
    whole = {root(node.op.inputs[0]) for node in (*run.reductions, *(n for n in run.nodes if n.op.type in REDUCTIONS))}
    for node in run.nodes:
        steps = steps_in_run(node, root)
        assert steps is not None
        out = node.op.outputs[0]
        if node.op.type == "BroadcastTo" and out not in kept and out not in whole:
            source = root(node.op.inputs[0])
            alias[out] = alias.get(source, source)
            continue
        keys: list[Any] = [(out, i) for i in range(len(steps) - 1)] + [out]
        for key, step in zip(keys, steps):
            operands = []
            for o in step.operands:
                if isinstance(o, Tensor):
                    operands.append(alias.get(root(o), root(o)))
                else:
                    operands.append(keys[o] if o.__class__ is int else o)
            rows.append((key, step, operands, node))
    return rows, alias


# -- running ------------------------------------------------------------------------------------------------------------------


class Runner:
    """Computes a run on whole arrays: `runner(array, ..., number, ...)` gives its outputs, arrays first, then reductions.

    `outputs` and `buffers` are (type, whether it is a column)."""

    def __init__(self, run: Fused, outputs: list[tuple[np.dtype, bool]], buffers: list[tuple[np.dtype, bool]], steps: list[Step]) -> None:
        self.outputs = outputs
        self.buffers = buffers
        self.ends = [(REDUCTIONS[n.op.type], n.op.outputs[0].dtype.np, n.op.type == "Mean") for n in run.reductions]
        self.weight = elementwise.weight_of(steps)
        self.n_arrays = len(run.arrays)
        self.columns = 1 if run.dims is None else run.dims[-1]
        self.widths = [1 if _is_column(t, run) else self.columns for t in run.arrays]
        self.is_row = [run.dims is not None and kind_of(t.dims, run.dims) == ROW for t in run.numbers]
        self.is_flat = run.dims is None
        self.function: Callable[..., Any] = parallel.serial
        self.swept: Swept | None = None
        self.least = elementwise.MIN_SIZE
        """Elements from which on the run is worth it."""
        self.spread: list[Any] = []
        self.into: dict[int, int] = {}  # outputs that are written into an input
        keep_freed_memory()
        bytes_each = sum(d.itemsize for d, is_column in (*buffers, *outputs) if not is_column) + self.n_arrays * 4
        self.tile = min(max(elementwise.CACHE // max(bytes_each, 1) // 4096 * 4096, SMALLEST), LARGEST)

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        n, columns = self.n_arrays, self.columns
        numbers: Any = values[n:]
        shape, size = values[0].shape, values[0].size // columns
        if self.swept is not None:
            found = self.swept(values, lambda may_overwrite: self._results(values, shape, may_overwrite))
            if found is not None:
                totals = [total / (size * columns) if is_mean else total for (_, _, is_mean), total in zip(self.ends, found[1])]
                return (*found[0], *(dtype.type(total) for (_, dtype, _), total in zip(self.ends, totals)))
        results = self._results(values, shape)
        if self.is_flat:
            arrays = [v.reshape(-1) for v in values[:n]]
            flat = [r.reshape(-1) for r in results]
        else:
            arrays = [v.reshape(-1, width) for v, width in zip(values, self.widths)]
            numbers = [v.reshape(-1) if is_row else v for v, is_row in zip(numbers, self.is_row)]
            flat = [r.reshape(-1, 1 if is_column else columns) for r, (_, is_column) in zip(results, self.outputs)]
        tile = max(self.tile // columns, 1)
        if size < 2 * tile:
            tile = max(-(-size // 2), elementwise.MIN_SIZE // 2 // columns, 1)
        if self.spread:
            form = (tile,) if self.is_flat else (tile, columns)
            wanted = [numbers[what] if what.__class__ is int else what for what in self.spread]
            numbers = [*numbers, *(_filled(number.tobytes(), number.dtype, form) for number in wanted)]
        count = -(-size // tile)
        sums = [np.empty(count, dtype) for _, dtype, _ in self.ends]
        function = self.function

        def work(number: int) -> None:
            start = number * tile
            function(start, min(start + tile, size), arrays, numbers, flat, self._buffers(tile), sums, number)

        is_long = elementwise.is_long(size * columns, self.weight)
        (parallel.parallel_for if is_long else parallel.serial)(count, work)
        for (ufunc, dtype, is_mean), parts in zip(self.ends, sums):
            total = ufunc.reduce(parts)
            results.append(np.true_divide(total, dtype.type(size * columns)) if is_mean else total)
        return tuple(results)

    def _results(self, values: tuple[Any, ...], shape: tuple[int, ...], may_overwrite: bool = True) -> list[np.ndarray]:
        results = []
        for i, (dtype, is_column) in enumerate(self.outputs):
            array = values[self.into[i]] if may_overwrite and i in self.into else None
            if array is None or not array.flags.c_contiguous:
                array = np.empty((*shape[:-1], 1) if is_column else shape, dtype)
            results.append(array)
        return results

    def _buffers(self, tile: int) -> list[np.ndarray]:
        """This thread's buffers, as arrays of the types that are needed."""
        kept = _scratch.__dict__.setdefault("kept", [])
        result = []
        for i, (dtype, is_column) in enumerate(self.buffers):
            width = 1 if is_column else self.columns
            size = tile * width * dtype.itemsize
            if i == len(kept):
                kept.append(np.empty(size, np.uint8))
            elif kept[i].size < size:
                kept[i] = np.empty(size, np.uint8)
            buffer = kept[i][:size].view(dtype)
            result.append(buffer if self.is_flat else buffer.reshape(tile, width))
        return result


_scratch = threading.local()
