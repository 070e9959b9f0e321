"""Reductions over axes (Sum, Mean, Max, ...), and the position of an extreme (ArgMax, ArgMin)."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.ops.broadcasting import conj
from penstock.ops.declare import NOT_DIFFERENTIABLE, op
from penstock.ops.kernels.numeric import NARROW, lowest, narrow, widen
from penstock.ops.kernels.short_rows import fold_rows, reduce_short_rows
from penstock.ops.native import transposes
from penstock.ops.native.frames import share_out
from penstock.ops.native.rowwise import reduce_rows
from penstock.ops.samples import arr, bools, empty, ints, normal, uniform
from penstock.shapes import Dims, format_dims

NAN = float("nan")

# -- axes and shapes --------------------------------------------------------------------------------------------------


def axes_tuple(x: Any, axes: Any) -> tuple[int, ...]:
    """The axes to reduce, checked in TF's words; they come as a scalar or a vector and may be negative."""
    values = axes.tolist()
    if values.__class__ is not list:
        values = [values]
    elif axes.ndim > 1:
        values = np.ravel(axes).tolist()
    rank = x.ndim
    result = []
    for axis in values:
        if not -rank <= axis < rank:
            raise InvalidArgumentError(f"Invalid reduction dimension ({axis} for input with {rank} dimension(s)")
        if axis < 0:
            axis += rank
        if axis in result:
            raise InvalidArgumentError(f"Invalid reduction arguments: Axes contains duplicate dimension: {axis}")
        result.append(axis)
    return tuple(result)


def reduction_shape(c: Any) -> Dims:
    dims, keep = c.dims(0), c.attrs["keep_dims"]
    index_dims = c.dims(1)
    if index_dims is not None and len(index_dims) > 1:
        raise ValueError(f"Shape must be at most rank 1 but is rank {len(index_dims)}")
    axes = c.const(1)
    if dims is None:
        return None
    rank = len(dims)
    if axes is None:
        if keep:
            return (None,) * rank
        if index_dims == () and rank:
            return (None,) * (rank - 1)
        return None
    chosen = set()
    for axis in np.ravel(axes).tolist():
        if not -rank <= axis < rank:
            raise ValueError(f"Invalid reduction dimension {axis} for input with {rank} dimensions.")
        chosen.add(axis % rank)
    if keep:
        return tuple(1 if i in chosen else d for i, d in enumerate(dims))
    return tuple(d for i, d in enumerate(dims) if i not in chosen)


# -- gradients --------------------------------------------------------------------------------------------------------


def _known_axes(op: Any) -> tuple[int, ...] | None:
    """The reduced axes if they and the input's rank are known while building."""
    from penstock.graph.constant import known_value

    dims = op.inputs[0].dims
    axes = known_value(op.inputs[1])
    if dims is None or axes is None:
        return None
    return tuple(a % len(dims) for a in np.ravel(axes).tolist()) if dims else ()


def kept_shape(g: Any, op: Any) -> tuple[Any, Any]:
    """(shape of the input, shape of the output as if its axes had been kept), as tensors or constants."""
    x = op.inputs[0]
    axes = _known_axes(op)
    if axes is not None and None not in x.dims:
        kept = [1 if i in axes else d for i, d in enumerate(x.dims)]
        return np.array(x.dims, dtype=np.int32), np.array(kept, dtype=np.int32)
    shape = g.Shape(x)
    if axes is not None:
        # The rank is known: multiply the reduced sizes away without a scatter.
        mask = np.array([i in axes for i in range(len(x.dims))])
        return shape, g.SelectV2(mask, g.OnesLike(shape), shape)
    rank = g.Size(shape)
    wrapped = g.Reshape(g.FloorMod(g.AddV2(_int32(g, op.inputs[1]), rank), rank), np.array([-1], dtype=np.int32))
    every = g.Range(np.int32(0), rank, np.int32(1))
    kept = g.DynamicStitch([every, wrapped], [shape, g.OnesLike(wrapped)])
    return shape, kept


def _int32(g: Any, axes: Any) -> Any:
    return axes if axes.dtype.base_dtype is dtypes.int32 else g.Cast(axes, DstT=dtypes.int32)


def spread(g: Any, op: Any, dy: Any) -> Any:
    """`dy` repeated along the reduced axes, back to the input's shape."""
    shape, kept = kept_shape(g, op)
    if not op.attr("keep_dims"):
        dy = g.Reshape(dy, kept)
    return g.BroadcastTo(dy, shape)


