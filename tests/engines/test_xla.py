"""XLA on CPUs: what hot regions compute through it, and when they do not."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import penstock as tf

pytest.importorskip("jax")

from penstock.engines.xla import backend, hot, varying
from penstock.engines.xla.hot import HotProgram, HotStateProgram
from penstock.ops import bundles
from penstock.runtime.executor import compiled


@pytest.fixture
def eager(monkeypatch):
    monkeypatch.setenv("PENSTOCK_XLA", "eager")
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")


@pytest.fixture
def calls(monkeypatch):
    """How often a compiled form was called."""
    seen = []
    real = HotProgram._through_xla
    monkeypatch.setattr(HotProgram, "_through_xla", lambda self, *args: seen.append(self) or real(self, *args))
    whole = HotStateProgram._run
    monkeypatch.setattr(HotStateProgram, "_run", lambda self, *args: seen.append(self) or whole(self, *args))
    return seen


def run(fetches, feeds=(), steps=3, init=None):
    with tf.Session() as sess:
        if init is not None:
            sess.run(init)
        return [sess.run(fetches, dict(feeds)) for _ in range(steps)]


def both(build, monkeypatch, feeds_of=lambda *_: {}, steps=3):
    """Results without XLA and with it."""
    results = []
    for setting in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_XLA", setting)
        monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
        with tf.Graph().as_default():
            tf.set_random_seed(7)
            fetches, init, feeds = build()
            results.append(run(fetches, feeds, steps, init))
    return results


def chain():
    x = tf.placeholder(tf.float32, (4, 3))
    y = x
    for i in range(30):
        y = tf.tanh(y * 1.1 + 0.1 * i) - tf.reduce_mean(y, axis=1, keepdims=True)
    return y, None, {x: np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)}


def test_a_chain_agrees(monkeypatch, calls):
    plain, xla = both(chain, monkeypatch)
    np.testing.assert_allclose(xla, plain, rtol=2e-5, atol=1e-6)
    assert len(calls) >= 2  # from the second step on


def loop():
    x = tf.placeholder(tf.float32, ())
    count, total = tf.while_loop(lambda i, s: i < 50, lambda i, s: (i + 1, s * 0.9 + tf.cast(i, tf.float32)), [tf.constant(0), x])
    return [count, total], None, {x: 3.0}


def test_a_loop_agrees(monkeypatch, calls):
    plain, xla = both(loop, monkeypatch)
    assert [r[0] for r in xla] == [50, 50, 50]
    np.testing.assert_allclose([r[1] for r in xla], [r[1] for r in plain], rtol=1e-5)
    assert calls


@pytest.mark.parametrize("rows, is_part", [(4, True), (200, False)])
def test_products_in_a_loop_are_part_of_it_if_they_are_short(monkeypatch, calls, rows, is_part):
    """By what they compute, not by how long their rows are; a bias and an activation behind them make no difference."""

    def build():
        w = np.random.RandomState(0).randn(128, 128).astype(np.float32) / 12
        x, bias = tf.placeholder(tf.float32, (rows, 128)), tf.constant(np.linspace(-1, 1, 128, dtype=np.float32))
        _, y = tf.while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, tf.tanh(tf.nn.bias_add(tf.matmul(v, w), bias))), [0, x])
        return y, None, {x: np.ones((rows, 128), np.float32)}

    plain, xla = both(build, monkeypatch)
    np.testing.assert_allclose(xla, plain, rtol=2e-5, atol=1e-5)
    assert any("while/Tanh" in program._names for program in calls) == is_part


def test_nested_control_flow_agrees(monkeypatch, calls):
    def build():
        x = tf.placeholder(tf.float32, (3,))

        def body(i, v):
            _, inner = tf.while_loop(lambda j, _: j < i, lambda j, u: (j + 1, u + 1.5), [0, v])
            return i + 1, tf.cond(tf.reduce_sum(inner) > 40.0, lambda: inner * 0.5, lambda: inner + 1.0)

        return tf.while_loop(lambda i, v: i < 8, body, [0, x]), None, {x: np.arange(3, dtype=np.float32)}

    plain, xla = both(build, monkeypatch)
    for a, b in zip(plain, xla):
        assert a[0] == b[0] == 8
        np.testing.assert_allclose(a[1], b[1], rtol=1e-5)
    assert calls


def test_a_value_after_a_loop_that_its_condition_made(monkeypatch):
    def build():
        n = tf.placeholder(tf.int32, ())
        return tf.while_loop(lambda i, s: tf.logical_and(i < n, s < 100), lambda i, s: (i + 1, s + i), [0, 0]), None, {n: 9}

    plain, xla = both(build, monkeypatch)
    assert plain == xla == [(9, 36)] * 3 or [tuple(r) for r in plain] == [tuple(r) for r in xla]


def test_variables_are_read_and_written_around_it(monkeypatch, calls):
    def build():
        v = tf.get_variable("v", initializer=np.ones((3, 2), np.float32), use_resource=True)
        r = tf.get_variable("r", initializer=np.ones((2,), np.float32), use_resource=False)
        y = v * 1.0
        for _ in range(15):
            y = tf.sin(y) + r * 0.1
        with tf.control_dependencies([v.assign_add(y)]):
            with tf.control_dependencies([r.assign(r + tf.reduce_mean(y, 0))]):
                after = [v.read_value() * 1.0, tf.identity(r) + 0.0]
        return [y, *after], tf.global_variables_initializer(), {}

    plain, xla = both(build, monkeypatch, steps=4)
    for a, b in zip(plain, xla):
        for p, q in zip(a, b):
            np.testing.assert_allclose(p, q, rtol=2e-5)
    assert calls


def small_net(optimizer, resource):
    def build():
        x = tf.placeholder(tf.float32, (None, 5))
        labels = tf.placeholder(tf.int32, (None,))
        with tf.variable_scope("net", use_resource=resource):
            h = tf.layers.dense(x, 7, tf.nn.relu, kernel_initializer=tf.initializers.glorot_uniform(seed=1))
            logits = tf.layers.dense(h, 3, kernel_initializer=tf.initializers.glorot_uniform(seed=2))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        train = optimizer().minimize(loss)
        data = np.random.default_rng(0).standard_normal((1, 5))
        return [loss, train], tf.global_variables_initializer(), {x: data, labels: [2]}

    return build


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("optimizer", [lambda: tf.train.GradientDescentOptimizer(0.1), lambda: tf.train.AdamOptimizer(0.05)], ids=["sgd", "adam"])
def test_whole_training_steps(monkeypatch, calls, optimizer, resource):
    plain, xla = both(small_net(optimizer, resource), monkeypatch, steps=12)
    np.testing.assert_allclose([r[0] for r in plain], [r[0] for r in xla], rtol=1e-4)
    assert any(isinstance(c, HotStateProgram) for c in calls)


def test_variables_that_a_program_holds_are_variables(eager, calls):
    """Others read them, fetch them, write to them, in between; nobody sees a value change that it was given."""
    v = tf.get_variable("v", initializer=np.ones((2, 3), np.float32), use_resource=True)
    train = v.assign_add(tf.tanh(v) * 0.5 + 0.25)
    text = tf.as_string(tf.reduce_sum(v.read_value()))  # has no rule
    reset = v.assign(tf.zeros((2, 3)))
    expected = np.ones((2, 3), np.float32)
    seen = []
    with tf.Session() as sess:
        sess.run(v.initializer)
        for i in range(12):
            sess.run(train.op)
            expected = expected + np.tanh(expected) * 0.5 + 0.25
            if i % 3 == 1:
                value = sess.run(v)
                np.testing.assert_allclose(value, expected, rtol=1e-5)
                seen.append((value, value.copy()))
            if i % 4 == 2:
                assert float(sess.run(text)) == pytest.approx(expected.sum(), rel=1e-4)
            if i == 7:
                sess.run(reset)
                expected = np.zeros((2, 3), np.float32)
        for value, copy in seen:
            np.testing.assert_array_equal(value, copy)
            value[:] = 0  # the caller's own
        np.testing.assert_allclose(sess.run(v), expected, rtol=1e-5)
    assert any(isinstance(c, HotStateProgram) for c in calls)


def test_a_label_out_of_range_is_reported(eager):
    (fetches, init, feeds) = small_net(lambda: tf.train.GradientDescentOptimizer(0.1), True)()
    labels = next(k for k in feeds if k.dtype == tf.int32)
    with tf.Session() as sess:
        sess.run(init)
        for _ in range(4):
            good = sess.run(fetches, feeds)[0]
        with pytest.raises(tf.errors.InvalidArgumentError, match="label"):
            sess.run(fetches, {**feeds, labels: [3]})
        assert sess.run(fetches, feeds)[0] < good


def test_gradients_agree(monkeypatch):
    def build():
        x = tf.placeholder(tf.float64, (5,))
        y = x
        for i in range(10):
            y = tf.sigmoid(y) * (i + 1.0) + tf.log1p(tf.square(y))
        return tf.gradients(tf.reduce_sum(y), [x]) + [y], None, {x: np.linspace(-2, 2, 5)}

    plain, xla = both(build, monkeypatch)
    np.testing.assert_allclose(plain, xla, rtol=1e-12)


def test_products_that_the_optimiser_makes():
    """Rules of ops that have no samples, against their kernels."""
    from types import SimpleNamespace

    from penstock.engines.xla.rules import fused
    from penstock.ops import fused as kernels
    from penstock.ops.matmul import matmul_columns_kernel, sum_of_products_and_rows_kernel, sum_of_products_kernel

    rng = np.random.default_rng(0)
    a, b, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 5), (5, 6), (6,)))
    node = SimpleNamespace(attrs={})
    for name in (b"Relu", b"Relu6", b"Elu", b"LeakyRelu", b"Tanh", b"Sigmoid"):
        options = {"transpose_a": False, "transpose_b": False, "fused_ops": [b"BiasAdd", name], "leakyrelu_alpha": 0.3}
        expected = kernels.fused_mat_mul(a * 3, b, [bias], epsilon=0.0, node=node, **options)
        np.testing.assert_allclose(fused.fused_matmul(a * 3, b, [bias], **options), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fused.matmul_columns(a, b.T, start=1, count=3), matmul_columns_kernel(a, b.T, start=1, count=3), rtol=1e-5)
    pairs = [rng.standard_normal((4, 3)).astype(np.float32) for _ in range(3)], [rng.standard_normal((4, 2)).astype(np.float32) for _ in range(3)]
    np.testing.assert_allclose(fused.sum_of_products(*pairs), sum_of_products_kernel(*pairs), rtol=1e-5)
    for found, expected in zip(fused.sum_of_products_and_rows(*pairs), sum_of_products_and_rows_kernel(*pairs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_normalised_rows_that_the_optimiser_makes():
    from penstock.engines.xla.rules import fused
    from penstock.ops import row_norms
    from penstock.ops.matmul import scaled_batch_matmul_kernel

    rng = np.random.default_rng(0)
    x, dy, scale, offset = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 8), (2, 3, 8), (8,), (8,)))
    forward = row_norms.layer_norm_kernel(x, scale, offset, epsilon=1e-3)
    results = [(fused.layer_norm(x, scale, offset, epsilon=1e-3), forward)]
    rest = (dy, x, scale, *forward[1:])
    results.append((fused.layer_norm_grad(*rest, epsilon=1e-3), row_norms.layer_norm_grad_kernel(*rest, epsilon=1e-3)))
    results.append(([fused.softmax_grad(dy, x)], [row_norms.softmax_grad_kernel(dy, x)]))
    options = {"adj_x": False, "adj_y": True, "scale": 0.25}
    results.append(([fused.scaled_batch_matmul(x, dy, **options)], [scaled_batch_matmul_kernel(x, dy, **options)]))
    for found, expected in results:
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_trained_lstms_that_the_optimiser_makes():
    from penstock.engines.xla.rules import fused
    from penstock.ops import lstm_training

    rng = np.random.default_rng(0)
    x = [rng.standard_normal((2, 3)).astype(np.float32) for _ in range(3)]
    c, h, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 4), (2, 4), (7, 16), (16,)))
    options = {"order": [0, 2, 1, 3], "forget_bias": 1.0}
    found, expected = fused.lstm_training(x, c, h, w, b, **options), lstm_training.training_kernel(x, c, h, w, b, **options)
    state, everything, workspace = expected[3:]
    dh, dc = [rng.standard_normal((2, 4)).astype(np.float32) for _ in range(3)], [c]
    rest, options = (x, c, h, w, b, everything, state, workspace, dh, dc), {**options, "dh_steps": [2, 0, 0]}
    found, expected = [*found, *fused.lstm_training_grad(*rest, **options)], [*expected, *lstm_training.training_grad_kernel(*rest, **options)]
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_types_of_results(monkeypatch, calls):
    """64-bit numbers stay 64-bit; scalars stay scalars."""

    def build():
        i = tf.placeholder(tf.int64, ())
        d = tf.placeholder(tf.float64, (2,))
        return [i * 3 + (1 << 40), d * 2.0, tf.cast(d, tf.bfloat16), i > 2], None, {i: 5, d: [1.0, 2.0]}

    plain, xla = both(build, monkeypatch)
    for a, b in zip(plain[-1], xla[-1]):
        assert type(a) is type(b) and np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(np.asarray(a, np.float64), np.asarray(b, np.float64))
    assert calls


def test_what_a_kernel_reports_is_still_reported(eager):
    x = tf.placeholder(tf.int32, (3,))
    y = (x + 1) // (x - 1) * 2
    with tf.Session() as sess:
        for _ in range(3):
            sess.run(y, {x: [3, 4, 5]})
        with pytest.raises(tf.errors.InvalidArgumentError, match="floordiv"):
            sess.run(y, {x: [1, 2, 3]})
        np.testing.assert_array_equal(sess.run(y, {x: [3, 4, 5]}), [4, 2, 2])


def test_an_error_inside_of_a_hot_region_names_its_node(eager):
    x = tf.placeholder(tf.float32, None)
    y = tf.placeholder(tf.float32, None)
    z = tf.add(tf.exp(x) * 2.0, y, name="here")
    with tf.Session() as sess:
        for _ in range(3):
            sess.run(z, {x: np.ones(3), y: np.ones(3)})
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            sess.run(z, {x: np.ones(3), y: np.ones(4)})
        assert caught.value.op.name == "here"


def test_shapes_are_compiled_one_by_one_up_to_a_bound(eager, monkeypatch, calls):
    monkeypatch.setattr(hot, "MOST_SHAPES", 3)
    monkeypatch.setattr(varying, "DISTINCT", 100)  # no program for many sizes
    x = tf.placeholder(tf.float32, (None,))
    y = tf.exp(x) * 2.0 + 1.0
    with tf.Session() as sess:
        sess.run(y, {x: np.ones(1)})
        for n in (1, 2, 3, 4, 5, 1, 2, 3):
            np.testing.assert_allclose(sess.run(y, {x: np.ones(n)}), np.full(n, 2 * np.e + 1), rtol=1e-6)
    assert len({id(c) for c in calls}) == 1
    assert len(calls) == 6  # not those of 4 and 5 elements


def test_results_are_the_callers_own(eager):
    x = tf.placeholder(tf.float32, (3,))
    y = tf.exp(x) + 1.0
    with tf.Session() as sess:
        for _ in range(3):
            value = sess.run(y, {x: np.zeros(3)})
            value[:] = -1  # neither read-only nor shared
        np.testing.assert_allclose(sess.run(y, {x: np.zeros(3)}), [2, 2, 2])


def test_a_hot_region_moves_over_while_steps_go_on(monkeypatch):
    """No step waits for the compiler: the first results come from Python, later ones may come from XLA."""
    monkeypatch.setenv("PENSTOCK_XLA", "1")
    monkeypatch.setenv("PENSTOCK_REGIONS", "1")
    monkeypatch.setattr(compiled, "HOT_NS", 2_000_000)
    (_, total), _, feeds = loop()
    with tf.Session() as sess:
        first = sess.run(total, feeds)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            np.testing.assert_allclose(sess.run(total, feeds), first, rtol=1e-5)
            executor = next(iter(sess._runtime._prepared.values())).executors[0]
            programs = [g for g in executor.compiler.program.code._globals.values() if isinstance(g, HotProgram)]
            if programs and programs[0].contests and all(c.choice for c in programs[0].contests.values()):
                break
        assert programs, "no second program was made"
        contest = next(iter(programs[0].contests.values()))
        assert contest.choice in ("host", "xla") and contest.xla and contest.host


@pytest.mark.parametrize("variable", ["PENSTOCK_XLA=0", "TF_DETERMINISTIC_OPS=1"])
def test_it_can_be_switched_off(monkeypatch, variable):
    monkeypatch.setenv(*variable.split("="))
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setattr(compiled, "HOT_NS", 0)
    y, _, feeds = chain()
    with tf.Session() as sess:
        for _ in range(8):
            sess.run(y, feeds)
        executor = next(iter(sess._runtime._prepared.values())).executors[0]
        assert executor.compiler.program.watch is None


def test_importing_and_running_do_not_load_jax():
    code = "import sys, penstock as tf\nwith tf.Session() as s: s.run(tf.constant(1.0) + 2.0)\nassert 'jax' not in sys.modules"
    env = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=env)


def test_the_process_may_end_while_something_is_compiled():
    code = """
