"""PENSTOCK_DEBUG: one ladder of how much the pipeline tells about itself.

    1   one line per compiled signature
    2   and one line per stage: nodes in and out, milliseconds
    3   and what every pass did, and why nodes sit on their devices
    4   and every stage's graph as a numbered .pbtxt file, in the folder PENSTOCK_DUMP (default: penstock-dump)
    5   and every kernel that a step runs, with its time and its outputs' shapes

`with level(3):` sets it for a while, in tests and notebooks.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator
from typing import Any

LINES, STAGES, REASONS, DUMPS, KERNELS = 1, 2, 3, 4, 5

_level = int(os.environ.get("PENSTOCK_DEBUG") or 0)
_numbers = itertools.count()


def at_least(wanted: int) -> bool:
    """Whether that much is to be told."""
    return _level >= wanted


@contextlib.contextmanager
def level(new: int) -> Iterator[None]:
    """Tells that much inside the `with`."""
    global _level
    old, _level = _level, new
    try:
        yield
    finally:
        _level = old


def say(text: str) -> None:
    print(f"penstock: {text}", file=sys.stderr)


def tell_compilation(signature: Any, trail: Any, placer: Any, partitions: dict[str, Any]) -> None:
    """Everything about one compilation that the level asks for."""
    number = next(_numbers)
    total = sum(r.seconds for r in trail.records)
    nodes = sum(len(p) for p in partitions.values())
    say(f"step {number}: {len(signature.feeds)} feeds -> {', '.join(signature.fetches + signature.targets)[:80]}; {nodes} nodes in {len(partitions)} partitions, {total * 1e3:.1f} ms")
    if not at_least(STAGES):
        return
    before: Any = ""
    for position, record in enumerate(trail.records):
        graphs = record.result if isinstance(record.result, dict) else {"": record.result}
        count = sum(len(g) for g in graphs.values())
        say(f"  {record.stage:<34}{before!s:>7} -> {count:<7}{record.seconds * 1e3:8.2f} ms")
        before = count
        if at_least(REASONS):
            for note in record.notes:
                say(f"      {note}")
        if at_least(DUMPS):
            _dump(number, position, record.stage, graphs)
    if at_least(REASONS):
        for part in partitions.values():
            for op in part:
                origin = op.origin or op
                if origin.name in placer.reasons:
                    say(f"      {op.name} on {op.device}: {placer.reasons[origin.name]}")


def _dump(number: int, position: int, stage: str, graphs: dict[str, Any]) -> None:
    from google.protobuf import text_format

    folder = os.environ.get("PENSTOCK_DUMP") or "penstock-dump"
    os.makedirs(folder, exist_ok=True)
    for device, graph in graphs.items():
        suffix = "-" + device.rpartition("device:")[2].replace(":", "") if device else ""
        path = os.path.join(folder, f"{number:04d}-{position:02d}-{stage.replace('/', '-')}{suffix}.pbtxt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text_format.MessageToString(graph.as_graph_def()))


def tell_kernels(collector: Any) -> None:
    """One line per executed node, in order of time."""
    rows = sorted((row for rows in collector.rows.values() for row in rows), key=lambda row: row.op_start)
    for row in rows:
        outputs = ", ".join("dead" if o is None else f"{o[0]}{list(o[1])}" for o in row.outputs)
        say(f"  {(row.op_end - row.op_start) / 1e3:9.1f} us  {row.op.name} = {row.op.type} -> {outputs}")
