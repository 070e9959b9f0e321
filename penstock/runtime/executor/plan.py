"""The plan of one partition: everything about its graph that does not change from step to step.

State of a NodePlan
    op, name, kind          the node; `kind` (one of the constants below) says who runs it and how
    fn, needs_ctx, plain    its kernel, see graph.bind.Bound
    frame                   the FramePlan it belongs to; an Enter belongs to the frame around the loop, an Exit to the loop
    child, constant         of an Enter: the frame it leads into, and whether its value holds for every iteration
    a, b, nones             its inputs are values[a:b] of an iteration; `nones` clears them. A Merge has two slots: the
                            value that came first, and the number of the input it came by
    pi                      where its pending count stands; a Merge's count of dead inputs stands at pi + 1
    n_inputs                number of data inputs
    edges                   per output: ((destination, its pi, slot of the value), ...), without Merges
    merges                  per output: ((merge, its pi, its first slot, number of the input), ...)
    controls, control_merges    ((destination, its pi), ...) of control edges
    more                    True if there is more to activate than `edges`
    only_first              of a Merge: nobody reads the number of the input
    exits                   of a Switch: per output, the targets if they are all Exits, else None
    may_die                 single outputs may be DEAD though the node itself ran (Recv, SwitchN)
    transfer                Send and Recv run although their input is dead
    trigger                 a ControlTrigger runs alive although its inputs are dead
    refs                    see runtime.kernels.RefInputs; only for nodes that the state machine runs itself
    cost                    running average of a heavy kernel's time in ns, 0 before the first call
    order                   position in the topological order

A FramePlan is a static frame: a loop, or the graph around all loops. Its iterations share the layout of counts and values.
"""

from __future__ import annotations

import heapq
import itertools
import operator
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock import errors
from penstock.forks import renewed
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.runtime.devices import Device
from penstock.runtime.executor.compiled import LARGE, ON, Compiler, RegionKernel, has_structure, mode
from penstock.runtime.executor.straight import StraightProgram, straight_program
from penstock.runtime.kernels import RefInputs, bind_node, carries_ref, ref_inputs
from penstock.runtime.resources import OpSegment
from penstock.shapes import num_elements

PLAIN = 0  # synchronous, no context, one plain output that is never dead
SWITCH, MERGE, ENTER, EXIT, NEXT, NOOP = 1, 2, 3, 4, 5, 6  # run by the state machine itself
SYNC = 7  # synchronous, anything else
HEAVY = 8  # synchronous and expensive: may run on the pool
ASYNC = 9

_FLOW_KINDS = {
    "Switch": SWITCH, "RefSwitch": SWITCH, "Merge": MERGE, "RefMerge": MERGE, "Enter": ENTER, "RefEnter": ENTER, "Exit": EXIT,
    "RefExit": EXIT, "NextIteration": NEXT, "RefNextIteration": NEXT, "NoOp": NOOP, "ControlTrigger": NOOP,
}  # fmt: skip
_STRAIGHT_KINDS = frozenset({PLAIN, SYNC, HEAVY, NOOP})
_ARGS = ("_Arg", "_DeviceArg")
_TRANSFER = frozenset({"_Send", "_Recv", "_HostSend", "_HostRecv"})
_MAY_DIE = frozenset({"_Recv", "_HostRecv", "_SwitchN"})


class Traits(NamedTuple):
    """What pipeline.regions has to know of a partition's nodes; see its class of that name."""

    simple: Callable[[Operation], bool]
    carries_ref: Callable[[Tensor], bool]
    steady: Callable[[Operation], bool]
    structured: Callable[[list[Operation]], bool]


Regions = Callable[[Graph, Any], "Graph | None"]
"""pipeline.regions.group: (graph, traits) -> the graph with regions."""


class FramePlan:
    """A static frame. `pending` is the template of counts, `n_values` the number of input slots, `n_enters` how many Enters
    lead into it."""

    __slots__ = ("n_enters", "n_values", "name", "parallel_iterations", "parent", "pending")

    def __init__(self, name: str, parent: FramePlan | None) -> None:
        self.name = name
        self.parent = parent
        self.parallel_iterations = 1
        self.n_enters = 0
        self.n_values = 0
        self.pending: list[int] = []


