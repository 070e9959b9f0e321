"""Branches, loops, TensorArrays and what is built of them: the same programs under TensorFlow and Penstock.

Values, gradients and error classes must agree. Where nothing but control flow is in the graph, names and wiring must too.
"""

import collections

import numpy as np
import pytest

from conformance.both import penstock, run_both, same_structure, structure_of, tensorflow

pytest.importorskip("tensorflow")

X = np.array([1.5, -2.0], np.float32)
PROGRAMS = {}
Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024


def program(feed=None, message=None, structure=False):
    """Registers a program with its feeds, the text its error must hold, and whether its graph must be the same."""

    def register(fn):
        PROGRAMS[fn.__name__] = (fn, feed, message, structure)
        return fn

    return register


def x_of(tf, shape=(2,)):
    return tf.placeholder(tf.float32, shape, name="x")


def p_of(tf):
    return tf.placeholder(tf.bool, [], name="p")


# -- cond -------------------------------------------------------------------------------------------------------------


@program({"x": X, "p": True})
def cond_true(tf):
    x, p = x_of(tf), p_of(tf)
    y = tf.cond(p, lambda: x * 2.0, lambda: x + 1.0)
    return y, tf.gradients(y, x)[0]


@program({"x": X, "p": False})
def cond_false(tf):
    return cond_true(tf)


@program({"x": X, "p": False})
def cond_unknown_shape(tf):
    x, p = x_of(tf, None), p_of(tf)
    y = tf.cond(p, lambda: x * 2.0, lambda: x * x)
    return y, tf.gradients(y, x)[0]


@program({"x": X})
def cond_nested(tf):
    x = x_of(tf)
    s = tf.reduce_sum(x)
    y = tf.cond(
        s > 0, lambda: tf.cond(s > 1, lambda: x * 2.0, lambda: x * 3.0), lambda: tf.cond(s < -3, lambda: x * 4.0, lambda: x * x * x)
    )
    return y, tf.gradients(y, x)[0]


@program({"p": True}, structure=True)
def cond_with_state(tf):
    p = p_of(tf)
    v = tf.Variable(1.0, use_resource=False, name="v")
    return (
        tf.cond(p, lambda: tf.assign_add(v, 2.0), lambda: tf.assign_add(v, 10.0)),
        tf.cond(p, lambda: (tf.constant(1), tf.constant("a")), lambda: (tf.constant(2), tf.constant("b"))),
    )


@program({"p": True}, structure=True)
def cond_of_operations(tf):
    return tf.cond(p_of(tf), lambda: tf.group(tf.constant(1.0)), lambda: tf.no_op())


@program({"p": True})
def cond_with_resource_variable(tf):
    v = tf.Variable(np.arange(3, dtype=np.float32), name="v", use_resource=True)
    y = tf.cond(p_of(tf), lambda: v * v, lambda: tf.ones([3]))
    return y, tf.gradients(y, v)[0]


@program({"x": X, "p": True})
def cond_strict_and_nested_results(tf):
    x, p = x_of(tf), p_of(tf)
    return [
        tf.cond(p, lambda: [x], lambda: [x * 2.0]),
        tf.cond(p, lambda: [x], lambda: [x * 2.0], strict=True),
        tf.cond(p, lambda: {"a": x, "b": (x, x + 1.0)}, lambda: {"a": x, "b": (x, x)}),
        tf.cond(p, fn1=lambda: x, fn2=lambda: x),
    ]


@program({"x": X, "p": True})
def gradients_inside_of_cond(tf):
    x, p = x_of(tf), p_of(tf)
    y = x * x * x
    return tf.cond(p, lambda: tf.gradients(y, x)[0], lambda: tf.gradients(x * x, x)[0])


@program({"p": True}, message="have the same type")
def cond_types_differ(tf):
    return tf.cond(p_of(tf), lambda: 1, lambda: 2.0)


