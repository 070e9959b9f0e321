"""Solving linear systems, inverses and determinants. Kernels that NumPy lacks are in `kernels.matrices`."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.broadcasting import conj
from penstock.ops.declare import op, with_rank_at_least
from penstock.ops.kernels import lapack, matrices
from penstock.ops.kernels.matrices import check_matrix, check_solve, check_square, in_wide, invertible
from penstock.ops.samples import arr, empty, normal
from penstock.shapes import Dims, broadcast_dims, merge_dim, merge_dims

_HALVES = "{double, float, half, complex64, complex128}"
_OLD = "{double, float}"

# A matrix far from singular, in every type; and a stack of two.
REGULAR = arr([[2.0, -1.0, 0.5], [0.5, 3.0, 1.0], [-1.0, 0.25, 1.5]])
STACK = arr([[[2.0, 1.0], [0.5, 3.0]], [[1.0, -2.0], [0.25, 1.5]]])

# -- shapes -----------------------------------------------------------------------------------------------------------


def square_dims(c: Any, i: int = 0) -> Dims:
    """Dims of a stack of square matrices, with what one side knows of the other."""
    dims = with_rank_at_least(c, i, 2)
    if dims is None:
        return None
    size = merge_dim(dims[-2], dims[-1])
    return *dims[:-2], size, size


def square_shape(c: Any) -> Dims:
    return square_dims(c)


def batch_shape(c: Any) -> Dims:
    dims = square_dims(c)
    return None if dims is None else dims[:-2]


def solve_shape(c: Any) -> Dims:
    a, b = square_dims(c, 0), with_rank_at_least(c, 1, 2)
    if a is None or b is None:
        return None
    batch = merge_dims(a[:-2], b[:-2])
    return *batch, merge_dim(a[-1], b[-2]), b[-1]  # type: ignore[misc]


def triangular_shape(c: Any) -> Dims:
    a, b = square_dims(c, 0), with_rank_at_least(c, 1, 2)
    if a is None or b is None:
        return None
    batch = broadcast_dims(a[:-2], b[:-2])
    return None if batch is None else (*batch, merge_dim(a[-1], b[-2]), b[-1])


def least_squares_shape(c: Any) -> Dims:
    a, b = with_rank_at_least(c, 0, 2), with_rank_at_least(c, 1, 2)
    if a is None or b is None:
        return None
    merge_dim(a[-2], b[-2])
    return *merge_dims(a[:-2], b[:-2]), a[-1], b[-1]  # type: ignore[misc]


# -- products in gradients --------------------------------------------------------------------------------------------


def mm(g: Any, a: Any, b: Any, adj_a: bool = False, adj_b: bool = False) -> Any:
    """A (batched) matrix product with adjoints, as tf.matmul chooses it."""
    if a.dims is not None and b.dims is not None and len(a.dims) == len(b.dims) == 2:
        return g.MatMul(conj(g, a) if adj_a else a, conj(g, b) if adj_b else b, transpose_a=adj_a, transpose_b=adj_b)
    return g.BatchMatMulV2(a, b, adj_x=adj_a, adj_y=adj_b)


def adjoint(g: Any, x: Any) -> Any:
    """The conjugate transpose of each matrix."""
    if x.dims is not None:
        n = len(x.dims)
        order: Any = np.array([*range(n - 2), n - 1, n - 2], dtype=np.int32)
    else:
        rank = g.Rank(x)
        front = g.Range(np.int32(0), g.Sub(rank, np.int32(2)), np.int32(1))
        order = g.ConcatV2([front, g.Reshape(g.Sub(rank, np.int32(1)), np.array([1], np.int32)), g.Reshape(g.Sub(rank, np.int32(2)), np.array([1], np.int32))], np.int32(0))
    return (g.ConjugateTranspose if x.dtype.is_complex else g.Transpose)(x, order)


def per_matrix(g: Any, x: Any) -> Any:
    """A number per matrix as [..., 1, 1]."""
    return g.ExpandDims(g.ExpandDims(x, np.int32(-1)), np.int32(-1))


def band(g: Any, x: Any, lower: int, upper: int) -> Any:
    return g.MatrixBandPart(x, np.int64(lower), np.int64(upper))


# -- inverse and determinant ------------------------------------------------------------------------------------------


@in_wide
def _inverse(x: Any, adjoint: bool) -> Any:
    x = check_square(x)
    return invertible(lapack.inv, "Input is not invertible.", matrices.adjoint(x) if adjoint else x)


def inverse_kernel(x: Any, *, adjoint: bool) -> Any:
    return _inverse(x, adjoint=adjoint)


def inverse_grad(g: Any, op: Any, dy: Any) -> Any:
    flip = op.attr("adjoint")
    inverse = op.output
    inner = mm(g, dy, inverse, adj_a=flip, adj_b=not flip)
    return g.Neg(mm(g, inverse, inner, adj_a=not flip))


def determinant_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.Mul(per_matrix(g, g.Mul(dy, op.output)), g.MatrixInverse(op.input, adjoint=True))


@in_wide
def determinant_kernel(x: Any) -> Any:
    x = check_square(x)
    return np.asarray(lapack.det(x), dtype=x.dtype)


@in_wide
def log_determinant_kernel(x: Any) -> list[Any]:
    x = check_square(x)
    sign, log = lapack.slogdet(x)
    return [np.asarray(sign, dtype=x.dtype), np.asarray(log, dtype=x.dtype)]


def log_determinant_grad(g: Any, op: Any, d_sign: Any, d_log: Any) -> Any:
    return g.Mul(per_matrix(g, d_log), g.MatrixInverse(op.input, adjoint=True))


for _name, _types, _note in (("MatrixInverse", _HALVES, ""), ("BatchMatrixInverse", _OLD, " deprecated@13")):
    op(f"{_name}(input: T) -> (output: T) [adjoint: bool = false; T: type in {_types}]{_note}",
       shape=square_shape, numpy=inverse_kernel, grad=inverse_grad,
       samples=[] if _note else [dict(input=REGULAR), dict(input=STACK, adjoint=True), dict(input=empty(0, 3, 3))],
       errors=[] if _note else [(dict(input=arr([[1.0, 2.0], [2.0, 4.0]])), InvalidArgumentError, "Input is not invertible."),
                                (dict(input=normal(2, 3)), InvalidArgumentError, "must be square|Dimensions must be equal")])
for _name, _types, _note in (("MatrixDeterminant", "{half, float, double, complex64, complex128}", ""), ("BatchMatrixDeterminant", "{float, double, complex64, complex128}", " deprecated@13")):
    op(f"{_name}(input: T) -> (output: T) [T: type in {_types}]{_note}",
       shape=batch_shape, numpy=determinant_kernel, grad=determinant_grad, samples=[] if _note else [dict(input=REGULAR), dict(input=STACK), dict(input=empty(0, 3, 3))])
op("LogMatrixDeterminant(input: T) -> (sign: T, log_abs_determinant: T) [T: type in {half, float, double, complex64, complex128}]",
   shape=batch_shape, numpy=log_determinant_kernel, grad=log_determinant_grad, samples=[dict(input=REGULAR), dict(input=STACK), dict(input=arr([[0.0, 1.0], [1.0, 0.0]]))])  # fmt: skip

# -- systems ----------------------------------------------------------------------------------------------------------


@in_wide
def _solve(matrix: Any, rhs: Any, adjoint: bool) -> Any:
    matrix, rhs = check_solve(matrix, rhs)
    if rhs.shape[-1] == 0 or matrix.shape[-1] == 0:
        return np.zeros(rhs.shape, dtype=rhs.dtype)
    return invertible(lapack.solve, "Input matrix is not invertible.", matrices.adjoint(matrix) if adjoint else matrix, rhs)


def solve_kernel(matrix: Any, rhs: Any, *, adjoint: bool) -> Any:
    return _solve(matrix, rhs, adjoint=adjoint)


def solve_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    flip = op.attr("adjoint")
    d_rhs = g.MatrixSolve(op.matrix, dy, adjoint=not flip)
    d_matrix = mm(g, op.output, d_rhs, adj_b=True) if flip else mm(g, d_rhs, op.output, adj_b=True)
    return [g.Neg(d_matrix), d_rhs]


@in_wide
def _triangular(matrix: Any, rhs: Any, lower: bool, adjoint: bool) -> Any:
    matrix, rhs = check_square(matrix), check_matrix(rhs, 1)
    if matrix.shape[-1] != rhs.shape[-2]:
        raise matrices.incompatible_triangular(matrix, rhs)
    return matrices.solve_triangular(matrix, rhs, lower, adjoint)


def triangular_kernel(matrix: Any, rhs: Any, *, lower: bool, adjoint: bool) -> Any:
    return _triangular(matrix, rhs, lower=lower, adjoint=adjoint)


def triangular_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    a, c = op.matrix, op.output
    lower, flip = op.attr("lower"), op.attr("adjoint")
    d_rhs = g.MatrixTriangularSolve(a, dy, lower=lower, adjoint=not flip)
    d_matrix = g.Neg(mm(g, c, d_rhs, adj_b=True) if flip else mm(g, d_rhs, c, adj_b=True))
    d_matrix = band(g, d_matrix, -1, 0) if lower else band(g, d_matrix, 0, -1)
    return _unbroadcast(g, op, d_matrix, d_rhs)


def _unbroadcast(g: Any, op: Any, d_matrix: Any, d_rhs: Any) -> list[Any]:
    """Sums the gradients over the batch dimensions along which an operand was broadcast."""
    a, b = op.matrix, op.rhs
    if a.dims is not None and b.dims is not None and a.dims[:-2] == b.dims[:-2] and None not in a.dims[:-2]:
        return [d_matrix, d_rhs]
    shapes = [g.Shape(a), g.Shape(b)]
    batches = [g.StridedSlice(s, *(np.array([n], np.int32) for n in (0, -2, 1)), begin_mask=1) for s in shapes]
    axes = g.BroadcastGradientArgs(*batches)
    return [g.Reshape(g.Sum(d, r), s) for d, r, s in zip((d_matrix, d_rhs), axes, shapes, strict=True)]


for _name, _types, _note in (("MatrixSolve", _HALVES, ""), ("BatchMatrixSolve", _OLD, " deprecated@13")):
    op(f"{_name}(matrix: T, rhs: T) -> (output: T) [adjoint: bool = false; T: type in {_types}]{_note}",
       shape=solve_shape, numpy=solve_kernel, grad=solve_grad, expensive=True,
       samples=[] if _note else [dict(matrix=REGULAR, rhs=normal(3, 2)), dict(matrix=STACK, rhs=normal(2, 2, 1), adjoint=True), dict(matrix=REGULAR, rhs=empty(3, 0))],
       errors=[] if _note else [(dict(matrix=arr([[1.0, 2.0], [2.0, 4.0]]), rhs=normal(2, 1)), InvalidArgumentError, "Input matrix is not invertible."),
                                (dict(matrix=REGULAR, rhs=normal(2, 1)), InvalidArgumentError, "incompatible|Dimensions must be equal")])
for _name, _types, _note in (("MatrixTriangularSolve", "{bfloat16, double, float, half, complex64, complex128}", ""), ("BatchMatrixTriangularSolve", _OLD, " deprecated@13")):
    op(f"{_name}(matrix: T, rhs: T) -> (output: T) [lower: bool = true; adjoint: bool = false; T: type in {_types}]{_note}",
       shape=triangular_shape if not _note else solve_shape, numpy=triangular_kernel, grad=triangular_grad, expensive=True,
       samples=[] if _note else [dict(matrix=REGULAR, rhs=normal(3, 2)), dict(matrix=REGULAR, rhs=normal(3, 2), lower=False), dict(matrix=STACK, rhs=normal(2, 2, 1), adjoint=True),
                                 dict(matrix=STACK, rhs=normal(2, 1), lower=False, adjoint=True)])  # fmt: skip


@in_wide
def _least_squares(matrix: Any, rhs: Any, l2_regularizer: Any, fast: bool) -> Any:
    matrix, rhs = check_matrix(matrix), check_matrix(rhs, 1)
    if matrix.shape[-2] != rhs.shape[-2]:
        raise InvalidArgumentError("Input matrix and rhs are incompatible.")
    if l2_regularizer.ndim:
        raise InvalidArgumentError(f"l2_regularizer must be a scalar, got rank {l2_regularizer.ndim}")
    if l2_regularizer < 0:
        raise InvalidArgumentError("l2_regularizer must be >= 0.")
    if 0 in matrix.shape or 0 in rhs.shape:
        return np.zeros((*matrix.shape[:-2], matrix.shape[-1], rhs.shape[-1]), dtype=matrix.dtype)
    return matrices.least_squares(matrix, rhs, float(l2_regularizer), fast).astype(matrix.dtype)


def least_squares_kernel(matrix: Any, rhs: Any, l2_regularizer: Any, *, fast: bool) -> Any:
    return _least_squares(matrix, rhs, l2_regularizer, fast=fast)


def least_squares_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    """Through the regularised normal equations; which of their two forms depends on the matrix's shape."""
    if not op.attr("fast"):
        raise ValueError("Gradient not defined for fast=False")
    a, b, x = op.matrix, op.rhs, op.output
    rows, columns = (None, None) if a.dims is None else a.dims[-2:]
    if rows is None or columns is None:
        raise ValueError("the gradient of MatrixSolveLs needs to know the number of rows and columns of the matrix when the graph is built")
    l2 = g.Cast(op.l2_regularizer, DstT=a.dtype.base_dtype)
    size = min(rows, columns)
    tall = rows >= columns
    eye = g.const(np.eye(size), a.dtype)
    gram = g.AddV2(mm(g, a, a, adj_a=tall, adj_b=not tall), g.Mul(eye, l2))
    factor = g.Cholesky(gram)

    def solve(v: Any) -> Any:
        return g.MatrixTriangularSolve(factor, g.MatrixTriangularSolve(factor, v), adjoint=True)

    if tall:
        z = solve(dy)
        xzt = mm(g, x, z, adj_b=True)
        d_rhs = mm(g, a, z)
        d_matrix = g.AddV2(g.Neg(mm(g, a, g.AddV2(xzt, adjoint(g, xzt)))), mm(g, b, z, adj_b=True))
        return [d_matrix, d_rhs, None]
    d_rhs = solve(mm(g, a, dy))
    inner = solve(b)
    rest = g.Sub(dy, mm(g, a, d_rhs, adj_a=True))
    return [g.Sub(mm(g, inner, rest, adj_b=True), mm(g, d_rhs, x, adj_b=True)), d_rhs, None]


