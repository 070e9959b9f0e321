"""tf.image against NumPy."""

import colorsys

import numpy as np
import pytest

import penstock as tf

R = np.random.RandomState(0)
X = R.rand(4, 5, 3).astype(np.float32)
BATCH = R.rand(2, 4, 5, 3).astype(np.float32)
BYTES = (X * 255).astype(np.uint8)
image = tf.image


def run(fetches, feed=None):
    with tf.Session() as s:
        return s.run(fetches, feed)


def unknown(value):
    """A placeholder without a shape, and the value to feed."""
    return tf.placeholder(tf.as_dtype(value.dtype)), value


@pytest.mark.parametrize("x", [X, BATCH], ids=["one", "batch"])
def test_flips_and_turns(x):
    h, w = x.ndim - 3, x.ndim - 2
    p, v = unknown(x)
    got = run([image.flip_left_right(p), image.flip_up_down(x), image.transpose(x), image.rot90(p), image.rot90(x, 2), image.rot90(x, 3), image.rot90(x, 4)], {p: v})
    expected = [np.flip(x, w), np.flip(x, h), np.swapaxes(x, h, w), np.rot90(x, 1, (h, w)), np.rot90(x, 2, (h, w)), np.rot90(x, 3, (h, w)), x]
    for a, b in zip(got, expected):
        np.testing.assert_array_equal(a, b)


def test_random_flips_do_both():
    flipped = image.random_flip_left_right(tf.constant(X), seed=1)
    seen = set()
    with tf.Session() as s:
        for _ in range(20):
            y = s.run(flipped)
            assert (y == X).all() or (y == X[:, ::-1]).all()
            seen.add(bool((y == X).all()))
    assert seen == {True, False} and flipped.shape.as_list() == [4, 5, 3]
    many = run(image.random_flip_up_down(np.repeat(X[None], 30, 0), seed=2))
    same = [(y == X).all() for y in many]
    assert all(s or (y == X[::-1]).all() for s, y in zip(same, many)) and 0 < sum(same) < 30


def test_crops_and_pads():
    p, v = unknown(BATCH)
    np.testing.assert_array_equal(run(image.crop_to_bounding_box(X, 1, 2, 2, 3)), X[1:3, 2:5])
    np.testing.assert_array_equal(run(image.crop_to_bounding_box(p, 1, 2, 2, tf.constant(3)), {p: v}), BATCH[:, 1:3, 2:5])
    padded = image.pad_to_bounding_box(X, 1, 2, 7, 8)
    np.testing.assert_array_equal(run(padded), np.pad(X, ((1, 2), (2, 1), (0, 0))))
    assert padded.shape.as_list() == [7, 8, 3]
    np.testing.assert_array_equal(run(image.resize_image_with_crop_or_pad(X, 2, 8)), np.pad(X[1:3], ((0, 0), (1, 2), (0, 0))))
    np.testing.assert_array_equal(run(image.central_crop(BATCH, 0.5)), BATCH[:, 1:3, 1:4])
    q = tf.placeholder(tf.float32, [None, None, 3])
    np.testing.assert_array_equal(run(image.central_crop(q, 0.5), {q: X}), X[1:3, 1:4])
    assert image.central_crop(q, 1.0) is q


@pytest.mark.parametrize("action, error, text", [
    (lambda: image.crop_to_bounding_box(X, -1, 0, 2, 2), ValueError, "offset_height must be >= 0"),
    (lambda: image.crop_to_bounding_box(X, 1, 0, 9, 2), ValueError, "height must be >= target"),
    (lambda: image.pad_to_bounding_box(X, 0, 0, 2, 2), ValueError, "width must be <= target - offset"),
    (lambda: image.central_crop(X, 1.5), ValueError, r"central_fraction must be within \(0, 1\]"),
    (lambda: image.flip_left_right(X[0]), ValueError, "must be at least three-dimensional"),
    (lambda: image.resize_images(X[0], [2, 2]), ValueError, "must have either 3 or 4 dimensions"),
    (lambda: image.resize_images(X, [2, 2, 2]), ValueError, "'size' must be a 1-D Tensor of 2 elements"),
    (lambda: image.resize_images(X, [2, 2], method=9), ValueError, "Resize method is not implemented"),
    (lambda: image.random_brightness(X, -1.0), ValueError, "max_delta must be non-negative"),
    (lambda: image.random_contrast(X, 2.0, 1.0), ValueError, "upper must be > lower"),
    (lambda: image.grayscale_to_rgb(X), ValueError, "should be size 1"),
    (lambda: image.total_variation(X[0]), ValueError, "must be either 3 or 4-dimensional"),
    (lambda: image.rgb_to_hsv(X[..., :2]), ValueError, "Dimension must be 3 but is 2"),
    (lambda: image.non_max_suppression_padded(BATCH, X, 1), ValueError, "must be True for batched input"),
    (lambda: image.non_max_suppression_padded(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), 1), ValueError, "at least one box"),
])
def test_errors(action, error, text):
    with pytest.raises(error, match=text):
        action()


