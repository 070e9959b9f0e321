"""Conversion of Python values to tensors, and the registry that lets classes take part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.formats.values import convert_typed
from penstock.graph.constant import constant_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.shapes import Dimension, TensorShape

_PLAIN = (int, float, bool, str, bytes, complex, np.ndarray, np.generic)
_registry: list[tuple[int, Any, Callable[..., Any]]] = []  # (priority, types, function), kept sorted by priority


def register_tensor_conversion_function(base_type: Any, conversion_func: Callable[..., Any], priority: int = 100) -> None:
    """Lets `convert_to_tensor` turn instances of `base_type` into tensors by
    `conversion_func(value, dtype=None, name=None, as_ref=False)`. Lower priorities are tried first."""
    types = base_type if isinstance(base_type, tuple) else (base_type,)
    if not all(isinstance(t, type) for t in types):
        raise TypeError("base_type must be a type or a tuple of types.")
    if not callable(conversion_func):
        raise TypeError("conversion_func must be callable.")
    if any(issubclass(t, (int, float, bool, complex, np.generic, np.ndarray)) and t in _PLAIN for t in types):
        raise TypeError("Cannot register conversions for Python numeric types and NumPy scalars and arrays.")
    _registry.append((priority, base_type, conversion_func))
    _registry.sort(key=lambda row: row[0])


def convert_to_tensor(
    value: Any,
    dtype: Any = None,
    name: str | None = None,
    preferred_dtype: Any = None,
    dtype_hint: Any = None,
    *,
    as_ref: bool = False,
) -> Tensor:
    """`value` as a Tensor: tensors as they are, variables by reading them, everything else as a constant.

    `preferred_dtype` is tried first and dropped if it does not fit; `dtype` must fit.
    """
    if value.__class__ is Tensor:
        if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
            raise ValueError(
                f"Tensor conversion requested dtype {dtypes.as_dtype(dtype).name} for Tensor with dtype {value.dtype.name}: {value!r}"
            )
        return value
    want: DType | None = None if dtype is None else dtypes.as_dtype(dtype).base_dtype
    prefer = preferred_dtype if preferred_dtype is not None else dtype_hint
    if isinstance(value, _PLAIN) or (isinstance(value, (list, tuple)) and not _holds_tensor(value)):
        return _constant(value, want, name, prefer)
    for _, base_type, function in _registry:
        if not isinstance(value, base_type):
            continue
        if want is None and prefer is not None:
            try:
                result = function(value, dtype=dtypes.as_dtype(prefer), name=name, as_ref=as_ref)
            except (TypeError, ValueError):
                result = NotImplemented
            if result is not NotImplemented and result.dtype.base_dtype == dtypes.as_dtype(prefer).base_dtype:
                return result
        result = function(value, dtype=want, name=name, as_ref=as_ref)
        if result is NotImplemented:
            continue
        if not isinstance(result, Tensor):
            raise RuntimeError(f"{name}: Conversion function {function!r} for type {base_type} returned non-Tensor: {result!r}")
        if want is not None and not want.is_compatible_with(result.dtype.base_dtype):
            raise RuntimeError(
                f"{name}: Conversion function {function!r} for type {base_type} returned incompatible dtype: requested = {want.name}, "
                f"actual = {result.dtype.name}"
            )
        return result
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Operation):
        raise TypeError(f"Can't convert Operation '{value.name}' to Tensor (target dtype={want.name if want else None}, name={name!r}, as_ref={as_ref})")
    if isinstance(value, TensorShape):
        return _shape_constant(value, want, name)
    if isinstance(value, Dimension):
        if value.value is None:
            raise ValueError("Cannot convert an unknown Dimension to a Tensor: ?")
        return _constant(value.value, want, name, None)
    if isinstance(value, (list, tuple)):
        return _pack(value, want, name, prefer)
    return _constant(value, want, name, prefer)


def natural_dtype(value: Any) -> DType | None:
    """The type that a plain Python or NumPy value becomes if nothing asks for another; None for anything else."""
    if isinstance(value, _PLAIN) or (isinstance(value, (list, tuple)) and not _holds_tensor(value)):
        try:
            return convert_typed(value, None, None)[0]
        except (TypeError, ValueError):
            return None
    return None


def internal_convert_n(values: Any, dtype: Any = None, name: str | None = None, preferred_dtype: Any = None) -> list[Tensor]:
    if not isinstance(values, (list, tuple)):
        raise TypeError("values must be a sequence.")
    return [
        convert_to_tensor(v, dtype, None if name is None else f"{name}_{i}", preferred_dtype=preferred_dtype)
        for i, v in enumerate(values)
    ]


def convert_to_tensor_or_indexed_slices(value: Any, dtype: Any = None, name: str | None = None) -> Any:
    from penstock.graph.composite import IndexedSlices, SparseTensor

    if isinstance(value, (IndexedSlices, SparseTensor)):
        if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
            raise ValueError(f"Tensor conversion requested dtype {dtypes.as_dtype(dtype).name} for Tensor with dtype {value.dtype.name}: {value!r}")
        return value
    return convert_to_tensor(value, dtype, name)


def _holds_tensor(values: Any, depth: int = 0) -> bool:
    """Whether a nested list holds anything that is not a plain value."""
    if depth > 64:  # as many dimensions as arrays can have
        raise ValueError("Lists are nested too deeply to be a tensor: does one contain itself?")
    for v in values:
        if isinstance(v, _PLAIN) or v is None:
            continue
        if isinstance(v, (list, tuple)):
            if _holds_tensor(v, depth + 1):
                return True
        else:
            return True
    return False


def _constant(value: Any, want: DType | None, name: str | None, prefer: Any) -> Tensor:
    if want is None and prefer is not None:
        try:
            got, array = convert_typed(value, dtypes.as_dtype(prefer).base_dtype)
            return constant_tensor(get_default_graph(), array, got, name or "Const")
        except (TypeError, ValueError):
            pass
    got, array = convert_typed(value, want)
    return constant_tensor(get_default_graph(), array, got, name or "Const")


def _shape_constant(shape: TensorShape, want: DType | None, name: str | None) -> Tensor:
    if not shape.is_fully_defined():
        raise ValueError(f"Cannot convert a partially known TensorShape {shape} to a Tensor.")
    sizes = shape.as_list()
    if want is not None and want not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"Cannot convert a TensorShape to dtype {want.name}.")
    if want is None:
        want = dtypes.int64 if any((s or 0) >= 2**31 for s in sizes) else dtypes.int32
    return constant_tensor(get_default_graph(), np.array(sizes, dtype=want.np), want, name or "shape_as_tensor")


def _pack(values: Any, want: DType | None, name: str | None, prefer: Any) -> Tensor:
    """A list with tensors in it: Pack, converting the plain values to the tensors' dtype."""
    from penstock.graph.raw import raw

    if want is None and prefer is not None:
        try:
            return _pack(values, dtypes.as_dtype(prefer).base_dtype, name, None)
        except (TypeError, ValueError):
            pass  # what is preferred may not be possible
    inferred = _dtype_of_first_tensor(values)
    if want is None:
        want = inferred
    elif inferred is not None and inferred != want:
        values = _cast_tensors(values, want, raw)
    return _pack_level(values, want, prefer, raw, name or "packed")


