"""Ops that call functions: calls, If, While, Case, For, and the gradient of a function.

Their kernels are asynchronous and use `ctx.call`, so that neither recursion nor a long loop uses the Python stack. Calls of plain
functions are mostly gone before the executor sees them: the optimiser inlines them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InternalError, InvalidArgumentError, NotFoundError
from penstock.formats.attr_value import FuncAttr
from penstock.graph.build import arg_dtypes
from penstock.graph.function import call_rule, called_function
from penstock.graph.ir import Dims, Operation
from penstock.ops.declare import NOT_DIFFERENTIABLE, from_attr, op, scalar
from penstock.ops.samples import arr, program, strings
from penstock.shapes import TensorShape, dims_of

Done = Callable[..., None]

# -- what the kernels share ---------------------------------------------------------------------------------------------


def to_bool(value: Any) -> bool:
    """TF's truth: a number that is not 0, a text that is not empty, an array with elements."""
    if np.ndim(value) != 0:
        return np.size(value) > 0
    if value.__class__ is np.ndarray:
        value = value[()]
    return bool(value)


def check_call(node: Operation, func: FuncAttr, given: list[DType], wanted: list[DType] | None, label: str = "") -> None:
    """Whether the function takes what the node passes and returns what the node promises; checked once for each node."""
    checked = node.__dict__.setdefault("_checked_calls", set())
    key = func.name, label
    if key in checked:
        return
    function = node.graph.functions.get(func.name)
    if function is None:
        raise NotFoundError(f"Function {func.name} is not defined.")
    takes, gives = arg_dtypes(function.op_def.inputs, func.attrs), arg_dtypes(function.op_def.outputs, func.attrs)
    if len(takes) != len(given):
        raise InvalidArgumentError(f"Expects {len(takes)} arguments, but {len(given)} is provided")
    for i, (take, give) in enumerate(zip(takes, given, strict=True)):
        if take.base_dtype is not give.base_dtype:
            raise InvalidArgumentError(f"Expects arg[{i}] to be {take.name} but {give.name} is provided")
    if wanted is not None:
        if len(gives) != len(wanted):
            raise InternalError(f"Expect to produce {len(wanted)} tensors, but only get {len(gives)}")
        for i, (want, give) in enumerate(zip(wanted, gives, strict=True)):
            if want.base_dtype is not give.base_dtype:
                raise InternalError(f"Expect {i}-th output is of type {want.name} but get {give.name}")
    checked.add(key)


# -- calls --------------------------------------------------------------------------------------------------------------


def call_kernel(ctx: Any, done: Done, args: list[Any], *, f: FuncAttr, Tin: list[DType], Tout: list[DType], node: Operation) -> None:
    check_call(node, f, Tin, Tout)
    ctx.call(f, args, done)


def call_shape(c: Any) -> list[Dims]:
    found = called_function(c.op)
    return call_rule(c.op, *(found if found is not None else (None, {})))


def remote_call_kernel(
    ctx: Any, done: Done, target: Any, args: list[Any], *, f: FuncAttr, Tin: list[DType], Tout: list[DType], node: Operation
) -> None:
    check_call(node, f, Tin, Tout)
    device = np.asarray(target, dtype=object)[()]
    ctx.call(FuncAttr(f.name, {**f.attrs, "_target": device}), args, done)


def gradient_kernel(ctx: Any, done: Done, inputs: list[Any], *, f: FuncAttr) -> None:
    # The runtime knows this name: it makes the gradient function of `f` when it is first called.
    ctx.call(FuncAttr("SymbolicGradient", {"f": f}), inputs, done)


def gradient_shape(c: Any) -> list[Dims]:
    return [None if c.input(i).dtype in (dtypes.resource, dtypes.variant) else c.dims(i) for i in range(len(c.op.outputs))]


# -- branches -----------------------------------------------------------------------------------------------------------


