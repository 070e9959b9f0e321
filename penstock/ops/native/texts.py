"""Strings read where they lie, `bytes` objects, through the pointers of an array; and their hashes.

An array of strings is an array of pointers to objects of CPython; that they are laid out as expected is tried out once. Values are those of
`kernels.hashes`, bit for bit.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Assembler, Mem

_MURMUR, _MURMUR_SEED = 0xC6A4A7935BD1E995, 0xDECAFCAFFE
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
TYPE, SIZE, LETTERS = object.__basicsize__ - 8, object.__basicsize__, bytes.__basicsize__ - 1
"""Where an object's type stands, the length of `bytes`, and their letters."""
LONGEST = 64
"""Letters of a string of which the fingerprint is taken here."""
_XOR, LOAD_BYTE, LEA = 0x33, 0x1B6, 0x8D
SAVED = (RBX, RBP, *range(12, 16))
"""Registers that the caller wants back."""
_TEXT, _N, _RESULT, _T = RAX, R8, R9, R10  # what holds the string's address, its length, its hash; something to work with


def fingerprints(strings: np.ndarray) -> np.ndarray | None:
    """FarmHash's Fingerprint64 of each of a contiguous array of strings, 0 for those longer than LONGEST; None if they cannot be read here."""
    return _hashes(_fingerprint_loop, strings)


def siphashes(strings: np.ndarray, k0: int, k1: int) -> np.ndarray | None:
    """SipHash-2-4 of each of a contiguous array of strings; None if they cannot be read here."""
    return _hashes(_siphash_loop, strings, *(np.array([key & (1 << 64) - 1], np.uint64) for key in (k0, k1)))


def murmurs(strings: np.ndarray) -> np.ndarray | None:
    """The old Murmur hash of each of a contiguous array of strings; None if they cannot be read here."""
    return _hashes(_murmur_loop, strings)


def lengths(strings: np.ndarray) -> np.ndarray | None:
    """How many letters each of an array of strings has, as int32; None if they cannot be read here, or one is too long."""
    if not can_read():
        return None
    result = np.empty(strings.shape, np.int32)
    return result if read(_length_loop, np.ascontiguousarray(strings), result) else None


@cache
def _length_loop() -> Any:
    a = Scalars()

    def store() -> None:
        a.with_number(7, _N, (1 << 31) - 1)
        a.jump(STOP, asm.ABOVE)
        a.scalar(asm.MOVE_TO_MEMORY, _N, Mem(RDX), wide=False)
        a.with_number(0, RDX, 4)

    return over_strings(a, store, 0)


def _hashes(loop: Callable[[], Any], strings: np.ndarray, *keys: np.ndarray) -> np.ndarray | None:
    if not can_read():
        return None
    result = np.empty(strings.shape, np.uint64)
    return result if read(loop, strings, result, *keys) else None


def read(loop: Callable[[], Any], strings: np.ndarray, result: np.ndarray, *keys: np.ndarray) -> bool:
    """Calls the function of `over_strings` with arrays; whether all strings were read."""
    address = native.address_of
    return not strings.size or not loop()(strings.size, address(strings), address(result), id(bytes), *map(address, keys))


def address_of_letters(text: bytes) -> int:
    return id(text) + LETTERS


def can_read() -> bool:
    return native.available() and _is_known()


@cache
def _is_known() -> bool:
    """Whether objects are laid out as CPython's usual ones."""
    if sys.implementation.name != "cpython":
        return False
    sample = b"abc" * 5
    read = ctypes.c_ssize_t.from_address
    return read(id(sample) + TYPE).value == id(bytes) and read(id(sample) + SIZE).value == 15 and ctypes.string_at(id(sample) + LETTERS, 15) == sample


