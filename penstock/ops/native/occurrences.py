"""Where each number of a vector comes first, and which of the different ones each is: what `Unique` and sums of rows by index begin with. And how often
each comes.

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
from penstock.ops.native.frames import finished

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
    n = numbers.size
    first, which = np.empty((2, n), np.int64)
    count = _loops()[n > SHORT](n, id(numbers), id(table_of_thread()), id(first), id(which), LARGEST) if n else 0
    return None if count < 0 else (first[:count], which)


def table_of_thread() -> np.ndarray:
    """A place for each number. What stands there is of no account."""
    table = getattr(_tables, "table", None)
    if table is None:
        table = _tables.table = np.zeros(LARGEST, np.int64)
    return table


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
    from penstock.ops.native.executable import into_memory

    address = into_memory(a.finish())
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    kept, given = (kind(number, number, pointer, pointer, pointer, pointer, number)(address) for kind in (ctypes.PYFUNCTYPE, ctypes.CFUNCTYPE))
    return kept, given


def counted(numbers: np.ndarray, bins: int) -> np.ndarray:
    """As np.bincount(numbers, minlength=bins), for a contiguous vector of int32 in [0, bins): in a third of the time, and without the interpreter's lock.
    Only where native.available()."""
    tables = np.zeros((2, bins), np.int64)
    _count()(numbers.size, numbers.ctypes.data, tables[0].ctypes.data, tables[1].ctypes.data, 0, 0)
    return tables[0] + tables[1]


def histogram(values: np.ndarray, low: float, step: float, bins: int) -> np.ndarray | None:
    """How many of a vector of numbers, of which none is NaN, lie in each of `bins` stretches of length `step` from `low` on; the first and the last one have
    what is outside, too. None if NumPy has to count."""
    type = _TYPES.get(values.dtype)
    if type is None or not native.available():
        return None
    values = np.ascontiguousarray(values)
    numbers, places = np.array([low, step, bins - 1.0]), np.empty(values.size, np.int32)
    _placing(type, values.itemsize)(values.size, values.ctypes.data, numbers.ctypes.data, places.ctypes.data)
    return counted(places, bins)


_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}


@cache
def _placing(type: str, size: int) -> Any:
    """f(n, values, (low, step, the last bin), bins)"""
    from penstock.ops.native import compiler
    from penstock.ops.native.vectors import Trace

    trace = Trace(fuse=False)
    low, step, last = (trace.memory(1, 8 * i, "f64", broadcast=True) for i in range(3))
    place = (trace.add("input", [], "f64", (0, type)) - low).op("div", step)
    trace.add("output", [place.op("max", 0.0).op("min", last)], "none", (2, "i32", 0))
    return compiler.function_at(compiler.into_memory(compiler.Code(trace, 8, [8 * size, 0, 32]).write()), 3)


@cache
def _count() -> Any:
    """f(n, numbers, two tables, -, -): equal neighbours would wait for each other in one."""
    a = Assembler()
    top, last, end = range(3)
    increment = 0xFF, 0
    a.with_number(5, RDI, 2)
    a.jump(last, asm.BELOW)
    a.label(top)
    for offset, table in ((0, RDX), (4, RCX)):
        a.scalar(asm.MOVE, RAX, Mem(RSI, offset), wide=False)
        a.scalar(*increment, Mem(table, index=RAX, scale=8))
    a.with_number(0, RSI, 8)
    a.with_number(5, RDI, 2)
    a.jump(top, asm.ABOVE_EQUAL)
    a.label(last)
    a.with_number(0, RDI, 2)
    a.jump(end, asm.ZERO)
    a.scalar(asm.MOVE, RAX, Mem(RSI), wide=False)
    a.scalar(*increment, Mem(RDX, index=RAX, scale=8))
    a.label(end)
    return finished(a)
