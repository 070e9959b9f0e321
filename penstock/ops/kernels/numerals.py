"""Numbers read from text, all strings at once."""

from __future__ import annotations

import numpy as np

from penstock.dtypes import DType


def numbers_at_once(values: list[bytes], dtype: DType) -> np.ndarray | None:
    """The strings read by Python's own int and float; None where TF reads some of them otherwise, or not at all."""
    text = b" ".join(values)
    if b"_" in text or (dtype.is_unsigned and b"-" in text):
        return None
    try:
        return np.array(list(map(float if dtype.is_floating else int, values)), dtype.np)
    except (ValueError, OverflowError):
        return None
