"""GPUs, tried on JAX's CPU platform: placement, values that stay, variables that are donated, crossings."""

import gc
import os
import threading

import numpy as np
import pytest

import penstock as tf

pytest.importorskip("jax")

from penstock.api import gpus
from penstock.engines.xla import backend
from penstock.engines.xla.device import DeviceProgram

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch):
    if not os.environ.get("PENSTOCK_TEST_GPU"):  # set it to run these tests on a real one
        monkeypatch.setenv("PENSTOCK_GPU_PLATFORM", "cpu")


@pytest.fixture
def host_calls(monkeypatch):
    """Programs that had to run on the host."""
    seen = []
    real = DeviceProgram._on_host
    monkeypatch.setattr(DeviceProgram, "_on_host", lambda self, *args: seen.append(self.why) or real(self, *args))
    return seen


def executors(sess):
    return [e for prepared in sess._runtime._prepared.values() for e in prepared.executors]


def test_the_gpu_is_listed():
    with tf.Session() as sess:
        rows = {d.name: d.device_type for d in sess.list_devices()}
    assert rows[GPU] == "GPU"
    with tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as sess:
        assert [d.device_type for d in sess.list_devices()] == ["CPU"]


def test_programs_can_ask_for_gpus(monkeypatch):
    assert tf.test.gpu_device_name() == "/device:GPU:0"
    assert tf.test.is_gpu_available() and tf.test.is_gpu_available(cuda_only=True) and tf.test.is_built_with_xla()
    first = gpus._gpus()[0].jax_device
    capability = getattr(first, "compute_capability", None)
    assert tf.test.is_gpu_available(min_cuda_compute_capability=(3, 5)) == (capability is not None)
    assert not tf.test.is_gpu_available(min_cuda_compute_capability=(99, 0))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("PENSTOCK_GPU_PLATFORM", raising=False)
    assert tf.test.gpu_device_name() == "" and not tf.test.is_gpu_available()


def test_ops_with_rules_go_there_and_others_stay(host_calls):
    x = tf.placeholder(tf.float32, (2, 2))
    y = tf.matmul(x, x) + 1.0
    text = tf.as_string(y)
    with tf.Session() as sess:
        value, words = sess.run([y, text], {x: np.eye(2)})
        placement = sess._runtime.placer.placement
    np.testing.assert_array_equal(value, [[2, 1], [1, 2]])
    assert words[0, 0] == b"2.000000"
    assert placement[y.op.name] == GPU and placement[text.op.name].endswith("CPU:0")
    assert not host_calls


def test_strings_beside_numbers_stay_on_the_host():
    """An op with a rule that is given a string among its inputs."""
    x, text = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.string, [])
    same_text, same = tf.identity_n([text, x * 2.0])
    with tf.Session() as sess:
        for _ in range(3):
            words, value, more = sess.run([same_text, same, same + 1.0], {x: [1.0, 2.0], text: b"a"})
    assert words == b"a"
    np.testing.assert_array_equal(value, [2, 4])
    np.testing.assert_array_equal(more, [3, 5])


def mlp():
    x = tf.placeholder(tf.float32, (None, 6), name="x")
    labels = tf.placeholder(tf.int32, (None,), name="labels")
    h = tf.layers.dense(x, 8, tf.nn.relu, kernel_initializer=tf.initializers.glorot_uniform(seed=1))
    logits = tf.layers.dense(h, 3, kernel_initializer=tf.initializers.glorot_uniform(seed=2))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    return x, labels, loss


def train(optimizer, config=None, resource=False, steps=6):
    rng = np.random.default_rng(0)
    data, target = rng.standard_normal((20, 6)).astype(np.float32), rng.integers(0, 3, 20)
    with tf.Graph().as_default():
        tf.set_random_seed(3)
        with tf.variable_scope("net", use_resource=resource):
            x, labels, loss = mlp()
        step = optimizer().minimize(loss)
        with tf.Session(config=config) as sess:
            sess.run(tf.global_variables_initializer())
            losses = [sess.run([loss, step], {x: data, labels: target})[0] for _ in range(steps)]
            return losses, sess.run(tf.trainable_variables())