@program({"p": True}, message="same nested structure")
def cond_structures_differ(tf):
    return tf.cond(p_of(tf), lambda: (1, 2), lambda: 1)


@program(message="'pred' must not be a Python bool")
def cond_of_a_bool(tf):
    return tf.cond(True, lambda: 1, lambda: 2)


@program({"p": True}, message="must have a return value")
def cond_without_result(tf):
    return tf.cond(p_of(tf), lambda: None, lambda: 2)


# -- while_loop -------------------------------------------------------------------------------------------------------


def powers(tf, x, n=3, **options):
    return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x), [0, x], **options)


@program({"x": X})
def loop(tf):
    x = x_of(tf)
    i, y = powers(tf, x)
    return i, y, tf.gradients(y, x)[0]


@program({"x": X})
def loop_unknown_shape(tf):
    x = x_of(tf, None)
    i, y = powers(tf, x)
    return i, y, tf.gradients(y, x)[0]


@program({"x": X, "n": 0})
def loop_that_never_runs(tf):
    x = x_of(tf, None)
    i, y = powers(tf, x, tf.placeholder(tf.int32, [], name="n"))
    return i, y, tf.gradients(y, x)[0]


@program({"x": X}, structure=True)
def loop_structure(tf):
    x = x_of(tf)
    return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x + tf.constant(1.0)), [0, x], parallel_iterations=4, name="loop")


@program({"x": X})
def loop_in_loop(tf):
    x = x_of(tf)

    def body(i, a):
        return i + 1, tf.while_loop(lambda j, b: j < 2, lambda j, b: (j + 1, b * x + a), [0, a])[1]

    y = tf.while_loop(lambda i, a: i < 3, body, [0, x])[1]
    return y, tf.gradients(y, x)[0]


@program({"x": X})
def loop_in_loop_unknown_shape(tf):
    x = x_of(tf, None)

    def body(i, a):
        return i + 1, tf.while_loop(lambda j, b: j < i, lambda j, b: (j + 1, b * x + a), [0, a])[1]

    y = tf.while_loop(lambda i, a: i < 3, body, [0, x])[1]
    return y, tf.gradients(y, x)[0]


@program({"x": X})
def cond_in_loop(tf):
    x = x_of(tf)

    def body(i, a):
        return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: a * x, lambda: a + x * 3.0)

    y = tf.while_loop(lambda i, a: i < 4, body, [0, x])[1]
    return y, tf.gradients(y, x)[0]


@program({"x": X})
def cond_in_loop_unknown_shape(tf):
    x = x_of(tf, None)

    def body(i, a):
        return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: a * a * x, lambda: tf.square(a) + x * 3.0)

    y = tf.while_loop(lambda i, a: i < 4, body, [0, x])[1]
    return y, tf.gradients(y, x)[0]


@program({"x": X, "p": True})
def loop_in_cond(tf):
    x, p = x_of(tf), p_of(tf)
    y = tf.cond(p, lambda: powers(tf, x)[1], lambda: x * 5.0)
    return y, tf.gradients(y, x)[0]


@program({"x": X, "p": False})
def loop_in_cond_not_taken(tf):
    return loop_in_cond(tf)


@program({"x": X})
def loop_cond_loop(tf):
    x = x_of(tf, None)

    def body(i, a):
        inner = lambda: tf.while_loop(lambda j, b: j < 2, lambda j, b: (j + 1, b * x + a), [0, a])[1]  # noqa: E731
        return i + 1, tf.cond(i < 2, inner, lambda: a - x)

    y = tf.while_loop(lambda i, a: i < 4, body, [0, x])[1]
    return y, tf.gradients(y, x)[0]


@program({"x": X})
def loop_with_many_variables(tf):
    x = x_of(tf)
    _, a, b, c = tf.while_loop(
        lambda i, a, b, c: i < 3, lambda i, a, b, c: (i + 1, b * x, a + x, tf.constant([1.0, 1.0]) * x), [0, x, x * 2.0, x]
    )
    return tf.gradients(a + c, x)[0], tf.gradients(b, x)[0], tf.gradients(c, x)[0]


