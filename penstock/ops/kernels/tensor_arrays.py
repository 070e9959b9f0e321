"""TensorArray as a run-time object: slots that are written once and (mostly) read once.

What is known of a slot, by its index
    nothing      it has never been touched
    a value      written, and not read yet
    `Zeros`      written, in a gradient array: zeros of a shape until somebody writes a value
    `Read`       written and read; `value` is None if reading has cleared it

A gradient array adds up several writes to one slot, and starts with the shapes of the forward array's values, so that slots
without a gradient read as zeros.

`write` and `read` are for one thread at a time: kernels, which may run on several, hold `lock`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.kernels.texts import dtype_text
from penstock.shapes import compatible_dims, is_fully_defined


def shape_text(dims: Dims) -> str:
    """A shape as TF's runtime writes it: [2,3], [?,2], <unknown>."""
    if dims is None:
        return "<unknown>"
    return "[" + ",".join("?" if d is None else str(d) for d in dims) + "]"


def zeros_of(dims: Any, dtype: DType) -> Any:
    """A value of zeros; empty strings for strings."""
    if dtype is dtypes.string:
        return np.full(dims, b"", dtype=object)
    return np.zeros(dims, dtype.np)


def stacked(values: list[Any], dtype: DType) -> np.ndarray:
    """Values of one shape as one array with a new first axis."""
    if dtype.np.hasobject:
        shape = np.shape(values[0])
        result = np.empty((len(values), *shape), dtype=object)
        for i, value in enumerate(values):
            result[i] = value[()] if isinstance(value, np.ndarray) and shape == () else value
        return result
    shape = np.shape(values[0])
    if not shape:
        return np.array(values, dtype.np)
    return np.concatenate(values).reshape(len(values), *shape)


def row(value: Any, i: int) -> Any:
    """Row `i` of an array as a value of its own."""
    part = value[i]
    if value.dtype == object and not isinstance(part, np.ndarray) and isinstance(part, (bytes, str)):
        boxed = np.empty((), dtype=object)
        boxed[()] = part
        return boxed
    return part


class Zeros:
    """A slot of a gradient array that nobody has written to."""

    __slots__ = ("shape",)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


class Read:
    """A slot that has been read."""

    __slots__ = ("shape", "value")

    def __init__(self, shape: tuple[int, ...], value: Any = None) -> None:
        self.shape = shape
        self.value = value


_MARKS = frozenset((Zeros, Read))


