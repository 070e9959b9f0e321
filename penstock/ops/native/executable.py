"""Memory that may be run: written first, then made executable and read-only."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

_PROT_READ_EXECUTE = 5


def into_memory(code: bytes) -> int:
    """The address of `code`, which can be called and no longer be written. Stays for good."""
    area = mmap.mmap(-1, len(code))
    area.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(len(code)), _PROT_READ_EXECUTE):
        raise OSError(ctypes.get_errno(), "memory cannot be made executable")
    _areas.append(area)
    return address


_areas: list[Any] = []


def function_at(address: int, pointers: int) -> Any:
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * pointers)(address)
