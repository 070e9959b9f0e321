"""Kernels for complex numbers of single precision, which NumPy hands to the C library one by one.

A number is one lane of 64 bits; its parts are computed in double precision, where nothing overflows or is lost, and rounded once. Numbers with a part
that is not finite, quotients by zero and angles beyond those that `maths` knows are left to the declared kernel. `install()` offers all of it to `graph.bind`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.graph.bind import FAST, Maker, offer
from penstock.graph.ir import Operation
from penstock.ops import native
from penstock.ops.native import maths
from penstock.ops.native.vectors import Vec, select

Kernel = Callable[..., Any]

_TYPES = frozenset((dtypes.complex64,))
SMALLEST = 512
"""Numbers from which on a loop is quicker than NumPy."""
ANGLES = 1e6
"""Their sine and cosine are sure."""


SMALL = 2.0**-252
"""The square of a divisor that is not nearly zero."""


def _exp(x: Vec, y: Vec) -> tuple[Vec, Vec, Vec]:
    size = maths.exp(maths.clamp(x, -700.0, 700.0))  # which is infinite or zero in single precision, but zero times it is zero
    sine, cosine = maths.sine_and_cosine(y)
    return size * cosine, size * sine, _is_moderate(x, y)


def _sqrt(x: Vec, y: Vec) -> tuple[Vec, Vec, Vec]:
    """The larger part by adding, the other as y / 2 over it: neither loses anything."""
    size = x * x + y * y
    large = np.sqrt((np.sqrt(size) + maths.absolute(x)) * 0.5)  # type: ignore[operator]
    small = select(large == 0, y, y * 0.5 / large)
    is_left = x < 0
    return select(is_left, maths.absolute(small), large), select(is_left, maths.copysign(large, y), small), maths.isfinite(size)


def _tanh(x: Vec, y: Vec) -> tuple[Vec, Vec, Vec]:
    """With e = exp(2 |x|) - 1, where sums have no differences: (e (e + 2) + 4 (e + 1) i sin y cos y) / (e e + 4 (e + 1) cos y cos y)."""
    e = maths.expm1(maths.clamp(maths.absolute(x) * 2, 0.0, 110.0))
    sine, cosine = maths.sine_and_cosine(y)
    scaled = (e * 4 + 4) * cosine
    inverse = 1 / (e * e + scaled * cosine)
    return maths.copysign(e * (e + 2) * inverse, x), scaled * sine * inverse, _is_moderate(x, y)


def _quotient(a: Vec, b: Vec, c: Vec, d: Vec) -> tuple[Vec, Vec, Vec]:
    """Products of singles are exact in doubles."""
    size = c * c + d * d
    x, y = a * c + b * d, b * c - a * d
    return x / size, y / size, maths.isfinite(x) & maths.isfinite(y) & maths.isfinite(size) & (size >= SMALL)


def _is_moderate(x: Vec, y: Vec) -> Vec:
    return maths.isfinite(x) & (maths.absolute(y) < ANGLES)


FORMULAS: dict[str, Callable[..., tuple[Vec, Vec, Vec]]] = {"Exp": _exp, "RealDiv": _quotient, "Sqrt": _sqrt, "Tanh": _tanh}
"""Parts of the arguments to the parts of the result, and where these hold."""


def install() -> None:
    """Behind `halves`, whose ops these are, too."""
    for name in FORMULAS:
        found = FAST.get(name, {}).get("native")
        if found is None:
            offer(name, "native", _kernel, only=_TYPES)
        else:
            offer(name, "native", _of_either(found.maker), only=None if found.only is None else found.only | _TYPES)


def _of_either(of_others: Maker) -> Maker:
    return lambda op, kernel: (_kernel if op.attrs.get("T") in _TYPES else of_others)(op, kernel)


def _kernel(op: Operation, kernel: Kernel) -> Kernel | None:
    if not native.available():
        return None

    def run(*inputs: Any) -> Any:
        first = inputs[0]
        if first.size < SMALLEST or any(x.shape != first.shape for x in inputs):
            return kernel(*inputs)
        return computed(op.type, kernel, *inputs)

    return run


_made: dict[str, tuple[Any, float]] = {}


def computed(name: str, otherwise: Kernel, *inputs: np.ndarray) -> np.ndarray:
    """The formula of that name for arrays of one shape; `otherwise` where it does not hold."""
    found = _made.get(name) or _made.setdefault(name, _compiled(name, len(inputs)))
    inputs = tuple(map(np.ascontiguousarray, inputs))
    out, is_strange = np.empty_like(inputs[0]), np.empty(inputs[0].shape, bool)
    native.over_threads(found[0], out.size, found[1], [(native.address_of(a), a.itemsize) for a in (*inputs, out, is_strange)])
    if is_strange.any():
        out[is_strange] = otherwise(*(x[is_strange] for x in inputs))
    return out


def _compiled(name: str, arguments: int) -> tuple[Any, float]:
    from penstock.ops.native.compiler import compile_loop

    def formula(*numbers: Vec) -> tuple[Vec, Vec]:
        trace = numbers[0].trace
        parts = [trace.add("of_single_bits", [half], "f64") for number in numbers for half in (number, number >> 32)]
        x, y, holds = FORMULAS[name](*parts)
        low, high = (trace.add("single_bits", [part], "i64") for part in (x, y))
        return low | (high << 32), ~holds

    return compile_loop(formula, ["i64"] * arguments, ["i64", "bool"], "i64")
