"""Keys and values of a table as arrays, the rows of keys being found by machine code: for keys that come many at a time.

Strings go by their hashes, and are compared with the key that is found; two keys with one hash, should there ever be such, cannot be told apart here.
"""

from __future__ import annotations

import numpy as np

from penstock.dtypes import DType
from penstock.ops.native import making, texts
from penstock.ops.native.index import Index

MANY = 64
"""Keys from which on arrays are quicker than a dictionary."""


class CannotTell(Exception):
    """Two keys have the same hash, or something is no string."""


class Rows:
    """Row i of `keys` and `values` is an entry if i < len(self)."""

    def __init__(self, key_dtype: DType, value_dtype: DType, value_shape: tuple[int, ...]) -> None:
        self.keys = np.empty(0, key_dtype.np)
        self.values = np.empty((0, *value_shape), value_dtype.np)
        self._index = Index()

    def __len__(self) -> int:
        return self._index.count

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The row of each of a vector of keys, -1 where there is none."""
        keys = np.ascontiguousarray(keys)
        rows = self._index.find(_marks(keys))
        if keys.dtype == object and len(self):
            is_there = rows >= 0
            everything = is_there.all()
            if not _are_same(keys if everything else keys[is_there], self.keys.take(rows if everything else rows[is_there])):
                raise CannotTell
        return rows

    def insert(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Of equal keys the last one counts."""
        keys = np.ascontiguousarray(keys)
        marks, before = _marks(keys), len(self)
        rows = self._index.insert(marks)
        if len(self) > len(self.keys):
            self._grow(2 * len(self))
        if len(self) > before:
            is_new = rows >= before
            self.keys[rows[is_new]] = keys[is_new]
        if keys.dtype == object and not _are_same(keys, self.keys.take(rows)):
            self._index = Index()
            self._index.insert(_marks(self.keys[:before].copy()))
            raise CannotTell
        self.values[rows] = values

    def remove(self, keys: np.ndarray) -> None:
        stays = np.ones(len(self), bool)
        rows = self.find(keys)
        stays[rows[rows >= 0]] = False
        kept_keys, kept_values = self.keys[: len(self)][stays], self.values[: len(self)][stays]
        self._index = Index()
        self.keys, self.values = kept_keys, kept_values
        self._index.insert(_marks(kept_keys))

    def items(self) -> tuple[np.ndarray, np.ndarray]:
        return self.keys[: len(self)].copy(), self.values[: len(self)].copy()

    def _grow(self, size: int) -> None:
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = np.empty((size, *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)


def can_hold(key_dtype: DType) -> bool:
    return texts.can_read() and (key_dtype.np.kind in "iuO")


def _marks(keys: np.ndarray) -> np.ndarray:
    """A number of 64 bits for each key."""
    if keys.dtype != object:
        return np.ascontiguousarray(keys.astype(np.int64, copy=False))
    hashes = texts.murmurs(keys)
    if hashes is None:
        raise CannotTell
    return hashes.view(np.int64)


def _are_same(keys: np.ndarray, found: np.ndarray) -> bool:
    return not keys.size or making.are_same(keys, found)
