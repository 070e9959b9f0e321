"""Elementwise functions of large arrays, tile by tile and on all threads.

NumPy computes one function after the other over whole arrays, in one thread. A tile of everything stays in a core's cache while all of them run over it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.ops.kernels.threads import parallel_for

LARGE = 1 << 18
"""Elements from which on a second thread is worth waking."""
TILE = 1 << 17
"""Elements of a tile."""


def is_large(*arrays: Any) -> bool:
    """Whether they are for `into_tiles`: of one shape, but for single numbers, and large."""
    shapes = {a.shape for a in arrays if a.ndim}
    return len(shapes) == 1 and math.prod(*shapes) >= LARGE and all(a.flags.c_contiguous for a in arrays)


def into_tiles(function: Callable[..., Any], dtype: np.dtype, *arrays: Any) -> np.ndarray:
    """An array of `dtype` that `function(out, *arrays)`, which is elementwise, fills tile by tile. `is_large` of the arrays."""
    shape = next(a.shape for a in arrays if a.ndim)
    out = np.empty(shape, dtype)
    to, flat = out.reshape(-1), [a.reshape(-1) if a.ndim else a for a in arrays]

    def work(i: int) -> None:
        tile = slice(i * TILE, (i + 1) * TILE)
        function(to[tile], *[a[tile] if a.ndim else a for a in flat])

    parallel_for(-(-to.size // TILE), work)
    return out


@functools.cache
def tiled(ufunc: np.ufunc) -> Callable[..., Any]:
    """A ufunc of two operands of one type, which the result has too, on all threads where they are large."""

    def run(x: Any, y: Any, out: Any = None) -> Any:
        if out is not None or not is_large(x, y):
            return ufunc(x, y, out=out)
        return into_tiles(lambda to, x, y: ufunc(x, y, out=to), x.dtype, x, y)

    return run
