"""How a gradient rule is called: `rule(g, op, *dys)`.

`g` builds ops (`g.Mul(a, b)`), `op` is a view of the forward operation that knows its arguments by name (`op.x`, `op.y`).
Rules declared with the ops have this form. Functions registered by users (`tf.RegisterGradient`) get the plain Operation and
the gradients, as in TF.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.graph.bind import arg_ranges
from penstock.graph.composite import IndexedSlices
from penstock.graph.constant import constant, known_value
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.opdef import MISSING, OPS
from penstock.graph.raw import raw
from penstock.ops.declare import NOT_DIFFERENTIABLE


class Builder:
    """`g`: every op as a method, and the few helpers that most rules want."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(raw, name)
        setattr(self, name, function)
        return function

    # As in TF, what the static shape tells is a constant; that also saves histories in the gradients of loops.

    @staticmethod
    def Shape(input: Tensor, out_type: Any = dtypes.int32, name: str | None = None) -> Tensor:
        if input.dims is not None and None not in input.dims:
            return constant(np.array(input.dims, dtypes.as_dtype(out_type).np), out_type, name=name or "Shape")
        return raw.Shape(input, out_type=out_type, name=name)

    @staticmethod
    def Size(input: Tensor, out_type: Any = dtypes.int32, name: str | None = None) -> Tensor:
        if input.dims is not None and None not in input.dims:
            size = math.prod(d or 0 for d in input.dims)
            return constant(size, out_type, name=name or "Size")
        return raw.Size(input, out_type=out_type, name=name)

    @staticmethod
    def Rank(input: Tensor, name: str | None = None) -> Tensor:
        if input.dims is not None:
            return constant(len(input.dims), dtypes.int32, name=name or "Rank")
        return raw.Rank(input, name=name)

    @staticmethod
    def const(value: Any, dtype: Any = None, name: str = "Const") -> Tensor:
        """A constant."""
        return constant(value, dtype, name=name)

    @staticmethod
    def shape(x: Tensor, out_type: Any = dtypes.int32, name: str = "Shape") -> Tensor:
        """tf.shape: a constant if the static shape is known."""
        return Builder.Shape(x, out_type, name)

    @staticmethod
    def zeros(shape: Any, dtype: Any) -> Tensor:
        """Zeros of a shape that may be a tensor."""
        return zeros(shape, dtypes.as_dtype(dtype))

    @staticmethod
    def zeros_like(x: Tensor) -> Tensor:
        return zeros_like(x)

    @staticmethod
    def ones_like(x: Tensor) -> Tensor:
        return raw.OnesLike(x)

    @staticmethod
    def static(x: Tensor) -> np.ndarray | None:
        """The value of `x` if it can be known while building, else None."""
        return known_value(x)

    @staticmethod
    def IndexedSlices(values: Tensor, indices: Tensor, dense_shape: Tensor | None = None) -> IndexedSlices:
        return IndexedSlices(values, indices, dense_shape)

    @staticmethod
    def control_dependencies(items: Any) -> Any:
        return get_default_graph().control_dependencies(items)


g = Builder()


class OpView:
    """The forward operation in a rule: arguments by TF's names, list arguments as lists. An output shadows an input of
    the same name; everything else is the Operation's."""

    __slots__ = ("_op", "_parts", "inputs", "outputs")

    def __init__(self, op: Operation) -> None:
        self._op = op
        self.inputs = op.inputs
        self.outputs = op.outputs
        self._parts: dict[str, Any] | None = None

    def attr(self, name: str) -> Any:
        """The value of an attribute."""
        return self._op.attrs[name]

    @property
    def operation(self) -> Operation:
        return self._op

    def __getattr__(self, name: str) -> Any:
        parts = self._parts
        if parts is None:
            op = self._op
            parts = {}
            for args, tensors in ((op.op_def.inputs, op.inputs), (op.op_def.outputs, op.outputs)):
                for arg, (start, stop, is_list) in zip(args, arg_ranges(args, op.attrs), strict=True):
                    parts[arg.name] = list(tensors[start:stop]) if is_list else tensors[start]
            self._parts = parts
        if name in parts:
            return parts[name]
        return getattr(self._op, name)

    def __repr__(self) -> str:
        return f"<OpView {self._op!r}>"


def call_rule(rule: Callable[..., Any], op: Operation, dys: list[Any]) -> Any:
    """Calls a declared rule."""
    return rule(g, OpView(op), *dys)


