"""Tensor handles: values that stay in the session between runs (`tf.get_session_handle` and friends)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes, errors
from penstock.dtypes import DType
from penstock.graph.ir import Tensor
from penstock.ops.kernels.views import compact


class TensorHandle:
    """Stands for a value that lives in a session. Feed it where the value is wanted; `eval` fetches it, `delete` frees it."""

    def __init__(self, handle: Any, dtype: DType, session: Any) -> None:
        self._handle = handle.decode() if isinstance(handle, bytes) else str(handle)
        self._dtype = dtype
        self._session = session
        self._auto_gc_enabled = True

    @property
    def handle(self) -> str:
        """The handle as a string, to feed to `tf.get_session_tensor`'s placeholder."""
        return self._handle

    def get_raw_handle(self) -> str:
        """The handle as a string; from now on, only `tf.delete_session_tensor` frees the value."""
        self._auto_gc_enabled = False
        return self._handle

    def eval(self) -> Any:
        """The value."""
        if not self._auto_gc_enabled:
            raise TypeError(f"Persistent tensor {self._handle} may have already been deleted.")
        return self._session._runtime.public(self._session._runtime.session_state.get(self._handle))

    def delete(self) -> None:
        """Frees the value."""
        if not self._auto_gc_enabled:
            raise TypeError(f"Persistent tensor {self._handle} may have already been deleted.")
        self._auto_gc_enabled = False
        self._session._runtime.session_state.delete(self._handle)

    def feed_value(self, dtype: DType, runtime: Any) -> Any:
        """What feeding this handle means: its name for a string placeholder, else the value itself."""
        if dtype is dtypes.string:
            return np.array(self._handle.encode(), dtype=object)
        if dtype is not self._dtype:
            raise TypeError(f"A handle of a {self._dtype.name} tensor cannot be fed for a {dtype.name} tensor")
        return runtime.session_state.get(self._handle)

    def __del__(self) -> None:
        if getattr(self, "_auto_gc_enabled", False) and self._session is not None and not self._session._closed:
            try:
                self._session._runtime.session_state.delete(self._handle)
            except Exception:  # deleted by hand, or the session is gone
                pass

    def __str__(self) -> str:
        return self._handle


class SessionState:
    """The values behind handles. Kernels reach it as `ctx.session_state`."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._next = 0

    def add(self, value: Any, node_name: str, device: str) -> str:
        """Keeps `value`; its handle is "node;id;device", as in TF."""
        self._next += 1
        handle = f"{node_name};{self._next};{device}"
        self._values[handle] = compact(value)
        return handle

    def get(self, handle: str) -> Any:
        if handle not in self._values:
            raise errors.InvalidArgumentError(f"The tensor with handle '{handle}' is not in the session store.")
        return self._values[handle]

    def delete(self, handle: str) -> None:
        if self._values.pop(handle, None) is None:
            raise errors.InvalidArgumentError(f"Failed to delete a tensor with handle '{handle}' in the session store.")

    def __len__(self) -> int:
        return len(self._values)


_HANDLE_OPS = ("GetSessionHandle", "GetSessionHandleV2")


def wrap_handles(tensors: list[Tensor], session: Any) -> Callable[[list[Any]], list[Any]] | None:
    """A function that turns fetched handles into TensorHandles, or None if no handle is fetched."""
    positions = [(i, t.op.inputs[0].dtype.base_dtype) for i, t in enumerate(tensors) if t.op.type in _HANDLE_OPS]
    if not positions:
        return None

    def wrap(values: list[Any]) -> list[Any]:
        values = list(values)
        for i, dtype in positions:
            value = values[i]
            name = value.name if hasattr(value, "container") else value
            values[i] = TensorHandle(name, dtype, session)
        return values

    return wrap
