"""Random TF1 programs over floats: elementwise chains, reductions, matrices, conds, loops, variables, gradients.

`random_graph(tf, seed)` builds one in the default graph and gives (fetches, feeds, initialiser). Values stay small, so that
results can be compared; the same seed gives the same program.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

SHAPES = [(), (3,), (2, 3), (2, 1), (40,)]


class Maker:
    """Grows a pool of tensors by random steps."""

    def __init__(self, tf: Any, rng: random.Random) -> None:
        self.tf = tf
        self.rng = rng
        self.updates: list[Any] = []

    def pick(self, pool: list[Any], shape: Any = None) -> Any:
        chosen = [t for t in pool if shape is None or tuple(t.shape.as_list() if t.shape.ndims is not None else (-1,)) == tuple(shape)]
        return self.rng.choice(chosen or pool)

    def unary(self, x: Any) -> Any:
        tf = self.tf
        return self.rng.choice([
            tf.tanh, tf.sigmoid, tf.nn.relu, tf.square, tf.negative, tf.sin, tf.abs, tf.identity, tf.stop_gradient,
            lambda t: tf.exp(-tf.abs(t)), lambda t: t * 0.5 + 0.25, lambda t: tf.minimum(tf.nn.relu6(t), 3.0),
        ])(x)  # fmt: skip

    def binary(self, x: Any, y: Any) -> Any:
        tf = self.tf
        return self.rng.choice([
            tf.add, tf.subtract, tf.maximum, tf.minimum, lambda a, b: tf.tanh(a) * tf.tanh(b), tf.squared_difference,
            lambda a, b: a / (tf.abs(b) + 1.0), lambda a, b: tf.where(tf.less(a, a + b - b), a, a * 2.0),
            lambda a, b: tf.add_n([a + b * 0.0, b + a * 0.0, a + b]),
        ])(x, y)  # fmt: skip

    def other(self, x: Any) -> Any:
        tf, rng = self.tf, self.rng
        rank = len(x.shape)
        choices = [lambda: tf.reduce_sum(x), lambda: tf.reduce_mean(x), lambda: tf.reduce_max(x), lambda: tf.reshape(x, [-1])]
        if rank:
            choices += [lambda: tf.reduce_sum(x, rng.randrange(rank), keepdims=True), lambda: tf.concat([x, x * 0.5], 0), lambda: x[:1]]
        if rank == 2:
            choices += [lambda: tf.matmul(x, tf.transpose(x)), lambda: tf.transpose(x)]
        return rng.choice(choices)()

    def cond(self, x: Any, pool: list[Any]) -> Any:
        tf, rng = self.tf, self.rng
        test = tf.reduce_sum(self.pick(pool)) > rng.uniform(-1, 1)
        deeper = rng.random() < 0.3

        def yes() -> Any:
            inner = self.unary(x)
            return self.cond(inner, [inner, *pool]) if deeper else inner + 0.0

        return tf.cond(test, yes, lambda: self.binary(x, self.pick([p for p in pool if p.shape == x.shape] or [x])) + 0.0)

    def loop(self, x: Any, pool: list[Any], depth: int) -> Any:
        tf, rng = self.tf, self.rng
        rounds, kind = rng.randint(0, 5), rng.random()
        outside = self.pick([p for p in pool if p.shape == x.shape] or [x])

        def body(i: Any, v: Any, w: Any) -> Any:
            new = tf.tanh(self.binary(self.unary(v), outside))
            if kind < 0.3:
                new = tf.cond(i % 2 > 0, lambda: new * 0.5, lambda: self.unary(new) + 0.0)
            elif kind < 0.5 and depth:
                new = self.loop(new, [new], depth - 1)
            new = tf.reshape(new, tf.shape(x))
            new.set_shape(x.shape)
            return i + 1, w, new

        start = tf.constant(0)
        return tf.while_loop(lambda i, *_: i < rounds, body, [start, x, x * 0.5], parallel_iterations=rng.choice([1, 10]))[rng.choice([1, 2])]

    def variable(self, x: Any, number: int) -> Any:
        tf, rng = self.tf, self.rng
        v = tf.get_variable(f"v{number}", initializer=np.ones(x.shape.as_list(), np.float32), use_resource=rng.random() < 0.5)
        before = v + x
        with tf.control_dependencies([before]):
            update = rng.choice([tf.assign, tf.assign_add])(v, tf.tanh(x))
        self.updates.append(update)
        with tf.control_dependencies([update]):
            return tf.identity(v) * 0.5 + before * 0.5


def random_graph(tf: Any, seed: int, devices: int = 1) -> tuple[list[Any], dict[Any, Any], Any]:
    """A program; its steps are spread over `devices` CPUs."""
    rng = random.Random(seed)
    numbers = np.random.RandomState(seed)
    maker = Maker(tf, rng)
    feeds = {}
    pool = []
    for shape in rng.sample(SHAPES, 3):
        known = rng.random() < 0.7 or not shape
        value = numbers.uniform(-1, 1, shape).astype(np.float32)
        x = tf.placeholder(tf.float32, shape if known else [None, *shape[1:]])
        feeds[x] = value
        pool.append(x)
    sources = list(pool)
    def step(number: int) -> Any:
        kind = rng.random()
        x = maker.pick(pool)
        known = x.shape.is_fully_defined()
        if kind < 0.3:
            y = maker.unary(x)
        elif kind < 0.6:
            # Sizes that are not known while building may differ.
            fits = [p for p in pool if p.shape.as_list() == [] or (known and p.shape.as_list() == x.shape.as_list())]
            y = maker.binary(x, maker.pick([*fits, x]))
        elif kind < 0.72:
            y = maker.other(x)
        elif kind < 0.84 and known:
            y = maker.cond(x, pool)
        elif kind < 0.94 and known:
            y = maker.loop(x, pool, 1)
        elif known:
            y = maker.variable(x, number)
        else:
            y = x * 1.5
        return y

    for number in range(rng.randint(4, 16)):
        with tf.device(f"/cpu:{rng.randrange(devices)}"):
            y = step(number)
        pool.append(y)
    fetches = rng.sample(pool[3:], min(4, len(pool) - 3))
    if rng.random() < 0.5:
        fetches += [g for g in tf.gradients(tf.reduce_sum(tf.tanh(pool[-1])), sources) if g is not None]
    return fetches + maker.updates, feeds, tf.global_variables_initializer()
