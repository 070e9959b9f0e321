"""tf.cond, tf.while_loop, tf.case, tf.group, tf.tuple: results, graphs and errors."""

import collections

import numpy as np
import pytest

import penstock as tf

Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024


def run(fetches, feed=None):
    with tf.Session() as sess:
        if tf.global_variables():
            sess.run(tf.global_variables_initializer())
        return sess.run(fetches, feed)


def nodes():
    return {op.name: op for op in tf.get_default_graph().get_operations()}


# -- cond -------------------------------------------------------------------------------------------------------------


def test_cond_runs_one_branch():
    p = tf.placeholder(tf.bool, [])
    v = tf.Variable(0.0, use_resource=False)
    y = tf.cond(p, lambda: tf.assign_add(v, 1.0), lambda: tf.assign_add(v, 10.0))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert [sess.run(y, {p: b}) for b in (True, False, True)] == [1.0, 11.0, 12.0]


def test_cond_has_tfs_nodes():
    x = tf.placeholder(tf.float32, [2], name="x")
    y = tf.cond(tf.placeholder(tf.bool, [], name="p"), lambda: x * 2.0, lambda: tf.constant([1.0, 1.0]))
    graph = nodes()
    assert y.name == "cond/Merge:0"
    assert graph["cond/Switch"].type == "Switch"
    assert graph["cond/switch_t"].inputs[0].name == "cond/Switch:1"
    assert graph["cond/mul"].inputs[0].name == "cond/mul/Switch:1"
    assert [op.name for op in graph["cond/Const"].control_inputs] == ["cond/switch_f"]
    assert [t.name for t in graph["cond/Merge"].inputs] == ["cond/Const:0", "cond/mul:0"]
    assert graph["cond/mul/Switch"].colocation_groups() == [b"loc:@x"]
    assert len(tf.get_collection(tf.GraphKeys.COND_CONTEXT)) == 2


def test_values_inside_cannot_be_fetched_or_fed():
    x = tf.constant([1.0, 2.0])
    inside = []

    def branch():
        inside.append(x * 2.0)
        return inside[0]

    tf.cond(tf.placeholder(tf.bool, []), branch, lambda: x)
    graph = tf.get_default_graph()
    assert not graph.is_fetchable(inside[0]) and not graph.is_feedable(inside[0])


def test_results_of_many_kinds():
    p, x = tf.placeholder(tf.bool, []), tf.constant([1.0, 2.0])
    cases = [
        (tf.cond(p, lambda: x, lambda: x * 2.0), [1.0, 2.0]),
        (tf.cond(p, lambda: {"a": x, "b": (x + 1.0,)}, lambda: {"a": x, "b": (x,)})["b"][0], [2.0, 3.0]),
        (tf.cond(p, lambda: [x], lambda: [x * 2.0]), [1.0, 2.0]),
        (tf.cond(p, lambda: [x], lambda: [x * 2.0], strict=True)[0], [1.0, 2.0]),
        (tf.cond(p, fn1=lambda: x, fn2=lambda: x * 2.0), [1.0, 2.0]),
    ]
    for tensor, want in cases:
        assert run(tensor, {p: True}).tolist() == want


def test_sparse_results():
    p = tf.placeholder(tf.bool, [])
    s = tf.cond(p, lambda: tf.SparseTensor([[0]], [1.0], [2]), lambda: tf.SparseTensor([[1]], [2.0], [2]))
    assert run(s, {p: False}).indices.tolist() == [[1]]


def test_operations_as_results():
    p = tf.placeholder(tf.bool, [])
    v = tf.Variable(0.0, use_resource=False)
    done = tf.cond(p, lambda: tf.group(tf.assign_add(v, 1.0)), lambda: tf.no_op())
    assert done.dtype == tf.bool
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert [bool(sess.run(done, {p: b})) for b in (True, False)] == [True, False]
        assert sess.run(v) == 1.0


