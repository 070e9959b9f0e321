"""tf.Defun: definitions, overloads, captured tensors and variables, gradients, what it refuses."""

import functools

import numpy as np
import pytest

import penstock as tf


def run(fetches, feed=None):
    with tf.Session() as session:
        if tf.global_variables():
            session.run(tf.global_variables_initializer())
        return session.run(fetches, feed)


def test_results_by_number():
    @tf.Defun(tf.float32)
    def none(x):
        tf.Print(x, [x])

    @tf.Defun(tf.float32)
    def one(x):
        return [x + 1.0]

    @tf.Defun(tf.float32, tf.float32)
    def two(x, y):
        return x + y, x - y

    assert isinstance(none(1.0), tf.Operation)
    assert run(one(1.0)) == 2.0
    assert run(two(3.0, 1.0)) == (4.0, 2.0)


def test_calls_are_nodes_named_after_the_function():
    @tf.Defun(tf.float32, func_name="Half")
    def f(x):
        """Halves."""
        return x / 2.0

    a, b, c = f(1.0), f(2.0), f(3.0, name="third")
    assert [t.op.name for t in (a, b, c)] == ["Half", "Half_1", "third"]
    assert {t.op.type for t in (a, b, c)} == {"Half"}
    assert a.shape.rank is None
    assert f.definition.signature.description == "Halves."
    assert [g.signature.name for g in tf.get_default_graph().as_graph_def().library.function] == ["Half"]


def test_default_names_have_a_hash():
    def make(scale):
        @tf.Defun(tf.float32)
        def f(x):
            return x * scale

        return f.name

    assert make(2.0) == make(2.0) != make(3.0)
    assert make(2.0).startswith("f_")
    assert tf.Defun(tf.float32)(lambda x: x).name.startswith("lambda_")
    assert tf.Defun(tf.float32)(functools.partial(lambda y, x: x, 1)).name.startswith("lambda_")


def test_options_become_attributes():
    @tf.Defun(tf.float32, noinline=True, compiled=True, out_names=["half"], experimental_tag="a", _implements="thing")
    def f(x):
        return x / 2.0

    attrs = f.definition.attr
    assert attrs["_noinline"].b and attrs["_XlaCompile"].b and not attrs["_XlaSeparateCompiledGradients"].b
    assert attrs["_implements"].s == b"thing"
    assert [a.name for a in f.definition.signature.output_arg] == ["half"]
    assert f(1.0, noinline=False).op.get_attr("_noinline") is False


def test_what_is_refused():
    with pytest.raises(ValueError, match="must be a callable"):
        tf.Defun(tf.float32)(3)
    with pytest.raises(ValueError, match="argument defaults"):
        tf.Defun(tf.float32)(lambda x, y=1: x)
    with pytest.raises(ValueError, match="not compatible with the allowed arguments"):
        tf.Defun(tf.float32, tf.float32)(lambda x: x)
    with pytest.raises(ValueError, match="can not return None"):
        tf.Defun(tf.float32)(lambda x: [x, None])(1.0)
    f = tf.Defun(tf.float32)(lambda x: x)
    with pytest.raises(ValueError, match="Expected 1 arguments, got 2"):
        f(1.0, 2.0)
    with pytest.raises(ValueError, match="passed int32 expected float"):
        f(1)
    with pytest.raises(ValueError, match="Unknown keyword arguments"):
        f(1.0, color="red")
    with pytest.raises(ValueError, match="produced 2 shapes, which does not match 1 outputs"):
        tf.Defun(tf.float32, shape_func=lambda op: [[], []])(lambda x: x)(1.0)


def test_overloads():
    @tf.Defun(func_name="Twice")
    def twice(x):
        return x + x

    a, b = twice(1), twice([1.5])
    assert (a.op.type, b.op.type) == ("Twice_i32", "Twice_f32")
    assert twice(2).op.type == "Twice_i32"
    assert run(a) == 2 and run(b).tolist() == [3.0]
    assert twice.instantiate([tf.int32]) is twice.instantiate([tf.int32])
    with pytest.raises(ValueError, match="Unsupported dtypes"):
        twice.instantiate([tf.resource])


def test_overloaded_gradient():
    @tf.Defun()
    def df(x, dy):
        return dy * 10.0

    @tf.Defun(grad_func=df)
    def f(x):
        return x * x

    x = tf.constant(3.0)
    assert run(tf.gradients(f(x), x)) == [10.0]


def test_variable_number_of_arguments():
    @tf.Defun(tf.float32, tf.float32, tf.float32)
    def total(*xs):
        return tf.add_n(xs)

    assert run(total(1.0, 2.0, 3.0)) == 6.0
    assert [a.name for a in total.definition.signature.input_arg] == ["arg0", "arg1", "arg2"]


def test_no_arguments():
    @tf.Defun()
    def pi():
        return tf.constant(3.0)

    assert run(pi()) == 3.0


def test_shape_func():
    @tf.Defun(tf.float32, shape_func=lambda op: [op.inputs[0].shape])
    def f(x):
        return x * 2.0

    assert f([1.0, 2.0]).shape == [2]


def test_captured_inputs():
    c = tf.constant([1.0, 2.0])
    v = tf.get_variable("v", initializer=[5.0, 6.0], use_resource=True)

    @tf.Defun(tf.float32)
    def f(x):
        return x * c + v

    y = f(10.0)
    assert f.captured_inputs == [c, v.handle]
    assert list(y.op.inputs)[1:] == [c, v.handle]
    assert f.stateful_ops == [("add/ReadVariableOp", "ReadVariableOp")]
    np.testing.assert_array_equal(run(y), [15.0, 26.0])
    np.testing.assert_array_equal(run(tf.gradients(y, [c, v])), [[10.0, 10.0], [1.0, 1.0]])


