"""Fewer threads for kernels that do not have the cores to themselves, and results written over inputs that nobody needs any more."""

import threading

import numpy as np
import pytest

import penstock as tf
from penstock.engines import onednn
from penstock.engines.onednn import crowd, elementwise, library

needs_library = pytest.mark.skipif(library.get() is None, reason="no oneDNN here")


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.delenv("PENSTOCK_SHARE_CORES", raising=False)
    monkeypatch.delenv("TF_DETERMINISTIC_OPS", raising=False)
    crowd.reset()
    yield
    crowd.reset()


@pytest.fixture
def time(monkeypatch):
    """A clock that the test moves, and CPUs that are never idle unless it says so."""

    class Time:
        now, idle = 10**9, 0.0

    monkeypatch.setattr(crowd, "clock", lambda: Time.now)
    monkeypatch.setattr(crowd, "idle_ns", lambda: Time.idle)
    return Time


def kernels(time, count, waited=0.0, computing=1.0, budget=2, ms=10):
    for _ in range(count):
        wall = ms * 10**6
        time.now += wall
        in_kernel = int(wall * (1 - waited))
        crowd.record(wall, wall - in_kernel, int(in_kernel * computing), budget)


def test_ladders_end_with_one_thread():
    assert crowd.ladder(1) == [1] and crowd.ladder(2) == [2, 1] and crowd.ladder(8) == [8, 6, 4, 3, 2, 1]


def test_kernels_that_compute_keep_their_threads(time):
    kernels(time, 50, computing=0.95)
    assert crowd.limit == 0


def test_waiting_for_each_other_takes_threads_away(time):
    kernels(time, crowd.BAD_WINDOWS - 1, waited=0.5)
    assert crowd.limit == 0  # it might have been the first step
    kernels(time, 1, waited=0.5)
    assert crowd.limit == 1


def test_busy_cores_take_threads_away(time):
    kernels(time, 10, computing=0.5)
    assert crowd.limit == 1


def test_what_others_compute_while_this_process_waits_does_not(time):
    for _ in range(20):
        kernels(time, 2, computing=0.5)  # threads that have slept meanwhile
        time.now += 10**9
    assert crowd.limit == 0
    kernels(time, 10, computing=0.5)
    assert crowd.limit == 1


def test_idle_cores_do_not(time):
    for _ in range(20):
        time.idle += 10**7  # one of two cores
        kernels(time, 1, computing=0.5)
    assert crowd.limit == 0


def test_the_pause_before_all_threads_are_tried_again_grows(time):
    pauses = []
    for _ in range(8):
        kernels(time, 10, computing=0.3)
        assert crowd.limit == 1
        begun = time.now
        while crowd.limit:
            time.now += 10**7
            crowd.look()
        pauses.append(time.now - begun)
    assert pauses == sorted(pauses) and pauses[0] < crowd.LONGEST_PAUSE_NS / 8 and pauses[-1] <= crowd.LONGEST_PAUSE_NS
    kernels(time, 10)
    kernels(time, 10, computing=0.3)
    begun = time.now
    while crowd.limit:
        time.now += 10**7
        crowd.look()
    assert time.now - begun <= 2 * crowd.FIRST_PAUSE_NS  # good times make it short again


def test_more_cores_go_down_step_by_step(time):
    seen = []
    for _ in range(100):
        kernels(time, 1, waited=0.5, budget=8)
        if crowd.limit and crowd.limit not in seen:
            seen.append(crowd.limit)
    assert seen == [6, 4, 3, 2, 1]


