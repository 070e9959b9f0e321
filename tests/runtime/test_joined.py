"""Steps over several CPUs as one function: the same values, errors and deadness as partitions that send and receive."""

import threading

import numpy as np
import pytest

import penstock as tf
from penstock import errors
from penstock.runtime.executor import driver, joined
from penstock.runtime.executor.joined import together

FOUR = tf.ConfigProto(device_count={"CPU": 4})


@pytest.fixture
def mode(monkeypatch):
    def choose(name):
        monkeypatch.setenv("PENSTOCK_REGIONS", "0" if name == "off" else "eager")

    return choose


@pytest.fixture
def driven(monkeypatch):
    """How many steps the dataflow executor has run."""
    count = []
    start = driver.Driver._start
    monkeypatch.setattr(driver.Driver, "_start", lambda self: (count.append(1), start(self))[1])
    return count


def both(mode, fetches, feeds=None, config=FOUR, first=None, steps=3):
    """What `steps` steps give, without and with generated code; an error as (class, node, message, story)."""
    results = []
    for setting in ("off", "on"):
        mode(setting)
        with tf.Session(config=config) as sess:
            if first is not None:
                sess.run(first)
            rows = []
            for _ in range(steps):
                try:
                    rows.append(sess.run(fetches, feeds))
                except errors.OpError as error:
                    story = [line for line in error.story if "while: running step" not in line]
                    rows.append((type(error), error.op.name, error.message, story))
            results.append(rows)
    return results


def agree(mode, fetches, feeds=None, **more):
    off, on = both(mode, fetches, feeds, **more)
    for a, b in zip(off, on, strict=True):
        for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
            assert np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y
    return on


def on(i):
    return tf.device(f"/cpu:{i}")


def joined_code(fetches, feeds=(), config=FOUR):
    with tf.Session(config=config) as sess:
        return sess.explain(fetches, list(feeds)).code


def test_a_chain_needs_no_transfers(mode, driven):
    x = tf.placeholder(tf.float32, [3])
    y = x
    for i in range(8):
        with on(i % 4):
            y = tf.sqrt(y) + 0.5
    expected = np.float32([0.1, 0.2, 0.3])
    for _ in range(8):
        expected = np.sqrt(expected) + np.float32(0.5)
    rows = agree(mode, y, {x: np.float32([0.1, 0.2, 0.3])})
    np.testing.assert_allclose(rows[-1], expected, rtol=1e-6)
    assert len(driven) == 3  # the steps without generated code
    code = joined_code(y, [x])
    assert code.count("def region") == 1 and "Recv" not in code and "joined with" in code


def test_warm_steps_are_joined(monkeypatch, driven):
    monkeypatch.setenv("PENSTOCK_REGIONS", "1")
    x = tf.placeholder(tf.float32, [])
    with on(1):
        y = x * 2.0
    with on(2):
        z = y + 1.0
    with tf.Session(config=FOUR) as sess:
        assert [sess.run(z, {x: float(i)}) for i in range(6)] == [1, 3, 5, 7, 9, 11]
    assert len(driven) == 3


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_belong_to_their_devices(mode, use_resource, driven):
    with on(1):
        v = tf.get_variable("v", initializer=np.float32([1, 2]), use_resource=use_resource)
    with on(2):
        before = v * 10.0
        with tf.control_dependencies([before]):
            add = v.assign_add(tf.ones(2) * 3.0)
        with tf.control_dependencies([add]):
            with on(1):
                read = v.read_value()
            after = read * 10.0
    init = v.initializer
    rows = agree(mode, [before, after], first=init)
    np.testing.assert_array_equal(rows[1], [[40, 50], [70, 80]])


def test_one_name_on_two_devices_is_two_variables(mode):
    handles = []
    for i in range(2):
        with on(i):
            handles.append(tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="same"))
    with on(0):
        put = tf.raw_ops.AssignVariableOp(resource=handles[0], value=1.0)
    with on(1), tf.control_dependencies([put]):
        put_too = tf.raw_ops.AssignVariableOp(resource=handles[1], value=2.0)
    with tf.control_dependencies([put_too]):
        with on(0):
            a = tf.raw_ops.ReadVariableOp(resource=handles[0], dtype=tf.float32)
        with on(1):
            b = tf.raw_ops.ReadVariableOp(resource=handles[1], dtype=tf.float32)
    assert agree(mode, [a, b])[0] == [1.0, 2.0]