def if_kernel(
    ctx: Any,
    done: Done,
    cond: Any,
    inputs: list[Any],
    *,
    then_branch: FuncAttr,
    else_branch: FuncAttr,
    Tin: list[DType],
    Tout: list[DType],
    node: Operation,
) -> None:
    branch = then_branch if to_bool(cond) else else_branch
    check_call(node, branch, Tin, Tout)
    ctx.call(branch, inputs, done)


def case_kernel(
    ctx: Any, done: Done, index: Any, inputs: list[Any], *, branches: list[FuncAttr], Tin: list[DType], Tout: list[DType], node: Operation
) -> None:
    if np.ndim(index) != 0:
        raise InvalidArgumentError("branch_index must be scalar")
    # An index that is no branch's means the last one.
    branch = branches[int(index)] if 0 <= index < len(branches) else branches[-1]
    check_call(node, branch, Tin, Tout)
    ctx.call(branch, inputs, done)


def declared_shapes(c: Any) -> list[Dims]:
    """What the attribute `output_shapes` says, if it says anything."""
    shapes = c.attrs["output_shapes"]
    if not shapes:
        return [None] * len(c.op.outputs)
    if len(shapes) != len(c.op.outputs):
        raise ValueError(f"`output_shapes` must be the same length as num outputs ({len(shapes)} vs. {len(c.op.outputs)}")
    return [dims_of(shape) for shape in shapes]


# -- loops --------------------------------------------------------------------------------------------------------------


def while_kernel(ctx: Any, done: Done, inputs: list[Any], *, cond: FuncAttr, body: FuncAttr, T: list[DType], node: Operation) -> None:
    check_call(node, cond, T, None, "cond")
    check_loop_body(node, body, T)

    def test(values: Any, error: Any = None) -> None:
        if error is not None:
            done(None, error)
        else:
            ctx.call(cond, values, lambda answer, error=None: decide(values, answer, error))

    def decide(values: list[Any], answer: Any, error: Any) -> None:
        if error is not None:
            done(None, error)
        elif len(answer) != 1:
            done(None, InvalidArgumentError(f"Expected a single scalar return value from WhileOp cond, got {len(answer)} tensors."))
        elif to_bool(answer[0]):
            ctx.call(body, values, test)
        else:
            done(values)

    test(inputs)


def check_loop_body(node: Operation, body: FuncAttr, types: list[DType]) -> None:
    function = node.graph.functions.get(body.name)
    if function is not None:
        count = len(arg_dtypes(function.op_def.outputs, body.attrs))
        if count != len(types):
            raise InvalidArgumentError(f"While loop body returned {count} arguments. Expected: {len(types)}.")
    check_call(node, body, types, types, "body")


def while_shape(c: Any) -> list[Dims]:
    for i, output in enumerate(c.op.outputs):
        if output.dtype in (dtypes.resource, dtypes.variant):
            c.copy_handle(i, i)
    if not c.attrs["output_shapes"]:
        return [c.dims(i) for i in range(c.n)]
    return declared_shapes(c)


def for_kernel(
    ctx: Any, done: Done, start: Any, limit: Any, delta: Any, inputs: list[Any], *, body: FuncAttr, T: list[DType], node: Operation
) -> None:
    for name, value in (("start", start), ("limit", limit), ("delta", delta)):
        if np.ndim(value) != 0:
            raise InvalidArgumentError(f"{name} must be a scalar, but [{','.join(map(str, np.shape(value)))}]")
    at, stop, step = int(start), int(limit), int(delta)
    if (step > 0 and at > stop) or (step < 0 and at < stop) or (step == 0 and at != stop):
        raise InvalidArgumentError(f"Invalid start/limit/delta: {at} {stop} {step}")
    check_call(node, body, [dtypes.int32, *T], T, "body")

    def again(values: Any, error: Any = None) -> None:
        nonlocal at
        if error is not None:
            done(None, error)
        elif at < stop if step > 0 else at > stop:
            i = np.int32(at)
            at += step
            ctx.call(body, [i, *values], again)
        else:
            done(values)

    again(inputs)


