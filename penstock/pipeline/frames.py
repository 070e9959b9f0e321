"""Which loop frame each node runs in, read off the Enter and Exit nodes of a graph."""

from __future__ import annotations

from typing import NamedTuple

from penstock import errors
from penstock.graph.ir import Graph, Operation

ENTER = ("Enter", "RefEnter")
EXIT = ("Exit", "RefExit")
NEXT = ("NextIteration", "RefNextIteration")
MERGE = ("Merge", "RefMerge")


class Frame(NamedTuple):
    """A loop frame: its name as the Enter nodes give it, and the frame around it (None: the frame is the root's child)."""

    name: bytes
    parent: Frame | None

    def depth(self) -> int:
        return 1 + (self.parent.depth() if self.parent is not None else 0)


class Frames:
    """`inside[op]` is the frame in which `op` runs (None: outside of all loops); `after(op)` the frame its outputs live in."""

    def __init__(self, graph: Graph) -> None:
        self.inside: dict[Operation, Frame | None] = {}
        self._walk(graph)

    def after(self, op: Operation) -> Frame | None:
        frame = self.inside[op]
        if op.type in ENTER:
            return Frame(op.attrs["frame_name"], frame)
        if op.type in EXIT:
            if frame is None:
                raise errors.InvalidArgumentError(f"Exit node '{op.name}' is not inside of a loop").attach(op=op)
            return frame.parent
        return frame

    def _walk(self, graph: Graph) -> None:
        inside = self.inside
        stack: list[Operation] = []
        for op in graph:
            if not op.inputs and not op.control_inputs:
                inside[op] = None
                stack.append(op)
        while stack:
            op = stack.pop()
            frame = self.after(op)
            for consumer in _consumers(op):
                if consumer not in inside:
                    inside[consumer] = frame
                    stack.append(consumer)
                    continue
                seen = inside[consumer]
                if frame is None or seen == frame or consumer.type in MERGE:
                    continue
                if seen is None or frame.depth() > seen.depth():
                    # A node fed from outside and inside of a loop runs inside; the graph is only sound if the outer
                    # input comes by a control edge or a constant, which the executor treats as belonging to the frame.
                    raise errors.InvalidArgumentError(
                        f"The node '{consumer.name}' has inputs from different frames. The input '{op.name}' is in frame "
                        f"'{frame.name.decode()}'. An Enter node must bring outside values into a loop."
                    ).attach(op=consumer)
        for op in graph:
            inside.setdefault(op, None)  # part of a cycle that nothing enters; the spec check names it


def _consumers(op: Operation) -> list[Operation]:
    result = [consumer for tensor in op.outputs for consumer in tensor._consumers or ()]
    return result + (op._control_outputs or [])


def has_loops(graph: Graph) -> bool:
    return any(op.type in ENTER for op in graph)
