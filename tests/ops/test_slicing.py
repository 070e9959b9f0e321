"""Slices: StridedSlice against NumPy's own indexing, with every kind of key, at build time and at run time."""

import numpy as np
import pytest

import penstock as tf
from penstock.ops.slicing import sliced_dims

MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def random_key(rng, shape):
    """A random basic index for an array of `shape`."""
    key, axis = [], 0
    ellipsis_at = rng.integers(0, len(shape) + 2) if rng.random() < 0.4 else -1
    used = rng.integers(0, len(shape) + 1)
    for position in range(used):
        if position == ellipsis_at:
            key.append(Ellipsis)
            axis = len(shape) - (used - position)
        while rng.random() < 0.15:
            key.append(None)
        size = shape[axis]
        if size and rng.random() < 0.35:
            key.append(int(rng.integers(-size, size)))
        else:
            bounds = [None if rng.random() < 0.3 else int(rng.integers(-size - 2, size + 3)) for _ in range(2)]
            step = int(rng.choice([-3, -2, -1, 1, 1, 1, 2, 3]))
            key.append(slice(*bounds, step))
        axis += 1
    return tuple(key)


def test_getitem_equals_numpy():
    rng = np.random.default_rng(0)
    with tf.Graph().as_default(), tf.Session() as sess:
        fetches, wanted = [], []
        for _ in range(150):
            shape = tuple(int(d) for d in rng.integers(0, 5, rng.integers(1, 5)))
            array = rng.integers(0, 100, shape).astype(np.int32)
            key = random_key(rng, shape)
            known = tf.constant(array)
            unknown = tf.placeholder_with_default(tf.constant(array), None)
            expected = array[key]
            for tensor in (known[key], unknown[key]):
                assert tensor.shape.is_compatible_with(expected.shape), key
                fetches.append(tensor)
                wanted.append(expected)
            assert known[key].shape == expected.shape, key
        for got, want in zip(sess.run(fetches), wanted):
            np.testing.assert_array_equal(got, want)


def test_gradient_puts_the_gradient_back_where_it_came_from():
    rng = np.random.default_rng(1)
    with tf.Graph().as_default(), tf.Session() as sess:
        for _ in range(25):
            shape = tuple(int(d) for d in rng.integers(1, 5, rng.integers(1, 4)))
            key = random_key(rng, shape)
            x = tf.placeholder_with_default(tf.constant(rng.standard_normal(shape)), None)
            y = x[key]
            weights = rng.standard_normal(np.zeros(shape)[key].shape)
            (gradient,) = tf.gradients(y, x, weights)
            expected = np.zeros(shape)
            expected[key] = weights
            np.testing.assert_allclose(sess.run(gradient), expected)


def test_second_gradient():
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.constant([1.0, 2.0, 3.0, 4.0])
        (first,) = tf.gradients(x[1:3] ** 3, x)
        (second,) = tf.gradients(first, x)
        np.testing.assert_allclose(sess.run(second), [0.0, 12.0, 18.0, 0.0])


@pytest.mark.parametrize(
    "key, shape",
    [
        (0, [None, 3]),
        ((slice(None), 1), [None, 3]),
        ((Ellipsis, slice(1, None)), [None, None, 2]),
        ((slice(0, 2),), [None, None, 3]),
        ((None, Ellipsis), [1, None, None, 3]),
    ],
)
def test_static_shapes_with_unknown_sizes(key, shape):
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, None, 3])
        assert x[key].shape.as_list() == shape


def test_a_tensor_index_still_gives_a_static_shape():
    with tf.Graph().as_default():
        x = tf.zeros([4, 5])
        i = tf.placeholder(tf.int32, [])
        assert x[i].shape.as_list() == [5]
        assert x[i:, 2].shape.as_list() == [None]
        assert x[:, i : i + 1].shape.as_list() == [4, None]


def test_unknown_rank_gives_unknown_shape():
    assert sliced_dims(None, [0], [1], [1], 1, dict.fromkeys(MASKS, 0)) is None


def test_int64_and_int32_indices_mix():
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.constant(np.arange(12).reshape(3, 4))
        i = tf.constant(1, tf.int64)
        np.testing.assert_array_equal(sess.run(x[i, 2:]), [6, 7])
        np.testing.assert_array_equal(sess.run(x[i:, 0]), [4, 8])


def test_boolean_key_is_a_mask():
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.constant([1, 2, 3])
        np.testing.assert_array_equal(sess.run(x[x > 1]), [2, 3])
        with pytest.raises(ValueError, match="mask cannot be scalar"):
            x[True]


@pytest.mark.parametrize("key", [1.5, "a", np.array([0, 1]), [1.0]])
def test_keys_that_are_no_index(key):
    with tf.Graph().as_default(), pytest.raises(TypeError, match="Only integers, slices"):
        tf.zeros([3, 3])[key]


def test_node_names_are_tfs():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 3], name="x")
        x[1:, 0]
        x[2]
        names = [op.name for op in graph.get_operations()]
    assert names == ["x", "strided_slice/stack", "strided_slice/stack_1", "strided_slice/stack_2", "strided_slice",
                     "strided_slice_1/stack", "strided_slice_1/stack_1", "strided_slice_1/stack_2", "strided_slice_1"]  # fmt: skip


def test_slice_of_strings_stays_a_tensor():
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.constant([["a", "b"], ["c", "d"]])
        assert sess.run(x[1, 0]) == b"c"
        assert sess.run(tf.strings.join([x[0, 1], x[1, 1]])) == b"bd"


def test_slice_to_the_end():
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.constant(np.arange(12).reshape(3, 4))
        y = tf.slice(x, [1, 1], [-1, 2])
        assert y.shape.as_list() == [2, 2]
        np.testing.assert_array_equal(sess.run(y), [[5, 6], [9, 10]])


def test_assigning_to_a_slice_of_a_tensor():
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.zeros([3, 3])
        y = tf.raw_ops.TensorStridedSliceUpdate(input=x, begin=[0, 1], end=[2, 2], strides=[1, 1], value=[[1.0], [2.0]])
        np.testing.assert_array_equal(sess.run(y), [[0, 1, 0], [0, 2, 0], [0, 0, 0]])
