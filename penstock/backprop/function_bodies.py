"""Gradients of function bodies: the gradient of a function as a function of its own, and bodies split in two.

`gradient_function(f)` computes everything from the arguments: (arguments, gradients of the results) -> gradients of the arguments.
That runs the forward body once more, which is right for bodies without effects.

`split(body, ...)` gives a forward graph, which also returns the intermediate values that the gradient wants, and a backward graph,
which takes them. That is what branches and loops use, and calls of functions with effects (random numbers, writes).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from penstock import dtypes, errors
from penstock.backprop.rules import is_trainable, zeros, zeros_like
from penstock.formats.attr_value import FuncAttr
from penstock.graph.composite import IndexedSlices
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import graph_scope
from penstock.graph.func_graph import FuncGraph, make_function
from penstock.graph.function import Function, attr_key
from penstock.graph.ir import Dims, Graph, Operation, Tensor
from penstock.graph.raw import raw

# Stateful ops that may run once more without anybody noticing.
_HARMLESS = frozenset({
    "VarHandleOp", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape", "_ReadVariablesOp", "_Arg", "_Retval",
    "Assert", "Print", "PrintV2", "DeviceIndex", "FakeParam", "Placeholder", "TensorArrayV3", "TensorArrayGradV3", "TensorArrayReadV3",
    "TensorArraySizeV3", "TensorArrayGatherV3", "TensorArrayWriteV3", "TensorArrayScatterV3", "TensorArraySplitV3", "TensorArrayConcatV3",
    "TensorArrayCloseV3", "StackV2", "StackPushV2", "StackPopV2", "HashTableV2", "If", "While", "Case", "StatefulPartitionedCall",
})  # fmt: skip


def repeatable(name: str, library: dict[str, Function]) -> bool:
    """Whether calling function `name` once more gives the same results and does nothing else."""
    seen: set[str] = set()
    stack = [name]
    while stack:
        function = library.get(stack.pop())
        if function is None or function.name in seen:
            continue
        seen.add(function.name)
        own = function._own_body
        types = {op.type for op in own} if own is not None else {node.op for node in function._proto.node_def}
        for op_type in types:
            if op_type in library or op_type in _HARMLESS:
                continue
            opdef = own.op_def(op_type) if own is not None else Graph().op_def(op_type)
            if opdef.stateful:
                return False
        stack.extend(function.callees())
    return True


# ---------------------------------------------------------------------------------------------------------------------
# Copies of bodies


def arguments(body: Graph) -> list[Operation]:
    return sorted((op for op in body if op.type == "_Arg"), key=lambda op: op.attrs["index"])


def results(body: Graph) -> list[Tensor]:
    return [op.inputs[0] for op in sorted((op for op in body if op.type == "_Retval"), key=lambda op: op.attrs["index"])]


def copy_into(graph: Graph, body: Graph, args: Sequence[Tensor]) -> dict[Tensor, Tensor]:
    """Adds the nodes of `body` to `graph`, with `args` for its arguments; body tensor -> tensor in `graph`."""
    tensors: dict[Tensor, Tensor] = {}
    ops: dict[Operation, Operation] = {}
    for op, arg in zip(arguments(body), args, strict=True):
        tensors[op.outputs[0]] = arg
        ops[op] = arg.op
    copies = [op for op in body if op.type not in ("_Arg", "_Retval")]
    for op in copies:
        new = graph.add_node(op.op_def, [], op.attrs, graph.unique_name(op.name), [t.dtype for t in op.outputs], (), op.device)
        new.trace, new.origin = op.trace, op.origin
        for old, tensor in zip(op.outputs, new.outputs, strict=True):
            tensor.dims, tensor.handle_data = old.dims, old.handle_data
            tensors[old] = tensor
        ops[op] = new
    for op in copies:
        new = ops[op]
        new.inputs = [tensors[t] for t in op.inputs]
        for tensor in new.inputs:
            if tensor._consumers is None:
                tensor._consumers = []
            tensor._consumers.append(new)
        for control in op.control_inputs:
            if control in ops:
                new._add_control_input(ops[control])
    return tensors


Known = tuple[Dims, Any]
"""What is known of an argument: (dims, handle data)."""


def known(tensor: Tensor) -> Known:
    return tensor.dims, tensor.handle_data


def forward_graph(function: Function, attrs: dict[str, Any], outer: Graph, name: str, like: Sequence[Known] | None = None) -> FuncGraph:
    """The function's body in a graph of its own; `like` tells of the arguments what the body does not."""
    body = function.body(attrs, outer.functions)
    graph = FuncGraph(name, outer)
    for i, op in enumerate(arguments(body)):
        inner = op.outputs[0]
        dims, handle = like[i] if like is not None else (None, None)
        x = graph.add_input(inner.dtype, inner.dims if inner.dims is not None else dims, op.name, inner.handle_data or handle)
        if x.dtype == dtypes.resource and not x.handle_data:
            x.handle_data = _guessed_handle(inner)
    if function.trace is not None:
        graph.outputs = function.trace(graph, graph.inputs)
    else:
        tensors = copy_into(graph, body, graph.inputs)
        graph.outputs = [tensors[t] for t in results(body)]
    return graph


