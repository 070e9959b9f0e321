"""Convolutions of 3 x 3 windows with fewer multiplications, and their gradients: Winograd's F(2 x 2, 3 x 3) and F(3 x 3, 2 x 2).

Each tile of 2 x 2 results depends on 4 x 4 cells. Tile, filter and result are transformed by small constant matrices,

    result = A' ((G filter G') * (B' cells B)) A

    B' = 1  0 -1  0      A' = 1  1  1  0
         0  1  1  0           0  1 -1 -1
         0 -1  1  0
         0  1  0 -1

where * goes element by element, so that all tiles and channels together are 16 products of matrices (tiles, C) @ (C, O): 16
multiplications a tile where the definition has 36. The transforms of cells and results, with bias, addend and activation behind
the latter, are machine code of ours (`ops.native.winograd`) that runs on oneDNN's threads: others would have to wait until these are asleep.

Where there are many tiles each thread takes strips of them through all steps by itself (`_of_own`): nobody waits for another one, and what a step writes the next one finds
in the core's own cache. The products are machine code too then (`ops.native.strips`). Where tiles are few and weights many, all threads take each step together, and the
products are oneDNN's.

The gradient of the input is the convolution of the results' gradient with the filter turned around, channels of cells and results exchanged: its products
read the filter's points across.

The gradient of the filter is, for each tile, a convolution of its cells with the 2 x 2 gradients of its results:

    gradient = sum over tiles of C' ((H results H') * (B' cells B)) C

    H = 1    0         C' = 1  1  1  0
        1/2  1/2            0  1 -1  0
        1/2 -1/2            0  1  1 -1
        0    1

where the sums over tiles are 16 products (C, tiles) @ (tiles, O), of operands that oneDNN would lay out anew: these are machine code too. At the point where both
means are taken the gradients of the results add up to a quarter of the bias's gradient.

A constant filter is transformed once, in float64, and rounded once. The result is good to about a bit less than that of the definition. Where a cell is
infinite or NaN, so may be all results of the tiles that see it, also those whose windows do not; and large numbers become infinite sooner. The last transform sees that: plans give no result
(None) then, and whoever asks computes it by the definition (`conv.Checked`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from ctypes import addressof, c_float, memset
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.engines.memory import ALIGNMENT, address, aligned_empty
from penstock.engines.onednn import matmul
from penstock.engines.onednn.library import UNIMPLEMENTED, Library, OneDnnError
from penstock.engines.onednn.plan import Reordered, contiguous, laid_aside
from penstock.engines.onednn.primitives import FLOAT32, Add, Buffer, ConstantWeights, Eltwise, Maker, PostOps, scratch
from penstock.engines.onednn.tables import Tables, Value
from penstock.ops.native import calls, strips
from penstock.ops.native import winograd as transforms
from penstock.ops.native.transposes import in_order

if TYPE_CHECKING:
    from penstock.engines.onednn.conv import Spec

FILTER = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])  # G
WINDOW, TILE, POINTS = 3, 2, 16
MEANS = 5
"""The point at which the mean is taken along both axes."""
SHARES = 8
"""In how many parts the tiles are cut for each thread: one that comes late takes fewer."""

# -- whether it pays -----------------------------------------------------------------------------------------------------

FLOPS_PER_US, BYTES_PER_US = 215e3, 18e3
US_PER_TILE, US_PER_CALL = 0.003, 40.0
WORTH_IT = 0.82
STRIP_BYTES = 1 << 20
"""What the products of both ways come to, and how fast filters come out of main memory; what the transforms cost for each tile and channel; what
part of the other way's time it may take, by that reckoning: it leaves out what the caches do. About as many bytes of cells go through the
steps at a time, so that what one writes the next finds in the caches. Measured on two cores with AVX-512, see docs/decisions/0008. They do not
depend on the number of threads, so that the same is chosen with any."""
OWN_BYTES, FEW_TILES, LITTLE_WAITING = 384 << 10, 24, 0.85
"""Of strips that one thread takes through all steps: bytes of cells or results, of which it has both; fewer tiles read the weights too often; and which
part of all threads' time must be left after what is computed twice, and after waiting for the last one."""
US_PER_OWN_TILE, US_PER_OWN_CALL, NARROW = 0.0011, 15.0, 1.4
"""As those above, for such strips; and how much longer products take whose results have one vector of channels: they wait for the cells."""


