"""Programs about sessions: fetches, feeds, variables, queues, handles. See api_programs.py."""

from __future__ import annotations

import collections

import numpy as np

from conformance.api_programs import error_of, facts, sequence

Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024


@sequence
def fetch_structures(tf):
    x, op = tf.constant([1.0, 2.0], name="x"), tf.no_op(name="op")
    with tf.Session() as sess:
        return [sess.run(f) for f in (x, [x], (x, op), {"a": x, "b": [op, {"c": x}]}, Pair(x, [x, x]), "x:0", "op", [], {}, [[], ()], tf.SparseTensor([[0]], x[:1], [1]))]


@sequence
def feeds(tf):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    y = x * 2.0
    with tf.Session() as sess:
        good = [sess.run(y, {x: v}) for v in ([[1, 2]], np.ones((3, 2)), [(1.5, 2)], np.zeros((0, 2)))]
        return good + [sess.run(y, {"x:0": [[1, 2]]}), sess.run([x, y], {y: [[5.0, 5.0]], x: [[1, 1]]}), sess.run(y, {y: np.ones((4, 2))})]


@sequence
def feed_errors(tf):
    x, s, i = tf.placeholder(tf.float32, [2], name="x"), tf.placeholder(tf.string, name="s"), tf.placeholder(tf.int32, name="i")
    c = tf.constant(1.0)
    with tf.Session() as sess:
        cases = [
            {x: [1, 2, 3]}, {x: "a"}, {x: None}, {x: [[1], [2, 3]]}, {"nope:0": 1}, {"x": [1, 2]}, {x: c}, {i: 1.5}, {i: 2**40}, {i: "1"}, {s: 1}, {3: 1}, [x], {x: np.array([1, None])},
            {x.op: [1, 2]}, {(x, i): (np.ones(2), 3)}, {(x, i): (np.ones(2),)}, {i: True}, {i: np.int64(3)}, {i: [1.5]}, {s: b"a"},
        ]  # fmt: skip
        return [error_of(lambda: sess.run([t for t in (x, s, i) if isinstance(case, dict) and t in case] or c, case)) for case in cases] + [error_of(lambda: sess.run(x))]


@sequence
def fetch_errors(tf):
    x = tf.constant(1.0, name="x")
    other = tf.Graph()
    with other.as_default():
        foreign = tf.constant(1)
    with tf.Session() as sess:
        return [error_of(lambda: sess.run(f)) for f in (None, 3, "nope", "nope:0", "x:7", "x:a", foreign, foreign.op, [x, None], {"a": 3}, object(), tf.float32)]


@sequence
def sessions_and_graphs(tf):
    out = [error_of(lambda: tf.Session(graph=3)), error_of(lambda: tf.Session(3)), error_of(lambda: tf.Session(config=3)), error_of(lambda: tf.Session("nonsense://x"))]
    x = tf.constant(2.0)
    out.append(error_of(lambda: x.eval()))
    with tf.Session() as sess:
        out += [x.eval(), sess.graph is tf.get_default_graph(), tf.get_default_session() is sess]
        out.append((x + 1).eval(session=sess))
    out.append(error_of(lambda: sess.run(x)))
    out.append(tf.get_default_session() is None)
    with tf.Graph().as_default() as g:
        y = tf.constant(3)
        with tf.Session() as inner:
            out += [inner.run(y), inner.graph is g, error_of(lambda: inner.run(x)), error_of(lambda: x + tf.cast(y, tf.float32))]
        g.finalize()
        out.append(error_of(lambda: tf.constant(1)))
    sess = tf.InteractiveSession()
    out.append(x.eval())
    sess.close()
    return out


@sequence
def variables(tf):
    out = []
    for use_resource in (False, True):
        v = tf.get_variable(f"v{use_resource}", initializer=[1.0, 2.0], use_resource=use_resource)
        with tf.Session() as sess:
            out += [error_of(lambda: sess.run(v)), [n.decode() for n in sess.run(tf.report_uninitialized_variables([v]))]]
            sess.run(v.initializer)
            out += [sess.run(v), sess.run(tf.assign(v, [3.0, 4.0])), sess.run(v.assign_add([1.0, 1.0])), sess.run(tf.assign_sub(v, [1.0, 0.0])), sess.run(tf.scatter_add(v, [0], [5.0])), sess.run(v.read_value())]
            out += [sess.run(tf.is_variable_initialized(v)), error_of(lambda: tf.assign(v, [1.0])), error_of(lambda: tf.assign(v, ["a", "b"])), v.shape.as_list(), v.dtype.name]
            v.load([7.0, 8.0], sess)
            out += [sess.run(v), v.eval(sess), sess.run(v[0]), sess.run(v + 1)]
    return out


@sequence
def initialisation_order(tf):
    a = tf.get_variable("a", initializer=2.0)
    b = tf.Variable(a.initialized_value() * 3, name="b")
    c = tf.Variable(lambda: tf.constant(4.0), name="c")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return [*sess.run([a, b, c]), [v.name for v in tf.global_variables()], b.initial_value.name, c.op.name]


