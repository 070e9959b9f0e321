"""Kernels side by side that are one call without the interpreter's lock."""

import ctypes
import sys
import threading

import numpy as np
import pytest

import penstock as tf
from penstock import errors
from penstock.engines.onednn import chains, crowd
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.chains import Chain, _Call, _Values
from penstock.engines.onednn.tables import Tables, Value, values_in
from penstock.ops import native
from penstock.ops.native import calls
from penstock.runtime.executor.chooser import Chooser

pytestmark = pytest.mark.skipif(lib.get() is None or not native.available(), reason="needs oneDNN and AVX-512")

BATCH, FEATURES, WIDTH, CLASSES = 40, 24, 48, 10


def table_of(*rows):
    return np.array([[*row[:-1], *[0] * (calls.WORDS - len(row)), row[-1]] for row in rows], np.int64)


def run(*rows):
    table = table_of(*rows)
    return calls.walk()(table.ctypes.data, len(table))


# -- machine code -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (7, 16), (256, 10), (100, 129), (3, 1000)])
def test_rows_are_added_as_numpy_adds_them(shape):
    x = np.random.RandomState(0).randn(*shape).astype(np.float32)
    x[:, 0] = -0.0  # the sum begins with 0
    y = np.full(shape[1] + 1, 7, np.float32)
    assert run((calls.sum_of_rows(), x.ctypes.data, y.ctypes.data, *shape, calls.ALWAYS_WORKS)) == 0
    np.testing.assert_array_equal(y[:-1].view(np.uint32), (np.add.reduce(x, 0) + np.float32(0)).view(np.uint32))
    assert y[-1] == 7


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_labels_take_one_from_their_column(dtype):
    random = np.random.RandomState(1)
    x, gradient = random.randn(2, 9, 5).astype(np.float32)
    largest, loss = random.randn(2, 9).astype(np.float32)
    labels = random.randint(0, 5, 9).astype(dtype)
    at = np.arange(9), labels
    expected, expected_loss = gradient.copy(), loss - (x[at] - largest)
    expected[at] -= 1
    words = np.array([9, 5, *(a.ctypes.data for a in (labels, gradient, x, largest, loss))], np.int64)
    row = (calls.less_label(labels.itemsize), words.ctypes.data, calls.FAILS)
    assert run(row) == 0
    np.testing.assert_array_equal(gradient, expected)
    np.testing.assert_array_equal(loss, expected_loss)
    for bad in (-1, 5):
        labels[3] = bad
        assert run(row) == 1


def test_a_walk_ends_where_something_fails():
    x, y = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    labels = np.full(2, 9)
    words = np.array([2, 3, *(a.ctypes.data for a in (labels, y.copy(), x, x, x))], np.int64)
    first, second = ((calls.sum_of_rows(), x.ctypes.data, row.ctypes.data, 2, 3, calls.ALWAYS_WORKS) for row in y)
    assert run(first, (calls.less_label(8), words.ctypes.data, calls.FAILS), second) == 1
    np.testing.assert_array_equal(y, [[2, 2, 2], [0, 0, 0]])


# -- places -------------------------------------------------------------------------------------------------------------


def test_what_is_needed_at_the_same_time_lies_apart():
    """Each value's bytes are its own from the call that makes it to the last that reads it."""
    random = np.random.RandomState(2)
    for _ in range(50):
        count = 20
        sizes = random.randint(1, 1000, count).tolist()
        chain = Chain([], [(n,) for n in sizes], [np.dtype(np.uint8)] * count, 2, [count - 1])
        order = [_Call(None, [*map(Value, random.choice(i, 2)), Value(i)]) for i in range(2, count)]
        offsets, end = _Values(chain).laid_out(order, [0, 1, count - 1])
        assert set(offsets) == set(range(2, count - 1))
        owner = np.full(end, -1)
        last = {a.number: i for i, call in enumerate(order) for a in call.arguments}
        for i, call in enumerate(order):
            *read, made = [a.number for a in call.arguments]
            for n in read:
                assert n not in offsets or (owner[offsets[n] : offsets[n] + sizes[n]] == n).all()
            if made in offsets:
                place = owner[offsets[made] : offsets[made] + sizes[made]]
                assert all(n == -1 or last[n] < i for n in place.tolist())
                place[:] = made


