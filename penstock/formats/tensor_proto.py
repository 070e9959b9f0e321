"""TensorProto <-> arrays.

A tensor's elements stand either in `tensor_content` (raw bytes) or in the list that belongs to the type. The list may
be shorter than the shape: its last value is repeated, and an empty list means zeros. Reading follows TF's runtime,
which cuts a list that is too long and wraps integers that do not fit; `make_ndarray`, TF's public Python function, is
stricter about both.

Arrays have the DType's storage type: object arrays of `bytes` for strings, of ResourceHandleProto and
VariantTensorDataProto for resources and variants, plain integers for quantised types. They may be read-only.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from penstock import dtypes, errors
from penstock.dtypes import DType
from penstock.formats import protos
from penstock.formats.values import convert_typed, convert_unfilled, convert_values, fill
from penstock.shapes import Dims

__all__ = [
    "convert_typed",
    "convert_values",
    "from_array",
    "make_ndarray",
    "make_tensor_proto",
    "shape_proto",
    "to_array",
]

# Shapes of more bytes than this are taken for damaged data when only a few bytes come with them: a single repeated
# value costs nothing (see values.fill), several values need the memory.
_MAX_REPEATED_ONE = 1 << 40
_MAX_REPEATED_LAST = 1 << 33
_MAX_RANK = 64  # NumPy's


def _field_of(dtype: DType) -> str:
    by_type = {
        dtypes.float32: "float_val",
        dtypes.float64: "double_val",
        dtypes.int64: "int64_val",
        dtypes.uint32: "uint32_val",
        dtypes.uint64: "uint64_val",
        dtypes.bool: "bool_val",
        dtypes.string: "string_val",
        dtypes.complex64: "scomplex_val",
        dtypes.complex128: "dcomplex_val",
        dtypes.float16: "half_val",
        dtypes.bfloat16: "half_val",
        dtypes.resource: "resource_handle_val",
        dtypes.variant: "variant_val",
    }
    if dtype in by_type:
        return by_type[dtype]
    return "float8_val" if dtype.is_floating else "int_val"


_FIELD: dict[DType, str] = {t: _field_of(t) for t in dtypes.ALL_DTYPES}
_LIST_TYPE = {
    "float_val": np.float32,
    "double_val": np.float64,
    "int_val": np.int32,
    "int64_val": np.int64,
    "uint32_val": np.uint32,
    "uint64_val": np.uint64,
    "bool_val": np.bool_,
    "scomplex_val": np.float32,
    "dcomplex_val": np.float64,
    "half_val": np.int32,
}
_SMALL_INTS = frozenset({dtypes.int2, dtypes.uint2, dtypes.int4, dtypes.uint4})
# The types that TF's Python never writes as tensor_content, though TF reads them from there.
_LISTED_TYPES = _SMALL_INTS | {dtypes.bool, dtypes.complex64, dtypes.complex128, dtypes.uint16}
_CONTENT_TYPES = frozenset(t for t in dtypes.ALL_DTYPES if not t.np.hasobject) - _LISTED_TYPES


# -- reading -----------------------------------------------------------------------------------------------------


def to_array(proto: Any) -> np.ndarray:
    """The tensor in a TensorProto, read as TF's runtime reads it. InvalidArgumentError if it cannot be read."""
    dtype = dtypes._BY_ENUM.get(proto.dtype)
    if dtype is None or dtype._is_ref_dtype:
        _refuse(proto, f"dtype {proto.dtype} is not a tensor type")
    dims = _dims(proto)
    content = proto.tensor_content
    if content:
        return _from_content(proto, dtype, dims, content)
    return _from_list(proto, dtype, dims)


def _dims(proto: Any) -> tuple[int, ...]:
    shape = proto.tensor_shape
    dims = tuple([d.size for d in shape.dim])
    if not dims:
        return dims
    if shape.unknown_rank:
        _refuse(proto, "the rank is said to be unknown")
    if min(dims) < 0:
        _refuse(proto, "a dimension is negative")
    if len(dims) > _MAX_RANK:
        _refuse(proto, f"rank {len(dims)} is beyond the {_MAX_RANK} dimensions that arrays can have")
    # Dimensions before a 0 must be sane too: NumPy multiplies them.
    if math.prod([d for d in dims if d]) * 16 > np.iinfo(np.int64).max:
        _refuse(proto, "the shape is too large (more than 2**63 - 1 bytes)")
    return dims


