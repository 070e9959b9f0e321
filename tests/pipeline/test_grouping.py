"""Regions of partitions that wait: loops and conds in them, groups that are merged, and what must stay apart so that no step gets stuck."""

import numpy as np
import pytest

import penstock as tf
from penstock import errors
from penstock.pipeline.regions import Traits, group
from tests import steps


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")


@pytest.fixture
def both(monkeypatch):
    """both(fetch, feeds, put, config): what a step gives, op by op and in regions, each after `put`."""

    def run(fetches, feeds=None, put=None, config=None):
        results = []
        for setting in ("0", "eager"):
            monkeypatch.setenv("PENSTOCK_REGIONS", setting)
            with tf.Session(config=config) as sess:
                if put is not None:
                    sess.run(put)
                try:
                    results.append(sess.run(fetches, feeds, options=tf.RunOptions(timeout_in_ms=20000)))
                except errors.OpError as error:
                    results.append((type(error), error.op and error.op.name, error.message))
        for a, b in zip(*(tf.nest.flatten(r) for r in results), strict=True):
            assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
        return results[1]

    return run


def source(value=2.0, shape=()):
    """A dequeue, and what has to run before it."""
    queue = tf.FIFOQueue(10, [tf.float32], [shape])
    return queue.dequeue(), queue.enqueue(tf.constant(value, shape=shape))


def code(fetches, feeds=(), config=None):
    with tf.Session(config=config) as sess:
        return sess.explain(fetches, list(feeds)).code


def n_regions(*args, **more):
    return code(*args, **more).count("def region(")


def test_a_loop_behind_a_dequeue(both):
    x, put = source()
    _, y = tf.while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, v * 0.5 + x), [0, x])
    assert both(tf.exp(y), put=put) == np.exp(np.float32(3.9375))
    text = code(tf.exp(y))
    assert "for n0 in count()" in text and text.count("def region(") == 1


@pytest.mark.parametrize("value", [3.0, -3.0])
def test_a_cond_behind_a_dequeue(both, value):
    x, put = source(value)
    y = tf.cond(x > 0, lambda: tf.cond(x > 2, lambda: x * 2, lambda: x), lambda: x - 1) + 1.0
    assert both(y, put=put) == (7.0 if value > 0 else -3.0)
    assert n_regions(y) == 1 and "if " in code(y)


@pytest.mark.parametrize("value", [3.0, -3.0])
def test_gradients_of_loops_and_conds(both, value):
    x, put = source(value, (2,))
    y = tf.cond(x[0] > 0, lambda: tf.tanh(x) * x, lambda: x * x)
    _, z = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, tf.sin(v) * x), [0, y])
    grad = tf.gradients(tf.reduce_sum(z), x)[0]
    both([z, grad], put=put)
    assert "for n0 in count()" in code([z, grad])


@pytest.mark.parametrize("taken", [True, False])
def test_a_loop_on_a_side_that_is_dead(both, taken):
    """The loop is inside of a cond that also waits: the cond stays with the executor."""
    x, put = source()
    p = tf.placeholder(tf.bool, [])
    more, put_more = source(5.0)

    def yes():
        return tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0), [0, x])[1]

    def no():
        queue = tf.FIFOQueue(2, [tf.float32], [()])
        with tf.control_dependencies([queue.enqueue(7.0)]):
            return queue.dequeue() + more * 0.0

    assert both(tf.cond(p, yes, no) + 1.0, {p: taken}, put=[put, put_more]) == (17.0 if taken else 8.0)


@pytest.mark.parametrize("value", [2.0, -2.0])
def test_dead_inputs_make_a_loop_dead(both, value):
    """Raw Switches: the loop's variable is alive on one side only."""
    x, put = source(value)
    low, high = tf.raw_ops.Switch(data=x, pred=x > 0)
    _, y = tf.while_loop(lambda v, w: v < 100, lambda v, w: (v * w, w), [high, high])
    merged, which = tf.raw_ops.Merge(inputs=[low - 1.0, y])
    both([merged, which], put=put)


