"""Sparse tensors in coordinate form: to dense, multiply, add, entry by entry."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, with_rank
from penstock.ops.kernels.rows import NARROW, passes
from penstock.ops.kernels.sparse import (
    RowPlan,
    add_at,
    are_below,
    are_inside,
    check_in_order,
    check_sparse,
    coordinates,
    dense_operand,
    group_max,
    keys_of,
    merge_keys,
    merge_places,
)
from penstock.ops.native import rows as row_loops
from penstock.ops.samples import arr, empty, normal, strings, uniform
from penstock.shapes import format_dims, merge_dim

ROWS = arr([[0, 1], [1, 0], [1, 2]])


def length(c: Any, i: int) -> int | None:
    """The first size of input `i`, if known."""
    dims = c.dims(i)
    return None if not dims else dims[0]


# -- dense ------------------------------------------------------------------------------------------------------------


def sparse_to_dense_kernel(indices: Any, shape: np.ndarray, values: Any, default: Any, *, validate_indices: bool) -> np.ndarray:
    if indices.ndim > 2:
        raise InvalidArgumentError(f"sparse_indices should be a scalar, vector, or matrix, got shape {format_dims(indices.shape)}")
    count = len(indices) if indices.ndim else 1
    rank = indices.shape[1] if indices.ndim == 2 else 1
    if shape.ndim != 1:
        raise InvalidArgumentError(f"output_shape must be rank 1, got shape {format_dims(shape.shape)}")
    if shape.size != rank:
        raise InvalidArgumentError(f"output_shape has incorrect number of elements: {shape.size} should be: {rank}")
    if not (values.ndim == 0 or values.shape == (count,)):
        raise InvalidArgumentError(f"sparse_values has incorrect shape {format_dims(values.shape)}, should be [] or [{count}]")
    if default.ndim:
        raise InvalidArgumentError("default_value should be a scalar.")
    sizes = shape.tolist()
    places = np.reshape(indices, (count, rank)).astype(np.int64, copy=False)
    if validate_indices:
        keys = check_in_order(places, sizes)
    elif not are_inside(places, sizes):
        raise InvalidArgumentError(f"Indices are not valid (out of bounds).  Shape: {format_dims(tuple(sizes))}")
    else:
        keys = keys_of(places, sizes)
    has_zeros = values.dtype != object and not np.asarray(default).tobytes().strip(b"\0")
    result = np.zeros(sizes, values.dtype) if has_zeros else np.full(sizes, np.asarray(default), dtype=values.dtype)
    result.reshape(-1)[keys] = values  # a third of the time that as many coordinates take
    return result


def sparse_to_dense_grad(g: Any, op: Any, dy: Any) -> list:
    picked = g.GatherNd(dy, op.sparse_indices)

    def total(x: Any) -> Any:
        return g.Sum(x, g.Range(0, g.Rank(x), 1))

    return [None, None, picked, g.Sub(total(dy), total(picked))]


op("SparseToDense(sparse_indices: Tindices, output_shape: Tindices, sparse_values: T, default_value: T) -> (dense: T)"
   " [validate_indices: bool = true; T: type; Tindices: type in {int32, int64}]",
   shape=lambda c: c.const_dims(1), numpy=sparse_to_dense_kernel, grad=sparse_to_dense_grad,
   samples=[
       dict(sparse_indices=ROWS, output_shape=arr([2, 3]), sparse_values=normal(3), default_value=arr(0)),
       dict(sparse_indices=arr([1, 3]), output_shape=arr([5]), sparse_values=normal(), default_value=arr(1)),
       dict(sparse_indices=arr(2), output_shape=arr([4]), sparse_values=normal(), default_value=arr(0)),
       dict(sparse_indices=arr([1, 1]), output_shape=arr([3]), sparse_values=normal(2), default_value=arr(0), validate_indices=False),
       dict(sparse_indices=empty(0, 2), output_shape=arr([2, 3]), sparse_values=empty(0), default_value=arr(1)),
       dict(sparse_indices=arr([0]), output_shape=arr([2]), sparse_values=strings(["a"]), default_value=strings("z")),
   ],
   errors=[
       (dict(sparse_indices=[3, 1], output_shape=[5], sparse_values=[1.0, 2.0], default_value=0.0), InvalidArgumentError,
        "indices\\[1\\] = \\[1\\] is out of order"),
       (dict(sparse_indices=[1, 1], output_shape=[5], sparse_values=[1.0, 2.0], default_value=0.0), InvalidArgumentError,
        "indices\\[1\\] = \\[1\\] is repeated"),
       (dict(sparse_indices=[1, 7], output_shape=[5], sparse_values=[1.0, 2.0], default_value=0.0), InvalidArgumentError,
        "indices\\[1\\] = \\[7\\] is out of bounds: need 0 <= index < \\[5\\]"),
   ])  # fmt: skip


class _Entries(NamedTuple):
    """Where the entries of a sparse matrix are: within its bounds. `in_order`: row by row."""

    rows: np.ndarray
    columns: np.ndarray
    in_order: bool


def _entries(indices: np.ndarray, adjoint_a: bool, m: int, k: int, state: Any, is_constant: bool) -> _Entries:
    """The entries of an (m, k) matrix, or the error that one is not within. Those of a constant are kept."""
    kept = state.__dict__.get("entries") if is_constant else None
    if kept is not None and kept[0] is indices and kept[1] == (m, k):
        return kept[2]
    rows, columns = (indices[:, i].copy() for i in ((1, 0) if adjoint_a else (0, 1)))  # nobody else can change them once they are checked
    for name, part, limit, column in (("m", rows, m, 0), ("k", columns, k, 1)):
        if not are_below(part, limit):
            bad = np.flatnonzero((part < 0) | (part >= limit))
            raise InvalidArgumentError(f"{name} ({part[bad[0]]}) from index[{bad[0]},{column}] out of bounds (>={limit})")
    found = _Entries(rows, columns, bool(np.logical_and.reduce(rows[1:] >= rows[:-1])))
    if is_constant:
        state.__dict__["entries"] = (indices, (m, k), found)
    return found


def _row_plan(entries: _Entries, m: int, width: int, state: Any, is_constant: bool) -> RowPlan | None:
    """How to multiply a matrix with these entries row by row; None where entry by entry is quicker. The plan of a constant is kept."""
    if width <= (NARROW // 2 if is_constant else NARROW):
        return None
    kept = state.__dict__.get("plan") if is_constant else None
    if kept is not None and kept[0] is entries:
        plan = kept[1]
    else:
        plan = RowPlan(entries.rows, entries.columns, m)
        if is_constant:
            state.__dict__["plan"] = (entries, plan)
    return plan if plan.is_quick(width) else None


def _add_products(result: np.ndarray, entries: _Entries, values: np.ndarray, right: np.ndarray) -> None:
    """result[row] += value * right[column], entry by entry."""
    if row_loops.can_add_products(result.dtype, result.shape[1]):
        row_loops.add_products(result, entries.rows, entries.columns, np.ascontiguousarray(values), np.ascontiguousarray(right))
        return
    products = right.take(entries.columns, 0)
    products *= values[:, None]
    if entries.in_order and row_loops.can_fold(np.add, result.dtype):
        row_loops.fold_sorted(np.add, result, entries.rows, products)
    else:
        add_at(result, entries.rows, products)


MANY = 64
"""Entries that are worth another order."""


def _spread(entries: _Entries, values: np.ndarray, state: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of a constant with the first entries of all rows first, then the second ones, and so on: a sum need not wait for the one before it, and each has its order
    still."""
    kept = state.__dict__.get("spread")
    if kept is None or kept[0] is not entries or kept[1] is not values:
        places = np.arange(len(values))
        order = np.concatenate([places[some] for some in passes(entries.rows)])
        kept = state.__dict__["spread"] = entries, values, entries.rows.take(order), entries.columns.take(order), values.take(order)
    return kept[2:]


