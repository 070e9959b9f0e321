"""Elementwise ops on bfloat16: one pass of oneDNN, which computes in float32 and rounds once.

NumPy has no loops of its own for bfloat16, only those of ml_dtypes, element by element: ten times as long for a sum, thirty times for a tanh.
oneDNN's exponential makes infinity of NaN, so that one is not here. Small arrays, other broadcasts than those of a number, a row or a bias, and all other types are left to the declared kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.memory import address, aligned_empty
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.library import Library
from penstock.engines.onednn.plan import BYTES_PER_US, contiguous, planned
from penstock.engines.onednn.primitives import BFLOAT16, FLOAT32, Add, Eltwise, Less, Maker, Maximum, Multiply, PostOps
from penstock.graph.ir import Operation

Kernel = Callable[..., Any]

MIN_SIZE = 4096
"""Elements from which on a call is quicker than ml_dtypes' loops."""


class Spec(NamedTuple):
    """A pass over (rows, columns): `first` with `second` ("same", "row", "number" or "none"), then `post_ops`. `alg` is binary with a second
    operand, elementwise (with alpha and beta) without. The last post-ops may have operands of the full shape."""

    rows: int
    columns: int
    alg: int
    second: str = "none"
    alpha: float = 0.0
    beta: float = 0.0
    post_ops: PostOps = ()

    @property
    def microseconds(self) -> float:
        return self.rows * self.columns * 6 / BYTES_PER_US


class Pass:
    def __init__(self, m: Maker, spec: Spec) -> None:
        dims = (spec.rows, spec.columns)
        whole = m.md(dims, (spec.columns, 1), BFLOAT16)
        attr = m.attr(spec.post_ops, BFLOAT16)
        args = [(lib.ARG_SRC, whole)]
        if spec.second == "none":
            pd = m.pd("eltwise_forward", lib.FORWARD_INFERENCE, spec.alg, whole, whole, spec.alpha, spec.beta, attr)
        else:
            other = {"same": whole, "row": m.md((1, spec.columns), (spec.columns, 1), BFLOAT16), "number": m.md((1, 1), (1, 1), BFLOAT16)}[spec.second]
            pd = m.pd("binary", spec.alg, whole, other, whole, attr)
            args.append((lib.ARG_SRC_1, other))
        self.main = m.primitive(pd, [*args, (lib.ARG_DST, whole), *m.post_op_args(spec.post_ops, BFLOAT16)])

    def run(self, shape: tuple[int, ...], first: np.ndarray, *more: np.ndarray, second: np.ndarray | None = None) -> np.ndarray:
        """Contiguous arrays: the first operand, those of post-ops, and the second operand."""
        y = aligned_empty(shape, BFLOAT16)
        before = (address(first),) if second is None else (address(first), address(second))
        self.main.run(*before, address(y), *map(address, more))
        return y


class Cast:
    """Between float32 and bfloat16; a reorder."""

    def __init__(self, m: Maker, spec: tuple[int, np.dtype, np.dtype]) -> None:
        size, source, self.target = spec
        main = m.reorder(m.md((size,), (1,), source), m.md((size,), (1,), self.target))
        assert main is not None
        self.main = main

    def run(self, x: np.ndarray) -> np.ndarray:
        x = contiguous(x)
        y = aligned_empty(x.shape, self.target)
        self.main.run(address(x), address(y))
        return y


# -- kernels --------------------------------------------------------------------------------------------------------------


def _library(size: int) -> Library | None:
    library = lib.get() if size >= MIN_SIZE else None
    return library if library is not None and library.has_bf16 else None


def _unary(op: Operation, alg: str, alpha: float = 0.0, beta: float = 0.0) -> Kernel:
    def prepare(x: np.ndarray) -> Kernel | None:
        library = _library(x.size)
        spec = Spec(1, x.size, lib.ELTWISE[alg], "none", alpha, beta)
        plan: Any = planned(Pass, library, spec.microseconds, spec) if library else None
        return plan and (lambda x: plan.run(x.shape, contiguous(x)))

    return prepare


def _relu(op: Operation) -> Kernel:
    """(x < x), which is 0, then max(0, x): NaN stays NaN."""

    def prepare(x: np.ndarray) -> Kernel | None:
        library = _library(x.size)
        spec = Spec(1, x.size, lib.BINARY_LT, "same", post_ops=(Maximum((1, x.size), (x.size, 1)),))
        plan: Any = planned(Pass, library, spec.microseconds, spec) if library else None

        def run(x: np.ndarray) -> np.ndarray:
            x = contiguous(x)
            return plan.run(x.shape, x, x, second=x)

        return plan and run

    return prepare


