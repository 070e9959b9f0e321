"""Runs an op's shape rule over its inputs: static shapes, and what resource handles hold."""

from __future__ import annotations

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.graph.bind import input_ranges
from penstock.graph.ir import Dims, Operation, Tensor
from penstock.shapes import format_dims


class ShapeContext:
    """What a shape rule sees of the op: dims, attributes and known values of its inputs."""

    __slots__ = ("attrs", "inputs", "n", "op")

    def __init__(self, op: Operation) -> None:
        self.op = op
        self.attrs = op.attrs
        self.inputs = op.inputs
        self.n = len(op.inputs)

    def dims(self, i: int) -> Dims:
        return self.inputs[i].dims

    def input(self, i: int) -> Tensor:
        return self.inputs[i]

    def const(self, i: int) -> np.ndarray | None:
        """The input's value if it can be known while building, else None."""
        from penstock.graph.constant import known_value

        return known_value(self.inputs[i])

    def const_dims(self, i: int) -> Dims:
        """A shape vector's value as dims: unknown entries are None, an unknown length is None as a whole."""
        from penstock.graph.constant import constant_dims

        return constant_dims(self.inputs[i])

    def arg(self, name: str) -> tuple[int, int]:
        """Flat range [start, stop) of the input argument called `name`."""
        for arg, (start, stop, _) in zip(self.op.op_def.inputs, input_ranges(self.op), strict=True):
            if arg.name == name:
                return start, stop
        raise KeyError(name)

    def handle(self, i: int) -> tuple[DType, Dims] | None:
        """(dtype, dims) of what resource input `i` refers to, if known."""
        data = self.inputs[i].handle_data
        return data[0] if data else None

    def set_handle(self, output: int, dtype: DType, dims: Dims) -> None:
        self.op.outputs[output].handle_data = [(dtype, dims)]

    def copy_handle(self, output: int, i: int) -> None:
        self.op.outputs[output].handle_data = self.inputs[i].handle_data


def infer_shapes(op: Operation) -> None:
    """Sets the dims of `op`'s outputs by its rule; ValueError, in TF's words, if the inputs' shapes do not fit."""
    rule = op.op_def.shape_rule
    if rule is None:
        return
    try:
        result = rule(ShapeContext(op))
    except (ValueError, IndexError) as error:
        shapes = ", ".join("[" + format_dims(t.dims)[1:-1].rstrip(",") + "]" if t.dims is not None else "<unknown>" for t in op.inputs)
        known = known_inputs(op)
        raise ValueError(f"{error} for '{op.name}' (op: '{op.type}') with input shapes: {shapes}{known}.") from error
    outputs = op.outputs
    if result.__class__ is list:
        if len(result) != len(outputs):
            raise ValueError(f"Node '{op.name}' (op: '{op.type}') has {len(outputs)} outputs by its attributes, but {len(result)} by its inputs")
        for tensor, dims in zip(outputs, result, strict=True):
            tensor.dims = dims
    else:
        for tensor in outputs:
            tensor.dims = result


def inferred_dims(op: Operation) -> list[Dims] | None:
    """What the rule says of the outputs, whatever they have been given since; None if there is no rule or the inputs do not fit."""
    rule = op.op_def.shape_rule
    if rule is None:
        return None
    try:
        result = rule(ShapeContext(op))
    except (ValueError, IndexError):
        return None
    return result if result.__class__ is list else [result] * len(op.outputs)


def known_inputs(op: Operation) -> str:
    """TF's tail of a shape error: which inputs had known values."""
    from penstock.graph.constant import known_value

    parts = []
    for i, tensor in enumerate(op.inputs):
        value = known_value(tensor) if tensor.dtype.base_dtype in (dtypes.int32, dtypes.int64) else None
        if value is not None and np.ndim(value) <= 1 and np.size(value) <= 16:
            parts.append(f"input[{i}] = <{' '.join(str(v) for v in np.ravel(value))}>")
    return " and with computed input tensors: " + ", ".join(parts) if parts else ""
