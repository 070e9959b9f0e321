"""Non-maximum suppression: the best boxes (y1, x1, y2, x2) that do not overlap better ones too much."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.kernels import ties
from penstock.ops.kernels.window import show
from penstock.ops.native import pixels, suppression

Near = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""near(some, others): a table of how near each of the boxes `some` is to each of `others`."""

_BLOCK_OF_BOXES = 256
_BOXES_FROM = 16  # fewer boxes are not worth a loop in machine code
_LARGEST_SQUARE = 1e37  # the squares of sides of boxes, and with them areas, are not much larger than the sum of the squares of all coordinates
_LEAST_SIGMA = 1e-20  # whose reciprocal is a number in single precision


def _ends_of_sides(boxes: np.ndarray) -> Any:
    """((lower y, higher y), (lower x, higher x)); of a NaN and a number it is the first that counts, as in C++."""
    if _are_small(boxes):
        return [(np.minimum(a, b), np.maximum(a, b)) for a, b in ((boxes[:, 0], boxes[:, 2]), (boxes[:, 1], boxes[:, 3]))]
    for_both = []
    for first, last in ((boxes[:, 0], boxes[:, 2]), (boxes[:, 1], boxes[:, 3])):
        for_both.append((np.where(last < first, last, first), np.where(first < last, last, first)))
    return for_both


def _areas(boxes: np.ndarray) -> np.ndarray:
    (y1, y2), (x1, x2) = _ends_of_sides(boxes)
    with np.errstate(over="ignore", invalid="ignore"):
        return (y2 - y1) * (x2 - x1)


def _overlap(boxes: np.ndarray) -> Near:
    """Intersection over union of boxes, whichever corners they are given by; 0 for those without area."""
    (y1, y2), (x1, x2) = _ends_of_sides(boxes)
    with np.errstate(over="ignore", invalid="ignore"):
        area = (y2 - y1) * (x2 - x1)
    flat = area <= 0
    any_flat = flat.any()

    def iou(some: np.ndarray, others: np.ndarray) -> np.ndarray:
        def side(low: np.ndarray, high: np.ndarray) -> np.ndarray:
            length = np.minimum(high[some, None], high[others])
            length -= np.maximum(low[some, None], low[others])
            return np.maximum(length, 0, out=length)

        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            both = side(y1, y2)
            both *= side(x1, x2)
            either = area[some, None] + area[others]
            either -= both
            both /= either
        if any_flat:
            both[flat[some]] = 0
            both[:, flat[others]] = 0
        return both

    return iou


def _candidates(scores: np.ndarray, score_threshold: float) -> np.ndarray:
    """The boxes above the threshold, best first, of equal ones the first."""
    (above,) = (scores > score_threshold).nonzero()
    if scores.dtype == np.float32:
        keys = _falling(scores[above]) | above
        keys.sort()
        keys &= 0xFFFFFFFF
        return keys
    return above[np.argsort(-scores[above], kind="stable")]


def _falling(scores: np.ndarray) -> np.ndarray:
    """Numbers in the opposite order of these singles, with an empty lower half."""
    bits = (scores + np.float32(0)).view(np.int32)  # no -0, which is equal to 0
    return (~(bits ^ (bits >> 31 & 0x7FFFFFFF))).astype(np.int64) << 32


def _ranked(scores: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, Any]:
    """Of each row of singles the places of those that count, the largest first, of equal ones the first, and how many they are.

    Numbers that have a place in their lower half are sorted in a fraction of the time that places take.
    """
    keys = _falling(scores) | np.arange(scores.shape[-1])
    keys[~counts] = np.iinfo(np.int64).max
    keys.sort(axis=-1)
    keys &= 0xFFFFFFFF
    return keys, np.count_nonzero(counts, axis=-1)


def suppress(scores: np.ndarray, near: Near, limit: int, threshold: float, score_threshold: float) -> np.ndarray:
    """The indices of the boxes to keep, best first."""
    return _suppress_in_order(_candidates(scores, score_threshold), near, limit, threshold)


