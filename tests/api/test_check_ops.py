"""Assertions, decided while building where that is possible."""

import numpy as np
import pytest

import penstock as tf

FEED = [1.0, 2.0]


def run(build, shape=None):
    """Runs the assertion that `build(x)` makes for x = [1, 2]."""
    x = tf.placeholder(tf.float32, shape, name="x")
    check = build(x)
    with tf.Session() as sess:
        return sess.run(check, {x: FEED})


PASSING = [
    lambda x: tf.assert_equal(x, [1.0, 2.0]), lambda x: tf.assert_none_equal(x, 3.0), lambda x: tf.assert_less(x, [2.0, 3.0]),
    lambda x: tf.assert_less_equal(x, 2.0), lambda x: tf.assert_greater(x, 0.0), lambda x: tf.assert_greater_equal(x, 1.0),
    lambda x: tf.assert_positive(x), lambda x: tf.assert_negative(-x), lambda x: tf.assert_non_negative(x), lambda x: tf.assert_non_positive(-x),
    lambda x: tf.assert_near(x, [1.0, 2.0000001]), lambda x: tf.assert_near(x, [1.1, 2.0], atol=0.2), lambda x: tf.assert_rank(x, 1),
    lambda x: tf.assert_rank_at_least(x, 1), lambda x: tf.assert_rank_in(x, [0, 1]), lambda x: tf.assert_type(x, tf.float32),
    lambda x: tf.assert_integer(tf.constant(1)), lambda x: tf.debugging.assert_shapes([(x, ("N",)), (tf.zeros([2, 3]), ("N", 3))]),
]  # fmt: skip


@pytest.mark.parametrize("shape", [None, [2]])
@pytest.mark.parametrize("build", PASSING)
def test_passing(build, shape):
    assert run(build, shape) is None


@pytest.mark.parametrize(
    "build, text",
    [
        (lambda x: tf.assert_equal(x, [1.0, 3.0], message="hello"), r"assertion failed: \[hello\] \[Condition x == y did not hold element-wise:\] \[x \(x:0\) = \] \[1 2\]"),
        (lambda x: tf.assert_equal(x, 3.0, data=["mine", 7]), r"assertion failed: \[mine\] \[7\]"),
        (lambda x: tf.assert_none_equal(x, 2.0), "Condition x != y did not hold"),
        (lambda x: tf.assert_less(x, 2.0), "Condition x < y did not hold"),
        (lambda x: tf.assert_less_equal(x, 1.0), "Condition x <= y did not hold"),
        (lambda x: tf.assert_greater(x, 1.0), "Condition x > y did not hold"),
        (lambda x: tf.assert_greater_equal(x, 2.0), "Condition x >= y did not hold"),
        (lambda x: tf.assert_positive(x - 1.0), "Condition x > 0 did not hold"),
        (lambda x: tf.assert_negative(x, message="hey"), r"\[hey.  \] \[Condition x < 0 did not hold"),
        (lambda x: tf.assert_non_negative(-x), "Condition x >= 0 did not hold"),
        (lambda x: tf.assert_non_positive(x), "Condition x <= 0 did not hold"),
        (lambda x: tf.assert_near(x, [1.0, 2.1]), "x and y not equal to tolerance rtol"),
        (lambda x: tf.assert_rank(x, 2), r"Tensor x:0 must have rank\] \[2\] \[Received shape: \] \[2\]"),
        (lambda x: tf.assert_rank_at_least(x, 2), r"must have rank at least\] \[2\]"),
        (lambda x: tf.assert_rank_in(x, [0, 2]), r"must have rank in\] \[0\] \[2\]"),
        (lambda x: tf.debugging.assert_shapes([(x, ("N",)), (tf.zeros([3, 3]), ("M", "N"))]), r"Specified by tensor x:0 dimension 0\]"),
    ],
)
def test_failing_when_run(build, text):
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        run(build)


