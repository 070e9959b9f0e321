"""Prune: keeps what the signature needs, and gives feeds and fetches their nodes.

    (graph, signature) -> graph

Every fed tensor is replaced by the output of an `_Arg` (or `_Recv`) node, every fetched tensor gets a `_Retval` (or `_Send`) node, and
whatever no fetch or target reaches is left out. Nodes keep their names, devices and order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import errors
from penstock.dtypes import DType
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.rewrite import Copier, add_controls, new_node, topological
from penstock.names import parse_tensor_name
from penstock.pipeline.signature import Signature

CLIENT_DEVICE_INCARNATION = 1
_RUNTIME_ONLY = frozenset(("_Arg", "_Retval", "_DeviceArg", "_DeviceRetval"))


def prune(
    graph: Graph,
    signature: Signature,
    device_of: Callable[[Operation], str],
    client_device: str,
    meets_client: Callable[[str], bool] = lambda device: False,
) -> Graph:
    """The part of `graph` that computes `signature`, on the devices that `device_of` gives. `meets_client` says which devices beside the client's
    take fed values and give fetched ones themselves."""
    fed = {find_tensor(graph, name, "feed"): i for i, name in enumerate(signature.feeds)}
    if len(fed) != len(signature.feeds):
        twice = next(n for n in signature.feeds if list(signature.feeds).count(n) > 1)
        raise errors.InvalidArgumentError(f"{twice} fed more than once.")
    connected = {find_tensor(graph, to, "tensor connection"): find_tensor(graph, source, "tensor connection") for source, to in signature.connections}
    for to, source in connected.items():
        if to in fed or len(connected) != len(signature.connections):
            raise errors.InvalidArgumentError(f"{to.name} is fed more than once: by a feed and a tensor connection, or by two connections.")
        if _base(to.dtype) is not _base(source.dtype):
            raise errors.InvalidArgumentError(f"Tensor connection from {source.name} of type {_base(source.dtype).name} to {to.name} of type {_base(to.dtype).name}.")
    fetched = [find_tensor(graph, name, "fetch") for name in signature.fetches]
    targets = [find_op(graph, name) for name in signature.targets]

    keep = _reachable(fetched, targets, fed, connected)
    copier = Copier(graph)
    for op in graph:
        if op in keep:
            if op.type in _RUNTIME_ONLY:
                raise errors.InvalidArgumentError(f"Node '{op.name}' is of type {op.type}, which stands for an argument or a result of the runtime: it cannot run as a part of a client's graph.").attach(op=op)
            copier.clone(op, device_of(op))
    # `tensors` says who stands for an old tensor. Feeds and connections take the place of what computed it.
    arg_of: dict[Operation, Operation] = {}
    feed_device = dict(signature.feed_devices)
    for tensor, index in fed.items():
        device = feed_device.get(signature.feeds[index]) or _home(
            {device_of(c) for c in tensor._consumers or () if c in keep}, signature, client_device, meets_client
        )
        node = _feed_node(copier.graph, tensor, index, signature, device)
        copier.tensors[tensor] = node.outputs[0]
        if tensor.op.type in ("Placeholder", "PlaceholderV2"):
            arg_of[tensor.op] = node
    for to in connected:
        source = _connected(to, connected, copier)
        if source is not None:
            copier.tensors[to] = source
            if to.op.type in ("Placeholder", "PlaceholderV2"):
                arg_of[to.op] = source.op
    new = copier.wire()
    for op, clone in copier.ops.items():
        if op.control_inputs:  # an edge from a fed placeholder is met by its feed
            add_controls(clone, [arg_of[c] for c in op.control_inputs if c in arg_of])
        if op.type in ("VariableV2", "Variable") and any(_reshapes(reader) for reader in op.outputs[0]._consumers or ()):
            clone.outputs[0].dims = None  # its shape is only what it was declared with
    if connected:
        try:
            topological(new)
        except ValueError as error:
            names = ", ".join(f'"{source}" and "{to}"' for source, to in signature.connections)
            raise errors.InvalidArgumentError(f"Requested Tensor connection between nodes {names} would create a cycle.") from error
    fetch_device = dict(signature.fetch_devices)
    for index, tensor in enumerate(fetched):
        device = fetch_device.get(signature.fetches[index]) or _home(
            {copier.tensors[tensor].op.device}, signature, client_device, meets_client
        )
        _fetch_node(new, copier.tensors[tensor], tensor, index, signature, device)
    return new


def _reshapes(op: Operation) -> bool:
    """Whether it may give a variable another shape."""
    return op.type == "Assign" and not op.attrs["validate_shape"]


def _home(devices: set[str], signature: Signature, client_device: str, meets_client: Callable[[str], bool]) -> str:
    """Where a feed or a fetch is: the client's device, unless all that has to do with it is on one device that meets the client itself."""
    only = next(iter(devices)) if len(devices) == 1 else ""
    return only if only and not signature.through_rendezvous and meets_client(only) else client_device


