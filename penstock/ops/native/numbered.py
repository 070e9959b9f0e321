"""Loops over an array with some numbers that are the same for all its elements, and that the code of the loop need not be written anew for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native.vectors import Trace, Vec

_SINGLE = np.dtype(np.float32)
_TYPES = {_SINGLE: "f32", **{np.dtype(t): f"{np.dtype(t).kind}{8 * np.dtype(t).itemsize}" for t in (np.int8, np.uint8, np.int16, np.uint16, np.int32)}}


class NumberedLoop:
    """`formula(x, *numbers)` in float32, rounded after every operation, as by NumPy. The array, and the result, may be whole numbers of up to 32 bits as well: the
    result is cut towards zero then, and what does not fit into 32 bits becomes their lowest value, as on x86."""

    def __init__(self, formula: Callable[..., Vec], n_numbers: int) -> None:
        self.formula, self.n_numbers = formula, n_numbers
        self._made: dict[tuple[np.dtype, np.dtype], tuple[Any, float]] = {}

    def run(self, x: np.ndarray, numbers: Sequence[Any], dtype: Any = _SINGLE) -> np.ndarray | None:
        """The result as `dtype`; None if NumPy has to do it."""
        if x.__class__ is not np.ndarray or x.size < native.SMALL or x.dtype not in _TYPES or not native.available():
            return None
        x = np.ascontiguousarray(x)
        given, result = np.array(numbers, np.float32), np.empty(x.shape, dtype)
        kinds = x.dtype, result.dtype
        function, cost = self._made.get(kinds) or self._make(*kinds)
        native.over_threads(function, x.size, cost, [(native.address_of(x), x.itemsize), (native.address_of(given), 0), (native.address_of(result), result.itemsize)])
        return result

    def _make(self, source: np.dtype, target: np.dtype) -> tuple[Any, float]:
        """The function f(n, x, numbers, result), and about how many instructions it takes for each element."""
        from penstock.ops.native import compiler

        trace = Trace(fuse=False, compute="f32")
        x = trace.add("input", [], "f32", (0, _TYPES[source]))
        numbers = [trace.memory(1, 4 * i, "f32", broadcast=True) for i in range(self.n_numbers)]
        trace.add("output", [self.formula(x, *numbers)], "none", (2, _TYPES[target], 0))
        code = compiler.Code(trace, _LANES, [_LANES * source.itemsize, 0, _LANES * target.itemsize])
        made = self._made[source, target] = compiler.function_at(compiler.into_memory(code.write()), 3), len(code.nodes) / _LANES + 2
        return made


_LANES = 16
