"""Which nodes on big arrays make a run that is computed tile by tile.

A chain of ufuncs over a million numbers spends its time waiting for memory. Cut into tiles that stay in a core's cache, every
intermediate value lives in a small buffer that is used again, only what others need is written out, and tiles go to as many
threads as there are (ufuncs let go of the interpreter while they compute).

`find_runs` replaces runs of calls by `Fused` statements; `tiles` writes the function for one tile and runs it. All values of a run are
arrays of one shape or numbers; or, where the last dimension is of a medium size, also *rows* (one number for each column, such as a
bias) and *columns* (one number for each row, such as what a reduction along the last axis with keep_dims gives): then a tile is some
rows, and such reductions are part of the run. Sums over all elements may end a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.python.expressions import is_pure, original, ufunc_of, variables_read
from penstock.engines.python.structure import Branch, Call, Loop
from penstock.engines.python.walk import everything, makes, reads
from penstock.graph.ir import Operation, Tensor
from penstock.ops import native
from penstock.ops.native import sweeps

MIN_SIZE = 1 << 16
"""Elements from which on a run is worth tiles."""
PARALLEL = 1 << 21
"""Elements times operations from which on a second thread is worth waking; see `is_long`."""
CACHE = 1 << 20
"""Bytes of all buffers of a tile together: what stays in a core's second-level cache."""
MIN_SWEPT, FEWEST_SWEPT = 1 << 14, 3
"""Elements and nodes from which on a run is worth a loop in machine code, whose call takes as long as three short ufuncs."""
ALONE = 1 << 18
"""Elements from which on a single node is worth a loop in machine code on two threads."""
LONGEST = 96
"""Nodes of one run."""
WINDOW = 40
"""So many statements apart, nodes do not join: a value that is computed early has to be kept until it is read."""
COLUMNS = (16, 1 << 14)
"""Least and most columns of a run with rows and columns: ufuncs need some microseconds for every hundred rows."""

_SLOW = frozenset((
    np.exp, np.expm1, np.log, np.log1p, np.sin, np.cos, np.tan, np.arcsin, np.arccos, np.arctan, np.arctan2, np.sinh, np.cosh, np.tanh, np.arcsinh,
    np.arccosh, np.arctanh, np.power,
))  # fmt: skip
SLOWNESS = 6
"""How many times longer than an addition these take, or more."""

_FLOATS = (np.float32, np.float64)
_CONSTANTS = ("Const", "HostConst")
REDUCTIONS = {"Sum": np.add, "Mean": np.add, "Max": np.maximum, "Min": np.minimum}

