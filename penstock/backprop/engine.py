"""tf.gradients: the walk from results to sources.

    1. `_between` finds the ops that lie on a path from a source to a result and counts, for each, how many of its consumers
       will contribute a gradient.
    2. Starting at the results, an op whose count is zero is taken off the queue; the gradients of its outputs are summed, its
       rule gives those of its inputs, and the counts of their producers go down.
    3. Loops and branches follow special rules; `loops.py` keeps their books.

`grads` maps an op to one entry per output: a list of gradients that have arrived, or their sum once the op was processed.
"""

from __future__ import annotations

import contextlib
import enum
from collections import deque
from collections.abc import Iterator
from typing import Any

from penstock import dtypes
from penstock.backprop import control_flow as _control_flow_rules  # noqa: F401 - attaches the rules
from penstock.backprop import function_loops as _function_loops  # noqa: F401 - attaches the builder of While
from penstock.backprop import functions
from penstock.backprop.loops import ControlFlowState, loops_between, zeros_like_outside_loop
from penstock.backprop.rules import gradient_function, is_trainable, ones, zeros_like
from penstock.backprop.slices import sum_gradients
from penstock.graph.composite import IndexedSlices
from penstock.graph.control_flow import dynamic_shape, is_loop_exit, is_loop_switch, is_switch, with_dependencies
from penstock.graph.convert import convert_to_tensor, convert_to_tensor_or_indexed_slices
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.raw import raw

Grads = dict[Operation, list[Any]]


class UnconnectedGradients(enum.Enum):
    """What tf.gradients returns for sources that the results do not depend on."""

    NONE = "none"
    ZERO = "zero"


def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
    stop_gradients: Any = None,
    unconnected_gradients: Any = UnconnectedGradients.NONE,
) -> list[Any]:
    """Symbolic derivatives of the sum of `ys` with respect to each x of `xs`.

    Returns one gradient per x: a Tensor, IndexedSlices, or None (zeros with `UnconnectedGradients.ZERO`) where no path leads
    from x to the results. `grad_ys` are gradients to start with instead of ones; `stop_gradients` are tensors that count as
    constants; `gate_gradients` computes all gradients of an op before any is used.

    >>> tf.gradients(x * x, [x])
    """
    ys, xs = _as_list(ys), _as_list(xs)
    stop_gradients = [] if stop_gradients is None else _as_list(stop_gradients)
    grad_ys = [None] * len(ys) if grad_ys is None else _as_list(grad_ys)
    try:
        unconnected = UnconnectedGradients(unconnected_gradients)
    except ValueError:
        raise ValueError(f"Unknown value for unconnected_gradients: {unconnected_gradients!r}") from None
    graph = get_default_graph()
    with graph.name_scope(name or "gradients"):
        ys = [convert_to_tensor_or_indexed_slices(y, name="y") for y in ys]
        xs = [_source(x, "x") for x in xs]
        stop_gradients = [_source(x, "stop_gradients") for x in stop_gradients]
        if graph.building_function:
            xs, stop_gradients = (_inside(graph, ys, tensors) for tensors in (xs, stop_gradients))
        walk = _Walk(graph, colocate_gradients_with_ops, gate_gradients, aggregation_method)
        start = _initial_gradients(grad_ys, ys, walk)
        return walk.run(ys, xs, start, stop_gradients, unconnected)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _source(x: Any, name: str) -> Tensor:
    """A source as a tensor: the handle of a resource variable, the reference of a ref variable."""
    handle = getattr(x, "handle", None)
    if isinstance(handle, Tensor) and not isinstance(x, Tensor) and handle.dtype == dtypes.resource:
        return handle
    if isinstance(x, IndexedSlices):
        return x.values
    return convert_to_tensor(x, name=name, as_ref=True)


def _inside(graph: Any, ys: list[Any], tensors: list[Tensor]) -> list[Tensor]:
    """In a function's body, a source outside of the function means the argument that brings it in."""
    if any(y.graph is not graph for y in ys):
        return tensors
    return [graph.captures.get(t, t) for t in tensors]


