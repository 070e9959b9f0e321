"""AttrValue <-> Python values: what an attribute of a node is inside Penstock.

| kind (OpDef's word) | in the proto | in Python |
|---|---|---|
| string | s | bytes |
| int, float, bool | i, f, b | int, float, bool |
| type | type | DType |
| shape | shape | TensorShape |
| tensor | tensor | TensorAttr(dtype, array) |
| func | func | FuncAttr(name, attrs) |
| list(...) | list | list of these |
| (in function bodies) | placeholder | Placeholder(name) |

An AttrValue with nothing set is None. An importer that must carry along a value that cannot be decoded may keep the
AttrValue itself: `encode` takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from penstock import dtypes, errors
from penstock.dtypes import DType
from penstock.formats import protos
from penstock.formats.tensor_proto import from_array, to_array
from penstock.shapes import Dims, TensorShape, as_shape

# -- values that Python has no type for --------------------------------------------------------------------------


class TensorAttr:
    """A tensor as an attribute: the array has the DType's storage type."""

    __slots__ = ("array", "dtype")

    def __init__(self, dtype: DType, array: np.ndarray) -> None:
        self.dtype = dtype
        self.array = array

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorAttr):
            return NotImplemented
        a, b = self.array, other.array
        if self.dtype is not other.dtype or a.shape != b.shape:
            return False
        # Bit by bit, so that NaN equals itself and -0.0 differs from 0.0.
        return a is b or (a.tolist() == b.tolist() if a.dtype.hasobject else a.tobytes() == b.tobytes())

    def __hash__(self) -> int:
        return hash((self.dtype, self.array.shape))

    def __repr__(self) -> str:
        return f"TensorAttr({self.dtype!r}, {self.array!r})"

    def __reduce__(self):
        return TensorAttr, (self.dtype, self.array)


class FuncAttr:
    """A function as an attribute: its name, and the attributes to instantiate it with."""

    __slots__ = ("attrs", "name")

    def __init__(self, name: str, attrs: dict[str, Any] | None = None) -> None:
        self.name = name
        self.attrs = {} if attrs is None else attrs

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FuncAttr):
            return NotImplemented
        return self.name == other.name and self.attrs == other.attrs

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.attrs))))

    def __repr__(self) -> str:
        return f"FuncAttr({self.name!r}, {self.attrs!r})" if self.attrs else f"FuncAttr({self.name!r})"

    def __reduce__(self):
        return FuncAttr, (self.name, self.attrs)


class Placeholder:
    """Inside a function body: the value of the caller's attribute of this name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, Placeholder) else NotImplemented

    def __hash__(self) -> int:
        return hash((Placeholder, self.name))

    def __repr__(self) -> str:
        return f"Placeholder({self.name!r})"

    def __reduce__(self):
        return Placeholder, (self.name,)


# -- proto -> Python ---------------------------------------------------------------------------------------------

_MAX_DEPTH = 28  # of functions in attributes of functions: protobuf itself reads about 30 levels in a GraphDef


def decode(proto: Any, kind: str | None = None) -> Any:
    """The Python value of an AttrValue; None if nothing is set.

    With `kind` (e.g. "list(type)") the value must be of that kind: InvalidArgumentError in TF's words if it is not.
    """
    member = proto.WhichOneof("value")
    if kind is not None:
        _check_kind(proto, member, kind)
    if member is None:
        return None
    decoder = _DECODERS.get(member)
    if decoder is None:  # s, i, f, b
        return getattr(proto, member)
    return decoder(getattr(proto, member))


def decode_all(attrs: Any) -> dict[str, Any]:
    """The Python values of a NodeDef's `attr` map (or any map of AttrValues)."""
    return {name: decode(attrs[name]) for name in attrs}


def kind_of(proto: Any) -> str | None:
    """OpDef's word for what an AttrValue holds: "int", "list(type)", ...; "list" if it is empty, None for nothing."""
    member = proto.WhichOneof("value")
    if member is None:
        return None
    if member != "list":
        return _KIND_OF_MEMBER[member]
    members = [field.name for field, _ in proto.list.ListFields()]
    return f"list({_KIND_OF_MEMBER[members[0]]})" if members else "list"


def _check_kind(proto: Any, member: str | None, kind: str) -> None:
    if member == "placeholder" or kind == "any":
        return
    found = kind_of(proto)
    if found == kind or (found == "list" and kind.startswith("list(")):
        return
    if found is None or found == "list":
        raise errors.InvalidArgumentError(f"AttrValue missing value with expected type '{kind}'")
    raise errors.InvalidArgumentError(f"AttrValue had value with type '{found}' when '{kind}' expected")


