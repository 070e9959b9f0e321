"""From dataflow to statements: calls in order, branches for Switch and Merge, loops for frames.

`structure(nodes)` takes the nodes of a graph (or of a part of it) in topological order and gives the statements that compute
the same, or raises `Unstructured`: some control flow has no such form, and stays with the dataflow executor.

What dataflow says by deadness, statements say by where they stand. Every node has a guard, the set of decisions under which it is
alive: a Switch adds `(its predicate, side)` to the guard of its output, a node's guard is the union of its inputs' guards, and a
Merge of two values whose guards differ only in the two sides of one predicate takes that predicate away again. In a loop's frame
guards count from the frame; nodes without LoopCond in their guard run in every round, the last one too, and the others are the body.

Nodes that only pass a value on (Switch, Enter, Exit, Identity) become no statement: `alias` says whose value theirs is.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.engines.turns import breathe
from penstock.graph.ir import Operation, Tensor

Decision = tuple[Tensor, bool]
Guard = tuple[Decision, ...]


class Node(Protocol):
    """What is needed of a node: its operation and its bound kernel."""

    op: Operation
    fn: Callable[..., Any]
    needs_ctx: bool
    plain: bool
    refs: tuple


class Unstructured(Exception):
    """The control flow has no structured form; the message says why."""


class Call(NamedTuple):
    """Calls a node's kernel."""

    node: Any


class Assign(NamedTuple):
    """A Merge takes input `index`: the end of a branch."""

    node: Any
    index: int  # pyright: ignore[reportIncompatibleMethodOverride] - a field, and nobody searches this tuple


class Branch(NamedTuple):
    """Two blocks, one of which runs. `switch` is a node that asks for the predicate, for errors."""

    pred: Tensor
    switch: Any
    yes: list
    no: list


class Loop(NamedTuple):
    """`carried` are (Merge, its first value, its next value); `cond` runs first in every round and computes `again`."""

    name: str
    carried: list[tuple[Any, Tensor, Tensor]]
    cond: list
    again: Tensor
    loop_cond: Any
    body: list


class Offloaded(NamedTuple):
    """Statements that another engine computes: `program(ctx, stop, *inputs)` gives `outputs`. `host` computes the same here, as a
    function of its own."""

    program: Any
    host: list
    inputs: list[Tensor]
    outputs: list[Tensor]

    @property
    def blocks(self) -> tuple[list, ...]:
        return (self.host,)


class Structured(NamedTuple):
    """The statements, whose value each tensor has, the guards of tensors that may be dead, and who asks for each predicate."""

    block: list
    alias: dict[Tensor, Tensor]
    guards: dict[Tensor, Guard]
    switch_of: dict[Tensor, Any]


_ENTER, _EXIT, _NEXT = ("Enter", "RefEnter"), ("Exit", "RefExit"), ("NextIteration", "RefNextIteration")
_MERGE, _SWITCH = ("Merge", "RefMerge"), ("Switch", "RefSwitch")
PASSES_ON = frozenset(("Identity", "StopGradient", "PreventGradient", "PlaceholderWithDefault", "Snapshot"))
_CONSTANTS = frozenset(("Const", "HostConst"))
_BY_ITERATION = frozenset(
    ("TemporaryVariable", "DestroyTemporaryVariable")
)  # their names depend on the executor's iteration
_MAX_DIRECT = 8


class _Item:
    """A statement in the making. `deps` are items of the same frame."""

    __slots__ = ("deps", "frame", "guard", "position", "statement")

    def __init__(self, statement: Any, frame: _Frame, guard: Guard, deps: set[_Item], position: int) -> None:
        self.statement = statement
        self.frame = frame
        self.guard = guard
        self.deps = deps
        self.position = position
        frame.items.append(self)


class _Frame:
    """A loop under reading, or the graph around all loops (parent None)."""

    def __init__(self, name: str, parent: _Frame | None) -> None:
        self.name = name
        self.parent = parent
        self.items: list[_Item] = []
        self.loop: _Item | None = None
        self.loop_cond: Any = None
        self.carried: list[tuple[Any, Tensor, Operation]] = []
        self.guard: Guard | None = None
        self.constant_guards: list[Guard] = []
        self.exits: list[Operation] = []


def structure(nodes: Sequence[Any]) -> Structured:
    """The statements for `nodes`. Raises Unstructured."""
    return _Reader(nodes).read()


