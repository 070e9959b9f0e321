"""Draws partitions as SVG: one lane per device, nodes in columns by how far they are from the inputs, crossings in red."""

from __future__ import annotations

import html

from penstock.graph.ir import Graph, Operation

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _PAD = 132, 30, 46, 12, 34
_COLOURS = {
    "source": "#e8f0fe", "state": "#fde9d9", "transfer": "#fbd9dc", "result": "#dff3e3", "flow": "#efe3fb", "compute": "#ffffff",
}  # fmt: skip
_FLOW = {"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"}
_LARGEST = 1500  # nodes; a larger picture helps nobody


def draw(partitions: dict[str, Graph], pairs: list[tuple[Operation, Operation]]) -> str:
    """The picture as SVG text."""
    total = sum(len(part) for part in partitions.values())
    if total > _LARGEST:
        return f"<p>{total} nodes are too many for a picture (the limit is {_LARGEST}); use to_dot().</p>"
    columns = _columns(partitions, pairs)
    spots: dict[Operation, tuple[float, float]] = {}
    lanes: list[tuple[str, float, float]] = []
    top = 10.0
    widest = 0.0
    for device, part in partitions.items():
        fill: dict[int, int] = {}
        for op in part:
            column = columns[op]
            row = fill.get(column, 0)
            fill[column] = row + 1
            spots[op] = (20 + column * (_WIDTH + _GAP_X), top + _PAD + row * (_HEIGHT + _GAP_Y))
        height = _PAD + max(fill.values(), default=1) * (_HEIGHT + _GAP_Y) + 10
        lanes.append((device, top, height))
        top += height + 18
        widest = max([widest, *(x for x, _ in spots.values())])
    width = widest + _WIDTH + 40
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {top:.0f}" width="{width:.0f}" height="{top:.0f}" font-family="system-ui, sans-serif" font-size="10">']
    for device, y, height in lanes:
        out.append(f'<rect x="6" y="{y:.0f}" width="{width - 12:.0f}" height="{height:.0f}" rx="8" fill="#f7f9fb" stroke="#c5d0db"/>')
        out.append(f'<text x="18" y="{y + 18:.0f}" font-size="13" font-weight="600" fill="#345">{html.escape(device)}</text>')
    for part in partitions.values():
        for op in part:
            for tensor in op.inputs:
                out.append(_edge(spots[tensor.op], spots[op], "#9aa7b4", 1))
            for control in op.control_inputs:
                out.append(_edge(spots[control], spots[op], "#c3ccd5", 1, dashed=True))
    for send, recv in pairs:
        out.append(_edge(spots[send], spots[recv], "#d0223a", 2))
    for op, (x, y) in spots.items():
        out.append(_box(op, x, y))
    out.append("</svg>")
    return "\n".join(out)


def _columns(partitions: dict[str, Graph], pairs: list[tuple[Operation, Operation]]) -> dict[Operation, int]:
    """Longest distance from a source, over data, control and transfer edges; back edges do not count."""
    crossing = {recv: send for send, recv in pairs}
    ops = [op for part in partitions.values() for op in part]
    column = dict.fromkeys(ops, 0)
    waiting: dict[Operation, int] = {}
    consumers: dict[Operation, list[Operation]] = {}
    ready: list[Operation] = []
    for op in ops:
        sources = [t.op for t in op.inputs if not (op.type == "Merge" and t.op.type == "NextIteration")] + op.control_inputs
        if op in crossing:
            sources.append(crossing[op])
        waiting[op] = len(sources)
        for source in sources:
            consumers.setdefault(source, []).append(op)
        if not sources:
            ready.append(op)
    while ready:
        op = ready.pop()
        for consumer in consumers.get(op, ()):
            column[consumer] = max(column[consumer], column[op] + 1)
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                ready.append(consumer)
    # A source stands right before its first reader: short lines, and the picture shows when a value is needed.
    for op in reversed(ops):
        if not op.inputs and not op.control_inputs and op not in crossing and consumers.get(op):
            column[op] = max(0, min(column[c] for c in consumers[op]) - 1)
    for op in reversed(ops):
        if len(op.inputs) == 1 and not op.control_inputs and op.type == "Identity" and consumers.get(op) and not op.inputs[0].op.inputs:
            column[op] = max(column[op], min(column[c] for c in consumers[op]) - 1)
            source = op.inputs[0].op
            if source not in crossing and not source.control_inputs and len(set(consumers[source])) == 1:
                column[source] = max(0, column[op] - 1)
    return column


def _kind(op: Operation) -> str:
    if op.type in ("_Send", "_Recv"):
        return "transfer"
    if op.type in ("_Arg", "Const", "Placeholder"):
        return "source"
    if op.type == "_Retval":
        return "result"
    if op.type in _FLOW:
        return "flow"
    return "state" if op.op_def.stateful or any(t.dtype._is_ref_dtype for t in [*op.inputs, *op.outputs]) else "compute"


def _box(op: Operation, x: float, y: float) -> str:
    name = op.name if len(op.name) <= 24 else "…" + op.name[-23:]
    frame = op.user_frame
    title = f"{op.name}\n{op.type}\n{op.device}" + (f"\n{frame[0]}:{frame[1]}" if frame else "")
    return (
        f'<g><title>{html.escape(title)}</title><rect x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill="{_COLOURS[_kind(op)]}" '
        f'stroke="#7b8894"/><text x="{x + 6:.0f}" y="{y + 13:.0f}" font-weight="600">{html.escape(op.type)}</text>'
        f'<text x="{x + 6:.0f}" y="{y + 25:.0f}" fill="#556">{html.escape(name)}</text></g>'
    )


def _edge(a: tuple[float, float], b: tuple[float, float], colour: str, width: int, dashed: bool = False) -> str:
    x1, y1, x2, y2 = a[0] + _WIDTH, a[1] + _HEIGHT / 2, b[0], b[1] + _HEIGHT / 2
    bend = max(24.0, abs(x2 - x1) / 2)
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<path d="M{x1:.0f},{y1:.0f} C{x1 + bend:.0f},{y1:.0f} {x2 - bend:.0f},{y2:.0f} {x2:.0f},{y2:.0f}" fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>'
