"""TensorList: the value of a list variant. Lists are never changed: every op makes a new one that shares the elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.kernels.tensor_arrays import row, shape_text, stacked, zeros_of
from penstock.ops.kernels.texts import dtype_text
from penstock.shapes import compatible_dims, is_fully_defined, merge_dims


class TensorList:
    """Elements of one type; an element that is None was not set yet and reads as zeros."""

    __slots__ = ("dims", "dtype", "items", "max_size")

    shape = ()
    ndim = 0

    def __init__(self, dtype: DType, dims: Dims, items: list[Any], max_size: int = -1) -> None:
        self.dtype = dtype
        self.dims = dims
        self.items = items
        self.max_size = max_size

    def like(self, items: list[Any]) -> TensorList:
        return TensorList(self.dtype, self.dims, items, self.max_size)

    def zeros_like(self) -> TensorList:
        """What ZerosLike gives: a list of zeros with the same shapes."""
        return self.like([None if item is None else zeros_of(np.shape(item), self.dtype) for item in self.items])

    def __add__(self, other: Any) -> TensorList:
        """What AddN does with lists: element by element."""
        if not isinstance(other, TensorList):
            raise InvalidArgumentError("Trying to add a list of tensors to something else")
        if self.dtype is not other.dtype:
            raise InvalidArgumentError(
                f"Trying to add two lists of tensors of different dtypes. One is {dtype_text(self.dtype)} and the other is {dtype_text(other.dtype)}"
            )
        if len(self.items) != len(other.items):
            raise InvalidArgumentError(
                f"Trying to add two lists of tensors with different lengths. One is {len(self.items)} and the other is {len(other.items)}"
            )
        if not compatible_dims(self.dims, other.dims):
            raise InvalidArgumentError(
                f"Trying to add two lists of tensors with incompatible element shapes. One is {shape_text(self.dims)} and the other is {shape_text(other.dims)}"
            )
        items = [a if b is None else b if a is None else a + b for a, b in zip(self.items, other.items, strict=True)]
        return TensorList(self.dtype, merge_dims(self.dims, other.dims), items, self.max_size)

    def __repr__(self) -> str:
        return f"<TensorList of {len(self.items)} {dtype_text(self.dtype)} {shape_text(self.dims)}>"


def dims_from(value: Any) -> Dims:
    """A shape given as a tensor: -1 alone is "anything", -1 in a vector an unknown size."""
    array = np.asarray(value)
    if array.ndim == 0:
        if int(array) != -1:
            raise InvalidArgumentError(f"The only valid scalar shape tensor is the fully unknown shape specified as -1, got {int(array)}.")
        return None
    if array.ndim != 1:
        raise InvalidArgumentError("Shape must be at most rank 1")
    for n in array.tolist():
        if n < -1:
            raise InvalidArgumentError(f"Invalid value in tensor used for shape: {n}")
    return tuple(None if n < 0 else n for n in array.tolist())


def _merged(a: Dims, b: Dims) -> Dims:
    if not compatible_dims(a, b):
        raise InvalidArgumentError(f"PartialTensorShape: Incompatible shapes during merge: {shape_text(a)} vs. {shape_text(b)}")
    return merge_dims(a, b)


def check_type(values: Any, dtype: DType) -> None:
    if values.dtype is not dtype:
        raise InvalidArgumentError(f"Invalid data types; op elements {dtype_text(dtype)} but list elements {dtype_text(values.dtype)}")


def with_elements(values: TensorList, dims: Dims) -> Dims:
    """`dims`, narrowed by the list's own shape and by every element that is set."""
    dims = _merged(dims, values.dims)
    for item in values.items:
        if is_fully_defined(dims):
            break
        if item is not None:
            dims = _merged(dims, np.shape(item))
    return dims


def push_back(values: TensorList, item: Any, dtype: DType) -> TensorList:
    if values.dtype is not dtype:
        raise InvalidArgumentError(f"Invalid data types; list elements {dtype_text(values.dtype)} but tried to append {dtype_text(dtype)}")
    if not compatible_dims(values.dims, np.shape(item)):
        raise InvalidArgumentError(
            f"Tried to append a tensor with incompatible shape to a list. Op element shape: {shape_text(np.shape(item))} list shape: {shape_text(values.dims)}"
        )
    if 0 < values.max_size <= len(values.items):
        raise InvalidArgumentError(
            f"Tried to push item into a full list list size: {len(values.items)} max_num_elements: {values.max_size}"
        )
    return values.like([*values.items, item])