@program({"x": X})
def loop_that_forgets(tf):
    x = x_of(tf, None)
    _, a = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, x * x), [0, x * 2.0])
    return a, tf.gradients(a, x)[0]


@program({"x": X})
def loop_without_backprop(tf):
    x = x_of(tf)
    _, a = powers(tf, x, back_prop=False)
    return a, tf.constant(tf.gradients(a, x)[0] is None)


@program({"x": X})
def loop_with_limit(tf):
    x = x_of(tf)
    a = tf.while_loop(lambda a: tf.constant(True), lambda a: a * x, [x], maximum_iterations=3)
    i, b = tf.while_loop(lambda i, b: i < 10, lambda i, b: [i + 1, b * x], [0, x], maximum_iterations=3)
    return a, tf.gradients(a, x)[0], i, tf.gradients(b, x)[0]


@program({"x": X})
def loop_of_structures(tf):
    x = x_of(tf)
    result = tf.while_loop(
        lambda i, s: i < 3,
        lambda i, s: (i + 1, {"u": Pair(s["u"].a * x, s["u"].b + 1.0), "v": [s["v"][0] + s["u"].a]}),
        (0, {"u": Pair(x, x), "v": [x]}),
    )
    return result, tf.gradients(result[1]["v"][0], x)[0]


@program({"x": X}, structure=True)
def loop_that_keeps_its_structure(tf):
    return tf.while_loop(lambda a: tf.reduce_sum(a) > -100.0, lambda a: [a * 2.0], [x_of(tf)], return_same_structure=True)


@program({"x": X})
def loop_that_grows(tf):
    x = x_of(tf)
    shapes = [tf.TensorShape([]), tf.TensorShape([None])]
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.concat([a, a * x[0]], 0)), [0, x], shape_invariants=shapes)
    return y, tf.gradients(y, x)[0]


@program()
def loop_of_sparse_tensors(tf):
    s = tf.SparseTensor([[0, 1], [1, 0]], [1.0, 2.0], [2, 2])
    return tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, tf.SparseTensor(s.indices, s.values * 2.0, s.dense_shape)), [0, s])


@program({"x": X})
def loop_of_indexed_slices(tf):
    x = x_of(tf)
    s = tf.IndexedSlices(x, tf.constant([1, 0]), tf.constant([3]))
    i, r = tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, tf.IndexedSlices(s.values * 2.0, s.indices, s.dense_shape)), [0, s])
    return i, r.values, r.indices, r.dense_shape


@program(message="enters the loop with shape")
def loop_shape_changes(tf):
    return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.concat([a, a], 0)), [0, tf.zeros([2])])


@program(message="The shape invariant specified for")
def loop_invariant_does_not_fit(tf):
    shapes = [tf.TensorShape([]), tf.TensorShape([3])]
    return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a), [0, tf.zeros([2])], shape_invariants=shapes)


@program(message="don't have the same")
def loop_structure_changes(tf):
    return tf.while_loop(lambda i, a: i < 3, lambda i, a: i + 1, [0, tf.zeros([2])])


@program(message="incompatible with expected float")
def loop_type_changes(tf):
    return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, i), [0, tf.zeros([])])


@program(message="'loop_vars' must be provided")
def loop_without_variables(tf):
    return tf.while_loop(lambda: True, lambda: [], [])


@program({"x": X}, structure=True)
def control_dependencies_in_loop(tf):
    x = x_of(tf)
    c = tf.identity(x, name="c")

    def body(i, a):
        with tf.control_dependencies([c]):
            b = a * 2.0
        with tf.control_dependencies([b]):
            k = tf.constant(1.0)
        return i + 1, b + k

    return tf.while_loop(lambda i, a: i < 3, body, [0, x])


