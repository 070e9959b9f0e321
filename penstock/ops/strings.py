"""Strings: numbers as text and back, joining, splitting, cutting, matching.

A string tensor is an object array of `bytes`; `each_string` applies a function to every element.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError, OutOfRangeError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, axes_of, op, same_as, with_rank
from penstock.ops.kernels.numerals import read_numbers
from penstock.ops.kernels.regex import compile_re2, decoded, replace_all
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.native import texts
from penstock.ops.samples import arr, bools, normal, strings
from penstock.shapes import format_dims, merge_dims


def string_array(values: list[bytes], shape: Any) -> np.ndarray:
    """An object array of bytes, without NumPy looking into the strings."""
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result.reshape(shape)


def each_string(function: Callable[[bytes], bytes], x: np.ndarray) -> np.ndarray:
    return string_array(list(map(function, x.ravel().tolist())), x.shape)


def each_number(function: Callable[[bytes], Any], x: np.ndarray, dtype: Any) -> np.ndarray:
    return np.array(list(map(function, x.ravel().tolist())), dtype=dtype).reshape(x.shape)


# -- numbers as strings -----------------------------------------------------------------------------------------------


def number_format(dtype: DType, precision: int, scientific: bool, shortest: bool, width: int, fill: bytes) -> str:
    """C's format for one number; InvalidArgumentError for combinations that TF refuses."""
    real = dtype.is_floating or dtype.is_complex
    if not real and (scientific or shortest):
        raise InvalidArgumentError(f"scientific and shortest format not supported for datatype {dtype_text(dtype)}")
    if not real and precision >= 0:
        raise InvalidArgumentError(f"precision not supported for datatype {dtype_text(dtype)}")
    if len(fill) > 1:
        raise InvalidArgumentError("Fill string must be one or fewer characters")
    if fill and fill not in (b" ", b"+", b"-", b"0", b"#"):
        raise InvalidArgumentError(f'Fill argument not supported: "{fill.decode(errors="replace")}"')
    if scientific and shortest:
        raise InvalidArgumentError("Cannot select both scientific and shortest notation")
    text = "%" + fill.decode()
    if width > -1:
        text += str(width)
    if precision > -1:
        text += f".{precision}"
    return text + ("g" if shortest else "e" if scientific else "f" if real else "d")


def as_string_kernel(x: Any, *, T: DType, precision: int, scientific: bool, shortest: bool, width: int, fill: bytes) -> np.ndarray:
    if T is dtypes.string:
        return x
    if T is dtypes.bool:
        number_format(T, -1, False, False, width, fill)
        return string_array([b"true" if v else b"false" for v in np.ravel(x).tolist()], np.shape(x))
    form = number_format(T, precision, scientific, shortest, width, fill)
    flat = np.ravel(x)
    if T.is_complex:
        values = [f"({form % v.real},{form % v.imag})".encode() for v in flat.tolist()]
    else:
        pattern = form.encode()
        values = [pattern % v for v in (flat.astype(np.float64) if T.is_floating else flat).tolist()]
    return string_array(values, np.shape(x))


op("AsString(input: T) -> (output: string) [T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32,"
   " uint64, complex64, complex128, bool, variant, string}; precision: int = -1; scientific: bool = false; shortest: bool = false;"
   " width: int = -1; fill: string = '']",
   shape=same_as("input"), numpy=as_string_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[
       dict(input=arr([[1, 2, -3]])),
       dict(input=arr([1.5, -0.1, 1e10, 1e-7, np.nan, np.inf], np.float32)),
       dict(input=arr([1.5, 1e10, 1e-5], np.float64), precision=2),
       dict(input=arr([1.5, 1e10, 1e-5], np.float32), scientific=True),
       dict(input=arr([1.0, 2.5, 1e10, 1e-5], np.float32), shortest=True),
       dict(input=arr([1.0, -2.5], np.float32), width=12, fill="0"),
       dict(input=arr([1.0, -2.5], np.float32), width=12, fill="-"),
       dict(input=arr([3, -7], np.int64), width=5),
       dict(input=bools(3), width=7),
       dict(input=normal(2, dtype=np.complex64), precision=1),
       dict(input=strings(["a"])),
   ],
   errors=[
       (dict(input=[1], precision=3), InvalidArgumentError, "precision not supported for datatype int"),
       (dict(input=[1.0], scientific=True, shortest=True), InvalidArgumentError, "Cannot select both scientific and shortest notation"),
       (dict(input=[1.0], fill="x"), InvalidArgumentError, 'Fill argument not supported: "x"'),
   ])  # fmt: skip


