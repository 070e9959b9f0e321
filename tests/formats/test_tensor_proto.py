"""TensorProto <-> arrays, and how Python values become arrays."""

from __future__ import annotations

import fractions

import ml_dtypes
import numpy as np
import pytest
from google.protobuf import text_format

from penstock import dtypes, errors
from penstock.formats import protos
from penstock.formats.tensor_proto import (
    convert_typed,
    convert_values,
    from_array,
    make_ndarray,
    make_tensor_proto,
    shape_proto,
    to_array,
)
from penstock.formats.values import FILL_LIMIT
from penstock.shapes import Dimension, TensorShape


def read(text):
    return to_array(text_format.Parse(text, protos.TensorProto()))


def fields(proto):
    return [field.name for field, _ in proto.ListFields()]


# -- reading -----------------------------------------------------------------------------------------------------

READS = [
    ("dtype: DT_INT32 tensor_shape{dim{size:4}} int_val:[1,2]", np.int32, [1, 2, 2, 2]),
    ("dtype: DT_INT32 tensor_shape{dim{size:2}} int_val:[1,2,3]", np.int32, [1, 2]),
    ("dtype: DT_INT32 tensor_shape{dim{size:2}}", np.int32, [0, 0]),
    ("dtype: DT_INT32 tensor_shape{dim{size:0}} int_val:1", np.int32, []),
    ("dtype: DT_FLOAT tensor_shape{dim{size:1} dim{size:2}} float_val:2", np.float32, [[2, 2]]),
    ("dtype: DT_FLOAT float_val:1.5", np.float32, 1.5),
    ("dtype: DT_FLOAT tensor_shape{unknown_rank:true} float_val:1.5", np.float32, 1.5),
    ('dtype: DT_INT32 tensor_shape{dim{size:1}} int_val:1 tensor_content:"\\002\\000\\000\\000"', np.int32, [2]),
    ("dtype: DT_DOUBLE double_val:0.1", np.float64, 0.1),
    ("dtype: DT_INT64 int64_val:-9223372036854775808", np.int64, -(2**63)),
    ("dtype: DT_UINT64 uint64_val:18446744073709551615", np.uint64, 2**64 - 1),
    ("dtype: DT_UINT32 uint32_val:4294967295", np.uint32, 2**32 - 1),
    ("dtype: DT_BOOL tensor_shape{dim{size:2}} bool_val:true", np.bool_, [True, True]),
    ('dtype: DT_BOOL tensor_shape{dim{size:2}} tensor_content:"\\000\\002"', np.bool_, [False, True]),
    ("dtype: DT_INT8 int_val:300", np.int8, 44),
    ("dtype: DT_UINT8 int_val:-1", np.uint8, 255),
    ("dtype: DT_UINT16 int_val:65535", np.uint16, 65535),
    ("dtype: DT_HALF tensor_shape{dim{size:2}} half_val:15360", np.float16, [1, 1]),
    ("dtype: DT_HALF half_val:80896", np.float16, 1),
    ("dtype: DT_BFLOAT16 tensor_shape{dim{size:2}} half_val:[16256,16384]", ml_dtypes.bfloat16, [1, 2]),
    ("dtype: DT_COMPLEX64 tensor_shape{dim{size:2}} scomplex_val:[1,2]", np.complex64, [1 + 2j, 1 + 2j]),
    ("dtype: DT_COMPLEX64 scomplex_val:[1,2,3]", np.complex64, 1 + 2j),
    ("dtype: DT_COMPLEX128 dcomplex_val:[1,2]", np.complex128, 1 + 2j),
    ("dtype: DT_QINT8 tensor_shape{dim{size:2}} int_val:[1,-2]", np.int8, [1, -2]),
    ("dtype: DT_QUINT16 int_val:65535", np.uint16, 65535),
    ("dtype: DT_INT4 tensor_shape{dim{size:2}} int_val:[9,-8]", ml_dtypes.int4, [-7, -8]),
    ('dtype: DT_UINT4 tensor_shape{dim{size:2}} tensor_content:"\\001\\017"', ml_dtypes.uint4, [1, 15]),
    ("dtype: DT_INT2 int_val:-1", ml_dtypes.int2, -1),
    ('dtype: DT_FLOAT8_E5M2 tensor_shape{dim{size:3}} float8_val:"\\074\\100"', ml_dtypes.float8_e5m2, [1, 2, 2]),
    ('dtype: DT_FLOAT4_E2M1FN float8_val:"\\001"', ml_dtypes.float4_e2m1fn, 0.5),
    ('dtype: DT_STRING tensor_shape{dim{size:3}} string_val:["a","b"]', object, [b"a", b"b", b"b"]),
    ("dtype: DT_STRING tensor_shape{dim{size:2}}", object, [b"", b""]),
    ('dtype: DT_STRING tensor_shape{dim{size:2}} tensor_content:"\\001\\002abc"', object, [b"a", b"bc"]),
]


