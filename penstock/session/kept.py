"""Which fed arrays outlive their step.

A feed is taken as it is, without a copy, because kernels never write into their inputs. But where a fed array itself can get into a variable, a
queue or a handle, the caller could change it there afterwards; such a feed is copied.
"""

from __future__ import annotations

from penstock.graph.ir import Graph, Operation

# Ops whose output may be the very array that came in.
_PASSING = frozenset(
    (
        "Identity", "IdentityN", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics", "CheckNumericsV2", "PlaceholderWithDefault", "EnsureShape",
        "Cast", "Bitcast", "Reshape", "Squeeze", "ExpandDims", "Transpose", "Slice", "StridedSlice", "BroadcastTo", "ConcatV2", "Concat", "Pack", "Unpack",
        "Split", "SplitV", "Tile", "Pad", "Switch", "Merge", "Enter", "Exit", "NextIteration", "AddN", "AccumulateNV2", "Select", "SelectV2", "Maximum",
        "Minimum", "Real", "Conj", "GuaranteeConst", "Relu", "Abs", "ClipByValue",
    )
)  # fmt: skip


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
                if consumer.type == "_Retval" or consumer in seen:
                    continue
                opdef = consumer.op_def
                if opdef.stateful or opdef.async_kernel is not None or opdef.kernel is None or any(t.dtype._is_ref_dtype for t in consumer.inputs):
                    return True
                if consumer.type in _PASSING:
                    seen.add(consumer)
                    stack.append(consumer)
    return False
