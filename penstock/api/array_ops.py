"""Constants, placeholders, and what asks for or changes a tensor's shape.

Slices and gathers are in `array_indexing`, masks, grids and the rest in `array_misc`.
"""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api.export import export, export_value
from penstock.api.framework import name_scope
from penstock.graph.composite import IndexedSlices, SparseTensor
from penstock.graph.constant import constant as _constant
from penstock.graph.constant import constant_value
from penstock.graph.convert import convert_to_tensor, register_tensor_conversion_function
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw
from penstock.shapes import Dimension, TensorShape, as_shape

_SMALL = 1000  # elements: below this, zeros and ones are constants

newaxis = None
export_value("newaxis", None)
export_value("get_static_value", constant_value)


def one_of(axis: Any, old: Any, name: str, old_name: str) -> Any:
    """The value of an argument that has a deprecated second name; ValueError if both are given."""
    if old is not None:
        if axis is not None:
            raise ValueError(f"Cannot specify both '{old_name}' and '{name}'.")
        return old
    return axis


# -- constants --------------------------------------------------------------------------------------------------------


@export("constant")
def constant(value: Any, dtype: Any = None, shape: Any = None, name: str = "Const", verify_shape: bool = False) -> Tensor:
    """A tensor that always has this value.

    With `shape`, a value with fewer elements is filled up with its last element; `verify_shape` forbids that.

    >>> tf.constant([1, 2], shape=[2, 2])  # [[1, 2], [2, 2]]
    """
    return _constant(value, dtype, shape, name, verify_shape)


def _filled(shape: Any, dtype: Any, name: str | None, default_name: str, number: int) -> Tensor:
    dtype = dtypes.as_dtype(dtype).base_dtype
    value: Any = bool(number) if dtype is dtypes.bool else number
    if dtype is dtypes.string:
        value = "" if not number else "1"
    with name_scope(name, default_name, [shape]) as scope:
        if not isinstance(shape, Tensor):
            try:
                known = as_shape(shape)
                if known.is_fully_defined():
                    count = known.num_elements()
                    if count is not None and count < _SMALL:
                        return _constant(value, dtype, known.as_list(), scope)
                    shape = convert_to_tensor(known, name="shape_as_tensor")
                else:
                    shape = convert_to_tensor(shape, dtype=dtypes.int32)
            except (TypeError, ValueError):
                shape = convert_to_tensor(shape, dtype=dtypes.int32)
        if shape.dims == ():
            shape = reshape(shape, [-1])
        return raw.Fill(shape, _constant(value, dtype), name=scope)


@export("zeros")
def zeros(shape: Any, dtype: Any = dtypes.float32, name: str | None = None, layout: Any = None) -> Tensor:
    """A tensor of zeros (False, or empty strings). `shape` may be a tensor."""
    return _filled(shape, dtype, name, "zeros", 0)


@export("ones")
def ones(shape: Any, dtype: Any = dtypes.float32, name: str | None = None, layout: Any = None) -> Tensor:
    """A tensor of ones (or True). `shape` may be a tensor."""
    return _filled(shape, dtype, name, "ones", 1)


