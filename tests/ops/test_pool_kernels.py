"""Pooling kernels against plain loops, in both layouts, with TF's rules for ties, NaNs and padding."""

import ml_dtypes
import numpy as np
import pytest

from penstock import dtypes, errors
from penstock.ops.kernels import pool

from . import slow_windows as slow

RNG = np.random.default_rng(0)
NAN, INF = float("nan"), float("inf")

CASES = [
    ((5, 6), (2, 2), (2, 2), "VALID"),
    ((5, 6), (3, 3), (2, 2), "SAME"),
    ((4, 5), (2, 3), (1, 1), "SAME"),
    ((7, 7), (1, 2), (3, 3), "SAME"),
    ((4, 4), (6, 6), (1, 1), "SAME"),
]
CASES_3D = [((4, 5, 6), (2, 2, 2), (2, 2, 2), "VALID"), ((3, 4, 5), (2, 3, 3), (1, 2, 2), "SAME")]


def attributes(window, strides, padding, first=False):
    def spread(values):
        return [1, 1, *values] if first else [1, *values, 1]

    found = dict(ksize=spread(window), strides=spread(strides), padding=padding.encode())
    if first:
        found["data_format"] = b"NCHW" if len(window) == 2 else b"NCDHW"
    return found


def images(spatial, dtype=np.float32):
    # Few different values, so that ties are common.
    return RNG.integers(0, 6, (2, *spatial, 3)).astype(dtype)


def layouts(x):
    return [(False, x), (True, np.ascontiguousarray(np.moveaxis(x, -1, 1)))]


def last(y, first):
    return np.moveaxis(y, 1, -1) if first else y


@pytest.mark.parametrize("case", CASES + CASES_3D)
def test_forward(case):
    spatial, window, strides, padding = case
    x = images(spatial)
    top = slow.pool(x, window, strides, (padding,) * len(window), lambda v: v.max(0))
    mean = slow.pool(x, window, strides, (padding,) * len(window), lambda v: v.mean(0))
    max_pool, avg_pool = (pool.max_pool, pool.avg_pool) if len(window) == 2 else (pool.max_pool3d, pool.avg_pool3d)
    for first, value in layouts(x):
        attrs = attributes(window, strides, padding, first)
        np.testing.assert_array_equal(last(max_pool(value, **attrs), first), top)
        np.testing.assert_allclose(last(avg_pool(value, **attrs), first), mean, 1e-6, 1e-6)


@pytest.mark.parametrize("case", CASES)
def test_max_gradients(case):
    spatial, window, strides, padding = case
    x = images(spatial)
    for first, value in layouts(x):
        attrs = attributes(window, strides, padding, first)
        y = pool.max_pool(value, **attrs)
        dy = RNG.standard_normal(y.shape).astype(np.float32)
        expected = slow.pool_grad(x, last(dy, first), window, strides, (padding,) * 2, "max")
        dx = pool.max_pool_grad(value, y, dy, **attrs)
        np.testing.assert_allclose(last(dx, first), expected, 1e-5, 1e-5)
        # The second gradient picks what the first one spreads: they are adjoint.
        z = RNG.standard_normal(value.shape).astype(np.float32)
        picked = pool.max_pool_grad_grad(value, y, z, **attrs)
        np.testing.assert_allclose(np.sum(picked * dy), np.sum(dx * z), 1e-4, 1e-4)


@pytest.mark.parametrize("case", CASES + CASES_3D)
def test_avg_gradients(case):
    spatial, window, strides, padding = case
    x = images(spatial)
    grad = pool.avg_pool_grad if len(window) == 2 else pool.avg_pool3d_grad
    for first, value in layouts(x):
        attrs = attributes(window, strides, padding, first)
        sizes = slow.out_shape(spatial, window, strides, (1,) * len(window), (padding,) * len(window))
        dy = RNG.standard_normal((2, 3, *sizes) if first else (2, *sizes, 3)).astype(np.float32)
        expected = slow.pool_grad(x, last(dy, first), window, strides, (padding,) * len(window), "avg")
        np.testing.assert_allclose(last(grad(np.array(value.shape), dy, **attrs), first), expected, 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.int32, np.uint8, np.int8])
def test_max_types(dtype):
    x = images((5, 6), dtype)
    attrs = attributes((3, 3), (2, 2), "SAME")
    y = pool.max_pool(x, **attrs)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.astype(float), slow.pool(x, (3, 3), (2, 2), ("SAME",) * 2, lambda v: v.max(0)))
    dy = np.ones(y.shape, dtype)
    dx = pool.max_pool_grad(x, y, dy, **attrs)
    assert dx.dtype == dtype
    np.testing.assert_array_equal(dx.astype(float), slow.pool_grad(x, dy.astype(float), (3, 3), (2, 2), ("SAME",) * 2, "max"))


@pytest.mark.parametrize(
    ("row", "top", "gradient"),
    [
        ([1, 1], 1, [1, 0]),
        ([NAN, 1], 1, [1, 0]),  # a NaN loses the maximum, but keeps the gradient if it comes first
        ([1, NAN], 1, [1, 0]),
        ([1, NAN, 2], 2, [0, 0, 1]),
        ([-INF, -INF], np.finfo(np.float32).min, [1, 0]),  # TF starts from the lowest finite number
    ],
)
def test_special_values(row, top, gradient):
    x = np.array(row, np.float32).reshape(1, 1, -1, 1)
    attrs = dict(ksize=[1, 1, len(row), 1], strides=[1, 1, 1, 1], padding=b"VALID")
    y = pool.max_pool(x, **attrs)
    assert y.ravel() == np.float32(top)
    np.testing.assert_array_equal(pool.max_pool_grad(x, y, np.ones_like(y), **attrs).ravel(), gradient)


