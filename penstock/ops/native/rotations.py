"""Singular values by Jacobi's rotations, for stacks of small matrices: one matrix in each lane.

A block is as many matrices as a vector has lanes: (entries, lanes). Rotations that make two columns perpendicular go on, pair after pair, until no pair of any lane
was worth one. Matrices are scaled by powers of two beforehand, so that nothing overflows.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import address_of
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import (
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    RAX,
    RBP,
    RBX,
    RCX,
    RDI,
    RDX,
    RSI,
    Assembler,
    Mem,
)

TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
_PUSHED = (RBX, RBP, R12, R13, R14, R15)
_CHOSEN = 1
_SWEEPS = 30
_NEAR = {"f32": 1e-6, "f64": 1e-13}
"""A sweep that met nothing larger was the last one: what it leaves is about the square of that."""
_LARGEST = 16
"""Rows up to which LAPACK is no quicker; beyond, blocks do not fit into the first cache."""
_SHORT = 64
WORK = 1 << 12
"""Elements times rows that are worth a thread: half a millisecond."""


def can_rotate(x: np.ndarray) -> bool:
    """Whether this is a stack of matrices of the right size, half a block of them at least, and all of them finite."""
    count, size = x.size // (x.shape[-1] * x.shape[-2] or 1), max(x.shape[-2:])
    return x.dtype in TYPES and count >= 32 // x.itemsize and 1 < size <= _LARGEST and min(x.shape[-2:]) > 0 and native.available() and bool(np.isfinite(x).all())


def svd(x: np.ndarray, vectors: bool = True) -> tuple[np.ndarray | None, np.ndarray, np.ndarray | None] | None:
    """(u, s, vh) with as many columns and rows as there are singular values, which fall; None if a matrix has too small ones, or, with vectors, for `u` to be found that way."""
    m, n = x.shape[-2:]
    if m < n:
        found = svd(np.swapaxes(x, -1, -2), vectors)
        if found is None or not vectors:
            return found
        u, s, vh = found
        return np.swapaxes(vh, -1, -2), s, np.swapaxes(u, -1, -2)  # type: ignore[arg-type]
    columns = np.swapaxes(x, -1, -2).reshape(-1, n * m)  # one behind the other
    flat, exponents = scaled(columns)
    lanes = 64 // x.itemsize
    blocks = np.zeros((-(-len(flat) // lanes), n * m + n * n, lanes), x.dtype)
    put(flat, blocks[:, : n * m])
    if vectors:
        blocks[:, n * m :] = np.eye(n, dtype=x.dtype).reshape(-1, 1)
    _run(_one_sided(TYPES[x.dtype], vectors), blocks, n, m)
    rows = back(blocks[:, : n * m], len(flat)).reshape(-1, n, m)
    values = np.sqrt(np.einsum("cij,cij->ci", rows, rows))
    order = np.argsort(-values, 1)
    sorted_values = np.take_along_axis(values, order, 1)
    s = np.ldexp(sorted_values, exponents).reshape(*x.shape[:-2], n)
    info = np.finfo(x.dtype)
    if not vectors:
        return None if (sorted_values[:, -1] <= np.sqrt(info.tiny)).any() else (None, s, None)  # squares of smaller ones are lost
    if (sorted_values[:, -1] <= sorted_values[:, 0] * (n * info.eps)).any():
        return None
    at = (order + np.arange(len(flat))[:, None] * n).ravel()
    u = rows.reshape(-1, m)[at] / sorted_values.reshape(-1, 1)
    v = back(blocks[:, n * m :], len(flat)).reshape(-1, n)[at]
    return np.swapaxes(u.reshape(*x.shape[:-2], n, m), -1, -2), s, v.reshape(*x.shape[:-2], n, n)


def scaled(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a largest number between 1/2 and 1, and by which powers of two they have been divided: their exponents, as that of the largest numbers is none itself."""
    sizes = np.abs(flat)
    largest = np.max(sizes, 1) if flat.shape[1] > _SHORT else np.ascontiguousarray(sizes.T).max(0)  # NumPy needs 40 ns for each short row
    _, exponents = np.frexp(largest[:, None])
    return np.ldexp(flat, -exponents), exponents


def put(flat: np.ndarray, blocks: np.ndarray) -> None:
    count, lanes = len(flat), blocks.shape[-1]
    whole = count // lanes
    blocks[:whole] = flat[: whole * lanes].reshape(whole, lanes, flat.shape[1]).transpose(0, 2, 1)
    if whole * lanes < count:
        blocks[whole, :, : count - whole * lanes] = flat[whole * lanes :].T


