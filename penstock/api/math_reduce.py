"""Reductions, scans, sequences and norms of the public API (tf.reduce_sum, tf.argmax, tf.cumsum, tf.range, tf.norm, ...)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api import math_ops
from penstock.api.array_ops import one_of, rank, shape, squeeze
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.graph.composite import SparseTensor
from penstock.graph.constant import constant
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

# -- reductions -------------------------------------------------------------------------------------------------------


def _axes(x: Any, axis: Any) -> Any:
    """The axes to reduce: those given, or all of them, as a constant if the rank is known (and, as in TF, not 0)."""
    if axis is not None:
        return axis
    if isinstance(x, Tensor) and x.dims:
        return constant(np.arange(len(x.dims), dtype=np.int32))
    return range_(0, rank(x))


def _collapsed(x: Tensor, axis: Any, result: Tensor) -> Tensor:
    """A reduction over all axes is a scalar, even where the rank is unknown."""
    if axis is None and result.dims is None and not result.op.attrs.get("keep_dims"):
        result.set_shape(())
    return result


def _reduction(op_type: str, name: str, doc: str) -> Callable[..., Tensor]:
    def function(
        input_tensor: Any, axis: Any = None, keepdims: bool | None = None, name: str | None = None, reduction_indices: Any = None,
        keep_dims: bool | None = None,
    ) -> Tensor:  # fmt: skip
        axis = one_of(axis, reduction_indices, "axis", "reduction_indices")
        keepdims = one_of(keepdims, keep_dims, "keepdims", "keep_dims")
        return reduce_node(op_type, input_tensor, axis, bool(keepdims), name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{doc}

    `axis` is a number, a list or None for all axes; `keepdims` keeps them with size 1. `reduction_indices` and `keep_dims`
    are their old names.
    """
    return export(name, f"math.{name}")(function)


def reduce_node(op_type: str, x: Any, axis: Any, keepdims: bool, name: str | None = None) -> Tensor:
    """One reduction op, with TF's handling of `axis=None`."""
    x = convert_to_tensor(x, name="input_tensor") if not isinstance(x, Tensor) else x
    return _collapsed(x, axis, getattr(raw, op_type)(x, _axes(x, axis), keep_dims=keepdims, name=name))


reduce_sum = _reduction("Sum", "reduce_sum", "The sum over `axis`.")
reduce_mean = _reduction("Mean", "reduce_mean", "The mean over `axis`; for integers rounded towards zero, for no elements NaN.")
reduce_prod = _reduction("Prod", "reduce_prod", "The product over `axis`.")
reduce_max = _reduction("Max", "reduce_max", "The largest element over `axis`.")
reduce_min = _reduction("Min", "reduce_min", "The smallest element over `axis`.")
reduce_all = _reduction("All", "reduce_all", "Whether all elements over `axis` are True.")
reduce_any = _reduction("Any", "reduce_any", "Whether any element over `axis` is True.")


