"""LSTM and GRU layers on oneDNN: the same numbers as NumPy's cells, and unrolled LSTMs found in graphs, but only where nothing else is read."""

import numpy as np
import pytest

import penstock as tf
from penstock.engines.onednn import library as lib
from penstock.engines.onednn import rnn
from penstock.ops.kernels import rnn as numpy_rnn

pytestmark = pytest.mark.skipif(lib.get() is None, reason="needs oneDNN")

STEPS, BATCH, INPUTS, CELLS = 9, 3, 5, 8


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


W, B = normal(INPUTS + CELLS, 4 * CELLS, seed=1), normal(4 * CELLS, seed=2)
X, C, H = normal(STEPS, BATCH, INPUTS, seed=3), normal(BATCH, CELLS, seed=4), normal(BATCH, CELLS, seed=5)
HOLES = [normal(CELLS, seed=6 + i) for i in range(3)]


@pytest.fixture
def layers(monkeypatch):
    """The specs of the layers that ran."""
    found = []
    real = rnn.layer_for
    monkeypatch.setattr(rnn, "layer_for", lambda library, spec: found.append(spec) or real(library, spec))
    return found


def expected(steps=STEPS, forget_bias=1.0, order=numpy_rnn.ICFO, holes=None, x=X):
    """(outputs, states) by NumPy's cells."""
    step = numpy_rnn.Step(CELLS, order, forget_bias, 0.0, holes)
    c, h, outputs, states = C, H, [], []
    for t in range(steps):
        _, c, _, _, _, _, h = step.run(x[t] @ W[:INPUTS] + h @ W[INPUTS:] + B, c)
        outputs.append(h)
        states.append(c)
    return np.stack(outputs), np.stack(states)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, 2e-5, 2e-6)


# -- fused ops ----------------------------------------------------------------------------------------------------------


def block(op, order, forget, holes, fetch):
    weights = dict(zip(("wci", "wcf", "wco"), HOLES, strict=True))
    attrs = dict(use_peephole=holes, cell_clip=0.0) | (dict(forget_bias=1.0) if forget else {})
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, X.shape)
        out = getattr(tf.raw_ops, op)(seq_len_max=tf.constant(STEPS, tf.int64), x=x, cs_prev=C, h_prev=H, w=W, b=B, **weights, **attrs)
        with tf.Session() as sess:
            for _ in range(2):  # the second time with weights that are laid out
                found = sess.run([getattr(out, name) for name in fetch], {x: X})
    wanted = dict(zip(("h", "cs"), expected(forget_bias=float(forget), order=order, holes=HOLES if holes else None), strict=True))
    for name, value in zip(fetch, found, strict=True):
        if name in wanted:
            close(value, wanted[name])


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("fetch", [["h"], ["cs", "h"], ["cs"]])
@pytest.mark.parametrize(("op", "order", "forget"), [("BlockLSTM", numpy_rnn.ICFO, True), ("BlockLSTMV2", numpy_rnn.IFCO, False)])
def test_sequences(op, order, forget, fetch, holes, layers):
    block(op, order, forget, holes, fetch)
    assert {spec.steps for spec in layers} == {1 if "cs" in fetch else STEPS}


def test_gates_that_are_read_are_numpys(layers):
    block("BlockLSTM", numpy_rnn.ICFO, True, False, ["h", "i"])
    assert not layers


@pytest.mark.parametrize("fetch", [["h"], ["cs", "h"], ["h", "o"]])
def test_lstm_cell(fetch, layers):
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [BATCH, INPUTS])
        out = tf.raw_ops.LSTMBlockCell(x=x, cs_prev=C, h_prev=H, w=W, wci=HOLES[0], wcf=HOLES[1], wco=HOLES[2], b=B, cell_clip=-1.0)
        with tf.Session() as sess:
            found = dict(zip(fetch, sess.run([getattr(out, name) for name in fetch], {x: X[0]}), strict=True))
    h, c = expected(1)
    close(found["h"], h[0])
    close(found.get("cs", c[0]), c[0])
    assert bool(layers) == ("o" not in fetch)


@pytest.mark.parametrize("fetch", [["h"], ["h", "r"]])
def test_gru_cell(fetch, layers):
    weights = dict(w_ru=normal(INPUTS + CELLS, 2 * CELLS), w_c=normal(INPUTS + CELLS, CELLS, seed=9), b_ru=normal(2 * CELLS, seed=7), b_c=normal(CELLS, seed=8))
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [BATCH, INPUTS])
        out = tf.raw_ops.GRUBlockCell(x=x, h_prev=H, **weights)
        with tf.Session() as sess:
            for _ in range(2):
                found = sess.run([getattr(out, name) for name in fetch], {x: X[0]})
    close(found[0], numpy_rnn.gru_cell(X[0], H, *weights.values())[3])
    assert bool(layers) == (fetch == ["h"])


# -- unrolled -----------------------------------------------------------------------------------------------------------


