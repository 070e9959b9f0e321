"""LAPACK, that of NumPy (OpenBLAS, in its wheels): stacks of matrices on our threads, each in its own precision, and what `np.linalg` lacks.

`np.linalg` takes one matrix of a stack after the other and computes float32 in float64. OpenBLAS's threads are kept out of it (`blas`).
Functions by name (`lu`, triangular systems, inverses of large matrices) only where NumPy has this library.
"""

from __future__ import annotations

import ctypes
import glob
import math
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from penstock.ops.kernels import blas, threads
from penstock.ops.native import cholesky as small_cholesky
from penstock.ops.native import factors, reflections, rotations, triangular, tridiagonal

try:
    from numpy.linalg import _umath_linalg as _loops
except ImportError:  # another NumPy
    _loops = None

_LETTERS = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
_ROW_MAJOR, _NO_TRANSPOSE, _UPPER, _LOWER, _NON_UNIT, _LEFT = 101, 111, 121, 122, 131, 141

def on_one_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with BLAS's threads kept out of it, where that is possible."""
    chosen: Callable[..., Any] | None = None

    def run(*arrays: Any, **options: Any) -> Any:
        nonlocal chosen
        if chosen is None:
            chosen = blas.alone(function) or function
        return chosen(*arrays, **options)

    return run


# -- functions by name --------------------------------------------------------------------------------------------------


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


@on_one_thread
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


_WORTH_THE_LOCK = 48
"""Rows of matrices from which on threads that take turns with the interpreter's lock, to begin with the next one each, are worth having."""


@cache
def _factorization(dtype: np.dtype) -> Any:
    function = _function(f"scipy_{_LETTERS[dtype]}getrf_64_")
    function.argtypes, function.restype = [ctypes.c_void_p] * 6, None
    return function


def factor(stack: np.ndarray) -> np.ndarray | None:
    """LU of the transposes of matrices, in place (contiguous): in each a lower triangle U^T and a unit upper one L^T, for x[:, order] = U^T L^T.

    The result is `order` of each; None if one of them is singular.
    """
    count, n = stack.shape[:2]
    function = _factorization(stack.dtype)
    exchanges, info, size = np.empty((count, n), np.int64), np.zeros(count, np.int64), np.array([n])
    (a, e, s), n_at = (x.ctypes.data for x in (stack, exchanges, info)), size.ctypes.data
    a_step, e_step = stack.strides[0], exchanges.strides[0]

    def work(first: int, end: int) -> None:
        for i in range(first, end):
            function(n_at, n_at, a + i * a_step, n_at, e + i * e_step, s + i * 8)

    if n < _WORTH_THE_LOCK:
        work(0, count)
    else:
        _share_out(count, stack.size * n, work)
    return None if info.any() else factors.order_of(exchanges - 1)


def solve_tridiagonal(diagonals: np.ndarray, rhs: np.ndarray) -> np.ndarray | None:
    """x with T x = rhs, T given as [count, 3, n]: super-, main and subdiagonal, by elimination with exchanges of rows. None if one T is singular."""
    count, _, n = diagonals.shape
    function = _function(f"scipy_{_LETTERS[diagonals.dtype]}gtsv_64_")
    upper, main, lower = (np.array(diagonals[:, i], order="C") for i in range(3))
    x = np.array(np.swapaxes(rhs, -1, -2), order="C")
    info, sizes = np.zeros(count, np.int64), np.array([n, x.shape[1]])
    pointer, row = ctypes.c_void_p, main.strides[0]
    n_at, columns_at = pointer(sizes.ctypes.data), pointer(sizes.ctypes.data + 8)
    u, m, low, b, s = (array.ctypes.data for array in (upper, main, lower, x, info))
    for i in range(count):
        at = i * row
        function(n_at, columns_at, pointer(low + at + main.itemsize), pointer(m + at), pointer(u + at), pointer(b + i * x.strides[0]), n_at, pointer(s + i * 8))
    return None if info.any() else np.swapaxes(x, -1, -2)


