"""What recurrent loops share: shapes put together, what a cell must have, a step that stops at a sequence's end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import dtypes
from penstock.api import array_ops, math_ops
from penstock.api.array_indexing import where
from penstock.api.control_flow import cond
from penstock.api.framework import colocate_with
from penstock.api.logging_ops import Assert
from penstock.api.math_reduce import range_, reduce_all
from penstock.api.tensor_array import TensorArray
from penstock.graph import nest
from penstock.graph.constant import constant, constant_value
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape, as_shape


def assert_like_rnncell(cell_name: str, cell: Any) -> None:
    """TypeError if an object lacks what a cell must have."""
    missing = []
    if not hasattr(cell, "output_size"):
        missing.append("'output_size' property is missing")
    if not hasattr(cell, "state_size"):
        missing.append("'state_size' property is missing")
    if not (hasattr(cell, "zero_state") or hasattr(cell, "get_initial_state")):
        missing.append("either 'zero_state' or 'get_initial_state' method is required")
    if not callable(cell):
        missing.append("is not callable")
    if missing:
        raise TypeError(f"The argument {cell_name!r} ({cell}) is not an RNNCell: {', '.join(missing)}.")


def _side(part: Any, what: str) -> tuple[Any, Any]:
    """One side of `join_shapes` as (tensor or None, static list or None)."""
    if isinstance(part, Tensor):
        known = constant_value(part)
        if part.dims == ():
            part = array_ops.expand_dims(part, 0)
        elif part.dims is None or len(part.dims) != 1:
            raise ValueError(f"{what} tensor must be either a scalar or vector, but saw tensor: {part}")
        return part, known
    shape = as_shape(part)
    static = shape.as_list() if shape.dims is not None else None
    tensor = constant(static, dtype=dtypes.int32) if shape.is_fully_defined() else None
    return tensor, static


def join_shapes(prefix: Any, suffix: Any, static: bool = False) -> Any:
    """Two shapes, one after the other: a tensor, or with `static` what is known of it."""
    p, p_static = _side(prefix, "prefix")
    s, s_static = _side(suffix, "suffix")
    if static:
        shape = TensorShape(p_static).concatenate(s_static)
        return shape.as_list() if shape.dims is not None else None
    if p is None or s is None:
        raise ValueError(f"Prefix or suffix can't be None: {prefix} and {suffix}")
    return array_ops.concat((p, s), 0)


def as_static_shape(shape: Any) -> TensorShape:
    """A size of a cell as a shape."""
    return as_shape(constant_value(shape)) if isinstance(shape, Tensor) else as_shape(shape)


def swap_batch_and_time(x: Any) -> Tensor:
    """`x` with its first two dimensions exchanged; what has fewer is left alone."""
    x = convert_to_tensor(x)
    if x.dims is not None and len(x.dims) < 2:
        return x
    order = array_ops.concat(([1, 0], range_(2, array_ops.rank(x))), axis=0)
    swapped = array_ops.transpose(x, order)
    if x.dims is not None:
        swapped.set_shape([x.dims[1], x.dims[0], *x.dims[2:]])
    return swapped


def batch_size_of(flat_input: list[Tensor]) -> Any:
    """The batch size of inputs [time, batch, ...], as a number if one of them knows."""
    for x in flat_input:
        if x.dims is not None and len(x.dims) >= 2 and x.dims[1] is not None:
            return x.dims[1]
    return array_ops.shape(flat_input[0])[1]


def initial_state_of(cell: Any, state: Any, batch_size: Any, dtype: Any, inputs: Any = None) -> Any:
    """The given state, or the cell's zero state."""
    if state is not None:
        return state
    if not dtype:
        raise ValueError("If there is no initial_state, you must give a dtype.")
    if getattr(cell, "get_initial_state", None) is not None:
        return cell.get_initial_state(inputs=inputs, batch_size=batch_size, dtype=dtype)
    return cell.zero_state(batch_size, dtype)


def infer_state_dtype(explicit: Any, state: Any) -> Any:
    """The dtype of a state, all of whose parts must agree, unless one is given."""
    if explicit is not None:
        return dtypes.as_dtype(explicit)
    if not nest.is_nested(state):
        return state.dtype
    found = [part.dtype for part in nest.flatten(state)]
    if not found:
        raise ValueError(f"Unable to infer dtype from argument state={state}.")
    if any(d != found[0] for d in found):
        raise ValueError(
            "Argument state has tensors of different inferred dtypes. Unable to infer a single representative dtype. "
            f"Dtypes received: {found}"
        )
    return found[0]


def checked_lengths(sequence_length: Any, batch_size: Any) -> Tensor:
    """`sequence_length`, after a check that there is one for each example."""
    found = array_ops.shape(sequence_length)
    shape = array_ops.stack([batch_size])
    check = Assert(
        reduce_all(raw.Equal(found, shape)),
        [f"Expected shape for Tensor {sequence_length.name} is ", shape, " but saw shape: ", found],
    )
    with get_default_graph().control_dependencies([check]):
        return array_ops.identity(sequence_length, name="CheckSeqLen")


def lengths_vector(sequence_length: Any) -> Tensor:
    """`sequence_length` as an int32 vector."""
    lengths = math_ops.cast(sequence_length, dtypes.int32)
    if lengths.dims is not None and len(lengths.dims) != 1:
        raise ValueError(
            f"sequence_length must be a vector of length batch_size, but saw shape: {lengths.shape}"
        )
    return array_ops.identity(lengths, name="sequence_length")


def rnn_step(
    time: Any, sequence_length: Tensor, shortest: Any, longest: Any, zero_output: Any, state: Any, call_cell: Callable[[], tuple[Any, Any]],
    state_size: Any, skip_conditionals: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """One step of which examples beyond their length take no part: their output is zero, their state stays.

    With `skip_conditionals` the cell runs for all and the results are selected; else steps that nobody needs are skipped.
    """
    flat_state = nest.flatten(state)
    flat_zero = nest.flatten(zero_output)
    finished = time >= sequence_length

    def keep_finished(new_output: list[Any], new_state: list[Any]) -> list[Any]:
        def keep(old: Any, new: Any) -> Any:
            if isinstance(old, TensorArray) or old.shape.rank == 0:
                return new
            with colocate_with(new):
                return where(finished, old, new)

        outputs = [keep(zero, new) for zero, new in zip(flat_zero, new_output, strict=True)]
        return outputs + [keep(old, new) for old, new in zip(flat_state, new_state, strict=True)]

    def run() -> tuple[list[Any], list[Any]]:
        new_output, new_state = call_cell()
        nest.assert_same_structure(zero_output, new_output)
        nest.assert_same_structure(state, new_state)
        return nest.flatten(new_output), nest.flatten(new_state)

    def run_and_keep() -> list[Any]:
        new_output, new_state = run()
        return cond(time < shortest, lambda: new_output + new_state, lambda: keep_finished(new_output, new_state))

    if skip_conditionals:
        flat = keep_finished(*run())
    else:
        flat = cond(time >= longest, lambda: flat_zero + flat_state, run_and_keep)
    if len(flat) != len(flat_zero) + len(flat_state):
        raise ValueError("Internal error: state and output were not concatenated correctly.")
    outputs, states = flat[: len(flat_zero)], flat[len(flat_zero) :]
    for new, old in zip(outputs, flat_zero, strict=True):
        if isinstance(new, Tensor):
            new.set_shape(old.shape)
    for new, old in zip(states, flat_state, strict=True):
        if isinstance(new, Tensor):
            new.set_shape(old.shape)
    return nest.pack_sequence_as(zero_output, outputs), nest.pack_sequence_as(state, states)