@program({"x": X}, structure=True)
def control_dependencies_around(tf):
    x = x_of(tf)
    c = tf.identity(x, name="c")
    with tf.control_dependencies([c]):
        return (
            tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0 + x), [0, x]),
            tf.cond(tf.less(x, 0.0)[0], lambda: x * 2.0, lambda: tf.constant([0.0, 1.0])),
        )


@program({"x": X})
def gradients_inside_of_loop(tf):
    x = x_of(tf)
    return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a - 0.1 * tf.gradients(tf.reduce_sum(a * a * x), a)[0]), [0, x])


@program({"x": X}, message="Second-order gradient for while loops not supported")
def second_derivative_of_loop(tf):
    x = x_of(tf)
    return tf.gradients(tf.gradients(powers(tf, x)[1], x)[0], x)


@program({"x": X}, message="We do not support taking the gradient wrt or through the initial value of a loop variable")
def gradient_to_the_initial_value(tf):
    x = x_of(tf)
    z = x * 2.0
    return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.gradients(a * a, z)[0]), [0, z])


@program({"x": X})
def loop_over_rows_of_a_variable(tf):
    v = tf.Variable(np.arange(12, dtype=np.float32).reshape(4, 3), name="v", use_resource=False)
    x = x_of(tf)
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a + tf.reduce_sum(tf.gather(v, [i, 0]) ** 2)), [0, x[0]])
    g = tf.gradients(y, v)[0]
    return y, g.values, g.indices, g.dense_shape, tf.convert_to_tensor(g)


@program()
def loop_with_resource_variable(tf):
    v = tf.Variable(np.arange(12, dtype=np.float32).reshape(4, 3), name="v", use_resource=True)
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * v), [0, tf.ones([4, 3])])
    return y, tf.gradients(y, v)[0]


@program({"x": X})
def loop_with_assertions(tf):
    x = x_of(tf)

    def body(i, a):
        with tf.control_dependencies([tf.assert_less(i, 10)]):
            return i + 1, a * 2.0

    return tf.while_loop(lambda i, a: i < 3, body, [0, x])


# -- case, group, tuple -----------------------------------------------------------------------------------------------


@program({"x": X})
def case_with_default(tf):
    x = x_of(tf)
    s = tf.reduce_sum(x)
    y = tf.case([(s > 0, lambda: x * 1.0), (s < -100.0, lambda: x * 2.0)], default=lambda: x * 3.0)
    return y, tf.gradients(y, x)[0]


@program({"x": X})
def case_exclusive(tf):
    x = x_of(tf)
    s = tf.reduce_sum(x)
    return tf.case([(s > 0, lambda: x * 1.0), (s < 0, lambda: x * 2.0)], exclusive=True)


@program({"x": X}, message="exclusive=True: more than 1 conditions")
def case_two_are_true(tf):
    x = x_of(tf)
    s = tf.reduce_sum(x)
    return tf.case([(s < 1, lambda: x * 1.0), (s < 0, lambda: x * 2.0)], default=lambda: x, exclusive=True)


@program({"x": X}, message="None of conditions evaluated as True")
def case_none_is_true(tf):
    x = x_of(tf)
    s = tf.reduce_sum(x)
    return tf.case([(s > 1, lambda: x * 1.0), (s > 2, lambda: x * 2.0)])


@program(message="must be a list, tuple, or dict")
def case_of_nonsense(tf):
    return tf.case(3)


@program({"i": 1})
def switch_cases(tf):
    i = tf.placeholder(tf.int32, [], name="i")
    one, two, nine = (lambda: tf.constant(1.0)), (lambda: tf.constant(2.0)), (lambda: tf.constant(9.0))
    return [
        tf.switch_case(i, [one, two]), tf.switch_case(i + 5, {0: one, 1: two}, default=nine), tf.switch_case(i + 5, [one, two]),
        tf.switch_case(i - 7, [one, two]),
    ]  # fmt: skip


