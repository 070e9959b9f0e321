"""Python's operators on tensors: `x + 1`, `2 * x`, `x @ y`, `x[1:]`.

Plain numbers take the tensor's type. Nodes get TF's names ("add", "mul", "truediv", ...). As in TF1, `==` and `!=` compare
identity, so that tensors can be dictionary keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import dtypes
from penstock.api import math_ops
from penstock.api.framework import name_scope
from penstock.graph.composite import SparseTensor
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

_LOGIC = frozenset(("and", "or", "xor"))
_ONE_NODE = frozenset(("add", "sub", "mul", "floordiv", "mod", "pow"))
"""Operators that make a single node of two tensors: it is called as the scope would be, so that none is needed."""
Node = Callable[[Tensor, Tensor, str], Tensor]


def _install_pair(name: str, default: str, node: Node) -> None:
    """Tensor.__name__ and Tensor.__rname__ by one function of two tensors and a scope."""

    def forward(x: Tensor, y: Any) -> Any:
        if y.__class__ is Tensor and default in _ONE_NODE:
            return node(x, y, default)
        if default == "mul" and isinstance(y, SparseTensor):
            return NotImplemented  # it knows how to multiply, in a scope of its own
        with name_scope(None, default, [x, y]) as scope:
            if isinstance(y, SparseTensor):
                return NotImplemented
            if default in _LOGIC:
                return node(x, y, scope)  # the op itself converts, under its own name
            try:
                y = convert_to_tensor(y, preferred_dtype=x.dtype.base_dtype, name="y")
            except TypeError:
                # The other side may know how to deal with a tensor.
                if hasattr(type(y), f"__r{name}__") and not isinstance(y, (int, float, str, bytes)):
                    return NotImplemented
                raise
            return node(x, y, scope)

    def backward(y: Tensor, x: Any) -> Any:
        with name_scope(None, default, [x, y]) as scope:
            return node(convert_to_tensor(x, dtype=y.dtype.base_dtype, name="x"), y, scope)

    for method, function in ((f"__{name}__", forward), (f"__r{name}__", backward)):
        function.__name__ = function.__qualname__ = method
        setattr(Tensor, method, function)


def _times(x: Tensor, y: Tensor, name: str) -> Tensor:
    """x * y; if one of them is bool, so is the product, whatever the other is."""
    if x.dtype.base_dtype is not dtypes.bool and y.dtype.base_dtype is not dtypes.bool:
        return raw.Mul(x, y, name=name)
    with name_scope(name) as scope:
        product = raw.Mul(raw.Cast(x, DstT=dtypes.int32), raw.Cast(y, DstT=dtypes.int32), name=scope)
        return raw.Cast(product, DstT=dtypes.bool)


def _floordiv(x: Tensor, y: Tensor, name: str) -> Tensor:
    return raw.FloorDiv(x, y, name=name)


def _div(x: Tensor, y: Tensor, name: str) -> Tensor:
    """Python 2's division, still reachable as `x.__div__(y)`."""
    real = x.dtype.is_floating or x.dtype.is_complex
    return (raw.RealDiv if real else raw.FloorDiv)(x, y, name=name)


def _matmul(x: Tensor, y: Tensor, name: str) -> Tensor:
    from penstock.api.linalg_ops import matmul

    return matmul(x, y, name=name)


def _logical(boolean: Node, bits: str) -> Node:
    """`&`, `|`, `^`: logic on bools, bits on integers."""

    def node(x: Tensor, y: Tensor, name: str) -> Tensor:
        if x.dtype.base_dtype is dtypes.bool:
            return boolean(x, y, name)
        return getattr(raw, bits)(x, y)

    return node


def _xor(x: Tensor, y: Tensor, name: str) -> Tensor:
    return math_ops.logical_xor(x, y, name=name)


_PAIRS: tuple[tuple[str, str, Node], ...] = (
    ("add", "add", math_ops.add_tensors),
    ("sub", "sub", lambda x, y, name: raw.Sub(x, y, name=name)),
    ("mul", "mul", _times),
    ("div", "div", _div),
    ("truediv", "truediv", math_ops.divide_tensors),
    ("floordiv", "floordiv", _floordiv),
    ("mod", "mod", lambda x, y, name: raw.FloorMod(x, y, name=name)),
    ("pow", "pow", lambda x, y, name: raw.Pow(x, y, name=name)),
    ("matmul", "matmul", _matmul),
    ("and", "and", _logical(lambda x, y, name: raw.LogicalAnd(x, y, name=name), "BitwiseAnd")),
    ("or", "or", _logical(lambda x, y, name: raw.LogicalOr(x, y, name=name), "BitwiseOr")),
    ("xor", "xor", _logical(_xor, "BitwiseXor")),
)

_COMPARISONS = {"__lt__": "Less", "__le__": "LessEqual", "__gt__": "Greater", "__ge__": "GreaterEqual"}


def _comparison(op_type: str) -> Callable[[Tensor, Any], Tensor]:
    return lambda x, y: getattr(raw, op_type)(x, y)


def _invert(x: Tensor) -> Tensor:
    return raw.LogicalNot(x) if x.dtype.base_dtype is dtypes.bool else raw.Invert(x)


def _getitem(x: Tensor, key: Any) -> Tensor:
    from penstock.api.array_indexing import _slice_helper

    return _slice_helper(x, key)


def install() -> None:
    """Gives Tensor its operators; importing this module has done it already."""
    for name, default, node in _PAIRS:
        _install_pair(name, default, node)
    unary: dict[str, Callable[..., Any]] = {
        "__neg__": lambda x: raw.Neg(x), "__pos__": lambda x: x, "__abs__": lambda x: math_ops.abs(x), "__invert__": _invert, "__getitem__": _getitem,
    }  # fmt: skip
    for method, function in {**unary, **{m: _comparison(t) for m, t in _COMPARISONS.items()}}.items():
        function.__name__ = function.__qualname__ = method
        setattr(Tensor, method, function)
    Tensor.OVERLOADABLE_OPERATORS = OVERLOADABLE_OPERATORS  # type: ignore[attr-defined]


OVERLOADABLE_OPERATORS = frozenset(
    [f"__{prefix}{name}__" for name, _, _ in _PAIRS for prefix in ("", "r")]
    + [*_COMPARISONS, "__neg__", "__abs__", "__invert__", "__getitem__", "__eq__", "__ne__"]
)
"""The operators that variables take over from Tensor."""

install()
