"""tf.nn.dynamic_rnn and relatives, and the cells of tf.nn.rnn_cell, against loops in NumPy."""

import numpy as np
import pytest

import penstock as tf

R = np.random.RandomState(0)
X = R.randn(3, 5, 4).astype(np.float32)
LENGTHS = np.array([5, 2, 0])
cells = tf.nn.rnn_cell


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def run(fetches, feed=None):
    with tf.Session() as s:
        s.run(tf.global_variables_initializer())
        return s.run(fetches, feed)


def weights(*names):
    """The values of variables by the end of their names, and the fetches, in one run."""
    by_name = {v.op.name: v for v in tf.global_variables()}
    return [by_name[name] for name in names]


def unrolled(step, state, lengths=None, x=X):
    """Outputs and last state of `step(x, state)` in NumPy, with TF's treatment of lengths."""
    outputs = []
    for t in range(x.shape[1]):
        out, new = step(x[:, t], state)
        if lengths is not None:
            live = (t < lengths)[:, None]
            out, new = np.where(live, out, 0), tuple(np.where(live, n, s) for n, s in zip(new, state))
        outputs.append(out)
        state = new
    return np.stack(outputs, 1), state


def rnn_step(kernel, bias):
    def step(x, state):
        h = np.tanh(np.concatenate([x, state[0]], 1) @ kernel + bias)
        return h, (h,)

    return step


def lstm_step(kernel, bias, forget=1.0):
    def step(x, state):
        c, h = state
        i, j, f, o = np.split(np.concatenate([x, h], 1) @ kernel + bias, 4, 1)
        c = c * sigmoid(f + forget) + sigmoid(i) * np.tanh(j)
        h = np.tanh(c) * sigmoid(o)
        return h, (c, h)

    return step


def gru_step(gates, gate_bias, candidate, candidate_bias):
    def step(x, state):
        (h,) = state
        r, u = np.split(sigmoid(np.concatenate([x, h], 1) @ gates + gate_bias), 2, 1)
        c = np.tanh(np.concatenate([x, r * h], 1) @ candidate + candidate_bias)
        h = u * h + (1 - u) * c
        return h, (h,)

    return step


ZERO = np.zeros((3, 2), np.float32)


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_basic_rnn(lengths):
    out, state = tf.nn.dynamic_rnn(cells.BasicRNNCell(2), tf.constant(X), sequence_length=lengths, dtype=tf.float32)
    kernel, bias, got, last = run([*weights("rnn/basic_rnn_cell/kernel", "rnn/basic_rnn_cell/bias"), out, state])
    expected, (h,) = unrolled(rnn_step(kernel, bias), (ZERO,), lengths)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, h, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("is_tuple", [True, False])
def test_basic_lstm(lengths, is_tuple):
    cell = cells.BasicLSTMCell(2, forget_bias=0.5, state_is_tuple=is_tuple)
    out, state = tf.nn.dynamic_rnn(cell, tf.constant(X), sequence_length=lengths, dtype=tf.float32)
    kernel, bias, got, last = run([*weights("rnn/basic_lstm_cell/kernel", "rnn/basic_lstm_cell/bias"), out, state])
    expected, (c, h) = unrolled(lstm_step(kernel, bias, 0.5), (ZERO, ZERO), lengths)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.concatenate(list(last), 1) if is_tuple else last, np.concatenate([c, h], 1), rtol=1e-5, atol=1e-6)
    assert isinstance(state, cells.LSTMStateTuple) == is_tuple


