"""Winograd's transforms for 3 x 3 windows, in machine code: tiles of an image, channels last, to the 16 points at which they are multiplied, and back.

    cells      4 x 4 cells of a tile             ->  B' cells B, one number for each of 16 points
    filters    3 x 3 weights of a channel        ->  G weights G', likewise
    results    16 points of a tile               ->  A' points A, 2 x 2 results, plus bias and addend, activated

and for the gradient of the weights, which the same 16 points give out of 4 x 4 cells and 2 x 2 gradients of results:

    gradients  2 x 2 gradients of a tile's results   ->  H gradients H', one number for each point
    weights    16 points of a channel                ->  C' points C, 3 x 3 gradients of weights

(`engines.onednn.winograd` has the matrices and what lies between. To `filters` a channel of the input is a tile, and the results' are its channels.) All of a tile stays in registers, 16 channels at a time. A function gets a table (`Table`); several threads may call
it with the same one, and each takes the next few tiles until there are none. Where a tile's cells or results lie is told as offsets; what is negative lies outside of the image: such cells
are read from a row of zeros, and such results written to where nobody looks.

Threads that need not wait for each other between the steps have tables of their own, and functions that are `alone`: f(table, number of the image, number of the
strip of tiles in it). `native.strips` hands them out, and has what lies between the transforms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, RAX, RBX, RCX, RDI, RDX, RSI, RSP, Assembler, Mem
from penstock.ops.native.frames import begun, code_of

LANES = 16
"""Channels that go through at a time; there must be at least so many."""
SIDE, WINDOW, TILE = 4, 3, 2
CELL_PLACES, FILTER_PLACES, RESULT_PLACES = SIDE * SIDE, WINDOW * WINDOW, TILE * TILE


class Table(NamedTuple):
    """What a function is told, 8 bytes each; a function counts `next` up."""

    next: int  # the first tile that nobody has taken
    tiles: int  # how many there are
    share: int  # tiles that a thread takes at a time
    places: int  # the address of int64 offsets: CELL_PLACES, FILTER_PLACES or RESULT_PLACES for each tile
    points: int  # the address of (16, tiles, channels) numbers
    image: int  # the address from which the offsets count
    outside: int  # the address that stands for negative offsets
    channel_bytes: int  # of one cell, result or point
    bias: int = 0
    addend: int = 0  # as `image`
    step: int = 0  # for functions that are alone: bytes from one image to the next; `places` are those of its first strip, and others follow
    plane: int = 0  # likewise: bytes from one point to the next, which need not be those of its tiles
    doubt: int = 0  # becomes another number where results or weights are not all finite


_AT = {name: Mem(RDI, 8 * i) for i, name in enumerate(Table._fields)}
VECTOR = 4 * LANES
_TEST, _MOVE_IF_NEGATIVE = 0x85, 0x148
TAKE_ONE = (0xF0, 0x48, 0x0F, 0xC1, 0x07)  # lock xadd [rdi], rax
_PIECE, _TILE, _CHANNELS, _LEFT, _DONE, _END, _FINITE = range(7)
_WATCHED, _NONE = 31, 29
"""Vectors: what becomes NaN as soon as a number that is written is infinite or NaN; zeros."""


def _resolved(a: Assembler, count: int, base: Mem, at: int, outside: Mem = _AT["outside"]) -> None:
    """The addresses of a tile's places, on the stack from `at`; `outside` for those that are not in the image."""
    for i in range(count):
        a.scalar(asm.MOVE, RAX, Mem(R8, 8 * i))
        a.scalar(asm.MOVE, RCX, base)
        a.scalar(asm.ADD, RCX, RAX)
        a.scalar(_TEST, RAX, RAX)
        a.scalar(_MOVE_IF_NEGATIVE, RCX, outside)
        a.scalar(asm.MOVE_TO_MEMORY, RCX, Mem(RSP, at + 8 * i))


