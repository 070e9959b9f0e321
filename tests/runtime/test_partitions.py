"""Several partitions of one step, driven by one thread: values and deadness cross by Send and Recv, also out of loops."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from penstock import dtypes, errors
from penstock.names import parse_key
from penstock.runtime.call_frame import CallFrame
from penstock.runtime.executor import Step, run_step
from penstock.runtime.frame_id import child_frame_id
from penstock.runtime.rendezvous import LocalRendezvous

from .graphs import Builder, cpu, declare, executor, run

declare(
    "TestLater(x: T) -> (y: T) [T: type]", async_kernel=lambda ctx, done, x: threading.Timer(0.01, done, [x]).start()
)
declare("TestBoom(x: T) -> (y: T) [T: type]", kernel=lambda x: (_ for _ in ()).throw(errors.DataLossError("boom")))


class Pair:
    """Two builders, one per device, and edges between them."""

    def __init__(self) -> None:
        self.devices = cpu(2)
        self.builders = [Builder(), Builder()]

    def cross(self, source, to: int, control=(), dtype=None):
        """Sends `source` from the other device; the Recv on device `to`."""
        origin = 1 - to
        b = self.builders[origin]
        tensor = b.tensor(source)
        name = f"edge_{tensor.op.id}_{tensor.op.name}_{origin}"
        ends = {
            "tensor_name": name,
            "send_device": self.devices[origin].name,
            "send_device_incarnation": self.devices[origin].attributes.incarnation,
            "recv_device": self.devices[to].name,
        }
        b("_Send", tensor, **ends)
        return self.builders[to]("_Recv", tensor_type=dtype or tensor.dtype.base_dtype, control=control, **ends)

    def executors(self):
        return [executor(b, d) for b, d in zip(self.builders, self.devices, strict=True)]

    def run(self, *args, **step):
        return run(self.executors(), *args, **step)


def test_there_and_back():
    pair = Pair()
    a, b = pair.builders
    x = a.arg(0)
    doubled = b("AddV2", *[pair.cross(x, 1)] * 2)
    a.ret(0, a("AddV2", pair.cross(doubled, 0), x))
    b.ret(1, doubled)
    assert [float(v) for v in pair.run(np.float32(3))] == [9, 6]


def test_asynchronous_producers():
    pair = Pair()
    a, b = pair.builders
    b.ret(0, b("Neg", pair.cross(a("TestLater", a.arg(0)), 1)))
    assert float(pair.run(np.float32(3))[0]) == -3


@pytest.mark.parametrize("taken", [True, False])
def test_dead_values_cross(taken):
    pair = Pair()
    a, b = pair.builders
    switch = a("Switch", 5, a.arg(0, dtypes.bool))
    on_false = b("Neg", pair.cross(switch.outputs[0], 1))
    on_true = a("AddV2", switch.outputs[1], 1)
    merge = a("Merge", pair.cross(on_false, 0), on_true)
    a.ret(0, merge)
    a.ret(1, merge.outputs[1])
    assert [int(v) for v in pair.run(np.bool_(taken))] == ([6, 1] if taken else [-5, 0])


def test_the_control_edges_of_a_dead_recv_are_alive():
    pair = Pair()
    a, b = pair.builders
    recv = pair.cross(a("Switch", 5, np.True_).outputs[0], 1)
    dead = b("Identity", recv)
    b.ret(0, b("Identity", b.const(1), control=[recv]))
    b.ret(1, b("Merge", b("Identity", b.const(2), control=[dead]), b.const(3)))
    assert [int(v) for v in pair.run()] == [1, 3]


def loop_over_two_devices(n, parallel=10):
    """while i < n: i += 1; x = x * 2, the doubling on the second device, which has a control loop of its own."""
    pair = Pair()
    a, b = pair.builders
    frame = "loop"
    turn = {}

    def cond(i, x):
        turn["merge"] = i
        turn["less"] = a("Less", i, a.inside(n))
        return turn["less"]

    def body(i, x):
        # The other device's half of the loop.
        control_enter = b("Enter", b.const(0), frame_name=frame, parallel_iterations=parallel)
        control_merge = b("Merge", control_enter, control_enter)
        pred_here = next(op for op in a.graph if op.type == "LoopCond")
        pred = pair.cross(pred_here, 1, control=[control_merge])
        switch = b("Switch", control_merge, pred)
        control_merge._update_input(1, b("NextIteration", b("Identity", switch.outputs[1])).outputs[0])
        there = pair.cross(x, 1, control=[control_merge])
        doubled = b("AddV2", there, there)
        back = pair.cross(doubled, 0, control=[turn["merge"]])
        return [a("AddV2", i, a.inside(1)), back]

    exits = a.while_loop(frame, [0, 1], cond, body, parallel)
    a.ret(0, exits[0])
    a.ret(1, exits[1])
    return pair


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("parallel", [1, 10])
def test_loops_over_two_devices(n, parallel):
    assert [int(v) for v in loop_over_two_devices(n, parallel).run()] == [n, 2**n]


def test_keys_name_frame_and_iteration():
    keys = []

    class Spy(LocalRendezvous):
        def send(self, key, value, is_dead=False):
            keys.append((parse_key(key), is_dead))
            super().send(key, value, is_dead)

    spy = Spy()
    pair = loop_over_two_devices(3)
    pair.run(rendezvous=spy)
    frame = child_frame_id(0, 0, "loop")
    assert {k.frame for k, _ in keys} == {frame}
    assert {k.iter for k, _ in keys} == {0, 1, 2, 3}
    assert all(
        k.src_incarnation == d.attributes.incarnation for k, _ in keys for d in pair.devices if d.name == k.src_device
    )
    assert [
        is_dead for k, is_dead in keys if k.iter == 3 and k.dst_device.endswith("1") and "Identity" in k.edge_name
    ] == [True]
    assert spy.open_keys() == 0, "everything sent was received"


def test_an_error_in_one_partition_ends_the_other():
    pair = Pair()
    a, b = pair.builders
    failing = a("TestBoom", a("TestLater", 1), name="bad")
    b.ret(0, pair.cross(failing, 1))
    with pytest.raises(errors.DataLossError, match="boom") as info:
        pair.run()
    assert info.value.op.name == "bad"


def test_a_recv_that_nobody_serves_times_out():
    pair = Pair()
    _, b = pair.builders
    b(
        "_Recv",
        tensor_type=dtypes.float32,
        tensor_name="x",
        send_device="/device:CPU:9",
        send_device_incarnation=1,
        recv_device="/device:CPU:1",
        name="lonely",
    )
    with pytest.raises(errors.DeadlineExceededError) as info:
        pair.run(timeout=0.5)
    assert "waiting for: lonely" in "\n".join(info.value.story)


def test_feeds_and_fetches_through_the_rendezvous():
    """What clusters and partial runs do: values are sent in and received from outside while the step runs."""
    from penstock.names import make_key
    from penstock.runtime.executor import run_step_async

    b = Builder()
    ends = {"send_device": "/client", "send_device_incarnation": 7, "recv_device": "/worker"}
    x = b("_Recv", tensor_type=dtypes.float32, tensor_name="x", **ends)
    y = b("_Recv", tensor_type=dtypes.float32, tensor_name="y", **ends)
    back = {"send_device": "/worker", "send_device_incarnation": 7, "recv_device": "/client"}
    b("_Send", b("Neg", x), tensor_name="neg", **back)
    b("_Send", b("AddV2", x, y), tensor_name="sum", **back)
    rendezvous, ended = LocalRendezvous(), threading.Event()
    outcome = []
    run_step_async(
        [executor(b)], Step(CallFrame([], 0), rendezvous=rendezvous), lambda error: (outcome.append(error), ended.set())
    )
    rendezvous.send(make_key("/client", 7, "/worker", "x"), np.float32(2))
    assert rendezvous.recv(make_key("/worker", 7, "/client", "neg"), timeout=60)[0] == -2
    assert not ended.is_set()
    rendezvous.send(make_key("/client", 7, "/worker", "y"), np.float32(5))
    assert rendezvous.recv(make_key("/worker", 7, "/client", "sum"), timeout=60)[0] == 7
    assert ended.wait(60) and outcome == [None]


def test_many_steps_at_once():
    executors = loop_over_two_devices(5).executors()
    results = []

    def one():
        frame = CallFrame([], 2)
        run_step(executors, Step(frame))
        results.append([int(v) for v in frame.take_retvals()])

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[5, 32]] * 6
