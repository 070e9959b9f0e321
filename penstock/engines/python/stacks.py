"""Stacks as Python lists.

The gradient of a loop keeps what the loop computed on stacks. A stack whose handle is only pushed to and popped from in the same function is a
list there: `s = []`, `s.append(x)`, `x = s.pop()`. The lines stand in the order that the graph's edges ask for, so that nothing else
is needed of a resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.python.structure import Call
from penstock.graph.ir import Operation, Tensor

_USERS = ("StackPushV2", "StackPopV2")


class LocalStack(NamedTuple):
    """A stack that is a list: how TF's messages call it, and how much it may hold (negative: anything)."""

    name: str
    max_size: int


def find_stacks(
    statements: Iterable[tuple[Any, Any]],
    reads: Callable[[Any], Sequence[Tensor]],
    root: Callable[[Tensor], Tensor],
    results: Sequence[Tensor],
    constant: Callable[[Tensor], Any],
) -> dict[Operation, LocalStack]:
    """The nodes that make, fill and empty stacks which are lists. `constant(tensor)` is the tensor's value if it is a constant, else None."""
    made: dict[Tensor, LocalStack] = {}
    users: dict[Tensor, list[Operation]] = {}
    outside = {root(t) for t in results}
    for _, statement in statements:
        op = statement.node.op if isinstance(statement, Call) else None
        if op is not None and op.type == "StackV2":
            size = constant(root(op.inputs[0]))
            if isinstance(size, np.generic):
                made[op.outputs[0]] = LocalStack(op.attrs["stack_name"].decode() or op.name, int(size))
                users[op.outputs[0]] = [op]
            continue
        for i, tensor in enumerate(reads(statement)):
            handle = root(tensor)
            if handle not in made:
                continue
            fits = op is not None and op.type in _USERS and i == 0
            if fits and op is not None and op.type == "StackPushV2":
                fits = op.attrs["T"] is handle.op.attrs["elem_type"]
            if fits and op is not None:
                users[handle].append(op)
            else:
                outside.add(handle)
    return {op: stack for handle, stack in made.items() if handle not in outside for op in users[handle]}


def stack_line(stack: LocalStack, op: Operation, inputs: Sequence[str], words: dict[Operation, str]) -> str:
    """What the line of a node says; `words` gets what to say if it fails."""
    if op.type == "StackV2":
        return "[]"
    if op.type == "StackPopV2":
        words[op] = f"Stack[{stack.name}] is empty when calling Pop()."
        return f"{inputs[0]}.pop()"
    handle, value = inputs
    if stack.max_size < 0:
        return f"{handle}.append({value})"
    words[op] = f"Stack[{stack.name}] overflowed its max_size ({stack.max_size})"
    # A full list has no element so far from its end.
    return f"{handle}.append({value} if len({handle}) < {stack.max_size} else {handle}[-1 - {stack.max_size}])"
