"""How images differ and vary: psnr, ssim, total variation, gradients, edges."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api import array_ops, math_ops, math_reduce
from penstock.api.control_flow import cond
from penstock.api.framework import name_scope
from penstock.api.image.color import convert_image_dtype
from penstock.api.logging_ops import Assert
from penstock.api.nn.activations import relu, softmax
from penstock.api.nn.convolution import depthwise_conv2d
from penstock.graph.constant import constant
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def total_variation(images: Any, name: str | None = None) -> Tensor:
    """The sum of absolute differences between neighbouring pixels; one for each image of a batch."""
    with name_scope(name, "total_variation"):
        images = convert_to_tensor(images)
        rank = None if images.dims is None else len(images.dims)
        if rank == 3:
            down, right, axes = images[1:, :, :] - images[:-1, :, :], images[:, 1:, :] - images[:, :-1, :], None
        elif rank == 4:
            down, right, axes = images[:, 1:, :, :] - images[:, :-1, :, :], images[:, :, 1:, :] - images[:, :, :-1, :], [1, 2, 3]
        else:
            raise ValueError("'images' must be either 3 or 4-dimensional.")
        return math_reduce.reduce_sum(math_ops.abs(down), axis=axes) + math_reduce.reduce_sum(math_ops.abs(right), axis=axes)


def _check_same_size(a: Tensor, b: Tensor) -> list[Any]:
    """Both must be images of one size."""
    if (a.dims is not None and len(a.dims) < 3) or (b.dims is not None and len(b.dims) < 3):
        raise ValueError(f"Shape {a.shape if len(a.dims or ()) < 3 else b.shape} must have rank at least 3")
    if a.dims is not None and b.dims is not None and not a.shape[-3:].is_compatible_with(b.shape[-3:]):
        raise ValueError(f"Shapes {a.shape} and {b.shape} are incompatible")
    checks = []
    for x, y in ((array_ops.shape(a), array_ops.shape(b)),):
        checks.append(Assert(math_reduce.reduce_all(raw.Equal(x[-3:], y[-3:])), [x, y], summarize=10))
    return checks


def psnr(a: Any, b: Any, max_val: Any, name: str | None = None) -> Tensor:
    """The peak signal-to-noise ratio in decibels; `max_val` is the distance of the largest from the smallest value."""
    with name_scope(name, "PSNR", [a, b]):
        max_val = convert_image_dtype(math_ops.cast(max_val, convert_to_tensor(a).dtype), dtypes.float32)
        a, b = convert_image_dtype(a, dtypes.float32), convert_image_dtype(b, dtypes.float32)
        mse = math_reduce.reduce_mean(raw.SquaredDifference(a, b), [-3, -2, -1])
        value = raw.Sub(
            20 * raw.Log(max_val) / math_ops.log(10.0), np.float32(10 / np.log(10)) * raw.Log(mse), name="psnr"
        )
        with get_default_graph().control_dependencies(_check_same_size(a, b)):
            return array_ops.identity(value)


# -- ssim -------------------------------------------------------------------------------------------------------------


def _gauss(size: Any, sigma: Any) -> Tensor:
    """A bell of `size` by `size` that sums to 1, as a filter."""
    size = convert_to_tensor(size, dtypes.int32)
    sigma = convert_to_tensor(sigma)
    at = math_ops.cast(math_reduce.range_(size), sigma.dtype)
    at = at - math_ops.cast(size - 1, sigma.dtype) / 2.0
    line = raw.Square(at) * (-0.5 / raw.Square(sigma))
    plane = array_ops.reshape(line, shape=[1, -1]) + array_ops.reshape(line, shape=[-1, 1])
    return array_ops.reshape(softmax(array_ops.reshape(plane, shape=[1, -1])), shape=[size, size, 1, 1])


def _ssim_per_channel(x: Tensor, y: Tensor, max_val: Any, size: int, sigma: float, k1: float, k2: float, keep_map: bool = False) -> tuple[Tensor, Tensor]:
    """(structural similarity, contrast-structure measure) of each channel."""
    size_t, sigma_t = constant(size, dtype=dtypes.int32), constant(sigma, dtype=x.dtype)
    shapes = [array_ops.shape(x), array_ops.shape(y)]
    checks = [
        Assert(math_reduce.reduce_all(raw.GreaterEqual(shape[-3:-1], size_t)), [shape, size_t], summarize=8) for shape in shapes
    ]
    with get_default_graph().control_dependencies(checks):
        x = array_ops.identity(x)
    kernel = array_ops.tile(_gauss(size_t, sigma_t), multiples=[1, 1, shapes[0][-1], 1])

    def blur(image: Tensor) -> Tensor:
        shape = array_ops.shape(image)
        flat = array_ops.reshape(image, shape=array_ops.concat([[-1], shape[-3:]], 0))
        out = depthwise_conv2d(flat, kernel, strides=[1, 1, 1, 1], padding="VALID")
        return array_ops.reshape(out, array_ops.concat([shape[:-3], array_ops.shape(out)[1:]], 0))

    c1, c2 = (k1 * max_val) ** 2, (k2 * max_val) ** 2
    mean_x, mean_y = blur(x), blur(y)
    product = mean_x * mean_y * 2.0
    squares = raw.Square(mean_x) + raw.Square(mean_y)
    luminance = (product + c1) / (squares + c1)
    mixed = blur(x * y) * 2.0
    own = blur(raw.Square(x) + raw.Square(y))
    structure = (mixed - product + c2) / (own - squares + c2)
    if keep_map:
        return luminance * structure, structure
    axes = constant([-3, -2], dtype=dtypes.int32)
    return math_reduce.reduce_mean(luminance * structure, axes), math_reduce.reduce_mean(structure, axes)


def _ssim_inputs(img1: Any, img2: Any, max_val: Any) -> tuple[Tensor, Tensor, Tensor]:
    img1, img2 = convert_to_tensor(img1, name="img1"), convert_to_tensor(img2, name="img2")
    checks = _check_same_size(img1, img2)
    with get_default_graph().control_dependencies(checks):
        img1 = array_ops.identity(img1)
    max_val = convert_image_dtype(math_ops.cast(max_val, img1.dtype), dtypes.float32)
    return convert_image_dtype(img1, dtypes.float32), convert_image_dtype(img2, dtypes.float32), max_val


def ssim(
    img1: Any, img2: Any, max_val: Any, filter_size: int = 11, filter_sigma: float = 1.5, k1: float = 0.01, k2: float = 0.03,
    return_index_map: bool = False,
) -> Tensor:  # fmt: skip
    """The structural similarity of images, 1 for equal ones; `return_index_map` gives it for each place."""
    with name_scope(None, "SSIM", [img1, img2]):
        img1, img2, max_val = _ssim_inputs(img1, img2, max_val)
        value, _ = _ssim_per_channel(img1, img2, max_val, filter_size, filter_sigma, k1, k2, return_index_map)
        return math_reduce.reduce_mean(value, [-1])


_SCALES = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)


def ssim_multiscale(
    img1: Any, img2: Any, max_val: Any, power_factors: Any = _SCALES, filter_size: int = 11, filter_sigma: float = 1.5, k1: float = 0.01,
    k2: float = 0.03,
) -> Tensor:  # fmt: skip
    """The structural similarity over several scales, each half the size of the one before."""
    with name_scope(None, "MS-SSIM", [img1, img2]):
        x, y, max_val = _ssim_inputs(img1, img2, max_val)
        images = [x, y]
        heads = [array_ops.shape(image)[:-3] for image in images]
        measures: list[Tensor] = []
        similarity: Any = None
        for k in range(len(power_factors)):
            with name_scope(None, f"Scale{k}", images):
                if k > 0:
                    images = [_halved(image, head) for image, head in zip(images, heads, strict=True)]
                similarity, structure = _ssim_per_channel(images[0], images[1], max_val, filter_size, filter_sigma, k1, k2)
                measures.append(relu(structure))
        measures.pop()  # the last scale counts with its full similarity
        stacked = array_ops.stack([*measures, relu(similarity)], axis=-1)
        return math_reduce.reduce_mean(math_reduce.reduce_prod(math_ops.pow(stacked, list(power_factors)), [-1]), [-1])


def _halved(image: Tensor, head: Tensor) -> Tensor:
    """Means of two by two pixels; an odd last row or column is repeated."""
    tail = array_ops.shape(image)[-3:]
    flat = array_ops.reshape(image, array_ops.concat([[-1], tail], 0))
    odd = math_ops.mod(tail, [2, 2, 1])
    need = raw.Greater(math_reduce.reduce_max(odd), 0)

    def padded() -> Tensor:
        amounts = array_ops.concat([[0], odd], axis=0)
        return array_ops.pad(flat, array_ops.stack([array_ops.zeros_like(amounts), amounts], axis=1), mode="SYMMETRIC")

    even = cond(need, padded, lambda: flat)
    down = raw.AvgPool(even, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    return array_ops.reshape(down, array_ops.concat([head, array_ops.shape(down)[1:]], 0))


# -- gradients --------------------------------------------------------------------------------------------------------


def image_gradients(image: Any) -> tuple[Tensor, Tensor]:
    """(dy, dx): differences to the next row and to the next column, 0 at the end."""
    image = convert_to_tensor(image)
    if image.dims is None or len(image.dims) != 4:
        raise ValueError(f"image_gradients expects a 4D tensor [batch_size, h, w, d], not {image.shape}.")
    batch, height, width, depth = array_ops.unstack(array_ops.shape(image))
    dy = image[:, 1:, :, :] - image[:, :-1, :, :]
    dx = image[:, :, 1:, :] - image[:, :, :-1, :]
    dy = array_ops.concat([dy, array_ops.zeros(array_ops.stack([batch, 1, width, depth]), image.dtype)], 1)
    dy = array_ops.reshape(dy, array_ops.shape(image))
    dx = array_ops.concat([dx, array_ops.zeros(array_ops.stack([batch, height, 1, depth]), image.dtype)], 2)
    dx = array_ops.reshape(dx, array_ops.shape(image))
    return dy, dx


_SOBEL = np.array([[[-1, -2, -1], [0, 0, 0], [1, 2, 1]], [[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]], np.float32)


def sobel_edges(image: Any) -> Tensor:
    """Sobel's edges: [batch, h, w, d] -> [batch, h, w, d, 2] with (dy, dx)."""
    image = convert_to_tensor(image)
    static = image.shape
    shape = array_ops.shape(image)
    kernels = np.expand_dims(np.transpose(_SOBEL, (1, 2, 0)), -2)
    kernel = array_ops.tile(constant(kernels, dtype=dtypes.float32), [1, 1, shape[-1], 1], name="sobel_filters")
    padded = array_ops.pad(image, [[0, 0], [1, 1], [1, 1], [0, 0]], mode="REFLECT")
    output = depthwise_conv2d(padded, kernel, [1, 1, 1, 1], "VALID")
    output = array_ops.reshape(output, shape=array_ops.concat([shape, [2]], 0))
    output.set_shape(static.concatenate([2]))
    return output
