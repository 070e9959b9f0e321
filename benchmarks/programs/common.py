"""What the programs share: their registry, data, layers, and the step that a session runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Step = Callable[[], Any]
PROGRAMS: dict[str, Callable[[Any], Step]] = {}
LOOPS: set[str] = set()
"""Programs that are loops or big tangles of tiny ops: without XLA these may be slower than TensorFlow."""


def program(name: str, is_loop: bool = False) -> Callable[[Callable[[Any], Step]], Callable[[Any], Step]]:
    """Registers a program: it builds its graph in the default one and returns a function that does one step."""

    def add(setup: Callable[[Any], Step]) -> Callable[[Any], Step]:
        assert name not in PROGRAMS, name
        PROGRAMS[name] = setup
        if is_loop:
            LOOPS.add(name)
        return setup

    return add


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def uniform(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).rand(*shape).astype(np.float32)


def ints(high: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randint(0, high, shape).astype(np.int32)


def weights(tf: Any, name: str, *shape: int) -> Any:
    scale = float(np.prod(shape[:-1])) ** -0.5
    return tf.get_variable(name, shape, initializer=tf.random_normal_initializer(stddev=scale, seed=1))


def zeros(tf: Any, name: str, *shape: int) -> Any:
    return tf.get_variable(name, shape, initializer=tf.zeros_initializer())


def ones(tf: Any, name: str, *shape: int) -> Any:
    return tf.get_variable(name, shape, initializer=tf.ones_initializer())


def dense(tf: Any, x: Any, units: int, name: str, activation: Callable[[Any], Any] | None = None) -> Any:
    y = tf.matmul(x, weights(tf, f"{name}/kernel", int(x.shape[-1]), units)) + zeros(tf, f"{name}/bias", units)
    return y if activation is None else activation(y)


def conv(tf: Any, x: Any, channels: int, name: str, size: int = 3, stride: int = 1, activation: Callable[[Any], Any] | None = None) -> Any:
    kernel = weights(tf, f"{name}/kernel", size, size, int(x.shape[-1]), channels)
    y = tf.nn.bias_add(tf.nn.conv2d(x, kernel, strides=[1, stride, stride, 1], padding="SAME"), zeros(tf, f"{name}/bias", channels))
    return y if activation is None else activation(y)


def cross_entropy(tf: Any, labels: Any, logits: Any) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def session(tf: Any) -> Any:
    sess = tf.Session()
    sess.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
    return sess


def run(tf: Any, fetches: Any, feeds: dict | None = None) -> Step:
    """A step that fetches the same from the same feeds every time."""
    sess = session(tf)
    return lambda: sess.run(fetches, feeds)


def in_turn(tf: Any, fetches: Any, feeds: list[dict]) -> Step:
    """A step that takes the next feeds every time."""
    sess = session(tf)
    count = 0

    def step() -> Any:
        nonlocal count
        count += 1
        return sess.run(fetches, feeds[(count - 1) % len(feeds)])

    return step


class Gru:
    """A cell for `tf.nn.dynamic_rnn`, written as ops as `GRUCell` builds it: two gates in one product, then the candidate."""

    def __init__(self, tf: Any, inputs: int, hidden: int, name: str = "gru") -> None:
        self.tf, self.output_size, self.state_size = tf, hidden, hidden
        self.gates = weights(tf, f"{name}/gates", inputs + hidden, 2 * hidden), ones(tf, f"{name}/gates_bias", 2 * hidden)
        self.candidate = weights(tf, f"{name}/candidate", inputs + hidden, hidden), zeros(tf, f"{name}/candidate_bias", hidden)

    def zero_state(self, batch: Any, dtype: Any) -> Any:
        return self.tf.zeros([batch, self.state_size], dtype)

    def __call__(self, x: Any, h: Any, scope: Any = None) -> Any:
        tf = self.tf
        both = tf.sigmoid(tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), self.gates[0]), self.gates[1]))
        reset, update = tf.split(both, 2, axis=1)
        new = tf.tanh(tf.nn.bias_add(tf.matmul(tf.concat([x, reset * h], 1), self.candidate[0]), self.candidate[1]))
        h = update * h + (1.0 - update) * new
        return h, h
