"""`tf.gfile` and `tf.io.gfile`: files of the local file system, with TF's names and error classes.

Other file systems (`gs://`, `hdfs://`, ...) raise UnimplementedError, as in a TensorFlow that was built without them.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from penstock import errors
from penstock.api.compat import as_bytes, local_path

_CLASSES: dict[int, Callable[..., errors.OpError]] = {
    errno.ENOENT: errors.NotFoundError,
    errno.EEXIST: errors.AlreadyExistsError,
    errno.EACCES: errors.PermissionDeniedError,
    errno.EPERM: errors.PermissionDeniedError,
    errno.EROFS: errors.PermissionDeniedError,
    errno.EISDIR: errors.FailedPreconditionError,
    errno.ENOTDIR: errors.FailedPreconditionError,
    errno.ENOTEMPTY: errors.FailedPreconditionError,
    errno.EBUSY: errors.FailedPreconditionError,
    errno.ENOSPC: errors.ResourceExhaustedError,
    errno.EMFILE: errors.ResourceExhaustedError,
    errno.EINVAL: errors.InvalidArgumentError,
    errno.ENAMETOOLONG: errors.InvalidArgumentError,
    errno.EXDEV: errors.UnimplementedError,
}


@contextlib.contextmanager
def _typed(path: str) -> Iterator[None]:
    """OSErrors become the error classes of TF, with its wording: "path; No such file or directory"."""
    try:
        yield
    except OSError as error:
        make = _CLASSES.get(error.errno or 0, errors.UnknownError)
        raise make(f"{path}; {error.strerror}") from error


def _local(path: Any) -> str:
    text = local_path(path)
    scheme, found, _ = text.partition("://")
    if found:
        raise errors.UnimplementedError(f"File system scheme '{scheme}' not implemented (file: '{text}')")
    return text


# -- files ------------------------------------------------------------------------------------------------------------


class GFile:
    """A file that is opened when it is first read or written. Modes: r, w, a, r+, w+, a+, each also with b for bytes.

    >>> with tf.gfile.GFile("/tmp/x.txt", "w") as f:                # doctest: +SKIP
    ...     f.write("some text")
    """

    def __init__(self, name: Any, mode: str = "r", encoding: str | None = None) -> None:
        if mode.replace("b", "") not in ("r", "w", "a", "r+", "w+", "a+"):
            raise errors.InvalidArgumentError("mode is not 'r' or 'w' or 'a' or 'r+' or 'w+' or 'a+'")
        self._name = name
        self._mode = mode
        self._encoding = encoding or "utf-8"
        self._binary = "b" in mode
        plain = mode.replace("b", "")
        self._readable = plain in ("r", "r+", "w+", "a+")
        self._writable = plain in ("w", "a", "r+", "w+", "a+")
        self._file: Any = None

    @property
    def name(self) -> Any:
        return self._name

    @property
    def mode(self) -> str:
        return self._mode

    def _open(self, *, reading: bool = False, writing: bool = False) -> Any:
        if reading and not self._readable:
            raise errors.PermissionDeniedError("File isn't open for reading")
        if writing and not self._writable:
            raise errors.PermissionDeniedError("File isn't open for writing")
        if self._file is None:
            path = _local(self._name)
            with _typed(path):
                self._file = open(path, self._mode.replace("b", "") + "b")  # noqa: SIM115
        return self._file

    def _text(self, data: bytes) -> Any:
        return data if self._binary else data.decode(self._encoding)

    def read(self, n: int = -1) -> Any:
        """The next `n` bytes (all that are left if negative), as text unless the mode has b."""
        file = self._open(reading=True)
        with _typed(_local(self._name)):
            return self._text(file.read(None if n < 0 else n))

    def readline(self) -> Any:
        """The next line with its newline; empty at the end of the file."""
        file = self._open(reading=True)
        with _typed(_local(self._name)):
            return self._text(file.readline())

    def readlines(self) -> list[Any]:
        """All lines that are left, with their newlines."""
        return list(self)

    def __iter__(self) -> GFile:
        return self

    def __next__(self) -> Any:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    next = __next__

    def write(self, file_content: Any) -> None:
        """Writes text or bytes."""
        file = self._open(writing=True)
        data = as_bytes(file_content, self._encoding)
        with _typed(_local(self._name)):
            file.write(data)

    def size(self) -> int:
        """The size of the file in bytes."""
        return Stat(self._name).length

    def seek(self, offset: int | None = None, whence: int = 0, position: int | None = None) -> None:
        """Goes to a byte: from the start (whence 0), from here (1), or from the end (2)."""
        if position is not None:
            offset = position
        if offset is None:
            raise TypeError("seek(): offset argument required")
        file = self._open(reading=True)
        place: int = offset
        if whence == 1:
            place += file.tell()
        elif whence == 2:
            place += self.size()
        elif whence != 0:
            raise errors.InvalidArgumentError(f"Invalid whence argument: {whence}. Valid values are 0, 1, or 2.")
        if place < 0:
            raise errors.InvalidArgumentError(f"Seeking to a negative position: {place}")
        if place > self.size():
            raise errors.OutOfRangeError("reached end of file")
        file.seek(place)

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        """The position in the file in bytes."""
        file = self._open()
        return file.tell()

    def flush(self) -> None:
        """Writes what is buffered."""
        if self._file is not None and self._writable:
            with _typed(_local(self._name)):
                self._file.flush()

    def close(self) -> None:
        """Closes the file. In mode w it exists afterwards even if nothing was written."""
        if self._file is None and self._mode.startswith("w"):
            self._open()
        if self._file is not None:
            with _typed(_local(self._name)):
                self._file.close()
            self._file = None

    def __enter__(self) -> GFile:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self._file.close()


class FastGFile(GFile):
    """The old name of GFile."""


# -- questions --------------------------------------------------------------------------------------------------------


class FileStatistics(NamedTuple):
    """Size in bytes, time of the last change in nanoseconds, and whether it is a directory."""

    length: int
    mtime_nsec: int
    is_directory: bool


def Exists(filename: Any) -> bool:
    """Whether there is such a file or directory."""
    return os.path.exists(_local(filename))


def IsDirectory(dirname: Any) -> bool:
    """Whether this is a directory."""
    return os.path.isdir(_local(dirname))


def Stat(filename: Any) -> FileStatistics:
    """Size, time and kind of a file."""
    path = _local(filename)
    with _typed(path):
        found = os.stat(path)
    return FileStatistics(found.st_size, found.st_mtime_ns, os.path.isdir(path))


def Glob(filename: Any) -> list[str]:
    """The files that match a pattern, or one of a list of patterns, in order. `*` and `?` do not cross directories."""
    patterns = filename if isinstance(filename, (list, tuple)) else [filename]
    return [found for pattern in patterns for found in _matches(_local(pattern))]


def _matches(pattern: str) -> list[str]:
    """Unlike Python's glob, `*` also finds names that begin with a dot, as in TF."""
    if not any(c in pattern for c in "*?["):
        return [pattern] if os.path.lexists(pattern) else []
    folder, name = os.path.split(pattern)
    found = []
    for parent in _matches(folder) if folder else [""]:
        with contextlib.suppress(OSError):
            names = sorted(os.listdir(parent or "."))
            if any(c in name for c in "*?["):
                found += [os.path.join(parent, n) for n in fnmatch.filter(names, name)]
            elif name in names:
                found.append(os.path.join(parent, name))
    return found


