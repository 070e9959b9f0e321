"""Convolutions of 3 x 3 windows with fewer multiplications, for constant filters: Winograd's F(2 x 2, 3 x 3).

Each tile of 2 x 2 results depends on 4 x 4 cells. Tile, filter and result are transformed by small constant matrices,

    result = A' ((G filter G') * (B' cells B)) A

where * goes element by element, so that all tiles and channels together are 16 products of matrices (tiles, C) @ (C, O): 16
multiplications a tile where the definition has 36. All three steps run as products of oneDNN on all threads. The transforms of cells and
results are products with the Kronecker squares of B' and A', 16 x 16 and 4 x 16, whose columns are all tiles and channels side by side;
bias, addend and activation follow the latter. NumPy copies cells to where the products read them, and results to where they belong.

The filter is transformed in float64 and rounded once. The result is good to about a bit less than that of the definition. Where cells
are infinite or NaN, so are all results of the tiles that see them.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_float
from math import prod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.engines.memory import address, aligned_empty
from penstock.engines.onednn import matmul
from penstock.engines.onednn.plan import Reordered
from penstock.engines.onednn.primitives import FLOAT32, Add, Buffer, ConstantWeights, Maker, PostOps, scratch

if TYPE_CHECKING:
    from penstock.engines.onednn.conv import Spec

CELLS = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])  # B'
FILTER = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])  # G
RESULT = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])  # A'
WINDOW, TILE, POINTS = 3, 2, 16
KEPT_VIEWS = 8

# -- whether it pays -----------------------------------------------------------------------------------------------------

FLOPS_PER_US, BYTES_PER_US = 215e3, 18e3
US_PER_TILE, US_PER_CALL = 0.014, 30.0
WORTH_IT = 0.82
STRIP_BYTES = 2 << 20
"""What the products of both ways come to, and how fast filters come out of main memory; what the transforms cost for each tile and channel; what
part of the other way's time it may take, by that reckoning: it leaves out what the caches do. About as many bytes of cells go through the
steps at a time, so that what one writes the next finds in the caches. Measured on two cores with AVX-512, see docs/decisions/0008. They do not
depend on the number of threads, so that the same is chosen with any."""


def pays(spec: Spec) -> bool:
    """Whether a convolution with a constant filter is quicker this way."""
    if spec.groups != 1 or spec.is_depthwise or not spec.channels_last or spec.dtype != FLOAT32 or len(spec.slides) != 2:
        return False
    if any(s.window != WINDOW or s.stride != 1 or s.dilation != 1 or min(s.before, s.after) < 0 for s in spec.slides):
        return False
    rows, columns = _tiles(spec)
    tiles, pairs = spec.batch * rows * columns, spec.depth * spec.out_depth
    direct = max(spec.flops / FLOPS_PER_US, spec.filter_bytes / BYTES_PER_US)
    product = max(2 * POINTS * tiles * pairs / FLOPS_PER_US, POINTS * pairs * FLOAT32.itemsize / BYTES_PER_US)
    transforms = US_PER_TILE * tiles * (spec.depth + spec.out_depth) / 2
    return product + transforms + US_PER_CALL <= WORTH_IT * direct


def _tiles(spec: Spec) -> tuple[int, int]:
    rows, columns = (-(-s.out // TILE) for s in spec.slides)
    return rows, columns


def _at_a_time(spec: Spec) -> tuple[int, int]:
    """How many images, and how many rows of tiles of each, go through the steps together."""
    rows, columns = _tiles(spec)
    fitting = STRIP_BYTES // (POINTS * columns * max(spec.depth, spec.out_depth) * FLOAT32.itemsize)
    if fitting < 2 * rows:
        return 1, -(-rows // -(-rows // max(fitting, 1)))
    return max(n for n in range(1, fitting // rows + 1) if spec.batch % n == 0), rows


# -- the plan ------------------------------------------------------------------------------------------------------------


class Winograd:
    """y = conv(x, w) [+ bias] [post-ops], with the interface of conv.Forward."""

    def __init__(self, m: Maker, spec: Spec, bias_type: np.dtype | None, post_ops: PostOps) -> None:
        self.spec, self.dtype, self.shape = spec, spec.dtype, spec.shape(spec.dst_dims)
        self.images, rows = _at_a_time(spec)
        self.all_rows, columns = _tiles(spec)
        self.tiles = rows, columns
        count = self.images * rows * columns
        wide_in, wide_out = count * spec.depth, count * spec.out_depth
        self._copies = count
        # An addend lies as the results do before they are copied to their places.
        post_ops = tuple(Add((TILE * TILE, wide_out), (wide_out, 1)) if isinstance(op, Add) else op for op in post_ops)
        self.has_bias = bias_type is not None
        self.has_addend = any(isinstance(op, Add) for op in post_ops)
        product = matmul.MatMul(m, _product((POINTS, count, spec.depth), (POINTS, spec.depth, spec.out_depth)), False, (), True)
        self.main, self.weights = product.main, Weights(product.weights)
        self._of_cells = matmul.MatMul(m, _product((POINTS, POINTS), (POINTS, wide_in)), False, (), False).main
        self._of_result = matmul.MatMul(m, _product((TILE * TILE, POINTS), (POINTS, wide_out)), self.has_bias, post_ops, False).main
        self._size = POINTS * max(wide_in, wide_out) * FLOAT32.itemsize
        # The last strip may compute some rows again.
        self._starts = [min(i, self.all_rows - rows) for i in range(0, self.all_rows, rows)]
        self._views: dict[tuple[int, int], _Views] = {}
        self.run = self.run_constant
        self.constant = SimpleNamespace(run=self.run_constant, shape=self.shape, main=self.main)

    def vector(self, bias: np.ndarray) -> np.ndarray:
        """A bias as `run_at` reads it: for all tiles side by side."""
        return np.tile(bias, self._copies)

    def run_constant(self, x: np.ndarray, w: np.ndarray, *more: np.ndarray) -> np.ndarray:
        operands = [self.vector(v) if self.has_bias and i == 0 else v for i, v in enumerate(more)]
        return self.run_at(x, self.weights.constant(w), [*map(address, operands)])

    def run_at(self, x: np.ndarray, weights: int, more: Sequence[int]) -> np.ndarray:
        """With weights laid out before, and further operands, by their addresses."""
        y = aligned_empty(self.shape, FLOAT32)
        # Two buffers in turn: what one step writes, the next one reads.
        one, other = scratch.take(self._size), scratch.take(self._size)
        views = self._views.get((one.address, other.address)) or self._new_views(one, other)
        for first in range(0, self.spec.batch, self.images):
            images = slice(first, first + self.images)
            for strip in views.strips:
                for border in strip.borders:
                    border.fill(0)
                strip.inside[...] = x[images, strip.read]
                views.gathered[...] = views.cells
                self._of_cells.run(_CELLS.address, other.address, one.address)
                self.main.run(one.address, weights, other.address)
                if self.has_addend:
                    self._result_and_addend(other, one, more, images, strip.written)
                else:
                    self._of_result.run(_RESULT.address, other.address, one.address, *more)
                for tile, there in _places(views.results, y[images, strip.written]):
                    there[...] = tile
        scratch.give(other)
        scratch.give(one)
        return y

    def _new_views(self, one: Buffer, other: Buffer) -> _Views:
        """Names for what lies in the two buffers. To make them takes longer than some of the steps, and the buffers are mostly the same."""
        spec, (rows, columns) = self.spec, self.tiles
        height = TILE * rows + 2
        padded = _array_at(one.address, (self.images, height, TILE * columns + 2, spec.depth))
        vertical, horizontal = spec.slides
        right = slice(horizontal.before, horizontal.before + horizontal.size)
        strips = []
        for row in self._starts:
            top = TILE * row - vertical.before  # of the strip, in the image
            read = slice(max(top, 0), min(top + height, vertical.size))
            down = slice(read.start - top, read.stop - top)
            borders = padded[:, : down.start], padded[:, down.stop :], padded[:, down, : right.start], padded[:, down, right.stop :]
            written = slice(TILE * row, min(TILE * (row + rows), vertical.out))
            strips.append(_Strip([b for b in borders if b.size], padded[:, down, right], read, written))
        n, r, c, d = padded.strides
        cells = np.lib.stride_tricks.as_strided(padded, (4, 4, self.images, rows, columns, spec.depth), (r, c, n, TILE * r, TILE * c, d))
        results = _array_at(one.address, self._result_shape)
        views = _Views(strips, cells, _array_at(other.address, cells.shape), results)
        if len(self._views) >= KEPT_VIEWS:
            self._views.clear()
        self._views[one.address, other.address] = views
        return views

    @property
    def _result_shape(self) -> tuple[int, ...]:
        return (TILE, TILE, self.images, *self.tiles, self.spec.out_depth)

    def _result_and_addend(self, source: Buffer, target: Buffer, more: Sequence[int], images: slice, rows: slice) -> None:
        taken = scratch.take(self._size)
        tiles = _array_at(taken.address, self._result_shape)
        for tile, there in _places(tiles, _array_at(more[-1], self.shape)[images, rows]):
            tile[...] = there
        self._of_result.run(_RESULT.address, source.address, target.address, *more[:-1], taken.address)
        scratch.give(taken)


class _Strip(NamedTuple):
    """Some rows of tiles of an image: what is zero around it, where its cells go, which rows of the image they are, which rows result."""

    borders: list[np.ndarray]
    inside: np.ndarray
    read: slice
    written: slice


class _Views(NamedTuple):
    """Parts of the two buffers of a run."""

    strips: list[_Strip]
    cells: np.ndarray
    gathered: np.ndarray
    results: np.ndarray


def _square(matrix: np.ndarray) -> Buffer:
    values = np.kron(matrix, matrix).astype(np.float32)
    return Buffer(values, address(values), values.nbytes)


_CELLS, _RESULT = _square(CELLS), _square(RESULT)


def _product(a: tuple[int, ...], b: tuple[int, ...]) -> matmul.Spec:
    return matmul.Spec(a, b, False, False, FLOAT32)


class Weights:
    """The filter, transformed and laid out as the product likes it best; as plan.Reordered."""

    def __init__(self, product: Reordered) -> None:
        self.primitive = self  # not None, as for a filter that may stay as it is
        self._product = product
        self._constants = ConstantWeights()

    def laid_out(self, filter: np.ndarray) -> Buffer:
        return self._product.laid_out(transformed(filter))

    def constant(self, filter: np.ndarray) -> int:
        return self._constants.get(filter, self.laid_out)


def transformed(filter: np.ndarray) -> np.ndarray:
    """G filter G' for each pair of channels: (3, 3, C, O) becomes (16, C, O)."""
    result = np.empty((4, 4, *filter.shape[2:]), np.float32)
    # Row by row of the result: the float64 values of all would be twice as large as it is.
    for target, factors in zip(result, FILTER, strict=True):
        row = np.einsum("i,ijco->jco", factors, filter, dtype=np.float64)
        np.einsum("bj,jco->bco", FILTER, row, out=target, dtype=np.float64, casting="same_kind")
    return result.reshape(POINTS, *filter.shape[2:])


# -- where cells and results lie -----------------------------------------------------------------------------------------


def _array_at(start: int, shape: tuple[int, ...]) -> np.ndarray:
    """Memory of float32 numbers as an array; the caller keeps it alive."""
    values: Any = (c_float * prod(shape)).from_address(start)
    return np.frombuffer(values, np.float32).reshape(shape)


def _places(tiles: np.ndarray, image: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs of views of the same results, in tiles (2, 2, N, rows, columns, O) and where they belong (N, height, width, O); what hangs over
    the edge is left out."""
    pairs = []
    for i in range(TILE):
        for j in range(TILE):
            there = image[:, i::TILE, j::TILE]
            pairs.append((tiles[i, j, :, : there.shape[1], : there.shape[2]], there))
    return pairs
