"""One program for many sizes: results are those of the plain run, whatever the size, and no number beyond it gets into them."""

import numpy as np
import pytest

import penstock as tf
from penstock import errors

pytest.importorskip("jax")

from penstock.engines.xla import varying
from penstock.engines.xla.hot import HotProgram, HotStateProgram

SIZES = (5, 7, 6, 8, 3, 13)
RNG = np.random.RandomState(7)


@pytest.fixture
def forms(monkeypatch):
    """The forms that ran, one after another."""
    monkeypatch.setattr(varying, "DISTINCT", 2)
    seen = []
    through, run = HotProgram._through_xla, HotStateProgram._run
    monkeypatch.setattr(HotProgram, "_through_xla", lambda self, form, *args: seen.append(form) or through(self, form, *args))
    monkeypatch.setattr(HotStateProgram, "_run", lambda self, plan, *args: seen.append(plan.form) or run(self, plan, *args))
    return seen


def runs(monkeypatch, xla, build, feeds):
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager" if xla == "eager" else "0")
    monkeypatch.setenv("PENSTOCK_XLA", xla)
    monkeypatch.setenv("PENSTOCK_SHAPES", "0")
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        fetches, places = build()
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            return [sess.run(fetches, dict(zip(places, values))) for values in feeds]


def agree(monkeypatch, forms, build, feeds):
    """Both ways agree, and all steps from the second on were computed for many sizes."""
    plain = runs(monkeypatch, "0", build, feeds)
    other = runs(monkeypatch, "eager", build, feeds)
    for a, b in zip(tf.nest.flatten(plain), tf.nest.flatten(other), strict=True):
        if a is None:  # of an operation
            continue
        assert np.shape(a) == np.shape(b) and np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
    assert {form.padding.rooms for form in forms if form.padding is not None} >= {(8,)}
    return plain


def rows(n, *more):
    return RNG.uniform(0.2, 1.5, (n, *more)).astype(np.float32)


BIAS = np.linspace(-1, 1, 6, dtype=np.float32)
WEIGHTS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)

