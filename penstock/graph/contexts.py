"""Control-flow contexts: what decides how a new op reaches values from outside of the `cond` branch or loop it is made in.

While a branch or a loop body is being built, its context is the graph's current one, and every new node passes through
`AddOp`: inputs from outside are routed in through a Switch (branch) or an Enter (loop), control inputs from outside are
dropped or pulled in, and nodes without inputs wait for the context's pivot, so that they only run when the branch is
taken or the iteration begins.

State of a context
    outer_context      the context this one is nested in, or None
    values             tensors that may be used here as they are: made here, made further in, or routed in before
    external_values    tensor from outside -> the tensor to use here in its place
    grad_state         in the loop that computes a loop's gradient: the state of that pairing (else None)

`WhileContext` stands in while_context.py. Names, collections and protos are TF1's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from penstock.graph import nest
from penstock.graph.composite import IndexedSlices, SparseTensor
from penstock.graph.control_flow import (
    containing_contexts,
    is_loop_exit,
    output_context,
    switch_ref_or_tensor,
    with_dependencies,
)
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Graph, Operation, Tensor


class ControlFlowContext:
    """What CondContext and WhileContext share."""

    def __init__(self, name: str) -> None:
        graph = get_default_graph()
        self._graph = graph
        self._name = name
        self._outer_context: Any = graph._control_flow_context
        self._nested_contexts: list[Any] = []
        self._context_stack: list[Any] = []
        self._values: set[Tensor] = set()
        self._external_values: dict[Tensor, Tensor] = {}
        if self._outer_context is not None:
            self._outer_context._nested_contexts.append(self)

    @property
    def name(self) -> str:
        return self._name

    @property
    def graph(self) -> Graph:
        return self._graph

    @property
    def outer_context(self) -> Any:
        return self._outer_context

    @property
    def grad_state(self) -> Any:
        return None

    @property
    def back_prop(self) -> bool:
        return True

    def IsWhileContext(self) -> bool:
        return False

    def IsCondContext(self) -> bool:
        return False

    def GetWhileContext(self) -> Any:
        """The innermost loop around, this context included."""
        return None if self._outer_context is None else self._outer_context.GetWhileContext()

    def GetControlPivot(self) -> Tensor | None:
        return None

    # -- entering and leaving ------------------------------------------------------------------------------------------

    def Enter(self) -> None:
        """Makes this context the graph's current one."""
        graph = get_default_graph()
        self._context_stack.append(graph._control_flow_context)
        graph._control_flow_context = self

    def Exit(self) -> None:
        """Goes back to the context that was current before `Enter`."""
        get_default_graph()._control_flow_context = self._context_stack.pop()

    def __enter__(self) -> Any:
        self.Enter()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.Exit()

    def AddName(self, value: Tensor) -> None:
        """Declares that `value` may be used here as it is."""
        self._values.add(value)

    def ExitResult(self, result: Any) -> None:
        """Makes results of this context known to the one around it."""
        outer = self._outer_context
        if outer is not None:
            for value in nest.flatten(result, expand_composites=True):
                outer.AddName(value)

    # -- ops and values --------------------------------------------------------------------------------------------------

    def AddValue(self, val: Tensor) -> Tensor:
        raise NotImplementedError

    def AddOp(self, op: Operation) -> None:
        self._add_op(op)

    def AddInnerOp(self, op: Operation) -> None:
        """Notes an op that was added to a context inside of this one."""
        if self._outer_context is not None:
            self._outer_context.AddInnerOp(op)

    def _add_op(self, op: Operation) -> None:
        raise NotImplementedError

    def _route_inputs(self, op: Operation) -> None:
        """Replaces inputs from outside by what stands for them in here. Nodes this takes are named `op/...`."""
        graph = op.graph
        old = graph._name_stack
        graph._name_stack = op.name
        try:
            for index, value in enumerate(op.inputs):
                real = self.AddValue(value)
                if real is not value:
                    op._update_input(index, real)
        finally:
            graph._name_stack = old

    def _remove_external_control_edges(self, op: Operation) -> tuple[list[Operation], list[Operation]]:
        """Drops control inputs from outside of the loop around; (those kept, those dropped)."""
        loop = self.GetWhileContext()
        if loop is None:
            return list(op.control_inputs), []
        internal, external = [], []
        for source in op.control_inputs:
            context = output_context(source)
            (internal if context is not None and context.GetWhileContext() is loop else external).append(source)
        if external:
            op._remove_all_control_inputs()
            op._add_control_inputs(internal)
        return internal, external

    def _hide(self, op: Operation) -> None:
        """Values inside of a context can be dead or belong to many iterations: they can be neither fetched nor fed."""
        if self._outer_context is not None or not is_loop_exit(op):
            graph = op.graph
            graph.prevent_fetching(op)
            for output in op.outputs:
                graph.prevent_feeding(output)
        if self._outer_context is not None:
            self._outer_context.AddInnerOp(op)

    def _is_in_outer_context(self, op: Operation) -> bool:
        context = output_context(op)
        outer = self._outer_context
        while outer is not context:
            if outer is None:
                return False
            outer = outer.outer_context
        return True

    # -- protos ----------------------------------------------------------------------------------------------------------

    def _values_def(self, proto: Any, export_scope: str | None) -> None:
        """Fills a ValuesDef."""
        proto.values.extend(sorted(_strip(v.name, export_scope) for v in self._values))
        for outside, inside in self._external_values.items():
            proto.external_values[_strip(outside.name, export_scope)] = _strip(inside.name, export_scope)

    def _read_values_def(self, proto: Any, graph: Graph, import_scope: str | None) -> None:
        self._values = set()
        self._external_values = {}
        for name in proto.values:
            tensor = _lookup(graph, name, import_scope)
            if tensor is not None:
                self._values.add(tensor)
        for outside, inside in proto.external_values.items():
            key, value = _lookup(graph, outside, import_scope), _lookup(graph, inside, import_scope)
            if key is not None and value is not None:
                self._external_values[key] = value
        # Ops whose outputs are known here, and are not stood for by something else, belong to this context.
        for tensor in self._values:
            if tensor not in self._external_values:
                tensor.op._control_flow_context = self

    @contextlib.contextmanager
    def _reading(self, graph: Graph) -> Iterator[None]:
        """The surroundings in which nested contexts are read back."""
        old = graph._control_flow_context
        graph._control_flow_context = self
        try:
            yield
        finally:
            graph._control_flow_context = old

    def __repr__(self) -> str:
        return f"<{type(self).__name__} '{self._name}'>"