def unrolled(x, w, b, c, h, steps=STEPS, between=lambda x, h: x):
    """Lists of c, h and the forget gate of each step; `between(x, h)` makes the input out of the given one and the output before."""
    found = []
    for t in range(steps):
        i, j, f, o = tf.split(tf.nn.bias_add(tf.matmul(tf.concat([between(x[t], h), h], 1), w), b), 4, 1)
        gate = tf.sigmoid(f + 1.0)
        c = c * gate + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        found.append((c, h, gate))
    return found


def run(build, layers):
    """What `build(x)` gives, checked against NumPy's kernels node by node."""
    layers.clear()
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, X.shape)
        fetches = build(tf.unstack(x))
        with tf.Session() as sess:
            found = sess.run(fetches, {x: X})
            again = sess.run(fetches, {x: X})
        config = tf.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with tf.Session(config=config) as sess:
            for one, two, three in zip(found, again, sess.run(fetches, {x: X}), strict=True):
                close(one, three)
                close(two, three)
    return found


def test_an_unrolled_lstm_is_one_call(layers):
    outputs, states = expected()
    found = run(lambda x: [unrolled(x, W, B, C, H)[-1][1]], layers)
    close(found[0], outputs[-1])
    assert {spec.steps for spec in layers} == {STEPS}
    found = run(lambda x: [v for step in unrolled(x, W, B, C, H) for v in step[1:2]] + [unrolled(x, W, B, C, H)[-1][0]], layers)
    close(np.stack(found[:-1]), outputs)
    close(found[-1], states[-1])


def test_a_state_that_is_read_ends_a_sequence(layers):
    run(lambda x: [(s := unrolled(x, W, B, C, H))[3][0], s[-1][1]], layers)
    assert {spec.steps for spec in layers} == {4, STEPS - 4}


def test_a_gate_that_is_read_leaves_its_step_alone(layers):
    run(lambda x: [(s := unrolled(x, W, B, C, H))[3][2], s[-1][1]], layers)
    assert {spec.steps for spec in layers} == {3, STEPS - 4}


def test_gradients_leave_it_alone(layers):
    def build(x):
        h = unrolled(x, W, B, C, H)[-1][1]
        return [h, tf.gradients(h, x[0])[0]]

    run(build, layers)
    assert not layers


def test_inputs_that_depend_on_outputs(layers):
    mix = normal(CELLS, INPUTS, seed=11)
    run(lambda x: [unrolled(x, W, B, C, H, between=lambda x, h: x + tf.matmul(h, mix))[-1][1]], layers)
    assert {spec.steps for spec in layers} <= {1}


def test_two_sequences_that_need_each_other(layers):
    other = W[:, ::-1].copy()

    def build(x):
        a, b = unrolled(x, W, B, C, H, 2), unrolled(x, other, B, C, H, 2)
        first = unrolled(x[2:], W, B, *a[-1][:2], 2, between=lambda x, h: x + b[0][1][:, :INPUTS])
        second = unrolled(x[2:], other, B, *b[-1][:2], 2, between=lambda x, h: x + a[0][1][:, :INPUTS])
        return [first[-1][1], second[-1][1]]

    run(build, layers)
    assert layers


def test_two_layers(layers):
    def build(x):
        first = [h for _, h, _ in unrolled(x, W, B, C, H)]
        return [unrolled(first, normal(2 * CELLS, 4 * CELLS), B, C, H)[-1][1]]

    run(build, layers)
    assert {(spec.steps, spec.inputs) for spec in layers} == {(STEPS, INPUTS), (STEPS, CELLS)}


def test_weights_that_may_change_stay(layers):
    with tf.Graph().as_default():
        w = tf.Variable(W)
        h = unrolled(tf.unstack(tf.constant(X)), w, B, C, H)[-1][1]
        change = w.assign_add(np.ones_like(W))
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            close(sess.run(h), expected()[0][-1])
            sess.run(change)
            assert abs(sess.run(h) - expected()[0][-1]).max() > 0.01
    assert not layers


def test_cells_of_the_library(layers):
    """tf.nn.static_rnn over cells, as programs have them."""
    for cell in (tf.nn.rnn_cell.BasicLSTMCell, tf.nn.rnn_cell.LSTMCell):
        with tf.Graph().as_default() as graph:
            x = tf.placeholder(tf.float32, X.shape, name="x")
            h = tf.identity(tf.nn.static_rnn(cell(CELLS), tf.unstack(x), dtype=tf.float32)[0][-1], name="h")
            with tf.Session() as sess:
                sess.run(tf.global_variables_initializer())
                wanted = sess.run(h, {x: X})
                frozen = tf.graph_util.convert_variables_to_constants(sess, graph.as_graph_def(), ["h"])
        assert not layers
        with tf.Graph().as_default():
            tf.import_graph_def(frozen, name="")
            with tf.Session() as sess:
                close(sess.run("h:0", {"x:0": X}), wanted)
        assert {spec.steps for spec in layers} == {STEPS}
        layers.clear()


