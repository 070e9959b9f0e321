"""Array ops: what the samples of their declarations do not say."""

import numpy as np
import pytest

import penstock as tf
from penstock.ops.array import reshaped_dims


@pytest.fixture
def sess():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def unknown(value, dtype=None):
    """A tensor with this value and no static shape."""
    return tf.placeholder_with_default(tf.constant(value, dtype), None)


# -- reshape ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source, shape, result",
    [
        ((2, 3), (None,), (6,)),
        ((None, 3), (None, 6), (None, 6)),
        ((None, 4), (2, None), (2, None)),
        (None, (2, None), (2, None)),
        ((2, 3), None, None),
        ((0, 3), (0, None), (0, None)),
        ((), (1, 1), (1, 1)),
    ],
)
def test_static_reshape(source, shape, result):
    assert reshaped_dims(source, shape) == result


def test_static_reshape_errors():
    with pytest.raises(ValueError, match=r"Cannot reshape a tensor with 6 elements to shape \[4,2\] \(8 elements\)"):
        reshaped_dims((2, 3), (4, 2))
    with pytest.raises(ValueError, match="must be evenly divisible by 4 but is 6"):
        reshaped_dims((2, 3), (None, 4))


@pytest.mark.parametrize(
    "shape, message",
    [
        ([2, 4], "Input to reshape is a tensor with 6 values, but the requested shape has 8"),
        ([-1, 4], "Input to reshape is a tensor with 6 values, but the requested shape requires a multiple of 4"),
        ([-1, -1], "Only one input size may be -1, not both 0 and 1"),
        ([-2, 3], "Size 0 must be non-negative, not -2"),
        ([[6]], r"sizes input must be 1-D, not \[1,1\]"),
    ],
)
def test_reshape_errors_when_running(sess, shape, message):
    y = tf.reshape(unknown(np.zeros((2, 3))), unknown(shape))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        sess.run(y)


def test_reshape_takes_a_shape_with_tensors_in_it(sess):
    x = tf.placeholder(tf.float32, [None, 6])
    y = tf.reshape(x, [tf.shape(x)[0], 2, 3])
    assert y.shape.as_list() == [None, 2, 3]
    assert sess.run(y, {x: np.zeros((5, 6))}).shape == (5, 2, 3)


def test_shapes_flow_through_shape_arithmetic(sess):
    x = tf.placeholder(tf.float32, [None, 4, 5])
    shape = tf.shape(x)
    flat = tf.reshape(x, tf.stack([shape[0], shape[1] * shape[2]]))
    assert flat.shape.as_list() == [None, 20]
    assert tf.zeros(tf.unstack(shape)[1:]).shape.as_list() == [4, 5]
    assert tf.zeros([shape[0], shape[1] + 1]).shape.as_list() == [None, 5]
    assert tf.zeros(tf.reverse(shape, [0])).shape.as_list() == [5, 4, None]
    assert tf.zeros(tf.concat([[7], shape[1:]], 0)).shape.as_list() == [7, 4, 5]
    assert tf.tile(x, [1, 2, 1]).shape.as_list() == [None, 8, 5]
    assert tf.fill(tf.shape(tf.zeros([2, 3])), 1.0).shape.as_list() == [2, 3]


# -- joining ----------------------------------------------------------------------------------------------------------


def test_concat_of_unknown_sizes():
    with tf.Graph().as_default():
        a = tf.placeholder(tf.float32, [None, 3])
        b = tf.placeholder(tf.float32, [2, None])
        assert tf.concat([a, b], 0).shape.as_list() == [None, 3]
        assert tf.concat([a, b], 1).shape.as_list() == [2, None]
        assert tf.concat([a, b], tf.placeholder(tf.int32, [])).shape.as_list() == [None, None]
        with pytest.raises(ValueError, match="Shape must be rank 2 but is rank 1"):
            tf.concat([a, tf.zeros([3])], 0)
        with pytest.raises(ValueError, match="Can't concatenate scalars"):
            tf.concat([1.0, 2.0], 0)


