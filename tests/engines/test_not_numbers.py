"""NaN and infinities come out as of TensorFlow's plain kernels (TF_ENABLE_ONEDNN_OPTS=0), whichever engine computes."""

import numpy as np
import pytest

import penstock as tf
from penstock.engines.onednn import library as lib
from tests.engines.modes import MODES, setting

nan, inf = np.nan, np.inf
ROWS = np.array([[1, 2, 3, 4], [1, nan, 2, 3], [1, inf, 2, 3], [1, -inf, 2, 3], [-inf] * 4, [inf, inf, 1, 2], [nan] * 4, [1e38, 3e38, -3e38, 0], [0, 1, 2, nan]], np.float32)
NO_NUMBERS = np.array([0, 1, 1, 0, 1, 1, 1, 0, 1], bool)
needs_onednn = pytest.mark.skipif(lib.get() is None, reason="there is no oneDNN here")


@needs_onednn
@pytest.mark.parametrize("mode", ["off", "eager", "tiled", "onednn", "small onednn", "engines", "small engines"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("function", [tf.nn.softmax, tf.nn.log_softmax])
def test_a_row_of_a_softmax_is_whole(mode, dtype, function):
    """In a row with NaN or infinity all is NaN."""
    with setting(MODES[mode]), tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(dtype, [9 * 8, 40])
        y = tf.cast(function(x), tf.float32)
        found = sess.run(y, {x: np.tile(ROWS, (8, 10))})
    np.testing.assert_array_equal(np.isnan(found), np.tile(NO_NUMBERS[:, None], (8, 40)))


@needs_onednn
@pytest.mark.parametrize("mode", ["off", "onednn", "winograd", "small engines"])
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("where", ["input", "addend"])
def test_relu_behind_a_shortcut_keeps_nan(mode, window, is_constant, norm, where):
    random = np.random.RandomState(0)
    x, other = random.randn(2, 1, 8, 8, 32).astype(np.float32)
    place = x if where == "input" else other
    place[0, 3, 3, 0], place[0, 6, 6, 1] = nan, -inf
    with setting(MODES[mode]), tf.Graph().as_default(), tf.Session() as sess:
        given, addend = tf.placeholder(tf.float32, x.shape), tf.placeholder(tf.float32, x.shape)
        weights = random.randn(window, window, 32, 32).astype(np.float32)
        y = tf.nn.conv2d(given, tf.constant(weights) if is_constant else tf.Variable(weights), [1, 1, 1, 1], "SAME")
        bias = tf.constant(random.randn(32).astype(np.float32))
        if norm:
            y = tf.nn.fused_batch_norm(y, tf.ones([32]), bias, tf.zeros([32]), tf.ones([32]), is_training=False)[0]
        else:
            y = tf.nn.bias_add(y, bias)
        summed = y + addend
        y = tf.nn.relu(summed)
        sess.run(tf.global_variables_initializer())
        feeds = {given: x, addend: other}
        for _ in range(2):
            found = sess.run(y, feeds)
        before = sess.run(summed, feeds)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(before))
    assert np.isnan(found).any()
    np.testing.assert_allclose(found, np.maximum(before, 0), rtol=1e-4, atol=1e-4)
