"""Refine: what follows from the shapes that are fed.

    (pruned graph, shapes of arguments) -> graph whose tensors' static shapes are those of steps with such arguments

A program says `[None, 784]` and feeds the same size again and again. For steps of that size its graph is as good as one that says
`[128, 784]`: shapes are constants, gradients need not find out at run time what was broadcast, and code knows how large arrays are.
Nothing is believed that does not follow from the arguments: the ops' own rules are applied to whatever depends on them, and what somebody
has claimed of a tensor (`set_shape`) stays as it is. Where that turns out to be wrong, there is no such graph (`Contradiction`): its nodes, which go by
the shapes that they get, may work all the same.

TensorArrays: what is read has the shape of what is written (`Arrays`).

Loops: a variable of a loop is assumed to have the shape that it begins with. If a round would give it another one, the assumption is dropped as
far as it was wrong, until the assumptions of all loops are met by their own rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock import dtypes
from penstock.graph.constant import known_value
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
    pushes, arrays = _pushes(order), Arrays(order)
    touched = _touched(order, pushes, arrays)
    before = {t: t.dims for op in touched for t in op.outputs}
    loops = [op for op in touched if op.type == "Merge" and any(t.op.type in _NEXT for t in op.inputs)]
    assumed: dict[Operation, Dims] = {}
    for attempt in range(MOST_ROUNDS + 1):
        if attempt == MOST_ROUNDS:
            assumed = {op: before[op.outputs[0]] for op in loops}
        for _ in range(arrays.most_passes):
            if not sum([_infer(op, before, assumed, pushes, arrays) for op in touched]):
                break
        if attempt == MOST_ROUNDS or not [op for op in loops if _drop(op, assumed)]:
            break
        for tensor, dims in before.items():
            tensor.dims = dims
            tensor.__dict__.pop("_known", None)  # a value that was found by way of the assumption (`constant.known_value`)
    return new


def _touched(order: list[Operation], pushes: dict[Operation, list[Operation]], arrays: Arrays) -> list[Operation]:
    """The nodes that depend on an exact argument, in order."""
    found: set[Operation] = set()
    for _ in range(arrays.most_passes):
        known = len(found)
        for op in order:
            sources = [t.op for t in op.inputs] if op.type != "StackPopV2" else pushes.get(_stack(op), [])
            if any(source in found or EXACT in source.attrs for source in (*sources, *arrays.written_to(op))):
                found.add(op)
        if len(found) == known:
            break
    return [op for op in order if op in found]


def _infer(op: Operation, before: dict[Tensor, Dims], assumed: dict[Operation, Dims], pushes: dict[Operation, list[Operation]], arrays: Arrays) -> bool:
    """Gives a node's outputs their shapes; whether they have others than before."""
    old = [t.dims for t in op.outputs]
    _infer_one(op, before, assumed, pushes, arrays)
    return old != [t.dims for t in op.outputs]


def _infer_one(op: Operation, before: dict[Tensor, Dims], assumed: dict[Operation, Dims], pushes: dict[Operation, list[Operation]], arrays: Arrays) -> None:
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
        value = known_value(pushed[0].inputs[1]) if len(pushed) == 1 else None
        if value is not None:  # a shape, by which the gradient in another loop goes
            op.outputs[0].__dict__["_known"] = value
    elif op.type in _READS:
        found = arrays.read_by(op)
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


_READS, _WRITES = ("TensorArrayReadV3", "TensorArrayGatherV3"), {"TensorArrayWriteV3": 0, "TensorArrayScatterV3": 1}
"""Nodes that take elements out of TensorArrays, and those that put them in: how many dimensions of what they put in are not the element's."""
_HARMLESS = frozenset((*_READS, *_PASSES, "TensorArrayGradV3", "TensorArraySizeV3", "TensorArrayCloseV3"))


class Arrays:
    """The TensorArrays of a graph. What is read has the shape of what is written, if that is all of one shape; a gradient's elements have
    the shapes of those that they are gradients of."""

    def __init__(self, order: list[Operation]) -> None:
        self._writes: dict[Operation, list[Operation]] = {op: [] for op in order if op.type == "TensorArrayV3"}
        self._unclear: set[Operation] = set()
        for op in order:
            for tensor in op.inputs:
                if tensor.dtype is not dtypes.resource or op.type in _HARMLESS:
                    continue
                maker, is_gradient = _array(tensor)
                if maker not in self._writes or is_gradient:
                    continue
                if op.type in _WRITES and tensor is op.inputs[0]:
                    self._writes[maker].append(op)
                else:
                    self._unclear.add(maker)
        self.most_passes = min(1 + 2 * len(self._writes), MOST_ROUNDS)
        """A node that reads may come before one that writes, in the order of nodes."""

    def written_to(self, op: Operation) -> list[Operation]:
        """The nodes whose values a node that reads may find."""
        if op.type not in _READS:
            return []
        return [write.inputs[2].op for write in self._writes.get(_array(op.inputs[0])[0], ())]

    def read_by(self, op: Operation) -> list[Dims] | None:
        maker, is_gradient = _array(op.inputs[0])
        writes = self._writes.get(maker, [])
        if not writes or maker in self._unclear or (is_gradient and not maker.attrs["identical_element_shapes"]):
            return inferred_dims(op)
        found: set[Dims] = set()
        for write in writes:
            dims = write.inputs[2].dims
            found.add(None if dims is None else dims[_WRITES[write.type] :])
        if len(found) > 1 or None in found:
            return inferred_dims(op)
        (element,) = found
        if op.type == "TensorArrayReadV3":
            return [element]
        indices = op.inputs[1].dims
        return inferred_dims(op) if indices is None or element is None else [(*indices, *element)]


def _array(handle: Tensor) -> tuple[Operation, bool]:
    """The node that made the array, and whether the handle is that of a gradient."""
    op, is_gradient = handle.op, False
    while op.type in _PASSES or op.type == "TensorArrayGradV3":
        is_gradient = is_gradient or op.type == "TensorArrayGradV3"
        op = op.inputs[0].op
    return op, is_gradient


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
