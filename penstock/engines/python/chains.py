"""Kernels of a few tens of microseconds that stand side by side are one call, which lets go of the interpreter's lock once.

    if (made := chain36(v0, v1, v8)) is not None:  # 14 nodes, Relu to gradients/MatMul_grad/MatMul_1
        v10, v9, v12 = made; made = None
    else:
        v2 = f22(v0, v1)  # Relu = _FusedMatMul
        ...

Shapes have to be known: layers of a training step whose batch has been fed before (`engines.onednn.chains` computes them). Elementwise nodes among them are
loops in machine code, and pieces of arrays are copied (`moves`), so that a cell of a recurrent network, or all of its steps, is one call. What is not as it should
be, a label that is no class for one, is for the nodes' own kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.onednn.binding import is_constant
from penstock.engines.onednn.chains import CONVOLUTIONS, MOVES, OF_CONSTANT, POOLS, SWEEP, Chain, Link
from penstock.engines.onednn.chains import Swept as Loops
from penstock.engines.onednn.fused import Steps
from penstock.engines.python import elementwise as runs
from penstock.engines.python.elementwise import COLUMN, FULL, NUMBER, ROW, Fused, kind_of, operands_of, steps_in_run
from penstock.engines.python.expressions import by_engine, is_pure, original, variables_read
from penstock.engines.python.moves import INDICES, arrays_of, moves_of
from penstock.engines.python.structure import Branch, Call, Loop
from penstock.engines.python.sweeping import Swept
from penstock.engines.python.tiles import rows_of
from penstock.engines.python.walk import everything, reads
from penstock.engines.turns import breathe
from penstock.engines.xla.backend import is_deterministic
from penstock.graph.ir import Operation, Tensor
from penstock.ops import native
from penstock.ops.native import sweeps

ENOUGH = 15
"""What a chain has to be worth, in ufuncs: with fewer additions of 8 x 32 numbers its own call takes longer than they do; of 64 x 64, with fewer than 8."""
WORTH_OF_PRODUCT = 8
"""A step that is elementwise, or a move, is worth one."""
QUICK_IN_NUMPY = (np.tanh, np.log, np.log1p)
QUICK_ELEMENTS = 1024
"""These ufuncs take NumPy less time than a loop takes: with so many elements the difference is what a ufunc is worth."""
MOST_NODES = 400
"""Of a chain: all of them are one line after the other as well, in one function."""
MOST_ASIDE = 8
"""Other nodes that may stand among those of a chain."""
MOST_LATE = 1 << 16
"""Elements of a variable that stays in the cache from its gradient to its update."""
MOST_SWEPT = 1 << 15
"""Elements of arrays that one thread goes over at once."""
MOST_CONVOLVED = 1 << 21
"""Elements of a convolution's input and result, and a pool's; places for some of them stay from step to step."""
MOST_IMAGES = 32
"""Whose means over positions are computed one after the other."""
LONGEST, MOST_REDUCTIONS = 24, 4
"""Nodes, and reductions among them, of one loop over elements."""
_FLOAT32 = np.dtype(np.float32)
_LABELS = (np.dtype(np.int32), np.dtype(np.int64))

Root = Callable[[Tensor], Tensor]
Constant = Callable[[Tensor], Any]


class Chained(NamedTuple):
    """Nodes that are one call."""

    nodes: list[Any]
    inputs: list[Tensor]
    outputs: list[Tensor]
    variables: dict[Tensor, str]
    """Those among the inputs that are reference variables, with their names."""
    chain: Chain


def with_chains(block: list, root: Root, constant: Constant, kept: Collection[Tensor], late: dict[Operation, Any]) -> list:
    """The block with such nodes in one statement each, in loops and branches too. `kept` is read at the end. Products that are `late` for the sake of one pass
    over a variable are not any more, if that is a small one."""
    if not native.available() or is_deterministic():
        return block  # which kernel computes a small product must not depend on when its shape became known, where bits matter
    return _Finder(block, root, constant, kept, late).found(block)


class _Finder:
    """Looks for chains in a block and those inside of it."""

    def __init__(self, whole: list, root: Root, constant: Constant, kept: Collection[Tensor], late: dict[Operation, Any]) -> None:
        self.whole, self.root, self.constant, self.kept, self.late = whole, root, constant, kept, late
        self.readers: dict[Tensor, set[int]] | None = None

    def found(self, block: list) -> list:
        result: list = []
        group: list[Any] = []
        aside: list[Any] = []  # what stands among them, and nobody of them waits for: the loss, which is only fetched

        def close() -> None:
            result.extend(self._closed(group, aside))
            group.clear()
            aside.clear()

        for statement in block:
            breathe()
            is_one = self._fits(statement)
            waits = {t for s in aside for t in s.node.op.outputs}
            if is_one and (len(group) == MOST_NODES or any(self.root(t) in waits for t in statement.node.op.inputs)):
                close()
            if is_one:
                group.append(statement)
            elif group and isinstance(statement, Call) and len(aside) < MOST_ASIDE and is_pure(statement.node) and statement.node.op not in self.late:
                aside.append(statement)
            else:
                close()
                result.append(self._with_inner(statement))
        close()
        return result

    def _with_inner(self, statement: Any) -> Any:
        if isinstance(statement, Loop):
            return statement._replace(body=self.found(statement.body))
        if isinstance(statement, Branch):
            return statement._replace(yes=self.found(statement.yes), no=self.found(statement.no))
        return statement

    def _fits(self, statement: Any) -> bool:
        if not isinstance(statement, Call) or not _fits(statement.node, self.root, self.constant):
            return False
        return statement.node.op not in self.late or math.prod(statement.node.op.outputs[0].dims) <= MOST_LATE

    def _closed(self, group: list[Any], aside: list[Any]) -> list[Any]:
        """The statements of a group as a chain, if that is worth it, and those aside."""
        if not self._is_worth_it(group):
            return [*group, *aside]
        if self.readers is None:
            self.readers = {}
            for s in everything(self.whole):
                for t in reads(s):
                    self.readers.setdefault(self.root(t), set()).add(id(s))
        inside = set(map(id, group))
        last = []
        for s in reversed(group):  # a piece that only others read is a view
            if s.node.op.type in _MOVING and not any(self.readers.get(t, set()) & inside for t in s.node.op.outputs):
                inside.discard(id(s))
                last.append(s)
        chain = [s for s in group if id(s) in inside]
        outputs = [t for s in chain for t in s.node.op.outputs if t in self.kept or self.readers.get(t, set()) - inside]
        chained = _chained([s.node for s in chain], self.root, self.constant, outputs) if outputs and self._is_worth_it(chain) else None
        if chained is None:
            return [*group, *aside]
        for s in chain:
            self.late.pop(s.node.op, None)
        return [chained, *last[::-1], *aside]

    def _is_worth_it(self, statements: list[Any]) -> bool:
        return sum(_worth(s.node, self.root) for s in statements) >= ENOUGH


def _worth(node: Any, root: Root) -> int:
    if node.op.type in _PRODUCTS:
        return WORTH_OF_PRODUCT
    steps = steps_in_run(node, root) if node.op.type not in _TESTS else None
    if not steps:
        return 1
    quick = sum(step.ufunc in QUICK_IN_NUMPY for step in steps)
    return len(steps) - (quick * (math.prod(runs.full_dims(node)) // QUICK_ELEMENTS) if quick else 0)


def _chained(nodes: list[Any], root: Root, constant: Constant, outputs: list[Tensor]) -> Chained | None:
    items = _in_order(nodes, root, constant)
    inside = _read_elsewhere(items, root, outputs)
    made = {t for node in nodes for t in node.op.outputs}
    parts: list[tuple[str, Any, list[Tensor], list[Tensor], Any]] = []
    for item in items:
        part = _part(item, root, constant, inside)
        if part is None:
            return None
        parts.append(part)
    inputs = list(dict.fromkeys(t for _, _, read, _, _ in parts for t in read if t not in made))
    numbers = {t: i for i, t in enumerate((*inputs, *(t for _, _, _, written, _ in parts for t in written)))}
    links = [Link(kind, op, tuple(numbers[t] for t in read), tuple(numbers[t] for t in written), detail) for kind, op, read, written, detail in parts]
    shapes: Any = [t.dims for t in numbers]
    chain = Chain(links, shapes, [t.dtype.np for t in numbers], len(inputs), [numbers[t] for t in outputs])
    if not chain.is_small:
        return None
    variables = {root(node.op.inputs[i]): name or "" for node in nodes for i, _, name in variables_read(node)}
    return Chained(nodes, inputs, outputs, {t: name for t, name in variables.items() if t in numbers}, chain)


def _part(item: list[Any], root: Root, constant: Constant, inside: Collection[Tensor]) -> tuple[str, Any, list[Tensor], list[Tensor], Any] | None:
    """Kind, node, values read and made, and detail of a link; None if there is no code for it."""
    op = item[0].op
    if _is_link(item[0], root, constant):
        if op.type in _MOVING:
            return MOVES, op, [root(t) for t in arrays_of(op)], op.outputs, _moves(item[0], root, constant)
        if op.type in CONVOLUTIONS:
            arrays = _arrays(op, root, constant)
            constants = [None if t in arrays else constant(t) for t in map(root, op.inputs)]
            return op.type, op, arrays, op.outputs, (item[0].fn.convolution, constants)
        if op.type in POOLS:
            return op.type, op, [root(op.inputs[0])], op.outputs, item[0].fn.pooling
        if op.type in _MATRIX_PRODUCTS and is_constant(op.inputs[1]):
            first, *others = map(root, op.inputs)
            return OF_CONSTANT, op, [first], op.outputs, [*map(constant, others)]
        return op.type, op, _arrays(op, root, constant), op.outputs, _factor(op, root, constant)
    swept = _swept(item, root, constant, inside)
    return None if swept is None else (SWEEP, None, *swept)


# -- elementwise nodes as loops --------------------------------------------------------------------------------------------


def _in_order(nodes: list[Any], root: Root, constant: Constant) -> list[list[Any]]:
    """The nodes in an order in which elementwise ones on arrays of one shape stand together, as far as the others do not wait for them."""
    order: list[list[Any]] = []
    run: list[Any] = []
    dims: Any = None
    made: set[Tensor] = set()

    def close() -> None:
        if run:
            order.append(run.copy())
        run.clear()
        made.clear()

    for node in nodes:
        if _is_link(node, root, constant):
            if any(root(t) in made for t in node.op.inputs):
                close()
            order.append([node])
            continue
        reductions = sum(n.op.type in runs.REDUCTIONS for n in run) + (node.op.type in runs.REDUCTIONS)
        if not run or len(run) == LONGEST or reductions > MOST_REDUCTIONS or not runs.fits_run(node, dims, root):
            close()
            dims = runs.full_dims(node)
        run.append(node)
        made.update(node.op.outputs)
    close()
    return order


def _read_elsewhere(items: list[list[Any]], root: Root, outputs: Collection[Tensor]) -> set[Tensor]:
    """What others than the item that makes it read."""
    found = set(outputs)
    for item in items:
        own = {t for node in item for t in node.op.outputs}
        found.update(t for node in item for t in map(root, node.op.inputs) if t not in own)
    return found


def _swept(nodes: list[Any], root: Root, constant: Constant, read_elsewhere: Collection[Tensor]) -> tuple[list[Tensor], list[Tensor], Any] | None:
    """Values read and made, and the loop."""
    full = max((runs.full_dims(n) for n in nodes), key=math.prod)
    made = {n.op.outputs[0] for n in nodes}
    kinds = {t: kind_of(t.dims, full) for n in nodes for t in map(root, operands_of(n)) if t not in made}
    arrays = [t for t, kind in kinds.items() if kind == FULL] + [t for t, kind in kinds.items() if kind == COLUMN]
    rows_read = [t for t, kind in kinds.items() if kind == ROW]
    outputs = [n.op.outputs[0] for n in nodes if n.op.outputs[0] in read_elsewhere]
    is_plain = all(kind in (FULL, NUMBER) for kind in (*kinds.values(), *(kind_of(t.dims, full) for t in made)))
    run = Fused(nodes, [], arrays, rows_read, outputs, {}, None if is_plain else full)
    known = {t: np.asarray(constant(t))[()] for t, kind in kinds.items() if kind == NUMBER}
    steps, _ = rows_of(run, root, outputs)
    steps = [(key, step, [known.get(o, o) for o in operands], node) for key, step, operands, node in steps]
    formula = Swept(run, steps, outputs, []).formula
    sweep = None if formula is None or not outputs else sweeps.compiled(formula)
    if sweep is None:
        return None
    size = math.prod(full)
    return [*arrays, *rows_read], outputs, Loops(sweep, *((1, size) if is_plain else (size // full[-1], full[-1])))


# -- nodes -------------------------------------------------------------------------------------------------------------


def _arrays(op: Operation, root: Root, constant: Constant) -> list[Tensor]:
    """The inputs that are arrays."""
    tensors = [root(t) for t in op.inputs]
    if op.type == "Mul":
        return [t for t in tensors if _number(constant(t)) is None]
    if op.type in CONVOLUTIONS:
        addend = Steps.of(op).addend  # type: ignore[union-attr]
        return tensors[:1] if addend is None else [tensors[0], tensors[addend]]
    return tensors[:1] if op.type in ("Sum", "Mean") else tensors


def _factor(op: Operation, root: Root, constant: Constant) -> Any:
    """The number that a Mul multiplies by."""
    return next((n for t in op.inputs if (n := _number(constant(root(t)))) is not None), None) if op.type == "Mul" else None


def _number(value: Any) -> Any:
    """The one number that a constant consists of; None if there are several."""
    if value is None or not np.size(value):
        return None
    numbers = np.ravel(value)
    return numbers[0] if numbers.tobytes() == numbers[:1].tobytes() * numbers.size else None


# -- which nodes --------------------------------------------------------------------------------------------------------


class _Candidate(NamedTuple):
    """A node whose shapes are all known."""

    node: Any
    inputs: list[Tensor]
    shapes: list[tuple[int, ...]]
    result: tuple[int, ...]
    constants: list[Any]
    """The inputs' values, None where they are not constant."""


