"""FuncGraph: the graph in which the body of a function is built, and the Function that comes of it.

State of a FuncGraph
    outer_graph    the graph in which it was opened; tensors from there (or further out) may be used inside
    inputs         placeholders of the arguments, then of the captured tensors
    outputs        what the function returns
    captures       outer tensor -> what stands for it inside

A captured tensor becomes a further argument, which every call passes. With `capture_by_value`, the ops that compute it are
copied into the body instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.dtypes import DType
from penstock.graph.build import create_node
from penstock.graph.defaults import get_default_graph, graph_scope
from penstock.graph.function import Function
from penstock.graph.function_def import add_retval, argument_names, signature_text
from penstock.graph.ir import Dims, Graph, Operation, Tensor
from penstock.graph.opdef import OPS, ArgDef, OpDef
from penstock.graph.rewrite import Copier
from penstock.shapes import TensorShape


class FuncGraph(Graph):
    """A graph under construction that will be a function's body."""

    def __init__(
        self, name: str, outer_graph: Graph | None = None, capture_by_value: bool = False, allowed_stateful: Sequence[Operation] = ()
    ) -> None:
        super().__init__()
        outer = get_default_graph() if outer_graph is None else outer_graph
        self.name = name
        self.outer_graph = outer
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.captures: dict[Tensor, Tensor] = {}
        self.extra_inputs: list[Tensor] = []
        self.extra_args: list[Tensor] = []
        self.extra_vars: list[Any] = []
        self._capture_by_value = capture_by_value
        self._allowed_stateful = frozenset(allowed_stateful)
        # One library for all graphs of a nest: functions defined inside can be called from everywhere.
        self.functions = outer.functions
        self.gradient_functions = outer.gradient_functions
        self._producer = outer._producer

    @property
    def building_function(self) -> bool:
        return True

    def add_input(self, dtype: DType, dims: Dims = None, name: str | None = None, handle_data: Any = None) -> Tensor:
        """A further argument."""
        with graph_scope(self), self.control_dependencies(None):
            tensor = _placeholder(self, dtype, dims, name or "Placeholder")
        tensor.handle_data = handle_data
        self.inputs.append(tensor)
        return tensor

    def capture(self, tensor: Tensor, name: str | None = None) -> Tensor:
        """What stands for `tensor` inside: itself, if it belongs to this graph, else an argument or a copy."""
        if tensor.op.graph is self:
            return tensor
        found = self.captures.get(tensor)
        if found is not None:
            return found
        if self._capture_by_value:
            return self._copied(tensor)
        found = self.captures[tensor] = self.add_input(tensor.dtype.base_dtype, tensor.dims, name, tensor.handle_data)
        self.extra_inputs.append(tensor)
        self.extra_args.append(found)
        return found

    def _copied(self, tensor: Tensor) -> Tensor:
        """Copies the ops behind `tensor`, inputs first, without using the Python stack."""
        stack = [tensor.op]
        while stack:
            op = stack[-1]
            if op.outputs and op.outputs[0] in self.captures:
                stack.pop()
                continue
            if op.op_def.stateful and op not in self._allowed_stateful:
                raise ValueError(f"Cannot capture a stateful node (name:{op.name}, type:{op.type}) by value.")
            if op.type in ("Placeholder", "PlaceholderV2"):
                raise ValueError(f"Cannot capture a placeholder (name:{op.name}, type:{op.type}) by value.")
            missing = [t.op for t in op.inputs if t not in self.captures and t.op.graph is not self]
            if missing:
                stack += missing
                continue
            stack.pop()
            inputs = [self.captures.get(t, t) for t in op.inputs]
            with graph_scope(self), self.control_dependencies(None):
                copy = create_node(self, op.op_def, inputs, op.attrs, [t.dtype for t in op.outputs], self.unique_name(op.name))
            self.captures.update(zip(op.outputs, copy.outputs, strict=True))
        return self.captures[tensor]

    def outer_graphs(self) -> Iterator[Graph]:
        """The graphs around this one, innermost first."""
        graph: Graph | None = self.outer_graph
        while graph is not None:
            yield graph
            graph = getattr(graph, "outer_graph", None)


def _placeholder(graph: Graph, dtype: DType, dims: Dims, name: str) -> Tensor:
    attrs = {"dtype": dtype.base_dtype, "shape": TensorShape.from_dims(dims)}
    return create_node(graph, OPS["Placeholder"], [], attrs, [dtype.base_dtype], graph.unique_name(name)).outputs[0]


