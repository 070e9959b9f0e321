"""ReLU, leaky ReLU, their gradients and sums of whole arrays: what stands between convolutions in a training step and cannot be part of them.

NumPy computes such a node on one thread, or in tiles on threads of ours, for which those of oneDNN have to make room first. Here the same
threads as for the convolutions before and behind it do it, in one pass. The result may be written over an input that nobody needs any
more (`over`: its index): every element is read by whoever writes it, and before. Results are NumPy's bit for bit, NaN included. oneDNN's own
ReLU makes 0 of NaN, and its `x > 0` is true for NaN; so

    relu        (x < x), which is 0, then max(0, x): of two operands, one of which is NaN, the maximum is the second
    relu_grad   x * -1, then (-x < 0), which is 1 or 0 and for NaN 0, then times dy
    leaky_relu, leaky_relu_grad   x * alpha, then the maximum with x; the maximum of (-x < 0) and alpha, then times dy (0 < alpha <= 1)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.memory import address, aligned_empty
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.plan import BYTES_PER_US, contiguous, planned
from penstock.engines.onednn.primitives import FLOAT32, Add, Less, Maker, Maximum, Multiply, PostOps, Primitive

MIN_SIZE = 1 << 15
"""Elements from which on it is worth more than a call of NumPy."""

MOST_SUMMANDS = 8

_ZERO, _MINUS_ONE = np.zeros(1, np.float32), np.full(1, -1, np.float32)


class Spec(NamedTuple):
    """How many elements; for sums, how many arrays; for leaky ReLU, its slope."""

    size: int
    arrays: int = 1
    slope: float = 0.0


def _pass(m: Maker, alg: int, size: int, has_two: bool, post_ops: PostOps) -> Primitive:
    """dst = alg(src0, src1), post-ops; `src1` is an array of the same size, or one number."""
    whole, one = m.md((size,), (1,)), m.md((1,), (1,))
    other = whole if has_two else one
    pd = m.pd("binary", alg, whole, other, whole, m.attr(post_ops))
    return m.primitive(pd, [(lib.ARG_SRC, whole), (lib.ARG_SRC_1, other), (lib.ARG_DST, whole), *m.post_op_args(post_ops, FLOAT32)])


def _target(arrays: tuple[np.ndarray, ...], over: int | None) -> np.ndarray:
    if over is not None and arrays[over].flags.writeable:
        return arrays[over]
    return aligned_empty(arrays[0].shape, FLOAT32)


class Relu:
    """y = max(x, 0)"""

    def __init__(self, m: Maker, spec: Spec) -> None:
        self.main = _pass(m, lib.BINARY_LT, spec.size, True, (Maximum((spec.size,), (1,)),))

    def run(self, x: np.ndarray, over: int | None = None) -> np.ndarray:
        x = contiguous(x)
        y = _target((x,), over)
        at = address(x)
        self.main.run(at, at, address(y), at)
        return y


class ReluGrad:
    """dx = dy * (features > 0)"""

    def __init__(self, m: Maker, spec: Spec) -> None:
        self.main = _pass(m, lib.BINARY_MUL, spec.size, False, (Less((1,), (1,)), Multiply((spec.size,), (1,))))

    def run(self, dy: np.ndarray, features: np.ndarray, over: int | None = None) -> np.ndarray:
        dy, features = contiguous(dy), contiguous(features)
        dx = _target((dy, features), over)
        self.main.run(*map(address, self.arguments(dy, features, dx)))
        return dx

    def arguments(self, dy: Any, features: Any, dx: Any) -> tuple[Any, ...]:
        """Of the primitive."""
        return features, _MINUS_ONE, dx, _ZERO, dy


class LeakyRelu:
    """y = max(x, slope * x)"""

    def __init__(self, m: Maker, spec: Spec) -> None:
        self.main = _pass(m, lib.BINARY_MUL, spec.size, False, (Maximum((spec.size,), (1,)),))
        self.slope = np.full(1, spec.slope, np.float32)

    def run(self, x: np.ndarray, over: int | None = None) -> np.ndarray:
        x = contiguous(x)
        y = _target((x,), over)
        at = address(x)
        self.main.run(at, address(self.slope), address(y), at)
        return y


class LeakyReluGrad:
    """dx = dy * (1 where features > 0, else slope)"""

    def __init__(self, m: Maker, spec: Spec) -> None:
        post_ops = (Less((1,), (1,)), Maximum((1,), (1,)), Multiply((spec.size,), (1,)))
        self.main = _pass(m, lib.BINARY_MUL, spec.size, False, post_ops)
        self.slope = np.full(1, spec.slope, np.float32)

    def run(self, dy: np.ndarray, features: np.ndarray, over: int | None = None) -> np.ndarray:
        dy, features = contiguous(dy), contiguous(features)
        dx = _target((dy, features), over)
        self.main.run(address(features), address(_MINUS_ONE), address(dx), address(_ZERO), address(self.slope), address(dy))
        return dx


UNARY = (Relu, LeakyRelu)
GRADIENTS = (ReluGrad, LeakyReluGrad)


class Sum:
    """y = a + b + ..., from left to right"""

    def __init__(self, m: Maker, spec: Spec) -> None:
        self.main = _pass(m, lib.BINARY_ADD, spec.size, True, (Add((spec.size,), (1,)),) * (spec.arrays - 2))

    def run(self, *summands: np.ndarray, over: int | None = None) -> np.ndarray:
        a, b, *more = summands = tuple(map(contiguous, summands))
        y = _target(summands, over)
        self.main.run(address(a), address(b), address(y), *map(address, more))
        return y


def plan_for(
    kind: type, library: lib.Library, arrays: tuple[np.ndarray, ...], over: int | None = None, slope: float = 0.0
) -> Callable[..., Any] | None:
    """`kind(...).run` for arrays of one shape, or None. `over`: the input that the result is written into."""
    size, shape = arrays[0].size, arrays[0].shape
    if size < MIN_SIZE or any(a.shape != shape or a.dtype != FLOAT32 for a in arrays):
        return None
    plan = planned(kind, library, size * 4 * (len(arrays) + 1) / BYTES_PER_US, Spec(size, len(arrays), slope))
    if plan is None or over is None:
        return plan and plan.run
    return functools.partial(plan.run, over=over)