for _name, _types, _note in (("MatrixSolveLs", _HALVES, ""), ("BatchMatrixSolveLs", _OLD, " deprecated@13")):
    op(f"{_name}(matrix: T, rhs: T, l2_regularizer: double) -> (output: T) [T: type in {_types}; fast: bool = true]{_note}",
       shape=least_squares_shape, numpy=least_squares_kernel, grad=least_squares_grad, expensive=True,
       samples=[] if _note else [dict(matrix=arr([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]), rhs=normal(3, 1), l2_regularizer=0.1),
                                 dict(matrix=arr([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]), rhs=normal(3, 2), l2_regularizer=0.0, fast=False),
                                 dict(matrix=arr([[1.0, 2.0, 3.0], [3.0, 4.0, 7.5]]), rhs=normal(2, 1), l2_regularizer=0.1)])  # fmt: skip

# -- tridiagonal and banded systems -----------------------------------------------------------------------------------


def tridiagonal_kernel(diagonals: Any, rhs: Any, *, partial_pivoting: bool, perturb_singular: bool) -> Any:
    if diagonals.ndim < 2 or diagonals.shape[-2] != 3:
        raise InvalidArgumentError(f"Expected 3 diagonals got {diagonals.shape[-2] if diagonals.ndim >= 2 else diagonals.ndim}")
    if diagonals.shape[-1] != rhs.shape[-2]:
        raise InvalidArgumentError(f"Expected the same number of right-hand sides and matrix size: {rhs.shape[-2]} vs. {diagonals.shape[-1]}")
    return matrices.tridiagonal_solve(diagonals, rhs, partial_pivoting)