# ---------------------------------------------------------------------------------------------------------------------
# The gradient of a function as a function


def gradient_function(graph: Graph, func: FuncAttr) -> Function:
    """(arguments, gradients of the results) -> gradients of the arguments: what SymbolicGradient calls. The registered gradient
    function if there is one, else made from the body."""
    function = graph.functions.get(func.name)
    if function is None:
        raise errors.NotFoundError(f"Function {func.name} is not defined.")
    registered = graph.gradient_functions.get(func.name)
    if registered:
        found = graph.functions.get(registered)
        if found is None:
            raise errors.NotFoundError(f"Function {registered}, the gradient of {func.name}, is not defined.")
        return found
    key = attr_key({k: v for k, v in func.attrs.items() if k in function.op_def.attrs})
    made: dict[Any, Function] = function.__dict__.setdefault("_gradients", {})
    if key not in made:
        try:
            made[key] = _build_gradient(graph, function, func.attrs)
        except LookupError as error:
            raise errors.NotFoundError(f"Function '{func.name}': {error.args[0]}") from error
    return made[key]


def _build_gradient(outer: Graph, function: Function, attrs: dict[str, Any]) -> Function:
    forward = forward_graph(function, attrs, outer, f"{function.name}_gradient")
    xs, ys = list(forward.inputs), list(forward.outputs)
    dys = [forward.add_input(value_dtype(y), None if y.dtype == dtypes.resource else y.dims, f"dy_{i}") for i, y in enumerate(ys)]
    with graph_scope(forward):
        found = input_gradients(ys, xs, dys)
        forward.outputs = [zeros_for(x) if grad is None else grad for x, grad in zip(xs, found, strict=True)]
    return make_function(forward, base_name=f"{function.name}_gradient", prune=True)


