"""Where arrays lie: their addresses, new ones that begin with a cache line, and memory that is kept for the next step.

glibc asks the kernel for every block of more than 32 MB anew and gives it back when it is freed, so that each use pays for clearing
all of its pages: filling a new array of 100 MB takes three times as long as filling an old one. A step of a training program makes
and frees the same arrays again and again. So the process is told, once, to keep freed memory: what a step needed, the next step
finds. TensorFlow's own allocator does the same. And the C library gives every thread a heap of its own, so that each thread that ever
made large arrays would keep as much; from then on new threads share one. PENSTOCK_KEEP_MEMORY=0 leaves the C library as it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import threading
from collections.abc import Callable
from ctypes import c_size_t, c_void_p

import numpy as np

# -- addresses ----------------------------------------------------------------------------------------------------------


def _address_by_interface(array: np.ndarray) -> int:
    return array.ctypes.data


def _address_by_memory() -> Callable[[np.ndarray], int] | None:
    """An array's address as the first field of its C struct, behind the object's header: 0.1 us instead of 2. None if this
    interpreter lays objects out in another way."""
    if sys.implementation.name != "cpython" or object.__basicsize__ % 8 or ctypes.sizeof(c_void_p) != 8:
        return None
    words = (c_size_t * (1 << 44)).from_address(0)
    header = object.__basicsize__ // 8

    def address(array: np.ndarray) -> int:
        return words[(id(array) >> 3) + header]

    base = np.arange(12.0).reshape(3, 4)
    probes = (base, base[1:], base.T, base[:, 2], np.zeros((2, 0), np.float32), np.arange(3, dtype=np.int8))
    return address if all(address(a) == _address_by_interface(a) for a in probes) else None


address: Callable[[np.ndarray], int] = _address_by_memory() or _address_by_interface
"""The address of an array's first element. Whoever uses it keeps the array alive."""

ALIGNMENT = 64
_ALIGN_FROM = 16 << 10


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """As np.empty, but a large array begins where a cache line begins: vectors of AVX-512 that straddle two lines cost twice, which
    makes kernels that wait for memory a third slower. The result is a view (`base` is not None) of an array that only it holds."""
    size = dtype.itemsize
    for n in shape:
        size *= n
    if size < _ALIGN_FROM:
        return np.empty(shape, dtype)
    buffer = np.empty(size + ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, buffer, -address(buffer) % ALIGNMENT)


# -- memory for what stays -----------------------------------------------------------------------------------------------

ARENA = 32 << 20


class Arena:
    """Memory for arrays that stay and are read in every step, such as weights, in pages of 2 MB where the system has them: weights that
    come out of main memory stream faster when there is one entry for each 2 MB to look up instead of 512. What was taken is given back
    when all arrays of a block are gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._block: np.ndarray | None = None
        self._used = 0

    def take(self, size: int) -> np.ndarray:
        """`size` bytes that begin with a cache line."""
        with self._lock:
            if size > ARENA // 4:
                return _huge_pages(size)[:size]
            if self._block is None or self._used + size > self._block.size:
                self._block, self._used = _huge_pages(ARENA), 0
            start = self._used
            self._used += size + -size % ALIGNMENT
            return self._block[start : start + size]

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._block = None


def _huge_pages(size: int) -> np.ndarray:
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(size, np.uint8)
    rounded = size + -size % (2 << 20)
    block = mmap.mmap(-1, rounded, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system without such pages
        block.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(block, np.uint8)


arena = Arena()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=arena.after_fork)

# -- freed memory -------------------------------------------------------------------------------------------------------

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_done = False


def keep_freed_memory() -> bool:
    """Tells the C library to keep freed memory; False where there is nothing to tell (another C library, switched off)."""
    global _done
    if _done:
        return True
    if os.environ.get("PENSTOCK_KEEP_MEMORY") == "0" or not _is_glibc():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # No block comes from the kernel alone, and the end of the heap goes back only if a quarter of the machine's memory is free there.
    most = min(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4, (1 << 31) - 1)
    # One heap for all threads: what one thread has freed, another one finds. Arrays are made under the GIL, so that nobody waits for it.
    _done = bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, ctypes.c_int(most)) and mallopt(_M_ARENA_MAX, 1))
    return _done


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):
        return False
