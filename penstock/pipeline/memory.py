"""Memory types: on a device with memory of its own, an edge between host and device memory is a transfer too.

    {device: graph} -> {device: graph}

A kernel's declaration says which arguments stay in host memory (`host_memory=`: shapes, axes, sizes); a device type says what that means for it
(`DeviceType.memory_types`). Where a producer's side and a consumer's side differ, the edge is split:

    device -> host:   _Send     -^-> _HostRecv
    host -> device:   _HostSend -^-> _Recv

The control edge keeps both in one frame and iteration. Sends and Recvs between devices become their host forms where the value is in host memory.
"""

from __future__ import annotations

from typing import Any

from penstock.graph.bind import arg_ranges
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.rewrite import Copier, add_controls, new_node

HOST = "host"


def ensure_memory_types(parts: dict[str, Graph], kinds: dict[str, Any], incarnations: dict[str, int]) -> dict[str, Graph]:
    """Splits the edges of every partition whose device type has memory of its own. `kinds` maps devices to their DeviceType."""
    return {device: _split(part, device, kinds[device], incarnations) for device, part in parts.items()}


def input_memory(kind: Any, op: Operation) -> list[str]:
    """Where each flat input of `op` must be."""
    table, _ = kind.memory_types(op.op_def)
    return _flat(table, op.op_def.inputs, op)


def output_memory(kind: Any, op: Operation) -> list[str]:
    """Where each flat output of `op` is."""
    _, table = kind.memory_types(op.op_def)
    return _flat(table, op.op_def.outputs, op)


def _flat(table: dict[str, str], args: list, op: Operation) -> list[str]:
    result: list[str] = []
    for arg, (start, stop, _) in zip(args, arg_ranges(args, op.attrs), strict=True):
        result += [table[arg.name]] * (stop - start)
    return result


def _split(part: Graph, device: str, kind: Any, incarnations: dict[str, int]) -> Graph:
    if kind.name == "CPU" or not kind.splits_memory:
        return part  # all of it is host memory, or values cross by themselves
    where: dict[Tensor, str] = {}
    for op in part:
        where.update(zip(op.outputs, output_memory(kind, op), strict=True))
    forms: dict[Operation, str] = {}
    for op in part:
        if op.type == "_Send" and where[op.inputs[0]] == HOST:
            forms[op] = "_HostSend"
        elif op.type == "_Recv" and op.outputs[0]._consumers and all(_wants(kind, c, op.outputs[0]) == {HOST} for c in op.outputs[0]._consumers):
            forms[op] = "_HostRecv"
            where[op.outputs[0]] = HOST
    crossing = [
        (op, i)
        for op in part
        if op not in forms or op.type == "_Recv"
        for i, (tensor, want) in enumerate(zip(op.inputs, input_memory(kind, op), strict=True))
        if where[tensor] != want
    ]
    if not crossing and not forms:
        return part
    return _rewritten(part, device, where, forms, set(crossing), incarnations)


def _wants(kind: Any, consumer: Operation, tensor: Tensor) -> set[str]:
    return {want for source, want in zip(consumer.inputs, input_memory(kind, consumer), strict=True) if source is tensor}


def _rewritten(
    part: Graph, device: str, where: dict[Tensor, str], forms: dict[Operation, str], crossing: set[tuple[Operation, int]], incarnations: dict[str, int]
) -> Graph:
    from penstock.pipeline.partition import transfer_attrs

    copier = Copier(part)
    for op in part:
        if op in forms:
            new = new_node(copier.graph, forms[op], op.name, [], op.attrs, [t.dtype for t in op.outputs], [t.dims for t in op.outputs], op.device, origin=op)
            copier.ops[op] = new
            copier.tensors.update(zip(op.outputs, new.outputs, strict=True))
        else:
            copier.clone(op)
    moved: dict[Tensor, Tensor] = {}

    def on_the_other_side(tensor: Tensor) -> Tensor:
        if tensor not in moved:
            to_host = where[tensor] != HOST
            source, producer = copier.tensors[tensor], tensor.op
            label = f"memory_{producer.name}_{tensor.value_index}"
            attrs = transfer_attrs(label, device, device, incarnations)
            dtype = tensor.dtype.base_dtype
            send = new_node(copier.graph, "_Send" if to_host else "_HostSend", f"{producer.name}/_memory_send", [source], {"T": dtype, **attrs}, [], [], device, origin=producer)
            recv = new_node(
                copier.graph, "_HostRecv" if to_host else "_Recv", f"{producer.name}/_memory_recv", [], {"tensor_type": dtype, **attrs}, [dtype], [tensor.dims], device,
                [send], origin=producer,
            )  # fmt: skip
            moved[tensor] = recv.outputs[0]
        return moved[tensor]

    for old, new in list(copier.ops.items()):
        new.inputs = [on_the_other_side(t) if (old, i) in crossing else copier.tensors[t] for i, t in enumerate(old.inputs)]
        for tensor in new.inputs:
            if tensor._consumers is None:
                tensor._consumers = []
            tensor._consumers.append(new)
        add_controls(new, [copier.ops[c] for c in old.control_inputs])
    return copier.graph
