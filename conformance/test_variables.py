"""Variables, scopes and initializers against TensorFlow: the same nodes under the same names, and the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from both import penstock, run_both, same_structure, tensorflow


def variables(use_resource):
    def build(tf):
        v = tf.Variable([1.0, 2.0], name="v", use_resource=use_resource)
        w = tf.Variable(lambda: tf.zeros([2]), name="w", use_resource=use_resource)
        tf.Variable(v * 2.0, name="y", use_resource=use_resource, trainable=False)
        v.read_value(), v + w, v[0:1], tf.identity(v)
        v.assign([1.0, 2.0]), v.assign_add([1.0, 2.0]), v.assign_sub([1.0, 1.0]), tf.assign(v, [1.0, 1.0])
        v.scatter_add(tf.IndexedSlices(tf.constant([1.0]), tf.constant([0])))
        tf.scatter_update(v, [0], [1.0]), tf.scatter_nd_update(v, [[0]], [1.0]), v.scatter_nd_add([[0]], [1.0])
        v[0:1].assign([1.0]), v[0].assign(2.0)
        c = tf.Variable(1, name="c", use_resource=use_resource)
        c.count_up_to(3), tf.count_up_to(c, 3)
        tf.is_variable_initialized(v), tf.report_uninitialized_variables(), tf.assert_variables_initialized()
        tf.global_variables_initializer(), tf.local_variables_initializer()

    return build


def scopes(tf):
    with tf.name_scope("n"):
        with tf.variable_scope("a") as a:
            v = tf.get_variable("v", [2])
            tf.add(v, 1.0)
        with tf.variable_scope(a):
            tf.add(v, 1.0)
        with tf.variable_scope(a, auxiliary_name_scope=False):
            tf.add(v, 1.0)
        with tf.variable_scope("a", reuse=tf.AUTO_REUSE), tf.variable_scope("c"):
            tf.get_variable("q", [1], initializer=tf.zeros_initializer())
        with tf.variable_scope(tf.get_variable_scope(), reuse=True):
            tf.add(v, 1.0)
    for _ in range(2):
        with tf.variable_scope(None, "d"):
            for _ in range(2):
                with tf.variable_scope(None, "e"):
                    tf.get_variable("v", [1], dtype=tf.int32)


def partitioned(tf):
    v = tf.get_variable("v", [5, 3], partitioner=tf.fixed_size_partitioner(2), initializer=tf.zeros_initializer())
    tf.identity(v)
    with tf.variable_scope("a", partitioner=tf.variable_axis_size_partitioner(24)):
        tf.get_variable("w", [5, 3])


def devices(tf):
    with tf.device("/cpu:0"):
        v = tf.Variable(1.0, name="v")
        r = tf.Variable(lambda: tf.zeros([2]), name="r", use_resource=True)
        tf.get_variable("g", [2])
    with tf.device("/gpu:0"):
        tf.assign(v, 2.0), v.assign_add(1.0), r.assign([1.0, 1.0]), v.read_value(), r.read_value(), r + 1.0, v + 1.0


def control(tf):
    p = tf.placeholder(tf.bool, [], name="p")
    v = tf.Variable(1.0, name="v")
    with tf.control_dependencies([p]):
        w = tf.Variable(2.0, name="w")
        tf.add(v, w)
        r = tf.Variable(2.0, name="r", use_resource=True)
    tf.cond(p, lambda: tf.assign_add(v, 1.0), lambda: v + 2.0)
    tf.cond(p, lambda: r.assign_add(1.0), lambda: r + 2.0)
    tf.cond(p, lambda: tf.get_variable("in", [], initializer=tf.ones_initializer()) + 1.0, lambda: 2.0)


PROGRAMS = {
    "ref": variables(False), "resource": variables(True), "scopes": scopes, "partitioned": partitioned, "devices": devices, "control": control,
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_structure(name):
    same_structure(PROGRAMS[name])


INITIALIZERS = {
    "random_uniform": lambda i: i.random_uniform(-1, 1, seed=3),
    "random_normal": lambda i: i.random_normal(1.0, 2.0, seed=4),
    "truncated_normal": lambda i: i.truncated_normal(seed=5),
    "uniform_unit_scaling": lambda i: i.uniform_unit_scaling(seed=2),
    "variance_scaling_uniform": lambda i: i.variance_scaling(2.0, "fan_out", "uniform", seed=2),
    "variance_scaling_untruncated": lambda i: i.variance_scaling(2.0, "fan_avg", "untruncated_normal", seed=2),
    "glorot_normal": lambda i: i.glorot_normal(seed=1),
    "glorot_uniform": lambda i: i.glorot_uniform(seed=1),
    "he_normal": lambda i: i.he_normal(seed=1),
    "he_uniform": lambda i: i.he_uniform(seed=1),
    "lecun_normal": lambda i: i.lecun_normal(seed=2),
    "lecun_uniform": lambda i: i.lecun_uniform(seed=3),
    "identity": lambda i: i.identity(2.0),
}


@pytest.mark.parametrize("name", INITIALIZERS)
def test_initializer_numbers(name):
    def values(tf):
        with tf.Graph().as_default():
            init = INITIALIZERS[name](tf.initializers)
            v = tf.get_variable("v", [7, 5], initializer=init)
            with tf.Session() as sess:
                sess.run(v.initializer)
                return sess.run(v), init.get_config()

    (ours, our_config), (theirs, their_config) = values(penstock()), values(tensorflow())
    np.testing.assert_array_equal(ours, theirs)
    assert our_config == their_config


def test_seeds_of_the_graph():
    def build(tf):
        tf.set_random_seed(7)
        return [tf.get_variable(n, [3, 2]) for n in "abc"] + [tf.Variable(tf.random_normal([2]))]

    run_both(build, rtol=0, atol=0)


def behind(tf):
    v = tf.Variable(0.0, use_resource=False)
    with tf.control_dependencies([v.assign_add(1.0)]):
        return tf.identity(v), v + 0.0, v.read_value(), v.value()


def chain(tf):
    v = tf.Variable(0.0, use_resource=False)
    old, copied = tf.identity(v), v + 0.0
    with tf.control_dependencies([old, copied]):
        added = v.assign_add(1.0)
    with tf.control_dependencies([added]):
        return tf.identity(old), tf.identity(copied)


def branch(tf):
    v = tf.Variable(0.0, use_resource=False)

    def add():
        with tf.control_dependencies([v.assign_add(1.0)]):
            return tf.identity(v)

    return tf.cond(tf.constant(True), add, lambda: v)


def fetched(tf):
    v = tf.Variable([0.0, 0.0], use_resource=False)
    return v, v.value(), tf.assign_add(v, [1.0, 1.0])


@pytest.mark.parametrize("program", [behind, chain, branch, fetched])
def test_references_share_memory(program):
    """An Identity of a reference variable is no copy: what runs after a write sees the write."""
    run_both(program, runs=3)
