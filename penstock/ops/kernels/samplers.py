"""Random distributions that draw a varying number of times: gamma, Poisson, binomial, multinomial, shuffles.

Each output of the gamma, Poisson and binomial samplers owns a stretch of the Philox stream and rejects proposals until
one is good, so outputs do not depend on each other; here they all advance together, and those that are done drop out.

The multinomial and the parameterised truncated normal sampler read one stream from row to row. TensorFlow gives each
of its threads a part of the rows and a place of its own in the stream, so that its numbers for large inputs depend on
the number of cores; here the numbers are those of a single thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.errors import InternalError, InvalidArgumentError
from penstock.ops import native
from penstock.ops.kernels.libm32 import logf
from penstock.ops.kernels.short_rows import reduce_short_rows
from penstock.ops.native import bounded, rejection, searching, shuffles, transposes
from penstock.ops.native.frames import share_out
from penstock.ops.philox import RESERVED_PER_OUTPUT, Philox, box_muller64, float64_of, normal, uniform


class Lanes:
    """One stream per output, each at its own place; draws come from the end of a block to its beginning."""

    def __init__(self, gen: Philox, starts: np.ndarray) -> None:
        self._gen = gen
        self._next = starts.astype(np.uint64)
        self._uniform = np.empty((starts.size, 2)), np.zeros(starts.size, np.intp)
        self._normal = np.empty((starts.size, 2)), np.zeros(starts.size, np.intp)

    def uniform(self, who: np.ndarray) -> np.ndarray:
        """The next float64 in [0, 1) of each of the lanes `who`."""
        return self._draw(who, *self._uniform, float64_of)

    def normal(self, who: np.ndarray) -> np.ndarray:
        """The next float64 standard normal number of each of the lanes `who`."""
        return self._draw(who, *self._normal, box_muller64)

    def _draw(self, who: np.ndarray, buffer: np.ndarray, left: np.ndarray, convert: Any) -> np.ndarray:
        dry = who[left[who] == 0]
        if dry.size:
            x, y = self._gen.at(self._next[dry])
            self._next[dry] += np.uint64(1)
            buffer[dry, 0], buffer[dry, 1] = convert(x, y)
            left[dry] = 2
        left[who] -= 1
        return buffer[who, left[who]]


def _per_parameter(parameter: np.ndarray, samples: int) -> tuple[np.ndarray, int]:
    """The parameter of each output, in the order in which outputs take their stretches."""
    flat = np.asarray(parameter, np.float64).reshape(-1)
    return np.repeat(flat, samples), flat.size


def _in_output_order(values: np.ndarray, samples: int, parameters: int, dtype: np.dtype) -> np.ndarray:
    """Outputs are computed parameter by parameter and laid out sample by sample."""
    laid_out = values.reshape(parameters, samples).T
    if dtype == np.float16:
        laid_out = laid_out.astype(np.float32)  # TensorFlow rounds twice on the way to half
    return laid_out.astype(dtype).reshape(-1)


def gamma(gen: Philox, samples: int, alpha: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`samples` numbers of Gamma(alpha, 1) for every alpha, flat, sample by sample (Marsaglia and Tsang's method)."""
    a, parameters = _per_parameter(alpha, samples)
    found = rejection.gamma(gen.key, gen.counter, RESERVED_PER_OUTPUT, a)
    if found is not None:
        return _in_output_order(found, samples, parameters, dtype)
    out = np.empty(a.size)
    lanes = Lanes(gen, np.arange(a.size) * RESERVED_PER_OUTPUT)
    exponential = np.flatnonzero(a == 1)
    if exponential.size:
        out[exponential] = -np.log1p(-lanes.uniform(exponential))
    small = a < 1
    d = a + np.where(small, 2.0 / 3, -1.0 / 3)
    c = 1.0 / 3 / np.sqrt(d)
    active = np.flatnonzero(a != 1)
    while active.size:
        x = lanes.normal(active)
        v = 1 + c[active] * x
        proposed = np.flatnonzero(~(v <= 0))  # NaN, from a senseless alpha, goes through to the output
        lane, x, v = active[proposed], x[proposed], v[proposed]
        v = v * v * v
        u = lanes.uniform(lane)
        accepted = u < 1 - 0.0331 * (x * x) * (x * x)
        accepted |= np.log(u) < 0.5 * x * x + d[lane] * (1 - v + np.log(v))
        done = lane[accepted]
        result = d[done] * v[accepted]
        boost = small[done]
        if boost.any():
            who = done[boost]
            result[boost] *= lanes.uniform(who) ** (1 / a[who])
        out[done] = result
        keep = np.ones(active.size, np.bool_)
        keep[proposed[accepted]] = False
        active = active[keep]
    return _in_output_order(out, samples, parameters, dtype)