@pytest.mark.parametrize("text, dtype, want", READS, ids=[t for t, _, _ in READS])
def test_reading(text, dtype, want):
    array = read(text)
    assert array.dtype == dtype
    assert array.tolist() == want


def test_long_strings_in_content():
    words = [b"x" * 300, b"", b"y"]
    content = b"\xac\x02\x00\x01" + b"".join(words)
    proto = protos.TensorProto(dtype=7, tensor_content=content, tensor_shape=shape_proto((3,)))
    assert to_array(proto).tolist() == words


@pytest.mark.parametrize(
    "text, reason",
    [
        ('dtype: DT_INT32 tensor_shape{dim{size:2}} tensor_content:"abc"', "has 3 bytes, and the shape needs 8"),
        ('dtype: DT_INT32 tensor_shape{dim{size:1}} tensor_content:"abcdefgh"', "has 8 bytes, and the shape needs 4"),
        ("dtype: DT_INT32 tensor_shape{dim{size:-1}} int_val:1", "negative"),
        ("dtype: DT_INT32 tensor_shape{unknown_rank:true dim{size:1}} int_val:1", "unknown"),
        ("int_val:1", "dtype 0 is not a tensor type"),
        ("dtype: 99", "dtype 99 is not a tensor type"),
        ("dtype: DT_FLOAT_REF float_val:1", "not a tensor type"),
        ("dtype: DT_FLOAT tensor_shape{dim{size:4611686018427387904} dim{size:8}} float_val:1", "too large"),
        ("dtype: DT_FLOAT tensor_shape{dim{size:4611686018427387904} dim{size:0}}", "too large"),
        ("dtype: DT_FLOAT tensor_shape{dim{size:1099511627776}} float_val:1", "comes with only 1"),
        ("dtype: DT_FLOAT tensor_shape{dim{size:68719476736}} float_val:[1,2]", "comes with only 2"),
        ("dtype: DT_STRING tensor_shape{dim{size:1099511627776}}", "comes with only 0"),
        ('dtype: DT_STRING tensor_shape{dim{size:1099511627776}} tensor_content:"a"', "1 bytes for"),
        ('dtype: DT_STRING tensor_shape{dim{size:1}} tensor_content:"\\377"', "damaged"),
        ('dtype: DT_STRING tensor_shape{dim{size:1}} tensor_content:"\\003ab"', "do not add up"),
        ('dtype: DT_RESOURCE tensor_content:"a"', "cannot stand in tensor_content"),
        ("dtype: DT_INT32 tensor_shape{" + "dim{size:1}" * 65 + "} int_val:1", "rank 65"),
    ],
)
def test_damaged_tensors_are_refused(text, reason):
    with pytest.raises(errors.InvalidArgumentError, match="Cannot parse tensor from proto: .*" + reason):
        read(text)


