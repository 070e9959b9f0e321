"""Boxes of images: crops, non-maximum suppression, drawing. A box is (y1, x1, y2, x2), in images relative to height - 1 and width - 1."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError, OutOfRangeError

# -- crops ------------------------------------------------------------------------------------------------------------


def _positions(first: float, last: float, count: int, size: int) -> np.ndarray:
    """Where the samples of one side of a crop lie, in pixels."""
    f = np.float32
    if count > 1:
        step = (f(last) - f(first)) * f(size - 1) / f(count - 1)
        return f(first) * f(size - 1) + np.arange(count, dtype=f) * step
    return np.array([f(0.5) * (f(first) + f(last)) * f(size - 1)], f)


def _check_boxes(boxes: Any, box_ind: Any, batch: int) -> None:
    if boxes.ndim != 2:
        raise InvalidArgumentError("boxes must be 2-D")
    if boxes.shape[1] != 4:
        raise InvalidArgumentError("boxes must have 4 columns")
    if box_ind.ndim != 1:
        raise InvalidArgumentError("box_index must be 1-D")
    if len(box_ind) != len(boxes):
        raise InvalidArgumentError("box_index has incompatible shape")
    if len(box_ind) and (box_ind.min() < 0 or box_ind.max() >= batch):
        raise OutOfRangeError("box_index has values outside [0, batch_size)")


def _neighbours(at: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(inside, pixel before, pixel after, share of the one after)."""
    inside = (at >= 0) & (at <= size - 1)
    safe = np.where(inside, at, 0)
    low = np.floor(safe).astype(np.int64)
    high = np.ceil(safe).astype(np.int64)
    return inside, low, high, (safe - low).astype(np.float32)


def crop_and_resize(image: Any, boxes: Any, box_ind: Any, crop_size: Any, *, method: bytes, extrapolation_value: float) -> np.ndarray:
    if image.ndim != 4:
        raise InvalidArgumentError(f"input image must be 4-D[{','.join(map(str, image.shape))}]")
    if crop_size.shape != (2,):
        raise InvalidArgumentError("crop_size must be 1-D with two elements" if crop_size.ndim == 1 else "crop_size must be 1-D")
    height, width = int(crop_size[0]), int(crop_size[1])
    if height <= 0 or width <= 0:
        raise InvalidArgumentError("crop dimensions must be positive")
    batch, image_height, image_width, depth = image.shape
    if image_height <= 0 or image_width <= 0:
        raise InvalidArgumentError("image dimensions must be positive")
    _check_boxes(boxes, box_ind, batch)
    crops = np.full((len(boxes), height, width, depth), extrapolation_value, np.float32)
    for i, (y1, x1, y2, x2) in enumerate(boxes):
        source = image[box_ind[i]]
        ys, xs = _positions(y1, y2, height, image_height), _positions(x1, x2, width, image_width)
        in_y, top, bottom, share_y = _neighbours(ys, image_height)
        in_x, left, right, share_x = _neighbours(xs, image_width)
        if method == b"nearest":
            near_y, near_x = np.floor(np.where(in_y, ys, 0) + 0.5).astype(np.int64), np.floor(np.where(in_x, xs, 0) + 0.5).astype(np.int64)
            value = source[near_y[:, None], near_x[None, :]].astype(np.float32)
        else:
            share_x = share_x[None, :, None]
            upper = source[top[:, None], left].astype(np.float32)
            upper = upper + (source[top[:, None], right].astype(np.float32) - upper) * share_x
            lower = source[bottom[:, None], left].astype(np.float32)
            lower = lower + (source[bottom[:, None], right].astype(np.float32) - lower) * share_x
            value = upper + (lower - upper) * share_y[:, None, None]
        crops[i] = np.where((in_y[:, None] & in_x[None, :])[..., None], value, np.float32(extrapolation_value))
    return crops


