"""Indices that a program computes itself, and random numbers that its loops draw: as the kernels have it, errors and streams included."""

import numpy as np
import pytest

import penstock as tf
from penstock import errors

pytest.importorskip("jax")

from penstock.engines.xla import lower
from penstock.engines.xla.hot import HotProgram, HotStateProgram

TABLE = np.arange(5, dtype=np.float32) + 1


@pytest.fixture
def names(monkeypatch):
    """The names of the nodes that ran through XLA."""
    seen = set()
    for cls, name in ((HotProgram, "_through_xla"), (HotStateProgram, "_run")):
        real = getattr(cls, name)
        monkeypatch.setattr(cls, name, lambda self, *args, real=real: seen.update(self._names) or real(self, *args))
    return seen


def results(monkeypatch, xla, build, feeds):
    """Of each step, or its error; and the variables behind the last one."""
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager" if xla == "eager" else "0")
    monkeypatch.setenv("PENSTOCK_XLA", xla)
    found = []
    with tf.Graph().as_default():
        tf.set_random_seed(3)
        fetches, places = build()
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            for values in feeds:
                try:
                    found.append(sess.run(fetches, dict(zip(places, values))))
                except errors.InvalidArgumentError as error:
                    found.append((error.op.name, error.message))
            found.append(sess.run(tf.global_variables()))
    return found


def agree(monkeypatch, build, feeds):
    plain, other = (results(monkeypatch, xla, build, feeds) for xla in ("0", "eager"))
    for a, b in zip(tf.nest.flatten(plain), tf.nest.flatten(other), strict=True):
        if isinstance(a, str):
            assert a == b
        elif a is not None:
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    return plain


def in_a_loop(table, i):
    return tf.while_loop(lambda t, s: t < 3, lambda t, s: (t + 1, s + tf.gather(table, t * i)), [0, 0.0])[1]


def in_a_branch(table, i):
    return tf.cond(i > -5, lambda: table[i * 2] * 2, lambda: table[0])


def in_the_condition_of_a_loop(table, i):
    return tf.cast(tf.while_loop(lambda t: (t < 2) & (table[t * i + i] > 0), lambda t: t + 1, [0]), tf.float32)


def in_a_loop_that_grows(table, i):
    shapes = [tf.TensorShape([]), tf.TensorShape([None])]
    return tf.reduce_sum(tf.while_loop(lambda t, s: t < 3, lambda t, s: (t + 1, tf.concat([s, tf.gather(table, [t * i])], 0)), [0, table[:1]], shapes)[1])


def outside(table, i):
    return tf.reduce_sum(tf.gather(table, [i * 2, 0]))


def by_vectors(table, i):
    pairs = tf.reshape(tf.concat([table, table], 0), [2, 5])
    return tf.while_loop(lambda t, s: t < 3, lambda t, s: (t + 1, s + tf.gather_nd(pairs, [[1, t * i]])[0]), [0, 0.0])[1]


def scattered(table, i):
    return tf.reduce_sum(table * tf.scatter_nd([[i * 2], [0]], table[:2], [5]))


@pytest.mark.parametrize("where", [in_a_loop, in_a_branch, in_the_condition_of_a_loop, in_a_loop_that_grows, outside, by_vectors, scattered])
@pytest.mark.parametrize("trains", [False, True])
def test_a_wrong_index_is_reported_by_its_node(monkeypatch, names, where, trains):
    """Nothing is written in such a step, and later ones go on."""

    def build():
        i = tf.placeholder(tf.int32, [])
        table = tf.get_variable("table", initializer=TABLE)
        found = where(table * 1.0, i)
        count = tf.get_variable("count", initializer=0.0)
        return [found, count.assign_add(found)] if trains else [found], (i,)

    plain = agree(monkeypatch, build, [(np.int32(n),) for n in (1, 2, 0, 3, 1, 2)])
    assert isinstance(plain[3][1], str) and "6" in plain[3][1] or "5" in plain[3][1]
    assert any("gather" in name.lower() or "strided_slice" in name or "ScatterNd" in name for name in names)


