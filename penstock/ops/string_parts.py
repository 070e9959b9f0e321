"""Strings and their parts: split, cut, stripped, in upper or lower case, and how long they are."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, same_as, with_rank
from penstock.ops.kernels.many_strings import (
    MANY,
    cut,
    laid_out,
    lengths_of,
    letters_of,
    own,
    parts_of,
    starts_of,
    sums_of,
)
from penstock.ops.native import texts
from penstock.ops.samples import NO_TEXTS, TEXTS, arr, many, strings
from penstock.ops.strings import each_number, each_string, string_array
from penstock.shapes import format_dims, merge_dims

# -- splitting --------------------------------------------------------------------------------------------------------

_LETTERS = [bytes([letter]) for letter in range(256)]
_SPACE = b" \t\n\v\f\r"


def split_at_any(text: bytes, delimiters: bytes, skip_empty: bool) -> list[bytes]:
    """Pieces between any of the delimiter bytes; single bytes if there are none."""
    if not text:
        return []
    if not delimiters:
        return list(map(_LETTERS.__getitem__, text))
    first = delimiters[:1]
    if len(delimiters) > 1:
        text = text.translate(_all_as_first(delimiters))
    pieces = text.split(first)
    return [p for p in pieces if p] if skip_empty and b"" in pieces else pieces


@functools.lru_cache(64)
def _all_as_first(delimiters: bytes) -> bytes:
    """The table for `translate` that makes one delimiter of all."""
    return bytes(delimiters[0] if b in delimiters else b for b in range(256))


def split_like_python(text: bytes, sep: bytes, maxsplit: int) -> list[bytes]:
    """Python's `split`, but with `maxsplit` splits done, what is left counts as a piece even if it is empty."""
    if maxsplit == 0:
        return [text]
    if sep:
        return text.split(sep, maxsplit)
    pieces = text.split(None, maxsplit)
    if maxsplit > 0 and len(pieces) == maxsplit:
        pieces.append(b"")
    elif maxsplit > 0 and len(pieces) > maxsplit:
        # Python cuts white space off the end of the rest; TF does not.
        rest = text.lstrip(_SPACE)
        for piece in pieces[:maxsplit]:
            rest = rest[len(piece) :].lstrip(_SPACE)
        pieces[-1] = rest
    return pieces


def _ragged(rows: list[list[bytes]]) -> list[np.ndarray]:
    """indices, values and shape of the sparse matrix of these rows."""
    pieces = list(itertools.chain.from_iterable(rows))
    return _sparse_parts(string_array(pieces, len(pieces)), np.fromiter(map(len, rows), np.int64, len(rows)))