def lu(stack: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """(L and U in one matrix, order) with x[order] = L U of square matrices x; None if one is singular."""
    return factors.lu(stack) if factors.can_factor(stack.dtype, stack.shape[-1]) else _lu_of_large(stack)


@on_one_thread
def _lu_of_large(stack: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    a = np.array(stack.transpose(0, 2, 1), order="C")  # a copy even of what lies in this order: it is overwritten
    order = factor(a)
    return None if order is None else (np.ascontiguousarray(a.transpose(0, 2, 1)), order)


# -- stacks on threads ----------------------------------------------------------------------------------------------------------

_WORTH_THREADS = 1 << 17
"""Multiplications, about, from which two threads pay."""


def _pieces(count: int, work: int) -> int:
    """Into how many pieces to divide `count` matrices, with the size of all times the rows of one being `work`."""
    return min(4, count, 10 * work // _WORTH_THREADS)


def _share_out(count: int, work: int, run: Callable[[int, int], Any]) -> None:
    """run(first, end) for parts of the matrices, on several threads if there is much to do."""
    pieces = max(1, _pieces(count, work))
    threads.parallel_for(pieces, lambda i: run(count * i // pieces, count * (i + 1) // pieces))


def shared(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `np.linalg` of stacks of matrices with equal batch dimensions; large stacks are shared out among threads. Results are arrays or tuples of them."""

    def run(*arrays: np.ndarray, **options: Any) -> Any:
        first = arrays[0]
        batch = first.shape[:-2]
        count = math.prod(batch)
        pieces = _pieces(count, first.size * first.shape[-1])
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

    on_one = on_one_thread(run)

    def few_or_many(*arrays: np.ndarray, **options: Any) -> Any:
        # LAPACK takes no threads for so little, and need not be told.
        return (function if arrays[0].size <= _VERY_SMALL else on_one)(*arrays, **options)

    return few_or_many


_VERY_SMALL = 1024
"""Elements, of all matrices."""


# -- in their own precision ------------------------------------------------------------------------------------------------------


def _fail(*_: Any) -> None:
    raise np.linalg.LinAlgError("Singular matrix, or no convergence")


_IGNORED = {"invalid": "ignore", "over": "ignore", "divide": "ignore", "under": "ignore"}
_RAISING = {**_IGNORED, "invalid": "call", "call": _fail}
"""NumPy's loops tell of failures as if an operation had been invalid."""


def _own(otherwise: Callable[..., Any], name: str, types: str, failures: bool = True) -> Callable[..., Any]:
    """NumPy's loop `name` for float32 and complex64; `otherwise`, the function of `np.linalg`, for other types. `types` has T for the type, R for the real one."""
    loop = getattr(_loops, name, None)
    flags: Any = _RAISING if failures else _IGNORED

    def run(*arrays: np.ndarray) -> Any:
        letter = arrays[0].dtype.char
        if loop is None or letter not in "fF" or any(a.dtype.char != letter for a in arrays):
            return otherwise(*arrays)
        with np.errstate(**flags):
            return loop(*arrays, signature=types.replace("T", letter).replace("R", "f"))

    return run


_values_only = _own(lambda x: np.linalg.svd(x, compute_uv=False), "svd", "T->R")
_all_columns = _own(lambda x: tuple(np.linalg.svd(x)), "svd_f", "T->TRT")
_few_columns = _own(lambda x: tuple(np.linalg.svd(x, full_matrices=False)), "svd_s", "T->TRT")


def _svd(x: np.ndarray, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    return (_all_columns if full_matrices else _few_columns)(x) if compute_uv else _values_only(x)


_MANY_ELEMENTS = 4096
"""Matrices with so many elements or more, together, are factorised and inverted by machine code."""

_invert_small = shared(_own(np.linalg.inv, "inv", "T->T"))


def _invert_middle(x: np.ndarray) -> np.ndarray:
    n = x.shape[-1]
    found = factors.lu(x.reshape(-1, n, n))
    if found is None:
        raise np.linalg.LinAlgError("Singular matrix")
    stack, order = found
    inverse = np.eye(n, dtype=x.dtype)[order]
    triangular.solve_in_place(stack, inverse, lower=True, transposed=False, unit=True)
    triangular.solve_in_place(stack, inverse, lower=False, transposed=False)
    return inverse.reshape(x.shape)


@on_one_thread
def _invert_large(x: np.ndarray) -> np.ndarray:
    n = x.shape[-1]
    stack = np.array(x.reshape(-1, n, n), order="C")
    order = factor(stack)
    if order is None:
        raise np.linalg.LinAlgError("Singular matrix")
    # x[:, order] = U^T L^T, so the rows of (U^T L^T)^-1 are those of x^-1 in this order.
    inverse = triangular.solve(stack, np.broadcast_to(np.eye(n, dtype=x.dtype), stack.shape), lower=True, transposed=False)
    triangular.solve_in_place(stack, inverse, lower=False, transposed=False, unit=True)
    result = np.empty_like(inverse)
    result.reshape(-1, n)[(order + n * np.arange(len(stack))[:, None]).ravel()] = inverse.reshape(-1, n)
    return result.reshape(x.shape)


def inv(x: np.ndarray) -> np.ndarray:
    """The inverse of each matrix; LinAlgError if one has none."""
    n = x.shape[-1]
    if x.size < _MANY_ELEMENTS or not triangular.can_solve(x.dtype):
        return _invert_small(x)
    if factors.can_factor(x.dtype, n):
        return _invert_middle(x)
    return _invert_large(x) if can_compute(x.dtype) else _invert_small(x)


_cholesky_large, _solve_few = shared(_own(np.linalg.cholesky, "cholesky_lo", "T->T")), shared(_own(np.linalg.solve, "solve", "TT->T"))
det, slogdet = shared(_own(np.linalg.det, "det", "T->T", failures=False)), shared(_own(np.linalg.slogdet, "slogdet", "T->TR", failures=False))
_eigh_large, _eigvalsh_large = shared(_own(np.linalg.eigh, "eigh_lo", "T->RT")), shared(_own(np.linalg.eigvalsh, "eigvalsh_lo", "T->R"))
_qr_large, _svd_large = shared(np.linalg.qr), shared(_svd)
eig, eigvals = shared(np.linalg.eig), shared(np.linalg.eigvals)


def cholesky(x: np.ndarray) -> np.ndarray:
    """The lower triangular factor of symmetric matrices, of which the lower triangle is read; LinAlgError if one is not positive definite."""
    found = small_cholesky.factor(x) if small_cholesky.can_factor(x) else None
    return _cholesky_large(x) if found is None else found  # which also knows what NaN is


def solve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x with a x = b, for stacks of equal shape; LinAlgError if a matrix has no inverse."""
    n, columns = b.shape[-2:]
    if a.size < _MANY_ELEMENTS or columns < 2 or a.dtype != b.dtype or a.shape[:-2] != b.shape[:-2] or not (triangular.can_solve(a.dtype) and factors.can_factor(a.dtype, n)):
        return _solve_few(a, b)
    found = factors.lu(a.reshape(-1, n, n))
    if found is None:
        raise np.linalg.LinAlgError("Singular matrix")
    stack, order = found
    x = b.reshape(-1, columns)[(order + n * np.arange(len(stack))[:, None]).ravel()].reshape(-1, n, columns)
    triangular.solve_in_place(stack, x, lower=True, transposed=False, unit=True)
    triangular.solve_in_place(stack, x, lower=False, transposed=False)
    return x.reshape(b.shape)


def eigh(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of symmetric matrices, of which the lower triangle is read."""
    found = tridiagonal.eigh(x) if tridiagonal.can_reduce(x) else None
    return _eigh_large(x) if found is None else found  # type: ignore[return-value]


def eigvalsh(x: np.ndarray) -> np.ndarray:
    found = tridiagonal.eigh(x, vectors=False) if tridiagonal.can_reduce(x) else None
    return _eigvalsh_large(x) if found is None else found[0]


def svd(x: np.ndarray, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """As np.linalg.svd."""
    if (not compute_uv or not full_matrices or x.shape[-1] == x.shape[-2]) and rotations.can_rotate(x):
        found = rotations.svd(x, compute_uv)
        if found is not None:
            return found if compute_uv else found[1]
    return _svd_large(x, full_matrices=full_matrices, compute_uv=compute_uv)


def qr(x: np.ndarray, mode: str = "reduced") -> tuple[np.ndarray, np.ndarray]:
    """As np.linalg.qr."""
    return reflections.qr(x, mode == "complete") if reflections.can_reflect(x) else _qr_large(x, mode=mode)


def triangle(x: np.ndarray) -> np.ndarray:
    """R alone."""
    return reflections.triangle(x) if reflections.can_reflect(x) else _qr_large(x, mode="r")