def _cast_tensors(values: Any, want: DType, raw: Any) -> list[Any]:
    """The nested list with its tensors cast: an explicit dtype wins over the tensors' own."""
    result = []
    for v in values:
        if isinstance(v, (list, tuple)):
            v = _cast_tensors(v, want, raw)
        elif _is_tensor_like(v) and v.dtype.base_dtype != want:
            v = raw.Cast(convert_to_tensor(v), DstT=want)
        result.append(v)
    return result


def _pack_level(values: Any, want: DType | None, prefer: Any, raw: Any, name: str) -> Tensor:
    graph = get_default_graph()
    with graph.name_scope(name) as scope:
        return raw.Pack(_pack_parts(values, want, prefer, raw), axis=0, name=scope)


def _pack_parts(values: Any, want: DType | None, prefer: Any, raw: Any) -> list[Tensor]:
    parts = []
    for i, v in enumerate(values):
        if isinstance(v, (list, tuple)) and _holds_tensor(v):
            parts.append(_pack_level(v, want, prefer, raw, str(i)))
        elif want is not None and _is_tensor_like(v):
            part = convert_to_tensor(v)
            if part.dtype.base_dtype != want:
                raise TypeError(f"Cannot convert a list containing a tensor of dtype {part.dtype!r} to {want!r} (Tensor is: {part!r})")
            parts.append(part)
        else:
            parts.append(convert_to_tensor(v, want, name=str(i), preferred_dtype=prefer))
    return parts


def _is_tensor_like(value: Any) -> bool:
    return isinstance(value, Tensor) or (hasattr(value, "dtype") and not isinstance(value, (np.ndarray, np.generic)))


def _dtype_of_first_tensor(values: Any) -> DType | None:
    for v in values:
        if _is_tensor_like(v):
            return v.dtype.base_dtype
        if isinstance(v, (list, tuple)):
            found = _dtype_of_first_tensor(v)
            if found is not None:
                return found
    return None
