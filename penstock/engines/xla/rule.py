"""What an op means to XLA: rules, and what a rule sees.

    @rule("AddV2", "Add")
    def add(x, y):
        return x + y

A rule takes what the op's kernel takes: inputs by position (a list argument is one list), attributes as keyword-only parameters. Values are
JAX arrays under tracing; those that are known when a program is compiled (constants, shapes, and what is computed from them) are NumPy
arrays. `static(x)` insists on such a value. A variable arrives as a `Var`, to be read and written; an op with a reference output
returns it. The result has the types of the op's outputs: one value, or a list of them if the op has several or a list.

Rules are trusted to be pure. JAX is not imported before the first rule runs: `jax`, `jnp` and `lax` here stand for the modules.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from penstock.graph.opdef import OPS


class _Lazy:
    """Stands for a module that is imported when something of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


jax: Any = _Lazy("jax")
jnp: Any = _Lazy("jax.numpy")
lax: Any = _Lazy("jax.lax")


class Dynamic(Exception):
    """Raised by a rule that needs to know a value when the program is compiled, and does not: the node stays outside."""


class Unsupported(Exception):
    """Raised by a rule that has no answer for these types, shapes or attributes: the node stays outside."""


class Var:
    """A variable while a program is traced. `value` is what it holds; setting it is an assignment."""

    __slots__ = ("_value", "dtype", "is_read", "is_written")

    def __init__(self, value: Any, dtype: Any) -> None:
        self._value = value
        self.dtype: np.dtype = dtype
        self.is_read = False
        self.is_written = False

    @property
    def value(self) -> Any:
        if self._value is None:
            raise Unsupported("a variable without a value")
        if not self.is_written:
            self.is_read = True
        return self._value

    @value.setter
    def value(self, new: Any) -> None:
        self._value = new
        self.is_written = True

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def known_shape(self) -> tuple[int, ...] | None:
        """The shape of what it holds, None if it holds nothing; asking is no reading."""
        return None if self._value is None else tuple(self._value.shape)


class Rule(NamedTuple):
    """A rule and what the engine must know of it."""

    fn: Callable[..., Any]
    attrs: tuple[str, ...]
    raises: bool | Callable[[dict[str, Any]], bool]  # the CPU kernel looks at data and may raise, which a compiled program cannot
    heavy: bool  # on CPUs, oneDNN or BLAS do it better

    def may_raise(self, attrs: dict[str, Any]) -> bool:
        """Whether the CPU kernel of a node with these attributes may report bad data."""
        return self.raises(attrs) if callable(self.raises) else self.raises


RULES: dict[str, Rule] = {}
"""By op type. Importing `penstock.engines.xla.rules` fills it."""


def find_rule(opdef: Any) -> Rule | None:
    """The op's rule: one of those here, or the one that its declaration brings (`op(..., xla=...)`)."""
    found = RULES.get(opdef.name)
    if found is None and opdef.kernels and "XLA" in opdef.kernels:
        fn = opdef.kernels["XLA"]
        keywords = tuple(p.name for p in inspect.signature(fn).parameters.values() if p.kind is p.KEYWORD_ONLY)
        found = Rule(fn, keywords, False, False)
    return found


def integers(attrs: dict[str, Any]) -> bool:
    """For `raises`: only whole numbers have data to complain about (a division by zero)."""
    return attrs["T"].is_integer


def rule(*op_types: str, raises: bool | Callable[[dict[str, Any]], bool] = False, heavy: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: attaches a rule to ops.

    `raises`: the op's CPU kernel reports bad data (an index out of range, a division by zero); on CPUs such a node stays with its kernel.
    A function of the node's attributes may decide.
    `heavy`: convolutions, products and the like, which XLA does slower on CPUs than oneDNN.
    """

    def attach(fn: Callable[..., Any]) -> Callable[..., Any]:
        keywords = tuple(p.name for p in inspect.signature(fn).parameters.values() if p.kind is p.KEYWORD_ONLY)
        for name in op_types:
            unknown = [k for k in keywords if k not in OPS[name].attrs]
            if unknown:
                raise TypeError(f"the rule of {name} asks for {unknown}, which are no attributes of the op")
            if name in RULES:
                raise ValueError(f"{name} has a rule already")
            RULES[name] = Rule(fn, keywords, raises, heavy)
        return fn

    return attach


def static(value: Any) -> np.ndarray:
    """The value as a NumPy array. Raises Dynamic if it is not known when compiling."""
    if isinstance(value, (np.ndarray, np.generic, int, float, bool)):
        return np.asarray(value)
    raise Dynamic


REPORTS: ContextVar[bool] = ContextVar("REPORTS", default=False)
"""Set while compiling for a device whose kernels report bad data (CPUs)."""


def unreported(*values: Any) -> None:
    """Says that a program could not report it if these values were bad: Dynamic if that matters and one of them is not known."""
    if REPORTS.get():
        for value in values:
            static(value)


DOUBTS: ContextVar[list[Any] | None] = ContextVar("DOUBTS", default=None)
"""Gets conditions under which the results of the program that is being traced are worth nothing, and the host computes; None if nobody would look."""


def within(value: Any, low: int | None, high: int) -> None:
    """Says that a kernel reports whole numbers that are not in [low, high); None: nothing is too low. Where they are known, that is seen to now, else the
    program doubts its results, and the host reports it."""
    if isinstance(value, (np.ndarray, np.generic)):
        if value.size and ((low is not None and value.min() < low) or value.max() >= high):
            raise Unsupported("an index out of range")
        return
    if not REPORTS.get() or not value.size:
        return
    doubts = DOUBTS.get()
    if doubts is None:
        raise Dynamic
    # Bounds go with the type of the indices: those that it does not have are never met.
    limits = np.iinfo(value.dtype)
    if high <= limits.max:
        doubts.append(jnp.any(value >= np.asarray(high, value.dtype)))
    if low is not None and low > limits.min:
        doubts.append(jnp.any(value < np.asarray(low, value.dtype)))


def static_ints(value: Any) -> tuple[int, ...]:
    """A vector (or a number) of known integers."""
    return tuple(int(v) for v in static(value).ravel())


