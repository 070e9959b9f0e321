"""The gradient of a While: a loop that runs as often, backwards.

    forward:   while cond(x): x = body(x)                               x -> x'
    forward':  while cond(x): x, mids = forward(x); count += 1; push each of mids on a list
    backward:  while count > 0: pop mids; dx = backward(dx, mids, invariants); count -= 1

The forward node is changed in place to the second form, so that it runs once. Values that the body hands on unchanged are
invariants: they need no list, and their gradients add up over the iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock import dtypes, errors
from penstock.backprop.function_bodies import Split, copy_into, results, value_dtype, zeros_for
from penstock.backprop.functions import BUILDERS, _added, _gradient_dims, _tensor
from penstock.backprop.rules import is_trainable
from penstock.formats.attr_value import FuncAttr
from penstock.graph.constant import constant
from penstock.graph.defaults import graph_scope
from penstock.graph.func_graph import FuncGraph
from penstock.graph.function import Function, calls_itself
from penstock.graph.ir import Dims, Graph, Operation, Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape


def while_gradient(op: Operation, *dys: Any) -> list[Any]:
    """Gradients of the initial values."""
    n = len(op.inputs)
    body, attrs = _function(op, "body")
    if calls_itself(body.name, op.graph.functions):
        raise LookupError(f"No gradient defined for '{op.name}' ({op.type}): its body calls itself.")
    like = [(_common_dims(x.dims, y.dims), x.handle_data or y.handle_data) for x, y in zip(op.inputs, op.outputs, strict=True)]
    has_dy = [dy is not None and is_trainable(y) for y, dy in zip(op.outputs, dys, strict=True)]
    if len(body.output_dtypes(attrs)) != n:
        raise errors.InvalidArgumentError(f"While loop body returned {len(body.output_dtypes(attrs))} arguments. Expected: {n}.")
    active = _active(body.body(attrs, op.graph.functions), has_dy)
    if not any(active):
        return [None] * n
    split = Split(body, attrs, op.graph, like, active)
    split.return_grads(active)
    invariant = [y is x for x, y in zip(split.forward.inputs, split.forward.outputs, strict=True)]
    constants = [i for i in split.captured_inputs() if invariant[i]]
    saved = [split.forward.inputs[i] for i in split.captured_inputs() if not invariant[i]] + split.captured_mids()
    count, lists = _accumulate(op, split, saved)
    split.take([], [])
    split.backward.inputs += [split.backward.captures[t] for t in saved] + [split.backward.captures[split.forward.inputs[i]] for i in constants]
    backward = _added(split.backward, op.graph, prune=True)
    start = [_tensor(dy) if has else zeros_for(y) for y, dy, has, use in zip(op.outputs[:n], dys, has_dy, active, strict=True) if use]
    targets = [(op.inputs[i], like[i][0]) for i in range(n) if active[i]]
    found = iter(_backward_loop(op, backward, count, start, lists, saved, [op.inputs[i] for i in constants], targets))
    # The counter and the lists are inputs of the forward node by now.
    return [next(found) if use else None for use in active] + [None] * (len(op.inputs) - n)


while_gradient.takes_none = True  # type: ignore[attr-defined]


def _function(op: Operation, which: str) -> tuple[Function, dict[str, Any]]:
    attr = op.attrs[which]
    function = op.graph.functions.get(attr.name)
    if function is None:
        raise errors.NotFoundError(f"Function {attr.name}, which '{op.name}' calls, is not defined.")
    return function, attr.attrs


def _common_dims(a: Dims, b: Dims) -> Dims:
    """What holds before and after an iteration."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else None for x, y in zip(a, b, strict=True))


def _active(body: Graph, has_dy: Sequence[bool]) -> list[bool]:
    """Which loop variables have gradients: those that have one at the end, and those that lead to such in some iteration."""
    ys = results(body)
    args = {op: op.attrs["index"] for op in body if op.type == "_Arg"}
    behind: list[set[int]] = []  # for each result, the arguments that it depends on
    for y in ys:
        seen: set[Operation] = set()
        stack = [y.op] if is_trainable(y) else []
        found: set[int] = set()
        while stack:
            op = stack.pop()
            if op in seen:
                continue
            seen.add(op)
            if op in args:
                found.add(args[op])
            stack.extend(t.op for t in op.inputs if is_trainable(t))
        behind.append(found)
    active = [has and is_trainable(y) for has, y in zip(has_dy, ys, strict=True)]
    changed = True
    while changed:
        changed = False
        for i, use in enumerate(list(active)):
            for j in behind[i] if use else ():
                if not active[j]:
                    active[j] = changed = True
    return active


