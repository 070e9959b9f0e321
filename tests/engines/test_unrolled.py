"""Unrolled LSTMs that are trained: what the optimiser joins, what it leaves alone, and the numbers with and without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import penstock as tf
from penstock.engines.onednn import library as lib
from penstock.engines.onednn import rnn_training
from penstock.ops import lstm_training

pytestmark = pytest.mark.skipif(lib.get() is None, reason="oneDNN is not here")

STEPS, BATCH, INPUTS, CELLS = 4, 6, 5, 8


@pytest.fixture(autouse=True)
def fresh() -> Any:
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()


def _data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def _variable(name: str, *shape: int, seed: int = 1, resource: bool = False) -> Any:
    return tf.get_variable(name, initializer=0.4 * _data(*shape, seed=seed), use_resource=resource)


def _types(sess: Any, fetches: Any, feeds: Any) -> Counter:
    return Counter(op.type for stage in sess.explain(fetches, feeds).stages if stage.name == "optimise/remapping" for op in stage.graph)


class _Run:
    """Some steps of a training, and the nodes that the optimiser made."""

    def __init__(self, build: Callable[[], tuple[Any, Any]], steps: int = 3) -> None:
        tf.reset_default_graph()
        fetches, feeds = build()
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            self.found = [sess.run(fetches, feeds) for _ in range(steps)]
            self.variables = sess.run(tf.trainable_variables())
            self.types = _types(sess, fetches, feeds)


def _compare(build: Callable[[], tuple[Any, Any]], monkeypatch: Any, layers: int = 1) -> None:
    """The same with everything joined and with nothing but NumPy's kernels."""
    joined = _Run(build)
    assert joined.types["_LSTMTraining"] == joined.types["_LSTMTrainingGrad"] == layers, joined.types
    if layers:
        assert not joined.types["TanhGrad"] and not joined.types["SigmoidGrad"] and not joined.types["Split"]
    monkeypatch.setenv("PENSTOCK_ENGINES", "numpy")
    plain = _Run(build)
    assert not plain.types["_LSTMTraining"]
    for a, b in zip(tf.nest.flatten([joined.found, joined.variables]), tf.nest.flatten([plain.found, plain.variables]), strict=True):
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6)


def _steps(xs: list[Any], kernel: Any, bias: Any, c: Any, h: Any, forget_bias: float | None = 1.0) -> tuple[list[Any], Any]:
    outputs = []
    for x in xs:
        i, j, f, o = tf.split(tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), kernel), bias), 4, axis=1)
        c = c * tf.sigmoid(f if forget_bias is None else f + forget_bias) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        outputs.append(h)
    return outputs, c


def _trained(loss: Any) -> Any:
    return tf.train.GradientDescentOptimizer(0.5).minimize(loss)


def _input(name: str = "x") -> tuple[Any, dict[Any, Any]]:
    x = tf.placeholder(tf.float32, [BATCH, STEPS, INPUTS], name)
    return x, {x: _data(BATCH, STEPS, INPUTS, seed=9)}


def _zeros() -> Any:
    return tf.zeros([BATCH, CELLS])


# -- what is joined -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("forget_bias", [1.0, None])
def test_the_last_output_is_used(monkeypatch, resource, forget_bias):
    def build() -> Any:
        x, feeds = _input()
        kernel, bias = _variable("w", INPUTS + CELLS, 4 * CELLS, resource=resource), _variable("b", 4 * CELLS, resource=resource)
        outputs, _ = _steps(tf.unstack(x, axis=1), kernel, bias, _zeros(), _zeros(), forget_bias)
        loss = tf.reduce_sum(tf.square(outputs[-1]))
        return [loss, _trained(loss)], feeds

    _compare(build, monkeypatch)


@pytest.mark.parametrize("resource", [False, True])
def test_static_rnn(monkeypatch, resource):
    def build() -> Any:
        x, feeds = _input()
        with tf.variable_scope("net", use_resource=resource, initializer=tf.constant_initializer(0.1)):
            outputs, state = tf.nn.static_rnn(tf.nn.rnn_cell.BasicLSTMCell(CELLS), tf.unstack(x, axis=1), dtype=tf.float32)
        loss = tf.reduce_mean(tf.square(tf.stack(outputs, 1))) + tf.reduce_sum(state.c * _data(BATCH, CELLS))
        return [loss, outputs[1], state.h, state.c, _trained(loss)], feeds

    _compare(build, monkeypatch)


