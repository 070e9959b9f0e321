"""What plans have in common: how many threads are worth it, layouts as strides, and steps between layouts.

A plan is one kernel on fixed shapes: its primitive and the reorders around it. Plans are made by the modules `conv`, `matmul`,
`pool`, `norm` and `softmax`, kept by `primitives.cached`, and run with arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.engines.memory import address
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.library import Library, OneDnnError
from penstock.engines.onednn.primitives import Buffer, ConstantWeights, Maker, Primitive, cached, lasting_buffer

FLOPS_PER_US = 1e5
"""A rough figure of one core with AVX-512; only thresholds depend on it."""
BYTES_PER_US = 1e4
US_PER_THREAD = 20.0
"""To wake a second thread takes some microseconds, so that it must have at least this much to do."""


def threads_for(microseconds: float) -> int:
    """How many threads work that takes one thread so long deserves."""
    return max(1, min(lib.threads(), int(microseconds / US_PER_THREAD)))


def planned(kind: Any, library: Library, microseconds: float, spec: Any, *options: Any) -> Any:
    """The cached plan `kind(maker, spec, *options)`, or None if oneDNN has no code worth using for it: its reference code is there for
    completeness, NumPy is quicker. `microseconds` is what one thread would take, roughly."""
    threads = threads_for(microseconds)

    def make() -> Any:
        try:
            with Maker(library, threads) as m:
                plan = kind(m, spec, *options)
                return None if plan.main.implementation.startswith("ref") else plan
        except OneDnnError as error:
            if error.status != lib.UNIMPLEMENTED:
                lib.log.warning("%s; NumPy computes %s", error, spec)
            return None

    return cached((kind, threads, spec, options), make)


def strides_of(dims: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous array."""
    strides, step = [], 1
    for n in reversed(dims):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def channels_last_strides(dims: Sequence[int]) -> tuple[int, ...]:
    """Strides of logical dims (N, C, *spatial) that lie in memory as (N, *spatial, C)."""
    n, c, *spatial = dims
    last = strides_of((n, *spatial, c))
    return (last[0], last[-1], *last[1:-1])


def contiguous(x: np.ndarray) -> np.ndarray:
    """An array that has an address and no gaps. A NumPy scalar, which a value without dimensions may be, is an object without one."""
    return x if isinstance(x, np.ndarray) and x.flags.c_contiguous else np.asarray(x, order="C")


COPIES = ConstantWeights()
"""Constants that stay as they are, without gaps."""


class Reordered:
    """An operand that a primitive wants in another layout than it comes in; `primitive` is None if it does not."""

    __slots__ = ("constants", "primitive", "size")

    def __init__(self, maker: Maker, source: int, target: int) -> None:
        self.primitive: Primitive | None = maker.reorder(source, target)
        self.size = maker.size(target)
        self.constants = COPIES if self.primitive is None else ConstantWeights.laid_out_by(self.primitive)

    def laid_out(self, array: np.ndarray) -> Buffer:
        """A copy of the array in the primitive's layout."""
        if self.primitive is None:
            return laid_aside(array)
        made = lasting_buffer(self.size)
        source = contiguous(array)
        self.primitive.run(address(source), made.address)
        return made

    def constant(self, array: np.ndarray) -> int:
        """The address of an array that never changes, in the primitive's layout."""
        if self.primitive is None and array.flags.c_contiguous:
            return address(array)
        return self.constants.get(array, self.laid_out)


def laid_aside(array: np.ndarray) -> Buffer:
    """A copy of an array that stays."""
    made = lasting_buffer(array.nbytes)
    made.array.view(array.dtype).reshape(array.shape)[...] = array
    return made
