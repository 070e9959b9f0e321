"""Nodes that only move numbers about, as copies of rows: what a chain does where NumPy would give a view.

    Split(axis=1) of 64 x 256 -> four copies of 64 rows of 64 numbers that lie 256 numbers apart

NumPy's own indexing tells which part of an array a piece is; a part that is not made of rows of one length, evenly apart, is no move.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.onednn.chains import Move
from penstock.engines.python.expressions import needed_inputs, original
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Operation, Tensor
from penstock.ops.kernels.slices import slice_index

MOST_MOVED = 1 << 15
"""Elements of an array that is cheap to copy."""
MOST_JOINED = 1 << 20
"""Elements of arrays that are copied anyway."""
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


class Rows(NamedTuple):
    """A part of an array, in bytes: so many rows of `length`, `step` apart, from `offset` on."""

    offset: int
    number: int
    step: int
    length: int


def arrays_of(op: Operation) -> Sequence[Tensor]:
    """The inputs that are moved; the others are bounds."""
    if op.type in ("ConcatV2", "Pack"):
        return op.inputs[: len(op.inputs) - (op.type == "ConcatV2")]
    return op.inputs[1:2] if op.type == "Split" else op.inputs[:1]


def moves_of(node: Any, shapes: Sequence[tuple[int, ...]], constants: Sequence[Any]) -> list[Move] | None:
    """The moves that make up a node whose inputs and outputs have these shapes and constant values; None if it is something else."""
    op: Operation = node.op
    find = INDICES.get(op.type)
    joins = op.type in ("ConcatV2", "Pack")
    if find is None or not original(node) or any(math.prod(s) > (MOST_JOINED if joins else MOST_MOVED) for s in shapes):
        return None
    if op.type == "Reshape" and len(needed_inputs(node)) > 1:  # to a shape that may not fit
        return None
    n, item = len(op.inputs), op.outputs[0].dtype.np.itemsize
    if item != 4:
        return None
    indices = find(op, shapes[:n], constants)
    if indices is None:
        return None
    whole = np.empty(shapes[n] if joins else shapes[1 if op.type == "Split" else 0], np.float32)
    start = whole.__array_interface__["data"][0]
    moves = []
    for i, index in enumerate(indices):
        view = whole[index]
        part = _rows(view, view.__array_interface__["data"][0] - start)
        if part is None or view.size != math.prod(shapes[i] if joins else shapes[n + i]):
            return None
        size = part.number, part.length
        moves.append(Move(i, 0, part.length, 0, part.offset, part.step, *size) if joins else Move(0, part.offset, part.step, i, 0, part.length, *size))
    return moves


def _rows(view: np.ndarray, offset: int) -> Rows | None:
    """Where the numbers of a view lie."""
    sizes = [(n, step) for n, step in zip(view.shape, view.strides) if n != 1]
    length = view.itemsize
    while sizes and sizes[-1][1] == length:
        length *= sizes.pop()[0]
    if not sizes:
        return Rows(offset, 1, length, length)
    count, step = sizes.pop()
    while sizes and sizes[-1][1] == count * step:
        count *= sizes.pop()[0]
    return None if sizes or step < length else Rows(offset, count, step, length)


# -- indices: of the pieces in the whole, or of the inputs in what they are joined to -------------------------------------------


def _along(axis: int, sizes: Sequence[int]) -> list[Any]:
    ends = np.cumsum([0, *sizes]).tolist()
    return [(*(slice(None),) * axis, slice(a, b)) for a, b in itertools.pairwise(ends)]


def _axis(value: Any, rank: int) -> int | None:
    return int(value) % rank if value is not None and np.ndim(value) == 0 and -rank <= int(value) < rank else None


def _split(op: Operation, shapes: Sequence[tuple[int, ...]], constants: Sequence[Any]) -> list[Any] | None:
    axis, count = _axis(constants[0], len(shapes[1])), op.attrs["num_split"]
    if axis is None or shapes[1][axis] % count:
        return None
    return _along(axis, [shapes[1][axis] // count] * count)


def _concat(op: Operation, shapes: Sequence[tuple[int, ...]], constants: Sequence[Any]) -> list[Any] | None:
    *parts, _ = shapes
    axis = _axis(constants[-1], len(parts[0]))
    if axis is None or any(len(p) != len(parts[0]) or p[:axis] != parts[0][:axis] or p[axis + 1 :] != parts[0][axis + 1 :] for p in parts):
        return None
    return _along(axis, [p[axis] for p in parts])


def _pack(op: Operation, shapes: Sequence[tuple[int, ...]], constants: Sequence[Any]) -> list[Any] | None:
    axis = _axis(op.attrs["axis"], len(shapes[0]) + 1)
    if axis is None or any(shape != shapes[0] for shape in shapes):
        return None
    return [(*(slice(None),) * axis, i) for i in range(len(shapes))]


def _unpack(op: Operation, shapes: Sequence[tuple[int, ...]], constants: Sequence[Any]) -> list[Any] | None:
    axis = _axis(op.attrs["axis"], len(shapes[0]))
    return None if axis is None or shapes[0][axis] != len(op.outputs) else [(*(slice(None),) * axis, i) for i in range(len(op.outputs))]


def _slice(op: Operation, shapes: Sequence[tuple[int, ...]], constants: Sequence[Any]) -> list[Any] | None:
    begin, size = constants[1:]
    if begin is None or size is None or np.shape(begin) != np.shape(size) or np.shape(begin) != (len(shapes[0]),):
        return None
    index = []
    for start, length, limit in zip(begin.tolist(), size.tolist(), shapes[0], strict=True):
        length = limit - start if length == -1 else length
        if not 0 <= start <= limit or not 0 <= length <= limit - start:
            return None
        index.append(slice(start, start + length))
    return [tuple(index)]


def _strided_slice(op: Operation, shapes: Sequence[tuple[int, ...]], constants: Sequence[Any]) -> list[Any] | None:
    if any(c is None for c in constants[1:]):
        return None
    try:
        begin, end, strides = map(np.asarray, constants[1:])
        index = slice_index(shapes[0], begin, end, strides, *(op.attrs[name] for name in _MASKS))
    except InvalidArgumentError:  # which the kernel reports
        return None
    return [(*index, ...)]


def _same(op: Operation, shapes: Sequence[tuple[int, ...]], constants: Sequence[Any]) -> list[Any] | None:
    return None if op.type == "ExpandDims" and constants[1] is None else [...]


INDICES = {
    "Split": _split, "ConcatV2": _concat, "Pack": _pack, "Unpack": _unpack, "Slice": _slice, "StridedSlice": _strided_slice, "Reshape": _same,
    "ExpandDims": _same, "Squeeze": _same,
}  # fmt: skip