@program(structure=True)
def groups_and_tuples(tf):
    a, b = tf.constant(1.0), tf.constant(2.0)
    first = tf.tuple([a, None, b])
    tf.group(a, b, [a])
    with tf.device("/cpu:0"):
        c = tf.constant(3.0)
    tf.group(a, c, name="both")
    second = tf.tuple([a, b], control_inputs=[tf.no_op(name="nothing")], name="again")
    return first[0], first[2], second


# -- TensorArrays -----------------------------------------------------------------------------------------------------


@program({"x": X})
def array_filled_by_loop(tf):
    x = x_of(tf)
    array = tf.TensorArray(tf.float32, size=3)
    _, array = tf.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t.write(i, x * tf.cast(i, tf.float32))), [0, array])
    y = array.stack()
    return y, tf.gradients(y, x)[0]


@program({"x": X})
def array_read_by_loop(tf):
    x = x_of(tf, [None])
    array = tf.TensorArray(tf.float32, size=tf.shape(x)[0]).unstack(x)
    out = tf.TensorArray(tf.float32, size=0, dynamic_size=True)

    def body(i, a, o):
        a = a * array.read(i) + 1.0
        return i + 1, a, o.write(i, a)

    _, a, o = tf.while_loop(lambda i, a, o: i < tf.shape(x)[0], body, [0, x[0], out])
    y = o.stack()
    return y, a, tf.gradients([y, a], x)[0]


@program({"x": X})
def array_split_and_joined(tf):
    x = x_of(tf)
    array = tf.TensorArray(tf.float32, size=2, clear_after_read=False, infer_shape=False).split(tf.concat([x, x * x], 0), [1, 3])
    y, z = array.concat(), array.read(1)
    return y, z, array.size(), tf.gradients([y * y, z], x)[0]


@program({"x": X})
def array_gathered(tf):
    x = x_of(tf)
    array = tf.TensorArray(tf.float32, size=4, clear_after_read=False, element_shape=[]).scatter([3, 1], x)
    y = array.gather([1, 1, 3, 0])
    return y, tf.gradients(y * y, x)[0], tf.gradients(array.read(3), x)[0]


@program({"x": X, "p": True})
def array_through_cond(tf):
    x, p = x_of(tf), p_of(tf)
    array = tf.TensorArray(tf.float32, size=2)
    array = tf.cond(p, lambda: array.write(0, x).write(1, x * x), lambda: array.write(1, x).write(0, x))
    y = array.stack()
    return y, tf.gradients(y, x)[0]


@program({"x": X})
def arrays_and_nested_loops(tf):
    x = x_of(tf)
    array = tf.TensorArray(tf.float32, size=2).unstack(tf.stack([x, x * 2.0]))

    def body(i, a, o):
        r = array.read(i)
        b = tf.while_loop(lambda j, b: j < 2, lambda j, b: (j + 1, b * r + a), [0, a])[1]
        return i + 1, b, o.write(i, b * r)

    _, _, o = tf.while_loop(lambda i, a, o: i < 2, body, [0, x, tf.TensorArray(tf.float32, size=2)])
    y = o.stack()
    return y, tf.gradients(y, x)[0]


@program(message="Inconsistent shapes")
def array_shape_does_not_fit(tf):
    return tf.TensorArray(tf.float32, size=2, element_shape=[3]).write(0, [1.0, 2.0]).flow


@program(message="Could not write to TensorArray index 0 because it has already been written to.")
def array_written_twice(tf):
    return tf.TensorArray(tf.float32, size=2).write(0, [1.0, 2.0]).write(0, [1.0, 2.0]).flow


@program(message="Tried to write to index 5 but array is not resizeable and size is: 2")
def array_written_out_of_bounds(tf):
    return tf.TensorArray(tf.float32, size=2).write(5, [1.0, 2.0]).flow


