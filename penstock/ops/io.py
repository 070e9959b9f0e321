"""Files and readers: ReadFile, WriteFile, MatchingFiles, and the readers that turn a queue of file names into records."""

from __future__ import annotations

import fnmatch
import os
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock.errors import DataLossError, InvalidArgumentError
from penstock.formats.records import file_error, open_file
from penstock.graph.ir import Dims, Operation
from penstock.ops.declare import checked_scalar, no_outputs, op, same_as, scalar, vector
from penstock.ops.kernels import readers
from penstock.ops.kernels.handles import find, make_handle
from penstock.ops.kernels.queues import Queue
from penstock.ops.kernels.readers import Reader
from penstock.ops.samples import strings
from penstock.shapes import format_dims

# -- files ------------------------------------------------------------------------------------------------------------


def string_scalar(value: bytes) -> np.ndarray:
    result = np.empty((), dtype=object)
    result[()] = value
    return result


def read_file_kernel(filename: Any) -> np.ndarray:
    if np.ndim(filename):
        raise InvalidArgumentError(f"Input filename tensor must be scalar, but had shape: {format_dims(np.shape(filename))}")
    with open_file(filename.item(), "rb") as file:
        return string_scalar(file.read())


def write_file_kernel(filename: Any, contents: Any) -> None:
    for what, value in (("filename", filename), ("contents", contents)):
        if np.ndim(value):
            raise InvalidArgumentError(f"{'Input ' if what == 'filename' else ''}{what} tensor must be scalar, but had shape: {format_dims(np.shape(value))}")
    path = os.fsdecode(filename.item())
    folder = os.path.dirname(path)
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(path, "wb") as file:
            file.write(contents.item())
    except OSError as error:
        raise file_error(error, path) from error


def matching_files_kernel(pattern: Any) -> np.ndarray:
    if np.ndim(pattern) > 1:
        raise InvalidArgumentError(f"Input patterns tensor must be scalar or vector, but had shape: {format_dims(np.shape(pattern))}")
    found = sorted(os.fsencode(path) for one in np.ravel(pattern) for path in match_files(os.fsdecode(one)))
    result = np.empty(len(found), dtype=object)
    result[:] = found
    return result


def match_files(pattern: str) -> Iterator[str]:
    """The paths that match a pattern of `*`, `?`, `[...]` and `\\x`, none of which matches a `/`."""
    parts = re.findall(r"[^/]+", pattern)
    yield from _matches("/" if pattern.startswith("/") else "", parts)


def _matches(base: str, parts: list[str]) -> Iterator[str]:
    if not parts:
        yield base
        return
    part, rest = parts[0], parts[1:]
    if not re.search(r"[*?\[\\]", part):
        path = os.path.join(base, part)
        if os.path.lexists(path):
            yield from _matches(path, rest)
        return
    try:
        names = os.listdir(base or ".")
    except OSError:
        return
    wanted = re.compile(_regex(part))
    for name in names:
        if wanted.match(name) and (not rest or os.path.isdir(os.path.join(base, name))):
            yield from _matches(os.path.join(base, name), rest)


def _regex(part: str) -> str:
    pieces = re.split(r"(\\.)", part)
    return "(?s:" + "".join(re.escape(p[1:]) if p.startswith("\\") else fnmatch.translate(p)[4:-3] for p in pieces if p) + r")\Z"


op("ReadFile(filename: string) -> (contents: string)", shape=scalar, numpy=read_file_kernel)
op("WriteFile(filename: string, contents: string) -> () stateful", shape=no_outputs, numpy=write_file_kernel)
op("MatchingFiles(pattern: string) -> (filenames: string)", shape=vector(), numpy=matching_files_kernel)


def decode_compressed_kernel(data: Any, *, compression_type: bytes) -> np.ndarray:
    bits = {b"": 0, b"ZLIB": 15, b"GZIP": 31}.get(compression_type)
    if bits is None:
        raise InvalidArgumentError("Only ZLIB, GZIP or NONE are supported compressions")
    if not bits:
        return data
    result = np.empty(data.shape, dtype=object)
    for i, value in enumerate(data.ravel()):
        try:
            result.ravel()[i] = zlib.decompress(value, bits)
        except zlib.error as error:
            raise DataLossError(str(error).replace("Error -3 while decompressing data", "inflate() failed with error -3")) from error
    return result


op("DecodeCompressed(bytes: string) -> (output: string) [compression_type: string = '']",
   shape=same_as("bytes"), numpy=decode_compressed_kernel,
   samples=[
       dict(bytes=strings(["abc", ""]), compression_type=""),
       dict(bytes=strings([zlib.compress(b"abc"), zlib.compress(b"")]), compression_type="ZLIB"),
   ],
   errors=[(dict(bytes=strings(["junk"]), compression_type="ZLIB"), DataLossError, "incorrect header check")])  # fmt: skip


# -- readers ----------------------------------------------------------------------------------------------------------


