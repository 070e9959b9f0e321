"""Function inlining: the body of a called function takes the place of the call.

Nobody may notice. A call runs all of its body's effects (writes, prints, queue operations) before its results are there, and nothing
of it if the call itself does not run. So results stand behind the effects, whoever waited for the call waits for them, and inside of
branches and loops the body's constants wait for the call's arguments.

Calls that stay calls: of functions that call themselves, that ask for it (`_noinline`), whose types do not fit (the kernel says so), of
bodies with effects inside of their own branches and loops, and whatever would make the graph grow beyond all bounds.
"""

from __future__ import annotations

from typing import Any

from penstock import errors
from penstock.backprop.function_bodies import gradient_function
from penstock.dtypes import resource
from penstock.graph.build import arg_dtypes
from penstock.graph.function import CALLS, Function, called_function, calls_itself
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.rewrite import Copier, add_controls, new_node
from penstock.pipeline.optimise.edit import CONTROL_FLOW
from penstock.pipeline.place import place_body

_DEEPEST = 64  # calls within calls
_LARGEST = 20_000  # nodes that inlining may add, besides one copy of each function

# Stateful ops that change nothing: whether they run matters only to those who read their results.
_NO_EFFECT = frozenset({
    "VarHandleOp", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape", "_Arg", "_Retval", "DeviceIndex",
    "RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt", "ParameterizedTruncatedNormal", "Multinomial",
    "RandomGamma", "RandomShuffle", "RandomPoissonV2", "HashTableV2", "TensorArrayV3", "StackV2", "Placeholder",
})  # fmt: skip


def inline_functions(graph: Graph, context: Any) -> Graph:
    """f(x) -> body of f, with x for its arguments"""
    if not graph.functions:
        return graph
    library = _Library(graph)
    total = 0
    for _ in range(_DEEPEST):
        calls = library.inlinable(graph)
        if not calls:
            break
        total += len(calls)
        graph = _inline(graph, calls, context)
    if total:
        context.notes.append(f"inlined {total} calls")
    if library.left:
        context.notes.append(f"left {library.left} calls as they are: the graph would grow by more than {_LARGEST} nodes")
    return graph


class _Library:
    """What is known of the functions while the pass runs.

    recursive    name -> whether the function may call itself
    fits         body -> whether it can be inlined at all
    room         how many nodes may still be added
    left         how many calls found no room
    """

    def __init__(self, graph: Graph) -> None:
        self.functions = graph.functions
        self.recursive: dict[str, bool] = {}
        self.fits: dict[Graph, bool] = {}
        self.room = _LARGEST + sum(f.size() for f in graph.functions.values())
        self.left = 0

    def inlinable(self, graph: Graph) -> list[tuple[Operation, Graph]]:
        """The calls of `graph` that can be inlined, with the bodies."""
        result = []
        self.left = 0
        for op in graph:
            if op.type not in CALLS and op.type not in graph.functions and op.type != "SymbolicGradient":
                continue
            body = self._body(op)
            if body is None:
                continue
            if len(body) > self.room:
                self.left += 1
                continue
            self.room -= len(body)
            result.append((op, body))
        return result

    def _body(self, op: Operation) -> Graph | None:
        try:
            found = self._callee(op)
            if found is None:
                return None
            function, attrs = found
            if function.attrs.get("_noinline") or op.attrs.get("_noinline") or self._recursive(function.name) or not _types_fit(op, function, attrs):
                return None
            body = function.body(attrs, self.functions)
        except (errors.OpError, LookupError):
            return None  # said when the call is made, if it is
        if body not in self.fits:
            self.fits[body] = _fits(body)
        return body if self.fits[body] else None

    def _callee(self, op: Operation) -> tuple[Function, dict[str, Any]] | None:
        if op.type == "SymbolicGradient":
            func = op.attrs["f"]
            if self._recursive(func.name):
                return None
            return gradient_function(op.graph, func), func.attrs
        return called_function(op)

    def _recursive(self, name: str) -> bool:
        known = self.recursive.get(name)
        if known is None:
            known = self.recursive[name] = calls_itself(name, self.functions)
        return known


