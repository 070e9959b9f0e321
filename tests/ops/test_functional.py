"""Calls, branches and loops in functional form: values, errors, effects, devices. Gradients: `test_functional_gradients.py`."""

import numpy as np
import pytest

import penstock as tf
from penstock.formats.attr_value import FuncAttr
from penstock.graph.spec import check_well_formed

raw = tf.raw_ops


@tf.Defun(tf.float32)
def square(x):
    return x * x


@tf.Defun(tf.float32)
def minus(x):
    return -x


@tf.Defun(tf.float32)
def twice(x):
    return x, x


@tf.Defun(tf.int32, tf.float32, tf.float32)
def power_body(i, y, x):
    return i + 1, y * x, x


@tf.Defun(tf.int32, tf.float32, tf.float32)
def power_cond(i, y, x):
    return i < 3


def run(fetches, feed=None, **options):
    with tf.Session(**options) as session:
        if tf.global_variables():
            session.run(tf.global_variables_initializer())
        return session.run(fetches, feed)


def unoptimised():
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.opt_level = -1
    return config


# -- values and errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value,taken", [(True, 9), (False, -3), (0, -3), (2, 9), (0.0, -3), (0.5, 9), ("", -3), ("x", 9), ([0], 9), ([], -3), ([[]], -3)])
def test_truth(value, taken):
    [y] = raw.If(cond=tf.constant(value), input=[3.0], Tout=[tf.float32], then_branch=square, else_branch=minus)
    assert run(y) == taken
    assert bool(run(raw.ToBool(input=tf.constant(value)))) == (taken == 9)


@pytest.mark.parametrize("index,value", [(-1, 6), (0, 9), (1, -3), (2, 6), (99, 6)])
def test_case_takes_the_last_branch_for_strange_indices(index, value):
    @tf.Defun(tf.float32)
    def double(x):
        return x * 2.0

    i = tf.placeholder(tf.int32)
    [y] = raw.Case(branch_index=i, input=[3.0], Tout=[tf.float32], branches=[square, minus, double])
    assert run(y, {i: index}) == value
    with pytest.raises(tf.errors.InvalidArgumentError, match="branch_index must be scalar"):
        run(y, {i: [index]})


def test_while():
    outputs = raw.While(input=[0, 1.0, 2.0], cond=power_cond, body=power_body)
    assert run(list(outputs)) == [3, 8.0, 2.0]


def test_a_loop_of_many_iterations():
    @tf.Defun(tf.int32)
    def more(i):
        return i < 20000

    @tf.Defun(tf.int32)
    def add(i):
        return i + 1

    assert run(raw.While(input=[0], cond=more, body=add)[0]) == 20000


@pytest.mark.parametrize("start,limit,delta,value", [(0, 4, 1, 6), (4, 0, -1, 10), (0, 5, 2, 6), (1, 1, 1, 0), (1, 1, 0, 0)])
def test_for(start, limit, delta, value):
    @tf.Defun(tf.int32, tf.int32)
    def body(i, s):
        return s + i

    assert run(raw.For(start=start, limit=limit, delta=delta, input=[0], body=body)[0]) == value


@pytest.mark.parametrize("start,limit,delta", [(0, 3, 0), (0, 3, -1), (3, 0, 1)])
def test_for_refuses_what_never_ends(start, limit, delta):
    @tf.Defun(tf.int32, tf.int32)
    def body(i, s):
        return s + i

    with pytest.raises(tf.errors.InvalidArgumentError, match=f"Invalid start/limit/delta: {start} {limit} {delta}"):
        run(raw.For(start=start, limit=limit, delta=delta, input=[0], body=body)[0])


CALLS = {
    "Expects 1 arguments, but 2 is provided": lambda: raw.PartitionedCall(args=[1.0, 2.0], Tout=[tf.float32], f=twice_less()),
    "Expects arg\\[0\\] to be float32 but int32 is provided": lambda: raw.PartitionedCall(args=[1], Tout=[tf.float32], f=twice_less()),
    "While loop body returned 2 arguments. Expected: 1.": lambda: raw.While(input=[1.0], cond=square, body=twice),
    "Expected a single scalar return value from WhileOp cond, got 2 tensors": lambda: raw.While(input=[1.0], cond=twice, body=square),
    "start must be a scalar": lambda: raw.For(start=[0], limit=1, delta=1, input=[1.0], body=power_body),
}