def _is_constant(tensor: Any) -> bool:
    """Whether it is the same array in every step, and in every round of a loop."""
    op = tensor.op
    while op.type in ("Enter", "Identity"):
        op = op.inputs[0].op
    return op.type in ("Const", "HostConst")


def matmul_kernel(indices: Any, values: Any, shape: np.ndarray, b: Any, *, adjoint_a: bool, adjoint_b: bool, state: Any, node: Any) -> np.ndarray:
    if b.ndim != 2:
        raise InvalidArgumentError("Tensor 'b' is not a matrix")
    check_sparse(indices, values, shape, "a_")
    if shape.size != 2:
        raise InvalidArgumentError("Tensor 'a_shape' must have 2 elements")
    m, k = int(shape[1 if adjoint_a else 0]), int(shape[0 if adjoint_a else 1])
    inner, n = b.shape[1 if adjoint_b else 0], b.shape[0 if adjoint_b else 1]
    if k != inner:
        raise InvalidArgumentError(
            f"Cannot multiply A and B because inner dimension does not match: {k} vs. {inner}.  Did you forget a transpose?  "
            f"Dimensions of A: [{int(shape[0])}, {int(shape[1])}).  Dimensions of B: {format_dims(b.shape)}"
        )
    is_constant = _is_constant(node.inputs[0])
    entries = _entries(indices, adjoint_a, m, k, state, is_constant)
    if adjoint_a and values.dtype.kind == "c":
        values = values.conj()
    right = b.conj().T if adjoint_b and b.dtype.kind == "c" else b.T if adjoint_b else b
    # Half precision adds up in single.
    wide = np.float32 if b.dtype.itemsize == 2 and b.dtype.kind not in "iu" else b.dtype
    result = np.zeros((m, n), wide)
    values, right = values.astype(wide, copy=False), right.astype(wide, copy=False)
    plan = _row_plan(entries, m, n, state, is_constant)
    if plan is not None:
        plan.multiply(values, right, result)
    elif is_constant and len(values) >= MANY and _is_constant(node.inputs[1]) and row_loops.can_add_products(result.dtype, n):
        row_loops.add_products(result, *_spread(entries, values, state), np.ascontiguousarray(right))
    else:
        _add_products(result, entries, values, right)
    return result.astype(b.dtype, copy=False)


