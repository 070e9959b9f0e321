"""Convolutions of uniformly quantised tensors: what the samples do not say (sums cell by cell, shapes, messages while building)."""

import itertools

import numpy as np
import pytest

import penstock as tf
from penstock.formats.protos import UniformQuantizedConvolutionDimensionNumbersAttr

LIMITS = {f"{name}quantization_{end}_val": value for name in ("lhs_", "rhs_") for end, value in (("min", -128), ("max", 127))}
WIDE = dict(output_quantization_min_val=-(2**31), output_quantization_max_val=2**31 - 1)
CHANNELS_LAST = UniformQuantizedConvolutionDimensionNumbersAttr(
    input_batch_dimension=0, input_feature_dimension=3, input_spatial_dimensions=[1, 2], kernel_input_feature_dimension=2, kernel_output_feature_dimension=3,
    kernel_spatial_dimensions=[0, 1], output_batch_dimension=0, output_feature_dimension=3, output_spatial_dimensions=[1, 2],
).SerializeToString()  # fmt: skip


def placeholders(lhs, rhs, shapes):
    """lhs, rhs and their numbers, of given shapes; scales and zero points are scalars unless told otherwise."""
    found = dict(lhs=tf.placeholder(tf.qint8, lhs), rhs=tf.placeholder(tf.qint8, rhs))
    for name in ("lhs", "rhs", "output"):
        for what, dtype in (("scales", tf.float32), ("zero_points", tf.int32)):
            found[f"{name}_{what}"] = tf.placeholder(dtype, shapes.get(name, []))
    return found


def static_shape(lhs, rhs, padding="VALID", *, shapes=None, **attrs):
    with tf.Graph().as_default():
        return tf.raw_ops.UniformQuantizedConvolution(**placeholders(lhs, rhs, shapes or {}), padding=padding, Tout=tf.qint32, **LIMITS, **WIDE, **attrs).shape


def convolved(x, w, x_zero, w_zeros, **attrs):
    """The op with all scales 1 and the output's zero point 0: the sums themselves."""
    with tf.Graph().as_default():
        given = placeholders(x.shape, w.shape, dict(rhs=w_zeros.shape))
        y = tf.raw_ops.UniformQuantizedConvolution(**given, Tout=tf.qint32, **LIMITS, **WIDE, **attrs)
        values = [x, w, 1.0, x_zero, np.ones(w_zeros.shape), w_zeros, 1.0, 0]
        with tf.Session() as sess:
            found = sess.run(y, dict(zip(given.values(), values, strict=True)))
        assert y.shape == found.shape
        return found


