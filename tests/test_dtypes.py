"""DType: TF's numbering, properties, conversions."""

import copy
import operator
import pickle

import ml_dtypes
import numpy as np
import pytest

from penstock import dtypes
from penstock.dtypes import as_dtype, from_np

ENUMS = [
    "float32",
    "float64",
    "int32",
    "uint8",
    "int16",
    "int8",
    "string",
    "complex64",
    "int64",
    "bool",
    "qint8",
    "quint8",
    "qint32",
    "bfloat16",
    "qint16",
    "quint16",
    "uint16",
    "complex128",
    "float16",
    "resource",
    "variant",
    "uint32",
    "uint64",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e4m3b11fnuz",
    "float8_e5m2fnuz",
    "int4",
    "uint4",
    "int2",
    "uint2",
    "float4_e2m1fn",
]
EVERY = [as_dtype(n) for n in ENUMS] + [as_dtype(n + "_ref") for n in ENUMS]


@pytest.mark.parametrize("enum", range(1, 34))
def test_numbering(enum):
    name = ENUMS[enum - 1]
    dtype = getattr(dtypes, name)
    assert dtype.name == name and dtype.as_datatype_enum == enum == int(dtype)
    ref = as_dtype(enum + 100)
    assert ref.name == name + "_ref" and ref.as_datatype_enum == enum + 100
    assert ref._is_ref_dtype and not dtype._is_ref_dtype
    assert ref.base_dtype is dtype is dtype.base_dtype
    assert dtype._as_ref is ref is ref._as_ref
    assert ref.np == dtype.np


def test_all_dtypes_is_complete():
    assert [d.name for d in dtypes.ALL_DTYPES] == ENUMS
    assert frozenset(dtypes.ALL_DTYPES) == dtypes.ALL


@pytest.mark.parametrize("dtype", EVERY, ids=lambda d: d.name)
def test_one_object_each(dtype):
    assert dtypes.DType(dtype.as_datatype_enum) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.copy(dtype) is dtype and copy.deepcopy([dtype])[0] is dtype
    assert as_dtype(dtype) is dtype and as_dtype(dtype.name) is dtype
    assert repr(dtype) == f"tf.{dtype.name}" and str(dtype) == f"<dtype: '{dtype.name}'>"
    assert {dtype: 1}[as_dtype(dtype.name)] == 1


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("float", "float32"),
        ("half", "float16"),
        ("double", "float64"),
        ("float_ref", "float32_ref"),
        ("half_ref", "float16_ref"),
        ("float32_ref", "float32_ref"),
        (float, "float32"),
        (bool, "bool"),
        (object, "string"),
        (np.object_, "string"),
        (np.str_, "string"),
        (np.bytes_, "string"),
        (np.dtype("U3"), "string"),
        (np.dtype("S"), "string"),
        (np.dtype(">f4"), "float32"),
        (np.longlong, "int64"),
        (np.intc, "int32"),
        (np.bool_, "bool"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype(ml_dtypes.int4), "int4"),
        (np.dtype([("qint8", np.int8)]), "qint8"),
        (np.array([1.0]), "float64"),
        (np.array(["a"]), "string"),
        (19, "float16"),
    ],
)
def test_as_dtype(spelling, expected):
    assert as_dtype(spelling).name == expected
    assert as_dtype(spelling).name == expected  # once more, now that it may be cached


@pytest.mark.parametrize(
    "value",
    [int, str, bytes, complex, list, None, "foo", "int", "f4", "DT_FLOAT", "", 0, 34, 99, 1000, -1, [1], {}, 2.5]
    + [np.dtype("M8[s]"), np.dtype([("x", np.int8)]), np.longdouble, ml_dtypes.float8_e4m3],
)
def test_as_dtype_rejects(value):
    with pytest.raises(TypeError, match="Cannot convert the argument `type_value`: .* to a TensorFlow DType."):
        as_dtype(value)
    assert operator.eq(dtypes.float32, value) is False and operator.ne(dtypes.float32, value) is True


def test_as_dtype_of_things_that_have_one():
    class Tensor:
        dtype = dtypes.int32

    assert as_dtype(Tensor()) is dtypes.int32


@pytest.mark.parametrize("enum", [0, 34, 100, 134, "float", []])
def test_constructor_rejects(enum):
    with pytest.raises(TypeError, match="does not correspond to a valid tensorflow::DataType"):
        dtypes.DType(enum)


def test_equality():
    f = dtypes.float32
    assert f == "float32" and f == np.float32 and f == np.dtype("float32") and f == 1 and f == float  # noqa: E721
    assert np.float32 == f
    assert f != dtypes.float64 and f != "float64" and operator.ne(f, None)
    assert f != f._as_ref and operator.eq(f, f._as_ref) is False


def test_compatibility_looks_through_references():
    f, ref = dtypes.float32, dtypes.float32._as_ref
    assert f.is_compatible_with(f) and f.is_compatible_with(ref) and ref.is_compatible_with(ref)
    assert not ref.is_compatible_with(f)
    assert f.is_compatible_with("float") and not f.is_compatible_with(np.float64)


def names(predicate):
    return {d.name for d in dtypes.ALL_DTYPES if predicate(d)}


