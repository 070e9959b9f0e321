"""Dense updates of large variables: TF's training formulas, in place, with all threads, without temporaries.

oneDNN's binary primitive computes `src0 * src1`, then a chain of post-ops, and adds what stood in the destination. One such pass is one
line of a formula. Numbers that belong to the optimizer's definition (decay rates, epsilon) are compiled in; those that may change from
step to step (learning rates, Adam's bias correction) are operands.

    m   = m + (grad - m) * (1 - beta1)                       grad - m             * (1 - beta1), + m
    v   = v + (grad * grad - v) * (1 - beta2)                grad * grad          - v, * (1 - beta2), + v
    var = var - alpha * m / (sqrt(v) + epsilon)              v * [1]              sqrt, + epsilon, 1 / x, * [-alpha], * m, + var

The formulas are TF's as they stand, so that what is infinite or no number comes out as it does there: `m + (grad - m) * rest` is NaN once m is infinite.
For the same reason nothing is multiplied by a zero that is compiled in, or handed to BLAS: both take that for "leave out".

Against NumPy's twelve passes in tiles: less than half of the time for 64 K elements (one thread), a sixth for a million (two threads).

A gradient that is a product (`engines.late`) is added where it belongs by one sgemm, and never exists as an array:

    var = var - alpha * a'b                                  one pass instead of three
    accum = momentum * accum + a'b
    m   = beta1 * m + (1 - beta1) * a'b                      if a and b are single rows (a batch of one), for then the squares
    v   = beta2 * v + (1 - beta2) * (a^2)'(b^2)              of the product are the product of the squares
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from penstock.engines.denormals import flushed
from penstock.engines.late import Product
from penstock.engines.memory import address
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.library import OneDnnError
from penstock.engines.onednn.plan import FLOPS_PER_US, contiguous, planned, threads_for
from penstock.engines.onednn.primitives import FLOAT32, Add, Eltwise, Maker, Multiply, PostOps, Primitive, Subtract, Sum
from penstock.graph.bind import engine_is_on
from penstock.ops.kernels import optimizers as f

ELEMENTS_PER_US = 3000.0
"""What one thread does, roughly; decides how many threads take part. To wake one costs more than a pass over a small variable."""

_ONE = np.ones((), np.float32)
_MINUS_ONE = np.full((), -1, np.float32)
_ZERO = np.zeros((), np.float32)
_SCALAR = Multiply((1,), (1,))
_ADDED = Sum(1.0)
_SQRT, _INVERSE = Eltwise("sqrt"), Eltwise("pow", 1.0, -1.0)


class Spec(NamedTuple):
    """How many elements, the numbers that are compiled in, and whether the variable is a matrix: to others, no products are added."""

    size: int
    numbers: tuple[float, ...]
    is_matrix: bool


def _number(value: Any) -> np.ndarray:
    return np.array(value, np.float32)


def _pass(m: Maker, size: int, has_two: bool, *post_ops: Any, alg: int = lib.BINARY_MUL) -> Primitive:
    """dst = src0 * src1, or what `alg` says, and post-ops; `src1` is an array of the same size, or one number."""
    whole, one = m.md((size,), (1,)), m.md((1,), (1,))
    other = whole if has_two else one
    chain: PostOps = post_ops
    pd = m.pd("binary", alg, whole, other, whole, m.attr(chain))
    return m.primitive(pd, [(lib.ARG_SRC, whole), (lib.ARG_SRC_1, other), (lib.ARG_DST, whole), *m.post_op_args(chain, FLOAT32)])


class Factors:
    """A product on its way into a variable: `add(c, factor, alpha)` is c = factor * c + alpha * a b."""

    def __init__(self, library: lib.Library, product: Product, squared: bool = False) -> None:
        a, b = contiguous(product.a), contiguous(product.b)
        self.a, self.b = (a * a, b * b) if squared else (a, b)
        rows, columns = product.shape
        across_a, across_b = product.across
        inner = product.inner
        self.library = library
        self.threads = 1 if inner == 1 else threads_for(2.0 * rows * columns * inner / FLOPS_PER_US)
        self._head = (b"T" if across_a else b"N", b"T" if across_b else b"N", rows, columns, inner)
        library.used = True

    def add(self, c: np.ndarray, factor: float, alpha: float) -> None:
        a, b, library = self.a, self.b, self.library
        operands = (address(a), a.shape[1], address(b), b.shape[1], factor, address(c), c.shape[1])
        status = library.run(self.threads, library.sgemm, *self._head, alpha, *operands)
        if status:
            raise OneDnnError("sgemm", status)


LARGEST_SQUARES, LEAST_EPSILON = 1e12, 0.9e-8
"""Sums of squares up to which squares of factors do not overflow, and what they lose below the smallest number is nothing beside epsilon."""


def _squares_fit(product: Product) -> bool:
    return all(np.vdot(x, x) < LARGEST_SQUARES for x in (product.a, product.b))


Gradient = np.ndarray | Product


def _array(gradient: Gradient) -> np.ndarray:
    """The gradient as the passes want it; it may be a view (a transposed one, say)."""
    return np.ascontiguousarray(gradient)


class Descent:
    """var -= alpha * delta"""

    def __init__(self, m: Maker, spec: Spec) -> None:
        if spec.is_matrix:
            m.library.prepare_products()
        self.main = _pass(m, spec.size, False, _ADDED)

    def run(self, arrays: Sequence[np.ndarray], alpha: Any, delta: Gradient) -> None:
        if isinstance(delta, Product) and alpha != 0:
            Factors(self.main.library, delta).add(arrays[0], 1.0, -float(alpha))
            return
        delta, rate = _array(delta), _number(-alpha)
        self.main.run(address(delta), address(rate), address(arrays[0]))


class Momentum:
    """accum = momentum * accum + grad; var -= lr * accum, or with Nesterov's step ahead"""

    def __init__(self, m: Maker, spec: Spec, use_nesterov: bool) -> None:
        if spec.is_matrix:
            m.library.prepare_products()
        (momentum,) = spec.numbers
        self.momentum = momentum
        self.main = _pass(m, spec.size, False, Sum(momentum)) if momentum else _pass(m, spec.size, False, Add((spec.size,), (1,)))
        self.step = _pass(m, spec.size, False, _ADDED)
        self.use_nesterov = use_nesterov

    def run(self, arrays: Sequence[np.ndarray], lr: Any, grad: Gradient, momentum: Any) -> None:
        var, accum = arrays
        if isinstance(grad, Product) and self.momentum and not self.use_nesterov:
            Factors(self.main.library, grad).add(accum, self.momentum, 1.0)
        else:
            grad = _array(grad)
            if self.momentum:
                self.main.run(address(grad), address(_ONE), address(accum))
            else:
                self.main.run(address(accum), address(_ZERO), address(accum), address(grad))
        rate = _number(-lr)
        if self.use_nesterov:
            grad = _array(grad)
            self.step.run(address(grad), address(rate), address(var))
            rate = _number(-lr * momentum)
        self.step.run(address(accum), address(rate), address(var))


