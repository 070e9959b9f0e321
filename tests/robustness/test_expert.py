"""What an expert would try in order to break a session: interrupts, forks, races, deadlocks, odd feeds, huge and deep graphs."""

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


@pytest.fixture
def sess():
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        yield session


def python(code, interrupt=False, timeout=30, args=()):
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
        thread.join(30)
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
    assert 0.09 < time.monotonic() - start < 5
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
            def spin():
                while True:
                    session.run(loop)
            threading.Thread(target=lambda: session.run(q), daemon=True).start()
            threading.Thread(target=spin, daemon=True).start()
            time.sleep(0.1)
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
            assert pool.map_async(_square_in_a_session, [1.0, 2.0, 3.0]).get(timeout=30) == [1.0, 4.0, 9.0]


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


# -- feeds ----------------------------------------------------------------------------------------------------------------


def strided():
    return np.arange(20, dtype=np.float32)[::2]


def read_only():
    value = np.arange(4, dtype=np.float32)
    value.flags.writeable = False
    return value


GOOD_FEEDS = {
    "0-d": (np.array(3.0, np.float32), [], 3.0),
    "numpy scalar": (np.float32(3), [], 3.0),
    "bool for float": (True, [], 1.0),
    "not contiguous": (strided(), [10], float(np.arange(20)[::2].sum())),
    "fortran": (np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)), [2, 3], 15.0),
    "reversed": (np.arange(4, dtype=np.float32)[::-1], [4], 6.0),
    "read-only": (read_only(), [4], 6.0),
    "big-endian": (np.arange(4, dtype=">f4"), [4], 6.0),
    "big-endian ints": (np.arange(4, dtype=">i8"), [4], 6.0),
    "broadcast": (np.broadcast_to(np.float32(2), (3, 4)), [3, 4], 24.0),
    "empty": (np.zeros((0, 5), np.float32), [None, 5], 0.0),
    "empty list": ([], [None], 0.0),
    "matrix": (np.ones((2, 2)).view(np.matrix), [2, 2], 4.0),
    "masked": (np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False]), [3], None),
    "nested tuples": (((1, 2), (3, 4)), [2, 2], 10.0),
    "list of arrays": ([np.ones(2, np.float32), np.ones(2, np.float32)], [2, 2], 4.0),
    "memory view": (memoryview(np.arange(4, dtype=np.float32)), [4], 6.0),
    "range": (range(4), [4], 6.0),
    "huge": (np.ones(1 << 22, np.float32), [None], float(1 << 22)),
    "wider scalar": (np.float64(2.5), [], 2.5),
    "object array": (np.array([1, 2.5], object), [2], 3.5),
}


@pytest.mark.parametrize("name", GOOD_FEEDS)
def test_feeds_that_work(sess, name):
    value, shape, total = GOOD_FEEDS[name]
    x = tf.placeholder(tf.float32, shape)
    before = np.array(value) if not isinstance(value, memoryview) else None
    got, same = sess.run([tf.reduce_sum(x), x], {x: value})
    assert type(same) in (np.ndarray, np.float32) and same.dtype == np.float32
    if total is not None:
        assert got == total
    if isinstance(same, np.ndarray) and same.size:
        same[...] = -1  # what was fetched is the caller's own
        assert before is None or np.array_equal(np.array(value), before)


BAD_FEEDS = {
    "None": (None, (TypeError, ValueError)),
    "ragged": ([[1.0], [1.0, 2.0]], ValueError),
    "object array": (np.array([1.0, object()], object), (TypeError, ValueError)),
    "array of arrays": (np.array([np.ones(1), np.ones(2)], object), (TypeError, ValueError)),
    "structured": (np.zeros(2, [("a", "f4"), ("b", "i4")]), (TypeError, ValueError)),
    "text": ("text", (TypeError, ValueError)),
    "array of text": (np.array(["a", "b"]), (TypeError, ValueError)),
    "dates": (np.array(["2020-01-01"], "M8[D]"), (TypeError, ValueError)),
    "dict": ({"a": 1}, (TypeError, ValueError)),
    "set": ({1.0, 2.0}, (TypeError, ValueError)),
    "object": (object(), (TypeError, ValueError)),
    "function": (len, (TypeError, ValueError)),
    "deep list": (eval("[" * 60 + "1.0" + "]" * 60), (TypeError, ValueError)),
}


@pytest.mark.parametrize("name", BAD_FEEDS)
def test_feeds_that_do_not(sess, name):
    value, expected = BAD_FEEDS[name]
    x = tf.placeholder(tf.float32, [2])
    with pytest.raises(expected):
        sess.run(x, {x: value})
    assert sess.run(x, {x: [1, 2]}).tolist() == [1.0, 2.0]  # also on the quick path
    with pytest.raises(expected):
        sess.run(x, {x: value})


def test_none_in_a_list_is_nan_as_in_numpy(sess):
    x = tf.placeholder(tf.float32, [2])
    assert np.array_equal(sess.run(x, {x: [1.0, None]}), [1.0, np.nan], equal_nan=True)


