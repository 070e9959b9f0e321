"""Leaks are failures: thousands of steps of every kind leave no threads, files, memory or resources behind.

Each kind of step runs about a thousand times (PENSTOCK_SOAK_RUNS sets another number). What is compared, before and after: threads, open
files, blocks that Python has allocated, resident memory, callbacks and children of the session's cancellation manager, and resources of
its devices.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as tf
from penstock.engines import turns
from tests.steps import wait_until

RUNS = int(os.environ.get("PENSTOCK_SOAK_RUNS", "0"))
SOAK = RUNS > 0

pytestmark = pytest.mark.timeout(120 + RUNS // 20)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def resident() -> int:
    """Resident memory in bytes; 0 where it cannot be read."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


class Snapshot:
    """What must not grow."""

    def __init__(self, session: Any = None) -> None:
        for _ in range(3):
            gc.collect()
        self.threads = threading.active_count()
        self.files = open_files()
        self.blocks = sys.getallocatedblocks()
        self.memory = resident()
        self.held = _held(session) if session is not None else {}

    def check(self, later: Snapshot, runs: int) -> None:
        # One block or one byte per step would be a leak; a few hundred in all are caches and counters.
        assert later.blocks - self.blocks < max(400, runs // 10), f"{later.blocks - self.blocks} more blocks after {runs} steps"
        assert later.memory - self.memory < 16 << 20, f"{(later.memory - self.memory) >> 20} MiB more after {runs} steps"
        assert later.files <= self.files, f"{later.files - self.files} more open files"
        assert later.threads <= self.threads, f"{later.threads - self.threads} more threads: {[t.name for t in threading.enumerate()]}"
        assert later.held == self.held, f"{later.held} for {self.held}"


def _held(session: Any) -> dict[str, int]:
    runtime = session._runtime
    manager = runtime.cancellation
    return {
        "callbacks": len(manager._callbacks or ()),
        "children": len(manager._children or ()),
        "resources": sum(len(d.resources.items()) for d in runtime.devices.devices),
        "signatures": len(runtime._prepared),
    }


# -- kinds of steps -------------------------------------------------------------------------------------------------------


def add(sess):
    y = tf.constant(1.0) + tf.constant(2.0) * 3
    return lambda: sess.run(y)


def feeds(sess):
    x = tf.placeholder(tf.float32, [None, 8])
    y = tf.reduce_sum(x * 2, 1)
    value = np.ones((16, 8), np.float32)
    return lambda: sess.run([y, x], {x: value})


def python_feeds(sess):
    x, s = tf.placeholder(tf.float32), tf.placeholder(tf.string)
    y = {"x": x + 1, "s": tf.string_join([s, "!"])}
    return lambda: sess.run(y, {x: [[1, 2], [3, 4]], s: ["a", "b"]})


def while_loop(sess):
    _, y = tf.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * 1.5), [tf.constant(0), tf.ones([4])])
    g = tf.gradients(y, tf.ones([4]))
    return lambda: sess.run([y, *[t for t in g if t is not None]])


def loop_gradient(sess):
    x = tf.ones([4])
    rows = tf.TensorArray(tf.float32, 5)
    _, rows = tf.while_loop(lambda i, r: i < 5, lambda i, r: (i + 1, r.write(i, x * tf.cast(i, tf.float32))), [tf.constant(0), rows])
    g = tf.gradients(rows.stack(), x)[0]
    return lambda: sess.run(g)


def cond(sess):
    p = tf.placeholder(tf.bool, [])
    y = tf.cond(p, lambda: tf.ones([3]), lambda: tf.zeros([3]))
    flip = [False]

    def step():
        flip[0] = not flip[0]
        return sess.run(y, {p: flip[0]})

    return step


def two_devices(sess):
    with tf.device("/cpu:1"):
        a = tf.random_normal([4], seed=1) * 2
    with tf.device("/cpu:0"):
        b = a + 1
    return lambda: sess.run(b)