class _Reader:
    def __init__(self, nodes: Sequence[Any]) -> None:
        self.nodes = nodes
        self.position = {node.op: i for i, node in enumerate(nodes)}
        self.by_op = {node.op: node for node in nodes}
        self.alias: dict[Tensor, Tensor] = {}
        self.guards: dict[Tensor, Guard] = {}
        self.op_guard: dict[Operation, Guard] = {}
        self.order: dict[Operation, set[_Item]] = {}  # what must have run before a reader of this node runs
        self.root = _Frame("", None)
        self.out_frame: dict[Operation, _Frame] = {}
        self.frames: dict[tuple[str, _Frame], _Frame] = {}
        self.switch_of: dict[Tensor, Any] = {}

    def read(self) -> Structured:
        for i, node in enumerate(self.nodes):
            self._node(node, i)
            breathe()
        for frame in reversed(list(self.frames.values())):  # inner loops first
            self._check(frame)
        block = self._block(_sorted(self.root.items), ())
        return Structured(block, self.alias, {t: g for t, g in self.guards.items() if g}, self.switch_of)

    # -- one node -------------------------------------------------------------------------------------------------------

    def _node(self, node: Any, position: int) -> None:
        op: Operation = node.op
        kind = op.type
        frame: _Frame | None = None
        guard: Guard = ()
        deps: set[_Item] = set()
        is_merge = kind in _MERGE
        dies = not is_merge and kind != "ControlTrigger"  # with any of its inputs
        for tensor in op.inputs:
            source = tensor.op
            if source.type in _NEXT:
                continue
            if source in self.out_frame:
                frame = self._same(frame, self.out_frame[source], op)
                deps |= self.order[source]
                if dies:
                    guard = self._join(guard, self.guards.get(tensor, ()))
        for source in op.control_inputs:
            if source in self.out_frame:
                frame = self._same(frame, self.out_frame[source], op)
                deps |= self.order[source]
                if dies and source.type != "ControlTrigger":
                    guard = self._join(guard, self.op_guard[source])
        frame = frame or self.root
        self.out_frame[op] = frame
        self.op_guard[op] = guard
        self.order[op] = deps
        if is_merge:
            self._merge(node, frame, deps, position)
            return
        if kind in _ENTER:
            self._enter(node, frame, guard, deps, position)
        elif kind in _EXIT:
            self._exit(node, frame)
        elif kind in _NEXT:
            readers = [*(op.outputs[0]._consumers or ()), *(op._control_outputs or ())]
            if frame is self.root or any(r.type not in _MERGE or r not in self.position for r in readers):
                raise Unstructured(f"{op.name}: a NextIteration that ends no iteration of a loop")
        elif kind == "_Retval" and frame is not self.root:
            raise Unstructured(f"{op.name}: a result out of the middle of a loop")
        elif kind == "LoopCond":
            if frame is self.root or frame.loop_cond is not None or guard:
                raise Unstructured(f"{op.name}: a loop needs one LoopCond that is always alive")
            frame.loop_cond = node
            self.alias[op.outputs[0]] = op.inputs[0]
        elif kind in _SWITCH:
            pred = self._pred(op.inputs[1])
            self.switch_of.setdefault(pred, node)
            if node.refs:
                self.order[op] = {_Item(Call(node), frame, guard, deps, position)}
            else:
                self.alias[op.outputs[0]] = self.alias[op.outputs[1]] = op.inputs[0]
            self.guards[op.outputs[0]] = self._join(guard, ((pred, False),))
            self.guards[op.outputs[1]] = self._join(guard, ((pred, True),))
        else:
            if kind in PASSES_ON and not node.refs and _is_plain_identity(node):
                self.alias[op.outputs[0]] = op.inputs[0]
            elif kind in ("NoOp", "ControlTrigger"):
                if kind == "NoOp" and len(deps) > _MAX_DIRECT:
                    self.order[op] = {_Item(None, frame, guard, deps, position)}
            elif kind not in _CONSTANTS:
                if kind in _BY_ITERATION and frame is not self.root:
                    raise Unstructured(f"{op.name}: {kind} inside of a loop")
                self.order[op] = {_Item(Call(node), frame, guard, deps, position)}
            if guard:
                for tensor in op.outputs:
                    self.guards[tensor] = guard

    def _merge(self, node: Any, frame: _Frame, deps: set[_Item], position: int) -> None:
        op: Operation = node.op
        nexts = [t for t in op.inputs if t.op.type in _NEXT]
        if nexts:
            first = op.inputs[0]
            if (
                len(op.inputs) != 2
                or op.inputs[1] is not nexts[0]
                or first.op.type not in _ENTER
                or op.control_inputs
                or any((i, is_read) != (0, True) for i, is_read, _ in node.refs)  # a variable's value to start with: its Enter reads it
            ):
                raise Unstructured(f"{op.name}: not the Merge of a loop variable")
            if first.op not in self.position or nexts[0].op not in self.position:
                raise Unstructured(f"{op.name}: part of a loop")
            frame.carried.append((node, first, nexts[0].op))
            self.order[op] = set()
            return
        if len(op.inputs) != 2 or any(t.op not in self.position for t in op.inputs):
            raise Unstructured(f"{op.name}: a Merge of {len(op.inputs)} values")
        sides = [self.guards.get(t, ()) for t in op.inputs]
        only = [[d for d in sides[0] if d not in sides[1]], [d for d in sides[1] if d not in sides[0]]]
        if [len(o) for o in only] != [1, 1] or only[0][0][0] is not only[1][0][0]:
            raise Unstructured(f"{op.name}: its inputs are not the two sides of one Switch")
        common = tuple(d for d in sides[0] if d in sides[1])
        made = set()
        for i, tensor in enumerate(op.inputs):
            made.add(_Item(Assign(node, i), frame, sides[i], self.order[tensor.op] | self._control_order(op), position))
        self.order[op] = made
        self.op_guard[op] = common
        if common:
            for tensor in op.outputs:
                self.guards[tensor] = common

    def _control_order(self, op: Operation) -> set[_Item]:
        result: set[_Item] = set()
        for source in op.control_inputs:
            result |= self.order.get(source, set())
        return result

    def _enter(self, node: Any, frame: _Frame, guard: Guard, deps: set[_Item], position: int) -> None:
        op: Operation = node.op
        key = (op.attrs["frame_name"].decode(), frame)
        child = self.frames.get(key)
        if child is None:
            child = self.frames[key] = _Frame(key[0], frame)
            child.loop = _Item(child, frame, (), set(), position)
        assert child.loop is not None
        if node.refs:
            call = _Item(Call(node), frame, guard, deps, position)
            child.loop.deps.add(call)
        else:
            self.alias[op.outputs[0]] = op.inputs[0]
            child.loop.deps |= deps
        if op.attrs["is_constant"]:
            child.constant_guards.append(guard)
        elif child.guard is None:
            child.guard = child.loop.guard = guard
        elif child.guard != guard:
            raise Unstructured(f"{op.name}: the loop's variables are not alive together")
        if not op.attrs["is_constant"]:
            readers = [*(op.outputs[0]._consumers or ()), *(op._control_outputs or ())]
            if any(r.type not in _MERGE or r not in self.position for r in readers):
                raise Unstructured(f"{op.name}: an Enter that lives for one iteration only")
        self.out_frame[op] = child
        self.op_guard[op] = ()
        self.order[op] = set()

    def _exit(self, node: Any, frame: _Frame) -> None:
        op: Operation = node.op
        source = op.inputs[0]
        while source.op.type in PASSES_ON and source in self.alias:  # gradients that wait for each other
            source = source.op.inputs[0]
        if (
            frame.parent is None or frame.loop_cond is None or op.control_inputs or node.refs or source.op.type not in _SWITCH
            or source.value_index != 0 or self.guards.get(op.inputs[0]) != ((frame.loop_cond.op.outputs[0], False),)
        ):  # fmt: skip
            raise Unstructured(f"{op.name}: not the Exit of a loop variable")
        assert frame.loop is not None
        frame.exits.append(op)
        self.alias[op.outputs[0]] = op.inputs[0]
        self.out_frame[op] = frame.parent
        guard = frame.guard or ()
        self.op_guard[op] = guard
        if guard:
            self.guards[op.outputs[0]] = guard
        self.order[op] = {frame.loop}

    # -- guards ---------------------------------------------------------------------------------------------------------

    def _pred(self, tensor: Tensor) -> Tensor:
        while tensor.op.type == "Identity" and tensor.op in self.position and not self.by_op[tensor.op].refs:
            tensor = tensor.op.inputs[0]
        return tensor

    def _join(self, a: Guard, b: Guard) -> Guard:
        if not b or a == b:
            return a
        if not a:
            return b
        union = set(a) | set(b)
        if len({pred for pred, _ in union}) != len(union):
            raise Unstructured("a node that needs both sides of a Switch")
        return tuple(sorted(union, key=lambda d: (self.position.get(d[0].op, -1), d[0].value_index)))

    def _same(self, frame: _Frame | None, other: _Frame, op: Operation) -> _Frame:
        if frame is not None and frame is not other:
            raise Unstructured(f"{op.name}: inputs from different frames")
        return other

    # -- loops and blocks -----------------------------------------------------------------------------------------------

    def _check(self, frame: _Frame) -> None:
        assert frame.loop is not None
        if frame.loop_cond is None or frame.guard is None:
            raise Unstructured(f"{frame.name}: a frame without LoopCond or variables")
        if any(not set(g) <= set(frame.guard) for g in frame.constant_guards):
            raise Unstructured(f"{frame.name}: an invariant of the loop may be dead")
        again = (frame.loop_cond.op.outputs[0], True)
        carried = []
        for merge, first, next_op in frame.carried:
            if self.op_guard.get(next_op) != (again,) or self.out_frame.get(next_op) is not frame:
                raise Unstructured(f"{next_op.name}: not the next value of a loop variable")
            carried.append((merge, first, next_op.inputs[0]))
        cond, body = [], []
        for item in _sorted(frame.items):
            if again in item.guard:
                item.guard = tuple(d for d in item.guard if d != again)
                body.append(item)
            elif any(pred is again[0] for pred, _ in item.guard):
                raise Unstructured(f"{frame.name}: something runs only after the last round")
            else:
                cond.append(item)
        seen = set(cond)
        if any(dep not in seen and dep.frame is frame for item in cond for dep in item.deps):
            raise Unstructured(f"{frame.name}: its condition waits for its body")
        frame.loop.position = self.position[frame.loop_cond.op]
        frame.loop.statement = Loop(
            frame.name,
            carried,
            self._block(cond, ()),
            frame.loop_cond.op.inputs[0],
            frame.loop_cond,
            self._block(body, ()),
        )

    def _block(self, items: list[_Item], prefix: Guard) -> list:
        """Statements for `items`, all of whose guards contain `prefix`."""
        block: list = []
        depth = len(prefix)
        while items:
            first = items[0]
            if len(first.guard) == depth:
                # A straight run: the usual case, without a second look at the rest.
                n = 0
                while n < len(items) and len(items[n].guard) == depth:
                    if items[n].statement is not None:
                        block.append(items[n].statement)
                    n += 1
                items = items[n:]
                continue
            pred = first.guard[depth][0]
            batch: list[_Item] = []
            rest: list[_Item] = []
            blocked: set[_Item] = set()
            for item in items:
                if len(item.guard) > depth and item.guard[depth][0] is pred and not (item.deps & blocked):
                    batch.append(item)
                else:
                    rest.append(item)
                    blocked.add(item)
            joined = _joinable(batch, rest, lambda item: len(item.guard) > depth and item.guard[depth][0] is pred)
            if joined:
                # Another branch on this predicate waits only for what may as well come before this one.
                late = {item for item in joined if len(item.guard) > depth and item.guard[depth][0] is pred}
                block += self._block([item for item in rest if item in joined and item not in late], prefix)
                batch += [item for item in rest if item in late]
                rest = [item for item in rest if item not in joined]
            sides = []
            for side in (True, False):
                chosen = [item for item in batch if item.guard[depth][1] is side]
                sides.append(self._block(chosen, (*prefix, (pred, side))))
            if sides[0] or sides[1]:
                block.append(Branch(pred, self.switch_of[pred], *sides))
            items = rest
        return block