def test_lists_that_contain_themselves(sess):
    loop = []
    loop.append(loop)
    x = tf.placeholder(tf.float32)
    for use in (lambda: sess.run(x, {x: loop}), lambda: tf.constant(loop), lambda: tf.convert_to_tensor(loop)):
        with pytest.raises((ValueError, TypeError)):
            use()


def test_string_feeds(sess):
    s = tf.placeholder(tf.string)
    assert sess.run(s, {s: "é\udcff".encode("utf-8", "surrogateescape")}) == b"\xc3\xa9\xff"
    assert sess.run(s, {s: ["a", b"b", np.str_("c")]}).tolist() == [b"a", b"b", b"c"]
    assert sess.run(s, {s: np.array(["ab", "c"])}).tolist() == [b"ab", b"c"]
    assert sess.run(s, {s: np.array([b"a\x00", b"b"], object)}).tolist() == [b"a\x00", b"b"]
    for wrong in (1, [1, "a"], np.array([1, "a"], object), None):
        with pytest.raises((TypeError, ValueError)):
            sess.run(s, {s: wrong})


def test_a_feed_may_change_after_the_step(sess):
    x = tf.placeholder(tf.float32, [2])
    v = tf.get_variable("v", [2], use_resource=True, initializer=tf.zeros_initializer())
    assign = tf.assign(v, x)
    value = np.array([1.0, 2.0], np.float32)
    sess.run(assign, {x: value})
    value[:] = 7
    assert sess.run(v).tolist() == [1.0, 2.0]


# -- fetches --------------------------------------------------------------------------------------------------------------


def test_one_tensor_fetched_a_thousand_times(sess):
    x = tf.placeholder(tf.float32, [3])
    y = x * 2
    values = sess.run([y] * 1000, {x: [1, 2, 3]})
    assert len(values) == 1000 and all(v.tolist() == [2.0, 4.0, 6.0] for v in values)
    values[0][:] = 0
    assert values[1].tolist() == [2.0, 4.0, 6.0] or values[1] is values[0]


def test_deeply_nested_fetches(sess):
    x = tf.constant(1)
    structure = x
    for _ in range(80):
        structure = [structure]
    value = sess.run(structure)
    for _ in range(80):
        (value,) = value
    assert value == 1


# -- big and deep graphs --------------------------------------------------------------------------------------------------


def test_a_deep_chain():
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [])
        y = x
        for _ in range(10_000):
            y = tf.negative(y)
        assert session.run(y, {x: 3.0}) == 3.0
        assert session.run(y, {x: 3.0}, options=tf.RunOptions(timeout_in_ms=60_000)) == 3.0
        g = tf.gradients(y, x)[0]
        assert session.run(g, {x: 3.0}) == 1.0
        data = graph.as_graph_def()
        with tf.Graph().as_default(), tf.Session() as other:
            (again, fed) = tf.import_graph_def(data, return_elements=[y.name, x.name])
            assert other.run(again, {fed: 2.0}) == 2.0


def test_a_deep_chain_of_constants_folds():
    with tf.Graph().as_default(), tf.Session() as session:
        y = tf.constant([2, 2])
        for _ in range(5_000):
            y = y + tf.constant(0)
        assert session.run(tf.zeros(y)).shape == (2, 2)


def test_a_deep_chain_of_control_edges():
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=0, use_resource=True)
        session.run(tf.global_variables_initializer())
        op = tf.no_op()
        for _ in range(3_000):
            with tf.control_dependencies([op]):
                op = tf.assign_add(v, 1).op
        session.run(op)
        assert session.run(v) == 3_000


def test_a_graph_of_a_hundred_thousand_nodes(monkeypatch):
    monkeypatch.setattr("penstock.graph.spec.enabled", False)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [], name="x")
        rows = []
        for _ in range(1_000):
            y = x
            for _ in range(99):
                y = tf.negative(y)
            rows.append(y)
        total = tf.add_n(rows)
        assert len(graph) > 99_000
        assert session.run(total, {x: 1.0}) == -1_000.0
        assert session.run(rows[5], {x: 2.0}) == -2.0


def test_wide_nodes():
    with tf.Graph().as_default(), tf.Session() as session:
        parts = [tf.constant(float(i)) for i in range(3_000)]
        assert session.run(tf.add_n(parts)) == sum(range(3_000))
        assert session.run(tf.stack(parts)).shape == (3_000,)
        assert len(session.run(tf.unstack(tf.zeros([3_000])))) == 3_000


@pytest.mark.parametrize("depth", [50])
def test_nested_conditionals(sess, depth):
    x = tf.placeholder(tf.int32, [])

    def level(n):
        if n == depth:
            return tf.identity(x)
        return tf.cond(x > n, lambda: level(n + 1), lambda: tf.constant(-n))

    y = level(0)
    assert sess.run(y, {x: 100}) == 100 and sess.run(y, {x: 0}) == 0 and sess.run(y, {x: 20}) == -20


def test_nested_loops(sess):
    def level(n, total):
        if n == 0:
            return total + 1
        return tf.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, level(n - 1, t)), [tf.constant(0), total])[1]

    x = tf.placeholder(tf.int32, [])
    assert sess.run(level(5, x), {x: 0}) == 3**5


