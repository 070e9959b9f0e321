"""Array functions of the public API: names of nodes, arguments' old names, masks, grids, repeats."""

import numpy as np
import pytest

import penstock as tf


@pytest.fixture
def sess():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def names(graph=None):
    return [op.name for op in (graph or tf.get_default_graph()).get_operations()]


def test_small_zeros_are_constants_and_large_ones_are_filled(sess):
    tf.zeros([2, 3])
    tf.ones([2000])
    assert names() == ["zeros", "ones/shape_as_tensor", "ones/Const", "ones"]


def test_zeros_of_an_unknown_shape(sess):
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    tf.zeros_like(x)
    tf.zeros_like(x, dtype=tf.int32)
    tf.ones_like(x)
    assert names()[1:] == ["zeros_like", "zeros_like_1/Shape", "zeros_like_1/Const", "zeros_like_1", "ones_like/Shape", "ones_like/Const", "ones_like"]


def test_shape_of_a_known_shape_is_a_constant(sess):
    assert tf.shape(tf.zeros([2, 3])).op.type == "Const"
    assert tf.size(tf.zeros([2, 3])).op.type == "Const"
    assert tf.rank(tf.placeholder(tf.float32, [None])).op.type == "Const"
    assert tf.shape(tf.placeholder(tf.float32, [None])).op.type == "Shape"


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tf.squeeze(x, axis=[0], squeeze_dims=[0]),
        lambda x: tf.expand_dims(x, axis=0, dim=0),
        lambda x: tf.reduce_join(tf.as_string(x), axis=0, reduction_indices=0),
        lambda x: tf.reverse_sequence(x, [1], seq_axis=1, seq_dim=1, batch_axis=0),
    ],
)
def test_two_names_for_one_argument(sess, call):
    with pytest.raises(ValueError, match="Cannot specify both"):
        call(tf.zeros([1, 2]))


def test_old_names_of_arguments(sess):
    x = tf.zeros([1, 2])
    assert tf.squeeze(x, squeeze_dims=[0]).shape.as_list() == [2]
    assert tf.expand_dims(x, dim=0).shape.as_list() == [1, 1, 2]
    with pytest.raises(ValueError, match="Must specify an axis argument"):
        tf.expand_dims(x)


def test_concat_of_one_tensor_is_an_identity(sess):
    assert tf.concat([tf.zeros([2])], 0).name == "concat/concat:0"


def test_boolean_mask(sess):
    x = np.arange(12).reshape(2, 3, 2)
    mask = np.array([[True, False, True], [False, True, False]])
    np.testing.assert_array_equal(sess.run(tf.boolean_mask(x, mask)), x[mask])
    np.testing.assert_array_equal(sess.run(tf.boolean_mask(x, mask[0], axis=1)), x[:, mask[0]])
    assert tf.boolean_mask(tf.placeholder(tf.float32, [None, 3, 2]), mask[0], axis=1).shape.as_list() == [None, None, 2]
    with pytest.raises(ValueError, match="Number of mask dimensions must be specified"):
        tf.boolean_mask(x, tf.placeholder(tf.bool))


def test_sequence_mask(sess):
    np.testing.assert_array_equal(sess.run(tf.sequence_mask([1, 3])), [[True, False, False], [True, True, True]])
    np.testing.assert_array_equal(sess.run(tf.sequence_mask([[1], [0]], 2, tf.int32)), [[[1, 0]], [[0, 0]]])


def test_meshgrid(sess):
    a, b, c = [1, 2], [3, 4, 5], [6]
    for indexing in ("xy", "ij"):
        for got, want in zip(sess.run(tf.meshgrid(a, b, c, indexing=indexing)), np.meshgrid(a, b, c, indexing=indexing)):
            np.testing.assert_array_equal(got, want)
    with pytest.raises(TypeError, match="'index' is an invalid keyword argument"):
        tf.meshgrid(a, b, index="ij")


@pytest.mark.parametrize("repeats, axis", [(3, None), (2, 0), (2, 1), ([1, 2], 0), ([0, 2, 1], 1), ([3], 0)])
def test_repeat(sess, repeats, axis):
    x = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(sess.run(tf.repeat(x, repeats, axis=axis)), np.repeat(x, repeats, axis))


def test_one_hot_types(sess):
    assert tf.one_hot([1], 3).dtype == tf.float32
    assert tf.one_hot([1], 3, on_value=5).dtype == tf.int32
    assert tf.one_hot([1], 3, dtype=tf.bool).dtype == tf.bool
    np.testing.assert_array_equal(sess.run(tf.one_hot([[0, 2]], 3, axis=1)), [[[1, 0], [0, 0], [0, 1]]])
    with pytest.raises(TypeError, match="dtype .*float32.* of on_value does not match dtype .*int32.* of off_value"):
        tf.one_hot([1], 3, on_value=5.0, off_value=1)


