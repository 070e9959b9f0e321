"""Largest entries of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import jnp, lax, rule, static, static_ints
from penstock.engines.xla.values import array, is_int, size_of, zeros


def _top_k(x: Any, k: int, index_type: Any) -> list[Any]:
    need(k >= 0 and x.ndim >= 1 and x.shape[-1] >= k, "fewer entries than wanted")
    shape = (*x.shape[:-1], k)
    if size_of(shape) == 0:
        return [zeros(shape, x.dtype), zeros(shape, index_type)]
    x = array(x)
    if is_int(x):
        values, index = lax.top_k(x, k)
        return [values, index.astype(index_type)]
    # XLA takes -0.0 for less than 0.0; here they are equal. A NaN is the largest, but for who wants one number only.
    ranked = jnp.where(x == 0, np.zeros((), x.dtype), x)
    if k == 1:
        numbers = x == x
        _, index = lax.top_k(jnp.where(numbers, ranked, np.array(-np.inf, x.dtype)), k)
        found = jnp.take_along_axis(numbers, index, -1)  # not where a NaN stands before an infinity
        index = jnp.where(found, index, jnp.argmax(numbers, -1, keepdims=True))
    else:
        _, index = lax.top_k(ranked, k)
    return [jnp.take_along_axis(x, index, -1), index.astype(index_type)]


@rule("TopK")
def top_k(x: Any, *, k: int) -> list[Any]:
    return _top_k(x, k, np.int32)


@rule("TopKV2")
def top_k_v2(x: Any, k: Any, *, index_type: DType) -> list[Any]:
    need(k.ndim == 0, "a number that is no scalar")
    return _top_k(x, int(static(k)), index_type.np)


@rule("NthElement")
def nth_element(x: Any, n: Any, *, reverse: bool) -> Any:
    (place,) = static_ints(n)
    need(x.ndim >= 1 and 0 <= place < x.shape[-1], "fewer entries than wanted")
    at = x.shape[-1] - 1 - place if reverse else place
    return jnp.sort(x, -1)[..., at]


def _in_top_k(predictions: Any, targets: Any, k: Any) -> Any:
    need(predictions.ndim == 2 and targets.shape == predictions.shape[:1], "targets of another shape")
    rows, classes = predictions.shape
    if not rows or not classes:
        return zeros((rows,), np.bool_)
    valid = (targets >= 0) & (targets < classes)
    column = lax.broadcasted_iota(targets.dtype, (rows, classes), 1)
    # A sum over one entry picks it; the others may be infinite, so they are left out, not multiplied away.
    chosen = jnp.where(column == targets[:, None], predictions, np.float32(0)).sum(1, keepdims=True)
    valid &= jnp.isfinite(predictions).all(1)
    return valid & ((predictions > chosen).sum(1) < k)


@rule("InTopK")
def in_top_k(predictions: Any, targets: Any, *, k: int) -> Any:
    return _in_top_k(predictions, targets, np.int64(k))


@rule("InTopKV2")
def in_top_k_v2(predictions: Any, targets: Any, k: Any) -> Any:
    need(k.ndim == 0, "a number that is no scalar")
    return _in_top_k(predictions, targets, k)