def _candidate(node: Any, root: Root, constant: Constant) -> _Candidate:
    inputs = [root(t) for t in node.op.inputs]
    dims: Any = [t.dims for t in (*inputs, *node.op.outputs)]
    return _Candidate(node, inputs, dims[: len(inputs)], dims[len(inputs)], [*map(constant, inputs)])


def _fits(node: Any, root: Root, constant: Constant) -> bool:
    op = node.op
    if op.type not in _TESTS and op.type not in _MOVING and steps_in_run(node, root) is None:
        return False
    if node.needs_ctx or not op.outputs or not all(deref and name for _, deref, name in variables_read(node)):
        return False
    if any((d := t.dims) is None or None in d or 0 in d for t in (*map(root, op.inputs), *op.outputs)):
        return False
    return _is_link(node, root, constant) or _is_swept(node, root, constant)


def _is_link(node: Any, root: Root, constant: Constant) -> bool:
    """Whether a node whose shapes are known has code of its own."""
    if node.op.type in _MOVING:
        return _moves(node, root, constant) is not None
    if node.op.type == "Mul" and _is_swept(node, root, constant):
        return False
    return node.op.type in _TESTS and _fits_alone(_candidate(node, root, constant))


def _fits_alone(c: _Candidate) -> bool:
    op = c.node.op
    if {c.inputs[0].dtype.np, op.outputs[0].dtype.np} != {_FLOAT32} or not (original(c.node, may_read=True) or by_engine(c.node)):
        return False
    return _TESTS[op.type](c)


