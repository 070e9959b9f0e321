"""Runs computed tile by tile: rows, columns and reductions along the last axis in them, variables, and big reductions on threads."""

import itertools

import numpy as np
import pytest

import penstock as tf
from penstock import errors
from penstock.engines.python import elementwise, products, reductions
from penstock.ops import native
from penstock.ops.native import sweeps

from .test_generated_code import both_ways


@pytest.fixture(autouse=True, params=["ufuncs", "machine code"])
def is_exact(request, monkeypatch):
    """Tiles of ufuncs give the interpreter's bits; machine code rounds exponentials and sums of rows in its own way."""
    is_exact = request.param == "ufuncs" or not native.available()
    if is_exact:
        monkeypatch.setattr(sweeps, "compiled", lambda formula: None)
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    monkeypatch.setattr(elementwise, "MIN_SIZE", 2)
    monkeypatch.setattr(elementwise, "PARALLEL", 64)


def data(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def test_layer_norm_and_its_gradient_are_two_runs(monkeypatch, is_exact):
    """Where somebody reads what is inside; else it is one node (`test_rows.py`)."""
    x = tf.placeholder(tf.float32, [4, 9, 32])
    gamma, beta = (tf.get_variable(n, initializer=data(32, seed=i), use_resource=False) for i, n in enumerate(("gamma", "beta")))
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    y = tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-6)
    loss = tf.reduce_max(tf.square(y) * 0.5)
    _, code = both_ways(monkeypatch, [y, loss, variance], {x: data(4, 9, 32)}, tf.global_variables_initializer(), is_exact=is_exact)
    assert code.count("def tile_") == 1 and "add_rows_" in code
    both_ways(monkeypatch, [variance, *tf.gradients(y * y, [x])], {x: data(4, 9, 32)}, tf.global_variables_initializer(), is_exact=is_exact)


def test_softmax_written_as_ops(monkeypatch, is_exact):
    x, bias = tf.placeholder(tf.float32, [None, 40]), tf.placeholder(tf.float32, [40])
    z = x + bias
    e = tf.exp(z - tf.reduce_max(z, 1, keepdims=True))
    y = tf.maximum(e / tf.reduce_sum(e, -1, keepdims=True), 0.01)
    _, code = both_ways(monkeypatch, y, {x: data(33, 40), bias: data(40, seed=1)}, is_exact=is_exact)
    assert code.count("def tile_") == 1 and "maximum_rows_" in code


def test_rows_and_columns_of_other_shapes_than_expected(monkeypatch):
    """What a function gives is only claimed to have a shape."""
    x = tf.placeholder(tf.float32, [6, 32])
    row = tf.py_func(lambda v: v[:1, :1] * np.float32(2), [x], tf.float32)
    row.set_shape([32])
    y = tf.tanh(x * 2.0 + row) - tf.reduce_sum(x, 1, keepdims=True)
    both_ways(monkeypatch, y, {x: data(6, 32)})


@pytest.mark.parametrize("kind", ["SigmoidGrad", "RsqrtGrad", "TanhGrad", "AddN"])
def test_nodes_of_several_ufuncs(monkeypatch, kind):
    x, y = tf.placeholder(tf.float32, [5, 20]), tf.placeholder(tf.float32, [5, 20])
    made = tf.add_n([x, y, x]) if kind == "AddN" else getattr(tf.raw_ops, kind)(y=x, dy=y)
    both_ways(monkeypatch, [made, made * 2.0 + y], {x: abs(data(5, 20)) + 0.5, y: data(5, 20, seed=1)})


EDGES = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 6.0, -1e-45, 7.0], np.float32)


@pytest.mark.parametrize("kind, slope", [("Relu6Grad", None), *(("LeakyReluGrad", slope) for slope in (0.2, 0.0, 1.0, 1.5, -0.5))])
def test_gradients_of_bent_lines(monkeypatch, kind, slope):
    x, y = tf.placeholder(tf.float32, [8, 16]), tf.placeholder(tf.float32, [8, 16])
    made = getattr(tf.raw_ops, kind)(gradients=x, features=y, **({} if slope is None else {"alpha": slope}))
    gradients, features = data(8, 16), data(8, 16, seed=1) * 4
    gradients[:, 0], features[0, :8] = EDGES, EDGES
    with np.errstate(all="ignore"):
        (got, _), code = both_ways(monkeypatch, [made, made * 2.0 + y], {x: gradients, y: features})
        flat = gradients * np.float32(slope or 0.0)
    is_straight = (features > 0) & (features < 6) if slope is None else features > 0
    np.testing.assert_array_equal(got, np.where(is_straight, gradients, flat))
    assert (f" = {kind}\n" in code.partition("def tile_")[2]) == (slope is None or 0 <= slope <= 1)


@pytest.mark.parametrize("slope", [0.2, 0.0, 1.0, 1.5, -0.5])
def test_leaky_relu(monkeypatch, slope):
    x = tf.placeholder(tf.float32, [8, 16])
    values = data(8, 16)
    values[0, :8] = EDGES
    with np.errstate(all="ignore"):
        (got, _), code = both_ways(monkeypatch, [tf.nn.leaky_relu(x, slope), tf.nn.leaky_relu(x, slope) * 2.0], {x: values})
        expected = np.where(values > 0, values, values * np.float32(slope))
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
    assert (" = LeakyRelu\n" in code.partition("def tile_")[2]) == (0 < slope <= 1)


