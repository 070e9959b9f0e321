"""What is known before the code runs: sure shapes where they are asked for, what is computed of them, and nodes that do nothing then.

    y = shape(x)                                    x of a sure shape: a constant
    r, s = broadcast_gradient_args(y, z)            both known: constants; so is anything small that is computed of constants
    push(stack, y); ... y = pop(stack)              the same constant is pushed in every round: neither runs
    push(stack, x); ... shape(pop(stack))           nobody reads what is popped: neither runs
    sum(x, []), reshape(x, y)                       x

Gradients of what may broadcast are full of these. Where shapes are known without looking at code, passes over the graph have seen to it; what is left is
in loops and conds, and behind TensorArrays, whose elements have sure shapes only in code that holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from typing import Any

import numpy as np

from penstock.engines.python.expressions import original, variables_read
from penstock.engines.python.stacks import LocalStack
from penstock.engines.python.structure import Call
from penstock.engines.python.walk import everything, reads
from penstock.graph.ir import Operation, Tensor
from penstock.shapes import is_fully_defined, num_elements

SHAPES = frozenset(("Shape", "ShapeN", "Size", "Rank"))
MOST = 64
"""Elements of what is computed beforehand: shapes, axes, counts."""
_SHORT = frozenset(("BroadcastGradientArgs",))
"""What gives vectors of a few axes."""
_REDUCTIONS = frozenset(("Sum", "Prod", "Max", "Min", "Mean"))


class Known:
    """State
    values    tensor -> its value, of what turned out to be constant
    same      tensor -> the one whose value it has
    gone      nodes that need not run
    """

    def __init__(self, root: Callable[[Tensor], Tensor], constant: Callable[[Tensor], Any], stacks: dict[Operation, LocalStack], kept: Container[Tensor]) -> None:
        self.values: dict[Tensor, Any] = {}
        self.same: dict[Tensor, Tensor] = {}
        self.gone: set[Operation] = set()
        self._root, self._constant, self._stacks, self._kept = root, constant, stacks, kept

    def find(self, block: list, sure: Collection[Tensor]) -> bool:
        """Goes through the statements once; whether anything was found."""
        before = len(self.gone)
        calls = [s.node for s in everything(block) if isinstance(s, Call) and s.node.op not in self.gone]
        self._look_at_stacks(block)
        for node in calls:
            op: Operation = node.op
            if op not in self.gone and op.outputs and not any(t in self._kept for t in op.outputs) and not variables_read(node):
                self._look_at(node, sure)
        return len(self.gone) > before

    def _value(self, tensor: Tensor) -> Any:
        source = self._source(tensor)
        value = self.values.get(source)
        return self._constant(source) if value is None else value

    def _source(self, tensor: Tensor) -> Tensor:
        source = self._root(tensor)
        while source in self.same:
            source = self._root(self.same[source])
        return source

    def _look_at(self, node: Any, sure: Collection[Tensor]) -> None:
        op: Operation = node.op
        if op.type in SHAPES:
            if original(node) and all(self._is_sure(t, sure) for t in op.inputs):
                self._set(node, node.fn(*[np.broadcast_to(np.zeros((), t.dtype.np), tuple(n or 0 for n in t.dims or ())) for t in op.inputs]))
            return
        if not op.inputs or op.op_def.stateful or node.needs_ctx or not original(node):
            return
        last = self._value(op.inputs[-1])
        if last is None:
            return
        if (op.type in _REDUCTIONS and not np.size(last)) or (op.type == "Reshape" and self._is_sure(op.inputs[0], sure) and np.array_equal(last, np.array(op.inputs[0].dims))):
            self._is_same(op)
        elif all(op.type in _SHORT or (is_fully_defined(t.dims) and (num_elements(t.dims) or 0) <= MOST and t.dtype.is_numpy_compatible) for t in op.outputs):
            values = [self._value(t) for t in op.inputs]
            if any(value is None for value in values):
                return
            try:
                with np.errstate(all="ignore"):
                    self._set(node, node.fn(*values))
            except Exception:  # the step will raise it again, and say where
                return

    def _is_sure(self, tensor: Tensor, sure: Collection[Tensor]) -> bool:
        source = self._source(tensor)
        return source in sure and is_fully_defined(tensor.dims) and source.dims == tensor.dims

    def _set(self, node: Any, result: Any) -> None:
        for tensor, value in zip(node.op.outputs, [result] if node.plain else result, strict=True):
            self.values[tensor] = np.asarray(value)[()]
        self.gone.add(node.op)

    def _is_same(self, op: Operation) -> None:
        self.same[op.outputs[0]] = op.inputs[0]
        self.gone.add(op)

    def _look_at_stacks(self, block: list) -> None:
        """Stacks that always hold the same, and those of which nobody reads what they give back."""
        users: dict[Tensor, list[Operation]] = {}
        for op in self._stacks:
            if op not in self.gone:
                users.setdefault(op.outputs[0] if op.type == "StackV2" else self._root(op.inputs[0]), []).append(op)
        read = {self._source(t) for s in everything(block) if not isinstance(s, Call) or s.node.op not in self.gone for t in reads(s)}
        for ops in users.values():
            pushed = [op.inputs[1] for op in ops if op.type == "StackPushV2"]
            popped = [op.outputs[0] for op in ops if op.type == "StackPopV2"]
            if any(t in self._kept for t in popped) or any(self._stacks[op].max_size >= 0 for op in ops):
                continue
            values = [self._value(t) for t in pushed]
            if values and all(value is not None and np.array_equal(value, values[0]) for value in values):
                self.values.update((t, values[0]) for t in popped)
            elif any(t in read for t in popped):
                continue
            self.gone.update(ops)
