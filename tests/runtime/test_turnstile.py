"""Short steps of several threads take turns if more gets done that way; nobody waits for long, and long steps are not waited for."""

import threading
import time

import numpy as np
import pytest

import penstock as tf
from penstock.runtime import turnstile
from penstock.runtime.turnstile import Turns


def test_a_step_waits_for_the_one_inside_and_then_runs():
    inside, go, order = threading.Event(), threading.Event(), []

    def first(executors, step):
        inside.set()
        go.wait(5)
        order.append("first")

    other = threading.Thread(target=turnstile.run, args=(Turns(), first, None, object()))
    other.start()
    inside.wait(5)
    threading.Timer(0.001, go.set).start()
    turnstile.run(Turns(), lambda *_: order.append("second"), None, object())
    other.join()
    assert order == ["first", "second"] and turnstile._inside is None


def test_whoever_stays_inside_is_not_waited_for_again():
    inside, go = threading.Event(), threading.Event()
    slow = Turns()
    other = threading.Thread(target=turnstile.run, args=(slow, lambda *_: (inside.set(), go.wait(10)), None, object()))
    other.start()
    inside.wait(5)
    ran = []
    turnstile.run(Turns(), lambda *_: ran.append(1), None, object())  # does not hang
    assert ran and slow.is_over
    go.set()
    other.join()
    assert not turnstile._lock.locked()


def test_an_error_leaves_the_turnstile():
    with pytest.raises(ZeroDivisionError):
        turnstile.run(Turns(), lambda *_: 1 / 0, None, object())
    assert not turnstile._lock.locked() and turnstile._inside is None


def test_long_steps_stop_taking_turns(monkeypatch):
    monkeypatch.setattr(turnstile, "LONG", 0)
    turns = Turns()
    for _ in range(turnstile.SURE):
        assert not turns.is_over
        turnstile.run(turns, lambda *_: None, None, object())
    assert turns.is_over


class _Time:
    """A clock that stands still unless it is told."""

    def __init__(self, monkeypatch):
        self.now = 0
        monkeypatch.setattr(turnstile, "clock", lambda: self.now)

    def steps(self, turns, rate, duration, has_met=True):
        """Steps that end at so many nanoseconds after each other, until things may change."""
        for _ in range(duration // rate + 1):
            self.now += rate
            turns.after(has_met)


@pytest.mark.parametrize(("alone", "together", "is_free"), [(200_000, 100_000, True), (100_000, 200_000, False), (100_000, 90_000, False)])
def test_whichever_way_gets_more_done_stays(monkeypatch, alone, together, is_free):
    monkeypatch.setattr(turnstile.crowd, "meet", lambda ns: None)
    time = _Time(monkeypatch)
    turns = Turns()
    for _ in range(3):
        time.steps(turns, 100_000, turns._until - time.now)
        for expected, rate in ((False, alone), (True, together)):
            assert turns.is_free is expected
            time.steps(turns, rate, turnstile.SETTLE)
            time.steps(turns, rate, turnstile.WINDOW)
        assert turns.is_free is is_free
    assert turns._until - time.now > 3 * turnstile.FIRST_PAUSE  # less and less often


def test_a_single_client_is_left_alone(monkeypatch):
    met, alone = [], []
    monkeypatch.setattr(turnstile.crowd, "meet", met.append)
    monkeypatch.setattr(turnstile.crowd, "reset", lambda: alone.append(1))
    time = _Time(monkeypatch)
    turns = Turns()
    for _ in range(5):
        time.steps(turns, 100_000, turns._until - time.now, has_met=False)
        assert not turns.is_free and not met and not alone
    time.steps(turns, 100_000, turns._until - time.now)
    assert met
    for _ in range(2):
        time.steps(turns, 100_000, turnstile.SETTLE)
        time.steps(turns, 100_000, turnstile.WINDOW)
    time.steps(turns, 100_000, turns._until - time.now, has_met=False)
    assert alone and not turns.is_free


def test_steps_that_are_free_do_not_wait_and_know_of_each_other():
    inside, go, seen = threading.Event(), threading.Event(), []
    turns = Turns()
    turns.is_free = True
    other = threading.Thread(target=turnstile.run, args=(turns, lambda *_: (inside.set(), go.wait(10)), None, object()))
    other.start()
    inside.wait(5)
    turnstile.run(turns, lambda *_: seen.append(1), None, object())  # does not hang
    assert seen and turns._met == 1 and not turns.is_over
    turnstile.run(Turns(), lambda *_: seen.append(2), None, object())  # whoever takes turns does not wait for them
    go.set()
    other.join()
    assert seen == [1, 2] and not turnstile._free.locked() and not turnstile._lock.locked()


def test_a_step_inside_of_a_step():
    """A py_func that runs a session of its own must not wait for itself."""
    inner_graph = tf.Graph()
    with inner_graph.as_default():
        y = tf.constant(3.0) * 2.0
    inner = tf.Session(graph=inner_graph)
    graph = tf.Graph()
    with graph.as_default():
        z = tf.py_func(lambda: np.float32(inner.run(y)), [], tf.float32)
    start = time.monotonic()
    with tf.Session(graph=graph) as session:
        assert [session.run(z) for _ in range(20)] == [6.0] * 20
    assert time.monotonic() - start < 10


def test_threads_of_one_session_get_their_own_results():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, [None])
        y = tf.reduce_sum(x * 2.0)
    wrong = []
    with tf.Session(graph=graph) as session:

        def work(i):
            for n in range(200):
                if session.run(y, {x: np.full(4, i + n, np.float32)}) != 8.0 * (i + n):
                    wrong.append((i, n))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong
