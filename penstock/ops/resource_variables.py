"""Resource variables: handles that name a variable, and the ops that read and write through them."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, OutOfRangeError
from penstock.graph.ir import Dims, Operation
from penstock.ops.declare import NOT_DIFFERENTIABLE, no_outputs, op, scalar, with_rank_at_least
from penstock.ops.kernels.rows import check_indices, nd_rows, row_updates, scatter_nd, scatter_rows
from penstock.ops.kernels.slices import assign_slice
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.resources import DEFAULT_CONTAINER, Owned, Ref, ResourceHandle, carried
from penstock.ops.samples import program
from penstock.ops.state import resource_key, scatter_nd_shape_of, scatter_shape_of
from penstock.shapes import TensorShape, compatible_dims, dims_of, format_dims, merge_dims

VAR_TYPE = Ref.type_name

# -- handles ----------------------------------------------------------------------------------------------------------


def make_handle(ctx: Any, container: str, name: str, dtype: DType, shape: TensorShape) -> ResourceHandle:
    return ResourceHandle(ctx.device.name, container, name, VAR_TYPE, ((dtype, dims_of(shape)),))


def var_handle_kernel(
    ctx: Any, *, dtype: DType, shape: TensorShape, container: bytes, shared_name: bytes, node: Operation, state: Any
) -> ResourceHandle:
    handle = getattr(state, "handle", None)
    if handle is None:
        where, name = resource_key(container, shared_name, node)
        if name == "cd2c89b7-88b7-44c8-ad83-06c2a9158347":  # TF's name for "nobody else knows me"
            handle = make_handle(ctx, where, f"{node.name}/{id(state)}", dtype, shape)
            handle.resource = Ref(dtype, dims_of(shape), node.name)
        else:
            handle = make_handle(ctx, where, name, dtype, shape)
        state.handle = handle
    return handle


def var_handle_shape(c: Any) -> Dims:
    c.set_handle(0, c.attrs["dtype"], dims_of(c.attrs["shape"]))
    return ()


def var_handles_kernel(
    ctx: Any, *, containers: list[bytes], shared_names: list[bytes], dtypes: list[DType], shapes: list[TensorShape]
) -> list[ResourceHandle]:
    return [
        make_handle(ctx, where.decode() or DEFAULT_CONTAINER, name.decode(), dtype, shape)
        for where, name, dtype, shape in zip(containers, shared_names, dtypes, shapes, strict=True)
    ]


def var_handles_shape(c: Any) -> list[Dims]:
    for i, (dtype, shape) in enumerate(zip(c.attrs["dtypes"], c.attrs["shapes"], strict=True)):
        c.set_handle(i, dtype, dims_of(shape))
    return [() for _ in range(c.attrs["N"])]


op("VarHandleOp() -> (resource: resource) [container: string = ''; shared_name: string = ''; debug_name: string = ''; dtype: type; shape: shape;"
   " allowed_devices: list(string) = []] stateful",
   shape=var_handle_shape, numpy=var_handle_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("_VarHandlesOp() -> (resources: N*resource) [containers: list(string); shared_names: list(string); N: int >= 0; dtypes: list(type);"
   " shapes: list(shape)] stateful",
   shape=var_handles_shape, numpy=var_handles_kernel)  # fmt: skip


def find_variable(ctx: Any, handle: ResourceHandle) -> Ref:
    """The variable that `handle` names; NotFoundError, in TF's words, if there is none."""
    found = carried(handle, Ref)
    if found is not None:
        return found
    if handle.device != ctx.device.name:
        raise InvalidArgumentError(
            f"Trying to access resource {handle.name} located in device {handle.device} from device {ctx.device.name}"
        )
    try:
        return ctx.resources.lookup(handle.container, handle.name, Ref)
    except NotFoundError as error:
        text = error.message
        if "Could not find resource" not in text:
            text = f"Resource {handle.container}/{handle.name}/{VAR_TYPE} does not exist. (Could not find resource: {handle.container}/{handle.name})"
        raise NotFoundError(text) from None


def find_or_create(ctx: Any, handle: ResourceHandle, dtype: DType) -> Ref:
    found = carried(handle, Ref)
    if found is not None:
        return found
    if handle.device != ctx.device.name:
        raise InvalidArgumentError(
            f"Trying to access resource {handle.name} located in device {handle.device} from device {ctx.device.name}"
        )
    dims = handle.dtypes_and_shapes[0][1] if handle.dtypes_and_shapes else None
    return ctx.resources.lookup_or_create(handle.container, handle.name, Ref, lambda: Ref(dtype, dims, handle.name))


