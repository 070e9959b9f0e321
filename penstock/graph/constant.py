"""Constants, and what can be known of a tensor's value while the graph is being built.

`known_value` evaluates pure subgraphs of constants with the ops' own kernels; `constant_dims` reads a shape vector as
far as it is known. `constant_value` is TF1's public function, which looks through fewer ops.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.formats.attr_value import TensorAttr
from penstock.formats.values import convert_typed
from penstock.graph.bind import bind
from penstock.graph.build import create_node
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Dims, Graph, Tensor
from penstock.graph.opdef import OPS
from penstock.names import check_op_name
from penstock.shapes import TensorShape, dims_of, is_fully_defined

_LARGEST_FOLDED = 4096  # elements: above that, shape inference does not compute


def constant_tensor(graph: Graph, array: np.ndarray, dtype: dtypes.DType, name: str) -> Tensor:
    """A Const node holding `array`. `name` is made unique in the current scope; "scope/" is taken as it is."""
    attrs = {"value": TensorAttr(dtype, array), "dtype": dtype}
    unique = check_op_name(name[:-1] if name.endswith("/") else graph.unique_name(name))
    return create_node(graph, OPS["Const"], [], attrs, [dtype], unique).outputs[0]


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str = "Const", verify_shape: bool = False,
             allow_broadcast: bool = True) -> Tensor:  # fmt: skip
    """A tensor that always has this value.

    With `shape`, a value with fewer elements is filled up with its last element, as TF1 does; `verify_shape` forbids it.
    """
    graph = get_default_graph()
    want = None if dtype is None else dtypes.as_dtype(dtype).base_dtype
    if isinstance(value, Tensor):
        raise TypeError(f"List of Tensors when single Tensor expected: a constant is made of plain values, got {value}")
    got, array = convert_typed(value, want, None if shape is None else TensorShape(shape).as_list(), verify_shape)
    return constant_tensor(graph, array, got, name or "Const")


# -- what is known of a value -----------------------------------------------------------------------------------------


def known_value(tensor: Tensor, depth: int = 0) -> np.ndarray | None:
    """The tensor's value if it follows from constants and static shapes alone, else None."""
    op = tensor.op
    kind = op.type
    if kind == "Const":
        return op.attrs["value"].array
    cached = tensor.__dict__.get("_known")
    if cached is not None:
        return cached
    value = _known_value(tensor, depth)
    if value is not None:
        tensor.__dict__["_known"] = value
    return value


def _known_value(tensor: Tensor, depth: int) -> np.ndarray | None:
    op = tensor.op
    kind = op.type
    if kind in ("Shape", "Size"):
        dims = op.inputs[0].dims
        if not is_fully_defined(dims):
            return None
        count = math.prod(dims)
        if (max(dims, default=0) if kind == "Shape" else count) > tensor.dtype.max:
            return None  # the step will say so
        return np.array(dims if kind == "Shape" else count, dtype=tensor.dtype.np)
    if kind == "Rank":
        dims = op.inputs[0].dims
        return None if dims is None else np.array(len(dims), dtype=np.int32)
    if kind == "ShapeN":
        dims = op.inputs[tensor.value_index].dims
        if not is_fully_defined(dims) or max(dims, default=0) > tensor.dtype.max:
            return None
        return np.array(dims, dtype=tensor.dtype.np)
    opdef = op.op_def
    if opdef.stateful or opdef.kernel is None or not op.inputs or depth > 60 or tensor.dtype._is_ref_dtype:
        return None
    if kind in _NEVER_FOLDED:
        return None
    if kind in _PICKS:
        picked = _picked(tensor, depth)
        if picked is not None:
            return picked
    if is_fully_defined(tensor.dims) and _size(tensor.dims) > _LARGEST_FOLDED:
        return None
    values = []
    for source in op.inputs:
        value = known_value(source, depth + 1)
        if value is None or value.size > _LARGEST_FOLDED:
            return None
        values.append(value)
    bound = bind(op)
    if bound.needs_ctx:
        return None
    try:
        with np.errstate(all="ignore"):
            result = bound.fn(*values)
    except Exception:  # the step itself will report it, with all that is known then
        return None
    return np.asarray(result if bound.plain else result[tensor.value_index])


_NEVER_FOLDED = {"Enter", "Exit", "NextIteration", "Switch", "Merge", "LoopCond", "PlaceholderWithDefault", "CheckNumerics", "Print",
                 "StopGradient", "PreventGradient"}  # fmt: skip


_PICKS = {"StridedSlice", "Unpack", "GatherV2", "Slice", "Split"}


def _picked(tensor: Tensor, depth: int) -> np.ndarray | None:
    """Elements picked out of a shape that is known in part: their value, if just those are known."""
    op = tensor.op
    source = op.inputs[1 if op.type == "Split" else 0]
    if source.op.type != "Shape" or tensor.dims is None or None in tensor.dims:
        return None
    value = _moved(tensor, depth)
    return None if value is None or (value < 0).any() else value