def _over_tiles(
    places: int, room: int, prepare: Callable[[Assembler, Mem, Mem], None], channels: Callable[[Assembler], None], is_alone: bool, is_watched: bool = False
) -> int:
    """The address of a function of a table: `prepare` writes what is done once for a tile whose places are at R8, in the image and the addend that it is given, and
    `channels` what is done for 16 of its channels: RDX bytes into what lies at each address on the stack, and at RCX among the points, RSI bytes from one to
    the next. `is_watched`: `channels` calls `_watch` for what it writes. A function that `is_alone` answers whether it is in doubt."""
    a = begun()
    images = [_AT["image"], _AT["addend"]]
    if is_watched:
        a.vector("xor.i32", _WATCHED, _WATCHED, _WATCHED)
        a.vector("xor.i32", _NONE, _NONE, _NONE)
    if is_alone:
        a.with_number(5, RSP, room + 16)
        a.scalar(asm.MULTIPLY, RSI, _AT["step"])
        for i in range(2):
            a.scalar(asm.MOVE, RAX, images[i])
            a.scalar(asm.ADD, RAX, RSI)
            images[i] = Mem(RSP, room + 8 * i)
            a.scalar(asm.MOVE_TO_MEMORY, RAX, images[i])
    else:
        a.with_number(5, RSP, room)
    a.scalar(asm.MOVE, R11, _AT["channel_bytes"])
    a.scalar(asm.MOVE, R10, R11)
    a.with_number(5, R10, VECTOR)  # where the last vector of channels begins
    a.scalar(asm.MOVE, R12, _AT["tiles"])
    if is_alone:
        a.scalar(asm.MOVE, RSI, _AT["plane"])
        a.set_number(R8, 8 * places)
        a.scalar(asm.MULTIPLY, R8, R12)
        a.scalar(asm.MULTIPLY, R8, RDX)
        a.set_number(RBX, 0)
        a.scalar(asm.MOVE, R9, _AT["points"])
    else:
        a.scalar(asm.MOVE, RSI, R12)
        a.scalar(asm.MULTIPLY, RSI, R11)
        a.label(_PIECE)
        a.scalar(asm.MOVE, RAX, _AT["share"])
        a.raw(*TAKE_ONE)
        a.scalar(asm.MOVE, R12, _AT["tiles"])
        a.scalar(asm.CMP, RAX, R12)
        a.jump(_END, asm.ABOVE_EQUAL)
        a.scalar(asm.MOVE, RBX, RAX)  # the tile; R12: behind the last one
        a.scalar(asm.MOVE, RCX, RAX)
        a.scalar(asm.ADD, RCX, _AT["share"])
        a.scalar(asm.CMP, RCX, R12)
        a.scalar(asm.MOVE_IF_BELOW, R12, RCX)
        a.scalar(asm.MOVE, R9, RAX)
        a.scalar(asm.MULTIPLY, R9, R11)
        a.scalar(asm.ADD, R9, _AT["points"])
        a.set_number(R8, 8 * places)
        a.scalar(asm.MULTIPLY, R8, RAX)
    a.scalar(asm.ADD, R8, _AT["places"])
    a.label(_TILE)
    prepare(a, *images)
    a.set_number(RDX, 0)
    a.label(_CHANNELS)
    a.scalar(asm.MOVE, RCX, R9)
    a.scalar(asm.ADD, RCX, RDX)
    channels(a)
    a.with_number(0, RDX, VECTOR)
    a.scalar(asm.CMP, RDX, R10)
    a.jump(_LEFT, asm.ABOVE)
    a.jump(_CHANNELS)
    a.label(_LEFT)
    a.scalar(asm.CMP, RDX, R11)
    a.jump(_DONE, asm.ABOVE_EQUAL)
    a.scalar(asm.MOVE, RDX, R10)  # fewer than a vector: some channels once more
    a.jump(_CHANNELS)
    a.label(_DONE)
    a.with_number(0, R8, 8 * places)
    a.scalar(asm.ADD, R9, R11)
    a.with_number(0, RBX, 1)
    a.scalar(asm.CMP, RBX, R12)
    a.jump(_TILE, asm.BELOW)
    if not is_alone:
        a.jump(_PIECE)
    a.label(_END)
    a.with_number(0, RSP, room + 16 if is_alone else room)
    a.set_number(RAX, 0)
    if is_watched:
        a.vector("cmp.f32", 1, _WATCHED, _WATCHED, immediate=asm.UNORDERED)
        a.mask("test", 1, 1)
        a.jump(_FINITE, asm.ZERO)
        a.set_number(RAX, 1)
        if not is_alone:
            a.scalar(asm.MOVE_TO_MEMORY, RAX, _AT["doubt"])
        a.label(_FINITE)
    return code_of(a)