@sequence
def queues(tf):
    q = tf.FIFOQueue(3, [tf.int32, tf.string], [[], []], names=["n", "s"])
    r = tf.PaddingFIFOQueue(4, [tf.int32], [[None]])
    p = tf.PriorityQueue(4, [tf.string], [[]])
    with tf.Session() as sess:
        out = [sess.run(q.size())]
        sess.run(q.enqueue({"n": 1, "s": "a"}))
        sess.run(q.enqueue_many({"n": [2, 3], "s": ["b", "c"]}))
        out += [sess.run(q.dequeue()), sess.run(q.dequeue_many(2)), sess.run(q.size())]
        for row in ([1], [2, 3]):
            sess.run(r.enqueue([row]))
        out.append(sess.run(r.dequeue_many(2)))
        for priority, text in ((3, "c"), (1, "a"), (2, "b")):
            sess.run(p.enqueue((np.int64(priority), text)))
        out += [sess.run(p.dequeue()), sess.run(p.dequeue())]
        sess.run(q.close())
        out += [error_of(lambda: sess.run(q.dequeue())), error_of(lambda: sess.run(q.enqueue({"n": 1, "s": "a"}))), sess.run(q.is_closed())]
        out += [error_of(lambda: q.enqueue([1])), error_of(lambda: tf.FIFOQueue(1, [tf.int32], [[], []])), q.name, [d.name for d in q.dtypes], q.names]
    return out


@sequence
def python_functions(tf):
    x = tf.constant([1.0, 2.0])
    good = tf.py_func(lambda a: a * 2, [x], tf.float32)
    several = tf.py_func(lambda a, b: (a + b, np.int64(7)), [x, x], [tf.float32, tf.int64])
    nothing = tf.py_func(lambda: None, [], [])
    text = tf.py_func(lambda: "text", [], tf.string)

    def raising(kind):
        def function():
            raise kind("why")

        return tf.py_func(function, [], tf.float32)

    with tf.Session() as sess:
        out = [sess.run(good), sess.run(several), sess.run(text), sess.run(nothing) is None, str(good.shape)]
        out += [error_of(lambda: sess.run(raising(k))) for k in (ValueError, TypeError, StopIteration, MemoryError, NotImplementedError, KeyError, RuntimeError, ZeroDivisionError)]
        return out + [error_of(lambda: sess.run(tf.py_func(lambda: np.float64(1), [], tf.float32)))]


@sequence
def callables_and_partial_runs(tf):
    a, b = tf.placeholder(tf.float32, [], name="a"), tf.placeholder(tf.float32, [], name="b")
    c = a * 2
    d = c + b
    with tf.Session() as sess:
        call = sess.make_callable([c, d], [a, b])
        out = [call(1.0, 2.0), sess.make_callable(c, [a])(4.0), sess.make_callable(tf.no_op())()]
        handle = sess.partial_run_setup([c, d], [a, b])
        out += [sess.partial_run(handle, c, {a: 3.0}), sess.partial_run(handle, d, {b: 1.0})]
        out += [error_of(lambda: sess.partial_run(handle, d, {b: 1.0})), error_of(lambda: sess.partial_run_setup([], [])), error_of(lambda: sess.make_callable(c, a)), error_of(lambda: call(1.0))]
    return out


@sequence
def training(tf):
    out = []
    for make in (lambda: tf.train.GradientDescentOptimizer(0.1), lambda: tf.train.AdamOptimizer(0.1), lambda: tf.train.MomentumOptimizer(0.1, 0.9)):
        with tf.Graph().as_default():
            w = tf.get_variable("w", initializer=[1.0, 2.0])
            step = tf.train.get_or_create_global_step()
            loss = tf.reduce_sum(tf.square(w - 3.0))
            optimizer = make()
            train = optimizer.minimize(loss, global_step=step)
            names = [v.name for v in tf.global_variables()]
            with tf.Session() as sess:
                sess.run(tf.global_variables_initializer())
                for _ in range(3):
                    sess.run(train)
                out += [sess.run([w, step, loss]), names, train.name, optimizer.get_slot_names()]
    return out


@sequence
def graph_surgery(tf):
    x = tf.placeholder(tf.float32, [2], name="x")
    tf.multiply(x, 3.0, name="y")
    data = tf.get_default_graph().as_graph_def()
    out = []
    with tf.Graph().as_default() as g:
        z = tf.constant([1.0, 2.0], name="z")
        (y,) = tf.import_graph_def(data, {"x:0": z}, ["y:0"], name="in")
        tf.import_graph_def(data)
        out += [sorted(op.name for op in g.get_operations()), y.name]
        out += [error_of(lambda: tf.import_graph_def(data, {"nope:0": z})), error_of(lambda: tf.import_graph_def(data, return_elements=["nope"])), error_of(lambda: tf.import_graph_def(data, {"x:0": tf.constant(1)})), error_of(lambda: tf.import_graph_def(3)), error_of(lambda: tf.import_graph_def(data, {"x:0": z}, name=""))]
        with tf.Session() as sess:
            out.append(sess.run(y))
        out += [g.get_tensor_by_name("in/y:0").op.type, error_of(lambda: g.get_tensor_by_name("in/y")), error_of(lambda: g.get_operation_by_name("in/y:0")), error_of(lambda: g.get_operation_by_name("nope")), error_of(lambda: g.get_tensor_by_name("in/y:5")), error_of(lambda: g.as_graph_element(3))]
    return out


