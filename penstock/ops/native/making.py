"""New strings, many at once: each of some letters that lie somewhere in memory."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native import texts
from penstock.ops.native.assembler import R8, R9, R10, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Mem
from penstock.ops.native.texts import Scalars

_PUSHED = (RBX, RBP, R12, R13, R14, R15)


def make(addresses: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """A vector of `bytes`, of so many letters (int64) from these addresses on; nothing is checked."""
    result = np.empty(len(addresses), object)
    if len(addresses):
        address = native.address_of
        _loop()(len(addresses), address(addresses), address(lengths), address(result), _maker(), _counter())
    return result


def pointers(strings: np.ndarray) -> np.ndarray:
    """The addresses of the objects of a contiguous array, as a vector that lives no longer than it. Its letters begin `texts.LETTERS` bytes on."""
    if not strings.size:
        return np.empty(0, np.int64)
    return np.frombuffer(memoryview((ctypes.c_char * strings.nbytes).from_address(native.address_of(strings))), np.int64)


@cache
def _maker() -> int:
    return ctypes.cast(ctypes.pythonapi.PyBytes_FromStringAndSize, ctypes.c_void_p).value or 0


_uncounted = np.zeros(1, np.int64)


@cache
def _counter() -> int:
    """Where it is counted how often None is used: a new array of objects holds it, and lets go of it here. It is not counted from Python 3.12 on."""
    fresh = np.empty(1, object)
    return id(None) if pointers(fresh)[0] == id(None) and sys.version_info < (3, 12) else native.address_of(_uncounted)


@cache
def _loop() -> Any:
    """f(n, addresses, lengths, result, the function that makes a string, what to count down for each)"""
    a = Scalars()
    n, addresses, lengths, result, maker, _ = _PUSHED
    top, out = range(2)
    for register in _PUSHED:
        a.raw(*((0x41,) if register > 7 else ()), 0x50 | register & 7)
    a.with_number(5, asm.RSP, 8)  # the stack's alignment
    for register, source in zip(_PUSHED, (RDI, RSI, RDX, RCX, R8, R9), strict=True):
        a.move(register, source)
    a.label(top)
    a.move(RDI, Mem(addresses))
    a.move(RSI, Mem(lengths))
    a.raw(0x41, 0xFF, 0xD0 | maker & 7)  # call r14
    a.with_number(7, RAX, 0)
    a.jump(out, asm.ZERO)  # no memory: the caller finds the exception
    a.scalar(asm.MOVE_TO_MEMORY, RAX, Mem(result))
    a.raw(0x49, 0x83, 0x6F, 0x00, 0x01)  # sub qword [r15], 1
    for register in (addresses, lengths, result):
        a.with_number(0, register, 8)
    a.with_number(5, n, 1)
    a.jump(top, asm.NOT_ZERO)
    a.label(out)
    a.with_number(0, asm.RSP, 8)
    for register in reversed(_PUSHED):
        a.raw(*((0x41,) if register > 7 else ()), 0x58 | register & 7)
    a.raw(0xC3)  # ret
    from penstock.ops.native.executable import into_memory

    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return ctypes.PYFUNCTYPE(None, number, *[pointer] * 5)(into_memory(a.finish()))


# -- one text of many strings -------------------------------------------------------------------------------------------------


def place(strings: np.ndarray, starts: np.ndarray, letters: np.ndarray) -> bool:
    """letters[start:] = the letters of each string of a contiguous array. Whether all were strings, and fit in: another thread may have changed them
    since they were measured."""
    return texts.read(_copies, strings, letters, np.array([native.address_of(starts)]), np.array([letters.size]))


@cache
def _copies() -> Any:
    a = Scalars()
    return texts.over_strings(a, lambda: _copy(a), 2)


def _copy(a: Scalars) -> None:
    """From RAX to the place that RBX points to, if that is not beyond RBP."""
    a.move(R9, Mem(RBX))
    a.with_number(0, RBX, 8)
    a.scalar(texts.LEA, R10, Mem(R9, index=R8))
    a.scalar(asm.CMP, R10, RBP)
    a.jump(texts.STOP, asm.ABOVE)
    a.add(R9, RDX)
    _move(a)


def _move(a: Scalars) -> None:
    """R8 letters from RAX to R9, 32 at a time; R10 is lost."""
    whole, rest = range(2)
    to, letters, mask = R9, 16, 1  # a vector that needs no clearing of upper halves
    a.label(whole)
    a.with_number(7, R8, 32)
    a.jump(rest, asm.BELOW)
    a.vector("load.u8", letters, Mem(RAX), length=asm.HALF)
    a.vector("store.u8", letters, Mem(to), length=asm.HALF)
    a.with_number(0, RAX, 32)
    a.with_number(0, to, 32)
    a.with_number(5, R8, 32)
    a.jump(whole)
    a.label(rest)
    a.set_number(R10, 0xFFFFFFFF)
    a.low_bits(R10, R8)
    a.raw(0xC4, 0xC1, 0x7B, 0x92, 0xC0 | mask << 3 | R10 & 7)  # kmovd k1, r10d
    a.vector("load.u8", letters, Mem(RAX), mask=mask, zero=True, length=asm.HALF)
    a.vector("store.u8", letters, Mem(to), mask=mask, length=asm.HALF)


def padded(strings: np.ndarray, length: int) -> np.ndarray | None:
    """So many bytes of each of a contiguous array of strings, with zeros behind those that are shorter; None if they cannot be read here."""
    return _side_by_side(_padding, strings, length)


def of_length(strings: np.ndarray, length: int) -> np.ndarray | None:
    """The letters of each of a contiguous array of strings; None if one has another number of them, or they cannot be read here."""
    return _side_by_side(_letters_of_length, strings, length)


def _side_by_side(loop: Any, strings: np.ndarray, length: int) -> np.ndarray | None:
    if not texts.can_read():
        return None
    letters = np.empty((*strings.shape, length), np.uint8)
    return letters if texts.read(loop, strings, letters, np.array([length])) else None


@cache
def _padding() -> Any:
    a = Scalars()
    return texts.over_strings(a, lambda: _pad(a), 1)


@cache
def _letters_of_length() -> Any:
    a = Scalars()

    def letters() -> None:
        a.scalar(asm.CMP, R8, RBX)
        a.jump(texts.STOP, asm.NOT_ZERO)
        _pad(a)

    return texts.over_strings(a, letters, 1)


def _pad(a: Scalars) -> None:
    """RBX bytes to RDX: the letters at RAX, and zeros."""
    whole, rest, fill, last = range(4)
    left, letters, mask = R9, 16, 1

    def store(**options: Any) -> None:
        a.vector("store.u8", letters, Mem(RDX), **options)

    a.move(left, RBX)
    a.scalar(asm.CMP, R8, RBX)
    a.scalar(asm.MOVE_IF_ABOVE, R8, RBX)
    a.label(whole)
    a.with_number(7, R8, 64)
    a.jump(rest, asm.BELOW)
    a.vector("load.u8", letters, Mem(RAX))
    store()
    a.with_number(0, RAX, 64)
    a.with_number(0, RDX, 64)
    a.with_number(5, left, 64)
    a.with_number(5, R8, 64)
    a.jump(whole)
    a.label(rest)
    a.mask_of(mask, R8, R10)
    a.vector("load.u8", letters, Mem(RAX), mask=mask, zero=True)
    a.label(fill)
    a.with_number(7, left, 64)
    a.jump(last, asm.BELOW)
    store()
    a.vector("xor.i64", letters, letters, letters)
    a.with_number(0, RDX, 64)
    a.with_number(5, left, 64)
    a.jump(fill)
    a.label(last)
    a.mask_of(mask, left, R10)
    store(mask=mask)
    a.add(RDX, left)


def are_same(strings: np.ndarray, others: np.ndarray) -> bool:
    """Whether each string of a contiguous array is that of another one of its size. False too if there are other objects."""
    return texts.read(_comparison, strings, strings, np.array([native.address_of(others)]))


@cache
def _comparison() -> Any:
    a = Scalars()
    return texts.over_strings(a, lambda: _compare(a), 1)


def _compare(a: Scalars) -> None:
    """The string at RAX and the object that RBX points to, 32 letters at a time."""
    whole, rest, same = range(3)
    other, mask = R9, 1
    a.move(other, Mem(RBX))
    a.with_number(0, RBX, 8)
    a.with_number(7, other, 0)
    a.jump(texts.STOP, asm.ZERO)
    a.scalar(asm.CMP, RCX, Mem(other, texts.TYPE))
    a.jump(texts.STOP, asm.NOT_ZERO)
    a.scalar(asm.CMP, R8, Mem(other, texts.SIZE))
    a.jump(texts.STOP, asm.NOT_ZERO)
    a.with_number(0, other, texts.LETTERS)
    a.scalar(asm.CMP, RAX, other)
    a.jump(same, asm.ZERO)

    def stop_if_different(**options: Any) -> None:
        a.vector("load.u8", 16, Mem(RAX), length=asm.HALF, **options)
        a.vector("load.u8", 17, Mem(other), length=asm.HALF, **options)
        a.vector("xor.i32", 16, 16, 17, length=asm.HALF)
        a.vector("test.u8", mask, 16, 16, length=asm.HALF)
        a.raw(0xC5, 0xFB, 0x93, 0xC0 | RBP << 3 | mask)  # kmovd ebp, k1
        a.with_number(7, RBP, 0)
        a.jump(texts.STOP, asm.NOT_ZERO)

    a.label(whole)
    a.with_number(7, R8, 32)
    a.jump(rest, asm.BELOW)
    stop_if_different()
    for register in (RAX, other):
        a.with_number(0, register, 32)
    a.with_number(5, R8, 32)
    a.jump(whole)
    a.label(rest)
    a.set_number(RBP, 0xFFFFFFFF)
    a.low_bits(RBP, R8)
    a.raw(0xC5, 0xFB, 0x92, 0xC0 | mask << 3 | RBP)  # kmovd k1, ebp
    stop_if_different(mask=mask, zero=True)
    a.label(same)


def gather(addresses: np.ndarray, lengths: np.ndarray, letters: np.ndarray) -> None:
    """The letters that lie at these addresses (int64, as `lengths`), one behind the other; nothing is checked."""
    if len(addresses):
        address = native.address_of
        _gathering()(len(addresses), address(addresses), address(lengths), address(letters))


@cache
def _gathering() -> Any:
    """f(n, addresses, lengths, letters)"""
    a = Scalars()
    top = 9
    a.move(R9, RCX)
    a.label(top)
    a.move(RAX, Mem(RSI))
    a.move(R8, Mem(RDX))
    _move(a)
    a.add(R9, R8)
    for register in (RSI, RDX):
        a.with_number(0, register, 8)
    a.with_number(5, RDI, 1)
    a.jump(top, asm.NOT_ZERO)
    a.raw(0xC3)  # ret
    from penstock.ops.native.executable import into_memory

    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return ctypes.PYFUNCTYPE(None, number, *[pointer] * 3)(into_memory(a.finish()))
