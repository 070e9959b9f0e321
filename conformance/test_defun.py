"""Defun under both packages: the same programs give the same values, definitions, call nodes and errors."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.both import penstock, run_both, tensorflow

pytest.importorskip("tensorflow")

PROGRAMS = {}
X = np.float32([1.5, -2.0])


def Defun(tf, *types, **options):
    """TensorFlow keeps it in a module that is not public."""
    if hasattr(tf, "Defun"):
        return tf.Defun(*types, **options)
    from tensorflow.python.framework import function

    return function.Defun(*types, **options)


def program(message=None):
    """`fn(tf, x)` returns the fetches."""

    def register(fn):
        PROGRAMS[fn.__name__] = (fn, message)
        return fn

    return register


def run(fn, message):
    return run_both(lambda tf: fn(tf, tf.placeholder(tf.float32, [2], name="x")), {"x": X}, message=message)


@program()
def plain(tf, x):
    @Defun(tf, tf.float32, tf.float32, func_name="f")
    def f(a, B):
        z = tf.add(a, B, name="Foo/bar")
        return z, a - B, a, z

    return list(f(x, x * 2.0, name="call"))


@program()
def captures(tf, x):
    c = tf.constant([1.0, 2.0])
    v = tf.get_variable("v", initializer=[3.0, 4.0], use_resource=True)
    r = tf.get_variable("r", initializer=[5.0, 6.0], use_resource=False)

    @Defun(tf, tf.float32, func_name="f", noinline=True, out_names=["o"])
    def f(a):
        return a * c + v * r

    y = f(x)
    return [y, tf.gradients(y, [x, c, v, r])]


@program()
def variables_inside(tf, x):
    @Defun(tf, tf.float32, func_name="f")
    def f(a):
        with tf.variable_scope("layer"):
            w = tf.get_variable("w", [2], initializer=tf.ones_initializer(), use_resource=True)
            b = tf.get_variable("b", [2], initializer=tf.ones_initializer(), use_resource=False)
        return a * w + b

    y = f(x) + f(x)
    return [y, tf.gradients(y, tf.trainable_variables())]


@program()
def nested(tf, x):
    @Defun(tf, tf.float32, func_name="inner")
    def inner(a):
        return tf.square(a)

    @Defun(tf, tf.float32, func_name="outer")
    def outer(a):
        return inner(a) + inner(a + 1.0)

    return [outer(x), tf.gradients(outer(x), x)]


@program()
def gradient(tf, x):
    @Defun(tf, tf.float32, tf.float32, func_name="f")
    def f(a, b):
        return tf.tanh(a) * b, tf.reduce_sum(a), b

    y = f(x, tf.negative(x))
    return [tf.gradients(y[:2], x), tf.gradients(y[1], x)]


@program()
def gradient_function(tf, x):
    @Defun(tf, tf.float32, tf.float32, func_name="df")
    def df(a, dy):
        return dy * a * 100.0

    @Defun(tf, tf.float32, func_name="f", grad_func=df)
    def f(a):
        return a * a

    return tf.gradients(f(x), x)


@program()
def python_gradient(tf, x):
    @Defun(tf, tf.float32, func_name="f", python_grad_func=lambda op, dy: dy * op.inputs[0] * 7.0)
    def f(a):
        return a * a

    return tf.gradients(f(x), x)


@program()
def overloaded(tf, x):
    @Defun(tf, func_name="double")
    def double(a):
        return a + a

    return [double(x), double(tf.constant([1, 2])), double(3.0)]


@program()
def effects(tf, x):
    v = tf.get_variable("v", initializer=[1.0, 1.0], use_resource=True)

    @Defun(tf, tf.float32, func_name="f")
    def f(a):
        v.assign_add(a)
        return a

    with tf.control_dependencies([f(x)]):
        return v.read_value()


@program()
def loops_inside(tf, x):
    @Defun(tf, tf.float32, func_name="f")
    def f(a):
        return tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s * a), [0, a])[1]

    return f(x)


@program()
def shapes(tf, x):
    @Defun(tf, tf.float32, func_name="f")
    def f(a):
        return a * 2.0

    @Defun(tf, tf.float32, func_name="g", shape_func=lambda op: [op.inputs[0].shape])
    def g(a):
        return a * 2.0

    assert f(x).shape.rank is None and g(x).shape.as_list() == [2]
    return [f(x), g(x)]


@program("Expected 1 arguments, got 2")
def too_many(tf, x):
    return Defun(tf, tf.float32, func_name="f")(lambda a: a)(x, x)


@program("while building NodeDef")
def wrong_type(tf, x):
    return Defun(tf, tf.float32, func_name="f")(lambda a: a)(1)


@program("Unknown keyword arguments")
def wrong_keyword(tf, x):
    return Defun(tf, tf.float32, func_name="f")(lambda a: a)(x, color=1)


@program("can not return None")
def none(tf, x):
    return Defun(tf, tf.float32, func_name="f")(lambda a: [a, None])(x)


@program("argument defaults")
def defaults(tf, x):
    return Defun(tf, tf.float32)(lambda a, b=1: a)(x)


@program("is not compatible with the allowed arguments")
def wrong_number_of_types(tf, x):
    return Defun(tf, tf.float32, tf.float32)(lambda a: a)(x)


@program("not compatible with expected types")
def reference_inside(tf, x):
    r = tf.get_variable("r", initializer=[5.0, 6.0], use_resource=False)
    return Defun(tf, tf.float32, func_name="f")(lambda a: tf.assign_add(r, a))(x)


@program("by value")
def by_value(tf, x):
    return Defun(tf, tf.float32, func_name="f", capture_by_value=True)(lambda a: a * x)(x)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    run(*PROGRAMS[name])


@pytest.mark.parametrize("name", [n for n, (_, message) in PROGRAMS.items() if message is None])
def test_same_definitions_and_nodes(name):
    lists = []
    for tf in (penstock(), tensorflow()):
        with tf.Graph().as_default() as graph:
            PROGRAMS[name][0](tf, tf.placeholder(tf.float32, [2], name="x"))
            graph_def = graph.as_graph_def()
        lists.append([_nodes(graph_def.node), sorted(map(_definition, graph_def.library.function), key=str)])
    assert lists[0] == lists[1]


def _nodes(nodes):
    private = ("_has_manual_control_dependencies", "_output_shapes")
    return [(n.name, n.op, list(n.input), sorted(k for k in n.attr if k not in private)) for n in nodes]


def _definition(f):
    signature = f.signature
    args = [[(a.name, a.type) for a in part] for part in (signature.input_arg, signature.output_arg)]
    return (signature.name, args, signature.is_stateful, _nodes(f.node_def), sorted(f.ret.items()), sorted(f.attr), sorted(f.arg_attr))
