"""Lines for Split, Slice, ConcatV2, short AddN and BiasAddGrad; columns of products; an activation behind a reshaped product."""

from __future__ import annotations

import numpy as np
import pytest

import penstock as tf
from penstock.engines.onednn import library
from penstock.graph.bind import engine_is_on

needs_library = pytest.mark.skipif(library.get() is None or not engine_is_on("onednn"), reason="oneDNN is not there")
ROUNDS = 30  # enough for the program to be compiled


@pytest.fixture(autouse=True)
def _new_graph():
    with tf.Graph().as_default():
        yield


def _data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def _types(sess, fetches, feeds, stage="optimise/remapping"):
    found = next(s for s in sess.explain(fetches, feeds).stages if s.name == stage)
    return [op.type for op in found.graph]


def test_parts_and_joins():
    x = tf.placeholder(tf.float32, [4, 6, 8])
    a, b = tf.split(x, 2, axis=-1)
    part = tf.slice(x, [1, 0, 2], [2, -1, 3])
    joined = tf.concat([b, a], -1)
    total = tf.add_n([a, b, tf.negative(a)])
    value = _data(4, 6, 8)
    with tf.Session() as sess:
        for _ in range(ROUNDS):
            got = sess.run([a, b, part, joined, total], {x: value})
        code = str(sess.explain([a, b, part, joined, total], {x: value}).code)
    first, second = value[..., :4], value[..., 4:]
    for have, want in zip(got, (first, second, value[1:3, :, 2:5], np.concatenate((second, first), -1), first + second + -first)):
        np.testing.assert_array_equal(have, want)
    assert "concatenate_" in code and "slice_" in code


def test_claimed_shapes_are_not_relied_on():
    x = tf.py_func(lambda: _data(2, 8), [], tf.float32)
    x.set_shape([2, 6])
    a, b = tf.split(x, 2, axis=1)
    with tf.Session() as sess:
        for _ in range(ROUNDS):
            got = sess.run([a, b])
    np.testing.assert_array_equal(np.concatenate(got, 1), _data(2, 8))


def _cell(fed):
    kernel = tf.get_variable("kernel", [48, 128], initializer=tf.random_normal_initializer(stddev=0.1, seed=1))
    h = tf.zeros([16, 32])
    for x in tf.unstack(fed, axis=1):
        i, j, f, o = tf.split(tf.matmul(tf.concat([x, h], 1), kernel), 4, axis=1)
        h = tf.sigmoid(i) * tf.tanh(j) + tf.sigmoid(f) * h + o
    return kernel, tf.reduce_sum(tf.square(h))


