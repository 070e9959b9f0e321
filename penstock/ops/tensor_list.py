"""TensorLists: lists of tensors as values (variants). TF's functional loops, and Keras' RNNs with them, keep state in these."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, checked_scalar, op, with_rank
from penstock.ops.kernels import tensor_lists as kernels
from penstock.ops.kernels.tensor_lists import TensorList, dims_from
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.samples import program
from penstock.shapes import TensorShape, concat_dims, dims_of, is_fully_defined, merge_dim, merge_dims


def checked(value: Any) -> TensorList:
    if not isinstance(value, TensorList):
        raise InvalidArgumentError(f"Input handle is not a list. Saw: '{type(value).__name__}'")
    return value


# -- kernels ----------------------------------------------------------------------------------------------------------


def empty_kernel(element_shape: Any, max_num_elements: Any, *, element_dtype: DType) -> TensorList:
    if np.ndim(max_num_elements) != 0:
        raise InvalidArgumentError("max_num_elements expected to be a scalar")
    return TensorList(element_dtype, dims_from(element_shape), [], int(max_num_elements))


def reserve_kernel(element_shape: Any, num_elements: Any, *, element_dtype: DType) -> TensorList:
    if num_elements < 0:
        raise InvalidArgumentError(f"The num_elements to reserve must be a non negative number, but got {int(num_elements)}")
    return TensorList(element_dtype, dims_from(element_shape), [None] * int(num_elements))


def push_back_kernel(values: Any, item: Any, *, element_dtype: DType) -> TensorList:
    return kernels.push_back(checked(values), item, element_dtype)


def push_back_batch_kernel(lists: Any, tensor: Any, *, element_dtype: DType) -> Any:
    if tensor.ndim == 0 or len(lists) != len(tensor):
        raise InvalidArgumentError("Batch sizes of lists and tensor differ")
    result = np.empty(lists.shape, dtype=object)
    for i, values in enumerate(lists):
        result[i] = kernels.push_back(checked(values), tensor[i], element_dtype)
    return result


def push_back_batch_shape(c: Any) -> Dims:
    handles, tensor = c.dims(0), c.dims(1)
    if handles is not None and len(handles) != 1:
        raise ValueError(f"Shape must be rank 1 but is rank {len(handles)}")
    if tensor is not None and not tensor:
        raise ValueError("Shape must be at least rank 1 but is rank 0")
    if handles is None or tensor is None:
        return handles
    return (merge_dim(tensor[0], handles[0]),)


def pop_back_kernel(values: Any, element_shape: Any, *, element_dtype: DType) -> list[Any]:
    return kernels.pop_back(checked(values), dims_from(element_shape), element_dtype)


def get_item_kernel(values: Any, index: Any, element_shape: Any, *, element_dtype: DType) -> Any:
    return kernels.get_item(checked(values), int(index), dims_from(element_shape), element_dtype)


def set_item_kernel(values: Any, index: Any, item: Any, *, element_dtype: DType, resize_if_index_out_of_bounds: bool) -> TensorList:
    return kernels.set_item(checked(values), int(index), item, element_dtype, resize_if_index_out_of_bounds)


def stack_kernel(values: Any, element_shape: Any, *, element_dtype: DType, num_elements: int) -> Any:
    return kernels.stack(checked(values), dims_from(element_shape), num_elements, element_dtype)


def from_tensor_kernel(tensor: Any, element_shape: Any, *, element_dtype: DType) -> TensorList:
    return kernels.from_tensor(tensor, dims_from(element_shape), element_dtype)


def length_kernel(values: Any) -> Any:
    return np.int32(len(checked(values).items))


def element_shape_kernel(values: Any, *, shape_type: DType) -> Any:
    dims = checked(values).dims
    if dims is None:
        return shape_type.np.type(-1)
    return np.array([-1 if d is None else d for d in dims], shape_type.np)


def resize_kernel(values: Any, size: Any) -> TensorList:
    if size < 0:
        raise InvalidArgumentError(f"TensorListSlice expects size to be non-negative. Got: {int(size)}")
    items = checked(values).items
    return values.like(items[: int(size)] + [None] * (int(size) - len(items)))


def gather_kernel(values: Any, indices: Any, element_shape: Any, *, element_dtype: DType) -> Any:
    return kernels.gather(checked(values), [int(i) for i in indices], dims_from(element_shape), element_dtype)


def scatter_kernel(tensor: Any, indices: Any, element_shape: Any, *, element_dtype: DType) -> TensorList:
    return _scattered(tensor, indices, element_shape, -1, element_dtype)


def scatter_v2_kernel(tensor: Any, indices: Any, element_shape: Any, num_elements: Any, *, element_dtype: DType) -> TensorList:
    if num_elements < -1:
        raise InvalidArgumentError(f"TensorListScatter expects num_elements >= -1, found: {int(num_elements)}")
    return _scattered(tensor, indices, element_shape, int(num_elements), element_dtype)


def _scattered(tensor: Any, indices: Any, element_shape: Any, num_elements: int, dtype: DType) -> TensorList:
    dims = dims_from(element_shape)
    kernels.check_rows(tensor, dims)
    items = kernels.scatter([None] * max(num_elements, 0), tensor, [int(i) for i in indices], num_elements == -1)
    return TensorList(dtype, dims, items)


def scatter_into_kernel(values: Any, tensor: Any, indices: Any, *, element_dtype: DType) -> TensorList:
    values = checked(values)
    kernels.check_type(values, element_dtype)
    kernels.check_rows(tensor, values.dims)
    return values.like(kernels.scatter(values.items, tensor, [int(i) for i in indices], True))


def concat_kernel(values: Any, *, element_dtype: DType, element_shape: TensorShape) -> list[Any]:
    return kernels.concat(checked(values), dims_of(element_shape), [], element_dtype)


def concat_v2_kernel(values: Any, element_shape: Any, leading_dims: Any, *, element_dtype: DType) -> list[Any]:
    return kernels.concat(checked(values), dims_from(element_shape), [int(n) for n in np.ravel(leading_dims)], element_dtype)


def split_kernel(tensor: Any, element_shape: Any, lengths: Any, *, element_dtype: DType) -> TensorList:
    return kernels.split(tensor, [int(n) for n in lengths], dims_from(element_shape), element_dtype)


def concat_lists_kernel(a: Any, b: Any, *, element_dtype: DType) -> TensorList:
    a, b = checked(a), checked(b)
    if a.dtype is not element_dtype or b.dtype is not element_dtype:
        raise InvalidArgumentError("input_a and input_b must be lists of the op's element_dtype")
    return a.like(a.items + b.items)


# -- shapes -----------------------------------------------------------------------------------------------------------


def _element_dims(c: Any, i: int) -> Dims:
    """Dims from a shape tensor: partly known, or not at all."""
    dims = c.dims(i)
    if dims is not None and len(dims) > 1:
        raise ValueError(f"Shape must be at most rank 1 but is rank {len(dims)}")
    value = c.const(i)
    if value is not None:
        if value.ndim == 0:
            return None
        for n in value.tolist():
            if n < -1:
                raise ValueError(f"Invalid value in tensor used for shape: {n}")
        return tuple(None if n < 0 else int(n) for n in value.tolist())
    if dims == ():
        return None
    return c.const_dims(i)


def new_shape(c: Any) -> Dims:
    c.set_handle(0, c.attrs["element_dtype"], _element_dims(c, 0))
    return ()


def keep_shape(c: Any) -> Dims:
    c.copy_handle(0, 0)
    return ()


def push_back_shape(c: Any) -> Dims:
    known = c.handle(0)
    if known is not None and known[0] is not c.attrs["element_dtype"]:
        raise ValueError(
            f"Trying to push to list with wrong element dtype. List has type {dtype_text(known[0])} but trying to push element with type "
            f"{dtype_text(c.attrs['element_dtype'])}"
        )
    c.copy_handle(0, 0)
    return ()


def _read_dims(c: Any, shape_input: int, wording: str) -> Dims:
    known = c.handle(0)
    dims = _element_dims(c, shape_input)
    if known is None:
        return dims
    if known[0] is not c.attrs["element_dtype"]:
        raise ValueError(wording.format(dtype_text(known[0]), dtype_text(c.attrs["element_dtype"])))
    return merge_dims(known[1], dims)


_WRONG_READ = "Trying to read from list with wrong element dtype. List has type {0} but trying to push element with type {1}"


def pop_back_shape(c: Any) -> list[Dims]:
    known = c.handle(0)
    if known is not None and known[0] is not c.attrs["element_dtype"]:
        raise ValueError(_WRONG_READ.format(dtype_text(known[0]), dtype_text(c.attrs["element_dtype"])))
    c.copy_handle(0, 0)
    return [(), _element_dims(c, 1) if known is None or known[1] is None else known[1]]


def get_item_shape(c: Any) -> Dims:
    checked_scalar(c, 1)
    return _read_dims(c, 2, "Expected list with element dtype {1} but got list with element dtype {0}")


def set_item_shape(c: Any) -> Dims:
    checked_scalar(c, 1)
    known = c.handle(0)
    if known is None:
        c.set_handle(0, c.attrs["element_dtype"], None)
        return ()
    merge_dims(c.dims(2), known[1])
    c.copy_handle(0, 0)
    return ()


def stack_shape(c: Any) -> Dims:
    dims = _read_dims(c, 1, "Trying to read from list with wrong element dtype. List has type {0} but expected type {1}")
    count = c.attrs["num_elements"]
    return None if dims is None else (None if count < 0 else count, *dims)


def from_tensor_shape(c: Any) -> Dims:
    dims = _element_dims(c, 1)
    tensor = c.dims(0)
    c.set_handle(0, c.attrs["element_dtype"], dims if tensor is None or not tensor else merge_dims(tensor[1:], dims))
    return ()


def element_shape_shape(c: Any) -> Dims:
    known = c.handle(0)
    return None if known is None or known[1] is None else (len(known[1]),)


def gather_shape(c: Any) -> Dims:
    dims = _read_dims(c, 2, "Expected list with element dtype {1} but got list with element dtype {0}")
    return concat_dims((with_rank(c, 1, 1) or (None,))[:1], dims)


def scatter_shape(c: Any) -> Dims:
    c.set_handle(0, c.attrs["element_dtype"], _element_dims(c, 2))
    return ()


def concat_shape(c: Any) -> list[Dims]:
    dims = dims_of(c.attrs["element_shape"])
    return [None if not dims else (None, *dims[1:]), (None,)]


def concat_v2_shape(c: Any) -> list[Dims]:
    dims = _read_dims(c, 1, "Expected list with element dtype {1} but got list with element dtype {0}")
    return [None if not dims else (None, *dims[1:]), (None,)]


def split_shape(c: Any) -> Dims:
    with_rank(c, 2, 1)
    c.set_handle(0, c.attrs["element_dtype"], _element_dims(c, 1))
    return ()


# -- gradients --------------------------------------------------------------------------------------------------------


def _rows_shape(g: Any, tensor: Any) -> Any:
    """The shape of one row of `tensor`, as a tensor."""
    if tensor.dims is not None and is_fully_defined(tensor.dims[1:]):
        return g.const(np.array(tensor.dims[1:], np.int32), dtypes.int32)
    return g.StridedSlice(g.Shape(tensor), [1], [0], [1], end_mask=1)


def _anything(g: Any) -> Any:
    return g.const(-1, dtypes.int32)


def push_back_grad(g: Any, op: Any, dlist: Any) -> list[Any]:
    popped = g.TensorListPopBack(dlist, g.Shape(op.tensor), element_dtype=op.attr("element_dtype"))
    return [popped[0], popped[1]]


def pop_back_grad(g: Any, op: Any, dlist: Any, ditem: Any) -> list[Any]:
    dtype = op.attr("element_dtype")
    if dlist is None:
        dlist = g.EmptyTensorList(_anything(g), -1, element_dtype=dtype)
    if ditem is None:
        ditem = g.ZerosLike(op.tensor)
    return [g.TensorListPushBack(dlist, ditem), None]


def stack_grad(g: Any, op: Any, dtensor: Any) -> list[Any]:
    return [g.TensorListFromTensor(dtensor, _rows_shape(g, dtensor)), None]


def from_tensor_grad(g: Any, op: Any, dlist: Any) -> list[Any]:
    tensor = op.tensor
    count = -1 if tensor.dims is None or tensor.dims[0] is None else tensor.dims[0]
    return [g.TensorListStack(dlist, _rows_shape(g, tensor), element_dtype=tensor.dtype.base_dtype, num_elements=count), None]


def get_item_grad(g: Any, op: Any, ditem: Any) -> list[Any]:
    shape = g.TensorListElementShape(op.input_handle, shape_type=dtypes.int32)
    blank = g.TensorListReserve(shape, g.TensorListLength(op.input_handle), element_dtype=ditem.dtype)
    return [g.TensorListSetItem(blank, op.index, ditem), None, None]


def set_item_grad(g: Any, op: Any, dlist: Any) -> list[Any]:
    item = op.item
    rest = g.TensorListSetItem(dlist, op.index, g.ZerosLike(item))
    ditem = g.TensorListGetItem(dlist, op.index, g.Shape(item), element_dtype=item.dtype.base_dtype)
    return [rest, None, ditem]


def resize_grad(g: Any, op: Any, dlist: Any) -> list[Any]:
    return [g.TensorListResize(dlist, g.TensorListLength(op.input_handle)), None]


def gather_grad(g: Any, op: Any, dtensor: Any) -> list[Any]:
    count = g.TensorListLength(op.input_handle)
    return [g.TensorListScatterV2(dtensor, op.indices, _rows_shape(g, dtensor), count), None, None]


def _scatter_grad(inputs: int) -> Any:
    def grad(g: Any, op: Any, dlist: Any) -> list[Any]:
        tensor = op.tensor
        dtensor = g.TensorListGather(dlist, op.indices, _rows_shape(g, tensor), element_dtype=tensor.dtype.base_dtype)
        return [dtensor] + [None] * (inputs - 1)

    return grad


def scatter_into_grad(g: Any, op: Any, dlist: Any) -> list[Any]:
    tensor = op.tensor
    dtensor = g.TensorListGather(dlist, op.indices, _rows_shape(g, tensor), element_dtype=tensor.dtype.base_dtype)
    return [g.TensorListScatterIntoExistingList(dlist, g.ZerosLike(tensor), op.indices), dtensor, None]


def _concat_grad(inputs: int) -> Any:
    def grad(g: Any, op: Any, dtensor: Any, _: Any) -> list[Any]:
        shape = g.TensorListElementShape(op.input_handle, shape_type=dtypes.int32)
        return [g.TensorListSplit(dtensor, shape, op.lengths)] + [None] * (inputs - 1)

    return grad


def split_grad(g: Any, op: Any, dlist: Any) -> list[Any]:
    tensor = op.tensor
    shape = g.ConcatV2([g.const([-1], dtypes.int32), _rows_shape(g, tensor)], 0)
    return [g.TensorListConcatV2(dlist, shape, op.lengths, element_dtype=tensor.dtype.base_dtype)[0], None, None]


# -- samples ----------------------------------------------------------------------------------------------------------


def pushed_and_popped(tf: Any) -> Any:
    ops = tf.raw_ops
    values = ops.EmptyTensorList(element_shape=tf.constant([2]), max_num_elements=-1, element_dtype=tf.float32)
    for row in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]):
        values = ops.TensorListPushBack(input_handle=values, tensor=tf.constant(row))
    rest, last = ops.TensorListPopBack(input_handle=values, element_shape=tf.constant([2]), element_dtype=tf.float32)
    stack = ops.TensorListStack(input_handle=rest, element_shape=tf.constant([2]), element_dtype=tf.float32)
    return [last, stack, ops.TensorListLength(input_handle=rest)]


def differentiated(tf: Any) -> Any:
    ops = tf.raw_ops
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    values = ops.TensorListFromTensor(tensor=x, element_shape=tf.constant([2]))
    item = ops.TensorListGetItem(input_handle=values, index=1, element_shape=tf.constant([2]), element_dtype=tf.float32)
    changed = ops.TensorListSetItem(input_handle=values, index=0, item=item * 3.0)
    y = ops.TensorListStack(input_handle=changed, element_shape=tf.constant([2]), element_dtype=tf.float32)
    return [y, tf.gradients(y * y, x)[0]]


# -- declarations -----------------------------------------------------------------------------------------------------

_SHAPED = "[element_dtype: type; shape_type: type in {int32, int64}]"

op(f"EmptyTensorList(element_shape: shape_type, max_num_elements: int32) -> (handle: variant) {_SHAPED}",
   shape=new_shape, numpy=empty_kernel, grad=NOT_DIFFERENTIABLE, samples=[program(pushed_and_popped)])  # fmt: skip
op(f"TensorListReserve(element_shape: shape_type, num_elements: int32) -> (handle: variant) {_SHAPED}",
   shape=new_shape, numpy=reserve_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("TensorListPushBack(input_handle: variant, tensor: element_dtype) -> (output_handle: variant) [element_dtype: type]",
   shape=push_back_shape, numpy=push_back_kernel, grad=push_back_grad)  # fmt: skip
op("TensorListPushBackBatch(input_handles: variant, tensor: element_dtype) -> (output_handles: variant) [element_dtype: type]",
   shape=push_back_batch_shape, numpy=push_back_batch_kernel)  # fmt: skip
op("TensorListPopBack(input_handle: variant, element_shape: int32) -> (output_handle: variant, tensor: element_dtype) [element_dtype: type]",
   shape=pop_back_shape, numpy=pop_back_kernel, grad=pop_back_grad)  # fmt: skip
op("TensorListGetItem(input_handle: variant, index: int32, element_shape: Tshape) -> (item: element_dtype)"
   " [element_dtype: type; Tshape: type in {int32, int64} = int32]",
   shape=get_item_shape, numpy=get_item_kernel, grad=get_item_grad)  # fmt: skip
op("TensorListSetItem(input_handle: variant, index: int32, item: element_dtype) -> (output_handle: variant)"
   " [element_dtype: type; resize_if_index_out_of_bounds: bool = false]",
   shape=set_item_shape, numpy=set_item_kernel, grad=set_item_grad)  # fmt: skip
op("TensorListStack(input_handle: variant, element_shape: int32) -> (tensor: element_dtype) [element_dtype: type; num_elements: int = -1]",
   shape=stack_shape, numpy=stack_kernel, grad=stack_grad)  # fmt: skip
op(f"TensorListFromTensor(tensor: element_dtype, element_shape: shape_type) -> (output_handle: variant) {_SHAPED}",
   shape=from_tensor_shape, numpy=from_tensor_kernel, grad=from_tensor_grad, samples=[program(differentiated)])  # fmt: skip
op("TensorListLength(input_handle: variant) -> (length: int32)", shape=lambda c: (), numpy=length_kernel, grad=NOT_DIFFERENTIABLE)
op("TensorListElementShape(input_handle: variant) -> (element_shape: shape_type) [shape_type: type in {int32, int64}]",
   shape=element_shape_shape, numpy=element_shape_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("TensorListResize(input_handle: variant, size: int32) -> (output_handle: variant)",
   shape=keep_shape, numpy=resize_kernel, grad=resize_grad)  # fmt: skip
op("TensorListGather(input_handle: variant, indices: int32, element_shape: int32) -> (values: element_dtype) [element_dtype: type]",
   shape=gather_shape, numpy=gather_kernel, grad=gather_grad)  # fmt: skip
op(f"TensorListScatter(tensor: element_dtype, indices: int32, element_shape: shape_type) -> (output_handle: variant) {_SHAPED}",
   shape=scatter_shape, numpy=scatter_kernel, grad=_scatter_grad(3))  # fmt: skip
op("TensorListScatterV2(tensor: element_dtype, indices: int32, element_shape: shape_type, num_elements: int32) -> (output_handle: variant)"
   f" {_SHAPED}",
   shape=scatter_shape, numpy=scatter_v2_kernel, grad=_scatter_grad(4))  # fmt: skip
op("TensorListScatterIntoExistingList(input_handle: variant, tensor: element_dtype, indices: int32) -> (output_handle: variant)"
   " [element_dtype: type]",
   shape=keep_shape, numpy=scatter_into_kernel, grad=scatter_into_grad)  # fmt: skip
op("TensorListConcat(input_handle: variant) -> (tensor: element_dtype, lengths: int64)"
   " [element_dtype: type; element_shape: shape = shape(unknown)]",
   shape=concat_shape, numpy=concat_kernel, grad=_concat_grad(1))  # fmt: skip
op("TensorListConcatV2(input_handle: variant, element_shape: shape_type, leading_dims: int64) -> (tensor: element_dtype, lengths: int64)"
   f" {_SHAPED}",
   shape=concat_v2_shape, numpy=concat_v2_kernel, grad=_concat_grad(3))  # fmt: skip
op(f"TensorListSplit(tensor: element_dtype, element_shape: shape_type, lengths: int64) -> (output_handle: variant) {_SHAPED}",
   shape=split_shape, numpy=split_kernel, grad=split_grad)  # fmt: skip
op("TensorListConcatLists(input_a: variant, input_b: variant) -> (output: variant) [element_dtype: type]",
   shape=keep_shape, numpy=concat_lists_kernel)  # fmt: skip
