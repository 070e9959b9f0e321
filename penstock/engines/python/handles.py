"""Variables are looked up once, not in every step.

    if (known := handles(ctx)) is None:
        version = ctx.resources.version
        v0 = f1(ctx)  # w = VariableV2
        v1 = f2(ctx)  # b = VariableV2
        handles.keep(ctx, version, (v0, v1))
    else:
        v0, v1 = known

What a name stands for changes only when something is deleted, which the session's resources count (`runtime.resources`). A training step has three
variables for every weight; to ask for them one by one took a twentieth of a step of small layers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.engines.python.structure import Call
from penstock.graph.ir import Tensor

_TYPES = frozenset(("VariableV2", "Variable", "VarHandleOp"))
FEWEST = 3


class Handles(NamedTuple):
    """Nodes that name variables, at the beginning of a block."""

    nodes: list[Any]
    inputs: list[Tensor]
    outputs: list[Tensor]


def with_handles(block: list) -> list:
    """The block with one statement for all of its nodes that only name variables."""
    found = [s for s in block if isinstance(s, Call) and s.node.op.type in _TYPES and s.node.needs_ctx and s.node.plain and _is_free(s.node)]
    if len(found) < FEWEST:
        return block
    ids = set(map(id, found))
    nodes = [s.node for s in found]
    return [Handles(nodes, [], [node.op.outputs[0] for node in nodes]), *(s for s in block if id(s) not in ids)]


def _is_free(node: Any) -> bool:
    """Whether it waits for nothing, and belongs to the one device that the code runs on."""
    return not node.op.control_inputs and getattr(node, "context", "ctx") == "ctx"


class Remembered:
    """What was found last, as long as it holds."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: tuple[Any, int, tuple] | None = None

    def __call__(self, ctx: Any) -> tuple | None:
        known = self._known
        return known[2] if known is not None and known[0] is ctx.resources and known[1] == known[0].version else None

    def keep(self, ctx: Any, version: int, found: tuple) -> None:
        """`version` is from before the look-up: what is deleted meanwhile makes it stale."""
        self._known = (ctx.resources, version, found)
