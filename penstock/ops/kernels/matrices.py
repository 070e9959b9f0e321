"""Solving and factorising stacks of matrices: what NumPy's linalg lacks, and its errors in TF's words."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.kernels import lapack
from penstock.ops.kernels.numeric import NARROW, widen
from penstock.ops.native import factors, triangular
from penstock.shapes import format_dims

Array = np.ndarray
_BLOCK = 48  # below this size, rows are eliminated one by one
_TINY = 1 << 12  # multiplications for which it is quicker to call LAPACK once


def adjoint(x: Array) -> Array:
    """The conjugate transpose of each matrix."""
    x = np.swapaxes(x, -1, -2)
    return np.conj(x) if x.dtype.kind == "c" else x


def in_wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that computes half and bfloat16 in float32 and rounds every result back."""

    def kernel(*values: Any, **attrs: Any) -> Any:
        dtype = values[0].dtype
        if dtype not in NARROW:
            return function(*values, **attrs)
        result = function(*(widen(v) if v.dtype == dtype else v for v in values), **attrs)
        if isinstance(result, (list, tuple)):
            return [r.astype(dtype) if r.dtype.kind == "f" else r for r in result]
        return result.astype(dtype)

    kernel.__wrapped__ = function  # type: ignore[attr-defined]
    return kernel


def check_matrix(x: Any, which: int = 0) -> Array:
    x = np.asarray(x)
    if x.ndim < 2:
        raise InvalidArgumentError(f"Input tensor {which} must have rank >= 2, got {x.ndim}")
    return x


def check_square(x: Any, text: str = "Input matrix must be square.") -> Array:
    x = check_matrix(x)
    if x.shape[-1] != x.shape[-2]:
        raise InvalidArgumentError(text)
    return x


def invertible(function: Callable[..., Array], text: str, *values: Array) -> Array:
    """Calls a NumPy solver; an exactly singular matrix is an InvalidArgumentError."""
    try:
        return function(*values)
    except np.linalg.LinAlgError:
        raise InvalidArgumentError(text) from None


def check_solve(matrix: Any, rhs: Any) -> tuple[Array, Array]:
    matrix, rhs = check_matrix(matrix), check_matrix(rhs, 1)
    if matrix.shape[-1] != matrix.shape[-2]:
        raise InvalidArgumentError("First input (lhs) must be a square matrix.")
    if matrix.shape[-2] != rhs.shape[-2] or matrix.ndim != rhs.ndim or matrix.shape[:-2] != rhs.shape[:-2]:
        raise InvalidArgumentError("Input matrix and rhs are incompatible.")
    return matrix, rhs


# -- triangular systems -----------------------------------------------------------------------------------------------


