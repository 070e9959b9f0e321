"""Factorisations of matrices: Cholesky, QR, SVD, eigenvalues, LU; functions of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.ops.broadcasting import conj
from penstock.ops.declare import op, with_rank_at_least
from penstock.ops.kernels import lapack, matrices
from penstock.ops.kernels.matrices import check_matrix, check_square, in_wide, invertible
from penstock.ops.linalg import REGULAR, STACK, adjoint, band, mm, square_dims, square_shape
from penstock.ops.samples import arr, empty, program
from penstock.shapes import Dims

_TYPES = "{double, float, half, complex64, complex128}"
_OLD = "{double, float}"
_POSITIVE_DEFINITE = [[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 2.0]]
TALL = [[1.0, 2.0], [3.0, 4.5], [5.0, -6.0]]

# -- Cholesky ---------------------------------------------------------------------------------------------------------


@in_wide
def cholesky_kernel(x: Any) -> Any:
    x = check_square(x)
    if x.size == 0:
        return x
    return invertible(lapack.cholesky, "Cholesky decomposition was not successful. The input might not be valid.", x)


def cholesky_grad(g: Any, op: Any, dy: Any) -> Any:
    """L^-H phi(L^H dy) L^-1, made symmetric; phi keeps the lower triangle with half of the diagonal."""
    factor = op.output
    middle = mm(g, factor, dy, adj_a=True)
    middle = g.MatrixSetDiag(middle, g.Mul(g.MatrixDiagPart(middle), g.const(0.5, dy.dtype)))
    middle = band(g, middle, -1, 0)
    left = g.MatrixTriangularSolve(factor, middle, adjoint=True)
    # X L^-1 is the adjoint of L^-H X^H.
    whole = adjoint(g, g.MatrixTriangularSolve(factor, adjoint(g, left), adjoint=True))
    return g.Mul(g.AddV2(whole, adjoint(g, whole)), g.const(0.5, dy.dtype))


def _phi(x: np.ndarray) -> np.ndarray:
    low = np.tril(x)
    n = np.arange(x.shape[-1])
    low[..., n, n] *= 0.5
    return low


@in_wide
@lapack.on_one_thread
def cholesky_grad_kernel(factor: Any, grad: Any) -> Any:
    factor, grad = check_square(factor), check_square(grad)
    factor = np.tril(factor)
    middle = _phi(np.matmul(matrices.adjoint(factor), np.tril(grad)))
    left = matrices.solve_triangular(factor, middle, True, True)
    whole = matrices.adjoint(matrices.solve_triangular(factor, matrices.adjoint(left), True, True))
    return (whole + matrices.adjoint(whole)) * factor.dtype.type(0.5)


for _name, _types, _note in (("Cholesky", _TYPES, ""), ("BatchCholesky", _OLD, " deprecated@13")):
    op(f"{_name}(input: T) -> (output: T) [T: type in {_types}]{_note}",
       shape=square_shape, numpy=cholesky_kernel, grad=cholesky_grad, expensive=True,
       samples=[] if _note else [dict(input=arr(_POSITIVE_DEFINITE, dtype=t)) for t in (np.float32, np.float64, np.float16)]
       + [dict(input=empty(0, 2, 2)), dict(input=arr([[[4.0, 9.0], [2.0, 5.0]], [[1.0, 0.0], [0.5, 2.0]]], dtype=np.float32))])
for _name, _types, _note in (("CholeskyGrad", "{half, float, double}", ""), ("BatchCholeskyGrad", "{float, double}", " deprecated@13")):
    op(f"{_name}(l: T, grad: T) -> (output: T) [T: type in {_types}]{_note}",
       shape=square_shape, numpy=cholesky_grad_kernel,
       samples=[] if _note else [dict(l=arr([[2.0, 0.0], [1.0, 3.0]]), grad=arr([[1.0, 0.0], [3.0, 4.0]]))])  # fmt: skip

# -- QR ---------------------------------------------------------------------------------------------------------------


@in_wide
def _qr(x: Any, full_matrices: bool) -> list[Any]:
    x = check_matrix(x)
    q, r = lapack.qr(x, mode="complete" if full_matrices else "reduced")
    return [q, r]


def qr_kernel(x: Any, *, full_matrices: bool) -> list[Any]:
    return _qr(x, full_matrices=full_matrices)


def qr_shape(c: Any) -> list[Dims]:
    dims = with_rank_at_least(c, 0, 2)
    if dims is None:
        return [None, None]
    m, n = dims[-2:]
    inner = m if c.attrs["full_matrices"] else None if m is None or n is None else min(m, n)
    return [(*dims[:-2], m, inner), (*dims[:-2], inner, n)]


def _right_solve(g: Any, x: Any, r: Any) -> Any:
    """x r^-H for an upper triangular r."""
    return adjoint(g, g.MatrixTriangularSolve(r, adjoint(g, x), lower=False))


def _qr_grad_tall(g: Any, q: Any, r: Any, dq: Any, dr: Any) -> Any:
    qdq = mm(g, q, dq, adj_a=True)
    rdr = mm(g, r, dr, adj_b=True)
    skew = g.AddV2(g.Sub(qdq, adjoint(g, qdq)), g.Sub(rdr, adjoint(g, rdr)))
    first = mm(g, q, g.AddV2(dr, _right_solve(g, band(g, skew, -1, 0), r)))
    second = _right_solve(g, g.Sub(dq, mm(g, q, qdq)), r)
    total = g.AddV2(first, second)
    if not q.dtype.is_complex:
        return total
    m = g.Sub(rdr, adjoint(g, qdq))
    diagonal = g.MatrixSetDiag(g.ZerosLike(m), g.MatrixDiagPart(m))
    real = g.Cast(g.Real(diagonal, Tout=q.dtype.real_dtype), DstT=q.dtype.base_dtype)
    return g.AddV2(total, _right_solve(g, mm(g, q, adjoint(g, g.Sub(diagonal, real))), r))


def _columns(g: Any, x: Any, begin: int, count: int) -> Any:
    rank = len(x.dims)
    return g.Slice(x, np.array([0] * (rank - 1) + [begin], np.int32), np.array([-1] * (rank - 1) + [count], np.int32))


def qr_grad(g: Any, op: Any, dq: Any, dr: Any) -> Any:
    q, r, a = op.q, op.r, op.input
    if a.dims is None or None in a.dims[-2:]:
        raise NotImplementedError("QrGrad not implemented with dynamic shapes. The number of rows and columns of the input must be known.")
    rows, columns = a.dims[-2:]
    if op.attr("full_matrices") and rows > columns:
        raise NotImplementedError("QrGrad not implemented when nrows > ncols and full_matrices is true.")
    if rows >= columns:
        return _qr_grad_tall(g, q, r, dq, dr)
    # A = [X | Y] with a square X: R's left part belongs to X, the rest is Q^H Y.
    right = _columns(g, a, rows, columns - rows)
    dv = _columns(g, dr, rows, columns - rows)
    d_right = mm(g, q, dv)
    d_left = _qr_grad_tall(g, q, _columns(g, r, 0, rows), g.AddV2(dq, mm(g, right, dv, adj_b=True)), _columns(g, dr, 0, rows))
    return g.ConcatV2([d_left, d_right], np.int32(len(a.dims) - 1))


op(f"Qr(input: T) -> (q: T, r: T) [full_matrices: bool = false; T: type in {_TYPES}]",
   shape=qr_shape, numpy=qr_kernel, grad=qr_grad, expensive=True,
   samples=[dict(input=arr(TALL)), dict(input=arr(TALL), full_matrices=True), dict(input=arr(np.transpose(TALL))), dict(input=STACK)])  # fmt: skip

# -- SVD --------------------------------------------------------------------------------------------------------------


@in_wide
def _svd(x: Any, compute_uv: bool, full_matrices: bool) -> list[Any]:
    x = check_matrix(x)
    if not compute_uv:
        nothing = np.zeros((0,), dtype=x.dtype)
        return [lapack.svd(x, compute_uv=False).astype(x.dtype), nothing, nothing]
    u, s, vh = lapack.svd(x, full_matrices=full_matrices)
    return [s.astype(x.dtype), u, matrices.adjoint(vh)]


def svd_kernel(x: Any, *, compute_uv: bool, full_matrices: bool) -> list[Any]:
    return _svd(x, compute_uv=compute_uv, full_matrices=full_matrices)


def svd_shape(c: Any) -> list[Dims]:
    dims = with_rank_at_least(c, 0, 2)
    if not c.attrs["compute_uv"]:
        rest: list[Dims] = [(0,), (0,)]
    elif dims is None:
        rest = [None, None]
    else:
        rest = []
    if dims is None:
        return [None, *rest]
    m, n = dims[-2:]
    p = None if m is None or n is None else min(m, n)
    if not rest:
        full = c.attrs["full_matrices"]
        rest = [(*dims[:-2], m, m if full else p), (*dims[:-2], n, n if full else p)]
    return [(*dims[:-2], p), *rest]


def _safe_reciprocal(g: Any, x: Any) -> Any:
    """1/x, and 0 at 0."""
    return g.Mul(x, g.Reciprocal(g.AddV2(g.Square(x), g.const(1e-20, x.dtype))))


def _differences(g: Any, e: Any) -> Any:
    """1 / (e_j - e_i) with zeros on the diagonal."""
    f = _safe_reciprocal(g, g.Sub(g.ExpandDims(e, np.int32(-2)), g.ExpandDims(e, np.int32(-1))))
    return g.MatrixSetDiag(f, g.ZerosLike(e))


def svd_grad(g: Any, op: Any, ds: Any, du: Any, dv: Any) -> Any:
    a = op.input
    if not op.attr("compute_uv"):
        _, u, v = g.Svd(a, compute_uv=True)
        return mm(g, u, mm(g, g.MatrixDiag(ds), v, adj_b=True))
    s, u, v = op.s, op.u, op.v
    if a.dtype.is_complex:
        raise NotImplementedError("SVD gradient is not implemented for complex types when compute_uv is True.")
    if a.dims is None or None in a.dims[-2:]:
        raise NotImplementedError("SVD gradient has not been implemented for input with unknown inner matrix shape.")
    m, n = a.dims[-2:]
    if op.attr("full_matrices") and abs(m - n) > 1:
        raise NotImplementedError("svd gradient is not implemented for abs(m - n) > 1 when full_matrices is True")
    k = min(m, n)
    if op.attr("full_matrices") and m != n:
        u, v, du, dv = (_columns(g, t, 0, k) for t in (u, v, du, dv))
    f = _differences(g, g.Square(s))
    diagonal = g.MatrixDiag(s)
    u_du, v_dv = mm(g, u, du, adj_a=True), mm(g, v, dv, adj_a=True)
    core = g.AddV2(mm(g, g.Mul(f, g.Sub(u_du, adjoint(g, u_du))), diagonal), mm(g, diagonal, g.Mul(f, g.Sub(v_dv, adjoint(g, v_dv)))))
    total = mm(g, u, mm(g, g.AddV2(core, g.MatrixDiag(ds)), v, adj_b=True))
    inverse = g.MatrixDiag(_safe_reciprocal(g, s))
    if m > k:
        total = g.AddV2(total, mm(g, mm(g, g.Sub(du, mm(g, u, u_du)), inverse), v, adj_b=True))
    if n > k:
        total = g.AddV2(total, mm(g, u, mm(g, inverse, g.Sub(dv, mm(g, v, v_dv)), adj_b=True)))
    return total


def _svd_parts(tf: Any) -> Any:
    s, u, v = tf.svd(tf.constant(TALL))
    return [s, tf.abs(u), tf.abs(v), tf.matmul(u * s, v, transpose_b=True), tf.svd(tf.constant(TALL), compute_uv=False)]


for _name, _types, _note in (("Svd", _TYPES, ""), ("BatchSvd", "{double, float, complex64, complex128}", " deprecated@13")):
    op(f"{_name}(input: T) -> (s: T, u: T, v: T) [compute_uv: bool = true; full_matrices: bool = false; T: type in {_types}]{_note}",
       shape=svd_shape, numpy=svd_kernel, grad=svd_grad, expensive=True, samples=[] if _note else [program(_svd_parts)])  # fmt: skip

# -- eigenvalues ------------------------------------------------------------------------------------------------------


@in_wide
def _eigh(x: Any, compute_v: bool) -> list[Any]:
    x = check_square(x)
    if x.size == 0:
        return [np.zeros(x.shape[:-1], dtype=x.dtype), x]
    if not compute_v:
        return [lapack.eigvalsh(x).astype(x.dtype), np.zeros((0,), dtype=x.dtype)]
    e, v = lapack.eigh(x)
    return [e.astype(x.dtype), v]


def eigh_kernel(x: Any, *, compute_v: bool) -> list[Any]:
    return _eigh(x, compute_v=compute_v)


@in_wide
def eigh_v1_kernel(x: Any) -> Any:
    """Eigenvalues in the first row, eigenvectors below."""
    e, v = _eigh(x, compute_v=True)
    return np.concatenate([e[..., None, :], v], axis=-2)


def eigh_shape(c: Any) -> list[Dims]:
    dims = square_dims(c)
    vectors: Dims = dims if c.attrs["compute_v"] else (0,)
    return [None if dims is None else dims[:-1], vectors]


def eigh_v1_shape(c: Any) -> Dims:
    dims = square_dims(c)
    return None if dims is None else (*dims[:-2], None if dims[-1] is None else dims[-1] + 1, dims[-1])


def eigh_grad(g: Any, op: Any, de: Any, dv: Any) -> Any:
    if op.attr("compute_v"):
        e, v = op.e, op.v
        inner = g.AddV2(g.MatrixDiag(de), g.Mul(_differences(g, e), mm(g, v, dv, adj_a=True)))
    else:
        _, v = g.SelfAdjointEigV2(op.input)
        inner = g.MatrixDiag(de)
    whole = mm(g, v, mm(g, inner, v, adj_b=True))
    # Only the lower triangle is read, so it carries the gradient of both.
    lower = band(g, g.AddV2(whole, adjoint(g, whole)), -1, 0)
    return g.MatrixSetDiag(lower, g.Mul(g.MatrixDiagPart(lower), g.const(0.5, lower.dtype)))


def _eigh_parts(tf: Any) -> Any:
    x = tf.constant([[2.0, 9.0], [1.0, 3.0]])
    e, v = tf.self_adjoint_eig(x)
    return [e, tf.abs(v), tf.self_adjoint_eigvals(x), tf.matmul(v * e, v, transpose_b=True)]


for _name, _types, _note in (("SelfAdjointEigV2", _TYPES, ""), ("BatchSelfAdjointEigV2", _OLD, " deprecated@13")):
    op(f"{_name}(input: T) -> (e: T, v: T) [compute_v: bool = true; T: type in {_types}]{_note}",
       shape=eigh_shape, numpy=eigh_kernel, grad=eigh_grad, expensive=True, samples=[] if _note else [program(_eigh_parts)])
for _name, _types in (("SelfAdjointEig", "{double, float, half}"), ("BatchSelfAdjointEig", _OLD)):
    op(f"{_name}(input: T) -> (output: T) [T: type in {_types}] deprecated@11", shape=eigh_v1_shape, numpy=eigh_v1_kernel)


def eig_kernel(x: Any, *, compute_v: bool, Tout: DType) -> list[Any]:
    x = check_square(x)
    if x.size == 0:
        return [np.zeros(x.shape[:-1], dtype=Tout.np), np.zeros(x.shape, dtype=Tout.np)]
    if not compute_v:
        return [lapack.eigvals(x).astype(Tout.np), np.zeros((0,), dtype=Tout.np)]
    e, v = lapack.eig(x)
    return [e.astype(Tout.np), v.astype(Tout.np)]


def eig_grad(g: Any, op: Any, de: Any, dv: Any) -> Any:
    a, e = op.input, op.e
    v = op.v if op.attr("compute_v") else g.Eig(a, Tout=op.attr("Tout"))[1]
    vt = adjoint(g, v)
    middle = g.MatrixDiag(de)
    if op.attr("compute_v"):
        f = conj(g, _differences(g, e))
        vgv = mm(g, vt, dv)
        real = g.Cast(g.Real(vgv, Tout=vgv.dtype.real_dtype), DstT=vgv.dtype.base_dtype)
        norms = g.MatrixDiag(g.MatrixDiagPart(real))
        middle = g.AddV2(middle, g.Mul(f, g.Sub(vgv, mm(g, mm(g, vt, v), norms))))
    whole = g.MatrixSolve(vt, mm(g, middle, vt))
    return g.Cast(whole, DstT=a.dtype.base_dtype) if a.dtype.base_dtype is not whole.dtype.base_dtype else whole


op("Eig(input: T) -> (e: Tout, v: Tout) [compute_v: bool = true; T: type in {float, double, complex64, complex128}; Tout: type in {complex64, complex128}]",
   shape=eigh_shape, numpy=eig_kernel, grad=eig_grad, expensive=True,
   samples=[program(lambda tf: [tf.abs(tf.raw_ops.Eig(input=tf.constant([[1.0, 2.0], [3.0, 4.0]]), Tout=tf.complex64)[1])])])  # fmt: skip

# -- LU ---------------------------------------------------------------------------------------------------------------


@in_wide
def _lu(x: Any, output_idx_type: DType) -> list[Any]:
    x = check_square(x)
    packed, order = matrices.lu(x)
    return [packed, order.astype(output_idx_type.np)]


def lu_kernel(x: Any, *, output_idx_type: DType) -> list[Any]:
    return _lu(x, output_idx_type=output_idx_type)


def lu_shape(c: Any) -> list[Dims]:
    dims = square_dims(c)
    return [dims, None if dims is None else dims[:-1]]


op(f"Lu(input: T) -> (lu: T, p: output_idx_type) [T: type in {_TYPES}; output_idx_type: type in INDEX = int32]",
   shape=lu_shape, numpy=lu_kernel, expensive=True,
   samples=[dict(input=REGULAR), dict(input=STACK, output_idx_type=dtypes.int64), dict(input=arr([[0.0, 1.0], [2.0, 3.0]]))],
   errors=[(dict(input=arr([[1.0, 2.0], [2.0, 4.0]], dtype=np.float64)), InvalidArgumentError, "Input is not invertible.")])  # fmt: skip

# -- functions of matrices --------------------------------------------------------------------------------------------


@in_wide
def square_root_kernel(x: Any) -> Any:
    x = check_square(x)
    return x if x.size == 0 else matrices.square_root(x)


def square_root_grad(g: Any, op: Any, dy: Any) -> Any:
    """Solves X^H Y + Y X^H = dy, written as one linear system for the stacked rows of Y."""
    x = op.output
    shape = g.Shape(x)
    batch = g.StridedSlice(shape, *(np.array([v], np.int32) for v in (0, -2, 1)), begin_mask=1)
    size = g.Square(g.StridedSlice(shape, *(np.array([v], np.int32) for v in (-1, 0, 1)), end_mask=1))
    eye = g.MatrixDiag(g.OnesLike(g.MatrixDiagPart(x)))
    flipped = adjoint(g, x)
    # The row of the system for (i, k) holds X^H[i, j] d[k, l] + d[i, j] X^H[l, k] in the column for (j, l).
    left = g.Einsum([flipped, eye], equation="...ij,...kl->...ikjl")
    right = g.Einsum([eye, flipped], equation="...ij,...lk->...ikjl")
    system = g.Reshape(g.AddV2(left, right), g.ConcatV2([batch, size, size], np.int32(0)))
    column = g.Reshape(dy, g.ConcatV2([batch, size, np.array([1], np.int32)], np.int32(0)))
    return g.Reshape(g.MatrixSolve(system, column), shape)


@in_wide
def logarithm_kernel(x: Any) -> Any:
    x = check_square(x)
    return x if x.size == 0 else matrices.logarithm(x)


@in_wide
def exponential_kernel(x: Any) -> Any:
    x = check_square(x)
    return x if x.size == 0 else matrices.exponential(x)


op(f"MatrixSquareRoot(input: T) -> (output: T) [T: type in {_TYPES}]",
   shape=square_shape, numpy=square_root_kernel, grad=square_root_grad, expensive=True, samples=[dict(input=arr([[4.0, 1.0], [1.0, 3.0]], dtype=t)) for t in (np.float32, np.float64)])
op("MatrixLogarithm(input: T) -> (output: T) [T: type in {complex64, complex128}]",
   shape=square_shape, numpy=logarithm_kernel, expensive=True,
   samples=[*(dict(input=arr([[4.0, 1.0], [1.0, 3.0]], dtype=t)) for t in (np.complex64, np.complex128)),
            *(dict(input=arr(x, dtype=np.complex128))  # without enough eigenvectors, or nearly so; with negative eigenvalues
              for x in ([[2, 1], [0, 2]], [[4, 1, 0], [0, 4, 1], [0, 0, 4]], [[-2, 1], [0, -2]], [[2, 1], [0, 2 + 1e-9]], [[1, 2], [3, 4]], [[2, 1j], [0, 1e4]]))])
op(f"MatrixExponential(input: T) -> (output: T) [T: type in {_TYPES}] deprecated@27", shape=square_shape, numpy=exponential_kernel, expensive=True)