@pytest.mark.parametrize(
    "build, error, text",
    [
        (lambda x: tf.assert_equal([1, 2], [1, 3]), tf.errors.InvalidArgumentError, "Condition x == y did not hold element-wise:"),
        (lambda x: tf.assert_less([3], [1]), tf.errors.InvalidArgumentError, "Condition x < y did not hold element-wise:"),
        (lambda x: tf.assert_non_negative(tf.constant([-1.0])), tf.errors.InvalidArgumentError, "Condition x >= 0 did not hold"),
        (lambda x: tf.assert_rank(x, 2, message="mm"), ValueError, r"mm.  Tensor x:0 must have rank 2.  Received rank 1, shape \(2,\)"),
        (lambda x: tf.assert_rank_at_least(x, 2), ValueError, "must have rank at least 2"),
        (lambda x: tf.assert_rank_in(x, (0, 2)), ValueError, r"must have rank in \(0, 2\)"),
        (lambda x: tf.assert_rank(x, [1]), ValueError, "Rank must be a scalar"),
        (lambda x: tf.assert_type(x, tf.int32, message="q"), TypeError, "q.  x:0 must be of type tf.int32; got tf.float32"),
        (lambda x: tf.assert_integer(x), TypeError, 'Expected "x" to be integer type'),
        (lambda x: tf.assert_scalar(x), ValueError, "Expected scalar shape for x:0"),
        (lambda x: tf.assert_same_float_dtype([x, tf.constant(1.0, tf.float64)]), ValueError, "must be of the same type"),
        (lambda x: tf.assert_same_float_dtype([tf.constant(1)]), ValueError, "Expected floating point type"),
        (lambda x: tf.assert_proper_iterable(x), TypeError, '"proper" iterable'),
        (lambda x: tf.assert_proper_iterable(3), TypeError, "to be iterable"),
        (lambda x: tf.debugging.assert_shapes([(x, ("N",)), (tf.zeros([3, 3]), ("M", "N"))]), ValueError, "must have size 2.  Received size 3"),
    ],
)
def test_failing_while_building(build, error, text):
    with pytest.raises(error, match=text):
        run(build, [2])


def test_questions():
    x = tf.constant([1.0, 2.0])
    assert tf.is_numeric_tensor(x) and not tf.is_numeric_tensor(tf.constant("a")) and not tf.is_numeric_tensor(3)
    assert tf.assert_same_float_dtype() == tf.float32 and tf.assert_same_float_dtype([x], tf.float32) == tf.float32
    assert tf.assert_proper_iterable([x]) is None
    rows = [[1, 2, 3], [1, 1, 2], [2, 1], [5], [[1, 2], [2, 3]], np.zeros([0], np.int32)]
    with tf.Session() as sess:
        assert [bool(sess.run(tf.is_non_decreasing(r))) for r in rows] == [True, True, False, True, True, True]
        assert [bool(sess.run(tf.is_strictly_increasing(r))) for r in rows] == [True, False, False, True, False, True]


def test_finite():
    x = tf.placeholder(tf.float32, [2])
    y = tf.verify_tensor_all_finite(x, "oops")
    with tf.Session() as sess:
        assert sess.run(y, {x: [1.0, 2.0]}).tolist() == [1, 2]
        with pytest.raises(tf.errors.InvalidArgumentError, match="oops : Tensor had Inf values"):
            sess.run(y, {x: [1.0, np.inf]})


def test_check_everything():
    x = tf.placeholder(tf.float32, [2])
    tf.log(x, name="mine")
    check = tf.add_check_numerics_ops()
    with tf.Session() as sess:
        assert sess.run(check, {x: [1.0, 2.0]}) is None
        with pytest.raises(tf.errors.InvalidArgumentError, match="mine:0 : Tensor had NaN values"):
            sess.run(check, {x: [1.0, -2.0]})
    tf.cond(tf.constant(True), lambda: tf.constant(1.0), lambda: tf.constant(2.0))
    with pytest.raises(ValueError, match="not compatible with TensorFlow control flow"):
        tf.add_check_numerics_ops()