def unknown_shapes(c: Any) -> list[Dims]:
    return [None] * len(c.op.outputs)


# -- a function for each row --------------------------------------------------------------------------------------------


def map_kernel(
    ctx: Any,
    done: Done,
    arguments: list[Any],
    captured: list[Any],
    *,
    f: FuncAttr,
    Targuments: list[DType],
    Tcaptured: list[DType],
    output_types: list[DType],
    output_shapes: list[TensorShape],
    node: Operation,
) -> None:
    check_call(node, f, [*Targuments, *Tcaptured], output_types)
    if any(np.ndim(a) == 0 for a in arguments):
        raise InvalidArgumentError("All inputs must have rank at least 1")
    count = len(arguments[0])
    if any(len(a) != count for a in arguments):
        raise InvalidArgumentError("All inputs must have the same dimension 0.")
    rows: list[list[Any]] = []
    wanted = [dims_of(shape) for shape in output_shapes]

    def row(i: int) -> list[Any]:
        return [np.asarray(a[i], dtype=a.dtype) for a in arguments] + captured

    def came(results: Any, error: Any = None) -> None:
        if error is None:
            error = next((_mismatch(value, dims) for value, dims in zip(results, wanted, strict=True) if _mismatch(value, dims)), None)
        if error is not None:
            done(None, error)
            return
        rows.append(results)
        go_on()

    def go_on() -> None:
        if len(rows) < count:
            ctx.call(f, row(len(rows)), came)
        else:
            done([_stacked([r[k] for r in rows], dims, dtype) for k, (dims, dtype) in enumerate(zip(wanted, output_types, strict=True))])

    go_on()


def _mismatch(value: Any, dims: Dims) -> InvalidArgumentError | None:
    shape = np.shape(value)
    if dims is None or (len(dims) == len(shape) and all(d is None or d == n for d, n in zip(dims, shape, strict=True))):
        return None
    texts = ["[" + ",".join("?" if d is None else str(d) for d in sizes) + "]" for sizes in (shape, dims)]
    return InvalidArgumentError(f"Mismatch in function retval shape, {texts[0]}, and expected output shape, {texts[1]}.")


def _stacked(values: list[Any], dims: Dims, dtype: DType) -> np.ndarray:
    shape = np.shape(values[0]) if values else tuple(d or 0 for d in dims or ())
    result = np.empty((len(values), *shape), dtype=dtype.np)
    for i, value in enumerate(values):
        result[i] = value if np.ndim(value) else np.asarray(value, dtype=dtype.np)[()]
    return result


def map_shape(c: Any) -> list[Dims]:
    start, stop = c.arg("arguments")
    count: int | None = None
    for i in range(start, stop):
        dims = c.dims(i)
        if dims is None:
            continue
        if not dims:
            raise ValueError("Arguments must have at least rank 1")
        if count is not None and dims[0] is not None and dims[0] != count:
            raise ValueError("Arguments must have the same dimension 0.")
        count = dims[0] if dims[0] is not None else count
    if len(c.attrs["output_shapes"]) != len(c.op.outputs):
        raise ValueError(f"`output_shapes` must be the same length as `output_types` ({len(c.attrs['output_shapes'])} vs. {len(c.op.outputs)})")
    shapes = [dims_of(shape) for shape in c.attrs["output_shapes"]]
    return [None if dims is None else (count, *dims) for dims in shapes]


# -- small ops that stand in functions ----------------------------------------------------------------------------------


def fake_param_kernel(*, dtype: DType, shape: TensorShape) -> Any:
    """A value for a result that nobody reads: the branch that was not taken has none."""
    dims = tuple(d or 0 for d in dims_of(shape) or ())
    if dtype in (dtypes.resource, dtypes.variant):
        return None
    if dtype == dtypes.string:
        return np.full(dims, b"", dtype=object)
    return np.zeros(dims, dtype.np)


def device_index_kernel(ctx: Any, *, device_names: list[bytes]) -> Any:
    kind = ctx.device.attributes.device_type.encode()
    return np.int32(device_names.index(kind) if kind in device_names else len(device_names))


