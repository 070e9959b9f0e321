"""Strings as numbers: hash buckets, fingerprints, base64, raw bytes; and tensors written out as text."""

from __future__ import annotations

import binascii
import functools
import string
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, same_as, scalar
from penstock.ops.kernels import number_texts
from penstock.ops.kernels.hashes import decimal_fingerprints64, fingerprint64, fingerprints64, hashes64, siphashes
from penstock.ops.kernels.many_strings import MANY, cut, laid_out, lengths_of, letters_of, starts_of
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.native import making
from penstock.ops.samples import NO_TEXTS, arr, bools, ints, many, strings
from penstock.ops.strings import each_string, string_array
from penstock.shapes import format_dims

# -- hashes -----------------------------------------------------------------------------------------------------------


def _buckets(hashes: np.ndarray, count: int, shape: Any) -> np.ndarray:
    return (hashes % np.uint64(count)).astype(np.int64).reshape(shape)


def strong_kernel(x: np.ndarray, *, num_buckets: int, key: list[int]) -> np.ndarray:
    if len(key) != 2:
        raise InvalidArgumentError("Key must have 2 elements")
    return _buckets(siphashes(x, key[0], key[1]), num_buckets, x.shape)


op("StringToHashBucket(string_tensor: string) -> (output: int64) [num_buckets: int >= 1]",
   shape=same_as("string_tensor"), numpy=lambda x, *, num_buckets: _buckets(hashes64(x), num_buckets, x.shape),
   grad=NOT_DIFFERENTIABLE, samples=[dict(string_tensor=strings([["a", "hello"], ["", "x" * 20]]), num_buckets=1000), dict(string_tensor=many(NO_TEXTS), num_buckets=2**62)])  # fmt: skip
op("StringToHashBucketFast(input: string) -> (output: int64) [num_buckets: int >= 1]",
   shape=same_as("input"), numpy=lambda x, *, num_buckets: _buckets(fingerprints64(x), num_buckets, x.shape),
   grad=NOT_DIFFERENTIABLE,
   samples=[dict(input=strings(["a", "hello", "", "x" * 20, "y" * 40, "z" * 70, "w" * 200]), num_buckets=2**62)])  # fmt: skip
op("StringToHashBucketStrong(input: string) -> (output: int64) [num_buckets: int >= 1; key: list(int)]",
   shape=same_as("input"), numpy=strong_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(input=strings(["a", "hello", "", "x" * 20]), num_buckets=2**62, key=[1, 2])],
   errors=[(dict(input=strings(["a"]), num_buckets=2, key=[1]), InvalidArgumentError, "Key must have 2 elements")])  # fmt: skip
op("_TensorToHashBucketFast(input: T) -> (output: int64) [T: type in INTS; num_buckets: int >= 1]",
   shape=same_as("input"),
   numpy=lambda x, *, num_buckets: _buckets(decimal_fingerprints64(np.ravel(x)), num_buckets, np.shape(x)))  # fmt: skip


def fingerprint_kernel(data: np.ndarray, method: np.ndarray) -> np.ndarray:
    if method.ndim:
        raise InvalidArgumentError(f"`method` should be a scalar string: {format_dims(method.shape)}")
    if method.item() != b"farmhash64":
        raise InvalidArgumentError(f"Unsupported method: {method.item().decode(errors='replace')}")
    if data.ndim == 0:
        raise InvalidArgumentError(f"`data` should have at least one dimension: {format_dims(data.shape)}")
    if data.dtype == object and data.ndim == 1:
        rows = data.tolist()
    elif data.dtype == object:
        # Several strings to a row: the fingerprint of their fingerprints.
        rows = [b"".join(fingerprint64(s).to_bytes(8, "little") for s in row) for row in data.reshape(len(data), -1).tolist()]
    else:
        rows = [row.tobytes() for row in np.ascontiguousarray(data)]
    hashed = b"".join(fingerprint64(row).to_bytes(8, "little") for row in rows)
    return np.frombuffer(hashed, np.uint8).reshape(len(data), 8)


def fingerprint_shape(c: Any) -> Dims:
    dims, method = c.dims(0), c.const(1)
    if method is not None and method.item() != b"farmhash64":
        raise ValueError(f"Unsupported method: {method.item().decode(errors='replace')}")
    return (None if dims is None else dims[0], 8)


op("Fingerprint(data: T, method: string) -> (fingerprint: uint8) [T: type]",
   shape=fingerprint_shape, numpy=fingerprint_kernel,
   samples=[
       dict(data=strings(["abc", "d"]), method=strings("farmhash64")),
       dict(data=strings([["abc", "d"]]), method=strings("farmhash64")),
       dict(data=ints(2, 3), method=strings("farmhash64")),
   ],
   errors=[(dict(data=[1], method=strings("x")), InvalidArgumentError, "Unsupported method: x")])  # fmt: skip

