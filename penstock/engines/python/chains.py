"""Kernels of a few tens of microseconds that stand side by side are one call, which lets go of the interpreter's lock once.

    if (made := chain36(v0, v1, v8)) is not None:  # 14 nodes, Relu to gradients/MatMul_grad/MatMul_1
        v10, v9, v12 = made; made = None
    else:
        v2 = f22(v0, v1)  # Relu = _FusedMatMul
        ...

Shapes have to be known: layers of a training step whose batch has been fed before (`engines.onednn.chains` computes them). What is not as it should be, a
label that is no class for one, is for the nodes' own kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.onednn.binding import is_constant
from penstock.engines.onednn.chains import Chain, Link
from penstock.engines.onednn.fused import Steps
from penstock.engines.onednn.matmul import FEW_ROWS
from penstock.engines.python.expressions import from_engine, is_pure, original, variables_read
from penstock.engines.python.structure import Call
from penstock.engines.python.walk import everything, reads
from penstock.engines.xla.backend import is_deterministic
from penstock.graph.ir import Operation, Tensor
from penstock.ops import native

FEWEST_PRODUCTS = 2
"""Of a chain."""
MOST_ASIDE = 8
"""Other nodes that may stand among those of a chain."""
LEAST_FLOPS = 2e4
"""Of a product. Smaller ones are quicker with BLAS, even if that is a call of its own."""
MOST_LATE = 1 << 16
"""Elements of a variable that stays in the cache from its gradient to its update."""
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
    """The block with such nodes in one statement each. `kept` is read at the end. Products that are `late` for the sake of one pass over a variable are not any
    more, if that is a small one."""
    if sum(isinstance(s, Call) and s.node.op.type in _PRODUCTS for s in block) < FEWEST_PRODUCTS or not native.available() or is_deterministic():
        return block  # which kernel computes a small product must not depend on when its shape became known, where bits matter
    result: list = []
    group: list[Any] = []
    aside: list[Any] = []  # what stands among them, and nobody of them waits for: the loss, which is only fetched

    def close() -> None:
        if sum(s.node.op.type in _PRODUCTS for s in group) >= FEWEST_PRODUCTS:
            inside = set(map(id, group))
            read = {*kept, *(root(t) for s in everything(block) if id(s) not in inside for t in reads(s))}
            chained = _chained([s.node for s in group], root, constant, read)
            if chained.chain.is_small:
                for s in group:
                    late.pop(s.node.op, None)
                group[:] = [chained]
        result.extend(group)
        result.extend(aside)
        group.clear()
        aside.clear()

    def fits(statement: Any) -> bool:
        if not isinstance(statement, Call) or not _fits(statement.node, root, constant):
            return False
        return statement.node.op not in late or math.prod(statement.node.op.outputs[0].dims) <= MOST_LATE

    for statement in block:
        is_one = fits(statement)
        waits = {t for s in aside for t in s.node.op.outputs}
        if is_one and any(root(t) in waits for t in statement.node.op.inputs):
            close()
        if is_one:
            group.append(statement)
        elif group and isinstance(statement, Call) and len(aside) < MOST_ASIDE and is_pure(statement.node) and statement.node.op not in late:
            aside.append(statement)
        else:
            close()
            result.append(statement)
    close()
    return result


def _chained(nodes: list[Any], root: Root, constant: Constant, read: Collection[Tensor]) -> Chained:
    made = {t for node in nodes for t in node.op.outputs}
    arrays = [_arrays(node.op, root, constant) for node in nodes]
    inputs = list(dict.fromkeys(t for row in arrays for t in row if t not in made))
    numbers = {t: i for i, t in enumerate((*inputs, *(t for node in nodes for t in node.op.outputs)))}
    links = [
        Link(node.op, tuple(numbers[t] for t in row), tuple(numbers[t] for t in node.op.outputs), _factor(node.op, root, constant))
        for node, row in zip(nodes, arrays)
    ]
    outputs = [t for node in nodes for t in node.op.outputs if t in read]
    shapes: Any = [t.dims for t in numbers]
    chain = Chain(links, shapes, [t.dtype.np for t in numbers], len(inputs), [numbers[t] for t in outputs])
    variables = {root(node.op.inputs[i]): name or "" for node in nodes for i, _, name in variables_read(node)}
    return Chained(nodes, inputs, outputs, variables, chain)


def _arrays(op: Operation, root: Root, constant: Constant) -> list[Tensor]:
    """The inputs that are arrays."""
    tensors = [root(t) for t in op.inputs]
    if op.type == "Mul":
        return [t for t in tensors if _number(constant(t)) is None]
    return tensors[:1] if op.type == "Sum" else tensors


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


def _fits(node: Any, root: Root, constant: Constant) -> bool:
    op = node.op
    test = _TESTS.get(op.type)
    if test is None or node.needs_ctx or not all(deref and name for _, deref, name in variables_read(node)):
        return False
    inputs = [root(t) for t in op.inputs]
    dims = [t.dims for t in (*inputs, *op.outputs)]
    if any(d is None or None in d or 0 in d for d in dims) or {inputs[0].dtype.np, op.outputs[0].dtype.np} != {_FLOAT32}:
        return False
    if not (original(node, may_read=True) or _is_engines(node)):
        return False
    return test(_Candidate(node, inputs, dims[: len(inputs)], dims[len(inputs)], [*map(constant, inputs)]))  # type: ignore[arg-type]


def _is_engines(node: Any) -> bool:
    """Whether an engine computes the node, or is given the variables that it reads."""
    return from_engine(node) or getattr(getattr(node.fn, "reads", (None,))[0], "engine", None) is not None


def _is_product(c: _Candidate) -> bool:
    op = c.node.op
    if not _is_engines(c.node) or is_constant(op.inputs[1]) or any(t.dtype.np != _FLOAT32 for t in c.inputs):
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
    if inner != b[across_b] or any(shape != (columns,) for shape in bias) or c.result != (rows, columns):
        return False
    return rows > FEW_ROWS and 2.0 * rows * inner * columns >= LEAST_FLOPS


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


_PRODUCTS = ("_FusedMatMul", "MatMul")
_TESTS: dict[str, Callable[[_Candidate], bool]] = {
    "_FusedMatMul": _is_product,
    "MatMul": _is_product,
    "ReluGrad": _is_gradient,
    "Sum": _is_sum_of_rows,
    "BiasAddGrad": _is_sum_of_rows,
    "Mul": _is_scaled,
    "SparseSoftmaxCrossEntropyWithLogits": _is_cross_entropy,
}
