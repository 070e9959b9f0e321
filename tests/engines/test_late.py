"""Gradients that are products and go straight into the variable, numbers that are flushed to zero, and cross entropies of short rows."""

import tracemalloc

import numpy as np
import pytest

import penstock as tf
from penstock import errors
from penstock.engines import denormals, late
from penstock.engines.late import Later, Product
from penstock.engines.onednn import library as lib
from penstock.engines.onednn import updates
from penstock.ops import training
from penstock.ops.kernels import optimizers as f
from penstock.ops.kernels import softmax
from tests.engines.test_updates import CASES

needs_library = pytest.mark.skipif(lib.get() is None, reason="oneDNN is not there")
S = np.float32


def product(rows, columns, inner, across, rng):
    a = rng.randn(*((inner, rows) if across[0] else (rows, inner))).astype(S)
    b = rng.randn(*((columns, inner) if across[1] else (inner, columns))).astype(S)
    return Product(lambda a, b: np.matmul(a.T if across[0] else a, b.T if across[1] else b), a, b, across, (rows, columns))


@needs_library
@pytest.mark.parametrize("across", [(True, False), (False, False), (False, True), (True, True)])
@pytest.mark.parametrize("inner", [1, 5])
@pytest.mark.parametrize("name", CASES)
def test_products_go_into_variables(name, inner, across):
    formula, slots, rest, attrs = CASES[name]
    rng = np.random.RandomState(3)
    expected = [np.abs(rng.randn(130, 60)).astype(S) + S(0.1) for _ in range(slots)]
    got = [a.copy() for a in expected]
    for _ in range(3):
        gradient = product(130, 60, inner, across, rng)
        formula(*expected, *rest(np.asarray(gradient)), **attrs)
        assert updates.update(formula, got, rest(gradient), attrs)
    for a, b in zip(expected, got):
        np.testing.assert_allclose(a, b, rtol=5e-5, atol=2e-6)


@needs_library
@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_squares_that_do_not_fit_are_those_of_the_product(scale):
    """The product is an ordinary one, but the squares of its factors are not."""
    formula, _, rest, attrs = CASES["adam"]
    rng = np.random.RandomState(3)
    gradient = product(130, 60, 1, (True, False), rng)
    gradient.a *= S(scale)
    gradient.b /= S(scale)
    expected = [np.zeros((130, 60), S) for _ in range(3)]
    got = [a.copy() for a in expected]
    formula(*expected, *rest(np.asarray(gradient)), **attrs)
    assert updates.update(formula, got, rest(gradient), attrs)
    for a, b in zip(expected, got):
        np.testing.assert_allclose(a, b, rtol=5e-5, atol=1e-6)


def test_who_waits_and_who_does_not(monkeypatch):
    calls = []

    def kernel(a, b):
        calls.append(1)
        return np.matmul(a.T, b)

    later = Later(kernel, (True, False))
    monkeypatch.setattr(training, "engine", lambda *args: False)
    a, b = np.ones((2, 100), S), np.ones((2, 100), S)
    waiting = later(a, b)
    assert isinstance(waiting, Product) and waiting.shape == (100, 100) and waiting.size == 10_000 and waiting.inner == 2 and not calls
    assert (np.asarray(waiting) == 2).all() and np.asarray(waiting).dtype == S and calls
    assert isinstance(later(a[:, :5], b), np.ndarray), "a small one is quicker computed"
    assert isinstance(later(np.ones((500, 100), S), np.ones((500, 100), S)), np.ndarray), "large factors must not live on"
    assert isinstance(later(a.astype(np.float64), b.astype(np.float64)), np.ndarray)
    with pytest.raises(ValueError):
        later(a, b[:1])
    monkeypatch.setattr(training, "engine", None)
    assert isinstance(later(a, b), np.ndarray)


OPTIMIZERS = {
    "sgd": lambda: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adam": lambda: tf.train.AdamOptimizer(0.01),
}


def network(optimizer, use_resource, dims=None):
    x = tf.placeholder(tf.float32, [dims, 120], name="x")
    y = tf.placeholder(tf.int32, [dims], name="y")
    h = x
    for i, units in enumerate((130, 90, 7)):
        rng = np.random.RandomState(i)
        w = tf.get_variable(f"w{i}", initializer=(rng.randn(int(h.shape[1]), units) * 0.1).astype(S), use_resource=use_resource)
        h = tf.matmul(h, w)
        h = tf.nn.relu(h) if units != 7 else h
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=h))
    return x, y, loss, OPTIMIZERS[optimizer]().minimize(loss)


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("dims", [None, 16])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_is_the_same_op_by_op(optimizer, use_resource, dims, monkeypatch):
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    x, y, loss, train = network(optimizer, use_resource, dims)
    variables = tf.trainable_variables()
    rng = np.random.RandomState(0)
    batches = [dims or n for n in (1, 1, 40, 40, 1)]
    feeds = [{x: rng.randn(n, 120).astype(S), y: rng.randint(0, 7, n).astype(np.int32)} for n in batches]
    found = []
    for setting in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_REGIONS", setting)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            losses = [sess.run([loss, train], feed)[0] for feed in feeds]
            found.append([np.array(losses), *sess.run(variables)])
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@needs_library
def test_the_gradient_never_exists(monkeypatch):
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    made = []
    monkeypatch.setattr(late.Product, "__array__", lambda self, *args: made.append(self))
    x, y, loss, train = network("sgd", False)
    feed = {x: np.ones((4, 120), S), y: np.zeros(4, np.int32)}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(4):
            sess.run([loss, train], feed)
        peaks = []
        tracemalloc.start()
        for _ in range(5):  # threads that other tests have left may allocate as well
            tracemalloc.clear_traces()
            sess.run([loss, train], feed)
            peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert not made
    assert min(peaks) < 0.75 * 120 * 130 * 4


