"""Tables as kernels use them: a dictionary from plain keys to values, behind a lock.

State of a Table
    key_dtype, value_dtype, value_shape   what it maps
    entries                               key as a Python int, float or bytes -> value (Python int, NumPy scalar, bytes, or row)
    rows                                  None, or the entries as arrays: besides the dictionary in a table that is filled once, instead of it in one that
                                          changes, from when keys first came many at a time
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, UnimplementedError
from penstock.forks import renewed
from penstock.graph.ir import Dims
from penstock.ops.kernels.table_rows import MANY, CannotTell, Rows, can_hold
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.resources import ResourceHandle
from penstock.shapes import format_dims

TABLE_TYPE = "N10tensorflow6lookup15LookupInterfaceE"

WHOLE_LINE, LINE_NUMBER = -2, -1


FEW_OF = 16
"""Rows are copied when some are removed: a table of so many times as many is a dictionary from then on."""


class Table:
    """What all tables share. Subclasses say what may be changed."""

    def __init__(self, key_dtype: DType, value_dtype: DType, value_shape: Dims = ()) -> None:
        self.key_dtype = key_dtype
        self.value_dtype = value_dtype
        self.value_shape: tuple[int, ...] = tuple(value_shape or ())  # type: ignore[arg-type]
        self.entries: dict[Any, Any] = {}
        self.rows: Rows | None = None
        self.lock = renewed(threading.RLock())

    def __len__(self) -> int:
        with self.lock:
            return len(self.entries) if self.rows is None else len(self.rows)

    def check_types(self, key_dtype: DType, value_dtype: DType, name: str) -> None:
        if (key_dtype, value_dtype) != (self.key_dtype, self.value_dtype):
            raise InvalidArgumentError(
                f"Conflicting key/value dtypes {dtype_text(key_dtype)}->{dtype_text(value_dtype)} with "
                f"{dtype_text(self.key_dtype)}-{dtype_text(self.value_dtype)} for table {name}"
            )

    def check_signature(self, handle: Any, given: tuple[DType, DType], result: DType | None = None) -> None:
        want = (self.key_dtype, self.value_dtype)
        if given != want:
            kind = "resource" if isinstance(handle, ResourceHandle) else "string_ref"
            have, expected = (", ".join([kind, *map(dtype_text, types)]) for types in (given, want))
            ends = ("", "") if result is None else (dtype_text(result), dtype_text(self.value_dtype))
            raise InvalidArgumentError(f"Signature mismatch, have: {have}->{ends[0]} expected: {expected}->{ends[1]}")

    def check_values(self, keys: np.ndarray, values: np.ndarray) -> None:
        want = keys.shape + self.value_shape
        if values.shape != want:
            raise InvalidArgumentError(f"Expected shape {format_dims(want)} for value, got {format_dims(values.shape)}")

    def find(self, keys: np.ndarray, default: np.ndarray) -> np.ndarray:
        """Values of `keys`; `default` (one value, or one per key) where there is none."""
        self.check_ready()
        shape = keys.shape + self.value_shape
        full = default.shape == shape and default.shape != self.value_shape
        if not full and default.shape != self.value_shape and default.size != 1:
            raise InvalidArgumentError(
                f"Expected shape {format_dims(self.value_shape)} or {format_dims(shape)} for default value, got {format_dims(default.shape)}"
            )
        defaults = default.reshape((keys.size, *self.value_shape)) if full else None
        one = (
            None
            if full
            else default.reshape(self.value_shape)
            if default.shape == self.value_shape
            else np.broadcast_to(default.reshape(()), self.value_shape)
        )
        with self.lock:
            rows = self._found_rows(keys)
            if rows is not None:
                return self._at_rows(rows, defaults if one is None else one, full).reshape(shape)
            get = self.entries.get  # of the dictionary there is now: another thread may make rows of it
        if one is not None and not self.value_shape:
            found = map(get, keys.ravel().tolist(), itertools.repeat(one.item()))
            return np.fromiter(found, self.value_dtype.np, keys.size).reshape(shape)
        result = np.empty((keys.size, *self.value_shape), dtype=self.value_dtype.np)
        for i, key in enumerate(keys.ravel().tolist()):
            value = get(key)
            result[i] = value if value is not None else (one[()] if one is not None else defaults[i])  # type: ignore[index]
        return result.reshape(shape)

    def _found_rows(self, keys: np.ndarray) -> np.ndarray | None:
        """The rows of keys; None if the dictionary has to be asked."""
        return None

    def _make_rows(self) -> None:
        rows = Rows(self.key_dtype, self.value_dtype, self.value_shape)
        rows.insert(*self.export())
        self.rows = rows

    def _at_rows(self, rows: np.ndarray, default: Any, full: bool) -> np.ndarray:
        """Values by row; `default`, one for each or one for all, for the rows below 0."""
        assert self.rows is not None
        if not full:
            return self.rows.take(rows, default)
        missing = rows < 0
        if missing.all():
            return default.copy()
        result = self.rows.values.take(rows, axis=0, mode="wrap")
        result[missing] = default[missing]
        return result

    def export(self) -> tuple[np.ndarray, np.ndarray]:
        """(keys, values), in no particular order."""
        self.check_ready()
        with self.lock:
            if self.rows is not None:
                return self.rows.items()
            items = list(self.entries.items())
        keys = np.empty(len(items), dtype=self.key_dtype.np)
        values = np.empty((len(items), *self.value_shape), dtype=self.value_dtype.np)
        for i, (key, value) in enumerate(items):
            keys[i] = key
            values[i] = value
        return keys, values

    def check_ready(self) -> None:
        """Raises if the table cannot be read yet."""

    def _pairs(self, keys: np.ndarray, values: np.ndarray) -> Any:
        rows = values.reshape((keys.size, *self.value_shape))
        # Rows are copied: the tensor they come from belongs to the step. Whole numbers are read faster as Python's.
        if self.value_shape:
            kept = rows.copy()
        else:
            kept = rows.tolist() if rows.dtype.kind in "iub" else rows
        return zip(keys.ravel().tolist(), kept, strict=True)

    def insert(self, keys: np.ndarray, values: np.ndarray) -> None:
        raise UnimplementedError("Insert not supported by InitializableLookupTable implementations")

    def remove(self, keys: np.ndarray) -> None:
        raise UnimplementedError("Remove not supported by InitializableLookupTable implementations")

    def replace(self, keys: np.ndarray, values: np.ndarray) -> None:
        raise NotImplementedError

    def initialize(self, keys: np.ndarray, values: np.ndarray) -> None:
        raise InvalidArgumentError("Table is not an initializable table: insert into it instead.")


class StaticTable(Table):
    """Filled once, then only read."""

    ready = False

    def check_ready(self) -> None:
        if not self.ready:
            raise FailedPreconditionError("Table not initialized.")

    def initialize(self, keys: np.ndarray, values: np.ndarray) -> None:
        self.check_values(keys, values)
        entries: dict[Any, Any] = {}
        for key, value in self._pairs(keys, values):
            old = entries.setdefault(key, value)
            if old is not value and old != value:
                shown = key.decode(errors="replace") if isinstance(key, bytes) else key
                raise FailedPreconditionError(
                    f"HashTable has different value for same key. Key {shown} has {old} and trying to add value {value}"
                )
        with self.lock:
            if self.ready:
                if entries != self.entries:
                    raise FailedPreconditionError("Table was already initialized with different data.")
                return
            self.entries = entries
            self.ready = True

    def replace(self, keys: np.ndarray, values: np.ndarray) -> None:
        self.initialize(keys, values)

    def _found_rows(self, keys: np.ndarray) -> np.ndarray | None:
        if keys.size < MANY or not can_hold(self.key_dtype):
            return None
        try:
            if self.rows is None:
                self._make_rows()
            assert self.rows is not None
            return self.rows.find(keys.ravel())
        except CannotTell:
            return None


class MutableTable(Table):
    """Changed at will."""

    may_have_rows = True

    def insert(self, keys: np.ndarray, values: np.ndarray) -> None:
        self.check_values(keys, values)
        with self.lock:
            if self.rows is None and self.may_have_rows and keys.size >= MANY and can_hold(self.key_dtype):
                self._change(lambda: self._make_rows())
                self.entries = {} if self.rows is not None else self.entries
            rows = self.rows
            if rows is None or not self._change(lambda: rows.insert(keys.ravel(), values.reshape((keys.size, *self.value_shape)))):
                self.entries.update(self._pairs(keys, values))

    def remove(self, keys: np.ndarray) -> None:
        with self.lock:
            if self.rows is not None and keys.size < len(self.rows) // FEW_OF:
                self._without_rows()
            rows = self.rows
            if rows is None or not self._change(lambda: rows.remove(keys.ravel())):
                for key in keys.ravel().tolist():
                    self.entries.pop(key, None)

    def replace(self, keys: np.ndarray, values: np.ndarray) -> None:
        self.check_values(keys, values)
        with self.lock:
            self.entries, self.rows = {}, None
            self.insert(keys, values)

    def _found_rows(self, keys: np.ndarray) -> np.ndarray | None:
        rows = self.rows
        found: list[np.ndarray] = []
        if rows is not None and self._change(lambda: found.append(rows.find(keys.ravel()))):
            return found[0]
        return None

    def _change(self, do: Callable[[], Any]) -> bool:
        """Whether that could be done with rows; if not, there are none from now on."""
        try:
            do()
        except CannotTell:
            self._without_rows()
            return False
        return True

    def _without_rows(self) -> None:
        if self.rows is not None:
            self.entries = dict(self._pairs(*self.rows.items()))
        self.rows, self.may_have_rows = None, False


class DenseTable(MutableTable):
    """A mutable table two of whose keys mean "nothing here" and "deleted", and so cannot be used."""

    def __init__(
        self, key_dtype: DType, value_dtype: DType, value_shape: Dims, empty_key: Any, deleted_key: Any
    ) -> None:
        super().__init__(key_dtype, value_dtype, value_shape)
        self.empty_key = np.asarray(empty_key).tolist()
        self.deleted_key = None if deleted_key is None else np.asarray(deleted_key).tolist()
        if self.deleted_key is not None and self.empty_key == self.deleted_key:
            raise InvalidArgumentError("Empty and deleted keys cannot be equal")

    def _check_keys(self, keys: np.ndarray) -> None:
        unusable = [k for k in (self.empty_key, self.deleted_key) if k is not None]
        if keys.dtype.kind in "iuO" and not any((keys == np.array(k, keys.dtype)).any() for k in unusable):
            return
        given = keys.ravel().tolist()
        for key in given:
            if key == self.empty_key:
                raise InvalidArgumentError("Using the empty_key as a table key is not allowed")
            if self.deleted_key is not None and key == self.deleted_key:
                raise InvalidArgumentError("Using the deleted_key as a table key is not allowed")

    def insert(self, keys: np.ndarray, values: np.ndarray) -> None:
        self._check_keys(keys)
        super().insert(keys, values)

    def remove(self, keys: np.ndarray) -> None:
        self._check_keys(keys)
        super().remove(keys)

    def find(self, keys: np.ndarray, default: np.ndarray) -> np.ndarray:
        self._check_keys(keys)
        return super().find(keys, default)


# -- text files -------------------------------------------------------------------------------------------------------


def text_file_entries(table: Table, path: str, key_index: int, value_index: int, vocab_size: int, delimiter: bytes,
                      offset: int) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Keys and values of a file's lines: the whole line, its number (plus `offset`), or one of its columns."""
    for index, dtype, what in ((key_index, table.key_dtype, "key"), (value_index, table.value_dtype, "value")):
        if index == LINE_NUMBER and dtype not in (dtypes.int64, dtypes.int32):
            raise InvalidArgumentError(
                f"Key index for line number requires {what} dtype of int64, got {dtype_text(dtype)}"
            )
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        raise NotFoundError(f"{path}; No such file or directory") from None
    if lines and not lines[-1]:
        lines.pop()
    lines = [line[:-1] if line.endswith(b"\r") else line for line in lines]
    if vocab_size >= 0:
        if len(lines) < vocab_size:
            raise InvalidArgumentError(f"Invalid vocab_size in {path}: expected {vocab_size} but got {len(lines)}")
        lines = lines[:vocab_size]
    keys, values = [], []
    for number, line in enumerate(lines):
        columns = line.split(delimiter) if max(key_index, value_index) >= 0 else [line]
        if max(key_index, value_index) >= len(columns):
            raise InvalidArgumentError(
                f"Invalid number of columns in {path} line {number} ({line.decode(errors='replace')}) : expected at least "
                f"{max(key_index, value_index) + 1} got {len(columns)}"
            )
        keys.append(_field(key_index, table.key_dtype, number, line, columns, offset))
        values.append(_field(value_index, table.value_dtype, number, line, columns, offset))
    return _array(keys, table.key_dtype), _array(values, table.value_dtype)


def _field(index: int, dtype: DType, number: int, line: bytes, columns: list[bytes], offset: int) -> Any:
    if index == LINE_NUMBER:
        return number + offset
    text = line if index == WHOLE_LINE else columns[index]
    if dtype is dtypes.string:
        return text
    try:
        return int(text) if dtype.is_integer else float(text)
    except ValueError:
        raise InvalidArgumentError(
            f"Field {text.decode(errors='replace')} in line {number} is not a valid {dtype_text(dtype)}."
        ) from None


def _array(values: list[Any], dtype: DType) -> np.ndarray:
    result = np.empty(len(values), dtype=dtype.np)
    for i, value in enumerate(values):
        result[i] = value
    return result
