"""Calls, branches and loops in functional form: values, errors, effects, devices, gradients."""

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


# -- gradients --------------------------------------------------------------------------------------------------------------------


def derivatives(build, x0, count=3):
    """The value and the first derivatives of build(x) at x0."""
    x = tf.placeholder(tf.float32, [])
    values = [build(x)]
    for _ in range(count):
        values.append(tf.gradients(values[-1], x)[0])
    return [float(v) for v in run(values, {x: x0})]


CUBES = {
    "defun": lambda x: cube()(x),
    "partitioned call": lambda x: raw.PartitionedCall(args=[x], Tout=[tf.float32], f=cube())[0],
    "nested": lambda x: raw.StatefulPartitionedCall(args=[x], Tout=[tf.float32], f=nested_cube())[0],
    "if": lambda x: raw.If(cond=x > 0.0, input=[x], Tout=[tf.float32], then_branch=cube(), else_branch=minus)[0],
    "else": lambda x: raw.StatelessIf(cond=x < 0.0, input=[x], Tout=[tf.float32], then_branch=minus, else_branch=cube())[0],
    "case": lambda x: raw.StatelessCase(branch_index=1, input=[x], Tout=[tf.float32], branches=[minus, cube(), square])[0],
    "while": lambda x: raw.While(input=[0, 1.0, x], cond=power_cond, body=power_body)[1],
    "stateless while": lambda x: raw.StatelessWhile(input=[0, x / x, x], cond=power_cond, body=power_body)[1],
}


def cube():
    @tf.Defun(tf.float32)
    def f(x):
        return x * x * x

    return f


def nested_cube():
    @tf.Defun(tf.float32)
    def f(x):
        return raw.If(cond=x > 0.0, input=[x], Tout=[tf.float32], then_branch=cube(), else_branch=minus)[0] * 1.0

    return f


@pytest.mark.parametrize("name", CUBES)
def test_derivatives_of_a_cube(name):
    np.testing.assert_allclose(derivatives(CUBES[name], 2.0), [8, 12, 12, 6], rtol=1e-6)


def test_gradients_without_paths():
    @tf.Defun(tf.float32, tf.float32, tf.int32)
    def f(x, y, i):
        return x * 2.0, tf.stop_gradient(y), i

    x, y, i = tf.constant(1.0), tf.constant(2.0), tf.constant(3)
    first, second, _ = raw.If(cond=True, input=[x, y, i], Tout=[tf.float32, tf.float32, tf.int32], then_branch=f, else_branch=f)
    grads = tf.gradients([first, second], [x, y, i])
    assert grads[1] is None and grads[2] is None
    assert run(grads[0]) == 2.0


RANDOM = {
    "defun": lambda f, x: f(x),
    "call": lambda f, x: raw.StatefulPartitionedCall(args=[x], Tout=[tf.float32], f=f)[0],
    "if": lambda f, x: raw.If(cond=True, input=[x], Tout=[tf.float32], then_branch=f, else_branch=minus)[0],
    "while": lambda f, x: random_loop(f, x),
}


def random_loop(f, x):
    @tf.Defun(tf.int32, tf.float32)
    def body(i, y):
        return i + 1, f(y)

    @tf.Defun(tf.int32, tf.float32)
    def cond(i, y):
        return i < 3

    return raw.While(input=[0, x], cond=cond, body=body)[1]


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("noinline", [False, True])
def test_gradients_see_the_numbers_that_were_drawn(name, noinline):
    @tf.Defun(tf.float32, noinline=noinline)
    def f(x):
        return x * tf.random_uniform([4], 0.5, 1.5)

    x = tf.constant([1.0, 2.0, 3.0, 4.0])
    y = RANDOM[name](f, x)
    value, grad = run([y, tf.gradients(y, x)[0]])
    np.testing.assert_allclose(value, grad * [1.0, 2.0, 3.0, 4.0], rtol=1e-6)
    assert len(set(grad.tolist())) == 4


def test_gradient_does_not_repeat_writes():
    v = tf.get_variable("v", initializer=0.0, use_resource=True)

    @tf.Defun(tf.float32)
    def f(x):
        with tf.control_dependencies([v.assign_add(1.0)]):
            return x * x * v.read_value()

    x = tf.constant(3.0)
    y = f(x)
    dx = tf.gradients(y, x)[0]
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run([y, dx]) == [9.0, 6.0]
        assert session.run(v) == 1.0


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")
def test_gradients_of_variables_in_functions():
    v = tf.get_variable("v", initializer=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], use_resource=True)

    @tf.Defun(tf.float32)
    def dense(x):
        return tf.matmul(x, v)

    @tf.Defun(tf.int32)
    def rows(i):
        return tf.gather(v, i)

    y = tf.reduce_sum(dense([[1.0, 2.0, 3.0]])) + tf.reduce_sum(rows([0, 2, 2]) * 10.0)
    np.testing.assert_array_equal(run(tf.gradients(y, v)[0]), np.float32([[11, 11], [2, 2], [23, 23]]))


def test_gradients_of_a_variable_in_a_loop():
    v = tf.get_variable("v", initializer=2.0, use_resource=True)

    @tf.Defun(tf.int32, tf.float32, tf.resource)
    def body(i, y, handle):
        return i + 1, y * raw.ReadVariableOp(resource=handle, dtype=tf.float32), handle

    @tf.Defun(tf.int32, tf.float32, tf.resource)
    def cond(i, y, handle):
        return i < 3

    y = raw.While(input=[0, 5.0, v.handle], cond=cond, body=body)[1]
    assert run([y, tf.gradients(y, v)[0]]) == [40.0, 60.0]


