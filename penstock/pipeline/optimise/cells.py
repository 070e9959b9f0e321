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
from typing import Any, NamedTuple

from penstock import dtypes
from penstock.graph.bind import engine_is_on
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.pipeline.optimise.edit import Edit
from penstock.shapes import is_fully_defined

_CELLS = {"BlockLSTM": (b"cs", b"h"), "BlockLSTMV2": (b"cs", b"h"), "LSTMBlockCell": (b"cs", b"h"), "GRUBlockCell": (b"h",)}
"""Ops of cells, and the outputs that a library's layer gives."""
_ADDS = frozenset(("Add", "AddV2"))
_CONSTANTS = frozenset(("Const", "HostConst"))


class _Step(NamedTuple):
    """One step of an LSTM: what goes in, what comes out, and the nodes that compute it."""

    x: Tensor
    c_prev: Tensor
    h_prev: Tensor
    w: Tensor
    b: Tensor
    order: tuple[int, ...]
    forget_bias: float
    c: Tensor
    h: Tensor
    inside: list[Operation]

    @property
    def layer(self) -> tuple[Any, ...]:
        return self.w, self.b, self.order, self.forget_bias


def join_cells(graph: Graph, context: Any) -> Graph:
    """steps of an LSTM -> one node"""
    if not engine_is_on("onednn"):
        return graph
    edit = Edit(graph)
    steps: dict[Tensor, _Step] = {}
    for op in graph:
        if op.type in _CELLS:
            _note_readers(op, edit)
        elif op.type == "Mul" and (step := _step(op, context.targets)) is not None:
            steps[step.h] = step
    if steps:
        _join(_sequences(steps), edit)
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


def _pair(op: Operation, first: str, second: str) -> tuple[Operation, Operation] | None:
    """The inputs of a commutative node, if one is of type `first` and the other of type `second`."""
    a, b = (t.op for t in op.inputs)
    if a.type == first and b.type == second:
        return a, b
    return (b, a) if a.type == second and b.type == first else None


def _step(mul: Operation, targets: frozenset[str]) -> _Step | None:
    """The step whose output is `mul` = tanh(c) * sigmoid(o)."""
    if mul.attrs["T"] is not dtypes.float32 or "device:CPU" not in mul.device:
        return None
    found = _pair(mul, "Tanh", "Sigmoid")
    if found is None:
        return None
    squashed, gate_o = found
    state = squashed.inputs[0].op
    if state.type not in _ADDS:
        return None
    a, b = (t.op for t in state.inputs)
    if a.type != "Mul" or b.type != "Mul":
        return None
    new = _pair(b, "Sigmoid", "Tanh")
    old = a
    if new is None or _kept(a) is None:
        new, old = _pair(a, "Sigmoid", "Tanh"), b
    kept = _kept(old)
    if new is None or kept is None:
        return None
    gate_i, candidate = new
    c_prev, gate_f = kept
    f, forget_bias, extra = _forget(gate_f)
    gates = (gate_i.inputs[0], candidate.inputs[0], f, gate_o.inputs[0])
    split = gates[0].op
    if split.type != "Split" or split.attrs["num_split"] != 4 or any(t.op is not split for t in gates):
        return None
    order = tuple(t.value_index for t in gates)
    biased = split.inputs[1].op
    if sorted(order) != [0, 1, 2, 3] or _constant(split.inputs[0]) not in (1, -1) or biased.type not in ("BiasAdd", "Add", "AddV2"):
        return None
    product, bias = biased.inputs[0].op, biased.inputs[1]
    if product.type != "MatMul" or product.attrs["transpose_a"] or product.attrs["transpose_b"] or biased.attrs.get("data_format", b"NHWC") != b"NHWC":
        return None
    joined = product.inputs[0].op
    if joined.type != "ConcatV2" or joined.attrs["N"] != 2 or _constant(joined.inputs[2]) not in (1, -1):
        return None
    inside = [squashed, gate_o, state, a, b, *new, gate_f, *extra, split, biased, product, joined]
    x, h_prev = joined.inputs[:2]
    step = _Step(x, c_prev, h_prev, product.inputs[1], bias, order, forget_bias, state.outputs[0], mul.outputs[0], [*inside, mul])
    return step if _is_constant(step.w) and _is_constant(step.b) and _fits(step) and _is_closed(step, targets) else None


