"""Broadcasting to a shape, and choosing elements by a condition."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import op, with_rank
from penstock.ops.native import lines
from penstock.ops.native.choosing import can_choose
from penstock.ops.native.choosing import choose as choose_bits
from penstock.ops.samples import arr, bools, empty, ints, normal, strings
from penstock.shapes import broadcast_dims, format_dims, merge_dims

# -- broadcasting -----------------------------------------------------------------------------------------------------


def sizes_of(shape: np.ndarray) -> tuple[int, ...]:
    """A shape vector's value as sizes; InvalidArgumentError if it is none."""
    if shape.ndim != 1:
        raise InvalidArgumentError(f"shape must be a vector of {{int32,int64}}, got shape {format_dims(shape.shape)}")
    sizes = tuple(shape.tolist())
    for size in sizes:
        if size < 0:
            raise InvalidArgumentError(f"Dimension {size} must be >= 0")
    return sizes


def broadcast_to_kernel(x: Any, shape: np.ndarray) -> np.ndarray:
    sizes = sizes_of(shape)
    if x.shape == sizes:
        return x
    try:
        if x.size == 1 and x.dtype != object and x.ndim <= len(sizes):  # one number everywhere: without NumPy's general way, which is slow
            wide = np.ndarray(sizes, x.dtype, np.ascontiguousarray(x), 0, (0,) * len(sizes))
            wide.flags.writeable = False
            return wide
        return np.broadcast_to(x, sizes)
    except ValueError:
        if x.ndim > len(sizes):
            raise InvalidArgumentError(
                f"Rank of input ({x.ndim}) must be no greater than rank of output shape ({len(sizes)})."
            ) from None
        raise InvalidArgumentError(f"Incompatible shapes: {format_dims(x.shape)} vs. {format_dims(sizes)}") from None


def broadcast_to_shape(c: Any) -> Dims:
    dims, out = c.dims(0), c.const_dims(1)
    if dims is None or out is None:
        return out
    if len(dims) > len(out):
        raise ValueError(f"Shape must be at most rank {len(out)} but is rank {len(dims)}")
    result = list(out)
    for i, d in enumerate(dims, len(out) - len(dims)):
        if d is None or d == 1:
            continue
        if result[i] is None:
            result[i] = d
        elif result[i] != d:
            raise ValueError(f"Dimensions must be equal, but are {d} and {result[i]}")
    return tuple(result)


def broadcast_to_grad(g: Any, op: Any, dy: Any) -> list:
    wanted = g.Shape(op.input, out_type=op.shape.dtype.base_dtype)
    axes = g.BroadcastGradientArgs(op.shape, wanted)[1]
    return [g.Reshape(g.Sum(dy, axes, keep_dims=True), wanted), None]


op("BroadcastTo(input: T, shape: Tidx) -> (output: T) [T: type; Tidx: type in {int32, int64} = int32]",
   shape=broadcast_to_shape, numpy=broadcast_to_kernel, grad=broadcast_to_grad, host_memory=["shape"],
   samples=[
       dict(input=normal(3), shape=arr([2, 3])),
       dict(input=normal(2, 1), shape=arr([4, 2, 3])),
       dict(input=normal(), shape=arr([2])),
       dict(input=normal(), shape=arr([])),
       dict(input=normal(1), shape=arr([0])),
       dict(input=strings(["a"]), shape=arr([2])),
   ],
   errors=[(dict(input=[1.0, 2.0], shape=[3]), InvalidArgumentError, "Incompatible shapes: \\[2\\] vs. \\[3\\]|Dimensions must be equal")])  # fmt: skip


