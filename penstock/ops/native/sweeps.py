"""Many elementwise operations in one pass over memory: what a run of ufuncs computes, as one loop in machine code.

    sweep = sweeps.compiled(formula)                  # None if it has something that is not known here; only where native.available()
    sweep(rows, columns, arrays, numbers, outputs)    # computes the outputs, gives the totals

A `Formula` is a list of steps, each a ufunc of earlier values. Values are *full* (one number for each element), *rows* (one for each column), *columns* (one for
each row) or *numbers*; a step may reduce full values along the last axis, which gives a column. Rows of the arrays are taken one after the other, and each of
them in as many *phases* as reductions wait for each other: a softmax has three. What is needed in a later phase is computed again if that is
quick, and kept for the length of a row otherwise.

A processor begins the next elements before it is done with these, as far as a few hundred instructions reach. Where one value waits for another for longer than that, as in layer upon layer of tanh, most
of the time is waiting. So flat arrays are gone over in tiles, each of them in as many phases as such a chain has pieces of `DEEPEST` cycles.

Sums, differences, products, quotients, roots and comparisons are rounded as NumPy rounds them; exponentials and the like may differ in the last bits, and so may sums.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from penstock.ops import native
from penstock.ops.kernels import threads
from penstock.ops.native import maths
from penstock.ops.native.vectors import Node, Trace, Vec, select

FULL, NUMBER, ROW, COLUMN, CONSTANT = "full", "number", "row", "column", "constant"
FLAT, ROWS, LONG_ROWS = "flat", "rows", "long rows"
TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.bool_): "bool"}
SIZES = {"f32": 4, "f64": 8, "bool": 1}
MOST_ARRAYS, MOST_TOTALS = 40, 6
HEAVY = 4
"""So many steps are not computed again in a later phase."""
DEEPEST, TILE = 120, 1024
"""Cycles that a value may wait for others of its phase, and elements of a flat array that all phases go over before the next ones."""
LONG = 4096
"""From so many columns on, singles are summed as doubles: a lane adds hundreds of them."""
PIECES = 8
STREAMED, MOST_STREAMED = 32 << 20, 64
"""Bytes of results from which on they are stored past the caches, and instructions of a loop that waits for memory: the processor then does not read first what
it writes over, which is a tenth of an addition's time."""


class Formula(NamedTuple):
    """What a sweep computes. Values are numbered: the inputs, then the steps."""

    compute: str
    """The type of all numbers but truths: f32 or f64."""
    inputs: tuple[tuple[str, str, bytes], ...]
    """Kind, type, and a constant's bytes."""
    steps: tuple[tuple[Any, tuple[int, ...], bool], ...]
    """Ufunc (or `choose`), operands, whether it reduces."""
    outputs: tuple[tuple[int, str, bool], ...]
    """Value, type, whether it is a column."""
    totals: tuple[tuple[Any, int], ...]
    """Ufunc and value of reductions over everything."""
    shape: str
    """Whether arrays are FLAT, or have ROWS or LONG_ROWS: see `shape_for`."""


def shape_for(columns: int) -> str:
    """The shape of a formula over rows of so many elements."""
    return LONG_ROWS if columns >= LONG else ROWS


class Unknown(Exception):
    """A formula that cannot be compiled."""


def choose(condition: Any, yes: Any, no: Any, out: np.ndarray) -> None:
    """np.where, in the form of a ufunc; `out` may be one of the others."""
    np.copyto(out, np.where(condition, yes, no))


_LOGIC = {np.logical_and: Vec.__and__, np.logical_or: Vec.__or__, np.logical_xor: Vec.__xor__, np.logical_not: Vec.__invert__, np.bitwise_and: Vec.__and__, np.bitwise_or: Vec.__or__}
_EXACT = {
    np.add: Vec.__add__, np.subtract: Vec.__sub__, np.multiply: Vec.__mul__, np.true_divide: lambda x, y: x.op("div", y), np.negative: Vec.__neg__,
    np.positive: Vec.__pos__, np.absolute: maths.absolute, np.sqrt: lambda x: x.op("sqrt"), np.square: lambda x: x * x, np.reciprocal: lambda x: 1.0 / x,
    np.maximum: maths.maximum, np.minimum: maths.minimum, np.floor: maths.round_to(9), np.ceil: maths.round_to(10), np.trunc: maths.round_to(11), np.rint: maths.round_to(8),
    np.sign: lambda x: select(x == 0, 0.0, maths.sign(x)), np.isnan: lambda x: x != x, np.isinf: maths.isinf, np.isfinite: maths.isfinite,
    np.less: Vec.__lt__, np.less_equal: Vec.__le__, np.greater: Vec.__gt__, np.greater_equal: Vec.__ge__, np.equal: Vec.__eq__, np.not_equal: Vec.__ne__,
}  # fmt: skip
_ROUNDED = {np.exp: maths.exp, np.expm1: maths.expm1, np.log: maths.log, np.log1p: maths.log1p, np.tanh: maths.tanh}
_SLOW = {np.true_divide: 16, np.sqrt: 16, np.reciprocal: 16, **dict.fromkeys(_ROUNDED, 80)}
"""Cycles until the result is there; any other takes 4."""
_REDUCED = {np.add: "add", np.multiply: "mul", np.maximum: "max", np.minimum: "min"}