def _decode_type(number: int) -> DType:
    found = dtypes._BY_ENUM.get(number)
    if found is None:
        raise errors.InvalidArgumentError(
            f"AttrValue has invalid DataType enum: {number}" if number else "AttrValue has invalid DataType"
        )
    return found


def decode_dims(proto: Any) -> Dims:
    """Raw dims of a TensorShapeProto."""
    dims = tuple([d.size for d in proto.dim])
    if proto.unknown_rank:
        if dims:
            raise errors.InvalidArgumentError("An unknown shape must not have any dimensions set.")
        return None
    if dims and min(dims) < 0:
        if min(dims) < -1:
            text = ",".join(["?" if d == -1 else str(d) for d in dims])
            raise errors.InvalidArgumentError(
                f"Shape [{text}] has dimensions with values below -1 (where -1 means unknown)"
            )
        return tuple([None if d == -1 else d for d in dims])
    return dims


def _decode_shape(proto: Any) -> TensorShape:
    return TensorShape.from_dims(decode_dims(proto))


def _decode_tensor(proto: Any) -> TensorAttr:
    array = to_array(proto)
    return TensorAttr(dtypes._BY_ENUM[proto.dtype], array)


def decode_func(proto: Any, depth: int = 0) -> FuncAttr:
    """A FuncAttr from a NameAttrList."""
    if depth > _MAX_DEPTH:
        raise errors.InvalidArgumentError(f"Functions as attributes of functions are nested more than {_MAX_DEPTH} deep")
    attrs = {}
    for name in proto.attr:
        value = proto.attr[name]
        attrs[name] = decode_func(value.func, depth + 1) if value.WhichOneof("value") == "func" else decode(value)
    return FuncAttr(proto.name, attrs)


def _decode_list(proto: Any) -> list[Any]:
    fields = proto.ListFields()
    if not fields:
        return []
    if len(fields) > 1:
        names = ", ".join([_KIND_OF_MEMBER[field.name] for field, _ in fields])
        raise errors.InvalidArgumentError(f"AttrValue list holds values of several types: {names}")
    field, values = fields[0]
    decoder = _DECODERS.get(field.name)
    return list(values) if decoder is None else [decoder(v) for v in values]


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "type": _decode_type,
    "shape": _decode_shape,
    "tensor": _decode_tensor,
    "func": decode_func,
    "list": _decode_list,
    "placeholder": Placeholder,
}
_KIND_OF_MEMBER = {
    "s": "string",
    "i": "int",
    "f": "float",
    "b": "bool",
    "type": "type",
    "shape": "shape",
    "tensor": "tensor",
    "func": "func",
    "placeholder": "placeholder",
}


# -- Python -> proto ---------------------------------------------------------------------------------------------


def encode(value: Any, kind: str | None = None) -> protos.AttrValue:
    """An AttrValue of a Python value. `kind` is OpDef's word for the attribute's type; without it the value decides.

    >>> encode([1, 2], "list(float)").list.f
    [1.0, 2.0]
    """
    proto = protos.AttrValue()
    encode_into(proto, value, kind)
    return proto


def encode_into(proto: Any, value: Any, kind: str | None = None) -> None:
    """`encode` into an AttrValue that stands in its place already, such as `node_def.attr["T"]`."""
    if value.__class__ is Placeholder:
        proto.placeholder = value.name
    elif value is None:
        proto.Clear()
    elif isinstance(value, protos.AttrValue):
        proto.CopyFrom(value)
    elif kind is None or kind == "any":
        if isinstance(value, (list, tuple)):
            _encode_list(proto, value, _infer_kind(value[0]) if value else None)
        else:
            _ENCODERS[_infer_kind(value)](proto, value)
    elif kind.startswith("list("):
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise TypeError(f"Expected a list for an attribute of type {kind}, got {value!r}.")
        _encode_list(proto, value, kind[5:-1])
    elif kind in _ENCODERS:
        _ENCODERS[kind](proto, value)
    else:
        raise TypeError(f"Unknown attribute type {kind!r}.")


def encode_func(proto: Any, value: Any) -> None:
    """Writes a FuncAttr (or a function's name) into a NameAttrList."""
    if isinstance(value, FuncAttr):
        proto.name = value.name
        for name in value.attrs:
            encode_into(proto.attr[name], value.attrs[name])
    elif isinstance(value, protos.NameAttrList):
        proto.CopyFrom(value)
    elif isinstance(value, (str, bytes)):
        proto.name = value.decode() if isinstance(value, bytes) else value
    else:
        _mismatch("func", value)


