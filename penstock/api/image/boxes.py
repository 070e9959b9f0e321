"""Boxes in images: crops, patches, drawing, non-maximum suppression."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api import array_ops
from penstock.api.array_ops import one_of
from penstock.api.framework import name_scope
from penstock.api.image import tiles
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def crop_and_resize(
    image: Any, boxes: Any, box_ind: Any = None, crop_size: Any = None, method: str = "bilinear", extrapolation_value: float = 0,
    name: str | None = None, box_indices: Any = None,
) -> Tensor:  # fmt: skip
    """The boxes (y1, x1, y2, x2 in [0, 1]) cut out of images `box_ind` and resized to `crop_size`."""
    box_ind = one_of(box_ind, box_indices, "box_ind", "box_indices")
    return raw.CropAndResize(image, boxes, box_ind, crop_size, method=method, extrapolation_value=extrapolation_value, name=name)


def extract_patches(images: Any, sizes: Any, strides: Any, rates: Any, padding: str, name: str | None = None) -> Tensor:
    """Windows of images, each laid out along the last axis."""
    return raw.ExtractImagePatches(images, ksizes=sizes, strides=strides, rates=rates, padding=padding, name=name)


def draw_bounding_boxes(images: Any, boxes: Any, name: str | None = None, colors: Any = None) -> Tensor:
    """Images with the outlines of boxes (y1, x1, y2, x2 in [0, 1]), in `colors` or in TF's own."""
    if colors is None:
        return raw.DrawBoundingBoxes(images, boxes, name=name)
    return raw.DrawBoundingBoxesV2(images, boxes, colors, name=name)


def non_max_suppression(
    boxes: Any, scores: Any, max_output_size: Any, iou_threshold: Any = 0.5, score_threshold: Any = float("-inf"), name: str | None = None
) -> Tensor:
    """Indices of the best boxes, none of which overlaps a better one by more than `iou_threshold`."""
    with name_scope(name, "non_max_suppression"):
        iou_threshold = convert_to_tensor(iou_threshold, name="iou_threshold")
        score_threshold = convert_to_tensor(score_threshold, name="score_threshold")
        return raw.NonMaxSuppressionV3(boxes, scores, max_output_size, iou_threshold, score_threshold)


def non_max_suppression_with_scores(
    boxes: Any, scores: Any, max_output_size: Any, iou_threshold: Any = 0.5, score_threshold: Any = float("-inf"), soft_nms_sigma: Any = 0.0,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(indices, scores) of the best boxes; with `soft_nms_sigma`, overlapping ones are not dropped but lose score."""
    with name_scope(name, "non_max_suppression_with_scores"):
        iou_threshold = convert_to_tensor(iou_threshold, name="iou_threshold")
        score_threshold = convert_to_tensor(score_threshold, name="score_threshold")
        soft_nms_sigma = convert_to_tensor(soft_nms_sigma, name="soft_nms_sigma")
        found = raw.NonMaxSuppressionV5(
            boxes, scores, max_output_size, iou_threshold, score_threshold, soft_nms_sigma, pad_to_max_output_size=False
        )
        return found[0], found[1]


def non_max_suppression_overlaps(
    overlaps: Any, scores: Any, max_output_size: Any, overlap_threshold: Any = 0.5, score_threshold: Any = float("-inf"), name: str | None = None
) -> Tensor:
    """`non_max_suppression` for overlaps that are given as a matrix."""
    with name_scope(name, "non_max_suppression_overlaps"):
        overlap_threshold = convert_to_tensor(overlap_threshold, name="overlap_threshold")
        score_threshold = convert_to_tensor(score_threshold, dtype=dtypes.float32, name="score_threshold")
        return raw.NonMaxSuppressionWithOverlaps(overlaps, scores, max_output_size, overlap_threshold, score_threshold)


def non_max_suppression_padded(
    boxes: Any, scores: Any, max_output_size: Any, iou_threshold: Any = 0.5, score_threshold: Any = float("-inf"),
    pad_to_max_output_size: bool = False, name: str | None = None, sorted_input: bool = False, canonicalized_coordinates: bool = False,
    tile_size: int = 512,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(indices, number of valid ones) of the best boxes, each of which overlaps better ones by less than `iou_threshold`; indices are filled up with 0
    if `pad_to_max_output_size`. Boxes of several images, (..., n, 4), have to be padded.

    The first box says of all of them which corner comes first, unless it is the lower one anyway (`canonicalized_coordinates`). `sorted_input` boxes come
    best first. `tile_size` boxes of an image are taken together.
    """
    with name_scope(name, "non_max_suppression_padded"):
        boxes, scores = convert_to_tensor(boxes, name="boxes"), convert_to_tensor(scores, name="scores")
        if not pad_to_max_output_size and boxes.dims is not None and len(boxes.dims) > 2:
            raise ValueError(f"'pad_to_max_output_size' (value {pad_to_max_output_size}) must be True for batched input")
        indices, valid = tiles.suppress(
            boxes, scores, max_output_size, iou_threshold, score_threshold, sorted_input, canonicalized_coordinates, tile_size
        )
        if not pad_to_max_output_size:
            return indices[0, :valid], valid
        return array_ops.reshape(indices, array_ops.concat([array_ops.shape(boxes)[:-2], [max_output_size]], 0)), valid


def combined_non_max_suppression(
    boxes: Any, scores: Any, max_output_size_per_class: Any, max_total_size: Any, iou_threshold: Any = 0.5, score_threshold: Any = float("-inf"),
    pad_per_class: bool = False, clip_boxes: bool = True, name: str | None = None,
) -> Any:  # fmt: skip
    """(boxes, scores, classes, number of valid ones) of the best boxes of all classes of each image; suppression goes class by class."""
    with name_scope(name, "combined_non_max_suppression"):
        iou_threshold = convert_to_tensor(iou_threshold, dtype=dtypes.float32, name="iou_threshold")
        score_threshold = convert_to_tensor(score_threshold, dtype=dtypes.float32, name="score_threshold")
        return raw.CombinedNonMaxSuppression(
            boxes, scores, max_output_size_per_class, max_total_size, iou_threshold, score_threshold, pad_per_class=pad_per_class, clip_boxes=clip_boxes
        )


def sample_distorted_bounding_box(
    image_size: Any, bounding_boxes: Any, seed: int | None = None, seed2: int | None = None, min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = None, area_range: Any = None, max_attempts: int | None = None, use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """(begin, size, box) of a random crop that keeps enough of one of the boxes: `tf.slice(image, begin, size)` cuts it out."""
    given = dict(
        seed=seed, seed2=seed2, aspect_ratio_range=aspect_ratio_range, area_range=area_range, max_attempts=max_attempts,
        use_image_if_no_bounding_boxes=use_image_if_no_bounding_boxes,
    )  # fmt: skip
    with name_scope(name, "sample_distorted_bounding_box") as scope:
        given = {key: value for key, value in given.items() if value is not None}
        return raw.SampleDistortedBoundingBoxV2(image_size, bounding_boxes, min_object_covered, name=scope, **given)


def extract_glimpse(
    input: Any, size: Any, offsets: Any, centered: bool = True, normalized: bool = True, uniform_noise: bool = True, name: str | None = None
) -> Tensor:
    """Windows of images around `offsets` (y, x), which lie in [-1, 1] around the middle unless said otherwise. What is outside is noise."""
    return raw.ExtractGlimpse(input, size, offsets, centered=centered, normalized=normalized, uniform_noise=uniform_noise, name=name)
