"""Products of many matrices so small that each fits in two vectors: a call of BLAS for each of them takes ten times as long as its multiplications.

The product is the sum over k of a's k-th column, repeated along rows, times b's k-th row, repeated along columns; both are permutations of a matrix's elements.
Each product is rounded and added in order, as TensorFlow does for such matrices.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import RAX, RCX, RDI, RDX, RSI, Assembler, Mem
from penstock.ops.native.frames import finished, share_out

FEWEST = 32
"""Matrices for which a loop is worth it."""
_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
_TABLES = 22
"""Registers for permutations; the others are two for each matrix and two for what is multiplied, with two to spare."""
_LEFT, _RIGHT, _SUM, _X, _Y = 22, 24, 26, 28, 29
_LONG = 32
"""Bytes of a row from which on TensorFlow adds in another order, where columns of b stand together."""
_MULTIPLICATIONS = 8
"""That take as long as one number that a thread is thought to take."""


def products(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """np.matmul of two stacks of matrices with the same leading dimensions; None for what NumPy has to do."""
    if b.dtype != a.dtype or a.ndim < 3 or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        return None
    (rows, inner), columns = a.shape[-2:], b.shape[-1]
    count = a.size // max(rows * inner, 1)
    if not fits(a.dtype, count, rows, inner, columns):
        return None
    (a, is_turned_a), (b, is_turned_b) = map(_in_order, (a, b))
    if is_turned_b and inner * a.itemsize >= _LONG:
        return None
    out = np.empty((*a.shape[:-2], rows, columns), a.dtype)
    function = _loop(_TYPES[a.dtype], rows, inner, columns, is_turned_a, is_turned_b)
    places = [(native.address_of(x), x.itemsize * x.size // count) for x in (a, b, out)]
    share_out(count, max(rows * inner * columns // _MULTIPLICATIONS, 1), lambda first, end: function(end - first, *(at + first * step for at, step in places), 0, 0))
    return out


def fits(dtype: np.dtype, count: int, rows: int, inner: int, columns: int, is_turned_b: bool = False) -> bool:
    """Whether `products` is for so many matrices of this size."""
    if dtype not in _TYPES or count < FEWEST or inner < 2 or not rows or not columns or (is_turned_b and inner * dtype.itemsize >= _LONG):
        return False
    lanes = 64 // dtype.itemsize
    most = max(rows * inner, inner * columns, rows * columns)
    return most <= 2 * lanes and 2 * inner * -(-rows * columns // lanes) <= _TABLES and native.available()


def _in_order(x: np.ndarray) -> tuple[np.ndarray, bool]:
    """Contiguous, and whether rows and columns have changed places."""
    if not x.flags.c_contiguous:
        turned = x.swapaxes(-1, -2)
        if turned.flags.c_contiguous:
            return turned, True
    return np.ascontiguousarray(x), False


@cache
def _loop(type: str, rows: int, inner: int, columns: int, is_turned_a: bool, is_turned_b: bool) -> Any:
    """f(n, a, b, results, -, -)"""
    a, size = Assembler(), int(type[1:]) // 8
    lanes, whole = 64 // size, f"i{8 * size}"
    parts = range(-(-rows * columns // lanes))
    row, column = np.divmod(np.arange(len(parts) * lanes) % (rows * columns), columns)
    pointers = ((RSI, _LEFT, rows * inner), (RDX, _RIGHT, inner * columns), (RCX, _SUM, rows * columns))

    def masks(count: int) -> list[int]:
        """The k register for each vector of so many elements."""
        return [0 if count >= (i + 1) * lanes else known[count - i * lanes] for i in range(-(-count // lanes))]

    known: dict[int, int] = {}
    for count in {count % lanes for _, _, count in pointers} - {0}:
        known[count] = len(known) + 1
        a.set_number(RAX, (1 << count) - 1)
        a.mask_from(known[count], RAX)
    tables = {}
    for k in range(inner):
        for part in parts:
            chosen = slice(part * lanes, (part + 1) * lanes)
            left = k * rows + row if is_turned_a else row * inner + k
            right = column * inner + k if is_turned_b else k * columns + column
            for side, places in ((_LEFT, left), (_RIGHT, right)):
                register = tables[side, k, part] = len(tables)
                a.vector(f"load.{whole}", register, a.table(places[chosen].astype(f"int{8 * size}")))
    a.label(0)
    for pointer, register, count in pointers[:2]:
        for i, mask in enumerate(masks(count)):
            a.vector(f"load.{type}", register + i, Mem(pointer, 64 * i), mask=mask, zero=bool(mask))
        a.with_number(0, pointer, count * size)
    for part in parts:
        a.vector("xor.i64", _SUM + part, _SUM + part, _SUM + part)
        for k in range(inner):
            for to, side, count in ((_X, _LEFT, rows * inner), (_Y, _RIGHT, inner * columns)):
                table = tables[side, k, part]
                if count <= lanes:
                    a.vector(f"permute.{whole}", to, table, side)
                else:
                    a.vector(f"load.{whole}", to, table)
                    a.vector(f"lookup.{type}", to, side, side + 1)
            a.vector(f"mul.{type}", _X, _X, _Y)
            if k or not (is_turned_a or is_turned_b):  # TensorFlow begins with zero (which makes -0 zero), but for transposed matrices
                a.vector(f"add.{type}", _SUM + part, _SUM + part, _X)
            else:
                a.vector(f"load.{type}", _SUM + part, _X)
    for i, mask in enumerate(masks(rows * columns)):
        a.vector(f"store.{type}", _SUM + i, Mem(RCX, 64 * i), mask=mask)
    a.with_number(0, RCX, rows * columns * size)
    a.with_number(5, RDI, 1)
    a.jump(0, asm.NOT_ZERO)
    return finished(a)