def test_a_huge_repeated_value_takes_no_memory():
    array = read("dtype: DT_FLOAT tensor_shape{dim{size:1000000} dim{size:10000}} float_val:3")
    assert array.shape == (1000000, 10000) and array[5, 7] == 3
    assert array.strides == (0, 0)
    again = from_array(array, dtypes.float32)
    assert list(again.float_val) == [3.0] and again.tensor_shape.dim[0].size == 1000000
    strings = read("dtype: DT_STRING tensor_shape{dim{size:100000} dim{size:10000}}")
    assert strings[3, 4] == b""
    small = read("dtype: DT_FLOAT tensor_shape{dim{size:1000}} float_val:3")
    assert small.flags.c_contiguous and small.strides == (4,)
    assert small.nbytes < FILL_LIMIT


def test_handles_and_variants_stay_protos():
    array = read('dtype: DT_RESOURCE tensor_shape{dim{size:1}} resource_handle_val{name:"v"}')
    assert array.dtype.hasobject and array[0].name == "v"
    variant = read('dtype: DT_VARIANT variant_val{type_name:"tensorflow::TensorList"}')
    assert variant[()].type_name == "tensorflow::TensorList"
    assert read("dtype: DT_RESOURCE")[()] == protos.ResourceHandleProto()
    again = from_array(array, dtypes.resource)
    assert again.resource_handle_val[0].name == "v"


def test_make_ndarray_is_strict():
    assert make_ndarray(make_tensor_proto([1, 2])).tolist() == [1, 2]
    quantised = make_ndarray(make_tensor_proto(np.array([1, 2], np.int8), dtypes.qint8))
    assert quantised.dtype == dtypes.qint8.as_numpy_dtype and quantised.tolist() == [(1,), (2,)]
    writable = make_ndarray(make_tensor_proto([1, 2]))
    writable[0] = 5
    with pytest.raises(ValueError, match="2 values for a shape of 1"):
        make_ndarray(protos.TensorProto(dtype=1, float_val=[1, 2]))
    with pytest.raises(ValueError, match="bytes"):
        make_ndarray(protos.TensorProto(dtype=1, tensor_content=b"abc"))
    with pytest.raises(TypeError, match="Unsupported tensor type: 20"):
        make_ndarray(protos.TensorProto(dtype=20))
    with pytest.raises(TypeError):
        make_ndarray(protos.TensorProto())


# -- writing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [t for t in dtypes.ALL_DTYPES if not t.np.hasobject], ids=lambda t: t.name)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0, 2)])
def test_what_is_written_is_read(dtype, shape):
    array = (np.random.default_rng(1).normal(size=shape) * 3).astype(dtype.np)
    for proto in (make_tensor_proto(array, dtype), from_array(array, dtype), from_array(array, dtype, raw=True)):
        assert proto.dtype == dtype.as_datatype_enum
        again = to_array(protos.TensorProto.FromString(proto.SerializeToString()))
        assert again.dtype == dtype.np and again.shape == shape
        np.testing.assert_array_equal(again, array)


def test_where_values_are_written():
    assert fields(make_tensor_proto(1.5)) == ["dtype", "tensor_shape", "float_val"]
    assert fields(make_tensor_proto([1.5, 2.5])) == ["dtype", "tensor_shape", "tensor_content"]
    assert fields(make_tensor_proto([True, False])) == ["dtype", "tensor_shape", "bool_val"]
    assert fields(make_tensor_proto([1j, 2])) == ["dtype", "tensor_shape", "dcomplex_val"]
    assert fields(make_tensor_proto([1, 2], dtypes.int4)) == ["dtype", "tensor_shape", "int_val"]
    assert fields(make_tensor_proto([1, 2], dtypes.uint16)) == ["dtype", "tensor_shape", "int_val"]
    assert fields(make_tensor_proto(1, dtypes.float8_e5m2)) == ["dtype", "tensor_shape", "float8_val"]
    assert fields(make_tensor_proto(["a", "b"])) == ["dtype", "tensor_shape", "string_val"]
    assert fields(make_tensor_proto([])) == ["dtype", "tensor_shape"]
    assert list(make_tensor_proto(7, shape=[2, 3]).int_val) == [7]
    assert list(make_tensor_proto([1, 2], shape=[2, 3]).int_val) == [1, 2]
    assert fields(from_array(np.array([True, False]), raw=True)) == ["dtype", "tensor_shape", "tensor_content"]
    assert from_array(np.arange(4).reshape(2, 2).T, raw=True).tensor_content == np.int64([0, 2, 1, 3]).tobytes()
    proto = make_tensor_proto(1)
    assert make_tensor_proto(proto) is proto