class TensorArray:
    """The object behind a TensorArray's handle."""

    __slots__ = (
        "aggregates", "clear_after_read", "closed", "dtype", "dynamic_size", "element_dims", "exact", "gradients", "gradients_disallowed", "identical",
        "is_grad", "lock", "name", "size", "slots",
    )  # fmt: skip

    type_name = "N10tensorflow11TensorArrayE"

    def __init__(
        self, name: str, dtype: DType, size: int, element_dims: Dims = None, dynamic_size: bool = False, clear_after_read: bool = True,
        identical: bool = False, is_grad: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.dtype = dtype
        self.element_dims = element_dims
        self.exact = element_dims if is_fully_defined(element_dims) and dtype.is_numpy_compatible else None  # what the shape of a value has to be
        self.dynamic_size = dynamic_size
        self.clear_after_read = clear_after_read
        self.identical = identical
        self.is_grad = is_grad
        self.aggregates = is_grad
        self.gradients_disallowed = False
        self.closed = False
        self.size = size
        self.slots: dict[int, Any] = {}  # those that were touched: a size may be an upper bound
        self.gradients: dict[bytes, TensorArray] = {}
        self.lock = threading.RLock()

    def _error(self, text: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"TensorArray {self.name}: {text}")

    def check_open(self) -> None:
        if self.closed:
            raise InvalidArgumentError(f"TensorArray {self.name} has already been closed.")

    def close(self) -> None:
        # Values go at once; the array itself still answers, to say that it is closed.
        self.closed = True
        self.exact = None
        self.slots = {}

    # -- writing -------------------------------------------------------------------------------------------------------------

    def write(self, index: int, value: Any) -> None:
        if index not in self.slots and 0 <= index < self.size and self.exact is not None and value.shape == self.exact:
            self.slots[index] = value
        else:
            self._write(index, value)

    def _write(self, index: int, value: Any) -> None:
        """A write that is not the usual one, or wrong."""
        self.check_open()
        if index < 0 or (index >= self.size and not self.dynamic_size):
            raise self._error(f"Tried to write to index {index} but array is not resizeable and size is: {self.size}")
        if index >= self.size:
            self.size = index + 1
        shape = np.shape(value)
        if not compatible_dims(self.element_dims, shape):
            raise self._error(
                f"Could not write to TensorArray index {index} because the value shape is {shape_text(shape)} which is incompatible "
                f"with the TensorArray's inferred element shape: {shape_text(self.element_dims)} (consider setting infer_shape=False)."
            )
        if self.identical and not is_fully_defined(self.element_dims):
            self.element_dims = shape
            self.exact = shape if self.dtype.is_numpy_compatible else None
        slot = self.slots.get(index)
        if slot.__class__ is Read:
            raise self._error(f"Could not write to TensorArray index {index} because it has already been read.")
        if slot is None:
            self.slots[index] = value
            return
        if not self.aggregates:
            raise self._error(f"Could not write to TensorArray index {index} because it has already been written to.")
        if slot.shape != shape:
            raise self._error(
                f"Could not aggregate to TensorArray index {index} because the existing shape is {shape_text(slot.shape)} but the new "
                f"input shape is {shape_text(shape)}."
            )
        if slot.__class__ is Zeros:
            self.slots[index] = value
        else:
            self.slots[index] = slot + value
            # A sum of several writes has lost what each of them was.
            self.gradients_disallowed = True

    def write_rows(self, indices: Sequence[int], value: Any) -> None:
        """Row i of `value` goes to slot indices[i]."""
        if self._takes_rows(indices, value):
            self.slots.update(zip(indices, value))
            return
        for i, index in enumerate(indices):
            self.write(index, row(value, i))

    def _takes_rows(self, indices: Sequence[int], value: Any) -> bool:
        """Whether there is nothing to say about any of the rows."""
        if value.dtype == object or not len(indices) or len(set(indices)) < len(indices) or min(indices) < 0 or max(indices) >= self.size:
            return False
        shape = value.shape[1:]
        if self.closed or (self.exact != shape and (self.exact is not None or not compatible_dims(self.element_dims, shape))):
            return False
        if self.slots:
            for index in indices:
                slot = self.slots.get(index)
                if slot is not None and not (slot.__class__ is Zeros and slot.shape == shape):
                    return False
        if self.identical and self.exact is None:
            self.element_dims = self.exact = shape
        return True

    # -- reading -------------------------------------------------------------------------------------------------------------

    def read(self, index: int) -> Any:
        value = self.slots.get(index)
        if value is None or value.__class__ in _MARKS:
            value = self._unread(index)
        self.slots[index] = Read(np.shape(value), None if self.clear_after_read else value)
        return value

    def _unread(self, index: int) -> Any:
        """The value of a slot that is not simply written and unread."""
        self.check_open()
        if not 0 <= index < self.size:
            raise InvalidArgumentError(f"Tried to read from index {index} but array size is: {self.size}")
        slot = self.slots.get(index)
        if isinstance(slot, Read):
            if slot.value is None:
                raise self._error(
                    f"Could not read index {index} twice because it was cleared after a previous read (perhaps try setting clear_after_read "
                    "= false?)."
                )
            return slot.value
        if slot is None and not is_fully_defined(self.element_dims):
            raise self._error(
                f"Could not read from TensorArray index {index}.  Furthermore, the element shape is not fully defined: "
                f"{shape_text(self.element_dims)}.  It is possible you are working with a resizeable TensorArray and stop_gradients is "
                "not allowing the gradients to be written.  If you set the full element_shape property on the forward TensorArray, the "
                "proper all-zeros tensor will be returned instead of incurring this error."
            )
        return zeros_of(self.element_dims if slot is None else slot.shape, self.dtype)

    def read_all(self, indices: Sequence[int]) -> list[Any]:
        """The values of several slots, one after another."""
        read = self.read
        return [read(i) for i in indices]

    # -- gradients -----------------------------------------------------------------------------------------------------------

    def gradient(self, source: bytes, prepend: tuple[int, ...] = ()) -> TensorArray:
        """The array for this one's gradients in one call of gradients(), named by `source`; made by whoever asks first. This array's size is fixed from then on."""
        found = self.gradients.get(source)
        if found is None:
            found = self.gradients[source] = self._new_gradient(f"{self.name}@{source.decode()}", prepend)
        return found

    def _new_gradient(self, name: str, prepend: tuple[int, ...]) -> TensorArray:
        self.check_open()
        if self.gradients_disallowed:
            raise InvalidArgumentError(
                f"Unable to create a gradients TensorArray for {self.name}.  Perhaps you used the multiple_writes_aggregate flag on a "
                "previous write?  Gradient calculation is impossible when multiple writes are performed to the same index."
            )
        self.dynamic_size = False
        dims = None if self.element_dims is None else (*prepend, *self.element_dims)
        result = TensorArray(name, self.dtype, self.size, dims, identical=self.identical and not prepend, is_grad=True)
        result.slots = {index: Zeros((*prepend, *(slot.shape if slot.__class__ in _MARKS else np.shape(slot)))) for index, slot in self.slots.items()}
        return result


# -- what the kernels do with arrays --------------------------------------------------------------------------------------


def check_read_type(array: TensorArray, dtype: DType) -> None:
    if array.dtype is not dtype:
        raise InvalidArgumentError(f"TensorArray dtype is {dtype_text(array.dtype)} but Op requested dtype {dtype_text(dtype)}.")


def check_write_type(array: TensorArray, dtype: DType) -> None:
    if array.dtype is not dtype:
        raise InvalidArgumentError(f"TensorArray dtype is {dtype_text(array.dtype)} but Op is trying to write dtype {dtype_text(dtype)}.")


def gather(array: TensorArray, indices: list[int], dtype: DType, element_dims: Dims) -> Any:
    """The values at `indices`, stacked."""
    from penstock.errors import UnimplementedError

    check_read_type(array, dtype)
    if not indices:
        array.check_open()
        if not is_fully_defined(element_dims):
            raise UnimplementedError(
                f"TensorArray has size zero, but element shape {shape_text(element_dims)} is not fully defined. Currently only static shapes "
                "are supported when packing zero-size TensorArrays."
            )
        return zeros_of((0, *element_dims), dtype)  # type: ignore[misc]
    values = array.read_all(indices)
    first = np.shape(values[0])
    if not compatible_dims(element_dims, first):
        raise InvalidArgumentError(
            f"TensorArray was passed element_shape {shape_text(element_dims)} which does not match the Tensor at index 0: {shape_text(first)}"
        )
    for i, value in enumerate(values):
        if np.shape(value) != first:
            raise InvalidArgumentError(
                f"TensorArray has inconsistent shapes.  Index 0 has shape: {shape_text(first)} but index {i} has shape: {shape_text(np.shape(value))}"
            )
    return stacked(values, dtype)


def concat(array: TensorArray, dtype: DType, except0: Dims) -> list[Any]:
    """All values joined along their first axis, and their lengths."""
    from penstock.errors import UnimplementedError

    check_read_type(array, dtype)
    array.check_open()
    if array.size == 0:
        if not is_fully_defined(except0):
            raise UnimplementedError(
                f"TensorArray has size zero, but element_shape_except0 {shape_text(except0)} is not fully defined. Currently only static "
                "shapes are supported when concatenating zero-size TensorArrays."
            )
        return [zeros_of((0, *except0), dtype), np.zeros([0], np.int64)]  # type: ignore[misc]
    values = array.read_all(range(array.size))
    rest: tuple[int, ...] = ()
    for i, value in enumerate(values):
        shape = np.shape(value)
        if not shape:
            raise InvalidArgumentError(
                f"Concat saw a scalar shape at index {i} but requires at least vectors.  Did you mean to call pack?"
            )
        if i == 0:
            rest = shape[1:]
            if not compatible_dims(except0, rest):
                raise InvalidArgumentError(
                    f"TensorArray was passed element_shape_except0 {shape_text(except0)} but index 0 has (excepting dimension 0) shape: "
                    f"{shape_text(rest)} which does not match."
                )
        elif shape[1:] != rest:
            raise InvalidArgumentError(
                f"TensorArray has inconsistent shapes.  Index 0 has (excepting dimension 0) shape: {shape_text(rest)} but index {i} has "
                f"(excepting dimension 0) shape: {shape_text(shape[1:])}"
            )
    return [np.concatenate(values), np.array([len(v) for v in values], np.int64)]


def _at_least_vector(value: Any) -> None:
    if np.ndim(value) == 0:
        raise InvalidArgumentError("Expected value to be at least a vector, but received shape: []")


def unpack(array: TensorArray, value: Any, dtype: DType) -> None:
    """Row i goes to slot i."""
    check_write_type(array, dtype)
    _at_least_vector(value)
    if not array.dynamic_size and array.size != len(value):
        raise InvalidArgumentError(f"Input value must have first dimension equal to the array size ({len(value)} vs. {array.size})")
    array.write_rows(range(len(value)), value)


def scatter(array: TensorArray, indices: list[int], value: Any, dtype: DType) -> None:
    """Row i goes to slot indices[i]."""
    check_write_type(array, dtype)
    _at_least_vector(value)
    if len(indices) != len(value):
        raise InvalidArgumentError(f"Expected len(indices) == values.shape[0], but saw: {len(indices)} vs. {len(value)}")
    largest = max(indices, default=-1)
    if largest >= array.size and not array.dynamic_size:
        raise InvalidArgumentError(f"Max scatter index must be < array size ({largest} vs. {array.size})")
    array.write_rows(indices, value)


def split(array: TensorArray, value: Any, lengths: Any, dtype: DType) -> None:
    """Consecutive parts of `value` with these lengths go to slots 0, 1, ..."""
    check_write_type(array, dtype)
    if np.ndim(lengths) != 1:
        raise InvalidArgumentError(f"Expected lengths to be a vector, received shape: {shape_text(np.shape(lengths))}")
    _at_least_vector(value)
    sizes = [int(n) for n in lengths]
    total = sum(sizes)
    if total != len(value):
        raise InvalidArgumentError(
            f"Expected sum of lengths to be equal to values.shape[0], but sum of lengths is {total} and value's shape is: {shape_text(np.shape(value))}"
        )
    count = max(array.size, len(sizes)) if array.dynamic_size else array.size
    if len(sizes) != count:
        raise InvalidArgumentError(
            f"TensorArray's size is not equal to the size of lengths ({array.size} vs. {len(sizes)}), and the TensorArray is not marked as "
            "dynamically resizeable"
        )
    start = 0
    for i, size in enumerate(sizes):
        array.write(i, value[start : start + size])
        start += size


def as_list(name: str) -> Callable[[Any], list[int]]:
    def check(value: Any) -> list[int]:
        if np.ndim(value) != 1:
            raise InvalidArgumentError(f"Expected {name} to be a vector, but received shape: {shape_text(np.shape(value))}")
        return value.tolist()

    return check
