"""Rows of a gradient that belong to the same row of a variable are summed, and those rows named once, by one node.

    y, idx = unique(indices)
    unsorted_segment_sum(values, idx, shape(y)[0])      -> summed, y = _SumOfDuplicates(values, indices)
    sparse_apply_adagrad(v, a, lr, that sum, y)         -> _SumAndSparseApplyAdagrad(v, a, lr, values, indices)

TensorFlow's optimizers do this before every sparse update. `y` may come with the sum only if nobody needs it to compute `values`: all who read it
read the sum as well. An update may sum by itself if nobody else reads the sum. Acts on nodes of CPUs.
"""

from __future__ import annotations

from typing import Any

from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.opdef import OPS
from penstock.pipeline.optimise.edit import Edit
from penstock.runtime.kernels import is_live

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
        waits = dict.fromkeys([*op.control_inputs, *unique.control_inputs, *_waits_of_bounds(op)])
        if len(waits) > len(op.control_inputs):
            edit.controls[op] = list(waits)
        edit.why.append(f"{op.name} = {unique.name} and its sum")
    if not edit:
        return graph
    context.note(edit)
    return edit.apply(context.roots(graph))


def sum_in_updates(graph: Graph, context: Any) -> Graph:
    """a sum by the numbers of unique, and a sparse update by it -> one node"""
    edit = Edit(graph)
    for op in graph:
        kind = f"_SumAnd{op.type}"
        if kind not in OPS or "device:CPU" not in op.device:
            continue
        at, at_indices = (next(i for i, a in enumerate(op.op_def.inputs) if a.name == name) for name in ("grad", "indices"))
        total, unique = op.inputs[at].op, op.inputs[at_indices].op
        if total.type != "UnsortedSegmentSum" or unique.type != "Unique" or [op.inputs[at_indices], total.inputs[1]] != unique.outputs:
            continue
        gone = _length_of(total, unique)
        if gone is None or {total.device, unique.device} != {op.device} or not _is_only_for(total, op, context.targets):
            continue
        given = [total.inputs[0], unique.inputs[0]]
        if any(t.dtype._is_ref_dtype or is_live(t) for t in given):  # a variable, which may change meanwhile
            continue
        gone = [unique, *gone, total]
        inputs = list(op.inputs)
        inputs[at], inputs[at_indices] = given
        edit.retyped[op] = (kind, inputs, op.attrs)
        edit.computes[op] = gone
        waits = dict.fromkeys([*op.control_inputs, *(c for each in gone for c in each.control_inputs), *_waits_of_bounds(total)])
        if len(waits) > len(op.control_inputs):
            edit.controls[op] = list(waits)
        edit.why.append(f"{op.name} sums by itself")
    if not edit:
        return graph
    context.note(edit)
    return edit.apply(context.roots(graph))


def _is_only_for(op: Operation, reader: Operation, targets: frozenset[str]) -> bool:
    return op.outputs[0]._consumers == [reader] and not op._control_outputs and op.name not in targets


def _length_of(total: Operation, unique: Operation) -> list[Operation] | None:
    """The nodes that tell a sum how many different numbers there are, if they ask `unique`."""
    length = total.inputs[2].op
    shape = length.inputs[0].op if length.type == "StridedSlice" else None
    if shape is None or shape.type != "Shape" or shape.inputs[0] is not unique.outputs[0] or not _takes_first(length):
        return None
    return [shape, length]


def _waits_of_bounds(total: Operation) -> list[Operation]:
    """What the constants wait for that say which element of a shape a sum's length is: `tf.control_dependencies` around an optimizer gives them that too."""
    return [c for bound in total.inputs[2].op.inputs[1:] for c in bound.op.control_inputs]


def _belong_together(op: Operation, unique: Operation, targets: frozenset[str]) -> bool:
    y, numbers = unique.outputs
    rows, indices = op.inputs[0].dims, unique.inputs[0].dims
    if op.inputs[1] is not numbers or len(numbers._consumers or ()) != 1 or unique._control_outputs or unique.name in targets:
        return False
    if unique.device != op.device or rows is None or not rows or indices is None or len(indices) != 1:
        return False
    found = _length_of(op, unique)
    if found is None:
        return False
    shape, length = found
    if shape.control_inputs or length.control_inputs:
        return False
    if len(shape.outputs[0]._consumers or ()) != 1 or len(length.outputs[0]._consumers or ()) != 1 or shape._control_outputs or length._control_outputs:
        return False
    return all(reader is shape or _reads(reader, op, _NEAR) for reader in y._consumers or ())


def _takes_first(op: Operation) -> bool:
    """Whether a slice of a vector is its first element."""
    bounds = [t.op for t in op.inputs[1:]]
    if any(b.type not in ("Const", "HostConst") for b in bounds) or op.attrs["shrink_axis_mask"] != 1:
        return False
    return bounds[0].attrs["value"].array.tolist() == [0] and bounds[2].attrs["value"].array.tolist() == [1]


def _reads(op: Operation, source: Operation, far: int) -> bool:
    """Whether `op` reads what `source` gives, at most so many nodes later."""
    return any(t.op is source or (far > 1 and _reads(t.op, source, far - 1)) for t in op.inputs)