def test_numbers_next_to_maximum(monkeypatch):
    x, low = tf.placeholder(tf.float32, [7, 16]), tf.placeholder(tf.float32, [])
    y = tf.nn.relu6(tf.minimum(tf.maximum(x * 3.0, low), 2.5) + x)
    values = data(7, 16)
    values[0, :4] = [0.0, -0.0, np.nan, -np.inf]
    for number in (0.0, -0.0, -1.5, np.nan):
        both_ways(monkeypatch, y, {x: values, low: np.float32(number)})


def test_variables_in_runs_are_read_before_they_change(monkeypatch, is_exact):
    v = tf.Variable(data(64), name="v", use_resource=False)
    before = tf.exp(v * 0.5) + v
    with tf.control_dependencies([before]):
        change = tf.assign_add(v, tf.ones([64]))
    with tf.control_dependencies([change]):
        after = (v * 0.25 + before) * v
    _, code = both_ways(monkeypatch, [before, after], None, tf.global_variables_initializer(), is_exact=is_exact)
    assert "w0 = w0 if (w0 := " in code
    for setting in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_REGIONS", setting)
        with tf.Session() as sess, pytest.raises(errors.FailedPreconditionError, match="uninitialized value v"):
            sess.run(before)


def test_several_steps_of_one_node_read_a_variable_at_once(monkeypatch, is_exact):
    """And before it changes."""
    v, w = (tf.Variable(data(64, seed=i), name=n, use_resource=False) for i, n in enumerate("vw"))
    fetches = [tf.nn.relu(v), tf.nn.relu6(v * 4.0), tf.sigmoid(v), tf.rsqrt(tf.abs(v)), tf.squared_difference(v, w), tf.add_n([v, w, v]), tf.nn.leaky_relu(v)]
    with tf.control_dependencies(fetches):
        change = tf.assign_sub(v, tf.ones([64]) * 0.5)
    with tf.control_dependencies([change]):
        fetches += [tf.nn.relu(v), tf.sigmoid(v) * tf.nn.relu(w)]
    _, code = both_ways(monkeypatch, fetches, None, tf.global_variables_initializer(), is_exact=is_exact)
    assert " = Relu\n" in code.partition("def tile_")[2]
    for setting in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_REGIONS", setting)
        with tf.Session() as sess, pytest.raises(errors.FailedPreconditionError, match="uninitialized value v"):
            sess.run(fetches[2])


@pytest.mark.parametrize("shape", [(300,), (7, 33), (100, 1), (4, 5, 6), (33, 129), (5, 6, 9, 10)])
def test_big_reductions(monkeypatch, shape):
    for name, value in (("LARGE", 1), ("PIECE", 100), ("NARROWEST", 8)):
        monkeypatch.setattr(reductions, name, value)
    x = data(*shape)
    for n in range(1, len(shape) + 1):
        for axes, ufunc, keep in itertools.product(itertools.combinations(range(len(shape)), n), (np.add, np.maximum), (False, True)):
            expected = ufunc.reduce(x, axes, None, None, keep)
            found = reductions.reducer(ufunc)(x, axes[0] if n == 1 else axes, None, None, keep)
            assert found.dtype == expected.dtype and found.shape == expected.shape
            if ufunc is np.add and n == len(shape):
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
            else:
                np.testing.assert_array_equal(found, expected)


def test_reductions_of_variables(monkeypatch):
    monkeypatch.setattr(reductions, "LARGE", 1)
    v = tf.Variable(data(8, 40), name="v", use_resource=False)
    fetches = [tf.reduce_mean(v, 1), tf.reduce_max(v, 0), tf.reduce_sum(v, 1, keepdims=True), tf.reduce_mean(v, [0, 1])]
    _, code = both_ways(monkeypatch, fetches, None, tf.global_variables_initializer())
    assert code.count("_reduce_") == 4


def test_a_total_is_added_in_order(monkeypatch):
    """Whichever batch is ready first. Where machine code adds products, tests/ops/test_added_products.py looks."""
    monkeypatch.setattr(products, "WORTH", 1)
    monkeypatch.setattr(products.added_products, "fits", lambda *size: False)
    monkeypatch.setattr(elementwise, "MIN_SIZE", 1 << 16)
    x = tf.placeholder(tf.float32, [32, 32])
    total = tf.add_n([tf.matmul(x, tf.constant(data(32, 32, seed=i))) for i in range(37)])
    _, code = both_ways(monkeypatch, total, {x: data(32, 32)}, runs=5)
    assert "added as" in code
    parts = data(13, 4, 4)
    for order in (range(5), reversed(range(5)), (3, 0, 4, 2, 1)):
        sum_ = products._Total(parts.copy(), 3)
        for number in order:
            sum_.add(number)
        expected = parts[0]
        for part in parts[1:]:
            expected = expected + part
        np.testing.assert_array_equal(sum_.value, expected)