# -- nodes as steps ------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """One ufunc (or what is called like one), or its reduction along the last axis. Operands: a Tensor, the number of an earlier step of the
    same node, or a NumPy scalar."""

    ufunc: Any
    operands: tuple[Any, ...]
    dtype: np.dtype
    reduces: bool = False


def steps_of(node: Any) -> list[Step] | None:
    """The ufuncs that compute a node bit for bit as its kernel does; None if there are none."""
    op: Operation = node.op
    if len(op.outputs) != 1 or not op.inputs or not all(deref and name for _, deref, name in variables_read(node)):
        return None
    dtype = op.outputs[0].dtype.np
    ufunc = ufunc_of(node)
    if ufunc is not None:
        kinds = {t.dtype.np.type for t in op.inputs}
        if ufunc.nin != len(op.inputs) or ufunc.nout != 1 or len(kinds) != 1 or not kinds <= {*_FLOATS, np.bool_}:
            return None
        return [Step(ufunc, tuple(op.inputs), dtype)]
    make = _RECIPES.get(op.type)
    if make is None or dtype.type not in _FLOATS or not original(node, may_read=True):
        return None
    return make(op, dtype)


def is_chain(steps: list[Step]) -> bool:
    """Whether every step reads of the others only the one before it, so that one array does for all of them."""
    return all(o == i - 1 for i, step in enumerate(steps) for o in step.operands if o.__class__ is int)


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


def _relu6_grad(op: Operation, dtype: np.dtype) -> list[Step]:
    return [
        Step(np.greater, (op.inputs[1], dtype.type(0)), np.dtype(bool)),
        Step(np.less, (op.inputs[1], dtype.type(6)), np.dtype(bool)),
        Step(np.logical_and, (0, 1), np.dtype(bool)),
        Step(np.multiply, (op.inputs[0], 2), dtype),
    ]


def _leaky_relu(op: Operation, dtype: np.dtype) -> list[Step] | None:
    slope = dtype.type(np.float32(op.attrs["alpha"]))
    if not 0 < slope <= 1:
        return None
    return [Step(np.multiply, (op.inputs[0], slope), dtype), Step(np.maximum, (op.inputs[0], 0), dtype)]


def _leaky_relu_grad(op: Operation, dtype: np.dtype) -> list[Step] | None:
    slope = dtype.type(np.float32(op.attrs["alpha"]))
    if not 0 <= slope <= 1:
        return None
    return [
        Step(np.greater, (op.inputs[1], dtype.type(0)), np.dtype(bool)),
        Step(np.maximum, (0, slope), dtype),
        Step(np.multiply, (op.inputs[0], 1), dtype),
    ]


def _tanh_grad(op: Operation, dtype: np.dtype) -> list[Step]:
    y, dy = op.inputs
    return [
        Step(np.multiply, (y, y), dtype),
        Step(np.subtract, (dtype.type(1), 0), dtype),
        Step(np.multiply, (dy, 1), dtype),
    ]


def _sigmoid_grad(op: Operation, dtype: np.dtype) -> list[Step]:
    y, dy = op.inputs
    return [
        Step(np.multiply, (dy, y), dtype),
        Step(np.subtract, (dtype.type(1), y), dtype),
        Step(np.multiply, (0, 1), dtype),
    ]


def _rsqrt(op: Operation, dtype: np.dtype) -> list[Step]:
    return [Step(np.sqrt, (op.inputs[0],), dtype), Step(np.reciprocal, (0,), dtype)]


def _rsqrt_grad(op: Operation, dtype: np.dtype) -> list[Step]:
    y, dy = op.inputs
    zero = dtype.type(0)
    return [
        Step(np.multiply, (dy, dtype.type(-0.5)), dtype),
        Step(np.multiply, (0, y), dtype),
        Step(np.square, (y,), dtype),
        Step(np.multiply, (1, 2), dtype),
        Step(np.equal, (dy, zero), np.dtype(bool)),
        Step(sweeps.choose, (4, zero, 3), dtype),
    ]


_RECIPES: dict[str, Callable[[Operation, np.dtype], list[Step] | None]] = {
    "Relu": _relu,
    "Relu6": _relu6,
    "Sigmoid": _sigmoid,
    "SquaredDifference": _squared_difference,
    "AddN": _add_n,
    "ReluGrad": _relu_grad,
    "Relu6Grad": _relu6_grad,
    "LeakyRelu": _leaky_relu,
    "LeakyReluGrad": _leaky_relu_grad,
    "TanhGrad": _tanh_grad,
    "SigmoidGrad": _sigmoid_grad,
    "Rsqrt": _rsqrt,
}
_SAME_SHAPES = frozenset(("AddN", "Select", "ReluGrad", "Relu6Grad", "LeakyReluGrad", "TanhGrad", "SigmoidGrad", "RsqrtGrad"))
"""Nodes that do not broadcast."""


def steps_in_run(node: Any, root: Callable[[Tensor], Tensor]) -> list[Step] | None:
    """As steps_of, with what only makes sense inside of a run: reductions along the last axis, broadcasting, and choices."""
    op: Operation = node.op
    if op.type in ("Select", "SelectV2"):
        dtype = op.outputs[0].dtype.np
        return [Step(sweeps.choose, tuple(op.inputs), dtype)] if dtype.type in _FLOATS and original(node) and not variables_read(node) else None
    if op.type == "RsqrtGrad":
        dtype = op.outputs[0].dtype.np
        return _rsqrt_grad(op, dtype) if dtype.type in _FLOATS and original(node) and not variables_read(node) else None
    if op.type == "BroadcastTo" or op.type in REDUCTIONS:
        x, other = op.inputs[0], root(op.inputs[1])
        dtype = x.dtype.np
        if dtype.type not in _FLOATS or other.op.type not in _CONSTANTS or x.dims is None or not original(node):
            return None
        if op.type == "BroadcastTo":
            return [Step(np.positive, (x,), dtype)]
        axes = [int(a) for a in np.ravel(other.op.attrs["value"].array)]
        if not op.attrs["keep_dims"] or len(x.dims) < 2 or axes not in ([-1], [len(x.dims) - 1]) or x.dims[-1] is None:
            return None
        steps = [Step(REDUCTIONS[op.type], (x,), dtype, True)]
        return steps if op.type != "Mean" else [*steps, Step(np.true_divide, (0, dtype.type(x.dims[-1])), dtype)]
    return steps_of(node)


def operands_of(node: Any) -> Sequence[Tensor]:
    """The inputs that a node computes with; axes and shapes are constants."""
    return node.op.inputs[:1] if node.op.type == "BroadcastTo" or node.op.type in REDUCTIONS else node.op.inputs


def weight_of(steps: Sequence[Step]) -> int:
    """How many additions take as long as the steps."""
    return sum(SLOWNESS if step.ufunc in _SLOW else 1 for step in steps)


def is_long(size: int, weight: int) -> bool:
    """Whether steps on arrays of `size` elements are worth a second thread. Threads meet at the interpreter's lock between any two ufuncs, and
    who finds it taken sleeps for some 10 us: not only the whole has to be long, each ufunc has to be."""
    return size * weight >= PARALLEL and size >= PARALLEL * 3 // 8


# -- shapes ------------------------------------------------------------------------------------------------------------------

FULL, NUMBER, ROW, COLUMN = "full", "number", "row", "column"


def kind_of(dims: Any, full: Any) -> str | None:
    """What a value of shape `dims` is in a run on arrays of shape `full`; None if it cannot be part of it."""
    if dims == full:
        return FULL
    if dims == ():
        return NUMBER
    if not dims or not full or len(full) < 2 or full[-1] is None or not COLUMNS[0] <= full[-1] <= COLUMNS[1]:
        return None
    if dims == (*full[:-1], 1):
        return COLUMN
    return ROW if len(dims) <= len(full) and dims == (*(1,) * (len(dims) - 1), full[-1]) else None

# -- finding runs ----------------------------------------------------------------------------------------------------------


class Fused(NamedTuple):
    """A run: its nodes in order, the reductions over everything that end it, the values it reads, and what others need of it."""

    nodes: list[Any]
    reductions: list[Any]
    arrays: list[Tensor]
    """Full arrays, then columns."""
    numbers: list[Tensor]
    """Numbers and rows."""
    outputs: list[Tensor]
    variables: dict[Tensor, str] = {}
    """Those among the values that are reference variables, with their names."""
    dims: Any = None
    """The shape of full arrays, if there are rows or columns."""

    @property
    def inputs(self) -> list[Tensor]:
        return [*self.arrays, *self.numbers]


def find_runs(block: list, root: Callable[[Tensor], Tensor], results: Iterable[Tensor]) -> list:
    """The block with runs of elementwise calls made into Fused statements; blocks inside of it likewise."""
    readers: dict[Tensor, set[int]] = {}
    for statement in everything(block):
        for tensor in reads(statement):
            readers.setdefault(root(tensor), set()).add(id(statement))
    for tensor in results:
        readers.setdefault(root(tensor), set()).add(0)
    return _in_block(block, root, readers)


def _in_block(block: list, root: Callable[[Tensor], Tensor], readers: dict[Tensor, set[int]]) -> list:
    result: list = []
    waiting, place = block, 0
    least = min(MIN_SIZE, MIN_SWEPT) if native.available() else MIN_SIZE
    steps = _Steps(root)
    while place < len(waiting):
        first = waiting[place]
        if isinstance(first, Branch):
            first = first._replace(yes=_in_block(first.yes, root, readers), no=_in_block(first.no, root, readers))
        elif isinstance(first, Loop):
            first = first._replace(cond=_in_block(first.cond, root, readers), body=_in_block(first.body, root, readers))
        elif isinstance(first, Call) and first.node.op.outputs:
            dims = full_dims(first.node)
            if dims and (None in dims or math.prod(dims) >= least) and steps.of(first) is not None and begins_run(first.node, dims, root):
                batch, sums, rest = _collect(waiting, place, dims, steps, root)
                run = _run(batch, sums, dims, steps, root, readers)
                if run is not None:
                    result.append(run)
                    waiting, place = rest, 0
                    continue
        result.append(first)
        place += 1
    return result


class _Steps:
    """`steps_in_run` of calls, found out once."""

    def __init__(self, root: Callable[[Tensor], Tensor]) -> None:
        self._root = root
        self._found: dict[int, list[Step] | None] = {}

    def of(self, call: Call) -> list[Step] | None:
        key = id(call)
        if key not in self._found:
            self._found[key] = steps_in_run(call.node, self._root)
        return self._found[key]


def is_swept(nodes: Sequence[Any], root: Callable[[Tensor], Tensor]) -> bool:
    """Whether nodes can be a loop in machine code; `sweeping` looks closer."""
    if not native.available():
        return False
    return all(sweeps.knows(step.ufunc) for node in nodes for step in steps_in_run(node, root) or ())


def full_dims(node: Any) -> Any:
    """The shape of the arrays of a run that begins with the node."""
    op: Operation = node.op
    return op.inputs[0].dims if op.type in REDUCTIONS else op.outputs[0].dims


def begins_run(node: Any, dims: Any, root: Callable[[Tensor], Tensor]) -> bool:
    """One of its inputs has the run's shape, so that there is something to look at when the line runs."""
    return fits_run(node, dims, root) and any(root(t).dims == dims for t in operands_of(node))


