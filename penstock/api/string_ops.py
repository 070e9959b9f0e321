"""tf.strings and its older names at the top level."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api.array_ops import one_of
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.graph.composite import SparseTensor
from penstock.graph.constant import constant as _constant
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


@export("as_string", "strings.as_string", "dtypes.as_string")
def as_string(
    input: Any, precision: int = -1, scientific: bool = False, shortest: bool = False, width: int = -1, fill: str = "",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Numbers as text, formatted as C's printf would."""
    return raw.AsString(
        input, precision=precision, scientific=scientific, shortest=shortest, width=width, fill=fill, name=name
    )


@export("string_to_number", "strings.to_number")
def string_to_number(string_tensor: Any = None, out_type: Any = dtypes.float32, name: str | None = None, input: Any = None) -> Tensor:
    """Text as numbers; InvalidArgumentError if a string is none."""
    return raw.StringToNumber(one_of(input, string_tensor, "input", "string_tensor"), out_type=out_type, name=name)


# -- joining and splitting --------------------------------------------------------------------------------------------


@export("string_join", "strings.join")
def string_join(inputs: Any, separator: str = "", name: str | None = None) -> Tensor:
    """The strings of several tensors, element by element; scalars go with every element."""
    return raw.StringJoin(list(inputs), separator=separator, name=name)


