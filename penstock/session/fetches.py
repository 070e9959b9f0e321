"""Fetches: any nested structure of tensors, operations and names <-> a flat list of what to run.

`FetchMapper.of(structure)` looks at the structure once; `unique` is what the runtime is asked for, without repeats, and `build`
packs its results back into the caller's structure. Classes take part through `register_session_run_conversion_functions`.
"""

from __future__ import annotations

import collections.abc
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.graph.composite import IndexedSlices, IndexedSlicesValue, SparseTensor, SparseTensorValue
from penstock.graph.ir import Graph, Operation, Tensor

# (class, fetch function, feed function, feed function for partial runs)
_conversions: list[tuple[type, Callable[..., Any], Callable[..., Any] | None, Callable[..., Any] | None]] = []


def register_session_run_conversion_functions(
    tensor_type: type,
    fetch_function: Callable[..., Any],
    feed_function: Callable[..., Any] | None = None,
    feed_function_for_partial_run: Callable[..., Any] | None = None,
) -> None:
    """Lets `Session.run` fetch and feed instances of `tensor_type`.

    `fetch_function(value)` -> (list of graph elements, function from their values to the result);
    `feed_function(value, feed_value)` -> [(tensor, value), ...]; `feed_function_for_partial_run(value)` -> [tensor, ...].
    """
    for known, *_ in _conversions:
        if issubclass(tensor_type, known) and known is tensor_type:
            raise ValueError(f"{tensor_type} has already been registered so ignore it.")
    _conversions.insert(0, (tensor_type, fetch_function, feed_function, feed_function_for_partial_run))


def feed_conversion(key: Any, value: Any) -> list[tuple[Any, Any]]:
    """[(graph element, value), ...] that feeding `key` with `value` stands for."""
    if isinstance(key, SparseTensor):
        parts = tuple(value)
        if len(parts) != 3:
            raise TypeError(f"A SparseTensor is fed with (indices, values, dense_shape), got {len(parts)} parts")
        return [(key.indices, parts[0]), (key.values, parts[1]), (key.dense_shape, parts[2])]
    if isinstance(key, IndexedSlices):
        parts = tuple(value)
        elements = [key.values, key.indices] + ([] if key.dense_shape is None else [key.dense_shape])
        return list(zip(elements, parts, strict=False))
    for cls, _, feed, _ in _conversions:
        if isinstance(key, cls):
            if feed is None:
                raise TypeError(f"Feeding a {type(key).__name__} is not possible: no feed function is registered for it")
            return list(feed(key, value))
    return [(key, value)]


def partial_feed_elements(key: Any) -> list[Any]:
    """The graph elements that must be declared to feed `key` in a partial run."""
    if isinstance(key, SparseTensor):
        return [key.indices, key.values, key.dense_shape]
    if isinstance(key, IndexedSlices):
        return [key.values, key.indices] + ([] if key.dense_shape is None else [key.dense_shape])
    for cls, _, _, partial in _conversions:
        if isinstance(key, cls) and partial is not None:
            return list(partial(key))
    return [key]


class FetchMapper:
    """How one fetch structure comes apart and together again. `elements` is flat; `build(values)` the inverse."""

    elements: list[Any]

    def build(self, values: list[Any]) -> Any:
        raise NotImplementedError

    @staticmethod
    def of(fetch: Any) -> FetchMapper:
        if fetch is None:
            raise TypeError(f"Argument `fetch` = {fetch} has invalid type \"{type(fetch).__name__}\". Cannot be None")
        if isinstance(fetch, (Tensor, Operation, str, bytes)):
            return _Element(fetch)
        if isinstance(fetch, (list, tuple)):
            return _Sequence(fetch)
        if isinstance(fetch, collections.abc.Mapping):
            return _Dict(fetch)
        if hasattr(type(fetch), "__attrs_attrs__"):
            return _Attrs(fetch)
        if isinstance(fetch, SparseTensor):
            return _Converted([fetch.indices, fetch.values, fetch.dense_shape], lambda v: SparseTensorValue(*v))
        if isinstance(fetch, IndexedSlices):
            elements = [fetch.values, fetch.indices] + ([] if fetch.dense_shape is None else [fetch.dense_shape])
            return _Converted(elements, lambda v: IndexedSlicesValue(v[0], v[1], v[2] if len(v) > 2 else None))
        for cls, function, _, _ in _conversions:
            if isinstance(fetch, cls):
                elements, contraction = function(fetch)
                return _Converted(list(elements), contraction)
        if hasattr(fetch, "_as_graph_element"):
            return _Element(fetch)
        raise TypeError(f"Argument `fetch` = {fetch} has invalid type \"{type(fetch).__name__}\". Must be a string or Tensor. (Can not convert a {type(fetch).__name__} into a Tensor or Operation.)")