def test_gradients_of_inputs_and_first_state(monkeypatch):
    """All x come out of a variable, and so does the first state; weights have a penalty of their own."""

    def build() -> Any:
        x, feeds = _input()
        scale = _variable("scale", INPUTS)
        kernel, bias = _variable("w", INPUTS + CELLS, 4 * CELLS), _variable("b", 4 * CELLS)
        c, h = _variable("c", BATCH, CELLS), _variable("h", BATCH, CELLS, seed=3)
        outputs, last = _steps(tf.unstack(x * scale, axis=1), kernel, bias, c, h)
        loss = tf.reduce_sum(tf.square(outputs[-1])) + tf.reduce_sum(outputs[1] * outputs[0]) + tf.reduce_sum(last)
        loss += 0.1 * tf.nn.l2_loss(kernel) + 0.1 * tf.nn.l2_loss(bias)
        return [loss, _trained(loss)], feeds

    _compare(build, monkeypatch)


def test_stacked_layers(monkeypatch):
    def build() -> Any:
        x, feeds = _input()
        cells = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.BasicLSTMCell(CELLS), tf.nn.rnn_cell.BasicLSTMCell(4)])
        with tf.variable_scope("net", initializer=tf.random_normal_initializer(stddev=0.3, seed=2)):
            outputs, _ = tf.nn.static_rnn(cells, tf.unstack(x, axis=1), dtype=tf.float32)
        loss = tf.reduce_sum(tf.square(tf.stack(outputs)))
        return [loss, _trained(loss)], feeds

    _compare(build, monkeypatch, layers=2)


def test_gates_in_another_order(monkeypatch):
    def build() -> Any:
        x, feeds = _input()
        kernel, bias = _variable("w", INPUTS + CELLS, 4 * CELLS), _variable("b", 4 * CELLS)
        c = h = _zeros()
        for one in tf.unstack(x, axis=1):
            f, o, i, j = tf.split(tf.matmul(tf.concat([one, h], 1), kernel) + bias, 4, axis=1)
            c = tf.tanh(j) * tf.sigmoid(i) + tf.sigmoid(0.5 + f) * c
            h = tf.sigmoid(o) * tf.tanh(c)
        loss = tf.reduce_sum(tf.square(h))
        return [loss, _trained(loss)], feeds

    _compare(build, monkeypatch)


def test_inputs_that_are_arrays_of_their_own(monkeypatch):
    def build() -> Any:
        xs = [tf.placeholder(tf.float32, [BATCH, INPUTS]) for _ in range(STEPS)]
        kernel, bias = _variable("w", INPUTS + CELLS, 4 * CELLS), _variable("b", 4 * CELLS)
        outputs, _ = _steps(xs, kernel, bias, _zeros(), _zeros())
        loss = tf.reduce_sum(tf.square(outputs[-1]))
        return [loss, _trained(loss)], {x: _data(BATCH, INPUTS, seed=i) for i, x in enumerate(xs)}

    _compare(build, monkeypatch)


# -- what is not --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["state", "gate", "step gradient", "own output", "few steps"])
def test_left_alone(monkeypatch, what):
    """Values inside are asked for, or an input of a step depends on an earlier step's output, or it would not be worth it."""

    def build() -> Any:
        x, feeds = _input()
        kernel, bias = _variable("w", INPUTS + CELLS, 4 * CELLS), _variable("b", 4 * CELLS)
        xs = tf.unstack(x, axis=1)
        if what == "own output":
            first, c = _steps(xs[:2], kernel, bias, _zeros(), _zeros())
            second, _ = _steps([xs[2] + first[0][:, :INPUTS], xs[3]], kernel, bias, c, first[1])
            outputs = [*first, *second]
        elif what == "few steps":
            outputs, _ = _steps(xs[:3], kernel, bias, _zeros(), _zeros())
        else:
            outputs, _ = _steps(xs, kernel, bias, _zeros(), _zeros())
        loss = tf.reduce_sum(tf.square(outputs[-1]))
        train = _trained(loss)
        graph = tf.get_default_graph()
        extra = {"state": "add_1:0", "gate": "Sigmoid:0", "step gradient": "gradients/MatMul_1_grad/MatMul_1:0", "own output": "mul_2:0", "few steps": "mul_2:0"}[what]
        return [loss, graph.get_tensor_by_name(extra), train], feeds

    _compare(build, monkeypatch, layers=0)


