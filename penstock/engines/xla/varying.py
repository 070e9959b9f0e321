"""Sizes that differ from step to step: which they are, and how arrays get the room that a program for many sizes asks for (`padded`).

Axes whose sizes have always been equal are taken to be one size; a step in which they are not is computed without such a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.xla.sizes import LEAST

DISTINCT = 3
"""Combinations of shapes after which sizes that differ are taken to differ all the time."""
MOST_SEEN = 16
"""Combinations that are kept to find out which sizes go together."""
SMALLEST_ROOM = 8
LARGEST_ROOM = 1 << 16

Shapes = Sequence[tuple[int, ...]]
Cuts = tuple[tuple[int, int, int], ...]
"""(axis, number of the size, by what it is multiplied) of a result. ~n is for the size that is result n."""


class Padding(NamedTuple):
    """How values come into a program with room to spare: for each size, (number of the value, axis) of what has it, and the room."""

    groups: tuple[tuple[tuple[int, int], ...], ...]
    rooms: tuple[int, ...]

    def shapes(self, shapes: Shapes) -> list[tuple[int, ...]]:
        """The shapes with all the room."""
        found = [list(shape) for shape in shapes]
        for members, room in zip(self.groups, self.rooms):
            for number, axis in members:
                found[number][axis] = room
        return [tuple(shape) for shape in found]

    def wider(self) -> list[Padding]:
        """With twice and four times as much room."""
        return [self._replace(rooms=tuple(factor * room for room in self.rooms)) for factor in (2, 4)]

    def enter(self, values: Sequence[Any]) -> list[Any]:
        """Values as the program takes them, and behind them the sizes."""
        shapes = [value.shape for value in values]
        result = [*values, np.array([shapes[members[0][0]][members[0][1]] for members in self.groups], np.int32)]
        for number, (shape, whole) in enumerate(zip(shapes, self.shapes(shapes))):
            if shape != whole:
                room = np.zeros(whole, values[number].dtype)
                room[tuple(map(slice, shape))] = values[number]
                result[number] = room
        return result


def cut(results: tuple, cuts: dict[int, Cuts], n: int, padding: Padding | None, values: Sequence[Any]) -> tuple:
    """The `n` results without what does not count. Sizes that the program has found itself come behind them."""
    found = list(results[:n])
    for number, rows in cuts.items():
        value = found[number]
        part = [slice(None)] * value.ndim
        for axis, group, factor in rows:
            if group < 0:
                size = int(results[~group])
            else:
                assert padding is not None
                member, along = padding.groups[group][0]
                size = values[member].shape[along]
            part[axis] = slice(size * factor)
        found[number] = np.ascontiguousarray(value[tuple(part)])
    return tuple(found)


def _room(size: int, has_loops: bool) -> int:
    """A power of two, or one and a half times one. Loops run as often as they have to, and leave room as it is; other ops compute all of it."""
    room = max(SMALLEST_ROOM, 1 << (size - 1).bit_length())
    return room if has_loops or size > room * 3 // 4 or room == SMALLEST_ROOM else room * 3 // 4


class Varying:
    """What has been seen of the shapes of a program's values."""

    __slots__ = ("_groups", "_has_loops", "_seen")

    def __init__(self, has_loops: bool = False) -> None:
        self._has_loops = has_loops
        self._seen: list[tuple] = []
        self._groups: tuple[tuple[tuple[int, int], ...], ...] = ()

    def padding(self, shapes: Shapes) -> Padding | None:
        """Room for values of these shapes; None if they do not vary, or not like that."""
        if not self._groups or not self._is_one(shapes):
            self._learn(tuple(shapes))
            if not self._groups or not self._is_one(shapes):
                return None
        sizes = [shapes[members[0][0]][members[0][1]] for members in self._groups]
        if min(sizes) < LEAST or max(sizes) > LARGEST_ROOM:
            return None
        return Padding(self._groups, tuple(_room(n, self._has_loops) for n in sizes))

    def _learn(self, shapes: tuple) -> None:
        seen = self._seen
        if shapes in seen or len(seen) >= MOST_SEEN or (seen and [len(s) for s in shapes] != [len(s) for s in seen[0]]):
            return
        seen.append(shapes)
        if len(seen) < DISTINCT:
            return
        columns: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for number, rows in enumerate(zip(*seen)):
            for axis, sizes in enumerate(zip(*rows)):
                if len(set(sizes)) > 1:
                    columns.setdefault(sizes, []).append((number, axis))
        self._groups = tuple(map(tuple, columns.values()))

    def _is_one(self, shapes: Shapes) -> bool:
        """Whether sizes that go together are equal, and the others are as ever."""
        whole = [list(shape) for shape in shapes]
        for members in self._groups:
            if len({shapes[number][axis] for number, axis in members}) > 1:
                return False
            for number, axis in members:
                whole[number][axis] = self._seen[0][number][axis]
        return [tuple(shape) for shape in whole] == list(self._seen[0])