def _sparse_parts(pieces: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """The same for the pieces of all rows, and how many each has."""
    total = len(pieces)
    indices = np.empty((total, 2), np.int64)
    indices[:, 0] = np.repeat(np.arange(len(lengths)), lengths)
    np.subtract(np.arange(total), np.repeat(starts_of(lengths), lengths), out=indices[:, 1])
    return [indices, pieces, np.array([len(lengths), int(lengths.max()) if len(lengths) else 0], np.int64)]


def string_split_kernel(x: np.ndarray, delimiter: np.ndarray, *, skip_empty: bool) -> list[np.ndarray]:
    if x.ndim != 1:
        raise InvalidArgumentError(f"input must be a vector, got shape: {format_dims(x.shape)}")
    if delimiter.ndim > 1 or (delimiter.ndim == 1 and delimiter.size != 1):
        raise InvalidArgumentError(f"delimiter must be a scalar, got shape: {format_dims(delimiter.shape)}")
    at = delimiter.item()
    if len(x) >= MANY:
        return _split_together(x, at, skip_empty)
    return _ragged([split_at_any(v, at, skip_empty) for v in x.tolist()])


def _split_together(x: np.ndarray, delimiters: bytes, skip_empty: bool, most: int | None = None) -> list[np.ndarray]:
    """`_ragged` of many strings that are split at any of the delimiters, or into single letters; empty strings have no pieces.
    With `most`, so many splits at most are done (-1: all of them), and empty strings are pieces too."""
    sizes = lengths_of(x)
    starts = starts_of(sizes)
    if not delimiters:
        letters = letters_of(x, sizes)
        return _sparse_parts(cut(letters, np.arange(letters.size), np.ones(letters.size, np.int64), letters.size), sizes)
    # With a delimiter behind each string, every piece ends with one.
    starts += np.arange(len(x))
    letters = laid_out(int(sizes.sum()) + len(x), delimiters[0], (x, starts))
    is_end = letters == delimiters[0] if len(delimiters) == 1 else _are_in(delimiters)[letters]
    ends = np.flatnonzero(is_end)
    begins = np.empty_like(ends)
    begins[0] = 0
    np.add(ends[:-1], 1, out=begins[1:])
    lengths = ends - begins
    is_empty = lengths == 0
    is_last = np.zeros(letters.size, bool)  # of a string's pieces
    is_last[starts + sizes] = True
    counts = np.diff(np.flatnonzero(is_last[ends]), prepend=-1)
    if most is not None:
        if most >= 0:
            number = np.arange(len(ends)) - np.repeat(starts_of(counts), counts)
            stays, is_rest = number <= most, number == most
            lengths = np.where(is_rest, np.repeat(starts + sizes, counts) - begins, lengths)[stays]
            begins, counts = begins[stays], np.minimum(counts, most + 1)
    elif is_empty.any():
        rows = np.repeat(np.arange(len(x)), counts)
        stays = ~is_empty if skip_empty else sizes[rows] > 0
        counts = np.bincount(rows[stays], minlength=len(x))
        begins, lengths = begins[stays], lengths[stays]
    return _sparse_parts(cut(letters, begins, lengths, len(begins)), counts)


@functools.lru_cache(64)
def _are_in(delimiters: bytes) -> np.ndarray:
    table = np.zeros(256, bool)
    table[np.frombuffer(delimiters, np.uint8)] = True
    return table


def string_split_v2_kernel(x: np.ndarray, sep: np.ndarray, *, maxsplit: int) -> list[np.ndarray]:
    if x.ndim != 1:
        raise InvalidArgumentError(f"input must be a vector, got shape: {format_dims(x.shape)}")
    if sep.ndim:
        raise InvalidArgumentError(f"sep must be a scalar, got shape: {format_dims(sep.shape)}")
    at = sep.item()
    if len(x) >= MANY and maxsplit < 0 and not at:
        return _split_together(x, _SPACE, True)
    if len(x) >= MANY and maxsplit and len(at) == 1:
        return _split_together(x, at, False, max(maxsplit, -1))
    values = x.tolist()
    if at and maxsplit:
        return _ragged([v.split(at, maxsplit) for v in values])
    return _ragged([split_like_python(v, at, maxsplit) for v in values])


def string_split_shape(c: Any) -> list[Dims]:
    with_rank(c, 0, 1)
    with_rank(c, 1, 0)
    return [(None, 2), (None,), (2,)]


op("StringSplit(input: string, delimiter: string) -> (indices: int64, values: string, shape: int64) [skip_empty: bool = true]",
   shape=string_split_shape, numpy=string_split_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[
       dict(input=strings(["hello  world", " a b c ", ""]), delimiter=strings(" ")),
       dict(input=strings(["hello  world", " a b c ", ""]), delimiter=strings(" "), skip_empty=False),
       dict(input=strings(["a,b;c", "d"]), delimiter=strings(",;")),
       dict(input=strings(["abc", ""]), delimiter=strings("")),
       dict(input=strings([]), delimiter=strings(" ")),
       *[dict(input=many(NO_TEXTS), delimiter=strings(d), skip_empty=s) for d in (" ", " ,;", "") for s in (True, False)],
   ])  # fmt: skip
op("StringSplitV2(input: string, sep: string) -> (indices: int64, values: string, shape: int64) [maxsplit: int = -1]",
   shape=string_split_shape, numpy=string_split_v2_kernel,
   samples=[
       dict(input=strings(["hello  world", " a b c ", ""]), sep=strings("")),
       dict(input=strings(["a<>b<><>c", "d", ""]), sep=strings("<>")),
       dict(input=strings(["a<>b<>c", "d"]), sep=strings("<>"), maxsplit=1),
       dict(input=strings(["  a  b c  ", "d", ""]), sep=strings(""), maxsplit=1),
       dict(input=strings([" a b "]), sep=strings(""), maxsplit=0),
       *[dict(input=many(NO_TEXTS), sep=strings(s), maxsplit=m) for s in ("", ",", "b ") for m in (-1, 0, 1, 2)],
   ])  # fmt: skip


# -- one string at a time ---------------------------------------------------------------------------------------------


def _check_encoding(encoding: bytes) -> bool:
    if encoding not in (b"", b"utf-8"):
        raise InvalidArgumentError(f"only utf-8 or '' (no encoding) is supported, received {encoding.decode(errors='replace')}")
    return bool(encoding)


def _in_case(x: np.ndarray, encoding: bytes, of_bytes: Callable[[bytes], bytes], of_text: Callable[[str], str]) -> np.ndarray:
    if not _check_encoding(encoding):
        if x.size < MANY:
            return each_string(of_bytes, x)
        lengths = lengths_of(x)
        text = of_bytes(letters_of(x, lengths).tobytes())
        return cut(np.frombuffer(text, np.uint8), starts_of(lengths), lengths, x.shape)
    # As in TF, text ends at its first zero byte. With one behind each string, no letter's case depends on what is beyond it.
    values = x.ravel().tolist()
    text = b"\0".join(values)
    if text.count(b"\0") >= len(values):
        text = b"\0".join([v.partition(b"\0")[0] for v in values])
    return string_array(of_text(text.decode("utf-8", "replace")).encode().split(b"\0") if values else [], x.shape)


def lower_kernel(x: np.ndarray, *, encoding: bytes) -> np.ndarray:
    return _in_case(x, encoding, bytes.lower, str.lower)


def upper_kernel(x: np.ndarray, *, encoding: bytes) -> np.ndarray:
    return _in_case(x, encoding, bytes.upper, str.upper)


op("StringLower(input: string) -> (output: string) [encoding: string = '']",
   shape=same_as("input"), numpy=lower_kernel,
   samples=[
       dict(input=strings(["AbC ÄÖ", ""])), dict(input=strings(["AbC ÄÖ"]), encoding="utf-8"), dict(input=many(NO_TEXTS)),
       dict(input=many([*TEXTS, "ΑΣ", "Σ"]), encoding="utf-8"),
   ])  # fmt: skip
op("StringUpper(input: string) -> (output: string) [encoding: string = '']",
   shape=same_as("input"), numpy=upper_kernel,
   samples=[dict(input=strings(["AbC äöß", ""])), dict(input=strings("AbC äöß"), encoding="utf-8"), dict(input=many(NO_TEXTS)), dict(input=many(TEXTS), encoding="utf-8")],
   errors=[(dict(input=strings(["a"]), encoding="latin"), InvalidArgumentError, "only utf-8 or '' \\(no encoding\\) is supported, received latin")])  # fmt: skip
op("StringStrip(input: string) -> (output: string)",
   shape=same_as("input"), numpy=lambda x: each_string(bytes.strip, x),
   samples=[dict(input=strings([[" a \t\n", "\x0bb\x0c\r"], ["\xa0c", ""]]))])  # fmt: skip


def _starts(s: bytes) -> list[int]:
    """Where characters begin: every byte that does not continue one."""
    return [i for i, b in enumerate(s) if b & 0xC0 != 0x80]


def _begin_characters(letters: np.ndarray) -> np.ndarray:
    return (letters & 0xC0) != 0x80


def length_kernel(x: np.ndarray, *, unit: bytes) -> np.ndarray:
    found = texts.lengths(x)
    if unit == b"BYTE":
        return each_number(len, x, np.int32) if found is None else found
    if x.size < MANY:
        return each_number(lambda s: len(s) if s.isascii() else len(_starts(s)), x, np.int32)
    lengths = lengths_of(x)
    begin = _begin_characters(letters_of(x, lengths))
    if not begin.all():
        lengths = sums_of(begin, starts_of(lengths), lengths)
    return lengths.astype(np.int32).reshape(x.shape)


op("StringLength(input: string) -> (output: int32) [unit: string in {'BYTE', 'UTF8_CHAR'} = 'BYTE']",
   shape=same_as("input"), numpy=length_kernel,
   samples=[
       dict(input=strings(["abc", "äö", ""])), dict(input=strings([["abc"], ["äö"]]), unit="UTF8_CHAR"), dict(input=many(NO_TEXTS)),
       dict(input=many(NO_TEXTS), unit="UTF8_CHAR"),
   ])  # fmt: skip


def _cut_bytes(s: bytes, pos: int, length: int, place: int) -> bytes:
    start = pos if pos >= 0 else len(s) + pos
    if not 0 <= start <= len(s):
        shown = s.decode("utf-8", "replace")
        raise InvalidArgumentError(f"pos {pos} out of range for string b'{shown}' at index {place}")
    # A negative length is TF's unsigned "all of it".
    return s[start:] if length < 0 else s[start : start + length]


def _cut_characters(s: bytes, pos: int, length: int, place: int) -> bytes:
    try:
        text = s.decode()
    except UnicodeDecodeError:
        return _cut_what_is_no_text(s, pos, length, place)
    start = pos if pos >= 0 else len(text) + pos
    if not 0 <= start <= len(text) or max(pos, length) < 0:
        raise InvalidArgumentError(f"pos {pos} out of range for string at index {place}")
    return text[start : start + max(length, 0)].encode()


def _cut_what_is_no_text(s: bytes, pos: int, length: int, place: int) -> bytes:
    starts = [*_starts(s), len(s)]
    if starts[0]:  # bytes that no character begins with are one, if they come first
        starts.insert(0, 0)
    count = len(starts) - 1
    start = pos if pos >= 0 else count + pos
    if not 0 <= start <= count or max(pos, length) < 0:
        raise InvalidArgumentError(f"pos {pos} out of range for string at index {place}")
    return s[starts[start] : starts[min(start + length, count)]] if length > 0 else b""


def _parts_of_bytes(x: np.ndarray, pos: np.ndarray, length: np.ndarray) -> np.ndarray | None:
    """Parts of many strings; None if a place is out of range."""
    x = own(x)
    sizes = lengths_of(x)
    start = np.where(pos < 0, pos + sizes, pos)
    left = sizes - start
    if start.min() < 0 or left.min() < 0:
        return None
    return parts_of(x, start, np.where(length < 0, left, np.minimum(length, left)))


def _parts_of_characters(x: np.ndarray, pos: np.ndarray, length: np.ndarray) -> np.ndarray | None:
    sizes = lengths_of(x)
    begins, letters = starts_of(sizes), letters_of(x, sizes)
    is_first = np.append(_begin_characters(letters), True)
    is_first[begins] = True
    places = np.flatnonzero(is_first)  # of all characters, and the end
    counts = sums_of(is_first, begins, sizes)
    first = starts_of(counts)
    start = np.where(pos < 0, pos + counts, pos)
    left = counts - start
    if start.min() < 0 or left.min() < 0 or np.maximum(pos, length).min() < 0:
        return None
    start += first
    begin, end = places[start], places[start + np.clip(length, 0, left)]
    return cut(letters, begin, end - begin, x.shape)


def substr_kernel(x: np.ndarray, pos: Any, length: Any, *, unit: bytes) -> np.ndarray:
    if pos.shape != length.shape:
        raise InvalidArgumentError(f"pos and len should have the same shape, got: {format_dims(pos.shape)} vs. {format_dims(length.shape)}")
    try:
        values, starts, lengths = np.broadcast_arrays(x, pos, length)
    except ValueError:
        raise InvalidArgumentError(f"Incompatible shapes: {format_dims(x.shape)} vs. {format_dims(pos.shape)}") from None
    if values.size >= MANY:
        found = (_parts_of_bytes if unit == b"BYTE" else _parts_of_characters)(values, starts.ravel().astype(np.int64), lengths.ravel().astype(np.int64))
        if found is not None:
            return found
    cut_one = _cut_bytes if unit == b"BYTE" else _cut_characters
    rows = zip(values.ravel().tolist(), starts.ravel().tolist(), lengths.ravel().tolist(), strict=True)
    return string_array([cut_one(s, p, n, i) for i, (s, p, n) in enumerate(rows)], values.shape)


def substr_shape(c: Any) -> Dims:
    from penstock.shapes import broadcast_dims

    a, b = c.dims(1), c.dims(2)
    try:
        merge_dims(a, b)
    except ValueError:
        raise ValueError(f"pos and len shapes must match: {format_dims(a)} vs. {format_dims(b)}") from None
    return broadcast_dims(c.dims(0), a)


op("Substr(input: string, pos: T, len: T) -> (output: string) [T: type in {int32, int64}; unit: string in {'BYTE', 'UTF8_CHAR'} = 'BYTE']",
   shape=substr_shape, numpy=substr_kernel,
   samples=[
       dict(input=strings(["hello", "abcde"]), pos=arr(1), len=arr(3)),
       dict(input=strings(["hello", "abcde"]), pos=arr([1, -2]), len=arr([30, 1])),
       dict(input=strings(["hello"]), pos=arr([[1], [2]]), len=arr([[3], [1]])),
       dict(input=strings([["hällo"], ["äöüßx"]]), pos=arr(-2), len=arr(3), unit="UTF8_CHAR"),
       dict(input=strings("hello"), pos=arr(5), len=arr(1)),
       *[dict(input=many(NO_TEXTS), pos=arr(0), len=arr(2), unit=u) for u in ("BYTE", "UTF8_CHAR")],
       *[dict(input=many(["xäb", "東京 😀", "a\0cde"]), pos=arr(-2), len=arr(n), unit=u) for u in ("BYTE", "UTF8_CHAR") for n in (1, 9)],
   ],
   errors=[(dict(input=strings(["hello"]), pos=6, len=1), InvalidArgumentError, "pos 6 out of range for string b'hello' at index 0")])  # fmt: skip
