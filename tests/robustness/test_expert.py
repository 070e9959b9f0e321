"""What an expert would try in order to break a session: interrupts, forks, races, deadlocks. Odd values are in test_values.py, odd graphs in test_graphs.py."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import penstock as tf

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def python(code, interrupt=False, timeout=100, args=()):
    """Runs `code` in a process of its own; with `interrupt`, presses Ctrl-C once it has printed a line. Its output."""
    code = "import penstock as tf, numpy as np, sys, os, threading, time\n" + textwrap.dedent(code)
    process = subprocess.Popen(
        [sys.executable, "-c", code, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ROOT},
    )  # fmt: skip
    try:
        if interrupt:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the process hangs; it said {out!r} {err!r}") from None
    assert process.returncode == 0, f"exit code {process.returncode}: {out}\n{err}"
    return out


# -- Ctrl-C -------------------------------------------------------------------------------------------------------------

INTERRUPTED = """
x = tf.constant(1.0)
with tf.Session(config=tf.ConfigProto(device_count=dict(CPU=2))) as sess:
    {build}
    sess.run(x)
    try:
        print("ready", flush=True)
        sess.run(y)
        print("came back")
    except KeyboardInterrupt:
        print("interrupted", sess.run(x + 1), flush=True)
print("over", threading.active_count() < 12)
"""


@pytest.mark.parametrize(
    "build",
    [
        "y = tf.FIFOQueue(1, [tf.float32]).dequeue()",
        "y = tf.while_loop(lambda i: i >= 0, lambda i: tf.identity(i), [tf.constant(0)])",
        "y = tf.while_loop(lambda i: i >= 0, lambda i: i + tf.cast(tf.reduce_sum(tf.ones([300, 300])), tf.int64) * 0, [tf.constant(0, tf.int64)])",
        "y = tf.py_func(lambda: time.sleep(20) or np.float32(1), [], tf.float32)",
        "y = tf.py_func(lambda: sess.run(tf.get_default_graph().get_tensor_by_name('q:0')), [], tf.float32); tf.FIFOQueue(1, [tf.float32]).dequeue(name='q')",
    ],
    ids=["dequeue", "loop", "loop of kernels", "py_func", "nested run"],
)
def test_ctrl_c(build):
    assert python(INTERRUPTED.format(build=build), interrupt=True).splitlines() == ["interrupted 2.0", "over True"]


def test_ctrl_c_across_devices():
    out = python(
        INTERRUPTED.format(
            build="""
    with tf.device("/cpu:1"):
        a = tf.FIFOQueue(1, [tf.float32]).dequeue()
    with tf.device("/cpu:0"):
        y = a + 1"""
        ),
        interrupt=True,
    )
    assert out.splitlines() == ["interrupted 2.0", "over True"]


def test_the_process_ends_although_a_thread_waits_in_a_step():
    out = python(
        """
        sess = tf.Session()
        y = tf.FIFOQueue(1, [tf.float32]).dequeue()
        threading.Thread(target=lambda: sess.run(y), daemon=True).start()
        time.sleep(0.1)
        print("done")
        """
    )
    assert out == "done\n"


# -- threads ------------------------------------------------------------------------------------------------------------


def in_threads(count, function):
    """Runs function(i) in threads at once; the errors they raised."""
    errors, start = [], threading.Barrier(count)

    def run(i):
        start.wait()
        try:
            function(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
        assert not thread.is_alive(), "a thread hangs"
    return errors


def test_first_runs_of_one_signature_in_two_threads():
    """Compiling happens once, and stateful kernels are shared: the counter counts every run."""
    for _ in range(20):
        with tf.Graph().as_default(), tf.Session() as session:
            v = tf.get_variable("v", initializer=0, use_resource=True)
            session.run(tf.global_variables_initializer())
            count = tf.assign_add(v, 1)
            results = []
            assert in_threads(4, lambda i: results.append(int(session.run(count)))) == []
            assert session.run(v) == 4 and len(session._runtime._prepared) == 3
            assert max(results) == 4


def test_many_signatures_at_once(sess):
    x = tf.placeholder(tf.float32)
    ys = [x * i + tf.random_uniform([]) * 0 for i in range(40)]

    def work(i):
        for k in range(40):
            assert sess.run(ys[(k + i * 7) % 40], {x: 2.0}) == 2.0 * ((k + i * 7) % 40)

    assert in_threads(4, work) == []


def test_a_graph_that_grows_while_others_run(sess):
    x = tf.placeholder(tf.float32, name="x")
    y = x + 1
    graph = tf.get_default_graph()
    stop = threading.Event()

    def work(i):
        if i == 0:
            with graph.as_default():
                for k in range(150):
                    z = tf.add(x, float(k), name=f"z{k}")
                    assert sess.run(z, {x: 1.0}) == k + 1
            stop.set()
        else:
            while not stop.is_set():
                assert sess.run(y, {x: 1.0}) == 2.0

    assert in_threads(3, work) == []


def test_closing_a_session_while_threads_run():
    for wait in (False, True):
        with tf.Graph().as_default():
            session = tf.Session()
            queue = tf.FIFOQueue(1, [tf.float32], [[]])
            y = queue.dequeue() if wait else tf.while_loop(lambda i: i < 100, lambda i: i + 1, [tf.constant(0)])
            session.run(tf.constant(0))
            threading.Timer(0.1, session.close).start()

            def work(i, session=session, y=y):
                while True:
                    session.run(y)

            errors = in_threads(4, work)
            assert len(errors) == 4
            assert all(isinstance(e, (RuntimeError, tf.errors.CancelledError)) for e in errors), errors


@pytest.mark.parametrize("regions", ["0", "1", "eager"])
def test_endless_loops_can_be_stopped(regions, monkeypatch):
    """By a deadline, by closing the session, on every road that a step can take."""
    monkeypatch.setenv("PENSTOCK_REGIONS", regions)

    def endless():
        return tf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 1000, [tf.constant(0)])

    with tf.Graph().as_default(), tf.Session() as session:
        loop = endless()
        for _ in range(2):
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(loop, options=tf.RunOptions(timeout_in_ms=50))
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=50)) as session:
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(endless())
    with tf.Graph().as_default():
        session, loop = tf.Session(), endless()
        threading.Timer(0.1, session.close).start()
        errors = in_threads(2, lambda i: session.run(loop))
        assert len(errors) == 2 and all(isinstance(e, (tf.errors.CancelledError, RuntimeError)) for e in errors), errors


def test_a_full_queue_and_a_deadline(sess):
    queue = tf.FIFOQueue(1, [tf.int32], [[]])
    enqueue = queue.enqueue(1)
    sess.run(enqueue)
    start = time.monotonic()
    with pytest.raises(tf.errors.DeadlineExceededError):
        sess.run(enqueue, options=tf.RunOptions(timeout_in_ms=100))
    assert time.monotonic() - start > 0.09
    assert sess.run(queue.size()) == 1 and sess.run(queue.dequeue()) == 1
    sess.run(enqueue)  # the step that ran out of time left no waiter behind
    assert sess.run(queue.size()) == 1


def test_one_inter_op_thread_and_nested_runs():
    config = tf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1, use_per_session_threads=True)
    with tf.Session(config=config) as session:
        queue = tf.FIFOQueue(2, [tf.float32], [[]])
        enqueue, dequeue = queue.enqueue(3.0), queue.dequeue()

        def again(depth):
            session.run(enqueue)
            if depth > 0:
                return np.float32(session.run(call, {level: depth - 1})) + session.run(dequeue)
            return np.float32(session.run(dequeue))

        level = tf.placeholder(tf.int64, [])
        call = tf.py_func(again, [level], tf.float32)
        assert session.run(call, {level: 1}) == 6.0
        # A step that waits for a value that only another step of the same session can give.
        errors = in_threads(2, lambda i: session.run(dequeue if i == 0 else enqueue))
        assert errors == []


def test_steps_that_wait_for_each_other_use_no_pool():
    """Twice as many waiting steps as there are threads of any pool."""
    with tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=2)) as session:
        queues = [tf.FIFOQueue(1, [tf.int32], [[]]) for _ in range(9)]
        links = [queues[i + 1].enqueue(queues[i].dequeue() + 1) for i in range(8)]
        feed, last = queues[0].enqueue(0), queues[8].dequeue()
        got = []

        def work(i):
            if i < 8:
                session.run(links[i])
            elif i == 8:
                time.sleep(0.05)
                session.run(feed)
            else:
                got.append(int(session.run(last)))

        assert in_threads(10, work) == []
        assert got == [8]


# -- fork ---------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
class TestFork:
    def test_fork_before_and_after_sessions(self):
        out = python(
            """
            def work(where):
                with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as s:
                    heavy = [tf.matmul(tf.random_normal([64, 64]), tf.ones([64, 64])) for _ in range(3)]
                    with tf.device("/cpu:1"):
                        z = tf.add_n(heavy)
                    for _ in range(8):
                        s.run(tf.reduce_sum(z))
                    y = tf.FIFOQueue(1, [tf.float32]).dequeue()
                    try:
                        s.run(y, options=tf.RunOptions(timeout_in_ms=50))
                    except tf.errors.DeadlineExceededError:
                        pass
                print(where, flush=True)

            def child(where):
                pid = os.fork()
                if pid == 0:
                    work(where)
                    os._exit(0)
                assert os.waitpid(pid, 0)[1] == 0

            child("before")
            work("parent")
            child("after")
            session = tf.Session()
            x = tf.constant(2.0) * 3
            session.run(x)
            pid = os.fork()
            if pid == 0:
                print("inherited", session.run(x), session.run(x + 1), flush=True)
                session.close()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            print("parent again", session.run(x))
            """
        )
        assert out.split("\n")[:-1] == ["before", "parent", "after", "inherited 6.0 7.0", "parent again 6.0"]

    def test_fork_while_a_thread_runs(self):
        out = python(
            """
            session = tf.Session()
            q = tf.FIFOQueue(1, [tf.float32]).dequeue()
            loop = tf.while_loop(lambda i: i < 2000, lambda i: i + 1, [tf.constant(0)])
            spins = []
            def spin():
                while True:
                    spins.append(session.run(loop))
            threading.Thread(target=lambda: session.run(q), daemon=True).start()
            threading.Thread(target=spin, daemon=True).start()
            while not spins:  # a child cannot import what its parent is in the middle of importing
                time.sleep(0.01)
            for i in range(10):
                pid = os.fork()
                if pid == 0:
                    with tf.Graph().as_default(), tf.Session() as s:
                        assert s.run(tf.constant(1.0) + 1) == 2.0
                        assert s.run(tf.while_loop(lambda i: i < 5, lambda i: i + 1, [tf.constant(0)])) == 5
                    os._exit(0)
                assert os.waitpid(pid, 0)[1] == 0
            print("ok")
            """
        )
        assert out == "ok\n"

    def test_multiprocessing(self):
        with tf.Session() as session:
            session.run(tf.constant(1.0) + 1)
        context = multiprocessing.get_context("fork")
        with context.Pool(2) as pool:
            assert pool.map_async(_square_in_a_session, [1.0, 2.0, 3.0]).get(timeout=100) == [1.0, 4.0, 9.0]


def _square_in_a_session(value):
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32)
        return float(session.run(x * x, {x: value}))


# -- Python functions -----------------------------------------------------------------------------------------------------


def test_py_func_that_raises(sess):
    raised = {
        ValueError: tf.errors.InvalidArgumentError, TypeError: tf.errors.InvalidArgumentError, StopIteration: tf.errors.OutOfRangeError,
        MemoryError: tf.errors.ResourceExhaustedError, NotImplementedError: tf.errors.UnimplementedError, KeyError: tf.errors.UnknownError,
    }  # fmt: skip
    for error, expected in raised.items():

        def function(error=error):
            raise error("my own text")

        with pytest.raises(expected, match="my own text"):
            sess.run(tf.py_func(function, [], tf.float32))


def test_py_func_that_returns_something_else(sess):
    with pytest.raises(tf.errors.InvalidArgumentError, match="is double, but expects float"):
        sess.run(tf.py_func(lambda: np.float64(1), [], tf.float32))
    with pytest.raises(tf.errors.InvalidArgumentError, match="returns 2 values"):
        sess.run(tf.py_func(lambda: (np.float32(1), np.float32(2)), [], [tf.float32] * 3))
    shaped = tf.py_func(lambda: np.ones((2, 3), np.float32), [], tf.float32)
    shaped.set_shape([7])
    assert sess.run(shaped).shape == (2, 3)
    for wrong in (None, object(), {1: 2}, [[1], [1, 2]]):
        with pytest.raises(tf.errors.OpError):
            sess.run(tf.py_func(lambda wrong=wrong: wrong, [], tf.float32))
    assert sess.run(tf.constant(1)) == 1


def test_py_func_that_runs_the_same_session(sess):
    x = tf.constant(5.0)
    inner = x * 2
    outer = tf.py_func(lambda: np.float32(sess.run(inner)), [], tf.float32) + 1
    assert sess.run(outer) == 11.0


def test_py_func_that_changes_its_argument_changes_nothing_else(sess):
    c = tf.constant([1.0, 2.0])

    def scribble(a):
        a[:] = 9
        return a

    y = tf.py_func(scribble, [c], tf.float32)
    try:
        sess.run([y, c])
    except tf.errors.OpError:
        pass  # a read-only argument is as good
    assert sess.run(c).tolist() == [1.0, 2.0]


def test_py_func_that_closes_its_session():
    session = tf.Session()
    y = tf.py_func(lambda: session.close() or np.float32(1), [], tf.float32) + 1
    try:
        assert session.run(y) == 2.0
    except (tf.errors.CancelledError, RuntimeError):
        pass
    with pytest.raises(RuntimeError, match="closed Session"):
        session.run(y)
