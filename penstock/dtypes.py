"""The element types of tensors: `DType`, TF's numbering, and the road to and from NumPy.

There is exactly one `DType` object per TF type (reference types such as `float32_ref` included), so `is` and `==`
agree, and a type is a cheap dictionary key. A DType knows two NumPy types:

- `as_numpy_dtype`: what TF reports. For quantised types this is a structured dtype with one named field.
- `np`: the `np.dtype` that kernels store elements in. Quantised types use the plain integer, strings, resources and
  variants use `object`.

The upper-case sets (`FLOATS`, `NUMBERS`, ...) are what op declarations say about their type attributes.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np


class DType:
    """The type of a tensor's elements, e.g. `tf.float32`.

    `DType(1)` returns the one object for TF's enum number 1. Anything that `tf.as_dtype` accepts can be compared
    with a DType: `tf.float32 == np.float32` and `tf.float32 == "float32"` hold.
    """

    __slots__ = (
        "__weakref__",
        "_is_ref_dtype",
        "_ref",
        "_type_enum",
        "as_numpy_dtype",
        "base_dtype",
        "is_bool",
        "is_complex",
        "is_floating",
        "is_integer",
        "is_numeric",
        "is_quantized",
        "is_unsigned",
        "name",
        "np",
    )

    _type_enum: int
    name: str
    np: np.dtype
    as_numpy_dtype: Any
    base_dtype: DType
    is_quantized: builtins.bool
    is_floating: builtins.bool
    is_integer: builtins.bool
    is_complex: builtins.bool
    is_bool: builtins.bool
    is_unsigned: builtins.bool
    is_numeric: builtins.bool
    _is_ref_dtype: builtins.bool
    _ref: DType

    def __new__(cls, type_enum: int, handle_data: Any = None) -> DType:
        try:
            return _BY_ENUM[type_enum]
        except (KeyError, TypeError):
            raise TypeError(f"{type_enum} does not correspond to a valid tensorflow::DataType") from None

    @property
    def as_datatype_enum(self) -> int:
        """TF's number for the type (a `DataType` value of types.proto)."""
        return self._type_enum

    @property
    def real_dtype(self) -> DType:
        """The type of the real part: float32 for complex64, float64 for complex128, else the type itself."""
        base = self.base_dtype
        if base is complex64:
            return float32
        if base is complex128:
            return float64
        return self

    @property
    def is_numpy_compatible(self) -> builtins.bool:
        return self.base_dtype not in (resource, variant)

    @property
    def _as_ref(self) -> DType:
        """The reference version of the type, which TF1's ref variables hand out."""
        return self._ref

    @property
    def size(self) -> int:
        """Bytes per element; 0 for strings, resources and variants, whose elements have no fixed size."""
        return 0 if self.np.hasobject else self.np.itemsize

    @property
    def min(self) -> Any:
        """The smallest value of the type. TypeError where there is none."""
        return self._limit("minimum")

    @property
    def max(self) -> Any:
        """The largest value of the type. TypeError where there is none."""
        return self._limit("maximum")

    def _limit(self, which: str) -> Any:
        base = self.base_dtype
        if self.is_quantized:
            raise TypeError(f"Cannot find {which} value of {self} with quantized type {base}.")
        if base in (bool, string, complex64, complex128):
            raise TypeError(f"Cannot find {which} value of {self} with type {base}.")
        info = _number_info(self.np)
        if info is None:
            raise TypeError(f"Cannot find {which} value of {self}.")
        return info.min if which == "minimum" else info.max

    @property
    def limits(self) -> tuple[Any, Any]:
        """`(0, max)` for image conversions, where floats reach up to 1. ValueError for types without limits."""
        try:
            return 0, _UPPER_LIMITS[self.base_dtype]
        except KeyError:
            raise ValueError(f"{self} does not have defined limits.") from None

    def is_compatible_with(self, other: Any) -> builtins.bool:
        """True if a tensor of type `other` can be used where this type is wanted: equal, or a reference to it."""
        other = as_dtype(other)
        return self is other or self is other.base_dtype

    def is_subtype_of(self, other: Any) -> builtins.bool:
        return self == other

    def most_specific_common_supertype(self, others: Iterable[Any]) -> DType | None:
        return self if all(self == other for other in others) else None

    def __eq__(self, other: object) -> Any:
        if self is other:
            return True
        if other is None or other.__class__ is DType:
            return False
        try:
            return as_dtype(other) is self
        except TypeError:
            return False

    def __ne__(self, other: object) -> Any:
        return not self == other

    # Types are unique objects, so the identity hash is both right and the fastest one.
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "tf." + self.name

    def __str__(self) -> str:
        return f"<dtype: {self.name!r}>"

    def __int__(self) -> int:
        return self._type_enum

    def __reduce__(self):
        return as_dtype, (self.name,)

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: Any) -> DType:
        return self


