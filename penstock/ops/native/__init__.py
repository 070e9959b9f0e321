"""Loops in machine code, for what NumPy has no function for: special functions, random numbers.

A formula is written once, with NumPy's functions. `Loop(formula)` traces it (`vectors`), makes AVX-512 code of it at its first use (`compiler`,
`assembler`) and runs that over arrays on all threads; no compiler is needed. Where the CPU or the system cannot, `run` gives None, and the caller
computes with NumPy; so it is if PENSTOCK_ENGINES names other engines only (this one is called "native").
"""

from __future__ import annotations

import ctypes
import logging
import platform
import sys
import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import ml_dtypes
import numpy as np

from penstock.forks import renewed
from penstock.graph.bind import engine_is_on
from penstock.ops.kernels import threads

log = logging.getLogger("penstock.engines")

SMALL = 64
"""Arrays of fewer elements are left to NumPy: to write a loop takes milliseconds, and a program of tiny values may never need it."""

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_SHORT = {np.dtype(np.int8): "i8", np.dtype(np.uint8): "u8", np.dtype(np.int16): "i16", np.dtype(np.uint16): "u16"}
_TYPES = {**_SHORT, np.dtype(np.float16): "f16", BFLOAT16: "bf16", np.dtype(np.bool_): "bool", np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}
_IN_FLOATS = ("f32", "f64")
PIECE = 1 << 18
"""Instructions that are worth a thread: about 80 us."""


def available() -> bool:
    """Whether loops can be made here: Linux on x86-64 with AVX-512, and memory that may be made executable."""
    return engine_is_on("native") and _works()


@cache
def _works() -> bool:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    try:
        from numpy._core._multiarray_umath import __cpu_features__ as features  # type: ignore[import-not-found]
    except ImportError:  # another NumPy
        return False
    if not (features.get("AVX512_SKX") or all(features.get(f) for f in ("AVX512F", "AVX512DQ", "AVX512BW", "AVX512VL"))):
        return False
    from penstock.ops.native import compiler

    try:
        double, _ = compiler.compile_loop(lambda x: x + x, ["f64"], ["f64"], "f64")
    except OSError as error:
        log.info("No loops in machine code: %s", error)
        return False
    x, y = np.arange(11.0), np.zeros(11)
    double(11, x.ctypes.data, y.ctypes.data)
    return bool((y == 2 * x).all()) and address_of(x) == x.ctypes.data