class NodePlan:
    """See the module's docstring."""

    __slots__ = (
        "a", "b", "child", "constant", "control_merges", "controls", "cost", "edges", "edges0", "exits", "fn", "frame", "kind",
        "may_die", "merges", "more", "n_inputs", "name", "needs_ctx", "nones", "only_first", "op", "order", "pi", "plain", "refs",
        "transfer", "trigger",
    )  # fmt: skip

    def __init__(self, op: Operation, order: int) -> None:
        self.op = op
        self.name = op.name
        self.order = order
        self.n_inputs = len(op.inputs)
        self.child: FramePlan | None = None
        self.constant = False
        self.fn: Callable[..., Any] = _no_kernel
        self.needs_ctx = False
        self.plain = op.op_def.plain_output
        self.may_die = op.type in _MAY_DIE
        self.transfer = op.type in _TRANSFER
        self.trigger = op.type == "ControlTrigger"
        self.refs: RefInputs = ()
        self.cost = 0.0
        self.kind = _FLOW_KINDS.get(op.type, SYNC)
        self.frame: FramePlan
        self.a = self.b = self.pi = 0
        self.nones: tuple[None, ...] = ()
        self.edges: tuple = ()
        self.merges: tuple = ()
        self.controls: tuple = ()
        self.control_merges: tuple = ()
        self.edges0: tuple = ()
        self.exits: tuple = (None, None)
        self.only_first = False
        self.more = False

    def __repr__(self) -> str:
        return f"<NodePlan {self.name}>"


def _no_kernel(*args: Any) -> Any:
    raise AssertionError("the state machine runs this node")


class ExecutorPlan:
    """The plan of one partition graph on one device: a straight program if it can be one, a compiler if all nodes are
    synchronous, and what the state machine needs, which is laid out when it is first needed (`connect`)."""

    __slots__ = ("_connected", "_lock", "compiler", "n_args", "n_retvals", "nodes", "root", "roots", "straight", "wide")

    def __init__(self, graph: Graph, device: Device, segment: OpSegment | None, xla: str | None = None) -> None:
        ops = topological_order(graph)
        self.nodes = [NodePlan(op, i) for i, op in enumerate(ops)]
        is_straight = is_synchronous = True
        for node in self.nodes:
            _bind(node, device, segment, xla)
            if node.kind not in _STRAIGHT_KINDS or node.may_die:
                is_straight = False
                is_synchronous = is_synchronous and node.kind != ASYNC and not node.may_die and not node.transfer
        self.n_args = 1 + max((op.attrs["index"] for op in ops if op.type in ("_Arg", "_DeviceArg")), default=-1)
        self.n_retvals = 1 + max(
            (op.attrs["index"] for op in ops if op.type in ("_Retval", "_DeviceRetval")), default=-1
        )
        self.root = FramePlan("", None)
        self.roots: list[NodePlan] = []
        self._connected = False
        self._lock = renewed(threading.Lock())
        self.straight: StraightProgram | None = straight_program(self.nodes, self.n_args, mode() == ON) if is_straight else None
        self.wide = is_straight and _is_wide(self.nodes)
        has_loops = not is_straight and any(node.kind == ENTER for node in self.nodes)
        self.compiler = Compiler(self.nodes, self.n_args, has_loops, device.kind.offload(device), xla) if is_synchronous else None
        if not is_straight:
            self.connect()

    def with_regions(self, regions: Regions, device: Device, segment: OpSegment | None, xla: str | None = None) -> ExecutorPlan | None:
        """The plan of the same partition with its simple nodes grouped by `regions`; None if that gains nothing."""
        simple = {node.op for node in self.nodes if node.kind in (PLAIN, SYNC, HEAVY) and not node.transfer and not node.may_die}
        if len(simple) < 2:
            return None
        by_op = {node.op: node for node in self.nodes}

        def steady(op: Operation) -> bool:
            node = by_op[op]
            return node.kind == ASYNC and (not node.may_die or op.attrs.get("_never_dead", False))

        def structured(ops: list[Operation]) -> bool:
            return has_structure([by_op[op] for op in ops])

        graph = regions(self.nodes[0].op.graph, Traits(simple.__contains__, carries_ref, steady, structured))
        return None if graph is None else ExecutorPlan(graph, device, segment, xla)

    def connect(self) -> None:
        """Lays out frames, slots and edges."""
        if self._connected:
            return
        with self._lock:
            if self._connected:
                return
            by_op = {node.op: node for node in self.nodes}
            _assign_frames(self.nodes, by_op, self.root)
            for node in self.nodes:
                _lay_out(node)
            _connect(self.nodes)
            self.roots = [node for node in self.nodes if node.frame is self.root and not self.root.pending[node.pi]]
            self._connected = True


# ---------------------------------------------------------------------------------------------------------------------
# Order


