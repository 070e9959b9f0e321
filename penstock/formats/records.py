"""TFRecord files: a sequence of byte strings, each with its length and checksums; plain, ZLIB or GZIP compressed.

A record is written as: length (uint64), masked CRC32C of the length, data, masked CRC32C of the data; all little-endian.
"""

from __future__ import annotations

import functools
import os
import struct
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from penstock import errors

_POLYNOMIAL = 0x82F63B78
_LANE = 64  # bytes per lane of the vectorised checksum
_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")

# -- checksums --------------------------------------------------------------------------------------------------------


@functools.cache
def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ _POLYNOMIAL if value & 1 else value >> 1
        table.append(value)
    return table


@functools.cache
def _word_tables() -> list[np.ndarray]:
    """Tables for four bytes at once: table k shifts by k further bytes."""
    tables = [np.array(_table(), np.uint32)]
    for _ in range(3):
        last = tables[-1]
        tables.append(tables[0][last & 0xFF] ^ last >> np.uint32(8))
    return tables


@functools.cache
def _shift_tables(doublings: int) -> tuple[np.ndarray, ...]:
    """Four byte tables of the linear map "append 64 * 2**doublings zero bytes"."""
    if doublings == 0:
        state = [1 << i for i in range(32)]
        table = _table()
        for _ in range(_LANE):
            state = [table[s & 0xFF] ^ s >> 8 for s in state]
        columns = np.array(state, np.uint32)
    else:
        tables = _shift_tables(doublings - 1)
        columns = np.array([1 << i for i in range(32)], np.uint32)
        columns = _apply(tables, _apply(tables, columns))
    result = []
    for byte in range(4):
        values = np.zeros(256, np.uint32)
        for bit in range(8):
            values[np.arange(256) >> bit & 1 == 1] ^= columns[8 * byte + bit]
        result.append(values)
    return tuple(result)


def _apply(tables: tuple[np.ndarray, ...], crc: np.ndarray) -> np.ndarray:
    return tables[0][crc & 0xFF] ^ tables[1][crc >> 8 & 0xFF] ^ tables[2][crc >> 16 & 0xFF] ^ tables[3][crc >> 24]


def crc32c(data: bytes) -> int:
    """The Castagnoli CRC-32 of `data`.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    if len(data) < 4096:
        crc, table = 0xFFFFFFFF, _table()
        for byte in data:
            crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
        return crc ^ 0xFFFFFFFF
    # Zeros in front do not change a checksum that starts with 0; starting with ones is the same as inverting the first four bytes.
    lanes = -(-len(data) // _LANE)
    padded = np.zeros(lanes * _LANE, np.uint8)
    padded[-len(data) :] = np.frombuffer(data, np.uint8)
    first = len(padded) - len(data)
    padded[first : first + 4] ^= 0xFF
    words = np.ascontiguousarray(padded.view("<u4").reshape(lanes, _LANE // 4).T)
    t0, t1, t2, t3 = _word_tables()
    crcs = np.zeros(lanes, np.uint32)
    for word in words:
        crcs ^= word
        crcs = t3[crcs & 0xFF] ^ t2[crcs >> 8 & 0xFF] ^ t1[crcs >> 16 & 0xFF] ^ t0[crcs >> 24]
    doublings = 0
    while len(crcs) > 1:
        if len(crcs) % 2:
            crcs = np.concatenate([np.zeros(1, np.uint32), crcs])
        crcs = _apply(_shift_tables(doublings), crcs[::2]) ^ crcs[1::2]
        doublings += 1
    return int(crcs[0]) ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The checksum as TFRecord files hold it, masked so that checksums of checksums do no harm."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# -- files ------------------------------------------------------------------------------------------------------------


def file_error(error: OSError, path: str) -> errors.OpError:
    """An OSError as TF reports it: `path; No such file or directory`."""
    import errno

    cls: Any = {
        errno.ENOENT: errors.NotFoundError,
        errno.EEXIST: errors.AlreadyExistsError,
        errno.EACCES: errors.PermissionDeniedError,
        errno.EPERM: errors.PermissionDeniedError,
        errno.EROFS: errors.PermissionDeniedError,
        errno.EISDIR: errors.FailedPreconditionError,
        errno.ENOTDIR: errors.FailedPreconditionError,
        errno.ENOTEMPTY: errors.FailedPreconditionError,
        errno.ENOSPC: errors.ResourceExhaustedError,
        errno.EMFILE: errors.ResourceExhaustedError,
    }.get(error.errno or 0, errors.UnknownError)
    return cls(f"{path}; {error.strerror or error}")


def open_file(path: str | bytes, mode: str) -> BinaryIO:
    """`open`, with TF's errors."""
    name = os.fsdecode(path)
    try:
        if "r" in mode and os.path.isdir(name):
            raise IsADirectoryError(21, os.strerror(21), name)
        return open(name, mode)  # type: ignore[return-value]
    except OSError as error:
        raise file_error(error, name) from error


