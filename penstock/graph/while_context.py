"""WhileContext: building a TF1 loop out of Enter, Merge, LoopCond, Switch, NextIteration and Exit.

One iteration of a loop variable:

    Enter -> Merge -> Switch -> Identity -> (body) -> NextIteration -> back to Merge
                        |
                        +-> Exit

`LoopCond` drives all Switches. Values from outside that the loop does not change are brought in by constant Enters.

State, besides that of every context
    pivot_for_pred     the first Merge: what ops of the condition wait for
    pivot_for_body     the first Identity: what ops of the body wait for
    pivot              LoopCond's output
    loop_enters, loop_exits   the Enters of the loop variables and what leaves the loop, gradients' counters included
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import dtypes, errors
from penstock.graph import nest
from penstock.graph.composite import IndexedSlices, SparseTensor
from penstock.graph.contexts import (
    ControlFlowContext,
    _append_context,
    _prefixed,
    _required,
    _strip,
    flow_of,
    read_nested,
    with_flows,
)
from penstock.graph.control_flow import (
    containing_contexts,
    enter,
    exit_,
    identity,
    is_loop_constant_enter,
    is_loop_exit,
    merge,
    next_iteration,
    switch_ref_or_tensor,
    while_context_of,
)
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Dims, Operation, Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape, dims_of

_SHAPE_READERS = {"Shape", "Size", "Rank"}


class WhileContext(ControlFlowContext):
    """A loop under construction."""

    def __init__(
        self,
        maximum_iterations: Any = None,
        parallel_iterations: int = 10,
        back_prop: bool = True,
        swap_memory: bool = False,
        name: str = "while_context",
        grad_state: Any = None,
        context_name: str | None = None,
    ) -> None:
        super().__init__(context_name or get_default_graph().unique_name(name))
        if not isinstance(parallel_iterations, int) or isinstance(parallel_iterations, bool) or parallel_iterations <= 0:
            raise ValueError(f"'parallel_iterations' must be a positive integer: {parallel_iterations}")
        self._maximum_iterations = maximum_iterations
        self._parallel_iterations = parallel_iterations
        self._back_prop = back_prop
        self._swap_memory = swap_memory
        self._grad_state = grad_state
        self.pivot_for_pred: Tensor | None = None
        self.pivot_for_body: Tensor | None = None
        self.pivot: Tensor | None = None
        self.loop_enters: list[Tensor] = []
        self.loop_exits: list[Tensor] = []

    @property
    def maximum_iterations(self) -> Any:
        return self._maximum_iterations

    @property
    def parallel_iterations(self) -> int:
        return self._parallel_iterations

    @property
    def back_prop(self) -> bool:
        return self._back_prop

    @property
    def swap_memory(self) -> bool:
        return self._swap_memory

    @property
    def grad_state(self) -> Any:
        return self._grad_state

    def IsWhileContext(self) -> bool:
        return True

    def GetWhileContext(self) -> WhileContext:
        return self

    def GetControlPivot(self) -> Tensor | None:
        return self.pivot_for_body if self.pivot_for_body is not None else self.pivot_for_pred

    # -- ops and values ----------------------------------------------------------------------------------------------------

    def AddValue(self, val: Tensor) -> Tensor:
        """What stands for `val` in this loop: itself, a constant Enter of it, or (in a gradient loop) its saved history."""
        if val in self._values or val.op._control_flow_context is self:
            return self._external_values.get(val, val)
        self._values.add(val)
        saved = self._saved_value(val)
        if saved is not None:
            self._external_values[val] = saved
            return saved
        result = val if self._outer_context is None else self._outer_context.AddValue(val)
        graph = val.graph
        with graph.control_dependencies(None):
            # control_dependencies(None) also leaves the context: the Enter is put into this one by hand.
            entered = enter(result, self._name, is_constant=True, parallel_iterations=self._parallel_iterations)
        graph.prevent_feeding(entered)
        if self._outer_context is not None:
            self._outer_context.AddInnerOp(entered.op)
        self._fix_enters([entered])
        self._values.add(entered)
        self._external_values[val] = entered
        return entered

    def _saved_value(self, val: Tensor) -> Tensor | None:
        """In a gradient loop, the value that `val` had in the forward iteration that this one belongs to."""
        current = get_default_graph()._control_flow_context
        loop = None if current is None else current.GetWhileContext()
        if loop is None or loop.grad_state is None:
            return None
        forward = while_context_of(val.op)
        if is_loop_exit(val.op):
            forward = forward.outer_context
            if forward is not None:
                forward = forward.GetWhileContext()
        if forward is None or forward is not loop.grad_state.forward_context:
            return None
        return loop.grad_state.real_value(val)

    def AddOp(self, op: Operation) -> None:
        # A gradient that only wants the shape of a forward value: read the shape in the forward loop, so that the history
        # keeps shapes and not whole tensors.
        if op.type in _SHAPE_READERS:
            current = get_default_graph()._control_flow_context
            loop = None if current is None else current.GetWhileContext()
            if loop is not None and loop.grad_state is not None:
                source = op.inputs[0].op
                if while_context_of(source) is loop.grad_state.forward_context:
                    context = source._control_flow_context
                    op._control_flow_context = context
                    context._add_op(op)
                    return
        self._add_op(op)

    def _add_op(self, op: Operation) -> None:
        if not op.inputs:
            internal, external = self._remove_external_control_edges(op)
            if not internal:
                pivot = self.GetControlPivot()
                if pivot is not None:
                    op._add_control_input(pivot.op)
        else:
            self._route_inputs(op)
            _, external = self._remove_external_control_edges(op)
            self._maybe_wait_for_pivot(op)
        self._values.update(op.outputs)
        if external:
            self._pull_in(op, external)
        self._hide(op)

    def _pull_in(self, op: Operation, external: list[Operation]) -> None:
        """Control inputs from outside become data: an Identity in here reads their first output through an Enter."""
        graph = op.graph
        old = graph._name_stack
        if op.type != "Const":  # constants have no scope of their own
            graph._name_stack = op.name
        try:
            with graph.control_dependencies(None):
                self.Enter()
                pulled = [raw.Identity(source.outputs[0]).op for source in external if source.outputs]
                self.Exit()
        finally:
            graph._name_stack = old
        op._add_control_inputs(pulled)

    def _maybe_wait_for_pivot(self, op: Operation) -> None:
        """An op that reads loop invariants only would run before the iteration is known to happen: it waits for the pivot."""
        if op.control_inputs:
            return
        is_call = op.graph._is_function(op.type) or op.type == "SymbolicGradient"
        if is_call or all(is_loop_constant_enter(value.op) for value in op.inputs):
            pivot = self.GetControlPivot()
            if pivot is not None:
                op._add_control_input(pivot.op)

    def _fix_enters(self, enters: list[Tensor]) -> None:
        """Puts Enter ops into this context, and drops control inputs that are not from around the loop."""
        graph = get_default_graph()
        for tensor in enters:
            op = tensor.op
            outside = [source for source in graph_control_inputs(graph, op) if self._is_in_outer_context(source)]
            op._control_flow_context = self
            op._add_control_inputs(outside)
            graph._record_op_seen(op)

    def _initialize_values(self, values: list[Tensor]) -> None:
        self._values = set(values)

    # -- building ------------------------------------------------------------------------------------------------------------

    def BuildLoop(self, pred: Callable[..., Any], body: Callable[..., Any], loop_vars: Any, shape_invariants: Any, return_same_structure: bool) -> Any:
        """Adds the loop to the graph and returns its results in the structure that `body` returns."""
        flat = [flow_of(v) for v in nest.flatten(loop_vars)]
        flat = [v if isinstance(v, (IndexedSlices, SparseTensor)) else convert_to_tensor(v) for v in flat]
        invariants = None
        if shape_invariants is not None:
            invariants = flat_invariants(shape_invariants)
        tensors = nest.flatten(flat, expand_composites=True)
        self.Enter()
        try:
            original_body_result, exits = self._build(pred, body, loop_vars, flat, tensors, invariants)
        finally:
            self.Exit()
        results = with_flows(nest.flatten(original_body_result), _repack(flat, exits))
        packed = nest.pack_sequence_as(original_body_result, results)
        if return_same_structure:
            return packed
        return packed[0] if len(nest.flatten(flat, expand_composites=False)) == 1 and len(packed) == 1 else packed

    def _build(self, pred: Any, body: Any, original: Any, flat: list[Any], tensors: list[Tensor], invariants: list[Any] | None) -> tuple[Any, list[Tensor]]:
        graph = get_default_graph()
        # The loop variables themselves are known here, so that contexts around are the ones to route them in.
        self._initialize_values(tensors)
        outer = self._outer_context
        real = tensors if outer is None else [outer.AddValue(t) for t in tensors]
        with graph.control_dependencies(None):
            enters = [
                enter(t, self._name, is_constant=False, parallel_iterations=self._parallel_iterations, use_input_shape=invariants is None)
                for t in real
            ]
            for tensor in enters:
                graph.prevent_feeding(tensor)
        pivot = next((p for p in (c.GetControlPivot() for c in containing_contexts(outer)) if p is not None), None)
        for tensor in enters:
            if pivot is not None and is_loop_constant_enter(tensor.op.inputs[0].op):
                tensor.op._add_control_input(pivot.op)
        _set_invariants(flat, enters, invariants)
        self._fix_enters(enters)
        self._initialize_values(enters)
        self.loop_enters = enters
        merges = [merge([t, t])[0] for t in enters]
        self.pivot_for_pred = merges[0]

        packed = nest.pack_sequence_as(original, with_flows(nest.flatten(original), _repack(flat, merges)))
        condition = convert_to_tensor(pred(*packed))
        self.pivot = raw.LoopCond(condition, name="LoopCond")
        switches = [switch_ref_or_tensor(t, self.pivot) for t in merges]

        inside = [identity(pair[1]) for pair in switches]
        self.pivot_for_body = inside[0]
        packed = nest.pack_sequence_as(original, with_flows(nest.flatten(original), _repack(flat, inside)))
        result = body(*packed)
        if not nest.is_nested(result):
            result = [result]
        # A body may return a list where the loop variables came as a tuple: only what is further in must agree.
        nest.assert_same_structure(list(packed), list(result), expand_composites=True)
        body_result = result
        leaves = [flow_of(v) for v in nest.flatten(result)]
        leaves = [v if isinstance(v, (IndexedSlices, SparseTensor)) else convert_to_tensor(v) for v in leaves]
        produced = nest.flatten(leaves, expand_composites=True)
        if len(produced) != len(merges):
            raise ValueError(f"The loop body must return {len(merges)} values to match the loop variables, it returned {len(produced)}.")
        for merged, value in zip(merges, produced, strict=True):
            add_next_and_back_edge(merged, value)
        exits = [exit_(pair[0]) for pair in switches]
        self.loop_exits = exits
        self.ExitResult(exits)
        return body_result, exits

    # -- protos --------------------------------------------------------------------------------------------------------------

    def to_proto(self, export_scope: str | None = None) -> Any:
        """This context as a WhileContextDef; None if it is outside of `export_scope`."""
        from penstock.formats import protos

        if export_scope is not None and not self.name.startswith(export_scope):
            return None
        proto = protos.WhileContextDef(
            context_name=_strip(self.name, export_scope),
            parallel_iterations=self._parallel_iterations,
            back_prop=self._back_prop,
            swap_memory=self._swap_memory,
            pivot_for_pred_name=_strip(self.pivot_for_pred.name, export_scope),  # type: ignore[union-attr]
            pivot_for_body_name=_strip(self.pivot_for_body.name, export_scope),  # type: ignore[union-attr]
            pivot_name=_strip(self.pivot.name, export_scope),  # type: ignore[union-attr]
        )
        if isinstance(self._maximum_iterations, Tensor):
            proto.maximum_iterations_name = _strip(self._maximum_iterations.name, export_scope)
        proto.loop_exit_names.extend(_strip(t.name, export_scope) for t in self.loop_exits)
        proto.loop_enter_names.extend(_strip(t.name, export_scope) for t in self.loop_enters)
        self._values_def(proto.values_def, export_scope)
        for nested in self._nested_contexts:
            _append_context(proto.nested_contexts.add(), nested, export_scope)
        return proto

    @classmethod
    def from_proto(cls, context_def: Any, import_scope: str | None = None) -> WhileContext:
        """The context that a WhileContextDef describes; its nodes must be in the default graph already."""
        graph = get_default_graph()
        limit = context_def.maximum_iterations_name
        result = cls(
            _required(graph, limit, import_scope) if limit else None,
            context_def.parallel_iterations,
            context_def.back_prop,
            context_def.swap_memory,
            context_name=_prefixed(context_def.context_name, import_scope),
        )
        result.pivot_for_pred = _required(graph, context_def.pivot_for_pred_name, import_scope)
        result.pivot_for_body = _required(graph, context_def.pivot_for_body_name, import_scope)
        result.pivot = _required(graph, context_def.pivot_name, import_scope)
        result.loop_exits = [_required(graph, name, import_scope) for name in context_def.loop_exit_names]
        result.loop_enters = [_required(graph, name, import_scope) for name in context_def.loop_enter_names]
        result._read_values_def(context_def.values_def, graph, import_scope)
        if import_scope:
            # Frames are told apart by name: the imported loop is another loop.
            for tensor in [*result._values, *result.loop_enters]:
                op = tensor.op
                if op.type in ("Enter", "RefEnter") and op._control_flow_context is result:
                    op._set_attr("frame_name", result._name.encode())
        read_nested(result, context_def.nested_contexts, graph, import_scope)
        return result


def graph_control_inputs(graph: Any, op: Operation) -> list[Operation]:
    """What the open `control_dependencies` scopes would make `op` wait for."""
    return graph._control_inputs_for([value.op for value in op.inputs]) if graph._controllers else []


def add_next_and_back_edge(merged: Any, value: Any, enforce_shape_invariant: bool = True) -> Any:
    """Adds NextIteration(value) and makes it the second input of the Merge."""
    if isinstance(merged, Tensor):
        following = next_iteration(convert_to_tensor(value))
        want, got = merged.dtype.base_dtype, following.dtype.base_dtype
        if want is not got:
            raise errors.InvalidArgumentError(
                f"Input 1 of node {merged.op.name} was passed {_runtime_name(got)} from {following.name} incompatible with expected {_runtime_name(want)}."
            )
        if enforce_shape_invariant:
            check_shape_invariant(merged, following)
        merged.op._update_input(1, following)
        return following
    parts = [
        add_next_and_back_edge(m, v, enforce_shape_invariant)
        for m, v in zip(nest.flatten(merged, expand_composites=True), nest.flatten(value, expand_composites=True), strict=True)
    ]
    return nest.pack_sequence_as(merged, parts, expand_composites=True)


def _runtime_name(dtype: dtypes.DType) -> str:
    """The type as TF's runtime writes it."""
    return {"float32": "float", "float64": "double", "float16": "half"}.get(dtype.name, dtype.name)


