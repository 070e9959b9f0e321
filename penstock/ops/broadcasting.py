"""Broadcasting: what binary kernels say when shapes do not fit, and how gradients go back through it.

`binary(ufunc)` makes a kernel of a NumPy ufunc; the ufunc stays reachable as `kernel.ufunc`, so that engines can call
it directly and come back to the kernel only for the error text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.declare import NOT_DIFFERENTIABLE, op
from penstock.ops.samples import arr
from penstock.shapes import format_dims


def incompatible_shapes(*values: Any) -> InvalidArgumentError:
    """TF's error for operands that cannot broadcast."""
    return InvalidArgumentError("Incompatible shapes: " + " vs. ".join(format_dims(v.shape) for v in values))


def binary(ufunc: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel for an elementwise function of two operands."""

    def kernel(x: Any, y: Any) -> Any:
        try:
            return ufunc(x, y)
        except ValueError:
            raise incompatible_shapes(x, y) from None

    if isinstance(ufunc, np.ufunc):
        kernel.ufunc = ufunc  # type: ignore[attr-defined]
    kernel.__name__ = getattr(ufunc, "__name__", "kernel")
    return kernel


def broadcast_shape(x: Any, y: Any) -> tuple[int, ...]:
    """The common shape of two values; InvalidArgumentError if there is none."""
    if x.shape == y.shape:
        return x.shape
    try:
        return np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        raise incompatible_shapes(x, y) from None


def conj(g: Any, x: Any) -> Any:
    """The complex conjugate in a gradient; real tensors pass."""
    return g.Conj(x) if x.dtype.is_complex else x


# -- gradients of broadcasting ----------------------------------------------------------------------------------------


def gradient_axes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Which axes of the result have to be summed to get back to shape `a`, and to shape `b`."""
    rank = max(len(a), len(b))
    wide_a = (1,) * (rank - len(a)) + tuple(a)
    wide_b = (1,) * (rank - len(b)) + tuple(b)
    axes_a, axes_b = [], []
    for i, (x, y) in enumerate(zip(wide_a, wide_b, strict=True)):
        if x == y:
            # Both 1: summing over the axis is free, and TF lists it for both.
            if x == 1:
                axes_a.append(i)
                axes_b.append(i)
        elif x == 1:
            axes_a.append(i)
        elif y == 1:
            axes_b.append(i)
        else:
            raise InvalidArgumentError(f"Incompatible shapes: {format_dims(tuple(a))} vs. {format_dims(tuple(b))}")
    return axes_a, axes_b


def broadcast_gradient_args_kernel(s0: Any, s1: Any) -> list[np.ndarray]:
    for i, s in enumerate((s0, s1)):
        if s.ndim != 1:
            raise InvalidArgumentError(f"In[{i}] must be a vector.{format_dims(s.shape)}")
    axes = ([], []) if np.array_equal(s0, s1) else gradient_axes(tuple(s0.tolist()), tuple(s1.tolist()))
    return [np.array(a, dtype=s0.dtype) for a in axes]


op("BroadcastGradientArgs(s0: T, s1: T) -> (r0: T, r1: T) [T: type in INDEX = int32]",
   shape=lambda c: [(None,), (None,)],
   numpy=broadcast_gradient_args_kernel,
   grad=NOT_DIFFERENTIABLE,
   host_memory=("s0", "s1", "r0", "r1"),
   samples=[dict(s0=arr([2, 3]), s1=arr([3])), dict(s0=arr([4, 1, 1]), s1=arr([1, 5, 1])), dict(s0=arr([2, 2]), s1=arr([2, 2])),
            dict(s0=arr([]), s1=arr([2, 3])), dict(s0=arr([0, 1]), s1=arr([1, 7]))],
   errors=[(dict(s0=arr([2]), s1=arr([3])), InvalidArgumentError, r"Incompatible shapes: \[2\] vs\. \[3\]")])  # fmt: skip


def _static_axes(a: Any, b: Any) -> tuple[list[int], list[int]] | None:
    """The axes to sum for each operand, if their static shapes decide it."""
    if a is None or b is None:
        return None
    rank = max(len(a), len(b))
    if any(len(dims) < rank and None in dims for dims in (a, b)):
        return None  # its shape is needed to give it its rank back
    wide_a = (1,) * (rank - len(a)) + a
    wide_b = (1,) * (rank - len(b)) + b
    axes_a, axes_b = [], []
    for i, (x, y) in enumerate(zip(wide_a, wide_b, strict=True)):
        # Against a size of 1 an open size decides nothing: a sum over an axis of size 1 does no harm. Against a size above 1
        # it may still turn out to be 1.
        if (x is None or y is None) and (y if x is None else x) != 1:
            return None
        if x == 1 and y != 1:
            axes_a.append(i)
        elif y == 1 and x != 1:
            axes_b.append(i)
    return axes_a, axes_b


def reduce_to(g: Any, x: Any, y: Any, *grads: Any) -> list[Any]:
    """Sums the gradients of operands `x` and `y` over the axes along which each was broadcast.

    `grads` are functions without arguments, so that a gradient nobody can use is never built; a None stays None.
    Operands whose static shapes show that they were not broadcast get their gradient as it is.
    """
    grad_x, grad_y = grads
    axes = _static_axes(x.dims, y.dims)
    if axes is not None:
        return [
            _reduced(g, grad, t, along, len(t.dims) < len(other.dims))
            for grad, t, other, along in ((grad_x, x, y, axes[0]), (grad_y, y, x, axes[1]))
        ]
    shape_x, shape_y = g.Shape(x), g.Shape(y)
    r = g.BroadcastGradientArgs(shape_x, shape_y)
    return [
        None if grad is None else g.Reshape(g.Sum(grad(), along), shape)
        for grad, along, shape in ((grad_x, r[0], shape_x), (grad_y, r[1], shape_y))
    ]


def _reduced(g: Any, grad: Callable[[], Any] | None, t: Any, axes: list[int], lower_rank: bool) -> Any:
    if grad is None:
        return None
    value = grad()
    if not axes and not lower_rank:
        return value
    if axes:
        value = g.Sum(value, np.array(axes, dtype=np.int32), keep_dims=not lower_rank)
    return g.Reshape(value, np.array(t.dims, dtype=np.int32)) if lower_rank else value