def solve_lower(a: Array, b: Array) -> Array:
    """x with tril(a) x = b; batches broadcast. A zero on the diagonal gives infinities and NaNs, as in TF."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.array(np.broadcast_to(b, batch + b.shape[-2:]), dtype=a.dtype)
    _forward(a, x)
    return x


def _forward(a: Array, x: Array) -> None:
    """Overwrites x by the solution: two halves, joined by a matrix product."""
    n = a.shape[-1]
    if n > _BLOCK:
        h = n // 2
        _forward(a[..., :h, :h], x[..., :h, :])
        x[..., h:, :] -= np.matmul(a[..., h:, :h], x[..., :h, :])
        _forward(a[..., h:, h:], x[..., h:, :])
        return
    for i in range(n):
        if i:
            x[..., i, :] -= np.matmul(a[..., i : i + 1, :i], x[..., :i, :])[..., 0, :]
        x[..., i, :] /= a[..., i, i, None]


def solve_triangular(a: Array, b: Array, lower: bool, adjoint_a: bool) -> Array:
    n, batch = a.shape[-1], a.shape[:-2]
    if a.dtype == b.dtype and (batch == b.shape[:-2] or not batch) and triangular.can_solve(a.dtype):
        return triangular.solve(a, b, lower, adjoint_a)
    if adjoint_a:
        a, lower = adjoint(a), not lower
    matrices = int(np.prod(batch))
    # Row by row, all matrices of the stack together, or matrix by matrix.
    by_lapack = a.shape[:-2] == b.shape[:-2] and a.dtype == b.dtype and b.size and 2 * matrices < n and lapack.can_compute(a.dtype)
    if by_lapack and np.diagonal(a, axis1=-2, axis2=-1).all():
        systems = zip(np.ascontiguousarray(a).reshape(-1, n, n), np.ascontiguousarray(b).reshape(-1, *b.shape[-2:]), strict=True)
        return np.stack([lapack.solve_triangular(*system, lower) for system in systems]).reshape(b.shape)
    if lower:
        return solve_lower(a, b)
    # An upper system is a lower one read backwards.
    return solve_lower(a[..., ::-1, ::-1], b[..., ::-1, :])[..., ::-1, :]


# -- LU ---------------------------------------------------------------------------------------------------------------


def lu(x: Array) -> tuple[Array, Array]:
    """(L and U in one matrix, permutation p with x[p] = L U), by partial pivoting."""
    n = x.shape[-1]
    if not x.size:
        return x, np.zeros(x.shape[:-1], np.int64)
    if factors.can_factor(x.dtype, n) or (n >= 8 and lapack.can_compute(x.dtype)):
        found = lapack.lu(x.reshape(-1, n, n))
        if found is None or np.isnan(np.diagonal(found[0], axis1=1, axis2=2)).any():
            raise InvalidArgumentError("Input is not invertible.")
        return found[0].reshape(x.shape), found[1].reshape(x.shape[:-1])
    a = x.copy()
    flat = a.reshape(-1, n, n)
    order = np.tile(np.arange(n), (flat.shape[0], 1))
    rows = np.arange(flat.shape[0])
    for k in range(n):
        pivot = k + np.argmax(np.abs(flat[:, k:, k]), axis=1)
        for table in (flat, order):
            table[rows, k], table[rows, pivot] = table[rows, pivot].copy(), table[rows, k].copy()
        head = flat[:, k, k]
        if (head == 0).any() or np.isnan(head).any():
            raise InvalidArgumentError("Input is not invertible.")
        flat[:, k + 1 :, k] /= head[:, None]
        flat[:, k + 1 :, k + 1 :] -= flat[:, k + 1 :, k, None] * flat[:, k, None, k + 1 :]
    return flat.reshape(x.shape), order.reshape(x.shape[:-1])


# -- least squares ----------------------------------------------------------------------------------------------------


@lapack.on_one_thread
def least_squares(a: Array, b: Array, l2: float, fast: bool) -> Array:
    """argmin |a x - b|^2 + l2 |x|^2 through the normal equations; without `fast` the x of least norm, and no l2."""
    m, n = a.shape[-2:]
    if fast:
        h = adjoint(a)
        try:
            if m >= n:
                gram = np.matmul(h, a) + l2 * np.eye(n, dtype=a.dtype)
                return _cholesky_solve(gram, np.matmul(h, b))
            gram = np.matmul(a, h) + l2 * np.eye(m, dtype=a.dtype)
            return np.matmul(h, _cholesky_solve(gram, b))
        except np.linalg.LinAlgError:
            more = "a larger" if m >= n else "an"
            raise InvalidArgumentError(
                f"Input matrix was rank deficient or ill-conditioned. Try setting fast=False or provide {more} l2_regularizer > 0."
            ) from None
    epsilon = float(np.finfo(a.dtype).eps) * min(m, n)  # of the largest singular value: as much is lost on the way, and TF takes it for zero
    if a.dtype.kind == "c" or a.size * min(m, n) < _TINY or a.shape[:-2] != b.shape[:-2]:
        return _least_norm(a.astype(np.complex128 if a.dtype.kind == "c" else np.float64), b, epsilon).astype(a.dtype)
    left, right = a.reshape(-1, m, n).astype(np.float64), b.reshape(-1, m, b.shape[-1]).astype(np.float64)
    with np.errstate(all="ignore"):
        x, condition = _of_full_rank(left, right)
    bad = ~(condition * epsilon < 1 / 16)
    if bad.any():  # singular values that are too small do not count
        x[bad] = _least_norm(left[bad], right[bad], epsilon)
    return x.reshape(*a.shape[:-2], n, -1).astype(a.dtype)


def _of_full_rank(a: Array, b: Array) -> tuple[Array, Array]:
    """(the x of least norm, an upper bound of the condition) for each matrix, by QR."""
    m, n = a.shape[-2:]
    columns, k = b.shape[-1], min(m, n)
    one = np.broadcast_to(np.eye(k), (len(a), k, k))
    if m >= n:
        r = lapack.triangle(np.concatenate((a, b), -1))
        r, b = r[:, :n, :n], r[:, :n, n:]
        both = solve_triangular(r, np.concatenate((b, one), -1), lower=False, adjoint_a=False)
        x = both[..., :columns]
    else:
        q, r = lapack.qr(adjoint(a))
        both = solve_triangular(r, np.concatenate((b, one), -1), lower=False, adjoint_a=True)
        x = np.matmul(q, both[..., :columns])
    return x, (_size(r) * _size(both[..., columns:])).reshape(-1)


def _least_norm(a: Array, b: Array, epsilon: float) -> Array:
    u, values, vh = lapack.svd(a, full_matrices=False)
    counts = values > epsilon * np.max(values, -1, keepdims=True, initial=0)
    parts = np.matmul(adjoint(u), b) * (counts / np.where(counts, values, 1))[..., None]
    return np.matmul(adjoint(vh), parts)


def _cholesky_solve(gram: Array, b: Array) -> Array:
    factor = lapack.cholesky(gram)
    return solve_triangular(factor, solve_triangular(factor, b, lower=True, adjoint_a=False), lower=True, adjoint_a=True)


# -- functions of matrices --------------------------------------------------------------------------------------------


@lapack.on_one_thread
def logarithm(x: Array) -> Array:
    """The principal logarithm of complex matrices, V log(lambda) V^-1: by real eigenvalues where they are Hermitian and have positive ones."""
    wide = x.astype(np.complex128)
    finite = np.isfinite(x).all(axis=(-2, -1), keepdims=True)
    if not finite.all():
        return np.where(finite, logarithm(np.where(finite, x, np.eye(x.shape[-1], dtype=x.dtype))), np.nan).astype(x.dtype)
    if (x == adjoint(x)).all():
        values, vectors = lapack.eigh(wide if np.imag(wide).any() else np.ascontiguousarray(np.real(wide)))
        if values.min() > 0:
            return np.matmul(vectors * np.log(values)[..., None, :], adjoint(vectors)).astype(x.dtype)
    values, vectors = lapack.eig(wide)
    defective = ~(np.linalg.cond(vectors) < DEFECTIVE)
    logarithms = np.log(values)
    if not defective.any():
        return np.matmul(vectors * logarithms[..., None, :], lapack.inv(vectors)).astype(x.dtype)
    result = np.empty(wide.shape, np.complex128)
    for place in np.ndindex(wide.shape[:-2]):
        found = _logarithm_by_roots(wide[place], values[place]) if defective[place] else None
        result[place] = np.matmul(vectors[place] * logarithms[place], np.linalg.pinv(vectors[place])) if found is None else found
    return result.astype(x.dtype)


DEFECTIVE = 1e6
"""The condition of eigenvectors that tell less than half of a logarithm's digits."""


