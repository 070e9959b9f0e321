"""Systems of a few equations, written out: for CPUs, where a call of LAPACK costs more than what it computes, and a loop with one in it would be no program.

The kernels report matrices that are singular, or not positive definite. Here a pivot that could be nothing but rounding is a reason to doubt the results:
the host computes them again, and knows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engines.xla.rule import DOUBTS, jnp
from penstock.shapes import Dims

LARGEST = 4
"""Rows of the largest matrices that are worth it."""

SOLVED = frozenset(("MatrixInverse", "BatchMatrixInverse", "MatrixSolve", "BatchMatrixSolve", "Cholesky", "BatchCholesky"))
"""Ops whose rules know of this."""

_TYPES = (np.dtype(np.float32), np.dtype(np.float64))
_ROUNDING = 32
"""How many roundings of the largest element a pivot must be above, per row of the matrix."""


def can_eliminate(shape: Dims, dtype: np.dtype) -> bool:
    """Whether matrices of this shape, of which None is not known, are written out."""
    return shape is not None and len(shape) >= 2 and shape[-1] == shape[-2] and shape[-1] in range(1, LARGEST + 1) and None not in shape and 0 not in shape and dtype in _TYPES


def is_wanted(x: Any) -> bool:
    """Whether a rule shall write it out: somebody looks at doubts, and the matrices are small."""
    return DOUBTS.get() is not None and can_eliminate(x.shape, x.dtype)


def solve(a: Any, b: Any | None = None) -> Any:
    """x with a x = b, for stacks of one batch shape, by elimination with exchanges of rows; the inverse of `a` without b."""
    n = a.shape[-1]
    right = [jnp.broadcast_to(row, (*a.shape[:-2], n)) for row in np.eye(n, dtype=a.dtype)] if b is None else [b[..., i, :] for i in range(n)]
    rows = [jnp.concatenate([a[..., i, :], right[i]], -1) for i in range(n)]
    pivots = []
    for k in range(n):
        for i in range(k + 1, n):
            is_larger = jnp.abs(rows[i][..., k : k + 1]) > jnp.abs(rows[k][..., k : k + 1])
            rows[k], rows[i] = jnp.where(is_larger, rows[i], rows[k]), jnp.where(is_larger, rows[k], rows[i])
        pivots.append(rows[k][..., k : k + 1])
        for i in range(k + 1, n):
            rows[i] = rows[i] - rows[i][..., k : k + 1] / pivots[k] * rows[k]
    _doubt([jnp.abs(p) for p in pivots], jnp.abs(a))
    found: list[Any] = [None] * n
    for k in reversed(range(n)):
        rest = rows[k][..., n:]
        for j in range(k + 1, n):
            rest = rest - rows[k][..., j : j + 1] * found[j]
        found[k] = rest / pivots[k]
    return jnp.stack(found, -2)


def cholesky(a: Any) -> Any:
    """L with L L^T = a; only the lower triangle of `a` is read."""
    n = a.shape[-1]
    factor: dict[tuple[int, int], Any] = {}
    squares = []
    for k in range(n):
        for i in range(k, n):
            rest = a[..., i, k]
            for j in range(k):
                rest = rest - factor[i, j] * factor[k, j]
            if i == k:
                squares.append(rest)
            factor[i, k] = jnp.sqrt(rest) if i == k else rest / factor[k, k]
    _doubt(squares, jnp.tril(jnp.abs(a)))
    nothing = jnp.zeros(a.shape[:-2], a.dtype)
    return jnp.stack([jnp.stack([factor.get((i, j), nothing) for j in range(n)], -1) for i in range(n)], -2)


def _doubt(pivots: list[Any], sizes: Any) -> None:
    """NaNs and infinities are doubted too."""
    doubts = DOUBTS.get()
    assert doubts is not None
    info = np.finfo(sizes.dtype)
    least = jnp.maximum(jnp.max(sizes, (-2, -1)) * np.asarray(_ROUNDING * sizes.shape[-1] * info.eps, sizes.dtype), info.tiny)
    batch = sizes.shape[:-2]
    doubts.append(jnp.any(~(jnp.stack([jnp.reshape(p, batch) for p in pivots]) > least)))