@pytest.mark.parametrize("value", [2.0, -2.0])
@pytest.mark.parametrize("use_queue", [True, False])
def test_values_that_arrive_dead(both, value, use_queue):
    """A cond whose branches are on another device, so that a loop there gets values that may be dead."""
    config = tf.ConfigProto(device_count={"CPU": 2})
    x, put = source(value) if use_queue else (tf.constant(value) * 1.0, tf.no_op())
    low, high = tf.raw_ops.Switch(data=x, pred=x > 0)
    with tf.device("/cpu:1"):
        more, put_more = source(1.0)
        _, y = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0 + more), [0, high])
        z = tf.exp(high) + 1.0
    merged, which = tf.raw_ops.Merge(inputs=[low - 1.0, y + z])
    both([merged, which], put=[put, put_more], config=config)


def test_errors_name_the_node_and_the_round(monkeypatch):
    x, put = source(1.0, (2,))
    _, y = tf.while_loop(
        lambda i, v: i < 9, lambda i, v: (i + 1, tf.concat([v, [1.0]], 0) + tf.ones([5])[: i + 3]), [0, x], shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])]
    )
    told = []
    for setting in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_REGIONS", setting)
        with tf.Session() as sess:
            sess.run(put)
            with pytest.raises(errors.InvalidArgumentError) as info:
                sess.run(y)
        told.append((info.value.op.name, info.value.message, [s for s in info.value.story if "while: running" not in s]))
        assert any("iteration 3 of loop 'while/while_context'" in s for s in info.value.story)
    assert told[0] == told[1]


def endless():
    x, put = source(1.0)
    return tf.while_loop(lambda v: v >= 0, lambda v: v * 0.5 + 1.0, [x]), put


def test_closing_the_session_ends_a_regions_loop():
    y, put = endless()
    assert "for n0 in count()" in code(y)
    sess = tf.Session()
    sess.run(put)
    steps.once(steps.is_running, sess.close)
    with pytest.raises(errors.CancelledError):
        sess.run(y)


def test_a_deadline_ends_a_regions_loop():
    y, put = endless()
    with tf.Session() as sess:
        sess.run(put)
        with pytest.raises(errors.DeadlineExceededError):
            sess.run(y, options=tf.RunOptions(timeout_in_ms=200))
        sess.run(put)  # the session goes on


def test_groups_that_are_read_by_a_later_one_are_merged(both):
    queue = tf.FIFOQueue(10, [tf.float32, tf.float32], [(2,), (2,)])
    a, b = queue.dequeue()
    put = queue.enqueue([[1.0, 2.0], [3.0, 4.0]])
    y = tf.exp(a) * 2.0 + tf.sin(b) * 3.0
    both(y, put=put)
    other, put_other = source(1.0, (2,))
    z = tf.tanh(y) + tf.cos(other) * tf.sin(other)
    both([z, y], put=[put, put_other])
    assert n_regions([z, y]) == 2  # one for the queues' handles


def test_what_feeds_an_enqueue_does_not_wait(both):
    """The second dequeue waits for what is made of the first one."""
    x, put = source()
    near = tf.FIFOQueue(2, [tf.float32], [()])
    first = tf.exp(x) * 2.0
    put_near = near.enqueue(first + 1.0)
    y = first + near.dequeue() * 3.0
    both([y, put_near], put=put)


def test_what_crosses_and_comes_back_does_not_wait(both):
    config = tf.ConfigProto(device_count={"CPU": 2})
    with tf.device("/cpu:0"):
        x, put = source()
        first = tf.exp(x) * 2.0
    with tf.device("/cpu:1"):
        far = tf.tanh(first * 0.1) + 1.0
    with tf.device("/cpu:0"):
        y = first * 3.0 + far
    both(y, put=put, config=config)


@pytest.mark.parametrize("taken", [True, False])
def test_a_cond_whose_other_side_waits_for_what_it_feeds(both, taken):
    """If the first side is taken, the cond must not wait for the dequeue: only its result makes the queue have something."""
    x, put = source()
    p = tf.placeholder(tf.bool, [])
    near = tf.FIFOQueue(2, [tf.float32], [()])
    if not taken:
        put = tf.group(put, near.enqueue(1.0))
    late = near.dequeue()
    y = tf.cond(p, lambda: x * 2.0, lambda: late + 1.0)
    put_near = near.enqueue(y + 1.0)
    both([y, put_near, late], {p: taken}, put=put)


