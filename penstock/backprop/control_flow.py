"""Gradient rules of Switch, Merge, Enter, Exit, NextIteration and LoopCond.

What the gradient of a node is depends on what the node is for (a branch or a loop), which its context tells. The engine has
entered the gradient loop's context before a rule of a node inside of a loop is called.
"""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.backprop.loops import _Outside
from penstock.graph import nest
from penstock.graph.composite import IndexedSlices
from penstock.graph.control_flow import enter, exit_, merge, output_context, switch, switch_ref_or_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.opdef import OPS
from penstock.graph.while_context import add_next_and_back_edge
from penstock.ops import control_flow as _ops  # noqa: F401 - declares the ops that get their rules here
from penstock.ops.declare import NOT_DIFFERENTIABLE


def switch_grad(g: Any, op: Any, *dys: Any) -> list[Any]:
    context = op.operation._control_flow_context
    current = get_default_graph()._control_flow_context
    if context is not None and context.IsWhileContext() and current is not None and current.grad_state is not None:
        open_merges = current.grad_state.switch_map
        merged = open_merges.get(op.operation)
        if merged is not None:
            # Second visit, by way of the body: this is the back edge.
            if dys[1] is not None:
                add_next_and_back_edge(merged, dys[1], enforce_shape_invariant=False)
            return [None, None]
        if dys[0] is None:
            return [None, None]
        # First visit, by way of the Exit: the back edge is not known yet, so the same input stands twice.
        merged = open_merges[op.operation] = merge([dys[0], dys[0]], name="b_switch")[0]
        return [merged, None]
    if context is not None and context.IsCondContext():
        other = dys[1 - context.branch]
        if other is None:
            if op.inputs[0].dtype == dtypes.resource:
                return [merge([dys[context.branch]] * 2, name="cond_resource_grad")[0], None]
            return [None, None]
        return [merge(list(dys), name="cond_grad")[0], None]
    false_grad = switch(dys[0], op.inputs[1])[0]
    true_grad = switch(dys[1], op.inputs[1])[1]
    return [merge([false_grad, true_grad])[0], None]


def merge_grad(g: Any, op: Any, dy: Any, _: Any) -> list[Any]:
    context = output_context(op.inputs[0].op)
    current = get_default_graph()._control_flow_context
    if context is not None and context.IsWhileContext() and current is not None:
        return list(switch_ref_or_tensor(dy, current.pivot))
    if context is not None and context.IsCondContext():
        pred = context.pred
        state = None if current is None else current.grad_state
        if state is not None:
            # A branch inside of a loop: the gradient needs the predicate of the very iteration.
            real = state.history_map.get(pred)
            if real is None:
                with _Outside(state.grad_context):
                    history = state.add_forward_accumulator(pred)
                real = state.history_map[pred] = state.add_backprop_value(history, pred)
            pred = real
        return list(switch_ref_or_tensor(dy, pred, name="cond_grad"))
    chosen = [g.Equal(op.outputs[1], i) for i in range(len(op.inputs))]
    return [switch_ref_or_tensor(dy, which)[1] for which in chosen]


def exit_grad(g: Any, op: Any, dy: Any) -> Any:
    current = get_default_graph()._control_flow_context
    if current is None:
        return dy
    if not current.back_prop:
        return None
    if op.operation._control_flow_context.grad_state is not None:
        raise TypeError("Second-order gradient for while loops not supported.")
    for part in nest.flatten(dy, expand_composites=True):
        current.AddName(part)
    current.Enter()
    result = enter(dy, current.name, is_constant=False, parallel_iterations=current.parallel_iterations, name="b_exit")
    current.loop_enters.extend(nest.flatten(result, expand_composites=True))
    current.Exit()
    return result


def enter_grad(g: Any, op: Any, dy: Any) -> Any:
    current = get_default_graph()._control_flow_context
    if current is None or not current.back_prop or current.grad_state is None:
        return dy
    if op.attr("is_constant"):
        if not isinstance(dy, (Tensor, IndexedSlices)):
            raise TypeError(f"Type {type(dy)} not supported")
        return current.grad_state.add_accumulator(op.operation, dy)
    result = exit_(dy)
    current.loop_exits.extend(nest.flatten(result, expand_composites=True))
    current.ExitResult([result])
    return result


def next_iteration_grad(g: Any, op: Any, dy: Any) -> Any:
    return dy


for _prefix in ("", "Ref"):
    OPS[_prefix + "Switch"].gradient = switch_grad
    OPS[_prefix + "Merge"].gradient = merge_grad
    OPS[_prefix + "Exit"].gradient = exit_grad
    OPS[_prefix + "Enter"].gradient = enter_grad
    OPS[_prefix + "NextIteration"].gradient = next_iteration_grad
OPS["LoopCond"].gradient = NOT_DIFFERENTIABLE