def _moves(node: Any, root: Root, constant: Constant) -> Any:
    tensors = [root(t) for t in node.op.inputs]
    if node.op.outputs[0].dtype.np != _FLOAT32 or variables_read(node):
        return None
    shapes: Any = [t.dims for t in (*tensors, *node.op.outputs)]
    return moves_of(node, shapes, [*map(constant, tensors)])


def _is_swept(node: Any, root: Root, constant: Constant) -> bool:
    """Whether a node can be part of a loop over arrays of a moderate size. Numbers have to be known."""
    dims = runs.full_dims(node)
    steps = steps_in_run(node, root)
    if not dims or not steps or math.prod(dims) > MOST_SWEPT or not runs.begins_run(node, dims, root) or not all(sweeps.knows(s.ufunc) for s in steps):
        return False
    values = [*map(root, operands_of(node)), node.op.outputs[0]]
    if any(t.dtype.np not in (_FLOAT32, np.bool_) for t in values) or node.op.outputs[0].dtype.np != _FLOAT32:
        return False
    return all(t.dims != () or constant(t) is not None for t in values)


def _is_product(c: _Candidate) -> bool:
    op = c.node.op
    if not by_engine(c.node) or any(t.dtype.np != _FLOAT32 for t in c.inputs):
        return False
    if is_constant(op.inputs[1]) and any(value is None or not value.flags.c_contiguous for value in c.constants[1:]):
        return False
    if op.type == "_FusedMatMul":
        steps = Steps.of(op)
        if steps is None or steps.norm or steps.addend or len(c.inputs) != 2 + (steps.bias is not None):
            return False
    a, b, *bias = c.shapes
    if len(a) != 2 or len(b) != 2:
        return False
    across_a, across_b = op.attrs["transpose_a"], op.attrs["transpose_b"]
    rows, inner, columns = a[across_a], a[not across_a], b[not across_b]
    return inner == b[across_b] and all(shape == (columns,) for shape in bias) and c.result == (rows, columns)