class Adagrad:
    """accum += grad * grad; var -= lr * grad / (sqrt(accum) + epsilon)"""

    def __init__(self, m: Maker, spec: Spec, update_slots: bool) -> None:
        epsilon = [Eltwise("linear", 1.0, n) for n in spec.numbers]
        self.update_slots = update_slots
        self.squares = _pass(m, spec.size, True, _ADDED)
        self.main = _pass(m, spec.size, False, _SQRT, *epsilon, _INVERSE, _SCALAR, Multiply((spec.size,), (1,)), _ADDED)

    def run(self, arrays: Sequence[np.ndarray], lr: Any, grad: Gradient) -> None:
        var, accum = arrays
        grad = _array(grad)
        if self.update_slots:
            self.squares.run(address(grad), address(grad), address(accum))
        rate = _number(-lr)
        self.main.run(address(accum), address(_ONE), address(var), address(rate), address(grad))


def _averages(m: Maker, size: int, beta: float) -> Primitive:
    """v += (grad * grad - v) * (1 - beta)"""
    return _pass(m, size, True, Subtract((size,), (1,)), Eltwise("linear", _rest(beta), 0.0), _ADDED)


def _rest(beta: float) -> float:
    return float(np.float32(1) - np.float32(beta))


class Adam:
    """See the module's docstring."""

    def __init__(self, m: Maker, spec: Spec) -> None:
        beta1, beta2, epsilon = spec.numbers
        size = spec.size
        self.numbers = spec.numbers
        self.from_factors = 0 < beta1 < 1 and 0 < beta2 < 1 and epsilon >= LEAST_EPSILON
        if self.from_factors and spec.is_matrix:
            m.library.prepare_products()
        self.main = _pass(m, size, True, Eltwise("linear", _rest(beta1), 0.0), _ADDED, alg=lib.BINARY_SUB)
        self.squares = _averages(m, size, beta2)
        self.step = _pass(m, size, False, _SQRT, Eltwise("linear", 1.0, epsilon), _INVERSE, _SCALAR, Multiply((size,), (1,)), _ADDED)

    def run(self, arrays: Sequence[np.ndarray], alpha: Any, grad: Gradient) -> None:
        var, m, v = arrays
        beta1, beta2, _ = self.numbers
        rate = _number(-alpha)
        if self._adds_up(grad):
            Factors(self.main.library, grad).add(m, beta1, _rest(beta1))
            Factors(self.main.library, grad, squared=True).add(v, beta2, _rest(beta2))
        else:
            grad = _array(grad)
            g = address(grad)
            self.main.run(g, address(m), address(m))
            self.squares.run(g, g, address(v), address(v))
        self.step.run(address(v), address(_ONE), address(var), address(rate), address(m))

    def _adds_up(self, grad: Gradient) -> TypeGuard[Product]:
        """Whether the factors of a gradient can be added to m and v."""
        if not self.from_factors or not isinstance(grad, Product) or grad.inner != 1:
            return False
        # After a gradient that large, m or v may be infinite. Only the whole formula makes NaN of that.
        self.from_factors = _squares_fit(grad)
        return self.from_factors