def test_gradient_inside_of_a_function():
    w = tf.constant([3.0, 4.0])

    @tf.Defun(tf.float32)
    def f(x):
        y = tf.reduce_sum(x * x * w)
        return tf.gradients(y, [x, w])

    dx, dw = run(f([1.0, 2.0]))
    np.testing.assert_array_equal(dx, [6.0, 16.0])
    np.testing.assert_array_equal(dw, [1.0, 4.0])


def test_gradient_of_a_function_with_loops_and_branches():
    @tf.Defun(tf.float32)
    def f(x):
        y = tf.while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, s * x), [0, x])[1]
        return tf.cond(y > 3.0, lambda: y * 2.0, lambda: -y)

    x = tf.constant(1.5)
    np.testing.assert_allclose(run(tf.gradients(f(x), x)[0]), 10 * 1.5**4)


def test_imported_single_nodes_of_a_loop_have_no_gradient():
    @tf.Defun(tf.float32)
    def f(x):
        return tf.while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, s * x), [0, x])[1]

    x = tf.placeholder(tf.float32, [], name="x")
    f(x, name="y")
    graph_def = tf.get_default_graph().as_graph_def()
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
        dx = tf.gradients(graph.get_tensor_by_name("y:0"), graph.get_tensor_by_name("x:0"))
        with tf.Session() as session:
            assert session.run("y:0", {"x:0": 2.0}) == 32.0
            with pytest.raises(tf.errors.NotFoundError, match="No gradient defined for the loop"):
                session.run(dx, {"x:0": 2.0})


def test_op_without_gradient_inside():
    @tf.Defun(tf.float32)
    def f(x):
        return raw.Snapshot(input=x)

    x = tf.constant(1.0)
    with pytest.raises(tf.errors.NotFoundError, match="No gradient defined for operation 'Snapshot'"):
        run(tf.gradients(f(x), x))
    [y] = raw.If(cond=True, input=[x], Tout=[tf.float32], then_branch=f, else_branch=f)
    with pytest.raises(LookupError, match="No gradient defined for operation 'Snapshot'"):
        tf.gradients(y, x)


def test_registered_gradient_functions_survive_export():
    @tf.Defun(tf.float32, tf.float32)
    def df(x, dy):
        return dy * 7.0

    @tf.Defun(tf.float32, grad_func=df)
    def f(x):
        return x * x

    x = tf.placeholder(tf.float32, [], name="x")
    f(x, name="y")
    graph_def = tf.get_default_graph().as_graph_def()
    assert [(g.function_name, g.gradient_func) for g in graph_def.library.gradient] == [(f.name, df.name)]
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
        dx = tf.gradients(graph.get_tensor_by_name("y:0"), graph.get_tensor_by_name("x:0"))
        with tf.Session() as session:
            assert session.run(dx, {"x:0": 2.0}) == [7.0]


RECURSIVE = """
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { } } } }
node { name: "n" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "shape" value { shape { } } } }
node { name: "y" op: "power" input: "n" input: "x" }
library {
  function { signature { name: "power" input_arg { name: "n" type: DT_INT32 } input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } }
    node_def { name: "if" op: "StatelessIf" input: "n" input: "n" input: "x" attr { key: "Tcond" value { type: DT_INT32 } }
      attr { key: "Tin" value { list { type: DT_INT32 type: DT_FLOAT } } } attr { key: "Tout" value { list { type: DT_FLOAT } } }
      attr { key: "then_branch" value { func { name: "more" } } } attr { key: "else_branch" value { func { name: "one" } } } }
    ret { key: "y" value: "if:output:0" } }
  function { signature { name: "more" input_arg { name: "n" type: DT_INT32 } input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } }
    node_def { name: "c" op: "Const" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 1 } } } }
    node_def { name: "less" op: "Sub" input: "n" input: "c:output:0" attr { key: "T" value { type: DT_INT32 } } }
    node_def { name: "call" op: "power" input: "less:z:0" input: "x" }
    node_def { name: "mul" op: "Mul" input: "call:y:0" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
    ret { key: "y" value: "mul:z:0" } }
  function { signature { name: "one" input_arg { name: "n" type: DT_INT32 } input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } }
    node_def { name: "ones" op: "OnesLike" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
    ret { key: "y" value: "ones:y:0" } } }
"""


def test_recursive_function_and_its_gradient():
    from google.protobuf import text_format

    tf.import_graph_def(text_format.Parse(RECURSIVE, tf.GraphDef()), name="")
    graph = tf.get_default_graph()
    n, x, y = (graph.get_tensor_by_name(f"{name}:0") for name in "nxy")
    dx = tf.gradients(y, x)[0]
    for count in (0, 1, 5):
        assert run([y, dx], {n: count, x: 2.0}) == [2.0**count, count * 2.0 ** (count - 1)]
    assert run(y, {n: 300, x: 1.0}) == 1.0
    with pytest.raises(tf.errors.ResourceExhaustedError):
        run(y, {n: -1, x: 2.0})


def test_gradients_taken_after_a_session_ran_the_forward_node():
    x = tf.placeholder(tf.float32, [])
    y = raw.While(input=[0, 1.0, x], cond=power_cond, body=power_body)[1]
    z = raw.If(cond=x > 0.0, input=[x], Tout=[tf.float32], then_branch=square, else_branch=minus)[0]
    with tf.Session() as session:
        assert session.run([y, z], {x: 2.0}) == [8.0, 4.0]
        dy, dz = tf.gradients(y, x)[0], tf.gradients(z, x)[0]
        assert session.run([y, z, dy, dz], {x: 2.0}) == [8.0, 4.0, 12.0, 4.0]
        again = tf.gradients([y, z], x)[0]
        assert session.run([y, z, dy, again], {x: 3.0}) == [27.0, 9.0, 27.0, 33.0]