def sum_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    return [spread(g, op, dy), None]


def mean_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    x, y = op.inputs[0], op.outputs[0]
    total = spread(g, op, dy)
    if x.dims is not None and y.dims is not None and None not in x.dims and None not in y.dims:
        factor = int(np.prod(x.dims)) // max(int(np.prod(y.dims)), 1)
        return [g.RealDiv(total, g.const(factor, dy.dtype)), None]
    factor = g.FloorDiv(g.Prod(g.Shape(x), np.array([0], np.int32)), g.Maximum(g.Prod(g.Shape(y), np.array([0], np.int32)), 1))
    return [g.RealDiv(total, g.Cast(factor, DstT=dy.dtype.base_dtype)), None]


def extreme_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    """Equal shares for all elements that hold the extreme."""
    x, y = op.inputs[0], op.outputs[0]
    if not op.attr("keep_dims"):
        _, kept = kept_shape(g, op)
        y, dy = g.Reshape(y, kept), g.Reshape(dy, kept)
    holds = g.Cast(g.Equal(y, x), DstT=dy.dtype.base_dtype)
    count = g.Reshape(g.Sum(holds, op.inputs[1]), g.Shape(y))
    return [g.Mul(g.RealDiv(holds, count), dy), None]


def prod_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    """dy times the product of all other elements, without a division (an element may be 0)."""
    x = op.inputs[0]
    shape, kept = kept_shape(g, op)
    if not op.attr("keep_dims"):
        dy = g.Reshape(dy, kept)
    dy = g.BroadcastTo(dy, shape)
    # Bring the reduced axes to the front and flatten: two cumulative products give the others' product.
    axes = g.Reshape(_int32(g, op.inputs[1]), np.array([-1], np.int32))
    rank = g.Rank(x)
    axes = g.FloorMod(g.AddV2(axes, rank), rank)
    every = g.Range(np.int32(0), rank, np.int32(1))
    others = g.ListDiff(every, axes)[0]
    order = g.ConcatV2([axes, others], np.int32(0))
    shape_t = g.Shape(x)
    reduced = g.Prod(g.GatherV2(shape_t, axes, np.int32(0)), np.array([0], np.int32))
    rest = g.Prod(g.GatherV2(shape_t, others, np.int32(0)), np.array([0], np.int32))
    permuted = g.Transpose(x, order)
    flat = g.Reshape(permuted, g.Pack([reduced, rest]))
    left = g.Cumprod(flat, np.int32(0), exclusive=True)
    right = g.Cumprod(flat, np.int32(0), exclusive=True, reverse=True)
    product = g.Reshape(g.Mul(conj(g, left), conj(g, right)), g.Shape(permuted))
    return [g.Reshape(g.Mul(dy, g.Transpose(product, g.InvertPermutation(order))), shape_t), None]


def euclidean_norm_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    x, y = op.inputs[0], op.outputs[0]
    if not op.attr("keep_dims"):
        _, kept = kept_shape(g, op)
        y, dy = g.Reshape(y, kept), g.Reshape(dy, kept)
    return [g.Mul(x, g.RealDiv(dy, y)), None]


# -- kernels ----------------------------------------------------------------------------------------------------------


def sum_kernel(x: Any, axes: Any, *, keep_dims: bool) -> Any:
    axis = axes_tuple(x, axes)
    if not axis:
        return x.copy()  # nothing is added up: -0.0 stays, where a sum from 0 would lose its sign
    if x.dtype in NARROW:
        return narrow(np.asarray(sum_kernel(widen(x), axes, keep_dims=keep_dims)), x.dtype)
    total = reduce_short_rows(np.add, x, axis, keep_dims)
    return np.add.reduce(x, axis=axis, dtype=x.dtype, keepdims=keep_dims) if total is None else total


def prod_kernel(x: Any, axes: Any, *, keep_dims: bool) -> Any:
    if x.dtype in NARROW:
        return narrow(np.asarray(prod_kernel(widen(x), axes, keep_dims=keep_dims)), x.dtype)
    axis = axes_tuple(x, axes)
    found = reduce_short_rows(np.multiply, x, axis, keep_dims)
    if found is None:
        found = reduce_rows(np.multiply, x, axis, keep_dims)
    return np.multiply.reduce(x, axis=axis, dtype=x.dtype, keepdims=keep_dims) if found is None else found