def crop_and_resize_grad_image(grads: Any, boxes: Any, box_ind: Any, image_size: Any, *, T: Any, method: bytes) -> np.ndarray:
    batch, image_height, image_width, depth = (int(d) for d in image_size)
    if grads.shape[-1] != depth:
        raise InvalidArgumentError("image_size and grads are incompatible")
    _check_boxes(boxes, box_ind, batch)
    _, height, width, _ = grads.shape
    result = np.zeros((batch, image_height, image_width, depth), np.float32 if T.np not in (np.float64,) else np.float64)
    for i, (y1, x1, y2, x2) in enumerate(boxes):
        ys, xs = _positions(y1, y2, height, image_height), _positions(x1, x2, width, image_width)
        in_y, top, bottom, share_y = _neighbours(ys, image_height)
        in_x, left, right, share_x = _neighbours(xs, image_width)
        grad = grads[i] * (in_y[:, None] & in_x[None, :])[..., None]
        target = result[box_ind[i]]
        if method == b"nearest":
            near_y, near_x = np.floor(np.where(in_y, ys, 0) + 0.5).astype(np.int64), np.floor(np.where(in_x, xs, 0) + 0.5).astype(np.int64)
            np.add.at(target, (near_y[:, None], near_x[None, :]), grad)
            continue
        wy, wx = share_y[:, None, None], share_x[None, :, None]
        for rows, weight_y in ((top, 1 - wy), (bottom, wy)):
            for columns, weight_x in ((left, 1 - wx), (right, wx)):
                np.add.at(target, (rows[:, None], columns[None, :]), grad * weight_y * weight_x)
    return result.astype(T.np)


def crop_and_resize_grad_boxes(grads: Any, image: Any, boxes: Any, box_ind: Any) -> np.ndarray:
    batch, image_height, image_width, _ = image.shape
    _check_boxes(boxes, box_ind, batch)
    _, height, width, _ = grads.shape
    result = np.zeros((len(boxes), 4), np.float32)
    for i, (y1, x1, y2, x2) in enumerate(boxes):
        source = image[box_ind[i]].astype(np.float32)
        ys, xs = _positions(y1, y2, height, image_height), _positions(x1, x2, width, image_width)
        in_y, top, bottom, share_y = _neighbours(ys, image_height)
        in_x, left, right, share_x = _neighbours(xs, image_width)
        grad = grads[i] * (in_y[:, None] & in_x[None, :])[..., None]
        wy, wx = share_y[:, None, None], share_x[None, :, None]
        a, b = source[top[:, None], left], source[top[:, None], right]
        c, d = source[bottom[:, None], left], source[bottom[:, None], right]
        along_y = (grad * ((1 - wx) * (c - a) + wx * (d - b))).sum(axis=(1, 2))
        along_x = (grad * ((1 - wy) * (b - a) + wy * (d - c))).sum(axis=(0, 2))
        result[i, 0], result[i, 2] = _ends(along_y, height, image_height)
        result[i, 1], result[i, 3] = _ends(along_x, width, image_width)
    return result


def _ends(along: np.ndarray, count: int, size: int) -> tuple[float, float]:
    """The gradients of a box's two ends from those of the samples between them."""
    if count > 1:
        towards_last = np.arange(count) * ((size - 1) / (count - 1))
        return float((along * (size - 1 - towards_last)).sum()), float((along * towards_last).sum())
    half = float(along.sum() * 0.5 * (size - 1))
    return half, half


# -- non-maximum suppression ------------------------------------------------------------------------------------------


def _overlap(boxes: np.ndarray) -> Callable[[int, int], float]:
    """Intersection over union of two boxes, whichever corners they are given by."""
    y1, y2 = np.minimum(boxes[:, 0], boxes[:, 2]), np.maximum(boxes[:, 0], boxes[:, 2])
    x1, x2 = np.minimum(boxes[:, 1], boxes[:, 3]), np.maximum(boxes[:, 1], boxes[:, 3])
    area = (y2 - y1) * (x2 - x1)

    def iou(i: int, j: int) -> float:
        if area[i] <= 0 or area[j] <= 0:
            return 0.0
        height = max(min(y2[i], y2[j]) - max(y1[i], y1[j]), 0.0)
        width = max(min(x2[i], x2[j]) - max(x1[i], x1[j]), 0.0)
        both = height * width
        return float(both / (area[i] + area[j] - both))

    return iou