def test_gradient_of_a_concat_of_gathered_rows(sess):
    """Sparse gradients go through a concat along either axis."""
    table = tf.constant(np.arange(12.0).reshape(4, 3))
    other = tf.constant(np.ones((2, 3)))
    for axis in (0, 1):
        joined = tf.concat([table, other] if axis == 0 else [table, table * 2.0], axis)
        rows = tf.gather(joined, [0, 3, 3])
        (gradient,) = tf.gradients(rows, table)
        dense = sess.run(tf.convert_to_tensor(gradient))
        factor = 1.0 if axis == 0 else 3.0
        np.testing.assert_allclose(dense, factor * np.array([[1, 1, 1], [0, 0, 0], [0, 0, 0], [2, 2, 2]]))


def test_nested_lists_with_tensors_become_packs(sess):
    x, y = tf.constant(1.0), tf.constant(2.0)
    z = tf.convert_to_tensor([[x, 0.0], [y, x]])
    np.testing.assert_array_equal(sess.run(z), [[1, 0], [2, 1]])
    assert sorted(op.name for op in z.graph.get_operations() if op.type == "Pack") == ["packed", "packed/0", "packed/1"]


def test_stack_of_plain_values_is_a_constant(sess):
    assert tf.stack([1, 2]).op.type == "Const"
    assert tf.stack([1, tf.constant(2)]).op.type == "Pack"
    with pytest.raises(ValueError, match=r"Argument `axis` = 3 not in range \[-2, 2\)"):
        tf.stack([tf.zeros([2]), tf.zeros([2])], axis=3)


def test_unstack_needs_to_know_how_many():
    with tf.Graph().as_default():
        assert len(tf.unstack(tf.zeros([2, 3]), axis=-1)) == 3
        with pytest.raises(ValueError, match="Cannot infer argument `num` from shape"):
            tf.unstack(tf.placeholder(tf.float32, [None, 2]))


def test_split_by_sizes(sess):
    a, b, c = tf.split(tf.constant(np.arange(10)), [2, -1, 3])
    assert [t.shape.as_list() for t in (a, b, c)] == [[2], [5], [3]]
    np.testing.assert_array_equal(sess.run(b), [2, 3, 4, 5, 6])
    with pytest.raises(ValueError, match="Rank-0 tensors are not supported"):
        tf.split(tf.zeros([4]), tf.constant(2))


# -- order and place --------------------------------------------------------------------------------------------------


def test_transpose_of_unknown_rank(sess):
    x = tf.placeholder(tf.float32, None)
    value = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(sess.run(tf.transpose(x), {x: value}), value.T)
    np.testing.assert_array_equal(sess.run(tf.matrix_transpose(x), {x: value}), value.swapaxes(1, 2))


def test_conjugate_transpose(sess):
    x = np.array([[1 + 2j, 3], [4, 5j]], np.complex64)
    np.testing.assert_array_equal(sess.run(tf.transpose(x, conjugate=True)), x.conj().T)


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_mirror_pad_equals_numpy(sess, mode):
    rng = np.random.default_rng(0)
    for _ in range(10):
        shape = rng.integers(1, 5, 3)
        most = shape - (mode == "REFLECT")
        paddings = np.stack([rng.integers(0, most + 1), rng.integers(0, most + 1)], 1)
        x = rng.standard_normal(shape)
        padded = tf.pad(tf.constant(x), paddings, mode)
        np.testing.assert_array_equal(sess.run(padded), np.pad(x, paddings, mode.lower()))
        # Each element's gradient is how often it occurs.
        numbers = np.pad(np.arange(x.size).reshape(shape), paddings, mode.lower())
        counts = np.bincount(numbers.ravel(), minlength=x.size).reshape(shape)
        y = tf.constant(x)
        np.testing.assert_array_equal(sess.run(tf.gradients(tf.pad(y, paddings, mode), y)[0]), counts)


