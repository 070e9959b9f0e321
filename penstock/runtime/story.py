"""Kernel errors, told so that a user can act on them.

Whatever a kernel raises becomes the error class TF would report, names the node at fault (the client's own operation, if the
node stands for one), and carries a story: where the node ran, what came in, and which line of the user's program made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock import dtypes, errors
from penstock.engines.late import Product
from penstock.graph import parts
from penstock.graph.ir import Operation, Tensor
from penstock.ops.context import DEAD
from penstock.ops.resources import Ref, ResourceHandle
from penstock.shapes import format_dims

_MAX_CALLS = 8
_MAX_PARTS = 40
_NOT_OF_INPUTS = (MemoryError, errors.ResourceExhaustedError, errors.CancelledError, errors.AbortedError, errors.DeadlineExceededError)
"""Errors that no single node of a joined one is to blame for."""
_BAD_INPUT = (ValueError, IndexError, KeyError, TypeError, OverflowError, ZeroDivisionError)


def as_op_error(error: BaseException) -> errors.OpError:
    """A fresh error of TF's class for what a kernel raised. Kernels may raise one object many times (a closed queue's status),
    so the object itself is never given to the user."""
    if isinstance(error, errors.OpError):
        copy = error.__class__.__new__(error.__class__)
        copy.__dict__.update(error.__dict__)
        copy.story = list(error.story)
        return copy.with_traceback(error.__traceback__)
    text = str(error) or type(error).__name__
    if isinstance(error, RecursionError):
        new: errors.OpError = errors.ResourceExhaustedError(f"Calls are nested too deeply: {text}")
    elif isinstance(error, _BAD_INPUT):
        new = errors.InvalidArgumentError(f"KeyError: {text}" if isinstance(error, KeyError) else text)
    elif isinstance(error, MemoryError):
        new = errors.ResourceExhaustedError(text if str(error) else "OOM: out of memory")
    elif isinstance(error, NotImplementedError):
        new = errors.UnimplementedError(text)
    else:
        new = errors.InternalError(f"{type(error).__name__}: {text}")
    new.__cause__ = error
    return new


def explain(
    error: BaseException,
    op: Operation,
    device: str,
    inputs: Sequence[Any] = (),
    doing: str = "",
    in_client_graph: bool = True,
) -> errors.OpError:
    """The error to report for `op`, whose kernel failed on `inputs`.

    Inside of a function's body (`in_client_graph` False) the operation is told in the story only: the error's `op` will be
    the call in the client's graph.
    """
    joined: Operation | None = None
    if op.parts is not None and not isinstance(error, _NOT_OF_INPUTS):
        failure = parts.find_failure(op, inputs, _value_of)
        if failure is not None:
            joined = op
            error, op, inputs = failure
    new = as_op_error(error)
    client = op.origin or op
    message = new.message if isinstance(new.message, str) else str(new.message)
    if not in_client_graph and message.count("\n\t [[{{node ") >= _MAX_CALLS:
        return new  # deep recursion: the innermost calls and the outermost one are enough to read
    # An error that already names a node comes out of a function; TF adds the caller's node behind it.
    new.attach(
        op=client if in_client_graph else None,
        node_def=_node_def(client) if in_client_graph else None,
        message=f"{message}\n\t [[{{{{node {client.name}}}}}]]",
    )
    new.story += story(op, device, inputs, doing, client, joined)
    return new


def _value_of(value: Any) -> Any:
    """What a kernel gets for an input that may be a variable."""
    return value.value if isinstance(value, Ref) else None if value is DEAD else value


def _name_of(tensor: Tensor) -> str:
    """What the user calls it: a feed by the tensor that was fed."""
    fed = tensor.op.origin if tensor.op.type in ("_Arg", "_Recv") else None
    return tensor.name if fed is None or len(fed.outputs) != 1 else fed.outputs[0].name


def story(
    op: Operation, device: str, inputs: Sequence[Any] = (), doing: str = "", client: Operation | None = None, joined: Operation | None = None
) -> list[str]:
    """Lines that tell what `op` was and what it was given. `client` is the operation that the user knows, `joined` the node that `op` was a part of."""
    client = client or op.origin or op
    names = [_name_of(t) for t in op.inputs]
    lines = [f"Node: {client.name} = {op.type}({', '.join(names)})"]
    if op.name != client.name:
        lines.append(f"  executed as: {op.name}")
    if joined is not None:
        lines.append(f"  executed as part of: {joined.name} ({joined.type})")
    elif op.parts is not None and op.type.startswith("_"):
        names_of = [(part.origin or part).name for part in parts.nodes(op)]
        lines.append(f"  stands for: {', '.join(names_of[:_MAX_PARTS])}{', ...' if len(names_of) > _MAX_PARTS else ''}")
    if device:
        lines.append(f"  device: {device}")
    for name, value in zip(names, inputs):
        lines.append(f"  input {name}: {describe(value)}")
    frame = (client if client.name != op.name else op).user_frame
    if frame is not None:
        lines.append(f'  created at: File "{frame[0]}", line {frame[1]}, in {frame[2]}')
    if doing:
        lines.append(f"  while: {doing}")
    return lines


def describe(value: Any) -> str:
    """A value's type and shape: `float32[2,3]`."""
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{_dtype_name(value.dtype)}{format_dims(value.shape)}"
    if isinstance(value, Product):
        return f"{_dtype_name(value.dtype)}{format_dims(value.shape)}"
    if isinstance(value, Ref):
        held = value.value
        return f"ref of {value.name} ({'uninitialized' if held is None else describe(held)})"
    if isinstance(value, ResourceHandle):
        return f"resource {value.container}/{value.name} on {value.device}"
    if value is DEAD:
        return "dead"
    return f"a Python {type(value).__name__}"


def _dtype_name(np_dtype: np.dtype) -> str:
    try:
        return dtypes.from_np(np_dtype).name
    except (TypeError, KeyError, ValueError):
        return str(np_dtype)


def _node_def(op: Operation) -> Any:
    # The report of an error must not fail on a node that cannot be written as a proto.
    try:
        return op.node_def
    except Exception:
        return None