def test_a_crop_that_is_too_large_is_found_at_run_time():
    p, v = unknown(BATCH)
    with pytest.raises(tf.errors.InvalidArgumentError, match="width must be >= target"):
        run(image.crop_to_bounding_box(p, 0, 0, 2, 9), {p: v})


def test_resizing():
    nearest = run(image.resize_images(BYTES, [8, 10], image.ResizeMethod.NEAREST_NEIGHBOR))
    np.testing.assert_array_equal(nearest, BYTES.repeat(2, 0).repeat(2, 1))
    area = run(image.resize_images(BATCH, [2, 5], image.ResizeMethod.AREA))
    np.testing.assert_allclose(area, BATCH.reshape(2, 2, 2, 5, 3).mean(2), rtol=1e-5)
    ramp = np.arange(4, dtype=np.float32).reshape(1, 4, 1)
    np.testing.assert_allclose(run(image.resize_images(ramp, [1, 7], align_corners=True))[0, :, 0], np.linspace(0, 3, 7), rtol=1e-5)
    assert image.resize_images(BYTES, [4, 5]).dtype == tf.uint8 and image.resize_images(BYTES, [4, 6]).dtype == tf.float32
    kept = image.resize_images(X, [8, 8], preserve_aspect_ratio=True)
    assert run(kept).shape == (6, 8, 3) and kept.shape.as_list() == [6, 8, 3]
    assert run(image.resize_image_with_pad(X, 4, 9)).shape == (4, 9, 3)


@pytest.mark.parametrize("have, want, saturate", [
    ("uint8", "float32", False), ("float32", "uint8", False), ("uint8", "uint16", False), ("uint16", "uint8", False), ("float64", "int16", True),
])
def test_types(have, want, saturate):
    top = {k: np.iinfo(k).max if "int" in k else 1.0 for k in (have, want)}
    values = (X * top[have]).astype(have)
    got = run(image.convert_image_dtype(values, getattr(tf, want), saturate=saturate))
    assert got.dtype == want
    np.testing.assert_allclose(got / top[want], values / top[have], atol=1.1 / min(top[have] if top[have] > 1 else np.inf, top[want] if top[want] > 1 else np.inf))


def test_brightness_contrast_gamma():
    got = run([image.adjust_brightness(X, 0.2), image.adjust_brightness(BYTES, 0.5), image.adjust_contrast(X, 2.0), image.adjust_gamma(X, 2.0, 3.0)])
    np.testing.assert_allclose(got[0], X + 0.2, rtol=1e-5)
    np.testing.assert_allclose(got[1].astype(int), np.minimum(BYTES + 127.5, 255), atol=1)
    mean = X.mean((0, 1))
    np.testing.assert_allclose(got[2], (X - mean) * 2 + mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[3], 3 * X**2, rtol=1e-5)