def topological_order(graph: Graph) -> list[Operation]:
    """All nodes, producers first, otherwise in the order of their creation: the order in which the user wrote them. The back
    edges of loops (out of a NextIteration) do not count; any other cycle is an InvalidArgumentError."""
    ops = sorted(graph, key=operator.attrgetter("id"))
    usual = _around_arguments(ops)
    if usual is not None:
        return usual
    position = {op: i for i, op in enumerate(ops)}
    waiting = [0] * len(ops)
    targets: list[list[int]] = [[] for _ in ops]
    for i, op in enumerate(ops):
        for source in _sources(op):
            if not _is_next(source):
                waiting[i] += 1
                targets[position[source]].append(i)
    heap = [i for i, count in enumerate(waiting) if not count]
    order: list[Operation] = []
    while heap:
        i = heapq.heappop(heap)
        order.append(ops[i])
        for j in targets[i]:
            waiting[j] -= 1
            if not waiting[j]:
                heapq.heappush(heap, j)
    if len(order) < len(ops):
        stuck = [op.name for i, op in enumerate(ops) if waiting[i]]
        raise errors.InvalidArgumentError(
            f"Graph is invalid, contains a cycle with {len(stuck)} nodes, including: {', '.join(stuck[:8])}"
        )
    return order


def _around_arguments(ops: list[Operation]) -> list[Operation] | None:
    """The order for a graph that is sorted but for its arguments, which stand behind their readers, in a row; None for any other.

    What needs no argument comes first, then each argument with what needs none behind it, then what stands behind them all.
    """
    first = next((i for i, op in enumerate(ops) if op.type in _ARGS), len(ops))
    last = next((i for i in range(first, len(ops)) if ops[i].type not in _ARGS), len(ops))
    parts: list[list[Operation]] = [[], *([op] for op in ops[first:last])]
    part_of = {op: i for i, op in enumerate(ops[first:last], 1)}
    for i, op in enumerate(ops):
        part = 0
        for tensor in op.inputs:
            found = part_of.get(tensor.op)
            if found is None:
                if not _is_next(tensor.op):
                    return None
            elif found > part:
                part = found
        for source in op.control_inputs:
            found = part_of.get(source)
            if found is None:
                if not _is_next(source):
                    return None
            elif found > part:
                part = found
        if i < first:
            part_of[op] = part
            parts[part].append(op)
        elif i >= last:
            part_of[op] = len(parts) - 1
    return [*itertools.chain.from_iterable(parts), *ops[last:]]


def _is_next(op: Operation) -> bool:
    return op.type in ("NextIteration", "RefNextIteration")


def _sources(op: Operation) -> list[Operation]:
    return [t.op for t in op.inputs] + op.control_inputs


# ---------------------------------------------------------------------------------------------------------------------
# Frames


def _assign_frames(nodes: list[NodePlan], by_op: dict[Operation, NodePlan], root: FramePlan) -> None:
    frames: dict[str, FramePlan] = {}
    out_frame: dict[Operation, FramePlan] = {}
    for node in nodes:
        op = node.op
        frame = None
        first: Operation | None = None
        for source in _sources(op):
            if _is_next(source):
                continue  # its frame is the Merge's own; checked below
            found = out_frame[source]
            if frame is None:
                frame, first = found, source
            elif frame is not found:
                raise errors.InvalidArgumentError(
                    f"The node '{op.name}' has inputs from different frames. The input '{first.name}' is in frame "  # type: ignore[union-attr]
                    f"'{frame.name}'. The input '{source.name}' is in frame '{found.name}'."
                )
        node.frame = frame = frame if frame is not None else root
        if node.kind == ENTER:
            name = op.attrs["frame_name"].decode()
            child = frames.get(name)
            if child is None:
                child = frames[name] = FramePlan(name, frame)
                child.parallel_iterations = max(1, op.attrs["parallel_iterations"])
            elif child.parent is not frame:
                raise errors.InvalidArgumentError(
                    f"The node '{op.name}' enters frame '{name}' from frame '{frame.name}', but other nodes enter it from frame "
                    f"'{child.parent.name}'."  # type: ignore[union-attr]
                )
            child.n_enters += 1
            node.child = child
            node.constant = op.attrs["is_constant"]
            out_frame[op] = child
        elif node.kind == EXIT:
            if frame.parent is None:
                raise errors.InvalidArgumentError(f"The node '{op.name}' leaves a frame, but is in none.")
            out_frame[op] = frame.parent
        else:
            out_frame[op] = frame
    for node in nodes:
        for source in _sources(node.op):
            if _is_next(source) and by_op[source].frame is not node.frame:
                raise errors.InvalidArgumentError(
                    f"The node '{node.name}' has inputs from different frames. The input '{source.name}' is in frame "
                    f"'{by_op[source].frame.name}', the node itself in frame '{node.frame.name}'."
                )


