"""LSTM and GRU cells: an unrolled LSTM becomes one node, and fused cells learn which of their outputs anybody reads.

    concat, product, bias, split, three sigmoids, two tanhs, ... for each step  ->  _LSTMSteps([x1, x2, ...], c, h, w, b)
    BlockLSTM whose gates nobody reads                                           ->  the same with `_read` = [h]

A library's layer computes all steps of a sequence in one call but keeps the gates to itself, so it is for inference: where a gradient
reads the gates, everything stays as it is. Values inside of a step may vanish only if nothing else needs them; the output of every
step and the last state may be read by anybody, but no input of a step may depend on another step's output in any other way. Shapes
must be known, so that nothing can fail inside, and weights constant, since to lay them out takes as long as many steps. Acts on nodes of CPUs while the oneDNN engine is on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock import dtypes
from penstock.graph.bind import engine_is_on
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.pipeline.optimise.edit import CONTROL_FLOW, Edit
from penstock.pipeline.optimise.steps import Step, find_step

_CELLS = {"BlockLSTM": (b"cs", b"h"), "BlockLSTMV2": (b"cs", b"h"), "LSTMBlockCell": (b"cs", b"h"), "GRUBlockCell": (b"h",)}
"""Ops of cells, and the outputs that a library's layer gives."""


def join_cells(graph: Graph, context: Any) -> Graph:
    """steps of an LSTM -> one node"""
    if not engine_is_on("onednn"):
        return graph
    edit = Edit(graph)
    steps: dict[Tensor, Step] = {}
    for op in graph:
        if op.type in _CELLS:
            _note_readers(op, edit)
        elif op.type == "Mul" and (step := _step(op, context.targets)) is not None:
            steps[step.h] = step
    if steps:
        sequences = _sequences(steps)
        if any(op.type in CONTROL_FLOW for op in graph):
            sequences = [part for sequence in sequences for part in _alive_together(sequence)]
        _join(sequences, edit)
    if not edit:
        return graph
    context.note(edit)
    return edit.apply(context.roots(graph))


def _note_readers(op: Operation, edit: Edit) -> None:
    names = [arg.name.encode() for arg in op.op_def.outputs]
    read = [name for name, t in zip(names, op.outputs, strict=True) if t._consumers]
    if "_read" not in op.attrs and set(read) <= set(_CELLS[op.type]) and "device:CPU" in op.device:
        edit.retyped[op] = (op.type, list(op.inputs), {**op.attrs, "_read": read})


# -- one step -----------------------------------------------------------------------------------------------------------


def _step(mul: Operation, targets: frozenset[str]) -> Step | None:
    """The step whose output is `mul`, if its weights are constant and only the step itself needs what is inside."""
    step = find_step(mul)
    return step if step is not None and _is_constant(step.w) and _is_constant(step.b) and _is_closed(step, targets) else None


def _is_closed(step: Step, targets: frozenset[str]) -> bool:
    """Whether only the step itself needs what it computes, but for its state and its output."""
    inside = set(step.inside)
    for op in step.inside:
        if op is step.h.op or op is step.c.op:
            continue
        if op._control_outputs or op.name in targets or any(r not in inside for t in op.outputs for r in t._consumers or ()):
            return False
    return not step.c.op._control_outputs and step.c.op.name not in targets


# -- sequences ----------------------------------------------------------------------------------------------------------


def _sequences(steps: dict[Tensor, Step]) -> list[list[Step]]:
    """Steps that follow each other with the same weights, the first one first."""
    following: dict[Tensor, Step] = {}
    for step in steps.values():
        before = steps.get(step.h_prev)
        if before is not None and before.c is step.c_prev and before.layer == step.layer and _only_inside(before, step):
            following[before.h] = step
    later = {step.h for step in following.values()}
    found = []
    for step in steps.values():
        if step.h in later:
            continue
        sequence = [step]
        while (further := following.get(sequence[-1].h)) is not None:
            sequence.append(further)
        found.append(sequence)
    return found


def _alive_together(sequence: list[Step]) -> list[list[Step]]:
    """The sequence, cut where an input of a step may be dead although the steps before it ran."""
    first = sequence[0]
    known = _sources([first.x, first.c_prev, first.h_prev, first.w, first.b])
    parts = [[first]]
    for step in sequence[1:]:
        found = _sources([step.x])
        if found <= known:
            parts[-1].append(step)
        else:
            known |= found
            parts.append([step])
    return parts


def _sources(tensors: Iterable[Tensor]) -> set[Any]:
    """By what these values may be dead: the sides of Switches, and outputs of Merges and the like."""
    found: set[Any] = set()
    stack: list[Tensor | Operation] = list(tensors)
    seen: set[Operation] = set()
    while stack:
        item = stack.pop()
        op = item.op if isinstance(item, Tensor) else item
        if op.type == "Switch" and isinstance(item, Tensor):
            found.add((op.inputs[1], item.value_index))  # all Switches of one predicate let the same side through
        elif op.type in CONTROL_FLOW:
            found.add(item)
            continue
        if op not in seen:
            seen.add(op)
            stack += op.inputs
            stack += op.control_inputs
    return found


def _only_inside(before: Step, step: Step) -> bool:
    """Whether nothing but these two steps reads the state between them, and nobody waits for or asks for the output itself."""
    inside = {*before.inside, *step.inside}
    return all(r in inside for r in before.c._consumers or ()) and not before.h.op._control_outputs


def _join(sequences: list[list[Step]], edit: Edit) -> None:
    owners: dict[Operation, list[Step]] = {}
    for sequence in sequences:
        first, last = sequence[0], sequence[-1]
        if _feeds_itself(sequence, owners):
            continue
        owners.update((op, sequence) for step in sequence for op in step.inside)
        head = last.h.op
        inputs = [*(step.x for step in sequence), first.c_prev, first.h_prev, first.w, first.b]
        attrs = {"N": len(sequence), "T": dtypes.float32, "order": list(first.order), "forget_bias": first.forget_bias}
        edit.retyped[head] = ("_LSTMSteps", inputs, attrs)
        outputs = [*(step.h for step in reversed(sequence[:-1])), last.c]
        made = [Tensor(head, i, t.dtype, t.dims) for i, t in enumerate(outputs, 1)]
        edit.redirect.update(zip(outputs, made, strict=True))
        edit.more_outputs[head] = made
        edit.why.append(f"{head.name} = {len(sequence)} steps of an LSTM")


def _is_constant(tensor: Tensor) -> bool:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor.op.type == "Const"


def _feeds_itself(sequence: list[Step], owners: dict[Operation, list[Step]]) -> bool:
    """Whether an input of a step depends on one of the steps in another way than by the state: then they cannot run at once. Reaching
    a part of another joined sequence means reaching all that goes into it."""
    inside = {op for step in sequence for op in step.inside}
    stack = [t.op for t in _inputs(sequence)]
    seen: set[Operation] = set()
    while stack:
        op = stack.pop()
        if op in seen:
            continue
        if op in inside:
            return True
        seen.add(op)
        other = owners.get(op)
        if other is not None:
            seen.update(o for step in other for o in step.inside)
            stack += [t.op for t in _inputs(other)]
        else:
            stack += [t.op for t in op.inputs]
            stack += op.control_inputs
    return False


def _inputs(sequence: list[Step]) -> Iterable[Tensor]:
    first = sequence[0]
    return [*(step.x for step in sequence), first.c_prev, first.h_prev, first.w, first.b]