def matmul_shape(c: Any) -> Dims:
    dims, b = c.const_dims(2), with_rank(c, 3, 2)
    given = c.dims(2)
    if given is not None and given[0] not in (None, 2):
        raise ValueError(f"Dimension must be 2 but is {given[0]}")
    rows, inner = (None, None) if dims is None else (dims[1], dims[0]) if c.attrs["adjoint_a"] else dims
    b_inner, columns = (b[1], b[0]) if c.attrs["adjoint_b"] else b  # type: ignore[index, misc]
    merge_dim(inner, b_inner)
    return (rows, columns)


def matmul_grad(g: Any, op: Any, dy: Any) -> list:
    adjoint_a, adjoint_b = op.attr("adjoint_a"), op.attr("adjoint_b")
    complex_ = dy.dtype.is_complex

    def conj(x: Any) -> Any:
        return g.Conj(x) if complex_ else x

    def transposed(x: Any) -> Any:
        return g.Transpose(conj(x), [1, 0])

    b_grad = g.SparseTensorDenseMatMul(op.a_indices, op.a_values, op.a_shape, dy, adjoint_a=not adjoint_a)
    if adjoint_b:
        b_grad = transposed(b_grad)
    first = g.StridedSlice(op.a_indices, [0, 0], [0, 1], [1, 1], begin_mask=1, end_mask=1, shrink_axis_mask=2)
    second = g.StridedSlice(op.a_indices, [0, 1], [0, 2], [1, 1], begin_mask=1, end_mask=1, shrink_axis_mask=2)
    rows, columns = (second, first) if adjoint_a else (first, second)
    from_b = g.GatherV2(transposed(op.b) if adjoint_b else op.b, columns, 0)
    values_grad = g.Sum(g.Mul(g.GatherV2(dy, rows, 0), conj(from_b)), [1])
    return [None, conj(values_grad) if adjoint_a else values_grad, None, b_grad]


op("SparseTensorDenseMatMul(a_indices: Tindices, a_values: T, a_shape: int64, b: T) -> (product: T)"
   " [T: type; Tindices: type in {int32, int64} = int64; adjoint_a: bool = false; adjoint_b: bool = false]",
   shape=matmul_shape, numpy=matmul_kernel, grad=matmul_grad,
   samples=[
       dict(a_indices=ROWS, a_values=normal(3), a_shape=arr([2, 3]), b=normal(3, 2)),
       dict(a_indices=ROWS, a_values=normal(3), a_shape=arr([2, 3]), b=normal(2, 4), adjoint_a=True),
       dict(a_indices=ROWS, a_values=normal(3), a_shape=arr([2, 3]), b=normal(4, 3), adjoint_b=True),
       dict(a_indices=ROWS, a_values=normal(3), a_shape=arr([2, 3]), b=normal(4, 2), adjoint_a=True, adjoint_b=True),
       dict(a_indices=empty(0, 2), a_values=empty(0), a_shape=arr([2, 3]), b=normal(3, 2)),
   ],
   errors=[
       (dict(a_indices=[[0, 5]], a_values=[1.0], a_shape=[2, 3], b=np.zeros((3, 1))), InvalidArgumentError, "k \\(5\\) from index\\[0,1\\] out of bounds \\(>=3\\)"),
   ])  # fmt: skip