_BY_ENUM: dict[int, DType] = {}
_REF_OFFSET = 100
_FLOATING, _INTEGER, _COMPLEX, _BOOL, _QUANTISED, _OBJECT = range(6)


def _define(enum: int, name: str, storage: Any, kind: int) -> DType:
    """Makes the type and its reference twin, and enters both in the table."""
    np_dtype = np.dtype(storage)
    pair = []
    for number, label in ((enum, name), (enum + _REF_OFFSET, name + "_ref")):
        dtype = object.__new__(DType)
        dtype._type_enum = number
        dtype.name = label
        dtype.np = np_dtype
        if kind == _QUANTISED:
            dtype.as_numpy_dtype = np.dtype([(name, np_dtype.type)])
        else:
            dtype.as_numpy_dtype = object if kind == _OBJECT else np_dtype.type
        dtype.is_quantized = kind == _QUANTISED
        dtype.is_floating = kind == _FLOATING
        dtype.is_integer = kind == _INTEGER
        dtype.is_complex = kind == _COMPLEX
        dtype.is_bool = kind == _BOOL
        dtype.is_unsigned = kind == _INTEGER and name.startswith("u")
        # TF does not count the small ml_dtypes types (from float8 on) as numeric.
        dtype.is_numeric = kind in (_FLOATING, _INTEGER, _COMPLEX, _QUANTISED) and enum < 24
        dtype._is_ref_dtype = number != enum
        _BY_ENUM[number] = dtype
        pair.append(dtype)
    for dtype in pair:
        dtype.base_dtype, dtype._ref = pair
    return pair[0]


