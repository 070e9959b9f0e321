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
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.graph import nest
from penstock.graph.composite import IndexedSlices, SparseTensor
from penstock.graph.convert import convert_to_tensor, convert_to_tensor_or_indexed_slices
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.raw import raw

# ---------------------------------------------------------------------------------------------------------------------
# What kind of node is it?


def is_switch(op: Operation) -> bool:
    return op.type in ("Switch", "RefSwitch")


def is_merge(op: Operation) -> bool:
    return op.type in ("Merge", "RefMerge")


def is_loop_enter(op: Operation) -> bool:
    return op.type in ("Enter", "RefEnter")


def is_loop_exit(op: Operation) -> bool:
    return op.type in ("Exit", "RefExit")


def is_loop_constant_enter(op: Operation) -> bool:
    """Whether `op` brings a loop invariant into its loop."""
    return is_loop_enter(op) and bool(op.attrs["is_constant"])


def is_loop_switch(op: Operation) -> bool:
    """Whether `op` is the Switch of a loop variable (and not of a `cond`)."""
    if not is_switch(op):
        return False
    context = op._control_flow_context
    return context is not None and context.IsWhileContext() and not is_cond_switch(op)


def is_cond_switch(op: Operation) -> bool:
    """Whether `op` routes a value into a branch: then all that consumes it is in a branch."""
    if not is_switch(op) or not op.outputs:
        return False
    for output in op.outputs:
        for consumer in output.consumers():
            context = consumer._control_flow_context
            if is_loop_enter(consumer) and context is not None:
                context = context.outer_context
            if context is None or not context.IsCondContext():
                return False
    return True


def loop_constant_enter(value: Tensor) -> Operation | None:
    """The Enter op through which loop invariant `value` came in, looking through ops that only pass it on."""
    op = value.op
    while op.type in ("Switch", "RefSwitch", "Identity", "RefIdentity"):
        op = op.inputs[0].op
    return op if is_loop_constant_enter(op) else None


def output_context(op: Operation) -> Any:
    """The context in which `op`'s results may be used: an Exit's results belong to what is around the loop."""
    context = op._control_flow_context
    if context is not None and is_loop_exit(op):
        context = context.outer_context
    return context


def while_context_of(op: Operation) -> Any:
    """The innermost loop that `op` is in, or None."""
    context = op._control_flow_context
    return None if context is None else context.GetWhileContext()


def containing_contexts(context: Any) -> list:
    """`context` and everything around it, innermost first."""
    result = []
    while context is not None:
        result.append(context)
        context = context.outer_context
    return result


def in_while_context(op: Operation) -> bool:
    return while_context_of(op) is not None


# ---------------------------------------------------------------------------------------------------------------------
# The primitives, for tensors and for values made of several tensors


def _is_ref(tensor: Tensor) -> bool:
    return tensor.dtype._is_ref_dtype


def _componentwise(value: Any, apply: Callable[[Tensor], Any]) -> list:
    return [apply(part) for part in nest.flatten(value, expand_composites=True)]


def switch(data: Any, pred: Any, name: str | None = None) -> tuple[Any, Any]:
    """(output_false, output_true): `data` leaves by the output that `pred` names; the other one is dead."""
    graph = get_default_graph()
    with graph.name_scope(name or "Switch") as scope:
        data = convert_to_tensor_or_indexed_slices(data, name="data")
        pred = convert_to_tensor(pred, name="pred")
        if isinstance(data, Tensor):
            outputs = raw.Switch(data, pred, name=scope)
            return outputs[0], outputs[1]
        pairs = _componentwise(data, lambda part: raw.Switch(part, pred))
        return (
            nest.pack_sequence_as(data, [p[0] for p in pairs], expand_composites=True),
            nest.pack_sequence_as(data, [p[1] for p in pairs], expand_composites=True),
        )


def switch_ref_or_tensor(data: Any, pred: Any, name: str = "Switch") -> tuple[Any, Any]:
    """Like `switch`, next to where `data` lives; a reference stays a reference."""
    data = convert_to_tensor_or_indexed_slices(data, name="data")
    with get_default_graph().colocate_with(data.op, ignore_existing=True):
        if isinstance(data, Tensor) and _is_ref(data):
            outputs = raw.RefSwitch(data, pred, name=name)
            return outputs[0], outputs[1]
        return switch(data, pred, name=name)


def merge(inputs: Iterable[Any], name: str | None = None) -> tuple[Any, Tensor]:
    """(value, index) of the first input that arrives alive."""
    inputs = list(inputs)
    if any(v is None for v in inputs):
        raise ValueError(f"At least one of the merge inputs is None: {inputs}")
    graph = get_default_graph()
    with graph.name_scope(name or "Merge") as scope:
        inputs = [_converted(v, as_ref=True) for v in inputs]
        if all(isinstance(v, Tensor) for v in inputs):
            op = raw.RefMerge if all(_is_ref(v) for v in inputs) else raw.Merge
            outputs = op(inputs, name=scope)
            return outputs[0], outputs[1]
        if any(isinstance(v, SparseTensor) for v in inputs):
            if not all(isinstance(v, SparseTensor) for v in inputs):
                raise TypeError(f"Type mismatch in the inputs of a merge: {inputs}")
        else:
            inputs = as_indexed_slices_list(inputs, optimize=False)
        columns = zip(*[nest.flatten(v, expand_composites=True) for v in inputs], strict=True)
        merged = [raw.Merge(list(column)) for column in columns]
        return nest.pack_sequence_as(inputs[0], [m[0] for m in merged], expand_composites=True), merged[0][1]


