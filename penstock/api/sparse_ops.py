"""tf.sparse and its older names at the top level: functions of SparseTensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api import array_ops
from penstock.api.array_ops import one_of
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.graph.composite import IndexedSlices, SparseTensor, SparseTensorValue
from penstock.graph.constant import constant as _constant
from penstock.graph.constant import constant_value
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def as_sparse(value: Any) -> SparseTensor:
    """A SparseTensor; a SparseTensorValue is made one. TypeError for everything else."""
    if isinstance(value, SparseTensorValue):
        return SparseTensor.from_value(value)
    if not isinstance(value, SparseTensor):
        raise TypeError(f"Input must be a SparseTensor. Received: {value!r}")
    return value


def _parts(sp: SparseTensor) -> tuple[Tensor, Tensor, Tensor]:
    return sp.indices, sp.values, sp.dense_shape


def _is_sparse(value: Any) -> bool:
    return isinstance(value, (SparseTensor, SparseTensorValue))


# -- dense ------------------------------------------------------------------------------------------------------------


@export("sparse_to_dense")
def sparse_to_dense(
    sparse_indices: Any, output_shape: Any, sparse_values: Any, default_value: Any = 0, validate_indices: bool = True,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """A dense tensor with `sparse_values` at `sparse_indices` and `default_value` elsewhere."""
    return raw.SparseToDense(
        sparse_indices, output_shape, sparse_values, default_value, validate_indices=validate_indices, name=name
    )


@export("sparse.to_dense", "sparse_tensor_to_dense")
def sparse_tensor_to_dense(sp_input: Any, default_value: Any = None, validate_indices: bool = True, name: str | None = None) -> Tensor:
    """The same as a dense tensor; `default_value` (0) where there is no entry."""
    sp = as_sparse(sp_input)
    if default_value is None:
        default_value = array_ops.zeros([], sp.dtype)
    return raw.SparseToDense(sp.indices, sp.dense_shape, sp.values, default_value, validate_indices=validate_indices, name=name)


@export("sparse.from_dense")
def from_dense(tensor: Any, name: str | None = None) -> SparseTensor:
    """A SparseTensor of the elements that are not zero."""
    with name_scope(name, "dense_to_sparse"):
        tensor = convert_to_tensor(tensor)
        indices = raw.Where(raw.NotEqual(tensor, array_ops.zeros_like(tensor)))
        return SparseTensor(indices, raw.GatherNd(tensor, indices), array_ops.shape(tensor, out_type=dtypes.int64))


@export("sparse.eye")
def sparse_eye(num_rows: Any, num_columns: Any = None, dtype: Any = dtypes.float32, name: str | None = None) -> SparseTensor:
    """A sparse matrix with ones on the diagonal."""
    with name_scope(name, "eye", [num_rows, num_columns]):
        rows = convert_to_tensor(np.asarray(num_rows, np.int64) if not isinstance(num_rows, Tensor) else num_rows, name="num_rows")
        if num_columns is None:
            columns = rows
        else:
            plain = num_columns if isinstance(num_columns, Tensor) else np.asarray(num_columns, np.int64)
            columns = convert_to_tensor(plain, name="num_columns")
        length = raw.Minimum(rows, columns)
        kind = length.dtype.base_dtype
        diagonal = raw.Range(_constant(0, kind), length, _constant(1, kind), name="range")
        return SparseTensor(
            array_ops.stack([diagonal, diagonal], axis=1), array_ops.ones(length, dtype), array_ops.stack([rows, columns])
        )


@export("sparse.matmul", "sparse.sparse_dense_matmul", "sparse_tensor_dense_matmul")
def sparse_tensor_dense_matmul(sp_a: Any, b: Any, adjoint_a: bool = False, adjoint_b: bool = False, name: str | None = None) -> Tensor:
    """The product of a sparse and a dense matrix, in either order; `adjoint_*` uses the conjugate transpose."""
    if _is_sparse(b):
        # A dense matrix times a sparse one: the transpose of the transposes' product.
        product = sparse_tensor_dense_matmul(b, sp_a, adjoint_a=not adjoint_b, adjoint_b=not adjoint_a)
        return array_ops.transpose(product, conjugate=True)
    sp = as_sparse(sp_a)
    with name_scope(name, "SparseTensorDenseMatMul", [sp.indices, sp.values, b]):
        b = convert_to_tensor(b, name="b")
        return raw.SparseTensorDenseMatMul(*_parts(sp), b, adjoint_a=adjoint_a, adjoint_b=adjoint_b)


# -- arithmetic -------------------------------------------------------------------------------------------------------


@export("sparse.add", "sparse_add")
def sparse_add(a: Any, b: Any, threshold: Any = None, thresh: Any = None) -> Any:
    """The sum of two tensors of which at least one is sparse. Two sparse ones give a sparse one, without sums below `threshold`."""
    threshold = one_of(threshold, thresh, "threshold", "thresh")
    if not _is_sparse(a) and not _is_sparse(b):
        raise TypeError("At least one input should be SparseTensor; do you mean to use tf.add()?")
    if _is_sparse(a) and _is_sparse(b):
        a, b = as_sparse(a), as_sparse(b)
        limit = convert_to_tensor(0 if threshold is None else threshold, dtype=a.dtype.real_dtype.base_dtype, name="threshold")
        return SparseTensor(*raw.SparseAdd(*_parts(a), *_parts(b), limit))
    if _is_sparse(b):
        a, b = b, a
    return raw.SparseTensorDenseAdd(*_parts(as_sparse(a)), b)


@export("sparse.maximum", "sparse_maximum")
def sparse_maximum(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
    """The larger of two sparse tensors' elements, where an entry that is missing counts as 0."""
    a, b = as_sparse(sp_a), as_sparse(sp_b)
    with name_scope(name, "SparseSparseMaximum", [a.indices, a.values, b.indices, b.values]) as scope:
        indices, values = raw.SparseSparseMaximum(*_parts(a), *_parts(b), name=scope)
    return SparseTensor(indices, values, a.dense_shape)


