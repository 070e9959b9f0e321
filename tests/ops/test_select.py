"""Choosing elements by a condition: long arrays by arithmetic on bits, with the results of np.where."""

import ml_dtypes
import numpy as np
import pytest

import penstock as tf
from penstock.ops import select
from penstock.ops.select import choose


def _numbers(rng, n, dtype):
    if np.dtype(dtype).kind == "b":
        return rng.random(n) < 0.5
    return (rng.standard_normal(n) * 50).astype(dtype)


@pytest.fixture(autouse=True)
def quiet():
    """Kernels run with NumPy's warnings off."""
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize(
    "dtype",
    ["f4", "f8", "f2", ml_dtypes.bfloat16, "i1", "u1", "i2", "i4", "i8", "u8", "?", "c8", "c16", "O"],
    ids=lambda d: np.dtype(d).name,
)
@pytest.mark.parametrize("n", [0, 10, 2048, 70001])
def test_choose_is_where(dtype, n, monkeypatch):
    monkeypatch.setattr(select, "_PIECE", 1000)
    rng = np.random.default_rng(n)
    a, b, condition = _numbers(rng, n, dtype), _numbers(rng, n, dtype), rng.random(n) < 0.5
    zero, three = np.zeros((), dtype), np.array(3, dtype)
    for t, e in ((a, b), (a, zero), (zero, b), (three, b), (a, three), (zero, three), (three, zero), (a[::-1], b), (a, zero[()])):
        got, expected = choose(condition, t, e), np.where(condition, t, e)
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        assert got.tolist() == expected.tolist() if got.dtype.hasobject else got.tobytes() == expected.tobytes()


def test_choose_keeps_the_bits_of_special_numbers():
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, -np.nan, 1.0], np.float32)
    a, b = np.resize(special, 4096), np.resize(special[::-1], 4096)
    condition = np.arange(4096) % 3 == 0
    for t, e in ((a, b), (a, np.float32(0)), (a, np.float32(-0.0)), (np.float32(0), b), (np.float32(np.nan), b)):
        assert choose(condition, t, e).tobytes() == np.where(condition, t, e).tobytes()


def test_choose_leaves_its_inputs_alone_and_takes_matrices():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 60, 50)).astype("f")
    condition = rng.random((60, 50)) < 0.5
    before = a.copy(), b.copy(), condition.copy()
    np.testing.assert_array_equal(choose(condition, a, b), np.where(condition, a, b))
    np.testing.assert_array_equal(choose(condition.T, a.T, b.T), np.where(condition, a, b).T)
    np.testing.assert_array_equal(choose(condition, a, b[0]), np.where(condition, a, b[0]))
    for x, y in zip((a, b, condition), before, strict=True):
        np.testing.assert_array_equal(x, y)


def test_dropout_and_its_gradient_use_one_mask():
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.constant(np.arange(1, 4097, dtype=np.float32).reshape(64, 64))
        y = tf.nn.dropout(x, keep_prob=0.5, seed=3)
        kept, slope = sess.run([y, tf.gradients(y, x)[0]])
    np.testing.assert_array_equal(kept, slope * np.arange(1, 4097, dtype=np.float32).reshape(64, 64))
    assert set(np.unique(slope)) == {0.0, 2.0}
    assert 0.4 < (slope > 0).mean() < 0.6


@pytest.mark.parametrize("x", [
    np.zeros(0, bool), np.zeros(5, bool), np.arange(7) % 3 == 0, np.array([0.0, -0.0, np.nan, 1.0], np.float32), np.array([0, 2j, 0]), (np.arange(10) % 4)[::-3],
    np.array([0, 3], np.uint8), np.eye(3), np.zeros((2, 0, 3)),
], ids=lambda x: f"{x.dtype}{x.shape}")  # fmt: skip
def test_places_of_what_is_not_zero(x):
    found = select.where_kernel(x)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.argwhere(x))
