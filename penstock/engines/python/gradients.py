"""Which products of matrices need not be computed before they are used: those that one training op reads, and nobody else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from penstock.engines.late import Later
from penstock.engines.python.expressions import from_engine, variables_read
from penstock.engines.python.structure import Call
from penstock.engines.python.walk import everything, reads
from penstock.graph.ir import Operation, Tensor

READERS = {
    "ApplyGradientDescent": (2, math.inf), "ResourceApplyGradientDescent": (2, math.inf), "ApplyMomentum": (3, math.inf),
    "ResourceApplyMomentum": (3, math.inf), "ApplyAdam": (9, 1), "ResourceApplyAdam": (9, 1),
}  # fmt: skip
"""Training ops that take factors: the position of the gradient, and how long its sums may be."""
_VARIABLES = frozenset(("VariableV2", "Variable", "ReadVariableOp"))
_SAME = frozenset(("Identity", "Snapshot"))


def find_late(block: list, root: Callable[[Tensor], Tensor], kept: Iterable[Tensor]) -> dict[Operation, Later]:
    """What to call instead of the kernels of such products. Who calls it keeps the factors: nobody may write into them."""
    count = dict.fromkeys(kept, 2)
    wanted: dict[Tensor, float] = {}
    calls: list[Any] = []
    for statement in everything(block):
        for tensor in map(root, reads(statement)):
            count[tensor] = count.get(tensor, 0) + 1
        if isinstance(statement, Call):
            op: Operation = statement.node.op
            if op.type == "MatMul":
                calls.append(statement.node)
            elif op.type in READERS:
                position, longest = READERS[op.type]
                wanted[root(op.inputs[position])] = longest
    late = {}
    for node in calls:
        out = node.op.outputs[0]
        if out in wanted and count[out] == 1 and _can_wait(node, root):
            attrs = node.op.attrs
            late[node.op] = Later(node.fn, (attrs["transpose_a"], attrs["transpose_b"]), wanted[out])
    return late


def _can_wait(node: Any, root: Callable[[Tensor], Tensor]) -> bool:
    op: Operation = node.op
    if op.outputs[0].dtype.np != np.float32 or variables_read(node) or not from_engine(node):
        return False
    # Who holds a variable's array makes its update copy it.
    return not any(_is_variable(root(t)) for t in op.inputs)


def _is_variable(tensor: Tensor) -> bool:
    while tensor.op.type in _SAME:
        tensor = tensor.op.inputs[0]
    return tensor.op.type in _VARIABLES
