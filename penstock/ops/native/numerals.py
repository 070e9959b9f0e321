"""Numbers in text: where the fields of records begin, and what those that are plain decimals say."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from penstock.ops.native import assembler as asm
from penstock.ops.native import texts
from penstock.ops.native.assembler import R8, R9, R10, R11, RAX, RBP, RBX, RDX, Mem

LONGEST = 18
"""Letters of a field that is read here: its digits fit into 64 bits."""
_EXACT = 1 << 53
_POWERS = 10.0 ** np.arange(LONGEST + 1)
_DIGITS, _DECIMALS, _START, _LENGTH, _SIGN, _OTHERS, _POINTS = range(7)
_WIDTH = 7
"""Numbers that are noted of each field: these."""
_NO_DELIMITER = 1 << 10


class Fields(NamedTuple):
    """One row for each record, one column for each field."""

    starts: np.ndarray
    lengths: np.ndarray
    are_integers: np.ndarray
    """Plain ones of at most LONGEST letters."""
    are_decimals: np.ndarray
    """Digits with a point among them or none, that a float64 holds."""
    integers: np.ndarray
    decimals: np.ndarray


def split(records: np.ndarray, fields: int, delimiter: bytes | None) -> Fields | None:
    """The fields of a contiguous vector of records. None if one of them is empty, has another number of fields, or has quotes or line feeds, or if
    records cannot be read here. Without a delimiter the record is the field."""
    if not texts.can_read() or (delimiter is not None and delimiter in b"0123456789.+-"):
        return None
    table = np.zeros((records.size, fields, _WIDTH), np.int64)
    keys = (np.array([_NO_DELIMITER if delimiter is None else delimiter[0]]), np.array([fields]))
    if not texts.read(_loop, records, table, *keys):
        return None
    digits, decimals, starts, lengths, sign, others, points = (table[:, :, i] for i in range(_WIDTH))
    plain = (others == 0) & (lengths <= LONGEST) & (lengths > (sign != 0) + points)
    negative = sign == ord("-")
    exact = digits / _POWERS[np.where(plain, decimals, 0)]
    return Fields(
        starts, lengths, plain & (points == 0), plain & (digits < _EXACT), np.where(negative, -digits, digits), np.where(negative, -exact, exact)
    )


def integers(strings: np.ndarray) -> np.ndarray | None:
    """A contiguous vector of strings as int64; None if one is no plain integer of at most LONGEST digits, or they cannot be read here."""
    if not texts.can_read():
        return None
    result = np.empty(strings.size, np.int64)
    return result if texts.read(_integer_loop, strings, result) else None


@cache
def _integer_loop() -> Any:
    a = texts.Scalars()
    return texts.over_strings(a, lambda: _integer(a), 0)


def _integer(a: texts.Scalars) -> None:
    letter, negative, value = R9, R10, R11
    minus, signed, digits, digit = range(4)

    def next_letter() -> None:
        a.with_number(0, RAX, 1)
        a.with_number(5, R8, 1)

    a.with_number(7, R8, 0)
    a.jump(texts.STOP, asm.ZERO)
    a.set_number(negative, 0)
    a.scalar(texts.LOAD_BYTE, letter, Mem(RAX))
    a.with_number(7, letter, ord("-"))
    a.jump(minus, asm.ZERO)
    a.with_number(7, letter, ord("+"))
    a.jump(signed, asm.ZERO)
    a.jump(digits)
    a.label(minus)
    a.with_number(5, negative, 1)
    a.label(signed)
    next_letter()
    a.jump(texts.STOP, asm.ZERO)
    a.label(digits)
    a.with_number(7, R8, LONGEST)
    a.jump(texts.STOP, asm.ABOVE)
    a.set_number(value, 0)
    a.label(digit)
    a.scalar(texts.LOAD_BYTE, letter, Mem(RAX))
    a.with_number(5, letter, ord("0"))
    a.with_number(7, letter, 9)
    a.jump(texts.STOP, asm.ABOVE)
    a.scalar(texts.LEA, value, Mem(value, index=value, scale=4))
    a.scalar(texts.LEA, value, Mem(letter, index=value, scale=2))
    next_letter()
    a.jump(digit, asm.NOT_ZERO)
    a.xor(value, negative)  # with -1, less -1: the negative
    a.scalar(asm.SUB, value, negative)
    a.scalar(asm.MOVE_TO_MEMORY, value, Mem(RDX))
    a.with_number(0, RDX, 8)


@cache
def _loop() -> Any:
    a = texts.Scalars()
    return texts.over_strings(a, lambda: _fields(a), 2)


def _fields(a: texts.Scalars) -> None:
    """Each field in turn: RBX is the delimiter, RBP the number of fields."""
    digits, decimals, letter, left = texts.SAVED[2:]
    at, start, after_point = R11, R10, R9
    field, character, other, sign, bad, end, last, done = range(8)

    def note(which: int, register: int) -> None:
        a.scalar(asm.MOVE_TO_MEMORY, register, Mem(RDX, 8 * which))

    a.with_number(7, R8, 0)
    a.jump(texts.STOP, asm.ZERO)
    a.move(left, RBP)
    a.set_number(at, 0)
    a.label(field)
    a.move(start, at)
    for register in (digits, decimals, after_point):
        a.set_number(register, 0)
    a.label(character)
    a.scalar(asm.CMP, at, R8)
    a.jump(end, asm.ZERO)
    a.scalar(texts.LOAD_BYTE, letter, Mem(RAX, index=at))
    a.scalar(asm.CMP, letter, RBX)
    a.jump(end, asm.ZERO)
    a.with_number(0, at, 1)
    a.with_number(5, letter, ord("0"))
    a.with_number(7, letter, 10)
    a.jump(other, asm.ABOVE_EQUAL)
    a.multiply(digits, a.number(10))
    a.add(digits, letter)
    a.add(decimals, after_point)
    a.jump(character)

    a.label(other)
    a.with_number(0, letter, ord("0"))
    for quote in b'"\r\n':
        a.with_number(7, letter, quote)
        a.jump(texts.STOP, asm.ZERO)
    for mark in b"+-":
        a.with_number(7, letter, mark)
        a.jump(sign, asm.ZERO)
    a.with_number(7, letter, ord("."))
    a.jump(bad, asm.NOT_ZERO)
    a.with_number(7, after_point, 0)
    a.jump(bad, asm.NOT_ZERO)
    a.set_number(after_point, 1)
    a.jump(character)
    a.label(sign)
    note(_SIGN, letter)
    a.with_number(0, start, 1)
    a.scalar(asm.CMP, at, start)
    a.jump(last, asm.ZERO)
    a.with_number(5, start, 1)
    a.label(bad)
    a.with_number(1, letter, 1)  # or: not even a zero byte is none
    note(_OTHERS, letter)
    a.jump(character)
    a.label(last)  # it stands first, as it should
    a.with_number(5, start, 1)
    a.jump(character)

    a.label(end)
    note(_DIGITS, digits)
    note(_DECIMALS, decimals)
    note(_START, start)
    note(_POINTS, after_point)
    a.move(letter, at)
    a.scalar(asm.SUB, letter, start)
    note(_LENGTH, letter)
    a.with_number(0, RDX, 8 * _WIDTH)
    a.with_number(5, left, 1)
    a.jump(done, asm.ZERO)
    a.scalar(asm.CMP, at, R8)
    a.jump(texts.STOP, asm.ZERO)
    a.with_number(0, at, 1)
    a.jump(field)
    a.label(done)
    a.scalar(asm.CMP, at, R8)
    a.jump(texts.STOP, asm.NOT_ZERO)