import numpy as np, penstock as tf
from penstock.runtime.executor import compiled
compiled.HOT_NS = 0
x = tf.placeholder(tf.float32, (4,))
y = x
for i in range(300):
    y = tf.tanh(y) * 1.1 + y
with tf.Session() as sess:
    for _ in range(6):
        sess.run(y, {x: np.ones(4)})
print("done")
"""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    done = subprocess.run([sys.executable, "-c", code], timeout=120, env=env, capture_output=True, text=True)
    assert done.stdout == "done\n" and done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_forked_child_goes_on_without(eager):
    y, _, feeds = chain()
    with tf.Session() as sess:
        for _ in range(3):
            expected = sess.run(y, feeds)
    assert backend._started
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        ok = False
        try:
            with tf.Session() as sess:
                got = [sess.run(y, feeds) for _ in range(3)]
            ok = not backend.is_available() and np.allclose(got[-1], expected, rtol=1e-4)
        finally:
            os.write(writer, b"1" if ok else b"0")
            os._exit(0)
    os.close(writer)
    assert os.read(reader, 1) == b"1"
    os.waitpid(pid, 0)


@pytest.mark.parametrize("when", ["before the program runs", "after it"])
def test_an_interrupt_does_not_lose_the_variables(monkeypatch, when):
    monkeypatch.setattr(bundles, "SMALL", 0)  # who looks at the loss takes the variables out of the program's hands
    monkeypatch.setenv("PENSTOCK_XLA", "eager")
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    x = tf.placeholder(tf.float32, [4, 16])
    w = tf.Variable(np.full((16, 16), 0.1, np.float32))
    b = tf.Variable(np.zeros(16, np.float32))
    loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, w) + b) - 1.0))
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    feeds = {x: np.ones((4, 16))}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(3):
            sess.run(step, feeds)
        reached = []
        own = hot.starmap

        def interrupted(*args):
            reached.append(when)
            if when == "after it":
                yield from own(*args)
            raise KeyboardInterrupt

        before = [sess.run(loss, feeds) for _ in range(3)][-1]  # by the same form as afterwards
        monkeypatch.setattr(hot, "starmap", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sess.run(step, feeds)
        monkeypatch.setattr(hot, "starmap", own)
        assert reached
        after = sess.run(loss, feeds)
        assert after < before if when == "after it" else after == before
        sess.run(step, feeds)
        assert sess.run(loss, feeds) < after


def test_extremes_pass_over_no_nan(monkeypatch):
    monkeypatch.setenv("PENSTOCK_XLA", "eager")
    value = np.random.RandomState(0).randn(300, 64).astype(np.float32)
    value[4, 5], value[7, 9], value[200, 63] = np.nan, np.inf, -np.inf
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, value.shape)
        fetches = [reduce(x * 1.0, axis) for reduce in (tf.reduce_max, tf.reduce_min) for axis in (0, 1, None)]
        for _ in range(3):
            found = sess.run(fetches, {x: value})
    for got, wanted in zip(found, [f(value, axis) for f in (np.max, np.min) for axis in (0, 1, None)]):
        np.testing.assert_array_equal(got, wanted)


def test_a_child_leaves_the_compiler_alone(monkeypatch):
    """Forked while the thread that compiles is importing JAX, whose locks the child would wait for."""
    busy = backend._Compiler()
    busy.thread = threading.current_thread()
    monkeypatch.setattr(backend, "_compiler", busy)
    monkeypatch.setattr(backend, "_started", False)
    monkeypatch.setattr(backend, "_forked", False)
    backend._after_fork()
    backend.in_background(lambda: pytest.fail("compiled"))
    assert backend._forked and backend.is_idle() and backend._compiler.thread is None


def test_zero_times_infinity_is_no_number(eager, calls):
    x = tf.placeholder(tf.float32, [4])
    kept = tf.cast(x > 0.5, tf.float32) * tf.log(x)
    largest = tf.gradients(tf.reduce_max(tf.sqrt(x)), x)[0]
    first, second = run([kept, largest], {x: [0.0, 1.0, -1.0, 2.0]})[-1]
    assert calls
    np.testing.assert_array_equal(np.isnan(first), [True, False, True, False])
    assert np.isnan(second).all()


def test_streams_go_on_where_a_variable_gets_another_shape(eager, calls, monkeypatch):
    def draws():
        with tf.Graph().as_default():
            tf.set_random_seed(2)
            odd = tf.Variable(np.ones(4, np.float32), validate_shape=False, trainable=False)
            w = tf.get_variable("w", initializer=np.ones(3, np.float32))
            drawn = tf.random_uniform([3])
            loss = tf.reduce_sum(tf.tanh(tf.tanh(w * drawn) * 1.1)) + tf.reduce_sum(tf.tanh(odd) * 2) * tf.reduce_sum(w)
            train = tf.train.AdamOptimizer(0.01).minimize(loss)
            change = tf.assign(odd, np.ones(6, np.float32), validate_shape=False)
            with tf.Session() as sess:
                sess.run(tf.global_variables_initializer())
                found = [sess.run([drawn, train])[0] for _ in range(4)]
                sess.run(change)
                return found + [sess.run([drawn, train])[0] for _ in range(4)]

    found = draws()
    assert any(isinstance(program, HotStateProgram) for program in calls)
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    np.testing.assert_array_equal(found, draws())


FORK = """
import os, signal, sys, threading, time
import numpy as np
import penstock as tf
from penstock.ops import bundles
bundles.PATIENCE = 60  # until the step of the other thread is over, however long that takes
x = tf.placeholder(tf.float32, [1024, 128])
w = tf.get_variable("w", initializer=np.ones((1024, 128), np.float32))
n = tf.train.get_or_create_global_step()
h = x
for _ in range(6):
    h = tf.tanh(h * 1.01) + tf.sin(h * w)
train = tf.train.MomentumOptimizer(1e-4, 0.9).minimize(tf.reduce_sum(h), global_step=n)
s = tf.Session()
s.run(tf.global_variables_initializer())
feeds = {x: np.ones((1024, 128), np.float32)}
for _ in range(4):
    s.run(train, feeds)
is_over = False
def steps():
    while not is_over:
        s.run(train, feeds)
threads = [threading.Thread(target=steps)] if sys.argv[1] == "busy" else []
for thread in threads:
    thread.start()
codes = []
for _ in range(3):
    time.sleep(0.01)
    pid = os.fork()
    if not pid:
        signal.alarm(60)
        before = s.run(n)
        s.run(train, feeds)
        os._exit(int(s.run(n) != before + 1))
    codes.append(os.waitpid(pid, 0)[1])
is_over = True
for thread in threads:
    thread.join()
print(codes)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("parent", ["idle", "busy"])
def test_a_forked_child_goes_on_without_it(parent):
    env = {**os.environ, "PENSTOCK_XLA": "eager", "PENSTOCK_REGIONS": "eager"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK, parent], env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[0, 0, 0]", done.stdout + done.stderr
