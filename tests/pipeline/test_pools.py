"""The gradient of a ReLU before a pool: masked where it is small, with the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock as tf

_PLAIN = tf.ConfigProto(graph_options=tf.GraphOptions(optimizer_options=tf.OptimizerOptions(opt_level="L0")))


def gradients(window: int, stride: int, padding: str, reads_between: bool = False) -> tuple[Any, list[Any]]:
    """A placeholder, and gradients behind a convolution, a ReLU and a pool."""
    x = tf.placeholder(tf.float32, [None, 9, 9, 4])
    filter = tf.constant(np.random.RandomState(0).randn(3, 3, 4, 8).astype(np.float32))
    relu = tf.nn.relu(tf.nn.conv2d(x, filter, strides=1, padding="SAME") - 1.0)
    y = tf.nn.max_pool(relu, [1, window, window, 1], [1, stride, stride, 1], padding)
    weights = tf.constant(np.random.RandomState(1).standard_normal(y.shape[1:]).astype(np.float32))
    return x, tf.gradients(tf.reduce_sum(y * y * weights), [x, relu] if reads_between else [x])


@pytest.mark.parametrize(("window", "stride", "padding"), [(2, 2, "SAME"), (3, 2, "VALID"), (3, 2, "SAME"), (3, 1, "SAME")])
@pytest.mark.parametrize("reads_between", [False, True])
def test_same_values(window: int, stride: int, padding: str, reads_between: bool) -> None:
    value = np.random.RandomState(2).randn(3, 9, 9, 4).astype(np.float32)
    value[0, 0, 0] = np.nan
    value[1] = 0  # every window has nothing above zero
    with tf.Graph().as_default():
        x, wanted = gradients(window, stride, padding, reads_between)
        with tf.Session(config=_PLAIN) as sess:
            expected = sess.run(wanted, {x: value})
        with tf.Session() as sess:
            got = sess.run(wanted, {x: value})
            is_masked = "masks what" in str(sess.explain(wanted, {x: value}))
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)
    assert is_masked is (stride > 1 and not reads_between)