class RmsProp:
    """ms += (grad * grad - ms) * (1 - rho); mom = momentum * mom + lr * grad / sqrt(ms + epsilon); var -= mom"""

    def __init__(self, m: Maker, spec: Spec) -> None:
        rho, momentum, epsilon = spec.numbers
        size = spec.size
        other = (size,), (1,)
        self.momentum = momentum
        self.main = _averages(m, size, rho)
        root = (Eltwise("linear", 1.0, epsilon), _SQRT, _INVERSE, _SCALAR, Multiply(*other))
        self.mean = _pass(m, size, False, *root, Sum(momentum)) if momentum else _pass(m, size, False, Add(*other), *root)
        self.step = _pass(m, size, False, _ADDED)

    def run(self, arrays: Sequence[np.ndarray], lr: Any, grad: Gradient) -> None:
        var, ms, mom = arrays
        grad = _array(grad)
        g, rate = address(grad), _number(lr)
        self.main.run(g, g, address(ms), address(ms))
        if self.momentum:
            self.mean.run(address(ms), address(_ONE), address(mom), address(rate), g)
        else:
            self.mean.run(address(mom), address(_ZERO), address(mom), address(ms), address(rate), g)
        self.step.run(address(mom), address(_MINUS_ONE), address(var))


# -- from a formula and its arguments to a plan and its operands --------------------------------------------------------

Chosen = tuple[Any, tuple[float, ...], tuple[Any, ...], tuple[Any, ...]]
"""The plan's class, numbers that are compiled in, further options, and the arguments of `run` behind the arrays."""


def _descent(alpha: Any, delta: Any) -> Chosen:
    return Descent, (), (), (alpha, delta)


def _momentum(lr: Any, grad: Any, momentum: Any, *, use_nesterov: bool) -> Chosen:
    return Momentum, (float(momentum),), (use_nesterov,), (lr, grad, momentum)


def _adagrad(lr: Any, grad: Any, *, update_slots: bool) -> Chosen:
    return Adagrad, (), (update_slots,), (lr, grad)


def _adagrad_v2(lr: Any, epsilon: Any, grad: Any, *, update_slots: bool) -> Chosen:
    return Adagrad, (float(epsilon),), (update_slots,), (lr, grad)


def _adam(
    beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any, grad: Any, *, use_nesterov: bool
) -> Chosen | None:
    if use_nesterov:
        return None
    alpha = f.adam_rate(lr, beta1_power, beta2_power)
    return Adam, (float(beta1), float(beta2), float(epsilon)), (), (alpha, grad)


def _rmsprop(lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any) -> Chosen:
    return RmsProp, (float(rho), float(momentum), float(epsilon)), (), (lr, grad)


_CHOICES: dict[Callable[..., None], Callable[..., Chosen | None]] = {
    f.gradient_descent: _descent,
    f.momentum: _momentum,
    f.adagrad: _adagrad,
    f.adagrad_v2: _adagrad_v2,
    f.adam: _adam,
    f.rmsprop: _rmsprop,
}


_DECAYING = (Momentum, Adam, RmsProp)
"""Those whose slots become smaller and smaller where the gradient is zero."""


def update(formula: Callable[..., None], arrays: Sequence[np.ndarray], rest: Sequence[Any], attrs: dict[str, Any]) -> bool:
    """Updates the variable `arrays[0]` and its slots, float32 arrays that the caller owns, all of one shape like the gradient; False if
    this is not for oneDNN, and then nothing has been written."""
    choose = _CHOICES.get(formula)
    is_late = Product in [x.__class__ for x in rest]  # then oneDNN would have computed the product too
    if choose is None or not (is_late or engine_is_on("onednn")):
        return False
    library = lib.get()
    chosen = choose(*rest, **attrs) if library is not None else None
    if library is None or chosen is None:
        return False
    kind, numbers, options, operands = chosen
    if not all(map(math.isfinite, numbers)):  # nothing worth compiling
        return False
    size = arrays[0].size
    plan = planned(kind, library, size / ELEMENTS_PER_US, Spec(size, numbers, arrays[0].ndim == 2), *options)
    if plan is None:
        return False
    try:
        if kind in _DECAYING:
            with flushed():
                plan.run(arrays, *operands)
        else:
            plan.run(arrays, *operands)
    except OneDnnError as error:
        if error.status == lib.FORKED:  # said by the first pass, which has not run
            return False
        raise
    return True
