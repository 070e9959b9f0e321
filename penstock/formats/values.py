"""Python values -> arrays: the rules by which `tf.constant` reads its argument.

Python floats become float32, ints int32 (int64 where they do not fit), complex numbers complex128, text and bytes
string; NumPy arrays keep their type. Where a type is asked for, Python values must fit it without losing their kind
(1.5 is no int32, 1 is no bool), while NumPy arrays are cast. Error classes and texts are TF's.

A string array is an object array of `bytes`, and quantised values are held in their plain integer type.
"""

from __future__ import annotations

import math
import numbers
from typing import Any, NoReturn

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.shapes import Dimension

# A value repeated over more bytes than this becomes a view that repeats one element, instead of memory.
FILL_LIMIT = 1 << 28


def convert_values(
    values: Any,
    dtype: Any = None,
    shape: Any = None,
    verify_shape: bool = False,
    allow_broadcast: bool = False,
) -> np.ndarray:
    """The array that `tf.constant(values, dtype, shape)` holds.

    `shape` may ask for more elements than there are: the last one is repeated. `verify_shape` refuses any other shape
    than that of the values; `allow_broadcast` only repeats single values (TF2's rule).

    >>> convert_values([1, 2], shape=[2, 2])
    array([[1, 2],
           [2, 2]], dtype=int32)
    """
    return convert_typed(values, dtype, shape, verify_shape, allow_broadcast)[1]


def convert_typed(
    values: Any,
    dtype: Any = None,
    shape: Any = None,
    verify_shape: bool = False,
    allow_broadcast: bool = False,
) -> tuple[DType, np.ndarray]:
    """`convert_values` together with the DType, which the array alone does not tell for quantised types."""
    if shape is None and not (verify_shape and allow_broadcast):
        if dtype is not None and dtype.__class__ is not DType:
            dtype = dtypes.as_dtype(dtype)
        found = _SCALARS.get((values.__class__, dtype))
        if found is not None:
            try:
                return found, np.array(values, found.np)
            except OverflowError:  # wraps or widens below
                pass
        return _to_array(values, dtype)
    found, array, dims = convert_unfilled(values, dtype, shape, verify_shape, allow_broadcast)
    return found, fill(array, dims)


def convert_unfilled(
    values: Any, dtype: Any, shape: Any, verify_shape: bool, allow_broadcast: bool
) -> tuple[DType, np.ndarray, tuple[int, ...]]:
    """Type, given elements (maybe fewer than the shape wants), and the shape."""
    if allow_broadcast and verify_shape:
        raise ValueError("allow_broadcast and verify_shape are not both allowed.")
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype)
    if shape is None:
        found, array = _to_array(values, dtype)
        return found, array, array.shape
    dims = tuple([int(d) for d in shape])
    size = math.prod(dims)
    if size == 0 and values is not None and not _is_array_like(values):
        # TF does not look at the values in this case.
        dtype = dtypes.float32 if dtype is None else dtype.base_dtype
        return dtype, np.empty(dims, dtype.np), dims
    found, array = _to_array(values, dtype)
    if allow_broadcast:
        if array.shape not in ((), (1,)) and array.size != size:
            raise TypeError(f"Expected Tensor's shape: {dims}, but got {array.shape}.")
    elif verify_shape and array.shape != dims:
        raise TypeError(f"Expected Tensor's shape: {dims}, but got {array.shape}.")
    elif array.size > size:
        raise ValueError(f"Too many elements provided. Takes at most {size}, but got {array.size}.")
    if dims and min(dims) < 0:
        raise ValueError(f"Dimension {min(dims)} must be >= 0")
    return found, array, dims


