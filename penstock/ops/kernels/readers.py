"""The readers behind TextLineReader, WholeFileReader, FixedLengthRecordReader, TFRecordReader and IdentityReader.

A reader takes a piece of work (a file's name) from a queue, produces records from it, and takes the next when it is used up.

State of a Reader
    started, finished, produced    how many pieces of work were begun and completed, and records produced
    work                           the current piece of work
    working                        whether it is not used up
    waiting                        reads that have not begun; one at a time is served, because they share the place in the file
    serving                        a read is being served; it may be waiting for the queue of work
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes, errors
from penstock.errors import InvalidArgumentError
from penstock.forks import renewed
from penstock.formats.records import RecordReader, open_compressed, open_file
from penstock.ops.kernels.queues import Queue

Record = tuple[str | bytes, bytes]


class _Request:
    """One read: up to `most` records, or one if that is None. Or something else that must not happen during a read: `action`."""

    __slots__ = ("action", "ctx", "done", "most", "over", "queue", "token")

    def __init__(self, ctx: Any, done: Callable[..., Any], queue: Queue | None, most: int | None, action: Callable[[], Any] | None = None) -> None:
        self.ctx = ctx
        self.done = done
        self.queue = queue
        self.most = most
        self.action = action
        self.over = False
        self.token: int | None = None


class _Answer:
    """What a queue says, now or later: `now(later)` is True if it has spoken, else `later()` is called when it does."""

    def __init__(self) -> None:
        self._lock = renewed(threading.Lock())
        self._spoken = False
        self._later: Callable[[], Any] | None = None
        self.result: Any = None
        self.error: BaseException | None = None

    def __call__(self, result: Any = None, error: BaseException | None = None) -> None:
        self.result, self.error = result, error
        with self._lock:
            self._spoken = True
            later = self._later
        if later is not None:
            later()

    def now(self, later: Callable[[], Any]) -> bool:
        with self._lock:
            if not self._spoken:
                self._later = later
            return self._spoken


class Reader:
    """What all readers have in common. Subclasses: `open`, `next`, `shut`."""

    type_name = "N10tensorflow15ReaderInterfaceE"
    kind = "Reader"
    serializable = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = renewed(threading.Lock())
        self.waiting: deque[_Request] = deque()
        self.serving = False
        self._clear()

    def _clear(self) -> None:
        self.started = self.finished = self.produced = 0
        self.work = b""
        self.working = False

    # -- for subclasses ---------------------------------------------------------------------------------------------------

    def open(self, work: bytes) -> None:
        """Begins with a piece of work."""

    def next(self) -> Record | None:
        """The next (key, value), or None at the end. Sets `working` to False if it knows that it was the last."""
        raise NotImplementedError

    def shut(self) -> None:
        """The piece of work is used up."""

    # -- reading ----------------------------------------------------------------------------------------------------------

    def read(self, ctx: Any, done: Callable[..., Any], queue: Queue, most: int | None = None) -> None:
        """Reads one record, or up to `most` from one piece of work."""
        if queue.types != [dtypes.string] or any(queue.shapes):
            raise InvalidArgumentError("Expected queue with single string component")
        if most is not None and most <= 0:
            done(_two_vectors([]))
            return
        self._submit(_Request(ctx, done, queue, most))

    def act(self, ctx: Any, done: Callable[..., Any], action: Callable[[], Any]) -> None:
        """Calls `action()` between two reads; its result is the operation's."""
        self._submit(_Request(ctx, done, None, None, action))

    def _submit(self, request: _Request) -> None:
        with self.lock:
            if self.serving:
                request.token = request.ctx.cancellation.register(lambda: self._cancel(request))
                if request.token is not None:
                    self.waiting.append(request)
                    return
                request.over = True
            else:
                self.serving = True
        if request.over:
            request.done(None, errors.CancelledError("Read operation was cancelled"))
        else:
            self._serve(request)

    def _cancel(self, request: _Request) -> None:
        with self.lock:
            if request.over or request not in self.waiting:
                return
            request.over = True
            self.waiting.remove(request)
        request.done(None, errors.CancelledError("Read operation was cancelled"))

    def _serve(self, request: _Request, answer: _Answer | None = None) -> None:
        """Serves reads, this one first, until none is left or one must wait for its queue. Only one thread at a time is here."""
        while True:
            outcome = self._records(request, answer)
            if outcome is None:
                return  # the queue's answer comes back here
            result, error = outcome
            with self.lock:
                following = self.waiting.popleft() if self.waiting else None
                if following is None:
                    self.serving = False
                else:
                    following.over = True
            if error is None:
                request.done(result)
            else:
                request.done(None, error)
            if following is None:
                return
            following.ctx.cancellation.try_deregister(following.token)
            request, answer = following, None

    def _records(self, request: _Request, answer: _Answer | None) -> tuple[Any, BaseException | None] | None:
        """(result, error) of a read; None if it waits for work."""
        try:
            if request.action is not None:
                return request.action(), None
            records: list[Record] = []
            assert request.queue is not None
            while True:
                if not self.working:
                    if answer is None:
                        answer = _Answer()
                        request.queue.dequeue(request.ctx, answer)
                        current = answer
                        if not answer.now(lambda: self._serve(request, current)):
                            return None
                    if answer.error is not None:
                        return None, answer.error
                    self._begin(answer.result[0].item())
                    answer = None
                self._gather(request.most, records)
                if records:
                    break
            if request.most is not None:
                return _two_vectors(records), None
            key, value = records[0]
            return [_string(key), _string(value)], None
        except Exception as error:
            return None, error

    def _begin(self, work: bytes) -> None:
        self.started += 1
        self.work = work
        self.open(work)
        self.working = True

    def _gather(self, most: int | None, records: list[Record]) -> None:
        while self.working and len(records) < (most or 1):
            record = self.next()
            if record is None:
                self.working = False
            else:
                records.append(record)
                self.produced += 1
        if not self.working:
            self.shut()
            self.finished += 1

    # -- state ------------------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        self.shut()
        self._clear()

    def serialize(self) -> bytes:
        if not self.serializable:
            raise errors.UnimplementedError("Reader SerializeState")
        from penstock.formats.protos import ReaderBaseState

        state = ReaderBaseState(
            work_started=self.started, work_finished=self.finished, num_records_produced=self.produced, current_work=self.work
        )
        return state.SerializeToString()

    def restore(self, data: bytes) -> None:
        if not self.serializable:
            raise errors.UnimplementedError("Reader RestoreState")
        from google.protobuf.message import DecodeError

        from penstock.formats.protos import ReaderBaseState

        try:
            state = ReaderBaseState.FromString(data)
        except DecodeError:
            text = data.decode("latin-1")
            raise InvalidArgumentError(f"Could not parse state for {self.kind} '{self.name}': {text}") from None
        if min(state.work_started, state.work_finished, state.num_records_produced) < 0 or state.work_started < state.work_finished:
            raise InvalidArgumentError(f"Inconsistent or negative counts when restoring in {self.kind} '{self.name}'")
        self.started, self.finished, self.produced = state.work_started, state.work_finished, state.num_records_produced
        self.work = state.current_work
        self.working = self.started > self.finished

    def dispose(self) -> None:
        self.shut()


