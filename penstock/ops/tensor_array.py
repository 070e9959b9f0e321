"""TensorArrays: arrays of tensors that live for one step, written and read by index; and their older forms.

Handles are resources (V3), pairs of strings (V2) or references to such pairs (the first form). All kinds lead to the same
object, which `find` gets from the step. `flow` is a float that carries nothing: it orders reads behind writes.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from penstock.dtypes import DType, string
from penstock.errors import InvalidArgumentError, NotFoundError
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Dims, Operation
from penstock.ops.declare import (
    NOT_DIFFERENTIABLE,
    checked_scalar,
    op,
    vector,
    with_rank,
    with_rank_at_least,
)
from penstock.ops.kernels import tensor_arrays as kernels
from penstock.ops.kernels.tensor_arrays import TensorArray
from penstock.ops.resources import Ref, ResourceHandle, carried, pair_of
from penstock.ops.samples import program
from penstock.shapes import TensorShape, concat_dims, dims_of, is_fully_defined, merge_dims

CONTAINER = "_tensor_arrays"
_numbers = itertools.count()
_NO_FLOW = np.float32(0)

# -- handles ----------------------------------------------------------------------------------------------------------


def find(ctx: Any, handle: Any) -> TensorArray:
    """The array that a handle of any kind means."""
    if isinstance(handle, ResourceHandle):
        found = carried(handle, TensorArray)
        if found is not None:
            return found
        key = (handle.container, handle.name)
    else:
        key = pair_of(handle)
    array = ctx.step_resources.get(key)
    if not isinstance(array, TensorArray):
        raise NotFoundError(f"Resource {key[0]}/{key[1]}/{TensorArray.type_name} does not exist.")
    return array


def _handle(ctx: Any, array: TensorArray) -> ResourceHandle:
    return ResourceHandle(ctx.device.name, CONTAINER, array.name, TensorArray.type_name, resource=array)


def _pair(array: TensorArray) -> np.ndarray:
    return np.array([CONTAINER.encode(), array.name.encode()], dtype=object)


def _ref(array: TensorArray) -> Ref:
    ref = Ref(string, (2,), array.name)
    ref.value = _pair(array)
    return ref


def new_array(size: Any, dtype: DType, element_shape: TensorShape, dynamic_size: bool, clear_after_read: bool, name: bytes,
              node: Operation, identical: bool = False) -> TensorArray:  # fmt: skip
    """A new array for a node, which no handle finds yet."""
    if np.ndim(size) != 0:
        raise InvalidArgumentError(f"TensorArray size must be scalar, but had shape: {kernels.shape_text(np.shape(size))}")
    if size < 0:
        raise InvalidArgumentError("Size should be >= 0.")
    full = f"{name.decode() or node.name}_{next(_numbers)}"
    return TensorArray(full, dtype, int(size), dims_of(element_shape), dynamic_size, clear_after_read, identical)


def _new(ctx: Any, *given: Any) -> TensorArray:
    array = new_array(*given)
    ctx.step_resources[CONTAINER, array.name] = array
    return array


def array_v3_kernel(ctx: Any, size: Any, *, dtype: DType, element_shape: TensorShape, dynamic_size: bool, clear_after_read: bool,
                    identical_element_shapes: bool, tensor_array_name: bytes, node: Operation) -> list[Any]:  # fmt: skip
    array = _new(ctx, size, dtype, element_shape, dynamic_size, clear_after_read, tensor_array_name, node, identical_element_shapes)
    return [_handle(ctx, array), _NO_FLOW]


def array_v2_kernel(ctx: Any, size: Any, *, dtype: DType, element_shape: TensorShape, dynamic_size: bool, clear_after_read: bool,
                    tensor_array_name: bytes, node: Operation) -> Any:  # fmt: skip
    return _pair(_new(ctx, size, dtype, element_shape, dynamic_size, clear_after_read, tensor_array_name, node))


def array_v1_kernel(ctx: Any, size: Any, *, dtype: DType, element_shape: TensorShape, dynamic_size: bool, clear_after_read: bool,
                    tensor_array_name: bytes, node: Operation) -> Any:  # fmt: skip
    return _ref(_new(ctx, size, dtype, element_shape, dynamic_size, clear_after_read, tensor_array_name, node))


def _gradient_array(ctx: Any, handle: Any, source: bytes, prepend: tuple[int, ...] = ()) -> TensorArray:
    """The gradient array for one call of gradients(), which its handle finds by name as well."""
    array = find(ctx, handle)
    with array.lock:
        found = array.gradient(source, prepend)
    ctx.step_resources[CONTAINER, found.name] = found
    return found


def grad_v3_kernel(ctx: Any, handle: Any, flow: Any, *, source: bytes) -> list[Any]:
    return [_handle(ctx, _gradient_array(ctx, handle, source)), flow]


def grad_with_shape_kernel(ctx: Any, handle: Any, flow: Any, shape_to_prepend: Any, *, source: bytes) -> list[Any]:
    prepend = tuple(int(n) for n in np.ravel(shape_to_prepend))
    return [_handle(ctx, _gradient_array(ctx, handle, source, prepend)), flow]


def grad_v2_kernel(ctx: Any, handle: Any, flow: Any, *, source: bytes) -> Any:
    return _pair(_gradient_array(ctx, handle, source))


def grad_v1_kernel(ctx: Any, handle: Any, flow: Any, *, source: bytes) -> Any:
    return _ref(_gradient_array(ctx, handle, source))


# -- kernels ----------------------------------------------------------------------------------------------------------


def _index(value: Any) -> int:
    if np.ndim(value) != 0:
        raise InvalidArgumentError(f"TensorArray index must be scalar, but had shape: {kernels.shape_text(np.shape(value))}")
    return int(value)


def write_kernel(ctx: Any, handle: Any, index: Any, value: Any, flow: Any, *, T: DType) -> Any:
    index = _index(index)
    array = find(ctx, handle)
    kernels.check_write_type(array, T)
    with array.lock:
        array.write(index, value)
    return flow


def read_kernel(ctx: Any, handle: Any, index: Any, flow: Any, *, dtype: DType) -> Any:
    index = _index(index)
    array = find(ctx, handle)
    kernels.check_read_type(array, dtype)
    with array.lock:
        return array.read(index)


_indices = kernels.as_list("indices")


def gather_kernel(ctx: Any, handle: Any, indices: Any, flow: Any, *, dtype: DType, element_shape: TensorShape) -> Any:
    array = find(ctx, handle)
    with array.lock:
        return kernels.gather(array, _indices(indices), dtype, dims_of(element_shape))


def pack_kernel(ctx: Any, handle: Any, flow: Any, *, dtype: DType, element_shape: TensorShape) -> Any:
    array = find(ctx, handle)
    with array.lock:
        return kernels.gather(array, list(range(array.size)), dtype, dims_of(element_shape))


def scatter_kernel(ctx: Any, handle: Any, indices: Any, value: Any, flow: Any, *, T: DType) -> Any:
    array = find(ctx, handle)
    with array.lock:
        kernels.scatter(array, _indices(indices), value, T)
    return flow


def unpack_kernel(ctx: Any, handle: Any, value: Any, flow: Any, *, T: DType) -> Any:
    array = find(ctx, handle)
    with array.lock:
        kernels.unpack(array, value, T)
    return flow


def concat_kernel(ctx: Any, handle: Any, flow: Any, *, dtype: DType, element_shape_except0: TensorShape) -> list[Any]:
    array = find(ctx, handle)
    with array.lock:
        return kernels.concat(array, dtype, dims_of(element_shape_except0))


def split_kernel(ctx: Any, handle: Any, value: Any, lengths: Any, flow: Any, *, T: DType) -> Any:
    array = find(ctx, handle)
    with array.lock:
        kernels.split(array, value, lengths, T)
    return flow


def size_kernel(ctx: Any, handle: Any, flow: Any) -> Any:
    return np.int32(find(ctx, handle).size)


def close_kernel(ctx: Any, handle: Any) -> None:
    array = find(ctx, handle)
    with array.lock:
        array.close()


# -- shapes -----------------------------------------------------------------------------------------------------------


def array_shape(c: Any) -> list[Dims]:
    checked_scalar(c, 0)
    dims = dims_of(c.attrs["element_shape"])
    if is_fully_defined(dims) or c.attrs.get("identical_element_shapes"):
        c.set_handle(0, c.attrs["dtype"], dims)
    return [(2,), ()] if len(c.op.outputs) == 2 else [(2,)]


def grad_shape(c: Any) -> list[Dims]:
    _check_handle(c)
    checked_scalar(c, 1)
    c.copy_handle(0, 0)
    return [(2,), ()] if len(c.op.outputs) == 2 else [(2,)]


def grad_with_shape_shape(c: Any) -> list[Dims]:
    _check_handle(c)
    checked_scalar(c, 1)
    known, prepend = c.handle(0), c.dims(2)
    if known is not None:
        dims = None
        if prepend is not None and prepend[0] is not None:
            dims = concat_dims((None,) * prepend[0], known[1])
        c.set_handle(0, known[0], dims)
    return [(2,), ()]


def _check_handle(c: Any) -> None:
    dims = with_rank(c, 0, 1)
    if dims[0] not in (None, 2):
        raise ValueError(f"Dimension must be 2 but is {dims[0]}")


def write_shape(c: Any) -> Dims:
    _check_handle(c)
    checked_scalar(c, 1)
    checked_scalar(c, 3)
    known = c.handle(0)
    if known is not None:
        merge_dims(known[1], c.dims(2))
    return ()


def read_shape(c: Any) -> Dims:
    _check_handle(c)
    checked_scalar(c, 1)
    checked_scalar(c, 2)
    known = c.handle(0)
    return None if known is None else known[1]


def gather_shape(c: Any) -> Dims:
    _check_handle(c)
    indices = with_rank(c, 1, 1)
    checked_scalar(c, 2)
    element = dims_of(c.attrs["element_shape"])
    return None if element is None else (indices[0], *element)


def pack_shape(c: Any) -> Dims:
    element = dims_of(c.attrs["element_shape"])
    return None if element is None else (None, *element)


def scatter_shape(c: Any) -> Dims:
    _check_handle(c)
    indices = with_rank(c, 1, 1)
    checked_scalar(c, 3)
    value = with_rank_at_least(c, 2, 1)
    if value is not None and None not in (indices[0], value[0]) and indices[0] != value[0]:
        raise ValueError(f"Dimensions must be equal, but are {value[0]} and {indices[0]}")
    known = c.handle(0)
    if known is not None and value is not None:
        merge_dims(known[1], value[1:])
    return ()


def split_shape(c: Any) -> Dims:
    _check_handle(c)
    with_rank(c, 2, 1)
    checked_scalar(c, 3)
    return ()


def unpack_shape(c: Any) -> Dims:
    checked_scalar(c, 2)
    return ()


def concat_shape(c: Any) -> list[Dims]:
    _check_handle(c)
    checked_scalar(c, 1)
    return [None, (None,)]


def size_shape(c: Any) -> Dims:
    _check_handle(c)
    return ()


def close_shape(c: Any) -> list[Dims]:
    _check_handle(c)
    return []


# -- gradients --------------------------------------------------------------------------------------------------------


def gradient_source(tensor: Any) -> str:
    """Which call of gradients() `tensor` belongs to: the name scope up to its last part that starts with "gradients"."""
    parts = tensor.op.name.split("/")
    found = [i for i, part in enumerate(parts) if part.startswith("gradients")]
    return "/".join(parts[: found[-1] + 1]) if found else parts[0]


class _Gradients:
    """The rules for one form of TensorArrays ("V3" or "V2")."""

    def __init__(self, form: str) -> None:
        self.form = form

    def op(self, g: Any, name: str, *args: Any, **attrs: Any) -> Any:
        return getattr(g, f"TensorArray{name}{self.form}")(*args, **attrs)

    def put(self, g: Any, name: str, *args: Any) -> Any:
        """A write of some kind, in a name scope of its own."""
        with get_default_graph().name_scope("TensorArray" + name):
            return self.op(g, name, *args)

    def array(self, g: Any, handle: Any, flow: Any, source: str) -> tuple[Any, Any]:
        """(handle, flow) of the gradient array; the flow waits until it exists."""
        graph = get_default_graph()
        with graph.name_scope("TensorArrayGrad"), graph.colocate_with(handle.op):
            made = self.op(g, "Grad", handle, flow, source=source)
            new = made[0] if isinstance(made, tuple) else made
            with graph.control_dependencies([new]):
                return new, g.Identity(flow, name="gradient_flow")

    def behind(self, g: Any, written: Any, flow: Any) -> Any:
        """The incoming flow, behind the forward write: an array's size must be final when its gradient array is made."""
        graph = get_default_graph()
        out = g.Identity(written, name="flow_out")
        with graph.control_dependencies([out]):
            return g.Identity(flow, name="write_barrier")

    def _dims(self, op: Any) -> Any:
        data = op.handle.handle_data
        return None if not data else data[0][1]

    def read(self, g: Any, op: Any, dy: Any) -> list[Any]:
        handle, flow = self.array(g, op.handle, op.flow_in, gradient_source(dy))
        return [None, None, self.put(g, "Write", handle, op.index, dy, flow)]

    def write(self, g: Any, op: Any, flow: Any) -> list[Any]:
        flow = self.behind(g, op.flow_out, flow)
        handle, inner = self.array(g, op.handle, flow, gradient_source(flow))
        return [None, None, self.op(g, "Read", handle, op.index, inner, dtype=op.attr("T")), flow]

    def gather(self, g: Any, op: Any, dy: Any) -> list[Any]:
        handle, flow = self.array(g, op.handle, op.flow_in, gradient_source(dy))
        return [None, None, self.put(g, "Scatter", handle, op.indices, dy, flow)]

    def scatter(self, g: Any, op: Any, flow: Any) -> list[Any]:
        flow = self.behind(g, op.flow_out, flow)
        handle, inner = self.array(g, op.handle, flow, gradient_source(flow))
        # Rows that were never written take their shape from the rows that were scattered.
        dims = None if op.inputs[2].dims is None else op.inputs[2].dims[1:]
        value = self.op(g, "Gather", handle, op.indices, inner, dtype=op.attr("T"), element_shape=TensorShape.from_dims(dims))
        return [None, None, value, flow]

    def concat(self, g: Any, op: Any, dy: Any, _: Any) -> list[Any]:
        handle, flow = self.array(g, op.handle, op.flow_in, gradient_source(dy))
        return [None, self.put(g, "Split", handle, dy, op.lengths, flow)]

    def split(self, g: Any, op: Any, flow: Any) -> list[Any]:
        flow = self.behind(g, op.flow_out, flow)
        handle, inner = self.array(g, op.handle, flow, gradient_source(flow))
        return [None, self.op(g, "Concat", handle, inner, dtype=op.attr("T"))[0], None, flow]