def test_of_unknown_size(monkeypatch):
    def build() -> Any:
        x = tf.placeholder(tf.float32, [None, STEPS, INPUTS])
        kernel, bias = _variable("w", INPUTS + CELLS, 4 * CELLS), _variable("b", 4 * CELLS)
        zeros = tf.zeros([tf.shape(x)[0], CELLS])
        outputs, _ = _steps(tf.unstack(x, axis=1), kernel, bias, zeros, zeros)
        loss = tf.reduce_sum(tf.square(outputs[-1]))
        return [loss, _trained(loss)], {x: _data(BATCH, STEPS, INPUTS)}

    _compare(build, monkeypatch, layers=0)


# -- kernels ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape, order", [((3, 2, 3, 4), [0, 1, 2, 3]), ((1, 4, 4, 8), [0, 2, 1, 3]), ((5, 7, 10, 20), [2, 3, 0, 1])])
def test_kernels_agree(shape, order):
    steps, batch, inputs, cells = shape
    x = [0.5 * _data(batch, inputs, seed=i) for i in range(steps)]
    c, h, w, b = _data(batch, cells), _data(batch, cells, seed=1), 0.3 * _data(inputs + cells, 4 * cells), _data(4 * cells)
    at, options = [steps - 1, 0, 0], {"order": order, "forget_bias": 0.5}
    op = SimpleNamespace(attrs={"N": steps, "dh_steps": at, **options}, name="lstm", type="_LSTMTraining")
    never: Any = None
    forward, backward = rnn_training.lstm_training(op, never), rnn_training.lstm_training_gradient(op, never)  # type: ignore[arg-type]
    assert forward is not None and backward is not None
    found, expected = forward(*x, c, h, w, b), lstm_training.training_kernel(x, c, h, w, b, **options)
    dh, dc = [_data(batch, cells, seed=5 + k) for k in range(3)], [_data(batch, cells, seed=8)]
    state, everything, workspace = expected[steps:]
    slopes = lstm_training.training_grad_kernel(x, c, h, w, b, everything, state, workspace, dh, dc, dh_steps=at, **options)
    for a, b_ in zip(found[:-1], expected[:-1], strict=True):
        np.testing.assert_allclose(a, b_, rtol=1e-5, atol=1e-6)
    for forward_values in (found, expected):  # a workspace of its own, and none
        given = backward(*x, c, h, w, b, *(forward_values[steps + k] for k in (1, 0, 2)), *dh, *dc)
        for a, b_ in zip(given, slopes, strict=True):
            np.testing.assert_allclose(a, b_, rtol=1e-4, atol=1e-5)


def test_gradient_kernel_by_differences():
    x = [_data(2, 3, seed=i).astype(np.float64) for i in range(3)]
    c, h, w, b = (_data(*shape, seed=4).astype(np.float64) for shape in ((2, 4), (2, 4), (7, 16), (16,)))
    options, dh, dc = {"order": [0, 1, 2, 3], "forget_bias": 1.0}, [_data(2, 4, seed=6), _data(2, 4, seed=7)], [_data(2, 4, seed=8)]

    def loss() -> float:
        *_, state, everything, _ = lstm_training.training_kernel(x, c, h, w, b, **options)
        return float((everything[2] * dh[0]).sum() + (everything[1] * dh[1]).sum() + (state * dc[0]).sum())

    *_, state, everything, workspace = lstm_training.training_kernel(x, c, h, w, b, **options)
    found = lstm_training.training_grad_kernel(x, c, h, w, b, everything, state, workspace, dh, dc, dh_steps=[2, 1], **options)
    for value, slope in zip([w, b, *x, h, c], found, strict=True):
        for place in [(0,) * value.ndim, (-1,) * value.ndim]:
            before = value[place]
            value[place] = before + 1e-6
            above = loss()
            value[place] = before - 1e-6
            below = loss()
            value[place] = before
            assert (above - below) / 2e-6 == pytest.approx(slope[place], abs=1e-6)
