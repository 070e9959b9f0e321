"""Maxima of windows over pixels: where they are, and where the gradients of three-dimensional ones go.

Pixels are runs of float32 numbers, the channels, in images (n, pixels, depth). Which pixels a window has, or which windows a pixel is part of, is the
same for all images: a list for each, the numbers starts[i] up to starts[i + 1] of `at`, in rising order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from penstock.ops.native import address_of
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, R13, RAX, RBP, RCX, RDI, RDX, RSI, Assembler, Mem
from penstock.ops.native.frames import begun, ended, share_out

_TAIL, _CHOSEN = 1, 2  # k registers: the elements beyond whole vectors, and those that change
_LANES, _BYTES = 16, 64
_ENTRY = 32
"""Bytes of an entry of a list."""
_DEPTHS = 8
"""Depths of images for which tables are kept."""
_ITEMS = 1 << 11
"""Pixels that are handed out together, at most."""


class _Lists:
    def __init__(self, starts: np.ndarray, at: np.ndarray, taps: np.ndarray | None = None) -> None:
        """`taps`: the number of each entry within the window."""
        self.starts, self.at = starts, at
        self.taps = np.zeros_like(at) if taps is None else taps
        self.has_empty = bool((np.diff(starts) == 0).any())
        self._tables: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def _table(self, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Records of lists, (address of the first entry, entries), and those of entries, (offset in bytes, in numbers, tap, the tap's offset in bytes), which
        must live as long."""
        found = self._tables.get(depth)
        if found is None:
            entries = np.stack([self.at * (depth * 4), self.at * depth, self.taps, self.taps * (depth * 4)], 1)
            found = np.stack([entries.ctypes.data + self.starts[:-1] * entries.strides[0], np.diff(self.starts)], 1), entries
            if len(self._tables) >= _DEPTHS:
                self._tables.clear()
            self._tables[depth] = found
        return found

    def _each(self, images: int, depth: int, run: Callable[[int, int, int], None]) -> None:
        """run(image, first item, items) for parts of the lists of every image, on several threads."""
        count = len(self.starts) - 1
        parts = -(-count // _ITEMS)
        size = -(-count // parts)

        def some(start: int, end: int) -> None:
            for i in range(start, end):
                image, first = i // parts, i % parts * size
                run(image, first, min(size, count - first))

        share_out(images * parts, size * depth, some)


def _begun() -> Assembler:
    """R9: the bytes of a pixel in whole vectors; `_TAIL`: the rest. R8 leads to the bytes of a pixel."""
    a = begun()
    a.set_number(RAX, -1)
    a.low_bits(RAX, R9)
    a.mask_from(_TAIL, RAX)
    a.scalar(asm.MOVE, R9, Mem(R8))
    a.with_number(4, R9, -_BYTES)
    return a


def _over_vectors(a: Assembler, depth: int, total: Callable[..., None]) -> None:
    """total(label, label, **masked) for each vector of a pixel, whose offset is in R13."""
    vector, *labels = range(10, 15)
    a.scalar(asm.SUB, R13, R13)
    if depth // _LANES:
        a.label(vector)
        total(*labels[:2])
        a.with_number(0, R13, _BYTES)
        a.scalar(asm.CMP, R13, R9)
        a.jump(vector, asm.BELOW)
    if depth % _LANES:
        total(*labels[2:], mask=_TAIL)


# -- where they are -----------------------------------------------------------------------------------------------------


class Maxima(_Lists):
    """Lists of the pixels of each window."""

    def find(self, x: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The first of the largest numbers of each window, for each channel, and its place in the image, pixel * depth + channel (int32).
        With weights (taps, depth), which are added to the numbers: its tap.

        Comparisons with NaN are false: it stays where it is the first of a window. No window may be empty.
        """
        if self.has_empty:
            raise ValueError("a window without pixels")
        depth, count = x.shape[-1], len(self.starts) - 1
        best, where = np.empty((len(x), count, depth), np.float32), np.empty((len(x), count, depth), np.int32)
        if not best.size:
            return best, where
        items, _entries = self._table(depth)
        function = _find(depth // _LANES > 0, depth % _LANES, weights is not None)
        weights_at = 0 if weights is None else address_of(weights)
        items_at, x_at, best_at, where_at = map(address_of, (items, x, best, where))

        def run(image: int, first: int, some: int) -> None:
            skipped = (image * count + first) * depth * 4
            block = np.array([depth * 4, where_at + skipped, weights_at])
            function(some, items_at + first * 16, x_at + image * x.strides[0], best_at + skipped, address_of(block), depth % _LANES)

        self._each(len(x), depth, run)
        return best, where


@cache
def _find(has_whole: bool, rest: int, has_weights: bool) -> Any:
    """f(windows, their records, the image, maxima, (bytes of a pixel, address of places, of weights), elements of a pixel beyond whole vectors)"""
    a = _begun()
    window = 0
    lane, more = 6, 7
    a.vector("broadcast.i32", more, a.constant(_LANES, "i32")._replace(broadcast=False))
    a.scalar(asm.MOVE, RBP, Mem(R8, 8))
    a.scalar(asm.MOVE, R12, Mem(R8, 16))
    number = 16 if has_weights else 8  # the field of an entry

    def value(register: int, **masked: Any) -> None:
        a.scalar(asm.MOVE, RAX, Mem(R10))
        a.scalar(asm.ADD, RAX, R13)
        a.vector("load.f32", register, Mem(RDX, index=RAX), **masked)
        if has_weights:
            a.scalar(asm.MOVE, RAX, Mem(R10, 24))
            a.scalar(asm.ADD, RAX, R13)
            a.vector("add.f32", register, register, Mem(R12, index=RAX), **masked)

    def total(entry: int, done: int, **masked: Any) -> None:
        zero = {"zero": True} if masked else {}
        a.scalar(asm.MOVE, R10, Mem(RSI))
        a.scalar(asm.MOVE, R11, Mem(RSI, 8))
        value(0, **masked, **zero)
        a.vector("broadcast.i32", 2, Mem(R10, number))
        a.label(entry)
        a.with_number(0, R10, _ENTRY)
        a.with_number(5, R11, 1)
        a.jump(done, asm.ZERO)
        value(1, **masked, **zero)
        a.vector("cmp.f32", _CHOSEN, 0, 1, immediate=asm.LESS)
        a.vector("load.f32", 0, 1, mask=_CHOSEN)
        a.vector("broadcast.i32", 2, Mem(R10, number), mask=_CHOSEN)
        a.jump(entry)
        a.label(done)
        if not has_weights:
            a.vector("add.i32", 2, 2, lane)
            a.vector("add.i32", lane, lane, more)
        a.vector("store.f32", 0, Mem(RCX, index=R13), **masked)
        a.vector("store.i32", 2, Mem(RBP, index=R13), **masked)

    a.label(window)
    a.vector("load.i32", lane, a.table(np.arange(_LANES, dtype=np.int32)))
    _over_vectors(a, has_whole * _LANES + rest, total)
    for register in (RCX, RBP):
        a.scalar(asm.ADD, register, Mem(R8))
    a.with_number(0, RSI, 16)
    a.with_number(5, RDI, 1)
    a.jump(window, asm.NOT_ZERO)
    return ended(a)


# -- gradients ----------------------------------------------------------------------------------------------------------


class Windows(_Lists):
    """Lists of the windows that each pixel is part of."""

    def spread(self, x: np.ndarray, y: np.ndarray, dy: np.ndarray, near: float) -> np.ndarray:
        """dx[n, i] = the sum of dy over the windows of pixel i whose y is less than `near` away from x. All are float32 and contiguous."""
        dx = np.empty(x.shape, np.float32)
        if not dx.size:
            return dx
        depth = x.shape[-1]
        items, _entries = self._table(depth)
        function, distance = _spread(depth // _LANES > 0, depth % _LANES), np.full(1, near, np.float32)
        items_at, x_at, y_at, dx_at, dy_at, near_at = map(address_of, (items, x, y, dx, dy, distance))

        def run(image: int, first: int, some: int) -> None:
            skipped, window = image * x.strides[0] + first * depth * 4, image * y.strides[0]
            block = np.array([depth * 4, y_at + window, dy_at + window, near_at])
            function(some, items_at + first * 16, x_at + skipped, dx_at + skipped, address_of(block), depth % _LANES)

        self._each(len(x), depth, run)
        return dx


@cache
def _spread(has_whole: bool, rest: int) -> Any:
    """f(pixels, their records, x, dx, (bytes of a pixel, address of y, of dy, of the distance), elements of a pixel beyond whole vectors)"""
    a = _begun()
    pixel = 0
    near, sign = 6, 7
    a.scalar(asm.MOVE, RAX, Mem(R8, 24))
    a.vector("broadcast.f32", near, Mem(RAX))
    a.vector("broadcast.i32", sign, a.constant(0x7FFFFFFF, "i32")._replace(broadcast=False))
    a.scalar(asm.MOVE, R12, Mem(R8, 8))
    a.scalar(asm.MOVE, RBP, Mem(R8, 16))

    def total(window: int, stored: int, **masked: Any) -> None:
        zero = {"zero": True} if masked else {}
        a.scalar(asm.MOVE, R10, Mem(RSI))
        a.scalar(asm.MOVE, R11, Mem(RSI, 8))
        a.vector("xor.i32", 0, 0, 0)
        a.with_number(7, R11, 0)
        a.jump(stored, asm.ZERO)
        a.vector("load.f32", 1, Mem(RDX, index=R13), **masked, **zero)
        a.label(window)
        a.scalar(asm.MOVE, RAX, Mem(R10))
        a.scalar(asm.ADD, RAX, R13)
        a.vector("load.f32", 2, Mem(R12, index=RAX), **masked, **zero)
        a.vector("sub.f32", 2, 1, 2)
        a.vector("and.i32", 2, 2, sign)
        a.vector("cmp.f32", _CHOSEN, 2, near, immediate=asm.LESS, mask=masked.get("mask", 0))
        a.vector("add.f32", 0, 0, Mem(RBP, index=RAX), mask=_CHOSEN)
        a.with_number(0, R10, _ENTRY)
        a.with_number(5, R11, 1)
        a.jump(window, asm.NOT_ZERO)
        a.label(stored)
        a.vector("store.f32", 0, Mem(RCX, index=R13), **masked)

    a.label(pixel)
    _over_vectors(a, has_whole * _LANES + rest, total)
    for register in (RDX, RCX):
        a.scalar(asm.ADD, register, Mem(R8))
    a.with_number(0, RSI, 16)
    a.with_number(5, RDI, 1)
    a.jump(pixel, asm.NOT_ZERO)
    return ended(a)
