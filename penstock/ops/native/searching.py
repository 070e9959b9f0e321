"""Places of numbers in sorted rows, by halving, without jumps that depend on the numbers: those are guessed wrong half of the time."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import address_of
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, RAX, RCX, RDI, RDX, RSI, Assembler, Mem
from penstock.ops.native.frames import finished, share_out

_IF_GREATER, _IF_NOT_LESS = 0x14F, 0x14D  # moves
_FEW = 512
"""Numbers up to which NumPy is as quick."""
_MOST_KEYS = 8
"""Keys for each number that is sought, from which on it costs more to bring them into shape."""
MANY_IN_A_ROW = 16
"""Numbers that are sought in each row, which are worth a call."""
_WORK = 8
"""Numbers that are added in the time that one is found in."""


def places(rows: np.ndarray, values: np.ndarray, side: str) -> np.ndarray | None:
    """np.searchsorted of each row of `values` in that of `rows`, as int64; None if NumPy has to do it, as for NaNs."""
    if values.size < _FEW or not rows.size or rows.dtype != values.dtype or not native.available():
        return None
    if rows.size > values.size * _MOST_KEYS and not (values.shape[1] >= MANY_IN_A_ROW and rows.dtype == np.int64 and rows.flags.c_contiguous):
        return None
    keys, sought = _ordered(rows), _ordered(values)
    if keys is None or sought is None:
        return None
    result = np.empty(values.shape, np.int64)
    n, count = keys.shape[1], sought.shape[1]
    halves = []
    while n > 1:
        halves.append(n // 2 * 8)
        n -= n // 2
    steps, function = np.array(halves, np.int64), _search(len(halves), side == "left")
    sought_at, keys_at, result_at, steps_at = map(address_of, (sought, keys, result, steps))

    def run(start: int, end: int) -> None:
        """Numbers from `start` to `end`, counted through all rows."""
        while start < end:
            row, column = divmod(start, count)
            some = min(end - start, count - column)
            function(some, sought_at + start * 8, keys_at + row * keys.strides[0], result_at + start * 8, steps_at, 0)
            start += some

    share_out(values.size, _WORK, run)
    result >>= 3
    return result


def _ordered(x: np.ndarray) -> np.ndarray | None:
    """Integers in the same order as the numbers, one row behind the other in memory."""
    if x.dtype == np.float32 or not x.flags.c_contiguous:
        x = x.astype(np.float64 if x.dtype == np.float32 else x.dtype, order="C")
    if x.dtype == np.float64:
        if np.isnan(x).any():
            return None
        bits = (x + 0.0).view(np.int64)  # no -0, which is equal to 0
        return bits ^ (bits >> 63 & (1 << 63) - 1)
    if x.dtype.kind != "i" and x.dtype not in (np.uint8, np.uint16, np.uint32):
        return None
    return np.ascontiguousarray(x, np.int64)


@cache
def _search(steps: int, left: bool) -> Any:
    """f(n, numbers, the sorted row, byte offsets to places, sizes of halves in bytes, -), for a row that is halved in so many steps."""
    a = Assembler()
    number = 0
    move = _IF_GREATER if left else _IF_NOT_LESS  # the place goes behind those that are smaller, or not greater
    a.label(number)
    a.scalar(asm.MOVE, R9, Mem(RSI))
    a.scalar(asm.MOVE, R10, RDX)
    for i in range(steps):
        a.scalar(asm.MOVE, RAX, Mem(R8, 8 * i))
        a.scalar(asm.ADD, RAX, R10)
        a.scalar(asm.CMP, R9, Mem(RAX, -8))
        a.scalar(move, R10, RAX)
    a.scalar(asm.MOVE, RAX, R10)
    a.with_number(0, RAX, 8)
    a.scalar(asm.CMP, R9, Mem(R10))
    a.scalar(move, R10, RAX)
    a.scalar(asm.SUB, R10, RDX)
    a.scalar(asm.MOVE_TO_MEMORY, R10, Mem(RCX))
    for pointer in (RSI, RCX):
        a.with_number(0, pointer, 8)
    a.with_number(5, RDI, 1)
    a.jump(number, asm.NOT_ZERO)
    return finished(a)