def to_bool_kernel(value: Any) -> Any:
    return np.bool_(to_bool(value))


# -- samples ------------------------------------------------------------------------------------------------------------

_LIBRARY = """
library {
  function { signature { name: "square" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } }
    node_def { name: "op" op: "Mul" input: "x" input: "x" attr { key: "T" value { type: DT_FLOAT } } } ret { key: "y" value: "op:z:0" } }
  function { signature { name: "minus" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } }
    node_def { name: "op" op: "Neg" input: "x" attr { key: "T" value { type: DT_FLOAT } } } ret { key: "y" value: "op:y:0" } }
  function { signature { name: "small" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_BOOL } }
    node_def { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
               attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 100 } } } }
    node_def { name: "op" op: "Less" input: "x" input: "c:output:0" attr { key: "T" value { type: DT_FLOAT } } } ret { key: "y" value: "op:z:0" } }
  function { signature { name: "times" input_arg { name: "i" type: DT_INT32 } input_arg { name: "x" type: DT_FLOAT }
                         output_arg { name: "y" type: DT_FLOAT } }
    node_def { name: "f" op: "Cast" input: "i" attr { key: "SrcT" value { type: DT_INT32 } } attr { key: "DstT" value { type: DT_FLOAT } } }
    node_def { name: "op" op: "Mul" input: "x" input: "f:y:0" attr { key: "T" value { type: DT_FLOAT } } } ret { key: "y" value: "op:z:0" } }
}"""


def _sample(build: Callable[[Any, Any], Any]) -> Any:
    """A program that has the functions above: `build(tf, x)` with a vector x."""

    def fn(tf: Any) -> Any:
        from google.protobuf import text_format

        tf.import_graph_def(text_format.Parse(_LIBRARY, tf.GraphDef()), name="")
        return build(tf, tf.constant([1.5, -2.0]))

    return program(fn)


_CALL = "(args: list Tin) -> (output: list Tout) [Tin: list(type) >= 0; Tout: list(type) >= 0; f: func; config: string = ''; config_proto: string = ''; executor_type: string = '']"
_IF = "(cond: Tcond, input: list Tin) -> (output: list Tout) [Tcond: type; Tin: list(type) >= 0; Tout: list(type) >= 0; then_branch: func; else_branch: func; output_shapes: list(shape) = []]"
_CASE = "(branch_index: int32, input: list Tin) -> (output: list Tout) [Tin: list(type) >= 0; Tout: list(type) >= 0; branches: list(func) >= 1; output_shapes: list(shape) = []]"
_WHILE = "(input: list T) -> (output: list T) [T: list(type) >= 0; cond: func; body: func; output_shapes: list(shape) = []; parallel_iterations: int = 10]"


def _call_sample(kind: str) -> Any:
    return [_sample(lambda tf, x: getattr(tf.raw_ops, kind)(args=[x], Tout=[tf.float32], f="square"))]


def _if_samples(kind: str) -> Any:
    return [
        _sample(lambda tf, x: [
            getattr(tf.raw_ops, kind)(cond=tf.constant(c), input=[x], Tout=[tf.float32], then_branch="square", else_branch="minus")
            for c in (True, False, 0, 2, 0.5, "", "x", [0], [])
        ])
    ]  # fmt: skip


def _case_samples(kind: str) -> Any:
    return [
        _sample(lambda tf, x: [
            getattr(tf.raw_ops, kind)(branch_index=tf.constant(i), input=[x], Tout=[tf.float32], branches=["square", "minus"]) for i in (-1, 0, 1, 5)
        ])
    ]  # fmt: skip


def _while_samples(kind: str) -> Any:
    return [_sample(lambda tf, x: getattr(tf.raw_ops, kind)(input=[x[0]], cond="small", body="square"))]


for _stateful, _flag in (("", ""), ("Stateful", " stateful")):
    op(f"{_stateful}PartitionedCall{_CALL}{_flag}", shape=call_shape, async_kernel=call_kernel,
       samples=_call_sample(f"{_stateful}PartitionedCall"))  # fmt: skip
