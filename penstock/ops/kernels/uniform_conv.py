"""Convolutions of uniformly quantised tensors: any order of dimensions, any number of spatial ones, groups, and dilations on both sides.

Whole numbers are multiplied after taking away the zero point; borders, and holes of a dilated input, hold the zero point itself.
Products of floats are exact as long as every partial sum is (see `quantized_products`); sums wrap around as int32 does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.ops.kernels.conv import correlate
from penstock.ops.kernels.patches import pad, taps
from penstock.ops.kernels.quantized_products import wrapped
from penstock.ops.kernels.uniform import byte_rows, limited, multiplied
from penstock.ops.kernels.window import Slide
from penstock.shapes import format_dims

_F = np.float32

ATTRS = ("window_strides", "padding", "explicit_padding", "lhs_dilation", "rhs_dilation", "batch_group_count", "feature_group_count", "dimension_numbers")


class Plan(NamedTuple):
    """One convolution for given shapes. Orders are transpositions: of the input to (N, *spatial, C), of the kernel to
    (*window, I, O), and of the result (N, *spatial, O) to the output's order."""

    input: tuple[int, ...]
    kernel: tuple[int, ...]
    output: tuple[int, ...]
    slides: tuple[Slide, ...]
    dilation: tuple[int, ...]
    feature_groups: int
    batch_groups: int
    shape: tuple[int, ...]

    @property
    def out_features(self) -> int:
        return self.shape[self.output.index(len(self.shape) - 1)]


# ---------------------------------------------------------------------------------------------------------------------
# Attributes and shapes


def plan(lhs: Sequence[int], rhs: Sequence[int], attrs: dict[str, Any]) -> Plan:
    """The convolution of two shapes; ValueError in TF's words if attributes and shapes do not fit."""
    values = (attrs[name] for name in ATTRS)
    return _plan(tuple(lhs), tuple(rhs), *(tuple(v) if isinstance(v, list) else v for v in values))


