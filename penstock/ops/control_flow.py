"""TF1's dataflow control flow: Switch, Merge, and the frames of loops.

The executor carries out what these mean for frames and iterations (see runtime/executor/state.py); the kernels here say what
they do to values. `DEAD` is the value of an output that is not taken. Gradients are made by `backprop.control_flow`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import errors
from penstock.graph.ir import Dims
from penstock.ops.context import DEAD
from penstock.ops.declare import NOT_DIFFERENTIABLE, checked_scalar, no_outputs, op, same_as
from penstock.ops.samples import program
from penstock.shapes import format_dims

# -- Switch ----------------------------------------------------------------------------------------------------------


def predicate(value: Any) -> bool:
    """A Switch's predicate as a bool; InvalidArgumentError if it is no scalar."""
    if np.ndim(value) != 0:
        raise errors.InvalidArgumentError(
            f"The second input must be a scalar, but it has shape {format_dims(np.shape(value))}"
        )
    return bool(value)


def switch_kernel(data: Any, pred: Any) -> list[Any]:
    return [DEAD, data] if predicate(pred) else [data, DEAD]


def switch_n_kernel(data: Any, output_index: Any, *, num_outs: int) -> list[Any]:
    if np.ndim(output_index) != 0:
        raise errors.InvalidArgumentError(
            f"The second input must be a scalar, but it has shape {format_dims(np.shape(output_index))}"
        )
    index = int(output_index)
    # As in TF, an index out of range takes the last branch.
    chosen = index if 0 <= index < num_outs else num_outs - 1
    return [data if i == chosen else DEAD for i in range(num_outs)]


def switch_shape(c: Any) -> Dims:
    checked_scalar(c, 1)
    for i in range(len(c.op.outputs)):
        c.copy_handle(i, 0)
    return c.dims(0)


op("Switch(data: T, pred: bool) -> (output_false: T, output_true: T) [T: type]",
   shape=switch_shape, numpy=switch_kernel,
   samples=[program(lambda tf: tf.raw_ops.Switch(data=[1.0, 2.0], pred=True)[1]),
            program(lambda tf: tf.raw_ops.Switch(data=["a", "b"], pred=False)[0])])  # fmt: skip
op("RefSwitch(data: ref T, pred: bool) -> (output_false: ref T, output_true: ref T) [T: type] uninitialized_ok",
   shape=switch_shape, numpy=switch_kernel)  # fmt: skip
op("_SwitchN(data: T, output_index: int32) -> (outputs: num_outs*T) [num_outs: int >= 1; T: type]",
   shape=switch_shape, numpy=switch_n_kernel)  # fmt: skip

# -- Merge -----------------------------------------------------------------------------------------------------------


def merge_kernel(inputs: list[Any]) -> list[Any]:
    for i, value in enumerate(inputs):
        if value is not DEAD:
            return [value, np.int32(i)]
    return [DEAD, DEAD]


def merge_shape(c: Any) -> list[Dims]:
    """What all inputs agree on. A loop's Merge is first made with its Enter twice, and so keeps the Enter's shape."""
    dims = c.dims(0)
    for i in range(1, c.n):
        other = c.dims(i)
        if dims is None or other is None or len(dims) != len(other):
            dims = None
            break
        dims = tuple(a if a == b else None for a, b in zip(dims, other, strict=True))
    handles = [t.handle_data for t in c.inputs]
    if handles[0] is not None and all(h == handles[0] for h in handles):
        c.copy_handle(0, 0)
    return [dims, ()]


op("Merge(inputs: N*T) -> (output: T, value_index: int32) [T: type; N: int >= 1]",
   shape=merge_shape, numpy=merge_kernel,
   samples=[program(lambda tf: list(tf.raw_ops.Merge(inputs=list(tf.raw_ops.Switch(data=[1.0, 2.0], pred=True)))))])  # fmt: skip
op("RefMerge(inputs: ref N*T) -> (output: ref T, value_index: int32) [T: type; N: int >= 1]",
   shape=merge_shape, numpy=merge_kernel)  # fmt: skip


