"""Step stats: what ran, where and for how long, as rows that become protos when somebody asks.

State of a Collector
    rows      device name -> [Row, ...], in the order in which nodes ended
    base      (wall clock, performance counter) when the collector was made, both in ns: rows hold performance counter values

A step without a collector pays nothing: executors have loops of their own for traced steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock import dtypes
from penstock.graph.ir import Operation

if TYPE_CHECKING:
    from penstock.runtime.executor.plan import NodePlan
    from penstock.runtime.executor.shell import Executor


class Row(NamedTuple):
    """One execution of one node. Times are perf_counter_ns; outputs are (dtype, shape, bytes) or None if dead or opaque."""

    op: Operation
    all_start: int
    op_start: int
    op_end: int
    all_end: int
    thread_id: int
    outputs: tuple[tuple[Any, tuple[int, ...], int] | None, ...]


class Collector:
    """Gathers the rows of one step, from all its devices and threads."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.base = (time.time_ns(), time.perf_counter_ns())
        self._thread_names: dict[int, str] = {}

    def recorder(self, device: str) -> Callable[..., None]:
        """`record(node, all_start, op_start, op_end, all_end, outputs)` for nodes of `device`."""
        append = self.rows.setdefault(device, []).append
        names = self._thread_names

        def record(
            node: NodePlan, all_start: int, op_start: int, op_end: int, all_end: int, outputs: Iterable[Any]
        ) -> None:
            thread = threading.get_ident()
            if thread not in names:
                names[thread] = threading.current_thread().name
            append(Row(node.op, all_start, op_start, op_end, all_end, thread, tuple(map(_described, outputs))))

        return record

    def step_stats(self) -> Any:
        """The StepStats proto, as in RunMetadata."""
        from penstock.formats.protos import StepStats

        stats = StepStats()
        for device, rows in sorted(self.rows.items()):
            device_stats = stats.dev_stats.add(device=device)
            for row in rows:
                self._fill(device_stats.node_stats.add(), row)
            for row in rows:
                device_stats.thread_names[row.thread_id & 0xFFFFFFFF] = self._thread_names[row.thread_id]
        return stats

    def _fill(self, stats: Any, row: Row) -> None:
        start = self.base[0] + row.all_start - self.base[1]
        stats.node_name = row.op.name
        stats.timeline_label = timeline_label(row.op)
        stats.thread_id = row.thread_id & 0xFFFFFFFF
        stats.all_start_nanos = stats.scheduled_nanos = start
        stats.all_start_micros = stats.scheduled_micros = start // 1000
        stats.op_start_rel_nanos = row.op_start - row.all_start
        stats.op_end_rel_nanos = row.op_end - row.all_start
        stats.all_end_rel_nanos = row.all_end - row.all_start
        stats.op_start_rel_micros = stats.op_start_rel_nanos // 1000
        # As in TF, no node takes no time at all: timelines would not show it.
        stats.op_end_rel_micros = max(1, stats.op_end_rel_nanos // 1000)
        stats.all_end_rel_micros = max(1, stats.all_end_rel_nanos // 1000)
        for slot, output in enumerate(row.outputs):
            if output is None:
                continue
            dtype, shape, size = output
            description = stats.output.add(slot=slot).tensor_description
            description.dtype = dtype.as_datatype_enum
            for dim in shape:
                description.shape.dim.add(size=dim)
            description.allocation_description.requested_bytes = size
            description.allocation_description.allocated_bytes = size
            description.allocation_description.allocator_name = "cpu"

    def cost_graph(self, executors: Iterable[Executor]) -> Any:
        """The CostGraphDef of the step: every node of the partitions with its inputs, output sizes and measured time."""
        from penstock.formats.protos import CostGraphDef

        graph = CostGraphDef()
        measured: dict[Operation, tuple[int, Row]] = {}
        for rows in self.rows.values():
            for row in rows:
                ns = measured[row.op][0] if row.op in measured else 0
                measured[row.op] = (ns + row.op_end - row.op_start, row)
        first = 0
        for executor in executors:
            ids = {node.op: first + i for i, node in enumerate(executor.plan.nodes)}
            first += len(ids)
            for op, number in ids.items():
                node = graph.node.add(name=op.name, device=executor.device.name, id=number)
                for tensor in op.inputs:
                    node.input_info.add(preceding_node=ids[tensor.op], preceding_port=tensor.value_index)
                node.control_input.extend(ids[source] for source in op.control_inputs)
                ns, row = measured.get(op, (0, None))
                node.compute_cost = node.compute_time = ns // 1000
                node.is_final = op.type in ("_Retval", "_DeviceRetval", "_Send", "_HostSend")
                outputs = row.outputs if row is not None else ()
                for i, tensor in enumerate(op.outputs):
                    info = node.output_info.add(dtype=tensor.dtype.as_datatype_enum, alias_input_port=-1)
                    known = outputs[i] if i < len(outputs) else None
                    if known is None:
                        info.size = -1
                        info.shape.unknown_rank = True
                    else:
                        info.size = known[2]
                        for dim in known[1]:
                            info.shape.dim.add(size=dim)
        return graph


def timeline_label(op: Operation) -> str:
    """TF's label of a node in timelines: `name = Op(input, input:1)`."""
    inputs = [t.op.name if t.value_index == 0 else t.name for t in op.inputs] + [
        "^" + c.name for c in op.control_inputs
    ]
    return f"{op.name} = {op.type}({', '.join(inputs)})"


def _described(value: Any) -> tuple[Any, tuple[int, ...], int] | None:
    if isinstance(value, (np.ndarray, np.generic)):
        try:
            return dtypes.from_np(value.dtype), value.shape, value.nbytes
        except (TypeError, KeyError, ValueError):
            return None
    return None
