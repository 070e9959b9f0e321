"""Elements in new places: tiles, paddings, mirrors, sequences turned round, rolls, one-hot."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import jax, jnp, lax, rule, static, static_ints
from penstock.engines.xla.values import array, axis_of, const

# -- Tile -------------------------------------------------------------------------------------------------------------


@rule("Tile")
def tile(x: Any, multiples: Any) -> Any:
    counts = static_ints(multiples)
    need(len(counts) == x.ndim and all(n >= 0 for n in counts), "multiples that do not fit")
    return jnp.tile(x, counts)


@rule("TileGrad")
def tile_grad(x: Any, multiples: Any) -> Any:
    pairs = [v for n, d in zip(static_ints(multiples), x.shape, strict=True) for v in (n, d // n if n else 0)]
    return lax.reduce(jnp.reshape(x, pairs), const(0, x), lax.add, tuple(range(0, len(pairs), 2)))


# -- Pad --------------------------------------------------------------------------------------------------------------


def _amounts(x: Any, paddings: Any) -> list[list[int]]:
    known = static(paddings)
    need(known.shape == (x.ndim, 2) and not (known < 0).any(), "paddings that do not fit")
    return known.tolist()


@rule("Pad")
def pad(x: Any, paddings: Any) -> Any:
    return lax.pad(x, const(0, x), [(b, a, 0) for b, a in _amounts(x, paddings)])


@rule("PadV2")
def pad_v2(x: Any, paddings: Any, value: Any) -> Any:
    need(value.ndim == 0, "a padding that is no scalar")
    return lax.pad(array(x), array(value), [(b, a, 0) for b, a in _amounts(x, paddings)])


@rule("MirrorPad")
def mirror_pad(x: Any, paddings: Any, *, mode: bytes) -> Any:
    offset = 1 if mode == b"REFLECT" else 0
    for axis, (before, after) in enumerate(_amounts(x, paddings)):
        size = x.shape[axis]
        need(max(before, after) <= size - offset, "paddings beyond the mirrored part")
        parts = [x]
        if before:
            parts.insert(0, lax.rev(lax.slice_in_dim(x, offset, offset + before, axis=axis), (axis,)))
        if after:
            end = size - offset
            parts.append(lax.rev(lax.slice_in_dim(x, end - after, end, axis=axis), (axis,)))
        x = lax.concatenate(parts, axis) if len(parts) > 1 else x
    return x


@rule("MirrorPadGrad")
def mirror_pad_grad(x: Any, paddings: Any, *, mode: bytes) -> Any:
    """Adds what was mirrored back to where it came from."""
    offset = 1 if mode == b"REFLECT" else 0
    for axis, (before, after) in enumerate(_amounts(x, paddings)):
        size = x.shape[axis] - before - after
        need(size >= offset and max(before, after) <= size - offset, "paddings beyond the mirrored part")
        middle = lax.slice_in_dim(x, before, before + size, axis=axis)
        if before:
            front = lax.rev(lax.slice_in_dim(x, 0, before, axis=axis), (axis,))
            middle = middle + _placed(front, axis, offset, size)
        if after:
            back = lax.rev(lax.slice_in_dim(x, before + size, x.shape[axis], axis=axis), (axis,))
            middle = middle + _placed(back, axis, size - offset - after, size)
        x = middle
    return x


def _placed(part: Any, axis: int, start: int, size: int) -> Any:
    """`part` at `start` of an axis of `size`, zeros around it."""
    room = (start, size - start - part.shape[axis], 0)
    return lax.pad(part, const(0, part), [room if i == axis else (0, 0, 0) for i in range(part.ndim)])


# -- turning round ----------------------------------------------------------------------------------------------------


@rule("ReverseSequence", raises=True)
def reverse_sequence(x: Any, lengths: Any, *, seq_dim: int, batch_dim: int) -> Any:
    need(seq_dim != batch_dim and lengths.shape == (x.shape[batch_dim],), "lengths that do not fit")
    size = x.shape[seq_dim]
    if x.size == 0:
        return x
    moved = jnp.moveaxis(x, (batch_dim, seq_dim), (0, 1))
    position = np.arange(size, dtype=lengths.dtype)
    ends = jnp.reshape(lengths, (-1, 1))
    order = jnp.where(position < ends, ends - const(1, lengths) - position, position)
    picked = jax.vmap(lambda row, at: jnp.take(row, at, axis=0, mode="clip"))(moved, order)
    return jnp.moveaxis(picked, (0, 1), (batch_dim, seq_dim))


@rule("Roll")
def roll(x: Any, shift: Any, axis: Any) -> Any:
    axes = static_ints(axis)
    need(x.ndim > 0 and shift.ndim <= 1 and shift.shape == axis.shape, "shifts that do not fit")
    shifts = jnp.reshape(shift, (-1,))
    for i, a in enumerate(axes):
        n = x.shape[axis_of(a, x.ndim)]
        if n:
            x = jnp.roll(x, _shift(shift, shifts, i, n), axis_of(a, x.ndim))
    return x


def _shift(shift: Any, shifts: Any, i: int, size: int) -> Any:
    """The i-th shift: a number where it is known, which makes a roll two slices."""
    return int(np.ravel(shift)[i]) % size if isinstance(shift, (np.ndarray, np.generic)) else shifts[i]


# -- OneHot -----------------------------------------------------------------------------------------------------------


@rule("OneHot")
def one_hot(indices: Any, depth: Any, on: Any, off: Any, *, axis: int) -> Any:
    (count,) = static_ints(depth)
    need(count >= 0 and -1 <= axis <= indices.ndim and on.ndim == 0 and off.ndim == 0, "arguments that do not fit")
    place = indices.ndim if axis == -1 else axis
    kind = indices.dtype if count <= np.iinfo(indices.dtype).max else np.int64
    positions = lax.broadcasted_iota(kind, (count,) + (1,) * (indices.ndim - place), 0)
    hot = jnp.expand_dims(jnp.asarray(indices).astype(kind), place) == positions
    return jnp.where(hot, array(on), array(off))


@rule("UnravelIndex", raises=True)
def unravel_index(indices: Any, dims: Any) -> Any:
    sizes = static(dims)
    need(indices.ndim <= 1 and sizes.ndim == 1 and bool(sizes.all()), "sizes of zero")
    strides = np.append(np.cumprod(sizes[::-1])[::-1][1:], 1).astype(sizes.dtype)
    indices = jnp.asarray(indices)
    # XLA's remainder and quotient have the sign of the index, as C++'s.
    rows = [lax.div(lax.rem(indices, jnp.full_like(indices, s * d)), jnp.full_like(indices, s)) for s, d in zip(strides, sizes)]
    return jnp.stack(rows)
