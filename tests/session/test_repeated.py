"""Feeds whose placeholders leave sizes open: executors for the shapes that come again and again."""

import time

import numpy as np
import pytest

import penstock as tf
from penstock.session import repeated


def watched(sess):
    """What watches the feeds of the session's only signature that has some."""
    return next(p.repeated for p in sess._runtime._prepared.values() if p.signature.feeds)


def forms(sess, count=1):
    """The executors for repeated shapes, when `count` of them are there."""
    deadline = time.monotonic() + 90
    while True:
        found = {key: form for key, form in watched(sess).forms.items() if form is not None}
        if len(found) >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.01)


def trained(x, y):
    w = tf.get_variable("w", initializer=np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))
    b = tf.get_variable("b", initializer=np.zeros(3, np.float32))
    h = tf.tanh(tf.matmul(x, w) + b)
    gate = tf.sigmoid(h * h - x[:, :3])
    loss = tf.reduce_mean(tf.square(gate * h + (1.0 - gate) * y))
    return loss, tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def batches(size, count, seed=0):
    rng = np.random.RandomState(seed)
    return [(rng.randn(size, 4).astype(np.float32), rng.randn(size, 3).astype(np.float32)) for _ in range(count)]


def losses(data, monkeypatch, wish):
    monkeypatch.setenv("PENSTOCK_SHAPES", wish)
    with tf.Graph().as_default(), tf.Session() as sess:
        x, y = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.float32, [None, 3])
        loss, train = trained(x, y)
        sess.run(tf.global_variables_initializer())
        return [sess.run([loss, train], {x: a, y: b})[0] for a, b in data], watched(sess)


def test_training_goes_on_with_the_same_variables(monkeypatch):
    data = [*batches(7, 6), *batches(5, 2), *batches(7, 3), *batches(1, 2)]
    expected, nothing = losses(data, monkeypatch, "0")
    got, found = losses(data, monkeypatch, "eager")
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert nothing is None and set(found.forms) == {((n, 4), (n, 3)) for n in (7, 5, 1)}


def test_they_are_compiled_beside_the_steps_when_shapes_are_repeated(monkeypatch):
    monkeypatch.setattr(repeated, "STEPS", 4)
    with tf.Graph().as_default(), tf.Session() as sess:
        x, y = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.float32, [None, 3])
        loss, train = trained(x, y)
        sess.run(tf.global_variables_initializer())
        for a, b in [*batches(7, 3), *batches(6, 3)]:
            sess.run([loss, train], {x: a, y: b})
        assert not watched(sess).forms
        for a, b in batches(7, 1):
            sess.run([loss, train], {x: a, y: b})
        ((key, form),) = forms(sess).items()
        assert key == ((7, 4), (7, 3))
        nodes = [op.type for part in form.partitions.values() for op in part]
        assert "BroadcastGradientArgs" not in nodes and "Shape" not in nodes
        before = form.executors[0].compiler.program
        assert before is not None  # no step runs node by node again
        assert np.isfinite(sess.run(loss, {x: np.ones((7, 4)), y: np.ones((7, 3))}))


def test_shapes_that_never_come_again_are_not_counted_for_ever(monkeypatch):
    monkeypatch.setattr(repeated, "MOST_COUNTED", 5)
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [None])
        y = tf.reduce_sum(x * 2.0)
        for n in range(12):
            assert sess.run(y, {x: np.ones(n)}) == 2.0 * n
        assert watched(sess).counts is None and not watched(sess).forms


def test_only_some_shapes_get_executors(monkeypatch):
    monkeypatch.setenv("PENSTOCK_SHAPES", "eager")
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, None)
        y = tf.square(x) + tf.cast(tf.size(x), tf.float32)
        for shape in ((), (2,), (2, 3), (1, 1, 4), (5,), (6,), (2, 3)):
            value = np.full(shape, 3.0, np.float32)
            np.testing.assert_array_equal(sess.run(y, {x: value}), np.square(value) + value.size)
        assert len(watched(sess).forms) == repeated.MOST_FORMS


def test_tensors_that_are_no_placeholders(monkeypatch):
    monkeypatch.setenv("PENSTOCK_SHAPES", "eager")
    with tf.Graph().as_default(), tf.Session() as sess:
        c = tf.constant([1.0, 2.0])
        y = tf.reduce_sum(tf.reshape(c * 3.0, [-1, 1]), 0)
        assert sess.run(y, {c: [1.0, 5.0]}) == [18.0]
        assert sess.run(y) == [9.0]


def test_errors_are_those_of_any_shape(monkeypatch):
    x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
    z = tf.add(x, y, name="z")
    for wish in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_SHAPES", wish)
        with tf.Session() as sess:
            for _ in range(3):
                with pytest.raises(tf.errors.InvalidArgumentError, match=r"Incompatible shapes: \[3\] vs\. \[2\]") as caught:
                    sess.run(z, {x: np.ones(3), y: np.ones(2)})
                assert caught.value.op.name == "z"


def test_a_branch_that_does_not_fit_is_not_taken(monkeypatch):
    monkeypatch.setenv("PENSTOCK_SHAPES", "eager")
    x = tf.placeholder(tf.float32, [None])
    y = tf.cond(tf.equal(tf.size(x), 4), lambda: tf.reduce_sum(x * tf.constant([1.0, 2.0, 3.0, 4.0])), lambda: tf.reduce_sum(x))
    with tf.Session() as sess:
        assert sess.run(y, {x: np.ones(4)}) == 10.0
        assert sess.run(y, {x: np.ones(3)}) == 3.0


def test_random_numbers_go_on(monkeypatch):
    def draws(wish):
        monkeypatch.setenv("PENSTOCK_SHAPES", wish)
        with tf.Graph().as_default(), tf.Session() as sess:
            tf.set_random_seed(5)
            x = tf.placeholder(tf.float32, [None, 2])
            y = x + tf.random_uniform(tf.shape(x))
            return [sess.run(y, {x: np.zeros((n, 2))}) for n in (3, 3, 2, 3, 2)]

    for a, b in zip(draws("0"), draws("eager"), strict=True):
        np.testing.assert_array_equal(a, b)


def test_deterministic_sessions_and_switched_off_code_stay_as_they_are(monkeypatch):
    x = tf.placeholder(tf.float32, [None])
    for name, value in (("TF_DETERMINISTIC_OPS", "1"), ("PENSTOCK_REGIONS", "0"), ("PENSTOCK_SHAPES", "0")):
        with monkeypatch.context() as m, tf.Session() as sess:
            m.setenv(name, value)
            sess.run(x * 2.0, {x: [1.0]})
            assert watched(sess) is None


def test_a_wrong_claim_about_a_shape_does_not_fail_later(monkeypatch):
    monkeypatch.setenv("PENSTOCK_SHAPES", "eager")
    x = tf.placeholder(tf.float32, [None, None])
    y = x * 2.0
    y.set_shape([3, 5])
    flat = tf.reshape(y, [-1]) * 2.0
    with tf.Session() as sess:
        for _ in range(2):
            np.testing.assert_array_equal(sess.run(flat, {x: np.ones((3, 4))}), np.full(12, 4.0))
