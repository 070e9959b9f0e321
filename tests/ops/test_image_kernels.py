"""Crops, suppression, resizing, colours and dilation against plain loops, whatever parts they are computed in."""

import colorsys
import heapq

import numpy as np
import pytest

from penstock.ops.kernels import boxes, colors, crops, drawing, morphology, resize, threads

RNG = np.random.default_rng(0)


@pytest.fixture(params=["whole", "parts", "threads"])
def parts(request, monkeypatch):
    """Everything at once, in small parts, and in small parts that come in another order."""
    if request.param != "whole":
        monkeypatch.setattr(crops, "_BLOCK", 200)
        monkeypatch.setattr(boxes, "_BLOCK_OF_BOXES", 8)
        monkeypatch.setattr(resize, "_PART", 50)
    if request.param == "threads":
        monkeypatch.setattr(crops, "_THREADS_FROM", 0)
        monkeypatch.setattr(resize, "_THREADS_FROM", 0)
        monkeypatch.setattr(threads, "_parallel_for", lambda n, work: [work(i) for i in reversed(range(n))])


# -- suppression ------------------------------------------------------------------------------------------------------


def overlap(a, b):
    a, b = [(min(q[0], q[2]), min(q[1], q[3]), max(q[0], q[2]), max(q[1], q[3])) for q in (a, b)]
    areas = [(q[2] - q[0]) * (q[3] - q[1]) for q in (a, b)]
    if min(areas) <= 0:
        return np.float32(0)
    zero = np.float32(0)
    both = max(min(a[2], b[2]) - max(a[0], b[0]), zero) * max(min(a[3], b[3]) - max(a[1], b[1]), zero)
    return both / (areas[0] + areas[1] - both)


def plain(near, scores, limit, threshold, least):
    kept = []
    for i in sorted(np.flatnonzero(scores > least), key=lambda i: (-scores[i], i)):
        if len(kept) < limit and not any(near(i, k) > threshold for k in kept):
            kept.append(i)
    return kept


def plain_soft(near, scores, limit, least, sigma):
    heap = [(-float(s), i, 0) for i, s in enumerate(scores) if s > least]
    heapq.heapify(heap)
    kept, values = [], []
    while heap and len(kept) < limit:
        negative, i, begin = heapq.heappop(heap)
        score = -negative
        for k in reversed(kept[begin:]):
            close = float(near(i, k))
            score *= float(np.exp(-0.5 / sigma * close * close))
            if score <= least:
                break
        if score == -negative:
            kept.append(i)
            values.append(score)
        elif score > least:
            heapq.heappush(heap, (-score, i, len(kept)))
    return kept, values