def _watch(a: Assembler, register: int) -> None:
    """0 times what is not finite is NaN, and so is whatever it is added to."""
    a.vector("madd231.f32", _WATCHED, register, _NONE)


@cache
def cells(is_alone: bool = False) -> int:
    """The address of the function that makes points of cells."""

    def channels(a: Assembler) -> None:
        for column in range(SIDE):
            for row in range(SIDE):
                a.scalar(asm.MOVE, RAX, Mem(RSP, 8 * (SIDE * row + column)))
                a.vector("load.f32", 16 + row, Mem(RAX, index=RDX))
            _differences(a, [16, 17, 18, 19], [SIDE * row + column for row in range(SIDE)])
        for row in range(SIDE):
            _differences(a, [SIDE * row + column for column in range(SIDE)], [16, 17, 18, 19])
            for column in range(SIDE):
                a.vector("store.f32", 16 + column, Mem(RCX))
                a.scalar(asm.ADD, RCX, RSI)

    return _over_tiles(CELL_PLACES, 8 * CELL_PLACES, lambda a, image, _: _resolved(a, CELL_PLACES, image, 0), channels, is_alone)


@cache
def filters() -> int:
    """The address of the function that makes points of weights."""

    def channels(a: Assembler) -> None:
        for row in range(WINDOW):
            for column in range(WINDOW):
                a.scalar(asm.MOVE, RAX, Mem(RSP, 8 * (WINDOW * row + column)))
                a.vector("load.f32", WINDOW * row + column, Mem(RAX, index=RDX))
        for column in range(WINDOW):
            _halves(a, [column, 3 + column, 6 + column], [9 + column, 12 + column])
        for first in (0, 9, 12, 6):
            row = [first, first + 1, first + 2]
            _halves(a, row, [17, 18])
            for register in (row[0], 17, 18, row[2]):
                a.vector("store.f32", register, Mem(RCX))
                a.scalar(asm.ADD, RCX, RSI)

    return _over_tiles(FILTER_PLACES, 8 * FILTER_PLACES, lambda a, image, _: _resolved(a, FILTER_PLACES, image, 0), channels, False)


def _halves(a: Assembler, x: list[int], y: list[int]) -> None:
    """y = the two rows of G x in the middle; the others are the first and the last of x."""
    half = a.constant(0.5, "f32")
    a.vector("add.f32", 16, x[0], x[2])
    a.vector("add.f32", y[0], 16, x[1])
    a.vector("mul.f32", y[0], y[0], half)
    a.vector("sub.f32", y[1], 16, x[1])
    a.vector("mul.f32", y[1], y[1], half)


@cache
def gradients(is_alone: bool = False) -> int:
    """The address of the function that makes points of gradients of results."""

    def channels(a: Assembler) -> None:
        for i in range(RESULT_PLACES):
            a.scalar(asm.MOVE, RAX, Mem(RSP, 8 * i))
            a.vector("load.f32", i, Mem(RAX, index=RDX))
        for column in range(TILE):
            _mean_and_half(a, [column, 2 + column], [4 + column, 6 + column])
        for first in (0, 4, 6, 2):
            _mean_and_half(a, [first, first + 1], [8, 9])
            for register in (first, 8, 9, first + 1):
                a.vector("store.f32", register, Mem(RCX))
                a.scalar(asm.ADD, RCX, RSI)

    return _over_tiles(RESULT_PLACES, 8 * RESULT_PLACES, lambda a, image, _: _resolved(a, RESULT_PLACES, image, 0), channels, is_alone)


def _mean_and_half(a: Assembler, x: list[int], y: list[int]) -> None:
    """y = the two rows of H x in the middle; the others are x."""
    half = a.constant(0.5, "f32")
    for operation, register in zip(("add.f32", "sub.f32"), y, strict=True):
        a.vector(operation, register, x[0], x[1])
        a.vector("mul.f32", register, register, half)


