"""What the pipeline did with one signature, for people: `Session.explain` returns an `Explanation`.

    print(sess.explain(loss, [x]))             a report
    e.stages                                   every stage: name, graph, nodes, seconds, notes
    e.node("add")                              one node: stages it went through, device, reason, source line
    e.code                                     the Python source that partitions become when they are warm
    e.to_html(path), e.to_dot()                pictures of the partitions
"""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.graph.ir import Graph, Operation


class Stage(NamedTuple):
    """One stage: what came out of it."""

    name: str
    graph: Any
    nodes: int
    partitions: int
    seconds: float
    notes: tuple[str, ...]


class NodeStory(NamedTuple):
    """Where an executed node comes from and why it is where it is."""

    name: str
    type: str
    device: str
    reason: str
    origin: str | None
    line: str | None


class Explanation:
    """See the module's docstring."""

    def __init__(self, signature: Any, trail: Any, placer: Any, partitions: dict[str, Graph], seconds: float, codes: dict[str, Callable[[], str]] | None = None) -> None:
        self.signature = signature
        self.codes = codes or {}
        self.partitions = partitions
        self.seconds = seconds
        self._placer = placer
        self.stages = [
            Stage(r.stage, r.result, _count(r.result), len(r.result) if isinstance(r.result, dict) else 1, r.seconds, tuple(r.notes)) for r in trail.records
        ]
        self.nodes: dict[str, NodeStory] = {}
        for part in partitions.values():
            for op in part:
                self.nodes[op.name] = self._story(op)

    def _story(self, op: Operation) -> NodeStory:
        origin = op.origin
        frame = op.user_frame
        line = f"{frame[0]}:{frame[1]} in {frame[2]}" if frame else None
        return NodeStory(op.name, op.type, op.device, self._placer.reason(origin or op), origin.name if origin else None, line)

    def node(self, name: str) -> NodeStory:
        """The story of one executed node; KeyError tells near names."""
        if name not in self.nodes:
            import difflib

            raise KeyError(f"no executed node is called {name!r}; near: {difflib.get_close_matches(name, self.nodes, 3)}")
        return self.nodes[name]

    @property
    def transfers(self) -> list[tuple[str, str, str]]:
        """(tensor, from device, to device) of every Send/Recv pair between partitions."""
        return [
            (op.attrs["tensor_name"].decode(), op.attrs["send_device"].decode(), op.attrs["recv_device"].decode())
            for part in self.partitions.values()
            for op in part
            if op.type == "_Send" and not op.attrs["client_terminated"]
        ]

    @property
    def code(self) -> str:
        """The generated source of all partitions; a partition that stays with the dataflow executor says why."""
        return "\n".join(f"# {device}\n{source()}" for device, source in self.codes.items())

    def placement(self) -> dict[str, int]:
        """Device -> number of nodes."""
        return {device: len(part) for device, part in self.partitions.items()}

    def __str__(self) -> str:
        s = self.signature
        lines = [f"step: {len(s.feeds)} feeds, {len(s.fetches)} fetches, {len(s.targets)} targets; compiled in {self.seconds * 1e3:.1f} ms", ""]
        lines.append(f"{'stage':<36}{'nodes':>8}{'ms':>9}")
        for stage in self.stages:
            parts = f" in {stage.partitions} partitions" if stage.partitions > 1 else ""
            lines.append(f"{stage.name:<36}{stage.nodes:>8}{stage.seconds * 1e3:>9.2f}{parts}")
            lines.extend(f"    {note}" for note in stage.notes)
        lines += ["", "devices"]
        for device, count in self.placement().items():
            lines.append(f"  {device}  {count} nodes")
        if self.transfers:
            lines += ["", f"{len(self.transfers)} values cross devices"]
            lines += [f"  {name}: {short(a)} -> {short(b)}" for name, a, b in self.transfers[:20]]
            if len(self.transfers) > 20:
                lines.append(f"  ... and {len(self.transfers) - 20} more")
        if len(self.nodes) <= 60:
            lines += ["", "nodes"]
            for story in self.nodes.values():
                lines.append(f"  {story.name} ({story.type}) on {short(story.device)}: {story.reason}" + (f"; from {story.line}" if story.line else ""))
            if self.codes:
                lines += ["", "code when warm", *("  " + line for line in self.code.splitlines())]
        return "\n".join(lines)

    def to_dot(self) -> str:
        """The partitions as Graphviz source, one cluster per device."""
        lines = ["digraph step {", "  rankdir=LR; node [shape=box, fontsize=10, fontname=Helvetica];"]
        ids: dict[Operation, str] = {}
        for number, (device, part) in enumerate(self.partitions.items()):
            lines.append(f'  subgraph cluster_{number} {{ label="{device}"; color="#8899aa";')
            for op in part:
                ids[op] = f"n{len(ids)}"
                lines.append(f'    {ids[op]} [label="{op.name}\\n{op.type}"];')
            lines.append("  }")
        for part in self.partitions.values():
            for op in part:
                lines.extend(f"  {ids[t.op]} -> {ids[op]};" for t in op.inputs)
                lines.extend(f"  {ids[c]} -> {ids[op]} [style=dashed];" for c in op.control_inputs)
        pairs = self._pairs()
        lines.extend(f"  {ids[a]} -> {ids[b]} [color=crimson, penwidth=2];" for a, b in pairs)
        return "\n".join([*lines, "}"])

    def _pairs(self) -> list[tuple[Operation, Operation]]:
        sends: dict[tuple, Operation] = {}
        recvs: dict[tuple, Operation] = {}
        for part in self.partitions.values():
            for op in part:
                if op.type in ("_Send", "_Recv") and not op.attrs["client_terminated"]:
                    key = (op.attrs["tensor_name"], op.attrs["send_device"], op.attrs["recv_device"])
                    (sends if op.type == "_Send" else recvs)[key] = op
        return [(sends[key], recvs[key]) for key in sends if key in recvs]

    def to_svg(self) -> str:
        """The partitions as one picture: a lane per device, Send/Recv pairs in red."""
        from penstock.pipeline.picture import draw

        return draw(self.partitions, self._pairs())

    def to_html(self, path: str | None = None) -> str:
        """A page with the report and the picture; written to `path` if given."""
        page = (
            "<!doctype html><meta charset='utf-8'><title>Penstock: one step</title><style>body{font:14px system-ui;margin:2em;color:#223}"
            "pre{background:#f4f6f8;padding:1em;overflow:auto}.picture{overflow:auto;border:1px solid #dde;max-height:85vh}</style>"
            f"<h1>One step through the runtime</h1><pre>{html.escape(str(self))}</pre><h2>Partitioned graph</h2><p>One lane per device; red lines are values that cross. Hover over a node for its name, device and source line.</p><div class='picture'>{self.to_svg()}</div>"
        )
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(page)
        return page


def short(device: str) -> str:
    """The last part of a device name: "CPU:0"."""
    return device.rpartition("device:")[2] or device


def _count(result: Any) -> int:
    return sum(len(g) for g in result.values()) if isinstance(result, dict) else len(result)
