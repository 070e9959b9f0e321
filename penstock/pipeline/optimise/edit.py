"""What a pass wants changed, and the new graph that results.

A pass fills an `Edit`: tensors to read instead of others, operations that turned out to be constants, control inputs to replace. `apply`
makes a new graph of what the roots still need. The input graph is left alone, and returned as it is if nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from penstock.dtypes import DType
from penstock.formats.attr_value import TensorAttr
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.opdef import OPS
from penstock.graph.parts import Parts
from penstock.graph.rewrite import Copier, add_controls, new_node

CONTROL_FLOW = frozenset(
    ("Switch", "RefSwitch", "_SwitchN", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit", "NextIteration", "RefNextIteration", "LoopCond", "ControlTrigger")
)
_ROOT_TYPES = frozenset(("_Retval", "_Send", "_HostSend", "_DeviceRetval"))


def roots_of(graph: Graph, targets: frozenset[str]) -> list[Operation]:
    """The nodes for whose sake the graph runs: results, sends, and the signature's targets."""
    return [op for op in graph if op.type in _ROOT_TYPES or op.name in targets]


def is_pure(op: Operation) -> bool:
    """Whether running `op` once more, once less or elsewhere makes no difference but to time."""
    opdef = op.op_def
    if opdef.stateful or opdef.async_kernel is not None or opdef.kernel is None or op.type in CONTROL_FLOW or op.type in _IMPURE:
        return False
    for tensor in op.inputs:
        if tensor.dtype._is_ref_dtype:
            return False
    for tensor in op.outputs:  # noqa: SIM110 - this runs for every node of every pass, and a loop is twice as quick as any()
        if tensor.dtype._is_ref_dtype:
            return False
    return True


_IMPURE = frozenset((
    "Placeholder", "PlaceholderV2", "_Arg", "_Retval", "NoOp", "Assert", "Print", "CheckNumerics", "CheckNumericsV2", "StatefulPartitionedCall", "ReadFile", "MatchingFiles",
))  # fmt: skip


class Edit:
    """State
    redirect    tensor -> the tensor to read instead (chains are followed)
    constants   operation -> the values of its outputs, all known
    controls    operation -> its new control inputs, where they change
    retyped     operation -> the type, inputs and attributes that it gets
    more_outputs  retyped operation -> tensors that stand for outputs which only its new type has
    dims        output of a retyped operation -> its dimensions, where they change
    computes    retyped operation -> further operations that it computes, beside those whose values it gives
    why         what was done, one line each, for `explain`
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.redirect: dict[Tensor, Tensor] = {}
        self.constants: dict[Operation, list[tuple[DType, np.ndarray]]] = {}
        self.controls: dict[Operation, list[Operation]] = {}
        self.retyped: dict[Operation, tuple[str, list[Tensor], dict]] = {}
        self.more_outputs: dict[Operation, list[Tensor]] = {}
        self.dims: dict[Tensor, tuple[int | None, ...]] = {}
        self.computes: dict[Operation, list[Operation]] = {}
        self.why: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.redirect or self.constants or self.controls or self.retyped)

    def resolve(self, tensor: Tensor) -> Tensor:
        """The tensor that is read in place of `tensor`."""
        redirect = self.redirect
        last = tensor
        while (further := redirect.get(last)) is not None:
            last = further
        while tensor is not last:  # whoever comes next has a short way
            following = redirect[tensor]
            redirect[tensor] = last
            tensor = following
        return last

    def inputs(self, op: Operation) -> list[Tensor]:
        changed = self.retyped.get(op)
        source = op.inputs if changed is None else changed[1]
        redirect = self.redirect
        if not redirect:
            return source
        return [self.resolve(t) if t in redirect else t for t in source]

    def apply(self, roots: list[Operation]) -> Graph:
        """The graph after the changes, without what the roots no longer need."""
        live = self._live(roots)
        if not self and len(live) == len(self.graph):
            return self.graph
        copier = Copier(self.graph)
        given = self._given_by() if self.retyped else {}
        for op in self.graph:
            if op not in live:
                continue
            if op in self.constants:
                self._constant(copier, op)
            elif op in self.retyped:
                self._retype(copier, op, given.get(op, ()))
            else:
                copier.clone(op)
        return self._wire(copier, live)

    def _live(self, roots: list[Operation]) -> dict[Operation, list[Tensor]]:
        """What the roots need, with the tensors that each of them reads."""
        live: dict[Operation, list[Tensor]] = {op: [] for op in roots}
        stack = list(roots)
        constants, controls = self.constants, self.controls
        while stack:
            op = stack.pop()
            if op not in constants:
                live[op] = inputs = self.inputs(op)
                for tensor in inputs:
                    source = tensor.op
                    if source not in live:
                        live[source] = []
                        stack.append(source)
            for source in controls.get(op, op.control_inputs):
                if source not in live:
                    live[source] = []
                    stack.append(source)
        return live

    def _constant(self, copier: Copier, op: Operation) -> None:
        graph = copier.graph
        values = self.constants[op]
        first: Operation | None = None
        for i, (dtype, array) in enumerate(values):
            attrs = {"value": TensorAttr(dtype, array), "dtype": dtype}
            new = new_node(graph, "Const", op.name if i == 0 else f"{op.name}/_const_{i}", [], attrs, [dtype], [array.shape], op.device, origin=op)
            copier.tensors[op.outputs[i]] = new.outputs[0]
            first = first or new
        assert first is not None
        copier.ops[op] = first
        # All further constants wait for what the operation waited for.
        self._extra = getattr(self, "_extra", {})
        self._extra[op] = [copier.tensors[t].op for t in op.outputs[1:]]

    def _given_by(self) -> dict[Operation, list[Operation]]:
        """Of each retyped operation, those whose values are read from it now."""
        result: dict[Operation, list[Operation]] = {}
        for old, new in self.redirect.items():
            if new.op in self.retyped:
                result.setdefault(new.op, []).append(old.op)
        return result

    def _retype(self, copier: Copier, op: Operation, given: Iterable[Operation]) -> None:
        kind, inputs, attrs = self.retyped[op]
        graph = copier.graph
        new = Operation(graph, op.name, OPS[kind], attrs, graph._next_id, op.device)
        graph._next_id += 1
        new.origin = op.origin or op
        new.parts = Parts([*given, *self.computes.get(op, ()), op], inputs)
        kept = op.outputs[:1] if new.op_def.plain_output else op.outputs  # further outputs that the new type lacks have no readers
        new.outputs = [Tensor(new, t.value_index, t.dtype, self.dims.get(t, t.dims)) for t in kept]
        for old in self.more_outputs.get(op, ()):
            kept = [*kept, old]
            new.outputs.append(Tensor(new, len(new.outputs), old.dtype, old.dims))
        for old, tensor in zip(kept, new.outputs, strict=True):
            copier.tensors[old] = tensor
        graph._nodes[op.name] = new
        copier.ops[op] = new

    def _wire(self, copier: Copier, live: dict[Operation, list[Tensor]]) -> Graph:
        tensors, ops = copier.tensors, copier.ops
        for old, new in ops.items():
            controls = self.controls.get(old, old.control_inputs)
            if old not in self.constants:
                inputs = [tensors[t] for t in live[old]]
                new.inputs = inputs
                for tensor in inputs:
                    if tensor._consumers is None:
                        tensor._consumers = [new]
                    else:
                        tensor._consumers.append(new)
            if controls:
                sources = [ops[c] for c in controls if c in ops]
                add_controls(new, sources)
                for extra in getattr(self, "_extra", {}).get(old, ()):
                    add_controls(extra, sources)
        return copier.graph
