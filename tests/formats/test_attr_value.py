"""AttrValue <-> Python values."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from google.protobuf import text_format

from penstock import dtypes, errors
from penstock.formats import protos
from penstock.formats.attr_value import (
    FuncAttr,
    Placeholder,
    TensorAttr,
    decode,
    decode_all,
    encode,
    encode_into,
    kind_of,
)
from penstock.shapes import TensorShape


def attr(text):
    return text_format.Parse(text, protos.AttrValue())


ONE = TensorAttr(dtypes.int32, np.array(1, np.int32))
PAIRS = [
    ("string", 's: "a"', b"a"),
    ("int", "i: -5", -5),
    ("float", "f: 0.5", 0.5),
    ("bool", "b: true", True),
    ("type", "type: DT_FLOAT", dtypes.float32),
    ("type", "type: DT_FLOAT_REF", dtypes.float32._as_ref),
    ("shape", "shape { dim { size: 2 } dim { size: -1 } }", TensorShape([2, None])),
    ("shape", "shape { }", TensorShape([])),
    ("shape", "shape { unknown_rank: true }", TensorShape(None)),
    ("tensor", "tensor { dtype: DT_INT32 tensor_shape { } int_val: 1 }", ONE),
    ("func", 'func { name: "f" attr { key: "T" value { type: DT_INT32 } } }', FuncAttr("f", {"T": dtypes.int32})),
    ("list(string)", 'list { s: "a" s: "b" }', [b"a", b"b"]),
    ("list(int)", "list { i: 1 i: 2 }", [1, 2]),
    ("list(float)", "list { f: 0.5 }", [0.5]),
    ("list(bool)", "list { b: false }", [False]),
    ("list(type)", "list { type: DT_INT32 type: DT_STRING }", [dtypes.int32, dtypes.string]),
    ("list(shape)", "list { shape { } shape { unknown_rank: true } }", [TensorShape([]), TensorShape(None)]),
    ("list(tensor)", "list { tensor { dtype: DT_INT32 tensor_shape { } int_val: 1 } }", [ONE]),
    ("list(func)", 'list { func { name: "f" } }', [FuncAttr("f")]),
]


@pytest.mark.parametrize("kind, text, value", PAIRS, ids=[t for _, t, _ in PAIRS])
def test_there_and_back(kind, text, value):
    proto = attr(text)
    assert decode(proto) == value
    assert type(decode(proto)) is type(value)
    assert decode(proto, kind) == value
    assert kind_of(proto) == kind
    assert encode(value, kind) == proto
    assert encode(value) == proto


def test_empty_lists_and_nothing():
    empty = attr("list { }")
    assert decode(empty) == [] and decode(empty, "list(int)") == [] and kind_of(empty) == "list"
    assert encode([]) == empty and encode([], "list(shape)") == empty and encode((), "list(int)") == empty
    assert decode(protos.AttrValue()) is None and kind_of(protos.AttrValue()) is None
    assert encode(None) == protos.AttrValue()


def test_placeholders():
    proto = attr('placeholder: "T"')
    assert decode(proto, "type") == Placeholder("T")
    assert encode(Placeholder("T"), "type") == proto


def test_kinds_decide():
    assert encode(1, "float") == attr("f: 1")
    assert encode("a", "string") == attr('s: "a"')
    assert encode([2, 3], "shape") == attr("shape { dim { size: 2 } dim { size: 3 } }")
    assert encode(None, "shape") == protos.AttrValue()
    assert encode("float32", "type") == attr("type: DT_FLOAT")
    assert encode(np.int64(3), "int") == attr("i: 3")
    assert encode(np.int64(3)) == attr("i: 3")
    assert encode(np.float32(0.5)) == attr("f: 0.5")
    assert encode(np.bool_(True)) == attr("b: true")
    assert encode([[2], [None]], "list(shape)") == attr("list { shape { dim { size: 2 } } shape { dim { size: -1 } } }")
    assert encode("f", "func") == attr('func { name: "f" }')
    assert encode(np.array([1.5], np.float32)).tensor.float_val[0] == 1.5
    proto = attr("i: 1")
    assert encode(proto) == proto and encode(proto, "int") == proto
    assert encode(3, "any") == attr("i: 3")


@pytest.mark.parametrize(
    "value, kind",
    [
        ("a", "int"), (1.5, "int"), ("a", "float"), (1, "bool"), (1, "string"), (3, "tensor"), (3, "func"),
        ("nope", "type"), (1, "list(int)"), ("ab", "list(string)"), ([1, "a"], "list(int)"), (1, "nonsense"),
        ([1], "list(nonsense)"), (object(), None), ([object()], None),
    ],
)  # fmt: skip
def test_values_of_the_wrong_kind(value, kind):
    with pytest.raises(TypeError):
        encode(value, kind)


def test_integers_out_of_range():
    with pytest.raises(ValueError):
        encode(2**63, "int")


@pytest.mark.parametrize(
    "text, kind, message",
    [
        ("i: 3", "shape", "AttrValue had value with type 'int' when 'shape' expected"),
        ("list { i: 1 }", "list(shape)", "AttrValue had value with type 'list(int)' when 'list(shape)' expected"),
        ("list { type: DT_INT32 }", "type", "AttrValue had value with type 'list(type)' when 'type' expected"),
        ("", "int", "AttrValue missing value with expected type 'int'"),
        ("list { }", "shape", "AttrValue missing value with expected type 'shape'"),
        ("type: 99", None, "AttrValue has invalid DataType enum: 99"),
        ("type: DT_INVALID", None, "AttrValue has invalid DataType"),
        ("list { type: 99 }", None, "AttrValue has invalid DataType enum: 99"),
        ("shape { dim { size: -2 } dim { size: -1 } }", None, "Shape [-2,?] has dimensions with values below -1"),
        ("shape { unknown_rank: true dim { size: 1 } }", None, "An unknown shape must not have any dimensions set."),
        ('list { i: 1 s: "a" }', None, "several types: string, int"),
        ('tensor { dtype: DT_FLOAT tensor_content: "abc" }', None, "Cannot parse tensor from proto"),
    ],
)
def test_bad_protos(text, kind, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        decode(attr(text), kind)
    assert message in caught.value.message


def test_quantised_tensors_keep_their_type():
    value = TensorAttr(dtypes.qint8, np.array([1, 2], np.int8))
    proto = encode(value)
    assert proto.tensor.dtype == protos.DataType.DT_QINT8
    assert decode(proto) == value


def test_values_compare_and_travel():
    nan = TensorAttr(dtypes.float32, np.float32([np.nan]))
    assert nan == TensorAttr(dtypes.float32, np.float32([np.nan]))
    assert TensorAttr(dtypes.float32, np.float32([0.0])) != TensorAttr(dtypes.float32, np.float32([-0.0]))
    assert TensorAttr(dtypes.qint32, np.array(1, np.int32)) != ONE
    assert TensorAttr(dtypes.string, np.array([b"a"], object)) == TensorAttr(dtypes.string, np.array([b"a"], object))
    assert len({ONE, copy.deepcopy(ONE), FuncAttr("f"), FuncAttr("f"), Placeholder("T"), Placeholder("T")}) == 3
    assert FuncAttr("f", {"a": [1]}) != FuncAttr("f", {"a": [2]}) != "f"
    for value in (ONE, FuncAttr("f", {"a": [1]}), Placeholder("T")):
        assert pickle.loads(pickle.dumps(value)) == value


def test_maps():
    node = protos.NodeDef()
    encode_into(node.attr["T"], dtypes.float32, "type")
    encode_into(node.attr["N"], 2)
    encode_into(node.attr["f"], FuncAttr("g", {"x": [TensorShape([1])], "p": Placeholder("T")}))
    assert decode_all(node.attr) == {
        "T": dtypes.float32,
        "N": 2,
        "f": FuncAttr("g", {"x": [TensorShape([1])], "p": Placeholder("T")}),
    }
