"""A run of elementwise nodes as a formula, which `ops.native.sweeps` makes one loop in machine code of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.engines.python.elementwise import COLUMN, FULL, REDUCTIONS, ROW, Fused, kind_of
from penstock.graph.ir import Tensor
from penstock.ops import native
from penstock.ops.kernels import periods
from penstock.ops.native import sweeps
from penstock.ops.native.sweeps import Formula, Sweep


class Swept:
    """Computes a run in one pass: `swept(values, results)`, or False where that cannot be.

    `rows` are the run's steps, (key, step, keys of operands, node); `kept` its outputs that are arrays, `ended` what its reductions over everything read."""

    def __init__(self, run: Fused, rows: Sequence[tuple[Any, Any, list[Any], Any]], kept: Sequence[Tensor], ended: Sequence[Tensor]) -> None:
        self.kinds = [kind_of(t.dims, run.dims) if run.dims is not None else FULL for t in run.arrays]
        self.row_at = [len(run.arrays) + i for i, t in enumerate(run.numbers) if run.dims is not None and kind_of(t.dims, run.dims) == ROW]
        self.number_at = [len(run.arrays) + i for i in range(len(run.numbers)) if len(run.arrays) + i not in self.row_at]
        self.array_at = [*range(len(run.arrays)), *self.row_at]
        tensors = [*run.arrays, *run.numbers]
        self.types = [tensors[i].dtype.np for i in self.array_at]
        self.columns = 0 if run.dims is None else run.dims[-1]
        self.formula = self._formula(run, rows, kept, ended, tensors)
        self.sweep: Sweep | None = None

    def _formula(self, run: Fused, rows: Any, kept: Sequence[Tensor], ended: Sequence[Tensor], tensors: list[Tensor]) -> Formula | None:
        if not native.available():
            return None
        known = sweeps.TYPES
        types = [t.dtype.np for t in (*tensors, *kept)] + [step.dtype for _, step, _, _ in rows]
        floats = {known.get(dtype, "") for dtype in types} - {"bool"}
        if len(floats) != 1 or "" in floats or not all(sweeps.knows(step.ufunc) for _, step, _, _ in rows):
            return None
        number_of: dict[Any, int] = {}
        inputs: list[tuple[str, str, bytes]] = []
        for place, kind in [*zip(range(len(run.arrays)), self.kinds), *((i, ROW) for i in self.row_at), *((i, "number") for i in self.number_at)]:
            number_of[tensors[place]] = len(inputs)
            inputs.append((str(kind), known[tensors[place].dtype.np], b""))
        for _, _, operands, _ in rows:
            for constant in operands:
                if isinstance(constant, np.generic):
                    key = (sweeps.CONSTANT, known[constant.dtype], constant.tobytes())
                    if key not in number_of:
                        number_of[key] = len(inputs)
                        inputs.append(key)

        def number(operand: Any) -> int:
            if isinstance(operand, np.generic):
                return number_of[sweeps.CONSTANT, known[operand.dtype], operand.tobytes()]
            return number_of[operand]

        steps = []
        for key, step, operands, _ in rows:
            steps.append((step.ufunc, tuple(map(number, operands)), step.reduces))
            number_of[key] = len(inputs) + len(steps) - 1
        outputs = tuple((number(t), known[t.dtype.np], run.dims is not None and kind_of(t.dims, run.dims) == COLUMN) for t in kept)
        totals = tuple((REDUCTIONS[node.op.type], number(t)) for node, t in zip(run.reductions, ended, strict=True))
        return Formula(floats.pop(), tuple(inputs), tuple(steps), outputs, totals, sweeps.shape_for(self.columns) if self.columns else sweeps.FLAT)

    def ready(self) -> Sweep | None:
        """The loop, compiled at the first call."""
        if self.sweep is None and self.formula is not None:
            self.sweep = sweeps.compiled(self.formula)
            if self.sweep is None:
                self.formula = None
        return self.sweep

    def __call__(self, values: Sequence[Any], make_results: Callable[[bool], list[np.ndarray]]) -> tuple[list[np.ndarray], list[Any]] | None:
        """Results and totals, or None: NumPy has to do it. `make_results(may overwrite inputs)` gives the arrays to write to."""
        sweep = self.ready()
        if sweep is None:
            return None
        arrays = [values[i] for i in self.array_at]
        for i, dtype in enumerate(self.types):
            array = arrays[i]
            if array.dtype != dtype:
                return None
            if not array.flags.c_contiguous:
                arrays[i] = periods.contiguous(array)
        size = values[0].size
        if not size:
            return None
        results = make_results(sweep.may_overwrite)
        rows, columns = (size // self.columns, self.columns) if self.columns else (1, size)
        return results, sweep(rows, columns, arrays, [values[i] for i in self.number_at], results)