@sequence
def graph_defs(tf):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    y = tf.nn.relu(x, name="y")
    g = tf.get_default_graph()
    op = y.op
    return [
        [(n.name, n.op, list(n.input), sorted(n.attr)) for n in g.as_graph_def().node], sorted(g.as_graph_def(add_shapes=True).node[1].attr), g.version > 0, op.get_attr("T").name if hasattr(op.get_attr("T"), "name") else str(op.get_attr("T")),
        error_of(lambda: op.get_attr("nope")), op.type, [t.name for t in op.inputs], [c.name for c in x.consumers()], op.node_def.op, repr(y), str(y), repr(op), g.is_fetchable(y), g.is_feedable(y),
    ]  # fmt: skip


@sequence
def handles(tf):
    x = tf.constant([1.0, 2.0])
    h = tf.get_session_handle(x * 2)
    with tf.Session() as sess:
        handle = sess.run(h)
        holder, tensor = tf.get_session_tensor(handle.handle, tf.float32)
        out = [handle.eval(), sess.run(tensor + 1, {holder: handle.handle}), sess.run(tensor, {holder: handle.handle})]
        handle.delete()
        return [*out, error_of(lambda: sess.run(tensor, {holder: handle.handle}))]


@facts
def tensors_in_python(tf):
    x = tf.constant([1.0, 2.0])
    u = tf.placeholder(tf.float32)
    return [error_of(lambda: bool(x)), error_of(lambda: len(x)), error_of(lambda: len(u)), error_of(lambda: u.shape.as_list()), error_of(lambda: x["a"]), error_of(lambda: x[1.5]), error_of(lambda: x[0, 0]), error_of(lambda: x[5]), error_of(lambda: np.array(x)), error_of(lambda: float(x)), x == x, x != x, x in {x}, error_of(lambda: x.set_shape([3])), hash(x) == hash(x), tf.is_tensor(x), tf.is_tensor(1)]  # fmt: skip


@facts
def static_values(tf):
    x = tf.placeholder(tf.float32, [2, None])
    get = tf.get_static_value
    return [get(tf.constant([1, 2])), get(tf.shape(tf.zeros([2, 3]))), get(tf.shape(x)), get(tf.range(3)), get(tf.constant(1) + 1), get(tf.rank(x)), get(tf.fill([2], 1)), get(tf.stack([1, 2])), get(tf.cast(1.5, tf.int32)), get(tf.concat([[1], [2]], 0)), get(x)]  # fmt: skip


@facts
def helpers(tf):
    a, b = tf.constant(1, name="a"), tf.constant(2, name="b")
    g = tf.group(a, b, name="g")
    t = tf.tuple([a, b], name="t")
    with tf.control_dependencies([g]):
        n = tf.no_op(name="n")
    return [g.type, [c.name for c in g.control_inputs], [x.name for x in t], n.control_inputs[0].name, tf.identity_n([a, b])[1].name, error_of(lambda: tf.group(1)), tf.group().type, tf.convert_to_tensor([a, b]).name, tf.convert_to_tensor([1.0, 2.0], name="c").name, error_of(lambda: tf.convert_to_tensor(a, tf.float32)), tf.as_dtype("float32").name, error_of(lambda: tf.as_dtype("nope"))]  # fmt: skip


@sequence
def checks(tf):
    x = tf.placeholder(tf.float32, [None], name="x")
    with tf.Session() as sess:

        def run(*deps):
            def go(value):
                with tf.control_dependencies([d for d in deps if d is not None]):
                    return sess.run(tf.identity(x), {x: value})

            return go

        positive = run(tf.assert_positive(x))
        equal = run(tf.assert_equal(x, [1.0, 2.0], message="mine"))
        out = [error_of(lambda: positive([1.0])), error_of(lambda: positive([-1.0])), error_of(lambda: equal([1.0, 2.0])), error_of(lambda: equal([1.0, 3.0]))]
        out += [error_of(lambda: tf.assert_rank(x, 2)), error_of(lambda: tf.assert_equal(1, 2)), error_of(lambda: tf.assert_type(x, tf.int32)), error_of(lambda: tf.assert_less([3], [2])), error_of(lambda: tf.assert_scalar(x))]
        check = tf.check_numerics(x, "bad")
        return [*out, error_of(lambda: sess.run(check, {x: [np.nan]})), error_of(lambda: sess.run(tf.ensure_shape(x, [2]), {x: [1.0]})), error_of(lambda: sess.run(tf.Assert(x[0] > 0, [x]), {x: [-1.0]}))]
