"""Constant folding: what can be computed before the step is not computed in it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.graph.bind import bind
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.rewrite import topological
from penstock.pipeline.optimise.edit import CONTROL_FLOW, Edit, is_pure
from penstock.pipeline.shapes import EXACT
from penstock.shapes import is_fully_defined

LARGEST_RESULT = 10 << 20  # bytes: a folded constant is kept in the executor for good
_SHAPE_OPS = frozenset(("Shape", "Size", "Rank", "ShapeN"))
_KEPT = frozenset(("Const", "HostConst", "PlaceholderWithDefault", "StopGradient", "ImmutableConst", "GuaranteeConst"))


def fold_constants(graph: Graph, context: Any) -> Graph:
    """f(constants) -> constant;  shape(x of known shape) -> constant"""
    edit = Edit(graph)
    known: dict[Tensor, np.ndarray] = {}
    loose: dict[Operation, list[Operation]] = {}  # folded op -> control inputs that its constants inherit
    no_control_flow = not any(op.type in CONTROL_FLOW for op in graph)
    if not any(op.type == "Const" for op in graph) and not any(op.type in _SHAPE_OPS for op in graph):
        return graph
    for op in topological(graph):
        if op.type == "Const":
            known[op.outputs[0]] = op.attrs["value"].array
            if op.control_inputs:
                loose[op] = op.control_inputs
            continue
        if op.type in _SHAPE_OPS:
            _fold_shape(op, edit, known, no_control_flow)
            continue
        if not op.inputs or op.type in _KEPT or not is_pure(op) or context.expired():
            continue
        values = []
        for tensor in op.inputs:
            value = known.get(tensor)
            if value is None:
                break
            values.append(value)
        else:
            _fold(op, values, edit, known, loose)
    if not edit.constants:
        return graph
    edit.why.append(f"folded {len(edit.constants)} nodes into constants: {', '.join(op.name for op in list(edit.constants)[:5])}{', ...' if len(edit.constants) > 5 else ''}")
    context.note(edit)
    return edit.apply(context.roots(graph))


def _fold(op: Operation, values: list[np.ndarray], edit: Edit, known: dict, loose: dict) -> None:
    if any(t.dtype.base_dtype in (dtypes.resource, dtypes.variant) for t in op.outputs) or not op.outputs:
        return
    size = sum(v.nbytes for v in values)
    if any(t.dims is not None and None not in t.dims and _bytes(t) > max(LARGEST_RESULT, 0) and _bytes(t) > size for t in op.outputs):
        return
    bound = bind(op)
    if bound.needs_ctx:
        return
    try:
        with np.errstate(all="ignore"):
            result = bound.fn(*values)
    except Exception:  # the step will raise it again, and say where
        return
    results = [result] if bound.plain else list(result)
    arrays = [np.asarray(r) for r in results]
    if len(arrays) != len(op.outputs) or sum(a.nbytes for a in arrays) > max(LARGEST_RESULT, size):
        return
    if any(a.dtype != t.dtype.np for a, t in zip(arrays, op.outputs, strict=True)):
        return
    edit.constants[op] = [(t.dtype.base_dtype, a) for t, a in zip(op.outputs, arrays, strict=True)]
    known.update(zip(op.outputs, arrays, strict=True))
    # The constant still waits for what it and its inputs waited for: that keeps it in its loop and its branch.
    inherited = list(dict.fromkeys([*op.control_inputs, *(c for t in op.inputs for c in loose.get(t.op, ()))]))
    if inherited:
        loose[op] = inherited
        edit.controls[op] = inherited


def _bytes(tensor: Tensor) -> int:
    count = 1
    for d in tensor.dims or ():
        count *= d or 0
    return count * (tensor.dtype.np.itemsize or 1)


def _fold_shape(op: Operation, edit: Edit, known: dict, no_control_flow: bool) -> None:
    """Shape, Size and Rank need no value, only what is known of their input's shape."""
    if op.type == "ShapeN":
        _fold_shapes(op, edit, known, no_control_flow)
        return
    source = op.inputs[0]
    dims = source.dims
    if not no_control_flow or op.control_inputs or source.dtype._is_ref_dtype or dims is None or not _gives_its_shape(source.op):
        return
    dtype = op.outputs[0].dtype
    if op.type == "Rank":
        value = np.array(len(dims), dtype.np)
    elif not is_fully_defined(dims) or (max(dims, default=0) if op.type == "Shape" else math.prod(dims)) > dtype.max:
        return  # what does not fit into the type is an error, which the step will report
    elif op.type == "Shape":
        value = np.array(dims, dtype.np)
    else:
        value = np.array(math.prod(dims), dtype.np)
    edit.constants[op] = [(dtype, value)]
    known[op.outputs[0]] = value


def _gives_its_shape(op: Operation) -> bool:
    """Whether the values of a node have the shapes that are known of them."""
    return EXACT in op.attrs or (op.type not in ("_Arg", "_Recv", "Placeholder") and is_pure(op))


def _fold_shapes(op: Operation, edit: Edit, known: dict, no_control_flow: bool) -> None:
    """ShapeN of inputs whose shapes are all known."""
    if not no_control_flow or op.control_inputs:
        return
    dtype = op.outputs[0].dtype
    for source in op.inputs:
        dims = source.dims
        if dims is None or not is_fully_defined(dims) or max(dims, default=0) > dtype.max or source.dtype._is_ref_dtype:
            return
        if not _gives_its_shape(source.op):
            return
    values = [np.array(source.dims, dtype.np) for source in op.inputs]
    edit.constants[op] = [(dtype, value) for value in values]
    known.update(zip(op.outputs, values, strict=True))
