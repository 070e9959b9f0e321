"""Workloads in OpenVINO: the GraphDef that Penstock writes, converted, compiled for latency on the CPU."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import openvino

from benchmarks import models, peers

WORKLOADS: peers.Setups = {}
workload = functools.partial(peers.register, WORKLOADS)


def _compiled(build: Callable[[Any], Any], feeds: list[np.ndarray]) -> Callable[[], Any]:
    """`build(tf)` makes placeholders in the order of `feeds`, and the result."""
    import penstock as tf

    with tf.Graph().as_default() as graph:
        build(tf)
        data = graph.as_graph_def().SerializeToString()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph.pb")
        with open(path, "wb") as file:
            file.write(data)
        model = openvino.convert_model(path)
    request = openvino.compile_model(model, "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    output = request.model_outputs[-1]
    return lambda: request.infer(feeds)[output]


def _frozen(name: str) -> Callable[[], Any]:
    def build(tf: Any) -> Any:
        images = tf.placeholder(tf.float32, [1, models.SIZE, models.SIZE, 3], name="images")
        return tf.identity(models.FROZEN[name](tf, images), name="probabilities")

    return _compiled(build, [models.image()])


for _name in models.FROZEN:
    WORKLOADS[f"{_name}, frozen, batch 1"] = functools.partial(_frozen, _name)


@workload("run of one add")
@workload("callable of one add")
def one_add() -> Callable[[], Any]:
    return _compiled(lambda tf: tf.placeholder(tf.float32, []) + 1.0, [np.array(2.0, np.float32)])


@workload("300-op chain on 1,000 floats")
def vector_chain() -> Callable[[], Any]:
    def build(tf: Any) -> Any:
        x = tf.placeholder(tf.float32, [1000])
        y = x
        for _ in range(100):
            y = tf.tanh(y) * 0.9 + x

    return _compiled(build, [np.linspace(-1, 1, 1000, dtype=np.float32)])


@workload("200 independent 64x64 matmuls")
def matmuls() -> Callable[[], Any]:
    rng = np.random.RandomState(0)

    def build(tf: Any) -> Any:
        x = tf.placeholder(tf.float32, [64, 64])
        return tf.add_n([tf.matmul(x, tf.constant(rng.randn(64, 64).astype(np.float32))) for _ in range(200)])

    return _compiled(build, [rng.randn(64, 64).astype(np.float32)])


@workload("30 elementwise ops on 1M floats")
def elementwise() -> Callable[[], Any]:
    def build(tf: Any) -> Any:
        x = tf.placeholder(tf.float32, [1_000_000])
        y = x
        for _ in range(10):
            y = tf.maximum(y * 1.01 + 0.5, x)
        return tf.reduce_sum(y)

    return _compiled(build, [np.linspace(0, 1, 1_000_000, dtype=np.float32)])


@workload("while loop of 1,000 iterations")
def loop() -> Callable[[], Any]:
    def build(tf: Any) -> Any:
        x = tf.placeholder(tf.float32, [])
        return tf.while_loop(lambda i, v: i < 1000, lambda i, v: (i + 1, v * 0.999 + 0.001), [tf.constant(0), x])[1]

    return _compiled(build, [np.array(3.0, np.float32)])
