"""Running sums, products and log-sum-exps of arrays that are large enough to be taken in another order than NumPy's."""

import numpy as np
import pytest

import penstock as tf
from penstock.ops import scans


@pytest.mark.parametrize("shape, axis", [((64, 200), 0), ((64, 200), 1), ((6, 70, 30), 1), ((70, 6, 13), 1), ((3, 9000), 1), ((20000,), 0), ((45, 100, 1), 1), ((5, 17, 100), 2)])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_order_makes_no_difference(monkeypatch, shape, axis, exclusive, reverse):
    monkeypatch.setattr(scans, "LARGE", 4096)
    monkeypatch.setattr(scans, "PART", 4096)
    values = np.random.RandomState(0).uniform(0.5, 1.5, shape)
    start = {np.add: 0, np.multiply: 1, np.logaddexp: -np.inf}
    with tf.Session() as sess:
        for ufunc, build in ((np.add, tf.cumsum), (np.multiply, tf.cumprod), (np.logaddexp, tf.math.cumulative_logsumexp)):
            for dtype in (np.float32, np.float64, np.int32)[: 2 if ufunc is np.logaddexp else 3]:
                x = values.astype(dtype)
                got = sess.run(build(tf.constant(x), axis, exclusive=exclusive, reverse=reverse))
                source = np.flip(x, axis) if reverse else x
                if exclusive:
                    first = np.full_like(source.take([0], axis), start[ufunc])
                    source = np.concatenate([first, source.take(range(shape[axis] - 1), axis)], axis)
                want = ufunc.accumulate(source, axis, dtype=dtype)
                want = np.flip(want, axis) if reverse else want
                assert got.dtype == dtype
                if ufunc is np.logaddexp:
                    np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == np.float32 else 1e-12)
                else:
                    np.testing.assert_array_equal(got, want)


def test_log_sum_exp_of_infinities(monkeypatch):
    monkeypatch.setattr(scans, "LARGE", 64)
    x = np.random.RandomState(0).randn(5, 100).astype(np.float32)
    x[:, 0], x[:1, 1], x[0, 2], x[:3, 3], x[4, 4] = -np.inf, np.inf, np.nan, -np.inf, 1000
    with tf.Session() as sess, np.errstate(all="ignore"):
        got = sess.run(tf.math.cumulative_logsumexp(tf.constant(x), 0))
        np.testing.assert_allclose(got, np.logaddexp.accumulate(x, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(4,), (4, 5000), (5000, 4)])
def test_behind_two_infinities_there_is_no_logarithm_of_a_sum(shape):
    """TensorFlow subtracts one from the other."""
    line = np.array([1, np.inf, 2, np.inf], np.float32)
    x, axis = (line, 0) if len(shape) == 1 else (np.broadcast_to(line[:, None] if shape[0] == 4 else line, shape), shape.index(4))
    with tf.Session() as sess:
        forth, back = sess.run([tf.math.cumulative_logsumexp(tf.constant(x), axis, reverse=reverse) for reverse in (False, True)])
    np.testing.assert_array_equal(np.moveaxis(forth, axis, 0).reshape(4, -1)[:, -1], [1, np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(np.moveaxis(back, axis, 0).reshape(4, -1)[:, 0], [np.nan, np.nan, np.inf, np.inf])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 1025, 1039, 5000, 70_001])
def test_evenly_spaced_numbers_are_rounded_as_by_numpy(dtype, count):
    for first, step in ((0, 1), (3, -2), (-7, 3), (0.3, 0.7), (1e3, -1e-4), (-0.0, -0.0), (np.inf, 1), (2**31 - 5, 2**29 + 1)):
        kind = np.dtype(dtype)
        if kind.kind == "i":
            if not isinstance(step, int) or not isinstance(first, int) or step > 99:
                continue
            limit = first + step * count
            got = scans.range_kernel(*(np.asarray(v, kind) for v in (first, limit, step)))
            np.testing.assert_array_equal(got, np.arange(first, limit, step, kind))
            assert got.dtype == kind
            continue
        wide = np.float64 if kind == np.float64 else np.float32
        with np.errstate(all="ignore"):
            got = scans._evenly_spaced(wide(first), wide(step), count)
            want = wide(first) + np.arange(count, dtype=wide) * wide(step)
        assert got.dtype == wide and got.tobytes() == want.tobytes()


def test_numbers_beyond_those_that_a_float_can_count():
    got = scans._evenly_spaced(np.float32(1), np.float32(0.5), (1 << 24) + 99)
    np.testing.assert_array_equal(got, np.float32(1) + np.arange((1 << 24) + 99, dtype=np.float32) * np.float32(0.5))


def test_integers_that_wrap_around():
    got = scans.ramp(np.int32(2**31 - 5), np.int32(2**29 + 1), 3000)
    with np.errstate(over="ignore"):
        want = np.int32(2**31 - 5) + np.arange(3000, dtype=np.int32) * np.int32(2**29 + 1)
    assert got is None or (got == want).all()
