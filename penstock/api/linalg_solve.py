"""Solving, factorising and functions of matrices in the public API (tf.cholesky, tf.svd, tf.matrix_solve, tf.linalg.expm, ...)."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api import math_ops
from penstock.api.array_ops import concat, expand_dims, matrix_transpose, reshape, shape, squeeze, stack
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.api.linalg_ops import diag_part, matmul, matrix_band_part, matrix_diag, matrix_set_diag
from penstock.api.math_reduce import reduce_node
from penstock.graph.constant import constant
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

# -- one op each ------------------------------------------------------------------------------------------------------


@export("cholesky", "linalg.cholesky")
def cholesky(input: Any, name: str | None = None) -> Tensor:
    """The lower triangular L with L L^H = input, of positive definite matrices. Only the lower triangle is read."""
    return raw.Cholesky(input, name=name)


@export("matrix_inverse", "linalg.inv")
def matrix_inverse(input: Any, adjoint: bool = False, name: str | None = None) -> Tensor:
    """The inverse of each matrix (of its adjoint, if asked); InvalidArgumentError for a singular one."""
    return raw.MatrixInverse(input, adjoint=adjoint, name=name)


@export("matrix_determinant", "linalg.det")
def matrix_determinant(input: Any, name: str | None = None) -> Tensor:
    """The determinant of each matrix."""
    return raw.MatrixDeterminant(input, name=name)


@export("linalg.slogdet")
def slogdet(input: Any, name: str | None = None) -> Any:
    """(sign, log |det|) of each matrix."""
    return raw.LogMatrixDeterminant(input, name=name)


@export("matrix_solve", "linalg.solve")
def matrix_solve(matrix: Any, rhs: Any, adjoint: bool = False, name: str | None = None) -> Tensor:
    """x with matrix x = rhs (with the adjoint of the matrix, if asked)."""
    return raw.MatrixSolve(matrix, rhs, adjoint=adjoint, name=name)


@export("matrix_square_root", "linalg.sqrtm")
def matrix_square_root(input: Any, name: str | None = None) -> Tensor:
    """The principal square root of each matrix."""
    return raw.MatrixSquareRoot(input, name=name)


@export("linalg.logm")
def matrix_logarithm(input: Any, name: str | None = None) -> Tensor:
    """The logarithm of each (complex) matrix."""
    return raw.MatrixLogarithm(input, name=name)


@export("linalg.lu")
def lu(input: Any, output_idx_type: Any = dtypes.int32, name: str | None = None) -> Any:
    """(lu, p): the factors of each matrix in one, and the permutation with input[p] = L U."""
    return raw.Lu(input, output_idx_type=output_idx_type, name=name)


@export("qr", "linalg.qr")
def qr(input: Any, full_matrices: bool = False, name: str | None = None) -> Any:
    """(q, r) with input = q r, q orthonormal and r upper triangular."""
    return raw.Qr(input, full_matrices=full_matrices, name=name)


@export("svd", "linalg.svd")
def svd(tensor: Any, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None) -> Any:
    """(s, u, v) with tensor = u diag(s) v^H, or just s. Note that v comes as it is, not as its adjoint."""
    s, u, v = raw.Svd(tensor, compute_uv=compute_uv, full_matrices=full_matrices, name=name)
    return (math_ops.real(s), u, v) if compute_uv else math_ops.real(s)


@export("self_adjoint_eig", "linalg.eigh")
def self_adjoint_eig(tensor: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """(e, v): eigenvalues in ascending order and eigenvectors (columns) of self-adjoint matrices."""
    e, v = raw.SelfAdjointEigV2(tensor, compute_v=True, name=name)
    return e, v


@export("self_adjoint_eigvals", "linalg.eigvalsh")
def self_adjoint_eigvals(tensor: Any, name: str | None = None) -> Tensor:
    """The eigenvalues of self-adjoint matrices, in ascending order."""
    return raw.SelfAdjointEigV2(tensor, compute_v=False, name=name)[0]


@export("matrix_triangular_solve", "linalg.triangular_solve")
def matrix_triangular_solve(matrix: Any, rhs: Any, lower: bool = True, adjoint: bool = False, name: str | None = None) -> Tensor:
    """x with matrix x = rhs for triangular matrices; the other triangle is not read."""
    with name_scope(name, "triangular_solve", [matrix, rhs]):
        return raw.MatrixTriangularSolve(matrix, rhs, lower=lower, adjoint=adjoint)


# -- composed ---------------------------------------------------------------------------------------------------------


@export("cholesky_solve", "linalg.cholesky_solve")
def cholesky_solve(chol: Any, rhs: Any, name: str | None = None) -> Tensor:
    """x with A x = rhs, given A's Cholesky factor."""
    with name_scope(name, "cholesky_solve", [chol, rhs]):
        y = raw.MatrixTriangularSolve(chol, rhs, adjoint=False, lower=True)
        return raw.MatrixTriangularSolve(chol, y, adjoint=True, lower=True)


