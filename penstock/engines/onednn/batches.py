"""A batch of products for generated code, which has no node for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.graph.bind import engine_is_on


def batched_product(
    a: tuple[int, ...], b: tuple[int, ...], across_a: bool, across_b: bool, dtype: np.dtype
) -> Callable[[np.ndarray, np.ndarray], np.ndarray | None] | None:
    """`run(a, b)` for arrays of these shapes, of which one may be a single matrix; None if oneDNN is not there. What `run` gives is None if oneDNN
    cannot go on, as in a forked process."""
    if dtype != np.float32 or not engine_is_on("onednn"):
        return None
    from penstock.engines.onednn import library as lib
    from penstock.engines.onednn import matmul

    library = lib.get()
    plan = library and matmul.matmul(library, matmul.Spec(a, b, across_a, across_b, np.dtype(dtype)))
    if plan is None:
        return None

    def run(x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
        try:
            return plan.run(x, y)
        except lib.OneDnnError as error:
            if error.status != lib.FORKED:
                lib.log.warning("%s in a batch of products; NumPy computes it", error)
            return None

    return run
