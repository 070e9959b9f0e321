"""Unrolled LSTMs that are trained: the ops of all steps become one node, and so do those that `tf.gradients` makes of them.

    concat, product, bias, split, three sigmoids, two tanhs, ... of each step    -> _LSTMTraining([x1, x2, ...], c, h, w, b)
    the gradients of all steps, and the sums of those of w and b                 -> _LSTMTrainingGrad, which gives them all

The counterpart of `cells`, which joins LSTMs whose gates nobody reads. Here the gradient reads them, and nobody else may: what is inside
vanishes as a whole, or all of it stays. The output of each step may be read, and may have gradients, by anybody; so may the last
state. Values are those of the steps up to rounding, and shapes are known, so that nothing inside can fail. Whatever waits for a node that
vanishes waits for the one it is part of. Acts on nodes of CPUs while the oneDNN engine is on, on graphs without branches or loops: there, only
some of the steps might run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock import dtypes
from penstock.graph.bind import engine_is_on
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.rewrite import topological
from penstock.pipeline.optimise.edit import CONTROL_FLOW, Edit, is_pure
from penstock.pipeline.optimise.steps import ADDS, CONSTANTS, Step, behind, find_step, number
from penstock.shapes import is_fully_defined

MIN_STEPS, MANY_STEPS = 4, 16
LARGE_WEIGHTS = 1 << 18
"""Elements of weights which only many steps are worth bringing into the layout that the engine wants, and their gradients back."""

class _Slopes(NamedTuple):
    """The gradient of one step: what comes in from later steps and from outside, and what it gives."""

    dh: Tensor
    dc_parts: list[Tensor]
    """What is summed up to the gradient of the state, that by way of h left out."""
    dw: Operation
    db: Operation | None
    dx: Tensor | None
    dh_prev: Tensor | None
    dc_prev: Tensor | None
    inside: list[Operation]


class _Total(NamedTuple):
    """A sum of gradients of all steps, and what else it adds up."""

    op: Operation
    parts: list[Operation]
    rest: list[Tensor]


class _Layer(NamedTuple):
    """An LSTM and its gradient."""

    steps: list[Step]
    slopes: list[_Slopes]
    dh: list[tuple[int, Tensor]]
    dc: list[Tensor]
    weights: _Total
    bias: _Total | None


def join_unrolled(graph: Graph, context: Any) -> Graph:
    """steps of an LSTM and their gradients -> one node each"""
    if not engine_is_on("onednn"):
        return graph
    types = {op.type for op in graph}
    if "TanhGrad" not in types or "SigmoidGrad" not in types or types & CONTROL_FLOW:
        return graph
    found = {step.h: step for op in graph if op.type == "Mul" and (step := find_step(op)) is not None}
    if not found:
        return graph
    joined = [layer for steps in _sequences(found) if (layer := _with_gradient(steps, context.targets)) is not None]
    for layer in joined:
        graph = _joined(graph, context, layer) if len(joined) == 1 else _joined(graph, context, _again(graph, layer, context.targets))
    return graph


def _again(graph: Graph, layer: _Layer, targets: frozenset[str]) -> _Layer | None:
    """The same layer in a graph that has been changed since."""
    name = layer.steps[-1].h.op.name
    found = {step.h: step for op in graph if op.type == "Mul" and (step := find_step(op)) is not None}
    for steps in _sequences(found):
        if steps[-1].h.op.name == name:
            return _with_gradient(steps, targets)
    return None


# -- its steps ---------------------------------------------------------------------------------------------------------


def _sequences(steps: dict[Tensor, Step]) -> list[list[Step]]:
    """Steps that follow each other with the same weights, the first one first."""
    following = {}
    for step in steps.values():
        before = steps.get(step.h_prev)
        if before is not None and before.c is step.c_prev and before.layer == step.layer:
            following.setdefault(before.h, []).append(step)
    chained = {h: found[0] for h, found in following.items() if len(found) == 1}
    later = {step.h for step in chained.values()}
    result = []
    for step in steps.values():
        if step.h in later:
            continue
        sequence = [step]
        while (further := chained.get(sequence[-1].h)) is not None:
            sequence.append(further)
        if len(sequence) >= (MIN_STEPS if math.prod(step.w.dims) <= LARGE_WEIGHTS else MANY_STEPS):  # type: ignore[arg-type]
            result.append(sequence)
    return result


# -- its gradient -------------------------------------------------------------------------------------------------------


def _readers(tensor: Tensor, *types: str) -> Iterator[Operation]:
    """Nodes that read a tensor, Identities between them left out."""
    for op in dict.fromkeys(tensor._consumers or ()):
        if op.type == "Identity":
            yield from _readers(op.outputs[0], *types)
        elif op.type in types and not op.control_inputs:
            yield op


def _reader(tensor: Tensor, *types: str) -> Operation | None:
    """The only reader of these types."""
    found = list(dict.fromkeys(_readers(tensor, *types)))
    return found[0] if len(found) == 1 else None


def _slope(tensor: Tensor, kind: str, factor: Tensor) -> tuple[list[Operation], Tensor] | None:
    """The gradient of an activation whose value is `tensor`, which was multiplied by `factor`: its nodes, and the gradient that came in."""
    grad = _reader(tensor, kind)
    if grad is None or behind(grad.inputs[0]) is not tensor:
        return None
    product = behind(grad.inputs[1]).op
    if product.type != "Mul" or product.control_inputs:
        return None
    a, b = product.inputs
    if behind(a) is factor:
        return [grad, product], b
    return ([grad, product], a) if behind(b) is factor else None


def _slopes(step: Step) -> _Slopes | None:
    """What `tf.gradients` made of a step."""
    i, j, f, o = step.gates
    found = [_slope(i, "SigmoidGrad", j), _slope(j, "TanhGrad", i), _slope(f, "SigmoidGrad", behind(step.c_prev)), _slope(o, "SigmoidGrad", step.squashed)]
    by_state = _slope(step.squashed, "TanhGrad", o)
    if by_state is None or any(one is None for one in found):
        return None
    parts: list[tuple[list[Operation], Tensor]] = [one for one in found if one is not None]
    dc, dh = behind(parts[0][1]), parts[3][1]
    if any(behind(one[1]) is not dc for one in parts[:3]) or behind(by_state[1]) is not behind(dh):
        return None
    inside = [op for ops, _ in (*parts, by_state) for op in ops]
    own = by_state[0][0].outputs[0]
    rest: list[Tensor] = []
    if dc is not own:
        if dc.op.type not in ("AddN", *ADDS) or [behind(t) for t in dc.op.inputs].count(own) != 1:
            return None
        rest = [t for t in dc.op.inputs if behind(t) is not own]
        inside.append(dc.op)
    # The gradients of the four gates side by side, and what comes of them.
    wanted = {step.order[k]: parts[k][0][0].outputs[0] for k in range(4)}
    gates = _reader(wanted[0], "ConcatV2")
    if gates is None or gates.attrs["N"] != 4 or number(gates.inputs[4]) not in (1, -1) or any(behind(gates.inputs[k]) is not t for k, t in wanted.items()):
        return None
    inside.append(gates)
    slopes = gates.outputs[0]
    dw = db = back = None
    for op in dict.fromkeys(_readers(slopes, "MatMul", "BiasAddGrad", "Sum")):
        if op.type == "MatMul":
            a, b = map(behind, op.inputs)
            across = (op.attrs["transpose_a"], op.attrs["transpose_b"])
            if across == (True, False) and a is step.joined and b is slopes and dw is None:
                dw = op
            elif across == (False, True) and a is slopes and b is behind(step.w) and back is None:
                back = op
            else:
                return None
        elif db is None and _sums_rows(op):
            db = op
        else:
            return None
    if dw is None:
        return None
    dx = dh_prev = None
    if back is not None:
        inside.append(back)
        (rows, width), cells = step.x.dims, step.h_prev.dims[1]  # type: ignore[misc, index]
        for op in dict.fromkeys(_readers(back.outputs[0], "Slice")):
            place = _place(op)
            if place == (0, 0, rows, width) and dx is None:
                dx = op.outputs[0]
            elif place == (0, width, rows, cells) and dh_prev is None:
                dh_prev = op.outputs[0]
            else:
                return None
            inside.append(op)
    # The gradient of the state before.
    before = [m for m in _readers(f, "Mul") if m not in step.inside and dc in map(behind, m.inputs)]
    if len(before) > 1:
        return None
    inside += [*before, dw, *([db] if db else [])]
    if any(op.control_inputs or op.device != step.h.op.device for op in inside):
        return None
    return _Slopes(dh, rest, dw, db, dx, dh_prev, before[0].outputs[0] if before else None, inside)


def _sums_rows(op: Operation) -> bool:
    if op.type == "BiasAddGrad":
        return op.attrs["data_format"] == b"NHWC"
    axes = op.inputs[1].op
    return axes.type in CONSTANTS and axes.attrs["value"].array.ravel().tolist() == [0] and not op.attrs["keep_dims"]


def _place(op: Operation) -> tuple[int, ...] | None:
    """First row and column, and number of rows and columns, of a Slice."""
    begin, size, dims = _vector(op.inputs[1]), _vector(op.inputs[2]), op.outputs[0].dims
    if begin is None or size is None or len(begin) != 2 or len(size) != 2 or not is_fully_defined(dims):
        return None
    return (*begin, *dims)


def _vector(tensor: Tensor) -> list[int] | None:
    """A constant vector, or what the gradient of a concat computes of the shapes of its operands."""
    op, index = tensor.op, tensor.value_index
    if op.control_inputs:
        return None
    if op.type in CONSTANTS:
        return op.attrs["value"].array.ravel().tolist()
    if op.type in ("Shape", "ShapeN"):
        dims = op.inputs[index].dims
        return list(dims) if is_fully_defined(dims) else None
    if op.type != "ConcatOffset":
        return None
    axis, shapes = number(op.inputs[0]), [_vector(t) for t in op.inputs[1:]]
    if axis is None or any(shape is None or not -len(shape) <= axis < len(shape) for shape in shapes):
        return None
    place = [0] * len(shapes[index])  # type: ignore[arg-type]
    place[axis] = sum(shape[axis] for shape in shapes[:index])  # type: ignore[index]
    return place


def _with_gradient(steps: list[Step], targets: frozenset[str]) -> _Layer | None:
    """The layer that consists of these steps, if each has a gradient that hangs together with that of the next one."""
    slopes = [_slopes(step) for step in steps]
    if any(one is None for one in slopes):
        return None
    found: list[_Slopes] = [one for one in slopes if one is not None]
    dh: list[tuple[int, Tensor]] = []
    dc: list[Tensor] = found[-1].dc_parts
    for t, one in enumerate(found[:-1]):
        later = found[t + 1]
        if later.dh_prev is None or later.dc_prev is None or [behind(d) for d in one.dc_parts] != [later.dc_prev]:
            return None
        total = behind(one.dh)
        if total is later.dh_prev:
            continue
        if total.op.type not in ("AddN", *ADDS) or [behind(d) for d in total.op.inputs].count(later.dh_prev) != 1 or total.op.control_inputs:
            return None
        one.inside.append(total.op)
        dh += [(t, d) for d in total.op.inputs if behind(d) is not later.dh_prev]
    dh.append((len(steps) - 1, found[-1].dh))
    weights = _total([one.dw for one in found])
    sums = [one.db for one in found if one.db is not None]
    bias = _total(sums) if len(sums) == len(found) else None
    if weights is None or (sums and bias is None):
        return None
    if any(op.name in targets for one in (*steps, *found) for op in one.inside) or any(t.op.name in targets for t in (weights, bias) if t):
        return None
    return _Layer(steps, found, dh, dc, weights, bias)


def _total(parts: list[Operation]) -> _Total | None:
    """The sum that alone reads these gradients, each once."""
    values = [op.outputs[0] for op in parts]
    op = _reader(values[0], "AddN", *ADDS)
    if op is None or op.device != parts[0].device:
        return None
    summed = [behind(t) for t in op.inputs]
    if any(summed.count(value) != 1 or not _only_read_by(value, op) for value in values):
        return None
    return _Total(op, parts, [t for t in op.inputs if behind(t) not in values])


def _only_read_by(tensor: Tensor, reader: Operation) -> bool:
    return all(op is reader or (op.type == "Identity" and _only_read_by(op.outputs[0], reader)) for op in tensor._consumers or ())


# -- joining ------------------------------------------------------------------------------------------------------------


def _joined(graph: Graph, context: Any, layer: _Layer | None) -> Graph:
    """The graph with this layer in two nodes; as it is if something else needs what is inside, or they could not be computed at once."""
    if layer is None:
        return graph
    edit = Edit(graph)
    forward, backward = _rewrite(layer, edit)
    inside = {op for part in (*layer.steps, *layer.slopes) for op in part.inside} - {forward, backward}
    roots = context.roots(graph)
    live = set(edit._live(roots))
    if inside & live or not _keep_waiting(layer, edit, backward, live):
        return graph
    changed = edit.apply(roots)
    try:
        topological(changed)
    except ValueError:  # a circle: an input of a step needs what the same node gives
        return graph
    context.note(edit)
    return changed


def _rewrite(layer: _Layer, edit: Edit) -> tuple[Operation, Operation]:
    steps, slopes = layer.steps, layer.slopes
    first, last, count = steps[0], steps[-1], len(steps)
    forward, backward = last.h.op, layer.weights.parts[0]
    inputs = [*(step.x for step in steps), first.c_prev, first.h_prev, first.w, first.b]
    attrs = {"N": count, "T": dtypes.float32, "order": list(first.order), "forget_bias": first.forget_bias}
    edit.retyped[forward] = ("_LSTMTraining", inputs, attrs)
    outputs = [*(step.h for step in reversed(steps[:-1])), last.c]
    made = [Tensor(forward, i, dtypes.float32, last.h.dims) for i in range(1, count + 1)]
    everything = Tensor(forward, count + 1, dtypes.float32, (count, *last.h.dims))  # type: ignore[misc]
    workspace = Tensor(forward, count + 2, dtypes.uint8, (None,))
    edit.redirect.update(zip(outputs, made, strict=True))
    edit.more_outputs[forward] = [*made, everything, workspace]

    given = [*inputs, everything, made[-1], workspace, *(d for _, d in layer.dh), *layer.dc]
    edit.computes[backward] = [op for one in slopes for op in one.inside]
    more = {"M": len(layer.dh), "K": len(layer.dc), "dh_steps": [t for t, _ in layer.dh]}
    edit.retyped[backward] = ("_LSTMTrainingGrad", given, {**attrs, **more})
    results: list[tuple[Tensor | None, Any]] = [(None, first.b.dims), *((one.dx, step.x.dims) for one, step in zip(slopes, steps, strict=True))]
    results += [(slopes[0].dh_prev, first.h.dims), (slopes[0].dc_prev, first.c.dims)]
    made = [Tensor(backward, i, dtypes.float32, dims) for i, (_, dims) in enumerate(results, 1)]
    edit.more_outputs[backward] = made
    edit.redirect.update((old, new) for (old, _), new in zip(results, made, strict=True) if old is not None)
    _give(layer.weights, backward.outputs[0], edit)
    if layer.bias is not None:
        _give(layer.bias, made[0], edit)

    instead = {op: forward for step in steps for op in step.inside}
    instead.update((op, backward) for one in slopes for op in one.inside)
    for waiting in {w for op in instead for w in op._control_outputs or ()}:
        edit.controls[waiting] = list(dict.fromkeys(instead.get(c, c) for c in waiting.control_inputs))
    edit.why.append(f"{forward.name} = {count} steps of an LSTM, {backward.name} = their gradient")
    return forward, backward


def _give(total: _Total, value: Tensor, edit: Edit) -> None:
    """Puts a gradient in the place of the sum of its parts."""
    op = total.op
    if total.rest:
        inputs = [value, *total.rest]
        edit.retyped[op] = ("AddN", inputs, {"N": len(inputs), "T": dtypes.float32})
    else:
        edit.redirect[op.outputs[0]] = value
        for waiting in op._control_outputs or ():
            controls = edit.controls.get(waiting, waiting.control_inputs)
            edit.controls[waiting] = list(dict.fromkeys(value.op if c is op else c for c in controls))


def _keep_waiting(layer: _Layer, edit: Edit, backward: Operation, live: set[Operation]) -> bool:
    """Lets the gradient wait for what the Identities waited for that vanish; False if one waits for more than gradients of the same node."""
    inside = {op for part in (*layer.steps, *layer.slopes) for op in part.inside}
    waits: dict[Operation, None] = {}
    stack = [t for op in inside for t in op.outputs]
    while stack:
        for reader in stack.pop()._consumers or ():
            if reader.type != "Identity" or reader in live:
                continue
            if any(c.type != "NoOp" for c in reader.control_inputs):
                return False
            waits.update((c, None) for join in reader.control_inputs for c in join.control_inputs if c not in inside and not is_pure(c))
            stack += reader.outputs
    if waits:
        edit.controls[backward] = [*waits]
    return True
