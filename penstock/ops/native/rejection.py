"""Gamma, Poisson and binomial samplers as loops: eight outputs at a time, each with a stretch of the Philox stream, drawing until a proposal is good.

The formulas are those of `kernels.samplers`, in the same order; the numbers differ at most in the last place of a logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from penstock.ops import native
from penstock.ops.native import streams
from penstock.ops.native.maths import absolute, log, log1p, power
from penstock.ops.native.vectors import Trace, Vec, only_if, repeat, select

_LOG_FACTORIALS = np.array([math.log(math.factorial(k)) for k in range(10)] + [0.0] * 6)
_STIRLING_TAILS = np.array([
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287] + [0.0] * 6)  # fmt: skip
_COST = 1500
"""Instructions for each output, about."""


class _Draws(NamedTuple):
    """A lane's place in its stream: the next block, and what is left of the last one (numbers are taken from its end)."""

    block: Vec
    first: Vec
    second: Vec
    left: Vec


def _draw(trace: Trace, draws: _Draws, make: Callable[..., tuple[Vec, Vec]], wanted: Vec | None = None) -> tuple[Vec, _Draws]:
    """The next number of the lanes `wanted` (of all)."""
    dry = draws.left == 0
    if wanted is not None:
        dry = dry & wanted
    first, second = make(trace, streams._blocks(trace, draws.block))
    first, second = select(dry, first, draws.first), select(dry, second, draws.second)
    left = select(dry, 2.0, draws.left)
    left = left - 1 if wanted is None else select(wanted, left - 1, left)
    return select(left == 1, second, first), _Draws(select(dry, draws.block + 1, draws.block), first, second, left)


def _block(trace: Trace, at: Vec) -> tuple[Vec, Vec]:
    """A block's two numbers in the order in which they are drawn."""
    first, second = streams._uniform64(trace, streams._blocks(trace, at))
    return second, first


def _poisson(trace: Trace, start: Vec, rate: Vec) -> Vec:
    def by_products() -> Vec:
        limit = np.exp(-rate)

        def step(at: Vec, product: Vec, count: Vec) -> Any:
            one, two = _block(trace, at)
            once = product * one
            twice = once * two
            goes_on = once > limit
            return at + 1, select(goes_on, twice, -1.0), select(goes_on, select(twice > limit, count + 2, count + 1), count)

        return repeat(lambda at, product, count: product > limit, step, start, rate.like(1), rate.like(0))[2]

    def by_rejection() -> Vec:
        b = 0.931 + 2.53 * rate.op("sqrt")
        a = -0.059 + 0.02483 * b
        inverse_alpha = 1.1239 + rate.like(1.1328) / (b - 3.4)
        log_rate = log(rate)

        def step(at: Vec, result: Vec) -> Any:
            u, v = _block(trace, at)
            u = u - 0.5
            shifted = 0.5 - absolute(u)
            k = np.floor((2 * a / shifted + b) * u + rate + 0.43)
            quick = (shifted >= 0.07) & (v <= 0.9277 - rate.like(3.6224) / (b - 2))
            doubtful = ~((k < 0) | ((shifted < 0.013) & (v > shifted)))
            fits = log(v * inverse_alpha / (a / (shifted * shifted) + b)) <= k * log_rate - rate - _log_factorial(trace, k)
            return at + 1, select(quick | (doubtful & fits), k, -1.0)

        return repeat(lambda at, result: result < 0, step, start, rate.like(-1.0))[1]

    small = only_if(rate < 10, by_products, rate.like(0))
    return only_if((rate >= 10) & (rate < math.inf), by_rejection, small)


def _log_factorial(trace: Trace, k: Vec) -> Vec:
    n = k.op("max", 9.0) + 1
    square = 1 / (n * n)
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square * (1 / 1188))))) / n
    large = (n - 0.5) * log(n) - n + 0.91893853320467274178 + series
    return select(k < 10, _known(trace, k, _LOG_FACTORIALS), large)


def _known(trace: Trace, k: Vec, table: np.ndarray) -> Vec:
    """table[k], for whole numbers below 16."""
    index = trace.add("f64_to_i64", [k], "i64")
    return trace.add("lookup.f64", [index, *(trace.table(half, "f64") for half in (table[:8], table[8:]))], "f64")


def _stirling_tail(trace: Trace, k: Vec) -> Vec:
    square = (k + 1) * (k + 1)
    large = (1 / 12 - (1 / 360 - k.like(1 / 1260) / square) / square) / (k + 1)
    return select(k <= 9, _known(trace, k, _STIRLING_TAILS), large)


