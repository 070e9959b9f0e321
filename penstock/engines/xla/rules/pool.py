"""Max and average pooling in two and three dimensions, and their gradients.

Maxima are those of the CPU kernels: of equal cells the first one in row-major order counts, NaNs lose against numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.engines.xla.checks import need, refusals
from penstock.engines.xla.rule import jax, jnp, lax, rule, static_ints
from penstock.ops.kernels.numeric import lowest, narrow, widen
from penstock.ops.kernels.window import Layout, Slide, layout, slides_of


def _window(
    shape: Sequence[int], data_format: bytes, ksize: Any, strides: Any, padding: bytes, explicit_paddings: Sequence[int] = ()
) -> tuple[Layout, list[Slide]]:
    """The layout, and one Slide for each spatial dimension."""
    ksize, strides = static_ints(np.asarray(ksize)), static_ints(np.asarray(strides))
    with refusals():
        lay = layout(data_format)
        need(len(shape) == len(ksize) == len(strides) == lay.rank, "pooling of another rank")
        need(min(ksize) > 0 and min(strides) > 0, "an empty window")
        for axis in (0, lay.channel):
            need(ksize[axis] == strides[axis] == 1, "pooling over the batch or the depth")
        slides = slides_of(
            lay, lay.of_spatial(shape), lay.of_spatial(ksize), strides, padding, explicit_paddings=explicit_paddings
        )
    need(all(s.before < s.window and s.after < s.window for s in slides), "padding beyond the window")
    return lay, slides


def _pooled_shape(lay: Layout, slides: Sequence[Slide], shape: Sequence[int]) -> tuple[int, ...]:
    return lay.build(shape[0], [s.out for s in slides], shape[lay.channel])


def _reduce(x: Any, init: Any, function: Any, lay: Layout, slides: Sequence[Slide]) -> Any:
    """`function` over all windows, in the op's own layout."""
    return lax.reduce_window(
        x,
        np.asarray(init, x.dtype),
        function,
        lay.build(1, [s.window for s in slides], 1),
        lay.build(1, [s.stride for s in slides], 1),
        lay.build((0, 0), [(s.before, s.after) for s in slides], (0, 0)),
    )


# -- average ----------------------------------------------------------------------------------------------------------


def _cells(lay: Layout, slides: Sequence[Slide], dtype: Any) -> np.ndarray:
    """How many cells of each window lie inside the input, to be broadcast over batch and channels."""
    total = np.ones((1,) * lay.rank, dtype)
    for axis, s in zip(lay.spatial, slides, strict=True):
        start = np.arange(s.out) * s.stride - s.before
        inside = np.minimum(start + s.window, s.size) - np.maximum(start, 0)
        total = total * inside.reshape([-1 if i == axis else 1 for i in range(lay.rank)]).astype(dtype)
    return total


def _average(x: Any, lay: Layout, slides: Sequence[Slide]) -> Any:
    return _reduce(x, 0, lax.add, lay, slides) / _cells(lay, slides, x.dtype)


@rule("AvgPool", "AvgPool3D", heavy=True)
def avg_pool(x: Any, *, ksize: Any, strides: Any, padding: bytes, data_format: bytes) -> Any:
    lay, slides = _window(x.shape, data_format, ksize, strides, padding)
    shape = _pooled_shape(lay, slides, x.shape)
    return jnp.zeros(shape, x.dtype) if 0 in shape else narrow(_average(widen(x), lay, slides), x.dtype)


@rule("AvgPoolGrad", "AvgPool3DGrad", heavy=True)
def avg_pool_grad(in_shape: Any, dy: Any, *, ksize: Any, strides: Any, padding: bytes, data_format: bytes) -> Any:
    shape = static_ints(in_shape)
    lay, slides = _window(shape, data_format, ksize, strides, padding)
    need(dy.shape == _pooled_shape(lay, slides, shape), "a gradient that does not fit the windows")
    if 0 in dy.shape:
        return jnp.zeros(shape, dy.dtype)
    wide = widen(dy)
    like = jax.ShapeDtypeStruct(shape, wide.dtype)
    return narrow(jax.linear_transpose(lambda x: _average(x, lay, slides), like)(wide)[0], dy.dtype)


# -- maximum ----------------------------------------------------------------------------------------------------------


def _max(x: Any, floor: Any, lay: Layout, slides: Sequence[Slide]) -> Any:
    shape = _pooled_shape(lay, slides, x.shape)
    if 0 in shape:
        return jnp.zeros(shape, x.dtype)
    return _reduce(x, floor, lax.max if x.dtype.kind in "iu" else _number_max, lay, slides)


def _number_max(a: Any, b: Any) -> Any:
    """The larger of two; a NaN is less than any number."""
    return lax.select((a >= b) | (b != b), a, b)