@export("matrix_solve_ls", "linalg.lstsq")
def matrix_solve_ls(matrix: Any, rhs: Any, l2_regularizer: Any = 0.0, fast: bool = True, name: str | None = None) -> Tensor:
    """x that minimises |matrix x - rhs|^2 + l2_regularizer |x|^2.

    `fast` goes through the normal equations, which square the condition number; without it, an orthogonal factorisation
    gives the solution of least norm (and the regulariser is not used).
    """
    matrix, rhs = convert_to_tensor(matrix, name="matrix"), convert_to_tensor(rhs, name="rhs")
    if not fast:
        return raw.MatrixSolveLs(matrix, rhs, l2_regularizer, fast=False, name=name)
    dims = matrix.dims
    if dims is None or None in dims[-2:]:
        return raw.MatrixSolveLs(matrix, rhs, l2_regularizer, fast=True, name=name)
    with name_scope(name, "matrix_solve_ls", [matrix, rhs, l2_regularizer]):
        tall = dims[-2] >= dims[-1]
        gram = matmul(matrix, matrix, adjoint_a=tall, adjoint_b=not tall)
        if isinstance(l2_regularizer, Tensor) or l2_regularizer != 0:
            ridge = math_ops.cast(convert_to_tensor(l2_regularizer, name="l2_regularizer"), matrix.dtype)
            eye = constant(np.eye(min(dims[-2:])), dtype=matrix.dtype.base_dtype)
            gram = gram + ridge * eye  # type: ignore[operator]
        factor = cholesky(gram)
        if tall:
            return cholesky_solve(factor, matmul(matrix, rhs, adjoint_a=True))
        return matmul(matrix, cholesky_solve(factor, rhs), adjoint_a=True)


@export("linalg.logdet")
def logdet(matrix: Any, name: str | None = None) -> Tensor:
    """log det of positive definite matrices, by their Cholesky factors."""
    with name_scope(name, "logdet", [matrix]):
        factor = cholesky(matrix)
        real = math_ops.real(diag_part(factor)) if factor.dtype.is_complex else diag_part(factor)
        return 2.0 * reduce_node("Sum", raw.Log(real), [-1], False)  # type: ignore[operator]


@export("linalg.expm")
def matrix_exponential(input: Any, name: str | None = None) -> Tensor:
    """exp of each matrix, by Pade approximants with scaling and squaring. The gradient flows through them."""
    with name_scope(name, "matrix_exponential", [input]):
        matrix = convert_to_tensor(input, name="input")
        if matrix.dims is not None and 0 in matrix.dims[-2:]:
            return matrix
        flat = reshape(matrix, concat([[-1], shape(matrix)[-2:]], 0))  # type: ignore[index]
        norm = reduce_node("Max", reduce_node("Sum", math_ops.abs(flat), -2, False), -1, False)
        largest = reduce_node("Max", norm, None, False)
        # Halve until the approximant is exact: every squaring later costs accuracy.
        within = 2.0 if largest.dtype.base_dtype is dtypes.float64 else 4.0
        halvings = raw.Maximum(raw.Ceil(raw.Log(raw.Maximum(largest / within, 1e-30)) / np.log(2.0)), 0.0)  # type: ignore[operator]
        count = math_ops.cast(halvings, dtypes.int32)
        scaled = flat / math_ops.cast(math_ops.pow(constant(2.0, dtype=halvings.dtype.base_dtype), halvings), flat.dtype)  # type: ignore[operator]
        result = _pade(scaled)
        from penstock.api.control_flow import while_loop

        _, result = while_loop(lambda i, _: i < count, lambda i, m: (i + 1, matmul(m, m)), (constant(0), result))
        return reshape(result, shape(matrix))


_PADE = (17643225600.0, 8821612800.0, 2075673600.0, 302702400.0, 30270240.0, 2162160.0, 110880.0, 3960.0, 90.0, 1.0)


def _pade(x: Tensor) -> Tensor:
    """The [9/9] Pade approximant of exp: exact to double precision for norms up to 2."""
    kind = x.dtype.base_dtype
    size = x.dims[-1] if x.dims is not None and x.dims[-1] is not None else None
    ones = raw.OnesLike(diag_part(x)) if size is None else constant(np.ones(size), dtype=kind)
    powers = [matrix_diag(ones)]
    square = matmul(x, x)
    for _ in range(4):
        powers.append(matmul(powers[-1], square))
    b = [constant(c, dtype=kind) for c in _PADE]
    odd, even = b[1] * powers[0], b[0] * powers[0]  # type: ignore[operator]
    for i in range(1, 5):
        odd = odd + b[2 * i + 1] * powers[i]  # type: ignore[operator]
        even = even + b[2 * i] * powers[i]  # type: ignore[operator]
    u = matmul(x, odd)
    even = even + raw.ZerosLike(u)
    return raw.MatrixSolve(even - u, even + u)


