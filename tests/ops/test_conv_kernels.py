"""Convolution kernels against plain loops, in both layouts; gradients against the adjoint; errors in TF's words."""

import ml_dtypes
import numpy as np
import pytest

from penstock import errors
from penstock.ops.kernels import conv, depthwise, morphology

from . import slow_windows as slow

RNG = np.random.default_rng(0)

CASES = [
    # spatial, window, strides, dilations, padding
    ((5, 6), (3, 3), (1, 1), (1, 1), "SAME"),
    ((5, 6), (3, 2), (2, 2), (1, 1), "VALID"),
    ((7, 5), (2, 4), (1, 3), (1, 1), "SAME"),
    ((7, 7), (3, 2), (1, 1), (2, 3), "SAME"),
    ((7, 7), (3, 2), (2, 1), (2, 1), "VALID"),
    ((6, 6), (1, 1), (2, 2), (1, 1), "SAME"),
    ((6, 6), (2, 2), (4, 3), (1, 1), "SAME"),
    ((4, 5), (2, 3), (1, 1), (1, 1), ((1, 2), (0, 3))),
    ((4, 5), (2, 3), (2, 1), (1, 1), ((3, 0), (4, 4))),
    ((3, 4), (3, 4), (1, 1), (1, 1), "VALID"),
    ((2, 2), (5, 5), (1, 1), (1, 1), "SAME"),
]


def random(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def attributes(strides, dilations, padding, first=False, rank=4):
    """Attributes as an op hands them over."""

    def spread(values):
        return [1, 1, *values] if first else [1, *values, 1]

    found = dict(strides=spread(strides), dilations=spread(dilations))
    if isinstance(padding, str):
        found["padding"] = padding.encode()
    else:
        flat = [p for pair in padding for p in pair]
        found["padding"] = b"EXPLICIT"
        found["explicit_paddings"] = [0, 0, 0, 0, *flat] if first else [0, 0, *flat, 0, 0]
    if first:
        found["data_format"] = b"NCHW" if rank == 4 else b"NCDHW"
    return found


def per_axis(padding, count):
    return (padding,) * count if isinstance(padding, str) else padding


def to_first(x):
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def check(result, expected, tolerance=1e-5):
    assert result.flags.c_contiguous
    np.testing.assert_allclose(result.astype(float), expected, tolerance, tolerance * max(1, np.abs(expected).max()))


def check_adjoint(forward, x, w, dx_of, dw_of):
    """<dy, A x> must be <A' dy, x> for both arguments: the gradients are transposes of the forward product."""
    y = forward(x, w)
    dy = RNG.standard_normal(y.shape)
    inner = float(np.sum(dy * y))
    dx, dw = dx_of(dy), dw_of(dy)
    assert dx.shape == x.shape and dw.shape == w.shape
    np.testing.assert_allclose(float(np.sum(dx * x)), inner, 1e-9, 1e-9)
    np.testing.assert_allclose(float(np.sum(dw * w)), inner, 1e-9, 1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("depths", [(3, 3, 4), (4, 2, 6)])  # channels, filter's channels, outputs
def test_conv2d(case, depths):
    spatial, window, strides, dilations, padding = case
    x, w = random(2, *spatial, depths[0]), random(*window, *depths[1:])
    expected = slow.convolve(x, w, strides, dilations, per_axis(padding, 2))
    check(conv.conv2d(x, w, **attributes(strides, dilations, padding)), expected)
    check(conv.conv2d(to_first(x), w, **attributes(strides, dilations, padding, True)), to_first(expected))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("depths", [(3, 3, 4), (4, 2, 6)])
@pytest.mark.parametrize("first", [False, True])
def test_conv2d_gradients(case, depths, first):
    spatial, window, strides, dilations, padding = case
    attrs = attributes(strides, dilations, padding, first)
    x, w = random(2, *spatial, depths[0], dtype=float), random(*window, *depths[1:], dtype=float)
    x = to_first(x) if first else x
    check_adjoint(
        lambda x, w: conv.conv2d(x, w, **attrs), x, w,
        lambda dy: conv.conv2d_backprop_input(np.array(x.shape), w, dy, **attrs),
        lambda dy: conv.conv2d_backprop_filter(x, np.array(w.shape), dy, **attrs),
    )  # fmt: skip


def test_patches_are_gathered_in_blocks(monkeypatch):
    x, w = random(3, 9, 8, 4), random(3, 3, 4, 5)
    attrs = attributes((2, 1), (1, 1), "SAME")
    whole = conv.conv2d(x, w, **attrs)
    dy = random(*whole.shape)
    dx, dw = conv.conv2d_backprop_input(np.array(x.shape), w, dy, **attrs), conv.conv2d_backprop_filter(x, np.array(w.shape), dy, **attrs)
    for size in (1, 2000, 5000, 20000):  # less than a row, rows, an image, two images
        monkeypatch.setattr(conv, "_BLOCK_BYTES", size)
        np.testing.assert_allclose(conv.conv2d(x, w, **attrs), whole, 1e-5, 1e-5)
        np.testing.assert_allclose(conv.conv2d_backprop_input(np.array(x.shape), w, dy, **attrs), dx, 1e-5, 1e-5)
        np.testing.assert_allclose(conv.conv2d_backprop_filter(x, np.array(w.shape), dy, **attrs), dw, 1e-4, 1e-4)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.int32])