def _binomial(trace: Trace, start: Vec, n: Vec, probability: Vec) -> Vec:
    """`probability` is negative where it shall be done by inversion."""
    p = absolute(probability)

    def by_inversion() -> Vec:
        scale = log1p(-p)

        def step(at: Vec, total: Vec, count: Vec) -> Any:
            one, two = _block(trace, at)
            once = total + np.ceil(log(one) / scale)
            twice = once + np.ceil(log(two) / scale)
            goes_on = once <= n
            return at + 1, select(goes_on, twice, math.inf), select(goes_on, select(twice <= n, count + 2, count + 1), count)

        return repeat(lambda at, total, count: total <= n, step, start, n.like(0), n.like(0))[2]

    def by_rejection() -> Vec:
        spread = (n * p * (1 - p)).op("sqrt")
        b = 1.15 + 2.53 * spread
        a = -0.0873 + 0.0248 * b + 0.01 * p
        c = n * p + 0.5
        v_r = 0.92 - n.like(4.2) / b
        r = p / (1 - p)
        alpha = (2.83 + n.like(5.1) / b) * spread
        m = np.floor((n + 1) * p)
        tails = _stirling_tail(trace, m) + _stirling_tail(trace, n - m)
        middle = (m + 0.5) * log((m + 1) / (r * (n - m + 1)))

        def step(at: Vec, result: Vec) -> Any:
            u, v = _block(trace, at)
            u = u - 0.5
            us = 0.5 - absolute(u)
            k = np.floor((2 * a / us + b) * u + c)
            quick = (us >= 0.07) & (v <= v_r)
            left = log(v * alpha / (a / (us * us) + b))
            bound = (
                middle
                + (n + 1) * log((n - m + 1) / (n - k + 1))
                + (k + 0.5) * log(r * (n - k + 1) / (k + 1))
                + tails - _stirling_tail(trace, k) - _stirling_tail(trace, n - k)
            )  # fmt: skip
            fits = (k >= 0) & (k <= n) & (left <= bound)
            return at + 1, select(quick | fits, k, math.nan)

        return repeat(lambda at, result: result != result, step, start, n.like(math.nan))[1]

    return only_if(probability > 0, by_rejection, only_if(probability < 0, by_inversion, n.like(0)))


def _gamma(trace: Trace, start: Vec, alpha: Vec) -> Vec:
    nothing = alpha.like(0)
    fresh = _Draws(start, nothing, nothing, nothing)

    def by_rejection() -> Vec:
        small = alpha < 1
        d = alpha + select(small, alpha.like(2.0 / 3), alpha.like(-1.0 / 3))
        c = 1.0 / 3 / d.op("sqrt")

        def step(result: Vec, block: Vec, *left: Vec) -> Any:
            normal, draws = _draw(trace, _Draws(block, *left[:3]), streams._normal64)
            v = 1 + c * normal
            proposed = ~(v <= 0)  # NaN, from a senseless alpha, goes through to the output
            v = v * v * v
            u, uniforms = _draw(trace, _Draws(draws.block, *left[3:]), streams._uniform64, proposed)
            square = normal * normal
            accepted = (u < 1 - 0.0331 * square * square) | (log(u) < 0.5 * square + d * (1 - v + log(v)))
            accepted = proposed & (accepted | (v != v))
            boost, uniforms = _draw(trace, uniforms, streams._uniform64, accepted & small)
            value = d * v
            value = select(small, value * power(boost, 1 / alpha), value)
            return select(accepted, value, -1.0), uniforms.block, *draws[1:], *uniforms[1:]

        return repeat(lambda result, *draws: result < 0, step, alpha.like(-1.0), *fresh, *fresh[1:])[0]

    def exponential() -> Vec:
        return -log1p(-_draw(trace, fresh, streams._uniform64)[0])

    return only_if(alpha == 1, exponential, only_if(alpha != 1, by_rejection, alpha))


@cache
def _loop(formula: Callable[..., Vec], count: int) -> Any:
    """f(n, parameters, starts, *arguments, results), with so many arguments."""
    from penstock.ops.native import compiler

    trace = Trace()
    start = trace.add("input", [], "i64", (1, "i64"))
    arguments = [trace.add("input", [], "f64", (2 + i, "f64")) for i in range(count)]
    trace.add("output", [formula(trace, start, *arguments)], "none", (2 + count, "f64", 0))
    steps = [0, 64, *[64] * count, 64]
    return compiler.function_at(compiler.into_memory(compiler.Code(trace, streams.LANES, steps).write()), len(steps))


def _run(formula: Callable[..., Vec], key: int, counter: int, stretch: int | np.ndarray, *arguments: np.ndarray) -> np.ndarray | None:
    """`stretch`: blocks that belong to an output; if outputs differ in that, where each begins is its number times its own stretch."""
    n = arguments[0].size
    if n < native.SMALL or not streams.can_fill(counter, int(np.max(stretch)), n):
        return None
    parameters = streams._parameters(key, counter >> 64)
    starts = np.arange(n, dtype=np.uint64) * np.asarray(stretch, np.uint64) + np.uint64(counter & streams._LOW64)
    out = np.empty(n)
    loop = _loop(formula, len(arguments))
    pieces = [(a.ctypes.data, a.itemsize) for a in (starts, *arguments, out)]
    native.over_threads(lambda count, *places: loop(count, parameters.ctypes.data, *places), n, _COST / streams.LANES, pieces)
    return out


def poisson(key: int, counter: int, stretch: int, rates: np.ndarray) -> np.ndarray | None:
    """One number for each rate (float64); 0 for infinite rates and NaN. None where there is no machine code, or too little to do."""
    return _run(_poisson, key, counter, stretch, rates)


def gamma(key: int, counter: int, stretch: int, alphas: np.ndarray) -> np.ndarray | None:
    """One number of Gamma(alpha, 1) for each alpha (float64), or None."""
    return _run(_gamma, key, counter, stretch, alphas)


def binomial(key: int, counter: int, stretches: np.ndarray, n: np.ndarray, p: np.ndarray) -> np.ndarray | None:
    """One number for each pair of tries and probability (float64, at most one half; negative: by inversion; 0 or NaN: the number is 0), or None."""
    return _run(_binomial, key, counter, stretches, n, p)