def test_kinds():
    ints = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int4", "uint4", "int2", "uint2"}
    floats = {n for n in ENUMS if "float" in n}
    quantised = {n for n in ENUMS if n.startswith("q")}
    assert names(lambda d: d.is_integer) == ints
    assert names(lambda d: d.is_unsigned) == {n for n in ints if n.startswith("u")}
    assert names(lambda d: d.is_floating) == floats
    assert names(lambda d: d.is_complex) == {"complex64", "complex128"}
    assert names(lambda d: d.is_bool) == {"bool"}
    assert names(lambda d: d.is_quantized) == quantised
    assert names(lambda d: not d.is_numpy_compatible) == {"resource", "variant"}
    small = {n for n in floats | ints if "4" in n or "8_" in n or n.endswith("2")} - {"int64", "uint64", "float64"}
    small -= {"float32", "int32", "uint32"}
    not_numeric = {"string", "bool", "resource", "variant"} | small
    assert names(lambda d: not d.is_numeric) == not_numeric
    assert dtypes.float32._as_ref.is_floating and dtypes.qint8._as_ref.is_quantized


def test_numpy_types():
    assert dtypes.float32.as_numpy_dtype is np.float32 and dtypes.float32.np == np.dtype("float32")
    assert dtypes.bfloat16.as_numpy_dtype is ml_dtypes.bfloat16
    assert dtypes.string.as_numpy_dtype is object and dtypes.string.np == np.dtype(object)
    assert dtypes.qint8.as_numpy_dtype == np.dtype([("qint8", np.int8)]) and dtypes.qint8.np == np.int8
    assert dtypes.quint16.as_numpy_dtype == np.dtype([("quint16", np.uint16)]) and dtypes.quint16.np == np.uint16
    assert dtypes.resource.np == dtypes.variant.np == np.dtype(object)
    assert dtypes.bool.as_numpy_dtype is np.bool_
    assert all(isinstance(d.np, np.dtype) for d in EVERY)


@pytest.mark.parametrize(
    ("name", "size"),
    [("float32", 4), ("complex128", 16), ("bool", 1), ("qint32", 4), ("bfloat16", 2), ("string", 0), ("resource", 0)]
    + [("variant", 0), ("int4", 1), ("float64_ref", 8), ("string_ref", 0)],
)
def test_size(name, size):
    assert as_dtype(name).size == size


def test_real_dtype():
    assert dtypes.complex64.real_dtype is dtypes.float32
    assert dtypes.complex128.real_dtype is dtypes.float64
    assert dtypes.complex128._as_ref.real_dtype is dtypes.float64
    assert dtypes.int32.real_dtype is dtypes.int32


def test_min_and_max():
    assert (dtypes.int8.min, dtypes.int8.max) == (-128, 127)
    assert (dtypes.uint64.min, dtypes.uint64.max) == (0, 2**64 - 1)
    assert dtypes.float32.max == np.finfo(np.float32).max and dtypes.float32.min == np.finfo(np.float32).min
    assert float(dtypes.bfloat16.max) == float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    assert (int(dtypes.int4.min), int(dtypes.int4.max)) == (-8, 7)
    for name, text in [("bool", "with type <dtype: 'bool'>."), ("qint8", "with quantized type <dtype: 'qint8'>.")]:
        with pytest.raises(TypeError, match=f"Cannot find maximum value of .* {text}"):
            _ = as_dtype(name).max
    for name in ("string", "complex64", "resource", "variant"):
        with pytest.raises(TypeError, match="Cannot find minimum value of"):
            _ = as_dtype(name).min


def test_limits():
    assert dtypes.uint8.limits == (0, 255) and dtypes.int16.limits == (0, 32767)
    assert dtypes.float32.limits == (0, 1) and dtypes.bool.limits == (0, True)
    for name in ("float16", "bfloat16", "string", "complex64", "qint8", "resource"):
        with pytest.raises(ValueError, match="does not have defined limits"):
            _ = as_dtype(name).limits


def test_from_np():
    for dtype in dtypes.ALL_DTYPES:
        if not dtype.is_quantized and dtype not in (dtypes.resource, dtypes.variant):
            assert from_np(dtype.np) is dtype
    assert from_np(np.dtype("<U7")) is dtypes.string and from_np(np.dtype("S2")) is dtypes.string
    assert from_np(np.dtype(">i8")) is dtypes.int64
    assert from_np(np.dtype([("qint32", np.int32)])) is dtypes.qint32
    with pytest.raises(TypeError, match="Cannot convert"):
        from_np(np.dtype("M8[s]"))


def test_sets():
    def ns(types):
        return {t.name for t in types}

    assert ns(dtypes.FLOATS) == {"bfloat16", "float16", "float32", "float64"}
    reals = {"float32", "float64", "int32", "uint8", "int16", "int8", "int64", "bfloat16", "uint16", "float16"}
    reals |= {"uint32", "uint64"}
    assert ns(dtypes.REALS) == reals
    quantised = {"qint8", "quint8", "qint32", "qint16", "quint16"}
    assert ns(dtypes.QUANTIZED) == quantised
    assert ns(dtypes.NUMBERS) == reals | quantised | {"complex64", "complex128"}
    assert ns(dtypes.INTS) == reals - ns(dtypes.FLOATS)
    assert ns(dtypes.INDEX) == {"int32", "int64"}
    assert ns(dtypes.QUANTIZED_DTYPES) == quantised | {n + "_ref" for n in quantised}
    assert [t.name for t in dtypes.ordered(dtypes.FLOATS)] == ["float32", "float64", "bfloat16", "float16"]
