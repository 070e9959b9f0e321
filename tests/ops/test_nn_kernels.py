"""Window arithmetic, normalisation, softmax, largest entries, resizing and block moves: literal values and plain formulas."""

import ml_dtypes
import numpy as np
import pytest

from penstock import errors
from penstock.ops import native
from penstock.ops.kernels import blocks, norm, resize, softmax, topk, window
from penstock.ops.kernels.numeric import column_sums

RNG = np.random.default_rng(0)
INF = float("inf")


def random(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


# -- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "k", "stride", "padding", "dilation", "expected"),
    [
        (5, 3, 1, b"SAME", 1, (5, 1, 1)),
        (5, 3, 2, b"SAME", 1, (3, 1, 1)),
        (6, 3, 2, b"SAME", 1, (3, 0, 1)),  # the odd cell comes after
        (6, 2, 4, b"SAME", 1, (2, 0, 0)),
        (5, 3, 2, b"VALID", 1, (2, 0, 0)),
        (4, 6, 2, b"VALID", 1, (0, 0, 0)),  # C's division: a little too long gives nothing instead of an error
        (7, 3, 1, b"SAME", 3, (7, 3, 3)),
    ],
)
def test_slide(size, k, stride, padding, dilation, expected):
    s = window.slide(size, k, stride, padding, dilation)
    assert (s.out, s.before, s.after) == expected
    if expected[0]:
        assert window.static_size(size, k, stride, padding, dilation) == expected[0]


def test_static_sizes_may_be_unknown():
    assert window.static_size(None, 3, 2, b"SAME") is None
    assert window.static_size(5, None, 2, b"SAME") == 3
    assert window.static_size(5, None, 2, b"VALID") is None
    with pytest.raises(ValueError, match="Negative dimension size caused by subtracting 5 from 4"):
        window.static_size(4, 3, 1, b"VALID", 2)
    with pytest.raises(ValueError, match="Stride must be > 0, but got 0"):
        window.static_size(None, 3, 0, b"SAME")


def test_layout():
    lay = window.layout(b"NCHW")
    assert (lay.channel, lay.spatial, lay.to_last, lay.from_last) == (1, (2, 3), (0, 2, 3, 1), (0, 3, 1, 2))
    assert lay.build("n", ("h", "w"), "c") == ("n", "c", "h", "w")
    assert lay.pairs([0, 0, 0, 0, 1, 2, 3, 4]) == ((1, 2), (3, 4))


# -- normalisation ----------------------------------------------------------------------------------------------------

BATCH_NORM = dict(epsilon=0.01, exponential_avg_factor=1.0, data_format=b"NHWC", is_training=True)
GRAD = dict(epsilon=0.01, data_format=b"NHWC", is_training=True)


def first(x):
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def test_batch_norm_training():
    x, scale, offset = random(3, 4, 5, 2), random(2), random(2)
    y, mean, variance, saved_mean, saved_variance, extra = norm.fused_batch_norm_v3(x, scale, offset, np.zeros(0, np.float32), np.zeros(0, np.float32), **BATCH_NORM)
    wide = x.astype(float)
    m, v = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
    np.testing.assert_allclose(y, (wide - m) / np.sqrt(v + 0.01) * scale + offset, 1e-5, 1e-5)
    np.testing.assert_allclose(mean, m, 1e-5, 1e-6)
    np.testing.assert_allclose(variance, v * 60 / 59, 1e-5)  # unbiased, for moving averages
    np.testing.assert_allclose(saved_mean, m, 1e-5, 1e-6)
    np.testing.assert_allclose(saved_variance, v, 1e-5)
    assert extra.shape == ()
    nchw = norm.fused_batch_norm(first(x), scale, offset, mean, variance, **{**BATCH_NORM, "data_format": b"NCHW"})
    np.testing.assert_allclose(np.moveaxis(nchw[0], 1, -1), y, 1e-5, 1e-5)


