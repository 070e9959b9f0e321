"""Boxes drawn into images. A box is (y1, x1, y2, x2), relative to height - 1 and width - 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops import native
from penstock.ops.kernels.threads import parallel_for
from penstock.ops.native import pixels

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
    if colors is not None and colors.size:
        palette = np.asarray(colors, np.float32)
    else:
        palette = _COLOURS.copy()
        if depth == 1:
            palette[:, 0] = 1.0
    height, width = images.shape[1:3]
    result = np.empty(images.shape, images.dtype)
    colours = np.ascontiguousarray(palette[:, :depth].astype(images.dtype))
    scaled = np.asarray(boxes, np.float32) * np.array([height - 1, width - 1, height - 1, width - 1], np.float32)
    # Towards zero; NaN and infinities come before everything, as they do when C++ makes integers of them.
    edges = np.where(np.isfinite(scaled), np.minimum(np.maximum(scaled, -_FAR), _FAR), _BEFORE).astype(np.int64)
    if images.size < _LARGE:
        np.copyto(result, images)
    else:
        parallel_for(len(images), lambda i: np.copyto(result[i], images[i]))
    if not edges.size or not result.size:
        return result
    lines = _outlines(edges, height, width)
    if pixels.available():
        _draw(result, lines, colours)
        return result
    for image, image_lines in zip(result.reshape(len(images), height * width, depth), lines.tolist(), strict=True):
        for index, box in enumerate(image_lines):
            for start, step, count, _ in (line for side in box for line in side):
                if count:
                    image[start : start + (count - 1) * step + 1 : step] = colours[index % len(colours)]
    return result


_FAR, _BEFORE = np.float32(1 << 30), np.float32(-1)
_LARGE = 1 << 20
"""Numbers whose copies are worth a thread."""


def _outlines(edges: np.ndarray, height: int, width: int) -> np.ndarray:
    """The lines around boxes (images, boxes, 4) in pixels: (images, boxes, along x or y, the lower or the higher one, (number of the first pixel, step, pixels, nothing))."""
    low, high = edges[..., :2], edges[..., 2:]
    steps = np.array([width, 1])
    first, last = np.maximum(low, 0), np.minimum(high, np.array([height - 1, width - 1]))
    lengths = np.maximum(last - first + 1, 0)
    lines = np.empty((*edges.shape[:2], 2, 2, 4), np.int64)
    starts = (first * steps)[..., ::-1]
    lengths = lengths[..., ::-1] * (lengths > 0)
    for i, (edge, kept) in enumerate(((low, first), (high, last))):
        np.add(edge * steps, starts, out=lines[..., i, 0])
        np.multiply(lengths, edge == kept, out=lines[..., i, 2])  # what is seen of an edge lies inside
    lines[..., 1] = steps[::-1, None]
    return lines


def _draw(images: np.ndarray, lines: np.ndarray, colours: np.ndarray) -> None:
    """The lines of boxes, which become records for a loop in machine code."""
    pixel = images.shape[-1] * images.itemsize
    n, boxes = lines.shape[:2]
    lines[..., :2] *= pixel
    start, first = native.address_of(images), native.address_of(colours)
    lines[..., 0] += np.arange(start, start + images.nbytes, images.strides[0]).reshape(n, 1, 1, 1)
    lines[..., 3] = (np.arange(boxes) % len(colours) * pixel + first).reshape(boxes, 1, 1)
    pixels.draw_lines(lines.reshape(-1, 4), pixel)


def draw_bounding_boxes(images: Any, boxes: Any) -> np.ndarray:
    return draw_bounding_boxes_v2(images, boxes, None)