def test_nested_loops_have_gradients(sess):
    x = tf.placeholder(tf.float32, [])

    def level(n, value):
        if n == 0:
            return value * x
        return tf.while_loop(lambda i, t: i < 2, lambda i, t: (i + 1, level(n - 1, t)), [tf.constant(0), value])[1]

    y = level(3, tf.constant(1.0))
    assert sess.run([y, tf.gradients(y, x)[0]], {x: 1.0}) == [1.0, 8.0]


def test_a_constant_of_600_megabytes():
    value = np.zeros(600 << 18, np.float32)
    value[-1] = 5
    with tf.Graph().as_default(), tf.Session() as session:
        c = tf.constant(value)
        assert session.run(c[-1]) == 5.0 and session.run(tf.reduce_max(c)) == 5.0


def test_a_graph_of_more_than_two_gigabytes_is_not_written():
    """The check comes before any of the bytes do."""
    resource = pytest.importorskip("resource")
    big = np.broadcast_to(np.arange(1 << 20, dtype=np.float32), (700, 1 << 20))
    with tf.Graph().as_default() as graph:
        from penstock import dtypes
        from penstock.graph.constant import constant_tensor

        constant_tensor(graph, big, dtypes.float32, "big")
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ValueError, match="GraphDef cannot be larger than 2GB"):
            graph.as_graph_def()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 200 << 10


# -- names, devices, messages ---------------------------------------------------------------------------------------------


def test_names_that_are_no_names():
    for name in ("é", "a b", "a\n", "a:0", "^a", "_a", "/a", "\x00", "日本", "a" * 3 + "?"):
        with pytest.raises(ValueError, match="not a valid node name"):
            tf.constant(1, name=name)
        with pytest.raises(ValueError, match="not a valid node name"):
            tf.get_default_graph().create_op("NoOp", [], name=name)
        with pytest.raises(ValueError, match="not a valid root scope name"):
            tf.no_op(name=name)
        with pytest.raises(ValueError, match="not a valid root scope name"), tf.name_scope(name):
            pass
    assert tf.constant(1, name="a" * 3000).op.name == "a" * 3000


def test_a_device_function_that_raises():
    def choose(op):
        raise KeyError("no idea")

    graph = tf.get_default_graph()
    with pytest.raises(KeyError, match="no idea"), tf.device(choose):
        tf.constant(1, name="lost")
    assert tf.constant(1, name="found").op.name == "found"
    assert all(op.type for op in graph.get_operations())
    with tf.Session() as session:
        assert session.run("found:0") == 1


def test_a_device_function_that_answers_nonsense():
    with tf.device(lambda op: "/device:NOPE:0"):
        x = tf.constant(1, name="x")
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device for operation"):
        session.run(x)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
        assert session.run(x) == 1


def test_errors_inside_of_loops_name_the_node(sess):
    x = tf.placeholder(tf.float32, name="x")

    def body(i, total):
        return i + 1, total + tf.reduce_sum(tf.matmul(x, tf.ones([2, 2]), name="inside"))

    loop = tf.while_loop(lambda i, t: i < 3, body, [tf.constant(0), tf.constant(0.0)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Matrix size-incompatible") as info:
        sess.run(loop, {x: np.ones((3, 3), np.float32)})
    assert info.value.op.name == "while/inside" and "test_expert.py" in str(info.value)


def test_scopes_that_raise_leave_the_graph_as_it_was(sess):
    graph = tf.get_default_graph()
    for scope in (
        lambda: tf.name_scope("n"), lambda: tf.device("/cpu:1"), lambda: tf.control_dependencies([tf.no_op()]), lambda: graph.container("c"),
        lambda: tf.variable_scope("v"), lambda: graph.gradient_override_map({"Neg": "Foo"}), lambda: tf.colocate_with(tf.no_op()),
    ):  # fmt: skip
        with pytest.raises(ZeroDivisionError), scope():
            raise ZeroDivisionError
    op = tf.constant(1, name="plain").op
    assert op.name == "plain" and op.device == "" and not op.control_inputs and "_class" not in op.attrs


def test_a_branch_that_raises_leaves_the_graph_usable(sess):
    p, x = tf.placeholder(tf.bool, []), tf.constant(1.0)

    def bad(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tf.cond(p, lambda: x, bad)
    with pytest.raises(ZeroDivisionError):
        tf.while_loop(lambda i: i < 3, bad, [tf.constant(0)])
    y = tf.cond(p, lambda: x + 1, lambda: x)
    assert y.op.control_inputs == [] and sess.run(y, {p: True}) == 2.0


def test_a_finalized_graph(sess):
    x = tf.constant(1)
    tf.get_default_graph().finalize()
    assert sess.run(x) == 1
    for change in (lambda: tf.constant(2), lambda: tf.get_variable("v", []), lambda: tf.import_graph_def(tf.GraphDef()), lambda: x + 1):
        with pytest.raises(RuntimeError, match="finalized"):
            change()
    assert sess.run(x) == 1