def input_gradients(ys: Sequence[Tensor], xs: Sequence[Tensor], dys: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Dense gradients of `xs`; `dys` of None are left out. Built in the default graph, which may be another one."""
    from penstock.backprop.engine import gradients

    pairs = [(y, dy) for y, dy in zip(ys, dys, strict=True) if dy is not None and is_trainable(y)]
    wanted = [x for x in xs if is_trainable(x) and (x.dtype != dtypes.resource or x.handle_data)]
    if not pairs or not wanted:
        return [None] * len(xs)
    _refuse_loops([y for y, _ in pairs])
    found = dict(zip(wanted, gradients([y for y, _ in pairs], wanted, [dy for _, dy in pairs]), strict=True))
    return [_dense(found.get(x)) for x in xs]


def _dense(grad: Any) -> Tensor | None:
    if not isinstance(grad, IndexedSlices):
        return grad
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a function returns tensors, so there is nothing to be done about it
        return convert_to_tensor(grad)


def _refuse_loops(ys: Sequence[Tensor]) -> None:
    """A loop of Enter and Exit nodes that was imported has lost the records that its gradient needs."""
    seen: set[Operation] = set()
    stack = [y.op for y in ys]
    while stack:
        op = stack.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.type in ("Exit", "RefExit") and op._control_flow_context is None:
            raise LookupError(
                f"No gradient defined for the loop that ends in '{op.name}': it was imported as single nodes, without the record of a loop. "
                "Import it in its functional form (While), or build it with tf.while_loop."
            )
        stack.extend(t.op for t in op.inputs)


def value_dtype(tensor: Tensor) -> dtypes.DType:
    """The type of a tensor's gradient: a handle's gradient is that of what it refers to."""
    if tensor.dtype == dtypes.resource and tensor.handle_data:
        return tensor.handle_data[0][0]
    return tensor.dtype.base_dtype


def zeros_for(x: Tensor) -> Tensor:
    """Zeros like `x`, or like the variable that `x` refers to."""
    if x.dtype != dtypes.resource:
        return zeros_like(x)
    if not x.handle_data:
        return zeros([], dtypes.float32)  # a resource that holds no tensors: nobody looks at this
    dtype, dims = x.handle_data[0]
    if dims is not None and None not in dims:
        return zeros(dims, dtype)
    return zeros(raw.VariableShape(x), dtype)


def _guessed_handle(x: Tensor) -> list[tuple[dtypes.DType, Dims]] | None:
    """What a handle refers to, from an op that reads it."""
    for op in x.consumers():
        if op.type in ("ReadVariableOp", "ResourceGather", "ResourceGatherNd"):
            return [(op.attrs["dtype"], None)]
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Forward and backward


class Split:
    """A body split in two.

    forward     its graph: `inputs` are the function's arguments, `outputs` its results
    backward    takes the given gradients, then what it captured of `forward`
    grads       for each forward input, its gradient in `backward`, or None
    """

    def __init__(self, function: Function, attrs: dict[str, Any], outer: Graph, like: Sequence[Known], has_dy: Sequence[bool]) -> None:
        for what, got, want in (("arguments", len(function.input_dtypes(attrs)), len(like)), ("results", len(function.output_dtypes(attrs)), len(has_dy))):
            if got != want:
                raise errors.InvalidArgumentError(f"Function '{function.name}' has {got} {what}, but its caller has {want}")
        self.forward = forward_graph(function, attrs, outer, f"{function.name}_forward", like)
        self.backward = FuncGraph(f"{function.name}_backward", self.forward)
        ys = self.forward.outputs
        dys: list[Tensor | None] = [None] * len(ys)
        for i, y in enumerate(ys):
            if has_dy[i]:
                dys[i] = self.backward.add_input(value_dtype(y), None if y.dtype == dtypes.resource else y.dims, f"dy_{i}")
        self._dys = list(self.backward.inputs)
        with graph_scope(self.backward):
            self.grads = input_gradients(ys, self.forward.inputs, dys)

    def return_grads(self, wanted: Sequence[bool]) -> None:
        """Makes the `wanted` gradients the results of `backward`, zeros where there is none."""
        with graph_scope(self.backward):
            self.backward.outputs = [
                self.backward.capture(zeros_for(x) if grad is None else grad)
                for x, grad, want in zip(self.forward.inputs, self.grads, wanted, strict=True)
                if want
            ]

    def captured_inputs(self) -> list[int]:
        """The numbers of the forward inputs that `backward` reads."""
        return [i for i, x in enumerate(self.forward.inputs) if x in self.backward.captures]

    def captured_mids(self) -> list[Tensor]:
        """The intermediate values of `forward` that `backward` reads."""
        own = set(self.forward.inputs)
        return [t for t in self.backward.extra_inputs if t not in own]

    def take(self, inputs: Sequence[int], mids: Sequence[tuple[Split, Tensor]]) -> None:
        """Settles the arguments of `backward`: the gradients, the forward inputs of these numbers, these intermediates. Those that are
        not its own, but another branch's, are ignored."""
        backward = self.backward
        args = list(self._dys)
        for i in inputs:
            x = self.forward.inputs[i]
            found = backward.captures.get(x)
            args.append(backward.add_input(x.dtype, x.dims, "unused") if found is None else found)
        for owner, mid in mids:
            args.append(backward.captures[mid] if owner is self else backward.add_input(mid.dtype, mid.dims, "unused"))
        backward.inputs = args
