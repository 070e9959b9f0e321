"""Simulated quantisation: steps, gradients, and what the range does. Expected values are TensorFlow's."""

import numpy as np
import pytest

import penstock as tf

X = np.array([-7.0, -1.3, -0.1, 0.0, 0.04, 0.5, 2.2, 5.99, 9.0], np.float32)


@pytest.fixture
def sess():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def test_fake_quant_moves_the_range_so_that_zero_is_a_step(sess):
    got = sess.run(tf.fake_quant_with_min_max_args(X))
    wanted = [-6.0235295, -1.3176471, -0.09411765, 0.0, 0.04705882, 0.5176471, 2.2117648, 5.9764705, 5.9764705]
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_gradients_reach_the_ends_of_the_range(sess):
    low, high = tf.constant(-1.0), tf.constant(6.0)
    x = tf.constant(X)
    y = tf.fake_quant_with_min_max_vars(x, low, high)
    dx, dlow, dhigh = sess.run(tf.gradients(y, [x, low, high], np.arange(9, dtype=np.float32)))
    np.testing.assert_array_equal(dx, [0, 0, 2, 3, 4, 5, 6, 7, 0])
    assert (dlow, dhigh) == (1.0, 8.0)


def test_one_range_per_channel(sess):
    x = np.stack([X, X], 1)
    got = sess.run(tf.fake_quant_with_min_max_vars_per_channel(x, [-1.0, 0.0], [6.0, 3.0]))
    for column, (low, high) in enumerate([(-1.0, 6.0), (0.0, 3.0)]):
        np.testing.assert_array_equal(got[:, column], sess.run(tf.fake_quant_with_min_max_vars(X, low, high)))


def test_quantize_and_dequantize(sess):
    got = sess.run(tf.quantization.quantize_and_dequantize(X, -1.0, 6.0, range_given=True))
    wanted = [-6.047244, -1.3228346, -0.09448819, 0.0, 0.04724409, 0.51968503, 2.2204723, 6.0, 6.0]
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    x = tf.constant(X)
    straight = tf.gradients(tf.quantization.quantize_and_dequantize(x, -1.0, 6.0, range_given=True), x)[0]
    np.testing.assert_array_equal(sess.run(straight), np.ones(9))
    inside = tf.gradients(tf.quantization.quantize_and_dequantize_v2(x, -1.0, 6.0, range_given=True), x)[0]
    np.testing.assert_array_equal(sess.run(inside), [0, 0, 1, 1, 1, 1, 1, 1, 0])


def test_ranges_are_those_of_numbers(sess):
    """In TensorFlow, it depends on the place of a NaN whether the numbers near it count."""
    x = np.array([3.0, np.nan, -2.0, 0.3], np.float32)
    got = sess.run(tf.raw_ops.QuantizeAndDequantizeV2(input=x, input_min=0.0, input_max=0.0))
    wanted = sess.run(tf.raw_ops.QuantizeAndDequantizeV2(input=x[[0, 2, 3]], input_min=0.0, input_max=0.0))
    assert np.isnan(got[1])
    np.testing.assert_array_equal(got[[0, 2, 3]], wanted)


def test_ranges_that_make_no_sense(sess):
    with pytest.raises(tf.errors.InvalidArgumentError, match="min has to be smaller than max, was: 2 >= 1"):
        sess.run(tf.fake_quant_with_min_max_args(X, min=2, max=1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_bits must be between 2 and 16"):
        sess.run(tf.fake_quant_with_min_max_args(X, num_bits=17))


MANY = np.concatenate([np.random.RandomState(0).randn(5000).astype(np.float32) * 4, np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42])])