@pytest.mark.parametrize("is_computed", [False, True])
def test_lengths_of_sequences_that_are_reversed(monkeypatch, names, is_computed):
    def build():
        x = tf.get_variable("x", initializer=np.arange(24, dtype=np.float32).reshape(2, 4, 3))
        sizes = tf.placeholder(tf.int32, [2])
        found = tf.reverse_sequence(x * 2.0, sizes + 1 if is_computed else sizes, seq_axis=1)
        return [found, *tf.gradients(found * found, x), x.assign_add(found).op], (sizes,)

    plain = agree(monkeypatch, build, [(np.int32(n) - is_computed,) for n in ([4, 2], [0, 1], [5, 1], [3, 3], [1, -1], [4, 4])])
    assert "seq_lens(0) > input.dims(1)" in plain[2][1] and "seq_lens(1) < 0" in plain[4][1]
    assert "ReverseSequence" in names


def test_vectors_of_indices_are_bounded_in_each_place(monkeypatch, names):
    def build():
        i, j = tf.placeholder(tf.int32, [2]), tf.placeholder(tf.int32, [2])
        table = tf.get_variable("table", initializer=np.arange(6, dtype=np.float32).reshape(2, 3))
        found = tf.gather_nd(table * 2.0, tf.stack([i * 1, j * 1], 1))
        return [found, *tf.gradients(found * found, table)], (i, j)

    good, bad = ([1, 0], [2, 1]), [([2, 0], [0, 0]), ([0, 0], [0, 3]), ([-1, 0], [0, 0])]
    plain = agree(monkeypatch, build, [good, *bad, good])
    assert all("does not index into param" in message for _, message in plain[1:4])
    assert {"GatherNd"} <= names


@pytest.mark.parametrize("divide", [tf.floordiv, tf.floormod])
def test_a_division_by_zero_is_reported_by_its_node(monkeypatch, names, divide):
    def build():
        x, y = tf.placeholder(tf.int32, [3]), tf.placeholder(tf.int32, [])
        body = lambda t, s: (t + 1, s + divide(divide(x, 7), t - y))  # noqa: E731
        return tf.while_loop(lambda t, s: t < 3, body, [0, tf.zeros([3], tf.int32)])[1] * 2, (x, y)

    plain = agree(monkeypatch, build, [([-20, 5, 100], n) for n in (-1, 3, 2, 7)])
    assert "by zero" in plain[2][1]
    assert any("while" in name for name in names)


def test_gradients_of_rows_that_are_computed(monkeypatch, names):
    def build():
        x = tf.placeholder(tf.float32, [4])
        table = tf.get_variable("table", initializer=TABLE)
        rows = tf.gather(table * 2.0, tf.cast(x, tf.int32) * 2)
        return [rows, *tf.gradients(tf.reduce_sum(rows * rows * x), [table, x])], (x,)

    agree(monkeypatch, build, [(np.array([0, 1, 2, 1], np.float32),)] * 3 + [(np.array([0, 1, 3, 1], np.float32),)])
    assert any("UnsortedSegmentSum" in name or "gradients" in name for name in names)


def test_a_row_of_each_round_is_a_scan(monkeypatch, names):
    """The index is known in each round: nothing is doubted."""
    monkeypatch.setattr(lower, "WRITTEN_OUT", 0)

    def build():
        x = tf.placeholder(tf.float32, [30, 4])
        w = tf.get_variable("w", initializer=np.float32(0.5))
        y = tf.while_loop(lambda t, h: t < 30, lambda t, h: (t + 1, tf.tanh(h * w + x[t])), [0, tf.zeros([4])])[1]
        return [y, *tf.gradients(y, [w, x])], (x,)

    agree(monkeypatch, build, [(np.random.RandomState(n).randn(30, 4).astype(np.float32),) for n in range(3)])
    assert "while/strided_slice" in names


