"""Replacing letters of one kind, or runs of them, in many strings: `[0-9]+`, `[^a-z]`, `,`. Matches are found by looking at all letters at once."""

from __future__ import annotations

import numpy as np

from penstock.ops import native
from penstock.ops.kernels.automaton import LETTERS, Letters
from penstock.ops.kernels.many_strings import cut, lengths_of, letters_of, starts_of
from penstock.ops.native import making, texts


def replaced(strings: np.ndarray, kind: Letters, by: bytes, everywhere: bool) -> np.ndarray | None:
    """The strings with their first or all matches replaced; None if there are letters beyond ASCII, or no machine code."""
    if not texts.can_read():
        return None
    sizes = lengths_of(strings)
    letters = letters_of(strings, sizes)
    if not letters.size:
        return strings
    if letters.max() >= LETTERS:
        return None
    is_like = kind.table[letters]
    opens = np.zeros(letters.size, np.int32)
    starts = starts_of(sizes)
    some = np.flatnonzero(sizes)
    opens[starts[some]] = 1
    if kind.is_run:
        goes_on = np.append(False, is_like[:-1]) & (opens == 0)  # the letter before is like it, and of the same string
        begins = np.flatnonzero(is_like & ~goes_on)
        ends = np.flatnonzero(is_like & ~np.append(goes_on[1:] & is_like[1:], False)) + 1
    else:
        begins = np.flatnonzero(is_like)
        ends = begins + 1
    which = np.cumsum(opens, dtype=np.int32)[begins] - 1  # of the strings that have letters
    if not everywhere:
        is_first = np.append(True, which[1:] != which[:-1])[: len(which)]
        begins, ends, which = begins[is_first], ends[is_first], which[is_first]
    if not len(begins):
        return strings
    # What lies between the matches, and what comes in the place of each.
    between = np.append(0, ends), np.append(begins, letters.size)
    addresses, lengths = np.empty((2, 2 * len(begins) + 1), np.int64)
    addresses[0::2], lengths[0::2] = between[0] + native.address_of(letters), between[1] - between[0]
    addresses[1::2], lengths[1::2] = texts.address_of_letters(by), len(by)
    sizes[some] += np.bincount(which, len(by) - (ends - begins), len(some)).astype(np.int64)
    result = np.empty(int(sizes.sum()), np.uint8)
    making.gather(addresses, lengths, result)
    return cut(result, starts_of(sizes), sizes, strings.shape)
