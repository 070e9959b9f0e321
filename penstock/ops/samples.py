"""Sample inputs for op declarations: small recipes that tests turn into arrays of whatever type they need.

A recipe without a dtype adapts to each type that the op allows; the same seed always gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Recipe:
    """How to make one input array: `make(dtype, seed)`."""

    __slots__ = ("build", "dtype", "text")

    def __init__(self, build: Callable[[np.random.Generator], np.ndarray], dtype: Any, text: str) -> None:
        self.build = build
        self.dtype = dtype
        self.text = text

    def make(self, dtype: Any = None, seed: int = 0) -> np.ndarray:
        """The array, as the recipe's own dtype if it has one, else as NumPy `dtype` (default float32)."""
        array = self.build(np.random.default_rng(seed))
        want = self.dtype if self.dtype is not None else dtype if dtype is not None else np.float32
        if array.dtype == object or want is object:
            return array
        want = np.dtype(want)
        if want.kind == "c":
            # A complex sample needs an imaginary part; the same recipe with other numbers gives one.
            return (array + 1j * self.build(np.random.default_rng(seed + 1))).astype(want)
        if want.kind == "b":
            return np.asarray(array).astype(np.float64) > 0
        if want.kind == "u":
            array = np.abs(array)
        return np.asarray(array).astype(want)

    def __repr__(self) -> str:
        return self.text


def normal(*shape: int, dtype: Any = None, scale: float = 1.0) -> Recipe:
    """Standard normal numbers (times `scale`)."""
    return Recipe(lambda r: r.standard_normal(shape) * scale, dtype, f"normal{shape}")


def uniform(*shape: int, lo: float = 0.0, hi: float = 1.0, dtype: Any = None) -> Recipe:
    """Uniform numbers in [lo, hi)."""
    return Recipe(lambda r: r.uniform(lo, hi, shape), dtype, f"uniform{shape}[{lo},{hi})")


def ints(*shape: int, lo: int = 0, hi: int = 10, dtype: Any = None) -> Recipe:
    """Whole numbers in [lo, hi)."""
    return Recipe(lambda r: r.integers(lo, hi, shape), dtype, f"ints{shape}[{lo},{hi})")


def bools(*shape: int) -> Recipe:
    """True and False at random."""
    return Recipe(lambda r: r.integers(0, 2, shape).astype(bool), np.bool_, f"bools{shape}")


def strings(values: Any) -> Recipe:
    """A string tensor from nested lists of str or bytes."""

    def build(_: np.random.Generator) -> np.ndarray:
        array = np.array(values, dtype=object)
        flat = [v.encode() if isinstance(v, str) else v for v in array.ravel()]
        result = np.empty(array.shape, dtype=object)
        result.ravel()[:] = flat
        return result

    return Recipe(build, object, f"strings({values!r})")


def many(values: list[Any], count: int = 80) -> Recipe:
    """These strings over and over, as many as kernels take together."""
    return Recipe(strings((values * count)[:count]).build, object, f"many({values!r})")


TEXTS = ["äb C", "", "a,b  c;,", "\0x", "東京 😀", "x" * 100, "AbC 12"]
"""For `many`: well formed, with characters of one to four bytes."""
NO_TEXTS = [*TEXTS, b"\xff\xfe", b"c\xe2\x82", b"\x82\xac"]


def empty(*shape: int, dtype: Any = None) -> Recipe:
    """An array with no elements (one of the sizes is 0)."""
    return Recipe(lambda r: np.zeros(shape), dtype, f"empty{shape}")


def arr(values: Any, dtype: Any = None) -> Recipe:
    """These values; adapts to the op's types unless `dtype` is given."""
    return Recipe(lambda r: np.array(values), dtype, f"arr({values!r})")


class Program:
    """A sample that is a small program: `fn(tf)` builds a graph with the public API and returns what to fetch."""

    __slots__ = ("fn", "runs")

    def __init__(self, fn: Callable[[Any], Any], runs: int = 1) -> None:
        self.fn = fn
        self.runs = runs

    def __repr__(self) -> str:
        return f"program({getattr(self.fn, '__name__', 'fn')})"


def program(fn: Callable[[Any], Any], runs: int = 1) -> Program:
    """A program sample; `runs` > 1 compares that many successive runs of the fetches."""
    return Program(fn, runs)