def tridiagonal_shape(c: Any) -> Dims:
    with_rank_at_least(c, 0, 2)
    return with_rank_at_least(c, 1, 2)


def _rows(g: Any, x: Any, begin: int, end: int) -> Any:
    """x[..., begin:end, :], where an end of 0 means the last row."""
    bounds = (np.array(v, np.int32) for v in ([0, begin, 0], [0, end, 0], [1, 1, 1]))
    return g.StridedSlice(x, *bounds, ellipsis_mask=1, begin_mask=4, end_mask=4 if end else 6)


def _shifted(g: Any, x: Any, steps: int) -> Any:
    """Row i of the result is row i + steps (1 or -1) of x; zeros come in at the end."""
    if steps > 0:
        return g.ConcatV2([_rows(g, x, 1, 0), g.ZerosLike(_rows(g, x, 0, 1))], np.int32(-2))
    return g.ConcatV2([g.ZerosLike(_rows(g, x, 0, 1)), _rows(g, x, 0, -1)], np.int32(-2))


def tridiagonal_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    """The adjoint system has the diagonals shifted and exchanged; each diagonal's slope is a shifted product of rows."""
    d, x = op.diagonals, op.output
    upper, main, lower = g.Unpack(d, num=3, axis=-2)
    as_rows = [g.ExpandDims(t, np.int32(-1)) for t in (upper, main, lower)]
    swapped = [_shifted(g, as_rows[2], 1), as_rows[1], _shifted(g, as_rows[0], -1)]
    transposed = g.Pack([g.Squeeze(t, squeeze_dims=[-1]) for t in swapped], axis=-2)
    d_rhs = g.TridiagonalSolve(transposed, dy, partial_pivoting=op.attr("partial_pivoting"), perturb_singular=op.attr("perturb_singular"))
    minus = g.Neg(d_rhs)
    parts = [g.Sum(g.Mul(minus, _shifted(g, x, s) if s else x), np.array([-1], np.int32)) for s in (1, 0, -1)]
    return [g.Pack(parts, axis=-2), d_rhs]


