"""Formulas of several channels: loops that read planes of numbers and write as many in their place."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native

PLANE = 1 << 14
"""Numbers of a plane: three of them stay in the second cache of a core."""


@cache
def in_place(formula: Callable[..., tuple[Any, ...]], numbers: int, channels: int = 3) -> Callable[..., None] | None:
    """run(count, planes, *numbers) sets the first `count` of every plane to what formula(*planes, *numbers) gives; None if there are no loops here.

    `planes` is float32, (channels, PLANE), contiguous; the numbers are float32 scalars. What lies behind `count` up to a whole vector changes too.
    """
    if not native.available():
        return None
    from penstock.ops.native import compiler
    from penstock.ops.native.vectors import Trace

    trace = Trace(fuse=False)
    values = [trace.memory(0, i * PLANE * 4, "f32") for i in range(channels)]
    values += [trace.memory(1, i * 4, "f32", broadcast=True) for i in range(numbers)]
    for i, value in enumerate(formula(*values)):
        trace.store(value, 0, i * PLANE * 4)
    function = compiler.function_at(compiler.into_memory(compiler.Code(trace, 16, [64, 0]).write()), 2)

    def run(count: int, planes: np.ndarray, *amounts: Any) -> None:
        constants = np.array([*amounts, 0], np.float32)
        function(count, planes.ctypes.data, constants.ctypes.data)

    return run
