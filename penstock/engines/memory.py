"""Large arrays without page faults: how the C library keeps the memory of arrays that were freed.

glibc asks the kernel for every block of more than 32 MB anew and gives it back when it is freed, so that each use pays for clearing
all of its pages: filling a new array of 100 MB takes three times as long as filling an old one. A step of a training program makes
and frees the same arrays again and again. So the process is told, once, to keep freed memory: what a step needed, the next step
finds. TensorFlow's own allocator does the same. PENSTOCK_KEEP_MEMORY=0 leaves the C library as it is.
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
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
    _done = bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, ctypes.c_int(most)))
    return _done


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):
        return False
