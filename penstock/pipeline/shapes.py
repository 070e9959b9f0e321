"""Refine: what follows from the shapes that are fed.

    (pruned graph, shapes of arguments) -> graph whose tensors' static shapes are those of steps with such arguments

A program says `[None, 784]` and feeds the same size again and again. For steps of that size its graph is as good as one that says
`[128, 784]`: shapes are constants, gradients need not find out at run time what was broadcast, and code knows how large arrays are.
Nothing is believed that does not follow from the arguments: the ops' own rules are applied to whatever depends on them, and what somebody
has claimed of a tensor (`set_shape`) stays as it is. Where that turns out to be wrong, there is no such graph (`Contradiction`): its nodes, which go by
the shapes that they get, may work all the same.

Loops: a variable of a loop is assumed to have the shape that it begins with. If a round would give it another one, the assumption is dropped as
far as it was wrong, until the assumptions of all loops are met by their own rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.graph.ir import Dims, Graph, Operation, Tensor
from penstock.graph.rewrite import Copier, topological
from penstock.graph.shape_inference import inferred_dims
from penstock.shapes import format_dims

EXACT = "_exact_shape"
"""Attribute of an `_Arg` whose shape is not a promise of the client's: only such values come in."""
_NEXT = ("NextIteration", "RefNextIteration")
_PASSES = frozenset(("Enter", "RefEnter", "Identity", "RefIdentity"))
MOST_ROUNDS = 8


class Contradiction(Exception):
    """The arguments' shapes are at odds with what is claimed of a tensor."""


def refine(graph: Graph, shapes: Sequence[Dims]) -> Graph:
    """A copy of `graph` for arguments of these shapes, by index; None is for one that is as it was."""
    copier = Copier(graph)
    for op in graph:
        dims = shapes[op.attrs["index"]] if op.type == "_Arg" else None
        clone = copier.clone(op, attrs=None if dims is None else {**op.attrs, EXACT: True})
        if dims is not None:
            clone.outputs[0].dims = dims
    new = copier.wire()
    order = topological(new)
    pushes = _pushes(order)
    touched = _touched(order, pushes)
    before = {t: t.dims for op in touched for t in op.outputs}
    loops = [op for op in touched if op.type == "Merge" and any(t.op.type in _NEXT for t in op.inputs)]
    assumed: dict[Operation, Dims] = {}
    for attempt in range(MOST_ROUNDS + 1):
        if attempt == MOST_ROUNDS:
            assumed = {op: before[op.outputs[0]] for op in loops}
        for op in touched:
            _infer(op, before, assumed, pushes)
        if attempt == MOST_ROUNDS or not [op for op in loops if _drop(op, assumed)]:
            break
        for tensor, dims in before.items():
            tensor.dims = dims
            tensor.__dict__.pop("_known", None)  # a value that was found by way of the assumption (`constant.known_value`)
    return new


def _touched(order: list[Operation], pushes: dict[Operation, list[Operation]]) -> list[Operation]:
    """The nodes that depend on an exact argument, in order."""
    found: dict[Operation, None] = {}
    for op in order:
        sources = [t.op for t in op.inputs] if op.type != "StackPopV2" else pushes.get(_stack(op), [])
        if any(source in found or EXACT in source.attrs for source in sources):
            found[op] = None
    return list(found)


def _infer(op: Operation, before: dict[Tensor, Dims], assumed: dict[Operation, Dims], pushes: dict[Operation, list[Operation]]) -> None:
    if op.type == "Merge" and any(t.op.type in _NEXT for t in op.inputs):
        first = next((t.dims for t in op.inputs if t.op.type not in _NEXT), None)
        if op not in assumed:
            assumed[op] = _refined(before[op.outputs[0]], first)
        op.outputs[0].dims = assumed[op]
        return
    if op.type in ("Enter", "RefEnter"):  # whose rule leaves open what the rounds of a loop make of it
        found: list[Dims] | None = [op.inputs[0].dims]
    elif op.type == "StackPopV2":
        pushed = pushes.get(_stack(op), [])
        found = [pushed[0].inputs[1].dims] if len(pushed) == 1 else None
    else:
        found = inferred_dims(op)
    if found is not None and len(found) == len(op.outputs):
        for tensor, dims in zip(op.outputs, found):
            tensor.dims = _refined(before[tensor], dims)


def _refined(old: Dims, new: Dims) -> Dims:
    """`old` with what `new` knows beside it."""
    if old is None or new is None:
        return new if old is None else old
    if len(old) != len(new) or any(a is not None and b is not None and a != b for a, b in zip(old, new)):
        raise Contradiction(f"{format_dims(old)} is claimed, {format_dims(new)} follows")
    return tuple(b if a is None else a for a, b in zip(old, new))


def _drop(merge: Operation, assumed: dict[Operation, Dims]) -> bool:
    """Takes back what a round does not keep of an assumption; whether there was something."""
    dims = assumed[merge]
    for tensor in merge.inputs:
        other = tensor.dims
        if dims is None or other is None or len(dims) != len(other):
            dims = None if dims != other else dims
        else:
            dims = tuple(a if a == b else None for a, b in zip(dims, other))
    if dims == assumed[merge]:
        return False
    assumed[merge] = dims
    return True


def _pushes(order: list[Operation]) -> dict[Operation, list[Operation]]:
    """The nodes that push to each stack."""
    found: dict[Operation, list[Operation]] = {}
    for op in order:
        if op.type == "StackPushV2":
            found.setdefault(_stack(op), []).append(op)
    return found


def _stack(op: Operation) -> Operation:
    source = op.inputs[0].op
    while source.type in _PASSES:
        source = source.inputs[0].op
    return source
