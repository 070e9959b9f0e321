"""Partitions of one step as one function: where all of them are on CPUs of this process, nothing has to cross.

The devices share one memory and one thread drives them, and values never change once they are made. So if no kernel of the step waits for anything but
a Send of the same step, the partitions are put together again: a Recv is a name for the value that its Send was given, the control loops by which
devices agree on iterations run empty and fall away, and the whole becomes generated code (`compiled`), with structure for loops and branches that span
devices. Every node keeps the kernel that its own device bound, sees its own device's resources, and is told by its own name and device when it fails.

A Send of a reference variable reads it, there and then: such a pair stays, as a node that does just that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock import errors
from penstock.engines.python.codegen import generate
from penstock.engines.python.structure import Unstructured
from penstock.graph.ir import Operation, Tensor
from penstock.graph.opdef import OPS
from penstock.graph.rewrite import Copier
from penstock.runtime.devices import Device
from penstock.runtime.executor.chooser import Chooser
from penstock.runtime.executor.compiled import CompiledProgram, Compiler, prepare
from penstock.runtime.executor.plan import ASYNC, ENTER, NodePlan, topological_order
from penstock.runtime.kernels import bind_node, read_ref, ref_inputs

if TYPE_CHECKING:
    from penstock.runtime.executor.shell import Executor
    from penstock.runtime.executor.step import Step

_KEY = ("tensor_name", "send_device", "recv_device", "send_device_incarnation")


class JoinedNode(NodePlan):
    """A node of a joined step. `told` is the node as its partition has it, `device` where it runs, `context` how generated code calls
    that device's context."""

    __slots__ = ("context", "device", "told")


class JoinedStep:
    """The executors of one signature, for `run_step`: has what it asks of an Executor that it can run as one program."""

    __slots__ = ("_chooser", "_count", "_last", "compiler", "device")

    straight = None
    _offloads = False

    def __init__(self, executors: Sequence[Executor]) -> None:
        # Plans, not executors: the first executor holds this, and a circle would keep constants alive until somebody looks for it.
        self._count, self._last = len(executors), executors[-1].plan
        self.device = executors[0].device
        self._chooser = Chooser() if any(executor.plan.wide for executor in executors) else None
        self.compiler = _JoinedCompiler(executors) if can_join(executors) else None

    def is_of(self, executors: Sequence[Executor]) -> bool:
        return self._count == len(executors) and self._last is executors[-1].plan


def together(executors: Sequence[Executor]) -> Executor | JoinedStep:
    """What runs these partitions, the executors of one signature, as one program, if anything can."""
    first = executors[0]
    if len(executors) == 1:
        return first
    joined = first.joined
    if joined is None or not joined.is_of(executors):
        joined = first.joined = JoinedStep(executors)
    return joined


def run_whole(whole: Executor | JoinedStep, step: Step, device: Device) -> bool:
    """Runs a step as one program; False if there is none for it."""
    straight = whole.straight
    compiler = whole.compiler if step.collector is None else None
    program = (compiler.program or compiler.tick()) if compiler is not None else None
    if program is not None:
        program.run(step, device)
    elif straight is None:
        return False
    elif step.collector is None:
        straight.run(step, device)
    else:
        straight.run_traced(step, device, step.collector)
    return True


def can_join(executors: Sequence[Executor]) -> bool:
    """Whether nothing in these partitions waits, but for each other."""
    for executor in executors:
        if executor.device.type != "CPU" or executor._offloads:
            return False
        for node in executor.plan.nodes:
            if node.op.type == "_Recv":
                if node.op.attrs["client_terminated"]:
                    return False
            elif node.kind == ASYNC or node.may_die or (node.transfer and (node.op.type != "_Send" or node.op.attrs["client_terminated"])):
                return False
    return True


class _JoinedCompiler(Compiler):
    """Compiles partitions together. They are joined when they are warm, not before."""

    __slots__ = ("_parts",)

    def __init__(self, executors: Sequence[Executor]) -> None:
        nodes = [node for executor in executors for node in executor.plan.nodes]
        has_loops = any(node.kind == ENTER for node in nodes)
        super().__init__(nodes, max(executor.plan.n_args for executor in executors), has_loops, None, executors[0].xla)
        self._parts = parts_of(executors)

    def _written(self, offload: Any) -> CompiledProgram:
        nodes = join(self._parts)
        prepare(nodes)
        try:
            code = generate(nodes, "step", read_ref, offload=offload)
        except RecursionError:
            raise Unstructured("control flow is nested too deeply") from None
        return CompiledProgram(code, self._n_args, [part.device for part in self._parts], nodes)


class Part(NamedTuple):
    """A partition: its device and its nodes."""

    device: Device
    nodes: list[NodePlan]


def parts_of(executors: Sequence[Executor]) -> list[Part]:
    return [Part(executor.device, executor.plan.nodes) for executor in executors if executor.plan.nodes]


