"""Recurrence unrolled in the graph: `tf.nn.static_rnn`, `tf.nn.static_bidirectional_rnn`, `tf.nn.static_state_saving_rnn`."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api import array_ops, math_ops, math_reduce
from penstock.api.array_indexing import reverse_sequence
from penstock.api.rnn import parts
from penstock.api.rnn.dynamic import cache_variables
from penstock.api.variable_scope import variable_scope
from penstock.graph import nest
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor


def static_rnn(
    cell: Any, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None, scope: Any = None
) -> tuple[list[Any], Any]:
    """(outputs, last state) of `cell` run over a list of inputs, one for each step: as many copies of its ops as there are steps.

    With `sequence_length`, outputs of examples that are over are zero and their state stays; steps that none needs are skipped.
    """
    parts.assert_like_rnncell("cell", cell)
    if not nest.is_nested(inputs):
        raise TypeError(f"Argument `inputs` must be a sequence. Received: {inputs}")
    if not inputs:
        raise ValueError("Argument `inputs` must not be empty.")
    outputs: list[Any] = []
    with variable_scope(scope or "rnn") as varscope:
        cache_variables(varscope)
        first = inputs
        while nest.is_nested(first):
            first = first[0]
        first = convert_to_tensor(first)
        # The batch size of any input will do; the feature dimensions must all be known.
        fixed: Any = first.dims[0] if first.dims is not None and len(first.dims) != 1 else None
        if first.dims is not None and len(first.dims) != 1:
            for x in nest.flatten(inputs):
                x = convert_to_tensor(x)
                dims = x.dims or ()
                if fixed is not None and dims and dims[0] is not None and dims[0] != fixed:
                    raise ValueError(f"Dimensions {fixed} and {dims[0]} are not compatible")
                for i, size in enumerate(dims[1:]):
                    if size is None:
                        raise ValueError(f"Input size (dimension {i} of input {x}) must be accessible via shape inference, but saw value None.")
        batch_size: Any = fixed if fixed is not None else array_ops.shape(first)[0]
        state: Any = parts.initial_state_of(cell, initial_state, batch_size, dtype)
        zero_output: Any = None
        shortest = longest = None
        if sequence_length is not None:
            sequence_length = convert_to_tensor(sequence_length, name="sequence_length")
            if sequence_length.dims is not None and len(sequence_length.dims) != 1:
                raise ValueError(f"Argument `sequence_length` must be a vector of length batch_size. Received shape={sequence_length.shape}.")
            sequence_length = math_ops.cast(sequence_length, dtypes.int32)

            def zeros(size: Any) -> Tensor:
                output = array_ops.zeros(parts.join_shapes(batch_size, size), parts.infer_state_dtype(dtype, state))
                output.set_shape(parts.join_shapes(fixed, size, static=True))
                return output

            flat_size = nest.flatten(cell.output_size)
            zero_output = nest.pack_sequence_as(cell.output_size, [zeros(size) for size in flat_size])
            sequence_length = math_ops.cast(sequence_length, dtypes.int32)
            shortest, longest = math_reduce.reduce_min(sequence_length), math_reduce.reduce_max(sequence_length)

        for time, input_ in enumerate(inputs):
            if time > 0:
                varscope.reuse_variables()

            def call_cell(input_: Any = input_, state: Any = state) -> tuple[Any, Any]:
                return cell(input_, state)

            if sequence_length is not None:
                output, state = parts.rnn_step(time, sequence_length, shortest, longest, zero_output, state, call_cell, cell.state_size)
            else:
                output, state = call_cell()
            outputs.append(output)
        return outputs, state


def static_state_saving_rnn(
    cell: Any, inputs: Any, state_saver: Any, state_name: Any, sequence_length: Any = None, scope: Any = None
) -> tuple[list[Any], Any]:
    """`static_rnn` that starts from `state_saver.state(name)` and ends with `state_saver.save_state(name, state)`.

    `state_name` has the structure of the cell's state.
    """
    nested, nested_names = nest.is_nested(cell.state_size), nest.is_nested(state_name)
    if nested != nested_names:
        raise ValueError("Argument `state_name` should be the same type as `cell.state_size`. Received: " f"state_name={state_name}, cell.state_size={cell.state_size}.")
    if nested:
        names = nest.flatten(state_name)
        if len(names) != len(nest.flatten(cell.state_size)):
            raise ValueError("Number of elements in argument `state_name` and `cell.state_size` are mismatched.")
        initial = nest.pack_sequence_as(cell.state_size, [state_saver.state(name) for name in names])
    else:
        names, initial = [state_name], state_saver.state(state_name)
    outputs, state = static_rnn(cell, inputs, initial_state=initial, sequence_length=sequence_length, scope=scope)
    saves = [state_saver.save_state(name, part) for name, part in zip(names, nest.flatten(state) if nested else [state], strict=True)]
    with get_default_graph().control_dependencies(saves):
        last = outputs[-1]
        outputs[-1] = nest.pack_sequence_as(last, [array_ops.identity(part) for part in nest.flatten(last)])
        if nested:
            state = nest.pack_sequence_as(state, [array_ops.identity(part) for part in nest.flatten(state)])
        else:
            state = array_ops.identity(state)
    return outputs, state


def _reversed(inputs: list[Any], lengths: Any) -> list[Any]:
    """A list of inputs from its end; with lengths, each example within its own."""
    if lengths is None:
        return list(reversed(inputs))
    flat = [nest.flatten(x) for x in inputs]
    columns = []
    for column in zip(*flat, strict=True):
        shape = None
        for x in column:
            shape = x.shape if shape is None else shape.merge_with(x.shape)
        for x in column:
            x.set_shape(shape)
        turned = array_ops.unstack(reverse_sequence(array_ops.stack(list(column)), lengths, 0, batch_axis=1))
        for x in turned:
            x.set_shape(shape)
        columns.append(turned)
    return [nest.pack_sequence_as(inputs[0], list(row)) for row in zip(*columns, strict=True)]


def static_bidirectional_rnn(
    cell_fw: Any, cell_bw: Any, inputs: Any, initial_state_fw: Any = None, initial_state_bw: Any = None, dtype: Any = None,
    sequence_length: Any = None, scope: Any = None,
) -> tuple[list[Any], Any, Any]:  # fmt: skip
    """(outputs, last forward state, last backward state); outputs of both directions are joined along the last axis."""
    parts.assert_like_rnncell("cell_fw", cell_fw)
    parts.assert_like_rnncell("cell_bw", cell_bw)
    if not nest.is_nested(inputs):
        raise TypeError(f"Argument `inputs` must be a sequence. Received: {inputs}")
    if not inputs:
        raise ValueError("Argument `inputs` must not be empty.")
    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as fw_scope:
            output_fw, state_fw = static_rnn(cell_fw, inputs, initial_state_fw, dtype, sequence_length, scope=fw_scope)
        with variable_scope("bw") as bw_scope:
            backwards = _reversed(list(inputs), sequence_length)
            output_bw, state_bw = static_rnn(cell_bw, backwards, initial_state_bw, dtype, sequence_length, scope=bw_scope)
    output_bw = _reversed(output_bw, sequence_length)
    joined = [
        array_ops.concat([f, b], 1) for f, b in zip(nest.flatten(output_fw), nest.flatten(output_bw), strict=True)
    ]
    return nest.pack_sequence_as(output_fw, joined), state_fw, state_bw