def _initial_gradients(grad_ys: list[Any], ys: list[Any], walk: _Walk) -> list[Any]:
    """Ones, or what the caller gave, checked against the types of the results."""
    if len(grad_ys) != len(ys):
        raise ValueError(f"Length mismatch. Passed {len(grad_ys)} grad_ys for {len(ys)} ys")
    result = []
    for i, (grad_y, y) in enumerate(zip(grad_ys, ys, strict=True)):
        dtype = y.dtype.base_dtype
        if grad_y is None:
            if dtype.is_complex:
                raise TypeError(f"Gradients of complex tensors ({y}) must set grad_ys (y.dtype = {dtype.name})")
            with walk.colocated(y.op):
                tensor = convert_to_tensor(y)
                result.append(ones(dynamic_shape(tensor), dtype, name=f"grad_ys_{i}"))
            continue
        grad_y = convert_to_tensor_or_indexed_slices(grad_y, name="grad_y")
        _check_type(grad_y, y, dtype)
        # Inside of the gradients' own name scope, so that TensorArrays can tell which call a gradient belongs to.
        if isinstance(grad_y, IndexedSlices):
            shape = grad_y.dense_shape
            result.append(
                IndexedSlices(
                    raw.Identity(grad_y.values, name=f"grad_ys_{i}_values"),
                    raw.Identity(grad_y.indices, name=f"grad_ys_{i}_indices"),
                    None if shape is None else raw.Identity(shape, name=f"grad_ys_{i}_shape"),
                )
            )
        else:
            with walk.colocated(grad_y.op):
                result.append(raw.Identity(grad_y, name=f"grad_ys_{i}"))
    return result


def _check_type(grad_y: Any, y: Any, dtype: dtypes.DType) -> None:
    got = grad_y.dtype.base_dtype
    if dtype.is_floating or dtype.is_integer:
        if not got.is_floating and not got.is_integer:
            raise TypeError(f"Gradient type {got.name} generated for real or integer-valued tensor {y} with type {dtype.name} must be real or integer")
    elif dtype.is_complex:
        if not got.is_complex:
            raise TypeError(f"Gradient type {got.name} generated for complex-valued tensor {y} with type {dtype.name} must be real")
    elif dtype == dtypes.variant:
        if got != dtypes.variant:
            raise TypeError(f"Gradient type {got.name} generated for variant tensor {y} with type {dtype.name} must be variant")
    elif dtype != dtypes.resource:
        raise TypeError(f"Tensor {y} with type {dtype.name} must be numeric to obtain a default gradient")


