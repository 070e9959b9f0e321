"""Counting values: Bincount and its relatives, histograms, buckets."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.ops import native
from penstock.ops.declare import NOT_DIFFERENTIABLE, checked_scalar, op, same_as, with_rank
from penstock.ops.native import occurrences, ranks, searching
from penstock.ops.native.frames import share_out
from penstock.ops.samples import arr, empty, ints, normal, uniform
from penstock.shapes import Dims, format_dims

# -- bins -------------------------------------------------------------------------------------------------------------


MANY = 64
"""Weights from which on a loop in machine code is worth it."""


def counts(rows: Any, values: Any, weights: Any, shape: tuple[int, int], dtype: Any, binary: bool) -> np.ndarray:
    """A [rows, bins] table: the sum of weights (or the number) of each value in each row. Values past the end are dropped. A single row needs no `rows`."""
    if weights.size >= MANY and not binary and shape[0] == 1 and shape[1]:
        table = np.zeros(shape, dtype=dtype)
        if ranks.add_weights(table, values, weights):
            return table
    if values.size and int(values.max()) >= shape[1]:
        inside = values < shape[1]
        rows, values, weights = rows[inside] if shape[0] > 1 else rows, values[inside], weights[inside] if weights.size else weights
    places = values if shape[0] == 1 else rows * shape[1] + values
    if not binary and not weights.size:
        return _numbers_of(places, shape[0] * shape[1]).reshape(shape).astype(dtype)
    table = np.zeros(shape, dtype=dtype)
    if binary:
        table.reshape(-1)[places] = 1
    else:
        np.add.at(table.reshape(-1), places, weights)  # NumPy is quick for vectors only
    return table


def _numbers_of(places: np.ndarray, bins: int) -> np.ndarray:
    """As np.bincount(places, minlength=bins), for numbers below `bins`."""
    if places.dtype != np.int32 or not 0 < bins <= places.size // 8 or not native.available() or int(places.min()) < 0:
        return np.bincount(places, minlength=bins)
    places = np.ascontiguousarray(places)
    found: list[np.ndarray] = []
    share_out(places.size, WORK, lambda start, end: found.append(occurrences.counted(places[start:end], bins)))
    return np.add.reduce(found)


def bin_count(size: Any) -> int:
    if np.ndim(size):
        raise InvalidArgumentError(f"Shape must be rank 0 but is rank {np.ndim(size)}")
    n = int(size)
    if n < 0:
        raise InvalidArgumentError(f"size ({n}) must be non-negative")
    return n


def bincount_kernel(values: Any, size: Any, weights: Any) -> Any:
    n = bin_count(size)
    flat = np.ravel(values)
    if weights.size and weights.size != flat.size:
        raise InvalidArgumentError("Input indices and weights must have the same size.")
    if flat.size and flat.min() < 0:
        raise InvalidArgumentError("Input arr must be non-negative!")
    return counts(None, flat, np.ravel(weights), (1, n), weights.dtype, False)[0]


def _size_dim(c: Any, i: int) -> int | None:
    checked_scalar(c, i)
    size = c.const(i)
    if size is None:
        return None
    if int(size) < 0:
        raise ValueError(f"size ({int(size)}) must be non-negative")
    return int(size)


COUNTED = "T: type in {int32, int64, float, double}"

op(f"Bincount(arr: int32, size: int32, weights: T) -> (bins: T) [{COUNTED}]",
   shape=lambda c: (_size_dim(c, 1),), numpy=bincount_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(arr=ints(6, lo=0, hi=7), size=5, weights=empty(0)), dict(arr=ints(4, lo=0, hi=3), size=3, weights=ints(4)),
            dict(arr=ints(2, 3, lo=0, hi=3), size=0, weights=empty(0)), dict(arr=empty(0), size=2, weights=empty(0))],
   errors=[(dict(arr=[1, -2], size=3, weights=empty(0)), InvalidArgumentError, "Input arr must be non-negative!"),
           (dict(arr=[1, 2], size=-3, weights=empty(0)), InvalidArgumentError, r"size \(-3\) must be non-negative")])  # fmt: skip


def _check_bins(values: Any, weights: Any) -> None:
    if weights.size and weights.shape != values.shape:
        raise InvalidArgumentError(
            "`weights` must be the same shape as `arr` or a length-0 `Tensor`, in which case it acts as all weights equal to 1. "
            f"Received {format_dims(weights.shape)}"
        )
    if values.size and values.min() < 0:
        if values.ndim < 2:
            raise InvalidArgumentError("Input arr must be non-negative!")
        raise InvalidArgumentError(f"Input 'in' must be non-negative! Negative input value found: {values[values < 0].ravel()[0]}")


def dense_bincount_kernel(values: Any, size: Any, weights: Any, *, binary_output: bool) -> Any:
    n = bin_count(size)
    values = np.asarray(values)
    if values.ndim > 2:
        raise InvalidArgumentError(f"Shape must be at most rank 2 but is rank {values.ndim}")
    _check_bins(values, np.asarray(weights))
    table = values.reshape(1, -1) if values.ndim < 2 else values
    rows = np.repeat(np.arange(table.shape[0]), table.shape[1]) if table.shape[0] > 1 else None
    result = counts(rows, table.ravel(), np.ravel(weights), (table.shape[0], n), weights.dtype, binary_output)
    return result[0] if values.ndim < 2 else result


def dense_bincount_shape(c: Any) -> Dims:
    dims, n = c.dims(0), _size_dim(c, 1)
    if dims is None:
        return None
    if len(dims) > 2:
        raise ValueError(f"Shape must be at most rank 2 but is rank {len(dims)}")
    return (n,) if len(dims) < 2 else (dims[0], n)


op(f"DenseBincount(input: Tidx, size: Tidx, weights: T) -> (output: T) [Tidx: type in INDEX; {COUNTED}; binary_output: bool = false]",
   shape=dense_bincount_shape, numpy=dense_bincount_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(input=arr([[1, 2, 2], [7, 0, 0]], np.int32), size=arr(5, np.int32), weights=empty(0)),
            dict(input=arr([[1, 2, 2], [7, 0, 0]], np.int64), size=arr(5, np.int64), weights=empty(0), binary_output=True),
            dict(input=arr([[1, 2, 2], [7, 0, 0]], np.int32), size=arr(5, np.int32), weights=ints(2, 3)),
            dict(input=arr([1, 2, 2, 7], np.int32), size=arr(5, np.int32), weights=empty(0)), dict(input=arr(1, np.int32), size=arr(3, np.int32), weights=empty(0))],
   errors=[(dict(input=arr([[1, -2]], np.int32), size=arr(3, np.int32), weights=empty(0)), InvalidArgumentError, "must be non-negative! Negative input value found: -2"),
           (dict(input=arr([1, 2], np.int32), size=arr(3, np.int32), weights=normal(1)), InvalidArgumentError, "`weights` must be the same shape as `arr`")])  # fmt: skip


def sparse_bincount_kernel(indices: Any, values: Any, dense_shape: Any, size: Any, weights: Any, *, binary_output: bool) -> Any:
    n = bin_count(size)
    if indices.ndim != 2 or values.ndim != 1 or indices.shape[0] != values.shape[0]:
        raise InvalidArgumentError(f"Number of values must match first dimension of indices. Got {values.size} values, indices shape: {format_dims(indices.shape)}")
    _check_bins(values, weights)
    batched = dense_shape.size > 1
    height = int(dense_shape[0]) if batched else 1
    rows = indices[:, 0] if batched else np.zeros(values.size, dtype=np.int64)
    if batched and values.size and not (0 <= rows.min() and rows.max() < height):
        raise InvalidArgumentError(f"Index out of bound. `batch` ({rows.max()}) must be less than the dimension size ({height}).")
    result = counts(rows, values, weights, (height, n), weights.dtype, binary_output)
    return result if batched else result[0]


def sparse_bincount_shape(c: Any) -> Dims:
    n = _size_dim(c, 3)
    shape = c.const_dims(2)
    if shape is None:
        return None
    return (n,) if len(shape) == 1 else (shape[0], n)


op(f"SparseBincount(indices: int64, values: Tidx, dense_shape: int64, size: Tidx, weights: T) -> (output: T) [Tidx: type in INDEX; {COUNTED};"
   " binary_output: bool = false]",
   shape=sparse_bincount_shape, numpy=sparse_bincount_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(indices=[[0, 0], [0, 1], [1, 0]], values=arr([1, 1, 3], np.int32), dense_shape=[2, 2], size=arr(4, np.int32), weights=empty(0)),
            dict(indices=[[0], [1], [3]], values=arr([1, 1, 3], np.int32), dense_shape=[4], size=arr(4, np.int32), weights=ints(3))])  # fmt: skip


def ragged_bincount_kernel(splits: Any, values: Any, size: Any, weights: Any, *, binary_output: bool) -> Any:
    n = bin_count(size)
    if splits.ndim != 1 or splits.size == 0:
        raise InvalidArgumentError("Splits must be non-empty")
    if splits[0] != 0:
        raise InvalidArgumentError(f"Splits must start with 0, not with {splits[0]}")
    if splits[-1] != values.size:
        raise InvalidArgumentError(f"Splits must end with the number of values, got {splits[-1]} instead of {values.size}")
    _check_bins(values, weights)
    rows = np.repeat(np.arange(splits.size - 1), np.diff(splits))
    return counts(rows, values, weights, (splits.size - 1, n), weights.dtype, binary_output)


def ragged_bincount_shape(c: Any) -> Dims:
    (rows,) = with_rank(c, 0, 1) or (None,)
    return None if rows is None else rows - 1, _size_dim(c, 2)


op(f"RaggedBincount(splits: int64, values: Tidx, size: Tidx, weights: T) -> (output: T) [Tidx: type in INDEX; {COUNTED}; binary_output: bool = false]",
   shape=ragged_bincount_shape, numpy=ragged_bincount_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(splits=[0, 2, 3], values=arr([1, 1, 3], np.int32), size=arr(4, np.int32), weights=empty(0)),
            dict(splits=[0, 0, 3], values=arr([1, 1, 9], np.int64), size=arr(4, np.int64), weights=ints(3), binary_output=True)],
   errors=[(dict(splits=[0, 4], values=arr([1, 1, 3], np.int32), size=arr(4, np.int32), weights=empty(0)), InvalidArgumentError, "Splits must end with the number of values, got 4 instead of 3")])  # fmt: skip

# -- histograms and buckets -------------------------------------------------------------------------------------------


def histogram_kernel(values: Any, value_range: Any, nbins: Any, *, dtype: DType) -> Any:
    n = int(nbins)
    if value_range.shape != (2,):
        raise InvalidArgumentError("value_range should be a vector of 2 elements.")
    low, high = value_range.tolist()
    if not low < high:
        raise InvalidArgumentError(f"value_range should satisfy value_range[0] < value_range[1], but got '[{low:g}, {high:g}]'")
    if n <= 0:
        raise InvalidArgumentError(f"nbins should be a positive number, but got '{n}'")
    flat = np.ravel(values)
    if flat.dtype.kind == "f" and flat.size and np.isnan(flat.min()):
        raise InvalidArgumentError("Histogram values must not contain NaN")
    found: list[np.ndarray] = []
    share_out(flat.size, WORK if n < flat.size // 8 else 0, lambda start, end: found.append(_histogram(flat[start:end], low, (high - low) / n, n)))
    return np.add.reduce(found).astype(dtype.np)


WORK = 4
"""Numbers that are added in the time that one is counted in."""


def _histogram(values: np.ndarray, low: float, step: float, n: int) -> np.ndarray:
    found = occurrences.histogram(values, low, step, n)
    if found is not None:
        return found
    place = values.astype(np.float64)
    place -= low
    place /= step
    return np.bincount(np.clip(place, 0, n - 1, out=place).astype(np.int64), minlength=n)


def histogram_shape(c: Any) -> Dims:
    nbins = c.const(2)
    return (None if nbins is None else int(nbins),)


op("HistogramFixedWidth(values: T, value_range: T, nbins: int32) -> (out: dtype) [T: type in {int32, int64, float, double}; dtype: type in INDEX = int32]",
   shape=histogram_shape, numpy=histogram_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(values=arr([-1, 0, 1.5, 2, 5, 15], np.float32), value_range=arr([0, 5], np.float32), nbins=5),
            dict(values=ints(3, 4, lo=-3, hi=13), value_range=arr([0, 10]), nbins=3), dict(values=empty(0), value_range=arr([0, 10]), nbins=3)],
   errors=[(dict(values=normal(2), value_range=arr([5, 5]), nbins=5), InvalidArgumentError, r"value_range should satisfy"),
           (dict(values=normal(2), value_range=arr([0, 5]), nbins=0), InvalidArgumentError, "nbins should be a positive number, but got '0'")])  # fmt: skip


def bucketize_kernel(values: Any, *, boundaries: list[float]) -> Any:
    edges = np.array(boundaries, dtype=np.float32)
    if (edges[1:] < edges[:-1]).any():
        raise InvalidArgumentError("Expected sorted boundaries")
    wide, numbers = edges.astype(np.float64), np.asarray(values).astype(np.float64)
    found = searching.places(wide.reshape(1, -1), numbers.reshape(1, -1), "right")
    if found is None:
        found = np.searchsorted(wide, numbers, side="right")
    return found.astype(np.int32).reshape(numbers.shape)


op("Bucketize(input: T) -> (output: int32) [T: type in {int32, int64, float, double}; boundaries: list(float)]",
   shape=same_as("input"), numpy=bucketize_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(input=arr([-1, 0, 1, 5, 10]), boundaries=[0.0, 5.0]), dict(input=uniform(2, 3), boundaries=[]), dict(input=empty(0), boundaries=[0.5])],
   errors=[(dict(input=normal(2), boundaries=[5.0, 0.0]), InvalidArgumentError, "Expected sorted boundaries")])  # fmt: skip