def poisson(gen: Philox, samples: int, rate: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`samples` numbers of Poisson(rate) for every rate, flat, sample by sample.

    Rates below 10 multiply uniform numbers until the product falls below exp(-rate) (Knuth); others use Hoermann's
    transformed rejection. A negative rate gives 0; NaN and infinity give themselves, or 0 in an integer type.
    """
    r, parameters = _per_parameter(rate, samples)
    found = rejection.poisson(gen.key, gen.counter, RESERVED_PER_OUTPUT, r)
    out = np.empty(r.size) if found is None else found
    endless = ~(r < np.inf)
    out[endless] = 0 if np.dtype(dtype).kind == "i" else r[endless]
    if found is not None:
        return _in_output_order(out, samples, parameters, dtype)
    lanes = Lanes(gen, np.arange(r.size) * RESERVED_PER_OUTPUT)
    active = np.flatnonzero(r < 10)
    limit = np.exp(-r)
    product, count = np.ones(active.size), 0
    while active.size:
        product *= lanes.uniform(active)
        running = product > limit[active]
        out[active[~running]] = count
        active, product, count = active[running], product[running], count + 1
    active = np.flatnonzero((r >= 10) & (r < np.inf))
    b = 0.931 + 2.53 * np.sqrt(r)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    while active.size:
        u = lanes.uniform(active) - 0.5
        v = lanes.uniform(active)
        ra, aa, ba = r[active], a[active], b[active]
        shifted = 0.5 - np.abs(u)
        k = np.floor((2 * aa / shifted + ba) * u + ra + 0.43)
        accepted = (shifted >= 0.07) & (v <= 0.9277 - 3.6224 / (ba - 2))
        check = np.flatnonzero(~accepted & ~((k < 0) | ((shifted < 0.013) & (v > shifted))))
        if check.size:
            s, t = shifted[check], active[check]
            left = np.log(v[check] * inverse_alpha[t] / (a[t] / (s * s) + b[t]))
            right = -r[t] + k[check] * np.log(r[t]) - log_factorial(k[check])
            accepted[check] = left <= right
        out[active[accepted]] = k[accepted]
        active = active[~accepted]
    return _in_output_order(out, samples, parameters, dtype)


def log_factorial(k: np.ndarray) -> np.ndarray:
    """log(k!) for whole numbers k >= 0, by Stirling's series."""
    k = np.asarray(k, np.float64)
    n = np.maximum(k, 9) + 1
    square = 1 / (n * n)
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))) / n
    large = (n - 0.5) * np.log(n) - n + 0.91893853320467274178 + series
    return np.where(k < 10, _LOG_FACTORIALS[np.clip(k, 0, 9).astype(np.intp)], large)


_LOG_FACTORIALS = np.log(np.array([1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880], np.float64))

_STIRLING_TAIL = np.array([
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287])


def _stirling_tail(k: np.ndarray) -> np.ndarray:
    square = (k + 1) * (k + 1)
    large = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    return np.where(k <= 9, _STIRLING_TAIL[np.clip(k, 0, 9).astype(np.intp)], large)


