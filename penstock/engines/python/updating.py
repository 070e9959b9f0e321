"""Updates of several variables in one call.

    done = together(((v0, v1, v5), (v2, v3, v6)), [c7, c8])
    while done < 2:
        if done == 0: f1(v0, v1, c7, v5, c8)  # update_w = ApplyMomentum
        elif done == 1: f2(v2, v3, c7, v6, c8)  # update_b = ApplyMomentum
        done = together(..., done + 1)

A training step updates every weight and bias by the same formula with the same numbers. Of what that takes for small ones most is asking: for the kernel's
arguments, for numbers that follow from them, for a loop in machine code. Where there is something that the loop does not do, such as a gradient of the wrong
shape, `together` stops, and the node's own kernel computes, or reports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from penstock.engines.python.expressions import original
from penstock.engines.python.structure import Call
from penstock.engines.python.walk import everything, reads
from penstock.graph.ir import Tensor
from penstock.ops.training import together

Root = Callable[[Tensor], Tensor]


class Updating(NamedTuple):
    """Nodes that update variables by one formula, with the same numbers, one after the other."""

    nodes: list[Any]
    inputs: list[Tensor]
    outputs: list[Tensor]


def with_updates(block: list, root: Root, kept: Collection[Tensor]) -> list:
    """The block with such nodes in one statement each, where they stand side by side and nobody reads what they give."""
    if not any(isinstance(s, Call) and together(s.node.op.type, {}) for s in block):
        return block
    read = {*kept, *(root(t) for s in everything(block) for t in reads(s))}
    result: list = []
    group: list[Any] = []

    def close() -> None:
        if len(group) > 1:
            nodes = [s.node for s in group]
            result.append(Updating(nodes, [t for node in nodes for t in node.op.inputs], []))
        else:
            result.extend(group)
        group.clear()

    for statement in block:
        fits = isinstance(statement, Call) and _can_join(statement.node, read)
        if group and not (fits and _same_for_all(statement.node, root) == _same_for_all(group[0].node, root)):
            close()
        (group if fits else result).append(statement)
    close()
    return result


def _can_join(node: Any, read: Collection[Tensor]) -> bool:
    return together(node.op.type, {}) is not None and not node.needs_ctx and node.op.outputs[0] not in read and original(node, may_read=True)


def _same_for_all(node: Any, root: Root) -> tuple[str, list[Tensor], list[Any]]:
    """The op, what it is told beside variables, gradient and indices, and its attributes."""
    numbers = [root(t) for _, t in numbers_of(node)]
    return node.op.type, numbers, [value for name, value in sorted(node.op.attrs.items()) if name[0] != "_"]


def numbers_of(node: Any) -> list[tuple[int, Tensor]]:
    """The inputs that are numbers, and their places."""
    _, slots, at = together(node.op.type, node.op.attrs)  # type: ignore[misc]
    return [(i, t) for i, t in enumerate(node.op.inputs) if i >= slots and i not in at]
