"""Rows of one matrix into rows of another, one after the other: result[ids[i]] = result[ids[i]] op rows[i].

What segment sums, scatters and weighted counts have in common. NumPy's own way (`ufunc.at`, `reduceat`) takes several times as long for short rows.
The order is that of the rows, so sums are rounded as in a plain loop.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import address_of
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI, RSP, Assembler, Mem

_OPS = {np.add: "add", np.multiply: "mul", np.maximum: "max", np.minimum: "min", np.subtract: "sub"}
_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}
_TAIL, _BOTH = 1, 2  # k registers


def can_fold(ufunc: Any, dtype: np.dtype) -> bool:
    return ufunc in _OPS and dtype in _TYPES and native.available()


def fold(ufunc: Any, result: np.ndarray, ids: np.ndarray, rows: np.ndarray, *, in_groups: bool = False) -> None:
    """In place. `result` and `rows` are contiguous, of one type and equally wide; ids lie within the result. `in_groups`: equal ids stand together."""
    done = fold_until(ufunc, result, ids, rows, in_groups=in_groups)
    if done < len(ids):
        raise IndexError(f"{ids[done]} is no row of {len(result)}")


def fold_until(ufunc: Any, result: np.ndarray, ids: np.ndarray, rows: np.ndarray, *, in_groups: bool = False) -> int:
    """The same up to the first id that names no row of the result; its place, or the number of ids."""
    count = len(ids)
    if not rows.size:
        return count
    if ids.itemsize < 4 or not ids.flags.c_contiguous:
        ids = np.ascontiguousarray(ids, np.int64)
    size = result.itemsize
    lanes, width = 64 // size, rows.size // count
    is_short = in_groups and width <= lanes
    function = (_loop_over_groups if is_short else _loop)(_OPS[ufunc], _TYPES[result.dtype], ids.itemsize)
    rest = width if is_short else width % lanes
    return count - function(count, address_of(ids), address_of(rows), address_of(result), width * size, rest, len(result))


def fold_sorted(ufunc: Any, result: np.ndarray, ids: np.ndarray, rows: np.ndarray) -> None:
    """The same for ids that do not decrease, on several threads: no two of them have a row of the result in common."""
    pieces = min(8, rows.size // _ELEMENTS)
    if pieces < 2:
        fold(ufunc, result, ids, rows, in_groups=True)
        return
    cuts = [0, *np.searchsorted(ids, ids[[len(ids) * i // pieces for i in range(1, pieces)]]).tolist(), len(ids)]
    native.threads.parallel_for(pieces, lambda i: fold(ufunc, result, ids[cuts[i] : cuts[i + 1]], rows[cuts[i] : cuts[i + 1]], in_groups=True))


def can_add_products(dtype: np.dtype, width: int) -> bool:
    return dtype in _TYPES and 0 < width <= 64 // dtype.itemsize and native.available()


def add_products(result: np.ndarray, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, right: np.ndarray) -> None:
    """result[rows[i]] += values[i] * right[columns[i]], one after the other, for rows of at most one vector: a sparse matrix times a narrow one. All arrays are contiguous,
    rows and columns of one type and within their bounds, the others of another."""
    if len(rows):
        width = result.shape[1]
        function = _loop_over_entries(_TYPES[result.dtype], result.itemsize, rows.itemsize, width == 1 and result.dtype.kind == "f")
        function(len(rows), address_of(rows), address_of(columns), address_of(values), address_of(right), address_of(result), width * result.itemsize, width)


_ELEMENTS = 1 << 16
"""Elements that are worth a thread."""


def _begun() -> Assembler:
    """With a mask for the R9 elements of a row beyond whole vectors."""
    a = Assembler()
    a.set_number(RAX, -1)
    a.low_bits(RAX, R9)
    a.mask_from(_TAIL, RAX)
    return a


@cache
def _loop(op: str, type: str, id_size: int) -> Any:
    """f(n, ids, rows, result, bytes of a row, elements of a row beyond whole vectors, rows of the result): how many ids are left, the first being bad."""
    a = _begun()
    a.scalar(asm.MOVE, R10, R8)
    a.with_number(4, R10, -64)  # bytes in whole vectors
    row, vector, tail, end = range(4)
    a.label(row)
    _next_id(a, id_size)
    a.jump(end, asm.ABOVE_EQUAL)
    a.scalar(asm.MULTIPLY, RAX, R8)
    a.scalar(asm.ADD, RAX, RCX)
    a.scalar(asm.SUB, R11, R11)
    a.label(vector)
    a.scalar(asm.CMP, R11, R10)
    a.jump(tail, asm.ABOVE_EQUAL)
    old, new = Mem(RAX, index=R11), Mem(RDX, index=R11)
    a.vector(f"load.{type}", 0, old)
    a.vector(f"load.{type}", 1, new)
    _combine(a, op, type)
    a.vector(f"store.{type}", 2, old)
    a.with_number(0, R11, 64)
    a.jump(vector)
    a.label(tail)
    a.vector(f"load.{type}", 0, old, mask=_TAIL, zero=True)
    a.vector(f"load.{type}", 1, new, mask=_TAIL, zero=True)
    _combine(a, op, type)
    a.vector(f"store.{type}", 2, old, mask=_TAIL)
    a.with_number(0, RSI, id_size)
    a.scalar(asm.ADD, RDX, R8)
    a.with_number(5, RDI, 1)
    a.jump(row, asm.NOT_ZERO)
    a.label(end)
    return _function(a)


@cache
def _loop_over_groups(op: str, type: str, id_size: int) -> Any:
    """The same for rows of at most one vector; the row of the result stays in a register as long as the id does."""
    a = _begun()
    row, same, end, bad = range(4)

    def take(id: int) -> None:
        a.scalar(asm.MOVE, R10, id)
        a.scalar(asm.MULTIPLY, R10, R8)
        a.scalar(asm.ADD, R10, RCX)
        a.vector(f"load.{type}", 0, Mem(R10), mask=_TAIL, zero=True)
        a.scalar(asm.MOVE, R11, id)

    _next_id(a, id_size)
    a.jump(bad, asm.ABOVE_EQUAL)
    take(RAX)
    a.label(row)
    _next_id(a, id_size)
    a.jump(end, asm.ABOVE_EQUAL)
    a.scalar(asm.CMP, RAX, R11)
    a.jump(same, asm.ZERO)
    a.vector(f"store.{type}", 0, Mem(R10), mask=_TAIL)
    take(RAX)
    a.label(same)
    a.vector(f"load.{type}", 1, Mem(RDX), mask=_TAIL, zero=True)
    _combine(a, op, type)
    a.vector(f"load.{type}", 0, 2)
    a.with_number(0, RSI, id_size)
    a.scalar(asm.ADD, RDX, R8)
    a.with_number(5, RDI, 1)
    a.jump(row, asm.NOT_ZERO)
    a.label(end)
    a.vector(f"store.{type}", 0, Mem(R10), mask=_TAIL)
    a.label(bad)
    return _function(a)


@cache
def _loop_over_entries(type: str, size: int, id_size: int, is_single: bool) -> Any:
    """f(n, rows, columns, values, right, result, bytes of a row, its elements); the row of the result stays in a register as long as the entries are its own.
    `is_single`: rows of one number, which a load of a whole vector would wait for if a neighbour has just been stored."""
    a = Assembler()
    a.scalar(asm.MOVE, R11, Mem(RSP, 8))
    a.scalar(asm.MOVE, R10, Mem(RSP, 16))
    a.set_number(RAX, -1)
    a.low_bits(RAX, R10)
    a.mask_from(_TAIL, RAX)
    entry, same = range(2)
    move = asm.MOVE if id_size == 8 else _MOVE_EXTENDED

    def address(reg: int, of: int) -> None:
        a.scalar(asm.MULTIPLY, reg, R11)
        a.scalar(asm.ADD, reg, of)

    def take() -> None:
        a.scalar(asm.MOVE, R10, RAX)
        address(RAX, R9)
        load(0)

    def load(reg: int) -> None:
        if is_single:
            a.vector(f"load_one.{type}", reg, Mem(RAX))
        else:
            a.vector(f"load.{type}", reg, Mem(RAX), mask=_TAIL, zero=True)

    def put() -> None:
        address(R10, R9)
        if is_single:
            a.vector(f"store_one.{type}", 0, Mem(R10))
        else:
            a.vector(f"store.{type}", 0, Mem(R10), mask=_TAIL)

    a.scalar(move, RAX, Mem(RSI))
    take()
    a.label(entry)
    a.scalar(move, RAX, Mem(RSI))
    a.scalar(asm.CMP, RAX, R10)
    a.jump(same, asm.ZERO)
    put()
    take()
    a.label(same)
    a.scalar(move, RAX, Mem(RDX))
    address(RAX, R8)
    load(1)
    form = "_one" if is_single else ""
    a.vector(f"mul{form}.{type}", 1, 1, Mem(RCX, broadcast=not is_single))
    a.vector(f"add{form}.{type}", 0, 0, 1)
    a.with_number(0, RSI, id_size)
    a.with_number(0, RDX, id_size)
    a.with_number(0, RCX, size)
    a.with_number(5, RDI, 1)
    a.jump(entry, asm.NOT_ZERO)
    put()
    return _function(a, pointers=5, numbers=2)


def _next_id(a: Assembler, size: int) -> None:
    """Into RAX, and compared with the number of rows, as unsigned numbers: nothing else would stop the loop from writing anywhere."""
    a.scalar(asm.MOVE if size == 8 else _MOVE_EXTENDED, RAX, Mem(RSI))
    a.scalar(asm.CMP, RAX, Mem(RSP, 8))  # the seventh argument


_MOVE_EXTENDED = 0x63
"""An int32 as an int64."""


def _function(a: Assembler, pointers: int = 3, numbers: int = 3) -> Any:
    """The first argument is a number, then come pointers and more numbers."""
    from penstock.ops.native.executable import into_memory

    a.scalar(asm.MOVE, RAX, RDI)
    a.raw(0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return ctypes.CFUNCTYPE(number, number, *[pointer] * pointers, *[number] * numbers)(into_memory(a.finish()))


def _combine(a: Assembler, op: str, type: str) -> None:
    """zmm2 = zmm0 op zmm1; extremes are NaN where one of them is, as NumPy's (the instruction gives the second operand)."""
    a.vector(f"{op}.{type}", 2, 0, 1)
    if op in ("max", "min") and type[0] == "f":
        a.vector(f"cmp.{type}", _BOTH, 0, 0, immediate=asm.UNORDERED)
        a.vector(f"load.{type}", 2, 0, mask=_BOTH)