def ref_select_kernel(index: Any, inputs: list[Any]) -> Any:
    if np.ndim(index) != 0:
        raise errors.InvalidArgumentError(f"Index must be a scalar, but it has shape {format_dims(np.shape(index))}")
    if not 0 <= index < len(inputs):
        raise errors.InvalidArgumentError(f"Index must be in the range [0, {len(inputs)}) but got {int(index)}")
    return inputs[int(index)]


def ref_select_shape(c: Any) -> Dims:
    checked_scalar(c, 0)
    first = c.dims(1)
    if first is None or None in first:
        return None
    return first if all(c.dims(i) == first for i in range(2, c.n)) else None


op(
    "RefSelect(index: int32, inputs: ref N*T) -> (output: ref T) [T: type; N: int >= 1]",
    shape=ref_select_shape,
    numpy=ref_select_kernel,
)

# -- frames ----------------------------------------------------------------------------------------------------------


def identity(value: Any) -> Any:
    return value


def enter_shape(c: Any) -> Dims:
    """As in TF, only a loop invariant keeps its shape; the builder of a loop sets the others, by its shape invariants."""
    c.copy_handle(0, 0)
    return c.dims(0) if c.attrs["is_constant"] else None


def loop_cond_shape(c: Any) -> Dims:
    checked_scalar(c, 0)
    return ()


def _loop(tf: Any) -> Any:
    """sum of i * x for i in 0, 1, 2, written with the ops themselves; x is a loop invariant."""
    raw = tf.raw_ops
    i, total = (raw.Enter(data=v, frame_name="sum_loop") for v in (0, [0.0, 0.0]))
    x = raw.Enter(data=[1.0, 2.0], frame_name="sum_loop", is_constant=True)
    limit = raw.Enter(data=3, frame_name="sum_loop", is_constant=True)
    one = raw.Enter(data=1, frame_name="sum_loop", is_constant=True)
    merges = [raw.Merge(inputs=[v, v]) for v in (i, total)]
    again = raw.LoopCond(input=raw.Less(x=merges[0].output, y=limit))
    switches = [raw.Switch(data=m.output, pred=again) for m in merges]
    here, so_far = (raw.Identity(input=s.output_true) for s in switches)
    steps = [raw.AddV2(x=here, y=one), raw.AddV2(x=so_far, y=raw.Mul(x=x, y=raw.Cast(x=here, DstT=tf.float32)))]
    for merge, step in zip(merges, steps):
        merge.output.op._update_input(1, raw.NextIteration(data=step))
    return [raw.Exit(data=s.output_false) for s in switches]


_FRAME = "[T: type; frame_name: string; is_constant: bool = false; parallel_iterations: int = 10]"

op(f"Enter(data: T) -> (output: T) {_FRAME}", shape=enter_shape, numpy=identity, samples=[program(_loop)])
op(f"RefEnter(data: ref T) -> (output: ref T) {_FRAME}", shape=enter_shape, numpy=identity)
op("Exit(data: T) -> (output: T) [T: type]", shape=same_as("data"), numpy=identity)
op("RefExit(data: ref T) -> (output: ref T) [T: type]", shape=same_as("data"), numpy=identity)
op("NextIteration(data: T) -> (output: T) [T: type]", shape=same_as("data"), numpy=identity)
op("RefNextIteration(data: ref T) -> (output: ref T) [T: type]", shape=same_as("data"), numpy=identity)
op("LoopCond(input: bool) -> (output: bool)", shape=loop_cond_shape, numpy=identity, grad=NOT_DIFFERENTIABLE)

# -- control edges only --------------------------------------------------------------------------------------------


def abort_kernel(*, error_msg: bytes, exit_without_error: bool) -> None:
    # TF ends the whole process with SIGABRT here. An error that names the node serves the same purpose and can be handled.
    if exit_without_error:
        raise SystemExit(0)
    raise errors.AbortedError(error_msg.decode("utf-8", "replace") or "Abort was called")


op("ControlTrigger() -> ()", shape=no_outputs, numpy=lambda: None, grad=NOT_DIFFERENTIABLE)
op("Abort() -> () [error_msg: string = ''; exit_without_error: bool = false]",
   shape=no_outputs, numpy=abort_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
