"""Training formulas as loops in machine code: one pass over a variable and its slots, where NumPy takes three to fifteen.

A bias of 64 numbers takes NumPy half as many microseconds as its formula has operations; large variables go through memory once. Every operation is rounded
as NumPy rounds it (`kernels.optimizers`), so that it makes no difference to the numbers who computes; only what is too small to be a normal number is zero,
as in TensorFlow: slots whose gradients have become zero would make the loop many times as slow.

A formula gets the variable, its slots, the gradient, and numbers that are the same for all elements, and gives the new variable and slots. What follows
from numbers alone (Adam's rate) is computed before. The loop goes over rows of the gradient, in order, and updates the row that an index names for each:
all of a sparse update without copies of the rows; a dense one has a single row.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.ops import native
from penstock.ops.kernels import optimizers as f
from penstock.ops.kernels import threads
from penstock.ops.native import calls
from penstock.ops.native.vectors import Vec, select

PATIENCE = 200
"""Updates after which a loop is written: that takes as long as so many of them."""
SHORT = 1 << 13
"""Elements up to which a loop keeps the interpreter's lock: to give it away and take it back would take as long where other threads want it."""

_TYPES = {"f": "f32", "d": "f64"}


class _Loop(NamedTuple):
    """`short(table)` keeps the interpreter's lock, `long(table)` gives it away; `cost`: instructions for each element."""

    address: int
    short: Callable[[bytes], None]
    long: Callable[[bytes], None]
    pack: Callable[..., bytes]
    cost: float


class _Formula:
    """`new(*arrays, gradient, *numbers)` gives the new arrays: the variable and its slots. Below `least` elements NumPy is as quick with a single variable."""

    def __init__(self, new: Callable[..., tuple[Vec, ...]], n_arrays: int, n_numbers: int, least: int = 1) -> None:
        self.new, self.n_arrays, self.n_numbers, self.least = new, n_arrays, n_numbers, least
        self.made: dict[str, _Loop | None] = {}

    def make(self, letter: str) -> _Loop | None:
        """The loop for a type of elements."""
        if not native.available():  # not for good: PENSTOCK_ENGINES may change
            return None
        type = _TYPES.get(letter)
        loop = None
        if type is not None:
            from penstock.ops.native.executable import into_memory
            from penstock.ops.native.update_code import UpdateCode

            code = UpdateCode(self.new, self.n_arrays, self.n_numbers, type)
            address = into_memory(code.write())
            short, long = (kind(None, ctypes.c_char_p)(address) for kind in (ctypes.PYFUNCTYPE, ctypes.CFUNCTYPE))
            pack = struct.Struct(f"<{5 + self.n_arrays}q{self.n_numbers}{letter}").pack
            loop = _Loop(address, short, long, pack, len(code.nodes) / code.lanes + self.n_arrays)
        self.made[letter] = loop
        return loop


def _descent(var: Vec, g: Vec, rate: Vec) -> tuple[Vec, ...]:
    return (var - g * rate,)


def _momentum(var: Vec, accum: Vec, g: Vec, rate: Vec, momentum: Vec) -> tuple[Vec, ...]:
    accum = accum * momentum + g
    return var - accum * rate, accum


def _nesterov(var: Vec, accum: Vec, g: Vec, rate: Vec, momentum: Vec) -> tuple[Vec, ...]:
    accum = accum * momentum + g
    return var - (g * rate + accum * momentum * rate), accum


def _adagrad(var: Vec, accum: Vec, g: Vec, rate: Vec) -> tuple[Vec, ...]:
    accum = accum + g * g
    return var - g * rate * (1.0 / np.sqrt(accum)), accum


def _adam(var: Vec, m: Vec, v: Vec, g: Vec, rate: Vec, rest1: Vec, rest2: Vec, epsilon: Vec) -> tuple[Vec, ...]:
    m = m + (g - m) * rest1
    v = v + (g * g - v) * rest2
    return var - m * rate / (np.sqrt(v) + epsilon), m, v


def _rmsprop(var: Vec, ms: Vec, mom: Vec, g: Vec, rate: Vec, rest: Vec, momentum: Vec, epsilon: Vec) -> tuple[Vec, ...]:
    ms = ms + (g * g - ms) * rest
    mom = mom * momentum + g * rate / np.sqrt(epsilon + ms)
    return var - mom, ms, mom


def _ftrl(var: Vec, accum: Vec, linear: Vec, g: Vec, rate: Vec, l1: Vec, l2: Vec) -> tuple[Vec, ...]:
    """With the usual power of -0.5; `l2` is twice that."""
    new, linear, below = _ftrl_terms(var, accum, linear, g, rate, l2)
    above = select(linear < 0.0, -l1, l1) - linear
    return select(np.abs(linear) > l1, above / below, 0.0), new, linear


def _sparse_ftrl(var: Vec, accum: Vec, linear: Vec, g: Vec, rate: Vec, l1: Vec, l2: Vec) -> tuple[Vec, ...]:
    new, linear, below = _ftrl_terms(var, accum, linear, g, rate, l2)
    above = (-l1).op("max", l1.op("min", linear)) - linear  # in this order what is NaN stays so
    return above / below, new, linear


