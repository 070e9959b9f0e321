"""Products of matrices that wait for the one who reads them.

The gradient of a weight is a product that mostly goes into one training op and nowhere else. `var -= lr * a'b` is one pass over the variable if the
product is added where it belongs, and three if it comes as an array: so the training op gets the factors (`Product`), and an engine that knows better
than to multiply first looks at them. For everybody else it is an array: `np.asarray(product)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.ops import training

FLOAT32 = np.dtype(np.float32)
MOST_HELD = 2
"""The factors may have so many times the elements of their product: they live on until somebody reads it."""


class Product:
    """`a b`, either of which may be read across; two float32 matrices that fit. `kernel(a, b)` computes it."""

    __slots__ = ("a", "across", "b", "kernel", "shape")

    ndim = 2
    dtype = FLOAT32

    def __init__(self, kernel: Callable[..., Any], a: np.ndarray, b: np.ndarray, across: tuple[bool, bool], shape: tuple[int, int]) -> None:
        self.kernel = kernel
        self.a, self.b = a, b
        self.across = across
        self.shape = shape

    @property
    def inner(self) -> int:
        """The length of the sums."""
        return self.a.shape[0 if self.across[0] else 1]

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.kernel(self.a, self.b), dtype)


class Later:
    """Stands for the kernel of a product whose one reader is a training op; `longest`: that op can do with factors whose sums are no longer."""

    __slots__ = ("across", "kernel", "longest")

    def __init__(self, kernel: Callable[..., Any], across: tuple[bool, bool], longest: float = math.inf) -> None:
        self.kernel = kernel
        self.across = across
        self.longest = longest

    def __call__(self, a: Any, b: Any) -> Any:
        """A Product where an engine may want one, else the result, or the kernel's error."""
        if training.engine is not None and a.ndim == b.ndim == 2 and a.dtype == b.dtype == FLOAT32:
            across_a, across_b = self.across
            rows, inner = a.shape[::-1] if across_a else a.shape
            columns, other = b.shape if across_b else b.shape[::-1]
            size = rows * columns
            if inner == other and inner <= self.longest and size > training.ENGINE_FROM and inner * (rows + columns) <= MOST_HELD * size:
                return Product(self.kernel, a, b, self.across, (rows, columns))
        return self.kernel(a, b)
