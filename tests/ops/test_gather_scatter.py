"""Gathers and scatters against NumPy, their gradients, and partitions."""

import numpy as np
import pytest

import penstock as tf


@pytest.fixture
def sess():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def unknown(value):
    return tf.placeholder_with_default(tf.constant(value), None)


def batch_take(params, indices, axis, batch):
    """tf.gather with batch dimensions, written as loops."""
    if batch == 0:
        return np.take(params, indices, axis)
    return np.stack([batch_take(p, i, axis - 1, batch - 1) for p, i in zip(params, indices)])


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")
@pytest.mark.parametrize("static", [True, False])
def test_gather_with_axis_and_batch_dims(sess, static):
    rng = np.random.default_rng(0)
    for _ in range(12):
        rank = int(rng.integers(1, 4))
        shape = rng.integers(1, 4, rank)
        batch = int(rng.integers(0, rank))
        axis = int(rng.integers(batch, rank))
        indices = rng.integers(0, shape[axis], [*shape[:batch], *rng.integers(1, 4, rng.integers(0, 3))])
        params = rng.standard_normal(shape)
        x = tf.constant(params) if static else unknown(params)
        i = tf.constant(indices) if static else unknown(indices)
        y = tf.gather(x, i, axis=axis, batch_dims=batch)
        expected = batch_take(params, indices, axis, batch)
        np.testing.assert_array_equal(sess.run(y), expected)
        if static:
            assert y.shape == expected.shape
        # The gradient counts: gather the numbers of the elements and add up the weights of each.
        weights = rng.standard_normal(expected.shape)
        numbers = batch_take(np.arange(params.size).reshape(shape), indices, axis, batch)
        wanted = np.bincount(numbers.ravel(), weights.ravel(), params.size).reshape(shape)
        gradient = tf.convert_to_tensor(tf.gradients(y, x, weights)[0])
        np.testing.assert_allclose(sess.run(gradient), wanted)


def test_gradient_of_a_gather_is_sparse(sess):
    x = tf.constant(np.ones((4, 2)))
    (gradient,) = tf.gradients(tf.gather(x, [[1, 3], [3, 3]]), x)
    assert isinstance(gradient, tf.IndexedSlices)
    assert gradient.shape.as_list() == [4, 2]
    np.testing.assert_array_equal(sess.run(gradient.indices), [1, 3, 3, 3])
    np.testing.assert_array_equal(sess.run(tf.convert_to_tensor(gradient)), [[0, 0], [1, 1], [0, 0], [3, 3]])


def test_indices_out_of_range(sess):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[1,0\] = 5 is not in \[0, 3\)"):
        sess.run(tf.gather([1, 2, 3], [[0], [5]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices = -1 is not in \[0, 3\)"):
        sess.run(tf.gather([1, 2, 3], -1))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = \[0, 7\] does not index into param shape \[1,2\]"):
        sess.run(tf.gather_nd([[1, 2]], [[0, 7]]))


def test_gather_nd_with_batch_dims(sess):
    params = np.arange(24).reshape(2, 3, 4)
    y = tf.gather_nd(params, [[[0, 1]], [[2, 3]]], batch_dims=1)
    np.testing.assert_array_equal(sess.run(y), [[1], [23]])
    np.testing.assert_array_equal(sess.run(tf.batch_gather(params[0], [[1], [0], [3]])), [[1], [4], [11]])


def test_scatters_with_repeated_indices(sess):
    base = np.zeros((3, 2), np.float32)
    indices, updates = [[1], [1], [0]], np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    np.testing.assert_array_equal(sess.run(tf.scatter_nd(indices, updates, [3, 2])), [[5, 6], [4, 6], [0, 0]])
    np.testing.assert_array_equal(sess.run(tf.tensor_scatter_nd_add(base, indices, updates)), [[5, 6], [4, 6], [0, 0]])
    np.testing.assert_array_equal(sess.run(tf.tensor_scatter_nd_sub(base, indices, updates)), [[-5, -6], [-4, -6], [0, 0]])
    np.testing.assert_array_equal(sess.run(tf.tensor_scatter_nd_update(base, indices, updates)), [[5, 6], [3, 4], [0, 0]])
    np.testing.assert_array_equal(sess.run(tf.tensor_scatter_nd_max(base, indices, updates)), [[5, 6], [3, 4], [0, 0]])
    np.testing.assert_array_equal(sess.run(tf.tensor_scatter_nd_min(base, indices, updates)), [[0, 0], [0, 0], [0, 0]])


def test_a_scatter_does_not_touch_its_input(sess):
    x = tf.constant([1.0, 2.0])
    y = tf.tensor_scatter_nd_update(x, [[0]], [9.0])
    assert [v.tolist() for v in sess.run([y, x])] == [[9.0, 2.0], [1.0, 2.0]]


def test_gradient_of_min_and_max_is_shared(sess):
    x = tf.constant([1.0, 5.0])
    u = tf.constant([5.0, 2.0])
    y = tf.tensor_scatter_nd_max(x, [[1], [0]], u)
    gx, gu = sess.run(tf.gradients(y, [x, u]))
    np.testing.assert_array_equal(gx, [0.0, 0.5])
    np.testing.assert_array_equal(gu, [0.5, 1.0])


def test_partition_and_stitch_undo_each_other(sess):
    x = np.arange(10.0).reshape(5, 2)
    parts = [2, 0, 1, 0, 2]
    pieces = tf.dynamic_partition(x, parts, 3)
    assert [p.shape.as_list() for p in pieces] == [[None, 2]] * 3
    places = tf.dynamic_partition(tf.range(5), parts, 3)
    np.testing.assert_array_equal(sess.run(tf.dynamic_stitch(places, pieces)), x)
    y = tf.constant(x)
    gradient = tf.gradients([p * (i + 1.0) for i, p in enumerate(tf.dynamic_partition(y, parts, 3))], y)[0]
    np.testing.assert_array_equal(sess.run(gradient)[:, 0], [3, 1, 2, 1, 3])


def test_stitch_keeps_the_last_of_equal_indices(sess):
    y = tf.dynamic_stitch([[0, 1], [1]], [[1.0, 2.0], [3.0]])
    assert y.shape.as_list() == [2]
    np.testing.assert_array_equal(sess.run(y), [1.0, 3.0])


def test_unique_in_order_of_appearance(sess):
    y, idx, count = sess.run(tf.unique_with_counts([7, 3, 7, 7, 1]))
    assert (y.tolist(), idx.tolist(), count.tolist()) == ([7, 3, 1], [0, 1, 0, 0, 2], [3, 1, 1])


def test_edit_distance_of_words(sess):
    def words(*rows):
        indices = [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
        return tf.SparseTensor(indices, [c for row in rows for c in row], [len(rows), max(map(len, rows))])

    distance = tf.edit_distance(words("kitten", "abc"), words("sitting", "abc"), normalize=False)
    np.testing.assert_array_equal(sess.run(distance), [3.0, 0.0])
