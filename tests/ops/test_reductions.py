"""Reductions, scans, sequences and counting."""

import numpy as np
import pytest

import penstock as tf
from penstock.ops.kernels.short_rows import reduce_short_rows


def run(fetches, feeds=None):
    with tf.Session() as sess:
        return sess.run(fetches, feeds)


def test_small_integers_wrap_but_means_do_not():
    x = tf.constant([100, 100, 101], tf.int8)
    assert run(tf.reduce_sum(x)) == 45
    assert run(tf.reduce_mean(x)) == 100
    assert run(tf.reduce_mean(tf.constant([-1, 0, -1]))) == 0


@pytest.mark.parametrize(("name", "want"), [("reduce_sum", 0.0), ("reduce_prod", 1.0), ("reduce_max", -np.inf), ("reduce_min", np.inf), ("reduce_mean", np.nan)])
def test_reductions_of_nothing(name, want):
    value = run(getattr(tf, name)(tf.zeros([0, 2]), axis=0))
    assert value.shape == (2,) and np.array_equal(value, [want, want], equal_nan=True)


def test_bad_axes():
    x, axis = tf.placeholder(tf.float32), tf.placeholder(tf.int32)
    total = tf.reduce_sum(x, axis)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Invalid reduction dimension \(2 for input with 2 dimension"):
        run(total, {x: np.zeros((2, 3)), axis: [2]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="Axes contains duplicate dimension: 0"):
        run(total, {x: np.zeros((2, 3)), axis: [0, -2]})
    with pytest.raises(ValueError, match="Invalid reduction dimension 2 for input with 2 dimensions"):
        tf.reduce_sum(tf.zeros([2, 3]), 2)


def test_half_sums_accumulate_in_float():
    # In half precision, 2048 + 1 is 2048 again.
    assert run(tf.reduce_sum(tf.ones([4096], tf.float16))) == 4096


def test_static_shapes():
    u = tf.placeholder(tf.float32)
    x = tf.placeholder(tf.float32, [None, 3])
    assert tf.reduce_sum(u).shape == []
    assert tf.reduce_sum(x, 0).shape.as_list() == [3]
    assert tf.reduce_sum(x, [1], keepdims=True).shape.as_list() == [None, 1]
    assert tf.reduce_sum(x, tf.placeholder(tf.int32, [])).shape.as_list() == [None]
    assert tf.argmax(x, 1).shape.as_list() == [None]


def test_argmax_skips_nan():
    x = tf.constant([[np.nan, 1.0, 3.0], [2.0, np.nan, 1.0]])
    assert run([tf.argmax(x, 1), tf.argmin(x, 1)])[0].tolist() == [2, 0]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Reduction axis 1 is empty in shape \[2,0\]"):
        run(tf.argmax(tf.zeros([2, 0]), 1))


def test_deprecated_names_of_arguments():
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    assert run(tf.reduce_sum(x, reduction_indices=1, keep_dims=True)).tolist() == [[3.0], [7.0]]
    with pytest.raises(ValueError, match="Cannot specify both 'reduction_indices' and 'axis'"):
        tf.reduce_sum(x, axis=0, reduction_indices=0)


def test_prod_gradient_with_zeros():
    x = tf.constant([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0]])
    assert run(tf.gradients(tf.reduce_prod(x, 1), x)[0]).tolist() == [[0, 6, 0], [0, 0, 0]]


def test_max_gradient_is_shared():
    x = tf.constant([1.0, 3.0, 3.0])
    assert run(tf.gradients(tf.reduce_max(x), x)[0]).tolist() == [0, 0.5, 0.5]


def test_gradients_with_unknown_rank():
    x = tf.placeholder(tf.float32)
    value = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
    mean, total = tf.gradients(tf.reduce_mean(x), x)[0], tf.gradients(tf.reduce_sum(x, [0, -1]), x)[0]
    got = run([mean, total], {x: value})
    assert np.allclose(got[0], np.full((2, 3), 1 / 6)) and np.allclose(got[1], np.ones((2, 3)))


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumsum_and_its_gradient(exclusive, reverse):
    x = tf.constant([[1.0, 2.0, 3.0]])
    y = tf.cumsum(x, 1, exclusive=exclusive, reverse=reverse)
    weights = np.array([[1.0, 10.0, 100.0]], np.float32)
    table = np.triu(np.ones((3, 3)), 1 if exclusive else 0)
    table = table.T if reverse else table
    value, slope = run([y, tf.gradients(y, x, weights)[0]])
    assert np.allclose(value, np.array([[1.0, 2.0, 3.0]]) @ table)
    assert np.allclose(slope, weights @ table.T)


def test_logsumexp_does_not_overflow():
    assert run(tf.reduce_logsumexp(tf.constant([1000.0, 1000.0]))) == pytest.approx(1000 + np.log(2))
    assert run(tf.reduce_logsumexp(tf.constant([-np.inf, -np.inf]))) == -np.inf
    assert run(tf.math.cumulative_logsumexp(tf.constant([1000.0, 1000.0])))[1] == pytest.approx(1000 + np.log(2))


def test_ranges():
    assert run(tf.range(10, 1, -3)).tolist() == [10, 7, 4]
    assert run(tf.range(3, dtype=tf.float64)).dtype == np.float64
    assert tf.range(1, 10, 4).shape.as_list() == [3]
    with pytest.raises(ValueError, match="Requires start <= limit when delta > 0: 5/0"):
        tf.range(5, 0)
    n = tf.placeholder(tf.int32, [])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Requires start <= limit when delta > 0: 0/-1"):
        run(tf.range(n), {n: -1})


def test_linspace_ends_exactly():
    value = run(tf.linspace(0.1, 0.7, 7))
    assert value[0] == np.float32(0.1) and value[-1] == np.float32(0.7) and len(value) == 7
    rows = run(tf.linspace([0.0, 1.0], [1.0, 5.0], 3))
    assert rows.tolist() == [[0, 1], [0.5, 3], [1, 5]]


def test_counting():
    arr = tf.constant([1, 2, 2, 7])
    assert run(tf.bincount(arr)).tolist() == [0, 1, 2, 0, 0, 0, 0, 1]
    assert run(tf.bincount(arr, maxlength=3)).tolist() == [0, 1, 2]
    assert run(tf.bincount(arr, weights=[0.5, 1.0, 1.0, 9.0], minlength=9)).tolist() == [0, 0.5, 2, 0, 0, 0, 0, 9, 0]
    assert run(tf.histogram_fixed_width([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0], [0.0, 5.0], 5)).tolist() == [2, 1, 1, 0, 2]
    assert run(tf.count_nonzero([[0, 1], [2, 0]], axis=0)).tolist() == [1, 1]
    assert run(tf.count_nonzero([[True, False], [True, True]], axis=0)).tolist() == [2, 1]


def test_segments():
    data, ids = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), tf.constant([0, 0, 3])
    assert run(tf.segment_sum(data, ids)).tolist() == [[4, 6], [0, 0], [0, 0], [5, 6]]
    assert run(tf.segment_mean(data, ids))[0].tolist() == [2, 3]
    assert run(tf.unsorted_segment_max(data, [1, -1, 1], 3))[1].tolist() == [5, 6]
    assert run(tf.unsorted_segment_max(data, [1, -1, 1], 3))[0, 0] == np.finfo(np.float32).min
    assert run(tf.unsorted_segment_mean(data, [1, 1, 0], 3)).tolist() == [[5, 6], [2, 3], [0, 0]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="segment ids are not increasing"):
        run(tf.segment_sum(data, tf.constant([1, 0, 1])))


