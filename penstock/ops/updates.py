"""Updates of large variables in one pass over memory, which the pass `optimise.updates` puts in the place of several nodes.

    _AssignMul(ref, factor)                          ref *= factor
    _AssignSubRatio(ref, m, v, rate, epsilon)        ref -= rate * m / (sqrt(v) + epsilon)

and the same for resource variables. Every element is computed as the nodes would, in their order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.declare import NOT_DIFFERENTIABLE, op
from penstock.ops.kernels.threads import parallel_for
from penstock.ops.resource_variables import find_variable, read_value
from penstock.ops.resources import Ref
from penstock.ops.state import merged_shape
from penstock.shapes import Dims

TILE = 1 << 16
"""Elements: a tile of every array stays in the cache while the formula runs over it."""


def _sub_ratio(var: np.ndarray, ratio: tuple[Any, ...], out: Any = None) -> np.ndarray:
    """var - rate * m / (sqrt(v) + epsilon); the arrays have one shape and lie in one piece."""
    m, v, rate, epsilon = ratio
    result = np.empty_like(var) if out is None else out
    x, y, m, v = (a.reshape(-1) for a in (var, result, m, v))
    tiles = -(-x.size // TILE)

    def work(i: int) -> None:
        tile = slice(i * TILE, i * TILE + TILE)
        below = np.sqrt(v[tile])
        below += epsilon
        step = rate * m[tile]
        step /= below
        np.subtract(x[tile], step, out=y[tile])

    parallel_for(tiles, work)
    return result


def _updated_by_ratio(ref: Ref, m: Any, v: Any, rate: Any, epsilon: Any, refusal: str) -> None:
    held = ref.read()
    m, v = np.ascontiguousarray(m), np.ascontiguousarray(v)
    if not held.shape == m.shape == v.shape or np.ndim(rate) or np.ndim(epsilon):
        value = rate * m / (np.sqrt(v) + epsilon)
        if value.shape != held.shape:
            raise InvalidArgumentError(refusal)
        held = None  # or the variable would seem to be in use
        ref.update(np.subtract, value)
        return
    held = None
    ref.update(_sub_ratio, (m, v, rate, epsilon))


def assign_mul_kernel(ref: Ref, factor: Any) -> Ref:
    ref.read()  # says what is wrong
    ref.update(np.multiply, factor)
    return ref


def assign_mul_variable_kernel(ctx: Any, handle: Any, factor: Any) -> None:
    read_value(ctx, handle)
    find_variable(ctx, handle).update(np.multiply, factor)


def assign_sub_ratio_kernel(ref: Ref, m: Any, v: Any, rate: Any, epsilon: Any) -> Ref:
    _updated_by_ratio(ref, m, v, rate, epsilon, "Parameters and update must be the same size")
    return ref


def assign_sub_ratio_variable_kernel(ctx: Any, handle: Any, m: Any, v: Any, rate: Any, epsilon: Any) -> None:
    read_value(ctx, handle)
    _updated_by_ratio(find_variable(ctx, handle), m, v, rate, epsilon, "Cannot update variable using a Tensor of another shape, shapes must be equal.")


def _nothing(c: Any) -> list[Dims]:
    return []


op("_AssignMul(ref: ref T, factor: T) -> (output_ref: ref T) [T: type in {float, double}]",
   shape=lambda c: c.dims(0), numpy=assign_mul_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("_AssignMulVariableOp(resource: resource, factor: dtype) -> () [dtype: type in {float, double}] stateful",
   shape=_nothing, numpy=assign_mul_variable_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("_AssignSubRatio(ref: ref T, m: T, v: T, rate: T, epsilon: T) -> (output_ref: ref T) [T: type in {float, double}]",
   shape=merged_shape, numpy=assign_sub_ratio_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("_AssignSubRatioVariableOp(resource: resource, m: dtype, v: dtype, rate: dtype, epsilon: dtype) -> () [dtype: type in {float, double}] stateful",
   shape=_nothing, numpy=assign_sub_ratio_variable_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
