"""Reference variables: TF1's `Variable` ops, whose outputs are the variables themselves, and the ops that write to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InternalError, InvalidArgumentError, NotFoundError, OutOfRangeError
from penstock.graph.ir import Dims, Operation
from penstock.ops.declare import NOT_DIFFERENTIABLE, from_attr, op, same_as, scalar
from penstock.ops.kernels.rows import are_in_range, row_updates, scatter_nd, scatter_rows
from penstock.ops.kernels.slices import assign_slice, assign_slice_shape
from penstock.ops.native.rows import can_fold, fold
from penstock.ops.resources import DEFAULT_CONTAINER, Owned, Ref, acquire, release
from penstock.ops.samples import program
from penstock.shapes import (
    TensorShape,
    compatible_dims,
    dims_of,
    format_dims,
    is_fully_defined,
    merge_dims,
    num_elements,
)

# -- variables --------------------------------------------------------------------------------------------------------


def resource_key(container: bytes, shared_name: bytes, node: Operation) -> tuple[str, str]:
    """(container, name) under which a stateful op keeps its resource: its shared name, or its own."""
    return container.decode() or DEFAULT_CONTAINER, shared_name.decode() or node.name


def variable_kernel(
    ctx: Any, *, dtype: DType, shape: TensorShape, container: bytes, shared_name: bytes, node: Operation, state: Any
) -> Ref:
    resources = ctx.resources
    known = state.__dict__.get("known")
    if known is not None and known[0] is resources and known[1] == resources.version:
        return known[2]
    key = getattr(state, "key", None)
    if key is None:
        key = state.key = resource_key(container, shared_name, node)
    version = resources.version  # before the look-up: what is deleted meanwhile makes the note stale
    found = resources.lookup_or_create(key[0], key[1], Ref, lambda: Ref(dtype, dims_of(shape), node.name))
    state.known = (resources, version, found)
    return found


def old_variable_shape(c: Any) -> Dims:
    # The first version of the op could not tell a scalar from an unknown shape.
    return dims_of(c.attrs["shape"]) or None


_VARIABLE_ATTRS = "[shape: shape; dtype: type; container: string = ''; shared_name: string = ''] stateful"
op(f"Variable() -> (ref: ref dtype) {_VARIABLE_ATTRS}", shape=old_variable_shape, numpy=variable_kernel)
op(f"VariableV2() -> (ref: ref dtype) {_VARIABLE_ATTRS}", shape=from_attr("shape"), numpy=variable_kernel)


def _temporary_key(ctx: Any, var_name: bytes) -> str:
    return f"__tmp_var/{var_name.decode()}/{ctx.frame_iter}"


def temporary_variable_kernel(ctx: Any, *, shape: TensorShape, dtype: DType, var_name: bytes, node: Operation) -> Ref:
    key = _temporary_key(ctx, var_name or node.name.encode())
    if key in ctx.step_resources:
        raise InternalError(f"TemporaryVariable '{var_name.decode() or node.name}' already exists in this step")
    dims = dims_of(shape)
    if not is_fully_defined(dims):
        raise InvalidArgumentError(f"TemporaryVariable needs a fully defined shape, got {format_dims(dims)}")
    ref = Ref(dtype, dims, node.name)
    # TF hands out fresh memory; ours is zeroed, so that a program which forgot to assign is at least repeatable.
    ref.value = np.full(dims, b"", dtype=object) if dtype.np.hasobject else np.zeros(dims, dtype.np)
    ctx.step_resources[key] = ref
    return ref


def destroy_temporary_kernel(ctx: Any, ref: Ref, *, var_name: bytes) -> Any:
    if ctx.step_resources.pop(_temporary_key(ctx, var_name), None) is None:
        raise NotFoundError(
            f"Resource __per_step_{ctx.step_id}/{var_name.decode()} does not exist: no TemporaryVariable of that name."
        )
    return ref.read()


op("TemporaryVariable() -> (ref: ref dtype) [shape: shape; dtype: type; var_name: string = ''] stateful",
   shape=from_attr("shape"), numpy=temporary_variable_kernel)  # fmt: skip
op("DestroyTemporaryVariable(ref: ref T) -> (value: T) [T: type; var_name: string]",
   shape=same_as("ref"), numpy=destroy_temporary_kernel)  # fmt: skip
op("IsVariableInitialized(ref: ref dtype) -> (is_initialized: bool) [dtype: type] uninitialized_ok",
   shape=scalar, numpy=lambda ref: np.bool_(ref.peek() is not None), grad=NOT_DIFFERENTIABLE)  # fmt: skip


# -- assignment -------------------------------------------------------------------------------------------------------


def assign_shape(c: Any) -> Dims:
    if c.attrs.get("validate_shape", True):
        return merge_dims(c.dims(0), c.dims(1))
    return c.dims(1)


def merged_shape(c: Any) -> Dims:
    return merge_dims(c.dims(0), c.dims(1))


def assign_kernel(ref: Ref, value: Any, *, validate_shape: bool) -> Ref:
    if validate_shape:
        held = ref.value
        want = ref.dims if held is None else held.shape
        if not compatible_dims(want, value.shape):
            raise InvalidArgumentError(
                f"Assign requires shapes of both tensors to match. lhs shape= {format_dims(want)} rhs shape= {format_dims(value.shape)}"
            )
    ref.assign(value)
    return ref


def _adding(function: Any) -> Any:
    def kernel(ref: Ref, value: Any) -> Ref:
        if ref.read().shape != value.shape:
            raise InvalidArgumentError("Parameters and update must be the same size")
        ref.update(function, value)
        return ref

    return kernel


def count_up_to_kernel(ref: Ref, *, limit: int) -> Any:
    with ref.lock:
        value = ref.read()
        if np.ndim(value):
            raise InvalidArgumentError("input is not a scalar")
        if value >= limit:
            raise OutOfRangeError(f"Reached limit of {limit}")
        ref.value = value + value.dtype.type(1)
    return value


def count_up_to_shape(c: Any) -> Dims:
    return merge_dims(c.dims(0), ())


def _assign_program(tf: Any) -> Any:
    v = tf.Variable([1.0, 2.0], use_resource=False)
    with tf.control_dependencies([v.initializer]):
        first = tf.assign_add(v, [10.0, 20.0])
        with tf.control_dependencies([first]):
            return tf.identity(tf.assign_sub(first, [0.5, 0.25]))


def _count_program(tf: Any) -> Any:
    v = tf.Variable(3, use_resource=False)
    with tf.control_dependencies([v.initializer]):
        return tf.count_up_to(v, 10)


op("Assign(ref: ref T, value: T) -> (output_ref: ref T) [T: type; validate_shape: bool = true; use_locking: bool = true] uninitialized_ok",
   shape=assign_shape, numpy=assign_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("AssignAdd(ref: ref T, value: T) -> (output_ref: ref T) [T: type in NUMBERS; use_locking: bool = false]",
   shape=merged_shape, numpy=_adding(np.add), grad=NOT_DIFFERENTIABLE, samples=[program(_assign_program)])  # fmt: skip
op("AssignSub(ref: ref T, value: T) -> (output_ref: ref T) [T: type in NUMBERS; use_locking: bool = false]",
   shape=merged_shape, numpy=_adding(np.subtract), grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("CountUpTo(ref: ref T) -> (output: T) [limit: int; T: type in {int32, int64}]",
   shape=count_up_to_shape, numpy=count_up_to_kernel, grad=NOT_DIFFERENTIABLE, samples=[program(_count_program)])  # fmt: skip


# -- scattered writes -------------------------------------------------------------------------------------------------


def scatter_shape_of(params: Dims, indices: Dims, updates: Dims) -> None:
    """Checks that updates are a scalar or have shape indices.shape + params.shape[1:]."""
    if params is not None and not params:
        raise ValueError("Shape must be at least rank 1 but is rank 0")
    if params is None or indices is None or updates == ():
        return
    merge_dims(updates, (*indices, *params[1:]))


def scatter_shape(c: Any) -> Dims:
    scatter_shape_of(c.dims(0), c.dims(1), c.dims(2))
    return c.dims(0)


def scatter_nd_shape_of(params: Dims, indices: Dims, updates: Dims) -> None:
    """The static check of scatter_nd, in TF's words."""
    if params is None or indices is None or updates is None:
        return
    if (num_elements(params) == 0 and num_elements(indices) not in (0, None)) or (
        num_elements(indices) == 0 and num_elements(updates)
    ):
        return
    if not indices:
        raise ValueError("Shape must be at least rank 1 but is rank 0")
    outer, depth = len(indices) - 1, indices[-1]
    head = f"Dimensions [0,{outer}) of indices[shape={format_dims(indices)}] = {format_dims(indices[:outer])} must match dimensions [0,{outer}) of updates[shape={format_dims(updates)}]"
    try:
        merge_dims(indices[:outer], updates[:outer])
    except ValueError as error:
        raise ValueError(f"{head} = {format_dims(updates[:outer])}: {error}") from error
    if depth is not None:
        try:
            if depth > len(params):
                raise ValueError(f"index vectors of length {depth} are too long")
            merge_dims(params[depth:], updates[outer:])
        except ValueError as error:
            raise ValueError(
                f"Dimensions [{depth},{len(params)}) of input[shape={format_dims(params)}] = {format_dims(params[depth:])} must match dimensions "
                f"[{outer},{len(updates)}) of updates[shape={format_dims(updates)}] = {format_dims(updates[outer:])}: {error}"
            ) from error


