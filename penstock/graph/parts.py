"""What a joined node stands for, and which of those nodes is at fault when it fails.

A pass that puts one node in the place of several (`pipeline.optimise.edit`) leaves `Parts` on it: the nodes as they were, in the graph as it was. Nobody
looks at them until the joined node fails. Then its nodes run one by one, on what the joined node was given, until one of them fails: that
is the node that the user wrote, with the inputs and the words of its own kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.graph.bind import bind
from penstock.graph.ir import Operation, Tensor

_CONSTANTS = ("Const", "HostConst")
_FLOW = frozenset(("Switch", "_SwitchN", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"))


class Parts(NamedTuple):
    """`ends`: nodes whose values the joined node gives, or that it computes on the way; `inputs`: the values that it is given, in order. Both are of
    the graph before the change."""

    ends: list[Operation]
    inputs: list[Tensor]


class Failure(NamedTuple):
    """A node that failed, on which inputs."""

    error: Exception
    op: Operation
    inputs: list[Any]


def nodes(op: Operation) -> list[Operation]:
    """The nodes that `op` stands for, in an order in which they can run; those that are joined themselves stand for theirs."""
    found: list[Operation] = []
    for part in _between(op):
        found += nodes(part) if part.parts is not None else [part]
    return found


def find_failure(op: Operation, inputs: Sequence[Any], value_of: Callable[[Any], Any] = lambda value: value) -> Failure | None:
    """The first of the nodes that `op` stands for that fails if they run on what `op` was given; None if they all run, as far as
    their inputs are known. `value_of(input)` is the value that a kernel gets (variables come as references)."""
    parts = op.parts
    if parts is None or len(inputs) != len(parts.inputs):
        return None
    values = {t: value_of(v) for t, v in zip(parts.inputs, inputs, strict=True) if v is not None}
    with np.errstate(all="ignore"):
        for part in _between(op):
            given = [values.get(t) for t in part.inputs]
            if not _can_run(part) or any(v is None for v in given):
                continue
            bound = bind(part)
            try:
                results = bound.fn(*given)
            except Exception as error:
                return find_failure(part, given) or Failure(error, part, given)
            for tensor, value in zip(part.outputs, [results] if bound.plain else results, strict=False):
                values.setdefault(tensor, value)
    return None


def _can_run(op: Operation) -> bool:
    """Whether to run `op` by itself needs no more than its inputs, and changes nothing."""
    opdef = op.op_def
    if opdef.stateful or opdef.async_kernel is not None or opdef.kernel is None or op.type in _FLOW or op.type in op.graph.functions:
        return False
    return (bool(op.inputs) or op.type in _CONSTANTS) and not any(t.dtype._is_ref_dtype for t in (*op.inputs, *op.outputs))


def _between(op: Operation) -> list[Operation]:
    """The nodes between the inputs of a joined node and its ends, inputs first."""
    parts = op.parts
    if parts is None:
        return []
    given = set(parts.inputs)
    order: dict[Operation, None] = {}
    seen: set[Operation] = set()
    # An op is met twice: on the way down to its inputs, and on the way back, when they are in order.
    stack = [(end, False) for end in reversed(parts.ends)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order[node] = None
        elif node not in seen:
            seen.add(node)
            if _can_run(node):
                stack.append((node, True))
                stack += [(t.op, False) for t in reversed(node.inputs) if t not in given]
    return list(order)