def back(blocks: np.ndarray, count: int) -> np.ndarray:
    """(blocks, entries, lanes) as rows of entries."""
    return blocks.transpose(0, 2, 1).reshape(-1, blocks.shape[1])[:count]


def _run(function: Any, blocks: np.ndarray, n: int, length: int) -> None:
    count, step = len(blocks), blocks.strides[0]
    pieces = max(1, min(8, count, count * n * n * length // WORK))

    def work(i: int) -> None:
        first, end = count * i // pieces, count * (i + 1) // pieces
        function(end - first, address_of(blocks) + first * step, length * 64, n * length * 64, step, n * 64)

    native.threads.parallel_for(pieces, work)


def _begun(type: str) -> Assembler:
    """f(blocks, their address, bytes of a row, of a matrix, of a block, n * 64). Constants: 31 near, 30 one, 29 tiny, 28 all bits but the sign, 27 the sign."""
    a = Assembler()
    for register in _PUSHED:
        a.raw(*((0x41,) if register > 7 else ()), 0x50 | register & 7)
    bits = int(type[1:])
    tiny = float(np.finfo(np.float32 if bits == 32 else np.float64).tiny)
    for register, value in ((31, _NEAR[type]), (30, 1.0), (29, tiny)):
        a.vector(f"broadcast.{type}", register, a.constant(value, type)._replace(broadcast=False))
    for register, number in ((28, (1 << bits - 1) - 1), (27, 1 << bits - 1)):
        a.vector(f"broadcast.i{bits}", register, a.constant(number, f"i{bits}")._replace(broadcast=False))
    return a


def _ended(a: Assembler) -> Any:
    from penstock.ops.native.executable import into_memory

    for register in reversed(_PUSHED):
        a.raw(*((0x41,) if register > 7 else ()), 0x58 | register & 7)
    a.raw(0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret
    number = ctypes.c_int64
    return ctypes.CFUNCTYPE(None, number, ctypes.c_void_p, number, number, number, number)(into_memory(a.finish()))


def _angle(a: Assembler, type: str) -> None:
    """Of 0 and 1, which stand on the diagonal, and 2, which shall be zero: 4 the tangent of the rotation, 8 that of its half, 9 its sine."""
    bits = f"i{type[1:]}"
    a.vector(f"sub.{type}", 3, 1, 0)
    a.vector(f"add.{type}", 4, 2, 2)
    a.vector(f"and.{bits}", 5, 3, 28)
    a.vector(f"mul.{type}", 6, 3, 3)
    a.vector(f"madd231.{type}", 6, 4, 4)
    a.vector(f"sqrt.{type}", 6, 6)
    a.vector(f"add.{type}", 6, 6, 5)
    a.vector(f"max.{type}", 6, 6, 29)
    a.vector(f"and.{bits}", 7, 3, 27)
    a.vector(f"xor.{bits}", 4, 4, 7)
    a.vector(f"div.{type}", 4, 4, 6)
    a.vector(f"load.{type}", 8, 30)
    a.vector(f"madd231.{type}", 8, 4, 4)
    a.vector(f"sqrt.{type}", 8, 8)
    a.vector(f"div.{type}", 9, 4, 8)
    a.vector(f"add.{type}", 8, 8, 30)
    a.vector(f"div.{type}", 8, 4, 8)


def _turn(a: Assembler, type: str, first: Mem, second: Mem) -> None:
    """Both as they are after the rotation, x - s (y + h x) and y + s (x - h y): in 12 and 13, and in memory. This form keeps lengths best."""
    a.vector(f"load.{type}", 12, first)
    a.vector(f"load.{type}", 13, second)
    a.vector(f"load.{type}", 10, 12)
    a.vector(f"load.{type}", 11, 13)
    a.vector(f"madd231.{type}", 11, 8, 12)
    a.vector(f"nmadd231.{type}", 10, 8, 13)
    a.vector(f"nmadd231.{type}", 12, 9, 11)
    a.vector(f"madd231.{type}", 13, 9, 10)
    a.vector(f"store.{type}", 12, first)
    a.vector(f"store.{type}", 13, second)


_BLOCK, _SWEEP, _P, _Q, _K, _L, _NEXT_Q, _NEXT_P, _DONE = range(9)


def _over_pairs(a: Assembler, type: str, each: Any) -> Any:
    """each() for all pairs of rows p < q: R10 and R11 their offsets, RBX and RBP those numbers times 64, R14 and R15 their addresses. 26 has the largest met."""
    a.label(_BLOCK)
    a.set_number(RAX, _SWEEPS)
    a.raw(0x50)  # push rax
    a.label(_SWEEP)
    a.vector("xor.i32", 26, 26, 26)
    a.scalar(asm.SUB, R10, R10)
    a.scalar(asm.SUB, RBX, RBX)
    a.label(_P)
    a.scalar(asm.MOVE, R11, R10)
    a.scalar(asm.ADD, R11, RDX)
    a.scalar(asm.MOVE, RBP, RBX)
    a.with_number(0, RBP, 64)
    a.scalar(asm.CMP, RBP, R9)
    a.jump(_NEXT_P, asm.ABOVE_EQUAL)
    a.label(_Q)
    a.scalar(asm.MOVE, R14, RSI)
    a.scalar(asm.ADD, R14, R10)
    a.scalar(asm.MOVE, R15, RSI)
    a.scalar(asm.ADD, R15, R11)
    each()
    a.label(_NEXT_Q)
    a.scalar(asm.ADD, R11, RDX)
    a.with_number(0, RBP, 64)
    a.scalar(asm.CMP, RBP, R9)
    a.jump(_Q, asm.BELOW)
    a.label(_NEXT_P)
    a.scalar(asm.ADD, R10, RDX)
    a.with_number(0, RBX, 64)
    a.scalar(asm.CMP, RBX, R9)
    a.jump(_P, asm.BELOW)
    a.vector(f"cmp.{type}", _CHOSEN, 31, 26, immediate=asm.LESS)
    a.mask("test", _CHOSEN, _CHOSEN)
    a.jump(_DONE, asm.ZERO)
    a.raw(0x58)  # pop rax
    a.with_number(5, RAX, 1)
    a.raw(0x50)
    a.jump(_SWEEP, asm.NOT_ZERO)
    a.label(_DONE)
    a.raw(0x58)
    a.scalar(asm.ADD, RSI, R8)
    a.with_number(5, RDI, 1)
    a.jump(_BLOCK, asm.NOT_ZERO)
    return _ended(a)


@cache
def _one_sided(type: str, vectors: bool) -> Any:
    """Rotates rows until they are at right angles, and the rows of the matrix behind them."""
    a = _begun(type)

    def each() -> None:
        for register in (0, 1, 2):
            a.vector("xor.i32", register, register, register)
        a.scalar(asm.SUB, R12, R12)
        a.label(_K)
        a.vector(f"load.{type}", 10, Mem(R14, index=R12))
        a.vector(f"load.{type}", 11, Mem(R15, index=R12))
        a.vector(f"madd231.{type}", 0, 10, 10)
        a.vector(f"madd231.{type}", 1, 11, 11)
        a.vector(f"madd231.{type}", 2, 10, 11)
        a.with_number(0, R12, 64)
        a.scalar(asm.CMP, R12, RDX)
        a.jump(_K, asm.BELOW)
        # The cosine between the two says how much is left to do.
        a.vector(f"mul.{type}", 3, 0, 1)
        a.vector(f"sqrt.{type}", 3, 3)
        a.vector(f"max.{type}", 3, 3, 29)
        a.vector(f"div.{type}", 3, 2, 3)
        a.vector(f"and.i{type[1:]}", 3, 3, 28)
        a.vector(f"max.{type}", 26, 26, 3)
        _angle(a, type)
        a.scalar(asm.SUB, R12, R12)
        a.label(_L)
        _turn(a, type, Mem(R14, index=R12), Mem(R15, index=R12))
        a.with_number(0, R12, 64)
        a.scalar(asm.CMP, R12, RDX)
        a.jump(_L, asm.BELOW)
        if vectors:
            # The rows behind: n long, n * 64 bytes (R9), the first one RCX bytes from the start.
            for register, number in ((R14, RBX), (R15, RBP)):
                a.scalar(asm.MOVE, register, number)
                a.scalar(asm.MULTIPLY, register, R9)
                a.raw(0x49, 0xC1, 0xE8 | register & 7, 6)  # shr by 6: the number itself times R9
                a.scalar(asm.ADD, register, RCX)
                a.scalar(asm.ADD, register, RSI)
            a.scalar(asm.SUB, R12, R12)
            a.label(_BACK)
            _turn(a, type, Mem(R14, index=R12), Mem(R15, index=R12))
            a.with_number(0, R12, 64)
            a.scalar(asm.CMP, R12, R9)
            a.jump(_BACK, asm.BELOW)

    return _over_pairs(a, type, each)


_BACK = 20
