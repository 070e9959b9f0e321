"""How kernels make and find resources other than variables: queues, readers, accumulators, ...

Two kinds of handle lead to a resource: a ResourceHandle, and TF's older form, a ref to the strings [container, name].
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes, errors
from penstock.forks import renewed
from penstock.graph.ir import Operation
from penstock.ops.resources import DEFAULT_CONTAINER, Ref, ResourceHandle, pair_of

_private = itertools.count()
_making = renewed(threading.Lock())


def make_handle(
    ctx: Any,
    cls: Any,
    make: Callable[[str], Any],
    node: Operation,
    state: Any,
    container: bytes,
    shared_name: bytes,
    check: Callable[[Any], Any] | None = None,
    as_ref: bool = False,
) -> Any:
    """The handle of the resource that `node` stands for, made by `make(name)` if need be and checked once per session.

    Without a shared name the resource belongs to the node and the session alone, under a name that nobody else has.
    """
    handle = getattr(state, "handle", None)
    if handle is not None:
        return handle
    with _making:  # two steps may come here at once
        handle = getattr(state, "handle", None)
        if handle is None:
            name = shared_name.decode() or f"_{next(_private)}_{node.name}"
            where = container.decode() or DEFAULT_CONTAINER
            resource = ctx.resources.lookup_or_create(where, name, cls, lambda: make(name))
            if check is not None:
                check(resource)
            handle = string_handle(where, name, node.name) if as_ref else ResourceHandle(ctx.device.name, where, name, cls.type_name)
            state.handle = handle
    return handle


def string_handle(container: str, name: str, node_name: str) -> Ref:
    """The older form of a handle."""
    ref = Ref(dtypes.string, (2,), node_name)
    value = np.empty(2, dtype=object)
    value[:] = [container.encode(), name.encode()]
    ref.value = value
    return ref


def find(ctx: Any, handle: Any, cls: Any) -> Any:
    """What `handle` leads to; NotFoundError or InvalidArgumentError in TF's words if that is nothing, or no `cls`."""
    if handle.__class__ is np.ndarray and handle.ndim == 0:
        handle = handle.item()  # picked out of an array of handles
    if handle.__class__ is ResourceHandle:
        if handle.type_name != cls.type_name:
            raise errors.InvalidArgumentError(
                "Trying to access a handle's resource using the wrong type. The handle points to a resource "
                f"(name '{handle.name}') of type '{_readable(handle.type_name)}' but you are trying to access the resource as type "
                f"'{_readable(cls.type_name)}'"
            )
        if handle.resource is not None:
            return handle.resource
        if handle.device != ctx.device.name:
            raise errors.InvalidArgumentError(
                f"Trying to access resource {handle.name} located in device {handle.device} from device {ctx.device.name}"
            )
        container, name = handle.container, handle.name
    else:
        container, name = pair_of(handle)
    found = ctx.resources.find(container, name, cls)
    if found is None:
        raise errors.NotFoundError(f"Resource {container}/{name}/{cls.type_name} does not exist.")
    return found


def _readable(type_name: str) -> str:
    """ "N10tensorflow3VarE" as "tensorflow::Var"."""
    if not type_name.startswith("N"):
        return type_name
    parts, rest = [], type_name[1:]
    while rest and rest[0].isdigit():
        digits = len(rest) - len(rest.lstrip("0123456789"))
        end = digits + int(rest[:digits])
        parts.append(rest[digits:end])
        rest = rest[end:]
    return "::".join(parts)
