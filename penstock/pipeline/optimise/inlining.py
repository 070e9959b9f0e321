"""Function inlining: the body of a called function takes the place of the call."""

from __future__ import annotations

from typing import Any

from penstock.graph.function import Function
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.rewrite import Copier, add_controls, new_node

_CALLS = frozenset(("PartitionedCall", "StatefulPartitionedCall"))
_DEEPEST = 64  # calls within calls; recursive functions stay calls


def inline_functions(graph: Graph, context: Any) -> Graph:
    """f(x) -> body of f, with x for its arguments"""
    if not graph.functions:
        return graph
    total = 0
    for _ in range(_DEEPEST):
        calls = [op for op in graph if _callee(graph, op) is not None]
        if not calls:
            break
        total += len(calls)
        graph = _inline(graph, calls, context)
    if total:
        context.notes.append(f"inlined {total} calls")
    return graph


def _callee(graph: Graph, op: Operation) -> tuple[Function, dict[str, Any]] | None:
    """The function that `op` calls and its attributes, if the call may be inlined."""
    if op.type in _CALLS:
        attr = op.attrs["f"]
        function, attrs = graph.functions.get(attr.name), attr.attrs
    elif op.type in graph.functions:
        function, attrs = graph.functions[op.type], op.attrs
    else:
        return None
    if function is None or function.attrs.get("_noinline") or op.attrs.get("_noinline") or _recursive(graph, function.name):
        return None
    return function, attrs


def _recursive(graph: Graph, name: str) -> bool:
    """Whether calling `name` may lead to `name` again."""
    seen: set[str] = set()
    stack = [name]
    while stack:
        function = graph.functions.get(stack.pop())
        if function is None:
            continue
        for callee in function.callees():
            if callee == name:
                return True
            if callee not in seen:
                seen.add(callee)
                stack.append(callee)
    return False


def _inline(graph: Graph, calls: list[Operation], context: Any) -> Graph:
    inlined = set(calls)
    copier = Copier(graph)
    for op in graph:
        if op not in inlined:
            copier.clone(op)
    bodies = []
    for call in calls:
        function, attrs = _callee(graph, call)  # type: ignore[misc]
        bodies.append(_Inlined(copier, call, function.body(attrs, graph.functions)))
    # Everything has a node now. Edges: first those of the caller, then those of the bodies.
    for body in bodies:
        body.connect_outputs()
    after = {body.call: body.done for body in bodies}
    for old, new in copier.ops.items():
        if old in inlined:
            continue
        new.inputs = [copier.tensors[t] for t in old.inputs]
        _consume(new)
        add_controls(new, [after[c] if c in after else copier.ops[c] for c in old.control_inputs])
    for body in bodies:
        body.wire(after)
    return copier.graph


def _consume(op: Operation) -> None:
    for tensor in op.inputs:
        if tensor._consumers is None:
            tensor._consumers = []
        tensor._consumers.append(op)


class _Inlined:
    """One call being replaced. `start` runs before the body, `done` after all of it."""

    def __init__(self, copier: Copier, call: Operation, body: Graph) -> None:
        self.copier = copier
        self.call = call
        self.body = body
        graph = copier.graph
        self.ops: dict[Operation, Operation] = {}
        self.tensors: dict[Tensor, Tensor] = {}
        self.args: dict[int, Operation] = {}
        device = call.device
        self.start = new_node(graph, "NoOp", f"{call.name}/_start", [], {}, [], device=device, origin=call)
        for op in body:
            if op.type == "_Arg":
                dtype = op.outputs[0].dtype.base_dtype
                new = new_node(graph, "Identity", f"{call.name}/{op.name}", [], {"T": dtype}, [dtype], [op.outputs[0].dims], device, origin=call)
                self.args[op.attrs["index"]] = new
            elif op.type == "_Retval":
                continue
            else:
                new = self._clone(op, device)
            self.ops[op] = new
            for old, tensor in zip(op.outputs, new.outputs, strict=True):
                tensor.handle_data = old.handle_data
                self.tensors[old] = tensor
        self.done = new_node(graph, "NoOp", call.name, [], {}, [], device=device, origin=call)

    def _clone(self, op: Operation, device: str) -> Operation:
        graph = self.copier.graph
        attrs = op.attrs
        if "_class" in attrs:
            prefix = f"loc:@{self.call.name}/".encode()
            attrs = {**attrs, "_class": [prefix + c[5:] if isinstance(c, bytes) and c.startswith(b"loc:@") else c for c in attrs["_class"]]}
        if "frame_name" in attrs:
            attrs = {**attrs, "frame_name": self.call.name.encode() + b"/" + attrs["frame_name"]}
        name = f"{self.call.name}/{op.name}"
        count = 0
        while name in graph:
            count += 1
            name = f"{self.call.name}/{op.name}_{count}"
        new = Operation(graph, name, op.op_def, attrs, graph._next_id, device)
        graph._next_id += 1
        new.origin = op.origin or op
        if not op.trace:
            new.origin = self.call.origin or self.call
        new.outputs = [Tensor(new, t.value_index, t.dtype, t.dims) for t in op.outputs]
        graph._nodes[name] = new
        return new

    def connect_outputs(self) -> None:
        """What the call returned is now what the body computes, behind an Identity that waits for the whole body's effects."""
        rets = sorted((op for op in self.body if op.type == "_Retval"), key=lambda op: op.attrs["index"])
        for ret, old in zip(rets, self.call.outputs, strict=True):
            self.copier.tensors[old] = self.tensors[ret.inputs[0]]

    def wire(self, after: dict[Operation, Operation]) -> None:
        copier, call = self.copier, self.call
        add_controls(self.start, [after[c] if c in after else copier.ops[c] for c in call.control_inputs])
        waits = bool(self.start.control_inputs)
        for index, arg in self.args.items():
            arg.inputs = [copier.tensors[call.inputs[index]]]
            _consume(arg)
            if waits:
                add_controls(arg, [self.start])
        effects: list[Operation] = []
        for old, new in self.ops.items():
            if old.type == "_Arg":
                continue
            new.inputs = [self.tensors[t] for t in old.inputs]
            _consume(new)
            add_controls(new, [self.ops[c] for c in old.control_inputs if c in self.ops])
            if waits and not new.inputs and not new.control_inputs:
                add_controls(new, [self.start])
            if old.op_def.stateful:
                effects.append(new)
        for op in getattr(self.body, "_control_ret", ()):
            if op in self.ops and self.ops[op] not in effects:
                effects.append(self.ops[op])
        results = [copier.tensors[t].op for t in call.outputs]
        add_controls(self.done, [*effects, *results, *([self.start] if waits else [])])


