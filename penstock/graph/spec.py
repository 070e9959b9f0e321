"""What must hold of a graph after each stage, written down and checked.

Tests always check; users switch it on with PENSTOCK_CHECK=1. A broken rule is an InternalError that names the stage, the node and the rule.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from penstock import errors
from penstock.graph.build import arg_dtypes
from penstock.graph.ir import Graph, Operation

enabled = os.environ.get("PENSTOCK_CHECK", "") not in ("", "0")


def check_well_formed(graph: Graph, stage: str = "graph") -> None:
    """Every graph: edges stay inside, types fit the signatures, consumers know their inputs and the other way round."""
    for name, op in graph._nodes.items():
        _require(op.name == name and op.graph is graph, stage, op, "a node is filed under its own name in its own graph")
        wanted = arg_dtypes(op.op_def.inputs, op.attrs)
        _require(len(wanted) == len(op.inputs), stage, op, f"it has the {len(wanted)} inputs of its signature")
        for tensor, want in zip(op.inputs, wanted, strict=True):
            source = tensor.op
            _require(graph._nodes.get(source.name) is source, stage, op, f"input {tensor.name} is in the same graph")
            _require(tensor is source.outputs[tensor.value_index], stage, op, f"input {tensor.name} is an output of its node")
            _require(tensor.dtype.base_dtype is want.base_dtype, stage, op, f"input {tensor.name} is a {want.name}")
            _require(op in (tensor._consumers or ()), stage, op, f"input {tensor.name} knows its consumer")
        for control in op.control_inputs:
            _require(graph._nodes.get(control.name) is control, stage, op, f"control input {control.name} is in the same graph")
            _require(op in (control._control_outputs or ()), stage, op, f"control input {control.name} knows its consumer")


def check_pruned(graph: Graph, n_feeds: int, n_fetches: int, targets: Iterable[str], through_rendezvous: bool) -> None:
    """After pruning: feeds and fetches have their nodes, targets are there, nothing else is without a consumer."""
    check_well_formed(graph, "prune")
    kinds = ("_Recv", "_Send") if through_rendezvous else ("_Arg", "_Retval")
    found = [sum(1 for op in graph if op.type == kind) for kind in kinds]
    if not through_rendezvous and found != [n_feeds, n_fetches]:
        raise errors.InternalError(f"After prune: {n_feeds} feeds and {n_fetches} fetches were asked for, {found[0]} and {found[1]} nodes are there")
    wanted = set(targets)
    for op in graph:
        used = any(t._consumers for t in op.outputs) or op._control_outputs
        _require(bool(used) or op.name in wanted or op.type in ("_Retval", "_Send", "_Arg", "_Recv"), "prune", op, "somebody needs it")
    for name in wanted:
        if name not in graph:
            raise errors.InternalError(f"After prune: the target {name} is gone")


def check_placed(graph: Graph, devices: Iterable[str]) -> None:
    """After placement: every node is on a device that exists."""
    known = set(devices)
    for op in graph:
        _require(op.device in known, "place", op, f"its device '{op.device}' is one of {sorted(known)}")


def check_partitioned(parts: dict[str, Graph]) -> None:
    """After partitioning: every partition is a graph of one device, and every Send has its Recv."""
    sends: set[tuple] = set()
    recvs: set[tuple] = set()
    for device, part in parts.items():
        check_well_formed(part, "partition")
        for op in part:
            _require(op.device == device, "partition", op, f"it is on the partition's device {device}")
            # A client's graph may hold transfers of its own, whose partners are elsewhere.
            if op.type in ("_Send", "_HostSend", "_Recv", "_HostRecv") and not op.attrs["client_terminated"] and (op.origin is None or op.origin.type != op.type):
                key = (op.attrs["tensor_name"], op.attrs["send_device"], op.attrs["recv_device"])
                side = sends if op.type in ("_Send", "_HostSend") else recvs
                _require(key not in side, "partition", op, "its rendezvous key is used once")
                side.add(key)
    if sends != recvs:
        lonely = sorted(str(k[0]) for k in sends ^ recvs)
        raise errors.InternalError(f"After partition: transfers without a partner: {', '.join(lonely[:5])}")


def checking(check: Callable[..., None], *args: object) -> None:
    """Runs `check` if checking is on."""
    if enabled:
        check(*args)


def _require(holds: bool, stage: str, op: Operation, rule: str) -> None:
    if not holds:
        raise errors.InternalError(f"After {stage}: node '{op.name}' ({op.type}) breaks the rule that {rule}")
