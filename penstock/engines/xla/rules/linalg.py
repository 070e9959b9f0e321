"""Linear systems, determinants and factorisations of stacks of matrices. Half and bfloat16 are computed in float32.

A compiled program cannot report a singular matrix: the ops whose CPU kernels do carry `raises`, and give NaNs or infinities here. On CPUs
all but very small matrices (`elimination`) stay with NumPy's LAPACK (`heavy`): XLA calls another build of the same, whose eigenvectors may have other signs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.engines.xla import elimination
from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import jax, jnp, lax, rule
from penstock.engines.xla.rules.matmul import adjoint as adjoint_of
from penstock.ops.kernels.numeric import NARROW, narrow, widen

_EXACT = "highest"  # products inside of factorisations


def in_wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that computes half and bfloat16 in float32 and rounds every result back."""

    @functools.wraps(function)
    def wrapped(*values: Any, **attrs: Any) -> Any:
        dtype = values[0].dtype
        if dtype not in NARROW:
            return function(*values, **attrs)
        result = function(*(widen(v) for v in values), **attrs)
        if isinstance(result, list):
            return [narrow(r, dtype) if r.dtype.kind == "f" else r for r in result]
        return narrow(result, dtype)

    return wrapped


def _need_square(x: Any) -> None:
    need(x.ndim >= 2 and x.shape[-1] == x.shape[-2], "a matrix that is not square")


def _product(x: Any, y: Any) -> Any:
    return jnp.matmul(x, y, precision=_EXACT)


# -- systems ----------------------------------------------------------------------------------------------------------


@rule("MatrixInverse", "BatchMatrixInverse", raises=True, heavy=True)
@in_wide
def inverse(x: Any, *, adjoint: bool) -> Any:
    _need_square(x)
    if 0 in x.shape:
        return x
    x = adjoint_of(x) if adjoint else x
    return elimination.solve(x) if elimination.is_wanted(x) else jnp.linalg.inv(x)


@rule("MatrixSolve", "BatchMatrixSolve", raises=True, heavy=True)
@in_wide
def solve(matrix: Any, rhs: Any, *, adjoint: bool) -> Any:
    _need_square(matrix)
    need(rhs.shape[:-1] == matrix.shape[:-1], "a right side that does not fit the matrix")
    if 0 in rhs.shape:
        return jnp.zeros(rhs.shape, rhs.dtype)
    matrix = adjoint_of(matrix) if adjoint else matrix
    return (elimination.solve if elimination.is_wanted(matrix) else jnp.linalg.solve)(matrix, rhs)


def solve_triangular(a: Any, b: Any, lower: bool, adjoint: bool) -> Any:
    """x with op(triangle of a) x = b; batches broadcast."""
    _need_square(a)
    need(b.ndim >= 2 and a.shape[-1] == b.shape[-2], "a right side that does not fit the matrix")
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        return need(False, "batches that do not fit")
    a, b = (jnp.broadcast_to(t, batch + t.shape[-2:]) for t in (a, b))
    if 0 in b.shape:
        return jnp.zeros(b.shape, b.dtype)
    return lax.linalg.triangular_solve(a, b, left_side=True, lower=lower, transpose_a=adjoint, conjugate_a=adjoint)


@rule("MatrixTriangularSolve", "BatchMatrixTriangularSolve", heavy=True)
@in_wide
def triangular_solve(matrix: Any, rhs: Any, *, lower: bool, adjoint: bool) -> Any:
    return solve_triangular(matrix, rhs, lower, adjoint)


def _from_bands(bands: Any, lower: bool) -> Any:
    """The triangular matrix whose diagonals are the rows of `bands`: main first for lower ones, last for upper ones."""
    count, n = bands.shape[-2:]
    result = jnp.zeros((*bands.shape[:-2], n, n), bands.dtype)
    for k in range(min(count, n)):
        steps = np.arange(n - k)
        if lower:
            result = result.at[..., steps + k, steps].set(bands[..., k, k:])
        else:
            result = result.at[..., steps, steps + k].set(bands[..., count - 1 - k, : n - k])
    return result


@rule("BandedTriangularSolve", heavy=True)
@in_wide
def banded_solve(matrix: Any, rhs: Any, *, lower: bool, adjoint: bool) -> Any:
    need(matrix.ndim >= 2, "bands of something else than a matrix")
    return solve_triangular(_from_bands(matrix, lower), rhs, lower, adjoint)


