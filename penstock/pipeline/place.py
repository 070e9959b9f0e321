"""Place: every node gets a device.

    (graph, devices) -> {node name: device name}, with a reason for each

Nodes that must share a device form groups: explicit colocation (`loc:@x`), readers and writers of one reference, users of one resource.
A group goes to a device that satisfies every member's request and has kernels for all of them; soft placement drops requests
that cannot be met, and a resource's own device beats the requests of its users. Sources without inputs go where their consumer is; everything else goes to the best device.

`Placer` keeps its answers: a node that was placed once stays there, for every signature and every extension of the graph.
"""

from __future__ import annotations

from typing import Any

from penstock import errors, names
from penstock.dtypes import resource
from penstock.graph.ir import Graph, Operation

# What calls functions may be anywhere: in the body, each resource is used where it is.
_CALLERS = frozenset({
    "PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient", "If", "StatelessIf", "Case", "StatelessCase", "While", "StatelessWhile", "For",
    "RemoteCall",
})  # fmt: skip
_METADATA = {"Shape", "Size", "Rank", "ShapeN"}


class Placer:
    """State
    devices       the devices to choose from, best first
    placement     node name -> full device name
    reasons       node name -> why, for nodes whose device was not simply the default
    """

    def __init__(self, devices: list[Any], soft: bool = False, log: bool = False, default: str = "") -> None:
        self.devices = devices
        self.soft = soft
        self.log = log
        self.default = default or devices[0].name
        self.placement: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.kinds = {device.name: device.kind for device in devices}
        self._known = {device.name: device for device in devices}
        self._matching: dict[str, list[Any]] = {}

    # -- the public part ------------------------------------------------------------------------------------------------

    def place(self, graph: Graph) -> dict[str, str]:
        """Places the nodes of `graph` that have no device yet."""
        placement = self.placement
        fresh = [op for op in graph if op.name not in placement]
        if not fresh:
            return placement
        grouped = self._groups(graph, fresh)
        only = self.devices[0] if len(self.devices) == 1 else None
        generators: list[Operation] = []
        for op in fresh:
            name = op.name
            if name in placement:
                continue
            members = grouped.get(name)
            if members is not None:
                self._place_group(graph, members)
            elif not op.device:
                if only is not None:
                    placement[name] = self.default
                elif not op.inputs and len(op.outputs) == 1 and not op.outputs[0].dtype._is_ref_dtype and not op.op_def.stateful:
                    generators.append(op)
                elif op.type in _METADATA and op.inputs[0].op.name in placement:
                    placement[name] = placement[op.inputs[0].op.name]
                    self.reasons[name] = f"reads only the shape of '{op.inputs[0].op.name}' and stays with it"
                elif op.type == "NoOp" and (home := self._common_home(op)) is not None:
                    placement[name] = home
                    self.reasons[name] = f"only joins nodes that are all on {home}"
                else:
                    self._place_group(graph, [op])
            else:
                self._place_group(graph, [op])
        for op in generators:
            self._place_generator(graph, op)
        if self.log:
            self._log(fresh)
        return placement

    def reason(self, op: Operation) -> str:
        """Why `op` is where it is."""
        return self.reasons.get(op.name) or ("asked for by the graph" if op.device else "no request: the default device")

    def meets_client(self, device: str) -> bool:
        """Whether feeds and fetches of this device's nodes stand in its own partition."""
        return device in self.kinds and self.kinds[device].meets_client

    # -- groups ---------------------------------------------------------------------------------------------------------

    def _groups(self, graph: Graph, fresh: list[Operation]) -> dict[str, list[Operation]]:
        """Node name -> members of its group, for nodes that are in one."""
        parent: dict[str, str] = {}

        def find(name: str) -> str:
            root = name
            while parent.setdefault(root, root) != root:
                root = parent[root]
            while parent[name] != root:
                parent[name], name = root, parent[name]
            return root

        for op in fresh:
            classes = op.attrs.get("_class")
            if classes:
                for group in classes:
                    if isinstance(group, bytes) and group.startswith(b"loc:@"):
                        target = group[5:].decode("utf-8", "replace")
                        if target == op.name:
                            continue
                        if target not in graph:
                            continue  # a group may outlive the node it was named after
                        parent[find(op.name)] = find(target)
            calls = op.type in _CALLERS or op.type in graph.functions
            for tensor in op.inputs:
                dtype = tensor.dtype
                if (dtype is resource and not calls) or (dtype._is_ref_dtype and _wants_ref(op, tensor)):
                    parent[find(op.name)] = find(tensor.op.name)
        if not parent:
            return {}
        members: dict[str, list[Operation]] = {}
        for name in parent:
            op = graph.find(name)
            if op is not None:
                members.setdefault(find(name), []).append(op)
        return {name: members[find(name)] for name in parent if graph.find(name) is not None}

    def _place_group(self, graph: Graph, members: list[Operation]) -> None:
        members = sorted(members, key=lambda op: op.id)
        fixed = next((self.placement[op.name] for op in members if op.name in self.placement), None)
        if fixed is not None:
            chosen, why = self._known[fixed], f"shares state with nodes that are on {fixed} already"
            for op in members:
                if op.name not in self.placement and op.device and not names.matches(op.device, fixed) and not self.soft and not _uses_resource(op):
                    raise errors.InvalidArgumentError(
                        f"Cannot colocate nodes: operation '{op.name}' asks for device '{op.device}', but it is colocated with nodes that were "
                        f"assigned to '{fixed}' in an earlier run. Enable soft placement or drop the request."
                    ).attach(op=op)
        else:
            chosen, why = self._choose(members)
        for op in members:
            if op.name not in self.placement:
                self.placement[op.name] = chosen.name
                if why:
                    self.reasons[op.name] = why

    def _choose(self, members: list[Operation]) -> tuple[Any, str]:
        spec, why = self._request(members)
        able = [d for d in self.devices if all(_has_kernel(op, d) for op in members)]
        if not able:
            # No kernel anywhere: the graph may still be run by fetches that avoid these nodes. Binding the kernel will complain.
            able = self.devices
        candidates = [d for d in self._matches(spec) if d in able]
        if candidates:
            return self._best(candidates), why
        if self.soft:
            return self._best(able), f"asked for {spec}, which is not available; soft placement took the best device that is"
        self._refuse(members, spec)
        raise AssertionError

    def _request(self, members: list[Operation]) -> tuple[str, str]:
        spec, source = "", None
        for op in members:
            if not op.device:
                continue
            try:
                wanted = names.canonical(op.device)
            except ValueError as error:
                raise errors.InvalidArgumentError(f"Malformed device specification '{op.device}' in node '{op.name}': {error}").attach(op=op) from error
            if not spec:
                spec, source = wanted, op
            elif wanted != spec:
                merged = _merge(spec, wanted)
                if merged is None:
                    if self.soft or _uses_resource(op):
                        continue
                    raise errors.InvalidArgumentError(
                        f"Cannot colocate nodes '{op.name}' and '{source.name}' because no device can satisfy both requests: "  # type: ignore[union-attr]
                        f"'{wanted}' and '{spec}'. Colocated nodes must agree; drop one of the requests or allow soft placement."
                    ).attach(op=op)
                spec = merged
        if source is None:
            return spec, "" if len(members) == 1 else f"default device of a colocation group of {len(members)} nodes"
        why = f"asked for {source.device}"
        return spec, why if len(members) == 1 else f"{why} by '{source.name}', with which {len(members) - 1} other nodes are colocated"

    def _common_home(self, op: Operation) -> str | None:
        """The device of everything that `op` waits for, if it is one."""
        where = {self.placement.get(control.name) for control in op.control_inputs}
        return where.pop() if len(where) == 1 else None

    def _place_generator(self, graph: Graph, op: Operation) -> None:
        """A source with one kind of consumer goes to the consumer's device: no copy is needed."""
        where = {self.placement.get(consumer.name) for consumer in op.outputs[0]._consumers or ()}
        if len(where) == 1:
            device = where.pop()
            if device is not None and _has_kernel(op, self._known[device]):
                self.placement[op.name] = device
                self.reasons[op.name] = f"a source whose consumers are all on {device}"
                return
        self._place_group(graph, [op])

    # -- devices --------------------------------------------------------------------------------------------------------

    def _matches(self, spec: str) -> list[Any]:
        found = self._matching.get(spec)
        if found is None:
            found = self._matching[spec] = [d for d in self.devices if names.matches(spec, d.name)] if spec else self.devices
        return found

    def _best(self, candidates: list[Any]) -> Any:
        """The default device if it is among them, else the first: `devices` is sorted by preference."""
        return next((d for d in candidates if d.name == self.default), candidates[0])

    def _refuse(self, members: list[Operation], spec: str) -> None:
        op = next((m for m in members if m.device), members[0])
        matching = self._matches(spec)
        available = ", ".join(d.name for d in self.devices)
        if not matching:
            why = f"Could not satisfy explicit device specification '{spec}' because no devices matching that specification are registered in this process; available devices: {available}."
        else:
            kinds = ", ".join(sorted({d.type for d in matching}))
            lacking = next((m.type for m in members if not _has_kernel(m, matching[0])), members[0].type)
            why = f"Could not satisfy explicit device specification '{spec}' because no supported kernel for {kinds} devices is available for op {lacking}."
        raise errors.InvalidArgumentError(
            f"Cannot assign a device for operation {op.name}: {why} To let Penstock choose another device, set allow_soft_placement in the ConfigProto."
        ).attach(op=op)

    def _log(self, ops: list[Operation]) -> None:
        import logging

        logger = logging.getLogger("penstock.placement")
        for op in ops:
            logger.warning("%s: (%s): %s (%s)", op.name, op.type, self.placement[op.name], self.reason(op))


