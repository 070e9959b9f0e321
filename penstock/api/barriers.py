"""Barriers and staging areas, which TF1 programs reach through `data_flow_ops` (they have no name of their own under `tf`)."""

from __future__ import annotations

from typing import Any

from penstock.api.data_flow import as_shape_list, as_type_list
from penstock.graph.constant import constant_value
from penstock.graph.ir import Operation, Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape, unknown_shape


class Barrier:
    """Collects the components of elements by key, and gives out elements whose components are all there."""

    def __init__(self, types: Any, shapes: Any = None, shared_name: str | None = None, name: str = "barrier") -> None:
        self._types = as_type_list(types)
        if shapes is not None:
            self._shapes = as_shape_list(shapes, self._types) or []
            if len(self._shapes) != len(self._types):
                raise ValueError(f"Barrier shapes must have the same length as types, received len(shapes)={len(self._shapes)}, len(types)={len(self._types)}")
            for i, shape in enumerate(self._shapes):
                if shape.num_elements() == 0:
                    raise ValueError(f"Empty tensors are not supported, but received shape '{shape}' at index {i}")
        else:
            self._shapes = [unknown_shape() for _ in self._types]
        self._barrier_ref = raw.Barrier(component_types=self._types, shapes=self._shapes, shared_name=shared_name, name=name)
        self._name = self._barrier_ref.op.name.split("/")[-1]

    @property
    def barrier_ref(self) -> Tensor:
        """The barrier's handle."""
        return self._barrier_ref

    @property
    def name(self) -> str:
        return self._barrier_ref.op.name

    def insert_many(self, component_index: int, keys: Any, values: Any, name: str | None = None) -> Operation:
        """Gives each element of `keys` its component number `component_index`, the row of `values`."""
        return raw.BarrierInsertMany(self._barrier_ref, keys, values, component_index=component_index, name=name or f"{self._name}_BarrierInsertMany")

    def take_many(self, num_elements: Any, allow_small_batch: bool = False, timeout: int | None = None, name: str | None = None) -> Any:
        """`num_elements` complete elements as (indices, keys, values); waits for them. A closed barrier may give fewer if
        `allow_small_batch`."""
        ret = raw.BarrierTakeMany(
            self._barrier_ref, num_elements, component_types=self._types, allow_small_batch=allow_small_batch, timeout_ms=timeout,
            name=name or f"{self._name}_BarrierTakeMany",
        )  # fmt: skip
        size = None if allow_small_batch else constant_value(ret.indices.op.inputs[1])
        batch = TensorShape([None if size is None else int(size)])
        ret.indices.set_shape(batch)
        ret.keys.set_shape(batch)
        for tensor, shape in zip(ret.values, self._shapes, strict=True):
            tensor.set_shape(batch.concatenate(shape))
        return ret

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Operation:
        """No new keys will come; with `cancel_pending_enqueues`, no more components for the old ones either."""
        return raw.BarrierClose(self._barrier_ref, cancel_pending_enqueues=cancel_pending_enqueues, name=name or f"{self._name}_BarrierClose")

    def ready_size(self, name: str | None = None) -> Tensor:
        """How many elements are complete."""
        return raw.BarrierReadySize(self._barrier_ref, name=name or f"{self._name}_BarrierReadySize")

    def incomplete_size(self, name: str | None = None) -> Tensor:
        """How many elements have components, but not all."""
        return raw.BarrierIncompleteSize(self._barrier_ref, name=name or f"{self._name}_BarrierIncompleteSize")
