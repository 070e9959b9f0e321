"""Boxes drawn into images. A box is (y1, x1, y2, x2), relative to height - 1 and width - 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
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
    edges = np.where(np.isfinite(scaled), np.clip(scaled, -(1 << 30), 1 << 30), -1).astype(np.int64)
    lines = _outlines(edges, height, width)
    parallel_for(len(images), lambda i: np.copyto(result[i], images[i]))
    if not lines.size:
        return result
    if pixels.available():
        _draw(result, lines, colours)
        return result
    for image, image_lines in zip(result.reshape(len(images), height * width, depth), lines.tolist(), strict=True):
        for index, box in enumerate(image_lines):
            for start, step, count in box:
                if count:
                    image[start : start + (count - 1) * step + 1 : step] = colours[index % len(colours)]
    return result


def _outlines(edges: np.ndarray, height: int, width: int) -> np.ndarray:
    """The lines around boxes (images, boxes, 4) in pixels: (images, boxes, line, (number of the first pixel, step, pixels))."""
    top, left, bottom, right = np.moveaxis(edges, -1, 0)
    is_seen = (top <= bottom) & (left <= right) & (top < height) & (bottom >= 0) & (left < width) & (right >= 0)
    y0, y1, x0, x1 = np.maximum(top, 0), np.minimum(bottom, height - 1), np.maximum(left, 0), np.minimum(right, width - 1)
    lines = np.zeros((*edges.shape, 3), np.int64)
    across, down = np.where(is_seen, x1 - x0 + 1, 0), np.where(is_seen, y1 - y0 + 1, 0)
    for i, (row, is_inside) in enumerate(((top, top >= 0), (bottom, bottom < height))):
        lines[..., i, 0], lines[..., i, 1], lines[..., i, 2] = row * width + x0, 1, across * is_inside
    for i, (column, is_inside) in enumerate(((left, left >= 0), (right, right < width)), 2):
        lines[..., i, 0], lines[..., i, 1], lines[..., i, 2] = y0 * width + column, width, down * is_inside
    return lines


def _draw(images: np.ndarray, lines: np.ndarray, colours: np.ndarray) -> None:
    """The lines of boxes, by a loop in machine code."""
    pixel = images.shape[-1] * images.itemsize
    records = np.empty((*lines.shape[:3], 4), np.int64)
    first = images.ctypes.data + np.arange(len(images)) * images[0].nbytes
    records[..., 0] = first[:, None, None] + lines[..., 0] * pixel
    records[..., 1], records[..., 2] = lines[..., 1] * pixel, lines[..., 2]
    records[..., 3] = (colours.ctypes.data + np.arange(lines.shape[1]) % len(colours) * pixel)[:, None]
    pixels.draw_lines(records.reshape(-1, 4), pixel)


def draw_bounding_boxes(images: Any, boxes: Any) -> np.ndarray:
    return draw_bounding_boxes_v2(images, boxes, None)
