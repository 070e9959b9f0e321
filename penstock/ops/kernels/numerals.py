"""Numbers read from text, all strings at once."""

from __future__ import annotations

import numpy as np

from penstock.dtypes import DType
from penstock.ops.native.numerals import Fields, integers, split


def read_numbers(strings: np.ndarray, dtype: DType) -> np.ndarray | None:
    """The strings as a vector of numbers; None where TF reads some of them otherwise than Python, or not at all."""
    flat = strings.ravel()
    whole = integers(flat) if dtype.is_integer and not dtype.is_unsigned else None
    if whole is not None and (not whole.size or (dtype.min <= whole.min() and whole.max() <= dtype.max)):
        return whole.astype(dtype.np, copy=False)
    found = split(flat, 1, None)
    column = None if found is None else plain_column(found, 0, dtype)
    return numbers_at_once(flat.tolist(), dtype) if column is None else column


def plain_column(found: Fields, f: int, dtype: DType) -> np.ndarray | None:
    """A column of records as numbers; None if one has to be looked at."""
    if dtype.is_floating:
        return found.decimals[:, f].astype(dtype.np) if found.are_decimals[:, f].all() else None
    if dtype.is_unsigned:  # which may have no sign, not even that of -0
        return None
    values = found.integers[:, f]
    is_good = found.are_integers[:, f].all() and (not values.size or (dtype.min <= values.min() and values.max() <= dtype.max))
    return values.astype(dtype.np) if is_good else None


def numbers_at_once(values: list[bytes], dtype: DType) -> np.ndarray | None:
    """The strings read by Python's own int and float; None where TF reads some of them otherwise, or not at all."""
    text = b" ".join(values)
    if b"_" in text or (dtype.is_unsigned and b"-" in text):
        return None
    try:
        return np.array(list(map(float if dtype.is_floating else int, values)), dtype.np)
    except (ValueError, OverflowError):
        return None
