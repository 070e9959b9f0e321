"""Cholesky factors of stacks of small matrices: one matrix in each lane, as in `rotations`.

The code for a size is one straight run over a block, column by column; a column's rows do not wait for each other.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import address_of
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import RAX, RDI, RSI, Assembler, Mem
from penstock.ops.native.rotations import TYPES, back, put

_LARGEST = 16
"""Rows up to which a column fits into the registers; LAPACK is quick enough beyond."""
_FEWEST = 64
"""Matrices for which a loop is worth it."""
_WORK = 1 << 15
"""Blocks times the third power of a matrix's rows that are worth a thread."""
_POSITIVE, _THESE = 1, 2  # k registers: lanes in which all was positive so far, and is at this place


def can_factor(x: np.ndarray) -> bool:
    """Whether this is a stack of matrices of the right size."""
    return x.dtype in TYPES and 1 < x.shape[-1] <= _LARGEST and x.size // x.shape[-1] ** 2 >= _FEWEST and native.available()


def factor(x: np.ndarray) -> np.ndarray | None:
    """The lower triangular factor of each symmetric matrix, of which the lower triangle is read; None if one of them is not positive definite, or has a NaN there."""
    n, lanes = x.shape[-1], 64 // x.itemsize
    flat = x.reshape(-1, n * n)
    count = len(flat)
    blocks = np.empty((-(-count // lanes), n * n, lanes), x.dtype)
    put(flat, blocks)
    if count % lanes:
        blocks[-1, :, count % lanes :] = blocks[-1, :, :1]  # nothing that could fail by itself
    function, pieces = _loop(TYPES[x.dtype], n), max(1, min(8, len(blocks), len(blocks) * n**3 // _WORK))
    failed = [0] * pieces

    def work(i: int) -> None:
        first, end = len(blocks) * i // pieces, len(blocks) * (i + 1) // pieces
        failed[i] = function(end - first, address_of(blocks) + first * blocks.strides[0])

    native.threads.parallel_for(pieces, work)
    return None if any(failed) else np.ascontiguousarray(back(blocks, count)).reshape(x.shape)


@cache
def _loop(type: str, n: int) -> Any:
    """f(blocks, their address): whether a matrix is not positive definite; what follows its block is left as it was then."""
    a = Assembler()
    zero, one, above, inverse = 31, 30, 29, 28
    block, failed = range(2)
    a.vector("xor.i32", zero, zero, zero)
    a.vector(f"broadcast.{type}", one, a.constant(1.0, type)._replace(broadcast=False))
    a.label(block)

    def entry(i: int, j: int) -> Mem:
        return Mem(RSI, 64 * (i * n + j))

    for j in range(n):
        for i in range(j, n):
            a.vector(f"load.{type}", i, entry(i, j))
        for k in range(j):
            a.vector(f"load.{type}", above, entry(j, k))
            for i in range(j, n):
                a.vector(f"nmadd231.{type}", i, above, entry(i, k))
        a.vector(f"cmp.{type}", _THESE if j else _POSITIVE, zero, j, immediate=asm.LESS)
        if j:
            a.mask("and", _POSITIVE, _POSITIVE, _THESE)
        a.vector(f"sqrt.{type}", j, j)
        a.vector(f"div.{type}", inverse, one, j)
        a.vector(f"store.{type}", j, entry(j, j))
        for i in range(j + 1, n):
            a.vector(f"mul.{type}", i, i, inverse)
            a.vector(f"store.{type}", i, entry(i, j))
        for i in range(j):
            a.vector(f"store.{type}", zero, entry(i, j))
    a.set_number(RAX, (1 << 512 // int(type[1:])) - 1)
    a.mask_from(_THESE, RAX)
    a.mask("xor", _POSITIVE, _POSITIVE, _THESE)
    a.mask("test", _POSITIVE, _POSITIVE)
    a.jump(failed, asm.NOT_ZERO)
    a.with_number(0, RSI, 64 * n * n)
    a.with_number(5, RDI, 1)
    a.jump(block, asm.NOT_ZERO)
    a.set_number(RAX, 0)
    a.label(failed)  # where RAX has the lanes' bits
    a.raw(0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret
    from penstock.ops.native.executable import into_memory

    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(into_memory(a.finish()))
