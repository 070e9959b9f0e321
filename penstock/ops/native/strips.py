"""What lies between Winograd's transforms (`native.winograd`), in machine code: products at the 16 points, and strips of tiles shared out among threads.

    multiplied  points of cells and of weights       ->  at each point, for each tile, the product of matrices
    products    points of cells and of gradients     ->  at each point, for each pair of channels, the sum of all tiles' products
    added       points of gradients                  ->  the sum of all tiles'
    shared_out  calls functions for one strip after the other, each strip on one thread: no thread waits for another before all is done

Functions get a table, and those that are `alone` do not share it with other threads.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import NamedTuple

from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, RAX, RBX, RCX, RDI, RDX, RSI, RSP, Assembler, Mem
from penstock.ops.native.frames import begun, code_of, placed, write_products
from penstock.ops.native.winograd import LANES, SIDE, TAKE_ONE, VECTOR


class Products(NamedTuple):
    """What `products` is told. It counts `next` up by one for each piece: `ROWS` channels of the cells at one point."""

    next: int
    pieces: int
    tiles: int
    cells: int  # the address of their points, (16, tiles, channels)
    gradients: int  # likewise
    sums: int  # the address of (16, channels of cells, channels of results), to which the sums are added
    cell_plane: int  # bytes from one point of cells to the next
    gradient_plane: int


ROWS = 4
_BLOCK = 4
"""Vectors of results' channels whose sums are in registers, for each of `ROWS` channels of cells."""
_SUMS, _VALUES, _FACTORS = 0, 16, 20