@cache
def weights() -> int:
    """The address of the function that makes gradients of weights out of points."""

    def channels(a: Assembler) -> None:
        for point in range(SIDE * SIDE):
            a.vector("load.f32", point, Mem(RCX))
            a.scalar(asm.ADD, RCX, RSI)
        for column in range(SIDE):
            _three_sums(a, [SIDE * row + column for row in range(SIDE)], [SIDE * row + column for row in range(WINDOW)])
        for row in range(WINDOW):
            _three_sums(a, [SIDE * row + column for column in range(SIDE)], [17, 18, 19])
            for column in range(WINDOW):
                _watch(a, 17 + column)
                a.scalar(asm.MOVE, RAX, Mem(RSP, 8 * (WINDOW * row + column)))
                a.vector("store.f32", 17 + column, Mem(RAX, index=RDX))

    return _over_tiles(FILTER_PLACES, 8 * FILTER_PLACES, lambda a, image, _: _resolved(a, FILTER_PLACES, image, 0), channels, False, is_watched=True)


def _three_sums(a: Assembler, x: list[int], y: list[int]) -> None:
    """y = C' x; the registers of y may be the first of x"""
    a.vector("add.f32", 16, x[1], x[2])
    a.vector("add.f32", y[0], x[0], 16)
    a.vector("sub.f32", y[1], x[1], x[2])
    a.vector("sub.f32", y[2], 16, x[3])


def _differences(a: Assembler, x: list[int], y: list[int]) -> None:
    """y = B' x"""
    a.vector("sub.f32", y[0], x[0], x[2])
    a.vector("add.f32", y[1], x[1], x[2])
    a.vector("sub.f32", y[2], x[2], x[1])
    a.vector("sub.f32", y[3], x[1], x[3])


@cache
def results(has_bias: bool, has_addend: bool, slope: float | None = None, most: float | None = None, is_alone: bool = False) -> int:
    """The address of the function that makes results of points. Those below zero are multiplied by `slope`, if there is one, and none is
    above `most`. NaN stays NaN."""

    def prepare(a: Assembler, image: Mem, addend: Mem) -> None:
        _resolved(a, RESULT_PLACES, image, 0)
        if has_addend:  # beyond the image any number will do that is finite if the results are: not those that were written there, which may have become NaN long ago
            _resolved(a, RESULT_PLACES, addend, 8 * RESULT_PLACES, _AT["points"])

    def channels(a: Assembler) -> None:
        plane = [16, 17, 18, 19]
        for row in range(SIDE):
            for column in range(SIDE):
                a.vector("load.f32", SIDE * row + column, Mem(RCX))
                a.scalar(asm.ADD, RCX, RSI)
        for column in range(SIDE):
            _sums(a, [SIDE * row + column for row in range(SIDE)], [20 + column, 24 + column])
        _sums(a, [20, 21, 22, 23], plane[:2])
        _sums(a, [24, 25, 26, 27], plane[2:])
        if has_bias:
            a.scalar(asm.MOVE, RAX, _AT["bias"])
            a.vector("load.f32", 28, Mem(RAX, index=RDX))
        if most is not None:
            a.vector("xor.i32", 30, 30, 30)
            a.vector("add.f32", 30, 30, a.constant(most, "f32"))
        for i, y in enumerate(plane):
            if has_bias:
                a.vector("add.f32", y, y, 28)
            if has_addend:
                a.scalar(asm.MOVE, RAX, Mem(RSP, 8 * (RESULT_PLACES + i)))
                a.vector("add.f32", y, y, Mem(RAX, index=RDX))
            _watch(a, y)
            if slope:
                a.vector("mul.f32", 30, y, a.constant(slope, "f32"))
                a.vector("cmp.f32", 1, y, _NONE, immediate=asm.LESS)
                a.vector("blend.f32", y, y, 30, mask=1)
            elif slope is not None:
                a.vector("max.f32", y, _NONE, y)  # the second one if either is NaN
            if most is not None:
                a.vector("min.f32", y, 30, y)
            a.scalar(asm.MOVE, RAX, Mem(RSP, 8 * i))
            a.vector("store.f32", y, Mem(RAX, index=RDX))

    return _over_tiles(RESULT_PLACES, 16 * RESULT_PLACES, prepare, channels, is_alone, is_watched=True)


def _sums(a: Assembler, x: list[int], y: list[int]) -> None:
    """y = A' x"""
    a.vector("add.f32", y[0], x[0], x[1])
    a.vector("add.f32", y[0], y[0], x[2])
    a.vector("sub.f32", y[1], x[1], x[2])
    a.vector("sub.f32", y[1], y[1], x[3])


def available(depth: int, out_depth: int) -> bool:
    """Whether there are such functions for so many channels of cells and of results."""
    return min(depth, out_depth) >= LANES and native.available()
