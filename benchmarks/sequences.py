"""Workloads on sequences and tables: an unrolled LSTM, an attention block, an embedding with sparse updates. TF1's API only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def _weights(tf: Any, name: str, *shape: int) -> Any:
    return tf.get_variable(name, shape, initializer=tf.random_normal_initializer(stddev=shape[0] ** -0.5, seed=1))


def _session(tf: Any) -> Any:
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    return sess


# -- LSTM ---------------------------------------------------------------------------------------------------------------


def lstm_training(tf: Any, steps: int = 20, batch: int = 32, hidden: int = 128, inputs: int = 64) -> Callable[[], Any]:
    """An LSTM unrolled over `steps`, last output to ten classes, trained by gradient descent. The cell is written as ops, as
    `BasicLSTMCell` builds it: one product of [x, h], split into four gates."""
    x = tf.placeholder(tf.float32, [batch, steps, inputs])
    labels = tf.placeholder(tf.int32, [batch])
    kernel, bias = _weights(tf, "kernel", inputs + hidden, 4 * hidden), tf.get_variable("bias", [4 * hidden], initializer=tf.zeros_initializer())
    c = h = tf.zeros([batch, hidden])
    for x_t in tf.unstack(x, axis=1):
        gates = tf.nn.bias_add(tf.matmul(tf.concat([x_t, h], 1), kernel), bias)
        i, j, f, o = tf.split(gates, 4, axis=1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
    logits = tf.matmul(h, _weights(tf, "out", hidden, 10))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    sess = _session(tf)
    feeds = {x: _data(batch, steps, inputs), labels: np.arange(batch, dtype=np.int32) % 10}
    return lambda: sess.run([loss, train], feeds)


# -- attention ----------------------------------------------------------------------------------------------------------


def _layer_norm(tf: Any, x: Any, name: str) -> Any:
    depth = int(x.shape[-1])
    scale = tf.get_variable(f"{name}/gamma", [depth], initializer=tf.ones_initializer())
    offset = tf.get_variable(f"{name}/beta", [depth], initializer=tf.zeros_initializer())
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-6)


def _dense(tf: Any, x: Any, units: int, name: str) -> Any:
    """x @ w + b over the last dimension."""
    depth = int(x.shape[-1])
    shape = [int(n) for n in x.shape[:-1]]
    b = tf.get_variable(f"{name}/bias", [units], initializer=tf.zeros_initializer())
    y = tf.nn.bias_add(tf.matmul(tf.reshape(x, [-1, depth]), _weights(tf, f"{name}/kernel", depth, units)), b)
    return tf.reshape(y, [*shape, units])


def _attention_block(tf: Any, x: Any, heads: int) -> Any:
    """Multi-head self attention and a feed-forward layer, each with a residual and a layer norm."""
    batch, length, depth = (int(n) for n in x.shape)

    def split(t: Any) -> Any:
        return tf.transpose(tf.reshape(t, [batch, length, heads, depth // heads]), [0, 2, 1, 3])

    q, k, v = (split(_dense(tf, x, depth, name)) for name in ("query", "key", "value"))
    scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * (depth // heads) ** -0.5)
    mixed = tf.reshape(tf.transpose(tf.matmul(scores, v), [0, 2, 1, 3]), [batch, length, depth])
    x = _layer_norm(tf, x + _dense(tf, mixed, depth, "mix"), "norm1")
    inner = tf.nn.relu(_dense(tf, x, 4 * depth, "inner"))
    return _layer_norm(tf, x + _dense(tf, inner, depth, "outer"), "norm2")


def attention(tf: Any, training: bool, batch: int = 8, length: int = 64, depth: int = 256, heads: int = 8) -> Callable[[], Any]:
    x = tf.placeholder(tf.float32, [batch, length, depth])
    y = _attention_block(tf, x, heads)
    feeds = {x: _data(batch, length, depth)}
    if not training:
        sess = _session(tf)
        return lambda: sess.run(y, feeds)
    loss = tf.reduce_mean(tf.square(y - _data(batch, length, depth, seed=1)))
    train = tf.train.AdamOptimizer(1e-3).minimize(loss)
    sess = _session(tf)
    return lambda: sess.run([loss, train], feeds)


# -- embedding ----------------------------------------------------------------------------------------------------------


def embedding(tf: Any, adagrad: bool, rows: int = 100_000, width: int = 64, batch: int = 256) -> Callable[[], Any]:
    """Rows of a big table are looked up, scored by a dense layer, and only those rows are updated."""
    table = tf.get_variable("table", [rows, width], initializer=tf.random_normal_initializer(stddev=0.1, seed=1))
    ids = tf.placeholder(tf.int32, [batch])
    target = tf.placeholder(tf.float32, [batch, 1])
    score = tf.matmul(tf.nn.embedding_lookup(table, ids), _weights(tf, "score", width, 1))
    loss = tf.reduce_mean(tf.square(score - target))
    optimizer = tf.train.AdagradOptimizer(0.1) if adagrad else tf.train.GradientDescentOptimizer(0.1)
    train = optimizer.minimize(loss)
    sess = _session(tf)
    feeds = {ids: np.random.RandomState(0).randint(0, rows, batch).astype(np.int32), target: _data(batch, 1)}
    return lambda: sess.run([loss, train], feeds)
