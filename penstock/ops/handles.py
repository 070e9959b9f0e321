"""Values that stay in a session between runs, by handle."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Operation
from penstock.ops.declare import no_outputs, op, scalar, unknown
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.resources import ResourceHandle


def get_handle_kernel(ctx: Any, value: Any, *, node: Operation) -> np.ndarray:
    handle = ctx.session_state.add(value, node.name, ctx.device.name)
    return np.array(handle.encode(), dtype=object)


def get_handle_v2_kernel(ctx: Any, value: Any, *, node: Operation) -> ResourceHandle:
    handle = ctx.session_state.add(value, node.name, ctx.device.name)
    return ResourceHandle(ctx.device.name, "", handle, "TensorHandle")


def _text(handle: Any) -> str:
    if isinstance(handle, ResourceHandle):
        return handle.name
    value = np.asarray(handle, dtype=object)[()]
    return value.decode() if isinstance(value, bytes) else str(value)


def get_tensor_kernel(ctx: Any, handle: Any, *, dtype: DType) -> Any:
    value = ctx.session_state.get(_text(handle))
    if getattr(value, "dtype", dtype.np) != dtype.np:
        raise InvalidArgumentError(
            f"The tensor with handle '{_text(handle)}' is {value.dtype}, but expected {dtype_text(dtype)}"
        )
    return value


def delete_tensor_kernel(ctx: Any, handle: Any) -> None:
    ctx.session_state.delete(_text(handle))


op("GetSessionHandle(value: T) -> (handle: string) [T: type] stateful", shape=scalar, numpy=get_handle_kernel)
op("GetSessionHandleV2(value: T) -> (handle: resource) [T: type] stateful", shape=scalar, numpy=get_handle_v2_kernel)
op("GetSessionTensor(handle: string) -> (value: dtype) [dtype: type] stateful", shape=unknown, numpy=get_tensor_kernel)
op("DeleteSessionTensor(handle: string) -> () stateful", shape=no_outputs, numpy=delete_tensor_kernel)
