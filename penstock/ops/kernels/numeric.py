"""Which precision a kernel computes in: half and bfloat16 are widened to float32 and rounded once, at the end."""

from __future__ import annotations

from functools import cache, lru_cache

import ml_dtypes
import numpy as np

from penstock.ops import native
from penstock.ops.native import BFLOAT16

HALF, SINGLE = np.dtype(np.float16), np.dtype(np.float32)
NARROW = frozenset((HALF, BFLOAT16))


def widen(x: np.ndarray) -> np.ndarray:
    """`x` in the precision to compute in; no copy unless it is half or bfloat16."""
    return to_single(x) if x.dtype in NARROW else x


def narrow(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`x` rounded to `dtype`; no copy if it already has it."""
    if x.dtype == dtype:
        return x
    if x.dtype != SINGLE:
        return x.astype(dtype)
    return to_half(x) if dtype == HALF else to_bfloat16(x) if dtype == BFLOAT16 else x.astype(dtype)


ROUNDED = {dtype: native.Loop(lambda x: x, "f32", result=dtype) for dtype in (HALF, BFLOAT16, SINGLE)}
"""Loops that make these types of others, by way of float32."""


def to_half(x: np.ndarray) -> np.ndarray:
    """float32 rounded to half. NumPy does that one by one."""
    found = ROUNDED[HALF].run(x) if x.size >= native.SMALL else None
    return x.astype(HALF) if found is None else found


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 rounded to bfloat16."""
    found = ROUNDED[BFLOAT16].run(x) if x.size >= native.SMALL else None
    return x.astype(BFLOAT16) if found is None else found


def to_single(x: np.ndarray) -> np.ndarray:
    """Half or bfloat16 as float32."""
    found = ROUNDED[SINGLE].run(x) if x.size >= native.SMALL and x.dtype in NARROW else None
    return x.astype(SINGLE) if found is None else found


@cache
def lowest(dtype: np.dtype):
    """The smallest finite value of `dtype`."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return ml_dtypes.finfo(dtype).min


def column_sums(x: np.ndarray) -> np.ndarray:
    """Sums over the first axis of a matrix. Long columns are summed in stretches, which keeps rounding errors small."""
    from penstock.ops.native import segments  # which needs `lowest`

    rows, stretch = x.shape[0], 256
    if rows <= 2 * stretch:
        return np.add.reduce(x, 0)
    if x.dtype.kind == "f" and x.flags.c_contiguous:
        parts = segments.reduce_groups(np.add, x, _groups(rows, stretch), -(-rows // stretch), 0)
        if parts is not None:
            return column_sums(parts)
    whole = rows // stretch * stretch
    parts = np.add.reduce(x[:whole].reshape(whole // stretch, stretch, x.shape[1]), 1)
    total = column_sums(parts)
    if whole < rows:
        total += np.add.reduce(x[whole:], 0)
    return total


@lru_cache(16)
def _groups(rows: int, stretch: int) -> np.ndarray:
    """Which stretch each row belongs to."""
    return np.arange(rows, dtype=np.int32) // stretch
