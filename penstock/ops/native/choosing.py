"""np.where for arrays of one shape, or single numbers: NumPy jumps for every element, which an unpredictable condition makes several times as slow. And the values
that belong to each of a few partitions.

Numbers are moved as bits, so that NaNs stay what they are.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, RAX, RCX, RDI, RDX, RSI, Assembler, Mem

_TYPES = {4: "i32", 8: "i64"}
_ALL, _REST, _CHOSEN = 1, 2, 3  # k registers
_YES, _NO, _RESULT, _FLAGS = range(4)  # vectors
_COST = 0.25
"""Instructions for each byte of the result, about."""
_SHORT = 1 << 18
"""Bytes that are no work for two threads."""


def can_choose(itemsize: int) -> bool:
    return itemsize in _TYPES and native.available()


def choose(condition: np.ndarray, yes: np.ndarray, no: np.ndarray, out: np.ndarray) -> None:
    """out[i] = yes[i] if condition[i] else no[i]; all are contiguous, `yes` and `no` of the result's type and as many elements, or of a single one."""
    size, n = out.itemsize, out.size
    loop = _loop(size, yes.size == 1, no.size == 1)
    arrays = (condition, yes, no, out)
    if n * size <= _SHORT:
        loop(n, *map(native.address_of, arrays))
        return
    native.over_threads(loop, n, _COST * size, [(native.address_of(a), a.itemsize if a.size == n else 0) for a in arrays])


@cache
def _loop(size: int, is_one_yes: bool, is_one_no: bool) -> Any:
    """f(n, condition, yes, no, out)."""
    from penstock.ops.native.executable import into_memory

    a, type, lanes = Assembler(), _TYPES[size], 64 // size
    n, flags, yes, no, out, at = RDI, RSI, RDX, RCX, R8, R9
    a.set_number(RAX, (1 << lanes) - 1)
    a.mask_from(_ALL, RAX)
    a.scalar(asm.SUB, at, at)
    for is_one, register, pointer in ((is_one_yes, _YES, yes), (is_one_no, _NO, no)):
        if is_one:
            a.vector(f"broadcast.{type}", register, Mem(pointer))

    def some(mask: int) -> None:
        """The flags of eight numbers are half of the shortest vector; numbers have a mask only if they are the last ones, as a store with one reads what it writes over."""
        last: dict[str, Any] = {"mask": mask} if mask == _REST else {}
        a.vector("load.u8", _FLAGS, Mem(flags), mask=mask, zero=True, length=asm.QUARTER)
        a.vector("test.u8", _CHOSEN, _FLAGS, _FLAGS, length=asm.QUARTER)
        if is_one_no:
            a.vector(f"load.{type}", _RESULT, _NO)
        else:
            a.vector(f"load.{type}", _RESULT, Mem(no, index=at), **last, zero=bool(last))
        a.vector(f"load.{type}", _RESULT, _YES if is_one_yes else Mem(yes, index=at), mask=_CHOSEN)
        a.vector(f"store.{type}", _RESULT, Mem(out, index=at), **last)

    turn, rest, end = range(3)
    a.label(turn)
    a.with_number(7, n, lanes)
    a.jump(rest, asm.BELOW)
    some(_ALL)
    a.with_number(0, flags, lanes)
    a.with_number(0, at, 64)
    a.with_number(5, n, lanes)
    a.jump(turn)
    a.label(rest)
    a.with_number(7, n, 0)
    a.jump(end, asm.ZERO)
    a.set_number(RAX, -1)
    a.low_bits(RAX, n)
    a.mask_from(_REST, RAX)
    some(_REST)
    a.label(end)
    a.raw(0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * 4)(into_memory(a.finish()))


_MANY, _FEW = 1 << 10, 64
"""Elements from which on, and partitions up to which, a pass for each of these pays."""


def partitioned(values: np.ndarray, numbers: np.ndarray, count: int) -> list[np.ndarray] | None:
    """values[numbers == i] for each i below `count`; `numbers` is a contiguous vector of int32 for as many values. None if NumPy is to do it."""
    if numbers.size < _MANY or count > _FEW or values.dtype.hasobject or not can_choose(values.itemsize):
        return None
    return [_picked(np.ascontiguousarray(values), numbers, i) for i in range(count)]


def _picked(values: np.ndarray, numbers: np.ndarray, number: int) -> np.ndarray:
    size = values.itemsize
    out = np.empty(values.size + 64 // size, values.dtype)  # the loop stores whole vectors
    count = _picks(size)(values.size, *map(native.address_of, (numbers, values, out)), number)
    out.resize(count, refcheck=False)
    return out


@cache
def _picks(size: int) -> Any:
    """f(n, numbers, values, out, number): how many there are."""
    from penstock.ops.native.executable import into_memory

    a, type, lanes = Assembler(), f"f{8 * size}", 64 // size
    n, numbers, values, out, number = RDI, RSI, RDX, RCX, R8
    length = asm.FULL if size == 4 else asm.HALF
    below = Mem(asm.RSP, -8)  # memory that is ours as long as nothing is called
    a.scalar(asm.MOVE_TO_MEMORY, number, below)
    a.vector("broadcast.i32", _YES, below)
    a.scalar(asm.MOVE, R9, out)
    a.set_number(RAX, (1 << lanes) - 1)
    turn, rest, end = range(3)

    def some() -> None:
        """The lanes of mask RAX."""
        a.mask_from(_REST, RAX)
        a.vector("load.i32", _FLAGS, Mem(numbers), mask=_REST, zero=True, length=length)
        a.vector("cmp.i32", _CHOSEN, _FLAGS, _YES, mask=_REST, immediate=asm.EQUAL, length=length)
        a.vector(f"load.{type}", _NO, Mem(values), mask=_CHOSEN, zero=True)
        a.vector(f"compress.{type}", _NO, _RESULT, mask=_CHOSEN, zero=True)
        a.vector(f"store.{type}", _RESULT, Mem(out))
        a.raw(0xC5, 0x78, 0x93, 0xD0 | _CHOSEN)  # kmovw r10d, k
        a.raw(0xF3, 0x45, 0x0F, 0xB8, 0xD2)  # popcnt r10d, r10d
        a.raw(0x4A, 0x8D, 0x0C, {4: 0x91, 8: 0xD1}[size])  # lea rcx, [rcx + r10 * size]

    a.label(turn)
    a.with_number(7, n, lanes)
    a.jump(rest, asm.BELOW)
    some()
    a.with_number(0, numbers, 4 * lanes)
    a.with_number(0, values, 64)
    a.with_number(5, n, lanes)
    a.jump(turn)
    a.label(rest)
    a.with_number(7, n, 0)
    a.jump(end, asm.ZERO)
    a.set_number(RAX, -1)
    a.low_bits(RAX, n)
    some()
    a.label(end)
    a.scalar(asm.MOVE, RAX, out)
    a.scalar(asm.SUB, RAX, R9)
    a.raw(0x48, 0xC1, 0xE8, size.bit_length() - 1)  # shr rax
    a.raw(0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 3, ctypes.c_int64)(into_memory(a.finish()))