@functools.lru_cache(maxsize=256)
def _plan(lhs: tuple[int, ...], rhs: tuple[int, ...], window_strides: tuple[int, ...], padding: bytes, explicit_padding: tuple[int, ...], lhs_dilation: tuple[int, ...],
          rhs_dilation: tuple[int, ...], batch_group_count: int, feature_group_count: int, dimension_numbers: bytes) -> Plan:  # fmt: skip
    rank = len(lhs)
    if rank != len(rhs):
        raise ValueError(f"lhs and rhs must have same dims. Given lhs and rhs of shapes: {_shape(lhs)}{_shape(rhs)}")
    if rank <= 2:
        raise ValueError(f"lhs and rhs shape dims must be at least 3. Given: {rank}")
    strides, holes, spread = (
        _per_spatial(name, values, rank - 2)
        for name, values in (("window_strides", window_strides), ("lhs_dilation", lhs_dilation), ("rhs_dilation", rhs_dilation))
    )
    order, kernel, target = _orders(dimension_numbers, rank)
    _check_padding(padding, explicit_padding, rank)
    _check_features(lhs[order[0]], lhs[order[-1]], rhs[kernel[-2]], rhs[kernel[-1]], batch_group_count, feature_group_count)
    slides = []
    for i in range(rank - 2):
        size, window, stride = _dilated(lhs[order[i + 1]], holes[i]), rhs[kernel[i]], strides[i]
        reach, before, after = _dilated(window, spread[i]), 0, 0
        if padding == b"SAME":
            missing = max(0, (-(-size // stride) - 1) * stride + reach - size)
            before, after = missing // 2, missing - missing // 2
        elif padding == b"EXPLICIT":
            before, after = explicit_padding[2 * i : 2 * i + 2]
        room = size + before + after - reach + stride
        out = room // stride if room >= 0 else -(-room // stride)  # towards zero: a window a little too large has no positions
        slides.append(Slide(size, window, stride, spread[i], out, before, after))
    last = (lhs[order[0]] // batch_group_count, *(s.out for s in slides), rhs[kernel[-1]])
    shape = tuple(last[i] for i in target)
    if min(shape) < 0:
        raise ValueError(f"Expected shape dimensions to be non-negative, got {next(size for size in shape if size < 0)}")
    return Plan(order, kernel, target, tuple(slides), holes, feature_group_count, batch_group_count, shape)


def _shape(dims: Sequence[int]) -> str:
    return "[" + ",".join(map(str, dims)) + "]"


def _dilated(size: int, dilation: int) -> int:
    return size + (dilation - 1) * (size - 1) if size else 0


def _per_spatial(name: str, values: tuple[int, ...], count: int) -> tuple[int, ...]:
    if not values:
        return (1,) * count
    if len(values) != count:
        raise ValueError(f"Size of {name} Attr must be dims - 2.")
    if min(values) < 1:
        raise ValueError(f"All elements of {name} must be >= 1. Given {', '.join(map(str, values))}")
    return values


def _orders(dimension_numbers: bytes, rank: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The transpositions of a Plan. Without dimension numbers, features come second: (N, C, *), (O, I, *), (N, O, *)."""
    spatial = tuple(range(2, rank))
    if not dimension_numbers:
        return (0, *spatial, 1), (*spatial, 1, 0), (0, rank - 1, *range(1, rank - 1))
    from google.protobuf.message import DecodeError

    from penstock.formats.protos import UniformQuantizedConvolutionDimensionNumbersAttr

    try:
        numbers = UniformQuantizedConvolutionDimensionNumbersAttr.FromString(dimension_numbers)
    except DecodeError:
        raise ValueError("Error parsing convolution dimension numbers.") from None
    order = (numbers.input_batch_dimension, *numbers.input_spatial_dimensions, numbers.input_feature_dimension)
    kernel = (*numbers.kernel_spatial_dimensions, numbers.kernel_input_feature_dimension, numbers.kernel_output_feature_dimension)
    target = (numbers.output_batch_dimension, *numbers.output_spatial_dimensions, numbers.output_feature_dimension)
    for given in (order, kernel, target):
        if len(given) != rank:
            raise ValueError(f"Spatial dimensions size must be rank - 2. Given rank {rank} and spatial dimensions size {len(given) - 2}")
        for number in given:
            if not 0 <= number < rank:
                raise ValueError(f"Each dimension number must be in region [0, rank). Given rank {rank} and dimension number value {number}")
        if len(set(given)) != rank:
            raise ValueError(f"Dimension numbers must name every dimension once. Given {', '.join(map(str, given))}")
    return order, kernel, tuple(target.index(i) for i in range(rank))


def _check_padding(padding: bytes, explicit: tuple[int, ...], rank: int) -> None:
    name = padding.decode(errors="replace")
    if name not in ("EXPLICIT", "SAME", "VALID"):
        raise ValueError(f"padding Attr must be one of [EXPLICIT | SAME | VALID], but given: {name}")
    if name != "EXPLICIT":
        if explicit:
            raise ValueError(f"If padding Attr is not 'EXPLICIT', explicit_padding Attr must be empty. Given padding {name} and explicit_padding of size {len(explicit)}")
        return
    if len(explicit) != 2 * (rank - 2):
        raise ValueError(f"Size of explicit_padding Attr must be 2 * (rank - 2). Given rank {rank} and explicit_padding of size {len(explicit)}")
    if min(explicit) < 0:
        raise ValueError(f"All explicit_padding elems must be >= 0, Given {', '.join(map(str, explicit))}")


def _check_features(batch: int, features: int, inputs: int, outputs: int, batch_groups: int, feature_groups: int) -> None:
    if feature_groups <= 0:
        raise ValueError(f"feature_group_count must be a positive integer, given: {feature_groups}")
    if batch_groups <= 0:
        raise ValueError(f"batch_group_count Attr must be a positive integer. Given: {batch_groups}")
    if batch % batch_groups:
        raise ValueError(f"batch_group_count must divide lhs batch dimension size, but {batch_groups} does not divide {batch}")
    if features % feature_groups:
        raise ValueError(f"feature_group_count must divide lhs feature dimension size, but {feature_groups} does not divide {features}")
    if not inputs or features % inputs:
        raise ValueError(f"rhs input feature dimension must divide lhs feature dimension size, but {inputs} does not divide {features}")
    if features // feature_groups != inputs:
        raise ValueError(
            f"lhs feature dimension size divided by feature_group_count must equal the rhs input feature dimension size, but {features} / {feature_groups} != {inputs}"
        )
    for name, groups in (("batch_group_count", batch_groups), ("feature_group_count", feature_groups)):
        if outputs % groups:
            raise ValueError(f"rhs output dimension size must be a multiple of {name}, but {outputs} is not a multiple of {groups}")


# ---------------------------------------------------------------------------------------------------------------------
# Scales and zero points


def _check_positive(what: str, scales: Any) -> None:
    if not np.all(np.asarray(scales) > 0):
        raise InvalidArgumentError(f"{what} scales elements must be all positive.")


def _check_parameters(scales: Any, zeros: Any, axis: int, size: int) -> None:
    """Scalars for all of a tensor, or one number for each of `size` features along `axis`."""
    one, other = np.shape(scales), np.shape(zeros)
    if one != other:
        raise InvalidArgumentError(f"scales and zero_points shape must be same, but given scales shape {format_dims(one)} and zero_points shape {format_dims(other)}")
    if axis == -1 and one:
        raise InvalidArgumentError(
            f"If quantization_axis is -1, scales and zero_points must be scalar tensors, but given scales shape {format_dims(one)} and zero_points shape {format_dims(other)}"
        )
    if axis != -1 and one != (size,):
        raise InvalidArgumentError(
            "If quantization_axis is not -1, scales and zero_points must be a tensor of rank 1 and the size must be equal to the input.dim_size(quantization_axis),"
            f" but given quantization_axis {axis}, scales shape {format_dims(one)} and zero_points shape {format_dims(other)}"
        )


def _checked_plan(x: Any, w: Any, attrs: dict[str, Any]) -> Plan:
    try:
        return plan(np.shape(x), np.shape(w), attrs)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None


def _check_kernel(p: Plan, scales: Any, zeros: Any, axis: int) -> None:
    if axis not in (-1, p.kernel[-1]):
        raise InvalidArgumentError("rhs_quantization_axis Attr must be -1 (per-tensor) or dimension_numbers.kernel_output_feature_dimension (per-channel).")
    _check_parameters(scales, zeros, axis, p.out_features)


# ---------------------------------------------------------------------------------------------------------------------
# Sums of products


def _exact(p: Plan, depth: int, *reaches: int) -> Any:
    """The fastest type in which all sums are exact, if the operands lie within `reaches` of zero."""
    largest = max(1, math.prod((depth, *(s.window for s in p.slides), *reaches)))
    return _F if largest <= 1 << 24 else np.float64 if largest <= 1 << 53 else np.int64


def _reach(zeros: Any) -> int:
    """How far a signed byte may be from its zero point."""
    return max(127 - int(np.min(zeros, initial=0)), int(np.max(zeros, initial=0)) + 128)


def _shifted(x: np.ndarray, zeros: Any, dtype: Any) -> np.ndarray:
    """`x - zeros` as `dtype`; zero points are scalars, or lie along the last dimension."""
    wide = x.astype(dtype)
    return np.subtract(wide, np.asarray(zeros).astype(dtype), out=wide) if np.any(zeros) else wide


def _framed(x: np.ndarray, p: Plan, fill: Any) -> np.ndarray:
    """`x` (N, *spatial, C) with `fill` between its cells and around them; untouched if windows have no cells."""
    if not all(s.window for s in p.slides):
        return x
    if any(d > 1 for d in p.dilation):
        wide = np.full((x.shape[0], *(s.size for s in p.slides), x.shape[-1]), fill, x.dtype)
        wide[(slice(None), *(slice(None, None, d) for d in p.dilation))] = x
        x = wide
    return pad(x, p.slides, fill)


def _sums(x: np.ndarray, w: np.ndarray, p: Plan) -> np.ndarray:
    """(N, *spatial, O): what the framed `x` (N, *spatial, C) and `w` (*window, I, O) give, group by group."""
    slides = [s._replace(size=size, before=0, after=0) for s, size in zip(p.slides, x.shape[1:-1], strict=True)]
    features, batches = p.feature_groups, p.batch_groups
    if features == 1 and batches == 1:
        return correlate(x, w, slides)
    if w.shape[-2] == 1 and batches == 1:
        return _depthwise(x, w, slides)
    # A part of the output features is made of one group of images and one group of input features.
    parts = math.lcm(features, batches)
    images, depth, width = x.shape[0] // batches, w.shape[-2], w.shape[-1] // parts
    found = []
    for i in range(parts):
        image, feature = i * batches // parts * images, i * features // parts * depth
        piece = np.ascontiguousarray(x[image : image + images, ..., feature : feature + depth])
        found.append(correlate(piece, np.ascontiguousarray(w[..., i * width : (i + 1) * width]), slides))
    return np.concatenate(found, -1)


def _depthwise(x: np.ndarray, w: np.ndarray, slides: Sequence[Slide]) -> np.ndarray:
    """One input feature for each output feature."""
    shape = (x.shape[0], *(s.out for s in slides), w.shape[-1])
    total = np.zeros(shape, x.dtype)
    if not total.size or not w.size:
        return total
    part = np.empty_like(total)
    times = w.shape[-1] // x.shape[-1]
    for offsets, index in taps(slides):
        cells = x[index] if times == 1 else np.repeat(x[index], times, -1)
        total += np.multiply(cells, w[(*offsets, 0)], out=part)
    return total


def _kernel(w: Any, p: Plan) -> np.ndarray:
    return np.ascontiguousarray(w.transpose(p.kernel))


def _arranged(y: np.ndarray, p: Plan) -> np.ndarray:
    return np.ascontiguousarray(y.transpose(p.output))


def convolution(x: Any, w: Any, x_scales: Any, x_zeros: Any, w_scales: Any, w_zeros: Any, out_scales: Any, out_zeros: Any, *, Tout: DType, lhs_quantization_axis: int,
                rhs_quantization_axis: int, output_quantization_axis: int, output_quantization_min_val: int, output_quantization_max_val: int, node: Any) -> Any:  # fmt: skip
    if lhs_quantization_axis != -1:
        raise InvalidArgumentError("lhs_quantization_axis Attr must be -1 (per-tensor).")
    for what, scales in (("lhs", x_scales), ("rhs", w_scales), ("output", out_scales)):
        _check_positive(what, scales)
    p = _checked_plan(x, w, node.attrs)
    if np.ndim(x_scales) or np.ndim(x_zeros):
        raise InvalidArgumentError(f"lhs scales/zero_points must be all scalar tensors. Given: {format_dims(np.shape(x_scales))}{format_dims(np.shape(x_zeros))}")
    _check_kernel(p, w_scales, w_zeros, rhs_quantization_axis)
    if output_quantization_axis not in (-1, p.output.index(len(p.shape) - 1)):
        raise InvalidArgumentError("output_quantization_axis Attr must be -1 (per-tensor) or dimension_numbers.output_feature_dimension (per-channel).")
    _check_parameters(out_scales, out_zeros, output_quantization_axis, p.out_features)
    if np.ndim(out_scales) and not np.ndim(w_scales):
        raise InvalidArgumentError(f"If rhs is per-tensor quantized, output must be also per-tensor quantized. Given output scales/zero_points of rank {np.ndim(out_scales)}")
    factor = np.asarray(x_scales, np.float64) * np.asarray(w_scales, np.float64) / np.asarray(out_scales, np.float64)
    dtype = _exact(p, w.shape[p.kernel[-2]], _reach(x_zeros), _reach(w_zeros))
    # Zero is written into the border as a byte: of a zero point beyond the bytes, the low bits, as in TF.
    framed = _framed(np.ascontiguousarray(x.transpose(p.input)), p, np.asarray(x_zeros).astype(np.int8))
    total = wrapped(_sums(_shifted(framed, x_zeros, dtype), _shifted(_kernel(w, p), w_zeros, dtype), p))
    moved = multiplied(total.astype(np.int64), factor) + out_zeros
    return _arranged(limited(moved, output_quantization_min_val, output_quantization_max_val), p).astype(Tout.np, copy=False)


def convolution_hybrid(x: Any, w: Any, scales: Any, zeros: Any, *, rhs_quantization_axis: int, node: Any) -> Any:
    """A float tensor with a quantised kernel: each image is quantised to bytes by its own range."""
    _check_positive("rhs", scales)
    p = _checked_plan(x, w, node.attrs)
    _check_kernel(p, scales, zeros, rhs_quantization_axis)
    images = np.ascontiguousarray(x.transpose(p.input))
    rows, step = byte_rows(images.reshape(images.shape[0], math.prod(images.shape[1:])))
    dtype = _exact(p, w.shape[p.kernel[-2]], 255, _reach(zeros))
    framed = _framed(rows.astype(dtype).reshape(images.shape), p, 0)
    total = wrapped(_sums(framed, _shifted(_kernel(w, p), zeros, dtype), p)).astype(_F)
    # Output feature by output feature, the steps of the images of its group.
    steps = np.repeat(step.astype(_F).reshape(p.batch_groups, total.shape[0]).T, total.shape[-1] // p.batch_groups, 1)
    total *= steps.reshape(total.shape[0], *(1,) * len(p.slides), total.shape[-1])
    return _arranged(np.multiply(total, scales, out=total), p)
