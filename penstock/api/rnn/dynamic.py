"""Recurrence in a loop of the graph: `tf.nn.dynamic_rnn`, `tf.nn.bidirectional_dynamic_rnn`, `tf.nn.raw_rnn`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.api import array_ops, math_reduce
from penstock.api.array_indexing import reverse, reverse_sequence, where
from penstock.api.control_flow import while_loop
from penstock.api.rnn import parts
from penstock.api.tensor_array import TensorArray
from penstock.api.variable_scope import variable_scope
from penstock.graph import nest
from penstock.graph.constant import constant
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape


def cache_variables(scope: Any) -> None:
    """Lets a step read a variable once instead of once per iteration, unless the loop is itself inside of a loop."""
    context = get_default_graph()._get_control_flow_context()
    while context is not None:
        if context.IsWhileContext():
            return
        context = context.outer_context
    if scope.caching_device is None:
        scope.set_caching_device(lambda op: op.device)


def dynamic_rnn(
    cell: Any, inputs: Any, sequence_length: Any = None, initial_state: Any = None, dtype: Any = None, parallel_iterations: int | None = None,
    swap_memory: bool = False, time_major: bool = False, scope: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(outputs, last state) of `cell` run over the time dimension of `inputs`: [batch, time, ...], or with `time_major` [time, batch, ...].

    Examples end at their `sequence_length`: outputs behind it are zero, and the state returned is that of their last step.
    The state starts as `initial_state`, or as zeros of type `dtype`. Inputs and states may be nested.

    >>> cell = tf.nn.rnn_cell.BasicLSTMCell(32)                                 # doctest: +SKIP
    >>> outputs, state = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)           # doctest: +SKIP
    """
    parts.assert_like_rnncell("cell", cell)
    with variable_scope(scope or "rnn") as varscope:
        cache_variables(varscope)
        flat_input = nest.flatten(inputs)
        if time_major:
            flat_input = [convert_to_tensor(x) for x in flat_input]
        else:
            flat_input = [convert_to_tensor(x) for x in flat_input]
            flat_input = [parts.swap_batch_and_time(x) for x in flat_input]
        if sequence_length is not None:
            sequence_length = parts.lengths_vector(sequence_length)
        batch_size = parts.batch_size_of(flat_input)
        state = parts.initial_state_of(cell, initial_state, batch_size, dtype)
        if sequence_length is not None:
            sequence_length = parts.checked_lengths(sequence_length, batch_size)
        inputs = nest.pack_sequence_as(inputs, flat_input)
        outputs, final_state = _loop(cell, inputs, state, parallel_iterations or 32, swap_memory, sequence_length, dtype)
        if not time_major:
            outputs = nest.map_structure(parts.swap_batch_and_time, outputs)
        return outputs, final_state


