"""Fisher and Yates' shuffle: a chain of exchanges, each of which needs the one before."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, RAX, RDI, RDX, RSI, Assembler, Mem


def exchange(order: np.ndarray, steps: np.ndarray) -> None:
    """order[i], order[i + steps[i]] = order[i + steps[i]], order[i] for i = 0, 1, ..., in place (int32, int64). There must be machine code."""
    steps = np.ascontiguousarray(steps, np.int64)
    if steps.size:
        if steps.min() < 0 or int((steps + np.arange(steps.size)).max()) >= order.size:
            raise IndexError("an exchange beyond the end")
        _loop(order.itemsize)(steps.size, order.ctypes.data, steps.ctypes.data)


@cache
def _loop(size: int) -> Any:
    """f(n, order, steps) for elements of 4 or 8 bytes."""
    a = Assembler()
    a.label(0)
    a.scalar(asm.MOVE, RAX, Mem(RDX))
    here, there = Mem(RSI), Mem(RSI, index=RAX, scale=size)
    a.scalar(asm.MOVE, R8, here, wide=size == 8)
    a.scalar(asm.MOVE, R9, there, wide=size == 8)
    a.scalar(asm.MOVE_TO_MEMORY, R8, there, wide=size == 8)
    a.scalar(asm.MOVE_TO_MEMORY, R9, here, wide=size == 8)
    a.with_number(0, RSI, size)
    a.with_number(0, RDX, 8)
    a.with_number(5, RDI, 1)
    a.jump(0, asm.NOT_ZERO)
    a.raw(0xC3)  # ret
    from penstock.ops.native.executable import function_at, into_memory

    return function_at(into_memory(a.finish()), 2)