for _stateless, _flag in (("", " stateful"), ("Stateless", "")):
    op(f"{_stateless}If{_IF}{_flag}", shape=declared_shapes, async_kernel=if_kernel, samples=_if_samples(f"{_stateless}If"))
    op(f"{_stateless}Case{_CASE}{_flag}", shape=declared_shapes, async_kernel=case_kernel, samples=_case_samples(f"{_stateless}Case"))
    op(f"{_stateless}While{_WHILE}{_flag}", shape=while_shape, async_kernel=while_kernel, samples=_while_samples(f"{_stateless}While"))

op("For(start: int32, limit: int32, delta: int32, input: list T) -> (output: list T) [T: list(type) >= 0; body: func]",
   shape=unknown_shapes, async_kernel=for_kernel,
   samples=[_sample(lambda tf, x: [
       tf.raw_ops.For(start=tf.constant(a), limit=tf.constant(b), delta=tf.constant(c), input=[x], body="times")
       for a, b, c in ((1, 4, 1), (4, 1, -1), (2, 2, 1))
   ])])  # fmt: skip

op("RemoteCall(target: string, args: list Tin) -> (output: list Tout) [Tin: list(type) >= 1; Tout: list(type) >= 1; f: func] stateful",
   shape=unknown_shapes, async_kernel=remote_call_kernel,
   samples=[_sample(lambda tf, x: tf.raw_ops.RemoteCall(target=tf.constant("/cpu:0"), args=[x], Tout=[tf.float32], f="square"))])  # fmt: skip

op("SymbolicGradient(input: list Tin) -> (output: list Tout) [Tin: list(type) >= 1; Tout: list(type) >= 1; f: func]",
   shape=gradient_shape, async_kernel=gradient_kernel,
   samples=[_sample(lambda tf, x: tf.raw_ops.SymbolicGradient(input=[x, x], Tout=[tf.float32], f="square"))])  # fmt: skip

op("MapDefun(arguments: list Targuments, captured_inputs: list Tcaptured) -> (output: list output_types) [Targuments: list(type) >= 1; Tcaptured: list(type) >= 0 = []; output_types: list(type) >= 1; output_shapes: list(shape) >= 1; f: func; max_intra_op_parallelism: int = 1]",
   shape=map_shape, async_kernel=map_kernel,
   samples=[_sample(lambda tf, x: tf.raw_ops.MapDefun(
       arguments=[x], captured_inputs=[], output_types=[tf.float32], output_shapes=[[]], f="square"))])  # fmt: skip

op("FakeParam() -> (output: dtype) [dtype: type; shape: shape]", shape=from_attr("shape"), numpy=fake_param_kernel, grad=NOT_DIFFERENTIABLE)
op("ToBool(input: T) -> (output: bool) [T: type]", shape=scalar, numpy=to_bool_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(input=arr(0, np.int32)), dict(input=arr(2.5, np.float32)), dict(input=strings("")), dict(input=strings("x")),
            dict(input=arr([0], np.int32)), dict(input=arr(np.zeros((2, 0)), np.float32)), dict(input=arr(True, np.bool_))])  # fmt: skip
op("DeviceIndex() -> (index: int32) [device_names: list(string)] stateful", shape=scalar, numpy=device_index_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(device_names=[b"GPU", b"CPU"]), dict(device_names=[b"GPU"])])  # fmt: skip
op("_ListToArray(input: list Tin) -> (output: N*T) [Tin: list(type) >= 1; T: type; N: int >= 1]",
   shape=lambda c: [c.dims(i) for i in range(c.n)], numpy=lambda values: values)  # fmt: skip
op("_ArrayToList(input: N*T) -> (output: list out_types) [T: type; N: int >= 1; out_types: list(type) >= 1]",
   shape=lambda c: [c.dims(i) for i in range(c.n)], numpy=lambda values: values)  # fmt: skip
