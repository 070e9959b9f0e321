"""Many strings at once: joined into one text, looked at as an array of letters, and cut into strings again.

Below MANY strings, kernels take them one by one. All arrays of places and lengths are int64 vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import making, texts

MANY = 64
"""Strings from which on it pays to look at all together."""


def own(strings: np.ndarray) -> np.ndarray:
    """The same strings in an array that no other thread can change: those that were measured are those that are cut."""
    return np.array(strings, object, order="C")


def lengths_of(strings: np.ndarray) -> np.ndarray:
    """How many letters each has."""
    found = texts.lengths(strings)
    if found is None:
        return np.fromiter(map(len, strings.ravel().tolist()), np.int64, strings.size)
    return found.ravel().astype(np.int64)


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """Where each begins in the text of all."""
    return np.cumsum(lengths) - lengths


def letters_of(strings: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The text of all, as an array of bytes."""
    return laid_out(int(lengths.sum()), 0, (strings, starts_of(lengths)))


def laid_out(size: int, fill: int, *columns: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """So many bytes `fill`, and in them strings, each at its place. All lie within, and none over another."""
    letters = np.full(size, fill, np.uint8)
    for strings, starts in columns:
        strings = np.ascontiguousarray(strings)
        if texts.can_read() and making.place(strings, starts, letters):
            continue
        view = letters.data
        for string, start in zip(strings.ravel().tolist(), starts.tolist(), strict=True):
            view[start : start + len(string)] = string
    return letters


def sums_of(flags: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """How many of the letters of each string have a flag; or the sum of small numbers, one for each letter."""
    total = np.empty(flags.size + 1, np.int32 if flags.size < 1 << 28 else np.int64)  # half as much memory to fill
    total[0] = 0
    np.cumsum(flags, out=total[1:])
    return (total[starts + lengths] - total[starts]).astype(np.int64)


def cut(letters: np.ndarray, starts: np.ndarray, lengths: np.ndarray, shape: Any) -> np.ndarray:
    """The strings letters[start : start + length] of a contiguous array; all lie within it."""
    if texts.can_read():
        return making.make(starts + native.address_of(letters), np.ascontiguousarray(lengths, np.int64)).reshape(shape)
    result = np.empty(len(starts), object)
    result[:] = list(map(letters.tobytes().__getitem__, map(slice, starts.tolist(), (starts + lengths).tolist())))
    return result.reshape(shape)


def parts_of(strings: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """string[start : start + length] of each; all lie within it. The array is nobody else's (`own`)."""
    strings = np.ascontiguousarray(strings)
    if texts.can_read() and texts.lengths(strings) is not None:
        addresses = making.pointers(strings) + (starts + texts.LETTERS)
        return making.make(addresses, np.ascontiguousarray(lengths, np.int64)).reshape(strings.shape)
    result = np.empty(strings.size, object)
    pieces = map(slice, starts.tolist(), (starts + lengths).tolist())
    result[:] = [s[piece] for s, piece in zip(strings.ravel().tolist(), pieces, strict=True)]
    return result.reshape(strings.shape)
