"""Strings followed through an automaton's table, letter by letter (`kernels.automaton`)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native import texts
from penstock.ops.native.assembler import R8, R9, R10, RAX, RBX, RDX, Mem

OTHER = 0xFFFF
"""Where a string with a letter beyond ASCII ends up."""
_LOAD_SHORT, _STORE_BYTE = 0x1B7, 0x88


def last_states(strings: np.ndarray, table: np.ndarray) -> np.ndarray | None:
    """The state, counted from 0, in which each string of a contiguous array ends, 255 being for those with other letters; None if they cannot be read here."""
    if not texts.can_read():
        return None
    result = np.empty(strings.shape, np.uint8)
    return result if texts.read(_loop, strings, result, np.array([native.address_of(table)])) else None


@cache
def _loop() -> Any:
    a = texts.Scalars()
    return texts.over_strings(a, lambda: _follow(a), 1)


def _follow(a: texts.Scalars) -> None:
    letter, state = R9, R10
    step, other, end = range(3)
    a.set_number(state, 256)  # the first row is for those that cannot match any more
    a.with_number(7, R8, 0)
    a.jump(end, asm.ZERO)
    a.label(step)
    a.scalar(texts.LOAD_BYTE, letter, Mem(RAX))
    a.with_number(7, letter, 128)
    a.jump(other, asm.ABOVE_EQUAL)
    a.scalar(texts.LEA, state, Mem(state, index=letter, scale=2))
    a.scalar(_LOAD_SHORT, state, Mem(RBX, index=state))
    a.with_number(0, RAX, 1)
    a.with_number(5, R8, 1)
    a.jump(step, asm.NOT_ZERO)
    a.jump(end)
    a.label(other)
    a.set_number(state, OTHER)
    a.label(end)
    a.shift(state, 8)
    a.scalar(_STORE_BYTE, state, Mem(RDX))
    a.with_number(0, RDX, 1)
