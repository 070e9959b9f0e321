"""Copies of views whose elements lie in lines: runs of bytes that stand together in what is read and in what is written, or whose elements stand there the other
way round. NumPy calls a function for each line, which for lines of some bytes takes longer than to copy them.

    copy(target, source)        arrays of one shape and type, with any strides
    in_order(view)              the same as an array of its own
    laid_out(view)              likewise, if the view is awkward to read
    choose(condition, yes, no)  rows of one matrix or another
"""

from __future__ import annotations

import ctypes
import math
from functools import cache, lru_cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import address_of
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, R13, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Assembler, Mem
from penstock.ops.native.frames import begun, code_of

_LARGE = 1 << 16
"""Bytes from which it pays."""
_LONGEST = 1 << 12
"""Bytes of a line from which on NumPy is as quick."""
_SHORT = 64
"""Bytes of a line that is not worth reading where it lies."""
_UNROLLED = 512
"""Bytes of the longest line that is copied without a loop."""
_VECTOR = 64
_SOME = 1  # the k register of short lines
_ORDER = 31  # the vector that says how elements are turned round

Line = tuple[int, int]
"""Its bytes, 0 for any number from 64 on, and the size of its elements if they are turned round, otherwise 0."""


def in_order(view: np.ndarray) -> np.ndarray:
    """np.ascontiguousarray, quicker for large views that consist of lines."""
    if view.nbytes < _LARGE or view.flags.c_contiguous:
        return np.ascontiguousarray(view)
    out = np.empty(view.shape, view.dtype)
    if not _copied(out, view):
        out[...] = view
    return out


def copy(target: np.ndarray, source: np.ndarray) -> None:
    """target[...] = source, for arrays of one shape that share no memory."""
    if source.nbytes < _LARGE or not _copied(target, source):
        target[...] = source


def laid_out(view: np.ndarray) -> np.ndarray:
    """What a view shows as an array of its own, if it is large and its lines are short or turned round: whoever reads it would take much longer. Otherwise the view
    itself."""
    if view.nbytes < _LARGE or view.flags.c_contiguous or view.dtype.hasobject or not native.available():
        return view
    plan = _plan(view.shape, _strides(view.shape, view.itemsize), view.strides, view.itemsize)
    return view if plan is None or (plan[3][-1] > _SHORT and not plan[2][1]) else in_order(view)