def _to_float(value: bytes) -> float:
    text = value.strip().decode("ascii")
    if "_" in text:
        raise ValueError
    lower = text.lower().lstrip("+-")
    if lower.startswith("0x"):
        return float.fromhex(text)
    if lower.startswith("nan(") and lower.endswith(")"):
        return float("nan")
    return float(text)


def _to_int(limits: tuple[int, int]) -> Callable[[bytes], int]:
    def parse(value: bytes) -> int:
        text = value.strip().decode("ascii")
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise ValueError
        number = int(text)
        if not limits[0] <= number <= limits[1] or (limits[0] == 0 and text.startswith("-")):
            raise ValueError
        return number

    return parse


def string_to_number_kernel(x: Any, *, out_type: DType) -> np.ndarray:
    found = read_numbers(x, out_type)
    if found is not None:
        return found.reshape(x.shape)
    if out_type.is_floating:
        parse: Callable[[bytes], Any] = _to_float
    else:
        info = np.iinfo(out_type.np)
        parse = _to_int((info.min, info.max))

    def checked(value: bytes) -> Any:
        try:
            return parse(value)
        except ValueError:
            raise InvalidArgumentError(f"StringToNumberOp could not correctly convert string: {value.decode(errors='replace')}") from None

    return each_number(checked, x, out_type.np)


op("StringToNumber(string_tensor: string) -> (output: out_type) [out_type: type in {float, double, int32, int64, uint32, uint64} = float]",
   shape=same_as("string_tensor"), numpy=string_to_number_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[
       dict(string_tensor=strings(["1.5", " -2e3 ", "inf", "nan", "0x10", "+.5", "5."])),
       dict(string_tensor=strings(["1.5", "1e400"]), out_type="float64"),
       dict(string_tensor=strings([["1", " -2 "], ["+3", "0004"]]), out_type="int32"),
       dict(string_tensor=strings("9223372036854775807"), out_type="int64"),
       dict(string_tensor=strings(["4294967295"]), out_type="uint32"),
   ],
   errors=[
       (dict(string_tensor=strings(["1", "abc"])), InvalidArgumentError, "StringToNumberOp could not correctly convert string: abc"),
       (dict(string_tensor=strings(["1.5"]), out_type="int32"), InvalidArgumentError, "could not correctly convert string: 1.5"),
       (dict(string_tensor=strings(["2147483648"]), out_type="int32"), InvalidArgumentError, "could not correctly convert string: 2147483648"),
   ])  # fmt: skip


# -- joining ----------------------------------------------------------------------------------------------------------


def string_join_kernel(inputs: list[np.ndarray], *, separator: bytes) -> np.ndarray:
    shape: tuple[int, ...] = ()
    for x in inputs:
        if x.ndim:
            if shape and x.shape != shape:
                raise InvalidArgumentError(f"Input shapes do not match: {format_dims(shape)} vs. {format_dims(x.shape)}")
            shape = x.shape
    size = int(np.prod(shape))
    columns = [x.ravel().tolist() if x.ndim else [x.item()] * size for x in inputs]
    return string_array([separator.join(row) for row in zip(*columns, strict=True)] if columns else [b""], shape)


def string_join_shape(c: Any) -> Dims:
    shapes = [c.dims(i) for i in range(c.n)]
    if all(s == () for s in shapes):
        return ()
    result: Dims = None
    for dims in shapes:
        if dims != ():
            result = merge_dims(result, dims)
    return result


op("StringJoin(inputs: N*string) -> (output: string) [N: int >= 0; separator: string = '']",
   shape=string_join_shape, numpy=string_join_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[
       dict(inputs=[strings(["a", "b"]), strings(["c", "d"])], separator="-"),
       dict(inputs=[strings([["a", "b"]]), strings("x")]),
       dict(inputs=[strings("a"), strings("b")], separator=", "),
   ],
   errors=[(dict(inputs=[strings(["a", "b"]), strings(["c"])]), InvalidArgumentError, "Input shapes do not match: \\[2\\] vs. \\[1\\]|must be equal")])  # fmt: skip