class _Walk:
    """One call of gradients()."""

    def __init__(self, graph: Graph, colocate: bool, gate: bool, aggregation_method: int | None) -> None:
        self.graph = graph
        self.colocate = colocate
        self.gate = gate
        self.aggregation_method = aggregation_method
        self.grads: Grads = {}
        self.pending: dict[Operation, int] = {}
        self.queue: deque[Operation] = deque()
        self.loops: ControlFlowState | None = None

    @contextlib.contextmanager
    def colocated(self, op: Operation) -> Iterator[None]:
        if not self.colocate:
            yield
            return
        with self.graph.colocate_with(op):
            yield

    def run(self, ys: list[Any], xs: list[Tensor], start: list[Any], stops: list[Tensor], unconnected: UnconnectedGradients) -> list[Any]:
        to_ops = [y.op for y in ys]
        from_ops = [x.op for x in xs]
        reachable = self._between(to_ops, from_ops)
        for y, grad_y in zip(ys, start, strict=True):
            self._add(y.values if isinstance(y, IndexedSlices) else y, grad_y)
        queued: set[Operation] = set()
        for op in to_ops:
            if self.pending.get(op, 0) == 0 and op not in queued and op in reachable:
                queued.add(op)
                self.queue.append(op)
        if self.loops is not None:
            for tensor in self.loops.unused_exits(self.pending, queued):
                if is_trainable(tensor):
                    self._add(tensor, self.loops.zeros_for_exit(tensor))
                    self.queue.append(tensor.op)
        stop_ops = {op for op in from_ops if not any(self.pending.get(t.op, 0) > 0 for t in op.inputs)}
        stop_ops.update(t.op for t in stops)
        from_set, source_set = set(from_ops), set(xs)
        while self.queue:
            self._process(self.queue.popleft(), stop_ops, from_set, source_set)
        if self.loops is not None:
            self.loops.finish()
        return [self._result(x, unconnected) for x in xs]

    # -- before ----------------------------------------------------------------------------------------------------------------

    def _between(self, to_ops: list[Operation], from_ops: list[Operation]) -> set[Operation]:
        """Fills `pending` for the ops between sources and results; returns the results' ops that sources lead to."""
        reached: set[Operation] = set()
        queue: deque[Operation] = deque(from_ops)
        while queue:
            op = queue.popleft()
            if op in reached:
                continue
            reached.add(op)
            for output in op.outputs:
                if is_trainable(output):
                    queue.extend(output._consumers or ())
        result = {op for op in to_ops if op in reached}
        between: dict[Operation, None] = {}
        queue.extend(to_ops)
        while queue:
            op = queue.popleft()
            if op in reached:
                between[op] = None
                reached.remove(op)
                queue.extend(t.op for t in op.inputs)
        self.loops = self._loops(between)
        for op in between:
            for tensor in op.inputs:
                if tensor.op in between:
                    self.pending[tensor.op] = self.pending.get(tensor.op, 0) + 1
        return result

    def _loops(self, between: dict[Operation, None]) -> ControlFlowState | None:
        return loops_between(between)

    # -- the walk ----------------------------------------------------------------------------------------------------------------

    def _process(self, op: Operation, stop_ops: set[Operation], from_ops: set[Operation], sources: set[Tensor]) -> None:
        loops = self.loops
        with self.colocated(op):
            if loops is not None:
                loops.enter_context(op, before=True)
            out_grads = self._summed(op)
            if loops is not None:
                loops.exit_context(op, before=True)
            rule = None
            has_grads = any(grad is not None for grad in out_grads)
            if has_grads and op not in stop_ops:
                rule = _rule_for(op)
            if loops is not None:
                loops.enter_context(op, before=False)
            try:
                in_grads = self._input_gradients(op, rule, out_grads, from_ops, sources) if rule is not None and has_grads else None
                if in_grads is not None:
                    for i, (tensor, grad) in enumerate(zip(op.inputs, in_grads, strict=True)):
                        if grad is not None:
                            self._check_shape(op, i, tensor, grad)
                            self._add(tensor, grad)
            finally:
                if loops is not None:
                    loops.exit_context(op, before=False)
        self._count_down(op)

    def _input_gradients(self, op: Operation, rule: Any, out_grads: list[Any], from_ops: set[Operation], sources: set[Tensor]) -> list[Any]:
        context = op._control_flow_context
        if is_switch(op) and context is not None and context.IsWhileContext() and context is self.graph._control_flow_context:
            _raise_initial_value_error(op, from_ops, sources)
        is_function = functions.call_gradient(op) is rule
        for i, grad in enumerate(out_grads):
            if functions.takes_none(rule):
                break
            if grad is None and (is_function or is_trainable(op.outputs[i])):
                out_grads[i] = zeros_like_outside_loop(op, i) if self.loops is None else self.loops.zeros_like_in_loop(op, i)
        with self.graph.name_scope(op.name + "_grad"), self.graph._original_op_scope(op):
            in_grads = _as_grad_list(rule(op, *out_grads))
            if len(in_grads) != len(op.inputs):
                raise ValueError(f"Num gradients {len(in_grads)} generated for op {op.node_def} do not match num inputs {len(op.inputs)}")
            if self.gate and sum(grad is not None for grad in in_grads) > 1:
                in_grads = self._gated(in_grads)
        return in_grads

    def _gated(self, in_grads: list[Any]) -> list[Any]:
        """All gradients of an op, each available only when all are there."""
        graph = self.graph
        with graph.device(None), graph.colocate_with(None, ignore_existing=True), graph.name_scope("tuple"):
            ops = sorted({grad.op for grad in in_grads if grad is not None}, key=lambda o: o.id)
            with graph.control_dependencies(ops):
                gate = raw.NoOp(name="group_deps")
            return [None if grad is None else with_dependencies([gate], grad) for grad in in_grads]

    def _check_shape(self, op: Operation, index: int, tensor: Tensor, grad: Any) -> None:
        if not isinstance(grad, Tensor) or tensor.dtype == dtypes.resource:
            return
        try:
            grad.set_shape(tensor.shape)
        except ValueError:
            raise ValueError(
                f"Incompatible shapes between op input and calculated input gradient. Forward operation: {op.name}. Input index: {index}. "
                f"Original input shape: {tensor.shape}. Calculated input gradient shape: {grad.shape}"
            ) from None

    def _summed(self, op: Operation) -> list[Any]:
        """The gradients of `op`'s outputs, each summed to one; also kept, for sources."""
        entries = self.grads.get(op)
        if entries is None:
            return [None] * len(op.outputs)
        for i, grad in enumerate(entries):
            if isinstance(grad, list):
                entries[i] = sum_gradients(grad, op.name, self.aggregation_method) if grad else None
        return list(entries)

    def _add(self, tensor: Tensor, grad: Any) -> None:
        op = tensor.op
        entries = self.grads.get(op)
        if entries is None:
            entries = self.grads[op] = [[] for _ in op.outputs]
        entry = entries[tensor.value_index]
        if isinstance(entry, list):
            entry.append(grad)
        else:
            # The second visit of a loop variable's Switch replaces what the first one left.
            assert is_loop_switch(op) or entry is None, op
            entries[tensor.value_index] = grad

    def _count_down(self, op: Operation) -> None:
        """One consumer less for each input's producer; those that wait for nobody are next."""
        loops = self.loops
        for tensor in op.inputs:
            source = tensor.op
            self.pending[source] = left = self.pending.get(source, 0) - 1
            if left != 0 and not (left > 0 and loops is not None and is_loop_switch(source)):
                continue
            if loops is None or not is_loop_exit(source):
                self.queue.append(source)
                continue
            state = loops.state_of(source, before=False)
            if state is None:
                self.queue.append(source)
                continue
            # A loop's exits are processed together: a loop has one gradient loop.
            state.deferred_exits.append(tensor)
            state.pending_exits_count -= 1
            if state.pending_exits_count == 0:
                self._release_exits(state, loops)

    def _release_exits(self, state: Any, loops: ControlFlowState) -> None:
        any_gradient = False
        for tensor in state.deferred_exits:
            entries = self.grads.get(tensor.op)
            if entries is not None and any(entry if isinstance(entry, list) else entry is not None for entry in entries):
                any_gradient = True
                self.queue.append(tensor.op)
            else:
                state.unused_exits.append(tensor)
        for tensor in state.unused_exits:
            if any_gradient:
                if is_trainable(tensor):
                    self._add(tensor, loops.zeros_for_exit(tensor))
                self.queue.append(tensor.op)
            else:
                self.queue.append(tensor.op)

    # -- after -------------------------------------------------------------------------------------------------------------------

    def _result(self, x: Tensor, unconnected: UnconnectedGradients) -> Any:
        entries = self.grads.get(x.op)
        grad = None if entries is None else entries[x.value_index]
        if isinstance(grad, list):
            grad = sum_gradients(grad, x.op.name, self.aggregation_method) if grad else None
        if grad is None and unconnected is UnconnectedGradients.ZERO:
            return zeros_like(x)
        return grad