def read_value(ctx: Any, handle: ResourceHandle) -> Any:
    """The variable's value; FailedPreconditionError, in TF's words, if it has none."""
    reason = "it was created but never assigned"
    try:
        ref = find_variable(ctx, handle)
        value = ref.value
        if value is None:
            value = ref.peek()
        if value is not None:
            return value
    except NotFoundError as error:
        reason = error.message
    raise FailedPreconditionError(
        f"Could not find variable {handle.name}. This could mean that the variable has been deleted. In TF1, it can also mean the variable is "
        f"uninitialized. Debug info: container={handle.container}, status error message={reason}"
    )


# -- reading ----------------------------------------------------------------------------------------------------------


def read_kernel(ctx: Any, handle: ResourceHandle, *, dtype: DType) -> Any:
    value = read_value(ctx, handle)
    if value.dtype != dtype.np:
        held = find_variable(ctx, handle).dtype
        raise InvalidArgumentError(
            f"Trying to read variable with wrong dtype. Expected {dtype_text(dtype)} got {dtype_text(held)}"
        )
    return value


def read_shape(c: Any) -> Dims:
    known = c.handle(0)
    if known is None:
        return None
    check_handle_dtype(c, known[0], "read", c.attrs["dtype"])
    return known[1]


def check_handle_dtype(c: Any, held: DType, verb: str, asked: DType) -> None:
    if held is not asked:
        raise ValueError(
            f"Trying to {verb} variable with wrong dtype. Expected {dtype_text(held)} got {dtype_text(asked)}"
        )


def read_grad(g: Any, op: Any, dy: Any) -> Any:
    return dy


op(
    "ReadVariableOp(resource: resource) -> (value: dtype) [dtype: type] stateful",
    shape=read_shape,
    numpy=read_kernel,
    grad=read_grad,
)


def read_all_shape(c: Any) -> list[Dims]:
    if len(c.attrs["dtypes"]) != c.n:
        raise ValueError(
            f"Mismatched number of arguments to ReadVariablesOp: {c.n} resources and {len(c.attrs['dtypes'])} types"
        )
    return [None if c.handle(i) is None else c.handle(i)[1] for i in range(c.n)]


op("_ReadVariablesOp(resources: N*resource) -> (values: list dtypes) [N: int >= 0; dtypes: list(type) >= 1] stateful",
   shape=read_all_shape, numpy=lambda ctx, handles: [read_value(ctx, h) for h in handles])  # fmt: skip


def variable_shape_kernel(ctx: Any, handle: ResourceHandle, *, out_type: DType) -> np.ndarray:
    return np.array(np.shape(read_value(ctx, handle)), dtype=out_type.np)


def variable_shape_shape(c: Any) -> Dims:
    known = c.handle(0)
    return (None,) if known is None or known[1] is None else (len(known[1]),)