def join(parts: Sequence[Part]) -> list[JoinedNode]:
    """The nodes of all partitions without transfers, in an order in which they can run. Raises Unstructured."""
    return _Joiner(parts).run()


class _Joiner:
    """State
    copier      builds the joined graph; `copier.tensors` leads from a partition's tensors to it
    sends       what a Send and its Recv have in common -> the Send
    reads       Send of a reference variable -> the node that reads the variable in its place
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self.copier = Copier(parts[0].nodes[0].op.graph)
        self.sends: dict[tuple, Operation] = {}
        self.reads: dict[Operation, Operation] = {}
        self.joined: dict[Operation, JoinedNode] = {}

    def run(self) -> list[JoinedNode]:
        rows = [(_age(node.op), i, node.order, node) for i, part in enumerate(self.parts) for node in part.nodes]
        rows.sort(key=lambda row: row[:3])  # as the user wrote them
        recvs: list[Operation] = []
        for _, i, _, node in rows:
            op = node.op
            if op.type == "_Recv":
                self._check_recv(op)
                recvs.append(op)
            elif op.type == "_Send":
                self._send(node, i)
            else:
                self._add(self.copier.clone(op, name=self._free_name(op.name)), node, i)
        self._wire(recvs)
        try:
            order = topological_order(self.copier.graph)
        except errors.InvalidArgumentError as error:
            raise Unstructured(f"the partitions wait for each other: {error.message}") from None
        result = []
        for position, op in enumerate(order):
            joined = self.joined[op]
            joined.order = position
            result.append(joined)
        return result

    def _add(self, op: Operation, node: NodePlan, i: int) -> JoinedNode:
        joined = self.joined[op] = JoinedNode(op, 0)
        joined.kind, joined.fn, joined.needs_ctx, joined.plain, joined.refs = node.kind, node.fn, node.needs_ctx, node.plain, node.refs
        joined.told = node.op
        joined.device = self.parts[i].device.name
        joined.context = f"ctx[{i}]"
        return joined

    def _check_recv(self, op: Operation) -> None:
        if op._control_outputs:
            # Alive even if the value is dead: there is no such thing without a Recv.
            raise Unstructured(f"{op.name}: a control edge out of a Recv")
        if any(source.type != "Merge" for source in op.control_inputs):
            raise Unstructured(f"{op.name}: a Recv that waits for something else")

    def _send(self, node: NodePlan, i: int) -> None:
        op = node.op
        key = _key(op)
        if key in self.sends or op.control_inputs or op._control_outputs:
            raise Unstructured(f"{op.name}: not a plain Send")
        self.sends[key] = op
        if not ref_inputs(op):
            return
        source = op.inputs[0]
        dtype = source.dtype.base_dtype
        graph = self.copier.graph
        read = graph.add_node(OPS["Snapshot"], [], {"T": dtype}, self._free_name(op.name), [dtype], (), op.device, [source.dims])
        read.origin = op.origin
        self.reads[op] = read
        joined = self._add(read, node, i)
        joined.plain = True

    def _wire(self, recvs: list[Operation]) -> None:
        tensors = self.copier.tensors
        sent: dict[Tensor, Tensor] = {}  # what a Recv gives -> what its Send was given
        for op in recvs:
            send = self.sends.pop(_key(op), None)
            if send is None:
                raise Unstructured(f"{op.name}: a Recv without a Send")
            if send in self.reads:
                tensors[op.outputs[0]] = self.reads[send].outputs[0]
            else:
                sent[op.outputs[0]] = send.inputs[0]
        if self.sends:
            raise Unstructured("a Send without a Recv")
        for tensor, source in sent.items():
            for _ in range(len(sent)):  # a value may be passed on from device to device
                if source not in sent:
                    break
                source = sent[source]
            if source not in tensors:
                raise Unstructured(f"{tensor.op.name}: a Recv that sends to itself")
            tensors[tensor] = tensors[source]
        self.copier.wire()
        for send, read in self.reads.items():
            source = tensors[send.inputs[0]]
            read.inputs = [source]
            source._consumers = [*(source._consumers or ()), read]
            joined = self.joined[read]
            device = next(part.device for part in self.parts if part.device.name == joined.device)
            bound = bind_node(read, device, None)
            joined.fn, joined.needs_ctx, joined.plain = bound.fn, bound.needs_ctx, bound.plain

    def _free_name(self, name: str) -> str:
        """A name for a node of the joined graph. Partitions may have nodes of one name: copies of a constant, parts of transfers."""
        free, count = name, 0
        while free in self.copier.graph._nodes:
            count += 1
            free = f"{name}_{count}"
        return free


def _key(op: Operation) -> tuple:
    return tuple(op.attrs[name] for name in _KEY)


def _age(op: Operation) -> int:
    return (op.origin or op).id