def mean_kernel(x: Any, axes: Any, *, keep_dims: bool) -> Any:
    axis = axes_tuple(x, axes)
    if not axis:
        return x.copy()
    count = 1
    for a in axis:
        count *= x.shape[a]
    kind = x.dtype.kind
    if count == 0 and kind in "iuc":  # the mean of nothing is NaN for real floats only
        return np.zeros(np.add.reduce(x, axis=axis, keepdims=keep_dims).shape, dtype=x.dtype)
    if kind in "iu":
        total = _wide_sum(x, axis, keep_dims) if x.dtype == np.int32 else None
        if total is None:
            total = np.add.reduce(x, axis=axis, dtype=np.int64 if kind == "i" else np.uint64, keepdims=keep_dims)
        # Whole-number means are rounded towards zero.
        mean = total // count
        if kind == "i":
            mean = mean + ((mean < 0) & (mean * count != total))
        return mean.astype(x.dtype)
    if x.dtype in NARROW:
        return narrow(np.asarray(mean_kernel(widen(x), axes, keep_dims=keep_dims)), x.dtype)
    total: Any = reduce_short_rows(np.add, x, axis, keep_dims)
    if total is None:
        total = np.add.reduce(x, axis=axis, dtype=x.dtype, keepdims=keep_dims)
    return np.true_divide(total, total.dtype.type(count))


def _wide_sum(x: np.ndarray, axis: tuple[int, ...], keep_dims: bool) -> np.ndarray | None:
    """Of int32 over the last axes, or all of them, as int64; NumPy makes all numbers 64 bits wide first."""
    if len(axis) < x.ndim or not x.flags.c_contiguous:
        return fold_rows(np.add, x, axis, keep_dims, wide=True)
    flat, whole = x.reshape(-1), x.size // _PART * _PART
    parts = fold_rows(np.add, flat[:whole].reshape(-1, _PART), (1,), False, wide=True)
    if parts is None:
        return None
    total = np.add.reduce(parts) + np.add.reduce(flat[whole:], dtype=np.int64)
    return np.reshape(total, (1,) * x.ndim if keep_dims else ())


_PART = 512
"""Numbers of a row, where there are none."""


def _extreme(ufunc: Any, of_nothing: Any) -> Any:
    def kernel(x: Any, axes: Any, *, keep_dims: bool) -> Any:
        axis = axes_tuple(x, axes)
        if x.size == 0 and 0 in [x.shape[a] for a in axis]:
            return np.full(np.add.reduce(x, axis=axis, keepdims=keep_dims).shape, of_nothing(x.dtype), dtype=x.dtype)
        found = reduce_short_rows(ufunc, x, axis, keep_dims)
        return ufunc.reduce(x, axis=axis, keepdims=keep_dims) if found is None else found

    return kernel


def _smallest(dtype: Any) -> Any:
    return lowest(dtype) if dtype.kind in "iu" else float("-inf")


def _largest(dtype: Any) -> Any:
    return np.iinfo(dtype).max if dtype.kind in "iu" else float("inf")


def all_kernel(x: Any, axes: Any, *, keep_dims: bool) -> Any:
    return np.logical_and.reduce(x, axis=axes_tuple(x, axes), keepdims=keep_dims)


def any_kernel(x: Any, axes: Any, *, keep_dims: bool) -> Any:
    return np.logical_or.reduce(x, axis=axes_tuple(x, axes), keepdims=keep_dims)


def euclidean_norm_kernel(x: Any, axes: Any, *, keep_dims: bool) -> Any:
    wide = widen(x)
    square = (wide * np.conj(wide)) if wide.dtype.kind == "c" else np.square(wide)
    total = np.add.reduce(square, axis=axes_tuple(x, axes), dtype=wide.dtype, keepdims=keep_dims)
    return np.sqrt(total).astype(x.dtype)


# -- declarations -----------------------------------------------------------------------------------------------------