def pop_back(values: TensorList, element_dims: Dims, dtype: DType) -> list[Any]:
    check_type(values, dtype)
    if not values.items:
        raise InvalidArgumentError("Trying to pop from an empty list.")
    item = values.items[-1]
    if item is None:
        dims = with_elements(values, element_dims)
        if not is_fully_defined(dims):
            raise InvalidArgumentError(f"Trying to read an uninitialized tensor but element_shape is not fully defined.{shape_text(dims)}")
        item = zeros_of(dims, dtype)
    return [values.like(values.items[:-1]), item]


def get_item(values: TensorList, index: int, element_dims: Dims, dtype: DType) -> Any:
    check_type(values, dtype)
    if not 0 <= index < len(values.items):
        raise InvalidArgumentError(f"Trying to access element {index} in a list with {len(values.items)} elements.")
    item = values.items[index]
    if item is not None:
        return item
    dims = with_elements(values, element_dims)
    if not is_fully_defined(dims):
        raise InvalidArgumentError(
            f"Trying to read an uninitialized tensor but element_shape is not fully defined: {shape_text(dims)} and no list element is set."
        )
    return zeros_of(dims, dtype)


def set_item(values: TensorList, index: int, item: Any, dtype: DType, resize: bool) -> TensorList:
    check_type(values, dtype)
    items = list(values.items)
    if index >= len(items) and resize:
        items += [None] * (index + 1 - len(items))
    if not 0 <= index < len(items):
        raise InvalidArgumentError(f"Trying to modify element {index} in a list with {len(values.items)} elements.")
    if not compatible_dims(values.dims, np.shape(item)):
        raise InvalidArgumentError(
            f"Tried to set a tensor with incompatible shape at a list index. Item element shape: {shape_text(np.shape(item))} list shape: {shape_text(values.dims)}"
        )
    items[index] = item
    return values.like(items)


def stack(values: TensorList, element_dims: Dims, num_elements: int, dtype: DType) -> Any:
    check_type(values, dtype)
    if num_elements != -1 and num_elements != len(values.items):
        raise InvalidArgumentError(f"Operation expected a list with {num_elements} elements but got a list with {len(values.items)} elements.")
    dims = _merged(element_dims, values.dims)
    if not values.items:
        if not is_fully_defined(dims):
            raise InvalidArgumentError(f"Tried to stack elements of an empty list with non-fully-defined element_shape: {shape_text(dims)}")
        return zeros_of((0, *dims), dtype)  # type: ignore[misc]
    for item in values.items:
        if item is not None:
            dims = _merged(dims, np.shape(item))
    if not is_fully_defined(dims):
        raise InvalidArgumentError(f"Tried to stack list which only contains uninitialized tensors and has a non-fully-defined element_shape: {shape_text(dims)}")
    return stacked([zeros_of(dims, dtype) if item is None else item for item in values.items], dtype)


def gather(values: TensorList, indices: list[int], element_dims: Dims, dtype: DType) -> Any:
    check_type(values, dtype)
    dims = _merged(element_dims, values.dims)
    if not indices:
        if not is_fully_defined(dims):
            raise InvalidArgumentError(f"Tried to gather 0-elements from a list with non-fully-defined shape: {shape_text(dims)}")
        return zeros_of((0, *dims), dtype)  # type: ignore[misc]
    for i in indices:
        if not 0 <= i < len(values.items):
            raise InvalidArgumentError(f"Trying to gather element {i} in a list with {len(values.items)} elements.")
        if values.items[i] is not None:
            dims = _merged(dims, np.shape(values.items[i]))
    if not is_fully_defined(dims):
        raise InvalidArgumentError(f"Tried to gather uninitialized tensors from a list with non-fully-defined shape: {shape_text(dims)}")
    chosen = [values.items[i] for i in indices]
    return stacked([zeros_of(dims, dtype) if item is None else item for item in chosen], dtype)


