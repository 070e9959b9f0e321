"""Reading CSV records: RFC 4180's quotes, defaults, missing values, selected columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.ops.kernels.numerals import numbers_at_once, plain_column
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.native.numerals import Fields, split

_INTEGER = re.compile(rb"\s*[+-]?\d+\s*\Z")
_HEXADECIMAL = re.compile(rb"\s*[+-]?0[xX]")


def split_record(record: bytes, delimiter: bytes, quotes: bool) -> list[bytes]:
    """The fields of one record."""
    if not record:
        return []
    if b"\n" not in record and b"\r" not in record and not (quotes and b'"' in record):
        return record.split(delimiter)
    if not quotes:
        raise InvalidArgumentError("Unquoted fields cannot have quotes/CRLFs inside")
    fields, i, n = [], 0, len(record)
    while True:
        if record[i : i + 1] == b'"':
            field, i = _quoted(record, i + 1, delimiter)
        else:
            end = record.find(delimiter, i)
            end = n if end < 0 else end
            field = record[i:end]
            if any(c in field for c in b'"\r\n'):
                raise InvalidArgumentError("Unquoted fields cannot have quotes/CRLFs inside")
            i = end
        fields.append(field)
        if i >= n:
            return fields
        i += 1  # the delimiter
        if i == n:
            fields.append(b"")
            return fields


def _quoted(record: bytes, i: int, delimiter: bytes) -> tuple[bytes, int]:
    """The field that begins behind a quote at `i`, and where its delimiter stands."""
    parts, n = [], len(record)
    while True:
        end = record.find(b'"', i)
        if end < 0:
            raise InvalidArgumentError("Quoted field has to end with quote followed by delim or end")
        parts.append(record[i:end])
        following = record[end + 1 : end + 2]
        if following == b'"':
            parts.append(b'"')
            i = end + 2
        elif end + 1 == n or following == delimiter:
            return b"".join(parts), end + 1
        else:
            raise InvalidArgumentError("Quote inside a string has to be escaped by another quote")


def decode_csv(
    records: np.ndarray, defaults: Sequence[Any], types: Sequence[DType], delimiter: bytes, quotes: bool, na: bytes, columns: Sequence[int]
) -> list[np.ndarray]:
    """One array per field, in the shape of `records`."""
    if len(delimiter) != 1:
        raise InvalidArgumentError("field_delim should be only 1 char")
    for i, default in enumerate(defaults):
        if np.size(default) > 1:
            raise InvalidArgumentError(f"There should only be 1 default per field but field {i} has {np.size(default)}")
    flat = records.ravel()
    found = None if columns or na[:1] in _NUMERIC else split(flat, len(types), delimiter)
    if found is not None:
        return [_found_column(flat, found, f, dtype, defaults[f], na).reshape(records.shape) for f, dtype in enumerate(types)]
    rows = [_select(split_record(record, delimiter, quotes), columns) for record in flat.tolist()]
    result = []
    for i, fields in enumerate(rows):
        if len(fields) != len(types):
            raise InvalidArgumentError(f"Expect {len(types)} fields but have {len(fields)} in record {i}")
    for f, (dtype, default) in enumerate(zip(types, defaults, strict=True)):
        result.append(_column([row[f] for row in rows], dtype, default, na, f).reshape(records.shape))
    return result


_NUMERIC = tuple(bytes([c]) for c in b"0123456789.+-")
"""What a plain number may begin with."""


def _found_column(records: np.ndarray, found: Fields, f: int, dtype: DType, default: Any, na: bytes) -> np.ndarray:
    column = None if dtype is dtypes.string else plain_column(found, f, dtype)
    if column is not None:
        return column
    places = zip(records.tolist(), found.starts[:, f].tolist(), found.lengths[:, f].tolist(), strict=True)
    return _column([record[start : start + length] for record, start, length in places], dtype, default, na, f)


def _column(fields: list[bytes], dtype: DType, default: Any, na: bytes, f: int) -> np.ndarray:
    column = _column_at_once(fields, dtype, default, na)
    if column is None:
        column = np.empty(len(fields), dtype=dtype.np)
        for i, field in enumerate(fields):
            column[i] = _value(field, dtype, default, na, f, i)
    return column


def _column_at_once(fields: list[bytes], dtype: DType, default: Any, na: bytes) -> np.ndarray | None:
    """The values of a column; None if there is one that has to be looked at."""
    missing = [i for i, field in enumerate(fields) if not field or field == na]
    if missing and not np.size(default):
        return None
    if dtype is dtypes.string:
        column = np.empty(len(fields), object)
        column[:] = fields
    else:
        for i in missing:
            fields[i] = b"0"
        column = numbers_at_once(fields, dtype)
    if missing:
        if column is None:
            for i in missing:
                fields[i] = b""
        else:
            column[missing] = np.ravel(default)[0]
    return column


def _value(field: bytes, dtype: DType, default: Any, na: bytes, f: int, record: int) -> Any:
    if not field or field == na:
        if not np.size(default):
            raise InvalidArgumentError(f"Field {f} is required but missing in record {record}!")
        return np.ravel(default)[0]
    return field if dtype is dtypes.string else _number(field, dtype, f, record)


def _select(fields: list[bytes], columns: Sequence[int]) -> list[bytes]:
    return [fields[c] for c in columns if c < len(fields)] if columns else fields


def _number(field: bytes, dtype: DType, f: int, record: int) -> Any:
    try:
        if dtype.is_integer:
            if not _INTEGER.match(field):
                raise ValueError
            value = int(field)
            if not dtype.min <= value <= dtype.max:
                raise ValueError
            return value
        if b"_" in field:  # Python's own way to write numbers
            raise ValueError
        return float.fromhex(field.decode()) if _HEXADECIMAL.match(field) else float(field)
    except ValueError:
        text = field.decode(errors="replace")
        raise InvalidArgumentError(f"Field {f} in record {record} is not a valid {dtype_text(dtype)}: {text}") from None
