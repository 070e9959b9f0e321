"""Memory types: a made-up device with memory of its own, which counts what is copied."""

import numpy as np
import pytest

import penstock as tf
from penstock.graph import spec
from penstock.pipeline.memory import ensure_memory_types, input_memory, output_memory
from penstock.runtime import devices
from penstock.runtime.devices import DeviceType


class Board(DeviceType):
    """Runs every NumPy kernel, in memory of its own."""

    name = "BOARD"
    priority = 10

    def default_count(self):
        return 0

    def has_kernel(self, opdef):
        return opdef.has_kernel("CPU")


@pytest.fixture
def board():
    kind = devices.register_device_type(Board())
    yield kind
    del devices._types["BOARD"]


def run(fetch, feed):
    config = tf.ConfigProto(device_count={"BOARD": 1})
    with tf.Session(config=config) as sess:
        explanation = sess.explain(fetch, list(feed))
        return sess.run(fetch, feed), explanation


def test_arguments_in_host_memory(board):
    x = tf.placeholder(tf.float32, [2, 3])
    op = tf.reshape(x, tf.shape(x)[::-1]).op
    assert input_memory(board, op) == ["device", "host"]
    assert output_memory(board, op) == ["device"]


def test_edges_between_host_and_device_memory_are_split(board):
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    with tf.device("/device:BOARD:0"):
        size = tf.cast(tf.reduce_sum(x * 0.0) + 6.0, tf.int32)  # computed on the board, needed on the host as a shape
        y = tf.reshape(x, tf.stack([size]))
    value, explanation = run(y, {x: np.ones((2, 3), np.float32)})
    assert value.shape == (6,)
    part = next(p for d, p in explanation.partitions.items() if "BOARD" in d)
    kinds = [op.type for op in part]
    assert "_HostRecv" in kinds and "_Send" in kinds
    spec.check_partitioned(explanation.partitions)


def test_loops_with_host_memory(board):
    x = tf.placeholder(tf.float32, [4], name="x")

    def body(i, v):
        with tf.device("/device:BOARD:0"):
            n = tf.cast(tf.reduce_sum(v * 0.0) + 2.0, tf.int32)
            return i + 1, tf.reshape(tf.reshape(v + 1.0, tf.stack([n, 2])), [4])

    with tf.device("/device:BOARD:0"):
        _, out = tf.while_loop(lambda i, v: i < 5, body, [tf.constant(0), x])
    value, _ = run(out, {x: np.zeros(4, np.float32)})
    assert value.tolist() == [5.0] * 4


def test_a_cpu_partition_is_left_alone():
    x = tf.placeholder(tf.float32, [2], name="x")
    with tf.Session() as sess:
        parts = sess.explain(tf.reshape(x, [1, 2]), [x]).partitions
    kinds = {device: DeviceType() for device in parts}
    assert ensure_memory_types(parts, kinds, {}) == parts