float32 = _define(1, "float32", np.float32, _FLOATING)
float64 = _define(2, "float64", np.float64, _FLOATING)
int32 = _define(3, "int32", np.int32, _INTEGER)
uint8 = _define(4, "uint8", np.uint8, _INTEGER)
int16 = _define(5, "int16", np.int16, _INTEGER)
int8 = _define(6, "int8", np.int8, _INTEGER)
string = _define(7, "string", np.object_, _OBJECT)
complex64 = _define(8, "complex64", np.complex64, _COMPLEX)
int64 = _define(9, "int64", np.int64, _INTEGER)
bool = _define(10, "bool", np.bool_, _BOOL)  # TF's name; the built-in is builtins.bool in this module
qint8 = _define(11, "qint8", np.int8, _QUANTISED)
quint8 = _define(12, "quint8", np.uint8, _QUANTISED)
qint32 = _define(13, "qint32", np.int32, _QUANTISED)
bfloat16 = _define(14, "bfloat16", ml_dtypes.bfloat16, _FLOATING)
qint16 = _define(15, "qint16", np.int16, _QUANTISED)
quint16 = _define(16, "quint16", np.uint16, _QUANTISED)
uint16 = _define(17, "uint16", np.uint16, _INTEGER)
complex128 = _define(18, "complex128", np.complex128, _COMPLEX)
float16 = _define(19, "float16", np.float16, _FLOATING)
resource = _define(20, "resource", np.object_, _OBJECT)
variant = _define(21, "variant", np.object_, _OBJECT)
uint32 = _define(22, "uint32", np.uint32, _INTEGER)
uint64 = _define(23, "uint64", np.uint64, _INTEGER)
float8_e5m2 = _define(24, "float8_e5m2", ml_dtypes.float8_e5m2, _FLOATING)
float8_e4m3fn = _define(25, "float8_e4m3fn", ml_dtypes.float8_e4m3fn, _FLOATING)
float8_e4m3fnuz = _define(26, "float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, _FLOATING)
float8_e4m3b11fnuz = _define(27, "float8_e4m3b11fnuz", ml_dtypes.float8_e4m3b11fnuz, _FLOATING)
float8_e5m2fnuz = _define(28, "float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, _FLOATING)
int4 = _define(29, "int4", ml_dtypes.int4, _INTEGER)
uint4 = _define(30, "uint4", ml_dtypes.uint4, _INTEGER)
int2 = _define(31, "int2", ml_dtypes.int2, _INTEGER)
uint2 = _define(32, "uint2", ml_dtypes.uint2, _INTEGER)
float4_e2m1fn = _define(33, "float4_e2m1fn", ml_dtypes.float4_e2m1fn, _FLOATING)

half = float16
double = float64

ALL_DTYPES: tuple[DType, ...] = tuple(_BY_ENUM[n] for n in sorted(_BY_ENUM) if n < _REF_OFFSET)
"""Every base type, in TF's order."""

# -- sets for op declarations ------------------------------------------------------------------------------------

FLOATS = frozenset({bfloat16, float16, float32, float64})
"""Real floating-point types that ordinary kernels take."""
FLOAT8S = frozenset({float8_e5m2, float8_e4m3fn, float8_e4m3fnuz, float8_e4m3b11fnuz, float8_e5m2fnuz})
"""Eight-bit floating-point types."""
COMPLEX = frozenset({complex64, complex128})
"""Complex types."""
SIGNED_INTS = frozenset({int8, int16, int32, int64})
"""Signed integers of 8 to 64 bits."""
UNSIGNED_INTS = frozenset({uint8, uint16, uint32, uint64})
"""Unsigned integers of 8 to 64 bits."""
INTS = SIGNED_INTS | UNSIGNED_INTS
"""All integers of 8 to 64 bits."""
QUANTIZED = frozenset({qint8, quint8, qint16, quint16, qint32})
"""Quantised types (OpDef's `quantizedtype`)."""
REALS = FLOATS | INTS
"""OpDef's `realnumbertype`: floats and integers."""
NUMBERS = REALS | COMPLEX | QUANTIZED
"""OpDef's `numbertype`: reals, complex and quantised types."""
INDEX = frozenset({int32, int64})
"""The types that indices, axes and shapes come in."""
ALL = frozenset(ALL_DTYPES)
"""Every type, for attributes without a restriction."""

QUANTIZED_DTYPES = QUANTIZED | frozenset(t._as_ref for t in QUANTIZED)
"""TF's constant: the quantised types and their references."""


def ordered(types: Iterable[DType]) -> tuple[DType, ...]:
    """A set of types in TF's numbering order, for messages and OpDefs (sets have no order of their own)."""
    return tuple(sorted(types, key=DType.as_datatype_enum.fget))  # type: ignore[attr-defined]


# -- conversions -------------------------------------------------------------------------------------------------

_UPPER_LIMITS: dict[DType, Any] = {t: int(np.iinfo(t.np).max) for t in INTS}
_UPPER_LIMITS.update({float32: 1, float64: 1, bool: True})


def _number_info(np_dtype: np.dtype) -> Any:
    for info in (np.finfo, np.iinfo, ml_dtypes.finfo, ml_dtypes.iinfo):
        try:
            return info(np_dtype)
        except (ValueError, TypeError):
            continue
    return None


# Several TF types share a NumPy storage type; these are the ones that a plain array of it becomes.
_FROM_NP: dict[Any, DType] = {t.np: t for t in ALL_DTYPES if not t.is_quantized and t not in (resource, variant)}


def _all_spellings() -> dict[Any, DType]:
    table: dict[Any, DType] = dict(_BY_ENUM)
    for dtype in _BY_ENUM.values():
        table[dtype] = dtype
        table[dtype.name] = dtype
    for np_dtype, dtype in _FROM_NP.items():
        table[np_dtype] = dtype
        table[np_dtype.type] = dtype
    for dtype in QUANTIZED:
        table[dtype.as_numpy_dtype] = dtype
    for alias, dtype in (("half", float16), ("float", float32), ("double", float64)):
        table[alias] = dtype
        table[alias + "_ref"] = dtype._as_ref
    table.update({float: float32, builtins.bool: bool, object: string})
    return table


_CACHE: dict[Any, DType] = _all_spellings()


def as_dtype(type_value: Any) -> DType:
    """Converts to a DType: a DType, TF's enum number, a name, a NumPy dtype or scalar type, or a Python type.

    >>> as_dtype("float"), as_dtype(np.int64), as_dtype(101)
    (tf.float32, tf.int64, tf.float32_ref)
    """
    if type_value.__class__ is DType:
        return type_value
    try:
        return _CACHE[type_value]
    except (KeyError, TypeError):
        return _as_dtype_slow(type_value)


def _as_dtype_slow(type_value: Any) -> DType:
    is_type = isinstance(type_value, type) and issubclass(type_value, np.generic)
    if is_type or isinstance(type_value, np.dtype):
        candidate: Any = type_value
    else:
        candidate = getattr(type_value, "dtype", None)
    if candidate.__class__ is DType:
        return candidate
    try:
        if candidate is not None:
            dtype = from_np(np.dtype(candidate))
            if candidate is type_value:
                _CACHE[type_value] = dtype
            return dtype
    except TypeError:
        pass
    # As in TF, Python's int, str and the like, and NumPy's character codes, are no types of tensors.
    raise TypeError(f"Cannot convert the argument `type_value`: {type_value!r} to a TensorFlow DType.")


def from_np(np_dtype: np.dtype) -> DType:
    """The DType of a NumPy array with this `dtype`: a fast look-up. Object, bytes and text arrays are strings."""
    try:
        return _FROM_NP[np_dtype]
    except KeyError:
        pass
    if np_dtype.kind in "SU":
        return string
    found = _CACHE.get(np_dtype) or _FROM_NP.get(np_dtype.newbyteorder("="))
    if found is None:
        raise TypeError(f"Cannot convert the argument `type_value`: {np_dtype!r} to a TensorFlow DType.")
    return found
