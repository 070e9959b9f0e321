"""Stacks of small matrices: the bits of products that are rounded and added in order."""

import numpy as np
import pytest

import penstock as tf
from penstock.ops import native
from penstock.ops.kernels.products import product
from penstock.ops.native import tiny

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.skipif(not native.available(), reason="no machine code here")]


def in_order(a, b):
    total = np.zeros((*a.shape[:-1], b.shape[-1]), a.dtype)
    for k in range(a.shape[-1]):
        total = total + a[..., :, k, None] * b[..., None, k, :]
    return total


def random(random, *shape, dtype):
    x = random.randn(*shape).astype(dtype)
    x[:2] *= random.choice([0.0, -0.0, 1.0], x[:2].shape)
    x[3].flat[0], x[5].flat[-1] = np.nan, np.inf
    return x


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7])
def test_sums_in_order(rows, dtype):
    source, seen = np.random.RandomState(rows), 0
    for inner in range(1, 12):
        for columns in range(1, 8):
            a, b = random(source, 41, rows, inner, dtype=dtype), random(source, 41, inner, columns, dtype=dtype)
            got = tiny.products(a, b)
            if got is None:
                continue
            seen += 1
            want = in_order(a, b)
            np.testing.assert_array_equal(got, want, strict=True)
            np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[want == 0]))
            across = (np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (a, b))
            strided = np.repeat(a, 2, 1)[:, ::2]
            for x, y in ((across_a := next(across), b), (a, across_b := next(across)), (across_a, across_b), (strided, b), (a[::-1], b[::-1])):
                got = tiny.products(x, y)
                if got is None:
                    assert inner >= 4 and y is across_b
                else:
                    np.testing.assert_array_equal(got, in_order(x, y), strict=True)
    assert seen


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_in_a_session(dtype):
    source = np.random.RandomState(0)
    a, b = source.randn(7, 9001, 3, 4).astype(dtype), source.randn(7, 9001, 4, 2).astype(dtype)
    wide = np.float32 if dtype == np.float16 else dtype
    x, y = tf.placeholder(dtype), tf.placeholder(dtype)
    with tf.Session() as sess:
        np.testing.assert_array_equal(sess.run(tf.matmul(x, y), {x: a, y: b}), in_order(a.astype(wide), b.astype(wide)).astype(dtype), strict=True)
        np.testing.assert_allclose(sess.run(tf.einsum("abij,abjk->abik", x, y), {x: a, y: b}), np.matmul(a.astype(float), b.astype(float)), rtol=1e-2, atol=1e-2)
        np.testing.assert_allclose(sess.run(tf.matmul(x, x, adjoint_b=True), {x: a}), np.matmul(a.astype(float), a.swapaxes(2, 3).astype(float)), rtol=1e-2, atol=1e-2)


def test_what_is_left_to_numpy():
    for a, b in (((40, 3, 3), (40, 2, 3)), ((40, 3, 3), (39, 3, 3))):
        with pytest.raises(ValueError, match="mismatch|broadcast"):
            product(np.ones(a, np.float32), np.ones(b, np.float32))
    for a, b in (((40, 3, 3), (1, 3, 3)), ((0, 3, 3), (0, 3, 3)), ((40, 0, 3), (40, 3, 3)), ((40, 3, 0), (40, 0, 3)), ((4, 3, 3), (4, 3, 3)), ((40, 9, 9), (40, 9, 9))):
        x, y = np.ones(a, np.float32), np.ones(b, np.float32)
        assert tiny.products(x, y) is None
        np.testing.assert_array_equal(product(x, y), np.matmul(x, y))
