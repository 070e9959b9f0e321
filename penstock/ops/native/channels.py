"""Convolutions of a few channels, each on its own, along whole rows of an image: sums over the taps of the window, and the gradient of the filter.

A row of pixels with c channels is a run of numbers in which the weights of a tap repeat after c: after `period` vectors they begin again. So a vector
holds several pixels, where libraries that have channels in a vector leave most of its lanes empty. Windows move by one pixel along a row.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.kernels.window import Slide
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, R13, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Assembler, Mem
from penstock.ops.native.frames import begun, ended, share_out

_LANES, _BYTES = 16, 64
_SUMS = 24
"""Registers for running sums; the others are for weights or gradients."""
_PIECE = 1 << 12
"""Numbers of a row that are handed out together, about."""
MOST_CHANNELS, MOST_OF_SMALL_WINDOWS, SMALL_WINDOW = 8, 6, 9
"""Up to how many channels, and taps, this is quicker than vectors of channels."""
LEAST = 1 << 12
"""Multiplications below which nothing of this pays."""


def suits(channels: int, slides: Sequence[Slide]) -> bool:
    """Whether this is the way to convolve so many channels, each on its own."""
    taps = math.prod(s.window for s in slides)
    if not 0 < channels <= (MOST_OF_SMALL_WINDOWS if taps <= SMALL_WINDOW else MOST_CHANNELS) or slides[-1].stride != 1:
        return False
    return channels * taps * math.prod(s.out for s in slides) >= LEAST and native.available()


def _period(channels: int) -> int:
    """After how many vectors a channel stands in the first lane again."""
    return channels // math.gcd(channels, _LANES)


class Geometry:
    """Where the windows of an input of some shape (padding included) lie."""

    def __init__(self, shape: tuple[int, ...], slides: tuple[Slide, ...]) -> None:
        strides = [4 * math.prod(shape[i + 1 :]) for i in range(len(shape))]
        steps = [s.dilation * stride for s, stride in zip(slides, strides[1:-1], strict=True)]
        cells = itertools.product(*(range(s.window) for s in slides))
        self.offsets = np.array([sum(map(math.prod, zip(cell, steps, strict=True))) for cell in cells])
        """How many bytes the cells of a window lie behind its first one."""
        self.out = (shape[0], *(s.out for s in slides), shape[-1])
        self._pieces = self._rows(strides, slides)

    def _rows(self, strides: Sequence[int], slides: Sequence[Slide]) -> np.ndarray:
        """Of each row of the result, cut if it is long: the offset of its first window, its own, and how many numbers it has."""
        steps = (strides[0], *(s.stride * stride for s, stride in zip(slides[:-1], strides[1:-2], strict=True)))
        first = np.zeros(1, np.int64)
        for count, step in zip(self.out[:-2], steps, strict=True):
            first = np.add.outer(first, np.arange(count) * step).ravel()
        width, turn = self.out[-2] * self.out[-1], _LANES * _period(self.out[-1])
        starts = np.arange(0, width, max(_PIECE // turn, 1) * turn)
        table = np.empty((len(first), len(starts), 3), np.int64)
        table[..., 0] = first[:, None] + starts * 4
        table[..., 1] = np.arange(len(first))[:, None] * (width * 4) + starts * 4
        table[..., 2] = np.diff(starts, append=width)
        return table.reshape(-1, 3)

    def pieces(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Records of pieces of rows: the address in x, that in y, and how many numbers of y."""
        return self._pieces + np.array([x.ctypes.data, y.ctypes.data, 0])


_geometry = lru_cache(64)(Geometry)


# -- sums ---------------------------------------------------------------------------------------------------------------


