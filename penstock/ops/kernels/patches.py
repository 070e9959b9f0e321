"""Arrays seen through sliding windows: padding, views of patches, and channels-last order.

The kernels that slide windows compute on arrays in channels-last order (N, *spatial, C), with one `Slide` for each
spatial dimension.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from penstock.ops.kernels.numeric import narrow, widen
from penstock.ops.kernels.window import Layout, Slide
from penstock.ops.native import maxima
from penstock.ops.native.transposes import in_order


def to_last(x: np.ndarray, lay: Layout) -> np.ndarray:
    """`x` contiguous, channels last, in the precision to compute in."""
    x = widen(x)
    return np.ascontiguousarray(x) if lay.channels_last else in_order(x.transpose(lay.to_last))


def from_last(y: np.ndarray, lay: Layout, dtype: np.dtype) -> np.ndarray:
    """A channels-last result in its op's layout and dtype, contiguous."""
    y = narrow(y, dtype)
    return np.ascontiguousarray(y) if lay.channels_last else in_order(y.transpose(lay.from_last))


def pad(x: np.ndarray, slides: Sequence[Slide], fill: Any = 0) -> np.ndarray:
    """Channels-last `x` with its border filled, cut to the cells that the windows touch; `x` itself if nothing changes."""
    if not any(s.before or s.after for s in slides):
        return x
    padded = np.full((x.shape[0], *(s.reach for s in slides), x.shape[-1]), fill, x.dtype)
    target = tuple(slice(s.before, s.before + s.size) for s in slides)
    source = tuple(slice(0, max(0, min(s.size, s.reach - s.before))) for s in slides)
    padded[(slice(None), *target)] = x[(slice(None), *source)]
    return padded


def reverse(slides: Sequence[Slide]) -> list[Slide]:
    """The windows that gradients slide over, where strides are 1: the flipped filter then gives the gradient of the input."""
    return [Slide(s.out, s.window, 1, s.dilation, s.size, (s.window - 1) * s.dilation - s.before, 1) for s in slides]


def taps(slides: Sequence[Slide]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each cell of the window, with the index of the padded input that it meets over all positions."""
    for offsets in itertools.product(*(range(s.window) for s in slides)):
        index = tuple(
            slice(k * s.dilation, k * s.dilation + (s.out - 1) * s.stride + 1, s.stride)
            for k, s in zip(offsets, slides, strict=True)
        )
        yield offsets, (slice(None), *index)


def patch_view(x: np.ndarray, slides: Sequence[Slide]) -> np.ndarray:
    """A view (N, *out, *window, C) of the padded input `x`."""
    spatial = x.strides[1:-1]
    shape = (x.shape[0], *(s.out for s in slides), *(s.window for s in slides), x.shape[-1])
    strides = (
        x.strides[0],
        *(step * s.stride for step, s in zip(spatial, slides, strict=True)),
        *(step * s.dilation for step, s in zip(spatial, slides, strict=True)),
        x.strides[-1],
    )
    if x.flags.c_contiguous:
        return np.ndarray(shape, x.dtype, x, 0, strides)  # much quicker to make than as_strided
    return as_strided(x, shape, strides, writeable=False)


@functools.lru_cache(32)
def windows_of_pixels(slides: tuple[Slide, ...]) -> maxima.Windows:
    """Which windows each pixel of an image is part of."""
    lists = []
    for s in slides:
        along = np.arange(s.size)[:, None] + s.before - np.arange(s.window)[::-1]  # where a window would begin, the first one first
        lists.append((along // s.stride, (along >= 0) & (along % s.stride == 0) & (along < s.out * s.stride), s.out))
    starts, at, _ = _lists(lists)
    return maxima.Windows(starts, at)


@functools.lru_cache(32)
def pixels_of_windows(slides: tuple[Slide, ...]) -> maxima.Maxima:
    """Which pixels of an image each window has."""
    lists = []
    for s in slides:
        along = np.arange(s.out)[:, None] * s.stride - s.before + np.arange(s.window) * s.dilation
        lists.append((along, (along >= 0) & (along < s.size), s.size))
    return maxima.Maxima(*_lists(lists))


def _lists(parts: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each axis: the indices that belong to each of its cells, which of them there are, and how many there could be. Together: where the flat indices
    of each cell begin, all of these, and as the how-manieth of those that could be there."""
    at, is_there = np.zeros((1, 1), np.int64), np.ones((1, 1), bool)
    for along, found, size in parts:
        at = (at[:, None, :, None] * size + along[:, None, :]).reshape(len(at) * len(along), -1)
        is_there = (is_there[:, None, :, None] & found[:, None, :]).reshape(at.shape)
    return np.concatenate([[0], np.cumsum(is_there.sum(1))]), at[is_there], np.nonzero(is_there)[1]