@program(message="twice because it was cleared after a previous read")
def array_read_twice(tf):
    array = tf.TensorArray(tf.float32, size=2).write(0, 1.0)
    first = array.read(0)
    with tf.control_dependencies([first]):
        return array.read(0)


@program(message="Argument `size` must be provided")
def array_without_size(tf):
    return tf.TensorArray(tf.float32).flow


# -- map, fold, scan --------------------------------------------------------------------------------------------------


@program({"x": X})
def mapped(tf):
    x = x_of(tf, [None])
    y = tf.map_fn(lambda a: a * a + x, x)
    return y, tf.gradients(y, x)[0]


@program()
def mapped_structures(tf):
    e = (tf.constant([1.0, 2.0, 3.0]), {"b": tf.constant([[1, 2], [3, 4], [5, 6]])})
    return (
        tf.map_fn(lambda t: (t[0] * 2.0, tf.reduce_sum(t[1]["b"])), e, dtype=(tf.float32, tf.int32)),
        tf.map_fn(lambda t: t[0], e, dtype=tf.float32),
        tf.map_fn(lambda a: tf.cast(a, tf.float32), tf.range(3), dtype=tf.float32),
        tf.map_fn(lambda a: a * 2.0, tf.zeros([0, 3])),
    )


@program()
def map_knows_its_shape(tf):
    return tf.constant(tf.map_fn(lambda a: a[0] * 2.0, tf.zeros([4, 3])).shape.as_list())


@program()
def map_over_a_scalar(tf):
    return tf.map_fn(lambda a: a, tf.constant(1.0))


@program()
def map_to_another_structure(tf):
    return tf.map_fn(lambda a: (a, a), tf.constant([1.0]))


@program()
def map_to_another_type(tf):
    return tf.map_fn(lambda a: tf.cast(a, tf.int32), tf.constant([1.0]))


@program({"x": X})
def folds(tf):
    x = x_of(tf)
    a = tf.foldl(lambda a, b: a * b + 1.0, x)
    b = tf.foldr(lambda a, b: a * b + 1.0, x)
    c = tf.foldl(lambda a, b: a * b + 1.0, x, initializer=2.0)
    d = tf.foldr(lambda a, b: a - b, x, initializer=2.0)
    e = tf.foldl(lambda a, b: (a[0] + b, a[1] * b), x, initializer=(1.0, 2.0))
    return a, b, c, d, e, tf.gradients([a, b, c, d, e[1]], x)[0]


@program({"x": X})
def scans(tf):
    x = x_of(tf, [None])
    a = tf.scan(lambda a, b: a * b + 1.0, x)
    b = tf.scan(lambda a, b: a * b + 1.0, x, reverse=True)
    c = tf.scan(lambda a, b: a * b + 1.0, x, initializer=2.0)
    d = tf.scan(lambda a, b: a - b, x, initializer=2.0, reverse=True)
    e = tf.scan(lambda a, b: (a[0] + b, a[1] * b), x, initializer=(1.0, 2.0))
    f = tf.scan(lambda a, b: (a[0] + b[1], a[1] * b[0]), (x, x * 2.0))
    return a, b, c, d, e, f, tf.gradients([a, b, c, d, e[1], f[0]], x)[0]


@program({"x": X})
def recurrent_net(tf):
    x = x_of(tf)
    w = tf.Variable(np.eye(2, dtype=np.float32) * 0.5, use_resource=True)
    xs = tf.stack([x, x * 2.0, x * 3.0])
    hs = tf.scan(lambda h, e: tf.tanh(tf.squeeze(tf.matmul(tf.expand_dims(h, 0), w), 0) + e), xs, initializer=tf.zeros([2]))
    return hs, tf.gradients(tf.reduce_sum(hs**2), [w, x])


# -- assertions -------------------------------------------------------------------------------------------------------


