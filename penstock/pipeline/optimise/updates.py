"""Updates of large variables: what is only computed to be written into a variable is computed where it goes.

    assign(x, x * c)                                -> _AssignMul(x, c)
    assign_sub(x, rate * m / (sqrt(v) + epsilon))   -> _AssignSubRatio(x, m, v, rate, epsilon)

The second is the step of Adam as TensorFlow's optimizer writes it down for rows of an embedding, the first what it does to the moments before: each makes
several arrays of the size of the variable, which the memory has to take in and give back. A value may vanish only if nothing else needs it.
Acts on nodes of CPUs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock import dtypes
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.pipeline.optimise.edit import Edit
from penstock.pipeline.optimise.sums import leave_out, vanishes
from penstock.shapes import num_elements

SMALLEST = 1 << 14
"""Elements of the variable from which on memory is what takes time."""
_ADDS = frozenset(("Add", "AddV2"))
_ASSIGNS = {"Assign": "_AssignMul", "AssignVariableOp": "_AssignMulVariableOp"}
_SUBTRACTS = {"AssignSub": "_AssignSubRatio", "AssignSubVariableOp": "_AssignSubRatioVariableOp"}


class _Found(NamedTuple):
    """What the new node reads beside the variable, and the nodes that it computes."""

    inputs: list[Tensor]
    gone: list[Operation]


def update_in_place(graph: Graph, context: Any) -> Graph:
    """an update by what is computed for it alone -> one node"""
    edit = Edit(graph)
    for op in graph:
        kind = _ASSIGNS.get(op.type) or _SUBTRACTS.get(op.type)
        if kind is None or "device:CPU" not in op.device:
            continue
        dtype = op.attrs.get("T") or op.attrs["dtype"]
        if dtype not in (dtypes.float32, dtypes.float64) or (num_elements(op.inputs[1].dims) or 0) < SMALLEST:
            continue
        found = (_product if op.type in _ASSIGNS else _ratio)(op, context.targets)
        if found is None:
            continue
        waits = {c: None for gone in found.gone for c in gone.control_inputs}
        if any(c not in waits for c in op.control_inputs):
            continue  # something happens before the update that the nodes need not wait for, and they may read what it changes
        edit.retyped[op] = (kind, [op.inputs[0], *found.inputs], {"T" if "T" in op.attrs else "dtype": dtype})
        edit.computes[op] = found.gone
        edit.why.append(f"{op.name} computes {len(found.gone)} nodes where their result goes")
        leave_out(edit, op, found.gone, waits)
    if not edit:
        return graph
    context.note(edit)
    return edit.apply(context.roots(graph))


def _is_only_for(op: Operation, reader: Operation, targets: frozenset[str]) -> bool:
    """Whether nothing is left that needs `op` if `reader` does not, and nobody waits until it has read what it reads."""
    return not op._control_outputs and vanishes(op, reader, targets)


def _product(assign: Operation, targets: frozenset[str]) -> _Found | None:
    """assign(x, x * c)"""
    product = assign.inputs[1].op
    if product.type != "Mul" or not _is_only_for(product, assign, targets):
        return None
    for value, factor in (product.inputs, product.inputs[::-1]):
        if factor.dims == () and _is_read(value, assign.inputs[0], product, targets):
            read = value.op
            return _Found([factor], [product] if value is assign.inputs[0] else [read, product])
    return None


def _is_read(value: Tensor, variable: Tensor, reader: Operation, targets: frozenset[str]) -> bool:
    """Whether `value` is what `variable` holds, read for nobody but `reader`."""
    if value is variable:
        return variable.dtype._is_ref_dtype
    read = value.op
    return read.type in ("Identity", "ReadVariableOp") and read.inputs[0] is variable and _is_only_for(read, reader, targets)


def _ratio(assign: Operation, targets: frozenset[str]) -> _Found | None:
    """assign_sub(x, rate * m / (sqrt(v) + epsilon))"""
    ratio = assign.inputs[1].op
    if ratio.type != "RealDiv" or not _is_only_for(ratio, assign, targets):
        return None
    above, below = (t.op for t in ratio.inputs)
    if above.type != "Mul" or below.type not in _ADDS or not all(_is_only_for(part, ratio, targets) for part in (above, below)):
        return None
    rate, m = above.inputs if above.inputs[0].dims == () else above.inputs[::-1]
    root, epsilon = below.inputs if below.inputs[1].dims == () else below.inputs[::-1]
    dims = assign.inputs[1].dims
    if root.op.type != "Sqrt" or not _is_only_for(root.op, below, targets):
        return None
    v = root.op.inputs[0]
    if rate.dims != () or epsilon.dims != () or m.dims != dims or v.dims != dims or assign.inputs[0] in (m, v):
        return None
    return _Found([m, v, rate, epsilon], [root.op, above, below, ratio])