class Scalars(Assembler):
    """Arithmetic modulo 2**64 on general registers."""

    def move(self, x: int, y: int | Mem) -> None:
        self.scalar(asm.MOVE, x, y)

    def add(self, x: int, y: int | Mem) -> None:
        self.scalar(asm.ADD, x, y)

    def xor(self, x: int, y: int | Mem) -> None:
        self.scalar(_XOR, x, y)

    def multiply(self, x: int, y: int | Mem) -> None:
        self.scalar(asm.MULTIPLY, x, y)

    def rotate(self, x: int, bits: int) -> None:
        """To the right."""
        self.raw(0x48 | x >> 3, 0xC1, 0xC8 | x & 7, bits)

    def shift(self, x: int, bits: int) -> None:
        """To the right."""
        self.raw(0x48 | x >> 3, 0xC1, 0xE8 | x & 7, bits)

    def shift_left(self, x: int, bits: int) -> None:
        self.raw(0x48 | x >> 3, 0xC1, 0xE0 | x & 7, bits)

    def number(self, value: int) -> Mem:
        return self.constant(value, "i64")

    def mask_of(self, mask: int, count: int, lost: int) -> None:
        """A k register for so many (a register, of at most 64) of the letters of a vector; `lost` is a general register."""
        high = lost >> 3
        self.raw(0x48 | high, 0xC7, 0xC0 | lost & 7, 0xFF, 0xFF, 0xFF, 0xFF)  # mov lost, -1: an `or` would wait for what was there
        self.raw(0xC4, 0xE2 & ~(high << 7 | high << 5), 0x80 | (~count & 15) << 3, 0xF5, 0xC0 | (lost & 7) << 3 | lost & 7)  # bzhi
        self.raw(0xC4, 0xE1 & ~(high << 5), 0xFB, 0x92, 0xC0 | mask << 3 | lost & 7)  # kmovq

    def fold(self, x: int) -> None:
        """x ^= x >> 47"""
        self.move(_T, x)
        self.shift(_T, 47)
        self.xor(x, _T)

    def mix(self, u: int, v: int, factor: int) -> None:
        """FarmHash's mix of u and v, into v; u is lost."""
        self.xor(u, v)
        self.multiply(u, factor)
        self.fold(u)
        self.xor(v, u)
        self.multiply(v, factor)
        self.fold(v)
        self.multiply(v, factor)


STOP = -2
"""A label to which the code for a string may jump, and so end the loop."""


def over_strings(a: Scalars, code: Callable[[], None], keys: int) -> Any:
    """f(n, strings, result, type of strings, *keys): how many strings are left, the first being no string, or one that `code` cannot read.

    `code` finds a string's letters at RAX, their number in R8, the place for the result in RDX, which it moves on, and keys in RBX and RBP.
    """
    top = -1
    for register in SAVED:
        a.raw(*((0x41,) if register > 7 else ()), 0x50 | register & 7)
    for register, source in ((RBX, R8), (RBP, R9))[:keys]:
        a.move(register, Mem(source))
    a.label(top)
    a.move(_TEXT, Mem(RSI))
    a.with_number(7, _TEXT, 0)
    a.jump(STOP, asm.ZERO)
    a.scalar(asm.CMP, RCX, Mem(_TEXT, TYPE))
    a.jump(STOP, asm.NOT_ZERO)
    a.move(_N, Mem(_TEXT, SIZE))
    a.with_number(0, _TEXT, LETTERS)
    code()
    a.with_number(0, RSI, 8)
    a.with_number(5, RDI, 1)
    a.jump(top, asm.NOT_ZERO)
    a.label(STOP)
    a.move(RAX, RDI)
    for register in reversed(SAVED):
        a.raw(*((0x41,) if register > 7 else ()), 0x58 | register & 7)
    a.raw(0xC3)  # ret
    from penstock.ops.native.executable import into_memory

    pointer, number = ctypes.c_void_p, ctypes.c_int64
    # The interpreter's lock is kept: to give it away would take as long as to read a hundred strings.
    return ctypes.PYFUNCTYPE(number, number, pointer, pointer, pointer, *[pointer] * keys)(into_memory(a.finish()))


@cache
def _fingerprint_loop() -> Any:
    a = Scalars()
    return over_strings(a, lambda: _stored(a, _fingerprint), 0)


def _stored(a: Scalars, hash: Callable[[Scalars], None]) -> None:
    hash(a)
    a.scalar(asm.MOVE_TO_MEMORY, _RESULT, Mem(RDX))
    a.with_number(0, RDX, 8)


