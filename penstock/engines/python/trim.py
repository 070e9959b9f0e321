"""What need not run: pure nodes that nobody reads, and broadcasts that readers do by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.engines.python.expressions import is_pure, may_fail, original, ufunc_of, variables_read
from penstock.engines.python.structure import Call
from penstock.engines.python.walk import everything, reads, without
from penstock.graph.ir import Operation, Tensor

Root = Callable[[Tensor], Tensor]


def without_unread(block: list, root: Root, kept: set[Tensor]) -> list:
    """The block without pure nodes whose values nobody reads: gradients of feeds, shapes that turned out to be known. One that may fail stays:
    its error is a result too."""
    while True:
        readers: dict[Tensor, int] = {}
        for statement in everything(block):
            for tensor in map(root, reads(statement)):
                readers[tensor] = readers.get(tensor, 0) + 1
        gone = set()
        for statement in everything(block):
            if isinstance(statement, Call) and not any(t in kept or readers.get(t) for t in statement.node.op.outputs):
                # A kernel that reads a variable may find it without a value; somebody else must notice that, then.
                inputs = statement.node.op.inputs
                variables = [inputs[i] for i, _, _ in variables_read(statement.node)] or reads(statement)
                others = all(readers[root(t)] > 1 for t in variables)
                if is_pure(statement.node, others) and not may_fail(statement.node):
                    gone.add(statement.node.op)
        if not gone:
            return block
        block = without(block, gone)


def without_broadcasts(block: list, root: Root, kept: set[Tensor]) -> tuple[list, dict[Tensor, Tensor]]:
    """The block without BroadcastTo whose readers would broadcast by themselves, and what stands for each result: the value as it was before."""
    readers: dict[Tensor, list[Any]] = {}
    for statement in everything(block):
        for tensor in map(root, reads(statement)):
            readers.setdefault(tensor, []).append(statement)
    narrow: dict[Tensor, Tensor] = {}
    gone: set[Operation] = set()
    for statement in everything(block):
        if isinstance(statement, Call) and statement.node.op.type == "BroadcastTo" and original(statement.node):
            op = statement.node.op
            out = op.outputs[0]
            if out not in kept and all(_broadcasts(reader, {**narrow, out: op.inputs[0]}, root) for reader in readers.get(out, ())):
                narrow[out] = op.inputs[0]
                gone.add(op)
    return (without(block, gone) if gone else block), narrow


def _broadcasts(statement: Any, narrow: dict[Tensor, Tensor], root: Root) -> bool:
    """Whether `statement` is a ufunc that gives the same with what stands for its operands in `narrow`, by static shapes. Both of them may be there:
    then one has to stay wide."""
    if not isinstance(statement, Call) or ufunc_of(statement.node) is None or len(statement.node.op.inputs) != 2:
        return False
    dims = [narrow[wide].dims if (wide := root(t)) in narrow else t.dims for t in statement.node.op.inputs]
    out = statement.node.op.outputs[0].dims
    if any(d is None or None in d for d in (*dims, out)):
        return False
    try:
        return np.broadcast_shapes(*dims) == out  # type: ignore[arg-type]
    except ValueError:
        return False