op("TridiagonalSolve(diagonals: T, rhs: T) -> (output: T) [partial_pivoting: bool = true; perturb_singular: bool = false; T: type in {double, float, complex64, complex128}]",
   shape=tridiagonal_shape, numpy=tridiagonal_kernel, grad=tridiagonal_grad,
   samples=[dict(diagonals=arr([[1.0, 2, 9], [4, 5, 6], [9, 1, 2]]), rhs=normal(3, 2)), dict(diagonals=arr([[1.0, 2, 9, 0], [0.5, 5, 0, 1], [9, 1, 2, 3]]), rhs=normal(4, 1)),
            dict(diagonals=arr([[[1.0, 9], [4, 5], [9, 1]], [[1, 2], [3, 4], [5, 1.5]]]), rhs=normal(2, 2, 1), partial_pivoting=False)])  # fmt: skip


def tridiagonal_product_kernel(superdiag: Any, maindiag: Any, subdiag: Any, rhs: Any) -> Any:
    return matrices.tridiagonal_product(superdiag, maindiag, subdiag, np.asarray(rhs))


def tridiagonal_product_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    upper, main, lower, rhs = op.superdiag, op.maindiag, op.subdiag, op.rhs
    columns = [adjoint(g, t) for t in (upper, main, lower)]
    d_rhs = g.AddV2(g.AddV2(g.Mul(columns[1], dy), _shifted(g, g.Mul(columns[0], dy), -1)), _shifted(g, g.Mul(columns[2], dy), 1))

    def slope(steps: int) -> Any:
        rows = _shifted(g, rhs, steps) if steps else rhs
        return g.ExpandDims(g.Sum(g.Mul(conj(g, rows), dy), np.array([-1], np.int32)), np.int32(-2))

    return [slope(1), slope(0), slope(-1), d_rhs]