def _fingerprint(a: Scalars) -> None:
    k0, k1, k2 = map(a.number, (_K0, _K1, _K2))
    few, four, one, many, more, done = range(6)
    u, v, x, y, z, w = SAVED
    factor = R11

    def letters(at: int) -> Mem:
        """The eight bytes from there on; a negative place counts from the end."""
        return Mem(_TEXT, at) if at >= 0 else Mem(_TEXT, at, index=_N)

    a.scalar(LEA, factor, Mem(_N, index=_N))
    a.add(factor, k2)
    a.with_number(7, _N, 16)
    a.jump(many, asm.ABOVE)
    a.with_number(7, _N, 8)
    a.jump(four, asm.BELOW)
    a.move(x, letters(0))
    a.add(x, k2)
    a.move(y, letters(-8))
    a.move(u, y)
    a.rotate(u, 37)
    a.multiply(u, factor)
    a.add(u, x)
    a.move(_RESULT, x)
    a.rotate(_RESULT, 25)
    a.add(_RESULT, y)
    a.multiply(_RESULT, factor)
    a.mix(u, _RESULT, factor)
    a.jump(done)

    a.label(four)
    a.with_number(7, _N, 4)
    a.jump(few, asm.BELOW)
    a.scalar(asm.MOVE, u, letters(0), wide=False)
    a.shift_left(u, 3)
    a.add(u, _N)
    a.scalar(asm.MOVE, _RESULT, letters(-4), wide=False)
    a.mix(u, _RESULT, factor)
    a.jump(done)

    a.label(few)
    a.move(_RESULT, k2)
    a.with_number(7, _N, 0)
    a.jump(done, asm.ZERO)
    a.move(u, _N)
    a.shift(u, 1)
    a.scalar(LOAD_BYTE, u, Mem(_TEXT, index=u))
    a.shift_left(u, 8)
    a.scalar(LOAD_BYTE, x, Mem(_TEXT))
    a.add(u, x)
    a.multiply(u, k2)
    a.scalar(LOAD_BYTE, y, letters(-1))
    a.shift_left(y, 2)
    a.add(y, _N)
    a.multiply(y, k0)
    a.xor(u, y)
    a.fold(u)
    a.multiply(_RESULT, u)
    a.jump(done)

    a.label(many)
    a.scalar(asm.SUB, _RESULT, _RESULT)
    a.with_number(7, _N, LONGEST)
    a.jump(done, asm.ABOVE)
    a.move(x, letters(0))
    a.move(y, k1)
    a.with_number(7, _N, 32)
    a.jump(one, asm.BELOW)
    a.jump(one, asm.ZERO)
    a.move(y, k2)
    a.label(one)
    a.multiply(x, y)  # a
    a.move(v, letters(8))  # b
    a.move(y, letters(-8))
    a.multiply(y, factor)  # c
    a.move(z, letters(-16))
    a.multiply(z, k2)  # d
    a.move(u, x)
    a.add(u, v)
    a.rotate(u, 43)
    a.move(w, y)
    a.rotate(w, 30)
    a.add(u, w)
    a.add(u, z)
    a.move(_RESULT, v)
    a.add(_RESULT, k2)
    a.rotate(_RESULT, 18)
    a.add(_RESULT, x)
    a.add(_RESULT, y)
    a.move(w, u)
    a.mix(u, _RESULT, factor)
    a.with_number(7, _N, 32)
    a.jump(more, asm.ABOVE)
    a.jump(done)
    a.label(more)  # x is still a, w is y, the result z
    a.add(w, letters(-32))
    a.multiply(w, factor)  # g
    a.add(_RESULT, letters(-24))
    a.multiply(_RESULT, factor)  # h
    a.move(y, letters(16))
    a.multiply(y, factor)  # e
    a.move(z, letters(24))  # f
    a.move(u, y)
    a.add(u, z)
    a.rotate(u, 43)
    a.add(u, _RESULT)
    a.move(v, w)
    a.rotate(v, 30)
    a.add(u, v)
    a.move(_RESULT, z)
    a.add(_RESULT, x)
    a.rotate(_RESULT, 18)
    a.add(_RESULT, y)
    a.add(_RESULT, w)
    a.mix(u, _RESULT, factor)
    a.label(done)


