"""What random programs found, each as the small program it came down to. The same in every mode."""

import time

import numpy as np
import pytest

import penstock as tf
from penstock import errors
from tests.engines.agree import MODES, setting

WAYS = ["off", "eager", "tiled", "warm", "parts", "deadline"]


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
    np.testing.assert_array_equal(got[1], np.tanh(data))
    np.testing.assert_array_equal(got[0], np.square(np.tanh(data)) + 1)


def test_a_dead_fetch_is_told_in_the_same_words(way):
    x = tf.placeholder(tf.float32, [])
    dead, alive = tf.raw_ops.Switch(data=x, pred=x > 0)
    with tf.Session() as sess:
        for _ in range(3):
            assert sess.run(alive, {x: 1.0}, options=way) == 1.0
            with pytest.raises(errors.InvalidArgumentError, match="the fetch 'Switch:0' was not computed"):
                sess.run(dead, {x: 1.0}, options=way)