OPTIMIZERS = {
    "sgd": lambda: tf.train.GradientDescentOptimizer(0.5),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: tf.train.AdamOptimizer(0.05),
    "rmsprop": lambda: tf.train.RMSPropOptimizer(0.01),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.3),
}


@pytest.mark.parametrize("resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_agrees_with_the_cpu(name, resource, host_calls):
    on_gpu = train(OPTIMIZERS[name], resource=resource)
    on_cpu = train(OPTIMIZERS[name], tf.ConfigProto(device_count={"GPU": 0}), resource)
    exact = not os.environ.get("PENSTOCK_TEST_GPU")  # a real one multiplies in TF32
    np.testing.assert_allclose(on_gpu[0], on_cpu[0], rtol=2e-4 if exact else 5e-3)
    for a, b in zip(on_gpu[1], on_cpu[1]):
        np.testing.assert_allclose(a, b, rtol=2e-3 if exact else 2e-2, atol=2e-5 if exact else 5e-3)
    assert not host_calls


def test_a_training_step_is_one_program_and_variables_stay(host_calls):
    tf.set_random_seed(1)
    x, labels, loss = mlp()
    step = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    feeds = {x: np.ones((4, 6)), labels: [0, 1, 2, 0]}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(step, feeds)
        weights = tf.trainable_variables()[0]
        (device,) = [d for d in sess._runtime.devices if d.type == "GPU"]
        held = [r for r in device.resources.all() if backend.is_device_array(getattr(r, "value", None))] if hasattr(device.resources, "all") else None
        before = sess.run(weights)
        sess.run(step, feeds)
        after = sess.run(weights)
        codes = [e.source() for e in executors(sess) if "ApplyMomentum" in e.source()]
    assert not np.array_equal(before, after)
    assert held is None or held
    assert len(codes) == 1 and codes[0].count("through XLA") == 1
    assert not host_calls


def test_a_value_that_is_held_is_not_donated():
    v = tf.get_variable("v", initializer=np.ones(4, np.float32), use_resource=True)
    old = v.read_value()
    with tf.control_dependencies([old]):
        add = v.assign_add(tf.ones(4))
    with tf.control_dependencies([add]):
        text = tf.as_string(old)  # on the CPU: the old value crosses after the new one was written
        both = [old * 1.0, v.read_value() * 1.0]
    with tf.Session() as sess:
        sess.run(v.initializer)
        for i in range(3):
            words, (first, second) = sess.run([text, both])
            assert words[0].startswith(b"%d." % (i + 1))
            np.testing.assert_array_equal(first, np.full(4, i + 1))
            np.testing.assert_array_equal(second, np.full(4, i + 2))


def test_control_flow():
    n = tf.placeholder(tf.int32, ())
    x = tf.placeholder(tf.float32, (3,))
    _, y = tf.while_loop(lambda i, _: i < n, lambda i, v: (i + 1, tf.cond(i % 2 > 0, lambda: v * 2.0, lambda: v + 1.0)), [0, x])
    (gradient,) = tf.gradients(y, x)
    with tf.Session() as sess:
        for count, expected in ((0, [1, 2, 3]), (1, [2, 3, 4]), (4, [10, 14, 18])):
            value, slope = sess.run([y, gradient], {n: count, x: [1, 2, 3]})
            np.testing.assert_allclose(value, expected)
            np.testing.assert_allclose(slope, np.full(3, 2.0 ** (count // 2)))


def test_shapes_that_are_fed():
    shape = tf.placeholder(tf.int32, (2,))
    x = tf.placeholder(tf.float32, (None,))
    y = tf.reshape(x * 2.0, shape) + 1.0
    with tf.Session() as sess:
        for rows in (2, 3, 6):
            np.testing.assert_array_equal(sess.run(y, {x: np.ones(6), shape: [rows, 6 // rows]}), np.full((rows, 6 // rows), 3.0))


def test_random_numbers_and_initialisers():
    with tf.device("/gpu:0"):
        v = tf.get_variable("v", (50, 4), initializer=tf.initializers.truncated_normal(seed=4))
        r = tf.random_uniform((3,), seed=5) + v[0, :3]
    with tf.Session() as sess:
        sess.run(v.initializer)
        assert np.all(np.isfinite(sess.run(r)))
        assert 0.5 < np.std(sess.run(v)) < 1.0


def test_random_numbers_are_the_cpus(host_calls):
    """The same seeds give the same stream, step after step, wherever it is computed."""

    def draw(config=None):
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, (40,))
            fetches = [
                tf.random_uniform((5, 3), seed=1) * 2.0,
                tf.random_uniform((7,), -3, 9, tf.int32, seed=2) + 0,
                tf.random_normal((4,), seed=3, dtype=tf.float64) + 1.0,
                tf.nn.dropout(x, rate=0.5, seed=4) * 1.0,
            ]
            with tf.Session(config=config) as sess:
                return [sess.run(fetches, {x: np.arange(40)}) for _ in range(3)]

    for gpu_step, cpu_step in zip(draw(), draw(tf.ConfigProto(device_count={"GPU": 0}))):
        for a, b in zip(gpu_step, cpu_step):
            np.testing.assert_allclose(a, b, rtol=1e-5)
    assert not host_calls


def test_a_variables_declared_shape_is_kept():
    x = tf.placeholder(tf.float32, None)
    for resource in (False, True):
        v = tf.get_variable(f"v{resource}", (2,), use_resource=resource)
        put = tf.assign(v, x) if not resource else v.assign(x)
        with tf.Session() as sess:
            with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
                sess.run(put, {x: np.ones(3)})
            sess.run(put, {x: np.ones(2)})
            np.testing.assert_array_equal(sess.run(v), np.ones(2))


def test_an_uninitialised_variable():
    for resource in (False, True):
        with tf.Graph().as_default():
            v = tf.get_variable("v", (2,), use_resource=resource)
            y = v * 2.0
            with tf.Session() as sess:
                with pytest.raises(tf.errors.FailedPreconditionError, match="v"):
                    sess.run(y)
                sess.run(v.initializer)
                sess.run(y)


def test_a_wrong_shape_names_the_node():
    x = tf.placeholder(tf.float32, None)
    y = tf.placeholder(tf.float32, None)
    z = tf.matmul(tf.exp(x), y, name="product")
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        sess.run(z, {x: np.ones((2, 3)), y: np.ones((4, 2))})
    assert caught.value.op.name == "product"


def test_soft_placement_without_a_gpu():
    config = tf.ConfigProto(device_count={"GPU": 0}, allow_soft_placement=True)
    with tf.device("/gpu:0"):
        y = tf.constant(1.0) + 2.0
    with tf.Session(config=config) as sess:
        assert sess.run(y) == 3.0
    with tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as sess, pytest.raises(tf.errors.InvalidArgumentError, match="GPU"):
        sess.run(y)


def test_an_op_without_a_rule_needs_soft_placement():
    with tf.device("/gpu:0"):
        y = tf.as_string(tf.constant(1))
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match="AsString"):
        sess.run(y)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
        assert sess.run(y) == b"1"


def test_visible_devices():
    def session(text):
        return tf.Session(config=tf.ConfigProto(gpu_options=tf.GPUOptions(visible_device_list=text)))

    with session("0") as sess:
        assert len(sess.list_devices()) == 2
    for wrong in ("1", "x", "0,0"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="visible_device_list"):
            session(wrong)


def test_a_queue_on_the_cpu_feeds_the_gpu():
    queue = tf.FIFOQueue(10, [tf.float32, tf.float32], [(3,), ()])
    a, b = queue.dequeue()
    y = a * 2.0 + b
    put = queue.enqueue([tf.constant([1.0, 2.0, 3.0]), 10.0])
    with tf.Session() as sess:
        for _ in range(4):
            sess.run(put)
        for _ in range(4):
            np.testing.assert_array_equal(sess.run(y), [12, 14, 16])


def test_a_training_step_behind_a_dequeue_is_one_region():
    """The two parts of an example arrive one by one; nothing is computed before both are there."""
    queue = tf.FIFOQueue(10, [tf.float32, tf.float32], [(4, 3), (4,)])
    x, y = queue.dequeue()
    w = tf.get_variable("w", (3, 1), initializer=tf.ones_initializer(), use_resource=True)
    error = tf.squeeze(tf.tanh(tf.matmul(tf.nn.relu(x), w)), 1) - tf.exp(y)
    loss = tf.reduce_sum(error**2)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    put = queue.enqueue([tf.ones((4, 3)), tf.zeros(4)])
    with tf.Session() as sess:
        assert sess.explain([loss, train]).code.count("def region(") == 1
        sess.run(w.initializer)
        losses = []
        for _ in range(4):
            sess.run(put)
            losses.append(sess.run([loss, train])[0])
    np.testing.assert_allclose(losses[0], 4 * (np.tanh(3.0) - 1) ** 2, rtol=1e-4)
    assert losses[3] < losses[0]


def test_two_threads_train_one_variable():
    v = tf.get_variable("v", initializer=np.zeros(3, np.float32), use_resource=True)
    add = v.assign_add(tf.ones(3))
    value = v.read_value() * 1.0
    failures = []
    with tf.Session() as sess:
        sess.run(v.initializer)

        def work():
            try:
                for _ in range(50):
                    sess.run(add.op)
                    read = sess.run(value)
                    assert read[0] == read[1] == read[2]
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        np.testing.assert_array_equal(sess.run(v), np.full(3, 150.0))


def test_fed_arrays_may_change_after_the_step():
    x = tf.placeholder(tf.float32, (1000,))
    v = tf.get_variable("v", (1000,), initializer=tf.zeros_initializer(), use_resource=True)
    put = v.assign(x).op
    data = np.ones(1000, np.float32)
    with tf.Session() as sess:
        sess.run(put, {x: data})
        data[:] = 7
        np.testing.assert_array_equal(sess.run(v), np.ones(1000))


def test_step_stats_and_timeouts_work():
    x = tf.placeholder(tf.float32, (2,))
    y = tf.exp(x) + 1.0
    metadata = tf.RunMetadata()
    with tf.Session() as sess:
        sess.run(y, {x: [0, 0]}, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
        assert any("GPU" in d.device for d in metadata.step_stats.dev_stats)
        np.testing.assert_allclose(sess.run(y, {x: [0, 0]}, options=tf.RunOptions(timeout_in_ms=10000)), [2, 2])


@pytest.mark.skipif(not os.environ.get("PENSTOCK_TEST_GPU"), reason="needs a real GPU")
def test_updates_are_in_place():
    """A gigabyte that is updated again and again never needs a second gigabyte."""
    import jax

    (device,) = jax.devices()
    v = tf.get_variable("big", (256, 1 << 20), initializer=tf.zeros_initializer(), use_resource=True)
    add = v.assign_add(tf.ones((256, 1 << 20))).op
    corner = v[0, :2]
    with tf.Session() as sess:
        sess.run(v.initializer)
        sess.run(add)
        before = device.memory_stats()["bytes_in_use"]
        for _ in range(20):
            sess.run(add)
        np.testing.assert_array_equal(sess.run(corner), [21, 21])
        assert device.memory_stats()["bytes_in_use"] <= before + (1 << 20)
        assert device.memory_stats()["peak_bytes_in_use"] < 2.5 * (1 << 30)


@pytest.mark.skipif(not os.environ.get("PENSTOCK_TEST_GPU"), reason="needs a real GPU")
def test_too_much_memory_is_a_typed_error():
    x = tf.placeholder(tf.float32, ())
    y = tf.fill((1 << 37,), x) * 2.0  # half a terabyte
    with tf.Session() as sess:
        with pytest.raises(tf.errors.ResourceExhaustedError):
            sess.run(y, {x: 1.0})
        assert sess.run(x * 2.0, {x: 2.0}) == 4.0


def test_results_that_cannot_fit_are_refused(monkeypatch):
    monkeypatch.setattr(backend, "memory_limit", lambda device: 4000)
    x = tf.placeholder(tf.float32, ())
    with tf.Session() as sess:
        assert sess.run(tf.fill((999,), x) * 2.0, {x: 1.0}).sum() == 1998
        with pytest.raises(tf.errors.ResourceExhaustedError, match=r"OOM when allocating tensor with shape\[1001\] and type float32"):
            sess.run(tf.fill((1001,), x) * 2.0, {x: 1.0})
        assert sess.run(x * 2.0, {x: 2.0}) == 4.0


def test_a_loop_that_stays_in_python():
    """Its body draws random numbers and writes a TensorArray, so that only parts of it are programs."""
    x = tf.placeholder(tf.float32, (3,))
    array = tf.TensorArray(tf.float32, 4)

    def body(i, v, a):
        v = tf.sin(v) * 2.0 + tf.cast(i, tf.float32) + 0.0 * tf.random_uniform((3,))
        return i + 1, v, a.write(i, v)

    _, last, written = tf.while_loop(lambda i, *_: i < 4, body, [0, x, array])
    with tf.Session() as sess:
        for _ in range(2):
            value, rows = sess.run([last, written.stack()], {x: [1, 2, 3]})
            expected = np.array([1, 2, 3], np.float32)
            for i in range(4):
                expected = np.sin(expected) * 2 + i
                np.testing.assert_allclose(rows[i], expected, rtol=1e-5)
            np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_a_declaration_may_bring_its_rule(host_calls):
    from penstock.graph.opdef import OPS
    from penstock.graph.raw import raw
    from penstock.ops.declare import op, same_as

    op("TwiceForTests(x: T) -> (y: T) [T: type]", shape=same_as("x"), numpy=lambda x: x + x, xla=lambda x: x * 2)
    try:
        with tf.device("/gpu:0"):
            y = raw.TwiceForTests(x=tf.placeholder_with_default([1.0, 2.0], (2,))) + 1.0
        with tf.Session() as sess:
            np.testing.assert_array_equal(sess.run(y), [3, 5])
    finally:
        del OPS["TwiceForTests"]
    assert not host_calls


def test_a_bound_on_how_many_shapes_are_compiled(monkeypatch):
    from penstock.engines.xla import program

    monkeypatch.setattr(program, "MOST_SHAPES", 4)
    compiled = []
    own = program.Program.compile
    monkeypatch.setattr(program.Program, "compile", lambda self, given: (compiled.append(self), own(self, given))[1])
    with tf.device("/gpu:0"):
        x = tf.placeholder(tf.float32, [None, 3])
        y = tf.reduce_sum(tf.sin(x) * 2.0)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
        for _ in range(2):
            for n in range(1, 10):
                np.testing.assert_allclose(sess.run(y, {x: np.ones((n, 3))}), 6 * n * np.sin(1.0), rtol=1e-5)
    assert len(compiled) == 4


@pytest.mark.parametrize("when", ["before the program runs", "after it"])
def test_an_interrupt_does_not_lose_the_variables(monkeypatch, when):
    """The old values are given to the program, the new ones are not in their places yet."""
    from penstock.engines.xla import device

    with tf.device("/gpu:0"):
        w = tf.get_variable("w", initializer=np.ones(4, np.float32), use_resource=True)
        step = w.assign_add(tf.sin(w))
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
        sess.run(w.initializer)
        for _ in range(3):
            sess.run(step.op)
        before = sess.run(w)

        own = device.starmap

        def interrupted(*args):
            if when == "after it":
                yield from own(*args)
            raise KeyboardInterrupt

        monkeypatch.setattr(device, "starmap", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sess.run(step.op)
        monkeypatch.setattr(device, "starmap", own)
        expected = before + np.sin(before) if when == "after it" else before
        np.testing.assert_allclose(sess.run(w), expected, rtol=1e-6)
        sess.run(step.op)
        np.testing.assert_allclose(sess.run(w), expected + np.sin(expected), rtol=1e-6)


def _small_variables(n=6):
    graph = tf.Graph()
    with graph.as_default(), tf.device("/gpu:0"):
        rng = np.random.default_rng(3)
        kernel = tf.get_variable("kernel", initializer=rng.standard_normal((200, 100)).astype(np.float32), use_resource=True)
        small = [tf.get_variable(f"b{i}", initializer=np.full((i + 1, 2), i, np.float32), use_resource=True) for i in range(n)]
        loss = tf.reduce_sum(tf.square(kernel)) + tf.add_n([tf.reduce_sum(tf.square(v - 1.0)) for v in small])
        train = tf.train.MomentumOptimizer(0.1, 0.5).minimize(loss)
        init = tf.global_variables_initializer()
    return graph, small, loss, train, init


def _packed_programs():
    return [p for p in gc.get_objects() if type(p) is DeviceProgram and any(f is not None and f.pack is not None for f in p.forms.values())]


def test_small_variables_travel_together_and_are_variables_all_the_same():
    """Read, assigned and saved between steps: as without a GPU, whoever looks how often."""
    graph, small, loss, train, init = _small_variables()
    with tf.Session(graph=graph) as session:
        session.run(init)
        expected = [v.eval(session=session) for v in small]
        slots = [np.zeros_like(e) for e in expected]

        def step():
            session.run(train)
            for i, w in enumerate(expected):
                slots[i] = slots[i] * 0.5 + 2 * (w - 1)
                expected[i] = w - np.float32(0.1) * slots[i]

        for _ in range(40):
            step()
        assert _packed_programs()
        np.testing.assert_allclose(session.run(small[2]), expected[2], rtol=1e-5)
        step()
        with graph.as_default():
            small[1].load(np.full((2, 2), 5, np.float32), session)
        expected[1] = np.full((2, 2), 5, np.float32)
        for _ in range(3):
            step()
        for v, e in zip(small, expected):
            np.testing.assert_allclose(session.run(v), e, rtol=1e-5)


def test_variables_that_others_look_at_all_the_time_are_not_joined():
    graph, small, loss, train, init = _small_variables()
    with tf.Session(graph=graph) as session:
        session.run(init)
        before = len(_packed_programs())
        w, slot = np.full((3, 2), 2, np.float32), np.zeros((3, 2), np.float32)
        for _ in range(12):
            session.run(train)
            slot = slot * 0.5 + 2 * (w - 1)
            w = w - np.float32(0.1) * slot
            np.testing.assert_allclose(session.run(small[2]), w, rtol=1e-5)
        assert len(_packed_programs()) == before


@pytest.mark.parametrize(
    "build",
    [
        lambda x, i: x[i],
        lambda x, i: x[:, i],
        lambda x, i: x[..., i],
        lambda x, i: x[tf.newaxis, i],
        lambda x, i: tf.slice(x, [i, 0], [1, 4]),
        lambda x, i: tf.transpose(x, [i, 0]),
        lambda x, i: tf.matrix_band_part(x, i, 0),
    ],
    ids=["row", "column", "ellipsis", "new axis", "slice", "transpose", "band"],
)
def test_numbers_that_are_on_the_host_are_looked_at(build):
    """As in TensorFlow, whose kernels for GPUs have them on the host as well."""
    x, i = tf.placeholder(tf.float32, [3, 4]), tf.placeholder(tf.int32, [])
    y = build(x, i) * 2.0
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    with tf.Session() as sess, tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as on_cpu:
        for _ in range(2):
            for k in (1, 1, 5):
                if k == 5:
                    with pytest.raises(tf.errors.InvalidArgumentError):
                        sess.run(y, {x: data, i: k})
                else:
                    np.testing.assert_array_equal(sess.run(y, {x: data, i: k}), on_cpu.run(y, {x: data, i: k}))
        assert any(name == GPU for name in sess._runtime.placer.placement.values())
