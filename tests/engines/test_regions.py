"""Generated code against the interpreter: the same values, the same errors, the same deadness.

`off` runs op by op, `on` runs generated code from the first step, `tiled` also cuts every array into tiles, however small.
"""

import importlib

import numpy as np
import pytest

import penstock as tf
from penstock import errors
from penstock.engines.python import elementwise
from penstock.graph.opdef import OPS
from penstock.ops.cases import cases, programs, sampled_ops
from penstock.ops.native import sweeps
from tests import steps

from .programs import random_graph

EXAMPLES = ["attention", "cnn", "embedding", "lstm", "mlp", "newton", "partial_run", "queue_pipeline"]
PURE = [op.name for op in sampled_ops() if not op.stateful]


@pytest.fixture
def mode(monkeypatch):
    """mode("off"), mode("on"), mode("tiled") for the sessions made afterwards."""

    def choose(name):
        monkeypatch.setenv("PENSTOCK_REGIONS", "0" if name == "off" else "eager")
        monkeypatch.setattr(elementwise, "MIN_SIZE", 2 if name == "tiled" else 1 << 16)
        monkeypatch.setattr(elementwise, "PARALLEL", 64 if name == "tiled" else 1 << 22)
        # Last bits decide comparisons of what would be equal on paper; `agree` knows how to compare machine code.
        monkeypatch.setattr(sweeps, "compiled", lambda formula: None)

    return choose


def same(a, b, exactly=True):
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype and a.shape == b.shape
    if a.dtype.kind in "OUSb":
        assert a.tolist() == b.tolist()
    elif exactly:
        assert a.tobytes() == b.tobytes() or np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    else:
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", PURE)
def test_samples(name, mode):
    from tests.ops.test_samples import run

    for case in cases(OPS[name]):
        results = {}
        for setting, shapes in (("off", (True, False)), ("on", (True, False)), ("tiled", (True,))):
            mode(setting)
            results[setting] = [run(case, known)[1] for known in shapes]
        for setting in ("on", "tiled"):
            for off, other in zip(results["off"], results[setting]):
                for a, b in zip(off, other):
                    if isinstance(a, (np.ndarray, np.generic)):
                        same(a, b)
    for program in programs(OPS[name]):
        results = {}
        for setting in ("off", "on"):
            mode(setting)
            with tf.Graph().as_default():
                fetches = program.fn(tf)
                with tf.Session() as sess:
                    if isinstance(fetches, dict) and "init" in fetches:
                        sess.run(fetches["init"])
                    results[setting] = [sess.run(fetches) for _ in range(program.runs)]
        for a, b in zip(tf.nest.flatten(results["off"]), tf.nest.flatten(results["on"])):
            if isinstance(a, (np.ndarray, np.generic)):
                same(a, b)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name, mode):
    results = {}
    for setting in ("off", "on"):
        mode(setting)
        with tf.Graph().as_default():
            results[setting] = importlib.import_module(f"examples.{name}").program(tf)
    off, on = (tf.nest.flatten(r) for r in results.values())
    assert len(off) == len(on)
    for a, b in zip(off, on):
        same(a, b, exactly=False)


@pytest.mark.parametrize("block", range(20))
def test_random_graphs(block, mode):
    for seed in range(block * 10, block * 10 + 10):
        results = {}
        for setting in ("off", "on", "tiled"):
            mode(setting)
            with tf.Graph().as_default():
                fetches, feeds, initialise = random_graph(tf, seed)
                with tf.Session() as sess:
                    sess.run(initialise)
                    results[setting] = [sess.run(fetches, feeds) for _ in range(2)]
        for off, on, tiled in zip(*results.values()):
            for a, b, c in zip(off, on, tiled):
                same(a, b)
                same(a, c, exactly=False)


@pytest.mark.parametrize("block", range(10))
def test_regions_of_the_dataflow_executor(block, mode):
    """With a deadline, the state machine runs the step: node by node, or region by region."""
    for seed in range(1000 + block * 10, 1000 + block * 10 + 10):
        results = {}
        for setting in ("off", "on"):
            mode(setting)
            with tf.Graph().as_default():
                fetches, feeds, initialise = random_graph(tf, seed)
                with tf.Session() as sess:
                    sess.run(initialise)
                    results[setting] = [sess.run(fetches, feeds, options=tf.RunOptions(timeout_in_ms=60000)) for _ in range(2)]
        for off, on in zip(*results.values()):
            for a, b in zip(off, on):
                same(a, b)