def build(
    graph: FuncGraph,
    function: Callable[..., Any],
    arg_names: Sequence[str],
    arg_dtypes: Sequence[DType],
    arg_dims: Sequence[Dims] | None = None,
    handles: Sequence[Any] | None = None,
) -> list[Tensor]:
    """Adds arguments, calls `function(*arguments)` in `graph` and makes what it returns (tensors) the results."""
    for i, (name, dtype) in enumerate(zip(arg_names, arg_dtypes, strict=True)):
        graph.add_input(dtype, arg_dims[i] if arg_dims else None, name, handles[i] if handles else None)
    return run_body(graph, function, graph.inputs)


def run_body(graph: FuncGraph, function: Callable[..., Any], args: Sequence[Tensor]) -> list[Tensor]:
    """Calls `function(*args)` in `graph` and makes what it returns the results."""
    from penstock.graph.convert import convert_to_tensor

    with graph_scope(graph):
        results = function(*list(args))
        if results is None:
            results = []
        elif not isinstance(results, (list, tuple)):
            results = [results]
        if any(r is None for r in results):
            raise ValueError(f"Function {graph.name} can not return None.")
        graph.outputs = [graph.capture(convert_to_tensor(r)) for r in results]
    return graph.outputs


def make_function(
    graph: FuncGraph,
    name: str | None = None,
    base_name: str = "",
    output_names: list[str] | None = None,
    attrs: dict[str, Any] | None = None,
    description: str = "",
    control_outputs: Sequence[Operation] = (),
    prune: bool = False,
) -> Function:
    """The Function whose body is `graph`. Without a `name`, the `base_name` gets a hash of the definition behind it. `prune` leaves out
    what no result needs."""
    if output_names and len(output_names) != len(graph.outputs):
        raise ValueError(f"Expected number of output names ({len(graph.outputs)}) to match the names given: {output_names}")
    arguments, results = argument_names([t.op.name for t in graph.inputs], [t.op.name for t in graph.outputs], output_names)
    body = _as_body(graph, results, control_outputs, _needed(graph, control_outputs) if prune else None)
    opdef = OpDef(
        name or base_name,
        [ArgDef(n, t.dtype.base_dtype) for n, t in zip(arguments, graph.inputs, strict=True)],
        [ArgDef(n, t.dtype.base_dtype) for n, t in zip(results, graph.outputs, strict=True)],
        {},
    )
    opdef.stateful = any(op.op_def.stateful for op in body if op.type not in ("_Arg", "_Retval"))
    function = Function(opdef.name, opdef, dict(attrs or {}), body=body, library=graph.functions)
    function.description = description
    if name is None:
        function.name = opdef.name = f"{base_name}_{_fingerprint(function)}"
        function._proto = None
    opdef.signature = signature_text(opdef)
    return function


def _fingerprint(function: Function) -> str:
    """Eleven characters that depend on the definition only, so that equal functions get equal names."""
    import hashlib

    digest = hashlib.sha256(function.to_proto().SerializeToString(deterministic=True)).digest()
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    number = int.from_bytes(digest[:9], "big")
    text = ""
    for _ in range(11):
        number, rest = divmod(number, len(letters))
        text += letters[rest]
    return text


def _needed(graph: FuncGraph, control_outputs: Sequence[Operation]) -> set[Operation]:
    needed = {t.op for t in graph.inputs}
    stack = [t.op for t in graph.outputs] + list(control_outputs)
    while stack:
        op = stack.pop()
        if op not in needed:
            needed.add(op)
            stack.extend(t.op for t in op.inputs)
            stack.extend(op.control_inputs)
    return needed


def _as_body(graph: FuncGraph, results: list[str], control_outputs: Sequence[Operation], needed: set[Operation] | None) -> Graph:
    """A copy of `graph` in the form the runtime wants: `_Arg` nodes for placeholders, `_Retval` nodes for results."""
    copier = Copier(graph)
    body = copier.graph
    index_of = {t.op: i for i, t in enumerate(graph.inputs)}
    for op in graph:
        index = index_of.get(op)
        if needed is not None and op not in needed:
            continue
        if index is None:
            copier.clone(op)
            continue
        tensor = op.outputs[0]
        attrs = {"T": tensor.dtype, "index": index}
        new = body.add_node(OPS["_Arg"], [], attrs, op.name, [tensor.dtype], dims=[tensor.dims])
        new.origin = op
        new.outputs[0].handle_data = tensor.handle_data
        copier.ops[op] = new
        copier.tensors[tensor] = new.outputs[0]
    copier.wire()
    body._names_in_use.update((op.name.lower(), 1) for op in body)
    for i, (tensor, name) in enumerate(zip(graph.outputs, results, strict=True)):
        add_retval(body, copier.tensors[tensor], i, f"{name}_RetVal")
    body._control_ret = [copier.ops[op] for op in control_outputs]  # type: ignore[attr-defined]
    return body
