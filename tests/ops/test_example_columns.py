"""Examples that are read where they lie give what protobuf's messages give."""

import random

import numpy as np
import pytest

import penstock as tf
from penstock.ops.kernels import example_columns
from penstock.ops.native import examples, texts

FEATURES = {
    "f": tf.FixedLenFeature([2, 3], tf.float32), "i": tf.FixedLenFeature([2], tf.int64), "s": tf.FixedLenFeature([], tf.string), "d": tf.FixedLenFeature([], tf.int64, 7),
    "vf": tf.VarLenFeature(tf.float32), "vi": tf.VarLenFeature(tf.int64), "vs": tf.VarLenFeature(tf.string),
}  # fmt: skip


def _example(source, rare=0.0):
    """One example with all features; with the chance `rare` for each of a few unusual things."""
    example = tf.train.Example()
    feature = example.features.feature
    feature["f"].float_list.value.extend(source.uniform(-9, 9) for _ in range(6))
    feature["i"].int64_list.value.extend(source.choice([0, 1, 127, 128, -1, 300, 1 << 40, -(1 << 63)]) for _ in range(2))
    feature["s"].bytes_list.value.append(b"x" * source.choice([0, 3, 200, 20000]))
    feature["d"].int64_list.value.append(5)
    feature["vf"].float_list.value.extend(float(k) for k in range(source.randrange(40)))
    feature["vi"].int64_list.value.extend(source.choice([0, 5, -5, 1 << 50]) for _ in range(source.randrange(5)))
    if source.random() < 0.5:
        feature["vs"].bytes_list.value.append(b"one" if source.random() < 0.8 else b"")
    feature["another"].float_list.value.append(1.0)
    unusual = [
        lambda: feature.pop("d"), lambda: feature["vs"].bytes_list.value.extend([b"a", b"b"]), lambda: feature["vf"].bytes_list.value.append(b"?"),
        lambda: feature["f"].float_list.value.append(1.0), lambda: feature.pop("s"), lambda: feature["vi"].Clear(),
    ]  # fmt: skip
    for change in unusual:
        if source.random() < rare:
            change()
    return example.SerializeToString()


def _parsed(serialized):
    values = tf.parse_example(tf.constant(serialized), FEATURES)
    try:
        with tf.Session() as sess:
            return sess.run(values)
    except tf.errors.InvalidArgumentError as error:
        return error.message.splitlines()[0]


def _same(serialized, monkeypatch):
    got = _parsed(serialized)
    with monkeypatch.context() as patch:
        patch.setattr("penstock.ops.kernels.examples.parse_usual", lambda *_: None)
        wanted = _parsed(serialized)
    if isinstance(wanted, str):
        assert got == wanted
        return
    for key, value in wanted.items():
        for mine, other in zip(got[key], value, strict=True) if isinstance(value, tuple) else [(got[key], value)]:
            np.testing.assert_array_equal(mine, other)
            assert mine.dtype == other.dtype and mine.shape == other.shape


@pytest.mark.parametrize("seed", range(6))
def test_columns_are_those_of_protobuf(seed, monkeypatch):
    source = random.Random(seed)
    for rare in (0.0, 0.0, 0.1, 0.3):
        _same([_example(source, rare) for _ in range(source.randrange(1, 6))], monkeypatch)


def test_the_usual_ones_need_no_protobuf():
    if texts.can_read():
        serialized = [_example(random.Random(i)) for i in range(5)]
        found = examples.find(np.array(serialized, object), [b"f", b"none"])
        assert found is not None and found.kinds.tolist() == [[examples.FLOATS, 0]] * 5 and found.lengths[:, 0].tolist() == [24] * 5


def test_broken_examples_are_not_read_beyond_their_end():
    source = random.Random(1)
    for _ in range(2000):
        data = bytearray(_example(source))[: source.randrange(400)]
        for _ in range(source.randrange(3)):
            if data:
                data[source.randrange(len(data))] = source.randrange(256)
        found = examples.find(np.array([bytes(data)], object), [b"f", b"vi", b"s"])
        assert found is None or (found.starts + found.lengths <= len(data)).all()


def test_integers_in_groups_of_seven_bits():
    data = np.frombuffer(b"\x05\x80\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", np.uint8)
    values, counts = example_columns._integers(data, np.array([1, 0, 12]))
    assert values.tolist() == [5, 128, -1] and counts.tolist() == [1, 0, 2]
    assert example_columns._integers(data[:-1], np.array([12])) is None
    assert example_columns._integers(np.frombuffer(b"\x80\x01", np.uint8), np.array([1, 1])) is None


def _with_length(tag, data):
    return bytes([tag, len(data)]) + data


def _written(*features):
    return _with_length(0x0A, b"".join(_with_length(0x0A, _with_length(0x0A, key) + _with_length(0x12, value)) for key, value in features))


def test_of_a_key_that_comes_twice_the_last_one_counts(monkeypatch):
    one, two = (_with_length(0x12, _with_length(0x0A, np.float32(x).tobytes())) for x in (1, 2))
    for values in ((one, two), (one, b""), (b"", one), (b"", b"")):
        serialized = [_written(*((b"f", value) for value in values))]
        wanted = tf.parse_example(tf.constant(serialized), {"f": tf.VarLenFeature(tf.float32)})["f"].values
        with tf.Session() as sess:
            got = sess.run(wanted)
        assert got.tolist() == {one: [1.0], two: [2.0], b"": []}[values[-1]]
    if texts.can_read():
        assert examples.find(np.array([_written((b"f", one))], object), [b"f", b"f"]) is None
