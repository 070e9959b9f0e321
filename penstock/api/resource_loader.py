"""`tf.resource_loader`: files that lie next to the code that asks for them."""

from __future__ import annotations

import os
import sys


def _folder_of(depth: int) -> str:
    return os.path.dirname(os.path.abspath(sys._getframe(depth).f_code.co_filename))


def load_resource(path: str) -> bytes:
    """The bytes of a file, given relative to the calling file's folder."""
    with open(os.path.join(_folder_of(2), path), "rb") as f:
        return f.read()


def get_data_files_path() -> str:
    """The folder of the calling file."""
    return _folder_of(2)


def get_path_to_datafile(path: str) -> str:
    """A file relative to the calling file's folder, as an absolute path."""
    return os.path.join(_folder_of(2), path)


def get_root_dir_with_all_resources() -> str:
    """The folder of the calling file."""
    return _folder_of(2)


def readahead_file_path(path: str, readahead: str = "128M") -> str:
    """`path`: there is nothing to read ahead."""
    return path