def _strip(name: str, scope: str | None) -> str:
    if not scope:
        return name
    prefix = scope if scope.endswith("/") else scope + "/"
    return name[len(prefix) :] if name.startswith(prefix) else name


def _prefixed(name: str, scope: str | None) -> str:
    return name if not scope else f"{scope.rstrip('/')}/{name}"


def _lookup(graph: Graph, name: str, scope: str | None) -> Tensor | None:
    op_name, _, index = _prefixed(name, scope).partition(":")
    op = graph.find(op_name)
    return None if op is None or int(index or 0) >= len(op.outputs) else op.outputs[int(index or 0)]


class CondContext(ControlFlowContext):
    """One branch of a `cond`: values from outside come in through a Switch on `pred`."""

    def __init__(self, pred: Tensor | None = None, pivot: Tensor | None = None, branch: int | None = None, name: str | None = None) -> None:
        super().__init__(name or get_default_graph().unique_name("cond_text"))
        self._pred = pred
        self._pivot = pivot
        self._branch = branch
        if pred is None or pivot is None:
            return
        self._values.add(pred)
        self._external_values[pred] = pred
        self._values.add(pivot)
        pivot.op._control_flow_context = self

    @property
    def pred(self) -> Tensor:
        return self._pred  # type: ignore[return-value]

    @property
    def pivot(self) -> Tensor:
        return self._pivot  # type: ignore[return-value]

    @property
    def branch(self) -> int:
        """0: runs when `pred` is false; 1: when it is true."""
        return self._branch  # type: ignore[return-value]

    @property
    def grad_state(self) -> Any:
        loop = self.GetWhileContext()
        return None if loop is None else loop.grad_state

    @property
    def back_prop(self) -> bool:
        loop = self.GetWhileContext()
        return False if loop is None else loop.back_prop

    def IsCondContext(self) -> bool:
        return True

    def GetControlPivot(self) -> Tensor:
        return self.pivot

    def AddValue(self, val: Tensor) -> Tensor:
        """What stands for `val` in this branch."""
        if val in self._values:
            return self._external_values.get(val, val)
        result = val
        self._values.add(val)
        if self._outer_context is not None:
            result = self._outer_context.AddValue(val)
            self._values.add(result)
            self._external_values[result] = result
        with val.graph.control_dependencies(None):
            result = switch_ref_or_tensor(result, self.pred)[self.branch]
            if self._outer_context is not None:
                self._outer_context.AddInnerOp(result.op)
        result.op.graph.prevent_fetching(result.op)
        result.op._control_flow_context = self
        # Contexts around know the value too: an op moved there later must not route it in again.
        for context in containing_contexts(self):
            context._values.add(result)
        self._external_values[val] = result
        return result

    def _add_op(self, op: Operation) -> None:
        if not op.inputs:
            self._remove_external_control_edges(op)
            if not any(is_in_context(source, self) for source in op.control_inputs):
                op._add_control_input(self.pivot.op)
        else:
            self._route_inputs(op)
            self._remove_external_control_edges(op)
            if op.graph._is_function(op.type) or op.type == "SymbolicGradient":
                op._add_control_input(self.pivot.op)
        for context in containing_contexts(self):
            context._values.update(op.outputs)
        self._hide(op)

    # -- results of a branch -----------------------------------------------------------------------------------------------

    def _process_output(self, val: Tensor) -> Tensor:
        """A branch's result; one that comes from outside passes a Switch, so that it is dead when the branch is not taken."""
        if val in self._values:
            return self._external_values.get(val, val)
        real = val
        self._values.add(val)
        if self._outer_context is not None:
            real = self._outer_context.AddValue(val)
            self._values.add(real)
            self._external_values[real] = real
        real = switch_ref_or_tensor(real, self.pred)[self.branch]
        self._external_values[val] = real
        return real

    def _build_result(self, value: Any) -> Any:
        if isinstance(value, Operation):
            # The pivot stands for an op without a value.
            return with_dependencies([value], self.pivot)
        if isinstance(value, (IndexedSlices, SparseTensor)):
            parts = [self._process_output(t) for t in nest.flatten(value, expand_composites=True)]
            return nest.pack_sequence_as(value, parts, expand_composites=True)
        return self._process_output(convert_to_tensor(value))

    def BuildCondBranch(self, fn: Callable[[], Any]) -> tuple[Any, list | None]:
        """(what `fn` returned, its leaves as tensors of this branch); TensorArrays are stood for by their flows."""
        original = fn()
        if original is None:
            return None, None
        leaves = nest.flatten(original, expand_composites=True)
        return original, [self._build_result(flow_of(leaf)) for leaf in leaves]

    # -- protos ------------------------------------------------------------------------------------------------------------

    def to_proto(self, export_scope: str | None = None) -> Any:
        """This context as a CondContextDef; None if it is outside of `export_scope`."""
        from penstock.formats import protos

        if export_scope is not None and not self.name.startswith(export_scope):
            return None
        proto = protos.CondContextDef(
            context_name=_strip(self.name, export_scope),
            pred_name=_strip(self.pred.name, export_scope),
            pivot_name=_strip(self.pivot.name, export_scope),
            branch=self.branch,
        )
        self._values_def(proto.values_def, export_scope)
        for nested in self._nested_contexts:
            _append_context(proto.nested_contexts.add(), nested, export_scope)
        return proto

    @classmethod
    def from_proto(cls, context_def: Any, import_scope: str | None = None) -> CondContext:
        """The context that a CondContextDef describes; its nodes must be in the default graph already."""
        graph = get_default_graph()
        result = cls(name=_prefixed(context_def.context_name, import_scope))
        result._pred = _required(graph, context_def.pred_name, import_scope)
        result._pivot = _required(graph, context_def.pivot_name, import_scope)
        result._branch = context_def.branch
        result._read_values_def(context_def.values_def, graph, import_scope)
        read_nested(result, context_def.nested_contexts, graph, import_scope)
        return result