def test_captures_through_two_functions():
    c = tf.constant(2.0)

    @tf.Defun(tf.float32)
    def outer(x):
        @tf.Defun(tf.float32)
        def inner(y):
            return y * c * x

        return inner(x) + 1.0

    x = tf.constant(3.0)
    y = outer(x)
    assert outer.captured_inputs == [c]
    assert run([y, *tf.gradients(y, [x, c])]) == [19.0, 12.0, 9.0]


@pytest.mark.parametrize("resource", [False, True])
def test_variables_are_made_outside(resource):
    @tf.Defun(tf.float32)
    def layer(x):
        with tf.variable_scope("layer"):
            w = tf.get_variable("w", [2], initializer=tf.constant_initializer(3.0), use_resource=resource)
        return x * w

    y = layer([1.0, 2.0])
    again = layer([10.0, 10.0])
    [w] = tf.global_variables()
    assert w.name == "layer/w:0" and w.graph is tf.get_default_graph()
    assert tf.trainable_variables() == [w]
    np.testing.assert_array_equal(run([y, again]), [[3.0, 6.0], [30.0, 30.0]])
    np.testing.assert_array_equal(run(tf.gradients([y, again], w)[0]), [11.0, 12.0])


def test_variables_of_the_python_kind():
    @tf.Defun(tf.float32)
    def f(x):
        v = tf.Variable([1.0, 2.0], name="inner", use_resource=True)
        return x * v

    np.testing.assert_array_equal(run(f(2.0)), [2.0, 4.0])
    assert [v.name for v in tf.global_variables()] == ["inner:0"]


def test_device_scopes():
    with tf.device("/cpu:0"):

        @tf.Defun(tf.float32)
        def f(x):
            with tf.device("/cpu:1"):
                y = x * 2.0
            return y + 1.0

    devices = {n.name: n.device for n in f.definition.node_def}
    assert devices["mul"] == "/device:CPU:1" and devices["add_0"] == "/device:CPU:0"
    assert run(f(1.0)) == 3.0


def test_python_gradient():
    @tf.Defun(tf.float32, python_grad_func=lambda op, dy: dy * 7.0)
    def f(x):
        return x * x

    x = tf.constant(3.0)
    assert run(tf.gradients(f(x), x)) == [7.0]


def test_grad_func():
    @tf.Defun(tf.float32, tf.float32)
    def df(x, dy):
        return dy * 100.0

    @tf.Defun(tf.float32, grad_func=df)
    def f(x):
        return x * x

    @tf.Defun(tf.float32)
    def g(x):
        return x * x

    g.set_grad_func(df)
    x = tf.constant(3.0)
    assert run([tf.gradients(f(x), x), tf.gradients(g(x), x)]) == [[100.0], [100.0]]
    assert f.grad_func_name == df.name


def test_one_definition_in_two_graphs():
    @tf.Defun(tf.float32)
    def inner(x):
        return x + 1.0

    @tf.Defun(tf.float32)
    def f(x):
        return inner(x) * 2.0

    assert run(f(1.0)) == 4.0
    with tf.Graph().as_default():
        assert run(f(2.0)) == 6.0
        assert set(tf.get_default_graph().functions) == {f.name, inner.name}


def test_a_failing_body_leaves_nothing_behind():
    @tf.Defun(tf.float32)
    def f(x):
        raise KeyError("oops")

    for _ in range(2):
        with pytest.raises(KeyError, match="oops"):
            f(1.0)
    assert not tf.get_default_graph().functions
    assert run(tf.constant(1.0) + 1.0) == 2.0


def test_functions_as_attributes():
    @tf.Defun(tf.float32)
    def f(x):
        return x * x

    [y] = tf.raw_ops.PartitionedCall(args=[3.0], Tout=[tf.float32], f=f)
    assert run(y) == 9.0
    assert y.op.get_attr("f").name == f.name


def test_map_fn_and_scan_inside():
    @tf.Defun(tf.float32)
    def f(x):
        return tf.map_fn(lambda v: v * v, x), tf.scan(lambda a, v: a + v, x)

    x = tf.constant([1.0, 2.0, 3.0])
    squares, sums = f(x)
    np.testing.assert_array_equal(run(squares), [1.0, 4.0, 9.0])
    np.testing.assert_array_equal(run(sums), [1.0, 3.0, 6.0])
    np.testing.assert_array_equal(run(tf.gradients(squares, x)[0]), [2.0, 4.0, 6.0])


def test_reads_of_a_variable_are_named_inside():
    v = tf.get_variable("v", initializer=[1.0, 2.0, 3.0], use_resource=True)

    @tf.Defun(tf.int32)
    def f(i):
        a = tf.gather(v, i)
        b = tf.identity(tf.cast(i, tf.float32), name="Gather")
        return a + b + v.sparse_read(i) + v.read_value()[0]

    assert run(f(2)) == 9.0


def test_gradient_of_a_function_that_loops_and_makes_variables():
    @tf.Defun(tf.float32)
    def f(x):
        w = tf.get_variable("w", initializer=2.0, use_resource=True)
        r = tf.get_variable("r", initializer=3.0, use_resource=False)
        v = tf.Variable(5.0, name="v", use_resource=True)
        return tf.while_loop(lambda i, s: i < 2, lambda i, s: (i + 1, s * w * r * v), [0, x])[1]

    x = tf.constant(1.5)
    y = f(x)
    grads = tf.gradients(y, [x, *tf.global_variables()])
    assert [v.name for v in tf.global_variables()] == ["w:0", "r:0", "v:0"]
    np.testing.assert_allclose(run([y, *grads]), [1350.0, 900.0, 1350.0, 900.0, 540.0])
    assert len(tf.global_variables()) == 3
