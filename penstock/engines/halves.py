"""Kernels for half precision (float16) and bfloat16, of which NumPy computes one number at a time.

Arithmetic is one loop in machine code that reads halves, computes in float32 and rounds once, as the declared kernels do (`ops.native`). What has no formula
here, products of matrices above all, gets its inputs widened to float32, where the other engines are at home. `install()` offers all of it to `graph.bind`;
without machine code the declared kernels stay.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.graph.bind import FAST, engine_is_on, offer
from penstock.graph.ir import Operation
from penstock.ops import native
from penstock.ops.kernels.numeric import HALF, SINGLE, narrow, widen
from penstock.ops.kernels.short_rows import fold_rows
from penstock.ops.native import maths
from penstock.ops.reductions import axes_tuple

Kernel = Callable[..., Any]

SMALLEST = 512
"""Elements from which on a loop is quicker than NumPy."""

FORMULAS: dict[str, Kernel] = {
    "Abs": np.abs, "Add": np.add, "AddV2": np.add, "BiasAdd": np.add, "Ceil": np.ceil, "DivNoNan": lambda x, y: np.where(y == 0, 0.0, x / y),
    "EluGrad": lambda dy, y: np.where(y < 0, (y + 1.0) * dy, dy), "Exp": np.exp, "Expm1": np.expm1, "Floor": np.floor, "Inv": lambda x: 1.0 / x, "Log": np.log, "Log1p": np.log1p,
    "Maximum": np.maximum, "Minimum": np.minimum, "Mul": np.multiply, "MulNoNan": lambda x, y: np.where(y == 0, 0.0, x * y), "Neg": np.negative, "RealDiv": np.divide,
    "Reciprocal": lambda x: 1.0 / x, "ReciprocalGrad": lambda y, dy: np.where(dy == 0, 0.0, -dy * np.square(y)), "Relu": lambda x: np.maximum(x, 0.0),
    "Relu6": lambda x: np.minimum(np.maximum(x, 0.0), 6.0), "Relu6Grad": lambda dy, x: dy * np.where((x > 0) & (x < 6), 1.0, 0.0),
    "ReluGrad": lambda dy, x: dy * np.where(x > 0, 1.0, 0.0), "Rint": np.rint, "Round": np.rint, "Rsqrt": lambda x: 1.0 / np.sqrt(x),
    "RsqrtGrad": lambda y, dy: np.where(dy == 0, 0.0, dy * -0.5 * y * np.square(y)), "Sigmoid": lambda x: 1.0 / (np.exp(-x) + 1.0), "SigmoidGrad": lambda y, dy: dy * y * (1.0 - y),
    "Sign": lambda x: np.where(x == 0, 0.0, np.sign(x)), "SoftplusGrad": lambda dy, x: dy / (np.exp(-x) + 1.0), "Softsign": lambda x: x / (1.0 + np.abs(x)),
    "Sqrt": np.sqrt, "SqrtGrad": lambda y, dy: np.where(dy == 0, 0.0, dy * 0.5 / y), "Square": np.square, "Sub": np.subtract, "Tanh": np.tanh, "TanhGrad": lambda y, dy: dy * (1.0 - y * y),
}  # fmt: skip
TRUTHS: dict[str, Kernel] = {
    "Equal": np.equal, "Greater": np.greater, "GreaterEqual": np.greater_equal, "IsFinite": np.isfinite, "IsInf": np.isinf, "IsNan": np.isnan, "Less": np.less,
    "LessEqual": np.less_equal, "NotEqual": np.not_equal,
}  # fmt: skip

ONE_ROUNDING = frozenset(("Add", "AddV2", "Maximum", "Minimum", "Mul", "RealDiv", "Sub", *TRUTHS))
"""What is one operation, whatever is broadcast."""
WIDENED = (
    "Acos", "Acosh", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Pow", "Sin", "Sinh", "Tan",
)  # fmt: skip
"""Quicker with two more passes. None of them rounds where halves would not."""

EXTREMES = {"Max": np.maximum, "Min": np.minimum}

PRODUCTS = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "MatMul")


_NARROW = frozenset((dtypes.float16, dtypes.bfloat16))


def install() -> None:
    """Behind the other engines: they are asked first."""
    for name in (*FORMULAS, *TRUTHS, "AddN", "LeakyRelu", "LeakyReluGrad", "SquaredDifference"):
        offer(name, "native", _elementwise, only=_NARROW)
    for name in WIDENED:
        offer(name, "native", _widened, only=_NARROW)
    for name in EXTREMES:
        offer(name, "native", _extreme, only=_NARROW)
    for name in PRODUCTS:
        offer(name, "native", _product)


_loops: dict[tuple[Any, ...], native.Loop] = {}
MOST_SUMMANDS = 4
"""A loop has no more pointers."""


def _loop(op: Operation) -> native.Loop | None:
    """The loop of a node."""
    kind, result, key = op.type, None, (op.type,)
    if kind in TRUTHS:
        formula, result = TRUTHS[kind], np.bool_
    elif kind == "AddN":
        if not 1 < len(op.inputs) <= MOST_SUMMANDS:
            return None
        formula, key = (lambda first, *others: functools.reduce(np.add, others, first)), (kind, len(op.inputs))
    elif kind in ("LeakyRelu", "LeakyReluGrad"):
        slope = float(np.float32(op.attrs["alpha"]))
        key = (kind, slope)
        formula = (lambda x: np.where(x > 0, x, x * slope)) if kind == "LeakyRelu" else (lambda dy, x: np.where(x > 0, dy, dy * slope))
    elif kind == "SquaredDifference":  # two operations, as NumPy's and TF's
        type = "f16" if op.attrs["T"] is dtypes.float16 else "bf16"
        formula, key = (lambda x, y: np.square(maths.rounded(x - y, type))), (kind, type)
    else:
        formula = FORMULAS[kind]
    return _loops.setdefault(key, native.Loop(formula, "f32", result=result))


def _elementwise(op: Operation, kernel: Kernel) -> Kernel | None:
    if op.attrs.get("data_format", b"NHWC") != b"NHWC" or not native.available():
        return None
    loop = _loop(op)
    if loop is None:
        return None
    fits = _FITS.get(op.type, _never if op.type.endswith("Grad") else _is_row)

    def run(*inputs: Any) -> Any:
        shapes = [x.shape for x in inputs]
        if max(x.size for x in inputs) < SMALLEST:
            return kernel(*inputs)
        if any(shape != shapes[0] and not fits(shapes[0], shape) for shape in shapes[1:]) and not (op.type in ONE_ROUNDING and _broadcasts(shapes)):
            return kernel(*inputs)
        found = loop.run(*inputs)
        return kernel(*inputs) if found is None else found

    return run


def _is_row(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether one of two shapes is a number or a row of the other; anything else is left to the kernel, and so are errors."""
    return second == () or first == () or (len(first) > 1 and second == first[-1:]) or (len(second) > 1 and first == second[-1:])


