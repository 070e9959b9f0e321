"""Common subexpressions: what is computed twice is computed once."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.formats.attr_value import TensorAttr
from penstock.graph.ir import Graph, Operation
from penstock.graph.rewrite import topological
from penstock.pipeline.optimise.edit import Edit, is_pure
from penstock.shapes import TensorShape

_SMALL = 4096  # bytes: larger constants are compared by identity only


def share_common_subexpressions(graph: Graph, context: Any) -> Graph:
    """f(x), f(x) -> one f(x)"""
    edit = Edit(graph)
    redirect = edit.redirect
    seen: dict[Any, Operation] = {}
    others: dict[Any, list[Operation]] = {}  # those that differ from the first one in attributes
    merged: dict[Operation, Operation] = {}
    for op in topological(graph):
        if not op.outputs or not is_pure(op):
            continue
        controls = frozenset(merged.get(c, c) for c in op.control_inputs) if op.control_inputs else None
        key: Any
        if op.type == "Const":
            value = op.attrs["value"]
            array = value.array
            if array.nbytes > _SMALL or array.dtype == object:
                continue
            key = ("Const", op.device, value.dtype, array.shape, array.tobytes(), controls)
        else:
            inputs = tuple([id(redirect.get(t, t)) for t in op.inputs])  # one hop: a twin has no twin of its own
            if op.op_def.commutative and len(inputs) == 2 and inputs[0] > inputs[1]:
                inputs = (inputs[1], inputs[0])
            key = (op.type, op.device, inputs, controls)
        twin: Operation | None = seen.setdefault(key, op)
        if twin is op:
            continue
        if op.type != "Const" and not same_attrs(op.attrs, twin.attrs):
            more = others.setdefault(key, [])
            twin = next((other for other in more if same_attrs(op.attrs, other.attrs)), None)
            if twin is None:
                more.append(op)
                continue
        merged[op] = twin
        for old, new in zip(op.outputs, twin.outputs, strict=True):
            redirect[old] = new
    if not redirect:
        return graph
    # Whoever waited for a node that is gone waits for its twin.
    for op in graph:
        if op.control_inputs and any(c in merged for c in op.control_inputs):
            edit.controls[op] = list(dict.fromkeys(merged.get(c, c) for c in op.control_inputs))
    edit.why.append(f"shared {len(merged)} repeated nodes: {', '.join(f'{a.name} = {b.name}' for a, b in list(merged.items())[:4])}{', ...' if len(merged) > 4 else ''}")
    context.note(edit)
    return edit.apply(context.roots(graph))


def same_attrs(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Equal attributes, but for those that only tell where a node came from or should be put."""
    if a is b:
        return True
    for key in a.keys() | b.keys():
        if key == "_class" or key == "_output_shapes":
            continue
        if key not in a or key not in b or not _same(a[key], b[key]):
            return False
    return True


def _same(x: Any, y: Any) -> bool:
    if x is y:
        return True
    if type(x) is not type(y):
        return False
    if isinstance(x, TensorAttr):
        return x.dtype is y.dtype and x.array.shape == y.array.shape and x.array.nbytes <= _SMALL and bool(np.array_equal(x.array, y.array))
    if isinstance(x, list):
        return len(x) == len(y) and all(_same(i, j) for i, j in zip(x, y, strict=True))
    if isinstance(x, TensorShape):
        return x._dims == y._dims  # TensorShape's == is TF's, which is not equality for unknown shapes
    if isinstance(x, float):
        return x == y or (x != x and y != y)
    return bool(x == y)
