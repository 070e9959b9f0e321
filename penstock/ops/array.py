"""Shapes of tensors, and ops that change a shape: reshape, transpose, join, split."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, scalar, with_rank
from penstock.ops.kernels.joins import (
    concat_grad,
    concat_kernel,
    concat_offset_kernel,
    concat_shape,
    concat_v2_kernel,
    pack_kernel,
    pack_shape,
    split_kernel,
    split_shape,
    split_v_kernel,
    split_v_shape,
    unpack_kernel,
    unpack_shape,
)
from penstock.ops.native import lines, ranks, transposes
from penstock.ops.samples import arr, empty, ints, normal, strings
from penstock.shapes import format_dims, num_elements

# -- what shape is it -------------------------------------------------------------------------------------------------


def _dims(x: Any) -> tuple[int, ...]:
    """Sizes of a value; what is not an array (a variant, a handle) is a scalar."""
    return getattr(x, "shape", ())


def shape_kernel(x: Any, *, out_type: DType) -> np.ndarray:
    dims = _dims(x)
    if out_type is dtypes.int32 and dims and max(dims) > 0x7FFFFFFF:
        axis = dims.index(max(dims))
        raise InvalidArgumentError(f"Shape output type is 32-bit but dim {axis} is size {dims[axis]}")
    return np.array(dims, out_type.np)


def shape_shape(c: Any) -> Dims:
    dims = c.dims(0)
    return (None,) if dims is None else (len(dims),)


def shape_n_shape(c: Any) -> list[Dims]:
    return [(None if t.dims is None else len(t.dims),) for t in c.inputs]


def size_kernel(x: Any, *, out_type: DType) -> Any:
    size = getattr(x, "size", 1)
    if out_type is dtypes.int32 and size > 0x7FFFFFFF:
        raise InvalidArgumentError("Number of elements was larger than representable by 32-bit output type")
    return out_type.np.type(size)


op("Shape(input: T) -> (output: out_type) [T: type; out_type: type in {int32, int64} = int32]",
   shape=shape_shape, numpy=shape_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["output"],
   samples=[dict(input=normal(2, 3)), dict(input=normal(), out_type="int64"), dict(input=empty(0, 4)), dict(input=strings(["a"]))])  # fmt: skip
op("ShapeN(input: N*T) -> (output: N*out_type) [N: int >= 1; T: type; out_type: type in {int32, int64} = int32]",
   shape=shape_n_shape, numpy=lambda xs, *, out_type: [np.array(x.shape, out_type.np) for x in xs],
   grad=NOT_DIFFERENTIABLE, host_memory=["output"],
   samples=[dict(input=[normal(2, 3), normal(), empty(0)]), dict(input=[normal(4)], out_type="int64")])  # fmt: skip
op("Size(input: T) -> (output: out_type) [T: type; out_type: type in {int32, int64} = int32]",
   shape=scalar, numpy=size_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["output"],
   samples=[dict(input=normal(2, 3)), dict(input=normal(), out_type="int64"), dict(input=empty(0, 4))])  # fmt: skip
op("Rank(input: T) -> (output: int32) [T: type]",
   shape=scalar, numpy=lambda x: np.int32(len(_dims(x))), grad=NOT_DIFFERENTIABLE, host_memory=["output"],
   samples=[dict(input=normal(2, 3)), dict(input=normal()), dict(input=empty(0, 4))])  # fmt: skip


# -- the same elements in another shape -------------------------------------------------------------------------------


def reshape_kernel(x: Any, shape: np.ndarray) -> np.ndarray:
    if shape.ndim > 1:
        raise InvalidArgumentError(f"sizes input must be 1-D, not {format_dims(shape.shape)}")
    sizes = shape.tolist() if shape.ndim else [int(shape)]
    if not sizes or min(sizes) >= 0:  # NumPy takes any negative size for -1
        try:
            return np.reshape(x, sizes)
        except ValueError:
            pass
    return np.reshape(x, _inferred_sizes(x, sizes))


def _inferred_sizes(x: Any, sizes: list[int]) -> list[int]:
    """`sizes` with the one -1 replaced by what is left; the errors that TF gives."""
    missing, known = -1, 1
    for i, size in enumerate(sizes):
        if size == -1:
            if missing >= 0:
                raise InvalidArgumentError(f"Only one input size may be -1, not both {missing} and {i}")
            missing = i
        elif size < 0:
            raise InvalidArgumentError(f"Size {i} must be non-negative, not {size}")
        else:
            known *= size
    sizes = list(sizes)
    if missing >= 0:
        if known > 0:
            if x.size % known:
                raise InvalidArgumentError(
                    f"Input to reshape is a tensor with {x.size} values, but the requested shape requires a multiple of {known}"
                )
            sizes[missing] = x.size // known
        else:
            # Of an empty tensor the non-zero sizes still tell what is missing.
            left = _product(x.shape, skip_zero=True)
            right = _product(sizes[:missing] + sizes[missing + 1 :], skip_zero=True)
            if x.size or left % right:
                raise InvalidArgumentError(f"Input to reshape is a tensor with {x.size} values, but the requested shape has 0")
            sizes[missing] = left // right
    wanted = _product(sizes)
    if wanted != x.size:
        raise InvalidArgumentError(f"Input to reshape is a tensor with {x.size} values, but the requested shape has {wanted}")
    return sizes


def _product(sizes: Any, skip_zero: bool = False) -> int:
    total = 1
    for size in sizes:
        if size or not skip_zero:
            total *= size
    return total


def reshape_shape(c: Any) -> Dims:
    given = c.dims(1)
    if given is not None and len(given) != 1:
        raise ValueError(f"Shape must be rank 1 but is rank {len(given)}")
    return reshaped_dims(c.dims(0), c.const_dims(1))


def reshaped_dims(source: Dims, out: Dims) -> Dims:
    """The static shape of `source` reshaped to `out`, where None stands for an unknown or inferred size."""
    if out is None or source is None:
        return out
    missing = [i for i, d in enumerate(out) if d is None]
    unknown = sum(1 for d in source if d is None)
    known_in = _product(d for d in source if d is not None)
    known_out = _product(d for d in out if d is not None)
    if (unknown == 0 and not missing and known_in != known_out) or (unknown == 0 and known_out == 0 and known_in):
        raise ValueError(f"Cannot reshape a tensor with {known_in} elements to shape {format_dims(out)} ({known_out} elements)")
    if unknown == 0 and len(missing) == 1 and known_out > 0:
        if known_in % known_out:
            raise ValueError(f"Dimension size must be evenly divisible by {known_out} but is {known_in}")
        return (*out[: missing[0]], known_in // known_out, *out[missing[0] + 1 :])
    if unknown == 1 and not missing and known_in > 0 and known_out % known_in:
        raise ValueError(f"Dimension size must be evenly divisible by {known_in} but is {known_out}")
    return out


op("Reshape(tensor: T, shape: Tshape) -> (output: T) [T: type; Tshape: type in {int32, int64} = int32]",
   shape=reshape_shape, numpy=reshape_kernel, host_memory=["shape"],
   grad=lambda g, op, dy: [g.Reshape(dy, g.Shape(op.tensor)), None],
   samples=[
       dict(tensor=normal(2, 3), shape=arr([3, 2])),
       dict(tensor=normal(2, 3), shape=arr([-1])),
       dict(tensor=normal(1), shape=arr([])),
       dict(tensor=normal(), shape=arr([1, 1])),
       dict(tensor=empty(0, 3), shape=arr([3, -1])),
       dict(tensor=strings(["a", "b"]), shape=arr([2, 1])),
   ],
   errors=[
       (dict(tensor=np.zeros((2, 3), np.float32), shape=[2, 4]), InvalidArgumentError,
        "Cannot reshape a tensor with 6 elements|Input to reshape is a tensor with 6 values, but the requested shape has 8"),
       (dict(tensor=np.zeros((2, 3), np.float32), shape=[-1, -1]), InvalidArgumentError, "Only one input size may be -1, not both 0 and 1"),
   ])  # fmt: skip


def squeeze_kernel(x: Any, *, squeeze_dims: list[int]) -> np.ndarray:
    shape = x.shape
    if not squeeze_dims:
        return np.reshape(x, [d for d in shape if d != 1])
    rank = len(shape)
    gone = set()
    for axis in squeeze_dims:
        if not -rank <= axis < rank:
            raise InvalidArgumentError(f"Tried to squeeze dim index {axis} for tensor with {rank} dimensions.")
        axis %= rank
        if shape[axis] != 1:
            raise InvalidArgumentError(f"Can not squeeze dim[{axis}], expected a dimension of 1, got {shape[axis]}")
        gone.add(axis)
    return np.reshape(x, [d for i, d in enumerate(shape) if i not in gone])


def squeeze_shape(c: Any) -> Dims:
    dims, axes = c.dims(0), c.attrs["squeeze_dims"]
    if dims is None:
        return None
    if not axes:
        # An unknown size may or may not be 1.
        return None if None in dims else tuple(d for d in dims if d != 1)
    rank = len(dims)
    gone = set()
    for i, axis in enumerate(axes):
        if not -rank <= axis < rank:
            raise ValueError(f"squeeze_dims[{i}] not in [{-rank},{rank}).")
        axis %= rank
        if dims[axis] not in (None, 1):
            raise ValueError(f"Can not squeeze dim[{axis}], expected a dimension of 1, got {dims[axis]}")
        gone.add(axis)
    return tuple(d for i, d in enumerate(dims) if i not in gone)


op("Squeeze(input: T) -> (output: T) [T: type; squeeze_dims: list(int) >= 0 = []]",
   shape=squeeze_shape, numpy=squeeze_kernel, grad=lambda g, op, dy: g.Reshape(dy, g.Shape(op.input)),
   samples=[
       dict(input=normal(1, 3, 1)),
       dict(input=normal(1, 3, 1), squeeze_dims=[-1]),
       dict(input=normal(1, 1)),
       dict(input=normal()),
       dict(input=empty(1, 0), squeeze_dims=[0]),
   ],
   errors=[(dict(input=[[1.0, 2.0]], squeeze_dims=[1]), InvalidArgumentError, "Can not squeeze dim\\[1\\], expected a dimension of 1, got 2")])  # fmt: skip


def expand_dims_kernel(x: Any, dim: Any) -> np.ndarray:
    if dim.size != 1:
        raise InvalidArgumentError("'dim' must be a tensor with a single value")
    axis, shape = dim.item(), x.shape
    rank = len(shape)
    if not -rank - 1 <= axis <= rank:
        raise InvalidArgumentError(f"Tried to expand dim index {axis} for tensor with {rank} dimensions.")
    if axis < 0:
        axis += rank + 1
    return x.reshape((*shape[:axis], 1, *shape[axis:]))


def expand_dims_shape(c: Any) -> Dims:
    dims = c.dims(0)
    if num_elements(c.dims(1)) not in (None, 1):
        raise ValueError("'dim' input must be a tensor with a single value")
    axis = c.const(1)
    if dims is None:
        return None
    if axis is None:
        return (None,) * (len(dims) + 1)
    axis, rank = axis.item(), len(dims)
    if not -rank - 1 <= axis <= rank:
        raise ValueError(f"dim {axis} not in the interval [{-rank - 1}, {rank}].")
    if axis < 0:
        axis += rank + 1
    return (*dims[:axis], 1, *dims[axis:])


op("ExpandDims(input: T, dim: Tdim) -> (output: T) [T: type; Tdim: type in {int32, int64} = int32]",
   shape=expand_dims_shape, numpy=expand_dims_kernel, host_memory=["dim"],
   grad=lambda g, op, dy: [g.Reshape(dy, g.Shape(op.input)), None],
   samples=[
       dict(input=normal(2, 3), dim=arr(1)),
       dict(input=normal(2, 3), dim=arr(-1)),
       dict(input=normal(), dim=arr(0)),
       dict(input=empty(0), dim=arr([1])),
       dict(input=strings(["a"]), dim=arr(0)),
   ],
   errors=[(dict(input=[1.0], dim=3), InvalidArgumentError, "not in the interval|Tried to expand dim index 3 for tensor with 1 dimensions")])  # fmt: skip


# -- the same elements in another order -------------------------------------------------------------------------------


def transpose_kernel(x: Any, perm: np.ndarray) -> np.ndarray:
    try:
        view = np.transpose(x, perm.tolist())
    except (ValueError, TypeError):
        _check_permutation(x.ndim, perm)
        raise
    found = transposes.turned(view)
    return lines.laid_out(view) if found is None else found


def _check_permutation(rank: int, perm: np.ndarray) -> None:
    if perm.ndim != 1:
        raise InvalidArgumentError(f"perm must be rank 1, got shape {format_dims(perm.shape)}")
    if perm.size != rank:
        raise InvalidArgumentError(f"transpose expects a vector of size {rank}. But input(1) is a vector of size {perm.size}")
    axes = perm.tolist()
    for axis in axes:
        if not -rank <= axis < rank:
            raise InvalidArgumentError(f"{axis} is out of range [0 .. {rank})")
    for axis in range(rank):
        if axis not in axes and axis - rank not in axes:
            raise InvalidArgumentError(f"{axis} is missing from {{{','.join(map(str, axes))}}}.")


def transpose_shape(c: Any) -> Dims:
    dims, perm = c.dims(0), c.const(1)
    count = with_rank(c, 1, 1)[0]  # type: ignore[index]
    if dims is None:
        return None if count is None else (None,) * count
    if count is not None and count != len(dims):
        raise ValueError(f"Dimension must be {len(dims)} but is {count}")
    if perm is None:
        return (None,) * len(dims)
    rank = len(dims)
    for axis in perm.tolist():
        if not -rank <= axis < rank:
            raise ValueError(f"perm dim {axis} is out of range of input rank {rank}")
    return tuple(dims[axis] for axis in perm.tolist())


_TRANSPOSE_SAMPLES = [
    dict(x=normal(2, 3, 4), perm=arr([2, 0, 1])),
    dict(x=normal(2, 3), perm=arr([-1, -2])),
    dict(x=normal(3), perm=arr([0])),
    dict(x=normal(), perm=arr([])),
    dict(x=empty(0, 3), perm=arr([1, 0])),
]

op("Transpose(x: T, perm: Tperm) -> (y: T) [T: type; Tperm: type in {int32, int64} = int32]",
   shape=transpose_shape, numpy=transpose_kernel, host_memory=["perm"],
   grad=lambda g, op, dy: [g.Transpose(dy, g.InvertPermutation(op.perm)), None],
   samples=[*_TRANSPOSE_SAMPLES, dict(x=strings([["a", "b"]]), perm=arr([1, 0]))],
   errors=[(dict(x=[[1.0]], perm=[0, 0]), InvalidArgumentError, "1 is missing from {0,0}.")])  # fmt: skip
op("ConjugateTranspose(x: T, perm: Tperm) -> (y: T) [T: type; Tperm: type in {int32, int64} = int32]",
   shape=transpose_shape, numpy=lambda x, perm: np.conj(transpose_kernel(x, perm)) if x.dtype.kind == "c" else transpose_kernel(x, perm),
   host_memory=["perm"],
   grad=lambda g, op, dy: [g.ConjugateTranspose(dy, g.InvertPermutation(op.perm)), None],
   samples=_TRANSPOSE_SAMPLES)  # fmt: skip


MANY = 64
"""Numbers from which on a loop in machine code is worth it."""


def invert_permutation_kernel(x: np.ndarray) -> np.ndarray:
    if x.ndim != 1:
        raise InvalidArgumentError("invert_permutation expects a 1D vector.")
    count = x.size
    if count >= MANY and (found := ranks.inverse(x)) is not None:
        return found
    if count and not (0 <= x.min() and x.max() < count):
        raise InvalidArgumentError(f"{x[(x < 0) | (x >= count)][0]} is not between 0 and {count}")
    result = np.full(count, -1, x.dtype)
    result[x.astype(np.intp, copy=False)] = np.arange(count, dtype=x.dtype)
    if count and result.min() < 0:
        values, counts = np.unique(x, return_counts=True)
        raise InvalidArgumentError(f"{values[counts > 1][0]} is duplicated in the input.")
    return result


op("InvertPermutation(x: T) -> (y: T) [T: type in {int32, int64} = int32]",
   shape=lambda c: with_rank(c, 0, 1), numpy=invert_permutation_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["x", "y"],
   samples=[dict(x=arr([2, 0, 1])), dict(x=arr([]))],
   errors=[
       (dict(x=[0, 5]), InvalidArgumentError, "5 is not between 0 and 2"),
       (dict(x=[0, 0]), InvalidArgumentError, "0 is duplicated in the input"),
   ])  # fmt: skip


def bitcast_kernel(x: Any, *, type: DType) -> np.ndarray:
    x = np.ascontiguousarray(x) if x.ndim else np.asarray(x)
    have, want = x.dtype.itemsize, type.np.itemsize
    if have == want:
        return x.view(type.np)
    if have > want:
        return x.reshape(*x.shape, 1).view(type.np)
    if x.ndim == 0 or x.shape[-1] * have != want:
        raise InvalidArgumentError(f"Cannot bitcast from {want} to {have}")
    return x.reshape(-1).view(type.np).reshape(x.shape[:-1])


def bitcast_shape(c: Any) -> Dims:
    dims, have, want = c.dims(0), c.attrs["T"].np.itemsize, c.attrs["type"].np.itemsize
    if dims is None or have == want:
        return dims
    if have > want:
        return (*dims, have // want)
    if not dims:
        raise ValueError(f"Shape must be at least rank 1 but is rank 0: cannot bitcast a scalar from {have} to {want} bytes")
    if dims[-1] is not None and dims[-1] * have != want:
        raise ValueError(f"Cannot bitcast from {want} to {have} due to shape. {dims[-1]} does not match {want // have}")
    return dims[:-1]


op("Bitcast(input: T) -> (output: type) [T: type in {bfloat16, half, float, double, int64, int32, uint8, uint16, uint32, uint64, int8,"
   " int16, complex64, complex128, qint8, quint8, qint16, quint16, qint32}; type: type in {bfloat16, half, float, double, int64, int32,"
   " uint8, uint16, uint32, uint64, int8, int16, complex64, complex128, qint8, quint8, qint16, quint16, qint32}]",
   shape=bitcast_shape, numpy=bitcast_kernel,
   samples=[
       dict(input=normal(2, 3, dtype=np.float32), type="uint8"),
       dict(input=normal(dtype=np.float32), type="int32"),
       dict(input=normal(dtype=np.float64), type="uint16"),
       dict(input=ints(2, 4, dtype=np.uint8), type="float32"),
       dict(input=empty(0, 2, dtype=np.int32), type="int64"),
   ])  # fmt: skip


# -- joining and splitting --------------------------------------------------------------------------------------------

op("Concat(concat_dim: int32, values: N*T) -> (output: T) [N: int >= 2; T: type]",
   shape=lambda c: concat_shape(c, 0, range(1, c.n)), numpy=concat_kernel, host_memory=["concat_dim"],
   grad=lambda g, op, dy: [None, *concat_grad(g, op.concat_dim, op.values, dy)],
   samples=[dict(concat_dim=arr(1), values=[normal(2, 3), normal(2, 1)]), dict(concat_dim=arr(0), values=[empty(0, 3), normal(2, 3)])])  # fmt: skip
op("ConcatV2(values: N*T, axis: Tidx) -> (output: T) [N: int >= 2; T: type; Tidx: type in {int32, int64} = int32]",
   shape=lambda c: concat_shape(c, c.n - 1, range(c.n - 1)), numpy=concat_v2_kernel, host_memory=["axis"],
   grad=lambda g, op, dy: [*concat_grad(g, op.axis, op.values, dy), None],
   samples=[
       dict(values=[normal(2, 3), normal(2, 1), normal(2, 2)], axis=arr(-1)),
       dict(values=[normal(2, 3), normal(1, 3)], axis=arr(0)),
       dict(values=[empty(0), normal(2)], axis=arr(0)),
       dict(values=[strings(["a"]), strings(["b", "c"])], axis=arr(0)),
   ],
   errors=[
       (dict(values=[np.zeros((2, 3)), np.zeros((2, 2))], axis=0), InvalidArgumentError,
        "Dimension 0 in both shapes must be equal, but are 3 and 2|Dimension 1 in both shapes must be equal"),
       (dict(values=[1.0, 2.0], axis=0), InvalidArgumentError, "Can't concatenate scalars \\(use tf.stack instead\\)"),
   ])  # fmt: skip
op("ConcatOffset(concat_dim: int32, shape: N*shape_type) -> (offset: N*shape_type)"
   " [N: int >= 2; shape_type: type in {int32, int64} = int32]",
   shape=lambda c: [with_rank(c, i, 1) for i in range(1, c.n)], numpy=concat_offset_kernel, grad=NOT_DIFFERENTIABLE,
   host_memory=["concat_dim", "shape", "offset"],
   samples=[
       dict(concat_dim=arr(1), shape=[arr([2, 3, 4]), arr([2, 5, 4])]),
       dict(concat_dim=arr(-1), shape=[arr([2, 3]), arr([2, 5]), arr([2, 1])]),
   ],
   errors=[
       (dict(concat_dim=1, shape=[[2, 3, 4], [3, 5, 4]]), InvalidArgumentError,
        "All dimensions except 1 must match. Input 1 has shape \\[3 5 4\\] and doesn't match input 0 with shape \\[2 3 4\\]."),
   ])  # fmt: skip
op("Pack(values: N*T) -> (output: T) [N: int >= 1; T: type; axis: int = 0]",
   shape=pack_shape, numpy=pack_kernel,
   grad=lambda g, op, dy: g.Unpack(dy, num=op.attr("N"), axis=op.attr("axis")),
   samples=[
       dict(values=[normal(2, 3), normal(2, 3)]),
       dict(values=[normal(2, 3), normal(2, 3)], axis=-1),
       dict(values=[normal(), normal(), normal()]),
       dict(values=[empty(0, 2)], axis=1),
       dict(values=[strings("a"), strings("b")]),
   ],
   errors=[(dict(values=[[1.0, 2.0], [1.0]]), InvalidArgumentError, "must be equal|Shapes of all inputs must match")])  # fmt: skip


def unpack_grad(g: Any, op: Any, *dys: Any) -> Any:
    return g.Pack(list(dys), axis=op.attr("axis"))


op("Unpack(value: T) -> (output: num*T) [num: int >= 0; T: type; axis: int = 0]",
   shape=unpack_shape, numpy=unpack_kernel, grad=unpack_grad,
   samples=[
       dict(value=normal(2, 3), num=2),
       dict(value=normal(2, 3), num=3, axis=-1),
       dict(value=normal(3), num=3),
       dict(value=empty(2, 0), num=2),
       dict(value=strings(["a", "b"]), num=2),
   ],
   errors=[(dict(value=[1.0, 2.0], num=3), InvalidArgumentError, "Dimension must be 3 but is 2|Input shape axis 0 must equal 3, got shape \\[2\\]")])  # fmt: skip
def joined(g: Any, op: Any, pieces: Any) -> Any:
    """The gradient of a split: the pieces together again."""
    return g.ConcatV2(list(pieces), op.split_dim) if len(pieces) > 1 else pieces[0]


op("Split(split_dim: int32, value: T) -> (output: num_split*T) [num_split: int >= 1; T: type]",
   shape=split_shape, numpy=split_kernel, host_memory=["split_dim"],
   grad=lambda g, op, *dys: [None, joined(g, op, dys)],
   samples=[
       dict(split_dim=arr(1), value=normal(2, 4), num_split=2),
       dict(split_dim=arr(-2), value=normal(3, 2), num_split=3),
       dict(split_dim=arr(0), value=normal(2), num_split=1),
       dict(split_dim=arr(0), value=empty(0, 2), num_split=2),
       dict(split_dim=arr(0), value=strings(["a", "b"]), num_split=2),
   ],
   errors=[
       (dict(split_dim=0, value=[1.0, 2.0, 3.0], num_split=2), InvalidArgumentError,
        "Number of ways to split should evenly divide the split dimension"),
   ])  # fmt: skip
op("SplitV(value: T, size_splits: Tlen, split_dim: int32) -> (output: num_split*T)"
   " [num_split: int >= 1; T: type; Tlen: type in {int8, int32, int64} = int64]",
   shape=split_v_shape, numpy=split_v_kernel, host_memory=["size_splits", "split_dim"],
   grad=lambda g, op, *dys: [joined(g, op, dys), None, None],
   samples=[
       dict(value=normal(2, 4), size_splits=arr([1, 3]), split_dim=arr(1), num_split=2),
       dict(value=normal(5), size_splits=arr([2, -1, 0]), split_dim=arr(0), num_split=3),
       dict(value=normal(3), size_splits=arr([3]), split_dim=arr(-1), num_split=1),
   ],
   errors=[
       (dict(value=[1.0, 2.0, 3.0], size_splits=[1, 1], split_dim=0, num_split=2), InvalidArgumentError,
        "can't split axis of size 3 into pieces of size \\[1,1\\]|Determined shape must either match input shape"),
   ])  # fmt: skip