def some_boxes(n):
    """Corners in any order, boxes that are equal, boxes without area; scores with ties."""
    found = np.round(RNG.standard_normal((n, 4)), 1).astype(np.float32)
    found[: n // 10] = found[n // 10 : n // 10 * 2]
    found[n // 2 : n // 2 + n // 8, 0] = found[n // 2 : n // 2 + n // 8, 2]
    return found, np.round(RNG.random(n), 2).astype(np.float32)


@pytest.mark.parametrize(("n", "limit", "threshold", "least"), [(0, 5, 0.5, 0), (60, 10, 0.5, 0.1), (60, 100, 0.0, 0.5), (60, 60, 1.0, -1), (60, 0, 0.5, 0), (90, 40, 0.1, 0)])
def test_suppression_is_greedy(n, limit, threshold, least, parts):
    where, scores = some_boxes(n)
    expected = plain(lambda i, k: overlap(where[i], where[k]), scores, limit, np.float32(threshold), np.float32(least))
    found = boxes.non_max_suppression_v3(where, scores, np.int32(limit), np.float32(threshold), np.float32(least))
    assert found.dtype == np.int32
    assert found.tolist() == expected
    padded, values, count = boxes.non_max_suppression_v5(
        where, scores, np.int32(limit), np.float32(threshold), np.float32(least), np.float32(0), pad_to_max_output_size=True
    )
    assert padded.tolist() == expected + [0] * (limit - len(expected))
    assert values[:count].tolist() == scores[expected].tolist()


def test_more_boxes_than_a_block():
    where, scores = some_boxes(700)
    where[:, 2:] = where[:, :2] + np.float32(0.3)
    expected = plain(lambda i, k: overlap(where[i], where[k]), scores, 400, np.float32(0.3), -np.inf)
    assert len(expected) > boxes._BLOCK_OF_BOXES
    assert boxes.non_max_suppression_v2(where, scores, np.int32(400), np.float32(0.3)).tolist() == expected


@pytest.mark.parametrize("threshold", [0.4, 1.0])
def test_soft_suppression(threshold):
    where, scores = some_boxes(80)
    expected, values = plain_soft(lambda i, k: overlap(where[i], where[k]), scores, 50, np.float32(0.1), 0.5)
    found, kept, count = boxes.non_max_suppression_v5(
        where, scores, np.int32(50), np.float32(threshold), np.float32(0.1), np.float32(0.5), pad_to_max_output_size=False
    )
    assert found.tolist() == expected
    assert count == len(expected)
    np.testing.assert_allclose(kept, values, rtol=1e-6)


def test_boxes_that_are_not_numbers_take_all_score_from_others():
    where = np.array([[0, 0, 1, 1], [np.nan, 0, 1, 1], [0, 0, 1, 1], [0, 0, np.inf, np.inf]], np.float32)
    scores = np.array([0.5, 0.9, 0.4, 0.8], np.float32)
    assert boxes.non_max_suppression_v2(where, scores, np.int32(9), np.float32(0.5)).tolist() == [1, 0, 3]
    assert boxes.non_max_suppression_v2(where[:1], np.array([np.nan], np.float32), np.int32(9), np.float32(0.5)).tolist() == []


_N, _I = np.nan, np.inf


@pytest.mark.parametrize("where, least, expected", [
    ([[_N] * 4, [0, 0, 1, 1], [2, 2, 3, 3]], 0.1, {0: 0.9}),
    ([[0, 0, 1, 1], [_N, 0, 1, 1], [2, 2, 3, 3]], 0.1, {0: 0.9, 2: 0.7}),
    ([[0, 0, 1, 1], [_N, 0, 1, 1], [2, 2, 3, 3]], -_I, {0: 0.9, 2: 0.7, 1: 0.0}),
    ([[0, 0, 1, 1], [0, 0, _N, 1], [0, 0, 1, 1]], 0.1, {0: 0.9, 1: 0.8}),  # NaN behind a number does not count: there is no area
    ([[0, 0, _I, _I], [0, 0, _I, _I], [-2, -2, -1, -1]], 0.1, {0: 0.9, 2: 0.7}),
    ([[0, 0, 1e30, 1e30], [0, 0, 1e30, 1e30], [-2, -2, -1, -1]], 0.1, {0: 0.9, 2: 0.7}),
])
@pytest.mark.parametrize("more", [0, 40])
def test_overlaps_that_are_no_numbers(where, least, expected, more):
    """Results of TensorFlow, also among so many boxes that loops in machine code might have them."""
    rest = np.arange(more, dtype=np.float32)[:, None] * 2 + np.array([10, 10, 11, 11], np.float32)
    arguments = np.concatenate([np.array(where, np.float32), rest]), np.r_[[0.9, 0.8, 0.7], np.full(more, -1)].astype(np.float32), np.int32(len(expected))
    thresholds = np.float32(0.5), np.float32(least)
    assert boxes.non_max_suppression_v3(*arguments, *thresholds).tolist() == list(expected)
    found, kept, _ = boxes.non_max_suppression_v5(*arguments, *thresholds, np.float32(0), pad_to_max_output_size=False)
    assert found.tolist() == list(expected) and kept.tolist() == [np.float32(v) for v in expected.values()]


def test_overlaps_need_not_be_symmetric(parts):
    near, scores = RNG.random((40, 40)).astype(np.float32), RNG.random(40).astype(np.float32)
    expected = plain(lambda i, k: near[i, k], scores, 30, np.float32(0.9), np.float32(0.2))
    assert boxes.non_max_suppression_with_overlaps(near, scores, np.int32(30), np.float32(0.9), np.float32(0.2)).tolist() == expected


# -- crops ------------------------------------------------------------------------------------------------------------


def plain_crop(image, box, height, width, outside, nearest):
    f = np.float32
    last = [f(n - 1) for n in image.shape[:2]]

    def at(k, count, axis):
        first, end = f(box[axis]), f(box[axis + 2])
        return first * last[axis] + f(k) * ((end - first) * last[axis] / f(count - 1)) if count > 1 else f(0.5) * (first + end) * last[axis]

    out = np.full((height, width, image.shape[2]), outside, f)
    for i in range(height):
        for j in range(width):
            y, x = at(i, height, 0), at(j, width, 1)
            if not (0 <= y <= last[0] and 0 <= x <= last[1]):
                continue
            if nearest:
                out[i, j] = image[int(np.floor(y + 0.5)), int(np.floor(x + 0.5))]
                continue
            top, left = int(np.floor(y)), int(np.floor(x))
            corners = [[image[r, c].astype(f) for c in (left, int(np.ceil(x)))] for r in (top, int(np.ceil(y)))]
            upper, lower = (a + (b - a) * f(x - left) for a, b in corners)
            out[i, j] = upper + (lower - upper) * f(y - top)
    return out


@pytest.mark.parametrize("method", [b"bilinear", b"nearest"])
@pytest.mark.parametrize(("size", "kind"), [((3, 4), np.float32), ((1, 1), np.float32), ((1, 5), np.uint8), ((6, 1), np.float16)])
def test_crops(size, kind, method, parts):
    images = (RNG.random((3, 6, 7, 4)) * 50).astype(kind)
    where = (RNG.random((9, 4)) * 1.4 - 0.2).astype(np.float32)
    where[0], where[1] = (0, 0, 1, 1), (0.9, 0.8, 0.1, 0.2)
    index = RNG.integers(0, 3, 9).astype(np.int32)
    found = crops.crop_and_resize(images, where, index, np.array(size, np.int32), method=method, extrapolation_value=1.5)
    expected = [plain_crop(images[k], box, *size, 1.5, method == b"nearest") for k, box in zip(index, where, strict=True)]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-5)


def test_no_boxes_no_crops():
    image, none = np.ones((1, 3, 3, 2), np.float32), np.zeros((0, 4), np.float32)
    found = crops.crop_and_resize(image, none, np.zeros(0, np.int32), np.array([2, 3]), method=b"bilinear", extrapolation_value=0.0)
    assert found.shape == (0, 2, 3, 2)


# -- resizing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [{}, {"align_corners": True}, {"half_pixel_centers": True}])
@pytest.mark.parametrize("size", [(12, 14), (3, 2), (2, 9), (6, 7), (1, 1)])
@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_bilinear_resizing_is_a_product_with_its_tables(size, mode, kind, parts):
    images = (RNG.random((2, 6, 7, 3)) * 50).astype(kind)
    rows, columns = resize.linear_taps(images, np.array(size), mode.get("align_corners", False), mode.get("half_pixel_centers", False))
    expected = np.einsum("nyxc,hy,wx->nhwc", images.astype(np.float64), rows.matrix, columns.matrix)
    found = resize.resize_bilinear(images, np.array(size), **mode)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_resizing_leaves_equal_pixels_as_they_are(parts):
    assert (resize.resize_bilinear(np.full((2, 5, 6, 3), 0.1, np.float32), np.array([13, 4])) == np.float32(0.1)).all()


# -- colours ----------------------------------------------------------------------------------------------------------

PIXELS = np.concatenate([RNG.random((50, 3)), [[0, 0, 0], [1, 1, 1], [0.3, 0.3, 0.3], [1, 0, 0], [0, 1, 1], [0.5, 0.5, 0.2], [0.5, 0.2, 0.5]]])


@pytest.mark.parametrize(("kind", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5), (np.float16, 2e-3)])
def test_hue_saturation_and_value(kind, tolerance):
    pixels = PIXELS.astype(kind).reshape(-1, 1, 3)
    with np.errstate(all="ignore"):
        hsv, rgb = colors.rgb_to_hsv(pixels), colors.hsv_to_rgb(pixels)
    assert hsv.dtype == rgb.dtype == kind
    np.testing.assert_allclose(hsv[:, 0], [colorsys.rgb_to_hsv(*map(float, p[0])) for p in pixels], atol=tolerance)
    np.testing.assert_allclose(rgb[:, 0], [colorsys.hsv_to_rgb(*map(float, p[0])) for p in pixels], atol=tolerance)


