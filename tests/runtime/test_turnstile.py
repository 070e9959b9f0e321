"""Short steps of several threads take turns; nobody waits for long, and long steps are not waited for."""

import threading

import numpy as np
import pytest

import penstock as tf
from penstock.runtime import turnstile


class _Prepared:
    def __init__(self):
        self.turns = turnstile.SURE


def test_a_step_waits_for_the_one_inside_and_then_runs(monkeypatch):
    monkeypatch.setattr(turnstile, "PATIENCE", 60.0)
    inside, go, order = threading.Event(), threading.Event(), []

    def first(executors, step):
        inside.set()
        go.wait(60)
        order.append("first")

    other = threading.Thread(target=turnstile.run, args=(_Prepared(), first, None, object()))
    other.start()
    inside.wait(60)
    threading.Timer(0.001, go.set).start()
    turnstile.run(_Prepared(), lambda *_: order.append("second"), None, object())
    other.join()
    assert order == ["first", "second"] and turnstile._inside is None


def test_whoever_stays_inside_is_not_waited_for_again():
    inside, go = threading.Event(), threading.Event()
    slow = _Prepared()
    other = threading.Thread(target=turnstile.run, args=(slow, lambda *_: (inside.set(), go.wait(60)), None, object()))
    other.start()
    inside.wait(60)
    ran = []
    turnstile.run(_Prepared(), lambda *_: ran.append(1), None, object())  # does not hang
    assert ran and slow.turns < 0
    go.set()
    other.join()
    assert not turnstile._lock.locked()


def test_an_error_leaves_the_turnstile():
    with pytest.raises(ZeroDivisionError):
        turnstile.run(_Prepared(), lambda *_: 1 / 0, None, object())
    assert not turnstile._lock.locked() and turnstile._inside is None


def _steps(prepared, number):
    for _ in range(number):
        turnstile.run(prepared, lambda *_: None, None, object())
    return prepared.turns


@pytest.fixture
def undisturbed(monkeypatch):
    monkeypatch.setattr(turnstile, "_taken_away", lambda: 0)
    monkeypatch.setattr(turnstile, "LONG", 0)


def test_long_steps_stop_taking_turns(undisturbed):
    prepared = _Prepared()
    assert _steps(prepared, turnstile.SURE - 1) == 1
    assert _steps(prepared, 1) == -turnstile.AGAIN


def test_long_steps_are_looked_at_again(undisturbed, monkeypatch):
    prepared = _Prepared()
    _steps(prepared, turnstile.SURE)
    assert _steps(prepared, turnstile.AGAIN) == turnstile.FEW
    assert _steps(prepared, turnstile.FEW) == -turnstile.AGAIN  # still long
    _steps(prepared, turnstile.AGAIN)
    monkeypatch.setattr(turnstile, "LONG", 60_000_000_000)
    assert _steps(prepared, 1) == turnstile.SURE


def test_a_step_that_lost_its_core_does_not_count_as_long(undisturbed, monkeypatch):
    losses = iter(range(10_000))
    monkeypatch.setattr(turnstile, "_taken_away", lambda: next(losses))
    prepared = _Prepared()
    assert _steps(prepared, 3 * turnstile.SURE) > 0


def test_a_step_inside_of_a_step():
    """A py_func that runs a session of its own must not wait for itself for ever."""
    inner_graph = tf.Graph()
    with inner_graph.as_default():
        y = tf.constant(3.0) * 2.0
    inner = tf.Session(graph=inner_graph)
    graph = tf.Graph()
    with graph.as_default():
        z = tf.py_func(lambda: np.float32(inner.run(y)), [], tf.float32)
    with tf.Session(graph=graph) as session:
        assert [session.run(z) for _ in range(20)] == [6.0] * 20


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
