"""Products and factorisations of matrices in the public API (tf.matmul, tf.linalg.*)."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api import math_ops
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

# -- products ---------------------------------------------------------------------------------------------------------


@export("matmul", "linalg.matmul")
def matmul(
    a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False, adjoint_a: bool = False, adjoint_b: bool = False,
    a_is_sparse: bool = False, b_is_sparse: bool = False, output_type: Any = None, grad_a: bool = False, grad_b: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The matrix product of the last two dimensions; leading dimensions are batches and broadcast.

    `transpose_*` and `adjoint_*` flip an operand first. `*_is_sparse` says that most elements are 0 (a hint).
    """
    with name_scope(name, "MatMul", [a, b]) as scope:
        for side, transpose, adjoint in (("a", transpose_a, adjoint_a), ("b", transpose_b, adjoint_b)):
            if transpose and adjoint:
                raise ValueError(f"Only one of `transpose_{side}` and `adjoint_{side}` can be True. Received `transpose_{side}`={transpose}, `adjoint_{side}`={adjoint}.")
        a = convert_to_tensor(a, name="a")
        b = convert_to_tensor(b, name="b", preferred_dtype=a.dtype.base_dtype)
        sparse = a_is_sparse or b_is_sparse
        batched = a.dims is None or len(a.dims) > 2 or b.dims is None or len(b.dims) > 2
        kinds = (a.dtype.base_dtype, b.dtype.base_dtype)
        want = None if output_type is None else dtypes.as_dtype(output_type).base_dtype
        if not sparse and (batched or (want is not None and want is not kinds[0])):
            # The batched op knows adjoints only, so a transpose is the adjoint of the conjugate.
            if transpose_a:
                a, adjoint_a = math_ops.conj(a), True
            if transpose_b:
                b, adjoint_b = math_ops.conj(b), True
            if kinds[0] is not kinds[1] or (want is not None and want is not kinds[0]):
                return raw.BatchMatMulV3(a, b, adj_x=adjoint_a, adj_y=adjoint_b, Tout=want or kinds[0], name=scope)
            return raw.BatchMatMulV2(a, b, adj_x=adjoint_a, adj_y=adjoint_b, name=scope)
        if adjoint_a:
            a, transpose_a = math_ops.conj(a), True
        if adjoint_b:
            b, transpose_b = math_ops.conj(b), True
        plain = (dtypes.bfloat16, dtypes.float32)
        mixed = kinds[0] is not kinds[1] and dtypes.bfloat16 in kinds
        if (sparse or mixed) and kinds[0] in plain and kinds[1] in plain:
            product = raw.SparseMatMul(
                a, b, transpose_a=transpose_a, transpose_b=transpose_b, a_is_sparse=a_is_sparse, b_is_sparse=b_is_sparse, name=scope
            )
            return math_ops.cast(product, dtypes.bfloat16) if kinds == (dtypes.bfloat16, dtypes.bfloat16) else product
        return raw.MatMul(a, b, transpose_a=transpose_a, transpose_b=transpose_b, name=scope)
