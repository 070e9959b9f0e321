"""Barriers and staging areas, which TF1 programs reach through `data_flow_ops` (they have no name of their own under `tf`)."""

from __future__ import annotations

from typing import Any

from penstock.api.data_flow import as_shape_list, as_type_list
from penstock.api.framework import name_scope
from penstock.graph.constant import constant_value
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
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


class _BaseStagingArea:
    """What staging areas have in common: types, shapes, names, limits, and a name that their ops share."""

    def __init__(self, dtypes: Any, shapes: Any = None, names: Any = None, shared_name: str | None = None, capacity: int = 0,
                 memory_limit: int = 0) -> None:  # fmt: skip
        graph = get_default_graph()
        self._name = graph.unique_name(type(self).__name__) if shared_name is None else shared_name
        if shared_name is not None and not isinstance(shared_name, str):
            raise ValueError("shared_name must be a string")
        self._dtypes = as_type_list(dtypes)
        if shapes is not None:
            if len(shapes) != len(self._dtypes):
                raise ValueError("StagingArea shapes must be the same length as dtypes")
            self._shapes = [TensorShape(s) for s in shapes]
        else:
            self._shapes = [unknown_shape() for _ in self._dtypes]
        if names is not None and len(names) != len(self._dtypes):
            raise ValueError("StagingArea names must be the same length as dtypes")
        self._names = names
        self._capacity = capacity
        self._memory_limit = memory_limit
        # All ops of the area must be where its values are.
        with name_scope(f"{self._name}_root"):
            self._coloc_op = raw.NoOp()

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtypes(self) -> list[Any]:
        return self._dtypes

    @property
    def shapes(self) -> list[TensorShape]:
        return self._shapes

    @property
    def names(self) -> Any:
        return self._names

    @property
    def capacity(self) -> int:
        """The most elements it holds; 0 means any number."""
        return self._capacity

    @property
    def memory_limit(self) -> int:
        """The most bytes it holds; 0 means any number."""
        return self._memory_limit

    def _attrs(self) -> dict[str, Any]:
        return dict(shared_name=self._name, capacity=self._capacity, memory_limit=self._memory_limit)

    def _here(self) -> Any:
        return get_default_graph().colocate_with(self._coloc_op)

    def _check_put(self, vals: Any, indices: Any = None) -> tuple[list[Tensor], list[int]]:
        """The values as tensors, and which of the area's components they are."""
        if isinstance(vals, dict):
            if not self._names:
                raise ValueError("Staging areas must have names to enqueue a dictionary")
            if not set(vals).issubset(self._names):
                raise ValueError(f"Keys in dictionary to put do not match names of staging area. Dictionary: {sorted(vals)}Queue: {sorted(self._names)}")
            where = sorted(self._names.index(key) for key in vals)
            values = [vals[self._names[i]] for i in where]
        else:
            if self._names:
                raise ValueError("You must enqueue a dictionary in a staging area with names")
            values = list(vals) if isinstance(vals, (list, tuple)) else [vals]
            where = list(range(len(values))) if indices is None else list(indices)
            if indices is None and len(values) != len(self._dtypes):
                raise ValueError(f"Unexpected number of inputs {len(values)} vs {len(self._dtypes)}")
        tensors = []
        for i, value in zip(where, values, strict=True):
            tensor = convert_to_tensor(value, self._dtypes[i])
            if not tensor.shape.is_compatible_with(self._shapes[i]):
                raise ValueError(f"Values shape {tensor.shape} does not match the staging area's {self._shapes[i]} at index {i}")
            tensors.append(tensor)
        return tensors, where

    def _got(self, tensors: Any, where: list[int]) -> Any:
        for i, tensor in zip(where, tensors, strict=True):
            tensor.set_shape(self._shapes[i])
        if self._names:
            return {self._names[i]: t for i, t in zip(where, tensors, strict=True)}
        return list(tensors)