def _ftrl_terms(var: Vec, accum: Vec, linear: Vec, g: Vec, rate: Vec, l2: Vec) -> tuple[Vec, Vec, Vec]:
    """The new accumulator and linear term, and what the variable is divided by."""
    new = accum + g * g
    root = np.sqrt(new)
    return new, linear + (g - (root - np.sqrt(accum)) / rate * var), root / rate + l2


_DESCENT = _Formula(_descent, 1, 1, least=4096)
_MOMENTUM, _NESTEROV = _Formula(_momentum, 2, 2), _Formula(_nesterov, 2, 2)
_ADAGRAD, _ADAM, _RMSPROP = _Formula(_adagrad, 2, 1), _Formula(_adam, 3, 4), _Formula(_rmsprop, 3, 4)
_FTRL, _SPARSE_FTRL = _Formula(_ftrl, 3, 3), _Formula(_sparse_ftrl, 3, 3)


Prepared = tuple[_Formula, Any, Sequence[Any]]
"""The formula, the gradient, and the numbers."""
_last_adam: tuple[Any, ...] = ()
"""Arguments and numbers of the last update: a step has many with the same ones."""


def _of_adam(beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any, grad: Any, *, use_nesterov: bool) -> Prepared | None:
    global _last_adam
    if use_nesterov:
        return None
    last = _last_adam
    if not last or last[0] is not beta1_power or last[1] is not beta2_power or last[2] is not lr or last[3] is not beta1 or last[4] is not beta2:
        one = beta1_power.dtype.type(1)
        rate = f.adam_rate(lr, beta1_power, beta2_power)
        _last_adam = last = (beta1_power, beta2_power, lr, beta1, beta2, rate, one - beta1, one - beta2)
    return _ADAM, grad, (*last[5:], epsilon)


def _of_rmsprop(lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any) -> Prepared:
    return _RMSPROP, grad, (lr, rho.dtype.type(1) - rho, momentum, epsilon)


def _of_ftrl(grad: Any, lr: Any, l1: Any, l2: Any, lr_power: Any, *, multiply_linear_by_lr: bool) -> Prepared | None:
    if multiply_linear_by_lr or lr_power != -0.5 or not l1 >= 0 or not l2 >= 0 or not lr > 0:
        return None
    return _FTRL, grad, (lr, l1, l2.dtype.type(2) * l2)


def _of_sparse_ftrl(*rest: Any, multiply_linear_by_lr: bool) -> Prepared | None:
    dense = _of_ftrl(*rest, multiply_linear_by_lr=multiply_linear_by_lr)
    return dense and (_SPARSE_FTRL, *dense[1:])


_PREPARED: dict[Callable[..., None], Callable[..., Prepared | None]] = {
    f.gradient_descent: lambda alpha, delta: (_DESCENT, delta, (alpha,)),
    f.momentum: lambda lr, grad, momentum, *, use_nesterov: (_NESTEROV if use_nesterov else _MOMENTUM, grad, (lr, momentum)),
    f.sparse_momentum: lambda lr, grad, momentum, *, use_nesterov: None if use_nesterov else (_MOMENTUM, grad, (lr, momentum)),
    f.adagrad: lambda lr, grad, *, update_slots: (_ADAGRAD, grad, (lr,)) if update_slots else None,
    f.adam: _of_adam,
    f.rmsprop: _of_rmsprop,
    f.ftrl: _of_ftrl,
    f.sparse_ftrl: _of_sparse_ftrl,
}

_NONE = np.zeros(1, np.int64)
"""The indices of a dense update."""


class Batch:
    """Dense updates of short arrays by one formula with the same numbers: `add` takes a note of one, `run` computes all of them in one call."""

    def __init__(self, formula: _Formula, numbers: Sequence[Any]) -> None:
        self._formula, self._numbers = formula, numbers
        self._loop: _Loop | None = None
        self._tables: list[bytes] = []
        self._size = 0

    def add(self, arrays: Sequence[np.ndarray], gradient: Any) -> bool:
        """Whether the loop does it. Nobody else may have the arrays until it is done."""
        if gradient.__class__ is not np.ndarray or not gradient.flags.c_contiguous:
            return False
        shape, size, letter = gradient.shape, gradient.size, arrays[0].dtype.char
        loop = self._formula.made[letter] if letter in self._formula.made else self._formula.make(letter)
        if loop is None or not 0 < size < SHORT or (self._tables and loop is not self._loop):
            return False
        for array in arrays:
            if array.shape != shape:
                return False
        if len(arrays) > 1 and len({*map(id, arrays)}) < len(arrays):
            return False
        self._tables.append(loop.pack(1, size, 0, id(_NONE), *map(id, arrays), id(gradient), *self._numbers))
        self._loop = loop
        self._size += size
        return True

    @property
    def is_full(self) -> bool:
        """So that others get the interpreter's lock in between."""
        return self._size > 4 * SHORT

    def run(self) -> bool:
        tables, loop = self._tables, self._loop
        if loop is not None:
            if len(tables) == 1:
                loop.short(tables[0])
            else:
                calls.for_each()(b"".join(tables), len(tables), len(tables[0]), loop.address)
            self._tables, self._loop, self._size = [], None, 0
        return True


