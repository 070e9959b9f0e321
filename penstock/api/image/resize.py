"""`tf.image.resize_images` and its methods."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api import array_ops, math_ops
from penstock.api.framework import name_scope
from penstock.api.image.shapes import as_batch, at_least_3d, check, pad_to_bounding_box, sizes_of
from penstock.graph.constant import constant_value
from penstock.graph.control_flow import with_dependencies
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


class ResizeMethod:
    """How `tf.image.resize_images` finds values between pixels."""

    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


def resize_bilinear(images: Any, size: Any, align_corners: bool = False, name: str | None = None, half_pixel_centers: bool = False) -> Tensor:
    """Resizes a batch of images by weighing the four nearest pixels; the result is float32."""
    return raw.ResizeBilinear(images, size, align_corners=align_corners, half_pixel_centers=half_pixel_centers, name=name)


def resize_nearest_neighbor(images: Any, size: Any, align_corners: bool = False, name: str | None = None, half_pixel_centers: bool = False) -> Tensor:
    """Resizes a batch of images by taking the nearest pixel."""
    return raw.ResizeNearestNeighbor(images, size, align_corners=align_corners, half_pixel_centers=half_pixel_centers, name=name)


def resize_bicubic(images: Any, size: Any, align_corners: bool = False, name: str | None = None, half_pixel_centers: bool = False) -> Tensor:
    """Resizes a batch of images by cubic interpolation; the result is float32."""
    return raw.ResizeBicubic(images, size, align_corners=align_corners, half_pixel_centers=half_pixel_centers, name=name)


def resize_area(images: Any, size: Any, align_corners: bool = False, name: str | None = None) -> Tensor:
    """Resizes a batch of images by averaging the pixels that a new one covers; the result is float32."""
    return raw.ResizeArea(images, size, align_corners=align_corners, name=name)


_METHODS = {
    ResizeMethod.BILINEAR: resize_bilinear, ResizeMethod.NEAREST_NEIGHBOR: resize_nearest_neighbor, ResizeMethod.BICUBIC: resize_bicubic,
    ResizeMethod.AREA: resize_area,
}  # fmt: skip
_NAMES = {"bilinear": 0, "nearest": 1, "bicubic": 2, "area": 3}


def _fitting(size: Tensor, height: Any, width: Any) -> Tensor:
    """The largest size within `size` that keeps the proportions of the image."""
    scale = []
    for wanted, have in ((size[0], height), (size[1], width)):
        scale.append(math_ops.cast(wanted, dtypes.float32) / math_ops.cast(have, dtypes.float32))
    factor = raw.Minimum(scale[0], scale[1])
    sides = [math_ops.cast(math_ops.round(factor * math_ops.cast(n, dtypes.float32)), dtypes.int32) for n in (height, width)]
    return array_ops.stack(sides)


def _resized(images: Any, size: Any, resizer: Any, preserve_aspect_ratio: bool, name: str | None, no_op_if_same: bool) -> Tensor:
    with name_scope(name, "resize", [images, size]):
        images = convert_to_tensor(images, name="images")
        if images.dims is None:
            raise ValueError("'images' contains no shape.")
        if len(images.dims) not in (3, 4):
            raise ValueError("'images' must have either 3 or 4 dimensions.")
        images, batch = as_batch(images)
        assert images.dims is not None
        _, height, width, _ = images.dims
        try:
            size = convert_to_tensor(size, dtypes.int32, name="size")
        except (TypeError, ValueError):
            raise ValueError("'size' must be a 1-D int32 Tensor") from None
        if not size.shape.is_compatible_with([2]):
            raise ValueError("'size' must be a 1-D Tensor of 2 elements: new_height, new_width")
        if preserve_aspect_ratio:
            _, h, w, _ = sizes_of(images, 4)
            size = _fitting(size, h, w)
        known = constant_value(size)
        new_height, new_width = (None, None) if known is None else (int(known[0]), int(known[1]))
        if no_op_if_same and known is not None and (height, width) == (new_height, new_width):
            return images if batch else array_ops.squeeze(images, axis=[0])
        result = resizer(images, size)
        result.set_shape([None, new_height, new_width, None])
        return result if batch else array_ops.squeeze(result, axis=[0])


def resize_images(
    images: Any, size: Any, method: Any = ResizeMethod.BILINEAR, align_corners: bool = False, preserve_aspect_ratio: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """An image or a batch of images in a new (height, width). Images that have that size already are returned as they are."""
    number: Any = _NAMES.get(method, method) if isinstance(method, str) else method

    def resizer(x: Tensor, target: Tensor) -> Tensor:
        function = _METHODS.get(number)
        if function is None:
            raise ValueError(f"Resize method is not implemented: {method}")
        return function(x, target, align_corners=align_corners)

    return _resized(images, size, resizer, preserve_aspect_ratio, name, no_op_if_same=True)


resize = resize_images


def resize_image_with_pad(
    image: Any, target_height: Any, target_width: Any, method: Any = ResizeMethod.BILINEAR, align_corners: bool = False
) -> Tensor:
    """An image in a new size with its proportions kept, and zeros where it does not reach."""
    with name_scope(None, "resize_image_with_pad", [image]):
        image, batch = as_batch(convert_to_tensor(image, name="tensor"))
        image = at_least_3d(image)
        checks = [*check(target_width > 0, "target_width must be > 0."), *check(target_height > 0, "target_height must be > 0.")]
        image = with_dependencies(checks, image) if checks else image
        _, height, width, _ = sizes_of(image, 4)
        f_height, f_width = math_ops.cast(height, dtypes.float32), math_ops.cast(width, dtypes.float32)
        goal_height, goal_width = math_ops.cast(target_height, dtypes.float32), math_ops.cast(target_width, dtypes.float32)
        ratio = raw.Maximum(f_width / goal_width, f_height / goal_height)
        exact_height, exact_width = f_height / ratio, f_width / ratio
        new_height = math_ops.cast(raw.Floor(exact_height), dtypes.int32)
        new_width = math_ops.cast(raw.Floor(exact_width), dtypes.int32)
        # As in TF, the margins come from the exact size, not from the rounded one.
        above = raw.Maximum(0, math_ops.cast(raw.Floor((goal_height - exact_height) / 2), dtypes.int32))
        left = raw.Maximum(0, math_ops.cast(raw.Floor((goal_width - exact_width) / 2), dtypes.int32))
        resized = resize_images(image, array_ops.stack([new_height, new_width]), method, align_corners)
        padded = pad_to_bounding_box(resized, above, left, target_height, target_width)
        if padded.dims is None:
            raise ValueError("padded contains no shape.")
        return padded if batch else array_ops.squeeze(padded, axis=[0])