def test_lstm_with_peepholes_clipping_and_projection():
    cell = cells.LSTMCell(3, use_peepholes=True, cell_clip=0.4, num_proj=2, proj_clip=0.1, initializer=tf.random_normal_initializer(seed=1))
    out, state = tf.nn.dynamic_rnn(cell, tf.constant(X), dtype=tf.float32)
    names = ["kernel", "bias", "w_f_diag", "w_i_diag", "w_o_diag", "projection/kernel"]
    k, b, wf, wi, wo, p, got, last = run([*weights(*("rnn/lstm_cell/" + n for n in names)), out, state])

    def step(x, state):
        c, m = state
        i, j, f, o = np.split(np.concatenate([x, m], 1) @ k + b, 4, 1)
        new = np.clip(sigmoid(f + 1 + wf * c) * c + sigmoid(i + wi * c) * np.tanh(j), -0.4, 0.4)
        m = np.clip((sigmoid(o + wo * new) * np.tanh(new)) @ p, -0.1, 0.1)
        return m, (new, m)

    expected, (c, m) = unrolled(step, (np.zeros((3, 3), np.float32), ZERO))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last.c, c, rtol=1e-5, atol=1e-6)
    assert cell.state_size == (3, 2) and cell.output_size == 2


def test_gru():
    out, _ = tf.nn.dynamic_rnn(cells.GRUCell(2), tf.constant(X), dtype=tf.float32, scope="g")
    names = ["g/gru_cell/gates/kernel", "g/gru_cell/gates/bias", "g/gru_cell/candidate/kernel", "g/gru_cell/candidate/bias"]
    *parts, got = run([*weights(*names), out])
    assert parts[1].tolist() == [1.0] * 4 and parts[3].tolist() == [0.0] * 2
    np.testing.assert_allclose(got, unrolled(gru_step(*parts), (ZERO,))[0], rtol=1e-5, atol=1e-6)


def test_stacked_cells():
    cell = cells.MultiRNNCell([cells.BasicLSTMCell(2), cells.GRUCell(2)])
    out, state = tf.nn.dynamic_rnn(cell, tf.constant(X), dtype=tf.float32)
    first = "rnn/multi_rnn_cell/cell_0/basic_lstm_cell/"
    second = "rnn/multi_rnn_cell/cell_1/gru_cell/"
    names = [first + "kernel", first + "bias", second + "gates/kernel", second + "gates/bias", second + "candidate/kernel", second + "candidate/bias"]
    k, b, *gru, got = run([*weights(*names), out])
    middle, _ = unrolled(lstm_step(k, b), (ZERO, ZERO))
    np.testing.assert_allclose(got, unrolled(gru_step(*gru), (ZERO,), x=middle)[0], rtol=1e-5, atol=1e-6)
    assert len(state) == 2 and [v.op.name for v in cell.trainable_variables] == names
    with pytest.raises(ValueError, match="Must specify at least one cell"):
        cells.MultiRNNCell([])


def test_node_names_are_those_of_tf1():
    tf.nn.dynamic_rnn(cells.BasicLSTMCell(2), tf.placeholder(tf.float32, [3, None, 4]), dtype=tf.float32)
    names = {op.name for op in tf.get_default_graph().get_operations()}
    assert {"rnn/while/basic_lstm_cell/MatMul", "rnn/while/basic_lstm_cell/BiasAdd", "rnn/while/basic_lstm_cell/Add_1",
            "rnn/BasicLSTMCellZeroState/zeros", "rnn/TensorArrayStack/TensorArrayGatherV3", "rnn/transpose_1"} <= names  # fmt: skip


def test_time_major_initial_state_and_nested_inputs():
    initial = R.randn(3, 2).astype(np.float32)
    cell = cells.BasicRNNCell(2)
    out, last = tf.nn.dynamic_rnn(cell, tf.constant(X.transpose(1, 0, 2)), initial_state=tf.constant(initial), time_major=True)
    kernel, bias, got, state = run([*weights("rnn/basic_rnn_cell/kernel", "rnn/basic_rnn_cell/bias"), out, last])
    expected, (h,) = unrolled(rnn_step(kernel, bias), (initial,))
    np.testing.assert_allclose(got.transpose(1, 0, 2), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state, h, rtol=1e-5, atol=1e-6)