class InflatingFile:
    """Reads a ZLIB or GZIP compressed file; several streams one after another are one."""

    def __init__(self, raw: BinaryIO, compression: str, buffer_size: int = 256 << 10) -> None:
        self._raw = raw
        self._wbits = 15 if compression == "ZLIB" else 31
        self._inflater = zlib.decompressobj(self._wbits)
        self._buffer_size = buffer_size
        self._pending = b""
        self._out = bytearray()

    def read(self, n: int = -1) -> bytes:
        while n < 0 or len(self._out) < n:
            data = self._pending or self._raw.read(self._buffer_size)
            if not data:
                break
            self._pending = b""
            try:
                self._out += self._inflater.decompress(data)
            except zlib.error as error:
                text = str(error).replace("Error -3 while decompressing data", "inflate() failed with error -3")
                raise errors.DataLossError(text) from error
            if self._inflater.eof:
                self._pending = self._inflater.unused_data
                self._inflater = zlib.decompressobj(self._wbits)
        n = len(self._out) if n < 0 else n
        result = bytes(self._out[:n])
        del self._out[:n]
        return result

    def close(self) -> None:
        self._raw.close()


def open_compressed(path: str | bytes, compression: str) -> Any:
    """A file to read from, decompressed as `compression` ("", "ZLIB" or "GZIP") says."""
    if compression not in ("", "ZLIB", "GZIP"):
        raise errors.InvalidArgumentError(f"Unsupported compression_type: {compression}. Known are '', 'ZLIB' and 'GZIP'.")
    file = open_file(path, "rb")
    return InflatingFile(file, compression) if compression else file


class RecordReader:
    """Reads the records of one file in order. `offset` is where the next one begins, in the decompressed stream."""

    def __init__(self, path: str | bytes, compression: str = "") -> None:
        self._file = open_compressed(path, compression)
        self._damage = ""
        self.offset = 0

    def read(self) -> bytes | None:
        """The next record, or None at the end of the file. DataLossError if it is damaged: what follows cannot be found."""
        if self._damage:
            raise errors.DataLossError(self._damage)
        header = self._file.read(12)
        if len(header) < 12:
            return None
        length, crc = _HEADER.unpack(header)
        if masked_crc32c(header[:8]) != crc:
            self._corrupted(self.offset)
        data = self._file.read(length)
        tail = self._file.read(4)
        if len(data) < length or len(tail) < 4:
            self._give_up(f"truncated record at {self.offset}' failed with Read less bytes than requested")
        if masked_crc32c(data) != _CRC.unpack(tail)[0]:
            self._corrupted(self.offset + 12)
        self.offset += 16 + length
        return data

    def _corrupted(self, offset: int) -> None:
        hint = " (Is this even a TFRecord file?)" if offset == 0 else ""
        self._give_up(f"corrupted record at {offset}{hint}")

    def _give_up(self, text: str) -> None:
        self._damage = text
        raise errors.DataLossError(text)

    def __iter__(self) -> Iterator[bytes]:
        while (record := self.read()) is not None:
            yield record

    def close(self) -> None:
        self._file.close()


class RecordWriter:
    """Writes records to a file."""

    def __init__(self, path: str | bytes, compression: str = "", level: int = -1, window_bits: int = 15, mem_level: int = 9, strategy: int = 0) -> None:
        if compression not in ("", "ZLIB", "GZIP"):
            raise errors.InvalidArgumentError(f"Unsupported compression_type: {compression}. Known are '', 'ZLIB' and 'GZIP'.")
        self._file = open_file(path, "wb")
        self._path = os.fsdecode(path)
        bits = (window_bits or 15) + (16 if compression == "GZIP" else 0)
        self._deflater = zlib.compressobj(level, zlib.DEFLATED, bits, mem_level, strategy) if compression else None

    def write(self, record: bytes) -> None:
        header = struct.pack("<Q", len(record))
        data = b"".join((header, _CRC.pack(masked_crc32c(header)), record, _CRC.pack(masked_crc32c(record))))
        self._put(data if self._deflater is None else self._deflater.compress(data))

    def _put(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise file_error(error, self._path) from error

    def flush(self) -> None:
        """Makes everything written so far readable by others."""
        if self._deflater is not None:
            self._put(self._deflater.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def close(self) -> None:
        if self._file.closed:
            return
        if self._deflater is not None:
            self._put(self._deflater.flush())
        self._file.close()