@pytest.mark.parametrize("beta", [0.5, 0.6, 0.75, 1.0, 1.3, 2.0])
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_local_response_normalisation(bias, beta):
    x = random(1, 3, 5, 16)
    x[0, 0, 0] = 0
    x[0, 1, 1, 3] = np.nan
    near = np.abs(np.subtract.outer(np.arange(16), np.arange(16))) <= 2
    with np.errstate(all="ignore"):
        want = x * (bias + 0.1 * (x.astype(np.float64) ** 2 @ near)) ** -beta
        got = norm.lrn(x, depth_radius=2, bias=bias, alpha=0.1, beta=beta)
    np.testing.assert_allclose(got[0, 0], want[0, 0], 1e-5)
    np.testing.assert_allclose(got[0, 2], want[0, 2], 1e-5)
    assert np.isnan(got[0, 1, 1, 1:6]).all()


def test_batch_norm_moving_averages():
    x, one = random(2, 3, 3, 2), np.ones(2, np.float32)
    plain = norm.fused_batch_norm(x, one, one, one, one, **BATCH_NORM)
    moved = norm.fused_batch_norm(x, one, one, one * 4, one * 8, **{**BATCH_NORM, "exponential_avg_factor": 0.25})
    np.testing.assert_allclose(moved[1], 0.75 * 4 + 0.25 * plain[1], 1e-6)
    np.testing.assert_allclose(moved[2], 0.75 * 8 + 0.25 * plain[2], 1e-6)
    np.testing.assert_array_equal(moved[3], plain[3])


def test_batch_norm_inference_and_types():
    x = random(2, 3, 3, 2, dtype=ml_dtypes.bfloat16)
    scale, offset, mean, variance = random(2), random(2), random(2), np.abs(random(2)) + 0.5
    result = norm.fused_batch_norm(x, scale, offset, mean, variance, **{**BATCH_NORM, "is_training": False})
    assert [r.dtype for r in result] == [x.dtype, *[np.dtype(np.float32)] * 4]
    expected = (x.astype(float) - mean) / np.sqrt(variance + 0.01) * scale + offset
    np.testing.assert_allclose(result[0].astype(float), expected, 1e-2, 1e-2)
    np.testing.assert_array_equal(result[1], mean)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("channels_first", [True, False])
def test_batch_norm_gradient(training, channels_first):
    """Against finite differences of the forward kernel."""
    x, scale, offset = random(2, 2, 3, 2, dtype=float), random(2, dtype=float), random(2, dtype=float)
    mean, variance = random(2, dtype=float), np.abs(random(2, dtype=float)) + 0.5
    if channels_first:
        x = first(x)
    attrs = dict(epsilon=0.01, data_format=b"NCHW" if channels_first else b"NHWC", is_training=training)

    def forward(x, scale, offset):
        return norm.fused_batch_norm(x, scale, offset, mean, variance, exponential_avg_factor=1.0, **attrs)

    result = forward(x, scale, offset)
    dy = random(*x.shape, dtype=float)
    saved = result[3:5] if training else (mean, variance)
    grads = norm.fused_batch_norm_grad(dy, x, scale, *saved, **attrs)
    assert grads[3].shape == grads[4].shape == (0,)
    for i, argument in enumerate((x, scale, offset)):
        for at in list(np.ndindex(argument.shape))[::3]:
            values = []
            for step in (1e-5, -1e-5):
                moved = [a.copy() for a in (x, scale, offset)]
                moved[i][at] += step
                values.append(np.sum(dy * forward(*moved)[0]))
            np.testing.assert_allclose(grads[i][at], (values[0] - values[1]) / 2e-5, 1e-4, 1e-5)


def test_batch_norm_of_nothing():
    none, one = np.zeros((0, 3, 3, 2), np.float32), np.ones(2, np.float32)
    y, mean, variance, *_ = norm.fused_batch_norm(none, one, one, one, one, **BATCH_NORM)
    assert y.shape == none.shape and np.isnan(mean).all() and np.isnan(variance).all()
    dx, d_scale, d_offset, *_ = norm.fused_batch_norm_grad(none, none, one, one, one, **GRAD)
    assert dx.shape == none.shape and not d_scale.any() and not d_offset.any()


