"""Formulas of pixels that lie in memory one behind the other: of three channels, taken apart in registers; of each number and one for its channel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native

CHANNELS = 3
_LANES = 16


def by_pixel(formula: Callable[..., tuple[Any, ...]], numbers: int) -> Callable[..., None] | None:
    """run(source, target, *numbers) sets the channels of every pixel of `target` to what formula(*channels, *numbers) gives; None if there are no loops here.

    Both are float32, (pixels, 3), contiguous; the numbers are float32 scalars.
    """
    return _by_pixel(formula, numbers) if native.available() else None


@cache
def _by_pixel(formula: Callable[..., tuple[Any, ...]], numbers: int) -> Callable[..., None]:
    from penstock.ops.native import compiler
    from penstock.ops.native.vectors import Trace

    trace = Trace(fuse=False)
    vectors = [trace.memory(0, i * 64, "f32") for i in range(CHANNELS)]
    amounts = [trace.memory(1, i * 4, "f32", broadcast=True) for i in range(numbers)]
    for i, value in enumerate(_together(trace, formula(*_apart(trace, vectors), *amounts))):
        trace.store(value, 2, i * 64)
    size = CHANNELS * 64
    function = compiler.function_at(compiler.into_memory(compiler.Code(trace, _LANES, [size, 0, size]).write()), 3)

    def run(source: np.ndarray, target: np.ndarray, *amounts: Any) -> None:
        constants = np.array([*amounts, 0], np.float32)
        whole = len(source) // _LANES * _LANES
        if whole:
            function(whole, source.ctypes.data, constants.ctypes.data, target.ctypes.data)
        if whole < len(source):  # the loop takes whole vectors only
            rest = np.zeros((_LANES, CHANNELS), np.float32)
            rest[: len(source) - whole] = source[whole:]
            function(_LANES, rest.ctypes.data, constants.ctypes.data, rest.ctypes.data)
            target[whole:] = rest[: len(source) - whole]

    return run


def by_row(formula: Callable[..., Any], period: int, numbers: int) -> Callable[..., None] | None:
    """run(source, pattern, target, *numbers) sets target[i] to formula(source[i], pattern[i % len(pattern)], *numbers); None if there are no loops here.

    Arrays are float32, with one axis, contiguous; the pattern has 16 * period numbers.
    """
    return _by_row(formula, period, numbers) if native.available() else None


@cache
def _by_row(formula: Callable[..., Any], period: int, numbers: int) -> Callable[..., None]:
    from penstock.ops.native import compiler
    from penstock.ops.native.vectors import Trace

    trace = Trace(fuse=False)
    amounts = [trace.memory(2, i * 4, "f32", broadcast=True) for i in range(numbers)]
    for i in range(period):
        value = formula(trace.memory(0, i * 64, "f32"), trace.memory(1, i * 64, "f32"), *amounts)
        trace.store(value, 3, i * 64)
    turn = period * _LANES
    function = compiler.function_at(compiler.into_memory(compiler.Code(trace, turn, [turn * 4, 0, 0, turn * 4]).write()), 4)

    def run(source: np.ndarray, pattern: np.ndarray, target: np.ndarray, *amounts: Any) -> None:
        constants = np.array([*amounts, 0], np.float32)
        whole = len(source) // turn * turn
        if whole:
            function(whole, *map(native.address_of, (source, pattern, constants, target)))
        if whole < len(source):  # the loop takes whole vectors only
            target[whole:] = formula(source[whole:], pattern[: len(source) - whole], *constants[:-1])

    return run


def _chosen(trace: Any, where: np.ndarray, low: Any, high: Any) -> Any:
    """The lanes `where` of two vectors."""
    return trace.add("lookup.f32", [trace.table(where.astype(np.int32), "i32"), low, high], "f32")


def _apart(trace: Any, vectors: list[Any]) -> list[Any]:
    """The channels of 16 pixels."""
    lane = np.arange(_LANES)
    channels = []
    for channel in range(CHANNELS):
        at = CHANNELS * lane + channel
        first = _chosen(trace, np.where(at < 2 * _LANES, at, 0), vectors[0], vectors[1])
        channels.append(_chosen(trace, np.where(at < 2 * _LANES, lane, at - _LANES), first, vectors[2]))
    return channels


def _together(trace: Any, channels: Any) -> list[Any]:
    """The reverse of `_apart`."""
    lane = np.arange(_LANES)
    vectors = []
    for i in range(CHANNELS):
        pixel, channel = np.divmod(i * _LANES + lane, CHANNELS)
        first = _chosen(trace, np.where(channel < 2, pixel + channel * _LANES, 0), channels[0], channels[1])
        vectors.append(_chosen(trace, np.where(channel < 2, lane, pixel + _LANES), first, channels[2]))
    return vectors
