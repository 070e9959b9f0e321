"""Pixels (runs of float32 numbers) made of other pixels: bilinear mixes, weighted sums, and what bilinear mixes give back to their sources.

The loops read tables of records with 8 bytes a field, a weight being a float32 in the lower half. Addresses in them are those of arrays that the caller
keeps alive.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, R13, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Assembler, Mem
from penstock.ops.native.frames import begun, ended, finished, share_out

available = native.available

_TAIL = 1  # the k register of the elements beyond whole vectors
_LANES, _BYTES = 16, 64

_DEPTHS = 8
"""Depths of images for which one table of sums is kept."""


def _fields(*columns: Any) -> np.ndarray:
    """A table of records: integers, and weights (float32), that broadcast."""
    shape = np.broadcast_shapes(*map(np.shape, columns))
    table = np.zeros((*shape, len(columns)), np.int64)
    for i, column in enumerate(columns):
        if isinstance(column, np.ndarray) and column.dtype == np.float32:
            table.view(np.float32)[..., 2 * i] = column
        else:
            table[..., i] = column
    return table


# -- bilinear mixes -----------------------------------------------------------------------------------------------------


def mix(rows: np.ndarray, out: np.ndarray) -> None:
    """out[i, j] = the mix of four pixels, along x and then along y, a mix being a + (b - a) * share.

    `out` is (rows, columns, depth), contiguous; `rows` comes from `mix_rows`.
    """
    count, width, depth = out.shape
    function = _mix(depth // _LANES > 0, depth % _LANES)
    line = width * depth * 4

    def run(start: int, end: int) -> None:
        function(end - start, native.address_of(rows) + start * 32, native.address_of(out) + start * line, width, depth * 4, depth % _LANES)

    share_out(count, width * depth, run)


def mix_rows(addresses: np.ndarray, share: np.ndarray, columns: Any) -> np.ndarray:
    """Records of rows: the addresses (..., 2) of the one above and the one below, the share of the latter, and the address of the columns' records."""
    return _fields(addresses[..., 0], addresses[..., 1], share, columns)