# -- samples ----------------------------------------------------------------------------------------------------------


def written_and_read(tf: Any) -> Any:
    ta = tf.TensorArray(tf.float32, size=3, clear_after_read=False)
    ta = ta.write(0, [1.0, 2.0]).write(2, [3.0, 4.0]).write(1, [5.0, 6.0])
    return [ta.read(2), ta.gather([2, 0]), ta.stack(), ta.size(), ta.concat()]


def scattered(tf: Any) -> Any:
    ta = tf.TensorArray(tf.int32, size=0, dynamic_size=True, clear_after_read=False)
    ta = ta.scatter([3, 0, 1, 2], [[1, 2], [3, 4], [5, 6], [7, 8]])
    return [ta.stack(), ta.size()]


def split_up(tf: Any) -> Any:
    ta = tf.TensorArray(tf.string, size=3, infer_shape=False, clear_after_read=False).split([b"a", b"b", b"c"], [1, 0, 2])
    return [ta.read(2), ta.concat()]


def differentiated(tf: Any) -> Any:
    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    ta = tf.TensorArray(tf.float32, size=3, clear_after_read=False, element_shape=[2]).unstack(x)
    y = ta.read(0) * ta.read(0) + ta.read(2)
    return [tf.gradients(y, x)[0], tf.gradients(ta.gather([2, 2]), x)[0], tf.gradients(ta.concat() * 3.0, x)[0]]


