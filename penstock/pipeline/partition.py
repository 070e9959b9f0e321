"""Partition: one graph per device, joined by Send and Recv.

    graph with devices -> {device: graph}

An edge between devices becomes a `_Send` on one side and a `_Recv` on the other, which meet at the rendezvous under one key; a value
needed twice on a device crosses once, and a small constant does not cross at all: it gets a copy. A control edge sends an empty tensor. Where a loop spans devices, every device that receives
something inside of the loop gets a control loop of its own, driven by the loop's condition, so that its Recv nodes run once per
iteration:

    Enter(false) -> Merge -> Switch(., LoopCond) -> NextIteration -> back to Merge;   Merge -^-> every Recv of that frame
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes, errors
from penstock.dtypes import DType
from penstock.formats.attr_value import TensorAttr
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.rewrite import Copier, add_controls, copy, new_node
from penstock.pipeline.frames import ENTER, Frame, Frames, has_loops

_SMALL_CONSTANT = 1024  # bytes
_MAY_BE_DEAD = frozenset(("Switch", "RefSwitch", "_SwitchN", "_Recv", "_HostRecv"))


def partition(graph: Graph, incarnations: dict[str, int], compress: bool = False) -> dict[str, Graph]:
    """Splits `graph` by device. `compress` sends float32 values as bfloat16 (graph_options.enable_bfloat16_sendrecv)."""
    devices = list(dict.fromkeys(op.device for op in graph))
    if len(devices) <= 1:
        return dict.fromkeys(devices, graph)
    return _Partitioner(graph, devices, incarnations, compress).run()


class _Partitioner:
    """State
    parts       device -> Copier that builds its partition
    recvs       (source tensor or op, device) -> the Recv's output there
    frames      frames of the graph, or None if it has no loops
    """

    def __init__(self, graph: Graph, devices: list[str], incarnations: dict[str, int], compress: bool) -> None:
        self.devices = devices
        self.incarnations = incarnations
        self.compress = compress
        self.frames: Frames | None = None
        self.merges: dict[tuple[Frame, str], Operation] = {}  # Merge nodes of control loops, in `self.graph`
        if has_loops(graph):
            graph, self.frames = self._with_control_loops(graph)
        self.graph = graph
        self.may_die = _may_die(graph)
        self.parts = {device: Copier(graph) for device in devices}
        self.recvs: dict[tuple[Any, str], Tensor] = {}
        self.count = 0

    def run(self) -> dict[str, Graph]:
        home: dict[Operation, Copier] = {}
        for op in self.graph:
            part = self.parts[op.device]
            part.clone(op)
            home[op] = part
        for op in self.graph:
            part = home[op]
            clone = part.ops[op]
            inputs = []
            for tensor in op.inputs:
                inputs.append(part.tensors[tensor] if tensor.op.device == op.device else self._crossing(tensor, op.device))
            clone.inputs = inputs
            for tensor in inputs:
                if tensor._consumers is None:
                    tensor._consumers = []
                tensor._consumers.append(clone)
            add_controls(clone, [part.ops[c] for c in op.control_inputs if c.device == op.device])
            for control in op.control_inputs:
                if control.device != op.device:
                    add_controls(clone, [self._control_crossing(control, op.device).op])
        return {device: part.graph for device, part in self.parts.items()}

    # -- crossings --------------------------------------------------------------------------------------------------------

    def _crossing(self, tensor: Tensor, device: str) -> Tensor:
        """`tensor` as it arrives on `device`."""
        found = self.recvs.get((tensor, device))
        if found is None and _is_small_constant(tensor.op):
            op = tensor.op
            copied = new_node(self.parts[device].graph, "Const", f"{op.name}/_copy", [], op.attrs, [tensor.dtype], [tensor.dims], device, origin=op)
            found = self.recvs[tensor, device] = copied.outputs[0]
        if found is None:
            source = self.parts[tensor.op.device].tensors[tensor]
            found = self.recvs[tensor, device] = self._transfer(source, tensor.op, device, f"{tensor.op.name}_{tensor.value_index}" if tensor.value_index else tensor.op.name)
        return found

    def _control_crossing(self, op: Operation, device: str) -> Tensor:
        """Something on `device` that happens after `op`."""
        found = self.recvs.get((op, device))
        if found is None:
            part = self.parts[op.device]
            empty = np.zeros((0,), np.float32)
            dummy = new_node(
                part.graph, "Const", f"{op.name}/_ctl_send", [], {"value": TensorAttr(dtypes.float32, empty), "dtype": dtypes.float32},
                [dtypes.float32], [(0,)], op.device, [part.ops[op]], origin=op,
            )  # fmt: skip
            arrived = self._transfer(dummy.outputs[0], op, device, f"{op.name}_ctl")
            # A Recv's own control edges are alive whatever came; behind an Identity they are dead when `op` was.
            joined = new_node(self.parts[device].graph, "Identity", f"{op.name}/_ctl", [arrived], {"T": dtypes.float32}, [dtypes.float32], [(0,)], device, origin=op)
            found = self.recvs[op, device] = joined.outputs[0]
        return found

    def _transfer(self, source: Tensor, producer: Operation, device: str, label: str) -> Tensor:
        src_device = producer.device
        dtype: DType = source.dtype.base_dtype
        narrow = self.compress and dtype is dtypes.float32 and source.dims != (0,)
        sender = self.parts[src_device].graph
        receiver = self.parts[device].graph
        wire = dtypes.bfloat16 if narrow else dtype
        if narrow:
            cast = new_node(sender, "Cast", f"{producer.name}/_narrow", [source], {"SrcT": dtype, "DstT": wire, "Truncate": True}, [wire], [source.dims], src_device, origin=producer)
            source = cast.outputs[0]
        self.count += 1
        attrs = transfer_attrs(f"edge_{self.count}_{label}", src_device, device, self.incarnations)
        new_node(sender, "_Send", f"{producer.name}/_send", [source], {"T": wire, **attrs}, [], [], src_device, origin=producer)
        attrs = {"tensor_type": wire, **attrs}
        if producer not in self.may_die:
            attrs["_never_dead"] = True
        recv = new_node(receiver, "_Recv", f"{producer.name}/_recv", [], attrs, [wire], [source.dims], device, origin=producer)
        recv.outputs[0].handle_data = source.handle_data
        if self.frames is not None:
            frame = self.frames.after(producer)
            if frame is not None:
                add_controls(recv, [self.parts[device].ops[self.merges[frame, device]]])
        if narrow:
            cast = new_node(receiver, "Cast", f"{producer.name}/_widen", [recv.outputs[0]], {"SrcT": wire, "DstT": dtype, "Truncate": False}, [dtype], [source.dims], device, origin=producer)
            return cast.outputs[0]
        return recv.outputs[0]

    # -- loops that span devices --------------------------------------------------------------------------------------------

    def _with_control_loops(self, graph: Graph) -> tuple[Graph, Frames]:
        """The graph with a control loop for every (frame, device) in which something will be received."""
        frames = Frames(graph)
        wanted: dict[tuple[Frame, str], None] = {}
        for op in graph:
            for source in [t.op for t in op.inputs] + op.control_inputs:
                frame = frames.after(source)
                if source.device == op.device:
                    continue
                while frame is not None:
                    wanted.setdefault((frame, op.device))
                    frame = frame.parent
        if not wanted:
            return graph, frames
        conditions = self._conditions(graph, frames)
        enters: dict[Frame, Operation] = {frames.after(op): op for op in graph if op.type in ENTER}  # type: ignore[misc]
        graph = copy(graph)
        for frame, device in sorted(wanted, key=lambda item: item[0].depth()):
            condition = conditions.get(frame)
            if condition is None:
                raise errors.InvalidArgumentError(
                    f"Loop frame '{frame.name.decode()}' runs on several devices but has no LoopCond node, so that the devices cannot agree on its iterations."
                )
            self.merges[frame, device] = self._control_loop(graph, frame, device, graph.find(condition.name), enters[frame])  # type: ignore[arg-type]
        return graph, Frames(graph)

    def _conditions(self, graph: Graph, frames: Frames) -> dict[Frame, Operation]:
        return {frame: op for op in graph if op.type == "LoopCond" and (frame := frames.inside[op]) is not None}

    def _control_loop(self, graph: Graph, frame: Frame, device: str, condition: Operation, enter: Operation) -> Operation:
        base = f"{frame.name.decode()}/_cloop_{self.devices.index(device)}"
        b = dtypes.bool
        outer = [] if frame.parent is None else [self.merges[frame.parent, device]]
        start = new_node(graph, "Const", base + "/start", [], {"value": TensorAttr(b, np.array(False)), "dtype": b}, [b], [()], device, outer, origin=condition)
        attrs = {"T": b, "frame_name": frame.name, "is_constant": False, "parallel_iterations": enter.attrs["parallel_iterations"]}
        entered = new_node(graph, "Enter", base + "/enter", [start.outputs[0]], attrs, [b], [()], device, origin=condition)
        merge = new_node(graph, "Merge", base + "/merge", [entered.outputs[0], entered.outputs[0]], {"T": b, "N": 2}, [b, dtypes.int32], [(), ()], device, origin=condition)
        switch = new_node(graph, "Switch", base + "/switch", [merge.outputs[0], condition.outputs[0]], {"T": b}, [b, b], [(), ()], device, origin=condition)
        step = new_node(graph, "NextIteration", base + "/next", [switch.outputs[1]], {"T": b}, [b], [()], device, origin=condition)
        merge._update_input(1, step.outputs[0])
        return merge


def transfer_attrs(label: str, source: str, destination: str, incarnations: dict[str, int]) -> dict[str, Any]:
    """The attributes that a Send and its Recv share: together they make the rendezvous key."""
    return {
        "tensor_name": label.encode(),
        "send_device": source.encode(),
        "recv_device": destination.encode(),
        "send_device_incarnation": _signed(incarnations.get(source, 1)),
        "client_terminated": False,
    }


def _may_die(graph: Graph) -> set[Operation]:
    """Nodes that may be dead, or give something that is: those behind a Switch."""
    found = {op for op in graph if op.type in _MAY_BE_DEAD}
    stack = list(found)
    while stack:
        op = stack.pop()
        for consumer in [c for t in op.outputs for c in t._consumers or ()] + (op._control_outputs or []):
            if consumer not in found:
                found.add(consumer)
                stack.append(consumer)
    return found


def _is_small_constant(op: Operation) -> bool:
    """A constant that is cheaper to have twice than to send."""
    return op.type == "Const" and not op.control_inputs and op.attrs["value"].array.nbytes <= _SMALL_CONSTANT


def _signed(value: int) -> int:
    """An incarnation as the int64 that the attribute holds."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value
