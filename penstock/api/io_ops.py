"""Files and readers in graphs: `tf.read_file`, `tf.matching_files`, `tf.TextLineReader` and its relatives."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api.data_flow import QueueBase
from penstock.api.export import export
from penstock.api.tfrecords import TFRecordOptions
from penstock.graph.ir import Operation, Tensor
from penstock.graph.raw import raw


@export("read_file", "io.read_file")
def read_file(filename: Any, name: str | None = None) -> Tensor:
    """The contents of a file, as a string."""
    return raw.ReadFile(filename, name=name)


@export("write_file", "io.write_file")
def write_file(filename: Any, contents: Any, name: str | None = None) -> Operation:
    """Writes `contents` to a file, and makes its folder if it is not there."""
    return raw.WriteFile(filename, contents, name=name)


@export("matching_files", "io.matching_files")
def matching_files(pattern: Any, name: str | None = None) -> Tensor:
    """The sorted names of the files that match a pattern, or any of several. `*`, `?` and `[...]` do not match a `/`."""
    return raw.MatchingFiles(pattern, name=name)


@export("serialize_tensor", "io.serialize_tensor")
def serialize_tensor(tensor: Any, name: str | None = None) -> Tensor:
    """`tensor` as a serialised TensorProto."""
    return raw.SerializeTensor(tensor, name=name)


@export("parse_tensor", "io.parse_tensor")
def parse_tensor(serialized: Any, out_type: Any, name: str | None = None) -> Tensor:
    """The tensor in a serialised TensorProto."""
    return raw.ParseTensor(serialized, out_type=dtypes.as_dtype(out_type), name=name)


@export("decode_compressed", "io.decode_compressed")
def decode_compressed(bytes: Any, compression_type: str = "", name: str | None = None) -> Tensor:
    """Decompresses strings; `compression_type` is "", "ZLIB" or "GZIP"."""
    return raw.DecodeCompressed(bytes, compression_type=compression_type, name=name)


@export("ReaderBase")
class ReaderBase:
    """What all readers can do: take pieces of work (file names) from a queue, and produce (key, value) records of strings."""

    def __init__(self, reader_ref: Tensor, supports_serialize: bool = False) -> None:
        self._reader_ref = reader_ref
        self._supports_serialize = supports_serialize

    @property
    def reader_ref(self) -> Tensor:
        """The reader's handle."""
        return self._reader_ref

    @property
    def supports_serialize(self) -> bool:
        """Whether `serialize_state` works."""
        return self._supports_serialize

    def _raw(self, name: str) -> Any:
        return getattr(raw, name + "V2" if self._reader_ref.dtype == dtypes.resource else name)

    def read(self, queue: Any, name: str | None = None) -> Any:
        """The next (key, value). Takes a new piece of work from `queue` when the last one is used up."""
        handle = queue.queue_ref if isinstance(queue, QueueBase) else queue
        return self._raw("ReaderRead")(self._reader_ref, handle, name=name)

    def read_up_to(self, queue: Any, num_records: Any, name: str | None = None) -> Any:
        """Up to `num_records` (keys, values), all from one piece of work."""
        handle = queue.queue_ref if isinstance(queue, QueueBase) else queue
        return self._raw("ReaderReadUpTo")(self._reader_ref, handle, num_records, name=name)

    def num_records_produced(self, name: str | None = None) -> Tensor:
        """How many records were read."""
        return self._raw("ReaderNumRecordsProduced")(self._reader_ref, name=name)

    def num_work_units_completed(self, name: str | None = None) -> Tensor:
        """How many pieces of work are used up."""
        return self._raw("ReaderNumWorkUnitsCompleted")(self._reader_ref, name=name)

    def serialize_state(self, name: str | None = None) -> Tensor:
        """The reader's state as a string, where that is supported."""
        return self._raw("ReaderSerializeState")(self._reader_ref, name=name)

    def restore_state(self, state: Any, name: str | None = None) -> Operation:
        """Brings the reader back to a state from `serialize_state`."""
        return self._raw("ReaderRestoreState")(self._reader_ref, state, name=name)

    def reset(self, name: str | None = None) -> Operation:
        """Brings the reader back to its beginning."""
        return self._raw("ReaderReset")(self._reader_ref, name=name)


@export("WholeFileReader")
class WholeFileReader(ReaderBase):
    """Reads files as a whole: keys are names, values contents."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(raw.WholeFileReaderV2(name=name), supports_serialize=True)


@export("TextLineReader")
class TextLineReader(ReaderBase):
    """Reads lines, without their ends; the first `skip_header_lines` of each file are skipped."""

    def __init__(self, skip_header_lines: int | None = None, name: str | None = None) -> None:
        super().__init__(raw.TextLineReaderV2(skip_header_lines=skip_header_lines, name=name))


@export("FixedLengthRecordReader")
class FixedLengthRecordReader(ReaderBase):
    """Reads records of `record_bytes` bytes, each `hop_bytes` after the last (default: next to each other)."""

    def __init__(self, record_bytes: int, header_bytes: int | None = None, footer_bytes: int | None = None, hop_bytes: int | None = None,
                 name: str | None = None, encoding: str | None = None) -> None:  # fmt: skip
        handle = raw.FixedLengthRecordReaderV2(
            record_bytes=record_bytes, header_bytes=header_bytes, footer_bytes=footer_bytes, hop_bytes=hop_bytes, encoding=encoding, name=name
        )
        super().__init__(handle)


@export("TFRecordReader")
class TFRecordReader(ReaderBase):
    """Reads the records of TFRecord files."""

    def __init__(self, name: str | None = None, options: Any = None) -> None:
        super().__init__(raw.TFRecordReaderV2(name=name, compression_type=TFRecordOptions.get_compression_type_string(options)))


@export("IdentityReader")
class IdentityReader(ReaderBase):
    """Gives each piece of work as key and as value."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(raw.IdentityReaderV2(name=name), supports_serialize=True)
