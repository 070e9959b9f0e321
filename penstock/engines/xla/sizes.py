"""Values of programs for many sizes: how much of an axis counts, arrays with such axes, whole numbers that are such sizes. See `padded`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.engines.xla.rule import jnp, lax, static_ints

LEAST = 2
"""Smaller sizes are not for padded programs."""


class Size:
    """How much of an axis counts: `number`, of `room`. Multiples of a size are sizes of their own, each of them one object."""

    __slots__ = ("_multiples", "_number", "base", "factor", "room")

    def __init__(self, number: Any, room: int, base: Size | None = None, factor: int = 1) -> None:
        self._number = number
        self.room = room
        self.base = base or self
        self.factor = factor
        self._multiples: dict[int, Size] = {1: self}

    @property
    def number(self) -> Any:
        """Computed where it is asked for: what a loop's body computes is known only there."""
        return self.base._number * np.int32(self.factor)

    def times(self, factor: int) -> Size:
        """The size of an axis that was joined with one of `factor` behind it."""
        base, factor = self.base, self.factor * factor
        if factor not in base._multiples:
            base._multiples[factor] = Size(None, base.room * factor, base, factor)
        return base._multiples[factor]


class Padded:
    """An array, and which of its axes have room to spare. It has no `shape`, so that nobody takes it for another array."""

    __slots__ = ("axes", "is_range", "value")

    def __init__(self, value: Any, axes: dict[int, Size], is_range: bool = False) -> None:
        self.value = value
        self.axes = axes
        self.is_range = is_range  # 0, 1, 2, ...

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return self.value.ndim

    def elements(self) -> list[Any]:
        """The shape, with sizes."""
        return [self.axes.get(i, n) for i, n in enumerate(self.value.shape)]

    def filled(self, number: Any, along: Sequence[int] | None = None) -> Any:
        """The array with `number` in the place of what does not count."""
        value = self.value
        for axis, size in self.axes.items():
            if along is None or axis in along:
                counts = lax.broadcasted_iota(np.int32, value.shape, axis) < size.number
                value = jnp.where(counts, value, np.asarray(number, value.dtype))
        return value


class Symbolic:
    """Whole numbers, some of which are sizes."""

    __slots__ = ("dtype", "items", "ndim")

    def __init__(self, items: Sequence[Any], dtype: Any, ndim: int = 1) -> None:
        self.items = list(items)
        self.dtype = np.dtype(dtype)
        self.ndim = ndim

    def traced(self) -> Any:
        """As an array of the program's."""
        found = [jnp.asarray(item.number if isinstance(item, Size) else item, self.dtype) for item in self.items]
        return jnp.stack(found) if self.ndim else found[0]


def symbolic(items: Sequence[Any], dtype: Any, ndim: int = 1) -> Any:
    """Numbers that are known if none of them is a size."""
    if any(isinstance(item, Size) for item in items):
        return Symbolic(items, dtype, ndim)
    return np.array(items if ndim else items[0], dtype)


def items_of(value: Any) -> list[Any]:
    """Whole numbers one by one; Dynamic if they are not known or sizes."""
    return value.items if isinstance(value, Symbolic) else list(static_ints(value))


def made(value: Any, items: Sequence[Any]) -> Any:
    """An array whose shape with sizes is known."""
    axes = {i: item for i, item in enumerate(items) if isinstance(item, Size)}
    return Padded(value, axes) if axes else value


def rooms(items: Sequence[Any]) -> list[int]:
    """A shape with sizes as the shape of the array with all its room."""
    return [item.room if isinstance(item, Size) else int(item) for item in items]


def is_padded(values: Sequence[Any]) -> bool:
    """Whether something here is not an ordinary value."""
    return any(isinstance(v, (Padded, Symbolic)) for v in values)
