"""Reductions over axes, positions of extremes, and running sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import jnp, lax, rule
from penstock.engines.xla.values import axes_of, axis_of, const, is_complex, is_int, narrow, size_of, wide, widen

# -- reductions -------------------------------------------------------------------------------------------------------


def _folded(x: Any, axes: Any, keep_dims: bool, initial: Any, combine: Callable[..., Any]) -> Any:
    along = axes_of(axes, x.ndim)
    result = lax.reduce(x, np.array(initial, x.dtype), combine, along) if along else x
    return lax.expand_dims(result, sorted(along)) if keep_dims else result


@rule("Sum")
@wide
def _sum(x: Any, axes: Any, *, keep_dims: bool) -> Any:
    return _folded(x, axes, keep_dims, 0, lax.add)


@rule("Prod")
@wide
def _prod(x: Any, axes: Any, *, keep_dims: bool) -> Any:
    return _folded(x, axes, keep_dims, 1, lax.mul)


@rule("Mean")
def mean(x: Any, axes: Any, *, keep_dims: bool) -> Any:
    count = size_of([x.shape[a] for a in axes_of(axes, x.ndim)])
    kind = x.dtype.kind
    total = x.astype(np.int64 if kind == "i" else np.uint64) if is_int(x) else widen(x)
    total = _folded(total, axes, keep_dims, 0, lax.add)
    if count == 0 and kind in "iuc":  # the mean of nothing is NaN for real floats only
        return jnp.zeros(total.shape, x.dtype)
    if is_int(x):
        return lax.div(total, jnp.full_like(total, count)).astype(x.dtype)
    return narrow(total / const(count, total), x.dtype)


def _lowest(dtype: Any) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _highest(dtype: Any) -> Any:
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


def _extreme(x: Any, axes: Any, keep_dims: bool, initial: Any, combine: Callable[..., Any]) -> Any:
    result = _folded(x, axes, keep_dims, initial, combine)
    if is_int(x):
        return result
    with_nan = _folded(x != x, axes, keep_dims, False, lax.bitwise_or)  # on CPUs, XLA's own reduction may pass over NaNs
    return jnp.where(with_nan, const(np.nan, x), result)


@rule("Max")
def _max(x: Any, axes: Any, *, keep_dims: bool) -> Any:
    return _extreme(x, axes, keep_dims, _lowest(x.dtype), lax.max)


@rule("Min")
def _min(x: Any, axes: Any, *, keep_dims: bool) -> Any:
    return _extreme(x, axes, keep_dims, _highest(x.dtype), lax.min)


@rule("All")
def _all(x: Any, axes: Any, *, keep_dims: bool) -> Any:
    return _folded(x, axes, keep_dims, True, lax.bitwise_and)


@rule("Any")
def _any(x: Any, axes: Any, *, keep_dims: bool) -> Any:
    return _folded(x, axes, keep_dims, False, lax.bitwise_or)


@rule("EuclideanNorm")
def euclidean_norm(x: Any, axes: Any, *, keep_dims: bool) -> Any:
    wide_x = widen(x)
    square = wide_x * jnp.conj(wide_x) if is_complex(x) else wide_x * wide_x
    total = _folded(square, axes, keep_dims, 0, lax.add)
    return narrow(jnp.sqrt(total.astype(np.float64) if is_int(total) else total), x.dtype)


# -- positions of extremes --------------------------------------------------------------------------------------------


def _position(x: Any, dimension: Any, output_type: DType, worst: float, find: Callable[..., Any]) -> Any:
    need(dimension.ndim == 0, "a dimension that is no scalar")
    axis = axis_of(dimension, x.ndim)
    need(x.shape[axis] > 0, "an empty axis")
    if x.dtype.kind == "b":
        x = x.astype(np.int32)
    elif not is_int(x):  # NaNs never win
        x = jnp.where(jnp.isnan(x), const(worst, x), x)
    return narrow(find(x, axis, np.int64 if x.shape[axis] > 2**31 - 1 else np.int32), output_type.np)


@rule("ArgMax")
def arg_max(x: Any, dimension: Any, *, output_type: DType) -> Any:
    return _position(x, dimension, output_type, -np.inf, lax.argmax)


@rule("ArgMin")
def arg_min(x: Any, dimension: Any, *, output_type: DType) -> Any:
    return _position(x, dimension, output_type, np.inf, lax.argmin)


# -- scans ------------------------------------------------------------------------------------------------------------


def _scanned(x: Any, axis: Any, exclusive: bool, reverse: bool, scan: Callable[..., Any], identity: float) -> Any:
    need(axis.ndim == 0, "an axis that is no scalar")
    a = axis_of(axis, x.ndim)
    n = x.shape[a]
    dtype, x = x.dtype, widen(x)
    if not n:
        return narrow(x, dtype)
    if exclusive:  # what an element leaves out of its own result, the identity replaces at the end where the scan begins
        kept = lax.slice_in_dim(x, 1, n, axis=a) if reverse else lax.slice_in_dim(x, 0, n - 1, axis=a)
        x = lax.pad(kept, const(identity, x), [((0, 1, 0) if reverse else (1, 0, 0)) if i == a else (0, 0, 0) for i in range(x.ndim)])
    return narrow(scan(x, axis=a, reverse=reverse), dtype)


@rule("Cumsum")
def cumsum(x: Any, axis: Any, *, exclusive: bool, reverse: bool) -> Any:
    return _scanned(x, axis, exclusive, reverse, lax.cumsum, 0)


@rule("Cumprod")
def cumprod(x: Any, axis: Any, *, exclusive: bool, reverse: bool) -> Any:
    return _scanned(x, axis, exclusive, reverse, lax.cumprod, 1)


@rule("CumulativeLogsumexp")
def cumulative_logsumexp(x: Any, axis: Any, *, exclusive: bool, reverse: bool) -> Any:
    def scan(x: Any, axis: int, reverse: bool) -> Any:
        behind_two = lax.cumsum((x == np.inf).astype(np.int32), axis=axis, reverse=reverse) > 1  # TensorFlow subtracts one from the other
        return jnp.where(behind_two, np.nan, lax.cumlogsumexp(x, axis=axis, reverse=reverse))

    return _scanned(x, axis, exclusive, reverse, scan, -np.inf)
