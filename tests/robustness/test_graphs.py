"""Graphs that an expert would build in order to break a session: huge, deep, with odd names and devices."""

from __future__ import annotations

import numpy as np
import pytest

import penstock as tf

# -- big and deep graphs --------------------------------------------------------------------------------------------------


def test_a_deep_chain():
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [])
        y = x
        for _ in range(10_000):
            y = tf.negative(y)
        assert session.run(y, {x: 3.0}) == 3.0
        assert session.run(y, {x: 3.0}, options=tf.RunOptions(timeout_in_ms=60_000)) == 3.0
        g = tf.gradients(y, x)[0]
        assert session.run(g, {x: 3.0}) == 1.0
        data = graph.as_graph_def()
        with tf.Graph().as_default(), tf.Session() as other:
            (again, fed) = tf.import_graph_def(data, return_elements=[y.name, x.name])
            assert other.run(again, {fed: 2.0}) == 2.0


def test_a_deep_chain_of_constants_folds():
    with tf.Graph().as_default(), tf.Session() as session:
        y = tf.constant([2, 2])
        for _ in range(5_000):
            y = y + tf.constant(0)
        assert session.run(tf.zeros(y)).shape == (2, 2)


def test_a_deep_chain_of_control_edges():
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=0, use_resource=True)
        session.run(tf.global_variables_initializer())
        op = tf.no_op()
        for _ in range(3_000):
            with tf.control_dependencies([op]):
                op = tf.assign_add(v, 1).op
        session.run(op)
        assert session.run(v) == 3_000


def test_a_graph_of_a_hundred_thousand_nodes(monkeypatch):
    monkeypatch.setattr("penstock.graph.spec.enabled", False)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [], name="x")
        rows = []
        for _ in range(1_000):
            y = x
            for _ in range(99):
                y = tf.negative(y)
            rows.append(y)
        total = tf.add_n(rows)
        assert len(graph) > 99_000
        assert session.run(total, {x: 1.0}) == -1_000.0
        assert session.run(rows[5], {x: 2.0}) == -2.0


def test_wide_nodes():
    with tf.Graph().as_default(), tf.Session() as session:
        parts = [tf.constant(float(i)) for i in range(3_000)]
        assert session.run(tf.add_n(parts)) == sum(range(3_000))
        assert session.run(tf.stack(parts)).shape == (3_000,)
        assert len(session.run(tf.unstack(tf.zeros([3_000])))) == 3_000


@pytest.mark.parametrize("depth", [50])
def test_nested_conditionals(sess, depth):
    x = tf.placeholder(tf.int32, [])

    def level(n):
        if n == depth:
            return tf.identity(x)
        return tf.cond(x > n, lambda: level(n + 1), lambda: tf.constant(-n))

    y = level(0)
    assert sess.run(y, {x: 100}) == 100 and sess.run(y, {x: 0}) == 0 and sess.run(y, {x: 20}) == -20


def test_nested_loops(sess):
    def level(n, total):
        if n == 0:
            return total + 1
        return tf.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, level(n - 1, t)), [tf.constant(0), total])[1]

    x = tf.placeholder(tf.int32, [])
    assert sess.run(level(5, x), {x: 0}) == 3**5


def test_nested_loops_have_gradients(sess):
    x = tf.placeholder(tf.float32, [])

    def level(n, value):
        if n == 0:
            return value * x
        return tf.while_loop(lambda i, t: i < 2, lambda i, t: (i + 1, level(n - 1, t)), [tf.constant(0), value])[1]

    y = level(3, tf.constant(1.0))
    assert sess.run([y, tf.gradients(y, x)[0]], {x: 1.0}) == [1.0, 8.0]


def test_a_constant_of_600_megabytes():
    value = np.zeros(600 << 18, np.float32)
    value[-1] = 5
    with tf.Graph().as_default(), tf.Session() as session:
        c = tf.constant(value)
        assert session.run(c[-1]) == 5.0 and session.run(tf.reduce_max(c)) == 5.0