@pytest.mark.parametrize(
    ("x", "scale", "attrs", "text"),
    [
        ((2, 3), 3, BATCH_NORM, r"input must be 4 or 5-dimensional\[2,3\]"),
        ((1, 2, 2, 3), 2, BATCH_NORM, "scale must have the same number of elements as the channels of x, got 2 and 3"),
        ((1, 2, 2, 3), 3, {**BATCH_NORM, "is_training": False}, "When is_training=false, mean must have .* got 0 and 3"),
        ((1, 2, 2, 3), 3, {**BATCH_NORM, "exponential_avg_factor": 0.5}, "When exponential_avg_factor != 1, mean must have"),
    ],
)
def test_batch_norm_errors(x, scale, attrs, text):
    none = np.zeros(0, np.float32)
    with pytest.raises(errors.InvalidArgumentError, match=text):
        norm.fused_batch_norm(np.ones(x, np.float32), np.ones(scale, np.float32), np.ones(3, np.float32), none, none, **attrs)


@pytest.mark.parametrize("depth", [7, 1100])
def test_lrn(depth):
    x, dy = random(1, 1, 2, depth), random(1, 1, 2, depth)
    attrs = dict(depth_radius=2, bias=1.5, alpha=0.3, beta=0.75)

    def total(v):
        return np.stack([v[..., max(0, i - 2) : i + 3].sum(-1) for i in range(depth)], -1)

    wide = x.astype(float)
    scale = 1.5 + 0.3 * total(wide**2)
    y = norm.lrn(x, **attrs)
    np.testing.assert_allclose(y, wide * scale**-0.75, 1e-5, 1e-5)
    expected = dy * scale**-0.75 - 2 * 0.3 * 0.75 * wide * total(dy * y / scale)
    np.testing.assert_allclose(norm.lrn_grad(dy, x, y, **attrs), expected, 1e-4, 1e-5)
    with pytest.raises(errors.InvalidArgumentError, match="depth_radius = -1 larger than int max"):
        norm.lrn(x, **{**attrs, "depth_radius": -1})


def test_sums_stay_accurate():
    ones = np.full((300_001, 1), 0.1, np.float32)
    np.testing.assert_allclose(column_sums(ones), [30000.1], 1e-6)
    np.testing.assert_allclose(norm.l2_loss(ones), 300_001 * 0.005, 1e-6)
    assert norm.l2_loss(np.ones(5000, np.float16)) == 2500


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 5), (512, 3), (513, 1), (513, 2), (600, 64), (1000, 17), (2048, 130), (8192, 7)])
def test_column_sums_in_machine_code_and_numpy_agree_to_the_last_bit(monkeypatch, shape, kind):
    x = np.random.default_rng(0).normal(size=shape).astype(kind)
    x[-1, 0], x[0, -1] = np.inf, np.nan
    got = column_sums(x)
    monkeypatch.setattr(native, "available", lambda: False)
    want = column_sums(x)
    assert got.dtype == want.dtype == kind
    np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(got, x.astype(np.float64).sum(0), 1e-4)


def test_column_sums_of_other_matrices():
    x = np.random.default_rng(0).integers(-1000, 1000, (1400, 6))
    np.testing.assert_array_equal(column_sums(x), x.sum(0))
    np.testing.assert_allclose(column_sums(x.astype(np.float32)[::2, 1:4]), x[::2, 1:4].sum(0))
    assert not column_sums(np.zeros((1000, 0), np.float32)).size
    many = np.ones((256 * 600, 2), np.float32)
    np.testing.assert_array_equal(column_sums(many), [256 * 600] * 2)


# -- softmax ----------------------------------------------------------------------------------------------------------


def test_softmax():
    x = np.array([[0.0, np.log(3.0)], [1000.0, -1000.0], [-INF, 5.0]], np.float32)
    np.testing.assert_allclose(softmax.softmax(x), [[0.25, 0.75], [1, 0], [0, 1]], 1e-6)
    np.testing.assert_allclose(softmax.log_softmax(x), [[np.log(0.25), np.log(0.75)], [0, -2000], [-INF, 0]], 1e-6)
    with pytest.raises(errors.InvalidArgumentError, match=r"logits must have >= 1 dimension, got \[\]"):
        softmax.softmax(np.float32(1))