def pays(spec: Spec, is_constant: bool = True) -> bool:
    """Whether a convolution is quicker this way. `is_constant`: the filter never changes, so that transforming it, or laying it out, costs nothing."""
    if spec.groups != 1 or spec.is_depthwise or not spec.channels_last or spec.dtype != FLOAT32 or len(spec.slides) != 2:
        return False
    if any(s.window != WINDOW or s.stride != 1 or s.dilation != 1 for s in spec.slides):
        return False
    if not all(0 <= cells < WINDOW for s in spec.slides for cells in (s.before, s.after)):  # so that oneDNN has a plan by the definition, too
        return False
    if not transforms.available(spec.depth, spec.out_depth):
        return False
    rows, columns = _tiles(spec)
    tiles, pairs = spec.batch * rows * columns, spec.depth * spec.out_depth
    multiplied, per_tile, around = pairs, US_PER_TILE, US_PER_CALL
    if _of_own(spec, 2) is not None:
        lanes = -(-spec.out_depth // transforms.LANES) * transforms.LANES
        multiplied, per_tile, around = spec.depth * lanes * (1 if lanes > transforms.LANES else NARROW), US_PER_OWN_TILE, US_PER_OWN_CALL
    direct = max(spec.flops / FLOPS_PER_US, spec.filter_bytes / BYTES_PER_US)
    product = max(2 * POINTS * tiles * multiplied / FLOPS_PER_US, POINTS * pairs * FLOAT32.itemsize / BYTES_PER_US)
    around += per_tile * tiles * (spec.depth + spec.out_depth) / 2
    if not is_constant:  # what is read and written to transform it, and to lay it out
        around += (WINDOW * WINDOW + POINTS) * pairs * FLOAT32.itemsize / BYTES_PER_US
        direct += 2 * spec.filter_bytes / BYTES_PER_US
    return product + around <= WORTH_IT * direct


def turned(spec: Spec) -> Spec:
    """The convolution of the results' gradient whose result is the input's."""
    slides = (s._replace(size=s.out, out=s.size, before=WINDOW - 1 - s.before, after=WINDOW - 1 - s.after) for s in spec.slides)
    return spec._replace(depth=spec.out_depth, out_depth=spec.depth, slides=tuple(slides))


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


def _of_own(spec: Spec, threads: int) -> tuple[int, int] | None:
    """How many images, and how many rows of tiles of each, a thread takes through all steps by itself; None if all threads take each step together."""
    all_rows, columns = _tiles(spec)
    most = OWN_BYTES // (POINTS * max(spec.depth, spec.out_depth) * FLOAT32.itemsize)
    best, found = LITTLE_WAITING, None
    for images, rows in [*((1, n) for n in range(1, all_rows)), *((n, all_rows) for n in range(1, spec.batch + 1) if spec.batch % n == 0)]:
        tiles = images * rows * columns
        if FEW_TILES <= tiles <= most:
            strips = spec.batch // images * -(-all_rows // rows)
            used = spec.batch * all_rows * columns / (threads * -(-strips // threads) * tiles)
            if used >= best:
                best, found = used, (images, rows)
    return found


def _plane(tiles: int, depth: int) -> int:
    """Bytes from one point to the next, in strips of one's own: all 16 are written at a time, and shall not lie on the same lines of the cache."""
    return tiles * depth * FLOAT32.itemsize + ALIGNMENT


# -- the plan ------------------------------------------------------------------------------------------------------------


class Winograd:
    """y = conv(x, w) [+ bias] [post-ops], with the interface of conv.Forward. `is_turned`: the filter is that of the convolution whose gradient this is."""

    def __init__(self, m: Maker, spec: Spec, bias_type: np.dtype | None, post_ops: PostOps, is_constant: bool, is_turned: bool = False) -> None:
        if not transforms.available(spec.depth, spec.out_depth):
            raise OneDnnError("transforms", UNIMPLEMENTED)
        self.spec, self.dtype, self.shape, self.library, self.threads = spec, spec.dtype, spec.shape(spec.dst_dims), m.library, m.threads
        own = _of_own(spec, m.threads)
        self.is_apart = own is not None
        self.images, rows = own or _at_a_time(spec)
        all_rows, columns = _tiles(spec)
        self.count = count = self.images * rows * columns
        self._is_across = is_turned and self.is_apart  # the filter's channels have to change places, since nobody reads its points across
        rows_of, columns_of = (spec.out_depth, spec.depth) if is_turned and not self.is_apart else (spec.depth, spec.out_depth)
        self._weights = _weight_places(rows_of, columns_of, is_turned)
        has_bias = bias_type is not None
        self._of_cells, self._of_points = transforms.cells(self.is_apart), _results(has_bias, post_ops, self.is_apart)
        self._bias, self._addend = (0 if has_bias else None), (int(has_bias) if any(isinstance(op, Add) for op in post_ops) else None)
        # The last strip may compute some rows again.
        of_image = [_Strip.of(spec, self.images, min(i, all_rows - rows), rows) for i in range(0, all_rows, rows)]
        self.n_strips = len(of_image)
        self._zeros, self._unread = np.zeros(spec.depth, FLOAT32), np.zeros(spec.out_depth, FLOAT32)
        if self.is_apart:
            self.main: Any = SimpleNamespace(implementation="winograd", library=m.library, threads=m.threads)
            self.weights = Weights(None)
            self._product = strips.multiplied(spec.depth, spec.out_depth)
            self._planes = _plane(count, spec.depth), _plane(count, spec.out_depth)
            self.size = m.threads * POINTS * sum(self._planes)
            self._places = tuple(map(np.concatenate, zip(*of_image)))
            self._runs: list[tuple[Tables, Any]] = []
            self._run_at = self._run_apart
        else:
            sizes = matmul.Spec((POINTS, count, spec.depth), (POINTS, rows_of, columns_of), False, is_turned, FLOAT32)
            product = matmul.MatMul(m, sizes, False, (), is_constant)
            self.main, self.weights = product.main, Weights(product.weights)
            self.size = POINTS * count * max(spec.depth, spec.out_depth) * FLOAT32.itemsize
            self._strips = of_image
            self._run_at = self._run_together
        self.run = self.run_constant if is_constant else self.run_changing
        self.constant = SimpleNamespace(run=self.run_constant, shape=self.shape, main=self.main)

    def vector(self, bias: np.ndarray) -> np.ndarray:
        """A constant bias as `run_at` reads it."""
        return bias

    def has_layout_of(self, other: Any) -> bool:
        """Whether another plan's constant filter would do."""
        if not isinstance(other, Winograd) or self.is_apart or other.is_apart:
            return isinstance(other, Winograd) and self.is_apart and other.is_apart
        return bool(self.library.md_equal(self.main.descriptor(1), other.main.descriptor(1)))

    def run_constant(self, x: np.ndarray, w: np.ndarray, *more: np.ndarray) -> np.ndarray | None:
        return self.run_at(x, self.weights.constant(w), [*map(address, more)])

    def run_changing(self, x: np.ndarray, w: np.ndarray, *more: np.ndarray) -> np.ndarray | None:
        w = in_order(w.transpose(0, 1, 3, 2)) if self._is_across else contiguous(w)
        points = scratch.take(POINTS * w[0, 0].nbytes)
        transform(self.library, self.threads, transforms.filters(), self._weights, len(self._weights), points.address, address(w), w[0, 0, 0])
        y = self.run_at(x, points.address, [*map(address, more)])
        scratch.give(points)
        return y

    def run_at(self, x: np.ndarray, weights: int, more: Sequence[int]) -> np.ndarray | None:
        """With weights laid out before, and further operands, by their addresses."""
        x = contiguous(x)
        y = aligned_empty(self.shape, FLOAT32)
        bias, addend = (0 if i is None else more[i] for i in (self._bias, self._addend))
        doubt = self._run_at(address(x), weights, address(y), bias, addend)
        return None if doubt else y

    # Each thread by itself.

    def _run_apart(self, *arrays: int) -> bool:
        """Whether it is in doubt."""
        try:
            tables, told = self._runs.pop()
        except IndexError:
            tables = Tables({}, range(6))
            x, weights, y, bias, addend, room = map(Value, range(6))
            told = tables.array(self.told(x, weights, y, bias, addend, room, Value.moved))
        buffer = scratch.take(self.size)
        tables.move((*arrays, buffer.address))
        doubt = shared_out(self.library, self.threads, False, told)
        scratch.give(buffer)
        self._runs.append((tables, told))
        return doubt

    def told(self, x: Any, weights: Any, y: Any, bias: Any, addend: Any, buffer: Any, moved: Callable[[Any, int], Any]) -> list[Any]:
        """What `strips.shared_out` is told; lists inside are addresses of tables. `buffer` has `size` bytes. `moved(address, bytes)` is an address behind another one."""
        step_x, step_y = (self.images * math.prod(dims[1:]) * FLOAT32.itemsize for dims in (self.spec.src_dims, self.spec.dst_dims))
        of_cells, of_results = self._planes
        rows: list[Any] = []
        for slot in range(self.threads):
            points = moved(buffer, slot * POINTS * (of_cells + of_results))
            products = moved(points, POINTS * of_cells)
            cells = [*_table(1, self._places[0], self.count, points, x, self._zeros, 0, 0, step_x, of_cells)]
            multiplied = [*strips.Multiplied(self.count, points, weights, products, of_cells, of_results)]
            results = [*_table(1, self._places[1], self.count, products, y, self._unread, bias, addend, step_y, of_results)]
            rows += [self._of_cells, cells, 0, self._product, multiplied, 0, self._of_points, results, calls.FAILS, 0, 0, 0]
        return _shared(rows, self.threads, self.spec.batch // self.images, self.n_strips)

    # All threads together.

    def _run_together(self, x: int, weights: int, y: int, bias: int, addend: int) -> bool:
        """Whether it is in doubt."""
        doubt = False
        points, products = scratch.take(self.size), scratch.take(self.size)
        for code, told in self.steps(x, weights, y, bias, addend, points.address, products.address, operator.add):
            if code:
                doubt |= bool(together(self.library, self.threads, code, told)[-1])
            else:
                self.main.run(*told)
        scratch.give(products)
        scratch.give(points)
        return doubt

    def steps(
        self, x: Any, weights: int, y: Any, bias: int, addend: Any, points: Any, products: Any, moved: Callable[[Any, int], Any]
    ) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """What has to be done: machine code and its table, or 0 and the arguments of `main`. `points` and `products` are two buffers of `size` bytes: what one
        step writes, the next one reads. `moved(address, bytes)` is an address behind another one; addresses may be any objects of which that is true."""
        step_x, step_y = (self.images * math.prod(dims[1:]) * FLOAT32.itemsize for dims in (self.spec.src_dims, self.spec.dst_dims))
        for i in range(self.spec.batch // self.images):
            for strip in self._strips:
                yield self._of_cells, _table(self.threads, strip.cells, self.count, points, moved(x, i * step_x), self._zeros)
                yield 0, (points, weights, products)
                added = moved(addend, i * step_y) if addend else 0
                yield self._of_points, _table(self.threads, strip.results, self.count, products, moved(y, i * step_y), self._unread, bias, added)


def transform(
    library: Library, threads: int, code: int, places: np.ndarray, tiles: int, points: int, image: int, outside: np.ndarray, bias: int = 0, addend: int = 0
) -> bool:
    """Runs one of the functions of `ops.native.winograd` on tiles whose places are given; `outside`, of as many channels, stands for what is not in the image.
    Returns whether results or weights that it has written are not all finite."""
    return bool(together(library, threads, code, _table(threads, places, tiles, points, image, outside, bias, addend))[-1])


def _table(
    threads: int, places: np.ndarray, tiles: int, points: Any, image: Any, outside: np.ndarray, bias: Any = 0, addend: Any = 0, step: int = 0, plane: int = 0
) -> transforms.Table:
    share = max(1, tiles // (SHARES * threads))
    return transforms.Table(0, tiles, share, address(places), points, image, address(outside), outside.nbytes, bias, addend, step, plane)


def _shared(rows: list[Any], slots: int, images: int, of_image: int) -> list[Any]:
    return [*strips.Shared(0, 0, slots, images * of_image, of_image, rows, 8 * len(rows) // slots)]  # type: ignore[arg-type]


def shared_out(library: Library, threads: int, is_fixed: bool, told: Any) -> bool:
    """Calls `strips.shared_out` with a table on so many threads. Returns whether it is in doubt."""
    told[0] = told[1] = told[-1] = 0
    _in_parallel(library, threads, strips.shared_out(is_fixed), addressof(told))
    return bool(told[-1])


def _in_parallel(library: Library, threads: int, code: int, table: int) -> None:
    library.used = True
    status = library.run(threads, library.together, code, table, threads, 0)
    if status:
        raise OneDnnError("transform", status)


def together(library: Library, threads: int, code: int, told: tuple[int, ...]) -> np.ndarray:
    """Calls the machine code with a table on so many threads. Returns what has become of the table."""
    table = np.array(told, np.int64)
    _in_parallel(library, threads, code, address(table))
    return table


class BackwardInput:
    """dx = the gradient of the input, with the interface of conv.BackwardInput."""

    def __init__(self, m: Maker, spec: Spec) -> None:
        self.turned = Winograd(m, turned(spec), None, (), is_constant=False, is_turned=True)
        self.main = self.turned.main

    def run(self, w: np.ndarray, dy: np.ndarray) -> np.ndarray | None:
        return self.turned.run_changing(dy, w)


class BackwardFilter:
    """dw = the gradient of the filter, with the interface of conv.BackwardFilter."""

    def __init__(self, m: Maker, spec: Spec, has_bias: bool) -> None:
        if not transforms.available(spec.depth, spec.out_depth) or spec.depth % strips.ROWS or spec.out_depth % transforms.LANES:
            raise OneDnnError("transforms", UNIMPLEMENTED)
        self.spec, self.has_bias, self.main = spec, has_bias, SimpleNamespace(implementation="winograd")
        self.library, self.threads = m.library, m.threads
        own = _of_own(spec, m.threads)
        self.is_apart = own is not None
        self.images, rows = own or _at_a_time(spec)
        all_rows, columns = _tiles(spec)
        self.count = self.images * rows * columns
        self._pieces = POINTS * spec.depth // strips.ROWS
        self._places = _weight_places(spec.depth, spec.out_depth, False)
        self._outside = np.zeros(spec.depth, FLOAT32), np.zeros(spec.out_depth, FLOAT32)
        self._code = transforms.cells(own is not None), transforms.gradients(own is not None), strips.products(spec.depth, spec.out_depth, own is not None)
        # What the last strip would compute again must not be added again.
        starts = [(i, min(rows, all_rows - i)) for i in range(0, all_rows, rows)]
        self.n_strips = len(starts)
        if own is None:
            self._strips = [_Strip.of(spec, self.images, row, some) for row, some in starts]
            return
        # What lies below the image is zero.
        self._strip_places = tuple(map(np.concatenate, zip(*(_Strip.of(spec, self.images, row, rows) for row, _ in starts))))
        self._planes = _plane(self.count, spec.depth), _plane(self.count, spec.out_depth)
        self._sums = POINTS * spec.depth * spec.out_depth
        self._slot = POINTS * sum(self._planes) + (self._sums + spec.out_depth) * FLOAT32.itemsize
        self._runs: list[tuple[Tables, Any]] = []

    def run(self, x: np.ndarray, dy: np.ndarray) -> Any:
        x, dy = contiguous(x), contiguous(dy)
        dw = aligned_empty(self.spec.filter_shape, FLOAT32)
        doubt, db = (self._run_apart if self.is_apart else self._run_together)(x, dy, dw)
        if doubt:
            return None
        db *= TILE * TILE
        return (dw, db) if self.has_bias else dw

    def _run_apart(self, x: np.ndarray, dy: np.ndarray, dw: np.ndarray) -> tuple[bool, np.ndarray]:
        """Whether it is in doubt, and a quarter of the sums of dy. Each thread has sums of its own."""
        try:
            tables, told = self._runs.pop()
        except IndexError:
            tables = Tables({}, range(3))
            told = tables.array(self._told(Value(0), Value(1), Value(2)))
        buffer = scratch.take(self.threads * self._slot)
        start = buffer.address + POINTS * sum(self._planes)
        for slot in range(self.threads):
            memset(start + slot * self._slot, 0, (self._sums + self.spec.out_depth) * FLOAT32.itemsize)
        tables.move((address(x), address(dy), buffer.address))
        shared_out(self.library, self.threads, True, told)
        sums, *others = (_rows_at(start + slot * self._slot, 1, self._sums + self.spec.out_depth)[0] for slot in range(self.threads))
        with np.errstate(all="ignore"):  # what is not finite is seen later
            for other in others:
                sums += other
        db = sums[self._sums :].copy()
        doubt = self._finished(start, dw)
        scratch.give(buffer)
        self._runs.append((tables, told))
        return doubt, db

    def _told(self, x: Value, dy: Value, buffer: Value) -> list[Any]:
        step_x, step_dy = (self.images * math.prod(dims[1:]) * FLOAT32.itemsize for dims in (self.spec.src_dims, self.spec.dst_dims))
        of_cells, of_gradients = self._planes
        zeros, no_gradient = self._outside
        rows: list[Any] = []
        for slot in range(self.threads):
            points: Any = buffer.moved(slot * self._slot)
            gradients: Any = points.moved(POINTS * of_cells)
            sums: Any = gradients.moved(POINTS * of_gradients)
            cells = [*_table(1, self._strip_places[0], self.count, points, x, zeros, 0, 0, step_x, of_cells)]
            results = [*_table(1, self._strip_places[1], self.count, gradients, dy, no_gradient, 0, 0, step_dy, of_gradients)]
            products = [*strips.Products(0, self._pieces, self.count, points, gradients, sums, of_cells, of_gradients)]
            added = [self.count, gradients.moved(MEANS * of_gradients), sums.moved(self._sums * FLOAT32.itemsize)]
            for code, table in zip((*self._code, strips.added(self.spec.out_depth)), (cells, results, products, added)):
                rows += [code, table, 0]
            rows += [0, 0, 0]
        return _shared(rows, self.threads, self.spec.batch // self.images, self.n_strips)

    def _run_together(self, x: np.ndarray, dy: np.ndarray, dw: np.ndarray) -> tuple[bool, np.ndarray]:
        """As `_run_apart`, all threads in one step at a time."""
        spec, library, threads = self.spec, self.library, self.threads
        zeros, no_gradient = self._outside
        of_cells, of_gradients, products = self._code
        db = np.zeros(spec.out_depth, FLOAT32)
        size = POINTS * self.count * FLOAT32.itemsize
        cells, gradients, sums = (scratch.take(n) for n in (size * spec.depth, size * spec.out_depth, POINTS * dw[0, 0].nbytes))
        memset(sums.address, 0, POINTS * dw[0, 0].nbytes)
        for image in range(0, spec.batch, self.images):
            for strip in self._strips:
                tiles = strip.results.size // transforms.RESULT_PLACES
                planes = tiles * zeros.nbytes, tiles * no_gradient.nbytes
                transform(library, threads, of_cells, strip.cells, tiles, cells.address, address(x) + image * x.strides[0], zeros)
                transform(library, threads, of_gradients, strip.results, tiles, gradients.address, address(dy) + image * dy.strides[0], no_gradient)
                together(library, threads, products, strips.Products(0, self._pieces, tiles, cells.address, gradients.address, sums.address, *planes))
                if self.has_bias:
                    db += _rows_at(gradients.address + MEANS * planes[1], tiles, spec.out_depth).sum(0)
        doubt = self._finished(sums.address, dw)
        for used in (sums, gradients, cells):
            scratch.give(used)
        return doubt, db

    def _finished(self, sums: int, dw: np.ndarray) -> bool:
        """dw out of the sums at all points; whether it is in doubt."""
        return transform(self.library, self.threads, transforms.weights(), self._places, self.spec.depth, sums, address(dw), self._outside[1])


def _rows_at(start: int, rows: int, columns: int) -> np.ndarray:
    """Memory of float32 numbers as an array; the caller keeps it alive."""
    values: Any = (c_float * (rows * columns)).from_address(start)
    return np.frombuffer(values, np.float32).reshape(rows, columns)


def _results(has_bias: bool, post_ops: PostOps, is_alone: bool) -> int:
    """The transform of points to results with what follows; OneDnnError if it does not do that."""
    slope = most = None
    for op in post_ops:
        if isinstance(op, Eltwise) and op.name == "relu":
            slope = op.alpha
        elif isinstance(op, Eltwise) and op.name == "clip" and op.alpha == 0:
            slope, most = 0.0, op.beta
        elif not isinstance(op, Add) or op is not post_ops[0]:
            raise OneDnnError(f"transform with {op}", UNIMPLEMENTED)
    return transforms.results(has_bias, bool(post_ops) and isinstance(post_ops[0], Add), slope, most, is_alone)


class _Strip(NamedTuple):
    """Some rows of tiles of some images: where the cells and the results of each tile lie."""

    cells: np.ndarray
    results: np.ndarray

    @classmethod
    def of(cls, spec: Spec, images: int, row: int, rows: int) -> _Strip:
        tiles = [TILE * np.arange(row, row + rows), TILE * np.arange(_tiles(spec)[1])]
        cells = [at - s.before for at, s in zip(tiles, spec.slides, strict=True)]
        sizes, outs = ([getattr(s, name) for s in spec.slides] for name in ("size", "out"))
        return cls(_places(images, cells, transforms.SIDE, sizes, spec.depth), _places(images, tiles, TILE, outs, spec.out_depth))


def _places(images: int, starts: Sequence[np.ndarray], side: int, sizes: Sequence[int], depth: int) -> np.ndarray:
    """Offsets in bytes of `side` x `side` cells from each pair of `starts` in images of the sizes given; negative outside."""
    down, across = (at[:, None] + np.arange(side) for at in starts)
    height, width = sizes
    inside = ((down >= 0) & (down < height))[:, None, :, None] & ((across >= 0) & (across < width))[:, None, :]
    offsets = down[:, None, :, None] * width + across[:, None, :]
    each = np.arange(images).reshape(-1, 1, 1, 1, 1) * (height * width)
    return np.where(inside, (offsets + each) * depth * FLOAT32.itemsize, -1).astype(np.int64)


def _weight_places(rows: int, columns: int, is_turned: bool) -> np.ndarray:
    """Offsets of the 3 x 3 weights of each row, in a filter (3, 3, rows, columns)."""
    window = np.arange(WINDOW * WINDOW)
    return ((window[::-1] if is_turned else window) * rows + np.arange(rows)[:, None]) * (columns * FLOAT32.itemsize)


_TRANSFORMED = ConstantWeights()
"""Filters that are only transformed, not laid out otherwise."""


class Weights:
    """The filter, transformed and laid out as the product likes it best, or as it is; as plan.Reordered."""

    def __init__(self, product: Reordered | None) -> None:
        self.primitive = self  # not None, as for a filter that may stay as it is
        self._product = product
        self._constants = _TRANSFORMED if product is None or product.primitive is None else product.constants

    def laid_out(self, filter: np.ndarray) -> Buffer:
        points = transformed(filter)
        return laid_aside(points) if self._product is None else self._product.laid_out(points)

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