def binomial(gen: Philox, samples: int, count: np.ndarray, prob: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`samples` numbers of Binomial(count, prob) for every pair, flat, sample by sample."""
    kind = count.dtype
    one, half, ten = kind.type(1), kind.type(0.5), kind.type(10)
    count, prob = (np.repeat(p.reshape(-1), samples) for p in (count, prob))
    parameters = count.size // samples if samples else 0
    out = np.zeros(count.size)
    n = count.astype(np.float64)
    out[np.isnan(prob.astype(np.float64))] = np.nan
    sure = (n > 0) & (prob >= one)
    out[sure] = n[sure]
    open_ = (n > 0) & (prob > 0) & (prob < one)
    mirrored = open_ & (prob > half)
    p = np.where(mirrored, one - prob, prob)
    rejects = open_ & (count * p >= ten)
    p = p.astype(np.float64)
    found = rejection.binomial(gen.key, gen.counter, np.where(rejects, 256, 42), n, np.where(open_, np.where(rejects, p, -p), 0))
    if found is not None:
        drawn = np.where(mirrored, n - found, found)
        return _in_output_order(np.where(open_, drawn, out), samples, parameters, dtype)
    for who, stretch, draw in ((np.flatnonzero(rejects), 256, _binomial_rejection),
                               (np.flatnonzero(open_ & ~rejects), 42, _binomial_inversion)):
        if who.size:
            lanes = Lanes(gen, who * stretch)
            drawn = draw(lanes, n[who], p[who])
            out[who] = np.where(mirrored[who], n[who] - drawn, drawn)
    return _in_output_order(out, samples, parameters, dtype)


def _binomial_inversion(lanes: Lanes, n: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Add geometric numbers until they exceed n; their number is binomial."""
    out = np.zeros(n.size)
    active = np.arange(n.size)
    total, scale = np.zeros(n.size), np.log1p(-p)
    while active.size:
        total[active] += np.ceil(np.log(lanes.uniform(active)) / scale[active])
        active = active[total[active] <= n[active]]
        out[active] += 1
    return out


def _binomial_rejection(lanes: Lanes, n: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Hoermann's transformed rejection, for n p >= 10."""
    spread = np.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = n * p + 0.5
    v_r = 0.92 - 4.2 / b
    r = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * spread
    m = np.floor((n + 1) * p)
    out = np.empty(n.size)
    active = np.arange(n.size)
    while active.size:
        u = lanes.uniform(active)
        v = lanes.uniform(active)
        u = u - 0.5
        us = 0.5 - np.abs(u)
        k = np.floor((2 * a[active] / us + b[active]) * u + c[active])
        accepted = (us >= 0.07) & (v <= v_r[active])
        check = np.flatnonzero(~accepted & (k >= 0) & (k <= n[active]))
        if check.size:
            t, kc, s = active[check], k[check], us[check]
            nt, mt, rt = n[t], m[t], r[t]
            left = np.log(v[check] * alpha[t] / (a[t] / (s * s) + b[t]))
            bound = ((mt + 0.5) * np.log((mt + 1) / (rt * (nt - mt + 1)))
                     + (nt + 1) * np.log((nt - mt + 1) / (nt - kc + 1))
                     + (kc + 0.5) * np.log(rt * (nt - kc + 1) / (kc + 1))
                     + _stirling_tail(mt) + _stirling_tail(nt - mt) - _stirling_tail(kc) - _stirling_tail(nt - kc))
            accepted[check] = left <= bound
        out[active[accepted]] = k[accepted]
        active = active[~accepted]
    return out


def _weigh(logits: np.ndarray, largest: np.ndarray, weights: np.ndarray, axis: int) -> None:
    """exp(logits - the largest one along the axis); what is not finite counts as nothing."""
    top = largest.astype(np.float64)
    if np.isfinite(top).all():
        np.exp(np.subtract(logits, top, out=weights), out=weights)
        return
    wide = logits.astype(np.float64)
    finite = np.isfinite(wide)
    top = np.where(finite, wide, -np.inf).max(axis=axis, keepdims=True)
    np.copyto(top, 0.0, where=np.isneginf(top))  # no finite logit: every class is out
    np.exp(np.subtract(wide, top, out=weights), out=weights)
    weights[~finite] = 0.0


_LANES = 16
"""Rows from which on their sums are made side by side."""
_sums = native.Loop(lambda x, y: x + y, "same")


def multinomial(gen: Philox, logits: np.ndarray, samples: int, dtype: np.dtype) -> np.ndarray:
    """Class numbers (rows of logits, samples), each drawn with the softmax of its row."""
    rows = len(logits)
    found = reduce_short_rows(np.maximum, logits, 1, True)
    largest = logits.max(axis=1, keepdims=True) if found is None else found
    words = gen.words(rows * samples * 2).astype(np.uint64).reshape(rows, samples, 2)
    target = float64_of(words[..., 0], words[..., 1])
    is_few = samples < searching.MANY_IN_A_ROW and rows >= _LANES and native.available()
    return (_some_of_each_row if is_few else _many_of_each_row)(logits, largest, target).astype(dtype, copy=False)


def _some_of_each_row(logits: np.ndarray, largest: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Rows side by side: one addition goes on in several of them."""
    rows, classes = logits.shape
    result = np.empty(target.shape, np.intp)

    def some_rows(first: int, end: int) -> None:
        columns = transposes.in_order(logits[first:end].T)
        weights = np.empty(columns.shape)
        _weigh(columns, largest[first:end].T, weights, 0)
        cdf = _sums.accumulate(weights) if end - first >= _LANES else np.cumsum(weights, 0)
        result[first:end] = _places(cdf, target[first:end] * cdf[-1][:, None], end - first, np.arange(end - first))

    share_out(rows, classes * 4, some_rows)
    return result


def _many_of_each_row(logits: np.ndarray, largest: np.ndarray, target: np.ndarray) -> np.ndarray:
    rows, classes = logits.shape
    cdf = np.empty((rows, classes))

    def some_rows(first: int, end: int) -> None:
        part = cdf[first:end]
        _weigh(logits[first:end], largest[first:end], part, 1)
        np.cumsum(part, axis=1, out=part)

    share_out(rows, classes * 4, some_rows)
    target *= cdf[:, -1:]
    found = searching.places(cdf.view(np.int64), target.view(np.int64), "right")  # none is negative: their bits have the same order
    if found is not None:
        return found
    if rows * 8 < target.shape[1]:
        return np.stack([np.searchsorted(row, want, side="right") for row, want in zip(cdf, target, strict=True)])
    return _places(cdf, target, 1, np.arange(rows) * classes)


def _places(cdf: np.ndarray, target: np.ndarray, step: int, starts: np.ndarray) -> np.ndarray:
    """How many entries are not above the target, by halving in all sorted lines at once; they start in `cdf` at `starts`, with entries `step` apart."""
    flat, first = cdf.reshape(-1), starts[:, None]
    place, left = np.broadcast_to(first, target.shape), cdf.size // len(starts)
    while left > 1:
        half = left // 2
        place = place + (flat.take(place + (half - 1) * step) <= target) * (half * step)
        left -= half
    place = place + (flat.take(place) <= target) * step
    place -= first
    return place if step == 1 else place // step


_remainders = native.Loop(lambda x, y: x - np.floor(x / y) * y)  # in float64: exact for 32 bits


def permutation(gen: Philox, n: int) -> np.ndarray:
    """The order in which RandomShuffle puts n rows: a Fisher-Yates shuffle from the front."""
    if n > native.SMALL and native.available():
        order = np.arange(n)
        shuffles.exchange(order, _steps(gen, n))
        return order
    order = list(range(n))
    if n > 1:
        words = gen.words(n - 1)
        words %= np.arange(n, 1, -1, dtype=np.uint32)
        for i, step in enumerate(words.tolist()):
            j = i + step
            order[i], order[j] = order[j], order[i]
    return np.array(order, np.intp)


def _steps(gen: Philox, n: int) -> np.ndarray:
    """How far ahead each of n elements finds the one that it is exchanged with."""
    return _remainders.run(gen.words(n - 1).astype(np.int64), np.arange(n, 1, -1))  # type: ignore[return-value]


def shuffled(gen: Philox, value: np.ndarray) -> np.ndarray:
    """The rows of `value` in that order."""
    n = len(value)
    if value.ndim == 1 and value.itemsize in (4, 8) and not value.dtype.hasobject and n > native.SMALL and native.available():
        result = np.array(value)
        shuffles.exchange(result.view(f"i{value.itemsize}"), _steps(gen, n))
        return result
    return value.take(permutation(gen, n), 0)


def index_shuffle(index: np.ndarray, key: np.ndarray, limit: np.ndarray, rounds: int) -> np.ndarray:
    """Where each index goes in a permutation of 0 ... limit that its key (three words) picks.

    A block cipher of just enough bits (Simon's round function) permutes a power of two; what falls beyond the limit
    is encrypted again until it does not.
    """
    out = np.zeros_like(index)
    bits = np.array([max(16, (bits := max(0, int(top) - 1).bit_length()) + bits % 2) for top in limit.tolist()])
    for size in np.unique(bits).tolist():
        who = np.flatnonzero((bits == size) & (limit > 0))
        if not who.size:
            continue
        if size == 16:
            _shuffle_by_table(index, key, limit, rounds, who, out)
            continue
        width = size // 2
        keys = _round_keys([word & _ones(width) for word in key[who].T], width, rounds)
        value = index[who]
        while who.size:
            value = _encrypt(value, keys, width)
            done = value <= limit[who]
            out[who[done]] = value[done]
            value, who, keys = value[~done], who[~done], [k[~done] for k in keys]
    return out


def _shuffle_by_table(index: np.ndarray, key: np.ndarray, limit: np.ndarray, rounds: int, who: np.ndarray, out: np.ndarray) -> None:
    """For 16 bits: encrypts all numbers at once, because a small limit can take thousands of steps."""
    cases, case_of = np.unique(np.column_stack([key[who], limit[who]]), axis=0, return_inverse=True)
    for i, (*words, top) in enumerate(cases.tolist()):
        keys = _round_keys([np.array([word & 0xFF], np.uint64) for word in words], 8, rounds)
        step = _encrypt(np.arange(1 << 16, dtype=np.uint64), keys, 8).tolist()
        here = who[case_of == i]
        starts, start_of = np.unique(index[here], return_inverse=True)
        ends = []
        for value in starts.tolist():
            value = step[value & 0xFFFF]
            while value > top:
                value = step[value]
            ends.append(value)
        out[here] = np.array(ends, np.uint64)[start_of]


def _ones(width: int) -> np.uint64:
    return np.uint64((1 << width) - 1)


def _rotated(x: np.ndarray, left: int, width: int) -> np.ndarray:
    return (x << np.uint64(left) | x >> np.uint64(width - left)) & _ones(width)


def _round_keys(keys: list[np.ndarray], width: int, rounds: int) -> list[np.ndarray]:
    constant, sequence = np.uint64(0xFFFFFFFC) & _ones(width), 0x7369F885192C0EF5 & int(_ones(width))
    for i in range(3, rounds):
        last = keys[i - 1]
        mixed = _rotated(last, width - 3, width) ^ _rotated(last, width - 4, width)
        keys.append(constant ^ np.uint64(sequence & 1) ^ keys[i - 3] ^ mixed)
        sequence >>= 1
    return keys


def _encrypt(value: np.ndarray, keys: list[np.ndarray], width: int) -> np.ndarray:
    left, right = value >> np.uint64(width) & _ones(width), value & _ones(width)
    for key in keys:
        mixed = _rotated(right, 1, width) & _rotated(right, 8 % width, width) ^ _rotated(right, 2, width)
        left, right = right, left ^ mixed ^ key
    return left << np.uint64(width) | right


def bounded_normals(gen: Philox, parameters: Sequence[np.ndarray], rows: int, per_row: int, n: int, dtype: np.dtype) -> np.ndarray:
    """n normal numbers within bounds, flat, in rows that have their own parameters (arrays of one number, or one for each row): see `bounded_normal`."""
    out = np.empty(rows * per_row + 4, dtype)
    flat = [np.broadcast_to(p.reshape(-1), (rows,)) if p.size == 1 else p.reshape(-1) for p in parameters]
    block, row = 0, 0
    takes = bounds = None
    if rows and per_row and bounded.can_take(out.dtype):
        takes, bounds = _proposed_as_they_are(*flat)
    while row < rows:
        if takes is not None and bounds is not None and takes[row]:
            last = row + int(np.argmin(takes[row:])) if not takes[row:].all() else rows
            last = min(last, row + max(1, _MOST_AT_ONCE // per_row))
            done, blocks = _take_normals(gen.skip(block), bounds[row:last], out[row * per_row : last * per_row + 4])
            row, block = row + done, block + blocks
            if done:
                continue
        here = [p[row] for p in flat]
        out[row * per_row : (row + 1) * per_row], block = bounded_normal(gen, block, here, per_row)
        row += 1
    return out[:n]


_MOST_AT_ONCE = 1 << 18
"""Numbers of rows that are filled from one stretch of the stream."""


def _take_normals(gen: Philox, bounds: np.ndarray, out: np.ndarray) -> tuple[int, int]:
    rows, per_block = len(bounds), bounded.BLOCK // out.itemsize
    width = (out.size - 4) // rows
    stream = normal(gen, (rows * (width * 5 // 4 // per_block + 4) + 64, per_block), out.dtype)
    return bounded.take(stream, bounds, out[: rows * width].reshape(rows, width))


def _proposed_as_they_are(mean: np.ndarray, stddev: np.ndarray, minval: np.ndarray, maxval: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which rows take what they want of the normal numbers themselves; lower and upper bound, factor and mean of each."""
    with np.errstate(all="ignore"):
        good = (stddev > 0) & (minval < maxval) & (np.isfinite(minval) | np.isfinite(maxval))
        mirrored = (np.isinf(minval) & (minval < 0)) | (maxval < mean)
        sign = np.where(mirrored, -stddev, stddev)
        first, second = np.where(mirrored, maxval, minval), np.where(mirrored, minval, maxval)
        low, high = (first - mean) / sign, (second - mean) / sign
        inner = mean.dtype.type(_INNER)
        takes = good & (((low < -inner) & (high >= 0)) | ((high > inner) & (low <= 0)))
    return takes, np.stack([low, high, sign, mean], 1)


_INNER = 1.3
"""Standard deviations that bounds have to leave of the normal distribution, to one side at least, for it to be proposed."""


def bounded_normal(gen: Philox, first: int, parameters: Sequence[Any], n: int) -> tuple[np.ndarray, int]:
    """n normal numbers within bounds from block `first` on, and the next unread block.

    The parameters are mean, standard deviation, lower and upper bound, scalars of the output's type, in which the
    whole computation runs. There are three ways to propose a number: the normal distribution itself where the bounds
    leave enough of it, a uniform one for narrow bounds, an exponential one for a tail.
    """
    mean, stddev, minval, maxval = parameters
    kind = type(mean)
    if not (stddev > 0 and minval < maxval and (np.isfinite(minval) or np.isfinite(maxval))):
        raise InvalidArgumentError("Invalid parameters")
    if (np.isinf(minval) and minval < 0) or maxval < mean:
        minval, maxval, stddev = maxval, minval, -stddev  # mirrored, so that a single bound is the lower one
    low, high = (minval - mean) / stddev, (maxval - mean) / stddev
    root = np.sqrt(low * low + kind(4))
    cutoff = kind(2) * np.exp(kind(0.5) + low * (low - root) / kind(4)) / (low + root)
    width = high - low
    inner = kind(_INNER)
    if (low < -inner and high >= 0) or (high > inner and low <= 0):
        propose, blocks, name = _propose_normal, 1, "randn"
    elif width < cutoff:
        propose, blocks, name = _propose_uniform, 2, "uniform"
    else:
        propose, blocks, name = _propose_exponential, 1, "exponential distribution"
    out = np.empty(n, kind)
    have, rejected = 0, 0
    while have < n:
        rounds = max(16, (n - have) // 2)
        value, good = propose(gen.skip(first), rounds, low, high, kind)
        per_round = value.size // rounds
        places = np.flatnonzero(good)
        gaps = np.diff(np.concatenate([[-1 - rejected], places])) - 1
        if gaps.max(initial=0) >= _MAX_REJECTIONS or (not places.size and value.size + rejected >= _MAX_REJECTIONS):
            raise InternalError(f"TruncatedNormal {name} rejection sampler failed to accept a sample.")
        take = places[:n - have]
        out[have:have + take.size] = value[take] * stddev + mean
        have += take.size
        if have < n:
            first += rounds * blocks
            rejected = value.size - 1 - int(places[-1]) if places.size else rejected + value.size
        else:
            first += (int(take[-1]) // per_round + 1) * blocks
    return out, first


_MAX_REJECTIONS = 1000


def _propose_normal(gen: Philox, rounds: int, low, high, kind: type) -> tuple[np.ndarray, np.ndarray]:
    per_block = 2 if kind is np.float64 else 4
    value = normal(gen, (rounds * per_block,), np.dtype(kind))
    return value, (value >= low) & (value <= high)


def _propose_uniform(gen: Philox, rounds: int, low, high, kind: type) -> tuple[np.ndarray, np.ndarray]:
    per_block = 2 if kind is np.float64 else 4
    pairs = uniform(gen, (rounds, 2, per_block), np.dtype(kind))
    value = pairs[:, 0].reshape(-1) * (high - low) + low
    peak = kind(0) if low < 0 else low * low
    return value, pairs[:, 1].reshape(-1) <= np.exp((peak - value * value) / kind(2))


def _propose_exponential(gen: Philox, rounds: int, low, high, kind: type) -> tuple[np.ndarray, np.ndarray]:
    per_block = 2 if kind is np.float64 else 4
    pairs = uniform(gen, (rounds * per_block // 2, 2), np.dtype(kind))
    alpha = (low + np.sqrt(low * low + kind(4))) / kind(2)
    u = pairs[:, 0]
    if kind is np.float32:
        log = np.where(u > 0, logf(np.maximum(u, np.float32(2.0**-23))), -np.inf)
    else:
        log = np.log(u)
    value = -log / alpha + low
    distance = alpha - value if low < alpha else low - alpha
    return value, (pairs[:, 1] <= np.exp(-distance * distance / kind(2))) & (value < high)