@export("reduce_join", "strings.reduce_join")
def reduce_join(
    inputs: Any, axis: Any = None, keep_dims: bool | None = None, separator: str = "", name: str | None = None,
    reduction_indices: Any = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The strings along `axis` (all by default) as one string."""
    keep = one_of(keepdims, keep_dims, "keepdims", "keep_dims")
    axis = one_of(axis, reduction_indices, "axis", "reduction_indices")
    with name_scope(name, "ReduceJoin", [inputs]):
        tensor = convert_to_tensor(inputs, dtype=dtypes.string)
        if axis is None:
            if tensor.dims is None:
                axis = raw.Range(raw.Sub(raw.Rank(tensor), 1, name="sub"), -1, -1, name="range")
            else:
                axis = _constant(np.arange(len(tensor.dims) - 1, -1, -1, dtype=np.int32))
        return raw.ReduceJoin(tensor, axis, keep_dims=bool(keep), separator=separator)


@export("strings.unsorted_segment_join")
def unsorted_segment_join(inputs: Any, segment_ids: Any, num_segments: Any, separator: str = "", name: str | None = None) -> Tensor:
    """The strings of each segment as one string."""
    return raw.UnsortedSegmentJoin(inputs, segment_ids, num_segments, separator=separator, name=name)


@export("string_split")
def string_split(
    source: Any, sep: Any = None, skip_empty: bool = True, delimiter: Any = None, result_type: str = "SparseTensor",
    name: str | None = None,
) -> SparseTensor:  # fmt: skip
    """A vector of strings, split at every byte of `delimiter` (a space), as a sparse matrix of strings."""
    delimiter = one_of(delimiter, sep, "delimiter", "sep")
    with name_scope(name, "StringSplit", [source]):
        delimiter = convert_to_tensor(" " if delimiter is None else delimiter, dtype=dtypes.string)
        _only_sparse(result_type)
        source = convert_to_tensor(source, dtype=dtypes.string)
        return SparseTensor(*raw.StringSplit(source, delimiter, skip_empty=skip_empty))


@export("strings.split")
def strings_split(
    input: Any = None, sep: Any = None, maxsplit: int = -1, result_type: str = "SparseTensor", source: Any = None,
    name: str | None = None,
) -> SparseTensor:  # fmt: skip
    """A vector of strings, split as Python's `str.split` does, as a sparse matrix of strings."""
    source = one_of(input, source, "input", "source")
    with name_scope(name, "StringSplit", [source]):
        source = convert_to_tensor(source, dtype=dtypes.string, name="input")
        _only_sparse(result_type)
        if source.dims == ():
            source = raw.Pack([source])
        sep = convert_to_tensor("" if sep is None else sep, dtype=dtypes.string)
        return SparseTensor(*raw.StringSplitV2(source, sep, maxsplit=maxsplit))


def _only_sparse(result_type: str) -> None:
    if result_type == "RaggedTensor":
        raise NotImplementedError("result_type='RaggedTensor': ragged tensors are not part of TF1's graphs here; use 'SparseTensor'")
    if result_type != "SparseTensor":
        raise ValueError("result_type must be one of 'RaggedTensor' or 'SparseTensor'.")


# -- one string at a time ---------------------------------------------------------------------------------------------


@export("strings.length")
def string_length(input: Any, name: str | None = None, unit: str = "BYTE") -> Tensor:
    """The number of bytes, or with `unit="UTF8_CHAR"` of characters."""
    return raw.StringLength(input, unit=unit, name=name)


@export("strings.substr", "substr")
def substr(input: Any, pos: Any, len: Any, name: str | None = None, unit: str = "BYTE") -> Tensor:
    """`len` bytes (or characters) from position `pos` on, which counts from the end if negative."""
    return raw.Substr(input, pos, len, unit=unit, name=name)


@export("strings.lower")
def lower(input: Any, encoding: str = "", name: str | None = None) -> Tensor:
    """In lower case: ASCII letters, or with `encoding="utf-8"` all."""
    return raw.StringLower(input, encoding=encoding, name=name)


@export("strings.upper")
def upper(input: Any, encoding: str = "", name: str | None = None) -> Tensor:
    """In upper case: ASCII letters, or with `encoding="utf-8"` all."""
    return raw.StringUpper(input, encoding=encoding, name=name)


@export("string_strip", "strings.strip")
def strip(input: Any, name: str | None = None) -> Tensor:
    """Without white space at both ends."""
    return raw.StringStrip(input, name=name)


@export("regex_replace", "strings.regex_replace")
def regex_replace(input: Any, pattern: Any, rewrite: Any, replace_global: bool = True, name: str | None = None) -> Tensor:
    r"""With matches of the RE2 `pattern` replaced by `rewrite`, in which `\1` stands for the first group."""
    if isinstance(pattern, (str, bytes)) and isinstance(rewrite, (str, bytes)):
        return raw.StaticRegexReplace(input, pattern=pattern, rewrite=rewrite, replace_global=replace_global, name=name)
    return raw.RegexReplace(input, pattern, rewrite, replace_global=replace_global, name=name)


@export("strings.regex_full_match")
def regex_full_match(input: Any, pattern: Any, name: str | None = None) -> Tensor:
    """Whether the RE2 `pattern` matches all of the string."""
    if isinstance(pattern, (str, bytes)):
        return raw.StaticRegexFullMatch(input, pattern=pattern, name=name)
    return raw.RegexFullMatch(input, pattern, name=name)


@export("strings.format")
def string_format(template: str, inputs: Any, placeholder: str = "{}", summarize: int = 3, name: str | None = None) -> Tensor:
    """`template` with tensors written out where `placeholder` stands, at most `summarize` entries from each end."""
    if not isinstance(inputs, (list, tuple)):
        inputs = [inputs]
    return raw.StringFormat(list(inputs), template=template, placeholder=placeholder, summarize=summarize, name=name)


@export("strings.unicode_transcode")
def unicode_transcode(
    input: Any, input_encoding: str, output_encoding: str, errors: str = "replace", replacement_char: int = 65533,
    replace_control_characters: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Strings in another encoding: "UTF-8", "UTF-16-BE" or "UTF-32-BE"."""
    return raw.UnicodeTranscode(
        input, input_encoding=input_encoding, output_encoding=output_encoding, errors=errors, replacement_char=replacement_char,
        replace_control_characters=replace_control_characters, name=name,
    )  # fmt: skip


@export("fingerprint")
def fingerprint(data: Any, method: Any = "farmhash64", name: str | None = None) -> Tensor:
    """Eight bytes for each row of `data`, always the same for the same row."""
    return raw.Fingerprint(data, method, name=name)


# -- hashes -----------------------------------------------------------------------------------------------------------


@export("string_to_hash_bucket", "strings.to_hash_bucket")
def string_to_hash_bucket(string_tensor: Any = None, num_buckets: int | None = None, name: str | None = None, input: Any = None) -> Tensor:
    """A bucket number for each string. The hash may change between versions of TF; `to_hash_bucket_fast` does not."""
    return raw.StringToHashBucket(one_of(input, string_tensor, "input", "string_tensor"), num_buckets=num_buckets, name=name)


@export("string_to_hash_bucket_fast", "strings.to_hash_bucket_fast")
def string_to_hash_bucket_fast(input: Any, num_buckets: int, name: str | None = None) -> Tensor:
    """A bucket number for each string, always the same for the same string."""
    return raw.StringToHashBucketFast(input, num_buckets=num_buckets, name=name)


@export("string_to_hash_bucket_strong", "strings.to_hash_bucket_strong")
def string_to_hash_bucket_strong(input: Any, num_buckets: int, key: Any, name: str | None = None) -> Tensor:
    """A bucket number for each string by a keyed hash: without the key nobody can make strings collide."""
    return raw.StringToHashBucketStrong(input, num_buckets=num_buckets, key=key, name=name)


# -- bytes ------------------------------------------------------------------------------------------------------------


@export("decode_raw", "io.decode_raw")
def decode_raw(
    input_bytes: Any = None, out_type: Any = None, little_endian: bool = True, name: str | None = None, bytes: Any = None
) -> Tensor:
    """Each string's bytes as a vector of numbers."""
    return raw.DecodeRaw(one_of(input_bytes, bytes, "input_bytes", "bytes"), out_type=out_type, little_endian=little_endian, name=name)


@export("decode_base64", "io.decode_base64")
def decode_base64(input: Any, name: str | None = None) -> Tensor:
    """The bytes that web-safe base64 strings stand for."""
    return raw.DecodeBase64(input, name=name)


@export("encode_base64", "io.encode_base64")
def encode_base64(input: Any, pad: bool = False, name: str | None = None) -> Tensor:
    """Strings in web-safe base64."""
    return raw.EncodeBase64(input, pad=pad, name=name)