def test_nan_stays_nan(layers):
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, X.shape)
        h = unrolled(tf.unstack(x), W, B, C, H)[-1][1]
        bad = X.copy()
        bad[0, 1, 0] = np.nan
        with tf.Session() as sess:
            found = sess.run(h, {x: bad})
    assert np.isnan(found[1]).all() and not np.isnan(found[[0, 2]]).any()


def test_targets_and_control_edges_stay(layers):
    with tf.Graph().as_default():
        steps = unrolled(tf.unstack(tf.placeholder(tf.float32, X.shape, "x")), W, B, C, H)
        with tf.control_dependencies([steps[2][2]]):
            done = tf.no_op()
        with tf.Session() as sess:
            close(sess.run([steps[-1][1], done], {"x:0": X})[0], expected()[0][-1])
    assert {spec.steps for spec in layers} == {2, STEPS - 3}


def test_kernels_of_a_joined_node():
    """NumPy's and XLA's, for where oneDNN has nothing."""
    attrs = dict(order=[0, 2, 1, 3], forget_bias=0.5)
    found = numpy_rnn.lstm_steps(list(X), C, H, W, B, **attrs)
    outputs, states = expected(forget_bias=0.5, order=numpy_rnn.IFCO)
    close(np.stack(found[:-1]), outputs[::-1])
    close(found[-1], states[-1])
    pytest.importorskip("jax")
    from penstock.engines.xla.rules.fused import lstm_steps

    for mine, plain in zip(lstm_steps(list(X), C, H, W, B, **attrs), found, strict=True):
        np.testing.assert_allclose(mine, plain, 1e-4, 1e-5)


# -- corners ------------------------------------------------------------------------------------------------------------


def test_a_step_whose_input_is_dead_leaves_the_earlier_ones_alive():
    with tf.Graph().as_default(), tf.Session() as sess:
        x, taken = tf.placeholder(tf.float32, X.shape), tf.placeholder(tf.bool, [])
        c, h, outputs = tf.constant(C), tf.constant(H), []
        for t in range(STEPS):
            one = x[t] if t < 4 else tf.raw_ops.Switch(data=x[t], pred=taken)[1]
            i, j, f, o = tf.split(tf.nn.bias_add(tf.matmul(tf.concat([one, h], 1), W), B), 4, 1)
            c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
            h = tf.tanh(c) * tf.sigmoid(o)
            outputs.append(h)
        either = tf.raw_ops.Merge(inputs=[h, tf.raw_ops.Switch(data=outputs[3], pred=taken)[0]])[0]
        fetches = [outputs[3] * 1.0, either]
        steps = [op.attrs["N"] for part in sess.explain(fetches, [x, taken]).partitions.values() for op in part if op.type == "_LSTMSteps"]
        assert sorted(steps) == [4, 5]
        wanted, _ = expected()
        for yes, last in ((True, STEPS - 1), (False, 3)):
            early, found = sess.run(fetches, {x: X, taken: yes})
            close(early, wanted[3])
            close(found, wanted[last])


@pytest.mark.parametrize(("batch", "inputs", "cells", "time"), [(0, 3, 4, 2), (2, 0, 4, 2), (2, 3, 0, 2), (0, 0, 0, 0), (2, 3, 4, 0)])
def test_nothing_to_compute(batch, inputs, cells, time):
    """As in TensorFlow: results without elements, but an error from LSTMBlockCell."""
    ones = lambda *shape: tf.constant(np.ones(shape, np.float32))  # noqa: E731
    with tf.Graph().as_default(), tf.Session() as sess:
        weights = dict(w=ones(inputs + cells, 4 * cells), b=ones(4 * cells), wci=ones(cells), wcf=ones(cells), wco=ones(cells))
        state = dict(cs_prev=ones(batch, cells), h_prev=ones(batch, cells))
        for name in ("BlockLSTM", "BlockLSTMV2"):
            x = ones(time, batch, inputs)
            out = getattr(tf.raw_ops, name)(seq_len_max=tf.constant(time, tf.int64), x=x, **state, **weights)
            dx, dw = tf.gradients(out.h, [x, weights["w"]])
            found = sess.run([out.h, dx, dw])
            assert [v.shape for v in found] == [(time, batch, cells), (time, batch, inputs), (inputs + cells, 4 * cells)]
            assert np.isfinite(found[2]).all()
        gru = dict(w_ru=ones(inputs + cells, 2 * cells), w_c=ones(inputs + cells, cells), b_ru=ones(2 * cells), b_c=ones(cells))
        assert sess.run(tf.raw_ops.GRUBlockCell(x=ones(batch, inputs), h_prev=state["h_prev"], **gru).h).shape == (batch, cells)
        cell = tf.raw_ops.LSTMBlockCell(x=ones(batch, inputs), **state, **weights).h
        if batch and cells:
            assert sess.run(cell).shape == (batch, cells)
        else:
            with pytest.raises(tf.errors.InvalidArgumentError, match=rf"cs_prev_tensor is empty, has shape: \({batch},{cells}\)"):
                sess.run(cell)