@export("math.reduce_euclidean_norm")
def reduce_euclidean_norm(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The square root of the sum of squares over `axis`."""
    return reduce_node("EuclideanNorm", input_tensor, axis, bool(keepdims), name)


@export("math.reduce_variance")
def reduce_variance(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The (population) variance over `axis`."""
    with name_scope(name or "reduce_variance"):
        x = convert_to_tensor(input_tensor)
        mean = reduce_node("Mean", x, axis, True)
        if mean.dtype.is_integer:
            raise TypeError(f"Input must be either real or complex. Received integer type {mean.dtype!r}.")
        difference = x - mean  # type: ignore[operator]
        if difference.dtype.is_complex:
            squares = math_ops.real(raw.Mul(math_ops.conj(difference), difference))
        else:
            squares = raw.Square(difference)
        return reduce_node("Mean", squares, axis, bool(keepdims))


@export("math.reduce_std")
def reduce_std(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The (population) standard deviation over `axis`."""
    with name_scope(name or "reduce_std"):
        return raw.Sqrt(reduce_variance(convert_to_tensor(input_tensor), axis=axis, keepdims=keepdims))


@export("reduce_logsumexp", "math.reduce_logsumexp")
def reduce_logsumexp(
    input_tensor: Any, axis: Any = None, keepdims: bool | None = None, name: str | None = None, reduction_indices: Any = None, keep_dims: bool | None = None
) -> Tensor:
    """log(sum(exp(x))) over `axis`, without overflow."""
    axis = one_of(axis, reduction_indices, "axis", "reduction_indices")
    keepdims = one_of(keepdims, keep_dims, "keepdims", "keep_dims")
    with name_scope(name, "ReduceLogSumExp", [input_tensor]) as scope:
        x = convert_to_tensor(input_tensor)
        largest = reduce_node("Max", x, axis, True)
        # Infinite maxima would make inf - inf; 0 is as good a shift there.
        shift = raw.StopGradient(raw.SelectV2(raw.IsFinite(largest), largest, 0))
        result = raw.Log(reduce_node("Sum", raw.Exp(raw.Sub(x, shift)), axis, bool(keepdims)))
        if not keepdims:
            shift = raw.Reshape(shift, raw.Shape(result))
        return math_ops.add(result, shift, name=scope)


@export("count_nonzero", "math.count_nonzero")
def count_nonzero(
    input_tensor: Any = None, axis: Any = None, keepdims: bool | None = None, dtype: Any = dtypes.int64, name: str | None = None,
    reduction_indices: Any = None, keep_dims: bool | None = None, input: Any = None,
) -> Tensor:  # fmt: skip
    """How many elements are not 0 (for strings: not empty) over `axis`."""
    input_tensor = one_of(input_tensor, input, "input_tensor", "input")
    axis = one_of(axis, reduction_indices, "axis", "reduction_indices")
    keepdims = bool(one_of(keepdims, keep_dims, "keepdims", "keep_dims"))
    with name_scope(name, "count_nonzero", [input_tensor]):
        if isinstance(input_tensor, SparseTensor):
            if axis is not None or keepdims:
                raise ValueError(f"Argument `axis` and `keepdims` are not supported for sparse tensors. Received axis={axis}, keepdims={keepdims}.")
            input_tensor = input_tensor.values
        x = convert_to_tensor(input_tensor, name="input")
        zero = constant({dtypes.string: "", dtypes.bool: False}.get(x.dtype.base_dtype, 0), dtype=x.dtype.base_dtype, name="zeros")
        ones = raw.Cast(raw.NotEqual(x, zero), DstT=dtypes.int64)
        return math_ops.cast(reduce_node("Sum", ones, axis, keepdims), dtype)


# -- positions --------------------------------------------------------------------------------------------------------


def _position(op_type: str, name: str, doc: str) -> Callable[..., Tensor]:
    def function(input: Any, axis: Any = None, name: str | None = None, dimension: Any = None, output_type: Any = dtypes.int64) -> Tensor:
        axis = one_of(axis, dimension, "axis", "dimension")
        return getattr(raw, op_type)(input, 0 if axis is None else axis, output_type=output_type, name=name)

    def old(input: Any, dimension: Any, output_type: Any = dtypes.int64, name: str | None = None) -> Tensor:
        return getattr(raw, op_type)(input, dimension, output_type=output_type, name=name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    old_name = name.replace("arg", "arg_")
    old.__name__ = old.__qualname__ = old_name
    old.__doc__ = f"Deprecated: `tf.{name}`."
    export(old_name)(old)
    return export(name, f"math.{name}")(function)


argmax = _position("ArgMax", "argmax", "The index of the largest element along `axis` (0); of several equal ones the first.")
argmin = _position("ArgMin", "argmin", "The index of the smallest element along `axis` (0); of several equal ones the first.")

# -- scans ------------------------------------------------------------------------------------------------------------


@export("cumsum", "math.cumsum")
def cumsum(x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None) -> Tensor:
    """The running sum along `axis`; `exclusive` leaves each element out of its own sum, `reverse` starts at the end."""
    with name_scope(name, "Cumsum", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return raw.Cumsum(x, axis, exclusive=exclusive, reverse=reverse, name=scope)


@export("cumprod", "math.cumprod")
def cumprod(x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None) -> Tensor:
    """The running product along `axis`; see `tf.cumsum`."""
    with name_scope(name, "Cumprod", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return raw.Cumprod(x, axis, exclusive=exclusive, reverse=reverse, name=scope)


@export("math.cumulative_logsumexp")
def cumulative_logsumexp(x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None) -> Tensor:
    """The running log(sum(exp(x))) along `axis`; see `tf.cumsum`."""
    with name_scope(name, "CumulativeLogsumexp", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return raw.CumulativeLogsumexp(x, axis, exclusive=exclusive, reverse=reverse, name=scope)


# -- sequences --------------------------------------------------------------------------------------------------------

_RANGE_ORDER = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)


@export("range")
def range_(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range") -> Tensor:
    """The numbers start, start + delta, ... below `limit`; `tf.range(n)` counts from 0.

    Without `dtype` the widest of the arguments' types is taken.
    """
    if limit is None:
        start, limit = 0, start
    with name_scope(name, "Range", [start, limit, delta]) as scope:
        want = None if dtype is None else dtypes.as_dtype(dtype)
        values = [
            v if isinstance(v, Tensor) else convert_to_tensor(v, dtype=want, name=n)
            for v, n in zip((start, limit, delta), ("start", "limit", "delta"), strict=True)
        ]
        if want is None:
            types = [v.dtype.base_dtype for v in values]
            if all(t in _RANGE_ORDER for t in types):
                want = max(types, key=_RANGE_ORDER.index)
            else:
                want = types[0]
        return raw.Range(*(math_ops.cast(v, want) for v in values), name=scope)


range_.__name__ = range_.__qualname__ = "range"


@export("linspace", "lin_space")
def linspace(start: Any, stop: Any, num: Any, name: str | None = None, axis: Any = 0) -> Tensor:
    """`num` evenly spaced numbers from `start` to `stop`, both included; for tensors, along a new `axis`."""
    with name_scope(name, "linspace", [start, stop]) as scope:
        start = convert_to_tensor(start, name="start")
        stop = convert_to_tensor(stop, name="stop", dtype=start.dtype.base_dtype)
        num = convert_to_tensor(num, name="num")
        if num.dtype.base_dtype not in dtypes.INDEX:
            num = math_ops.cast(num, dtypes.int32)
        if start.dims == () and stop.dims == () and start.dtype.is_floating:
            return raw.LinSpace(start, stop, num, name=scope)
        return _spaced(start, stop, num, axis)


def _spaced(start: Tensor, stop: Tensor, num: Tensor, axis: Any) -> Tensor:
    """Evenly spaced tensors; the last is `stop` itself, whatever rounding says."""
    common = raw.BroadcastArgs(shape(start), shape(stop))
    start = raw.ExpandDims(raw.BroadcastTo(start, common), axis)
    stop = raw.ExpandDims(raw.BroadcastTo(stop, common), axis)
    count = math_ops.cast(num, dtypes.int32)
    steps = raw.Maximum(count - 1, 1)  # type: ignore[operator]
    wide = start.dtype.base_dtype if start.dtype.is_floating or start.dtype.is_complex else dtypes.float64
    first, last = math_ops.cast(start, wide), math_ops.cast(stop, wide)
    delta = (last - first) / math_ops.cast(steps, wide)  # type: ignore[operator]
    axes = raw.Range(0, rank(first), 1)
    where = math_ops.cast(raw.FloorMod(convert_to_tensor(axis, dtypes.int32), rank(first)), dtypes.int32)
    counter_shape = raw.SelectV2(raw.Equal(axes, where), -1, 1)
    inner = raw.Reshape(math_ops.cast(raw.Range(1, raw.Maximum(steps, 1), 1), wide), counter_shape)
    middle = math_ops.cast(first + delta * inner, start.dtype.base_dtype)
    every = raw.ConcatV2([start, middle, stop], where)
    # One number alone is `start`.
    wanted = raw.SelectV2(raw.Equal(axes, where), count, shape(every))
    return raw.Slice(every, raw.ZerosLike(wanted), wanted)


# -- norms ------------------------------------------------------------------------------------------------------------


@export("norm", "linalg.norm")
def norm(tensor: Any, ord: Any = "euclidean", axis: Any = None, keepdims: bool | None = None, name: str | None = None, keep_dims: bool | None = None) -> Tensor:
    """Norms of vectors (`axis` None or a number) and matrices (`axis` a pair).

    `ord` is "euclidean", "fro", 1, 2, np.inf or another positive number for vectors; "euclidean", "fro", 1, 2 or np.inf for
    matrices.
    """
    keepdims = bool(one_of(keepdims, keep_dims, "keepdims", "keep_dims"))
    is_matrix = isinstance(axis, (list, tuple)) and len(axis) == 2
    if is_matrix:
        axis = tuple(axis)
        if not all(isinstance(a, (int, np.integer)) for a in axis) or axis[0] == axis[1]:
            raise ValueError(f"'axis' must be None, an integer, or a tuple of 2 unique integers, got {axis}")
        if ord not in ["euclidean", "fro", 1, 2, np.inf]:
            raise ValueError(f"'ord' must be a supported matrix norm in {['euclidean', 'fro', 1, 2, np.inf]}, got {ord}")
    else:
        if not (axis is None or isinstance(axis, (int, np.integer))):
            raise ValueError(f"'axis' must be None, an integer, or a tuple of 2 unique integers, got {axis}")
        if isinstance(ord, str):
            if ord != "euclidean":
                raise ValueError(f"'ord' must be a supported vector norm, got {ord}")
        elif not np.isreal(ord) or ord <= 0:
            raise ValueError(f"'ord' must be a supported vector norm, got {ord}")
        if axis is not None:
            axis = (int(axis),)
    with name_scope(name, "norm", [tensor]):
        x = convert_to_tensor(tensor)
        result = _matrix_norm(x, axis) if is_matrix and ord == 2 else _norm(x, ord, axis, is_matrix)
        return result if keepdims else squeeze(result, axis)


def _norm(x: Tensor, ord: Any, axis: Any, is_matrix: bool) -> Tensor:
    """The norm with its axes kept."""
    if ord in ("fro", "euclidean", 2, 2.0):
        return raw.Sqrt(reduce_node("Sum", x * math_ops.conj(x), axis, True))  # type: ignore[operator]
    magnitude = math_ops.abs(x)
    if ord == 1:
        total = reduce_node("Sum", magnitude, axis if not is_matrix else axis[0], True)
        return reduce_node("Max", total, axis[-1], True) if is_matrix else total
    if ord == np.inf:
        if not is_matrix:
            return reduce_node("Max", magnitude, axis, True)
        return reduce_node("Max", reduce_node("Sum", magnitude, axis[1], True), axis[0], True)
    return math_ops.pow(reduce_node("Sum", math_ops.pow(magnitude, ord), axis, True), 1.0 / ord)


def _matrix_norm(x: Tensor, axis: Any) -> Tensor:
    """The largest singular value, over any two axes."""
    from penstock.api.array_ops import transpose
    from penstock.api.linalg_solve import svd

    if x.dims is None:
        r = rank(x)
        axes = raw.FloorMod(convert_to_tensor(list(axis), dtypes.int32) + r, r)  # type: ignore[operator]
        order = raw.ConcatV2([raw.ListDiff(raw.Range(0, r, 1), axes).out, axes], 0)
        back = raw.InvertPermutation(order)
    else:
        n = len(x.dims)
        last = [a % n for a in axis]
        order = [i for i in range(n) if i not in last] + last
        back = np.argsort(order).astype(np.int32)
    largest = reduce_node("Max", svd(transpose(x, order), compute_uv=False), -1, True)
    return transpose(raw.ExpandDims(largest, -1), back)


@export("linalg.normalize")
def normalize(tensor: Any, ord: Any = "euclidean", axis: Any = None, name: str | None = None) -> tuple[Tensor, Tensor]:
    """(tensor / norm, norm), where the norm keeps its axes."""
    with name_scope(name, "normalize", [tensor]):
        x = convert_to_tensor(tensor)
        length = norm(x, ord, axis, keepdims=True)
        length = math_ops.cast(length, x.dtype)
        return x / length, length  # type: ignore[operator]


@export("global_norm", "linalg.global_norm")
def global_norm(t_list: Any, name: str | None = None) -> Tensor:
    """The Euclidean norm of several tensors together; None entries are left out."""
    from penstock.graph.composite import IndexedSlices

    if not isinstance(t_list, (list, tuple)):
        raise TypeError(f"`t_list` should be a sequence of tensors. Received {type(t_list)}.")
    values = [
        t.values if isinstance(t, IndexedSlices) else convert_to_tensor(t, name=f"t_{i}") for i, t in enumerate(t_list) if t is not None
    ]
    with name_scope(name, "global_norm", values):
        halves = [raw.L2Loss(v) for v in values]
        total = reduce_node("Sum", raw.Pack(halves, name="stack"), None, False)
        return raw.Sqrt(raw.Mul(total, constant(2.0, dtype=total.dtype.base_dtype)), name="global_norm")