@pytest.mark.parametrize(
    "build, error, text",
    [
        (lambda p: tf.cond(True, lambda: 1, lambda: 2), TypeError, "must not be a Python bool"),
        (lambda p: tf.cond(p, 1, lambda: 2), TypeError, "true_fn must be callable"),
        (lambda p: tf.cond(p, lambda: 1), TypeError, "'false_fn' argument required"),
        (lambda p: tf.cond(p, lambda: 1, lambda: 2, fn1=lambda: 3), TypeError, "mutually exclusive"),
        (lambda p: tf.cond(p, lambda: None, lambda: 2), ValueError, "'true_fn' must have a return value"),
        (lambda p: tf.cond(p, lambda: 1, lambda: 2.0), ValueError, "must have the same type"),
        (lambda p: tf.cond(p, lambda: (1, 2), lambda: 1), ValueError, "Incompatible return types of true_fn and false_fn"),
        (lambda p: tf.cond(p, lambda: (1, 2), lambda: [1, 2]), TypeError, "Incompatible return types of true_fn and false_fn"),
    ],
)
def test_cond_errors(build, error, text):
    with pytest.raises(error, match=text):
        build(tf.placeholder(tf.bool, []))


# -- while_loop -------------------------------------------------------------------------------------------------------


def test_loop_has_tfs_nodes():
    x = tf.placeholder(tf.float32, [2], name="x")
    i, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), [0, x])
    graph = nodes()
    assert (i.name, y.name) == ("while/Exit:0", "while/Exit_1:0")
    assert [t.name for t in graph["while/Merge_1"].inputs] == ["while/Enter_1:0", "while/NextIteration_1:0"]
    assert graph["while/Enter"].get_attr("frame_name") == b"while/while_context"
    assert graph["while/mul/Enter"].get_attr("is_constant") and not graph["while/Enter"].get_attr("is_constant")
    assert graph["while/mul"].inputs[1].name == "while/mul/Enter:0"
    assert [op.name for op in graph["while/add/y"].control_inputs] == ["while/Identity"]
    assert [op.name for op in graph["while/Less/y"].control_inputs] == ["while/Merge"]
    assert len(tf.get_collection(tf.GraphKeys.WHILE_CONTEXT)) == 1


def test_a_variable_as_loop_variable_is_its_value():
    v = tf.get_variable("v", initializer=[1.0, 2.0])
    _, doubled = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + tf.sigmoid(x) * 0 + x), [0, v])
    assert doubled.dtype is tf.float32
    assert [(n.type, n.inputs[0].name) for n in tf.get_default_graph().get_operations() if n.name == "while/Enter_1"] == [("Enter", "v/read:0")]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(sess.run(doubled), [8, 16])
        np.testing.assert_array_equal(sess.run(v), [1, 2])


def test_loop_results():
    i, total = tf.while_loop(lambda i, s: i < 10, lambda i, s: (i + 1, s + i), [0, 0])
    assert run([i, total]) == [10, 45]
    assert run(tf.while_loop(lambda a: a < 100.0, lambda a: a * 2.0, [3.0])) == 192.0
    assert run(tf.while_loop(lambda a: a < 100.0, lambda a: [a * 2.0], [3.0], return_same_structure=True)) == [192.0]
    assert run(tf.while_loop(lambda a: a < 100.0, lambda a: a * 2.0, [3.0], maximum_iterations=2)) == 12.0


def test_limit_with_several_variables():
    i, a = tf.while_loop(lambda i, a: i < 10, lambda i, a: [i + 1, a * 2.0], [0, 1.0], maximum_iterations=tf.constant(3))
    assert run([i, a]) == [3, 8.0]
    with pytest.raises(ValueError, match="'maximum_iterations' must be a scalar"):
        tf.while_loop(lambda a: True, lambda a: a, [1.0], maximum_iterations=[1, 2])


def test_nested_structures():
    def body(i, s):
        return i + 1, {"u": Pair(s["u"].a * 2.0, s["u"].b + 1.0), "v": [s["v"][0] + s["u"].a]}

    _, state = tf.while_loop(lambda i, s: i < 3, body, (0, {"u": Pair(1.0, 1.0), "v": [0.0]}))
    assert isinstance(state["u"], Pair)
    assert run(state) == {"u": Pair(8.0, 4.0), "v": [7.0]}


def test_shapes_may_vary_if_told():
    x = tf.constant([1.0])
    _, y = tf.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, tf.concat([a, a], 0)), [0, x], shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])]
    )
    assert y.shape.as_list() == [None]
    assert run(y).shape == (8,)
    with pytest.raises(ValueError, match=r"Input tensor 'Const:0' enters the loop with shape \(1,\), but has shape \(2,\) after one iteration"):
        tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.concat([a, a], 0)), [0, x])
    with pytest.raises(ValueError, match="The shape invariant specified for"):
        tf.while_loop(lambda a: True, lambda a: a, [x], shape_invariants=[tf.TensorShape([3])])