def knows(ufunc: Any) -> bool:
    """Whether a formula may have this ufunc."""
    return ufunc in _EXACT or ufunc in _ROUNDED or ufunc in _LOGIC or ufunc is choose


def _applied(ufunc: Any, operands: Sequence[Vec], trace: Trace, compute: str) -> Vec:
    if ufunc in _LOGIC:
        if any(v.type != "mask" for v in operands):
            raise Unknown
        return _LOGIC[ufunc](*operands)
    if ufunc is choose:
        condition, *values = operands
        if condition.type != "mask" or any(v.type == "mask" for v in values):
            raise Unknown
        return select(condition, *values)
    numbers = [select(v, trace.constant(1, compute), trace.constant(0, compute)) if v.type == "mask" else v for v in operands]
    if ufunc in _EXACT:
        return _EXACT[ufunc](*numbers)
    if ufunc not in _ROUNDED:
        raise Unknown
    # Inside, products and sums are fused, but not with the products that the arguments are.
    numbers = [trace.add("same", [v], v.type) if v.node.name.startswith("mul.") else v for v in numbers]
    trace.fuse = True
    result = _ROUNDED[ufunc](*numbers)
    trace.fuse = False
    return result


# -- phases --------------------------------------------------------------------------------------------------------------------


class Accumulator(NamedTuple):
    """What is reduced in pinned registers; `wide`: singles in two vectors of doubles."""

    op: str
    registers: tuple[int, ...]
    wide: bool


class Phase:
    """`before` computes columns, `body` goes over a row; `reductions` are columns that are known after it."""

    def __init__(self, compute: str) -> None:
        self.before, self.body = Trace(False, compute), Trace(False, compute)
        self.values: dict[int, Vec] = {}
        self.reductions: list[tuple[Node, Accumulator]] = []
        self.stores: list[tuple[int, Vec, str]] = []


class Kept:
    """A place for the length of a row, or of a tile: written in phase `first`, read up to phase `last`."""

    __slots__ = ("first", "last")

    def __init__(self, first: int) -> None:
        self.first = self.last = first


