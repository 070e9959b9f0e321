"""Unicode: strings in one encoding as strings in another, or as vectors of code points.

Python's codecs read the input; what they cannot read is replaced, dropped or an error, as the op's attributes say.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import op, same_as, with_rank
from penstock.ops.kernels.many_strings import MANY, cut, lengths_of, letters_of, starts_of, sums_of
from penstock.ops.samples import NO_TEXTS, TEXTS, arr, many, strings
from penstock.ops.strings import each_string, string_array

_FEW = 8
"""Strings below which they are read one by one."""


class Points(NamedTuple):
    """The characters of many strings: all code points, how many of them each string has, and where in the text of all each begins."""

    values: np.ndarray
    counts: np.ndarray
    places: np.ndarray | None
    """None if each is one byte."""


def points_of_all(x: np.ndarray, codec: str) -> Points | None:
    """The characters of an array of strings; None if one is not well formed, or nothing is known about how to find them all at once."""
    if x.size < _FEW:
        return None
    lengths = lengths_of(x)
    letters = letters_of(x, lengths)
    if codec == "iso8859-1" or (codec in ("utf-8", "ascii") and (not letters.size or letters.max() < 0x80)):
        return Points(letters.astype(np.int32), lengths, None)
    if codec != "utf-8":
        return None
    starts = starts_of(lengths)
    begins = (letters & 0xC0) != 0x80
    if not begins[starts[lengths > 0]].all():
        return None
    try:
        points = str(letters.data, "utf-8").encode("utf-32-le")
    except UnicodeDecodeError:
        return None
    return Points(np.frombuffer(points, np.int32), sums_of(begins, starts, lengths), np.flatnonzero(begins))


_CONTROL_END = 32
"""What `replace_control_characters` means: the characters below."""


def _without_control(points: np.ndarray, errors: Any, replacement: int, *replaced_if: bytes) -> np.ndarray | None:
    """Control characters replaced, unless `errors` is false; None if there are some that are not to be replaced with these errors."""
    if not errors or not (points < _CONTROL_END).any():
        return points
    return np.where(points < _CONTROL_END, np.int32(replacement), points) if errors in replaced_if else None


def encode_all(points: np.ndarray, counts: np.ndarray, encoding: bytes, shape: Any) -> np.ndarray | None:
    """Strings of so many code points each; None if some are no characters."""
    try:
        text = points.tobytes().decode("utf-32-le").encode(_CODECS[encoding])
    except UnicodeDecodeError:
        return None
    if encoding == b"UTF-8":
        sizes = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
        lengths = sums_of(sizes, starts_of(counts), counts)
    elif encoding == b"UTF-16-BE":
        lengths = 2 * counts + 2 * sums_of(points >= 0x10000, starts_of(counts), counts)
    else:
        lengths = 4 * counts
    return cut(np.frombuffer(text, np.uint8), starts_of(lengths), lengths, shape)


def code_points(s: bytes, encoding: str, errors: bytes, replacement: int, replace_control: bool, strict_control: bool = False) -> tuple[list[int], list[int]]:
    """The characters of `s`, and at which byte each begins. Control characters that are to be replaced are dropped if errors are ignored, and with
    `strict_control` they are errors themselves."""
    places = _places(s, encoding)
    if places is not None:
        text = s.decode(encoding)
        points, starts = list(map(ord, text)), list(places)
    else:
        points, starts = [], []
        at = 0
        while at < len(s):
            text, used, good = _one_character(s, at, encoding)
            if good or errors == b"replace":
                points.append(ord(text) if good else replacement)
                starts.append(at)
            elif errors == b"strict":
                raise InvalidArgumentError("Invalid formatting on input string")
            at += used
    if not replace_control or not points or min(points) >= _CONTROL_END:
        return points, starts
    if errors == b"ignore":
        kept = [i for i, point in enumerate(points) if point >= _CONTROL_END]
        return [points[i] for i in kept], [starts[i] for i in kept]
    if strict_control and errors == b"strict":
        raise InvalidArgumentError("Invalid formatting on input string")
    return [replacement if point < _CONTROL_END else point for point in points], starts


def _places(s: bytes, encoding: str) -> Sequence[int] | None:
    """At which byte each character begins; None if `s` is not well formed, or that is not known all at once."""
    try:
        if encoding == "iso8859-1" or (encoding in ("utf-8", "ascii") and s.isascii()):
            return range(len(s))
        if encoding == "utf-8":
            s.decode()
            return [i for i, b in enumerate(s) if b & 0xC0 != 0x80]
        if encoding in ("utf-16-be", "utf-32-be"):
            size = int(encoding[4:6]) // 8
            return range(0, len(s), size) if len(s.decode(encoding)) * size == len(s) else None
    except UnicodeDecodeError:
        pass
    return None


def _one_character(s: bytes, at: int, encoding: str) -> tuple[str, int, bool]:
    """(character, bytes read, whether they were well formed)."""
    if encoding == "utf-8":
        return _one_of_utf8(s[at : at + 4])
    if encoding in ("utf-16-be", "utf-32-be"):
        return _one_of_units(s[at : at + 4], encoding)
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    for end in range(at + 1, min(len(s), at + 8) + 1):
        try:
            text = decoder.decode(s[end - 1 : end])
        except UnicodeDecodeError as error:
            # What was well begun counts as one bad character; the byte that broke it starts anew.
            return "", max(1, min(error.end, end - at) - (1 if end - at > 1 else 0)), False
        if text:
            return text, end - at, True
    return "", len(s) - at, False


def _one_of_utf8(s: bytes) -> tuple[str, int, bool]:
    """Of what is not well formed, the longest beginning that could have become a character counts as one."""
    try:
        text = s.decode()
    except UnicodeDecodeError as error:
        if not error.start:
            return "", error.end, False
        text = s[: error.start].decode()
    return text[0], len(text[0].encode()), True


def _one_of_units(s: bytes, encoding: str) -> tuple[str, int, bool]:
    """A unit that is no character counts as one, and so does what is left of one, together with the first half of a pair."""
    unit = 4 if encoding == "utf-32-be" or (len(s) == 3 and 0xD8 <= s[0] < 0xDC) else 2
    for size in (unit, 4):
        try:
            return s[:size].decode(encoding), size, True
        except UnicodeDecodeError:
            continue
    return "", min(unit, len(s)), False


def _codec(encoding: bytes) -> str:
    name = encoding.decode(errors="replace")
    try:
        return codecs.lookup({"UTF-16-BE": "utf-16-be", "UTF-32-BE": "utf-32-be"}.get(name.upper(), name)).name
    except LookupError:
        raise InvalidArgumentError(f"Could not create converter for input encoding: {name}") from None


_WHOLE = ("utf-8", "ascii", "iso8859-1", "utf-16-be", "utf-32-be")
"""Encodings in which a string is well formed if its characters are."""
_CODECS = {b"UTF-8": "utf-8", b"UTF-16-BE": "utf-16-be", b"UTF-32-BE": "utf-32-be"}


def _encode(points: list[int], encoding: bytes) -> bytes:
    return "".join(map(chr, points)).encode(_CODECS[encoding], "replace")


def transcode_kernel(x: np.ndarray, *, input_encoding: bytes, output_encoding: bytes, errors: bytes, replacement_char: int,
                     replace_control_characters: bool) -> np.ndarray:  # fmt: skip
    codec = _codec(input_encoding)
    found = points_of_all(x, codec) if x.size >= MANY else None
    points = None if found is None else _without_control(found.values, replace_control_characters and errors, replacement_char, b"replace")
    if found is not None and points is not None:
        result = encode_all(points, found.counts, output_encoding, x.shape)
        if result is not None:
            return result

    def convert(s: bytes) -> bytes:
        if codec in _WHOLE and not replace_control_characters:
            try:
                return s.decode(codec).encode(_CODECS[output_encoding])
            except UnicodeDecodeError:
                pass
        return _encode(code_points(s, codec, errors, replacement_char, replace_control_characters, strict_control=True)[0], output_encoding)

    return each_string(convert, x)


def decode_with_offsets_kernel(x: np.ndarray, *, input_encoding: bytes, errors: bytes, replacement_char: int,
                               replace_control_characters: bool, Tsplits: DType) -> list:  # fmt: skip
    codec = _codec(input_encoding)
    found = points_of_all(x, codec)
    points = None if found is None else _without_control(found.values, replace_control_characters and errors, replacement_char, b"replace", b"strict")
    if found is not None and points is not None:
        starts = starts_of(lengths_of(x))
        places = np.arange(len(found.values)) if found.places is None else found.places
        return [
            np.append(0, np.cumsum(found.counts)).astype(Tsplits.np),
            points,
            places - np.repeat(starts, found.counts),
        ]
    rows = [code_points(s, codec, errors, replacement_char, replace_control_characters) for s in x.ravel().tolist()]
    splits = np.zeros(len(rows) + 1, Tsplits.np)
    splits[1:] = np.cumsum([len(points) for points, _ in rows])
    return [
        splits,
        np.array([p for points, _ in rows for p in points], np.int32),
        np.array([s for _, starts in rows for s in starts], np.int64),
    ]


def decode_kernel(x: np.ndarray, *, input_encoding: bytes, errors: bytes, replacement_char: int, replace_control_characters: bool,
                  Tsplits: DType) -> list:  # fmt: skip
    return decode_with_offsets_kernel(
        x, input_encoding=input_encoding, errors=errors, replacement_char=replacement_char,
        replace_control_characters=replace_control_characters, Tsplits=Tsplits,
    )[:2]  # fmt: skip


def decode_shape(c: Any) -> list[Dims]:
    dims = c.dims(0)
    size: int | None = 1
    for d in dims if dims is not None else (None,):
        size = None if size is None or d is None else size * d
    return [(None if size is None else size + 1,), (None,), (None,)][: len(c.op.outputs)]


def encode_kernel(values: np.ndarray, splits: np.ndarray, *, output_encoding: bytes, errors: bytes, replacement_char: int) -> np.ndarray:
    if splits.ndim != 1 or splits.size < 1:
        raise InvalidArgumentError("input_splits must be a vector with at least one element")
    if splits[0] != 0:
        raise InvalidArgumentError("First value in input_splits must be zero.")
    if splits[-1] != len(values):
        raise InvalidArgumentError("Last value in input_splits must be equal to the length of input_values.")
    counts = np.diff(splits).astype(np.int64)
    if len(counts) >= MANY and counts.min() >= 0:
        is_good = ((values >= 0) & (values < 0xD800)) | ((values >= 0xE000) & (values < 0x110000))
        if is_good.all():
            found = encode_all(values, counts, output_encoding, counts.shape)
        elif errors == b"replace":
            found = encode_all(np.where(is_good, values, np.int32(replacement_char)), counts, output_encoding, counts.shape)
        elif errors == b"ignore":
            found = encode_all(values[is_good], sums_of(is_good, starts_of(counts), counts), output_encoding, counts.shape)
        else:
            found = None
        if found is not None:
            return found
    results = []
    for start, stop in zip(splits[:-1].tolist(), splits[1:].tolist(), strict=True):
        if start > stop:
            raise InvalidArgumentError("Values in input_splits must be equal or in ascending order.")
        points = []
        for point in values[start:stop].tolist():
            if 0 <= point < 0xD800 or 0xE000 <= point < 0x110000:
                points.append(point)
            elif errors == b"strict":
                raise InvalidArgumentError("Code point is out of range for Unicode, or is a surrogate.")
            elif errors == b"replace":
                points.append(replacement_char)
        results.append(_encode(points, output_encoding))
    return string_array(results, (len(results),))


def encode_shape(c: Any) -> Dims:
    (count,) = with_rank(c, 1, 1)  # type: ignore[misc]
    return (None if count is None else count - 1,)


_ERRORS = "errors: string in {'strict', 'replace', 'ignore'} = 'replace'; replacement_char: int = 65533;"
_CONTROL = " replace_control_characters: bool = false"
_TEXTS = strings(["äb", "", b"c\xff\xfed\xe2\x82", "\U0001f600\x01"])
_BROKEN = strings([b"\xe2\x82A", b"\xf0\x9f\x98A", b"\xed\xa0", b"\xed\xa0\x80x", b"\xf0\x9f", b"\xc0\x80", b"\xf5\x80b", b"a\xe2\x82", b"\x80\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xc3\xa4\xc3"])

op("UnicodeTranscode(input: string) -> (output: string)"
   f" [input_encoding: string; output_encoding: string in {{'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}}; {_ERRORS}{_CONTROL}]",
   shape=same_as("input"), numpy=transcode_kernel,
   samples=[
       dict(input=_TEXTS, input_encoding="UTF-8", output_encoding="UTF-8"),
       dict(input=_TEXTS, input_encoding="UTF-8", output_encoding="UTF-16-BE", errors="ignore"),
       dict(input=_TEXTS, input_encoding="UTF-8", output_encoding="UTF-32-BE", replacement_char=63, replace_control_characters=True),
       dict(input=_BROKEN, input_encoding="UTF-8", output_encoding="UTF-8", replacement_char=63),
       dict(input=_BROKEN, input_encoding="UTF-8", output_encoding="UTF-8", errors="ignore"),
       dict(input=strings([b"\x00\xe4\x00b"]), input_encoding="UTF-16-BE", output_encoding="UTF-8"),
       dict(input=strings([[b"\xe4b"]]), input_encoding="latin1", output_encoding="UTF-8"),
       *[dict(input=many(texts), input_encoding=i, output_encoding=o, replace_control_characters=r)
         for texts in (TEXTS, NO_TEXTS) for i, o, r in (("UTF-8", "UTF-8", False), ("UTF-8", "UTF-16-BE", True), ("latin1", "UTF-32-BE", False))],
   ],
   errors=[
       (dict(input=strings([b"\xff"]), input_encoding="UTF-8", output_encoding="UTF-8", errors="strict"), InvalidArgumentError,
        "Invalid formatting on input string"),
       (dict(input=strings(["a"]), input_encoding="nonsense", output_encoding="UTF-8"), InvalidArgumentError,
        "Could not create converter for input encoding: nonsense"),
   ])  # fmt: skip
op("UnicodeDecode(input: string) -> (row_splits: Tsplits, char_values: int32)"
   f" [input_encoding: string; {_ERRORS}{_CONTROL}; Tsplits: type in {{int32, int64}} = int64]",
   shape=decode_shape, numpy=decode_kernel,
   samples=[dict(input=_TEXTS, input_encoding="UTF-8"), dict(input=strings("ab"), input_encoding="UTF-8", Tsplits="int32"), dict(input=many(TEXTS), input_encoding="UTF-8")])  # fmt: skip
op("UnicodeDecodeWithOffsets(input: string) -> (row_splits: Tsplits, char_values: int32, char_to_byte_starts: int64)"
   f" [input_encoding: string; {_ERRORS}{_CONTROL}; Tsplits: type in {{int32, int64}} = int64]",
   shape=decode_shape, numpy=decode_with_offsets_kernel,
   samples=[
       dict(input=_TEXTS, input_encoding="UTF-8"),
       dict(input=_BROKEN, input_encoding="UTF-8"),
       dict(input=strings([b"\x00\xe4\x00b", b"\xd8\x3d\xde\x00"]), input_encoding="UTF-16-BE"),
       *[dict(input=many(texts), input_encoding="UTF-8", replace_control_characters=r) for texts in (TEXTS, NO_TEXTS, ["ab", "", "c"]) for r in (True, False)],
   ])  # fmt: skip
op("UnicodeEncode(input_values: int32, input_splits: Tsplits) -> (output: string)"
   " [errors: string in {'ignore', 'replace', 'strict'} = 'replace'; output_encoding: string in {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'};"
   " replacement_char: int = 65533; Tsplits: type in {int32, int64} = int64]",
   shape=encode_shape, numpy=encode_kernel,
   samples=[
       dict(input_values=arr([228, 98, 0x1F600]), input_splits=arr([0, 2, 2, 3]), output_encoding="UTF-8"),
       dict(input_values=arr([228, 0xD800, 98]), input_splits=arr([0, 3]), output_encoding="UTF-16-BE"),
       dict(input_values=arr([228, 0x110000, 98]), input_splits=arr([0, 3]), output_encoding="UTF-32-BE", errors="ignore"),
       *[dict(input_values=arr([228, 98, 0xD800, 0x1F600] * 40), input_splits=arr([*range(0, 161, 2)]), output_encoding=o, errors=e)
         for o in ("UTF-8", "UTF-16-BE", "UTF-32-BE") for e in ("replace", "ignore")],
   ])  # fmt: skip