def test_explicit_padding():
    x = -np.arange(1.0, 10.0, dtype=np.float32).reshape(1, 3, 3, 1)
    y = pool.max_pool(x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding=b"EXPLICIT", explicit_paddings=[0, 0, 1, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(y[0, :, :, 0], [[-1, -3], [-4, -6]])
    with pytest.raises(errors.InvalidArgumentError, match="Top padding 2 needs to be smaller than the window size 2"):
        pool.max_pool(x, ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding=b"EXPLICIT", explicit_paddings=[0, 0, 2, 0, 0, 0, 0, 0])


def test_depth_window():
    x = np.arange(12.0, dtype=np.float32).reshape(1, 1, 2, 6)
    y = pool.max_pool(x, ksize=[1, 1, 1, 3], strides=[1, 1, 1, 3], padding=b"VALID")
    np.testing.assert_array_equal(y.ravel(), [2, 5, 8, 11])
    with pytest.raises(errors.UnimplementedError, match="depth window to equal the depth stride"):
        pool.max_pool(x, ksize=[1, 1, 1, 3], strides=[1, 1, 1, 1], padding=b"VALID")


@pytest.mark.parametrize(("with_batch", "start"), [(False, 0), (True, 8)])
def test_argmax(with_batch, start):
    x = np.array([[[1, 9], [4, 2]], [[3, 3], [5, 5]]], np.float32).reshape(2, 2, 2, 1)
    x = np.concatenate([x, -x], -1)
    attrs = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding=b"VALID", include_batch_in_index=with_batch)
    y, index = pool.max_pool_with_argmax(x, Targmax=dtypes.int64, **attrs)
    np.testing.assert_array_equal(y.ravel(), [9, -1, 5, -3])
    np.testing.assert_array_equal(index.ravel(), [2, 1, start + 4, start + 1])
    dx = pool.max_pool_grad_with_argmax(x, y, index, **attrs)
    np.testing.assert_array_equal(np.flatnonzero(dx), [1, 2, 9, 12])
    np.testing.assert_array_equal(pool.max_pool_grad_grad_with_argmax(x, x, index, **attrs), y)
    with pytest.raises(errors.InvalidArgumentError, match="Invalid output gradient index: 99, 0, 8"):
        pool.max_pool_grad_with_argmax(x, y, np.full_like(index, 99), **attrs)


def test_ties_in_three_dimensions_share_the_gradient():
    x = np.array([1, 1 - 1e-6, 1 - 1e-4, 0], np.float32).reshape(1, 1, 1, 4, 1)
    attrs = dict(ksize=[1, 1, 1, 4, 1], strides=[1, 1, 1, 1, 1], padding=b"VALID")
    y = pool.max_pool3d(x, **attrs)
    np.testing.assert_array_equal(pool.max_pool3d_grad(x, y, np.ones_like(y), **attrs).ravel(), [1, 1, 0, 0])
    np.testing.assert_array_equal(pool.max_pool3d_grad_grad(x, y, x + 5, **attrs).ravel(), [6])


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (dict(ksize=[2, 2, 2, 1]), errors.UnimplementedError, "not yet supported on the batch dimension"),
        (dict(ksize=[1, 0, 2, 1]), errors.InvalidArgumentError, "ksize must be positive. The specified or inferred ksize is: 1,0,2,1"),
        (dict(ksize=[1, 2, 2]), errors.InvalidArgumentError, "ksize field must specify 4 dimensions"),
        (dict(strides=[1, 2, 2]), errors.InvalidArgumentError, "stride field must specify 4 dimensions"),
        (dict(ksize=[1, 2, 1, 2], strides=[1, 2, 1, 2]), errors.UnimplementedError, "exactly one of pooling across depth"),
        (dict(ksize=[1, 6, 6, 1], strides=[1, 1, 1, 1]), errors.InvalidArgumentError, "Computed output size would be negative: -1"),
        (dict(data_format=b"NCHW_VECT_C"), errors.UnimplementedError, "NCHW_VECT_C"),
    ],
)
def test_errors(change, error, text):
    attrs = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding=b"VALID")
    with pytest.raises(error, match=text):
        pool.max_pool(np.ones((1, 4, 4, 2), np.float32), **{**attrs, **change})


def test_gradient_shapes_are_checked():
    x, y = np.ones((1, 4, 4, 2), np.float32), np.ones((1, 2, 2, 2), np.float32)
    attrs = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding=b"VALID")
    with pytest.raises(errors.InvalidArgumentError, match=r"Expected orig_output shape to be \[1,2,2,2\], but got \[1,1,2,2\]"):
        pool.max_pool_grad(x, y[:, :1], y, **attrs)
    with pytest.raises(errors.InvalidArgumentError, match=r"Expected grad shape to be \[1,2,2,2\], but got \[1,1,2,2\]"):
        pool.max_pool_grad(x, y, y[:, :1], **attrs)
    with pytest.raises(errors.InvalidArgumentError, match="out_backprop must be 4-dimensional"):
        pool.avg_pool_grad(np.array([1, 4, 4, 2]), y[0], **attrs)
