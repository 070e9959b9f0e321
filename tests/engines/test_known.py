"""What generated code knows before it runs: shapes in loops and conds, and what is computed of them."""

import numpy as np
import pytest

import penstock as tf

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def agree(monkeypatch, build):
    """Generated code gives what node by node gives."""
    results = []
    for setting in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_REGIONS", setting)
        monkeypatch.setenv("PENSTOCK_XLA", "0")
        with tf.Graph().as_default(), tf.Session() as sess:
            fetches, feeds = build()
            results.append([sess.run(fetches, feeds) for _ in range(2)])
    monkeypatch.undo()
    plain, generated = map(tf.nest.flatten, results)
    for a, b in zip(plain, generated, strict=True):
        np.testing.assert_array_equal(a, b)


def code_of(build, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    with tf.Graph().as_default(), tf.Session() as sess:
        fetches, feeds = build()
        code = sess.explain(fetches, feeds).code
    monkeypatch.undo()
    return code


def lines_of(code, *types):
    return [line for line in code.splitlines() if line.endswith(tuple(f"= {t}" for t in types))]


def test_a_loop_whose_gradient_broadcasts(monkeypatch):
    """Shapes that the loop would push, and its gradient would pop, are constants; the axes that are summed over too."""

    def build():
        x, b = tf.placeholder(tf.float32, [4, 3]), tf.constant(X[0])
        _, h = tf.while_loop(lambda i, h: i < 5, lambda i, h: (i + 1, tf.tanh(h * b + 0.1)), [0, x])
        return [*tf.gradients(tf.reduce_sum(h * h), [x, b])], {x: X}

    code = code_of(build, monkeypatch)
    assert not lines_of(code, "Shape", "BroadcastGradientArgs")
    assert len(lines_of(code, "Sum")) == 1  # over the rows, for the gradient of b
    agree(monkeypatch, build)


def test_a_loop_in_which_something_grows(monkeypatch):
    """What is known of the growing value is sure all the same, and so is what is taken from it."""

    def build():
        x = tf.placeholder(tf.float32, [4])

        def body(i, best, kept):
            best = best * 0.5 + kept[:, -1]
            return i + 1, best, tf.concat([kept, tf.expand_dims(best, 1)], 1)

        shapes = [tf.TensorShape([]), tf.TensorShape([4]), tf.TensorShape([4, None])]
        _, best, kept = tf.while_loop(lambda i, *_: i < 3, body, [0, x, tf.expand_dims(x, 1)], shape_invariants=shapes)
        return [best, kept], {x: X[:, 0]}

    expanded = lines_of(code_of(build, monkeypatch), "ExpandDims")
    assert expanded and all(".reshape(" in line for line in expanded)
    agree(monkeypatch, build)


def test_behind_a_cond(monkeypatch):
    """What both sides of a cond give has a sure shape if both of them have."""

    def build():
        x, p = tf.placeholder(tf.float32, [4, 3]), tf.placeholder(tf.bool, [])
        y = tf.cond(p, lambda: tf.exp(x), lambda: x * 2.0)
        z = tf.squared_difference(y, tf.reduce_mean(y, 0, keep_dims=True))
        return [*tf.gradients(tf.reduce_mean(z), x), z], {x: X, p: True}

    assert not lines_of(code_of(build, monkeypatch), "Shape", "Prod", "FloorDiv")
    agree(monkeypatch, build)


def test_sides_of_different_shapes(monkeypatch):
    def build(side):
        x, p = tf.placeholder(tf.float32, [4, 3]), tf.placeholder(tf.bool, [])
        y = tf.cond(p, lambda: tf.exp(x), lambda: x[:2] * 2.0)
        return [tf.shape(y), tf.reduce_mean(tf.gradients(y * y, x)[0])], {x: X, p: side}

    for side in (True, False):
        agree(monkeypatch, lambda side=side: build(side))


def test_values_that_only_tell_their_shape_are_not_kept(monkeypatch):
    def build():
        x, w = tf.placeholder(tf.float32, [5, 4, 3]), tf.constant(np.ones((5, 2), np.float32))
        y = tf.scan(lambda h, v: tf.sin(tf.matmul(tf.concat([v, h], 1), w)), x, initializer=tf.zeros([4, 2]))
        return [*tf.gradients(y, [x, w])], {x: np.ones((5, 4, 3), np.float32)}

    code = code_of(build, monkeypatch)
    pushed = lines_of(code, "StackPushV2")
    assert pushed and not any("ShapeN" in line for line in pushed)
    agree(monkeypatch, build)


def test_a_wrong_computation_of_shapes_is_still_reported(monkeypatch):
    """5 // 0 is not computed beforehand."""
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    x, n = tf.placeholder(tf.float32, [4, 3]), tf.placeholder(tf.int32, [])
    _, out = tf.while_loop(lambda i, _: i < n, lambda i, s: (i + 1, s + tf.shape(tf.tanh(x))[0] // (tf.rank(x) - 2)), [0, 0])
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match="ivision by zero"):
        sess.run(out, {x: X, n: 2})
    with tf.Session() as sess:
        assert sess.run(out, {x: X, n: 0}) == 0