def fits_run(node: Any, dims: Any, root: Callable[[Tensor], Tensor]) -> bool:
    """All that the node reads and gives has a shape that can be part of the run."""
    op: Operation = node.op
    out = kind_of(op.outputs[0].dims, dims)
    kinds = [kind_of(root(t).dims, dims) for t in operands_of(node)]
    if op.type in REDUCTIONS:
        return out == COLUMN and kinds == [FULL]
    if out == COLUMN:
        return all(k in (COLUMN, NUMBER) for k in kinds) and COLUMN in kinds
    if op.type in _SAME_SHAPES and any(k != FULL for k in kinds):
        return False
    return out == FULL and None not in kinds and any(k != NUMBER for k in kinds)


def _collect(waiting: list, place: int, dims: Any, steps: _Steps, root: Callable[[Tensor], Tensor]) -> tuple[list, list, list]:
    """The calls that can run together with the one at `place`, reductions of what they give, and all other statements from there on."""
    first = waiting[place]
    batch, sums, rest = [first], [], []
    made = {first.node.op.outputs[0]}
    known = made | {root(t) for t in operands_of(first.node) if root(t).dims == dims}
    blocked: set[Tensor] = set()
    is_ordered = False  # whether something comes first that may write variables
    gap = 0
    for i in range(place + 1, len(waiting)):
        statement = waiting[i]
        if gap > WINDOW or len(batch) >= LONGEST:
            rest += waiting[i:]
            break
        if isinstance(statement, Call):
            op = statement.node.op
            inputs = [root(t) for t in op.inputs]
            if any(t in known for t in inputs) and not any(t in blocked for t in inputs):
                reads_now = is_ordered and variables_read(statement.node)
                if steps.of(statement) is not None and not reads_now and fits_run(statement.node, dims, root):
                    batch.append(statement)
                    made.add(op.outputs[0])
                    known.add(op.outputs[0])
                    known.update(t for t in inputs if t.dims == dims)
                    gap = 0
                    continue
                if inputs[0] in made and inputs[0].dims == dims and _reduces_all(statement.node, root):
                    sums.append(statement)
                    blocked.add(op.outputs[0])
                    continue
        gap += 1
        rest.append(statement)
        blocked.update(outputs_of(statement))
        is_ordered = is_ordered or not (isinstance(statement, Fused) or (isinstance(statement, Call) and is_pure(statement.node, True)))
    return batch, sums, rest


