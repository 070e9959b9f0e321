"""Maxima and sums over rectangles of pixels, and where the gradients of maxima go.

Images are (n, height, width, depth), contiguous, of float32, float64, int32 or int64. Rectangles come axis by axis: where each begins, and how many rows or
columns it has; all of one axis go with all of the other. They may overlap and be of different sizes. Channels lie in the lanes.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from penstock.ops import native
from penstock.ops.native import address_of
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, R13, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Assembler, Mem
from penstock.ops.native.frames import PIECE, begun, ended, share_out

_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}
_TAIL, _CHOSEN, _OPEN = 1, 2, 3  # k registers: elements beyond whole vectors, those that change, the first of four masks
_VECTORS = 4
"""Vectors of a pixel that are in registers at a time."""
_RECORD = 32
"""Bytes of a record: offset of the first pixel, rows, columns, the divisor."""


class Axis(NamedTuple):
    """Along one axis: the first row or column of each rectangle, and how many there are."""

    first: np.ndarray
    sizes: np.ndarray


def can_fold(dtype: np.dtype) -> bool:
    return dtype in _TYPES and native.available()


def fold(op: str, x: np.ndarray, rows: Axis, columns: Axis, start: Any, divisors: np.ndarray | None = None) -> np.ndarray:
    """Of each rectangle, beginning with the number `start`: the sum ("add"), divided by the rectangle's divisor (rows, columns) if there are any; the largest number,
    which is NaN if one is NaN ("max"); or the largest of those that are none ("fmax")."""
    n, _height, width, depth = x.shape
    out = np.empty((n, len(rows.first), len(columns.first), depth), x.dtype)
    if not out.size:
        return out
    records = _records(x, rows, columns, divisors)
    function = _fold(op, _TYPES[x.dtype], divisors is not None, *_parts(x))
    pixel, lanes = depth * x.itemsize, 64 // x.itemsize
    block = np.array([pixel, width * pixel, pixel // (64 * _VECTORS) * 64 * _VECTORS, 0])
    block[3:].view(x.dtype)[0] = start
    here, count = address_of(records), len(records)
    x_at, out_at, block_at, tail = address_of(x), address_of(out), address_of(block), depth % lanes or lanes
    pieces = min(8 // n, x.size // PIECE) or 1

    def run(first: int, end: int) -> None:
        for i in range(first, end):
            image, part = divmod(i, pieces)
            begin, stop = count * part // pieces, count * (part + 1) // pieces
            if begin < stop:
                function(stop - begin, here + begin * _RECORD, x_at + image * x.strides[0], out_at + (image * count + begin) * pixel, block_at, tail)

    share_out(n * pieces, x.size // (n * pieces), run)
    return out


def spread(x: np.ndarray, y: np.ndarray | None, dy: np.ndarray, rows: Axis, columns: Axis) -> np.ndarray:
    """dx: `dy` of each rectangle is added to its first pixel that equals `y`; without `y`, to the first of its largest (comparisons with NaN are false)."""
    n, _height, width, depth = x.shape
    dx = np.zeros(x.shape, x.dtype)
    if not dx.size or not dy.size:
        return dx
    records = _records(x, rows, columns, None)
    function = _spread(_TYPES[x.dtype], y is None, *_parts(x))
    pixel, lanes = depth * x.itemsize, 64 // x.itemsize
    step = dy.strides[0]

    def run(first: int, end: int) -> None:
        for i in range(first, end):
            y_at = 0 if y is None else address_of(y) - address_of(dy)
            block = np.array([pixel, width * pixel, pixel // (64 * _VECTORS) * 64 * _VECTORS, address_of(dx) - address_of(x), y_at])
            function(len(records), address_of(records), address_of(x) + i * x.strides[0], address_of(dy) + i * step, address_of(block), depth % lanes or lanes)

    share_out(n, x.size // n, run)
    return dx


def _records(x: np.ndarray, rows: Axis, columns: Axis, divisors: np.ndarray | None) -> np.ndarray:
    _n, height, width, depth = x.shape
    pixel = depth * x.itemsize
    table = np.empty((len(rows.first), len(columns.first), 4), np.int64)
    np.add((rows.first * (width * pixel))[:, None], columns.first * pixel, out=table[..., 0])
    table[..., 1] = rows.sizes[:, None]
    table[..., 2] = columns.sizes
    if not (_all_hold_pixels(rows, height) and _all_hold_pixels(columns, width)):
        is_there = _is_there(rows, height)[:, None] & _is_there(columns, width)
        table[..., :2] *= is_there[..., None]
    if divisors is not None:
        table[..., 3:].view(x.dtype)[..., 0] = divisors
    return table.reshape(-1, 4)


def _all_hold_pixels(axis: Axis, size: int) -> bool:
    """Whether none is empty, or beyond the image; signs tell."""
    first, sizes = axis
    return int(np.bitwise_or.reduce(first | (sizes - 1) | (size - first - sizes))) >= 0


def _is_there(axis: Axis, size: int) -> np.ndarray:
    """Which are not empty; IndexError if one lies beyond the image: nothing else would stop the loop from reading anywhere."""
    is_there = axis.sizes > 0
    if (axis.sizes < 0).any() or (is_there & ((axis.first < 0) | (axis.first + axis.sizes > size))).any():
        raise IndexError(f"a rectangle beyond {size} pixels")
    return is_there


def _parts(x: np.ndarray) -> tuple[bool, int, bool]:
    """Whether a pixel has vectors enough for one turn or more; how many are left; whether the last of these is shorter."""
    lanes = 64 // x.itemsize
    depth = x.shape[-1]
    left = depth % (lanes * _VECTORS)
    return depth >= lanes * _VECTORS, -(-left // lanes), depth % lanes > 0


def _begun() -> Assembler:
    """RBP: the bytes of a pixel, RBX: those of a row."""
    a = begun()
    a.set_number(RAX, -1)
    a.low_bits(RAX, R9)
    a.mask_from(_TAIL, RAX)
    a.scalar(asm.MOVE, RBP, Mem(R8))
    a.scalar(asm.MOVE, RBX, Mem(R8, 8))
    return a


def _over_records(a: Assembler, has_whole: bool, left: int, is_short: bool, total: Any, results: int) -> Any:
    """total(labels, vectors, last one is short) for each part of a pixel, whose offset is in R13; `results` leads to the rectangle's results."""
    record, part = 0, 1
    a.label(record)
    a.scalar(asm.SUB, R13, R13)
    if has_whole:
        a.label(part)
        total((10, 11, 12, 13, 14, 15), _VECTORS, False)
        a.with_number(0, R13, 64 * _VECTORS)
        a.scalar(asm.CMP, R13, Mem(R8, 16))
        a.jump(part, asm.BELOW)
    if left:
        total((20, 21, 22, 23, 24, 25), left, is_short)
    a.with_number(0, RSI, _RECORD)
    a.scalar(asm.ADD, results, RBP)
    a.with_number(5, RDI, 1)
    a.jump(record, asm.NOT_ZERO)
    return ended(a)