TAIL = "Tidx: type in INDEX = int32]"
SAMPLES = [
    dict(input=normal(2, 3), reduction_indices=[0]), dict(input=normal(2, 3, 2), reduction_indices=[-1, 0], keep_dims=True),
    dict(input=normal(2, 3), reduction_indices=[]), dict(input=normal(2, 3), reduction_indices=1), dict(input=empty(0, 3), reduction_indices=[0]),
    dict(input=empty(0, 3), reduction_indices=[1]), dict(input=normal(), reduction_indices=[]), dict(input=normal(4), reduction_indices=arr([0], dtype=np.int64)),
]  # fmt: skip
WHOLE = [dict(input=ints(3, 4, lo=1, hi=4), reduction_indices=[1])]
WITH_NAN = [dict(input=arr([[1, NAN, 3], [NAN, 1, 2]], dtype=np.float32), reduction_indices=[0])]
ERRORS = [
    (dict(input=normal(2, 3), reduction_indices=[2]), InvalidArgumentError, r"Invalid reduction dimension"),
    (dict(input=normal(2, 3), reduction_indices=[0, -2]), InvalidArgumentError, r"Invalid reduction arguments: Axes contains duplicate dimension: 0"),
]  # fmt: skip

op(f"Sum(input: T, reduction_indices: Tidx) -> (output: T) [keep_dims: bool = false; T: type in NUMBERS; {TAIL}",
   shape=reduction_shape, numpy=sum_kernel, grad=sum_grad, samples=SAMPLES + WITH_NAN, errors=ERRORS, host_memory=("reduction_indices",))
op(f"Prod(input: T, reduction_indices: Tidx) -> (output: T) [keep_dims: bool = false; T: type in NUMBERS; {TAIL}",
   shape=reduction_shape, numpy=prod_kernel, grad=prod_grad, samples=SAMPLES + WHOLE, errors=ERRORS, host_memory=("reduction_indices",))
op(f"Mean(input: T, reduction_indices: Tidx) -> (output: T) [keep_dims: bool = false; T: type in NUMBERS; {TAIL}",
   shape=reduction_shape, numpy=mean_kernel, grad=mean_grad, samples=SAMPLES + WHOLE, errors=ERRORS, host_memory=("reduction_indices",))
op(f"Max(input: T, reduction_indices: Tidx) -> (output: T) [keep_dims: bool = false; T: type in REALS|QUANTIZED; {TAIL}",
   shape=reduction_shape, numpy=_extreme(np.maximum, _smallest), grad=extreme_grad, samples=SAMPLES + WHOLE + WITH_NAN, errors=ERRORS,
   host_memory=("reduction_indices",))
op(f"Min(input: T, reduction_indices: Tidx) -> (output: T) [keep_dims: bool = false; T: type in REALS|QUANTIZED; {TAIL}",
   shape=reduction_shape, numpy=_extreme(np.minimum, _largest), grad=extreme_grad, samples=SAMPLES + WHOLE + WITH_NAN, errors=ERRORS,
   host_memory=("reduction_indices",))
op(f"EuclideanNorm(input: T, reduction_indices: Tidx) -> (output: T) [keep_dims: bool = false; T: type in NUMBERS; {TAIL}",
   shape=reduction_shape, numpy=euclidean_norm_kernel, grad=euclidean_norm_grad, samples=SAMPLES + WHOLE, errors=ERRORS,
   host_memory=("reduction_indices",))

TRUTHS = [dict(input=bools(2, 3), reduction_indices=[0]), dict(input=bools(2, 3), reduction_indices=[0, 1], keep_dims=True),
          dict(input=bools(0, 3), reduction_indices=[0]), dict(input=bools(2), reduction_indices=[])]  # fmt: skip
op(f"All(input: bool, reduction_indices: Tidx) -> (output: bool) [keep_dims: bool = false; {TAIL}",
   shape=reduction_shape, numpy=all_kernel, grad=NOT_DIFFERENTIABLE, samples=TRUTHS, host_memory=("reduction_indices",))
op(f"Any(input: bool, reduction_indices: Tidx) -> (output: bool) [keep_dims: bool = false; {TAIL}",
   shape=reduction_shape, numpy=any_kernel, grad=NOT_DIFFERENTIABLE, samples=TRUTHS, host_memory=("reduction_indices",))

# -- positions of extremes --------------------------------------------------------------------------------------------


