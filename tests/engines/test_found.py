"""What random programs found, each as the small program it came down to. The same in every mode."""

import importlib.util
import time

import numpy as np
import pytest

import penstock as tf
from penstock import errors
from tests.engines.modes import MODES, setting

WAYS = ["off", "eager", "tiled", "warm", "parts", "deadline", "small", "small onednn", *(["all"] if importlib.util.find_spec("jax") else [])]


@pytest.fixture(params=WAYS)
def way(request):
    mode = MODES[request.param]
    with setting(mode):
        yield tf.RunOptions(timeout_in_ms=60000) if mode.deadline else None


def run(way, fetches, feeds=None, times=1):
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return [sess.run(fetches, feeds, options=way) for _ in range(times)][-1]


def through_a_queue(x):
    """x, by way of a kernel that may wait: the rest of the graph runs on the state machine, in regions."""
    queue = tf.FIFOQueue(2, [x.dtype], [x.shape])
    with tf.control_dependencies([queue.enqueue(x)]):
        return queue.dequeue()


def test_an_update_between_the_nodes_of_a_region(way):
    """The assignment and what reads the scatter's result may not be one region: the scatter, whose constants wait for the assignment, lies between."""
    v = tf.Variable(np.ones((3, 2), np.float32), use_resource=False)
    waited = through_a_queue(tf.constant(2.0))
    with tf.control_dependencies([tf.assign(v, np.full((3, 2), 5, np.float32))]):
        update = tf.scatter_max(v, [2, 0], [[7.0, 1.0], [9.0, 1.0]])
    after = tf.square(tf.identity(update) * 2.0)
    assert run(way, [after, waited], times=3)[0].tolist() == [[324.0, 100.0], [100.0, 100.0], [196.0, 100.0]]


def test_only_a_constant_waits(way):
    """A region has copies of the constants it reads; if one of them stands behind an enqueue, so does the region."""
    x = tf.placeholder(tf.float32, [])

    def slowly(value):
        time.sleep(0.02)
        return value

    queue = tf.FIFOQueue(10, [tf.float32], [[]])
    put = queue.enqueue(tf.reshape(tf.py_func(slowly, [x], tf.float32), []))
    with tf.control_dependencies([put]):
        factor = tf.constant(2.0)
    y = tf.tanh(x * factor) + 1.0
    with tf.control_dependencies([y]):
        size = queue.size()
    with tf.Session() as sess:
        assert [sess.run([size, y], {x: 0.0}, options=way) for _ in range(4)] == [[1, 1.0], [2, 1.0], [3, 1.0], [4, 1.0]]


def test_a_constant_between_two_nodes_of_a_region(way):
    """A control edge that goes from a region's node over a constant back to the region is no reason to wait."""
    x = tf.placeholder(tf.float32, [])
    waited = through_a_queue(x)
    first = tf.tanh(waited)
    with tf.control_dependencies([first]):
        between = tf.constant(3.0)
    with tf.control_dependencies([between]):
        last = tf.square(first) + 1.0
    assert run(way, [last, between], {x: 0.0}, times=3) == [1.0, 3.0]


def test_a_variable_is_read_where_the_graph_says(way):
    """v + 0 takes the value of a reference variable; taking the addition away would read it later."""
    v = tf.Variable(np.array([3, 4], np.int32), use_resource=False)
    before = v + 0
    with tf.control_dependencies([before]):
        update = tf.assign(v, [7, 8])
    with tf.control_dependencies([update]):
        after = v + 0
    with tf.control_dependencies([after]):
        last = tf.assign(v, [3, 4])
    got = run(way, [before, after, last.op], times=3)
    assert got[0].tolist() == [3, 4] and got[1].tolist() == [7, 8]


def test_a_constant_that_waits_keeps_its_sum(way):
    """x + 0 where the 0 waits for an update is more than x: what follows it follows the update."""
    v = tf.Variable(1, use_resource=True)
    x = tf.placeholder(tf.int32, [])
    with tf.control_dependencies([v.assign_add(10)]):
        y = x + tf.constant(0)
    with tf.control_dependencies([y]):
        z = v.read_value()
    assert run(way, [z, y], {x: 5}, times=1) == [11, 5]