@pytest.mark.parametrize("use_resource", [False, True])
def test_an_uninitialised_variable(mode, use_resource):
    with on(1):
        v = tf.get_variable("v", initializer=np.float32([1, 2]), use_resource=use_resource)
    with on(2):
        y = v + 1.0
    rows = agree(mode, y)
    assert rows[0][0] is errors.FailedPreconditionError


@pytest.mark.parametrize("value", [3.0, -3.0])
def test_branches_on_other_devices(mode, value, driven):
    x = tf.placeholder(tf.float32, [])
    with on(3):
        sign = x > 0

    def yes():
        with on(1):
            return x * 2.0

    def no():
        with on(2):
            return tf.cond(x < -2, lambda: x - 1.0, lambda: x)

    with on(1):
        y = tf.cond(sign, yes, no) + 1.0
    assert agree(mode, y, {x: value})[0] == (7.0 if value > 0 else -3.0)
    assert len(driven) == 3


def test_a_dead_value_that_crosses(mode):
    x = tf.placeholder(tf.float32, [])
    with on(1):
        dead, alive = tf.raw_ops.Switch(data=x, pred=x > 0)
    with on(2):
        far = tf.negative(dead)
        with tf.control_dependencies([far]):
            behind = tf.constant(1.0) + 0.0
        merged, which = tf.raw_ops.Merge(inputs=[far, alive * 1.0])
    assert agree(mode, [merged, which], {x: 2.0})[0] == [2.0, 1]
    assert agree(mode, [merged, which], {x: -2.0})[0] == [2.0, 0]
    for setting in ("off", "on"):
        mode(setting)
        with tf.Session(config=FOUR) as sess:
            for fetch in (far, behind):
                with pytest.raises(errors.InvalidArgumentError, match="was not computed"):
                    sess.run(fetch, {x: 2.0})


def loop_over_devices():
    x = tf.placeholder(tf.float32, [None])

    def body(i, v):
        with on(1):
            longer = tf.concat([v, [1.0]], 0)
        with on(2):
            _, s = tf.while_loop(lambda j, s: j < 3, lambda j, s: (j + 1, s + tf.reduce_sum(v)), [0, 0.0])
        with on(3):
            return i + 1, longer + s * 0.0 + tf.ones([5])[: i + 3]

    n = tf.placeholder(tf.int32, [])
    _, y = tf.while_loop(lambda i, v: i < n, body, [0, x], shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])])
    return x, n, y


def test_loops_over_devices(mode, driven):
    x, n, y = loop_over_devices()
    assert agree(mode, y, {x: [1.0, 2.0], n: 2})[0].tolist() == [3, 4, 3, 2]
    assert agree(mode, y, {x: [1.0, 2.0], n: 0})[0].tolist() == [1, 2]
    assert len(driven) == 6


def test_errors_name_node_device_and_round(mode):
    x, n, y = loop_over_devices()
    rows = agree(mode, y, {x: [1.0, 2.0], n: 9})
    assert any("device:CPU:3" in line for line in rows[0][3])
    with tf.Session(config=FOUR) as sess, pytest.raises(errors.InvalidArgumentError) as info:
        sess.run(y, {x: [1.0, 2.0], n: 9})
    assert any("iteration 3 of loop 'while/while_context'" in line for line in info.value.story)


def test_transfers_in_bfloat16_still_round(mode, driven):
    config = tf.ConfigProto(device_count={"CPU": 2}, graph_options=tf.GraphOptions(enable_bfloat16_sendrecv=True))
    x = tf.placeholder(tf.float32, [2])
    with on(0):
        y = x * 1.001
    with on(1):
        z = y * 1.0
    (row, *_) = agree(mode, z, {x: [1.0, 3.0]}, config=config)
    assert row.tolist() != (np.float32([1.0, 3.0]) * np.float32(1.001)).tolist()
    assert len(driven) == 3


def test_random_numbers_go_on_where_they_were(mode):
    tf.set_random_seed(4)
    with on(1):
        a = tf.random_uniform([3], seed=1)
    with on(2):
        b = a + tf.random_normal([3], seed=2)
    agree(mode, b)