def _over_pixels(a: Assembler, labels: tuple[int, ...], each: Any) -> None:
    """each() for every pixel of the rectangle; its part is at RAX."""
    row, column, done = labels
    a.scalar(asm.MOVE, R10, Mem(RSI))
    a.scalar(asm.ADD, R10, RDX)
    a.scalar(asm.ADD, R10, R13)
    a.scalar(asm.MOVE, R11, Mem(RSI, 8))
    a.with_number(7, R11, 0)
    a.jump(done, asm.ZERO)
    a.label(row)
    a.scalar(asm.MOVE, R12, Mem(RSI, 16))
    a.scalar(asm.MOVE, RAX, R10)
    a.label(column)
    each()
    a.scalar(asm.ADD, RAX, RBP)
    a.with_number(5, R12, 1)
    a.jump(column, asm.NOT_ZERO)
    a.scalar(asm.ADD, R10, RBX)
    a.with_number(5, R11, 1)
    a.jump(row, asm.NOT_ZERO)
    a.label(done)


@cache
def _fold(op: str, type: str, has_divisors: bool, has_whole: bool, left: int, is_short: bool) -> Any:
    """f(rectangles, their records, image, results, (bytes of a pixel, of a row, of a pixel's whole turns, the first number), elements of the last vector)"""
    a = _begun()
    new, start, divisor = 8, 31, 30
    a.vector(f"broadcast.{type}", start, Mem(R8, 24))

    def total(labels: Any, vectors: int, is_short: bool) -> None:
        masks: list[dict[str, Any]] = [{"mask": _TAIL} if is_short and v == vectors - 1 else {} for v in range(vectors)]
        for v in range(vectors):
            a.vector(f"load.{type}", v, start)

        def each() -> None:
            for v in range(vectors):
                a.vector(f"load.{type}", new + v, Mem(RAX, 64 * v), **masks[v], zero=bool(masks[v]))
            for v in range(vectors):
                if op == "add" or type[0] == "i":
                    a.vector(f"{op[-3:]}.{type}", v, v, new + v)
                elif op == "max":
                    a.vector(f"cmp.{type}", _CHOSEN, v, v, immediate=asm.ORDERED)
                    a.vector(f"max.{type}", v, v, new + v, mask=_CHOSEN)
                else:  # the second operand, if one is NaN
                    a.vector(f"max.{type}", v, new + v, v)

        _over_pixels(a, labels[:3], each)
        if has_divisors:
            a.vector(f"broadcast.{type}", divisor, Mem(RSI, 24))
        for v in range(vectors):
            if has_divisors:
                a.vector(f"div.{type}", v, v, divisor)
            a.vector(f"store.{type}", v, Mem(RCX, 64 * v, index=R13), **masks[v])

    return _over_records(a, has_whole, left, is_short, total, RCX)


