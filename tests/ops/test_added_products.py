"""Sums of many products by one loop, against NumPy; and that generated code uses it."""

import numpy as np
import pytest

import penstock as tf
from penstock.engines.python import products
from penstock.ops import native
from penstock.ops.native.added_products import Side, added

pytestmark = pytest.mark.skipif(not native.available(), reason="no machine code here")


def matrices(count, rows, columns, seed):
    return [*np.random.RandomState(seed).randn(count, rows, columns).astype(np.float32)]


@pytest.mark.parametrize("rows, inner, columns", [(1, 1, 16), (64, 64, 64), (13, 9, 33), (15, 7, 31), (30, 17, 100), (3, 40, 47)])
@pytest.mark.parametrize("lefts, rights", [(5, 5), (1, 5), (5, 1), (1, 1)])
def test_agrees_with_numpy(rows, inner, columns, lefts, rights):
    a, b = matrices(lefts, rows, inner, 0), matrices(rights, inner, columns, 1)
    want = sum(x.astype(np.float64) @ y for x, y in zip(a * (5 // lefts), b * (5 // rights)))
    if lefts == rights == 1:
        want = a[0].astype(np.float64) @ b[0]
    np.testing.assert_allclose(added(Side(a), Side(b)), want, rtol=1e-4, atol=1e-4)


def test_order_is_that_of_the_products():
    """1e8 + 1 - 1e8 + 1 in singles: 1 if added one after the other."""
    row = np.ones((1, 1), np.float32)
    rights = [np.full((1, 16), x, np.float32) for x in (1e8, 1.0, -1e8, 1.0)]
    np.testing.assert_array_equal(added(Side([row]), Side(rights)), np.ones((1, 16)))


@pytest.mark.parametrize("side", [-1, 0, 1], ids=["none", "left", "right"])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_in_a_session(monkeypatch, constant, across, side):
    """One matrix for all products on either side, constant or fed, as it is or turned over."""
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    used = []
    monkeypatch.setattr(products.added_products, "added", lambda *sides: used.append(sides) or added(*sides))
    rng = np.random.RandomState(0)
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [64, 64])
        fed = [tf.identity(x + float(i)) if i else x for i in range(20)]
        others = [tf.constant(rng.randn(64, 64).astype(np.float32)) if constant else tf.sin(f) for f in fed]
        pairs = list(zip([x] * 20 if side == 0 else fed, others[:1] * 20 if side == 1 else others))
        total = tf.add_n([tf.matmul(a, b, transpose_b=across) for a, b in pairs])
        value = rng.randn(64, 64).astype(np.float32)
        got = sess.run(total, {x: value})
        left, right = (sess.run([pair[i] for pair in pairs], {x: value}) for i in (0, 1))
    np.testing.assert_allclose(got, sum(a.astype(np.float64) @ (b.T if across else b) for a, b in zip(left, right)), rtol=1e-3, atol=2e-2)
    assert bool(used) == (not across or constant or side == 1), "turned over, only what is constant or stands for all"
