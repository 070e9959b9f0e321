"""tf.sparse against dense NumPy arrays."""

import numpy as np
import pytest

import penstock as tf


@pytest.fixture
def sess():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def random_sparse(seed, shape=(4, 5), dtype=np.float64):
    """A dense array with many zeros, and the same as a SparseTensor."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random(shape) < 0.4, rng.standard_normal(shape), 0.0).astype(dtype)
    indices = np.argwhere(dense)
    return dense, tf.SparseTensor(indices, dense[tuple(indices.T)], list(shape))


def dense_of(sess, sp):
    return sess.run(tf.sparse.to_dense(sp))


def test_dense_and_back(sess):
    dense, sp = random_sparse(0)
    np.testing.assert_array_equal(dense_of(sess, sp), dense)
    np.testing.assert_array_equal(dense_of(sess, tf.sparse.from_dense(dense)), dense)


@pytest.mark.parametrize("adjoint_a", [False, True])
@pytest.mark.parametrize("adjoint_b", [False, True])
def test_matmul_and_its_gradients(sess, adjoint_a, adjoint_b):
    a, sp = random_sparse(1)
    inner = a.shape[0 if adjoint_a else 1]
    b = np.random.default_rng(2).standard_normal((3, inner) if adjoint_b else (inner, 3))
    tb = tf.constant(b)
    product = tf.sparse.matmul(sp, tb, adjoint_a=adjoint_a, adjoint_b=adjoint_b)
    expected = (a.T if adjoint_a else a) @ (b.T if adjoint_b else b)
    np.testing.assert_allclose(sess.run(product), expected)
    weights = np.random.default_rng(3).standard_normal(expected.shape)
    dvalues, db = sess.run(tf.gradients(product, [sp.values, tb], weights))
    full = (weights @ (b if adjoint_b else b.T)) if not adjoint_a else ((b.T if adjoint_b else b) @ weights.T)
    np.testing.assert_allclose(dvalues, full[np.nonzero(a)])
    left = (a if adjoint_a else a.T) @ weights
    np.testing.assert_allclose(db, left.T if adjoint_b else left)


def test_dense_times_sparse(sess):
    a, sp = random_sparse(4)
    b = np.random.default_rng(5).standard_normal((2, 4))
    np.testing.assert_allclose(sess.run(tf.sparse.sparse_dense_matmul(tf.constant(b), sp)), b @ a)


def test_sums(sess):
    (a, sa), (b, sb) = random_sparse(6), random_sparse(7)
    np.testing.assert_allclose(dense_of(sess, tf.sparse.add(sa, sb)), a + b)
    np.testing.assert_allclose(sess.run(tf.sparse.add(sa, b)), a + b)
    np.testing.assert_allclose(sess.run(tf.sparse.add(b, sa)), a + b)
    total = tf.sparse.add(sa, sb)
    da, db = sess.run(tf.gradients(total.values * 2.0, [sa.values, sb.values]))
    np.testing.assert_allclose(da, np.full(da.shape, 2.0))
    np.testing.assert_allclose(db, np.full(db.shape, 2.0))
    with pytest.raises(TypeError, match="At least one input should be SparseTensor"):
        tf.sparse.add(a, b)


def test_times_and_over_a_dense_tensor(sess):
    a, sp = random_sparse(8)
    row = np.arange(1.0, 6.0)
    x = tf.constant(row)
    np.testing.assert_allclose(dense_of(sess, sp * x), a * row)
    np.testing.assert_allclose(dense_of(sess, sp / x), a / row)
    np.testing.assert_allclose(sess.run(tf.gradients((sp * x).values, x)[0]), a.sum(0))


@pytest.mark.parametrize("axis, keep", [(None, False), (0, False), (1, True), ([0, 1], False), (-1, False)])
def test_reductions(sess, axis, keep):
    a, sp = random_sparse(9)
    axes = tuple(axis) if isinstance(axis, list) else axis
    total = tf.sparse.reduce_sum(sp, axis, keep)
    np.testing.assert_allclose(sess.run(total), a.sum(axes, keepdims=keep))
    np.testing.assert_allclose(sess.run(tf.gradients(total, sp.values)[0]), np.ones(np.count_nonzero(a)))
    lowest = np.where(a != 0, a, -np.inf).max(axes, keepdims=keep)
    np.testing.assert_allclose(sess.run(tf.sparse.reduce_max(sp, axis, keep)), np.where(np.isinf(lowest), 0, lowest))


def test_softmax_over_rows(sess):
    a, sp = random_sparse(10)
    weights = np.where(a != 0, np.exp(a), 0)
    np.testing.assert_allclose(dense_of(sess, tf.sparse.softmax(sp)), weights / np.maximum(weights.sum(1, keepdims=True), 1e-300))


def test_moves(sess):
    a, sp = random_sparse(11)
    b, other = random_sparse(12, (4, 2))
    np.testing.assert_array_equal(dense_of(sess, tf.sparse.concat(1, [sp, other])), np.concatenate([a, b], 1))
    np.testing.assert_array_equal(dense_of(sess, tf.sparse.reshape(sp, [5, -1])), a.reshape(5, 4))
    np.testing.assert_array_equal(dense_of(sess, tf.sparse.transpose(sp)), a.T)
    np.testing.assert_array_equal(dense_of(sess, tf.sparse.slice(sp, [1, 2], [2, 9])), a[1:3, 2:])
    np.testing.assert_array_equal(dense_of(sess, tf.sparse.expand_dims(sp, 1)), a[:, None])
    np.testing.assert_array_equal(dense_of(sess, tf.sparse.reset_shape(sp, [6, 6])), np.pad(a, [[0, 2], [0, 1]]))
    pieces = tf.sparse.split(sp_input=sp, num_split=2, axis=1)
    np.testing.assert_array_equal(np.concatenate([dense_of(sess, p) for p in pieces], 1), a)
    assert tf.sparse.reshape(sp, [5, -1]).shape.as_list() == [5, 4]


def test_reorder_and_its_gradient(sess):
    values = tf.constant([1.0, 2.0, 3.0])
    sp = tf.sparse.reorder(tf.SparseTensor([[2], [0], [1]], values, [3]))
    np.testing.assert_array_equal(sess.run(sp.values), [2, 3, 1])
    np.testing.assert_array_equal(sess.run(tf.gradients(sp.values * [10.0, 20.0, 30.0], values)[0]), [30, 10, 20])


def test_fill_empty_rows(sess):
    default = tf.constant(9.0)
    filled, empty = tf.sparse.fill_empty_rows(tf.SparseTensor([[1, 1]], [2.0], [3, 2]), default)
    np.testing.assert_array_equal(dense_of(sess, filled), [[9, 0], [0, 2], [9, 0]])
    np.testing.assert_array_equal(sess.run(empty), [True, False, True])
    assert sess.run(tf.gradients(filled.values, default)[0]) == 2.0


def test_indicator(sess):
    ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [2, 0, 1], [2, 2])
    np.testing.assert_array_equal(sess.run(tf.sparse.to_indicator(ids, 3)), [[True, False, True], [False, True, False]])


def test_retain_and_mask(sess):
    sp = tf.SparseTensor([[0], [2], [3]], [1.0, 2.0, 3.0], [4])
    np.testing.assert_array_equal(dense_of(sess, tf.sparse.retain(sp, [True, False, True])), [1, 0, 0, 3])
    slices = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([4, 7]), tf.constant([9, 1]))
    np.testing.assert_array_equal(sess.run(tf.sparse.mask(slices, [4]).indices), [7])


def test_indices_must_be_in_order(sess):
    sp = tf.SparseTensor([[1], [0]], [1.0, 2.0], [2])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[1\] = \[0\] is out of order. Many sparse ops require sorted indices"):
        dense_of(sess, sp)


def test_feeding_a_sparse_placeholder(sess):
    sp = tf.sparse_placeholder(tf.float32, [None, 3])
    assert sp.shape.as_list() == [None, 3]
    y = tf.sparse.reduce_sum(sp, 1)
    fed = tf.SparseTensorValue([[0, 1], [1, 2]], [1.0, 2.0], [2, 3])
    np.testing.assert_array_equal(sess.run(y, {sp: fed}), [1, 2])


def test_a_product_with_a_sparse_tensor_takes_one_name():
    with tf.Graph().as_default():
        x, sparse = tf.placeholder(tf.float32, [2]), tf.SparseTensor([[0]], [1.0], [2])
        assert [(x * sparse).values.op.name, (sparse * x).values.op.name, (x * x).op.name] == ["mul", "mul_1", "mul_2"]
