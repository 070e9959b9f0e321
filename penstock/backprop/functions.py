"""Gradients through calls of library functions.

`call_gradient(op)` is the one question that the engine asks: how do gradients go through this call? The general answer is a
SymbolicGradient node, whose kernel builds the gradient of the function's body. Op types that know better (calls with
traced bodies, If, While, Case) add a builder to `BUILDERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.formats.attr_value import FuncAttr
from penstock.graph.ir import Operation
from penstock.graph.raw import raw

# op type -> fn(op, *dys) -> gradients of the inputs
BUILDERS: dict[str, Callable[..., Any]] = {}

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


def is_call(op: Operation) -> bool:
    """Whether `op` calls a function of its graph's library."""
    return op.type in CALLS or op.graph._is_function(op.type)


def call_gradient(op: Operation) -> Callable[..., Any] | None:
    """`fn(op, *dys)` for a call, or None if `op` is none."""
    builder = BUILDERS.get(op.type)
    if builder is not None:
        return builder
    if not is_call(op):
        return None
    name = op.attrs["f"].name if op.type in CALLS else op.type
    function = op.graph.functions.get(name)
    if function is not None and function.python_gradient is not None:
        return function.python_gradient
    return symbolic_gradient


def symbolic_gradient(op: Operation, *dys: Any) -> list[Any]:
    """The gradients of a call as one SymbolicGradient node."""
    if op.type in CALLS:
        function = op.attrs["f"]
    else:
        function = FuncAttr(op.type, {k: v for k, v in op.attrs.items() if not k.startswith("_")})
    types = [t.dtype.base_dtype for t in op.inputs]
    return raw.SymbolicGradient([*op.inputs, *dys], Tout=types, f=function)
