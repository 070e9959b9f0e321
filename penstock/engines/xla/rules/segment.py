"""Reductions over groups of rows (segments), and counting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import jnp, lax, rule, static, static_ints
from penstock.engines.xla.rules.gather_scatter import scatter
from penstock.engines.xla.values import array, const, narrow, widen, zeros
from penstock.ops.kernels.numeric import lowest

_EXTREMES = {"scatter_max": -np.inf, "scatter_min": np.inf}


def _scattered(how: str, blank: Any, index: Any, rows: Any, **hints: bool) -> Any:
    """The rows of each segment combined with `blank`, as TensorFlow does: of two numbers it keeps the second unless the first is better, so that a NaN
    hides what comes before it, and the next number hides the NaN."""
    combine = getattr(lax, how)
    if how not in _EXTREMES or rows.dtype.kind != "f" or not rows.size or not blank.size:
        return scatter(combine, blank, index, rows, **hints)
    order = jnp.broadcast_to(jnp.reshape(jnp.arange(rows.shape[0]), (-1, *[1] * (rows.ndim - 1))), rows.shape)

    def last(where: Any) -> Any:
        """The number of the last row of each segment for which it is true, -1 if there is none."""
        return scatter(lax.scatter_max, jnp.full(blank.shape, -1, order.dtype), index, jnp.where(where, order, -1), **hints)

    def careful() -> Any:
        nan = last(jnp.isnan(rows))
        counts = order > jnp.take(nan, index[:, 0], axis=0, mode="clip")
        found = scatter(combine, jnp.where(nan < 0, blank, _EXTREMES[how]), index, jnp.where(counts, rows, _EXTREMES[how]), **hints)
        return jnp.where((nan < 0) | (last(counts) >= 0), found, np.nan).astype(blank.dtype)

    return lax.cond(jnp.isnan(rows).any(), careful, lambda: scatter(combine, blank, index, rows, **hints))


# -- sorted segments: the last id says how many there are, so the ids must be known -----------------------------------


def _sorted_ids(data: Any, segment_ids: Any) -> np.ndarray:
    ids = static(segment_ids)
    need(data.ndim >= 1 and ids.shape == data.shape[:1], "ids of another shape")
    need(ids.size == 0 or (int(ids[0]) >= 0 and not (ids[1:] < ids[:-1]).any()), "ids that are not sorted")
    return ids


def _by_segment(how: str, data: Any, ids: np.ndarray, initial: Any) -> Any:
    """All rows of each segment combined, `initial` where there is none."""
    count = int(ids[-1]) + 1 if ids.size else 0
    rows = widen(array(data))
    blank = jnp.full((count, *data.shape[1:]), initial, rows.dtype)
    return _scattered(how, blank, ids[:, None], rows, indices_are_sorted=True)


def _reduced(how: str, data: Any, segment_ids: Any, initial: Any) -> Any:
    return narrow(_by_segment(how, data, _sorted_ids(data, segment_ids), initial), data.dtype)


def _extreme(how: str, data: Any, segment_ids: Any, initial: Any) -> Any:
    ids = _sorted_ids(data, segment_ids)
    result = _by_segment(how, data, ids, initial)
    empty = np.bincount(ids.astype(np.int64), minlength=result.shape[0]) == 0
    if empty.any():
        result = jnp.where(empty.reshape(-1, *[1] * (data.ndim - 1)), const(0, result), result)
    return narrow(result, data.dtype)


def _least(dtype: Any) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _most(dtype: Any) -> Any:
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


@rule("SegmentSum")
def segment_sum(data: Any, segment_ids: Any) -> Any:
    return _reduced("scatter_add", data, segment_ids, 0)


@rule("SegmentProd")
def segment_prod(data: Any, segment_ids: Any) -> Any:
    return _reduced("scatter_mul", data, segment_ids, 1)


@rule("SegmentMin")
def segment_min(data: Any, segment_ids: Any) -> Any:
    return _extreme("scatter_min", data, segment_ids, _most(data.dtype))


@rule("SegmentMax")
def segment_max(data: Any, segment_ids: Any) -> Any:
    return _extreme("scatter_max", data, segment_ids, _least(data.dtype))


@rule("SegmentMean")
def segment_mean(data: Any, segment_ids: Any) -> Any:
    ids = _sorted_ids(data, segment_ids)
    total = _by_segment("scatter_add", data, ids, 0)
    sizes = np.maximum(np.bincount(ids.astype(np.int64), minlength=total.shape[0]), 1)
    divisor = jnp.broadcast_to(sizes.astype(total.dtype).reshape(-1, *[1] * (data.ndim - 1)), total.shape)
    return narrow(lax.div(total, divisor), data.dtype)


# -- unsorted segments: rows whose id is out of range are dropped -----------------------------------------------------


def _unsorted(how: str, data: Any, ids: Any, num_segments: Any, initial: Callable[[Any], Any]) -> Any:
    (count,) = static_ints(num_segments)
    need(count >= 0 and data.shape[: ids.ndim] == ids.shape, "ids of another shape")
    rows = widen(array(data))
    blank = jnp.full((count, *data.shape[ids.ndim :]), initial(data.dtype), rows.dtype)
    flat = jnp.reshape(rows, (ids.size, *data.shape[ids.ndim :]))
    return narrow(_scattered(how, blank, jnp.reshape(ids, (-1, 1)), flat), data.dtype)


@rule("UnsortedSegmentSum", raises=True)
def unsorted_sum(data: Any, ids: Any, num_segments: Any) -> Any:
    return _unsorted("scatter_add", data, ids, num_segments, lambda _: 0)


@rule("UnsortedSegmentProd", raises=True)
def unsorted_prod(data: Any, ids: Any, num_segments: Any) -> Any:
    return _unsorted("scatter_mul", data, ids, num_segments, lambda _: 1)


@rule("UnsortedSegmentMax", raises=True)
def unsorted_max(data: Any, ids: Any, num_segments: Any) -> Any:
    return _unsorted("scatter_max", data, ids, num_segments, lowest)


@rule("UnsortedSegmentMin", raises=True)
def unsorted_min(data: Any, ids: Any, num_segments: Any) -> Any:
    return _unsorted("scatter_min", data, ids, num_segments, _highest)


def _highest(dtype: Any) -> Any:
    return np.iinfo(dtype).max if dtype.kind in "iu" else -float(lowest(dtype))


# -- counting ---------------------------------------------------------------------------------------------------------


def _counted(rows: Any, values: Any, weights: Any, shape: tuple[int, int], binary: bool) -> Any:
    """A [rows, bins] table of the weights of each value in each row; what has no bin is dropped."""
    index = jnp.stack([jnp.broadcast_to(rows, values.shape), values], -1)
    blank = zeros(shape, weights.dtype)
    if binary:
        return scatter(lax.scatter_max, blank, index, jnp.ones(values.shape, weights.dtype))
    amounts = jnp.reshape(weights, values.shape) if weights.size else jnp.ones(values.shape, weights.dtype)
    return scatter(lax.scatter_add, blank, index, amounts)


@rule("Bincount", raises=True)
def bincount(values: Any, size: Any, weights: Any) -> Any:
    (n,) = static_ints(size)
    need(n >= 0 and weights.size in (0, values.size), "weights of another shape")
    flat = jnp.reshape(values, (-1,))
    return _counted(jnp.zeros_like(flat), flat, weights, (1, n), False)[0]


@rule("DenseBincount", raises=True)
def dense_bincount(values: Any, size: Any, weights: Any, *, binary_output: bool) -> Any:
    (n,) = static_ints(size)
    need(n >= 0 and values.ndim <= 2 and (weights.size == 0 or weights.shape == values.shape), "weights of another shape")
    table = jnp.reshape(values, (1, -1)) if values.ndim < 2 else jnp.asarray(values)
    rows = lax.broadcasted_iota(table.dtype, table.shape, 0)
    result = _counted(rows, table, weights, (table.shape[0], n), binary_output)
    return result[0] if values.ndim < 2 else result


@rule("HistogramFixedWidth", raises=True)
def histogram(values: Any, value_range: Any, nbins: Any, *, dtype: DType) -> Any:
    (n,) = static_ints(nbins)
    need(n > 0 and value_range.shape == (2,), "a range that is none")
    low, high = (jnp.asarray(value_range)[i].astype(np.float64) for i in (0, 1))
    flat = jnp.reshape(jnp.asarray(values).astype(np.float64), (-1,))
    place = (jnp.maximum(flat, low) - low) / ((high - low) / n)
    index = jnp.clip(place, np.float64(0), np.float64(n - 1)).astype(np.int64)
    return scatter(lax.scatter_add, zeros((n,), dtype.np), index[:, None], jnp.ones(index.shape, dtype.np))


@rule("Bucketize")
def bucketize(values: Any, *, boundaries: list[float]) -> Any:
    edges = np.array(boundaries, np.float32)
    need(not (edges[1:] < edges[:-1]).any(), "boundaries that are not sorted")
    found = jnp.searchsorted(edges.astype(np.float64), jnp.asarray(values).astype(np.float64), side="right")
    return found.astype(np.int32)
