"""Slices, their gradients, and writing into a slice.

Where begin and size are known, a slice is XLA's own. A single index that is not known yet (x[i]) becomes a dynamic slice; XLA moves
an index that is out of range to the nearest one inside, which is a reason to doubt the results where kernels would have reported it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.dtypes import DType
from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import Dynamic, jnp, lax, rule, static, static_ints, within
from penstock.engines.xla.series import series_of
from penstock.engines.xla.values import array, const, size_of, zeros


@rule("Slice")
def slice_(x: Any, begin: Any, size: Any) -> Any:
    lengths = list(static_ints(size))
    need(begin.shape == (x.ndim,) and len(lengths) == x.ndim, "begin or size of another rank")
    if not isinstance(begin, np.ndarray):
        return _slice_from(x, begin, lengths)
    starts = begin.tolist()
    stops = [d if n == -1 else b + n for b, n, d in zip(starts, lengths, x.shape)]
    need(all(0 <= b <= e <= d for b, e, d in zip(starts, stops, x.shape)), "a slice beyond the whole")
    return lax.slice(array(x), starts, stops)


def _slice_from(x: Any, begin: Any, lengths: list[int]) -> Any:
    if -1 in lengths:
        raise Dynamic
    need(all(0 <= n <= d for n, d in zip(lengths, x.shape)), "a slice beyond the whole")
    for i, (n, d) in enumerate(zip(lengths, x.shape)):
        _checked(begin, i, 0, d - n + 1)
    return lax.dynamic_slice(array(x), [begin[i] for i in range(x.ndim)], lengths)


def _checked(begin: Any, i: int, low: int, high: int) -> Any:
    """begin[i], which has to be in [low, high)."""
    each = series_of(begin)
    at = begin[i]
    within(at if each is None else each[:, i], low, high)
    return at


# -- StridedSlice -----------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """What a slice takes of one axis: elements start, start + step, ... (`number` of them), or the one that `at` names."""

    start: int
    number: int
    step: int
    at: Any = None


class _Plan(NamedTuple):
    parts: list[_Part]  # one for each axis of the whole
    shape: tuple[int, ...]  # of the result, with new axes in and single ones out

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(p.number for p in self.parts)


def _item(vector: Any, i: int) -> int:
    return int(static(vector)[i])


def _single(begin: Any, i: int, size: int) -> _Part:
    need(size > 0, "an index into nothing")
    if isinstance(begin, np.ndarray):
        at = int(begin[i])
        need(-size <= at < size, "an index out of range")
        return _Part(at % size, 1, 1)
    at = _checked(begin, i, -size, size)
    return _Part(0, 1, 1, jnp.where(at < 0, at + const(size, at), at))


def _span(begin: Any, end: Any, i: int, step: int, size: int, open_begin: int, open_end: int) -> _Part:
    start = None if open_begin else _item(begin, i)
    stop = None if open_end else _item(end, i)
    span = range(*slice(start, stop, step).indices(size))
    return _Part(span.start if len(span) else 0, len(span), step)


def _planned(whole: tuple[int, ...], begin: Any, end: Any, strides: Any, masks: tuple[int, ...]) -> _Plan:
    begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask = masks
    steps = static_ints(strides)
    n = len(steps)
    need(begin.shape == end.shape == (n,) and not ellipsis_mask & (ellipsis_mask - 1) and 0 not in steps, "a malformed slice")
    used = sum(1 for i in range(n) if not (new_axis_mask | ellipsis_mask) >> i & 1)
    parts: list[_Part] = []
    shape: list[int] = []
    for i in range(n):
        bit = 1 << i
        if ellipsis_mask & bit:
            _rest(whole, parts, shape, max(0, len(whole) - used))
        elif new_axis_mask & bit:
            shape.append(1)
        else:
            need(len(parts) < len(whole), "more indices than axes")
            size = whole[len(parts)]
            if shrink_axis_mask & bit:
                need(steps[i] > 0, "a single index that goes backwards")
                parts.append(_single(begin, i, size))
            else:
                parts.append(_span(begin, end, i, steps[i], size, begin_mask & bit, end_mask & bit))
                shape.append(parts[-1].number)
    _rest(whole, parts, shape, len(whole) - len(parts))
    return _Plan(parts, tuple(shape))


def _rest(whole: tuple[int, ...], parts: list[_Part], shape: list[int], count: int) -> None:
    """The next `count` axes whole."""
    sizes = whole[len(parts) : len(parts) + count]
    parts += [_Part(0, n, 1) for n in sizes]
    shape += sizes


@rule("StridedSlice")
def strided_slice(x: Any, begin: Any, end: Any, strides: Any, *, begin_mask: int, end_mask: int, ellipsis_mask: int, new_axis_mask: int,
                  shrink_axis_mask: int) -> Any:  # fmt: skip
    plan = _planned(x.shape, begin, end, strides, (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask))
    x = array(x)
    if size_of(plan.shape) == 0:
        return zeros(plan.shape, x.dtype)
    for axis, part in enumerate(plan.parts):
        if part.at is not None:
            x = lax.dynamic_slice_in_dim(x, part.at, 1, axis)
    starts, stops, steps, turned = [], [], [], []
    for axis, p in enumerate(plan.parts):
        last = p.start + (p.number - 1) * p.step
        starts.append(min(p.start, last))
        stops.append(max(p.start, last) + 1)
        steps.append(abs(p.step))
        turned += [axis] if p.step < 0 else []
    x = lax.slice(x, starts, stops, steps)
    return jnp.reshape(lax.rev(x, turned) if turned else x, plan.shape)


def _spread(value: Any, plan: _Plan, whole: tuple[int, ...]) -> Any:
    """Zeros of shape `whole` with `value` (of the slice's shape) in the place of the slice."""
    value = jnp.reshape(value, plan.counts)
    turned = [axis for axis, p in enumerate(plan.parts) if p.step < 0]
    value = lax.rev(value, turned) if turned else value
    room = []
    for p, size in zip(plan.parts, whole, strict=True):
        if p.at is not None:
            room.append((0, 0, 0))
            continue
        last = p.start + (p.number - 1) * p.step
        room.append((min(p.start, last), size - 1 - max(p.start, last), abs(p.step) - 1))
    value = lax.pad(value, const(0, value), room)
    for axis, (p, size) in enumerate(zip(plan.parts, whole, strict=True)):
        if p.at is not None:
            here = _along(lax.iota(p.at.dtype, size) == p.at, axis, len(whole))
            value = jnp.where(here, value, const(0, value))
    return value


def _along(vector: Any, axis: int, rank: int) -> Any:
    return jnp.reshape(vector, [-1 if i == axis else 1 for i in range(rank)])


def _chosen(plan: _Plan, whole: tuple[int, ...]) -> Any:
    """Which cells of the whole belong to the slice."""
    mask: Any = np.ones((1,) * len(whole), np.bool_)
    for axis, (p, size) in enumerate(zip(plan.parts, whole, strict=True)):
        if p.at is not None:
            mask = mask & _along(lax.iota(p.at.dtype, size) == p.at, axis, len(whole))
        elif (p.start, p.number, p.step) != (0, size, 1):
            flags = np.zeros(size, np.bool_)
            flags[p.start + p.step * np.arange(p.number)] = True
            mask = mask & _along(flags, axis, len(whole))
    return mask


@rule("StridedSliceGrad")
def strided_slice_grad(shape: Any, begin: Any, end: Any, strides: Any, dy: Any, *, T: DType, begin_mask: int, end_mask: int, ellipsis_mask: int,
                       new_axis_mask: int, shrink_axis_mask: int) -> Any:  # fmt: skip
    whole = static_ints(shape)
    plan = _planned(whole, begin, end, strides, (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask))
    need(plan.shape == dy.shape, "a gradient of another shape")
    return _spread(array(dy), plan, whole) if dy.size else zeros(whole, T.np)


@rule("TensorStridedSliceUpdate")
def slice_update(x: Any, begin: Any, end: Any, strides: Any, value: Any, *, begin_mask: int, end_mask: int, ellipsis_mask: int,
                 new_axis_mask: int, shrink_axis_mask: int) -> Any:  # fmt: skip
    plan = _planned(x.shape, begin, end, strides, (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask))
    if size_of(plan.shape) == 0:
        return x
    need(value.ndim <= len(plan.shape), "a value of higher rank than the slice")
    spread = _spread(jnp.broadcast_to(array(value), plan.shape), plan, x.shape)
    return jnp.where(_chosen(plan, x.shape), spread, array(x))