def test_tracing_shows_the_transfers(mode):
    mode("on")
    x = tf.placeholder(tf.float32, [])
    with on(1):
        y = x * 2.0
    with on(2):
        z = y + 1.0
    metadata = tf.RunMetadata()
    with tf.Session(config=FOUR) as sess:
        assert sess.run(z, {x: 1.0}) == 3
        sess.run(z, {x: 1.0}, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
    names = [row.node_name for device in metadata.step_stats.dev_stats for row in device.node_stats]
    assert any("_recv" in name for name in names) and len(metadata.step_stats.dev_stats) >= 3


def test_partial_runs(mode):
    mode("on")
    x, y = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    with on(1):
        a = x + 1.0
    with on(2):
        b = a * y
    with tf.Session(config=FOUR) as sess:
        handle = sess.partial_run_setup([a, b], [x, y])
        assert sess.partial_run(handle, a, {x: 1.0}) == 2
        assert sess.partial_run(handle, b, {y: 3.0}) == 6


def endless():
    def body(i):
        with on(1):
            return (i + 1) % 1000

    return tf.while_loop(lambda i: i >= 0, body, [tf.constant(0)])


def test_a_deadline_ends_a_loop(mode, driven):
    mode("on")
    y = endless()
    with tf.Session(config=FOUR) as sess, pytest.raises(errors.DeadlineExceededError):
        sess.run(y, options=tf.RunOptions(timeout_in_ms=200))
    assert not driven


def test_closing_the_session_ends_a_loop(mode):
    mode("on")
    y = endless()
    sess = tf.Session(config=FOUR)
    threading.Timer(0.2, sess.close).start()
    with pytest.raises(errors.CancelledError):
        sess.run(y)


def test_what_waits_is_not_joined(mode, driven):
    with on(1):
        queue = tf.FIFOQueue(4, [tf.float32], [()])
        put, got = queue.enqueue(3.0), queue.dequeue()
    with on(2):
        y = tf.cond(got > 1, lambda: got * 2.0, lambda: got)
    mode("on")
    with tf.Session(config=FOUR) as sess:
        for _ in range(3):
            sess.run(put)
            assert sess.run(y) == 6
    assert len(driven) >= 3
    assert "joined with" not in joined_code(y)


def test_functions_over_devices(mode):
    from penstock.runtime.executor.joined import JoinedStep

    @tf.Defun(tf.float32, func_name="far")
    def far(x):
        with on(1):
            y = x * 2.0
        with on(2):
            return y + 1.0

    x = tf.placeholder(tf.float32, [])
    y = far(x) + 1.0
    made = []
    original = JoinedStep.__init__
    JoinedStep.__init__ = lambda self, executors: (made.append(self), original(self, executors))[1]
    try:
        assert agree(mode, y, {x: 3.0})[0] == 8
    finally:
        JoinedStep.__init__ = original
    assert any(step.compiler is not None and step.compiler.program is not None for step in made)


def test_threads_run_one_signature(mode):
    mode("on")
    x = tf.placeholder(tf.float32, [4])
    y = x
    for i in range(12):
        with on(i % 4):
            y = tf.tanh(y) + x
    wrong = []
    with tf.Session(config=FOUR) as sess:
        expected = {k: sess.run(y, {x: [k] * 4}).tolist() for k in range(4)}

        def work(k):
            for _ in range(100):
                if sess.run(y, {x: [k] * 4}).tolist() != expected[k]:
                    wrong.append(k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_send_to_nowhere_is_not_joined():
    """Partitions of other processes are not among ours."""
    from .test_partitions import Pair

    pair = Pair()
    a, b = pair.builders
    b.ret(0, b("Neg", pair.cross(a.arg(0), 1)))
    first, second = pair.executors()
    assert [node.op.type for node in joined.join(joined.parts_of([first, second]))] == ["_Arg", "Neg", "_Retval"]
    with pytest.raises(joined.Unstructured, match="a Send without a Recv"):
        joined.join(joined.parts_of([first]))
    with pytest.raises(joined.Unstructured, match="a Recv without a Send"):
        joined.join(joined.parts_of([second]))


def test_a_closed_session_lets_go_of_constants(mode, monkeypatch):
    """Without the help of the garbage collector; watching for XLA keeps a program until it looks."""
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    import gc
    import weakref

    mode("on")
    x = tf.placeholder(tf.float32, [])
    with on(1):
        y = x * 2.0
    with on(2):
        z = y + 1.0
    with tf.Session(config=FOUR) as sess:
        assert sess.run(z, {x: 1.0}) == 3
        (prepared,) = sess._runtime._prepared.values()
        code = weakref.ref(together(prepared.executors).compiler.program.code)
        del prepared
        gc.disable()
    try:
        del sess
        assert code() is None
    finally:
        gc.enable()
