"""Inputs at the edge: NaNs, empty arrays, stray bytes, rows without number. The expected values are TensorFlow's."""

import numpy as np
import pytest

import penstock as tf
from penstock.errors import InvalidArgumentError

NAN, INF = np.nan, np.inf


def run(fetches):
    with tf.Session() as sess:
        return sess.run(fetches)


def _segment(name, data, ids=None, **more):
    data = np.asarray(data)
    ids = np.zeros(len(data), np.int32) if ids is None else np.array(ids, np.int32)
    return run(getattr(tf.raw_ops, name)(data=tf.constant(data), segment_ids=tf.constant(ids), **more)).tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("column", "largest", "smallest"), [
    ([NAN, 1, 2], 2, 1), ([1, NAN, 2], 2, 2), ([1, 2, NAN], NAN, NAN), ([NAN], NAN, NAN), ([-INF, NAN], NAN, NAN), ([NAN, -INF], -INF, -INF), ([1, NAN, 0], 0, 0),
])  # fmt: skip
def test_an_extreme_forgets_what_came_before_nan(column, largest, smallest, dtype):
    for name, wanted in (("Max", largest), ("Min", smallest)):
        np.testing.assert_equal(_segment(f"Segment{name}", np.array(column, dtype)), [wanted])
        for data in (np.array(column, dtype), np.repeat(np.array(column, dtype)[:, None], 19, 1)):
            got = _segment(f"UnsortedSegment{name}", data, num_segments=1)
            np.testing.assert_equal(got, np.broadcast_to(wanted, np.shape(got)))


@pytest.mark.parametrize(("dtype", "vectors"), [(np.float16, 16), (np.float32, 16), (np.float64, 16)])
def test_extremes_of_sorted_segments_pass_over_nan_in_whole_vectors(dtype, vectors):
    for column, in_vectors, behind in (([NAN, NAN], -INF, NAN), ([1, NAN], 1, NAN), ([1, NAN, 0], 1, 0), ([NAN], NAN, NAN)):
        data = np.repeat(np.array(column, dtype)[:, None], vectors + 3, 1)
        np.testing.assert_equal(_segment("SegmentMax", data), [[in_vectors] * vectors + [behind] * 3])


def test_other_segments_are_as_they_are():
    data = np.array([[NAN], [1], [5], [4], [-7]], np.float32)
    np.testing.assert_equal(_segment("UnsortedSegmentMax", data, [0, 0, 1, 1, -1], num_segments=2), [[1], [5]])
    np.testing.assert_equal(_segment("SegmentMax", data, [0, 0, 2, 2, 2]), [[1], [0], [5]])


@pytest.mark.parametrize(("dtype", "values", "mean"), [
    (np.uint8, [200, 100], 22), (np.uint8, [250] * 300, 5), (np.uint8, [1] * 256 + [7], 7), (np.int8, [1] * 256 + [7], 7), (np.int16, [250] * 300, 31), (np.int32, [-3, -4], -3),
])  # fmt: skip
def test_means_of_narrow_integers_wrap_around(dtype, values, mean):
    assert _segment("SegmentMean", np.array(values, dtype)) == [mean]


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3)])
def test_lu_of_nothing(shape):
    lu, p = run(tf.linalg.lu(tf.zeros(shape)))
    assert lu.shape == shape and p.shape == shape[:-1] and p.dtype == np.int32


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_no_crop_of_boxes_without_bounds(value):
    for i in range(4):
        box = [[0.0, 0.0, 1.0, 1.0]]
        box[0][i] = value
        with pytest.raises(InvalidArgumentError, match="Boxes contains at least one element that is not finite"):
            run(tf.image.crop_and_resize(tf.ones([1, 4, 4, 1]), box, [0], [2, 2]))


def _distance(shape):
    nothing = tf.SparseTensor(np.zeros((0, len(shape)), np.int64), np.zeros(0, np.int64), tf.placeholder_with_default(np.array(shape, np.int64), [len(shape)]))
    return run(tf.edit_distance(nothing, nothing))


@pytest.mark.parametrize(("shape", "text"), [([0, 3], r"Got output shape \[0\] which has 0 elements"), ([2, 0, 2], r"Got output shape \[2,0\]"), ([3], "must have rank at least 2")])
def test_no_edit_distance_between_no_sequences(shape, text):
    with pytest.raises(InvalidArgumentError, match=text):
        _distance(shape)
    assert _distance([2, 0]).tolist() == [0, 0]


def test_flat_sparse_tensors_have_no_edit_distance():
    flat = tf.SparseTensor(np.zeros((1, 1), np.int64), [1], [1])
    with pytest.raises(ValueError, match="hypothesis_shape rank is: 1"):
        tf.edit_distance(flat, flat)


@pytest.mark.parametrize(("text", "pos", "length", "part"), [
    (b"\x80abc", 0, 1, b"\x80"), (b"\x80abc", 1, 2, b"ab"), (b"\x80abc", -4, 2, b"\x80a"), (b"\x80\x80a\xe2\x82\xac", 0, 2, b"\x80\x80a"),
    (b"\x80\x80a\xe2\x82\xac", 3, 1, b""), (b"a\x80\x80b", 0, 1, b"a\x80\x80"), (b"", 0, 1, b""),
])  # fmt: skip
def test_stray_bytes_in_front_are_a_character(text, pos, length, part):
    assert run(tf.strings.substr(tf.constant(text), pos, length, unit="UTF8_CHAR")) == part