@cache
def _murmur_loop() -> Any:
    a = Scalars()
    return over_strings(a, lambda: _stored(a, _murmur), 0)


def _murmur(a: Scalars) -> None:
    word, last, letter, ended, done = range(5)
    left, factor = SAVED[2:4]
    a.move(factor, a.number(_MURMUR))
    a.move(left, _N)
    a.move(_RESULT, _N)
    a.multiply(_RESULT, factor)
    a.xor(_RESULT, a.number(_MURMUR_SEED))
    a.label(word)
    a.with_number(7, left, 8)
    a.jump(last, asm.BELOW)
    a.move(R11, Mem(_TEXT))
    a.multiply(R11, factor)
    a.fold(R11)
    a.multiply(R11, factor)
    a.xor(_RESULT, R11)
    a.multiply(_RESULT, factor)
    a.with_number(0, _TEXT, 8)
    a.with_number(5, left, 8)
    a.jump(word)
    a.label(last)  # the bytes that are left, if any
    a.with_number(7, left, 0)
    a.jump(done, asm.ZERO)
    a.scalar(asm.SUB, R11, R11)
    a.label(letter)
    a.with_number(7, left, 0)
    a.jump(ended, asm.ZERO)
    a.with_number(5, left, 1)
    a.shift_left(R11, 8)
    a.scalar(LOAD_BYTE, _T, Mem(_TEXT, index=left))
    a.add(R11, _T)
    a.jump(letter)
    a.label(ended)
    a.xor(_RESULT, R11)
    a.multiply(_RESULT, factor)
    a.label(done)
    a.fold(_RESULT)
    a.multiply(_RESULT, factor)
    a.fold(_RESULT)


@cache
def _siphash_loop() -> Any:
    a = Scalars()
    return over_strings(a, lambda: _stored(a, _siphash), 2)


def _siphash(a: Scalars) -> None:
    v = SAVED[2:]
    word, last, letter, ended = range(4)
    for register, key, start in zip(v, (RBX, RBP, RBX, RBP), (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573), strict=True):
        a.move(register, a.number(start))
        a.xor(register, key)
    a.move(_T, _N)
    a.label(word)
    a.with_number(7, _T, 8)
    a.jump(last, asm.BELOW)
    a.move(R11, Mem(_TEXT))
    _take(a, v)
    a.with_number(0, _TEXT, 8)
    a.with_number(5, _T, 8)
    a.jump(word)
    a.label(last)  # the bytes that are left, below the length
    a.move(R11, _N)
    a.shift_left(R11, 56)
    a.scalar(asm.SUB, _N, _N)
    a.label(letter)
    a.with_number(7, _T, 0)
    a.jump(ended, asm.ZERO)
    a.with_number(5, _T, 1)
    a.shift_left(_N, 8)
    a.scalar(LOAD_BYTE, _RESULT, Mem(_TEXT, index=_T))
    a.add(_N, _RESULT)
    a.jump(letter)
    a.label(ended)
    a.add(R11, _N)
    _take(a, v)
    a.move(_RESULT, a.number(0xFF))
    a.xor(v[2], _RESULT)
    _rounds(a, v, 4)
    a.move(_RESULT, v[0])
    for register in v[1:]:
        a.xor(_RESULT, register)


def _take(a: Scalars, v: tuple[int, ...]) -> None:
    """Takes the word in R11 into SipHash's state."""
    a.xor(v[3], R11)
    _rounds(a, v, 2)
    a.xor(v[0], R11)


def _rounds(a: Scalars, v: tuple[int, ...], count: int) -> None:
    def step(x: int, y: int, bits: int) -> None:
        a.add(x, y)
        a.rotate(y, bits)
        a.xor(y, x)

    for _ in range(count):
        step(v[0], v[1], 51)
        a.rotate(v[0], 32)
        step(v[2], v[3], 48)
        step(v[0], v[3], 43)
        step(v[2], v[1], 47)
        a.rotate(v[2], 32)