@export("sparse.minimum", "sparse_minimum")
def sparse_minimum(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
    """The smaller of two sparse tensors' elements, where an entry that is missing counts as 0."""
    a, b = as_sparse(sp_a), as_sparse(sp_b)
    with name_scope(name, "SparseSparseMinimum", [a.indices, a.values, b.indices, b.values]) as scope:
        indices, values = raw.SparseSparseMinimum(*_parts(a), *_parts(b), name=scope)
    return SparseTensor(indices, values, a.dense_shape)


@export("sparse.softmax", "sparse_softmax")
def sparse_softmax(sp_input: Any, name: str | None = None) -> SparseTensor:
    """Softmax over the entries of each innermost row."""
    sp = as_sparse(sp_input)
    with name_scope(name, "SparseSoftmax", [sp.indices, sp.values]):
        return SparseTensor(sp.indices, raw.SparseSoftmax(*_parts(sp)), sp.dense_shape)


def _operator(op_name: str, name: str) -> Any:
    def apply(sp: SparseTensor, dense: Any) -> SparseTensor:
        with name_scope(None, name, [sp.values, dense]) as scope:
            dense = convert_to_tensor(dense, dtype=sp.dtype.base_dtype, name="y")
            values = getattr(raw, op_name)(*_parts(sp), dense, name=scope)
        return SparseTensor(sp.indices, values, sp.dense_shape)

    return apply


SparseTensor.__mul__ = _operator("SparseDenseCwiseMul", "mul")  # type: ignore[attr-defined]
SparseTensor.__rmul__ = SparseTensor.__mul__  # type: ignore[attr-defined]
SparseTensor.__truediv__ = _operator("SparseDenseCwiseDiv", "truediv")  # type: ignore[attr-defined]


# -- places -----------------------------------------------------------------------------------------------------------


@export("sparse.concat", "sparse_concat")
def sparse_concat(
    axis: int, sp_inputs: Any, name: str | None = None, expand_nonconcat_dim: bool = False, concat_dim: Any = None,
    expand_nonconcat_dims: Any = None,
) -> SparseTensor:  # fmt: skip
    """The sparse tensors one after the other along `axis`. `expand_nonconcat_dim` lets the other sizes differ."""
    expand = one_of(None, expand_nonconcat_dims, "expand_nonconcat_dim", "expand_nonconcat_dims")
    expand = expand_nonconcat_dim if expand is None else expand
    axis = one_of(axis, concat_dim, "axis", "concat_dim")
    if not isinstance(sp_inputs, (list, tuple)):
        raise TypeError("Inputs must be a list")
    inputs = [as_sparse(sp) for sp in sp_inputs]
    if len(inputs) == 1:
        return inputs[0]
    shapes = [sp.dense_shape for sp in inputs]
    if expand:
        largest = raw.Max(array_ops.concat([array_ops.reshape(s, [1, -1]) for s in shapes], 0), 0)
        shapes = [
            array_ops.concat([largest[:axis], s[-1:] if axis == -1 else s[axis : axis + 1], [] if axis == -1 else largest[axis + 1 :]], 0)
            for s in shapes
        ]
    result = raw.SparseConcat([sp.indices for sp in inputs], [sp.values for sp in inputs], shapes, concat_dim=axis, name=name)
    return SparseTensor(*result)


@export("sparse.reorder", "sparse_reorder")
def sparse_reorder(sp_input: Any, name: str | None = None) -> SparseTensor:
    """The same entries in row-major order."""
    sp = as_sparse(sp_input)
    indices, values = raw.SparseReorder(*_parts(sp), name=name)
    return SparseTensor(indices, values, sp.dense_shape)


@export("sparse.reshape", "sparse_reshape")
def sparse_reshape(sp_input: Any, shape: Any, name: str | None = None) -> SparseTensor:
    """The same entries in another dense shape; one size may be -1."""
    sp = as_sparse(sp_input)
    wanted = raw.Cast(shape, DstT=dtypes.int64, name="Cast")
    with name_scope(name, "SparseReshape", [sp.indices, sp.values]) as scope:
        indices, new_shape = raw.SparseReshape(sp.indices, sp.dense_shape, wanted, name=scope)
        result = SparseTensor(indices, array_ops.identity(sp.values), new_shape)
        known = constant_value(shape) if not isinstance(shape, Tensor) else None
        count = sp.shape.num_elements()
        if known is not None and (count is not None or -1 not in known):
            from penstock.ops.array import reshaped_dims

            static = tuple(None if d == -1 else int(d) for d in np.ravel(known))
            result.set_shape(reshaped_dims(None if count is None else (count,), static))
        return result


@export("sparse.slice", "sparse_slice")
def sparse_slice(sp_input: Any, start: Any, size: Any, name: str | None = None) -> SparseTensor:
    """The entries inside the box that starts at `start` and has shape `size`."""
    sp = as_sparse(sp_input)
    start = convert_to_tensor(start, dtypes.int64)
    size = convert_to_tensor(size, dtypes.int64)
    with name_scope(name, "SparseSlice", [sp.indices]) as scope:
        result = raw.SparseSlice(*_parts(sp), start, size, name=scope)
    return SparseTensor(*result)


@export("sparse.split", "sparse_split")
def sparse_split(
    keyword_required: Any = None, sp_input: Any = None, num_split: int | None = None, axis: Any = None, name: str | None = None,
    split_dim: Any = None,
) -> list[SparseTensor]:  # fmt: skip
    """`num_split` pieces along `axis`; the first ones are one longer where the size does not divide evenly."""
    if keyword_required is not None:
        raise ValueError("Keyword arguments are required for this function.")
    if sp_input is None or num_split is None:
        raise ValueError(f"{'sp_input' if sp_input is None else 'num_split'} is required")
    axis = one_of(axis, split_dim, "axis", "split_dim")
    if axis is None:
        raise ValueError("axis is required")
    indices, values, shapes = raw.SparseSplit(axis, *_parts(as_sparse(sp_input)), num_split=num_split, name=name)
    return [SparseTensor(*parts) for parts in zip(indices, values, shapes, strict=True)]


@export("sparse.fill_empty_rows", "sparse_fill_empty_rows")
def sparse_fill_empty_rows(sp_input: Any, default_value: Any, name: str | None = None) -> tuple[SparseTensor, Tensor]:
    """With one entry `default_value` at column 0 of every empty row; and which rows were empty."""
    sp = as_sparse(sp_input)
    with name_scope(name, "SparseFillEmptyRows", [sp.indices]):
        default_value = convert_to_tensor(default_value, dtype=sp.dtype.base_dtype)
        indices, values, empty, _ = raw.SparseFillEmptyRows(*_parts(sp), default_value)
        return SparseTensor(indices, values, sp.dense_shape), empty


@export("sparse.retain", "sparse_retain")
def sparse_retain(sp_input: Any, to_retain: Any) -> SparseTensor:
    """Only the entries for which `to_retain` is True."""
    sp = as_sparse(sp_input)
    keep = convert_to_tensor(to_retain)
    sp.values.shape.assert_is_compatible_with(keep.shape)
    chosen = array_ops.reshape(raw.Where(keep), [-1])
    return SparseTensor(raw.GatherV2(sp.indices, chosen, 0), raw.GatherV2(sp.values, chosen, 0), array_ops.identity(sp.dense_shape))


@export("sparse.reset_shape", "sparse_reset_shape")
def sparse_reset_shape(sp_input: Any, new_shape: Any = None) -> SparseTensor:
    """The same entries in the tightest dense shape, or in `new_shape`, which must be large enough."""
    sp = as_sparse(sp_input)
    indices, values = array_ops.identity(sp.indices), array_ops.identity(sp.values)
    if new_shape is None:
        largest = raw.Max(indices, 0)
        zero = _constant(0, dtypes.int64)
        return SparseTensor(indices, values, raw.Maximum(zero, raw.AddV2(largest, array_ops.ones_like(largest), name="Add")))
    wanted = raw.Cast(convert_to_tensor(new_shape), DstT=dtypes.int64)
    if wanted.dims is None or len(wanted.dims) != 1:
        raise ValueError(f"new_shape must be a vector, got shape {wanted.shape}")
    known, had = constant_value(new_shape) if not isinstance(new_shape, Tensor) else constant_value(wanted), sp.shape
    if known is not None and had.rank is not None:
        if len(np.ravel(known)) != had.rank:
            raise ValueError(f"Shape {had} must have rank {len(np.ravel(known))}")
        for i, (new, old) in enumerate(zip(np.ravel(known).tolist(), had.as_list(), strict=True)):
            if old is not None and new < old:
                raise ValueError(f"Requested new_shape should have dimension sizes >= sp_input.shape. Found new_shape[{i}] = {new} < {old}")
    return SparseTensor(indices, values, wanted)


@export("sparse.transpose", "sparse_transpose")
def sparse_transpose(sp_input: Any, perm: Any = None, name: str | None = None) -> SparseTensor:
    """With dimensions in the order `perm`, which is by default the reverse order."""
    sp = as_sparse(sp_input)
    with name_scope(name, "SparseTranspose", [sp.indices]):
        if perm is None:
            rank = sp.shape.rank
            if rank is None:
                count = array_ops.rank(sp)
                perm = raw.Sub(raw.Sub(count, 1), raw.Range(0, count, 1))
            else:
                perm = np.arange(rank - 1, -1, -1, dtype=np.int32)
        columns = array_ops.transpose(raw.GatherV2(array_ops.transpose(sp.indices), perm, 0))
        known = constant_value(perm)
        sizes = constant_value(sp.dense_shape) if sp.shape.is_fully_defined() else None
        if known is not None and sizes is not None:
            shape: Any = _constant(np.asarray(sizes)[np.asarray(known)].astype(np.int64))
        else:
            shape = raw.GatherV2(sp.dense_shape, perm, 0)
        indices, values = raw.SparseReorder(columns, sp.values, shape)
        return SparseTensor(indices, values, shape)


@export("sparse.expand_dims")
def sparse_expand_dims(sp_input: Any, axis: int | None = None, name: str | None = None) -> SparseTensor:
    """With one more dimension of size 1 at position `axis` (the last)."""
    sp = as_sparse(sp_input)
    rank = sp.shape.rank
    if rank is None:
        raise ValueError("sparse.expand_dims needs a SparseTensor of statically known rank")
    axis = -1 if axis is None else int(axis)
    if not -rank - 1 <= axis <= rank:
        raise ValueError(f"dim {axis} not in the interval [{-rank - 1}, {rank}].")
    axis = axis + rank + 1 if axis < 0 else axis
    with name_scope(name, "expand_dims", [sp.indices]):
        count = array_ops.shape(sp.indices)[0]
        zero = array_ops.zeros([count, 1], dtypes.int64)
        indices = array_ops.concat([sp.indices[:, :axis], zero, sp.indices[:, axis:]], 1)
        one = _constant([1], dtypes.int64)
        return SparseTensor(indices, sp.values, array_ops.concat([sp.dense_shape[:axis], one, sp.dense_shape[axis:]], 0))


# -- reductions -------------------------------------------------------------------------------------------------------


def _axes(sp: SparseTensor, axis: Any, old: Any) -> Any:
    axis = one_of(axis, old, "axis", "reduction_axes")
    if axis is not None:
        return axis
    rank = sp.shape.rank
    return raw.Range(0, array_ops.rank(sp), 1) if rank is None else _constant(np.arange(rank, dtype=np.int32))


def _reduction(op_name: str, sparse: bool, doc: str) -> Any:
    def reduce(
        sp_input: Any, axis: Any = None, keepdims: bool | None = None, reduction_axes: Any = None, keep_dims: bool | None = None
    ) -> Any:
        sp = as_sparse(sp_input)
        keep = bool(one_of(keepdims, keep_dims, "keepdims", "keep_dims"))
        result = getattr(raw, op_name)(*_parts(sp), _axes(sp, axis, reduction_axes), keep_dims=keep)
        return SparseTensor(*result) if sparse else result

    reduce.__doc__ = doc
    return reduce


sparse_reduce_sum = export("sparse.reduce_sum", "sparse_reduce_sum")(
    _reduction("SparseReduceSum", False, "The sum over `axis` (all by default) as a dense tensor.")
)
sparse_reduce_max = export("sparse.reduce_max", "sparse_reduce_max")(
    _reduction("SparseReduceMax", False, "The largest entry over `axis` (all by default) as a dense tensor; 0 where there is none.")
)
sparse_reduce_sum_sparse = export("sparse.reduce_sum_sparse", "sparse_reduce_sum_sparse")(
    _reduction("SparseReduceSumSparse", True, "The sum over `axis` (all by default) as a sparse tensor.")
)
sparse_reduce_max_sparse = export("sparse.reduce_max_sparse", "sparse_reduce_max_sparse")(
    _reduction("SparseReduceMaxSparse", True, "The largest entry over `axis` (all by default) as a sparse tensor.")
)


# -- ids as features --------------------------------------------------------------------------------------------------


@export("sparse.merge", "sparse_merge")
def sparse_merge(sp_ids: Any, sp_values: Any, vocab_size: Any, name: str | None = None, already_sorted: bool = False) -> SparseTensor:
    """A sparse tensor with `sp_values` at the columns that `sp_ids` names, in rows of `vocab_size`."""
    ids = [as_sparse(sp) for sp in sp_ids] if isinstance(sp_ids, (list, tuple)) and not isinstance(sp_ids, SparseTensorValue) else [as_sparse(sp_ids)]
    sizes = list(vocab_size) if isinstance(vocab_size, (list, tuple)) else [vocab_size]
    if len(ids) != len(sizes):
        raise ValueError("sp_ids and vocab_size have to have equal lengths.")
    values = as_sparse(sp_values)
    with name_scope(name, "SparseMerge", [ids[0].indices, values.values]):
        columns = [array_ops.expand_dims(sp.values if sp.dtype.base_dtype is dtypes.int64 else raw.Cast(sp.values, DstT=dtypes.int64), 1) for sp in ids]
        widths = [raw.Cast(size, DstT=dtypes.int64) for size in sizes]
        indices = array_ops.concat([ids[0].indices[:, :-1], *columns], 1)
        shape = array_ops.concat([ids[0].dense_shape[:-1], widths], 0)
        merged = SparseTensor(indices, values.values, shape)
        return merged if already_sorted else sparse_reorder(merged)


@export("sparse.to_indicator", "sparse_to_indicator")
def sparse_to_indicator(sp_input: Any, vocab_size: Any, name: str | None = None) -> Tensor:
    """A dense bool tensor that is True at the columns that the ids in `sp_input` name."""
    sp = as_sparse(sp_input)
    with name_scope(name, "SparseToIndicator", [sp.indices]) as scope:
        count = array_ops.shape(sp.indices)[0]
        flags = array_ops.fill(array_ops.expand_dims(count, 0), True)
        merged = sparse_merge(sp, SparseTensor(sp.indices, flags, sp.dense_shape), vocab_size)
        return raw.SparseToDense(merged.indices, merged.dense_shape, merged.values, False, validate_indices=False, name=scope)


@export("sparse.mask", "sparse_mask")
def sparse_mask(a: IndexedSlices, mask_indices: Any, name: str | None = None) -> IndexedSlices:
    """IndexedSlices without the slices that `mask_indices` names."""
    with name_scope(name, "sparse_mask", [a.values, a.indices]) as scope:
        kept, places = raw.ListDiff(a.indices, mask_indices)
        return IndexedSlices(raw.GatherV2(a.values, places, 0, name=scope), kept, a.dense_shape)
