"""Running sums and products along an axis, and number sequences (Range, LinSpace)."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops import native
from penstock.ops.declare import NOT_DIFFERENTIABLE, checked_scalar, op
from penstock.ops.kernels import threads
from penstock.ops.kernels.numeric import NARROW, narrow, widen
from penstock.ops.native import transposes
from penstock.ops.native.frames import share_out
from penstock.ops.native.ramps import ramp
from penstock.ops.samples import arr, empty, ints, normal, uniform
from penstock.shapes import Dims, format_dims

# -- scans ------------------------------------------------------------------------------------------------------------


LARGE = 1 << 15
"""Elements from which on it pays to take lines side by side, or on several threads."""


def _accumulated(ufunc: Any, x: np.ndarray, axis: int) -> np.ndarray:
    """ufunc.accumulate: the same operations, on vectors of elements that belong to lines of their own."""
    n, after = x.shape[axis], math.prod(x.shape[axis + 1 :])
    if x.size < LARGE or x.size // n < LANES or x.dtype not in (_FLOATS if after == 1 else _NUMBERS) or not native.available():
        return _by_numpy(ufunc, x, axis)
    loop, lines = _LOOPS[ufunc], np.ascontiguousarray(x).reshape(-1, n, after)
    if after == 1:
        result = _along_rows(loop, lines[..., 0])
    elif after >= LANES:
        result = _down_columns(loop, lines)
    else:
        rows = np.ascontiguousarray(np.moveaxis(lines, 1, 0)).reshape(1, n, -1)
        result = np.ascontiguousarray(np.moveaxis(_down_columns(loop, rows).reshape(n, -1, after), 0, 1))
    return result.reshape(x.shape)


def _log_sums(ufunc: Any, x: np.ndarray, axis: int) -> np.ndarray:
    """Running logarithms of sums of exponentials. Behind two infinities there is NaN, as in TensorFlow, which subtracts one from the other."""
    result = _accumulated(ufunc, x, axis)
    infinite = x == np.inf
    if infinite.any():
        result[np.cumsum(infinite, axis) > 1] = np.nan
    return result


LANES = 16
"""Lines that are taken together, at least: numbers of a vector."""
PART = 1 << 20
"""Numbers that stay in the cache, about."""


def _down_columns(loop: native.Loop, x: np.ndarray) -> np.ndarray:
    """Along the middle one of three axes. Threads take some columns each, if that is worth a copy of them, or some of the matrices."""
    count, _, lines = x.shape
    result = np.empty_like(x)
    pieces = min(lines // LANES, loop.pieces(x.size, x.dtype, x.dtype)) if count == 1 and loop is _LOOPS[np.logaddexp] else 1
    bounds = [*(lines * i // pieces // LANES * LANES for i in range(pieces)), lines]

    def some_columns(i: int) -> None:
        part = slice(bounds[i], bounds[i + 1])
        result[0, :, part] = loop.accumulate(np.ascontiguousarray(x[0, :, part]))

    def some_matrices(start: int, end: int) -> None:
        for i in range(start, end):
            loop.accumulate(x[i], result[i])

    if pieces > 1:
        threads.parallel_for(pieces, some_columns)
    else:
        share_out(count, x[0].size, some_matrices)
    return result


def _along_rows(loop: native.Loop, x: np.ndarray) -> np.ndarray:
    """Along the last one of two axes: turned over, and turned back; parts of what is large."""
    rows, n = x.shape
    size = max(PART // n // LANES, 1) * LANES
    starts = range(0, max(rows - LANES, 0) + 1, size)
    results = []
    for start in starts:
        part = x[start : start + size if start != starts[-1] else rows]
        results.append(transposes.in_order(_down_columns(loop, transposes.in_order(part.T)[None])[0].T))
    return results[0] if len(results) == 1 else np.concatenate(results)


def _logaddexp(x: Any, y: Any) -> Any:
    return np.where(x == y, x + math.log(2), np.maximum(x, y) + np.log1p(np.exp(-np.abs(x - y))))


_FLOATS = tuple(map(np.dtype, (np.float32, np.float64)))
_NUMBERS = (*_FLOATS, *map(np.dtype, (np.int32, np.int64)))
_LOOPS = {
    np.add: native.Loop(lambda x, y: x + y, "same"),
    np.multiply: native.Loop(lambda x, y: x * y, "same"),
    np.logaddexp: native.Loop(_logaddexp, "same"),
}


def _by_numpy(ufunc: Any, x: np.ndarray, axis: int) -> np.ndarray:
    """Lines of the array are independent of each other: threads take some each, or a step takes one element of all."""
    if axis and x.size >= 2 * LARGE and len(x) > 1 and axis == x.ndim - 1:
        result = np.empty(x.shape, x.dtype)
        pieces = min(8, len(x), x.size // LARGE)

        def work(i: int) -> None:
            part = slice(len(x) * i // pieces, len(x) * (i + 1) // pieces)
            ufunc.accumulate(x[part], axis=axis, dtype=x.dtype, out=result[part])

        threads.parallel_for(pieces, work)
        return result
    if x.size < LARGE or axis == x.ndim - 1 or x.size // x.shape[axis] < 64 or x.dtype.kind not in "iuf":
        return ufunc.accumulate(x, axis=axis, dtype=x.dtype)
    rows = np.ascontiguousarray(np.moveaxis(x, axis, 0))
    result = np.empty_like(rows)
    result[0] = rows[0]
    for i in range(1, len(rows)):
        ufunc(result[i - 1], rows[i], out=result[i])
    return np.ascontiguousarray(np.moveaxis(result, 0, axis))


def scan(ufunc: Any, identity: float) -> Any:
    """A kernel that accumulates along an axis; `exclusive` leaves an element out of its own result."""
    accumulated = _log_sums if ufunc is np.logaddexp else _accumulated

    def kernel(x: Any, axis: Any, *, exclusive: bool, reverse: bool) -> Any:
        if axis.ndim:
            raise InvalidArgumentError(f"ScanOp: axis must be a scalar, not {format_dims(axis.shape)}")
        a, rank = int(axis), x.ndim
        if not -rank <= a < rank:
            raise InvalidArgumentError(f"ScanOp: Expected scan axis in the range [{-rank}, {rank}), but got {a}")
        wide = widen(x)
        source = np.flip(wide, a) if reverse else wide
        if exclusive:
            result = np.empty(x.shape, dtype=wide.dtype)
            front = (slice(None),) * (a % rank)
            result[(*front, slice(0, 1))] = identity
            result[(*front, slice(1, None))] = accumulated(ufunc, source[(*front, slice(None, -1))], a % rank)
        else:
            result = accumulated(ufunc, source, a % rank)
        if reverse:
            result = np.flip(result, a)
        return narrow(result, x.dtype) if x.dtype in NARROW else result

    return kernel


def scan_shape(c: Any) -> Dims:
    checked_scalar(c, 1)
    return c.dims(0)


def cumsum_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    return [g.Cumsum(dy, op.axis, exclusive=op.attr("exclusive"), reverse=not op.attr("reverse")), None]


def cumprod_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    exclusive, reverse = op.attr("exclusive"), op.attr("reverse")
    product = g.Cumprod(op.x, op.axis, exclusive=exclusive, reverse=reverse)
    out = g.Cumsum(g.Mul(product, dy), op.axis, exclusive=exclusive, reverse=not reverse)
    return [g.DivNoNan(out, op.x), None]


def cumulative_logsumexp_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    """Positive and negative parts of dy go separately, since both pass through a logarithm."""
    exclusive, reverse = op.attr("exclusive"), op.attr("reverse")
    lowest = g.const(dy.dtype.min, dy.dtype)

    def half(part: Any) -> Any:
        log = g.SelectV2(g.Greater(part, 0), g.Log(part), lowest)
        return g.Exp(g.AddV2(g.CumulativeLogsumexp(g.Sub(log, op.out), op.axis, exclusive=exclusive, reverse=not reverse), op.x))

    return [g.Sub(half(dy), half(g.Neg(dy))), None]


FLAGS = "exclusive: bool = false; reverse: bool = false"
SCANS = [
    dict(x=normal(2, 3), axis=0), dict(x=normal(2, 3), axis=-1, exclusive=True), dict(x=normal(4), axis=0, reverse=True),
    dict(x=normal(2, 4, 2), axis=1, reverse=True, exclusive=True), dict(x=empty(0, 3), axis=0, exclusive=True), dict(x=ints(5, lo=1, hi=4), axis=arr(0, dtype=np.int64)),
]  # fmt: skip
BAD_AXIS = [(dict(x=normal(2, 2), axis=2), InvalidArgumentError, r"Expected scan axis in the range \[-2, 2\), but got 2")]

op(f"Cumsum(x: T, axis: Tidx) -> (out: T) [{FLAGS}; T: type in NUMBERS; Tidx: type in INDEX = int32]",
   shape=scan_shape, numpy=scan(np.add, 0), grad=cumsum_grad, samples=SCANS, errors=BAD_AXIS, host_memory=("axis",))
op(f"Cumprod(x: T, axis: Tidx) -> (out: T) [{FLAGS}; T: type in NUMBERS; Tidx: type in INDEX = int32]",
   shape=scan_shape, numpy=scan(np.multiply, 1), grad=cumprod_grad, samples=SCANS, errors=BAD_AXIS, host_memory=("axis",))
op(f"CumulativeLogsumexp(x: T, axis: Tidx) -> (out: T) [{FLAGS}; T: type in FLOATS; Tidx: type in INDEX = int32]",
   shape=scan_shape, numpy=scan(np.logaddexp, float("-inf")), grad=cumulative_logsumexp_grad,
   samples=[*SCANS, dict(x=arr([float("-inf"), 2, 3], dtype=np.float32), axis=0)], errors=BAD_AXIS, host_memory=("axis",))  # fmt: skip

# -- sequences --------------------------------------------------------------------------------------------------------


_MOST = np.iinfo(np.int64).max


def range_size(start: Any, limit: Any, delta: Any) -> int:
    """How many numbers a Range has, counted in their own type; InvalidArgumentError in TF's words if it has no end."""
    if delta == 0:
        raise InvalidArgumentError("Requires delta != 0: 0")
    if delta > 0 and not start <= limit:
        raise InvalidArgumentError(f"Requires start <= limit when delta > 0: {float(start):g}/{float(limit):g}")
    if delta < 0 and not start >= limit:
        raise InvalidArgumentError(f"Requires start >= limit when delta < 0: {float(start):g}/{float(limit):g}")
    if isinstance(delta, int):
        return (abs(limit - start) + abs(delta) - 1) // abs(delta)
    with np.errstate(all="ignore"):
        size = float(abs((limit - start) / delta))
    if not size <= _MOST:
        raise InvalidArgumentError(f"Requires ((limit - start) / delta) <= {_MOST}")
    return math.ceil(size)


