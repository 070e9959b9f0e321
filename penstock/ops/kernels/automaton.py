"""Patterns as automata over ASCII letters: what `re` has parsed becomes a table of states, which machine code follows through many strings.

    table[state, letter] -> state        state 0: no match any more; state 1: where every string begins

Only whether a whole string matches is asked, so that groups and the order of choices do not matter.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

if sys.version_info >= (3, 11):
    from re import _constants as _names  # type: ignore[attr-defined]
    from re import _parser  # type: ignore[attr-defined]
else:
    import sre_constants as _names
    import sre_parse as _parser

LETTERS = 128
_MOST_PARTS, _MOST_STATES = 500, 255
_ALL = (1 << LETTERS) - 1


class Automaton(NamedTuple):
    table: np.ndarray
    """[states, LETTERS] uint16, of the states' places in it in bytes."""
    accepts: np.ndarray
    """By state."""


class Letters(NamedTuple):
    """A pattern that matches one letter of a kind, or as many of them as there are."""

    table: np.ndarray
    """Which of all bytes are of this kind; of use for ASCII only."""
    is_run: bool


class _Unknown(Exception):
    """Something that no automaton is made of here, or too much of it."""


def automaton(pattern: str, flags: int) -> Automaton | None:
    """The automaton of a pattern for `re`; None if there is none."""
    try:
        parts = _Parts()
        start, end = parts.sequence(_without_anchors(_parsed(pattern, flags)), flags)
        return _states(parts, start, end)
    except (_Unknown, RecursionError):
        return None


def letters(pattern: str, flags: int) -> Letters | None:
    """The kind of letters that a pattern for `re` matches, if it is such a one."""
    items, is_run = _parsed(pattern, flags), False
    if len(items) == 1 and items[0][0] is _names.MAX_REPEAT and items[0][1][:2] == (1, _names.MAXREPEAT):
        items, is_run = list(items[0][1][2]), True
    if len(items) != 1:
        return None
    kind, value = items[0]
    try:
        bits = _letters(kind, value, flags)
    except _Unknown:
        return None
    return Letters(np.array([bits >> code & 1 for code in range(256)], bool), is_run)


def _parsed(pattern: str, flags: int) -> list[Any]:
    parsed: Any = _parser.parse(pattern, flags)
    return list(parsed)


def _without_anchors(items: list[Any]) -> list[Any]:
    """Without those at both ends, where every match has them."""
    while items and items[0] == (_names.AT, _names.AT_BEGINNING_STRING):
        items = items[1:]
    while items and items[-1] == (_names.AT, _names.AT_END_STRING):
        items = items[:-1]
    return items


class _Parts:
    """An automaton that may be in several states at once: from each a letter leads to another, or nothing does to others."""

    def __init__(self) -> None:
        self.by_letter: list[tuple[int, int] | None] = []  # the letters as bits, and where they lead
        self.at_once: list[list[int]] = []

    def new(self) -> int:
        if len(self.at_once) >= _MOST_PARTS:
            raise _Unknown
        self.by_letter.append(None)
        self.at_once.append([])
        return len(self.at_once) - 1

    def sequence(self, items: Any, flags: int) -> tuple[int, int]:
        start = end = self.new()
        for kind, value in items:
            first, last = self._item(kind, value, flags)
            self.at_once[end].append(first)
            end = last
        return start, end

    def _item(self, kind: Any, value: Any, flags: int) -> tuple[int, int]:
        if kind is _names.SUBPATTERN:
            _, more, fewer, items = value
            return self.sequence(items, (flags | more) & ~fewer)
        if kind is _names.BRANCH:
            start, end = self.new(), self.new()
            for items in value[1]:
                first, last = self.sequence(items, flags)
                self.at_once[start].append(first)
                self.at_once[last].append(end)
            return start, end
        if kind in (_names.MAX_REPEAT, _names.MIN_REPEAT):
            least, most, items = value
            return self._repeat(least, most, items, flags)
        start, end = self.new(), self.new()
        self.by_letter[start] = _letters(kind, value, flags), end
        return start, end

    def _repeat(self, least: int, most: int, items: Any, flags: int) -> tuple[int, int]:
        start = end = self.new()
        for _ in range(least):
            first, last = self.sequence(items, flags)
            self.at_once[end].append(first)
            end = last
        if most is _names.MAXREPEAT:
            around = self.new()
            first, last = self.sequence(items, flags)
            self.at_once[end].append(around)
            self.at_once[around].append(first)
            self.at_once[last].append(around)
            return start, around
        out = self.new()
        for _ in range(least, most):
            self.at_once[end].append(out)
            first, last = self.sequence(items, flags)
            self.at_once[end].append(first)
            end = last
        self.at_once[end].append(out)
        return start, out

    def closure(self, places: Iterator[int] | list[int]) -> frozenset[int]:
        found: set[int] = set()
        todo = list(places)
        while todo:
            place = todo.pop()
            if place not in found:
                found.add(place)
                todo += self.at_once[place]
        return frozenset(found)


