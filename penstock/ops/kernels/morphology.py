"""Greyscale dilation: the largest of input plus filter under a sliding window, with its two gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock import errors
from penstock.ops import native
from penstock.ops.kernels.numeric import lowest, narrow, widen
from penstock.ops.kernels.patches import pad, pixels_of_windows, taps
from penstock.ops.kernels.window import Slide, layout, show, slides_of


def _checked(x, filter, strides, rates, padding) -> list[Slide]:
    lay = layout(b"NHWC")
    if strides[0] != 1 or strides[3] != 1:
        raise errors.UnimplementedError("Stride is only supported across spatial dimensions.")
    if rates[0] != 1 or rates[3] != 1:
        raise errors.UnimplementedError("Rate is only supported across spatial dimensions.")
    for name, values in (("Strides", strides), ("Rates", rates)):
        if min(values) < 1:
            raise errors.InvalidArgumentError(f"{name} must be positive, got {show(values)}")
    if x.ndim != 4:
        raise errors.InvalidArgumentError(f"input must be 4-dimensional{show(x.shape)}")
    if filter.ndim != 3:
        raise errors.InvalidArgumentError(f"filter must be 3-dimensional: {show(filter.shape)}")
    if x.shape[3] != filter.shape[2]:
        raise errors.InvalidArgumentError(
            f"input and filter must have the same depth: {x.shape[3]} vs {filter.shape[2]}"
        )
    return slides_of(lay, x.shape[1:3], filter.shape[:2], strides, padding, rates)


def _winners(
    x: np.ndarray, w: np.ndarray, slides: Sequence[Slide], floor, inside_only: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The largest sum at each position and the number of its tap; of equal ones the first.

    Where no sum is above `floor`, the tap is number 0, or with `inside_only` the first that is not in the padding.
    """
    if x.dtype.kind == "f" and w.shape[0] * w.shape[1] <= _TAPS_IN_A_BYTE:
        found = _plain_winners(x, w, slides, floor)
        if found is not None:
            return found
    inside = pad(np.ones((1, *x.shape[1:3], 1), bool), slides, False)
    padded = pad(x, slides)
    shape = (x.shape[0], *(s.out for s in slides), x.shape[3])
    best, tap = np.full(shape, floor, x.dtype), np.full(shape, -1 if inside_only else 0, np.int32)
    for number, (offsets, index) in enumerate(taps(slides)):
        value = padded[index] + w[offsets]
        larger = (value > best) & inside[index]
        np.copyto(best, value, where=larger)
        if inside_only:
            larger |= (tap < 0) & inside[index]
        np.copyto(tap, number, where=larger)
    return best, tap


_TAPS_IN_A_BYTE = 256


def _plain_winners(x: np.ndarray, w: np.ndarray, slides: Sequence[Slide], floor) -> tuple[np.ndarray, np.ndarray] | None:
    """`_winners` where all that matters are the largest sums: None if one is not a number, or not above `floor`."""
    windows = pixels_of_windows(tuple(slides)) if x.dtype == np.float32 and native.available() else None
    if windows is not None and not windows.has_empty:
        pixels, weights = np.ascontiguousarray(x).reshape(len(x), -1, x.shape[3]), np.ascontiguousarray(w, np.float32)
        top, number = windows.find(pixels, weights)
        shape = (len(x), *(s.out for s in slides), x.shape[3])
        return (top.reshape(shape), number.reshape(shape)) if (top > floor).all() else None
    padded = pad(x, slides, -np.inf)
    shape = (x.shape[0], slides[0].out, slides[1].out * x.shape[3])
    best, tap = np.empty(shape, x.dtype), np.empty(shape, np.uint8)
    hit = np.empty(shape[1:], bool)
    weights = np.tile(w, (1, 1, slides[1].out))  # a row of pixels at a time
    for image in range(len(x)):  # one at a time: all sums of its taps stay in cache
        sums = [padded[image][index[1:]].reshape(shape[1:]) + weights[offsets] for offsets, index in taps(slides)]
        top = best[image]
        top[...] = sums[0]
        for value in sums[1:]:
            np.maximum(top, value, out=top)
        if not (top > floor).all():
            return None
        for number in reversed(range(len(sums))):  # the first of equal ones stays
            np.equal(sums[number], top, out=hit)
            np.copyto(tap[image], number, where=hit)
    full = (*shape[:2], slides[1].out, x.shape[3])
    return best.reshape(full), tap.reshape(full)


