"""Products of integer matrices, modulo 2**32 or 2**64, for which BLAS has nothing.

Four rows of the first matrix meet four vectors of columns of the second at a time; sums stay in registers. Both matrices are copied first into the order
in which the loop reads them, padded with zeros.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI, Assembler, Mem

_ROWS, _VECTORS = 4, 4
_PANEL_BYTES = 64 * _VECTORS


def can_multiply(dtype: np.dtype) -> bool:
    return dtype.kind in "iu" and dtype.itemsize in (4, 8) and native.available()


def multiply(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x @ y of two matrices of one integer type of 32 or 64 bits."""
    (rows, inner), columns, size = x.shape, y.shape[1], x.itemsize
    width = _PANEL_BYTES // size
    blocks, panels = -(-rows // _ROWS), -(-columns // width)
    left = np.zeros((blocks, _ROWS, inner), x.dtype)
    left.reshape(-1, inner)[:rows] = x
    left = np.ascontiguousarray(left.transpose(0, 2, 1))
    right = np.zeros((inner, panels * width), x.dtype)
    right[:, :columns] = y
    right = np.ascontiguousarray(right.reshape(inner, panels, width).transpose(1, 0, 2))
    result = np.empty((blocks * _ROWS, panels * width), x.dtype)
    function = _loop("i32" if size == 4 else "i64")
    # Pieces are panels, and for few of them halves: as many as threads share well.
    parts = 1 if panels >= 8 or blocks < 8 or rows * inner * columns < 1 << 20 else 2
    share = -(-blocks // parts)

    def work(i: int) -> None:
        panel, part = divmod(i, parts)
        first = part * share
        target = result.ctypes.data + first * _ROWS * result.strides[0] + panel * _PANEL_BYTES
        function(
            min(share, blocks - first), left.ctypes.data + first * left.strides[0], right.ctypes.data + panel * right.strides[0],
            target, inner, result.strides[0],
        )  # fmt: skip

    if rows * inner * columns < 1 << 18:
        native.threads.serial(panels * parts, work)
    else:
        native.threads.parallel_for(panels * parts, work)
    return np.ascontiguousarray(result[:rows, :columns])


@cache
def _loop(type: str) -> Any:
    """f(blocks of rows, left, panel of right, result, inner size, bytes of a row of the result)"""
    a = Assembler()
    size = int(type[1:]) // 8
    block, step = range(2)

    def total(i: int, j: int) -> int:
        return i * _VECTORS + j

    a.label(block)
    for i in range(_ROWS * _VECTORS):
        a.vector("xor.i64", i, i, i)
    a.scalar(asm.MOVE, RAX, RDX)
    a.scalar(asm.MOVE, R10, R8)
    a.label(step)
    for j in range(_VECTORS):
        a.vector(f"load.{type}", 16 + j, Mem(RAX, 64 * j))
    for i in range(_ROWS):
        a.vector(f"broadcast.{type}", 20 + i, Mem(RSI, i * size))
        for j in range(_VECTORS):
            product = 24 + (total(i, j) & 7)
            a.vector(f"mul.{type}", product, 16 + j, 20 + i)
            a.vector(f"add.{type}", total(i, j), total(i, j), product)
    a.with_number(0, RSI, _ROWS * size)
    a.with_number(0, RAX, _PANEL_BYTES)
    a.with_number(5, R10, 1)
    a.jump(step, asm.NOT_ZERO)
    a.scalar(asm.MOVE, R11, RCX)
    for i in range(_ROWS):
        for j in range(_VECTORS):
            a.vector(f"store.{type}", total(i, j), Mem(R11, 64 * j))
        a.scalar(asm.ADD, R11, R9)
    a.scalar(asm.MOVE, RCX, R11)
    a.with_number(5, RDI, 1)
    a.jump(block, asm.NOT_ZERO)
    a.raw(0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret
    from penstock.ops.native.executable import into_memory

    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return ctypes.CFUNCTYPE(None, number, pointer, pointer, pointer, number, number)(into_memory(a.finish()))
