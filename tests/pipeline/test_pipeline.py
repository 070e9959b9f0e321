"""Prune, place, optimise and partition: the structure each stage leaves, and equal values with it on and off."""

import numpy as np
import pytest

import penstock as tf
from penstock.graph import rewrite, spec
from penstock.pipeline import custom
from penstock.pipeline.frames import Frames
from penstock.pipeline.optimise import PASSES, OptimiserOptions, Pass, _check, optimise
from penstock.pipeline.partition import partition
from penstock.pipeline.place import Placer
from penstock.pipeline.prune import prune
from penstock.pipeline.signature import Signature
from penstock.runtime.devices import make_local_devices

CPU0 = "/job:localhost/replica:0/task:0/device:CPU:0"
CPU1 = "/job:localhost/replica:0/task:0/device:CPU:1"


def types(graph):
    return sorted(op.type for op in graph)


def pruned(signature):
    return prune(tf.get_default_graph(), signature, lambda op: CPU0, CPU0)


def optimised(signature, *names):
    """The pruned graph after the named passes."""
    everything = frozenset(p.name for p in PASSES)
    options = OptimiserOptions(disabled=everything - set(names), targets=frozenset(signature.targets))
    graph = pruned(signature)
    before = types(graph)
    result = optimise(graph, options)
    spec.check_well_formed(result)
    assert types(graph) == before, "a pass must leave its input alone"
    return result


# -- prune --------------------------------------------------------------------------------------------------------------


def test_prune_keeps_only_what_is_needed():
    x = tf.placeholder(tf.float32, name="x")
    y = tf.square(x, name="y")
    tf.sqrt(y, name="unused")
    graph = pruned(Signature(("x:0",), ("y:0",)))
    assert types(graph) == ["Square", "_Arg", "_Retval"]
    assert y.graph is not graph and len(tf.get_default_graph()) == 3


def test_prune_by_rendezvous():
    x = tf.placeholder(tf.float32, name="x")
    tf.square(x, name="y")
    graph = pruned(Signature(("x:0",), ("y:0",), through_rendezvous=True))
    assert types(graph) == ["Square", "_Recv", "_Send"]
    recv = next(op for op in graph if op.type == "_Recv")
    assert recv.attrs["tensor_name"] == b"x:0" and recv.attrs["client_terminated"]


def test_a_fed_output_does_not_run_its_node_but_a_control_edge_does():
    a = tf.constant(1.0, name="a")
    b = tf.identity(a, name="b")
    with tf.control_dependencies([b]):
        tf.identity(a, name="c")
    graph = pruned(Signature(("b:0",), ("b:0", "c:0")))
    assert "b" in graph and types(graph).count("_Retval") == 2
    graph = pruned(Signature(("b:0",), ("b:0",)))
    assert "b" not in graph


def test_prune_connects_tensors():
    x = tf.placeholder(tf.float32, name="x")
    tf.square(x, name="y")
    tf.constant(3.0, name="c")
    graph = pruned(Signature((), ("y:0",), connections=(("c:0", "x:0"),)))
    assert types(graph) == ["Const", "Square", "_Retval"]