def for_other_shapes(op: Operation, kernel: Kernel) -> Kernel:
    """The loop of an op that rounds once, behind an engine that does not broadcast; or the kernel that is given."""
    return (_elementwise(op, kernel) if op.type in ONE_ROUNDING and engine_is_on("native") else None) or kernel


def _broadcasts(shapes: list[tuple[int, ...]]) -> bool:
    """Copies of halves in the result's shape are small next to arrays of float32; errors are left to the kernel."""
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def _never(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    return False


_FITS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {"AddN": _never, "BiasAdd": lambda first, second: len(first) > 1 and second == first[-1:]}


def _widened(op: Operation, kernel: Kernel) -> Kernel | None:
    if not native.available():
        return None
    wide = _in_single(op, kernel)
    return lambda *inputs: kernel(*inputs) if max(x.size for x in inputs) < SMALLEST else wide(*inputs)


def _extreme(op: Operation, kernel: Kernel) -> Kernel | None:
    """Of rows as they are, other extremes in float32."""
    wide = _widened(op, kernel)
    if wide is None:
        return None
    ufunc, keep_dims = EXTREMES[op.type], op.attrs["keep_dims"]

    def run(x: Any, axes: Any) -> Any:
        found = fold_rows(ufunc, x, axes_tuple(x, axes), keep_dims)
        return wide(x, axes) if found is None else found

    return run


def _in_single(op: Operation, kernel: Kernel) -> Kernel:
    """The kernel on widened inputs, its result rounded."""
    dtype = op.attrs["T"].np

    def run(*inputs: Any) -> Any:
        result = kernel(*(widen(x) if x.dtype == dtype else x for x in inputs))
        return narrow(np.asarray(result), dtype) if result.dtype == SINGLE else result

    return run


def _is_half(op: Operation) -> bool:
    attrs = op.attrs
    return attrs.get("T") is dtypes.float16 or (attrs.get("Ta") is dtypes.float16 and attrs.get("Tb") is dtypes.float16 is attrs.get("Tout"))


class _InSingle:
    """A node as it would be in float32."""

    def __init__(self, op: Operation) -> None:
        self._op = op
        self.attrs = {name: dtypes.float32 if value is dtypes.float16 else value for name, value in op.attrs.items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)


def _product(op: Operation, kernel: Kernel) -> Kernel | None:
    """The product in float32, by whatever engine takes it."""
    if not _is_half(op):
        return None
    makers = (offer.maker for engine, offer in FAST[op.type].items() if engine != "native" and engine_is_on(engine))
    inner = next((found for maker in makers if (found := maker(_InSingle(op), kernel)) is not None), kernel)  # type: ignore[arg-type]
    return lambda a, b: narrow(np.asarray(inner(widen(a), widen(b))), HALF)
