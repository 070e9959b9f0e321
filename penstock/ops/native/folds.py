"""Reductions of the rows of a matrix: as many rows at a time as a vector has lanes, so that their last vectors can be folded into one together.

Each row has a register of its own while its columns are gone over. Then two registers become one with a half of each row's lanes, four one with a quarter,
until the one that is left has a row in each lane: three instructions for a row, where a row alone takes a dozen that wait for each other.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import BFLOAT16, address_of
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, R13, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Assembler, Mem
from penstock.ops.native.frames import begun, ended, share_out
from penstock.ops.native.rowwise import NARROWEST

_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}
_STORED = {np.dtype(np.float16): "f16", BFLOAT16: "bf16"}
_OPS = {np.add: "add", np.multiply: "mul", np.maximum: "max", np.minimum: "min"}
_START = {
    "add": dict.fromkeys(("i32", "i64"), 0), "mul": dict.fromkeys(("f32", "f64", "i32", "i64"), 1),
    "max": {"f32": -np.inf, "f64": -np.inf, "i32": -(1 << 31), "i64": -(1 << 63)}, "min": {"f32": np.inf, "f64": np.inf, "i32": (1 << 31) - 1, "i64": (1 << 63) - 1},
}  # fmt: skip
"""Sums of floats are not among them: NumPy adds pairs, for precision."""
LEAST, FEWEST, LONGEST = 1 << 12, 4, 1 << 12
"""Elements of a matrix from which a loop is worth it, and columns: NumPy goes over long rows quickly enough."""
_MASK = 1
_TABLE, _LOADED, _FOUND, _LOW, _HIGH = 29, 23, 24, 20, 21


def fold(ufunc: Any, rows: np.ndarray, wide: bool = False) -> np.ndarray | None:
    """ufunc.reduce(rows, 1) of a contiguous matrix; None for what NumPy does as well. `wide`: of int32 as int64.

    A NaN makes an extreme NaN. Products of floats are multiplied in the order of `rowwise`."""
    op, columns = _OPS.get(ufunc), rows.shape[1]
    if op is None or rows.size < LEAST or not FEWEST <= columns <= LONGEST or not native.available():
        return None
    stored = type = _TYPES.get(rows.dtype, "")
    if wide:
        type = "i64"
    elif rows.dtype in _STORED and op in ("max", "min"):
        stored, type = _STORED[rows.dtype], "f32"
    lanes = 512 // int(type[1:]) if type else 1
    if type not in _START[op] or len(rows) < lanes or (op == "mul" and type[0] == "f" and columns < NARROWEST):
        return None
    out = np.empty(len(rows), np.float32 if stored != type == "f32" else type.replace("f", "float").replace("i", "int"))
    function, row = _fold(op, stored, type), columns * rows.itemsize
    at, to, blocks = address_of(rows), address_of(out), len(rows) // lanes

    def run(first: int, end: int) -> None:
        function(end - first, at + first * lanes * row, to + first * 64, columns, row, 0)

    share_out(blocks, lanes * columns, run)
    if rest := len(rows) - blocks * lanes:  # with some that are known
        function(1, at + (blocks * lanes - lanes + rest) * row, to + (blocks * lanes - lanes + rest) * out.itemsize, columns, row, 0)
    return out.astype(rows.dtype) if stored != type == "f32" else out


@cache
def _fold(op: str, stored: str, type: str) -> Any:
    """f(blocks, address of their first row, of its result, columns, bytes of a row, nothing)"""
    a, bits = begun(), int(type[1:])
    lanes = 512 // bits
    is_extreme = op in ("max", "min") and type[0] == "f"
    rows = _places(lanes)
    block, inner, tail, ready = range(4)
    a.scalar(asm.MOVE, RBX, R8)
    for to, base in ((RBX, None), (R11, RBX), (R12, R11)):  # three, five and seven rows
        if base is not None:
            a.scalar(asm.MOVE, to, base)
        for _ in range(2):
            a.scalar(asm.ADD, to, R8)
    a.scalar(asm.MOVE, RBP, R12)
    a.scalar(asm.ADD, RBP, R8)
    if is_extreme:
        a.vector(f"broadcast.i{bits}", _TABLE, a.constant(0x22, f"i{bits}")._replace(broadcast=False))
    a.label(block)
    a.scalar(asm.MOVE, R10, RSI)
    a.scalar(asm.MOVE, R9, RSI)
    a.scalar(asm.ADD, R9, RBP)
    a.scalar(asm.MOVE, R13, RCX)
    for register in range(lanes):
        a.vector(f"broadcast.{type}", register, a.constant(_START[op][type], type)._replace(broadcast=False))
    a.label(inner)
    a.with_number(7, R13, lanes)
    a.jump(tail, asm.BELOW)
    for register in range(lanes):
        _take(a, op, stored, type, register, rows[register], 0)
    for register in (R9, R10):
        a.with_number(0, register, lanes * _SIZES[stored])
    a.with_number(5, R13, lanes)
    a.jump(inner)
    a.label(tail)
    a.with_number(7, R13, 0)
    a.jump(ready, asm.ZERO)
    a.set_number(RAX, -1)
    a.low_bits(RAX, R13)
    a.mask_from(_MASK, RAX)
    for register in range(lanes):
        _take(a, op, stored, type, register, rows[register], _MASK)
    a.label(ready)
    _join(a, op, type, lanes)
    a.vector(f"store.{type}", 0, Mem(RDX))
    a.with_number(0, RDX, 64)
    for _ in range(lanes // 8):
        a.scalar(asm.ADD, RSI, RBP)
    a.with_number(5, RDI, 1)
    a.jump(block, asm.NOT_ZERO)
    return ended(a)


_SIZES = {"f16": 2, "bf16": 2, "f32": 4, "i32": 4, "f64": 8, "i64": 8}


def _places(lanes: int) -> list[Mem]:
    """Where the row of each register is: the order that joining brings into order."""
    steps = [Mem(R10), *(Mem(R10, index=i, scale=s) for i, s in ((R8, 1), (R8, 2), (RBX, 1), (R8, 4), (R11, 1), (RBX, 2), (R12, 1)))]
    rows = [*steps, *(m._replace(base=R9) for m in steps)]
    each = lanes // 4
    return [rows[each * (i % 4) + i // 4] for i in range(lanes)]


def _take(a: Assembler, op: str, stored: str, type: str, register: int, memory: Mem, mask: int) -> None:
    """register = register op what lies there."""
    value: int | Mem = memory
    if stored != type:
        value = _LOADED
        name = {"f16": "f16_to_f32", "bf16": "u16_to_i32", "i32": "i32_to_i64"}[stored]
        a.vector(name, value, memory, mask=mask, zero=bool(mask))
        if stored == "bf16":
            a.vector("shl.i32", value, value, immediate=16)
    if op in ("max", "min") and type[0] == "f":
        _extreme(a, op, type, _FOUND, register, value, mask)
        a.vector(f"load.{type}", register, _FOUND, mask=mask)
    else:
        a.vector(f"{op}.{type}", register, register, value, mask=mask)


def _extreme(a: Assembler, op: str, type: str, to: int, first: int, second: int | Mem, mask: int = 0) -> None:
    """The instruction gives its second operand where one is NaN."""
    a.vector(f"{op}.{type}", to, first, second, mask=mask)
    a.vector(f"fixup.{type}", to, first, _TABLE, immediate=0)


def _join(a: Assembler, op: str, type: str, lanes: int) -> None:
    """All registers into the first one: halves, quarters and so on of two rows side by side."""
    double = "f64" if lanes == 16 else type.replace("i", "f")
    levels: list[tuple[tuple[str, int | None], tuple[str, int | None]]] = [(("quarters", 0x44), ("quarters", 0xEE)), (("quarters", 0x88), ("quarters", 0xDD))]
    levels.append(((f"unpack_low.{double}", None), (f"unpack_high.{double}", None)))
    if lanes == 16:
        levels.append((("shuffle.f32", 0x88), ("shuffle.f32", 0xDD)))
    count = lanes
    for low, high in levels:
        count //= 2
        for i in range(count):
            for to, (name, which) in ((_LOW, low), (_HIGH, high)):
                a.vector(name, to, 2 * i, 2 * i + 1, immediate=which)
            if op in ("max", "min") and type[0] == "f":
                _extreme(a, op, type, i, _LOW, _HIGH)
            else:
                a.vector(f"{op}.{type}", i, _LOW, _HIGH)
