"""Rows whose ids do not decrease, combined group by group in one pass: sums, products, extremes and means of segments, of all rows or of picked ones.

A group's sums stay in registers, ids and picks are checked as they come, and rows of the result that no id names are filled on the way.
"""

from __future__ import annotations

import ctypes
import itertools
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.kernels.numeric import lowest
from penstock.ops.native import address_of
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, R13, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Assembler, Mem
from penstock.ops.native.frames import begun, code_of

_OPS = {np.add: "add", np.multiply: "mul", np.maximum: "max", np.minimum: "min"}
_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}
_VECTOR = 64
_BLOCK = 8
"""Vectors of a row that are taken together; of a longer one, a group's rows are gone over once for each block."""
_LONG = 1 << 21
"""Elements from which on two threads are quicker than one."""
_GAPS = 8
"""Rows of the result for each id, at most. Where there are more, nearly all is gaps, and memory that comes zeroed is quicker."""
_TAIL, _NAN = 1, 2  # k registers
_OTHER, _SCALE, _FILL = 28, 29, 30  # vectors

QUOTIENT, SHARE, ROOT = "quotient", "share", "root"
"""What becomes of a group's sum: divided by the number of rows; times that number's reciprocal, or that of its root, rounded to the type of the rows."""


def identity(ufunc: Any, dtype: np.dtype) -> Any:
    """What leaves every number as it is."""
    if ufunc in (np.add, np.multiply):
        return dtype.type(ufunc.identity)
    if dtype.kind == "f":
        return dtype.type(-np.inf if ufunc is np.maximum else np.inf)
    return lowest(dtype) if ufunc is np.maximum else np.iinfo(dtype).max


