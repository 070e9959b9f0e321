"""Counters of loops as Python integers.

A loop variable that only counts up to a constant (`i < 1000`, `i + 1`) and is read by nobody else is a Python integer in generated code: it is
compared and counted in half the time that a NumPy scalar takes. The bound and the step say that it cannot leave the range of its type, so that nothing
differs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.python.expressions import ufunc_of, variables_read
from penstock.engines.python.structure import Call, Loop
from penstock.graph.ir import Operation, Tensor

_TYPES = (np.int32, np.int64)
_COMPARES = {np.less: ("<", 1), np.less_equal: ("<=", 1), np.greater: (">", -1), np.greater_equal: (">=", -1)}


class Counters(NamedTuple):
    """First values of counters, and the lines of nodes that count or compare: (counter, operator, number)."""

    first: dict[Tensor, int]
    lines: dict[Operation, tuple[Tensor, str, int]]


def find_counters(
    statements: Sequence[tuple[Any, Any]],
    reads: Callable[[Any], Sequence[Tensor]],
    root: Callable[[Tensor], Tensor],
    results: Iterable[Tensor],
    constant: Callable[[Tensor], Any],
) -> Counters:
    """The counters of all loops. `constant(tensor)` is the tensor's value if it is a constant, else None."""
    found = Counters({}, {})
    loops = [s for _, s in statements if isinstance(s, Loop)]
    if not loops:
        return found
    readers: dict[Tensor, list[Any]] = {}
    for _, statement in statements:
        for tensor in reads(statement):
            readers.setdefault(root(tensor), []).append(statement)
    kept = {root(t) for t in results}
    for loop in loops:
        for merge, first, again in loop.carried:
            counter = merge.op.outputs[0]
            if not _one(constant(root(first))) or counter.dtype.np.type not in _TYPES or counter in kept or readers.get(merge.op.outputs[1]):
                continue
            lines = _lines(loop, counter, root(again), root, readers, kept, constant)
            if lines is not None:
                found.first[counter] = int(constant(root(first)))
                found.lines.update(lines)
    return found


def _one(value: Any) -> bool:
    return isinstance(value, np.generic) and value.dtype.type in _TYPES


def _lines(
    loop: Loop,
    counter: Tensor,
    again: Tensor,
    root: Callable[[Tensor], Tensor],
    readers: dict[Tensor, list[Any]],
    kept: Container[Tensor],
    constant: Callable[[Tensor], Any],
) -> dict[Operation, tuple[Tensor, str, int]] | None:
    test = root(loop.again)
    users = readers.get(counter, [])
    # The node that counts, the node that compares; what they give is read by the loop itself only.
    counts = [s for s in loop.body if isinstance(s, Call) and again in s.node.op.outputs]
    compares = [s for s in loop.cond if isinstance(s, Call) and test in s.node.op.outputs]
    if len(counts) != 1 or len(compares) != 1 or len(users) != 2 or {id(s) for s in users} != {id(counts[0]), id(compares[0])}:
        return None
    if any(t in kept or any(s is not loop for s in readers.get(t, ())) for t in (again, test)):
        return None
    step, bound = _operands(counts[0].node, counter, root, constant), _operands(compares[0].node, counter, root, constant)
    if step is None or bound is None:
        return None
    count, compare = ufunc_of(counts[0].node), ufunc_of(compares[0].node)
    if count not in (np.add, np.subtract) or compare not in _COMPARES:
        return None
    operator, direction = _COMPARES[compare]
    change = step if count is np.add else -step
    limits = np.iinfo(counter.dtype.np)
    if change * direction <= 0 or not limits.min <= bound + change <= limits.max:
        return None
    return {counts[0].node.op: (counter, "+" if count is np.add else "-", step), compares[0].node.op: (counter, operator, bound)}


def _operands(node: Any, counter: Tensor, root: Callable[[Tensor], Tensor], constant: Callable[[Tensor], Any]) -> int | None:
    """The constant that the node's second operand is, if the first is the counter."""
    if variables_read(node) or len(node.op.inputs) != 2 or root(node.op.inputs[0]) is not counter:
        return None
    value = constant(root(node.op.inputs[1]))
    return int(value) if _one(value) else None