def test_tables_inside_of_tables_are_told_where_arrays_lie():
    tables = Tables({3: 4096}, [0, 7])
    inner = [Value(7), 11]
    outer = tables.array([5, Value(0, 16), Value(3, 8), inner, Value(0)])
    assert [*values_in([1, Value(2), [3, [Value(4)]]])] == [Value(2), Value(4)]
    for first, second in ((1 << 20, 1 << 30), (1 << 21, 1 << 30), (64, 128)):
        tables.move([first, second])
        assert [*outer][:3] == [5, first + 16, 4096 + 8] and outer[4] == first
        assert [*(ctypes.c_int64 * 2).from_address(outer[3])] == [second, 11]


# -- programs -----------------------------------------------------------------------------------------------------------


def network(batch=BATCH, label_type=tf.int32):
    """Logits, loss, and the placeholders."""
    random = np.random.RandomState(3)
    x, labels = tf.placeholder(tf.float32, [batch, FEATURES]), tf.placeholder(label_type, [batch])
    h: tf.Tensor = x
    for i, (n, m) in enumerate(((FEATURES, WIDTH), (WIDTH, WIDTH), (WIDTH, CLASSES))):
        w = tf.get_variable(f"w{i}", initializer=(random.randn(n, m) / np.sqrt(n)).astype(np.float32))
        b = tf.get_variable(f"b{i}", initializer=random.randn(m).astype(np.float32))
        h = tf.matmul(h, w) + b
        if i < 2:
            h = tf.nn.relu(h)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=h))
    return h, loss, x, labels


def data(seed, batch=BATCH):
    random = np.random.RandomState(seed)
    return random.randn(batch, FEATURES).astype(np.float32), random.randint(0, CLASSES, batch)


@pytest.mark.parametrize("label_type", [tf.int32, tf.int64])
@pytest.mark.parametrize("optimizer", [lambda: tf.train.GradientDescentOptimizer(0.1), lambda: tf.train.AdamOptimizer(0.01)])
def test_a_training_step_is_one_chain(monkeypatch, chained, optimizer, label_type):
    found = []
    for engines in (None, "numpy"):
        if engines is not None:
            monkeypatch.setenv("PENSTOCK_ENGINES", engines)
        with tf.Graph().as_default(), tf.Session() as sess:
            _, loss, x, labels = network(label_type=label_type)
            train = optimizer().minimize(loss)
            sess.run(tf.global_variables_initializer())
            feeds = [dict(zip((x, labels), data(seed))) for seed in range(5)]
            if engines is None:
                assert sess.explain(train, feeds[0]).code.count("if (made := chain") == 1
            losses = [sess.run([loss, train], feed)[0] for feed in feeds]
            for feed in feeds:
                sess.run(train, feed)
            found.append([losses, *sess.run(tf.global_variables())])
    assert chained == [True] * 10
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_wrong_label_is_the_node_s_own_error(chained):
    with tf.Session() as sess:
        _, loss, x, labels = network()
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        sess.run(tf.global_variables_initializer())
        before = sess.run(tf.global_variables())
        values, classes = data(0)
        classes[7] = CLASSES
        with pytest.raises(errors.InvalidArgumentError, match=f"label value of {CLASSES} which is outside") as caught:
            sess.run(train, {x: values, labels: classes})
        assert caught.value.op.type == "SparseSoftmaxCrossEntropyWithLogits"
        assert chained == [False]
        for a, b in zip(before, sess.run(tf.global_variables()), strict=True):
            np.testing.assert_array_equal(a, b)
        classes[7] = 0
        sess.run(train, {x: values, labels: classes})
        assert chained == [False, True]


def test_a_variable_without_a_value_is_reported(chained):
    with tf.Session() as sess:
        _, loss, x, labels = network()
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        with pytest.raises(errors.FailedPreconditionError, match="w0"):
            sess.run(train, dict(zip((x, labels), data(0))))


@pytest.mark.parametrize("limit", [0, 1])
def test_steps_side_by_side(monkeypatch, chained, limit):
    """Every client gets the results for its own values."""
    monkeypatch.setattr(crowd, "limit", limit)
    with tf.Session() as sess:
        logits, loss, x, labels = network()
        gradient = tf.gradients(loss, [x])[0]
        sess.run(tf.global_variables_initializer())
        feeds = [dict(zip((x, labels), data(seed))) for seed in range(4)]
        alone = [sess.run([logits, gradient], feed) for feed in feeds]
        wrong = []

        def client(i):
            for _ in range(100):
                for a, b in zip(sess.run([logits, gradient], feeds[i]), alone[i], strict=True):
                    if not np.allclose(a, b, rtol=1e-4, atol=1e-6):
                        wrong.append(i)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(len(feeds))]
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        finally:
            sys.setswitchinterval(before)
        assert not wrong
        assert len(chained) == 404 and all(chained)