def reduce_groups(ufunc: Any, data: np.ndarray, ids: np.ndarray, count: int, gap: int, picks: np.ndarray | None = None, scale: str = "") -> np.ndarray | None:
    """result[i] = the rows data[picks] whose id is i, combined in their order; `gap`, 0 or 1, where there is none. None if that cannot be done here: ids
    that decrease or are not in [0, count), picks that are no rows, rows of one number, or of a type or a machine without such loops."""
    n = len(ids)
    if ufunc not in _OPS or data.dtype not in _TYPES or data.ndim < 2 or not n or count > _GAPS * n or (scale and data.dtype.kind != "f") or not native.available():
        return None
    if len(data if picks is None else picks) != n or any(x is not None and (x.ndim != 1 or x.dtype.kind != "i" or x.itemsize < 4) for x in (ids, picks)):
        return None
    width = data.size // len(data) if len(data) else 0
    if width < 2:
        return None
    data, ids = np.ascontiguousarray(data), np.ascontiguousarray(ids)
    if picks is not None:
        picks = np.ascontiguousarray(picks)
    size = data.itemsize
    lanes = _VECTOR // size
    blocks, rest = divmod(width, _BLOCK * lanes)
    function = _loop(_OPS[ufunc], _TYPES[data.dtype], ids.itemsize, 0 if picks is None else picks.itemsize, blocks > 0, -(-rest // lanes), rest % lanes > 0, gap, scale)
    out = np.empty((count, *data.shape[1:]), data.dtype)
    row = width * size
    taken, step = (data, row) if picks is None else (picks, picks.itemsize)

    def run(start: int, end: int, first: int, after: int) -> int:
        """The ids from `start` to `end`, which are those of the rows of the result from `first` to `after`."""
        return function((ctypes.c_int64 * _FIELDS)(
            end - start, address_of(ids) + start * ids.itemsize, address_of(taken) + start * step, address_of(out) + first * row, row, first, after,
            address_of(data), len(data), 0, rest % lanes, blocks * _BLOCK * _VECTOR))  # fmt: skip

    pieces = min(8, n * width // (_LONG // 2))
    if pieces < 2:
        return None if run(0, n, 0, count) else out
    cuts = [0, *np.searchsorted(ids, ids[[n * i // pieces for i in range(1, pieces)]]).tolist(), n]
    if sorted(cuts) != cuts or cuts[-2] == n:  # they are not in order
        return None
    firsts = [0, *ids[cuts[1:-1]].tolist(), count]
    if sorted(firsts) != firsts or firsts[1] < 0 or firsts[-2] > count:
        return None
    failed = []

    def work(i: int) -> None:
        if run(cuts[i], cuts[i + 1], firsts[i], firsts[i + 1]):
            failed.append(i)

    native.threads.parallel_for(pieces, work)
    return None if failed else out


_FIELDS = 12
_LEFT, _IDS, _TAKEN, _RESULT, _ROW, _NEXT, _COUNT, _DATA, _ROWS, _SIZE, _REST, _BLOCKS = (Mem(RDI, 8 * i) for i in range(_FIELDS))
_MOVE_EXTENDED = 0x63
"""An int32 as an int64."""


@cache
def _loop(op: str, type: str, id_size: int, pick_size: int, has_blocks: bool, vectors: int, has_tail: bool, gap: int, scale: str) -> Any:
    """f(table of the fields above): 1 if an id or a pick is bad. `vectors`: those of a row beyond whole blocks, the last of which may be a part."""
    a = begun()
    labels = itertools.count()
    ids, taken, result, row, next_row, left = RSI, RDX, RCX, R8, R9, RBX
    group_size, column = R10, R12
    group, finish, same, all_same, bad, end = (next(labels) for _ in range(6))
    for register, field in ((ids, _IDS), (taken, _TAKEN), (result, _RESULT), (row, _ROW), (next_row, _NEXT), (left, _LEFT), (R10, _REST)):
        a.scalar(asm.MOVE, register, field)
    a.set_number(RAX, -1)
    a.low_bits(RAX, R10)
    a.mask_from(_TAIL, RAX)
    one = a.constant(gap, type)._replace(broadcast=False)
    if gap:
        a.vector(f"broadcast.{type}", _FILL, one)
    else:
        a.vector("xor.i32", _FILL, _FILL, _FILL)

    def masked(v: int, last: int, zero: bool = False) -> dict[str, Any]:
        return {"mask": _TAIL, "zero": zero} if has_tail and v == last else {}

    def over_blocks(body: Any) -> None:
        """body(vectors, label, the last one's number if it may be a part) for each block of a row; `column` is its place in bytes."""
        a.set_number(column, 0)
        if has_blocks:
            block = next(labels)
            a.label(block)
            body(_BLOCK, -1)
            a.with_number(0, column, _BLOCK * _VECTOR)
            a.scalar(asm.CMP, column, _BLOCKS)
            a.jump(block, asm.BELOW)
        if vectors:
            body(vectors, vectors - 1)

    def fill_to_rax() -> None:
        """The rows of the result up to that one."""
        fill, filled = next(labels), next(labels)
        a.label(fill)
        a.scalar(asm.CMP, next_row, RAX)
        a.jump(filled, asm.ZERO)

        def body(count: int, last: int) -> None:
            for v in range(count):
                a.vector(f"store.{type}", _FILL, Mem(result, v * _VECTOR, index=column), **masked(v, last))

        over_blocks(body)
        a.scalar(asm.ADD, result, row)
        a.with_number(0, next_row, 1)
        a.jump(fill)
        a.label(filled)

    def combine(count: int, last: int) -> None:
        for v in range(count):
            _begin(a, op, type, v)
        a.scalar(asm.MOVE, RBP, group_size)
        a.scalar(asm.MOVE, R13, taken)
        a.scalar(asm.MOVE, R11, _DATA if pick_size else taken)
        a.scalar(asm.ADD, R11, column)
        inner = next(labels)
        a.label(inner)
        if pick_size:
            a.scalar(asm.MOVE if pick_size == 8 else _MOVE_EXTENDED, RAX, Mem(R13))
            a.scalar(asm.CMP, RAX, _ROWS)
            a.jump(bad, asm.ABOVE_EQUAL)
            a.scalar(asm.MULTIPLY, RAX, row)
            a.with_number(0, R13, pick_size)
        for v in range(count):
            _combine(a, op, type, v, Mem(R11, v * _VECTOR, index=RAX) if pick_size else Mem(R11, v * _VECTOR), masked(v, last, True))
        if not pick_size:
            a.scalar(asm.ADD, R11, row)
        a.with_number(5, RBP, 1)
        a.jump(inner, asm.NOT_ZERO)
        for v in range(count):
            if scale:
                a.vector(f"{'div' if scale == QUOTIENT else 'mul'}.{type}", v, v, _SCALE)
            a.vector(f"store.{type}", v, Mem(result, v * _VECTOR, index=column), **masked(v, last))

    def load_id(register: int, memory: Mem) -> None:
        a.scalar(asm.MOVE if id_size == 8 else _MOVE_EXTENDED, register, memory)

    a.label(group)
    a.with_number(7, left, 0)
    a.jump(finish, asm.ZERO)
    load_id(RAX, Mem(ids))
    a.scalar(asm.CMP, RAX, _COUNT)
    a.jump(bad, asm.ABOVE_EQUAL)
    a.scalar(asm.CMP, RAX, next_row)
    a.jump(bad, asm.BELOW)
    fill_to_rax()
    a.set_number(group_size, 1)
    a.label(same)
    a.scalar(asm.CMP, group_size, left)
    a.jump(all_same, asm.ZERO)
    load_id(R11, Mem(ids, index=group_size, scale=id_size))
    a.scalar(asm.CMP, R11, RAX)
    a.jump(all_same, asm.NOT_ZERO)
    a.with_number(0, group_size, 1)
    a.jump(same)
    a.label(all_same)
    if scale:
        a.scalar(asm.MOVE_TO_MEMORY, group_size, _SIZE)
        _find_scale(a, type, scale)
    over_blocks(combine)
    a.scalar(asm.SUB, left, group_size)
    for pointer, step in ((ids, id_size), (taken, pick_size)):
        if step:
            a.set_number(RAX, step)
            a.scalar(asm.MULTIPLY, RAX, group_size)
            a.scalar(asm.ADD, pointer, RAX)
    if not pick_size:
        a.scalar(asm.MULTIPLY, group_size, row)
        a.scalar(asm.ADD, taken, group_size)
    a.scalar(asm.ADD, result, row)
    a.with_number(0, next_row, 1)
    a.jump(group)
    a.label(finish)
    a.scalar(asm.MOVE, RAX, _COUNT)
    fill_to_rax()
    a.set_number(RAX, 0)
    a.jump(end)
    a.label(bad)
    a.set_number(RAX, 1)
    a.label(end)
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(code_of(a))


def _begin(a: Assembler, op: str, type: str, v: int) -> None:
    if op == "add":
        a.vector("xor.i32", v, v, v)
    else:
        ufunc = next(u for u, name in _OPS.items() if name == op)
        dtype = next(d for d, name in _TYPES.items() if name == type)
        a.vector(f"broadcast.{type}", v, a.constant(identity(ufunc, dtype), type)._replace(broadcast=False))


def _combine(a: Assembler, op: str, type: str, v: int, memory: Mem, masked: dict[str, Any]) -> None:
    """v = v op what lies there; extremes are NaN where one of them is, as NumPy's (the instruction gives the second operand)."""
    if op in ("max", "min") and type[0] == "f":
        if masked:
            a.vector(f"load.{type}", _OTHER, memory, **masked)
        a.vector(f"cmp.{type}", _NAN, v, v, immediate=asm.ORDERED)
        a.vector(f"{op}.{type}", v, v, _OTHER if masked else memory, mask=_NAN)
    elif masked:
        a.vector(f"load.{type}", _OTHER, memory, **masked)
        a.vector(f"{op}.{type}", v, v, _OTHER)
    else:
        a.vector(f"{op}.{type}", v, v, memory)


def _find_scale(a: Assembler, type: str, scale: str) -> None:
    """What a group's sum is divided by or multiplied with, in all lanes, from the number of its rows."""
    a.vector("broadcast.i64", _SCALE, _SIZE)
    a.vector("i64_to_f64", _SCALE, _SCALE)
    if scale != QUOTIENT:
        if scale == ROOT:
            a.vector("sqrt.f64", _SCALE, _SCALE)
        a.vector("broadcast.f64", _OTHER, a.constant(1.0, "f64")._replace(broadcast=False))
        a.vector("div.f64", _SCALE, _OTHER, _SCALE)
    if type == "f32":
        a.vector("f64_to_f32", _SCALE, _SCALE)
        a.vector("broadcast.f32", _SCALE, _SCALE)