def fill(array: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """The elements of `array` in the given shape, the last one repeated as often as needed (0 if there is none)."""
    size = math.prod(dims)
    if array.size == size:
        return array.reshape(dims)
    flat = array.reshape(-1)
    if flat.size == 0:
        flat = np.array([b""], object) if array.dtype.hasobject else np.zeros(1, array.dtype)
    if flat.size == 1:
        if size * array.dtype.itemsize > FILL_LIMIT:
            return np.broadcast_to(flat.reshape((1,) * len(dims)), dims)
        out = np.empty(dims, array.dtype)
        out.fill(flat[0])
        return out
    out = np.empty(size, array.dtype)
    out[: flat.size] = flat
    out[flat.size :] = flat[-1]
    return out.reshape(dims)


# -- one value, no shape -----------------------------------------------------------------------------------------


def _to_array(values: Any, dtype: DType | None) -> tuple[DType, np.ndarray]:
    if dtype is not None:
        dtype = dtype.base_dtype
    if isinstance(values, (np.ndarray, np.generic)):
        return _from_numpy(values, dtype)
    if values is None:
        raise ValueError("None values not supported.")
    if _is_array_like(values):
        return _from_numpy(np.asarray(values), dtype)
    if dtype is not None:
        return dtype, _from_python(values, dtype)
    return _infer(values)


def _is_array_like(values: Any) -> bool:
    if isinstance(values, (list, tuple, int, float, str, bytes)):
        return False
    return (
        isinstance(values, (np.ndarray, np.generic, bytearray, memoryview))
        or callable(getattr(values, "__array__", None))
        or isinstance(getattr(values, "__array_interface__", None), dict)
    )


def _from_numpy(values: np.ndarray | np.generic, dtype: DType | None) -> tuple[DType, np.ndarray]:
    """A copy, because the caller may go on to change the array."""
    if dtype is None:
        dtype = dtypes.from_np(values.dtype)
    if dtype is dtypes.string:
        return dtype, _bytes_array(np.asarray(values))
    if values.dtype.names:  # TF's structured types for quantised values
        values = np.asarray(values).view(dtypes.from_np(values.dtype).np)
    if dtype in (dtypes.resource, dtypes.variant):
        raise TypeError(f"`dtype` {dtype} is not compatible with {values} of dtype {values.dtype}.")
    if values.dtype == dtype.np:
        return dtype, np.array(values, order="C", subok=False)
    return dtype, np.asarray(values).astype(dtype.np, order="C")


def _bytes_array(array: np.ndarray) -> np.ndarray:
    values = array.reshape(-1).tolist()
    kinds = list(map(type, values))
    if array.dtype == object and kinds.count(bytes) == len(kinds):
        return np.array(array, order="C", subok=False)
    out = np.empty(array.shape, object)
    flat = out.reshape(-1)
    kinds = set(kinds)
    if len(kinds) == 1 and kinds <= {bytes, str}:
        if str in kinds:
            # All at once, if no string has the separator in it.
            pieces = "\0".join(values).encode("utf-8").split(b"\0")
            values = pieces if len(pieces) == len(values) else [x.encode("utf-8") for x in values]
        flat[:] = values
        return out
    for i, x in enumerate(values):
        if x.__class__ is bytes:
            flat[i] = x
        elif isinstance(x, str):
            flat[i] = x.encode("utf-8")
        elif isinstance(x, bytes):
            flat[i] = bytes(x)
        else:
            raise TypeError(f"Expected binary or unicode string, got {x!r}")
    return out


# -- Python values: what kinds of elements there are decides -----------------------------------------------------

# Kinds of elements: Python's bool, int, float; any complex number; text or bytes; NumPy's bool, int, float; extension
# number (bfloat16, int4, ...); Dimension; array; nested list; other.
_BOOL, _INT, _FLOAT, _COMPLEX, _STRING, _NPBOOL, _NPINT, _NPFLOAT, _EXTENSION, _DIMENSION, _ARRAY, _LIST, _OTHER = (
    "bifcsBIFxdal?"
)
_INFERABLE = frozenset({_BOOL, _INT, _FLOAT, _COMPLEX, _NPBOOL, _NPINT, _NPFLOAT, _EXTENSION, _ARRAY})
_ONLY_INT, _ONLY_FLOAT, _ONLY_STRING = {_INT}, {_FLOAT}, {_STRING}
_KIND_OF: dict[type, str] = {
    bool: _BOOL,
    int: _INT,
    float: _FLOAT,
    complex: _COMPLEX,
    str: _STRING,
    bytes: _STRING,
    list: _LIST,
    tuple: _LIST,
    np.bool_: _NPBOOL,
    np.ndarray: _ARRAY,
    Dimension: _DIMENSION,
    type(None): _OTHER,
}


def _kind(cls: type) -> str:
    kind = _KIND_OF.get(cls)
    if kind is None:
        kind = _KIND_OF[cls] = _find_kind(cls)
    return kind


def _find_kind(cls: type) -> str:
    for bases, kind in (
        ((list, tuple), _LIST),
        ((str, bytes), _STRING),
        (np.integer, _NPINT),
        (np.floating, _NPFLOAT),
        (int, _INT),
        (numbers.Integral, _NPINT),
        (numbers.Real, _NPFLOAT),
        ((numbers.Complex, np.complexfloating), _COMPLEX),
        (np.ndarray, _ARRAY),
        (Dimension, _DIMENSION),
    ):
        if issubclass(cls, bases):
            return kind
    if issubclass(cls, np.generic) and dtypes._FROM_NP.get(np.dtype(cls)) is not None:
        return _EXTENSION
    return _OTHER


def _accepted(dtype: DType) -> frozenset[str]:
    """The kinds that may stand where a type is asked for. NumPy bools and extension numbers are taken where they lose
    nothing, a bit more than TF takes."""
    if dtype.is_integer:
        return frozenset({_BOOL, _INT, _NPINT, _DIMENSION})
    if dtype.is_floating:
        return frozenset({_BOOL, _INT, _NPINT, _FLOAT, _NPFLOAT, _EXTENSION})
    if dtype.is_complex:
        return frozenset({_BOOL, _INT, _NPINT, _FLOAT, _NPFLOAT, _EXTENSION, _COMPLEX})
    if dtype.is_bool:
        return frozenset({_BOOL, _NPBOOL})
    return frozenset({_STRING}) if dtype is dtypes.string else frozenset()


_ACCEPTED: dict[DType, frozenset[str]] = {t: _accepted(t) for t in dtypes.ALL_DTYPES}

# The scalars that go straight into NumPy, by class and wanted type; string scalars are left to the general road.
_SCALARS: dict[tuple[type, DType | None], DType] = {
    (cls, dtype): dtype
    for dtype, kinds in _ACCEPTED.items()
    for cls in (bool, int, float, complex)
    if _KIND_OF[cls] in kinds
}
_SCALARS.update({(bool, None): dtypes.bool, (int, None): dtypes.int32, (float, None): dtypes.float32})


def _kinds(values: Any) -> set[str]:
    """The kinds of all elements of nested lists."""
    if _kind(values.__class__) is not _LIST:
        return {_kind(values.__class__)}
    kinds = {_kind(cls) for cls in set(map(type, values))}
    if _LIST in kinds:
        kinds.discard(_LIST)
        for item in values:
            if isinstance(item, (list, tuple)):
                kinds |= _kinds(item)
    return kinds


def _infer(values: Any) -> tuple[DType, np.ndarray]:
    try:
        kinds = _kinds(values)
    except RecursionError:
        raise ValueError("Lists are nested too deeply to be an array: does one contain itself?") from None
    if kinds == _ONLY_STRING:
        return dtypes.string, _string_array(values)
    try:  # what nearly all lists are, in one go
        if kinds == _ONLY_INT:
            return dtypes.int32, np.array(values, np.int32)
        if kinds == _ONLY_FLOAT:
            return dtypes.float32, np.array(values, np.float32)
    except OverflowError:
        pass
    if not kinds <= _INFERABLE:
        if not isinstance(values, (list, tuple)) and np.iterable(values):
            _check_dense(values, _numpy_or_none(values))  # ranges and the like: TF calls them not dense
        _raise_unconvertible(values)
    array = np.array(values)
    _check_dense(values, array)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    elif array.dtype == np.int64:
        narrow = array.astype(np.int32)
        if (narrow == array).all():
            array = narrow
    elif array.dtype.hasobject:
        _raise_unconvertible(values)
    return dtypes.from_np(array.dtype), array


def _from_python(values: Any, dtype: DType) -> np.ndarray:
    if dtype.is_quantized:
        return _quantised_array(values, dtype)
    kinds = _kinds(values)
    accepted = _ACCEPTED[dtype]
    if not kinds <= accepted:
        if not accepted:
            raise TypeError(f"`dtype` {dtype} is not compatible with {values} of dtype {np.array(values).dtype}.")
        if not kinds - accepted <= {_ARRAY}:
            _raise_mismatch(values, dtype, accepted)
        if _first_other(values, accepted) is not None:
            _raise_mismatch(values, dtype, accepted)
        array = np.array(values)
        _check_dense(values, array)
        return array.astype(dtype.np)
    if dtype is dtypes.string:
        return _string_array(values, object)
    try:
        return np.array(values, dtype.np)
    except OverflowError:
        # Integers beyond the type wrap around, as in TF; beyond 64 bits this raises OverflowError, as in TF.
        return np.array(values).astype(dtype.np)


def _numpy_or_none(values: Any) -> np.ndarray | None:
    try:
        return np.array(values)
    except TypeError:
        return None


def _dense_dims(values: Any) -> list[int]:
    dims = []
    while isinstance(values, (list, tuple)):
        dims.append(len(values))
        if not values:
            break
        values = values[0]
    return dims


def _check_dense(values: Any, array: np.ndarray | None) -> None:
    if array is None:
        return
    wanted = _dense_dims(values)
    if list(array.shape) != wanted:
        raise ValueError(
            f"Expected values {values} to be a dense tensor with shape {wanted}, but got shape {list(array.shape)}."
        )


def _string_array(values: Any, wanted: Any = None) -> np.ndarray:
    if isinstance(values, (list, tuple)):
        dims = _dense_dims(values)
        flat: list[bytes] = []
        if not _flatten(values, dims, 0, flat):
            _check_dense(values, np.array(values, wanted))  # NumPy may raise itself
            raise ValueError(f"Expected values {values} to be a dense tensor with shape {dims}.")
        out = np.empty(len(flat), object)
        out[:] = flat
        return out.reshape(dims)
    out = np.empty((), object)
    out[()] = values.encode("utf-8") if isinstance(values, str) else bytes(values)
    return out


def _flatten(values: Any, dims: list[int], depth: int, flat: list[bytes]) -> bool:
    """Appends the strings in order; False if the lists are ragged."""
    if len(values) != dims[depth]:
        return False
    last = depth + 1 == len(dims)
    for item in values:
        if isinstance(item, (list, tuple)):
            if last or not _flatten(item, dims, depth + 1, flat):
                return False
        elif not last:
            return False
        else:
            flat.append(item.encode("utf-8") if isinstance(item, str) else bytes(item))
    return True


def _quantised_array(values: Any, dtype: DType) -> np.ndarray:
    """Quantised elements are written as one-tuples: `tf.constant([(1,), (2,)], tf.qint8)`."""
    item = values
    while isinstance(item, list) and item:
        item = item[0]
    if not isinstance(item, (tuple, list)):
        raise TypeError(f"Expected {dtype.name}, but got {item} of type '{type(item).__name__}'.")
    return np.array(values, dtype.as_numpy_dtype).view(dtype.np)


def _raise_mismatch(values: Any, dtype: DType, accepted: frozenset[str]) -> NoReturn:
    bad = _first_other(values, accepted)
    raise TypeError(f"Expected {dtype.name}, but got {bad} of type '{type(bad).__name__}'.")


def _first_other(values: Any, accepted: frozenset[str]) -> Any:
    """The first element whose kind is not accepted; None if there is none (None itself is never accepted)."""
    stack = [values]
    while stack:
        item = stack.pop()
        if isinstance(item, (list, tuple)):
            stack.extend(reversed(item))
        elif _kind(item.dtype.type if isinstance(item, np.ndarray) else item.__class__) not in accepted:
            return item
    return None


def _raise_unconvertible(values: Any) -> NoReturn:
    raise TypeError(
        f"Failed to convert elements of {values} to Tensor. Consider casting elements to a supported type. See "
        "https://www.tensorflow.org/api_docs/python/tf/dtypes for supported TF dtypes."
    )