def _depth_max(x: Any, lay: Layout, ksize: Sequence[int], strides: Sequence[int]) -> Any:
    """Windows that cover channels and nothing else, side by side."""
    window = ksize[lay.channel]
    need(set(lay.of_spatial(ksize)) == {1} and window == strides[lay.channel] and x.shape[lay.channel] % window == 0,
         "windows over depth and something else")  # fmt: skip
    shape = list(x.shape)
    shape[lay.channel : lay.channel + 1] = [x.shape[lay.channel] // window, window]
    return jnp.max(x.reshape(shape), lay.channel + 1)


@rule("MaxPool", heavy=True)
def max_pool(x: Any, *, ksize: Any, strides: Any, padding: bytes, explicit_paddings: Any, data_format: bytes) -> Any:
    ksize, strides = static_ints(np.asarray(ksize)), static_ints(np.asarray(strides))
    with refusals():
        lay = layout(data_format)
    need(x.ndim == len(ksize) == len(strides) == 4, "pooling of another rank")
    if ksize[lay.channel] != 1:
        return _depth_max(x, lay, ksize, strides)
    lay, slides = _window(x.shape, data_format, ksize, strides, padding, explicit_paddings)
    return _max(x, lowest(x.dtype), lay, slides)


@rule("MaxPoolV2", heavy=True)
def max_pool_v2(x: Any, ksize: Any, strides: Any, *, padding: bytes, data_format: bytes) -> Any:
    return max_pool(x, ksize=static_ints(ksize), strides=static_ints(strides), padding=padding, explicit_paddings=(), data_format=data_format)


@rule("MaxPool3D", heavy=True)
def max_pool3d(x: Any, *, ksize: Any, strides: Any, padding: bytes, data_format: bytes) -> Any:
    lay, slides = _window(x.shape, data_format, ksize, strides, padding)
    return _max(x, -np.inf, lay, slides)


@rule("MaxPoolGrad", heavy=True)
def max_pool_grad(
    x: Any, y: Any, dy: Any, *, ksize: Any, strides: Any, padding: bytes, explicit_paddings: Any, data_format: bytes
) -> Any:
    need(x.dtype.kind not in "iu", "the gradient of a maximum of integers")
    lay, slides = _window(x.shape, data_format, ksize, strides, padding, explicit_paddings)
    need(y.shape == dy.shape == _pooled_shape(lay, slides, x.shape), "a gradient that does not fit the windows")
    if 0 in dy.shape:
        return jnp.zeros(x.shape, dy.dtype)
    # JAX's own gradient sends each value to the first maximum of its window.
    wide = widen(x)
    _, back = jax.vjp(lambda x: _reduce(x, -np.inf, lax.max, lay, slides), wide)
    return narrow(back(widen(dy))[0], dy.dtype)


@rule("MaxPoolGradV2", heavy=True)
def max_pool_grad_v2(x: Any, y: Any, dy: Any, ksize: Any, strides: Any, *, padding: bytes, data_format: bytes) -> Any:
    return max_pool_grad(
        x, y, dy, ksize=static_ints(ksize), strides=static_ints(strides), padding=padding, explicit_paddings=(), data_format=data_format
    )  # fmt: skip


# -- window by window -------------------------------------------------------------------------------------------------


def _padded(x: Any, fill: Any, lay: Layout, slides: Sequence[Slide]) -> Any:
    return lax.pad(x, np.asarray(fill, x.dtype), lay.build((0, 0, 0), [(s.before, s.after, 0) for s in slides], (0, 0, 0)))


def _taps(lay: Layout, slides: Sequence[Slide]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each cell of the window, with the index of the padded input that it meets over all positions."""
    every = slice(None)
    for offsets in itertools.product(*(range(s.window) for s in slides)):
        index = [slice(k, k + (s.out - 1) * s.stride + 1, s.stride) for k, s in zip(offsets, slides, strict=True)]
        yield offsets, lay.build(every, index, every)


def _first_max(x: Any, lay: Layout, slides: Sequence[Slide]) -> tuple[Any, Any]:
    """The first largest value of each window, and its place among the cells of an image's channel (int64)."""
    sizes = [s.size for s in slides]
    steps = [int(np.prod(sizes[i + 1 :])) for i in range(len(sizes))]
    starts = [np.arange(s.out) * s.stride - s.before for s in slides]
    shape = _pooled_shape(lay, slides, x.shape)

    def places(parts: Sequence[np.ndarray]) -> np.ndarray:
        total = sum(np.ix_(*(p * step for p, step in zip(parts, steps, strict=True))), np.int64(0))
        return np.expand_dims(total, (0, lay.channel))

    floor = lowest(x.dtype) if x.dtype.kind in "iu" else -np.inf
    padded = _padded(x, floor, lay, slides)
    inside = [np.maximum(start, 0) for start in starts]
    best = x
    for axis, cells in zip(lay.spatial, inside, strict=True):
        best = jnp.take(best, cells, axis)
    where = jnp.broadcast_to(places(inside), shape)
    for offsets, index in _taps(lay, slides):
        cell = padded[index]
        larger = cell > best
        best = jnp.where(larger, cell, best)
        where = jnp.where(larger, places([start + k for start, k in zip(starts, offsets, strict=True)]), where)
    return best, where


def _pick(x: Any, y: Any, dx: Any, lay: Layout, slides: Sequence[Slide]) -> Any:
    """What `dx`, shaped like `x`, holds where each window's first maximum is."""
    need(dx.shape == x.shape and y.shape == _pooled_shape(lay, slides, x.shape), "a gradient that does not fit the windows")
    if 0 in y.shape:
        return jnp.zeros(y.shape, dx.dtype)
    _, where = _first_max(x, lay, slides)
    batch, depth = x.shape[0], x.shape[lay.channel]
    cells = jnp.moveaxis(dx, lay.channel, 1).reshape(batch, depth, -1)
    chosen = jnp.take_along_axis(cells, jnp.moveaxis(where, lay.channel, 1).reshape(batch, depth, -1), -1)
    return jnp.moveaxis(chosen.reshape(batch, depth, *(s.out for s in slides)), 1, lay.channel)


@rule("MaxPoolGradGrad", "MaxPool3DGradGrad", heavy=True)
def max_pool_grad_grad(x: Any, y: Any, dx: Any, *, ksize: Any, strides: Any, padding: bytes, data_format: bytes) -> Any:
    return _pick(x, y, dx, *_window(x.shape, data_format, ksize, strides, padding))


@rule("MaxPoolGradGradV2", heavy=True)
def max_pool_grad_grad_v2(x: Any, y: Any, dx: Any, ksize: Any, strides: Any, *, padding: bytes, data_format: bytes) -> Any:
    return _pick(x, y, dx, *_window(x.shape, data_format, static_ints(ksize), static_ints(strides), padding))


@rule("MaxPool3DGrad", heavy=True)
def max_pool3d_grad(x: Any, y: Any, dy: Any, *, ksize: Any, strides: Any, padding: bytes, data_format: bytes) -> Any:
    """Unlike in two dimensions, every cell within 1e-5 of the maximum gets the gradient."""
    lay, slides = _window(x.shape, data_format, ksize, strides, padding)
    need(y.shape == dy.shape == _pooled_shape(lay, slides, x.shape), "a gradient that does not fit the windows")
    if 0 in dy.shape:
        return jnp.zeros(x.shape, dy.dtype)
    padded, top, wide = _padded(widen(x), -np.inf, lay, slides), widen(y), widen(dy)
    total = jnp.zeros(padded.shape, wide.dtype)
    for _, index in _taps(lay, slides):
        near = jnp.abs(padded[index] - top) < 1e-5
        total = total.at[index].add(jnp.where(near, wide, np.zeros((), wide.dtype)))
    inner = lay.build(slice(None), [slice(s.before, s.before + s.size) for s in slides], slice(None))
    return narrow(total[inner], dy.dtype)


# -- maximum with its position ----------------------------------------------------------------------------------------


def _starts(shape: Sequence[int]) -> np.ndarray:
    """Where each image starts in the flat tensor."""
    return (np.arange(shape[0], dtype=np.int64) * int(np.prod(shape[1:]))).reshape(-1, 1, 1, 1)


@rule("MaxPoolWithArgmax", heavy=True)
def max_pool_with_argmax(
    x: Any, *, ksize: Any, strides: Any, padding: bytes, Targmax: DType, include_batch_in_index: bool
) -> list[Any]:
    lay, slides = _window(x.shape, b"NHWC", ksize, strides, padding)
    need(0 not in x.shape and all(s.out for s in slides), "an empty input")
    best, where = _first_max(x, lay, slides)
    index = where * x.shape[3] + np.arange(x.shape[3])
    if include_batch_in_index:
        index = index + _starts(x.shape)
    return [best, index.astype(Targmax.np)]


def _flat_index(x: Any, argmax: Any, with_batch: bool) -> Any:
    index = argmax.astype(np.int64)
    return index if with_batch else index + _starts(x.shape)


@rule("MaxPoolGradWithArgmax", heavy=True, raises=True)
def max_pool_grad_with_argmax(
    x: Any, dy: Any, argmax: Any, *, ksize: Any, strides: Any, padding: bytes, include_batch_in_index: bool
) -> Any:
    lay, slides = _window(x.shape, b"NHWC", ksize, strides, padding)
    need(dy.shape == argmax.shape == _pooled_shape(lay, slides, x.shape), "a gradient that does not fit the windows")
    index = _flat_index(x, argmax, include_batch_in_index).reshape(-1)
    wide = widen(dy)
    total = jnp.zeros(int(np.prod(x.shape)), wide.dtype).at[index].add(wide.reshape(-1), mode="drop")
    return narrow(total.reshape(x.shape), dy.dtype)


@rule("MaxPoolGradGradWithArgmax", heavy=True, raises=True)
def max_pool_grad_grad_with_argmax(
    x: Any, dx: Any, argmax: Any, *, ksize: Any, strides: Any, padding: bytes, include_batch_in_index: bool
) -> Any:
    lay, slides = _window(x.shape, b"NHWC", ksize, strides, padding)
    need(dx.shape == x.shape and argmax.shape == _pooled_shape(lay, slides, x.shape), "shapes that do not fit the windows")
    return jnp.reshape(dx, -1).at[_flat_index(x, argmax, include_batch_in_index)].get(mode="fill", fill_value=0)
