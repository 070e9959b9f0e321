"""Products of matrices.

A product of half or bfloat16 has that type, for which XLA sums in float32 and rounds once. Asking for float32 and rounding the result
would mean the same, and write twice the bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import jnp, lax, rule
from penstock.ops.kernels.numeric import NARROW, narrow, widen


@rule("MatMul", heavy=True)
def matmul(a: Any, b: Any, *, transpose_a: bool, transpose_b: bool) -> Any:
    need(a.ndim == 2 and b.ndim == 2, "MatMul of something else than matrices")
    inner = 0 if transpose_a else 1, 1 if transpose_b else 0
    need(a.shape[inner[0]] == b.shape[inner[1]], "MatMul of sizes that do not fit")
    dims = (((inner[0],), (inner[1],)), ((), ()))
    return lax.dot_general(a, b, dims)


@rule("SparseMatMul", heavy=True)
def sparse_matmul(a: Any, b: Any, *, transpose_a: bool, transpose_b: bool) -> Any:
    return matmul(widen(a), widen(b), transpose_a=transpose_a, transpose_b=transpose_b)


def adjoint(x: Any) -> Any:
    """The conjugate transpose of each matrix."""
    x = jnp.swapaxes(x, -1, -2)
    return jnp.conj(x) if x.dtype.kind == "c" else x


def _batch_product(x: Any, y: Any, adj_x: bool, adj_y: bool, out_type: Any = None) -> Any:
    need(x.ndim >= 2 and y.ndim >= 2, "a product of something else than matrices")
    x, y = adjoint(x) if adj_x else x, adjoint(y) if adj_y else y
    need(x.shape[-1] == y.shape[-2], "a product of sizes that do not fit")
    try:
        np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    except ValueError:
        need(False, "a product of batches that do not fit")
    return jnp.matmul(x, y, preferred_element_type=out_type)


@rule("BatchMatMul", heavy=True)
def batch_matmul(x: Any, y: Any, *, adj_x: bool, adj_y: bool) -> Any:
    need(x.shape[:-2] == y.shape[:-2], "a product of batches that do not fit")
    return batch_matmul_v2(x, y, adj_x=adj_x, adj_y=adj_y)


@rule("BatchMatMulV2", heavy=True)
def batch_matmul_v2(x: Any, y: Any, *, adj_x: bool, adj_y: bool) -> Any:
    return _batch_product(x, y, adj_x, adj_y)


@rule("BatchMatMulV3", heavy=True)
def batch_matmul_v3(x: Any, y: Any, *, adj_x: bool, adj_y: bool, Tout: DType) -> Any:
    if x.dtype == y.dtype == Tout.np:
        return _batch_product(x, y, adj_x, adj_y)
    wide = np.dtype(np.float32) if Tout.np in NARROW else Tout.np
    if x.dtype != y.dtype:
        x, y = x.astype(wide), y.astype(wide)
    return narrow(_batch_product(x, y, adj_x, adj_y, wide), Tout.np)


@rule("Cross")
def cross(a: Any, b: Any) -> Any:
    need(a.shape == b.shape and a.ndim > 0 and a.shape[-1] == 3, "a cross product of something else than vectors of three")
    (x0, x1, x2), (y0, y1, y2) = ([widen(v)[..., i] for i in range(3)] for v in (a, b))
    return narrow(jnp.stack([x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, x0 * y1 - x1 * y0], -1), a.dtype)
