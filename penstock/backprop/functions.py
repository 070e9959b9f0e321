"""Gradients through calls of library functions, branches and loops in functional form.

`call_gradient(op)` is the one question that the engine asks: how do gradients go through this call?

- A call of a function without effects: a SymbolicGradient node, as in TF. It computes the gradient from the arguments.
- A call of a function with effects, If, Case: the forward node is changed to return the intermediate values that the gradient
  wants as well, and another call (If, Case) computes the gradient from them. So nothing runs twice.
- While: see function_loops.py.

Builders are `fn(op, *dys) -> gradients of the inputs`. Those marked `takes_none` get None for results without gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import dtypes, errors
from penstock.backprop.function_bodies import Split, gradient_function, known, repeatable, value_dtype, zeros_for
from penstock.backprop.rules import is_trainable
from penstock.formats.attr_value import FuncAttr
from penstock.graph.composite import IndexedSlices
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import graph_scope
from penstock.graph.func_graph import FuncGraph, make_function
from penstock.graph.function import CALLS, Function, called_function, calls_itself
from penstock.graph.ir import Dims, Graph, Operation, Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape

# op type -> fn(op, *dys) -> gradients of the inputs
BUILDERS: dict[str, Callable[..., Any]] = {}


def is_call(op: Operation) -> bool:
    """Whether `op` calls a function of its graph's library."""
    return op.type in CALLS or op.graph._is_function(op.type)


def call_gradient(op: Operation) -> Callable[..., Any] | None:
    """`fn(op, *dys)` for a call, or None if `op` is none."""
    builder = BUILDERS.get(op.type)
    if builder is not None:
        return builder
    if op.type == "SymbolicGradient":
        return second_gradient
    if not is_call(op):
        return None
    found = called_function(op)
    if found is None:
        return None
    function, _ = found
    own = op.__dict__.get("_defun")
    python_gradient = own.python_grad_func if own is not None else function.python_gradient
    if python_gradient is not None:
        return python_gradient
    if function.name in op.graph.gradient_functions or repeatable(function.name, op.graph.functions):
        return symbolic_gradient
    return branch_gradient


def takes_none(rule: Any) -> bool:
    """Whether a builder wants None, not zeros, for results without gradient."""
    return getattr(rule, "takes_none", False)


def symbolic_gradient(op: Operation, *dys: Any) -> list[Any]:
    """The gradients of a call as one SymbolicGradient node."""
    if op.type in CALLS:
        function = op.attrs["f"]
    else:
        function = FuncAttr(op.type, dict(op.attrs))
    types = [value_dtype(t) for t in op.inputs]
    return list(raw.SymbolicGradient([*op.inputs, *[_tensor(dy) for dy in dys]], Tout=types, f=function))


def second_gradient(op: Operation, *dys: Any) -> list[Any]:
    """The gradient of a SymbolicGradient: that of the function it calls."""
    function = gradient_function(op.graph, op.attrs["f"])
    function.add_to_graph(op.graph)
    types = [value_dtype(t) for t in op.inputs]
    attrs = {k: v for k, v in op.attrs["f"].attrs.items() if k in function.op_def.attrs}
    return list(raw.SymbolicGradient([*op.inputs, *[_tensor(dy) for dy in dys]], Tout=types, f=FuncAttr(function.name, attrs)))


def _tensor(dy: Any) -> Tensor:
    return convert_to_tensor(dy) if isinstance(dy, IndexedSlices) else dy


# ---------------------------------------------------------------------------------------------------------------------
# Calls and branches


def functions_of(op: Operation) -> list[tuple[Function, dict[str, Any]]]:
    """The functions that `op` may call, with their attributes: one of a call, two of an If, all of a Case."""
    if op.type in ("If", "StatelessIf"):
        attrs = [op.attrs["then_branch"], op.attrs["else_branch"]]
    elif op.type in ("Case", "StatelessCase"):
        attrs = op.attrs["branches"]
    else:
        found = called_function(op)
        attrs = [FuncAttr(found[0].name, found[1]) if found else FuncAttr(op.type)]
    result = []
    for attr in attrs:
        function = op.graph.functions.get(attr.name)
        if not function:
            raise errors.NotFoundError(f"Function {attr.name}, which '{op.name}' calls, is not defined.")
        result.append((function, attr.attrs))
    return result


