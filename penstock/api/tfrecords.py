"""TFRecord files from Python: `tf.io.TFRecordWriter`, `tf.io.tf_record_iterator`, `tf.io.TFRecordOptions`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.api.export import export


@export("io.TFRecordCompressionType", "python_io.TFRecordCompressionType")
class TFRecordCompressionType:
    """How a record file is compressed."""

    NONE = 0
    ZLIB = 1
    GZIP = 2


@export("io.TFRecordOptions", "python_io.TFRecordOptions")
class TFRecordOptions:
    """How record files are written and read: compression ("", "ZLIB", "GZIP" or a TFRecordCompressionType), and zlib's settings."""

    compression_type_map: dict[int, str] = {
        TFRecordCompressionType.ZLIB: "ZLIB",
        TFRecordCompressionType.GZIP: "GZIP",
        TFRecordCompressionType.NONE: "",
    }

    def __init__(self, compression_type: Any = None, flush_mode: int | None = None, input_buffer_size: int | None = None,
                 output_buffer_size: int | None = None, window_bits: int | None = None, compression_level: int | None = None,
                 compression_method: int | None = None, mem_level: int | None = None, compression_strategy: int | None = None) -> None:  # fmt: skip
        self.get_compression_type_string(compression_type)
        self.compression_type = compression_type
        self.flush_mode = flush_mode
        self.input_buffer_size = input_buffer_size
        self.output_buffer_size = output_buffer_size
        self.window_bits = window_bits
        self.compression_level = compression_level
        self.compression_method = compression_method
        self.mem_level = mem_level
        self.compression_strategy = compression_strategy

    @classmethod
    def get_compression_type_string(cls, options: Any) -> str:
        """ "", "ZLIB" or "GZIP" for options, a compression type, or its name."""
        if not options:
            return ""
        if isinstance(options, TFRecordOptions):
            return cls.get_compression_type_string(options.compression_type)
        if isinstance(options, int) and options in cls.compression_type_map:
            return cls.compression_type_map[options]
        if isinstance(options, str) and options in cls.compression_type_map.values():
            return options
        raise ValueError(f"Not a valid compression_type: \"{options}\"")


@export("io.TFRecordWriter", "python_io.TFRecordWriter")
class TFRecordWriter:
    """Writes records to a TFRecord file. Use it in a `with`, or close it.

        with tf.io.TFRecordWriter("data.tfrecord") as writer:
            writer.write(example.SerializeToString())
    """

    def __init__(self, path: Any, options: Any = None) -> None:
        from penstock.formats.records import RecordWriter

        compression = TFRecordOptions.get_compression_type_string(options)
        settings: dict[str, Any] = {}
        if isinstance(options, TFRecordOptions):
            given = {
                "level": options.compression_level, "window_bits": options.window_bits, "mem_level": options.mem_level,
                "strategy": options.compression_strategy,
            }  # fmt: skip
            settings = {key: value for key, value in given.items() if value is not None}
        self._writer = RecordWriter(path, compression, **settings)

    def write(self, record: Any) -> None:
        """Adds a record: bytes, or a str as UTF-8."""
        self._writer.write(record.encode() if isinstance(record, str) else bytes(record))

    def flush(self) -> None:
        """Makes what was written visible to readers."""
        self._writer.flush()

    def close(self) -> None:
        """Ends the file."""
        self._writer.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


@export("io.tf_record_iterator", "python_io.tf_record_iterator")
def tf_record_iterator(path: Any, options: Any = None) -> Iterator[bytes]:
    """The records of a TFRecord file, one after another."""
    from penstock.formats.records import RecordReader

    reader = RecordReader(path, TFRecordOptions.get_compression_type_string(options))
    try:
        yield from reader
    finally:
        reader.close()