def _loop(
    cell: Any, inputs: Any, state: Any, parallel_iterations: int, swap_memory: bool, sequence_length: Any, dtype: Any
) -> tuple[Any, Any]:
    if not isinstance(parallel_iterations, int):
        raise TypeError("parallel_iterations must be int")
    flat_input = nest.flatten(inputs)
    flat_output_size = nest.flatten(cell.output_size)
    time_steps = array_ops.shape(flat_input[0])[0]
    batch_size = parts.batch_size_of(flat_input)
    for x in flat_input:
        if x.dims is None or len(x.dims) < 3:
            raise ValueError(f"Input must be at least 3-D, but saw shape {x.shape}" if x.dims is not None else "Input size (depth of inputs) must be accessible via shape inference, but saw value None.")
        if None in x.dims[2:]:
            raise ValueError("Input size (depth of inputs) must be accessible via shape inference, but saw value None.")
    const_time, const_batch = flat_input[0].dims[:2]
    for x in flat_input:
        if x.dims[0] != const_time:
            raise ValueError(f"Time steps is not the same for all the elements in the input in a batch. Received time steps={x.dims[0]} and {const_time}.")
        if x.dims[1] != const_batch:
            raise ValueError(f"Batch_size is not the same for all the elements in the input. Received batch size={x.dims[1]} and {const_batch}.")

    def zeros(size: Any) -> Tensor:
        return array_ops.zeros(parts.join_shapes(batch_size, size), parts.infer_state_dtype(dtype, state))

    zero_output = nest.pack_sequence_as(cell.output_size, [zeros(size) for size in flat_output_size])
    shortest = longest = None
    if sequence_length is not None:
        shortest, longest = math_reduce.reduce_min(sequence_length), math_reduce.reduce_max(sequence_length)
    else:
        longest = time_steps
    time = constant(0, dtype="int32", name="time")
    graph = get_default_graph()
    with graph.name_scope("dynamic_rnn") as base_name:
        pass

    def new_array(name: str, element_shape: Any, element_dtype: Any) -> TensorArray:
        return TensorArray(element_dtype, size=time_steps, element_shape=element_shape, tensor_array_name=base_name + name)

    output_arrays = tuple(
        new_array(f"output_{i}", TensorShape([const_batch]).concatenate(parts.as_static_shape(size)), parts.infer_state_dtype(dtype, state))
        for i, size in enumerate(flat_output_size)
    )
    input_arrays = tuple(new_array(f"input_{i}", x.shape[1:], x.dtype) for i, x in enumerate(flat_input))
    input_arrays = tuple(array.unstack(x) for array, x in zip(input_arrays, flat_input, strict=True))

    def step(time: Tensor, arrays: tuple[TensorArray, ...], state: Any) -> tuple[Any, ...]:
        flat = [array.read(time) for array in input_arrays]
        for value, x in zip(flat, flat_input, strict=True):
            value.set_shape(x.shape[1:])
        input_t = nest.pack_sequence_as(inputs, flat)

        def call_cell() -> tuple[Any, Any]:
            return cell(input_t, state)

        if sequence_length is not None:
            output, new_state = parts.rnn_step(
                time, sequence_length, shortest, longest, zero_output, state, call_cell, cell.state_size, skip_conditionals=True
            )
        else:
            output, new_state = call_cell()
        flat_output = nest.flatten(output)
        written = tuple(array.write(time, out) for array, out in zip(arrays, flat_output, strict=True))
        return time + 1, written, new_state

    limit = raw.Minimum(time_steps, raw.Maximum(1, longest))
    _, output_arrays, final_state = while_loop(
        lambda time, *_: time < limit, step, (time, output_arrays, state), parallel_iterations=parallel_iterations,
        maximum_iterations=time_steps, swap_memory=swap_memory,
    )  # fmt: skip
    final_outputs = tuple(array.stack() for array in output_arrays)
    for output, size in zip(final_outputs, flat_output_size, strict=True):
        output.set_shape(parts.join_shapes([const_time, const_batch], size, static=True))
    return nest.pack_sequence_as(cell.output_size, final_outputs), final_state


