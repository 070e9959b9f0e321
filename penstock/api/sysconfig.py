"""`tf.sysconfig`: where things lie. There is no C++ code to compile against, so flags are empty."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any


def get_lib() -> str:
    """The folder of this package."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def get_include() -> str:
    """The folder where header files would be; it does not exist, as ops are added in Python (docs/ops.md)."""
    return os.path.join(get_lib(), "include")


def get_compile_flags() -> list[str]:
    """Flags for compiling custom ops: none."""
    return []


def get_link_flags() -> list[str]:
    """Flags for linking custom ops: none."""
    return []


def get_build_info() -> OrderedDict[str, Any]:
    """What this package was built for."""
    return OrderedDict([("is_cuda_build", False), ("is_rocm_build", False), ("is_tensorrt_build", False)])