def _required(graph: Graph, name: str, scope: str | None) -> Tensor:
    return graph.as_graph_element(_prefixed(name, scope), allow_operation=False)


def is_in_context(op: Operation, context: Any) -> bool:
    """Whether `op` was made in `context` or in one nested inside of it."""
    return context in containing_contexts(op._control_flow_context)


def flow_of(value: Any) -> Any:
    """What carries `value` through control flow: a TensorArray's flow, else the value itself."""
    return value.flow if _is_tensor_array(value) else value


def _is_tensor_array(value: Any) -> bool:
    return hasattr(value, "flow") and hasattr(value, "handle") and not isinstance(value, Tensor)


def with_flows(originals: list[Any], flows: list[Any]) -> list[Any]:
    """Where `originals` has a TensorArray, the same array with the new flow; elsewhere the new value."""
    return [
        original._with_flow(flow) if _is_tensor_array(original) else flow for original, flow in zip(originals, flows, strict=True)
    ]


def _append_context(row: Any, context: Any, export_scope: str | None) -> None:
    proto = context.to_proto(export_scope)
    if proto is None:
        return
    (row.cond_ctxt if context.IsCondContext() else row.while_ctxt).CopyFrom(proto)


def read_nested(context: Any, rows: Any, graph: Graph, import_scope: str | None) -> None:
    """Reads the contexts nested in `context` back from its proto."""
    from penstock.graph.while_context import WhileContext

    with context._reading(graph):
        for row in rows:
            if row.WhichOneof("ctxt") == "cond_ctxt":
                CondContext.from_proto(row.cond_ctxt, import_scope)
            elif row.WhichOneof("ctxt") == "while_ctxt":
                WhileContext.from_proto(row.while_ctxt, import_scope)