def test_results_are_the_callers_own(chained):
    """The next step writes to other arrays."""
    with tf.Session() as sess:
        logits, loss, x, labels = network()
        gradient = tf.gradients(loss, [x])[0]
        sess.run(tf.global_variables_initializer())
        first = sess.run([logits, gradient], dict(zip((x, labels), data(0))))
        kept = [a.copy() for a in first]
        sess.run([logits, gradient], dict(zip((x, labels), data(1))))
        for a, b in zip(first, kept, strict=True):
            np.testing.assert_array_equal(a, b)


def test_values_that_lie_otherwise_are_copied(chained):
    with tf.Session() as sess:
        logits, _, x, _ = network()
        sess.run(tf.global_variables_initializer())
        values = data(0)[0]
        expected = sess.run(logits, {x: values})
        across = np.asfortranarray(values)
        np.testing.assert_array_equal(sess.run(logits, {x: across}), expected)
        assert chained == [True, True]


def test_without_the_library_there_is_no_chain(monkeypatch, chained):
    """As in a forked process."""
    with tf.Session() as sess:
        logits, _, x, _ = network()
        sess.run(tf.global_variables_initializer())
        values = data(0)[0]
        expected = sess.run(logits, {x: values})
        monkeypatch.setattr(chains.lib, "get", lambda: None)
        np.testing.assert_allclose(sess.run(logits, {x: values}), expected, rtol=1e-4, atol=1e-6)
        assert chained == [True, False]


def test_no_chain_where_bits_matter(monkeypatch, chained):
    monkeypatch.setenv("TF_DETERMINISTIC_OPS", "1")
    with tf.Session() as sess:
        logits, _, x, _ = network()
        sess.run(tf.global_variables_initializer())
        sess.run(logits, {x: data(0)[0]})
        assert chained == []


def test_what_is_large_is_no_chain(monkeypatch, chained):
    """A chain's memory stays between steps, and nothing is written over in it."""
    monkeypatch.setattr(chains, "MOST_BYTES", 1 << 12)
    with tf.Session() as sess:
        logits, _, x, _ = network()
        sess.run(tf.global_variables_initializer())
        sess.run(logits, {x: data(0)[0]})
        assert chained == []


# -- convolutions -------------------------------------------------------------------------------------------------------


def frozen_layers(x):
    """Layers of constants: 1 x 1, depthwise, 3 x 3 with a sum behind it."""
    random = np.random.RandomState(5)

    def constant(*shape):
        return tf.constant(random.randn(*shape).astype(np.float32) * 0.3)

    short = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, constant(1, 1, 32, 48), 1, "SAME"), constant(48)))
    y = tf.nn.relu(tf.nn.bias_add(tf.nn.depthwise_conv2d(short, constant(3, 3, 48, 1), [1, 1, 1, 1], "SAME"), constant(48)))
    return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(y, constant(3, 3, 48, 48), 1, "SAME"), constant(48)) + short)


@pytest.mark.parametrize("batch", [1, 3])
def test_layers_of_a_frozen_network_are_one_call(monkeypatch, batch):
    from penstock.engines.onednn import winograd
    from penstock.engines.python import chains as finder

    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    monkeypatch.setattr(Chooser, "on_pool", lambda self: False)
    monkeypatch.setattr(winograd, "WORTH_IT", 100.0)  # whatever its size
    monkeypatch.setattr(winograd, "STRIP_BYTES", 256 << 10)  # several pieces
    done = []
    monkeypatch.setattr(chains._Plan, "run", lambda self, at, run=chains._Plan.run: done.append(run(self, at)) or done[-1])
    data = np.random.RandomState(6).randn(batch, 26, 26, 32).astype(np.float32)
    spoilt = data.copy()
    spoilt[0, 5, 7, 2] = np.inf
    results = []
    for has_chains in (True, False):
        if not has_chains:
            for kind in chains.CONVOLUTIONS:
                monkeypatch.delitem(finder._TESTS, kind)
        with tf.Graph().as_default(), tf.Session() as sess:
            x = tf.placeholder(tf.float32, data.shape)
            y = frozen_layers(x)
            results.append([sess.run(y, {x: given}) for given in (*[data] * 20, *[spoilt] * 3, data)])
        if has_chains:
            assert done[-5:] == [True, False, False, False, True]  # what is not finite is computed by the definition
            done.clear()
    assert done == []
    for mine, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(mine, expected)


