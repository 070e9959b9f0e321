"""Numbers below the smallest normal one, as zero: what TensorFlow does, and XLA.

Decaying averages of a gradient that stays zero (a unit that is switched off) halve and halve until they are denormal, and stay there; such numbers
cost CPUs many times what others cost. `with flushed():` makes results of this thread zero instead, by the flags of SSE and AVX; where the C library
has no function for these, nothing happens.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from typing import Any

import numpy as np

_FLUSH = 0x8040  # results to zero, and operands as zero


class _Environment(ctypes.Structure):
    """fenv_t of x86-64 C libraries."""

    _fields_ = (("x87", ctypes.c_uint8 * 28), ("mxcsr", ctypes.c_uint32))


def _find() -> tuple[Callable[[Any], int], Callable[[Any], int]] | None:
    if platform.machine() not in ("x86_64", "AMD64"):
        return None
    try:
        library = ctypes.PyDLL("libm.so.6")
        get, put = library.fegetenv, library.fesetenv
    except (OSError, AttributeError):
        return None
    get.argtypes = put.argtypes = (ctypes.POINTER(_Environment),)
    get.restype = put.restype = ctypes.c_int
    return get, put


_functions = _find()


class flushed:
    """`with flushed(): ...`; see above."""

    __slots__ = ("_before", "_environment")

    def __enter__(self) -> None:
        if _functions is None:
            return
        self._environment = environment = _Environment()
        _functions[0](environment)
        self._before = environment.mxcsr
        environment.mxcsr = self._before | _FLUSH
        _functions[1](environment)

    def __exit__(self, *exc_info: object) -> None:
        if _functions is not None:
            self._environment.mxcsr = self._before
            _functions[1](self._environment)


def _works() -> bool:
    small = np.full(16, 1e-38, np.float32)
    with flushed():
        inside = (small * np.float32(0.01)).any()
    return not inside and bool((small * np.float32(0.01)).any())


if _functions is not None and not _works():
    _functions = None