@export("linalg.lu_solve")
def lu_solve(lower_upper: Any, perm: Any, rhs: Any, validate_args: bool = False, name: str | None = None) -> Tensor:
    """x with A x = rhs, given tf.linalg.lu(A)."""
    with name_scope(name or "lu_solve"):
        lower_upper = convert_to_tensor(lower_upper, dtype_hint=dtypes.float32, name="lower_upper")
        perm = convert_to_tensor(perm, dtype_hint=dtypes.int32, name="perm")
        rhs = convert_to_tensor(rhs, dtype_hint=lower_upper.dtype.base_dtype, name="rhs")
        permuted = _permuted(rhs, perm)
        y = raw.MatrixTriangularSolve(_unit_lower(lower_upper), permuted)
        return raw.MatrixTriangularSolve(lower_upper, y, lower=False)


def _permuted(x: Tensor, perm: Tensor, backwards: bool = False) -> Tensor:
    """The rows of each matrix in the order of `perm`, or put back from that order."""
    if perm.dims is None:
        # The number of batch dimensions is unknown: multiply by the permutation's matrix.
        kind = x.dtype.base_dtype
        one, zero = (constant(v, dtype=kind) for v in (1, 0))
        table = raw.OneHot(perm, shape(x)[-2], one, zero, axis=-1)  # type: ignore[index]
        return matmul(table, x, transpose_a=backwards)
    batch = len(perm.dims) - 1
    if batch == 0:
        return raw.GatherV2(x, raw.InvertPermutation(perm) if backwards else perm, -2)
    if backwards:
        # Sorting a permutation inverts it; this works on a whole batch.
        perm = raw.TopKV2(-perm, shape(perm)[-1])[1]  # type: ignore[index,operator]
    return raw.GatherV2(x, perm, batch, batch_dims=batch)


def _unit_lower(lower_upper: Tensor) -> Tensor:
    lower = matrix_band_part(lower_upper, -1, 0)
    return matrix_set_diag(lower, raw.OnesLike(diag_part(lower_upper)))


@export("linalg.lu_matrix_inverse")
def lu_matrix_inverse(lower_upper: Any, perm: Any, validate_args: bool = False, name: str | None = None) -> Tensor:
    """A^-1, given tf.linalg.lu(A)."""
    with name_scope(name or "lu_matrix_inverse"):
        lower_upper = convert_to_tensor(lower_upper, dtype_hint=dtypes.float32, name="lower_upper")
        eye = matrix_diag(raw.OnesLike(diag_part(lower_upper)))
        return lu_solve(lower_upper, perm, eye, validate_args=validate_args)


@export("linalg.lu_reconstruct")
def lu_reconstruct(lower_upper: Any, perm: Any, validate_args: bool = False, name: str | None = None) -> Tensor:
    """A, given tf.linalg.lu(A)."""
    with name_scope(name or "lu_reconstruct"):
        lower_upper = convert_to_tensor(lower_upper, dtype_hint=dtypes.float32, name="lower_upper")
        perm = convert_to_tensor(perm, dtype_hint=dtypes.int32, name="perm")
        product = matmul(_unit_lower(lower_upper), matrix_band_part(lower_upper, 0, -1))
        return _permuted(product, perm, backwards=True)


@export("linalg.matrix_rank")
def matrix_rank(a: Any, tol: Any = None, validate_args: bool = False, name: str | None = None) -> Tensor:
    """How many singular values exceed `tol` (by default eps times the larger size times the largest of them)."""
    with name_scope(name or "matrix_rank"):
        a = convert_to_tensor(a, dtype_hint=dtypes.float32, name="a")
        s = svd(a, compute_uv=False)
        if tol is None:
            sizes = a.dims[-2:] if a.dims is not None and None not in a.dims[-2:] else None
            larger = max(sizes) if sizes is not None else reduce_node("Max", shape(a)[-2:], None, False)  # type: ignore[index,type-var]
            eps = float(np.finfo(s.dtype.np).eps)
            tol = eps * math_ops.cast(larger, s.dtype) * reduce_node("Max", s, -1, True)  # type: ignore[operator]
        return reduce_node("Sum", math_ops.cast(s > tol, dtypes.int32), -1, False)  # type: ignore[operator]