def _logarithm_by_roots(x: Array, values: Array) -> Array | None:
    """The logarithm of one matrix that has too few eigenvectors: that of a root near one, by Gauss's formula for the integral of (x - 1) / (1 + t (x - 1)), times the root's degree.

    Roots want no eigenvalue to be negative: if one is, all are turned by a right angle before and back after. None where that does not help, and for singular matrices."""
    angles = np.angle(values)
    is_negative = np.pi - np.abs(angles) < 1e-6
    turn = np.pi / 2 if is_negative.any() else 0.0
    if not values.all() or np.any(np.where(is_negative, np.pi, angles) - turn < 1e-6 - np.pi):
        return None
    one, degree = np.eye(len(x)), 1
    x = x * np.exp(-1j * turn)
    while np.max(np.abs(x - one)) > 0.1 and degree < 1 << 50:
        x, degree = square_root(x), 2 * degree
    nodes, weights = np.polynomial.legendre.leggauss(8)
    rest = x - one
    return degree * sum(w / 2 * np.linalg.solve(one + (t + 1) / 2 * rest, rest) for t, w in zip(nodes, weights)) + 1j * turn * one


@lapack.on_one_thread
def square_root(x: Array) -> Array:
    """The principal square root: by eigenvalues where the matrices are Hermitian and have no negative ones, otherwise by the Denman-Beavers iteration in its
    product form, which also does defective matrices."""
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    if (wide == adjoint(wide)).all():
        values, vectors = lapack.eigh(wide)
        if values.min() >= 0:
            return np.matmul(vectors * np.sqrt(values)[..., None, :], adjoint(vectors)).astype(x.dtype)
    root, rest, one = wide, wide, np.eye(x.shape[-1])
    for _ in range(60):
        inverse = invertible(lapack.inv, "Input is not invertible.", rest)
        # `rest` goes to one; scaled so that it and its inverse are equally large, it does so sooner.
        scale = np.sqrt(_size(inverse) / _size(rest))
        factor = (one + inverse / scale) / 2
        root = np.sqrt(scale) * np.matmul(root, factor)
        distance = np.max(np.abs(rest - one))
        rest = (one + (rest * scale + inverse / scale) / 2) / 2
        if distance <= 1e-8:  # the step has squared it
            break
    return root.astype(x.dtype)


