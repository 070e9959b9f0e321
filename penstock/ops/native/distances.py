"""Levenshtein's distance of many pairs of sequences: the usual table, one row of it at a time."""

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


def distances(a: np.ndarray, a_lengths: np.ndarray, b: np.ndarray, b_lengths: np.ndarray) -> np.ndarray | None:
    """Distances of the i-th sequence of `a` to that of `b`, which stand one behind the other. None if there is no machine code here."""
    if not native.available():
        return None
    if a_lengths.sum() > a.size or b_lengths.sum() > b.size or len(a_lengths) != len(b_lengths):  # nothing else would end the loop there
        raise IndexError("sequences beyond the end")
    arrays = [np.ascontiguousarray(x, np.int64) for x in (a, b, a_lengths, b_lengths)]
    row = np.empty(int(b_lengths.max(initial=0)) + 1, np.int64)
    result = np.empty(len(a_lengths), np.int64)
    if result.size:
        table = np.array(list(map(native.address_of, (*arrays, row, result))))
        _loop()(result.size, native.address_of(table))
    return result


@cache
def _loop() -> Any:
    """f(pairs, addresses: a, b, lengths of both, a row of the table, result)"""
    a = Assembler()
    pair, fill, filled, line, cell, line_end, done = range(7)
    first, second, n, m, row = RSI, RDX, RCX, R8, R9
    i, j, corner, left, above, letter, lengths_a, lengths_b = R10, R11, RAX, RBX, RBP, R12, R13, R14
    result = R15
    for register in _SAVED:
        a.raw(*((0x41,) if register > 7 else ()), 0x50 | register & 7)
    for k, register in reversed(list(enumerate((first, second, lengths_a, lengths_b, row, result)))):  # the first of them holds the table's address
        a.scalar(asm.MOVE, register, Mem(RSI, 8 * k))
    a.label(pair)
    a.scalar(asm.MOVE, n, Mem(lengths_a))
    a.scalar(asm.MOVE, m, Mem(lengths_b))
    a.set_number(j, 0)
    a.label(fill)
    a.scalar(asm.MOVE_TO_MEMORY, j, Mem(row, index=j, scale=8))
    a.scalar(asm.CMP, j, m)
    a.jump(filled, asm.ABOVE_EQUAL)
    a.with_number(0, j, 1)
    a.jump(fill)
    a.label(filled)
    a.set_number(i, 0)
    a.label(line)
    a.scalar(asm.CMP, i, n)
    a.jump(done, asm.ABOVE_EQUAL)
    a.scalar(asm.MOVE, letter, Mem(first, index=i, scale=8))
    a.scalar(asm.MOVE, corner, i)
    a.with_number(0, i, 1)
    a.scalar(asm.MOVE, left, i)
    a.scalar(asm.MOVE_TO_MEMORY, i, Mem(row))
    a.set_number(j, 0)
    a.label(cell)
    a.scalar(asm.CMP, j, m)
    a.jump(line_end, asm.ABOVE_EQUAL)
    a.scalar(asm.MOVE, above, Mem(row, 8, index=j, scale=8))
    # The corner's number if the letters are equal; otherwise one more than the least of the three.
    a.scalar(asm.CMP, left, above)
    a.scalar(asm.MOVE_IF_ABOVE, left, above)
    a.scalar(asm.CMP, left, corner)
    a.scalar(asm.MOVE_IF_ABOVE, left, corner)
    a.with_number(0, left, 1)
    a.scalar(asm.CMP, letter, Mem(second, index=j, scale=8))
    a.scalar(_MOVE_IF_EQUAL, left, corner)
    a.scalar(asm.MOVE, corner, above)
    a.with_number(0, j, 1)
    a.scalar(asm.MOVE_TO_MEMORY, left, Mem(row, index=j, scale=8))
    a.jump(cell)
    a.label(line_end)
    a.jump(line)
    a.label(done)
    a.scalar(asm.MOVE, corner, Mem(row, index=m, scale=8))
    a.scalar(asm.MOVE_TO_MEMORY, corner, Mem(result))
    a.scalar(_ADDRESS, first, Mem(first, index=n, scale=8))
    a.scalar(_ADDRESS, second, Mem(second, index=m, scale=8))
    for register in (lengths_a, lengths_b, result):
        a.with_number(0, register, 8)
    a.with_number(5, RDI, 1)
    a.jump(pair, asm.NOT_ZERO)
    for register in reversed(_SAVED):
        a.raw(*((0x41,) if register > 7 else ()), 0x58 | register & 7)
    a.raw(0xC3)  # ret
    from penstock.ops.native.executable import into_memory

    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(into_memory(a.finish()))


_MOVE_IF_EQUAL, _ADDRESS = 0x144, 0x8D
