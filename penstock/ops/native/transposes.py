"""Arrays whose last axis lies across memory, copied into order: squares of 16 x 16 elements of 1, 2 or 4 bytes, or of 8 x 8 of 8 bytes, turned over in registers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, R13, RAX, RBX, RCX, RDI, RDX, RSI, Mem
from penstock.ops.native.frames import begun, ended, share_out

Plan = tuple[np.ndarray, int, int, int, int]

_SIDES = {1: 16, 2: 16, 4: 16, 8: 8}
"""Elements of a square's row, by their bytes."""
_COLUMNS, _ROWS = 1, 2  # k registers: the elements of a line that is read, and of one that is written
_LARGE = 1 << 16
"""Bytes from which it pays."""
_PIECE = 1 << 13
"""Elements that are handed out together, about."""


def in_order(view: np.ndarray) -> np.ndarray:
    """np.ascontiguousarray, quicker for large views with their axes in another order."""
    found = turned(view)
    return np.ascontiguousarray(view) if found is None else found


def turned(view: np.ndarray) -> np.ndarray | None:
    """A view in order, as an array of its own; None if it is not of the kind that this module is for."""
    if view.nbytes < _LARGE or view.itemsize not in _SIDES or view.dtype.hasobject or view.strides[-1] == view.itemsize or not native.available():
        return None
    size = view.itemsize
    plan = _plan(view.shape, view.strides, size)
    if plan is None:
        return None
    records, read, written, columns, rows = plan
    out = np.empty(view.shape, view.dtype)
    records = records + np.array([view.__array_interface__["data"][0], out.ctypes.data, 0, 0])
    side = _SIDES[size]
    function = _turn(min(columns, side), min(rows, side), size)

    def run(start: int, end: int) -> None:
        function(end - start, records.ctypes.data + start * 32, read, written, 0, 0)

    share_out(len(records), out.nbytes // 4 // len(records), run)
    return out


@lru_cache(64)
def _plan(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Plan | None:
    """Records of pieces (offset in the view, in the result, columns, rows), bytes from row to row of what is read and of what is written, columns, rows."""
    side = _SIDES[size]
    axes = _joined(shape, strides, size)
    across = [i for i, (_, stride, _) in enumerate(axes[:-1]) if stride == size]
    if not across or any(stride < 0 for _, stride, _ in axes):
        return None
    columns, _, written = axes.pop(across[0])  # one element apart where they are read
    rows, read, _ = axes.pop()  # and where they are written
    if max(columns, rows) < side or min(columns, rows) < 2 or max(read, written) >= 1 << 31:
        return None
    starts = np.zeros((1, 4), np.int64)
    for count, stride, own in axes:
        starts = (starts[:, None] + np.arange(count)[:, None] * np.array([stride, own, 0, 0])).reshape(-1, 4)
    if columns >= rows:
        at, sizes = _cut(columns, _PIECE // rows, side)
        pieces = np.stack([at * size, at * written, sizes, np.full_like(sizes, rows)], 1)
    else:
        at, sizes = _cut(rows, _PIECE // columns, side)
        pieces = np.stack([at * read, at * size, np.full_like(sizes, columns), sizes], 1)
    return (starts[:, None] + pieces).reshape(-1, 4), read, written, columns, rows


def _joined(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> list[tuple[int, int, int]]:
    """Size, stride in the view and stride in the result of each axis; axes that follow each other in both are one."""
    axes: list[tuple[int, int, int]] = []
    for i, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        own = item * math.prod(shape[i + 1 :])
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            axes[-1] = axes[-1][0] * size, stride, own
        else:
            axes.append((size, stride, own))
    return axes or [(1, item, item)]


def _cut(count: int, size: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Where pieces of about `size` begin, and how many elements they have, none fewer than a square's side."""
    at = np.arange(0, max(count - side, 0) + 1, max(size // side, 1) * side)
    return at, np.diff(at, append=count)


@cache
def _turn(columns: int, rows: int, size: int) -> Any:
    """f(pieces, their records, bytes from row to row of what is read, of what is written, -, -), for pieces of at least so many columns and rows
    of elements of `size` bytes.

    The last square of a row or column covers some of the one before if they do not divide evenly.
    """
    a = begun()
    side = _SIDES[size]
    piece, strip, square, next_piece, next_strip = range(5)
    for mask, count in ((_COLUMNS, columns), (_ROWS, rows)):
        a.set_number(RAX, (1 << count) - 1)
        a.mask_from(mask, RAX)

    def back(left: int, *steps: tuple[int, int | None]) -> None:
        """Pointers go back so far that a whole square is left; a step of None stands for an element."""
        for pointer, step in steps:
            a.set_number(RAX, side)
            a.scalar(asm.SUB, RAX, left)
            if step is None:
                for _ in range(size.bit_length() - 1):
                    a.scalar(asm.ADD, RAX, RAX)
            else:
                a.scalar(asm.MULTIPLY, RAX, step)
            a.scalar(asm.SUB, pointer, RAX)
        a.set_number(left, side)

    a.label(piece)
    for register, field in ((R10, 0), (R11, 8), (RBX, 16)):
        a.scalar(asm.MOVE, register, Mem(RSI, field))
    a.label(strip)
    a.scalar(asm.MOVE, R12, Mem(RSI, 24))
    a.scalar(asm.MOVE, R8, R10)
    a.scalar(asm.MOVE, R9, R11)
    a.label(square)
    _SQUARES[size](a, columns, rows)
    if rows == side:
        a.with_number(0, R9, side * size)
        a.with_number(5, R12, side)
        a.jump(next_strip, asm.ZERO)
        a.with_number(7, R12, side)
        a.jump(square, asm.ABOVE_EQUAL)
        back(R12, (R8, RDX), (R9, None))
        a.jump(square)
    a.label(next_strip)
    if columns == side:
        a.with_number(0, R10, side * size)
        a.set_number(RAX, side)
        a.scalar(asm.MULTIPLY, RAX, RCX)
        a.scalar(asm.ADD, R11, RAX)
        a.with_number(5, RBX, side)
        a.jump(next_piece, asm.ZERO)
        a.with_number(7, RBX, side)
        a.jump(strip, asm.ABOVE_EQUAL)
        back(RBX, (R10, None), (R11, RCX))
        a.jump(strip)
    a.label(next_piece)
    a.with_number(0, RSI, 32)
    a.with_number(5, RDI, 1)
    a.jump(piece, asm.NOT_ZERO)
    return ended(a)


def _read(a: Any, type: str, columns: int, rows: int, side: int, length: int = asm.FULL, register: Callable[[int], int] = int) -> None:
    """The rows at R8, in as many registers; R8 goes on to the next ones."""
    for i in range(rows):
        a.vector(f"load.{type}", register(i), Mem(R8), length=length, **({} if columns == side else {"mask": _COLUMNS, "zero": True}))
        a.scalar(asm.ADD, R8, RDX)


def _write(a: Any, type: str, register: int, rows: int, side: int, length: int = asm.FULL) -> None:
    """A column, which has become a row, to R13."""
    a.vector(f"store.{type}", register, Mem(R13), length=length, mask=0 if rows == side else _ROWS)
    a.scalar(asm.ADD, R13, RCX)


def _square_of_16(a: Any, columns: int, rows: int) -> None:
    """The square at R8, turned over to R9; R8 goes on to the next rows."""
    _read(a, "f32", columns, rows, 16)
    new = 16  # the other half of the registers
    for i in range(0, 16, 2):
        a.vector("unpack_low.f32", new + i, i, i + 1)
        a.vector("unpack_high.f32", new + i + 1, i, i + 1)
    for i in range(0, 16, 4):
        for half in range(2):
            a.vector("unpack_low.f64", i + 2 * half, new + i + half, new + i + half + 2)
            a.vector("unpack_high.f64", i + 2 * half + 1, new + i + half, new + i + half + 2)
    for i in range(4):  # quarters 0 and 2, then 1 and 3, of each four rows
        for j, choice in enumerate((0x88, 0xDD)):
            a.vector("quarters", new + 4 * i + 2 * j, i, 4 + i, immediate=choice)
            a.vector("quarters", new + 4 * i + 2 * j + 1, 8 + i, 12 + i, immediate=choice)
    a.scalar(asm.MOVE, R13, R9)
    for i in range(columns):
        quarter, column = divmod(i, 4)
        first = new + 4 * column + 2 * (quarter & 1)
        a.vector("quarters", column, first, first + 1, immediate=0xDD if quarter & 2 else 0x88)
        _write(a, "f32", column, rows, 16)


def _square_of_8(a: Any, columns: int, rows: int) -> None:
    """As above, for wider elements."""
    _read(a, "f64", columns, rows, 8)
    new = 16
    for i in range(0, 8, 2):
        a.vector("unpack_low.f64", new + i, i, i + 1)
        a.vector("unpack_high.f64", new + i + 1, i, i + 1)
    for i in range(2):  # even columns, then odd ones; quarters 0 and 2, then 1 and 3, of each four rows
        for j, choice in enumerate((0x88, 0xDD)):
            a.vector("quarters", 4 * i + 2 * j, new + i, new + 2 + i, immediate=choice)
            a.vector("quarters", 4 * i + 2 * j + 1, new + 4 + i, new + 6 + i, immediate=choice)
    a.scalar(asm.MOVE, R13, R9)
    for i in range(columns):
        quarter, column = divmod(i, 2)
        first = 4 * column + 2 * (quarter & 1)
        a.vector("quarters", new, first, first + 1, immediate=0xDD if quarter & 2 else 0x88)
        _write(a, "f64", new, rows, 8)


def _interleave(a: Any, type: str, source: int, target: int, length: int) -> None:
    """Of each 128 bits: row i and row i + 8, element by element, become rows 2 i and 2 i + 1. Of a place's number, that of the row and then that of the column, this
    turns the bits round by one."""
    for i in range(8):
        for half, name in enumerate(("unpack_low", "unpack_high")):
            a.vector(f"{name}.{type}", target + 2 * i + half, source + i, source + i + 8, length=length)


def _square_of_16_halves(a: Any, columns: int, rows: int) -> None:
    """As above, for elements of 2 bytes. A row has two times 128 bits: three turns, and then an exchange of these for what was a row's first bit."""
    _read(a, "u16", columns, rows, 16, asm.HALF, lambda row: (row & 7) << 1 | row >> 3)
    for source, target in ((0, 16), (16, 0), (0, 16)):
        _interleave(a, "u16", source, target, asm.HALF)
    a.scalar(asm.MOVE, R13, R9)
    for i in range(columns):
        a.vector("quarters", i, 16 + i % 8, 24 + i % 8, immediate=0 if i < 8 else 3, length=asm.HALF)
        _write(a, "u16", i, rows, 16, asm.HALF)


def _square_of_16_bytes(a: Any, columns: int, rows: int) -> None:
    """As above, for elements of 1 byte: four turns."""
    _read(a, "u8", columns, rows, 16, asm.QUARTER)
    for source, target in ((0, 16), (16, 0)) * 2:
        _interleave(a, "u8", source, target, asm.QUARTER)
    a.scalar(asm.MOVE, R13, R9)
    for i in range(columns):
        _write(a, "u8", i, rows, 16, asm.QUARTER)


_SQUARES = {1: _square_of_16_bytes, 2: _square_of_16_halves, 4: _square_of_16, 8: _square_of_8}
