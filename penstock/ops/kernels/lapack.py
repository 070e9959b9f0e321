"""What NumPy's own LAPACK (OpenBLAS, in its wheels) can do beyond `np.linalg`: triangular systems and LU. None of it where NumPy has another one.

Also stacks of matrices on several threads: `np.linalg` takes one after the other.
"""

from __future__ import annotations

import ctypes
import glob
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from penstock.ops.kernels import threads

_LETTERS = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
_ROW_MAJOR, _NO_TRANSPOSE, _UPPER, _LOWER, _NON_UNIT, _LEFT = 101, 111, 121, 122, 131, 141


@cache
def _library() -> Any:
    """The library that NumPy has loaded, of the kind with 64-bit sizes."""
    found = glob.glob(os.path.join(os.path.dirname(os.path.dirname(np.__file__)), "numpy.libs", "libscipy_openblas64_*"))
    try:
        return ctypes.CDLL(found[0]) if len(found) == 1 else None
    except OSError:
        return None


@cache
def _function(name: str) -> Any:
    return getattr(_library(), name, None)


def can_compute(dtype: np.dtype) -> bool:
    letter = _LETTERS.get(dtype)
    return letter is not None and _function(f"scipy_{letter}getrf_64_") is not None and _function(f"scipy_cblas_{letter}trsm64_") is not None


def solve_triangular(a: np.ndarray, b: np.ndarray, lower: bool) -> np.ndarray:
    """x with a x = b for two contiguous matrices of one type."""
    x = b.copy()
    scalar = ctypes.c_float if a.dtype == np.float32 else ctypes.c_double
    size = ctypes.c_int64
    n, columns = x.shape
    _function(f"scipy_cblas_{_LETTERS[a.dtype]}trsm64_")(
        _ROW_MAJOR, _LEFT, _LOWER if lower else _UPPER, _NO_TRANSPOSE, _NON_UNIT, size(n), size(columns), scalar(1), ctypes.c_void_p(a.ctypes.data),
        size(n), ctypes.c_void_p(x.ctypes.data), size(columns),
    )  # fmt: skip
    return x


def lu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """(L and U in one matrix, permutation) of a square matrix; None if it is singular."""
    a = np.array(x, order="F")
    n = ctypes.c_int64(len(a))
    exchanges, info = np.empty(len(a), np.int64), ctypes.c_int64()
    reference = ctypes.byref
    _function(f"scipy_{_LETTERS[a.dtype]}getrf_64_")(
        reference(n), reference(n), ctypes.c_void_p(a.ctypes.data), reference(n), ctypes.c_void_p(exchanges.ctypes.data), reference(info)
    )
    if info.value:
        return None
    order = list(range(len(a)))
    for i, j in enumerate(exchanges.tolist()):
        order[i], order[j - 1] = order[j - 1], order[i]
    return np.ascontiguousarray(a), np.array(order)


# -- stacks on threads ----------------------------------------------------------------------------------------------------------

_WORTH_THREADS = 1 << 17
"""Multiplications, about, from which two threads pay."""


def shared(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `np.linalg` of stacks of matrices with equal batch dimensions; large stacks are shared out among threads. Results are arrays or tuples of them."""

    def run(*arrays: np.ndarray, **options: Any) -> Any:
        first = arrays[0]
        batch = first.shape[:-2]
        count = int(np.prod(batch))
        pieces = min(4, count, 10 * first.size * first.shape[-1] // _WORTH_THREADS)
        if pieces < 2 or any(a.shape[:-2] != batch for a in arrays):
            return function(*arrays, **options)
        stacks = [a.reshape(count, *a.shape[-2:]) for a in arrays]
        bounds = [count * i // pieces for i in range(pieces + 1)]
        results: list[Any] = [None] * pieces

        def work(i: int) -> None:
            results[i] = function(*(s[bounds[i] : bounds[i + 1]] for s in stacks), **options)

        threads.parallel_for(pieces, work)

        def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
            whole = np.concatenate(parts)
            return whole.reshape(*batch, *whole.shape[1:])

        return tuple(map(joined, zip(*results, strict=True))) if isinstance(results[0], tuple) else joined(results)

    return run


cholesky, inv, det, slogdet, solve, qr, svd, eigh, eigvalsh = map(
    shared,
    (np.linalg.cholesky, np.linalg.inv, np.linalg.det, np.linalg.slogdet, np.linalg.solve, np.linalg.qr, np.linalg.svd, np.linalg.eigh, np.linalg.eigvalsh),
)