@needs_library
def test_only_the_columns_that_are_read():
    fed = tf.placeholder(tf.float32, [16, 4, 16])
    kernel, loss = _cell(fed)
    (gradient,) = tf.gradients(loss, [kernel])
    feeds = {fed: _data(16, 4, 16)}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        types = _types(sess, gradient, feeds)
        assert types.count("_MatMulColumns") == 3 and "Slice" not in types and types.count("_SumOfProducts") == 1
        for _ in range(ROUNDS):
            got = sess.run(gradient, feeds)
        at = sess.run(kernel)
        plain = tf.Session(config=tf.ConfigProto(graph_options=tf.GraphOptions(optimizer_options=tf.OptimizerOptions(opt_level=-1))))
        with plain:
            plain.run(tf.global_variables_initializer())
            kernel.load(at, plain)
            want = plain.run(gradient, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@needs_library
def test_columns_of_a_product_that_others_read_stay_a_slice():
    a, b = tf.placeholder(tf.float32, [4, 8]), tf.placeholder(tf.float32, [6, 8])
    product = tf.matmul(a, b, transpose_b=True)
    fetches, feeds = [tf.slice(product, [0, 1], [4, 3]), product], {a: _data(4, 8), b: _data(6, 8)}
    with tf.Session() as sess:
        assert "_MatMulColumns" not in _types(sess, fetches, feeds)
        part, whole = sess.run(fetches, feeds)
    np.testing.assert_array_equal(part, whole[:, 1:4])


def test_rows_are_no_columns():
    a, b = tf.placeholder(tf.float32, [4, 8]), tf.placeholder(tf.float32, [6, 8])
    part = tf.slice(tf.matmul(a, b, transpose_b=True), [1, 1], [2, 3])
    with tf.Session() as sess:
        got = sess.run(part, {a: _data(4, 8), b: _data(6, 8)})
    np.testing.assert_allclose(got, (_data(4, 8) @ _data(6, 8).T)[1:3, 1:4], rtol=1e-5, atol=1e-5)


@needs_library
def test_activation_behind_a_reshape():
    x, w, b = tf.placeholder(tf.float32, [6, 8]), tf.placeholder(tf.float32, [8, 4]), tf.placeholder(tf.float32, [4])
    y = tf.nn.relu(tf.reshape(tf.nn.bias_add(tf.matmul(x, w), b), [2, 3, 4]))
    feeds = {x: _data(6, 8), w: _data(8, 4), b: _data(4)}
    with tf.Session() as sess:
        types = _types(sess, y, feeds)
        assert "_FusedMatMul" in types and "Relu" not in types
        got = sess.run(y, feeds)
    np.testing.assert_allclose(got, np.maximum(_data(6, 8) @ _data(8, 4) + _data(4), 0).reshape(2, 3, 4), rtol=1e-5, atol=1e-5)


def test_strided_slices_and_dimensions_of_one(monkeypatch):
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    x = tf.placeholder(tf.float32, [4, 6, 1])
    value = _data(4, 6, 1)
    cases = [
        (x[1], value[1]), (x[:, 2], value[:, 2]), (x[..., ::-1, 0], value[..., ::-1, 0]), (x[-2:, None, 1:5:3], value[-2:, None, 1:5:3]), (x[3, 5, 0], value[3, 5, 0]),
        (tf.squeeze(x), value[..., 0]), (tf.squeeze(x[:1], [0]), value[0]), (tf.expand_dims(x, 1), value[:, None]), (tf.expand_dims(x[:, 1, 0], -1), value[:, 1, :]),
        (tf.squeeze(tf.reduce_sum(x, keepdims=True)), value.sum(keepdims=True)[0, 0, 0]), (x[-1, 2, 0] * x[0, 0, 0], value[-1, 2, 0] * value[0, 0, 0]),
    ]  # fmt: skip
    with tf.Session() as sess:
        code = sess.explain([y for y, _ in cases], {x: value}).code
        got = sess.run([y for y, _ in cases], {x: value})
    for found, (_, wanted) in zip(got, cases, strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert np.shape(found) == np.shape(wanted) and np.asarray(found).dtype == np.float32
    lines = [line for line in code.splitlines() if line.endswith(("= StridedSlice", "= Squeeze", "= ExpandDims"))]
    assert len(lines) == 14 and not any(line.split("=")[1].strip().startswith("f") for line in lines)


def test_an_index_that_is_out_of_range_is_reported(monkeypatch):
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    x = tf.placeholder(tf.float32, [None, 3])
    y = tf.identity(x[2], name="row")
    with tf.Session() as sess:
        np.testing.assert_array_equal(sess.run(y, {x: _data(4, 3)}), _data(4, 3)[2])
        with pytest.raises(tf.errors.InvalidArgumentError, match="slice index 2 of dimension 0 out of bounds"):
            sess.run(y, {x: _data(2, 3)})


def test_strided_slices_of_shapes_that_change(monkeypatch):
    """Constant bounds are made an index once for each shape that comes; what does not fit is told as the kernel tells it."""
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setenv("PENSTOCK_SHAPES", "0")
    x = tf.placeholder(tf.float32, None)
    y = tf.placeholder(tf.float32, [None, None])
    fetches = [x[..., 1:-1], y[:, 1], y[1:, ::-1], y[-1], tf.strided_slice(x, [0], [2], new_axis_mask=0), tf.slice(y, [1, 0], [-1, 3]), tf.pad(y, [[1, 0], [0, 2]])]
    with tf.Session() as sess:
        for rows in range(2, 80):
            a, b = _data(3, rows, 5, seed=rows), _data(rows, 4, seed=rows)
            for have, want in zip(sess.run(fetches, {x: a, y: b}), (a[..., 1:-1], b[:, 1], b[1:, ::-1], b[-1], a[0:2], b[1:, :3], np.pad(b, [(1, 0), (0, 2)]))):
                np.testing.assert_array_equal(have, want)
        code = str(sess.explain(fetches, {x: a, y: b}).code)
        assert all(f" {name}_" in code for name in ("sliced", "part", "padded"))
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Expected size\[1\] in \[0, 2\], but got 3") as raised:
            sess.run(fetches[5], {y: _data(3, 2)})
        assert raised.value.op is fetches[5].op
        with pytest.raises(tf.errors.InvalidArgumentError, match="slice index 1 of dimension 1 out of bounds") as raised:
            sess.run(fetches[1], {y: _data(3, 1)})
        assert raised.value.op is fetches[1].op
        with pytest.raises(tf.errors.InvalidArgumentError, match="Index out of range using input dim 0; input has only 0 dims"):
            sess.run(fetches[4], {x: 1.0})
