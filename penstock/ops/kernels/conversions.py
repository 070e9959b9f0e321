"""Conversion of large arrays between real types, tile by tile: what NumPy converts number by number (halves, floats to whole numbers), by machine code."""

from __future__ import annotations

import numpy as np

from penstock.ops import native
from penstock.ops.kernels.numeric import HALF, NARROW, ROUNDED, SINGLE
from penstock.ops.kernels.tiled import into_tiles
from penstock.ops.native import BFLOAT16

_DOUBLE, _INT, _LONG, _BYTE, _BOOL = map(np.dtype, (np.float64, np.int32, np.int64, np.uint8, np.bool_))
_SHORT = tuple(map(np.dtype, (np.int8, np.uint8, np.int16, np.uint16)))
_FLOATS = (HALF, BFLOAT16, SINGLE)
_KINDS = frozenset("fiub")


_IN_SINGLE = {
    **{target: native.Loop(lambda x: x, "f32", result=target) for target in (*_SHORT, _INT)},
    **ROUNDED, _BOOL: native.Loop(lambda x: x != 0, "f32", result=_BOOL),
}  # fmt: skip
_IN_DOUBLE = {target: native.Loop(lambda x: x, "f64", result=target) for target in (*_SHORT, SINGLE, _DOUBLE, _INT, _LONG)}
_LOOPS = {
    **{(source, target): loop for source in _FLOATS for target, loop in _IN_SINGLE.items() if target != source},
    **{(source, target): _IN_DOUBLE[target] for source in _FLOATS for target in (_DOUBLE, _LONG)},
    **{(_DOUBLE, target): loop for target, loop in _IN_DOUBLE.items() if target != _DOUBLE},
    **{(source, target): ROUNDED[target] for source in (*_SHORT, _INT) for target in (HALF, BFLOAT16)},
}
"""All of them round once, or not at all; whole numbers that do not fit are x86's smallest one."""


def can_convert(source: np.dtype, target: np.dtype) -> bool:
    """Whether `convert` knows the types: not complex numbers, nor strings."""
    return all(t.kind in _KINDS or t == BFLOAT16 for t in (source, target))


def convert(x: np.ndarray, target: np.dtype) -> np.ndarray:
    """A large array as `target`."""
    return into_tiles(_convert, target, x)


def convert_halves(x: np.ndarray, target: np.dtype) -> np.ndarray | None:
    """Of halves, or to them, in one pass; None where that takes more."""
    source = x.dtype
    if (source not in NARROW and target not in NARROW) or x.size < native.SMALL:
        return None
    if source == _BOOL:
        x, source = x.view(_BYTE), _BYTE
    loop = _LOOPS.get((source, target))
    return None if loop is None else loop.run(x)


def _convert(out: np.ndarray, x: np.ndarray) -> None:
    source, target = x.dtype, out.dtype
    if source == _BOOL:
        x, source = x.view(_BYTE), _BYTE
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