def _string(value: str | bytes) -> np.ndarray:
    result = np.empty((), dtype=object)
    result[()] = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return result


def _two_vectors(records: list[Record]) -> list[np.ndarray]:
    keys, values = np.empty(len(records), dtype=object), np.empty(len(records), dtype=object)
    for i, (key, value) in enumerate(records):
        keys[i] = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
        values[i] = value
    return [keys, values]


class IdentityReader(Reader):
    """Produces the work itself."""

    kind = "IdentityReader"
    serializable = True

    def next(self) -> Record | None:
        self.working = False
        return self.work, self.work


class WholeFileReader(Reader):
    """Produces each file's contents."""

    kind = "WholeFileReader"
    serializable = True

    def next(self) -> Record | None:
        with open_file(self.work, "rb") as file:
            contents = file.read()
        self.working = False
        return self.work, contents


class _FileReader(Reader):
    """Keeps a file open while it is at work on it."""

    _file: Any = None

    def shut(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def key(self, number: int) -> str:
        return f"{os.fsdecode(self.work)}:{number}"


class TextLineReader(_FileReader):
    """Produces lines, without their ends. Keys are `file:line`, counted from 1."""

    kind = "TextLineReader"

    def __init__(self, name: str, skip_header_lines: int) -> None:
        super().__init__(name)
        self.skip = skip_header_lines
        self.line = 0

    def open(self, work: bytes) -> None:
        self._file = open_file(work, "rb")
        self.line = 0
        for _ in range(self.skip):
            if not self._file.readline():
                break
            self.line += 1

    def next(self) -> Record | None:
        line = self._file.readline()
        if not line:
            return None
        self.line += 1
        if line.endswith(b"\n"):
            line = line[:-1]
        return self.key(self.line), line[:-1] if line.endswith(b"\r") else line


class FixedLengthRecordReader(_FileReader):
    """Produces records of equal length between a header and a footer. Keys are `file:record`, counted from 0."""

    kind = "FixedLengthRecordReader"

    def __init__(self, name: str, header: int, record: int, footer: int, hop: int, encoding: str) -> None:
        super().__init__(name)
        for what, value in (("header_bytes", header), ("footer_bytes", footer), ("hop_bytes", hop)):
            if value < 0:
                raise InvalidArgumentError(f"{what} must be >= 0 but got {value}")
        if record <= 0:
            raise InvalidArgumentError(f"record_bytes must be > 0 but got {record}")
        self.header, self.size, self.footer, self.hop = header, record, footer, hop or record
        self.encoding = encoding
        self.number = 0

    def open(self, work: bytes) -> None:
        self._file = open_compressed(work, self.encoding)
        self.number = 0
        self._file.read(self.header)
        # What is read beyond a record: its overlap with the next, and enough to know a footer when it comes.
        self.ahead = b""

    def next(self) -> Record | None:
        missing = self.size + self.footer - len(self.ahead)
        if missing > 0:
            self.ahead += self._file.read(missing)
        if len(self.ahead) < self.size + self.footer:
            return None
        record = self.ahead[: self.size]
        beyond = self.hop - len(self.ahead)
        if beyond > 0:
            self._file.read(beyond)
        self.ahead = self.ahead[self.hop :]
        self.number += 1
        return self.key(self.number - 1), record


class TFRecordReader(_FileReader):
    """Produces the records of TFRecord files. Keys are `file:offset`."""

    kind = "TFRecordReader"

    def __init__(self, name: str, compression: str) -> None:
        super().__init__(name)
        self.compression = compression

    def open(self, work: bytes) -> None:
        self._file = RecordReader(work, self.compression)

    def next(self) -> Record | None:
        offset = self._file.offset
        record = self._file.read()
        return None if record is None else (self.key(offset), record)