def suppress(
    scores: np.ndarray, similarity: Callable[[int, int], float], limit: int, threshold: float, score_threshold: float, sigma: float = 0.0
) -> tuple[list[int], list[float]]:
    """The indices of boxes to keep, best first, and their scores (which soft suppression lowers)."""
    scale = -0.5 / sigma if sigma > 0 else 0.0
    heap = [(-float(s), i, 0) for i, s in enumerate(scores) if s > score_threshold]
    heapq.heapify(heap)
    chosen: list[int] = []
    kept: list[float] = []
    while heap and len(chosen) < limit:
        negative, index, begin = heapq.heappop(heap)
        score = original = -negative
        suppressed = False
        for other in reversed(range(begin, len(chosen))):
            near = similarity(index, chosen[other])
            if sigma <= 0 and near > threshold:
                suppressed = True
                break
            if sigma > 0:
                score *= float(np.exp(scale * near * near)) if near <= threshold else 0.0
                if score <= score_threshold:
                    break
        if suppressed:
            continue
        if score == original:
            chosen.append(index)
            kept.append(score)
        elif score > score_threshold:
            heapq.heappush(heap, (-score, index, len(chosen)))
    return chosen, kept


def _checked(boxes: Any, scores: Any, limit: Any, iou_threshold: Any) -> None:
    if not 0 <= float(iou_threshold) <= 1:
        raise InvalidArgumentError("iou_threshold must be in [0, 1]")
    if boxes.ndim != 2:
        raise InvalidArgumentError(f"boxes must be 2-D[{','.join(map(str, boxes.shape))}]")
    if boxes.shape[1] != 4:
        raise InvalidArgumentError("boxes must have 4 columns")
    if scores.ndim != 1 or len(scores) != len(boxes):
        raise InvalidArgumentError("scores has incompatible shape")
    if np.ndim(limit) != 0:
        raise InvalidArgumentError(f"max_output_size must be 0-D, got shape [{','.join(map(str, np.shape(limit)))}]")


def non_max_suppression(boxes: Any, scores: Any, max_output_size: Any, *, iou_threshold: float) -> np.ndarray:
    return non_max_suppression_v3(boxes, scores, max_output_size, iou_threshold, -np.inf)


def non_max_suppression_v2(boxes: Any, scores: Any, max_output_size: Any, iou_threshold: Any) -> np.ndarray:
    return non_max_suppression_v3(boxes, scores, max_output_size, iou_threshold, -np.inf)


def non_max_suppression_v3(boxes: Any, scores: Any, max_output_size: Any, iou_threshold: Any, score_threshold: Any) -> np.ndarray:
    _checked(boxes, scores, max_output_size, iou_threshold)
    found, _ = suppress(scores, _overlap(boxes), min(int(max_output_size), len(boxes)), float(iou_threshold), float(score_threshold))
    return np.array(found, np.int32)


def _padded(values: list[Any], kind: Any, length: int) -> np.ndarray:
    result = np.zeros(max(length, len(values)), kind)
    result[: len(values)] = values
    return result


def non_max_suppression_v4(
    boxes: Any, scores: Any, max_output_size: Any, iou_threshold: Any, score_threshold: Any, *, pad_to_max_output_size: bool
) -> list[Any]:
    found = non_max_suppression_v3(boxes, scores, max_output_size, iou_threshold, score_threshold)
    count = np.int32(len(found))
    return [_padded(list(found), np.int32, int(max_output_size) if pad_to_max_output_size else 0), count]