def _types_fit(op: Operation, function: Function, attrs: dict[str, Any]) -> bool:
    takes = [t.base_dtype for t in arg_dtypes(function.op_def.inputs, attrs)]
    gives = [t.base_dtype for t in arg_dtypes(function.op_def.outputs, attrs)]
    return takes == [t.dtype.base_dtype for t in op.inputs] and gives == [t.dtype.base_dtype for t in op.outputs]


def _has_effect(op: Operation) -> bool:
    return op.op_def.stateful and op.type not in _NO_EFFECT


def _fits(body: Graph) -> bool:
    """A body with branches or loops of its own may have effects that do not always happen: nobody could wait for them."""
    if not any(op.type in CONTROL_FLOW for op in body):
        return True
    return not getattr(body, "_control_ret", ()) and not any(_has_effect(op) for op in body)


def _sometimes(graph: Graph) -> set[Operation]:
    """The nodes behind a Switch or an Enter: those that may not run, or run several times."""
    stack = [op for op in graph if op.type in ("Switch", "RefSwitch", "_SwitchN", "Enter", "RefEnter")]
    seen = set(stack)
    while stack:
        op = stack.pop()
        for consumer in [c for t in op.outputs for c in t._consumers or ()] + (op._control_outputs or []):
            if consumer not in seen:
                seen.add(consumer)
                stack.append(consumer)
    return seen


def _inline(graph: Graph, calls: list[tuple[Operation, Graph]], context: Any) -> Graph:
    inlined = {op for op, _ in calls}
    sometimes = _sometimes(graph)
    copier = Copier(graph)
    for op in graph:
        if op not in inlined:
            copier.clone(op)
    parts = {op: _Inlined(copier, op, body, op in sometimes, context) for op, body in calls}
    # Everything has a node now. Edges: first the results, which others read, then what reads them.
    for part in parts.values():
        part.connect_outputs()
    tensors = _Resolver(copier.tensors)

    def after(op: Operation) -> Operation:
        return parts[op].done if op in parts else copier.ops[op]

    for old, new in copier.ops.items():
        new.inputs = [tensors[t] for t in old.inputs]
        _consume(new)
        if old.control_inputs:
            add_controls(new, [after(c) for c in old.control_inputs])
    for part in parts.values():
        part.wire(tensors, after)
    return copier.graph


class _Resolver:
    """Old tensor -> new tensor, through calls that return their arguments as they are."""

    def __init__(self, tensors: dict[Tensor, Tensor]) -> None:
        self.tensors = tensors

    def __getitem__(self, tensor: Tensor) -> Tensor:
        while tensor in self.tensors:
            tensor = self.tensors[tensor]
        return tensor


def _consume(op: Operation) -> None:
    for tensor in op.inputs:
        if tensor._consumers is None:
            tensor._consumers = []
        tensor._consumers.append(op)


