"""Reading and writing parts of tensors: slices, `tensor[...]`, gathers, scatters, masks, reversals."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api import array_ops
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.graph.constant import constant as _constant
from penstock.graph.constant import constant_value
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw
from penstock.shapes import Dimension, TensorShape

# -- slices -----------------------------------------------------------------------------------------------------------


@export("slice")
def slice_(input_: Any, begin: Any, size: Any, name: str | None = None) -> Tensor:
    """The part of `input_` that starts at `begin` and has shape `size` (-1: up to the end)."""
    return raw.Slice(input_, begin, size, name=name)


slice_.__name__ = "slice"


@export("strided_slice")
def strided_slice(
    input_: Any, begin: Any, end: Any, strides: Any = None, begin_mask: int = 0, end_mask: int = 0, ellipsis_mask: int = 0,
    new_axis_mask: int = 0, shrink_axis_mask: int = 0, var: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """What `input_[...]` stands for: begin, end and strides per index, and masks that say which of them count.

    With `var`, the result has a method `assign(value)` that writes into that part of the variable.
    """
    if strides is None:
        strides = array_ops.ones_like(begin)
    masks = dict(begin_mask=begin_mask, end_mask=end_mask, ellipsis_mask=ellipsis_mask, new_axis_mask=new_axis_mask,
                 shrink_axis_mask=shrink_axis_mask)  # fmt: skip
    result = raw.StridedSlice(input_, begin, end, strides, name=name, **masks)
    if var is not None:

        def assign(val: Any, name: str | None = None) -> Any:
            """Writes `val` into the part of the variable that this slice reads."""
            if name is None:
                name = result.op.name + "_assign"
            return var._strided_slice_assign(begin=begin, end=end, strides=strides, value=val, name=name, **masks)

        result.assign = assign
    return result


_INDEX_ERROR = (
    "Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar tf.int32/tf.int64 tensors are valid indices"
)
_INDEX_TYPES = (dtypes.int16, dtypes.int32, dtypes.int64)


def _check_index(index: Any) -> None:
    if isinstance(index, (numbers.Integral, Dimension)):
        return
    dtype = getattr(index, "dtype", None)
    try:
        good = dtype is not None and dtypes.as_dtype(dtype).base_dtype in _INDEX_TYPES
    except TypeError:
        good = False
    if not good or (index.shape and len(index.shape) == 1):
        raise TypeError(f"{_INDEX_ERROR}, got {index!r}")


def _is_mask(key: Any) -> bool:
    if isinstance(key, bool):
        return True
    if isinstance(key, Tensor):
        return key.dtype.base_dtype is dtypes.bool
    return isinstance(key, np.ndarray) and key.dtype == bool


def _unknown(value: Any) -> bool:
    return value is None or (isinstance(value, Dimension) and value.value is None)


class _Spec:
    """begin, end, strides and the masks of a `tensor[...]`, collected index by index."""

    def __init__(self) -> None:
        self.begin: list[Any] = []
        self.end: list[Any] = []
        self.strides: list[Any] = []
        self.masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)

    def add(self, key: Any) -> None:
        bit = 1 << len(self.begin)
        if isinstance(key, slice):
            self._add_slice(key, bit)
        elif key is Ellipsis:
            self._append(0, 0, 1)
            self.masks["ellipsis_mask"] |= bit
        elif key is None:
            self._append(0, 0, 1)
            self.masks["new_axis_mask"] |= bit
        else:
            _check_index(key)
            wide = isinstance(key, Tensor) and key.dtype.base_dtype in (dtypes.int16, dtypes.int64)
            if isinstance(key, Dimension):
                key = key.value
            self._append(key, key + 1, _constant(1, key.dtype.base_dtype) if wide else 1)
            self.masks["shrink_axis_mask"] |= bit

    def _append(self, begin: Any, end: Any, stride: Any) -> None:
        self.begin.append(begin)
        self.end.append(end)
        self.strides.append(stride)

    def _add_slice(self, key: slice, bit: int) -> None:
        # Where one bound is a tensor, the others take its type.
        tensors = [v for v in (key.start, key.stop) if isinstance(v, Tensor)]

        def plain(value: int) -> Any:
            return _constant(value, tensors[0].dtype.base_dtype) if tensors else value

        begin: Any = key.start
        if _unknown(begin):
            begin = plain(0)
            self.masks["begin_mask"] |= bit
        else:
            _check_index(begin)
        end: Any = key.stop
        if _unknown(end):
            end = plain(0)
            self.masks["end_mask"] |= bit
        else:
            _check_index(end)
        stride: Any = key.step
        if _unknown(stride):
            stride = plain(1)
        else:
            _check_index(stride)
        self._append(*(v.value if isinstance(v, Dimension) else v for v in (begin, end, stride)))


def _slice_helper(tensor: Any, slice_spec: Any, var: Any = None) -> Tensor:
    """`tensor[slice_spec]`, by NumPy's basic indexing: integers, slices, `...`, `tf.newaxis`, scalar tensors, one boolean mask."""
    if _is_mask(slice_spec):
        return boolean_mask(tensor, slice_spec)
    keys = slice_spec if isinstance(slice_spec, (list, tuple)) else [slice_spec]
    spec = _Spec()
    for key in keys:
        spec.add(key)
    with name_scope(None, "strided_slice", [tensor, *spec.begin, *spec.end, *spec.strides]) as scope:
        if spec.begin:
            parts = [array_ops.stack(v) for v in (spec.begin, spec.end, spec.strides)]
            kinds = {p.dtype.base_dtype for p in parts}
            if len(kinds) > 1:
                widest = dtypes.int64 if dtypes.int64 in kinds else dtypes.int32
                parts = [p if p.dtype.base_dtype is widest else raw.Cast(p, DstT=widest) for p in parts]
        else:
            parts = [_constant([], dtypes.int32)] * 3
        return strided_slice(tensor, *parts, var=var, name=scope, **spec.masks)


