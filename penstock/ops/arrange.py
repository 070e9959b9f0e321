"""Ops that put elements into new places: tile, pad, mirror, reverse, roll, one-hot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, with_rank
from penstock.ops.native import lines
from penstock.ops.native.frames import share_out
from penstock.ops.samples import arr, empty, normal, strings
from penstock.shapes import format_dims, merge_dims

# -- Tile -------------------------------------------------------------------------------------------------------------


def tile_kernel(x: Any, multiples: np.ndarray) -> np.ndarray:
    if multiples.ndim != 1:
        raise InvalidArgumentError(f"Expected multiples to be 1-D, but got shape {format_dims(multiples.shape)}")
    if multiples.size != x.ndim:
        raise InvalidArgumentError(f"Expected multiples argument to be a vector of length {x.ndim} but got length {multiples.size}")
    counts = multiples.tolist()
    for i, count in enumerate(counts):
        if count < 0:
            raise InvalidArgumentError(f"Expected multiples[{i}] >= 0, but got {count}")
    if x.size * math.prod(counts) < _LARGE or x.shape[-1] * x.itemsize < _LONG_ROW or sum(count > 1 for count in counts) < 2:
        return np.tile(x, counts) if counts else x
    # All copies in one pass, by threads that take some of x each; np.tile makes those along one axis after those along another.
    result = np.empty([size * count for size, count in zip(x.shape, counts, strict=True)], x.dtype)
    pairs = [n for pair in zip(counts, x.shape, strict=True) for n in pair]
    target, source = result.reshape(pairs), x.reshape([n for size in x.shape for n in (1, size)])

    def run(start: int, end: int) -> None:
        target[:, start:end] = source[:, start:end]

    share_out(len(x), result.size // len(x), run)
    return result


_LARGE, _LONG_ROW = 1 << 16, 1 << 10
"""Elements of a result, and bytes of a row of x, from which on that is quicker."""


def tile_shape(c: Any) -> Dims:
    dims, counts = c.dims(0), c.const_dims(1)
    with_rank(c, 1, 1)
    if counts is None:
        return None if dims is None else (None,) * len(dims)
    if dims is None:
        return (None,) * len(counts)
    if len(counts) != len(dims):
        raise ValueError(f"Shape must be rank {len(dims)} but is rank {len(counts)}")
    return tuple(None if d is None or n is None else d * n for d, n in zip(dims, counts, strict=True))


def tile_grad(g: Any, op: Any, dy: Any) -> list:
    """Sums over the copies: dy as [multiple, size, multiple, size, ...], summed over the multiples."""
    shape = g.Shape(op.input, out_type=op.attr("Tmultiples"))
    pairs = g.Reshape(g.Transpose(g.Pack([op.multiples, shape]), [1, 0]), [-1])
    axes = g.Range(0, g.Size(pairs), 2)
    return [g.Reshape(g.Sum(g.Reshape(dy, pairs), axes), shape), None]


op("Tile(input: T, multiples: Tmultiples) -> (output: T) [T: type; Tmultiples: type in {int32, int64} = int32]",
   shape=tile_shape, numpy=tile_kernel, grad=tile_grad, host_memory=["multiples"],
   samples=[
       dict(input=normal(2, 3), multiples=arr([2, 1])),
       dict(input=normal(2), multiples=arr([0])),
       dict(input=normal(), multiples=arr([])),
       dict(input=empty(0, 2), multiples=arr([2, 2])),
       dict(input=strings(["a", "b"]), multiples=arr([2])),
   ],
   errors=[(dict(input=[1.0], multiples=[-1]), InvalidArgumentError, "Expected multiples\\[0\\] >= 0, but got -1")])  # fmt: skip


def tile_grad_kernel(x: Any, multiples: np.ndarray) -> np.ndarray:
    pairs = [v for n, d in zip(multiples.tolist(), x.shape, strict=True) for v in (n, d // n if n else 0)]
    return x.reshape(pairs).sum(tuple(range(0, len(pairs), 2)), dtype=x.dtype)


def tile_grad_shape(c: Any) -> Dims:
    dims = c.dims(0)
    return None if dims is None else (None,) * len(dims)


op("TileGrad(input: T, multiples: int32) -> (output: T) [T: type] deprecated@3",
   shape=tile_grad_shape, numpy=tile_grad_kernel)  # fmt: skip

# -- Pad --------------------------------------------------------------------------------------------------------------


def _paddings(shape: tuple[int, ...], paddings: np.ndarray, separator: str) -> list[list[int]]:
    if paddings.ndim != 2 or paddings.shape[1] != 2:
        raise InvalidArgumentError(f"paddings must be a matrix with 2 columns: {format_dims(paddings.shape)}")
    if paddings.shape[0] != len(shape):
        raise InvalidArgumentError(
            f"The first dimension of paddings must be the rank of inputs{format_dims(paddings.shape)}{separator} {format_dims(shape)}"
        )
    return paddings.tolist()


def pad_kernel(x: Any, paddings: np.ndarray, value: Any = None) -> np.ndarray:
    shape, place = padded_shape(x.shape, paddings)
    if value is not None and value.ndim:
        raise InvalidArgumentError(f"constant_values must be a scalar. Found: {format_dims(value.shape)}")
    if not shape:
        return x
    fill = (b"" if x.dtype == object else 0) if value is None else np.asarray(value)
    return padded(x, shape, place, fill)


def padded(x: np.ndarray, shape: tuple[int, ...], place: tuple[slice, ...], fill: Any = 0) -> np.ndarray:
    """An array of that shape, with x at its place and `fill` around it."""
    if x.dtype == object or x.nbytes < _LARGE:
        result = np.zeros(shape, x.dtype) if fill.__class__ is int else np.full(shape, fill, x.dtype)
        result[place] = x
        return result
    result = np.empty(shape, x.dtype)
    inner = result
    for axis, at in enumerate(place):  # only the border is filled
        along = (slice(None),) * axis
        inner[(*along, slice(at.start))] = fill
        inner[(*along, slice(at.stop, None))] = fill
        inner = inner[(*along, at)]
    lines.copy(inner, x)
    return result


_LARGE = 1 << 16
"""Bytes from which on it pays to fill nothing twice."""


def padded_shape(shape: tuple[int, ...], paddings: np.ndarray) -> tuple[tuple[int, ...], tuple[slice, ...]]:
    """The shape of an array that is padded, and where in it the array lies."""
    amounts = _paddings(shape, paddings, "")
    for before, after in amounts:
        if before < 0 or after < 0:
            raise InvalidArgumentError(f"Paddings must be non-negative: {before} {after}")
    return tuple(b + d + a for (b, a), d in zip(amounts, shape)), tuple(slice(b, b + d) for (b, _), d in zip(amounts, shape))


def pad_v2_kernel(x: Any, paddings: np.ndarray, value: Any) -> np.ndarray:
    return pad_kernel(x, paddings, value)


def pad_shape(c: Any) -> Dims:
    dims, paddings = c.dims(0), with_rank(c, 1, 2)
    if paddings[1] not in (None, 2):  # type: ignore[index]
        raise ValueError(f"Dimension must be 2 but is {paddings[1]}")  # type: ignore[index]
    count = paddings[0]  # type: ignore[index]
    if dims is None:
        return None if count is None else (None,) * count
    if count not in (None, len(dims)):
        raise ValueError(f"Shape must be rank {count} but is rank {len(dims)}")
    known = c.const(1)
    if known is None:
        return (None,) * len(dims)
    result = []
    for d, (before, after) in zip(dims, known.tolist(), strict=True):
        if before < 0 or after < 0:
            raise ValueError("Paddings must be non-negative")
        result.append(None if d is None else d + before + after)
    return tuple(result)


def pad_grad(g: Any, op: Any, dy: Any) -> list:
    """The middle of dy; whatever fills the border gets nothing."""
    begin = g.Reshape(g.Slice(op.paddings, [0, 0], g.Pack([g.Rank(op.input), 1])), [-1])
    middle = g.Slice(dy, begin, g.Shape(op.input, out_type=op.attr("Tpaddings")))
    return [middle, None, None] if len(op.inputs) == 3 else [middle, None]


_PAD_ERRORS = [
    (dict(input=[1.0], paddings=[[-1, 1]]), InvalidArgumentError, "[Pp]addings must be non-negative"),
]

op("Pad(input: T, paddings: Tpaddings) -> (output: T) [T: type; Tpaddings: type in {int32, int64} = int32]",
   shape=pad_shape, numpy=pad_kernel, grad=pad_grad, host_memory=["paddings"], errors=_PAD_ERRORS,
   samples=[
       dict(input=normal(2, 3), paddings=arr([[1, 2], [0, 1]])),
       dict(input=normal(2), paddings=arr([[0, 0]])),
       dict(input=normal(), paddings=empty(0, 2)),
       dict(input=empty(0, 2), paddings=arr([[1, 0], [0, 0]])),
       dict(input=strings(["a"]), paddings=arr([[1, 1]])),
   ])  # fmt: skip
op("PadV2(input: T, paddings: Tpaddings, constant_values: T) -> (output: T) [T: type; Tpaddings: type in {int32, int64} = int32]",
   shape=pad_shape, numpy=pad_v2_kernel, grad=pad_grad, host_memory=["paddings"],
   samples=[
       dict(input=normal(2, 3), paddings=arr([[1, 2], [0, 1]]), constant_values=arr(1)),
       dict(input=normal(2), paddings=arr([[0, 0]]), constant_values=arr(1)),
       dict(input=strings(["a"]), paddings=arr([[1, 1]]), constant_values=strings("z\0")),
   ],
   errors=[(dict(input=[1.0], paddings=[[1, 1]], constant_values=[1.0]), InvalidArgumentError, "constant_values must be a scalar. Found: \\[1\\]")])  # fmt: skip


def mirror_pad_kernel(x: Any, paddings: np.ndarray, *, mode: bytes) -> np.ndarray:
    amounts = _paddings(x.shape, paddings, ",")
    offset = 1 if mode == b"REFLECT" else 0
    for axis, (before, after) in enumerate(amounts):
        size = x.shape[axis]
        if before < 0 or after < 0:
            raise InvalidArgumentError(f"paddings must be non-negative: {before} {after}")
        if before > size - offset or after > size - offset:
            what = "less than the dimension size: {}, {} not less than {}" if offset else "no greater than the dimension size: {}, {} greater than {}"
            raise InvalidArgumentError("paddings must be " + what.format(before, after, size))
    if not np.any(amounts):
        return x
    result = np.empty([size + before + after for size, (before, after) in zip(x.shape, amounts, strict=True)], x.dtype)
    inner = [slice(before, before + size) for size, (before, _) in zip(x.shape, amounts, strict=True)]
    result[tuple(inner)] = x
    for axis, (before, after) in enumerate(amounts):  # what is there so far is mirrored at both ends of one axis after the other
        part = result[(*(slice(None),) * axis, slice(None), *inner[axis + 1 :])]
        head, end = (slice(None),) * axis, before + x.shape[axis]
        part[(*head, slice(0, before))] = np.flip(part[(*head, slice(before + offset, 2 * before + offset))], axis)
        part[(*head, slice(end, None))] = np.flip(part[(*head, slice(end - offset - after, end - offset))], axis)
    return result


def mirror_pad_grad_kernel(x: Any, paddings: np.ndarray, *, mode: bytes) -> np.ndarray:
    """Adds what was mirrored back to where it came from."""
    amounts = _paddings(x.shape, paddings, ",")
    offset = 1 if mode == b"REFLECT" else 0
    result = np.array(x)
    for axis, (before, after) in enumerate(amounts):
        size = x.shape[axis] - before - after
        if before < 0 or after < 0:
            raise InvalidArgumentError(f"Paddings must be non-negative: {before}, {after}")
        if size < 0 or (size == 0 and offset):
            raise InvalidArgumentError(
                f"Total paddings must be less than the input dimension size: {before + after} was not less than {x.shape[axis]}"
            )
        if before > size - offset or after > size - offset:
            what = (
                "less than the output dimension size: {}, {} not less than {}"
                if offset
                else "no greater than the output dimension size: {}, {} greater than {}"
            )
            raise InvalidArgumentError("paddings must be " + what.format(before, after, size))
        if not before and not after:
            continue
        head = (slice(None),) * axis

        def part(start: int, stop: int, step: int = 1, head: tuple = head, whole: Any = result) -> Any:
            return whole[(*head, slice(start, stop, step))]

        middle = np.array(part(before, before + size))
        if before:
            middle[(*head, slice(offset, offset + before))] += np.flip(part(0, before), axis)
        if after:
            stop = size - offset
            middle[(*head, slice(stop - after, stop))] += np.flip(part(before + size, before + size + after), axis)
        result = middle
    return result


def mirror_pad_grad_shape(c: Any) -> Dims:
    dims, known = c.dims(0), c.const(1)
    with_rank(c, 1, 2)
    if dims is None:
        return None
    if known is None:
        return (None,) * len(dims)
    return tuple(None if d is None else d - b - a for d, (b, a) in zip(dims, known.tolist(), strict=True))


_MIRROR_SAMPLES = [
    dict(input=normal(3, 4), paddings=arr([[1, 2], [0, 3]]), mode="REFLECT"),
    dict(input=normal(3, 4), paddings=arr([[3, 1], [2, 0]]), mode="SYMMETRIC"),
    dict(input=normal(2), paddings=arr([[0, 0]]), mode="SYMMETRIC"),
    dict(input=normal(), paddings=empty(0, 2), mode="REFLECT"),
]

op("MirrorPad(input: T, paddings: Tpaddings) -> (output: T)"
   " [T: type; Tpaddings: type in {int32, int64} = int32; mode: string in {'REFLECT', 'SYMMETRIC'}]",
   shape=pad_shape, numpy=mirror_pad_kernel, host_memory=["paddings"],
   grad=lambda g, op, dy: [g.MirrorPadGrad(dy, op.paddings, mode=op.attr("mode")), None],
   samples=[*_MIRROR_SAMPLES, dict(input=empty(0, 3), paddings=arr([[0, 0], [1, 2]]), mode="SYMMETRIC")],
   errors=[
       (dict(input=[1.0, 2.0], paddings=[[2, 1]], mode="REFLECT"), InvalidArgumentError,
        "paddings must be less than the dimension size: 2, 1 not less than 2"),
       (dict(input=[1.0, 2.0], paddings=[[3, 1]], mode="SYMMETRIC"), InvalidArgumentError,
        "paddings must be no greater than the dimension size: 3, 1 greater than 2"),
   ])  # fmt: skip
op("MirrorPadGrad(input: T, paddings: Tpaddings) -> (output: T)"
   " [T: type; Tpaddings: type in {int32, int64} = int32; mode: string in {'REFLECT', 'SYMMETRIC'}]",
   shape=mirror_pad_grad_shape, numpy=mirror_pad_grad_kernel, host_memory=["paddings"],
   grad=lambda g, op, dy: [g.MirrorPad(dy, op.paddings, mode=op.attr("mode")), None],
   samples=[
       dict(input=normal(6, 7), paddings=arr([[1, 2], [0, 3]]), mode="REFLECT"),
       dict(input=normal(7, 6), paddings=arr([[3, 1], [2, 0]]), mode="SYMMETRIC"),
   ],
   errors=[(dict(input=[1.0, 2.0, 3.0], paddings=[[2, 2]], mode="REFLECT"), InvalidArgumentError, "Total paddings must be less than|must be less")])  # fmt: skip

# -- Reverse ----------------------------------------------------------------------------------------------------------


def reverse_kernel(x: Any, dims: np.ndarray) -> np.ndarray:
    if dims.ndim != 1:
        raise InvalidArgumentError(f"'dims' must be 1-dimension, not {dims.ndim}")
    if dims.size != x.ndim:
        raise InvalidArgumentError(
            f"'dims' must have the same number of values as 'input' has dimensions. 'input' has {x.ndim}'dims' has {dims.size} values"
        )
    return lines.laid_out(np.flip(x, np.flatnonzero(dims).tolist())) if dims.any() else x


def reverse_shape(c: Any) -> Dims:
    dims, (count,) = c.dims(0), with_rank(c, 1, 1)  # type: ignore[misc]
    if dims is None:
        return None if count is None else (None,) * count
    if count not in (None, len(dims)):
        raise ValueError(f"Shape must be rank {count} but is rank {len(dims)}")
    return dims


def _reverse_axes(rank: int, axes: list[int], error: type[Exception]) -> tuple[int, ...]:
    seen: list[int] = []
    for i, axis in enumerate(axes):
        if not -rank <= axis < rank:
            raise error(f"'axis'[{i}] = {axis} is out of valid range [0, {rank - 1}")
        if axis % rank in seen:
            raise error(f"axis {axis % rank} specified more than once.")
        seen.append(axis % rank)
    return tuple(seen)


def reverse_v2_kernel(x: Any, axis: np.ndarray) -> np.ndarray:
    if x.ndim == 0:
        return x
    if axis.ndim != 1:
        raise InvalidArgumentError(f"'dims' must be 1-dimension, not {axis.ndim}")
    axes = _reverse_axes(x.ndim, axis.tolist(), InvalidArgumentError)
    return lines.laid_out(np.flip(x, axes)) if axes else x


def reverse_v2_shape(c: Any) -> Dims:
    dims, axis = c.dims(0), c.const(1)
    with_rank(c, 1, 1)
    if dims is not None:
        if len(dims) > 8:
            raise ValueError("reverse does not work on tensors with more than 8 dimensions")
        if axis is not None and dims:
            _reverse_axes(len(dims), axis.tolist(), ValueError)
    return dims


_REVERSIBLE = "{uint8, int8, uint16, int16, int32, uint32, int64, uint64, bool, bfloat16, half, float, double, complex64, complex128, string}"

op(f"Reverse(tensor: T, dims: bool) -> (output: T) [T: type in {_REVERSIBLE}]",
   shape=reverse_shape, numpy=reverse_kernel, host_memory=["dims"],
   grad=lambda g, op, dy: [g.Reverse(dy, op.dims), None],
   samples=[
       dict(tensor=normal(2, 3), dims=arr([True, False])),
       dict(tensor=normal(2, 3), dims=arr([True, True])),
       dict(tensor=normal(), dims=arr([], np.bool_)),
   ])  # fmt: skip
op(f"ReverseV2(tensor: T, axis: Tidx) -> (output: T) [Tidx: type in {{int32, int64}} = int32; T: type in {_REVERSIBLE}]",
   shape=reverse_v2_shape, numpy=reverse_v2_kernel, host_memory=["axis"],
   grad=lambda g, op, dy: [g.ReverseV2(dy, op.axis), None],
   samples=[
       dict(tensor=normal(2, 3), axis=arr([0])),
       dict(tensor=normal(2, 3), axis=arr([-1, 0])),
       dict(tensor=normal(2, 3), axis=arr([])),
       dict(tensor=normal(), axis=arr([])),
       dict(tensor=empty(0, 2), axis=arr([0])),
   ],
   errors=[
       (dict(tensor=[1.0], axis=[0, 0]), InvalidArgumentError, "axis 0 specified more than once."),
       (dict(tensor=[1.0], axis=[5]), InvalidArgumentError, "'axis'\\[0\\] = 5 is out of valid range \\[0, 0"),
   ])  # fmt: skip


def reverse_sequence_kernel(x: Any, lengths: np.ndarray, *, seq_dim: int, batch_dim: int) -> np.ndarray:
    if lengths.ndim != 1:
        raise InvalidArgumentError(f"seq_lengths must be 1-dim, not {lengths.ndim}")
    if seq_dim == batch_dim:
        raise InvalidArgumentError(f"batch_dim == seq_dim == {seq_dim}")
    for name, axis in (("seq_dim", seq_dim), ("batch_dim", batch_dim)):
        if axis >= x.ndim:
            raise InvalidArgumentError(f"{name} must be < input rank ( {axis} vs. {x.ndim})")
    if lengths.size != x.shape[batch_dim]:
        raise InvalidArgumentError(f"Length of seq_lengths != input.dims({batch_dim}), ({lengths.size} vs. {x.shape[batch_dim]})")
    size = x.shape[seq_dim]
    for d, length in enumerate(lengths.tolist()):
        if length < 0:
            raise InvalidArgumentError(f"seq_lens({d}) < 0")
        if length > size:
            raise InvalidArgumentError(f"seq_lens({d}) > input.dims({seq_dim})")
    moved = np.moveaxis(x, (batch_dim, seq_dim), (0, 1))
    if size >= _LONG_SEQUENCE:
        picked = moved.copy()
        for mine, all_of_it, length in zip(picked, moved, lengths.tolist(), strict=True):
            mine[:length] = all_of_it[:length][::-1]
    else:  # for each batch entry, the positions along the sequence in their new order
        position = np.arange(size)
        order = np.where(position < lengths[:, None], lengths[:, None] - 1 - position, position)
        order += np.arange(lengths.size)[:, None] * size
        picked = np.ascontiguousarray(moved).reshape(lengths.size * size, math.prod(moved.shape[2:])).take(order.reshape(-1), 0).reshape(moved.shape)
    return np.moveaxis(picked, (0, 1), (batch_dim, seq_dim))


_LONG_SEQUENCE = 128
"""Positions from which on sequences are reversed one by one."""


def reverse_sequence_shape(c: Any) -> Dims:
    dims, (count,) = c.dims(0), with_rank(c, 1, 1)  # type: ignore[misc]
    if dims is None:
        return None
    for name in ("batch_dim", "seq_dim"):
        axis = c.attrs[name]
        if axis < 0:
            raise ValueError(f"{name} must be >=0, got {axis}")
        if axis >= len(dims):
            raise ValueError(f"{name} must be < input rank: {axis} vs. {len(dims)}")
    b = c.attrs["batch_dim"]
    if count is not None and dims[b] not in (None, count):
        raise ValueError(f"Dimensions must be equal, but are {dims[b]} and {count}")
    return (*dims[:b], count if dims[b] is None else dims[b], *dims[b + 1 :])


op("ReverseSequence(input: T, seq_lengths: Tlen) -> (output: T)"
   " [seq_dim: int; batch_dim: int = 0; T: type; Tlen: type in {int32, int64} = int64]",
   shape=reverse_sequence_shape, numpy=reverse_sequence_kernel,
   grad=lambda g, op, dy: [g.ReverseSequence(dy, op.seq_lengths, seq_dim=op.attr("seq_dim"), batch_dim=op.attr("batch_dim")), None],
   samples=[
       dict(input=normal(2, 4), seq_lengths=arr([3, 0]), seq_dim=1),
       dict(input=normal(4, 2, 3), seq_lengths=arr([2, 4]), seq_dim=0, batch_dim=1),
       dict(input=empty(0, 4), seq_lengths=arr([]), seq_dim=1),
   ],
   errors=[
       (dict(input=np.zeros((2, 3), np.float32), seq_lengths=[3, 4], seq_dim=1), InvalidArgumentError, "seq_lens\\(1\\) > input.dims\\(1\\)"),
       (dict(input=np.zeros((2, 3), np.float32), seq_lengths=[3, 2], seq_dim=0), InvalidArgumentError, "batch_dim == seq_dim == 0"),
   ])  # fmt: skip

# -- Roll -------------------------------------------------------------------------------------------------------------


def roll_kernel(x: Any, shift: Any, axis: Any) -> np.ndarray:
    if x.ndim < 1:
        raise InvalidArgumentError("input must be 1-D or higher")
    for name, value in (("shift", shift), ("axis", axis)):
        if value.ndim > 1:
            raise InvalidArgumentError(f"{name} must be a scalar or a 1-D vector. Found: {format_dims(value.shape)}")
    if shift.shape != axis.shape:
        raise InvalidArgumentError("shift and axis must have the same size")
    shifts, axes = np.ravel(shift).tolist(), np.ravel(axis).tolist()
    for a in axes:
        if not -x.ndim <= a < x.ndim:
            raise InvalidArgumentError(f"axis {a + x.ndim if a < 0 else a} is out of range")
    return np.roll(x, shifts, axes) if axes else x


def roll_shape(c: Any) -> Dims:
    for i in (1, 2):
        if c.dims(i) is not None and len(c.dims(i)) > 1:
            raise ValueError(f"Shape must be at most rank 1 but is rank {len(c.dims(i))}")
    merge_dims(c.dims(1), c.dims(2))
    dims = c.dims(0)
    if dims == ():
        raise ValueError("Shape must be at least rank 1 but is rank 0")
    return dims


op("Roll(input: T, shift: Tshift, axis: Taxis) -> (output: T) [T: type; Tshift: type in {int32, int64}; Taxis: type in {int32, int64}]",
   shape=roll_shape, numpy=roll_kernel, host_memory=["shift", "axis"],
   grad=lambda g, op, dy: [g.Roll(dy, g.Neg(op.shift), op.axis), None, None],
   samples=[
       dict(input=normal(2, 3), shift=arr(1), axis=arr(0)),
       dict(input=normal(2, 3), shift=arr([1, -5, 2]), axis=arr([0, 1, -1])),
       dict(input=empty(0, 3), shift=arr(1), axis=arr(0)),
       dict(input=strings(["a", "b", "c"]), shift=arr(-1), axis=arr(0)),
   ],
   errors=[(dict(input=[1.0], shift=[1, 1], axis=[0]), InvalidArgumentError, "shift and axis must have the same size|must be equal")])  # fmt: skip

# -- OneHot -----------------------------------------------------------------------------------------------------------


def one_hot_kernel(indices: Any, depth: Any, on: Any, off: Any, *, axis: int) -> np.ndarray:
    if not (axis == -1 or 0 <= axis <= indices.ndim):
        raise InvalidArgumentError(f"Expected axis to be -1 or between [0, {indices.ndim + 1}).  But received: {axis}")
    for name, value in (("depth", depth), ("on_value", on), ("off_value", off)):
        if value.ndim:
            raise InvalidArgumentError(f"{name} must be a scalar, but got: {format_dims(value.shape)}")
    count = int(depth)
    if count < 0:
        raise InvalidArgumentError(f"depth must be non-negative, got: {count}")
    place = indices.ndim if axis == -1 else axis
    shape = (*indices.shape[:place], count, *indices.shape[place:])
    # Memory that comes zeroed costs less than writing zeros (-0.0 is not one of these).
    zeroed = off.dtype != object and not any(off.tobytes())
    result = np.zeros(shape, on.dtype) if zeroed else np.full(shape, off, on.dtype)
    if not result.size:
        return result
    behind = math.prod(indices.shape[place:])
    numbers = indices.reshape(-1).astype(np.int64)
    element = np.arange(numbers.size)
    places = (element // behind * count + numbers) * behind + element % behind if behind > 1 else element * count + numbers
    if numbers.min() < 0 or numbers.max() >= count:
        places = places[(numbers >= 0) & (numbers < count)]
    result.reshape(-1)[places] = on
    return result


def one_hot_shape(c: Any) -> Dims:
    axis, dims, depth = c.attrs["axis"], c.dims(0), c.const(1)
    if axis < -1:
        raise ValueError("axis must be >= -1")
    for i in (1, 2, 3):
        if c.dims(i) not in (None, ()):
            raise ValueError(f"Shape must be rank 0 but is rank {len(c.dims(i))}")
    if depth is not None and depth < 0:
        raise ValueError(f"Dimension size, given by scalar input 1, must be non-negative but is {int(depth)}")
    if dims is None:
        return None
    place = len(dims) if axis == -1 else axis
    return (*dims[:place], None if depth is None else int(depth), *dims[place:])


op("OneHot(indices: TI, depth: int32, on_value: T, off_value: T) -> (output: T)"
   " [axis: int = -1; T: type; TI: type in {uint8, int8, int32, int64} = int64]",
   shape=one_hot_shape, numpy=one_hot_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["depth"],
   samples=[
       dict(indices=arr([1, 5, 0]), depth=arr(3), on_value=arr(1), off_value=arr(0)),
       dict(indices=arr([[0, 2], [1, -1]], np.int64), depth=arr(3), on_value=arr(5), off_value=arr(2), axis=1),
       dict(indices=arr(1), depth=arr(3), on_value=arr(1), off_value=arr(0), axis=0),
       dict(indices=arr([]), depth=arr(2), on_value=arr(1), off_value=arr(0)),
       dict(indices=arr([1]), depth=arr(0), on_value=arr(1), off_value=arr(0)),
       dict(indices=arr([1, 0]), depth=arr(2), on_value=strings("on"), off_value=strings("off")),
   ],
   errors=[(dict(indices=[1], depth=-3, on_value=1.0, off_value=0.0), InvalidArgumentError, "must be non-negative")])  # fmt: skip

# -- UnravelIndex -----------------------------------------------------------------------------------------------------


def unravel_index_kernel(indices: Any, dims: np.ndarray) -> np.ndarray:
    if indices.ndim > 1:
        raise InvalidArgumentError(f'The indices can only be scalar or vector, got "{format_dims(indices.shape)}"')
    if dims.ndim != 1:
        raise InvalidArgumentError(f'The indices can only be 1-D, got "{format_dims(dims.shape)}"')
    if not dims.all():
        where = int(np.flatnonzero(dims == 0)[0])
        raise InvalidArgumentError(f"Input dims cannot contain a dim of zero, but dims contains zero at index {where}")
    total = int(np.prod(dims))
    if np.any(indices >= total):
        raise InvalidArgumentError("index is out of bound as with dims")
    strides = np.append(np.cumprod(dims[::-1])[::-1][1:], 1).astype(dims.dtype)
    indices = np.asarray(indices)
    # Remainders have the sign of the index, as in C++.
    quotients = [np.trunc(np.fmod(indices, s * d) / s).astype(dims.dtype) for s, d in zip(strides, dims, strict=True)]
    return np.stack(quotients)


op("UnravelIndex(indices: Tidx, dims: Tidx) -> (output: Tidx) [Tidx: type in {int32, int64} = int32]",
   shape=lambda c: None if c.dims(0) is None else (with_rank(c, 1, 1)[0], *c.dims(0)),  # type: ignore[index]
   numpy=unravel_index_kernel, samples=[dict(indices=arr([5, 1]), dims=arr([2, 3])), dict(indices=arr(5), dims=arr([2, 3]))],
   errors=[(dict(indices=6, dims=[2, 3]), InvalidArgumentError, "index is out of bound as with dims")])  # fmt: skip