def test_runs_know_what_a_push_gives(way):
    """The value of a StackPush is what was pushed; elementwise runs may read it by that name."""
    raw = tf.raw_ops
    x = tf.placeholder(tf.float32, [6])
    stack = raw.StackV2(max_size=-1, elem_type=tf.float32, stack_name="s")
    pushed = raw.StackPushV2(handle=stack, elem=tf.tanh(x))
    y = tf.square(pushed) + 1.0
    with tf.control_dependencies([y]):
        popped = raw.StackPopV2(handle=stack, elem_type=tf.float32)
    data = np.linspace(-1, 1, 6, dtype=np.float32)
    got = run(way, [y, popped], {x: data}, times=3)
    np.testing.assert_allclose(got[1], np.tanh(data), rtol=1e-6)
    np.testing.assert_allclose(got[0], np.square(np.tanh(data)) + 1, rtol=1e-6)


def test_a_dead_fetch_is_told_in_the_same_words(way):
    x = tf.placeholder(tf.float32, [])
    dead, alive = tf.raw_ops.Switch(data=x, pred=x > 0)
    with tf.Session() as sess:
        for _ in range(3):
            assert sess.run(alive, {x: 1.0}, options=way) == 1.0
            with pytest.raises(errors.InvalidArgumentError, match="the fetch 'Switch:0' was not computed"):
                sess.run(dead, {x: 1.0}, options=way)


def test_strings_are_stacked_as_strings(way):
    """Scalars of strings are arrays themselves; NumPy would make an array of them."""
    x = tf.placeholder(tf.string, [])
    got = run(way, [tf.stack([x, x]), tf.string_join([tf.stack([x, "b"]), "c"])], {x: b"a"}, times=2)
    assert got[0].tolist() == [b"a", b"a"] and got[1].tolist() == [b"ac", b"bc"]


def test_a_file_is_read_in_every_step(way, tmp_path):
    """Its name is a constant, but what it holds is not."""
    path = str(tmp_path / "file")
    x = tf.placeholder(tf.string, [])
    with tf.control_dependencies([tf.write_file(path, x)]):
        text = tf.read_file(path)
    size = tf.size(tf.matching_files(str(tmp_path / "*")))
    with tf.Session() as sess:
        assert [sess.run(text, {x: value}, options=way) for value in (b"one", b"two", b"three")] == [b"one", b"two", b"three"]
        assert sess.run(size) == 1
        (tmp_path / "another").write_text("")
        assert sess.run(size) == 2


def test_a_loop_over_nothing_with_a_tensor_array(way):
    x = tf.placeholder(tf.float32, [3])
    array = tf.TensorArray(tf.float32, 3, clear_after_read=False).unstack(x)
    _, kept = tf.while_loop(lambda i, a: i < 0, lambda i, a: (i + 1, a.write(i, tf.tanh(a.read(i)))), [tf.constant(0), array])
    y = kept.stack() * 2.0 + tf.reduce_sum(x)
    assert run(way, y, {x: [1.0, 2.0, 3.0]}, times=3).tolist() == [8.0, 10.0, 12.0]


def test_the_gradient_of_a_branch_in_a_branch_in_a_loop(way):
    """What the inner branch keeps for its gradient is taken from below the outer one's, which is empty while it is tried."""
    x = tf.placeholder(tf.float32, [2])

    def body(i, v):
        return i + 1, tf.cond(i % 2 > 0, lambda: tf.cond(i > 2, lambda: tf.sin(v) * v, lambda: v * v), lambda: tf.cos(v))

    _, y = tf.while_loop(lambda i, v: i < 5, body, [tf.constant(0), x])
    got = run(way, tf.gradients(y, x)[0], {x: [0.5, 1.0]}, times=3)
    _assert_slope(_branches, np.array([0.5, 1.0]), got)


def _branches(v):
    for i in range(5):
        v = (np.sin(v) * v if i > 2 else v * v) if i % 2 else np.cos(v)
    return v


def _assert_slope(f, x, slope):
    np.testing.assert_allclose(slope, (f(x + 1e-5) - f(x - 1e-5)) / 2e-5, rtol=1e-3)