def _suppress_in_order(order: np.ndarray, near: Near, limit: int, threshold: float) -> np.ndarray:
    """Candidates are taken a block at a time: one table says which of the boxes kept before come too near to them, another
    one which of them suppress each other, a row being the bits of one number.
    """
    chosen = np.empty(max(limit, 0), np.int32)
    count = start = 0
    block = min(max(64, 2 * limit), _BLOCK_OF_BOXES)
    while start < len(order) and count < limit:
        part = order[start : start + block]
        start += block
        if count:
            part = part[~(near(part, chosen[:count]) > threshold).any(1)]
        size = len(part)
        if not size:
            continue
        table = np.packbits((near(part, part) > threshold).T, axis=1, bitorder="little")
        data, width = table.tobytes(), table.shape[1]
        dead = 0
        for i in range(size):
            if not dead >> i & 1:
                chosen[count] = part[i]
                count += 1
                if count == limit:
                    break
                dead |= int.from_bytes(data[i * width : (i + 1) * width], "little")
    return chosen[:count]


_GONE = -1.0


def suppress_softly(
    scores: np.ndarray, near: Near, limit: int, threshold: float, score_threshold: float, sigma: float
) -> tuple[list[int], list[float]]:
    """The indices of boxes to keep, best first, and their scores, which the boxes near them lower: with a sigma of 0, what is nearer than the threshold
    goes, and a nearness that is no number lowers scores to 0. With other sigmas, that takes boxes away."""
    scale = -0.5 / sigma if sigma else 0.0
    everyone = np.arange(len(scores))
    heap = [(-score, i, 0) for i, score in enumerate(scores.tolist()) if score > score_threshold]
    heapq.heapify(heap)
    chosen: list[int] = []
    kept: list[float] = []
    factors: list[list[float]] = []  # of each box chosen, what it leaves of the others' scores
    while heap and len(chosen) < limit:
        negative, index, begin = heapq.heappop(heap)
        score = original = -negative
        is_gone = False
        for other in reversed(range(begin, len(chosen))):
            factor = factors[other][index]
            is_gone = factor == _GONE
            score *= factor
            if is_gone or score <= score_threshold:
                break
        if is_gone:
            continue
        if score == original:
            chosen.append(index)
            kept.append(score)
            row = near(everyone, everyone[index : index + 1])[:, 0].astype(np.float64)
            left, nothing = (np.exp(scale * row * row), 0.0) if sigma else (row == row, _GONE)
            factors.append(np.where(row > threshold, nothing, left).tolist())
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
    return _suppress_all(boxes, scores, min(int(max_output_size), len(boxes)), float(iou_threshold), float(score_threshold))[0]