# -- entry by entry ---------------------------------------------------------------------------------------------------


def _same_shapes(a: np.ndarray, b: np.ndarray) -> list[int]:
    if a.shape != b.shape:
        raise InvalidArgumentError(f"Operands do not have the same ranks; got shapes: {format_dims(tuple(a.tolist()))} and {format_dims(tuple(b.tolist()))}")
    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        if x != y:
            raise InvalidArgumentError(f"Operands' shapes do not match: got {x} and {y} for dimension {i}")
    return a.tolist()


def sparse_add_kernel(ai: Any, av: Any, ash: Any, bi: Any, bv: Any, bsh: Any, thresh: Any) -> list:
    check_sparse(ai, av, ash, "a_")
    check_sparse(bi, bv, bsh, "b_")
    if thresh.ndim:
        raise InvalidArgumentError(f"The magnitude threshold must be a scalar: got shape {format_dims(thresh.shape)}")
    sizes = _same_shapes(ash, bsh)
    keys, at_a, at_b = merge_places(keys_of(ai, sizes), keys_of(bi, sizes))
    total = np.zeros(len(keys), av.dtype)
    add_at(total, at_a, av)
    add_at(total, at_b, bv)
    # Only what came together can fall below the threshold.
    together = np.zeros(len(keys), bool)
    together[at_a] = True
    alone = np.ones(len(keys), bool)
    alone[at_b] = ~together[at_b]
    keep = alone | (np.abs(total) >= thresh)
    if keep.all():
        return [np.concatenate([ai, bi]).take(keys, axis=0), total, np.array(ash)]
    return [np.concatenate([ai, bi]).take(keys[keep], axis=0), total[keep], np.array(ash)]


def sparse_result(rank_from: int) -> Any:
    """(indices, values, shape) whose rank is that of the shape vector at input `rank_from`."""
    return lambda c: [(None, length(c, rank_from)), (None,), (length(c, rank_from),)]


def sparse_add_grad(g: Any, op: Any, _: Any, dvalues: Any, __: Any) -> list:
    da, db = g.SparseAddGrad(dvalues, op.a_indices, op.b_indices, op.sum_indices)
    return [None, da, None, None, db, None, None]


op("SparseAdd(a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64, thresh: Treal) ->"
   " (sum_indices: int64, sum_values: T, sum_shape: int64) [T: type in NUMBERS; Treal: type in REALS]",
   shape=sparse_result(2), numpy=sparse_add_kernel, grad=sparse_add_grad,
   samples=[
       dict(a_indices=ROWS, a_values=normal(3, dtype=np.float32), a_shape=arr([2, 3]), b_indices=arr([[0, 0], [1, 0]]),
            b_values=normal(2, dtype=np.float32), b_shape=arr([2, 3]), thresh=arr(t, np.float32))
       for t in (0.0, 0.5)
   ],
   errors=[
       (dict(a_indices=[[0, 0]], a_values=[1.0], a_shape=[2, 3], b_indices=[[0, 0]], b_values=[1.0], b_shape=[2, 4], thresh=0.0),
        InvalidArgumentError, "Operands' shapes do not match: got 3 and 4 for dimension 1"),
   ])  # fmt: skip


def sparse_add_grad_kernel(dy: Any, a: Any, b: Any, total: Any) -> list:
    sizes = [int(max([1, *(part[:, k].max() + 1 for part in (a, b, total) if len(part))])) for k in range(total.shape[1])]
    keys = keys_of(total, sizes)
    results = []
    for part in (a, b):
        wanted = keys_of(part, sizes)
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        found = keys[at] == wanted if len(keys) else np.zeros(len(wanted), bool)
        results.append(np.where(found, dy[at] if len(keys) else 0, np.zeros((), dy.dtype)).astype(dy.dtype))
    return results