class Plan:
    """A formula as phases. Arrays are numbered: the inputs that are arrays, the outputs, then what is kept for the length of a row."""

    def __init__(self, formula: Formula) -> None:
        self.formula = formula
        self.compute = formula.compute
        self.n_inputs = len(formula.inputs)
        self.arrays: list[tuple[str, str]] = [(kind, type) for kind, type, _ in formula.inputs if kind in (FULL, ROW, COLUMN)]
        self.n_read = len(self.arrays)
        self.arrays += [(COLUMN if is_column else FULL, type) for _, type, is_column in formula.outputs]
        self.kept: dict[int, Kept] = {}
        self.numbers = [(i, type) for i, (kind, type, _) in enumerate(formula.inputs) if kind == NUMBER]
        self._places()
        self._levels()
        self.held: dict[int, Node] = {}
        self.n_registers = 0
        self.phases = [Phase(self.compute) for _ in range(max((*self.level, 0)) + 1)]
        self.has_tiles = formula.shape == FLAT and len(self.phases) > 1
        self.totals = [self._accumulator(ufunc, True) for ufunc, _ in formula.totals]
        self._trace()
        self._place_kept()
        if self.n_registers > 16 or len(self.arrays) > MOST_ARRAYS:
            raise Unknown

    def _places(self) -> None:
        self.array_of: dict[int, int] = {}
        for i, (kind, _, _) in enumerate(self.formula.inputs):
            if kind in (FULL, ROW, COLUMN):
                self.array_of[i] = len(self.array_of)

    def _levels(self) -> None:
        """Of each value: the phase in which it is known, whether it is the same for all of a row, and how many steps it takes in its phase."""
        self.level: list[int] = [0] * self.n_inputs
        self.is_column = [kind in (COLUMN, NUMBER, CONSTANT) for kind, _, _ in self.formula.inputs]
        self.steps_of = [0] * self.n_inputs
        depths = [0] * self.n_inputs
        is_flat = self.formula.shape == FLAT
        for ufunc, operands, reduces in self.formula.steps:
            level = max(self.level[o] for o in operands)
            is_column = all(self.is_column[o] for o in operands)
            depth = max(depths[o] for o in operands if self.level[o] == level) + _SLOW.get(ufunc, 4)
            if depth > DEEPEST and is_flat and not is_column:
                level, depth = level + 1, _SLOW.get(ufunc, 4)
            depths.append(0 if is_column else depth)
            self.level.append(level + reduces)
            self.is_column.append(reduces or is_column)
            inside = sum(self.steps_of[o] for o in operands if self.level[o] == level and not self.is_column[o])
            self.steps_of.append(inside + (HEAVY if ufunc in _ROUNDED else 1))

    def _accumulator(self, ufunc: Any, wide: bool) -> Accumulator:
        if ufunc not in _REDUCED:
            raise Unknown
        wide = wide and ufunc is np.add and self.compute == "f32"
        first = 31 - self.n_registers
        self.n_registers += 1 + wide
        return Accumulator(_REDUCED[ufunc], (first, first - 1) if wide else (first,), wide)

    def _trace(self) -> None:
        formula = self.formula
        for step, (ufunc, operands, reduces) in enumerate(formula.steps):
            v = self.n_inputs + step
            if reduces:
                phase = self.phases[self.level[v] - 1]
                accumulator = self._accumulator(ufunc, formula.shape == LONG_ROWS)
                self.held[v] = Node("held", (), self.compute, None)
                phase.body.add("accumulate", [self._number(self._full(operands[0], self.level[v] - 1))], "none", accumulator)
                phase.reductions.append((self.held[v], accumulator))
            elif self.is_column[v]:
                self._column(v)
        for i, (v, type, is_column) in enumerate(formula.outputs):
            if is_column:
                self.phases[self.level[v]].before.add("write", [self._column(v)], "none", (self.n_read + i, type))
            else:
                self._full(v, self.level[v])
        for (_, v), accumulator in zip(formula.totals, self.totals, strict=True):
            self.phases[self.level[v]].body.add("accumulate", [self._number(self._full(v, self.level[v]))], "none", accumulator)
        for i, (v, type, is_column) in enumerate(formula.outputs):
            if not is_column:  # behind everything that reads: a result may lie where an input was
                phase = self.phases[self.level[v]]
                phase.body.add("write", [phase.values[v]], "none", (self.n_read + i, type))

    def _number(self, value: Vec) -> Vec:
        if value.type == "mask":
            raise Unknown
        return value

    def _input(self, v: int, trace: Trace) -> Vec:
        kind, type, data = self.formula.inputs[v]
        if kind == CONSTANT:
            if type == "bool":
                raise Unknown
            return trace.constant(np.frombuffer(data, {"f32": np.float32, "f64": np.float64}[type])[0], type)
        if kind in (NUMBER, COLUMN):
            if v not in self.held:
                if kind == COLUMN and type == "bool":
                    raise Unknown
                self.held[v] = Node("held", (), "mask" if type == "bool" else self.compute, None)
                if kind == COLUMN:
                    first = self.phases[0].before
                    read = first.add("read", [], self.compute, (self.array_of[v], type))
                    first.add("hold", [read], "none", self.held[v])
            return Vec(trace, self.held[v])
        return trace.add("read", [], "mask" if type == "bool" else self.compute, (self.array_of[v], type))

    def _column(self, v: int) -> Vec:
        """A value that is the same for all of a row, where columns are computed."""
        trace = self.phases[self.level[v]].before
        if v < self.n_inputs:
            return self._input(v, trace)
        if v not in self.held:
            ufunc, operands, _ = self.formula.steps[v - self.n_inputs]
            values = [self._column(o) if self.level[o] == self.level[v] and not self._is_reduced(o) else self._held(o, trace) for o in operands]
            value = _applied(ufunc, values, trace, self.compute)
            self.held[v] = Node("held", (), value.type, None)
            trace.add("hold", [value], "none", self.held[v])
        return Vec(trace, self.held[v])

    def _is_reduced(self, v: int) -> bool:
        return v >= self.n_inputs and self.formula.steps[v - self.n_inputs][2]

    def _held(self, v: int, trace: Trace) -> Vec:
        if v < self.n_inputs:
            return self._input(v, trace)
        if v not in self.held:
            self._column(v)
        return Vec(trace, self.held[v])

    def _full(self, v: int, p: int) -> Vec:
        """A value in the body of a phase."""
        phase = self.phases[p]
        if v in phase.values:
            return phase.values[v]
        if v < self.n_inputs:
            value = self._input(v, phase.body)
        elif self.is_column[v]:
            value = self._held(v, phase.body)
        else:
            if self.has_tiles and self.level[v] < p and self.steps_of[v] >= HEAVY:
                self._full(v, self.level[v])  # to wait for it here is what phases are to prevent
            earlier = next((q for q in range(p) if v in self.phases[q].values), None)
            if earlier is not None and self.steps_of[v] >= HEAVY and self.phases[earlier].values[v].type == self.compute:
                value = phase.body.add("read", [], self.compute, (self._kept(v, earlier, p), self.compute))
            else:
                ufunc, operands, _ = self.formula.steps[v - self.n_inputs]
                value = _applied(ufunc, [self._full(o, p) for o in operands], phase.body, self.compute)
        phase.values[v] = value
        return value

    def _kept(self, v: int, first: int, p: int) -> int | Kept:
        """Where phase `p` finds a value of an earlier one: in an output, or in a place for the length of a row."""
        for i, (output, type, is_column) in enumerate(self.formula.outputs):
            if output == v and type == self.compute and not is_column and self.level[v] == first:
                return self.n_read + i
        if v not in self.kept:
            self.kept[v] = Kept(first)
            self.phases[first].body.add("write", [self.phases[first].values[v]], "none", (self.kept[v], self.compute))
        self.kept[v].last = max(self.kept[v].last, p)
        return self.kept[v]

    def _place_kept(self) -> None:
        """An array for each place, and the same one for several that are not needed at the same time."""
        numbers: dict[Kept, int] = {}
        free_after: dict[int, int] = {}  # of each array, the last phase that reads it
        for kept in sorted(self.kept.values(), key=lambda k: k.first):
            number = next((n for n, last in free_after.items() if last < kept.first), len(self.arrays))
            if number == len(self.arrays):
                self.arrays.append((ROW, self.compute))
            numbers[kept], free_after[number] = number, kept.last
        self.n_kept = len(free_after)
        for phase in self.phases:
            for node in phase.body.nodes:
                if node.name in ("read", "write") and isinstance(node.data[0], Kept):
                    node.data = numbers[node.data[0]], node.data[1]