def _suppress_all(boxes: np.ndarray, scores: np.ndarray, limit: int, threshold: float, score_threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the boxes to keep, best first, and their scores."""
    if _takes_loops(boxes):
        found = _suppress(boxes, scores, limit, threshold, score_threshold)
    elif _are_small(boxes) or np.isfinite(_areas(boxes)).all():
        found = suppress(scores, _overlap(boxes), limit, threshold, score_threshold)
    else:
        numbers, kept = suppress_softly(scores, _overlap(boxes), limit, threshold, score_threshold, 0)
        return np.array(numbers, np.int32), np.array(kept, scores.dtype)
    return found, scores[found]


def _suppress(boxes: np.ndarray, scores: np.ndarray, limit: int, threshold: float, score_threshold: float) -> np.ndarray:
    """`suppress` by a loop in machine code."""
    order = _candidates(scores, score_threshold)
    found, counts = suppression.suppress(np.ascontiguousarray(boxes)[None], order[None], [order.size], limit, threshold)
    return found[0, : counts.item()].astype(np.int32)


def _takes_loops(boxes: np.ndarray) -> bool:
    return boxes.dtype == np.float32 and len(boxes) >= _BOXES_FROM and pixels.available() and _are_small(boxes)


def _are_small(boxes: np.ndarray) -> bool:
    """Whether the boxes are numbers, and so small that their areas are, too; it is not asked very exactly."""
    return bool(np.vdot(boxes, boxes) < _LARGEST_SQUARE)


def _corners(boxes: np.ndarray) -> np.ndarray:
    """Boxes with the smaller corner first, whichever corners they were given by."""
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _padded(values: Any, kind: Any, length: int) -> np.ndarray:
    result = np.zeros(max(length, len(values)), kind)
    result[: len(values)] = values
    return result


def non_max_suppression_v4(
    boxes: Any, scores: Any, max_output_size: Any, iou_threshold: Any, score_threshold: Any, *, pad_to_max_output_size: bool
) -> list[Any]:
    found = non_max_suppression_v3(boxes, scores, max_output_size, iou_threshold, score_threshold)
    count = np.int32(len(found))
    return [_padded(found, np.int32, int(max_output_size) if pad_to_max_output_size else 0), count]


def non_max_suppression_v5(
    boxes: Any, scores: Any, max_output_size: Any, iou_threshold: Any, score_threshold: Any, soft_nms_sigma: Any, *, pad_to_max_output_size: bool
) -> list[Any]:
    _checked(boxes, scores, max_output_size, iou_threshold)
    if float(soft_nms_sigma) < 0:
        raise InvalidArgumentError("soft_nms_sigma_val must be >= 0")
    limit = min(int(max_output_size), len(boxes))
    sigma, thresholds = float(soft_nms_sigma), (np.inf, float(score_threshold))  # TF lowers scores by any overlap, large ones too
    found: Any
    kept: Any
    if not sigma:
        found, kept = _suppress_all(boxes, scores, limit, float(iou_threshold), float(score_threshold))
    elif sigma >= _LEAST_SIGMA and scores.dtype == np.float32 and _takes_loops(boxes) and not (scores < 0).any():
        found, kept = suppression.suppress_softly(_corners(boxes), scores, limit, *thresholds, -0.5 / sigma)
    else:
        found, kept = suppress_softly(scores, _overlap(boxes), limit, *thresholds, sigma)
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
    thresholds, odd = (float(overlap_threshold), float(score_threshold)), False

    def near(some: np.ndarray, others: np.ndarray) -> np.ndarray:
        nonlocal odd
        table = overlaps[some[:, None], others]
        odd |= bool(np.isnan(np.add.reduce(table, None)))
        return table

    found = suppress(scores, near, limit, *thresholds)
    return np.array(suppress_softly(scores, near, limit, *thresholds, 0)[0], np.int32) if odd else found


def combined_non_max_suppression(
    boxes: Any, scores: Any, max_output_size_per_class: Any, max_total_size: Any, iou_threshold: Any, score_threshold: Any, *,
    pad_per_class: bool, clip_boxes: bool,
) -> list[np.ndarray]:  # fmt: skip
    """The best boxes of all classes of each image: boxes, scores, classes, and how many there are."""
    _check_combined(boxes, scores, max_output_size_per_class, max_total_size, iou_threshold)
    batch, count, kinds, _ = boxes.shape
    classes = scores.shape[2]
    per_class, total = int(max_output_size_per_class), int(max_total_size)
    length = min(total, per_class * classes) if pad_per_class else total
    kept, values, names = np.zeros((batch, length, 4), np.float32), np.zeros((batch, length), np.float32), np.zeros((batch, length), np.float32)
    valid = np.zeros(batch, np.int32)
    thresholds, limit = (float(iou_threshold), float(score_threshold)), min(per_class, count)
    of_classes = np.ascontiguousarray(scores.transpose(0, 2, 1))
    for image, chosen in enumerate(_of_all_classes(boxes, of_classes, limit, *thresholds)):
        class_of = np.repeat(np.arange(classes), [len(c) for c in chosen])
        places = np.concatenate(chosen)
        score = of_classes[image, class_of, places]
        best = _best(score, [len(c) for c in chosen], limit)[:length]
        n = valid[image] = len(best)
        class_of, places = class_of[best], places[best]
        kept[image, :n], values[image, :n], names[image, :n] = boxes[image, places, class_of if kinds > 1 else 0], score[best], class_of
    return [np.clip(kept, 0, 1) if clip_boxes else kept, values, names, valid]


def _of_all_classes(boxes: np.ndarray, scores: np.ndarray, limit: int, threshold: float, score_threshold: float) -> list[list[np.ndarray]]:
    """For each image and each class the numbers of the boxes to keep, best first. `scores`: (images, classes, boxes)."""
    batch, classes, count = scores.shape
    order, sizes = _ranked(scores, scores > score_threshold)
    _order_ties(order, sizes, scores, score_threshold)
    if count < _BOXES_FROM or not _takes_loops(boxes.reshape(-1, 4)):
        near = [[_overlap(boxes[image, :, kind]) for kind in range(boxes.shape[2])] for image in range(batch)]
        return [[_suppress_in_order(order[i, k, : sizes[i, k]], near[i][k % len(near[i])], limit, threshold) for k in range(classes)] for i in range(batch)]
    sets = np.ascontiguousarray(boxes.transpose(0, 2, 1, 3)).reshape(-1, count, 4)
    found, counts = suppression.suppress(sets, order.reshape(-1, count), sizes.reshape(-1), limit, threshold)
    kept = [row[:n] for row, n in zip(found, counts.tolist(), strict=True)]
    return [kept[i : i + classes] for i in range(0, batch * classes, classes)]


def _order_ties(order: np.ndarray, sizes: np.ndarray, scores: np.ndarray, score_threshold: float) -> None:
    """Rows with equal scores, in the order in which TensorFlow's queue gives them."""
    ranked = np.take_along_axis(scores, np.minimum(order, scores.shape[-1] - 1), -1)
    equal = (ranked[..., 1:] == ranked[..., :-1]) & (np.arange(1, scores.shape[-1]) < sizes[..., None])
    for row in zip(*np.nonzero(equal.any(-1)), strict=True):
        places = np.flatnonzero(scores[row] > score_threshold)
        order[row][: len(places)] = places[ties.popped(scores[row][places].tolist())]


def _best(scores: np.ndarray, counts: list[int], limit: int) -> np.ndarray:
    """The places of scores, the largest first; there are so many of each class. Where some are equal, they are sorted as TensorFlow sorts them: with room for
    `limit` of each class, and -1 in what is free of it."""
    order = _ranked(scores, np.full(len(scores), True))[0]
    ranked = scores[order]
    if not (ranked[1:] == ranked[:-1]).any():
        return order
    room = np.full((len(counts), limit), -1, np.float32)
    taken = np.arange(limit) < np.array(counts)[:, None]
    room[taken] = scores
    place = np.full(room.size, -1)
    place[taken.ravel()] = np.arange(len(scores))
    order = place[ties.falling(room.ravel().tolist())]
    return order[order >= 0]


def _check_combined(boxes: Any, scores: Any, per_class: Any, total: Any, iou_threshold: Any) -> None:
    if boxes.ndim != 4:
        raise InvalidArgumentError(f"boxes must be 4-D{show(boxes.shape)}")
    if scores.ndim != 3:
        raise InvalidArgumentError(f"scores must be 3-D{show(scores.shape)}")
    if boxes.shape[:2] != scores.shape[:2]:
        raise InvalidArgumentError("boxes and scores must have the same number of images and boxes")
    if boxes.shape[2] not in (1, scores.shape[2]):
        raise InvalidArgumentError(f"third dimension of boxes must be either 1 or equal to the third dimension of scores: {boxes.shape[2]} vs {scores.shape[2]}")
    if boxes.shape[3] != 4:
        raise InvalidArgumentError("boxes must have 4 columns")
    for name, value in (("max_size_per_class", per_class), ("max_total_size", total)):
        if np.ndim(value) != 0:
            raise InvalidArgumentError(f"{name} must be 0-D, got shape {show(np.shape(value))}")
        if int(value) <= 0:
            raise InvalidArgumentError(f"{name} must be > 0")
    if not 0 <= float(iou_threshold) <= 1:
        raise InvalidArgumentError("iou_threshold must be in [0, 1]")
