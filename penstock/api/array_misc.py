"""Masks, grids, one-hot vectors, unique elements, partitions: array functions made of several ops."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api import array_ops
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.graph.composite import SparseTensor, SparseTensorValue
from penstock.graph.constant import constant as _constant
from penstock.graph.constant import constant_value
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape, as_shape, broadcast_dims

# -- broadcasting -----------------------------------------------------------------------------------------------------


@export("broadcast_static_shape")
def broadcast_static_shape(shape_x: TensorShape, shape_y: TensorShape) -> TensorShape:
    """The static shape that two shapes broadcast to; ValueError if they do not fit."""
    a, b = as_shape(shape_x), as_shape(shape_y)
    try:
        return TensorShape.from_dims(broadcast_dims(a._dims, b._dims))
    except ValueError:
        raise ValueError(f"Incompatible shapes for broadcasting: {a} and {b}") from None


@export("broadcast_dynamic_shape")
def broadcast_dynamic_shape(shape_x: Any, shape_y: Any) -> Tensor:
    """The shape that two shape vectors broadcast to, computed in the graph."""
    x = convert_to_tensor(shape_x) if isinstance(shape_x, TensorShape) else shape_x
    y = convert_to_tensor(shape_y) if isinstance(shape_y, TensorShape) else shape_y
    return raw.BroadcastArgs(x, y)


@export("meshgrid")
def meshgrid(*args: Any, **kwargs: Any) -> list[Tensor]:
    """Coordinates of a grid from one vector per dimension; `indexing="xy"` (default) or `"ij"`."""
    indexing = kwargs.pop("indexing", "xy")
    name = kwargs.pop("name", "meshgrid")
    if kwargs:
        key = next(iter(kwargs))
        raise TypeError(f"'{key}' is an invalid keyword argument for this function")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Argument `indexing` parameter must be either 'xy' or 'ij', got '{indexing}'")
    with name_scope(name, "meshgrid", args):
        rank = len(args)
        shape = [1] * rank
        output = [array_ops.reshape(array_ops.stack(x), [*shape[:i], -1, *shape[i + 1 :]]) for i, x in enumerate(args)]
        sizes = [array_ops.size(x) for x in args]
        dtype = convert_to_tensor(args[0]).dtype.base_dtype if args else dtypes.float32
        if indexing == "xy" and rank > 1:
            output[0] = array_ops.reshape(output[0], [1, -1, *[1] * (rank - 2)])
            output[1] = array_ops.reshape(output[1], [-1, 1, *[1] * (rank - 2)])
            sizes[0], sizes[1] = sizes[1], sizes[0]
        factor = array_ops.ones(sizes, dtype)
        return [raw.Mul(x, factor, name="mul") for x in output]


@export("repeat")
def repeat(input: Any, repeats: Any, axis: int | None = None, name: str | None = None) -> Tensor:
    """Every element (or every slice along `axis`) repeated `repeats` times, which may be a number or one number each."""
    with name_scope(name, "Repeat", [input, repeats]):
        data = convert_to_tensor(input, name="data")
        repeats = convert_to_tensor(repeats, dtype_hint=dtypes.int32, name="repeats")
        if not repeats.dtype.is_integer:
            raise ValueError(f"repeats must be integers, got {repeats.dtype.name}")
        if axis is None:
            data, axis = array_ops.reshape(data, [-1]), 0
        if data.dims is None or repeats.dims is None:
            raise ValueError("tf.repeat needs data and repeats of statically known rank")
        rank = len(data.dims)
        if not -rank <= axis < rank:
            raise ValueError(f"Argument `axis` = {axis} not in range [{-rank}, {rank})")
        axis %= rank
        if len(repeats.dims) == 0:
            # One number for all: tile along a new dimension.
            shape = array_ops.shape(data, out_type=repeats.dtype.base_dtype)
            expanded = array_ops.expand_dims(data, axis + 1)
            multiples = [1] * (rank + 1)
            tiled = array_ops.tile(expanded, [*multiples[: axis + 1], repeats, *multiples[axis + 2 :]])
            result_shape = array_ops.concat([shape[:axis], [raw.Mul(shape[axis], repeats)], shape[axis + 1 :]], 0)
            return array_ops.reshape(tiled, result_shape)
        if len(repeats.dims) != 1:
            raise ValueError(f"repeats must be a scalar or a vector, got shape {repeats.shape}")
        if repeats.dims[0] == 1:
            repeats = array_ops.broadcast_to(repeats, [array_ops.shape(data)[axis]])
        elif repeats.dims[0] is not None and data.dims[axis] is not None and repeats.dims[0] != data.dims[axis]:
            raise ValueError(f"repeats has {repeats.dims[0]} elements for {data.dims[axis]} slices along axis {axis}")
        # The slice that stands at each place of the result: how many ends of runs lie at or before the place.
        ends = raw.Cumsum(repeats, 0)
        zero, one = _constant(0, repeats.dtype.base_dtype), _constant(1, repeats.dtype.base_dtype)
        places = raw.Range(zero, raw.Sum(repeats, [0]), one)
        rows = raw.UpperBound(array_ops.expand_dims(ends, 0), array_ops.expand_dims(places, 0))
        return raw.GatherV2(data, array_ops.reshape(rows, [-1]), axis)


@export("eye", "linalg.eye")
def eye(num_rows: Any, num_columns: Any = None, batch_shape: Any = None, dtype: Any = dtypes.float32, name: str | None = None) -> Tensor:
    """A batch of identity matrices of `num_rows` x `num_columns` (square by default)."""
    with name_scope(name, "eye", [num_rows, num_columns, batch_shape]):
        square = num_columns is None
        batch_shape = [] if batch_shape is None else batch_shape
        num_columns = num_rows if num_columns is None else num_columns
        if isinstance(num_rows, Tensor) or isinstance(num_columns, Tensor):
            length: Any = raw.Minimum(num_rows, num_columns)
        else:
            if not isinstance(num_rows, numbers.Integral) or not isinstance(num_columns, numbers.Integral):
                raise TypeError(
                    "Arguments `num_rows` and `num_columns` must be positive integer values. "
                    f"Received: num_rows={num_rows}, num_columns={num_columns}"
                )
            square = num_rows == num_columns
            length = min(int(num_rows), int(num_columns))
        if isinstance(batch_shape, Tensor) or isinstance(length, Tensor):
            batch_shape = convert_to_tensor(batch_shape, name="shape", dtype_hint=dtypes.int32)
            diagonal: Any = array_ops.concat((batch_shape, [length]), 0)
            full: Any = None if square else array_ops.concat((batch_shape, [num_rows, num_columns]), 0)
        else:
            diagonal = (*batch_shape, length)
            full = None if square else (*batch_shape, num_rows, num_columns)
        ones = array_ops.ones(diagonal, dtype)
        if square:
            zero = np.zeros((), dtypes.as_dtype(dtype).np)
            return raw.MatrixDiagV3(ones, 0, -1, -1, zero, name="diag")
        return raw.MatrixSetDiagV3(array_ops.zeros(full, dtype), ones, 0, name="set_diag")


# -- masks and one-hot ------------------------------------------------------------------------------------------------


@export("sequence_mask")
def sequence_mask(lengths: Any, maxlen: Any = None, dtype: Any = dtypes.bool, name: str | None = None) -> Tensor:
    """True in the first `lengths[i]` places of row i.

    >>> tf.sequence_mask([1, 3], 4)  # [[True, False, False, False], [True, True, True, False]]
    """
    with name_scope(name, "SequenceMask", [lengths, maxlen]):
        lengths = convert_to_tensor(lengths)
        if maxlen is None:
            axes = raw.Range(0, raw.Rank(lengths), 1) if lengths.dims is None else _constant(np.arange(len(lengths.dims), dtype=np.int32))
            longest = raw.Max(lengths, axes)
            maxlen = raw.Maximum(_constant(0, lengths.dtype.base_dtype), longest)
        else:
            maxlen = convert_to_tensor(maxlen)
        if maxlen.dims not in (None, ()):
            raise ValueError(f"Argument `maxlen` must be scalar for sequence_mask, received `maxlen` = {maxlen} with shape '{maxlen.shape}' instead")
        kind = maxlen.dtype.base_dtype
        row = raw.Range(_constant(0, kind), maxlen, _constant(1, kind))
        matrix = raw.Cast(array_ops.expand_dims(lengths, -1), DstT=kind)
        result = raw.Less(row, matrix)
        dtype = dtypes.as_dtype(dtype)
        return result if dtype.base_dtype is dtypes.bool else raw.Cast(result, DstT=dtype)


@export("one_hot")
def one_hot(
    indices: Any, depth: Any, on_value: Any = None, off_value: Any = None, axis: int | None = None, dtype: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """`on_value` (1) at the place that each index names along a new dimension of size `depth`, `off_value` (0) elsewhere."""
    with name_scope(name, "one_hot", [indices, depth, on_value, off_value, axis, dtype]) as scope:
        want = None if dtype is None else dtypes.as_dtype(dtype).base_dtype
        given = {}
        for what, value in (("on_value", on_value), ("off_value", off_value)):
            if value is not None:
                given[what] = convert_to_tensor(value, dtype_hint=want)
        kinds = [v.dtype.base_dtype for v in given.values()]
        if want is None:
            want = kinds[0] if kinds else dtypes.float32
        for what, value in given.items():
            if dtype is not None and value.dtype.base_dtype is not want:
                raise TypeError(f"dtype {value.dtype.base_dtype} of {what} does not match dtype parameter {want}")
        if len(kinds) == 2 and kinds[0] is not kinds[1]:
            raise TypeError(f"dtype {kinds[0]} of on_value does not match dtype {kinds[1]} of off_value")
        on = given.get("on_value")
        off = given.get("off_value")
        if on is None:
            on = convert_to_tensor(1 if want is not dtypes.bool else True, want, name="on_value")
        if off is None:
            off = convert_to_tensor(0 if want is not dtypes.bool else False, want, name="off_value")
        return raw.OneHot(indices, depth, on, off, axis=-1 if axis is None else axis, name=scope)


# -- sets -------------------------------------------------------------------------------------------------------------


@export("unique")
def unique(x: Any, out_idx: Any = dtypes.int32, name: str | None = None) -> Any:
    """The distinct elements of a vector in order of appearance (`y`), and for every element the place of its value (`idx`)."""
    return raw.Unique(x, out_idx=out_idx, name=name)


@export("unique_with_counts")
def unique_with_counts(x: Any, out_idx: Any = dtypes.int32, name: str | None = None) -> Any:
    """`tf.unique` and how often each value occurs (`count`)."""
    return raw.UniqueWithCounts(x, out_idx=out_idx, name=name)


@export("setdiff1d")
def setdiff1d(x: Any, y: Any, index_dtype: Any = dtypes.int32, name: str | None = None) -> Any:
    """The elements of `x` that are not in `y`, and where they stand in `x`."""
    return raw.ListDiff(x, y, out_idx=index_dtype, name=name)


@export("invert_permutation", "math.invert_permutation")
def invert_permutation(x: Any, name: str | None = None) -> Tensor:
    """The permutation that undoes `x`."""
    return raw.InvertPermutation(x, name=name)


@export("unravel_index")
def unravel_index(indices: Any, dims: Any, name: str | None = None) -> Tensor:
    """Flat indices as coordinates in an array of shape `dims`."""
    return raw.UnravelIndex(indices, dims, name=name)


@export("searchsorted")
def searchsorted(sorted_sequence: Any, values: Any, side: str = "left", out_type: Any = dtypes.int32, name: str | None = None) -> Tensor:
    """Where `values` would have to be inserted to keep the innermost dimension of `sorted_sequence` sorted."""
    sequence_size = array_ops.shape_internal(sorted_sequence)[-1]
    values_size = array_ops.shape_internal(values)[-1]
    rows = array_ops.reshape(sorted_sequence, [-1, sequence_size])
    wanted = array_ops.reshape(values, [-1, values_size])
    if side not in ("left", "right"):
        raise ValueError(f"Argument `side` must be either 'right' or 'left'. Received: `side` = '{side}'.")
    bound = raw.LowerBound if side == "left" else raw.UpperBound
    return array_ops.reshape(bound(rows, wanted, out_type=out_type, name=name), array_ops.shape_internal(values))


# -- partitions -------------------------------------------------------------------------------------------------------


@export("dynamic_partition")
def dynamic_partition(data: Any, partitions: Any, num_partitions: int, name: str | None = None) -> list[Tensor]:
    """The slices of `data`, sorted into `num_partitions` tensors by the numbers in `partitions`."""
    return raw.DynamicPartition(data, partitions, num_partitions=num_partitions, name=name)


@export("dynamic_stitch")
def dynamic_stitch(indices: Any, data: Any, name: str | None = None) -> Tensor:
    """One tensor with `data[m][i]` at row `indices[m][i]`; of rows given twice the last one counts."""
    return raw.DynamicStitch(indices, data, name=name)


@export("required_space_to_batch_paddings")
def required_space_to_batch_paddings(
    input_shape: Any, block_shape: Any, base_paddings: Any = None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """(paddings, crops) that make sizes multiples of the block, for space_to_batch_nd and back."""
    with name_scope(name, "required_space_to_batch_paddings", [input_shape, block_shape]):
        sizes = convert_to_tensor(input_shape, dtype=dtypes.int32, name="input_shape")
        blocks = convert_to_tensor(block_shape, dtype=dtypes.int32, name="block_shape")
        if blocks.dims is None or len(blocks.dims) != 1 or blocks.dims[0] is None:
            raise ValueError(f"block_shape must be a vector of statically known length, got shape {blocks.shape}")
        count = blocks.dims[0]
        if count == 0:
            empty = array_ops.zeros([0, 2], dtypes.int32)
            return empty, empty
        sizes.shape.assert_is_compatible_with([count])
        if base_paddings is not None:
            base = convert_to_tensor(base_paddings, dtype=dtypes.int32, name="base_paddings")
            base.shape.assert_is_compatible_with([count, 2])
        else:
            base = array_ops.zeros([count, 2], dtypes.int32)
        known = [constant_value(v) for v in (sizes, blocks, base)]
        if all(v is not None for v in known):
            size, block, start = (np.asarray(v) for v in known)
            extra = -(size + start.sum(1)) % block
            paddings = np.stack([start[:, 0], start[:, 1] + extra], 1).astype(np.int32)
            crops = np.stack([np.zeros_like(extra), extra], 1).astype(np.int32)
            return _constant(paddings, name="paddings"), _constant(crops, name="crops")
        before, after = base[:, 0], base[:, 1]
        full = raw.AddV2(raw.AddV2(sizes, before, name="add"), after, name="add")
        extra_t = raw.FloorMod(raw.Sub(blocks, raw.FloorMod(full, blocks, name="mod"), name="sub"), blocks, name="mod")
        end = raw.AddV2(after, extra_t, name="add")
        pads = array_ops.stack([[before[i], end[i]] for i in range(count)], name="paddings")
        crop = array_ops.stack([[0, extra_t[i]] for i in range(count)], name="crops")
        return pads, crop


@export("edit_distance")
def edit_distance(hypothesis: Any, truth: Any, normalize: bool = True, name: str = "edit_distance") -> Tensor:
    """The Levenshtein distance of each pair of sequences; divided by the truth's length unless `normalize` is False."""
    for what, value in (("Hypothesis", hypothesis), ("Truth", truth)):
        if not isinstance(value, (SparseTensor, SparseTensorValue)):
            raise TypeError(f"{what} must be a SparseTensor.")
    hypothesis, truth = (SparseTensor.from_value(v) for v in (hypothesis, truth))
    return raw.EditDistance(
        hypothesis.indices, hypothesis.values, hypothesis.dense_shape, truth.indices, truth.values, truth.dense_shape,
        normalize=normalize, name=name,
    )  # fmt: skip


@export("extract_image_patches", "image.extract_image_patches")
def extract_image_patches(
    images: Any, ksizes: Any = None, strides: Any = None, rates: Any = None, padding: str | None = None, name: str | None = None,
    sizes: Any = None,
) -> Tensor:  # fmt: skip
    """Patches of `images` (NHWC), with the cells of each patch in the depth dimension."""
    ksizes = array_ops.one_of(sizes, ksizes, "sizes", "ksizes")
    return raw.ExtractImagePatches(images, ksizes=ksizes, strides=strides, rates=rates, padding=padding, name=name)


@export("extract_volume_patches")
def extract_volume_patches(input: Any, ksizes: Any, strides: Any, padding: str, name: str | None = None) -> Tensor:
    """Patches of volumes (NDHWC), with the cells of each patch in the depth dimension."""
    return raw.ExtractVolumePatches(input, ksizes=ksizes, strides=strides, padding=padding, name=name)