OF_ROWS = {
    "elementwise": lambda x, y: tf.tanh(x * y + 0.5) / tf.sqrt(tf.exp(-x) + BIAS**2) - tf.maximum(x, y),
    "a log of what does not count": lambda x, y: tf.log(x) + 1 / y + tf.reduce_max(tf.log(x)),
    "columns": lambda x, y: x * tf.reduce_sum(y, 1, keepdims=True) + tf.reduce_mean(x, [-1])[:, None],
    "sums over all": lambda x, y: tf.stack([tf.reduce_sum(x), tf.reduce_mean(y), tf.reduce_max(-x), tf.reduce_min(x)]),
    "sums over rows": lambda x, y: tf.reduce_sum(tf.exp(x), 0) + tf.reduce_mean(y, 0, keepdims=True) + tf.reduce_max(x - 3, 0) - tf.reduce_min(y, 0),
    "softmax": lambda x, y: tf.nn.softmax(x) * tf.nn.log_softmax(y),
    "products": lambda x, y: tf.nn.relu(tf.matmul(x, WEIGHTS) + 0.1) @ tf.ones([4, 2]),
    "products of rows": lambda x, y: tf.matmul(tf.log(x), y, transpose_a=True),
    "products over rows": lambda x, y: tf.matmul(tf.transpose(x), y) + tf.matmul(x, tf.exp(y), transpose_a=True),
    "transposed": lambda x, y: tf.transpose(tf.transpose(x) * 2, [1, 0]) + y,
    "reshaped": lambda x, y: tf.reshape(tf.reshape(x, [-1, 2, 3]) * 2, [-1, 6]) + tf.reshape(tf.reshape(y, [-1]) + 1, tf.shape(x)),
    "joined and cut": lambda x, y: tf.concat([x[:, 2:], tf.split(y, 2, 1)[0], x], 1)[:, 1:-1],
    "stacked": lambda x, y: tf.reduce_sum(tf.stack([x, y, x * y], 1), 2),
    "expanded": lambda x, y: tf.squeeze(tf.expand_dims(x, 1) * tf.expand_dims(y, 1), 1),
    "chosen": lambda x, y: tf.where(x > y, x, tf.zeros_like(y)) + tf.where(tf.reduce_sum(x, 1) > 5, x, y),
    "filled": lambda x, y: tf.fill([tf.shape(x)[0], 6], 2.0) * x + tf.ones_like(y) + tf.zeros([tf.shape(x)[0], 1]),
    "counted": lambda x, y: x * tf.cast(tf.shape(x)[0], tf.float32) / tf.cast(tf.size(y), tf.float32),
    "numbered": lambda x, y: x * tf.cast(tf.range(tf.shape(x)[0]), tf.float32)[:, None],
    "one row": lambda x, y: x[0] + x[2] * y[-1] + x[-2],
    "cross entropies": lambda x, y: tf.nn.softmax_cross_entropy_with_logits(labels=tf.nn.softmax(y), logits=x),
    "classes": lambda x, y: tf.one_hot(tf.argmax(x, 1), 6) * y,
    "a mean of squares": lambda x, y: tf.reduce_mean(tf.square(x @ WEIGHTS - y @ WEIGHTS)),
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_rows_that_count(monkeypatch, forms, name):
    def build():
        x, y = (tf.placeholder(tf.float32, [None, 6]) for _ in range(2))
        found = OF_ROWS[name](x, y)
        again = tf.gradients(tf.reduce_sum(found * found), [x, y])
        return [found, *(g for g in again if g is not None)], (x, y)

    agree(monkeypatch, forms, build, [(rows(n, 6), rows(n, 6)) for n in SIZES])


def test_what_has_no_form_for_many_sizes(monkeypatch, forms):
    """Sums over numbers that do not count, and a part of one axis that is as long as another one."""

    def build():
        x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None, 20])
        part = tf.slice(y * 2 + 1, [0, 0], [-1, tf.shape(y)[0]])
        return [tf.nn.softmax(x * 2) + 1, tf.nn.log_softmax(x * 3) * 2, part, tf.reduce_sum(part * part, 1)], (x, y)

    feeds = [(rows(n), rows(n, 20)) for n in SIZES]
    plain, other = (runs(monkeypatch, xla, build, feeds) for xla in ("0", "eager"))
    for a, b in zip(tf.nest.flatten(plain), tf.nest.flatten(other), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_a_training_step(monkeypatch, forms):
    def build():
        x, y = tf.placeholder(tf.float32, [None, 6]), tf.placeholder(tf.int32, [None])
        w = tf.get_variable("w", initializer=WEIGHTS)
        b = tf.get_variable("b", initializer=np.zeros(4, np.float32))
        logits = tf.nn.bias_add(tf.matmul(tf.tanh(x), w), b)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        step = tf.train.AdamOptimizer(0.1).minimize(loss)
        return [loss, logits, step], (x, y)

    agree(monkeypatch, forms, build, [(rows(n, 6), RNG.randint(0, 4, n).astype(np.int32)) for n in SIZES])


def test_a_label_out_of_range_is_still_reported(monkeypatch, forms):
    def build():
        x, y = tf.placeholder(tf.float32, [None, 6]), tf.placeholder(tf.int32, [None])
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=tf.tanh(x) * 2, name="loss"), (x, y)

    feeds = [(rows(n, 6), np.zeros(n, np.int32)) for n in SIZES]
    agree(monkeypatch, forms, build, feeds)
    with pytest.raises(errors.InvalidArgumentError, match="valid range"):
        runs(monkeypatch, "eager", build, [*feeds, (rows(6, 6), np.full(6, 9, np.int32))])


def gated(x, h, w):
    z = tf.sigmoid(tf.matmul(tf.concat([x, h], 1), w))
    return z * h + (1 - z) * tf.tanh(x)