@cache
def _spread(type: str, finds: bool, has_whole: bool, left: int, is_short: bool) -> Any:
    """f(rectangles, their records, image, gradients, (bytes of a pixel, of a row, of a pixel's whole turns, from the image to dx, from gradients to y), elements of
    the last vector)"""
    a = _begun()
    best, gradient, new = 0, 4, 8
    bits = "i" + type[1:]

    def total(labels: Any, vectors: int, is_short: bool) -> None:
        masks: list[dict[str, Any]] = [{"mask": _TAIL, "zero": True} if is_short and v == vectors - 1 else {} for v in range(vectors)]
        a.scalar(asm.MOVE, R9, Mem(R8, 24))
        for v in range(vectors):
            a.vector(f"load.{type}", gradient + v, Mem(RCX, 64 * v, index=R13), **masks[v])
        if finds:
            a.scalar(asm.MOVE, RAX, Mem(RSI))
            a.scalar(asm.ADD, RAX, RDX)
            a.scalar(asm.ADD, RAX, R13)
            for v in range(vectors):
                a.vector(f"load.{type}", best + v, Mem(RAX, 64 * v), **masks[v])

            def larger() -> None:
                for v in range(vectors):
                    a.vector(f"load.{type}", new + v, Mem(RAX, 64 * v), **masks[v])
                    a.vector(f"cmp.{type}", _CHOSEN, best + v, new + v, immediate=asm.LESS if type[0] == "f" else 1)
                    a.vector(f"load.{type}", best + v, new + v, mask=_CHOSEN)

            _over_pixels(a, labels[:3], larger)
        else:
            a.scalar(asm.MOVE, RAX, Mem(R8, 32))
            a.scalar(asm.ADD, RAX, RCX)
            for v in range(vectors):
                a.vector(f"load.{type}", best + v, Mem(RAX, 64 * v, index=R13), **masks[v])
        a.set_number(RAX, -1)
        for v in range(vectors):
            a.mask_from(_OPEN + v, RAX)
        if masks[-1]:
            a.mask("and", _OPEN + vectors - 1, _OPEN + vectors - 1, _TAIL)

        def each() -> None:
            for v in range(vectors):
                there = Mem(RAX, 64 * v, index=R9)
                a.vector(f"load.{type}", new + v, Mem(RAX, 64 * v), **masks[v])
                if finds:  # the very bits: also those of a NaN that was the first, and of the first of two zeros
                    a.vector(f"cmp.{bits}", _CHOSEN, new + v, best + v, immediate=asm.EQUAL, mask=_OPEN + v)
                else:
                    a.vector(f"cmp.{type}", _CHOSEN, new + v, best + v, immediate=asm.EQUAL, mask=_OPEN + v)
                a.vector(f"load.{type}", new + v, there, mask=_CHOSEN, zero=True)
                a.vector(f"add.{type}", new + v, new + v, gradient + v)
                a.vector(f"store.{type}", new + v, there, mask=_CHOSEN)
                a.mask("andnot", _OPEN + v, _CHOSEN, _OPEN + v)

        _over_pixels(a, labels[3:], each)

    return _over_records(a, has_whole, left, is_short, total, RCX)
