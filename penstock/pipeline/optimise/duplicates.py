"""Rows of a gradient that belong to the same row of a variable are summed, and those rows named once, by one node.

    y, idx = unique(indices)
    unsorted_segment_sum(values, idx, shape(y)[0])      -> summed, y = _SumOfDuplicates(values, indices)

TensorFlow's optimizers do this before every sparse update. `y` may come with the sum only if nobody needs it to compute `values`: all who read it
read the sum as well. Acts on nodes of CPUs.
"""

from __future__ import annotations

from typing import Any

from penstock.graph.ir import Graph, Operation, Tensor
from penstock.pipeline.optimise.edit import Edit

_NEAR = 4
"""How many nodes may lie between the sum and those who use it."""


def sum_duplicates(graph: Graph, context: Any) -> Graph:
    """unique and a sum by its numbers -> one node"""
    edit = Edit(graph)
    for op in graph:
        if op.type != "UnsortedSegmentSum" or "device:CPU" not in op.device:
            continue
        unique = op.inputs[1].op
        if unique.type != "Unique" or unique in (t.op for t in edit.redirect) or not _belong_together(op, unique, context.targets):
            continue
        old = unique.outputs[0]
        named = Tensor(op, 1, old.dtype, old.dims)
        edit.retyped[op] = ("_SumOfDuplicates", [op.inputs[0], unique.inputs[0]], {"T": op.attrs["T"], "Tindices": old.dtype})
        edit.more_outputs[op] = [named]
        edit.redirect[old] = named
        if unique.control_inputs:
            edit.controls[op] = list(dict.fromkeys([*op.control_inputs, *unique.control_inputs]))
        edit.why.append(f"{op.name} = {unique.name} and its sum")
    if not edit:
        return graph
    context.note(edit)
    return edit.apply(context.roots(graph))


def _belong_together(op: Operation, unique: Operation, targets: frozenset[str]) -> bool:
    y, numbers = unique.outputs
    rows, indices = op.inputs[0].dims, unique.inputs[0].dims
    if op.inputs[1] is not numbers or len(numbers._consumers or ()) != 1 or unique._control_outputs or unique.name in targets:
        return False
    if unique.device != op.device or rows is None or not rows or indices is None or len(indices) != 1:
        return False
    length = op.inputs[2].op
    shape = length.inputs[0].op if length.type == "StridedSlice" else None
    if shape is None or shape.type != "Shape" or shape.inputs[0] is not y or not _takes_first(length) or shape.control_inputs or length.control_inputs:
        return False
    if len(shape.outputs[0]._consumers or ()) != 1 or len(length.outputs[0]._consumers or ()) != 1 or shape._control_outputs or length._control_outputs:
        return False
    return all(reader is shape or _reads(reader, op, _NEAR) for reader in y._consumers or ())


def _takes_first(op: Operation) -> bool:
    """Whether a slice of a vector is its first element."""
    bounds = [t.op for t in op.inputs[1:]]
    if any(b.type not in ("Const", "HostConst") or b.control_inputs for b in bounds) or op.attrs["shrink_axis_mask"] != 1:
        return False
    return bounds[0].attrs["value"].array.tolist() == [0] and bounds[2].attrs["value"].array.tolist() == [1]


def _reads(op: Operation, source: Operation, far: int) -> bool:
    """Whether `op` reads what `source` gives, at most so many nodes later."""
    return any(t.op is source or (far > 1 and _reads(t.op, source, far - 1)) for t in op.inputs)