# ---------------------------------------------------------------------------------------------------------------------
# Kernels, slots and edges


def _bind(node: NodePlan, device: Device, segment: OpSegment | None, xla: str | None) -> None:
    op = node.op
    if node.kind != SYNC:
        node.refs = ref_inputs(op)
        return
    if op.type == "_Region":
        inner = [NodePlan(part, i) for i, part in enumerate(op.attrs["body"].ops)]
        for part in inner:
            _bind(part, device, segment, xla)
        node.fn, node.needs_ctx, node.plain = RegionKernel(inner, op.attrs["body"], device.kind.offload(device), xla), True, False
        return
    bound = bind_node(op, device, segment)
    node.fn, node.needs_ctx, node.plain = bound.fn, bound.needs_ctx, bound.plain
    if bound.is_async:
        node.kind = ASYNC
    elif op.op_def.expensive:
        node.kind = HEAVY
    elif bound.plain and not bound.needs_ctx and not node.may_die:
        node.kind = PLAIN


def _lay_out(node: NodePlan) -> None:
    """Gives the node its slots in its frame."""
    frame = node.frame
    is_merge = node.kind == MERGE
    size = 2 if is_merge else node.n_inputs
    node.a = frame.n_values
    node.b = frame.n_values = node.a + size
    node.nones = (None,) * size
    node.pi = len(frame.pending)
    n_control = len(node.op.control_inputs)
    if is_merge:
        # The lowest bit stands until a live input has come; control inputs count by twos above it.
        frame.pending += [1 + 2 * n_control, 0]
    else:
        frame.pending.append(node.n_inputs + n_control)


def _connect(nodes: list[NodePlan]) -> None:
    edges: dict[Operation, list[list]] = {node.op: [[] for _ in node.op.outputs] for node in nodes}
    merges: dict[Operation, list[list]] = {node.op: [[] for _ in node.op.outputs] for node in nodes}
    controls: dict[Operation, list] = {node.op: [] for node in nodes}
    for node in nodes:
        is_merge = node.kind == MERGE
        for j, tensor in enumerate(node.op.inputs):
            if is_merge:
                merges[tensor.op][tensor.value_index].append((node, node.pi, node.a, j))
            else:
                edges[tensor.op][tensor.value_index].append((node, node.pi, node.a + j))
        for source in node.op.control_inputs:
            controls[source].append((node, node.pi))
    for node in nodes:
        op = node.op
        node.edges = tuple(tuple(rows) for rows in edges[op])
        node.merges = tuple(tuple(rows) for rows in merges[op]) if any(merges[op]) else ()
        node.controls = tuple(row for row in controls[op] if row[0].kind != MERGE)
        node.control_merges = tuple(row for row in controls[op] if row[0].kind == MERGE)
        node.edges0 = node.edges[0] if node.edges else ()
        node.only_first = node.kind == MERGE and not node.edges[1] and not (node.merges and node.merges[1])
        if node.kind == SWITCH and not node.merges:
            node.exits = tuple(_exits(rows) for rows in node.edges)
        node.more = bool(node.merges or node.controls or node.control_merges)


def _exits(edges: tuple) -> tuple[NodePlan, ...] | None:
    """The targets, if all are Exits that have only this input: when dead, they are just remembered."""
    targets = tuple(target for target, _, _ in edges)
    return targets if all(t.kind == EXIT and not t.op.control_inputs for t in targets) else None


def _takes_all_cores(node: NodePlan) -> bool:
    """An engine's kernel on large arrays computes on all cores: such kernels take turns, and a second one would only hold memory."""
    if getattr(node.fn, "engine", None) is None:
        return False
    return any((num_elements(t.dims) or 0) >= LARGE for t in (*node.op.inputs, *node.op.outputs))


def _is_wide(nodes: list[NodePlan]) -> bool:
    """True if two expensive kernels could run at the same time and win by that: the longest chain does not hold all of them."""
    expensive = {node.op for node in nodes if node.kind == HEAVY and not _takes_all_cores(node)}
    if len(expensive) < 2:
        return False
    depth: dict[Operation, int] = {}
    total = 0
    for node in nodes:
        heavy = node.op in expensive
        total += heavy
        depth[node.op] = heavy + max((depth[source] for source in _sources(node.op)), default=0)
    return total > max(depth.values(), default=0)
