"""Copying graphs for passes: new nodes that keep what the old ones were, wired as the pass says.

A pass never edits its input. It makes a new Graph with `Copier`: first every node (`node`, `clone`), then every edge
(`wire`), so that the order of nodes and the back edges of loops do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.dtypes import DType
from penstock.graph.ir import Dims, Graph, Operation, Tensor
from penstock.graph.opdef import OPS


class Copier:
    """Builds `graph` out of the nodes of `source`.

    State
        ops        old Operation -> its clone
        tensors    old Tensor -> the Tensor that stands for it here; passes may put replacements in
    """

    def __init__(self, source: Graph) -> None:
        self.source = source
        self.graph = new_like(source)
        self.ops: dict[Operation, Operation] = {}
        self.tensors: dict[Tensor, Tensor] = {}

    def clone(self, op: Operation, device: str | None = None, attrs: dict[str, Any] | None = None, name: str | None = None) -> Operation:
        """A node like `op`, without edges yet."""
        graph = self.graph
        new = Operation(graph, name or op.name, op.op_def, op.attrs if attrs is None else attrs, graph._next_id, op.device if device is None else device)
        graph._next_id += 1
        new.origin = op.origin or op
        new.parts = op.parts
        tensors = self.tensors
        outputs = new.outputs
        for old in op.outputs:
            tensor = Tensor(new, old.value_index, old.dtype, old.dims)
            tensor.handle_data = old.handle_data
            outputs.append(tensor)
            if old not in tensors:
                tensors[old] = tensor
        graph._nodes[new.name] = new
        self.ops[op] = new
        return new

    def wire(self, control_of: Callable[[Operation], Iterable[Operation]] | None = None) -> Graph:
        """Gives every clone its inputs: what `tensors` holds for the old ones. Control inputs that were not cloned vanish."""
        tensors, ops = self.tensors, self.ops
        for old, new in ops.items():
            inputs = [tensors[t] for t in old.inputs]
            new.inputs = inputs
            for tensor in inputs:
                if tensor._consumers is None:
                    tensor._consumers = [new]
                else:
                    tensor._consumers.append(new)
            controls = old.control_inputs if control_of is None else control_of(old)
            if controls:
                add_controls(new, [ops[c] for c in controls if c in ops])
        return self.graph


def add_controls(op: Operation, controls: Iterable[Operation]) -> None:
    """Adds control inputs without marking the graph as changed by a client."""
    for other in controls:
        if other is op or other in op.control_inputs:
            continue
        op.control_inputs.append(other)
        if other._control_outputs is None:
            other._control_outputs = []
        other._control_outputs.append(op)


def new_like(source: Graph) -> Graph:
    """An empty graph with the same function library and versions."""
    graph = Graph()
    graph.functions = source.functions
    graph.gradient_functions = source.gradient_functions
    graph._producer = source._producer
    graph._min_consumer = source._min_consumer
    return graph


def copy(source: Graph) -> Graph:
    """A copy of the whole graph."""
    copier = Copier(source)
    for op in source:
        copier.clone(op)
    return copier.wire()


def new_node(
    graph: Graph,
    op_type: str,
    name: str,
    inputs: list[Tensor],
    attrs: dict[str, Any],
    dtypes: list[DType],
    dims: list[Dims] | None = None,
    device: str = "",
    controls: Iterable[Operation] = (),
    origin: Operation | None = None,
) -> Operation:
    """A node that a pass adds. `name` is made unique if it is taken."""
    base, count = name, 0
    while name in graph:
        count += 1
        name = f"{base}_{count}"
    op = graph.add_node(OPS[op_type], inputs, attrs, name, dtypes, controls, device, dims)
    op.origin = origin.origin or origin if origin is not None else None
    return op


def _sources_then_rest(graph: Graph) -> list[Operation] | None:
    """The graph's own order with its sources in front, if that is topological, as it nearly always is without loops."""
    sources: list[Operation] = []
    rest: list[Operation] = []
    for op in graph:
        inputs, controls = op.inputs, op.control_inputs
        if not inputs and not controls:
            sources.append(op)
            continue
        number = op.id
        for tensor in inputs:
            source = tensor.op
            if source.id >= number and (source.inputs or source.control_inputs):
                return None
        for source in controls:
            if source.id >= number and (source.inputs or source.control_inputs):
                return None
        rest.append(op)
    return sources + rest


def topological(graph: Graph) -> list[Operation]:
    """Nodes so that inputs come first; the back edges of loops (NextIteration into Merge) do not count."""
    quick = _sources_then_rest(graph)
    if quick is not None:
        return quick
    pending: dict[Operation, int] = {}
    ready: list[Operation] = []
    for op in graph:
        count = len(op.control_inputs) + len(op.inputs)
        if op.type in ("Merge", "RefMerge"):
            count -= sum(1 for t in op.inputs if t.op.type in ("NextIteration", "RefNextIteration"))
        pending[op] = count
        if count == 0:
            ready.append(op)
    order: list[Operation] = []
    position = 0
    while position < len(ready):
        op = ready[position]
        position += 1
        order.append(op)
        back_edge = op.type in ("NextIteration", "RefNextIteration")
        for tensor in op.outputs:
            for consumer in tensor._consumers or ():
                if back_edge and consumer.type in ("Merge", "RefMerge"):
                    continue
                pending[consumer] -= 1
                if pending[consumer] == 0:
                    ready.append(consumer)
        for consumer in op._control_outputs or ():
            pending[consumer] -= 1
            if pending[consumer] == 0:
                ready.append(consumer)
    if len(order) != len(graph):
        stuck = [op.name for op, count in pending.items() if count > 0]
        raise ValueError(f"Graph has a cycle through {', '.join(stuck[:5])}")
    return order
