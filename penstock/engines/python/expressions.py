"""What a node's line says. Most nodes call their kernel; some need less than that.

    z = x + y             a ufunc of two numbers whose static shape is (): Python's operator skips the machinery for arrays
    z = add(x, y)         a ufunc of arrays, without the kernel around it that only words an error
    s = sum(x, (0, 1))    a reduction over constant axes
    r = x.reshape((2, 3)) a Reshape between static shapes

Every form gives bit for bit what the kernel gives. When a line fails, the kernel itself is called to say what was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.graph.ir import Operation, Tensor
from penstock.ops import arithmetic, reductions  # noqa: F401  (declared before their kernels are compared)
from penstock.shapes import is_fully_defined

_OPERATORS = {
    np.add: "+", np.subtract: "-", np.multiply: "*", np.true_divide: "/", np.less: "<", np.less_equal: "<=", np.greater: ">",
    np.greater_equal: ">=", np.equal: "==", np.not_equal: "!=",
}  # fmt: skip
_COMPARES = {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal}
_LOGIC = {np.logical_and: "&", np.logical_or: "|"}
_FLOAT_UFUNCS = {
    "RealDiv": np.true_divide,
    "Div": np.true_divide,
    "Pow": np.power,
}  # kernels that differ for whole numbers only
_NUMBERS = (np.float32, np.float64, np.int32, np.int64)
_FLOATS = (np.float32, np.float64)
_REDUCTIONS = {"Sum": np.add, "Prod": np.multiply, "Max": np.maximum, "Min": np.minimum}


_FRESH = frozenset(("MatMul", "Sum", "Prod", "Max", "Min", "Mean"))
_PURE = _FRESH | frozenset((
    "Sigmoid", "Relu", "ReluGrad", "TanhGrad", "SigmoidGrad", "BatchMatMul", "BatchMatMulV2", "Shape", "Reshape", "Transpose", "Cast", "Fill",
    "ZerosLike", "OnesLike", "SelectV2", "Prod", "BroadcastTo", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "BiasAdd", "BiasAddGrad",
))  # fmt: skip


def makes_new(node: Any) -> bool:
    """Whether a node's result shares memory with nothing, and the node keeps nothing of its inputs."""
    return ufunc_of(node) is not None or (node.op.type in _FRESH and original(node))


def is_pure(node: Any, inputs_have_other_readers: bool = False) -> bool:
    """Whether a node need not run if nobody reads what it gives. One that reads a variable need not if others read it too."""
    return ufunc_of(node) is not None or (node.op.type in _PURE and (inputs_have_other_readers or original(node)))


def needed_inputs(node: Any) -> list[Tensor]:
    """The inputs that the node's line reads: the shape of a Reshape between static shapes is none of them."""
    return node.op.inputs[:1] if _is_static_reshape(node) else node.op.inputs


def _is_static_reshape(node: Any) -> bool:
    op: Operation = node.op
    if op.type != "Reshape" or not original(node):
        return False
    before, after = op.inputs[0].dims, op.outputs[0].dims
    return is_fully_defined(before) and is_fully_defined(after) and np.prod(before) == np.prod(after)


def ufunc_of(node: Any) -> np.ufunc | None:
    """The ufunc that a node's kernel is, or only wraps to word errors."""
    fn = node.fn
    if isinstance(fn, np.ufunc):
        return fn
    found = getattr(fn, "ufunc", None)
    if (
        found is None
        and node.op.type in _FLOAT_UFUNCS
        and node.op.outputs[0].dtype.np.type in _FLOATS
        and original(node)
    ):
        return _FLOAT_UFUNCS[node.op.type]
    # Text is added as objects, which NumPy unwraps when they stand alone; the kernel takes care of that.
    return found if found is not None and all(t.dtype.np.kind != "O" for t in node.op.outputs) else None


def expression(
    node: Any,
    inputs: Sequence[str],
    name_of: Callable[[Any, str], str],
    known: dict[str, Any],
    reusable: str | None = None,
) -> str | None:
    """The node as an expression over `inputs`, or None: call the kernel. `name_of(object, prefix)` names an object for the
    generated code; `known` holds the values of names that are constants; the result may be written into `reusable`."""
    op: Operation = node.op
    ufunc = ufunc_of(node)
    if ufunc is not None and ufunc.nin == len(inputs) and ufunc.nout == 1:
        into = [] if reusable is None else [f"out={reusable}"]
        return _operator(ufunc, op, inputs) or f"{name_of(ufunc, ufunc.__name__ + '_')}({', '.join([*inputs, *into])})"
    if op.type in _REDUCTIONS and inputs[1] in known and original(node):
        return _reduction(op, inputs, known[inputs[1]], name_of)
    if _is_static_reshape(node):
        return f"{inputs[0]}.reshape({op.outputs[0].dims!r})"
    return None


def _operator(ufunc: np.ufunc, op: Operation, inputs: Sequence[str]) -> str | None:
    if any(t.dims != () for t in op.inputs):
        return None
    kinds = {t.dtype.np.type for t in op.inputs}
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    if len(inputs) == 2:
        if ufunc in _OPERATORS and (kind in _FLOATS or (kind in _NUMBERS and ufunc is not np.true_divide)):
            return f"{inputs[0]} {_OPERATORS[ufunc]} {inputs[1]}"
        if ufunc in _LOGIC and kind is np.bool_:
            return f"{inputs[0]} {_LOGIC[ufunc]} {inputs[1]}"
    elif ufunc is np.negative and kind in _FLOATS:
        return f"-{inputs[0]}"
    return None


def _reduction(op: Operation, inputs: Sequence[str], axes: Any, name_of: Callable[[Any, str], str]) -> str | None:
    x: Tensor = op.inputs[0]
    if x.dims is None or x.dtype.np.type not in _NUMBERS:
        return None
    rank = len(x.dims)
    chosen = [int(a) for a in np.ravel(axes)]
    if not rank or any(not -rank <= a < rank for a in chosen):
        return None
    chosen = [a % rank for a in chosen]
    if len(set(chosen)) != len(chosen) or (
        op.type in ("Max", "Min") and not (is_fully_defined(x.dims) and np.prod(x.dims))
    ):
        return None
    reduce = name_of(_REDUCTIONS[op.type].reduce, _REDUCTIONS[op.type].__name__ + "_reduce_")
    kind = name_of(x.dtype.np, "dtype_")
    return f"{reduce}({inputs[0]}, {tuple(chosen)!r}, {kind}, None, {bool(op.attrs['keep_dims'])})"


def original(node: Any) -> bool:
    """Whether the node runs the declared kernel, with nothing around it but its attributes."""
    kernel = getattr(node.fn, "func", node.fn)
    return kernel is node.op.op_def.kernel