def range_kernel(start: Any, limit: Any, delta: Any) -> Any:
    for name, value in (("start", start), ("limit", limit), ("delta", delta)):
        if value.ndim:
            raise InvalidArgumentError(f"{name} must be a scalar, not shape {format_dims(value.shape)}")
    dtype = start.dtype
    if dtype.kind in "iu":
        a, b, step = int(start), int(limit), int(delta)
        size = range_size(a, b, step)
        found = ramp(start, delta, size)
        return np.arange(a, a + size * step, step, dtype=dtype) if found is None else found
    wide = np.float64 if dtype == np.float64 else np.float32
    size = range_size(start[()], limit[()], delta[()])
    return _evenly_spaced(wide(start), wide(delta), size).astype(dtype, copy=False)


def _evenly_spaced(first: Any, step: Any, size: int) -> np.ndarray:
    """One product and one sum per number: errors do not pile up."""
    found = ramp(first, step, size)
    return first + np.arange(size, dtype=step.dtype) * step if found is None else found


def range_shape(c: Any) -> Dims:
    for i in range(3):
        checked_scalar(c, i)
    values = [c.const(i) for i in range(3)]
    if any(v is None for v in values):
        return (None,)
    is_whole = values[0].dtype.kind in "iu"
    try:
        return (range_size(*(int(v) if is_whole else v[()] for v in values)),)
    except InvalidArgumentError as error:
        raise ValueError(error.message.removesuffix(": 0") if "delta !=" in error.message else error.message) from None


