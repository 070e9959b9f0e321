"""Formulas for matrices with reductions of their rows, as loops in machine code (see `sweeps`).

    @rowwise
    def softmax(x):
        e = np.exp(x - np.maximum.reduce(x, -1, keepdims=True))
        return e / np.add.reduce(e, -1, keepdims=True)

    softmax(x)        # one pass over memory for each row; None where NumPy has to do it

The function is called with `Sketch`es, which write down what is done with them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from penstock.ops import native
from penstock.ops.native import sweeps
from penstock.ops.native.sweeps import COLUMN, CONSTANT, FULL, ROW, Formula

SMALLEST = 1 << 12
"""Elements from which on a loop is worth it."""
NARROWEST = 8
"""Columns from which on it is."""


class _Sheet:
    """The steps of a formula so far."""

    def __init__(self, compute: np.dtype, kinds: tuple[str, ...]) -> None:
        self.compute, self.type = compute, sweeps.TYPES[compute]
        self.inputs = [(kind, self.type, b"") for kind in kinds]
        self.steps: list[tuple[Any, tuple[Sketch, ...], bool]] = []

    def constant(self, number: Any) -> Sketch:
        key = (CONSTANT, self.type, self.compute.type(number).tobytes())
        if key not in self.inputs:
            self.inputs.append(key)
        return Sketch(self, self.inputs.index(key), True)

    def step(self, ufunc: np.ufunc, operands: tuple[Any, ...], reduces: bool) -> Sketch:
        values = tuple(o if isinstance(o, Sketch) else self.constant(o) for o in operands)
        self.steps.append((ufunc, values, reduces))
        return Sketch(self, len(self.steps) - 1, False)

    def formula(self, results: list[Sketch], shape: str) -> Formula:
        first = len(self.inputs)

        def number(value: Sketch) -> int:
            return value.number if value.is_input else first + value.number

        steps = tuple((ufunc, tuple(map(number, operands)), reduces) for ufunc, operands, reduces in self.steps)
        columns = [kind in (COLUMN, CONSTANT) for kind, _, _ in self.inputs]
        for _, operands, reduces in steps:
            columns.append(reduces or all(columns[o] for o in operands))
        outputs = tuple((number(r), self.type, columns[number(r)]) for r in results)
        return Formula(self.type, tuple(self.inputs), steps, outputs, (), shape)


class Sketch(NDArrayOperatorsMixin):
    """Stands for a matrix in a formula."""

    def __init__(self, sheet: _Sheet, number: int, is_input: bool) -> None:
        self.sheet, self.number, self.is_input = sheet, number, is_input

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, axis: int = 0, keepdims: bool = False) -> Any:
        if method == "__call__":
            return self.sheet.step(ufunc, inputs, False)
        assert method == "reduce" and axis == -1 and keepdims
        return self.sheet.step(ufunc, inputs, True)


def rowwise(function: Callable[..., Any]) -> Callable[..., list[np.ndarray] | None]:
    """The function as a loop over the rows of matrices of one type and shape; an argument may also be one row. It gives its results as
    a list, or None where NumPy has to compute them."""

    @functools.cache
    def sweep_for(dtype: np.dtype, kinds: tuple[str, ...], shape: str) -> tuple[sweeps.Sweep | None, tuple[tuple[int, str, bool], ...]]:
        sheet = _Sheet(dtype, kinds)
        results = function(*(Sketch(sheet, i, True) for i in range(len(kinds))))
        formula = sheet.formula(list(results) if isinstance(results, (tuple, list)) else [results], shape)
        return sweeps.compiled(formula), formula.outputs

    @functools.wraps(function)
    def run(*arrays: Any) -> list[np.ndarray] | None:
        first = arrays[0]
        dtype, shape = first.dtype, first.shape
        if dtype not in _FLOATS or first.size < SMALLEST or shape[-1] < NARROWEST or not native.available():
            return None
        kinds = tuple(FULL if a.shape == shape else ROW for a in arrays)
        if any(a.dtype != dtype or (kind == ROW and a.shape != shape[-1:]) for a, kind in zip(arrays, kinds)):
            return None
        sweep, outputs = sweep_for(dtype, kinds, sweeps.shape_for(shape[-1]))
        if sweep is None:
            return None
        results = [np.empty((*shape[:-1], 1) if is_column else shape, dtype) for _, _, is_column in outputs]
        sweep(first.size // shape[-1], shape[-1], [np.ascontiguousarray(a) for a in arrays], (), results)
        return results

    run.sweep_for = sweep_for  # type: ignore[attr-defined]  # for who has the arrays already
    return run


def _reduced(ufunc: np.ufunc) -> Callable[..., list[np.ndarray] | None]:
    return rowwise(lambda x: ufunc.reduce(x, -1, keepdims=True))


_REDUCTIONS: dict[Any, Callable[..., list[np.ndarray] | None]] = {np.multiply: _reduced(np.multiply)}


def reduce_rows(ufunc: np.ufunc, x: np.ndarray, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    """ufunc.reduce of big contiguous floats over their last axes, or over all of them, for what NumPy reduces one by one; None for anything else."""
    if x.size < SMALLEST or ufunc not in _REDUCTIONS or not x.flags.c_contiguous:
        return None
    n_kept = x.ndim - len(axes)
    if {a % x.ndim for a in axes} != {*range(n_kept, x.ndim)}:
        return None
    if n_kept:
        columns = int(np.prod(x.shape[n_kept:]))
        found = _REDUCTIONS[ufunc](x.reshape(-1, columns))
        return None if found is None else found[0].reshape(x.shape[:n_kept] + ((1,) * len(axes) if keepdims else ()))
    flat = x.reshape(-1)
    whole = x.size // PARTS * PARTS
    found = _REDUCTIONS[ufunc](flat[:whole].reshape(PARTS, -1))
    if found is None:
        return None
    total = ufunc.reduce(np.concatenate((found[0].reshape(-1), flat[whole:])))
    return total.reshape((1,) * x.ndim) if keepdims else total


PARTS = 32
"""Parts of an array that is reduced as a whole: the same whatever the threads."""
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
