"""Non-maximum suppression of many images at once, tile by tile, as a program of small ops.

It is the algorithm behind `tf.image.non_max_suppression_padded`, whose results differ from those of the ops NonMaxSuppressionV*: boxes go from an overlap of
`iou_threshold` on, a box is lowered to zeros when it goes, and what has no coordinate above zero does not count. Even the arithmetic that leaves a box
as it is (times 1, plus 0) is part of that: it makes NaN of infinite coordinates.
"""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api.array_indexing import gather, where_v2
from penstock.api.array_misc import one_hot
from penstock.api.array_ops import concat, expand_dims, ones_like, pad, reshape, shape, split, unstack, zeros
from penstock.api.control_flow import while_loop
from penstock.api.framework import name_scope
from penstock.api.math_ops import cast, logical_and, maximum, minimum
from penstock.api.math_reduce import range_, reduce_all, reduce_any, reduce_max, reduce_min, reduce_sum
from penstock.api.nn.activations import top_k
from penstock.graph.ir import Tensor
from penstock.shapes import TensorShape

_LEAST_UNION = 1e-8
"""Added to a union, which is 0 for two boxes without an area."""


def suppress(
    boxes: Tensor, scores: Tensor, limit: Any, iou_threshold: Any, score_threshold: Any, is_sorted: bool, is_low_corner_first: bool, tile: Any
) -> tuple[Tensor, Tensor]:
    """(indices, how many are valid) of the boxes (..., n, 4) to keep of each image: indices (images, limit), the rest of them 0, and numbers (...)."""
    if boxes.dims is not None and 0 in boxes.dims[:-1]:
        raise ValueError(f"There must be at least one image with at least one box. Received boxes of shape: {boxes.shape}")
    of_images, count = shape(boxes)[:-2], shape(boxes)[-2]
    boxes, scores = reshape(boxes, [-1, count, 4]), reshape(scores, [-1, count])
    with name_scope(None, "filter_by_score"):
        counts = scores > score_threshold  # -inf and NaN never do
        scores *= cast(counts, scores.dtype)
        boxes *= expand_dims(cast(counts, boxes.dtype), 2)
    if not is_low_corner_first:
        boxes = _low_corner_first(boxes)
    order = None
    if not is_sorted:
        with name_scope(None, "sort"):
            order = top_k(scores, count).indices
            boxes = gather(boxes, order, axis=1, batch_dims=1)
    tiles = (maximum(count, limit) + (tile - 1)) // tile
    total = tiles * tile
    boxes = pad(cast(boxes, dtypes.float32), [[0, 0], [0, total - count], [0, 0]])
    kept, found = _kept(reshape(boxes, [-1, tiles, tile, 4]), limit, iou_threshold, tiles, tile)
    with name_scope(None, "indices"):
        # The first places get the largest numbers, those that are not kept 0.
        ranks = cast(reshape(kept, [-1, total]), dtypes.int32) * range_(total, 0, -1)
        indices = minimum(total - top_k(ranks, limit).values, count - 1)
        if order is not None:
            indices = gather(order, indices, axis=1, batch_dims=1)
        found = minimum(found, limit)
        indices = where_v2(range_(limit) < expand_dims(found, 1), indices, 0)
    return indices, reshape(found, of_images)


def _low_corner_first(boxes: Tensor) -> Tensor:
    """Ends of sides change places in all boxes of all images if they are in the wrong order in the very first box."""
    with name_scope(None, "order_corners"):
        y1, x1, y2, x2 = split(boxes, 4, axis=2)
        y_rises, x_rises = y1[0, 0, 0] <= y2[0, 0, 0], x1[0, 0, 0] <= x2[0, 0, 0]
        low = [where_v2(y_rises, y1, y2), where_v2(x_rises, x1, x2)]
        high = [where_v2(y_rises, y2, y1), where_v2(x_rises, x2, x1)]
        return concat([*low, *high], 2)


