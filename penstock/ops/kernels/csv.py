"""Reading CSV records: RFC 4180's quotes, defaults, missing values, selected columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.ops.kernels.many_strings import MANY, cut, laid_out, lengths_of, own, parts_of, starts_of
from penstock.ops.kernels.numerals import numbers_at_once, plain_column, read_numbers
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.native.numerals import Fields, split

_INTEGER = re.compile(rb"\s*[+-]?\d+\s*\Z")
FEW = 32
"""Records up to which Python is as quick as arrays."""
_HEXADECIMAL = re.compile(rb"\s*[+-]?0[xX]")


def split_record(record: bytes, delimiter: bytes, quotes: bool) -> list[bytes]:
    """The fields of one record."""
    if not record:
        return []
    if b"\n" not in record and b"\r" not in record and not (quotes and b'"' in record):
        return record.split(delimiter)
    if not quotes:
        raise InvalidArgumentError("Unquoted fields cannot have quotes/CRLFs inside")
    plain = _plain_fields(delimiter)(record + delimiter)
    if sum(map(len, plain)) + len(plain) == len(record) + 1:  # nothing was passed over
        return [field[1:-1] if field[:1] == b'"' else field for field in plain]
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


@cache
def _plain_fields(delimiter: bytes) -> Callable[[bytes], list[bytes]]:
    """Finds all fields without quotes inside, each with a delimiter behind it."""
    if delimiter in b'"\r\n':
        return lambda record: []
    end = re.escape(delimiter)
    return re.compile(rb'("[^"]*"|[^"\r\n' + end + b"]*)" + end).findall


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
    flat = own(records).ravel()
    found = None if columns or na[:1] in _NUMERIC or len(flat) <= FEW else split(flat, len(types), delimiter)
    if found is not None:
        return [_found_column(flat, found, f, dtype, defaults[f], na).reshape(records.shape) for f, dtype in enumerate(types)]
    together = _split_quoted(flat, delimiter, len(types)) if quotes and not columns and len(flat) >= MANY else None
    if together is not None:
        return [_column(np.ascontiguousarray(together[:, f]), dtype, defaults[f], na, f).reshape(records.shape) for f, dtype in enumerate(types)]
    rows = [_select(split_record(record, delimiter, quotes), columns) for record in flat.tolist()]
    result = []
    for i, fields in enumerate(rows):
        if len(fields) != len(types):
            raise InvalidArgumentError(f"Expect {len(types)} fields but have {len(fields)} in record {i}")
    for f, (dtype, default) in enumerate(zip(types, defaults, strict=True)):
        fields = np.empty(len(rows), object)
        fields[:] = [row[f] for row in rows]
        result.append(_column(fields, dtype, default, na, f).reshape(records.shape))
    return result


def _split_quoted(records: np.ndarray, delimiter: bytes, count: int) -> np.ndarray | None:
    """The fields of many records with quotes, a row for each record; None if something is not as it should be, which has to be said record by record."""
    sizes = lengths_of(records)
    if delimiter in b'"\r\n' or not sizes.all():
        return None
    # With a delimiter behind each record, every field ends with one. Behind a quote that opens a part, the number of quotes is odd.
    starts = starts_of(sizes) + np.arange(len(records))
    letters = laid_out(int(sizes.sum()) + len(records), delimiter[0], (records, starts))
    is_quote = letters == ord('"')
    outside = (np.cumsum(is_quote, dtype=np.int32) & 1) == 0
    is_end = (letters == delimiter[0]) & outside
    ends = np.flatnonzero(is_end)
    if len(ends) != len(records) * count or (ends[count - 1 :: count] != starts + sizes).any():
        return None
    begins = np.append(0, ends[:-1] + 1)
    quotes = np.flatnonzero(is_quote)
    opening, closing = quotes[0::2], quotes[1::2]
    is_begin = np.zeros(letters.size, bool)
    is_begin[begins] = True
    opens_field = is_begin[opening]
    goes_on = np.append(-1, closing)[: len(opening)] == opening - 1  # two quotes that stand for one
    has_lines = (((letters == ord("\n")) | (letters == ord("\r"))) & outside).any()
    if has_lines or not (opens_field | goes_on).all() or not (is_end | is_quote)[closing + 1].all():
        return None
    is_quoted = is_quote[begins]
    fields = cut(letters, begins + is_quoted, ends - begins - 2 * is_quoted, len(ends))
    for i in np.unique(np.searchsorted(ends, opening[~opens_field])).tolist():
        fields[i] = fields.item(i).replace(b'""', b'"')
    return fields.reshape(-1, count)


_NUMERIC = tuple(bytes([c]) for c in b"0123456789.+-")
"""What a plain number may begin with."""


def _found_column(records: np.ndarray, found: Fields, f: int, dtype: DType, default: Any, na: bytes) -> np.ndarray:
    column = None if dtype is dtypes.string else plain_column(found, f, dtype)
    if column is not None:
        return column
    return _column(parts_of(records, np.ascontiguousarray(found.starts[:, f]), found.lengths[:, f]), dtype, default, na, f)


def _column(fields: np.ndarray, dtype: DType, default: Any, na: bytes, f: int) -> np.ndarray:
    column = _column_at_once(fields, dtype, default, na)
    if column is None:
        column = np.empty(len(fields), dtype=dtype.np)
        for i, field in enumerate(fields.tolist()):
            column[i] = _value(field, dtype, default, na, f, i)
    return column


def _column_at_once(fields: np.ndarray, dtype: DType, default: Any, na: bytes) -> np.ndarray | None:
    """The values of a column; None if there is one that has to be looked at."""
    few = fields.tolist() if len(fields) <= FEW else []
    if few and all(few) and not (na and na in few):
        return fields if dtype is dtypes.string else numbers_at_once(few, dtype)
    sizes = lengths_of(fields)
    is_missing = sizes == 0
    if na and (like := np.flatnonzero(sizes == len(na))).size:
        is_missing[like] = fields[like] == np.array(na, object)  # an array: NumPy takes the NULs off the end of a string
    missing = np.flatnonzero(is_missing)
    if not missing.size:
        return fields if dtype is dtypes.string else read_numbers(fields, dtype)
    if not np.size(default):
        return None
    fields = fields.copy()
    if dtype is dtypes.string:
        column = fields
    else:
        fields[missing] = b"0"
        column = read_numbers(fields, dtype)
    if column is not None:
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