def variables(sess):
    v = tf.get_variable("v", initializer=np.zeros((4, 4), np.float32), use_resource=True)
    w = tf.get_variable("w", initializer=np.zeros((4, 4), np.float32), use_resource=False)
    train = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(tf.square(v - 1) + tf.square(w - 2)))
    sess.run(tf.global_variables_initializer())
    return lambda: sess.run([train, v])


def queue(sess):
    q = tf.FIFOQueue(4, [tf.float32], [[2]])
    enqueue, dequeue = q.enqueue(([1.0, 2.0],)), q.dequeue()

    def step():
        sess.run(enqueue)
        return sess.run(dequeue)

    return step


def py_func(sess):
    y = tf.py_func(lambda a: a * 2, [tf.ones([3])], tf.float32)
    return lambda: sess.run(y)


def errors(sess):
    x = tf.placeholder(tf.float32)
    bad = tf.matmul(x, tf.ones([2, 2]))

    def step():
        try:
            sess.run(bad, {x: np.ones((3, 3), np.float32)})
        except tf.errors.InvalidArgumentError as error:
            return str(error)
        raise AssertionError("no error")

    return step


def errors_in_loops(sess):
    x = tf.placeholder(tf.float32, [])

    def body(i, a):
        with tf.control_dependencies([tf.Assert(i < 2, [i])]):
            return i + 1, a + x

    loop = tf.while_loop(lambda i, a: i < 5, body, [tf.constant(0), tf.constant(0.0)])

    def step():
        try:
            sess.run(loop, {x: 1.0})
        except tf.errors.InvalidArgumentError:
            return
        raise AssertionError("no error")

    return step


def cancelled(sess):
    """A step that runs into its deadline while it waits."""
    y = tf.FIFOQueue(1, [tf.float32], [[]]).dequeue() + tf.ones([])
    options = tf.RunOptions(timeout_in_ms=1)

    def step():
        try:
            sess.run(y, options=options)
        except tf.errors.DeadlineExceededError:
            return
        raise AssertionError("no error")

    return step


def options(sess):
    y = tf.constant(1.0) * 2

    def step():
        metadata = tf.RunMetadata()
        sess.run(y, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)

    return step


def callables(sess):
    x = tf.placeholder(tf.float32)
    call = sess.make_callable(x * 2, [x])
    return lambda: call(3.0)


def partial_runs(sess):
    a, b = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    c = a * 2
    d = c + b

    def step():
        handle = sess.partial_run_setup([c, d], [a, b])
        sess.partial_run(handle, c, {a: 1.0})
        sess.partial_run(handle, d, {b: 2.0})

    return step


KINDS = {
    kind.__name__: (kind, runs)
    for kind, runs in (
        (add, 2000), (feeds, 1000), (python_feeds, 600), (while_loop, 500), (loop_gradient, 300), (cond, 800), (two_devices, 800), (variables, 500),
        (queue, 800), (py_func, 1000), (errors, 500), (errors_in_loops, 300), (cancelled, 150), (options, 300), (callables, 1500), (partial_runs, 300),
    )
}  # fmt: skip


def never_grows(step: Callable[[], Any], runs: int, session: Any = None) -> None:
    """What leaks does so each time; code that is written in the background, whenever that may be, is there once."""
    for is_last in (False, False, True):
        wait_until(turns.is_idle)
        before = Snapshot(session)
        for _ in range(runs):
            step()
        try:
            wait_until(lambda: threading.active_count() <= before.threads, 5.0)  # threads end a moment after their pool is closed
            before.check(Snapshot(session), runs)
            return
        except AssertionError:
            if is_last:
                raise


