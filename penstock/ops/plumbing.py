"""The ops that the runtime puts into graphs: arguments and results, values that cross between devices, and NoOp."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from penstock.graph.ir import Dims
from penstock.names import make_key
from penstock.ops.context import DEAD
from penstock.ops.declare import NOT_DIFFERENTIABLE, no_outputs, op, unknown

# -- arguments and results -----------------------------------------------------------------------------------------


def arg_shape(c: Any) -> Dims:
    """What the node that the argument stands for, or the function's `_output_shapes`, said."""
    shapes = c.attrs.get("_output_shapes")
    return shapes[0]._dims if shapes else None


def arg_kernel(ctx: Any, *, index: int) -> Any:
    return ctx.call_frame.get_arg(index)


def retval_kernel(ctx: Any, value: Any, *, index: int) -> None:
    ctx.call_frame.set_retval(index, value)


op("_Arg() -> (output: T) [T: type; index: int >= 0] stateful", shape=arg_shape, numpy=arg_kernel)
op("_DeviceArg() -> (output: T) [T: type; index: int >= 0] stateful", shape=arg_shape, numpy=arg_kernel)
op("_Retval(input: T) -> () [T: type; index: int >= 0] stateful", shape=no_outputs, numpy=retval_kernel)
op("_DeviceRetval(input: T) -> () [T: type; index: int >= 0] stateful", shape=no_outputs, numpy=retval_kernel)

# -- values that cross between devices -----------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def _key_prefix(send_device: bytes, incarnation: int, recv_device: bytes, tensor_name: bytes) -> str:
    """The rendezvous key without its frame and iteration."""
    return make_key(send_device.decode(), incarnation, recv_device.decode(), tensor_name.decode())[: -len("0:0")]


def send_kernel(
    ctx: Any, value: Any, *, send_device: bytes, send_device_incarnation: int, recv_device: bytes, tensor_name: bytes
) -> None:
    key = _key_prefix(send_device, send_device_incarnation, recv_device, tensor_name) + ctx.frame_iter
    # A dead value is sent as well: the other side must learn that nothing will come.
    if value is DEAD:
        ctx.rendezvous.send(key, None, True)
    else:
        ctx.rendezvous.send(key, value)


def recv_kernel(
    ctx: Any,
    done: Callable[..., Any],
    *,
    send_device: bytes,
    send_device_incarnation: int,
    recv_device: bytes,
    tensor_name: bytes,
) -> None:
    key = _key_prefix(send_device, send_device_incarnation, recv_device, tensor_name) + ctx.frame_iter

    def arrived(error: Any, value: Any, is_dead: bool) -> None:
        if error is not None:
            done(None, error)
        else:
            done(DEAD if is_dead else value)

    ctx.rendezvous.recv_async(key, arrived, ctx.cancellation)


_ENDS = "tensor_name: string; send_device: string; send_device_incarnation: int; recv_device: string; client_terminated: bool = false"

op(f"_Send(tensor: T) -> () [T: type; {_ENDS}] stateful", shape=no_outputs, numpy=send_kernel)
op(f"_Recv() -> (tensor: tensor_type) [tensor_type: type; {_ENDS}] stateful", shape=unknown, async_kernel=recv_kernel)
op(
    f"_HostSend(tensor: T) -> () [T: type; {_ENDS}] stateful",
    shape=no_outputs,
    numpy=send_kernel,
    host_memory=("tensor",),
)
op(f"_HostRecv() -> (tensor: tensor_type) [tensor_type: type; {_ENDS}] stateful",
   shape=unknown, async_kernel=recv_kernel, host_memory=("tensor",))  # fmt: skip

# -- many nodes as one ------------------------------------------------------------------------------------------------


def region_kernel(args: list[Any], *, body: Any) -> list[Any]:
    raise AssertionError("the executor makes the kernel of a region from its nodes")


op("_Region(args: list Tin) -> (outputs: list Tout) [Tin: list(type); Tout: list(type); body: func] stateful",
   shape=unknown, numpy=region_kernel)  # fmt: skip

# -- nothing at all --------------------------------------------------------------------------------------------------

op("NoOp() -> ()", shape=no_outputs, numpy=lambda: None, grad=NOT_DIFFERENTIABLE)