op("TridiagonalMatMul(superdiag: T, maindiag: T, subdiag: T, rhs: T) -> (output: T) [T: type in {double, float, complex64, complex128}]",
   shape=lambda c: c.dims(3), numpy=tridiagonal_product_kernel, grad=tridiagonal_product_grad,
   samples=[dict(superdiag=normal(1, 4), maindiag=normal(1, 4), subdiag=normal(1, 4), rhs=normal(4, 2)), dict(superdiag=normal(2, 1, 3), maindiag=normal(2, 1, 3), subdiag=normal(2, 1, 3), rhs=normal(2, 3, 1))])  # fmt: skip


@in_wide
def _banded(matrix: Any, rhs: Any, lower: bool, adjoint: bool) -> Any:
    matrix, rhs = check_matrix(matrix), check_matrix(rhs, 1)
    if matrix.shape[-1] != rhs.shape[-2]:
        raise matrices.incompatible_triangular(matrix, rhs)
    return matrices.solve_triangular(matrices.from_bands(matrix, lower), rhs, lower, adjoint)


def banded_kernel(matrix: Any, rhs: Any, *, lower: bool, adjoint: bool) -> Any:
    return _banded(matrix, rhs, lower=lower, adjoint=adjoint)


def banded_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    lower, flip, c = op.attr("lower"), op.attr("adjoint"), op.output
    d_rhs = g.BandedTriangularSolve(op.matrix, dy, lower=lower, adjoint=not flip)
    d_matrix = g.Neg(mm(g, c, d_rhs, adj_b=True) if flip else mm(g, d_rhs, c, adj_b=True))
    bands = g.StridedSlice(g.Shape(op.matrix), *(np.array([n], np.int32) for n in (-2, -1, 1)), shrink_axis_mask=1)
    last = g.Sub(bands, np.int32(1))
    k = g.Pack([g.Neg(last), np.int32(0)] if lower else [np.int32(0), last])
    d_bands = g.MatrixDiagPartV3(d_matrix, k, g.const(0, dy.dtype), align="LEFT_RIGHT")
    # A single band comes without its own axis.
    return _unbroadcast(g, op, g.Reshape(d_bands, _banded_shape_of(g, op, d_matrix)), d_rhs)