def twice_less():
    """A function of unknown shapes, so that nothing is noticed while the graph is built."""

    @tf.Defun(tf.float32)
    def f(x):
        return x

    return f


@pytest.mark.parametrize("message", CALLS)
def test_calls_that_do_not_fit(message):
    try:
        fetches = list(CALLS[message]())
    except ValueError as refused:  # while building, where shapes go through the call
        assert "takes 1 arguments" in str(refused)
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(fetches)


def test_results_that_do_not_fit():
    for branches, message in (((twice, twice), "Expect to produce 1 tensors, but only get 2"), ((power_cond, power_cond), "Expects 3 arguments")):
        [y] = raw.If(cond=True, input=[1.0], Tout=[tf.float32], then_branch=branches[0], else_branch=branches[1])
        with pytest.raises((tf.errors.InternalError, tf.errors.InvalidArgumentError), match=message):
            run(y)


def test_unknown_function():
    y = raw.PartitionedCall(args=[1.0], Tout=[tf.float32], f=FuncAttr("nobody"))
    with pytest.raises(tf.errors.NotFoundError, match="Function nobody is not defined"):
        run(y)


def test_errors_name_the_node_inside_and_the_call():
    @tf.Defun(tf.float32, noinline=True)
    def failing(x):
        return tf.matmul(x, x, name="inner")

    y = failing(tf.ones([2, 3]), name="outer")
    with pytest.raises(tf.errors.InvalidArgumentError) as failed:
        run(y)
    assert failed.value.op is y.op
    assert "node inner" in str(failed.value) and "node outer" in str(failed.value)


def test_map_defun():
    @tf.Defun(tf.float32, tf.string, tf.float32)
    def f(x, s, c):
        return tf.reduce_sum(x) * c, tf.strings.join([s, "!"])

    x = tf.placeholder(tf.float32, [None, 2])
    y, s = raw.MapDefun(
        arguments=[x, tf.constant(["a", "b"])], captured_inputs=[10.0], output_types=[tf.float32, tf.string], output_shapes=[[], []], f=f
    )
    values = run([y, s], {x: [[1, 2], [3, 4]]})
    np.testing.assert_array_equal(values[0], np.float32([30, 70]))
    assert values[1].tolist() == [b"a!", b"b!"]
    wrong = raw.MapDefun(arguments=[x], captured_inputs=[], output_types=[tf.float32], output_shapes=[[3]], f=square)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Mismatch in function retval shape, \[2\], and expected output shape, \[3\]"):
        run(wrong, {x: [[1, 2]]})


def test_fake_param():
    values = run([raw.FakeParam(dtype=tf.float32, shape=[None, 3]), raw.FakeParam(dtype=tf.string, shape=[2])])
    assert values[0].shape == (0, 3) and values[1].tolist() == [b"", b""]


def test_static_shapes():
    x = tf.placeholder(tf.float32, [2])
    assert raw.PartitionedCall(args=[x], Tout=[tf.float32], f=square)[0].shape == [2]
    branches = {"then_branch": square, "else_branch": minus}
    assert raw.If(cond=True, input=[x], Tout=[tf.float32], **branches)[0].shape.rank is None
    assert raw.If(cond=True, input=[x], Tout=[tf.float32], output_shapes=[[2]], **branches)[0].shape == [2]
    with pytest.raises(ValueError, match="`output_shapes` must be the same length as num outputs"):
        raw.If(cond=True, input=[x], Tout=[tf.float32], output_shapes=[[2], [2]], **branches)
    assert raw.While(input=[x], cond=square, body=square)[0].shape == [2]
    assert raw.While(input=[x], cond=square, body=square, output_shapes=[[None]])[0].shape.as_list() == [None]
    assert raw.SymbolicGradient(input=[x, x], Tout=[tf.float32], f=square)[0].shape == [2]


# -- effects --------------------------------------------------------------------------------------------------------------------


def counting(noinline=False):
    v = tf.get_variable("v", initializer=0.0, use_resource=True)

    @tf.Defun(tf.float32, noinline=noinline, shape_func=lambda op: [[], []])
    def f(x):
        v.assign_add(1.0)
        return tf.constant(5.0), x * 2.0

    return v, f


