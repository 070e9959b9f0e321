"""Checks of images' shapes, and what flips, turns, crops and pads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api import array_ops, math_ops, random_ops
from penstock.api.array_indexing import reverse, slice_
from penstock.api.check_ops import assert_greater_equal, assert_positive
from penstock.api.control_flow import case, cond
from penstock.api.framework import name_scope
from penstock.api.logging_ops import Assert
from penstock.graph.constant import constant_value
from penstock.graph.control_flow import with_dependencies
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

# -- checks -----------------------------------------------------------------------------------------------------------


def at_least_3d(image: Tensor) -> Tensor:
    """`image`, after a check that it has three dimensions or more and no empty ones among the last three."""
    if image.dims is not None and len(image.dims) < 3:
        raise ValueError(f"'image' (shape {image.shape}) must be at least three-dimensional.")
    last = image.dims[-3:] if image.dims is not None else (None,) * 3
    if any(d == 0 for d in last):
        raise ValueError(f"inner 3 dims of 'image.shape' must be > 0: {image.shape}")
    if None not in last:
        return with_dependencies([], image)
    checks = [
        assert_positive(array_ops.shape(image)[-3:], ["inner 3 dims of 'image.shape' must be > 0."]),
        assert_greater_equal(array_ops.rank(image), 3, message="'image' must be at least three-dimensional."),
    ]
    return with_dependencies(checks, image)


def check(condition: Any, text: str) -> list[Any]:
    """A check of a condition that may be known now (ValueError) or only later (InvalidArgumentError)."""
    if isinstance(condition, Tensor):
        return [Assert(condition, [text])]
    if not condition:
        raise ValueError(text)
    return []


def sizes_of(image: Tensor, rank: int) -> list[Any]:
    """The sizes of all dimensions, as numbers where they are known."""
    static = list(image.dims) if image.dims is not None else [None] * rank
    if None not in static:
        return static
    dynamic = array_ops.unstack(array_ops.shape(image), rank)
    return [d if s is None else s for s, d in zip(static, dynamic, strict=True)]


def as_batch(image: Tensor) -> tuple[Tensor, bool]:
    """(a batch of images, whether it was one before)."""
    if image.dims is None:
        image.set_shape([None] * 4)
        return image, True
    if len(image.dims) == 3:
        return array_ops.expand_dims(image, 0), False
    if len(image.dims) != 4:
        raise ValueError(f"'image' (shape {image.shape}) must have either 3 or 4 dimensions.")
    return image, True


# -- flips and turns --------------------------------------------------------------------------------------------------


def _same_shape(image: Tensor, result: Tensor) -> Tensor:
    result.set_shape([None, None, None] if image.dims is None else image.shape)
    return result


def _flip(image: Any, axis: int, name: str) -> Tensor:
    with name_scope(None, name, [image]):
        image = at_least_3d(convert_to_tensor(image, name="image"))
        if image.dims is None:
            return cond(raw.Equal(array_ops.rank(image), 3), lambda: reverse(image, [axis]), lambda: reverse(image, [axis + 1]))
        if len(image.dims) == 3:
            return _same_shape(image, reverse(image, [axis]))
        if len(image.dims) == 4:
            return reverse(image, [axis + 1])
        raise ValueError(f"'image' (shape {image.shape})must have either 3 or 4 dimensions.")


def flip_left_right(image: Any) -> Tensor:
    """Mirrors left and right."""
    return _flip(image, 1, "flip_left_right")


def flip_up_down(image: Any) -> Tensor:
    """Mirrors top and bottom."""
    return _flip(image, 0, "flip_up_down")


def _random_flip(image: Any, axis: int, seed: int | None, name: str) -> Tensor:
    with name_scope(None, name, [image]) as scope:
        image = at_least_3d(convert_to_tensor(image, name="image"))

        def one() -> Tensor:
            coin = random_ops.random_uniform([], 0, 1.0, seed=seed)
            flipped = cond(coin < 0.5, lambda: reverse(image, [axis]), lambda: image, name=scope)
            return _same_shape(image, flipped)

        def many() -> Tensor:
            batch = array_ops.shape(image)[0]
            coins = random_ops.random_uniform([batch], 0, 1.0, seed=seed)
            flips = math_ops.round(array_ops.reshape(coins, [batch, 1, 1, 1]))
            flips = math_ops.cast(flips, image.dtype)
            return flips * reverse(image, [axis + 1]) + (1 - flips) * image

        if image.dims is None:
            return cond(raw.Equal(array_ops.rank(image), 3), one, many)
        if len(image.dims) == 3:
            return one()
        if len(image.dims) == 4:
            return many()
        raise ValueError(f"'image' (shape {image.shape}) must have either 3 or 4 dimensions.")


def random_flip_left_right(image: Any, seed: int | None = None) -> Tensor:
    """Mirrors left and right, or not, at random; each image of a batch on its own."""
    return _random_flip(image, 1, seed, "random_flip_left_right")


def random_flip_up_down(image: Any, seed: int | None = None) -> Tensor:
    """Mirrors top and bottom, or not, at random; each image of a batch on its own."""
    return _random_flip(image, 0, seed, "random_flip_up_down")


def rot90(image: Any, k: Any = 1, name: str | None = None) -> Tensor:
    """Turns by 90 degrees counter-clockwise, `k` times."""
    with name_scope(name, "rot90", [image, k]) as scope:
        image = at_least_3d(convert_to_tensor(image, name="image"))
        k = convert_to_tensor(k, dtype=dtypes.int32, name="k")
        if k.dims is None or len(k.dims) != 0:
            raise ValueError(f"Shape must be rank 0 but is rank {'unknown' if k.dims is None else len(k.dims)}")
        times = raw.FloorMod(k, 4, name="mod")
        if image.dims is None:
            return cond(raw.Equal(array_ops.rank(image), 3), lambda: _turned(image, times, 0, scope), lambda: _turned(image, times, 1, scope))
        if len(image.dims) not in (3, 4):
            raise ValueError(f"'image' (shape {image.shape}) must have either 3 or 4 dimensions.")
        return _turned(image, times, len(image.dims) - 3, scope)


def _turned(image: Tensor, times: Tensor, first: int, scope: str) -> Tensor:
    rows, columns = first, first + 1
    swap = [*range(first), columns, rows, first + 2]

    def once() -> Tensor:
        return array_ops.transpose(reverse(image, [columns]), swap)

    def twice() -> Tensor:
        return reverse(image, [rows, columns])

    def thrice() -> Tensor:
        return reverse(array_ops.transpose(image, swap), [columns])

    cases = [(raw.Equal(times, 1), once), (raw.Equal(times, 2), twice), (raw.Equal(times, 3), thrice)]
    result = case(cases, default=lambda: image, exclusive=True, name=scope)
    head = [None] * first if image.dims is None else list(image.dims[:first])
    result.set_shape([*head, None, None, None if image.dims is None else image.dims[-1]])
    return result


def transpose(image: Any, name: str | None = None) -> Tensor:
    """Exchanges height and width."""
    with name_scope(name, "transpose", [image]):
        image = at_least_3d(convert_to_tensor(image, name="image"))
        if image.dims is None:
            three = raw.Equal(array_ops.rank(image), 3)
            return cond(three, lambda: array_ops.transpose(image, [1, 0, 2]), lambda: array_ops.transpose(image, [0, 2, 1, 3]))
        if len(image.dims) == 3:
            return array_ops.transpose(image, [1, 0, 2], name="transpose")
        if len(image.dims) == 4:
            return array_ops.transpose(image, [0, 2, 1, 3], name="transpose")
        raise ValueError(f"'image' (shape {image.shape}) must have either 3 or 4 dimensions.")


transpose_image = transpose


# -- crops and pads ---------------------------------------------------------------------------------------------------


def central_crop(image: Any, central_fraction: Any) -> Tensor:
    """The middle of an image: this share of its height and of its width."""
    with name_scope(None, "central_crop", [image]):
        image = convert_to_tensor(image, name="image")
        fraction = constant_value(central_fraction) if isinstance(central_fraction, Tensor) else central_fraction
        if fraction is not None:
            if fraction <= 0.0 or fraction > 1.0:
                raise ValueError("central_fraction must be within (0, 1]")
            if fraction == 1.0:
                return image
        rank = None if image.dims is None else len(image.dims)
        if rank not in (3, 4):
            raise ValueError(f"`image` should either be a Tensor with rank = 3 or rank = 4. Had rank = {rank}.")
        at_least_3d(image)
        assert image.dims is not None
        axes = (0, 1) if rank == 3 else (1, 2)
        starts: list[Any] = []
        lengths: list[Any] = []
        for axis in axes:
            size = image.dims[axis]
            if size is not None and fraction is not None:
                start = int((size - size * float(fraction)) / 2)
                starts.append(start)
                lengths.append(size - start * 2)
            else:
                dynamic = array_ops.shape(image)[axis]
                wide = math_ops.cast(dynamic, dtypes.float64)
                start = math_ops.cast((wide - wide * math_ops.cast(central_fraction, dtypes.float64)) / 2, dtypes.int32)
                starts.append(start)
                lengths.append(dynamic - start * 2)
        begin = [*starts, 0] if rank == 3 else [0, *starts, 0]
        size_ = [*lengths, -1] if rank == 3 else [-1, *lengths, -1]
        result = slice_(image, array_ops.stack(begin), array_ops.stack(size_))
        static = [None if isinstance(n, Tensor) else n for n in lengths]
        result.set_shape([*static, image.dims[-1]] if rank == 3 else [image.dims[0], *static, image.dims[-1]])
        return result


def crop_to_bounding_box(image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any) -> Tensor:
    """The part of an image that begins at an offset and has the target size."""
    with name_scope(None, "crop_to_bounding_box", [image]):
        image, batch = as_batch(convert_to_tensor(image, name="image"))
        image = at_least_3d(image)
        count, height, width, depth = sizes_of(image, 4)
        checks = [
            *check(offset_width >= 0, "offset_width must be >= 0."),
            *check(offset_height >= 0, "offset_height must be >= 0."),
            *check(target_width > 0, "target_width must be > 0."),
            *check(target_height > 0, "target_height must be > 0."),
            *check(width >= (target_width + offset_width), "width must be >= target + offset."),
            *check(height >= (target_height + offset_height), "height must be >= target + offset."),
        ]
        image = with_dependencies(checks, image) if checks else image
        begin = array_ops.stack([0, offset_height, offset_width, 0])
        size = array_ops.stack([array_ops.shape(image)[0], target_height, target_width, array_ops.shape(image)[3]])
        cropped = slice_(image, begin, size)
        cropped.set_shape([None if isinstance(n, Tensor) else n for n in (count, target_height, target_width, depth)])
        return cropped if batch else array_ops.squeeze(cropped, axis=[0])


def pad_to_bounding_box(image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any) -> Tensor:
    """An image with zeros around it: the image begins at the offset, the result has the target size."""
    with name_scope(None, "pad_to_bounding_box", [image]):
        image, batch = as_batch(convert_to_tensor(image, name="image"))
        image = at_least_3d(image)
        count, height, width, depth = sizes_of(image, 4)
        after_width = target_width - offset_width - width
        after_height = target_height - offset_height - height
        checks = [
            *check(offset_height >= 0, "offset_height must be >= 0"),
            *check(offset_width >= 0, "offset_width must be >= 0"),
            *check(after_width >= 0, "width must be <= target - offset"),
            *check(after_height >= 0, "height must be <= target - offset"),
        ]
        image = with_dependencies(checks, image) if checks else image
        amounts = array_ops.stack([0, 0, offset_height, after_height, offset_width, after_width, 0, 0])
        padded = array_ops.pad(image, array_ops.reshape(amounts, [4, 2]))
        padded.set_shape([None if isinstance(n, Tensor) else n for n in (count, target_height, target_width, depth)])
        return padded if batch else array_ops.squeeze(padded, axis=[0])


def resize_with_crop_or_pad(image: Any, target_height: Any, target_width: Any) -> Tensor:
    """The target size, by cutting off or adding zeros evenly on both sides."""
    with name_scope(None, "resize_image_with_crop_or_pad", [image]):
        image, batch = as_batch(convert_to_tensor(image, name="image"))
        image = at_least_3d(image)
        checks = [*check(target_width > 0, "target_width must be > 0."), *check(target_height > 0, "target_height must be > 0.")]
        image = with_dependencies(checks, image) if checks else image
        if isinstance(target_height, Tensor) and checks:
            target_height = with_dependencies(checks, target_height)
        if isinstance(target_width, Tensor) and checks:
            target_width = with_dependencies(checks, target_width)
        _, height, width, _ = sizes_of(image, 4)
        more_width, more_height = target_width - width, target_height - height
        cropped = crop_to_bounding_box(
            image, _larger(-more_height // 2, 0), _larger(-more_width // 2, 0), _smaller(target_height, height), _smaller(target_width, width)
        )
        resized = pad_to_bounding_box(cropped, _larger(more_height // 2, 0), _larger(more_width // 2, 0), target_height, target_width)
        _, new_height, new_width, _ = sizes_of(resized, 4)
        checks = [
            *check(_equal(new_height, target_height), "resized height is not correct."),
            *check(_equal(new_width, target_width), "resized width is not correct."),
        ]
        resized = with_dependencies(checks, resized)
        return resized if batch else array_ops.squeeze(resized, axis=[0])


resize_image_with_crop_or_pad = resize_with_crop_or_pad


def _larger(x: Any, y: Any) -> Any:
    return raw.Maximum(x, y) if isinstance(x, Tensor) or isinstance(y, Tensor) else max(x, y)


def _smaller(x: Any, y: Any) -> Any:
    return raw.Minimum(x, y) if isinstance(x, Tensor) or isinstance(y, Tensor) else min(x, y)


def _equal(x: Any, y: Any) -> Any:
    return raw.Equal(x, y) if isinstance(x, Tensor) or isinstance(y, Tensor) else bool(np.equal(x, y))