def zeros(shape: Any, dtype: dtypes.DType, name: str = "zeros") -> Tensor:
    """tf.zeros, for a shape given as a tensor or as static dims."""
    graph = get_default_graph()
    with graph.name_scope(name) as scope:
        zero: Any = False if dtype == dtypes.bool else "" if dtype == dtypes.string else 0
        if not isinstance(shape, Tensor):
            dims = [int(d) for d in shape]
            if int(np.prod(dims, dtype=np.int64)) < 1000:
                return constant(zero, dtype, shape=dims, name=scope)
            shape = constant(np.array(dims, np.int32), dtypes.int32, name="shape_as_tensor")
        return raw.Fill(shape, constant(zero, dtype, name="Const"), name=scope)


def ones(shape: Any, dtype: dtypes.DType, name: str = "ones") -> Tensor:
    """tf.ones, for a shape given as a tensor."""
    with get_default_graph().name_scope(name) as scope:
        return raw.Fill(shape, constant(True if dtype == dtypes.bool else 1, dtype, name="Const"), name=scope)


def zeros_like(x: Tensor, optimize: bool = True, name: str | None = None) -> Tensor:
    """tf.zeros_like: constants where the static shape is known and `optimize` wants it."""
    graph = get_default_graph()
    with graph.name_scope(name or "zeros_like") as scope:
        if x.dtype.base_dtype == dtypes.resource:
            dtype = handle_dtype(x)
            return zeros(raw.VariableShape(x), dtype)
        if optimize and x.dims is not None and None not in x.dims and x.dtype != dtypes.variant:
            return zeros(x.dims, x.dtype.base_dtype, name=scope)
        return raw.ZerosLike(x, name=scope)


def handle_dtype(handle: Tensor) -> dtypes.DType:
    """The type of what a variable's handle holds; ValueError if that is unknown."""
    data = handle.handle_data
    if not data:
        raise ValueError(f"Internal error: Tried to take gradients (or similar) of a variable without handle data:\n{handle}")
    return data[0][0]


# ---------------------------------------------------------------------------------------------------------------------
# Which rule?

_registered: dict[str, Callable[..., Any] | None] = {}
_where: dict[str, str] = {}


def register_gradient(op_type: str, function: Callable[..., Any] | None) -> None:
    """Registers a user's gradient function; None means that the op has no gradient. KeyError if there is one already."""
    if op_type in _registered or (op_type in OPS and OPS[op_type].gradient is not MISSING):
        where = _where.get(op_type) or OPS[op_type].where
        raise KeyError(f"Registering two gradient with name '{op_type}'! (Previous registration was in {where})")
    _registered[op_type] = function
    code = getattr(function, "__code__", None)
    _where[op_type] = f"{code.co_name} {code.co_filename}:{code.co_firstlineno}" if code is not None else "a call of NotDifferentiable"


def gradient_function(op: Operation) -> Callable[..., Any] | None:
    """`fn(op, *dys)` for `op`, None if the op is not differentiable; LookupError if nothing is known about it."""
    if not op.inputs:
        return None
    override = op.attrs.get("_gradient_op_type")
    op_type = override.decode() if isinstance(override, bytes) else override or op.type
    if op_type in _registered:
        return _registered[op_type]
    declared = OPS.get(op_type)
    rule: Any = MISSING if declared is None else declared.gradient
    if rule is MISSING:
        raise LookupError(f"gradient registry has no entry for: {op_type}")
    if rule is NOT_DIFFERENTIABLE or rule is None:
        return None
    return lambda operation, *dys: call_rule(rule, operation, list(dys))


def is_trainable(tensor_or_dtype: Any) -> bool:
    """Whether gradients flow through values of this type."""
    dtype = tensor_or_dtype if isinstance(tensor_or_dtype, dtypes.DType) else tensor_or_dtype.dtype
    return dtype.base_dtype in _TRAINABLE


_TRAINABLE = frozenset({
    dtypes.float16, dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.complex64, dtypes.complex128, dtypes.resource,
    dtypes.variant,
})  # fmt: skip


class RegisterGradient:
    """Decorator: the gradient of ops of type `op_type` (or of ops that `gradient_override_map` maps to that name).

    The function takes the Operation and the gradients of its outputs, and returns the gradients of its inputs.

    >>> @tf.RegisterGradient("MyClip")
    ... def _clip_grad(op, dy):
    ...     return tf.clip_by_value(dy, -1.0, 1.0)
    """

    def __init__(self, op_type: str) -> None:
        if not isinstance(op_type, str):
            raise TypeError("op_type must be a string")
        self._op_type = op_type

    def __call__(self, f: Callable[..., Any]) -> Callable[..., Any]:
        register_gradient(self._op_type, f)
        return f


def not_differentiable(op_type: str) -> None:
    """Declares that gradients through ops of type `op_type` are None: the op counts as a constant."""
    if not isinstance(op_type, str):
        raise TypeError("op_type must be a string")
    register_gradient(op_type, None)
