"""Gradients of calls, branches and loops in functional form."""

import numpy as np
import pytest

import penstock as tf
from tests.ops.test_functional import minus, power_body, power_cond, raw, run, square


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