Tensor.__getitem__ = _slice_helper  # type: ignore[method-assign, assignment]


# -- gather -----------------------------------------------------------------------------------------------------------


@export("gather")
def gather(
    params: Any, indices: Any, validate_indices: Any = None, name: str | None = None, axis: Any = None, batch_dims: int = 0
) -> Tensor:
    """The slices of `params` along `axis` that `indices` names; `batch_dims` leading dimensions go in step.

    >>> tf.gather([10, 20, 30], [2, 0])  # [30, 10]
    """
    if axis is None:
        axis = batch_dims
    known = constant_value(axis)
    if known is not None and int(known) == 0 and not batch_dims and hasattr(params, "sparse_read"):
        return params.sparse_read(indices, name=name)
    return raw.GatherV2(params, indices, axis, batch_dims=batch_dims, name=name)


@export("gather_nd", "manip.gather_nd")
def gather_nd(
    params: Any, indices: Any, name: str | None = None, batch_dims: Any = 0, bad_indices_policy: str = ""
) -> Tensor:
    """The slices of `params` at the positions in `indices`, whose last dimension holds coordinates."""
    known = constant_value(batch_dims)
    if known is not None and int(known) == 0:
        if hasattr(params, "gather_nd") and not bad_indices_policy:
            return params.gather_nd(indices, name=name)
        return raw.GatherNd(params, indices, name=name, bad_indices_policy=bad_indices_policy)
    if known is None:
        raise ValueError("batch_dims of gather_nd must be known statically")
    return batch_gather_nd(params, indices, int(known), name)


def batch_gather_nd(params: Any, indices: Any, batch_dims: int, name: str | None = None) -> Tensor:
    """gather_nd with leading dimensions that go in step: their positions are put in front of the coordinates."""
    with name_scope(name, "BatchGatherND", [params, indices]):
        indices = convert_to_tensor(indices, name="indices")
        params = convert_to_tensor(params, name="params")
        if indices.dims is None:
            raise ValueError("tf.gather_nd with batch_dims > 0 needs indices of statically known rank")
        rank = len(indices.dims)
        if batch_dims < 0:
            batch_dims += rank
        if batch_dims >= rank:
            raise ValueError(f"batch_dims = {batch_dims} must be less than rank(indices) = {rank}")
        index_shape = array_ops.shape(indices)
        outer = array_ops.concat([index_shape[:-1], [1]], 0)
        coordinates = []
        for d in range(batch_dims):
            count = raw.Cast(index_shape[d], DstT=indices.dtype.base_dtype)
            numbers_ = raw.Range(_constant(0, indices.dtype.base_dtype), count, _constant(1, indices.dtype.base_dtype))
            shape = [1] * rank
            shape[d] = -1
            coordinates.append(raw.BroadcastTo(array_ops.reshape(numbers_, shape), outer))
        return raw.GatherNd(params, array_ops.concat([*coordinates, indices], -1))


@export("batch_gather")
def batch_gather(params: Any, indices: Any, name: str | None = None) -> Tensor:
    """Deprecated: `tf.gather` along the last dimension of `indices`, the ones before going in step."""
    with name_scope(name, "BatchGather", [params, indices]):
        indices = convert_to_tensor(indices, name="indices")
        params = convert_to_tensor(params, name="params")
        if indices.dims is None:
            raise ValueError("batch_gather does not allow indices with unknown shape.")
        return raw.GatherV2(params, indices, len(indices.dims) - 1, batch_dims=len(indices.dims) - 1)


# -- scatter ----------------------------------------------------------------------------------------------------------


@export("scatter_nd", "manip.scatter_nd")
def scatter_nd(indices: Any, updates: Any, shape: Any, bad_indices_policy: str = "", name: str | None = None) -> Tensor:
    """A tensor of zeros of shape `shape` to which `updates` are added at the positions in `indices`."""
    return raw.ScatterNd(indices, updates, shape, bad_indices_policy=bad_indices_policy, name=name)


