"""Keys and values of a table as arrays, the rows of keys being found by machine code: for keys that come many at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.ops.native import texts
from penstock.ops.native.index import Index
from penstock.ops.native.text_index import TextIndex

MANY = 64
"""Keys from which on arrays are quicker than a dictionary."""


class CannotTell(Exception):
    """Something is no string."""


class Rows:
    """Row i of `keys` and `values` is an entry if i < len(self)."""

    def __init__(self, key_dtype: DType, value_dtype: DType, value_shape: tuple[int, ...]) -> None:
        self.keys = np.empty(0, key_dtype.np)
        self.values = np.empty((0, *value_shape), value_dtype.np)
        self._has_texts = self.keys.dtype == object
        self._index: Any = TextIndex() if self._has_texts else Index()

    def __len__(self) -> int:
        return self._index.count

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The row of each of a vector of keys, -1 where there is none."""
        rows = self._index.find(self._marks(keys))
        if rows is None:
            raise CannotTell
        return rows

    def take(self, rows: np.ndarray, default: np.ndarray) -> np.ndarray:
        """Values by row, the same default for all rows below 0."""
        if len(self) == len(self.values):
            self._grow(len(self) + 1)
        self.values[-1] = default[()]  # a row that is not used; -1 is the last one
        return self.values.take(rows, axis=0, mode="wrap")

    def insert(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Of equal keys the last one counts."""
        marks, before = self._marks(keys), len(self)
        rows = self._with_texts(marks) if self._has_texts else self._index.insert(marks)
        if not self._has_texts and len(self) > before:
            self._make_room()
            is_new = rows >= before
            self.keys[rows[is_new]] = keys[is_new]
        self.values[rows] = values

    def _with_texts(self, keys: np.ndarray) -> np.ndarray:
        """The row of each key; those that are new are put in."""
        rows, before = self.find(keys), len(self)
        is_new = rows < 0
        if not is_new.any():
            return rows
        new = keys[is_new]  # kept alive by this, whatever another thread does to the array
        where = self._index.insert(new)
        if where is None:
            self._put_in(self.keys[:before])
            raise CannotTell
        rows[is_new] = where
        self._make_room()
        self.keys[where] = new
        self._index.moved(self.keys)
        return rows

    def remove(self, keys: np.ndarray) -> None:
        stays = np.ones(len(self), bool)
        rows = self.find(keys)
        stays[rows[rows >= 0]] = False
        kept = np.flatnonzero(stays)
        self.keys, self.values = self.keys[kept], self.values[kept]
        self._put_in(self.keys)

    def items(self) -> tuple[np.ndarray, np.ndarray]:
        return self.keys[: len(self)].copy(), self.values[: len(self)].copy()

    def _marks(self, keys: np.ndarray) -> np.ndarray:
        """What the index knows keys by: strings themselves, numbers in 64 bits."""
        return np.ascontiguousarray(keys if self._has_texts else keys.astype(np.int64, copy=False))

    def _put_in(self, keys: np.ndarray) -> None:
        """The index has these, and nothing else."""
        self._index = TextIndex() if self._has_texts else Index()
        self._index.insert(self._marks(keys))

    def _make_room(self) -> None:
        if len(self) > len(self.keys):
            self._grow(2 * len(self))

    def _grow(self, size: int) -> None:
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = np.empty((size, *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)


def can_hold(key_dtype: DType) -> bool:
    return texts.can_read() and (key_dtype.np.kind in "iuO")
