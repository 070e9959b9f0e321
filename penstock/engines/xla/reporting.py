"""Ops whose CPU kernels report bad data, and what a program looks at in their place: if something is wrong, its results are worth nothing, and the host reports it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.engines.xla.elimination import SOLVED
from penstock.engines.xla.rule import static, static_ints
from penstock.engines.xla.sizes import Padded
from penstock.graph.ir import Operation, Tensor

INDEXED: dict[str, tuple[int, int | None, Callable[[list[Any], dict[str, Any]], int]]] = {
    "SparseSoftmaxCrossEntropyWithLogits": (1, 0, lambda args, attrs: _sizes(args[0])[-1]),
    "ReverseSequence": (1, 0, lambda args, attrs: _sizes(args[0])[attrs["seq_dim"]] + 1),
    "Gather": (1, 0, lambda args, attrs: args[0].shape[0]),
    "GatherV2": (1, 0, lambda args, attrs: args[0].shape[int(static(args[2]))]),
    "ResourceGather": (1, 0, lambda args, attrs: args[0].shape[attrs.get("batch_dims", 0)]),
    **dict.fromkeys((f"UnsortedSegment{how}" for how in ("Sum", "Prod", "Max", "Min")), (1, None, lambda args, attrs: int(static(args[2])))),
}
"""Ops whose kernel reports an index out of range: which argument has the indices, the least one (None: any), and what bounds them. If the indices come from
outside, they are looked at before the program starts; if not, it finds out itself, and a wrong one is a reason to doubt its results."""

VECTORS: dict[str, tuple[int, Callable[[list[Any]], Sequence[int]]]] = {
    "GatherNd": (1, lambda args: args[0].shape),
    "ScatterNd": (0, lambda args: static_ints(args[2])),
    **dict.fromkeys((f"TensorScatter{how}" for how in ("Update", "Add", "Sub", "Min", "Max")), (1, lambda args: args[0].shape)),
}
"""The same with vectors of indices: which argument has them, and the sizes that bound each place of a vector."""

HARMLESS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("Div", "TruncateDiv", "FloorDiv", "FloorMod", "Mod", "TruncateMod"), lambda y: y != 0),
    "Pow": lambda y: y >= 0,
}
"""Ops whose kernel complains about the second operand only: what is all right with it."""

REPORTING = frozenset((*INDEXED, *VECTORS, *HARMLESS, *SOLVED))
"""Ops that may have bad data to report, which a program finds out for itself."""

DOUBTFUL = frozenset((*REPORTING, "Slice", "StridedSlice", "StridedSliceGrad", "TensorStridedSliceUpdate", "TensorArrayV3"))
"""Ops that may be a reason for doubt inside of control flow."""




def places_in(op: Operation, root: Callable[[Tensor], Tensor], shape: Sequence[int], lengths: Sequence[int] | None) -> Iterator[tuple[Tensor, int, int]]:
    """What TensorFlow's kernels have on the host, and look at, also on GPUs: numbers that say where a Slice (with its `lengths`) or a single index of a StridedSlice
    lies in a `shape`, each as the scalar it is made of, if there is one, with its bounds [low, high)."""
    begin = root(op.inputs[1]).op
    if begin.type != "Pack":
        return
    numbers = [root(t) for t in begin.inputs]
    if op.type == "Slice":
        if lengths is not None and len(numbers) == len(lengths) == len(shape):
            yield from ((t, 0, size - length + 1) for t, size, length in zip(numbers, shape, lengths))
        return
    new, single, rest = (op.attrs[f"{name}_mask"] for name in ("new_axis", "shrink_axis", "ellipsis"))
    behind = sum(1 for i in range(len(numbers)) if rest and 1 << i > rest and not new >> i & 1)
    axis = 0
    for i, tensor in enumerate(numbers):
        if rest >> i & 1:
            axis = len(shape) - behind
        elif not new >> i & 1:
            if single >> i & 1 and axis < len(shape):
                yield tensor, -shape[axis], shape[axis]
            axis += 1


def _sizes(value: Any) -> tuple[int, ...]:
    return value.value.shape if isinstance(value, Padded) else value.shape