def test_searchsorted(sess):
    rows = np.sort(np.random.default_rng(0).random((2, 5)), 1)
    values = np.random.default_rng(1).random((2, 3))
    for side in ("left", "right"):
        got = sess.run(tf.searchsorted(rows, values, side=side))
        np.testing.assert_array_equal(got, [np.searchsorted(r, v, side) for r, v in zip(rows, values)])


def test_eye(sess):
    np.testing.assert_array_equal(sess.run(tf.eye(3)), np.eye(3))
    np.testing.assert_array_equal(sess.run(tf.eye(2, 3, batch_shape=[2])), np.stack([np.eye(2, 3)] * 2))
    n = tf.placeholder(tf.int32, [])
    np.testing.assert_array_equal(sess.run(tf.eye(n), {n: 2}), np.eye(2))


def test_space_to_batch_paddings(sess):
    for sizes in ([5, 6], tf.placeholder_with_default([5, 6], [2])):
        paddings, crops = sess.run(tf.required_space_to_batch_paddings(sizes, [2, 4]))
        np.testing.assert_array_equal(paddings, [[0, 1], [0, 2]])
        np.testing.assert_array_equal(crops, [[0, 1], [0, 2]])


def test_static_broadcasting(sess):
    assert tf.broadcast_static_shape(tf.TensorShape([2, 1]), tf.TensorShape([3])).as_list() == [2, 3]
    with pytest.raises(ValueError, match="Incompatible shapes for broadcasting"):
        tf.broadcast_static_shape(tf.TensorShape([2]), tf.TensorShape([3]))
    np.testing.assert_array_equal(sess.run(tf.broadcast_dynamic_shape([2, 1], [3])), [2, 3])


def test_get_static_value(sess):
    assert tf.get_static_value(tf.constant([1, 2])).tolist() == [1, 2]
    assert tf.get_static_value(tf.placeholder(tf.int32, [2])) is None
    assert tf.get_static_value(tf.shape(tf.zeros([2, 3]))).tolist() == [2, 3]


def test_indexed_slices_need_a_shape_to_become_dense(sess):
    slices = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([1, 1]))
    with pytest.raises(ValueError, match="without dense_shape"):
        tf.convert_to_tensor(slices)
    dense = tf.convert_to_tensor(tf.IndexedSlices(slices.values, slices.indices, tf.constant([3, 1])))
    np.testing.assert_array_equal(sess.run(dense), [[0], [3], [0]])


def test_raw_ops_take_both_names_of_an_argument(sess):
    x = tf.constant([[1.0]])
    assert tf.raw_ops.ExpandDims(input=x, axis=0).shape.as_list() == [1, 1, 1]
    assert tf.raw_ops.ExpandDims(input=x, dim=0).shape.as_list() == [1, 1, 1]
    assert tf.raw_ops.Sum(input=x, axis=[0]).shape.as_list() == [1]


def test_variables_are_gathered_through_their_handle(sess):
    v = tf.get_variable("v", initializer=np.arange(6.0).reshape(3, 2), use_resource=True)
    row = tf.gather(v, [2])
    assert row.op.type == "ResourceGather"
    sess.run(v.initializer)
    np.testing.assert_array_equal(sess.run(row), [[4, 5]])
    np.testing.assert_array_equal(sess.run(v[1, 0]), 2)
    np.testing.assert_array_equal(sess.run(v[0].assign([7.0, 8.0])), [[7, 8], [2, 3], [4, 5]])


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint8, np.int64])
def test_sort_and_argsort(sess, dtype):
    limits = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else None
    x = np.random.default_rng(0).integers(0, 5, (3, 4, 2)).astype(dtype)
    if limits is not None:
        x[0, 0, 0], x[1, 1, 1] = limits.min, limits.max
    for axis in (-1, 0, 1):
        np.testing.assert_array_equal(sess.run(tf.sort(x, axis)), np.sort(x, axis))
        np.testing.assert_array_equal(sess.run(tf.argsort(x, axis)), np.argsort(x, axis, kind="stable"))
        np.testing.assert_array_equal(sess.run(tf.sort(x, axis, "DESCENDING")), np.flip(np.sort(x, axis), axis))
    with pytest.raises(ValueError, match="should be one of ASCENDING, DESCENDING"):
        tf.sort(x, direction="UP")


def test_image_patches(sess):
    images = np.arange(2 * 4 * 4 * 1, dtype=np.float64).reshape(2, 4, 4, 1)
    x = tf.constant(images)
    patches = tf.extract_image_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID")
    np.testing.assert_array_equal(sess.run(patches)[0, 0, 1], [2, 3, 6, 7])
    overlapping = tf.extract_image_patches(x, [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID")
    counts = sess.run(tf.gradients(overlapping, x)[0])[0, :, :, 0]
    np.testing.assert_array_equal(counts, [[1, 2, 2, 1], [2, 4, 4, 2], [2, 4, 4, 2], [1, 2, 2, 1]])
