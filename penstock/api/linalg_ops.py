"""Products and diagonals of matrices in the public API (tf.matmul, tf.einsum, tf.matrix_diag, ...).

Solving and factorising is in `linalg_solve`.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api import math_ops
from penstock.api.array_ops import concat, expand_dims, matrix_transpose, rank, reshape, squeeze, transpose
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.api.math_reduce import reduce_node
from penstock.graph.constant import constant
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


@export("linalg.matvec")
def matvec(
    a: Any, b: Any, transpose_a: bool = False, adjoint_a: bool = False, a_is_sparse: bool = False, b_is_sparse: bool = False, name: str | None = None
) -> Tensor:
    """The product of matrices `a` [..., m, n] and vectors `b` [..., n]."""
    with name_scope(name, "MatVec", [a, b]):
        column = expand_dims(convert_to_tensor(b), axis=-1)
        product = matmul(a, column, transpose_a=transpose_a, adjoint_a=adjoint_a, a_is_sparse=a_is_sparse, b_is_sparse=b_is_sparse)
        return squeeze(product, axis=-1)


@export("sparse_matmul")
def sparse_matmul(
    a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False, a_is_sparse: bool = False, b_is_sparse: bool = False, name: str | None = None
) -> Tensor:
    """The product of two matrices of float32 or bfloat16, of which one may be mostly zeros; float32."""
    return raw.SparseMatMul(a, b, transpose_a=transpose_a, transpose_b=transpose_b, a_is_sparse=a_is_sparse, b_is_sparse=b_is_sparse, name=name)


@export("cross", "linalg.cross")
def cross(a: Any, b: Any, name: str | None = None) -> Tensor:
    """Cross products of the vectors of length 3 along the last axis."""
    return raw.Cross(a, b, name=name)


@export("trace", "linalg.trace")
def trace(x: Any, name: str | None = None) -> Tensor:
    """The sum of the main diagonal of each matrix."""
    with name_scope(name, "Trace", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return reduce_node("Sum", diag_part(x), [-1], False, scope)


@export("linalg.adjoint")
def adjoint(matrix: Any, name: str | None = None) -> Tensor:
    """The conjugate transpose of each matrix."""
    with name_scope(name, "adjoint", [matrix]):
        return matrix_transpose(convert_to_tensor(matrix, name="matrix"), conjugate=True)


@export("tensordot", "linalg.tensordot")
def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Tensor:
    """Sums products over `axes`: a number n (the last n of a, the first n of b) or a pair of lists of axes.

    `tf.tensordot(a, b, 1)` is the matrix product, `axes=0` the outer product.
    """
    with name_scope(name, "Tensordot", [a, b, axes]) as scope:
        a = convert_to_tensor(a, name="a")
        b = convert_to_tensor(b, name="b")
        a_axes, b_axes = _contracted(a, axes)
        left, a_free, a_free_static = _as_matrix(a, a_axes, False)
        right, b_free, b_free_static = _as_matrix(b, b_axes, True)
        product = matmul(left, right)
        if isinstance(a_free, list) and isinstance(b_free, list):
            dims = a_free + b_free
            if product.dims == tuple(dims):
                return product
            return reshape(product, constant(dims, dtype=dtypes.int32), name=scope)
        a_free, b_free = (constant(f, dtype=dtypes.int32) if isinstance(f, list) else f for f in (a_free, b_free))
        result = reshape(product, concat([a_free, b_free], 0), name=scope)
        if a_free_static is not None and b_free_static is not None:
            result.set_shape(a_free_static + b_free_static)
        return result


def _contracted(a: Tensor, axes: Any) -> tuple[Any, Any]:
    """The axes of both operands, as lists or as tensors."""
    if isinstance(axes, (int, np.integer)):
        n = int(axes)
        if n < 0:
            raise ValueError(f"`axes` must be at least 0. Received: {axes}.")
        if a.dims is not None:
            if n > len(a.dims):
                raise ValueError(f"`axes` must not be larger than the number of dimensions of tensor {a}.  Received {axes}, vs tensor dimensions {a.ndim}.")
            return list(range(len(a.dims) - n, len(a.dims))), list(range(n))
        return raw.Range(rank(a) - n, rank(a), 1), list(range(n))  # type: ignore[operator]
    if isinstance(axes, (list, tuple)):
        if len(axes) != 2:
            raise ValueError(f"`axes` must be an integer or have length 2. Received {axes}.")
        pair = [[int(v)] if isinstance(v, (int, np.integer)) else list(v) if isinstance(v, (list, tuple, np.ndarray)) else v for v in axes]
        if isinstance(pair[0], list) and isinstance(pair[1], list) and len(pair[0]) != len(pair[1]):
            raise ValueError(f"Different number of contraction axes `a` and `b`, {len(pair[0])} != {len(pair[1])}.")
        return pair[0], pair[1]
    axes = convert_to_tensor(axes, name="axes", dtype=dtypes.int32)
    return axes[0], axes[1]  # type: ignore[index]


def _as_matrix(x: Tensor, axes: Any, flipped: bool) -> tuple[Tensor, Any, list[int | None] | None]:
    """(x as [free, summed], or the other way around; its free sizes, as a list if known; the free sizes as far as known)."""
    if x.dims is not None and isinstance(axes, list):
        n = len(x.dims)
        summed = [int(a) + n if int(a) < 0 else int(a) for a in axes]
        free = [i for i in range(n) if i not in summed]
        order = summed + free if flipped else free + summed
        static = [x.dims[i] for i in free]
        if None not in x.dims:
            sizes = [math.prod(x.dims[i] or 0 for i in group) for group in (free, summed)]
            turned = x if order == list(range(n)) else transpose(x, order)
            want = sizes[::-1] if flipped else sizes
            return (turned if list(turned.dims or ()) == want else reshape(turned, want)), static, static
        summed_t = constant(summed, dtype=dtypes.int32, name="axes")
        free_t = constant(free, dtype=dtypes.int32, name="free")
        order_t = concat([summed_t, free_t] if flipped else [free_t, summed_t], 0)
    else:
        r = rank(x)
        summed_t = convert_to_tensor(axes, dtype=dtypes.int32, name="axes")
        summed_t = raw.Select(summed_t >= 0, summed_t, summed_t + r)  # type: ignore[operator]
        free_t = raw.ListDiff(raw.Range(0, r, 1), summed_t)[0]
        order_t = concat([summed_t, free_t] if flipped else [free_t, summed_t], 0)
        static = None
    sizes_t = raw.Shape(x)
    free_sizes = raw.GatherV2(sizes_t, free_t, 0)
    free_count = reduce_node("Prod", free_sizes, None, False)
    summed_count = reduce_node("Prod", raw.GatherV2(sizes_t, summed_t, 0), None, False)
    shape = raw.Pack([summed_count, free_count] if flipped else [free_count, summed_count], name="stack")
    return reshape(transpose(x, order_t), shape), free_sizes, static


@export("einsum", "linalg.einsum")
def einsum(equation: str, *inputs: Any, **kwargs: Any) -> Tensor:
    """Sums of products in index notation: `tf.einsum("ij,jk->ik", a, b)` is the matrix product.

    Labels that the output leaves out are summed. Without "->" the output has the labels that occur once, in alphabetical
    order. "..." stands for any number of dimensions, which broadcast. More than two inputs are contracted in pairs.
    """
    name = kwargs.pop("name", None)
    kwargs.pop("optimize", None)
    if kwargs:
        raise TypeError(f"Invalid keyword arguments for this function: {', '.join(format(k) for k in sorted(kwargs))}. Expected: name.")
    with name_scope(name, "einsum", [equation, inputs]):
        tensors = [convert_to_tensor(x) for x in inputs]
        terms, out = _parsed(equation, len(tensors))
        while len(tensors) > 2:
            i, j = _best_pair(terms, tensors)
            later = [t for k, t in enumerate(terms) if k not in (i, j)]
            needed = set(out).union(*later)
            joint = "".join(dict.fromkeys(c for c in (terms[i] + terms[j]).replace("...", "") if c in needed))
            joint = ("..." if "..." in terms[i] + terms[j] else "") + joint
            product = raw.Einsum([tensors[i], tensors[j]], equation=f"{terms[i]},{terms[j]}->{joint}")
            tensors = [t for k, t in enumerate(tensors) if k not in (i, j)] + [product]
            terms = [*later, joint]
        return raw.Einsum(tensors, equation=f"{','.join(terms)}->{out}")


def _parsed(equation: str, count: int) -> tuple[list[str], str]:
    if not isinstance(equation, str):
        raise TypeError(f"The equation of einsum must be a string, got {equation!r}")
    text = equation.replace(" ", "")
    if not re.match(r"[a-zA-Z,.]*(->[a-zA-Z.]*)?\Z", text):
        raise ValueError(f"Indices have incorrect format. Received: {equation}.")
    left, arrow, out = text.partition("->")
    terms = left.split(",")
    if len(terms) != count:
        raise ValueError(f"Got {count} inputs for equation \"{equation}\", expecting {len(terms)}")
    if not arrow:
        letters = left.replace(",", "").replace("...", "")
        out = ("..." if "..." in left else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    for term in (*terms, out):
        if "." in term.replace("...", "", 1):
            raise ValueError(f"Periods \".\" found outside of ellipsis in \"{equation}\".")
    return terms, out


def _best_pair(terms: list[str], tensors: list[Tensor]) -> tuple[int, int]:
    """The two operands to contract first: those with the smallest product, as far as sizes are known."""
    sizes: dict[str, int] = {}
    for term, tensor in zip(terms, tensors, strict=True):
        if tensor.dims is not None and "..." not in term:
            sizes.update({c: d for c, d in zip(term, tensor.dims) if d is not None})

    def cost(i: int, j: int) -> int:
        total = 1
        for c in set((terms[i] + terms[j]).replace("...", "")):
            total *= sizes.get(c, 16)
        return total

    n = len(terms)
    return min(((i, j) for i in range(n) for j in range(i + 1, n)), key=lambda pair: cost(*pair))


# -- diagonals --------------------------------------------------------------------------------------------------------


def _padding(value: Any, like: Tensor) -> Any:
    """The padding value, in the type of the tensor it goes into."""
    if like.dtype.is_bool and not isinstance(value, Tensor):
        return bool(value)
    return value


@export("matrix_diag", "linalg.diag")
def matrix_diag(diagonal: Any, name: str = "diag", k: Any = 0, num_rows: Any = -1, num_cols: Any = -1, padding_value: Any = 0, align: str = "RIGHT_LEFT") -> Tensor:
    """Matrices with these diagonals; `k` is one diagonal or a band (lower, upper), the rest is `padding_value`."""
    diagonal = convert_to_tensor(diagonal, name="diagonal")
    return raw.MatrixDiagV3(diagonal, k, num_rows, num_cols, _padding(padding_value, diagonal), align=align, name=name)


@export("matrix_diag_part", "linalg.diag_part")
def diag_part(input: Any, name: str = "diag_part", k: Any = 0, padding_value: Any = 0, align: str = "RIGHT_LEFT") -> Tensor:
    """The diagonal `k`, or the band (lower, upper), of each matrix."""
    input = convert_to_tensor(input, name="input")
    return raw.MatrixDiagPartV3(input, k, _padding(padding_value, input), align=align, name=name)


@export("matrix_set_diag", "linalg.set_diag")
def matrix_set_diag(input: Any, diagonal: Any, name: str = "set_diag", k: Any = 0, align: str = "RIGHT_LEFT") -> Tensor:
    """Each matrix with its diagonal `k`, or its band (lower, upper), replaced."""
    return raw.MatrixSetDiagV3(input, diagonal, k, align=align, name=name)


@export("diag", "linalg.tensor_diag")
def diag(diagonal: Any, name: str | None = None) -> Tensor:
    """A tensor of twice the rank with `diagonal` on its diagonal and zeros elsewhere."""
    return raw.Diag(diagonal, name=name)


@export("diag_part", "linalg.tensor_diag_part")
def tensor_diag_part(input: Any, name: str | None = None) -> Tensor:
    """The diagonal of a tensor of even rank; the inverse of `tf.diag`."""
    return raw.DiagPart(input, name=name)


@export("matrix_band_part", "linalg.band_part")
def matrix_band_part(input: Any, num_lower: Any, num_upper: Any, name: str | None = None) -> Tensor:
    """Each matrix with everything outside of its central band set to 0; a negative number keeps that whole triangle."""
    return raw.MatrixBandPart(input, num_lower, num_upper, name=name)