op("Range(start: Tidx, limit: Tidx, delta: Tidx) -> (output: Tidx)"
   " [Tidx: type in {bfloat16, half, float, double, int8, int16, int32, int64, uint16, uint32, uint64} = int32]",
   shape=range_shape, numpy=range_kernel, grad=NOT_DIFFERENTIABLE, host_memory=("start", "limit", "delta", "output"),
   samples=[dict(start=arr(0), limit=arr(5), delta=arr(1)), dict(start=arr(1), limit=arr(10), delta=arr(3)), dict(start=arr(3), limit=arr(3), delta=arr(1)),
            dict(start=arr(0.1, dtype=np.float32), limit=arr(10, dtype=np.float32), delta=arr(0.7, dtype=np.float32)),
            dict(start=arr(5, dtype=np.int32), limit=arr(-4, dtype=np.int32), delta=arr(-2, dtype=np.int32)),
            dict(start=arr(0, dtype=np.float64), limit=arr(1, dtype=np.float64), delta=arr(0.1, dtype=np.float64)),
            *(dict(start=arr(0, dtype=t), limit=arr(limit, dtype=t), delta=arr(delta, dtype=t))
              for t in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64) for limit, delta in ((0.3, 0.1), (0.6, 0.1), (1.2, 0.4), (1.1, 0.1)))],
   errors=[(dict(start=arr(0), limit=arr(5), delta=arr(0)), InvalidArgumentError, "Requires delta != 0"),
           (dict(start=arr(5, dtype=np.int32), limit=arr(0, dtype=np.int32), delta=arr(1, dtype=np.int32)), InvalidArgumentError, "Requires start <= limit when delta > 0: 5/0"),
           (dict(start=arr(0, dtype=np.int32), limit=arr(5, dtype=np.int32), delta=arr(-1, dtype=np.int32)), InvalidArgumentError, "Requires start >= limit when delta < 0: 0/5")])  # fmt: skip


