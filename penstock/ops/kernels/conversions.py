"""Conversion of large arrays between real types, tile by tile: what NumPy converts number by number (halves, floats to whole numbers), by machine code."""

from __future__ import annotations

import numpy as np

from penstock.ops import native
from penstock.ops.kernels.numeric import HALF, NARROW, ROUNDED, SINGLE
from penstock.ops.kernels.tiled import into_tiles
from penstock.ops.native import BFLOAT16

_DOUBLE, _INT, _LONG = np.dtype(np.float64), np.dtype(np.int32), np.dtype(np.int64)
_KINDS = frozenset("fiub")


_IN_DOUBLE = {target: native.Loop(lambda x: x, "f64", result=target) for target in (SINGLE, _DOUBLE, _INT, _LONG)}
_LOOPS = {
    **{(BFLOAT16, target): ROUNDED[target] for target in (HALF, SINGLE)},
    **{(HALF, target): ROUNDED[target] for target in (BFLOAT16, SINGLE)},
    **{(SINGLE, target): ROUNDED[target] for target in (HALF, BFLOAT16)},
    **{(source, target): loop for source in (HALF, SINGLE, _DOUBLE) for target, loop in _IN_DOUBLE.items() if target != source and (source, target) != (HALF, SINGLE)},
}
"""All of them round once, or not at all; whole numbers that do not fit are x86's smallest one."""


def can_convert(source: np.dtype, target: np.dtype) -> bool:
    """Whether `convert` knows the types: not complex numbers, nor strings."""
    return all(t.kind in _KINDS or t == BFLOAT16 for t in (source, target))


def convert(x: np.ndarray, target: np.dtype) -> np.ndarray:
    """A large array as `target`."""
    return into_tiles(_convert, target, x)


def _convert(out: np.ndarray, x: np.ndarray) -> None:
    source, target = x.dtype, out.dtype
    loop = _LOOPS.get((source, target))
    if loop is not None and loop.into(out, x):
        return
    between = _between(source, target)
    if between is None:
        np.copyto(out, x, casting="unsafe")
        return
    middle = np.empty(x.shape, between)
    _convert(middle, x)
    _convert(out, middle)


def _between(source: np.dtype, target: np.dtype) -> np.dtype | None:
    """By way of what a number goes: float32 for halves, as in TF, and words of 32 or 64 bits for shorter ones."""
    if source in NARROW and target != SINGLE:
        return SINGLE
    if target in NARROW and source != SINGLE:
        return SINGLE
    if source.kind == "f" and target.kind in "iu" and target != _INT and target != _LONG:
        return _INT if target.itemsize < 4 else _LONG if target.itemsize == 4 else None
    return None