def _infer_kind(value: Any) -> str:
    found = _KIND_OF_CLASS.get(value.__class__)
    if found is None:
        for cls, kind in _KIND_OF_BASE:
            if isinstance(value, cls):
                return kind
        if isinstance(value, protos.TensorProto):
            return "tensor"
        if isinstance(value, protos.TensorShapeProto):
            return "shape"
        if isinstance(value, protos.NameAttrList):
            return "func"
        raise TypeError(f"{value!r} of type {type(value).__name__} cannot be the value of an attribute.")
    return found


def _encode_list(proto: Any, values: Iterable[Any], kind: str | None) -> None:
    target = proto.list
    target.SetInParent()
    if kind is None:
        return
    if kind in _MESSAGE_WRITERS:
        member, write = _MESSAGE_WRITERS[kind]
        elements = getattr(target, member)
        for value in values:
            write(elements.add(), value)
    elif kind in _SCALAR_READERS:
        member, read = _SCALAR_READERS[kind]
        getattr(target, member).extend([read(v) for v in values])
    else:
        raise TypeError(f"Unknown attribute type 'list({kind})'.")


def _string(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8")
    return bytes(value) if isinstance(value, (bytes, bytearray)) else _mismatch("string", value)


def _int(value: Any) -> int:
    if value.__class__ is int:
        return value
    try:
        return value.__index__()
    except (AttributeError, TypeError):
        return _mismatch("int", value)


def _float(value: Any) -> float:
    if value.__class__ is float:
        return value
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        return _mismatch("float", value)
    return float(value)


def _bool(value: Any) -> bool:
    return bool(value) if isinstance(value, (bool, np.bool_)) else _mismatch("bool", value)


def _type(value: Any) -> int:
    return (value if value.__class__ is DType else dtypes.as_dtype(value)).as_datatype_enum


def _write_shape(proto: Any, value: Any) -> None:
    dims = as_shape(value)._dims
    if dims is None:
        proto.unknown_rank = True
        return
    proto.SetInParent()
    for d in dims:
        proto.dim.add().size = -1 if d is None else d


def _write_tensor(proto: Any, value: Any) -> None:
    if isinstance(value, TensorAttr):
        proto.CopyFrom(from_array(value.array, value.dtype))
    elif isinstance(value, protos.TensorProto):
        proto.CopyFrom(value)
    elif isinstance(value, (np.ndarray, np.generic)):
        proto.CopyFrom(from_array(value))
    else:
        _mismatch("tensor", value)


def _mismatch(kind: str, value: Any) -> Any:
    raise TypeError(f"Expected {kind} for an attribute, got {value!r} of type '{type(value).__name__}'.")


_SCALAR_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "string": ("s", _string),
    "int": ("i", _int),
    "float": ("f", _float),
    "bool": ("b", _bool),
    "type": ("type", _type),
}
_MESSAGE_WRITERS: dict[str, tuple[str, Callable[[Any, Any], None]]] = {
    "shape": ("shape", _write_shape),
    "tensor": ("tensor", _write_tensor),
    "func": ("func", encode_func),
}


def _scalar_encoder(member: str, read: Callable[[Any], Any]) -> Callable[[Any, Any], None]:
    return lambda proto, value: setattr(proto, member, read(value))


def _message_encoder(member: str, write: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def encoder(proto: Any, value: Any) -> None:
        message = getattr(proto, member)
        message.SetInParent()  # an empty message still says which member is set
        write(message, value)

    return encoder


_ENCODERS: dict[str, Callable[[Any, Any], None]] = {
    **{kind: _scalar_encoder(*how) for kind, how in _SCALAR_READERS.items()},
    **{kind: _message_encoder(*how) for kind, how in _MESSAGE_WRITERS.items()},
}
_KIND_OF_CLASS = {
    bytes: "string",
    str: "string",
    bool: "bool",
    int: "int",
    float: "float",
    DType: "type",
    TensorShape: "shape",
    TensorAttr: "tensor",
    FuncAttr: "func",
    np.ndarray: "tensor",
}
# Looked at in this order for subclasses and NumPy scalars.
_KIND_OF_BASE: tuple[tuple[Any, str], ...] = (
    (np.bool_, "bool"),
    ((int, np.integer), "int"),
    ((float, np.floating), "float"),
    ((str, bytes), "string"),
    (TensorShape, "shape"),
    ((np.ndarray, np.generic), "tensor"),
)