# -- Python values -----------------------------------------------------------------------------------------------

INFERRED = [
    (1, np.int32, 1),
    (2**31, np.int64, 2**31),
    (2**63, np.uint64, 2**63),
    (1.5, np.float32, 1.5),
    (True, np.bool_, True),
    (1j, np.complex128, 1j),
    ("é", object, "é".encode()),
    (b"a\0", object, b"a\0"),
    ([1, 2], np.int32, [1, 2]),
    ([1, 2**40], np.int64, [1, 2**40]),
    ([1, 2.5], np.float32, [1, 2.5]),
    ([True, 1], np.int32, [1, 1]),
    (["a\0", b"\xff"], object, [b"a\0", b"\xff"]),
    ([["a"], ["b"]], object, [[b"a"], [b"b"]]),
    ([], np.float32, []),
    ([[], []], np.float32, [[], []]),
    ((1, 2), np.int32, [1, 2]),
    ([np.float64(1)], np.float32, [1]),
    ([np.int8(1)], np.int8, [1]),
    ([np.array(1), 2], np.int32, [1, 2]),
    (np.float64(1.5), np.float64, 1.5),
    (np.int64(3), np.int64, 3),
    (np.array([1.5]), np.float64, [1.5]),
    (np.array([1, 2], ">i4"), np.int32, [1, 2]),
    (np.array(["a", "bc"]), object, [b"a", b"bc"]),
    (np.array([1], ml_dtypes.bfloat16), ml_dtypes.bfloat16, [1]),
    (bytearray(b"ab"), np.uint8, [97, 98]),
]


@pytest.mark.parametrize("values, dtype, want", INFERRED, ids=[repr(v) for v, _, _ in INFERRED])
def test_inferred_types(values, dtype, want):
    array = convert_values(values)
    assert isinstance(array, np.ndarray) and array.dtype == dtype
    assert array.tolist() == want


ASKED = [
    (1, dtypes.float32, 1.0),
    (True, dtypes.int32, 1),
    (300, dtypes.uint8, 44),
    (2**40, dtypes.int32, 0),
    ([300, -1], dtypes.uint8, [44, 255]),
    ([1, 2**63], dtypes.uint64, [1, 2**63]),
    ([1, 2], dtypes.complex64, [1, 2]),
    ([1.5, 2], dtypes.bfloat16, [1.5, 2]),
    ([np.bool_(True)], dtypes.bool, [True]),
    ([Dimension(3), 4], dtypes.int64, [3, 4]),
    (fractions.Fraction(1, 2), dtypes.float32, 0.5),
    (np.array([1.7, -1.7]), dtypes.int32, [1, -1]),
    (np.array([1, 0]), dtypes.bool, [True, False]),
    ([(1,), (2,)], dtypes.qint8, [1, 2]),
    (np.array([1, 2]), dtypes.quint8, [1, 2]),
    (1, dtypes.float32._as_ref, 1.0),
    (1, np.float64, 1.0),
    (9, dtypes.int4, -7),
]


@pytest.mark.parametrize("values, dtype, want", ASKED, ids=[f"{v!r} {t!r}" for v, t, _ in ASKED])
def test_asked_types(values, dtype, want):
    found, array = convert_typed(values, dtype)
    assert found is dtypes.as_dtype(dtype).base_dtype and array.dtype == found.np
    assert array.tolist() == want


