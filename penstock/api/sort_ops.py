"""`tf.sort` and `tf.argsort`, made of top_k."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.api import array_ops
from penstock.api.array_indexing import tensor_scatter_nd_update
from penstock.api.framework import name_scope
from penstock.api.math_reduce import range_
from penstock.api.nn.activations import top_k
from penstock.graph.constant import constant, constant_value
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def sort(values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """The values in order along `axis`; direction "ASCENDING" or "DESCENDING"."""
    with name_scope(name, "sort"):
        return _ordered(values, axis, direction, want_indices=False)


def argsort(values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False, name: str | None = None) -> Tensor:
    """The indices that put values in order along `axis`. Equal elements keep their order, whatever `stable` says."""
    with name_scope(name, "argsort"):
        return _ordered(values, axis, direction, want_indices=True)


def _ordered(values: Any, axis: Any, direction: str, want_indices: bool) -> Tensor:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"Argument `direction` should be one of ASCENDING, DESCENDING. Received: direction={direction}")
    known = constant_value(convert_to_tensor(axis, name="axis"))
    if known is None or known.ndim != 0:
        raise ValueError(f"Argument `axis` must be a constant scalar. Received: axis={axis}.")
    values = convert_to_tensor(values, name="values")
    if direction == "DESCENDING":
        return _descending(values, int(known), want_indices)
    # Smallest first is largest first of mirrored values. Integers are mirrored so that even the smallest has a counterpart.
    dtype = values.dtype.base_dtype
    if dtype.is_unsigned:
        result = _descending(dtype.max - values, int(known), want_indices)
        return result if want_indices else dtype.max - result
    if dtype.is_integer:
        result = _descending(raw.Neg(values) - 1, int(known), want_indices)
        return result if want_indices else raw.Neg(result) - 1
    result = _descending(raw.Neg(values), int(known), want_indices)
    return result if want_indices else raw.Neg(result)


def _descending(values: Tensor, axis: int, want_indices: bool) -> Tensor:
    k = array_ops.shape(values)[axis]
    rank = array_ops.rank(values)
    known_rank = None if values.dims is None else len(values.dims)
    if axis == -1 or (known_rank is not None and axis + 1 == known_rank):
        found = top_k(values, k)
        return found[1] if want_indices else found[0]
    # top_k works along the last axis, which changes places with the wanted one.
    if known_rank is not None:
        order = np.arange(known_rank)
        order[[axis, known_rank - 1]] = order[[known_rank - 1, axis]]
        swap: Any = constant(order.astype(np.int32), name="transposition")
    else:
        position = axis if axis >= 0 else rank + axis
        swap = tensor_scatter_nd_update(range_(rank), [[position], [rank - 1]], [rank - 1, position])
    found = top_k(array_ops.transpose(values, swap), k)
    return array_ops.transpose(found[1] if want_indices else found[0], swap)
