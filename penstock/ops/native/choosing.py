"""np.where for arrays of one shape, or single numbers: NumPy jumps for every element, which an unpredictable condition makes several times as slow.

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
    from penstock.ops.native.compiler import into_memory

    a, type, lanes = Assembler(), _TYPES[size], 64 // size
    n, flags, yes, no, out, at = RDI, RSI, RDX, RCX, R8, R9
    a.set_number(RAX, (1 << lanes) - 1)
    a.mask_from(_ALL, RAX)
    a.scalar(asm.SUB, at, at)
    for is_one, register, pointer in ((is_one_yes, _YES, yes), (is_one_no, _NO, no)):
        if is_one:
            a.vector(f"broadcast.{type}", register, Mem(pointer))

    def some(mask: int) -> None:
        a.vector("load.u8", _FLAGS, Mem(flags), mask=mask, zero=True, length=asm.QUARTER)
        a.vector("test.u8", _CHOSEN, _FLAGS, _FLAGS, length=asm.QUARTER)
        if is_one_no:
            a.vector(f"load.{type}", _RESULT, _NO)
        else:
            a.vector(f"load.{type}", _RESULT, Mem(no, index=at), mask=mask, zero=True)
        a.vector(f"load.{type}", _RESULT, _YES if is_one_yes else Mem(yes, index=at), mask=_CHOSEN)
        a.vector(f"store.{type}", _RESULT, Mem(out, index=at), mask=mask)

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
