"""Regions: groups of synchronous nodes in a partition that stays with the dataflow executor become one node each.

A partition with asynchronous kernels, transfers or control flow without structure needs the executor's state machine. But most of
its nodes are plain kernels, and what runs between two waits may as well run as one call.

Which nodes may go together follows from what they wait for. An atom is an output of a node that may wait, or may be dead: an
asynchronous kernel, a Recv, a Switch, a Merge, the nodes of frames. The atoms of a simple node are those that it depends on
through simple nodes alone. Nodes with the same atoms are alive together, belong to the same frame and can run as soon as the first of
them could: a region of them waits for nothing that one of its nodes would not have waited for, so that no step can get stuck.
Such a set is convex by itself: whatever lies on a path between two of its nodes has at least the atoms of the first, and at most
those of the second.

Two things wait longer in a region than they would have by themselves: a loop or cond (`units`) for all that goes into it, and nodes that are merged into
the region that reads them. That is harmless unless somebody is waiting for them: a node that may wake another (an enqueue, a Send, whatever has
effects that are not a variable's) must not come later than it had to, for what it wakes may be what the region waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.opdef import OPS
from penstock.graph.rewrite import Copier, add_controls, topological
from penstock.pipeline.frames import ENTER, MERGE, NEXT
from penstock.pipeline.units import FLOW, SWITCH, contracted, find_units

_CONSTANTS = ("Const", "HostConst")
_SOURCES = ("_Arg", "_DeviceArg")
_APART = frozenset((*_SOURCES, "_Retval", "_DeviceRetval", "TemporaryVariable", "DestroyTemporaryVariable", "NoOp", "ControlTrigger", "LoopCond"))
_HARMLESS = (
    "Assign", "ReadVariable", "_ReadVariable", "VarHandle", "_VarHandle", "VarIs", "Variable", "IsVariable", "Apply", "SparseApply", "_SumAnd", "Scatter", "ResourceApply",
    "ResourceSparseApply", "ResourceScatter", "ResourceGather", "ResourceStrided", "StridedSliceAssign", "CountUpTo", "ResourceCountUpTo", "Random", "Truncated", "Multinomial",
    "Parameterized", "Stateful", "TensorArray", "Stack", "Assert", "Print", "CheckNumerics", "Lookup", "TensorList", "EmptyTensorList", "Identity", "Snapshot",
)  # fmt: skip
"""How the names of nodes begin whose effects nobody waits for."""
SMALLEST = 2
"""Nodes that make a region."""


class Body(NamedTuple):
    """What a `_Region` node computes: nodes of the partition it was made from, in order, and the values that come in and go out."""

    ops: list[Operation]
    inputs: list[Tensor]
    outputs: list[Tensor]


class Traits(NamedTuple):
    """What the executor knows of a partition's nodes.

    simple        a synchronous kernel and no part in control flow
    carries_ref   an edge that carries a variable rather than its value
    steady        it may wait, but what it gives is alive if what it got is
    structured    whether the control flow of some nodes can be written as statements
    """

    simple: Callable[[Operation], bool]
    carries_ref: Callable[[Tensor], bool]
    steady: Callable[[Operation], bool] = lambda op: False
    structured: Callable[[list[Operation]], bool] = lambda ops: False


def group(graph: Graph, traits: Traits) -> Graph | None:
    """The graph with regions, or None if there is nothing to gain."""
    order = topological(graph)
    wakes = _wakes(order, traits.simple)

    def fits(op: Operation) -> bool:
        return traits.simple(op) and (op.type not in _APART) and not _may_wake(op)

    units = find_units(order, fits, traits.carries_ref, traits.structured)
    while True:
        atoms = _Atoms(order, units, traits)
        wrong = [i for i, unit in enumerate(units) if not atoms.is_sound(unit, wakes)]
        if not wrong:
            break
        units = [unit for i, unit in enumerate(units) if i not in wrong]
    groups: dict[int, list[Operation]] = {}
    for op in order:
        if op in atoms.inside:
            groups.setdefault(atoms.of[op], []).append(op)
    position = {op: i for i, op in enumerate(order)}
    merged = _merged(groups, atoms, position)
    chosen = [ops for ops in merged if sum(op.type != "NoOp" for op in ops) >= SMALLEST]
    return _rebuilt(graph, order, chosen) if chosen else None


class _Atoms:
    """State
    of        node -> the atoms it depends on, a bit set
    dies      node -> those of them by which it may be dead
    inside    nodes that may be part of a region
    after     value or node -> the atoms that a reader of it, or who waits for the node, gets; `dead_after` likewise
    """

    def __init__(self, order: list[Operation], units: list[list[Operation]], traits: Traits) -> None:
        self.of: dict[Operation, int] = {}
        self.dies: dict[Operation, int] = {}
        self.inside: set[Operation] = set()
        self.after: dict[Tensor | Operation, int] = {}
        self.dead_after: dict[Tensor | Operation, int] = {}
        self.early: set[Operation] = set()  # nothing before these belongs to any region
        self.count = 0
        self.traits = traits
        items: list[Any] = order  # type: ignore[assignment]
        if units:
            items = contracted(order, units)  # type: ignore[assignment]
        for item in items:
            if item.__class__ is int:
                self._unit(units[item])
            else:
                self._node(item)

    def _node(self, op: Operation) -> None:
        traits = self.traits
        after, dead_after = self.after, self.dead_after
        mine = dead = 0
        for source in (*op.inputs, *op.control_inputs):
            mine |= after.get(source, 0)
            dead |= dead_after.get(source, 0)
        self.of[op] = mine
        self.dies[op] = dead
        is_simple = traits.simple(op)
        if op.type in _CONSTANTS and is_simple:
            self._pass_on(op, mine, dead)
            if not mine and all(s in self.early for s in op.control_inputs):
                self.early.add(op)
            return
        hands_ref_on = any(traits.carries_ref(t) and t._consumers for t in op.outputs)
        if is_simple and op.type not in _APART and not hands_ref_on:
            self.inside.add(op)
            self._pass_on(op, mine, dead)
        elif (is_simple or op.type == "NoOp") and not mine and all(s in self.early for s in _sources(op)):
            self.early.add(op)
        elif op.type == "NoOp":
            self.inside.add(op)
            self._pass_on(op, mine, dead)
        else:
            is_steady = traits.steady(op)
            for key in (op, *op.outputs):
                after[key] = 1 << self.count
                dead_after[key] = dead if is_steady else 1 << self.count
                self.count += 1

    def _pass_on(self, op: Operation, atoms: int, dies: int) -> None:
        for key in (op, *op.outputs):
            self.after[key] = atoms
            self.dead_after[key] = dies

    def _unit(self, ops: list[Operation]) -> None:
        members = set(ops)
        mine = dead = 0
        for op in ops:
            for source, key in _edges(op):
                if source not in members:
                    mine |= self.after.get(key, 0)
                    dead |= self.dead_after.get(key, 0)
        for op in ops:
            self.of[op] = mine
            self.dies[op] = dead
            self.inside.add(op)
            self._pass_on(op, mine, dead)

    def is_sound(self, ops: list[Operation], wakes: dict[Operation, bool]) -> bool:
        """Whether it makes no difference that a unit is dead if one of its inputs is, and begins when all of them are there."""
        members = set(ops)
        mine, dead = self.of[ops[0]], self.dies[ops[0]]
        sure: dict[Any, int] = {}  # the atoms that a value waits for in any case
        for op in ops:
            keys = [(source in members, key) for source, key in _edges(op) if source.type not in NEXT]
            if dead and (op.type in SWITCH or (op.type in ENTER and not op.attrs["is_constant"])):
                # What decides whether the unit is alive must be dead if anything else is.
                key = op.inputs[1 if op.type in SWITCH else 0]
                if key.op not in members and self.dead_after.get(key, 0) != dead:
                    return False
            waits = [sure.get(key, 0) if inner else self.after.get(key, 0) for inner, key in keys]
            if op.type in MERGE and waits:
                n = len(waits) - len(op.control_inputs)
                least = waits[0] if n else 0
                for bits in waits[1:n]:
                    least &= bits
                for bits in waits[n:]:
                    least |= bits
            else:
                least = 0
                for bits in waits:
                    least |= bits
            for key in (op, *op.outputs):
                sure[key] = least
        for op in ops:
            for key in op.outputs:
                if sure[key] != mine and any(c not in members and wakes[c] for c in key._consumers or ()):
                    return False
            if sure[op] != mine and any(c not in members and wakes[c] for c in op._control_outputs or ()):
                return False
        return True


def _merged(groups: dict[int, list[Operation]], atoms: _Atoms, position: dict[Operation, int]) -> list[list[Operation]]:
    """Groups, each merged into the first of those that read it where that makes no difference but to run as one: they are alive together,
    and whoever else reads it would have had to wait as long anyway."""
    home = {op: key for key, ops in groups.items() for op in ops}
    now: dict[int, int] = {key: key for key in groups}  # which group its nodes are in by now

    def place(op: Operation) -> int | None:
        key = home.get(op)
        return None if key is None else now[key]

    contents = {key: list(ops) for key, ops in groups.items()}
    for key in sorted(groups, key=int.bit_count, reverse=True):  # who reads a group has more atoms
        ops = contents[key]
        readers = {c for op in ops for c in _readers(op) if place(c) != key}
        targets = {found for c in readers if (found := place(c)) is not None}
        if not targets or any(_may_wake(op) for op in ops):
            continue
        target = min(targets, key=lambda k: k.bit_count())
        dies = atoms.dies[ops[0]]
        if atoms.dies[contents[target][0]] != dies or key & ~target:
            continue
        if all(_comes_later(c, place(c), target, atoms) for c in readers):
            contents[target] += contents.pop(key)
            for old, new in now.items():
                if new == key:
                    now[old] = target
    return [sorted(ops, key=position.__getitem__) for ops in contents.values()]


def _comes_later(op: Operation, place: int | None, target: int, atoms: _Atoms) -> bool:
    """Whether a reader has to wait for all that `target` waits for, or nobody waits for it."""
    if place is not None:
        return not target & ~place
    if not target & ~atoms.of[op]:
        return True
    return op.type in ("_Retval", "_DeviceRetval", "NoOp") and not _readers(op)


def _wakes(order: list[Operation], simple: Callable[[Operation], bool]) -> dict[Operation, bool]:
    """Which nodes may wake another: by themselves, or by what comes after them."""
    wakes: dict[Operation, bool] = {}
    for op in order:
        is_ours = simple(op) or op.type in FLOW
        wakes[op] = not is_ours or _may_wake(op)
    changed = True
    while changed:
        changed = False
        for op in reversed(order):
            if not wakes[op] and any(wakes[c] for c in _readers(op)):
                wakes[op] = changed = True
    return wakes


def _may_wake(op: Operation) -> bool:
    """Whether a synchronous node has an effect that some other node may be waiting for: whatever holds a handle and is not known to be harmless."""
    if op.type.startswith(_HARMLESS) or op.type in FLOW or op.type in (*_SOURCES, "_Retval", "_DeviceRetval", *_CONSTANTS):
        return False
    return op.op_def.stateful or any(t.dtype._is_ref_dtype or t.dtype.name in ("resource", "variant") for t in op.inputs)


def _edges(op: Operation) -> list[tuple[Operation, Any]]:
    """(source, what is read of it) of all inputs, then of all control inputs."""
    return [(t.op, t) for t in op.inputs] + [(c, c) for c in op.control_inputs]


def _readers(op: Operation) -> list[Operation]:
    return [c for t in op.outputs for c in t._consumers or ()] + list(op._control_outputs or ())


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
        waits_for = _controls(op)
        if op in region_of:  # a region has constants of its own, and waits for what they waited for
            waits_for += [c for t in op.inputs if t.op.type in _CONSTANTS for c in _controls(t.op)]
        sources = [regions[region_of[c]] if c in region_of else copier.ops[c] for c in waits_for]
        add_controls(target, sources)
    return result


def _controls(op: Operation) -> list[Operation]:
    """What `op` waits for by control edges. A constant among them stands for what it waits for itself: it may lie between two nodes of a region."""
    return [c for source in op.control_inputs for c in (_controls(source) if source.type in _CONSTANTS else [source])]


def _body(ops: list[Operation], region_of: dict[Operation, int], number: int) -> Body:
    inputs: dict[Tensor, None] = {}
    members: dict[Operation, None] = {}

    def add(constant: Operation) -> None:
        """A constant is part of every region that has to do with it: right before that, and so behind whatever it waits for itself."""
        for source in constant.control_inputs:
            if source.type in _CONSTANTS:
                add(source)
        members[constant] = None

    for op in ops:
        for tensor in op.inputs:
            if region_of.get(tensor.op) == number:
                continue
            if tensor.op.type in _CONSTANTS:
                add(tensor.op)
            else:
                inputs[tensor] = None
        for source in op.control_inputs:
            if source.type in _CONSTANTS:
                add(source)
        members[op] = None
    outputs = [t for op in ops for t in op.outputs if any(region_of.get(c) != number for c in t._consumers or ())]
    return Body(list(members), list(inputs), outputs)


def _name(graph: Graph, name: str) -> str:
    while name in graph:
        name += "_"
    return name
