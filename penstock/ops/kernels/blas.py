"""NumPy's BLAS on one thread, for the time of a call.

OpenBLAS shares out products above a small size among threads of its own, which spin for 20 ms afterwards and take a core from everything
else: from oneDNN's threads, from tiles, from the interpreter. Large products go to oneDNN, whose threads are the only ones that compute
(one thread budget). Between the two are products that are too small for oneDNN's threads to pay, above all a vector times a matrix; for
these `alone(kernel)` is the kernel with BLAS kept on the calling thread. It costs half a microsecond. What the user's own NumPy
code does outside of it is not touched. LAPACK, which calls BLAS for every few columns, loses more by waking threads than it gains.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

_lock = threading.Lock()
_inside = 0  # calls that are under way
_before = 0  # how many threads BLAS had before the first of them
_found: tuple[Callable[[], int], Callable[[int], None]] | None = None
_looked = False


def _functions() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """OpenBLAS's own get and set of its number of threads; None if NumPy has another BLAS."""
    global _found, _looked
    if not _looked:
        from threadpoolctl import ThreadpoolController

        blas = [c for c in ThreadpoolController().lib_controllers if c.user_api == "blas"]
        if len(blas) == 1 and blas[0].internal_api == "openblas":
            library = ctypes.PyDLL(blas[0].filepath)
            for before, after in (("scipy_", "64_"), ("", "64_"), ("scipy_", ""), ("", "")):
                get = getattr(library, f"{before}openblas_get_num_threads{after}", None)
                put = getattr(library, f"{before}openblas_set_num_threads{after}", None)
                if get is not None and put is not None:
                    get.restype, put.argtypes, put.restype = ctypes.c_int, (ctypes.c_int,), None
                    _found = (get, put)
                    break
        _looked = True
    return _found


def alone(kernel: Callable[..., Any]) -> Callable[..., Any] | None:
    """`kernel` with BLAS on one thread, or None if this BLAS cannot be told."""
    functions = _functions()
    if functions is None:
        return None
    get, put = functions

    def run(*inputs: Any, **options: Any) -> Any:
        global _inside, _before
        with _lock:
            if not _inside:
                _before = get()
                if _before > 1:
                    put(1)
            _inside += 1
        try:
            return kernel(*inputs, **options)
        finally:
            with _lock:
                _inside -= 1
                if not _inside and _before > 1:
                    put(_before)

    return run


def _after_fork() -> None:
    """A call of another thread will not end here."""
    global _lock, _inside
    if _inside and _before > 1 and _found is not None:
        _found[1](_before)
    _lock, _inside = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
