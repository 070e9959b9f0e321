"""JSON texts of examples: what is read at once is what protobuf's own reader makes of it, and so are errors."""

import random

import numpy as np
import pytest
from google.protobuf import json_format

import penstock as tf
from penstock.ops.kernels import json_examples

PLAIN = [
    *(b'"a": {"int64List": {"value": ["%d"]}}' % i for i in (3, -7, 2**63 - 1, -(2**63))),
    b"", b'"a":{"int64List":{"value":[]}}', b'"a":{"floatList":{"value":[]}},"b":{"bytesList":{"value":[]}}',
    b'"a":{"int64List":{"value":[1,2,"3",-4,"007","-0"]}}', b'"a":{"floatList":{"value":[1.5,2,1e-50,-0.0,3.3e38,0.1]}}',
    b'"a":{"bytesList":{"value":["YWJj","","YQ==","YWI=","-_+/"]}}',
    b'"b":{"int64List":{"value":[1]}},"a":{"bytesList":{"value":["YWJj"]}},"zz":{"floatList":{"value":[2]}}',
    '"ä東\\u00e4\\ud83d\\ude00":{"int64List":{"value":[1]}}'.encode(), b'"":{"int64List":{"value":[1]}}',
]  # fmt: skip
ODD = [
    b'"a":{"%s":{"value":[%s]}}' % pair
    for pair in [
        (b"int64List", b'"9223372036854775808"'), (b"int64List", b"1.0"), (b"int64List", b"1.5"), (b"int64List", b"true"), (b"int64List", b'" 1"'),
        (b"int64List", b'"1_0"'), (b"int64List", b'"+1"'), (b"int64List", b"null"), (b"int64_list", b"1"), (b"oops", b"1"), (b"floatList", b"3.5e38"),
        (b"floatList", b'"NaN"'), (b"floatList", b"NaN"), (b"floatList", b'"1.5"'), (b"floatList", b"true"), (b"bytesList", b'"YQ"'), (b"bytesList", b'"Y"'),
        (b"bytesList", b'"Y Q="'), (b"bytesList", b"1"),
    ]
] + [
    b'"a":{}', b'"a":null', b'"a":3', b'"a":{"int64List":{}}', b'"a":{"int64List":{"value":null}}', b'"a":{"int64List":{"value":3}}',
    b'"a":{"int64List":{"value":[1]}},"a":{"int64List":{"value":[2]}}', b'"a":{"int64List":{"value":[1]},"floatList":{"value":[2]}}',
    b'"\\ud800":{"int64List":{"value":[1]}}', b'"\xff":{"int64List":{"value":[1]}}', b'"a"',
]  # fmt: skip


def whole(features):
    return b'{"features": {"feature": {%s}}}' % features


WHOLE = [b"", b"[]", b"{}", b"null", b'{"features":{}}', b'{"features":null}', b'{"x":1}', b"[" * 2000]
WHOLE += [b" " + whole(b"") + b"\n", whole(b"") + b"x", b"\xef\xbb\xbf" + whole(b""), whole(b"").decode().encode("utf-16")]


def outcome(read, text):
    try:
        return read(text)
    except Exception as error:
        return type(error), str(error)


def by_protobuf(text):
    return json_format.Parse(text, json_examples.Example()).SerializeToString()


@pytest.mark.parametrize("text", [*map(whole, PLAIN + ODD), *WHOLE])
def test_same_as_protobuf(text):
    assert outcome(json_examples.example_of, text) == outcome(by_protobuf, text)


@pytest.mark.parametrize("features", PLAIN)
def test_plain_ones_are_read_here(features, monkeypatch):
    monkeypatch.setattr(json_format, "Parse", None)
    assert json_examples.example_of(whole(features)) is not None


def test_random_examples():
    source = random.Random(0)
    kinds = {
        "int64_list": lambda: source.randint(-(2**63), 2**63 - 1) >> source.randint(0, 63),
        "float_list": lambda: float(np.float32(source.gauss(0, 10.0 ** source.randint(-30, 30)))),
        "bytes_list": lambda: source.randbytes(source.randint(0, 20)),
    }
    texts = []
    for _ in range(200):
        example = json_examples.Example()
        for _ in range(source.randint(0, 5)):
            kind = source.choice(list(kinds))
            values = getattr(example.features.feature[f"f{source.randint(0, 99)}"], kind)
            values.value.extend(kinds[kind]() for _ in range(source.randint(1, 6)))
        texts.append(json_format.MessageToJson(example, indent=source.choice([None, 2])).encode())
    with tf.Graph().as_default(), tf.Session() as sess:
        found = sess.run(tf.io.decode_json_example(tf.constant(texts, shape=[20, 10])))
    assert found.shape == (20, 10) and found.ravel().tolist() == list(map(by_protobuf, texts))
