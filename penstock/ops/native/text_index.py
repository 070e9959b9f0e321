"""Rows by string: a table with open addressing, from strings to the rows in which they were first put, counted from 0.

One pass reads each string where it lies, hashes it, and compares it with the string that is found. A slot is a pair of words, the hash and the row + 1;
0 there means that the slot is free. At most half of the slots are taken. Hashes are nobody else's business: 64 letters at a time, products of halves of words.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native import making, texts
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Mem
from penstock.ops.native.texts import LETTERS, SAVED, Scalars

_MIXER = 0x9E3779B97F4A7C15
_SMALLEST = 8
"""Bits of the first number of slots."""
_BLOCK = 64
"""Letters that a vector holds."""
_AND = 0x23


class TextIndex:
    """`count` strings have rows. Whoever has put them in keeps them alive."""

    def __init__(self) -> None:
        self.count = 0
        self._strings = np.empty(0, np.int64)  # the address of each row's object
        self._slots = _free_slots(_SMALLEST)

    def find(self, strings: np.ndarray) -> np.ndarray | None:
        """The row of each of a contiguous vector of strings, -1 for those that are not there; None if something is no string."""
        return self._run(_finder, strings)

    def insert(self, strings: np.ndarray) -> np.ndarray | None:
        """The row of each; those that are not there get the next ones, in order. None if something is no string: then there is no telling what was put in."""
        needed = self.count + strings.size
        if needed > len(self._strings):
            more = np.zeros(2 * needed, np.int64)
            more[: self.count] = self._strings[: self.count]
            self._strings = more
        if 2 * needed > len(self._slots):
            self._slots = _free_slots((2 * needed - 1).bit_length())
            there = self._strings[: self.count].copy()  # what an array of objects consists of
            self.count = 0
            self._run(_inserter, there)
        return self._run(_inserter, strings)

    def moved(self, strings: np.ndarray) -> None:
        """Rows are these objects, equal to the strings that were put in."""
        self._strings[: self.count] = making.pointers(strings)[: self.count]

    def _run(self, loop: Any, strings: np.ndarray) -> np.ndarray | None:
        rows = np.empty(strings.size, np.int64)
        if strings.size:
            address = native.address_of
            table = np.array([address(self._slots), self.count, address(self._strings), (len(self._slots) - 1) * 16])
            if loop()(strings.size, address(strings), address(rows), id(bytes), address(table)):
                return None
            self.count = int(table[1])
        return rows


def _free_slots(bits: int) -> np.ndarray:
    return np.zeros((1 << bits, 2), np.int64)


@cache
def _finder() -> Any:
    return _loop(False)


@cache
def _inserter() -> Any:
    return _loop(True)


def _loop(inserts: bool) -> Any:
    """f(n, strings, rows, type of strings, [slots, count, addresses of strings, the last slot's offset]): how many are left, the first being no string."""
    a = Scalars()
    string, block, last, probe, other, same, unlike, free, found, stop = range(10)
    text, size, mark, ahead = RAX, R10, R11, R12  # `ahead`: letters before the last block
    slots, count, strings, last_slot = R8, R9, RBX, RBP
    slot, row, known = R13, R14, R15
    letters, product, sums, keys, factor, theirs = range(16, 22)  # vectors that need no clearing of upper halves
    rest = 1
    for register in SAVED:
        a.raw(*((0x41,) if register > 7 else ()), 0x50 | register & 7)
    a.move(R10, R8)
    for register, offset in ((slots, 0), (count, 8), (strings, 16), (last_slot, 24)):
        a.move(register, Mem(R10, offset))
    a.raw(0x41, 0x50 | R10 & 7)  # push r10
    with np.errstate(over="ignore"):
        numbers = np.arange(1, 9, dtype=np.uint64) * np.uint64(_MIXER)
    a.vector("load.i64", keys, a.table(numbers))
    a.vector("broadcast.i64", factor, Mem(*a.number(_MIXER)[:2]))

    def take_block() -> None:
        """Adds to the sums what the block of letters says."""
        a.vector("xor.i64", theirs, letters, keys)
        a.vector("shr.i64", product, theirs, immediate=32)
        a.vector("mul_low_halves", product, product, theirs)
        a.vector("add.i64", sums, sums, letters)
        a.vector("add.i64", sums, sums, product)

    a.label(string)
    a.move(text, Mem(RSI))
    a.with_number(7, text, 0)
    a.jump(stop, asm.ZERO)
    a.scalar(asm.CMP, RCX, Mem(text, texts.TYPE))
    a.jump(stop, asm.NOT_ZERO)
    a.move(size, Mem(text, texts.SIZE))
    a.move(slot, size)  # letters that are left
    a.scalar(asm.SUB, ahead, ahead)
    a.vector("xor.i64", sums, sums, sums)
    a.label(block)
    a.with_number(7, slot, _BLOCK)
    a.jump(last, asm.NOT_GREATER)
    a.vector("load.u8", letters, Mem(text, LETTERS, index=ahead))
    take_block()
    a.vector("mul.i64", sums, sums, factor)
    a.with_number(0, ahead, _BLOCK)
    a.with_number(5, slot, _BLOCK)
    a.jump(block)
    a.label(last)
    a.mask_of(rest, slot, known)
    a.vector("load.u8", letters, Mem(text, LETTERS, index=ahead), mask=rest, zero=True)
    take_block()
    a.vector("quarters", product, sums, sums, immediate=0x4E)
    a.vector("add.i64", sums, sums, product)
    a.vector("quarters", product, sums, sums, immediate=0xB1)
    a.vector("add.i64", sums, sums, product)
    a.vector("unpack_high.f64", product, sums, sums, length=asm.QUARTER)
    a.vector("add.i64", sums, sums, product, length=asm.QUARTER)
    a.vector("i64_to_general", sums, mark, length=asm.QUARTER)
    a.add(mark, size)
    for _ in range(2):
        a.multiply(mark, a.number(_MIXER))
        a.move(row, mark)
        a.shift(row, 32)
        a.xor(mark, row)
    a.move(slot, mark)
    a.scalar(_AND, slot, last_slot)
    a.label(probe)
    a.move(row, Mem(slots, 8, index=slot))
    a.with_number(7, row, 0)
    a.jump(free, asm.ZERO)
    a.scalar(asm.CMP, mark, Mem(slots, index=slot))
    a.jump(other, asm.NOT_ZERO)
    a.move(known, Mem(strings, -8, index=row, scale=8))
    a.scalar(asm.CMP, known, text)
    a.jump(found, asm.ZERO)
    a.scalar(asm.CMP, size, Mem(known, texts.SIZE))
    a.jump(other, asm.NOT_ZERO)
    _compare(a, Mem(known, LETTERS, index=ahead), theirs, letters, rest)
    a.jump(other, asm.NOT_ZERO)
    a.label(same)  # the last block; now those before it, if any
    a.with_number(7, ahead, 0)
    a.jump(found, asm.ZERO)
    a.with_number(5, ahead, _BLOCK)
    a.vector("load.u8", product, Mem(text, LETTERS, index=ahead))
    _compare(a, Mem(known, LETTERS, index=ahead), theirs, product, 0)
    a.jump(unlike, asm.NOT_ZERO)
    a.jump(same)
    a.label(unlike)
    a.move(ahead, size)
    a.with_number(5, ahead, 1)
    a.with_number(4, ahead, -_BLOCK)
    a.label(other)
    a.with_number(0, slot, 16)
    a.scalar(_AND, slot, last_slot)
    a.jump(probe)
    a.label(free)
    if inserts:
        a.with_number(0, count, 1)
        a.move(row, count)
        a.scalar(asm.MOVE_TO_MEMORY, row, Mem(slots, 8, index=slot))
        a.scalar(asm.MOVE_TO_MEMORY, mark, Mem(slots, index=slot))
        a.scalar(asm.MOVE_TO_MEMORY, text, Mem(strings, -8, index=row, scale=8))
    a.label(found)
    a.with_number(5, row, 1)
    a.scalar(asm.MOVE_TO_MEMORY, row, Mem(RDX))
    a.with_number(0, RDX, 8)
    a.with_number(0, RSI, 8)
    a.with_number(5, RDI, 1)
    a.jump(string, asm.NOT_ZERO)
    a.label(stop)
    a.raw(0x41, 0x58 | R10 & 7)  # pop r10
    a.scalar(asm.MOVE_TO_MEMORY, count, Mem(R10, 8))
    a.move(RAX, RDI)
    for register in reversed(SAVED):
        a.raw(*((0x41,) if register > 7 else ()), 0x58 | register & 7)
    a.raw(0xC3)  # ret
    from penstock.ops.native.executable import into_memory

    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return ctypes.PYFUNCTYPE(number, number, pointer, pointer, pointer, pointer)(into_memory(a.finish()))


def _compare(a: Scalars, block: Mem, theirs: int, letters: int, mask: int) -> None:
    """Sets the zero flag if the block of letters there is this one; k2 and `theirs` are lost."""
    a.vector("load.u8", theirs, block, mask=mask, zero=mask > 0)
    a.vector("xor.i64", theirs, theirs, letters)
    a.vector("test.u8", 2, theirs, theirs)
    a.raw(0xC4, 0xE1, 0xF8, 0x98, 0xC0 | 2 << 3 | 2)  # kortestq k2, k2
