"""Moving blocks of cells between space, batch and depth, and patches of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engines.xla.checks import need, refusals
from penstock.engines.xla.rule import Unsupported, jnp, lax, rule, static, static_ints
from penstock.engines.xla.values import const, size_of, zeros
from penstock.ops.kernels.patches import taps
from penstock.ops.kernels.window import slide

# -- batch ------------------------------------------------------------------------------------------------------------


def _pairs(x: Any, blocks: tuple[int, ...], pairs: Any) -> list[list[int]]:
    known = static(pairs)
    need(x.ndim >= 1 + len(blocks) and known.shape == (len(blocks), 2), "blocks of another rank")
    need(not (known < 0).any() and all(b > 0 for b in blocks), "sizes below zero")
    return known.tolist()


def _space_to_batch(x: Any, blocks: tuple[int, ...], paddings: Any) -> Any:
    pads, dims = _pairs(x, blocks, paddings), len(blocks)
    x = lax.pad(x, const(0, x), [(0, 0, 0), *((b, a, 0) for b, a in pads), *[(0, 0, 0)] * (x.ndim - 1 - dims)])
    sizes, rest = x.shape[1 : 1 + dims], x.shape[1 + dims :]
    need(all(n % b == 0 for n, b in zip(sizes, blocks)), "sizes that blocks do not divide")
    split = [v for n, b in zip(sizes, blocks) for v in (n // b, b)]
    view = jnp.reshape(x, (x.shape[0], *split, *rest))
    order = (*range(2, 2 * dims + 1, 2), 0, *range(1, 2 * dims, 2), *range(2 * dims + 1, view.ndim))
    out = (x.shape[0] * size_of(blocks), *(n // b for n, b in zip(sizes, blocks)), *rest)
    return jnp.reshape(jnp.transpose(view, order), out)


def _batch_to_space(x: Any, blocks: tuple[int, ...], crops: Any) -> Any:
    cuts, dims, count = _pairs(x, blocks, crops), len(blocks), size_of(blocks)
    need(x.shape[0] % count == 0, "a batch that blocks do not divide")
    sizes, rest = [n * b for n, b in zip(x.shape[1:], blocks)], x.shape[1 + dims :]
    need(all(n >= sum(cut) for n, cut in zip(sizes, cuts)), "more cropped than there is")
    view = jnp.reshape(x, (*blocks, x.shape[0] // count, *x.shape[1:]))
    order = [dims]
    for i in range(dims):
        order += [dims + 1 + i, i]
    order += range(2 * dims + 1, view.ndim)
    y = jnp.reshape(jnp.transpose(view, order), (x.shape[0] // count, *sizes, *rest))
    for i, (before, after) in enumerate(cuts, 1):
        y = lax.slice_in_dim(y, before, y.shape[i] - after, axis=i)
    return y


@rule("SpaceToBatchND")
def space_to_batch_nd(x: Any, block_shape: Any, paddings: Any) -> Any:
    return _space_to_batch(x, static_ints(block_shape), paddings)


@rule("BatchToSpaceND")
def batch_to_space_nd(x: Any, block_shape: Any, crops: Any) -> Any:
    return _batch_to_space(x, static_ints(block_shape), crops)


@rule("SpaceToBatch")
def space_to_batch(x: Any, paddings: Any, *, block_size: int) -> Any:
    need(x.ndim == 4, "another rank than 4")
    return _space_to_batch(x, (block_size, block_size), paddings)


@rule("BatchToSpace")
def batch_to_space(x: Any, crops: Any, *, block_size: int) -> Any:
    need(x.ndim == 4, "another rank than 4")
    return _batch_to_space(x, (block_size, block_size), crops)


# -- depth ------------------------------------------------------------------------------------------------------------


def _channels_last(x: Any, data_format: bytes) -> bool:
    need(x.ndim == 4 and data_format in (b"NHWC", b"NCHW"), "another layout")
    return data_format == b"NHWC"


@rule("SpaceToDepth")
def space_to_depth(x: Any, *, block_size: int, data_format: bytes) -> Any:
    b, last = block_size, _channels_last(x, data_format)
    n, h, w, c = x.shape if last else (x.shape[0], x.shape[2], x.shape[3], x.shape[1])
    need(h % b == 0 and w % b == 0, "sizes that blocks do not divide")
    if last:
        y = jnp.transpose(jnp.reshape(x, (n, h // b, b, w // b, b, c)), (0, 1, 3, 2, 4, 5))
        return jnp.reshape(y, (n, h // b, w // b, b * b * c))
    y = jnp.transpose(jnp.reshape(x, (n, c, h // b, b, w // b, b)), (0, 3, 5, 1, 2, 4))
    return jnp.reshape(y, (n, b * b * c, h // b, w // b))


@rule("DepthToSpace")
def depth_to_space(x: Any, *, block_size: int, data_format: bytes) -> Any:
    b, last = block_size, _channels_last(x, data_format)
    n, h, w, c = x.shape if last else (x.shape[0], x.shape[2], x.shape[3], x.shape[1])
    need(c % (b * b) == 0, "a depth that blocks do not divide")
    d = c // (b * b)
    if last:
        y = jnp.transpose(jnp.reshape(x, (n, h, w, b, b, d)), (0, 1, 3, 2, 4, 5))
        return jnp.reshape(y, (n, h * b, w * b, d))
    y = jnp.transpose(jnp.reshape(x, (n, b, b, d, h, w)), (0, 3, 4, 1, 5, 2))
    return jnp.reshape(y, (n, d, h * b, w * b))


# -- patches ----------------------------------------------------------------------------------------------------------


def _patches(x: Any, ksizes: list[int], strides: list[int], rates: list[int], padding: bytes) -> Any:
    """(N, *out, product of windows * C): every window's cells, row by row, channels innermost."""
    if any(v[0] != 1 or v[-1] != 1 for v in (ksizes, strides, rates)):
        raise Unsupported("windows over batch or depth")
    with refusals():
        slides = [slide(d, k, s, padding, r) for d, k, s, r in zip(x.shape[1:-1], ksizes[1:-1], strides[1:-1], rates[1:-1], strict=True)]
    shape = (x.shape[0], *(s.out for s in slides), int(np.prod(ksizes)) * x.shape[-1])
    if size_of(shape) == 0 or x.size == 0:
        return zeros(shape, x.dtype)
    # A window that ends before the input does needs no cells behind: XLA takes negative padding for that.
    x = lax.pad(x, const(0, x), [(0, 0, 0), *((s.before, s.reach - s.before - s.size, 0) for s in slides), (0, 0, 0)])
    cells = []
    for _, index in taps(slides):
        spans = [slice(0, x.shape[0]), *index[1:], slice(0, x.shape[-1])]
        cells.append(lax.slice(x, [s.start for s in spans], [s.stop for s in spans], [s.step or 1 for s in spans]))
    return lax.concatenate(cells, x.ndim - 1)


@rule("ExtractImagePatches")
def extract_image_patches(x: Any, *, ksizes: list[int], strides: list[int], rates: list[int], padding: bytes) -> Any:
    return _patches(x, ksizes, strides, rates, padding)


@rule("ExtractVolumePatches")
def extract_volume_patches(x: Any, *, ksizes: list[int], strides: list[int], padding: bytes) -> Any:
    return _patches(x, ksizes, strides, [1] * 5, padding)