def _letters(kind: Any, value: Any, flags: int) -> int:
    """The ASCII letters that one item matches, as bits."""
    if kind is _names.ANY:
        return _ALL if flags & re.DOTALL else _ALL & ~(1 << 10)
    if kind is _names.LITERAL:
        return _bits(value, value, flags)
    if kind is _names.NOT_LITERAL:
        return _ALL & ~_bits(value, value, flags)
    if kind is not _names.IN:
        raise _Unknown
    found, negate = 0, False
    for what, item in value:
        if what is _names.NEGATE:
            negate = True
        elif what is _names.LITERAL:
            found |= _bits(item, item, flags)
        elif what is _names.RANGE:
            low, high = item
            found |= _bits(low, high, flags)
        else:
            found |= _category(item)
    return _ALL & ~found if negate else found


def _bits(low: int, high: int, flags: int) -> int:
    if flags & re.IGNORECASE and high >= LETTERS:
        raise _Unknown  # some of them are ASCII letters in another case
    found = sum(1 << code for code in range(low, min(high, LETTERS - 1) + 1))
    if flags & re.IGNORECASE:
        found |= sum(1 << ord(chr(code).swapcase()) for code in range(low, high + 1))
    return found


_CATEGORIES = {
    _names.CATEGORY_DIGIT: r"\d", _names.CATEGORY_NOT_DIGIT: r"\D", _names.CATEGORY_SPACE: r"\s", _names.CATEGORY_NOT_SPACE: r"\S",
    _names.CATEGORY_WORD: r"\w", _names.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


@functools.cache
def _category(name: Any) -> int:
    if name not in _CATEGORIES:
        raise _Unknown
    member = re.compile(_CATEGORIES[name], re.ASCII)
    return sum(1 << code for code in range(LETTERS) if member.match(chr(code)))


def _states(parts: _Parts, start: int, end: int) -> Automaton:
    """One state for each set of places that can be reached at once."""
    kinds = _alike({letters for letters, _ in filter(None, parts.by_letter)})
    first = parts.closure([start])
    numbers: dict[frozenset[int], int] = {frozenset(): 0, first: 1}
    rows, todo = [np.zeros(LETTERS, np.uint16)], [first]
    for places in todo:
        row = np.zeros(LETTERS, np.uint16)
        steps = [step for step in map(parts.by_letter.__getitem__, places) if step is not None]
        for codes in kinds:
            reached = parts.closure([to for letters, to in steps if letters >> codes[0] & 1])
            if reached not in numbers:
                if len(numbers) >= _MOST_STATES:
                    raise _Unknown
                numbers[reached] = len(numbers)
                todo.append(reached)
            row[codes] = numbers[reached] * 2 * LETTERS
        rows.append(row)
    return Automaton(np.stack(rows), np.array([end in places for places in numbers]))


def _alike(sets: set[int]) -> list[list[int]]:
    """The letters in groups: those of one are in the same sets."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for code in range(LETTERS):
        groups.setdefault(tuple(letters >> code & 1 for letters in sets), []).append(code)
    return list(groups.values())