def test_prune_errors():
    tf.constant(1.0, name="a")
    with pytest.raises(tf.errors.NotFoundError):
        pruned(Signature((), ("nope:0",)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="out of range"):
        pruned(Signature((), ("a:3",)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="fed more than once"):
        pruned(Signature(("a:0", "a:0"), ("a:0",)))
    with pytest.raises(tf.errors.NotFoundError, match="target"):
        pruned(Signature((), (), ("nope",)))


# -- place --------------------------------------------------------------------------------------------------------------


def placer(count=2, soft=False):
    return Placer(make_local_devices(tf.ConfigProto(device_count={"CPU": count})), soft)


def test_groups_share_a_device_and_say_why():
    with tf.device("/cpu:1"):
        v = tf.Variable(1.0, name="v", use_resource=False)
    update = tf.assign_add(v, 1.0)
    p = placer()
    placement = p.place(tf.get_default_graph())
    assert placement["v"] == placement[update.op.name] == CPU1
    assert "colocated" in p.reason(update.op)


def test_sources_follow_their_consumers():
    with tf.device("/cpu:1"):
        tf.negative(tf.constant(1.0, name="inside"), name="n")
    with tf.device(None):
        c = tf.constant(2.0, name="outside")
    with tf.device("/cpu:1"):
        tf.sqrt(c)
    placement = placer().place(tf.get_default_graph())
    assert placement["outside"] == CPU1


def test_conflicts_and_unknown_devices():
    with tf.device("/cpu:0"):
        a = tf.constant(1.0, name="a")
    with tf.device("/cpu:1"):
        b = tf.identity(a, name="b")
    b.op._set_attr("_class", [b"loc:@a"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot colocate nodes"):
        placer().place(tf.get_default_graph())
    placer(soft=True).place(tf.get_default_graph())
    with tf.Graph().as_default() as graph, tf.device("/device:GPU:0"):
        tf.constant(1.0)
        with pytest.raises(tf.errors.InvalidArgumentError, match="no devices matching that specification"):
            placer().place(graph)


def test_placements_last():
    v = tf.Variable(1.0, name="v", use_resource=True)
    p = placer()
    first = dict(p.place(tf.get_default_graph()))
    v.assign_add(1.0)
    second = p.place(tf.get_default_graph())
    assert all(second[name] == device for name, device in first.items())


# -- optimise -------------------------------------------------------------------------------------------------------------


def test_constant_folding():
    x = tf.placeholder(tf.float32, name="x")
    tf.multiply(x, tf.constant(2.0) + tf.sqrt(tf.constant(9.0)), name="y")
    graph = optimised(Signature(("x:0",), ("y:0",)), "constant_folding")
    assert types(graph) == ["Const", "Mul", "_Arg", "_Retval"]
    assert next(op for op in graph if op.type == "Const").attrs["value"].array == 5.0


def test_folding_leaves_errors_for_the_step():
    bad = tf.gather(tf.constant([1.0]), tf.constant(5), name="bad")
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
        sess.run(bad)


def test_common_subexpressions():
    x = tf.placeholder(tf.float32, name="x")
    tf.add(tf.sqrt(x) * x, x * tf.sqrt(x), name="y")
    graph = optimised(Signature(("x:0",), ("y:0",)), "common_subexpressions")
    assert types(graph) == ["AddV2", "Mul", "Sqrt", "_Arg", "_Retval"]


def test_common_subexpressions_with_other_attributes():
    x = tf.placeholder(tf.float32, [2, 2], name="x")
    products = [tf.matmul(x, x, transpose_a=a, transpose_b=b) for a, b in ((False, False), (True, False), (False, True), (True, False), (False, True), (False, False))]
    y = tf.add_n(products, name="y")
    new = optimised(Signature(("x:0",), ("y:0",), ()), "common_subexpressions")
    assert types(new).count("MatMul") == 3
    assert [t.op.name for t in new.find("y").inputs] == ["MatMul", "MatMul_1", "MatMul_2", "MatMul_1", "MatMul_2", "MatMul"]
    with tf.Session() as sess:
        assert sess.run(y, {x: [[1.0, 2.0], [3.0, 4.0]]}).tolist() == [[44.0, 70.0], [80.0, 134.0]]


def test_random_and_state_are_never_shared():
    a, b = tf.random_uniform([3], name="a"), tf.random_uniform([3], name="b")
    with tf.Session() as sess:
        one, two = sess.run([a, b])
    assert not np.array_equal(one, two)


@pytest.mark.parametrize(
    "build, kept",
    [
        (lambda x: x * 1.0, []),
        (lambda x: x - 0.0, []),
        (lambda x: x / 1.0, []),
        (lambda x: -(-x), []),
        (lambda x: tf.identity(tf.stop_gradient(x)), []),
        (lambda x: tf.transpose(tf.transpose(x, [1, 0]), [1, 0]), []),
        (lambda x: tf.reshape(tf.reshape(x, [6]), [3, 2]), ["Const", "Reshape"]),
        (lambda x: x**2.0, ["Square"]),
        (lambda x: x + 0.0, ["AddV2", "Const"]),
        (lambda x: x * tf.ones([4, 2, 3]), ["Const", "Mul"]),
    ],
)
def test_arithmetic_rules(build, kept):
    x = tf.placeholder(tf.float32, [2, 3], name="x")
    y = build(x)
    graph = optimised(Signature(("x:0",), (y.name,)), "constant_folding", "arithmetic")
    assert [t for t in types(graph) if t not in ("_Arg", "_Retval")] == kept
    data = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
    off = tf.ConfigProto()
    off.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Session() as on, tf.Session(config=off) as plain:
        np.testing.assert_array_equal(on.run(y, {x: data}), plain.run(y, {x: data}))


def test_dependency_cleaning_keeps_order():
    v = tf.Variable(1.0, name="v", use_resource=True)
    first = v.assign(5.0)
    with tf.control_dependencies([first, tf.constant(1), tf.group(first)]):
        read = tf.identity(v.read_value(), name="read")
    with tf.Session() as sess:
        sess.run(v.initializer)
        assert sess.run(read) == 5.0


def test_what_only_a_control_edge_asks_for_does_not_run():
    x, w = tf.placeholder(tf.float32, [4, 3], name="x"), tf.constant(np.ones((3, 2)), tf.float32)
    dx, dw = tf.gradients(tf.reduce_sum(tf.tanh(tf.matmul(x, w))), [x, w])
    with tf.control_dependencies([tf.group(dx, dw)]):
        result = tf.identity(dw, name="result")
    graph = optimised(Signature(("x:0",), (result.name,)), "dependencies")
    assert dx.op.name not in graph and dw.op.name in graph
    assert dx.op.name in optimised(Signature(("x:0",), (result.name,), (dx.op.name,)), "dependencies")


def test_what_waits_for_such_a_node_still_waits_for_what_the_node_read():
    v = tf.Variable(1.0, name="v", use_resource=True)
    count = tf.Variable(0.0, name="count", use_resource=True)
    with tf.control_dependencies([v.assign(5.0)]):
        step = count.assign_add(v.read_value())
    with tf.control_dependencies([tf.square(tf.sqrt(step))]):
        read = tf.identity(count.read_value(), name="read")
    graph = optimised(Signature((), (read.name,)), "dependencies")
    assert not {"Square", "Sqrt"} & set(types(graph)) and "AssignAddVariableOp" in types(graph)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert [sess.run(read) for _ in range(3)] == [5.0, 10.0, 15.0]


def test_checks_run_though_nobody_reads_them():
    x = tf.placeholder(tf.float32, [], name="x")
    with tf.control_dependencies([tf.check_numerics(x, "bad"), tf.assert_less(x, 2.0)]):
        y = tf.constant(1.0) * 2.0
    with tf.Session() as sess:
        assert sess.run(y, {x: 1.0}) == 2.0
        with pytest.raises(tf.errors.InvalidArgumentError):
            sess.run(y, {x: 3.0})
        with pytest.raises(tf.errors.InvalidArgumentError, match="bad"):
            sess.run(y, {x: float("nan")})


def test_idle_work_in_branches_and_loops():
    x = tf.placeholder(tf.float32, [], name="x")

    def branch(sign):
        with tf.control_dependencies([tf.square(tf.exp(x))]):
            return tf.identity(x * sign)

    def body(i, total):
        with tf.control_dependencies([tf.exp(total) * 2.0]):
            return i + 1, total + 1.0

    y = tf.cond(x > 0, lambda: branch(1.0), lambda: branch(-1.0))
    _, z = tf.while_loop(lambda i, _: i < 3, body, [tf.constant(0), y])
    with tf.Session() as sess:
        assert [sess.run(z, {x: v}) for v in (2.0, -4.0)] == [5.0, 7.0]


@pytest.mark.parametrize("name", [p.name for p in PASSES])
def test_switching_off_a_pass_changes_no_value(name):
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    w = tf.constant(np.arange(6).reshape(3, 2), tf.float32) * 1.0
    y = tf.nn.relu(tf.matmul(x, w + 0.0) - tf.reduce_mean(w)) + tf.reduce_sum(tf.square(x) * 2.0)
    z = tf.gradients(y, x)[0]
    everything = sess_run(tf.ConfigProto(), [y, z], x)
    config = tf.ConfigProto()
    field = {"arithmetic": "arithmetic_optimization", "dependencies": "dependency_optimization", "function_inlining": "function_optimization",
             "common_subexpressions": "common_subgraph_elimination"}.get(name, name)
    setattr(config.graph_options.rewrite_options, field, 2)
    for a, b in zip(everything, sess_run(config, [y, z], x)):
        np.testing.assert_array_equal(a, b)


def sess_run(config, fetches, x):
    with tf.Session(config=config) as sess:
        return sess.run(fetches, {x: np.linspace(-1, 1, 12).reshape(4, 3)})


def test_the_order_of_passes_is_checked():
    with pytest.raises(AssertionError, match="requires"):
        _check([Pass("a", lambda g, c: g, requires=("x",))])


# -- partition --------------------------------------------------------------------------------------------------------------


def test_a_value_crosses_once_per_device():
    with tf.device(CPU0):
        a = tf.placeholder(tf.float32, name="a")
    with tf.device(CPU1):
        b, c = tf.sqrt(a), tf.square(a)
    with tf.device(CPU0):
        tf.add(b, c, name="d")
    parts = partition(prune(tf.get_default_graph(), Signature((), ("d:0",)), lambda op: op.device, CPU0), {CPU0: 1, CPU1: 2})
    spec.check_partitioned(parts)
    assert types(parts[CPU1]) == ["Sqrt", "Square", "_Recv", "_Send", "_Send"]


def test_control_edges_cross_too():
    with tf.device("/cpu:1"):
        v = tf.Variable(0.0, name="v", use_resource=False)
        update = v.assign(7.0)
    with tf.device("/cpu:0"), tf.control_dependencies([update]):
        one = tf.constant(1.0)
    with tf.device("/cpu:1"), tf.control_dependencies([one]):
        read = v.read_value()
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as sess:
        sess.run(v.initializer)
        assert sess.run([one, read]) == [1.0, 7.0]


@pytest.mark.parametrize("nested", [False, True])
def test_loops_across_devices(nested):
    x = tf.placeholder(tf.float32, [])

    def body(i, v):
        with tf.device("/cpu:1"):
            v = v * 2.0
        if nested:
            def inner(j, u):
                with tf.device("/cpu:0"):
                    u = u + 1.0
                with tf.device("/cpu:1"):
                    return j + 1, u + 0.0
            _, v = tf.while_loop(lambda j, u: j < i, inner, [tf.constant(0), v])
        with tf.device("/cpu:0"):
            return i + 1, v + 1.0

    with tf.device("/cpu:0"):
        _, out = tf.while_loop(lambda i, v: i < 4, body, [tf.constant(0), x])
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as two, tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as one:
        assert len(two.explain(out, [x]).partitions) == 2
        for value in (0.0, 1.0, 5.0):
            assert two.run(out, {x: value}) == one.run(out, {x: value})


def test_conds_across_devices():
    x = tf.placeholder(tf.float32, [])
    with tf.device("/cpu:1"):
        y = x + 1.0

    def taken():
        with tf.device("/cpu:1"):
            return y * 2.0

    def other():
        with tf.device("/cpu:0"):
            return y - 1.0

    with tf.device("/cpu:0"):
        out = tf.cond(x > 0, taken, other)
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as sess:
        assert sess.run(out, {x: 3.0}) == 8.0
        assert sess.run(out, {x: -3.0}) == -3.0


def test_bfloat16_transfers():
    with tf.device("/cpu:1"):
        x = tf.placeholder(tf.float32) + 2.0**-12
    with tf.device("/cpu:0"):
        y = tf.identity(x)
    config = tf.ConfigProto(device_count={"CPU": 2})
    config.graph_options.enable_bfloat16_sendrecv = True
    with tf.Session(config=config) as sess:
        assert sess.run(y, {x.op.inputs[0]: 1.0}) == 1.0


def test_frames_are_read_off_the_graph():
    i = tf.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0)])
    frames = Frames(tf.get_default_graph())
    inside = {op.type for op, frame in frames.inside.items() if frame is not None}
    assert {"Switch", "Merge", "NextIteration", "Exit", "LoopCond"} <= inside
    assert frames.after(i.op) is None


# -- users' passes ------------------------------------------------------------------------------------------------------------


def test_user_passes_run_at_their_points():
    seen = []

    def watch(point):
        def run(graph):
            seen.append(point)
            return graph
        return run

    for point in custom.POINTS:
        custom.register_pass(point, "watch", watch(point))
    try:
        with tf.Session() as sess:
            sess.run(tf.constant(1.0))
        assert seen == list(custom.POINTS)
        with pytest.raises(tf.errors.AlreadyExistsError):
            custom.register_pass(custom.POINTS[0], "watch", watch(""))
    finally:
        for point in custom.POINTS:
            custom.unregister_pass(point, "watch")


def test_a_users_pass_may_change_the_graph():
    def twice(graph):
        copier = rewrite.Copier(graph)
        for op in graph:
            copier.clone(op)
        result = copier.wire()
        for op in result:
            if op.type == "Const" and op.name == "c":
                from penstock.formats.attr_value import TensorAttr

                op.attrs = {**op.attrs, "value": TensorAttr(op.attrs["dtype"], op.attrs["value"].array * 2)}
        return result

    custom.register_pass(custom.POST_REWRITE_FOR_EXEC, "twice", twice)
    try:
        with tf.Session() as sess:
            assert sess.run(tf.identity(tf.constant(21.0, name="c"))) == 42.0
    finally:
        custom.unregister_pass(custom.POST_REWRITE_FOR_EXEC, "twice")


def test_a_failing_users_pass_is_named():
    custom.register_pass(custom.POST_PLACEMENT, "broken", lambda graph: 1 / 0)
    try:
        with tf.Session() as sess, pytest.raises(tf.errors.InternalError, match="broken"):
            sess.run(tf.constant(1.0))
    finally:
        custom.unregister_pass(custom.POST_PLACEMENT, "broken")


def test_a_branch_not_taken_does_not_run_on_another_device():
    ran = []
    pred = tf.placeholder(tf.bool, [])

    def branch():
        with tf.device("/cpu:1"):  # no inputs: only a control edge from the other device says that it is dead
            return tf.py_func(lambda: ran.append(1) or np.float32(1.0), [], tf.float32)

    with tf.device("/cpu:0"):
        value = tf.cond(pred, branch, lambda: tf.constant(2.0))
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as sess:
        assert sess.run(value, {pred: False}) == 2.0 and ran == []
        assert sess.run(value, {pred: True}) == 1.0 and ran == [1]


def test_gradients_of_nested_loops_across_devices():
    x = tf.constant(1.0)

    def body(i, a):
        with tf.device("/cpu:1"):
            _, b = tf.while_loop(lambda j, b: j < i, lambda j, b: (j + 1, b * 2.0), [0, a])
        return i + 1, b + x

    with tf.device("/cpu:0"):
        _, result = tf.while_loop(lambda i, a: i < 5, body, [0, x])
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as sess:
        assert sess.run(tf.gradients(result, x)[0]) == 2705.0