def test_sparse_loop_variables():
    s = tf.SparseTensor([[0, 1], [1, 0]], [1.0, 2.0], [2, 2])
    _, r = tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, tf.SparseTensor(s.indices, s.values * 2.0, s.dense_shape)), [0, s])
    assert run(r).values.tolist() == [8.0, 16.0]
    z = tf.IndexedSlices(tf.constant([1.0]), tf.constant([1]), tf.constant([3]))
    _, r = tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, tf.IndexedSlices(s.values * 2.0, s.indices, s.dense_shape)), [0, z])
    assert run(r).values.tolist() == [8.0]


def test_control_inputs_from_outside_are_pulled_in():
    v = tf.Variable(0.0, use_resource=False)
    bump = tf.assign_add(v, 1.0)

    def body(i, a):
        with tf.control_dependencies([bump]):
            return i + 1, a + 1.0

    _, y = tf.while_loop(lambda i, a: i < 5, body, [0, 0.0])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(y) == 5.0
        assert sess.run(v) == 1.0  # what is outside runs once


def test_state_inside_of_loops_runs_each_time():
    v = tf.Variable(0.0, use_resource=True)

    def body(i):
        with tf.control_dependencies([v.assign_add(1.0, read_value=False)]):
            return i + 1

    loop = tf.while_loop(lambda i: i < 5, body, [0])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(loop)
        assert sess.run(v) == 5.0


def test_loops_and_branches_inside_of_each_other():
    def body(i, s):
        inner = tf.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, t + tf.cond(j > 0, lambda: j, lambda: 100)), [0, 0])[1]
        return i + 1, s + inner

    _, total = tf.while_loop(lambda i, s: i < 4, body, [0, 0])
    assert run(total) == sum(sum(j if j > 0 else 100 for j in range(i)) for i in range(4))


@pytest.mark.parametrize(
    "build, error, text",
    [
        (lambda: tf.while_loop(lambda: True, lambda: [], []), ValueError, "'loop_vars' must be provided"),
        (lambda: tf.while_loop(1, lambda a: a, [1]), TypeError, "'cond' must be callable"),
        (lambda: tf.while_loop(lambda a: True, 1, [1]), TypeError, "'body' must be callable"),
        (lambda: tf.while_loop(lambda a: True, lambda a: a, [1], parallel_iterations=0), TypeError, "positive integer"),
        (lambda: tf.while_loop(lambda i, a: i < 3, lambda i, a: i + 1, [0, 1.0]), ValueError, "same number of elements"),
        (lambda: tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, i), [0, 1.0]), tf.errors.InvalidArgumentError, "incompatible with expected float"),
    ],
)
def test_loop_errors(build, error, text):
    with pytest.raises(error, match=text):
        build()


def test_errors_leave_the_context():
    with pytest.raises(ZeroDivisionError):
        tf.while_loop(lambda i: i < 3, lambda i: 1 / 0, [0])
    with pytest.raises(ZeroDivisionError):
        tf.cond(tf.constant(True), lambda: 1 / 0, lambda: 1)
    assert tf.constant(1).op._get_control_flow_context() is None


# -- contexts as protos -----------------------------------------------------------------------------------------------


def test_contexts_can_be_written_and_read_back():
    from penstock.graph.contexts import CondContext
    from penstock.graph.while_context import WhileContext

    x = tf.placeholder(tf.float32, [2], name="x")
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.cond(i < 1, lambda: a * x, lambda: a + x)), [0, x])
    y = tf.cond(y[0] > 0.0, lambda: y * 2.0, lambda: y, name="last")
    y = tf.identity(y, name="y")
    graph = tf.get_default_graph()
    loops = [c.to_proto() for c in graph.get_collection("while_context")]
    conds = [c.to_proto() for c in graph.get_collection("cond_context")]
    assert len(loops) == 1 and len(conds) == 2 and len(loops[0].nested_contexts) == 2
    feed = np.array([1.5, -2.0], np.float32)
    with tf.Session() as sess:
        want = sess.run(tf.gradients(y, x)[0], {x: feed})
    graph_def = graph.as_graph_def()
    for scope in (None, "again"):
        with tf.Graph().as_default() as copy:
            tf.import_graph_def(graph_def, name=scope or "")
            read = [WhileContext.from_proto(p, scope) for p in loops] + [CondContext.from_proto(p, scope) for p in conds]
            if scope is None:
                assert [c.to_proto() for c in read] == loops + conds
            prefix = "" if scope is None else scope + "/"
            cx, cy = copy.get_tensor_by_name(prefix + "x:0"), copy.get_tensor_by_name(prefix + "y:0")
            with tf.Session() as sess:
                np.testing.assert_allclose(sess.run(tf.gradients(cy, cx)[0], {cx: feed}), want)


