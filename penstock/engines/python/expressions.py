"""What a node's line says. Most nodes call their kernel; some need less than that.

    z = x + y             a ufunc of two numbers whose static shape is (): Python's operator skips the machinery for arrays
    z = add(x, y)         a ufunc of arrays, without the kernel around it that only words an error
    z = add(x, c, x)      the same with a constant number, as an array without dimensions (a NumPy scalar would be made one in every
                          call), written into an array that nobody needs any more
    s = sum(x, (0, 1))    a reduction over constant axes
    r = x.reshape((2, 3)) a Reshape between static shapes

Every form gives bit for bit what the kernel gives. When a line fails, the kernel itself is called to say what was wrong.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.engines.python import pieces
from penstock.engines.python import reductions as reductions_of_big
from penstock.graph.ir import Operation, Tensor
from penstock.ops import arithmetic, reductions  # noqa: F401  (declared before their kernels are compared)
from penstock.ops.kernels import periods, tiled
from penstock.ops.kernels.short_rows import are_short_rows
from penstock.shapes import is_fully_defined

_OPERATORS = {
    np.add: "+", np.subtract: "-", np.multiply: "*", np.true_divide: "/", np.less: "<", np.less_equal: "<=", np.greater: ">",
    np.greater_equal: ">=", np.equal: "==", np.not_equal: "!=",
}  # fmt: skip
_COMPARES = {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal}
_LOGIC = {np.logical_and: "&", np.logical_or: "|"}
_BETTER = {np.maximum: ">", np.minimum: "<"}
OUT_BY_NAME = frozenset((np.maximum, np.minimum))
"""Ufuncs that take `out` by its name only."""
_FLOAT_UFUNCS = {
    "RealDiv": np.true_divide,
    "Div": np.true_divide,
    "Pow": np.power,
    "Log1p": np.log1p,
}  # kernels that differ for whole or complex numbers only
_NUMBERS = (np.float32, np.float64, np.int32, np.int64)
_FLOATS = (np.float32, np.float64)
_REDUCTIONS = {"Sum": np.add, "Mean": np.add, "Prod": np.multiply, "Max": np.maximum, "Min": np.minimum}


_RANDOM = frozenset(("RandomStandardNormal", "RandomUniform", "TruncatedNormal"))
_FRESH = frozenset(("MatMul", "Sum", "Prod", "Max", "Min", "Mean"))
_PURE = _FRESH | frozenset((
    "Sigmoid", "Relu", "ReluGrad", "LeakyRelu", "LeakyReluGrad", "Relu6", "Relu6Grad", "TanhGrad", "SigmoidGrad", "BatchMatMul", "BatchMatMulV2", "Shape", "Reshape", "Transpose", "Cast", "Fill",
    "ZerosLike", "OnesLike", "SelectV2", "Prod", "BroadcastTo", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "BiasAdd", "BiasAddGrad",
    "ShapeN", "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter", "_FusedConv2D",
    "_FusedDepthwiseConv2dNative", "_FusedMatMul", "_LayerNorm", "_LayerNormGrad", "_LSTMTraining", "_LSTMTrainingGrad", "_ScaledBatchMatMul", "_SoftmaxGrad",
))  # fmt: skip


_FRESH_FROM_ENGINE = frozenset((
    "MatMul", "Relu", "ReluGrad", "LeakyRelu", "LeakyReluGrad", "AddN", "AddV2", "AvgPool", "AvgPoolGrad", "MaxPoolGrad", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter",
    "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter", "_FusedConv2D",
    "_FusedDepthwiseConv2dNative", "_SoftmaxGrad",
))  # fmt: skip
_LOOKS = frozenset(("Shape", "ShapeN", "Size", "Rank"))
_BATCH_NORMS = frozenset(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"))


def makes_new(node: Any) -> bool:
    """Whether a node's result shares memory with nothing, and the node keeps nothing of its inputs."""
    if ufunc_of(node) is not None:
        return True
    return ((node.op.type in _FRESH or node.op.type in _RANDOM) and original(node)) or (node.op.type in _FRESH_FROM_ENGINE and by_engine(node))


