"""Strings: numbers as text and back, joining, matching. Their parts are in `string_parts`.

A string tensor is an object array of `bytes`; `each_string` applies a function to every element.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError, OutOfRangeError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, axes_of, op, same_as
from penstock.ops.kernels import number_texts
from penstock.ops.kernels.many_strings import MANY, cut, laid_out, lengths_of, starts_of
from penstock.ops.kernels.numerals import read_numbers
from penstock.ops.kernels.regex import compile_re2, decoded, full_matches, replace_all, replace_in
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.samples import NO_TEXTS, TEXTS, arr, bools, many, normal, strings
from penstock.shapes import format_dims, merge_dims


def string_array(values: list[bytes], shape: Any) -> np.ndarray:
    """An object array of bytes, without NumPy looking into the strings."""
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result.reshape(shape)


def _repeated(value: bytes, count: int) -> np.ndarray:
    """Other than `np.full`, which takes the NULs off its end."""
    result = np.empty(count, object)
    result.fill(value)
    return result


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
    text = "%" if dtype.is_unsigned and fill in (b" ", b"+") else "%" + fill.decode()  # C has signs for signed numbers only
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
    if fill == b"0" and (T.is_complex or T.is_floating):
        write = _as_c(form, width, fill, number_format(T, precision, scientific, shortest, width, b""))
        parts = ((write(v.real), write(v.imag)) for v in flat.tolist()) if T.is_complex else ()
        values = [f"({a},{b})".encode() for a, b in parts] if T.is_complex else [write(v).encode() for v in flat.astype(np.float64).tolist()]
    elif T.is_complex:
        write = _as_c(form, width, fill)
        values = [f"({write(v.real)},{write(v.imag)})".encode() for v in flat.tolist()]
    else:
        if len(flat) >= MANY:
            found = _written(flat, T, form, precision, width, fill, np.shape(x))
            if found is not None:
                return found
        pattern = form.encode()
        values = list(map(str.encode, map(_as_c(form, width, fill), flat.astype(np.float64).tolist()))) if T.is_floating else [pattern % v for v in flat.tolist()]
    return string_array(values, np.shape(x))


def _as_c(form: str, width: int, fill: bytes, spaced: str | None = None) -> Callable[[float], str]:
    """Writes floats as C does: NaN has a sign, and what is not finite is not filled up with zeros but by the format `spaced`."""
    negative = "-nan".ljust(width) if fill == b"-" else "-nan".rjust(width)

    def write(v: float) -> str:
        if math.isfinite(v):
            return form % v
        return negative if math.isnan(v) and math.copysign(1.0, v) < 0 else (spaced or form) % v

    return write


def _written(flat: np.ndarray, dtype: DType, form: str, precision: int, width: int, fill: bytes, shape: Any) -> np.ndarray | None:
    """Many numbers at once; None for formats that are rare."""
    if dtype.is_floating:
        write = _as_c(form, width, fill)
        return None if fill or width > 0 else number_texts.floats(flat.astype(np.float64), form[-1], precision, lambda v: write(v).encode(), shape)
    return number_texts.integers(flat, width, fill == b"0", shape) if fill in (b"", b"0") else None


op("AsString(input: T) -> (output: string) [T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32,"
   " uint64, complex64, complex128, bool, variant, string}; precision: int = -1; scientific: bool = false; shortest: bool = false;"
   " width: int = -1; fill: string = '']",
   shape=same_as("input"), numpy=as_string_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[
       dict(input=arr([[1, 2, -3]])),
       dict(input=arr([1.5, -0.1, 1e10, 1e-7, np.nan, np.inf], np.float32)),
       *[dict(input=arr([np.nan, -np.nan, 1.5] * 30, np.float32), **attrs) for attrs in ({}, dict(width=7), dict(width=7, fill="0"), dict(width=6, fill="-"), dict(shortest=True), dict(scientific=True, precision=2))],
       dict(input=arr([complex(-np.nan, 1), complex(2, -np.nan)], np.complex64)),
       dict(input=arr([1.5, 1e10, 1e-5], np.float64), precision=2),
       dict(input=arr([1.5, 1e10, 1e-5], np.float32), scientific=True),
       dict(input=arr([1.0, 2.5, 1e10, 1e-5], np.float32), shortest=True),
       dict(input=arr([1.0, -2.5], np.float32), width=12, fill="0"),
       dict(input=arr([1.0, -2.5], np.float32), width=12, fill="-"),
       dict(input=arr([3, -7], np.int64), width=5),
       dict(input=bools(3), width=7),
       dict(input=normal(2, dtype=np.complex64), precision=1),
       dict(input=strings(["a"])),
       *[dict(input=normal(100, dtype=np.float32), **form) for form in ({}, dict(precision=2), dict(scientific=True), dict(shortest=True))],
       dict(input=arr([0.0, -0.0, np.nan, np.inf, 1e300, 1e-300, 0.5, 2.5, 123456.5] * 10, np.float64), shortest=True),
       dict(input=arr([0.0, -0.0, np.nan, np.inf, 1e22, 0.5, 2.5, 1e-7] * 10, np.float64), precision=1),
       *[dict(input=arr([0, 9, 10, -10, 2**31 - 1, -(2**31), 77, -1] * 10, np.int32), **form) for form in ({}, dict(width=6), dict(width=6, fill="0"))],
       dict(input=arr([-(2**63), 2**63 - 1] * 40, np.int64)),
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
       dict(string_tensor=many(["5", "-17", "+3", "0004", "2147483647"]), out_type="int32"),
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
    if size >= MANY and inputs:
        return _joined_rows(inputs, separator, shape, size)
    columns = [x.ravel().tolist() if x.ndim else [x.item()] * size for x in inputs]
    return string_array([separator.join(row) for row in zip(*columns, strict=True)] if columns else [b""], shape)


def _joined_rows(columns: list[np.ndarray], separator: bytes, shape: Any, size: int) -> np.ndarray:
    """A string of each row of these columns; a column may be one string for all."""
    sizes = [lengths_of(c) if c.ndim else np.full(size, len(c.item())) for c in columns]
    lengths = sum(sizes[1:], sizes[0]) + len(separator) * (len(columns) - 1)
    starts = at = starts_of(lengths)
    pieces: list[tuple[np.ndarray, np.ndarray]] = []
    for column, more in zip(columns, sizes, strict=True):
        if pieces and len(separator) > 1:
            pieces.append((_repeated(separator, size), at - len(separator)))
        pieces.append((column.ravel() if column.ndim else _repeated(column.item(), size), at))
        at = at + (more + len(separator))
    letters = laid_out(int(lengths.sum()), separator[0] if separator else 0, *pieces)
    return cut(letters, starts, lengths, shape)


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
       *[dict(inputs=[many(NO_TEXTS), strings("x"), many(TEXTS)], separator=s) for s in ("", "-", "<>")],
       *[dict(inputs=[strings(["a"] * n), strings("k\0"), strings(["b"] * n)], separator=s) for n in (2, 70) for s in ("-", "<\0")],
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
    shape = [1 if i in order else x.shape[i] for i in range(rank)] if keep_dims else outer
    if len(rows) < MANY or rows.shape[1] > MANY or not rows.size:
        return string_array([separator.join(row) for row in rows.tolist()], shape)
    return _joined_rows(list(rows.T), separator, shape, len(rows))


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
       dict(inputs=strings([["a", "b\0"]] * 70), reduction_indices=arr([1]), separator="-\0"),
   ],
   errors=[
       (dict(inputs=strings([["a"]]), reduction_indices=[0, 0]), InvalidArgumentError, "Duplicate reduction dimension 0"),
       (dict(inputs=strings([["a"]]), reduction_indices=[5]), OutOfRangeError, "Invalid reduction dimension 5 for input with 2 dimension"),
   ])  # fmt: skip


def segment_join_kernel(x: np.ndarray, ids: np.ndarray, count: Any, *, separator: bytes) -> np.ndarray:
    separator = separator.partition(b"\0")[0]  # TensorFlow reads it as C does
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
    if not rows.size:
        return string_array([b""] * (int(count) * rows.shape[1]), (int(count), *rest))
    if rows.size < MANY:
        joined, width = [b""] * (int(count) * rows.shape[1]), rows.shape[1]
        for segment, row in zip(ids.ravel().tolist(), rows.tolist(), strict=True):
            for place, text in enumerate(row, segment * width):
                joined[place] = joined[place] + separator + text if joined[place] else text
        return string_array(joined, (int(count), *rest))
    # Strings in the order of their places in the result; each has a separator in front if some letters come before it in its place.
    places = (ids.reshape(-1, 1) * rows.shape[1] + np.arange(rows.shape[1])).ravel()
    order = np.argsort(places, kind="stable")
    texts, places = rows.ravel()[order], places[order]
    sizes = lengths_of(texts)
    before, is_first = starts_of(sizes), np.append(True, places[1:] != places[:-1])
    has_more = before > before[is_first][np.cumsum(is_first) - 1]
    sizes += has_more * len(separator)
    starts = starts_of(sizes)
    heads = starts + has_more * len(separator)
    others = [(_repeated(separator, int(np.count_nonzero(has_more))), starts[has_more])] if len(separator) > 1 else []
    letters = laid_out(int(sizes.sum()), separator[0] if separator else 0, *others, (texts, heads))
    lengths = np.bincount(places, sizes, int(count) * rows.shape[1]).astype(np.int64)
    return cut(letters, starts_of(lengths), lengths, (int(count), *rest))


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
       *[dict(inputs=many(NO_TEXTS), segment_ids=arr([i % 7 for i in range(80)]), num_segments=arr(9), separator=s) for s in ("", ";", "<>", "<\0")],
   ],
   errors=[
       (dict(inputs=strings(["a"]), segment_ids=[-1], num_segments=1), InvalidArgumentError,
        "segment_ids are not allowed to exceed num_segments or to have negative values."),
   ])  # fmt: skip


# -- regular expressions ----------------------------------------------------------------------------------------------


def _single(x: np.ndarray, what: str) -> bytes:
    if x.ndim:
        raise InvalidArgumentError(f"{what} must be scalar, but received {format_dims(x.shape)}")
    return x.item()


def regex_replace_kernel(x: np.ndarray, pattern: np.ndarray, rewrite: np.ndarray, *, replace_global: bool) -> np.ndarray:
    return static_regex_replace_kernel(x, pattern=_single(pattern, "Pattern"), rewrite=_single(rewrite, "Rewrite"), replace_global=replace_global)


def static_regex_replace_kernel(x: np.ndarray, *, pattern: bytes, rewrite: bytes, replace_global: bool) -> np.ndarray:
    found = replace_in(x, pattern, rewrite, replace_global) if x.size >= MANY else None
    return found if found is not None else string_array(replace_all(pattern, x.ravel().tolist(), rewrite, replace_global), x.shape)


def regex_full_match_kernel(x: np.ndarray, pattern: np.ndarray) -> np.ndarray:
    return static_regex_full_match_kernel(x, pattern=_single(pattern, "Pattern"))


def static_regex_full_match_kernel(x: np.ndarray, *, pattern: bytes) -> np.ndarray:
    if x.size >= MANY:
        return full_matches(pattern, x)
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
       *[dict(input=many(texts), pattern=strings(p), rewrite=strings(r), replace_global=g)
         for texts in (TEXTS, ["a1b22", "", "no", "a,b", "7"]) for p, r in (("[0-9]+", "#"), ("[^a]", ""), ("(b)(2|,)", r"\2\1")) for g in (True, False)],
   ],
   errors=[(dict(input=strings(["a"]), pattern=strings("b(c"), rewrite=strings("")), InvalidArgumentError, "Invalid pattern: b\\(c, error: missing \\)")])  # fmt: skip
op("StaticRegexReplace(input: string) -> (output: string) [pattern: string; rewrite: string; replace_global: bool = true]",
   shape=same_as("input"), numpy=static_regex_replace_kernel, samples=[dict(input=strings(["abc", "ab"]), pattern="[ab]", rewrite="x")])  # fmt: skip
op("RegexFullMatch(input: string, pattern: string) -> (output: bool)",
   shape=same_as("input"), numpy=regex_full_match_kernel,
   samples=[
       dict(input=strings(["abc", "ab", "abc\n"]), pattern=strings("a.c$")),
       dict(input=strings(["abc", "ab"]), pattern=strings("a|abc")),
       *[dict(input=many(["abc", "ab", "", "a\nc", "äbc", "B1"]), pattern=strings(p)) for p in ("^a.c$", "(?i)[ab]+1?", "(a|ä)?b*c?", "(?s).*")],
   ],
   errors=[(dict(input=strings(["a"]), pattern=strings("[")), InvalidArgumentError, "Invalid pattern: \\[, error: missing \\]")])  # fmt: skip
op("StaticRegexFullMatch(input: string) -> (output: bool) [pattern: string]",
   shape=same_as("input"), numpy=static_regex_full_match_kernel, samples=[dict(input=strings([["abc"], ["ab"]]), pattern="a.*c")])  # fmt: skip
