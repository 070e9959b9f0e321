"""Parts of images: random crops that keep enough of a box, and windows around points."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, with_rank
from penstock.ops.kernels import distorted, glimpses
from penstock.ops.random import generator
from penstock.ops.samples import arr, normal, program, uniform
from penstock.shapes import Dims

_ATTRS = (
    "aspect_ratio_range: list(float) = [0.75, 1.33]; area_range: list(float) = [0.05, 1]; max_attempts: int = 100;"
    " use_image_if_no_bounding_boxes: bool = false"
)
_T = "T: type in {uint8, int8, int16, int32, int64}; seed: int = 0; seed2: int = 0"


def crop_shape(c: Any) -> list[Dims]:
    with_rank(c, 0, 1)
    with_rank(c, 1, 3)
    return [(3,), (3,), (1, 1, 4)]


def sample_v2(image_size: Any, bounding_boxes: Any, min_object_covered: Any, *, seed: int, seed2: int, state: Any, aspect_ratio_range: list[float],
              area_range: list[float], max_attempts: int, use_image_if_no_bounding_boxes: bool) -> list[np.ndarray]:  # fmt: skip
    if np.ndim(min_object_covered) != 0:
        raise InvalidArgumentError(f"min_object_covered must be 0-D, got shape [{','.join(map(str, np.shape(min_object_covered)))}]")
    return distorted.sample(
        image_size, bounding_boxes, min_object_covered, generator(state, seed, seed2), aspect_ratio_range=aspect_ratio_range, area_range=area_range,
        max_attempts=max_attempts, use_image_if_no_bounding_boxes=use_image_if_no_bounding_boxes,
    )  # fmt: skip


def sample_v1(image_size: Any, bounding_boxes: Any, *, min_object_covered: float, seed: int, seed2: int, state: Any, aspect_ratio_range: list[float],
              area_range: list[float], max_attempts: int, use_image_if_no_bounding_boxes: bool) -> list[np.ndarray]:  # fmt: skip
    return sample_v2(
        image_size, bounding_boxes, min_object_covered, seed=seed, seed2=seed2, state=state, aspect_ratio_range=aspect_ratio_range, area_range=area_range,
        max_attempts=max_attempts, use_image_if_no_bounding_boxes=use_image_if_no_bounding_boxes,
    )  # fmt: skip


_BOXES = np.array([[[0.1, 0.2, 0.5, 0.9], [0.3, 0.0, 1.0, 0.4]]], np.float32)


def _drawn(seed: int, covered: float, **attrs: Any) -> Any:
    """Three crops one after the other, of the same stream as TensorFlow's."""

    def build(tf: Any) -> Any:
        return list(tf.raw_ops.SampleDistortedBoundingBoxV2(
            image_size=np.array([80, 121, 3], np.int32), bounding_boxes=_BOXES, min_object_covered=np.float32(covered), seed=seed, seed2=7, **attrs
        ))  # fmt: skip

    return program(build, runs=3)


_GIVEN = dict(image_size=arr([80, 120, 3], dtype=np.int32), bounding_boxes=arr(_BOXES))

op(f"SampleDistortedBoundingBoxV2(image_size: T, bounding_boxes: float, min_object_covered: float) -> (begin: T, size: T, bboxes: float) [{_T}; {_ATTRS}] stateful",
   shape=crop_shape, numpy=sample_v2, grad=NOT_DIFFERENTIABLE, host_memory=["image_size"],
   samples=[_drawn(1, 0.1), _drawn(2, 0.9), _drawn(3, 0.5, aspect_ratio_range=[0.3, 3.0], area_range=[0.2, 0.4], max_attempts=20)],
   errors=[(dict(_GIVEN, min_object_covered=-1.0), InvalidArgumentError, "Min object covered must be non-negative: -1"),
           (dict(_GIVEN, min_object_covered=0.5, area_range=[0.5, 1.5]), InvalidArgumentError, "Area range must be less then or equal to 1.0"),
           (dict(_GIVEN, min_object_covered=0.5, bounding_boxes=arr(_BOXES * 2)), InvalidArgumentError, r"All bounding box coordinates must be in \[0.0, 1.0\]")])  # fmt: skip
op(f"SampleDistortedBoundingBox(image_size: T, bounding_boxes: float) -> (begin: T, size: T, bboxes: float) [{_T}; min_object_covered: float = 0.100000001; {_ATTRS}] stateful",
   shape=crop_shape, numpy=sample_v1, grad=NOT_DIFFERENTIABLE, host_memory=["image_size"],
   errors=[(dict(_GIVEN, bounding_boxes=arr(_BOXES[:, :0])), InvalidArgumentError, "No bounding boxes provided as input")])  # fmt: skip


def glimpse_shape(c: Any) -> Dims:
    if c.attrs["uniform_noise"] and c.attrs["noise"] != b"uniform":
        raise ValueError("The uniform_noise should not be True when noise is not uniform")
    images, offsets, size = with_rank(c, 0, 4), with_rank(c, 2, 2), c.const_dims(1)
    if offsets[1] not in (None, 2):
        raise ValueError(f"Dimension must be 2 but is {offsets[1]}")
    if None not in (images[0], offsets[0]) and images[0] != offsets[0]:
        raise ValueError(f"Dimensions must be equal, but are {images[0]} and {offsets[0]}")
    return (images[0] if images[0] is not None else offsets[0], *(size if size is not None else (None, None)), images[3])


_OUTSIDE = dict(uniform_noise=False, noise="zero")

for _name, _kernel in (("ExtractGlimpse", glimpses.extract_glimpse), ("ExtractGlimpseV2", glimpses.extract_glimpse_v2)):
    op(f"{_name}(input: float, size: int32, offsets: float) -> (glimpse: float) [centered: bool = true; normalized: bool = true;"
       " uniform_noise: bool = true; noise: string = 'uniform']",
       shape=glimpse_shape, numpy=_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["size"],
       samples=[dict(input=normal(2, 7, 9, 3), size=arr(size, dtype=np.int32), offsets=uniform(2, 2, lo=-1, hi=1), centered=c, normalized=n, **_OUTSIDE)
                for size in ((3, 4), (10, 2)) for c in (False, True) for n in (False, True)]
       + [dict(input=normal(2, 9, 9, 1), size=arr([3, 3], dtype=np.int32), offsets=arr(np.full((2, 2), 0.3 if "2" in _name else 0, np.float32)))],
       errors=[(dict(input=normal(2, 7, 9, 3), size=[2, 2], offsets=normal(1, 2)), InvalidArgumentError, "first dimension should be batch")])  # fmt: skip