def _kept(boxes: Tensor, limit: Any, threshold: Any, tiles: Any, tile: Any) -> tuple[Tensor, Tensor]:
    """(which boxes are kept, how many of each image) of the boxes (images, tiles, n, 4), whose first tiles are those of the best scores.

    No further tiles are looked at once there are enough boxes in every image.
    """
    images = shape(boxes)[0]

    def body(at: Tensor, boxes: Tensor, found: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        here = boxes[:, at]
        here *= cast(_free_of_others(boxes, here, at, threshold), dtypes.float32)
        here *= 1.0 - cast(_gone(here, threshold, tile), dtypes.float32)
        is_here = reshape(one_hot(at, tiles), [1, -1, 1, 1])
        boxes = expand_dims(here, 1) * is_here + boxes * (1 - is_here)
        return at + 1, boxes, found + reduce_sum(cast(_counting(here), dtypes.int32), 1)

    _, boxes, found = while_loop(
        lambda at, _, found: logical_and(reduce_min(found) < limit, at < tiles), body, (0, boxes, zeros([images], dtypes.int32)),
        (TensorShape(()), TensorShape((None, None, None, 4)), TensorShape((None,))), back_prop=False, name="tiles",
    )  # fmt: skip
    return _counting(boxes), found


def _counting(boxes: Tensor) -> Tensor:
    """Zeros stand for boxes that are gone."""
    return reduce_any(boxes > 0, -1)


def _free_of_others(boxes: Tensor, here: Tensor, at: Tensor, threshold: Any) -> Tensor:
    """Which boxes of a tile overlap none of the tiles before it, (images, n, 1)."""

    def body(other: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
        return other + 1, logical_and(free, reduce_all(_overlap(here, boxes[:, other]) < threshold, 2))

    free = while_loop(lambda other, _: other < at, body, (0, ones_like(here[..., 0], dtypes.bool)), back_prop=False, name="others")[1]
    return expand_dims(free, 2)


def _gone(here: Tensor, threshold: Any, tile: Any) -> Tensor:
    """Which boxes of a tile overlap a better one that stays, (images, n, 1).

    Those that nothing overlaps stay for sure, and what they overlap goes, with all that it would have taken along; that goes on until the overlaps left
    do not become less in any image. A step that lowers their sum by the threshold or less is taken for the last one.
    """
    place, least = range_(tile), maximum(threshold, 0.0)  # with less than 0, it would go on without an end
    overlap = _overlap(here, here)
    overlap *= cast(logical_and(expand_dims(place, 1) < place, overlap >= threshold), dtypes.float32)

    def body(overlap: Tensor, total: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        stays = cast(reduce_max(overlap, 1) < threshold, dtypes.float32)
        may = cast(reduce_max(expand_dims(stays, 2) * overlap, 1) < threshold, dtypes.float32)
        overlap = expand_dims(may, 2) * overlap
        left = reduce_sum(overlap, [1, 2])
        return overlap, left, reduce_any(total - left > least)

    overlap = while_loop(lambda _, __, more: more, body, (overlap, reduce_sum(overlap, [1, 2]), True), back_prop=False, name="within")[0]
    return expand_dims(reduce_sum(overlap, 1) > 0, 2)


def _overlap(some: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of boxes (images, n, 4) and others (images, m, 4): (images, n, m)."""
    with name_scope(None, "overlap"):
        a_top, a_left, a_bottom, a_right = unstack(expand_dims(some, 2), 4, axis=-1)
        b_top, b_left, b_bottom, b_right = unstack(expand_dims(others, 1), 4, axis=-1)
        height = maximum(minimum(a_bottom, b_bottom) - maximum(a_top, b_top), 0)
        width = maximum(minimum(a_right, b_right) - maximum(a_left, b_left), 0)
        both = width * height
        union = (a_bottom - a_top) * (a_right - a_left) + (b_bottom - b_top) * (b_right - b_left) - both
        return both / (union + _LEAST_UNION)
