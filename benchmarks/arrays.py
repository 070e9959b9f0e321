"""Workloads whose loops keep what they compute in TensorArrays: dynamic_rnn, scan, map_fn, foldl, and loops with conds. TF1's API only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.sequences import _data, _session, _weights


class Lstm:
    """A cell for `tf.nn.dynamic_rnn`, written as ops as `BasicLSTMCell` builds it."""

    def __init__(self, tf: Any, inputs: int, hidden: int) -> None:
        self.tf, self.output_size, self.state_size = tf, hidden, (hidden, hidden)
        self.kernel = _weights(tf, "kernel", inputs + hidden, 4 * hidden)
        self.bias = tf.get_variable("bias", [4 * hidden], initializer=tf.zeros_initializer())

    def zero_state(self, batch: Any, dtype: Any) -> Any:
        return tuple(self.tf.zeros([batch, n], dtype) for n in self.state_size)

    def __call__(self, x: Any, state: Any, scope: Any = None) -> Any:
        tf = self.tf
        c, h = state
        gates = tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), self.kernel), self.bias)
        i, j, f, o = tf.split(gates, 4, axis=1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        return h, (c, h)


def dynamic_rnn(
    tf: Any, training: bool, lengths: bool = False, steps: int = 20, batch: int = 32, hidden: int = 128, inputs: int = 64
) -> Callable[[], Any]:
    """An LSTM by `tf.nn.dynamic_rnn`; training goes by the last output to ten classes. `lengths`: every sequence has its own."""
    x = tf.placeholder(tf.float32, [batch, steps, inputs])
    sizes = tf.placeholder(tf.int32, [batch]) if lengths else None
    outputs, state = tf.nn.dynamic_rnn(Lstm(tf, inputs, hidden), x, sequence_length=sizes, dtype=tf.float32)
    feeds = {x: _data(batch, steps, inputs)}
    if sizes is not None:
        feeds[sizes] = np.arange(batch, dtype=np.int32) % steps + 1
    if not training:
        sess = _session(tf)
        return lambda: sess.run([outputs, state[1]], feeds)
    labels = tf.placeholder(tf.int32, [batch])
    logits = tf.matmul(state[1] if lengths else outputs[:, -1], _weights(tf, "out", hidden, 10))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    sess = _session(tf)
    feeds[labels] = np.arange(batch, dtype=np.int32) % 10
    return lambda: sess.run([loss, train], feeds)


def map_fn(tf: Any, gradient: bool = False, count: int = 100) -> Callable[[], Any]:
    x = tf.placeholder(tf.float32, [count, 8])
    y = tf.map_fn(lambda v: tf.tanh(v) * 2.0 + tf.reduce_sum(v), x)
    return _run(tf, tf.gradients(y, x) if gradient else y, {x: _data(count, 8)})


def scan(tf: Any, gradient: bool = False, count: int = 100) -> Callable[[], Any]:
    """A discounted sum, all of its values."""
    x = tf.placeholder(tf.float32, [count, 8])
    y = tf.scan(lambda total, v: total * 0.9 + tf.tanh(v), x, initializer=tf.zeros([8]))
    return _run(tf, tf.gradients(y, x) if gradient else y, {x: _data(count, 8)})


def foldl(tf: Any, count: int = 100) -> Callable[[], Any]:
    x = tf.placeholder(tf.float32, [count, 8])
    y = tf.foldl(lambda total, v: total * 0.9 + tf.tanh(v), x, initializer=tf.zeros([8]))
    return _run(tf, y, {x: _data(count, 8)})


def writes(tf: Any, count: int = 1000) -> Callable[[], Any]:
    """A loop that writes a number in each round."""
    x = tf.placeholder(tf.float32, [])
    kept = tf.TensorArray(tf.float32, size=count, element_shape=[])

    def body(i: Any, v: Any, kept: Any) -> Any:
        v = v * 0.999 + 0.001
        return i + 1, v, kept.write(i, v)

    kept = tf.while_loop(lambda i, v, kept: i < count, body, [tf.constant(0), x, kept])[2]
    return _run(tf, kept.stack(), {x: np.float32(3.0)})


def sampling(tf: Any, steps: int = 30, classes: int = 20, hidden: int = 32, batch: int = 4) -> Callable[[], Any]:
    """Greedy decoding: each round looks up what the last one chose, and stops when all have chosen the end; the array grows."""
    table, kernel, out = _weights(tf, "table", classes, hidden), _weights(tf, "kernel", 2 * hidden, hidden), _weights(tf, "out", hidden, classes)
    start = tf.placeholder(tf.float32, [batch, hidden])
    found = tf.TensorArray(tf.int32, size=0, dynamic_size=True, element_shape=[batch])

    def goes_on(i: Any, token: Any, state: Any, done: Any, found: Any) -> Any:
        return tf.logical_and(i < steps, tf.logical_not(tf.reduce_all(done)))

    def body(i: Any, token: Any, state: Any, done: Any, found: Any) -> Any:
        state = tf.tanh(tf.matmul(tf.concat([tf.gather(table, token), state], 1), kernel))
        token = tf.cast(tf.argmax(tf.matmul(state, out), 1), tf.int32)
        return i + 1, token, state, tf.logical_or(done, tf.less(token, 0)), found.write(i, token)

    begin = [tf.constant(0), tf.zeros([batch], tf.int32), start, tf.zeros([batch], tf.bool), found]
    found = tf.while_loop(goes_on, body, begin)[4]
    return _run(tf, found.stack(), {start: _data(batch, hidden)})


def cond_in_loop(tf: Any, gradient: bool = False, count: int = 200) -> Callable[[], Any]:
    """Collatz-like: each round takes one of two ways."""
    x = tf.placeholder(tf.float32, [4])

    def body(i: Any, v: Any) -> Any:
        return i + 1, tf.cond(tf.reduce_sum(v) > 1.0, lambda: v * 0.5 - 0.1, lambda: tf.tanh(v) + 0.7)

    _, y = tf.while_loop(lambda i, v: i < count, body, [tf.constant(0), x])
    return _run(tf, tf.gradients(y, x) if gradient else y, {x: _data(4)})


def conds(tf: Any, count: int = 200) -> Callable[[], Any]:
    """Conds one after another, on numbers."""
    x = tf.placeholder(tf.float32, [])
    y = x
    for _ in range(count):
        y = tf.cond(y > 1.0, lambda y=y: y * 0.5, lambda y=y: y + 0.7)
    return _run(tf, y, {x: np.float32(3.0)})


def _run(tf: Any, fetches: Any, feeds: dict) -> Callable[[], Any]:
    sess = _session(tf)
    return lambda: sess.run(fetches, feeds)
