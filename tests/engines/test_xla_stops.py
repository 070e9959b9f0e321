"""Loops that XLA computes can be stopped: a program runs them a piece at a time, and goes on where it was."""

import os
import signal

import numpy as np
import pytest

import penstock as tf
from penstock import errors
from tests import steps

pytest.importorskip("jax")

from penstock.engines.xla import pace

ENDLESS = 1 << 60


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    monkeypatch.setenv("PENSTOCK_XLA", "eager")
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    if not os.environ.get("PENSTOCK_TEST_GPU"):
        monkeypatch.setenv("PENSTOCK_GPU_PLATFORM", "cpu")


CPU, GPU = "/cpu:0", "/gpu:0"


@pytest.fixture
def pieces(monkeypatch):
    """How many rounds were left after each call of a program in pieces."""
    seen = []
    real = pace.Pace.learn
    monkeypatch.setattr(pace.Pace, "learn", lambda self, rounds, left, ns: seen.append(left) or real(self, rounds, left, ns))
    return seen


@pytest.fixture
def small(monkeypatch):
    """Pieces of at most a few rounds."""
    monkeypatch.setattr(pace, "FIRST", 4)
    monkeypatch.setattr(pace, "MOST", 16)


def loop(first, n, step):
    return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, step(a)), [tf.constant(0, tf.int64), first])[1]


def plain(n):
    return loop(tf.constant([0.5, 0.25]), n, lambda a: tf.sin(a) + 1.0)


def twice(n):
    return loop(loop(tf.constant(0.5), n, lambda a: tf.sin(a) + 1.0), n + 3, lambda a: tf.cos(a) + a)


def nested(n):
    return loop(tf.constant(0.5), tf.constant(3, tf.int64), lambda a: loop(a, n, lambda b: tf.sin(b) + 1.0) * 0.5)


def branched(n):
    return tf.cond(n > 2, lambda: loop(tf.constant(0.5), n, lambda a: tf.sin(a) + 1.0), lambda: tf.constant(1.0))


def state(n):
    v = tf.get_variable("v", initializer=np.float32(0.5), use_resource=True)
    w = tf.get_variable("w", initializer=np.zeros(3, np.float32), use_resource=True)
    y = loop(v * 0.5, n, lambda a: tf.sin(a) + 1.0)
    with tf.control_dependencies([v.assign_add(y * 0.1), w.assign(tf.fill([3], y))]):
        return tf.identity(y)


def started(build, device=CPU):
    with tf.device(device):
        n = tf.placeholder(tf.int64, [])
        y = build(n)
    return n, y


BUILDS = [plain, twice, nested, branched, state]


@pytest.mark.parametrize("device", [CPU, GPU])
@pytest.mark.parametrize("build", BUILDS, ids=lambda f: f.__name__)
def test_pieces_make_the_whole(monkeypatch, pieces, small, build, device):
    """As generated Python computes it, variables included, however many pieces it takes."""
    found = []
    for xla in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_XLA", xla)
        with tf.Graph().as_default():
            n, y = started(build, device if xla == "eager" else CPU)
            if build is nested or build is branched:
                monkeypatch.setattr(pace, "MOST", 1 << 20)
            with tf.Session() as sess:
                sess.run(tf.global_variables_initializer())
                steps = [sess.run(y, {n: rounds}) for rounds in (0, 3, 40, 1, 100)]
                found.append([*steps, *sess.run(tf.global_variables())])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert sum(left < 0 for left in pieces) >= 2 and sum(left >= 0 for left in pieces) >= 4


def test_how_many_rounds_a_call_gets_is_learned(pieces):
    n, y = started(plain)
    with tf.Session() as sess:
        for rounds in (2000, 2000, 200_000):
            sess.run(y, {n: rounds})
        for _ in range(10):  # a call that the system held up may have taught too few
            del pieces[:]
            sess.run(y, {n: 2000})
            if len(pieces) == 1:
                break
        assert len(pieces) == 1  # all at once


def test_loops_that_are_known_to_end_soon_are_not_counted(pieces):
    with tf.device(CPU):
        y = tf.while_loop(lambda i, a: i < 1000, lambda i, a: (i + 1, tf.sin(a) + 1.0), [tf.constant(0), tf.placeholder_with_default(0.5, [])])[1]
    with tf.Session() as sess:
        for _ in range(3):
            sess.run(y)
    assert not pieces


def stopped(sess, y, feeds, how, pieces):
    """The error that ends the endless step, which has computed some of its pieces."""
    before = len(pieces)
    if how == "deadline":
        timeout = 200
        while len(pieces) == before and timeout < 30_000:  # it may take longer than that to begin
            with pytest.raises(errors.DeadlineExceededError):
                sess.run(y, feeds, options=tf.RunOptions(timeout_in_ms=timeout))
            timeout *= 4
        return
    stop, wanted = (sess.close, errors.CancelledError) if how == "close" else (lambda: os.kill(os.getpid(), signal.SIGINT), KeyboardInterrupt)
    with pytest.raises(wanted):
        steps.once(lambda thread: len(pieces) > before, stop)
        sess.run(y, feeds)


@pytest.mark.parametrize("how", ["deadline", "close", "ctrl-c"])
@pytest.mark.parametrize(("build", "device"), [(plain, CPU), (nested, CPU), (state, CPU), (plain, GPU), (state, GPU)])
def test_endless_loops_end(pieces, build, device, how):
    n, y = started(build, device)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        expected = [sess.run(y, {n: 5}) for _ in range(2)][-1]
        before = sess.run(tf.global_variables())
        stopped(sess, y, {n: ENDLESS}, how, pieces)
        assert pieces[-1] < 0
        if how != "close":
            for a, b in zip(before, sess.run(tf.global_variables()), strict=True):
                np.testing.assert_array_equal(a, b)  # as if the step had not begun
            if build is not state:
                np.testing.assert_allclose(sess.run(y, {n: 5}), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["plain", "with state", "gpu"])
def test_what_cannot_go_on_in_pieces_is_left_to_python(monkeypatch, pieces, kind):
    """A loop in a branch starts again with every call; when that takes too long, XLA does not try it like that any more."""
    monkeypatch.setattr(pace, "LONGEST", 0)
    monkeypatch.setattr(pace, "FIRST", 4)

    def build(n):
        y = branched(n)
        if kind == "with state":
            v = tf.get_variable("v", initializer=np.float32(0.5), use_resource=True)
            with tf.control_dependencies([v.assign_add(y)]):
                y = y * 1.0
        return y

    n, y = started(build, GPU if kind == "gpu" else CPU)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        results = [sess.run(y, {n: 1000}) for _ in range(4)]
        assert pieces.count(pace.STUCK) == 1
        assert (len(pieces) == 1) == (kind != "gpu")  # there the loop alone can still be a program
        np.testing.assert_allclose(results, 1.9345632, rtol=1e-5)
        if kind == "with state":
            np.testing.assert_allclose(sess.run(tf.global_variables()), [0.5 + 4 * 1.9345632], rtol=1e-5)
