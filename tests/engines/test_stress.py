"""Generated code under stress: several threads, closing, interrupts, forks, errors in between."""

import os
import signal
import threading

import numpy as np
import pytest

import penstock as tf
from penstock import errors
from tests import steps


@pytest.fixture(autouse=True, params=["eager", "1"])
def regions(request, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REGIONS", request.param)


def net():
    """A placeholder, a variable that is updated in place, a loop, a cond."""
    x = tf.placeholder(tf.float32, [None, 4])
    w = tf.get_variable("w", initializer=np.eye(4, dtype=np.float32) * 0.5, use_resource=True)
    y = tf.tanh(tf.matmul(x, w))
    _, z = tf.while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, tf.cond(i % 2 > 0, lambda: v * 0.5, lambda: tf.square(v) + 1.0)), [tf.constant(0), y])
    return x, w, tf.reduce_sum(z, 1)


def test_threads_in_one_session():
    """Each thread gets what its own feed asks for, although all run the same generated function."""
    x, _, y = net()
    rng = np.random.RandomState(0)
    feeds = [rng.uniform(-1, 1, (n, 4)).astype(np.float32) for n in (1, 2, 3, 4, 50, 70)]
    wrong: list[str] = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        expected = [sess.run(y, {x: f}) for f in feeds]

        def work(k):
            try:
                for i in range(60):
                    n = (i + k) % len(feeds)
                    if not np.array_equal(sess.run(y, {x: feeds[n]}), expected[n]):
                        wrong.append(f"thread {k}, step {i}")
            except Exception as error:
                wrong.append(repr(error))

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
    assert not wrong


@pytest.mark.parametrize("resource", [True, False])
def test_locked_updates_from_threads_are_not_lost(resource):
    v = tf.get_variable("v", initializer=np.zeros(1000, np.float32), use_resource=resource)
    if resource:
        update = v.assign_add(tf.ones([1000]))
    else:
        update = tf.assign_add(v, tf.ones([1000]), use_locking=True)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        threads = [threading.Thread(target=lambda: [sess.run(update.op) for _ in range(100)]) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert sess.run(v).tolist() == [300.0] * 1000


def endless():
    """A loop that ends only if somebody ends it."""
    x = tf.placeholder(tf.float32, [])
    _, y = tf.while_loop(lambda i, v: i >= 0, lambda i, v: ((i + 1) % 1000, tf.tanh(v) + 1.0), [tf.constant(0), x])
    return x, y


def test_closing_ends_every_loop():
    x, y = endless()
    sess = tf.Session()
    ends: list[type] = []

    def work():
        try:
            sess.run(y, {x: 1.0})
        except Exception as error:
            ends.append(type(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    steps.wait_until(lambda: all(map(steps.is_running, threads)))
    sess.close()
    for t in threads:
        t.join(60)
        assert not t.is_alive()
    assert ends == [errors.CancelledError] * 3


def test_a_deadline_ends_a_loop_and_the_session_goes_on():
    x, y = endless()
    z = x * 2.0
    with tf.Session() as sess:
        for _ in range(2):
            with pytest.raises(errors.DeadlineExceededError):
                sess.run(y, {x: 1.0}, options=tf.RunOptions(timeout_in_ms=100))
            assert sess.run(z, {x: 4.0}) == 8.0


def test_ctrl_c_in_generated_code():
    """KeyboardInterrupt leaves the loop; the session can be used afterwards, and variables have no lock left on them."""
    x, y = endless()
    v = tf.get_variable("v", initializer=1.0, use_resource=True)
    step = v.assign_add(x)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for n in range(3):
            with pytest.raises(KeyboardInterrupt):
                steps.once(steps.is_running, lambda: os.kill(os.getpid(), signal.SIGINT))
                sess.run(y, {x: 1.0})
            assert sess.run(step, {x: 1.0}) == 2.0 + n


def test_a_step_that_raises_and_those_after_it():
    """An error leaves nothing behind: the same generated function goes on with the next feed."""
    x, i = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.int32, [])
    v = tf.get_variable("v", initializer=np.arange(6, dtype=np.float32), use_resource=True)
    y = tf.gather(tf.tanh(x) * 2.0 + v.read_value(), i, name="take") + tf.reduce_sum(x)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        want = [float(np.tanh(np.float32(0.5)) * np.float32(2) + n + 3) for n in range(6)]
        for n in range(12):
            if n % 3 == 2:
                with pytest.raises(errors.InvalidArgumentError) as info:
                    sess.run(y, {x: [0.5] * 6, i: 6 + n})
                assert info.value.op.name == "take"
            elif n % 5 == 4:
                with pytest.raises(errors.InvalidArgumentError, match="Incompatible shapes"):
                    sess.run(y, {x: [0.5] * 5, i: 0})
            else:
                np.testing.assert_allclose(sess.run(y, {x: [0.5] * 6, i: n % 6}), want[n % 6], rtol=1e-6)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_runs_what_its_parent_compiled():
    x, _, y = net()
    data = np.ones((3, 4), np.float32)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        expected = [sess.run(y, {x: data}) for _ in range(5)][-1]
        pid = os.fork()
        if not pid:
            code = 1
            try:
                signal.alarm(60)
                if np.array_equal(sess.run(y, {x: data}), expected):
                    code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert np.array_equal(sess.run(y, {x: data}), expected)