class StagingArea(_BaseStagingArea):
    """A buffer between steps: `put` in one step, `get` in another, first in first out."""

    def put(self, values: Any, name: str | None = None) -> Operation:
        """Adds one element; waits while the area is full."""
        with name_scope(name, f"{self._name}_put") as scope:
            tensors, _ = self._check_put(values)
            with self._here():
                return raw.Stage(tensors, name=scope, **self._attrs())

    def get(self, name: str | None = None) -> Any:
        """Takes the oldest element; waits for one."""
        with self._here():
            got = raw.Unstage(dtypes=self._dtypes, name=name or f"{self._name}_get", **self._attrs())
        return self._got(got, list(range(len(self._dtypes))))

    def peek(self, index: Any, name: str | None = None) -> Any:
        """The element number `index`, which stays; waits for it."""
        with self._here():
            got = raw.StagePeek(index, dtypes=self._dtypes, name=name or f"{self._name}_peek", **self._attrs())
        return self._got(got, list(range(len(self._dtypes))))

    def size(self, name: str | None = None) -> Tensor:
        """How many elements the area holds."""
        return raw.StageSize(dtypes=self._dtypes, name=name or f"{self._name}_size", **self._attrs())

    def clear(self, name: str | None = None) -> Operation:
        """Drops all elements."""
        return raw.StageClear(dtypes=self._dtypes, name=name or f"{self._name}_clear", **self._attrs())


class MapStagingArea(_BaseStagingArea):
    """A buffer between steps whose elements have int64 keys, and may be put and taken component by component.

    `ordered` makes a `get` without a key take the smallest one.
    """

    def __init__(self, dtypes: Any, shapes: Any = None, names: Any = None, shared_name: str | None = None, ordered: bool = False,
                 capacity: int = 0, memory_limit: int = 0) -> None:  # fmt: skip
        super().__init__(dtypes, shapes, names, shared_name, capacity, memory_limit)
        self._kind = "OrderedMap" if ordered else "Map"

    def _raw(self, name: str) -> Any:
        return getattr(raw, self._kind + name)

    def put(self, key: Any, vals: Any, indices: Any = None, name: str | None = None) -> Operation:
        """Adds an element, or those of its components that `indices` (or the keys of a dict) name."""
        with name_scope(name, f"{self._name}_put") as scope:
            tensors, where = self._check_put(vals, indices)
            with self._here():
                return self._raw("Stage")(key, where, tensors, dtypes=self._dtypes, name=scope, **self._attrs())

    def _where(self, indices: Any) -> list[int]:
        if indices is None:
            return list(range(len(self._dtypes)))
        if not isinstance(indices, (list, tuple)):
            raise TypeError(f"Invalid indices type {type(indices)}")
        if all(isinstance(i, str) for i in indices):
            if self._names is None:
                raise ValueError(f"String indices provided {indices}, but this Staging Area was not created with names.")
            missing = [i for i in indices if i not in self._names]
            if missing:
                raise ValueError(f"Named index {missing[0]} not in Staging Area names {self._names}")
            return [self._names.index(i) for i in indices]
        if any(not isinstance(i, int) for i in indices):
            raise TypeError(f"Mixed types in indices {indices}, may only be str or int")
        return list(indices)

    def get(self, key: Any = None, indices: Any = None, name: str | None = None) -> Any:
        """(key, values) of an element, or of those of its components that `indices` name; waits for it."""
        where = self._where(indices)
        types = [self._dtypes[i] for i in where]
        with self._here():
            if key is None:
                key, got = self._raw("UnstageNoKey")(where, dtypes=types, name=name or f"{self._name}_get", **self._attrs())
            else:
                got = self._raw("Unstage")(key, where, dtypes=types, name=name or f"{self._name}_get", **self._attrs())
        return key, self._got(got, where)

    def peek(self, key: Any, indices: Any = None, name: str | None = None) -> Any:
        """As `get`, but the element stays."""
        where = self._where(indices)
        types = [self._dtypes[i] for i in where]
        with self._here():
            got = self._raw("Peek")(key, where, dtypes=types, name=name or f"{self._name}_pop", **self._attrs())
        return self._got(got, where)

    def size(self, name: str | None = None) -> Tensor:
        """How many complete elements the area holds."""
        return self._raw("Size")(dtypes=self._dtypes, name=name or f"{self._name}_size", **self._attrs())

    def incomplete_size(self, name: str | None = None) -> Tensor:
        """How many elements wait for components."""
        return self._raw("IncompleteSize")(dtypes=self._dtypes, name=name or f"{self._name}_incomplete_size", **self._attrs())

    def clear(self, name: str | None = None) -> Operation:
        """Drops all elements."""
        return self._raw("Clear")(dtypes=self._dtypes, name=name or f"{self._name}_clear", **self._attrs())