def new_results(node: Any) -> list[Tensor]:
    """The results of a node that share memory with nothing."""
    if makes_new(node):
        return node.op.outputs if node.plain else []
    return node.op.outputs[:1] if node.op.type in _BATCH_NORMS and by_engine(node) else []


def kept_inputs(node: Any) -> Sequence[Tensor]:
    """The inputs that a node may keep, or give on, or give a view of."""
    if makes_new(node) or (node.op.type in _LOOKS and original(node)):
        return ()
    if by_engine(node):
        if node.op.type in ("MaxPool", "_MklNativeConv2DBackpropFilterWithBias", "_LayerNorm", "_LayerNormGrad", "_LSTMTraining", "_LSTMTrainingGrad"):  # the first remembers its result, for the gradient
            return ()
        if node.op.type in _BATCH_NORMS:
            return node.op.inputs[2 if "Grad" in node.op.type else 1 :]
    return needed_inputs(node)


def derives_shape(node: Any) -> bool:
    """Whether the static shapes of a node's results follow from those of its inputs."""
    return ufunc_of(node) is not None or node.op.type in _PURE or node.op.type in _RANDOM or pieces.derives_shape(node.op)


def is_pure(node: Any, inputs_have_other_readers: bool = False) -> bool:
    """Whether a node need not run if nobody reads what it gives. One that reads a variable need not if others read it too."""
    if variables_read(node):
        return inputs_have_other_readers and (ufunc_of(node) is not None or node.op.type in _PURE)
    return ufunc_of(node) is not None or (node.op.type in _PURE and (inputs_have_other_readers or original(node) or from_engine(node)))


def may_fail(node: Any) -> bool:
    """Whether a pure node can meet inputs that it refuses. Static shapes were checked when the node was made; with one input there is
    nothing that could not fit."""
    op: Operation = node.op
    if op.type == "MatMul":  # the gradient of a fed batch, whose size is not known
        a, b = (t.dims for t in op.inputs)
        if a is not None and b is not None and len(a) == len(b) == 2:
            inner = a[0 if op.attrs["transpose_a"] else 1]
            return inner is None or inner != b[1 if op.attrs["transpose_b"] else 0]
    return len(op.inputs) > 1 and not all(is_fully_defined(t.dims) for t in (*op.inputs, *op.outputs))


def needed_inputs(node: Any) -> list[Tensor]:
    """The inputs that the node's line reads: the shape of a Reshape between static shapes is none of them."""
    op: Operation = node.op
    return op.inputs[:1] if op.type == "Reshape" and _is_static_reshape(node) else op.inputs


def _is_static_reshape(node: Any) -> bool:
    op: Operation = node.op
    if op.type != "Reshape" or not original(node):
        return False
    before, after = op.inputs[0].dims, op.outputs[0].dims
    return is_fully_defined(before) and is_fully_defined(after) and np.prod(before) == np.prod(after) and _is_fixed(op.inputs[1])


def _is_fixed(shape: Tensor, depth: int = 8) -> bool:
    """Whether a shape is the same in every step. One that is fed may not fit: the Reshape has to look at it."""
    op = shape.op
    if op.type in _LOOKS:
        return all(is_fully_defined(t.dims) for t in op.inputs)
    if op.type in ("Const", "HostConst", "StackPopV2"):  # what is pushed for gradients is the shape of something
        return True
    inputs = op.inputs[:1] if op.type == "Switch" else op.inputs
    return bool(inputs and depth) and not op.op_def.stateful and op.type != "Merge" and all(_is_fixed(t, depth - 1) for t in inputs)


def variables_read(node: Any) -> tuple[tuple[int, bool, str | None], ...]:
    """Which inputs are reference variables whose values the kernel is given: see runtime.kernels.RefInputs."""
    return getattr(node.fn, "reads", (None, ()))[1]


