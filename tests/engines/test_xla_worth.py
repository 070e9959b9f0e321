"""JAX is loaded only for programs of which XLA could get something."""

import time

import numpy as np
import pytest

import penstock as tf
from penstock.engines.xla import backend
from penstock.runtime.executor import compiled

pytestmark = pytest.mark.skipif(not backend.is_available(), reason="JAX is not installed")


def _convolutions():
    x = tf.placeholder(tf.float32, [16, 32, 32, 8])
    y = x
    for _ in range(4):
        y = tf.nn.relu(tf.nn.conv2d(y, tf.constant(np.full((3, 3, 8, 8), 0.01, np.float32)), [1, 1, 1, 1], "SAME"))
    return x, tf.reduce_sum(y)


def _large_arrays():
    x = tf.placeholder(tf.float32, [1 << 11, 1 << 10])
    y = x
    for _ in range(30):
        y = tf.tanh(y) + x
    return x, y


def _small_arrays():
    x = tf.placeholder(tf.float32, [8])
    y = x
    for _ in range(30):
        y = tf.tanh(y) + x
    return x, y


def _few_nodes_and_a_variable():
    x = tf.placeholder(tf.float32, [8])
    return x, tf.reduce_sum(tf.get_variable("v", [8]) * x)


def _large_arrays_and_a_loop():
    x = tf.placeholder(tf.float32, [1 << 11, 1 << 10])
    return x, tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(y)), [0, x])[1]


def _wait():
    deadline = time.monotonic() + 60
    while not backend.is_idle() and time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("program", "is_asked"), [(_convolutions, False), (_large_arrays, False), (_small_arrays, True), (_few_nodes_and_a_variable, True), (_large_arrays_and_a_loop, True)]
)  # fmt: skip
def test_xla_is_asked_about_what_it_could_take(program, is_asked, monkeypatch):
    class Asked(Exception):
        pass

    asked = []

    def start():
        asked.append(True)
        raise Asked

    monkeypatch.setenv("PENSTOCK_XLA", "1")
    monkeypatch.setenv("PENSTOCK_REGIONS", "1")
    monkeypatch.setattr(compiled, "WARM", 0)
    monkeypatch.setattr(compiled, "AT_ONCE", 1000)
    monkeypatch.setattr(compiled, "HOT_NS", 0)
    monkeypatch.setattr(compiled.spec, "enabled", False)
    monkeypatch.setattr(backend, "start", start)
    with tf.Graph().as_default(), tf.Session() as sess:
        x, y = program()
        sess.run(tf.global_variables_initializer())
        _wait()
        asked.clear()  # of the initialisers
        for _ in range(3):
            sess.run(y, {x: np.full(x.shape.as_list(), 0.1, np.float32)})
        _wait()
    assert bool(asked) is is_asked
