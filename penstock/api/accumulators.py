"""Conditional accumulators: `tf.ConditionalAccumulator`, `tf.SparseConditionalAccumulator`."""

from __future__ import annotations

from typing import Any

from penstock import dtypes as _dtypes
from penstock.api.export import export
from penstock.dtypes import DType
from penstock.graph.composite import IndexedSlices
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Operation, Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape, unknown_shape


def _int64(value: Any) -> Tensor:
    return raw.Cast(convert_to_tensor(value), DstT=_dtypes.int64)


@export("ConditionalAccumulatorBase")
class ConditionalAccumulatorBase:
    """Sums gradients up, drops those of older steps, and gives the sum or mean when enough have come."""

    def __init__(self, dtype: Any, shape: Any, accumulator_ref: Tensor) -> None:
        self._dtype = _dtypes.as_dtype(dtype)
        self._shape = TensorShape(shape) if shape is not None else unknown_shape()
        self._accumulator_ref = accumulator_ref
        self._prefix = "Resource" if accumulator_ref.dtype == _dtypes.resource else ""
        self._name = accumulator_ref.op.name.split("/")[-1]

    @property
    def accumulator_ref(self) -> Tensor:
        """The accumulator's handle."""
        return self._accumulator_ref

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> DType:
        return self._dtype

    def _raw(self, name: str) -> Any:
        return getattr(raw, f"{self._prefix}Accumulator{name}")

    def num_accumulated(self, name: str | None = None) -> Tensor:
        """How many gradients were applied since the last take."""
        return self._raw("NumAccumulated")(self._accumulator_ref, name=name or f"{self._name}_NumAccumulated")

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> Operation:
        """Sets the step below which gradients are dropped."""
        return self._raw("SetGlobalStep")(self._accumulator_ref, _int64(new_global_step), name=name)


@export("ConditionalAccumulator")
class ConditionalAccumulator(ConditionalAccumulatorBase):
    """An accumulator of dense gradients.

    >>> import penstock as tf
    >>> total = tf.ConditionalAccumulator(tf.float32, shape=())
    >>> add, mean = total.apply_grad(3.0), total.take_grad(1)
    >>> with tf.Session() as sess:
    ...     sess.run(add)
    ...     float(sess.run(mean))
    3.0
    """

    def __init__(self, dtype: Any, shape: Any = None, shared_name: str | None = None, name: str = "conditional_accumulator",
                 reduction_type: str = "MEAN") -> None:  # fmt: skip
        handle = raw.ResourceConditionalAccumulator(
            dtype=_dtypes.as_dtype(dtype), shape=TensorShape(shape), shared_name=shared_name, reduction_type=reduction_type, name=name
        )
        super().__init__(dtype, shape, handle)

    def apply_grad(self, grad: Any, local_step: Any = 0, name: str | None = None) -> Operation:
        """Adds `grad`, unless `local_step` is behind the accumulator's step."""
        gradient = convert_to_tensor(grad, self._dtype)
        gradient.shape.assert_is_compatible_with(self._shape)
        return self._raw("ApplyGradient")(self._accumulator_ref, _int64(local_step), gradient, name=name)

    def take_grad(self, num_required: Any, name: str | None = None) -> Tensor:
        """The mean (or sum) of the gradients, once `num_required` have come; starts anew, one step further."""
        out = self._raw("TakeGradient")(self._accumulator_ref, num_required, dtype=self._dtype, name=name)
        out.set_shape(self._shape)
        return out


@export("SparseConditionalAccumulator", "sparse.SparseConditionalAccumulator")
class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """An accumulator of sparse gradients (IndexedSlices). The mean of a row counts only the gradients that had that row."""

    def __init__(self, dtype: Any, shape: Any = None, shared_name: str | None = None, name: str = "sparse_conditional_accumulator",
                 reduction_type: str = "MEAN") -> None:  # fmt: skip
        handle = raw.SparseConditionalAccumulator(
            dtype=_dtypes.as_dtype(dtype), shape=TensorShape(shape), shared_name=shared_name, reduction_type=reduction_type, name=name
        )
        super().__init__(dtype, shape, handle)

    def apply_indexed_slices_grad(self, grad: IndexedSlices, local_step: Any = 0, name: str | None = None) -> Operation:
        """Adds an IndexedSlices."""
        return self.apply_grad(grad.indices, grad.values, grad.dense_shape, local_step, name)

    def apply_grad(self, grad_indices: Any, grad_values: Any, grad_shape: Any = None, local_step: Any = 0,
                   name: str | None = None) -> Operation:  # fmt: skip
        """Adds a gradient whose row `grad_indices[i]` is `grad_values[i]` and whose other rows are zero."""
        step = _int64(local_step)
        indices = raw.Cast(grad_indices, DstT=_dtypes.int64)
        shape = raw.Cast([] if grad_shape is None else grad_shape, DstT=_dtypes.int64)
        return raw.SparseAccumulatorApplyGradient(
            self._accumulator_ref, step, indices, grad_values, shape, has_known_shape=grad_shape is not None, name=name
        )

    def take_grad(self, num_required: Any, name: str | None = None) -> Any:
        """(indices, values, shape) of the mean (or sum), once `num_required` gradients have come."""
        return raw.SparseAccumulatorTakeGradient(self._accumulator_ref, num_required, dtype=self._dtype, name=name)

    def take_indexed_slices_grad(self, num_required: Any, name: str | None = None) -> IndexedSlices:
        """As `take_grad`, as an IndexedSlices."""
        taken = self.take_grad(num_required, name)
        return IndexedSlices(indices=taken.indices, values=taken.values, dense_shape=taken.shape)