def _is_convolution(c: _Candidate) -> bool:
    """Of constants, on arrays of a moderate size: layers of a frozen network."""
    convolution = getattr(c.node.fn, "convolution", None)
    if convolution is None or not convolution.is_constant or c.node.op.attrs["data_format"] != b"NHWC":
        return False
    return len(c.result) == 4 and all(math.prod(dims) <= MOST_CONVOLVED for dims in (c.shapes[0], c.result))


def _is_pool(c: _Candidate) -> bool:
    """Of images with channels last. A maximum whose gradient is asked for notes where it was, which a chain does not."""
    op, pooling = c.node.op, getattr(c.node.fn, "pooling", None)
    if pooling is None or op.attrs["data_format"] != b"NHWC" or any(reader.type == "MaxPoolGrad" for reader in op.outputs[0].consumers()):
        return False
    return all(math.prod(dims) <= MOST_CONVOLVED for dims in (c.shapes[0], c.result)) and pooling.spec(c.shapes[0]) is not None


def _is_mean_of_positions(c: _Candidate) -> bool:
    shape, axes = c.shapes[0], c.constants[1]
    if len(shape) != 4 or shape[0] > MOST_IMAGES or axes is None or math.prod(shape) > MOST_CONVOLVED:
        return False
    return sorted(axis % 4 for axis in np.ravel(axes).tolist()) == [1, 2]