def _joinable(batch: list[_Item], rest: list[_Item], belongs: Callable[[_Item], bool]) -> set[_Item]:
    """Items of `rest` that belong to the batch and wait for nothing that waits for the batch, and what they wait for."""
    if not any(belongs(item) for item in rest):
        return set()
    mine, later = set(batch), set(rest)
    waits: dict[_Item, bool] = {}  # whether an item has to come after the batch; `rest` is in an order in which dependencies come first
    needs: dict[_Item, set[_Item]] = {}
    joined: set[_Item] = set()
    for item in rest:
        own = belongs(item)
        deps = item.deps & later
        waits[item] = any(waits.get(dep, True) for dep in deps) or (not own and not mine.isdisjoint(item.deps))
        if waits[item]:
            continue
        needs[item] = {item}.union(*(needs[dep] for dep in deps))
        if own:
            joined |= needs[item]
            mine.add(item)
    return joined


def _sorted(items: list[_Item]) -> list[_Item]:
    """Items so that what they need comes first, otherwise in the graph's order. Items of other frames do not count."""
    known = set(items)
    waiting = dict.fromkeys(items, 0)
    readers: dict[_Item, list[_Item]] = {}
    in_order = True
    for item in items:
        for dep in item.deps:
            if dep in known:
                waiting[item] += 1
                readers.setdefault(dep, []).append(item)
                in_order = in_order and dep.position < item.position
    if in_order:
        return sorted(items, key=lambda item: item.position)
    heap = [(item.position, i, item) for i, item in enumerate(items) if not waiting[item]]
    heapq.heapify(heap)
    result = []
    count = len(items)
    while heap:
        item = heapq.heappop(heap)[2]
        result.append(item)
        for reader in readers.get(item, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                count += 1
                heapq.heappush(heap, (reader.position, count, reader))
    if len(result) != len(items):
        raise Unstructured("a loop that waits for its own result")
    return result


def _is_plain_identity(node: Any) -> bool:
    probe = object()
    try:
        return not node.needs_ctx and node.plain and node.fn(probe) is probe
    except Exception:
        return False
