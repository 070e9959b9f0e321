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
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

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

LEAST_CHANNELS, MOST_CHANNELS = 64, 320
LEAST_TILES = 36
MOST_BYTES = 4 << 20
"""Fewer channels do not pay for the transforms, and more, or few tiles, not for the filter, which grows from 9 to 16 values and comes out of main
memory. As many bytes of cells go through the steps at a time, so that what one writes the next finds in the caches. Measured on two
cores with AVX-512, see docs/decisions/0008."""


def pays(spec: Spec) -> bool:
    """Whether a convolution with a constant filter is quicker this way."""
    if spec.groups != 1 or spec.is_depthwise or not spec.channels_last or spec.dtype != FLOAT32 or len(spec.slides) != 2:
        return False
    if any(s.window != WINDOW or s.stride != 1 or s.dilation != 1 or min(s.before, s.after) < 0 for s in spec.slides):
        return False
    least, most = sorted((spec.depth, spec.out_depth))
    tiles = _tiles(spec)[0] * _tiles(spec)[1]
    return least >= LEAST_CHANNELS and most <= MOST_CHANNELS and tiles * spec.batch >= LEAST_TILES and _image_bytes(spec) <= MOST_BYTES


def _tiles(spec: Spec) -> tuple[int, int]:
    rows, columns = (-(-s.out // TILE) for s in spec.slides)
    return rows, columns


def _image_bytes(spec: Spec) -> int:
    """Of one image's tiles, in or out."""
    rows, columns = _tiles(spec)
    return POINTS * rows * columns * max(spec.depth, spec.out_depth) * FLOAT32.itemsize


def _images_at_a_time(spec: Spec) -> int:
    """A divisor of the batch, so that one set of products does for all."""
    most = max(1, MOST_BYTES // _image_bytes(spec))
    return max(n for n in range(1, spec.batch + 1) if spec.batch % n == 0 and n <= most)


# -- the plan ------------------------------------------------------------------------------------------------------------


class Winograd:
    """y = conv(x, w) [+ bias] [post-ops], with the interface of conv.Forward."""

    def __init__(self, m: Maker, spec: Spec, bias_type: np.dtype | None, post_ops: PostOps) -> None:
        self.spec, self.dtype, self.shape = spec, spec.dtype, spec.shape(spec.dst_dims)
        self.images = _images_at_a_time(spec)
        self.tiles = _tiles(spec)
        count = self.images * self.tiles[0] * self.tiles[1]
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
        self.is_even = all(s.out % TILE == 0 for s in spec.slides)
        self._views: dict[tuple[int, int], _Views] = {}
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
        images, batch = self.images, self.spec.batch
        for i in range(0, batch, images):
            for border in views.borders:
                border.fill(0)
            views.inside[...] = x if images == batch else x[i : i + images]
            views.gathered[...] = views.cells
            self._of_cells.run(_CELLS.address, other.address, one.address)
            self.main.run(one.address, weights, other.address)
            if self.has_addend:
                self._result_and_addend(other, one, more, i)
            else:
                self._of_result.run(_RESULT.address, other.address, one.address, *more)
            self._place(views.results, y[i : i + images])
        scratch.give(other)
        scratch.give(one)
        return y

    def _new_views(self, one: Buffer, other: Buffer) -> _Views:
        """Names for what lies in the two buffers. To make them takes longer than some of the steps, and the buffers are mostly the same."""
        spec, (rows, columns) = self.spec, self.tiles
        padded = _array_at(one.address, (self.images, TILE * rows + 2, TILE * columns + 2, spec.depth))
        down, right = (slice(s.before, s.before + s.size) for s in spec.slides)
        borders = padded[:, : down.start], padded[:, down.stop :], padded[:, down, : right.start], padded[:, down, right.stop :]
        n, r, c, d = padded.strides
        cells = np.lib.stride_tricks.as_strided(padded, (4, 4, self.images, rows, columns, spec.depth), (r, c, n, TILE * r, TILE * c, d))
        results = _array_at(one.address, (TILE, TILE, self.images, rows, columns, spec.out_depth))
        views = _Views([b for b in borders if b.size], padded[:, down, right], cells, _array_at(other.address, cells.shape), results)
        if len(self._views) >= KEPT_VIEWS:
            self._views.clear()
        self._views[one.address, other.address] = views
        return views

    def _place(self, tiles: np.ndarray, image: np.ndarray) -> None:
        """Copies results, tile by tile (2, 2, N, rows, columns, O), to where they belong (N, height, width, O)."""
        if self.is_even:
            _, _, n, rows, columns, depth = tiles.shape
            image.reshape(n, rows, TILE, columns, TILE, depth)[...] = tiles.transpose(2, 3, 0, 4, 1, 5)
            return
        for tile, there in _places(tiles, image):
            there[...] = tile

    def _result_and_addend(self, source: Buffer, target: Buffer, more: Sequence[int], start: int) -> None:
        spec, (rows, columns) = self.spec, self.tiles
        addend = _array_at(more[-1], self.shape)[start : start + self.images]
        taken = scratch.take(self._size)
        tiles = _array_at(taken.address, (TILE, TILE, self.images, rows, columns, spec.out_depth))
        for tile, there in _places(tiles, addend):
            tile[...] = there
        self._of_result.run(_RESULT.address, source.address, target.address, *more[:-1], taken.address)
        scratch.give(taken)


class _Views(NamedTuple):
    """Parts of the two buffers of a run."""

    borders: list[np.ndarray]
    inside: np.ndarray
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
    depth, out = filter.shape[2:]
    square = np.kron(FILTER, FILTER)
    flat = filter.reshape(WINDOW * WINDOW, depth, out)
    result = np.empty((POINTS, depth, out), np.float32)
    for i in range(POINTS):  # one at a time: the float64 values are twice as large
        result[i] = sum(factor * flat[j] for j, factor in enumerate(square[i]) if factor)
    return result


# -- where cells and results lie -----------------------------------------------------------------------------------------


def _array_at(start: int, shape: tuple[int, ...]) -> np.ndarray:
    """Memory of float32 numbers as an array; the caller keeps it alive."""
    size = int(np.prod(shape))
    return np.frombuffer((c_float * size).from_address(start), np.float32).reshape(shape)


def _places(tiles: np.ndarray, image: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs of views of the same results, in tiles (2, 2, N, rows, columns, O) and where they belong (N, height, width, O); what hangs over
    the edge is left out."""
    pairs = []
    for i in range(TILE):
        for j in range(TILE):
            there = image[:, i::TILE, j::TILE]
            pairs.append((tiles[i, j, :, : there.shape[1], : there.shape[2]], there))
    return pairs
