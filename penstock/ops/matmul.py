"""Products of matrices and vectors: MatMul, its batched versions, Cross. Half and bfloat16 are multiplied and summed in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import FailedPreconditionError, InvalidArgumentError
from penstock.ops.broadcasting import conj
from penstock.ops.declare import op, with_rank, with_rank_at_least
from penstock.ops.kernels.numeric import NARROW, narrow, widen
from penstock.ops.kernels.products import product
from penstock.ops.native.frames import share_out
from penstock.ops.samples import empty, ints, normal
from penstock.shapes import Dims, broadcast_dims, format_dims, merge_dim, merge_dims

# -- MatMul -----------------------------------------------------------------------------------------------------------


def matmul_kernel(a: Any, b: Any, *, transpose_a: bool, transpose_b: bool) -> Any:
    if a.ndim != 2 or b.ndim != 2:
        i, bad = (0, a) if a.ndim != 2 else (1, b)
        raise InvalidArgumentError(f"In[{i}] is not a matrix. Instead it has shape {format_dims(bad.shape)}")
    x = a.T if transpose_a else a
    y = b.T if transpose_b else b
    if x.shape[1] != y.shape[0]:
        raise InvalidArgumentError(f"Matrix size-incompatible: In[0]: {format_dims(a.shape)}, In[1]: {format_dims(b.shape)}")
    if a.dtype in NARROW:
        return narrow(np.matmul(widen(x), widen(y)), a.dtype)
    if x.shape[1] == 1:  # an outer product: a tenth of what BLAS takes for it
        return np.multiply(x, y, order="C")
    return product(x, y)


def matmul_shape(c: Any) -> Dims:
    a, b = with_rank(c, 0, 2), with_rank(c, 1, 2)
    rows, inner = reversed(a) if c.attrs["transpose_a"] else a
    inner_b, columns = reversed(b) if c.attrs["transpose_b"] else b
    merge_dim(inner, inner_b)
    return rows, columns


def matmul_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    a, b = conj(g, op.a), conj(g, op.b)
    ta, tb = op.attr("transpose_a"), op.attr("transpose_b")
    if not ta and not tb:
        return [g.MatMul(dy, b, transpose_b=True), g.MatMul(a, dy, transpose_a=True)]
    if not ta:
        return [g.MatMul(dy, b), g.MatMul(dy, a, transpose_a=True)]
    if not tb:
        return [g.MatMul(b, dy, transpose_b=True), g.MatMul(a, dy)]
    return [g.MatMul(b, dy, transpose_a=True, transpose_b=True), g.MatMul(dy, a, transpose_a=True, transpose_b=True)]


op("MatMul(a: T, b: T) -> (product: T) [transpose_a: bool = false; transpose_b: bool = false;"
   " T: type in {bfloat16, half, float, double, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128};"
   " grad_a: bool = false; grad_b: bool = false]",
   shape=matmul_shape, numpy=matmul_kernel, grad=matmul_grad, expensive=True,
   samples=[dict(a=normal(2, 3), b=normal(3, 4)), dict(a=normal(3, 2), b=normal(3, 4), transpose_a=True), dict(a=normal(2, 3), b=normal(4, 3), transpose_b=True),
            dict(a=normal(3, 2), b=normal(4, 3), transpose_a=True, transpose_b=True), dict(a=empty(0, 3), b=normal(3, 2)), dict(a=empty(2, 0), b=empty(0, 3)),
            dict(a=ints(2, 3), b=ints(3, 2))],
   errors=[(dict(a=normal(2, 3), b=normal(2, 2)), InvalidArgumentError, r"Matrix size-incompatible: In\[0\]: \[2,3\], In\[1\]: \[2,2\]|Dimensions must be equal")])  # fmt: skip


def sum_of_products_kernel(a: list[Any], b: list[Any]) -> Any:
    total = np.matmul(a[0].T, b[0])
    for x, y in zip(a[1:], b[1:], strict=True):
        total += np.matmul(x.T, y)
    return total


def sum_of_products_shape(c: Any) -> Dims:
    first, second = with_rank(c, 0, 2), with_rank(c, c.n // 2, 2)
    return first[1], second[1]


# What the optimiser makes of the sum of a weight's gradients over the steps of an unrolled loop: a[0]' b[0] + a[1]' b[1] + ...
op("_SumOfProducts(a: N*T, b: N*T) -> (sum: T) [N: int >= 1; T: type in {float, double}]",
   shape=sum_of_products_shape, numpy=sum_of_products_kernel, expensive=True)  # fmt: skip


def sum_of_products_and_rows_kernel(a: list[Any], b: list[Any]) -> list[Any]:
    rows = np.add.reduce(b[0], 0)
    for y in b[1:]:
        rows += np.add.reduce(y, 0)
    return [sum_of_products_kernel(a, b), rows]


def sum_of_products_and_rows_shape(c: Any) -> list[Dims]:
    dims = sum_of_products_shape(c)
    return [dims, dims[1:]]  # type: ignore[index]


# ... together with the gradient of the bias behind these products: the sum of the rows of all b.
op("_SumOfProductsAndRows(a: N*T, b: N*T) -> (sum: T, rows: T) [N: int >= 1; T: type in {float, double}]",
   shape=sum_of_products_and_rows_shape, numpy=sum_of_products_and_rows_kernel, expensive=True)  # fmt: skip


def matmul_columns_kernel(a: Any, b: Any, *, start: int, count: int) -> Any:
    if b.ndim == 2 and len(b) < start + count:  # a claimed shape was wrong
        raise InvalidArgumentError(f"Expected size[1] in [0, {max(len(b) - start, 0)}], but got {count}")
    return matmul_kernel(a, b[start : start + count], transpose_a=False, transpose_b=True)


# What the optimiser makes of columns of a product with a transposed matrix: columns [start, start + count) of a b'.
op("_MatMulColumns(a: T, b: T) -> (product: T) [start: int; count: int; T: type in {float}]",
   shape=lambda c: (with_rank(c, 0, 2)[0], c.attrs["count"]), numpy=matmul_columns_kernel, expensive=True)  # fmt: skip


def sparse_matmul_kernel(a: Any, b: Any, *, transpose_a: bool, transpose_b: bool) -> Any:
    """The flags about sparseness are hints for speed; a dense product gives the same numbers."""
    return matmul_kernel(a.astype(np.float32, copy=False), b.astype(np.float32, copy=False), transpose_a=transpose_a, transpose_b=transpose_b)


def sparse_matmul_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    ta, tb = op.attr("transpose_a"), op.attr("transpose_b")
    is_sparse = {id(op.a): op.attr("a_is_sparse"), id(op.b): op.attr("b_is_sparse"), id(dy): dy.op.type in ("Relu", "ReluGrad")}

    def product(x: Any, y: Any, into: Any, tx: bool = False, ty: bool = False) -> Any:
        z = g.SparseMatMul(x, y, transpose_a=tx, transpose_b=ty, a_is_sparse=is_sparse[id(x)], b_is_sparse=is_sparse[id(y)])
        return z if into.dtype.base_dtype is dtypes.float32 else g.Cast(z, DstT=into.dtype.base_dtype)

    if not ta and not tb:
        return [product(dy, op.b, op.a, ty=True), product(op.a, dy, op.b, tx=True)]
    if not ta:
        return [product(dy, op.b, op.a), product(dy, op.a, op.b, tx=True)]
    if not tb:
        return [product(op.b, dy, op.a, ty=True), product(op.a, dy, op.b)]
    return [product(op.b, dy, op.a, tx=True, ty=True), product(dy, op.a, op.b, tx=True, ty=True)]


op("SparseMatMul(a: Ta, b: Tb) -> (product: float) [transpose_a: bool = false; transpose_b: bool = false; a_is_sparse: bool = false;"
   " b_is_sparse: bool = false; Ta: type in {float, bfloat16} = float; Tb: type in {float, bfloat16} = float]",
   shape=matmul_shape, numpy=sparse_matmul_kernel, grad=sparse_matmul_grad, expensive=True,
   samples=[dict(a=normal(2, 3), b=normal(3, 4), a_is_sparse=True), dict(a=normal(3, 2), b=normal(4, 3), transpose_a=True, transpose_b=True)])

# -- batches of matrices ----------------------------------------------------------------------------------------------


def _adjoint(x: Any) -> Any:
    x = np.swapaxes(x, -1, -2)
    return np.conj(x) if x.dtype.kind == "c" else x


def batch_product(x: Any, y: Any, adj_x: bool, adj_y: bool) -> Any:
    for i, t in enumerate((x, y)):
        if t.ndim < 2:
            raise InvalidArgumentError(f"In[{i}] ndims must be >= 2: {t.ndim}")
    a = _adjoint(x) if adj_x else x
    b = _adjoint(y) if adj_y else y
    if a.shape[-1] != b.shape[-2]:
        raise InvalidArgumentError(f"Matrix size-incompatible: In[0]: {format_dims(x.shape)}, In[1]: {format_dims(y.shape)} {adj_x:d} {adj_y:d}")
    try:
        if a.shape[-1] == 1:  # outer products: a third of what BLAS takes for them
            return _outer_products(a, b)
        return product(a, b)
    except ValueError:
        raise InvalidArgumentError(
            f"In[0] and In[1] must have compatible batch dimensions: {format_dims(x.shape)} vs. {format_dims(y.shape)}"
        ) from None


def _outer_products(a: Any, b: Any) -> Any:
    """a * b, a column of numbers with a row; threads take some of many each."""
    if a.ndim < 3 or len(a) != len(b) or a.ndim != b.ndim:
        return np.multiply(a, b, order="C")
    result = np.empty(np.broadcast_shapes(a.shape, b.shape), a.dtype)

    def run(start: int, end: int) -> None:
        np.multiply(a[start:end], b[start:end], out=result[start:end])

    share_out(len(a), result.size // max(len(a), 1), run)
    return result


def batch_matmul_v2_kernel(x: Any, y: Any, *, adj_x: bool, adj_y: bool) -> Any:
    if x.dtype in NARROW:
        return batch_product(widen(x), widen(y), adj_x, adj_y).astype(x.dtype)
    return batch_product(x, y, adj_x, adj_y)


def batch_matmul_kernel(x: Any, y: Any, *, adj_x: bool, adj_y: bool) -> Any:
    if x.ndim != y.ndim:
        raise InvalidArgumentError(f"In[0] and In[1] has different ndims: {format_dims(x.shape)} vs. {format_dims(y.shape)}")
    for i in range(x.ndim - 2):
        if x.shape[i] != y.shape[i]:
            raise InvalidArgumentError(f"In[0].dim({i}) and In[1].dim({i}) must be the same: {format_dims(x.shape)} vs {format_dims(y.shape)}")
    return batch_matmul_v2_kernel(x, y, adj_x=adj_x, adj_y=adj_y)


def batch_matmul_v3_kernel(x: Any, y: Any, *, adj_x: bool, adj_y: bool, Tout: DType) -> Any:
    wide = np.dtype(np.float32) if Tout.np in NARROW else Tout.np
    return batch_product(x.astype(wide, copy=False), y.astype(wide, copy=False), adj_x, adj_y).astype(Tout.np, copy=False)


def _matrix_dims(c: Any, i: int, adjoint: bool) -> tuple[Any, Any, Any]:
    """(batch dims or None, rows, columns) of input `i` as it takes part in the product."""
    dims = with_rank_at_least(c, i, 2)
    if dims is None:
        return None, None, None
    rows, columns = dims[-2:]
    return dims[:-2], *((columns, rows) if adjoint else (rows, columns))


def batch_matmul_v2_shape(c: Any) -> Dims:
    bx, rows, inner_x = _matrix_dims(c, 0, c.attrs["adj_x"])
    by, inner_y, columns = _matrix_dims(c, 1, c.attrs["adj_y"])
    merge_dim(inner_x, inner_y)
    batch = broadcast_dims(bx, by)
    return None if batch is None else (*batch, rows, columns)


def batch_matmul_shape(c: Any) -> Dims:
    bx, rows, inner_x = _matrix_dims(c, 0, c.attrs["adj_x"])
    by, inner_y, columns = _matrix_dims(c, 1, c.attrs["adj_y"])
    merge_dim(inner_x, inner_y)
    batch = merge_dims(bx, by)
    return None if batch is None else (*batch, rows, columns)


def _unbroadcast(g: Any, op: Any, grads: list[Any]) -> list[Any]:
    """Sums batched gradients over the batch axes along which each operand was broadcast."""
    x, y = op.x, op.y
    if x.dims is not None and y.dims is not None and x.dims[:-2] == y.dims[:-2] and None not in x.dims[:-2]:
        return grads
    if x.dims is not None and y.dims is not None and len(x.dims) == len(y.dims) == 2:
        return grads
    shapes = [g.Shape(x), g.Shape(y)]
    zero, minus_two, one = (np.array([n], dtype=np.int32) for n in (0, -2, 1))
    batches = [g.StridedSlice(s, zero, minus_two, one, begin_mask=1) for s in shapes]
    axes = g.BroadcastGradientArgs(*batches)
    return [g.Reshape(g.Sum(grad, a), s) for grad, a, s in zip(grads, axes, shapes, strict=True)]


def _batch_grads(g: Any, op: Any, dy: Any, product: Any) -> list[Any]:
    """Both operands' gradients; `product(a, b, adj_a, adj_b, into)` builds a product of the type of tensor `into`."""
    x, y, ax, ay = op.x, op.y, op.attr("adj_x"), op.attr("adj_y")
    if not ax and not ay:
        return [product(dy, y, False, True, x), product(x, dy, True, False, y)]
    if not ax:
        return [product(dy, y, False, False, x), product(dy, x, True, False, y)]
    if not ay:
        return [product(y, dy, False, True, x), product(x, dy, False, False, y)]
    return [product(y, dy, True, True, x), product(dy, x, True, True, y)]