def _position(function: Any) -> Any:
    def kernel(x: Any, dimension: Any, *, output_type: DType) -> Any:
        if dimension.ndim:
            raise InvalidArgumentError(f"dim must be a scalar, but received tensor of shape: {format_dims(dimension.shape)}")
        axis, rank = int(dimension), x.ndim
        if not -rank <= axis < rank:
            raise InvalidArgumentError(f"Expected dimension in the range [{-rank}, {rank}), but got {axis}")
        if x.shape[axis] == 0:
            raise InvalidArgumentError(f"Reduction axis {axis % rank} is empty in shape {format_dims(x.shape)}")
        return function(x, axis).astype(output_type.np)

    return kernel


def _arg_extreme(function: Any, worst: float) -> Any:
    """NaNs never win in TF; a slice of nothing but NaNs gives 0."""

    def without_nans(x: Any, axis: int) -> Any:
        if x.dtype.kind not in "iub" and np.count_nonzero(np.isnan(x)):
            x = np.where(np.isnan(x), x.dtype.type(worst), x)
        return function(x, axis)

    def position(x: Any, axis: int) -> Any:
        is_float = x.dtype.kind not in "iub"
        if x.ndim < 2 or x.size < MANY or (is_float and x.dtype not in NAN_WINS):
            return without_nans(x, axis)
        x = transposes.in_order(np.moveaxis(x, axis, -1))
        rows = x.reshape(-1, x.shape[-1])
        found = np.empty(len(rows), np.intp)
        share_out(len(rows), x.shape[-1], lambda start, end: function(rows[start:end], -1, found[start:end]))
        if is_float and np.isnan(rows[np.arange(len(rows)), found]).any():
            return without_nans(x, -1)
        return found.reshape(x.shape[:-1])

    return position


MANY = 1 << 13
"""Elements from which on it pays to bring them into order, and to take them on several threads."""
NAN_WINS = (np.dtype(np.float32), np.dtype(np.float64))
"""Types for which NumPy gives the place of a NaN, if there is one."""


def arg_shape(c: Any) -> Dims:
    dims = c.dims(0)
    axis = c.const(1)
    index_dims = c.dims(1)
    if index_dims is not None and index_dims != ():
        raise ValueError(f"Shape must be rank 0 but is rank {len(index_dims)}")
    if dims is None:
        return None
    rank = len(dims)
    if rank <= 1 and (axis is None or rank == 0):
        return ()
    if axis is None:
        return (None,) * (rank - 1)
    a = int(axis)
    if not -rank <= a < rank:
        raise ValueError(f"Dimension ({a}) must be in the range [{-rank}, {rank}), where {rank} is the number of dimensions in the input.")
    a %= rank
    return dims[:a] + dims[a + 1 :]


POSITIONS = [dict(input=ints(3, 4), dimension=1), dict(input=ints(3, 4), dimension=0, output_type=dtypes.int32), dict(input=ints(2, 3, 4), dimension=-2),
             dict(input=empty(0, 2), dimension=1), dict(input=uniform(5, 6), dimension=arr(1, dtype=np.int64)),
             dict(input=arr([[NAN, 1, 3], [2, NAN, 1]], dtype=np.float32), dimension=1), dict(input=bools(3, 2), dimension=1)]  # fmt: skip
POSITION_ERRORS = [(dict(input=normal(2, 3), dimension=2), InvalidArgumentError, r"must be in the range \[-2, 2\)|Expected dimension in the range"),
                   (dict(input=empty(2, 0), dimension=1), InvalidArgumentError, r"Reduction axis 1 is empty in shape \[2,0\]")]  # fmt: skip
ARG_TYPES = "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8, quint8, qint32, qint16, quint16, bool}"

op(f"ArgMax(input: T, dimension: Tidx) -> (output: output_type) [{ARG_TYPES}; Tidx: type in {{int16, int32, int64}} = int32;"
   " output_type: type in {int16, uint16, int32, int64} = int64]",
   shape=arg_shape, numpy=_position(_arg_extreme(np.ndarray.argmax, float("-inf"))), grad=NOT_DIFFERENTIABLE, samples=POSITIONS, errors=POSITION_ERRORS,
   host_memory=("dimension",))
op(f"ArgMin(input: T, dimension: Tidx) -> (output: output_type) [{ARG_TYPES}; Tidx: type in INDEX = int32; output_type: type in INDEX = int64]",
   shape=arg_shape, numpy=_position(_arg_extreme(np.ndarray.argmin, float("inf"))), grad=NOT_DIFFERENTIABLE, samples=POSITIONS, errors=POSITION_ERRORS,
   host_memory=("dimension",))