def _rule_for(op: Operation) -> Any:
    """`fn(op, *dys)`, None for ops that stop gradients; LookupError, in TF's words, for ops without a gradient."""
    try:
        return gradient_function(op)
    except LookupError:
        call = functions.call_gradient(op)
        if call is not None:
            return call
        raise LookupError(
            f"No gradient defined for operation '{op.name}' (op type: {op.type}). In general every operation must have an associated "
            f"`@tf.RegisterGradient` for correct autodiff, which this op is lacking. If you want to pretend this operation is a constant in "
            f'your program, you may insert `tf.stop_gradient`, or register it with `tf.NotDifferentiable("{op.type}")`.'
        ) from None


def _as_grad_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _raise_initial_value_error(op: Operation, from_ops: set[Operation], sources: set[Tensor]) -> None:
    """A gradient inside of a loop's body with respect to what the loop started with."""
    target = None
    queue, seen = deque([op]), set()
    while queue:
        current = queue.popleft()
        if current in seen:
            continue
        seen.add(current)
        if current in from_ops:
            target = current
            break
        queue.extend(t.op for t in current.inputs)
    raise ValueError(
        f"Cannot compute gradient inside while loop with respect to op '{target.name if target else op.name}'. We do not support taking "
        "the gradient wrt or through the initial value of a loop variable. Gradients can be computed through loop invariants or wrt the "
        "input parameters to the loop body."
    )
