"""Random crops of an image that keep enough of one of its boxes: SampleDistortedBoundingBox.

All arithmetic is in single precision, so that the same crops are drawn as by TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.kernels.window import show
from penstock.ops.philox import Philox, PhiloxState, float32_of

_F = np.float32
_WORDS = 64
"""Words of the random stream that are looked at together."""


class Box(NamedTuple):
    """In pixels; the last row and column are outside."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def area(self) -> int:
        return (self.right - self.left) * (self.bottom - self.top)

    def common(self, other: Box) -> int:
        """The area of the intersection."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return width * height if width > 0 and height > 0 else 0


class _Stream:
    """Random numbers one by one."""

    def __init__(self, gen: Philox) -> None:
        self._words = self._read(gen)

    @staticmethod
    def _read(gen: Philox) -> Iterator[int]:
        while True:
            yield from gen.words(_WORDS).tolist()
            gen = gen.skip(_WORDS // 4)

    def fraction(self) -> np.float32:
        return float32_of(np.array([next(self._words)], np.uint32))[0]

    def below(self, n: int) -> int:
        """Evenly distributed below n: words that would make some results likelier are passed over."""
        if n & (n - 1) == 0:
            return next(self._words) & (n - 1)
        rest = ((1 << 32) - 1) % n + 1
        while (word := next(self._words)) < rest:
            pass
        return word % n


def _rounded(x: Any) -> int:
    return int(np.rint(_F(x)))


def _crop(width: int, height: int, areas: Sequence[float], ratio: np.float32, stream: _Stream) -> Box | None:
    """A crop with that ratio of width to height whose area lies in the range, or None if rounding leaves none."""
    low, high = (_F(_F(_F(a) * _F(width)) * _F(height)) for a in areas)
    if areas[1] <= 0 or ratio <= 0 or width <= 0 or height <= 0 or areas[0] > areas[1]:
        return None
    rows, most = _rounded(np.sqrt(low / ratio)), _rounded(np.sqrt(high / ratio))
    if _rounded(_F(most) * ratio) > width:
        most = int((width + 0.5 - 0.0000001) / float(ratio))
        if _rounded(_F(most) * ratio) > width:
            most -= 1
    most = min(most, height)
    rows = min(rows, most)
    if rows < most:
        rows += stream.below(most - rows + 1)
    columns = _rounded(_F(rows) * ratio)
    if _F(columns * rows) < low:  # one row more or less mends what rounding spoilt
        rows += 1
        columns = _rounded(_F(rows) * ratio)
    if _F(columns * rows) > high:
        rows -= 1
        columns = _rounded(_F(rows) * ratio)
    area = _F(columns * rows)
    if area < low or area > high or columns > width or rows > height or columns <= 0 or rows <= 0:
        return None
    top = stream.below(height - rows) if rows < height else 0
    left = stream.below(width - columns) if columns < width else 0
    return Box(left, top, left + columns, top + rows)


def _covers(crop: Box, boxes: Sequence[Box], least: np.float32) -> bool:
    """Whether at least that part of one of the boxes lies in the crop."""
    return crop.area >= 1 and any(_F(crop.common(box)) / _F(box.area) >= least for box in boxes if box.area >= 1)


def _check_ranges(ratios: Sequence[float], areas: Sequence[float], max_attempts: int) -> None:
    for name, values in (("Aspect ratio", ratios), ("Area", areas)):
        if len(values) != 2:
            raise InvalidArgumentError(f"{name} range field must specify 2 dimensions")
        if min(values) <= 0:
            raise InvalidArgumentError(f"{name} range must be non-negative: [{values[0]:g}, {values[1]:g}]")
    if max(areas) > 1:
        raise InvalidArgumentError(f"Area range must be less then or equal to 1.0: [{areas[0]:g}, {areas[1]:g}]")
    if max_attempts <= 0:
        raise InvalidArgumentError(f"Max attempts must be non-negative: {max_attempts}")


def sample(
    image_size: np.ndarray, bounding_boxes: np.ndarray, min_object_covered: Any, gen: PhiloxState, *, aspect_ratio_range: Sequence[float],
    area_range: Sequence[float], max_attempts: int, use_image_if_no_bounding_boxes: bool,
) -> list[np.ndarray]:  # fmt: skip
    """(begin, size, box) of a crop, as slices and drawing take them."""
    if image_size.ndim != 1:
        raise InvalidArgumentError(f"image_size must be 1-dimensional{show(image_size.shape)}")
    if image_size.shape[0] != 3:
        raise InvalidArgumentError(f"image_size must contain 3 elements{show(image_size.shape)}")
    if bounding_boxes.ndim != 3:
        raise InvalidArgumentError(f"input boxes must be 3-dimensional [batch, num_boxes, coords]: {show(bounding_boxes.shape)}")
    if bounding_boxes.shape[-1] != 4:
        raise InvalidArgumentError(f"bounding boxes must have shape [4] or [*, 4], got {show(bounding_boxes.shape)}")
    least = _F(min_object_covered)
    if not least >= 0:
        raise InvalidArgumentError(f"Min object covered must be non-negative: {least:g}")
    _check_ranges(aspect_ratio_range, area_range, max_attempts)
    height, width = int(image_size[0]), int(image_size[1])
    given = bounding_boxes.reshape(-1, 4)
    wrong = ~((given >= 0) & (given <= 1))
    if wrong.any():
        raise InvalidArgumentError(f"All bounding box coordinates must be in [0.0, 1.0]: {given[wrong][0]:g}")
    boxes = [Box(int(_F(x0) * _F(width)), int(_F(y0) * _F(height)), int(_F(x1) * _F(width)), int(_F(y1) * _F(height))) for y0, x0, y1, x1 in given]
    whole = Box(0, 0, width, height)
    if not boxes:
        if not use_image_if_no_bounding_boxes:
            raise InvalidArgumentError(
                "No bounding boxes provided as input. One must enable use_image_if_no_bounding_boxes if you wish to not provide any bounding boxes."
            )
        boxes = [whole]
    stream = _Stream(gen.reserve_words(4 * max_attempts))
    low, high = map(_F, aspect_ratio_range)
    found = whole
    for _ in range(max_attempts):
        crop = _crop(width, height, area_range, stream.fraction() * (high - low) + low, stream)
        if crop is not None and _covers(crop, boxes, least):
            found = crop
            break
    kind = image_size.dtype
    box = [_F(found.top) / _F(height), _F(found.left) / _F(width), _F(found.bottom) / _F(height), _F(found.right) / _F(width)]
    return [
        np.array([found.top, found.left, 0], kind),
        np.array([found.bottom - found.top, found.right - found.left, -1]).astype(kind),
        np.array(box, np.float32).reshape(1, 1, 4),
    ]
