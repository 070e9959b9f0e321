"""Loops over an array with some numbers that are the same for all its elements, or for those of a channel, and that the code of the loop need not be written anew for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R11, RDI, RDX
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
_LONG = 1 << 14
"""Numbers for channels that may be more than there are elements."""


class ChanneledLoop:
    """The same with numbers for each place along the last axis, of float32."""

    def __init__(self, formula: Callable[..., Vec], n_numbers: int) -> None:
        self.formula, self.n_numbers = formula, n_numbers

    def run(self, x: np.ndarray, numbers: Sequence[np.ndarray]) -> np.ndarray | None:
        """`numbers` are vectors as long as the last axis; None if NumPy has to do it."""
        if x.__class__ is not np.ndarray or x.size < native.SMALL or x.dtype != _SINGLE or not native.available():
            return None
        depth = x.shape[-1]
        period = depth // gcd(depth, _LANES) * _LANES  # channels begin anew where vectors do
        if period > max(x.size, _LONG):
            return None
        x = np.ascontiguousarray(x)
        result = np.empty_like(x)
        each = np.empty((period // _LANES, self.n_numbers, _LANES), np.float32)
        for i, vector in enumerate(numbers):
            each[:, i] = np.resize(vector, period).reshape(-1, _LANES)
        function, cost = self._made
        pieces = max(1, native.pieces_for(x.size * cost))
        turns = -(-x.size // period)

        def work(i: int) -> None:
            start, end = (min(turns * j // pieces * period, x.size) for j in (i, i + 1))
            if start < end:
                function(end - start, native.address_of(x) + 4 * start, native.address_of(each), native.address_of(result) + 4 * start, period)

        native.threads.parallel_for(pieces, work)
        return result

    @cached_property
    def _made(self) -> tuple[Any, float]:
        """The function f(n, x, numbers vector by vector, result, elements until they begin anew), and about how many instructions it takes for each element."""
        from penstock.ops.native import compiler

        class Turns(compiler.Code):
            def _over_elements(self) -> None:
                a, turn = self.asm, next(self.labels)
                a.scalar(asm.MOVE, R11, RDI)
                a.scalar(asm.MOVE, R9, RDX)
                a.label(turn)
                a.scalar(asm.MOVE, RDI, R8)
                a.scalar(asm.CMP, RDI, R11)
                a.scalar(asm.MOVE_IF_ABOVE, RDI, R11)
                a.scalar(asm.SUB, R11, RDI)
                a.scalar(asm.MOVE, RDX, R9)
                super()._over_elements()
                a.with_number(7, R11, 0)
                a.jump(turn, asm.NOT_ZERO)

        trace = Trace(fuse=False, compute="f32")
        x = trace.add("input", [], "f32", (0, "f32"))
        numbers = [trace.memory(1, 64 * i, "f32") for i in range(self.n_numbers)]
        trace.add("output", [self.formula(x, *numbers)], "none", (2, "f32", 0))
        code = Turns(trace, _LANES, [64, 64 * self.n_numbers, 64])
        return compiler.function_at(compiler.into_memory(code.write()), 4), len(code.nodes) / _LANES + 2
