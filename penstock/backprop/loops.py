"""What the gradient of a loop needs besides the ops' rules: counters, stacks, and the loop that runs backwards.

The gradient of a forward loop is another loop that runs as many iterations. The forward loop counts its iterations
(`f_count`); the gradient loop counts down from there (`b_count`). A forward value that a gradient wants is pushed on a stack
(`f_acc`) in each forward iteration and popped in the gradient's iteration. Control edges keep pushes and pops in order:

    forward:  f_count + 1 -> push ... -> f_count's NextIteration
    gradient: b_count - 1 -> pop  ... -> (b_sync) -> b_count's NextIteration

`GradLoopState` pairs one forward loop with its gradient loop. `ControlFlowState` holds all pairs of one call of gradients().

State of a GradLoopState
    outer_grad_state             the pair of the loop around, or None
    forward_context              the forward loop
    forward_index                f_count's NextIteration; forward_sync: what pushes inside of branches go before
    grad_context                 the gradient loop
    grad_index                   b_count's NextIteration; grad_sync: what pops go before
    history_map                  forward tensor -> its value in the gradient loop
    switch_map                   forward Switch of a loop variable -> the Merge of its gradient, while its back edge is open
    pending_exits_count, deferred_exits, unused_exits   the engine's book-keeping: a loop's exits are processed together
"""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.backprop.rules import handle_dtype, is_trainable, zeros, zeros_like
from penstock.graph.composite import IndexedSlices
from penstock.graph.constant import constant, known_value
from penstock.graph.control_flow import (
    dynamic_shape,
    enter,
    exit_,
    identity,
    is_loop_exit,
    is_loop_switch,
    is_switch,
    loop_constant_enter,
    merge,
    next_iteration,
    output_context,
    switch,
    switch_ref_or_tensor,
    while_context_of,
)
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.raw import raw
from penstock.graph.while_context import WhileContext


def runtime_shape(value: Tensor) -> Tensor:
    """The shape of `value` when the step runs; of the variable, if `value` is a handle."""
    if value.dtype == dtypes.resource:
        return raw.VariableShape(value)
    return dynamic_shape(value, optimize=False)


def _fully_defined(tensor: Tensor) -> bool:
    return tensor.dims is not None and None not in tensor.dims


class _Inside:
    """`with _Inside(context)`: builds in that context; None means where we are."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def __enter__(self) -> None:
        if self.context is not None:
            self.context.Enter()

    def __exit__(self, *exc_info: object) -> None:
        if self.context is not None:
            self.context.Exit()


class _Outside:
    """`with _Outside(context)`: leaves a context that is open, for a while."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def __enter__(self) -> None:
        self.context.Exit()

    def __exit__(self, *exc_info: object) -> None:
        self.context.Enter()