def reduce_join_kernel(x: np.ndarray, axes: np.ndarray, *, keep_dims: bool, separator: bytes) -> np.ndarray:
    rank = x.ndim
    order = []
    for axis in np.ravel(axes).tolist():
        if not -rank <= axis < rank:
            raise OutOfRangeError(f"Invalid reduction dimension {axis} for input with {rank} dimension(s)")
        if axis % rank in order:
            raise InvalidArgumentError(f"Duplicate reduction dimension {axis % rank}")
        order.append(axis % rank)
    if not order:
        return x
    kept = [i for i in range(rank) if i not in order]
    # The order of the axes is the order in which strings are joined: the first one runs fastest.
    outer = [x.shape[i] for i in kept]
    rows = x.transpose(kept + order[::-1]).reshape(int(np.prod(outer)), int(np.prod([x.shape[i] for i in order])))
    joined = [separator.join(row.tolist()) for row in rows]
    return string_array(joined, [1 if i in order else x.shape[i] for i in range(rank)] if keep_dims else outer)


def reduce_join_shape(c: Any) -> Dims:
    dims, axes = c.dims(0), c.const(1)
    if dims is None:
        return None
    if axes is None:
        return (None,) * len(dims) if c.attrs["keep_dims"] else None
    gone = axes_of(axes, len(dims))
    if c.attrs["keep_dims"]:
        return tuple(1 if i in gone else d for i, d in enumerate(dims))
    return tuple(d for i, d in enumerate(dims) if i not in gone)


op("ReduceJoin(inputs: string, reduction_indices: int32) -> (output: string) [keep_dims: bool = false; separator: string = '']",
   shape=reduce_join_shape, numpy=reduce_join_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[
       dict(inputs=strings([["a", "b"], ["c", "d"]]), reduction_indices=arr([0])),
       dict(inputs=strings([["a", "b"], ["c", "d"]]), reduction_indices=arr([0, 1]), separator=","),
       dict(inputs=strings([["a", "b"], ["c", "d"]]), reduction_indices=arr([1, 0]), separator=","),
       dict(inputs=strings([["a", "b"], ["c", "d"]]), reduction_indices=arr([-1]), keep_dims=True),
       dict(inputs=strings([["a", "b"]]), reduction_indices=arr([])),
   ],
   errors=[
       (dict(inputs=strings([["a"]]), reduction_indices=[0, 0]), InvalidArgumentError, "Duplicate reduction dimension 0"),
       (dict(inputs=strings([["a"]]), reduction_indices=[5]), OutOfRangeError, "Invalid reduction dimension 5 for input with 2 dimension"),
   ])  # fmt: skip


def segment_join_kernel(x: np.ndarray, ids: np.ndarray, count: Any, *, separator: bytes) -> np.ndarray:
    if count.ndim:
        raise InvalidArgumentError("Number of segments should be a scalar")
    if int(count) < 0:
        raise InvalidArgumentError("Number of segments must be non-negative but got " + str(int(count)))
    if x.shape[: ids.ndim] != ids.shape:
        raise InvalidArgumentError(
            f"data.shape = {format_dims(x.shape)} does not start with segment_ids.shape = {format_dims(ids.shape)}"
        )
    if ids.size and (ids.min() < 0 or ids.max() >= int(count)):
        raise InvalidArgumentError("segment_ids are not allowed to exceed num_segments or to have negative values.")
    rest = x.shape[ids.ndim :]
    rows = x.reshape(ids.size, int(np.prod(rest)))
    parts: list[list[list[bytes]]] = [[[] for _ in range(rows.shape[1])] for _ in range(int(count))]
    for segment, row in zip(ids.ravel().tolist(), rows, strict=True):
        for place, value in zip(parts[segment], row.tolist(), strict=True):
            place.append(value)
    return string_array([separator.join(p) for segment in parts for p in segment], (int(count), *rest))


def segment_join_shape(c: Any) -> Dims:
    data, ids, count = c.dims(0), c.dims(1), c.const(2)
    if data is None or ids is None:
        return None
    merge_dims(data[: len(ids)], ids)
    return (None if count is None else int(count), *data[len(ids) :])


