"""Static shapes that a program has only claimed are not relied on: what runs is what TF runs."""

import numpy as np
import pytest

import penstock as tf


@pytest.mark.parametrize("kind", ["identity", "kernel", "reshape", "reverse", "top", "sum of segments", "equal"])
@pytest.mark.parametrize("setting", ["0", "eager"])
def test_a_claimed_shape_is_not_written_by(monkeypatch, setting, kind):
    monkeypatch.setenv("PENSTOCK_REGIONS", setting)
    p = tf.placeholder(tf.float32, None)
    size = tf.size(p)
    makers = {
        "identity": lambda: tf.identity(p), "kernel": lambda: tf.abs(p), "reshape": lambda: tf.reshape(p, [-1]), "reverse": lambda: tf.reverse(p, [0]),
        "top": lambda: tf.nn.top_k(p, size)[0], "sum of segments": lambda: tf.unsorted_segment_sum(p, tf.range(size), size),
        "equal": lambda: tf.cast(tf.equal(p, 1.0), tf.float32),
    }  # fmt: skip
    q = makers[kind]()
    q.set_shape([100])
    x = tf.placeholder(tf.float32, [100])
    s = tf.reduce_sum(tf.exp(x))
    with tf.control_dependencies([s]):
        y = tf.sin(q * 2.0)
    total = tf.reduce_sum(y * 3.0)
    with tf.Session() as sess:
        for size in (100, 100, 1, 7):
            _, found, sum_ = sess.run([s, y, total], {p: np.ones(size), x: np.ones(100)})
            assert found.shape == (size,)
            np.testing.assert_allclose(sum_, 3 * size * np.sin(2.0), rtol=1e-5)


@pytest.mark.parametrize("setting", ["0", "eager"])
def test_a_variable_that_takes_any_shape(monkeypatch, setting):
    monkeypatch.setenv("PENSTOCK_REGIONS", setting)
    x = tf.placeholder(tf.float32, [100])
    v = tf.Variable(np.ones(100, np.float32), use_resource=False)
    new = tf.placeholder(tf.float32, None)
    change = tf.assign(v, new, validate_shape=False)
    s = tf.reduce_sum(tf.exp(x))
    with tf.control_dependencies([s]):
        y = tf.sin(v * 2.0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for size in (100, 100, 1, 7):
            sess.run(change.op, {new: np.ones(size)})
            assert sess.run([s, y], {x: np.ones(100)})[1].shape == (size,)