def test_cross_entropies():
    x = np.log(np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)) + np.array([[3.0], [-7.0]], np.float32)
    labels = np.array([[1.0, 0.0], [0.5, 0.5]], np.float32)
    loss, gradient = softmax.softmax_cross_entropy(x, labels)
    np.testing.assert_allclose(loss, [np.log(4), np.log(2)], 1e-6)
    np.testing.assert_allclose(gradient, [[-0.75, 0.75], [0, 0]], 1e-6, 1e-6)
    loss, gradient = softmax.sparse_softmax_cross_entropy(x, np.array([0, 1]))
    np.testing.assert_allclose(loss, [np.log(4), np.log(2)], 1e-6)
    np.testing.assert_allclose(gradient, [[-0.75, 0.75], [0.5, -0.5]], 1e-6)
    # One row of labels for all rows of logits.
    assert softmax.softmax_cross_entropy(x, labels[:1])[1].shape == (2, 2)
    np.testing.assert_allclose(softmax.softmax_cross_entropy(x, labels[0])[0], [np.log(4), np.log(2)], 1e-6)


def test_labels_outside_are_errors():
    text = r"Received a label value of 3 which is outside the valid range of \[0, 3\).  Label values: 0 3"
    with pytest.raises(errors.InvalidArgumentError, match=text):
        softmax.sparse_softmax_cross_entropy(np.ones((2, 3), np.float32), np.array([0, 3]))
    with pytest.raises(errors.InvalidArgumentError, match="Must have at least one class"):
        softmax.sparse_softmax_cross_entropy(np.ones((2, 0), np.float32), np.array([0, 3]))


# -- the largest entries ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("k", [0, 1, 3, 10])
def test_top_k(dtype, k):
    x = RNG.integers(0, 5, (4, 50)).astype(dtype)
    values, index = topk.top_k(x, np.int32(k))
    order = np.array([sorted(range(50), key=lambda i: (-float(row[i]), i))[:k] for row in x], int).reshape(4, k)
    np.testing.assert_array_equal(index, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, -1))
    assert index.dtype == np.int32


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_the_largest_number_is_none_that_is_none(dtype):
    """As TensorFlow mostly has it for k = 1 (it depends on the place of the NaN there); among several, NaN is the first."""
    nan = np.nan
    x = np.array([[1, nan, 5, 5], [nan, -INF, nan, -INF], [nan] * 4, [3, 2, 1, 0], [nan, nan, -2, nan]]).astype(dtype)
    values, index = topk.top_k(x, np.int32(1))
    assert index.ravel().tolist() == [2, 1, 0, 0, 2]
    np.testing.assert_array_equal(values.astype(np.float64).ravel(), [5, -INF, nan, 3, -2])
    assert topk.top_k(x, np.int32(2))[1].tolist() == [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1]]


def test_nth_element_and_in_top_k():
    x = np.array([[3.0, 1.0, 2.0, 2.0]], np.float32)
    assert topk.nth_element(x, np.int32(1), reverse=False) == 2
    assert topk.nth_element(x, np.int32(0), reverse=True) == 3
    rows = np.array([[1, 2, 2, 0]] * 4 + [[INF, 1, 2, 3]], np.float32)
    targets = np.array([1, 2, 0, 7, 0])
    # Ties count as inside; classes out of range and rows that are not finite do not.
    np.testing.assert_array_equal(topk.in_top_k(rows, targets, np.int32(1)), [True, True, False, False, False])


# -- images -----------------------------------------------------------------------------------------------------------

ROW = np.array([0.0, 10.0, 20.0], np.float32).reshape(1, 1, 3, 1)
SIX = np.array([1, 6])


@pytest.mark.parametrize(
    ("method", "attrs", "expected"),
    [
        (resize.resize_bilinear, dict(), [0, 5, 10, 15, 20, 20]),
        (resize.resize_bilinear, dict(align_corners=True), [0, 4, 8, 12, 16, 20]),
        (resize.resize_bilinear, dict(half_pixel_centers=True), [0, 2.5, 7.5, 12.5, 17.5, 20]),
        (resize.resize_nearest_neighbor, dict(), [0, 0, 10, 10, 20, 20]),
        (resize.resize_nearest_neighbor, dict(align_corners=True), [0, 0, 10, 10, 20, 20]),
        (resize.resize_nearest_neighbor, dict(half_pixel_centers=True), [0, 0, 10, 10, 20, 20]),
        (resize.resize_area, dict(), [0, 0, 10, 10, 20, 20]),
        (resize.resize_bicubic, dict(), [0, 4.0625, 10, 15.9375, 20, 20.9375]),
    ],
)
def test_resize(method, attrs, expected):
    np.testing.assert_allclose(method(ROW, SIX, **attrs).ravel(), expected, 1e-5, 1e-5)


