"""Training ops on large variables through oneDNN, products with one BLAS thread, sums of products; and that none of it copies weights."""

import threading
import tracemalloc

import numpy as np
import pytest

import penstock as tf
from penstock.engines.onednn import library as lib
from penstock.engines.onednn import updates
from penstock.ops import resources
from penstock.ops.kernels import blas
from penstock.ops.kernels import optimizers as f
from penstock.ops.kernels.segments import reduce_rows

needs_library = pytest.mark.skipif(lib.get() is None, reason="oneDNN is not there")

S = np.float32
CASES = {
    "descent": (f.gradient_descent, 1, lambda g: (S(0.1), g), {}),
    "momentum": (f.momentum, 2, lambda g: (S(0.1), g, S(0.9)), {"use_nesterov": False}),
    "nesterov": (f.momentum, 2, lambda g: (S(0.1), g, S(0.9)), {"use_nesterov": True}),
    "adagrad": (f.adagrad, 2, lambda g: (S(0.1), g), {"update_slots": True}),
    "adagrad, fixed slots": (f.adagrad, 2, lambda g: (S(0.1), g), {"update_slots": False}),
    "adagrad v2": (f.adagrad_v2, 2, lambda g: (S(0.1), S(1e-3), g), {"update_slots": True}),
    "adam": (f.adam, 3, lambda g: (S(0.9), S(0.999), S(0.01), S(0.9), S(0.999), S(1e-8), g), {"use_nesterov": False}),
    "rmsprop": (f.rmsprop, 3, lambda g: (S(0.01), S(0.9), S(0.5), S(1e-8), g), {}),
}


@needs_library
@pytest.mark.parametrize("size", [(100, 77), (400, 512)])
@pytest.mark.parametrize("name", CASES)
def test_updates_agree_with_the_formula(name, size):
    formula, slots, rest, attrs = CASES[name]
    rng = np.random.RandomState(0)
    expected = [np.abs(rng.randn(*size)).astype(S) + S(0.1) for _ in range(slots)]
    got = [a.copy() for a in expected]
    held = [id(a) for a in got]
    gradient = rng.randn(*size[::-1]).astype(S).T  # as a transposed view
    for _ in range(3):
        formula(*expected, *rest(gradient), **attrs)
        assert updates.update(formula, got, rest(gradient), attrs)
    for a, b in zip(expected, got):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    assert [id(a) for a in got] == held


@needs_library
@pytest.mark.parametrize("threads", [1, 2])
def test_machine_code_for_products_is_written_aside_once(threads, monkeypatch):
    library, called = lib.load(), []
    sgemm = library.sgemm
    monkeypatch.setattr(library, "sgemm", lambda *args: called.append(threading.current_thread().name) or sgemm(*args))
    monkeypatch.setattr(lib, "budget", lambda: threads)
    for _ in range(2):
        library.prepare_products()
    if threads == 1:  # there is no core for it
        assert library.preparing is None and not called
    else:
        library.preparing.join(20)
        assert called == ["penstock-onednn"] and not library.preparing.is_alive()


@needs_library
@pytest.mark.parametrize("name", ["descent", "momentum", "adam"])
def test_only_updates_of_matrices_want_products(name, monkeypatch):
    """Machine code for products takes 5 MB."""
    formula, slots, rest, attrs = CASES[name]
    wanted = []
    monkeypatch.setattr(lib.get(), "prepare_products", lambda: wanted.append(shape))
    for shape in [(3, 3, 16, 51), (51 * 144,), (144, 51)]:
        arrays = [np.ones(shape, S) for _ in range(slots)]
        assert updates.update(formula, arrays, rest(np.ones(shape, S)), attrs)
    assert wanted == [(144, 51)]


@needs_library
def test_an_unknown_formula_and_a_switched_off_engine_are_left_alone(monkeypatch):
    var, grad = np.ones(10_000, S), np.ones(10_000, S)
    assert not updates.update(f.add_sign, [var, var.copy()], (S(1), S(1), S(1), S(1), grad), {})
    monkeypatch.setenv("PENSTOCK_ENGINES", "numpy")
    assert not updates.update(f.gradient_descent, [var], (S(1), grad), {})
    assert (var == 1).all()


@pytest.mark.parametrize("engines", ["numpy", "onednn"])
@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("optimizer", [tf.train.GradientDescentOptimizer(0.1), tf.train.AdamOptimizer(0.1)], ids=["sgd", "adam"])
def test_a_training_step_holds_no_second_copy_of_the_weights(engines, use_resource, optimizer, monkeypatch):
    monkeypatch.setenv("PENSTOCK_ENGINES", engines)
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    w = tf.get_variable("w", initializer=np.full((1000, 1000), 0.5, np.float32), use_resource=use_resource)
    x = tf.placeholder(tf.float32, [1, 1000])
    train = optimizer.minimize(tf.reduce_sum(tf.matmul(x, w)))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        feeds = {x: np.ones((1, 1000), np.float32)}
        for _ in range(6):  # the first update parts the variable from its initial value
            sess.run(train, feeds)
        peaks = []
        tracemalloc.start()
        for _ in range(5):  # threads that other tests have left may allocate as well
            tracemalloc.clear_traces()
            sess.run(train, feeds)
            peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert min(peaks) < 1.5 * w.shape.num_elements() * 4, "the gradient is one array as large as the weights, and nothing else is"