def lin_space_kernel(start: Any, stop: Any, num: Any) -> Any:
    for name, value in (("start", start), ("stop", stop), ("num", num)):
        if value.ndim:
            raise InvalidArgumentError(f"{name} must be a scalar, not shape {format_dims(value.shape)}")
    n = int(num)
    if n <= 0:
        raise InvalidArgumentError(f"Requires num > 0: {n}")
    dtype = start.dtype
    wide = np.float64 if dtype == np.float64 else np.float32
    first, last = wide(start), wide(stop)
    result = _evenly_spaced(first, (last - first) / wide(max(n - 1, 1)), n)
    if n > 1:
        result[-1] = last  # exactly, whatever rounding says
    return result.astype(dtype, copy=False)


def lin_space_shape(c: Any) -> Dims:
    for i in range(3):
        checked_scalar(c, i)
    num = c.const(2)
    if num is None:
        return (None,)
    if int(num) <= 0:
        raise ValueError(f"Requires num > 0: {int(num)}")
    return (int(num),)


op("LinSpace(start: T, stop: T, num: Tidx) -> (output: T) [T: type in FLOATS; Tidx: type in INDEX = int32]",
   shape=lin_space_shape, numpy=lin_space_kernel, grad=NOT_DIFFERENTIABLE, host_memory=("start", "stop", "num"),
   samples=[dict(start=arr(0.0), stop=arr(1.0), num=4), dict(start=arr(-2.0), stop=arr(3.0), num=1), dict(start=arr(5.0), stop=arr(-5.0), num=7),
            dict(start=uniform(), stop=uniform(), num=arr(3, dtype=np.int64))],
   errors=[(dict(start=arr(0.0), stop=arr(1.0), num=0), InvalidArgumentError, "Requires num > 0: 0")])  # fmt: skip

