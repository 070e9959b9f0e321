"""One step of an LSTM in a graph: the ops that `BasicLSTMCell` writes down, or anybody who writes the same by hand.

    gates = concat([x, h]) @ w + b, split in four: i, j, f, o in any order
    c = c * sigmoid(f + forget_bias) + sigmoid(i) * tanh(j)
    h = tanh(c) * sigmoid(o)

All shapes are known and fit, so that nothing inside can fail. Who else reads what is inside is for others to ask: `cells` and `unrolled`,
which join the steps of a sequence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock import dtypes
from penstock.graph.ir import Operation, Tensor
from penstock.shapes import is_fully_defined

ADDS = frozenset(("Add", "AddV2"))
CONSTANTS = frozenset(("Const", "HostConst"))


class Step(NamedTuple):
    """One step: what goes in, the values inside that its gradient reads, what comes out, and the nodes that compute it."""

    x: Tensor
    c_prev: Tensor
    h_prev: Tensor
    w: Tensor
    b: Tensor
    order: tuple[int, ...]
    forget_bias: float
    joined: Tensor
    gates: tuple[Tensor, Tensor, Tensor, Tensor]
    """i, j, f, o, activated"""
    squashed: Tensor
    c: Tensor
    h: Tensor
    inside: list[Operation]

    @property
    def layer(self) -> tuple[Any, ...]:
        """What all steps of a sequence have in common."""
        return _source(self.w), _source(self.b), self.order, self.forget_bias


def _source(tensor: Tensor) -> Tensor:
    """What stands for a value: a resource variable is read once for each use, and reads that wait for nothing may all take place at once."""
    op = tensor.op
    while op.type == "Identity" and not op.control_inputs:
        op = op.inputs[0].op
    return op.inputs[0] if op.type == "ReadVariableOp" and not op.control_inputs else tensor


def behind(tensor: Tensor) -> Tensor:
    """The tensor behind Identities, by which gradients are made to wait for each other."""
    while tensor.op.type == "Identity" and not tensor.op.inputs[0].dtype._is_ref_dtype:
        tensor = tensor.op.inputs[0]
    return tensor


def number(tensor: Tensor) -> Any:
    """The number that a scalar constant holds, else None."""
    op = tensor.op
    return op.attrs["value"].array.item() if op.type in CONSTANTS and tensor.dims == () and not op.control_inputs else None


def _split_pair(op: Operation, first: str, second: str) -> tuple[Operation, Operation] | None:
    """The inputs of a commutative node, if one is of type `first` and the other of type `second`."""
    a, b = (t.op for t in op.inputs)
    if a.type == first and b.type == second:
        return a, b
    return (b, a) if a.type == second and b.type == first else None


def find_step(mul: Operation) -> Step | None:
    """The step whose output is `mul` = tanh(c) * sigmoid(o)."""
    found = _split_pair(mul, "Tanh", "Sigmoid") if mul.attrs["T"] is dtypes.float32 and "device:CPU" in mul.device else None
    if found is None:
        return None
    squashed, gate_o = found
    state = squashed.inputs[0].op
    if state.type not in ADDS or any(t.op.type != "Mul" for t in state.inputs):
        return None
    for old, new in ((0, 1), (1, 0)):
        keeps, adds = state.inputs[old].op, state.inputs[new].op
        pair = _split_pair(adds, "Sigmoid", "Tanh")
        at = [i for i, t in enumerate(keeps.inputs) if t.op.type == "Sigmoid"]
        if pair is not None and len(at) == 1:
            return _whole(mul, squashed, gate_o, state, keeps, at[0], adds, *pair)
    return None


def _whole(
    mul: Operation, squashed: Operation, gate_o: Operation, state: Operation, keeps: Operation, at: int, adds: Operation, gate_i: Operation, candidate: Operation,
) -> Step | None:  # fmt: skip
    gate_f, c_prev = keeps.inputs[at].op, keeps.inputs[1 - at]
    inside = [squashed, gate_o, state, keeps, adds, gate_i, candidate, gate_f]
    sums_f, forget_bias = gate_f.inputs[0], 0.0
    if sums_f.op.type in ADDS:
        inside.append(sums_f.op)
        numbers = [number(t) for t in sums_f.op.inputs]
        if numbers.count(None) != 1:
            return None
        forget_bias = float(numbers[1] if numbers[0] is None else numbers[0])
        sums_f = sums_f.op.inputs[0 if numbers[0] is None else 1]
    sums = (gate_i.inputs[0], candidate.inputs[0], sums_f, gate_o.inputs[0])
    split = sums[0].op
    if split.type != "Split" or split.attrs["num_split"] != 4 or any(t.op is not split for t in sums):
        return None
    order = tuple(t.value_index for t in sums)
    biased = split.inputs[1].op
    if sorted(order) != [0, 1, 2, 3] or number(split.inputs[0]) not in (1, -1) or biased.type not in ("BiasAdd", *ADDS):
        return None
    product, bias = biased.inputs[0].op, biased.inputs[1]
    if product.type != "MatMul" or product.attrs["transpose_a"] or product.attrs["transpose_b"] or biased.attrs.get("data_format", b"NHWC") != b"NHWC":
        return None
    joined = product.inputs[0].op
    if joined.type != "ConcatV2" or joined.attrs["N"] != 2 or number(joined.inputs[2]) not in (1, -1):
        return None
    inside += [split, biased, product, joined, mul]
    if any(op.control_inputs or op.device != mul.device for op in inside):
        return None
    x, h_prev = joined.inputs[:2]
    gates = (gate_i.outputs[0], candidate.outputs[0], gate_f.outputs[0], gate_o.outputs[0])
    step = Step(
        x, c_prev, h_prev, product.inputs[1], bias, order, forget_bias, joined.outputs[0], gates, squashed.outputs[0], state.outputs[0], mul.outputs[0], inside
    )
    return step if _fits(step) else None


def _fits(step: Step) -> bool:
    """Whether all shapes are known and those of an LSTM, and all numbers float32."""
    given = (step.x, step.c_prev, step.h_prev, step.w, step.b)
    x, c, h, w, b = (t.dims for t in given)
    if not (is_fully_defined(x) and is_fully_defined(c) and is_fully_defined(h) and is_fully_defined(w) and is_fully_defined(b)):
        return False
    if (len(x), len(c), len(h), len(w), len(b)) != (2, 2, 2, 2, 1) or 0 in (*x, *h) or any(t.dtype is not dtypes.float32 for t in given):
        return False
    return c == h and x[0] == h[0] and w == (x[1] + h[1], 4 * h[1]) and b == (4 * h[1],)
