"""tf.TensorArray: a list of tensors that a loop fills and reads by index."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api.export import export
from penstock.dtypes import DType
from penstock.graph.constant import constant, constant_value
from penstock.graph.control_flow import dynamic_shape
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape, unknown_shape


@export("TensorArray")
class TensorArray:
    """Tensors of one type, each written once; a loop variable of `tf.while_loop` like any other.

    Every method that writes returns a new TensorArray object, which must be used from then on: its `flow` orders later reads
    behind the write. `clear_after_read` (default True) frees an element when it is read, which allows one read only.

    >>> ta = tf.TensorArray(tf.float32, size=3).unstack([1.0, 2.0, 3.0])
    >>> total = ta.read(0) + ta.read(2)
    """

    def __init__(
        self,
        dtype: Any,
        size: Any = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        tensor_array_name: str | None = None,
        handle: Tensor | None = None,
        flow: Tensor | None = None,
        infer_shape: bool = True,
        element_shape: Any = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
    ) -> None:
        given = {"tensor_array_name": tensor_array_name, "size": size, "dynamic_size": dynamic_size, "clear_after_read": clear_after_read}
        if handle is not None:
            for key, value in given.items():
                if value is not None and value != "":
                    raise ValueError(f"Cannot provide both `handle` and `{key}` arguments at the same time.")
            if flow is None:
                raise ValueError("flow must not be None if handle is not None.")
        elif size is None:
            raise ValueError("Argument `size` must be provided if handle is not provided.")
        if clear_after_read is None:
            clear_after_read = True
        self._dynamic_size = bool(dynamic_size)
        self._size = size
        self._dtype = dtypes.as_dtype(dtype).base_dtype
        self._colocate_with_first_write_call = colocate_with_first_write_call
        # One-element lists, which all objects for the same array share.
        self._colocate_with: list[Any] | None = [] if colocate_with_first_write_call else None
        if element_shape is None:
            self._infer_shape = infer_shape
            self._element_shape = [unknown_shape()]
        else:
            self._infer_shape = True
            self._element_shape = [TensorShape(element_shape)]
        graph = get_default_graph()
        with graph.name_scope(name or "TensorArray") as scope:
            if handle is not None:
                self._handle, self._flow = handle, flow
                return
            # The device stays open: the first write decides it.
            with graph.device(None) if colocate_with_first_write_call else contextlib.nullcontext():
                made = raw.TensorArrayV3(
                    size, dtype=self._dtype, element_shape=self._element_shape[0], identical_element_shapes=infer_shape,
                    dynamic_size=self._dynamic_size, clear_after_read=clear_after_read, tensor_array_name=tensor_array_name or "", name=scope,
                )  # fmt: skip
            self._handle, self._flow = made[0], made[1]

    # -- what it is ------------------------------------------------------------------------------------------------------

    @property
    def flow(self) -> Tensor:
        """The tensor that stands for the state of the array after all writes so far."""
        return self._flow  # type: ignore[return-value]

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def handle(self) -> Tensor:
        return self._handle

    @property
    def element_shape(self) -> TensorShape:
        """The static shape of the elements, as far as writes have told."""
        return self._element_shape[0]

    @property
    def dynamic_size(self) -> bool:
        return self._dynamic_size

    @property
    def graph(self) -> Any:
        return self._handle.graph

    @property
    def op(self) -> Operation:
        return self._handle.op

    def _with_flow(self, flow: Tensor) -> TensorArray:
        """The same array after `flow`."""
        result = TensorArray(
            dtype=self._dtype, handle=self._handle, flow=flow, infer_shape=self._infer_shape,
            colocate_with_first_write_call=self._colocate_with_first_write_call,
        )  # fmt: skip
        result._dynamic_size = self._dynamic_size
        result._size = self._size
        result._colocate_with = self._colocate_with
        result._element_shape = self._element_shape
        return result

    def identity(self) -> TensorArray:
        """The same array; ops inside of control dependencies can wait before it goes on."""
        return self._with_flow(raw.Identity(self.flow))

    def grad(self, source: str, flow: Tensor | None = None, name: str | None = None) -> TensorArray:
        """The array of this one's gradients for the call of gradients() that `source` names."""
        graph = get_default_graph()
        if flow is None:
            flow = self.flow
        with graph.name_scope(name or "TensorArrayGrad"):
            with graph.colocate_with(self._handle.op):
                handle = raw.TensorArrayGradV3(self._handle, flow, source=source, name=name)[0]
                with graph.control_dependencies([handle]):
                    flow = raw.Identity(flow, name="gradient_flow")
            result = TensorArray(dtype=self._dtype, handle=handle, flow=flow, infer_shape=self._infer_shape, colocate_with_first_write_call=False)
            result._element_shape = self._element_shape
            return result

    # -- checks ------------------------------------------------------------------------------------------------------------

    def _check_element_shape(self, shape: TensorShape) -> None:
        if not self._infer_shape:
            return
        if not self.element_shape.is_compatible_with(shape):
            raise ValueError(f"Inconsistent shapes: saw {shape} but expected {self.element_shape}")
        self._element_shape[0] = self.element_shape.merge_with(shape)

    def _value(self, value: Any) -> Tensor:
        tensor = convert_to_tensor(value, preferred_dtype=self._dtype, name="value")
        if tensor.dtype.base_dtype != self._dtype:
            # TF reports this loudly but lets the step fail; so do we.
            warnings.warn(f"Input value {tensor} has dtype {tensor.dtype.name}, but expected dtype {self._dtype.name}. The step will fail.", stacklevel=4)
        return tensor

    @contextlib.contextmanager
    def _colocated(self, value: Tensor) -> Iterator[None]:
        """Puts the write, and by it the array, where the first value written comes from."""
        if self._colocate_with is None:
            yield
            return
        if not self._colocate_with:
            self._colocate_with.append(value)
        with get_default_graph().colocate_with(self._colocate_with[0].op):
            yield

    # -- reading -----------------------------------------------------------------------------------------------------------

    def read(self, index: Any, name: str | None = None) -> Tensor:
        """The element at `index`."""
        value = raw.TensorArrayReadV3(self._handle, index, self.flow, dtype=self._dtype, name=name)
        if self.element_shape.rank is not None:
            value.set_shape(self.element_shape)
        return value

    def gather(self, indices: Any, name: str | None = None) -> Tensor:
        """The elements at `indices`, stacked."""
        value = raw.TensorArrayGatherV3(self._handle, indices, self.flow, dtype=self._dtype, element_shape=self.element_shape, name=name)
        if self.element_shape.rank is not None:
            value.set_shape([None, *self.element_shape.as_list()])
        return value

    def stack(self, name: str | None = None) -> Tensor:
        """All elements as one tensor with a new first axis."""
        graph = get_default_graph()
        with graph.colocate_with(self._handle.op), graph.name_scope(name or "TensorArrayStack"):
            value = self.gather(_range(self.size()), name=name)
            if self.element_shape.rank is not None and not self._dynamic_size and self._size is not None:
                size = constant_value(self._size) if isinstance(self._size, Tensor) else self._size
                value.set_shape([None if size is None else int(size), *self.element_shape.as_list()])
            return value

    def concat(self, name: str | None = None) -> Tensor:
        """All elements joined along their first axis."""
        known = self.element_shape.rank is not None
        rest = self.element_shape[1:] if known and self.element_shape.rank else TensorShape(None)
        value = raw.TensorArrayConcatV3(self._handle, self.flow, dtype=self._dtype, element_shape_except0=rest, name=name)[0]
        if known and self.element_shape.rank:
            rows = None
            if self._infer_shape and not self._dynamic_size and self._size is not None:
                size = constant_value(self._size) if isinstance(self._size, Tensor) else self._size
                if size is not None and self.element_shape.as_list()[0] is not None:
                    rows = int(size) * self.element_shape.as_list()[0]  # type: ignore[operator]
            value.set_shape([rows, *self.element_shape.as_list()[1:]])
        return value

    def size(self, name: str | None = None) -> Tensor:
        """The number of elements."""
        if not self._dynamic_size and self._size is not None:
            return convert_to_tensor(self._size, dtype=dtypes.int32)
        return raw.TensorArraySizeV3(self._handle, self.flow, name=name)

    def close(self, name: str | None = None) -> Operation:
        """Frees the array."""
        return raw.TensorArrayCloseV3(self._handle, name=name)

    # -- writing -----------------------------------------------------------------------------------------------------------

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """Writes one element."""
        with get_default_graph().name_scope(name or "TensorArrayWrite"):
            tensor = self._value(value)
            self._check_element_shape(tensor.shape)
            with self._colocated(tensor):
                flow = raw.TensorArrayWriteV3(self._handle, index, tensor, self.flow, name=name)
            return self._with_flow(flow)

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """Row i of `value` becomes element i."""
        with get_default_graph().name_scope(name or "TensorArrayUnstack"):
            tensor = convert_to_tensor(value, preferred_dtype=self._dtype, name="value")
            rows = _first(dynamic_shape(tensor))
            return self.scatter(_range(rows), tensor, name=name)

    def scatter(self, indices: Any, value: Any, name: str | None = None) -> TensorArray:
        """Row i of `value` becomes element indices[i]."""
        with get_default_graph().name_scope(name or "TensorArrayScatter"):
            tensor = self._value(value)
            if tensor.shape.rank is not None and tensor.shape.rank > 0:
                self._check_element_shape(tensor.shape[1:])
            with self._colocated(tensor):
                flow = raw.TensorArrayScatterV3(self._handle, indices, tensor, self.flow, name=name)
            return self._with_flow(flow)

    def split(self, value: Any, lengths: Any, name: str | None = None) -> TensorArray:
        """The first lengths[0] rows of `value` become element 0, and so on."""
        with get_default_graph().name_scope(name or "TensorArraySplit"):
            tensor = self._value(value)
            with self._colocated(tensor):
                with get_default_graph().name_scope("Cast") as scope:
                    lengths = convert_to_tensor(lengths, name="x")
                    wide = lengths if lengths.dtype == dtypes.int64 else raw.Cast(lengths, DstT=dtypes.int64, name=scope)
                sizes = constant_value(lengths)
                if tensor.shape.rank and sizes is not None and sizes.size and sizes.max() == sizes.min():
                    self._check_element_shape(TensorShape([int(sizes.ravel()[0])]).concatenate(tensor.shape[1:]))
                flow = raw.TensorArraySplitV3(self._handle, tensor, wide, self.flow, name=name)
            return self._with_flow(flow)

    def __repr__(self) -> str:
        return f"<tf.TensorArray '{self._handle.op.name}' dtype={self._dtype.name} element_shape={self.element_shape}>"


def _range(limit: Any) -> Tensor:
    with get_default_graph().name_scope("range") as scope:
        start = constant(np.int32(0), dtypes.int32, name="start")
        limit = convert_to_tensor(limit, dtypes.int32, name="limit")
        return raw.Range(start, limit, constant(np.int32(1), dtypes.int32, name="delta"), name=scope)


def _first(shape: Tensor) -> Tensor:
    with get_default_graph().name_scope("strided_slice") as scope:
        parts = [constant(np.array([v], np.int32), dtypes.int32, name=n) for n, v in (("stack", 0), ("stack_1", 1), ("stack_2", 1))]
        return raw.StridedSlice(shape, *parts, shrink_axis_mask=1, name=scope)
