"""Variables, reference and resource: reading, assigning, gathering from them and scattering into them.

Updates are written so that XLA can do them in place if the variable's buffer is donated. An index that names no row is dropped when
writing and gives zeros when reading, as on TensorFlow's GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.engines.xla.checks import need, refusals
from penstock.engines.xla.rule import Var, jnp, lax, rule, static
from penstock.engines.xla.rules.gather_scatter import gather_nd, gather_v2, scatter
from penstock.engines.xla.values import array
from penstock.ops.kernels.slices import slice_index

# -- whole variables --------------------------------------------------------------------------------------------------


def _assign(var: Var, value: Any, validate_shape: bool) -> None:
    need(value.dtype == var.dtype, "a value of another type than the variable")
    held = var.known_shape
    need(not validate_shape or held is None or held == tuple(value.shape), "a value of another shape than the variable")
    var.value = array(value)


@rule("Assign")
def assign(var: Var, value: Any, *, validate_shape: bool) -> Var:
    _assign(var, value, validate_shape)
    return var


@rule("AssignVariableOp")
def assign_variable(var: Var, value: Any, *, validate_shape: bool) -> None:
    _assign(var, value, validate_shape)


def _add(var: Var, value: Any, function: Callable[..., Any]) -> Var:
    old = var.value
    need(tuple(value.shape) == tuple(old.shape) and value.dtype == old.dtype, "a value of another shape or type than the variable")
    var.value = function(old, value)
    return var


@rule("AssignAdd")
def assign_add(var: Var, value: Any) -> Var:
    return _add(var, value, jnp.add)


@rule("AssignSub")
def assign_sub(var: Var, value: Any) -> Var:
    return _add(var, value, jnp.subtract)


@rule("AssignAddVariableOp")
def assign_add_variable(var: Var, value: Any) -> None:
    _add(var, value, jnp.add)


@rule("AssignSubVariableOp")
def assign_sub_variable(var: Var, value: Any) -> None:
    _add(var, value, jnp.subtract)


def _multiplied(var: Var, factor: Any) -> Var:
    old = var.value
    need(np.ndim(factor) == 0 and factor.dtype == old.dtype, "a factor of another shape or type than a number of the variable")
    var.value = old * factor
    return var


@rule("_AssignMul")
def assign_mul(var: Var, factor: Any) -> Var:
    return _multiplied(var, factor)


@rule("_AssignMulVariableOp")
def assign_mul_variable(var: Var, factor: Any) -> None:
    _multiplied(var, factor)


@rule("_AssignSubRatio")
def assign_sub_ratio(var: Var, m: Any, v: Any, rate: Any, epsilon: Any) -> Var:
    return _add(var, rate * m / (jnp.sqrt(v) + epsilon), jnp.subtract)


@rule("_AssignSubRatioVariableOp")
def assign_sub_ratio_variable(var: Var, m: Any, v: Any, rate: Any, epsilon: Any) -> None:
    _add(var, rate * m / (jnp.sqrt(v) + epsilon), jnp.subtract)


@rule("ReadVariableOp")
def read_variable(var: Var, *, dtype: DType) -> Any:
    need(var.dtype == dtype.np, "a variable of another type")
    return var.value


@rule("_ReadVariablesOp")
def read_variables(variables: list[Var], *, dtypes: list[DType]) -> list[Any]:
    return [read_variable(var, dtype=dtype) for var, dtype in zip(variables, dtypes, strict=True)]


@rule("VariableShape")
def variable_shape(var: Var, *, out_type: DType) -> Any:
    return np.array(var.shape, out_type.np)


# -- gathering --------------------------------------------------------------------------------------------------------


@rule("ResourceGather", raises=True)
def resource_gather(var: Var, indices: Any, *, batch_dims: int) -> Any:
    return gather_v2(var.value, indices, np.int32(batch_dims), batch_dims=batch_dims)


@rule("ResourceGatherNd", raises=True)
def resource_gather_nd(var: Var, indices: Any) -> Any:
    return gather_nd(var.value, indices)


# -- scattering -------------------------------------------------------------------------------------------------------


def _divided(old: Any, indices: Any, updates: Any) -> Any:
    """A row that is named twice is divided by both updates; one division by their product."""
    need(old.dtype.kind not in "iu", "a division of integers, which may be one by zero")
    ones = jnp.ones(old.shape, old.dtype)
    return old / scatter(lax.scatter_mul, ones, indices, updates)


def _subtracted(old: Any, indices: Any, updates: Any) -> Any:
    return scatter(lax.scatter_add, old, indices, jnp.negative(updates))


def _by(name: str) -> Callable[..., Any]:
    """A plain scatter: `name` is a function of lax."""
    return lambda old, indices, updates: scatter(getattr(lax, name), old, indices, updates)


_SCATTERS: dict[str, Callable[..., Any]] = {
    "Update": _by("scatter"),
    "Add": _by("scatter_add"),
    "Sub": _subtracted,
    "Mul": _by("scatter_mul"),
    "Div": _divided,
    "Min": _by("scatter_min"),
    "Max": _by("scatter_max"),
}


def _scatter_into(how: str, var: Var, indices: Any, updates: Any) -> Var:
    """`indices` are index vectors: one more dimension than there are updated slices."""
    old = array(var.value)
    need(updates.dtype == old.dtype and (how == "Update" or old.dtype != np.bool_), "updates of another type than the variable")
    need(old.dtype.kind != "c" or how not in ("Min", "Max"), "extremes of complex numbers")
    var.value = _SCATTERS[how](old, indices, array(updates))
    return var


def _rows_into(how: str, var: Var, indices: Any, updates: Any) -> Var:
    shape = var.shape
    need(len(shape) > 0, "rows of a scalar")
    wanted = (*indices.shape, *shape[1:])
    if updates.ndim == 0:
        updates = jnp.broadcast_to(updates, wanted)
    need(tuple(updates.shape) == wanted, "updates that do not fit the rows")
    return _scatter_into(how, var, jnp.asarray(indices)[..., None], updates)


def _reports(attrs: dict[str, Any]) -> bool:
    return attrs["bad_indices_policy"] != b"IGNORE"


def _slices_into(how: str, var: Var, indices: Any, updates: Any) -> Var:
    need(indices.ndim > 0, "an index without a dimension")
    return _scatter_into(how, var, indices, updates)


def _attach(how: str) -> None:
    """The rules of one kind of scatter: by rows and by index vectors, for reference and resource variables."""

    def rows(var: Var, indices: Any, updates: Any) -> Var:
        return _rows_into(how, var, indices, updates)

    def resource_rows(var: Var, indices: Any, updates: Any) -> None:
        _rows_into(how, var, indices, updates)

    rule(f"Scatter{how}", raises=True)(rows)
    rule(f"ResourceScatter{how}", raises=True)(resource_rows)
    if how in ("Mul", "Div"):
        return

    def slices(var: Var, indices: Any, updates: Any) -> Var:
        return _slices_into(how, var, indices, updates)

    def resource_slices(var: Var, indices: Any, updates: Any) -> None:
        _slices_into(how, var, indices, updates)

    rule(f"ScatterNd{how}", raises=_reports)(slices)
    rule(f"ResourceScatterNd{how}", raises=_reports)(resource_slices)


for _how in _SCATTERS:
    _attach(_how)


# -- slices -----------------------------------------------------------------------------------------------------------


def _assign_slice(var: Var, begin: Any, end: Any, strides: Any, value: Any, masks: tuple[int, ...]) -> Var:
    old = array(var.value)
    with refusals():
        index = (*slice_index(old.shape, static(begin), static(end), static(strides), *masks), ...)
    target = np.broadcast_to(np.zeros((), np.bool_), old.shape)[index].shape
    try:
        fits = np.broadcast_shapes(value.shape, target) == target
    except ValueError:
        fits = False
    need(fits and value.dtype == old.dtype, "a value that does not fit the slice")
    var.value = old.at[index].set(value)
    return var


@rule("StridedSliceAssign")
def strided_slice_assign(
    var: Var, begin: Any, end: Any, strides: Any, value: Any, *, begin_mask: int, end_mask: int, ellipsis_mask: int, new_axis_mask: int,
    shrink_axis_mask: int,
) -> Var:  # fmt: skip
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    return _assign_slice(var, begin, end, strides, value, masks)


@rule("ResourceStridedSliceAssign")
def resource_strided_slice_assign(
    var: Var, begin: Any, end: Any, strides: Any, value: Any, *, begin_mask: int, end_mask: int, ellipsis_mask: int, new_axis_mask: int,
    shrink_axis_mask: int,
) -> None:  # fmt: skip
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    _assign_slice(var, begin, end, strides, value, masks)
