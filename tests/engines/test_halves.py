"""Half precision: the loops give what NumPy gives."""

import numpy as np
import pytest

import penstock as tf
from penstock.ops import native

RANDOM = np.random.RandomState(0)
X, Y = (RANDOM.randn(40, 50) * 3).astype(np.float16), RANDOM.randn(40, 50).astype(np.float16)
X[0, :4] = np.nan, np.inf, 1, 60000
Y[0, :4] = 1, np.inf, 0, 2

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(("build", "compute"), [
    (tf.add, np.add), (tf.subtract, np.subtract), (tf.multiply, np.multiply), (tf.divide, np.divide), (tf.maximum, np.maximum), (tf.minimum, np.minimum),
    (tf.less, np.less), (tf.equal, np.equal), (lambda x, y: x + y[0], lambda x, y: x + y[0]), (lambda x, y: x * 3, lambda x, y: x * np.float16(3)),
    (lambda x, y: x[:, :1] + y, lambda x, y: x[:, :1] + y), (lambda x, y: tf.nn.bias_add(x, y[1]), lambda x, y: x + y[1]),
    (lambda x, y: tf.sqrt(x), lambda x, y: np.sqrt(x)), (lambda x, y: tf.square(x), lambda x, y: np.square(x)), (lambda x, y: -x, lambda x, y: -x),
    (lambda x, y: tf.nn.relu(x), lambda x, y: np.maximum(x, np.float16(0))), (lambda x, y: tf.reduce_max(x, 1), lambda x, y: x.max(1)),
    (lambda x, y: tf.argmax(y, 1), lambda x, y: y.argmax(1)), (lambda x, y: tf.cast(x, tf.float32), lambda x, y: x.astype(np.float32)),
])  # fmt: skip
def test_same_bits_as_numpy(build, compute):
    x, y = (tf.placeholder(tf.float16, [40, 50]) for _ in range(2))
    with tf.Session() as sess, np.errstate(all="ignore"):
        got, want = sess.run(build(x, y), {x: X, y: Y}), compute(X, Y)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_gradient_of_relu():
    x = tf.placeholder(tf.float16, [40, 50])
    with tf.Session() as sess:
        np.testing.assert_array_equal(sess.run(tf.gradients(tf.nn.relu(x), x), {x: Y})[0], (Y > 0).astype(np.float16))


@pytest.mark.parametrize("shape", [(40, 64), (3, 40, 64)])
def test_products_are_summed_in_single_precision(shape):
    x = tf.placeholder(tf.float16, shape)
    value = RANDOM.randn(*shape).astype(np.float16)
    with tf.Session() as sess:
        got = sess.run(tf.matmul(x, x, transpose_b=True), {x: value})
    wide = value.astype(np.float32)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(np.float32), wide @ np.swapaxes(wide, -1, -2), rtol=1e-3, atol=1e-2)


def test_shapes_that_do_not_fit_are_refused_as_ever():
    x = tf.placeholder(tf.float16)
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match="Incompatible shapes"):
        sess.run(x + tf.zeros([3, 1000], tf.float16), {x: np.zeros((2, 1000), np.float16)})


def test_who_computes():
    from penstock.graph import bind

    with tf.Graph().as_default():
        total = tf.placeholder(tf.float16, [4]) + 1
    engine = getattr(bind.bind(total.op).fn, "engine", None)
    assert engine == ("native" if native.available() else None)