def test_narrow_floats_have_two_zeros():
    for dtype in (tf.float16, tf.bfloat16):
        values, numbers = run(tf.unique(tf.constant([0.0, -0.0, 1.0, 0.0], dtype)))
        assert numbers.tolist() == [0, 1, 2, 0] and np.signbit(values.astype(np.float32)).tolist() == [False, True, False]
    assert run(tf.unique(tf.constant([0.0, -0.0, 1.0])))[1].tolist() == [0, 0, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("matrix", "text"), [([[1, 1], [1, 1], [1, 1]], "provide a larger l2_regularizer > 0"), ([[1, 1, 1], [1, 1, 1]], "provide an l2_regularizer > 0")])
def test_normal_equations_of_too_few_dimensions(matrix, text, dtype):
    a = np.array(matrix, dtype)
    solve = {fast: tf.raw_ops.MatrixSolveLs(matrix=a, rhs=np.ones((len(a), 1), dtype), l2_regularizer=np.float64(0), fast=fast) for fast in (True, False)}
    with pytest.raises(InvalidArgumentError, match="Input matrix was rank deficient or ill-conditioned. Try setting fast=False or " + text):
        run(solve[True])
    np.testing.assert_allclose(run(solve[False]), np.full((a.shape[1], 1), 1 / a.shape[1]), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.uint8, np.complex64])
@pytest.mark.parametrize("shape", [(5, 7), (2, 7, 5), (0, 3), (3, 0)])
def test_bands_of_matrices_have_zeros_outside(shape, dtype):
    x = (np.arange(1, 1 + np.prod(shape)).reshape(shape)).astype(dtype)
    if np.dtype(dtype).kind == "f" and x.size:
        x.flat[[0, -1]] = NAN, -INF
    distance = np.arange(shape[-1]) - np.arange(shape[-2])[:, None]
    for low, high in ((-1, 0), (0, -1), (0, 0), (2, 2), (-1, -1)):
        if max(low, high) <= min(shape):
            inside = (distance >= -low if low >= 0 else True) & (distance <= high if high >= 0 else distance == distance)
            np.testing.assert_array_equal(run(tf.matrix_band_part(tf.constant(x), low, high)), np.where(inside, x, x.dtype.type(0)))


def _lists(dtype, values=None):
    if values is None:
        return tf.stack([tf.raw_ops.EmptyTensorList(element_shape=tf.constant([], tf.int32), max_num_elements=-1, element_dtype=dtype) for _ in range(2)])
    return tf.stack([tf.raw_ops.TensorListFromTensor(tensor=tf.constant(v), element_shape=tf.constant([], tf.int32)) for v in values])


def test_lists_of_lists_in_batches():
    shape = tf.constant([], tf.int32)
    batch = tf.raw_ops.TensorListPushBackBatch(input_handles=_lists(tf.variant), tensor=_lists(None, [[1.0, 2.0], [3.0, 4.0]]))
    inner = [tf.raw_ops.TensorListGetItem(input_handle=h, index=0, element_shape=shape, element_dtype=tf.variant) for h in tf.unstack(batch)]
    stacks = [tf.raw_ops.TensorListStack(input_handle=h, element_shape=shape, element_dtype=tf.float32) for h in inner]
    assert [s.tolist() for s in run(stacks)] == [[1, 2], [3, 4]]
    numbers = tf.raw_ops.TensorListPushBackBatch(input_handles=_lists(tf.float32), tensor=tf.constant([5.0, 6.0]))
    assert [s.tolist() for s in run([tf.raw_ops.TensorListStack(input_handle=h, element_shape=shape, element_dtype=tf.float32) for h in tf.unstack(numbers)])] == [[5], [6]]
    with pytest.raises(ValueError, match="Dimensions must be equal"):
        tf.raw_ops.TensorListPushBackBatch(input_handles=_lists(tf.float32), tensor=tf.constant([5.0]))


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.half])
@pytest.mark.parametrize("size", [3, 3000])
@pytest.mark.parametrize("name", ["SqrtGrad", "RsqrtGrad", "ReciprocalGrad"])
def test_an_infinite_slope_times_zero_is_zero(name, size, dtype):
    y, dy = tf.placeholder(dtype, [size]), tf.placeholder(dtype, [size])
    z = getattr(tf.raw_ops, name)(y=y, dy=dy) * 2
    with tf.Session() as sess:
        for _ in range(6):
            values = sess.run(z, {y: np.resize([0.0, np.inf, np.nan], size), dy: np.zeros(size)})
            assert not np.any(values != 0)
        assert np.all(np.isfinite(sess.run(z, {y: np.full(size, 0.5), dy: np.full(size, 2.0)})))


def test_a_root_behind_a_mask_has_a_gradient():
    x = tf.constant([0.0, 4.0])
    slope = tf.gradients(tf.where(x > 0, tf.sqrt(x), tf.zeros_like(x)), x)[0]
    with tf.Session() as sess:
        assert sess.run(slope).tolist() == [0.0, 0.25]
