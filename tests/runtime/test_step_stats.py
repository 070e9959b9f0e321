from __future__ import annotations

import numpy as np
import pytest

from penstock import dtypes
from penstock.runtime.call_frame import CallFrame
from penstock.runtime.executor import Step, run_step
from penstock.runtime.step_stats import Collector, timeline_label

from .graphs import Builder, declare, executor


def traced(builder, *args, general=False):
    e = executor(builder)
    if general:
        e.straight = e.compiler = None
    frame, collector = CallFrame(list(args), e.plan.n_retvals), Collector()
    run_step([e], Step(frame, collector=collector))
    return e, collector, frame.take_retvals()


@pytest.mark.parametrize("general", [False, True])
def test_every_node_has_a_row(general):
    b = Builder()
    x = b.arg(0)
    y = b("AddV2", x, b.const(2.0, name="two"), name="sum")
    b.ret(0, b("Mul", y, y, name="square"))
    _, collector, results = traced(b, np.ones((2, 3), np.float32), general=general)
    assert results[0].tolist() == [[9.0] * 3] * 2
    stats = collector.step_stats()
    assert [d.device for d in stats.dev_stats] == ["/job:localhost/replica:0/task:0/device:CPU:0"]
    rows = {n.node_name: n for n in stats.dev_stats[0].node_stats}
    assert set(rows) == {op.name for op in b.graph}
    row = rows["sum"]
    assert row.timeline_label == "sum = AddV2(_Arg_1, two)"
    assert [d.size for d in row.output[0].tensor_description.shape.dim] == [2, 3]
    assert row.output[0].tensor_description.dtype == dtypes.float32.as_datatype_enum
    assert row.all_start_micros > 1_600_000_000_000_000  # wall clock time
    assert 0 <= row.op_start_rel_micros <= row.op_end_rel_micros <= row.all_end_rel_micros
    assert list(stats.dev_stats[0].thread_names.values()) == ["MainThread"]


def test_loops_have_a_row_per_iteration():
    b = Builder()
    exits = b.while_loop("loop", [0], lambda i: b("Less", i, b.inside(3)), lambda i: [b("AddV2", i, b.inside(1))])
    b.ret(0, exits[0])
    e, collector, results = traced(b)
    assert int(results[0]) == 3
    names = [row.op.type for rows in collector.rows.values() for row in rows]
    assert names.count("Less") == 4 and names.count("AddV2") == 3 and names.count("Merge") == 4
    graph = collector.cost_graph([e])
    assert len(graph.node) == len(b.graph)
    less = next(n for n in graph.node if n.name.startswith("Less"))
    assert [graph.node[i.preceding_node].name[:5] for i in less.input_info] == ["Merge", "Const"]


def test_asynchronous_kernels():
    declare("TestNow(x: T) -> (y: T) [T: type]", async_kernel=lambda ctx, done, x: done(x))
    b = Builder()
    b.ret(0, b("TestNow", b.arg(0)))
    _, collector, _ = traced(b, np.zeros(5, np.float32))
    row = next(row for rows in collector.rows.values() for row in rows if row.op.type == "TestNow")
    assert row.outputs == ((dtypes.float32, (5,), 20),)


def test_cost_graph():
    b = Builder()
    x = b.arg(0)
    y = b("AddV2", x, x, name="sum", control=[b("NoOp", name="first")])
    b.ret(0, y)
    e, collector, _ = traced(b, np.ones((4,), np.float32))
    graph = collector.cost_graph([e])
    by_name = {n.name: n for n in graph.node}
    node = by_name["sum"]
    assert [(i.preceding_node, i.preceding_port) for i in node.input_info] == [(by_name["_Arg_1"].id, 0)] * 2
    assert list(node.control_input) == [by_name["first"].id]
    assert node.output_info[0].size == 16 and not node.is_final
    assert next(n for n in graph.node if n.name.startswith("_Retval")).is_final


def test_labels():
    b = Builder()
    split = b("Switch", 1.0, np.True_, name="sw")
    assert (
        timeline_label(b("AddV2", split.outputs[1], split.outputs[0], name="a", control=[split]))
        == "a = AddV2(sw:1, sw, ^sw)"
    )