def _converted(value: Any, as_ref: bool = False) -> Any:
    if isinstance(value, (IndexedSlices, SparseTensor)):
        return value
    return convert_to_tensor(value, as_ref=as_ref)


def enter(data: Any, frame_name: str, is_constant: bool = False, parallel_iterations: int = 10, use_ref: bool = True,
          use_input_shape: bool = True, name: str | None = None) -> Any:  # fmt: skip
    """Makes `data` available in the frame called `frame_name`."""
    data = _converted(data, as_ref=True)
    if not isinstance(data, Tensor):
        parts = _componentwise(data, lambda t: enter(t, frame_name, is_constant, parallel_iterations, False, use_input_shape, name))
        return nest.pack_sequence_as(data, parts, expand_composites=True)
    op = raw.RefEnter if _is_ref(data) and use_ref else raw.Enter
    result = op(data, frame_name=frame_name, is_constant=is_constant, parallel_iterations=parallel_iterations, name=name)
    if use_input_shape:
        result.set_shape(data.shape)
    return result


def exit_(data: Any, name: str | None = None) -> Any:
    """Makes `data` available to the parent frame."""
    data = _converted(data, as_ref=True)
    if isinstance(data, Tensor):
        return (raw.RefExit if _is_ref(data) else raw.Exit)(data, name=name)
    return nest.pack_sequence_as(data, _componentwise(data, lambda t: exit_(t, name)), expand_composites=True)


def next_iteration(data: Any, name: str | None = None) -> Any:
    """Makes `data` available to the next iteration."""
    data = _converted(data, as_ref=True)
    if isinstance(data, Tensor):
        return (raw.RefNextIteration if _is_ref(data) else raw.NextIteration)(data, name=name)
    return nest.pack_sequence_as(data, _componentwise(data, lambda t: next_iteration(t, name)), expand_composites=True)


def identity(data: Any, name: str | None = None) -> Any:
    """A tensor (or composite) with the same contents; a reference stays a reference."""
    data = _converted(data, as_ref=True)
    if isinstance(data, Tensor):
        return (raw.RefIdentity if _is_ref(data) else raw.Identity)(data, name=name)
    return nest.pack_sequence_as(data, _componentwise(data, lambda t: identity(t, name)), expand_composites=True)


def as_indexed_slices(x: Any, optimize: bool = True) -> IndexedSlices:
    """A tensor as IndexedSlices that hold all of its rows."""
    if isinstance(x, IndexedSlices):
        return x
    if not isinstance(x, Tensor):
        raise TypeError(f"Not a Tensor or IndexedSlices: {type(x)}.")
    shape = dynamic_shape(x, optimize)
    rows = raw.StridedSlice(shape, [0], [1], [1], shrink_axis_mask=1)
    return IndexedSlices(x, raw.Range(0, rows, 1, name="range"), shape)


def as_indexed_slices_list(inputs: list[Any], optimize: bool = True) -> list[IndexedSlices]:
    """All as IndexedSlices, with indices of one type (int64 if any of them has it)."""
    from penstock import dtypes

    slices = [as_indexed_slices(v, optimize) for v in inputs]
    narrow = [s for s in slices if s.indices.dtype == dtypes.int32]
    if not narrow or len(narrow) == len(slices):
        return slices
    return [
        IndexedSlices(s.values, raw.Cast(s.indices, DstT=dtypes.int64), s.dense_shape) if s.indices.dtype == dtypes.int32 else s
        for s in slices
    ]


def dynamic_shape(x: Tensor, optimize: bool = True, name: str | None = None) -> Tensor:
    """tf.shape(x): a constant where the static shape allows it and `optimize` wants it, else a Shape op."""
    from penstock import dtypes
    from penstock.graph.constant import constant

    graph = get_default_graph()
    with graph.name_scope(name or "Shape") as scope:
        if optimize and x.dims is not None and None not in x.dims:
            import numpy as np

            return constant(np.array(x.dims, np.int32), dtypes.int32, name=scope)
        return raw.Shape(x, out_type=dtypes.int32, name=scope)


def with_dependencies(dependencies: Iterable[Any], output_tensor: Any, name: str | None = None) -> Any:
    """`output_tensor`, available only after `dependencies` have run."""
    graph = get_default_graph()
    with graph.name_scope(name or "control_dependency") as scope, graph.colocate_with(output_tensor), graph.control_dependencies(dependencies):
        return identity(output_tensor, name=scope)


# ---------------------------------------------------------------------------------------------------------------------
# Contexts


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
