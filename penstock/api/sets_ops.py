"""tf.sets: operations on the sets that the last dimension of tensors holds."""

from __future__ import annotations

from typing import Any

from penstock.api.export import export
from penstock.graph.composite import SparseTensor, SparseTensorValue
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

_ALLOWED = ("int8", "int16", "int32", "int64", "uint8", "uint16", "string")


def _operand(value: Any) -> Any:
    value = SparseTensor.from_value(value) if isinstance(value, (SparseTensor, SparseTensorValue)) else convert_to_tensor(value)
    if value.dtype.base_dtype.name not in _ALLOWED:
        raise TypeError(f"Data type {value.dtype} of tensor is not allowed for set operations, only {', '.join(_ALLOWED)} are.")
    return value


def _parts(sp: SparseTensor) -> tuple[Tensor, Tensor, Tensor]:
    return sp.indices, sp.values, sp.dense_shape


def _apply(a: Any, b: Any, operation: str, validate_indices: bool) -> SparseTensor:
    a, b = _operand(a), _operand(b)
    if a.dtype.base_dtype is not b.dtype.base_dtype:
        raise TypeError(f"Types don't match, {a.dtype} vs {b.dtype}.")
    # There is no op for sparse against dense: the operands change places.
    if isinstance(a, SparseTensor) and not isinstance(b, SparseTensor):
        a, b = b, a
        operation = {"a-b": "b-a", "b-a": "a-b"}.get(operation, operation)
    options = dict(set_operation=operation, validate_indices=validate_indices)
    if isinstance(a, SparseTensor):
        return SparseTensor(*raw.SparseToSparseSetOperation(*_parts(a), *_parts(b), **options))
    if isinstance(b, SparseTensor):
        return SparseTensor(*raw.DenseToSparseSetOperation(a, *_parts(b), **options))
    return SparseTensor(*raw.DenseToDenseSetOperation(a, b, **options))


@export("sets.size", "sets.set_size")
def set_size(a: Any, validate_indices: bool = True) -> Tensor:
    """The number of different elements in each row of the sparse tensor `a`."""
    if not isinstance(a, (SparseTensor, SparseTensorValue)):
        raise TypeError(f"Expected `SparseTensor`, got {a}.")
    return raw.SetSize(*_parts(_operand(a)), validate_indices=validate_indices)


@export("sets.intersection", "sets.set_intersection")
def set_intersection(a: Any, b: Any, validate_indices: bool = True) -> SparseTensor:
    """The elements that both rows hold, sorted."""
    return _apply(a, b, "intersection", validate_indices)


@export("sets.union", "sets.set_union")
def set_union(a: Any, b: Any, validate_indices: bool = True) -> SparseTensor:
    """The elements that either row holds, sorted."""
    return _apply(a, b, "union", validate_indices)


@export("sets.difference", "sets.set_difference")
def set_difference(a: Any, b: Any, aminusb: bool = True, validate_indices: bool = True) -> SparseTensor:
    """The elements of `a`'s rows that `b`'s do not hold, sorted; `aminusb=False` for the other way round."""
    return _apply(a, b, "a-b" if aminusb else "b-a", validate_indices)
