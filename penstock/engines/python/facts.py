"""What is known of values before the code runs: which arrays nobody else holds, and whose static shape can be relied on.

Both decide where a result may be written. An array is *owned* if it is new when its node has run and all its readers make new arrays: nobody
can have kept it, or a view of it. A static shape is *sure* if it follows from the shapes of feeds, constants and variables by the nodes
themselves; one that a program has only claimed (`set_shape` on what a Python function gives) is not.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from penstock.engines.python.arrays import VALUE, Elements, LocalArray
from penstock.engines.python.chains import Chained
from penstock.engines.python.elementwise import Fused
from penstock.engines.python.expressions import derives_shape, kept_inputs, needed_inputs, new_results
from penstock.engines.python.handles import Handles
from penstock.engines.python.products import Products
from penstock.engines.python.structure import Assign, Call, Loop
from penstock.graph.ir import Dims, Operation, Tensor
from penstock.graph.shape_inference import inferred_dims
from penstock.shapes import is_fully_defined

Path = tuple[int, ...]
Root = Callable[[Tensor], Tensor]

_VARIABLES = frozenset(("VariableV2", "Variable", "ReadVariableOp"))
_SAME = frozenset(("Identity", "Snapshot", "Enter", "RefEnter", "Switch", "RefSwitch"))


def find_owned(
    statements: Iterable[tuple[Path, Any]], reads: Callable[[Any], Sequence[Tensor]], root: Root, keeping: Container[Operation] = ()
) -> dict[Tensor, Path]:
    """The owned arrays, and the block that makes each. Nodes of `keeping` keep what they are given."""
    shared: set[Tensor] = set()
    fresh: dict[Tensor, Path] = {}
    for path, statement in statements:
        if isinstance(statement, Call):
            if statement.node.op in keeping:
                shared.update(root(t) for t in reads(statement))
            else:
                fresh.update((t, path[:-1]) for t in new_results(statement.node))
                shared.update(root(t) for t in kept_inputs(statement.node))
            continue
        if isinstance(statement, (Fused, Chained)):
            fresh.update((t, path[:-1]) for t in statement.outputs)
        elif not isinstance(statement, Products):
            shared.update(root(t) for t in reads(statement))
    return {tensor: path for tensor, path in fresh.items() if tensor not in shared}


def find_sure(
    statements: Sequence[tuple[Path, Any]], root: Root, given: Iterable[Tensor], stacks: Container[Operation] = (), arrays: dict[Operation, LocalArray] | None = None
) -> set[Tensor]:
    """Tensors whose static shapes hold at run time; `given` are constants and fed arguments, `stacks` nodes of stacks that are lists, `arrays` nodes of
    TensorArrays that nobody else knows."""
    known = set(given)
    changing: set[Tensor] = set()  # variables of loops whose next value is not sure
    uneven: set[Operation] = set()  # TensorArrays that hold values of several shapes
    while True:
        sure = set(known)
        vague: set[Tensor] = set()  # stacks that hold values of several shapes
        dims_of: dict[Tensor, Any] = {}
        carried: list[tuple[Tensor, Tensor]] = []
        elements = Elements(arrays or {}, uneven)
        read: list[Operation] = []
        ends: dict[Operation, int] = {}  # Merges of branches, and how many of their inputs were sure to have their shape

        def holds(tensor: Tensor, sure: set[Tensor] = sure) -> bool:
            # A tensor that only has another name may have been given a shape of its own.
            source = root(tensor)
            return source in sure and (source is tensor or _implies(source.dims, tensor.dims))

        for _, statement in statements:
            if isinstance(statement, Call):
                op = statement.node.op
                kind = op.type
                if kind in _VARIABLES:
                    sure.update(op.outputs)
                elif kind in _SAME:
                    if holds(op.inputs[0]):
                        sure.update(t for t in op.outputs if _implies(op.inputs[0].dims, t.dims))
                elif kind == "StackPopV2" and op in stacks:
                    if root(op.inputs[0]) not in vague:
                        sure.update(op.outputs)
                elif kind == "StackPushV2" and op in stacks:
                    handle = root(op.inputs[0])
                    pushed = root(op.inputs[1])
                    if pushed not in sure or dims_of.setdefault(handle, pushed.dims) != pushed.dims:
                        vague.add(handle)
                elif op in elements.arrays:
                    if kind in VALUE:
                        elements.written(op, holds(op.inputs[VALUE[kind]]))
                    elif elements.is_sure(op):
                        sure.update(op.outputs)
                        read.append(op)
                elif derives_shape(statement.node) and all(map(holds, needed := needed_inputs(statement.node))):
                    is_static = all(is_fully_defined(t.dims) for t in needed) and (kind != "Reshape" or len(needed) == 1)
                    sure.update(op.outputs if is_static else _derived(op))
            elif isinstance(statement, Assign):
                op = statement.node.op
                value = root(op.inputs[statement.index])
                ends[op] = ends.get(op, 0) + (value in sure and _implies(value.dims, op.outputs[0].dims))
                if ends[op] == len(op.inputs):
                    sure.add(op.outputs[0])
            elif isinstance(statement, Products):
                sure.update(statement.outputs)
            elif isinstance(statement, Handles):
                sure.update(t for t in statement.outputs if t.op.type in _VARIABLES)
            elif isinstance(statement, (Fused, Chained)):
                if all(root(t) in sure for t in statement.inputs):
                    sure.update(statement.outputs)
            elif isinstance(statement, Loop):
                for merge, first, again in statement.carried:
                    tensor = merge.op.outputs[0]
                    if tensor not in changing and root(first) in sure and _implies(root(first).dims, tensor.dims):
                        sure.add(tensor)
                        carried.append((tensor, root(again)))
        wrong = {tensor for tensor, again in carried if again is not tensor and (again not in sure or not _implies(again.dims, tensor.dims))}
        late = any(not elements.is_sure(op) for op in read)  # something else was written later
        uneven = elements.vague if late else uneven
        if not wrong and not late:
            return sure
        changing |= wrong


def _implies(dims: Dims, other: Dims) -> bool:
    """Whether what has the static shape `dims` has the shape `other` too, which may say less."""
    if dims == other or other is None:
        return True
    return dims is not None and len(dims) == len(other) and all(b is None or a == b for a, b in zip(dims, other))


def _derived(op: Operation) -> list[Tensor]:
    """Outputs whose static shapes say no more than the node's own rule does."""
    dims = inferred_dims(op)
    return [] if dims is None else [t for t, own in zip(op.outputs, dims) if t.dims == own]
