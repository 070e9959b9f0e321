"""TensorArrays in generated code and in XLA's programs: the same values as from the executor, and the same complaints."""

import numpy as np
import pytest

import penstock as tf
from penstock import errors

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)
WAYS = (("0", "0"), ("eager", "0"), ("eager", "eager"))


@pytest.fixture
def calls(monkeypatch):
    """The programs that ran, one after another."""
    seen = []
    try:
        import jax  # noqa: F401

        from penstock.engines.xla.hot import HotProgram, HotStateProgram
    except ImportError:
        return seen
    for cls, name in ((HotProgram, "_through_xla"), (HotStateProgram, "_run")):
        real = getattr(cls, name)
        monkeypatch.setattr(cls, name, lambda self, *args, real=real: seen.append(self) or real(self, *args))
    return seen


def sessions(monkeypatch, build):
    """(session, fetches, feeds) by the executor, by generated Python and by XLA."""
    for regions, xla in WAYS:
        monkeypatch.setenv("PENSTOCK_REGIONS", regions)
        monkeypatch.setenv("PENSTOCK_XLA", xla)
        with tf.Graph().as_default():
            fetches, feeds = build()
            with tf.Session() as sess:
                sess.run(tf.global_variables_initializer())
                yield sess, fetches, feeds


def agree(monkeypatch, build, steps=3):
    plain, *others = ([sess.run(fetches, feeds) for _ in range(steps)] for sess, fetches, feeds in sessions(monkeypatch, build))
    for other in others:
        for a, b in zip(tf.nest.flatten(plain), tf.nest.flatten(other), strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    return plain


def is_whole(calls, steps=3):
    """Whether every step from the second on was one program."""
    return not xla_is_there() or (steps - 1 <= len(calls) <= steps and len(set(map(id, calls))) == 1)


def xla_is_there():
    try:
        import jax  # noqa: F401
    except ImportError:
        return False
    return True


def complains(monkeypatch, build, message):
    """All ways say the same, step after step."""
    for sess, fetches, feeds in sessions(monkeypatch, build):
        for _ in range(3):
            with pytest.raises(errors.InvalidArgumentError, match=message):
                sess.run(fetches, feeds)


# -- loops that are whole programs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 6])
@pytest.mark.parametrize("make", ["scan", "reverse", "map_fn", "foldl", "foldr"])
def test_functions_over_rows_and_their_gradients(monkeypatch, calls, make, rows):
    def build():
        x = tf.placeholder(tf.float32, [rows, 4])
        w = tf.get_variable("w", initializer=np.ones(4, np.float32))

        def one(total, v):
            return tf.tanh(total * 0.9 + v * w)

        zeros = tf.zeros([4])
        y = {
            "scan": lambda: tf.scan(one, x, initializer=zeros),
            "reverse": lambda: tf.scan(one, x, initializer=zeros, reverse=True),
            "map_fn": lambda: tf.map_fn(lambda v: one(v, v), x),
            "foldl": lambda: tf.foldl(one, x, initializer=zeros),
            "foldr": lambda: tf.foldr(one, x, initializer=zeros),
        }[make]()
        return [y, *tf.gradients(tf.reduce_sum(tf.square(y)), [x, w])], {x: X[:rows]}

    agree(monkeypatch, build)
    assert is_whole(calls)


@pytest.mark.parametrize("lengths", [None, [3, 6, 1], [2, 2, 2]])
def test_dynamic_rnn_trains(monkeypatch, calls, lengths):
    def build():
        x = tf.placeholder(tf.float32, [3, 6, 4])
        sizes = None if lengths is None else tf.placeholder(tf.int32, [3])
        cell = tf.nn.rnn_cell.BasicLSTMCell(5)
        outputs, state = tf.nn.dynamic_rnn(cell, x, sequence_length=sizes, dtype=tf.float32)
        loss = tf.reduce_sum(tf.square(outputs)) + tf.reduce_sum(state.c)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        start = [tf.assign(v, np.linspace(-0.5, 0.5, int(np.prod(v.shape)), dtype=np.float32).reshape(v.shape)) for v in tf.trainable_variables()]
        feeds: dict = {x: np.linspace(-1, 1, 72, dtype=np.float32).reshape(3, 6, 4)}
        if sizes is not None:
            feeds[sizes] = lengths
        return ([loss, outputs, train], start), feeds

    results = []
    for sess, (fetches, start), feeds in sessions(monkeypatch, build):
        sess.run(start)
        results.append([sess.run(fetches, feeds)[:2] for _ in range(4)])
    for other in results[1:]:
        for a, b in zip(tf.nest.flatten(results[0]), tf.nest.flatten(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    if xla_is_there():
        assert 3 <= len([p for p in calls if len(p._names) > 50])


def test_rounds_that_data_decide(monkeypatch, calls):
    """How often the loop runs is fed, so that states of slots are part of the program."""

    def build():
        n = tf.placeholder(tf.int32, [])
        x = tf.placeholder(tf.float32, [6, 4])
        rows = tf.TensorArray(tf.float32, 6).unstack(x)
        kept = tf.TensorArray(tf.float32, 6, element_shape=[4])

        def body(i, v, kept):
            v = v * 0.5 + rows.read(i)
            return i + 1, v, kept.write(i, v)

        _, last, kept = tf.while_loop(lambda i, *_: i < n, body, [0, tf.zeros([4]), kept])
        return [last, kept.stack(), tf.gradients(last, x)[0]], {n: 4, x: X}

    agree(monkeypatch, build)
    assert is_whole(calls)


def test_too_many_rounds_are_the_hosts(monkeypatch, calls):
    """A program whose loop runs on behind the end of an array gives up, with all variables as they were, and the host reports it."""

    def build():
        n = tf.placeholder(tf.int32, [])
        w = tf.get_variable("w", initializer=np.ones(4, np.float32))
        kept = tf.TensorArray(tf.float32, 3, element_shape=[4], tensor_array_name="kept")

        def body(i, v, kept):
            v = v * w
            return i + 1, v, kept.write(i, v)

        _, last, kept = tf.while_loop(lambda i, *_: i < n, body, [0, tf.ones([4]), kept])
        train = tf.assign_add(w, last + tf.reduce_sum(kept.stack(), 0))
        return (train, w, n), {}

    for sess, (train, w, n), _ in sessions(monkeypatch, build):
        sess.run(train, {n: 2})
        before = sess.run(train, {n: 2})
        for _ in range(2):
            with pytest.raises(errors.InvalidArgumentError, match="Tried to write to index 3 but array is not resizeable and size is: 3"):
                sess.run(train, {n: 5})
            np.testing.assert_array_equal(sess.run(w), before)
        assert np.isfinite(sess.run(train, {n: 2})).all()


def test_an_array_that_grows(monkeypatch, calls):
    def build():
        x = tf.placeholder(tf.float32, [4])
        kept = tf.TensorArray(tf.float32, 0, dynamic_size=True, clear_after_read=False)

        def body(i, v, kept):
            return i + 1, tf.tanh(v) * 2.0, kept.write(2 * i, v)

        kept = tf.while_loop(lambda i, *_: i < 5, body, [0, x, kept])[2]
        return [kept.gather([0, 2, 8]), kept.size(), kept.read(4)], {x: X[0]}

    agree(monkeypatch, build)
    assert is_whole(calls)


def test_concat_and_split(monkeypatch, calls):
    def build():
        x = tf.placeholder(tf.float32, [6, 4])
        parts = tf.TensorArray(tf.float32, 3, infer_shape=False, element_shape=[2, 4]).split(x, [2, 2, 2])
        new = tf.TensorArray(tf.float32, 3, element_shape=[2, 4])
        new = tf.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, t.write(2 - i, tf.exp(parts.read(i)))), [0, new])[1]
        y = new.concat()
        return [y, *tf.gradients(y, x)], {x: X}

    agree(monkeypatch, build)
    assert is_whole(calls)


def test_loops_in_loops(monkeypatch, calls):
    """The inner loop fills an array of its own, and one that both loops know."""

    def build():
        x = tf.placeholder(tf.float32, [3, 4])

        def outer(v):
            return tf.scan(lambda a, b: a * 0.5 + b, v * 2.0, initializer=tf.constant(0.0))

        every = tf.TensorArray(tf.float32, 6, element_shape=[4])

        def body(i, v, every):
            inner = tf.while_loop(lambda j, *_: j < 2, lambda j, t: (j + 1, t.write(2 * i + j, v)), [0, every])
            return i + 1, v + 1.0, inner[1]

        every = tf.while_loop(lambda i, *_: i < 3, body, [0, x[0], every])[2]
        return [tf.map_fn(outer, x), every.stack()], {x: X[:3]}

    agree(monkeypatch, build)


def test_other_types(monkeypatch, calls):
    def build():
        x = tf.placeholder(tf.int64, [5])
        y = tf.map_fn(lambda v: (v * 3, tf.cast(v, tf.float64) / 2.0), x, dtype=(tf.int64, tf.float64))
        words = tf.map_fn(tf.as_string, x, dtype=tf.string)
        return [*y, words], {x: np.arange(5)}

    for sess, fetches, feeds in sessions(monkeypatch, build):
        for _ in range(3):
            a, b, words = sess.run(fetches, feeds)
            assert a.tolist() == [0, 3, 6, 9, 12] and b.tolist() == [0, 0.5, 1, 1.5, 2] and words.tolist() == [b"0", b"1", b"2", b"3", b"4"]


def test_an_array_in_a_branch(monkeypatch, calls):
    def build():
        x = tf.placeholder(tf.float32, [4])
        kept = tf.TensorArray(tf.float32, 4, element_shape=[])

        def body(i, kept):
            return i + 1, tf.cond(x[i] > 0, lambda: kept.write(i, x[i]), lambda: kept.write(i, -2.0 * x[i]))

        return [tf.while_loop(lambda i, _: i < 4, body, [0, kept])[1].stack()], {x: np.array([1, -1, 2, -3], np.float32)}

    (found,), *_ = agree(monkeypatch, build)
    assert found.tolist() == [1, 2, 2, 6]


# -- what is wrong ----------------------------------------------------------------------------------------------------------


def looped(where, rounds=3, size=3, **options):
    """A loop that writes in each round at `where(i)`."""

    def build():
        x = tf.placeholder(tf.float32, [4])
        kept = tf.TensorArray(tf.float32, size, **options)
        kept = tf.while_loop(lambda i, *_: i < rounds, lambda i, t: (i + 1, t.write(where(i), x * 2.0)), [0, kept])[1]
        return [kept.stack()], {x: X[0]}

    return build


@pytest.mark.parametrize(
    "build, message",
    [
        (looped(lambda i: i, rounds=4), "Tried to write to index 3 but array is not resizeable and size is: 3"),
        (looped(lambda i: i - 1), "Tried to write to index -1 but"),
        (looped(lambda i: i // 2), "Could not write to TensorArray index 0 because it has already been written to"),
        (looped(lambda i: i, rounds=2, infer_shape=False), "Could not read from TensorArray index 2.  Furthermore, the element shape is not fully defined"),
        (looped(lambda i: i, element_shape=None, rounds=2, infer_shape=False, dynamic_size=True), "Could not read from TensorArray index 2"),
    ],
)
def test_wrong_writes(monkeypatch, build, message):
    complains(monkeypatch, build, message)


def test_reading_twice(monkeypatch):
    def build():
        x = tf.placeholder(tf.float32, [3, 4])
        rows = tf.TensorArray(tf.float32, 3).unstack(x)
        return [tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v + rows.read(i // 2)), [0, tf.zeros([4])])[1]], {x: X[:3]}

    complains(monkeypatch, build, "Could not read index 0 twice because it was cleared after a previous read")


def test_reading_behind_the_end(monkeypatch):
    def build():
        x = tf.placeholder(tf.float32, [3, 4])
        n = tf.placeholder(tf.int32, [])
        rows = tf.TensorArray(tf.float32, 3).unstack(x)
        return [tf.while_loop(lambda i, _: i < n, lambda i, v: (i + 1, v + rows.read(i)), [0, tf.zeros([4])])[1]], {x: X[:3], n: 5}

    complains(monkeypatch, build, "Tried to read from index 3 but array size is: 3")


def test_writing_what_was_read(monkeypatch):
    def build():
        x = tf.placeholder(tf.float32, [4])
        kept = tf.TensorArray(tf.float32, 2, clear_after_read=False).write(0, x)
        with tf.control_dependencies([kept.read(0)]):
            return [kept.write(0, x).read(0)], {x: X[0]}

    complains(monkeypatch, build, "Could not write to TensorArray index 0 because it has already been read")


def test_values_of_several_shapes(monkeypatch):
    def build():
        x = tf.placeholder(tf.float32, [None])
        kept = tf.TensorArray(tf.float32, 2, infer_shape=False).write(0, x).write(1, x[1:])
        return [kept.stack()], {x: X[0]}

    complains(monkeypatch, build, "TensorArray has inconsistent shapes.  Index 0 has shape: .4. but index 1 has shape: .3.")


def test_the_story_names_the_node_and_the_round(monkeypatch):
    for sess, fetches, feeds in sessions(monkeypatch, looped(lambda i: i, rounds=4)):
        with pytest.raises(errors.InvalidArgumentError) as found:
            sess.run(fetches, feeds)
        assert found.value.op.type == "TensorArrayWriteV3"


# -- generated code ---------------------------------------------------------------------------------------------------------


def code_of(build, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    with tf.Graph().as_default():
        fetches, feeds = build()
        with tf.Session() as sess:
            sess.run(fetches, feeds)
            return sess.explain(fetches, feeds).code


def test_lines_of_an_array_that_nobody_else_knows(monkeypatch):
    code = code_of(looped(lambda i: i), monkeypatch)
    assert ".write(" in code and "(ctx" not in code.replace("region(ctx", "")


def test_a_handle_that_goes_elsewhere(monkeypatch):
    """An array that some other node knows, here the one that closes it, keeps its handle."""

    def build():
        x = tf.placeholder(tf.float32, [4])
        kept = tf.TensorArray(tf.float32, 1).write(0, x * 2.0)
        value = kept.read(0)
        with tf.control_dependencies([value]):
            close = kept.close()
        with tf.control_dependencies([close]):
            return [tf.identity(value)], {x: X[0]}

    assert "(ctx, " in code_of(build, monkeypatch).replace("region(ctx", "")
    agree(monkeypatch, build)


def test_shapes_that_turn_out_to_be_known(monkeypatch):
    """The gradient of a concat asks for shapes of what a stack kept; what was pushed tells them."""

    def build():
        x = tf.placeholder(tf.float32, [6, 4])
        w = tf.constant(np.ones((8, 4), np.float32))
        y = tf.scan(lambda h, v: tf.tanh(tf.matmul(tf.concat([v, h], 1), w)), tf.reshape(x, [6, 1, 4]), initializer=tf.zeros([1, 4]))
        return [*tf.gradients(y, x)], {x: X}

    code = code_of(build, monkeypatch)
    assert "= ConcatOffset" not in code and "= ShapeN" not in code
    agree(monkeypatch, build)