def _size(dims: Dims) -> int:
    total = 1
    for d in dims or ():
        total *= d or 1
    return total


def constant_dims(tensor: Tensor, depth: int = 0) -> Dims:
    """A shape vector's value as dims, with None where an entry is unknown; None if even its length is unknown."""
    value = known_value(tensor)
    if value is None:
        value = partly_known(tensor, depth)
        if value is None:
            return None
    if value.ndim == 0:
        if value == -1:
            return None
        raise ValueError("Shape must be rank 1 but is rank 0")
    sizes = value.tolist()
    if sizes and min(sizes) < -1:
        raise ValueError(f"Invalid value in tensor used for shape: {min(sizes)}")
    return tuple([None if v < 0 else v for v in sizes])


# Ops that only move elements, and which of their inputs hold the elements.
_MOVES: dict[str, slice] = {
    "Cast": slice(0, 1), "ConcatV2": slice(0, -1), "Concat": slice(1, None), "ExpandDims": slice(0, 1), "Gather": slice(0, 1),
    "GatherV2": slice(0, 1), "Identity": slice(0, 1), "Pack": slice(0, None), "Reshape": slice(0, 1), "ReverseV2": slice(0, 1),
    "Slice": slice(0, 1), "Split": slice(1, 2), "Squeeze": slice(0, 1), "StridedSlice": slice(0, 1), "Unpack": slice(0, 1),
}  # fmt: skip


def partly_known(tensor: Tensor, depth: int = 0) -> np.ndarray | None:
    """A tensor of sizes with -1 where an element is unknown; None if nothing at all is known, not even its shape.

    Moving elements moves the -1 with them, so that the ops' own kernels compute with them.
    """
    value = known_value(tensor)
    if value is not None:
        return value
    if tensor.dtype.base_dtype not in (dtypes.int32, dtypes.int64) or depth > 60:
        return None
    op = tensor.op
    if op.type in ("Shape", "ShapeN"):
        dims = op.inputs[tensor.value_index].dims
        if dims is not None:
            return np.array([-1 if d is None or d > tensor.dtype.max else d for d in dims], dtype=tensor.dtype.np)
    elif op.type in _MOVES:
        moved = _moved(tensor, depth)
        if moved is not None:
            return moved
    dims = tensor.dims
    if dims is None or None in dims or _size(dims) > _LARGEST_FOLDED:
        return None
    return np.full([d or 0 for d in dims], -1, dtype=tensor.dtype.np)


def _moved(tensor: Tensor, depth: int) -> np.ndarray | None:
    op = tensor.op
    data = range(*_MOVES[op.type].indices(len(op.inputs)))
    values = []
    for i, source in enumerate(op.inputs):
        value = partly_known(source, depth + 1) if i in data else known_value(source, depth + 1)
        if value is None:
            return None
        values.append(value)
    bound = bind(op)
    try:
        result = bound.fn(*values)
    except Exception:  # the step itself will report it
        return None
    return np.asarray(result if bound.plain else result[tensor.value_index])


def _entry(tensor: Tensor) -> int | None:
    value = partly_known(tensor)
    return None if value is None or value < 0 else int(value)


def constant_value(tensor: Any, partial: bool = False) -> np.ndarray | None:
    """The value of a constant tensor as an array, or None; TF1's `tf.contrib.util.constant_value`."""
    if not isinstance(tensor, Tensor):
        return np.asarray(tensor)
    if tensor.op.type not in _PUBLICLY_KNOWN:
        return None
    value = known_value(tensor)
    if value is None and partial and tensor.op.type == "Pack":
        parts = np.empty(len(tensor.op.inputs), dtype=object)
        for i, source in enumerate(tensor.op.inputs):
            parts[i] = known_value(source)
        return parts
    if value is not None:
        # A value that was read may no longer be fed: graph construction depended on it.
        tensor.graph.prevent_feeding(tensor)
    return value


_PUBLICLY_KNOWN = {"Const", "Shape", "Size", "Rank", "Range", "Cast", "Concat", "ConcatV2", "Pack", "Fill", "Equal", "NotEqual",
                   "StopGradient", "Unpack", "Split", "BroadcastTo", "ConcatOffset"}  # fmt: skip


def shape_tensor_dims(shape: Any) -> Dims:
    """Dims of a `shape=` argument that may be a tensor, a list with tensors in it, or anything TensorShape takes."""
    if isinstance(shape, Tensor):
        return constant_dims(shape)
    if isinstance(shape, (list, tuple)) and any(isinstance(s, Tensor) for s in shape):
        return tuple(_entry(s) if isinstance(s, Tensor) else dims_of([s])[0] for s in shape)  # type: ignore[index]
    return dims_of(shape)
