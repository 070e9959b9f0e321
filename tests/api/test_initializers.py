"""Initializers: shapes, scales, configurations. Their numbers are compared with TensorFlow's in conformance/."""

import numpy as np
import pytest

import penstock as tf

INIT = tf.initializers


def value(initializer, shape, dtype=None, **kwargs):
    with tf.Session() as sess:
        return sess.run(initializer(shape, dtype=dtype, **kwargs))


ALL = {
    "zeros": lambda: INIT.zeros(),
    "ones": lambda: INIT.ones(),
    "constant": lambda: INIT.constant(3.0),
    "random_uniform": lambda: INIT.random_uniform(-1, 1, seed=3),
    "random_normal": lambda: INIT.random_normal(1.0, 2.0, seed=4),
    "truncated_normal": lambda: INIT.truncated_normal(seed=5),
    "uniform_unit_scaling": lambda: INIT.uniform_unit_scaling(seed=2),
    "variance_scaling": lambda: INIT.variance_scaling(2.0, "fan_out", "uniform", seed=2),
    "glorot_uniform": lambda: INIT.glorot_uniform(seed=1),
    "glorot_normal": lambda: INIT.glorot_normal(seed=1),
    "identity": lambda: INIT.identity(2.0),
}


@pytest.mark.parametrize("name", ALL)
def test_config_round_trip(name):
    first = ALL[name]()
    again = type(first).from_config(first.get_config())
    assert again.get_config() == first.get_config()
    np.testing.assert_array_equal(value(first, [3, 2]), value(again, [3, 2]))


@pytest.mark.parametrize(
    ("initializer", "variance"),
    [
        (INIT.he_normal(seed=1), 2 / 200),
        (INIT.he_uniform(seed=1), 2 / 200),
        (INIT.lecun_normal(seed=1), 1 / 200),
        (INIT.lecun_uniform(seed=1), 1 / 200),
        (INIT.glorot_normal(seed=1), 2 / 500),
        (INIT.glorot_uniform(seed=1), 2 / 500),
        (INIT.variance_scaling(3.0, "fan_out", "untruncated_normal", seed=1), 3 / 300),
    ],
)
def test_variance(initializer, variance):
    numbers = value(initializer, [200, 300])
    assert numbers.var() == pytest.approx(variance, rel=0.03)
    assert abs(numbers.mean()) < 0.002


def test_convolution_fans():
    assert value(INIT.he_uniform(seed=1), [3, 3, 8, 16]).var() == pytest.approx(2 / 72, rel=0.1)


def test_aliases():
    assert tf.zeros_initializer is INIT.zeros and tf.glorot_uniform_initializer is INIT.glorot_uniform
    assert tf.constant_initializer is INIT.constant and tf.variance_scaling_initializer is INIT.variance_scaling


def test_types():
    assert value(tf.zeros_initializer(), [2], tf.int64).dtype == np.int64
    assert value(tf.constant_initializer([1, 2]), [3], tf.float64).tolist() == [1, 2, 2]
    assert value(tf.ones_initializer(tf.bool), [2]).tolist() == [True, True]
    assert value(tf.zeros_initializer(), [1], tf.string).tolist() == [b""]


def test_parts_are_scaled_like_the_whole():
    class Info:
        full_shape = (100, 50)
        var_offset = (0, 0)

    whole = value(tf.glorot_uniform_initializer(seed=1), [100, 50])
    part = value(tf.glorot_uniform_initializer(seed=1), [10, 50], partition_info=Info)
    assert np.abs(part).max() <= np.sqrt(6 / 150)
    assert np.abs(whole).max() <= np.sqrt(6 / 150)
    assert value(tf.initializers.identity(), [10, 50], partition_info=Info).tolist() == np.eye(10, 50).tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda: INIT.variance_scaling(scale=0.0),
        lambda: INIT.variance_scaling(mode="fan"),
        lambda: INIT.variance_scaling(distribution="flat"),
        lambda: INIT.random_normal(dtype=tf.int32),
        lambda: INIT.identity()([2, 2, 2]),
        lambda: INIT.orthogonal()([2]),
    ],
)
def test_refusals(make):
    with pytest.raises(ValueError):
        make()
    with pytest.raises(TypeError):
        tf.constant_initializer(tf.constant(1.0))
