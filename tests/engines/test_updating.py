"""Updates of several variables in one call, and variables that are looked up once."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import penstock as tf
from penstock.engines.python.handles import Remembered
from penstock.ops import native, resources, training

SIZES = (5, 40, 3)


@pytest.fixture(params=["loop", "kernels"])
def eager(request, monkeypatch):
    """Generated code from the first step on, with loops in machine code at once or never."""
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    if request.param == "loop" and not native.available():
        pytest.skip("no AVX-512 here")
    for loops, _, _ in training._TOGETHER.values():
        monkeypatch.setattr(loops, "_patience", 0 if request.param == "loop" else 1 << 30)


def _model(optimizer):
    """A variable for each size, gradients that are fed, and the training op."""
    variables = [tf.get_variable(f"v{i}", initializer=np.linspace(-1, 1, n, dtype=np.float32)) for i, n in enumerate(SIZES)]
    gradients = [tf.placeholder(tf.float32, None, name=f"g{i}") for i in range(len(SIZES))]
    return variables, gradients, optimizer.apply_gradients(list(zip(gradients, variables)))


def _values(seed):
    random = np.random.RandomState(seed)
    return [random.randn(n).astype(np.float32) for n in SIZES]


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: tf.train.GradientDescentOptimizer(0.1),
        lambda: tf.train.MomentumOptimizer(0.1, 0.9),
        lambda: tf.train.AdamOptimizer(tf.Variable(0.01, trainable=False)),
        lambda: tf.train.RMSPropOptimizer(0.1, momentum=0.5),
        lambda: tf.train.AdagradOptimizer(0.1),
        lambda: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    ],
)
def test_the_numbers_are_the_same(monkeypatch, eager, optimizer):
    found = []
    for setting in ("eager", "0"):
        monkeypatch.setenv("PENSTOCK_REGIONS", setting)
        with tf.Graph().as_default(), tf.Session() as sess:
            variables, gradients, train = _model(optimizer())
            sess.run(tf.global_variables_initializer())
            feeds = [dict(zip(gradients, _values(seed))) for seed in range(4)]
            if setting == "eager":
                assert "done = together" in sess.explain(train, feeds[0]).code
            for feed in feeds:
                sess.run(train, feed)
            found.append(sess.run(tf.global_variables()))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_gradient_of_the_wrong_shape(eager):
    """The node at fault is named; what stands before it has been done, what stands behind it has not."""
    variables, gradients, train = _model(tf.train.MomentumOptimizer(0.1, 0.9))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        before = sess.run(variables)
        values = _values(0)
        values[1] = values[1][:7]
        with pytest.raises(tf.errors.InvalidArgumentError, match="do not have the same shape") as caught:
            sess.run(train, dict(zip(gradients, values)))
        assert caught.value.op.name == "Momentum/update_v1/ApplyMomentum"
        after = sess.run(variables)
    assert (before[0] != after[0]).all()
    np.testing.assert_array_equal(before[1], after[1])
    np.testing.assert_array_equal(before[2], after[2])


def test_a_variable_without_a_value(eager):
    variables, gradients, train = _model(tf.train.MomentumOptimizer(0.1, 0.9))
    with tf.Session() as sess:
        sess.run([v.initializer for v in tf.global_variables() if v is not variables[2]])
        with pytest.raises(tf.errors.FailedPreconditionError, match="v2") as caught:
            sess.run(train, dict(zip(gradients, _values(0))))
        assert caught.value.op.name == "Momentum/update_v2/ApplyMomentum"


def test_what_a_loop_does_not_do_is_done_by_the_kernel(eager):
    """A gradient that is a view of another array, between two that are not."""
    variables, gradients, train = _model(tf.train.MomentumOptimizer(1.0, 0.0))
    turned = [gradients[0], tf.reverse(gradients[1], [0]), gradients[2]]
    with tf.Session() as sess:
        train = tf.train.MomentumOptimizer(1.0, 0.0, name="again").apply_gradients(list(zip(turned, variables)))
        sess.run(tf.global_variables_initializer())
        before, values = sess.run(variables), _values(1)
        sess.run(train, dict(zip(gradients, values)))
        after = sess.run(variables)
    for old, new, change in zip(before, after, [values[0], values[1][::-1], values[2]], strict=True):
        np.testing.assert_allclose(new, old - change, rtol=1e-6)


def test_handles_are_remembered_while_nothing_is_deleted():
    class Context:
        def __init__(self):
            self.resources = type("Resources", (), {"version": 3})()

    one, other = Context(), Context()
    known = Remembered()
    assert known(one) is None
    known.keep(one, 3, ("a", "b"))
    assert known(one) == ("a", "b") and known(other) is None
    one.resources.version += 1
    assert known(one) is None


def test_a_variable_that_is_made_anew(monkeypatch):
    """The same code, after what it has looked up is gone."""
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    with tf.container("mine"):
        variables = [tf.get_variable(f"u{i}", initializer=float(i), use_resource=False) for i in range(4)]
    total = tf.add_n([v * 2.0 for v in variables])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(total) == sess.run(total) == 12
    with tf.Session() as sess:
        with pytest.raises(tf.errors.FailedPreconditionError):
            sess.run(total)
        sess.run(tf.global_variables_initializer())
        assert sess.run(total) == 12


def _variable(value):
    variable = resources.Ref(tf.as_dtype(value.dtype), value.shape)
    variable.assign(value)
    return variable


@pytest.mark.skipif(not native.available(), reason="no machine code here")
def test_variables_that_are_not_free(monkeypatch):
    """One whose value somebody else still has is copied, one that a thread works on is waited for, one that comes twice is updated twice; other types and large groups take more than one call."""
    at_once, slots, at = training.together("ApplyMomentum", {"use_nesterov": False})
    assert (slots, at) == (2, (3,))
    monkeypatch.setattr(training._TOGETHER["ApplyMomentum"][0], "_patience", 0)
    sizes, types = (5, 7, 3, 8000, 8000, 8000, 8000, 8000, 1, 64), [np.float32] * 8 + [np.float64] * 2
    start = [np.linspace(-1, 1, n, dtype=t) for n, t in zip(sizes, types)]
    variables, sums = [_variable(a) for a in start], [_variable(np.zeros_like(a)) for a in start]
    gradients = [np.random.RandomState(i).randn(n).astype(t) for i, (n, t) in enumerate(zip(sizes, types))]
    rows = [*zip(variables, sums, gradients)]
    rows.insert(2, rows[0])
    kept = variables[1].value
    want_kept = kept.copy()
    busy, go = threading.Event(), threading.Event()

    def work():
        with resources.Owned(variables[3]) as (array,):
            busy.set()
            go.wait(30)
            array += 1

    thread = threading.Thread(target=work)
    thread.start()
    assert busy.wait(30)
    threading.Timer(0.05, go.set).start()
    numbers = [np.float32(0.1), np.float32(0.9)]
    assert at_once(tuple(rows[:9]), numbers) == 9
    assert at_once(tuple(rows[9:]), [np.float64(n) for n in numbers]) == 2
    thread.join()
    for i, (variable, total, gradient, first) in enumerate(zip(variables, sums, gradients, start)):
        rate, keep = (gradient.dtype.type(n) for n in numbers)
        value, accum = first + (i == 3), np.zeros_like(first)
        for _ in range(1 + (i == 0)):
            accum = accum * keep + gradient
            value = value - accum * rate
        np.testing.assert_array_equal(variable.read(), value)
        np.testing.assert_array_equal(total.read(), accum)
        assert variable.lock.acquire(False) and total.lock.acquire(False)
    np.testing.assert_array_equal(kept, want_kept)
    assert variables[1].value is not kept


@pytest.mark.skipif(not native.available(), reason="no machine code here")
@pytest.mark.parametrize("wrong", ["gradient", "slot", "type", "no value"])
def test_where_a_group_stops(wrong, monkeypatch):
    """At the one that the loop does not do: those before it are done, it and those behind are as they were, and nothing stays locked."""
    at_once, _, _ = training.together("ApplyMomentum", {"use_nesterov": False})
    monkeypatch.setattr(training._TOGETHER["ApplyMomentum"][0], "_patience", 0)
    rows = [(_variable(np.ones(4, np.float32)), _variable(np.zeros(4, np.float32)), np.ones(4, np.float32)) for _ in range(4)]
    bad = {
        "gradient": lambda v, s, g: (v, s, g[:3]), "slot": lambda v, s, g: (v, _variable(np.zeros(3, np.float32)), g),
        "type": lambda v, s, g: (_variable(np.ones(4, np.int32)), _variable(np.zeros(4, np.int32)), g), "no value": lambda v, s, g: (v, resources.Ref(tf.float32, (4,)), g),
    }  # fmt: skip
    rows[2] = bad[wrong](*rows[2])
    assert at_once(tuple(rows), [np.float32(0.5), np.float32(0.9)]) == 2
    assert [float(v.value[0]) for v, _, _ in rows] == [0.5, 0.5, 1, 1]
    other = ThreadPoolExecutor(1)
    assert all(other.submit(ref.lock.acquire, False).result() for row in rows for ref in row[:2])
    other.shutdown()
