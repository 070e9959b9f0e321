"""Boxes of images: crops of them with their gradients, non-maximum suppression, drawing."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.errors import InvalidArgumentError, OutOfRangeError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, checked_scalar, op, vector, with_rank
from penstock.ops.kernels import boxes, crops, drawing
from penstock.ops.samples import arr, normal, uniform

_TYPES = "{uint8, uint16, int8, int16, int32, int64, half, float, double}"


def crop_shape(c: Any) -> Dims:
    image = with_rank(c, 0, 4)
    rows = with_rank(c, 1, 2)
    if rows[1] not in (None, 4):
        raise ValueError(f"Dimension must be 4 but is {rows[1]}")
    (count,) = with_rank(c, 2, 1)
    (length,) = with_rank(c, 3, 1)
    if length not in (None, 2):
        raise ValueError(f"Dimension must be 2 but is {length}")
    size = c.const_dims(3)
    return (rows[0] if rows[0] is not None else count, *(size if size is not None else (None, None)), image[3])


def crop_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    image = op.image
    size = g.const(list(image.dims), "int32") if image.dims is not None and None not in image.dims else g.Shape(image)
    to_image = None
    if image.dtype in (dtypes.float16, dtypes.float32, dtypes.float64):
        to_image = g.CropAndResizeGradImage(dy, op.boxes, op.box_ind, size, T=image.dtype, method=op.attr("method"))
    return [to_image, g.CropAndResizeGradBoxes(dy, image, op.boxes, op.box_ind), None, None]


def kept_shape(c: Any) -> Dims:
    """A vector of indices; boxes are [n, 4], scores [n]."""
    rows = with_rank(c, 0, 2)
    with_rank(c, 1, 1)
    checked_scalar(c, 2)
    if rows[1] not in (None, 4):
        raise ValueError(f"Dimension must be 4 but is {rows[1]}")
    return (None,)


BOXES = np.array([[0, 0, 1, 1], [0.2, 0.3, 0.6, 0.9], [0.9, 0.83, 0.12, 0.21], [-0.3, 0.5, 1.4, 1.2]], np.float32)
WHERE = dict(boxes=arr(BOXES), box_ind=arr([0, 1, 1, 0]))

op(f"CropAndResize(image: T, boxes: float, box_ind: int32, crop_size: int32) -> (crops: float) [T: type in {_TYPES};"
   " method: string in {'bilinear', 'nearest'} = 'bilinear'; extrapolation_value: float = 0]",
   shape=crop_shape, numpy=crops.crop_and_resize, grad=crop_grad, expensive=True, host_memory=["crop_size"],
   samples=[dict(image=uniform(2, 5, 6, 3, lo=0, hi=50), crop_size=arr(s), **WHERE) for s in ((3, 4), (1, 1), (7, 8))]
   + [dict(image=uniform(2, 5, 6, 3, lo=0, hi=50), crop_size=arr((3, 4)), method="nearest", extrapolation_value=2.0, **WHERE)],
   errors=[(dict(image=normal(1, 4, 5, 3), boxes=[[0.0, 0.0, 1.0, 1.0]], box_ind=[3], crop_size=[2, 2]), OutOfRangeError, "box_index has values outside"),
           (dict(image=normal(1, 4, 5, 3), boxes=[[0.0, 0.0, 1.0, 1.0]], box_ind=[0], crop_size=[0, 2]), InvalidArgumentError, "crop dimensions must be positive")])  # fmt: skip

op("CropAndResizeGradImage(grads: float, boxes: float, box_ind: int32, image_size: int32) -> (output: T) [T: type in {float, half, double};"
   " method: string in {'bilinear', 'nearest'} = 'bilinear']",
   shape=lambda c: c.const_dims(3) if c.const_dims(3) is not None else (None,) * 4, numpy=crops.crop_and_resize_grad_image, host_memory=["image_size"],
   samples=[dict(grads=normal(4, *s, 3), image_size=arr((2, 5, 6, 3)), T=dtypes.float32, **WHERE) for s in ((3, 4), (1, 1))]
   + [dict(grads=normal(4, 3, 4, 3), image_size=arr((2, 5, 6, 3)), T=dtypes.float64, method="nearest", **WHERE)])  # fmt: skip

op(f"CropAndResizeGradBoxes(grads: float, image: T, boxes: float, box_ind: int32) -> (output: float) [T: type in {_TYPES}; method: string in {{'bilinear'}} = 'bilinear']",
   shape=lambda c: c.dims(2), numpy=crops.crop_and_resize_grad_boxes,
   samples=[dict(grads=normal(4, *s, 3), image=uniform(2, 5, 6, 3, lo=0, hi=9), **WHERE) for s in ((3, 4), (1, 1))])  # fmt: skip

MANY = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]], np.float32)
SCORES = np.array([0.9, 0.75, 0.6, 0.95, 0.5, 0.3], np.float32)
NMS = dict(boxes=arr(MANY), scores=arr(SCORES))
_T = "T: type in {half, float} = float; T_threshold: type in {half, float} = float"

op("NonMaxSuppression(boxes: float, scores: float, max_output_size: int32) -> (selected_indices: int32) [iou_threshold: float = 0.5]",
   shape=kept_shape, numpy=boxes.non_max_suppression, grad=NOT_DIFFERENTIABLE, samples=[dict(max_output_size=arr(n), **NMS) for n in (2, 10)])  # fmt: skip
op(f"NonMaxSuppressionV2(boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold) -> (selected_indices: int32) [{_T}]",
   shape=kept_shape, numpy=boxes.non_max_suppression_v2, grad=NOT_DIFFERENTIABLE, samples=[dict(max_output_size=arr(10), iou_threshold=arr(t), **NMS) for t in (0.2, 0.9)])  # fmt: skip
op("NonMaxSuppressionV3(boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold, score_threshold: T_threshold)"
   f" -> (selected_indices: int32) [{_T}]",
   shape=kept_shape, numpy=boxes.non_max_suppression_v3,
   samples=[dict(max_output_size=arr(10), iou_threshold=arr(0.5), score_threshold=arr(t), **NMS) for t in (-1.0, 0.4)],
   errors=[(dict(max_output_size=3, iou_threshold=1.5, score_threshold=0.0, **NMS), InvalidArgumentError, "iou_threshold must be in")])  # fmt: skip


def padded_shape(outputs: int) -> Any:
    """Vectors as long as `max_output_size` where they are padded, and the number of valid elements."""

    def rule(c: Any) -> list[Dims]:
        kept_shape(c)
        limit = c.const(2)
        length = int(limit) if c.attrs["pad_to_max_output_size"] and limit is not None else None
        shapes: list[Dims] = [(length,)] * (outputs - 1)
        return [*shapes, ()]

    return rule


op("NonMaxSuppressionV4(boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold, score_threshold: T_threshold)"
   f" -> (selected_indices: int32, valid_outputs: int32) [{_T}; pad_to_max_output_size: bool = false]",
   shape=padded_shape(2), numpy=boxes.non_max_suppression_v4,
   samples=[dict(max_output_size=arr(5), iou_threshold=arr(0.5), score_threshold=arr(0.4), pad_to_max_output_size=p, **NMS) for p in (False, True)])  # fmt: skip
op("NonMaxSuppressionV5(boxes: T, scores: T, max_output_size: int32, iou_threshold: T, score_threshold: T, soft_nms_sigma: T)"
   " -> (selected_indices: int32, selected_scores: T, valid_outputs: int32) [T: type in {half, float} = float; pad_to_max_output_size: bool = false]",
   shape=padded_shape(3), numpy=boxes.non_max_suppression_v5,
   samples=[dict(max_output_size=arr(5), iou_threshold=arr(t), score_threshold=arr(0.1), soft_nms_sigma=arr(s), pad_to_max_output_size=p,
                 boxes=arr(MANY, dtype=np.float32), scores=arr(SCORES, dtype=np.float32))
            for p in (False, True) for s, t in ((0.0, 0.5), (0.5, 1.0))])  # fmt: skip
op("NonMaxSuppressionWithOverlaps(overlaps: float, scores: float, max_output_size: int32, overlap_threshold: float, score_threshold: float)"
   " -> (selected_indices: int32)",
   shape=vector(None), numpy=boxes.non_max_suppression_with_overlaps, grad=NOT_DIFFERENTIABLE,
   samples=[dict(overlaps=uniform(6, 6), scores=arr(SCORES), max_output_size=arr(4), overlap_threshold=arr(0.5), score_threshold=arr(0.1))])  # fmt: skip

DRAWN = np.array([[[0.1, 0.2, 0.7, 0.9], [0.5, -0.3, 1.2, 0.5]], [[0.9, 0.1, 0.2, 0.3], [0.0, 0.0, 1.0, 1.0]]], np.float32)

op("DrawBoundingBoxes(images: T, boxes: float) -> (output: T) [T: type in {float, half} = float]",
   shape=lambda c: c.dims(0), numpy=drawing.draw_bounding_boxes, grad=NOT_DIFFERENTIABLE, samples=[dict(images=uniform(2, 6, 7, d), boxes=arr(DRAWN)) for d in (1, 3, 4)])  # fmt: skip
op("DrawBoundingBoxesV2(images: T, boxes: float, colors: float) -> (output: T) [T: type in {float, half} = float]",
   shape=lambda c: c.dims(0), numpy=drawing.draw_bounding_boxes_v2,
   samples=[dict(images=uniform(2, 6, 7, 3), boxes=arr(DRAWN), colors=arr([[0.1, 0.2, 0.3]])), dict(images=uniform(2, 6, 7, 4), boxes=arr(DRAWN), colors=arr([[0.1, 0.2, 0.3, 0.4], [1, 0, 1, 1]])),
            dict(images=uniform(2, 6, 7, 1), boxes=arr(DRAWN), colors=arr([[0.25]]))])  # fmt: skip


def combined_shape(c: Any) -> list[Dims]:
    """Boxes are [images, n, classes or 1, 4], scores [images, n, classes]."""
    images, _, kinds, _ = with_rank(c, 0, 4)
    classes = with_rank(c, 1, 3)[2]
    if None not in (kinds, classes) and kinds not in (1, classes):
        raise ValueError("third dimension of boxes must be either 1 or equal to the third dimension of scores")
    for i in (2, 3, 4, 5):
        checked_scalar(c, i)
    per_class, total = c.const(2), c.const(3)
    length = None if total is None else int(total)
    if c.attrs["pad_per_class"]:
        length = None if length is None or per_class is None or classes is None else min(length, int(per_class) * classes)
    return [(images, length, 4), (images, length), (images, length), (images,)]


COMBINED = dict(
    boxes=arr(np.stack([MANY, MANY[::-1]])[:, :, None]), scores=arr(np.stack([np.stack([SCORES, SCORES[::-1]], 1), np.stack([SCORES / 2, SCORES], 1)])),
    max_output_size_per_class=arr(3), max_total_size=arr(5), iou_threshold=arr(0.5), score_threshold=arr(0.2),
)  # fmt: skip

op("CombinedNonMaxSuppression(boxes: float, scores: float, max_output_size_per_class: int32, max_total_size: int32, iou_threshold: float,"
   " score_threshold: float) -> (nmsed_boxes: float, nmsed_scores: float, nmsed_classes: float, valid_detections: int32) [pad_per_class: bool = false;"
   " clip_boxes: bool = true]",
   shape=combined_shape, numpy=boxes.combined_non_max_suppression, expensive=True,
   samples=[dict(COMBINED, pad_per_class=p, clip_boxes=k) for p, k in ((False, True), (True, False))] + [dict(COMBINED, max_total_size=arr(40), pad_per_class=True)],
   errors=[(dict(COMBINED, boxes=normal(2, 6, 3, 4)), InvalidArgumentError, "third dimension of boxes must be either 1 or equal"),
           (dict(COMBINED, max_total_size=0), InvalidArgumentError, "max_total_size must be > 0")])  # fmt: skip