class _Element(FetchMapper):
    def __init__(self, fetch: Any) -> None:
        self.elements = [fetch]

    def build(self, values: list[Any]) -> Any:
        return values[0]


class _Converted(FetchMapper):
    def __init__(self, elements: list[Any], contraction: Callable[[list[Any]], Any]) -> None:
        self.elements = elements
        self.contraction = contraction

    def build(self, values: list[Any]) -> Any:
        return self.contraction(list(values))


class _Composite(FetchMapper):
    def _split(self, children: list[Any]) -> None:
        self.mappers = [FetchMapper.of(child) for child in children]
        self.elements = [element for mapper in self.mappers for element in mapper.elements]

    def _parts(self, values: list[Any]) -> list[Any]:
        parts, start = [], 0
        for mapper in self.mappers:
            stop = start + len(mapper.elements)
            parts.append(mapper.build(values[start:stop]))
            start = stop
        return parts


class _Sequence(_Composite):
    def __init__(self, fetch: Any) -> None:
        self.kind = type(fetch)
        self._split(list(fetch))

    def build(self, values: list[Any]) -> Any:
        parts = self._parts(values)
        if issubclass(self.kind, list):
            return parts if self.kind is list else self.kind(parts)
        if hasattr(self.kind, "_fields"):
            return self.kind(*parts)
        return tuple(parts) if self.kind is tuple else self.kind(parts)


class _Dict(_Composite):
    def __init__(self, fetch: Any) -> None:
        self.kind = type(fetch)
        self.keys = list(fetch)
        self.default_factory = getattr(fetch, "default_factory", None)
        self._split([fetch[key] for key in self.keys])

    def build(self, values: list[Any]) -> Any:
        pairs = list(zip(self.keys, self._parts(values), strict=True))
        if self.default_factory is not None:
            return self.kind(self.default_factory, pairs)  # type: ignore[call-arg]
        return self.kind(pairs)  # type: ignore[call-arg]


class _Attrs(_Composite):
    def __init__(self, fetch: Any) -> None:
        self.kind = type(fetch)
        self._split([getattr(fetch, a.name) for a in self.kind.__attrs_attrs__])  # type: ignore[attr-defined]

    def build(self, values: list[Any]) -> Any:
        return self.kind(*self._parts(values))


class Fetches:
    """A checked fetch structure of one graph: `tensors` and `targets` to run, and where each value goes.

    `slots[i]` is the position of element i among `tensors`, or None for an operation, whose value is None.
    """

    def __init__(self, graph: Graph, structure: Any) -> None:
        self.mapper = FetchMapper.of(structure)
        self.tensors: list[Tensor] = []
        self.targets: list[Operation] = []
        self.slots: list[int | None] = []
        position: dict[Tensor, int] = {}
        for element in self.mapper.elements:
            item = _graph_element(graph, element)
            if not graph.is_fetchable(item):
                raise ValueError(f"{'Tensor' if isinstance(item, Tensor) else 'Operation'} {item.name!r} has been marked as not fetchable. Typically this happens when it is defined in another function or code block.")
            if isinstance(item, Operation):
                if item not in self.targets:
                    self.targets.append(item)
                self.slots.append(None)
            else:
                if item not in position:
                    position[item] = len(self.tensors)
                    self.tensors.append(item)
                self.slots.append(position[item])
        # The common shapes need no general packing.
        self.single = isinstance(self.mapper, _Element) and self.slots == [0]

    def build(self, values: list[Any]) -> Any:
        if self.single:
            return values[0]
        return self.mapper.build([None if slot is None else values[slot] for slot in self.slots])


def _graph_element(graph: Graph, element: Any) -> Any:
    try:
        return graph.as_graph_element(element, allow_tensor=True, allow_operation=True)
    except TypeError as error:
        raise TypeError(f"Argument `fetch` = {element} has invalid type \"{type(element).__name__}\". Must be a string or Tensor. ({error})") from error
    except ValueError as error:
        raise ValueError(f"Argument `fetch` = {element} cannot be interpreted as a Tensor. ({error})") from error
    except KeyError as error:
        raise ValueError(f"Argument `fetch` = {element} cannot be interpreted as a Tensor. ({error})") from error


def public(value: Any) -> Any:
    """A run-time value as the caller gets it: scalars as NumPy scalars, strings as bytes."""
    if value.__class__ is np.ndarray and value.ndim == 0:
        return value[()]
    return value
