"""Loops over an array with some numbers that are the same for all its elements, and that the code of the loop need not be written anew for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native.vectors import Trace, Vec


class NumberedLoop:
    """`formula(x, *numbers)` of an array of float32, rounded after every operation, as by NumPy."""

    def __init__(self, formula: Callable[..., Vec], n_numbers: int) -> None:
        self.formula, self.n_numbers = formula, n_numbers

    def run(self, x: np.ndarray, numbers: Sequence[Any]) -> np.ndarray | None:
        """None if NumPy has to do it."""
        if x.__class__ is not np.ndarray or x.dtype != np.float32 or x.size < native.SMALL or not native.available():
            return None
        x = np.ascontiguousarray(x)
        given, result = np.array(numbers, np.float32), np.empty_like(x)
        function, cost = self._made
        native.over_threads(function, x.size, cost, [(native.address_of(x), 4), (native.address_of(given), 0), (native.address_of(result), 4)])
        return result

    @cached_property
    def _made(self) -> tuple[Any, float]:
        """The function f(n, x, numbers, result), and about how many instructions it takes for each element."""
        from penstock.ops.native import compiler

        trace = Trace(fuse=False, compute="f32")
        x = trace.add("input", [], "f32", (0, "f32"))
        numbers = [trace.memory(1, 4 * i, "f32", broadcast=True) for i in range(self.n_numbers)]
        trace.add("output", [self.formula(x, *numbers)], "none", (2, "f32", 0))
        code = compiler.Code(trace, 16, [64, 0, 64])
        return compiler.function_at(compiler.into_memory(code.write()), 3), len(code.nodes) / 16 + 2