def _reader(cls: Any, *names: str) -> Callable[..., Any]:
    """A kernel that makes a reader with the named attributes."""

    def kernel(ctx: Any, *, node: Operation, state: Any) -> Any:
        attrs = node.attrs
        values = [v.decode() if isinstance(v, bytes) else v for v in (attrs.get(name, b"") for name in names)]
        return make_handle(ctx, Reader, lambda name: cls(name, *values), node, state, attrs["container"], attrs["shared_name"],
                           as_ref=not node.type.endswith("V2"))  # fmt: skip

    return kernel


def read_kernel(ctx: Any, done: Callable[..., Any], reader: Any, queue: Any) -> None:
    find(ctx, reader, Reader).read(ctx, done, find(ctx, queue, Queue))


def read_up_to_kernel(ctx: Any, done: Callable[..., Any], reader: Any, queue: Any, num_records: Any) -> None:
    find(ctx, reader, Reader).read(ctx, done, find(ctx, queue, Queue), int(num_records))


def restore_kernel(ctx: Any, done: Callable[..., Any], reader: Any, state: Any) -> None:
    if np.ndim(state):
        raise InvalidArgumentError(f"Reader state must be scalar, but had shape: {format_dims(np.shape(state))}")
    found = find(ctx, reader, Reader)
    found.act(ctx, done, lambda: found.restore(state.item()))


def serialize_kernel(ctx: Any, done: Callable[..., Any], reader: Any) -> None:
    found = find(ctx, reader, Reader)
    found.act(ctx, done, lambda: string_scalar(found.serialize()))


def reset_kernel(ctx: Any, done: Callable[..., Any], reader: Any) -> None:
    found = find(ctx, reader, Reader)
    found.act(ctx, done, found.reset)


def up_to_shape(c: Any) -> Dims:
    checked_scalar(c, 2)
    return (None,)


_NAMES = "container: string = ''; shared_name: string = ''"
_FIXED = "header_bytes: int = 0; record_bytes: int; footer_bytes: int = 0; hop_bytes: int = 0"
for _name, _attrs, _kernel, _deprecated in (
    ("IdentityReader", _NAMES, _reader(readers.IdentityReader), " deprecated@26"),
    ("WholeFileReader", _NAMES, _reader(readers.WholeFileReader), ""),
    ("TextLineReader", f"skip_header_lines: int = 0; {_NAMES}", _reader(readers.TextLineReader, "skip_header_lines"), " deprecated@26"),
    ("TFRecordReader", f"{_NAMES}; compression_type: string = ''", _reader(readers.TFRecordReader, "compression_type"), " deprecated@26"),
    ("FixedLengthRecordReader", f"{_FIXED}; {_NAMES}",
     _reader(readers.FixedLengthRecordReader, "header_bytes", "record_bytes", "footer_bytes", "hop_bytes", "encoding"), " deprecated@26"),
):  # fmt: skip
    _more = "; encoding: string = ''" if _name.startswith("Fixed") else ""
    op(f"{_name}() -> (reader_handle: ref string) [{_attrs}] stateful{_deprecated}", shape=vector(2), numpy=_kernel)
    op(f"{_name}V2() -> (reader_handle: resource) [{_attrs}{_more}] stateful", shape=scalar, numpy=_kernel)

for _v, _handle, _flags in (("", "ref string", ""), ("V2", "resource", " stateful")):
    op(f"ReaderRead{_v}(reader_handle: {_handle}, queue_handle: {_handle}) -> (key: string, value: string){_flags}",
       shape=scalar, async_kernel=read_kernel)  # fmt: skip
    op(f"ReaderReadUpTo{_v}(reader_handle: {_handle}, queue_handle: {_handle}, num_records: int64) -> (keys: string, values: string){_flags}",
       shape=up_to_shape, async_kernel=read_up_to_kernel)  # fmt: skip
    op(f"ReaderNumRecordsProduced{_v}(reader_handle: {_handle}) -> (records_produced: int64){_flags}",
       shape=scalar, numpy=lambda ctx, reader: np.int64(find(ctx, reader, Reader).produced))  # fmt: skip
    op(f"ReaderNumWorkUnitsCompleted{_v}(reader_handle: {_handle}) -> (units_completed: int64){_flags}",
       shape=scalar, numpy=lambda ctx, reader: np.int64(find(ctx, reader, Reader).finished))  # fmt: skip
    op(f"ReaderSerializeState{_v}(reader_handle: {_handle}) -> (state: string){_flags}",
       shape=scalar, async_kernel=serialize_kernel)  # fmt: skip
    op(f"ReaderRestoreState{_v}(reader_handle: {_handle}, state: string) -> (){_flags}", shape=no_outputs, async_kernel=restore_kernel)
    op(f"ReaderReset{_v}(reader_handle: {_handle}) -> (){_flags}", shape=no_outputs, async_kernel=reset_kernel)
