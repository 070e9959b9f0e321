"""Products of matrices of any type: np.matmul, which has no BLAS for integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.ops.native import products, tiny

SMALL_PRODUCT = 1 << 13
"""Multiplications up to which NumPy's own loop over integers is the quickest."""


def product(x: Any, y: Any) -> Any:
    """np.matmul(x, y); sums of integers are taken in float64 where that is exact."""
    if x.ndim > 2 and (found := tiny.products(x, y)) is not None:
        return found
    dtype = x.dtype
    inner = x.shape[-1]
    if dtype.kind not in "iu" or y.dtype != dtype or x.size * y.shape[-1] <= SMALL_PRODUCT or not y.size:
        return np.matmul(x, y)
    if y.shape[-1] == 1:  # what other ways copy takes longer than to multiply
        return np.einsum("...ij,...j->...i", x, y[..., 0])[..., np.newaxis]
    if _largest(x) * _largest(y) * inner < 1 << 53:
        return np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(np.int64).astype(dtype)
    if x.ndim == y.ndim == 2 and products.can_multiply(dtype):
        return products.multiply(x, y)
    if dtype.itemsize > 4 or inner > 1 << 20:
        return np.matmul(x, y)
    # Modulo 2**32 the product of the upper halves does not count.
    (low_x, high_x), (low_y, high_y) = _halves(x), _halves(y)
    low = np.matmul(low_x, low_y).astype(np.int64)
    high = (np.matmul(low_x, high_y) + np.matmul(high_x, low_y)).astype(np.int64)
    return (low + (high << 16)).astype(dtype)


def _largest(x: Any) -> int:
    return max(int(x.max()), -int(x.min()))


def _halves(x: Any) -> tuple[Any, Any]:
    """Lower and upper 16 bits, as float64."""
    wide = x.astype(np.int64)
    return (wide & 0xFFFF).astype(np.float64), ((wide >> 16) & 0xFFFF).astype(np.float64)