class _Inlined:
    """One call being replaced. `start` runs before the body, `done` after all of it; either is only made if somebody needs it."""

    def __init__(self, copier: Copier, call: Operation, body: Graph, sometimes: bool, context: Any) -> None:
        self.copier = copier
        self.call = call
        self.body = body
        self.ops: dict[Operation, Operation] = {}
        self.tensors: dict[Tensor, Tensor] = {}
        self.effects: list[Operation] = []
        self.start: Operation | None = None
        graph = copier.graph
        # Constants of a body that may not run, or runs in a loop, must not run on their own.
        if call.control_inputs or sometimes:
            self.start = new_node(graph, "NoOp", f"{call.name}/_start", [], {}, [], device=call.device, origin=call)
        devices = place_body(body, context.placer, call.device, self._argument_devices()) if context.placer is not None else {}
        self.args: list[tuple[Operation, Tensor]] = []
        control_ret = set(getattr(body, "_control_ret", ()))
        for op in body:
            if op.type == "_Arg":
                self._argument(op)
            elif op.type != "_Retval":
                new = self.ops[op] = self._clone(op, devices.get(op.name, call.device))
                for old, tensor in zip(op.outputs, new.outputs, strict=True):
                    tensor.handle_data = old.handle_data
                    self.tensors[old] = tensor
                if _has_effect(op) or op in control_ret:
                    self.effects.append(new)
        self._done: Operation | None = None
        if call._control_outputs or call.name in context.targets:
            self._done = new_node(graph, "NoOp", call.name, [], {}, [], device=call.device, origin=call)

    @property
    def done(self) -> Operation:
        assert self._done is not None
        return self._done

    def _argument_devices(self) -> dict[int, str]:
        """Where the resources are that the call passes on."""
        return {i: t.op.device for i, t in enumerate(self.call.inputs) if t.dtype is resource and t.op.device}

    def _argument(self, op: Operation) -> None:
        call = self.call
        given = call.inputs[op.attrs["index"]]
        if self.start is None and not given.dtype._is_ref_dtype:
            self.tensors[op.outputs[0]] = given  # the caller's tensor, by its old name
            return
        dtype = op.outputs[0].dtype.base_dtype
        new = new_node(self.copier.graph, "Identity", f"{call.name}/{op.name}", [], {"T": dtype}, [dtype], [given.dims], call.device, origin=call)
        new.outputs[0].handle_data = given.handle_data or op.outputs[0].handle_data
        self.ops[op] = new
        self.tensors[op.outputs[0]] = new.outputs[0]
        self.args.append((new, given))

    def _clone(self, op: Operation, device: str) -> Operation:
        graph, call = self.copier.graph, self.call
        attrs = op.attrs
        if "_class" in attrs:
            prefix = f"loc:@{call.name}/".encode()
            attrs = {**attrs, "_class": [prefix + c[5:] if isinstance(c, bytes) and c.startswith(b"loc:@") else c for c in attrs["_class"]]}
        if "frame_name" in attrs:
            attrs = {**attrs, "frame_name": call.name.encode() + b"/" + attrs["frame_name"]}
        base = name = f"{call.name}/{op.name}"
        count = 0
        while name in graph:
            count += 1
            name = f"{base}_{count}"
        new = Operation(graph, name, op.op_def, attrs, graph._next_id, device)
        graph._next_id += 1
        origin = op.origin or op
        new.origin = origin if origin.trace else call.origin or call
        new.outputs = [Tensor(new, t.value_index, t.dtype, t.dims) for t in op.outputs]
        graph._nodes[name] = new
        return new

    def connect_outputs(self) -> None:
        """What the call returned is what the body computes; if the body has effects, an Identity that waits for them."""
        rets = sorted((op for op in self.body if op.type == "_Retval"), key=lambda op: op.attrs["index"])
        self.results: list[tuple[Operation, Tensor]] = []
        for ret, old in zip(rets, self.call.outputs, strict=True):
            inner = self.tensors[ret.inputs[0]]
            if self.effects and inner.op not in self.effects:
                dtype = old.dtype.base_dtype
                name = f"{self.call.name}/{ret.name}"
                new = new_node(self.copier.graph, "Identity", name, [], {"T": dtype}, [dtype], [inner.dims], self.call.device, origin=self.call)
                new.outputs[0].handle_data = inner.handle_data
                self.results.append((new, inner))
                inner = new.outputs[0]
            self.copier.tensors[old] = inner

    def wire(self, tensors: Any, after: Any) -> None:
        call, start = self.call, self.start
        if start is not None:
            add_controls(start, [after(c) for c in call.control_inputs])
        for op, given in [*self.args, *self.results]:
            op.inputs = [tensors[given]]
            _consume(op)
        for op, _ in self.args:
            if call.control_inputs and start is not None:
                add_controls(op, [start])
            elif start is not None:
                add_controls(start, [op])
        for old, new in self.ops.items():
            if old.type == "_Arg":
                continue
            new.inputs = [tensors[self.tensors[t]] for t in old.inputs]
            _consume(new)
            add_controls(new, [self._control(c, tensors) for c in old.control_inputs])
            if start is not None and not new.inputs and not new.control_inputs:
                add_controls(new, [start])
        for op, _ in self.results:
            add_controls(op, self.effects)
        if self._done is not None:
            waits = [*self.effects, *[tensors[t].op for t in call.outputs]]
            add_controls(self._done, waits or ([start] if start is not None else [tensors[t].op for t in call.inputs]))

    def _control(self, old: Operation, tensors: Any) -> Operation:
        """What stands for a control input inside of the body; an argument may be the caller's own node."""
        return self.ops[old] if old in self.ops else tensors[self.tensors[old.outputs[0]]].op