def test_a_graph_of_more_than_two_gigabytes_is_not_written():
    """The check comes before any of the bytes do."""
    resource = pytest.importorskip("resource")
    big = np.broadcast_to(np.arange(1 << 20, dtype=np.float32), (700, 1 << 20))
    with tf.Graph().as_default() as graph:
        from penstock import dtypes
        from penstock.graph.constant import constant_tensor

        constant_tensor(graph, big, dtypes.float32, "big")
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ValueError, match="GraphDef cannot be larger than 2GB"):
            graph.as_graph_def()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 200 << 10


# -- names, devices, messages ---------------------------------------------------------------------------------------------


def test_names_that_are_no_names():
    for name in ("é", "a b", "a\n", "a:0", "^a", "_a", "/a", "\x00", "日本", "a" * 3 + "?"):
        with pytest.raises(ValueError, match="not a valid node name"):
            tf.constant(1, name=name)
        with pytest.raises(ValueError, match="not a valid node name"):
            tf.get_default_graph().create_op("NoOp", [], name=name)
        with pytest.raises(ValueError, match="not a valid root scope name"):
            tf.no_op(name=name)
        with pytest.raises(ValueError, match="not a valid root scope name"), tf.name_scope(name):
            pass
    assert tf.constant(1, name="a" * 3000).op.name == "a" * 3000


def test_a_device_function_that_raises():
    def choose(op):
        raise KeyError("no idea")

    graph = tf.get_default_graph()
    with pytest.raises(KeyError, match="no idea"), tf.device(choose):
        tf.constant(1, name="lost")
    assert tf.constant(1, name="found").op.name == "found"
    assert all(op.type for op in graph.get_operations())
    with tf.Session() as session:
        assert session.run("found:0") == 1


def test_a_device_function_that_answers_nonsense():
    with tf.device(lambda op: "/device:NOPE:0"):
        x = tf.constant(1, name="x")
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device for operation"):
        session.run(x)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
        assert session.run(x) == 1


def test_errors_inside_of_loops_name_the_node(sess):
    x = tf.placeholder(tf.float32, name="x")

    def body(i, total):
        return i + 1, total + tf.reduce_sum(tf.matmul(x, tf.ones([2, 2]), name="inside"))

    loop = tf.while_loop(lambda i, t: i < 3, body, [tf.constant(0), tf.constant(0.0)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Matrix size-incompatible") as info:
        sess.run(loop, {x: np.ones((3, 3), np.float32)})
    assert info.value.op.name == "while/inside" and "test_graphs.py" in str(info.value)


def test_scopes_that_raise_leave_the_graph_as_it_was(sess):
    graph = tf.get_default_graph()
    for scope in (
        lambda: tf.name_scope("n"), lambda: tf.device("/cpu:1"), lambda: tf.control_dependencies([tf.no_op()]), lambda: graph.container("c"),
        lambda: tf.variable_scope("v"), lambda: graph.gradient_override_map({"Neg": "Foo"}), lambda: tf.colocate_with(tf.no_op()),
    ):  # fmt: skip
        with pytest.raises(ZeroDivisionError), scope():
            raise ZeroDivisionError
    op = tf.constant(1, name="plain").op
    assert op.name == "plain" and op.device == "" and not op.control_inputs and "_class" not in op.attrs


def test_a_branch_that_raises_leaves_the_graph_usable(sess):
    p, x = tf.placeholder(tf.bool, []), tf.constant(1.0)

    def bad(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tf.cond(p, lambda: x, bad)
    with pytest.raises(ZeroDivisionError):
        tf.while_loop(lambda i: i < 3, bad, [tf.constant(0)])
    y = tf.cond(p, lambda: x + 1, lambda: x)
    assert y.op.control_inputs == [] and sess.run(y, {p: True}) == 2.0


def test_a_finalized_graph(sess):
    x = tf.constant(1)
    tf.get_default_graph().finalize()
    assert sess.run(x) == 1
    for change in (lambda: tf.constant(2), lambda: tf.get_variable("v", []), lambda: tf.import_graph_def(tf.GraphDef()), lambda: x + 1):
        with pytest.raises(RuntimeError, match="finalized"):
            change()
    assert sess.run(x) == 1