op("VariableShape(input: resource) -> (output: out_type) [out_type: type in {int32, int64} = int32] stateful",
   shape=variable_shape_shape, numpy=variable_shape_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip


def is_initialized_kernel(ctx: Any, handle: ResourceHandle) -> np.bool_:
    try:
        return np.bool_(find_variable(ctx, handle).peek() is not None)
    except NotFoundError:
        return np.bool_(False)


op("VarIsInitializedOp(resource: resource) -> (is_initialized: bool) stateful",
   shape=scalar, numpy=is_initialized_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip


def destroy_kernel(ctx: Any, handle: ResourceHandle, *, ignore_lookup_error: bool) -> None:
    if carried(handle, object) is not None:
        handle.resource = None
        return
    try:
        ctx.resources.delete(handle.container, handle.name, None)
    except NotFoundError:
        if not ignore_lookup_error:
            raise


op("DestroyResourceOp(resource: resource) -> () [ignore_lookup_error: bool = true] stateful",
   shape=no_outputs, numpy=destroy_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip

# -- assignment -------------------------------------------------------------------------------------------------------


def assign_variable_kernel(ctx: Any, handle: ResourceHandle, value: Any, *, dtype: DType, validate_shape: bool) -> None:
    ref = find_or_create(ctx, handle, dtype)
    if ref.dtype is not dtype:
        raise InvalidArgumentError(
            f"Trying to assign variable with wrong dtype. Expected {dtype_text(ref.dtype)} got {dtype_text(dtype)}"
        )
    if validate_shape:
        held = ref.peek()
        want = ref.dims if held is None else held.shape
        if not compatible_dims(want, value.shape):
            raise InvalidArgumentError(
                f"Trying to assign to variable with tensor with wrong shape. Expected {format_dims(want)} got {format_dims(value.shape)}"
            )
    ref.assign(value)


def assign_variable_shape(c: Any) -> list[Dims]:
    known = c.handle(0)
    if known is not None:
        check_handle_dtype(c, known[0], "assign", c.attrs["dtype"])
        merge_dims(known[1], c.dims(1))
    return []


def _adding(function: Any) -> Any:
    def kernel(ctx: Any, handle: ResourceHandle, value: Any) -> None:
        ref = find_variable(ctx, handle)
        held = ref.value
        if held is None:
            held = read_value(ctx, handle)  # waits for a writer, or says what is wrong
        if held.shape != value.shape:
            raise InvalidArgumentError(
                f"Cannot update variable with shape {format_dims(held.shape)} using a Tensor with shape {format_dims(value.shape)}, shapes must be equal."
            )
        del held  # or the variable would seem to be in use
        ref.update(function, value)

    return kernel


def _resource_assign_program(tf: Any) -> Any:
    v = tf.Variable([1.0, 2.0], use_resource=True)
    with tf.control_dependencies([v.initializer]), tf.control_dependencies([v.assign_add([10.0, 20.0])]):
        return v.read_value()


op("AssignVariableOp(resource: resource, value: dtype) -> () [dtype: type; validate_shape: bool = false] stateful",
   shape=assign_variable_shape, numpy=assign_variable_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("AssignAddVariableOp(resource: resource, value: dtype) -> () [dtype: type] stateful",
   shape=assign_variable_shape, numpy=_adding(np.add), grad=NOT_DIFFERENTIABLE, samples=[program(_resource_assign_program)])  # fmt: skip
op("AssignSubVariableOp(resource: resource, value: dtype) -> () [dtype: type] stateful",
   shape=assign_variable_shape, numpy=_adding(np.subtract), grad=NOT_DIFFERENTIABLE)  # fmt: skip


def count_up_to_kernel(ctx: Any, handle: ResourceHandle, *, limit: int) -> Any:
    ref = find_variable(ctx, handle)
    with ref.lock:
        value = ref.read()
        if np.ndim(value):
            raise InvalidArgumentError("input is not a scalar")
        if value >= limit:
            raise OutOfRangeError(f"Reached limit of {limit}")
        ref.value = value + value.dtype.type(1)
    return value


def resource_count_shape(c: Any) -> Dims:
    known = c.handle(0)
    if known is not None:
        merge_dims(known[1], ())
    return ()


op("ResourceCountUpTo(resource: resource) -> (output: T) [limit: int; T: type in {int32, int64}] stateful",
   shape=resource_count_shape, numpy=count_up_to_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip

# -- gathering --------------------------------------------------------------------------------------------------------


def gather_kernel(ctx: Any, handle: ResourceHandle, indices: Any, *, batch_dims: int) -> Any:
    params = np.asarray(find_variable(ctx, handle).read())
    indices = np.asarray(indices)
    if params.ndim <= batch_dims:
        raise InvalidArgumentError(f"params must be at least {batch_dims + 1} dimensional")
    check_indices(indices, params.shape[batch_dims])
    if batch_dims == 0:
        return params.take(indices, axis=0)
    lead = np.ix_(*(np.arange(n) for n in params.shape[:batch_dims]))
    extra = (1,) * (indices.ndim - batch_dims)
    return params[(*(g.reshape(g.shape + extra) for g in lead), indices)]


def gather_shape(c: Any) -> Dims:
    known = c.handle(0)
    indices = c.dims(1)
    if known is None or known[1] is None or indices is None:
        return None
    params, batch = known[1], c.attrs["batch_dims"]
    if len(params) < 1 + batch:
        raise ValueError(f"Shape must be at least rank {1 + batch} but is rank {len(params)}")
    return params[:batch] + indices[batch:] + params[batch + 1 :]


def gather_grad(g: Any, op: Any, dy: Any) -> Any:
    """The gradient of a gather is a set of rows of the variable."""
    from penstock.graph.composite import IndexedSlices

    if op.attr("batch_dims"):
        raise LookupError(
            "No gradient defined for ResourceGather with batch_dims > 0; use tf.gather on the variable's value."
        )
    shape = g.VariableShape(op.resource, out_type=op.attr("Tindices"))
    size = g.ExpandDims(g.Size(op.indices, out_type=op.attr("Tindices")), 0)
    rows = g.ConcatV2([size, g.StridedSlice(shape, [1], [0], [1], end_mask=1)], 0)
    return [IndexedSlices(g.Reshape(dy, rows), g.Reshape(op.indices, size), shape), None]


def gather_nd_kernel(ctx: Any, handle: ResourceHandle, indices: Any, *, node: Operation) -> Any:
    params = np.asarray(find_variable(ctx, handle).read())
    indices = np.asarray(indices)
    if indices.ndim < 1 or indices.shape[-1] > params.ndim:
        raise InvalidArgumentError(
            f"index innermost dimension length must be <= params rank; saw: {indices.shape[-1] if indices.ndim else 0} vs. {params.ndim}"
        )
    depth = indices.shape[-1]
    try:
        rows, _ = nd_rows(params.shape, indices, what="param shape")
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{error.message}, node name: {node.name}") from None
    flat = params.reshape((int(np.prod(params.shape[:depth])), *params.shape[depth:]))
    return flat.take(rows, axis=0).reshape(indices.shape[:-1] + params.shape[depth:])


def gather_nd_shape(c: Any) -> Dims:
    known = c.handle(0)
    indices = with_rank_at_least(c, 1, 1)
    if known is None or known[1] is None or indices is None or indices[-1] is None:
        return None
    if indices[-1] > len(known[1]):
        raise ValueError(
            f"indices.shape[-1] must be <= params.rank, but saw indices shape: {format_dims(indices)} and params shape: {format_dims(known[1])}"
        )
    return indices[:-1] + known[1][indices[-1] :]


def gather_nd_grad(g: Any, op: Any, dy: Any) -> Any:
    from penstock.graph.composite import IndexedSlices

    shape = g.VariableShape(op.resource, out_type=op.attr("Tindices"))
    known = op.indices.dims
    if known is not None and len(known) == 2 and known[-1] == 1:
        return [IndexedSlices(dy, g.Squeeze(op.indices, squeeze_dims=[-1]), shape), None]
    return [g.ScatterNd(op.indices, dy, shape), None]


op("ResourceGather(resource: resource, indices: Tindices) -> (output: dtype) [batch_dims: int = 0; validate_indices: bool = true; dtype: type;"
   " Tindices: type in {int32, int64}] stateful",
   shape=gather_shape, numpy=gather_kernel, grad=gather_grad)  # fmt: skip
op("ResourceGatherNd(resource: resource, indices: Tindices) -> (output: dtype) [dtype: type; Tindices: type in {int32, int64}] stateful",
   shape=gather_nd_shape, numpy=gather_nd_kernel, grad=gather_nd_grad)  # fmt: skip

# -- scattered writes -------------------------------------------------------------------------------------------------


def resource_scatter_shape(c: Any) -> list[Dims]:
    known = c.handle(0)
    if known is not None:
        check_handle_dtype(c, known[0], "scatter into", c.attrs.get("dtype") or c.attrs["T"])
        scatter_shape_of(known[1], c.dims(1), c.dims(2))
    return []


def resource_scatter_nd_shape(c: Any) -> list[Dims]:
    known = c.handle(0)
    if known is not None:
        scatter_nd_shape_of(known[1], c.dims(1), c.dims(2))
    return []


def _scatter(how: str) -> Any:
    def kernel(ctx: Any, handle: ResourceHandle, indices: Any, updates: Any) -> None:
        ref = find_variable(ctx, handle)
        rows, values = row_updates(ref.read(), indices, updates, from_resource=True)
        with Owned(ref) as (array,):
            scatter_rows(array, rows, values, how)

    return kernel


def _scatter_nd(how: str) -> Any:
    def kernel(ctx: Any, handle: ResourceHandle, indices: Any, updates: Any, *, bad_indices_policy: bytes) -> None:
        with Owned(find_variable(ctx, handle)) as (array,):
            scatter_nd(array, indices, updates, how, bad_indices_policy)

    return kernel


for _how in ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max"):
    _types = "type" if _how == "Update" else "type in NUMBERS"
    op(f"ResourceScatter{_how}(resource: resource, indices: Tindices, updates: dtype) -> () [dtype: {_types}; Tindices: type in {{int32, int64}}] stateful",
       shape=resource_scatter_shape, numpy=_scatter(_how.lower()), grad=NOT_DIFFERENTIABLE)  # fmt: skip
for _how in ("Update", "Add", "Sub", "Min", "Max"):
    op(f"ResourceScatterNd{_how}(ref: resource, indices: Tindices, updates: T) -> () [T: type; Tindices: type in {{int32, int64}};"
       " use_locking: bool = true; bad_indices_policy: string = ''] stateful",
       shape=resource_scatter_nd_shape, numpy=_scatter_nd(_how.lower()), grad=NOT_DIFFERENTIABLE)  # fmt: skip


def resource_slice_assign_kernel(ctx: Any, handle: ResourceHandle, begin: Any, end: Any, strides: Any, value: Any, *, begin_mask: int,
                                 end_mask: int, ellipsis_mask: int, new_axis_mask: int, shrink_axis_mask: int) -> None:  # fmt: skip
    with Owned(find_variable(ctx, handle)) as (array,):
        assign_slice(
            array, begin, end, strides, value, begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask
        )


op("ResourceStridedSliceAssign(ref: resource, begin: Index, end: Index, strides: Index, value: T) -> () [T: type; Index: type in {int32, int64};"
   " begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = 0; new_axis_mask: int = 0; shrink_axis_mask: int = 0] stateful",
   shape=no_outputs, numpy=resource_slice_assign_kernel)  # fmt: skip