def test_a_loop_whose_first_value_depends_on_a_variable_is_code(monkeypatch):
    """An optimiser's gradients wait for each other, also where they leave the loop."""

    def build():
        x = tf.placeholder(tf.float32, [4])
        w = tf.get_variable("w", initializer=TABLE[:4])
        y = tf.while_loop(lambda t, h: t < 3, lambda t, h: (t + 1, tf.tanh(h) * x), [0, w * x])[1]
        return [y, tf.train.GradientDescentOptimizer(0.001).minimize(tf.reduce_sum(y * y))], (x,)

    feeds = [(TABLE[1:],)] * 4
    agree(monkeypatch, build, feeds)
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    with tf.Graph().as_default():
        fetches, (x,) = build()
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            sess.run(fetches, {x: TABLE[1:]})
            prepared = [p for p in sess._runtime._prepared.values() if p.signature.feeds]
            assert prepared[0].executors[0].compiler.program is not None


def augmented(image):
    image = tf.random_crop(image, [3, 3])
    image = tf.cond(tf.random_uniform([]) < 0.5, lambda: image[::-1], lambda: image)
    return image * tf.random_uniform([], 0.5, 1.5) + tf.random_normal([3, 3])


@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_random_numbers_in_a_loop(monkeypatch, names, rounds):
    """The numbers of each round and step are those of the kernels."""

    def build():
        x = tf.placeholder(tf.float32, [rounds, 5, 5])
        return tf.map_fn(augmented, x), (x,)

    agree(monkeypatch, build, [(np.random.RandomState(n).rand(rounds, 5, 5).astype(np.float32),) for n in range(4)])
    assert rounds < 2 or any("RandomUniform" in name for name in names)


def test_a_step_that_fails_draws_its_numbers_once(monkeypatch, names):
    def build():
        i = tf.placeholder(tf.int32, [])
        v = tf.get_variable("v", initializer=TABLE)
        noise = tf.random_uniform([5])
        return [noise, v.assign(v * noise * tf.gather(v * 0.0 + 1.0, i * 2))], (i,)

    agree(monkeypatch, build, [(np.int32(n),) for n in (0, 1, 3, 2, 3, 1)])
    assert any("random_uniform" in name for name in names)


def test_an_array_that_grows_as_data_say(monkeypatch, names):
    """Greedy decoding: each round looks up what the last one chose; up to how many, and with none at all."""

    def build():
        table, limit = tf.get_variable("table", initializer=np.eye(5, dtype=np.float32)[[2, 0, 4, 1, 3]]), tf.placeholder(tf.int32, [])
        found = tf.TensorArray(tf.int32, size=0, dynamic_size=True, element_shape=[2])

        def body(i, token, found):
            token = tf.cast(tf.argmax(tf.gather(table * 2.0, token), 1), tf.int32)
            return i + 1, token, found.write(i, token)

        def goes_on(i, token, found):
            return (i < limit) & (tf.reduce_sum(token) < 100)

        _, last, found = tf.while_loop(goes_on, body, [0, tf.constant([0, 1]), found])
        return [last, found.stack() * 10, found.size()], (limit,)

    agree(monkeypatch, build, [(np.int32(n),) for n in (3, 7, 2, 12)])
    assert any("TensorArrayWrite" in name for name in names)
    plain = agree(monkeypatch, build, [(np.int32(n),) for n in (3, 1, 0, 300, 4)])
    assert [step[2] for step in plain[:-1]] == [3, 1, 0, 300, 4]


@pytest.mark.parametrize("is_last", [True, False])
def test_a_loop_that_grows_beside_one_of_unknown_length(monkeypatch, names, is_last):
    """Its rounds are written out, and only the other one counts its own."""

    def build():
        x, n = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.int32, [])
        shapes = [tf.TensorShape([]), tf.TensorShape([None])]

        def growing(x):
            return tf.reduce_sum(tf.while_loop(lambda t, s: t < 3, lambda t, s: (t + 1, tf.concat([s, x], 0)), [0, x], shapes)[1]) * x

        def counting(x):
            return tf.while_loop(lambda t, s: t < n, lambda t, s: (t + 1, tf.tanh(s) + x), [0, x])[1]

        return [counting(growing(x) * 0.1) if not is_last else growing(counting(x))], (x, n)

    agree(monkeypatch, build, [(TABLE[:2], np.int32(k)) for k in (4, 9, 0)])
    assert any("concat" in name for name in names)
