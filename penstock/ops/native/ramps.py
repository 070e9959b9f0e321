"""Evenly spaced numbers in one pass: first + i * step for i = 0, 1, ..., rounded as NumPy rounds that."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import address_of
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import RAX, RDI, RDX, RSI, Assembler, Mem
from penstock.ops.native.frames import placed

_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}
_LONG = 1 << 10
"""Numbers from which on it pays."""
_NUMBER, _STEP, _FIRST, _MORE, _RESULT = range(5)  # vectors
_TAIL = 1  # the k register of the last numbers


def ramp(first: Any, step: Any, count: int) -> np.ndarray | None:
    """first + np.arange(count) * step, numbers of NumPy's and of one type, which is that of the result. None if NumPy has to do it."""
    dtype = step.dtype
    if not _LONG <= count < 1 << 31 or dtype not in _TYPES or first.dtype != dtype or not native.available():
        return None
    lanes = 64 // dtype.itemsize
    with np.errstate(over="ignore"):
        block = np.array([first, step, np.multiply(step, dtype.type(lanes))], dtype)
    out = np.empty(count, dtype)
    _loop(_TYPES[dtype])(count, address_of(out), address_of(block))
    return out


@cache
def _loop(type: str) -> Any:
    """f(n, out, first and step, and for integers the step from vector to vector)"""
    a, size = Assembler(), int(type[1:]) // 8
    lanes, is_float = 64 // size, type[0] == "f"
    vector, rest, end = range(3)
    counter = f"i{type[1:]}"
    a.vector(f"load.{counter}", _NUMBER, a.table(np.arange(lanes, dtype=f"int{8 * size}")))
    a.vector(f"broadcast.{type}", _FIRST, Mem(RDX))
    a.vector(f"broadcast.{type}", _STEP, Mem(RDX, size))
    if is_float:
        a.vector(f"broadcast.{counter}", _MORE, a.constant(lanes, counter)._replace(broadcast=False))
    else:
        a.vector(f"broadcast.{type}", _MORE, Mem(RDX, 2 * size))
        a.vector(f"mul.{type}", _NUMBER, _NUMBER, _STEP)
        a.vector(f"add.{type}", _NUMBER, _NUMBER, _FIRST)

    def some(mask: int) -> None:
        if is_float:
            a.vector(f"{counter}_to_{type}", _RESULT, _NUMBER)
            a.vector(f"mul.{type}", _RESULT, _RESULT, _STEP)
            a.vector(f"add.{type}", _RESULT, _FIRST, _RESULT)
        a.vector(f"store.{type}", _RESULT if is_float else _NUMBER, Mem(RSI), mask=mask)
        a.vector(f"add.{counter}", _NUMBER, _NUMBER, _MORE)

    a.label(vector)
    a.with_number(7, RDI, lanes)
    a.jump(rest, asm.BELOW)
    some(0)
    a.with_number(0, RSI, 64)
    a.with_number(5, RDI, lanes)
    a.jump(vector)
    a.label(rest)
    a.with_number(7, RDI, 0)
    a.jump(end, asm.ZERO)
    a.set_number(RAX, -1)
    a.low_bits(RAX, RDI)
    a.mask_from(_TAIL, RAX)
    some(_TAIL)
    a.label(end)
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(placed(a))
