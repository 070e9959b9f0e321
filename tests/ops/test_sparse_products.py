"""A sparse matrix times a dense one: entries in any order, constant or fed, few columns or many."""

import numpy as np
import pytest

import penstock as tf
from penstock import errors


def entries(seed, count=3000, m=40, k=30):
    rng = np.random.RandomState(seed)
    indices = np.stack([rng.randint(0, m, count), rng.randint(0, k, count)], 1).astype(np.int64)
    return indices, rng.randn(count).astype(np.float32)


def dense(indices, values, m=40, k=30):
    result = np.zeros((m, k))
    np.add.at(result, tuple(indices.T), values)
    return result


@pytest.mark.parametrize("width", [1, 3, 8, 16, 20])
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("adjoint", [False, True])
def test_products(width, in_order, adjoint):
    indices, values = entries(width)
    if in_order:
        indices = indices[np.lexsort((indices[:, 1], indices[:, 0]))]
    b = np.random.RandomState(9).randn(40 if adjoint else 30, width).astype(np.float32)
    a = dense(indices, values)
    fed, x = tf.placeholder(tf.int64, [None, 2]), tf.placeholder(tf.float32, [None, width])
    matrices = [tf.SparseTensor(at, values, [40, 30]) for at in (indices, fed)]
    products = [tf.sparse_tensor_dense_matmul(matrix, x, adjoint_a=adjoint) for matrix in matrices]
    with tf.Session() as sess:
        for factor in (1, 2):  # what is kept of a constant does not depend on the other operand
            for found in sess.run(products, {fed: indices, x: factor * b}):
                np.testing.assert_allclose(found, factor * ((a.T if adjoint else a) @ b), rtol=1e-4, atol=1e-3)


def test_an_index_out_of_bounds_is_reported_each_time():
    good, bad = np.array([[0, 1], [1, 2]]), np.array([[0, 1], [1, 3]])
    fed = tf.placeholder(tf.int64, [None, 2])
    b = tf.ones([3, 1])
    constant, changing = (tf.sparse_tensor_dense_matmul(tf.SparseTensor(at, [1.0, 2.0], [2, 3]), b) for at in (bad, fed))
    with tf.Session() as sess:
        for _ in range(2):
            np.testing.assert_array_equal(sess.run(changing, {fed: good}), [[1], [2]])
            for product in (constant, changing):
                with pytest.raises(errors.InvalidArgumentError, match=r"k \(3\) from index\[1,1\] out of bounds \(>=3\)"):
                    sess.run(product, {fed: bad})