def find_tensor(graph: Graph, name: str, role: str) -> Tensor:
    """The tensor called `name`; NotFoundError or InvalidArgumentError in TF's words if there is none."""
    try:
        op_name, index = parse_tensor_name(name)
    except ValueError as error:
        raise errors.InvalidArgumentError(f"{role.capitalize()} '{name}' is not a tensor name") from error
    op = graph.find(op_name)
    if op is None:
        if role == "tensor connection":
            raise errors.InvalidArgumentError(f'Requested tensor connection from unknown node: "{name}".')
        what = "FetchOutputs node" if role == "fetch" else "FeedInputs: unable to find feed output" if role == "feed" else "Tensor"
        raise errors.NotFoundError(f"{what} {name}: not found" if role != "feed" else f"{what} {name}")
    if index >= len(op.outputs):
        raise errors.InvalidArgumentError(f"{role.capitalize()} output index {index} of '{name}' is out of range: node '{op_name}' has {len(op.outputs)} outputs")
    return op.outputs[index]


def find_op(graph: Graph, name: str) -> Operation:
    op = graph.find(name)
    if op is None:
        raise errors.NotFoundError(f"PruneForTargets: Some target nodes not found: {name}")
    return op


def _reachable(fetched: list[Tensor], targets: list[Operation], fed: dict[Tensor, int], connected: dict[Tensor, Tensor]) -> set[Operation]:
    """The operations that must run, walking backwards and stopping at fed tensors."""
    keep: set[Operation] = set()
    stack: list[Operation] = []

    def want(tensor: Tensor) -> None:
        seen = set()
        while tensor in connected and tensor not in seen:
            seen.add(tensor)
            tensor = connected[tensor]
        op = tensor.op
        if tensor not in fed and op not in keep:
            keep.add(op)
            stack.append(op)

    for op in targets:
        if op not in keep:
            keep.add(op)
            stack.append(op)
    for tensor in fetched:
        want(tensor)
    joined = {t.op: t for t in connected if t.op.type in ("Placeholder", "PlaceholderV2")}
    fed_placeholders = {t.op for t in fed if t.op.type in ("Placeholder", "PlaceholderV2")}
    while stack:
        op = stack.pop()
        for tensor in op.inputs:
            if connected:
                want(tensor)
            elif tensor not in fed and (source := tensor.op) not in keep:  # the same, without a call
                keep.add(source)
                stack.append(source)
        for control in op.control_inputs:
            if control in joined:
                want(joined[control])
            elif control not in keep and control not in fed_placeholders:
                keep.add(control)
                stack.append(control)
    return keep


def _connected(to: Tensor, connected: dict[Tensor, Tensor], copier: Copier) -> Tensor | None:
    """What stands for a connected tensor in the pruned graph; None if nobody needs it."""
    seen = []
    tensor = to
    while tensor in connected:
        if tensor in seen:
            raise errors.InvalidArgumentError(f"Tensor connections form a cycle through {to.name}")
        seen.append(tensor)
        tensor = connected[tensor]
    return copier.tensors.get(tensor)


def _base(dtype: DType) -> DType:
    return dtype.base_dtype if dtype._is_ref_dtype else dtype


def _feed_node(graph: Graph, tensor: Tensor, index: int, signature: Signature, device: str) -> Operation:
    dtype = _base(tensor.dtype)
    where = f"{tensor.op.name}_{tensor.value_index}"
    # A placeholder's shape was checked when the value was fed; any other tensor may be fed with any shape.
    dims = tensor.dims if tensor.op.type in ("Placeholder", "PlaceholderV2") else None
    if signature.through_rendezvous:
        attrs = _transfer_attrs("tensor_type", dtype, tensor.name, device)
        op = new_node(graph, "_Recv", f"_recv_{where}", [], attrs, [dtype], [dims], device, origin=tensor.op)
    else:
        attrs = {"T": dtype, "index": index}
        op = new_node(graph, "_Arg", f"_arg_{where}_{index}", [], attrs, [dtype], [dims], device, origin=tensor.op)
    op.outputs[0].handle_data = tensor.handle_data
    return op


def _fetch_node(graph: Graph, tensor: Tensor, original: Tensor, index: int, signature: Signature, device: str) -> Operation:
    dtype = _base(tensor.dtype)
    where = f"{original.op.name}_{original.value_index}"
    if signature.through_rendezvous:
        attrs = _transfer_attrs("T", dtype, original.name, device)
        return new_node(graph, "_Send", f"_send_{where}", [tensor], attrs, [], [], device, origin=original.op)
    return new_node(graph, "_Retval", f"_retval_{where}_{index}", [tensor], {"T": dtype, "index": index}, [], [], device, origin=original.op)


def _transfer_attrs(type_attr: str, dtype: DType, tensor_name: str, device: str) -> dict[str, Any]:
    return {
        type_attr: dtype,
        "tensor_name": tensor_name.encode(),
        "send_device": device.encode(),
        "recv_device": device.encode(),
        "send_device_incarnation": CLIENT_DEVICE_INCARNATION,
        "client_terminated": True,
    }
