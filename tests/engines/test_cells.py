"""Cells of recurrent networks and attention that are written out of ops: products, pieces and elementwise nodes as one call."""

import threading

import numpy as np
import pytest

import penstock as tf
from penstock.engines.onednn import library as lib
from penstock.engines.python.moves import arrays_of, moves_of
from penstock.ops import native
from penstock.ops.native import calls

pytestmark = pytest.mark.skipif(lib.get() is None or not native.available(), reason="needs oneDNN and AVX-512")


# -- moves --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("rows", [1, 5])
def test_rows_are_copied_and_nothing_else(rows, words):
    random = np.random.RandomState(0)
    source, target = random.randn(2, rows + 1, 50).astype(np.float32)
    expected = target.copy()
    expected[:rows, 3 : 3 + words] = source[:rows, 7 : 7 + words]
    table = np.array([calls.copy_rows(), target.ctypes.data + 12, 200, source.ctypes.data + 28, 200, rows, words, calls.ALWAYS_WORKS], np.int64)
    assert calls.walk()(table.ctypes.data, 1) == 0
    np.testing.assert_array_equal(target, expected)


class _Node:
    """As the executor has them."""

    def __init__(self, op):
        self.op, self.fn = op, op.op_def.kernel


def moved(tensors):
    """What the moves of the node that made some tensors give; None if it has none."""
    tensors = tensors if isinstance(tensors, list) else [tensors]
    op = tensors[0].op
    with tf.Session() as sess:
        inputs = [np.array(v, order="C") for v in sess.run(list(op.inputs))]
        expected = sess.run(tensors)
    constants = [v if t.op.type == "Const" else None for t, v in zip(op.inputs, inputs)]
    moves = moves_of(_Node(op), [tuple(t.shape.as_list()) for t in (*op.inputs, *op.outputs)], constants)
    if moves is None:
        return None
    arrays = [inputs[list(op.inputs).index(t)] for t in arrays_of(op)]
    results = [np.full(e.shape, np.nan, np.float32) for e in expected]
    rows = [
        (
            calls.copy_rows(), results[m.target].ctypes.data + m.target_offset, m.target_step, arrays[m.source].ctypes.data + m.source_offset, m.source_step,
            m.rows, m.length // 4, calls.ALWAYS_WORKS,
        )
        for m in moves
    ]  # fmt: skip
    table = np.array(rows, np.int64)
    assert calls.walk()(table.ctypes.data, len(table)) == 0
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    return moves


@pytest.mark.parametrize(
    "make",
    [
        lambda x: tf.split(x, 3, 1),
        lambda x: tf.split(x, 2, 0),
        lambda x: tf.split(x, 5, -1),
        lambda x: tf.concat([x, 2 * x], 0),
        lambda x: tf.concat([x, x[:, :1], 3 * x], 1),
        lambda x: tf.concat([x, x], -1),
        lambda x: tf.stack([x, 2 * x, 3 * x], 0),
        lambda x: tf.stack([x, 2 * x], 1),
        lambda x: tf.stack([x, 2 * x], 3),
        lambda x: tf.unstack(x, axis=1),
        lambda x: tf.slice(x, [1, 0, 2], [2, 3, 2]),
        lambda x: tf.slice(x, [1, 1, 0], [2, -1, -1]),
        lambda x: x[:, 2],
        lambda x: x[1, :, 1:4],
        lambda x: x[:, tf.newaxis, 1],
        lambda x: x[2:, ..., 0:5],
        lambda x: tf.reshape(x, [6, -1]),
        lambda x: tf.expand_dims(x, 1),
    ],
)
def test_moves_are_what_the_node_gives(make):
    x = tf.identity(tf.constant(np.random.RandomState(0).randn(4, 3, 5).astype(np.float32)))
    made = make(x)
    assert moved(made) is not None


def test_what_does_not_lie_in_rows_is_no_move():
    x = tf.identity(tf.constant(np.random.RandomState(0).randn(4, 3, 5).astype(np.float32)))
    assert moved(x[:, :2, :2]) is None
    assert moved(x[::-1]) is None
    assert moved(x[:, :, ::2]) is None


def test_what_is_moved_to_where_only_the_step_knows_is_no_move():
    """Though the shape is known, or claimed: what comes may not fit."""
    x = tf.identity(tf.constant(np.random.RandomState(0).randn(4, 3, 5).astype(np.float32)))
    added = tf.expand_dims(x, tf.random_uniform([], 0, 1, tf.int32))
    added.set_shape([1, 4, 3, 5])
    assert moved(added) is None
    rows = tf.reshape(x, [tf.random_uniform([], 12, 13, tf.int32), 5])
    assert rows.shape.as_list() == [12, 5]
    assert moved(rows) is None


# -- programs -----------------------------------------------------------------------------------------------------------


BATCH, STEPS, FEATURES, UNITS = 8, 4, 6, 16


def weights(name, *shape):
    random = np.random.RandomState(sum(map(ord, name)))
    return tf.get_variable(name, initializer=(random.randn(*shape) / np.sqrt(shape[0])).astype(np.float32))


def lstm_cell(x, c, h):
    i, j, f, o = tf.split(tf.matmul(tf.concat([x, h], 1), weights("k", FEATURES + UNITS, 4 * UNITS)) + weights("b", 4 * UNITS), 4, 1)
    c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
    return c, tf.tanh(c) * tf.sigmoid(o)