class GradLoopState:
    """One forward loop and the loop of its gradients."""

    def __init__(self, forward_context: Any, outer_grad_state: GradLoopState | None) -> None:
        self.outer_grad_state = outer_grad_state
        self.forward_context = forward_context
        self.history_map: dict[Tensor, Tensor] = {}
        self.switch_map: dict[Operation, Any] = {}
        self.unused_exits: list[Tensor] = []
        self.deferred_exits: list[Tensor] = []
        self.forward_loop_exits: list[Tensor] = list(forward_context.loop_exits)
        self.pending_exits_count = len(self.forward_loop_exits)
        self._forward_sync: Any = None
        self._grad_sync: Any = None
        outer_forward = outer_grad_state.forward_context if outer_grad_state is not None else forward_context.outer_context
        with _Inside(outer_forward):
            count, self.forward_index = self._add_forward_counter()
        if outer_grad_state is not None:
            # Each execution of the inner loop has its own count: remember them all.
            outer_forward.AddName(count)
            history = outer_grad_state.add_forward_accumulator(count)
            with _Inside(outer_grad_state.grad_context):
                self.grad_context = self._new_grad_context()
                real_count = outer_grad_state.add_backprop_value(history, count)
                self.grad_index = self._add_backprop_counter(real_count)
        else:
            with _Inside(outer_forward):
                self.grad_context = self._new_grad_context()
                self.grad_index = self._add_backprop_counter(count)

    def _new_grad_context(self) -> WhileContext:
        forward = self.forward_context
        return WhileContext(
            forward.maximum_iterations, forward.parallel_iterations, forward.back_prop, forward.swap_memory, name=forward.name, grad_state=self
        )

    # -- counters ----------------------------------------------------------------------------------------------------------

    def _add_forward_counter(self) -> tuple[Tensor, Tensor]:
        """(number of iterations that the forward loop ran, the counter's NextIteration)."""
        context = self.forward_context
        start = constant(0, dtypes.int32, name="f_count")
        if self.outer_grad_state is not None:
            # Pushes of the i-th execution of an inner loop come before those of the next one.
            start.op._add_control_input(self.outer_grad_state.forward_index.op.inputs[0].op)
        with _Inside(context):
            context.AddName(start)
            entered = _loop_enter(context, start, "f_count")
            merged = merge([entered, entered])[0]
            at_exit, at_body = switch(merged, context.pivot)
            following = next_iteration(raw.AddV2(at_body, 1, name="Add"))
            merged.op._update_input(1, following)
            total = exit_(at_exit, name="f_count")
            context.loop_exits.append(total)
            context.ExitResult([total])
        return total, following

    def _add_backprop_counter(self, count: Tensor) -> Tensor:
        """The gradient loop's driver: counts down from `count`. Returns the counter's NextIteration."""
        context = self.grad_context
        one = constant(1, dtypes.int32, name="b_count")
        with _Inside(context):
            context.AddName(count)
            entered = _loop_enter(context, count, "b_count")
            merged = merge([entered, entered])[0]
            context.pivot_for_pred = merged
            context.pivot = raw.LoopCond(raw.GreaterEqual(merged, one), name="b_count")
            at_exit, at_body = switch(merged, context.pivot)
            index = raw.Sub(at_body, one)
            context.pivot_for_body = index
            following = next_iteration(index)
            merged.op._update_input(1, following)
            final = exit_(at_exit, name="b_count")
            context.loop_exits.append(final)
            if self.outer_grad_state is not None:
                # Pops of the i-th execution of an inner loop come before those of the next one.
                self.outer_grad_state.grad_sync._add_control_input(final.op)
            context.ExitResult([final])
        return following

    @property
    def forward_sync(self) -> Operation:
        """Pushes that may not happen (inside of branches) are ordered before the counter by this op."""
        sync = self._forward_sync
        if sync is None:
            with get_default_graph().control_dependencies(None):
                sync = self._forward_sync = raw.ControlTrigger(name="f_sync")
            sync._control_flow_context = self.forward_context
            self.forward_index.op._add_control_input(sync)
        return sync

    @property
    def grad_sync(self) -> Operation:
        """All pops come before this op, and it before the next iteration of the gradient loop."""
        sync = self._grad_sync
        if sync is None:
            with get_default_graph().control_dependencies(None):
                sync = self._grad_sync = raw.ControlTrigger(name="b_sync")
            sync._control_flow_context = self.grad_context
            self.grad_index.op._add_control_input(sync)
            if self.grad_context.outer_context is not None:
                self.grad_context.outer_context.AddInnerOp(sync)
        return sync

    # -- history -----------------------------------------------------------------------------------------------------------

    def add_forward_accumulator(self, value: Tensor, dead_branch: bool = False) -> Tensor:
        """Pushes `value` on a new stack in every forward iteration; returns the stack."""
        graph = value.graph
        current = graph._control_flow_context
        with graph.control_dependencies(None), _Inside(current), graph.colocate_with(value.op):
            stack = raw.StackV2(constant(-1, dtypes.int32), elem_type=value.dtype.base_dtype, name="f_acc")
        entered = self.forward_context.AddValue(stack)
        swap = self.forward_context.swap_memory
        context = output_context(value.op)
        if context is self.forward_context:
            with _Inside(self.forward_context):
                push = raw.StackPushV2(entered, value, swap_memory=swap)
            self.forward_index.op._add_control_input(push.op)
        else:
            if context is None or not context.IsCondContext():
                raise TypeError(f"value_ctxt is not a CondContext: {context}")
            if dead_branch:
                # The push belongs to the branch that does not take the value (see zeros_like_in_loop).
                with _Inside(context.outer_context):
                    push = raw.StackPushV2(entered, value, swap_memory=swap)
                push.op._control_flow_context = context
            else:
                with _Inside(context):
                    push = raw.StackPushV2(entered, value, swap_memory=swap)
            self.forward_sync._add_control_input(push.op)
        # Pushes of iteration i come after the counter has reached i: iterations push in order.
        push.op._add_control_input(self.forward_index.op.inputs[0].op)
        return stack

    def add_backprop_value(self, history: Tensor, value: Tensor, dead_branch: bool = False) -> Tensor:
        """Pops from stack `history` in the gradient loop what the forward loop pushed for `value`."""
        graph = value.graph
        condition = _guarding_cond(history, value)
        with graph.control_dependencies(None), _Inside(self.grad_context):
            if condition is not None:
                # Only what was pushed may be popped.
                pred = self._history_of(condition.pred)
                branch = 1 - condition.branch if dead_branch else condition.branch
                history = switch_ref_or_tensor(history, pred)[branch]
            pop = raw.StackPopV2(history, elem_type=value.dtype.base_dtype)
            pop.set_shape(value.shape)
            pop.handle_data = value.handle_data
        if self.grad_context.parallel_iterations > 1:
            self.grad_sync._add_control_input(pop.op)
        return pop

    def _history_of(self, pred: Tensor) -> Tensor:
        state: GradLoopState | None = self
        while state is not None:
            found = state.history_map.get(pred)
            if found is not None:
                return found
            state = state.outer_grad_state
        return pred

    def real_value(self, value: Tensor) -> Tensor:
        """The value that forward tensor `value` had in the iteration that the gradient loop is at."""
        found = self.history_map.get(value)
        if found is not None:
            return found
        current = value
        state: GradLoopState = self
        real: Tensor | None = None
        history: Tensor | None = None
        while True:
            entered = loop_constant_enter(current)
            if entered is not None:
                # A loop invariant is as good outside of the loop.
                current = entered.inputs[0]
                if state.outer_grad_state is None:
                    real = self.grad_context.AddValue(current)
                    break
                state = state.outer_grad_state
            elif current.op.type == "Const":
                # A copy of the constant is cheaper than a stack.
                real = constant(known_value(current), current.dtype.base_dtype)
                break
            else:
                with _Outside(self.grad_context):
                    history = state.add_forward_accumulator(current)
                break
        if real is None:
            assert history is not None
            real = state.add_backprop_value(history, current)
            if state is not self:
                real = self.grad_context.AddValue(real)
        self.history_map[value] = real
        return real

    # -- gradients of loop invariants ----------------------------------------------------------------------------------------

    def add_accumulator(self, op: Operation, grad: Any) -> Any:
        """Sums the gradient of the loop invariant that `op` (a constant Enter) brought in over all iterations."""
        if isinstance(grad, IndexedSlices):
            return self._add_slices_accumulator(op, grad)
        context = self.grad_context
        with _Outside(context):
            start = self._zeros_for_accumulator(op.inputs[0], grad)
        context.AddName(start)
        entered = _loop_enter(context, start, "b_acc")
        merged = merge([entered, entered], name="b_acc")[0]
        at_exit, at_body = switch(merged, context.pivot)
        total = raw.AddN([at_body, grad]) if grad.dtype == dtypes.variant else raw.AddV2(at_body, grad, name="Add")
        following = next_iteration(total)
        merged.op._update_input(1, following)
        result = exit_(at_exit, name="b_acc")
        context.loop_exits.append(result)
        context.ExitResult([result])
        return result

    def _zeros_for_accumulator(self, value: Tensor, grad: Tensor) -> Tensor:
        """Where the sum starts. The shape only matters if the loop runs no iteration at all."""
        outer = self.grad_context.outer_context
        if grad.dtype == dtypes.variant:
            with _Inside(outer):
                return raw.ZerosLike(value)
        if _fully_defined(grad):
            with _Inside(outer):
                return constant(0, grad.dtype, shape=list(grad.dims or ()), name="b_acc")
        if outer is not None and outer.IsWhileContext() and outer.grad_state is not None:
            # Nested: the shape is a value of the outer forward loop.
            with _Inside(self.forward_context.outer_context):
                shape = runtime_shape(value)
            state = self.grad_context.grad_state.outer_grad_state
            history = state.add_forward_accumulator(shape)
            with _Inside(outer):
                return zeros(state.add_backprop_value(history, shape), grad.dtype)
        with _Inside(outer):
            return zeros(runtime_shape(value), grad.dtype)

    def _add_slices_accumulator(self, op: Operation, grad: IndexedSlices) -> IndexedSlices:
        """The same for sparse gradients: rows of all iterations one after another, behind one row of zeros."""
        context = self.grad_context
        values, indices, dense_shape = grad.values, grad.indices, grad.dense_shape
        with _Outside(context), _Inside(context.outer_context):
            if _fully_defined(values):
                start_values = constant(0, values.dtype, shape=[1, *values.dims[1:]], name="b_acc")  # type: ignore[index]
            else:
                rest = raw.StridedSlice(runtime_shape(op.inputs[0]), [1], [0], [1], end_mask=1)
                start_values = zeros(raw.ConcatV2([constant([1], dtypes.int32), rest], 0), values.dtype)
            starts = [constant([0], indices.dtype), start_values]
            if dense_shape is not None:
                if _fully_defined(dense_shape):
                    starts.append(constant(0, dense_shape.dtype, shape=list(dense_shape.dims or ())))
                else:
                    shape = raw.Cast(runtime_shape(op.inputs[0]), DstT=dense_shape.dtype)
                    starts.append(raw.ZerosLike(shape))
        for start in starts:
            context.AddName(start)
        # The accumulators grow: their shapes are not those they start with.
        entered = [
            enter(s, context.name, is_constant=False, parallel_iterations=context.parallel_iterations, use_input_shape=False, name="b_acc")
            for s in starts
        ]
        entered[0].set_shape([None])
        if starts[1].dims is not None:
            entered[1].set_shape([None, *starts[1].dims[1:]])
        context.loop_enters.extend(entered)
        merged = [merge([e, e], name="b_acc")[0] for e in entered]
        switched = [switch(m, context.pivot) for m in merged]
        sums = [raw.ConcatV2([pair[1], part], 0, name="concat") for pair, part in zip(switched, [indices, values], strict=False)]
        if dense_shape is not None:
            sums.append(raw.Maximum(dense_shape, switched[2][1]))
        for m, total in zip(merged, sums, strict=True):
            m.op._update_input(1, next_iteration(total))
        exits = [exit_(pair[0], name="b_acc") for pair in switched]
        context.loop_exits.extend(exits)
        context.ExitResult(exits)
        return IndexedSlices(exits[1], exits[0], exits[2] if dense_shape is not None else None)


