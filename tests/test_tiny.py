"""The quickest look at everything: one small program per part of the system, a few seconds in all."""

import numpy as np
import pytest

import penstock as tf


@pytest.fixture
def sess():
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        yield session


def test_a_sum(sess):
    assert sess.run(tf.constant(1.0) + 2.0) == 3.0


def test_feeds_and_nested_fetches(sess):
    x = tf.placeholder(tf.float32, [None, 2])
    total, parts = sess.run([tf.reduce_sum(x), {"double": x * 2, "op": tf.no_op()}], {x: [[3.0, 4.0]]})
    assert total == 7.0 and parts["double"].tolist() == [[6.0, 8.0]] and parts["op"] is None


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables(sess, use_resource):
    v = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=use_resource)
    with pytest.raises(tf.errors.FailedPreconditionError):
        sess.run(v)
    sess.run(tf.global_variables_initializer())
    assert sess.run(tf.assign_add(v, [1.0, 1.0])).tolist() == [2.0, 3.0]
    assert sess.run(v).tolist() == [2.0, 3.0]


def test_training_learns(sess):
    rng = np.random.RandomState(0)
    data = rng.randn(64, 3).astype(np.float32)
    target = data @ np.array([[1.0], [-2.0], [0.5]], np.float32)
    x, y = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None, 1])
    w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
    train = tf.train.GradientDescentOptimizer(0.2).minimize(loss)
    sess.run(tf.global_variables_initializer())
    first = sess.run(loss, {x: data, y: target})
    for _ in range(30):
        sess.run(train, {x: data, y: target})
    assert sess.run(loss, {x: data, y: target}) < 0.01 * first


def test_a_loop_and_its_gradient(sess):
    x = tf.constant(3.0)
    _, power = tf.while_loop(lambda i, p: i < 4, lambda i, p: (i + 1, p * x), [tf.constant(0), tf.constant(1.0)])
    assert sess.run([power, tf.gradients(power, x)[0]]) == [81.0, 108.0]


def test_a_conditional_runs_one_branch(sess):
    seen = []
    p = tf.placeholder(tf.bool, [])
    note = lambda what: lambda: tf.py_func(lambda: (seen.append(what), np.int64(len(what)))[1], [], tf.int64)  # noqa: E731
    y = tf.cond(p, note("yes"), note("no"))
    assert sess.run(y, {p: True}) == 3 and sess.run(y, {p: False}) == 2
    assert seen == ["yes", "no"]


def test_two_devices(sess):
    with tf.device("/cpu:1"):
        a = tf.placeholder(tf.float32) * 2
    with tf.device("/cpu:0"):
        b = a + 1
    metadata = tf.RunMetadata()
    value = sess.run(b, {a.op.inputs[0]: 4.0}, tf.RunOptions(output_partition_graphs=True), metadata)
    assert value == 9.0
    assert {node.op for graph in metadata.partition_graphs for node in graph.node} >= {"_Send", "_Recv"}


def test_a_queue(sess):
    queue = tf.FIFOQueue(3, tf.int32, shapes=[[]])
    sess.run(queue.enqueue_many([[1, 2, 3]]))
    sess.run(queue.close())
    assert sess.run(queue.dequeue_many(2)).tolist() == [1, 2] and sess.run(queue.dequeue()) == 3
    with pytest.raises(tf.errors.OutOfRangeError):
        sess.run(queue.dequeue())


def test_strings_and_sparse(sess):
    parts = sess.run(tf.string_split(["a b", "c"]))
    assert parts.values.tolist() == [b"a", b"b", b"c"] and parts.dense_shape.tolist() == [2, 2]


def test_seeds_repeat(sess):
    def draw():
        with tf.Graph().as_default(), tf.Session() as session:
            tf.set_random_seed(5)
            return session.run(tf.random_normal([3]))

    assert draw().tolist() == draw().tolist()


def test_a_graph_goes_out_and_comes_back(sess):
    x = tf.placeholder(tf.float32, [2], name="x")
    tf.multiply(x, 3.0, name="y")
    data = tf.get_default_graph().as_graph_def().SerializeToString()
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.import_graph_def(tf.GraphDef.FromString(data), name="")
        assert session.run("y:0", {"x:0": [1.0, 2.0]}).tolist() == [3.0, 6.0]
        assert graph.get_operation_by_name("y").type == "Mul"


def test_errors_name_the_node(sess):
    a = tf.placeholder(tf.float32)
    bad = tf.matmul(a, tf.ones([2, 2]), name="bad")
    with pytest.raises(tf.errors.InvalidArgumentError) as info:
        sess.run(bad, {a: np.ones((3, 3), np.float32)})
    assert info.value.op is bad.op and "bad" in info.value.message and "test_tiny.py" in str(info.value)


def test_a_closed_session_says_so():
    session = tf.Session()
    session.close()
    with pytest.raises(RuntimeError, match="closed Session"):
        session.run(tf.constant(1))
