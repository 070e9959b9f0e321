"""Moving blocks of cells between dimensions: space to batch, batch to space, space to depth, depth to space."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from penstock import errors
from penstock.ops.kernels.window import layout, show
from penstock.ops.native import lines


def _check_blocks(x: np.ndarray, block_shape: np.ndarray, pairs: np.ndarray, what: str) -> tuple[list[int], list[list[int]]]:
    if block_shape.ndim != 1:
        raise errors.InvalidArgumentError(f"block_shape rank should be 1 instead of {block_shape.ndim}")
    dims = block_shape.shape[0]
    if x.ndim < 1 + dims:
        raise errors.InvalidArgumentError(f"input rank should be >= {1 + dims} instead of {x.ndim}")
    if pairs.shape != (dims, 2):
        raise errors.InvalidArgumentError(f"{what} should have shape [{dims}, 2] instead of {show(pairs.shape)}")
    return block_shape.tolist(), pairs.tolist()


def space_to_batch_nd(x, block_shape, paddings):
    """SpaceToBatchND: zero-pads, then moves each block's cells into the batch dimension."""
    blocks, pads = _check_blocks(x, block_shape, paddings, "paddings")
    for i, block in enumerate(blocks):
        if block < 1:
            raise errors.InvalidArgumentError(
                f"All values in block_shape must be positive, got value, {block} at index {i}."
            )
    if any(p < 0 for pair in pads for p in pair):
        raise errors.InvalidArgumentError("Paddings must be non-negative")
    dims = len(blocks)
    sizes = [x.shape[1 + i] + sum(pads[i]) for i in range(dims)]
    for i, (size, block) in enumerate(zip(sizes, blocks, strict=True)):
        if size % block:
            raise errors.InvalidArgumentError(f"padded_shape[{i}]={size} is not divisible by block_shape[{i}]={block}")
    rest, cells = x.shape[1 + dims :], [size // block for size, block in zip(sizes, blocks, strict=True)]
    make = np.zeros if any(p for pair in pads for p in pair) else np.empty
    out = (x.shape[0] * _product(blocks), *cells, *rest)
    if x.nbytes < _SMALL:
        if make is np.zeros:
            padded = make((x.shape[0], *sizes, *rest), x.dtype)
            padded[(slice(None), *(slice(before, before + size) for (before, _), size in zip(pads, x.shape[1:])))] = x
            x = padded
        split = [v for pair in zip(cells, blocks, strict=True) for v in pair]
        order = (*range(2, 2 * dims + 1, 2), 0, *range(1, 2 * dims, 2), *range(2 * dims + 1, 1 + 2 * dims + len(rest)))
        return x.reshape(x.shape[0], *split, *rest).transpose(order).reshape(out)
    result = make((*blocks, x.shape[0], *cells, *rest), x.dtype)
    for space, batch in _parts(x, result, blocks, pads):
        lines.copy(batch, space)
    return result.reshape(out)


_SMALL = 1 << 16
"""Bytes below which one copy by NumPy, or a second one for the border, is quicker than to take an array apart."""


def _parts(space: np.ndarray, batch: np.ndarray, blocks: list[int], borders: list[list[int]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Views of the same elements in space (batch, rows, ..., rest) and in blocks (row of the block, ..., batch, block, ..., rest): along each axis those of a block that
    the border has cut, of all whole blocks, and of the last one if that is cut."""
    dims = len(blocks)
    n, rest = space.shape[0], space.shape[1 + dims :]
    pairs = [axis for i in range(dims) for axis in (dims + 1 + i, i)]
    grid = batch.transpose(dims, *pairs, *range(2 * dims + 1, batch.ndim))
    for parts in itertools.product(*(_along(block, before, size) for block, (before, _), size in zip(blocks, borders, space.shape[1:]))):
        part = grid[(slice(None), *(at for _, q, k, _ in parts for at in (q, k)))]
        shape, strides = list(part.shape), list(part.strides)
        for i, (_, _, _, crosses) in enumerate(parts):
            if crosses:  # from the second cell of a block to the first one of the next
                shape[2 * i + 2], strides[2 * i + 2] = 2, strides[2 * i + 1] - strides[2 * i + 2]
        part = as_strided(part, shape, strides)
        yield space[(slice(None), *(at for at, _, _, _ in parts))].reshape(n, *shape[1 : 1 + 2 * dims], *rest), part


def _along(block: int, before: int, size: int) -> Iterator[tuple[slice, slice, slice, bool]]:
    """(places in space, blocks, places in these, whether each is followed by the next block's first one) of one axis."""
    at, end = before, before + size
    if block == 2 and before % 2 and size > 1:
        at += size // 2 * 2
        yield slice(0, at - before), slice(before // 2, at // 2), slice(1, 2), True
    while at < end:
        place = at % block
        whole = 0 if place else (end - at) // block
        step = whole * block or min(block - place, end - at)
        yield slice(at - before, at - before + step), slice(at // block, at // block + max(whole, 1)), slice(0, block) if whole else slice(place, place + step), False
        at += step


def batch_to_space_nd(x, block_shape, crops):
    """BatchToSpaceND: the inverse of SpaceToBatchND, cropping instead of padding."""
    blocks, cuts = _check_blocks(x, block_shape, crops, "crops")
    dims, count = len(blocks), _product(blocks)
    if count <= 0:
        raise errors.InvalidArgumentError(f"Product of block sizes must be positive, got {count}")
    if x.shape[0] % count:
        raise errors.InvalidArgumentError(
            f"Input batch dimension ({x.shape[0]}) is not divisible by product of block sizes ({count})"
        )
    if any(c < 0 for pair in cuts for c in pair):
        raise errors.InvalidArgumentError("Crops must be non-negative")
    sizes = [x.shape[1 + i] * blocks[i] for i in range(dims)]
    for i, size in enumerate(sizes):
        if size < sum(cuts[i]):
            raise errors.InvalidArgumentError(f"cropped_shape[{i}]={size - sum(cuts[i])} must be non-negative")
    rest = x.shape[1 + dims :]
    left = [size - before - after for size, (before, after) in zip(sizes, cuts, strict=True)]
    grid = x.reshape(*blocks, x.shape[0] // count, *x.shape[1:])
    if x.nbytes < _SMALL:
        order = (dims, *(axis for i in range(dims) for axis in (dims + 1 + i, i)), *range(2 * dims + 1, grid.ndim))
        whole = grid.transpose(order).reshape(x.shape[0] // count, *sizes, *rest)
        return np.ascontiguousarray(whole[(slice(None), *(slice(before, before + size) for (before, _), size in zip(cuts, left, strict=True)))])
    result = np.empty((x.shape[0] // count, *left, *rest), x.dtype)
    for space, batch in _parts(result, grid, blocks, cuts):
        lines.copy(space, batch)
    return result


def _product(values: Sequence[int]) -> int:
    result = 1
    for v in values:
        result *= v
    return result


def space_to_batch(x, paddings, *, block_size):
    """SpaceToBatch: square blocks of a 4-D tensor."""
    if x.ndim != 4:
        raise errors.InvalidArgumentError(f"Input rank should be: 4instead of: {x.ndim}")
    return space_to_batch_nd(x, np.array([block_size, block_size]), paddings)


def batch_to_space(x, crops, *, block_size):
    """BatchToSpace: square blocks of a 4-D tensor."""
    if x.ndim != 4:
        raise errors.InvalidArgumentError(f"Input rank should be: 4instead of: {x.ndim}")
    return batch_to_space_nd(x, np.array([block_size, block_size]), crops)


def space_to_depth(x, *, block_size, data_format=b"NHWC"):
    """SpaceToDepth: a block's cells become channels, block position first."""
    if x.ndim != 4:
        raise errors.InvalidArgumentError(f"Input rank should be 4 instead of {x.ndim}")
    b, last = block_size, layout(data_format).channels_last
    n, h, w, c = x.shape if last else (x.shape[0], x.shape[2], x.shape[3], x.shape[1])
    if h % b or w % b:
        raise errors.InvalidArgumentError(f"Image width {w} and height {h} should be divisible by block_size: {b}")
    if last:
        y = x.reshape(n, h // b, b, w // b, b, c).transpose(0, 1, 3, 2, 4, 5)
        return lines.in_order(y).reshape(n, h // b, w // b, b * b * c)
    y = x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
    return lines.in_order(y).reshape(n, b * b * c, h // b, w // b)


def depth_to_space(x, *, block_size, data_format=b"NHWC"):
    """DepthToSpace: the inverse of SpaceToDepth."""
    if x.ndim != 4:
        raise errors.InvalidArgumentError(f"Input rank should be: 4 instead of: {x.ndim}")
    b, last = block_size, layout(data_format).channels_last
    n, h, w, c = x.shape if last else (x.shape[0], x.shape[2], x.shape[3], x.shape[1])
    if c % (b * b):
        raise errors.InvalidArgumentError(f"Input depth dimension {c} should be divisible by: {b * b}")
    d = c // (b * b)
    if last:
        y = x.reshape(n, h, w, b, b, d).transpose(0, 1, 3, 2, 4, 5)
        return lines.in_order(y).reshape(n, h * b, w * b, d)
    y = x.reshape(n, b, b, d, h, w).transpose(0, 3, 4, 1, 5, 2)
    return lines.in_order(y).reshape(n, d, h * b, w * b)
