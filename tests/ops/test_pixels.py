"""Pixels mixed, summed and copied by loops in machine code: the same as NumPy's forms of the kernels, and as plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from penstock import dtypes, errors
from penstock.ops import arrange, native
from penstock.ops.kernels import colors, crops, drawing, morphology, pool, resize
from penstock.ops.native import pixels, planes

needs_loops = pytest.mark.skipif(not pixels.available(), reason="no loops in machine code here")
DEPTHS = (1, 3, 4, 16, 21)


@pytest.fixture
def numpy_only(monkeypatch):
    """Calls a function without loops in machine code."""

    def call(function, *args, **keywords):
        with monkeypatch.context() as patch:
            patch.setattr(pixels, "available", lambda: False)
            patch.setattr(native, "available", lambda: False)
            patch.setattr(planes, "by_pixel", lambda *_: None)
            return function(*args, **keywords)

    return call


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    for module in (resize, crops):
        monkeypatch.setattr(module, "_NATIVE_FROM", 1)
    with np.errstate(all="ignore"):  # as the executor has it
        yield


def images(*shape: int, dtype: str = "float32") -> np.ndarray:
    random = np.random.default_rng(sum(shape))
    return random.integers(0, 256, shape).astype(dtype) if dtype == "uint8" else random.normal(size=shape).astype(dtype)


SETTINGS = [dict(align_corners=a, half_pixel_centers=h) for a, h in ((False, False), (True, False), (False, True))]
SIZES = [((7, 9), (12, 5)), ((7, 9), (3, 20)), ((1, 4), (5, 1)), ((6, 6), (12, 12))]


@needs_loops
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(("size", "out"), SIZES)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_bilinear_mixes_are_numpys_bit_for_bit(numpy_only, settings, size, out, dtype):
    for depth in DEPTHS:
        x = images(2, *size, depth, dtype=dtype)
        np.testing.assert_array_equal(resize.resize_bilinear(x, np.array(out), **settings), numpy_only(resize.resize_bilinear, x, np.array(out), **settings))


@needs_loops
def test_bilinear_mixes_of_what_is_not_a_number(numpy_only):
    x = images(1, 5, 6, 3)
    x[0, 2, 3], x[0, 4, 0, 1], x[0, 0, 0, 2] = np.nan, np.inf, -np.inf
    for out in ((10, 12), (3, 4)):
        np.testing.assert_array_equal(resize.resize_bilinear(x, np.array(out)), numpy_only(resize.resize_bilinear, x, np.array(out)))


@needs_loops
@pytest.mark.parametrize(("size", "out"), SIZES)
def test_weighted_sums_agree_with_numpy(numpy_only, size, out):
    for depth in DEPTHS:
        x, dy = images(2, *size, depth), images(2, *out, depth)
        calls = [(resize.resize_area, (x, np.array(out)), dict(align_corners=a)) for a in (False, True)]
        for settings in SETTINGS:
            calls += [(resize.resize_bicubic, (x, np.array(out)), settings)]
            calls += [(f, (dy, x), settings) for f in (resize.resize_bilinear_grad, resize.resize_bicubic_grad)]
            calls += [(resize.resize_nearest_neighbor_grad, (dy, np.array(size)), settings)]
        for function, args, settings in calls:
            np.testing.assert_allclose(function(*args, **settings), numpy_only(function, *args, **settings), rtol=1e-5, atol=1e-5)


@needs_loops
def test_a_gradient_that_is_not_a_number_stays_with_its_pixels():
    dy = np.ones((1, 8, 8, 1), np.float32)
    dy[0, 0, 0] = np.nan
    found = resize.resize_bilinear_grad(dy, np.zeros((1, 4, 4, 1), np.float32))
    assert np.isnan(found[0, 0, 0, 0]) and np.isfinite(found[0, 2:, 2:]).all()


@needs_loops
@pytest.mark.parametrize("method", [b"bilinear", b"nearest"])
@pytest.mark.parametrize("crop", [(1, 1), (4, 3), (1, 6)])
def test_crops_and_their_gradients_agree_with_numpy(numpy_only, method, crop):
    random = np.random.default_rng(3)
    where, of = random.uniform(-0.3, 1.3, (5, 4)).astype(np.float32), np.array([0, 1, 1, 0, 1], np.int32)
    for depth in DEPTHS:
        x, dy = images(2, 6, 7, depth), images(5, *crop, depth)
        args = (x, where, of, np.array(crop))
        made = crops.crop_and_resize(*args, method=method, extrapolation_value=0.5)
        np.testing.assert_array_equal(made, numpy_only(crops.crop_and_resize, *args, method=method, extrapolation_value=0.5))
        args = (dy, where, of, np.array(x.shape))
        back = crops.crop_and_resize_grad_image(*args, T=dtypes.float32, method=method)
        np.testing.assert_allclose(back, numpy_only(crops.crop_and_resize_grad_image, *args, T=dtypes.float32, method=method), rtol=1e-5, atol=1e-5)
        # The gradient is the transpose of the crop, which is linear in the image.
        made = crops.crop_and_resize(x, where, of, np.array(crop), method=method, extrapolation_value=0.0)
        np.testing.assert_allclose((made * dy).sum(), (back * x).sum(), rtol=1e-3, atol=1e-3)


def test_crops_gradients_must_be_as_many_as_boxes():
    where, of = np.zeros((3, 4), np.float32), np.zeros(3, np.int32)
    with pytest.raises(errors.InvalidArgumentError, match="boxes and grads have incompatible shape"):
        crops.crop_and_resize_grad_image(images(2, 4, 4, 1), where, of, np.array([1, 5, 5, 1]), T=dtypes.float32, method=b"bilinear")
    with pytest.raises(errors.InvalidArgumentError, match="boxes and grads have incompatible shape"):
        crops.crop_and_resize_grad_boxes(images(2, 4, 4, 1), images(1, 5, 5, 1), where, of)


def test_gradients_of_boxes_are_slopes():
    image, dy = images(1, 9, 8, 3), images(2, 4, 5, 3)
    where, of = np.array([[0.13, 0.22, 0.81, 0.93], [0.3, 0.1, 0.55, 0.6]], np.float32), np.zeros(2, np.int32)
    found = crops.crop_and_resize_grad_boxes(dy, image, where, of)
    step = np.float32(1e-3)

    def value(at: np.ndarray) -> np.ndarray:
        made = crops.crop_and_resize(image, at, of, np.array([4, 5]), method=b"bilinear", extrapolation_value=0.0)
        return (made.astype(np.float64) * dy).sum((1, 2, 3))

    for side in range(4):
        move = np.zeros_like(where)
        move[:, side] = step
        np.testing.assert_allclose(found[:, side], (value(where + move) - value(where - move)) / (2 * step), rtol=0.05, atol=0.2)


@needs_loops
@pytest.mark.parametrize("name", ["rgb_to_hsv", "hsv_to_rgb", "adjust_hue", "adjust_saturation"])
def test_colours_are_numpys_bit_for_bit(numpy_only, name):
    random = np.random.default_rng(0)
    x = random.uniform(0, 1, (150, 120, 3)).astype(np.float32)  # more than one part
    x[0, :6] = [(0, 0, 0), (0.5, 0.5, 0.5), (1, 0, 0), (np.nan, 1, 0), (np.inf, 1, 0), (-1, -2, -3)]
    amount = [np.float32(0.7)] if name.startswith("adjust") else []
    function = getattr(colors, name)
    np.testing.assert_array_equal(function(x, *amount), numpy_only(function, x, *amount))


def test_contrast_moves_channels_away_from_their_means():
    x = images(3, 70, 11, 3)
    mean = x.mean((1, 2), keepdims=True, dtype=np.float64)
    np.testing.assert_allclose(colors.adjust_contrast(x, np.float32(1.7)), (x - mean) * 1.7 + mean, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("mode", "name"), [(b"REFLECT", "reflect"), (b"SYMMETRIC", "symmetric")])
def test_mirrored_paddings(mode, name):
    x = images(3, 4, 5)
    for paddings in ([[0, 0], [1, 2], [3, 0]], [[2, 2], [3, 3], [4, 4]], [[0, 0], [0, 0], [0, 1]]):
        np.testing.assert_array_equal(arrange.mirror_pad_kernel(x, np.array(paddings), mode=mode), np.pad(x, paddings, name))


@pytest.mark.parametrize("is_special", [False, True])
def test_places_of_maxima_are_the_first(is_special):
    x = np.random.default_rng(1).integers(-2, 3, (2, 7, 6, 3)).astype(np.float32)
    if is_special:
        x[0, 1, 1], x[1] = np.nan, -np.inf
    best, where = pool.max_pool_with_argmax(x, ksize=[1, 3, 2, 1], strides=[1, 2, 2, 1], padding=b"SAME", Targmax=dtypes.int64)
    for b, i, j, c in np.ndindex(best.shape):
        cells = [(y, z) for y in range(2 * i - 1, 2 * i + 2) for z in range(2 * j, 2 * j + 2) if 0 <= y < 7 and z < 6]
        y, z = cells[0]
        for cell in cells[1:]:
            if x[b, cell[0], cell[1], c] > x[b, y, z, c]:
                y, z = cell
        assert where[b, i, j, c] == (y * 6 + z) * 3 + c
        np.testing.assert_equal(best[b, i, j, c], x[b, y, z, c])


def test_boxes_beyond_the_image_are_drawn_as_far_as_they_are_inside():
    x = np.zeros((1, 6, 8, 3), np.float32)
    drawn = drawing.draw_bounding_boxes(x, np.array([[[-0.5, 0.2, 0.5, 2.0], [0.9, 0.9, 0.1, 0.1]]], np.float32))
    expected = np.zeros((6, 8), bool)
    expected[2, 1:], expected[:3, 1] = True, True
    np.testing.assert_array_equal(drawn[0].any(-1), expected)


@needs_loops
@pytest.mark.parametrize(("shape", "window", "stride", "padding"), [
    ((2, 4, 5, 6, 3), 2, 2, b"SAME"), ((2, 7, 5, 6, 16), 3, 2, b"SAME"), ((1, 7, 8, 9, 21), 3, 1, b"VALID"), ((2, 6, 6, 6, 40), 2, 3, b"VALID"),
    ((0, 4, 4, 4, 2), 2, 2, b"SAME"), ((3, 16, 16, 16, 1), 2, 2, b"SAME"),
])  # fmt: skip
def test_gradients_of_three_dimensional_maxima_go_to_all_that_are_near(numpy_only, shape, window, stride, padding):
    random = np.random.default_rng(0)
    x = (random.integers(0, 5, shape) + random.integers(0, 4, shape) * 4e-6).astype(np.float32)
    if x.size:
        x.flat[7], x.flat[20] = np.nan, np.inf
    attrs = dict(ksize=[1, window, window, window, 1], strides=[1, stride, stride, stride, 1], padding=padding)
    y = pool.max_pool3d(x, **attrs)
    dy = random.standard_normal(y.shape).astype(np.float32)
    expected = numpy_only(pool.max_pool3d_grad, x, y, dy, **attrs)
    np.testing.assert_allclose(pool.max_pool3d_grad(x, y, dy, **attrs), expected, 1e-5, 1e-5)


@needs_loops
@pytest.mark.parametrize(("shape", "window", "stride", "padding"), [
    ((2, 5, 6, 3), 2, 2, b"SAME"), ((2, 7, 6, 16), 3, 2, b"SAME"), ((1, 8, 9, 21), 3, 1, b"VALID"), ((2, 6, 6, 40), 2, 3, b"VALID"), ((3, 60, 50, 1), 3, 2, b"SAME"),
])  # fmt: skip
@pytest.mark.parametrize("batch", [False, True])
def test_places_of_maxima(numpy_only, shape, window, stride, padding, batch):
    random = np.random.default_rng(0)
    x = random.integers(0, 4, shape).astype(np.float32)
    x.flat[::11], x.flat[1::17], x.flat[2::13] = np.nan, -np.inf, np.inf
    attrs = dict(ksize=[1, window, window, 1], strides=[1, stride, stride, 1], padding=padding, include_batch_in_index=batch)
    for target in (dtypes.int64, dtypes.int32):
        for found, expected in zip(pool.max_pool_with_argmax(x, **attrs, Targmax=target), numpy_only(pool.max_pool_with_argmax, x, **attrs, Targmax=target), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
    y, at = pool.max_pool_with_argmax(x, **attrs, Targmax=dtypes.int64)
    dy = random.standard_normal(y.shape).astype(np.float32)
    expected = numpy_only(pool.max_pool_grad_with_argmax, x, dy, at, **attrs)
    np.testing.assert_allclose(pool.max_pool_grad_with_argmax(x, dy, at, **attrs), expected, 1e-5, 1e-6)


@needs_loops
@pytest.mark.parametrize(("size", "window", "stride", "rate"), [((7, 9), (3, 3), 1, 1), ((8, 5), (2, 3), 2, 1), ((9, 9), (3, 2), 1, 2), ((2, 2), (2, 2), 1, 3)])
@pytest.mark.parametrize("special", [0.0, np.nan, -np.inf])
def test_gradients_of_dilations(numpy_only, size, window, stride, rate, special):
    random = np.random.default_rng(0)
    for depth in DEPTHS:
        x, w = random.integers(0, 4, (2, *size, depth)).astype(np.float32), random.integers(0, 3, (*window, depth)).astype(np.float32)
        x[0, 0, 0] = special
        attrs = dict(strides=[1, stride, stride, 1], rates=[1, rate, rate, 1], padding=b"SAME")
        y = morphology.dilation2d(x, w, **attrs)
        dy = random.standard_normal(y.shape).astype(np.float32)
        for function in (morphology.dilation2d_backprop_input, morphology.dilation2d_backprop_filter):
            np.testing.assert_array_equal(function(x, w, dy, **attrs), numpy_only(function, x, w, dy, **attrs))
        np.testing.assert_array_equal(y, numpy_only(morphology.dilation2d, x, w, **attrs))


@needs_loops
def test_loops_of_pixels_come_and_go_with_the_setting(monkeypatch):
    def turned(r, g, b):
        return g, b, r

    def sum_of(x, y):
        return x + y

    for _ in range(2):
        monkeypatch.setenv("PENSTOCK_ENGINES", "numpy")
        assert planes.by_pixel(turned, 0) is None and planes.by_row(sum_of, 1, 0) is None
        monkeypatch.delenv("PENSTOCK_ENGINES")
        assert planes.by_pixel(turned, 0) is not None and planes.by_row(sum_of, 1, 0) is not None
