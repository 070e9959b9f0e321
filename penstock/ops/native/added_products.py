"""The sum of many products of matrices, a @ b + c @ d + ...: a part of it stays in registers while one product is computed, and in the first cache while all are.

Each product is computed as a whole and added then, in the order in which they are given; how many threads there are changes nothing.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, RAX, RBX, RCX, RDI, RDX, RSI, Mem
from penstock.ops.native.frames import begun, code_of, write_products

_LANES, _VECTOR = 16, 64
_WIDTH = 2
"""Vectors of columns that are computed together."""
_ROWS = (8, 4, 2, 1)
"""Rows that are: sums of eight times two vectors are as many as have to be under way, and as few as leave room for the next factors. The last rows come in smaller numbers."""
_VALUES, _FACTORS, _LAST = 24, 26, 2
FEWEST_COLUMNS, MOST_ROWS = 16, 512
"""Vectors are full, and the sums of a few columns stay in the cache."""


def fits(dtype: np.dtype, rows: int, columns: int) -> bool:
    """Whether `added` is for products of this size."""
    return dtype == np.float32 and columns >= FEWEST_COLUMNS and rows <= MOST_ROWS and native.available()


def added(lefts: Side, rights: Side) -> np.ndarray:
    """The sum of products; one matrix of either side may stand for all."""
    (rows, inner), columns = lefts.dims, rights.dims[1]
    result = np.zeros((rows, columns), np.float32)
    count = max(len(lefts.places), len(rights.places))
    pairs = zip(*(side.places * (count if len(side.places) == 1 else 1) for side in (lefts, rights)))
    table = struct.pack(f"<{2 * count}q", *itertools.chain.from_iterable(pairs))
    at = native.address_of(result)
    width = _WIDTH * _LANES

    def work(piece: int) -> None:
        first = piece * width
        function = _function(inner, columns, min(width, columns - first))
        function(table, count, at + 4 * first, rows, 4 * first)

    native.threads.parallel_for(-(-columns // width), work)
    return result


class Side:
    """Contiguous matrices of one shape, and where they lie: those that are constant are asked once."""

    def __init__(self, matrices: Sequence[np.ndarray]) -> None:
        self.matrices = matrices
        self.dims = matrices[0].shape
        self.places = [*map(native.address_of, matrices)]


@cache
def _function(inner: int, columns: int, width: int) -> Callable[[bytes, int, int, int, int], None]:
    """f(addresses of pairs, how many, address of the first sum, rows, byte of the first column) for `width` columns of so many.

    Registers: rdi pairs, rsi how many are left, r8 the first sum, rbp the first column; r9 and r10 a row of the left matrix and of sums, r11 rows that are left, r12 the right matrix;
    rcx, rdx and rax what the innermost loop counts."""
    a = begun()
    labels = itertools.count()
    vectors = -(-width // _LANES)
    masks = [_LAST if width % _LANES and v == vectors - 1 else 0 for v in range(vectors)]
    row, out_row = 4 * inner, 4 * columns
    if width % _LANES:
        a.set_number(RAX, (1 << width % _LANES) - 1)
        a.mask_from(_LAST, RAX)
    a.scalar(asm.MOVE, asm.RBP, R8)
    a.scalar(asm.MOVE, R8, RDX)
    a.scalar(asm.MOVE, RBX, RCX)
    product = next(labels)
    a.label(product)
    a.scalar(asm.MOVE, R9, Mem(RDI, 0))
    a.scalar(asm.MOVE, R12, Mem(RDI, 8))
    a.scalar(asm.ADD, R12, asm.RBP)
    a.scalar(asm.MOVE, R10, R8)
    a.scalar(asm.MOVE, R11, RBX)
    for rows in _ROWS:
        some, none, inside = next(labels), next(labels), next(labels)
        sums = [[vectors * r + v for v in range(vectors)] for r in range(rows)]
        a.label(some)
        a.with_number(7, R11, rows)
        a.jump(none, asm.BELOW)
        a.scalar(asm.MOVE, RCX, R9)
        a.scalar(asm.MOVE, RDX, R12)
        write_products(a, inside, sums, inner, row, out_row, _VALUES, _FACTORS, masks)
        for r, registers in enumerate(sums):
            for v, register in enumerate(registers):
                place = Mem(R10, r * out_row + v * _VECTOR)
                a.vector("load.f32", _VALUES, place, mask=masks[v], zero=masks[v] > 0)
                a.vector("add.f32", register, register, _VALUES)
                a.vector("store.f32", register, place, mask=masks[v])
        a.with_number(0, R9, rows * row)
        a.with_number(0, R10, rows * out_row)
        a.with_number(5, R11, rows)
        a.jump(some)
        a.label(none)
    a.with_number(0, RDI, 16)
    a.with_number(5, RSI, 1)
    a.jump(product, asm.NOT_ZERO)
    number = ctypes.c_int64
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p, number, number, number, number)(code_of(a))
