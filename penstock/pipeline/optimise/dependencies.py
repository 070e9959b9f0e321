"""Control edges: duplicates and those that say nothing new are dropped, and with them work that only they ask for."""

from __future__ import annotations

from typing import Any

from penstock.graph.ir import Graph, Operation
from penstock.pipeline.optimise.edit import CONTROL_FLOW, Edit, is_pure

_DEPTH = 200  # how far back implied orders are looked for, in nodes


def clean_dependencies(graph: Graph, context: Any) -> Graph:
    """y(x, ^x) -> y(x);   y(^const) -> y;   y(^a, ^b(^a)) -> y(^b);   y(^no_op(^a)) -> y(^a);   y(^square(a)) -> y(^a)"""
    if not any(op.control_inputs for op in graph):
        return graph
    edit = Edit(graph)
    loops = any(op.type in ("Enter", "RefEnter", "Switch", "RefSwitch") for op in graph)
    idle = _idle(graph, context)
    if idle:
        edit.why.append(f"{len(idle)} nodes whose values nobody reads do not run")
    ahead: dict[Operation, list[Operation]] = {}
    dropped = 0
    for op in graph:
        if not op.control_inputs or op in idle:
            continue
        kept = _kept(op, _without(op.control_inputs, idle, ahead), loops, context)
        if len(kept) != len(op.control_inputs) or kept != op.control_inputs:
            dropped += max(len(op.control_inputs) - len(kept), 0)
            edit.controls[op] = kept
    if not edit:
        return graph
    edit.why.append(f"dropped {dropped} control edges")
    context.note(edit)
    return edit.apply(context.roots(graph))


def _idle(graph: Graph, context: Any) -> set[Operation]:
    """Nodes without effects that run only because others wait for them: mostly gradients of inputs, which `tf.gradients` bundles with
    those of the weights. TensorFlow does not run them either."""
    useful, stack = set(), []
    for op in graph:
        # What stands behind a Switch or in a loop tells others by a control edge that its branch was taken.
        if not is_pure(op) or op.name in context.targets or any(t.op.type in CONTROL_FLOW for t in op.inputs):
            useful.add(op)
            stack.append(op)
    while stack:
        for tensor in stack.pop().inputs:
            if tensor.op not in useful:
                useful.add(tensor.op)
                stack.append(tensor.op)
    return set() if len(useful) == len(graph) else {op for op in graph if op not in useful}


def _without(controls: list[Operation], idle: set[Operation], ahead: dict[Operation, list[Operation]]) -> list[Operation]:
    """`controls`, with what an idle node waits for in its place."""
    if not any(c in idle for c in controls):
        return controls
    stack = [c for c in controls if c in idle]
    while stack:  # without recursion: chains may be long
        op = stack[-1]
        sources = list(dict.fromkeys([*(t.op for t in op.inputs), *op.control_inputs]))
        missing = [s for s in sources if s in idle and s not in ahead]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        ahead[op] = list(dict.fromkeys(o for s in sources for o in ahead.get(s, (s,))))
    return list(dict.fromkeys(o for c in controls for o in ahead.get(c, (c,))))


def _kept(op: Operation, controls: list[Operation], loops: bool, context: Any) -> list[Operation]:
    direct = {t.op for t in op.inputs}
    result: list[Operation] = []
    for control in controls:
        if control in direct:
            continue
        # A constant is ready at once. In a graph with control flow it may stand for a branch or an iteration.
        if not loops and not control.inputs and not control.control_inputs and is_pure(control) and control.name not in context.targets:
            continue
        if control.type == "NoOp" and control.control_inputs and len(control.control_inputs) == 1 and control.name not in context.targets:
            control = control.control_inputs[0]
            if control in direct:
                continue
        if control not in result:
            result.append(control)
    if len(result) > 1:
        result = [c for c in result if not any(o is not c and _reaches(c, o) for o in result)]
    return result


def _reaches(early: Operation, late: Operation) -> bool:
    """Whether `late` already waits for `early`, through other nodes."""
    if late.type in CONTROL_FLOW or early.id > late.id:
        return False
    stack, seen = [late], {late}
    while stack and len(seen) < _DEPTH:
        op = stack.pop()
        if op is early:
            return True
        if op.type in ("Merge", "RefMerge"):
            continue  # a Merge does not wait for all of its inputs
        for source in [t.op for t in op.inputs] + op.control_inputs:
            if source not in seen and source.id >= early.id:
                seen.add(source)
                stack.append(source)
    return False
