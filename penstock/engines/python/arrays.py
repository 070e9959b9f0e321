"""TensorArrays that only one function knows.

A TensorArray whose handle goes nowhere but to the nodes that write, read and differentiate it in the same function is an object that the lines call
themselves: `a.write(i, x)`, `x = a.read(i)`. There is no handle to look up, no lock, and the flow, which only says what comes first, is a
constant: lines stand in the order that the graph asks for. What is wrong with a write or a read, the array says as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index as as_index
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.python.structure import Call
from penstock.graph.ir import Operation, Tensor
from penstock.ops import tensor_array
from penstock.ops.kernels import tensor_arrays as kernels
from penstock.shapes import dims_of, is_fully_defined

NEW, GRADIENT = "TensorArrayV3", "TensorArrayGradV3"
_TYPE_ATTR = {
    "TensorArrayWriteV3": "T", "TensorArrayScatterV3": "T", "TensorArraySplitV3": "T", "TensorArrayReadV3": "dtype", "TensorArrayGatherV3": "dtype",
    "TensorArrayConcatV3": "dtype",
}  # fmt: skip
"""Where a node says what type it takes or gives."""
USERS = frozenset((*_TYPE_ATTR, GRADIENT, "TensorArraySizeV3"))
ARRAY_OPS = USERS | {NEW}
VALUE = {"TensorArrayWriteV3": 2, "TensorArrayScatterV3": 2, "TensorArraySplitV3": 1}
"""Nodes that write, and which input it is."""
NO_FLOW = np.float32(0)


class LocalArray(NamedTuple):
    """The array that a node is about: the node that makes it, or makes the array that it has the gradients of."""

    maker: Operation
    is_gradient: bool


def find_arrays(
    statements: Iterable[tuple[Any, Any]], reads: Callable[[Any], Sequence[Tensor]], root: Callable[[Tensor], Tensor], results: Sequence[Tensor]
) -> dict[Operation, LocalArray]:
    """The nodes of all TensorArrays that are known in these statements only."""
    maker: dict[Tensor, Operation] = {}  # by handle, of gradients too
    users: dict[Operation, list[tuple[Operation, bool]]] = {}
    outside = {root(t) for t in results}
    for _, statement in statements:
        op: Operation | None = statement.node.op if isinstance(statement, Call) else None
        if op is not None and op.type == NEW:
            maker[op.outputs[0]] = op
            users[op] = [(op, False)]
            continue
        for i, tensor in enumerate(reads(statement)):
            handle = root(tensor)
            if handle not in maker:
                continue
            if op is None or op.type not in USERS or i or not _fits(op, maker[handle]):
                outside.add(handle)
                continue
            users[maker[handle]].append((op, handle.op.type == GRADIENT))
            if op.type == GRADIENT:
                maker[op.outputs[0]] = maker[handle]
    known = {maker[handle] for handle in outside if handle in maker}
    return {op: LocalArray(made, is_gradient) for made, ops in users.items() if made not in known for op, is_gradient in ops}


def _fits(op: Operation, maker: Operation) -> bool:
    attr = _TYPE_ATTR.get(op.type)
    if attr is not None and op.attrs[attr] is not maker.attrs["dtype"]:
        return False
    return op.type not in ("TensorArrayWriteV3", "TensorArrayReadV3") or op.inputs[1].dims == ()


def flows(arrays: Iterable[Operation]) -> dict[Tensor, Tensor]:
    """What a node gives as its flow is the flow that it was given."""
    found = {}
    for op in arrays:
        if op.type in VALUE:
            found[op.outputs[0]] = op.inputs[-1]
        elif op.type == GRADIENT:
            found[op.outputs[1]] = op.inputs[1]
    return found


def array_line(op: Operation, inputs: Sequence[str], name_of: Callable[[Any, str], str]) -> str:
    """What the line of a node says."""
    kind = op.type
    if kind == NEW:
        return f"{name_of(_Maker(op), 'new_array_')}({inputs[0]}), None"
    array = inputs[0]
    if kind == GRADIENT:
        return f"{array}.gradient({op.attrs['source']!r}), None"
    if kind == "TensorArrayWriteV3":
        return f"{array}.write({name_of(as_index, 'index_')}({inputs[1]}), {inputs[2]})"
    if kind == "TensorArrayReadV3":
        return f"{array}.read({name_of(as_index, 'index_')}({inputs[1]}))"
    if kind == "TensorArraySizeV3":
        return f"{name_of(np.int32, 'int32_')}({array}.size)"
    attrs = op.attrs
    more: list[Any]
    if kind == "TensorArrayConcatV3":
        function, arguments, more = kernels.concat, [array], [attrs["dtype"], dims_of(attrs["element_shape_except0"])]
    elif kind == "TensorArrayGatherV3":
        function, arguments, more = kernels.gather, [array, f"{name_of(tensor_array._indices, 'indices_')}({inputs[1]})"], [attrs["dtype"], dims_of(attrs["element_shape"])]
    elif kind == "TensorArrayScatterV3":
        function, arguments, more = kernels.scatter, [array, f"{name_of(tensor_array._indices, 'indices_')}({inputs[1]})", inputs[2]], [attrs["T"]]
    else:
        function, arguments, more = kernels.split, [array, inputs[1], inputs[2]], [attrs["T"]]
    return f"{name_of(function, function.__name__ + '_')}({', '.join([*arguments, *(name_of(value, 'c') for value in more)])})"


class _Maker:
    """Makes the array of a node, which belongs to nobody but the function."""

    def __init__(self, op: Operation) -> None:
        self.op = op
        attrs = op.attrs
        self.given = (attrs["dtype"], attrs["element_shape"], attrs["dynamic_size"], attrs["clear_after_read"], attrs["tensor_array_name"])
        self.identical = attrs["identical_element_shapes"]

    def __call__(self, size: Any) -> kernels.TensorArray:
        return tensor_array.new_array(size, *self.given, self.op, self.identical)


class Elements:
    """Which local arrays are sure to hold values of one shape: the array itself sees to it, or what is written decides. Gradients have the shapes of what they are
    gradients of. `vague` has arrays that are not. See `facts.find_sure`."""

    def __init__(self, arrays: dict[Operation, LocalArray], vague: Iterable[Operation] = ()) -> None:
        self.arrays = arrays
        self.dims: dict[Operation, Any] = {}
        self.vague = set(vague)
        for op in arrays:
            if op.type == NEW and is_fully_defined(dims := dims_of(op.attrs["element_shape"])):
                self.dims[op] = dims

    def written(self, op: Operation, is_sure: bool) -> None:
        """Takes note of a node that writes, and whether the shape of what it writes is sure."""
        maker, is_gradient = self.arrays[op]
        if is_gradient or is_fully_defined(dims_of(maker.attrs["element_shape"])):
            return
        dims = op.inputs[VALUE[op.type]].dims
        if op.type == "TensorArrayScatterV3" and dims:
            dims = dims[1:]
        if op.type == "TensorArraySplitV3" or not is_sure or not is_fully_defined(dims) or self.dims.setdefault(maker, dims) != dims:
            self.vague.add(maker)

    def is_sure(self, op: Operation) -> bool:
        """Whether the shape of what a node reads is."""
        maker = self.arrays[op].maker
        dims = self.dims.get(maker)
        if dims is None or maker in self.vague or (self.arrays[op].is_gradient and not maker.attrs["identical_element_shapes"]):
            return False
        if op.type == "TensorArrayReadV3":
            return op.outputs[0].dims == dims
        if op.type != "TensorArrayGatherV3":
            return False
        indices = op.inputs[1].dims
        return indices is not None and None not in indices and op.outputs[0].dims == (*indices, *dims)
