"""Numbers written as C's printf writes them, many at once: digits as an array of letters, from which the strings are cut.

A float is scaled to a whole number and rounded; the scaled one is off by less than _DOUBT, so that this is right unless it lies that near to
the middle between two whole numbers. Those few, and what is too large or not finite, are left to Python.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from penstock.ops.kernels.many_strings import cut

_LARGEST = float(1 << 42)
_DOUBT = 1e-3
_WIDEST = 64
_MOST_DECIMALS = 12
_SHORT, _EXACT = 6, 9
"""Digits that %g shows, and those that tell all float32 apart."""
_SMALLEST_EXPONENT = -4
"""The last one that %g does not show."""


@cache
def _words(digits: int) -> np.ndarray:
    """The letters of all numbers of so many digits, at most four, as numbers of 32 bits: what is behind the digits is of no account."""
    return np.frombuffer(b"".join((b"%0*d" % (digits, i)).ljust(4) for i in range(10**digits)), np.uint32)


def _rest(values: np.ndarray, by: int) -> tuple[np.ndarray, np.ndarray]:
    """Quotients and remainders."""
    divisor = values.dtype.type(by)
    quotients = values // divisor
    return quotients, values - quotients * divisor


def _write(letters: np.ndarray, values: np.ndarray, start: int, digits: int) -> None:
    """So many of the last digits of whole numbers, with zeros in front, into the rows of `letters` from a column on, and something up to a
    multiple of four behind them."""
    last = digits % 4
    columns = range(start, start + digits, 4)
    for column in reversed(columns):
        count = last or 4
        last = 0
        values, part = _rest(values, 10**count)
        letters[:, column : column + 4].view(np.uint32)[:, 0] = _words(count).take(part)


def _counted(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Whole numbers (uint64) in no larger a type than they need, how many digits each has, and the largest number of them."""
    largest = int(values.max())
    most = len(str(largest))
    if largest < 1 << 32:
        values = values.astype(np.uint32)
    counts = np.ones(len(values), np.int8)
    for k in range(1, most):
        counts += (values >= 10**k).view(np.int8)
    return values, counts.astype(np.int64), most