op("SparseAddGrad(backprop_val_grad: T, a_indices: int64, b_indices: int64, sum_indices: int64) -> (a_val_grad: T, b_val_grad: T)"
   " [T: type in NUMBERS]",
   shape=lambda c: [(length(c, 1),), (length(c, 2),)], numpy=sparse_add_grad_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(backprop_val_grad=normal(3), a_indices=arr([[0, 1], [1, 0]]), b_indices=arr([[0, 1], [1, 2]]), sum_indices=ROWS)])  # fmt: skip


def dense_add_kernel(indices: Any, values: Any, shape: np.ndarray, b: Any) -> np.ndarray:
    check_sparse(indices, values, shape, "a_")
    if shape.size != b.ndim:
        raise InvalidArgumentError(f"Two operands have different ranks; received: {shape.size} and {b.ndim}")
    for i, (x, y) in enumerate(zip(shape.tolist(), b.shape, strict=True)):
        if x != y:
            raise InvalidArgumentError(f"Dimension {i} does not equal (no broadcasting is supported): sparse side {x} vs dense side {y}")
    if ((indices < 0) | (indices >= shape)).any():
        raise InvalidArgumentError("Sparse tensor has some invalid index on dimension: out of bounds")
    result = np.array(b, order="C")
    add_at(result.reshape(-1), keys_of(indices, b.shape), values)
    return result


op("SparseTensorDenseAdd(a_indices: Tindices, a_values: T, a_shape: Tindices, b: T) -> (output: T)"
   " [T: type in NUMBERS; Tindices: type in {int32, int64}]",
   shape=lambda c: c.dims(3), numpy=dense_add_kernel,
   grad=lambda g, op, dy: [None, g.GatherNd(dy, op.a_indices), None, dy],
   samples=[
       dict(a_indices=ROWS, a_values=normal(3), a_shape=arr([2, 3]), b=normal(2, 3)),
       dict(a_indices=empty(0, 2), a_values=empty(0), a_shape=arr([2, 3]), b=normal(2, 3)),
   ],
   errors=[
       (dict(a_indices=[[0, 0]], a_values=[1.0], a_shape=[2, 3], b=np.zeros((2, 2))), InvalidArgumentError,
        "Dimension 1 does not equal \\(no broadcasting is supported\\): sparse side 3 vs dense side 2"),
   ])  # fmt: skip


def _extreme(function: Any) -> Any:
    def kernel(ai: Any, av: Any, ash: Any, bi: Any, bv: Any, bsh: Any) -> list:
        check_sparse(ai, av, ash, "a_")
        check_sparse(bi, bv, bsh, "b_")
        sizes = _same_shapes(ash, bsh)
        keys, at_a, at_b = merge_keys(keys_of(ai, sizes), keys_of(bi, sizes))
        left, right = np.zeros(len(keys), av.dtype), np.zeros(len(keys), av.dtype)
        left[at_a], right[at_b] = av, bv
        return [coordinates(keys, sizes), function(left, right)]

    return kernel


def _not_implemented(name: str) -> Any:
    def grad(g: Any, op: Any, *dys: Any) -> Any:
        raise NotImplementedError(f"Gradients for {name} is currently not implemented yet.")

    return grad


for _name, _function, _types in (("Maximum", np.maximum, "REALS"), ("Minimum", np.minimum, "NUMBERS")):
    op(f"SparseSparse{_name}(a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64) ->"
       f" (output_indices: int64, output_values: T) [T: type in {_types}]",
       shape=lambda c: [(None, length(c, 2)), (None,)], numpy=_extreme(_function), grad=_not_implemented(f"SparseSparse{_name}"),
       samples=[dict(a_indices=ROWS, a_values=normal(3), a_shape=arr([2, 3]), b_indices=arr([[0, 0], [1, 0]]), b_values=normal(2),
                     b_shape=arr([2, 3]))])  # fmt: skip


def _cwise(function: Any) -> Any:
    def kernel(indices: Any, values: Any, shape: Any, dense: Any) -> np.ndarray:
        check_sparse(indices, values, shape)
        return function(values, dense_operand(indices, shape, dense)).astype(values.dtype)

    return kernel