@pytest.mark.parametrize("attrs", [dict(), dict(align_corners=True), dict(half_pixel_centers=True)])
@pytest.mark.parametrize("size", [(8, 10), (3, 2), (7, 9)])
def test_resize_gradients_are_adjoint(attrs, size):
    x, dy = random(2, 4, 5, 3), random(2, *size, 3)
    sizes = np.array(size)
    pairs = [
        (resize.resize_bilinear, resize.resize_bilinear_grad(dy, x, **attrs)),
        (resize.resize_bicubic, resize.resize_bicubic_grad(dy, x, **attrs)),
        (resize.resize_nearest_neighbor, resize.resize_nearest_neighbor_grad(dy, np.array([4, 5]), **attrs)),
    ]
    for forward, dx in pairs:
        np.testing.assert_allclose(np.sum(forward(x, sizes, **attrs) * dy), np.sum(dx * x), 1e-4, 1e-3)


def test_resize_area_keeps_the_mean():
    x = random(1, 6, 8, 2)
    np.testing.assert_allclose(resize.resize_area(x, np.array([2, 4])), x.reshape(1, 2, 3, 4, 2, 2).mean((2, 4)), 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("x", "size", "attrs", "text"),
    [
        ((4, 5, 3), [2, 2], {}, r"input must be 4-dimensional\[4,5,3\]"),
        ((1, 4, 5, 3), [2], {}, r"shape_t must have two elements\[1\]"),
        ((1, 4, 5, 3), [0, 2], {}, "output dimensions must be positive"),
        ((1, 0, 5, 3), [2, 2], {}, "input image must be of non-zero size"),
        ((1, 4, 5, 3), [2, 2], dict(align_corners=True, half_pixel_centers=True), "align_corners must be False"),
    ],
)
def test_resize_errors(x, size, attrs, text):
    with pytest.raises(errors.InvalidArgumentError, match=text):
        resize.resize_bilinear(np.ones(x, np.float32), np.array(size), **attrs)


# -- blocks -----------------------------------------------------------------------------------------------------------


def test_space_to_batch_and_back():
    x = np.arange(16).reshape(1, 4, 4, 1)
    y = blocks.space_to_batch_nd(x, np.array([2, 2]), np.zeros((2, 2), int))
    np.testing.assert_array_equal(y[..., 0], [[[0, 2], [8, 10]], [[1, 3], [9, 11]], [[4, 6], [12, 14]], [[5, 7], [13, 15]]])
    for block, pads in (([2, 2], [[0, 0], [0, 0]]), ([3, 1], [[1, 1], [0, 0]]), ([2], [[1, 1]])):
        block, pads = np.array(block), np.array(pads)
        np.testing.assert_array_equal(blocks.batch_to_space_nd(blocks.space_to_batch_nd(x, block, pads), block, pads), x)
    with pytest.raises(errors.InvalidArgumentError, match=r"padded_shape\[0\]=4 is not divisible by block_shape\[0\]=3"):
        blocks.space_to_batch_nd(x, np.array([3]), np.array([[0, 0]]))
    with pytest.raises(errors.InvalidArgumentError, match="not divisible by product of block sizes"):
        blocks.batch_to_space_nd(x, np.array([3]), np.array([[0, 0]]))


def test_space_to_depth_and_back():
    x = np.arange(16).reshape(1, 2, 4, 2)
    y = blocks.space_to_depth(x, block_size=2)
    np.testing.assert_array_equal(y, [[[[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]]]])
    np.testing.assert_array_equal(blocks.depth_to_space(y, block_size=2), x)
    nchw = blocks.space_to_depth(first(x), block_size=2, data_format=b"NCHW")
    np.testing.assert_array_equal(nchw, first(y))
    np.testing.assert_array_equal(blocks.depth_to_space(nchw, block_size=2, data_format=b"NCHW"), first(x))
