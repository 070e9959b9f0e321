"""Steps that fail when a certain feed gets a certain value: the same error must come, of the same node, whichever way the step runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .maker import Maker, Trouble, Variable


def _around(m: Maker, build: Callable[[], Any]) -> Any:
    """The failing node as it is, in a branch, or in a round of a loop."""
    tf = m.tf
    way = m.rng.choice(["plain", "plain", "cond", "loop"])
    if way == "plain":
        return build()
    x = tf.cast(tf.reduce_sum(tf.cast(m.number().tensor, "float32")), "float32") if m.number() is not None else tf.constant(1.0)  # type: ignore[union-attr]
    if way == "cond":
        always = tf.logical_or(x > 0, tf.logical_not(x > 0))
        return tf.cond(always, lambda: tf.cast(tf.reduce_sum(tf.cast(build(), "float32")), "float32"), lambda: x)
    return tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, tf.tanh(v) + tf.cast(tf.reduce_sum(tf.cast(build(), "float32")), "float32")), [tf.constant(0), x])[1]


def error(m: Maker) -> None:
    """One of the ways to fail."""
    tf = m.tf
    if m.inside:
        raise ValueError("only at the top")
    found = m.number()
    if found is None:
        raise ValueError("nothing to break")
    x = found.tensor

    def trouble(good: Any, bad: Any, dtype: str, shape: Any, build: Callable[[Any], Any]) -> None:
        p = m.feed([np.asarray(good, dtype if dtype != "string" else object)], shape, dtype)
        y = _around(m, lambda: build(p))
        m.add(y)
        m.troubles.append(Trouble(y, p, np.asarray(bad, dtype if dtype != "string" else object)))

    ints = m.fit(x, "int32", (3,))
    floats = m.fit(x, "float32", (2, 3))
    m.rng.choice([
        lambda: trouble(3, 0, "int32", [], lambda p: m.rng.choice([tf.floordiv, tf.floormod, tf.truncatediv])(ints, p)),
        lambda: trouble(1, 9, "int32", [], lambda p: tf.gather(floats, p)),
        lambda: trouble([0, 1], [1, 2], "int32", [2], lambda p: tf.gather(floats, p)),
        lambda: trouble([3, 2], [4, 2], "int32", [2], lambda p: tf.reshape(floats, p)),
        lambda: trouble(np.ones((3, 2)), np.ones((4, 2)), "float32", [None, None], lambda p: tf.matmul(floats, p)),
        lambda: trouble(np.ones((2, 3)), np.ones((2, 4)), "float32", None, lambda p: floats + p),
        lambda: trouble(np.ones((2, 3)), np.ones((2, 4)), "float32", None, lambda p: tf.concat([floats, p], 0)),
        lambda: trouble(1.0, -1.0, "float32", [], lambda p: tf.check_numerics(tf.log(p) + floats, "not a number")),
        lambda: trouble(True, False, "bool", [], lambda p: _asserted(tf, p, floats)),
        lambda: trouble(b"1.5", b"one", "string", [], lambda p: tf.string_to_number(p) + floats),
        lambda: trouble(1, 5, "int32", [], lambda p: tf.slice(floats, [0, 0], tf.stack([p, 2]))),
        lambda: trouble(np.eye(2), np.zeros((2, 2)), "float32", [2, 2], lambda p: tf.matrix_inverse(p)),
        lambda: trouble([[0, 0]], [[5, 0]], "int64", [1, 2], lambda p: tf.sparse_to_dense(p, [2, 3], 1.0)),
        lambda: trouble([0, 1], [0, 7], "int32", [2], lambda p: tf.unsorted_segment_sum(floats, p, 2)),
        lambda: trouble(2, -1, "int32", [], lambda p: tf.fill([p], 1.0)),
        lambda: trouble(np.ones(2), np.ones(3), "float32", [None], lambda p: tf.nn.bias_add(tf.transpose(floats), p)),
        lambda: trouble([1, 0], [0, 0], "int32", [2], lambda p: tf.transpose(floats, p)),
    ])()  # fmt: skip


def _asserted(tf: Any, p: Any, x: Any) -> Any:
    with tf.control_dependencies([tf.Assert(p, [x, "is not as it should be"])]):
        return tf.identity(x)


def uninitialised(m: Maker) -> None:
    """A variable that nobody initialised, read behind something else."""
    tf = m.tf
    if m.inside:
        raise ValueError("only at the top")
    v = Variable(m, np.ones(3, np.float32), m.chance(0.5), initialised=False)
    found = m.number()
    x = m.fit(found.tensor, "float32", (3,)) if found is not None else tf.ones([3])
    y = x * 2.0 + v.read(tf)
    # The feed does not matter: it never works.
    p = m.feed([np.float32(0)], [], "float32")
    m.troubles.append(Trouble(y + p, p, np.float32(0)))