def cell_by_cell(x, w, strides, pads, x_dilation, w_dilation, batches, features):
    """Sums over (N, C, H, W) and (O, I, h, w) whose zero points have been taken away."""
    x, w = x.astype(np.int64), w.astype(np.int64)
    (n, _, *sizes), (o, depth, *window) = x.shape, w.shape
    spread = np.zeros((*x.shape[:2], *((s - 1) * d + 1 for s, d in zip(sizes, x_dilation, strict=True))), np.int64)
    spread[:, :, :: x_dilation[0], :: x_dilation[1]] = x
    spread = np.pad(spread, [(0, 0), (0, 0), *pads])
    reach = [(k - 1) * d + 1 for k, d in zip(window, w_dilation, strict=True)]
    out = [(size - r) // s + 1 for size, r, s in zip(spread.shape[2:], reach, strides, strict=True)]
    y = np.zeros((n // batches, o, *out), np.int64)
    for image, feature, row, column in itertools.product(*map(range, y.shape)):
        source = spread[image + feature // (o // batches) * (n // batches)]
        first = feature // (o // features) * depth
        top, left = row * strides[0], column * strides[1]
        cells = source[first : first + depth, top : top + reach[0] : w_dilation[0], left : left + reach[1] : w_dilation[1]]
        y[image, feature, row, column] = np.sum(cells * w[feature])
    return y


@pytest.mark.parametrize("batches, features", [(1, 1), (2, 1), (1, 2), (1, 4), (2, 4)])
@pytest.mark.parametrize("per_channel", [False, True])
def test_sums_cell_by_cell(batches, features, per_channel):
    random = np.random.default_rng(batches * 10 + features)
    x, w = random.integers(-128, 128, (4, 4, 5, 6)).astype(np.int8), random.integers(-128, 128, (8, 4 // features, 2, 3)).astype(np.int8)
    zeros = np.arange(-4, 4, dtype=np.int32) * 30 if per_channel else np.array(-2, np.int32)
    attrs = dict(window_strides=[2, 1], lhs_dilation=[1, 2], rhs_dilation=[2, 1], batch_group_count=batches, feature_group_count=features)
    pads = [(1, 0), (2, 3)]
    want = cell_by_cell(x.astype(np.int32) - 7, w.astype(np.int32) - zeros.reshape(-1, 1, 1, 1), [2, 1], pads, [1, 2], [2, 1], batches, features)
    got = convolved(x, w, 7, zeros, padding="EXPLICIT", explicit_padding=[1, 0, 2, 3], rhs_quantization_axis=0 if per_channel else -1, **attrs)
    np.testing.assert_array_equal(got, want)
    last = convolved(
        x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), 7, zeros, padding="EXPLICIT", explicit_padding=[1, 0, 2, 3], dimension_numbers=CHANNELS_LAST,
        rhs_quantization_axis=3 if per_channel else -1, **attrs,
    )  # fmt: skip
    np.testing.assert_array_equal(last.transpose(0, 3, 1, 2), want)


def test_large_sums_wrap_around():
    x, w = np.full((1, 70000, 1), -128, np.int8), np.full((1, 70000, 1), -128, np.int8)
    got = convolved(x, w, 127, np.array(127, np.int32), padding="VALID")
    assert got.item() == (70000 * 255 * 255 + 2**31) % 2**32 - 2**31


def test_static_shapes():
    assert static_shape([2, 4, 6, 7], [6, 4, 3, 2]).as_list() == [2, 6, 4, 6]
    assert static_shape([2, 6, 7, 4], [3, 2, 4, 6], "SAME", dimension_numbers=CHANNELS_LAST, window_strides=[2, 3]).as_list() == [2, 3, 3, 6]
    assert static_shape([None, 4, 6, 7], [6, 4, 3, 2]).as_list() == [None] * 4
    assert static_shape([2, 4, 6, 7], None).as_list() == [None] * 4
    assert static_shape(None, None).rank is None
    assert static_shape([2, 4, 6, 7], [6, 4, 3, 2], shapes=dict(rhs=[None], output=None)).as_list() == [2, 6, 4, 6]


@pytest.mark.parametrize(
    "lhs, rhs, options, text",
    [
        ([2, 4, 6], [6, 4, 3, 2], {}, "lhs and rhs must have same rank."),
        ([2, 4], [6, 4], {}, "lhs and rhs shape dims must be at least 3. Given: 2"),
        ([2, 4, 6, 7], [6, 3, 3, 2], {}, "rhs input feature dimension must divide lhs feature dimension size, but 3 does not divide 4"),
        ([2, 0, 6, 7], [6, 0, 3, 2], {}, "but 0 does not divide 0"),
        ([2, 4, 6, 7], [6, 4, 3, 2], dict(shapes=dict(lhs=[1])), "Shape must be at most rank 0 but is rank 1"),
        ([2, 4, 6, 7], [6, 4, 3, 2], dict(shapes=dict(rhs=[1, 1])), "Shape must be at most rank 1 but is rank 2"),
        ([2, 4, 6, 7], [6, 4, 3, 2], dict(shapes=dict(rhs=[5])), "Dimensions must be equal, but are 5 and 6"),
        ([2, 4, 6, 7], [6, 4, 3, 2], dict(shapes=dict(output=[6])), "If rhs is per-tensor quantized, output must be also per-tensor quantized."),
        ([2, 4, 6, 7], [6, 4, 3, 2], dict(dimension_numbers=CHANNELS_LAST.replace(b"\x10\x03", b"\x10\x04")), "Given rank 4 and dimension number value 4"),
        ([2, 4, 6, 7], [6, 4, 3, 2], dict(dimension_numbers=CHANNELS_LAST.replace(b"\x10\x03", b"\x10\x01")), "must name every dimension once. Given 0, 1, 2, 1"),
    ],
)
def test_messages_while_building(lhs, rhs, options, text):
    with pytest.raises(ValueError, match=text.replace(".", r"\.")):
        static_shape(lhs, rhs, **options)


def test_what_is_no_whole_number_is_the_least_one():
    """As C++ converts it on x86: large numbers, infinities, NaN."""
    x = np.array([1e10, -1e10, np.inf, np.nan, 2.5, -0.5], np.float32)
    with tf.Session() as sess:
        y = tf.raw_ops.UniformQuantize(input=x, scales=1.0, zero_points=5, Tout=tf.qint8, quantization_min_val=-128, quantization_max_val=127)
        assert sess.run(tf.bitcast(y, tf.int8)).tolist() == [-128, -128, -128, -128, 8, 5]