def test_broadcast_to_and_back(sess):
    x = tf.constant([[1.0], [2.0]])
    y = tf.broadcast_to(x, [3, 2, 4])
    assert sess.run(y).shape == (3, 2, 4)
    np.testing.assert_array_equal(sess.run(tf.gradients(y, x)[0]), [[12.0], [12.0]])


def test_where_with_one_flag_per_row(sess):
    flags = tf.constant([True, False])
    np.testing.assert_array_equal(sess.run(tf.where(flags, tf.zeros([2, 2]), tf.ones([2, 2]))), [[0, 0], [1, 1]])
    with pytest.raises(ValueError, match="x and y must both be non-None or both be None"):
        tf.where(flags, 1.0)


def test_where_v2_broadcasts(sess):
    y = tf.where_v2([[True], [False]], [1.0, 2.0], 0.0)
    np.testing.assert_array_equal(sess.run(y), [[1, 2], [0, 0]])


# -- types ------------------------------------------------------------------------------------------------------------


def test_bitcast_changes_the_last_dimension(sess):
    x = tf.constant([[1.0, 2.0]])
    as_bytes = tf.bitcast(x, tf.uint8)
    assert as_bytes.shape.as_list() == [1, 2, 4]
    np.testing.assert_array_equal(sess.run(tf.bitcast(as_bytes, tf.float32)), [[1.0, 2.0]])


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.int8, tf.uint16, tf.bool, tf.complex64])
def test_joins_keep_the_type(sess, dtype):
    x = tf.cast(tf.constant([1, 0, 1]), dtype)
    for y in (tf.concat([x, x], 0), tf.stack([x, x]), tf.tile(x, [2]), tf.reverse(x, [0]), tf.pad(x, [[1, 0]]), tf.gather(x, [0, 2])):
        assert sess.run(y).dtype == dtype.as_numpy_dtype


def test_strings_survive_every_move(sess):
    x = tf.constant([["a", "bb"], ["c", ""]])
    assert sess.run(tf.transpose(x)).tolist() == [[b"a", b"c"], [b"bb", b""]]
    assert sess.run(tf.unstack(tf.unstack(x)[0])) == [b"a", b"bb"]
    assert sess.run(tf.gather(x, 1)).tolist() == [b"c", b""]
    assert sess.run(tf.gather_nd(x, [[0, 1]])).tolist() == [b"bb"]
    assert sess.run(tf.pad(x[0], [[1, 0]])).tolist() == [b"", b"a", b"bb"]
    assert sess.run(tf.one_hot(1, 2, on_value="y", off_value="n")).tolist() == [b"n", b"y"]
    assert sess.run(tf.reduce_join(x, 1)).tolist() == [b"abb", b"c"]
    assert sess.run(tf.unique(tf.constant(["b", "a", "b"])).y).tolist() == [b"b", b"a"]


def test_constants_do_not_change_with_the_array_they_came_from(sess):
    array = np.zeros(3, np.float32)
    x = tf.constant(array)
    array[:] = 7
    np.testing.assert_array_equal(sess.run(x), [0, 0, 0])


def test_placeholder_without_a_value(sess):
    x = tf.placeholder(tf.float16, [None, 2], name="x")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"You must feed a value for placeholder tensor 'x' with dtype half and shape \[\?,2\]"):
        sess.run(tf.identity(x))


def test_prevent_gradient(sess):
    x = tf.constant(1.0)
    y = tf.raw_ops.PreventGradient(input=x, message="not here")
    with pytest.raises(LookupError, match="Gradient explicitly disabled. Reason: b'not here'"):
        tf.gradients(y, x)
    assert tf.gradients(tf.stop_gradient(x), x) == [None]


def test_check_numerics_names_what_it_found(sess):
    with pytest.raises(tf.errors.InvalidArgumentError, match="bad : Tensor had Inf and NaN values"):
        sess.run(tf.check_numerics([np.inf, np.nan], "bad"))