def _banded_shape_of(g: Any, op: Any, d_matrix: Any) -> Any:
    batch = g.StridedSlice(g.Shape(d_matrix), *(np.array([n], np.int32) for n in (0, -2, 1)), begin_mask=1)
    own = g.StridedSlice(g.Shape(op.matrix), *(np.array([n], np.int32) for n in (-2, 0, 1)), end_mask=1)
    return g.ConcatV2([batch, own], np.int32(0))


def banded_shape(c: Any) -> Dims:
    a, b = with_rank_at_least(c, 0, 2), with_rank_at_least(c, 1, 2)
    if a is None or b is None:
        return None
    batch = broadcast_dims(a[:-2], b[:-2])
    return None if batch is None else (*batch, merge_dim(a[-1], b[-2]), b[-1])


op(f"BandedTriangularSolve(matrix: T, rhs: T) -> (output: T) [lower: bool = true; adjoint: bool = false; T: type in {_HALVES}]",
   shape=banded_shape, numpy=banded_kernel, grad=banded_grad,
   samples=[dict(matrix=arr([[4.0, 5, 6], [9, 1, 2]]), rhs=normal(3, 2)), dict(matrix=arr([[4.0, 5, 6], [9, 1, 2]]), rhs=normal(3, 1), lower=False),
            dict(matrix=arr([[4.0, 5, 6], [9, 1, 2]]), rhs=normal(3, 1), adjoint=True)])  # fmt: skip