def _kept(op: Operation) -> tuple[Tensor, Operation] | None:
    """(c, gate) of c * sigmoid(...); c itself may be anything."""
    a, b = op.inputs
    if b.op.type == "Sigmoid":
        return a, b.op
    return (b, a.op) if a.op.type == "Sigmoid" else None


def _forget(gate: Operation) -> tuple[Tensor, float, list[Operation]]:
    """The sums of the forget gate, and the constant that is added to them."""
    value = gate.inputs[0]
    if value.op.type in _ADDS:
        a, b = value.op.inputs
        for sums, number in ((a, b), (b, a)):
            bias = _constant(number)
            if bias is not None and sums.op.type == "Split":
                return sums, float(bias), [value.op]
    return value, 0.0, []


def _constant(tensor: Tensor) -> Any:
    """The number that a scalar constant holds, else None."""
    op = tensor.op
    if op.type not in _CONSTANTS or tensor.dims != ():
        return None
    return op.attrs["value"].array.item()


def _fits(step: _Step) -> bool:
    """Whether all shapes are known and those of an LSTM."""
    x, c, h, w, b = (t.dims for t in (step.x, step.c_prev, step.h_prev, step.w, step.b))
    if not (is_fully_defined(x) and is_fully_defined(c) and is_fully_defined(h) and is_fully_defined(w) and is_fully_defined(b)):
        return False
    if (len(x), len(c), len(h), len(w), len(b)) != (2, 2, 2, 2, 1) or 0 in (*x, *h):
        return False
    return c == h and x[0] == h[0] and w == (x[1] + h[1], 4 * h[1]) and b == (4 * h[1],)


def _is_closed(step: _Step, targets: frozenset[str]) -> bool:
    """Whether only the step itself needs what it computes, but for its state and its output."""
    inside = set(step.inside)
    device = step.h.op.device
    for op in step.inside:
        if op.control_inputs or op.device != device or op.attrs["T"] is not dtypes.float32:
            return False
        if op is step.h.op or op is step.c.op:
            continue
        if op._control_outputs or op.name in targets or any(r not in inside for t in op.outputs for r in t._consumers or ()):
            return False
    return not step.c.op._control_outputs and step.c.op.name not in targets


# -- sequences ----------------------------------------------------------------------------------------------------------


def _sequences(steps: dict[Tensor, _Step]) -> list[list[_Step]]:
    """Steps that follow each other with the same weights, the first one first."""
    following: dict[Tensor, _Step] = {}
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


def _only_inside(before: _Step, step: _Step) -> bool:
    """Whether nothing but these two steps reads the state between them, and nobody waits for or asks for the output itself."""
    inside = {*before.inside, *step.inside}
    return all(r in inside for r in before.c._consumers or ()) and not before.h.op._control_outputs


def _join(sequences: list[list[_Step]], edit: Edit) -> None:
    owners: dict[Operation, list[_Step]] = {}
    for sequence in sequences:
        first, last = sequence[0], sequence[-1]
        if _feeds_itself(sequence, owners):
            continue
        owners.update((op, sequence) for step in sequence for op in step.inside)
        head = last.h.op
        inputs = [*(step.x for step in sequence), first.c_prev, first.h_prev, first.w, first.b]
        attrs = {
            "N": len(sequence), "T": dtypes.float32, "order": list(first.order), "forget_bias": first.forget_bias,
            "_fused_nodes": [(op.origin or op).name.encode() for step in sequence for op in step.inside],
        }  # fmt: skip
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


def _feeds_itself(sequence: list[_Step], owners: dict[Operation, list[_Step]]) -> bool:
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


def _inputs(sequence: list[_Step]) -> Iterable[Tensor]:
    first = sequence[0]
    return [*(step.x for step in sequence), first.c_prev, first.h_prev, first.w, first.b]
