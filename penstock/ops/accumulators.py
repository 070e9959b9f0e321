"""Conditional accumulators: ops that sum gradients up and hand them out when enough have come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError, NotFoundError
from penstock.graph.ir import Dims, Operation
from penstock.ops.declare import checked_scalar, no_outputs, op, scalar, unknown, vector
from penstock.ops.kernels.accumulators import Accumulator, DenseAccumulator, SparseAccumulator
from penstock.ops.kernels.handles import find, make_handle
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.samples import program
from penstock.shapes import TensorShape, dims_of, format_dims


def _maker(cls: Any, as_ref: bool) -> Callable[..., Any]:
    def kernel(ctx: Any, *, dtype: DType, shape: TensorShape, container: bytes, shared_name: bytes, reduction_type: bytes, node: Operation,
               state: Any) -> Any:  # fmt: skip
        mean = reduction_type == b"MEAN"
        return make_handle(ctx, cls, lambda name: cls(name, dtype, dims_of(shape), mean), node, state, container, shared_name, as_ref=as_ref)

    return kernel


def _find(ctx: Any, handle: Any, cls: Any, dtype: DType) -> Any:
    accumulator = find(ctx, handle, cls)
    if accumulator.dtype is not dtype:
        raise InvalidArgumentError(f"Accumulator '{accumulator.name}' holds {dtype_text(accumulator.dtype)}, not {dtype_text(dtype)}")
    return accumulator


def _any_accumulator(ctx: Any, handle: Any) -> Accumulator:
    try:
        return find(ctx, handle, DenseAccumulator)
    except NotFoundError:
        return find(ctx, handle, SparseAccumulator)


def _step(value: Any, what: str) -> int:
    if np.size(value) != 1:
        raise InvalidArgumentError(f"Argument {what} must be scalar, but had bad shape {format_dims(np.shape(value))}")
    return int(np.reshape(value, ()))


def apply_kernel(ctx: Any, handle: Any, local_step: Any, gradient: Any, *, dtype: DType) -> None:
    _find(ctx, handle, DenseAccumulator, dtype).apply(_step(local_step, "local_step"), gradient)


def sparse_apply_kernel(ctx: Any, handle: Any, local_step: Any, indices: Any, values: Any, shape: Any, *, dtype: DType, has_known_shape: bool) -> None:
    gradient = (indices, values, shape if has_known_shape else None)
    _find(ctx, handle, SparseAccumulator, dtype).apply(_step(local_step, "local_step"), gradient)


def take_kernel(ctx: Any, done: Callable[..., Any], handle: Any, num_required: Any, *, dtype: DType) -> None:
    _find(ctx, handle, DenseAccumulator, dtype).take(ctx, done, _step(num_required, "num_required"))


def sparse_take_kernel(ctx: Any, done: Callable[..., Any], handle: Any, num_required: Any, *, dtype: DType) -> None:
    _find(ctx, handle, SparseAccumulator, dtype).take(ctx, done, _step(num_required, "num_required"))


def count_kernel(ctx: Any, handle: Any) -> Any:
    return np.int32(_any_accumulator(ctx, handle).count)


def set_step_kernel(ctx: Any, handle: Any, new_global_step: Any) -> None:
    _any_accumulator(ctx, handle).set_step(_step(new_global_step, "new_global_step"))


def one_scalar(i: int) -> Callable[..., list[Dims]]:
    def rule(c: Any) -> list[Dims]:
        checked_scalar(c, i)
        return []

    return rule


def _dense_program(tf: Any) -> Any:
    total = tf.ConditionalAccumulator(tf.float32, shape=[2])
    with tf.control_dependencies([total.apply_grad([1.0, 2.0]), total.apply_grad([3.0, 5.0])]):
        return total.take_grad(2)


def _sparse_program(tf: Any) -> Any:
    total = tf.SparseConditionalAccumulator(tf.float32, shape=[4, 2])
    applied = total.apply_grad([0, 2], [[1.0, 2.0], [3.0, 4.0]], [4, 2])
    with tf.control_dependencies([applied, total.apply_grad([2, 3], [[5.0, 6.0], [7.0, 8.0]], [4, 2])]):
        return total.take_indexed_slices_grad(2)


_TYPES = ("{float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128,"
          " half, uint32, uint64}")  # fmt: skip
_MADE = (f"[dtype: type in {_TYPES}; shape: shape; container: string = ''; shared_name: string = '';"
         " reduction_type: string in {'MEAN', 'SUM'} = 'MEAN'] stateful")  # fmt: skip
op(f"ConditionalAccumulator() -> (handle: ref string) {_MADE}", shape=vector(2), numpy=_maker(DenseAccumulator, True))
op(f"ResourceConditionalAccumulator() -> (handle: resource) {_MADE}", shape=vector(2), numpy=_maker(DenseAccumulator, False))
op(f"SparseConditionalAccumulator() -> (handle: ref string) {_MADE}", shape=vector(2), numpy=_maker(SparseAccumulator, True))

for _prefix, _handle, _flags in (("", "ref string", ""), ("Resource", "resource", " stateful")):
    op(f"{_prefix}AccumulatorApplyGradient(handle: {_handle}, local_step: int64, gradient: dtype) -> () [dtype: type in {_TYPES}]{_flags}",
       shape=one_scalar(1), numpy=apply_kernel)  # fmt: skip
    op(f"{_prefix}AccumulatorTakeGradient(handle: {_handle}, num_required: int32) -> (average: dtype) [dtype: type in {_TYPES}]{_flags}",
       shape=unknown, async_kernel=take_kernel, samples=[program(_dense_program)] if _prefix else [])  # fmt: skip
    op(f"{_prefix}AccumulatorNumAccumulated(handle: {_handle}) -> (num_accumulated: int32){_flags}", shape=scalar, numpy=count_kernel)
    op(f"{_prefix}AccumulatorSetGlobalStep(handle: {_handle}, new_global_step: int64) -> (){_flags}",
       shape=one_scalar(1), numpy=set_step_kernel)  # fmt: skip

op("SparseAccumulatorApplyGradient(handle: ref string, local_step: int64, gradient_indices: int64, gradient_values: dtype, gradient_shape: int64)"
   f" -> () [dtype: type in {_TYPES}; has_known_shape: bool]",
   shape=no_outputs, numpy=sparse_apply_kernel)  # fmt: skip
op("SparseAccumulatorTakeGradient(handle: ref string, num_required: int32) -> (indices: int64, values: dtype, shape: int64)"
   f" [dtype: type in {_TYPES}]",
   shape=unknown, async_kernel=sparse_take_kernel, samples=[program(_sparse_program)])  # fmt: skip