@pytest.mark.parametrize("name, value", [("PENSTOCK_SHARE_CORES", "0"), ("TF_DETERMINISTIC_OPS", "1")])
def test_it_can_be_switched_off(time, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    crowd.reset()
    kernels(time, 50, waited=0.9)
    assert crowd.limit == 0


@needs_library
def test_kernels_follow_the_limit(monkeypatch):
    before = library.threads()
    onednn.set_threads(2)
    used = []
    run = library.Library.run

    def spy(self, threads, function, *args):
        used.append(threads)
        return run(self, threads, function, *args)

    monkeypatch.setattr(library.Library, "run", spy)
    try:
        with tf.Graph().as_default(), tf.Session() as sess:
            x = tf.placeholder(tf.float32, [8, 32, 32, 16])
            y = tf.nn.conv2d(x, tf.constant(np.random.RandomState(0).randn(3, 3, 16, 32).astype(np.float32)), [1, 1, 1, 1], "SAME")
            data = np.random.RandomState(1).randn(8, 32, 32, 16).astype(np.float32)
            first = sess.run(y, {x: data})
            assert 2 in used
            used.clear()
            monkeypatch.setattr(crowd, "limit", 1)
            monkeypatch.setattr(crowd, "_retry_at", 1 << 62)
            np.testing.assert_allclose(sess.run(y, {x: data}), first, rtol=1e-5, atol=1e-5)
            assert set(used) == {1}
            used.clear()
            monkeypatch.setattr(crowd, "limit", 0)
            np.testing.assert_array_equal(sess.run(y, {x: data}), first)
            assert 2 in used
    finally:
        onednn.set_threads(before)


@needs_library
def test_threads_that_compute_at_the_same_time_agree():
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [4, 32, 32, 8])
        w = tf.constant(np.random.RandomState(0).randn(3, 3, 8, 16).astype(np.float32))
        y = tf.reduce_sum(tf.nn.relu(tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME")), [1, 2, 3])
        data = [np.random.RandomState(i).randn(4, 32, 32, 8).astype(np.float32) for i in range(4)]
        expected = [sess.run(y, {x: d}) for d in data]
        wrong = []

        def client(i):
            for _ in range(30):
                if not np.allclose(sess.run(y, {x: data[i]}), expected[i], rtol=1e-4):
                    wrong.append(i)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


# -- over an input ------------------------------------------------------------------------------------------------------


@needs_library
@pytest.mark.parametrize(
    "kind, count",
    [(elementwise.Relu, 1), (elementwise.ReluGrad, 2), (elementwise.LeakyRelu, 1), (elementwise.LeakyReluGrad, 2), (elementwise.Sum, 2), (elementwise.Sum, 4)],
)
@pytest.mark.parametrize("size", [1 << 15, (1 << 17) + 13])
def test_results_over_each_input(kind, count, size):
    rng = np.random.RandomState(0)
    arrays = [rng.randn(size).astype(np.float32) for _ in range(count)]
    for array in arrays:
        array[::1001] = np.nan
    expected = elementwise.plan_for(kind, library.get(), tuple(arrays))(*arrays)
    for i in range(count):
        mine = [a.copy() for a in arrays]
        got = elementwise.plan_for(kind, library.get(), tuple(mine), i)(*mine)
        assert got is mine[i]
        np.testing.assert_array_equal(got, expected)
        for j, other in enumerate(mine):
            if j != i:
                np.testing.assert_array_equal(other, arrays[j])
    fixed = [a.copy() for a in arrays]
    fixed[0].flags.writeable = False
    assert elementwise.plan_for(kind, library.get(), tuple(fixed), 0)(*fixed) is not fixed[0]


@needs_library
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("is_kept", [False, True])
def test_gradients_of_maxima_over_what_they_were_of(stride, is_kept):
    from penstock.engines.onednn import pool
    from penstock.ops.kernels.window import layout, slides_of

    slides = slides_of(layout(b"NHWC"), (20, 18), (3, 3), (1, stride, stride, 1), b"SAME")
    spec = pool.Spec(library.POOLING_MAX, 2, 16, tuple(slides), True, np.dtype(np.float32))
    forward, backward = pool.forward(library.get(), spec), pool.backward(library.get(), spec)
    backward.kept.wanted = is_kept
    rng = np.random.RandomState(0)
    x = rng.randn(2, 20, 18, 16).astype(np.float32)
    y = forward.run(x)
    dy = rng.randn(*y.shape).astype(np.float32)
    expected = backward.run(x, y, dy)
    backward.kept.wanted = is_kept
    fixed = x.copy()
    fixed.flags.writeable = False
    assert backward.run(fixed, y, dy, over=True) is not fixed
    np.testing.assert_array_equal(fixed, x)
    got = backward.run(x, y, dy, over=True)
    assert got is x
    np.testing.assert_array_equal(got, expected)


@needs_library
def test_what_reads_variables_makes_arrays_that_may_be_written_over(monkeypatch):
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    over = []
    for kind in (elementwise.Relu, elementwise.ReluGrad):
        monkeypatch.setattr(kind, "run", lambda self, *args, inner=kind.run, **more: over.append(more.get("over")) or inner(self, *args, **more))
    values = np.random.RandomState(3).randn(4, 32, 32, 16).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as sess:
        h = tf.placeholder(tf.float32, values.shape)
        fed = {h: values}
        variables = [tf.get_variable(f"w{i}", [3, 3, 16, 16], initializer=tf.random_normal_initializer(stddev=0.1, seed=i), use_resource=False) for i in range(3)]
        for w in variables:
            h = tf.nn.relu(tf.nn.conv2d(h, w, [1, 1, 1, 1], "SAME"))
        gradients = tf.gradients(tf.reduce_sum(h), variables)
        sess.run(tf.global_variables_initializer())
        for _ in range(2):
            sess.run(gradients, fed)
    assert over.count(0) >= 2 * 5  # all but the first gradient, which is of ones


def _network(values):
    x = tf.constant(values)
    h, kept = x, []
    for i in range(3):
        w = tf.get_variable(f"w{i}", [3, 3, int(h.shape[3]), 16], initializer=tf.random_normal_initializer(stddev=0.1, seed=i))
        y = tf.nn.relu(tf.nn.conv2d(h, w, [1, 1, 1, 1], "SAME"))
        h = tf.nn.relu(h + y) if i else y
        kept.append(h)
    loss = tf.reduce_sum(tf.square(tf.nn.max_pool(h, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")))
    return loss, kept, tf.gradients(loss, [*kept, *tf.trainable_variables()])


@needs_library
def test_gradients_that_are_fetched_are_not_written_over(monkeypatch):
    values = np.random.RandomState(3).randn(4, 32, 32, 3).astype(np.float32)
    found = []
    for mode in ("eager", "0"):
        monkeypatch.setenv("PENSTOCK_REGIONS", mode)
        with tf.Graph().as_default(), tf.Session() as sess:
            loss, kept, gradients = _network(values)
            sess.run(tf.global_variables_initializer())
            every = sess.run([loss, *kept, *gradients])
            alone = [sess.run(t) for t in (loss, *kept, *gradients)]
            for a, b in zip(every, alone, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
            found.append(every)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


# -- XLA's threads ------------------------------------------------------------------------------------------------------


def test_xla_gets_nothing_more_if_it_has_too_many_threads(monkeypatch):
    from penstock.engines.xla import backend

    monkeypatch.setattr(backend, "_pool", 0)
    backend_limit = backend._threads
    try:
        backend.limit_threads(1)
        assert backend.fits()  # it has none yet
        monkeypatch.setattr(backend, "_pool", 1)
        assert backend.fits()
        monkeypatch.setattr(backend, "_pool", 2)
        assert not backend.fits()
        backend.limit_threads(0)
        assert backend.fits()
    finally:
        backend.limit_threads(backend_limit)