def lstm(x):
    c = h = tf.zeros([BATCH, UNITS])
    for t in range(STEPS):
        with tf.variable_scope("cell", reuse=tf.AUTO_REUSE):
            c, h = lstm_cell(x[:, t], c, h)
    return [c, h]


def gru_in_training(x):
    h = tf.zeros([BATCH, UNITS])
    for t in range(STEPS):
        with tf.variable_scope("cell", reuse=tf.AUTO_REUSE):
            both = tf.sigmoid(tf.matmul(tf.concat([x[:, t], h], 1), weights("g", FEATURES + UNITS, 2 * UNITS)) + weights("gb", 2 * UNITS))
            z, r = tf.split(both, 2, 1)
            h = z * h + (1 - z) * tf.tanh(tf.matmul(tf.concat([x[:, t], r * h], 1), weights("c", FEATURES + UNITS, UNITS)) + weights("cb", UNITS))
    return [h, *tf.gradients(tf.reduce_sum(tf.square(h)), tf.trainable_variables())]


def lstm_in_a_loop(x):
    by_time = tf.transpose(x, [1, 0, 2])

    def body(t, c, h):
        with tf.variable_scope("cell", reuse=tf.AUTO_REUSE):
            return t + 1, *lstm_cell(tf.reshape(by_time[t], [BATCH, FEATURES]), c, h)

    zeros = tf.zeros([BATCH, UNITS])
    return list(tf.while_loop(lambda t, c, h: t < STEPS, body, (0, zeros, zeros))[1:])


def attention(x):
    def dense(h, n, name):
        last = int(h.shape[-1])
        return tf.reshape(tf.matmul(tf.reshape(h, [-1, last]), weights(name, last, n)) + weights(name + "b", n), [BATCH, STEPS, n])

    q, k, v = (dense(x, UNITS, name) for name in "qkv")
    h = dense(tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 4.0), v), UNITS, "o") + v
    mean, variance = tf.nn.moments(h, [-1], keep_dims=True)
    return [(h - mean) * tf.rsqrt(variance + 1e-5)]


@pytest.mark.parametrize("program, calls_of_a_step", [(lstm, 1), (gru_in_training, 1), (lstm_in_a_loop, STEPS), (attention, 1)])
def test_programs_compute_what_numpy_does(monkeypatch, chained, program, calls_of_a_step):
    random = np.random.RandomState(5)
    values = [random.randn(BATCH, STEPS, FEATURES).astype(np.float32) for _ in range(3)]
    values[2][1, 2] = np.nan
    found = []
    for engines in (None, "numpy"):
        if engines is not None:
            monkeypatch.setenv("PENSTOCK_ENGINES", engines)
        with tf.Graph().as_default(), tf.Session() as sess:
            x = tf.placeholder(tf.float32, [BATCH, STEPS, FEATURES])
            results = program(x)
            sess.run(tf.global_variables_initializer())
            found.append([sess.run(results, {x: v}) for v in values])
            if engines is None:
                assert chained == [True] * calls_of_a_step * len(values)
    for a, b in zip(*found, strict=True):
        for one, other in zip(a, b, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_cells_of_several_clients(chained):
    """Every client gets the results for its own values."""
    with tf.Session() as sess:
        x = tf.placeholder(tf.float32, [BATCH, STEPS, FEATURES])
        results = lstm(x)
        sess.run(tf.global_variables_initializer())
        values = np.random.RandomState(6).randn(4, BATCH, STEPS, FEATURES).astype(np.float32)
        alone = [sess.run(results, {x: v}) for v in values]
        wrong = []

        def client(i):
            for _ in range(50):
                for a, b in zip(sess.run(results, {x: values[i].copy()}), alone[i], strict=True):
                    if not np.array_equal(a, b):
                        wrong.append(i)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(len(values))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong
        assert all(chained)


def test_a_piece_that_only_others_read_stays_a_view(chained):
    """It is not copied for the sake of a chain."""
    with tf.Session() as sess:
        x = tf.placeholder(tf.float32, [BATCH, STEPS, FEATURES])
        _, h = lstm(x)
        part = h[:, 3]
        sess.run(tf.global_variables_initializer())
        values = np.random.RandomState(7).randn(BATCH, STEPS, FEATURES).astype(np.float32)
        got, whole = sess.run([part, h], {x: values})
        np.testing.assert_array_equal(got, whole[:, 3])
        code = sess.explain([part, h], {x: values}).code
        outputs = code.split("= made; made = None")[0].rsplit("\n", 1)[1]
        assert outputs.count("v") == 1


@pytest.mark.parametrize(("columns", "is_chain"), [(8, True), (256, False)])
def test_functions_that_numpy_computes_quicker_make_no_chain(chained, columns, is_chain):
    """Of many elements, and with nothing else beside them that would gain."""
    x = tf.placeholder(tf.float32, [16, columns])
    y = x
    for _ in range(20):
        y = tf.tanh(y) + 0.1
    with tf.Session() as sess:
        assert ("chain" in sess.explain(y, {x: np.ones((16, columns), np.float32)}).code) == is_chain