def batch_matmul_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    return _batch_grads(g, op, dy, lambda a, b, aa, ab, into: g.BatchMatMul(a, b, adj_x=aa, adj_y=ab))


def batch_matmul_v2_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    return _unbroadcast(g, op, _batch_grads(g, op, dy, lambda a, b, aa, ab, into: g.BatchMatMulV2(a, b, adj_x=aa, adj_y=ab)))


def batch_matmul_v3_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    def product(a: Any, b: Any, aa: bool, ab: bool, into: Any) -> Any:
        return g.BatchMatMulV3(a, b, adj_x=aa, adj_y=ab, Tout=into.dtype.base_dtype)

    return _unbroadcast(g, op, _batch_grads(g, op, dy, product))


EQUAL_BATCHES = [dict(x=normal(2, 2, 3), y=normal(2, 3, 4)), dict(x=normal(2, 3, 2), y=normal(2, 3, 4), adj_x=True), dict(x=normal(2, 2, 3), y=normal(2, 4, 3), adj_y=True),
                 dict(x=normal(1, 3, 2), y=normal(1, 4, 3), adj_x=True, adj_y=True), dict(x=normal(2, 3), y=normal(3, 2)), dict(x=empty(0, 2, 3), y=empty(0, 3, 1))]  # fmt: skip