def _from_content(proto: Any, dtype: DType, dims: tuple[int, ...], content: bytes) -> np.ndarray:
    size = math.prod(dims)
    if size == 0:
        return np.empty(dims, dtype.np)
    if dtype.np.hasobject:
        if dtype is dtypes.string:
            return _strings_from_content(proto, size, content).reshape(dims)
        _refuse(proto, f"{dtype.name} values cannot stand in tensor_content")
    if len(content) != size * dtype.np.itemsize:
        _refuse(proto, f"tensor_content has {len(content)} bytes, and the shape needs {size * dtype.np.itemsize}")
    array = np.frombuffer(content, dtype.np)
    if dtype is dtypes.bool and array.view(np.uint8).max() > 1:
        array = array.view(np.uint8) != 0
    return array.reshape(dims)


def _strings_from_content(proto: Any, size: int, content: bytes) -> np.ndarray:
    """TF's encoding of many strings in one: all lengths as varints, then all bytes."""
    if size > len(content):
        _refuse(proto, f"tensor_content has {len(content)} bytes for {size} strings")
    lengths, at = [], 0
    for _ in range(size):
        length, shift = 0, 0
        while True:
            if at >= len(content) or shift > 28:
                _refuse(proto, "a string length in tensor_content is damaged")
            byte = content[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        lengths.append(length)
    if at + sum(lengths) != len(content):
        _refuse(proto, "the string lengths in tensor_content do not add up")
    out = np.empty(size, object)
    for i, length in enumerate(lengths):
        out[i] = content[at : at + length]
        at += length
    return out


def _from_list(proto: Any, dtype: DType, dims: tuple[int, ...]) -> np.ndarray:
    field = _FIELD[dtype]
    values = getattr(proto, field)
    size = 1 if not dims else math.prod(dims)
    count = len(values)
    if field in ("scomplex_val", "dcomplex_val"):
        count //= 2
    if count < size:
        limit = _MAX_REPEATED_ONE if count <= 1 else _MAX_REPEATED_LAST
        if size * dtype.np.itemsize > limit:
            _refuse(proto, f"a shape of {size} elements comes with only {count} of them")
    if dtype.np.hasobject:
        array = _objects(dtype, values[:size])
    elif field == "float8_val":
        array = np.frombuffer(values[:size], dtype.np)
    else:
        array = np.array(values, _LIST_TYPE[field])
        if field == "half_val":
            array = array.astype(np.uint16).view(dtype.np)
        elif field in ("scomplex_val", "dcomplex_val"):
            array = array[: 2 * count].view(dtype.np)
        elif field == "int_val" and array.dtype != dtype.np:
            array = array.astype(dtype.np)
        if count > size:
            array = array[:size]
    try:
        return fill(array, dims)
    except MemoryError:
        raise errors.ResourceExhaustedError(
            f"OOM when allocating tensor with shape{list(dims)} and type {dtype.name}"
        ) from None


def _objects(dtype: DType, values: Any) -> np.ndarray:
    items = list(values)
    if not items and dtype is not dtypes.string:
        items = [protos.ResourceHandleProto() if dtype is dtypes.resource else protos.VariantTensorDataProto()]
    out = np.empty(len(items), object)
    out[:] = items
    return out


def _refuse(proto: Any, reason: str) -> NoReturn:
    dims = "x".join([str(d.size) for d in proto.tensor_shape.dim]) or "scalar"
    known = dtypes._BY_ENUM.get(proto.dtype)
    name = known.name if known else f"dtype {proto.dtype}"
    raise errors.InvalidArgumentError(f"Cannot parse tensor from proto: {reason} ({name}, {dims}).")


def make_ndarray(tensor: Any) -> np.ndarray:
    """`tf.make_ndarray`: the array in a TensorProto.

    ValueError if the elements do not match the shape, TypeError if the type has no NumPy form. Quantised tensors
    have TF's structured type, e.g. `[('qint8', 'i1')]`.
    """
    dtype = dtypes.as_dtype(tensor.dtype)
    if dtype._is_ref_dtype or dtype in (dtypes.resource, dtypes.variant):
        raise TypeError(
            f"Unsupported tensor type: {tensor.dtype}. See https://www.tensorflow.org/api_docs/python/tf/dtypes "
            "for supported TF dtypes."
        )
    try:
        array = to_array(tensor)
    except errors.InvalidArgumentError as error:
        raise ValueError(error.message) from error
    if not tensor.tensor_content:
        count = len(getattr(tensor, _FIELD[dtype])) // (2 if dtype.is_complex else 1)
        if count > array.size:
            raise ValueError(f"Cannot parse tensor from proto: {count} values for a shape of {array.size} elements.")
    array = np.array(array)
    return array.view(dtype.as_numpy_dtype) if dtype.is_quantized else array


# -- writing -----------------------------------------------------------------------------------------------------


def make_tensor_proto(
    values: Any, dtype: Any = None, shape: Any = None, verify_shape: bool = False, allow_broadcast: bool = False
) -> protos.TensorProto:
    """`tf.make_tensor_proto`: a TensorProto of Python or NumPy values, by the rules of `convert_values`."""
    if hasattr(values, "tensor_shape") and hasattr(values, "DESCRIPTOR"):
        return protos.coerce(values, protos.TensorProto, "values")
    found, array, dims = convert_unfilled(values, dtype, shape, verify_shape, allow_broadcast)
    return _encode(array, found, dims)


def from_array(array: Any, dtype: DType | None = None, *, raw: bool = False) -> protos.TensorProto:
    """A TensorProto of an array that has the storage type of `dtype` already.

    Written as `make_tensor_proto` writes it, which is what stands in GraphDefs; with `raw`, every type that has a
    fixed size goes into `tensor_content`, which is fastest and is what TF's runtime sends over the wire.
    """
    array = np.asarray(array)
    if dtype is None:
        dtype = dtypes.from_np(array.dtype)
    dtype = dtype.base_dtype
    if array.dtype != dtype.np:
        array = array.view(dtype.np) if dtype.is_quantized and array.dtype.names else array.astype(dtype.np)
    dims = array.shape
    if array.size > 1 and all(step == 0 for step, d in zip(array.strides, dims, strict=True) if d > 1):
        return _encode(array[(slice(0, 1),) * array.ndim], dtype, dims)  # one value, repeated
    if raw and not dtype.np.hasobject and array.size:
        proto = _start(dtype, dims)
        proto.tensor_content = array.tobytes()
        return proto
    return _encode(array, dtype, dims)


def _start(dtype: DType, dims: tuple[int, ...]) -> protos.TensorProto:
    proto = protos.TensorProto(dtype=dtype.as_datatype_enum)  # type: ignore[arg-type]
    shape = proto.tensor_shape
    shape.SetInParent()  # a scalar has a shape too, an empty one
    for d in dims:
        shape.dim.add().size = d
    return proto


def _encode(array: np.ndarray, dtype: DType, dims: tuple[int, ...]) -> protos.TensorProto:
    proto = _start(dtype, dims)
    if array.size > 1 and dtype in _CONTENT_TYPES and array.size == math.prod(dims):
        proto.tensor_content = array.tobytes()
        return proto
    field = _FIELD[dtype]
    flat = array.reshape(-1)
    if field == "float8_val":
        proto.float8_val = flat.tobytes()
        return proto
    if field == "half_val":
        flat = flat.view(np.uint16)
    elif dtype.is_complex:
        flat = np.ascontiguousarray(flat).view(_LIST_TYPE[field])
    elif dtype in _SMALL_INTS:
        flat = flat.astype(np.int32)
    getattr(proto, field).extend(flat.tolist())
    return proto


def shape_proto(dims: Dims) -> protos.TensorShapeProto:
    """Raw dims as a TensorShapeProto, -1 for unknown sizes."""
    proto = protos.TensorShapeProto()
    if dims is None:
        proto.unknown_rank = True
    else:
        for d in dims:
            proto.dim.add().size = -1 if d is None else d
    return proto