@pytest.mark.parametrize("noinline", [False, True])
@pytest.mark.parametrize("config", [None, unoptimised()], ids=["optimised", "plain"])
def test_effects_happen_once_for_each_call(noinline, config):
    v, f = counting(noinline)
    x = tf.placeholder(tf.float32)
    a, b = f(x)
    c, _ = f(b)
    with tf.control_dependencies([c]):
        after = v.read_value()
    with tf.Session(config=config) as session:
        session.run(v.initializer)
        assert session.run(after, {x: 1.0}) == 2.0
        session.run(a, {x: 1.0})
        assert session.run(v) == 3.0
        session.run(c.op, {x: 1.0})
        assert session.run(v) == 5.0


@pytest.mark.parametrize("noinline", [False, True])
def test_a_call_in_a_branch_that_is_not_taken_does_nothing(noinline):
    v, f = counting(noinline)
    p, x = tf.placeholder(tf.bool), tf.constant(3.0)
    y = tf.cond(p, lambda: sum(f(x)), lambda: -x)
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run(y, {p: False}) == -3.0 and session.run(v) == 0.0
        assert session.run(y, {p: True}) == 11.0 and session.run(v) == 1.0


@pytest.mark.parametrize("noinline", [False, True])
def test_a_call_in_a_loop(noinline):
    v, f = counting(noinline)
    y = tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + f(s)[0]), [0, 3.0])[1]
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run(y) == 18.0 and session.run(v) == 3.0


def test_a_body_with_effects_in_its_own_branch_stays_a_call():
    v = tf.get_variable("v", initializer=0.0, use_resource=True)

    @tf.Defun(tf.float32)
    def f(x):
        def add():
            with tf.control_dependencies([v.assign_add(x)]):
                return tf.identity(x)

        return tf.cond(x > 0.0, add, lambda: x)

    x = tf.placeholder(tf.float32)
    y = f(x)
    with tf.control_dependencies([y]):
        after = v.read_value()
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run(after, {x: -1.0}) == 0.0
        assert session.run(after, {x: 2.0}) == 2.0


def test_state_of_nodes_in_functions_is_their_own():
    def make():
        @tf.Defun(noinline=True)
        def f():
            return tf.random_uniform([], seed=1, name="draw")

        return f

    one, two = make(), make()
    a = [one(), two()]
    assert one.name == two.name
    first, again = run(a), run(a)
    assert first == again


def test_results_behind_a_target():
    _, f = counting()
    y = f(1.0, name="call")[0]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(y.op)
        assert session.run(tf.global_variables()[0]) == 1.0


# -- the pass -------------------------------------------------------------------------------------------------------------------


def test_inlined_graph_is_well_formed_and_free_of_calls():
    @tf.Defun(tf.float32, tf.float32)
    def swap(a, b):
        return b, a

    @tf.Defun(tf.float32, tf.float32)
    def outer(a, b):
        c, d = swap(a, b)
        return square(c) - d, a

    x = tf.placeholder(tf.float32, [])
    y, z = outer(x, 10.0)
    with tf.Session() as session:
        stages = session.explain([y, z], {x: 0})
        graph = next(s.graph for s in stages.stages if s.name == "optimise/function_inlining")
        check_well_formed(graph)
        assert {op.type for op in graph} <= {"_Arg", "_Retval", "Const", "Mul", "Sub"}
        assert session.run([y, z], {x: 3.0}) == [97.0, 3.0]


@pytest.mark.parametrize("noinline", [False, True])
def test_functions_on_several_devices(noinline):
    with tf.device("/cpu:1"):
        v = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=True)
    with tf.device("/cpu:0"):
        w = tf.get_variable("w", initializer=[10.0, 20.0], use_resource=True)

    @tf.Defun(tf.float32, noinline=noinline)
    def f(x):
        with tf.device("/cpu:1"):
            z = x * 2.0
        return v * x + w + z

    y = f(3.0)
    config = tf.ConfigProto(device_count={"CPU": 2})
    value, grads = run([y, tf.gradients(y, [v, w])], config=config)
    np.testing.assert_array_equal(value, np.float32([19, 32]))
    np.testing.assert_array_equal(grads, np.float32([[3, 3], [1, 1]]))
    target = tf.placeholder(tf.string)
    [remote] = raw.RemoteCall(target=target, args=[2.0], Tout=[tf.float32], f=square)
    assert run(remote, {target: "/job:localhost/replica:0/task:0/device:CPU:1"}, config=config) == 4.0
    with pytest.raises(tf.errors.InternalError, match="CPU:7"):
        run(remote, {target: "/job:localhost/replica:0/task:0/device:CPU:7"}, config=config)
