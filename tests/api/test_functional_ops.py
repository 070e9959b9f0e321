"""tf.map_fn, tf.foldl, tf.foldr, tf.scan, tf.vectorized_map."""

import numpy as np
import pytest

import penstock as tf


def run(fetches, feed=None):
    with tf.Session() as sess:
        return sess.run(fetches, feed)


def test_map():
    x = tf.placeholder(tf.float32, [None])
    y = tf.map_fn(lambda a: a * a + 1.0, x)
    values = np.array([1.0, 2.0, 3.0], np.float32)
    assert run(y, {x: values}).tolist() == [2, 5, 10]
    assert run(y, {x: values[:0]}).tolist() == []
    np.testing.assert_allclose(run(tf.gradients(y, x)[0], {x: values}), 2 * values)


def test_map_knows_shapes():
    assert tf.map_fn(lambda a: a[0], tf.zeros([4, 3])).shape.as_list() == [4]
    assert tf.map_fn(lambda a: a, tf.placeholder(tf.float32, [None, 3])).shape.as_list() == [None, 3]


def test_map_of_structures():
    elems = (tf.constant([1.0, 2.0]), {"b": tf.constant([[1, 2], [3, 4]])})
    a, b = tf.map_fn(lambda t: (t[0] * 2.0, tf.reduce_sum(t[1]["b"])), elems, dtype=(tf.float32, tf.int32))
    assert [v.tolist() for v in run([a, b])] == [[2, 4], [3, 7]]
    assert run(tf.map_fn(lambda a: tf.cast(a, tf.float32), tf.range(3), dtype=tf.float32)).tolist() == [0, 1, 2]
    assert run(tf.map_fn(lambda a: tf.cast(a, tf.float32), tf.range(3), fn_output_signature=tf.float32)).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "build, error, text",
    [
        (lambda: tf.map_fn(3, tf.constant([1.0])), TypeError, "not callable"),
        (lambda: tf.map_fn(lambda a: a, tf.constant(1.0)), ValueError, "must be 1\\+ dimensional"),
        (lambda: tf.map_fn(lambda a: (a, a), tf.constant([1.0])), ValueError, "same nested structure"),
        (lambda: tf.map_fn(lambda a: a, []), ValueError, "sequence of Tensors"),
        (lambda: tf.scan(lambda a, b: (a, b), tf.constant([1.0])), ValueError, "same nested structure"),
        (lambda: tf.foldl(3, tf.constant([1.0])), TypeError, "not callable"),
    ],
)
def test_errors(build, error, text):
    with pytest.raises(error, match=text):
        build()


def test_folds():
    x = tf.constant([1.0, 2.0, 3.0])
    assert run(tf.foldl(lambda a, b: a - b, x)) == -4.0
    assert run(tf.foldr(lambda a, b: a - b, x)) == 0.0
    assert run(tf.foldl(lambda a, b: a - b, x, initializer=10.0)) == 4.0
    assert run(tf.foldr(lambda a, b: a * 2.0 + b, x, initializer=0.0)) == 17.0
    total, product = tf.foldl(lambda a, b: (a[0] + b, a[1] * b), x, initializer=(0.0, 1.0))
    assert run([total, product]) == [6.0, 6.0]
    np.testing.assert_allclose(run(tf.gradients(product, x)[0]), [6, 3, 2])


def test_scans():
    x = tf.placeholder(tf.float32, [None])
    feed = {x: [1.0, 2.0, 3.0]}
    assert run(tf.scan(lambda a, b: a + b, x), feed).tolist() == [1, 3, 6]
    assert run(tf.scan(lambda a, b: a + b, x, reverse=True), feed).tolist() == [6, 5, 3]
    assert run(tf.scan(lambda a, b: a + b, x, initializer=10.0), feed).tolist() == [11, 13, 16]
    assert run(tf.scan(lambda a, b: a + b, x, initializer=10.0, reverse=True), feed).tolist() == [16, 15, 13]
    a, b = tf.scan(lambda a, b: (a[0] + b, a[1] * b), x, initializer=(0.0, 1.0))
    assert [v.tolist() for v in run([a, b], feed)] == [[1, 3, 6], [1, 2, 6]]
    np.testing.assert_allclose(run(tf.gradients(tf.scan(lambda a, b: a * b, x), x)[0], feed), [1 + 2 + 6, 1 + 3, 2])


def test_recurrent_net():
    """A scan over time against the same net written out."""
    w = tf.constant([[0.5, -0.2], [0.1, 0.3]])
    xs = tf.constant([[1.0, 0.5], [-0.3, 0.8], [0.2, 0.1]])

    def cell(h, x):
        return tf.tanh(tf.squeeze(tf.matmul(tf.expand_dims(h, 0), w), 0) + x)

    looped = tf.reduce_sum(tf.scan(cell, xs, initializer=tf.zeros([2])) ** 2)
    h, unrolled = tf.zeros([2]), []
    for t in range(3):
        h = cell(h, xs[t])
        unrolled.append(h)
    plain = tf.reduce_sum(tf.stack(unrolled) ** 2)
    a, b = run([tf.gradients(looped, [w, xs]), tf.gradients(plain, [w, xs])])
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_vectorized_map():
    x = tf.constant([1.0, 2.0, 3.0])
    a, b = tf.vectorized_map(lambda e: (e * 2.0, tf.cast(e, tf.int32)), x)
    assert [v.tolist() for v in run([a, b])] == [[2, 4, 6], [1, 2, 3]]
