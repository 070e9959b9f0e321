"""Unicode: strings in one encoding as strings in another, or as vectors of code points.

Python's codecs read the input; what they cannot read is replaced, dropped or an error, as the op's attributes say.
"""

from __future__ import annotations

import codecs
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import op, same_as, with_rank
from penstock.ops.samples import arr, strings
from penstock.ops.strings import each_string, string_array


def code_points(s: bytes, encoding: str, errors: bytes, replacement: int, replace_control: bool) -> tuple[list[int], list[int]]:
    """The characters of `s`, and at which byte each begins."""
    points: list[int] = []
    starts: list[int] = []
    at = 0
    while at < len(s):
        text, used, good = _one_character(s, at, encoding)
        if not good:
            if errors == b"strict":
                raise InvalidArgumentError("Invalid formatting on input string")
            if errors == b"replace":
                points.append(replacement)
                starts.append(at)
        else:
            point = ord(text)
            control = point < 32 or 127 <= point < 160
            points.append(replacement if replace_control and control else point)
            starts.append(at)
        at += used
    return points, starts


def _one_character(s: bytes, at: int, encoding: str) -> tuple[str, int, bool]:
    """(character, bytes read, whether they were well formed)."""
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


def _codec(encoding: bytes) -> str:
    name = encoding.decode(errors="replace")
    try:
        return codecs.lookup({"UTF-16-BE": "utf-16-be", "UTF-32-BE": "utf-32-be"}.get(name.upper(), name)).name
    except LookupError:
        raise InvalidArgumentError(f"Could not create converter for input encoding: {name}") from None


def _encode(points: list[int], encoding: bytes) -> bytes:
    return "".join(map(chr, points)).encode({b"UTF-8": "utf-8", b"UTF-16-BE": "utf-16-be", b"UTF-32-BE": "utf-32-be"}[encoding], "replace")


def transcode_kernel(x: np.ndarray, *, input_encoding: bytes, output_encoding: bytes, errors: bytes, replacement_char: int,
                     replace_control_characters: bool) -> np.ndarray:  # fmt: skip
    codec = _codec(input_encoding)

    def convert(s: bytes) -> bytes:
        return _encode(code_points(s, codec, errors, replacement_char, replace_control_characters)[0], output_encoding)

    return each_string(convert, x)


def decode_with_offsets_kernel(x: np.ndarray, *, input_encoding: bytes, errors: bytes, replacement_char: int,
                               replace_control_characters: bool, Tsplits: DType) -> list:  # fmt: skip
    codec = _codec(input_encoding)
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
    results = []
    for start, stop in zip(splits[:-1].tolist(), splits[1:].tolist(), strict=True):
        if start > stop:
            raise InvalidArgumentError("Values in input_splits must be equal or in ascending order.")
        points = []
        for point in values[start:stop].tolist():
            if 0 <= point < 0xD800 or 0xE000 <= point < 0x110000:
                points.append(point)
            elif errors == b"strict":
                raise InvalidArgumentError("Code point is out of range for Unicode, or a noncharacter.")
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

op("UnicodeTranscode(input: string) -> (output: string)"
   f" [input_encoding: string; output_encoding: string in {{'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}}; {_ERRORS}{_CONTROL}]",
   shape=same_as("input"), numpy=transcode_kernel,
   samples=[
       dict(input=_TEXTS, input_encoding="UTF-8", output_encoding="UTF-8"),
       dict(input=_TEXTS, input_encoding="UTF-8", output_encoding="UTF-16-BE", errors="ignore"),
       dict(input=_TEXTS, input_encoding="UTF-8", output_encoding="UTF-32-BE", replacement_char=63, replace_control_characters=True),
       dict(input=strings([b"\x00\xe4\x00b"]), input_encoding="UTF-16-BE", output_encoding="UTF-8"),
       dict(input=strings([[b"\xe4b"]]), input_encoding="latin1", output_encoding="UTF-8"),
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
   samples=[dict(input=_TEXTS, input_encoding="UTF-8"), dict(input=strings("ab"), input_encoding="UTF-8", Tsplits="int32")])  # fmt: skip
op("UnicodeDecodeWithOffsets(input: string) -> (row_splits: Tsplits, char_values: int32, char_to_byte_starts: int64)"
   f" [input_encoding: string; {_ERRORS}{_CONTROL}; Tsplits: type in {{int32, int64}} = int64]",
   shape=decode_shape, numpy=decode_with_offsets_kernel,
   samples=[
       dict(input=_TEXTS, input_encoding="UTF-8"),
       dict(input=strings([b"\x00\xe4\x00b", b"\xd8\x3d\xde\x00"]), input_encoding="UTF-16-BE"),
   ])  # fmt: skip
op("UnicodeEncode(input_values: int32, input_splits: Tsplits) -> (output: string)"
   " [errors: string in {'ignore', 'replace', 'strict'} = 'replace'; output_encoding: string in {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'};"
   " replacement_char: int = 65533; Tsplits: type in {int32, int64} = int64]",
   shape=encode_shape, numpy=encode_kernel,
   samples=[
       dict(input_values=arr([228, 98, 0x1F600]), input_splits=arr([0, 2, 2, 3]), output_encoding="UTF-8"),
       dict(input_values=arr([228, 0xD800, 98]), input_splits=arr([0, 3]), output_encoding="UTF-16-BE"),
       dict(input_values=arr([228, 0x110000, 98]), input_splits=arr([0, 3]), output_encoding="UTF-32-BE", errors="ignore"),
   ])  # fmt: skip