@pytest.mark.parametrize("trains", [False, True])
def test_a_loop_over_rows(monkeypatch, forms, trains):
    def build():
        x = tf.placeholder(tf.float32, [None, 3, 4])
        w = tf.get_variable("w", initializer=np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4))
        _, h = tf.while_loop(lambda t, h: t < tf.shape(x)[0], lambda t, h: (t + 1, gated(x[t], h, w)), [0, tf.zeros([3, 4])])
        loss = tf.reduce_sum(tf.square(h))
        return [h, tf.train.GradientDescentOptimizer(0.05).minimize(loss) if trains else tf.gradients(loss, [w, x])], (x,)

    agree(monkeypatch, forms, build, [(rows(n, 3, 4),) for n in SIZES])


@pytest.mark.parametrize("lengths", [False, True])
def test_sequences(monkeypatch, forms, lengths):
    def build():
        x, n = tf.placeholder(tf.float32, [3, None, 4]), tf.placeholder(tf.int32, [3])
        cell = tf.nn.rnn_cell.GRUCell(5, kernel_initializer=tf.constant_initializer(0.1))
        outputs, state = tf.nn.dynamic_rnn(cell, x, n if lengths else None, dtype=tf.float32)
        loss = tf.reduce_sum(tf.square(state)) + tf.reduce_mean(tf.square(outputs)) + tf.cast(tf.reduce_max(n), tf.float32)
        return [outputs, state, loss, tf.train.GradientDescentOptimizer(0.05).minimize(loss)], (x, n)

    agree(monkeypatch, forms, build, [(rows(3, t, 4), RNG.randint(1, t + 1, 3).astype(np.int32)) for t in SIZES])


def test_an_index_beyond_the_size_is_reported(monkeypatch, forms):
    """The room has such a row, the array has not."""

    def build():
        x, i = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.int32, [])
        return tf.tanh(x[i * 1] * 2), (x, i)

    feeds = [(rows(n, 4), np.int32(2)) for n in SIZES]
    agree(monkeypatch, forms, build, feeds)
    with pytest.raises(errors.InvalidArgumentError, match="slice index 6 of dimension 0 out of bounds"):
        runs(monkeypatch, "eager", build, [*feeds, (rows(6, 4), np.int32(6))])


def test_sizes_that_stop_being_equal(monkeypatch, forms):
    def build():
        x, y = (tf.placeholder(tf.float32, [None, 6]) for _ in range(2))
        return [tf.reduce_sum(x * 2, 0) + tf.reduce_sum(y, 0), tf.tanh(y)], (x, y)

    agree(monkeypatch, forms, build, [*((rows(n, 6), rows(n, 6)) for n in SIZES), (rows(4, 6), rows(6, 6)), (rows(7, 6), rows(7, 6))])


def test_what_is_broadcast_at_size_one_is_not_of_many_sizes(monkeypatch, forms):
    def build():
        x, y = (tf.placeholder(tf.float32, [None, 6]) for _ in range(2))
        return x + y * 2, (x, y)

    plain = agree(monkeypatch, forms, build, [*((rows(n, 6), rows(n, 6)) for n in SIZES), (rows(1, 6), rows(4, 6)), (rows(1, 6), rows(1, 6))])
    assert plain[-2].shape == (4, 6)


def test_what_mixes_rows_keeps_programs_of_its_own(monkeypatch, forms):
    """A running sum, a reversal, a part of the rows: no program for many sizes has them, and results are as ever."""

    def build():
        x = tf.placeholder(tf.float32, [None, 6])
        return [tf.cumsum(x) * 2, tf.reverse(x, [0]) + 1, x[1:] * 3, tf.concat([x, x], 0) - 1, tf.tile(x, [2, 1]) + 2], (x,)

    feeds = [(rows(n, 6),) for n in SIZES]
    for a, b in zip(tf.nest.flatten(runs(monkeypatch, "0", build, feeds)), tf.nest.flatten(runs(monkeypatch, "eager", build, feeds)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert not any(form.padding for form in forms)
