"""Slots: variables that an optimizer keeps beside a variable, named after it ("w/Momentum")."""

from __future__ import annotations

import contextlib
from typing import Any

from penstock.api.export import resolve
from penstock.api.initializers import Zeros
from penstock.api.variable_scope import get_variable, variable_scope
from penstock.api.variables import SaveSliceInfo, Variable
from penstock.graph.ir import Tensor


def is_resource_variable(variable: Any) -> bool:
    return isinstance(variable, Variable) and hasattr(variable, "handle")


def _slot_variable(primary: Any, value: Any, scope: str, validate_shape: bool, shape: Any, dtype: Any) -> Any:
    slot = get_variable(
        scope, initializer=value, trainable=False, use_resource=is_resource_variable(primary), shape=shape, dtype=dtype, validate_shape=validate_shape,
        partitioner=None,
    )  # fmt: skip
    info = primary._get_save_slice_info() if isinstance(primary, Variable) else None
    if info is not None:
        # A slot of a part of a partitioned variable is a part of the whole's slot.
        own_name = slot.op.name[len(primary.op.name + "/") :]
        whole = info.full_name + "/" + own_name.split("/")[-1]
        if len(slot.shape) == len(info.var_shape):
            slot._set_save_slice_info(
                SaveSliceInfo(whole, list(info.full_shape), list(info.var_offset), list(info.var_shape))
            )
    return slot


@contextlib.contextmanager
def _slot_scope(primary: Any, name: str, colocate: bool) -> Any:
    graph = primary.graph
    with variable_scope(None, f"{primary.op.name}/{name}") as scope:
        # A partitioner of an outer scope is for the variables themselves, not for their slots.
        scope.set_partitioner(None)
        scope.set_regularizer(None)
        if colocate:
            with graph.colocate_with(primary.op):
                yield
        else:
            yield


def create_slot(primary: Any, val: Any, name: str, colocate_with_primary: bool = True) -> Any:
    """A slot that starts with the value `val`."""
    validate_shape = val.shape.is_fully_defined() if isinstance(val, Tensor) else True
    with _slot_scope(primary, name, colocate_with_primary):
        return _slot_variable(primary, val, "", validate_shape, None, None)


def create_slot_with_initializer(
    primary: Any, initializer: Any, shape: Any, dtype: Any, name: str, colocate_with_primary: bool = True
) -> Any:
    """A slot of the given shape and type that starts with what `initializer` makes."""
    with _slot_scope(primary, name, colocate_with_primary):
        return _slot_variable(primary, initializer, "", shape.is_fully_defined(), shape, dtype)


def create_zeros_slot(primary: Any, name: str, dtype: Any = None, colocate_with_primary: bool = True) -> Any:
    """A slot of zeros, shaped like the variable."""
    dtype = primary.dtype.base_dtype if dtype is None else dtype
    if primary.shape.is_fully_defined():
        return create_slot_with_initializer(primary, Zeros(), primary.shape, dtype, name, colocate_with_primary)
    source = primary.initialized_value() if isinstance(primary, Variable) else primary
    with primary.graph.colocate_with(primary.op) if colocate_with_primary else contextlib.nullcontext():
        zeros = resolve("zeros")(resolve("shape")(source), dtype=dtype)
    return create_slot(primary, zeros, name, colocate_with_primary)