BATCHES = [*EQUAL_BATCHES, dict(x=normal(2, 1, 2, 3), y=normal(4, 3, 2)), dict(x=normal(2, 3), y=normal(2, 3, 2))]
OTHER_SIZES = (dict(x=normal(2, 2, 3), y=normal(2, 2, 1)), InvalidArgumentError, "Matrix size-incompatible|Dimensions must be equal")
ADJOINTS = "adj_x: bool = false; adj_y: bool = false; grad_x: bool = false; grad_y: bool = false]"

op(f"BatchMatMul(x: T, y: T) -> (output: T) [T: type in {{bfloat16, half, float, double, int32, int64, complex64, complex128}}; {ADJOINTS}",
   shape=batch_matmul_shape, numpy=batch_matmul_kernel, grad=batch_matmul_grad, expensive=True, samples=EQUAL_BATCHES,
   errors=[OTHER_SIZES])
op("BatchMatMulV2(x: T, y: T) -> (output: T) [T: type in {bfloat16, half, float, double, int16, int32, int64, uint8, uint16, uint32, uint64,"
   f" complex64, complex128}}; {ADJOINTS}",
   shape=batch_matmul_v2_shape, numpy=batch_matmul_v2_kernel, grad=batch_matmul_v2_grad, expensive=True, samples=BATCHES,
   errors=[OTHER_SIZES])
