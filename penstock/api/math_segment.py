"""Segments, bins and histograms of the public API (tf.segment_sum, tf.bincount, tf.histogram_fixed_width, ...)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import dtypes
from penstock.api import math_ops
from penstock.api.array_ops import rank, reshape, shape, size
from penstock.api.clip_ops import clip_by_value
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.api.math_reduce import reduce_node
from penstock.graph.constant import constant
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

# -- segments ---------------------------------------------------------------------------------------------------------


def _sorted(op_type: str, name: str, what: str) -> Callable[..., Tensor]:
    def function(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
        return getattr(raw, op_type)(data, segment_ids, name=name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{what} of the rows of `data` in each segment; `segment_ids` names each row's segment and must be sorted."
    return export(name, f"math.{name}")(function)


def _unsorted(op_type: str, name: str, what: str) -> Callable[..., Tensor]:
    def function(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
        return getattr(raw, op_type)(data, segment_ids, num_segments, name=name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{what} of the elements of `data` in each of `num_segments` segments; negative ids drop an element."
    return export(name, f"math.{name}")(function)


segment_sum = _sorted("SegmentSum", "segment_sum", "The sum")
segment_mean = _sorted("SegmentMean", "segment_mean", "The mean")
segment_prod = _sorted("SegmentProd", "segment_prod", "The product")
segment_min = _sorted("SegmentMin", "segment_min", "The minimum")
segment_max = _sorted("SegmentMax", "segment_max", "The maximum")
unsorted_segment_sum = _unsorted("UnsortedSegmentSum", "unsorted_segment_sum", "The sum")
unsorted_segment_prod = _unsorted("UnsortedSegmentProd", "unsorted_segment_prod", "The product")
unsorted_segment_min = _unsorted("UnsortedSegmentMin", "unsorted_segment_min", "The minimum")
unsorted_segment_max = _unsorted("UnsortedSegmentMax", "unsorted_segment_max", "The maximum")


def _segment_sizes(data: Tensor, segment_ids: Tensor, num_segments: Tensor) -> Tensor:
    """How many elements each segment has (at least 1), shaped to divide a segment sum."""
    ones = raw.Fill(shape(segment_ids), constant(1, dtype=data.dtype.base_dtype))
    counts = raw.UnsortedSegmentSum(ones, segment_ids, num_segments)
    extra = raw.Fill(raw.Reshape(rank(data) - rank(segment_ids), [1]), constant(1, dtype=dtypes.int32))  # type: ignore[operator]
    count_shape = raw.ConcatV2([raw.Reshape(math_ops.cast(num_segments, dtypes.int32), [1]), extra], 0)
    return raw.Maximum(raw.Reshape(counts, count_shape), constant(1, dtype=data.dtype.base_dtype))


@export("unsorted_segment_mean", "math.unsorted_segment_mean")
def unsorted_segment_mean(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
    """The mean of the elements of `data` in each segment; 0 for empty segments."""
    with name_scope(name, "UnsortedSegmentMean", [data]):
        data, segment_ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
        sizes = _segment_sizes(data, segment_ids, convert_to_tensor(num_segments))
        return raw.UnsortedSegmentSum(data, segment_ids, num_segments) / sizes


@export("unsorted_segment_sqrt_n", "math.unsorted_segment_sqrt_n")
def unsorted_segment_sqrt_n(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
    """The sum of the elements of `data` in each segment, divided by the square root of their number."""
    with name_scope(name, "UnsortedSegmentSqrtN", [data]):
        data, segment_ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
        sizes = _segment_sizes(data, segment_ids, convert_to_tensor(num_segments))
        return raw.UnsortedSegmentSum(data, segment_ids, num_segments) / raw.Sqrt(sizes)


def _sparse(kind: str, public: str, what: str) -> Callable[..., Tensor]:
    def function(
        data: Any, indices: Any, segment_ids: Any, name: str | None = None, num_segments: Any = None, sparse_gradient: bool = False
    ) -> Tensor:
        if num_segments is not None:
            op = getattr(raw, f"SparseSegment{kind}WithNumSegments")
            return op(data, indices, segment_ids, num_segments, sparse_gradient=sparse_gradient, name=name)
        return getattr(raw, f"SparseSegment{kind}")(data, indices, segment_ids, sparse_gradient=sparse_gradient, name=name)

    function.__name__ = function.__qualname__ = public
    function.__doc__ = f"""{what} of rows `data[indices]` in each segment; sorted `segment_ids` name the segment of each index.

    `num_segments` fixes the number of segments, so that empty ones at the end count too.
    """
    return export(public, f"sparse.{public.removeprefix('sparse_')}")(function)


sparse_segment_sum = _sparse("Sum", "sparse_segment_sum", "The sum")
sparse_segment_mean = _sparse("Mean", "sparse_segment_mean", "The mean")
sparse_segment_sqrt_n = _sparse("SqrtN", "sparse_segment_sqrt_n", "The sum, divided by the square root of their number,")

# -- bins -------------------------------------------------------------------------------------------------------------


@export("bincount", "math.bincount")
def bincount(arr: Any, weights: Any = None, minlength: Any = None, maxlength: Any = None, dtype: Any = dtypes.int32) -> Tensor:
    """How often each number 0, 1, 2, ... occurs in `arr` (or the sum of its `weights`).

    The result has `minlength` to `maxlength` entries; without `weights` it is of type `dtype`.
    """
    with name_scope(None, "bincount"):
        arr = convert_to_tensor(arr, name="arr", dtype=dtypes.int32 if not hasattr(arr, "dtype") else None)
        if arr.dtype.base_dtype not in dtypes.INDEX:
            arr = math_ops.cast(arr, dtypes.int32)
        kind = arr.dtype.base_dtype
        nonempty = math_ops.cast(size(arr) > 0, kind)  # type: ignore[operator]
        length = nonempty * (reduce_node("Max", arr, None, False) + 1)  # type: ignore[operator]
        if minlength is not None:
            length = raw.Maximum(convert_to_tensor(minlength, name="minlength", dtype=kind), length)
        if maxlength is not None:
            length = raw.Minimum(convert_to_tensor(maxlength, name="maxlength", dtype=kind), length)
        flat = reshape(arr, [-1])
        if weights is None:
            weights = constant([], dtype=dtypes.as_dtype(dtype))
        else:
            weights = reshape(convert_to_tensor(weights, name="weights"), [-1])
        return raw.DenseBincount(flat, length, weights)


@export("histogram_fixed_width")
def histogram_fixed_width(values: Any, value_range: Any, nbins: Any = 100, dtype: Any = dtypes.int32, name: str | None = None) -> Tensor:
    """How many `values` fall into each of `nbins` equal bins of [low, high); what lies outside goes to the end bins."""
    with name_scope(name, "histogram_fixed_width", [values, value_range, nbins]) as scope:
        return raw.HistogramFixedWidth(values, value_range, nbins, dtype=dtype, name=scope)


@export("histogram_fixed_width_bins")
def histogram_fixed_width_bins(values: Any, value_range: Any, nbins: Any = 100, dtype: Any = dtypes.int32, name: str | None = None) -> Tensor:
    """The bin of each value; see `tf.histogram_fixed_width`."""
    with name_scope(name, "histogram_fixed_width_bins", [values, value_range, nbins]):
        values = convert_to_tensor(values, name="values")
        original = shape(values)
        flat = reshape(values, [-1])
        value_range = convert_to_tensor(value_range, name="value_range", dtype=flat.dtype.base_dtype)
        nbins = convert_to_tensor(nbins, dtype=dtypes.int32, name="nbins")
        check = raw.Assert(nbins > 0, [constant(f"nbins {nbins} must > 0")])  # type: ignore[operator]
        with check.graph.control_dependencies([check]):
            count = raw.Identity(nbins)
        count = math_ops.cast(count, flat.dtype)
        scaled = math_ops.truediv(flat - value_range[0], value_range[1] - value_range[0], name="scaled_values")  # type: ignore[index,operator]
        if not scaled.dtype.is_floating or scaled.dtype.base_dtype is not count.dtype.base_dtype:
            count = math_ops.cast(count, scaled.dtype)
        bins = raw.Floor(count * scaled, name="indices")  # type: ignore[operator]
        clipped = clip_by_value(bins, constant(0, dtype=bins.dtype.base_dtype), count - 1)  # type: ignore[operator]
        return reshape(math_ops.cast(clipped, dtype), original)