@rule("TridiagonalMatMul")
def tridiagonal_matmul(upper: Any, main: Any, lower: Any, rhs: Any) -> Any:
    above, centre, below = (jnp.swapaxes(d, -1, -2) for d in (upper, main, lower))
    result = centre * rhs
    result = result.at[..., :-1, :].add(above[..., :-1, :] * rhs[..., 1:, :])
    return result.at[..., 1:, :].add(below[..., 1:, :] * rhs[..., :-1, :])


# -- determinants -----------------------------------------------------------------------------------------------------


@rule("MatrixDeterminant", "BatchMatrixDeterminant", heavy=True)
@in_wide
def determinant(x: Any) -> Any:
    _need_square(x)
    return jnp.ones(x.shape[:-2], x.dtype) if 0 in x.shape else jnp.linalg.det(x)


@rule("LogMatrixDeterminant", heavy=True)
@in_wide
def log_determinant(x: Any) -> list[Any]:
    _need_square(x)
    need(0 not in x.shape, "an empty matrix")
    sign, log = jnp.linalg.slogdet(x)
    return [sign, log.astype(x.dtype)]


# -- factorisations ---------------------------------------------------------------------------------------------------


@rule("Cholesky", "BatchCholesky", raises=True, heavy=True)
@in_wide
def cholesky(x: Any) -> Any:
    _need_square(x)
    if 0 in x.shape:
        return x
    if elimination.is_wanted(x):
        return elimination.cholesky(x)
    # Only the lower triangle is read.
    return lax.linalg.cholesky(x, symmetrize_input=False)


@rule("CholeskyGrad", "BatchCholeskyGrad", heavy=True)
@in_wide
def cholesky_grad(factor: Any, grad: Any) -> Any:
    _need_square(factor)
    need(factor.shape == grad.shape, "a gradient that does not fit")
    factor = jnp.tril(factor)
    middle = jnp.tril(_product(adjoint_of(factor), jnp.tril(grad)))
    eye = np.eye(factor.shape[-1], dtype=bool)
    middle = jnp.where(eye, middle * 0.5, middle)
    left = solve_triangular(factor, middle, True, True)
    whole = adjoint_of(solve_triangular(factor, adjoint_of(left), True, True))
    return (whole + adjoint_of(whole)) * 0.5


@rule("Qr", heavy=True)
@in_wide
def qr(x: Any, *, full_matrices: bool) -> list[Any]:
    need(x.ndim >= 2 and 0 not in x.shape, "an empty matrix")
    return list(jnp.linalg.qr(x, mode="complete" if full_matrices else "reduced"))


@rule("Svd", "BatchSvd", heavy=True)
@in_wide
def svd(x: Any, *, compute_uv: bool, full_matrices: bool) -> list[Any]:
    need(x.ndim >= 2 and 0 not in x.shape, "an empty matrix")
    if not compute_uv:
        nothing = jnp.zeros((0,), x.dtype)
        return [jnp.linalg.svd(x, compute_uv=False).astype(x.dtype), nothing, nothing]
    u, s, vh = jnp.linalg.svd(x, full_matrices=full_matrices)
    return [s.astype(x.dtype), u, adjoint_of(vh)]


def _eigh(x: Any, compute_v: bool) -> list[Any]:
    _need_square(x)
    need(0 not in x.shape, "an empty matrix")
    if not compute_v:
        values = jnp.linalg.eigvalsh(x, UPLO="L", symmetrize_input=False)
        return [values.astype(x.dtype), jnp.zeros((0,), x.dtype)]
    e, v = jnp.linalg.eigh(x, UPLO="L", symmetrize_input=False)
    return [e.astype(x.dtype), v]


@rule("SelfAdjointEigV2", "BatchSelfAdjointEigV2", heavy=True)
@in_wide
def self_adjoint_eig(x: Any, *, compute_v: bool) -> list[Any]:
    return _eigh(x, compute_v)


@rule("SelfAdjointEig", "BatchSelfAdjointEig", heavy=True)
@in_wide
def self_adjoint_eig_v1(x: Any) -> Any:
    """Eigenvalues in the first row, eigenvectors below."""
    e, v = _eigh(x, True)
    return jnp.concatenate([e[..., None, :], v], -2)


@rule("Lu", raises=True, heavy=True)
@in_wide
def lu(x: Any, *, output_idx_type: DType) -> list[Any]:
    _need_square(x)
    need(0 not in x.shape, "an empty matrix")
    packed, _, order = lax.linalg.lu(x)
    return [packed, order.astype(output_idx_type.np)]


@rule("MatrixExponential", heavy=True)
@in_wide
def exponential(x: Any) -> Any:
    _need_square(x)
    need(0 not in x.shape, "an empty matrix")
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    return jax.scipy.linalg.expm(wide).astype(x.dtype)