REFUSED = [
    (1.5, dtypes.int32, TypeError, "Expected int32, but got 1.5 of type 'float'."),
    ([1, 2.5], dtypes.int32, TypeError, "Expected int32, but got 2.5 of type 'float'."),
    ([[1, 2], [3, "x"]], dtypes.int32, TypeError, "Expected int32, but got x of type 'str'."),
    (1, dtypes.bool, TypeError, "Expected bool, but got 1 of type 'int'."),
    (1, dtypes.string, TypeError, "Expected string, but got 1 of type 'int'."),
    ([1, None], dtypes.int32, TypeError, "Expected int32, but got None of type 'NoneType'."),
    ([None], None, TypeError, "Failed to convert elements of"),
    ([1, "a"], None, TypeError, "Failed to convert elements of"),
    (object(), None, TypeError, "Failed to convert elements of"),
    (2**64, None, TypeError, "Failed to convert elements of"),
    (2**64, dtypes.int64, OverflowError, ""),
    (None, None, ValueError, "None values not supported."),
    (None, dtypes.float32, ValueError, "None values not supported."),
    ([[1, 2], [3]], None, ValueError, "inhomogeneous shape"),
    ([[1, 2], [3]], dtypes.float32, ValueError, "inhomogeneous shape"),
    ([["a"], ["b", "c"]], None, ValueError, "inhomogeneous shape"),
    ([["a"], ["b", "c"]], dtypes.string, ValueError, "to be a dense tensor with shape"),
    ([np.array([1, 2])], None, ValueError, "to be a dense tensor with shape"),
    (range(3), None, ValueError, "to be a dense tensor with shape"),
    (np.array([1, 2]), dtypes.string, TypeError, "Expected binary or unicode string, got 1"),
    (np.array([1, 2], object), None, TypeError, "Expected binary or unicode string, got 1"),
    (1, dtypes.resource, TypeError, "is not compatible with 1 of dtype int64"),
    ([1, 2], dtypes.qint8, TypeError, "Expected qint8, but got 1 of type 'int'."),
    (np.longdouble(1), None, TypeError, "to a TensorFlow DType"),
    (1, "nope", TypeError, "Cannot convert the argument `type_value`: 'nope' to a TensorFlow DType."),
]


@pytest.mark.parametrize("values, dtype, error, text", REFUSED, ids=[f"{type(v).__name__}-{i}" for i, (v, *_) in enumerate(REFUSED)])
def test_refused_values(values, dtype, error, text):
    with pytest.raises(error) as caught:
        convert_values(values, dtype)
    assert text in str(caught.value)


def test_shapes():
    assert convert_values(7, shape=[2, 2]).tolist() == [[7, 7], [7, 7]]
    assert convert_values([1, 2], shape=[2, 2]).tolist() == [[1, 2], [2, 2]]
    assert convert_values([1, 2, 3, 4], shape=TensorShape([2, 2])).tolist() == [[1, 2], [3, 4]]
    assert convert_values(["a", "b"], shape=[3]).tolist() == [b"a", b"b", b"b"]
    assert convert_values([], dtypes.int32, shape=[2]).tolist() == [0, 0]
    assert convert_values([1, 2], shape=[0]).dtype == np.float32
    assert convert_values([1], shape=[]).shape == ()
    assert convert_values(1, shape=[2], allow_broadcast=True).tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"Too many elements provided. Takes at most 2, but got 3."):
        convert_values([1, 2, 3], shape=[2])
    with pytest.raises(TypeError, match=r"Expected Tensor's shape: \(2, 1\), but got \(2,\)."):
        convert_values([1, 2], shape=[2, 1], verify_shape=True)
    with pytest.raises(TypeError, match=r"Expected Tensor's shape: \(2, 2\), but got \(2,\)."):
        convert_values([1, 2], shape=[2, 2], allow_broadcast=True)
    with pytest.raises(ValueError, match="not both allowed"):
        convert_values([1, 2], verify_shape=True, allow_broadcast=True)
    with pytest.raises(ValueError, match="must be >= 0"):
        convert_values(1, shape=[-1, -1])


def test_arrays_are_copied():
    source = np.arange(3.0)
    array = convert_values(source)
    source[0] = 9
    assert array[0] == 0
    strings = np.array([b"a"], object)
    array = convert_values(strings)
    strings[0] = b"b"
    assert array[0] == b"a"