# -- declarations -----------------------------------------------------------------------------------------------------

_V3 = _Gradients("V3")
_V2 = _Gradients("V2")
_ELEMENT = "element_shape: shape = shape(unknown)"

op(f"TensorArrayV3(size: int32) -> (handle: resource, flow: float) [dtype: type; {_ELEMENT}; dynamic_size: bool = false;"
   " clear_after_read: bool = true; identical_element_shapes: bool = false; tensor_array_name: string = ''] stateful",
   shape=array_shape, numpy=array_v3_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[program(written_and_read), program(scattered), program(split_up), program(differentiated)])  # fmt: skip
op("TensorArrayGradV3(handle: resource, flow_in: float) -> (grad_handle: resource, flow_out: float) [source: string] stateful",
   shape=grad_shape, numpy=grad_v3_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("TensorArrayGradWithShape(handle: resource, flow_in: float, shape_to_prepend: int32) -> (grad_handle: resource, flow_out: float)"
   " [source: string] stateful",
   shape=grad_with_shape_shape, numpy=grad_with_shape_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("TensorArrayWriteV3(handle: resource, index: int32, value: T, flow_in: float) -> (flow_out: float) [T: type] stateful",
   shape=write_shape, numpy=write_kernel, grad=_V3.write)  # fmt: skip
op("TensorArrayReadV3(handle: resource, index: int32, flow_in: float) -> (value: dtype) [dtype: type] stateful",
   shape=read_shape, numpy=read_kernel, grad=_V3.read)  # fmt: skip
op(f"TensorArrayGatherV3(handle: resource, indices: int32, flow_in: float) -> (value: dtype) [dtype: type; {_ELEMENT}] stateful",
   shape=gather_shape, numpy=gather_kernel, grad=_V3.gather)  # fmt: skip
op("TensorArrayScatterV3(handle: resource, indices: int32, value: T, flow_in: float) -> (flow_out: float) [T: type] stateful",
   shape=scatter_shape, numpy=scatter_kernel, grad=_V3.scatter)  # fmt: skip
op("TensorArrayConcatV3(handle: resource, flow_in: float) -> (value: dtype, lengths: int64)"
   " [dtype: type; element_shape_except0: shape = shape(unknown)] stateful",
   shape=concat_shape, numpy=concat_kernel, grad=_V3.concat)  # fmt: skip
op("TensorArraySplitV3(handle: resource, value: T, lengths: int64, flow_in: float) -> (flow_out: float) [T: type] stateful",
   shape=split_shape, numpy=split_kernel, grad=_V3.split)  # fmt: skip
op("TensorArraySizeV3(handle: resource, flow_in: float) -> (size: int32) stateful",
   shape=size_shape, numpy=size_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("TensorArrayCloseV3(handle: resource) -> () stateful", shape=close_shape, numpy=close_kernel, grad=NOT_DIFFERENTIABLE)

# Handles as pairs of strings: graphs written between 2016 and 2017.
op(f"TensorArrayV2(size: int32) -> (handle: string) [dtype: type; {_ELEMENT}; dynamic_size: bool = false;"
   " clear_after_read: bool = true; tensor_array_name: string = ''] stateful deprecated@26",
   shape=array_shape, numpy=array_v2_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("TensorArrayGradV2(handle: string, flow_in: float) -> (grad_handle: string) [source: string] stateful deprecated@26",
   shape=vector(2), numpy=grad_v2_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("TensorArrayWriteV2(handle: string, index: int32, value: T, flow_in: float) -> (flow_out: float) [T: type] deprecated@26",
   shape=write_shape, numpy=write_kernel, grad=_V2.write)  # fmt: skip
op("TensorArrayReadV2(handle: string, index: int32, flow_in: float) -> (value: dtype) [dtype: type] deprecated@26",
   shape=read_shape, numpy=read_kernel, grad=_V2.read)  # fmt: skip
op(f"TensorArrayGatherV2(handle: string, indices: int32, flow_in: float) -> (value: dtype) [dtype: type; {_ELEMENT}] deprecated@26",
   shape=gather_shape, numpy=gather_kernel, grad=_V2.gather)  # fmt: skip
op("TensorArrayScatterV2(handle: string, indices: int32, value: T, flow_in: float) -> (flow_out: float) [T: type] deprecated@26",
   shape=scatter_shape, numpy=scatter_kernel, grad=_V2.scatter)  # fmt: skip
op("TensorArrayConcatV2(handle: string, flow_in: float) -> (value: dtype, lengths: int64)"
   " [dtype: type; element_shape_except0: shape = shape(unknown)]",
   shape=concat_shape, numpy=concat_kernel, grad=_V2.concat)  # fmt: skip
op("TensorArraySplitV2(handle: string, value: T, lengths: int64, flow_in: float) -> (flow_out: float) [T: type] deprecated@26",
   shape=split_shape, numpy=split_kernel, grad=_V2.split)  # fmt: skip
op("TensorArraySizeV2(handle: string, flow_in: float) -> (size: int32) deprecated@26",
   shape=size_shape, numpy=size_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("TensorArrayCloseV2(handle: string) -> () deprecated@26", shape=close_shape, numpy=close_kernel, grad=NOT_DIFFERENTIABLE)

# Handles as references: graphs written before that.
op("TensorArray(size: int32) -> (handle: ref string) [dtype: type; dynamic_size: bool = false; clear_after_read: bool = true;"
   f" tensor_array_name: string = ''; {_ELEMENT}] stateful deprecated@16",
   shape=array_shape, numpy=array_v1_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("TensorArrayGrad(handle: string, flow_in: float) -> (grad_handle: ref string) [source: string] stateful deprecated@16",
   shape=vector(2), numpy=grad_v1_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("TensorArrayWrite(handle: ref string, index: int32, value: T, flow_in: float) -> (flow_out: float) [T: type] deprecated@16",
   shape=write_shape, numpy=write_kernel)  # fmt: skip
op("TensorArrayRead(handle: ref string, index: int32, flow_in: float) -> (value: dtype) [dtype: type] deprecated@16",
   shape=read_shape, numpy=read_kernel)  # fmt: skip
op(f"TensorArrayPack(handle: ref string, flow_in: float) -> (value: dtype) [dtype: type; {_ELEMENT}] deprecated@16",
   shape=pack_shape, numpy=pack_kernel)  # fmt: skip
op("TensorArrayUnpack(handle: ref string, value: T, flow_in: float) -> (flow_out: float) [T: type] deprecated@20",
   shape=unpack_shape, numpy=unpack_kernel)  # fmt: skip
op(f"TensorArrayGather(handle: ref string, indices: int32, flow_in: float) -> (value: dtype) [dtype: type; {_ELEMENT}] deprecated@16",
   shape=gather_shape, numpy=gather_kernel)  # fmt: skip
op("TensorArrayScatter(handle: ref string, indices: int32, value: T, flow_in: float) -> (flow_out: float) [T: type] deprecated@19",
   shape=scatter_shape, numpy=scatter_kernel)  # fmt: skip
op("TensorArrayConcat(handle: ref string, flow_in: float) -> (value: dtype, lengths: int64)"
   " [dtype: type; element_shape_except0: shape = shape(unknown)] deprecated@16",
   shape=concat_shape, numpy=concat_kernel)  # fmt: skip
op("TensorArraySplit(handle: ref string, value: T, lengths: int64, flow_in: float) -> (flow_out: float) [T: type] deprecated@16",
   shape=split_shape, numpy=split_kernel)  # fmt: skip
op("TensorArraySize(handle: ref string, flow_in: float) -> (size: int32) deprecated@16", shape=size_shape, numpy=size_kernel)
op("TensorArrayClose(handle: ref string) -> () deprecated@16", shape=close_shape, numpy=close_kernel)
