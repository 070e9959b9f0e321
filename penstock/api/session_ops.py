"""Values that stay in a session between runs: get_session_handle, get_session_tensor, delete_session_tensor."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api.export import export, export_value
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Operation, Tensor
from penstock.graph.raw import raw
from penstock.session.fetches import register_session_run_conversion_functions
from penstock.session.handles import TensorHandle

export_value("TensorHandle", TensorHandle)
export_value("register_session_run_conversion_functions", register_session_run_conversion_functions)


@export("get_session_handle")
def get_session_handle(data: Any, name: str | None = None) -> Tensor:
    """A handle of `data`: fetching it keeps the value in the session and gives a TensorHandle."""
    data = convert_to_tensor(data)
    return raw.GetSessionHandle(data, name=name)


@export("get_session_tensor")
def get_session_tensor(handle: Any, dtype: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """(holder, tensor): feed a handle's string (or a TensorHandle) to `holder`, and `tensor` is its value."""
    holder = raw.Placeholder(dtype=dtypes.string, shape=[])
    return holder, raw.GetSessionTensor(holder, dtype=dtypes.as_dtype(dtype), name=name)


@export("delete_session_tensor")
def delete_session_tensor(handle: Any, name: str | None = None) -> tuple[Tensor, Operation]:
    """(holder, deleter): feed a handle's string to `holder` and run `deleter` to free the value."""
    holder = raw.Placeholder(dtype=dtypes.string, shape=[])
    return holder, raw.DeleteSessionTensor(holder, name=name)
