"""Programs with branches and loops, each a function of `tf`, run under both packages by test_control_flow.py. What is built of branches and loops
(cases, TensorArrays, maps, folds, scans, assertions) is in flow_library_programs.py."""

import collections

import numpy as np

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