# -- running --------------------------------------------------------------------------------------------------------------------


Function = Callable[[bytes], None]


def _function_of(code: bytes) -> Function:
    from penstock.ops.native.executable import into_memory

    return ctypes.CFUNCTYPE(None, ctypes.c_char_p)(into_memory(code))


class Sweep:
    """A compiled formula."""

    def __init__(self, formula: Formula, plan: Plan, code: bytes, n_nodes: int) -> None:
        self.function = _function_of(code)
        self.plan = plan
        in_the_end = formula.shape == FLAT and all(plan.level[v] == len(plan.phases) - 1 for v, _, _ in formula.outputs)
        self.may_overwrite = len(plan.phases) == 1 or in_the_end
        self.has_tiles = plan.has_tiles
        self.steps = [SIZES[type] if kind != ROW else 0 for kind, type in plan.arrays[: len(plan.arrays) - plan.n_kept]]
        self.is_column = [kind == COLUMN for kind, _ in plan.arrays]
        self.n_kept = plan.n_kept
        self.size = SIZES[formula.compute]
        self.totals = [(ufunc, len(a.registers)) for (ufunc, _), a in zip(formula.totals, plan.totals, strict=True)]
        self.total_type = [np.float64 if a.wide else np.dtype(formula.compute.replace("f", "float")) for a in plan.totals]
        self.n_vectors = sum(n for _, n in self.totals)
        self.streams = self._may_stream(formula, n_nodes)
        self.cost = n_nodes / (64 // SIZES[formula.compute]) + len(plan.arrays) / 2
        self.is_flat = formula.shape == FLAT
        self.alone = 2 * native.PIECE / self.cost
        self.pack = struct.Struct(f"<qq{len(plan.arrays) + 1}q{''.join({'f32': 'f4x', 'f64': 'd', 'bool': '?7x'}[type] for _, type in plan.numbers)}").pack

    def __call__(self, rows: int, columns: int, arrays: Sequence[np.ndarray], numbers: Sequence[Any], outputs: Sequence[np.ndarray]) -> list[Any]:
        """Computes outputs, and gives the totals. Arrays are contiguous and have the formula's types; where they are flat, `rows` is 1."""
        addresses = [*map(native.address_of, arrays), *map(native.address_of, outputs)]
        if self.streams and self._stream(columns, addresses, numbers):
            return []
        if rows * columns < self.alone:
            totals = np.empty((1, self.n_vectors, 64), np.uint8) if self.n_vectors else None
            self._run(rows, columns, addresses, totals, 0, numbers)
        else:
            totals = self._in_pieces(rows, columns, addresses, numbers)
        return [] if totals is None else self._combined(totals)

    def _run(
        self, rows: int, columns: int, addresses: Sequence[int], totals: np.ndarray | None, piece: int, numbers: Sequence[Any], function: Function | None = None
    ) -> None:
        places: list[int] = []
        if self.n_kept:
            row = self.room(columns)
            kept = _scratch(self.n_kept * row)
            places = [kept + i * row for i in range(self.n_kept)]
        total = 0 if totals is None else native.address_of(totals) + piece * self.n_vectors * 64
        (function or self.function)(self.pack(rows, columns, *addresses, *places, total, *numbers))

    def room(self, columns: int) -> int:
        """Bytes of each array that is kept for the length of a row."""
        return (min(columns, TILE) if self.has_tiles else columns) * self.size + 64

    def _may_stream(self, formula: Formula, n_nodes: int) -> bool:
        """Whether there is a form that streams: results are numbers, and there is so little to compute that memory matters."""
        is_plain = {type for _, type, _ in formula.outputs} == {formula.compute} and not formula.totals
        return is_plain and formula.shape == FLAT and len(self.plan.phases) == 1 and n_nodes <= MOST_STREAMED

    @cached_property
    def streaming(self) -> Function:
        from penstock.ops.native.sweep_code import SweepCode

        return _function_of(SweepCode(self.plan, streams=True).write())

    def _stream(self, size: int, addresses: Sequence[int], numbers: Sequence[Any]) -> bool:
        """Computes large flat results that nobody reads while they are written, if all of them reach the start of a cache line together."""
        n_read = self.plan.n_read
        written = addresses[n_read:]
        head = -written[0] % 64 // self.size
        if size * self.size * len(written) < STREAMED or not {*written}.isdisjoint(addresses[:n_read]) or any((a - written[0]) % 64 for a in written):
            return False
        if head:
            self._run(1, head, addresses, None, 0, numbers)
        rest = [address + head * step for address, step in zip(addresses, self.steps)]
        self._in_pieces(1, size - head, rest, numbers, self.streaming)
        return True

    def _in_pieces(self, rows: int, columns: int, addresses: Sequence[int], numbers: Sequence[Any], function: Function | None = None) -> np.ndarray | None:
        """On several threads. Pieces depend on the size alone, and so do sums of sums."""
        n = columns if self.is_flat else rows
        pieces = max(min(PIECES, int(rows * columns * self.cost) // native.PIECE, n), 1)
        size = -(-n // pieces)
        if self.is_flat:
            size = (size + 63) // 64 * 64
        pieces = -(-n // size)
        totals = np.empty((pieces, self.n_vectors, 64), np.uint8) if self.n_vectors else None
        steps = self.steps if self.is_flat else [step if is_column else step * columns for step, is_column in zip(self.steps, self.is_column)]

        def work(i: int) -> None:
            start = i * size
            count = min(size, n - start)
            here = [address + start * step for address, step in zip(addresses, steps)]
            self._run(1 if self.is_flat else count, count if self.is_flat else columns, here, totals, i, numbers, function)

        threads.parallel_for(pieces, work)
        return totals

    def _combined(self, totals: np.ndarray) -> list[Any]:
        """Vectors of sums -> sums, as doubles where they were."""
        results, at = [], 0
        for (ufunc, n), type in zip(self.totals, self.total_type):
            results.append(ufunc.reduce(totals[:, at : at + n].reshape(-1).view(type)))
            at += n
        return results


_kept = threading.local()


def _scratch(size: int) -> int:
    """The address of memory that is this thread's own."""
    array = getattr(_kept, "array", None)
    if array is None or array.size < size:
        array = _kept.array = np.empty(size + 64, np.uint8)
    return array.ctypes.data


@lru_cache(maxsize=4096)
def compiled(formula: Formula) -> Sweep | None:
    """The sweep of a formula; None where there is none."""
    from penstock.ops.native.sweep_code import SweepCode

    try:
        plan = Plan(formula)
    except Unknown:
        return None
    writer = SweepCode(plan)
    code = writer.write()
    return Sweep(formula, plan, code, writer.n_nodes)