def test_one_pixel_and_none():
    assert colors.rgb_to_hsv(np.array([0.0, 0.5, 0.0], np.float32)).tolist() == pytest.approx([1 / 3, 1, 0.5])
    assert colors.rgb_to_hsv(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert colors.adjust_hue(np.zeros((2, 0, 4, 3), np.float32), np.float32(0.1)).shape == (2, 0, 4, 3)


def test_hue_and_saturation_are_turned():
    image = PIXELS[:50].astype(np.float32).reshape(5, 10, 3)
    hsv = np.array([colorsys.rgb_to_hsv(*map(float, p)) for p in PIXELS[:50]])
    turned = [colorsys.hsv_to_rgb((h + 0.3) % 1, s, v) for h, s, v in hsv]
    strong = [colorsys.hsv_to_rgb(h, min(1, s * 1.5), v) for h, s, v in hsv]
    np.testing.assert_allclose(colors.adjust_hue(image, np.float32(0.3)).reshape(-1, 3), turned, atol=1e-5)
    np.testing.assert_allclose(colors.adjust_saturation(image, np.float32(1.5)).reshape(-1, 3), strong, atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 6, 3), (2, 3, 5, 6, 1), (1, 1, 4)])
def test_contrast_is_about_the_mean_of_each_channel(shape):
    image = RNG.random(shape).astype(np.float32)
    mean = image.mean((-3, -2), keepdims=True, dtype=np.float64)
    np.testing.assert_allclose(colors.adjust_contrast(image, np.float32(1.5)), (image - mean) * 1.5 + mean, rtol=1e-5, atol=1e-6)