def _broadcast_sizes(a: np.ndarray, b: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    """Both shapes, padded with ones to the same length, and the common shape."""
    for which, shape in enumerate((a, b)):
        if shape.ndim != 1:
            raise InvalidArgumentError(f"In[{which}] must be a vector.{format_dims(shape.shape)}")
    x, y = a.tolist(), b.tolist()
    rank = max(len(x), len(y))
    x = [1] * (rank - len(x)) + x
    y = [1] * (rank - len(y)) + y
    out = []
    for p, q in zip(x, y, strict=True):
        if p != q and p != 1 and q != 1:
            raise InvalidArgumentError(f"Incompatible shapes: {format_dims(tuple(a.tolist()))} vs. {format_dims(tuple(b.tolist()))}")
        out.append(q if p == 1 else p)
    return x, y, out


def broadcast_args_kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array(_broadcast_sizes(a, b)[2], a.dtype)


def broadcast_args_shape(c: Any) -> Dims:
    m, n = (with_rank(c, i, 1)[0] for i in (0, 1))  # type: ignore[index]
    return (None if m is None or n is None else max(m, n),)


op("BroadcastArgs(s0: T, s1: T) -> (r0: T) [T: type in {int32, int64} = int32]",
   shape=broadcast_args_shape, numpy=broadcast_args_kernel, host_memory=["s0", "s1", "r0"],
   samples=[dict(s0=arr([2, 1]), s1=arr([4, 1, 3])), dict(s0=arr([]), s1=arr([0]))],
   errors=[(dict(s0=[2, 3], s1=[4, 2, 2]), InvalidArgumentError, "Incompatible shapes: \\[2,3\\] vs. \\[4,2,2\\]")])  # fmt: skip


# -- choosing ---------------------------------------------------------------------------------------------------------


def where_kernel(x: Any) -> np.ndarray:
    if x.ndim == 0:
        raise InvalidArgumentError("WhereOp : Unhandled input dimensions: 0")
    if x.ndim == 1:  # np.argwhere would make an array of a tuple
        return x.nonzero()[0].astype(np.int64, copy=False).reshape(-1, 1)
    if x.size < _MANY or x.size >= 1 << 32:
        return np.argwhere(x).astype(np.int64, copy=False)
    # Places in one row, divided by the sizes of the axes: np.argwhere walks along all of them.
    left = np.flatnonzero(x if x.dtype == bool else x != 0).astype(np.uint32)
    result = np.empty((left.size, x.ndim), np.int64)
    for axis in range(x.ndim - 1, 0, -1):
        rows = left // np.uint32(x.shape[axis])
        left -= rows * np.uint32(x.shape[axis])
        result[:, axis] = left
        left = rows
    result[:, 0] = left
    return result


_MANY = 1 << 10
"""Elements from which on that is quicker."""


def where_shape(c: Any) -> Dims:
    dims = c.dims(0)
    return (None, None if dims is None else len(dims))


op("Where(input: T) -> (index: int64) [T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32,"
   " bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, bool} = bool]",
   shape=where_shape, numpy=where_kernel,
   samples=[
       dict(input=bools(3, 4)),
       dict(input=ints(2, 3, 2, lo=-1, hi=2)),
       dict(input=arr([0.0, np.nan, 1.0], np.float32)),
       dict(input=empty(0, 2)),
   ],
   errors=[(dict(input=True), InvalidArgumentError, "WhereOp : Unhandled input dimensions: 0")])  # fmt: skip


_BRANCHLESS_FROM = 2048
"""Elements from which on arithmetic beats np.where, which jumps for every element: an unpredictable condition costs it several times as much."""
_FEW_ROWS = 16
"""Rows up to which NumPy is quick enough, however long they are."""
_PIECE = 65536
"""Elements chosen at a time: their temporaries stay in the cache."""
_VALUES = (np.ndarray, np.generic)
_INTEGERS = {1: np.dtype(np.int8), 2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def _bits(x: Any, shape: tuple[int, ...], integer: np.dtype) -> Any:
    """The bits of an array of `shape`, or of one number, as integers in one row; None if there is no such view."""
    if x.ndim == 0:
        return np.asarray(x).view(integer)[()]
    return x.reshape(-1).view(integer) if x.shape == shape and x.flags.c_contiguous else None


def _is_row_by_row(condition: np.ndarray, t: np.ndarray, e: np.ndarray) -> bool:
    return t.shape == e.shape and t.ndim == condition.ndim and len(t) == len(condition) and t.size > condition.size


def choose(condition: Any, t: Any, e: Any) -> np.ndarray:
    """np.where(condition, t, e): on long arrays of one shape (t or e may be one number) by machine code, or by arithmetic on the bits."""
    if condition.ndim > 1 and condition.size == len(condition) > _FEW_ROWS and isinstance(t, np.ndarray) and isinstance(e, np.ndarray) and _is_row_by_row(condition, t, e):
        return choose_rows(condition.reshape(-1), t, e)
    if condition.size < _BRANCHLESS_FROM or not (isinstance(t, _VALUES) and isinstance(e, _VALUES)):  # a string comes as bytes
        return np.where(condition, t, e)
    n, dtype = condition.size, t.dtype
    integer = None if dtype.hasobject or dtype != e.dtype else _INTEGERS.get(dtype.itemsize)
    if integer is None or condition.dtype != np.bool_ or not condition.flags.c_contiguous:
        return np.where(condition, t, e)
    yes, no = _bits(t, condition.shape, integer), _bits(e, condition.shape, integer)
    if yes is None or no is None or not (t.ndim or e.ndim):
        return np.where(condition, t, e)
    if can_choose(dtype.itemsize):
        out = np.empty(condition.shape, dtype)
        choose_bits(condition, np.asarray(yes), np.asarray(no), out)
        return out
    flags = condition.reshape(-1)
    inverted = t.ndim == 0 and not yes
    if inverted:  # zeros where the condition holds
        yes, no = no, yes
    plain = inverted or (e.ndim == 0 and not no)
    out = np.empty(condition.shape, dtype)
    bits = out.reshape(-1).view(integer)
    differ = None if plain else np.empty(min(n, _PIECE), integer)
    for start in range(0, n, _PIECE):
        part = slice(start, min(start + _PIECE, n))
        a = yes[part] if yes.ndim else yes
        piece = bits[part]
        piece[...] = flags[part]
        if inverted:
            piece ^= 1
        if differ is None:
            piece *= a
            continue
        b = no[part] if no.ndim else no
        change = np.bitwise_xor(a, b, out=differ[: piece.size])
        piece *= change
        piece ^= b
    return out


def choose_rows(condition: Any, t: Any, e: Any) -> np.ndarray:
    """The rows of `t` where the condition, a vector, holds, otherwise those of `e`."""
    if t.flags.c_contiguous and e.flags.c_contiguous and condition.flags.c_contiguous and t.dtype == e.dtype:
        found = lines.choose(condition, t, e)
        if found is not None:
            return found
    return np.where(condition.reshape(-1, *[1] * (t.ndim - 1)), t, e)


def select_kernel(condition: Any, t: Any, e: Any) -> np.ndarray:
    if condition.ndim == 0:
        chosen = t if condition else e
        if t.shape != e.shape:
            raise InvalidArgumentError(
                f"'then' and 'else' must have the same size.  but received: {format_dims(t.shape)} vs. {format_dims(e.shape)}"
            )
        return chosen
    if condition.ndim == 1 and t.ndim > 1:
        if t.shape != e.shape:
            raise InvalidArgumentError(
                f"'then' and 'else' must have the same size.  but received: {format_dims(t.shape)} vs. {format_dims(e.shape)}"
            )
        if t.shape[0] != condition.shape[0]:
            raise InvalidArgumentError(
                f"Number of batches of 'then' must match size of 'cond', but saw: {t.shape[0]} vs. {condition.shape[0]}"
            )
        return choose_rows(condition, t, e)
    for i, other in enumerate((t, e), 1):
        if other.shape != condition.shape:
            raise InvalidArgumentError(
                "Inputs to operation Select of type Select must have the same size and shape.  "
                f"Input 0: {format_dims(condition.shape)} != input {i}: {format_dims(other.shape)}"
            )
    return choose(condition, t, e)


def select_shape(c: Any) -> Dims:
    condition, data = c.dims(0), merge_dims(c.dims(1), c.dims(2))
    if condition is None or data is None:
        return data
    if len(condition) == 0:
        return data
    if len(condition) == 1 and len(data) > 1:
        return merge_dims(condition, data[:1])[:1] + data[1:]  # type: ignore[index]
    return merge_dims(data, condition)


def select_v2_kernel(condition: Any, t: Any, e: Any) -> np.ndarray:
    try:
        return choose(condition, t, e)
    except ValueError:
        raise InvalidArgumentError(
            f"condition {format_dims(condition.shape)}, then {format_dims(t.shape)}, and else {format_dims(e.shape)} must be broadcastable"
        ) from None


def select_v2_grad(g: Any, op: Any, dy: Any) -> list:
    zero = g.const(0, dy.dtype.base_dtype)
    out = g.Shape(op.output)
    results: list = [None]
    for x, masked in ((op.t, g.SelectV2(op.condition, dy, zero)), (op.e, g.SelectV2(op.condition, zero, dy))):
        wanted = g.Shape(x)
        axes = g.BroadcastGradientArgs(wanted, out)[0]
        results.append(g.Reshape(g.Sum(masked, axes, keep_dims=True), wanted))
    return results


def select_grad(g: Any, op: Any, dy: Any) -> list:
    zeros = g.ZerosLike(op.t)
    return [None, g.Select(op.condition, dy, zeros), g.Select(op.condition, zeros, dy)]


op("Select(condition: bool, t: T, e: T) -> (output: T) [T: type]",
   shape=select_shape, numpy=select_kernel, grad=select_grad,
   samples=[
       dict(condition=bools(2, 3), t=normal(2, 3), e=normal(2, 3)),
       dict(condition=bools(2), t=normal(2, 3), e=normal(2, 3)),
       dict(condition=arr(True), t=normal(2, 3), e=normal(2, 3)),
       dict(condition=bools(0), t=empty(0), e=empty(0)),
       dict(condition=bools(2), t=strings(["a", "b"]), e=strings(["c", "d"])),
   ],
   errors=[
       (dict(condition=[True, False, True], t=np.zeros((2, 3)), e=np.zeros((2, 3))), InvalidArgumentError,
        "Number of batches of 'then' must match size of 'cond', but saw: 2 vs. 3|must be equal, but are 3 and 2"),
   ])  # fmt: skip
op("SelectV2(condition: bool, t: T, e: T) -> (output: T) [T: type]",
   shape=lambda c: broadcast_dims(c.dims(0), broadcast_dims(c.dims(1), c.dims(2))), numpy=select_v2_kernel, grad=select_v2_grad,
   samples=[
       dict(condition=bools(2, 3), t=normal(2, 3), e=normal(2, 3)),
       dict(condition=bools(3), t=normal(2, 1), e=normal()),
       dict(condition=arr(False), t=normal(), e=normal()),
       dict(condition=bools(0), t=empty(0), e=normal()),
       dict(condition=bools(2), t=strings(["a", "b"]), e=strings("c")),
   ],
   errors=[(dict(condition=[True, False], t=[1.0, 2.0, 3.0], e=1.0), InvalidArgumentError, "must be broadcastable|Dimensions must be equal")])  # fmt: skip
