"""Constants, placeholders, and the ops that pass their input on."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import errors
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.formats.attr_value import TensorAttr
from penstock.graph.ir import Dims, Operation
from penstock.ops.declare import NOT_DIFFERENTIABLE, checked_scalar, from_attr, op, same_as, with_rank
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.samples import arr, empty, normal, strings
from penstock.shapes import TensorShape, compatible_dims, dims_of, format_dims, merge_dims

# -- constants --------------------------------------------------------------------------------------------------------


def const_kernel(*, value: TensorAttr) -> np.ndarray:
    return value.array


def const_shape(c: Any) -> Dims:
    return c.attrs["value"].array.shape


op("Const() -> (output: dtype) [value: tensor; dtype: type]", shape=const_shape, numpy=const_kernel, grad=NOT_DIFFERENTIABLE)
op("HostConst() -> (output: dtype) [value: tensor; dtype: type]", shape=const_shape, numpy=const_kernel)


def fill_shape(c: Any) -> Dims:
    with_rank(c, 0, 1)
    checked_scalar(c, 1)
    dims = c.const(0)
    if dims is not None and (dims < 0).any():
        raise ValueError("Fill dimensions must be >= 0")
    return c.const_dims(0)


def fill_kernel(dims: np.ndarray, value: Any) -> np.ndarray:
    sizes = dims.reshape(-1).tolist()
    for size in sizes:
        if size < 0:
            raise InvalidArgumentError(f"Dimension {size} must be >= 0")
    if value.size != 1:
        raise InvalidArgumentError(f"value must be a scalar, got shape {format_dims(value.shape)}")
    result = np.empty(sizes, value.dtype)
    result[...] = value.reshape(())  # an array: from a string NumPy would take the NULs off its end
    return result


op("Fill(dims: index_type, value: T) -> (output: T) [T: type; index_type: type in {int32, int64} = int32]",
   shape=fill_shape, numpy=fill_kernel, host_memory=["dims"],
   grad=lambda g, op, dy: [None, g.Sum(dy, g.Range(0, g.Rank(dy), 1))],
   samples=[
       dict(dims=arr([2, 3]), value=normal()),
       dict(dims=arr([]), value=normal()),
       dict(dims=arr([2, 0]), value=normal()),
       dict(dims=arr([2]), value=strings(b"ab")),
       dict(dims=arr([2]), value=strings(b"a\0")),
   ],
   errors=[(dict(dims=[-1, 2], value=1.0), InvalidArgumentError, "must be >= 0")])  # fmt: skip


def empty_kernel(shape: np.ndarray, *, dtype: DType) -> np.ndarray:
    return blank(np.ravel(shape).tolist(), dtype)


def blank(dims: Any, dtype: DType) -> np.ndarray:
    """An array of zeros; for strings, of empty strings."""
    return np.full(dims, b"", dtype=object) if dtype.name == "string" else np.zeros(dims, dtype.np)


op("Empty(shape: int32) -> (output: dtype) [dtype: type; init: bool = false] stateful",
   shape=lambda c: c.const_dims(0), numpy=empty_kernel,
   samples=[dict(shape=arr([2, 3]), dtype="float32", init=True), dict(shape=arr([2]), dtype="string", init=True)])  # fmt: skip


# -- placeholders -----------------------------------------------------------------------------------------------------


def placeholder_kernel(*, dtype: DType, shape: TensorShape, node: Operation) -> Any:
    dims = dims_of(shape)
    known = f" and shape {format_dims(dims)}" if dims else ""
    raise InvalidArgumentError(f"You must feed a value for placeholder tensor '{node.name}' with dtype {dtype_text(dtype)}{known}")


def placeholder_shape(c: Any) -> Dims:
    # GraphDefs older than version 24 said [] where they knew nothing.
    dims = dims_of(c.attrs["shape"])
    return None if dims == () and c.op.graph._producer < 24 else dims


op("Placeholder() -> (output: dtype) [dtype: type; shape: shape = shape(unknown)]",
   shape=placeholder_shape, numpy=placeholder_kernel,
   errors=[(dict(dtype="float32"), InvalidArgumentError, "You must feed a value for placeholder tensor")])  # fmt: skip
op("PlaceholderV2() -> (output: dtype) [dtype: type; shape: shape] deprecated@23",
   shape=from_attr("shape"), numpy=placeholder_kernel)  # fmt: skip


def default_shape(c: Any) -> Dims:
    merge_dims(c.dims(0), dims_of(c.attrs["shape"]))
    # A fed value may differ from the default, so that only the attribute counts.
    return dims_of(c.attrs["shape"])


# -- passing on -------------------------------------------------------------------------------------------------------


def identity(x: Any) -> Any:
    return x


def identity_grad(g: Any, op: Any, dy: Any) -> Any:
    return dy


op("PlaceholderWithDefault(input: dtype) -> (output: dtype) [dtype: type; shape: shape]",
   shape=default_shape, numpy=identity, grad=identity_grad,
   samples=[dict(input=normal(2, 3), shape=[None, 3]), dict(input=strings(["a", "b"]), shape=[2])])  # fmt: skip
op("Identity(input: T) -> (output: T) [T: type]",
   shape=same_as("input"), numpy=identity, grad=identity_grad,
   samples=[dict(input=normal(2, 3)), dict(input=normal()), dict(input=empty(0, 2)), dict(input=strings(["a", ""]))])  # fmt: skip
op("_EagerConst(input: T) -> (output: T) [T: type]", shape=same_as("input"), numpy=identity)
op("Snapshot(input: T) -> (output: T) [T: type]",
   shape=same_as("input"), numpy=identity, samples=[dict(input=normal(2, 3))])  # fmt: skip
op("DeepCopy(x: T) -> (y: T) [T: type] stateful",
   shape=same_as("x"), numpy=lambda x: x.copy(), samples=[dict(x=normal(2, 3)), dict(x=normal())])  # fmt: skip
op("GuaranteeConst(input: T) -> (output: T) [T: type] stateful",
   shape=same_as("input"), numpy=identity, samples=[dict(input=normal(2, 3))])  # fmt: skip
op("RefIdentity(input: ref T) -> (output: ref T) [T: type] uninitialized_ok",
   shape=same_as("input"), numpy=identity, grad=identity_grad)  # fmt: skip
op("StopGradient(input: T) -> (output: T) [T: type]",
   shape=same_as("input"), numpy=identity, grad=NOT_DIFFERENTIABLE,
   samples=[dict(input=normal(2, 3)), dict(input=empty(0))])  # fmt: skip


def prevented_grad(g: Any, op: Any, dy: Any) -> Any:
    raise LookupError(f"Gradient explicitly disabled. Reason: {op.attr('message')!r}")


op("PreventGradient(input: T) -> (output: T) [T: type; message: string = '']",
   shape=same_as("input"), numpy=identity, grad=prevented_grad, samples=[dict(input=normal(2, 3))])  # fmt: skip


def identity_n_shape(c: Any) -> list[Dims]:
    for i in range(c.n):
        if c.input(i).handle_data is not None:
            c.copy_handle(i, i)
    return [c.dims(i) for i in range(c.n)]


op("IdentityN(input: list T) -> (output: list T) [T: list(type) >= 1]",
   shape=identity_n_shape, numpy=identity, grad=lambda g, op, *dys: list(dys),
   samples=[dict(input=[normal(2, 3, dtype=np.float32), arr([1, 2], np.int64), strings(["a"])])])  # fmt: skip


# -- debugging --------------------------------------------------------------------------------------------------------


def copy_kernel(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else x


def debug_identity_kernel(x: Any, *, debug_urls: list[bytes]) -> Any:
    if debug_urls:
        raise errors.UnimplementedError(f"debug_urls are not supported, got {debug_urls!r}; fetch the tensor instead")
    return x


op("Copy(input: T) -> (output: T) [T: type; tensor_name: string = ''; debug_ops_spec: list(string) = []] uninitialized_ok",
   shape=same_as("input"), numpy=copy_kernel, samples=[dict(input=normal(2, 3))])  # fmt: skip
op("CopyHost(input: T) -> (output: T) [T: type; tensor_name: string = ''; debug_ops_spec: list(string) = []] uninitialized_ok",
   shape=same_as("input"), numpy=copy_kernel, samples=[dict(input=normal(2, 3))])  # fmt: skip
op("DebugIdentity(input: T) -> (output: T) [T: type; device_name: string = ''; tensor_name: string = '';"
   " debug_urls: list(string) = []; gated_grpc: bool = false] uninitialized_ok",
   shape=same_as("input"), numpy=debug_identity_kernel)  # fmt: skip
op("DebugGradientIdentity(input: T) -> (output: T) [T: type] uninitialized_ok",
   shape=same_as("input"), numpy=identity, grad=identity_grad, samples=[dict(input=normal(2, 3))])  # fmt: skip
op("DebugGradientRefIdentity(input: ref T) -> (output: ref T) [T: type] uninitialized_ok",
   shape=same_as("input"), numpy=identity, grad=identity_grad)  # fmt: skip

_GRADIENT_MESSAGE = b"Not a number (NaN) or infinity (Inf) values detected in gradient."


def check_numerics_kernel(x: Any, *, message: bytes) -> Any:
    if not np.isfinite(x).all():
        found = [name for name, test in (("Inf", np.isinf), ("NaN", np.isnan)) if test(x).any()]
        raise InvalidArgumentError(f"{message.decode(errors='replace')} : Tensor had {' and '.join(found)} values")
    return x


def check_numerics_v2_kernel(x: Any, *, message: bytes) -> Any:
    if not np.isfinite(x).all():
        found = [
            name
            for name, seen in (("-Inf", np.isneginf(x)), ("+Inf", np.isposinf(x)), ("NaN", np.isnan(x)))
            if np.any(seen)
        ]
        names = ", ".join(found[:-1]) + ", and " + found[-1] if len(found) == 3 else " and ".join(found)
        raise InvalidArgumentError(f"{message.decode(errors='replace')} : Tensor had {names} values")
    return x


op("CheckNumerics(tensor: T) -> (output: T) [T: type in FLOATS; message: string] stateful",
   shape=same_as("tensor"), numpy=check_numerics_kernel,
   grad=lambda g, op, dy: g.CheckNumerics(dy, message=_GRADIENT_MESSAGE),
   samples=[dict(tensor=normal(2, 3), message="m"), dict(tensor=normal(), message=""), dict(tensor=empty(0), message="")],
   errors=[
       (dict(tensor=[1.0, np.nan], message="oh"), InvalidArgumentError, "oh : Tensor had NaN values"),
       (dict(tensor=[np.inf, np.nan], message="oh"), InvalidArgumentError, "oh : Tensor had Inf and NaN values"),
   ])  # fmt: skip
op("CheckNumericsV2(tensor: T) -> (output: T) [T: type in FLOATS; message: string] stateful",
   shape=same_as("tensor"), numpy=check_numerics_v2_kernel,
   grad=lambda g, op, dy: g.CheckNumericsV2(dy, message=_GRADIENT_MESSAGE),
   samples=[dict(tensor=normal(2, 3), message="m"), dict(tensor=empty(0), message="")],
   errors=[
       (dict(tensor=[-np.inf, np.inf, np.nan], message="oh"), InvalidArgumentError, "oh : Tensor had -Inf, \\+Inf, and NaN values"),
   ])  # fmt: skip


# -- like another tensor ----------------------------------------------------------------------------------------------


def zeros_like_kernel(x: Any) -> Any:
    if isinstance(x, np.ndarray) and x.dtype.hasobject:
        return np.full(x.shape, b"", dtype=object)
    zeros = getattr(x, "zeros_like", None)  # variants may know their own zero
    return np.zeros_like(x) if zeros is None else zeros()


op("ZerosLike(x: T) -> (y: T) [T: type]",
   shape=same_as("x"), numpy=zeros_like_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(x=normal(2, 3)), dict(x=normal()), dict(x=empty(0, 2)), dict(x=strings(["a"]))])  # fmt: skip
op("OnesLike(x: T) -> (y: T) [T: type in {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64,"
   " complex64, complex128, bool}]",
   shape=same_as("x"), numpy=lambda x: np.ones_like(x), grad=NOT_DIFFERENTIABLE,
   samples=[dict(x=normal(2, 3)), dict(x=normal()), dict(x=empty(0, 2))])  # fmt: skip


def ensure_shape_kernel(x: Any, *, shape: TensorShape, node: Operation) -> Any:
    if not compatible_dims(np.shape(x), dims_of(shape)):
        source = node.inputs[0].op.name if node.inputs else node.name
        raise InvalidArgumentError(
            f"Shape of tensor {source} {format_dims(np.shape(x))} is not compatible with expected shape {format_dims(dims_of(shape))}."
        )
    return x


op("EnsureShape(input: T) -> (output: T) [shape: shape; T: type]",
   shape=lambda c: merge_dims(dims_of(c.attrs["shape"]), c.dims(0)), numpy=ensure_shape_kernel, grad=identity_grad,
   samples=[dict(input=normal(2, 3), shape=[None, 3]), dict(input=normal(), shape=[])],
   errors=[(dict(input=[1.0], shape=[2]), InvalidArgumentError, "is not compatible with expected shape|must be equal")])  # fmt: skip