# -- dilation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", [b"SAME", b"VALID"])
@pytest.mark.parametrize(("strides", "rates"), [((1, 1), (1, 1)), ((1, 1), (2, 1)), ((2, 1), (1, 1))])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, np.int32])
def test_dilation_takes_the_largest_sum_inside(kind, strides, rates, padding):
    x, w = (RNG.standard_normal((2, 6, 7, 3)) * 9 - 40).astype(kind), (RNG.standard_normal((3, 2, 3)) * 9).astype(kind)
    if kind is np.float32:
        x[0, 0, 0, 0], x[1, 3, 3, 1] = np.nan, np.inf
    spans = [(n - 1) * r + 1 for n, r in zip(w.shape, rates, strict=False)]
    outs = [-(-n // s) if padding == b"SAME" else -(-(n - span + 1) // s) for n, s, span in zip((6, 7), strides, spans, strict=True)]
    before = [max(0, (o - 1) * s + span - n) // 2 if padding == b"SAME" else 0 for n, s, span, o in zip((6, 7), strides, spans, outs, strict=True)]
    expected = np.full((2, *outs, 3), np.finfo(kind).min if kind is not np.int32 else np.iinfo(kind).min, kind)
    for i, j, a, b in np.ndindex(*outs, *w.shape[:2]):
        y, z = i * strides[0] + a * rates[0] - before[0], j * strides[1] + b * rates[1] - before[1]
        if 0 <= y < 6 and 0 <= z < 7:
            value = x[:, y, z] + w[a, b]
            expected[:, i, j] = np.where(value > expected[:, i, j], value, expected[:, i, j])
    found = morphology.dilation2d(x, w, strides=[1, *strides, 1], rates=[1, *rates, 1], padding=padding)
    assert found.dtype == kind
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=2e-3 if kind is np.float16 else 1e-6)


@pytest.mark.parametrize("n", [16, 17, 300])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("sigma", [0.0, 0.1, 0.5])
def test_suppression_in_machine_code(n, threshold, sigma, monkeypatch):
    random = np.random.default_rng(n)
    corner = random.random((n, 2), np.float32)
    where = np.concatenate([corner, corner + random.random((n, 2), np.float32) * np.float32(0.3)], 1)
    where[::7, 2:] = where[::7, :2]  # without an area
    where[3::5] = where[3::5][:, [2, 3, 0, 1]]  # the other corners
    scores = np.round(random.random(n, np.float32) * 50) / np.float32(50)  # some are equal

    def results(least: float, limit: int):
        settings = np.int32(limit), np.float32(threshold), np.float32(least), np.float32(sigma)
        return boxes.non_max_suppression_v5(where, scores, *settings, pad_to_max_output_size=False)

    for least in (-np.inf, 0.4):
        for limit in (0, 1, 40):
            found = results(least, limit)
            with monkeypatch.context() as patch:
                patch.setattr(boxes, "_takes_loops", lambda _: False)
                expected = results(least, limit)
            np.testing.assert_array_equal(found[0], expected[0])
            np.testing.assert_allclose(found[1], expected[1], 1e-5, 1e-30)
            assert found[2] == expected[2]


@pytest.mark.parametrize("depth", [1, 3, 4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_outlines_in_machine_code(depth, dtype, monkeypatch):
    random = np.random.default_rng(depth)
    images = random.random((2, 11, 7, depth)).astype(dtype)
    where = (random.random((2, 30, 4)) * 1.6 - 0.3).astype(np.float32)
    where[0, 0, 0], where[0, 1], where[1, 2] = np.nan, [0.2, 0.2, 0.2, 0.8], [-3, -3, 3, 3]
    found = drawing.draw_bounding_boxes(images, where)
    monkeypatch.setattr(boxes.pixels, "available", lambda: False)
    np.testing.assert_array_equal(found, drawing.draw_bounding_boxes(images, where))
    assert (found != images).any()


@pytest.mark.parametrize("depth", [1, 3, 5, 4, 11])
def test_contrast_in_machine_code(depth, monkeypatch):
    x = np.random.default_rng(0).standard_normal((2, 9, 13, depth)).astype(np.float32)
    found = colors.adjust_contrast(x, np.float32(1.3))
    monkeypatch.setattr(colors.planes, "by_row", lambda *_: None)
    np.testing.assert_array_equal(found, colors.adjust_contrast(x, np.float32(1.3)))
    mean = x.astype(float).mean((1, 2), keepdims=True)
    np.testing.assert_allclose(found, (x - mean) * 1.3 + mean, 1e-5, 1e-5)


@pytest.mark.parametrize("shape", [(8, 9, 70, 3), (1, 300, 700, 2), (3, 520, 200, 8), (9, 3, 99, 9), (6, 5, 200, 1)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_means_of_channels_are_added_in_numpys_order(shape, dtype, monkeypatch):
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    found = colors.adjust_contrast(x, np.float32(1.3))
    monkeypatch.setattr(colors.folds, "can_fold", lambda *_: False)
    np.testing.assert_array_equal(found, colors.adjust_contrast(x, np.float32(1.3)))


def test_the_best_boxes_of_all_classes():
    where = np.array([[[[0, 0, 1, 1]], [[0, 0.1, 1, 1.1]], [[0, 2, 1, 3]]]], np.float32)
    scores = np.array([[[0.9, 0.1], [0.8, 0.7], [0.3, 0.6]]], np.float32)
    settings = np.int32(2), np.int32(4), np.float32(0.5), np.float32(0.2)
    kept, values, classes, valid = boxes.combined_non_max_suppression(where, scores, *settings, pad_per_class=False, clip_boxes=True)
    np.testing.assert_array_equal(values, np.array([[0.9, 0.7, 0.6, 0.3]], np.float32))
    assert classes.tolist() == [[0, 1, 1, 0]] and valid.tolist() == [4]
    np.testing.assert_array_equal(kept[0, 1], np.array([0, 0.1, 1, 1], np.float32))
    *_, valid = boxes.combined_non_max_suppression(where, scores, *settings[:3], np.float32(0.65), pad_per_class=True, clip_boxes=False)
    assert valid.tolist() == [2]


def test_equal_scores_come_as_from_tensorflow():
    """Its queue and its sort leave equal ones in an order of their own. Values are TensorFlow's."""
    at = np.arange(7.0)
    where = np.stack([at, 0 * at, at + 0.5, 0 * at + 1], 1)[None, :, None].astype(np.float32)
    scores = np.array([[[2, 1, 2], [1, 2, 2], [2, 2, 1], [2, 1, 1], [1, 2, 2], [2, 1, 1], [1, 1, 2]]], np.float32)
    settings = np.int32(7), np.int32(21), np.float32(0.5), np.float32(0.1)
    kept, _, classes, valid = boxes.combined_non_max_suppression(where, scores, *settings, pad_per_class=False, clip_boxes=False)
    assert kept[0, :, 0].tolist() == [2, 5, 3, 0, 1, 2, 4, 4, 1, 6, 0, 2, 3, 5, 3, 0, 6, 5, 4, 1, 6]
    assert classes[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0] and valid.tolist() == [21]


@pytest.mark.parametrize("kinds", [1, 9])
def test_the_best_boxes_of_many_classes_in_machine_code(kinds, monkeypatch):
    random = np.random.default_rng(kinds)
    where = random.random((3, 70, kinds, 4)).astype(np.float32)
    where[..., 2:] = where[..., :2] + where[..., 2:] * 0.4
    scores = (random.integers(-5, 20, (3, 70, 9)) / 20).astype(np.float32)  # many are equal
    scores[1, 4] = np.nan
    settings = np.int32(20), np.int32(100), np.float32(0.3), np.float32(0.05)
    found = boxes.combined_non_max_suppression(where, scores, *settings, pad_per_class=False, clip_boxes=False)
    monkeypatch.setattr(boxes.pixels, "available", lambda: False)
    for one, other in zip(found, boxes.combined_non_max_suppression(where, scores, *settings, pad_per_class=False, clip_boxes=False), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (found[3] > 30).all()


@pytest.mark.parametrize("shape", [(2, 11, 7, 3), (1, 1, 1, 4), (3, 2, 30, 1), (0, 4, 4, 3)])
@np.errstate(invalid="ignore")
def test_outlines_are_those_of_every_pixel(shape):
    n, height, width, _ = shape
    random = np.random.default_rng(n)
    images = np.asfortranarray(random.random(shape).astype(np.float32))
    where = (random.random((n, 25, 4)) * 2 - 0.5).astype(np.float32)
    where[:, ::2] = np.sort(where[:, ::2].reshape(n, 13, 2, 2), 2).reshape(n, 13, 4)
    where[:, 1:3, 2], where[:, 3, 1], where[:, 4, 3], where[:, 5] = np.inf, -np.inf, np.nan, [0, 0, 1, 1]
    where[:, 6] = [-1e30, 0.1, 1e30, 0.9]
    palette = random.random((7, shape[3])).astype(np.float32)
    expected = images.copy()
    for image, boxes_of_image in zip(expected, where, strict=True):
        for index, box in enumerate(boxes_of_image):
            scaled = [float(np.float32(v) * np.float32(size - 1)) for v, size in zip(box, (height, width, height, width), strict=True)]
            top, left, bottom, right = (int(v) if np.isfinite(v) else -1 for v in scaled)
            if top > bottom or left > right:
                continue
            for y in range(max(top, 0), min(bottom, height - 1) + 1):
                for x in range(max(left, 0), min(right, width - 1) + 1):
                    if y in (top, bottom) or x in (left, right):
                        image[y, x] = palette[index % 7]
    np.testing.assert_array_equal(drawing.draw_bounding_boxes_v2(images, where, palette), expected)


@pytest.mark.parametrize("seed", range(20))
def test_crops_of_nearest_pixels(seed):
    random = np.random.default_rng(seed)
    height, width, depth = random.integers(1, 9, 3)
    images = random.random((3, height, width, depth)).astype(np.float32)
    where, which, size = (random.random((9, 4)) * 1.5 - 0.25).astype(np.float32), random.integers(0, 3, 9).astype(np.int32), random.integers(1, 7, 2).astype(np.int32)
    where[:2] = [[0, 0, 1, 1], [1, 1, 0, 0]]
    part = slice(0, 1 if seed % 2 else 9)  # all inside, or not
    found = crops.crop_and_resize(images, where[part], which[part], size, method=b"nearest", extrapolation_value=-7.0)
    for crop, (top, left, bottom, right), image in zip(found, where[part], images[which[part]], strict=True):
        for y, z in np.ndindex(*size):
            at = [crops._positions(*ends, n, whole)[i] for *ends, i, n, whole in ((top, bottom, y, size[0], height), (left, right, z, size[1], width))]
            is_inside = 0 <= at[0] <= height - 1 and 0 <= at[1] <= width - 1
            np.testing.assert_array_equal(crop[y, z], image[tuple(int(np.floor(v + np.float32(0.5))) for v in at)] if is_inside else -7)