@pytest.mark.parametrize("compute", [
    lambda: tf.fake_quant_with_min_max_args(MANY, min=-3, max=3.5), lambda: tf.fake_quant_with_min_max_vars(MANY, 0.0, 6.0, narrow_range=True),
    lambda: tf.fake_quant_with_min_max_vars(MANY, 0.0, 0.0),
    *(lambda depth=depth, rows=rows: tf.fake_quant_with_min_max_vars_per_channel(np.resize(MANY, (rows, depth)), np.linspace(-5, -0.1, depth), np.linspace(0.2, 7, depth), narrow_range=bool(rows % 2))
      for depth, rows in ((1, 5006), (3, 1671), (5, 400), (16, 300), (17, 311), (48, 40), (64, 5), (100, 3), (1000, 7), (64, 20000), (3, 300_001), (20001, 3))),
    lambda: tf.fake_quant_with_min_max_vars_per_channel(np.resize(MANY, (300, 4)).T.copy().T, [-1.0, 0.0, -3.0, 0.0], [2.0, 0.0, 1.0, 5.0]),
    lambda: tf.fake_quant_with_min_max_vars_per_channel(np.resize(MANY, (4, 3, 5, 30)), np.full(30, -1.0), np.r_[np.full(29, 2.0), 2e-41]),
    lambda: tf.quantization.quantize_and_dequantize_v2(MANY, -2.0, 3.0, range_given=True),
    lambda: tf.quantization.quantize_and_dequantize_v2(MANY, -2.0, 3.0, range_given=True, round_mode="HALF_UP", signed_input=False),
    lambda: tf.quantization.quantize_and_dequantize_v2(MANY[:5000], 0.0, 0.0, range_given=False),
    lambda: tf.bitcast(tf.quantization.quantize(MANY, -3.0, 3.5, tf.quint8)[0], tf.uint8),
    lambda: tf.quantization.dequantize(tf.quantization.quantize(MANY, -3.0, 3.5, tf.quint8)[0], -3.0, 3.5),
])  # fmt: skip
def test_many_numbers_are_quantised_in_machine_code_as_by_numpy(monkeypatch, compute):
    found = []
    for engines in (None, "numpy"):
        if engines:
            monkeypatch.setenv("PENSTOCK_ENGINES", engines)
        with tf.Graph().as_default(), tf.Session() as session:
            found.append(session.run(compute()))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("size", [2, 1000])  # NumPy, machine code
def test_half_way_between_steps(sess, size):
    """TensorFlow multiplies by 14 / 2 for attributes and channels, and divides by the step 2 / 14 for a range of two tensors."""
    x = tf.constant(np.resize(np.array([-0.5, 0.5], np.float32), size))
    how = {"num_bits": 4, "narrow_range": True}
    by_attrs = tf.fake_quant_with_min_max_args(x, -1.0, 1.0, **how)
    by_vars = tf.fake_quant_with_min_max_vars(x, -1.0, 1.0, **how)
    by_channel = tf.fake_quant_with_min_max_vars_per_channel(tf.reshape(x, [-1, 1]), [-1.0], [1.0], **how)
    a, b, c = sess.run([by_attrs, by_vars, by_channel])
    np.testing.assert_array_equal(a[:2], np.array([-0.42857146, 0.5714286], np.float32))
    np.testing.assert_array_equal(b[:2], np.array([-0.5714286, 0.5714286], np.float32))
    np.testing.assert_array_equal(c[:2, 0], a[:2])


def test_nan_has_no_gradient(sess):
    x = tf.constant([np.nan, 0.5, 7.0, np.inf])
    for y in (tf.fake_quant_with_min_max_args(x), tf.fake_quant_with_min_max_vars(x, -6.0, 6.0)):
        np.testing.assert_array_equal(sess.run(tf.gradients(y, x)[0]), [0, 1, 0, 0])


def test_ranges_with_nothing_in_them(sess):
    """As to TensorFlow, numbers below the normal ones are 0; of a range the wrong way round its lower end is left."""
    x = tf.constant([-1.0, 0.5, np.nan])
    np.testing.assert_array_equal(sess.run(tf.fake_quant_with_min_max_vars(x, -1e-40, 1e-40)), [0, 0, 0])
    np.testing.assert_array_equal(sess.run(tf.fake_quant_with_min_max_vars(x, 2.0, 1.0)), [1, 1, np.nan])