def test_ids_of_long_segments_that_are_not_in_order():
    """Where the last of them belongs behind all: more are shared out among threads than here."""
    ids = np.zeros(1 << 15, np.int32)
    ids[1 << 13] = 100
    x, place = tf.placeholder(tf.float32, [None, 128]), tf.placeholder(tf.int32, [None])
    with tf.Session() as sess:
        for segment in (tf.segment_sum, tf.segment_max, tf.segment_mean):
            with pytest.raises(tf.errors.InvalidArgumentError, match="segment ids are not increasing"):
                sess.run(segment(x, place), {x: np.ones((1 << 15, 128), np.float32), place: ids})


def test_segment_prod_gradient_with_zeros():
    x = tf.constant([2.0, 0.0, 3.0, 0.0, 0.0])
    slope = tf.gradients(tf.segment_prod(x, [0, 0, 0, 1, 1]), x)[0]
    assert run(slope).tolist() == [0, 6, 0, 0, 0]


def test_sparse_segments():
    data = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    total = tf.sparse_segment_sum(data, [0, 2, 3], [0, 0, 2], num_segments=4)
    assert run(total).tolist() == [[6, 8], [0, 0], [7, 8], [0, 0]]
    assert run(tf.gradients(total, data)[0]).tolist() == [[1, 1], [0, 0], [1, 1], [1, 1]]
    sparse = tf.gradients(tf.sparse_segment_mean(data, [0, 2, 2], [0, 0, 1], sparse_gradient=True), data)[0]
    assert isinstance(sparse, tf.IndexedSlices)
    value = run(sparse)
    assert value.indices.tolist() == [0, 2] and value.values.tolist() == [[0.5, 0.5], [1.5, 1.5]]


def test_of_no_axes_nothing_is_added_up():
    x, axes = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.int32, [None])
    for y in (tf.reduce_sum(x, axes), tf.reduce_mean(x, axes), tf.reduce_prod(x, axes), tf.reduce_sum(tf.reshape(x, [2, 1]), [])):
        assert np.signbit(run(y, {x: [-0.0, 0.0], axes: []})).ravel().tolist() == [True, False]


@pytest.mark.parametrize("ufunc", [np.add, np.maximum, np.minimum])
@pytest.mark.parametrize("axes", [(3,), -1, (2, 3), (-2, -1), 1, 0, (0, 3), (1, 3)])
@pytest.mark.parametrize("order", [(1, 0, 2, 3), (2, 1, 0, 3), (3, 2, 1, 0), (0, 1, 3, 2)])
def test_sums_of_arrays_whose_axes_lie_in_another_order(ufunc, axes, order):
    x = np.random.RandomState(0).randint(-9, 9, (20, 16, 12, 14)).astype(np.float32).transpose(order)
    for keepdims in (False, True):
        found = reduce_short_rows(ufunc, x, axes, keepdims)
        if found is not None:
            np.testing.assert_array_equal(found, ufunc.reduce(x, axes, keepdims=keepdims), strict=True)
    if order == (1, 0, 2, 3) and axes in ((3,), -1) and ufunc is not np.multiply:
        assert found is not None


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64])
@pytest.mark.parametrize("shape", [(4096,), (70, 90), (3, 41, 61)])
def test_products_of_all(dtype, shape):
    x = (2 * np.random.RandomState(0).randint(0, 60, shape) + 1).astype(dtype)  # odd numbers: no product is 0
    for keepdims in (False, True):
        found = reduce_short_rows(np.multiply, x, tuple(range(x.ndim)), keepdims)
        np.testing.assert_array_equal(found, np.multiply.reduce(x, None, dtype, keepdims=keepdims), strict=True)