@export("linalg.pinv")
def pinv(a: Any, rcond: Any = None, validate_args: bool = False, name: str | None = None) -> Tensor:
    """The Moore-Penrose inverse; singular values below `rcond` times the largest count as 0."""
    with name_scope(name or "pinv"):
        a = convert_to_tensor(a, name="a")
        kind = a.dtype.real_dtype.base_dtype
        if not (a.dtype.is_floating or a.dtype.is_complex):
            raise TypeError(f"Input `a` must have `float`-like `dtype` (saw {a.dtype.name}).")
        if a.dims is not None and len(a.dims) < 2:
            raise ValueError(f"Input `a` must have at least 2 dimensions (saw: {len(a.dims)}).")
        if rcond is None:
            if a.dims is not None and None not in a.dims[-2:]:
                rcond = constant(10.0 * max(a.dims[-2:]) * float(np.finfo(kind.np).eps), dtype=kind, name="rcond")
            else:
                largest = math_ops.cast(reduce_node("Max", shape(a)[-2:], None, False), kind)  # type: ignore[index]
                rcond = 10.0 * largest * float(np.finfo(kind.np).eps)  # type: ignore[operator]
        rcond = convert_to_tensor(rcond, dtype=kind, name="rcond")
        s, u, v = svd(a, full_matrices=False, compute_uv=True)
        cutoff = rcond * reduce_node("Max", s, -1, False)  # type: ignore[operator]
        s = raw.SelectV2(s > expand_dims(cutoff, -1), s, constant(np.array(np.inf), dtype=kind))
        scaled = v / math_ops.cast(expand_dims(s, -2), a.dtype)  # type: ignore[operator]
        result = matmul(scaled, u, adjoint_b=True)
        if a.dims is not None:
            result.set_shape([*a.dims[:-2], a.dims[-1], a.dims[-2]])
        return result


# -- tridiagonal systems ----------------------------------------------------------------------------------------------


def _compact(diagonals: Any, diagonals_format: str) -> Tensor:
    """The three diagonals as one [..., 3, n] tensor: super-, main, subdiagonal, padded to equal length."""
    if diagonals_format == "compact":
        return convert_to_tensor(diagonals, name="diagonals")
    if diagonals_format == "matrix":
        matrix = convert_to_tensor(diagonals, name="diagonals")
        return diag_part(matrix, k=(-1, 1), padding_value=0, align="LEFT_RIGHT")
    if diagonals_format == "sequence":
        upper, main, lower = (convert_to_tensor(d) for d in diagonals)
        pad_after, pad_before = [[0, 0]] * (len(main.dims or (0,)) - 1) + [[0, 1]], [[0, 0]] * (len(main.dims or (0,)) - 1) + [[1, 0]]
        size = None if main.dims is None else main.dims[-1]
        if upper.dims is not None and upper.dims[-1] != size:
            upper = raw.Pad(upper, pad_after)
        if lower.dims is not None and lower.dims[-1] != size:
            lower = raw.Pad(lower, pad_before)
        return stack([upper, main, lower], axis=-2)
    raise ValueError(f"Unrecognized diagonals_format: {diagonals_format}")


@export("linalg.tridiagonal_solve")
def tridiagonal_solve(
    diagonals: Any, rhs: Any, diagonals_format: str = "compact", transpose_rhs: bool = False, conjugate_rhs: bool = False, name: str | None = None,
    partial_pivoting: bool = True, perturb_singular: bool = False,
) -> Tensor:  # fmt: skip
    """Solves tridiagonal systems. `diagonals` is [..., 3, n] ("compact": super-, main, subdiagonal), a triple ("sequence")
    or whole matrices ("matrix"); `rhs` is [..., n] or [..., n, k], or [..., k, n] with `transpose_rhs`."""
    if perturb_singular and not partial_pivoting:
        raise ValueError("partial_pivoting must be True if perturb_singular is True.")
    compact = _compact(diagonals, diagonals_format)
    rhs = convert_to_tensor(rhs, name="rhs")
    # Without static ranks, `rhs` is taken to be a matrix.
    one_column = rhs.dims is not None and compact.dims is not None and len(rhs.dims) == len(compact.dims) - 1
    if conjugate_rhs:
        rhs = math_ops.conj(rhs)
    if one_column:
        rhs = expand_dims(rhs, -1)
    elif transpose_rhs:
        rhs = matrix_transpose(rhs)
    result = raw.TridiagonalSolve(compact, rhs, partial_pivoting=partial_pivoting, perturb_singular=perturb_singular, name=name)
    return squeeze(result, -1) if one_column else result


@export("linalg.tridiagonal_matmul")
def tridiagonal_matmul(diagonals: Any, rhs: Any, diagonals_format: str = "compact", name: str | None = None) -> Tensor:
    """The product of tridiagonal matrices and `rhs` [..., n, k]; see `tf.linalg.tridiagonal_solve` for the formats."""
    compact = _compact(diagonals, diagonals_format)
    upper, main, lower = (compact[..., i : i + 1, :] for i in range(3))  # type: ignore[index]
    return raw.TridiagonalMatMul(upper, main, lower, rhs, name=name)
