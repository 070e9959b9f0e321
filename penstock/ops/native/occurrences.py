"""Where each number of a vector comes first, and which of the different ones each is: what `Unique` and sums of rows by index begin with.

One pass, without sorting: a table says of every number what it was called when it last came. Nobody clears the table. What it says of a number counts
only if that name has been given in this call, and to this number.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI, Assembler, Mem

LARGEST = 1 << 21
"""Numbers are below this: the table takes 16 MB then, of which only those parts are ever touched that belong to numbers that come."""
SHORT = 1 << 13
"""Numbers for which the interpreter's lock is kept: to give it away would take longer."""
_I = 3  # rbx, which the caller wants back
_tables = threading.local()


def first_occurrences(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Where each different number comes first, in that order, and for all of them which one they are. None if not all are integers in
    [0, LARGEST), or there is no machine code here."""
    if numbers.ndim != 1 or numbers.dtype.kind != "i" or not native.available():
        return None
    numbers = np.ascontiguousarray(numbers, np.int64)
    table = getattr(_tables, "table", None)
    if table is None:
        table = _tables.table = np.zeros(LARGEST, np.int64)
    n = numbers.size
    first, which = np.empty((2, n), np.int64)
    count = _loops()[n > SHORT](n, id(numbers), id(table), id(first), id(which), LARGEST) if n else 0
    return None if count < 0 else (first[:count], which)


@cache
def _loops() -> tuple[Any, Any]:
    """f(n, numbers, table, first, which, limit), with array objects: how many are different, or -1. One keeps the interpreter's lock, one gives it away."""
    a = Assembler()
    top, new, known, end, failed = range(5)
    a.raw(0x53)  # push rbx
    for register in (RSI, RDX, RCX, R8):
        a.scalar(asm.MOVE, register, Mem(register, object.__basicsize__))  # where an array's elements lie is the first thing in the object
    a.scalar(asm.SUB, _I, _I)
    a.scalar(asm.SUB, RAX, RAX)
    a.label(top)
    a.scalar(asm.MOVE, R11, Mem(RSI, index=_I, scale=8))
    a.scalar(asm.CMP, R11, R9)
    a.jump(failed, asm.ABOVE_EQUAL)
    a.scalar(asm.MOVE, R10, Mem(RDX, index=R11, scale=8))
    a.scalar(asm.CMP, R10, RAX)
    a.jump(new, asm.ABOVE_EQUAL)
    a.scalar(asm.MOVE_TO_MEMORY, R10, Mem(R8, index=_I, scale=8))
    a.scalar(asm.MOVE, R10, Mem(RCX, index=R10, scale=8))
    a.scalar(asm.CMP, R11, Mem(RSI, index=R10, scale=8))
    a.jump(known, asm.ZERO)
    a.label(new)
    a.scalar(asm.MOVE_TO_MEMORY, RAX, Mem(RDX, index=R11, scale=8))
    a.scalar(asm.MOVE_TO_MEMORY, RAX, Mem(R8, index=_I, scale=8))
    a.scalar(asm.MOVE_TO_MEMORY, _I, Mem(RCX, index=RAX, scale=8))
    a.with_number(0, RAX, 1)
    a.label(known)
    a.with_number(0, _I, 1)
    a.scalar(asm.CMP, _I, RDI)
    a.jump(top, asm.BELOW)
    a.label(end)
    a.raw(0x5B, 0xC3)  # pop rbx; ret
    a.label(failed)
    a.scalar(asm.SUB, RAX, RAX)
    a.with_number(5, RAX, 1)
    a.jump(end)
    from penstock.ops.native.compiler import into_memory

    address = into_memory(a.finish())
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    kept, given = (kind(number, number, pointer, pointer, pointer, pointer, number)(address) for kind in (ctypes.PYFUNCTYPE, ctypes.CFUNCTYPE))
    return kept, given