op("UnsortedSegmentJoin(inputs: string, segment_ids: Tindices, num_segments: Tnumsegments) -> (output: string)"
   " [separator: string = ''; Tindices: type in {int32, int64}; Tnumsegments: type in {int32, int64} = int32]",
   shape=segment_join_shape, numpy=segment_join_kernel,
   samples=[
       dict(inputs=strings(["a", "b", "c"]), segment_ids=arr([0, 1, 0]), num_segments=arr(3), separator=","),
       dict(inputs=strings([["a", "b"], ["c", "d"]]), segment_ids=arr([0, 0]), num_segments=arr(1)),
   ],
   errors=[
       (dict(inputs=strings(["a"]), segment_ids=[-1], num_segments=1), InvalidArgumentError,
        "segment_ids are not allowed to exceed num_segments or to have negative values."),
   ])  # fmt: skip


# -- splitting --------------------------------------------------------------------------------------------------------

_SPACE = b" \t\n\v\f\r"


def split_at_any(text: bytes, delimiters: bytes, skip_empty: bool) -> list[bytes]:
    """Pieces between any of the delimiter bytes; single bytes if there are none."""
    if not text:
        return []
    if not delimiters:
        return [text[i : i + 1] for i in range(len(text))]
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
    return _sparse_rows(list(itertools.chain.from_iterable(rows)), np.fromiter(map(len, rows), np.int64, len(rows)))


def _sparse_rows(pieces: list[bytes], lengths: np.ndarray) -> list[np.ndarray]:
    """The same for the pieces of all rows, and how many each has."""
    total = len(pieces)
    indices = np.empty((total, 2), np.int64)
    indices[:, 0] = np.repeat(np.arange(len(lengths)), lengths)
    indices[:, 1] = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return [indices, string_array(pieces, (total,)), np.array([len(lengths), int(lengths.max()) if len(lengths) else 0], np.int64)]


def string_split_kernel(x: np.ndarray, delimiter: np.ndarray, *, skip_empty: bool) -> list[np.ndarray]:
    if x.ndim != 1:
        raise InvalidArgumentError(f"input must be a vector, got shape: {format_dims(x.shape)}")
    if delimiter.ndim > 1 or (delimiter.ndim == 1 and delimiter.size != 1):
        raise InvalidArgumentError(f"delimiter must be a scalar, got shape: {format_dims(delimiter.shape)}")
    values, at = x.tolist(), delimiter.item()
    if len(at) == 1 and len(values) >= _MANY and all(values):
        found = _split_together(values, at, skip_empty)
        if found is not None:
            return found
    return _ragged([split_at_any(v, at, skip_empty) for v in values])


_MANY = 64
"""Strings from which on all are split together."""


def _split_together(values: list[bytes], at: bytes, skip_empty: bool) -> list[np.ndarray] | None:
    """`_ragged` of strings that are split at one letter, none of them empty; None if empty pieces have to go."""
    whole = at.join(values)
    cuts = np.frombuffer(whole, np.uint8) == at[0]
    if skip_empty and (cuts[0] or cuts[-1] or (cuts[1:] & cuts[:-1]).any()):
        return None
    sizes = length_kernel(string_array(values, len(values)), unit=b"BYTE").astype(np.int64) + 1
    lengths = np.add.reduceat(cuts, np.cumsum(sizes) - sizes, dtype=np.int64)
    lengths[-1] += 1  # all others end with the letter that joins them to the next one
    return _sparse_rows(whole.split(at), lengths)


def string_split_v2_kernel(x: np.ndarray, sep: np.ndarray, *, maxsplit: int) -> list[np.ndarray]:
    if x.ndim != 1:
        raise InvalidArgumentError(f"input must be a vector, got shape: {format_dims(x.shape)}")
    if sep.ndim:
        raise InvalidArgumentError(f"sep must be a scalar, got shape: {format_dims(sep.shape)}")
    return _ragged([split_like_python(v, sep.item(), maxsplit) for v in x.tolist()])


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
   ])  # fmt: skip
op("StringSplitV2(input: string, sep: string) -> (indices: int64, values: string, shape: int64) [maxsplit: int = -1]",
   shape=string_split_shape, numpy=string_split_v2_kernel,
   samples=[
       dict(input=strings(["hello  world", " a b c ", ""]), sep=strings("")),
       dict(input=strings(["a<>b<><>c", "d", ""]), sep=strings("<>")),
       dict(input=strings(["a<>b<>c", "d"]), sep=strings("<>"), maxsplit=1),
       dict(input=strings(["  a  b c  ", "d", ""]), sep=strings(""), maxsplit=1),
       dict(input=strings([" a b "]), sep=strings(""), maxsplit=0),
   ])  # fmt: skip