_V3 = "{bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}"
op(f"BatchMatMulV3(x: Ta, y: Tb) -> (output: Tout) [Ta: type in {_V3}; Tb: type in {_V3};"
   f" Tout: type in {{bfloat16, half, float, double, int16, int32, int64, complex64, complex128}}; {ADJOINTS}",
   shape=batch_matmul_v2_shape, numpy=batch_matmul_v3_kernel, grad=batch_matmul_v3_grad, expensive=True,
   samples=[dict(x=normal(2, 2, 3, dtype=np.float32), y=normal(3, 4, dtype=np.float32), Tout=dtypes.float32),
            dict(x=ints(2, 3, dtype=np.int8), y=ints(3, 2, dtype=np.int8), Tout=dtypes.int32)])  # fmt: skip

# -- cross products ---------------------------------------------------------------------------------------------------


def cross_kernel(a: Any, b: Any) -> Any:
    if a.shape != b.shape:
        raise InvalidArgumentError(f"Both inputs must be of same shape: {format_dims(a.shape)} vs. {format_dims(b.shape)}")
    if not a.ndim:
        raise InvalidArgumentError(f"Input must be at least 1D{format_dims(a.shape)}")
    if a.shape[-1] != 3:
        raise FailedPreconditionError("Cross-products are only defined for 3-element vectors.")
    x, y = widen(a), widen(b)
    (x0, x1, x2), (y0, y1, y2) = ([v[..., i] for i in range(3)] for v in (x, y))
    return np.stack([x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, x0 * y1 - x1 * y0], axis=-1).astype(a.dtype)