class Updates:
    """The loops of one formula of `kernels.optimizers`. Both methods say whether they have done it; if not, nothing is changed.

    Arrays are contiguous, writable, of one type and shape; `rest` are the formula's other arguments.
    """

    def __init__(self, prepared: Callable[..., Prepared | None]) -> None:
        self._prepared = prepared
        self._patience = PATIENCE

    def dense(self, arrays: Sequence[np.ndarray], rest: Sequence[Any], attrs: dict[str, Any]) -> bool:
        found = self._found(arrays, rest, attrs)
        if found is None:
            return False
        loop, gradient, numbers = found
        size = gradient.size
        pieces = min(8, int(size * loop.cost) // native.PIECE) & ~1  # an even number: there are two threads or more
        if pieces < 2:
            run = loop.short if size < SHORT else loop.long
            run(loop.pack(1, size, 0, id(_NONE), *map(id, arrays), id(gradient), *numbers))
            return True
        flat = [a.reshape(-1) for a in (*arrays, gradient)]
        step = (size // pieces // 64 + 1) * 64

        def work(i: int) -> None:
            part = [a[i * step : (i + 1) * step] for a in flat]
            loop.long(loop.pack(1, part[0].size, 0, id(_NONE), *map(id, part), *numbers))

        threads.parallel_for(-(-size // step), work)
        return True

    def of(self, rest: Sequence[Any], attrs: dict[str, Any]) -> Batch | None:
        """Updates with numbers that stay as they are, of short arrays; `rest` has anything in the gradient's place."""
        prepared = self._prepared(*rest, **attrs) if self._patience <= 0 else None
        return None if prepared is None else Batch(prepared[0], prepared[2])

    def of_rows(self, rest: Sequence[Any], attrs: dict[str, Any]) -> Callable[[Sequence[np.ndarray], np.ndarray, np.ndarray], bool] | None:
        """`update(arrays, indices, gradient)` likewise, for the rows that indices of type int64 name, all within the arrays."""
        prepared = self._prepared(*rest, **attrs) if self._patience <= 0 else None
        if prepared is None:
            return None
        formula, _, numbers = prepared

        def update(arrays: Sequence[np.ndarray], indices: np.ndarray, gradient: np.ndarray) -> bool:
            first = arrays[0]
            shape, size, letter = first.shape, gradient.size, first.dtype.char
            loop = formula.made[letter] if letter in formula.made else formula.make(letter)
            if loop is None or not formula.least <= size < SHORT or len(set(map(id, arrays))) < len(arrays):
                return False
            for array in arrays:
                if array.shape != shape:
                    return False
            n = indices.size
            width = size // n
            loop.short(loop.pack(n, width, width * first.itemsize, id(indices), *map(id, arrays), id(gradient), *numbers))
            return True

        return update

    def rows(self, arrays: Sequence[np.ndarray], indices: np.ndarray, rest: Sequence[Any], attrs: dict[str, Any]) -> bool:
        """The rows that `indices` names, at least one, all within the arrays. The gradient has a row for each."""
        found = self._found(arrays, rest, attrs)
        if found is None:
            return False
        loop, gradient, numbers = found
        indices = np.ascontiguousarray(indices, np.int64)
        width = gradient[0].size
        run = loop.short if gradient.size < SHORT else loop.long
        run(loop.pack(indices.size, width, width * gradient.itemsize, id(indices), *map(id, arrays), id(gradient), *numbers))
        return True

    def _found(self, arrays: Sequence[np.ndarray], rest: Sequence[Any], attrs: dict[str, Any]) -> tuple[_Loop, np.ndarray, Sequence[Any]] | None:
        """The loop, the gradient as it wants it, and the numbers."""
        if self._patience > 0:
            self._patience = 0 if threads.is_deterministic() else self._patience - 1  # oneDNN, which computes meanwhile, rounds otherwise
            if self._patience:
                return None
        prepared = self._prepared(*rest, **attrs)
        if prepared is None:
            return None
        formula, gradient, numbers = prepared
        letter = arrays[0].dtype.char
        loop = formula.made[letter] if letter in formula.made else formula.make(letter)
        if loop is None or gradient.__class__ is not np.ndarray or gradient.size < formula.least:  # no array: a product that has not been computed
            return None
        if len(set(map(id, arrays))) < len(arrays):  # one variable in two places: what is written to one is read from the other
            return None
        return loop, gradient if gradient.flags.c_contiguous else np.ascontiguousarray(gradient), numbers


def updates(formula: Callable[..., None]) -> Updates | None:
    """The loops of a formula, if it can have some."""
    prepared = _PREPARED.get(formula)
    return None if prepared is None else Updates(prepared)