@cache
def products(depth: int, out_depth: int, is_alone: bool = False) -> int:
    """The address of the function of a `Products` for so many channels, divisible by ROWS and by LANES."""
    at = {name: Mem(RDI, 8 * i) for i, name in enumerate(Products._fields)}
    row, out_row = 4 * depth, 4 * out_depth
    a = begun()
    piece, end = 0, 1
    a.set_number(R12, 0)
    a.label(piece)
    if is_alone:
        a.scalar(asm.MOVE, RAX, R12)
        a.with_number(0, R12, 1)
    else:
        a.set_number(RAX, 1)
        a.raw(*TAKE_ONE)
    a.scalar(asm.CMP, RAX, at["pieces"])
    a.jump(end, asm.ABOVE_EQUAL)
    # The point, and the place of the channels within its rows: the quotient and the rest.
    a.set_number(RDX, 0)
    a.set_number(RCX, depth // ROWS)
    a.raw(0x48, 0xF7, 0xF1)  # div rcx: rax = the point, rdx = the block of rows
    a.set_number(R8, 4 * ROWS)
    a.scalar(asm.MULTIPLY, R8, RDX)
    a.scalar(asm.MOVE, R9, at["cell_plane"])
    a.scalar(asm.MULTIPLY, R9, RAX)
    a.scalar(asm.ADD, R8, R9)
    a.scalar(asm.ADD, R8, at["cells"])
    a.scalar(asm.MOVE, R9, at["gradient_plane"])
    a.scalar(asm.MULTIPLY, R9, RAX)
    a.scalar(asm.ADD, R9, at["gradients"])
    a.set_number(R10, depth * out_row)
    a.scalar(asm.MULTIPLY, R10, RAX)
    a.set_number(R11, ROWS * out_row)
    a.scalar(asm.MULTIPLY, R11, RDX)
    a.scalar(asm.ADD, R10, R11)
    a.scalar(asm.ADD, R10, at["sums"])
    for label, first in enumerate(range(0, out_row, _BLOCK * VECTOR), 2):
        vectors = min(_BLOCK, (out_row - first) // VECTOR)
        pairs = [(r, v) for r in range(ROWS) for v in range(vectors)]
        for r, v in pairs:
            a.vector("load.f32", _SUMS + _BLOCK * r + v, Mem(R10, r * out_row + first + v * VECTOR))
        a.scalar(asm.MOVE, RCX, R8)
        a.scalar(asm.MOVE, RDX, R9)
        a.scalar(asm.MOVE, RBX, at["tiles"])
        a.label(label)
        for v in range(vectors):
            a.vector("load.f32", _VALUES + v, Mem(RDX, first + v * VECTOR))
        for r in range(ROWS):
            a.vector("broadcast.f32", _FACTORS + r, Mem(RCX, 4 * r))
            for v in range(vectors):
                a.vector("madd231.f32", _SUMS + _BLOCK * r + v, _FACTORS + r, _VALUES + v)
        a.with_number(0, RCX, row)
        a.with_number(0, RDX, out_row)
        a.with_number(5, RBX, 1)
        a.jump(label, asm.NOT_ZERO)
        for r, v in pairs:
            a.vector("store.f32", _SUMS + _BLOCK * r + v, Mem(R10, r * out_row + first + v * VECTOR))
    a.jump(piece)
    a.label(end)
    return code_of(a)


@cache
def added(out_depth: int) -> int:
    """The address of the function of (tiles, gradients, sums) that adds to so many sums, divisible by LANES, the gradients of all tiles, (tiles, channels)."""
    a = begun()
    row = 4 * out_depth
    a.scalar(asm.MOVE, RDX, Mem(RDI, 16))
    for label, first in enumerate(range(0, row, 16 * VECTOR)):
        vectors = range(first, min(row, first + 16 * VECTOR), VECTOR)
        a.scalar(asm.MOVE, RBX, Mem(RDI, 0))
        a.scalar(asm.MOVE, RCX, Mem(RDI, 8))
        for i, at in enumerate(vectors):
            a.vector("load.f32", i, Mem(RDX, at))
        a.label(label)
        for i, at in enumerate(vectors):
            a.vector("add.f32", i, i, Mem(RCX, at))
        a.with_number(0, RCX, row)
        a.with_number(5, RBX, 1)
        a.jump(label, asm.NOT_ZERO)
        for i, at in enumerate(vectors):
            a.vector("store.f32", i, Mem(RDX, at))
    return code_of(a)


class Multiplied(NamedTuple):
    """What `multiplied` is told."""

    tiles: int
    cells: int  # the address of their points, (16, tiles, channels)
    weights: int  # the address of (16, channels of cells, channels of results)
    products: int  # the address of (16, tiles, channels of results)
    cell_plane: int  # bytes from one point of cells to the next
    product_plane: int


_TOGETHER = (6, 2, 1)
"""Tiles whose products are in registers at a time; the last few come in smaller numbers."""
_WEIGHTS, _FACTOR, _LAST = 24, 28, 2


@cache
def multiplied(depth: int, out_depth: int) -> int:
    """The address of the function of a `Multiplied` for so many channels: at each point, the product of matrices."""
    at = {name: Mem(RDI, 8 * i) for i, name in enumerate(Multiplied._fields)}
    row, out_row = 4 * depth, 4 * out_depth
    a = begun()
    labels = itertools.count()
    if out_depth % LANES:
        a.set_number(RAX, (1 << out_depth % LANES) - 1)
        a.mask_from(_LAST, RAX)
    for register, name in ((R8, "cells"), (R9, "weights"), (R10, "products")):
        a.scalar(asm.MOVE, register, at[name])
    a.set_number(RSI, SIDE * SIDE)
    point = next(labels)
    a.label(point)

    def columns(vectors: int, masked: bool) -> None:
        """The results of so many vectors of channels, the last of which may be a part of one: weights from R9, products from R10."""
        masks = [_LAST if masked and v == vectors - 1 else 0 for v in range(vectors)]
        a.scalar(asm.MOVE, R11, R8)
        a.scalar(asm.MOVE, R12, R10)
        a.scalar(asm.MOVE, RBX, at["tiles"])
        for tiles in _TOGETHER:
            some, none, inner = next(labels), next(labels), next(labels)
            a.label(some)
            a.with_number(7, RBX, tiles)
            a.jump(none, asm.BELOW)
            sums = [[_BLOCK * t + v for v in range(vectors)] for t in range(tiles)]
            a.scalar(asm.MOVE, RCX, R11)
            a.scalar(asm.MOVE, RDX, R9)
            write_products(a, inner, sums, depth, row, out_row, _WEIGHTS, _FACTOR, masks)
            for t, registers in enumerate(sums):
                for v, register in enumerate(registers):
                    a.vector("store.f32", register, Mem(R12, t * out_row + v * VECTOR), mask=masks[v])
            a.with_number(0, R11, tiles * row)
            a.with_number(0, R12, tiles * out_row)
            a.with_number(5, RBX, tiles)
            a.jump(some)
            a.label(none)

    whole, rest = divmod(out_depth, _BLOCK * LANES)
    if whole:
        a.set_number(asm.RBP, whole)
        block = next(labels)
        a.label(block)
        columns(_BLOCK, False)
        a.with_number(0, R9, _BLOCK * VECTOR)
        a.with_number(0, R10, _BLOCK * VECTOR)
        a.with_number(5, asm.RBP, 1)
        a.jump(block, asm.NOT_ZERO)
    if rest:
        columns(-(-rest // LANES), bool(rest % LANES))
        a.with_number(0, R9, 4 * rest)
        a.with_number(0, R10, 4 * rest)
    # To the next point; weights and products are at the end of their first row.
    a.with_number(0, R9, (depth - 1) * out_row)
    a.with_number(5, R10, out_row)
    a.scalar(asm.ADD, R8, at["cell_plane"])
    a.scalar(asm.ADD, R10, at["product_plane"])
    a.with_number(5, RSI, 1)
    a.jump(point, asm.NOT_ZERO)
    return code_of(a)


class Shared(NamedTuple):
    """What `shared_out` is told; it counts the first two up. A slot is what one thread works with: rows of (function, its table, which bits of its answer are a
    doubt), the last of which has no function."""

    next_slot: int
    next_strip: int
    slots: int
    strips: int  # of all images
    strips_of_image: int
    rows: int  # the address of the first slot's
    slot_bytes: int
    doubt: int = 0


@cache
def shared_out(is_fixed: bool) -> int:
    """The address of the function of a `Shared` that several threads call: each takes a slot, and calls its functions for the strips that it takes. `is_fixed`: which
    strips a slot gets does not depend on who is quicker."""
    at = {name: Mem(RBX, 8 * i) for i, name in enumerate(Shared._fields)}
    a = Assembler()
    a.raw(0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57)  # push rbx, rbp, r12 to r15
    a.with_number(5, RSP, 8)
    a.scalar(asm.MOVE, RBX, RDI)
    slot, strip, function, sure, done, end = range(6)

    def taken(name: str) -> None:
        """RAX = the number that nobody else has taken."""
        a.set_number(RAX, 1)
        a.raw(0xF0)  # lock
        a.scalar(0x1C1, RAX, at[name])  # xadd

    a.label(slot)
    taken("next_slot")
    a.scalar(asm.CMP, RAX, at["slots"])
    a.jump(end, asm.ABOVE_EQUAL)
    a.scalar(asm.MOVE, R12, RAX)
    a.scalar(asm.MOVE, asm.R13, RAX)
    a.scalar(asm.MULTIPLY, asm.R13, at["slot_bytes"])
    a.scalar(asm.ADD, asm.R13, at["rows"])
    a.label(strip)
    if not is_fixed:
        taken("next_strip")
        a.scalar(asm.MOVE, R12, RAX)
    a.scalar(asm.CMP, R12, at["strips"])
    a.jump(slot if is_fixed else end, asm.ABOVE_EQUAL)
    a.scalar(asm.MOVE, RAX, R12)
    a.set_number(RDX, 0)
    a.scalar(0xF7, 6, at["strips_of_image"])  # div
    a.scalar(asm.MOVE, asm.R14, RAX)
    a.scalar(asm.MOVE, asm.R15, RDX)
    a.scalar(asm.MOVE, asm.RBP, asm.R13)
    a.label(function)
    a.scalar(asm.MOVE, RAX, Mem(asm.RBP, 0))
    a.with_number(7, RAX, 0)
    a.jump(done, asm.ZERO)
    for register, source in ((RDI, Mem(asm.RBP, 8)), (RSI, asm.R14), (RDX, asm.R15)):
        a.scalar(asm.MOVE, register, source)
    a.raw(0xFF, 0xD0)  # call rax
    a.scalar(0x23, RAX, Mem(asm.RBP, 16))  # and
    a.jump(sure, asm.ZERO)
    a.scalar(asm.MOVE_TO_MEMORY, RAX, at["doubt"])
    a.label(sure)
    a.with_number(0, asm.RBP, 24)
    a.jump(function)
    a.label(done)
    if is_fixed:
        a.scalar(asm.ADD, R12, at["slots"])
    a.jump(strip)
    a.label(end)
    a.with_number(0, RSP, 8)
    a.raw(0x41, 0x5F, 0x41, 0x5E, 0x41, 0x5D, 0x41, 0x5C, 0x5D, 0x5B)
    return placed(a)
