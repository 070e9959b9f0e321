"""What rules do with values: precision to compute in, axes, constants that have the right type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import Unsupported, jnp, static_ints
from penstock.ops.kernels.numeric import NARROW


def array(x: Any) -> Any:
    """`x` for JAX. Strings and handles are none of its business."""
    if x.dtype == object:
        raise Unsupported("strings")
    return jnp.asarray(x)


def widen(x: Any) -> Any:
    """`x` in the precision to compute in: half and bfloat16 as float32."""
    return x.astype(np.float32) if x.dtype in NARROW else x


def narrow(x: Any, dtype: Any) -> Any:
    """`x` as `dtype`."""
    return x if x.dtype == dtype else x.astype(dtype)


def wide(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for arguments of one type, computed wide and rounded once."""

    @wraps(fn)
    def rule(*values: Any, **attrs: Any) -> Any:
        return narrow(fn(*(widen(v) for v in values), **attrs), values[0].dtype)

    return rule


def const(number: Any, like: Any) -> np.ndarray:
    """A number of the type of `like`."""
    return np.array(number, like.dtype)


def is_int(x: Any) -> bool:
    return x.dtype.kind in "iu"


def is_complex(x: Any) -> bool:
    return x.dtype.kind == "c"


def axis_of(axis: Any, rank: int) -> int:
    """One known axis of `rank`, counted from the front."""
    (a,) = static_ints(axis)
    need(-rank <= a < rank, "an axis out of range")
    return a % rank


def axes_of(axes: Any, rank: int) -> tuple[int, ...]:
    """Known axes, counted from the front."""
    result = tuple(a % rank if -rank <= a < rank else -1 for a in static_ints(axes))
    need(-1 not in result and len(set(result)) == len(result), "axes out of range or named twice")
    return result


def size_of(shape: Sequence[int]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def zeros(shape: Sequence[int], dtype: Any) -> Any:
    return jnp.zeros(tuple(shape), dtype)