def _gradient(post_ops_of: Callable[[Any], PostOps], alg: int, order: Callable[[Any, Any], tuple[Any, ...]]) -> Kernel:
    """A gradient out of two arrays of one shape: `order(a, b)` tells first, second and the operands of post-ops."""

    def prepare(a: np.ndarray, b: np.ndarray) -> Kernel | None:
        library = _library(a.size) if a.shape == b.shape else None
        full = ((1, a.size), (a.size, 1))
        spec = Spec(1, a.size, alg, "same", post_ops=post_ops_of(full))
        plan: Any = planned(Pass, library, spec.microseconds, spec) if library else None

        def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            first, second, *more = order(contiguous(a), contiguous(b))
            return plan.run(a.shape, first, *more, second=second)

        return plan and run

    return prepare


def _binary(op: Operation, alg: int, swaps: bool) -> Kernel:
    """`swaps`: whether operands may be exchanged."""

    def prepare(x: np.ndarray, y: np.ndarray) -> Kernel | None:
        kind, swapped = _second(x, y), False
        if kind is None and swaps:
            kind, swapped = _second(y, x), True
        full = y if swapped else x
        library = _library(full.size) if kind else None
        if library is None or kind is None:
            return None
        columns = full.shape[-1] if kind == "row" else full.size
        spec = Spec(full.size // columns, columns, alg, kind)
        plan = planned(Pass, library, spec.microseconds, spec)
        if plan is None:
            return None
        if swapped:
            return lambda x, y: plan.run(y.shape, contiguous(y), second=contiguous(x))
        return lambda x, y: plan.run(x.shape, contiguous(x), second=contiguous(y))

    return prepare


def _second(full: np.ndarray, other: np.ndarray) -> str | None:
    """How `other` stands beside `full`, if `full` has the result's shape."""
    if other.shape == full.shape:
        return "same"
    if other.size == 1 and other.ndim <= full.ndim:
        return "number"
    return "row" if full.ndim > 1 and other.shape == (*(1,) * (other.ndim - 1), full.shape[-1]) and 0 < other.ndim <= full.ndim else None


def _bias_add(op: Operation) -> Kernel | None:
    if op.attrs["data_format"] != b"NHWC":
        return None
    add = _binary(op, lib.BINARY_ADD, False)
    return lambda x, bias: add(x, bias) if x.ndim > 1 and bias.shape == x.shape[-1:] else None


def _cast(op: Operation) -> Kernel | None:
    source, target = op.attrs["SrcT"].np, op.attrs["DstT"].np
    if {source, target} != {BFLOAT16, FLOAT32}:
        return None

    def prepare(x: np.ndarray) -> Kernel | None:
        library = _library(x.size)
        plan = planned(Cast, library, x.size * 6 / BYTES_PER_US, (x.size, source, target)) if library else None
        return plan and plan.run

    return prepare


_PREPARERS: dict[str, Callable[[Operation], Kernel | None]] = {
    "Abs": lambda op: _unary(op, "abs"),
    "Add": lambda op: _binary(op, lib.BINARY_ADD, True),
    "AddV2": lambda op: _binary(op, lib.BINARY_ADD, True),
    "BiasAdd": _bias_add,
    "Cast": _cast,
    "Mul": lambda op: _binary(op, lib.BINARY_MUL, True),
    "Neg": lambda op: _unary(op, "linear", -1.0),
    "RealDiv": lambda op: _binary(op, lib.BINARY_DIV, False),
    "Relu": _relu,
    "ReluGrad": lambda op: _relu_grad,
    "Sigmoid": lambda op: _unary(op, "sigmoid"),
    "SigmoidGrad": lambda op: _sigmoid_grad,
    "Sqrt": lambda op: _unary(op, "sqrt"),
    "Square": lambda op: _unary(op, "square"),
    "Sub": lambda op: _binary(op, lib.BINARY_SUB, False),
    "Tanh": lambda op: _unary(op, "tanh"),
    "TanhGrad": lambda op: _tanh_grad,
}

# dy * (1 - y * y); dy * (y - y * y); dy * (-x < 0)
_tanh_grad = _gradient(lambda full: (Eltwise("linear", -1.0, 1.0), Multiply(*full)), lib.BINARY_MUL, lambda y, dy: (y, y, dy))
_sigmoid_grad = _gradient(lambda full: (Eltwise("linear", -1.0), Add(*full), Multiply(*full)), lib.BINARY_MUL, lambda y, dy: (y, y, y, dy))
_ZERO = np.zeros(1, np.float32)
_relu_grad = _gradient(lambda full: (Eltwise("linear", -1.0), Less((1, 1), (1, 1), FLOAT32), Multiply(*full)), lib.BINARY_MAX, lambda dy, x: (x, x, _ZERO, dy))


def maker(op: Operation, fallback: Kernel) -> Kernel | None:
    """The kernel of an elementwise op on bfloat16."""
    from penstock.engines.onednn.binding import remembering, shapes

    prepare = _PREPARERS[op.type](op)
    return None if prepare is None else remembering(op, fallback, shapes, prepare)
