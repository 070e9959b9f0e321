"""Graphs built here run in TensorFlow with the same results: functions, control flow, variables, gradients, the examples."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import penstock as tf
from conformance.both import compare, tensorflow

pytest.importorskip("tensorflow")

PROGRAMS: dict[str, Any] = {}


def program(fn):
    """`fn()` builds a graph and returns (fetches, {placeholder: value})."""
    PROGRAMS[fn.__name__] = fn
    return fn


X = np.float32([1.5, -2.0, 0.5])


def placeholder():
    return tf.placeholder(tf.float32, [3], name="x")


# -- functions ------------------------------------------------------------------------------------------------------------


@program
def defun():
    @tf.Defun(tf.float32, tf.float32)
    def f(a, b):
        return a * b + 1.0, a - b

    x = placeholder()
    y = f(x, x + 1.0)
    return [*y, f(*y)[0]], {x: X}


@program
def defun_nested_with_captures():
    c = tf.constant([1.0, 2.0, 3.0])

    @tf.Defun(tf.float32, noinline=True)
    def inner(a):
        return tf.sin(a) * c

    @tf.Defun(tf.float32, func_name="Outer", out_names=["result"])
    def outer(a):
        return inner(a) + inner(a * 2.0)

    x = placeholder()
    return [outer(x)], {x: X}


@program
def defun_gradient():
    @tf.Defun(tf.float32, tf.float32)
    def f(a, b):
        return tf.tanh(a) * b, tf.reduce_sum(b)

    x = placeholder()
    y = f(x, x * 2.0)
    return [tf.gradients(y, x)], {x: X}


@program
def defun_own_gradient():
    @tf.Defun(tf.float32, tf.float32)
    def df(a, dy):
        return dy * 7.0 + a

    @tf.Defun(tf.float32, grad_func=df)
    def f(a):
        return a * a

    x = placeholder()
    return [f(x), tf.gradients(f(x), x)], {x: X}


@program
def defun_python_gradient():
    @tf.Defun(tf.float32, python_grad_func=lambda op, dy: dy * 3.0)
    def f(a):
        return a * a

    x = placeholder()
    return [tf.gradients(f(x), x)], {x: X}


@program
def defun_overloaded():
    @tf.Defun()
    def double(a):
        return a + a

    x = placeholder()
    return [double(x), double(tf.constant([1, 2]))], {x: X}


@program
def defun_with_loop():
    @tf.Defun(tf.float32)
    def f(a):
        return tf.while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, s * a), [0, a])[1]

    x = placeholder()
    return [f(x)], {x: X}


@program
def defun_with_cond():
    @tf.Defun(tf.float32)
    def f(a):
        return tf.cond(tf.reduce_sum(a) > 0.0, lambda: a * 2.0, lambda: tf.exp(a))

    x = placeholder()
    return [f(x), f(-x)], {x: X}


@program
def defun_resource_variable():
    v = tf.get_variable("v", initializer=[1.0, 2.0, 3.0], use_resource=True)

    @tf.Defun(tf.float32)
    def f(a):
        with tf.control_dependencies([v.assign_add(a)]):
            return v.read_value() * 2.0

    x = placeholder()
    y = f(x)
    with tf.control_dependencies([y]):
        return [y, v.read_value()], {x: X}


@program
def defun_makes_variables():
    @tf.Defun(tf.float32)
    def f(a):
        w = tf.get_variable("w", [3], initializer=tf.ones_initializer(), use_resource=True)
        r = tf.get_variable("r", [3], initializer=tf.ones_initializer(), use_resource=False)
        return a * w + r

    x = placeholder()
    return [f(x), tf.gradients(f(x), [x, *tf.global_variables()])], {x: X}


@program
def partitioned_call():
    @tf.Defun(tf.float32)
    def f(a):
        return tf.square(a)

    x = placeholder()
    y = tf.raw_ops.PartitionedCall(args=[x], Tout=[tf.float32], f=f)
    z = tf.raw_ops.StatefulPartitionedCall(args=y, Tout=[tf.float32], f=f)
    return [y, z, tf.gradients(z, x)], {x: X}


@program
def functions_of_functions():
    @tf.Defun(tf.float32)
    def f(a):
        return tf.square(a)

    @tf.Defun(tf.float32)
    def g(a):
        return tf.raw_ops.PartitionedCall(args=[a], Tout=[tf.float32], f=f)[0] + f(a)

    x = placeholder()
    return [g(x), tf.gradients(g(x), x)], {x: X}


# -- functional control flow -------------------------------------------------------------------------------------------------


def branches():
    @tf.Defun(tf.float32)
    def then(a):
        return tf.sin(a) * a

    @tf.Defun(tf.float32)
    def otherwise(a):
        return tf.exp(a)

    return then, otherwise


@program
def functional_if():
    x = placeholder()
    y = tf.raw_ops.If(cond=tf.reduce_sum(x) > 0.0, input=[x], Tout=[tf.float32], then_branch=branches()[0], else_branch=branches()[1])
    z = tf.raw_ops.StatelessIf(cond=x[0], input=[x], Tout=[tf.float32], then_branch=branches()[0], else_branch=branches()[1])
    return [y, z], {x: X}


@program
def functional_if_gradient():
    x = placeholder()
    then, otherwise = branches()
    y = [tf.raw_ops.If(cond=c, input=[x], Tout=[tf.float32], then_branch=then, else_branch=otherwise)[0] for c in (x[0] > 0.0, x[0] < 0.0)]
    return [y, tf.gradients(y, x)], {x: X}


@program
def functional_case_gradient():
    x = placeholder()
    y = [tf.raw_ops.Case(branch_index=i, input=[x], Tout=[tf.float32], branches=list(branches()))[0] for i in (0, 1, 5)]
    return [y, tf.gradients(y, x)], {x: X}


def loop(x):
    @tf.Defun(tf.int32, tf.float32, tf.float32)
    def cond(i, a, b):
        return i < 4

    @tf.Defun(tf.int32, tf.float32, tf.float32)
    def body(i, a, b):
        return i + 1, tf.sin(a) * b, b

    return tf.raw_ops.While(input=[tf.constant(0), x, x * 2.0], cond=cond, body=body)


@program
def functional_while():
    x = placeholder()
    return [loop(x)], {x: X}


@program
def functional_while_gradient():
    x = placeholder()
    return [tf.gradients(loop(x)[1], x)], {x: X}


@program
def functional_for():
    @tf.Defun(tf.int32, tf.float32)
    def body(i, a):
        return a + tf.cast(i, tf.float32)

    x = placeholder()
    return [tf.raw_ops.For(start=0, limit=5, delta=2, input=[x], body=body)], {x: X}


# -- TF1 control flow and variables --------------------------------------------------------------------------------------------


@program
def loops_and_branches():
    x = placeholder()
    y = tf.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, tf.cond(tf.equal(i % 2, 0), lambda: a * x, lambda: a + x)), [0, x])[1]
    return [y, tf.gradients(y, x), tf.map_fn(lambda v: v * v, x), tf.scan(lambda a, v: a + v, x)], {x: X}


@program
def variables_of_both_kinds():
    x = placeholder()
    parts = []
    for resource in (False, True):
        v = tf.get_variable(f"v{resource}", initializer=[1.0, 2.0, 3.0], use_resource=resource)
        loss = tf.reduce_sum(tf.square(v * x - 1.0))
        train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        with tf.control_dependencies([train]):
            parts += [tf.identity(loss), v.read_value()]
    return parts, {x: X}


# -- the comparison ------------------------------------------------------------------------------------------------------------


class There:
    """A session that runs a graph of ours in TensorFlow."""

    def __init__(self, target="", graph=None, config=None):
        self.graph = graph or tf.get_default_graph()
        self.theirs = tensorflow()
        self.session, self.size = None, -1

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        if self.size != self.graph.version:
            self._extend()
        feeds = {key.name: value for key, value in (feed_dict or {}).items()}
        return self.session.run(self._names(fetches), feeds)

    def _extend(self):
        """Brings nodes over that are new since the last run; those that are there already stand for themselves."""
        if self.session is None:
            self.session = self.theirs.Session(graph=self.theirs.Graph())
        graph = self.session.graph
        graph_def = self.theirs.GraphDef()
        graph_def.ParseFromString(self.graph.as_graph_def().SerializeToString())
        there = {op.name: op for op in graph.get_operations()}
        new = [node for node in graph_def.node if node.name not in there]
        wanted = {name for node in new for name in node.input}
        known = {name: there[name[1:]] for name in wanted if name[:1] == "^" and name[1:] in there}
        known |= {name: graph.get_tensor_by_name(name if ":" in name else name + ":0") for name in wanted if name.split(":")[0] in there}
        del graph_def.node[:]
        graph_def.node.extend(new)
        with graph.as_default():
            self.theirs.import_graph_def(graph_def, input_map=known, name="")
        self.size = self.graph.version

    def _names(self, fetches):
        if isinstance(fetches, dict):
            return {key: self._names(value) for key, value in fetches.items()}
        if isinstance(fetches, (list, tuple)):
            return [self._names(value) for value in fetches]
        if isinstance(fetches, (tf.Tensor, tf.Operation)):
            return fetches.name
        return self.graph.as_graph_element(fetches).name

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        if self.session is not None:
            self.session.close()


@pytest.mark.parametrize("name", PROGRAMS)
def test_runs_in_tensorflow(name):
    with tf.Graph().as_default():
        fetches, feed = PROGRAMS[name]()
        fetches = [list(f) if isinstance(f, (list, tuple)) else f for f in fetches]
        init = tf.global_variables_initializer()
        results = []
        for session in (tf.Session(), There()):
            with session:
                session.run(init)
                results.append(session.run(fetches, feed))
    compare(*results)


class Elsewhere:
    """This package, but for sessions, which run in TensorFlow."""

    Session = There

    def __getattr__(self, name):
        return getattr(tf, name)


@pytest.mark.parametrize("name", ["attention", "cnn", "embedding", "lstm", "mlp", "newton"])
def test_example_runs_in_tensorflow(name):
    module = importlib.import_module(f"examples.{name}")
    with tf.Graph().as_default():
        ours = module.program(tf)
    with tf.Graph().as_default():
        theirs = module.program(Elsewhere())
    compare(ours, theirs, 2e-3, 2e-4)