def place_body(body: Graph, placer: Placer, default: str, args: dict[int, str]) -> dict[str, str]:
    """Devices for the nodes of a function's body: what they ask for, else where their resources are (`args`: argument -> device),
    else `default`. A body has names of its own, so nothing is kept."""
    if len(placer.devices) == 1:
        return {op.name: placer.default for op in body}
    own = Placer(placer.devices, True, False, default)
    for op in body:
        if op.type == "_Arg":
            own.placement[op.name] = args.get(op.attrs["index"], default)
    return own.place(body)


def _has_kernel(op: Operation, device: Any) -> bool:
    if device.type == "CPU" and op.type in op.graph.functions:
        return True
    return device.has_kernel(op.op_def)


def _uses_resource(op: Operation) -> bool:
    """Whether `op` works on a resource: then the resource's device counts, not its own request."""
    return any(tensor.dtype is resource for tensor in op.inputs)


def _wants_ref(op: Operation, tensor: Any) -> bool:
    """Whether `op` takes `tensor` by reference, rather than reading its value."""
    if not any(arg.is_ref for arg in op.op_def.inputs):
        return False
    from penstock.graph.bind import input_ranges

    for arg, (start, stop, _) in zip(op.op_def.inputs, input_ranges(op), strict=True):
        if arg.is_ref and any(op.inputs[i] is tensor for i in range(start, stop)):
            return True
    return False


def _merge(a: str, b: str) -> str | None:
    """One specification that says what both say; None if they contradict each other."""
    first, second = names.DeviceSpec.from_string(a), names.DeviceSpec.from_string(b)
    for field in ("job", "replica", "task", "device_type", "device_index"):
        x, y = getattr(first, field), getattr(second, field)
        if x is not None and y is not None and x != y:
            return None
    return names.full_name(a, b)
