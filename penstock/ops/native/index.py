"""Rows by number: a table with open addressing, from numbers of 64 bits to the rows in which they were first put, counted from 0.

A slot is a pair of words, the number and its row + 1; 0 there means that the slot is free. At most half of the slots are taken.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, RAX, RBP, RBX, RDI, RDX, RSI, Mem
from penstock.ops.native.texts import LEA, Scalars

_MIXER = 0x9E3779B97F4A7C15
_SMALLEST = 8
"""Bits of the first number of slots."""


class Index:
    """`count` numbers have rows."""

    def __init__(self) -> None:
        self.count = 0
        self._make_room(_SMALLEST)

    def find(self, numbers: np.ndarray) -> np.ndarray:
        """The row of each of a contiguous vector of int64, -1 for those that are not there."""
        rows = np.empty(numbers.size, np.int64)
        self._run(_finder, numbers, rows)
        return rows

    def insert(self, numbers: np.ndarray) -> np.ndarray:
        """The row of each; those that are not there get the next ones, in order."""
        needed = self.count + numbers.size
        if 2 * needed > len(self._slots):
            taken = self._slots[self._slots[:, 1] > 0]
            self._make_room((2 * needed - 1).bit_length())
            in_order = taken[np.argsort(taken[:, 1]), 0]
            self.count = 0
            self.insert(in_order)
        rows = np.empty(numbers.size, np.int64)
        self.count = self._run(_inserter, numbers, rows)
        return rows

    def _make_room(self, bits: int) -> None:
        self._slots = np.zeros((1 << bits, 2), np.int64)
        self._shift = 64 - bits

    def _run(self, loop: Any, numbers: np.ndarray, rows: np.ndarray) -> int:
        if not numbers.size:
            return self.count
        address = native.address_of
        return loop()(self._shift, address(numbers), address(rows), numbers.size, address(self._slots), self.count)


@cache
def _finder() -> Any:
    return _loop(False)


@cache
def _inserter() -> Any:
    return _loop(True)


def _loop(inserts: bool) -> Any:
    """f(shift, numbers, rows, n, slots, count): how many there are then."""
    a = Scalars()
    number, probe, free, found = range(4)
    last, count = RAX, R9
    left, slot, key, row = RDI, R10, R11, RDX
    rows, mixer = RBX, RBP  # which the caller wants back
    a.raw(0x50 | RBX, 0x50 | RBP)  # push
    a.move(rows, RDX)
    a.raw(0x48, 0x87, 0xCF)  # xchg rdi, rcx: the shift to where shifts look for it, n to where it is counted down
    a.move(mixer, a.number(_MIXER))
    a.set_number(last, 1)
    a.raw(0x48, 0xF7, 0xD9)  # neg rcx: 1 << (64 - shift), as shifts count modulo 64
    a.raw(0x48, 0xD3, 0xE0)  # shl rax, cl
    a.raw(0x48, 0xF7, 0xD9)
    a.with_number(5, last, 1)
    a.shift_left(last, 4)  # what an offset of a slot may be
    a.label(number)
    a.move(key, Mem(RSI))
    a.move(slot, key)
    a.multiply(slot, mixer)
    a.raw(0x49, 0xD3, 0xEA)  # shr r10, cl
    a.shift_left(slot, 4)
    a.label(probe)
    a.move(row, Mem(R8, 8, index=slot))
    a.with_number(7, row, 0)
    a.jump(free, asm.ZERO)
    a.scalar(asm.CMP, key, Mem(R8, 0, index=slot))
    a.jump(found, asm.ZERO)
    a.with_number(0, slot, 16)
    a.scalar(0x23, slot, last)  # and
    a.jump(probe)
    a.label(free)
    if inserts:
        a.scalar(LEA, row, Mem(count, 1))
        a.move(count, row)
        a.scalar(asm.MOVE_TO_MEMORY, row, Mem(R8, 8, index=slot))
        a.scalar(asm.MOVE_TO_MEMORY, key, Mem(R8, 0, index=slot))
    a.label(found)
    a.with_number(5, row, 1)
    a.scalar(asm.MOVE_TO_MEMORY, row, Mem(rows))
    a.with_number(0, rows, 8)
    a.with_number(0, RSI, 8)
    a.with_number(5, left, 1)
    a.jump(number, asm.NOT_ZERO)
    a.move(RAX, count)
    a.raw(0x58 | RBP, 0x58 | RBX, 0xC3)  # pop; ret
    from penstock.ops.native.executable import into_memory

    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    return ctypes.PYFUNCTYPE(integer, integer, pointer, pointer, integer, pointer, integer)(into_memory(a.finish()))