def test_conv2d_types(dtype):
    x, w = RNG.integers(-2, 3, (1, 4, 5, 3)).astype(dtype), RNG.integers(-2, 3, (2, 2, 3, 4)).astype(dtype)
    y = conv.conv2d(x, w, **attributes((1, 1), (1, 1), "SAME"))
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.astype(float), slow.convolve(x, w, (1, 1), (1, 1), ("SAME",) * 2))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("case", [((3, 4, 5), (2, 3, 2), (1, 1, 1), "SAME"), ((4, 5, 6), (2, 2, 3), (2, 2, 1), "VALID"), ((2, 3, 3), (1, 1, 1), (1, 2, 1), "SAME")])
def test_conv3d(case, first):
    spatial, window, strides, padding = case
    x, w = random(2, *spatial, 3, dtype=float), random(*window, 3, 2, dtype=float)
    expected = slow.convolve(x, w, strides, (1, 1, 1), (padding,) * 3)
    attrs = attributes(strides, (1, 1, 1), padding, first, 5)
    x = to_first(x) if first else x
    check(conv.conv3d(x, w, **attrs), to_first(expected) if first else expected)
    check_adjoint(
        lambda x, w: conv.conv3d(x, w, **attrs), x, w,
        lambda dy: conv.conv3d_backprop_input(np.array(x.shape), w, dy, **attrs),
        lambda dy: conv.conv3d_backprop_filter(x, np.array(w.shape), dy, **attrs),
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("multiplier", [1, 3])
@pytest.mark.parametrize("first", [False, True])
def test_depthwise(case, multiplier, first):
    spatial, window, strides, dilations, padding = case
    x, w = random(2, *spatial, 3, dtype=float), random(*window, 3, multiplier, dtype=float)
    expected = slow.depthwise(x, w, strides, dilations, per_axis(padding, 2))
    attrs = attributes(strides, dilations, padding, first)
    x = to_first(x) if first else x
    check(depthwise.depthwise_conv2d(x, w, **attrs), to_first(expected) if first else expected)
    check_adjoint(
        lambda x, w: depthwise.depthwise_conv2d(x, w, **attrs), x, w,
        lambda dy: depthwise.depthwise_conv2d_backprop_input(np.array(x.shape), w, dy, **attrs),
        lambda dy: depthwise.depthwise_conv2d_backprop_filter(x, np.array(w.shape), dy, **attrs),
    )  # fmt: skip


def test_no_images():
    x, w, dy = np.zeros((0, 4, 4, 2), np.float32), random(3, 3, 2, 5), np.zeros((0, 4, 4, 5), np.float32)
    attrs = attributes((1, 1), (1, 1), "SAME")
    assert conv.conv2d(x, w, **attrs).shape == (0, 4, 4, 5)
    assert conv.conv2d_backprop_input(np.array(x.shape), w, dy, **attrs).shape == x.shape
    np.testing.assert_array_equal(conv.conv2d_backprop_filter(x, np.array(w.shape), dy, **attrs), np.zeros(w.shape))


def test_input_sizes_may_be_rows_and_columns():
    w, dy = random(3, 3, 2, 5), random(1, 4, 4, 5)
    attrs = attributes((1, 1), (1, 1), "SAME")
    full = conv.conv2d_backprop_input(np.array([1, 4, 4, 2]), w, dy, **attrs)
    np.testing.assert_array_equal(conv.conv2d_backprop_input(np.array([4, 4]), w, dy, **attrs), full)


SAME = attributes((1, 1), (1, 1), "SAME")
VALID = attributes((1, 1), (1, 1), "VALID")


@pytest.mark.parametrize(
    ("x", "w", "attrs", "error", "text"),
    [
        ((4, 4, 2), (3, 3, 2, 3), SAME, errors.InvalidArgumentError, r"convolution input must be 4-dimensional: \[4,4,2\]"),
        ((1, 4, 4, 2), (3, 2, 3), SAME, errors.InvalidArgumentError, "convolution filter must be 4-dimensional"),
        ((1, 4, 4, 2), (3, 3, 5, 3), SAME, errors.InvalidArgumentError, "evenly divisible by filter depth: 2 vs 5"),
        ((1, 4, 4, 4), (3, 3, 2, 3), SAME, errors.InvalidArgumentError, "number of groups: 3 vs 2"),
        ((1, 4, 4, 4), (3, 3, 0, 3), SAME, errors.InvalidArgumentError, "filter depth must be stricly positive, got 0"),
        ((1, 4, 4, 2), (0, 3, 2, 3), VALID, errors.InvalidArgumentError, "filter must not have zero elements"),
        ((1, 4, 4, 2), (6, 6, 2, 3), VALID, errors.InvalidArgumentError, r"negative: -1 \[input_size: 4, effective_filter_size: 6, stride: 1\]"),
        ((1, 4, 4, 2), (3, 3, 2, 3), {**SAME, "strides": [2, 1, 1, 1]}, errors.UnimplementedError, "strides in the batch and depth dimensions"),
        ((1, 4, 4, 2), (3, 3, 2, 3), {**SAME, "dilations": [1, 1, 1, 2]}, errors.UnimplementedError, "dilations in the batch and depth dimensions"),
    ],
)  # fmt: skip
def test_conv2d_errors(x, w, attrs, error, text):
    with pytest.raises(error, match=text):
        conv.conv2d(np.ones(x, np.float32), np.ones(w, np.float32), **attrs)


@pytest.mark.parametrize(
    ("sizes", "dy", "text"),
    [
        ([1, 4, 4], (1, 2, 2, 3), "requires input_sizes to contain 4 values or 2 values, but got: 3"),
        ([2, 4, 4, 2], (1, 2, 2, 3), "Input batch: 2, outbackprop batch: 1, batch_dim: 0"),
        ([1, 5, 4, 2], (1, 2, 2, 3), "actual = 2, computed = 3 spatial_dim: 1 input: 5 filter: 3 output: 2 stride: 1 dilation: 1"),
        ([1, 4, 4, 3], (1, 2, 2, 3), "input depth must be evenly divisible by filter depth"),
        ([1, 4, 4, 2], (1, 2, 2, 4), "filter and out_backprop must have the same out_depth"),
        ([1, -4, 4, 2], (1, 2, 2, 3), "Dimension -4 must be >= 0"),
    ],
)
def test_conv2d_backprop_input_errors(sizes, dy, text):
    with pytest.raises(errors.InvalidArgumentError, match=text):
        conv.conv2d_backprop_input(np.array(sizes), np.ones((3, 3, 2, 3), np.float32), np.ones(dy, np.float32), **VALID)


def test_dilation2d():
    x = np.array([[1.0, 5.0, 2.0], [4.0, 3.0, 0.0]], np.float32).reshape(1, 2, 3, 1)
    w = np.array([[0.0, 1.0], [2.0, -1.0]], np.float32).reshape(2, 2, 1)
    attrs = dict(strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding=b"SAME")
    y = morphology.dilation2d(x, w, **attrs)
    # max(x00 + 0, x01 + 1, x10 + 2, x11 - 1) and so on; outside the image nothing counts.
    np.testing.assert_array_equal(y[0, :, :, 0], [[6, 5, 2], [4, 3, 0]])
    dy = np.arange(1.0, 7.0, dtype=np.float32).reshape(y.shape)
    np.testing.assert_array_equal(morphology.dilation2d_backprop_input(x, w, dy, **attrs)[0, :, :, 0], [[0, 3, 3], [4, 5, 6]])
    np.testing.assert_array_equal(morphology.dilation2d_backprop_filter(x, w, dy, **attrs)[:, :, 0], [[20, 1], [0, 0]])