def branch_gradient(op: Operation, *dys: Any) -> list[Any]:
    """A call or branch whose gradient reads the intermediate values of the forward functions."""
    if any(calls_itself(function.name, op.graph.functions) for function, _ in functions_of(op)):
        return recursive_gradient(op, *dys)
    selector = 0 if op.type in CALLS or op.graph._is_function(op.type) else 1  # the first input of If and Case chooses
    inputs = op.inputs[selector:]
    n_outputs = len(op.outputs)
    has_dy = [dy is not None and is_trainable(y) for y, dy in zip(op.outputs, dys, strict=True)]
    given = [_tensor(dy) for dy, has in zip(dys, has_dy, strict=True) if has]
    splits = [Split(function, attrs, op.graph, [known(t) for t in inputs], has_dy) for function, attrs in functions_of(op)]
    wanted = [any(split.grads[i] is not None for split in splits) for i in range(len(inputs))]
    if not any(wanted):
        return [None] * len(op.inputs)
    for split in splits:
        split.return_grads(wanted)
    used = sorted({i for split in splits for i in split.captured_inputs()})
    mids = [(split, mid) for split in splits for mid in split.captured_mids()]
    for split in splits:
        split.take(used, mids)
        with graph_scope(split.forward):
            split.forward.outputs = split.forward.outputs + [
                mid if owner is split else raw.FakeParam(dtype=mid.dtype, shape=TensorShape.from_dims(mid.dims)) for owner, mid in mids
            ]
    forwards = [_added(split.forward, op.graph) for split in splits]
    backwards = [_added(split.backward, op.graph, prune=True) for split in splits]
    _replace_functions(op, forwards, [mid for _, mid in mids])
    args = [*given, *[inputs[i] for i in used], *op.outputs[n_outputs:]]
    found = iter(_call(op, backwards, args, [t for t, want in zip(inputs, wanted, strict=True) if want]))
    return [None] * selector + [next(found) if want else None for want in wanted]


branch_gradient.takes_none = True  # type: ignore[attr-defined]


def recursive_gradient(op: Operation, *dys: Any) -> list[Any]:
    """A branch whose functions call themselves. Their gradients cannot be written down to the end: they are SymbolicGradients, which
    go one call deeper each time one is run."""
    functions = functions_of(op)
    if not all(repeatable(function.name, op.graph.functions) for function, _ in functions):
        raise LookupError(f"No gradient defined for '{op.name}' ({op.type}): its functions call themselves and have effects.")
    selector = 0 if op.type in CALLS or op.graph._is_function(op.type) else 1
    inputs = op.inputs[selector:]
    args = [*inputs, *[zeros_for(y) if dy is None else _tensor(dy) for y, dy in zip(op.outputs, dys, strict=True)]]
    types = [value_dtype(t) for t in inputs]
    steps = []
    for function, attrs in functions:
        graph = FuncGraph(f"{function.name}_gradient_call", op.graph)
        for tensor in args:
            graph.add_input(tensor.dtype, tensor.dims, "arg", tensor.handle_data)
        with graph_scope(graph):
            graph.outputs = list(raw.SymbolicGradient(list(graph.inputs), Tout=types, f=FuncAttr(function.name, attrs)))
        steps.append(_added(graph, op.graph))
    found = _call(op, steps, args, inputs)
    return [None] * selector + [grad if is_trainable(t) else None for grad, t in zip(found, inputs, strict=True)]


def _added(graph: Any, outer: Graph, prune: bool = False) -> Function:
    function = make_function(graph, base_name=graph.name, prune=prune)
    function.add_to_graph(outer)
    return function


def _call(op: Operation, functions: list[Function], args: list[Tensor], like: list[Tensor]) -> list[Tensor]:
    """The node that calls one of `functions`, chosen as `op` chooses."""
    types = [value_dtype(t) for t in like]
    attrs = [FuncAttr(f.name) for f in functions]
    stateful = any(f.stateful for f in functions)
    dims: list[Dims] = [_gradient_dims(t) for t in like]
    shapes = [TensorShape.from_dims(d) for d in dims]
    if op.type in ("If", "StatelessIf"):
        node = raw.If if stateful else raw.StatelessIf
        return list(node(op.inputs[0], args, Tout=types, then_branch=attrs[0], else_branch=attrs[1], output_shapes=shapes))
    if op.type in ("Case", "StatelessCase"):
        node = raw.Case if stateful else raw.StatelessCase
        return list(node(op.inputs[0], args, Tout=types, branches=attrs, output_shapes=shapes))
    node = raw.StatefulPartitionedCall if stateful else raw.PartitionedCall
    return list(node(args, Tout=types, f=attrs[0]))


def _gradient_dims(t: Tensor) -> Dims:
    if t.dtype == dtypes.resource:
        return t.handle_data[0][1] if t.handle_data else None
    return t.dims


def _replace_functions(op: Operation, functions: list[Function], extra: list[Tensor]) -> None:
    """Makes `op` call other functions, which return `extra` behind what it returned before."""
    for tensor in extra:
        output = Tensor(op, len(op.outputs), tensor.dtype.base_dtype, tensor.dims)
        output.handle_data = tensor.handle_data
        op.outputs.append(output)
    attrs = [FuncAttr(f.name) for f in functions]
    if op.type not in CALLS and op.graph._is_function(op.type):
        op.type, op.op_def = functions[0].name, functions[0].op_def
        op.attrs = {k: v for k, v in op.attrs.items() if k.startswith("_")}
    else:
        changed: dict[str, Any] = {"Tout": [t.dtype for t in op.outputs]}
        if op.type in CALLS:
            changed["f"] = attrs[0]
        else:
            if op.attrs["output_shapes"]:
                changed["output_shapes"] = [*op.attrs["output_shapes"], *[t.shape for t in extra]]
            if "branches" in op.attrs:
                changed["branches"] = attrs
            else:
                changed["then_branch"], changed["else_branch"] = attrs
        op.attrs = {**op.attrs, **changed}
    op.graph._changed(op)


for _kind in ("If", "StatelessIf", "Case", "StatelessCase"):
    BUILDERS[_kind] = branch_gradient
