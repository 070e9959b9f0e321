"""Resizing of images, and the gradients of the methods that have one."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, with_rank
from penstock.ops.kernels import resize
from penstock.ops.samples import arr, empty, ints, normal, uniform


def resize_shape(c: Any) -> Dims:
    """(batch, height, width, channels) with height and width from input 1."""
    dims = with_rank(c, 0, 4)
    assert dims is not None
    (length,) = with_rank(c, 1, 1)  # type: ignore[misc]
    if length not in (None, 2):
        raise ValueError(f"Dimension must be 2 but is {length}")
    size = c.const_dims(1)
    return (dims[0], *(size if size is not None else (None, None)), dims[3])


def corner_attrs(op: Any) -> dict[str, Any]:
    return {name: op.attr(name) for name in ("align_corners", "half_pixel_centers")}


def grad_for(name: str, types: frozenset[Any]) -> Any:
    """A gradient through op `name`, for images of `types`; images of whole numbers have none."""

    def rule(g: Any, op: Any, dy: Any) -> list[Any]:
        images = op.images
        if images.dtype not in types:
            return [None, None]
        return [getattr(g, name)(dy, images, **corner_attrs(op)), None]

    return rule


def nearest_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    dims = op.images.dims
    if dims is not None and None not in dims[1:3]:
        size = g.const(list(dims[1:3]), "int32")
    else:
        size = g.StridedSlice(g.Shape(op.images), [1], [3], [1])
    return [g.ResizeNearestNeighborGrad(dy, size, **corner_attrs(op)), None]


MODES = [dict(), dict(align_corners=True), dict(half_pixel_centers=True)]


def image_samples(modes: list[dict[str, bool]]) -> list[dict[str, Any]]:
    found = [
        dict(images=uniform(2, 4, 5, 3, lo=0, hi=100), size=arr(size), **mode)
        for mode in modes
        for size in ((8, 10), (3, 2), (7, 9), (4, 5))
    ]
    return [*found, dict(images=uniform(1, 1, 1, 2, lo=0, hi=100), size=arr((3, 4))), dict(images=empty(0, 4, 5, 3), size=arr((2, 3)))]


IMAGE_ERRORS = [
    (dict(images=normal(4, 5, 3), size=[2, 2]), InvalidArgumentError, "input must be 4-dimensional"),
    (dict(images=normal(1, 4, 5, 3), size=[2]), InvalidArgumentError, "shape_t must have two elements"),
    (dict(images=normal(1, 4, 5, 3), size=[0, 2]), InvalidArgumentError, "output dimensions must be positive"),
]
BOTH_ERROR = (
    dict(images=normal(1, 4, 5, 3), size=[2, 2], align_corners=True, half_pixel_centers=True),
    InvalidArgumentError,
    "If half_pixel_centers is True, align_corners must be False",
)
GRAD_SAMPLES = [
    *(dict(grads=normal(2, *size, 3), original_image=normal(2, 4, 5, 3, dtype=np.float32), **mode) for mode in MODES for size in ((8, 10), (3, 2), (7, 9))),
    # Weights and sums without rounding, for every type.
    dict(grads=ints(2, 8, 10, 3, lo=-4, hi=5), original_image=normal(2, 4, 5, 3)),
    dict(grads=ints(2, 7, 9, 3, lo=-4, hi=5), original_image=normal(2, 4, 5, 3), align_corners=True),
]  # fmt: skip

op("ResizeBilinear(images: T, size: int32) -> (resized_images: float)"
   " [T: type in {int8, uint8, int16, uint16, int32, int64, bfloat16, half, float, double, bfloat16}; align_corners: bool = false; half_pixel_centers: bool = false]",
   shape=resize_shape, numpy=resize.resize_bilinear, grad=grad_for("ResizeBilinearGrad", dtypes.FLOATS), expensive=True, host_memory=["size"],
   samples=image_samples(MODES), errors=[*IMAGE_ERRORS, BOTH_ERROR])  # fmt: skip

op("ResizeBilinearGrad(grads: float, original_image: T) -> (output: T) [T: type in {float, bfloat16, half, double}; align_corners: bool = false; half_pixel_centers: bool = false]",
   shape=lambda c: c.dims(1), numpy=resize.resize_bilinear_grad, grad=NOT_DIFFERENTIABLE, expensive=True, samples=GRAD_SAMPLES)  # fmt: skip

op("ResizeBicubic(images: T, size: int32) -> (resized_images: float)"
   " [T: type in {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}; align_corners: bool = false; half_pixel_centers: bool = false]",
   shape=resize_shape, numpy=resize.resize_bicubic, grad=grad_for("ResizeBicubicGrad", frozenset({dtypes.float32, dtypes.float64})), expensive=True, host_memory=["size"],
   samples=image_samples(MODES), errors=[*IMAGE_ERRORS, BOTH_ERROR])  # fmt: skip

op("ResizeBicubicGrad(grads: float, original_image: T) -> (output: T) [T: type in {float, double}; align_corners: bool = false; half_pixel_centers: bool = false]",
   shape=lambda c: c.dims(1), numpy=resize.resize_bicubic_grad, expensive=True, samples=GRAD_SAMPLES)  # fmt: skip

op("ResizeArea(images: T, size: int32) -> (resized_images: float)"
   " [T: type in {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}; align_corners: bool = false]",
   shape=resize_shape, numpy=resize.resize_area, expensive=True, host_memory=["size"],
   samples=image_samples(MODES[:2]), errors=IMAGE_ERRORS)  # fmt: skip

op("ResizeNearestNeighbor(images: T, size: int32) -> (resized_images: T)"
   " [T: type in {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}; align_corners: bool = false; half_pixel_centers: bool = false]",
   shape=resize_shape, numpy=resize.resize_nearest_neighbor, grad=nearest_grad, host_memory=["size"],
   samples=image_samples(MODES), errors=[*IMAGE_ERRORS, BOTH_ERROR])  # fmt: skip

op("ResizeNearestNeighborGrad(grads: T, size: int32) -> (output: T)"
   " [T: type in {uint8, int8, int32, half, float, double, bfloat16}; align_corners: bool = false; half_pixel_centers: bool = false]",
   shape=resize_shape, numpy=resize.resize_nearest_neighbor_grad, expensive=True, host_memory=["size"],
   samples=[dict(grads=normal(2, *size, 3), size=arr((4, 5)), **mode) for mode in MODES for size in ((8, 10), (3, 2), (7, 9))],
   errors=[(dict(grads=normal(1, 4, 5, 3), size=[0, 2]), InvalidArgumentError, "shape_t's elements must be positive")])  # fmt: skip