# -- one string at a time ---------------------------------------------------------------------------------------------


def _check_encoding(encoding: bytes) -> bool:
    if encoding not in (b"", b"utf-8"):
        raise InvalidArgumentError(f"only utf-8 or '' (no encoding) is supported, received {encoding.decode(errors='replace')}")
    return bool(encoding)


def lower_kernel(x: np.ndarray, *, encoding: bytes) -> np.ndarray:
    if _check_encoding(encoding):
        return each_string(lambda s: s.decode("utf-8", "replace").lower().encode(), x)
    return each_string(bytes.lower, x)


def upper_kernel(x: np.ndarray, *, encoding: bytes) -> np.ndarray:
    if _check_encoding(encoding):
        return each_string(lambda s: s.decode("utf-8", "replace").upper().encode(), x)
    return each_string(bytes.upper, x)


op("StringLower(input: string) -> (output: string) [encoding: string = '']",
   shape=same_as("input"), numpy=lower_kernel,
   samples=[dict(input=strings(["AbC ÄÖ", ""])), dict(input=strings(["AbC ÄÖ"]), encoding="utf-8")])  # fmt: skip
op("StringUpper(input: string) -> (output: string) [encoding: string = '']",
   shape=same_as("input"), numpy=upper_kernel,
   samples=[dict(input=strings(["AbC äöß", ""])), dict(input=strings("AbC äöß"), encoding="utf-8")],
   errors=[(dict(input=strings(["a"]), encoding="latin"), InvalidArgumentError, "only utf-8 or '' \\(no encoding\\) is supported, received latin")])  # fmt: skip
op("StringStrip(input: string) -> (output: string)",
   shape=same_as("input"), numpy=lambda x: each_string(lambda s: s.strip(_SPACE), x),
   samples=[dict(input=strings([[" a \t\n", "\x0bb\x0c\r"], ["\xa0c", ""]]))])  # fmt: skip


def _starts(s: bytes) -> list[int]:
    """Where characters begin: every byte that does not continue one."""
    return [i for i, b in enumerate(s) if b & 0xC0 != 0x80]


def length_kernel(x: np.ndarray, *, unit: bytes) -> np.ndarray:
    found = texts.lengths(x)
    if unit == b"BYTE":
        return each_number(len, x, np.int32) if found is None else found
    if found is not None and b"".join(x.ravel().tolist()).isascii():
        return found
    return each_number(lambda s: len(s) if s.isascii() else len(_starts(s)), x, np.int32)


op("StringLength(input: string) -> (output: int32) [unit: string in {'BYTE', 'UTF8_CHAR'} = 'BYTE']",
   shape=same_as("input"), numpy=length_kernel,
   samples=[dict(input=strings(["abc", "äö", ""])), dict(input=strings([["abc"], ["äö"]]), unit="UTF8_CHAR")])  # fmt: skip


def _cut_bytes(s: bytes, pos: int, length: int, place: int) -> bytes:
    start = pos if pos >= 0 else len(s) + pos
    if not 0 <= start <= len(s):
        shown = s.decode("utf-8", "replace")
        raise InvalidArgumentError(f"pos {pos} out of range for string b'{shown}' at index {place}")
    # A negative length is TF's unsigned "all of it".
    return s[start:] if length < 0 else s[start : start + length]


def _cut_characters(s: bytes, pos: int, length: int, place: int) -> bytes:
    starts = [*_starts(s), len(s)]
    if starts[0]:  # bytes that no character begins with are one, if they come first
        starts.insert(0, 0)
    count = len(starts) - 1
    start = pos if pos >= 0 else count + pos
    if not 0 <= start <= count:
        raise InvalidArgumentError(f"pos {pos} out of range for string at index {place}")
    return s[starts[start] : starts[min(start + length, count)]] if length > 0 else b""