def test_both_operands_are_broadcast(way):
    """A product broadcasts by itself, but not if both of its operands are left as they were."""
    x, y = tf.placeholder(tf.float32, [2, 1]), tf.placeholder(tf.float32, [2, 1])
    a, b = tf.broadcast_to(tf.tanh(x), [2, 3]), tf.broadcast_to(tf.sin(y), [2, 3])
    z = tf.add_n([a * b, tf.placeholder_with_default(np.ones((2, 3), np.float32), [2, 3]), a - b])
    data = np.array([[0.5], [1.0]], np.float32)
    t, s = np.tanh(data), np.sin(data * 2)
    got = run(way, [z, a * b], {x: data, y: data * 2}, times=3)
    np.testing.assert_allclose(got[0], np.broadcast_to(t * s + 1 + t - s, (2, 3)), rtol=1e-5)
    np.testing.assert_allclose(got[1], np.broadcast_to(t * s, (2, 3)), rtol=1e-5)


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_that_goes_on_where_another_ended(way, taken):
    """What one side keeps for later has no value when the other side was taken, so it cannot be handed to a program."""
    x = tf.placeholder(tf.float32, [3])
    pred = tf.placeholder(tf.bool, [])
    off, on = tf.raw_ops.Switch(data=x, pred=pred)
    kept = tf.sin(on)
    first = tf.raw_ops.Merge(inputs=[tf.cos(off) * 2.0, tf.tanh(kept) + kept])[0]
    text = tf.strings.to_number(tf.as_string(first))  # not for XLA: the branch ends here
    off_2, on_2 = tf.raw_ops.Switch(data=text, pred=pred)
    second = tf.raw_ops.Merge(inputs=[tf.exp(off_2) - 1.0, tf.exp(-kept * kept) + on_2 * kept + tf.sqrt(kept)])[0]
    data = np.array([0.25, 0.5, 1.0], np.float32)
    k = np.sin(data)
    got = run(way, [first, tf.tanh(second) * 2.0 + tf.abs(second)], {x: data, pred: taken}, times=3)
    one = np.tanh(k) + k if taken else np.cos(data) * 2
    two = np.exp(-k * k) + one * k + np.sqrt(k) if taken else np.exp(one) - 1
    np.testing.assert_allclose(got[0], one, rtol=1e-5)
    np.testing.assert_allclose(got[1], np.tanh(two) * 2 + np.abs(two), rtol=1e-4)


def test_slices_in_many_functions(way):
    """Constants and the functions that long code is cut into had names alike."""
    x = tf.placeholder(tf.float32, [3, 4])
    fed = np.arange(12, dtype=np.float32).reshape(3, 4)
    y, z = tf.split(x, 2, 1)
    for _ in range(100):
        y = tf.maximum(y * 0.5, z)
    np.testing.assert_array_equal(run(way, y, {x: fed}, 3), fed[:, 2:])


@pytest.mark.parametrize("build", [
    tf.reduce_mean, lambda x: tf.reduce_mean(x, 0), lambda x: tf.nn.moments(x, [0])[1], lambda x: tf.reshape(x, [-1]) + 1.0, lambda x: tf.reshape(x, [-1, 2, 4]) * 2.0,
])  # fmt: skip
def test_a_claimed_shape_that_does_not_hold_makes_no_difference(build):
    """TensorFlow computes with what is there, in every step; generated code must not rely on `set_shape` either."""
    with tf.Graph().as_default(), tf.Session() as sess:
        fed = tf.placeholder(tf.float32)
        x = tf.tanh(tf.reshape(fed, tf.placeholder_with_default(np.array([-1, 8], np.int32), [None])))
        x.set_shape([6, 8])
        y = build(x)
        for rows in (3, 6, 10):
            value = np.random.RandomState(rows).randn(rows, 8).astype(np.float32)
            seen = [sess.run(y, {fed: value}) for _ in range(8)]
            with tf.Graph().as_default(), tf.Session() as other:
                expected = other.run(build(tf.constant(np.tanh(value))))
            for got in seen:
                np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_fed_shape_that_does_not_fit_is_reported(way):
    """The one size that is not known follows from the others, but only if what is fed fits."""
    x, rows = tf.placeholder(tf.float32, [96]), tf.placeholder(tf.int32, [])
    w = tf.get_variable("w", initializer=np.eye(16, dtype=np.float32))
    y = tf.reshape(tf.tanh(x) + 1.0, [rows, 16])
    assert y.shape.as_list() == [6, 16]
    for _ in range(4):
        y = tf.tanh(tf.matmul(y, w))
    value = np.ones(96, np.float32)
    for fitting in (6, -1):
        assert run(way, y, {x: value, rows: fitting}, 3).shape == (6, 16)
    with pytest.raises(errors.InvalidArgumentError, match="Input to reshape is a tensor with 96 values, but the requested shape has 80"):
        run(way, y, {x: value, rows: 5})