def test_a_loop_whose_exit_feeds_what_another_variable_waits_for(both):
    near = tf.FIFOQueue(2, [tf.float32], [()])
    late = near.dequeue()
    n, v = tf.while_loop(lambda i, v: i < 3.0, lambda i, v: (i + 1.0, v * 2.0), [tf.constant(0.0), late])
    put_near = near.enqueue(n * 2.0)
    assert both([v * 1.0, put_near])[0] == 48.0


def test_an_accumulator_is_not_held_back(both):
    """Applying a gradient wakes who takes it."""
    x, put = source()
    accumulator = tf.ConditionalAccumulator(tf.float32, shape=[])
    g = x * 2.0 + 1.0
    apply = accumulator.apply_grad(g)
    taken = accumulator.take_grad(1)
    y = g * 1.5 + taken * 2.0
    both([y, apply], put=put)


def test_a_cond_around_something_that_waits(both):
    """The parts of one cond with a dequeue between them: the cond and what uses its predicate again."""
    x, put = source()
    near = tf.FIFOQueue(2, [tf.float32], [()])
    p = x > 1.0
    a = tf.cond(p, lambda: x * 2.0, lambda: x * 3.0)
    with tf.control_dependencies([near.enqueue(a)]):
        b = near.dequeue()
    c = tf.cond(p, lambda: b + a, lambda: b - a)
    both([a, b, c], put=put)


def test_reference_variables_in_a_loop(both):
    x, put = source()
    v = tf.Variable(3.0, use_resource=False)
    _, y = tf.while_loop(lambda i, w: i < 3, lambda i, w: (i + 1, w + v * x), [0, x])
    with tf.control_dependencies([y]):
        add = tf.cond(x > 1, lambda: tf.assign_add(v, 1.0), lambda: tf.identity(v))
    with tf.control_dependencies([add]):
        after = v.read_value() * 1.0
    assert both([y, after], put=[put, v.initializer]) == [20.0, 4.0]


def test_nothing_is_dead_where_nothing_can_be():
    """A Recv says that its value is never dead, if no Switch comes before its Send."""
    from penstock.pipeline.partition import _may_die

    x = tf.placeholder(tf.float32, [])
    y = x + 1.0
    low, _ = tf.raw_ops.Switch(data=y, pred=x > 0)
    z = low * 2.0
    found = {op.name for op in _may_die(tf.get_default_graph())}
    assert z.op.name in found and low.op.name in found and y.op.name not in found


@pytest.mark.parametrize("by", ["value", "control edge"])
def test_constants_stand_behind_what_they_wait_for(by):
    """A region has constants of its own. One that waits for a node of the region keeps who reads it behind that node."""
    x, _ = source(shape=(3,))
    table = tf.raw_ops.MutableDenseHashTableV2(empty_key=np.int64(-1), deleted_key=np.int64(-2), value_dtype=tf.float32)
    insert = tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=np.array([3, 5, 9]), values=tf.sin(x))
    with tf.control_dependencies([insert]):
        first = tf.constant([9], tf.int64)
    with tf.control_dependencies([first]):
        keys = tf.constant([3], tf.int64)
        size = tf.raw_ops.LookupTableSizeV2(table_handle=table)
    found = tf.raw_ops.LookupTableFindV2(table_handle=table, keys=keys, default_value=-1.0) if by == "value" else size
    grouped = group(tf.get_default_graph(), Traits(lambda op: "Queue" not in op.type and "NoOp" != op.type, lambda tensor: False))
    bodies = [op.attrs["body"].ops for op in grouped.get_operations() if op.type == "_Region"]
    [ops] = [ops for ops in bodies if insert in ops and found.op in ops]
    for i, op in enumerate(ops):
        for before in (*(t.op for t in op.inputs), *op.control_inputs):
            assert before not in ops[i:], f"{before.name} comes after {op.name}"
    waits = {op: {t.op for t in op.inputs} | set(op.control_inputs) for op in ops}
    reached, todo = set(), [found.op]
    while todo:
        op = todo.pop()
        if op not in reached and op in waits:
            reached.add(op)
            todo += waits[op]
    assert insert in reached, "nothing inside of the region says that the table is read after it was written"
