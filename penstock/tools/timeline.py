"""StepStats -> Chrome trace: what every thread of every device did during a step.

    metadata = tf.RunMetadata()
    sess.run(fetches, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
    open("step.json", "w").write(tf.train.Timeline(metadata.step_stats).generate_chrome_trace_format())

Open the file in chrome://tracing or https://ui.perfetto.dev.
"""

from __future__ import annotations

import json
from typing import Any


class Timeline:
    """A step's StepStats as Chrome trace events: a process per device, a row per thread, arrows for Send/Recv and data flow."""

    def __init__(self, step_stats: Any, graph: Any = None) -> None:
        self._stats = step_stats
        self._graph = graph

    def generate_chrome_trace_format(self, show_dataflow: bool = True, show_memory: bool = False, op_time: str = "schedule") -> str:
        """The trace as JSON text. `op_time` "schedule" shows the time from being ready to the end, "compute" the kernel alone."""
        if op_time not in ("schedule", "compute", "all"):
            raise ValueError(f"op_time is 'schedule', 'compute' or 'all', not {op_time!r}")
        events: list[dict[str, Any]] = []
        ends: dict[str, dict[str, Any]] = {}
        for pid, device in enumerate(self._stats.dev_stats):
            events.append({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": f"{device.device} Compute"}})
            threads = self._threads(device)
            for thread, tid in threads.items():
                name = device.thread_names.get(thread) or f"thread {tid}"
                events.append({"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}})
            for node in device.node_stats:
                event = self._event(node, pid, threads[node.thread_id & 0xFFFFFFFF], op_time)
                events.append(event)
                ends[node.node_name] = event
                if show_memory:
                    self._memory(node, pid, event, events)
        if show_dataflow:
            self._flows(ends, events)
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, indent=1)

    @staticmethod
    def _threads(device: Any) -> dict[int, int]:
        threads: dict[int, int] = {}
        for node in device.node_stats:
            threads.setdefault(node.thread_id & 0xFFFFFFFF, len(threads))
        return threads

    @staticmethod
    def _event(node: Any, pid: int, tid: int, op_time: str) -> dict[str, Any]:
        label = node.timeline_label
        op, inputs = _parse_label(label)
        nanos = bool(node.all_start_nanos)
        base = node.all_start_nanos / 1e3 if nanos else float(node.all_start_micros)
        if op_time == "compute":
            start = base + (node.op_start_rel_nanos / 1e3 if nanos else node.op_start_rel_micros)
            end = base + (node.op_end_rel_nanos / 1e3 if nanos else node.op_end_rel_micros)
        else:
            start = base
            end = base + (node.all_end_rel_nanos / 1e3 if nanos else node.all_end_rel_micros)
        args: dict[str, Any] = {"name": node.node_name, "op": op}
        args.update({f"input{i}": name for i, name in enumerate(inputs)})
        for output in node.output:
            dims = [d.size for d in output.tensor_description.shape.dim]
            args[f"output{output.slot}"] = f"{dims}"
        return {"name": op, "cat": "Op", "ph": "X", "pid": pid, "tid": tid, "ts": start, "dur": max(end - start, 0.001), "args": args}

    @staticmethod
    def _memory(node: Any, pid: int, event: dict[str, Any], events: list[dict[str, Any]]) -> None:
        size = sum(o.tensor_description.allocation_description.requested_bytes for o in node.output)
        if size:
            events.append({"name": "Output bytes", "ph": "C", "pid": pid, "ts": event["ts"], "args": {"bytes": size}})

    @staticmethod
    def _flows(ends: dict[str, dict[str, Any]], events: list[dict[str, Any]]) -> None:
        number = 0
        for event in list(ends.values()):
            for key, source in event["args"].items():
                producer = ends.get(source.lstrip("^").split(":")[0]) if key.startswith("input") else None
                if producer is None or (producer["pid"], producer["tid"]) == (event["pid"], event["tid"]):
                    continue
                number += 1
                events.append({"name": "flow", "cat": "DataFlow", "ph": "s", "id": number, "pid": producer["pid"], "tid": producer["tid"], "ts": producer["ts"] + producer["dur"]})
                events.append({"name": "flow", "cat": "DataFlow", "ph": "t", "id": number, "pid": event["pid"], "tid": event["tid"], "ts": event["ts"]})
        # A transfer is one value under one key: the Send that ends and the Recv that begins carry the same tensor name.
        sends = {e["args"]["name"].removesuffix("/_send"): e for e in ends.values() if e["name"] == "_Send"}
        for event in list(ends.values()):
            send = sends.get(event["args"]["name"].removesuffix("/_recv")) if event["name"] == "_Recv" else None
            if send is not None:
                number += 1
                events.append({"name": "transfer", "cat": "Transfer", "ph": "s", "id": number, "pid": send["pid"], "tid": send["tid"], "ts": send["ts"]})
                events.append({"name": "transfer", "cat": "Transfer", "ph": "t", "id": number, "pid": event["pid"], "tid": event["tid"], "ts": event["ts"] + event["dur"]})


def _parse_label(label: str) -> tuple[str, list[str]]:
    """ "name = Op(in1, in2)" -> ("Op", ["in1", "in2"])."""
    _, _, call = label.partition(" = ")
    op, _, inputs = call.partition("(")
    inputs = inputs.rstrip(")")
    return op or label or "?", [i.strip() for i in inputs.split(",") if i.strip()]