def non_max_suppression_v5(
    boxes: Any, scores: Any, max_output_size: Any, iou_threshold: Any, score_threshold: Any, soft_nms_sigma: Any, *, pad_to_max_output_size: bool
) -> list[Any]:
    _checked(boxes, scores, max_output_size, iou_threshold)
    if float(soft_nms_sigma) < 0:
        raise InvalidArgumentError("soft_nms_sigma_val must be >= 0")
    limit = min(int(max_output_size), len(boxes))
    found, kept = suppress(scores, _overlap(boxes), limit, float(iou_threshold), float(score_threshold), float(soft_nms_sigma))
    length = int(max_output_size) if pad_to_max_output_size else 0
    return [_padded(found, np.int32, length), _padded(kept, scores.dtype, length), np.int32(len(found))]


def non_max_suppression_with_overlaps(overlaps: Any, scores: Any, max_output_size: Any, overlap_threshold: Any, score_threshold: Any) -> np.ndarray:
    if overlaps.ndim != 2:
        raise InvalidArgumentError("overlaps must be 2-D")
    if overlaps.shape[0] != overlaps.shape[1]:
        raise InvalidArgumentError("overlaps must be square")
    if scores.shape != (len(overlaps),):
        raise InvalidArgumentError("scores has incompatible shape")
    limit = min(int(max_output_size), len(overlaps))
    found, _ = suppress(scores, lambda i, j: float(overlaps[i, j]), limit, float(overlap_threshold), float(score_threshold))
    return np.array(found, np.int32)


# -- drawing ----------------------------------------------------------------------------------------------------------

_COLOURS = np.array(
    [
        (1, 1, 0, 1), (0, 0, 1, 1), (1, 0, 0, 1), (0, 1, 0, 1), (0.5, 0, 0.5, 1), (0.5, 0.5, 0, 1), (0.5, 0, 0, 1), (0, 0, 0.5, 1), (0, 1, 1, 1),
        (1, 0, 1, 1),
    ],
    np.float32,
)  # fmt: skip


def draw_bounding_boxes_v2(images: Any, boxes: Any, colors: Any) -> np.ndarray:
    """The images with the outlines of boxes, one pixel wide, in turn in each of the colours."""
    if images.ndim != 4:
        raise InvalidArgumentError("The rank of the images should be 4")
    if boxes.ndim != 3:
        raise InvalidArgumentError("The rank of the boxes tensor should be 3")
    if images.shape[0] != boxes.shape[0]:
        raise InvalidArgumentError("The batch sizes should be the same")
    depth = images.shape[3]
    if depth not in (1, 3, 4):
        raise InvalidArgumentError("Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA)")
    palette = np.asarray(colors, np.float32) if colors is not None and colors.size else _COLOURS.copy()
    if depth == 1:
        palette = palette.copy()
        palette[:, 0] = 1.0
    result = images.copy()
    height, width = images.shape[1:3]
    for image, image_boxes in zip(result, boxes, strict=True):
        for index, box in enumerate(image_boxes):
            colour = palette[index % len(palette), :depth].astype(images.dtype)
            rows = [int(np.float32(v) * np.float32(height - 1)) for v in (box[0], box[2])]
            columns = [int(np.float32(v) * np.float32(width - 1)) for v in (box[1], box[3])]
            (top, bottom), (left, right) = rows, columns
            if top > bottom or left > right:
                continue
            if top >= height or bottom < 0 or left >= width or right < 0:
                continue
            y0, y1 = max(top, 0), min(bottom, height - 1)
            x0, x1 = max(left, 0), min(right, width - 1)
            if top >= 0:
                image[top, x0 : x1 + 1] = colour
            if bottom < height:
                image[bottom, x0 : x1 + 1] = colour
            if left >= 0:
                image[y0 : y1 + 1, left] = colour
            if right < width:
                image[y0 : y1 + 1, right] = colour
    return result


def draw_bounding_boxes(images: Any, boxes: Any) -> np.ndarray:
    return draw_bounding_boxes_v2(images, boxes, None)