def _c_divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    from penstock.ops.kernels.rows import divide

    return divide(x, y)


def cwise_grad(is_mul: bool) -> Any:
    def grad(g: Any, op: Any, dy: Any) -> list:
        """The dense operand's elements that met each sparse one, found by dividing coordinates by the broadcast factor."""
        shape = g.Cast(g.Shape(op.dense), DstT="int64")
        added = g.ExpandDims(g.Sub(g.Size(op.sp_shape), g.Size(shape)), 0)
        full = g.ConcatV2([g.Fill(added, g.const(1, "int64")), shape], 0)
        places = g.FloorDiv(op.sp_indices, g.FloorDiv(op.sp_shape, full))
        places = g.Slice(places, g.ConcatV2([g.const([0], "int32"), added], 0), [-1, -1])
        dense = g.GatherNd(op.dense, places)
        if is_mul:
            dx, dvalues = g.Mul(dy, dense), g.Mul(dy, op.sp_values)
        else:
            dx = g.RealDiv(dy, dense)
            dvalues = g.Mul(dy, g.RealDiv(g.Neg(op.sp_values), g.Square(dense)))
        return [None, dx, None, g.SparseTensorDenseAdd(places, dvalues, shape, g.ZerosLike(op.dense))]

    return grad


for _name, _function, _grad in (
    ("Add", np.add, _not_implemented("SparseDenseCwiseAdd")),
    ("Mul", np.multiply, cwise_grad(True)),
    ("Div", _c_divide, cwise_grad(False)),
):
    op(f"SparseDenseCwise{_name}(sp_indices: int64, sp_values: T, sp_shape: int64, dense: T) -> (output: T) [T: type in NUMBERS]",
       shape=lambda c: (length(c, 0),), numpy=_cwise(_function), grad=_grad,
       samples=[
           dict(sp_indices=ROWS, sp_values=normal(3), sp_shape=arr([2, 3]), dense=uniform(2, 3, lo=1.0, hi=5.0)),
           dict(sp_indices=ROWS, sp_values=normal(3), sp_shape=arr([2, 3]), dense=uniform(3, lo=1.0, hi=5.0)),
           dict(sp_indices=ROWS, sp_values=normal(3), sp_shape=arr([2, 3]), dense=uniform(2, 1, lo=1.0, hi=5.0)),
       ],
       errors=[
           (dict(sp_indices=[[0, 0]], sp_values=[1.0], sp_shape=[2, 3], dense=[1.0, 2.0]), InvalidArgumentError,
            "broadcasts dense to sparse only; got incompatible shapes: \\[2,3\\] vs. \\[2\\]"),
       ])  # fmt: skip


def softmax_kernel(indices: Any, values: Any, shape: Any) -> np.ndarray:
    check_sparse(indices, values, shape)
    if shape.size < 2:
        raise InvalidArgumentError(f"Input should have rank >= 2, but received shape: {format_dims(tuple(shape.tolist()))}")
    rows = keys_of(indices[:, :-1], shape[:-1].tolist())
    groups, inverse = np.unique(rows, return_inverse=True)
    inverse = inverse.reshape(-1)
    _, largest = group_max(rows, values)
    shifted = np.exp(values - largest[inverse])
    totals = np.zeros(len(groups), values.dtype)
    add_at(totals, inverse, shifted)
    return shifted / totals[inverse]


def softmax_grad(g: Any, op: Any, dy: Any) -> list:
    product = g.Mul(op.output, dy)
    totals = g.Neg(g.SparseReduceSum(op.sp_indices, product, op.sp_shape, g.const([-1], "int32"), keep_dims=True))
    return [None, g.Mul(g.SparseDenseCwiseAdd(op.sp_indices, dy, op.sp_shape, totals), op.output), None]


op("SparseSoftmax(sp_indices: int64, sp_values: T, sp_shape: int64) -> (output: T) [T: type in {half, float, double}]",
   shape=lambda c: (length(c, 1),), numpy=softmax_kernel, grad=softmax_grad,
   samples=[
       dict(sp_indices=ROWS, sp_values=normal(3), sp_shape=arr([2, 3])),
       dict(sp_indices=arr([[0, 0, 0], [0, 0, 1], [1, 1, 0]]), sp_values=normal(3), sp_shape=arr([2, 2, 2])),
   ])  # fmt: skip
