"""QR of stacks of small matrices by Householder's reflections: one matrix in each lane, as in `rotations`.

A block holds the columns of its matrices, one behind the other, what is known of each reflection, and the columns of Q, which begin as those of one.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import address_of
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, R13, RBX, RCX, RDI, RDX, RSI, Assembler, Mem
from penstock.ops.native.rotations import TYPES, WORK, back, can_rotate, put, scaled

_PUSHED = (RBX, R12, R13)
_NOTHING = 1  # the k register of the lanes in which there is nothing to reflect
_COLUMN, _REFLECTIONS, _COLUMNS, _Q, _Q_COLUMNS, _FACTORS, _BLOCK = range(0, 56, 8)
"""Where the table has bytes: of a column, of as many rows as there are reflections, of all columns, up to Q, of its columns, up to the factors, of a block."""

can_reflect = can_rotate


def qr(x: np.ndarray, full: bool) -> tuple[np.ndarray, np.ndarray]:
    """(q, r) with signs as LAPACK has them; as many columns of q as rows of x if `full`, otherwise no more than there are columns."""
    m, n = x.shape[-2:]
    q, r = _factors(x, m if full else min(m, n))
    return np.ascontiguousarray(q), np.triu(r)


def triangle(x: np.ndarray) -> np.ndarray:
    """r alone, of at most as many rows as columns."""
    return np.triu(_factors(x, 0)[1])


def _factors(x: np.ndarray, inner: int) -> tuple[np.ndarray, np.ndarray]:
    """q of `inner` columns, and r of as many rows, or as many as there are reflections."""
    m, n = x.shape[-2:]
    steps = min(m, n)
    flat, exponents = scaled(np.swapaxes(x, -1, -2).reshape(-1, n * m))
    lanes, count = 64 // x.itemsize, len(flat)
    q_at = n * m + steps
    blocks = np.zeros((-(-count // lanes), q_at + inner * m, lanes), x.dtype)
    put(flat, blocks[:, : n * m])
    blocks[:, q_at:] = np.eye(inner, m, dtype=x.dtype).reshape(-1, 1)
    table = np.array([m, steps, n * m, q_at, inner * m, n * m, blocks.shape[1]]) * 64
    pieces = max(1, min(8, len(blocks), len(blocks) * n * m * m // WORK))

    def work(i: int) -> None:
        first, end = len(blocks) * i // pieces, len(blocks) * (i + 1) // pieces
        _reflect(TYPES[x.dtype])(end - first, address_of(blocks) + first * blocks.strides[0], address_of(table))

    native.threads.parallel_for(pieces, work)
    q = x[..., :0]  # none
    if inner:
        q = np.swapaxes(back(blocks[:, q_at:], count).reshape(*x.shape[:-2], inner, m), -1, -2)
    r = np.swapaxes(np.ldexp(back(blocks[:, : n * m], count), exponents).reshape(*x.shape[:-2], n, m)[..., : inner or steps], -1, -2)
    return q, r


@cache
def _reflect(type: str) -> Any:
    """f(blocks, their address, table)"""
    a = Assembler()
    bits = int(type[1:])
    for register in _PUSHED:
        a.raw(*((0x41,) if register > 7 else ()), 0x50 | register & 7)
    one, zero, sign, factor, total = 30, 29, 28, 8, 9
    a.vector(f"broadcast.{type}", one, a.constant(1.0, type)._replace(broadcast=False))
    a.vector("xor.i32", zero, zero, zero)
    a.vector(f"broadcast.i{bits}", sign, a.constant(1 << bits - 1, f"i{bits}")._replace(broadcast=False))
    a.scalar(asm.MOVE, RCX, RDX)  # the table
    labels = iter(range(100))

    def over_rows(each: Any) -> None:
        """each() for the rows below the one at R8: their offset is in R12."""
        top, end = next(labels), next(labels)
        a.scalar(asm.MOVE, R12, R8)
        a.label(top)
        a.with_number(0, R12, 64)
        a.scalar(asm.CMP, R12, RDX)
        a.jump(end, asm.ABOVE_EQUAL)
        each()
        a.jump(top)
        a.label(end)

    def reflect_columns() -> None:
        """Those from R11 to R13, by the column at R10."""
        column, end = next(labels), next(labels)
        a.label(column)
        a.scalar(asm.CMP, R11, R13)
        a.jump(end, asm.ABOVE_EQUAL)
        a.vector(f"load.{type}", total, Mem(R11, index=R8))

        def add() -> None:
            a.vector(f"load.{type}", 0, Mem(R10, index=R12))
            a.vector(f"madd231.{type}", total, 0, Mem(R11, index=R12))

        over_rows(add)
        a.vector(f"mul.{type}", total, total, factor)
        a.vector(f"load.{type}", 0, Mem(R11, index=R8))
        a.vector(f"sub.{type}", 0, 0, total)
        a.vector(f"store.{type}", 0, Mem(R11, index=R8))

        def take() -> None:
            a.vector(f"load.{type}", 0, Mem(R11, index=R12))
            a.vector(f"nmadd231.{type}", 0, total, Mem(R10, index=R12))
            a.vector(f"store.{type}", 0, Mem(R11, index=R12))

        over_rows(take)
        a.scalar(asm.ADD, R11, RDX)
        a.jump(column)
        a.label(end)

    block, step, back_step, done = (next(labels) for _ in range(4))
    a.scalar(asm.MOVE, RDX, Mem(RCX, _COLUMN))
    a.label(block)
    a.scalar(asm.SUB, R8, R8)
    a.scalar(asm.SUB, R9, R9)
    a.scalar(asm.MOVE, RBX, RSI)
    a.scalar(asm.ADD, RBX, Mem(RCX, _FACTORS))
    a.label(step)
    a.scalar(asm.MOVE, R10, RSI)
    a.scalar(asm.ADD, R10, R9)
    a.vector(f"load.{type}", 1, zero)

    def square() -> None:
        a.vector(f"load.{type}", 0, Mem(R10, index=R12))
        a.vector(f"madd231.{type}", 1, 0, 0)

    over_rows(square)
    a.vector(f"cmp.{type}", _NOTHING, 1, zero, immediate=asm.EQUAL)
    a.vector(f"load.{type}", 2, Mem(R10, index=R8))
    a.vector(f"madd231.{type}", 1, 2, 2)
    a.vector(f"sqrt.{type}", 1, 1)
    a.vector(f"and.i{bits}", 3, 2, sign)
    a.vector(f"xor.i{bits}", 3, 3, sign)
    a.vector(f"or.i{bits}", 3, 3, 1)  # the new number on the diagonal
    a.vector(f"sub.{type}", 4, 2, 3)
    a.vector(f"div.{type}", 5, one, 4)  # what the rows below are multiplied by
    a.vector(f"div.{type}", factor, 4, 3)
    a.vector(f"sub.{type}", factor, zero, factor)
    a.vector(f"load.{type}", 5, zero, mask=_NOTHING)
    a.vector(f"load.{type}", factor, zero, mask=_NOTHING)
    a.vector(f"load.{type}", 3, 2, mask=_NOTHING)
    a.vector(f"store.{type}", 3, Mem(R10, index=R8))
    a.vector(f"store.{type}", factor, Mem(RBX, index=R8))

    def divide() -> None:
        a.vector(f"mul.{type}", 0, 5, Mem(R10, index=R12))
        a.vector(f"store.{type}", 0, Mem(R10, index=R12))

    over_rows(divide)
    a.scalar(asm.MOVE, R11, R10)
    a.scalar(asm.ADD, R11, RDX)
    a.scalar(asm.MOVE, R13, RSI)
    a.scalar(asm.ADD, R13, Mem(RCX, _COLUMNS))
    reflect_columns()
    a.with_number(0, R8, 64)
    a.scalar(asm.ADD, R9, RDX)
    a.scalar(asm.CMP, R8, Mem(RCX, _REFLECTIONS))
    a.jump(step, asm.BELOW)

    a.label(back_step)  # the last reflection first
    a.with_number(7, R8, 0)
    a.jump(done, asm.ZERO)
    a.with_number(5, R8, 64)
    a.scalar(asm.SUB, R9, RDX)
    a.scalar(asm.MOVE, R10, RSI)
    a.scalar(asm.ADD, R10, R9)
    a.vector(f"load.{type}", factor, Mem(RBX, index=R8))
    a.scalar(asm.MOVE, R11, RSI)
    a.scalar(asm.ADD, R11, Mem(RCX, _Q))
    a.scalar(asm.MOVE, R13, R11)
    a.scalar(asm.ADD, R13, Mem(RCX, _Q_COLUMNS))
    a.scalar(asm.ADD, R11, R9)
    reflect_columns()
    a.jump(back_step)

    a.label(done)
    a.scalar(asm.ADD, RSI, Mem(RCX, _BLOCK))
    a.with_number(5, RDI, 1)
    a.jump(block, asm.NOT_ZERO)
    for register in reversed(_PUSHED):
        a.raw(*((0x41,) if register > 7 else ()), 0x58 | register & 7)
    a.raw(0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret
    from penstock.ops.native.executable import into_memory

    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(into_memory(a.finish()))
