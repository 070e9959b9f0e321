"""Sums of rows that have the same number: what a sparse update begins with.

One pass over the rows, without sorting and without arrays of places, by the table of `occurrences`: the first row of a number goes behind the sums that there
are, the others are added to it, in order.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, R13, R14, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Mem
from penstock.ops.native.occurrences import LARGEST, SHORT, table_of_thread

_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}
_TAIL, _ZERO, _SUM = 1, 0, 1  # a k register, vectors
_PACK = struct.Struct("<9q").pack


def sums_by_number(rows: np.ndarray, numbers: np.ndarray, limit: int = LARGEST) -> tuple[np.ndarray, np.ndarray] | None:
    """The sum of the rows of each number, from 0 on, and the different numbers as int64, in the order in which they come first. There is a number for
    each row. None if not all are integers in [0, limit), or there is no machine code here."""
    type = _TYPES.get(rows.dtype)
    if type is None or numbers.dtype.char not in "ilq" or not native.available():
        return None
    n = numbers.size
    sums, named = np.empty(rows.shape, rows.dtype), np.empty(n, np.int64)
    size = rows.size
    if not size:  # no rows, or nothing in them
        return None if n else (sums, named)
    if not rows.flags.c_contiguous:
        rows = np.ascontiguousarray(rows)
    loop = _loops(type, numbers.itemsize)[size > SHORT]
    bounds = size // n * rows.itemsize, limit if limit < LARGEST else LARGEST, numbers.strides[0]
    count = loop(_PACK(n, id(numbers), id(table_of_thread()), id(rows), id(sums), id(named), *bounds))
    if count < 0:
        return None
    return (sums, named) if count == n else (sums[:count], named[:count])


@cache
def _loops(type: str, number_size: int) -> tuple[Any, Any]:
    """f(arguments): how many numbers are different, or -1. The arguments are 8 bytes each, which takes ctypes a third of the time that they would take one by
    one: n, the addresses of array objects (numbers, table, rows, sums, named), bytes of a row, the limit, bytes between numbers. One keeps the interpreter's
    lock, one gives it away."""
    a = asm.Assembler()
    top, new, known, following, failed, end = range(6)
    a.raw(0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56)  # push rbx, rbp, r12, r13, r14
    a.scalar(asm.MOVE, RBP, RDI)
    a.scalar(asm.MOVE, RDI, Mem(RBP))
    for i, register in enumerate((RSI, RDX, RCX, R8, R9)):
        a.scalar(asm.MOVE, register, Mem(RBP, 8 + 8 * i))
        a.scalar(asm.MOVE, register, Mem(register, object.__basicsize__))  # where an array's elements lie is the first thing in the object
    width, limit, step = (Mem(RBP, 48 + 8 * i) for i in range(3))
    lanes = 64 // (int(type[1:]) // 8)
    a.scalar(asm.MOVE, RBX, width)
    a.scalar(asm.MOVE, R13, RBX)
    a.with_number(4, R13, -64)  # bytes in whole vectors
    a.scalar(asm.MOVE, R10, RBX)
    a.scalar(asm.SUB, R10, R13)
    a.raw(0x49, 0xC1, 0xEA, {16: 2, 8: 3}[lanes])  # shr r10: elements behind them
    a.set_number(RAX, -1)
    a.low_bits(RAX, R10)
    a.mask_from(_TAIL, RAX)
    a.vector("sub.i32", _ZERO, _ZERO, _ZERO)
    a.scalar(asm.SUB, RAX, RAX)

    def add_row(vector: int, tail: int, begin: Callable[[dict[str, Any]], None]) -> None:
        """Adds the row at RCX to what `begin` loads, and writes it to R12."""
        a.scalar(asm.SUB, R14, R14)
        a.label(vector)
        a.scalar(asm.CMP, R14, R13)
        a.jump(tail, asm.ABOVE_EQUAL)
        begin({})
        a.vector(f"add.{type}", _SUM, _SUM, Mem(RCX, index=R14))
        a.vector(f"store.{type}", _SUM, Mem(R12, index=R14))
        a.with_number(0, R14, 64)
        a.jump(vector)
        a.label(tail)
        begin({"mask": _TAIL, "zero": True})
        a.vector(f"add.{type}", _SUM, _SUM, Mem(RCX, index=R14), mask=_TAIL, zero=True)
        a.vector(f"store.{type}", _SUM, Mem(R12, index=R14), mask=_TAIL)

    a.label(top)
    a.scalar(asm.MOVE if number_size == 8 else _MOVE_EXTENDED, R11, Mem(RSI))
    a.scalar(asm.CMP, R11, limit)
    a.jump(failed, asm.ABOVE_EQUAL)
    a.scalar(asm.MOVE, R10, Mem(RDX, index=R11, scale=8))
    a.scalar(asm.CMP, R10, RAX)
    a.jump(new, asm.ABOVE_EQUAL)
    a.scalar(asm.CMP, R11, Mem(R9, index=R10, scale=8))
    a.jump(known, asm.ZERO)
    a.label(new)
    a.scalar(asm.MOVE_TO_MEMORY, RAX, Mem(RDX, index=R11, scale=8))
    a.scalar(asm.MOVE_TO_MEMORY, R11, Mem(R9, index=RAX, scale=8))
    a.scalar(asm.MOVE, R12, RAX)
    a.scalar(asm.MULTIPLY, R12, RBX)
    a.scalar(asm.ADD, R12, R8)
    a.with_number(0, RAX, 1)
    add_row(6, 7, lambda part: a.vector("load.i32", _SUM, _ZERO))
    a.jump(following)
    a.label(known)
    a.scalar(asm.MOVE, R12, R10)
    a.scalar(asm.MULTIPLY, R12, RBX)
    a.scalar(asm.ADD, R12, R8)
    add_row(8, 9, lambda part: a.vector(f"load.{type}", _SUM, Mem(R12, index=R14), **part))
    a.label(following)
    a.scalar(asm.ADD, RSI, step)
    a.scalar(asm.ADD, RCX, RBX)
    a.with_number(5, RDI, 1)
    a.jump(top, asm.NOT_ZERO)
    a.jump(end)
    a.label(failed)
    a.scalar(asm.SUB, RAX, RAX)
    a.with_number(5, RAX, 1)
    a.label(end)
    a.raw(0x41, 0x5E, 0x41, 0x5D, 0x41, 0x5C, 0x5D, 0x5B, 0xC5, 0xF8, 0x77, 0xC3)  # pop r14, r13, r12, rbp, rbx; vzeroupper; ret
    from penstock.ops.native.executable import into_memory

    address = into_memory(a.finish())
    kept, given = (kind(ctypes.c_int64, ctypes.c_char_p)(address) for kind in (ctypes.PYFUNCTYPE, ctypes.CFUNCTYPE))
    return kept, given


_MOVE_EXTENDED = 0x63
"""An int32 as an int64."""