def frozen_network(x):
    """Branches and pools, joined; the mean over positions, a dense layer, a softmax."""
    random = np.random.RandomState(7)

    def constant(*shape):
        return tf.constant(random.randn(*shape).astype(np.float32) * 0.05)

    def layer(x, depth, window):
        return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, constant(window, window, int(x.shape[-1]), depth), 1, "SAME"), constant(depth)))

    y = tf.nn.max_pool(layer(x, 48, 3), 3, 2, "SAME")
    pooled = tf.nn.avg_pool(y, 3, 1, "SAME")
    y = tf.concat([layer(y, 32, 1), layer(layer(y, 24, 1), 48, 3), layer(pooled, 16, 1), tf.nn.max_pool(y, 3, 1, "SAME")], 3)
    y = tf.reduce_mean(y, [1, 2], keepdims=False)
    return tf.nn.softmax(tf.nn.bias_add(tf.matmul(y, constant(144, 100)), constant(100)))


@pytest.mark.parametrize("batch", [1, 3])
def test_a_frozen_network_is_one_call(monkeypatch, batch):
    from penstock.engines.python import chains as finder

    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    monkeypatch.setattr(Chooser, "on_pool", lambda self: False)
    made, done = [], []
    monkeypatch.setattr(finder, "_chained", lambda nodes, *more, inner=finder._chained: made.append(len(nodes)) or inner(nodes, *more))
    monkeypatch.setattr(chains._Plan, "run", lambda self, at, run=chains._Plan.run: done.append(run(self, at)) or done[-1])
    data = np.random.RandomState(6).randn(batch, 26, 26, 32).astype(np.float32)
    results = []
    for has_chains in (True, False):
        if not has_chains:
            monkeypatch.setattr(finder, "ENOUGH", 10_000)
        with tf.Graph().as_default(), tf.Session() as sess:
            x = tf.placeholder(tf.float32, data.shape)
            y = frozen_network(x)
            results.append([sess.run(y, {x: data}) for _ in range(4)])
    assert made == [12] and done == [True] * 4
    for mine, expected in zip(*results, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=2e-6, atol=0)


@pytest.mark.parametrize("axes", [[1, 2], [-2, 1], 1, [0, 1, 2]])
@pytest.mark.parametrize("keepdims", [False, True])
def test_means_of_positions(monkeypatch, axes, keepdims):
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    monkeypatch.setattr(Chooser, "on_pool", lambda self: False)
    data = np.random.RandomState(6).randn(3, 12, 9, 40).astype(np.float32)
    data[1, 3, 2, 5], data[2, 0, 0, 0] = np.nan, -np.inf
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, data.shape)
        y = x
        for i in range(2):
            filter = np.eye(40, dtype=np.float32)[None, None] * (i + 1)
            y = tf.nn.bias_add(tf.nn.conv2d(y, tf.constant(filter), 1, "SAME"), np.zeros(40, np.float32))
        mean = tf.reduce_mean(y, axes, keepdims=keepdims)
        got = sess.run([mean, y], {x: data})
    expected = got[1].mean(tuple(np.atleast_1d(axes)), keepdims=keepdims)
    np.testing.assert_allclose(got[0], expected, rtol=1e-5)


def test_a_maximum_whose_gradient_is_asked_for_is_no_link(monkeypatch, chained):
    """Its kernel notes where the maxima were."""
    from penstock.engines.onednn import pool

    again = []
    monkeypatch.setattr(pool.MaxTraining, "__init__", lambda self, *args, inner=pool.MaxTraining.__init__: again.append(1) or inner(self, *args))
    seen = []
    monkeypatch.setattr(pool._Kept, "put", lambda self, *args, inner=pool._Kept.put: seen.append(1) or inner(self, *args))
    data = np.random.RandomState(6).randn(4, 18, 18, 32).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, data.shape)
        h = tf.reshape(tf.nn.max_pool(x, 2, 2, "SAME"), [4, 9 * 9 * 32])
        weights = [tf.get_variable(f"w{i}", s, initializer=tf.constant_initializer(0.01)) for i, s in enumerate([(2592, 64), (64, 64)])]
        for w in weights:
            h = tf.nn.relu(tf.matmul(h, w))
        gradient = tf.gradients(h, [x, *weights])
        sess.run(tf.global_variables_initializer())
        for _ in range(30):
            sess.run(gradient, {x: data})
    assert again and len(seen) >= 25