def _loop_enter(context: Any, value: Tensor, name: str) -> Tensor:
    entered = enter(value, context.name, is_constant=False, parallel_iterations=context.parallel_iterations, name=name)
    context.loop_enters.append(entered)
    return entered


def _guarding_cond(history: Tensor, value: Tensor) -> Any:
    """The innermost branch that `value` is in, if that branch is inside of the context of its stack."""
    stop = history.op._control_flow_context
    context = value.op._control_flow_context
    while context is not None and context is not stop:
        if context.IsCondContext():
            return context
        context = context.outer_context
    return None


class ControlFlowState:
    """All loops that one call of gradients() goes through."""

    def __init__(self) -> None:
        self._states: dict[Any, GradLoopState] = {}

    def state_of(self, op: Operation, before: bool) -> GradLoopState | None:
        """The state for `op`'s loop. `before` the gradient of an Exit is built, the Exit counts as outside of its loop."""
        if before and is_loop_exit(op):
            context = op._control_flow_context.outer_context
            context = None if context is None else context.GetWhileContext()
        else:
            context = while_context_of(op)
        return None if context is None else self._states.get(context)

    def enter_context(self, op: Operation, before: bool) -> None:
        state = self.state_of(op, before)
        if state is not None:
            state.grad_context.Enter()

    def exit_context(self, op: Operation, before: bool) -> None:
        state = self.state_of(op, before)
        if state is not None:
            state.grad_context.Exit()

    def add_loop(self, op: Operation, between: dict[Operation, None]) -> None:
        """Makes the state for the loop that Exit `op` belongs to; all exits of that loop take part in backprop."""
        forward = while_context_of(op)
        state = self._states.get(forward)
        if state is None:
            outer = forward.outer_context
            outer = None if outer is None else outer.GetWhileContext()
            state = GradLoopState(forward, None if outer is None else self._states.get(outer))
            self._states[forward] = state
            for tensor in state.forward_loop_exits:
                between.setdefault(tensor.op)

    def unused_exits(self, pending: dict[Operation, int], to_ops: set[Operation]) -> list[Tensor]:
        """Exits that no gradient will reach, of loops all of whose exits are known already."""
        result = []
        for state in self._states.values():
            for tensor in state.forward_loop_exits:
                if pending.get(tensor.op, 0) == 0:
                    state.pending_exits_count -= 1
                    if tensor.op not in to_ops:
                        state.unused_exits.append(tensor)
                    if state.pending_exits_count == 0:
                        result.extend(state.unused_exits)
            # Enters take part too: higher-order gradients need them.
            for tensor in state.forward_context.loop_enters:
                if pending.get(tensor.op, 0) == 0:
                    pending[tensor.op] = 1
        return result

    # -- zeros --------------------------------------------------------------------------------------------------------------

    def zeros_for_exit(self, value: Tensor) -> Tensor:
        """Zeros for a loop's result that nothing depends on."""
        forward = value.op._control_flow_context
        outer = forward.outer_context
        outer = None if outer is None else outer.GetWhileContext()
        state = None if outer is None else self._states.get(outer)
        if state is None:
            if _fully_defined(value) and value.dtype != dtypes.resource and value.dtype != dtypes.variant:
                return zeros(value.dims, value.dtype)
            return zeros_like(value, optimize=False)
        if _fully_defined(value):
            with _Inside(state.grad_context):
                return zeros(value.dims, value.dtype)
        with _Inside(forward.outer_context):
            shape = runtime_shape(value)
        history = state.add_forward_accumulator(shape)
        with _Inside(state.grad_context):
            return zeros(state.add_backprop_value(history, shape), value.dtype)

    def zeros_like_in_loop(self, op: Operation, index: int) -> Tensor | None:
        """Zeros for output `index` of `op`, whose other outputs have gradients; made only in iterations that need them."""
        if is_loop_switch(op):
            return None
        dead_branch = is_switch(op)
        state = self._states.get(while_context_of(op))
        if state is None:
            return zeros_like_outside_loop(op, index)
        context = op._control_flow_context
        value = op.outputs[index]
        if _fully_defined(value):
            if value.dtype == dtypes.resource:
                result = zeros(raw.VariableShape(value), handle_dtype(value))
            else:
                result = constant(0, value.dtype, shape=list(value.dims or ()))
            if dead_branch:
                pred = state.history_map.get(context.pred)
                result = switch_ref_or_tensor(result, pred)[1 - context.branch]
            return result
        if dead_branch:
            # In the branch not taken, the shape is that of the Switch's input, which passes on the other side.
            with _Inside(context.outer_context):
                value = switch_ref_or_tensor(op.inputs[0], context.pred)[1 - context.branch]
                shape = dynamic_shape(value, optimize=False)
            value.op._control_flow_context = context
            shape.op._control_flow_context = context
        else:
            with _Inside(context):
                shape = dynamic_shape(value, optimize=False)
        with _Outside(state.grad_context):
            history = state.add_forward_accumulator(shape, dead_branch)
        real = state.add_backprop_value(history, shape, dead_branch)
        return zeros(real, value.dtype)

    def finish(self) -> None:
        """A loop variable whose new value does not depend on its old one has a gradient in the last iteration only: the open
        back edges of such gradients are fed with zeros."""
        for state in self._states.values():
            for merged in state.switch_map.values():
                op = merged.op
                if op.inputs[0] is not op.inputs[1]:
                    continue
                first = op.inputs[0]
                if _fully_defined(first) and first.dtype != dtypes.variant:
                    with _Inside(state.grad_context):
                        following = next_iteration(constant(0, first.dtype, shape=list(first.dims or ())))
                else:
                    with _Inside(state.grad_context.outer_context):
                        entered = first.op.inputs[0]
                        zero = raw.ZerosLike(entered) if first.dtype == dtypes.variant else zeros(dynamic_shape(entered, optimize=False), first.dtype)
                    with _Inside(state.grad_context):
                        following = next_iteration(zero)
                op._update_input(1, following)


