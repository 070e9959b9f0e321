"""Fractional pooling: pooling over regions of uneven sizes, whose borders are drawn at random, with the gradients.

A sequence of borders has one entry more than there are results along its axis; it begins with 0. With `overlapping`, regions share the cells at their
borders.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError, UnimplementedError
from penstock.ops.kernels.numeric import lowest
from penstock.ops.native import regions as native_regions
from penstock.ops.native.regions import Axis
from penstock.ops.philox import PhiloxState, float64_of

# -- borders ----------------------------------------------------------------------------------------------------------


Draw = Callable[[int], list[int]]
"""Gives so many random words."""


def _even_but_one(size: int, out: int, draw: Draw) -> list[int]:
    """Regions of two sizes, in random order."""
    least, longer = divmod(size, out)
    sizes = [least + 1] * longer + [least] * (out - longer)
    words = draw(out)
    for i in range(out - 1):
        other = i + words[i] % (out - i)
        sizes[i], sizes[other] = sizes[other], sizes[i]
    return list(itertools.accumulate(sizes, initial=0))


def _pseudo_random(size: int, out: int, draw: Draw) -> list[int]:
    """Borders at ceil(ratio * (i + u)) with one random u."""
    ratio, least = size / out, size // out
    most = min((least + 2) / ratio - 1, (size + 1 - least) / ratio - (out - 1))
    first, second = np.array(draw(2), np.uint32)
    u = float(float64_of(first, second)) * most
    return [0, *(math.ceil(ratio * (i + u)) - 1 for i in range(1, out)), size]


def borders(size: int, out: int, draw: Draw, pseudo_random: bool) -> np.ndarray:
    return np.array((_pseudo_random if pseudo_random else _even_but_one)(size, out, draw), np.int64)


def _seeds(deterministic: bool, seed: int, seed2: int, state: Any) -> tuple[int, int] | None:
    """What the borders follow from, the same in every step, if `deterministic`."""
    if not deterministic:
        if seed or seed2:
            raise InvalidArgumentError("Both seed and seed2 should be 0 if deterministic is false.")
        return None
    if seed or seed2:
        return seed, seed2
    return state.__dict__.setdefault("seeds", tuple(np.random.SeedSequence().generate_state(2).tolist()))  # random ones, but the same for this node


def _seeded(seeds: tuple[int, int]) -> Draw:
    gen = PhiloxState(*seeds)
    return lambda words: gen.reserve_words(words).words(words).tolist()


def _unpredictable(words: int) -> list[int]:
    """From the system: nobody can tell these from those of a generator that begins anywhere, and a generator takes longer."""
    return memoryview(os.urandom(4 * words)).cast("I").tolist()


# -- regions ----------------------------------------------------------------------------------------------------------


class _Regions:
    """The regions of rows and columns, seen through the cells that are as far from their beginnings."""

    def __init__(self, rows: np.ndarray, columns: np.ndarray, shape: Sequence[int], overlapping: bool) -> None:
        self._axes = []
        for borders, size in ((rows, shape[1]), (columns, shape[2])):
            starts, ends = borders[:-1], borders[1:]
            self._axes.append((starts, (np.minimum(ends + 1, size) if overlapping else ends) - starts))

    @cached_property
    def counts(self) -> np.ndarray:
        return np.multiply.outer(self._axes[0][1], self._axes[1][1])[:, :, None]

    @property
    def axes(self) -> tuple[Axis, Axis]:
        (rows, heights), (columns, widths) = self._axes
        return Axis(rows, heights), Axis(columns, widths)

    def around(self, shape: Sequence[int]) -> tuple[Axis, Axis]:
        """The other way round: for each row and column of an image, which regions have it. These stand one behind the other."""
        rows, columns = (
            Axis(np.searchsorted(starts + lengths, np.arange(size), "right"), np.searchsorted(starts, np.arange(size), "right"))
            for (starts, lengths), size in zip(self._axes, shape[1:3], strict=True)
        )
        return Axis(rows.first, np.maximum(rows.sizes - rows.first, 0)), Axis(columns.first, np.maximum(columns.sizes - columns.first, 0))

    def cells(self) -> Iterator[tuple[Any, Any]]:
        """Cell by cell, in the order of memory: where the regions that have it stand, and where it is in the images. No place comes twice in one of them."""
        for distances in itertools.product(*(range(int(lengths.max(initial=0))) for _, lengths in self._axes)):
            having = [np.flatnonzero(lengths > d) for (_, lengths), d in zip(self._axes, distances, strict=True)]
            at = [starts[some] + d for (starts, _), some, d in zip(self._axes, having, distances, strict=True)]
            yield (slice(None), *np.ix_(*having)), (slice(None), *np.ix_(*at))


_Drawn = tuple[np.ndarray, np.ndarray, _Regions]


def _drawn(sizes: tuple[int, int], out: tuple[int, int], pseudo_random: bool, overlapping: bool, draw: Draw) -> _Drawn:
    """Borders of rows and columns, and the regions between them."""
    rows, columns = (borders(size, count, draw, pseudo_random) for size, count in zip(sizes, out, strict=True))
    return rows, columns, _Regions(rows, columns, (0, *sizes, 0), overlapping)


@lru_cache(64)
def _drawn_with(seeds: tuple[int, int], sizes: tuple[int, int], out: tuple[int, int], pseudo_random: bool, overlapping: bool) -> _Drawn:
    return _drawn(sizes, out, pseudo_random, overlapping, _seeded(seeds))


def _pool(x: Any, pooling_ratio: Sequence[float], pseudo_random: bool, overlapping: bool, seeds: tuple[int, int] | None) -> tuple[np.ndarray, np.ndarray, _Regions, tuple[int, ...]]:
    """Borders of rows and columns, the regions between them, and the shape of the result."""
    if x.ndim != 4:
        raise InvalidArgumentError("tensor_in must be 4-dimensional")
    for size, ratio in zip(x.shape, pooling_ratio, strict=True):
        if ratio < 1:
            raise InvalidArgumentError(f"pooling_ratio cannot be smaller than 1, got: {_number(ratio)}")
        if size < ratio:
            raise InvalidArgumentError(f"Pooling ratio is higher than input dimension size for dimension. Input dim size: {size} pooling ratio: {_number(ratio)}")
    if pooling_ratio[0] != 1 or pooling_ratio[3] != 1:
        raise UnimplementedError("Fractional pooling is not yet supported on the batch nor channel dimension.")
    out = [math.floor(size / ratio) for size, ratio in zip(x.shape, pooling_ratio, strict=True)]
    sizes, counts = x.shape[1:3], (out[1], out[2])
    if seeds is None:
        rows, columns, regions = _drawn(sizes, counts, pseudo_random, overlapping, _unpredictable)
    else:
        rows, columns, regions = _drawn_with(seeds, sizes, counts, pseudo_random, overlapping)
        rows, columns = rows.copy(), columns.copy()
    return rows, columns, regions, (x.shape[0], *counts, x.shape[3])


def _number(ratio: float) -> str:
    return f"{ratio:g}"


def fractional_max_pool(value, *, pooling_ratio, pseudo_random, overlapping, deterministic, seed, seed2, state):
    """FractionalMaxPool: the largest value of each region, and the borders of rows and columns."""
    seeds = _seeds(deterministic, seed, seed2, state)
    rows, columns, regions, shape = _pool(value, pooling_ratio, pseudo_random, overlapping, seeds)
    if native_regions.can_fold(value.dtype):
        return [native_regions.fold("max", np.ascontiguousarray(value), *regions.axes, lowest(value.dtype)), rows, columns]
    y = np.full(shape, lowest(value.dtype), value.dtype)
    for where, at in regions.cells():
        y[where] = np.maximum(y[where], value[at])
    return [y, rows, columns]


def fractional_avg_pool(value, *, pooling_ratio, pseudo_random, overlapping, deterministic, seed, seed2, state):
    """FractionalAvgPool: the mean of each region, and the borders of rows and columns; for integers rounded towards zero."""
    seeds = _seeds(deterministic, seed, seed2, state)
    rows, columns, regions, shape = _pool(value, pooling_ratio, pseudo_random, overlapping, seeds)
    if native_regions.can_fold(value.dtype):
        divisors = regions.counts[..., 0] if value.dtype.kind == "f" else None
        y = native_regions.fold("add", np.ascontiguousarray(value), *regions.axes, 0, divisors)
        if divisors is not None:
            return [y, rows, columns]
    else:
        y = np.zeros(shape, value.dtype)
        for where, at in regions.cells():
            y[where] += value[at]
    y = np.trunc(y / regions.counts) if y.dtype.kind in "iu" else y / regions.counts.astype(y.dtype)
    return [y.astype(value.dtype, copy=False), rows, columns]


# -- gradients --------------------------------------------------------------------------------------------------------


def _check_backprop(dy: Any, shape: Sequence[int]) -> None:
    if (dy.shape[0], dy.shape[3]) != (shape[0], shape[3]):
        raise InvalidArgumentError(f"out_backprop must have {shape[0]} images of depth {shape[3]}, got {dy.shape[0]} of depth {dy.shape[3]}")


def _check_borders(name: str, borders: Any, size: int, out: int) -> None:
    if borders.ndim != 1 or len(borders) != out + 1:
        raise InvalidArgumentError(f"Given out_backprop shape, expected {name}_pooling_sequence to have one more element than that axis ({out + 1}), got {borders.size}")
    if np.any(np.diff(borders) < 0) or borders[0] < 0 or borders[-1] > size:
        raise InvalidArgumentError(f"{name}_pooling_sequence must rise within [0, {size}]")


def fractional_max_pool_grad(orig_input, orig_output, out_backprop, row_pooling_sequence, col_pooling_sequence, *, overlapping):
    """FractionalMaxPoolGrad: the gradient goes to the first maximum of each region."""
    x, dy = orig_input, out_backprop
    if x.ndim != 4 or dy.ndim != 4:
        raise InvalidArgumentError("orig_input and out_backprop must be 4-dimensional")
    if orig_output.shape != dy.shape:
        raise InvalidArgumentError("orig_output and out_backprop must have the same shape")
    _check_backprop(dy, x.shape)
    _check_borders("row", row_pooling_sequence, x.shape[1], dy.shape[1])
    _check_borders("col", col_pooling_sequence, x.shape[2], dy.shape[2])
    regions = _Regions(row_pooling_sequence, col_pooling_sequence, x.shape, overlapping)
    if native_regions.can_fold(x.dtype):
        return native_regions.spread(np.ascontiguousarray(x), np.ascontiguousarray(orig_output), np.ascontiguousarray(dy), *regions.axes)
    dx = np.zeros(x.shape, x.dtype)
    is_open = np.ones(dy.shape, bool)
    for where, at in regions.cells():
        hit = (x[at] == orig_output[where]) & is_open[where]
        is_open[where] &= ~hit
        dx[at] += np.where(hit, dy[where], dy.dtype.type(0))
    return dx


def fractional_avg_pool_grad(orig_input_tensor_shape, out_backprop, row_pooling_sequence, col_pooling_sequence, *, overlapping):
    """FractionalAvgPoolGrad: the gradient is shared out evenly over each region, in double precision."""
    shape, dy = tuple(orig_input_tensor_shape.tolist()), out_backprop
    if orig_input_tensor_shape.ndim != 1 or len(shape) != 4:
        raise InvalidArgumentError("original input tensor shape must be 1-dimensional and 4 elements")
    if dy.ndim != 4:
        raise InvalidArgumentError("out_backprop must be 4-dimensional")
    _check_backprop(dy, shape)
    _check_borders("row", row_pooling_sequence, shape[1], dy.shape[1])
    _check_borders("col", col_pooling_sequence, shape[2], dy.shape[2])
    regions = _Regions(row_pooling_sequence, col_pooling_sequence, shape, overlapping)
    if dy.dtype == np.float32 and not overlapping:  # one region for each cell: rounded once in either precision
        shared = dy / regions.counts.astype(np.float32)
    else:
        shared = dy / regions.counts
    if native_regions.can_fold(shared.dtype):
        return native_regions.fold("add", shared, *regions.around(shape), 0).astype(dy.dtype, copy=False)
    dx = np.zeros(shape, shared.dtype)
    for where, at in reversed(list(regions.cells())):  # so each cell meets its regions in their order
        dx[at] += shared[where]
    return dx.astype(dy.dtype)