def test_an_array_alone_in_its_memory_becomes_a_variable_without_a_copy():
    buffer = np.empty(400 + 64, np.uint8)
    value = np.ndarray((100,), np.float32, buffer, 16)
    del buffer
    ref = resources.Ref(tf.float32, (100,), "v")
    ref.assign(value)
    assert ref.value is value
    where = value.ctypes.data
    del value
    with ref.lock:
        taken = ref.take()
    assert taken.ctypes.data == where


def test_views_of_what_others_see_are_copied():
    whole = np.zeros(100, np.float32)
    ref = resources.Ref(tf.float32, (100,), "v")
    ref.assign(whole[:])
    assert not np.shares_memory(ref.value, whole)
    ref.assign(np.zeros(100_000, np.float32)[:10])  # a small part of a big array that nobody else holds
    assert ref.value.base is None


def test_one_variable_as_two_arguments():
    ref = resources.Ref(tf.float32, (3,), "v")
    ref.assign(np.arange(3, dtype=np.float32))
    with resources.Owned(ref, ref) as (a, b):
        assert a is b
        a += 1
    assert ref.read().tolist() == [1, 2, 3]


# -- products -----------------------------------------------------------------------------------------------------------


def test_blas_gets_its_threads_back():
    functions = blas._functions()
    if functions is None:
        pytest.skip("NumPy has another BLAS")
    get, put = functions
    before = get()
    put(2)
    try:
        seen = []
        run = blas.alone(lambda: seen.append(get()))
        run()
        failing = blas.alone(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            failing()
        assert seen == [1] and get() == 2
    finally:
        put(before)


@pytest.mark.parametrize("rows, columns, inner", [(1, 300, 200), (300, 1, 200), (300, 200, 1), (1, 1, 5)])
def test_products_with_vectors(rows, columns, inner):
    rng = np.random.RandomState(0)
    a, b = rng.randn(rows, inner).astype(np.float32), rng.randn(inner, columns).astype(np.float32)
    products = [
        tf.matmul(a, b), tf.matmul(a.T.copy(), b, transpose_a=True), tf.matmul(a, b.T.copy(), transpose_b=True),
        tf.matmul(a.T.copy(), b.T.copy(), transpose_a=True, transpose_b=True),
    ]  # fmt: skip
    x = tf.placeholder(tf.float32, a.shape)
    with tf.Session() as sess:
        for got in sess.run([*products, tf.matmul(x, b)], {x: a}):
            np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-4)


@needs_library
def test_a_weight_used_in_every_step_of_an_unrolled_loop():
    rng = np.random.RandomState(0)
    data = [rng.randn(8, 64).astype(np.float32) for _ in range(4)]
    w = tf.placeholder(tf.float32, [64, 96])
    inputs = [tf.placeholder(tf.float32, [8, 64]) for _ in data]
    loss = tf.add_n([tf.reduce_sum(tf.square(tf.matmul(x, w))) for x in inputs])
    (gradient,) = tf.gradients(loss, [w])
    value = rng.randn(64, 96).astype(np.float32)
    feeds = {w: value, **dict(zip(inputs, data))}
    with tf.Session() as sess:
        got = sess.run(gradient, feeds)
        assert "_SumOfProducts" in {op.type for stage in sess.explain(gradient, feeds).stages if stage.name == "optimise/remapping" for op in stage.graph}
    np.testing.assert_allclose(got, sum(2 * x.T @ (x @ value) for x in data), rtol=1e-4, atol=1e-3)


def test_sums_of_few_rows():
    rng = np.random.RandomState(0)
    rows, ids = rng.randn(50, 6).astype(np.float32), rng.randint(0, 30, 50)
    expected = np.zeros((40, 6), np.float32)
    np.add.at(expected, ids, rows)
    np.testing.assert_allclose(reduce_rows(np.add, rows, ids, 40, np.float32(0)), expected, rtol=1e-5, atol=1e-6)


# -- numbers that are infinite, or none -------------------------------------------------------------------------------------

ODD = np.array([0, -0.0, 1, -1.5, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-30, 1e20], np.float32)


