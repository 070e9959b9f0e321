"""Loops that go over numbers one at a time, or leave a row when they know enough: in_top_k, the inverse of a permutation, sums of weights."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Assembler, Mem
from penstock.ops.native.frames import begun, ended, finished, share_out

_MOVE_EXTENDED, _ADD_TO_MEMORY = 0x63, 0x01
_TAIL, _LARGER, _BAD = 1, 2, 3  # k registers


# -- in_top_k -----------------------------------------------------------------------------------------------------------


def in_top_k(predictions: np.ndarray, targets: np.ndarray, k: int) -> np.ndarray | None:
    """Of each row of a matrix of float32: whether fewer than `k` of its numbers are larger than the one at `targets`, and those that were looked at finite.
    None if NumPy has to do it."""
    rows, classes = predictions.shape
    if predictions.dtype != np.float32 or targets.dtype not in (np.int32, np.int64) or not native.available():
        return None
    predictions, targets, out = np.ascontiguousarray(predictions), np.ascontiguousarray(targets), np.empty(rows, bool)
    addresses = [(native.address_of(a), a.strides[0]) for a in (predictions, targets, out)]
    function = _in_top_k(targets.itemsize)
    share_out(rows, classes // _LEFT_EARLY, lambda first, end: function(end - first, *(at + first * step for at, step in addresses), classes, k))
    return out


_LEFT_EARLY = 8
"""Most rows are left after few of their numbers."""


@cache
def _in_top_k(size: int) -> Any:
    """f(rows, predictions, targets of `size` bytes, truths, classes, k)"""
    a = begun()
    row, inner, tail, yes, no, put = range(6)
    a.scalar(asm.MOVE, RBP, R8)
    for _ in range(2):
        a.scalar(asm.ADD, RBP, RBP)
    a.label(row)
    a.scalar(asm.MOVE if size == 8 else _MOVE_EXTENDED, RAX, Mem(RDX))
    a.scalar(asm.CMP, RAX, R8)
    a.jump(no, asm.ABOVE_EQUAL)
    a.vector("broadcast.f32", 0, Mem(RSI, index=RAX, scale=4))
    a.scalar(asm.SUB, R10, R10)
    a.scalar(asm.MOVE, R11, R8)
    a.scalar(asm.MOVE, RBX, RSI)

    def look(mask: int) -> None:
        a.vector("load.f32", 1, Mem(RBX), mask=mask, zero=bool(mask))
        a.vector("sub.f32", 2, 1, 1)  # NaN for what is not finite
        a.vector("cmp.f32", _BAD, 2, 2, immediate=asm.UNORDERED)
        a.vector("cmp.f32", _LARGER, 1, 0, mask=mask, immediate=_GREATER)
        a.mask("test", _BAD, _BAD)
        a.jump(no, asm.NOT_ZERO)
        a.raw(0xC5, 0xF8, 0x93, 0xC0 | _LARGER)  # kmovw eax, k
        a.raw(0xF3, 0x0F, 0xB8, 0xC0)  # popcnt eax, eax
        a.scalar(asm.ADD, R10, RAX)
        a.scalar(asm.CMP, R9, R10)
        a.jump(no, asm.NOT_GREATER)

    a.label(inner)
    a.with_number(7, R11, 16)
    a.jump(tail, asm.BELOW)
    look(0)
    a.with_number(0, RBX, 64)
    a.with_number(5, R11, 16)
    a.jump(inner)
    a.label(tail)
    a.with_number(7, R11, 0)
    a.jump(yes, asm.ZERO)
    a.set_number(RAX, -1)
    a.low_bits(RAX, R11)
    a.mask_from(_TAIL, RAX)
    look(_TAIL)
    a.label(yes)
    a.set_number(RAX, 1)
    a.jump(put)
    a.label(no)
    a.set_number(RAX, 0)
    a.label(put)
    a.raw(0x88, 0x01)  # mov [rcx], al
    a.with_number(0, RCX, 1)
    a.with_number(0, RDX, size)
    a.scalar(asm.ADD, RSI, RBP)
    a.with_number(5, RDI, 1)
    a.jump(row, asm.NOT_ZERO)
    return ended(a)


_GREATER = 30

# -- permutations ---------------------------------------------------------------------------------------------------------


def inverse(order: np.ndarray) -> np.ndarray | None:
    """result[order[i]] = i for a permutation (int32, int64); None if it is none, or NumPy has to do it."""
    if not native.available():
        return None
    order = np.ascontiguousarray(order)
    result, left = np.full(order.size, -1, order.dtype), np.array([order.size])
    if order.size:
        _inverse(order.itemsize)(order.size, *map(native.address_of, (order, result, left)), 0, 0)
    return None if left[0] or (order.size and int(result.min()) < 0) else result


@cache
def _inverse(size: int) -> Any:
    """f(n, order, result, how many are left, -, -): up to the first that is no place of the result."""
    a, wide = Assembler(), size == 8
    top, end = range(2)
    a.scalar(asm.SUB, R9, R9)
    a.label(top)
    a.scalar(asm.MOVE, RAX, Mem(RSI, index=R9, scale=size), wide=wide)
    a.scalar(asm.CMP, RAX, RDI)
    a.jump(end, asm.ABOVE_EQUAL)
    a.scalar(asm.MOVE_TO_MEMORY, R9, Mem(RDX, index=RAX, scale=size), wide=wide)
    a.with_number(0, R9, 1)
    a.scalar(asm.CMP, R9, RDI)
    a.jump(top, asm.BELOW)
    a.label(end)
    a.scalar(asm.SUB, RDI, R9)
    a.scalar(asm.MOVE_TO_MEMORY, RDI, Mem(RCX))
    return finished(a)


# -- sums of weights -----------------------------------------------------------------------------------------------------

_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}


def add_weights(table: np.ndarray, places: np.ndarray, weights: np.ndarray) -> bool:
    """table[places[i]] += weights[i], one after the other; places beyond the table's end are passed over. False if NumPy has to do it.
    The table is contiguous and of the weights' type."""
    type = _TYPES.get(table.dtype)
    if type is None or weights.dtype != table.dtype or places.dtype not in (np.int32, np.int64) or not native.available():
        return False
    if places.size:
        places, weights = np.ascontiguousarray(places), np.ascontiguousarray(weights)
        _add_weights(type, table.itemsize, places.itemsize)(places.size, *map(native.address_of, (places, weights, table)), table.size, 0)
    return True


@cache
def _add_weights(type: str, size: int, place: int) -> Any:
    """f(n, places, weights, table, its size, -)"""
    a = Assembler()
    top, beyond = range(2)
    a.scalar(asm.SUB, R10, R10)
    a.label(top)
    a.scalar(asm.MOVE if place == 8 else _MOVE_EXTENDED, RAX, Mem(RSI, index=R10, scale=place))
    a.scalar(asm.CMP, RAX, R8)
    a.jump(beyond, asm.ABOVE_EQUAL)
    given, sum = Mem(RDX, index=R10, scale=size), Mem(RCX, index=RAX, scale=size)
    if type[0] == "f":
        a.vector(f"load_one.{type}", 0, sum)
        a.vector(f"add_one.{type}", 0, 0, given)
        a.vector(f"store_one.{type}", 0, sum)
    else:
        a.scalar(asm.MOVE, R11, given, wide=size == 8)
        a.scalar(_ADD_TO_MEMORY, R11, sum, wide=size == 8)
    a.label(beyond)
    a.with_number(0, R10, 1)
    a.scalar(asm.CMP, R10, RDI)
    a.jump(top, asm.BELOW)
    return finished(a)
