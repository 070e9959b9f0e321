"""Workloads: `setup(tf)` builds a graph and returns a function that does one unit of work. The source is the same for both packages."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import arrays, sequences

WORKLOADS: dict[str, Callable[[Any], Callable[[], Any]]] = {}
ONCE: dict[str, Callable[[Any], float]] = {}
BARS: dict[str, float] = {}
"""How many times faster than TensorFlow each workload shall be; 1.0 where nothing is said."""
GROUPS: dict[str, str] = {}
"""The part of the table that a workload belongs to."""


def workload(name: str, bar: float = 1.0, group: str = "More") -> Callable[[Callable], Callable]:
    """Registers a repeated workload: `setup(tf) -> step()`. `bar` is the ratio to TensorFlow that it shall reach."""

    def add(setup: Callable[[Any], Callable[[], Any]]) -> Callable:
        WORKLOADS[name], BARS[name], GROUPS[name] = setup, bar, group
        return setup

    return add


def once(name: str, bar: float = 1.0, group: str = "More") -> Callable[[Callable], Callable]:
    """Registers a workload that times itself from a fresh graph: `run(tf) -> seconds`."""

    def add(run: Callable[[Any], float]) -> Callable:
        ONCE[name], BARS[name], GROUPS[name] = run, bar, group
        return run

    return add


@workload("run of one add", bar=15, group="Calls")
def one_add(tf: Any) -> Callable[[], Any]:
    x = tf.placeholder(tf.float32, [])
    y = x + 1.0
    sess = tf.Session()
    return lambda: sess.run(y, {x: 2.0})


@workload("callable of one add", bar=30, group="Calls")
def callable_add(tf: Any) -> Callable[[], Any]:
    x = tf.placeholder(tf.float32, [])
    call = tf.Session().make_callable(x + 1.0, [x])
    value = np.float32(2.0)
    return lambda: call(value)


@workload("100 feeds and 100 fetches", bar=10, group="Calls")
def many_feeds(tf: Any) -> Callable[[], Any]:
    feeds = [tf.placeholder(tf.float32, []) for _ in range(100)]
    fetches = [f + 1.0 for f in feeds]
    sess = tf.Session()
    values = {f: np.float32(i) for i, f in enumerate(feeds)}
    return lambda: sess.run(fetches, values)


@workload("2,000-op scalar chain", bar=3, group="Small ops")
def scalar_chain(tf: Any) -> Callable[[], Any]:
    x = tf.placeholder(tf.float32, [])
    y = x
    for _ in range(1000):
        y = tf.sin(y) + x
    sess = tf.Session()
    return lambda: sess.run(y, {x: 0.5})


@workload("300-op chain on 1,000 floats", bar=1.5, group="Small ops")
def vector_chain(tf: Any) -> Callable[[], Any]:
    x = tf.placeholder(tf.float32, [1000])
    y = x
    for _ in range(100):
        y = tf.tanh(y) * 0.9 + x
    sess = tf.Session()
    data = np.linspace(-1, 1, 1000, dtype=np.float32)
    return lambda: sess.run(y, {x: data})


@workload("3,000-op random DAG of tiny ops", bar=5, group="Small ops")
def tangle(tf: Any) -> Callable[[], Any]:
    rng = np.random.RandomState(0)
    x = tf.placeholder(tf.float32, [4])
    values, low, high = [x, x * 0.5], -1.0 - x, 1.0 + x
    for i in range(3000):
        a, b = (values[max(0, len(values) - 1 - rng.randint(50))] for _ in range(2))
        b = x if rng.randint(8) == 0 else b
        kind = [tf.add, tf.multiply, tf.maximum, tf.subtract][rng.randint(4)]
        values.append(tf.minimum(a, high) if i % 4 == 0 else tf.maximum(a, low) if i % 4 == 2 else kind(a, b))  # none goes beyond 8
    total = tf.add_n([tf.tanh(v) for v in values[-50:]])
    sess = tf.Session()
    data = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    return lambda: sess.run(total, {x: data})


@workload("200 independent 64x64 matmuls", bar=1.2, group="Big ops")
def matmuls(tf: Any) -> Callable[[], Any]:
    x = tf.placeholder(tf.float32, [64, 64])
    rng = np.random.RandomState(0)
    products = [tf.matmul(x, tf.constant(rng.randn(64, 64).astype(np.float32))) for _ in range(200)]
    total = tf.add_n(products)
    sess = tf.Session()
    data = rng.randn(64, 64).astype(np.float32)
    return lambda: sess.run(total, {x: data})


@workload("30 elementwise ops on 1M floats", bar=1.2, group="Big ops")
def elementwise(tf: Any) -> Callable[[], Any]:
    x = tf.placeholder(tf.float32, [1_000_000])
    y = x
    for _ in range(10):
        y = tf.maximum(y * 1.01 + 0.5, x)
    total = tf.reduce_sum(y)
    sess = tf.Session()
    data = np.linspace(0, 1, 1_000_000, dtype=np.float32)
    return lambda: sess.run(total, {x: data})


def _mlp(tf: Any, batch: int, adam: bool) -> Callable[[], Any]:
    rng = np.random.RandomState(0)
    x = tf.placeholder(tf.float32, [None, 256])
    y = tf.placeholder(tf.int32, [None])
    h = x
    for i, units in enumerate((256, 128, 10)):
        w = tf.get_variable(f"w{i}", [int(h.shape[1]), units], initializer=tf.glorot_uniform_initializer(seed=i))
        b = tf.get_variable(f"b{i}", [units], initializer=tf.zeros_initializer())
        h = tf.matmul(h, w) + b
        h = tf.nn.relu(h) if units != 10 else h
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=h))
    optimizer = tf.train.AdamOptimizer(1e-3) if adam else tf.train.GradientDescentOptimizer(0.1)
    train = optimizer.minimize(loss)
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    data, labels = rng.randn(batch, 256).astype(np.float32), rng.randint(0, 10, batch).astype(np.int32)
    return lambda: sess.run([loss, train], {x: data, y: labels})


@workload("MLP training, batch 1, SGD", bar=2, group="Training")
def mlp_1(tf: Any) -> Callable[[], Any]:
    return _mlp(tf, 1, False)


@workload("MLP training, batch 128, Adam", bar=1.15, group="Training")
def mlp_128(tf: Any) -> Callable[[], Any]:
    return _mlp(tf, 128, True)


@workload("while loop of 1,000 iterations", bar=20, group="Loops")
def loop(tf: Any) -> Callable[[], Any]:
    x = tf.placeholder(tf.float32, [])
    _, y = tf.while_loop(lambda i, v: i < 1000, lambda i, v: (i + 1, v * 0.999 + 0.001), [tf.constant(0), x])
    sess = tf.Session()
    return lambda: sess.run(y, {x: 3.0})


@workload("gradient through a 50-step loop", bar=3, group="Loops")
def loop_gradient(tf: Any) -> Callable[[], Any]:
    x = tf.placeholder(tf.float32, [16])
    w = tf.get_variable("w", initializer=np.eye(16, dtype=np.float32) * 0.5)
    _, y = tf.while_loop(lambda i, v: i < 50, lambda i, v: (i + 1, tf.tanh(tf.reduce_sum(w * v, 1))), [tf.constant(0), x])
    grads = tf.gradients(tf.reduce_sum(y), [x, w])
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    data = np.ones(16, np.float32)
    return lambda: sess.run(grads, {x: data})


@workload("four devices, 20 crossings", bar=1.3, group="Runtime")
def devices(tf: Any) -> Callable[[], Any]:
    x = tf.placeholder(tf.float32, [64, 64])
    y = x
    for i in range(20):
        with tf.device(f"/cpu:{i % 4}"):
            y = tf.tanh(y) + 0.1
    sess = tf.Session(config=tf.ConfigProto(device_count={"CPU": 4}))
    data = np.ones((64, 64), np.float32)
    return lambda: sess.run(y, {x: data})


@workload("queue: enqueue and dequeue", bar=2, group="Runtime")
def queue(tf: Any) -> Callable[[], Any]:
    q = tf.FIFOQueue(10, [tf.float32], shapes=[[8]])
    x = tf.placeholder(tf.float32, [8])
    put, get = q.enqueue(x), q.dequeue()
    sess = tf.Session()
    data = np.ones(8, np.float32)

    def step() -> Any:
        sess.run(put, {x: data})
        return sess.run(get)

    return step


@once("build and first run of 2,000 nodes", bar=10, group="Building")
def build_2000(tf: Any) -> float:
    start = time.perf_counter()
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [4])
        y = x
        for i in range(1000):
            y = tf.add(tf.multiply(y, x), x) if i % 2 else tf.maximum(y, tf.tanh(x))
        with tf.Session() as sess:
            sess.run(y, {x: [0.1, 0.2, 0.3, 0.4]})
        return time.perf_counter() - start


@once("import a GraphDef of 10,000 nodes", bar=1.0, group="Building")
def import_10000(tf: Any) -> float:
    data = graph_def_10000()
    graph_def = tf.GraphDef.FromString(data)
    with tf.Graph().as_default():
        start = time.perf_counter()
        tf.import_graph_def(graph_def, name="")
        return time.perf_counter() - start


_cached: list[bytes] = []


def graph_def_10000() -> bytes:
    """A GraphDef of 10,000 nodes, made once by Penstock."""
    if not _cached:
        import penstock as tf

        with tf.Graph().as_default() as graph:
            y = tf.placeholder(tf.float32, [8])
            one = tf.constant(1.0)
            while len(graph) < 10_000:
                y = tf.add(y, one)
            _cached.append(graph.as_graph_def().SerializeToString())
    return _cached[0]


# -- sequences, tables, and further sizes of the MLP: see benchmarks/sequences.py ------------------------------------------


@workload("MLP training, batch 1, Adam", bar=2, group="Training")
def mlp_1_adam(tf: Any) -> Callable[[], Any]:
    return _mlp(tf, 1, True)


@workload("MLP training, batch 128, SGD", bar=1.15, group="Training")
def mlp_128_sgd(tf: Any) -> Callable[[], Any]:
    return _mlp(tf, 128, False)


@workload("LSTM training, 20 steps unrolled", bar=1.5, group="Training")
def lstm(tf: Any) -> Callable[[], Any]:
    return sequences.lstm_training(tf)


@workload("attention block, forward", bar=1.1, group="Training")
def attention_forward(tf: Any) -> Callable[[], Any]:
    return sequences.attention(tf, training=False)


@workload("attention block, training", bar=1.1, group="Training")
def attention_training(tf: Any) -> Callable[[], Any]:
    return sequences.attention(tf, training=True)


@workload("embedding, sparse SGD", bar=1.5, group="Training")
def embedding_sgd(tf: Any) -> Callable[[], Any]:
    return sequences.embedding(tf, adagrad=False)


@workload("embedding, sparse Adagrad", bar=1.5, group="Training")
def embedding_adagrad(tf: Any) -> Callable[[], Any]:
    return sequences.embedding(tf, adagrad=True)


def _register_arrays() -> None:
    rows: dict[str, Callable[[Any], Callable[[], Any]]] = {
        "dynamic_rnn, 20 steps": lambda tf: arrays.dynamic_rnn(tf, training=False),
        "dynamic_rnn training, 20 steps": lambda tf: arrays.dynamic_rnn(tf, training=True),
        "dynamic_rnn training, 50 steps, hidden 64": lambda tf: arrays.dynamic_rnn(tf, training=True, steps=50, hidden=64),
        "dynamic_rnn training, sequence lengths": lambda tf: arrays.dynamic_rnn(tf, training=True, lengths=True),
        "map_fn over 100 rows": arrays.map_fn,
        "gradient of map_fn over 100 rows": lambda tf: arrays.map_fn(tf, gradient=True),
        "scan over 100 rows": arrays.scan,
        "gradient of scan over 100 rows": lambda tf: arrays.scan(tf, gradient=True),
        "foldl over 100 rows": arrays.foldl,
        "while loop, 1,000 TensorArray writes": arrays.writes,
        "greedy decoding, 30 steps": arrays.sampling,
        "cond in a loop of 200": arrays.cond_in_loop,
        "gradient of a cond in a loop of 200": lambda tf: arrays.cond_in_loop(tf, gradient=True),
        "200 conds": arrays.conds,
    }
    for name, setup in rows.items():
        workload(name, group="Loops")(setup)


def _register_models() -> None:
    from benchmarks import models

    workload("CNN forward, batch 32", bar=1.05, group="Convolutions")(models.cnn_forward)
    workload("CNN training, batch 32, SGD", bar=1.1, group="Convolutions")(models.cnn_training)
    workload("CNN training, batch 32, Momentum", bar=1.1, group="Convolutions")(lambda tf: models.cnn_training(tf, momentum=True))
    workload("residual CNN training, batch 32", bar=1.1, group="Convolutions")(models.residual_training)
    for name in models.FROZEN:
        workload(f"{name}, frozen, batch 1", bar=1.2, group="Frozen networks")(models.frozen(name))


_register_arrays()
_register_models()