def bidirectional_dynamic_rnn(
    cell_fw: Any, cell_bw: Any, inputs: Any, sequence_length: Any = None, initial_state_fw: Any = None, initial_state_bw: Any = None,
    dtype: Any = None, parallel_iterations: int | None = None, swap_memory: bool = False, time_major: bool = False, scope: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """((outputs forward, outputs backward), (last states)) of two cells, one of which reads the inputs from their end.

    With `sequence_length`, each example is reversed within its length; the backward outputs are put back into input order.
    """
    parts.assert_like_rnncell("cell_fw", cell_fw)
    parts.assert_like_rnncell("cell_bw", cell_bw)
    time_axis, batch_axis = (0, 1) if time_major else (1, 0)
    options = dict(dtype=dtype, parallel_iterations=parallel_iterations, swap_memory=swap_memory, time_major=time_major)

    def reversed_(x: Any) -> Tensor:
        if sequence_length is not None:
            return reverse_sequence(input=x, seq_lengths=sequence_length, seq_axis=time_axis, batch_axis=batch_axis)
        return reverse(x, axis=[time_axis])

    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as fw_scope:
            output_fw, state_fw = dynamic_rnn(cell_fw, inputs, sequence_length, initial_state_fw, scope=fw_scope, **options)
        with variable_scope("bw") as bw_scope:
            backwards = nest.map_structure(reversed_, inputs)
            output_bw, state_bw = dynamic_rnn(cell_bw, backwards, sequence_length, initial_state_bw, scope=bw_scope, **options)
    output_bw = nest.map_structure(reversed_, output_bw)
    return (output_fw, output_bw), (state_fw, state_bw)


# -- raw_rnn ----------------------------------------------------------------------------------------------------------


def raw_rnn(
    cell: Any, loop_fn: Callable[..., Any], parallel_iterations: int | None = None, swap_memory: bool = False, scope: Any = None
) -> tuple[Any, Any, Any]:
    """(TensorArrays of outputs, last state, last loop state) of a cell that `loop_fn` drives.

    `loop_fn(time, cell_output, cell_state, loop_state)` gives `(finished, next_input, next_cell_state, emit_output,
    next_loop_state)`. It is first called with time 0 and None for the rest: then `emit_output` is what outputs look like (None:
    like the cell's). The loop ends when all of `finished` are True; finished examples emit zeros and keep their state.
    """
    parts.assert_like_rnncell("cell", cell)
    if not callable(loop_fn):
        raise TypeError("Argument `loop_fn` must be a callable.")
    with variable_scope(scope or "rnn") as varscope:
        cache_variables(varscope)
        time = constant(0, dtype="int32")
        finished, next_input, first_state, emit_structure, loop_state = loop_fn(time, None, None, None)
        flat_input = nest.flatten(next_input)
        has_loop_state = loop_state is not None
        loop_state = loop_state if has_loop_state else constant(0, dtype="int32")  # loop variables cannot be None

        known_batch = [x.dims[0] if isinstance(x, Tensor) and x.dims else x.element_shape.as_list()[0] if isinstance(x, TensorArray) and x.element_shape.dims else None for x in flat_input]
        const_batch = next((n for n in known_batch if n is not None), None)
        for n in known_batch:
            if n is not None and n != const_batch:
                raise ValueError(f"Dimensions {const_batch} and {n} are not compatible")
        batch_size: Any = const_batch
        if batch_size is None:
            first = flat_input[0]
            batch_size = array_ops.shape(first.read(0) if isinstance(first, TensorArray) else first)[0]
        nest.assert_same_structure(first_state, cell.state_size)
        state = first_state
        flat_state = [convert_to_tensor(s) for s in nest.flatten(state)]
        state = nest.pack_sequence_as(state, flat_state)

        if emit_structure is not None:
            flat_structure = nest.flatten(emit_structure)
            flat_size = [e.shape if e.shape.is_fully_defined() else array_ops.shape(e) for e in flat_structure]
            flat_dtypes = [e.dtype for e in flat_structure]
        else:
            emit_structure = cell.output_size
            flat_size = nest.flatten(emit_structure)
            flat_dtypes = [flat_state[0].dtype] * len(flat_size)
        arrays = [
            TensorArray(
                dtype=kind, dynamic_size=True, element_shape=TensorShape([const_batch]).concatenate(parts.as_static_shape(size)), size=0,
                name=f"rnn_output_{i}",
            )
            for i, (kind, size) in enumerate(zip(flat_dtypes, flat_size, strict=True))
        ]  # fmt: skip
        emit_arrays = nest.pack_sequence_as(emit_structure, arrays)
        flat_zero = [array_ops.zeros(parts.join_shapes(batch_size, size), kind) for size, kind in zip(flat_size, flat_dtypes, strict=True)]
        zero_emit = nest.pack_sequence_as(emit_structure, flat_zero)

        def condition(time: Any, elements_finished: Any, *_: Any) -> Tensor:
            return raw.LogicalNot(math_reduce.reduce_all(elements_finished))

        def body(time: Any, elements_finished: Any, current_input: Any, emitted: Any, state: Any, loop_state: Any) -> tuple[Any, ...]:
            next_output, cell_state = cell(current_input, state)
            nest.assert_same_structure(state, cell_state)
            nest.assert_same_structure(cell.output_size, next_output)
            next_time = time + 1
            next_finished, next_input, next_state, emit_output, next_loop_state = loop_fn(next_time, next_output, cell_state, loop_state)
            nest.assert_same_structure(state, next_state)
            nest.assert_same_structure(current_input, next_input)
            nest.assert_same_structure(emitted, emit_output)
            loop_state = loop_state if next_loop_state is None else next_loop_state

            def keep(current: Any, candidate: Any) -> Any:
                def one(old: Any, new: Any) -> Any:
                    if isinstance(old, TensorArray):
                        return new
                    if old.shape.rank == 0:
                        return new
                    with get_default_graph().colocate_with(new.op):
                        return where(elements_finished, old, new)

                return nest.map_structure(one, current, candidate)

            emit_output = keep(zero_emit, emit_output)
            next_state = keep(state, next_state)
            emitted = nest.map_structure(lambda array, value: array.write(time, value), emitted, emit_output)
            elements_finished = raw.LogicalOr(elements_finished, next_finished)
            return next_time, elements_finished, next_input, emitted, next_state, loop_state

        returned = while_loop(
            condition, body, loop_vars=[time, finished, next_input, emit_arrays, state, loop_state], parallel_iterations=parallel_iterations or 32,
            swap_memory=swap_memory,
        )  # fmt: skip
        _, _, _, emitted, final_state, final_loop_state = returned
        return emitted, final_state, final_loop_state if has_loop_state else None