def _strides(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """Those of an array in order."""
    return tuple(item * math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _copied(target: np.ndarray, source: np.ndarray) -> bool:
    if source.dtype.hasobject or source.dtype != target.dtype or not native.available():
        return False
    plan = _plan(source.shape, target.strides, source.strides, source.itemsize)
    if plan is None:
        return False
    outer, first, line, sizes = plan
    records = (_records if math.prod(size for size, _, _ in outer) <= _MOST else _records.__wrapped__)(outer, first)
    _copy(line)(len(records), address_of(records), (ctypes.c_int64 * 9)(*sizes, address_of(target), address_of(source)))  # two threads would not be quicker
    return True


@lru_cache(256)
def _plan(shape: tuple[int, ...], to: tuple[int, ...], of: tuple[int, ...], item: int) -> tuple[tuple[tuple[int, int, int], ...], int, Line, tuple[int, ...]] | None:
    """The outer axes, where in the source the first line begins, the kind of line, and the sizes that `_copy` wants: of the two inner axes the number of lines and the
    steps in both arrays, and a line's bytes."""
    axes = _joined(sorted(zip(shape, to, of, strict=True), key=lambda axis: -axis[1]))
    if not axes or axes[-1][1] != item or abs(axes[-1][2]) != item:
        return None
    count, _, step = axes.pop()
    length, turned = count * item, item if step < 0 else 0
    as_read = _joined(sorted(axes, key=lambda axis: -abs(axis[2])))
    # Where lines stand together in one array, those in the other are better far apart, several rows that fill up, than with gaps that are filled when all is forgotten.
    if axes and as_read[-1][1] > abs(axes[-1][2]):
        axes = as_read
    if (length < _VECTOR or item > 8) if turned else (length > _LONGEST or not axes):
        return None
    (inner, *inner_steps), (outer, *outer_steps) = [*reversed(axes), (1, 0, 0), (1, 0, 0)][:2]
    return tuple(axes[:-2]), item - length if turned else 0, (length if length <= _UNROLLED else 0, turned), (outer, *outer_steps, inner, *inner_steps, length)


@lru_cache(64)
def _records(axes: tuple[tuple[int, int, int], ...], first: int) -> np.ndarray:
    """Bytes from the arrays' first elements to those of each block of lines, in the target and in the source."""
    starts = np.array([[0, first]])
    for size, target, source in axes:
        starts = (starts[:, None] + np.arange(size)[:, None] * np.array([target, source])).reshape(-1, 2)
    return starts


def _joined(axes: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Without axes of one element; those that follow each other in both arrays are one."""
    result: list[tuple[int, int, int]] = []
    for size, target, source in axes:
        if size == 1:
            continue
        if result and result[-1][1:] == (size * target, size * source):
            result[-1] = result[-1][0] * size, target, source
        else:
            result.append((size, target, source))
    return result


_MOST = 1 << 12
"""Records that are kept for the next time."""
_OUTER, _OUTER_TO, _OUTER_OF, _INNER, _INNER_TO, _INNER_OF, _LENGTH, _TARGET, _SOURCE = (Mem(RDX, 8 * i) for i in range(9))


@cache
def _copy(line: Line) -> Any:
    """f(records, their address, block of the fields above)"""
    a = begun()
    record, outer, inner = range(3)
    _prepare(a, line, _LENGTH)
    a.label(record)
    for register, base, field in ((R8, _TARGET, 0), (R9, _SOURCE, 8)):
        a.scalar(asm.MOVE, register, base)
        a.scalar(asm.ADD, register, Mem(RSI, field))
    a.scalar(asm.MOVE, R10, _OUTER)
    a.scalar(asm.MOVE, R12, _INNER_TO)
    a.scalar(asm.MOVE, R13, _INNER_OF)
    a.label(outer)
    a.scalar(asm.MOVE, RCX, R8)
    a.scalar(asm.MOVE, R11, R9)
    a.scalar(asm.MOVE, RBX, _INNER)
    a.label(inner)
    _copy_line(a, line, RCX, R11, 3)
    a.scalar(asm.ADD, RCX, R12)
    a.scalar(asm.ADD, R11, R13)
    a.with_number(5, RBX, 1)
    a.jump(inner, asm.NOT_ZERO)
    a.scalar(asm.ADD, R8, _OUTER_TO)
    a.scalar(asm.ADD, R9, _OUTER_OF)
    a.with_number(5, R10, 1)
    a.jump(outer, asm.NOT_ZERO)
    a.with_number(0, RSI, 16)
    a.with_number(5, RDI, 1)
    a.jump(record, asm.NOT_ZERO)
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(code_of(a))


def _prepare(a: Assembler, line: Line, length: Mem) -> None:
    """What lines of that kind need in registers."""
    bytes_, turned = line
    if 0 < bytes_ < 16:
        a.set_number(RAX, (1 << bytes_) - 1)
        a.mask_from(_SOME, RAX)
    if turned:
        order = np.arange(16 // turned)[::-1, None] * turned + np.arange(turned)
        a.vector("load.i64", _ORDER, a.table(np.tile(order.astype(np.uint8).reshape(-1), 4)))
    if not bytes_:
        a.scalar(asm.MOVE, RAX, length)
        a.with_number(5, RAX, _VECTOR)
        a.scalar(asm.MOVE_TO_MEMORY, RAX, _LESS)


_LESS = Mem(asm.RSP, -8)
"""Below the stack's end, which is ours as long as nothing is called: the bytes of a long line less 64."""


def _copy_line(a: Assembler, line: Line, to: int, of: int, label: int) -> None:
    """A line at `of`, copied to `to`, registers that stay what they are. RAX and RBP are changed."""
    bytes_, turned = line

    def move(target: Mem, source: Mem, length: int = asm.FULL, register: int = 0, **masked: Any) -> None:
        a.vector("load.u8", register, source, length=length, **masked, **({"zero": True} if masked else {}))
        if turned:
            a.vector("shuffle.u8", register, register, _ORDER)
            a.vector("quarters", register, register, register, immediate=0x1B)
        a.vector("store.u8", register, target, length=length, **masked)

    if not bytes_:  # vectors one after the other; the last one covers some of the one before
        done = label + 1
        a.set_number(RBP, 0)
        a.scalar(asm.MOVE, RAX, of)
        if turned:
            a.scalar(asm.ADD, RAX, _LESS)
        a.label(label)
        a.scalar(asm.CMP, RBP, _LESS)
        a.jump(done, asm.ABOVE_EQUAL)
        move(Mem(to, index=RBP), Mem(RAX))
        a.with_number(5 if turned else 0, RAX, _VECTOR)
        a.with_number(0, RBP, _VECTOR)
        a.jump(label)
        a.label(done)
        a.scalar(asm.MOVE, RBP, _LESS)
        move(Mem(to, index=RBP), Mem(of) if turned else Mem(of, index=RBP))
    elif bytes_ < 16:
        move(Mem(to), Mem(of), asm.QUARTER, mask=_SOME)
    else:
        length = min(asm.FULL, bytes_.bit_length() - 5)
        size = 16 << length
        for i, at in enumerate([*range(0, bytes_ - size, size), bytes_ - size]):
            move(Mem(to, at), Mem(of, bytes_ - size - at if turned else at), length, i)


# -- choices ----------------------------------------------------------------------------------------------------------


def choose(condition: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray | None:
    """For each row yes[i] if condition[i], otherwise no[i]. All are contiguous, `yes` and `no` of one shape and type. None if NumPy has to do it."""
    bytes_ = yes.nbytes // len(yes) if len(yes) else 0
    if yes.nbytes < _LARGE or yes.dtype.hasobject or bytes_ < 2 or not native.available():
        return None
    out = np.empty(yes.shape, yes.dtype)
    _choose((bytes_ if bytes_ <= _UNROLLED else 0, 0))(len(yes), (ctypes.c_int64 * 5)(*map(address_of, (condition, yes, no, out)), bytes_))
    return out


@cache
def _choose(line: Line) -> Any:
    """f(rows, block of the addresses of condition, yes, no and out, and of the bytes of a row)"""
    a = begun()
    row = 0
    condition, yes, no, out, step = R8, R9, R10, R11, R12
    for i, register in enumerate((condition, yes, no, out, step)):
        a.scalar(asm.MOVE, register, Mem(RSI, 8 * i))
    _prepare(a, line, Mem(RSI, 32))
    a.label(row)
    a.scalar(_MOVE_BYTE, RAX, Mem(condition))
    a.scalar(asm.MOVE, RBX, no)
    a.with_number(7, RAX, 0)
    a.scalar(asm.MOVE_IF_ABOVE, RBX, yes)
    _copy_line(a, line, out, RBX, 1)
    a.with_number(0, condition, 1)
    for register in (yes, no, out):
        a.scalar(asm.ADD, register, step)
    a.with_number(5, RDI, 1)
    a.jump(row, asm.NOT_ZERO)
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(code_of(a))


_MOVE_BYTE = 0x1B6
"""A byte without a sign as a whole register."""