def odd(count):
    """All combinations of odd numbers for so many arrays, large enough for the engine."""
    grids = np.meshgrid(*[ODD] * count, indexing="ij")
    return [np.tile(g.ravel(), -(-8192 // g.size)) for g in grids]


def told(name, numbers, **attrs):
    return pytest.param(name, [np.float32(n) for n in numbers], attrs, id=f"{name}{numbers}{list(attrs.values())}")


@needs_library
@pytest.mark.parametrize(("name", "numbers", "attrs"), [
    *(told("gradient_descent", [rate]) for rate in (0.1, 0, np.inf, np.nan)),
    *(told("momentum", [rate, momentum], use_nesterov=n) for rate in (0.1, 0) for momentum in (0.9, 0, 1) for n in (False, True)),
    *(told("adagrad", [rate], update_slots=on) for rate in (0.1, 0) for on in (False, True)),
    *(told("adam", [0.9, 0.999, rate, b1, b2, e], use_nesterov=False) for rate in (0.1, 0) for b1 in (0.9, 0, 1) for b2 in (0.999, 0, 1) for e in (1e-8, 0)),
    *(told("rmsprop", [rate, rho, momentum, e]) for rate in (0.1, 0) for rho in (0.9, 0, 1) for momentum in (0.9, 0) for e in (1e-10, 0)),
])  # fmt: skip
def test_what_is_no_number_comes_out_as_the_formula_says(name, numbers, attrs):
    formula = getattr(f, name)
    slots = {"gradient_descent": 1, "momentum": 2, "adagrad": 2}.get(name, 3)
    *arrays, gradient = odd(slots + 1)
    rest = [numbers[0], gradient, numbers[1]] if name == "momentum" else [*numbers, gradient]
    ours, expected = [a.copy() for a in arrays], [a.copy() for a in arrays]
    assert updates.update(formula, ours, rest, attrs) or not np.isfinite(numbers).all()
    with np.errstate(all="ignore"):
        formula(*expected, *rest, **attrs)
        for a, b, before in zip(ours, expected, arrays):
            # Beside what nearly cancels out, rounding is all there is.
            near = np.isclose(a, b, rtol=1e-5, atol=1e-37, equal_nan=True) | (np.abs(a - b) <= 1e-6 * np.abs(before))
            assert near.all(), [(x[~near][:3]) for x in (*arrays, gradient, a, b)]


@needs_library
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("make", [
    lambda: tf.train.GradientDescentOptimizer(0.0), lambda: tf.train.MomentumOptimizer(0.1, 0.0), lambda: tf.train.MomentumOptimizer(0.0, 0.9),
    lambda: tf.train.AdamOptimizer(0.1), lambda: tf.train.AdamOptimizer(0.1, beta1=0.0), lambda: tf.train.AdamOptimizer(0.1, beta2=0.0),
], ids=["descent, lr 0", "momentum 0", "momentum, lr 0", "adam", "adam, beta1 0", "adam, beta2 0"])  # fmt: skip
@pytest.mark.parametrize("special", [np.inf, np.nan, 1e25])
def test_products_that_come_late_hide_nothing(rows, make, special, monkeypatch):
    """BLAS takes a factor of zero for "leave out"; and infinite slots are NaN after the next step, by the formula."""

    def trained():
        with tf.Graph().as_default(), tf.Session() as sess:
            w = tf.Variable(np.full((128, 100), 0.5, S))
            a, b = tf.placeholder(tf.float32, [rows, 128]), tf.placeholder(tf.float32, [rows, 100])
            optimizer = make()
            train = optimizer.apply_gradients([(tf.matmul(a, b, transpose_a=True), w)])
            sess.run(tf.global_variables_initializer())
            rng = np.random.RandomState(1)
            for step in range(6):
                fed = {a: rng.randn(rows, 128).astype(S), b: rng.randn(rows, 100).astype(S)}
                if step == 4:
                    fed[a][0, 3], fed[b][0, :5] = special, 1e10
                sess.run(train, fed)
            return sess.run([w, *(optimizer.get_slot(w, name) for name in optimizer.get_slot_names())])

    got = trained()
    monkeypatch.setattr("penstock.ops.training.engine", None)
    for x, y in zip(got, trained(), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)
        assert np.array_equal(np.isnan(x), np.isnan(y))


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3,)])
@pytest.mark.parametrize("name", [n for n in dir(tf.train) if n.endswith("Optimizer") and n not in ("Optimizer", "SyncReplicasOptimizer", "AdagradDAOptimizer")])
def test_every_optimizer_trains_single_numbers_and_nothing(name, shape, use_resource):
    optimizer = getattr(tf.train, name)(*((0.1, 0.9) if name == "MomentumOptimizer" else (0.1,)))
    w = tf.get_variable("w", initializer=np.full(shape, 0.5, S), use_resource=use_resource)
    train = optimizer.minimize(tf.reduce_sum((w - 3.0) ** 2))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(4):
            sess.run(train)
        value = sess.run(w)
    assert value.shape == shape and (value > 0.5).all() and (value < 6).all()
