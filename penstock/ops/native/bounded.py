"""Normal numbers within bounds, row after row: each row takes of one stream of normals those that lie within its own bounds, until it is full.

A row begins with a block of the stream (16 bytes), the one behind the last that the row before it has looked at.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import address_of
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import QUARTER, R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI, Assembler, Mem

BLOCK = 16
_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
_GOOD = 1


def can_take(dtype: np.dtype) -> bool:
    return dtype in _TYPES and native.available()


def take(stream: np.ndarray, bounds: np.ndarray, out: np.ndarray) -> tuple[int, int]:
    """Fills the rows of `out` with z * bounds[i, 2] + bounds[i, 3] for those z of the stream that are within bounds[i, 0] and bounds[i, 1].

    How many rows are full, and how many blocks they took. The last row needs room behind it for a block. All arrays are contiguous and of one type.
    """
    rows, width = out.shape
    record = np.array([width * out.itemsize, 0])
    left = _take(_TYPES[out.dtype])(rows, address_of(bounds), address_of(stream), address_of(stream) + stream.nbytes // BLOCK * BLOCK, address_of(out), address_of(record))
    return rows - left, (int(record[1]) - address_of(stream)) // BLOCK


@cache
def _take(type: str) -> Any:
    """f(rows, bounds, stream, its end, results, (bytes of a row, where the stream was when the last full row ended)): how many rows are left."""
    from penstock.ops.native.executable import into_memory

    a = Assembler()
    row, block, out = range(3)
    low, high, deviation, mean, z = 1, 2, 3, 4, 0
    size = int(type[1:]) // 8
    a.raw(0x53)  # push rbx
    rbx = asm.RBX
    a.label(row)
    for i, register in enumerate((low, high, deviation, mean)):
        a.vector(f"broadcast.{type}", register, Mem(RSI, size * i))
    a.scalar(asm.MOVE, R10, RDX)
    a.scalar(asm.MOVE, R11, R8)
    a.scalar(asm.ADD, R11, Mem(R9))
    a.scalar(asm.MOVE, rbx, R8)
    a.label(block)
    a.scalar(asm.CMP, RDX, RCX)
    a.jump(out, asm.ABOVE_EQUAL)
    a.vector(f"load.{type}", z, Mem(RDX), length=QUARTER)
    a.with_number(0, RDX, BLOCK)
    a.vector(f"cmp.{type}", _GOOD, low, z, immediate=asm.LESS_EQUAL, length=QUARTER)
    a.vector(f"cmp.{type}", _GOOD, z, high, immediate=asm.LESS_EQUAL, length=QUARTER, mask=_GOOD)
    a.vector(f"mul.{type}", z, z, deviation, length=QUARTER)
    a.vector(f"add.{type}", z, z, mean, length=QUARTER)
    a.vector(f"compress.{type}", z, Mem(rbx), mask=_GOOD, length=QUARTER)
    a.raw(0xC5, 0xF8, 0x93, 0xC0 | RAX << 3 | _GOOD)  # kmovw eax, k1
    a.raw(0xF3, 0x0F, 0xB8, 0xC0)  # popcnt eax, eax
    a.raw(0xC1, 0xE0, size.bit_length() - 1)  # shl eax, 2 or 3
    a.scalar(asm.ADD, rbx, RAX)
    a.scalar(asm.CMP, rbx, R11)
    a.jump(block, asm.BELOW)
    a.scalar(asm.MOVE, R8, R11)
    a.scalar(asm.MOVE, R10, RDX)
    a.with_number(0, RSI, 4 * size)
    a.with_number(5, RDI, 1)
    a.jump(row, asm.NOT_ZERO)
    a.label(out)
    a.scalar(asm.MOVE_TO_MEMORY, R10, Mem(R9, 8))
    a.scalar(asm.MOVE, RAX, RDI)
    a.raw(0x5B, 0xC5, 0xF8, 0x77, 0xC3)  # pop rbx; vzeroupper; ret
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return ctypes.CFUNCTYPE(number, number, pointer, pointer, pointer, pointer, pointer)(into_memory(a.finish()))