@pytest.mark.parametrize("block", range(10))
def test_regions_on_many_devices(block, mode):
    config = tf.ConfigProto(device_count={"CPU": 3})
    for seed in range(2000 + block * 6, 2000 + block * 6 + 6):
        results = {}
        for setting in ("off", "on"):
            mode(setting)
            with tf.Graph().as_default():
                fetches, feeds, initialise = random_graph(tf, seed, devices=3)
                with tf.Session(config=config) as sess:
                    sess.run(initialise)
                    results[setting] = [sess.run(fetches, feeds) for _ in range(2)]
        for off, on in zip(*results.values()):
            for a, b in zip(off, on):
                same(a, b)


# -- single things ------------------------------------------------------------------------------------------------------


def compiled(sess, fetches, feeds=()):
    """The code of the partition that computes `fetches`."""
    return sess.explain(fetches, list(feeds)).code


def test_a_loop_is_a_loop(mode):
    mode("on")
    x = tf.placeholder(tf.float32, [])
    _, y = tf.while_loop(lambda i, v: i < 1000, lambda i, v: (i + 1, v * 0.5 + 1.0), [tf.constant(0), x])
    with tf.Session() as sess:
        assert sess.run(y, {x: 3.0}) == 2.0
        code = compiled(sess, y, [x])
    assert "for n0 in count()" in code and "while/mul = Mul" in code


def test_a_loop_that_starts_with_a_variable_is_a_loop(mode):
    v = tf.get_variable("v", initializer=np.ones(3, np.float32), use_resource=False)
    n = tf.placeholder(tf.int32, [])
    _, y = tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * 2.0 + v), [0, v])
    with tf.control_dependencies([y]):
        update = v.assign_add(tf.fill([3], 10.0))
    for setting in ("off", "on"):
        mode(setting)
        with tf.Session() as sess:
            with pytest.raises(errors.FailedPreconditionError, match="uninitialized value v"):
                sess.run(y, {n: 3})
            sess.run(v.initializer)
            found = [[a.tolist() for a in sess.run([y + 0.0, update], {n: rounds})] for rounds in (3, 1, 2)]
            code = compiled(sess, y, [n])
        assert found == [[[15.0] * 3, [11.0] * 3], [[33.0] * 3, [21.0] * 3], [[147.0] * 3, [31.0] * 3]]
    assert "for n0 in count()" in code


def test_errors_name_the_node_and_the_round(mode):
    x = tf.placeholder(tf.float32, [None])
    i, y = tf.while_loop(
        lambda i, v: i < 9, lambda i, v: (i + 1, tf.concat([v, [1.0]], 0) + tf.ones([5])[: i + 3]), [0, x], shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])]
    )
    stories = []
    for setting in ("off", "on"):
        mode(setting)
        with tf.Session() as sess, pytest.raises(errors.InvalidArgumentError) as info:
            sess.run(y, {x: [1.0, 2.0]})
        stories.append((info.value.op.name, info.value.message, [s for s in info.value.story if "while:" not in s]))
        assert any("iteration 3 of loop 'while/while_context'" in s for s in info.value.story)
    assert stories[0] == stories[1]
    assert "Incompatible shapes: [6] vs. [5]" in stories[0][1]


def test_long_programs_are_cut(mode, monkeypatch):
    from penstock.engines.python import codegen

    monkeypatch.setattr(codegen, "PART", 10)
    x = tf.placeholder(tf.float32, [4])
    values = [x]
    for k in range(100):
        values.append(tf.tanh(values[-1]) + values[max(0, k - 25)] if k % 7 else tf.cond(values[-1][0] > 0, lambda: values[-1] * 0.5, lambda: values[-1] - 1.0))
    results = []
    for setting in ("off", "on"):
        mode(setting)
        with tf.Session() as sess:
            results.append(sess.run([values[-1], values[50], tf.reduce_sum(values[-3])], {x: [0.1, -0.2, 0.3, 0.4]}))
            if setting == "on":
                assert "def part_3(" in compiled(sess, values[-1], [x])
    for a, b in zip(*results):
        same(a, b)


def test_an_error_late_in_a_long_program_names_its_node(mode, monkeypatch):
    from penstock.engines.python import codegen

    monkeypatch.setattr(codegen, "PART", 10)
    x, n = tf.placeholder(tf.float32, [4]), tf.placeholder(tf.int32, [4])
    y = x
    for k in range(100):
        y = tf.tanh(y) * x if k != 77 else tf.gather(y, n, name="wrong") + x
    mode("on")
    with tf.Session() as sess:
        sess.run(y, {x: [0.1, -0.2, 0.3, 0.4], n: [3, 2, 1, 0]})
        assert "def part_9(" in compiled(sess, y, [x, n])
        with pytest.raises(errors.InvalidArgumentError) as info:
            sess.run(y, {x: [0.1, -0.2, 0.3, 0.4], n: [0, 4, 0, 0]})
    assert info.value.op.name == "wrong"