def test_factors_are_not_written_over(monkeypatch):
    """The factors' arrays are not used again for other results while the product waits."""
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    a, b = tf.placeholder(tf.float32, [1, 128]), tf.placeholder(tf.float32, [1, 128])
    w = tf.get_variable("w", initializer=np.zeros((128, 128), S))
    left, right = a * 2.0, b + 1.0
    gradient = tf.matmul(left, right, transpose_a=True)
    after = left
    with tf.control_dependencies([gradient]):
        for i in range(5):
            after = tf.multiply(tf.identity(after), 1.5 + i)
        more = right * 3.0 + after
    with tf.control_dependencies([more]):
        update = tf.train.GradientDescentOptimizer(1.0).apply_gradients([(tf.identity(gradient), w)])
    values = {a: np.arange(128, dtype=S)[None] / 128, b: np.arange(128, dtype=S)[None] / 64}
    for setting in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_REGIONS", setting)
        with tf.Session() as sess:
            sess.run(w.initializer)
            sess.run([more, update], values)
            np.testing.assert_allclose(sess.run(w), -np.outer(values[a] * 2, values[b] + 1), rtol=1e-5)


def test_a_fetched_gradient_and_one_with_two_readers_are_computed(monkeypatch):
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    a = tf.placeholder(tf.float32, [None, 100])
    w = tf.get_variable("w", initializer=np.zeros((100, 100), S))
    gradient = tf.matmul(a, a, transpose_a=True)
    update = tf.train.GradientDescentOptimizer(1.0).apply_gradients([(gradient, w)])
    norm = tf.reduce_sum(gradient)
    data = np.ones((2, 100), S)
    with tf.Session() as sess:
        sess.run(w.initializer)
        assert (sess.run([gradient, update], {a: data})[0] == 2).all()
        assert sess.run([norm, update], {a: data})[0] == 20_000
        sess.run(update, {a: data})
        assert (sess.run(w) == -6).all()


def test_errors_name_the_product(monkeypatch):
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    a, b = tf.placeholder(tf.float32, [None, 100]), tf.placeholder(tf.float32, [None, 100])
    w = tf.get_variable("w", initializer=np.zeros((100, 100), S))
    update = tf.train.GradientDescentOptimizer(1.0).apply_gradients([(tf.matmul(a, b, transpose_a=True, name="product"), w)])
    for setting in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_REGIONS", setting)
        with tf.Session() as sess:
            sess.run(w.initializer)
            for _ in range(2):
                with pytest.raises(errors.InvalidArgumentError, match="Matrix size-incompatible") as info:
                    sess.run(update, {a: np.ones((2, 100), S), b: np.ones((3, 100), S)})
                assert info.value.op.name == "product"
            assert not sess.run(w).any()


# -- numbers that are too small ---------------------------------------------------------------------------------------------


def test_denormals_are_zero_inside_and_stay_outside():
    small, tenth = np.full(100, 2e-38, S), S(0.1)
    with denormals.flushed():
        inside = small * tenth
    assert (small * tenth > 0).all()
    if denormals._functions is not None:
        assert not inside.any()
    with pytest.raises(ZeroDivisionError), denormals.flushed():
        raise ZeroDivisionError
    assert (small * tenth > 0).all()


@needs_library
def test_slots_of_a_zero_gradient_do_not_become_denormal():
    """`m + (0 - m) * 0.1` comes to rest where the last product is flushed, in TF too: above all denormal numbers."""
    if denormals._functions is None:
        pytest.skip("this C library cannot be told")
    var, m, v = np.ones(8000, S), np.full(8000, 2e-38, S), np.full(8000, 2e-38, S)
    _, _, rest, attrs = CASES["adam"]
    assert updates.update(f.adam, [var, m, v], rest(np.zeros(8000, S)), attrs)
    smallest = np.finfo(S).tiny
    for _ in range(20):
        assert updates.update(f.adam, [var, m, v], rest(np.zeros(8000, S)), attrs)
    assert all(np.all((x == 0) | (np.abs(x) >= smallest)) for x in (m, v))


# -- cross entropies of many short rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_short_rows_are_reduced_across(dtype, index, monkeypatch):
    rng = np.random.RandomState(1)
    logits, labels = (rng.randn(50, 9) * 4).astype(dtype), rng.randint(0, 9, 50).astype(index)
    across = softmax.sparse_softmax_cross_entropy(logits, labels)
    monkeypatch.setattr(softmax, "FEW_CLASSES", 0)
    along = softmax.sparse_softmax_cross_entropy(logits, labels)
    for a, b in zip(across, along):
        assert a.dtype == b.dtype == dtype and a.flags.c_contiguous
        np.testing.assert_allclose(a, b, rtol=2e-3 if dtype == np.float16 else 1e-5, atol=1e-6)


@pytest.mark.parametrize("label", [-1, 9])
@pytest.mark.parametrize("rows", [1, 40])
def test_labels_outside_are_errors(label, rows):
    labels = np.zeros(rows, np.int32)
    labels[-1] = label
    with pytest.raises(errors.InvalidArgumentError, match=rf"label value of {label} which is outside the valid range of \[0, 9\)"):
        softmax.sparse_softmax_cross_entropy(np.zeros((rows, 9), S), labels)
