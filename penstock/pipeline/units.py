"""Units: loops and conds that wait for nothing in their middle, each of which the dataflow executor may take for one node.

A unit is a loop from its Enters to its Exits, or a cond from its Switches to its Merges, with all that is inside. Which nodes are inside follows from
where values live: an Enter leads into a frame, a Switch onto one side of its predicate, an Exit and a Merge of both sides lead out again. What lies
between two parts of a unit (a cond and its gradient share a predicate) has to be part of it, and so have units that wait for each other.

`find_units` only gives units whose nodes are all synchronous, whose control flow has structure, and whose results are alive whenever what goes in is.
Whether it matters that a unit waits for all its inputs before it begins is the caller's business (`regions`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.graph.ir import Operation, Tensor
from penstock.pipeline.frames import ENTER, EXIT, MERGE, NEXT

SWITCH = ("Switch", "RefSwitch")
FLOW = frozenset((*ENTER, *EXIT, *NEXT, *MERGE, *SWITCH, "LoopCond", "NoOp", "ControlTrigger"))


class _Where(NamedTuple):
    """Where a value lives: in which loops, and on which sides of which predicates of the innermost one."""

    loops: tuple[bytes, ...]
    sides: frozenset[tuple[Tensor, bool]]


_OUTSIDE = _Where((), frozenset())


def find_units(
    order: list[Operation], fits: Callable[[Operation], bool], carries_ref: Callable[[Tensor], bool], structured: Callable[[list[Operation]], bool]
) -> list[list[Operation]]:
    """The units of a graph, each in the order of `order`. `fits` says which nodes a unit may hold, apart from control flow."""
    if not any(op.type in ENTER or op.type in SWITCH for op in order):
        return []
    members = _Finder(order).run()
    units = [ops for ops in members if _is_sound(ops, fits, carries_ref)]
    while True:
        units = _in_order(order, units, fits)
        sound = [ops for ops in units if _is_sound(ops, fits, carries_ref) and structured(ops)]
        if len(sound) == len(units):
            return units
        units = sound


class _Finder:
    """State
    where       value or node -> where it lives; for a node, where its control edges go out
    around      loop -> where its Enters are
    parent      union-find over tags: loops, and predicates of conds. Tags that some node has in common are one unit
    """

    def __init__(self, order: list[Operation]) -> None:
        self.order = order
        self.where: dict[Any, _Where] = {}
        self.around: dict[tuple[bytes, ...], _Where] = {}
        self.parent: dict[Any, Any] = {}
        self.bad: set[Any] = set()

    def run(self) -> list[list[Operation]]:
        tagged: list[tuple[Operation, Any]] = []
        for op in self.order:
            tags = self._node(op)
            if tags:
                first = next(iter(tags))
                for tag in tags:
                    self._join(first, tag)
                tagged.append((op, first))
        found: dict[Any, list[Operation]] = {}
        bad = {self._find(tag) for tag in self.bad}
        for op, tag in tagged:
            root = self._find(tag)
            if root not in bad:
                found.setdefault(root, []).append(op)
        return list(found.values())

    def _node(self, op: Operation) -> set[Any]:
        sources = [self.where[t] for t in op.inputs if t in self.where and t.op.type not in NEXT]
        controls = [self.where[c] for c in op.control_inputs if c in self.where]
        here = _OUTSIDE
        known = sources + controls
        if known:
            loops = max((w.loops for w in known), key=len)
            sides = frozenset().union(*(w.sides for w in known))
            here = _Where(loops, sides)
        tags = self._tags(here)
        if any(w.loops != here.loops for w in known):
            for w in known:
                tags |= self._tags(w)
            self.bad |= tags
        after = here
        if op.type in SWITCH:
            pred = _pred(op.inputs[1])
            if pred.op.type != "LoopCond":
                for side in (False, True):
                    self.where[op.outputs[side]] = _Where(here.loops, here.sides | {(pred, side)})
                self.where[op] = here
                return tags | self._tags(self.where[op.outputs[0]])
        elif op.type in MERGE:
            after = self._merge(op, sources, here)
            if after is None:
                self.bad |= tags
                after = here
        elif op.type in ENTER:
            loops = (*here.loops, op.attrs["frame_name"])
            known_around = self.around.setdefault(loops, here)
            after = _Where(loops, frozenset())
            if known_around != here:
                # An invariant may come from outside of the branch that the loop is in.
                if not here.sides <= known_around.sides and known_around.sides <= here.sides:
                    self.around[loops] = here
                tags |= self._tags(known_around)
            tags |= self._tags(after)
        elif op.type in EXIT:
            after = self.around.get(here.loops)
            if after is None:
                self.bad |= tags
                after = here
        for key in (op, *op.outputs):
            self.where[key] = after
        return tags

    def _merge(self, op: Operation, sources: list[_Where], here: _Where) -> _Where | None:
        if any(t.op.type in NEXT for t in op.inputs):
            return sources[0] if len(sources) == 1 else None
        if len(sources) != 2 or len(op.inputs) != 2:
            return None if here != _OUTSIDE else here
        common = sources[0].sides & sources[1].sides
        only = [w.sides - common for w in sources]
        if [len(o) for o in only] == [1, 1]:
            (a,), (b,) = only
            if a[0] is b[0]:
                return _Where(here.loops, common)
        return None

    def _tags(self, where: _Where) -> set[Any]:
        tags: set[Any] = {id(pred) for pred, _ in where.sides}
        if where.loops:
            tags.add(where.loops)
            if where.loops in self.around:
                tags |= self._tags(self.around[where.loops])
        return tags

    def _find(self, tag: Any) -> Any:
        while tag in self.parent:
            tag = self.parent[tag]
        return tag

    def _join(self, a: Any, b: Any) -> None:
        a, b = self._find(a), self._find(b)
        if a != b:
            self.parent[a] = b


def _pred(tensor: Tensor) -> Tensor:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _is_sound(ops: list[Operation], fits: Callable[[Operation], bool], carries_ref: Callable[[Tensor], bool]) -> bool:
    inside = set(ops)
    for op in ops:
        if op.type not in FLOW and not fits(op):
            return False
        for tensor in op.outputs:
            if carries_ref(tensor) and any(c not in inside for c in tensor._consumers or ()):
                return False
    return True


def _sources(op: Operation) -> list[Operation]:
    return [t.op for t in op.inputs] + op.control_inputs


def _in_order(order: list[Operation], units: list[list[Operation]], fits: Callable[[Operation], bool]) -> list[list[Operation]]:
    """Units that do not wait for each other, or for themselves, in a circle. What is on such a circle becomes one unit; if some of it cannot be
    part of one, the units on it are none."""
    position = {op: i for i, op in enumerate(order)}
    while units and contracted(order, units) is None:
        kept: list[list[Operation]] = []
        on_circle: set[int] = set()
        for circle in _circles(order, units):
            mine = [item for item in circle if item.__class__ is int]
            on_circle.update(mine)
            if all(item.__class__ is int or item.type in FLOW or fits(item) for item in circle):
                ops = [op for item in circle for op in (units[item] if item.__class__ is int else [item])]
                kept.append(sorted(ops, key=position.__getitem__))
        units = kept + [ops for i, ops in enumerate(units) if i not in on_circle]
    return units


def _edges(order: list[Operation], units: list[list[Operation]]) -> dict[Any, list[Any]]:
    """Who reads each node or unit (a number)."""
    unit_of: dict[Operation, Any] = {op: i for i, ops in enumerate(units) for op in ops}
    readers: dict[Any, list[Any]] = {}
    for op in order:
        me = unit_of.get(op, op)
        readers.setdefault(me, [])
        for source in _sources(op):
            other = unit_of.get(source, source)
            if other != me and source.type not in NEXT:
                readers.setdefault(other, []).append(me)
    return readers


def contracted(order: list[Operation], units: list[list[Operation]]) -> list[Any] | None:
    """Nodes and units (as numbers) so that all they need comes first; None if there is no such order."""
    readers = _edges(order, units)
    waiting = dict.fromkeys(readers, 0)
    for targets in readers.values():
        for target in targets:
            waiting[target] += 1
    ready = [item for item, count in waiting.items() if not count]
    for item in ready:
        for reader in readers[item]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return ready if len(ready) == len(waiting) else None


def _circles(order: list[Operation], units: list[list[Operation]]) -> list[list[Any]]:
    """Sets of nodes and units of which each can be reached from each (Tarjan's algorithm)."""
    readers = _edges(order, units)
    number: dict[Any, int] = {}
    lowest: dict[Any, int] = {}
    open_items: list[Any] = []
    is_open: set[Any] = set()
    found: list[list[Any]] = []
    for start in readers:
        if start in number:
            continue
        number[start] = lowest[start] = len(number)
        open_items.append(start)
        is_open.add(start)
        path = [(start, iter(readers[start]))]
        while path:
            item, rest = path[-1]
            for target in rest:
                if target not in number:
                    number[target] = lowest[target] = len(number)
                    open_items.append(target)
                    is_open.add(target)
                    path.append((target, iter(readers[target])))
                    break
                if target in is_open:
                    lowest[item] = min(lowest[item], number[target])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[item])
                if lowest[item] == number[item]:
                    circle = []
                    while not circle or circle[-1] != item:
                        circle.append(open_items.pop())
                        is_open.discard(circle[-1])
                    if len(circle) > 1:
                        found.append(circle)
    return found