def _assertion(name, build, message=None):
    def fn(tf):
        x = x_of(tf, None)
        with tf.control_dependencies([c for c in [build(tf, x)] if c is not None]):
            return tf.identity(x)

    PROGRAMS["assertion_" + name] = (fn, {"x": X}, message, False)


_assertion("equal", lambda tf, x: tf.assert_equal(x, [1.5, -2.0]))
_assertion("not_equal", lambda tf, x: tf.assert_equal(x, 3.0, message="hello"), "[hello] [Condition x == y did not hold element-wise:]")
_assertion("less", lambda tf, x: tf.assert_less(x, 1.0), "Condition x < y did not hold element-wise:")
_assertion("positive", lambda tf, x: tf.assert_positive(x), "Condition x > 0 did not hold element-wise:")
_assertion("near", lambda tf, x: tf.assert_near(x, [1.5, -2.00001]), "x and y not equal to tolerance")
_assertion("rank", lambda tf, x: tf.assert_rank(x, 2), "must have rank")
_assertion("rank_in", lambda tf, x: tf.assert_rank_in(x, [1, 2]))
_assertion("static", lambda tf, x: tf.assert_equal([1, 2], [1, 3]), "Condition x == y did not hold element-wise:")
_assertion("type", lambda tf, x: tf.assert_type(x, tf.int32), "must be of type tf.int32; got tf.float32")
_assertion("integer", lambda tf, x: tf.assert_integer(x), 'Expected "x" to be integer type.')
_assertion("shapes", lambda tf, x: tf.debugging.assert_shapes([(x, ("N",)), (tf.zeros([3, 3]), ("M", "N"))]), "must have size")


# -- the tests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    fn, feed, message, _ = PROGRAMS[name]
    run_both(fn, feed, message=message)


@pytest.mark.parametrize("name", [name for name, row in PROGRAMS.items() if row[3]])
def test_same_graph(name):
    same_structure(PROGRAMS[name][0])


CONTROL = ("Switch(", "Merge(", "Enter(", "Exit(", "NextIteration(", "LoopCond(", "StackPushV2(", "StackPopV2(", "StackV2(")


@pytest.mark.parametrize("name", ["loop", "loop_in_loop", "cond_in_loop", "loop_in_cond", "array_filled_by_loop"])
def test_gradient_loops_have_tfs_nodes(name):
    """The control-flow nodes of the gradients: names and inputs."""
    fn = PROGRAMS[name][0]

    def control(tf):
        return {line for line in structure_of(tf, fn) if any(kind in line for kind in CONTROL)}

    assert control(penstock()) == control(tensorflow())


def test_contexts_travel_in_protos():
    """Loops and branches that TF wrote into a MetaGraph's collections can be differentiated after reading them back."""
    tf1, tf2 = tensorflow(), penstock()
    with tf1.Graph().as_default() as graph:
        x = tf1.placeholder(tf1.float32, [2], name="x")
        _, y = tf1.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf1.cond(i < 1, lambda: a * x, lambda: a + x)), [0, x])
        tf1.identity(y, name="y")
        (context,) = graph.get_collection("while_context")
        text, graph_text = context.to_proto().SerializeToString(), graph.as_graph_def().SerializeToString()
        with tf1.Session() as session:
            wanted = session.run(tf1.gradients(y, x)[0], {x: X})
    from penstock.formats import protos
    from penstock.graph.while_context import WhileContext

    with tf2.Graph().as_default() as graph:
        graph_def = protos.GraphDef()
        graph_def.ParseFromString(graph_text)
        tf2.import_graph_def(graph_def, name="")
        context_def = protos.WhileContextDef()
        context_def.ParseFromString(text)
        context = WhileContext.from_proto(context_def)
        assert context.to_proto() == context_def
        x, y = graph.get_tensor_by_name("x:0"), graph.get_tensor_by_name("y:0")
        with tf2.Session() as session:
            np.testing.assert_allclose(session.run(tf2.gradients(y, x)[0], {x: X}), wanted, rtol=1e-6)