# -- case and its kin -------------------------------------------------------------------------------------------------


def test_case():
    x = tf.placeholder(tf.float32, [])
    y = tf.case([(x < 0.0, lambda: -x), (x > 10.0, lambda: x * 100.0)], default=lambda: x)
    z = tf.case({x < 0.0: lambda: tf.constant(1), x >= 0.0: lambda: tf.constant(2)}, exclusive=True)
    with tf.Session() as sess:
        assert [sess.run(y, {x: v}) for v in (-3.0, 11.0, 5.0)] == [3.0, 1100.0, 5.0]
        assert [sess.run(z, {x: v}) for v in (-3.0, 11.0)] == [1, 2]


def test_case_errors():
    x = tf.placeholder(tf.float32, [])
    several = tf.case([(x < 1.0, lambda: 1), (x < 0.0, lambda: 2)], default=lambda: 3, exclusive=True)
    nothing = tf.case([(x < 1.0, lambda: tf.constant(1)), (x < 0.0, lambda: tf.constant(2))])
    with tf.Session() as sess:
        assert sess.run(several, {x: 0.5}) == 1
        with pytest.raises(tf.errors.InvalidArgumentError, match="more than 1 conditions"):
            sess.run(several, {x: -1.0})
        with pytest.raises(tf.errors.InvalidArgumentError, match="None of conditions evaluated as True"):
            sess.run(nothing, {x: 5.0})
    with pytest.raises(TypeError, match="must be a list, tuple, or dict"):
        tf.case(3)
    with pytest.raises(TypeError, match="must be a tuple"):
        tf.case([3])
    with pytest.raises(TypeError, match="must be callable"):
        tf.case([(x < 1.0, 3)])


def test_switch_case():
    i = tf.placeholder(tf.int32, [])
    y = tf.switch_case(i, [lambda: tf.constant(10), lambda: tf.constant(20)])
    z = tf.switch_case(i, {0: lambda: tf.constant(10), 1: lambda: tf.constant(20)}, default=lambda: tf.constant(-1))
    with tf.Session() as sess:
        assert [sess.run(y, {i: v}) for v in (0, 1, 7, -7)] == [10, 20, 20, 20]
        assert [sess.run(z, {i: v}) for v in (0, 1, 7, -7)] == [10, 20, -1, -1]
    with pytest.raises(ValueError, match="must form contiguous range"):
        tf.switch_case(i, {0: lambda: 1, 2: lambda: 2})


def test_group():
    a, b = tf.constant(1.0, name="a"), tf.constant(2.0, name="b")
    g = tf.group(a, [b, (a,)])
    assert g.type == "NoOp" and g.name == "group_deps" and [op.name for op in g.control_inputs] == ["a", "b"]
    with tf.device("/cpu:0"):
        c = tf.constant(3.0)
    both = tf.group(a, c, name="both")
    assert sorted(op.name for op in both.control_inputs) == ["both/NoOp", "both/NoOp_1"]
    assert tf.group().type == "NoOp"
    assert run(both) is None
    with pytest.raises(TypeError, match="zero or more"):
        tf.group(3)
    with pytest.raises(ValueError, match="Unknown keyword arguments"):
        tf.group(a, wrong=1)


def test_tuple():
    a, b = tf.constant(1.0), tf.constant(2.0)
    first, nothing, second = tf.tuple([a, None, b])
    assert nothing is None and run([first, second]) == [1.0, 2.0]
    assert first.op.control_inputs[0] is second.op.control_inputs[0]
    with pytest.raises(ValueError, match="at least one Tensor"):
        tf.tuple([None])
    with pytest.raises(TypeError, match="must only contain Operation or Tensor"):
        tf.tuple([a], control_inputs=[3])
