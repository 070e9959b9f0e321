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


CROSSED = [
    ((1, 128, 3), (128, 1, 3)),
    ((90, 1, 8), (1, 90, 8)),
    ((128, 3), (128, 1, 3)),
    ((70, 65, 1), (1, 65, 4)),
    ((120, 90, 1), (120, 90, 5)),
    ((64, 32, 1, 1), (64, 32, 3, 3)),
    ((3, 1, 60, 2), (3, 60, 1, 2)),
]
NOT_CROSSED = [((1, 20, 3), (20, 1, 3)), ((1, 30, 64), (30, 1, 64)), ((2000, 1), (1, 2000)), ((1, 2000, 3), (2000, 1, 3)), ((100, 100, 1), (100, 100, 40)), ((2, 3), (4, 3)), ((0, 1, 3), (1, 9000, 3))]


@pytest.mark.parametrize(("one", "other"), CROSSED)
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("ufunc", [np.subtract, np.true_divide, np.maximum, np.less, np.hypot])
@pytest.mark.filterwarnings("ignore:.*encountered in divide:RuntimeWarning")
def test_an_operand_is_written_out_as_a_whole(one, other, ufunc, kind, monkeypatch):
    x, y, run = (5 * values(one, 1)).astype(kind), (5 * values(other, 2) + 20).astype(kind), periods.spread(ufunc)
    whole = periods.whole_of(one, other)
    assert whole is not None and periods.pays(one, other, whole.full)
    written = []
    monkeypatch.setattr(periods.Whole, "written_out", lambda self, operand, plain=periods.Whole.written_out: written.append(operand) or plain(self, operand))
    for a, b in ((x, y), (y, x), (np.asfortranarray(x), y[..., ::-1])):
        kept = a.copy(), b.copy()
        expected = ufunc(a, b)
        found = run(a, b)
        np.testing.assert_array_equal(found, expected, strict=True)
        assert found.flags.c_contiguous and found.base is not a and not np.shares_memory(found, a) and not np.shares_memory(found, b)
        np.testing.assert_array_equal(a, kept[0])
        np.testing.assert_array_equal(b, kept[1])
        into = np.empty_like(expected)
        assert run(a, b, out=into) is into
        np.testing.assert_array_equal(into, expected)
    assert written
    if y.shape == whole.full and ufunc is np.subtract:
        expected = x - y
        assert run(x, y, out=y) is y
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(("one", "other"), NOT_CROSSED)
def test_what_would_gain_nothing_is_not_written_out(one, other):
    assert periods.whole_of(one, other) is None


def test_differences_of_all_pairs_in_generated_code(monkeypatch):
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    found, code = [], ""
    for regions in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_REGIONS", regions)
        with tf.Graph().as_default():
            x, mass = tf.placeholder(tf.float32, [100, 3]), tf.placeholder(tf.float32, [100])
            gap = tf.expand_dims(x, 0) - tf.expand_dims(x, 1)
            force = tf.reduce_sum(gap * tf.expand_dims(tf.exp(-tf.reduce_sum(tf.square(gap), 2)) * mass, 2), 1)
            with tf.Session() as sess:
                feed = {x: values((100, 3), 3), mass: values((100,), 4)}
                fetches = [force, *tf.gradients(force * force, [x, mass])]
                found.append(sess.run(fetches, feed))
                code = sess.explain(fetches, feed).code
    assert "subtract_" in code
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


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