def _reduces_all(node: Any, root: Callable[[Tensor], Tensor]) -> bool:
    op: Operation = node.op
    if op.type not in REDUCTIONS or op.attrs["keep_dims"] or not original(node):
        return False
    dims, axes = op.inputs[0].dims, root(op.inputs[1])
    if axes.op.type not in _CONSTANTS or op.outputs[0].dtype.np.type not in _FLOATS or dims is None:
        return False
    chosen = {int(a) % len(dims) for a in np.ravel(axes.op.attrs["value"].array)}
    return len(chosen) == len(dims)


def _pays_alone(node: Any, dims: Any, steps: list[Step]) -> bool:
    """Whether a single node is long enough for a second thread: that is all that it can win, unless it has several steps."""
    if None in dims or node.op.type in REDUCTIONS:
        return False
    size = int(np.prod(dims))
    if size >= ALONE and native.available() and all(sweeps.knows(step.ufunc) for step in steps):
        return True
    return is_long(size, weight_of(steps))


def _run(
    batch: list, sums: list, dims: Any, steps: _Steps, root: Callable[[Tensor], Tensor], readers: dict[Tensor, set[int]]
) -> Fused | None:
    nodes = [s.node for s in batch]
    if None not in dims and int(np.prod(dims)) < MIN_SIZE and (len(nodes) + len(sums) < FEWEST_SWEPT or not is_swept(nodes, root)):
        return None
    if len(nodes) + len(sums) == 1 and not _pays_alone(nodes[0], dims, steps.of(batch[0]) or []):
        return None
    own = {id(s) for s in (*batch, *sums)}
    made = {n.op.outputs[0] for n in nodes}
    kinds: dict[Tensor, str | None] = {}
    variables: dict[Tensor, str] = {}
    for node in nodes:
        for tensor in operands_of(node):
            base = root(tensor)
            if base not in made:
                kinds[base] = kind_of(base.dims, dims)
        variables.update((root(node.op.inputs[i]), name or "") for i, _, name in variables_read(node))
    outputs = [t for n in nodes for t in n.op.outputs if readers.get(t, set()) - own]
    outputs += [s.node.op.outputs[0] for s in sums]
    arrays = [t for t, kind in kinds.items() if kind == FULL] + [t for t, kind in kinds.items() if kind == COLUMN]
    if not outputs:
        return None
    numbers = [t for t, kind in kinds.items() if kind in (NUMBER, ROW)]
    is_plain = all(kind in (FULL, NUMBER) for kind in (*kinds.values(), *(kind_of(t.dims, dims) for t in made)))
    return Fused(nodes, [s.node for s in sums], arrays, numbers, outputs, variables, None if is_plain else dims)


def outputs_of(statement: Any) -> list[Tensor]:
    """What a statement and those inside of it make."""
    return [t for inner in everything([statement]) for t in makes(inner)]
