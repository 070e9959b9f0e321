"""tf.sets on dense and sparse operands."""

import numpy as np
import pytest

import penstock as tf


@pytest.fixture
def sess():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


A = np.array([[3, 1, 1], [4, 5, 6]])
B = np.array([[1, 9], [6, 4]])


def rows(sess, sp):
    value = sess.run(sp)
    result = [[] for _ in range(value.dense_shape[0])]
    for (row, _), element in zip(value.indices, value.values):
        result[row].append(element)
    return result


def sparse(dense):
    indices = [[i, j] for i in range(dense.shape[0]) for j in range(dense.shape[1])]
    return tf.SparseTensor(indices, dense.ravel(), dense.shape)


@pytest.mark.parametrize("left", [tf.constant, sparse])
@pytest.mark.parametrize("right", [tf.constant, sparse])
def test_operations(sess, left, right):
    a, b = left(A), right(B)
    assert rows(sess, tf.sets.intersection(a, b)) == [[1], [4, 6]]
    assert rows(sess, tf.sets.union(a, b)) == [[1, 3, 9], [4, 5, 6]]
    assert rows(sess, tf.sets.difference(a, b)) == [[3], [5]]
    assert rows(sess, tf.sets.difference(a, b, aminusb=False)) == [[9], []]


def test_size_counts_different_elements(sess):
    np.testing.assert_array_equal(sess.run(tf.sets.size(sparse(A))), [2, 3])
    with pytest.raises(TypeError, match="Expected `SparseTensor`"):
        tf.sets.size(tf.constant(A))


def test_types_must_fit(sess):
    with pytest.raises(TypeError, match="Types don't match"):
        tf.sets.union(tf.constant(A), tf.constant(B, tf.int32))
    with pytest.raises(TypeError, match="not allowed for set operations"):
        tf.sets.union([[1.0]], [[2.0]])