def scatter_nd_shape(c: Any) -> Dims:
    scatter_nd_shape_of(c.dims(0), c.dims(1), c.dims(2))
    return c.dims(0)


_FOLDED = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _scatter(how: str) -> Any:
    ufunc = _FOLDED.get(how)

    def kernel(ref: Ref, indices: Any, updates: Any) -> Ref:
        if ufunc is not None and not indices.ndim:
            with Owned(ref) as (array,):
                if _is_one_row(ufunc, array, int(indices), updates):
                    return ref
        elif ufunc is not None and indices.__class__ is updates.__class__ is np.ndarray:
            refs = (ref,)
            arrays = acquire(refs)
            try:
                if _is_folded(ufunc, arrays[0], indices, updates):
                    return ref
            finally:
                release(refs, arrays)
        rows, values = row_updates(ref.read(), indices, updates)
        with Owned(ref) as (array,):
            scatter_rows(array, rows, values, how)
        return ref

    return kernel


def _is_one_row(ufunc: np.ufunc, array: np.ndarray, index: int, updates: Any) -> bool:
    """A single row that there is, and numbers of its type for it. Otherwise nothing is changed."""
    if not array.ndim or not 0 <= index < len(array) or updates.dtype != array.dtype or array.dtype.kind not in "iufc" or not array.dtype.isbuiltin:
        return False
    if updates.ndim and updates.shape != array.shape[1:]:
        return False
    row = array[index, ...]
    ufunc(row, updates, out=row)
    return True


