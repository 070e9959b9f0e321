"""Operands that repeat every few elements: bit for bit what NumPy's own broadcasting gives."""

import numpy as np
import pytest

import penstock as tf
from penstock.ops.kernels import periods

SHAPES = [
    ((16, 1, 1, 4, 1), (16, 32, 32, 4, 4)),
    ((4,), (50, 60, 4)),
    ((3,), (4099, 3)),
    ((1, 1, 8), (64, 32, 8)),
    ((5, 1, 7, 1), (5, 16, 7, 40)),
    ((4, 1, 3, 1, 2), (4, 64, 3, 9, 2)),
    ((2, 1, 1, 6), (2, 50, 30, 6)),
]
OTHERS = [((64,), (500, 64)), ((500, 1), (500, 64)), ((500, 64), (500, 64)), ((), (10000,)), ((4,), (10, 4)), ((0, 1, 4), (0, 9000, 4)), ((2, 4), (9000, 4))]


def values(shape, seed):
    return np.asarray(np.random.RandomState(seed).randn(*shape), np.float32)


@pytest.mark.parametrize(("small", "full"), SHAPES)
@pytest.mark.parametrize("ufunc", [np.subtract, np.true_divide, np.maximum, np.less])
def test_what_repeats_is_written_out(small, full, ufunc):
    x, y, run = values(full, 1), values(small, 2), periods.spread(ufunc)
    assert periods.period_of(small, full) is not None or small == (3,)
    np.testing.assert_array_equal(run(x, y), ufunc(x, y), strict=True)
    np.testing.assert_array_equal(run(y, x), ufunc(y, x), strict=True)
    across = np.asfortranarray(x)
    np.testing.assert_array_equal(run(across, y), ufunc(x, y))
    expected = ufunc(x, y)
    if expected.dtype == x.dtype:
        assert run(x, y, out=x) is x
        np.testing.assert_array_equal(x, expected)
    view = np.broadcast_to(y, full)
    found = periods.contiguous(view)
    assert found.flags.c_contiguous and found.flags.writeable
    np.testing.assert_array_equal(found, view, strict=True)


@pytest.mark.parametrize(("small", "full"), OTHERS)
def test_everything_else_is_left_to_numpy(small, full):
    assert periods.period_of(small, full) is None
    x, y, run = values(full, 1), values(small, 2), periods.spread(np.add)
    if small != (2, 4):
        np.testing.assert_array_equal(run(x, np.asarray(y)), x + y, strict=True)
    else:
        with pytest.raises(ValueError, match="broadcast"):
            run(x, y)


def test_group_norm_in_generated_code(monkeypatch):
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    found = []
    for regions in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_REGIONS", regions)
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [4, 16, 16, 4, 4])
            mean, variance = tf.nn.moments(x, [1, 2, 4], keep_dims=True)
            y = (x - mean) / tf.sqrt(variance + 1e-5)
            with tf.Session() as sess:
                feed = {x: values((4, 16, 16, 4, 4), 3)}
                found.append(sess.run([y, *tf.gradients(y * y * y, x)], feed))
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