# -- bytes ------------------------------------------------------------------------------------------------------------


_URL_SAFE, _PLAIN = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")
_IN_ORDER = (string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_").encode()


def encode_base64_kernel(x: np.ndarray, *, pad: bool) -> np.ndarray:
    if x.size >= MANY:
        # Each string is filled up to threes, so that all can be encoded as one.
        sizes = lengths_of(x)
        missing = -sizes % 3
        threes = sizes + missing
        text = laid_out(int(threes.sum()), 0, (x, starts_of(threes)))
        fours = threes // 3 * 4
        starts, letters = starts_of(fours), bytearray(binascii.b2a_base64(text.data, newline=False).translate(_URL_SAFE))
        letters = np.frombuffer(letters, np.uint8)
        if not pad:
            return cut(letters, starts, fours - missing, x.shape)
        for count in (1, 2):
            letters[(starts + fours - count)[missing >= count]] = ord("=")
        return cut(letters, starts, fours, x.shape)
    encoded = [binascii.b2a_base64(s, newline=False) for s in x.ravel().tolist()]
    ends = encoded if pad else [s.rstrip(b"=") for s in encoded]
    return string_array([s.translate(_URL_SAFE) for s in ends], x.shape)


def _without_padding(s: bytes) -> bytes:
    return s.rstrip(b"=") if len(s) % 4 == 0 and not s.endswith(b"===") else s


def _decode_base64(s: bytes) -> bytes:
    bare = _without_padding(s)
    if len(bare) % 4 == 1:
        raise InvalidArgumentError("Base64 string length cannot be 1 modulo 4.")
    if bare.translate(None, _IN_ORDER):
        raise InvalidArgumentError("Invalid character found in base64.")
    return binascii.a2b_base64(bare.translate(_PLAIN) + b"=="[: -len(bare) & 3])


def decode_base64_kernel(x: np.ndarray) -> np.ndarray:
    if x.size < MANY:
        return each_string(_decode_base64, x)
    sizes = lengths_of(x)
    if (letters_of(x, sizes) == ord("=")).any():
        x = each_string(_without_padding, x)
        sizes = lengths_of(x)
    missing = -sizes & 3
    fours = sizes + missing
    data = _unpacked(laid_out(int(fours.sum()) + 16, ord("A"), (x, starts_of(fours)))) if (missing < 3).all() else None
    if data is None:
        return each_string(_decode_base64, x)  # which knows what is wrong
    return cut(data, starts_of(fours // 4 * 3), sizes * 3 // 4, x.shape)


_NONE = 0xFFFF


@functools.cache
def _pairs() -> np.ndarray:
    """The 12 bits that two letters stand for, by the number that they are; _NONE if they are no letters."""
    codes = np.full(256, 64, np.uint16)
    codes[np.frombuffer(_IN_ORDER, np.uint8)] = np.arange(64)
    first, second = codes, codes[:, None]  # the first letter is the lower byte
    return np.where((first | second) < 64, first << 6 | second, _NONE).astype(np.uint16).ravel()


def _unpacked(letters: np.ndarray) -> np.ndarray | None:
    """What base64 letters stand for, as bytes, up to the last sixteen of them; None if there is something else. Sixteen letters become three
    numbers of 32 bits."""
    pairs = _pairs().take(letters[: len(letters) // 16 * 16].view("<u2"))
    if not pairs.size or pairs.max() == _NONE:
        return None
    pairs = pairs.astype(np.uint32)
    fours = pairs[0::2] << 12
    fours |= pairs[1::2]
    a, b, c, d = (fours[i::4] for i in range(4))
    result = np.empty((a.size, 3), ">u4")
    result[:, 0], result[:, 1], result[:, 2] = a << 8 | b >> 16, b << 16 | c >> 8, c << 24 | d
    return result.view(np.uint8).ravel()


op("EncodeBase64(input: string) -> (output: string) [pad: bool = false]",
   shape=same_as("input"), numpy=encode_base64_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[
       dict(input=strings(["hello", "a?>", ""])), dict(input=strings([["hello"], ["a?>"]]), pad=True),
       *[dict(input=many(NO_TEXTS), pad=p) for p in (True, False)],
   ])  # fmt: skip
op("DecodeBase64(input: string) -> (output: string)",
   shape=same_as("input"), numpy=decode_base64_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(input=strings(["aGVsbG8", "YT8-", "aGVsbG8=", ""])), dict(input=many(["aGVsbG8", "YT8-", "aGVsbG8=", ""]))],
   errors=[
       (dict(input=strings(["a"])), InvalidArgumentError, "Base64 string length cannot be 1 modulo 4."),
       (dict(input=strings(["aG+/"])), InvalidArgumentError, "Invalid character found in base64."),
   ])  # fmt: skip


def decode_raw_kernel(x: np.ndarray, *, out_type: DType, little_endian: bool) -> np.ndarray:
    size = out_type.np.itemsize
    if not x.size:
        return np.empty((*x.shape, 0), out_type.np)
    length = len(x.item(0))
    raw = making.of_length(np.ascontiguousarray(x), length) if x.size > 1 else x.item(0)
    if raw is None:
        sizes = lengths_of(x)
        if (sizes != length).any():
            i = int(np.argmax(sizes != length))
            raise InvalidArgumentError(
                f"DecodeRaw requires input strings to all be the same size, but element {i} has size {length} != {sizes[i]}"
            )
        raw = letters_of(x, sizes)
    if length % size:
        raise InvalidArgumentError(
            f"Input to DecodeRaw has length {length} that is not a multiple of {size}, the size of {dtype_text(out_type)}"
        )
    return _numbers(raw, out_type, little_endian).reshape((*x.shape, length // size))


def _numbers(raw: Any, dtype: DType, little_endian: bool) -> np.ndarray:
    result = np.frombuffer(raw, dtype.np)
    if little_endian:
        return result
    if dtype.np.kind == "c":  # each of the two parts is swapped by itself
        part = np.float32 if dtype is dtypes.complex64 else np.float64
        return np.frombuffer(raw, part).byteswap().view(dtype.np)
    return result.view(f"u{dtype.np.itemsize}").byteswap().view(dtype.np) if dtype.np.itemsize > 1 else result


def decode_raw_shape(c: Any) -> Dims:
    dims = c.dims(0)
    return None if dims is None else (*dims, None)


op("DecodeRaw(bytes: string) -> (output: out_type) [out_type: type in {half, float, double, int32, uint16, uint8, int16, int8, int64,"
   " complex64, complex128, bool, bfloat16}; little_endian: bool = true]",
   shape=decode_raw_shape, numpy=decode_raw_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[
       dict(bytes=strings(["abcd", "efgh"]), out_type="int16"),
       dict(bytes=strings(["abcd", "efgh"]), out_type="int16", little_endian=False),
       dict(bytes=strings("abcdefgh"), out_type="float32", little_endian=False),
       dict(bytes=strings([]), out_type="uint8"),
       dict(bytes=strings(""), out_type="int64"),
   ],
   errors=[
       (dict(bytes=strings("abc"), out_type="int16"), InvalidArgumentError,
        "Input to DecodeRaw has length 3 that is not a multiple of 2, the size of int16"),
       (dict(bytes=strings(["abcd", "ef"]), out_type="int16"), InvalidArgumentError, "element 1 has size 4 != 2"),
   ])  # fmt: skip


def decode_padded_raw_kernel(x: np.ndarray, fixed_length: Any, *, out_type: DType, little_endian: bool) -> np.ndarray:
    length, size = int(fixed_length), out_type.np.itemsize
    if length <= 0 or length % size:
        raise InvalidArgumentError(f"fixed_length ({length}) must be a multiple of the size of out_type ({size})")
    values = making.padded(np.ascontiguousarray(x), length)
    if values is None:
        letters = [text[:length] for text in x.ravel().tolist()]
        values = laid_out(length * x.size, 0, (string_array(letters, x.size), np.arange(x.size) * length))
    return _numbers(values, out_type, little_endian).reshape((*x.shape, length // size))


def decode_padded_raw_shape(c: Any) -> Dims:
    dims, length, size = c.dims(0), c.const(1), c.attrs["out_type"].np.itemsize
    if length is not None:
        if length < 0:
            raise ValueError(f"Dimension size, given by scalar input 1, must be non-negative but is {int(length)}")
        if int(length) % size:
            raise ValueError(f"Dimension size must be evenly divisible by {size} but is {int(length)}")
    return None if dims is None else (*dims, None if length is None else int(length) // size)


op("DecodePaddedRaw(input_bytes: string, fixed_length: int32) -> (output: out_type) [out_type: type in {half, float, double, int32, uint16,"
   " uint8, int16, int8, int64, bfloat16}; little_endian: bool = true]",
   shape=decode_padded_raw_shape, numpy=decode_padded_raw_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[
       dict(input_bytes=strings(["abcdef", "e"]), fixed_length=arr(4), out_type="int16"),
       dict(input_bytes=many(NO_TEXTS), fixed_length=arr(4), out_type="int16"),
       dict(input_bytes=strings(["abcd"]), fixed_length=arr(8), out_type="float32", little_endian=False),
   ])  # fmt: skip

# -- formatting -------------------------------------------------------------------------------------------------------


def format_tensor(x: Any, summarize: int) -> str:
    """A tensor as tf.print and StringFormat write it: rows in brackets, at most `summarize` entries from each end."""
    return _format(np.asarray(x), summarize, 0)


def _format(x: np.ndarray, summarize: int, depth: int) -> str:
    if x.ndim == 0:
        return _element(x.item() if x.dtype == object else x[()])
    n = len(x)
    ends = n if summarize < 0 or n <= 2 * summarize else summarize
    if x.ndim == 1:
        shown = _elements(x if ends == n else np.concatenate([x[:ends], x[n - ends :]]))
        return "[" + " ".join(shown if ends == n else [*shown[:ends], "...", *shown[ends:]]) + "]"
    parts = [_format(x[i, ...], summarize, depth + 1) for i in range(min(ends, n))]
    if ends < n:
        parts += ["...", *[_format(x[i, ...], summarize, depth + 1) for i in range(n - ends, n)]]
    gap = "\n" * (x.ndim - 1) + " " * (depth + 1)
    return "[" + gap.join(parts) + "]"


def _elements(x: np.ndarray) -> list[str]:
    """`_element` of each of a vector."""
    if x.dtype.kind in "iu":
        return list(map(str, x.tolist()))
    if x.dtype not in (np.float32, np.float64):
        return [_element(v) for v in (x.tolist() if x.dtype == object else x)]
    few, many = ("%.6g", "%.9g") if x.dtype == np.float32 else ("%.15g", "%.17g")
    texts = number_texts.exact(x) if len(x) >= MANY and x.dtype == np.float32 else None
    if texts is None:
        values = x.tolist()
        texts = [few % v for v in values]
        for i in np.flatnonzero((np.array(list(map(float, texts)), x.dtype) != x) & (x == x)).tolist():
            texts[i] = many % values[i]
    for i in np.flatnonzero(np.isnan(x) & np.signbit(x)).tolist():
        texts[i] = "-nan"
    return texts


def _element(value: Any) -> str:
    if isinstance(value, bytes):
        return '"' + value.decode("utf-8", "replace") + '"'
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, np.complexfloating):
        return "?"  # TensorFlow's summaries do not know these
    if np.issubdtype(type(value), np.integer):
        return str(int(value))
    return shortest_float(value)


def shortest_float(value: Any) -> str:
    """The shortest text that reads back as the same float, in C's `%g` style."""
    if np.isnan(value):
        return _nan(value)
    if np.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value.dtype.itemsize >= 8:
        return next(t for t in (f"{float(value):.15g}", f"{float(value):.17g}") if np.float64(t) == value)
    value = np.float32(value)  # halves too
    return next(t for t in (f"{float(value):.6g}", f"{float(value):.9g}") if np.float32(t) == value)


def _nan(value: Any) -> str:
    return "-nan" if np.signbit(value) else "nan"


def string_format_kernel(inputs: list[Any], *, template: bytes, placeholder: bytes, summarize: int) -> np.ndarray:
    pieces = template.split(placeholder)
    if len(pieces) != len(inputs) + 1:
        raise InvalidArgumentError(f"num placeholders in template and num inputs must match: {len(pieces) - 1} vs. {len(inputs)}")
    out = pieces[0]
    for value, piece in zip(inputs, pieces[1:], strict=True):
        out += format_tensor(value, summarize).encode() + piece
    return np.array(out, dtype=object)


def string_format_shape(c: Any) -> Dims:
    found = c.attrs["template"].count(c.attrs["placeholder"])
    if found != c.n:
        raise ValueError(f"num placeholders in template and num inputs must match: {found} vs. {c.n}")
    return scalar(c)


op("StringFormat(inputs: list T) -> (output: string)"
   " [T: list(type) >= 0; template: string = '%s'; placeholder: string = '%s'; summarize: int = 3]",
   shape=string_format_shape, numpy=string_format_kernel,
   samples=[
       dict(inputs=[arr([1, 2, 3], np.int32), strings("a")], template="x=%s y=%s"),
       dict(inputs=[arr(np.arange(24).reshape(2, 3, 4), np.int64)], template="x={}", placeholder="{}"),
       dict(inputs=[arr(np.arange(100), np.int32)]),
       dict(inputs=[arr([1.5, 0.1, 1e10], np.float32), bools(2)], template="%s %s"),
       dict(inputs=[arr([[0.1, 1 / 3]], np.float64)], summarize=-1),
       dict(inputs=[arr([0.1, 1 / 3, np.nan], np.float16), arr([np.nan, -np.nan, 1.5], np.float32), arr([complex(1, -np.nan)], np.complex64)], template="%s %s %s"),
       *[dict(inputs=[arr([0.1, 1 / 3, 1e10, 2.0, -1e-7, 123456.789] * 20, t)], summarize=-1) for t in (np.float32, np.float64)],
   ])  # fmt: skip
