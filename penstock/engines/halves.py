"""Kernels for half precision (float16), of which NumPy computes one number at a time.

Arithmetic is one loop in machine code that reads halves, computes in float32 and rounds once, as NumPy does (`ops.native`). What has no formula here, products
of matrices above all, gets its inputs widened to float32, where the other engines are at home. `install()` offers all of it to `graph.bind`; without machine
code the declared kernels stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.graph.bind import FAST, engine_is_on, offer
from penstock.graph.ir import Operation
from penstock.ops import native
from penstock.ops.kernels.numeric import HALF, SINGLE, narrow, widen

Kernel = Callable[..., Any]

SMALLEST = 512
"""Elements from which on a loop is quicker than NumPy."""

FORMULAS: dict[str, Kernel] = {
    "Abs": np.abs, "Add": np.add, "AddV2": np.add, "BiasAdd": np.add, "Maximum": np.maximum, "Minimum": np.minimum, "Mul": np.multiply, "Neg": np.negative,
    "RealDiv": np.divide, "Relu": lambda x: np.maximum(x, 0.0), "ReluGrad": lambda dy, x: dy * np.where(x > 0, 1.0, 0.0), "Sqrt": np.sqrt,
    "Square": np.square, "Sub": np.subtract,
}  # fmt: skip

WIDENED = (
    "ArgMax", "ArgMin", "Equal", "Exp", "Greater", "GreaterEqual", "Less", "LessEqual", "Log", "Max", "Min", "NotEqual", "Sigmoid",
)  # fmt: skip
"""Quicker with two more passes. None of them rounds where halves would not."""

PRODUCTS = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "MatMul")


def install() -> None:
    """Behind the other engines: they are asked first."""
    for name in FORMULAS:
        offer(name, "native", _elementwise)
    for name in WIDENED:
        offer(name, "native", _widened)
    for name in PRODUCTS:
        offer(name, "native", _product)


def _is_half(op: Operation) -> bool:
    attrs = op.attrs
    return attrs.get("T") is dtypes.float16 or (attrs.get("Ta") is dtypes.float16 and attrs.get("Tb") is dtypes.float16 is attrs.get("Tout"))


_loops: dict[str, native.Loop] = {}


def _elementwise(op: Operation, kernel: Kernel) -> Kernel | None:
    if not _is_half(op) or op.attrs.get("data_format", b"NHWC") != b"NHWC" or not native.available():
        return None
    loop = _loops.setdefault(op.type, native.Loop(FORMULAS[op.type], "f32"))
    strict = op.type in ("BiasAdd", "ReluGrad")

    def run(*inputs: Any) -> Any:
        shapes = [x.shape for x in inputs]
        if max(x.size for x in inputs) < SMALLEST or (len(shapes) == 2 and shapes[0] != shapes[1] and not _is_row(shapes[0], shapes[1], strict)):
            return kernel(*inputs)
        found = loop.run(*inputs)
        return kernel(*inputs) if found is None else found

    return run


def _is_row(first: tuple[int, ...], second: tuple[int, ...], strict: bool) -> bool:
    """Whether one of two shapes is a number or a row of the other; anything else is left to the kernel, and so are errors."""
    if strict:
        return len(first) > 1 and second == first[-1:]
    return second == () or first == () or (len(first) > 1 and second == first[-1:]) or (len(second) > 1 and first == second[-1:])


def _widened(op: Operation, kernel: Kernel) -> Kernel | None:
    if not _is_half(op) or not native.available():
        return None

    def run(*inputs: Any) -> Any:
        if max(x.size for x in inputs) < SMALLEST:
            return kernel(*inputs)
        result = kernel(*(widen(x) if x.dtype == HALF else x for x in inputs))
        return narrow(result, HALF) if result.dtype == SINGLE else result

    return run


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
    makers = (maker for engine, maker in FAST[op.type].items() if engine != "native" and engine_is_on(engine))
    inner = next((found for maker in makers if (found := maker(_InSingle(op), kernel)) is not None), kernel)  # type: ignore[arg-type]
    return lambda a, b: narrow(np.asarray(inner(widen(a), widen(b))), HALF)