def _size(x: Array) -> Array:
    return np.sqrt(np.einsum("...ij,...ij->...", x, np.conj(x)).real)[..., None, None]


@lapack.on_one_thread
def exponential(x: Array) -> Array:
    """exp of each matrix: scaling, a Taylor series, squaring."""
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    norm = np.max(np.sum(np.abs(wide), axis=-2), initial=0)
    squarings = max(0, int(np.ceil(np.log2(norm))) + 3) if norm > 0 and np.isfinite(norm) else 0
    scaled = wide / 2.0**squarings
    term = np.broadcast_to(np.eye(x.shape[-1], dtype=wide.dtype), wide.shape)
    total = term
    for k in range(1, 18):
        term = np.matmul(term, scaled) / k
        total = total + term
    for _ in range(squarings):
        total = np.matmul(total, total)
    return total.astype(x.dtype)


# -- tridiagonal and banded systems -----------------------------------------------------------------------------------


def tridiagonal_solve(diagonals: Array, rhs: Array, pivoting: bool) -> Array:
    """Solves T x = rhs, T given as [..., 3, n]: super-, main and subdiagonal. Gaussian elimination on a band of width 4."""
    n, count = diagonals.shape[-1], math.prod(diagonals.shape[:-2])
    if pivoting and n > 1 and rhs.size and diagonals.shape[:-2] == rhs.shape[:-2] and lapack.can_compute(diagonals.dtype):
        found = lapack.solve_tridiagonal(diagonals.reshape(count, 3, n), rhs.reshape(count, n, -1))
        if found is not None:
            return np.ascontiguousarray(found).reshape(rhs.shape)
    upper, main, lower = (np.array(diagonals[..., i, :]) for i in range(3))
    x = np.array(rhs)
    second = np.zeros_like(main)  # the second superdiagonal, which row exchanges fill
    for i in range(n - 1):
        if pivoting:
            swap = np.abs(lower[..., i + 1]) > np.abs(main[..., i])
            a, b = main[..., i].copy(), lower[..., i + 1].copy()
            main[..., i], lower[..., i + 1] = np.where(swap, b, a), np.where(swap, a, b)
            a, b = upper[..., i].copy(), main[..., i + 1].copy()
            upper[..., i], main[..., i + 1] = np.where(swap, b, a), np.where(swap, a, b)
            if i + 2 < n:
                b = upper[..., i + 1].copy()
                second[..., i], upper[..., i + 1] = np.where(swap, b, 0), np.where(swap, 0, b)
            a, b = x[..., i, :].copy(), x[..., i + 1, :].copy()
            x[..., i, :], x[..., i + 1, :] = np.where(swap[..., None], b, a), np.where(swap[..., None], a, b)
        factor = lower[..., i + 1] / main[..., i]
        main[..., i + 1] -= factor * upper[..., i]
        if i + 2 < n:
            upper[..., i + 1] -= factor * second[..., i]
        x[..., i + 1, :] -= factor[..., None] * x[..., i, :]
    for i in range(n - 1, -1, -1):
        if i + 1 < n:
            x[..., i, :] -= upper[..., i, None] * x[..., i + 1, :]
        if i + 2 < n:
            x[..., i, :] -= second[..., i, None] * x[..., i + 2, :]
        x[..., i, :] /= main[..., i, None]
    return x


def tridiagonal_product(upper: Array, main: Array, lower: Array, rhs: Array) -> Array:
    """T rhs; each diagonal comes as [..., 1, n], the first of `lower` and the last of `upper` are not read."""
    column = [np.swapaxes(d, -1, -2) for d in (upper, main, lower)]
    result = column[1] * rhs
    result[..., :-1, :] += column[0][..., :-1, :] * rhs[..., 1:, :]
    result[..., 1:, :] += column[2][..., 1:, :] * rhs[..., :-1, :]
    return result


def from_bands(bands: Array, lower: bool) -> Array:
    """The triangular matrix whose diagonals are the rows of `bands`: main first for lower ones, last for upper ones."""
    count, n = bands.shape[-2:]
    result = np.zeros((*bands.shape[:-2], n, n), dtype=bands.dtype)
    for k in range(min(count, n)):
        steps = np.arange(n - k)
        if lower:
            result[..., steps + k, steps] = bands[..., k, k:]
        else:
            result[..., steps, steps + k] = bands[..., count - 1 - k, : n - k]
    return result


def incompatible_triangular(matrix: Array, rhs: Array) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"In[0] mismatch In[1] shape: {matrix.shape[-1]} vs. {rhs.shape[-2]}: {format_dims(matrix.shape)} {format_dims(rhs.shape)} 1 0"
    )
