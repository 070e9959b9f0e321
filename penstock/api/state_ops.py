"""Functions that write to variables: `tf.assign`, `tf.scatter_add` and their relatives, for both kinds of variables."""

from __future__ import annotations

from typing import Any

from penstock.api.export import export, resolve
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def _is_ref(ref: Any) -> bool:
    return getattr(ref.dtype, "_is_ref_dtype", False)


@export("assign")
def assign(
    ref: Any, value: Any, validate_shape: bool | None = None, use_locking: bool | None = None, name: str | None = None
) -> Any:
    """Makes `value` the variable's value; the result is the variable after the assignment.

    With `validate_shape=False` a reference variable may change its shape.
    """
    if _is_ref(ref):
        return raw.Assign(ref, value, validate_shape=validate_shape, use_locking=use_locking, name=name)
    return ref.assign(value, name=name)


@export("assign_add")
def assign_add(ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None) -> Any:
    """Adds `value`; the result is the variable after the addition."""
    if _is_ref(ref):
        return raw.AssignAdd(ref, value, use_locking=use_locking, name=name)
    return ref.assign_add(value)


@export("assign_sub")
def assign_sub(ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None) -> Any:
    """Subtracts `value`; the result is the variable after the subtraction."""
    if _is_ref(ref):
        return raw.AssignSub(ref, value, use_locking=use_locking, name=name)
    return ref.assign_sub(value)


@export("count_up_to")
def count_up_to(ref: Any, limit: int, name: str | None = None) -> Tensor:
    """Adds one and returns the value before; OutOfRangeError once the value has reached `limit`."""
    if _is_ref(ref):
        return raw.CountUpTo(ref, limit=limit, name=name)
    return raw.ResourceCountUpTo(ref.handle, limit=limit, T=ref.dtype, name=name)


def _scatter(kind: str, ref: Any, indices: Any, updates: Any, use_locking: bool, name: str | None) -> Any:
    if _is_ref(ref):
        return getattr(raw, "Scatter" + kind)(ref, indices, updates, use_locking=use_locking, name=name)
    values = convert_to_tensor(updates, dtype=ref.dtype)
    return ref._written(getattr(raw, "ResourceScatter" + kind)(ref.handle, indices, values, name=name))


@export("scatter_update")
def scatter_update(ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None) -> Any:
    """ref[indices] = updates; of an index that occurs twice, the last update stays."""
    return _scatter("Update", ref, indices, updates, use_locking, name)


@export("scatter_add")
def scatter_add(ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None) -> Any:
    """ref[indices] += updates; repeated indices add up."""
    return _scatter("Add", ref, indices, updates, use_locking, name)


@export("scatter_sub")
def scatter_sub(ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None) -> Any:
    """ref[indices] -= updates; repeated indices add up."""
    return _scatter("Sub", ref, indices, updates, use_locking, name)


@export("scatter_mul")
def scatter_mul(ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None) -> Any:
    """ref[indices] *= updates; repeated indices multiply."""
    return _scatter("Mul", ref, indices, updates, use_locking, name)


@export("scatter_div")
def scatter_div(ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None) -> Any:
    """ref[indices] /= updates; repeated indices divide again."""
    return _scatter("Div", ref, indices, updates, use_locking, name)


@export("scatter_min")
def scatter_min(ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None) -> Any:
    """ref[indices] = minimum(ref[indices], updates)."""
    return _scatter("Min", ref, indices, updates, use_locking, name)


@export("scatter_max")
def scatter_max(ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None) -> Any:
    """ref[indices] = maximum(ref[indices], updates)."""
    return _scatter("Max", ref, indices, updates, use_locking, name)


def _scatter_nd(kind: str, ref: Any, indices: Any, updates: Any, use_locking: bool, name: str | None) -> Any:
    if _is_ref(ref):
        return getattr(raw, "ScatterNd" + kind)(ref, indices, updates, use_locking=use_locking, name=name)
    values = convert_to_tensor(updates, dtype=ref.dtype)
    return ref._written(getattr(raw, "ResourceScatterNd" + kind)(ref.handle, indices, values, name=name))


@export("scatter_nd_update")
def scatter_nd_update(ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None) -> Any:
    """Replaces the slices of `ref` that the index vectors name."""
    return _scatter_nd("Update", ref, indices, updates, use_locking, name)


@export("scatter_nd_add")
def scatter_nd_add(ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None) -> Any:
    """Adds to the slices of `ref` that the index vectors name."""
    return _scatter_nd("Add", ref, indices, updates, use_locking, name)


@export("scatter_nd_sub")
def scatter_nd_sub(ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None) -> Any:
    """Subtracts from the slices of `ref` that the index vectors name."""
    return _scatter_nd("Sub", ref, indices, updates, use_locking, name)


@export("batch_scatter_update")
def batch_scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Any:
    """Replaces, in each entry of the leading batch dimensions, the rows that `indices` names.

    `indices` has shape [b1, ..., bk, n], and ref[b1, ..., bk, indices[..., i]] = updates[b1, ..., bk, i].
    """
    tf = _Public()
    graph = ref.graph
    with graph.name_scope("batch_scatter_update" if name is None else name):
        indices = convert_to_tensor(indices, name="indices")
        shape = tf.shape(indices)
        rank = indices.shape.rank
        if rank is None:
            raise ValueError("batch_scatter_update needs indices of known rank")
        batch = (
            tf.unstack(shape[:-1])
            if indices.dims is None or None in indices.dims[:-1]
            else [int(d) for d in indices.dims[:-1]]
        )
        column = tf.expand_dims(indices, axis=-1)
        parts = []
        for axis in range(rank - 1):
            lead = [1] * rank + [1]
            lead[axis] = batch[axis]
            steps = tf.cast(tf.reshape(tf.range(0, batch[axis]), lead), indices.dtype)
            parts.append(tf.broadcast_to(steps, tf.shape(column)))
        return scatter_nd_update(ref, tf.concat([*parts, column], axis=-1), updates, use_locking=use_locking)


class _Public:
    """The public functions by attribute, looked up late: `_Public().shape` is `tf.shape`."""

    def __getattr__(self, name: str) -> Any:
        return resolve(name)