def _is_product_columns(c: _Candidate) -> bool:
    (a, b), op = c.shapes, c.node.op
    start, count = op.attrs["start"], op.attrs["count"]
    return len(a) == len(b) == 2 and a[1] == b[1] and start + count <= b[0] and c.result == (a[0], count) and not is_constant(op.inputs[1])


def _is_batch_product(c: _Candidate) -> bool:
    (a, b), attrs = c.shapes, c.node.op.attrs
    across_a, across_b = attrs["adj_x"], attrs["adj_y"]
    if len(a) < 3 or a[:-2] != b[:-2] or math.prod(c.result) > MOST_SWEPT:
        return False
    return a[-2 if across_a else -1] == b[-1 if across_b else -2] and c.result == (*a[:-2], a[-1 if across_a else -2], b[-2 if across_b else -1])


def _is_softmax(c: _Candidate) -> bool:
    return c.shapes[0] == c.result != () and math.prod(c.result) <= MOST_SWEPT


def _is_gradient(c: _Candidate) -> bool:
    return c.shapes[0] == c.shapes[1] == c.result != ()


def _is_sum_of_rows(c: _Candidate) -> bool:
    op = c.node.op
    if op.type == "Sum":
        if c.constants[1] is None or np.ravel(c.constants[1]).tolist() != [0]:
            return False
    elif op.attrs["data_format"] != b"NHWC":
        return False
    return len(c.shapes[0]) == 2 and math.prod(c.result) == c.shapes[0][1]


def _is_scaled(c: _Candidate) -> bool:
    others = [shape for shape, value in zip(c.shapes, c.constants) if _number(value) is None]
    return len(others) == 1 and others[0] == c.result != ()


def _is_cross_entropy(c: _Candidate) -> bool:
    logits, labels = c.shapes
    return len(logits) == 2 and labels == logits[:1] and c.inputs[1].dtype.np in _LABELS


_MOVING = frozenset(INDICES)
_MATRIX_PRODUCTS = ("_FusedMatMul", "MatMul")
_PRODUCTS = (*_MATRIX_PRODUCTS, *CONVOLUTIONS)
_TESTS: dict[str, Callable[[_Candidate], bool]] = {
    "_FusedMatMul": _is_product,
    "MatMul": _is_product,
    "_MatMulColumns": _is_product_columns,
    "BatchMatMul": _is_batch_product,
    "BatchMatMulV2": _is_batch_product,
    "Softmax": _is_softmax,
    "ReluGrad": _is_gradient,
    "Sum": _is_sum_of_rows,
    "BiasAddGrad": _is_sum_of_rows,
    "Mul": _is_scaled,
    "SparseSoftmaxCrossEntropyWithLogits": _is_cross_entropy,
    "Mean": _is_mean_of_positions,
    **dict.fromkeys(CONVOLUTIONS, _is_convolution),
    **dict.fromkeys(POOLS, _is_pool),
}