def _at_most(narrow: Dims, wide: Dims) -> bool:
    """Whether every shape that `narrow` allows is allowed by `wide`."""
    if wide is None:
        return True
    if narrow is None or len(narrow) != len(wide):
        return False
    return all(w is None or n == w for n, w in zip(narrow, wide, strict=True))


def check_shape_invariant(merged: Tensor, following: Tensor) -> None:
    """ValueError, in TF's words, if a loop variable may change its shape from one iteration to the next."""
    if not _at_most(following.dims, merged.dims):
        entered = merged.op.inputs[0].op
        name = entered.inputs[0].name if entered.type in ("Enter", "RefEnter") else merged.name
        raise ValueError(
            f"Input tensor '{name}' enters the loop with shape {merged.shape}, but has shape {following.shape} after one iteration. To "
            "allow the shape to vary across iterations, use the `shape_invariants` argument of tf.while_loop to specify a less-specific "
            "shape."
        )


def flat_invariants(shape_invariants: Any) -> list[Any]:
    """Leaves of a structure of shapes: TensorShapes (and objects that hold one) count as leaves, and so does None."""
    result: list[Any] = []

    def walk(value: Any) -> None:
        if isinstance(value, TensorShape) or value is None or not nest.is_nested(value):
            result.append(value)
            return
        for child in nest._children(value):
            walk(child)

    walk(shape_invariants)
    return result