def ufunc_of(node: Any) -> np.ufunc | None:
    """The ufunc that a node's kernel is, or only wraps to word errors or to read variables."""
    fn = node.fn
    if fn.__class__ is np.ufunc:  # the usual case, asked for many times
        return fn
    fn = getattr(fn, "reads", (fn,))[0]
    if isinstance(fn, np.ufunc):
        return fn
    found = getattr(fn, "ufunc", None)
    if (
        found is None
        and node.op.type in _FLOAT_UFUNCS
        and node.op.outputs[0].dtype.np.type in _FLOATS
        and fn is node.fn
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
    variables = variables_read(node)
    if variables:
        if (ufunc is None and op.type not in _REDUCTIONS) or not all(deref for _, deref, _ in variables):
            return None
        inputs = list(inputs)
        for i, _, name in variables:
            ref = inputs[i]
            inputs[i] = f"(r{i} if (r{i} := {ref}.value) is not None else read_ref({ref}, True, {name!r}))"
    if ufunc is not None and ufunc.nin == len(inputs) and ufunc.nout == 1:
        simple = None if variables else _operator(ufunc, op, inputs, name_of)
        if simple is not None:
            return simple
        if op.outputs[0].dims:
            inputs = [without_dimensions(name, known) for name in inputs]
        into = [] if reusable is None else [f"out={reusable}" if ufunc in OUT_BY_NAME else reusable]
        return f"{name_of(_broadcasting(ufunc, op), ufunc.__name__ + '_')}({', '.join([*inputs, *into])})"
    if op.type == "SelectV2" and original(node) and all(_is_plain_number(t) for t in op.inputs):
        return f"{inputs[1]} if {inputs[0]} else {inputs[2]}"
    if op.type in _REDUCTIONS and op.type != "Mean" and inputs[1] in known and original(node, True):
        return _reduction(op, inputs, known[inputs[1]], name_of)
    if op.type == "Mean" and inputs[1] in known and original(node, True) and op.outputs[0].dtype.np.type in _FLOATS:
        return _mean(op, inputs, known[inputs[1]], name_of)
    if _is_static_reshape(node):
        return f"{inputs[0]}.reshape({_target(op, known.get(inputs[1]))!r})"
    return None


def _target(op: Operation, wanted: Any) -> Any:
    """The shape that a Reshape between static shapes gives. With -1 in it where the program says so: a shape that was only claimed (`set_shape`) may be wrong."""
    dims = op.outputs[0].dims
    return dims if wanted is None or 0 in (dims or ()) else tuple(int(n) for n in np.ravel(wanted))


def without_dimensions(name: str, known: dict[str, Any]) -> str:
    """The name of a constant number as an array without dimensions; other names as they are."""
    value = known.get(name)
    if not isinstance(value, np.generic):
        return name
    return _as_array(name, value, known)


def _as_array(name: str, value: np.generic, known: dict[str, Any]) -> str:
    array = f"{name}_"
    if array not in known:
        known[array] = np.asarray(value)
    return array


def _is_plain_number(tensor: Tensor) -> bool:
    return tensor.dims == () and tensor.dtype.np.type in (*_NUMBERS, np.bool_)


def _broadcasting(ufunc: np.ufunc, op: Operation) -> Any:
    """The ufunc, in the form for operands that are written out first if that pays."""
    full = op.outputs[0].dims
    if ufunc.nin != 2 or not is_fully_defined(full):
        return ufunc
    if math.prod(full) >= tiled.LARGE and op.outputs[0].dtype.np.kind in "iu" and all(t.dims in ((), full) and t.dtype.np == op.outputs[0].dtype.np for t in op.inputs):
        return tiled.tiled(ufunc)
    return periods.spread(ufunc) if periods.pays(op.inputs[0].dims, op.inputs[1].dims, full) else ufunc


def _operator(ufunc: np.ufunc, op: Operation, inputs: Sequence[str], name_of: Callable[[Any, str], str]) -> str | None:
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
        if ufunc in _BETTER and kind in _NUMBERS:
            # Equal numbers (zeros have signs) and NaN are left to the ufunc.
            a, b, than = *inputs, _BETTER[ufunc]
            return f"{a} if {a} {than} {b} else {b} if {b} {than} {a} else {name_of(ufunc, ufunc.__name__ + '_')}({a}, {b})"
    elif kind in _FLOATS:
        if ufunc is np.negative:
            return f"-{inputs[0]}"
        if ufunc is np.square:
            return f"{inputs[0]} * {inputs[0]}"
        if ufunc is np.absolute:
            return f"abs({inputs[0]})"
    elif ufunc is np.logical_not and kind is np.bool_:
        return f"~{inputs[0]}"
    return None


def _reduction(op: Operation, inputs: Sequence[str], axes: Any, name_of: Callable[[Any, str], str]) -> str | None:
    x: Tensor = op.inputs[0]
    if x.dims is None or x.dtype.np.type not in _NUMBERS:
        return None
    rank = len(x.dims)
    chosen = [int(a) for a in np.ravel(axes)]
    if not chosen or any(not -rank <= a < rank for a in chosen):  # of no axes: the kernel keeps the sign of -0.0
        return None
    chosen = [a % rank for a in chosen]
    if len(set(chosen)) != len(chosen) or (
        op.type in ("Max", "Min") and not (is_fully_defined(x.dims) and np.prod(x.dims))
    ):
        return None
    is_small = is_fully_defined(x.dims) and np.prod(x.dims) < reductions_of_big.LARGE and not are_short_rows(x.dims, chosen) and op.type != "Prod"
    ufunc = _REDUCTIONS[op.type]
    reduce = name_of(_reducer(op.type) if is_small else reductions_of_big.reducer(ufunc), ufunc.__name__ + "_reduce_")
    axis = chosen[0] if len(chosen) == 1 else tuple(chosen)
    if x.dtype.np.type in _FLOATS and not op.attrs["keep_dims"]:
        return f"{reduce}({inputs[0]}, {axis!r})"
    kind = name_of(x.dtype.np, "dtype_")
    return f"{reduce}({inputs[0]}, {axis!r}, {kind}, None, {bool(op.attrs['keep_dims'])})"


def _mean(op: Operation, inputs: Sequence[str], axes: Any, name_of: Callable[[Any, str], str]) -> str | None:
    total = _reduction(op, inputs, axes, name_of)
    dims = op.inputs[0].dims
    if total is None or dims is None:
        return None
    count = 1
    for axis in np.ravel(axes):
        count *= dims[int(axis)] or 0  # not known, or nothing to divide by
    if not count:
        return None
    number = name_of(op.outputs[0].dtype.np.type(count), "c")
    return f"{name_of(np.true_divide, 'true_divide_')}({total}, {number})"


@functools.cache
def _reducer(op_type: str) -> Callable[..., Any]:
    return _REDUCTIONS[op_type].reduce  # a new object whenever it is asked for


def original(node: Any, may_read: bool = False) -> bool:
    """Whether the node runs the declared kernel, with nothing around it but its attributes; `may_read`: and reading of variables."""
    fn = getattr(node.fn, "reads", (node.fn,))[0] if may_read else node.fn
    kernel = getattr(fn, "grouped", fn)
    kernel = getattr(kernel, "func", kernel)
    return kernel is node.op.op_def.kernel


def from_engine(node: Any) -> bool:
    """Whether the node runs a faster kernel that an engine has offered, with nothing around it."""
    return getattr(node.fn, "engine", None) is not None


def by_engine(node: Any) -> bool:
    """As `from_engine`; what is around the kernel may read variables for it."""
    return from_engine(node) or getattr(getattr(node.fn, "reads", (None,))[0], "engine", None) is not None