def test_gradients_reach_the_weights():
    x = tf.constant(X)
    out, _ = tf.nn.dynamic_rnn(cells.BasicRNNCell(2), x, dtype=tf.float32, sequence_length=LENGTHS)
    kernel, bias = weights("rnn/basic_rnn_cell/kernel", "rnn/basic_rnn_cell/bias")
    loss = tf.reduce_sum(out * out)
    (grad,) = tf.gradients(loss, [kernel])
    with tf.Session() as s:
        s.run(tf.global_variables_initializer())
        k, b, g = s.run([kernel, bias, grad])

    def value(k):
        return (unrolled(rnn_step(k.astype(np.float64), b), (ZERO.astype(np.float64),), LENGTHS)[0] ** 2).sum()

    for i, j in ((0, 0), (3, 1), (5, 0)):
        step = np.zeros_like(k, np.float64)
        step[i, j] = 1e-5
        assert g[i, j] == pytest.approx((value(k + step) - value(k - step)) / 2e-5, rel=1e-3, abs=1e-5)


def test_bidirectional():
    (fw, bw), _ = tf.nn.bidirectional_dynamic_rnn(
        cells.BasicRNNCell(2), cells.BasicRNNCell(2), tf.constant(X), sequence_length=LENGTHS, dtype=tf.float32
    )
    name = "bidirectional_rnn/{}/basic_rnn_cell/{}".format
    kf, bf, kb, bb, got_fw, got_bw = run([*weights(name("fw", "kernel"), name("fw", "bias"), name("bw", "kernel"), name("bw", "bias")), fw, bw])
    np.testing.assert_allclose(got_fw, unrolled(rnn_step(kf, bf), (ZERO,), LENGTHS)[0], rtol=1e-5, atol=1e-6)

    def turned(a):
        return np.stack([np.concatenate([row[:n][::-1], row[n:]]) for row, n in zip(a, LENGTHS)])

    np.testing.assert_allclose(got_bw, turned(unrolled(rnn_step(kb, bb), (ZERO,), LENGTHS, turned(X))[0]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_static_rnn_equals_dynamic_rnn(lengths):
    x = tf.constant(X)
    with tf.variable_scope("v"):
        cell = cells.BasicRNNCell(2)
        dynamic, last = tf.nn.dynamic_rnn(cell, x, sequence_length=lengths, dtype=tf.float32)
    with tf.variable_scope("v", reuse=True):
        static, state = tf.nn.static_rnn(cells.BasicRNNCell(2), tf.unstack(x, axis=1), sequence_length=lengths, dtype=tf.float32)
    a, b, c, d = run([dynamic, tf.stack(static, 1), last, state])
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(c, d, rtol=1e-5, atol=1e-6)
    assert len(tf.global_variables()) == 2


def test_static_bidirectional():
    outputs, _, _ = tf.nn.static_bidirectional_rnn(cells.BasicRNNCell(2), cells.BasicRNNCell(3), tf.unstack(tf.constant(X), axis=1), dtype=tf.float32)
    assert len(outputs) == 5 and outputs[0].shape.as_list() == [3, 5]
    assert np.isfinite(run(outputs)).all()


def test_raw_rnn():
    x = tf.TensorArray(tf.float32, size=5).unstack(X.transpose(1, 0, 2))
    cell = cells.BasicRNNCell(2)

    def loop_fn(time, output, state, loop_state):
        state = cell.zero_state(3, tf.float32) if output is None else state
        finished = time >= LENGTHS
        following = tf.cond(tf.reduce_all(finished), lambda: tf.zeros([3, 4]), lambda: x.read(time))
        return finished, following, state, output, tf.constant(0) if loop_state is None else loop_state + 1

    array, state, count = tf.nn.raw_rnn(cell, loop_fn)
    kernel, bias, got, last, steps = run([*weights("rnn/basic_rnn_cell/kernel", "rnn/basic_rnn_cell/bias"), array.stack(), state, count])
    expected, (h,) = unrolled(rnn_step(kernel, bias), (ZERO,), LENGTHS)
    np.testing.assert_allclose(got.transpose(1, 0, 2), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, h, rtol=1e-5, atol=1e-6)
    assert steps == 5


def test_errors():
    x = tf.placeholder(tf.float32, [3, None, 4])
    with pytest.raises(TypeError, match="is not an RNNCell"):
        tf.nn.dynamic_rnn(3, x, dtype=tf.float32)
    with pytest.raises(ValueError, match="you must give a dtype"):
        tf.nn.dynamic_rnn(cells.GRUCell(2), x)
    with pytest.raises(ValueError, match="Input size"):
        tf.nn.dynamic_rnn(cells.GRUCell(2), tf.placeholder(tf.float32, [3, None, None]), dtype=tf.float32)
    with pytest.raises(ValueError, match="must be a vector of length batch_size"):
        tf.nn.dynamic_rnn(cells.GRUCell(2), x, sequence_length=[[1]], dtype=tf.float32)
    with pytest.raises(ValueError, match="must not be empty"):
        tf.nn.static_rnn(cells.GRUCell(2), [], dtype=tf.float32)
    lengths = tf.placeholder(tf.int32, [None])
    out, _ = tf.nn.dynamic_rnn(cells.GRUCell(2), tf.constant(X), sequence_length=lengths, dtype=tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expected shape for Tensor"):
        run(out, {lengths: [1, 2]})


# -- wrappers ---------------------------------------------------------------------------------------------------------


def test_dropout_wrapper():
    cell = cells.DropoutWrapper(cells.BasicRNNCell(40), output_keep_prob=0.5, seed=1)
    x = tf.constant(X[:, 0])
    out, state = cell(x, tf.zeros([3, 40]))
    got, full = run([out, state])
    kept = got != 0
    np.testing.assert_allclose(got[kept], 2 * full[kept], rtol=1e-5)
    assert 0.3 < kept.mean() < 0.7
    assert [v.op.name for v in tf.global_variables()] == ["basic_rnn_cell/kernel", "basic_rnn_cell/bias"]
    with pytest.raises(ValueError, match="must be between 0 and 1"):
        cells.DropoutWrapper(cell, input_keep_prob=1.5)


def test_state_dropout_spares_the_memory_of_an_lstm():
    cell = cells.DropoutWrapper(cells.BasicLSTMCell(50), state_keep_prob=0.5, seed=1)
    out, state = cell(tf.constant(X[:, 0]), cell.zero_state(3, tf.float32))
    got, c, h = run([out, state.c, state.h])
    assert (c != 0).all() and 0.3 < (h != 0).mean() < 0.7
    np.testing.assert_allclose(h[h != 0], 2 * got[h != 0], rtol=1e-5)


def test_variational_dropout_drops_the_same_elements_at_every_step():
    cell = cells.DropoutWrapper(cells.BasicRNNCell(30), output_keep_prob=0.5, variational_recurrent=True, input_size=4, dtype=tf.float32, seed=3)
    out, _ = tf.nn.dynamic_rnn(cell, tf.constant(X), dtype=tf.float32)
    dropped = run(out) == 0
    assert (dropped == dropped[:1, :1]).all() and 0.2 < dropped.mean() < 0.8
    with pytest.raises(ValueError, match="dtype must be provided"):
        cells.DropoutWrapper(cells.BasicRNNCell(3), variational_recurrent=True)


def test_residual_and_device_wrappers():
    inner = cells.BasicRNNCell(4)
    cell = cells.DeviceWrapper(cells.ResidualWrapper(inner), "/cpu:0")
    x = tf.constant(X[:, 0])
    out, state = cell(x, cell.zero_state(3, tf.float32))
    got, h = run([out, state])
    np.testing.assert_allclose(got, h + X[:, 0], rtol=1e-5)
    assert out.device.lower().endswith("cpu:0") and cell.state_size == 4


def test_a_cell_of_ones_own():
    class Counter(cells.RNNCell):
        state_size = property(lambda self: 1)
        output_size = property(lambda self: 1)

        def call(self, inputs, state):
            w = tf.get_variable("w", [], initializer=tf.ones_initializer())
            return state, state + w

    cell = Counter()
    out, last = tf.nn.dynamic_rnn(cell, tf.constant(X), dtype=tf.float32)
    got, final = run([out, last])
    assert got[0, :, 0].tolist() == [0, 1, 2, 3, 4] and final[0, 0] == 5
    assert [v.op.name for v in cell.trainable_variables] == ["rnn/counter/w"]