def test_colours():
    hsv, back, grey, rgb = run([image.rgb_to_hsv(X), image.hsv_to_rgb(image.rgb_to_hsv(X)), image.rgb_to_grayscale(X), image.grayscale_to_rgb(X[..., :1])])
    np.testing.assert_allclose(hsv, [[colorsys.rgb_to_hsv(*map(float, p)) for p in row] for row in X], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(back, X, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(grey[..., 0], X @ np.array([0.2989, 0.587, 0.114]), rtol=1e-5)
    np.testing.assert_array_equal(rgb, np.repeat(X[..., :1], 3, -1))
    turned, dull = run([image.adjust_hue(X, 1 / 3), image.adjust_saturation(X, 0.0)])
    np.testing.assert_allclose(turned, X[..., [2, 0, 1]], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dull, np.repeat(X.max(-1, keepdims=True), 3, -1), rtol=1e-5)
    for there, there_and_back in ((image.rgb_to_yiq, image.yiq_to_rgb), (image.rgb_to_yuv, image.yuv_to_rgb)):
        np.testing.assert_allclose(run(there_and_back(there(X))), X, atol=1e-4)


def test_standardization_and_measures():
    got = run(image.per_image_standardization(BYTES))
    x = BYTES.astype(np.float64)
    np.testing.assert_allclose(got, (x - x.mean()) / x.std(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(run(image.total_variation(BATCH)), [np.abs(np.diff(b, axis=0)).sum() + np.abs(np.diff(b, axis=1)).sum() for b in BATCH], rtol=1e-4)
    y = X * 0.9
    np.testing.assert_allclose(run(image.psnr(X, y, 1.0)), -10 * np.log10(((X - y) ** 2).mean()), rtol=1e-4)
    big = R.rand(1, 16, 16, 3).astype(np.float32)
    same, other = run([image.ssim(big, big, 1.0), image.ssim(big, 1 - big, 1.0)])
    assert same == pytest.approx(1.0, abs=1e-5) and other < 0.1
    dy, dx = run(image.image_gradients(tf.constant(BATCH)))
    np.testing.assert_allclose(dy[:, :-1], np.diff(BATCH, axis=1), rtol=1e-5, atol=1e-6)
    assert not dy[:, -1].any() and not dx[:, :, -1].any()
    edges = run(image.sobel_edges(np.tile(np.arange(5, dtype=np.float32)[None, None, :, None], (1, 4, 1, 1))))
    np.testing.assert_allclose(edges[0, :, 1:-1, 0], np.broadcast_to([0.0, 8.0], (4, 3, 2)), atol=1e-5)


THREE = [[0, 0, 1, 1], [2, 2, 3, 3], [5, 5, 6, 6]]


@pytest.mark.parametrize("boxes, threshold, given, expected", [
    ([[0, 0, 1, 2], [0, 0, 1, 1], [5, 5, 6, 6]], 0.5, {}, [0, 2]),  # as near as the threshold is too near
    ([[3, 3, 3, 4], [0, 0, 1, 1], [5, 5, 6, 6]], 0.5, {}, [0, 1, 2]),
    ([[0, 0, 1, 1], [1, 1, 0.05, 0.05], [5, 5, 6, 6]], 0.5, {}, [0, 1, 2]),  # the first box says which corner comes first
    ([[1, 1, 0, 0], [1, 1, 0.05, 0.05], [6, 6, 5, 5]], 0.5, {}, [0, 2]),
    (THREE, 0.0, {}, [0, 1, 2]),
    (THREE, 0.0, dict(tile_size=2), [0, 1]),  # all that comes in later tiles is as near to the others as 0
    ([[-2, -2, -1, -1], [2, 2, 3, 3], [5, 5, 6, 6]], 0.5, {}, [1, 2]),  # nothing above zero is no box
    (THREE, 0.5, dict(score_threshold=0.8), [0]),
    (THREE, 0.5, dict(sorted_input=True, canonicalized_coordinates=True, tile_size=1), [0, 1, 2]),
    ([[0, 0, np.inf, np.inf], [2, 2, 3, 3], [5, 5, 6, 6]], 0.5, {}, [1, 2, 2]),
])
def test_suppression_in_tiles(boxes, threshold, given, expected):
    """Results of TensorFlow."""
    b, s, t = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [])
    feed = {b: np.array(boxes, np.float32), s: np.array([0.9, 0.8, 0.7], np.float32), t: threshold}
    indices, count = run(image.non_max_suppression_padded(b, s, 4, t, **given), feed)
    assert indices.tolist() == expected and count == len(expected) and indices.dtype == count.dtype == np.int32
    padded, count = run(image.non_max_suppression_padded(b, s, 5, threshold, pad_to_max_output_size=True, **given), feed)
    assert padded.tolist() == expected + [0] * (5 - len(expected)) and count == len(expected)


def test_suppression_in_several_images():
    several = np.array([[THREE, [[0, 0, 1, 1], [0, 0, 1, 1.1], [0, 0, 1, 1.9]]]], np.float32)
    for boxes in (several, tf.constant(several)):
        indices, count = image.non_max_suppression_padded(boxes, tf.constant([[[0.1, 0.9, 0.5], [0.5, 0.5, 0.6]]]), 2, pad_to_max_output_size=True)
        assert indices.shape == [1, 2, 2]
        indices, count = run((indices, count))
        assert indices.tolist() == [[[1, 2], [2, 0]]] and count.tolist() == [[2, 1]]
    none = run(image.non_max_suppression_padded(several, np.ones((1, 2, 3), np.float32), 0, pad_to_max_output_size=True))
    assert none[0].shape == (1, 2, 0) and none[1].tolist() == [[0, 0]]
    b, s = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.float32, [None])
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(image.non_max_suppression_padded(b, s, 2), {b: np.zeros((0, 4)), s: np.zeros(0)})


def test_boxes():
    boxes = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [0, 10.1, 1, 11.1]], np.float32)
    scores = np.array([0.5, 0.9, 0.6, 0.7], np.float32)
    assert run(image.non_max_suppression(boxes, scores, 10)).tolist() == [1, 3]
    assert run(image.non_max_suppression(boxes, scores, 10, iou_threshold=0.95)).tolist() == [1, 3, 2, 0]
    assert run(image.non_max_suppression(boxes, scores, 1, score_threshold=0.95)).tolist() == []
    soft, kept = run(image.non_max_suppression_with_scores(boxes, scores, 4, iou_threshold=1.0, soft_nms_sigma=0.5))
    assert soft.tolist()[:2] == [1, 3] and kept[0] == np.float32(0.9) and (np.diff(kept) <= 0).all() and kept[-1] < 0.5
    crops = run(image.crop_and_resize(BATCH, [[0.0, 0.0, 1.0, 1.0]], [1], [4, 5]))
    np.testing.assert_allclose(crops[0], BATCH[1], rtol=1e-5)
    drawn = run(image.draw_bounding_boxes(np.zeros((1, 5, 5, 3), np.float32), [[[0.0, 0.0, 1.0, 1.0]]]))
    assert drawn[0, 0].tolist() == [[1, 1, 0]] * 5 and not drawn[0, 1:4, 1:4].any()
