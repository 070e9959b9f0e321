"""A sparse matrix times a dense one: entries in any order, constant or fed, few columns or many."""

import numpy as np
import pytest

import penstock as tf
from penstock import errors
from penstock.ops import sparse


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


@pytest.mark.parametrize("adjoint", [False, True])
def test_the_sums_of_a_constant_have_the_order_of_its_entries(adjoint):
    """Whatever is done to its entries so that sums do not wait for each other: the bits are those of fed values, which are taken as they come."""
    indices, values = entries(3)
    fed, x = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None, 2])
    shown, hidden = (tf.sparse_tensor_dense_matmul(tf.SparseTensor(indices, v, [40, 30]), x, adjoint_a=adjoint) for v in (values, fed))
    b = np.random.RandomState(9).randn(40 if adjoint else 30, 2).astype(np.float32)
    with tf.Session() as sess:
        for factor in (1, 2, 3):
            found = sess.run([shown, hidden], {x: b, fed: values * np.float32(factor)})
            np.testing.assert_allclose(found[1], factor * found[0], rtol=1e-4, atol=1e-3)
            if factor == 1:
                np.testing.assert_array_equal(*found)


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


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.complex64])
@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_narrow_products_are_the_same_with_and_without_machine_code(dtype, index_type, monkeypatch):
    rng = np.random.RandomState(0)

    def products():
        rng.seed(1)
        found = []
        for count, width in [(0, 1), (1, 1), (500, 1), (500, 2), (500, 7), (500, 16)]:
            indices = np.stack([rng.randint(0, 40, count), rng.randint(0, 30, count)], 1).astype(index_type)
            values, b = ((10 * rng.randn(*shape)).astype(dtype) for shape in ((count,), (30, width)))
            if np.dtype(dtype).kind == "f" and count > 1:
                values[:3] = np.nan, -0.0, np.inf
            for order in (slice(None), np.argsort(indices[:, 0], kind="stable")):
                product = tf.raw_ops.SparseTensorDenseMatMul(a_indices=indices[order], a_values=values[order], a_shape=np.int64([40, 30]), b=b)
                found.append(product)
        with tf.Session() as sess:
            return [x.tobytes() for x in sess.run(found)]

    with_it = products()
    monkeypatch.setattr(sparse.row_loops, "can_add_products", lambda dtype, width: False)
    assert products() == with_it


def test_a_constant_matrix_in_a_loop():
    indices, values = entries(3, m=30)
    matrix, start = tf.SparseTensor(indices, values, [30, 30]), tf.placeholder(tf.float32, [30, 1])
    result = tf.while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, 0.05 * tf.sparse_tensor_dense_matmul(matrix, x)), [0, start])[1]
    expected = x = np.random.RandomState(1).randn(30, 1).astype(np.float32)
    for _ in range(4):
        expected = 0.05 * dense(indices, values, m=30) @ expected
    with tf.Session() as sess:
        for factor in (1, 2):
            np.testing.assert_allclose(sess.run(result, {start: factor * x}), factor * expected, rtol=1e-4, atol=1e-2)