def check_rows(tensor: Any, element_dims: Dims) -> None:
    if np.ndim(tensor) == 0:
        raise InvalidArgumentError("Tensor must be at least a vector, but saw shape: []")
    if not compatible_dims(element_dims, np.shape(tensor)[1:]):
        raise InvalidArgumentError(
            f"Specified a list with shape {shape_text(element_dims)} from a tensor with shape {shape_text(np.shape(tensor)[1:])}"
        )


def from_tensor(tensor: Any, element_dims: Dims, dtype: DType) -> TensorList:
    check_rows(tensor, element_dims)
    return TensorList(dtype, element_dims, [row(tensor, i) for i in range(len(tensor))])


def scatter(items: list[Any], tensor: Any, indices: list[int], grow: bool) -> list[Any]:
    """`items` with row i of `tensor` at indices[i]."""
    if np.ndim(tensor) == 0 or len(indices) != len(tensor):
        rows = np.shape(tensor)[0] if np.ndim(tensor) else 0
        raise InvalidArgumentError(f"Invalid number of rows in input tensor. Expected: {len(indices)} Actual: {rows}")
    if any(i < 0 for i in indices):
        raise InvalidArgumentError("Indices in TensorListScatter must all be non-negative.")
    items = list(items)
    largest = max(indices, default=-1)
    if largest >= len(items):
        if not grow:
            raise InvalidArgumentError(f"TensorListScatter: Trying to scatter at index {largest} in list with size {len(items)}")
        items += [None] * (largest + 1 - len(items))
    for position, index in enumerate(indices):
        items[index] = row(tensor, position)
    return items


def concat(values: TensorList, element_dims: Dims, leading: list[int], dtype: DType) -> list[Any]:
    check_type(values, dtype)
    rest: Dims = None
    for dims in (element_dims, values.dims):
        if dims is not None:
            if not dims:
                raise InvalidArgumentError(f"Concat requires elements to be at least vectors, found scalars instead: {shape_text(dims)}")
            rest = _merged(rest, dims[1:])
    if not values.items:
        if not is_fully_defined(rest):
            shown = element_dims if element_dims is not None else values.dims
            raise InvalidArgumentError(
                "All except the first dimension must be fully defined when concating an empty tensor list. element_shape: " + shape_text(shown)
            )
        return [zeros_of((0, *rest), dtype), np.zeros([0], np.int64)]  # type: ignore[misc]
    size: int | None = None
    for i, item in enumerate(values.items):
        if item is not None:
            if np.ndim(item) == 0:
                raise InvalidArgumentError(f"Concat saw a scalar shape at index {i} but requires at least vectors.")
            rest = _merged(rest, np.shape(item)[1:])
            size = len(item) if size is None else size
    parts = []
    for i, item in enumerate(values.items):
        if item is None:
            rows = leading[i] if leading else size
            if not leading and element_dims is not None and element_dims[0] is not None:
                rows = element_dims[0]
            if rows is None or not is_fully_defined(rest):
                raise InvalidArgumentError(f"Tried to concat list which only contains uninitialized tensors but leading_dims was not given and element_shape is {shape_text(element_dims)}")
            item = zeros_of((rows, *rest), dtype)  # type: ignore[misc]
        parts.append(item)
    return [np.concatenate(parts), np.array([len(p) for p in parts], np.int64)]


def split(tensor: Any, lengths: list[int], element_dims: Dims, dtype: DType) -> TensorList:
    if np.ndim(tensor) == 0:
        raise InvalidArgumentError("Tensor must be at least a vector, but saw shape: []")
    rest = None if element_dims is None else element_dims[1:]
    if not compatible_dims(rest, np.shape(tensor)[1:]):
        raise InvalidArgumentError(f"tensor shape {shape_text(np.shape(tensor))} is not compatible with element_shape {shape_text(element_dims)}")
    items = []
    start = 0
    for length in lengths:
        if length < 0:
            raise InvalidArgumentError(f"Invalid value in lengths: {length}")
        stop = start + length
        if stop > len(tensor):
            raise InvalidArgumentError(f"Attempting to slice [{start}, {stop}] from tensor with length {len(tensor)}")
        items.append(tensor[start:stop])
        start = stop
    if start != len(tensor):
        raise InvalidArgumentError(f"Unused values in tensor. Length of tensor: {len(tensor)} Values used: {start}")
    return TensorList(dtype, element_dims, items)
