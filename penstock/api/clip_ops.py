"""Clipping of values and gradients (tf.clip_by_value, tf.clip_by_norm, tf.clip_by_global_norm, ...)."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api import math_ops
from penstock.api.array_ops import identity, ones_like, rank, size
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.api.math_reduce import global_norm, range_, reduce_node
from penstock.graph.composite import IndexedSlices
from penstock.graph.constant import constant
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def _values(t: Any, name: str = "t") -> Tensor:
    return convert_to_tensor(t.values if isinstance(t, IndexedSlices) else t, name=name)


def _like(t: Any, values: Tensor) -> Any:
    """`values` in the form of `t`: IndexedSlices stay what they are."""
    return IndexedSlices(values, t.indices, t.dense_shape) if isinstance(t, IndexedSlices) else values


@export("clip_by_value")
def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """`t` with everything below `clip_value_min` set to it, and everything above `clip_value_max` set to that."""
    with name_scope(name, "clip_by_value", [t, clip_value_min, clip_value_max]) as scope:
        values = _values(t)
        lower = raw.Minimum(values, clip_value_max)
        values.shape.assert_is_compatible_with(lower.shape)  # the limits must not broadcast `t`
        result = raw.Maximum(lower, clip_value_min, name=scope)
        values.shape.assert_is_compatible_with(result.shape)
        return _like(t, result)


@export("clip_by_norm")
def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Any:
    """`t` scaled down so that its L2 norm over `axes` (None: all) is at most `clip_norm`."""
    with name_scope(name, "clip_by_norm", [t, clip_norm]) as scope:
        values = _values(t)
        total = reduce_node("Sum", values * values, axes, True)  # type: ignore[operator]
        # The square root's slope at 0 is infinite; those entries go around it.
        positive = total > 0  # type: ignore[operator]
        safe = raw.Select(positive, total, ones_like(total))
        length = raw.Select(positive, raw.Sqrt(safe), total)
        scaled = values * clip_norm  # type: ignore[operator]
        values.shape.assert_is_compatible_with(scaled.shape)
        return _like(t, identity(scaled / raw.Maximum(length, clip_norm), name=scope))


@export("clip_by_average_norm")
def clip_by_average_norm(t: Any, clip_norm: Any, name: str | None = None) -> Tensor:
    """`t` scaled down so that its L2 norm divided by its number of elements is at most `clip_norm`."""
    with name_scope(name, "clip_by_average_norm", [t, clip_norm]) as scope:
        t = convert_to_tensor(t, name="t")
        count = math_ops.cast(size(t), dtypes.float32)
        inverse = raw.Rsqrt(raw.Sum(t * t, range_(rank(t))))  # type: ignore[operator]
        return identity(t * clip_norm * raw.Minimum(inverse * count, constant(1.0) / clip_norm), name=scope)  # type: ignore[operator]


@export("clip_by_global_norm")
def clip_by_global_norm(t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None) -> tuple[list[Any], Tensor]:
    """(list_clipped, norm): all tensors scaled by one factor so that their joint norm is at most `clip_norm`.

    None entries stay None. If the norm is infinite or NaN, everything becomes NaN, so that the problem is not hidden.
    """
    if not isinstance(t_list, (list, tuple)):
        raise TypeError(f"`t_list` should be a sequence of tensors. Received {type(t_list)}.")
    if use_norm is None:
        use_norm = global_norm(t_list, name)
    use_norm = convert_to_tensor(use_norm)
    with name_scope(name, "clip_by_global_norm", [*t_list, clip_norm]) as scope:
        one = constant(1.0, dtype=use_norm.dtype.base_dtype)
        scale = clip_norm * raw.Minimum(1.0 / use_norm, one / clip_norm)  # type: ignore[operator]
        # inf - inf and NaN - NaN are NaN, anything else is 0.
        scale = scale + (use_norm - use_norm)  # type: ignore[operator]
        clipped: list[Any] = []
        for i, t in enumerate(t_list):
            if t is None:
                clipped.append(None)
                continue
            values = _values(t, f"t_{i}")
            with values.graph.colocate_with(values):
                clipped.append(_like(t, identity(values * math_ops.cast(scale, values.dtype), name=f"{scope}_{i}")))  # type: ignore[operator]
    return clipped, use_norm
