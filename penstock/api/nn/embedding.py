"""Embeddings: looking rows up in one table or in a table that is split into parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import dtypes
from penstock.api import array_ops, clip_ops, math_ops, math_reduce
from penstock.api.array_indexing import gather, where
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.api.partitioned import PartitionedVariable
from penstock.graph.composite import SparseTensor
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

# -- dense ids --------------------------------------------------------------------------------------------------------


def _as_list(params: Any) -> list[Any]:
    if params is None:
        raise ValueError("params must be specified.")
    parts = list(params) if isinstance(params, (list, tuple, PartitionedVariable)) else [params]
    if not parts:
        raise ValueError(f"Length of params is currently {len(parts)}. Need at least one param.")
    # A plain array becomes a constant; variables stay, so that only the rows in question are read.
    return [p if isinstance(p, Tensor) or hasattr(p, "op") else convert_to_tensor(p, name="params") for p in parts]


def _near(part: Any) -> Any:
    """Lookups run where their table is."""
    return get_default_graph().colocate_with(part)


def _clip(rows: Tensor, ids: Any, max_norm: Any) -> Tensor:
    if max_norm is None:
        return rows
    ids_rank = convert_to_tensor(ids).shape.ndims
    rows_rank = rows.shape.ndims
    if ids_rank is not None and rows_rank is not None:
        axes: Any = list(range(ids_rank, rows_rank))
    else:
        axes = math_reduce.range_(array_ops.rank(ids), array_ops.rank(rows))
    return clip_ops.clip_by_norm(rows, max_norm, axes=axes)


def _lookup(
    params: Any, ids: Any, partition_strategy: str, name: str | None, max_norm: Any = None, transform: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    with name_scope(name, "embedding_lookup", []) as scope:
        parts = _as_list(params)
        ids = convert_to_tensor(ids, name="ids")
        # One table: a gather.
        if len(parts) == 1 and (transform is None or ids.shape.ndims == 1):
            with _near(parts[0]):
                rows = _clip(gather(parts[0], ids, name=scope), ids, max_norm)
                if transform is not None:
                    rows = transform(rows)
            # The identity lets the rows travel, not the table.
            return array_ops.identity(rows)
        flat = array_ops.reshape(ids, [-1])
        places = math_reduce.range_(array_ops.size(flat))
        owner, row = _assign(parts, flat, partition_strategy)
        owner = math_ops.cast(owner, dtypes.int32)
        rows_of = raw.DynamicPartition(row, owner, num_partitions=len(parts))
        places_of = raw.DynamicPartition(places, owner, num_partitions=len(parts))
        found = []
        for part, wanted in zip(parts, rows_of, strict=True):
            with _near(part):
                rows = gather(part, wanted)
                if transform is not None:
                    rows = transform(_clip(rows, wanted, max_norm))
            found.append(rows)
        stitched = raw.ParallelDynamicStitch(places_of, found, name=scope)
        shape = _row_shape(parts) if transform is None else None
        if shape is not None and shape.is_fully_defined():
            tail: Any = convert_to_tensor(shape)
        else:
            tail = array_ops.shape(stitched)[1:]
        result = array_ops.reshape(stitched, array_ops.concat([array_ops.shape(ids), tail], 0))
        if shape is not None:
            result.set_shape(ids.shape.concatenate(shape))
        return result if transform is not None else _clip(result, ids, max_norm)


def _row_shape(parts: list[Any]) -> Any:
    shape = parts[0].shape[1:]
    for part in parts[1:]:
        shape = shape.merge_with(part.shape[1:])
    return shape


def _assign(parts: list[Any], flat: Tensor, strategy: str) -> tuple[Tensor, Tensor]:
    """For each id, the number of the part that holds it and its row there."""
    count = len(parts)
    if strategy == "mod":
        return flat % count, flat // count
    if strategy != "div":
        raise ValueError(f"Unrecognized partition strategy: {strategy}.Must be one of either `mod` or `div`.")
    sizes = [part.shape.dims[0].value if part.shape.dims is not None else None for part in parts]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        rows = []
        for part, size in zip(parts, sizes, strict=True):
            with _near(part):
                rows.append(size if size is not None else array_ops.shape(part)[0])
        total: Tensor = math_reduce.reduce_sum(math_ops.cast(array_ops.stack(rows), flat.dtype))
    else:
        total = array_ops.constant(sum(known), flat.dtype)
    each, extra = total // count, total % count
    # The first `extra` parts hold one row more.
    owner = raw.Maximum(flat // (each + 1), (flat - extra) // each)
    row = where(owner < extra, flat % (each + 1), (flat - extra) % each)
    return owner, row


@export("nn.embedding_lookup")
def embedding_lookup(
    params: Any, ids: Any, partition_strategy: str = "mod", name: str | None = None, validate_indices: bool = True, max_norm: Any = None
) -> Tensor:
    """The rows of `params` that `ids` names: shape(ids) + shape of a row.

    `params` is a table or a list of its parts. With strategy "mod" id i is row i // n of part i % n; with "div" the parts hold
    ids one after the other. `max_norm` clips longer rows.
    """
    return _lookup(params, ids, partition_strategy, name, max_norm)


# -- sparse ids -------------------------------------------------------------------------------------------------------


@export("nn.embedding_lookup_sparse")
def embedding_lookup_sparse(
    params: Any, sp_ids: SparseTensor, sp_weights: SparseTensor | None, partition_strategy: str = "mod", name: str | None = None,
    combiner: str | None = None, max_norm: Any = None, allow_fast_lookup: bool = False,
) -> Tensor:  # fmt: skip
    """For each row of `sp_ids`, its embeddings combined: "mean" (default), "sum" or "sqrtn", weighted by `sp_weights`."""
    combiner = "mean" if combiner is None else combiner
    if combiner not in ("mean", "sqrtn", "sum"):
        raise ValueError(f"combiner must be one of 'mean', 'sqrtn' or 'sum', got {combiner}")
    if not isinstance(sp_ids, SparseTensor):
        raise TypeError(f"sp_ids must be SparseTensor, got {type(sp_ids)}")
    if sp_weights is not None:
        if not isinstance(sp_weights, SparseTensor):
            raise TypeError(f"sp_weights must be either None or SparseTensor, got {type(sp_weights)}")
        sp_ids.values.shape.assert_is_compatible_with(sp_weights.values.shape)
        sp_ids.indices.shape.assert_is_compatible_with(sp_weights.indices.shape)
    with name_scope(name, "embedding_lookup_sparse", [sp_ids.values]) as scope:
        segments = sp_ids.indices[:, 0]
        ids, index = raw.Unique(sp_ids.values)
        rows = _lookup(params, ids, partition_strategy, None, max_norm)
        if rows.dtype.base_dtype in (dtypes.float16, dtypes.bfloat16):
            rows = math_ops.cast(rows, dtypes.float32)
        if sp_weights is None:
            ops = {"sum": raw.SparseSegmentSum, "mean": raw.SparseSegmentMean, "sqrtn": raw.SparseSegmentSqrtN}
            return ops[combiner](rows, index, segments, name=scope)
        segments = math_ops.cast(segments, dtypes.int32) if segments.dtype != dtypes.int32 else segments
        weights = sp_weights.values
        picked = gather(rows, index)
        weights = math_ops.cast(weights, picked.dtype) if weights.dtype != picked.dtype else weights
        weights = _as_column(weights, picked)
        weighted = picked * weights
        if combiner == "sum":
            return raw.SegmentSum(weighted, segments, name=scope)
        total = raw.SegmentSum(weighted, segments)
        if combiner == "mean":
            return raw.DivNoNan(total, raw.SegmentSum(weights, segments), name=scope)
        squares = raw.SegmentSum(raw.Pow(weights, 2), segments)
        return raw.DivNoNan(total, raw.Sqrt(squares), name=scope)


def _as_column(weights: Tensor, rows: Tensor) -> Tensor:
    """One weight per row, shaped to multiply rows of any rank."""
    if rows.dims is not None:
        column = array_ops.reshape(weights, [-1, *[1] * (len(rows.dims) - 1)])
    else:
        ones = array_ops.ones(array_ops.expand_dims(array_ops.rank(rows) - 1, 0), dtypes.int32)
        column = array_ops.reshape(weights, array_ops.concat([array_ops.shape(weights), ones], 0))
    if rows.dims is not None:
        column.set_shape([None if weights.dims is None else weights.dims[0], *[1] * (len(rows.dims) - 1)])
    return column


@export("nn.safe_embedding_lookup_sparse")
def safe_embedding_lookup_sparse(
    embedding_weights: Any, sparse_ids: SparseTensor, sparse_weights: SparseTensor | None = None, combiner: str | None = "mean",
    default_id: Any = None, name: str | None = None, partition_strategy: str = "div", max_norm: Any = None, allow_fast_lookup: bool = False,
) -> Tensor:  # fmt: skip
    """`embedding_lookup_sparse` for real data: invalid ids and weights are dropped, empty rows get `default_id` or zeros."""
    if embedding_weights is None:
        raise ValueError(f"Missing embedding_weights {embedding_weights}.")
    parts = _as_list(embedding_weights)
    with name_scope(name, "embedding_lookup", []) as scope:
        original_shape = sparse_ids.dense_shape
        rank = sparse_ids.dense_shape.shape.dims[0].value if sparse_ids.dense_shape.shape.dims else None
        leading: Any = array_ops.size(original_shape) - 1 if rank is None else rank - 1
        count: Any = array_ops.expand_dims(leading, 0) if rank is None else [leading]
        rows = math_reduce.reduce_prod(raw.Slice(original_shape, [0], count))
        flat_shape = array_ops.stack([rows, gather(original_shape, leading)])
        flat_shape = math_ops.cast(flat_shape, dtypes.int64)
        reshaped = raw.SparseReshape(sparse_ids.indices, sparse_ids.dense_shape, flat_shape)
        indices, shape = reshaped[0], reshaped[1]
        values = array_ops.identity(sparse_ids.values)
        weights = None if sparse_weights is None else sparse_weights.values
        indices, values, weights = _kept(indices, values, weights, values >= 0)
        if weights is not None and combiner != "sum":
            indices, values, weights = _kept(indices, values, weights, weights > 0)
        fill = math_ops.cast(default_id if default_id is not None else 0, values.dtype)
        filled = raw.SparseFillEmptyRows(indices, values, shape, fill)
        ids = SparseTensor(filled[0], filled[1], shape)
        empty = filled[2]
        wanted_weights = None
        if weights is not None:
            more = raw.SparseFillEmptyRows(indices, weights, shape, math_ops.cast(1.0, weights.dtype))
            wanted_weights = SparseTensor(more[0], more[1], shape)
        inner = None if default_id is None else scope
        result = embedding_lookup_sparse(parts, ids, wanted_weights, partition_strategy, inner, combiner, max_norm)
        if default_id is None:
            flag = array_ops.tile(array_ops.reshape(empty, [-1, 1]), array_ops.stack([1, array_ops.shape(result)[1]]))
            result = where(flag, array_ops.zeros_like(result), result, name=scope)
        head = raw.Slice(math_ops.cast(original_shape, dtypes.int32), [0], count)
        final = array_ops.reshape(result, array_ops.concat([head, array_ops.shape(result)[1:]], 0))
        if rank is not None:
            final.set_shape([*[None] * leading, *(result.shape.as_list()[1:] if result.dims is not None else [None])])
        return final


def _kept(indices: Tensor, values: Tensor, weights: Tensor | None, condition: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    places = array_ops.reshape(raw.Where(condition), [-1])
    return gather(indices, places), gather(values, places), None if weights is None else gather(weights, places)
