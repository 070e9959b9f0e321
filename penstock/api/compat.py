"""`tf.compat`: text and bytes, versions, and `tf.compat.v1`, which is this package itself.

`import penstock.compat.v1 as tf` therefore works for programs that say `import tensorflow.compat.v1 as tf`.
"""

from __future__ import annotations

import datetime
import numbers
import os
import sys
from typing import Any

import numpy as np

from penstock.api.export import export, export_value

#: What TF1 programs see as `tf.__version__` and `tf.VERSION`: the version of TensorFlow whose API this package has. Programs
#: compare it with numbers such as "1.4" or "2.0" and expect what came with TF 1. Penstock's own is `penstock.penstock_version`.
VERSION = "1.15.5"

_root = sys.modules["penstock"]
sys.modules["penstock.compat.v1"] = _root
export_value("compat.v1", _root)

for _prefix in ("", "version."):
    export_value(_prefix + "VERSION", VERSION)
    export_value(_prefix + "GIT_VERSION", "v" + VERSION)
    export_value(_prefix + "COMPILER_VERSION", f"Python {sys.version.split()[0]}")
export_value("version.GRAPH_DEF_VERSION_MIN_CONSUMER", 0)
export_value("version.GRAPH_DEF_VERSION_MIN_PRODUCER", 0)
# These describe how TF's C++ code was compiled; there is none here.
for _prefix in ("", "sysconfig."):
    export_value(_prefix + "CXX11_ABI_FLAG", 0)
    export_value(_prefix + "CXX_VERSION", 0)
    export_value(_prefix + "MONOLITHIC_BUILD", 0)

bytes_or_text_types = (bytes, str)
integral_types = (numbers.Integral, np.integer)
real_types = (numbers.Real, np.integer, np.floating)
complex_types = (numbers.Complex, np.number)
for _types in ("bytes_or_text_types", "integral_types", "real_types", "complex_types"):
    export_value("compat." + _types, globals()[_types])


@export("compat.as_bytes")
def as_bytes(bytes_or_text: Any, encoding: str = "utf-8") -> bytes:
    """Text as bytes; bytes as they are."""
    if isinstance(bytes_or_text, bytearray):
        return bytes(bytes_or_text)
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


@export("compat.as_text", "compat.as_str")
def as_text(bytes_or_text: Any, encoding: str = "utf-8") -> str:
    """Bytes as text; text as it is."""
    if isinstance(bytes_or_text, str):
        return bytes_or_text
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text.decode(encoding)
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


@export("compat.as_str_any")
def as_str_any(value: Any, encoding: str = "utf-8") -> str:
    """Bytes as text, anything else as `str` shows it."""
    return as_text(value, encoding) if isinstance(value, bytes) else str(value)


@export("compat.path_to_str")
def path_to_str(path: Any) -> Any:
    """A path object as a string; anything else as it is."""
    return as_str_any(path.__fspath__()) if hasattr(path, "__fspath__") else path


@export("compat.forward_compatible")
def forward_compatible(year: int, month: int, day: int) -> bool:
    """Whether graphs may use what TensorFlow had at this date; True for dates of TensorFlow's past."""
    return datetime.date(year, month, day) < datetime.date(2026, 1, 1)


@export("compat.forward_compatibility_horizon")
class forward_compatibility_horizon:
    """Accepted so that programs which test graph versions run; ops are the same at every date here."""

    def __init__(self, year: int, month: int, day: int) -> None:
        self.date = datetime.date(year, month, day)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        pass


def local_path(path: Any) -> str:
    """A file name as the local file system wants it: path objects, bytes and file:// accepted."""
    text = as_text(os.fspath(path)) if hasattr(path, "__fspath__") else as_text(path)
    return text[len("file://") :] if text.startswith("file://") else text
