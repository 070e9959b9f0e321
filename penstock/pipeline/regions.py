"""Regions: groups of synchronous nodes in a partition that stays with the dataflow executor become one node each.

A partition with asynchronous kernels, transfers or control flow without structure needs the executor's state machine. But most of
its nodes are plain kernels, and what runs between two waits may as well run as one call.

Which nodes may go together follows from what they wait for. An atom is an output of a node that may wait, or may be dead: an
asynchronous kernel, a Recv, a Switch, a Merge, the nodes of frames. The atoms of a simple node are those that it depends on
through simple nodes alone. Nodes with the same atoms are alive together, belong to the same frame and can run as soon as the first of
them could: a region of them waits for nothing that one of its nodes would not have waited for, so that no step can get stuck.
Such a set is convex by itself: whatever lies on a path between two of its nodes has at least the atoms of the first, and at most
those of the second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.opdef import OPS
from penstock.graph.rewrite import Copier, add_controls, topological

_CONSTANTS = ("Const", "HostConst")
_SOURCES = ("_Arg", "_DeviceArg")
_APART = frozenset((*_SOURCES, "_Retval", "_DeviceRetval", "TemporaryVariable", "DestroyTemporaryVariable", "NoOp", "ControlTrigger", "LoopCond"))
SMALLEST = 2
"""Nodes that make a region."""


class Body(NamedTuple):
    """What a `_Region` node computes: nodes of the partition it was made from, in order, and the values that come in and go out."""

    ops: list[Operation]
    inputs: list[Tensor]
    outputs: list[Tensor]


def group(graph: Graph, simple: Callable[[Operation], bool], carries_ref: Callable[[Tensor], bool]) -> Graph | None:
    """The graph with regions, or None if there is nothing to gain. `simple` says which nodes have a synchronous kernel and no part in
    control flow; `carries_ref`, which edges carry a variable rather than its value."""
    order = topological(graph)
    atoms = _atoms(order, simple, carries_ref)
    groups: dict[int, list[Operation]] = {}
    for op in order:
        if op in atoms.inside:
            groups.setdefault(atoms.of[op], []).append(op)
    chosen = [ops for ops in groups.values() if len(ops) >= SMALLEST]
    return _rebuilt(graph, order, chosen) if chosen else None


class _Atoms(NamedTuple):
    of: dict[Operation, int]  # bit set
    inside: set[Operation]


def _atoms(order: list[Operation], simple: Callable[[Operation], bool], carries_ref: Callable[[Tensor], bool]) -> _Atoms:
    of: dict[Operation, int] = {}
    inside: set[Operation] = set()
    after: dict[Tensor | Operation, int] = {}  # the atoms that a reader of this output, or of the node by a control edge, gets
    early: set[Operation] = set()  # nothing before these belongs to any region
    count = 0
    for op in order:
        mine = 0
        for tensor in op.inputs:
            mine |= after.get(tensor, 0)
        for source in op.control_inputs:
            mine |= after.get(source, 0)
        of[op] = mine
        is_simple = simple(op)
        if op.type in _CONSTANTS and is_simple:
            after[op] = mine
            after.update((t, mine) for t in op.outputs)
            if not mine and all(s in early for s in op.control_inputs):
                early.add(op)
            continue
        hands_ref_on = any(carries_ref(t) and t._consumers for t in op.outputs)
        if is_simple and op.type not in _APART and not hands_ref_on:
            inside.add(op)
            after[op] = mine
            after.update((t, mine) for t in op.outputs)
        elif (is_simple or op.type in ("NoOp",)) and not mine and all(s in early for s in _sources(op)):
            early.add(op)
        else:
            for key in (op, *op.outputs):
                after[key] = 1 << count
                count += 1
    return _Atoms(of, inside)


def _sources(op: Operation) -> list[Operation]:
    return [t.op for t in op.inputs] + op.control_inputs


def _rebuilt(graph: Graph, order: list[Operation], groups: list[list[Operation]]) -> Graph:
    region_of = {op: i for i, ops in enumerate(groups) for op in ops}
    copier = Copier(graph)
    for op in order:
        if op not in region_of:
            copier.clone(op)
    bodies = [_body(ops, region_of, i) for i, ops in enumerate(groups)]
    regions: list[Operation] = []
    for i, body in enumerate(bodies):
        first = groups[i][0]
        new = copier.graph.add_node(
            OPS["_Region"], [], {"Tin": [t.dtype for t in body.inputs], "Tout": [t.dtype for t in body.outputs], "body": body},
            _name(copier.graph, f"_region_{i}"), [t.dtype for t in body.outputs], (), first.device, [t.dims for t in body.outputs],
        )  # fmt: skip
        regions.append(new)
        for old, tensor in zip(body.outputs, new.outputs):
            copier.tensors[old] = tensor
    result = copier.wire(lambda op: ())
    for i, body in enumerate(bodies):
        region = regions[i]
        region.inputs = [copier.tensors[t] for t in body.inputs]
        for tensor in region.inputs:
            tensor._consumers = [*(tensor._consumers or ()), region]
    for op in order:
        target = regions[region_of[op]] if op in region_of else copier.ops[op]
        waits_for = op.control_inputs
        if op in region_of:  # a region has constants of its own, and waits for what they waited for
            waits_for = [*waits_for, *(c for t in op.inputs if t.op.type in _CONSTANTS for c in t.op.control_inputs)]
        sources = [regions[region_of[c]] if c in region_of else copier.ops[c] for c in waits_for]
        add_controls(target, sources)
    return result


def _body(ops: list[Operation], region_of: dict[Operation, int], number: int) -> Body:
    inputs: dict[Tensor, None] = {}
    constants: dict[Operation, None] = {}
    for op in ops:
        for tensor in op.inputs:
            if region_of.get(tensor.op) == number:
                continue
            if tensor.op.type in _CONSTANTS:
                constants[tensor.op] = None  # a constant is part of every region that reads it
            else:
                inputs[tensor] = None
    outputs = [t for op in ops for t in op.outputs if any(region_of.get(c) != number for c in t._consumers or ())]
    return Body([*constants, *ops], list(inputs), outputs)


def _name(graph: Graph, name: str) -> str:
    while name in graph:
        name += "_"
    return name