def _is_folded(ufunc: np.ufunc, array: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> bool:
    """The usual case in few steps: a row for every index, all of them in range, for a loop in machine code. Otherwise nothing is changed."""
    if not array.ndim or not updates.size or updates.shape != indices.shape + array.shape[1:] or updates.dtype != array.dtype or not updates.flags.c_contiguous:
        return False
    if not can_fold(ufunc, array.dtype) or not are_in_range(indices, len(array)):
        return False
    fold(ufunc, array, indices.reshape(-1), updates)
    return True


def _scatter_nd(how: str) -> Any:
    def kernel(ref: Ref, indices: Any, updates: Any, *, bad_indices_policy: bytes) -> Ref:
        with Owned(ref) as (array,):
            scatter_nd(array, indices, updates, how, bad_indices_policy)
        return ref

    return kernel


def _scatter_program(how: str) -> Any:
    def build(tf: Any) -> Any:
        v = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], use_resource=False)
        with tf.control_dependencies([v.initializer]):
            return tf.identity(getattr(tf, "scatter_" + how)(v, [2, 0, 2], [[2.0, 4.0], [8.0, 0.5], [0.25, 2.0]]))

    return program(build)


for _how in ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max"):
    _types = {"Update": "type", "Min": "type in FLOATS|INDEX", "Max": "type in FLOATS|INDEX"}.get(
        _how, "type in NUMBERS"
    )
    _locking = "true" if _how == "Update" else "false"
    op(f"Scatter{_how}(ref: ref T, indices: Tindices, updates: T) -> (output_ref: ref T)"
       f" [T: {_types}; Tindices: type in {{int32, int64}}; use_locking: bool = {_locking}]",
       shape=scatter_shape, numpy=_scatter(_how.lower()), grad=NOT_DIFFERENTIABLE, samples=[_scatter_program(_how.lower())])  # fmt: skip
for _how in ("Update", "Add", "Sub", "Min", "Max"):
    _types, _locking = ("type", "true") if _how == "Update" else ("type in NUMBERS", "false")
    op(f"ScatterNd{_how}(ref: ref T, indices: Tindices, updates: T) -> (output_ref: ref T)"
       f" [T: {_types}; Tindices: type in {{int32, int64}}; use_locking: bool = {_locking}; bad_indices_policy: string = '']",
       shape=scatter_nd_shape, numpy=_scatter_nd(_how.lower()), grad=NOT_DIFFERENTIABLE)  # fmt: skip


def strided_slice_assign_kernel(ref: Ref, begin: Any, end: Any, strides: Any, value: Any, *, begin_mask: int, end_mask: int,
                                ellipsis_mask: int, new_axis_mask: int, shrink_axis_mask: int) -> Ref:  # fmt: skip
    with Owned(ref) as (array,):
        assign_slice(
            array, begin, end, strides, value, begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask
        )
    return ref


op("StridedSliceAssign(ref: ref T, begin: Index, end: Index, strides: Index, value: T) -> (output_ref: ref T)"
   " [T: type; Index: type in {int32, int64}; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = 0; new_axis_mask: int = 0;"
   " shrink_axis_mask: int = 0]",
   shape=assign_slice_shape, numpy=strided_slice_assign_kernel)  # fmt: skip