def substr_kernel(x: np.ndarray, pos: Any, length: Any, *, unit: bytes) -> np.ndarray:
    if pos.shape != length.shape:
        raise InvalidArgumentError(f"pos and len should have the same shape, got: {format_dims(pos.shape)} vs. {format_dims(length.shape)}")
    try:
        values, starts, lengths = np.broadcast_arrays(x, pos, length)
    except ValueError:
        raise InvalidArgumentError(f"Incompatible shapes: {format_dims(x.shape)} vs. {format_dims(pos.shape)}") from None
    if unit == b"BYTE" and not pos.ndim and pos >= 0:
        begin, length = int(pos), int(length)
        part = slice(begin, begin + length if length >= 0 else None)
        if not x.size or int(length_kernel(x, unit=unit).min()) >= begin:
            return string_array([s[part] for s in x.ravel().tolist()], x.shape)
    cut = _cut_bytes if unit == b"BYTE" else _cut_characters
    rows = zip(values.ravel().tolist(), starts.ravel().tolist(), lengths.ravel().tolist(), strict=True)
    return string_array([cut(s, p, n, i) for i, (s, p, n) in enumerate(rows)], values.shape)


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
   ],
   errors=[(dict(input=strings(["hello"]), pos=6, len=1), InvalidArgumentError, "pos 6 out of range for string b'hello' at index 0")])  # fmt: skip

# -- regular expressions ----------------------------------------------------------------------------------------------


def _single(x: np.ndarray, what: str) -> bytes:
    if x.ndim:
        raise InvalidArgumentError(f"{what} must be scalar, but received {format_dims(x.shape)}")
    return x.item()


def regex_replace_kernel(x: np.ndarray, pattern: np.ndarray, rewrite: np.ndarray, *, replace_global: bool) -> np.ndarray:
    return static_regex_replace_kernel(x, pattern=_single(pattern, "Pattern"), rewrite=_single(rewrite, "Rewrite"), replace_global=replace_global)


def static_regex_replace_kernel(x: np.ndarray, *, pattern: bytes, rewrite: bytes, replace_global: bool) -> np.ndarray:
    return string_array(replace_all(pattern, x.ravel().tolist(), rewrite, replace_global), x.shape)


def regex_full_match_kernel(x: np.ndarray, pattern: np.ndarray) -> np.ndarray:
    return static_regex_full_match_kernel(x, pattern=_single(pattern, "Pattern"))


def static_regex_full_match_kernel(x: np.ndarray, *, pattern: bytes) -> np.ndarray:
    match = compile_re2(pattern).fullmatch
    return np.array([match(s) is not None for s in decoded(x.ravel().tolist())], bool).reshape(x.shape)


op("RegexReplace(input: string, pattern: string, rewrite: string) -> (output: string) [replace_global: bool = true]",
   shape=same_as("input"), numpy=regex_replace_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[
       dict(input=strings(["abcabc", "xyz", ""]), pattern=strings("b(c)"), rewrite=strings(r"<\1\0>")),
       dict(input=strings("abcabc"), pattern=strings("b(c)"), rewrite=strings("-"), replace_global=False),
       dict(input=strings(["abc", "aabb"]), pattern=strings("b*"), rewrite=strings("-")),
       dict(input=strings(["foo bar 12"]), pattern=strings(r"\pL+|[[:digit:]]$"), rewrite=strings("L")),
       dict(input=strings(["a.b"]), pattern=strings(r"\."), rewrite=strings(r"\\")),
   ],
   errors=[(dict(input=strings(["a"]), pattern=strings("b(c"), rewrite=strings("")), InvalidArgumentError, "Invalid pattern: b\\(c, error: missing \\)")])  # fmt: skip
op("StaticRegexReplace(input: string) -> (output: string) [pattern: string; rewrite: string; replace_global: bool = true]",
   shape=same_as("input"), numpy=static_regex_replace_kernel, samples=[dict(input=strings(["abc", "ab"]), pattern="[ab]", rewrite="x")])  # fmt: skip
op("RegexFullMatch(input: string, pattern: string) -> (output: bool)",
   shape=same_as("input"), numpy=regex_full_match_kernel,
   samples=[
       dict(input=strings(["abc", "ab", "abc\n"]), pattern=strings("a.c$")),
       dict(input=strings(["abc", "ab"]), pattern=strings("a|abc")),
   ],
   errors=[(dict(input=strings(["a"]), pattern=strings("[")), InvalidArgumentError, "Invalid pattern: \\[, error: missing \\]")])  # fmt: skip
op("StaticRegexFullMatch(input: string) -> (output: bool) [pattern: string]",
   shape=same_as("input"), numpy=static_regex_full_match_kernel, samples=[dict(input=strings([["abc"], ["ab"]]), pattern="a.*c")])  # fmt: skip