def _set_invariants(flat: list[Any], enters: list[Tensor], invariants: list[Any] | None) -> None:
    """Gives each Enter the shape that holds for all iterations."""
    if invariants is None:
        return
    if len(invariants) != len(flat):
        raise ValueError(f"`shape_invariants` must have one shape for each of the {len(flat)} loop variables, it has {len(invariants)}.")
    position = 0
    for value, invariant in zip(flat, invariants, strict=True):
        parts = nest.flatten(value, expand_composites=True)
        _set_one(value, enters[position : position + len(parts)], TensorShape(invariant))
        position += len(parts)


def _set_one(value: Any, enters: list[Tensor], invariant: TensorShape) -> None:
    dims = dims_of(invariant)
    if isinstance(value, Tensor):
        if not _at_most(value.dims, dims):
            raise ValueError(
                f"The shape invariant specified for {value.name} is not compatible with the initial shape of the loop variable. It enters "
                f"the loop with shape {value.shape}, but the specified shape invariant is {invariant}."
            )
        enters[0].set_shape(invariant)
        return
    if isinstance(value, IndexedSlices):
        if not _at_most(value.values.dims, dims):
            raise ValueError(
                f"The shape invariant specified for {value.values.name} is not compatible with the initial shape of the values tensor of "
                f"these IndexedSlices. It enters the loop with shape {value.values.shape}, but the specified shape invariant is {invariant}."
            )
        enters[0].set_shape(invariant)
        enters[1].set_shape(TensorShape([None if dims is None else dims[0]]))
        if len(enters) > 2:
            enters[2].set_shape(TensorShape([None if dims is None else len(dims)]))
        return
    rank = None if dims is None else len(dims)
    enters[0].set_shape(TensorShape([None, rank]))
    enters[1].set_shape(TensorShape([None]))
    enters[2].set_shape(TensorShape([rank]))


def _repack(flat: list[Any], tensors: list[Tensor]) -> list[Any]:
    """Tensors back in the form of `flat`: composites where there were composites."""
    return nest.pack_sequence_as(flat, tensors, expand_composites=True)