def loops_between(between: dict[Operation, None]) -> ControlFlowState | None:
    """The state for all loops among the ops that gradients flow through; None if there is no loop."""
    result = None
    for op in list(between):
        if is_loop_exit(op) and while_context_of(op) is not None:
            if result is None:
                result = ControlFlowState()
            result.add_loop(op, between)
    return result


def zeros_like_outside_loop(op: Operation, index: int) -> Tensor | None:
    """Zeros for an output without gradient; for a branch's Switch, only made when that branch is not taken."""
    value = op.outputs[index]
    if value.dtype == dtypes.resource and not value.handle_data:
        return None
    context = op._control_flow_context
    if not is_switch(op) or context is None or not context.IsCondContext():
        if value.dtype == dtypes.resource:
            return zeros(raw.VariableShape(value), handle_dtype(value))
        return zeros_like(value, optimize=False)
    source = switch(op.inputs[0], context.pred)[1 - context.branch]
    # Control edges hang on ops, not on outputs: the Identity is what only runs on the right side.
    pivot = identity(source)
    graph = get_default_graph()
    if value.dtype == dtypes.resource:
        with graph.control_dependencies([pivot]):
            return zeros(raw.VariableShape(source), handle_dtype(value))
    if value.dtype == dtypes.variant:
        return zeros_like(pivot, optimize=False)
    shape = dynamic_shape(source, optimize=False)
    with graph.control_dependencies([pivot]):
        return zeros(shape, value.dtype.base_dtype)


__all__ = ["ControlFlowState", "GradLoopState", "is_trainable", "loops_between", "zeros_like_outside_loop"]