def correlate(x: np.ndarray, weights: np.ndarray, slides: Sequence[Slide]) -> np.ndarray:
    """y[n, *position, c] = the sum of x * weights[..., c] over the window. `x` is float32, (n, *cells, c) with its padding, contiguous."""
    channels = x.shape[-1]
    period = _period(channels)
    geometry = _geometry(x.shape, tuple(slides))
    y = np.empty(geometry.out, np.float32)
    if not y.size:
        return y
    table = np.tile(weights.reshape(-1, channels).astype(np.float32, copy=False), (1, period * _LANES // channels))
    offsets, pieces, function = geometry.offsets, geometry.pieces(x, y), _correlate(period)

    def run(start: int, end: int) -> None:
        function(end - start, pieces.ctypes.data + start * 24, offsets.ctypes.data, table.ctypes.data, len(offsets) * 8, 0)

    share_out(len(pieces), y.size * len(offsets) // (4 * len(pieces)), run)
    return y


@cache
def _correlate(period: int) -> Any:
    """f(pieces, their records, offsets of taps, weights, taps * 8, -)"""
    a = begun()
    many, few = (period * max(count // period, 1) for count in (12, 4))  # sums at a time: an addition waits four cycles for the one before it
    weight = _SUMS
    piece, rest, done, *labels = range(3 + 3 * 2)

    def turn(tap: int, count: int, masked: bool) -> None:
        for i in range(count):
            a.vector("xor.i32", i, i, i)
        a.scalar(asm.SUB, RBX, RBX)
        a.scalar(asm.MOVE, RBP, RCX)
        a.label(tap)
        a.scalar(asm.MOVE, RAX, Mem(RDX, index=RBX))
        a.scalar(asm.ADD, RAX, R10)
        for i in range(period):
            a.vector("load.f32", weight + i, Mem(RBP, i * _BYTES))
        for i in range(count):
            a.vector("madd231.f32", i, weight + i % period, Mem(RAX, i * _BYTES), mask=1 + i if masked else 0)
        a.with_number(0, RBP, period * _BYTES)
        a.with_number(0, RBX, 8)
        a.scalar(asm.CMP, RBX, R8)
        a.jump(tap, asm.BELOW)
        for i in range(count):
            a.vector("store.f32", i, Mem(R11, i * _BYTES), mask=1 + i if masked else 0)
        for register in (R10, R11):
            a.with_number(0, register, count * _BYTES)
        a.with_number(5, R12, count * _LANES)

    a.label(piece)
    _next_piece(a)
    for count in dict.fromkeys((many, few)):
        again, tap, enough = labels.pop(), labels.pop(), labels.pop()
        a.label(again)
        a.with_number(7, R12, count * _LANES)
        a.jump(enough, asm.BELOW)
        turn(tap, count, False)
        a.jump(again)
        a.label(enough)
    a.with_number(7, R12, 0)
    a.jump(done, asm.ZERO)
    _masks(a, few)
    turn(rest, few, True)
    a.label(done)
    a.with_number(5, RDI, 1)
    a.jump(piece, asm.NOT_ZERO)
    return ended(a)


# -- the gradient of the weights ----------------------------------------------------------------------------------------


def weight_gradient(x: np.ndarray, dy: np.ndarray, slides: Sequence[Slide]) -> np.ndarray:
    """dw[*cell, c] = the sum of x * dy over all positions. Both are float32 and contiguous, x with its padding."""
    channels = x.shape[-1]
    if not dy.size:
        return np.zeros((*(s.window for s in slides), channels), np.float32)
    geometry, period, columns = _geometry(x.shape, tuple(slides)), _period(channels), slides[-1].window
    taps = _together(columns, _SUMS // period)
    firsts = [min(i, columns - taps) for i in range(0, columns, taps)]  # the last ones may be computed twice
    offsets = geometry.offsets.reshape(-1, columns)[:, firsts].ravel()
    function = _weight_gradient(period, taps, slides[-1].dilation * channels * 4)
    pieces, parts = geometry.pieces(x, dy), {}

    def run(start: int, end: int) -> None:
        sums = np.zeros((len(offsets), taps, period * _LANES), np.float32)
        groups = np.stack([offsets, sums.ctypes.data + np.arange(len(offsets)) * sums.strides[0]], 1)
        function(end - start, pieces.ctypes.data + start * 24, groups.ctypes.data, 0, len(groups) * 16, 0)
        parts[start] = sums

    share_out(len(pieces), dy.size * len(offsets) * taps // (4 * len(pieces)), run)
    in_order = [parts[start] for start in sorted(parts)]  # not as they were finished: the same sums every time
    sums = np.add.reduce(in_order, 0).reshape(-1, len(firsts), taps, period * _LANES // channels, channels).sum(3)
    result = np.empty((sums.shape[0], columns, channels), np.float32)
    for i, first in enumerate(firsts):
        result[:, first : first + taps] = sums[:, i]
    return result.reshape(*(s.window for s in slides), channels)


def _together(columns: int, most: int) -> int:
    """How many of a row's taps are summed at a time: equal groups, as large as there are registers."""
    return -(-columns // -(-columns // most))


@cache
def _weight_gradient(period: int, taps: int, step: int) -> Any:
    """f(pieces, their records, groups of taps, -, groups * 16, -); the records of groups are (offset of the first tap, address of the sums)"""
    a = begun()
    gradient = _SUMS
    piece, group, whole, rest, done = range(5)

    def turn(masked: bool) -> None:
        for i in range(period):
            a.vector("load.f32", gradient + i, Mem(R11, i * _BYTES), **({"mask": 1 + i, "zero": True} if masked else {}))
        for tap, i in itertools.product(range(taps), range(period)):
            a.vector("madd231.f32", tap * period + i, gradient + i, Mem(RAX, tap * step + i * _BYTES), mask=1 + i if masked else 0)
        for register in (RAX, R11):
            a.with_number(0, register, period * _BYTES)
        a.with_number(5, R12, period * _LANES)

    a.label(piece)
    a.scalar(asm.SUB, RBX, RBX)
    a.label(group)
    _next_piece(a)
    a.with_number(5, RSI, 24)  # it is the same for all groups
    a.scalar(asm.MOVE, RAX, Mem(RDX, index=RBX))
    a.scalar(asm.ADD, RAX, R10)
    for i in range(taps * period):
        a.vector("xor.i32", i, i, i)
    a.label(whole)
    a.with_number(7, R12, period * _LANES)
    a.jump(rest, asm.BELOW)
    turn(False)
    a.jump(whole)
    a.label(rest)
    a.with_number(7, R12, 0)
    a.jump(done, asm.ZERO)
    a.scalar(asm.MOVE, RBP, RAX)
    _masks(a, period)
    a.scalar(asm.MOVE, RAX, RBP)
    turn(True)
    a.label(done)
    a.scalar(asm.MOVE, RBP, Mem(RDX, 8, index=RBX))
    for i in range(taps * period):
        a.vector("add.f32", i, i, Mem(RBP, i * _BYTES))
        a.vector("store.f32", i, Mem(RBP, i * _BYTES))
    a.with_number(0, RBX, 16)
    a.scalar(asm.CMP, RBX, R8)
    a.jump(group, asm.BELOW)
    a.with_number(0, RSI, 24)
    a.with_number(5, RDI, 1)
    a.jump(piece, asm.NOT_ZERO)
    return ended(a)


# -- around the loops ---------------------------------------------------------------------------------------------------


def _next_piece(a: Assembler) -> None:
    """R10, R11, R12: the record at RSI, which goes on."""
    for register, field in ((R10, 0), (R11, 8), (R12, 16)):
        a.scalar(asm.MOVE, register, Mem(RSI, field))
    a.with_number(0, RSI, 24)


def _masks(a: Assembler, count: int) -> None:
    """k1 and up: the lanes of `count` vectors that hold the R12 (fewer than 256) numbers left. RAX, R9 and R13 are used."""
    a.scalar(asm.SUB, R9, R9)
    a.scalar(asm.MOVE, R13, R12)
    for i in range(count):
        a.set_number(RAX, -1)
        a.low_bits(RAX, R13)
        a.mask_from(1 + i, RAX)
        a.with_number(5, R13, _LANES)
        a.scalar(asm.MOVE_IF_BELOW, R13, R9)