def ListDirectory(dirname: Any) -> list[str]:
    """The names of what is in a directory."""
    path = _local(dirname)
    if not os.path.isdir(path):
        raise errors.NotFoundError(f"Could not find directory {path}")
    with _typed(path):
        return os.listdir(path)


def Walk(top: Any, in_order: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
    """(directory, its subdirectories, its files) for a directory and all below; `in_order=False` for those below first."""
    return _walk(_local(top), in_order, None)


def _walk(top: str, topdown: bool, onerror: Callable[[errors.OpError], Any] | None) -> Iterator[tuple[str, list[str], list[str]]]:
    try:
        listing = sorted(ListDirectory(top))
    except errors.OpError as error:
        if onerror is not None:
            onerror(error)
        return
    folders = [name for name in listing if os.path.isdir(os.path.join(top, name))]
    files = [name for name in listing if name not in {*folders}]
    here = (top, folders, files)
    if topdown:
        yield here
    for name in folders:
        yield from _walk(os.path.join(top, name), topdown, onerror)
    if not topdown:
        yield here


# -- changes ----------------------------------------------------------------------------------------------------------


def MkDir(dirname: Any) -> None:
    """Makes a directory whose parent exists; does nothing if there is something of that name."""
    path = _local(dirname)
    with _typed(path), contextlib.suppress(FileExistsError):
        os.mkdir(path)


def MakeDirs(dirname: Any) -> None:
    """Makes a directory and its parents; does nothing if it is there."""
    path = _local(dirname)
    missing = path
    while missing and not os.path.exists(missing) and os.path.dirname(missing) != missing:
        missing = os.path.dirname(missing)
    if missing and os.path.exists(missing) and not os.path.isdir(missing):
        raise errors.FailedPreconditionError(f"{missing} is not a directory")
    with _typed(path):
        os.makedirs(path, exist_ok=True)


def Remove(filename: Any) -> None:
    """Deletes a file."""
    path = _local(filename)
    if os.path.isdir(path) and not os.path.islink(path):
        raise errors.FailedPreconditionError(f"{path}; Is a directory")
    with _typed(path):
        os.remove(path)


def DeleteRecursively(dirname: Any) -> None:
    """Deletes a directory with everything in it, or a file."""
    path = _local(dirname)
    if not os.path.lexists(path):
        raise errors.NotFoundError(f"{path} not found")
    with _typed(path):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)


