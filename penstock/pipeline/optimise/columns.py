"""Columns of products: of a gradient of which only a part is read, only that part is computed.

    slice(matmul(dy, w, transpose_b), [0, k], [-1, n]) -> _MatMulColumns(dy, w, start=k, count=n)

The cell of a recurrent network multiplies [x, h]. The gradient goes on to h only, if x is fed: the columns of x, and the copy, are left
out. They are rows of `w`, which lie together in memory. The product may vanish only if nothing else needs it.
"""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.graph.ir import Graph, Operation
from penstock.pipeline.optimise.edit import Edit
from penstock.pipeline.optimise.sums import behind_identities, leave_out, vanishes
from penstock.shapes import is_fully_defined


def keep_columns(graph: Graph, context: Any) -> Graph:
    """slice(matmul(a, b, transpose_b)) -> the product with some rows of b"""
    edit = Edit(graph)
    for op in graph:
        if op.type != "Slice" or op.attrs["T"] is not dtypes.float32 or "device:CPU" not in op.device:
            continue
        waits: dict[Operation, None] = {}
        product, reader = behind_identities(op.inputs[0], op, context.targets, waits)
        if product.type != "MatMul" or product.attrs["transpose_a"] or not product.attrs["transpose_b"]:
            continue
        if product.control_inputs or not vanishes(product, reader, context.targets):
            continue
        columns = _columns(op, product)
        if columns is None:
            continue
        attrs = {"T": op.attrs["T"], "start": columns[0], "count": columns[1]}
        edit.retyped[op] = ("_MatMulColumns", list(product.inputs), attrs)
        edit.why.append(f"{op.name} = {columns[1]} columns of {product.name}")
        leave_out(edit, op, [product], waits)
    if not edit:
        return graph
    context.note(edit)
    return edit.apply(context.roots(graph))


def _columns(op: Operation, product: Operation) -> tuple[int, int] | None:
    """Start and number of the columns that `op` takes, if it takes all rows."""
    dims = product.outputs[0].dims
    if dims is None or len(dims) != 2 or not all(is_fully_defined(t.dims) for t in product.inputs):
        return None
    if any(t.op.type not in ("Const", "HostConst") or t.op.control_inputs for t in op.inputs[1:]):
        return None
    begin, size = (t.op.attrs["value"].array.ravel().tolist() for t in op.inputs[1:])
    if len(begin) != 2 or len(size) != 2 or begin[0] != 0 or size[0] not in (-1, dims[0]):
        return None
    start, count = begin[1], size[1]
    return (start, count) if 0 <= start and 0 < count and start + count <= dims[1] else None
