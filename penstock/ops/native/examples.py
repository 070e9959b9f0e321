"""Where the values of features lie in serialised tf.train.Example protos: a walk over their tags and lengths.

Only what writers usually write is followed: each part once and in order, lists packed, of strings one. Anything else ends the walk, and protobuf reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from penstock.ops.native import assembler as asm
from penstock.ops.native import texts
from penstock.ops.native.assembler import R8, R9, R10, R11, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, Mem

BYTES, FLOATS, INTEGERS = 0x0A, 0x12, 0x1A
"""Tags of the three kinds of lists."""
_KEY, _VALUE = 0x0A, 0x12
_START, _LENGTH, _KIND, _COUNT = range(4)
_WIDTH = 4
_COMPARE_BYTES = 0x3A


class Places(NamedTuple):
    """One row for each example, one column for each key."""

    starts: np.ndarray
    lengths: np.ndarray
    """Of a list of numbers, packed; or of the one string."""
    kinds: np.ndarray
    """BYTES, FLOATS, INTEGERS; 0 where there is no such feature, or it has no list."""
    are_there: np.ndarray
    """Whether the list has something in it (a string may be empty)."""


def find(examples: np.ndarray, keys: Sequence[bytes]) -> Places | None:
    """The features `keys` of a contiguous vector of serialised examples; None if one of those is written in an unusual way, or cannot be read here."""
    if not texts.can_read() or not keys or len(set(keys)) < len(keys):  # a feature is given to the first who asks for it
        return None
    table = np.zeros((examples.size, len(keys), _WIDTH), np.int64)
    addresses = np.array([(texts.address_of_letters(key), len(key)) for key in keys])
    wanted = np.array([addresses.ctypes.data]), np.array([len(keys)])
    if not texts.read(_loop, examples, table, *wanted):
        return None
    starts, lengths, kinds, counts = (table[:, :, i] for i in range(_WIDTH))
    return Places(starts, lengths, kinds, counts > 0)


@cache
def _loop() -> Any:
    a = texts.Scalars()
    return texts.over_strings(a, lambda: _walk(a), 2)


def _walk(a: texts.Scalars) -> None:
    """The features of one example: RBX has the addresses and lengths of keys, RBP their number."""
    letter, end, key, key_length = texts.SAVED[2:]
    at, length, behind = R11, R10, R9
    entry, search, compare, following, found, skip, fail, finished, free = range(9)
    labels = iter(range(free, free + 100))
    kept = {RCX: Mem(RSP, -8), RSI: Mem(RSP, -16), RDI: Mem(RSP, -24)}  # the red zone: nothing is called from here

    def expect(tag: int) -> None:
        a.scalar(texts.LOAD_BYTE, letter, Mem(RAX, index=at))
        a.with_number(7, letter, tag)
        a.jump(fail, asm.NOT_ZERO)
        a.with_number(0, at, 1)

    def read_length() -> None:
        """Up to three bytes. None of them is behind the string: a zero ends it, which ends a number too."""
        done = next(labels)
        a.scalar(texts.LOAD_BYTE, length, Mem(RAX, index=at))
        a.with_number(0, at, 1)
        for shift in (7, 14):
            a.with_number(7, length, (1 << shift))
            a.jump(done, asm.BELOW)
            a.with_number(5, length, 1 << shift)  # the bit that says that there is more
            a.scalar(texts.LOAD_BYTE, letter, Mem(RAX, index=at))
            a.with_number(0, at, 1)
            a.shift_left(letter, shift)
            a.add(length, letter)
        a.with_number(7, length, 1 << 21)
        a.jump(fail, asm.ABOVE_EQUAL)
        a.label(done)
        a.move(behind, at)
        a.add(behind, length)

    def must_end_at(place: int) -> None:
        a.scalar(asm.CMP, behind, place)
        a.jump(fail, asm.NOT_ZERO)

    for register, place in kept.items():
        a.scalar(asm.MOVE_TO_MEMORY, register, place)
    a.set_number(at, 0)
    expect(_KEY)
    read_length()
    must_end_at(R8)

    a.label(entry)
    a.scalar(asm.CMP, at, R8)
    a.jump(finished, asm.ZERO)
    expect(_KEY)
    read_length()
    a.scalar(asm.CMP, behind, R8)
    a.jump(fail, asm.ABOVE)
    a.move(end, behind)
    expect(_KEY)
    read_length()
    a.scalar(asm.CMP, behind, end)
    a.jump(fail, asm.ABOVE)
    a.move(key, RAX)
    a.add(key, at)
    a.move(key_length, length)
    a.move(at, behind)
    expect(_VALUE)
    read_length()
    must_end_at(end)

    a.move(RSI, RBX)
    a.move(RDI, RBP)
    a.move(RCX, RDX)
    a.label(search)
    a.with_number(7, RDI, 0)
    a.jump(skip, asm.ZERO)
    a.scalar(asm.CMP, key_length, Mem(RSI, 8))
    a.jump(following, asm.NOT_ZERO)
    a.set_number(length, 0)
    a.move(behind, Mem(RSI))
    a.label(compare)
    a.scalar(asm.CMP, length, key_length)
    a.jump(found, asm.ZERO)
    a.scalar(texts.LOAD_BYTE, letter, Mem(key, index=length))
    a.scalar(_COMPARE_BYTES, letter, Mem(behind, index=length), wide=False)
    a.jump(following, asm.NOT_ZERO)
    a.with_number(0, length, 1)
    a.jump(compare)
    a.label(following)
    a.with_number(0, RSI, 16)
    a.with_number(0, RCX, 8 * _WIDTH)
    a.with_number(5, RDI, 1)
    a.jump(search)

    a.label(found)
    a.move(letter, Mem(RCX, 8 * _KIND))
    a.with_number(7, letter, 0)  # the same key once more: the last one counts, even if it is empty
    a.jump(fail, asm.NOT_ZERO)
    a.scalar(asm.CMP, at, end)
    a.jump(skip, asm.ZERO)
    a.scalar(texts.LOAD_BYTE, key, Mem(RAX, index=at))
    a.with_number(0, at, 1)
    known = next(labels)
    for kind in (BYTES, FLOATS, INTEGERS):
        a.with_number(7, key, kind)
        a.jump(known, asm.ZERO)
    a.jump(fail)
    a.label(known)
    read_length()
    must_end_at(end)
    a.scalar(asm.MOVE_TO_MEMORY, key, Mem(RCX, 8 * _KIND))
    a.scalar(asm.CMP, at, end)
    a.jump(skip, asm.ZERO)
    expect(_KEY)
    read_length()
    must_end_at(end)
    for which, register in ((_START, at), (_LENGTH, length), (_COUNT, key)):
        a.scalar(asm.MOVE_TO_MEMORY, register, Mem(RCX, 8 * which))
    a.label(skip)
    a.move(at, end)
    a.jump(entry)

    a.label(fail)
    a.move(RDI, kept[RDI])
    a.jump(texts.STOP)
    a.label(finished)
    for register, place in kept.items():
        a.move(register, place)
    a.move(length, RBP)
    a.shift_left(length, 5)  # bytes of a row
    a.add(RDX, length)