def cross_shape(c: Any) -> Dims:
    with_rank_at_least(c, 0, 1)
    with_rank_at_least(c, 1, 1)
    dims = merge_dims(c.dims(0), c.dims(1))
    if dims is not None and dims[-1] not in (None, 3):
        raise ValueError(f"Dimension must be 3 but is {dims[-1]}")
    return dims


op("Cross(a: T, b: T) -> (product: T) [T: type in REALS]",
   shape=cross_shape, numpy=cross_kernel, grad=lambda g, op, dy: [g.Cross(op.b, dy), g.Cross(dy, op.a)],
   samples=[dict(a=ints(3), b=ints(3)), dict(a=normal(2, 3), b=normal(2, 3)), dict(a=empty(0, 3), b=empty(0, 3))],
   errors=[(dict(a=normal(2), b=normal(2)), FailedPreconditionError, "Cross-products are only defined for 3-element vectors."),
           (dict(a=normal(3), b=normal(1, 3)), InvalidArgumentError, "Both inputs must be of same shape")])  # fmt: skip


def scaled_batch_matmul_kernel(x: Any, y: Any, *, adj_x: bool, adj_y: bool, scale: float) -> Any:
    return batch_matmul_v2_kernel(x, y, adj_x=adj_x, adj_y=adj_y) * np.float32(scale)


# What the optimiser makes of a batch of products and a number.
op("_ScaledBatchMatMul(x: T, y: T) -> (output: T) [T: type in {float}; adj_x: bool = false; adj_y: bool = false; scale: float = 1.0]",
   shape=batch_matmul_v2_shape, numpy=scaled_batch_matmul_kernel, expensive=True)  # fmt: skip