def _room(rows: int, columns: int) -> np.ndarray:
    """Rows of letters, a few more than so many."""
    return np.empty((rows, -(-columns // 4) * 4 + 4), np.uint8)


def integers(values: np.ndarray, width: int, zeros: bool, shape: Any) -> np.ndarray | None:
    """%d of a vector of integers, at least `width` letters wide, with spaces or zeros in front; None for very wide ones."""
    if width > _WIDEST:
        return None
    negative = values < 0
    size = values.astype(np.uint64)
    if values.dtype.kind == "i":
        np.negative(size, out=size, where=negative)
    size, counts, most = _counted(size)
    wide = np.maximum(counts + negative, width)
    end = max(most + 1, width)
    start = end - most
    lead = -start % 4  # so that digits begin at a multiple of four
    letters = _room(len(values), lead + end)
    letters[:, : lead + start] = ord("0")
    _write(letters, size, lead + start, most)
    if width <= 1 or zeros:
        signs = end - wide
    else:
        signs = end - counts - 1
        np.putmask(letters, np.arange(letters.shape[1], dtype=np.uint8) < (lead + end - counts).astype(np.uint8)[:, None], ord(" "))
    rows = np.flatnonzero(negative)
    letters[rows, lead + signs[rows]] = ord("-")
    return cut(letters, np.arange(len(values)) * letters.shape[1] + (lead + end - wide), wide, shape)


def floats(values: np.ndarray, kind: str, precision: int, slow: Any, shape: Any) -> np.ndarray | None:
    """%f, %e or %g of a vector of float64, with so many decimals (digits that count, for %g); `slow` writes one number. None if too many are asked for."""
    if precision < 0:
        precision = 6
    decimals = precision - 1 if kind == "g" else precision
    if not 0 < decimals <= (8 if kind == "g" else _MOST_DECIMALS - (kind == "e")):
        return None
    with np.errstate(all="ignore"):
        found = _fixed(values, decimals) if kind == "f" else _scientific(values, decimals) if kind == "e" else _shortest(values, precision)
    letters, starts, lengths, is_good = found
    result = cut(letters, starts, np.where(is_good, lengths, 0), len(values))
    for i in np.flatnonzero(~is_good).tolist():
        result[i] = slow(values.item(i))
    return result.reshape(shape)


def exact(values: np.ndarray) -> list[str]:
    """%g of a vector of float32, with _SHORT digits if these tell the number, with _EXACT ones otherwise."""
    wide = values.astype(np.float64)
    texts = np.empty(len(values), object)
    with np.errstate(all="ignore"):
        scale = 10.0 ** (_SHORT - 1 - np.floor(np.log10(np.abs(wide))))
        is_far = np.abs(np.rint(wide * scale) / scale - wide) > np.maximum(np.abs(wide) * 2.0**-23, 2.0**-149)  # more than the next number is
    near = np.flatnonzero(~is_far)
    texts[near] = short = [b"%.6g" % v for v in wide[near].tolist()]
    is_far[near] = (np.array(list(map(float, short)), np.float32) != values[near]) & (values[near] == values[near])
    far = np.flatnonzero(is_far)
    if len(far):
        texts[far] = floats(wide[far], "g", _EXACT, b"%.9g".__mod__, len(far))
    return b" ".join(texts.tolist()).decode().split(" ")


def _rounded(scaled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers (uint64), and where they can be relied on."""
    whole = np.floor(scaled)
    off = np.abs(scaled - whole - 0.5)
    is_good = (scaled < _LARGEST) & (off > _DOUBT)
    return np.where(is_good, np.rint(scaled), 0.0).astype(np.uint64), is_good


def _fixed(values: np.ndarray, decimals: int) -> tuple[np.ndarray, ...]:
    numbers, is_good = _rounded(np.abs(values) * 10.0**decimals)
    letters, starts, lengths, _ = _with_point(numbers, np.signbit(values), decimals)
    return letters, starts, lengths, is_good


def _with_point(numbers: np.ndarray, negative: np.ndarray, decimals: int, behind: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Whole numbers (uint64) divided by 10**decimals, as letters, with room behind them; where in these each begins, its length without what is
    behind, and the column where they end."""
    whole, fraction = _rest(numbers, 10**decimals)
    whole, counts, most = _counted(whole)
    most += -(most + 1) % 4  # digits begin and end at multiples of four, with the point
    point = 4 + most
    end = point + 1 + decimals
    letters = _room(len(numbers), end + behind)
    letters[:, :4] = ord("0")
    _write(letters, whole // whole.dtype.type(1000), 4, most - 3)
    letters[:, point - 3 : point + 1].view(np.uint32)[:, 0] = _words(3).take(_rest(whole, 1000)[1])
    letters[:, point] = ord(".")
    _write(letters, fraction.astype(np.uint32) if decimals < 10 else fraction, point + 1, decimals)
    starts = point - counts - negative
    rows = np.flatnonzero(negative)
    letters[rows, starts[rows]] = ord("-")
    return letters, starts + np.arange(len(numbers)) * letters.shape[1], end - starts, end


def _exponents(values: np.ndarray, decimals: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(number, exponent, where they can be relied on): each value is about number * 10**(exponent - decimals), numbers have decimals + 1 digits."""
    sizes = np.abs(values)
    is_some = (sizes > 1e-15) & (sizes < 1e22)
    exponents = np.floor(np.log10(np.where(is_some, sizes, 1.0))).astype(np.int64)
    shift = decimals - exponents
    scaled = np.where(shift >= 0, sizes * 10.0 ** np.clip(shift, 0, 22), sizes / 10.0 ** np.clip(-shift, 0, 22))
    numbers, is_good = _rounded(scaled)
    is_good &= is_some & (shift <= 22) & (numbers >= 10**decimals) & (numbers < 10 ** (decimals + 1))
    is_good |= sizes == 0
    numbers[sizes == 0] = 0
    return numbers, np.where(is_good, exponents, 0), is_good


def _scientific(values: np.ndarray, decimals: int) -> tuple[np.ndarray, ...]:
    numbers, exponents, is_good = _exponents(values, decimals)
    letters, starts, lengths, end = _with_point(np.where(is_good, numbers, 0), np.signbit(values), decimals, 4)
    letters[:, end] = ord("e")
    letters[:, end + 1] = np.where(exponents < 0, ord("-"), ord("+"))
    for column, digit in enumerate(divmod(np.abs(exponents), 10), end + 2):
        letters[:, column] = digit + ord("0")
    return letters, starts, lengths + 4, is_good


def _shortest(values: np.ndarray, digits: int) -> tuple[np.ndarray, ...]:
    """%g where it shows no exponent: fixed decimals without the zeros at the end."""
    decimals = digits - 1 - _SMALLEST_EXPONENT
    numbers, exponents, is_good = _exponents(values, digits - 1)
    is_good &= (exponents >= _SMALLEST_EXPONENT) & (exponents < min(digits, 18 - decimals))
    missing = decimals - (digits - 1 - exponents)  # zeros that fill up the decimals
    numbers = np.where(is_good, numbers, 0) * 10 ** np.where(is_good, missing, 0).astype(np.uint64)
    letters, starts, lengths, _ = _with_point(numbers, np.signbit(values), decimals)
    zeros = np.zeros(len(values), np.int64)
    for k in range(1, decimals + 1):
        zeros += _rest(numbers, 10**k)[1] == 0
    zeros += zeros == decimals  # the point goes too
    return letters, starts, lengths - zeros, is_good