def _largest(x: np.ndarray, w: np.ndarray, slides: Sequence[Slide], floor) -> np.ndarray:
    """What `_winners` finds, without the taps, for steps of one: whole rows of images are added and compared at once."""
    padded = pad(x, slides, -np.inf)  # never above `floor`, whatever is added
    batch, _, depth = padded.shape[0], padded.shape[1], padded.shape[3]
    rows = padded.reshape(batch, padded.shape[1], -1)
    out, row = slides[0].out, slides[1].out * depth
    weights = np.tile(w, (1, 1, slides[1].out))
    best = np.full((batch, out, row), floor, x.dtype)
    value = np.empty_like(best)
    for i in range(slides[0].window):
        top = i * slides[0].dilation
        for j in range(slides[1].window):
            left = j * slides[1].dilation * depth
            np.add(rows[:, top : top + out, left : left + row], weights[i, j], out=value)
            np.fmax(best, value, out=best)  # a sum that is not a number is above nothing
    return best.reshape(batch, out, slides[1].out, depth)


def dilation2d(x, filter, *, strides, rates, padding):
    """Dilation2D."""
    slides = _checked(x, filter, strides, rates, padding)
    if 0 in (x.shape[0], x.shape[3], *(s.out for s in slides)):
        return np.zeros((x.shape[0], *(s.out for s in slides), x.shape[3]), x.dtype)
    wide, weights = widen(x), widen(filter)
    if wide.dtype.kind == "f" and all(s.stride == 1 for s in slides):
        return narrow(_largest(wide, weights, slides, lowest(x.dtype)), x.dtype)
    best, _ = _winners(wide, weights, slides, lowest(x.dtype))
    return narrow(best, x.dtype)


def _checked_grad(x, filter, dy, strides, rates, padding) -> list[Slide]:
    slides = _checked(x, filter, strides, rates, padding)
    if dy.shape != (x.shape[0], *(s.out for s in slides), x.shape[3]):
        raise errors.InvalidArgumentError("out_backprop has incompatible size.")
    return slides


def dilation2d_backprop_input(x, filter, out_backprop, *, strides, rates, padding):
    """Dilation2DBackpropInput: the gradient goes to the input cell that won."""
    slides = _checked_grad(x, filter, out_backprop, strides, rates, padding)
    dy = widen(out_backprop)
    dx = np.zeros((x.shape[0], *(max(s.reach, s.before + s.size) for s in slides), x.shape[3]), dy.dtype)
    if dy.size:
        _, tap = _winners(widen(x), widen(filter), slides, lowest(x.dtype), inside_only=True)
        if dy.dtype.kind == "f":
            dx = np.bincount(_cells(tap, slides, dx.shape).ravel(), dy.ravel(), dx.size).astype(dy.dtype).reshape(dx.shape)
            return narrow(np.ascontiguousarray(dx[_inner(slides)]), out_backprop.dtype)
        for number, (_, index) in enumerate(taps(slides)):
            dx[index] += np.where(tap == number, dy, dy.dtype.type(0))
    return narrow(np.ascontiguousarray(dx[_inner(slides)]), out_backprop.dtype)


def _inner(slides: Sequence[Slide]) -> tuple[slice, ...]:
    """Where the input lies in the padded one."""
    return (slice(None), *(slice(s.before, s.before + s.size) for s in slides))


def _cells(tap: np.ndarray, slides: Sequence[Slide], shape: Sequence[int]) -> np.ndarray:
    """The flat indices, in a padded input of that shape, of what the windows' taps met."""
    (rows, columns), depth = slides, shape[3]
    step = shape[2] * depth
    cells = np.array([i * rows.dilation * step + j * columns.dilation * depth for i in range(rows.window) for j in range(columns.window)])
    found = np.take(cells, tap)
    found += (np.arange(len(tap)) * (shape[1] * step))[:, None, None, None]
    found += (np.arange(rows.out) * (rows.stride * step))[:, None, None]
    found += (np.arange(columns.out) * (columns.stride * depth))[:, None] + np.arange(depth)
    return found


def dilation2d_backprop_filter(x, filter, out_backprop, *, strides, rates, padding):
    """Dilation2DBackpropFilter: the gradient goes to the filter cell that won."""
    slides = _checked_grad(x, filter, out_backprop, strides, rates, padding)
    dy = widen(out_backprop)
    dw = np.zeros(filter.shape, dy.dtype)
    if dy.size:
        _, tap = _winners(widen(x), widen(filter), slides, lowest(x.dtype))
        if dy.dtype.kind == "f":
            depth = x.shape[3]
            index = tap * np.intp(depth) + np.arange(depth)
            return narrow(np.bincount(index.ravel(), dy.ravel(), dw.size).reshape(dw.shape).astype(dy.dtype), filter.dtype)
        for number, (offsets, _) in enumerate(taps(slides)):
            dw[offsets] = np.where(tap == number, dy, dy.dtype.type(0)).sum((0, 1, 2), dtype=dy.dtype)
    return narrow(dw, filter.dtype)
