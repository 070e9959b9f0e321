"""What control flow is made of: the nodes Switch, Merge, Enter, Exit and NextIteration, and how to tell them apart.

The functions here take tensors and values made of several tensors (IndexedSlices, SparseTensor). What decides how ops inside of
branches and loops reach values from outside stands in contexts.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.graph import nest
from penstock.graph.composite import IndexedSlices, SparseTensor
from penstock.graph.convert import convert_to_tensor, convert_to_tensor_or_indexed_slices
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.raw import raw

# ---------------------------------------------------------------------------------------------------------------------
# What kind of node is it?


def is_switch(op: Operation) -> bool:
    return op.type in ("Switch", "RefSwitch")


def is_merge(op: Operation) -> bool:
    return op.type in ("Merge", "RefMerge")


def is_loop_enter(op: Operation) -> bool:
    return op.type in ("Enter", "RefEnter")


def is_loop_exit(op: Operation) -> bool:
    return op.type in ("Exit", "RefExit")


def is_loop_constant_enter(op: Operation) -> bool:
    """Whether `op` brings a loop invariant into its loop."""
    return is_loop_enter(op) and bool(op.attrs["is_constant"])


def is_loop_switch(op: Operation) -> bool:
    """Whether `op` is the Switch of a loop variable (and not of a `cond`)."""
    if not is_switch(op):
        return False
    context = op._control_flow_context
    return context is not None and context.IsWhileContext() and not is_cond_switch(op)


def is_cond_switch(op: Operation) -> bool:
    """Whether `op` routes a value into a branch: then all that consumes it is in a branch."""
    if not is_switch(op) or not op.outputs:
        return False
    for output in op.outputs:
        for consumer in output.consumers():
            context = consumer._control_flow_context
            if is_loop_enter(consumer) and context is not None:
                context = context.outer_context
            if context is None or not context.IsCondContext():
                return False
    return True


def loop_constant_enter(value: Tensor) -> Operation | None:
    """The Enter op through which loop invariant `value` came in, looking through ops that only pass it on."""
    op = value.op
    while op.type in ("Switch", "RefSwitch", "Identity", "RefIdentity"):
        op = op.inputs[0].op
    return op if is_loop_constant_enter(op) else None


def output_context(op: Operation) -> Any:
    """The context in which `op`'s results may be used: an Exit's results belong to what is around the loop."""
    context = op._control_flow_context
    if context is not None and is_loop_exit(op):
        context = context.outer_context
    return context


def while_context_of(op: Operation) -> Any:
    """The innermost loop that `op` is in, or None."""
    context = op._control_flow_context
    return None if context is None else context.GetWhileContext()


def containing_contexts(context: Any) -> list:
    """`context` and everything around it, innermost first."""
    result = []
    while context is not None:
        result.append(context)
        context = context.outer_context
    return result


def in_while_context(op: Operation) -> bool:
    return while_context_of(op) is not None


# ---------------------------------------------------------------------------------------------------------------------
# The primitives, for tensors and for values made of several tensors


def _is_ref(tensor: Tensor) -> bool:
    return tensor.dtype._is_ref_dtype


def _componentwise(value: Any, apply: Callable[[Tensor], Any]) -> list:
    return [apply(part) for part in nest.flatten(value, expand_composites=True)]


def switch(data: Any, pred: Any, name: str | None = None) -> tuple[Any, Any]:
    """(output_false, output_true): `data` leaves by the output that `pred` names; the other one is dead."""
    graph = get_default_graph()
    with graph.name_scope(name or "Switch") as scope:
        data = convert_to_tensor_or_indexed_slices(data, name="data")
        pred = convert_to_tensor(pred, name="pred")
        if isinstance(data, Tensor):
            outputs = raw.Switch(data, pred, name=scope)
            return outputs[0], outputs[1]
        pairs = _componentwise(data, lambda part: raw.Switch(part, pred))
        return (
            nest.pack_sequence_as(data, [p[0] for p in pairs], expand_composites=True),
            nest.pack_sequence_as(data, [p[1] for p in pairs], expand_composites=True),
        )


def switch_ref_or_tensor(data: Any, pred: Any, name: str = "Switch") -> tuple[Any, Any]:
    """Like `switch`, next to where `data` lives; a reference stays a reference."""
    data = convert_to_tensor_or_indexed_slices(data, name="data")
    with get_default_graph().colocate_with(data.op, ignore_existing=True):
        if isinstance(data, Tensor) and _is_ref(data):
            outputs = raw.RefSwitch(data, pred, name=name)
            return outputs[0], outputs[1]
        return switch(data, pred, name=name)


def merge(inputs: Iterable[Any], name: str | None = None) -> tuple[Any, Tensor]:
    """(value, index) of the first input that arrives alive."""
    inputs = list(inputs)
    if any(v is None for v in inputs):
        raise ValueError(f"At least one of the merge inputs is None: {inputs}")
    graph = get_default_graph()
    with graph.name_scope(name or "Merge") as scope:
        inputs = [_converted(v, as_ref=True) for v in inputs]
        if all(isinstance(v, Tensor) for v in inputs):
            op = raw.RefMerge if all(_is_ref(v) for v in inputs) else raw.Merge
            outputs = op(inputs, name=scope)
            return outputs[0], outputs[1]
        if any(isinstance(v, SparseTensor) for v in inputs):
            if not all(isinstance(v, SparseTensor) for v in inputs):
                raise TypeError(f"Type mismatch in the inputs of a merge: {inputs}")
        else:
            inputs = as_indexed_slices_list(inputs, optimize=False)
        columns = zip(*[nest.flatten(v, expand_composites=True) for v in inputs], strict=True)
        merged = [raw.Merge(list(column)) for column in columns]
        return nest.pack_sequence_as(inputs[0], [m[0] for m in merged], expand_composites=True), merged[0][1]


def _converted(value: Any, as_ref: bool = False) -> Any:
    if isinstance(value, (IndexedSlices, SparseTensor)):
        return value
    return convert_to_tensor(value, as_ref=as_ref)


def enter(data: Any, frame_name: str, is_constant: bool = False, parallel_iterations: int = 10, use_ref: bool = True,
          use_input_shape: bool = True, name: str | None = None) -> Any:  # fmt: skip
    """Makes `data` available in the frame called `frame_name`."""
    data = _converted(data, as_ref=True)
    if not isinstance(data, Tensor):
        parts = _componentwise(data, lambda t: enter(t, frame_name, is_constant, parallel_iterations, False, use_input_shape, name))
        return nest.pack_sequence_as(data, parts, expand_composites=True)
    op = raw.RefEnter if _is_ref(data) and use_ref else raw.Enter
    result = op(data, frame_name=frame_name, is_constant=is_constant, parallel_iterations=parallel_iterations, name=name)
    if use_input_shape:
        result.set_shape(data.shape)
    return result


def exit_(data: Any, name: str | None = None) -> Any:
    """Makes `data` available to the parent frame."""
    data = _converted(data, as_ref=True)
    if isinstance(data, Tensor):
        return (raw.RefExit if _is_ref(data) else raw.Exit)(data, name=name)
    return nest.pack_sequence_as(data, _componentwise(data, lambda t: exit_(t, name)), expand_composites=True)


def next_iteration(data: Any, name: str | None = None) -> Any:
    """Makes `data` available to the next iteration."""
    data = _converted(data, as_ref=True)
    if isinstance(data, Tensor):
        return (raw.RefNextIteration if _is_ref(data) else raw.NextIteration)(data, name=name)
    return nest.pack_sequence_as(data, _componentwise(data, lambda t: next_iteration(t, name)), expand_composites=True)


def identity(data: Any, name: str | None = None) -> Any:
    """A tensor (or composite) with the same contents; a reference stays a reference."""
    data = _converted(data, as_ref=True)
    if isinstance(data, Tensor):
        return (raw.RefIdentity if _is_ref(data) else raw.Identity)(data, name=name)
    return nest.pack_sequence_as(data, _componentwise(data, lambda t: identity(t, name)), expand_composites=True)


def as_indexed_slices(x: Any, optimize: bool = True) -> IndexedSlices:
    """A tensor as IndexedSlices that hold all of its rows."""
    if isinstance(x, IndexedSlices):
        return x
    if not isinstance(x, Tensor):
        raise TypeError(f"Not a Tensor or IndexedSlices: {type(x)}.")
    shape = dynamic_shape(x, optimize)
    rows = raw.StridedSlice(shape, [0], [1], [1], shrink_axis_mask=1)
    return IndexedSlices(x, raw.Range(0, rows, 1, name="range"), shape)


def as_indexed_slices_list(inputs: list[Any], optimize: bool = True) -> list[IndexedSlices]:
    """All as IndexedSlices, with indices of one type (int64 if any of them has it)."""
    from penstock import dtypes

    slices = [as_indexed_slices(v, optimize) for v in inputs]
    narrow = [s for s in slices if s.indices.dtype == dtypes.int32]
    if not narrow or len(narrow) == len(slices):
        return slices
    return [
        IndexedSlices(s.values, raw.Cast(s.indices, DstT=dtypes.int64), s.dense_shape) if s.indices.dtype == dtypes.int32 else s
        for s in slices
    ]


def dynamic_shape(x: Tensor, optimize: bool = True, name: str | None = None) -> Tensor:
    """tf.shape(x): a constant where the static shape allows it and `optimize` wants it, else a Shape op."""
    from penstock import dtypes
    from penstock.graph.constant import constant

    graph = get_default_graph()
    with graph.name_scope(name or "Shape") as scope:
        if optimize and x.dims is not None and None not in x.dims:
            import numpy as np

            return constant(np.array(x.dims, np.int32), dtypes.int32, name=scope)
        return raw.Shape(x, out_type=dtypes.int32, name=scope)


def with_dependencies(dependencies: Iterable[Any], output_tensor: Any, name: str | None = None) -> Any:
    """`output_tensor`, available only after `dependencies` have run."""
    graph = get_default_graph()
    with graph.name_scope(name or "control_dependency") as scope, graph.colocate_with(output_tensor), graph.control_dependencies(dependencies):
        return identity(output_tensor, name=scope)
