"""Gathering rows and elements by index, scattering them, stitching.

An index that names nothing gives zeros when gathering and is dropped when scattering, as on TensorFlow's GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import Unsupported, jax, jnp, lax, rule, static_ints
from penstock.engines.xla.values import array, axis_of, size_of, zeros

# -- Gather -----------------------------------------------------------------------------------------------------------


def signed(indices: Any) -> Any:
    """Indices of a type that can be compared with any size."""
    indices = jnp.asarray(indices)
    return indices if indices.dtype in (np.int32, np.int64) else indices.astype(np.int32)


def take(params: Any, indices: Any, axis: int) -> Any:
    """params[..., indices, ...] along `axis`."""
    shape, n = params.shape, indices.ndim
    if shape[axis] == 0 or indices.size == 0:
        return zeros(shape[:axis] + indices.shape + shape[axis + 1 :], params.dtype)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(*range(axis), *range(axis + n, n + len(shape) - 1)), collapsed_slice_dims=(axis,), start_index_map=(axis,)
    )
    sizes = (*shape[:axis], 1, *shape[axis + 1 :])
    return lax.gather(array(params), signed(indices)[..., None], numbers, sizes, mode="fill", fill_value=0)


@rule("Gather", raises=True)
def gather(params: Any, indices: Any) -> Any:
    need(params.ndim > 0, "a scalar to gather from")
    return take(params, indices, 0)


@rule("GatherV2", raises=True)
def gather_v2(params: Any, indices: Any, axis: Any, *, batch_dims: int) -> Any:
    need(params.ndim > 0 and axis.ndim == 0, "a scalar to gather from")
    a = axis_of(axis, params.ndim)
    b = batch_dims + indices.ndim if batch_dims < 0 else batch_dims
    need(0 <= b <= a and params.shape[:b] == indices.shape[:b], "batch dimensions that do not fit")
    params, indices = array(params), jnp.asarray(indices)
    if 0 in (*params.shape, *indices.shape):
        return zeros(params.shape[:a] + indices.shape[b:] + params.shape[a + 1 :], params.dtype)
    pick: Callable[..., Any] = partial(take, axis=a - b)
    for _ in range(b):
        pick = jax.vmap(pick)
    return pick(params, indices)


def _reports(attrs: dict[str, Any]) -> bool:
    return attrs["bad_indices_policy"] != b"IGNORE"


@rule("GatherNd", raises=_reports)
def gather_nd(params: Any, indices: Any) -> Any:
    need(params.ndim > 0 and indices.ndim > 0 and indices.shape[-1] <= params.ndim, "indices that do not fit")
    depth, outer = indices.shape[-1], indices.ndim - 1
    shape = indices.shape[:-1] + params.shape[depth:]
    params = array(params)
    if depth == 0:
        return jnp.broadcast_to(params, shape)
    need(params.size > 0 or indices.size == 0, "an empty tensor to gather from")
    if size_of(shape) == 0:
        return zeros(shape, params.dtype)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(outer, len(shape))), collapsed_slice_dims=tuple(range(depth)), start_index_map=tuple(range(depth))
    )
    sizes = (1,) * depth + params.shape[depth:]
    return lax.gather(params, signed(indices), numbers, sizes, mode="fill", fill_value=0)


# -- Scatter ----------------------------------------------------------------------------------------------------------


def scatter(how: Callable[..., Any], x: Any, indices: Any, updates: Any, **hints: bool) -> Any:
    """`how` (one of lax.scatter, lax.scatter_add, ...) applied to the slices of `x` that the index vectors name."""
    depth, outer = indices.shape[-1], indices.ndim - 1
    need(depth <= x.ndim and updates.shape == indices.shape[:-1] + x.shape[depth:], "updates of another shape")
    if size_of(updates.shape) == 0 or x.size == 0:
        return x
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(outer, updates.ndim)), inserted_window_dims=tuple(range(depth)),
        scatter_dims_to_operand_dims=tuple(range(depth)),
    )  # fmt: skip
    return how(x, signed(indices), updates, numbers, mode="drop", **hints)


def _added(x: Any, indices: Any, updates: Any) -> Any:
    if x.dtype == np.bool_:  # a sum of truth values is their disjunction
        return scatter(lax.scatter_max, x, indices, updates)
    return scatter(lax.scatter_add, x, indices, updates)


@rule("ScatterNd", raises=_reports)
def scatter_nd(indices: Any, updates: Any, shape: Any, *, T: DType) -> Any:
    sizes = static_ints(shape)
    need(indices.ndim > 0 and all(n >= 0 for n in sizes), "indices or sizes that do not fit")
    need(size_of(sizes) > 0 or (indices.size == 0 and updates.size == 0), "updates of nothing")
    return _added(zeros(sizes, T.np), indices, array(updates))


@rule("TensorScatterUpdate", raises=_reports)
def tensor_scatter_update(x: Any, indices: Any, updates: Any) -> Any:
    return scatter(lax.scatter, array(x), indices, array(updates))


@rule("TensorScatterAdd", "ScatterNdNonAliasingAdd", raises=_reports)
def tensor_scatter_add(x: Any, indices: Any, updates: Any) -> Any:
    return _added(array(x), indices, array(updates))


@rule("TensorScatterSub", raises=_reports)
def tensor_scatter_sub(x: Any, indices: Any, updates: Any) -> Any:
    if x.dtype == np.bool_:
        raise Unsupported("differences of truth values")
    return _added(array(x), indices, jnp.negative(updates))


@rule("TensorScatterMin", raises=_reports)
def tensor_scatter_min(x: Any, indices: Any, updates: Any) -> Any:
    return scatter(lax.scatter_min, _ordered(x), indices, updates)


@rule("TensorScatterMax", raises=_reports)
def tensor_scatter_max(x: Any, indices: Any, updates: Any) -> Any:
    return scatter(lax.scatter_max, _ordered(x), indices, updates)


def _ordered(x: Any) -> Any:
    if x.dtype.kind == "c":
        raise Unsupported("extremes of complex numbers")
    return array(x)


@rule("InplaceUpdate")
def inplace_update(x: Any, i: Any, v: Any) -> Any:
    return scatter(lax.scatter, array(x), _rows(x, i), array(v))


@rule("InplaceAdd")
def inplace_add(x: Any, i: Any, v: Any) -> Any:
    return _added(array(x), _rows(x, i), array(v))


@rule("InplaceSub")
def inplace_sub(x: Any, i: Any, v: Any) -> Any:
    return _added(array(x), _rows(x, i), jnp.negative(v))


def _rows(x: Any, i: Any) -> Any:
    """Row numbers that count round and round, as index vectors."""
    need(i.ndim == 1 and x.ndim > 0 and x.shape[0] > 0, "rows of nothing")
    return jnp.remainder(i, np.int32(x.shape[0]))[:, None]


# -- stitching --------------------------------------------------------------------------------------------------------


@rule("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch(indices: list[Any], data: list[Any], *, T: DType) -> Any:
    """With known indices it is known which row comes from where; of several, the last."""
    names = [static_ints(index) for index in indices]
    need(all(n >= 0 for part in names for n in part), "indices below zero")
    first = data[0].shape[indices[0].ndim :]
    need(all(d.shape == i.shape + first for i, d in zip(indices, data, strict=True)), "data of another shape")
    count = max((n for part in names for n in part), default=-1) + 1
    if count == 0:
        return zeros((0, *first), T.np)
    source = np.full(count, -1, np.int64)
    start = 0
    for part in names:
        source[list(part)] = np.arange(start, start + len(part))
        start += len(part)
    rows = jnp.concatenate([jnp.reshape(array(d), (-1, *first)) for d in data], 0)
    return take(rows, np.where(source < 0, start, source), 0)