def mix_columns(offsets: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Records of columns: the offsets (..., 2) of the left and the right pixel in a row, in bytes, and the share of the latter."""
    return _fields(offsets[..., 0], offsets[..., 1], share)


def mix_images(start: int, count: int, size: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Records of the rows of images of `size` bytes, the first of which lies at `start`. Those of the first image come from `mix_rows`, with zeros for addresses."""
    base = np.zeros((count, 1, 4), np.int64)
    base[..., :2] = np.arange(start, start + count * size, size).reshape(-1, 1, 1)
    base[..., 3] = native.address_of(columns)
    return base + rows


def _length(rest: int) -> int:
    """The shortest vector for so many elements."""
    return asm.QUARTER if rest <= 4 else asm.HALF if rest <= 8 else asm.FULL


@cache
def _mix(has_whole: bool, rest: int) -> Any:
    """f(rows, records of rows, out, columns, bytes of a pixel, elements of a pixel beyond whole vectors)"""
    a = _begun()
    row, pixel, vector, tail = range(4)
    across, down = 6, 7  # zmm: the shares

    def mixed(low: int, high: int, share: int) -> None:
        """low += (high - low) * share"""
        a.vector("sub.f32", high, high, low)
        a.vector("mul.f32", high, high, share)
        a.vector("add.f32", low, low, high)

    def one(**masked: Any) -> None:
        zero = {"zero": True} if masked else {}
        for first, base in ((0, R10), (2, R11)):
            a.vector("load.f32", first, Mem(base, index=RAX), **masked, **zero)
            a.vector("load.f32", first + 1, Mem(base, index=RBP), **masked, **zero)
            mixed(first, first + 1, across)
        mixed(0, 2, down)
        a.vector("store.f32", 0, Mem(RDX), **masked)

    a.label(row)
    for register, field in ((R10, 0), (R11, 8), (RBX, 24)):
        a.scalar(asm.MOVE, register, Mem(RSI, field))
    a.vector("broadcast.f32", down, Mem(RSI, 16))
    a.scalar(asm.MOVE, R12, RCX)
    a.label(pixel)
    a.scalar(asm.MOVE, RAX, Mem(RBX))
    a.scalar(asm.MOVE, RBP, Mem(RBX, 8))
    a.vector("broadcast.f32", across, Mem(RBX, 16))
    if has_whole:
        _vectors(a, vector, one)
    if rest:
        a.label(tail)
        one(mask=_TAIL, length=_length(rest))
        a.with_number(0, RDX, rest * 4)
    a.with_number(0, RBX, 24)
    a.with_number(5, R12, 1)
    a.jump(pixel, asm.NOT_ZERO)
    a.with_number(0, RSI, 32)
    a.with_number(5, RDI, 1)
    a.jump(row, asm.NOT_ZERO)
    return ended(a)


def _vectors(a: Any, label: int, one: Any) -> None:
    """`one()` for each whole vector of a pixel: RAX, RBP and RDX go on with them, R9 has their bytes."""
    a.scalar(asm.MOVE, R13, R9)
    a.label(label)
    one()
    for register in (RAX, RBP, RDX):
        a.with_number(0, register, _BYTES)
    a.with_number(5, R13, _BYTES)
    a.jump(label, asm.NOT_ZERO)


def unmix(rows: np.ndarray, depth: int) -> None:
    """The transpose of `mix`: each gradient is added to the four pixels of its mix, one after the other. `rows` comes from `unmix_rows`."""
    if len(rows):
        _unmix(depth // _LANES > 0, depth % _LANES)(len(rows), rows.ctypes.data, 0, 0, depth * 4, depth % _LANES)


def unmix_rows(addresses: np.ndarray, share: np.ndarray, columns: Any, count: Any, gradients: Any) -> np.ndarray:
    """As `mix_rows`, with the number of columns and the address of the row's gradients."""
    return _fields(addresses[..., 0], addresses[..., 1], share, columns, count, gradients)


def unmix_columns(offsets: np.ndarray, share: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """As `mix_columns`, with the offsets of the gradients."""
    return _fields(offsets[..., 0], offsets[..., 1], share, gradients)


@cache
def _unmix(has_whole: bool, rest: int) -> Any:
    """f(rows, records of rows, -, -, bytes of a pixel, elements of a pixel beyond whole vectors)"""
    a = _begun()
    row, pixel, vector, done = range(4)
    right, below, left, above = 6, 7, 8, 9  # zmm: the shares

    def one(**masked: Any) -> None:
        zero = {"zero": True} if masked else {}
        a.vector("load.f32", 0, Mem(RDX), **masked, **zero)
        for base, vertical in ((R10, above), (R11, below)):
            a.vector("mul.f32", 1, 0, vertical)
            for index, horizontal in ((RAX, left), (RBP, right)):
                a.vector("mul.f32", 2, 1, horizontal)
                a.vector("load.f32", 3, Mem(base, index=index), **masked, **zero)
                a.vector("add.f32", 3, 3, 2)
                a.vector("store.f32", 3, Mem(base, index=index), **masked)

    def shares(low: int, high: int, field: Mem) -> None:
        a.vector("broadcast.f32", high, field)
        a.vector("broadcast.f32", low, a.constant(1.0, "f32")._replace(broadcast=False))
        a.vector("sub.f32", low, low, high)

    a.label(row)
    for register, field in ((R10, 0), (R11, 8), (RBX, 24), (R12, 32), (RCX, 40)):
        a.scalar(asm.MOVE, register, Mem(RSI, field))
    shares(above, below, Mem(RSI, 16))
    a.label(pixel)
    a.scalar(asm.MOVE, RAX, Mem(RBX))
    a.scalar(asm.MOVE, RBP, Mem(RBX, 8))
    a.scalar(asm.MOVE, RDX, Mem(RBX, 24))
    a.scalar(asm.ADD, RDX, RCX)
    shares(left, right, Mem(RBX, 16))
    if has_whole:
        _vectors(a, vector, one)
    if rest:
        a.label(done)
        one(mask=_TAIL, length=_length(rest))
    a.with_number(0, RBX, 32)
    a.with_number(5, R12, 1)
    a.jump(pixel, asm.NOT_ZERO)
    a.with_number(0, RSI, 48)
    a.with_number(5, RDI, 1)
    a.jump(row, asm.NOT_ZERO)
    return ended(a)


# -- weighted sums ------------------------------------------------------------------------------------------------------


class Sums:
    """What each of some pixels is the weighted sum of: for pixel i, the taps starts[i] up to starts[i + 1] of `at` (numbers of pixels) and `weight`."""

    def __init__(self, starts: np.ndarray, at: np.ndarray, weight: np.ndarray) -> None:
        self.starts, self.at, self.weight = starts, at, weight
        self.count = len(starts) - 1
        self._tables: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def _table(self, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Records of pixels, (address of the first tap, taps), and those of taps, (offset, weight), which must live as long."""
        found = self._tables.get(depth)
        if found is None:
            taps = _fields(self.at * (depth * 4), self.weight)
            found = _fields(taps.ctypes.data + self.starts[:-1] * 16, np.diff(self.starts)), taps
            if len(self._tables) >= _DEPTHS:
                self._tables.clear()
            self._tables[depth] = found
        return found

    def run(self, lines: np.ndarray, out: np.ndarray) -> None:
        """out[l, i] = the sums of pixels of lines[l]. Both are (lines, pixels, depth), contiguous."""
        depth = lines.shape[2]
        items, _taps = self._table(depth)
        function = _sums(depth // _LANES > 0, depth % _LANES)
        source, target = (lines.shape[1] * depth * 4, lines.ctypes.data), (self.count * depth * 4, out.ctypes.data)
        if len(lines) == 1:  # many rows of one image: those are shared out
            def run(start: int, end: int) -> None:
                block = np.array([items.ctypes.data + start * 16, end - start, depth * 4])
                function(1, source[1], source[0], target[1] + start * depth * 4, block.ctypes.data, depth % _LANES)

            share_out(self.count, depth, run)
            return
        block = np.array([items.ctypes.data, self.count, depth * 4])

        def run_lines(start: int, end: int) -> None:
            function(end - start, source[1] + start * source[0], source[0], target[1] + start * target[0], block.ctypes.data, depth % _LANES)

        share_out(len(lines), self.count * depth, run_lines)


@cache
def _sums(has_whole: bool, rest: int) -> Any:
    """f(lines, source, bytes of a line, out, (address of the pixels' records, how many, bytes of a pixel), elements of a pixel beyond whole vectors)

    The records of pixels are (address of the first tap, taps), those of taps (offset, weight).
    """
    a = _begun(block=True)
    line, pixel, vector, tap, stored, last_tap, last_stored = range(7)

    def total(tap: int, stored: int, **masked: Any) -> None:
        zero = {"zero": True} if masked else {}
        a.scalar(asm.MOVE, R10, Mem(RBX))
        a.scalar(asm.MOVE, R11, Mem(RBX, 8))
        a.vector("xor.i32", 0, 0, 0)
        a.with_number(7, R11, 0)
        a.jump(stored, asm.ZERO)
        a.label(tap)
        a.scalar(asm.MOVE, RAX, Mem(R10))
        a.scalar(asm.ADD, RAX, RSI)
        a.vector("broadcast.f32", 1, Mem(R10, 8))
        a.vector("load.f32", 2, Mem(RAX, index=R13), **masked, **zero)
        a.vector("madd231.f32", 0, 1, 2)
        a.with_number(0, R10, 16)
        a.with_number(5, R11, 1)
        a.jump(tap, asm.NOT_ZERO)
        a.label(stored)
        a.vector("store.f32", 0, Mem(RCX, index=R13), **masked)

    a.label(line)
    a.scalar(asm.MOVE, RBX, Mem(R8))
    a.scalar(asm.MOVE, R12, Mem(R8, 8))
    a.label(pixel)
    a.scalar(asm.SUB, R13, R13)
    if has_whole:
        a.label(vector)
        total(tap, stored)
        a.with_number(0, R13, _BYTES)
        a.scalar(asm.CMP, R13, R9)
        a.jump(vector, asm.BELOW)
    if rest:
        total(last_tap, last_stored, mask=_TAIL, length=_length(rest))
    a.scalar(asm.ADD, RCX, Mem(R8, 16))
    a.with_number(0, RBX, 16)
    a.with_number(5, R12, 1)
    a.jump(pixel, asm.NOT_ZERO)
    a.scalar(asm.ADD, RSI, RDX)
    a.with_number(5, RDI, 1)
    a.jump(line, asm.NOT_ZERO)
    return ended(a)


# -- lines --------------------------------------------------------------------------------------------------------------


def draw_lines(lines: np.ndarray, pixel: int) -> None:
    """One line after the other: records (address of its first pixel, bytes to the next one, pixels, address of the colour); `pixel`: bytes of a colour, up to 16."""
    if len(lines):
        lines = np.ascontiguousarray(lines)
        _lines(pixel)(len(lines), native.address_of(lines), 0, 0, 0, 0)


@cache
def _lines(pixel: int) -> Any:
    """f(lines, their records, -, -, -, -); a colour is in up to four registers, as masked stores take several times as long."""
    a = Assembler()
    parts = []
    for register in (RAX, RCX, R8, R9):
        at = sum(size for _, _, size in parts)
        if at < pixel:
            parts.append((register, at, max(size for size in (8, 4, 2, 1) if size <= pixel - at)))
    line, dot, done = range(3)

    def move(opcode: int, register: int, base: int, offset: int, size: int) -> None:
        if size == 2:
            a.raw(0x66)
        a.scalar(opcode - (size == 1), register, Mem(base, offset), wide=size == 8)

    a.label(line)
    for register, field in ((R10, 0), (RDX, 8), (R11, 16), (RAX, 24)):
        a.scalar(asm.MOVE, register, Mem(RSI, field))
    for register, at, size in reversed(parts):  # the address is overwritten last
        move(asm.MOVE, register, RAX, at, size)
    a.with_number(7, R11, 0)
    a.jump(done, asm.NOT_GREATER)
    a.label(dot)
    for register, at, size in parts:
        move(asm.MOVE_TO_MEMORY, register, R10, at, size)
    a.scalar(asm.ADD, R10, RDX)
    a.with_number(5, R11, 1)
    a.jump(dot, asm.NOT_ZERO)
    a.label(done)
    a.with_number(0, RSI, 32)
    a.with_number(5, RDI, 1)
    a.jump(line, asm.NOT_ZERO)
    return finished(a)


# -- around the loops ---------------------------------------------------------------------------------------------------

def _begun(block: bool = False) -> Assembler:
    """Code that begins: registers saved, the mask of the tail set, the bytes of a pixel in whole vectors in R9. `block`: R8 leads to the bytes of a pixel."""
    a = begun()
    a.set_number(RAX, -1)
    a.low_bits(RAX, R9)
    a.mask_from(_TAIL, RAX)
    a.scalar(asm.MOVE, R9, Mem(R8, 16) if block else R8)
    a.with_number(4, R9, -_BYTES)
    return a
