"""LU of stacks of small matrices, for which a call of LAPACK for each takes longer than the arithmetic.

Rows, filled up to whole vectors, are exchanged and subtracted from those below as they stand in memory.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Assembler, Mem

R12, R13, R14, R15 = range(12, 16)
_SAVED = (RBX, RBP, R12, R13, R14, R15)
_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
_RIGHT, _LEFT, _ONE = 1, 2, 3  # k registers
_PIVOT, _FACTOR = 31, 30
_AND = 0x23
LARGEST = 128
"""Rows of a matrix beyond which LAPACK, block by block, is faster."""
_PIECE = 1 << 17
"""Multiplications that are worth a thread."""


def can_factor(dtype: np.dtype, n: int) -> bool:
    return dtype in _TYPES and 0 < n <= LARGEST and native.available()


def lu(stack: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """(L and U in one matrix, order) with x[order] = L U for each square matrix x, by partial pivoting; None if one is singular."""
    count, n = stack.shape[:2]
    size = stack.itemsize
    lanes = 64 // size
    width = -(-n // lanes) * lanes
    rows = np.zeros((count, n, width), stack.dtype)
    rows[:, :, :n] = stack
    exchanges = np.empty((count, n), np.int64)
    if not count:
        return rows[:, :, :n], exchanges
    function = _loop(_TYPES[stack.dtype])
    pieces = max(1, min(count, 8, count * n**3 // 3 // _PIECE))
    left = [0] * pieces

    def work(i: int) -> None:
        first, end = count * i // pieces, count * (i + 1) // pieces
        left[i] = function(
            end - first, rows.ctypes.data + first * n * width * size, exchanges.ctypes.data + first * n * 8, n, width * size, n * width * size
        )

    native.threads.parallel_for(pieces, work)
    return None if any(left) else (np.ascontiguousarray(rows[:, :, :n]), order_of(exchanges))


def order_of(exchanges: np.ndarray) -> np.ndarray:
    """Where each row comes from after the exchanges: row i with row exchanges[i], for i = 0, 1, ..."""
    count, n = exchanges.shape
    order = np.tile(np.arange(n), (count, 1))
    if count < n:
        for row, steps in zip(order, exchanges.tolist(), strict=True):
            places = row.tolist()
            for i, j in enumerate(steps):
                places[i], places[j] = places[j], places[i]
            row[:] = places
        return order
    flat, rows = order.reshape(-1), np.arange(count) * n
    for i, there in enumerate((exchanges + rows[:, None]).T):
        here = order[:, i].copy()
        order[:, i] = flat[there]
        flat[there] = here
    return order


@cache
def _loop(type: str) -> Any:
    """f(matrices, rows, exchanges, n, bytes of a row, bytes of a matrix): how many matrices are left, the first being singular."""
    a = Assembler()
    size = int(type[1:]) // 8
    matrix, column, search, swap, swapped, eliminate, row, vector, row_end, column_end, stop = range(11)
    for register in _SAVED:
        a.raw(*((0x41,) if register > 7 else ()), 0x50 | register & 7)
    a.set_number(RAX, 1)
    a.mask_from(_ONE, RAX)
    a.label(matrix)
    a.set_number(RBX, 0)
    a.scalar(asm.MOVE, RBP, RSI)
    a.set_number(R12, 0)
    a.label(column)  # RBX: its number, RBP: the row of that number, R12: its place in a row

    # The largest of the rows that are left: bits without the sign have the order of the numbers.
    a.scalar(asm.MOVE, R10, RBP)
    a.scalar(asm.ADD, R10, R12)
    a.scalar(asm.MOVE, R14, R10)
    a.scalar(asm.MOVE, R11, RBX)
    a.scalar(asm.MOVE, R13, RBX)
    a.set_number(RAX, 0)
    a.label(search)
    a.scalar(asm.MOVE, R15, Mem(R10), wide=size == 8)
    a.scalar(_AND, R15, a.constant((1 << 8 * size - 1) - 1, "i64"))
    a.scalar(asm.CMP, R15, RAX)
    for best, this in ((RAX, R15), (R13, R11), (R14, R10)):
        a.scalar(asm.MOVE_IF_ABOVE, best, this)
    a.scalar(asm.ADD, R10, R8)
    a.with_number(0, R11, 1)
    a.scalar(asm.CMP, R11, RCX)
    a.jump(search, asm.BELOW)
    a.with_number(7, RAX, 0)
    a.jump(stop, asm.ZERO)
    a.scalar(asm.MOVE_TO_MEMORY, R13, Mem(RDX, index=RBX, scale=8))

    a.scalar(asm.CMP, R13, RBX)
    a.jump(swapped, asm.ZERO)
    a.scalar(asm.SUB, R14, R12)
    a.set_number(R10, 0)
    a.label(swap)
    here, there = Mem(RBP, index=R10), Mem(R14, index=R10)
    a.vector(f"load.{type}", 0, here)
    a.vector(f"load.{type}", 1, there)
    a.vector(f"store.{type}", 1, here)
    a.vector(f"store.{type}", 0, there)
    a.with_number(0, R10, 64)
    a.scalar(asm.CMP, R10, R8)
    a.jump(swap, asm.BELOW)
    a.label(swapped)

    a.vector(f"broadcast.{type}", _PIVOT, Mem(RBP, index=R12))
    a.scalar(asm.MOVE, R13, R12)
    a.with_number(0, R13, size)
    a.with_number(4, R13, -64)  # the vector that the next column is in
    a.scalar(asm.MOVE, R14, RBX)
    a.with_number(0, R14, 1)
    a.with_number(4, R14, 64 // size - 1)
    a.set_number(RAX, -1)
    a.low_bits(RAX, R14)
    a.mask_from(_LEFT, RAX)
    a.mask("not", _RIGHT, _LEFT)
    a.scalar(asm.MOVE, R10, RBP)
    a.scalar(asm.MOVE, R11, RCX)
    a.scalar(asm.SUB, R11, RBX)
    a.label(eliminate)  # R11 rows are left, this one among them
    a.with_number(5, R11, 1)
    a.jump(column_end, asm.ZERO)
    a.scalar(asm.ADD, R10, R8)
    a.label(row)
    a.vector(f"broadcast.{type}", _FACTOR, Mem(R10, index=R12))
    a.vector(f"div.{type}", _FACTOR, _FACTOR, _PIVOT)
    a.scalar(asm.MOVE, R14, R13)
    mine, above = Mem(R10, index=R14), Mem(RBP, index=R14)
    a.vector(f"load.{type}", 0, mine)
    a.vector(f"load.{type}", 1, above)
    a.vector(f"nmadd231.{type}", 0, _FACTOR, 1, mask=_RIGHT)
    a.vector(f"store.{type}", 0, mine)
    a.label(vector)
    a.with_number(0, R14, 64)
    a.scalar(asm.CMP, R14, R8)
    a.jump(row_end, asm.ABOVE_EQUAL)
    a.vector(f"load.{type}", 0, mine)
    a.vector(f"load.{type}", 1, above)
    a.vector(f"nmadd231.{type}", 0, _FACTOR, 1)
    a.vector(f"store.{type}", 0, mine)
    a.jump(vector)
    a.label(row_end)
    a.vector(f"store.{type}", _FACTOR, Mem(R10, index=R12), mask=_ONE)
    a.jump(eliminate)

    a.label(column_end)
    a.scalar(asm.ADD, RBP, R8)
    a.with_number(0, R12, size)
    a.with_number(0, RBX, 1)
    a.scalar(asm.CMP, RBX, RCX)
    a.jump(column, asm.BELOW)
    a.scalar(asm.ADD, RSI, R9)
    a.scalar(_ADDRESS, RDX, Mem(RDX, index=RCX, scale=8))
    a.with_number(5, RDI, 1)
    a.jump(matrix, asm.NOT_ZERO)
    a.label(stop)
    a.scalar(asm.MOVE, RAX, RDI)
    for register in reversed(_SAVED):
        a.raw(*((0x41,) if register > 7 else ()), 0x58 | register & 7)
    a.raw(0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret
    from penstock.ops.native.executable import into_memory

    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return ctypes.CFUNCTYPE(number, number, pointer, pointer, number, number, number)(into_memory(a.finish()))


_ADDRESS = 0x8D