def _accumulate(op: Operation, split: Split, saved: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Changes `op` to count its iterations and to keep `saved` tensors of each: (count, lists) among its new outputs."""
    n = len(op.inputs)
    forward, graph = split.forward, op.graph
    count = forward.add_input(dtypes.int32, (), "count")
    lists = [forward.add_input(dtypes.variant, (), "list") for _ in saved]
    with graph_scope(forward):
        pushed = [raw.TensorListPushBack(values, tensor, element_dtype=tensor.dtype) for values, tensor in zip(lists, saved, strict=True)]
        forward.outputs = [*forward.outputs, raw.AddV2(count, 1), *pushed]
    cond, attrs = _function(op, "cond")
    test = FuncGraph(f"{cond.name}_counted", graph)
    for tensor in forward.inputs:
        test.add_input(tensor.dtype, tensor.dims, tensor.op.name, tensor.handle_data)
    body = cond.body(attrs, graph.functions)
    tensors = copy_into(test, body, test.inputs[:n])
    test.outputs = [tensors[t] for t in results(body)]
    with _beside(op):
        starts = [constant(0, dtypes.int32, name="count")]
        starts += [
            raw.EmptyTensorList(_shape_vector(tensor), -1, element_dtype=tensor.dtype, name="accumulator") for tensor in saved
        ]
    for tensor in starts:
        op.inputs.append(tensor)
        tensor._consumers = [*(tensor._consumers or ()), op]
        output = Tensor(op, len(op.outputs), tensor.dtype, ())
        output.handle_data = tensor.handle_data
        op.outputs.append(output)
    shapes = op.attrs["output_shapes"]
    op.attrs = {
        **op.attrs,
        "T": [t.dtype.base_dtype for t in op.inputs],
        "cond": FuncAttr(_added(test, graph).name),
        "body": FuncAttr(_added(forward, graph).name),
        "output_shapes": [*shapes, *[TensorShape([])] * len(starts)] if shapes else [],
    }
    graph._changed(op)
    return op.outputs[n], op.outputs[n + 1 :]


class _beside:
    """`with _beside(op)`: builds in `op`'s graph and under its control-flow context, whatever graph is current."""

    def __init__(self, op: Operation) -> None:
        self.op = op
        self.scopes: list[Any] = []

    def __enter__(self) -> None:
        graph = self.op.graph
        self.scopes = [graph_scope(graph), graph.control_dependencies(None), graph.name_scope(self.op.name + "/")]
        for scope in self.scopes:
            scope.__enter__()
        graph._control_flow_context = self.op._control_flow_context

    def __exit__(self, *exc_info: object) -> None:
        for scope in reversed(self.scopes):
            scope.__exit__(None, None, None)


def _shape_vector(tensor: Tensor) -> Tensor:
    """The element shape of a list of such tensors, -1 for what is unknown."""
    if tensor.dims is None:
        return constant(-1, dtypes.int32, name="element_shape")
    return constant(np.array([-1 if d is None else d for d in tensor.dims], np.int32), dtypes.int32, name="element_shape")


def _backward_loop(
    op: Operation,
    backward: Function,
    count: Tensor,
    start: list[Tensor],
    lists: list[Tensor],
    saved: list[Tensor],
    constants: list[Tensor],
    targets: list[tuple[Tensor, Dims]],
) -> list[Tensor]:
    """The second loop. `targets` are the initial values whose gradients it computes, with the dims that hold in all iterations."""
    graph = op.graph
    variables = [count, *start, *lists, *constants]
    dims: list[Dims] = [(), *[_gradient_dims(x) if x.dtype == dtypes.resource else d for x, d in targets]]
    dims += [()] * len(lists) + [t.dims for t in constants]

    def graph_of(name: str, build: Callable[..., list[Tensor]]) -> Function:
        inner = FuncGraph(f"{op.attrs['body'].name}_{name}", graph)
        for tensor, d in zip(variables, dims, strict=True):
            inner.add_input(tensor.dtype.base_dtype, d, "arg", tensor.handle_data)
        with graph_scope(inner):
            inner.outputs = build(inner.inputs[0], inner.inputs[1:])
        return _added(inner, graph)

    def step(i: Tensor, rest: list[Tensor]) -> list[Tensor]:
        dxs, held, fixed = rest[: len(start)], rest[len(start) : len(start) + len(lists)], rest[len(start) + len(lists) :]
        popped = [raw.TensorListPopBack(values, _shape_vector(t), element_dtype=t.dtype) for values, t in zip(held, saved, strict=True)]
        call = raw.StatefulPartitionedCall if backward.stateful else raw.PartitionedCall
        types = [value_dtype(x) for x, _ in targets]
        new = call([*dxs, *[p.tensor for p in popped], *fixed], Tout=types, f=FuncAttr(backward.name))
        return [raw.Sub(i, 1), *new, *[p.output_handle for p in popped], *fixed]

    body = graph_of("backward_step", step)
    cond = graph_of("backward_test", lambda i, rest: [raw.Greater(i, 0)])
    node = raw.While if body.stateful else raw.StatelessWhile
    shapes = [TensorShape.from_dims(d) for d in dims]
    outputs = node(variables, cond=FuncAttr(cond.name), body=FuncAttr(body.name), output_shapes=shapes, parallel_iterations=1)
    return list(outputs)[1 : 1 + len(start)]


for _kind in ("While", "StatelessWhile"):
    BUILDERS[_kind] = while_gradient
