"""Systems with triangular matrices: stacks of small ones, for which a call of BLAS for each takes longer than the arithmetic, and middle ones.

Four rows at a time: what the rows above add to them is one pass over these, then the four are solved in registers. Columns of the right-hand side lie in the
lanes. Transposed matrices are read with exchanged strides, upper ones backwards.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI, Assembler, Mem

RBX, RBP, R12, R13, R14, R15 = 3, 5, 12, 13, 14, 15
_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
_ROWS, _VECTORS = 4, 4
_TAIL = 1  # the k register of the last vector's elements
_PIECE = 1 << 17
"""Fused multiply-adds of vectors that are worth a thread."""


def can_solve(dtype: np.dtype) -> bool:
    return dtype in _TYPES and native.available()


def solve(a: np.ndarray, b: np.ndarray, lower: bool, transposed: bool) -> np.ndarray:
    """x with a x = b, or a^T x = b; only the triangle of `a` that `lower` names is read. Of one type; the stacks are equally large, or `a` is one matrix."""
    x = b.copy()  # in C order
    if x.size:
        solve_in_place(np.ascontiguousarray(a), x, lower, transposed)
    return x


def solve_in_place(a: np.ndarray, x: np.ndarray, lower: bool, transposed: bool, unit: bool = False) -> None:
    """The same with contiguous arrays, neither empty, `x` being the right-hand side first. `unit`: the diagonal is one, and not read."""
    n, columns = x.shape[-2:]
    count, size = x.size // (n * columns), x.itemsize
    row, column = (1, n) if transposed else (n, 1)
    row, column, line = row * size, column * size, columns * size
    a_start, x_start = a.ctypes.data, x.ctypes.data
    if lower == transposed:  # from the last row upwards
        a_start, x_start = a_start + (n * n - 1) * size, x_start + (n - 1) * line
        row, column, line = -row, -column, -line
    a_step, x_step = (n * n * size if a.size > n * n else 0), n * columns * size
    table = np.array([n % _ROWS, n // _ROWS, row, column, line, 3 * row, 4 * row, 4 * line, a_step, x_step])
    width = 64 // size * _VECTORS
    panels = -(-columns // width)
    parts = max(1, min(count, 8, count * n * n // 2 * -(-columns // (64 // size)) // _PIECE))

    def work(i: int) -> None:
        panel, part = divmod(i, parts)
        first, end = count * part // parts, count * (part + 1) // parts
        here = min(width, columns - panel * width)
        vectors = -(-here * size // 64)
        _loop(_TYPES[x.dtype], vectors, unit)(
            end - first, a_start + first * a_step, x_start + first * x_step + panel * width * size, table.ctypes.data, here - (vectors - 1) * 64 // size
        )

    if count * n * n // 2 * -(-columns // (64 // size)) < 2 * _PIECE:
        native.threads.serial(panels * parts, work)
    else:
        native.threads.parallel_for(panels * parts, work)


@cache
def _loop(type: str, vectors: int, unit: bool) -> Any:
    """f(matrices, a, x, table, elements of the last vector); the table is what `solve` makes, strides in bytes."""
    a = Assembler()
    pushed = (RBX, RBP, R12, R13, R14, R15)
    for register in pushed:
        a.raw(*((0x41,) if register > 7 else ()), 0x50 | register & 7)
    a.set_number(RAX, -1)
    a.low_bits(RAX, R8)
    a.mask_from(_TAIL, RAX)
    for i, register in enumerate((RBX, RBP, R12, R13, R14, R15)):
        a.scalar(asm.MOVE, register, Mem(RCX, 16 + 8 * i))
    matrix, one, blocks, block, following = range(5)
    a.label(matrix)
    a.scalar(asm.MOVE, R8, RSI)
    a.scalar(asm.MOVE, R9, RDX)
    a.scalar(asm.MOVE, R10, Mem(RCX))
    a.with_number(7, R10, 0)
    a.jump(blocks, asm.ZERO)
    a.label(one)
    _rows(a, type, vectors, 1, unit, labels=(5, 6))
    a.scalar(asm.ADD, R8, RBX)
    a.scalar(asm.ADD, R9, R12)
    a.with_number(5, R10, 1)
    a.jump(one, asm.NOT_ZERO)
    a.label(blocks)
    a.scalar(asm.MOVE, R10, Mem(RCX, 8))
    a.with_number(7, R10, 0)
    a.jump(following, asm.ZERO)
    a.label(block)
    _rows(a, type, vectors, _ROWS, unit, labels=(7, 8))
    a.scalar(asm.ADD, R8, R14)
    a.scalar(asm.ADD, R9, R15)
    a.with_number(5, R10, 1)
    a.jump(block, asm.NOT_ZERO)
    a.label(following)
    a.scalar(asm.ADD, RSI, Mem(RCX, 64))
    a.scalar(asm.ADD, RDX, Mem(RCX, 72))
    a.with_number(5, RDI, 1)
    a.jump(matrix, asm.NOT_ZERO)
    for register in reversed(pushed):
        a.raw(*((0x41,) if register > 7 else ()), 0x58 | register & 7)
    a.raw(0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret
    from penstock.ops.native.executable import into_memory

    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return ctypes.CFUNCTYPE(None, number, pointer, pointer, pointer, number)(into_memory(a.finish()))


def _rows(a: Assembler, type: str, vectors: int, rows: int, unit: bool, labels: tuple[int, int]) -> None:
    """Solves `rows` rows: of the matrix at R8, of x at R9. Those above begin at RDX."""
    above, solved = labels

    def total(r: int, v: int) -> int:
        return r * _VECTORS + v

    def tail(v: int) -> int:
        return _TAIL if v == vectors - 1 else 0

    def entry(r: int) -> Mem:
        """The entry `r` rows below the one at RAX."""
        return (Mem(RAX), Mem(RAX, index=RBX), Mem(RAX, index=RBX, scale=2), Mem(RAX, index=R13))[r]

    a.scalar(asm.MOVE, RAX, R9)
    for r in range(rows):
        for v in range(vectors):
            a.vector(f"load.{type}", total(r, v), Mem(RAX, 64 * v), mask=tail(v), zero=bool(tail(v)))
        a.scalar(asm.ADD, RAX, R12)
    a.scalar(asm.MOVE, RAX, R8)
    a.scalar(asm.MOVE, R11, RDX)
    a.label(above)
    a.scalar(asm.CMP, R11, R9)
    a.jump(solved, asm.ZERO)
    for v in range(vectors):
        a.vector(f"load.{type}", 16 + v, Mem(R11, 64 * v), mask=tail(v), zero=bool(tail(v)))
    for r in range(rows):
        a.vector(f"broadcast.{type}", 20 + r, entry(r))
        for v in range(vectors):
            a.vector(f"nmadd231.{type}", total(r, v), 20 + r, 16 + v)
    a.scalar(asm.ADD, RAX, RBP)
    a.scalar(asm.ADD, R11, R12)
    a.jump(above)
    a.label(solved)
    for q in range(rows):
        if not unit:
            a.vector(f"broadcast.{type}", 20, entry(q))
            for v in range(vectors):
                a.vector(f"div.{type}", total(q, v), total(q, v), 20)
        for r in range(q + 1, rows):
            a.vector(f"broadcast.{type}", 20 + r, entry(r))
            for v in range(vectors):
                a.vector(f"nmadd231.{type}", total(r, v), 20 + r, total(q, v))
        a.scalar(asm.ADD, RAX, RBP)
    a.scalar(asm.MOVE, RAX, R9)
    for r in range(rows):
        for v in range(vectors):
            a.vector(f"store.{type}", total(r, v), Mem(RAX, 64 * v), mask=tail(v))
        a.scalar(asm.ADD, RAX, R12)
