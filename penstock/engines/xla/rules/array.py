"""Shapes of values, the same elements in other shapes and orders, joining and splitting, and ops that pass their input on."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.engines.xla.checks import need, refusals
from penstock.engines.xla.rule import jnp, lax, rule, static, static_ints
from penstock.engines.xla.values import array, axis_of, is_complex, size_of, zeros
from penstock.ops.array import invert_permutation_kernel, shape_kernel, size_kernel
from penstock.ops.broadcasting import broadcast_gradient_args_kernel
from penstock.ops.kernels.joins import concat_offset_kernel
from penstock.ops.scans import range_kernel
from penstock.ops.select import broadcast_args_kernel
from penstock.shapes import TensorShape, compatible_dims, dims_of

# -- passing on -------------------------------------------------------------------------------------------------------


@rule(
    "Identity", "StopGradient", "PreventGradient", "Snapshot", "PlaceholderWithDefault", "GuaranteeConst", "DeepCopy",
    "DebugGradientIdentity", "IdentityN",
)  # fmt: skip
def identity(x: Any) -> Any:
    return x


@rule("EnsureShape")
def ensure_shape(x: Any, *, shape: TensorShape) -> Any:
    need(compatible_dims(x.shape, dims_of(shape)), "another shape than expected")
    return x


@rule("ZerosLike")
def zeros_like(x: Any) -> Any:
    return zeros(x.shape, x.dtype)


@rule("OnesLike")
def ones_like(x: Any) -> Any:
    return jnp.ones(x.shape, x.dtype)


@rule("Fill")
def fill(dims: Any, value: Any) -> Any:
    sizes = static_ints(dims)
    need(value.size == 1 and all(n >= 0 for n in sizes), "sizes or a value that make no tensor")
    return jnp.broadcast_to(jnp.reshape(array(value), ()), sizes)


# -- shapes as values: known as soon as a program is traced -----------------------------------------------------------


@rule("Shape")
def shape(x: Any, *, out_type: DType) -> np.ndarray:
    with refusals():
        return shape_kernel(x, out_type=out_type)


@rule("ShapeN")
def shape_n(inputs: list[Any], *, out_type: DType) -> list[np.ndarray]:
    return [np.array(x.shape, out_type.np) for x in inputs]


@rule("Size")
def size(x: Any, *, out_type: DType) -> Any:
    with refusals():
        return size_kernel(x, out_type=out_type)


@rule("Rank")
def rank(x: Any) -> Any:
    return np.int32(x.ndim)


@rule("BroadcastGradientArgs")
def broadcast_gradient_args(s0: Any, s1: Any) -> list[np.ndarray]:
    with refusals():
        return broadcast_gradient_args_kernel(static(s0), static(s1))


@rule("BroadcastArgs")
def broadcast_args(s0: Any, s1: Any) -> np.ndarray:
    with refusals():
        return broadcast_args_kernel(static(s0), static(s1))


@rule("ConcatOffset")
def concat_offset(axis: Any, shapes: list[Any]) -> list[np.ndarray]:
    with refusals():
        return concat_offset_kernel(static(axis), [static(s) for s in shapes])


@rule("InvertPermutation")
def invert_permutation(x: Any) -> np.ndarray:
    with refusals():
        return invert_permutation_kernel(static(x))


# -- sequences --------------------------------------------------------------------------------------------------------


@rule("Range")
def range_(start: Any, limit: Any, delta: Any) -> np.ndarray:
    with refusals():
        return range_kernel(static(start), static(limit), static(delta))


@rule("LinSpace")
def lin_space(start: Any, stop: Any, num: Any) -> Any:
    (n,) = static_ints(num)
    need(n > 0 and start.ndim == 0 and stop.ndim == 0, "no numbers, or ends that are no scalars")
    dtype = start.dtype
    wide = np.float64 if dtype == np.float64 else np.float32
    first, last = (jnp.asarray(v).astype(wide) for v in (start, stop))
    result = first + np.arange(n, dtype=wide) * ((last - first) / wide(max(n - 1, 1)))
    if n > 1:
        result = result.at[-1].set(last)  # exactly, whatever rounding says
    return result.astype(dtype)


# -- the same elements in another shape -------------------------------------------------------------------------------


@rule("Reshape")
def reshape(x: Any, shape: Any) -> Any:
    sizes = list(static_ints(shape))
    need(sizes.count(-1) <= 1 and all(n >= -1 for n in sizes), "sizes below zero")
    if -1 in sizes:
        known = [n for n in sizes if n != -1]
        if 0 in known:  # the non-zero sizes still tell what is missing
            missing, rest = size_of([n for n in x.shape if n]), size_of([n for n in known if n])
        else:
            missing, rest = x.size, size_of(known)
        need(missing % rest == 0, "a size that does not divide")
        sizes[sizes.index(-1)] = missing // rest
    need(size_of(sizes) == x.size, "another number of elements")
    return jnp.reshape(x, sizes)


@rule("Squeeze")
def squeeze(x: Any, *, squeeze_dims: list[int]) -> Any:
    axes = [axis_of(a, x.ndim) for a in squeeze_dims] or [i for i, n in enumerate(x.shape) if n == 1]
    need(all(x.shape[a] == 1 for a in axes), "a dimension that is not 1")
    return jnp.reshape(x, [n for i, n in enumerate(x.shape) if i not in axes])


@rule("ExpandDims")
def expand_dims(x: Any, dim: Any) -> Any:
    return lax.expand_dims(x, (axis_of(dim, x.ndim + 1),))


@rule("BroadcastTo")
def broadcast_to(x: Any, shape: Any) -> Any:
    return jnp.broadcast_to(x, static_ints(shape))


# -- the same elements in another order -------------------------------------------------------------------------------


@rule("Transpose")
def transpose(x: Any, perm: Any) -> Any:
    axes = static_ints(perm)
    need(sorted(a % x.ndim for a in axes) == list(range(x.ndim)) and all(-x.ndim <= a < x.ndim for a in axes), "no permutation")
    return jnp.transpose(x, [a % x.ndim for a in axes])


@rule("ConjugateTranspose")
def conjugate_transpose(x: Any, perm: Any) -> Any:
    y = transpose(x, perm)
    return jnp.conj(y) if is_complex(y) else y


@rule("Reverse")
def reverse(x: Any, dims: Any) -> Any:
    flags = static(dims)
    need(flags.shape == (x.ndim,), "another number of dimensions")
    return lax.rev(x, [int(i) for i in np.flatnonzero(flags)])


@rule("ReverseV2")
def reverse_v2(x: Any, axis: Any) -> Any:
    if x.ndim == 0:
        return x
    return lax.rev(x, [axis_of(a, x.ndim) for a in static_ints(axis)])


# -- joining and splitting --------------------------------------------------------------------------------------------


@rule("Concat")
def concat(axis: Any, values: list[Any]) -> Any:
    return concat_v2(values, axis)


@rule("ConcatV2")
def concat_v2(values: list[Any], axis: Any) -> Any:
    need(values[0].ndim > 0, "scalars to concatenate")
    return lax.concatenate([array(v) for v in values], axis_of(axis, values[0].ndim))


@rule("ParallelConcat")
def parallel_concat(values: list[Any]) -> Any:
    return concat_v2(values, 0)


@rule("Pack")
def pack(values: list[Any], *, axis: int) -> Any:
    first = values[0]
    need(all(v.shape == first.shape for v in values), "different shapes")
    at = axis_of(axis, first.ndim + 1)
    return lax.concatenate([lax.expand_dims(array(v), (at,)) for v in values], at)


@rule("Unpack")
def unpack(x: Any, *, num: int, axis: int) -> list[Any]:
    a = axis_of(axis, x.ndim)
    need(x.shape[a] == num, "another number of values")
    return [lax.squeeze(lax.slice_in_dim(x, i, i + 1, axis=a), (a,)) for i in range(num)]


def _pieces(x: Any, axis: int, sizes: list[int]) -> list[Any]:
    ends = np.cumsum([0, *sizes]).tolist()
    return [lax.slice_in_dim(x, start, stop, axis=axis) for start, stop in pairwise(ends)]


@rule("Split")
def split(split_dim: Any, x: Any, *, num_split: int) -> list[Any]:
    if num_split == 1 and x.ndim == 0:
        return [x]
    a = axis_of(split_dim, x.ndim)
    need(x.shape[a] % num_split == 0, "pieces of different sizes")
    return _pieces(x, a, [x.shape[a] // num_split] * num_split)


@rule("SplitV")
def split_v(x: Any, size_splits: Any, split_dim: Any, *, num_split: int) -> list[Any]:
    sizes = list(static_ints(size_splits))
    a = axis_of(split_dim, x.ndim)
    need(len(sizes) == num_split, "another number of pieces")
    if num_split == 1:
        return [x]
    need(sizes.count(-1) <= 1 and min(sizes) >= -1, "sizes below zero")
    if -1 in sizes:
        sizes[sizes.index(-1)] = x.shape[a] - sum(n for n in sizes if n != -1)
    need(min(sizes) >= 0 and sum(sizes) == x.shape[a], "pieces that do not fill the whole")
    return _pieces(x, a, sizes)
