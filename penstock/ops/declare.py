"""Declaring ops: `op(signature, shape=, numpy=, grad=, samples=, ...)`, and the shape rules that many share.

One call holds all that Penstock knows of an op. The signature is TensorFlow's, in one line:

    op("Exp(x: T) -> (y: T) [T: type in FLOATS|COMPLEX]",
       shape=same_as("x"), numpy=np.exp, grad=lambda g, op, dy: g.Mul(dy, g.Conj(op.y)), samples=[dict(x=normal(2, 3))])

Kernels take inputs by position and, as keyword-only parameters, the attributes they want; see `graph.bind`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.graph.ir import Dims
from penstock.graph.opdef import MISSING, OPS, OpDef, register
from penstock.graph.shape_inference import ShapeContext
from penstock.shapes import broadcast_dims, dims_of, merge_dims


class _NotDifferentiable:
    """Marks an op through which no gradient flows (tf.NotDifferentiable)."""

    def __repr__(self) -> str:
        return "NOT_DIFFERENTIABLE"


NOT_DIFFERENTIABLE = _NotDifferentiable()

Rule = Callable[[ShapeContext], Any]


def op(
    signature: str,
    *,
    shape: Rule | None,
    numpy: Callable[..., Any] | None = None,
    async_kernel: Callable[..., Any] | None = None,
    grad: Any = MISSING,
    xla: Any = None,
    samples: Any = (),
    errors: Any = (),
    expensive: bool = False,
    host_memory: Iterable[str] = (),
) -> OpDef:
    """Registers an op. `samples` and `errors` may be lists or functions without arguments that make them.

    `host_memory` names arguments that stay in host memory on accelerators; `expensive` tells the scheduler that a call
    is worth a thread of its own.
    """
    opdef = OpDef.declared(signature)
    opdef.shape_rule = shape
    opdef.kernel = numpy
    opdef.async_kernel = async_kernel
    opdef.gradient = grad
    opdef.samples = samples
    opdef.errors = errors
    opdef.expensive = expensive
    opdef.host_memory = frozenset(host_memory)
    opdef.kernels = {}
    opdef.build_plan = opdef.kernel_plan = None
    if xla is not None:
        opdef.kernels["XLA"] = xla
    frame = sys._getframe(1)
    opdef.where = f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno}"
    return register(opdef)


def gradient_of(*op_types: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator for gradients too long to stand in the declaration: attaches the rule to ops declared before."""

    def attach(rule: Callable[..., Any]) -> Callable[..., Any]:
        for name in op_types:
            OPS[name].gradient = rule
        return rule

    return attach


# ---------------------------------------------------------------------------------------------------------------------
# Shape rules


def same_as(arg: str) -> Rule:
    """Every output has the shape of input `arg`; a resource's or variant's handle data travels along."""

    def rule(c: ShapeContext) -> Dims:
        inputs = c.op.op_def.inputs
        first = inputs[0]
        i = 0 if first.name == arg and not first.is_list else c.arg(arg)[0]
        source = c.inputs[i]
        if source.handle_data is not None:
            for output in c.op.outputs:
                output.handle_data = source.handle_data
        return source.dims

    return rule


def scalar(c: ShapeContext) -> Dims:
    """Every output is a scalar."""
    return ()


def unknown(c: ShapeContext) -> Dims:
    """Nothing is known before the step runs."""
    return None


def no_outputs(c: ShapeContext) -> list[Dims]:
    """For ops without outputs."""
    return []


def broadcast(c: ShapeContext) -> Dims:
    """Binary elementwise: NumPy's broadcasting of inputs 0 and 1."""
    return broadcast_dims(c.inputs[0].dims, c.inputs[1].dims)


def merge_same(c: ShapeContext) -> Dims:
    """All inputs have one shape, and so have the outputs."""
    dims = c.dims(0)
    for i in range(1, c.n):
        dims = merge_dims(dims, c.dims(i))
    return dims


def from_attr(name: str) -> Rule:
    """Every output has the shape that attribute `name` gives."""
    return lambda c: dims_of(c.attrs[name])


def vector(length: int | None = None) -> Rule:
    """Every output is a vector of `length` (None: unknown)."""
    return lambda c: (length,)


def with_rank(c: ShapeContext, i: int, rank: int) -> tuple[int | None, ...]:
    """Dims of input `i`, which must have `rank` dimensions; unknown dims of that rank if the rank is unknown."""
    dims = c.inputs[i].dims
    if dims is None:
        return (None,) * rank
    if len(dims) != rank:
        raise ValueError(f"Shape must be rank {rank} but is rank {len(dims)}")
    return dims


def with_rank_at_least(c: ShapeContext, i: int, rank: int) -> Dims:
    dims = c.inputs[i].dims
    if dims is not None and len(dims) < rank:
        raise ValueError(f"Shape must be at least rank {rank} but is rank {len(dims)}")
    return dims


def checked_scalar(c: ShapeContext, i: int) -> None:
    """Input `i` must be a scalar."""
    with_rank(c, i, 0)


def each(*rules: Rule) -> Rule:
    """One rule per output."""
    return lambda c: [rule(c) for rule in rules]


def axes_of(values: Any, rank: int) -> tuple[int, ...]:
    """Axes as sorted non-negative ints; ValueError in TF's words if one is out of range."""
    result = []
    for axis in [int(v) for v in (values.ravel() if hasattr(values, "ravel") else values if isinstance(values, Sequence) else [values])]:
        if not -rank <= axis < rank:
            raise ValueError(f"Invalid reduction dimension {axis} for input with {rank} dimensions")
        result.append(axis % rank if rank else 0)
    return tuple(sorted(set(result)))
