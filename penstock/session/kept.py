"""Which fed arrays outlive their step.

A feed is taken as it is, without a copy, because kernels never write into their inputs. But where a fed array itself can get into a variable, a
queue or a handle, the caller could change it there afterwards; such a feed is copied. Kernels are free to return an input, or a view of one, so
every op is taken to do that unless it is known not to.
"""

from __future__ import annotations

import re

import numpy as np

from penstock.graph.ir import Graph, Operation, Tensor

FRESH = frozenset(
    (
        "Add", "AddV2", "BatchMatMul", "BatchMatMulV2", "BiasAddGrad", "Conv2D", "Div", "DivNoNan", "FloorDiv", "FloorMod", "MatMul", "Mod", "Mul", "Pow", "RealDiv",
        "Softmax", "SquaredDifference", "Sub",
    )
)  # fmt: skip
"""Ops whose results are always new arrays. Others that are may be added; `tests/session/test_kept.py` looks at their samples."""
_REINTERPRETING = frozenset(("Bitcast", "Cast", "Imag", "QuantizedReshape", "Real"))
"""Ops whose result may be a view of an input of another type."""
_CALCULATES = re.compile(r"(_SumAnd)?(Resource)?(Sparse)?Apply|(Resource)?Scatter|_?Assign(Add|Sub|Mul)")
"""Ops that write to a variable what they compute, into an array of its own."""


def kept_feeds(partitions: dict[str, Graph]) -> tuple[int, ...]:
    """Indices of the feeds that must be copied."""
    kept = []
    for part in partitions.values():
        for op in part:
            if op.type == "_Arg" and _is_kept(op):
                kept.append(op.attrs["index"])
    return tuple(sorted(kept))


def _is_kept(arg: Operation) -> bool:
    seen: set[Operation] = {arg}
    stack = [arg]
    while stack:
        for tensor in stack.pop().outputs:
            for consumer in tensor._consumers or ():
                if consumer in seen or consumer.type == "_Retval":
                    continue
                if _may_keep(consumer):
                    return True
                if may_pass(consumer, tensor):
                    seen.add(consumer)
                    stack.append(consumer)
    return False


def _may_keep(op: Operation) -> bool:
    if _CALCULATES.match(op.type):
        return False
    opdef = op.op_def
    return opdef.stateful or opdef.async_kernel is not None or opdef.kernel is None or any(t.dtype._is_ref_dtype for t in op.inputs)


def may_pass(op: Operation, tensor: Tensor) -> bool:
    """Whether a result of the op may be the array that comes in as `tensor`, or a view of it."""
    if op.type in FRESH or isinstance(op.op_def.kernel, np.ufunc):
        return False
    return op.type in _REINTERPRETING or any(out.dtype == tensor.dtype for out in op.outputs)