def measure(kind: str, runs: int) -> None:
    config = tf.ConfigProto(device_count={"CPU": 2}, inter_op_parallelism_threads=2)
    make = KINDS[kind][0]
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        step = make(session)
        for _ in range(max(30, runs // 10)):
            step()
        never_grows(step, runs, session)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_leave_nothing_behind(kind):
    measure(kind, KINDS[kind][1])


@pytest.mark.skipif(not SOAK, reason="set PENSTOCK_SOAK_RUNS to run the long form")
@pytest.mark.parametrize("kind", KINDS)
def test_soak(kind):
    measure(kind, RUNS if kind != "cancelled" else RUNS // 20)


# -- sessions and graphs ------------------------------------------------------------------------------------------------


def _session_round(open_ones: list | None = None) -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32)
        v = tf.get_variable("v", initializer=1.0)
        y = tf.py_func(lambda a: a + 1, [x * v], tf.float32)
        q = tf.FIFOQueue(2, [tf.float32], [[]])
        session = tf.Session(config=tf.ConfigProto(device_count={"CPU": 2}))
        session.run(tf.global_variables_initializer())
        assert session.run(y, {x: 1.0}) == 2.0
        session.run(q.enqueue(1.0))
        session.close()


def test_sessions_opened_and_closed():
    for _ in range(10):
        _session_round()
    never_grows(_session_round, 200)


def test_sessions_that_nobody_closed():
    """A session that is dropped with its graph is closed by the collector."""

    def round():
        with tf.Graph().as_default():
            x = tf.constant(1.0) * 2
            return tf.Session().run(x)

    for _ in range(10):
        round()
    never_grows(round, 100)


def test_own_thread_pools_end_with_their_session():
    def round():
        with tf.Graph().as_default():
            heavy = [tf.matmul(tf.ones([120, 120]), tf.random_normal([120, 120])) for _ in range(3)]
            config = tf.ConfigProto(use_per_session_threads=True, inter_op_parallelism_threads=3)
            with tf.Session(config=config) as session:
                for _ in range(4):
                    session.run(tf.add_n(heavy))

    round()
    never_grows(round, 10)


def test_graphs_built_and_dropped():
    def round():
        with tf.Graph().as_default() as graph:
            x = tf.placeholder(tf.float32, [None, 3])
            w = tf.get_variable("w", [3, 2])
            y = tf.nn.relu(tf.matmul(x, w))
            tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(y))
            tf.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0)])
            data = graph.as_graph_def()
        with tf.Graph().as_default():
            tf.import_graph_def(data, name="again")

    for _ in range(5):
        round()
    never_grows(round, 50)


def test_a_closed_session_can_be_collected():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4])
        v = tf.get_variable("v", initializer=np.zeros(1 << 20, np.float32))
        y = tf.cond(x[0] > 0, lambda x=x: x * 2, lambda x=x: x)
        session = tf.Session()
        session.run(tf.global_variables_initializer())
        session.run([y, v], {x: np.ones(4)})
        runtime, watched = weakref.ref(session._runtime), weakref.ref(session)
        session.close()
        del session
    gc.collect()
    assert watched() is None and runtime() is None
    held = weakref.ref(graph)
    del graph, x, y, v
    gc.collect()
    assert held() is None


def test_a_failed_step_keeps_nothing_alive():
    """The error of a step must not hold its arrays once the caller has let it go."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32)
        bad = tf.matmul(x, tf.ones([2, 2]))
        value = np.ones((3, 3), np.float32)
        seen = weakref.ref(value)
        try:
            session.run(bad, {x: value})
        except tf.errors.InvalidArgumentError:
            pass
        del value
        gc.collect()
        assert seen() is None


def test_step_resources_end_with_the_step():
    """TensorArrays and stacks of a step are gone when it is over, also when it failed."""
    from penstock.ops.kernels.tensor_arrays import TensorArray
    from penstock.ops.stack import Stack

    def alive() -> int:
        gc.collect()
        return sum(isinstance(o, (TensorArray, Stack)) for o in gc.get_objects())

    with tf.Graph().as_default(), tf.Session() as session:
        array = tf.TensorArray(tf.float32, 3).write(0, tf.ones([100]))
        fine, broken = array.read(0), array.read(7)
        before = alive()
        for _ in range(5):
            session.run(fine)
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(broken)
        assert alive() <= before