class Loop:
    """A formula for arrays of one shape.

    `compute` is the type the formula works in: "f64", "f32", or "same" for that of the arrays. `fuse=False` rounds after every operation, as NumPy does.
    The result has the first array's type, or `result`.
    """

    def __init__(self, formula: Callable[..., Any], compute: str = "f64", fuse: bool = True, result: Any = None) -> None:
        self.formula, self.compute, self.fuse = formula, compute, fuse
        self.result = None if result is None else np.dtype(result)
        self._made: dict[tuple[np.dtype, ...], tuple[Any, float] | None] = {}
        self._lock = renewed(threading.Lock())

    def run(self, *arrays: Any) -> np.ndarray | None:
        """formula(*arrays), or None if NumPy has to do it. The arrays broadcast."""
        first = arrays[0]
        if not isinstance(first, np.ndarray):  # XLA's rules share some formulas, and trace them
            return None
        kinds = tuple(a.dtype for a in arrays)
        found = self._made.get(kinds) or self._make(kinds)
        if found is None:
            return None
        function, cost = found
        if len(arrays) > 1 and any(a.shape != first.shape for a in arrays):
            arrays = tuple(np.broadcast_arrays(*arrays))
        arrays = tuple(map(contiguous, arrays))
        out = np.empty(arrays[0].shape, self.result or kinds[0])
        over_threads(function, out.size, cost, [(address_of(a), a.itemsize) for a in (*arrays, out)])
        return out

    def into(self, out: np.ndarray, *arrays: np.ndarray) -> bool:
        """Writes formula(*arrays) into an array of the result's type, in this thread; False if NumPy has to do it. All are contiguous and of one shape."""
        kinds = tuple(a.dtype for a in arrays)
        found = self._made.get(kinds) or self._make(kinds)
        if found is None:
            return False
        found[0](out.size, *map(address_of, (*arrays, out)))
        return True

    def accumulate(self, rows: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """As ufunc.accumulate(rows, 0), for a contiguous matrix of a known type: result[i] = formula(result[i - 1], rows[i]).

        One run over all rows but the first, which reads what it wrote a row before: a row must not be shorter than a vector, 64 bytes.
        """
        n, width = rows.shape
        row = width * rows.itemsize
        found = self._made.get((rows.dtype, rows.dtype)) or self._make((rows.dtype, rows.dtype))
        assert found is not None and self.compute == "same" and row >= 64
        out = np.empty_like(rows) if out is None else out
        out[:1] = rows[:1]
        if n > 1:
            found[0]((n - 1) * width, address_of(out), address_of(rows) + row, address_of(out) + row)
        return out

    def pieces(self, size: int, *kinds: np.dtype) -> int:
        """How many threads so many elements are worth."""
        found = self._made.get(kinds) or self._make(kinds)
        return 1 if found is None else pieces_for(size * found[1])

    def _make(self, kinds: tuple[np.dtype, ...]) -> tuple[Any, float] | None:
        if not available():  # not for good: PENSTOCK_ENGINES may change
            return None
        with self._lock:
            if kinds not in self._made:
                types = [_TYPES.get(kind) for kind in kinds]
                is_known = None not in types and "bool" not in types and ("bf16" not in types or self.compute in _IN_FLOATS)
                is_short = not _SHORT.keys().isdisjoint((*kinds, self.result))
                self._made[kinds] = self._compiled(types) if is_known and (not is_short or self.compute in _IN_FLOATS) else None  # type: ignore[arg-type]
            return self._made[kinds]

    def _compiled(self, types: list[str]) -> tuple[Any, float]:
        from penstock.ops.native import compiler

        compute = types[0] if self.compute == "same" else self.compute
        result = types[0] if self.result is None else _TYPES[self.result]
        return compiler.compile_loop(self.formula, types, [result], compute, self.fuse)


def address_of(array: np.ndarray) -> int:
    """`array.ctypes.data` in a fifth of the time: the pointer that stands first in an array."""
    return ctypes.c_ssize_t.from_address(id(array) + object.__basicsize__).value


def contiguous(array: np.ndarray) -> np.ndarray:
    """np.ascontiguousarray, which copies bfloat16 number by number."""
    if array.dtype == BFLOAT16 and not array.flags.c_contiguous:
        return np.ascontiguousarray(array.view(np.uint16)).view(BFLOAT16)
    return np.ascontiguousarray(array)


def looped(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of float arrays of one shape, as a loop in their own type where that is possible."""
    loop = Loop(function, "same")

    @wraps(function)
    def run(*arrays: Any) -> Any:
        found = loop.run(*arrays) if arrays[0].size >= SMALL and arrays[0].dtype in _FLOATS else None
        return function(*arrays) if found is None else found

    return run


_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def pieces_for(instructions: float) -> int:
    """How many threads they are worth."""
    return min(8, int(instructions) // PIECE)


def over_threads(function: Any, n: int, cost: float, arrays: list[tuple[int, int]]) -> None:
    """function(n, *addresses), cut into pieces for threads. `arrays`: address and bytes of an element of each; `cost`: instructions for each element."""
    pieces = pieces_for(n * cost)
    if pieces < 2:
        function(n, *(address for address, _ in arrays))
        return
    size = (n // pieces // 64 + 1) * 64

    def work(i: int) -> None:
        start = i * size
        function(min(size, n - start), *(address + start * width for address, width in arrays))

    threads.parallel_for(-(-n // size), work)