def test_feeds_and_constants_are_never_written_into(mode):
    mode("on")
    x = tf.placeholder(tf.float32, [5])
    c = tf.constant(np.arange(5, dtype=np.float32))
    y = tf.tanh(x * 2.0) + c
    data = np.ones(5, np.float32)
    with tf.Session() as sess:
        first = sess.run([y, c], {x: data})
        second = sess.run([y, c], {x: data})
    assert data.tolist() == [1.0] * 5
    for a, b in zip(first, second):
        same(a, b)


def test_views_outlive_what_they_show(mode):
    """An array with a view that lives on must not be written into."""
    x = tf.placeholder(tf.float32, [4])
    y = x + 1.0
    view = tf.reshape(y, [2, 2])
    z = y * 2.0
    results = []
    for setting in ("off", "on", "tiled"):
        mode(setting)
        with tf.Session() as sess:
            results.append(sess.run([view + tf.reshape(z, [2, 2]), view], {x: [1.0, 2.0, 3.0, 4.0]}))
    for other in results[1:]:
        for a, b in zip(results[0], other):
            same(a, b)


def test_a_dead_fetch_is_told(mode):
    x = tf.placeholder(tf.float32, [])
    dead, alive = tf.raw_ops.Switch(data=x, pred=x > 0)
    for setting in ("off", "on"):
        mode(setting)
        with tf.Session() as sess:
            assert sess.run(alive, {x: 1.0}) == 1.0
            with pytest.raises(errors.InvalidArgumentError, match="was not computed"):
                sess.run([dead, alive], {x: 1.0})


def test_a_closed_session_ends_a_loop(mode):
    mode("on")
    y = tf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 1000, [tf.constant(0)])
    sess = tf.Session()
    steps.once(steps.is_running, sess.close)
    with pytest.raises(errors.CancelledError):
        sess.run(y)


def test_warm_up(monkeypatch):
    """A signature is compiled after a few steps, and switched off by the environment."""
    from penstock.runtime.executor import compiled as module

    x = tf.placeholder(tf.float32, [3])
    y = tf.exp(x) + 1.0
    for setting, expected in (("1", True), ("0", False)):
        monkeypatch.setenv("PENSTOCK_REGIONS", setting)
        with tf.Session() as sess:
            call = sess.make_callable(y, [x])
            seen = []
            for _ in range(module.WARM + 2):
                call(np.zeros(3, np.float32))
                (prepared,) = sess._runtime._prepared.values()
                seen.append(prepared.executors[0].compiler.program is not None)
        assert seen[0] is False and seen[-1] is expected


def test_reductions_join_runs(mode):
    mode("tiled")
    x = tf.placeholder(tf.float32, [1000])
    y = tf.reduce_mean(tf.square(x - 1.0) * 2.0)
    data = np.linspace(0, 1, 1000, dtype=np.float32)
    with tf.Session() as sess:
        value = sess.run(y, {x: data})
        assert "def tile_0(" in compiled(sess, y, [x])
    np.testing.assert_allclose(value, np.mean(np.square(data.astype(np.float64) - 1) * 2), rtol=1e-6)


def test_regions_around_waits(mode):
    """What a Dequeue feeds is one region; an error inside of it names the node."""
    queue = tf.FIFOQueue(4, [tf.float32])
    x = tf.placeholder(tf.float32, None)
    put = queue.enqueue(x)
    y = queue.dequeue()
    z = tf.matmul(tf.tanh(y) * 2.0, tf.tanh(y) + 1.0, name="product") + tf.reduce_sum(y)
    values = []
    for setting in ("off", "on"):
        mode(setting)
        with tf.Session() as sess:
            for _ in range(2):
                sess.run(put, {x: np.eye(3, dtype=np.float32)})
                values.append(sess.run(z))
            sess.run(put, {x: np.ones((2, 3), np.float32)})
            with pytest.raises(errors.InvalidArgumentError, match="Matrix size-incompatible") as info:
                sess.run(z)
            assert info.value.op.name == "product"
            assert any("float32[2,3]" in line for line in info.value.story)
            if setting == "on":
                assert "# product" in compiled(sess, z) and "asynchronous" in compiled(sess, z)
    for value in values[1:]:
        same(values[0], value)


def test_tracing_still_sees_every_node(mode):
    mode("on")
    x = tf.placeholder(tf.float32, [3])
    _, y = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, tf.tanh(v) * 2.0), [tf.constant(0), x])
    with tf.Session() as sess:
        sess.run(y, {x: [1.0, 2.0, 3.0]})
        metadata = tf.RunMetadata()
        sess.run(y, {x: [1.0, 2.0, 3.0]}, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
    names = [n.node_name for d in metadata.step_stats.dev_stats for n in d.node_stats]
    assert names.count("while/Tanh") == 3
