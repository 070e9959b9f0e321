"""tf.sort and tf.argsort, made of TopKV2."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.api import array_ops
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.graph.constant import constant as _constant
from penstock.graph.constant import constant_value
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


@export("sort")
def sort(values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """The elements along `axis` in ascending or descending order."""
    with name_scope(name, "sort"):
        return _sorted(values, axis, direction, False)


@export("argsort")
def argsort(values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False, name: str | None = None) -> Tensor:
    """The positions along `axis` that sort the elements; equal elements keep their order."""
    with name_scope(name, "argsort"):
        return _sorted(values, axis, direction, True)


def _sorted(values: Any, axis: Any, direction: str, positions: bool) -> Tensor:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"Argument `direction` should be one of 'ASCENDING' or 'DESCENDING'. Received: direction={direction}")
    known = constant_value(axis)
    if known is None or np.ndim(known):
        raise ValueError(f"Argument `axis` must be a scalar that is known statically. Received: axis={axis}")
    values = convert_to_tensor(values, name="values")
    if direction == "DESCENDING":
        return _descending(values, int(known), positions)
    # The opposite order of opposite values, so that equal elements keep their places.
    result = _descending(_opposite(values), int(known), positions)
    return result if positions else _opposite(result)


def _opposite(x: Tensor) -> Tensor:
    """An order-reversing function that is its own inverse."""
    dtype = x.dtype.base_dtype
    if dtype.is_unsigned:
        return raw.Sub(_constant(np.array(dtype.max, dtype.np)), x)
    if dtype.is_integer:
        # -1 - x, because the smallest integer has no negative.
        return raw.Sub(_constant(np.array(-1, dtype.np)), x)
    return raw.Neg(x)


def _descending(values: Tensor, axis: int, positions: bool) -> Tensor:
    rank = None if values.dims is None else len(values.dims)
    if rank is None and axis != -1:
        raise ValueError("sorting along another axis than the last one needs a tensor of statically known rank")
    if rank is not None and not -rank <= axis < rank:
        raise ValueError(f"Argument `axis` = {axis} not in range [{-rank}, {rank})")
    last = rank is None or axis % rank == rank - 1
    perm: list[int] = []
    if not last:
        assert rank is not None
        perm = list(range(rank))
        perm[axis], perm[-1] = perm[-1], perm[axis]
        values = array_ops.transpose(values, perm)
    top = raw.TopKV2(values, array_ops.shape(values)[-1])
    result = top[1] if positions else top[0]
    return result if last else array_ops.transpose(result, perm)