@export("tensor_scatter_nd_update", "tensor_scatter_update")
def tensor_scatter_nd_update(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Tensor:
    """A copy of `tensor` in which the slices at the positions in `indices` are replaced by `updates`."""
    return raw.TensorScatterUpdate(tensor, indices, updates, name=name)


@export("tensor_scatter_nd_add", "tensor_scatter_add")
def tensor_scatter_nd_add(tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None) -> Tensor:
    """A copy of `tensor` with `updates` added at the positions in `indices`."""
    return raw.TensorScatterAdd(tensor, indices, updates, bad_indices_policy=bad_indices_policy, name=name)


@export("tensor_scatter_nd_sub", "tensor_scatter_sub")
def tensor_scatter_nd_sub(tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None) -> Tensor:
    """A copy of `tensor` with `updates` subtracted at the positions in `indices`."""
    return raw.TensorScatterSub(tensor, indices, updates, bad_indices_policy=bad_indices_policy, name=name)


@export("tensor_scatter_nd_min")
def tensor_scatter_nd_min(tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None) -> Tensor:
    """A copy of `tensor` with the smaller of element and update at the positions in `indices`."""
    return raw.TensorScatterMin(tensor, indices, updates, bad_indices_policy=bad_indices_policy, name=name)


@export("tensor_scatter_nd_max")
def tensor_scatter_nd_max(tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None) -> Tensor:
    """A copy of `tensor` with the larger of element and update at the positions in `indices`."""
    return raw.TensorScatterMax(tensor, indices, updates, bad_indices_policy=bad_indices_policy, name=name)


# -- masks and choices ------------------------------------------------------------------------------------------------


@export("boolean_mask")
def boolean_mask(tensor: Any, mask: Any, name: str = "boolean_mask", axis: Any = None) -> Tensor:
    """The slices of `tensor` where `mask` is True; `mask` covers the dimensions from `axis` on."""
    with name_scope(name, values=[tensor, mask]):
        tensor = convert_to_tensor(tensor, name="tensor")
        mask = convert_to_tensor(mask, name="mask")
        if mask.dims is None:
            raise ValueError(
                "Number of mask dimensions must be specified, even if some dimensions are None.  E.g. shape=[None] is ok, but "
                "shape=None is not."
            )
        depth = len(mask.dims)
        if depth == 0:
            raise ValueError("mask cannot be scalar.")
        known = constant_value(0 if axis is None else axis)
        axis = axis if known is None else int(known)
        dims = tensor.dims
        if known is not None:
            TensorShape.from_dims(None if dims is None else dims[axis : axis + depth]).assert_is_compatible_with(mask.shape)
        covered = raw.Prod(array_ops.shape(tensor)[axis : axis + depth], [0])
        flat_shape = array_ops.concat([array_ops.shape(tensor)[:axis], [covered], array_ops.shape(tensor)[axis + depth :]], 0)
        flat = array_ops.reshape(tensor, flat_shape)
        if known is not None and dims is not None:
            count = TensorShape.from_dims(dims[axis : axis + depth]).num_elements()
            flat.set_shape([*dims[:axis], count, *dims[axis + depth :]])
        chosen = array_ops.squeeze(raw.Where(array_ops.reshape(mask, [-1])), axis=[1])
        return gather(flat, chosen, axis=axis)


@export("where")
def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """Elements of `x` where `condition` is True and of `y` elsewhere; without them, the positions of True."""
    if x is None and y is None:
        condition = convert_to_tensor(condition, preferred_dtype=dtypes.bool, name="condition")
        return raw.Where(condition, name=name)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    return raw.Select(condition, x, y, name=name)


@export("where_v2")
def where_v2(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """`tf.where` with broadcasting of all three arguments."""
    if x is None and y is None:
        condition = convert_to_tensor(condition, preferred_dtype=dtypes.bool, name="condition")
        return raw.Where(condition, name=name)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    return raw.SelectV2(condition, x, y, name=name)


# -- orders -----------------------------------------------------------------------------------------------------------


@export("reverse", "reverse_v2", "manip.reverse")
def reverse(tensor: Any, axis: Any, name: str | None = None) -> Tensor:
    """With the elements along the dimensions in the list `axis` in reverse order."""
    return raw.ReverseV2(tensor, axis, name=name)


@export("reverse_sequence")
def reverse_sequence(
    input: Any, seq_lengths: Any, seq_axis: int | None = None, batch_axis: int | None = None, name: str | None = None,
    seq_dim: int | None = None, batch_dim: int | None = None,
) -> Tensor:  # fmt: skip
    """With the first `seq_lengths[i]` elements along `seq_axis` in reverse order, for each i along `batch_axis`."""
    seq_axis = array_ops.one_of(seq_axis, seq_dim, "seq_axis", "seq_dim")
    batch_axis = array_ops.one_of(batch_axis, batch_dim, "batch_axis", "batch_dim")
    return raw.ReverseSequence(input, seq_lengths, seq_dim=seq_axis, batch_dim=batch_axis, name=name)


@export("roll", "manip.roll")
def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Tensor:
    """With the elements moved by `shift` along `axis`; what leaves at one end comes back at the other."""
    return raw.Roll(input, shift, axis, name=name)