def _check_free(path: str, overwrite: bool) -> None:
    if not overwrite and os.path.exists(path):
        raise errors.AlreadyExistsError("file already exists")


def Copy(oldpath: Any, newpath: Any, overwrite: bool = False) -> None:
    """Copies a file; AlreadyExistsError if the new one exists, unless `overwrite`."""
    old, new = _local(oldpath), _local(newpath)
    _check_free(new, overwrite)
    if os.path.isdir(old):
        raise errors.InvalidArgumentError(f"{new}; Invalid argument")
    with _typed(old):
        source = open(old, "rb")  # noqa: SIM115
    with source, _typed(new), open(new, "wb") as target:
        shutil.copyfileobj(source, target)


def Rename(oldname: Any, newname: Any, overwrite: bool = False) -> None:
    """Moves a file or directory; AlreadyExistsError if the new one exists, unless `overwrite`."""
    old, new = _local(oldname), _local(newname)
    _check_free(new, overwrite)
    with _typed(old):
        os.replace(old, new)


# -- tf.io.gfile ------------------------------------------------------------------------------------------------------


def exists(path: Any) -> bool:
    """Whether there is such a file or directory."""
    return Exists(path)


def isdir(path: Any) -> bool:
    """Whether this is a directory."""
    return IsDirectory(path)


def stat(path: Any) -> FileStatistics:
    """Size, time and kind of a file."""
    return Stat(path)


def glob(pattern: Any) -> list[str]:
    """The files that match a pattern, or one of a list of patterns."""
    return Glob(pattern)


def listdir(path: Any) -> list[str]:
    """The names of what is in a directory."""
    return ListDirectory(path)


def walk(top: Any, topdown: bool = True, onerror: Any = None) -> Iterator[tuple[str, list[str], list[str]]]:
    """(directory, its subdirectories, its files) for a directory and all below."""
    return _walk(_local(top), topdown, onerror)


def mkdir(path: Any) -> None:
    """Makes a directory whose parent exists."""
    MkDir(path)


def makedirs(path: Any) -> None:
    """Makes a directory and its parents."""
    MakeDirs(path)


def remove(path: Any) -> None:
    """Deletes a file."""
    Remove(path)


def rmtree(path: Any) -> None:
    """Deletes a directory with everything in it."""
    DeleteRecursively(path)


def copy(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Copies a file; AlreadyExistsError if the new one exists, unless `overwrite`."""
    Copy(src, dst, overwrite)


def rename(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Moves a file or directory; AlreadyExistsError if the new one exists, unless `overwrite`."""
    Rename(src, dst, overwrite)


def join(path: Any, *paths: Any) -> Any:
    """Parts of a path as one path."""
    return os.path.join(path, *paths)


def get_registered_schemes() -> list[str]:
    """The file systems that names can begin with."""
    return ["", "file"]