@export("zeros_like")
def zeros_like(tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True) -> Tensor:
    """Zeros of the shape and, unless `dtype` is given, the type of `tensor`."""
    with name_scope(name, "zeros_like", [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name="tensor")
        want = tensor.dtype.base_dtype if dtype is None else dtypes.as_dtype(dtype).base_dtype
        if optimize and tensor.shape.is_fully_defined() and want is not dtypes.variant:
            return zeros(tensor.shape, want, name=scope)
        if want is tensor.dtype.base_dtype or want is dtypes.variant:
            return raw.ZerosLike(tensor, name=scope)
        return zeros(shape_internal(tensor, optimize=optimize), want, name=scope)


@export("ones_like")
def ones_like(tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True) -> Tensor:
    """Ones of the shape and, unless `dtype` is given, the type of `tensor`."""
    with name_scope(name, "ones_like", [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name="tensor")
        want = tensor.dtype if dtype is None else dtypes.as_dtype(dtype)
        return ones(shape_internal(tensor, optimize=optimize), want, name=scope)


@export("fill")
def fill(dims: Any, value: Any, name: str | None = None, layout: Any = None) -> Tensor:
    """A tensor of shape `dims` in which every element is `value`."""
    return raw.Fill(dims, value, name=name)


# -- placeholders and identities --------------------------------------------------------------------------------------


@export("placeholder")
def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Tensor:
    """A tensor whose value is given with `feed_dict` when the graph runs; evaluating it without a value is an error."""
    return raw.Placeholder(dtype=dtype, shape=shape, name=name)


@export("placeholder_with_default")
def placeholder_with_default(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """A tensor with the value `input` unless another one is fed."""
    return raw.PlaceholderWithDefault(input, shape=shape, name=name)


@export("sparse_placeholder", "sparse.placeholder")
def sparse_placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> SparseTensor:
    """A SparseTensor to feed with a SparseTensorValue or a tuple (indices, values, dense_shape)."""

    def named(part: str) -> str | None:
        return None if name is None else f"{name}/{part}"

    static: TensorShape | None = None
    if shape is None:
        rank = None
        dense_shape = placeholder(dtypes.int64, [None], named("shape"))
    elif isinstance(shape, Tensor):
        rank = None if shape.dims is None else shape.dims[0]
        dense_shape = shape
    else:
        static = as_shape(tuple(None if d == -1 else d for d in shape) if isinstance(shape, (list, tuple)) else shape)
        rank = static.rank
        if rank is None:
            dense_shape = placeholder(dtypes.int64, [None], named("shape"))
        else:
            sizes = np.array([-1 if d is None else d for d in static.as_list()], dtype=np.int64)
            default = _constant(sizes, name=named("shape_default") or "Const")
            dense_shape = placeholder_with_default(default, [rank], named("shape"))
    values = placeholder(dtype, [None], named("values"))
    indices = placeholder(dtypes.int64, [None, rank], named("indices"))
    result = SparseTensor(indices, values, dense_shape)
    if static is not None:
        result.set_shape(static)
    return result


@export("identity")
def identity(input: Any, name: str | None = None) -> Any:
    """The same value as a new tensor: something to name, to place on a device, or to put control dependencies on."""
    if isinstance(input, SparseTensor):
        return SparseTensor(identity(input.indices), identity(input.values), identity(input.dense_shape))
    if isinstance(input, IndexedSlices):
        shape = input.dense_shape
        return IndexedSlices(identity(input.values), identity(input.indices), None if shape is None else identity(shape))
    return raw.Identity(input, name=name)


@export("identity_n")
def identity_n(input: Any, name: str | None = None) -> list[Tensor]:
    """The same values as new tensors, all available at the same time."""
    return raw.IdentityN(input, name=name)


@export("stop_gradient")
def stop_gradient(input: Any, name: str | None = None) -> Tensor:
    """The same value, through which no gradient flows."""
    return raw.StopGradient(input, name=name)


@export("guarantee_const")
def guarantee_const(input: Any, name: str | None = None) -> Tensor:
    """The same value, promised to be the same in every step."""
    return raw.GuaranteeConst(input, name=name)


@export("check_numerics", "debugging.check_numerics")
def check_numerics(tensor: Any, message: str, name: str | None = None) -> Tensor:
    """The same value; InvalidArgumentError with `message` if it holds a NaN or an infinity."""
    return raw.CheckNumerics(tensor, message=message, name=name)


@export("ensure_shape")
def ensure_shape(x: Any, shape: Any, name: str | None = None) -> Tensor:
    """The same value, with `shape` known statically and checked when the graph runs."""
    return raw.EnsureShape(x, shape=as_shape(shape), name=name)


# -- shapes -----------------------------------------------------------------------------------------------------------


def shape_internal(input: Any, name: str | None = None, optimize: bool = True, out_type: Any = None) -> Tensor:
    """`tf.shape`, where `optimize=False` keeps the op even if the static shape tells the answer."""
    with name_scope(name, "Shape", [input]) as scope:
        if isinstance(input, SparseTensor) or type(input).__name__ == "SparseTensorValue":
            return raw.Cast(input.dense_shape, DstT=out_type or dtypes.int32)
        tensor = convert_to_tensor(input)
        known = tensor.shape
        if optimize and known.is_fully_defined():
            if out_type is None:
                return convert_to_tensor(known, name="shape_as_tensor")
            return _constant(np.array(known.as_list(), dtypes.as_dtype(out_type).np), name=scope)
        return raw.Shape(tensor, out_type=out_type or dtypes.int32, name=scope)


@export("shape")
def shape(input: Any, name: str | None = None, out_type: Any = None) -> Tensor:
    """The shape as a vector of `out_type` (int32); a constant if it is known statically."""
    return shape_internal(input, name, True, out_type or dtypes.int32)


@export("shape_n")
def shape_n(input: Any, out_type: Any = dtypes.int32, name: str | None = None) -> list[Tensor]:
    """The shapes of several tensors of one type."""
    return raw.ShapeN(input, out_type=out_type, name=name)


@export("size")
def size(input: Any, name: str | None = None, out_type: Any = None) -> Tensor:
    """The number of elements."""
    out_type = dtypes.as_dtype(out_type or dtypes.int32)
    with name_scope(name, "Size", [input]) as scope:
        if isinstance(input, SparseTensor) or type(input).__name__ == "SparseTensorValue":
            return raw.Prod(raw.Cast(input.dense_shape, DstT=out_type), 0, name=scope)
        tensor = convert_to_tensor(input)
        count = tensor.shape.num_elements()
        if count is not None and count <= np.iinfo(out_type.np).max:
            return _constant(np.array(count, out_type.np), name=scope)
        return raw.Size(tensor, out_type=out_type, name=scope)


@export("rank")
def rank(input: Any, name: str | None = None) -> Tensor:
    """The number of dimensions."""
    with name_scope(name, "Rank", [input]) as scope:
        if isinstance(input, SparseTensor) or type(input).__name__ == "SparseTensorValue":
            return raw.Size(input.dense_shape, name=scope)
        tensor = convert_to_tensor(input)
        if tensor.dims is not None:
            return _constant(np.array(len(tensor.dims), np.int32), name=scope)
        return raw.Rank(tensor, name=scope)


@export("reshape", "manip.reshape")
def reshape(tensor: Any, shape: Any, name: str | None = None) -> Tensor:
    """The same elements in another shape; one size may be -1, which stands for what is left.

    >>> tf.reshape([[1, 2, 3], [4, 5, 6]], [3, -1])
    """
    return raw.Reshape(tensor, shape, name=name)


@export("squeeze")
def squeeze(input: Any, axis: Any = None, name: str | None = None, squeeze_dims: Any = None) -> Tensor:
    """Without dimensions of size 1: all of them, or those in `axis`."""
    axis = one_of(axis, squeeze_dims, "axis", "squeeze_dims")
    if np.isscalar(axis):
        axis = [axis]
    return raw.Squeeze(input, squeeze_dims=axis, name=name)


@export("expand_dims")
def expand_dims(input: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """With one more dimension of size 1, at position `axis`."""
    axis = one_of(axis, dim, "axis", "dim")
    if axis is None:
        raise ValueError("Must specify an axis argument to tf.expand_dims()")
    return raw.ExpandDims(input, axis, name=name)


@export("transpose")
def transpose(a: Any, perm: Any = None, name: str = "transpose", conjugate: bool = False) -> Tensor:
    """With dimensions in the order `perm`, which is by default the reverse order."""
    with name_scope(name, "transpose", [a]) as scope:
        a = convert_to_tensor(a, name="a") if not isinstance(a, Tensor) else a
        op = raw.ConjugateTranspose if conjugate and a.dtype.is_complex else raw.Transpose
        if perm is None:
            if a.dims is None:
                perm = raw.Range(raw.Sub(raw.Rank(a), 1, name="sub"), -1, -1)
            else:
                perm = np.arange(len(a.dims) - 1, -1, -1, dtype=np.int32)
        return op(a, perm, name=scope)


@export("matrix_transpose", "linalg.matrix_transpose", "linalg.transpose")
def matrix_transpose(a: Any, name: str = "matrix_transpose", conjugate: bool = False) -> Tensor:
    """With the last two dimensions exchanged."""
    with name_scope(name, values=[a]):
        a = convert_to_tensor(a, name="a")
        if a.dims is None:
            count = rank(a)
            head = raw.Range(0, raw.Sub(count, 2, name="sub"), 1)
            perm: Any = concat([head, [raw.Sub(count, 1, name="sub"), raw.Sub(count, 2, name="sub")]], 0)
        else:
            if len(a.dims) < 2:
                raise ValueError(f"Argument `a` should be a (batch) matrix with rank >= 2.  Received `a` = {a} with shape: {a.shape}")
            n = len(a.dims)
            perm = np.array([*range(n - 2), n - 1, n - 2], dtype=np.int32)
        return transpose(a, perm, conjugate=conjugate)


# -- joining and splitting --------------------------------------------------------------------------------------------


@export("concat")
def concat(values: Any, axis: Any, name: str = "concat") -> Tensor:
    """The tensors one after the other along `axis`."""
    if not isinstance(values, (list, tuple)):
        values = [values]
    if len(values) == 1:
        with name_scope(name):
            convert_to_tensor(axis, name="concat_dim", dtype=dtypes.int32).shape.assert_has_rank(0)
            return identity(values[0], name=name)
    return raw.ConcatV2(list(values), axis, name=name)


@export("stack")
def stack(values: Any, axis: int = 0, name: str = "stack") -> Tensor:
    """The tensors along a new dimension at position `axis`."""
    if axis == 0:
        try:
            value = convert_to_tensor(values, name=name)
            if value.dims is not None:
                return value
        except (TypeError, ValueError):
            pass  # the op below says better what is wrong
    first = convert_to_tensor(values[0], name=name)
    if first.dims is not None:
        count = len(first.dims) + 1
        if not -count <= axis < count:
            raise ValueError(f"Argument `axis` = {axis} not in range [{-count}, {count})")
    return raw.Pack(list(values), axis=axis, name=name)


@export("parallel_stack")
def parallel_stack(values: Any, name: str = "parallel_stack") -> Tensor:
    """`tf.stack` along the first dimension, for tensors whose shapes are fully known."""
    with name_scope(name):
        shape_of = convert_to_tensor(values[0]).shape
        if not shape_of.is_fully_defined():
            raise ValueError(f"parallel_stack needs statically known shapes, got {shape_of}")
        return raw.ParallelConcat([expand_dims(v, 0) for v in values], shape=[len(values), *shape_of.as_list()])


@export("unstack")
def unstack(value: Any, num: int | None = None, axis: int = 0, name: str = "unstack") -> list[Tensor]:
    """The tensors of which `value` consists along `axis`; `num` of them, which must be known statically."""
    if num is None:
        value = convert_to_tensor(value)
        dims = value.dims
        if dims is not None:
            if not -len(dims) <= axis < len(dims):
                raise ValueError(f"Argument `axis` = {axis} not in range [{-len(dims)}, {len(dims)})")
            num = dims[axis]
        if num is None:
            raise ValueError(f"Cannot infer argument `num` from shape {value.shape}")
    result = raw.Unpack(value, num=num, axis=axis, name=name)
    return result if isinstance(result, list) else []


@export("split")
def split(value: Any, num_or_size_splits: Any, axis: Any = 0, num: int | None = None, name: str = "split") -> list[Tensor]:
    """Pieces of `value` along `axis`: a number of equal ones, or ones of the given sizes (one may be -1)."""
    if isinstance(num_or_size_splits, (numbers.Integral, Dimension)):
        return raw.Split(axis, value, num_split=int(num_or_size_splits), name=name)
    sizes = convert_to_tensor(num_or_size_splits)
    if sizes.dims == ():
        raise ValueError(
            f"Rank-0 tensors are not supported as the num_or_size_splits argument to split. Argument provided: {num_or_size_splits}"
        )
    if num is None:
        num = None if sizes.dims is None else sizes.dims[0]
        if num is None:
            raise ValueError(f"Cannot infer argument `num` from shape {num_or_size_splits}")
    return raw.SplitV(value, sizes, axis, num_split=num, name=name)


@export("tile", "manip.tile")
def tile(input: Any, multiples: Any, name: str | None = None) -> Tensor:
    """`input` repeated `multiples[i]` times along each dimension."""
    return raw.Tile(input, multiples, name=name)


@export("pad")
def pad(tensor: Any, paddings: Any, mode: str = "CONSTANT", name: str | None = None, constant_values: Any = 0) -> Tensor:
    """With `paddings[d] = [before, after]` elements around dimension d: a constant, or the tensor's own mirror image."""
    mode = mode.upper()
    if mode == "CONSTANT":
        if not isinstance(constant_values, Tensor) and np.ndim(constant_values) == 0 and constant_values == np.zeros_like(constant_values):
            return raw.Pad(tensor, paddings, name=name)
        return raw.PadV2(tensor, paddings, constant_values, name=name)
    if mode in ("REFLECT", "SYMMETRIC"):
        return raw.MirrorPad(tensor, paddings, mode=mode, name=name)
    raise ValueError(
        f'Value of argument `mode` expected to be one of "CONSTANT", "REFLECT", or "SYMMETRIC". Received `mode` = {mode}'
    )


@export("bitcast")
def bitcast(input: Any, type: Any, name: str | None = None) -> Tensor:
    """The same bytes read as another type."""
    return raw.Bitcast(input, type=type, name=name)


@export("broadcast_to")
def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """`input` repeated to `shape` by NumPy's broadcasting rules."""
    return raw.BroadcastTo(input, shape, name=name)


# -- IndexedSlices as dense tensors -----------------------------------------------------------------------------------

_LARGE = 100_000_000


def _indexed_slices_to_tensor(value: IndexedSlices, dtype: Any = None, name: str | None = None, as_ref: bool = False) -> Tensor:
    if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
        raise ValueError(
            f"Incompatible tensor conversion requested to `dtype` {dtypes.as_dtype(dtype).name} for IndexedSlices ({value}) with dtype "
            f"{value.dtype.name}"
        )
    if value.dense_shape is None:
        raise ValueError(f"Tensor conversion requested for IndexedSlices for argument `value` without dense_shape: {value}")
    count = value.shape.num_elements()
    if count is None:
        warnings.warn(
            f"Converting sparse {value} to a dense Tensor of unknown shape. This may consume a large amount of memory.", stacklevel=2
        )
    elif count >= _LARGE:
        warnings.warn(
            f"Converting sparse {value} to a dense Tensor with {count} elements. This may consume a large amount of memory.", stacklevel=2
        )
    return raw.UnsortedSegmentSum(value.values, value.indices, value.dense_shape[0], name=name)  # type: ignore[index]


register_tensor_conversion_function(IndexedSlices, _indexed_slices_to_tensor)
